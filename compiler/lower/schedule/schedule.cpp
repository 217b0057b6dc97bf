#include "lower/schedule/schedule.h"

#include <algorithm>

#include "base/fault.h"
#include "lower/schedule/access.h"
#include "lower/schedule/attach.h"
#include "lower/schedule/fuse.h"
#include "lower/schedule/memory.h"
#include "lower/schedule/split.h"

namespace neso::schedule {

using namespace loops;

namespace {

/// Removes nodes and stores whose results nobody sees.
void dropDead(Program &program) {
  std::vector<bool> live(program.buffers.size());
  for (const Buffer &b : program.buffers) live[b.id.index()] = b.kind != Buffer::Kind::Temp;
  for (const ProgramOutput &o : program.outputs)
    if (o.buffer.valid()) live[o.buffer.index()] = true;
  std::vector<bool> kept(program.nodes.size());
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t n = program.nodes.size(); n-- > 0;) {
      if (kept[n]) continue;
      std::vector<Access> accesses = accessesOf(program.nodes[n]);
      if (std::none_of(accesses.begin(), accesses.end(),
                       [&](const Access &a) { return a.writes() && live[a.buffer.index()]; }))
        continue;
      kept[n] = changed = true;
      for (const Access &a : accesses)
        if (a.reads()) live[a.buffer.index()] = true;
    }
  }
  std::vector<Node> nodes;
  for (size_t n = 0; n < program.nodes.size(); ++n) {
    if (!kept[n]) continue;
    Node &node = program.nodes[n];
    auto dead = [&](const Store &s) { return !live[s.buffer.index()]; };
    std::erase_if(node.stores, dead);
    for (Reduction &r : node.reductions) std::erase_if(r.results, dead);
    std::erase_if(node.reductions, [](const Reduction &r) { return r.results.empty(); });
    nodes.push_back(std::move(node));
  }
  program.nodes = std::move(nodes);
}

} // namespace

Result<plan::Plan> schedule(Program program, const ScheduleOptions &options) {
  Working stage("schedule");
  dropDead(program);
  if (options.splitReductions) {
    splitContractions(program, options.split);
    splitReductions(program, options.split);
    splitSorts(program, options.split);
    splitScans(program, options.split);
  }
  if (options.split.sortByDigits) giveSortsScratch(program);
  plan::Plan p;
  std::vector<Group> groups = formGroups(program, options);
  int number = 0;
  for (Group &g : groups) p.kernels.push_back(finish(std::move(g), program, number++));
  program.nodes.clear();
  p.program = std::move(program);
  if (options.fuseUserKernels) attachNeighbours(p);

  // Beyond this point kernels are fixed; what follows decides where and in which order they run.
  placeOutputs(p);
  std::vector<plan::Step> launches;
  for (plan::KernelId k : packLaunches(p, launchOrder(p, options), options)) launches.push_back(plan::Launch{k});
  p.main.steps.insert(p.main.steps.begin(), launches.begin(), launches.end());
  return p;
}

} // namespace neso::schedule
