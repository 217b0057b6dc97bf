// What a value of a body is computed from.
#pragma once
#include <set>

#include "ir/loops/loops.h"

namespace neso::loops {

/// The operators that a body value needs, through operands and through computed indices.
std::set<ValueIdx> reachable(const Body &body, ValueIdx root);
/// The index symbols (i0, r1, t0, …) that occur in them.
std::set<Symbol> dependences(const Body &body, ValueIdx root);

} // namespace neso::loops
