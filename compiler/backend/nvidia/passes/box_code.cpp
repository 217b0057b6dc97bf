// Boxes in code: descriptors and indices (loop_plan.h).
#include <climits>

#include "backend/nvidia/passes/loop_plan.h"

using namespace mlir;

namespace neso::nvidia {

namespace {

/// A sum of products of scalars, in `type`.
Value compute(OpBuilder &b, Location loc, const Polynomial &p, const std::vector<Value> &scalars, Type type) {
  Value sum;
  auto number = [&](int64_t x) { return arith::ConstantOp::create(b, loc, b.getIntegerAttr(type, x)).getResult(); };
  auto wide = [&](Value v) -> Value {
    if (v.getType() == type) return v;
    return v.getType().isIndex() ? arith::IndexCastOp::create(b, loc, type, v).getResult()
                                 : arith::ExtSIOp::create(b, loc, type, v).getResult();
  };
  for (const auto &[product, factor] : p.terms) {
    Value term = factor != 1 || product.empty() ? number(factor) : Value();
    for (int i : product) {
      Value v = wide(scalars[size_t(i)]);
      term = term ? arith::MulIOp::create(b, loc, term, v).getResult() : v;
    }
    sum = sum ? arith::AddIOp::create(b, loc, sum, term).getResult() : term;
  }
  return sum ? sum : number(0);
}

/// The index of a copy, which has 32 bits. One that is computed of 64 is the nearest that 32 can say: boxes.h, B6.
Value computeIndex(OpBuilder &b, Location loc, const Polynomial &p, const std::vector<Value> &scalars) {
  bool isWide = false;
  for (size_t i = 0; i < scalars.size(); ++i) isWide |= scalars[i] && scalars[i].getType().isInteger(64) && p.has(int(i));
  if (!isWide) return compute(b, loc, p, scalars, b.getI32Type());
  Value wide = compute(b, loc, p, scalars, b.getI64Type());
  auto limit = [&](int64_t x) { return arith::ConstantOp::create(b, loc, b.getI64IntegerAttr(x)); };
  Value low = arith::MaxSIOp::create(b, loc, wide, limit(INT32_MIN)), both = arith::MinSIOp::create(b, loc, low, limit(INT32_MAX));
  return arith::TruncIOp::create(b, loc, b.getI32Type(), both);
}

/// Outermost first; the one with neighbours last.
SmallVector<const Box::Dim *, 3> dimsOf(const Box &box, int fast) {
  SmallVector<const Box::Dim *, 3> dims;
  if (box.outer) dims.push_back(&*box.outer);
  dims.append({&box.dims[size_t(1 - fast)], &box.dims[size_t(fast)]});
  return dims;
}

} // namespace

OpBuilder entryOf(scf::ForOp loop) { return OpBuilder::atBlockBegin(&loop->getParentOfType<tt::FuncOp>().getBody().front()); }

Value describeTensor(OpBuilder &entry, const PipelinedLoad &load, const Box &box) {
  tt::LoadOp op = load.load;
  const Location loc = op.getLoc();
  RankedTensorType tile = cast<RankedTensorType>(op.getType());
  SmallVector<int64_t, 3> shape;
  SmallVector<Value, 3> sizes, pitches;
  if (box.outer) shape.push_back(1);
  shape.push_back(load.rows ? load.rows : tile.getDimSize(unsigned(1 - load.fast)));
  shape.push_back(tile.getDimSize(unsigned(load.fast)));
  for (const Box::Dim *dim : dimsOf(box, load.fast)) {
    const Polynomial size = dim->size ? *dim->size : Polynomial(INT32_MAX);
    Value wide = compute(entry, loc, size, box.scalars, entry.getI64Type());
    pitches.push_back(compute(entry, loc, dim->pitch, box.scalars, entry.getI64Type()));
    if (dim->leastPitch) {
      // A pitch that is too small makes the size 0, which no tensor that is described has.
      auto number = [&](int64_t x) { return arith::ConstantOp::create(entry, loc, entry.getI64IntegerAttr(x)); };
      Value times = arith::DivSIOp::create(entry, loc, pitches.back(), number(dim->leastPitch));
      wide = arith::MulIOp::create(entry, loc, wide, arith::MinSIOp::create(entry, loc, times, number(1)));
    }
    sizes.push_back(arith::TruncIOp::create(entry, loc, entry.getI32Type(), wide));
  }
  return tt::MakeTensorDescOp::create(entry, loc, tt::TensorDescType::get(entry.getContext(), shape, tile.getElementType()), box.base, sizes,
                                      pitches, tt::PaddingOption::PAD_ZERO);
}

SmallVector<Value, 3> firstIndices(OpBuilder &b, const PipelinedLoad &load, const Box &box) {
  SmallVector<Value, 3> out;
  for (const Box::Dim *dim : dimsOf(box, load.fast)) out.push_back(computeIndex(b, tt::LoadOp(load.load).getLoc(), dim->first, box.scalars));
  return out;
}
SmallVector<Value, 3> indexSteps(OpBuilder &b, const PipelinedLoad &load, const Box &box) {
  SmallVector<Value, 3> out;
  for (const Box::Dim *dim : dimsOf(box, load.fast)) out.push_back(computeIndex(b, tt::LoadOp(load.load).getLoc(), dim->step, box.scalars));
  return out;
}

DescribedBox describeBox(OpBuilder &entry, OpBuilder &b, const PipelinedLoad &load, const Box &box) {
  return {describeTensor(entry, load, box), firstIndices(b, load, box), indexSteps(b, load, box)};
}

} // namespace neso::nvidia
