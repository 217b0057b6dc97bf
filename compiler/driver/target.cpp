#include "driver/target.h"

#include <algorithm>

namespace neso {

Result<std::vector<cpu::CpuLevel>> parseCpuLevels(const std::string &target, const std::vector<std::string> &archs) {
  if (target != "cpu") return fail(Diag::TargetUnknown, {}, target);
  std::vector<cpu::CpuLevel> levels;
  for (const std::string &arch : archs) {
    std::optional<cpu::CpuLevel> level = cpu::parseLevel(arch);
    if (!level) return fail(Diag::ArchUnknown, {}, arch, target);
    levels.push_back(*level);
  }
  std::sort(levels.begin(), levels.end());
  levels.erase(std::unique(levels.begin(), levels.end()), levels.end());
  return levels;
}

} // namespace neso
