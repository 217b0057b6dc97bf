// Names of kernels for perf, which looks for those of code without a file in /tmp/perf-PID.map (tools/perf/Documentation/jit-interface.txt of Linux).
#pragma once
#include "core/common.h"

namespace neso_rt {

/// A kernel's code, as the dynamic loader placed it.
struct placed_code {
  const char *name;
  const void *begin;
};

/// Puts the kernels, all of one shared object, into the process's map. Their code is copied to anonymous memory at the same addresses first: perf
/// asks its map about such memory alone, and looks for the names of mapped files in the files, which code of a package is none of. No kernel may
/// run meanwhile. NESO_FILE_UNWRITABLE.
neso_status write_perf_map(const placed_code *kernels, size_t count);

} // namespace neso_rt
