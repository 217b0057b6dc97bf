#include "lower/tiling/reductions.h"

#include <algorithm>

#include "base/rules.h"
#include "ir/loops/build.h"
#include "ir/shape/usual.h"

namespace neso {

using loops::Node;
using loops::Op;
using loops::OpKind;
using loops::ReduceKind;

void dropEmptyReductions(plan::Kernel &kernel) {
  for (Node &node : kernel.nodes) {
    auto *empty = node.as<loops::ReductionSpec>();
    if (!empty || !node.reduceRanges.empty() || kernel.rRanges.empty()) continue;
    loops::PointwiseSpec plain{std::move(empty->body), {}};
    for (const loops::Reduction &red : empty->reductions) {
      bool arg = red.kind == ReduceKind::ArgMin || red.kind == ReduceKind::ArgMax;
      for (loops::Store s : red.results) {
        // Of one element: its value; position 0; squared deviation 0 and count 1; sum of exponentials 1.
        bool element = !arg && s.value == 0;
        Op op{element ? OpKind::Cast : OpKind::Constant, arg ? DType::I64 : red.dtype};
        if (element)
          op.a = red.input;
        else if (!arg)
          op.imm = red.kind == ReduceKind::Welford && s.value == 1 ? 0 : 1;
        s.value = append(plain.body, op);
        plain.stores.push_back(s);
      }
    }
    node.spec = std::move(plain);
    applied(Rule::DropEmptyReduction);
  }
}

static bool takesTwoPasses(const loops::Reduction &r) {
  return r.kind == ReduceKind::Welford || r.kind == ReduceKind::OnlineSoftmax;
}

namespace {

/// Makes two passes over r of each reduction that folds more than one value: mean and squared deviation; maximum and
/// sum of exponentials.
class TwoPasses {
public:
  TwoPasses(plan::Plan &plan, plan::Kernel &kernel) : plan_(plan), kernel_(kernel) {}

  void run() {
    for (const Node &node : kernel_.nodes) {
      const auto *given = node.as<loops::ReductionSpec>();
      if (!given || std::none_of(given->reductions.begin(), given->reductions.end(), takesTwoPasses)) {
        out_.push_back(node);
        continue;
      }
      for (const loops::Reduction &red : given->reductions) {
        if (takesTwoPasses(red))
          expand(node, given->body, red);
        else
          add(node, loops::ReductionSpec{given->body, {red}}, true);
      }
    }
    kernel_.nodes = std::move(out_);
  }

private:
  loops::BufferId internal(const char *what, DType dtype) {
    plan_.placements.emplace_back();
    return addTemp(plan_.program, kernel_.name + "_" + what, dtype, 1);
  }
  /// A node like `from`, over (x, r) or over x alone.
  void add(const Node &from, Node::Spec spec, bool overR) {
    Node n = from;
    n.spec = std::move(spec);
    if (!overR) n.reduceRanges.clear();
    out_.push_back(std::move(n));
  }

  void expand(const Node &node, const loops::Body &body, const loops::Reduction &red) {
    applied(Rule::TwoPasses);
    const DType t = red.dtype;
    const bool welford = red.kind == ReduceKind::Welford;
    const loops::BufferId firstResult = internal(welford ? "sum" : "max", t);
    loops::Reduction first = red;
    first.kind = welford ? ReduceKind::Sum : ReduceKind::Max;
    first.results = {{firstResult, 0, 0}};
    add(node, loops::ReductionSpec{body, {first}}, true);
    const loops::BufferId center = welford ? internal("mean", t) : firstResult;
    loops::PointwiseSpec middle = between(red, firstResult, center);
    if (!middle.stores.empty()) add(node, std::move(middle), false);
    loops::ReductionSpec second{body, {}};
    const loops::ValueIdx d = append(second.body, OpKind::Sub, t, red.input, appendLoad(second.body, center, t, 0));
    loops::Reduction total = red;
    total.kind = ReduceKind::Sum, total.results.clear();
    total.input = welford ? append(second.body, OpKind::Mul, t, d, d) : append(second.body, OpKind::Exp, t, d);
    for (loops::Store s : red.results)
      if (s.value == 1) {
        s.value = 0;
        total.results.push_back(s);
      }
    second.reductions = {total};
    if (!total.results.empty()) add(node, std::move(second), true);
  }

  /// Outer values between the passes: the mean, and stores of what the first pass gave.
  loops::PointwiseSpec between(const loops::Reduction &red, loops::BufferId firstResult, loops::BufferId center) const {
    const DType t = red.dtype;
    loops::PointwiseSpec middle;
    loops::ValueIdx v = appendLoad(middle.body, firstResult, t, 0);
    if (red.kind == ReduceKind::Welford) {
      const loops::ValueIdx count = appendIndex(middle.body, product(kernel_.rRanges));
      const loops::ValueIdx n = append(middle.body, OpKind::Cast, t, count);
      v = append(middle.body, OpKind::Div, t, v, n);
      middle.stores.push_back({center, 0, v});
      for (const loops::Store &s : red.results)
        if (s.value == 2) middle.stores.push_back({s.buffer, s.index, n});
    }
    for (const loops::Store &s : red.results)
      if (s.value == 0) middle.stores.push_back({s.buffer, s.index, v});
    return middle;
  }

  plan::Plan &plan_;
  plan::Kernel &kernel_;
  std::vector<Node> out_;
};

} // namespace

void expandTwoPassReductions(plan::Plan &plan, plan::Kernel &kernel, const TileTarget &target) {
  // A row that no program can keep is read once: its partial results are combined as they come.
  if (target.threadBlocks && !kernel.serial &&
      usualSize(product(kernel.rRanges), plan.program.facts) > target.registerRow)
    return;
  TwoPasses(plan, kernel).run();
}

} // namespace neso
