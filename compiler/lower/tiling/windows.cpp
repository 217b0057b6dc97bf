#include "lower/tiling/windows.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/rules.h"
#include "ir/loops/access.h"
#include "ir/loops/build.h"
#include "ir/plan/access.h"
#include "ir/shape/usual.h"

namespace neso {

using loops::Node;
using loops::OpKind;

namespace {

/// Elements that keep one processor busy while it waits for memory.
constexpr int64_t kBusyElements = 2048;
/// Partial results that a thread holds beside what it loads.
constexpr int64_t kHeldElements = 32;

/// Reductions in one pass, and what is done with their results, without side effects on one another.
bool isPlain(const plan::Kernel &kernel) {
  const plan::Passes passes = plan::passesOf(kernel);
  for (size_t n = 0; n < kernel.nodes.size(); ++n) {
    const Node &node = kernel.nodes[n];
    const bool reduces = node.kind() == Node::Kind::Reduction;
    if (reduces ? !passes.inner[n] || passes.pass[n] > 0 : node.kind() != Node::Kind::Pointwise || passes.inner[n]) return false;
    for (const loops::Op &op : node.body().ops)
      if (op.kind == OpKind::Indirect) return false;
    for (const loops::Store &s : node.stores())
      if (s.mode != loops::StoreMode::Set) return false;
  }
  return true;
}

/// The factor of a symbol in an index, if it is a number other than 0.
int64_t factorOf(Expr index, Symbol symbol) {
  std::optional<Affine> a = affineIn(index, symbol);
  return a ? a->coefficient.asConst().value_or(0) : 0;
}

/// How many elements apart, in steps of the window, neighbours along `outer` begin; 0: they have nothing in common.
int64_t strideOf(const plan::Kernel &kernel, size_t outer, int64_t &length) {
  int64_t stride = 0;
  for (const Node &node : kernel.nodes) {
    if (node.kind() != Node::Kind::Reduction) continue;
    loops::forEachAccess(node, [&](const loops::Access &a) {
      if (a.writes()) return;
      const int64_t step = factorOf(a.index, Symbol::outer(outer));
      for (size_t d = 0; d < kernel.rRanges.size() && step; ++d) {
        const int64_t along = factorOf(a.index, Symbol::inner(d)), extent = kernel.rRanges[d].asConst().value_or(0);
        if (along && step % along == 0 && step / along > 0 && step / along < extent) stride = step / along, length = extent;
      }
    });
  }
  return stride;
}

/// Nodes of the windows, with values that live in the kernel alone in buffers of their own: all reductions come before the first
/// store, so that equal loads have nothing between them.
std::vector<Node> copiesOf(plan::Plan &plan, const plan::Kernel &kernel, size_t d, int64_t windows, const Facts &facts) {
  std::vector<Node> out;
  std::map<std::pair<int64_t, loops::BufferId>, loops::BufferId> inside;
  auto own = [&](int64_t window, loops::BufferId buffer) {
    if (window == 0 || plan.placements[buffer.index()].where != plan::Placement::Where::None) return buffer;
    auto [it, isNew] = inside.try_emplace({window, buffer}, buffer);
    if (!isNew) return it->second;
    const loops::Buffer given = plan.program.buffer(buffer);
    plan.placements.emplace_back();
    return it->second = addTemp(plan.program, given.name + "_" + std::to_string(window), given.dtype, given.elements);
  };
  for (bool reductions : {true, false})
    for (int64_t window = 0; window < windows; ++window)
      for (const Node &given : kernel.nodes) {
        if ((given.kind() == Node::Kind::Reduction) != reductions) continue;
        Node node = given;
        const SymbolMap<Expr> map = {{Symbol::outer(d), Expr(Symbol::outer(d)) * windows + window}};
        loops::mapExprs(node, [&](Expr e) { return facts.simplify(substitute(e, map)); });
        loops::rewriteAccesses(node, [&](loops::BufferId &buffer, Expr &, const loops::Access &) { buffer = own(window, buffer); });
        node.ranges = kernel.xRanges;
        out.push_back(std::move(node));
      }
  return out;
}

/// Whether neighbouring results read the same elements.
bool slides(const plan::Kernel &kernel) {
  int64_t length = 0;
  for (size_t d = 0; d < kernel.xRanges.size(); ++d)
    if (strideOf(kernel, d, length)) return true;
  return false;
}

/// An access of memory in terms of the outer space, and the bytes that it moves.
struct Moved {
  Expr index;
  int64_t bytes;
  bool writes;
};

std::vector<Moved> movedBy(const plan::Plan &plan, const plan::Kernel &kernel) {
  std::vector<Moved> moved;
  const Facts &facts = plan.program.facts;
  for (const Node &node : kernel.nodes) {
    int64_t points = 1;
    for (const std::vector<Expr> *ranges : {&node.ranges, &node.reduceRanges})
      for (Expr e : *ranges) points = std::min<int64_t>(points * std::max<int64_t>(usualSize(e, facts), 1), int64_t{1} << 40);
    loops::forEachAccess(node, [&](const loops::Access &a) {
      if (plan.placements[a.buffer.index()].where == plan::Placement::Where::None) return;
      const loops::Buffer &buffer = plan.program.buffer(a.buffer);
      moved.push_back({a.index, std::min(points, usualSize(buffer.elements, facts)) * itemSize(buffer.dtype), a.writes()});
    });
  }
  return moved;
}

/// The outer dimensions, those that lie furthest apart in what is written first, that along which most bytes are neighbours last.
std::vector<size_t> orderOf(const plan::Kernel &kernel, const std::vector<Moved> &moved, const Facts &facts) {
  std::vector<size_t> order(kernel.xRanges.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const Moved *lead = nullptr;
  for (const Moved &m : moved) {
    const bool covers = std::all_of(order.begin(), order.end(), [&](size_t d) { return uses(m.index, Symbol::outer(d)) && affineIn(m.index, Symbol::outer(d)); });
    if (m.writes && covers && (!lead || m.bytes > lead->bytes)) lead = &m;
  }
  if (!lead) return order;
  auto apart = [&](size_t d) { return usualSize(affineIn(lead->index, Symbol::outer(d))->coefficient, facts); };
  auto neighbours = [&](size_t d) {
    int64_t bytes = 0;
    for (const Moved &m : moved) {
      const int64_t step = factorOf(m.index, Symbol::outer(d));
      if (step == 1 || (uses(m.index, Symbol::outer(d)) && step != 2)) bytes += step == 1 ? 2 * m.bytes : -m.bytes;
    }
    return bytes;
  };
  size_t last = order.back();
  for (size_t d : order)
    if (neighbours(d) > neighbours(last)) last = d;
  if (last == order.back()) return order;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return apart(a) > apart(b); });
  order.erase(std::find(order.begin(), order.end(), last));
  order.push_back(last);
  return order;
}

} // namespace

