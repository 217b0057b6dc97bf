// A group: nodes that will be one kernel, all rewritten to one iteration space. Its dimensions have symbols that are
// unique in the whole schedule (g17) until finish() orders and merges them and gives them those of a kernel: x0, r0, ….
#pragma once
#include <set>

#include "ir/plan/plan.h"
#include "lower/schedule/access.h"

namespace neso::schedule {

struct Dim {
  Symbol symbol;
  Expr extent;
};

struct GroupNode {
  loops::Node node;   // index expressions over the group's dimensions
  bool overR = false; // runs for each (x, r); else once per x
  int order = 0;      // position in the program
};

struct Group {
  std::vector<Dim> x, r;
  std::vector<GroupNode> nodes; // in execution order
  loops::Node::Kind kind = loops::Node::Kind::Pointwise;
  std::vector<std::string> decisions;
  bool alive = true;
  bool fixedOrder = false; // dimensions must keep their order (argmax positions, scatters, contractions)
};

/// Hands out dimensions.
class NewDims {
public:
  Dim make(Expr extent) { return {Symbol::of(Symbol::Kind::Grouped, next_++), extent}; }

private:
  size_t next_ = 0;
};

/// One node as a group of its own.
Group groupOf(const loops::Node &node, int order, NewDims &dims);
/// Replaces a dimension of the group by outer * innerExtent + inner, with two new dimensions in its place.
void splitDim(Group &group, Symbol symbol, const Dim &outer, const Dim &inner);

/// The group as a kernel: unit dimensions dropped, dimensions ordered so that the innermost is contiguous for most
/// bytes, adjacent ones merged where every index allows, index expressions simplified, symbols renamed.
plan::Kernel finish(Group group, const loops::Program &program, int number);

} // namespace neso::schedule
