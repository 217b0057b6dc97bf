// Realize or inline: the one place that decides whether a lazy tensor gets a buffer.
//
// Inlining saves a round trip through memory and costs the computation anew for every consumer. The thresholds are in
// scalar ops and loads per element. The schedule fuses a realized producer into its consumers again where both fit one
// kernel, so realizing is the safe side.
#pragma once
#include "lower/graph_to_loops/tensor.h"

namespace neso::lower {

using loops::kCheapLoads;
using loops::kCheapOps;
/// A single-use value beyond these sizes is realized all the same, so that bodies stay bounded.
inline constexpr int kMaxInlineOps = 96;
inline constexpr int kMaxInlineLoads = 12;
/// concat of more tensors than this is written piece by piece.
inline constexpr int kMaxLazyConcat = 4;

Cost costOf(const loops::Body &body);
/// For a value with this many uses.
bool worthRealizing(const Cost &cost, int uses);

} // namespace neso::lower
