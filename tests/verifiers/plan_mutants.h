// One thing of a plan dropped or altered: kernels, steps, places in memory, sizes, guards, what the caller is given.
#pragma once
#include <vector>

#include "ir/plan/plan.h"
#include "verifiers/mutants.h"

namespace neso::test {

/// Each change is one of a field that some invariant of ir/plan/verify.h is about: those of plans as scheduled, and those
/// that only complete plans have. Nodes of kernels are altered as those of loops are (loops_mutants.h).
std::vector<Mutant<plan::Plan>> mutantsOf(const plan::Plan &plan, bool complete);

} // namespace neso::test
