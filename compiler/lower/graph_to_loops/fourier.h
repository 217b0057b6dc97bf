// Fast Fourier transforms of constant length: n log n work, memory in proportion to n.
//
// A length whose prime factors are at most 13 goes by stages (Stockham's form: no reordering between them). Before a
// stage of radix r the row holds, for each k below L and each j below n / L, the k-th coefficient of the transform of the
// L elements j, j + n / L, j + 2 n / L, …, at j L + k; a stage takes r of them and gives r, a node of the loops that
// reads and writes every element once. Any other length becomes a convolution of a power of two (Bluestein 1970).
// Roots of unity are constants of the program, computed in extended precision.
#pragma once
#include "lower/graph_to_loops/tensor_ops.h"

namespace neso::lower {

/// Whether a length has a fast transform: it is constant, and neither so short nor so long that it does not pay.
bool hasFastTransform(Expr length);

/// The parts of one element of what is transformed; `lead` is the index of its row.
struct ComplexVal {
  Val re, im;
};
using ComplexFn = std::function<ComplexVal(BodyBuilder &, const Index &lead, Expr element)>;

/// Rows of transformed numbers as two real tensors [lead..., n].
struct Spectrum {
  Tensor re, im;
  /// Both, where they are the parts of one complex tensor; else invalid.
  Tensor whole;
};

/// Where rows lie in memory.
struct RowLayout {
  /// So many of the last lead dims lie inside of a row's elements: [lead..., n, lead...]. What runs side by side is then
  /// many rows rather than neighbours of one.
  size_t inside = 0;
  /// Both parts of a number lie side by side, as in a complex tensor.
  bool interleaved = false;
};

/// sum over j of x[j] exp(∓2 pi i j k / n) for all k: minus when forward. `t` (F32 or F64) is what it computes in.
Spectrum transformRows(Lowering &ctx, DType t, const Sizes &lead, int64_t n, bool forward, const ComplexFn &x,
                       RowLayout layout = {});

/// Room for rows [lead..., n].
Spectrum roomFor(Lowering &ctx, DType t, const Sizes &lead, int64_t n, RowLayout layout);

/// exp(-2 pi i k q / n) for k below `count` and each of `factors`, as two constants [factors, count]; forward false: its
/// conjugate.
Spectrum rootsOfUnity(Lowering &ctx, DType t, int64_t n, int64_t count, const std::vector<int64_t> &factors,
                      bool forward);

} // namespace neso::lower
