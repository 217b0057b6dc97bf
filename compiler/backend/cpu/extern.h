// Insides of extern.cpp: a library's function is one row, which says what it takes and computes it.
#pragma once
#include <optional>
#include <span>
#include <string>

#include "backend/common/math.h"
#include "ir/tile/library.h"
#include "llvm/IR/IRBuilder.h"

namespace neso::cpu {

/// One call. Operands and the result are scalars or vectors of as many lanes.
struct ExternCall {
  llvm::IRBuilder<> &b;
  MathEmitter &math;
  llvm::ArrayRef<llvm::Value *> args;
  llvm::Type *result;
  std::optional<directed::Rounding> rounding;

  llvm::Value *x() const { return args[0]; }
  llvm::Value *y() const { return args[1]; }
  llvm::Type *type() const { return args[0]->getType(); }
  bool isF64() const { return type()->getScalarType()->isDoubleTy(); }
  llvm::Value *number(double v) const { return llvm::ConstantFP::get(type(), v); }
  llvm::Value *unary(llvm::Intrinsic::ID id) const { return b.CreateUnaryIntrinsic(id, args[0]); }
  llvm::Value *binary(llvm::Intrinsic::ID id) const { return b.CreateBinaryIntrinsic(id, args[0], args[1]); }
  /// An integer type of as many lanes and bits as `like` has.
  llvm::Type *bitsOf(llvm::Type *like) const { return like->getWithNewType(b.getIntNTy(like->getScalarSizeInBits())); }
};

struct ExternRow {
  tile::LibraryFn fn;
  /// How many operands, and whether the first is a float ('f'), an integer ('i') or either ('*').
  int arguments;
  char kind;
  llvm::Value *(*emit)(const ExternCall &);
};

/// What gives floats (extern_floats.cpp), and what looks at floats or joins integers (extern_integers.cpp).
std::span<const ExternRow> externFloats();
std::span<const ExternRow> externIntegers();

} // namespace neso::cpu
