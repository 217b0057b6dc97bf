// Vectors over GF(2) of at most 64 bits, held in one word: bit i is coordinate i, addition is xor.
//
// A Span is the space spanned by the vectors inserted so far, kept in echelon form, together with how each of its
// vectors is a sum of inserted ones. It answers rank, membership, and one combination that gives a vector:
//
//     Span s;  s.insert(0b011);  s.insert(0b110);  s.insert(0b101);   // the third is the sum of the first two: rank 2
//     s.solve(0b101)  ==  0b011        // vectors 0 and 1; a dependent vector is never used
//     s.solve(0b001)  ==  nothing      // every vector here has an even number of ones
#pragma once
#include <array>
#include <cstdint>
#include <optional>

namespace neso {

class Span {
public:
  /// Inserts vector number `count()` (at most 64 vectors in all). True when it is independent of the earlier ones.
  bool insert(uint64_t vector);
  /// The set of inserted vectors (bit i is vector number i) whose sum is `target`, or nothing when `target` is outside
  /// the span. Only vectors that were independent when inserted occur, so the answer is unique.
  std::optional<uint64_t> solve(uint64_t target) const;
  bool contains(uint64_t vector) const { return solve(vector).has_value(); }
  int rank() const { return rank_; }
  int count() const { return count_; }

private:
  // Row b, if used, is the vector whose leading one is bit b; sums_[b] says which inserted vectors add up to it.
  std::array<uint64_t, 64> rows_{};
  std::array<uint64_t, 64> sums_{};
  int rank_ = 0;
  int count_ = 0;
};

} // namespace neso
