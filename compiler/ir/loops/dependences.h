// What a value of a body is computed from.
#pragma once
#include <set>

#include "ir/loops/loops.h"

namespace neso::loops {

/// The operators that a body value needs, through operands and through computed indices.
std::set<ValueIdx> reachable(const Body &body, ValueIdx root);
/// The index symbols (i0, r1, t0, …) that occur in them.
std::set<Symbol> dependences(const Body &body, ValueIdx root);

/// Whether numbers of four bits are among the operators: what a mask leaves of a word.
bool usesFourBits(const Body &body, ValueIdx root);
/// So many rows of 16-bit floats, at most, are multiplied with such numbers as these come (lower/tiling/contraction.cpp); for more, weights are made of them once and
/// written. 4096 x 4096 on an H200, 256 rows: 36 microseconds so, 212 where each block of rows takes the numbers apart.
inline constexpr int64_t kRowsOfFourBits = 32;

} // namespace neso::loops
