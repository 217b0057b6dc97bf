// The meaning of Triton's operators on run-time values: promotion, implicit casts, broadcasting, and the IR ops that
// result.
//
// Rules are those of triton.language (semantic.py of 3.9), among them: a Python number of a lower or equal kind (bool <
// int < float) does not take part in promotion; `/` and `%` on floats below 32 bits compute in fp32; `//` and `%` on
// integers truncate as C does. Operands are Values: a Tensor (block or scalar) or a compile-time number. Every function
// reports its own error and then returns an Invalid value.
#pragma once
#include "frontend/triton/context.h"

namespace neso::triton {

class Semantic {
public:
  explicit Semantic(Context &c) : c_(c) {}

  // types and constants
  mlir::Type irType(Scalar s);
  mlir::Type irType(const Type &t);
  /// The Triton type of a Python number; Invalid ones report.
  std::optional<Scalar> typeOfNumber(const Value &v);
  /// A number becomes a scalar tensor; a tensor stays; anything else is an error.
  Value toTensor(const Value &v);
  Value constant(const Value &number, Scalar s);
  Value makeScalar(const Value &v, Scalar s);
  Value full(const std::vector<int64_t> &shape, const Value &v, Scalar s);

  // generic ops
  mlir::Operation *op(llvm::StringRef name, llvm::ArrayRef<mlir::Type> results, llvm::ArrayRef<mlir::Value> operands,
                      llvm::ArrayRef<mlir::NamedAttribute> attrs = {});
  Value result(mlir::Operation *o, Type t) { return c_.tensor(o->getResult(0), std::move(t)); }
  /// `name` applied to `v`, of v's type.
  Value unary(llvm::StringRef name, const Value &v);
  Value same(llvm::StringRef name, const Value &a, const Value &b);
  mlir::NamedAttribute i32Attr(llvm::StringRef name, int64_t v);
  mlir::NamedAttribute boolAttr(llvm::StringRef name, bool v);
  mlir::NamedAttribute strAttr(llvm::StringRef name, llvm::StringRef v);

  // promotion
  std::optional<Scalar> computationType(Scalar a, bool aNumber, Scalar b, bool bNumber, bool divOrMod);
  Scalar promoteInts(Scalar a, Scalar b);
  bool binaryOperands(Value &a, Value &b, bool allowLhsPtr, bool allowRhsPtr, bool arithmetic, bool divOrMod);
  bool ternaryOperands(Value &a, Value &b, Value &z);
  bool bitwiseOperands(Value &a, Value &b);
  /// Broadcasts both to their common shape.
  bool broadcast(Value &a, Value &b);
  Value broadcastTo(const Value &v, const std::vector<int64_t> &shape);

  // operators
  Value binary(OpKind op, Value a, Value b);
  Value compare(OpKind op, Value a, Value b);
  Value unaryOperator(OpKind op, const Value &v);
  Value logical(bool isAnd, Value a, Value b);
  Value add(Value a, Value b);
  Value sub(Value a, Value b);
  Value mul(Value a, Value b);
  Value trueDiv(Value a, Value b);
  Value floorDiv(Value a, Value b);
  Value mod(Value a, Value b);
  Value bitwise(OpKind op, Value a, Value b);
  Value shift(OpKind op, Value a, Value b);
  Value minus(const Value &v);
  Value invert(const Value &v);
  Value notOp(Value v);
  Value where(Value cond, Value x, Value y);
  Value minMax(bool isMax, Value a, Value b, bool propagateNan);
  Value select(const Value &cond, const Value &x, const Value &y);

  // conversion
  enum class Rounding { Default, Rtne, Rtz };
  Value cast(const Value &v, Scalar to, Rounding rounding = Rounding::Default);
  Value bitcast(const Value &v, Scalar to);

  // shapes
  Value splat(const Value &v, const std::vector<int64_t> &shape);
  Value unsplat(const Value &v);
  Value reshape(const Value &v, const std::vector<int64_t> &shape, bool reorder);
  Value expandDims(const Value &v, int64_t axis);
  Value permute(const Value &v, const std::vector<int64_t> &dims);
  Value join(Value a, Value b);
  /// Reports when a dimension is no power of two or the block is too large.
  bool checkShape(const std::vector<int64_t> &shape);

private:
  Value castNumber(const Value &v, Scalar to);
  Value fromE4B15(const Value &v, Scalar to);
  Value toE4B15(const Value &v);
  Value incompatible(Scalar a, Scalar b);
  Context &c_;
};

} // namespace neso::triton
