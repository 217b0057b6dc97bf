#include "frontend/triton/semantic.h"

#include "base/diagnostics/triton.h"
#include "ir/tile/tile.h"

#include <cmath>

namespace neso::triton {

using mlir::arith::CmpFPredicate;
using mlir::arith::CmpIPredicate;

// ---- promotion -------------------------------------------------------------------------------------------------------------------

Scalar Semantic::promoteInts(Scalar a, Scalar b) {
  // C's usual conversions: of equal signs the wider; of different signs the unsigned one unless the signed one is
  // wider.
  if (a.isSigned() == b.isSigned()) return a.bits() > b.bits() ? a : b;
  if (a.isUnsigned()) return a.bits() >= b.bits() ? a : b;
  return b.bits() >= a.bits() ? b : a;
}

std::optional<Scalar> Semantic::computationType(Scalar a, bool aNumber, Scalar b, bool bNumber, bool divOrMod) {
  auto kind = [](Scalar s) { return s.isBool() ? 0 : s.isInt() ? 1 : 2; };
  if (aNumber != bNumber) {
    Scalar number = aNumber ? a : b, other = aNumber ? b : a;
    if (kind(number) <= kind(other)) a = b = other;
  }
  if (a.is(DT::F64) || b.is(DT::F64)) return scalar(DT::F64);
  if (divOrMod && (a.isFloat() || b.isFloat())) return scalar(DT::F32);
  if (a.is(DT::F32) || b.is(DT::F32)) return scalar(DT::F32);
  if (a.is(DT::F16) || b.is(DT::F16)) return scalar(DT::F16);
  if (a.is(DT::BF16) && b.is(DT::BF16)) return scalar(DT::BF16);
  if (a.is(DT::BF16) || b.is(DT::BF16)) return scalar(DT::F32);
  if (a.isFp8() && b.isFp8()) return a == b && !a.is(DT::F8E4B15) ? a : scalar(DT::F16);
  if (!a.isInt() || !b.isInt()) {
    c_.fail(diag::TrUnexpectedType, a.str() + " and " + b.str());
    return std::nullopt;
  }
  if (divOrMod && a.isSigned() != b.isSigned()) {
    c_.fail(diag::TrSignedness, a.str(), b.str());
    return std::nullopt;
  }
  return promoteInts(a, b);
}

Value Semantic::incompatible(Scalar a, Scalar b) { return c_.fail(diag::TrIncompatible, a.str(), b.str()); }

std::optional<Scalar> Semantic::typeOfNumber(const Value &v) {
  constexpr __int128 one = 1;
  if (v.kind == Kind::Bool) return scalar(DT::I1);
  if (v.kind == Kind::Int) {
    if (v.i >= -(one << 31) && v.i < (one << 31)) return scalar(DT::I32);
    if (v.i >= (one << 31) && v.i < (one << 32)) return scalar(DT::U32);
    if (v.i >= -(one << 63) && v.i < (one << 63)) return scalar(DT::I64);
    if (v.i >= (one << 63) && v.i < (one << 64)) return scalar(DT::U64);
    c_.fail(diag::TrBigInt, int128ToString(v.i));
    return std::nullopt;
  }
  if (v.kind == Kind::Float) {
    double a = std::fabs(v.f);
    bool fits = std::isinf(v.f) || std::isnan(v.f) || a == 0 ||
                (a >= std::ldexp(1.0, -126) && a <= (2 - std::ldexp(1.0, -23)) * std::ldexp(1.0, 127));
    return scalar(fits ? DT::F32 : DT::F64);
  }
  if (v.kind != Kind::Invalid) c_.fail(diag::TrNotTensor, repr(v), typeName(v));
  return std::nullopt;
}

Value Semantic::castNumber(const Value &v, Scalar to) {
  if (v.isTensor()) return cast(v, to);
  if (v.number() < 0 && to.isUnsigned()) return c_.fail(diag::TrNegativeScalar);
  if (to.isInt() && v.isIntLike() && (v.i < minOf(to.base) || v.i > maxOf(to.base)))
    return c_.fail(diag::TrScalarRange, int128ToString(v.i), to.str());
  return constant(v, to);
}

bool Semantic::binaryOperands(Value &a, Value &b, bool allowLhsPtr, bool allowRhsPtr, bool arithmetic, bool divOrMod) {
  if (!a || !b) return false;
  bool aNumber = a.isNumber(), bNumber = b.isNumber();
  if ((!aNumber && !a.isTensor()) || (!bNumber && !b.isTensor())) {
    const Value &bad = !aNumber && !a.isTensor() ? a : b;
    c_.fail(diag::TrNotTensor, repr(bad), typeName(bad));
    return false;
  }
  std::optional<Scalar> sa = aNumber ? typeOfNumber(a) : a.type->element;
  std::optional<Scalar> sb = bNumber ? typeOfNumber(b) : b.type->element;
  if (!sa || !sb) return false;
  auto pointers = [&](Scalar x, Scalar y, bool allow) {
    if (!x.isPtr()) return true;
    return allow && !(y.isPtr() && x != y) && !y.isFloat();
  };
  if (!pointers(*sa, *sb, allowLhsPtr) || !pointers(*sb, *sa, allowRhsPtr)) {
    incompatible(*sa, *sb);
    return false;
  }
  if (arithmetic && !sa->isPtr() && !sb->isPtr()) {
    std::optional<Scalar> t = computationType(*sa, aNumber, *sb, bNumber, divOrMod);
    if (!t) return false;
    a = castNumber(a, *t);
    b = castNumber(b, *t);
  } else {
    a = toTensor(a);
    b = toTensor(b);
  }
  return a && b && broadcast(a, b);
}

bool Semantic::ternaryOperands(Value &a, Value &b, Value &z) {
  std::optional<Scalar> tensorType, numberType;
  for (Value *v : {&a, &b, &z}) {
    if (!*v) return false;
    if (v->isTensor()) {
      tensorType = tensorType ? computationType(*tensorType, false, v->type->element, false, false) : v->type->element;
      if (!tensorType) return false;
      continue;
    }
    std::optional<Scalar> t = typeOfNumber(*v);
    if (!t) return false;
    numberType = numberType ? computationType(*numberType, true, *t, true, false) : t;
    if (!numberType) return false;
  }
  std::optional<Scalar> t = !tensorType   ? numberType
                            : !numberType ? tensorType
                                          : computationType(*tensorType, false, *numberType, true, false);
  if (!t) return false;
  a = castNumber(a, *t);
  b = castNumber(b, *t);
  z = castNumber(z, *t);
  return a && b && z && broadcast(a, b) && broadcast(a, z) && broadcast(b, z);
}

mlir::Type Semantic::irType(Scalar s) {
  if (s.isPtr()) {
    mlir::Type inner = irType(s.pointee());
    return inner ? tt::PointerType::get(inner, 1) : inner;
  }
  mlir::OpBuilder &b = c_.builder;
  switch (s.base) {
  case DT::I1: return b.getI1Type();
  case DT::I8:
  case DT::U8: return b.getI8Type();
  case DT::I16:
  case DT::U16: return b.getI16Type();
  case DT::I32:
  case DT::U32: return b.getI32Type();
  case DT::I64:
  case DT::U64: return b.getI64Type();
  case DT::F8E4NV: return mlir::Float8E4M3FNType::get(b.getContext());
  case DT::F8E4B8: return mlir::Float8E4M3FNUZType::get(b.getContext());
  // No type of MLIR's has its bias: its bits, which casts take apart.
  case DT::F8E4B15: return b.getI8Type();
  case DT::F8E5: return mlir::Float8E5M2Type::get(b.getContext());
  case DT::F8E5B16: return mlir::Float8E5M2FNUZType::get(b.getContext());
  case DT::F16: return b.getF16Type();
  case DT::BF16: return b.getBF16Type();
  case DT::F32: return b.getF32Type();
  case DT::F64: return b.getF64Type();
  case DT::Void: break;
  }
  c_.fail(diag::TrUnexpectedType, s.str());
  return {};
}

mlir::Type Semantic::irType(const Type &t) {
  mlir::Type element = irType(t.element);
  return element && t.isBlock() ? mlir::RankedTensorType::get(t.shape, element) : element;
}

// ---- types and constants ---------------------------------------------------------------------------------------------------------

Value Semantic::toTensor(const Value &v) {
  if (v.isTensor() || !v) return v;
  std::optional<Scalar> t = typeOfNumber(v);
  return t ? constant(v, *t) : Value{};
}

Value Semantic::constant(const Value &v, Scalar s) {
  if (!v) return v;
  if (!v.isNumber()) return c_.fail(diag::TrNotTensor, repr(v), typeName(v));
  if (s.is(DT::F8E4B15)) return cast(constant(v, scalar(DT::F32)), s);
  mlir::Type t = irType(s);
  if (!t) return {};
  mlir::TypedAttr attr;
  if (s.isInt()) {
    if (v.kind == Kind::Float && v.f != 0) return c_.fail(diag::TrFloatForInt, repr(v), s.str());
    __int128 n = v.kind == Kind::Float ? 0 : v.i;
    if (s.isBool()) n = n != 0;
    attr =
        mlir::IntegerAttr::get(t, llvm::APInt(static_cast<unsigned>(s.bits()), static_cast<uint64_t>(n), false, true));
  } else if (s.isFloat()) {
    llvm::APFloat value(v.number());
    bool lost = false;
    value.convert(llvm::cast<mlir::FloatType>(t).getFloatSemantics(), llvm::APFloat::rmNearestTiesToEven, &lost);
    attr = mlir::FloatAttr::get(t, value);
  } else {
    if (!v.isIntLike() || !s.isPtr()) return c_.fail(diag::TrCast, typeName(v), s.str());
    return cast(constant(v, scalar(DT::I64)), s);
  }
  return c_.tensor(mlir::arith::ConstantOp::create(c_.builder, c_.loc(), attr), {s, {}});
}

Value Semantic::makeScalar(const Value &v, Scalar s) {
  if (!v) return v;
  if (!v.isTensor()) return constant(v, s);
  if (v.type->numel() != 1) return c_.fail(diag::TrNotScalar, "make_scalar", v.type->str());
  return cast(v, s);
}

Value Semantic::full(const std::vector<int64_t> &shape, const Value &v, Scalar s) {
  Value x = makeScalar(v, s);
  return x ? splat(x, shape) : x;
}

// ---- generic ops -----------------------------------------------------------------------------------------------------------------

mlir::Operation *Semantic::op(llvm::StringRef name, llvm::ArrayRef<mlir::Type> results,
                              llvm::ArrayRef<mlir::Value> operands, llvm::ArrayRef<mlir::NamedAttribute> attrs) {
  if (c_.frame && !c_.frame->kernel && !c_.frame->emits) c_.failRuntime();
  mlir::OperationState state(c_.loc(), name, operands, results, attrs);
  return c_.builder.create(state);
}
Value Semantic::unary(llvm::StringRef name, const Value &v) {
  if (!v) return v;
  return result(op(name, {v.handle.getType()}, {v.handle}), *v.type);
}
Value Semantic::same(llvm::StringRef name, const Value &a, const Value &b) {
  return result(op(name, {a.handle.getType()}, {a.handle, b.handle}), *a.type);
}
mlir::NamedAttribute Semantic::i32Attr(llvm::StringRef name, int64_t v) {
  return c_.builder.getNamedAttr(name, c_.builder.getI32IntegerAttr(static_cast<int32_t>(v)));
}
mlir::NamedAttribute Semantic::boolAttr(llvm::StringRef name, bool v) {
  return c_.builder.getNamedAttr(name, c_.builder.getBoolAttr(v));
}
mlir::NamedAttribute Semantic::strAttr(llvm::StringRef name, llvm::StringRef v) {
  return c_.builder.getNamedAttr(name, c_.builder.getStringAttr(v));
}

// ---- broadcasting ----------------------------------------------------------------------------------------------------------------

bool Semantic::broadcast(Value &a, Value &b) {
  if (!a.type->isBlock() && !b.type->isBlock()) return true;
  if (!a.type->isBlock()) a = splat(a, b.type->shape);
  if (!b.type->isBlock()) b = splat(b, a.type->shape);
  while (a.type->shape.size() < b.type->shape.size()) a = expandDims(a, 0);
  while (b.type->shape.size() < a.type->shape.size()) b = expandDims(b, 0);
  std::vector<int64_t> shape;
  for (size_t i = 0; i < a.type->shape.size(); ++i) {
    int64_t l = a.type->shape[i], r = b.type->shape[i];
    if (l != r && l != 1 && r != 1) {
      c_.fail(diag::TrShapeMismatch, i, l, r, a.type->str(), b.type->str());
      return false;
    }
    shape.push_back(l == 1 ? r : l);
  }
  a = broadcastTo(a, shape);
  b = broadcastTo(b, shape);
  return true;
}

static std::string shapeStr(const std::vector<int64_t> &s) { return fmt::format("[{}]", fmt::join(s, ", ")); }

Value Semantic::broadcastTo(const Value &v, const std::vector<int64_t> &shape) {
  if (!v) return v;
  if (!v.type->isBlock()) return splat(v, shape);
  const std::vector<int64_t> &src = v.type->shape;
  if (src == shape) return v;
  if (src.size() != shape.size())
    return c_.fail(diag::TrBroadcast, "rank mismatch: " + shapeStr(src) + ", " + shapeStr(shape));
  for (size_t i = 0; i < src.size(); ++i)
    if (src[i] != shape[i] && src[i] != 1)
      return c_.fail(
          diag::TrBroadcast,
          fmt::format("the expanded size of the tensor ({}) must match the existing size ({}) at non-singleton "
                      "dimension {}: {}, {}",
                      shape[i], src[i], i, shapeStr(src), shapeStr(shape)));
  Type t{v.type->element, shape};
  return result(op("tt.broadcast", {irType(t)}, {v.handle}), t);
}

bool Semantic::checkShape(const std::vector<int64_t> &shape) {
  int64_t numel = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] <= 0 || (shape[i] & (shape[i] - 1)) != 0) {
      c_.fail(diag::TrPowerOfTwo, i, shape[i]);
      return false;
    }
    if (shape[i] > 1048576 || (numel *= shape[i]) > 1048576) {
      c_.fail(diag::TrTooLarge, shapeStr(shape));
      return false;
    }
  }
  return true;
}

