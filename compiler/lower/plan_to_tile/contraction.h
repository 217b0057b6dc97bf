// Tile programs of contractions: out[b, m, n] = sum over k of A[b, m, k] * B[b, k, n], where m, n, k and b each stand
// for one or several loop dimensions. Matrix products, convolutions (as implicit matrix products, no im2col buffer) and
// einsums all come here.
//
// Which dimension is which is read off the bodies: one that only the left operand uses is m, only the right one n, both
// b, the reduction ones k. A program computes one [BM, BN] block of the (flattened) m and n spaces, with the blocks of
// n outermost, so that a thread streams each block of B once from memory, or those of m (DotTiling::rowsFirst).
#pragma once
#include "lower/plan_to_tile/emit.h"
#include "lower/tiling/contraction.h"

namespace neso {

void emitContraction(KernelContext &k, const Facts &facts, const DotTiling &c);

} // namespace neso
