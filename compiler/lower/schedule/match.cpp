#include "lower/schedule/match.h"

#include <algorithm>

namespace neso::schedule {

using namespace loops;

namespace {

using Pairs = std::vector<std::pair<Symbol, Symbol>>; // (dimension of a, dimension of b)

std::vector<Dim> joined(const std::vector<Dim> &x, const std::vector<Dim> &r) {
  std::vector<Dim> out = x;
  out.insert(out.end(), r.begin(), r.end());
  return out;
}

/// Pairs la with lb from the innermost out; splits dimensions in their groups as needed.
bool align(Group &a, Group &b, std::vector<Dim> la, std::vector<Dim> lb, Pairs &pairs, NewDims &dims) {
  auto divides = [](Expr small, Expr big) {
    Expr q = floorDiv(big, small);
    return q * small == big && q.kind() != ExprKind::FloorDiv ? std::optional(q) : std::nullopt;
  };
  while (!la.empty() && !lb.empty()) {
    Dim da = la.back(), db = lb.back();
    if (da.extent.isConst(1) && !db.extent.isConst(1)) {
      la.pop_back();
      pairs.push_back({da.symbol, Symbol()});
      continue;
    }
    if (db.extent.isConst(1) && !da.extent.isConst(1)) {
      lb.pop_back();
      pairs.push_back({Symbol(), db.symbol});
      continue;
    }
    la.pop_back();
    lb.pop_back();
    if (da.extent == db.extent) {
      pairs.push_back({da.symbol, db.symbol});
    } else if (std::optional<Expr> q = divides(db.extent, da.extent)) {
      Dim outer = dims.make(*q), inner = dims.make(db.extent);
      splitDim(a, da.symbol, outer, inner);
      pairs.push_back({inner.symbol, db.symbol});
      la.push_back(outer);
    } else if (std::optional<Expr> p = divides(da.extent, db.extent)) {
      Dim outer = dims.make(*p), inner = dims.make(da.extent);
      splitDim(b, db.symbol, outer, inner);
      pairs.push_back({da.symbol, inner.symbol});
      lb.push_back(outer);
    } else {
      return false;
    }
  }
  for (const Dim &d : la) {
    if (!d.extent.isConst(1)) return false;
    pairs.push_back({d.symbol, Symbol()});
  }
  for (const Dim &d : lb) {
    if (!d.extent.isConst(1)) return false;
    pairs.push_back({Symbol(), d.symbol});
  }
  return true;
}

/// dims that `index` uses, outermost (largest stride) first, and those it does not, in their own order; nullopt if it
/// is not affine.
struct Ordered {
  std::vector<Dim> used, unused;
};
std::optional<Ordered> orderBy(Expr index, const std::vector<Dim> &dims, const Facts &facts) {
  Ordered out;
  std::vector<std::pair<int64_t, Dim>> strides;
  for (const Dim &d : dims) {
    if (!uses(index, d.symbol)) {
      out.unused.push_back(d);
      continue;
    }
    std::optional<Affine> a = affineIn(index, d.symbol);
    if (!a) return std::nullopt;
    strides.push_back({usualSize(a->coefficient, facts), d});
  }
  std::stable_sort(strides.begin(), strides.end(), [](const auto &p, const auto &q) { return p.first > q.first; });
  for (auto &[stride, d] : strides) out.used.push_back(d);
  return out;
}

enum class Level { SameSpace, BIsInner, AIsInner }; // the inner one is pointwise over the other's x and r

struct Candidate {
  Level level;
  std::optional<std::pair<Expr, Expr>> access; // indices of a and of b
};

/// A copy of both groups with dimensions aligned; b's symbols are a's.
struct Aligned {
  Group a, b;
};
std::optional<Aligned> tryAlign(const Group &a0, const Group &b0, const Candidate &c, const Facts &facts,
                                NewDims &dims) {
  Aligned out{a0, b0};
  Pairs pairs;
  auto alignLists = [&](const std::vector<Dim> &la, const std::vector<Dim> &lb) {
    if (!c.access) return align(out.a, out.b, la, lb, pairs, dims);
    std::optional<Ordered> oa = orderBy(c.access->first, la, facts), ob = orderBy(c.access->second, lb, facts);
    return oa && ob && align(out.a, out.b, oa->used, ob->used, pairs, dims) &&
           align(out.a, out.b, oa->unused, ob->unused, pairs, dims);
  };
  bool ok = false;
  switch (c.level) {
  case Level::SameSpace: ok = alignLists(a0.x, b0.x) && (a0.r.empty() || b0.r.empty() || alignLists(a0.r, b0.r)); break;
  case Level::BIsInner: ok = alignLists(joined(a0.x, a0.r), b0.x); break;
  case Level::AIsInner: ok = alignLists(a0.x, joined(b0.x, b0.r)); break;
  }
  if (!ok) return std::nullopt;
  SymbolMap<Expr> inA, inB;
  for (const auto &[na, nb] : pairs) {
    if (!nb.valid())
      inA[na] = 0;
    else if (!na.valid())
      inB[nb] = 0;
    else
      inB[nb] = na;
  }
  auto apply = [](Group &g, const SymbolMap<Expr> &map, bool inner) {
    for (GroupNode &n : g.nodes) {
      mapExprs(n.node, [&](Expr e) { return substitute(e, map); });
      n.overR |= inner;
    }
  };
  apply(out.a, inA, c.level == Level::AIsInner);
  apply(out.b, inB, c.level == Level::BIsInner);
  // b's remaining dimensions take a's symbols; unit dimensions without a partner vanish.
  for (std::vector<Dim> *dims : {&out.a.x, &out.a.r})
    std::erase_if(*dims, [&](const Dim &d) { return inA.contains(d.symbol); });
  for (std::vector<Dim> *dims : {&out.b.x, &out.b.r}) {
    std::erase_if(*dims, [&](const Dim &d) { return inB.contains(d.symbol) && inB[d.symbol].isConst(); });
    for (Dim &d : *dims)
      if (auto it = inB.find(d.symbol); it != inB.end()) d.symbol = it->second.symbol();
  }
  // A reduction over nothing but unit dimensions keeps one of them.
  if ((!a0.r.empty() && out.a.r.empty()) || (!b0.r.empty() && out.b.r.empty())) return std::nullopt;
  return out;
}

struct Placed {
  Access access;
  const GroupNode *node;
};
std::vector<Placed> placedAccesses(const Group &g) {
  std::vector<Placed> out;
  for (const GroupNode &n : g.nodes)
    for (Access &a : accessesOf(n.node)) out.push_back({std::move(a), &n});
  return out;
}

/// The results of reductions and contractions are stored once per x; everything else is stored where it runs.
bool storesInner(const GroupNode &n) {
  return n.overR && n.node.kind() != Node::Kind::Reduction && n.node.kind() != Node::Kind::Contraction;
}

/// Why two accesses of one buffer may not meet in a kernel over x and r; empty when they may.
std::string conflict(const Placed &p, const Placed &q, const std::vector<Dim> &x, const std::vector<Dim> &r, const Program &program) {
  const std::string &what = program.buffer(p.access.buffer).name;
  if (p.access.whole() || q.access.whole()) return what + " is used as a whole";
  if (p.access.masked || q.access.masked) return what + " is accessed under a mask";
  if (p.access.mode == AccessMode::Update || q.access.mode == AccessMode::Update) return what + " is updated atomically";
  if (p.access.index != q.access.index)
    return fmt::format("{} is accessed at '{}' and at '{}'", what, p.access.index.str(), q.access.index.str());
  const Placed &first = p.node->order <= q.node->order ? p : q;
  const Placed &second = p.node->order <= q.node->order ? q : p;
  bool readAfterWrite = first.access.writes() && !second.access.writes();
  // With several passes over r, code generation orders nodes by the values they hand on, and computes earlier
  // values again.
  if (!r.empty() && !readAfterWrite) return what + " is overwritten in a kernel of several passes";
  for (const Placed *s : {&p, &q})
    if (s->access.writes() && !injective(s->access.index, storesInner(*s->node) ? joined(x, r) : x, program.facts))
      return what + " is written more than once";
  return "";
}

bool meet(const Placed &p, const Placed &q) {
  return p.access.buffer == q.access.buffer && (p.access.writes() || q.access.writes());
}

/// What was fused for one pass must stand several, too: a value that a later pass computes again would read what the first has overwritten.
/// Between nodes; and within one that stores two values, of which the one in memory may overwrite what the other is made of.
std::string conflictInside(const std::vector<Placed> &as, const std::vector<Dim> &x, const std::vector<Dim> &r, const Program &program) {
  for (size_t i = 0; i < as.size(); ++i)
    for (size_t j = i + 1; j < as.size(); ++j)
      if (meet(as[i], as[j]) && (as[i].node != as[j].node || as[i].node->node.stores().size() > 1))
        if (std::string why = conflict(as[i], as[j], x, r, program); !why.empty()) return why;
  return "";
}

/// Why the aligned groups may not share a kernel; empty when they may. `passes`: which of them had an inner space of its own before.
std::string conflict(const Aligned &g, const std::vector<Dim> &x, const std::vector<Dim> &r, std::pair<bool, bool> passes, const Program &program) {
  std::vector<Placed> as = placedAccesses(g.a), bs = placedAccesses(g.b);
  for (const Placed &p : as)
    for (const Placed &q : bs)
      if (meet(p, q))
        if (std::string why = conflict(p, q, x, r, program); !why.empty()) return why;
  std::string why;
  if (!r.empty() && !passes.first) why = conflictInside(as, x, r, program);
  if (!r.empty() && !passes.second && why.empty()) why = conflictInside(bs, x, r, program);
  return why;
}

/// Code generation counts the positions of argmax and argmin along the kernel's r, row-major: those of a group must have that order.
bool keepsPositions(const Group &g, const std::vector<Dim> &r) {
  auto isArg = [](const Reduction &red) { return red.kind == ReduceKind::ArgMax || red.kind == ReduceKind::ArgMin; };
  const bool counts = std::any_of(g.nodes.begin(), g.nodes.end(), [&](const GroupNode &n) {
    const std::span<const Reduction> all = n.node.reductions();
    return std::any_of(all.begin(), all.end(), isArg);
  });
  return !counts || std::equal(g.r.begin(), g.r.end(), r.begin(), r.end(),
                               [](const Dim &p, const Dim &q) { return p.symbol == q.symbol; });
}

int64_t pointsOf(const std::vector<Dim> &dims, const Facts &facts) {
  int64_t n = 1;
  for (const Dim &d : dims) n *= std::max<int64_t>(usualSize(d.extent, facts), 1);
  return n;
}

/// Bytes that need not move because the accesses meet in one kernel.
int64_t savings(const Aligned &g, const Program &program, const std::vector<bool> &temporary,
                std::vector<std::string> &shared) {
  int64_t saved = 0;
  std::vector<Placed> as = placedAccesses(g.a), bs = placedAccesses(g.b);
  std::set<int32_t> counted;
  for (const Placed &p : as)
    for (const Placed &q : bs) {
      if (p.access.buffer != q.access.buffer || p.access.index != q.access.index ||
          counted.contains(p.access.buffer.value))
        continue;
      if (p.access.masked || q.access.masked || p.access.whole() || q.access.whole()) continue;
      if (p.access.writes() && q.access.writes()) continue;
      bool indirect = false;
      for (Symbol s : symbolsOf(p.access.index)) indirect |= s.kind() == Symbol::Kind::Indirect;
      if (indirect) continue; // equal symbols of unrelated indirect indices
      counted.insert(p.access.buffer.value);
      const Buffer &b = program.buffer(p.access.buffer);
      // What is read is bounded by the dimensions that the index uses.
      int64_t points = 1;
      for (const Group *side : {&g.a, &g.b}) {
        int64_t mine = 1;
        for (const Dim &d : joined(side->x, side->r))
          if (uses(p.access.index, d.symbol)) mine *= std::max<int64_t>(usualSize(d.extent, program.facts), 1);
        points = std::max(points, mine);
      }
      int64_t bytes = std::min(points, usualSize(b.elements, program.facts)) * itemSize(b.dtype);
      saved += bytes;
      if ((p.access.writes() || q.access.writes()) && temporary[b.id.index()]) saved += bytes;
      shared.push_back(b.name);
    }
  return saved;
}

} // namespace

bool injective(Expr index, const std::vector<Dim> &dims, const Facts &facts) {
  std::vector<std::pair<Expr, Expr>> strides; // coefficient, extent
  for (const Dim &d : dims) {
    if (d.extent.isConst(1)) continue;
    std::optional<Affine> a = affineIn(index, d.symbol);
    if (!a || !uses(index, d.symbol)) return false;
    strides.push_back({a->coefficient, d.extent});
  }
  std::stable_sort(strides.begin(), strides.end(),
                   [&](const auto &p, const auto &q) { return usualSize(p.first, facts) < usualSize(q.first, facts); });
  Expr reach = 1; // every smaller stride's span
  for (const auto &[stride, extent] : strides) {
    if (stride != reach && !facts.provablyLessEqual(reach, stride)) return false;
    reach = stride * extent;
  }
  return true;
}

namespace {

/// A contraction keeps its space.
bool fixed(const Group &g) { return g.kind == Node::Kind::Contraction; }

/// The programs of a product run in any order; updates of memory may need one (plan_to_tile runs them in turn).
bool updates(const Group &g) {
  return std::any_of(g.nodes.begin(), g.nodes.end(), [](const GroupNode &n) {
    const std::span<const Store> stores = n.node.stores();
    return std::any_of(stores.begin(), stores.end(), [](const Store &s) { return s.mode != StoreMode::Set; });
  });
}

/// A reduction over nothing has one result for each x: it is no inner work of a kernel that reduces, whatever else its
/// group has been joined with.
bool reducesNothing(const Group &g) {
  return g.r.empty() && std::any_of(g.nodes.begin(), g.nodes.end(),
                                    [](const GroupNode &n) { return n.node.kind() == Node::Kind::Reduction; });
}

/// How one space may lie in the other; nothing that the groups' kinds rule out.
std::variant<std::vector<Level>, Refusal> levelsOf(const Group &a, const Group &b) {
  if (a.r.empty() != b.r.empty() && (reducesNothing(a) || reducesNothing(b)))
    return Refusal{"one of them reduces over nothing"};
  if ((fixed(a) && updates(b)) || (fixed(b) && updates(a))) return Refusal{"one of them updates memory"};
  if (fixed(a) || fixed(b) || a.r.empty() == b.r.empty()) return std::vector<Level>{Level::SameSpace};
  return std::vector<Level>{Level::SameSpace, b.r.empty() ? Level::BIsInner : Level::AIsInner};
}

/// Accesses that both make propose the order of dimensions; those that write first.
std::vector<std::pair<Expr, Expr>> proposedOrders(const Group &a, const Group &b) {
  constexpr size_t kMostProposals = 6;
  std::vector<std::pair<Expr, Expr>> out;
  std::vector<Placed> as = placedAccesses(a), bs = placedAccesses(b);
  for (const Placed &p : as)
    for (const Placed &q : bs)
      if (p.access.buffer == q.access.buffer && !p.access.whole() && !q.access.whole() && out.size() < kMostProposals) {
        std::pair<Expr, Expr> indices{p.access.index, q.access.index};
        bool write = p.access.writes() || q.access.writes();
        if (std::find(out.begin(), out.end(), indices) == out.end())
          out.insert(write ? out.begin() : out.end(), indices);
      }
  return out;
}

/// The two groups as one over `spaceOf`'s dimensions; takes their nodes.
Group merged(const Group &a, const Group &b, Aligned &aligned, const Group &spaceOf) {
  Group out;
  out.x = spaceOf.x;
  out.r = spaceOf.r;
  out.kind = fixed(a)            ? a.kind
             : fixed(b)          ? b.kind
             : spaceOf.r.empty() ? Node::Kind::Pointwise
                                 : Node::Kind::Reduction;
  out.fixedOrder = a.fixedOrder || b.fixedOrder;
  out.decisions = a.decisions;
  out.decisions.insert(out.decisions.end(), b.decisions.begin(), b.decisions.end());
  out.nodes = std::move(aligned.a.nodes);
  for (GroupNode &n : aligned.b.nodes) out.nodes.push_back(std::move(n));
  std::stable_sort(out.nodes.begin(), out.nodes.end(), [](const GroupNode &p, const GroupNode &q) {
    bool pc = p.node.kind() == Node::Kind::Contraction, qc = q.node.kind() == Node::Kind::Contraction;
    return pc != qc ? pc : p.order < q.order; // a contraction leads its epilogue
  });
  return out;
}

} // namespace

std::variant<Fusion, Refusal> join(const Group &a, const Group &b, const Program &program,
                                   const std::vector<bool> &temporary, NewDims &dims) {
  std::variant<std::vector<Level>, Refusal> levels = levelsOf(a, b);
  if (Refusal *refusal = std::get_if<Refusal>(&levels)) return std::move(*refusal);
  const std::vector<std::pair<Expr, Expr>> proposals = proposedOrders(a, b);
  std::string reason = "their loops have different sizes";
  std::optional<Fusion> best;
  // The level whose number of points fits is the only one that can align.
  for (Level level : std::get<std::vector<Level>>(levels)) {
    const std::vector<Dim> la = level == Level::BIsInner ? joined(a.x, a.r) : a.x,
                           lb = level == Level::AIsInner ? joined(b.x, b.r) : b.x;
    if (pointsOf(la, program.facts) != pointsOf(lb, program.facts)) continue;
    std::vector<Candidate> candidates = {{level, std::nullopt}};
    for (const auto &indices : proposals) candidates.push_back({level, indices});
    for (const Candidate &c : candidates) {
      std::optional<Aligned> aligned = tryAlign(a, b, c, program.facts, dims);
      if (!aligned) continue;
      const Group &spaceOf = level == Level::AIsInner || (a.r.empty() && !b.r.empty()) ? aligned->b : aligned->a;
      std::string why = conflict(*aligned, spaceOf.x, spaceOf.r, {!a.r.empty(), !b.r.empty()}, program);
      if (why.empty() && !(keepsPositions(aligned->a, spaceOf.r) && keepsPositions(aligned->b, spaceOf.r)))
        why = "positions of a maximum or minimum would be counted in another order";
      if (!why.empty()) {
        reason = why;
        continue;
      }
      Fusion f;
      f.bytesSaved = savings(*aligned, program, temporary, f.shared);
      if (best && best->bytesSaved >= f.bytesSaved) continue;
      f.group = merged(a, b, *aligned, spaceOf);
      f.rule = fixed(a) || fixed(b) ? Rule::JoinEpilogue : level == Level::SameSpace ? Rule::JoinSameSpace : Rule::JoinInner;
      best = std::move(f);
    }
    if (best) break;
  }
  if (best) return std::move(*best);
  return Refusal{reason};
}

} // namespace neso::schedule
