// What the plan knows of kernels, for the stage triton.
#pragma once
#include <map>
#include <string>

#include "ir/plan/plan.h"
#include "lower/tile_to_triton/tile_to_triton.h"

namespace neso {

/// Names of parameters, grids and arguments of the plan's tile functions.
std::map<std::string, TritonKernel> tritonKernels(const plan::Plan &plan);

} // namespace neso
