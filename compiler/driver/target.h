// What --target and --arch mean: the machines that code is made for.
#pragma once
#include <string>
#include <vector>

#include "backend/target.h"
#include "base/diagnostics.h"
#include "lower/schedule/schedule.h"
#include "lower/tiling/target.h"

namespace neso {

/// Machines of one back end that a package serves: worst first, each once.
struct Targets {
  std::vector<const Target *> all;

  /// What the steps before the back end ask is asked of the best: the blocks of kernels are the same for all of one
  /// package.
  const Target &best() const { return *all.back(); }
  const Backend &backend() const { return *best().backend; }
  /// "sm_90", "x86-64-v4".
  std::string machine() const { return std::string(best().name); }
  schedule::ScheduleOptions scheduleOptions() const;
};

/// `kind` is a back end's ("cpu"; empty: the first one's), `archs` are its targets' names, kNativeArch or kPortableArch; none: its usual
/// one. TargetUnknown, ArchUnknown; NativeUnknown where only a device knows, whom the caller must ask.
Result<Targets> parseTargets(const std::string &kind, const std::vector<std::string> &archs);

} // namespace neso
