// Tile program of scaled dot product attention: one program computes BM query rows of one head over all keys, block by
// block, with the online softmax of Milakov and Gimelshein (2018) as FlashAttention uses it (Dao et al. 2022, algorithm
// 1): no score matrix in memory.
#pragma once
#include "lower/plan_to_tile/emit.h"
#include "lower/tiling/attention.h"

namespace neso {

void emitAttention(KernelContext &k, const Facts &facts, const AttentionTiling &tiling);

} // namespace neso
