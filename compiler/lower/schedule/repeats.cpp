#include "lower/schedule/repeats.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/rules.h"
#include "ir/shape/usual.h"

namespace neso::schedule {

using namespace loops;

namespace {

/// Along dimension `dim` of its ranges a node computes the same `times` times in a row.
struct Repeat {
  size_t dim = 0;
  Expr times;
};

/// f(expression) for all over the loops that the values of a body are made of.
template <typename F> void forEachIndexIn(const Body &body, F f) {
  for (const Op &op : body.ops) {
    if (op.kind == OpKind::Load || op.kind == OpKind::Index) f(op.index);
    if (op.kind == OpKind::Indirect) f(op.bound);
  }
}

/// How long s may run until one of the divisions in e that it takes part in has another result, if all begin anew with s = 0: 0 where it takes
/// part in none, else a guess, to be proved.
int64_t runOf(Expr e, Symbol s) {
  if (e.isConst() || e.isSymbol() || !uses(e, s)) return 0;
  int64_t run = 0;
  for (Expr part : e.operands()) run = std::gcd(run, runOf(part, s));
  if (e.kind() != ExprKind::FloorDiv) return run;
  const std::optional<int64_t> by = e.operands()[1].asConst();
  const std::optional<Affine> inside = affineIn(e.operands()[0], s);
  const std::optional<int64_t> step = inside ? inside->coefficient.asConst() : std::nullopt;
  return by && step && *by > 0 && *step > 0 ? std::gcd(run, *by / std::gcd(*by, *step)) : run;
}

std::optional<Repeat> repeatOf(const Node &node, const Facts &facts) {
  const Body &body = node.body();
  const Facts inside = factsInside(node, facts);
  for (size_t d = 0; d < node.ranges.size(); ++d) {
    const Symbol s = Symbol::index(d);
    const Expr extent = node.ranges[d];
    bool seen = false;
    int64_t run = 0;
    forEachIndexIn(body, [&](Expr e) {
      if (uses(e, s)) seen = true, run = std::gcd(run, runOf(e, s));
    });
    // Of no elements none is computed, which could not be told afterwards.
    if (!seen && facts.rangeOf(extent).lo >= 1) return Repeat{d, extent};
    if (run <= 1 || !facts.provablyDivisible(extent, run)) continue;
    const Symbol part = Symbol::local("place_in_run");
    Facts split = inside;
    split.setIndex(s, floorDiv(extent, run)), split.setIndex(part, run);
    const SymbolMap<Expr> map = {{s, Expr(s) * run + part}};
    bool same = true;
    forEachIndexIn(body, [&](Expr e) { same &= !uses(split.simplify(substitute(e, map)), part); });
    if (same) return Repeat{d, run};
  }
  return std::nullopt;
}

/// The buffer's elements are the node's points, each at a place of its own: its strides, by dimension. Empty: it is not so.
std::vector<Expr> denseStrides(const Node &node, const Store &store, const Buffer &buffer, const Facts &facts) {
  std::vector<Expr> strides;
  Expr rest = store.index;
  for (size_t d = 0; d < node.ranges.size(); ++d) {
    const std::optional<Affine> along = affineIn(rest, Symbol::index(d));
    if (!along) return {};
    strides.push_back(along->coefficient), rest = along->rest;
  }
  if (!rest.isConst(0)) return {};
  std::vector<size_t> order(strides.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return usualSize(strides[a], facts) < usualSize(strides[b], facts); });
  Expr next = 1;
  for (size_t d : order) {
    if (!facts.provablyEqual(strides[d], next)) return {};
    next = next * node.ranges[d];
  }
  return facts.provablyEqual(next, buffer.elements) ? strides : std::vector<Expr>();
}

/// The element among those that are left when of each `times` pieces of `stride` elements one stays. nullopt: not proved, or a reader would find
/// apart what was side by side.
std::optional<Expr> placeAmongKept(Expr index, Expr stride, Expr times, const Facts &facts) {
  Expr piece = 0, inside = 0;
  for (Expr term : index.kind() == ExprKind::Add ? index.operands() : std::vector<Expr>{index}) {
    if (facts.provablyDivisible(term, stride))
      piece = piece + floorDiv(term, stride);
    else
      inside = inside + term;
  }
  if (!facts.provablyLessEqual(0, inside) || !facts.provablyLess(inside, stride)) return std::nullopt;
  const Expr out = facts.simplify(floorDiv(piece, times)) * stride + inside;
  for (Symbol s : symbolsOf(index)) {
    const std::optional<Affine> before = affineIn(index, s), after = affineIn(out, s);
    if (before && before->coefficient.isConst(1) && !(after && after->coefficient.isConst(1))) return std::nullopt;
  }
  return out;
}

/// Which indices of a reader need strides that are known: all but those of the batches and heads of an attention.
bool needsStride(const Node &reader, Symbol s) {
  return !reader.as<AttentionSpec>() || (s != AttentionSpec::symbol(AttentionSpec::Batch) && s != AttentionSpec::symbol(AttentionSpec::Head));
}

class Sharer {
public:
  Sharer(Program &program, const MachineSheet &machine) : program_(program), machine_(machine), users_(program) {}

  Remarks run() {
    in(program_.nodes);
    return std::move(remarks_);
  }

private:
  void in(std::vector<Node> &block) {
    for (Node &n : block) {
      if (auto *region = n.as<RegionSpec>())
        for (std::vector<Node> &inner : region->blocks) in(inner);
      while (share(n)) {
      }
    }
  }

