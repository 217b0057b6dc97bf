// Long sorts as sorts of parts and merges.
#include <limits>

#include "base/rules.h"
#include "ir/loops/build.h"
#include "lower/schedule/access.h"
#include "lower/schedule/split.h"

namespace neso::schedule {

using namespace loops;

namespace {

/// Beyond this a position and a bit more do not fit 32 bits.
constexpr int64_t kLongestRow = int64_t(1) << 30;

/// Keys and positions of rows, side by side.
struct Runs {
  BufferId keys, positions;
};

class SortSplitter {
public:
  SortSplitter(Program &program, const SplitRule &rule)
      : program_(program), rule_(rule), nextId_(freeNodeId(program).value) {}

  void run() {
    std::vector<Node> nodes = std::move(program_.nodes);
    for (Node &n : nodes) {
      const auto *sort = n.as<SortSpec>();
      const int64_t longest = sort && sort->position < 0 ? program_.facts.rangeOf(n.reduceRanges[0]).hi : 0;
      if (longest > rule_.longestSort && longest < kLongestRow)
        applied(Rule::SplitSort), split(n, *sort, longest);
      else
        out_.push_back(std::move(n));
    }
    program_.nodes = std::move(out_);
  }

private:
  void split(const Node &n, const SortSpec &sort, int64_t longest) {
    int levels = 0;
    while ((longest + (int64_t(1) << levels) - 1) >> levels > rule_.longestSort) ++levels;
    const size_t rank = n.ranges.size();
    const Expr length = n.reduceRanges[0], parts = int64_t(1) << levels, part = ceilDiv(length, parts),
               row = part * parts;
    const DType key = sort.body.ops[static_cast<size_t>(sort.key)].dtype;
    const BufferId given = keysOf(n, sort, key);

    const Expr rowIndex = rowMajorIndex(n.ranges);
    const Expr segment = Symbol::index(rank), r = Symbol::inner(0);
    Runs to = allocate(n, key, product(n.ranges) * row);
    SortSpec first;
    first.descending = sort.descending;
    padded(first, given, rowIndex * length, segment * part + r, length, key);
    store(first, to, rowIndex * row + segment * part + r);
    addPass(n, "_parts", {n.ranges, parts}, part, std::move(first));

    Expr run = part;
    for (int level = levels - 1; level >= 0; --level, run = run * 2) {
      const Runs from = to;
      const bool last = level == 0;
      SortSpec merge;
      merge.descending = sort.descending;
      merge.run = run;
      if (level == 0 && sort.place >= 0) {
        merge.body = sort.body, merge.place = sort.place;
        pruneBody(merge.body, {&merge.place});
      }
      const Expr at = last ? rowIndex * row + r : rowIndex * row + segment * (run * 2) + r;
      merge.key = appendLoad(merge.body, from.keys, key, at);
      merge.position = appendLoad(merge.body, from.positions, DType::I32, at);
      if (last) {
        merge.stores = sort.stores;
        merge.take = sort.take;
      } else {
        to = allocate(n, key, product(n.ranges) * row);
        store(merge, to, at);
      }
      addPass(n, "_merge", {n.ranges, last ? Expr() : Expr(int64_t(1) << level)}, last ? length : run * 2,
              std::move(merge));
    }
  }

  struct Space {
    std::vector<Expr> rows;
    Expr segments; // invalid: the row is one
  };
  void addPass(const Node &n, const char *what, const Space &space, Expr length, SortSpec spec) {
    Node pass;
    pass.id = NodeId(nextId_++);
    pass.name = n.name + what;
    pass.origins = n.origins;
    pass.ranges = space.rows;
    if (space.segments.valid()) pass.ranges.push_back(space.segments);
    pass.reduceRanges = {length};
    pass.spec = std::move(spec);
    out_.push_back(std::move(pass));
  }

  Runs allocate(const Node &n, DType key, Expr elements) {
    const BufferId keys = addTemp(program_, n.name + "_keys", key, elements);
    return {keys, addTemp(program_, n.name + "_positions", DType::I32, elements)};
  }

  /// The keys of n's rows, one row behind another: what it sorts is computed once, not in every pass.
  BufferId keysOf(const Node &n, const SortSpec &sort, DType type) {
    Node compute;
    compute.id = NodeId(nextId_++);
    compute.name = n.name + "_keys";
    compute.origins = n.origins;
    compute.ranges = n.ranges;
    compute.ranges.push_back(n.reduceRanges[0]);
    Body body = sort.body;
    ValueIdx key = sort.key;
    pruneBody(body, {&key});
    compute.spec = PointwiseSpec{std::move(body), {}};
    mapExprs(compute, [&](Expr e) { return substitute(e, {{Symbol::inner(0), Symbol::index(n.ranges.size())}}); });
    const BufferId keys = addTemp(program_, n.name + "_keys", type, product(compute.ranges));
    compute.get<PointwiseSpec>().stores = {{keys, rowMajorIndex(compute.ranges), key}};
    out_.push_back(std::move(compute));
    return keys;
  }

  /// Inputs of the first pass: the key at `position` of the row that begins at `first`, and the position; behind the
  /// row's end what no key stands behind.
  static void padded(SortSpec &s, BufferId keys, Expr first, Expr position, Expr length, DType t) {
    const ValueIdx at = appendIndex(s.body, position), end = appendIndex(s.body, length);
    const ValueIdx inside = append(s.body, OpKind::Lt, DType::Bool, at, end);
    Op last{OpKind::Constant, t};
    if (isFloat(t))
      last.imm = s.descending ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
    else
      last.immInt = extremeOf(t, !s.descending);
    Op key{OpKind::Load, t};
    key.a = inside, key.b = append(s.body, last), key.buffer = keys, key.index = first + position;
    s.key = append(s.body, key);
    s.position = append(s.body, OpKind::Cast, DType::I32, at);
  }

  static int64_t extremeOf(DType t, bool largest) {
    if (t == DType::Bool) return largest;
    const int bits = static_cast<int>(itemSize(t)) * 8;
    if (isUnsignedInt(t)) return largest ? static_cast<int64_t>(~uint64_t(0) >> (64 - bits)) : 0;
    return largest ? INT64_MAX >> (64 - bits) : INT64_MIN >> (64 - bits);
  }

  static void store(SortSpec &s, const Runs &to, Expr at) { s.stores = {{to.keys, at, 0}, {to.positions, at, 1}}; }

  Program &program_;
  const SplitRule &rule_;
  std::vector<Node> out_;
  int32_t nextId_;
};

} // namespace

void splitSorts(Program &program, const SplitRule &rule) { SortSplitter(program, rule).run(); }

} // namespace neso::schedule
