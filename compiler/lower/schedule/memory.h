// Where every buffer lives: in the caller's memory, in an output, in an arena or nowhere. Offsets are lower/memory's.
#pragma once
#include <set>

#include "lower/schedule/schedule.h"

namespace neso::schedule {

/// Adds the copies that outputs and write-backs need, after the last launch. Sets Placement::where and output of every
/// buffer.
void placeOutputs(plan::Plan &plan);
/// The order in which the kernels of a block run: as they stand (a topological order near the program's), or, if that needs
/// less memory at usual sizes, one that prefers kernels which free more than they allocate. Placements say which buffers are
/// in the arena.
std::vector<size_t> launchOrder(const plan::Plan &plan, const std::vector<size_t> &block, const ScheduleOptions &options);

/// For each kernel of a block, those of it that must run after it: they read what it writes, or write what it touches,
/// unless both only write and to different elements; or they need a symbol that it defines.
std::vector<std::set<size_t>> followers(const plan::Plan &plan, const std::vector<size_t> &block);
/// Kernels to launch, in order: those of `order`, where small ones that do not need each other became parts of new
/// kernels of the plan. Each such pack runs at the place of its first part.
std::vector<plan::KernelId> packLaunches(plan::Plan &plan, const std::vector<size_t> &order,
                                         const ScheduleOptions &options);

} // namespace neso::schedule