Value Semantic::splat(const Value &v, const std::vector<int64_t> &shape) {
  if (!v || shape.empty()) return v;
  if (v.type->isBlock()) return c_.fail(diag::TrNotScalar, "splat", v.type->str());
  Type t{v.type->element, shape};
  if (mlir::arith::ConstantOp k = v.handle.getDefiningOp<mlir::arith::ConstantOp>()) {
    mlir::Type ir = irType(t);
    mlir::DenseElementsAttr dense =
        mlir::DenseElementsAttr::get(llvm::cast<mlir::ShapedType>(ir), llvm::ArrayRef<mlir::Attribute>(k.getValue()));
    return c_.tensor(mlir::arith::ConstantOp::create(c_.builder, c_.loc(), llvm::cast<mlir::TypedAttr>(dense)), t);
  }
  return result(op("tt.splat", {irType(t)}, {v.handle}), t);
}

Value Semantic::unsplat(const Value &v) {
  if (!v || !v.type->isBlock()) return v;
  if (v.type->numel() != 1) return c_.fail(diag::TrNotScalar, "item", v.type->str());
  return result(op("tt.unsplat", {irType(v.type->element)}, {v.handle}), {v.type->element, {}});
}

Value Semantic::reshape(const Value &v, const std::vector<int64_t> &shape, bool reorder) {
  if (!v) return v;
  Type t{v.type->element, shape};
  if (t.numel() != v.type->numel()) return c_.fail(diag::TrReshape, v.type->str(), shapeStr(shape));
  if (!v.type->isBlock()) return splat(v, shape);
  if (shape.empty()) return unsplat(v);
  if (v.type->shape == shape && !reorder) return v;
  llvm::SmallVector<mlir::NamedAttribute, 1> attrs;
  if (reorder) attrs.push_back(c_.builder.getNamedAttr("allow_reorder", c_.builder.getUnitAttr()));
  return result(op("tt.reshape", {irType(t)}, {v.handle}, attrs), t);
}

