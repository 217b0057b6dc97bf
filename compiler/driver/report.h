// The page behind --report: one self-contained HTML file that shows what became of a model.
#pragma once
#include <string>
#include <vector>

#include "backend/target.h"
#include "driver/compile.h"
#include "ir/plan/plan.h"

namespace neso {

/// Kernels with their sources, traffic and fusion decisions; which kernel feeds which; arena memory over the launches
/// against the planner's lower bound; time of each compiler step. Symbolic sizes are shown as formulas, pictures at one
/// size in the exported range. `usage`: registers and shared memory of the functions on a GPU; empty for a CPU.
std::string htmlReport(const plan::Plan &plan, const std::vector<FunctionUsage> &usage,
                       const std::vector<StepTime> &times);

} // namespace neso
