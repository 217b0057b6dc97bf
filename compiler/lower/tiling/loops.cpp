#include "lower/tiling/loops.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/rules.h"
#include "ir/loops/access.h"
#include "ir/plan/access.h"
#include "lower/tiling/cost.h"

namespace neso {

using loops::Node;
using loops::Op;
using loops::OpKind;
using loops::ReduceKind;

namespace {

bool usesR(Expr e) {
  for (Symbol s : symbolsOf(e))
    if (s.kind() == Symbol::Kind::Inner) return true;
  return false;
}

bool uses(Expr e, const std::set<Symbol> &any) {
  for (Symbol s : symbolsOf(e))
    if (any.contains(s)) return true;
  return false;
}

/// The symbol and what the body computes of it and uses as an index.
std::set<Symbol> movingAlong(const loops::Body &body, Symbol along) {
  std::set<Symbol> moving = {along};
  std::vector<bool> moves(body.ops.size());
  for (size_t k = 0; k < body.ops.size(); ++k) {
    const Op &op = body.ops[k];
    for (loops::ValueIdx v : {op.a, op.b, op.c})
      if (v >= 0 && moves[static_cast<size_t>(v)]) moves[k] = true;
    if (op.kind == OpKind::Load || op.kind == OpKind::Index)
      for (Symbol s : symbolsOf(op.index))
        if (moving.count(s)) moves[k] = true;
    if (op.kind == OpKind::Indirect && moves[k]) moving.insert(op.symbol);
  }
  return moving;
}

/// The largest unrolled size, in inner elements and in scalar operators.
constexpr int64_t kUnrollElements = 64, kUnrollOps = 1024;
/// Of reductions over one dimension on a CPU, unless windows slide over it or somebody needs places or the elements again: a loop is faster, and
/// its code does not grow with the sizes (a model that solves triangular systems row by row has 63 such sums, of 1 to 63 elements).
constexpr int64_t kUnrollRow = 16;
/// Windows that one program computes side by side, at most, and where that leaves fewer than so many programs.
constexpr int64_t kWindowRow = 256, kShortWindowRow = 64, kWindowPrograms = 16;
/// Windows of neighbours for each processor that are worth a thread each, however long they are: sums of 31 x 31 elements of 64 x 56 x 56 results took
/// 0.79 ms on an H200 with a warp for each.
constexpr int64_t kManyWindows = 256;
/// Threads of a processor, fewer than which hold half as many results each: 7 x 7 windows of 14 x 14 x 384 in bf16, eight images, take 12.4 microseconds on an
/// H200 in place of 17.1, of 28 x 28 x 192 15.7 and 17.3, of 56 x 56 x 96 23.8 and 24.5.
constexpr int64_t kWindowThreads = 768;
/// Warps of a program that reads a long row in steps.
constexpr int64_t kStreamingWarps = 16;
/// Rows that one thread reads at one time, where all are long and are read once: more of memory is under way. And that
/// many elements are long.
constexpr int64_t kStreamedRows = 8, kStreamedLength = 256;
/// Bytes that one thread has to fetch ahead of itself: more than a core's own caches keep from one run to the next.
constexpr int64_t kFromMemory = int64_t{4} << 20;
/// The least block of a row whose length is known at run time only and which is walked as a whole: one thread's, and
/// that of a block of threads.
constexpr int64_t kLeastRow = 64, kLeastRowOfBlock = 256;
/// Rows of so many elements or fewer have code of their own, for one thread: a few vectors under masks in place of loops.
constexpr int64_t kShortRow = 64;
/// A block of threads holds a row in registers, read once, rather than in steps that read it again, although up to so
/// many times as much as usual is masked off.
constexpr int64_t kHeldRow = 4;

class LoopTiler {
public:
  LoopTiler(const plan::Plan &plan, const plan::Kernel &kernel, const TileTarget &target, int64_t windows)
      : plan_(plan), kernel_(kernel), target_(target), windows_(windows), facts_(plan.program.facts) {}

