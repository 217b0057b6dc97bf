// Grouping of nodes into kernels.
#pragma once
#include "lower/schedule/group.h"
#include "lower/schedule/schedule.h"

namespace neso::schedule {

/// Groups in an order that respects all dependences.
std::vector<Group> formGroups(const loops::Program &program, const ScheduleOptions &options);

} // namespace neso::schedule