Value Semantic::expandDims(const Value &v, int64_t axis) {
  std::vector<int64_t> shape = v.type->shape;
  int64_t rank = static_cast<int64_t>(shape.size());
  if (axis < 0 || axis > rank) return c_.fail(diag::TrAxis, axis, -rank - 1, rank + 1);
  shape.insert(shape.begin() + axis, 1);
  if (!v.type->isBlock()) return splat(v, shape);
  Type t{v.type->element, shape};
  return result(op("tt.expand_dims", {irType(t)}, {v.handle}, {i32Attr("axis", axis)}), t);
}

Value Semantic::permute(const Value &v, const std::vector<int64_t> &dims) {
  if (!v) return v;
  if (dims.size() != v.type->shape.size())
    return c_.fail(diag::TrPermuteLength, v.type->shape.size(), dims.size());
  std::vector<bool> seen(dims.size());
  std::vector<int64_t> shape;
  llvm::SmallVector<int32_t> order;
  for (int64_t d : dims) {
    if (d < 0 || d >= static_cast<int64_t>(dims.size()) || seen[static_cast<size_t>(d)])
      return c_.fail(diag::TrPermute, shapeStr(dims));
    seen[static_cast<size_t>(d)] = true;
    shape.push_back(v.type->shape[static_cast<size_t>(d)]);
    order.push_back(static_cast<int32_t>(d));
  }
  Type t{v.type->element, shape};
  return result(op("tt.trans", {irType(t)}, {v.handle},
                   {c_.builder.getNamedAttr("order", c_.builder.getDenseI32ArrayAttr(order))}),
                t);
}

