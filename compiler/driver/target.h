// What --target and --arch mean: the machines that code is made for.
#pragma once
#include <string>
#include <vector>

#include "backend/cpu/compile.h"
#include "backend/nvidia/compile.h"
#include "base/diagnostics.h"
#include "lower/plan_to_tile/plan_to_tile.h"
#include "lower/schedule/schedule.h"

namespace neso {

/// One kind of machine, and those of it that the package serves: worst first, each once.
struct Targets {
  std::vector<cpu::CpuLevel> cpu;
  std::vector<const nvidia::Chip *> chips;

  bool gpu() const { return !chips.empty(); }
  /// The best of them: "sm_90", "x86-64-v4".
  std::string machine() const;
  /// What the steps before the backend ask of the target. The blocks of kernels are the same for all chips of one
  /// package.
  TileTarget tileTarget() const;
  schedule::ScheduleOptions scheduleOptions() const;
};

/// `target` is "cpu" or "cuda". `archs`: "native", "x86-64-v3", … or "sm_80", "sm_90", …; "native" for a GPU is sm_90,
/// since none need be at hand. TargetUnknown, ArchUnknown.
Result<Targets> parseTargets(const std::string &target, const std::vector<std::string> &archs);

/// A line for each function that the assembler could not keep in registers.
std::vector<Diagnostic> spillWarnings(const std::vector<nvidia::FunctionUsage> &usage, std::string_view arch);

} // namespace neso
