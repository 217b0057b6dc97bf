#include "backend/nvidia/chip.h"

namespace neso::nvidia {

namespace {
template <typename... F> constexpr uint32_t features(F... f) { return (static_cast<uint32_t>(f) | ...); }

constexpr uint32_t kAmpere = features(Feature::CpAsync, Feature::LdMatrix, Feature::MmaBf16, Feature::ReduxInt);
constexpr uint32_t kAda = kAmpere | features(Feature::MmaF8, Feature::CvtF8);
constexpr uint32_t kHopper =
    kAda | features(Feature::AtomicBf16, Feature::AtomicVector, Feature::Clusters, Feature::GridDependency);

// Shared memory, registers and threads: "Compute Capabilities" in the CUDA programming guide. One KiB of each block's
// shared memory is the system's own.
constexpr Chip kChips[] = {
    // arch  capability  features  PTX  shared of a block, of an SM  registers  threads  blocks  SMs
    {"sm_80", 80, kAmpere, 74, 163 * 1024, 164 * 1024, 65536, 2048, 32, 108},
    {"sm_86", 86, kAmpere, 74, 99 * 1024, 100 * 1024, 65536, 1536, 16, 84},
    {"sm_89", 89, kAda, 84, 99 * 1024, 100 * 1024, 65536, 1536, 24, 142},
    {"sm_90", 90, kHopper, 84, 227 * 1024, 228 * 1024, 65536, 2048, 32, 132},
    {"sm_100", 100, kHopper, 86, 227 * 1024, 228 * 1024, 65536, 2048, 32, 148},
    {"sm_120", 120, kHopper, 87, 99 * 1024, 100 * 1024, 65536, 1536, 24, 188},
};
} // namespace

std::span<const Chip> allChips() { return kChips; }

const Chip *findChip(std::string_view arch) {
  if (arch.ends_with('a')) arch.remove_suffix(1);
  for (const Chip &chip : kChips)
    if (chip.arch == arch) return &chip;
  return nullptr;
}

} // namespace neso::nvidia
