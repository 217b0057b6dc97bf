// What the op families share: functions over Tensors with ATen's meaning. Decompositions are written with these.
//
// Dims may be negative. Functions with several tensors broadcast them as ATen does. All are lazy unless their comment
// says "realizes".
#pragma once
#include <span>

#include "lower/graph_to_loops/lowering.h"

namespace neso::lower {

using Dims = std::vector<int64_t>;
using ScalarFn = std::function<Val(std::span<const Val>)>;

// ---- creation
Tensor full(Lowering &ctx, const Sizes &sizes, DType t, double value);
Tensor fullInt(Lowering &ctx, const Sizes &sizes, DType t, int64_t value);
/// A 0-d tensor from a size expression, a Python number in promotions.
Tensor scalarExpr(Lowering &ctx, Expr e);
Tensor scalarInt(Lowering &ctx, int64_t v);
Tensor scalarFloat(Lowering &ctx, double v);
/// index along `dim` as I64.
Tensor iota(Lowering &ctx, const Sizes &sizes, int64_t dim, DType t = DType::I64);

// ---- dtype
DType resultType(std::span<const Tensor> xs); // ATen's promotion with dimension categories and numbers
Tensor cast(const Tensor &x, DType t);
/// The dtype in which floating point functions of x compute: F32 for integers.
DType floatType(DType t);
Tensor toFloat(const Tensor &x);

// ---- pointwise
Sizes broadcastSizes(std::span<const Tensor> xs);
Tensor broadcastTo(const Tensor &x, const Sizes &sizes);
/// fn over the broadcast elements of xs; each is first cast to computeType(in[k]) (its own type when `in` is empty).
Tensor pointwise(std::span<const Tensor> xs, DType in, DType out, const ScalarFn &fn);
Tensor unary(const Tensor &x, OpKind k);                             // same dtype
Tensor unaryFloat(const Tensor &x, OpKind k);                        // integers become F32
Tensor map(const Tensor &x, const std::function<Val(Val)> &fn);      // same dtype, real
Tensor mapFloat(const Tensor &x, const std::function<Val(Val)> &fn); // integers become F32
Tensor binary(OpKind k, const Tensor &a, const Tensor &b);           // promotes; comparisons give Bool
Tensor add(const Tensor &a, const Tensor &b);
Tensor sub(const Tensor &a, const Tensor &b);
Tensor mul(const Tensor &a, const Tensor &b);
Tensor div(const Tensor &a, const Tensor &b); // true division
Tensor neg(const Tensor &a);
/// The absolute values, which of complex numbers are real.
Tensor lengths(const Tensor &a);
Tensor addNumber(const Tensor &a, double v);
Tensor mulNumber(const Tensor &a, double v);
Tensor where(const Tensor &c, const Tensor &a, const Tensor &b);
Tensor logicalNot(const Tensor &x);

// ---- views
using IndexMap = std::function<Index(const Index &)>;
/// A tensor of `sizes` whose element at i is x's at map(i).
Tensor remap(const Tensor &x, Sizes sizes, IndexMap map);
Tensor permute(const Tensor &x, const std::vector<int> &dims);
Tensor transpose(const Tensor &x, int64_t a, int64_t b);
Tensor reshape(const Tensor &x, const Sizes &sizes);
Tensor flatten(const Tensor &x);
Expr vectorsOf(const Tensor &x); // how many vectors along its last dim there are
Tensor unsqueeze(const Tensor &x, int64_t dim);
Tensor squeeze(const Tensor &x, int64_t dim); // unconditionally
Tensor select(const Tensor &x, int64_t dim, Expr index);
Tensor slice(const Tensor &x, int64_t dim, Expr start, Expr length, Expr step = 1);
Tensor flip(const Tensor &x, const Dims &dims);
Tensor repeat(const Tensor &x, const Sizes &times);
/// Constant padding; before/after per dim (may be negative: crops). lazy.
Tensor pad(const Tensor &x, const Sizes &before, const Sizes &after, double value);
Tensor concat(const Tensors &xs, int64_t dim); // may realize

// ---- reductions (realize their result; the type in brackets is that of the result)
/// dims empty means all of them when `all`.
Dims wrapDims(const Dims &dims, int64_t rank);
Tensor reduceDims(loops::ReduceKind kind, const Tensor &x, Dims dims, bool keepdim, DType acc);
Tensor sum(const Tensor &x, const Dims &dims, bool keepdim, DType out);
Tensor mean(const Tensor &x, const Dims &dims, bool keepdim, DType out);
Tensor amax(const Tensor &x, const Dims &dims, bool keepdim);
Tensor amin(const Tensor &x, const Dims &dims, bool keepdim);
Tensor argExtreme(bool max, const Tensor &x, std::optional<int64_t> dim, bool keepdim);
struct MeanVar {
  Tensor mean, m2;
  Expr count;
};
/// Mean and sum of squared deviations over dims, in computeType; keepdim.
MeanVar meanVar(const Tensor &x, const Dims &dims);
Expr countOf(const Tensor &x, const Dims &dims);
/// x[..., 0] op x[..., 1] op … up to each element along dim, for what the nodes of scans do not know: in as many nodes as the size has bits.
/// Realizes.
Tensor scanByDoubling(const Tensor &x, int64_t dim, const std::function<Tensor(const Tensor &, const Tensor &)> &op);
/// The product of complex numbers over dims.
Tensor complexProduct(const Tensor &x, const Dims &dims, bool keepdim);
/// A 0-d tensor for a size expression in a float dtype.
Tensor exprAs(Lowering &ctx, Expr e, DType t);
/// Vector norm of order p; out may be the type of the result.
Tensor vectorNorm(const Tensor &x, double p, const Dims &dims, bool keepdim, DType out);
/// The norm over all dims but one, which are kept as 1 (at::norm_except_dim): over all of them for `keep` -1, and over none where there is but one.
Tensor normExceptDim(const Tensor &x, double p, int64_t keep, DType out);
Tensor logsumexp(const Tensor &x, const Dims &dims); // keepdim
Tensor softmax(const Tensor &x, int64_t dim, DType out, bool log);
/// Over the last dim; w and b may be invalid.
Tensor layerNorm(const Tensor &x, const Tensor &w, const Tensor &b, double eps);

// ---- gather and scatter
/// x in a buffer, or a plain view of one: what is read at positions that the data decides.
Tensor source(const Tensor &x);
/// As ATen's gather and index_select; negative indices count from the end, others out of range are run-time errors.
Tensor gather(const Tensor &x, int64_t dim, const Tensor &index);
Tensor indexSelect(const Tensor &x, int64_t dim, const Tensor &index);

// ---- contractions (realize their result)
Tensor matmul2(const Tensor &a, const Tensor &b, DType out,
               const EpilogueFn &epilogue = {}); // [..., M, K] x [..., K, N], equal batch dims
Tensor matmul(const Tensor &a, const Tensor &b);
/// What operators that are for 8-bit floats multiply: these as they are, or two kinds of them in 16 bits, where every one is exact. PyTorch says of those
/// operators alone that sums of products may keep fewer bits than an f32 has: products of other operators are never told so.
DType scaledProductType(DType a, DType b);
Tensor linear(const Tensor &x, const Tensor &w, const Tensor &bias /* may be invalid */);

} // namespace neso::lower