void orderAsInMemory(const plan::Plan &plan, plan::Kernel &kernel) {
  if (kernel.serial || kernel.xRanges.size() < 2 || !isPlain(kernel) || !slides(kernel)) return;
  const std::vector<size_t> order = orderOf(kernel, movedBy(plan, kernel), plan.program.facts);
  if (std::is_sorted(order.begin(), order.end())) return;
  applied(Rule::OrderAsInMemory);
  SymbolMap<Expr> names;
  std::vector<Expr> ranges;
  for (size_t d = 0; d < order.size(); ++d) names[Symbol::outer(order[d])] = Symbol::outer(d), ranges.push_back(kernel.xRanges[order[d]]);
  kernel.xRanges = ranges;
  for (Node &node : kernel.nodes) {
    loops::mapExprs(node, [&](Expr e) { return substitute(e, names); });
    node.ranges = ranges;
  }
}

int64_t shareWindows(plan::Plan &plan, plan::Kernel &kernel, const LoopTiling &tiling, const TileTarget &target) {
  if (!target.threadBlocks || kernel.serial || tiling.shape != LoopTiling::Shape::Unrolled || kernel.xRanges.size() < 2) return 1;
  const size_t d = kernel.xRanges.size() - 2;
  const std::optional<int64_t> extent = kernel.xRanges[d].asConst();
  int64_t length = 0, results = 1, tile = 1;
  const int64_t stride = strideOf(kernel, d, length);
  if (!extent || !stride || !isPlain(kernel)) return 1;
  for (Expr e : kernel.xRanges) results = std::min<int64_t>(results * usualSize(e, plan.program.facts), int64_t{1} << 40);
  for (int64_t n : tiling.tile) tile *= n;
  auto pays = [&](int64_t windows) {
    return *extent % windows == 0 && results / windows >= target.processors * kBusyElements &&
           tile * windows <= int64_t{32} * tiling.warps * kHeldElements &&
           4 * ((windows - 1) * stride + length) <= 3 * windows * length;
  };
  const int64_t windows = pays(4) ? 4 : pays(2) ? 2 : 1;
  if (windows == 1) return 1;
  applied(Rule::ShareWindows);
  kernel.xRanges[d] = *extent / windows;
  Facts facts = plan.program.facts;
  for (size_t x = 0; x < kernel.xRanges.size(); ++x) facts.setIndex(Symbol::outer(x), kernel.xRanges[x]);
  for (size_t r = 0; r < kernel.rRanges.size(); ++r) facts.setIndex(Symbol::inner(r), kernel.rRanges[r]);
  kernel.nodes = copiesOf(plan, kernel, d, windows, facts);
  return windows;
}

} // namespace neso