Value Semantic::join(Value a, Value b) {
  if (!a || !b || !broadcast(a, b)) return {};
  if (a.type->element != b.type->element) return incompatible(a.type->element, b.type->element);
  bool scalars = !a.type->isBlock();
  if (scalars) {
    a = splat(a, {1});
    b = splat(b, {1});
  }
  Type t = *a.type;
  t.shape.push_back(2);
  Value v = result(op("tt.join", {irType(t)}, {a.handle, b.handle}), t);
  return scalars ? reshape(v, {2}, false) : v;
}

// ---- operators -------------------------------------------------------------------------------------------------------------------

Value Semantic::add(Value a, Value b) {
  if (!binaryOperands(a, b, true, true, true, false)) return {};
  if (a.type->element.isPtr() && b.type->element.isPtr()) return c_.fail(diag::TrAddPointers);
  if (b.type->element.isPtr()) std::swap(a, b);
  Scalar s = a.type->element;
  if (s.isPtr()) {
    Scalar o = b.type->element;
    // tt.addptr reads offsets as signed: widen unsigned ones first.
    if (o.isUnsigned() && o.bits() < 64) {
      Type wide = b.type->with(scalar(DT::I64));
      b = result(op("arith.extui", {irType(wide)}, {b.handle}), wide);
    }
    return result(op("tt.addptr", {a.handle.getType()}, {a.handle, b.handle}), *a.type);
  }
  return same(s.isFloat() ? "arith.addf" : "arith.addi", a, b);
}