  /// Whether the buffer is the node's alone, and read by kinds that no producer shares a kernel with.
  bool isOwn(const Node &node, BufferId id) const {
    if (program_.buffer(id).kind != Buffer::Kind::Temp || users_.kept(id) || users_.of(id).size() < 2) return false;
    return std::all_of(users_.of(id).begin(), users_.of(id).end(), [&](const Node *user) {
      return user == &node ? !reads(node, id) : standsAlone(*user) && !writes(*user, id);
    });
  }
  /// A product is no such reader: a dimension that one operand loses is a row or a column of the blocks no more.
  static bool standsAlone(const Node &n) {
    return n.as<AttentionSpec>() || n.as<ScanSpec>() || n.as<SortSpec>() || n.as<SegmentsSpec>();
  }

  bool share(Node &node) {
    const auto *spec = node.as<PointwiseSpec>();
    if (!spec || spec->stores.size() != 1 || spec->stores[0].mask >= 0 || spec->stores[0].mode != StoreMode::Set) return false;
    const BufferId id = spec->stores[0].buffer;
    if (!isOwn(node, id)) return false;
    const std::optional<Repeat> repeat = repeatOf(node, program_.facts);
    if (!repeat) return false;
    const std::vector<Expr> strides = denseStrides(node, spec->stores[0], program_.buffer(id), program_.facts);
    if (strides.empty() || !pays(node, id, *repeat)) return false;
    const Expr stride = strides[repeat->dim];
    std::optional<Node> once = computedOnce(node, *repeat, stride);
    if (!once) return false;

    for (bool last : {false, true}) {
      bool follows = true;
      for (Node *reader : users_.of(id)) {
        if (reader == &node) continue;
        forEachPlace(*reader, id, program_.facts, [&](Expr &index, const Facts *known) {
          const std::optional<Expr> place = known ? placeAmongKept(index, stride, repeat->times, *known) : std::nullopt;
          if (place && keepsStrides(*reader, index, *place)) {
            if (last) index = *place;
          } else {
            follows = false;
          }
        });
      }
      if (!follows) return false;
    }

    Buffer &buffer = program_.buffer(id);
    remarks_[node.id.value].push_back(fmt::format("'{}' repeats each part of {} elements {} times: computed once", buffer.name, stride.str(), repeat->times.str()));
    node = std::move(*once);
    buffer.elements = neso::product(node.ranges);
    buffer.sizes = node.ranges;
    buffer.strides = denseStrides(node, node.stores()[0], buffer, program_.facts);
    applied(Rule::ShareRepeats);
    return true;
  }

  static bool keepsStrides(const Node &reader, Expr before, Expr after) {
    const std::vector<Symbol> all = symbolsOf(before);
    return std::all_of(all.begin(), all.end(), [&](Symbol s) { return !needsStride(reader, s) || !affineIn(before, s) || affineIn(after, s); });
  }

  /// The node without the repeat; its result lies as densely as before.
  std::optional<Node> computedOnce(const Node &node, const Repeat &repeat, Expr stride) const {
    Node out = node;
    const Symbol along = Symbol::index(repeat.dim);
    Expr &extent = out.ranges[repeat.dim];
    const bool all = program_.facts.provablyEqual(extent, repeat.times);
    SymbolMap<Expr> map = {{along, all ? Expr(0) : Expr(along) * repeat.times}};
    if (all) {
      out.ranges.erase(out.ranges.begin() + static_cast<ptrdiff_t>(repeat.dim));
      for (size_t d = repeat.dim; d < out.ranges.size(); ++d) map[Symbol::index(d + 1)] = Symbol::index(d);
    } else {
      extent = floorDiv(extent, repeat.times);
    }
    const Facts inside = factsInside(out, program_.facts);
    mapExprs(out, [&](Expr e) { return inside.simplify(substitute(e, map)); });
    Store &store = out.get<PointwiseSpec>().stores[0];
    const std::optional<Expr> place = placeAmongKept(store.index, stride, repeat.times, inside);
    if (!place) return std::nullopt;
    store.index = *place;
    return out;
  }

  static bool fuses(const Node &n) { return n.as<PointwiseSpec>() || n.as<ReductionSpec>() || n.as<ContractionSpec>(); }
  int64_t pointsOf(const Node &n) const { return usualSize(neso::product(n.ranges) * neso::product(n.reduceRanges), program_.facts); }

  /// Where a launch costs time: not if it takes away a node of the same space, with which a kernel and its loads were shared, and saves little memory.
  bool pays(const Node &node, BufferId id, const Repeat &repeat) const {
    if (machine_.nextLaunch <= 0) return true;
    const Buffer &buffer = program_.buffer(id);
    const double kept = 1 / static_cast<double>(std::max<int64_t>(usualSize(repeat.times, program_.facts), 1));
    // Written and read.
    const double saved = 2 * (1 - kept) * static_cast<double>(usualSize(buffer.elements, program_.facts) * itemSize(buffer.dtype));
    if (saved / machine_.bytesPerUs >= machine_.nextLaunch) return true;
    bool shares = false;
    forEachAccess(node, [&](const Access &a) {
      if (a.buffer == id) return;
      for (const Node *other : users_.of(a.buffer)) shares |= other != &node && fuses(*other) && pointsOf(*other) == pointsOf(node);
    });
    return !shares;
  }

  Program &program_;
  const MachineSheet &machine_;
  const Users users_;
  Remarks remarks_;
};

} // namespace

Remarks shareRepeats(Program &program, const MachineSheet &machine) { return Sharer(program, machine).run(); }

} // namespace neso::schedule
