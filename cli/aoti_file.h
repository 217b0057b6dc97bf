// What `neso compile --format aoti` writes.
#pragma once
#include <string>

#include "base/diagnostics.h"
#include "driver/compile.h"

namespace neso::cli {

/// The archive for PyTorch's loader of a package that was compiled with these options. library: a path of libneso_aoti.so; empty: the one
/// that was built beside this program.
Result<std::string> asAotiArchive(const std::string &package, const CompileOptions &options, const std::string &library);

} // namespace neso::cli
