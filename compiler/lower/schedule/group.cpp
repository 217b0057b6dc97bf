#include "lower/schedule/group.h"

#include <algorithm>
#include <numeric>

namespace neso::schedule {

using namespace loops;

Group groupOf(const Node &node, int order, NewDims &dims) {
  Group g;
  g.kind = node.kind();
  GroupNode member{node, !node.reduceRanges.empty(), order};
  SymbolMap<Expr> map;
  for (size_t d = 0; d < node.ranges.size(); ++d) {
    g.x.push_back(dims.make(node.ranges[d]));
    map[Symbol::index(d)] = g.x.back().symbol;
  }
  for (size_t d = 0; d < node.reduceRanges.size(); ++d) {
    g.r.push_back(dims.make(node.reduceRanges[d]));
    map[Symbol::inner(d)] = g.r.back().symbol;
  }
  mapExprs(member.node, [&](Expr e) { return substitute(e, map); });
  g.fixedOrder = node.kind() != Node::Kind::Pointwise && node.kind() != Node::Kind::Reduction;
  for (const Reduction &r : node.reductions())
    g.fixedOrder |= r.kind == ReduceKind::ArgMax || r.kind == ReduceKind::ArgMin;
  forEachAccess(node, [&](const Access &a) {
    if (!a.writes()) return;
    // The last of several stores to one element wins, in the order of the loop: keep it.
    for (Symbol s : symbolsOf(a.index)) g.fixedOrder |= s.kind() == Symbol::Kind::Indirect;
  });
  g.nodes.push_back(std::move(member));
  return g;
}

void splitDim(Group &g, Symbol symbol, const Dim &outer, const Dim &inner) {
  SymbolMap<Expr> map = {{symbol, outer.symbol * inner.extent + inner.symbol}};
  for (GroupNode &n : g.nodes) mapExprs(n.node, [&](Expr e) { return substitute(e, map); });
  for (std::vector<Dim> *dims : {&g.x, &g.r})
    for (size_t d = 0; d < dims->size(); ++d)
      if ((*dims)[d].symbol == symbol) {
        (*dims)[d] = inner;
        dims->insert(dims->begin() + static_cast<ptrdiff_t>(d), outer);
        return;
      }
}

namespace {

struct Finisher {
  Group &g;
  const Program &program;
  std::vector<std::pair<Access, int64_t>> accesses; // with bytes moved, by hint

  void substituteAll(const SymbolMap<Expr> &map) {
    for (GroupNode &n : g.nodes) mapExprs(n.node, [&](Expr e) { return substitute(e, map); });
  }

  void dropUnitDims() {
    SymbolMap<Expr> zero;
    for (std::vector<Dim> *dims : {&g.x, &g.r}) {
      bool keepOne = dims == &g.r; // a kernel that reduces keeps its r space
      for (size_t d = 0; d < dims->size();) {
        if ((*dims)[d].extent.isConst(1) && !(keepOne && dims->size() == 1)) {
          zero[(*dims)[d].symbol] = 0;
          dims->erase(dims->begin() + static_cast<ptrdiff_t>(d));
        } else {
          ++d;
        }
      }
    }
    if (!zero.empty()) substituteAll(zero);
  }

  void collectAccesses() {
    accesses.clear();
    for (const GroupNode &n : g.nodes) {
      int64_t points = 1;
      for (const Dim &d : g.x) points *= std::max<int64_t>(usualSize(d.extent, program.facts), 1);
      if (n.overR)
        for (const Dim &d : g.r) points *= std::max<int64_t>(usualSize(d.extent, program.facts), 1);
      for (Access &a : accessesOf(n.node)) {
        int64_t bytes = std::min(points, usualSize(program.buffer(a.buffer).elements, program.facts)) *
                        itemSize(program.buffer(a.buffer).dtype);
        accesses.push_back({std::move(a), bytes});
      }
    }
  }

  /// Bytes that are contiguous in a dimension, less those that are strided in it. Every second element, as the parts of complex numbers
  /// lie, is neither.
  int64_t contiguousBytes(Symbol symbol) const {
    int64_t score = 0;
    for (const auto &[a, bytes] : accesses) {
      if (!uses(a.index, symbol)) continue;
      std::optional<Affine> f = affineIn(a.index, symbol);
      if (f && f->coefficient.isConst(2)) continue;
      score += f && f->coefficient.isConst(1) ? 2 * bytes : -bytes;
    }
    return score;
  }

