// Claim: no node writes more elements than mostWritten says nor reads fewer than leastRead says, and a tensor has as many as
// elementsOf says: random indices over random loops, counted at all sizes.
#include <gtest/gtest.h>
#include <random>
#include <set>

#include "ir/loops/build.h"
#include "ir/loops/coverage.h"

namespace neso::loops {
namespace {

const Symbol kSizes[] = {Symbol::size("s0"), Symbol::size("s1")};

class Draw {
public:
  explicit Draw(uint32_t seed) : rng_(seed) {
    facts.setRange(kSizes[0], {0, 3}), facts.setRange(kSizes[1], {1, 4});
  }
  Facts facts;

  int64_t pick(int64_t n) { return static_cast<int64_t>(rng_() % static_cast<uint64_t>(n)); }
  Expr size() {
    const Expr all[] = {1, 2, 3, 4, kSizes[0], kSizes[1], kSizes[1], 2 * Expr(kSizes[1])};
    return all[pick(8)];
  }
  std::vector<Expr> sizes(int64_t most) {
    std::vector<Expr> out;
    for (int64_t n = pick(most + 1); n > 0; --n) out.push_back(size());
    return out;
  }
  /// Mostly row-major in some order, with gaps, ties and dimensions left out; sometimes no affine form at all.
  Expr index(Points points) {
    std::shuffle(points.begin(), points.end(), rng_);
    Expr out = pick(3), next = 1;
    for (const auto &[symbol, size] : points) {
      switch (pick(8)) {
      case 0: continue;
      case 1: out = out + pick(4) * Expr(symbol); break;
      case 2: out = out + floorDiv(symbol, 2) * next; break;
      case 3: out = out + mod(symbol, 3) * next; break;
      case 4: out = out + Expr(symbol) * next * 2, next = next * size * 2; break;
      default: out = out + Expr(symbol) * next, next = next * size;
      }
    }
    return out;
  }
  template <typename F> void atAllSizes(F f) {
    for (int64_t a = 0; a <= 3; ++a)
      for (int64_t b = 1; b <= 4; ++b) f(SymbolMap<int64_t>{{kSizes[0], a}, {kSizes[1], b}});
  }

private:
  std::mt19937 rng_;
};

/// Different values of the index over all points; a negative one stands for no access.
int64_t counted(Expr index, const Points &points, SymbolMap<int64_t> at) {
  std::set<int64_t> seen;
  auto walk = [&](auto &&self, size_t d) -> void {
    if (d == points.size()) {
      if (const int64_t element = *evaluate(index, at); element >= 0) seen.insert(element);
      return;
    }
    const int64_t n = *evaluate(points[d].second, at);
    for (int64_t v = 0; v < n; ++v) at[points[d].first] = v, self(self, d + 1);
  };
  walk(walk, 0);
  return static_cast<int64_t>(seen.size());
}

struct Drawn {
  Node node;
  Points reads, writes; // what the loads and the stores run over
};

Drawn draw(Draw &d, BufferId from, BufferId to) {
  Drawn out;
  Node &n = out.node;
  n.ranges = d.sizes(3);
  const int64_t kind = d.pick(4);
  if (kind > 0) n.reduceRanges = {d.size()};
  for (size_t k = 0; k < n.ranges.size(); ++k) out.writes.push_back({Symbol::index(k), n.ranges[k]});
  out.reads = out.writes;
  if (kind > 0) out.reads.push_back({Symbol::inner(0), n.reduceRanges[0]});
  auto load = [&](Body &body) { return appendLoad(body, from, DType::F32, d.index(out.reads)); };
  if (kind == 0) {
    PointwiseSpec s;
    const ValueIdx v = load(s.body);
    s.stores = {{to, d.index(out.writes), v}};
    n.spec = s;
  } else if (kind == 1) {
    ReductionSpec s;
    const ValueIdx v = load(s.body);
    s.reductions = {{ReduceKind::Sum, DType::F32, v, {{to, d.index(out.writes), 0}}}};
    n.spec = s;
  } else if (kind == 2) {
    ScanSpec s;
    out.writes = out.reads;
    s.inputs = {load(s.body)};
    s.stores = {{to, d.index(out.writes), 0}};
    n.spec = s;
  } else {
    SortSpec s;
    out.writes = out.reads;
    s.key = load(s.body);
    if (d.pick(2)) s.take = d.size(), out.writes.back().second = min(n.reduceRanges[0], s.take);
    s.stores = {{to, d.index(out.writes), 0}};
    n.spec = s;
  }
  return out;
}

TEST(Coverage, OfLoopsIsCounted) {
  int64_t said = 0;
  for (uint32_t seed = 0; seed < 1500; ++seed) {
    Draw d(seed);
    Program p;
    const BufferId from = addTemp(p, "from", DType::F32, 1000), to = addTemp(p, "to", DType::F32, 1000);
    const Drawn drawn = draw(d, from, to);
    for (const Access &a : accessesOf(drawn.node)) {
      const Expr most = a.writes() ? mostWritten(drawn.node, a) : Expr();
      const Expr least = a.reads() ? leastRead(d.facts, drawn.node, a) : Expr(0);
      said += most.valid() + !least.isConst(0);
      d.atAllSizes([&](const SymbolMap<int64_t> &at) {
        if (most.valid()) EXPECT_GE(*evaluate(most, at), counted(a.index, drawn.writes, at)) << a.index.str() << " of seed " << seed;
        if (a.reads()) EXPECT_LE(*evaluate(least, at), counted(a.index, drawn.reads, at)) << a.index.str() << " of seed " << seed;
      });
    }
  }
  EXPECT_GT(said, 1800);
}

TEST(Coverage, OfTensorsIsCounted) {
  int64_t said = 0;
  for (uint32_t seed = 0; seed < 1500; ++seed) {
    Draw d(seed);
    const std::vector<Expr> sizes = d.sizes(3);
    Points points;
    std::vector<Expr> strides;
    for (size_t k = 0; k < sizes.size(); ++k) points.push_back({Symbol::index(k), sizes[k]});
    Expr index = d.index(points);
    for (const auto &[symbol, size] : points) {
      const std::optional<Affine> a = affineIn(index, symbol);
      strides.push_back(a ? a->coefficient : Expr(d.pick(5)));
      if (!a) index = substitute(index, {{symbol, 0}}) + strides.back() * symbol;
    }
    const Expr elements = elementsOf(sizes, strides);
    said += !elements.isConst(0);
    d.atAllSizes([&](const SymbolMap<int64_t> &at) {
      // A dimension of stride 0 that has no elements is not looked at.
      const int64_t have = counted(index, points, at);
      if (have > 0) EXPECT_TRUE(elements.isConst(0) || *evaluate(elements, at) == have) << index.str() << " of seed " << seed;
    });
  }
  EXPECT_GT(said, 800);
}

/// All that an attention reads, by its own rules: row m takes key n where nothing forbids it.
TEST(Coverage, OfAttentionIsCounted) {
  using A = AttentionSpec;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    Draw d(seed);
    Program p;
    BufferId buffers[5];
    for (BufferId &b : buffers) b = addTemp(p, "b", DType::F32, 1000);
    A s;
    Node n;
    n.ranges = {d.size(), d.size(), d.size(), d.size()};
    s.keyLength = d.size(), s.headSize = d.size(), s.causal = d.pick(2) == 1;
    auto over = [&](std::initializer_list<std::pair<A::Axis, Expr>> axes) {
      Points out = {{A::symbol(A::Batch), n.ranges[0]}, {A::symbol(A::Head), n.ranges[1]}};
      for (const auto &[axis, size] : axes) out.push_back({A::symbol(axis), size});
      return out;
    };
    const Points q = over({{A::Query, n.ranges[2]}, {A::Element, s.headSize}}), k = over({{A::Key, s.keyLength}, {A::Element, s.headSize}}),
                 v = over({{A::Key, s.keyLength}, {A::Element, n.ranges[3]}}), mask = over({{A::Query, n.ranges[2]}, {A::Key, s.keyLength}}),
                 out = over({{A::Query, n.ranges[2]}, {A::Element, n.ranges[3]}});
    s.q = {buffers[0], d.index(q)}, s.k = {buffers[1], d.index(k)}, s.v = {buffers[2], d.index(v)}, s.out = {buffers[3], d.index(out)};
    const int64_t masked = d.pick(3);
    if (masked) s.mask = {buffers[4], d.index(mask), masked == 1 ? DType::F32 : DType::Bool};
    n.spec = s;
    for (const Access &a : accessesOf(n))
      d.atAllSizes([&](SymbolMap<int64_t> at) {
        if (a.writes()) {
          EXPECT_GE(*evaluate(mostWritten(n, a), at), counted(a.index, out, at)) << "seed " << seed;
          return;
        }
        // A mask of truths may allow nothing.
        const bool none = masked == 2 && (a.buffer == s.k.buffer || a.buffer == s.v.buffer);
        const Points all = over({{A::Query, n.ranges[2]}, {A::Key, s.keyLength}, {A::Element, a.buffer == s.q.buffer || a.buffer == s.k.buffer ? s.headSize : n.ranges[3]}});
        const Expr index = s.causal ? where(le(A::symbol(A::Key), A::symbol(A::Query)), a.index, -1) : a.index;
        const int64_t have = none ? 0 : counted(index, all, at);
        EXPECT_LE(*evaluate(leastRead(d.facts, n, a), at), have) << "seed " << seed;
      });
  }
}

} // namespace
} // namespace neso::loops
