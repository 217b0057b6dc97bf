// Memory for sorts by digits.
#include <limits>

#include "ir/loops/build.h"
#include "lower/schedule/split.h"

namespace neso::schedule {

using namespace loops;

void giveSortsScratch(Program &program) {
  for (Node &n : program.nodes) {
    auto *sort = n.as<SortSpec>();
    if (!sort) continue;
    const Expr length = n.reduceRanges[0], rows = product(n.ranges),
               longest = int64_t{std::numeric_limits<int32_t>::max()};
    if (!program.facts.provablyLessEqual(length, longest)) program.guards.push_back(le(length, longest));
    DType key = sort->body.ops[static_cast<size_t>(sort->key)].dtype;
    if (isFloat(key) && itemSize(key) == 1) key = DType::F32;
    SortScratch s;
    if (sort->place >= 0) {
      s.words = addTemp(program, n.name + "_words", itemSize(key) == 8 ? DType::U64 : DType::U32, rows * length * 2);
      sort->scratch = s;
      continue;
    }
    s.words = addTemp(program, n.name + "_words", DType::U64, rows * length * 2);
    if (itemSize(key) == 8) s.positions = addTemp(program, n.name + "_positions", DType::U32, rows * length * 2);
    s.counts = addTemp(program, n.name + "_counts", DType::U32,
                       rows * Expr(SortScratch::digitsOf(itemSize(key)) * SortScratch::kBuckets));
    sort->scratch = s;
  }
}

} // namespace neso::schedule
