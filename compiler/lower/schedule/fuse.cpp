#include "lower/schedule/fuse.h"

namespace neso::schedule {

std::vector<Group> formGroups(const loops::Program &program, const ScheduleOptions &options) {
  std::vector<Group> groups;
  DimNames names;
  for (size_t n = 0; n < program.nodes.size(); ++n) groups.push_back(groupOf(program.nodes[n], static_cast<int>(n), names));
  return groups;
}

} // namespace neso::schedule
