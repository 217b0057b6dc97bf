// Where every buffer lives: outputs in place, temps in one arena by lifetime, best fit with symbolic sizes.
#pragma once
#include "lower/schedule/schedule.h"

namespace neso::schedule {

/// Adds the copies that outputs and write-backs need, after the last launch. Sets Placement::where and output of every buffer.
void placeOutputs(plan::Plan &plan);
/// Gives every arena buffer its offset; sets life times, arenaBytes and arenaLowerBound. Steps are final.
void planArena(plan::Plan &plan, const ScheduleOptions &options);
/// Peak of live arena bytes, by hint, if the kernels ran in this order (indices into plan.kernels).
int64_t peakOfOrder(const plan::Plan &plan, const std::vector<size_t> &order);

} // namespace neso::schedule