  LoopTiling run() {
    plan::Passes passes = plan::passesOf(kernel_);
    phase_ = std::move(passes.pass), inner_ = std::move(passes.inner), lastPhase_ = passes.last;
    for (size_t n = 0; n < nodes().size(); ++n)
      if (inner_[n]) lastInnerPhase_ = std::max(lastInnerPhase_, phase_[n]);
    chooseShape();
    chooseBlocks();
    note();
    const bool folds = out_.shape != Shape::Pointwise && out_.shape != Shape::Unrolled;
    out_.oneStep = r().size() == 1 && (r()[0].isConst() || isShort(r()[0])) && upperBound(facts_, r()[0], INT64_MAX) <= out_.inner;
    out_.warps = kernel_.serial ? 1 : warpsFor(elementsOfTile(), elementsOfThread());
    out_.keepsLoads = target_.threadBlocks && out_.shape != Shape::Unrolled && out_.oneStep;
    out_.streams = target_.threadBlocks ? readsOnly() && (lastInnerPhase_ == 0 || out_.keepsLoads) : streamsRows() && comesFromMemory();
    out_.carriesTiles = folds && target_.threadBlocks && !kernel_.serial && !out_.oneStep;
    return std::move(out_);
  }

private:
  using Shape = LoopTiling::Shape;
  const std::vector<Node> &nodes() const { return kernel_.nodes; }
  const std::vector<Expr> &x() const { return kernel_.xRanges; }
  const std::vector<Expr> &r() const { return kernel_.rRanges; }
  bool inMemory(loops::BufferId buffer) const {
    return plan_.placements[buffer.index()].where != plan::Placement::Where::None;
  }

  void note() const {
    if (out_.shape == Shape::Unrolled) applied(Rule::UnrolledReduction);
    if (out_.shape == Shape::Rows) applied(Rule::RowReduction);
    if (out_.shape == Shape::Columns) applied(Rule::ColumnReduction);
  }

  /// A block of threads takes the row at once, whatever its length is. Not where it may be empty: then even what all lanes share must not be read.
  bool isShort(Expr row) const { return target_.threadBlocks && facts_.rangeOf(row).lo > 0; }

  void chooseShape() {
    bool reduces = std::find(inner_.begin(), inner_.end(), true) != inner_.end();
    if (!reduces || r().empty()) {
      // Reductions over nothing but dimensions of one element take that element.
      out_.shape = reduces ? Shape::Unrolled : Shape::Pointwise;
      return;
    }
    int64_t elements = 1, ops = 0;
    bool constant = true, scans = false, foldsOnly = cheapFold();
    for (Expr e : r()) {
      constant &= e.isConst();
      if (constant) elements = std::min<int64_t>(elements * std::max<int64_t>(e.constValue(), 0), int64_t{1} << 40);
    }
    for (size_t i = 0; i < nodes().size(); ++i) {
      if (inner_[i]) ops += static_cast<int64_t>(nodes()[i].body().ops.size());
      scans |= nodes()[i].kind() == Node::Kind::Scan;
      foldsOnly &= !inner_[i] || nodes()[i].kind() == Node::Kind::Reduction;
    }
    // Which way does memory run? Count loads that are contiguous along the last r and along the last x.
    int rowVotes = 0, columnVotes = 0;
    bool overlaps = false; // windows of neighbouring results
    for (size_t i = 0; i < nodes().size(); ++i) {
      if (!inner_[i]) continue;
      // r itself and what is looked up by it: the places of an interpolation's neighbours.
      std::set<Symbol> moving;
      for (size_t k = 0; k < r().size(); ++k) moving.merge(movingAlong(nodes()[i].body(), Symbol::inner(k)));
      loops::forEachAccess(nodes()[i], [&](const loops::Access &load) {
        if (load.writes() || !uses(load.index, moving)) return;
        auto unit = [&](Symbol s) {
          std::optional<Affine> a = affineIn(load.index, s);
          return a && a->coefficient.isConst(1);
        };
        rowVotes += unit(Symbol::inner(r().size() - 1));
        columnVotes += !x().empty() && unit(Symbol::outer(x().size() - 1));
        auto step = [&](Symbol s) {
          std::optional<Affine> a = affineIn(load.index, s);
          return a ? a->coefficient.asConst().value_or(0) : 0;
        };
        const int64_t inside = step(Symbol::inner(r().size() - 1));
        for (size_t d = 0; inside > 0 && d < x().size(); ++d) {
          const int64_t across = step(Symbol::outer(d));
          overlaps |= across > 0 && across % inside == 0 && across / inside < elements;
        }
      });
    }
    // Where memory runs both ways (windows, products by multiplication and addition), one thread reads one vector for
    // many results.
    const bool wide = !x().empty() && usualSize(x().back(), facts_) >= 16;
    // A thread's window then lies beside its neighbours', and what is in it comes from the first cache.
    const bool manyWindows = target_.threadBlocks && overlaps && wide && columnVotes > 0 && likelyResults() >= kManyWindows * target_.processors;
    bool rows = !manyWindows && (rowVotes > columnVotes || (rowVotes == columnVotes && (target_.threadBlocks || !columnVotes || !wide)));
    bool longRows = rows && rowVotes > 0 && upperBound(facts_, r().back(), INT64_MAX) >= 16;
    const int64_t mostElements = target_.threadBlocks || overlaps || r().size() > 1 || !foldsOnly ? kUnrollElements : kUnrollRow;
    if (constant && !scans && elements <= mostElements && ops * elements <= kUnrollOps * windows_ && !longRows)
      out_.shape = Shape::Unrolled;
    else
      out_.shape =
          rows || (scans && !target_.threadBlocks) || x().empty() || kernel_.serial ? Shape::Rows : Shape::Columns;
  }

