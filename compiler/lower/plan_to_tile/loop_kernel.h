// Tile programs of kernels without dots: pointwise, reduction and scan nodes over one space.
#pragma once
#include "lower/plan_to_tile/emit.h"
#include "lower/tiling/loops.h"

namespace neso {

/// Emits the body of the kernel's function at the builder's position.
void emitLoopKernel(KernelContext &k, const Facts &facts, const LoopTiling &tiling);

} // namespace neso