  /// Orders one list of dimensions by the strides of its largest access; then moves the most contiguous one to the end.
  void order(std::vector<Dim> &dims) {
    if (dims.size() < 2 || g.fixedOrder) return;
    // The store of most elements, or failing that the largest load, gives the order.
    const Access *lead = nullptr;
    int64_t best = -1;
    for (const auto &[a, bytes] : accesses) {
      bool covers = std::all_of(dims.begin(), dims.end(),
                                [&](const Dim &d) { return uses(a.index, d.symbol) && affineIn(a.index, d.symbol); });
      int64_t weight = bytes * 2 + (a.writes() ? 1 : 0);
      if (covers && weight > best) best = weight, lead = &a;
    }
    if (lead) {
      auto stride = [&](const Dim &d) {
        return usualSize(affineIn(lead->index, d.symbol)->coefficient, program.facts);
      };
      std::stable_sort(dims.begin(), dims.end(), [&](const Dim &a, const Dim &b) { return stride(a) > stride(b); });
    }
    size_t inner = dims.size() - 1;
    for (size_t d = 0; d < dims.size(); ++d)
      if (contiguousBytes(dims[d].symbol) > contiguousBytes(dims[inner].symbol)) inner = d;
    std::rotate(dims.begin() + static_cast<ptrdiff_t>(inner), dims.begin() + static_cast<ptrdiff_t>(inner) + 1,
                dims.end());
  }

  /// Merges dims[d] and dims[d + 1] if every expression sees them only as d * extent(d + 1) + (d + 1).
  bool tryMerge(std::vector<Dim> &dims, size_t d) {
    Dim outer = dims[d], inner = dims[d + 1];
    // With outer = K and inner = k - K * extent, K vanishes from every expression just when the two move as one.
    const Symbol merged = Symbol::local("merged_outer");
    SymbolMap<Expr> map = {{outer.symbol, merged}, {inner.symbol, inner.symbol - merged * inner.extent}};
    for (const GroupNode &n : g.nodes)
      for (Expr e : loopExprsOf(n.node))
        if (uses(e, outer.symbol) || uses(e, inner.symbol))
          if (uses(substitute(e, map), merged)) return false;
    map[outer.symbol] = 0;
    map[inner.symbol] = inner.symbol;
    substituteAll(map); // the terms of outer and inner * extent are one: K = 0 leaves k
    dims[d] = {inner.symbol, outer.extent * inner.extent};
    dims.erase(dims.begin() + static_cast<ptrdiff_t>(d) + 1);
    return true;
  }
  void merge(std::vector<Dim> &dims) {
    for (size_t d = 0; d + 1 < dims.size();)
      if (!tryMerge(dims, d)) ++d;
  }
};

std::string kernelName(const Group &g, int number) {
  std::string out = g.nodes.size() > 1 ? "fused" : "";
  std::string last;
  for (const GroupNode &n : g.nodes) {
    std::string part;
    for (char c : n.node.name) part += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
    if (part.empty() || part == last || out.size() + part.size() > 60) continue;
    out += (out.empty() ? "" : "_") + part;
    last = part;
  }
  return (out.empty() ? "kernel" : out) + "_" + std::to_string(number);
}

} // namespace

plan::Kernel finish(Group group, const Program &program, int number) {
  plan::Kernel k;
  k.id = plan::KernelId(number);
  k.name = kernelName(group, number);
  k.kind = group.kind;
  k.decisions = group.decisions;
  for (const GroupNode &n : group.nodes)
    if (const auto *user = n.node.as<UserKernelSpec>())
      k.decisions.insert(k.decisions.end(), user->notes.begin(), user->notes.end());
  Finisher f{group, program, {}};
  if (group.kind != Node::Kind::Attention && group.kind != Node::Kind::UserKernel && group.kind != Node::Kind::Extern) {
    f.dropUnitDims();
    f.collectAccesses();
    f.order(group.x);
    f.order(group.r);
    f.merge(group.x);
    if (group.kind != Node::Kind::Scan && group.kind != Node::Kind::Sort) f.merge(group.r);
  }
  SymbolMap<Expr> symbols;
  Facts facts = program.facts;
  for (size_t d = 0; d < group.x.size(); ++d) {
    symbols[group.x[d].symbol] = Symbol::outer(d);
    facts.setIndex(Symbol::outer(d), group.x[d].extent);
    k.xRanges.push_back(group.x[d].extent);
  }
  for (size_t d = 0; d < group.r.size(); ++d) {
    symbols[group.r[d].symbol] = Symbol::inner(d);
    facts.setIndex(Symbol::inner(d), group.r[d].extent);
    k.rRanges.push_back(group.r[d].extent);
  }
  size_t indirects = 0;
  for (GroupNode &n : group.nodes) {
    mapExprs(n.node, [&](Expr e) { return facts.simplify(substitute(e, symbols)); });
    renumberIndirects(n.node, indirects);
    n.node.ranges = k.xRanges;
    n.node.reduceRanges = n.overR ? k.rRanges : std::vector<Expr>();
    k.nodes.push_back(std::move(n.node));
  }
  return k;
}

} // namespace neso::schedule
