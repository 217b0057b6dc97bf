// Functions whose value is added to 1: see passes.h.
#include "base/rules.h"
#include "ir/tile/passes/passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace neso {
namespace {

Value numberLike(OpBuilder &b, Value x, double v) {
  const FloatAttr number = b.getF32FloatAttr(static_cast<float>(v));
  const auto tile = dyn_cast<ShapedType>(x.getType());
  return arith::ConstantOp::create(b, x.getLoc(), tile ? TypedAttr(DenseElementsAttr::get(tile, number.getValue())) : TypedAttr(number));
}

bool isOne(Value v) {
  APFloat number(0.0f);
  return matchPattern(v, m_ConstantFloat(&number)) && number.isExactlyValue(1.0);
}

/// What 1 + f(x), or 1 - f(x), is instead; null if f is no function of these or somebody else reads it.
Value besideOne(Operation *op, Value f, bool minus) {
  Operation *function = f.getDefiningOp();
  if (!function || !function->hasOneUse() || !isa<math::ErfOp, math::TanhOp>(function)) return {};
  OpBuilder b(op);
  Value x = function->getOperand(0);
  const Location loc = op->getLoc();
  applied(Rule::BesideOne);
  if (isa<math::ErfOp>(function)) {
    if (!minus) x = arith::NegFOp::create(b, loc, x);
    return math::ErfcOp::create(b, loc, x, arith::FastMathFlags::afn);
  }
  Value power = math::ExpOp::create(b, loc, arith::MulFOp::create(b, loc, x, numberLike(b, x, minus ? 2 : -2)), arith::FastMathFlags::afn);
  return arith::DivFOp::create(b, loc, numberLike(b, x, 2), arith::AddFOp::create(b, loc, power, numberLike(b, x, 1)));
}

} // namespace

void rewriteFunctionsBesideOne(ModuleOp module) {
  SmallVector<Operation *> sums;
  module.walk([&](Operation *op) {
    if (isa<arith::AddFOp, arith::SubFOp>(op) && getElementTypeOrSelf(op->getResult(0).getType()).isF32()) sums.push_back(op);
  });
  for (Operation *op : sums) {
    const bool minus = isa<arith::SubFOp>(op);
    Value one = op->getOperand(0), f = op->getOperand(1);
    if (!minus && isOne(f)) std::swap(one, f);
    const Value other = isOne(one) ? besideOne(op, f, minus) : Value();
    if (!other) continue;
    op->getResult(0).replaceAllUsesWith(other);
    op->erase();
    f.getDefiningOp()->erase();
  }
}

} // namespace neso
