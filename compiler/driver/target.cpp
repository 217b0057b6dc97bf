#include "driver/target.h"

#include "base/diagnostics/backend.h"

#include <algorithm>

namespace neso {

schedule::ScheduleOptions Targets::scheduleOptions() const {
  schedule::ScheduleOptions options;
  if (!best().caps.threadBlocks) return options;
  options.split = schedule::SplitRule::manyProcessors(best().sheet);
  options.packedBytes = best().sheet.packedBytes, options.packedBuffers = best().sheet.packedBuffers;
  return options;
}

Result<Targets> parseTargets(const std::string &kind, const std::vector<std::string> &archs) {
  const Backend *backend = kind.empty() ? backends().front() : findBackend(kind);
  if (!backend) return fail(diag::TargetUnknown, {}, kind, backendKinds());
  Targets out;
  for (const std::string &arch : archs) {
    const bool native = arch == kNativeArch;
    if (const size_t before = out.all.size(); arch == kPortableArch) {
      for (const Target &t : backend->targets())
        if (t.portable) out.all.push_back(&t);
      if (out.all.size() > before) continue;
    }
    const Target *target = native ? backend->native() : backend->find(arch);
    if (!target && native) return fail(diag::NativeUnknown, {}, kind, "the compiler sees no devices", backend->known());
    if (!target) return fail(diag::ArchUnknown, {}, arch, kind, fmt::format("{}, {}", kNativeArch, backend->known()));
    out.all.push_back(target);
  }
  if (archs.empty()) out.all.push_back(&backend->usual());
  // Rows of one table stand in order.
  std::sort(out.all.begin(), out.all.end());
  out.all.erase(std::unique(out.all.begin(), out.all.end()), out.all.end());
  return out;
}

} // namespace neso
