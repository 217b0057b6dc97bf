// `neso kernel compile --header`: a C header for callers of a kernel package.
#pragma once
#include <string>

#include "driver/kernel.h"

namespace neso::cli {

/// A function NAME_launch(context, grid, …) with a typed argument for each parameter, and NAME_BLOCK for each compile-time number.
std::string kernelHeader(const Kernel &kernel);

} // namespace neso::cli
