#include "lower/schedule/inside.h"

#include <algorithm>
#include <set>

#include "ir/loops/access.h"
#include "ir/loops/coverage.h"

namespace neso::schedule {

using namespace loops;

namespace {

/// Which way an expression goes where a symbol grows.
enum class Trend : uint8_t { None, Rises, Falls, Unknown };

Trend reversed(Trend t) { return t == Trend::Rises ? Trend::Falls : t == Trend::Falls ? Trend::Rises : t; }
Trend both(Trend a, Trend b) { return a == Trend::None ? b : b == Trend::None || a == b ? a : Trend::Unknown; }

Trend trendOf(Expr e, Symbol x, const Facts &facts) {
  if (!uses(e, x)) return Trend::None;
  if (e.isSymbol()) return Trend::Rises;
  const std::vector<Expr> &of = e.operands();
  switch (e.kind()) {
  case ExprKind::Add:
  case ExprKind::Min:
  case ExprKind::Max: {
    Trend t = Trend::None;
    for (Expr o : of) t = both(t, trendOf(o, x, facts));
    return t;
  }
  case ExprKind::Mul: {
    Trend t = Trend::None;
    Expr rest = 1;
    for (Expr o : of) {
      if (!uses(o, x)) rest = rest * o;
      else if (t != Trend::None) return Trend::Unknown;
      else t = trendOf(o, x, facts);
    }
    const Interval by = facts.rangeOf(rest);
    return by.lo >= 0 ? t : by.hi <= 0 ? reversed(t) : Trend::Unknown;
  }
  case ExprKind::FloorDiv:
    return !uses(of[1], x) && facts.rangeOf(of[1]).lo > 0 ? trendOf(of[0], x, facts) : Trend::Unknown;
  default: return Trend::Unknown;
  }
}

class Net {
public:
  explicit Net(Program &program) : program_(program) {}
  void run() {
    block(program_.nodes, 1);
    for (const ProgramOutput &o : program_.outputs) {
      if (o.kind != ProgramOutput::Kind::Tensor) continue;
      tensor(o, o.buffer, o.strides, o.offset, "read");
      if (o.writeBackTo.valid() && o.writeBackTo != o.buffer) tensor(o, o.writeBackTo, o.writeBackStrides, o.writeBackOffset, "write");
    }
  }

private:
  /// path: what holds where the block runs.
  void block(const std::vector<Node> &nodes, Expr path) {
    for (const Node &n : nodes) {
      const auto *region = n.as<RegionSpec>();
      if (!region) {
        node(n, path);
        continue;
      }
      const Expr taken = ne(region->condition, 0);
      if (region->kind == RegionSpec::Kind::If) {
        block(region->blocks[0], logicalAnd(path, taken));
        block(region->blocks[1], logicalAnd(path, logicalNot(taken)));
        continue;
      }
      // What a turn reads is not asked about in every turn: those that write loops bound it by the sizes around them.
      for (Symbol s : definedBy(n)) perTurn_.insert(s);
      block(region->blocks[0], path);
      block(region->blocks[1], path);
    }
  }

  void node(const Node &n, Expr path) {
    Points computed;
    forEachBody(n, [&](const Body &body) {
      for (const Op &op : body.ops)
        if (op.kind == OpKind::Indirect) computed.push_back({op.symbol, op.bound});
    });
    std::optional<Facts> facts;
    forEachAccess(n, [&](const Access &a) {
      if (a.masked || (a.whole() && a.use != Use::Attention)) return;
      const Buffer &b = program_.buffer(a.buffer);
      Points points = pointsOf(n, a);
      points.insert(points.end(), computed.begin(), computed.end());
      if (!b.elements.valid() || std::any_of(points.begin(), points.end(), [](const auto &p) { return !p.second.valid(); })) return;
      if (isFixed(a.index, b.elements, points)) return;
      if (!facts) {
        std::vector<Expr> sizes;
        for (const auto &[symbol, size] : points) sizes.push_back(size);
        facts = factsWhereSome(sizes);
        for (const auto &[symbol, size] : points) facts->setIndex(symbol, size);
      }
      access(n, a, isComplex(b.dtype) ? b.elements * 2 : b.elements, points, *facts, path);
    });
  }