Value Semantic::sub(Value a, Value b) {
  if (!binaryOperands(a, b, true, false, true, false)) return {};
  Scalar s = a.type->element;
  if (s.isPtr()) return b.type->element.isPtr() ? incompatible(s, b.type->element) : add(a, minus(b));
  return same(s.isFloat() ? "arith.subf" : "arith.subi", a, b);
}

Value Semantic::mul(Value a, Value b) {
  if (!binaryOperands(a, b, false, false, true, false)) return {};
  return same(a.type->element.isFloat() ? "arith.mulf" : "arith.muli", a, b);
}

Value Semantic::trueDiv(Value a, Value b) {
  if (!binaryOperands(a, b, false, false, true, true)) return {};
  if (a.type->element.isInt()) {
    a = cast(a, scalar(DT::F32));
    b = cast(b, scalar(DT::F32));
  }
  return same("arith.divf", a, b);
}

Value Semantic::floorDiv(Value a, Value b) {
  if (!binaryOperands(a, b, false, false, true, true)) return {};
  Scalar s = a.type->element;
  if (!s.isInt())
    return c_.fail(diag::TrUnexpectedType, s.str() + " in `//` (cast to an integer, or use tl.floor(a / b))");
  return same(s.isSigned() ? "arith.divsi" : "arith.divui", a, b);
}

