// What the simulator keeps of a byte of shared memory, and of products and copies that are under way.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <vector>

namespace neso::nvidia::test {

inline constexpr int kProducts = -3; // as readers: any thread of the groups

/// A byte of shared memory.
struct Byte {
  uint8_t value = 0;
  bool defined = false, atomic = false;
  bool fenced = false; // seen by instructions that read shared memory themselves
  bool dirty = false;  // of something else before, which no fence stands behind
  int open = 0;        // of those, how many may still read it
  int writer = -1, reader = -1;
  int written = -1, read = -1; // epochs
  int copy = -1;               // of the machine that its value comes from
  bool coming = false;         // another one is under way
  int multiplied = 0;          // when the last product by tcgen05 that read it was complete
  std::array<int, 4> products{-1, -1, -1, -1}; // by group, the last one that read it
};
/// A product, or several that were committed together.
struct Product {
  int group;
  std::array<int, 4> left; // times of its warps when it was complete
};
/// Four warps that multiply by wgmma.
struct Group {
  bool fenced = false;
  // Bytes that it may still read: of products that are not committed, and of groups of them, the oldest first.
  std::vector<uint64_t> reads;
  std::deque<std::vector<uint64_t>> committed;
  std::deque<int> products; // of those in `committed`, and of `reads`
  int64_t begun = 0; // groups of products that were committed
};
struct Copy {
  uint64_t to;
  std::vector<uint8_t> data;
};

} // namespace neso::nvidia::test
