// A plan whose kernels are final → the plan that the runtime walks: sizes, guards, memory and every step.
//
// Stands last before machine code, after lower/plan_to_tile: what code generation adds (sums and workspace beside a
// library's product) is placed with the rest. A run goes on as the plan then says: sizes of the inputs become symbols
// (inputSizes, definitions), guards on them are tested, arenas and outputs get memory, steps run one by one. Sizes that
// only the run finds out (late symbols) take the same way at the step that loads them: EvalSizes, guards, GrowArena,
// AllocOutput. package/ writes this down and decides nothing.
//
// Example: x [s0], y [2*s0 + 1]: s0 is defined by x, y is checked against 2*s0 + 1. With y alone the raw size r is taken,
// s0 is (r - 1) // 2 and r must equal 2*s0 + 1.
#pragma once
#include "ir/plan/plan.h"

namespace neso::memory {

struct MemoryOptions {
  bool inPlace = true; // a pointwise result may take the memory of an operand that dies
};

/// The plan must satisfy plan::verify in Form::Scheduled; it satisfies Form::Complete afterwards.
void planMemory(plan::Plan &plan, const MemoryOptions &options = {});

// ---- its parts

/// inputSizes and definitions.
void planSizes(plan::Plan &plan);
/// Offset and life time of every buffer of arena 0, its size and lower bound.
void planOffsets(plan::Plan &plan, const MemoryOptions &options);

} // namespace neso::memory