  void chooseBlocks() {
    out_.outer.resize(x().size());
    switch (out_.shape) {
    case Shape::Pointwise:
    case Shape::Unrolled:
      // Updates of computed places happen one after another, in order: the same sums in every run, and any operator can do it.
      if (x().empty()) break;
      out_.inTurn = kernel_.serial && !updatesRows() && updatesInTurn();
      if (!kernel_.serial || out_.inTurn || updatesRows()) blockPointwise();
      break;
    case Shape::Rows: blockRows(); break;
    case Shape::Columns: blockColumns(); break;
    }
  }

  /// Elements of the outer space.
  int64_t likelyResults() const {
    int64_t all = 1;
    for (Expr e : x()) all = std::min<int64_t>(all * usualSize(e, facts_), int64_t{1} << 40);
    return all;
  }

  /// The same, and as many as keep all processors busy where there may be so many: blocks for few elements are a warp each, of which a large tensor wants very
  /// many. A layer's product by cuBLASLt and the ReLU behind it, 16 million elements of bf16 on an H200: 264 microseconds with blocks of 128, 190 with 1024.
  int64_t roomyResults() const {
    constexpr int64_t kMany = int64_t{1} << 19;
    const bool known = std::all_of(x().begin(), x().end(), [](Expr e) { return e.isConst(); });
    return known ? likelyResults() : std::max(likelyResults(), std::min(facts_.rangeOf(product(x())).hi, kMany));
  }

  /// One block along the last dimension; where it is short, or where memory runs along another dimension too, a second
  /// one across.
  void blockPointwise() {
    size_t last = x().size() - 1, across = x().size() > 1 ? last - 1 : last;
    int64_t budget = target_.pointwiseBlock, width = INT64_MAX;
    // Neighbours across read the same weights and almost the same window: of a few vectors both stay in the first cache.
    if (!target_.threadBlocks && out_.shape == Shape::Unrolled && across != last) {
      width = target_.columnBlock;
      // A whole row of windows: then its edges are known at compile time.
      // One of unknown length is walked in steps that ask where they are: longer ones have more steps between the edges.
      const int64_t row = x()[across].asConst().value_or(kShortWindowRow);
      if (row <= kShortWindowRow || (row <= kWindowRow && likelyResults() >= kWindowPrograms * row * width))
        budget = std::max(budget, nextPowerOfTwo(row) * width);
    }
    if (target_.threadBlocks) {
      const int64_t elements = roomyResults();
      budget = pointwiseElements(target_, elements);
      if (std::optional<size_t> d = crossingDimension()) {
        // Both sides of a transposition get whole lines of memory: 32 elements each way, 64 where there is work for
        // all.
        across = *d, transposes_ = true;
        const bool many = elements >= 4096 * target_.processors * 4;
        budget = many ? 4096 : std::max<int64_t>(budget, 1024), width = many ? 64 : 32;
      }
    }
    int64_t along = std::min({nextPowerOfTwo(likelyBlock(x()[last], budget)), budget, width});
    if (target_.threadBlocks && across != last && !transposes_ && !kernel_.serial) along = fittingBlock(x()[last], along);
    int64_t rows = 1;
    if (across != last && !kernel_.serial)
      rows = std::min(nextPowerOfTwo(likelyBlock(x()[across], budget)), std::max<int64_t>(budget / along, 1));
    if (rows > 1) {
      out_.tile = {rows, along};
      out_.outer[across] = {rows, 0};
      out_.outer[last] = {along, 1};
    } else {
      out_.tile = {along};
      out_.outer[last] = {along, 0};
    }
  }

