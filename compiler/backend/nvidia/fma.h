// Products by multiply-add from shared memory: any type, any shape.
#pragma once
#include "backend/nvidia/dot.h"

namespace neso::nvidia {

/// Layout of the sums [batch, M, N] or [M, N].
LinearLayout fmaAccumulator(int64_t batch, int64_t m, int64_t n, int warps, bool withBatch);
/// emitDot for DotKind::Fma. Sums of 16-bit floats are kept in f32; f32 and f64 by fused multiply-add in order of K.
Tile emitFmaDot(BlockContext &block, const DotPlan &plan, const DotOperand &a, const DotOperand &b, const Tile &c);

} // namespace neso::nvidia
