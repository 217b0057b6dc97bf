// The end of a compilation: a package in memory, or files.
#pragma once
#include "base/diagnostics.h"
#include "driver/compile.h"
#include "package/package.h"

namespace neso {

/// Fills out.package, or writes what options.output and options.weights ask for.
Status writeOutput(const PackageContents &contents, const CompileOptions &options, Compilation &out);

} // namespace neso
