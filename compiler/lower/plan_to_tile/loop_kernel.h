// Tile programs of kernels without dots: pointwise, reduction and scan nodes over one space.
#pragma once
#include "lower/plan_to_tile/emit.h"
#include "lower/plan_to_tile/plan_to_tile.h"

namespace neso {

/// Emits the body of the kernel's function at the builder's position.
void emitLoopKernel(KernelContext &k, const Facts &facts, const TileTarget &target);

} // namespace neso