  /// Elements of a dimension that a block is made for, at most `most`: all that there may be where that is known, else as many as usual in a block of
  /// threads, most of which would have none. Longer ones take several blocks.
  int64_t likelyBlock(Expr extent, int64_t most) const {
    constexpr int64_t kLeast = 32;
    const int64_t all = upperBound(facts_, extent, most);
    return target_.threadBlocks && !extent.isConst() ? std::min(all, std::max(usualSize(extent, facts_), kLeast)) : all;
  }

  /// The widest block up to `most` of which little is empty in a dimension like 96 or 192; rows fill the program then.
  int64_t fittingBlock(Expr extent, int64_t most) const {
    // Two sectors of memory in the narrowest type that counts.
    constexpr int64_t kLeast = 32;
    const std::optional<int64_t> n = extent.asConst();
    for (int64_t block = most; n && block >= kLeast; block /= 2)
      if (const int64_t padded = (*n + block - 1) / block * block; (padded - *n) * 8 <= *n) return block;
    return most;
  }

  /// Whether the elements along the last dimension update different places, each once, and read nothing that the kernel
  /// writes: then their order among themselves does not count.
  bool updatesRows() const {
    if (target_.threadBlocks || usualSize(x().back(), facts_) < 8) return false;
    const Symbol last = Symbol::outer(x().size() - 1);
    std::map<int64_t, int> writes;
    std::set<int64_t> reads;
    bool apart = true;
    for (const Node &n : nodes()) {
      if (n.kind() != Node::Kind::Pointwise) return false;
      const std::set<Symbol> moving = movingAlong(n.body(), last);
      loops::forEachAccess(n, [&](const loops::Access &a) {
        apart &= !a.whole();
        if (!a.writes()) reads.insert(a.buffer.value);
        if (!a.writes()) return;
        ++writes[a.buffer.value];
        std::optional<Affine> along = affineIn(a.index, last);
        apart &= along && along->coefficient.isConst() && !along->coefficient.isConst(0);
        for (Symbol s : symbolsOf(a.index)) apart &= s == last || !moving.count(s);
      });
    }
    for (auto [buffer, times] : writes) apart &= times == 1 && !reads.count(buffer);
    return apart;
  }

  /// Whether all that the kernel writes are updates, each of a buffer of its own that nothing reads: then the lanes of a vector compute together where
  /// and what, and each updates when those before it have.
  bool updatesInTurn() const {
    if (target_.threadBlocks || usualSize(x().back(), facts_) < 8) return false;
    std::map<int64_t, int> writes;
    std::set<int64_t> reads;
    bool fits = true;
    for (const Node &n : nodes()) {
      if (n.kind() != Node::Kind::Pointwise) return false;
      loops::forEachAccess(n, [&](const loops::Access &a) {
        fits &= !a.whole();
        if (!a.writes()) reads.insert(a.buffer.value);
        if (!a.writes()) return;
        ++writes[a.buffer.value];
        fits &= a.mode == loops::AccessMode::Update && hasAtomic(a.update, plan_.program.buffer(a.buffer).dtype);
      });
    }
    for (auto [buffer, times] : writes) fits &= times == 1 && !reads.count(buffer);
    return fits;
  }

  /// A dimension other than the last along which some access is contiguous: the kernel transposes.
  std::optional<size_t> crossingDimension() const {
    std::optional<size_t> found;
    auto look = [&](Expr index) {
      auto unit = [&](size_t d) {
        std::optional<Affine> a = affineIn(index, Symbol::outer(d));
        return a && a->coefficient.isConst(1);
      };
      // An index that does not vary along the last dimension is one of a row: few elements.
      std::vector<Symbol> used = symbolsOf(index);
      if (unit(x().size() - 1) || std::find(used.begin(), used.end(), Symbol::outer(x().size() - 1)) == used.end())
        return;
      for (size_t d = 0; d + 1 < x().size(); ++d)
        if (unit(d) && usualSize(x()[d], facts_) >= 8) found = d;
    };
    if (usualSize(x().back(), facts_) < 8) return found;
    for (const Node &n : nodes()) loops::forEachAccess(n, [&](const loops::Access &a) { look(a.index); });
    return found;
  }

