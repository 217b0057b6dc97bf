#include "lower/tiling/lengths.h"

#include <algorithm>
#include <array>

#include "ir/shape/usual.h"

namespace neso {

namespace {

using Shape = LoopTiling::Shape;

/// Lengths up to `most` that no shorter span has, and what to plan for.
struct Span {
  int64_t most, usual;
};
using Spans = std::vector<Span>;

/// A dimension by whose length blocks differ.
struct Axis {
  Expr length;
  Spans spans; // the last without end
};

/// What `c` becomes by the length of one axis.
std::vector<LengthClass> classesAlong(const Axis &axis, const LengthClass &c) {
  std::vector<LengthClass> out;
  const Interval all = c.facts.rangeOf(axis.length);
  int64_t below = INT64_MIN;
  for (const Span &span : axis.spans) {
    const bool isLast = span.most >= all.hi || span.most == INT64_MAX;
    const int64_t least = std::max(all.lo, below == INT64_MIN ? below : below + 1), most = std::min(all.hi, span.most);
    if (least <= most) {
      LengthClass one = c;
      if (least > all.lo) one.when = logicalAnd(one.when, lt(Expr(below), axis.length));
      if (!isLast) one.when = logicalAnd(one.when, le(axis.length, Expr(span.most))), one.name += "_to" + std::to_string(span.most);
      one.facts.assume(axis.length, {least, most}, std::clamp(span.usual, least, most));
      out.push_back(std::move(one));
    }
    if (isLast) break;
    below = span.most;
  }
  return out;
}

/// Rows of up to so many elements: of a tile for eight times as many the rest is masked off, which costs as much as reading what there is.
constexpr std::array<int64_t, 4> kRowClasses = {16, 128, 1024, 4096};
/// Columns of one sector of memory, of a few, and steps along them that one program takes at once.
constexpr int64_t kFewColumns = 8, kSomeColumns = 32, kShortColumn = 16;
/// Elements of a line that threads share with the next ones; blocks that are so much wider have a class for short lines.
constexpr int64_t kShortLine = 32, kWideBlock = 256;
/// How many rows there are, where they are short, and how many columns, where they are not few.
constexpr int64_t kManyRows = int64_t{1} << 14;
/// What a long length is like.
constexpr int64_t kLongRow = int64_t{1} << 16, kLongColumn = 1024;
/// Programs for a processor, fewer than which are over at once however much of them is masked off.
constexpr int64_t kFewPrograms = 4;

class Classifier {
public:
  Classifier(const plan::Plan &plan, const plan::Kernel &kernel, const LoopTiling &usual, const TileTarget &target)
      : facts_(plan.program.facts), kernel_(kernel), usual_(usual), target_(target) {}

  std::vector<LengthClass> run() {
    std::vector<LengthClass> out = {{Expr(1), facts_, ""}};
    for (const Axis &axis : axes()) {
      std::vector<LengthClass> longer;
      for (LengthClass &c : out) {
        // Of few columns a block of any height is good.
        if (!c.name.empty() && hasFewLines()) {
          longer.push_back(std::move(c));
          continue;
        }
        const size_t named = c.name.size();
        for (LengthClass &one : classesAlong(axis, c)) {
          if (one.name.size() > named) assumeManyRows(one.facts, axis.length);
          longer.push_back(std::move(one));
        }
      }
      out = std::move(longer);
    }
    if (out.size() < 2) out.clear();
    return out;
  }

private:
  std::vector<Axis> axes() const {
    const std::vector<Expr> &x = kernel_.xRanges, &r = kernel_.rRanges;
    std::vector<Axis> out;
    auto add = [&](Expr length, Spans spans) {
      if (!length.isConst()) out.push_back({length, std::move(spans)});
    };
    auto atLeast = [&](Expr length, int64_t least) { return std::max(usualSize(length, facts_), least); };
    switch (usual_.shape) {
    case Shape::Unrolled: break;
    case Shape::Pointwise:
      if (x.size() > 1 && usual_.outer.back().size >= kWideBlock)
        add(x.back(), {{kShortLine, kShortLine}, {INT64_MAX, atLeast(x.back(), kWideBlock)}});
      break;
    case Shape::Rows: {
      if (facts_.rangeOf(product(x)).hi <= kFewPrograms * target_.processors) break;
      Spans spans;
      for (int64_t most : kRowClasses) spans.push_back({most, most});
      spans.push_back({INT64_MAX, atLeast(r.back(), kLongRow)});
      add(r.back(), std::move(spans));
      break;
    }
    case Shape::Columns: {
      Spans spans = {{kFewColumns, kFewColumns}, {kSomeColumns, kSomeColumns}};
      // Blocks as narrow as keeps all processors busy, where nothing but the columns does.
      if (const int64_t wide = target_.columnBlock * target_.processors; facts_.rangeOf(lines()).hi == 1) spans.push_back({wide, wide / 2});
      spans.push_back({INT64_MAX, atLeast(x.back(), kManyRows)});
      add(x.back(), std::move(spans));
      add(r.back(), {{kShortColumn, kShortColumn}, {INT64_MAX, atLeast(r.back(), kLongColumn)}});
      break;
    }
    }
    return out;
  }

  /// What else there is of the last dimension.
  Expr lines() const {
    Expr out = 1;
    for (size_t d = 0; d + 1 < kernel_.xRanges.size(); ++d) out = out * kernel_.xRanges[d];
    return out;
  }
  bool hasFewLines() const { return facts_.rangeOf(lines()).hi <= kFewPrograms * target_.processors; }

  /// Many short rows are what costs; of a few any block is good.
  void assumeManyRows(Facts &facts, Expr length) const {
    const std::vector<Expr> &x = kernel_.xRanges;
    for (size_t d = x.size(); d-- > 0;)
      if (!x[d].isConst() && x[d] != length) {
        const Interval all = facts.rangeOf(x[d]);
        return facts.assume(x[d], all, std::clamp(std::max(usualSize(x[d], facts), kManyRows), all.lo, all.hi));
      }
  }

  const Facts &facts_;
  const plan::Kernel &kernel_;
  const LoopTiling &usual_;
  const TileTarget &target_;
};

} // namespace

std::vector<LengthClass> rowClasses(const plan::Plan &plan, Expr rows, const std::vector<int64_t> &bounds) {
  if (rows.isConst()) return {};
  const Facts &facts = plan.program.facts;
  Spans upTo;
  for (int64_t bound : bounds) upTo.push_back({bound, bound});
  upTo.push_back({INT64_MAX, roomySize(rows, facts)});
  std::vector<LengthClass> out = classesAlong({rows, upTo}, {Expr(1), facts, ""});
  if (out.size() < 2) out.clear();
  return out;
}

std::vector<LengthClass> lengthClasses(const plan::Plan &plan, const plan::Kernel &kernel, const LoopTiling &usual, const TileTarget &target) {
  return Classifier(plan, kernel, usual, target).run();
}

} // namespace neso
