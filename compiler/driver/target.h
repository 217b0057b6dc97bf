// What --target and --arch mean for CPU code.
#pragma once
#include <string>
#include <vector>

#include "backend/cpu/compile.h"
#include "base/diagnostics.h"

namespace neso {

/// The CPU levels of `archs` ("native", "x86-64-v3", …), worst first, each once. TargetUnknown unless `target` is "cpu"; ArchUnknown.
Result<std::vector<cpu::CpuLevel>> parseCpuLevels(const std::string &target, const std::vector<std::string> &archs);

} // namespace neso
