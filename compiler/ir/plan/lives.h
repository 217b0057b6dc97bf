// When buffers are in use: what memory planning lays out by, and what the verifier holds its result against.
#pragma once
#include <utility>
#include <vector>

#include "ir/plan/plan.h"

namespace neso::plan {

/// What a step reads or writes in memory, repeats included.
std::vector<loops::BufferId> touchedBy(const Plan &plan, const Step &step);

/// First and last step at which each buffer is touched (-1: never), in the order of forEachStep. What a loop touches lives
/// through all of it: the next turn may need it.
class LifeTimes {
public:
  explicit LifeTimes(const Plan &plan);
  std::vector<int> first, last; // by buffer of the program
  int steps = 0;

private:
  void touch(loops::BufferId b, int from, int to);
  void visit(const Region &region);

  const Plan &p_;
  std::vector<std::vector<loops::BufferId>> loops_; // what the loops around touch, outermost first
};

/// Buffers that kernel k may write over the memory of: (result, dying operand) pairs of equal size, read and written at
/// the same place.
std::vector<std::pair<loops::BufferId, loops::BufferId>> inPlacePairs(const Plan &plan, const Kernel &k);

} // namespace neso::plan
