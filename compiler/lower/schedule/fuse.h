// Grouping of nodes into kernels.
#pragma once
#include "lower/schedule/group.h"
#include "lower/schedule/schedule.h"

namespace neso::schedule {

/// Groups of the program's nodes in an order that respects all dependences; `shared` says which buffers others touch too
/// (nodes of another block).
std::vector<Group> formGroups(const loops::Program &program, const ScheduleOptions &options, const std::vector<bool> &shared);

} // namespace neso::schedule
