// One operation on elements as LLVM instructions, on scalars and vectors alike, for every machine: the rows of
// scalar_ops.def and what is made of a few instructions. A back end asks here for all that its machine does not do in a
// way of its own.
//
//     arith.addi   add             arith.floordivsi   the machine's quotient, put right where it was not exact
//     arith.shli   shl, and zero for a shift by the width or more, which LLVM leaves open
#pragma once
#include <optional>

#include "backend/common/math.h"
#include "backend/common/opcodes.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace neso {

/// x / y or its remainder, as `code` says: DivSI, DivUI, RemSI or RemUI.
using DivideFn = llvm::function_ref<llvm::Value *(OpCode code, llvm::Value *x, llvm::Value *y)>;

/// Operations on integers and pointers, and those that move elements of any type: args are the operands' elements as
/// the machine holds them, `type` is the result's. nullptr: not one of them, or each machine has a way of its own.
llvm::Value *emitIntegerOp(llvm::IRBuilder<> &b, mlir::Operation *op, OpCode code, llvm::ArrayRef<llvm::Value *> args,
                           llvm::Type *type, DivideFn divide);

/// Operations on floats, which come as f32 or f64. nullptr as above.
llvm::Value *emitFloatOp(llvm::IRBuilder<> &b, mlir::Operation *op, OpCode code, llvm::ArrayRef<llvm::Value *> args);

/// The elementary function that an operation is; of one that is marked as approximate (afn) the cheaper form of it, if there is one.
std::optional<MathFn> functionOf(OpCode code);
std::optional<MathFn> functionOf(mlir::Operation *op, OpCode code);

/// Quotient or remainder of two scalars where the machine divides integers. No operands trap, since a masked-off
/// element may hold any: a zero divisor counts as one, and the smallest number over -1 wraps.
llvm::Value *divideScalars(llvm::IRBuilder<> &b, OpCode code, llvm::Value *x, llvm::Value *y);

/// Low and high half of a product of twice the width (MulSIExtended, MulUIExtended).
std::pair<llvm::Value *, llvm::Value *> emitExtendedProduct(llvm::IRBuilder<> &b, OpCode code, llvm::Value *x,
                                                            llvm::Value *y);

} // namespace neso
