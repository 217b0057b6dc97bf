// `neso kernel compile --header`: a C header for callers of a kernel package.
#pragma once
#include <string>

#include "driver/kernel.h"

namespace neso::cli {

/// A function NAME_launch(context, grid, …) with a typed argument for each parameter, and NAME_BLOCK for each compile-time number; with
/// several configs also NAME_launch_config(context, config, grid, …). grid: the rule that the package has; empty: none.
std::string kernelHeader(const Kernel &kernel, const std::string &grid);

} // namespace neso::cli
