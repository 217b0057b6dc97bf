#include "lower/schedule/schedule.h"

#include "lower/schedule/fuse.h"
#include "lower/schedule/memory.h"

namespace neso::schedule {

using namespace loops;

Result<plan::Plan> schedule(Program program, const ScheduleOptions &options) {
  for (const Node &n : program.nodes)
    if (n.kind == Node::Kind::UserKernel) return fail(Diag::ScheduleUserKernel, n.origins.empty() ? SourceLoc() : n.origins[0], n.name);
  plan::Plan p;
  // Guards first: nothing runs on sizes for which the plan is wrong.
  for (Expr g : program.guards) p.steps.push_back(plan::Guard{g, "the model was exported for inputs with " + g.str()});
  std::vector<plan::Step> guards = std::move(p.steps);

  std::vector<Group> groups = formGroups(program, options);
  int number = 0;
  for (Group &g : groups) p.kernels.push_back(finish(std::move(g), program, number++));
  program.nodes.clear();
  p.program = std::move(program);

  // Beyond this point kernels are fixed; what follows decides where and in which order they run.
  p.steps.clear();
  for (const plan::Kernel &k : p.kernels) p.steps.push_back(plan::Launch{k.id});
  placeOutputs(p);
  p.steps.insert(p.steps.begin(), guards.begin(), guards.end());
  planArena(p, options);
  return p;
}

} // namespace neso::schedule
