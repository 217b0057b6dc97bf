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
  void run() { block(program_.nodes, 1); }

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
        facts = program_.facts;
        for (const auto &[symbol, size] : points) {
          facts->setIndex(symbol, size);
          // Nothing is read where a loop has no points.
          if (const Interval range = facts->rangeOf(size); range.lo < 1 && range.hi > 0) facts->assume(size, {1, range.hi}, 1);
        }
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
    Expr inside = 1;
    if (facts.rangeOf(*first).lo < 0) inside = le(0, *first);
    if (facts.rangeOf(facts.simplify(*last) - facts.simplify(elements)).hi >= 0) inside = logicalAnd(inside, lt(*last, elements));
    if (inside.isConst(1)) return;
    Expr none = 0;
    for (const auto &[symbol, size] : points) none = logicalOr(none, le(size, 0));
    const Expr holds = program_.facts.simplify(logicalOr(logicalOr(logicalNot(path), none), inside));
    for (Symbol s : symbolsOf(holds))
      if (perTurn_.count(s)) return;
    const SourceLoc *loc = n.origins.empty() || n.origins[0].loc.file.empty() ? nullptr : &n.origins[0].loc;
    addAssertion(program_.assertions, {holds, fmt::format("'{}' would {} elements beyond '{}'{}{}", n.name, a.writes() ? "write" : "read", program_.buffer(a.buffer).name, valuesOf(holds),
                                                          loc ? fmt::format(" ({}:{})", loc->file, loc->line) : "")});
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
