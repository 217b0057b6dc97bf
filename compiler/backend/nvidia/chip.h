// What each NVIDIA chip has: the table that instruction choice and limits are read from.
//
//     const Chip *chip = findChip("sm_90");   // nullptr: unknown
//     if (chip->has(Feature::CpAsync)) …
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

namespace neso::nvidia {

/// One bit a feature that some chips lack.
enum class Feature : uint32_t {
  CpAsync = 1u << 0,        // cp.async (sm_80)
  LdMatrix = 1u << 1,       // ldmatrix (sm_75)
  MmaBf16 = 1u << 2,        // mma.sync m16n8k16 bf16, m16n8k8 tf32 (sm_80)
  MmaF8 = 1u << 3,          // mma.sync m16n8k32 e4m3, e5m2 (sm_89)
  CvtF8 = 1u << 4,          // cvt.rn.satfinite.e4m3x2.f32 and back (sm_89)
  ReduxInt = 1u << 5,       // redux.sync on i32 (sm_80)
  AtomicBf16 = 1u << 6,     // atom.add.noftz.bf16 (sm_90)
  AtomicVector = 1u << 7,   // red.global.add.v4.f32 (sm_90)
  Clusters = 1u << 8,       // thread block clusters (sm_90)
  GridDependency = 1u << 9, // griddepcontrol: a launch that begins before the one before it ends (sm_90)
  Wgmma = 1u << 10,         // wgmma.mma_async (sm_90a alone)
  MmaF64 = 1u << 12,        // mma.sync m16n8k8 f64 (sm_90); m8n8k4 comes with MmaBf16
  BulkCopy = 1u << 11,      // cp.async.bulk.tensor, mbarriers that count its bytes (sm_90)
  Tcgen05 = 1u << 13,       // tcgen05.mma, sums in tensor memory (sm_100a alone)
};

struct Chip {
  std::string_view arch; // "sm_90"
  int capability;        // 90
  uint32_t features;
  int ptxVersion;     // least PTX ISA version times ten that has it and its features: 84 for sm_90
  int sharedPerBlock; // bytes of shared memory that one block may opt in to
  int sharedPerSm;    // bytes
  int registersPerSm; // of 32 bits
  int threadsPerSm, blocksPerSm;
  int sms; // of the largest product: for cost models only
  /// Its code runs on this very chip and on no later one: "sm_90a" beside "sm_90".
  bool own() const { return arch.ends_with('a'); }
  /// Registers that each thread may have where so many blocks of so many threads stand on a multiprocessor, in the portions that they come in.
  int registersOfThread(int threads, int blocks) const { return registersPerSm / blocks / threads / 8 * 8; }
  bool has(Feature f) const { return features & static_cast<uint32_t>(f); }
  /// Products that read their operands in shared memory by themselves, in panels (panelledLayout).
  bool readsPanels() const { return has(Feature::Wgmma) || has(Feature::Tcgen05); }
  /// Nothing of ours has run on it yet: what its own instructions compute is known from their description and the simulator alone.
  bool untried() const { return has(Feature::Tcgen05); }
};

/// What the system keeps of each block's shared memory, in bytes.
inline constexpr int kSharedOfSystem = 1024;

/// The rows of chips.def; oldest first.
std::span<const Chip> allChips();
/// By arch: "sm_90"; where the table has no row for a chip's own instructions, a suffix "a" is ignored. nullptr: unknown.
const Chip *findChip(std::string_view arch);
/// The chip without instructions that later ones lack: sm_90 of sm_90a.
const Chip &portable(const Chip &chip);

} // namespace neso::nvidia
