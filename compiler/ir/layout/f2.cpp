#include "ir/layout/f2.h"

#include <bit>

#include "base/diagnostics.h"

namespace neso {

bool Span::insert(uint64_t vector) {
  NESO_CHECK(count_ < 64, "a span takes at most 64 vectors");
  uint64_t sum = uint64_t(1) << count_++;
  while (vector) {
    int lead = 63 - std::countl_zero(vector);
    if (!rows_[lead]) {
      rows_[lead] = vector;
      sums_[lead] = sum;
      ++rank_;
      return true;
    }
    vector ^= rows_[lead];
    sum ^= sums_[lead];
  }
  return false;
}

std::optional<uint64_t> Span::solve(uint64_t target) const {
  uint64_t sum = 0;
  while (target) {
    int lead = 63 - std::countl_zero(target);
    if (!rows_[lead]) return std::nullopt;
    target ^= rows_[lead];
    sum ^= sums_[lead];
  }
  return sum;
}

} // namespace neso
