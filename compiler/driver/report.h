// The page behind --report: one self-contained HTML file that shows what became of a model.
#pragma once
#include <string>
#include <vector>

#include "backend/target.h"
#include "driver/compile.h"
#include "ir/plan/plan.h"

namespace neso {

/// What stands before the measured times of a report, as JSON, or null; "</script>" ends them.
inline constexpr char kReportTimes[] = "<script type=application/json id=times>";

/// What stands before the sizes that its figures are of, "s0=64, s1=8"; a quote ends them.
inline constexpr char kReportSizes[] = "data-sizes=\"";

/// Kernels with their sources, traffic and fusion decisions; which kernel feeds which, by levels; arena memory over the launches
/// against the planner's lower bound; time of each compiler step. Sizes that may differ are shown at the
/// usual one, with their formulas where a kernel is opened. `usage`: registers and shared memory of the functions on a GPU; empty for a CPU.
std::string htmlReport(const plan::Plan &plan, const std::vector<FunctionUsage> &usage,
                       const std::vector<StepTime> &times);

} // namespace neso
