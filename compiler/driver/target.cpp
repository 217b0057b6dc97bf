#include "driver/target.h"

#include "base/diagnostics/backend.h"

#include <algorithm>

namespace neso {

namespace {

template <typename T> void sortUnique(std::vector<T> &v) {
  std::sort(v.begin(), v.end());
  v.erase(std::unique(v.begin(), v.end()), v.end());
}

Result<Targets> parseChips(const std::vector<std::string> &archs) {
  Targets out;
  for (const std::string &arch : archs) {
    const nvidia::Chip *chip = nvidia::findChip(arch == "native" ? "sm_90" : arch);
    if (!chip) {
      std::string known;
      for (const nvidia::Chip &c : nvidia::allChips()) known += (known.empty() ? "" : ", ") + std::string(c.arch);
      return fail(diag::ArchUnknown, {}, arch, "cuda", known);
    }
    out.chips.push_back(chip);
  }
  // The table of chips is in order of age.
  sortUnique(out.chips);
  return out;
}

} // namespace

std::string Targets::machine() const {
  return gpu() ? std::string(chips.back()->arch) : std::string(cpu::name(cpu.back()));
}

TileTarget Targets::tileTarget() const {
  if (!gpu()) return {};
  return gpuTileTarget(chips.back()->sms);
}

schedule::ScheduleOptions Targets::scheduleOptions() const {
  schedule::ScheduleOptions options;
  if (gpu())
    options.split = schedule::SplitRule::manyProcessors(chips.back()->sms), options.packedBytes = int64_t{2} << 20;
  return options;
}

std::vector<Diagnostic> spillWarnings(const std::vector<nvidia::FunctionUsage> &usage, std::string_view arch) {
  std::vector<Diagnostic> out;
  for (const nvidia::FunctionUsage &u : usage)
    if (u.spillBytes > 0)
      out.push_back(makeDiag(diag::NvidiaSpills, {}, u.name, u.spillBytes, u.registers, std::string(arch)));
  return out;
}

Result<Targets> parseTargets(const std::string &target, const std::vector<std::string> &archs) {
  if (target == "cuda") return parseChips(archs);
  if (target != "cpu") return fail(diag::TargetUnknown, {}, target);
  Targets out;
  for (const std::string &arch : archs) {
    std::optional<cpu::CpuLevel> level = cpu::parseLevel(arch);
    if (!level)
      return fail(diag::ArchUnknown, {}, arch, target, "native, x86-64-v3, x86-64-v4, x86-64-v4+bf16 or x86-64-v4+amx");
    out.cpu.push_back(*level);
  }
  sortUnique(out.cpu);
  return out;
}

} // namespace neso