Value Semantic::mod(Value a, Value b) {
  if (!binaryOperands(a, b, false, false, true, true)) return {};
  Scalar s = a.type->element;
  return same(s.isFloat() ? "arith.remf" : s.isSigned() ? "arith.remsi" : "arith.remui", a, b);
}

bool Semantic::bitwiseOperands(Value &a, Value &b) {
  if (!binaryOperands(a, b, false, false, true, false)) return false;
  if (!a.type->element.isInt() || !b.type->element.isInt()) {
    incompatible(a.type->element, b.type->element);
    return false;
  }
  return true;
}

Value Semantic::bitwise(OpKind op, Value a, Value b) {
  if (!bitwiseOperands(a, b)) return {};
  return same(op == OpKind::BitAnd ? "arith.andi" : op == OpKind::BitOr ? "arith.ori" : "arith.xori", a, b);
}

Value Semantic::shift(OpKind op, Value a, Value b) {
  if (!a || !b) return {};
  bool isSigned = (a.isTensor() ? a : b).type->element.isSigned();
  if (!bitwiseOperands(a, b)) return {};
  return same(op == OpKind::LShift ? "arith.shli" : isSigned ? "arith.shrsi" : "arith.shrui", a, b);
}

Value Semantic::logical(bool isAnd, Value a, Value b) {
  for (Value *v : {&a, &b}) {
    *v = toTensor(*v);
    if (!*v) return {};
    if (!v->type->element.isBool()) {
      *v = bitcast(*v, scalar(DT::I1));
      if (!*v) return {};
    }
  }
  return bitwise(isAnd ? OpKind::BitAnd : OpKind::BitOr, a, b);
}

Value Semantic::minus(const Value &v) {
  if (!v) return v;
  Scalar s = v.type->element;
  if (s.isPtr()) return c_.fail(diag::TrUnary, "minus", s.str());
  if (s.is(DT::F8E4B15)) return minus(cast(v, scalar(DT::F16)));
  if (s.isFloat()) return unary("arith.negf", v);
  return sub(constant(Value::integer(0), s), v);
}

Value Semantic::invert(const Value &v) {
  if (!v) return v;
  Scalar s = v.type->element;
  if (s.isPtr() || s.isFloat()) return c_.fail(diag::TrUnary, "invert", s.str());
  return bitwise(OpKind::BitXor, v, constant(Value::integer(s.isSigned() ? -1 : maxOf(s.base)), s));
}

Value Semantic::notOp(Value v) {
  if (!v) return v;
  if (!v.type->element.isBool()) v = bitcast(v, scalar(DT::I1));
  return invert(v);
}

Value Semantic::unaryOperator(OpKind op, const Value &v) {
  switch (op) {
  case OpKind::Neg: return minus(v);
  case OpKind::Pos: return v;
  case OpKind::Invert: return invert(v);
  default: return notOp(v);
  }
}

Value Semantic::binary(OpKind op, Value a, Value b) {
  switch (op) {
  case OpKind::Add: return add(a, b);
  case OpKind::Sub: return sub(a, b);
  case OpKind::Mul: return mul(a, b);
  case OpKind::Div: return trueDiv(a, b);
  case OpKind::FloorDiv: return floorDiv(a, b);
  case OpKind::Mod: return mod(a, b);
  case OpKind::LShift:
  case OpKind::RShift: return shift(op, a, b);
  case OpKind::BitAnd:
  case OpKind::BitOr:
  case OpKind::BitXor: return bitwise(op, a, b);
  case OpKind::Pow:
    return c_.fail(diag::TrOperator, "**", typeName(a), typeName(b), "use multiplication, tl.exp2, or libdevice.pow");
  case OpKind::MatMul: return c_.fail(diag::TrOperator, "@", typeName(a), typeName(b), "use tl.dot");
  default: return compare(op, a, b);
  }
}

