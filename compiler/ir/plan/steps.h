// What a step says of itself, whatever its kind: the regions inside, the memory that it names, the expressions that it asks for. Memory
// planning, the verifier and life times follow steps by these alone; steps.cpp does not compile until it considers a new kind.
#pragma once
#include "ir/loops/access.h"
#include "ir/plan/plan.h"

namespace neso::plan {

/// In the order of the text.
std::vector<const Region *> regionsInside(const Step &step);
std::vector<Region *> regionsInside(Step &step);

/// A buffer that a step names itself, what it reads first. What a launch touches its kernel says (access.h).
struct NamedBuffer {
  loops::BufferId buffer; // may be invalid: a copy to an output that has no buffer
  loops::AccessMode mode;
};
std::vector<NamedBuffer> namedBuffers(const Step &step);

/// What a step computes of sizes and offsets: a loop's condition each time that its test has run, the others when the step begins. What a
/// launch asks for its kernel says.
std::vector<Expr> expressionsOf(const Plan &plan, const Step &step);

/// "launch", "copy", …: as neso_step_event has it.
std::string_view name(const Step &step);

/// Calls f for each step of a region and of the regions inside, in the order of their text. R may be const.
template <typename R, typename F> void forEachStep(R &region, F &&f) {
  for (auto &step : region.steps) {
    f(step);
    for (auto *inside : regionsInside(step)) forEachStep(*inside, f);
  }
}

} // namespace neso::plan
