#include "backend/nvidia/chip.h"

namespace neso::nvidia {

namespace {
template <typename... F> constexpr uint32_t features(F... f) { return (static_cast<uint32_t>(f) | ...); }

constexpr uint32_t kAmpere = features(Feature::CpAsync, Feature::LdMatrix, Feature::MmaBf16, Feature::ReduxInt);
constexpr uint32_t kAda = kAmpere | features(Feature::MmaF8, Feature::CvtF8);
constexpr uint32_t kHopper =
    kAda | features(Feature::AtomicBf16, Feature::AtomicVector, Feature::Clusters, Feature::GridDependency, Feature::BulkCopy, Feature::MmaF64);

constexpr Chip kChips[] = {
#define NESO_CHIP(...) {__VA_ARGS__},
#include "backend/nvidia/chips.def"
#undef NESO_CHIP
};
} // namespace

std::span<const Chip> allChips() { return kChips; }

const Chip *findChip(std::string_view arch) {
  for (const Chip &chip : kChips)
    if (chip.arch == arch) return &chip;
  return arch.ends_with('a') ? findChip(arch.substr(0, arch.size() - 1)) : nullptr;
}

const Chip &portable(const Chip &chip) { return chip.own() ? *findChip(chip.arch.substr(0, chip.arch.size() - 1)) : chip; }

} // namespace neso::nvidia
