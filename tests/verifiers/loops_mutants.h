// One thing of a loops program dropped or altered: every place that names a buffer, a symbol, a size, an operand, a dtype
// or an order.
#pragma once
#include <vector>

#include "ir/loops/loops.h"
#include "verifiers/mutants.h"

namespace neso::test {

/// Each change is one of a field that some invariant of ir/loops/verify.h is about. What only changes values (another
/// operator of the same operands, another constant, a mask left out where its index is in range) is not among them.
std::vector<Mutant<loops::Program>> mutantsOf(const loops::Program &program);

} // namespace neso::test
