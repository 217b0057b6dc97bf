// Where every buffer lives: outputs in place, temps in one arena by lifetime, best fit with symbolic sizes.
#pragma once
#include "lower/schedule/schedule.h"

namespace neso::schedule {

/// Adds the copies that outputs and write-backs need, after the last launch. Sets Placement::where and output of every buffer.
void placeOutputs(plan::Plan &plan);
/// Gives every arena buffer its offset; sets life times, arenaBytes and arenaLowerBound. Steps are final.
void planArena(plan::Plan &plan, const ScheduleOptions &options);
/// The order in which kernels run: as they stand (a topological order near the program's), or, if that needs less memory at usual sizes, one
/// that prefers kernels which free more than they allocate. Placements say which buffers are in the arena.
std::vector<size_t> launchOrder(const plan::Plan &plan, const ScheduleOptions &options);

} // namespace neso::schedule
