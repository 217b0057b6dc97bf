// Long sorts as sorts of parts and merges.
//
// Where only the run knows the length n, there are merges for every length: pass k joins 2^(k + 1) parts to 2^k, and has no programs where n has fewer
// parts. The passes write two buffers in turn; the first has a kernel for either.
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

/// Rows of which only the run knows the length: what is one part of so few elements has a kernel of its own.
constexpr int64_t kShortPart = 1024;

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
      const bool isKnown = sort && n.reduceRanges[0].isConst();
      if (longest > rule_.longestSort && !isKnown)
        applied(Rule::SplitSort), splitUnknown(n, *sort, std::min(longest, kLongestRow));
      else if (longest > rule_.longestSort && longest < kLongestRow)
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
    const Expr length = n.reduceRanges[0], parts = int64_t(1) << levels, part = ceilDiv(length, parts),
               row = part * parts;
    const DType key = sort.body.ops[static_cast<size_t>(sort.key)].dtype;
    const BufferId given = keysOf(n, sort, key);

    Runs to = allocate(n, key, product(n.ranges) * row);
    addParts(n, sort.descending, given, key, {part, row, to, parts});

    Expr run = part;
    for (int level = levels - 1; level >= 0; --level, run = run * 2) {
      const Runs from = to;
      if (level > 0) to = allocate(n, key, product(n.ranges) * row);
      addMerge(n, sort, {level, run, row, from, to, int64_t(1) << level});
    }
  }

  void splitUnknown(const Node &n, const SortSpec &sort, int64_t longest) {
    const Expr length = n.reduceRanges[0];
    if (!program_.facts.provablyLessEqual(length, Expr(longest))) program_.guards.push_back(le(length, Expr(longest)));
    const int64_t most = rule_.longestSort; // of a part
    // The last merge is always there and reads what odd passes write.
    std::vector<Expr> isLonger; // than 2^k parts
    Expr parts = 1, isOdd = 1;
    for (int64_t count = 1; count * most < longest; count *= 2) {
      isLonger.push_back(lt(Expr(count * most), length));
      parts = where(isLonger.back(), Expr(count * 2), parts), isOdd = where(isLonger.back(), Expr(static_cast<int64_t>(isLonger.size() % 2)), isOdd);
    }
    const Expr part = min(Expr(most), ceilDiv(length, parts)), row = part * parts;
    const DType key = sort.body.ops[static_cast<size_t>(sort.key)].dtype;
    const BufferId given = keysOf(n, sort, key);
    const Expr elements = product(n.ranges) * row;
    const Runs turns[] = {allocate(n, key, elements), allocate(n, key, elements)};

    const int64_t few = std::min(kShortPart, most);
    const Expr isShort = le(length, Expr(few));
    addParts(n, sort.descending, given, key, {min(Expr(few), length), row, turns[1], isShort});
    addParts(n, sort.descending, given, key, {part, row, turns[1], logicalAnd(logicalNot(isShort), isOdd) * parts});
    addParts(n, sort.descending, given, key, {part, row, turns[0], logicalNot(isOdd) * parts});
    for (int level = static_cast<int>(isLonger.size()) - 1; level > 0; --level) {
      const Expr run = part * floorDiv(parts, int64_t(2) << level);
      addMerge(n, sort, {level, run, row, turns[(level + 1) % 2], turns[level % 2], isLonger[static_cast<size_t>(level)] * (int64_t(1) << level)});
    }
    addMerge(n, sort, {0, part * max(Expr(1), floorDiv(parts, 2)), row, turns[1], {}, 1});
  }

  struct Parts {
    Expr part, row; // elements of a part, and of a row's parts
    Runs to;
    Expr segments;
  };
  void addParts(const Node &n, bool descending, BufferId given, DType key, const Parts &p) {
    const Expr rowIndex = rowMajorIndex(n.ranges), at = Expr(Symbol::index(n.ranges.size())) * p.part + Symbol::inner(0);
    SortSpec sort;
    sort.descending = descending;
    padded(sort, given, rowIndex * n.reduceRanges[0], at, n.reduceRanges[0], key);
    store(sort, p.to, rowIndex * p.row + at);
    addPass(n, "_parts", {n.ranges, p.segments}, p.part, std::move(sort));
  }

  /// Pass `level` from the end: level 0 makes one run of two and stores what the sort does.
  struct Level {
    int level;
    Expr run, row;
    Runs from, to;
    Expr segments;
  };
  void addMerge(const Node &n, const SortSpec &sort, const Level &l) {
    const Expr rowIndex = rowMajorIndex(n.ranges), r = Symbol::inner(0);
    const DType key = sort.body.ops[static_cast<size_t>(sort.key)].dtype;
    const bool last = l.level == 0;
    SortSpec merge;
    merge.descending = sort.descending;
    merge.run = l.run;
    if (last && sort.place >= 0) {
      merge.body = sort.body, merge.place = sort.place;
      pruneBody(merge.body, {&merge.place});
    }
    const Expr at = last ? rowIndex * l.row + r : rowIndex * l.row + Expr(Symbol::index(n.ranges.size())) * (l.run * 2) + r;
    merge.key = appendLoad(merge.body, l.from.keys, key, at);
    merge.position = appendLoad(merge.body, l.from.positions, DType::I32, at);
    if (last) merge.stores = sort.stores, merge.take = sort.take;
    else store(merge, l.to, at);
    addPass(n, "_merge", {n.ranges, last ? Expr() : l.segments}, last ? n.reduceRanges[0] : l.run * 2, std::move(merge));
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

  static void store(SortSpec &s, const Runs &to, Expr at) { s.stores = {{to.keys, at, 0}, {to.positions, at, 1}}; }

  Program &program_;
  const SplitRule &rule_;
  std::vector<Node> out_;
  int32_t nextId_;
};

} // namespace

void splitSorts(Program &program, const SplitRule &rule) { SortSplitter(program, rule).run(); }

} // namespace neso::schedule