  /// Nothing about it depends on a size: whoever verifies the program has looked at it.
  static bool isFixed(Expr index, Expr elements, const Points &points) {
    for (Symbol s : symbolsOf(index))
      if (s.isSize()) return false;
    return elements.isConst() && std::all_of(points.begin(), points.end(), [](const auto &p) { return p.second.isConst(); });
  }

  void access(const Node &n, const Access &a, Expr elements, const Points &points, const Facts &facts, Expr path) {
    const std::optional<Expr> first = extreme(a.index, points, facts, Trend::Falls), last = extreme(a.index, points, facts, Trend::Rises);
    if (!first || !last) return;
    Expr none = logicalNot(path);
    for (const auto &[symbol, size] : points) none = logicalOr(none, le(size, 0));
    const SourceLoc *loc = n.origins.empty() || n.origins[0].loc.file.empty() ? nullptr : &n.origins[0].loc;
    require(*first, *last, elements, none, facts,
            fmt::format("'{}' would {} elements beyond '{}'", n.name, a.writes() ? "write" : "read", program_.buffer(a.buffer).name),
            loc ? fmt::format(" ({}:{})", loc->file, loc->line) : "");
  }

  /// A result, or where it is written back.
  void tensor(const ProgramOutput &o, BufferId buffer, const std::vector<Expr> &strides, Expr offset, const char *does) {
    const Buffer &b = program_.buffer(buffer);
    Expr first = offset, last = offset, none = 0;
    for (size_t d = 0; d < o.sizes.size(); ++d) {
      const Interval step = program_.facts.rangeOf(strides[d]);
      if (step.lo < 0 && step.hi > 0) return;
      Expr &end = step.lo >= 0 ? last : first;
      end = end + (o.sizes[d] - 1) * strides[d], none = logicalOr(none, le(o.sizes[d], 0));
    }
    // Sizes and strides of complex tensors count in pairs, buffers of their parts in parts.
    if (isComplex(o.dtype) && !isComplex(b.dtype)) first = first * 2, last = last * 2 + 1;
    require(first, last, b.elements, none, factsWhereSome(o.sizes), fmt::format("a result would {} elements beyond '{}'", does, b.name), "");
  }

  /// Elements from `first` to `last` are there, or `none` holds.
  void require(Expr first, Expr last, Expr elements, Expr none, const Facts &facts, const std::string &what, const std::string &where) {
    Expr inside = 1;
    if (facts.rangeOf(first).lo < 0) inside = le(0, first);
    if (facts.rangeOf(facts.simplify(last) - facts.simplify(elements)).hi >= 0) inside = logicalAnd(inside, lt(last, elements));
    if (inside.isConst(1)) return;
    const Expr holds = program_.facts.simplify(logicalOr(none, inside));
    for (Symbol s : symbolsOf(holds))
      if (perTurn_.count(s)) return;
    addAssertion(program_.assertions, {holds, what + valuesOf(holds) + where});
  }

  /// What is known where a loop over these sizes has points, or a tensor of them elements.
  Facts factsWhereSome(const std::vector<Expr> &sizes) const {
    Facts facts = program_.facts;
    for (Expr size : sizes)
      if (const Interval range = facts.rangeOf(size); range.lo < 1 && range.hi > 0) facts.assume(size, {1, range.hi}, 1);
    return facts;
  }

  /// The index at the point where it is greatest (Rises) or least (Falls); nullopt where that cannot be told.
  static std::optional<Expr> extreme(Expr index, const Points &points, const Facts &facts, Trend towards) {
    for (const auto &[symbol, size] : points) {
      const Trend t = trendOf(index, symbol, facts);
      if (t == Trend::Unknown) return {};
      if (t != Trend::None) index = substitute(index, {{symbol, t == towards ? size - 1 : Expr(0)}});
    }
    return index;
  }

  Program &program_;
  std::set<Symbol> perTurn_;
};

} // namespace

void assertInside(Program &program) { Net(program).run(); }

} // namespace neso::schedule
