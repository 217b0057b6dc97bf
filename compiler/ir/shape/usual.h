// How large a size that nobody knows is likely to be: for costs, orders and block sizes, never for what is computed.
//
// A model that was exported with dynamic sizes says with which sizes it was exported: the reader puts them into Facts as
// hints, and a plan is made for them. So it pays to export with sizes like those that will come. Where there is no hint
// (sizes that come from data) kUsualSize stands for it. Every stage asks here, so that a model is fused, tiled and
// placed for one and the same size.
#pragma once
#include "ir/shape/expr.h"

namespace neso {

/// A power of two between a small batch and a long row. No measurement stands behind it: what a model says of itself
/// comes first.
inline constexpr int64_t kUsualSize = 256;

/// Hints up to this one say nothing. An export takes 0 and 1 for fixed sizes, so that 2 is what people write for a size
/// that may be anything; a plan for batches of two is a bad one for all others.
inline constexpr int64_t kPlaceholder = 2;

/// The symbol's hint, or kUsualSize, within its range. At least 2 where the range allows it: at size 1 nothing tells an
/// outer dimension from an inner one.
int64_t usualSize(Symbol symbol, const Facts &facts);
/// e with each symbol at its usual size; kUsualSize where that has no value.
int64_t usualSize(Expr e, const Facts &facts);
/// Rows or columns that blocks of products are made for, and by which it is decided who computes them: of an open number many, even where an example had
/// few. What is planned for few rows is slow on many: a product with 4096 x 4096 weights, exported with 32 rows, took four times as long at 4096 rows as one
/// exported with those, which cuBLASLt computes, and which took as long at 32 rows as the first (bf16, H200). Where no library computes a product, few rows have a
/// kernel of their own (lower/tiling/lengths.h).
int64_t roomySize(Expr e, const Facts &facts);
/// e with each symbol at `size`, or the nearest value of its range: how something grows.
int64_t valueAt(Expr e, const Facts &facts, int64_t size);

} // namespace neso