Value Semantic::compare(OpKind op, Value a, Value b) {
  if (!binaryOperands(a, b, false, false, true, false)) return {};
  Scalar s = a.type->element;
  struct Row {
    OpKind op;
    CmpFPredicate f;
    CmpIPredicate signedInt, unsignedInt;
  };
  static constexpr Row kRows[] = {{OpKind::Eq, CmpFPredicate::OEQ, CmpIPredicate::eq, CmpIPredicate::eq},
                                  {OpKind::Ne, CmpFPredicate::UNE, CmpIPredicate::ne, CmpIPredicate::ne},
                                  {OpKind::Lt, CmpFPredicate::OLT, CmpIPredicate::slt, CmpIPredicate::ult},
                                  {OpKind::Le, CmpFPredicate::OLE, CmpIPredicate::sle, CmpIPredicate::ule},
                                  {OpKind::Gt, CmpFPredicate::OGT, CmpIPredicate::sgt, CmpIPredicate::ugt},
                                  {OpKind::Ge, CmpFPredicate::OGE, CmpIPredicate::sge, CmpIPredicate::uge}};
  for (const Row &r : kRows)
    if (r.op == op) {
      Type t = a.type->with(scalar(DT::I1));
      if (s.isFloat()) return c_.tensor(mlir::arith::CmpFOp::create(c_.builder, c_.loc(), r.f, a.handle, b.handle), t);
      return c_.tensor(mlir::arith::CmpIOp::create(c_.builder, c_.loc(), s.isSigned() ? r.signedInt : r.unsignedInt,
                                                   a.handle, b.handle),
                       t);
    }
  return c_.fail(diag::TrOperator, spelling(op), typeName(a), typeName(b), "compare numbers and tensors of numbers");
}

Value Semantic::select(const Value &cond, const Value &x, const Value &y) {
  return result(op("arith.select", {x.handle.getType()}, {cond.handle, x.handle, y.handle}), *x.type);
}

Value Semantic::where(Value cond, Value x, Value y) {
  cond = toTensor(cond);
  if (!cond) return {};
  cond = cast(cond, scalar(DT::I1));
  if (!cond || !binaryOperands(x, y, true, true, true, false)) return {};
  if (cond.type->isBlock()) {
    if (!broadcast(cond, x) || !broadcast(x, y)) return {};
  } else if (x.type->isBlock()) {
    cond = splat(cond, x.type->shape);
  }
  return select(cond, x, y);
}

Value Semantic::minMax(bool isMax, Value a, Value b, bool propagateNan) {
  if (!binaryOperands(a, b, false, false, true, false)) return {};
  Scalar s = a.type->element;
  if (s.isFloat())
    return same(propagateNan ? (isMax ? "arith.maximumf" : "arith.minimumf")
                             : (isMax ? "arith.maxnumf" : "arith.minnumf"),
                a, b);
  if (s.isSigned()) return same(isMax ? "arith.maxsi" : "arith.minsi", a, b);
  return same(isMax ? "arith.maxui" : "arith.minui", a, b);
}

// ---- conversion ------------------------------------------------------------------------------------------------------------------

Value Semantic::bitcast(const Value &v, Scalar to) {
  if (!v) return v;
  Scalar from = v.type->element;
  if (from == to) return v;
  if (from.isPtr() || to.isPtr()) return cast(v, to);
  if (from.bits() != to.bits()) return c_.fail(diag::TrBitcastSize, from.bits(), to.bits());
  Type t = v.type->with(to);
  mlir::Type ir = irType(t);
  if (!ir) return {};
  if (ir == v.handle.getType()) return c_.tensor(v.handle, t);
  return result(op("tt.bitcast", {ir}, {v.handle}), t);
}

/// Exponent and fraction of an E4B15 are those of an f16 of the same value without its lowest bits, the exponent's highest apart, which is 0.
Value Semantic::fromE4B15(const Value &v, Scalar to) {
  Value bits = cast(bitcast(v, scalar(DT::U8)), scalar(DT::U16));
  auto placed = [&](int64_t mask, int64_t by) {
    return shift(OpKind::LShift, bitwise(OpKind::BitAnd, bits, Value::integer(mask)), Value::integer(by));
  };
  return cast(bitcast(bitwise(OpKind::BitOr, placed(0x80, 8), placed(0x7f, 7)), scalar(DT::F16)), to);
}

