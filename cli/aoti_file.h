// What `neso compile --format aoti` writes.
#pragma once
#include <string>

#include "base/diagnostics.h"
#include "driver/compile.h"

namespace neso::cli {

/// The archive for PyTorch's loader of what was compiled with these options, `forTorch` among them. library: a path of libneso_aoti.so; empty: the one
/// that was built beside this program.
Result<std::string> asAotiArchive(const Compilation &compiled, const CompileOptions &options, const std::string &library);

} // namespace neso::cli