  void blockRows() {
    int64_t length = innerLength(), rows = 1;
    out_.inner = std::min(nextPowerOfTwo(length), target_.reduceChunk);
    if (kernel_.serial) out_.inner = 1;
    out_.innerDim = 0;
    if (target_.threadBlocks && !kernel_.serial) {
      const int64_t all = likelyResults();
      bool shares = !x().empty();
      RowBlock block = rowBlock(target_, shares ? usualSize(x().back(), facts_) : 1, length, lastInnerPhase_ > 0,
                                streamsRows() ? kStreamingWarps * 32 * vectorOfThread() : target_.reduceChunk * 2);
      // Rows that share a program lie along the last outer dimension; the other dimensions count as programs.
      if (shares && all / block.rows < target_.processors) block.rows = 1;
      out_.inner = block.inner, rows = block.rows;
    } else if (!kernel_.serial && !x().empty() && x().back().isConst() && r().back().isConst() &&
               x().back().constValue() % kStreamedRows == 0 && likelyResults() >= kStreamedRows * kStreamedRows &&
               length >= kStreamedLength && streamsRows())
      rows = kStreamedRows;
    if (!target_.threadBlocks && !kernel_.serial && !r().back().isConst() && out_.inner > kShortRow)
      out_.shortRow = kShortRow;
    if (rows == 1) {
      out_.tile = {out_.inner};
      return;
    }
    out_.innerDim = 1;
    out_.tile = {rows, out_.inner};
    out_.outer.back() = {rows, 0};
  }

  void blockColumns() {
    RowBlock block{target_.reduceChunk / 4, target_.columnBlock};
    if (target_.threadBlocks) block = columnBlock(target_, likelyResults(), innerLength(), lastInnerPhase_ > 0);
    // As many more columns as there may be cost nothing where the loop ends with them, and what a program does besides counts
    // half.
    else if (upperBound(facts_, x().back(), INT64_MAX) == INT64_MAX && !r().back().isConst())
      block.inner *= 2;
    const int64_t columns = std::min(nextPowerOfTwo(upperBound(facts_, x().back(), block.inner)), block.inner);
    out_.inner = std::min<int64_t>(nextPowerOfTwo(innerLength()), block.rows);
    out_.innerDim = 0;
    out_.tile = {out_.inner, columns};
    out_.outer.back() = {columns, 1};
    // Columns that one step takes carry nothing through memory from step to step.
    if (!target_.threadBlocks && !r().back().isConst()) out_.shortRow = out_.inner;
  }

  /// Elements of the last inner dimension that a block is made for: all that there may be, if walking the block ends
  /// where the mask does, else as many as usual. Longer ones take several blocks.
  int64_t innerLength() const {
    const int64_t most = upperBound(facts_, r().back(), target_.reduceChunk);
    if (r().back().isConst() || endsWithMask()) return most;
    const int64_t least = target_.threadBlocks ? kLeastRowOfBlock : kLeastRow;
    const int64_t usual = std::max(usualSize(r().back(), facts_), least);
    if (target_.threadBlocks && most <= kHeldRow * usual) return most;
    return std::min(most, usual);
  }

  /// One thread stops where nothing is left of a row, in passes that only reduce and in those that only store. A block
  /// of threads holds whole tiles; what is scanned is kept for all of one.
  bool endsWithMask() const {
    if (target_.threadBlocks || !(out_.shape == Shape::Rows ? foldsOneByOne() : cheapFold())) return false;
    std::vector<bool> stores(static_cast<size_t>(lastPhase_) + 1), reduces = stores;
    for (size_t i = 0; i < nodes().size(); ++i) {
      if (!inner_[i]) continue;
      const size_t phase = static_cast<size_t>(phase_[i]);
      if (nodes()[i].kind() == Node::Kind::Scan) return false;
      if (nodes()[i].kind() == Node::Kind::Reduction) reduces[phase] = true;
      if (nodes()[i].kind() == Node::Kind::Pointwise)
        loops::forEachWrite(nodes()[i], [&](const loops::Access &a) {
          if (inMemory(a.buffer)) stores[phase] = true;
        });
    }
    for (size_t phase = 0; phase < stores.size(); ++phase)
      if (stores[phase] && reduces[phase]) return false;
    return true;
  }