/// As Triton's own code: by way of an f16 that is cut, at most 1.75, halves away from zero.
Value Semantic::toE4B15(const Value &v) {
  const Value half = v.type->element.is(DT::F16) ? v : cast(cast(v, scalar(DT::F32)), scalar(DT::F16), Rounding::Rtz);
  Value bits = bitcast(half, scalar(DT::U16));
  Value size = minMax(false, bitwise(OpKind::BitAnd, bits, Value::integer(0x7fff)), Value::integer(0x3f00), false);
  Value rounded = add(shift(OpKind::LShift, size, Value::integer(1)), Value::integer(0x80));
  Value all = bitwise(OpKind::BitOr, bitwise(OpKind::BitAnd, bits, Value::integer(0x8000)), rounded);
  return bitcast(cast(shift(OpKind::RShift, all, Value::integer(8)), scalar(DT::U8)), scalar(DT::F8E4B15));
}

Value Semantic::cast(const Value &v, Scalar to, Rounding rounding) {
  if (!v) return v;
  Scalar from = v.type->element;
  if (from == to) return v;
  Type t = v.type->with(to);
  mlir::Type ir = irType(t);
  if (!ir || !irType(from)) return {};
  auto convert = [&](llvm::StringRef name) { return result(op(name, {ir}, {v.handle}), t); };
  bool narrowing = from.isFloat() && to.isFloat() && to.bits() < from.bits();
  if (!narrowing && rounding != Rounding::Default) return c_.fail(diag::TrRounding, from.str(), to.str());
  if (from.is(DT::F8E4B15) && !to.isPtr()) return fromE4B15(v, to);
  if (to.is(DT::F8E4B15) && !from.isPtr()) return toE4B15(v);
  bool custom = narrowing && rounding == Rounding::Rtz;
  auto fpToFp = [&](std::optional<int32_t> mode) {
    llvm::SmallVector<mlir::NamedAttribute, 1> attrs;
    // The dialect's rounding enum: 0 = rtz, 1 = rtne.
    if (mode) attrs.push_back(i32Attr("rounding", *mode));
    return result(op("tt.fp_to_fp", {ir}, {v.handle}, attrs), t);
  };
  if ((from.is(DT::BF16) && to.is(DT::F16)) || (from.is(DT::F16) && to.is(DT::BF16))) return fpToFp(1);
  if ((from.isFp8() && to.isFloat()) || (from.isFloat() && to.isFp8()) || custom)
    return fpToFp(narrowing ? std::optional<int32_t>(custom ? 0 : 1) : std::nullopt);
  if ((from.is(DT::F16) || from.is(DT::BF16)) && to.isFloat() && !to.is(DT::F32))
    return cast(cast(v, scalar(DT::F32)), to);
  if (narrowing) return convert("arith.truncf");
  if (from.isFloat() && to.isFloat()) return convert("arith.extf");
  if (from.isInt() && to.isInt()) {
    if (to.isBool()) return compare(OpKind::Ne, v, constant(Value::integer(0), from));
    if (from.bits() == to.bits()) return c_.tensor(v.handle, t);
    return convert(from.bits() > to.bits() ? "arith.trunci" : from.isSigned() ? "arith.extsi" : "arith.extui");
  }
  if (from.isFp8() && to.isInt()) return cast(cast(v, scalar(DT::F32)), to);
  if (from.isInt() && to.isFp8()) return cast(cast(v, scalar(DT::F32)), to);
  if (from.isFloat() && to.isInt()) {
    if (to.isBool()) return compare(OpKind::Ne, v, constant(Value::real(0), from));
    return convert(to.isSigned() ? "arith.fptosi" : "arith.fptoui");
  }
  if (from.isInt() && to.isFloat()) return convert(from.isSigned() ? "arith.sitofp" : "arith.uitofp");
  if (from.isPtr() && to.isInt()) {
    if (to.bits() == 64) return convert("tt.ptr_to_int");
    if (to.isBool()) return compare(OpKind::Ne, cast(v, scalar(DT::I64)), Value::integer(0));
  }
  if (from.isInt() && to.isPtr()) {
    if (from.bits() == 64) return convert("tt.int_to_ptr");
    return cast(cast(v, scalar(DT::I64)), to);
  }
  if (from.isPtr() && to.isPtr()) return ir == v.handle.getType() ? c_.tensor(v.handle, t) : convert("tt.bitcast");
  return c_.fail(diag::TrCast, v.type->str(), to.str());
}

} // namespace neso::triton
