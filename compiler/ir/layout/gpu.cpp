#include "ir/layout/gpu.h"

#include <algorithm>

#include "base/diagnostics.h"

namespace neso {

namespace {

/// dim{rank-1}, …, dim0.
std::vector<std::string> standardOuts(int rank) {
  std::vector<std::string> names;
  for (int i = rank - 1; i >= 0; --i) names.push_back(dimName(i));
  return names;
}

void checkOrder(const std::vector<int> &order, size_t rank) {
  std::vector<int> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  bool permutation = sorted.size() == rank;
  for (size_t i = 0; permutation && i < rank; ++i) permutation = sorted[i] == int(i);
  NESO_CHECK(permutation, "an order must name every dim of the tensor once");
}

/// Identity from one in-dim to several out-dims, the first of `order` fastest.
LinearLayout brick(const char *in, const Sizes &sizes, const std::vector<int> &order) {
  NESO_CHECK(sizes.size() == order.size(), "a layout gives one size a dim");
  LinearLayout result;
  for (int dim : order) result *= LinearLayout::identity1D(sizes[dim], in, dimName(dim));
  return result;
}

/// All four in-dims in order, the out-dims of a tensor in order.
LinearLayout standard(LinearLayout layout, int rank) {
  for (const char *in : {kRegister, kLane, kWarp, kBlock}) layout = layout.expandIn(in);
  for (const std::string &out : standardOuts(rank)) layout = layout.expandOut(out);
  return layout.transposeIns({kRegister, kLane, kWarp, kBlock}).transposeOuts(standardOuts(rank));
}

/// `tile` wrapped or repeated in registers, in `order`, to have `shape`.
LinearLayout fit(LinearLayout tile, const Sizes &shape, const std::vector<int> &order) {
  for (int dim : order)
    if (tile.outSize(dimName(dim)) > shape[dim]) tile = tile.resizeOut(dimName(dim), shape[dim]);
  tile = tile.removeZeroBases(kRegister);
  for (int dim : order) {
    int64_t repeats = shape[dim] / tile.outSize(dimName(dim));
    if (repeats > 1) tile *= LinearLayout::identity1D(repeats, kRegister, dimName(dim));
  }
  return standard(tile, int(shape.size()));
}

void checkDot(const Sizes &shape, const Sizes &warps, int64_t rows, int64_t columns) {
  NESO_CHECK(shape.size() == 2 && warps.size() == 2, "mma layouts are of matrices");
  NESO_CHECK(shape[0] >= rows && shape[1] >= columns, "the matrix is smaller than the mma instruction");
}

} // namespace

LinearLayout blockedLayout(const Sizes &shape, const Blocked &b) {
  checkOrder(b.order, shape.size());
  Sizes blocks = b.blocksPerCluster.empty() ? Sizes(shape.size(), 1) : b.blocksPerCluster;
  NESO_CHECK(blocks.size() == shape.size(), "a layout gives one size a dim");
  Sizes part;
  for (size_t i = 0; i < shape.size(); ++i) part.push_back(std::max<int64_t>(shape[i] / blocks[i], 1));
  LinearLayout tile = brick(kRegister, b.sizePerThread, b.order) * brick(kLane, b.threadsPerWarp, b.order) *
                      brick(kWarp, b.warpsPerBlock, b.order);
  return fit(fit(tile, part, b.order) * brick(kBlock, blocks, b.order), shape, b.order);
}

LinearLayout sliceLayout(const LinearLayout &parent, int axis) {
  int rank = int(parent.outs().size());
  NESO_CHECK(axis >= 0 && axis < rank, "the tensor has no such axis");
  LinearLayout rest = parent.resizeOut(dimName(axis), 1).squeezeOut(dimName(axis)).removeZeroBases(kRegister);
  for (int i = axis + 1; i < rank; ++i) rest = rest.renameOut(dimName(i), dimName(i - 1));
  return rest;
}

LinearLayout mmaAccumulator(const Sizes &shape, const Sizes &warps) {
  checkDot(shape, warps, 16, 8);
  LinearLayout tile = LinearLayout::identity1D(2, kRegister, "dim1") * LinearLayout::identity1D(4, kLane, "dim1") *
                      LinearLayout::identity1D(8, kLane, "dim0") * LinearLayout::identity1D(2, kRegister, "dim0");
  return fit(tile * brick(kWarp, warps, {1, 0}), shape, {1, 0});
}

LinearLayout mmaOperandA(const Sizes &shape, const Sizes &warps, int elementBits) {
  checkDot(shape, warps, 16, 256 / elementBits);
  LinearLayout tile = LinearLayout::identity1D(32 / elementBits, kRegister, "dim1") *
                      LinearLayout::identity1D(4, kLane, "dim1") * LinearLayout::identity1D(8, kLane, "dim0") *
                      LinearLayout::identity1D(2, kRegister, "dim0") * LinearLayout::identity1D(2, kRegister, "dim1");
  LinearLayout split =
      LinearLayout::zeros1D(warps[1], kWarp, "dim1") * LinearLayout::identity1D(warps[0], kWarp, "dim0");
  return fit(tile * split, shape, {1, 0});
}

LinearLayout mmaOperandB(const Sizes &shape, const Sizes &warps, int elementBits) {
  checkDot(shape, warps, 256 / elementBits, 8);
  LinearLayout tile = LinearLayout::identity1D(32 / elementBits, kRegister, "dim0") *
                      LinearLayout::identity1D(4, kLane, "dim0") * LinearLayout::identity1D(8, kLane, "dim1") *
                      LinearLayout::identity1D(2, kRegister, "dim0");
  LinearLayout split =
      LinearLayout::identity1D(warps[1], kWarp, "dim1") * LinearLayout::zeros1D(warps[0], kWarp, "dim0");
  return fit(tile * split, shape, {0, 1});
}

LinearLayout warpGroupAccumulator(const Sizes &shape, const Sizes &groups) {
  checkDot(shape, groups, 64 * groups[0], 8 * groups[1]);
  LinearLayout tile = LinearLayout::identity1D(2, kRegister, "dim1") * LinearLayout::identity1D(4, kLane, "dim1") *
                      LinearLayout::identity1D(8, kLane, "dim0") * LinearLayout::identity1D(2, kRegister, "dim0") *
                      LinearLayout::identity1D(shape[1] / groups[1] / 8, kRegister, "dim1") *
                      LinearLayout::identity1D(4 * groups[0], kWarp, "dim0") *
                      LinearLayout::identity1D(groups[1], kWarp, "dim1");
  return fit(tile, shape, {1, 0});
}

LinearLayout tensorMemoryAccumulator(const Sizes &shape, const Sizes &groups) {
  checkDot(shape, groups, 128 * groups[0], 8 * groups[1]);
  LinearLayout tile = LinearLayout::identity1D(shape[1] / groups[1], kRegister, "dim1") * LinearLayout::identity1D(32, kLane, "dim0") *
                      LinearLayout::identity1D(4 * groups[0], kWarp, "dim0") * LinearLayout::identity1D(groups[1], kWarp, "dim1");
  return fit(tile, shape, {1, 0});
}

LinearLayout panelledLayout(const Sizes &shape, int fast, int elementBits) {
  NESO_CHECK(shape.size() == 2, "panels are of matrices");
  const int slow = 1 - fast;
  const int64_t columns = std::min<int64_t>(shape[size_t(fast)], 1024 / elementBits);
  Sizes panel = shape;
  panel[size_t(fast)] = columns;
  LinearLayout layout = sharedLayout(panel, {fast, slow}, matrixSwizzle(panel, {fast, slow}, elementBits));
  layout *= LinearLayout::identity1D(shape[size_t(fast)] / columns, kOffset, dimName(fast));
  return layout.transposeOuts(standardOuts(2));
}

LinearLayout sharedLayout(const Sizes &shape, const std::vector<int> &order, const Swizzle &swizzle) {
  checkOrder(order, shape.size());
  DimValues sizes;
  for (size_t i = 0; i < shape.size(); ++i) sizes.push_back({dimName(int(i)), shape[i]});
  LinearLayout outs({}, sizes);
  LinearLayout::In offset{kOffset, {}};
  for (size_t i = 0; i < order.size(); ++i) {
    const LinearLayout::Out &dim = outs.out(dimName(order[i]));
    for (int64_t index = 1; index < dim.size(); index *= 2) {
      uint64_t basis = uint64_t(index) << dim.shift;
      if (i == 1) {
        int64_t row = shape[order[0]];
        int64_t column = index / swizzle.perPhase % swizzle.maxPhase * swizzle.vec % row;
        basis |= uint64_t(column) << outs.out(dimName(order[0])).shift;
      }
      offset.bases.push_back(basis);
    }
  }
  return LinearLayout({offset}, sizes).transposeOuts(standardOuts(int(shape.size())));
}

Swizzle matrixSwizzle(const Sizes &shape, const std::vector<int> &order, int elementBits) {
  checkOrder(order, shape.size());
  if (order.size() < 2) return {};
  // A wavefront is 128 bytes: 8 groups of 16. Rows shorter than that share one, and need less permutation.
  int64_t vec = std::max<int64_t>(128 / elementBits, 1);
  int64_t rowBytes = std::max<int64_t>(shape[order[0]] * elementBits / 8, 1);
  int64_t perPhase = std::max<int64_t>(128 / rowBytes, 1);
  int64_t groups = std::max<int64_t>(rowBytes / 16, 1);
  return {vec, perPhase, std::min({std::max<int64_t>(8 / perPhase, 1), groups, int64_t(8)})};
}

LinearLayout transposeTensor(const LinearLayout &layout, const std::vector<int> &permutation) {
  int rank = int(layout.outs().size());
  checkOrder(permutation, size_t(rank));
  // Dims of the result in standard order, still under the source's names.
  std::vector<std::string> order;
  for (int i = rank - 1; i >= 0; --i) order.push_back(dimName(permutation[i]));
  LinearLayout turned = layout.transposeOuts(order);
  Sizes shape = tensorShape(layout), newShape;
  for (int dim : permutation) newShape.push_back(shape[dim]);
  return reshapeTensor(turned, newShape);
}

LinearLayout reshapeTensor(const LinearLayout &layout, const Sizes &shape) {
  DimValues sizes;
  for (int i = int(shape.size()) - 1; i >= 0; --i) sizes.push_back({dimName(i), shape[i]});
  return layout.reshapeOuts(sizes);
}

LinearLayout expandDims(const LinearLayout &layout, int axis) {
  Sizes shape = tensorShape(layout);
  NESO_CHECK(axis >= 0 && axis <= int(shape.size()), "the tensor cannot get such an axis");
  shape.insert(shape.begin() + axis, 1);
  return reshapeTensor(layout, shape);
}

LinearLayout broadcastTensor(const LinearLayout &layout, const Sizes &shape) {
  LinearLayout result = layout;
  for (int i = int(shape.size()) - 1; i >= 0; --i) {
    int64_t have = layout.out(dimName(i)).size();
    NESO_CHECK(have == shape[i] || have == 1, "only dims of size 1 can be broadcast");
    if (have != shape[i]) result *= LinearLayout::identity1D(shape[i], kRegister, dimName(i));
  }
  return result;
}

LinearLayout narrowTensor(const LinearLayout &layout, const Sizes &shape) {
  LinearLayout result = layout;
  for (size_t dim = 0; dim < shape.size(); ++dim) result = result.resizeOut(dimName(int(dim)), shape[dim]);
  std::vector<LinearLayout::In> ins = result.ins();
  const uint64_t free = result.freeMask(kRegister);
  for (LinearLayout::In &in : ins) {
    if (in.name != kRegister) continue;
    std::vector<uint64_t> kept;
    for (size_t i = 0; i < in.bases.size(); ++i)
      if (!(free >> i & 1)) kept.push_back(in.bases[i]);
    in.bases = std::move(kept);
  }
  return LinearLayout(std::move(ins), result.outSizes());
}

LinearLayout joinTensor(const LinearLayout &layout) {
  int rank = int(layout.outs().size());
  return standard(LinearLayout::identity1D(2, kRegister, dimName(rank)) * layout, rank + 1);
}

LinearLayout catLayout(const LinearLayout &layout) {
  std::vector<LinearLayout::In> ins = layout.ins();
  for (LinearLayout::In &in : ins)
    if (in.name == kRegister) in.bases.push_back(uint64_t(1) << layout.totalOutBits());
  // dim0 is the last out-dim, so its new bit is the highest of all.
  DimValues outs = layout.outSizes();
  outs.back().second *= 2;
  return LinearLayout(std::move(ins), outs);
}

Sizes tensorShape(const LinearLayout &layout) {
  Sizes shape;
  for (size_t i = 0; i < layout.outs().size(); ++i) shape.push_back(layout.out(dimName(int(i))).size());
  return shape;
}

} // namespace neso
