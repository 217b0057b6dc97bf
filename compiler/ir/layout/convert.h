// What it takes to bring a tensor from one distributed layout (gpu.h) into another, and how wide and how free of bank
// conflicts its accesses to memory are. Answers only; the back end writes the instructions.
//
//     Conversion c = conversion(blockedLayout(…), mmaOperandA(…));
//     c.move                 // Shared: some element comes from another warp
//     c.fetch                // wanted (register, lane, warp, block) -> the place that has the element now
//     shufflePlan(c)         // for Move::Shuffle: which lane gives which register in which round
//     cheapestShared(a, b, 16)  // for Move::Shared: order and swizzle of the buffer, widths of stores and loads,
//     wavefronts
//
// Why `move` is exact: fetch keeps the index of as many of (block, warp, lane, register) as any conversion can, see
// LinearLayout::invertAndCompose. Tested against enumeration of all places.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "ir/layout/gpu.h"
#include "ir/layout/layout.h"

namespace neso {

/// How far the farthest element comes from, and so by what means.
enum class Move : uint8_t {
  /// Every place of the wanted layout has its element already (the source may have further registers, which are
  /// dropped).
  None,
  /// From other registers of the same thread.
  Registers,
  /// From other lanes of the same warp: shuffles, when shufflePlan has an answer.
  Shuffle,
  /// From other warps of the block: shared memory.
  Shared,
  /// From other blocks of the cluster: distributed shared memory.
  Cluster,
};
const char *name(Move move);

struct Conversion {
  Move move;
  /// wanted (register, lane, warp, block) -> source (register, lane, warp, block).
  LinearLayout fetch;
};
/// Both layouts have the in-dims of gpu.h and tensors of one shape; `source` holds every element.
Conversion conversion(const LinearLayout &source, const LinearLayout &wanted);

/// A conversion in the warp by one shuffle a round, and as many rounds as the wanted layout has registers. In round t
/// each lane gives its register give(t, lane, warp, block), reads what lane from(t, lane, warp, block) gave, and keeps
/// it as wanted register put(t, lane). All three are linear, with in-dims round, lane, warp, block: what depends on the
/// lane is a chain of selects, one level a bit.
struct ShufflePlan {
  LinearLayout give;
  LinearLayout from;
  LinearLayout put;
};
inline constexpr const char *kRound = "round";
/// Nothing when some lane would have to give two registers at once, or the move is beyond a warp: then use shared
/// memory.
std::optional<ShufflePlan> shufflePlan(const Conversion &conversion);

/// One access of each thread to memory: `width` elements at once, a power of two. Register bit registerBits[i] walks
/// 2^i elements.
struct Access {
  int64_t width = 1;
  std::vector<int> registerBits;
};
/// The widest access of at most `maxElements` to neighbours of `out`, aligned to its width. map: (register, …) -> (out,
/// …). Registers may be in any order. For a global access map is the tensor's layout, `out` the dim whose addresses
/// run, and maxElements the least of the run of addresses, their alignment, the run of equal mask values (all in
/// elements) and 128 / bits.
Access widestAccess(const LinearLayout &map, std::string_view out, int64_t maxElements);

/// Traffic of all registers of one warp through shared memory of 32 banks of 4 bytes, each wavefront serving up to 128
/// bytes. map: (register, lane, …) -> offset in elements.
struct SharedTraffic {
  Access access;
  int64_t instructions = 0;
  int64_t wavefronts = 0;
};
SharedTraffic sharedTraffic(const LinearLayout &map, int elementBits);

/// A shared buffer for a conversion: of the layouts of sharedLayout() over all orders (rank <= 3, else row-major) the
/// one with the fewest wavefronts in store and load together, then the fewest instructions, then the least swizzle. Not
/// of all thinkable buffers: padding and swizzles of several dims are not tried.
struct SharedPlan {
  std::vector<int> order;
  Swizzle swizzle;
  LinearLayout buffer;
  SharedTraffic store;
  SharedTraffic load;
};
/// Layouts without a split among blocks. elementBits: 8, 16, 32, 64 or 128.
SharedPlan cheapestShared(const LinearLayout &source, const LinearLayout &wanted, int elementBits);

} // namespace neso