  /// The kernel reduces: of its whole space it stores nothing.
  bool readsOnly() const {
    if (out_.shape == Shape::Pointwise || out_.shape == Shape::Unrolled || kernel_.serial) return false;
    for (size_t i = 0; i < nodes().size(); ++i) {
      if (!inner_[i] || nodes()[i].kind() == Node::Kind::Reduction) continue;
      if (nodes()[i].kind() != Node::Kind::Pointwise) return false;
      bool stores = false;
      loops::forEachWrite(nodes()[i], [&](const loops::Access &a) { stores |= inMemory(a.buffer); });
      if (stores) return false;
    }
    return true;
  }

  int64_t elementsOfTile() const {
    int64_t elements = 1;
    for (int64_t n : out_.tile) elements *= n;
    return elements;
  }

  /// Elements of a tile that one thread holds. A program that only reads keeps more loads in flight with more of them;
  /// along rows that are read in steps, one wide access of many threads, so that neighbouring memory is read at one
  /// time. Windows read what their neighbours read, which waits for the first cache again and again: there it is more threads that keep loads in flight.
  int64_t elementsOfThread() const {
    if (transposes_) return 16;
    if (target_.threadBlocks && out_.shape == Shape::Unrolled && likelyResults() < 8 * kWindowThreads * target_.processors) return 4;
    if (!readsOnly()) return 8;
    // Sixteen places of 64 bits beside sixteen extremes, with what a row of unknown length asks for besides, leave a multiprocessor three programs in place
    // of four: the largest of 33 million took 0.30 ms on an H200, of eight it takes 0.11.
    if (target_.threadBlocks && out_.shape == Shape::Rows && !out_.oneStep && !r().back().isConst() && !foldsValues()) return 8;
    return streamsRows() && !out_.oneStep ? vectorOfThread() : 16;
  }

  /// Rows are read once, in order, and little is computed.
  bool streamsRows() const { return out_.shape == Shape::Rows && readsOnly() && lastInnerPhase_ == 0 && cheapFold(); }

  /// More is read than caches near a core hold.
  bool comesFromMemory() const {
    int64_t elements = 1;
    for (const std::vector<Expr> *ranges : {&x(), &r()})
      for (Expr e : *ranges) elements = std::min(elements * (e.isConst() ? std::max<int64_t>(e.constValue(), 0) : 1), kFromMemory);
    return elements * 16 / vectorOfThread() >= kFromMemory;
  }

  /// Elements of one access of 16 bytes, of the widest that the inner nodes read.
  int64_t vectorOfThread() const {
    int64_t bytes = 1;
    for (size_t i = 0; i < nodes().size(); ++i)
      loops::forEachAccess(nodes()[i], [&](const loops::Access &a) {
        if (inner_[i] && !a.writes() && usesR(a.index))
          bytes = std::max(bytes, itemSize(toReal(plan_.program.buffer(a.buffer).dtype)));
      });
    return 16 / std::min<int64_t>(bytes, 16);
  }

  /// No reduction needs numbers of what it leaves out.
  bool foldsOneByOne() const {
    for (const Node &n : nodes())
      for (const loops::Reduction &r : n.reductions())
        if (r.kind == ReduceKind::OnlineSoftmax || r.kind == ReduceKind::Welford) return false;
    return true;
  }

  /// No reduction carries places.
  bool foldsValues() const {
    for (const Node &n : nodes())
      for (const loops::Reduction &r : n.reductions())
        if (r.kind == ReduceKind::ArgMin || r.kind == ReduceKind::ArgMax) return false;
    return true;
  }

  /// Every reduction carries one number.
  bool cheapFold() const {
    for (const Node &n : nodes())
      for (const loops::Reduction &r : n.reductions())
        if (r.kind == ReduceKind::OnlineSoftmax || r.kind == ReduceKind::Welford || r.kind == ReduceKind::ArgMin ||
            r.kind == ReduceKind::ArgMax)
          return false;
    return true;
  }

  const plan::Plan &plan_;
  const plan::Kernel &kernel_;
  const TileTarget &target_;
  int64_t windows_;
  const Facts &facts_;
  std::vector<int> phase_;
  std::vector<bool> inner_;
  int lastPhase_ = 0, lastInnerPhase_ = 0; // the last that looks at the inner space
  bool transposes_ = false;                // a pointwise kernel whose accesses run along different dimensions
  LoopTiling out_;
};

} // namespace

LoopTiling chooseLoopTiling(const plan::Plan &plan, const plan::Kernel &kernel, const TileTarget &target,
                            int64_t windows) {
  return LoopTiler(plan, kernel, target, windows).run();
}

} // namespace neso
