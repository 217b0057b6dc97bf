// Scans whose rows are shared by programs that run at the same time: the tile program of loops::LookBack.
#pragma once
#include "lower/plan_to_tile/emit.h"
#include "lower/tiling/sorts.h"

namespace neso {

/// k's kernel is one Scan node with lookBack. Sets grid and warps too.
void emitLookBackScan(KernelContext &k, const Facts &facts, const LookBackTiling &tiling);

} // namespace neso
