// Values of the simulated machine: bits, and what a type of LLVM says of them.
#pragma once
#include <bit>
#include <cstdint>
#include <functional>
#include <string>

#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/DerivedTypes.h"
#include "llvm/IR/InstrTypes.h"

namespace neso::nvidia::test {

/// One entry an element of a vector or struct; bits of the element, zero-extended.
using Bits = llvm::SmallVector<uint64_t, 2>;

inline unsigned widthOf(llvm::Type *type) {
  type = type->getScalarType();
  return type->isPointerTy() ? 64 : unsigned(type->getPrimitiveSizeInBits());
}
inline uint64_t maskOf(unsigned width) { return width >= 64 ? ~uint64_t(0) : (uint64_t(1) << width) - 1; }
inline int64_t signedOf(uint64_t x, unsigned width) {
  return width >= 64 ? int64_t(x) : int64_t(x << (64 - width)) >> (64 - width);
}
inline unsigned countOf(llvm::Type *type) {
  if (llvm::FixedVectorType *vector = llvm::dyn_cast<llvm::FixedVectorType>(type)) return vector->getNumElements();
  if (llvm::StructType *record = llvm::dyn_cast<llvm::StructType>(type)) return record->getNumElements();
  return 1;
}

inline double toDouble(uint64_t bits, llvm::Type *type) {
  type = type->getScalarType();
  if (type->isFloatTy()) return double(std::bit_cast<float>(uint32_t(bits)));
  if (type->isDoubleTy()) return std::bit_cast<double>(bits);
  llvm::APFloat value(type->getFltSemantics(), llvm::APInt(widthOf(type), bits));
  bool lost;
  value.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &lost);
  return value.convertToDouble();
}
inline uint64_t fromDouble(double x, llvm::Type *type) {
  type = type->getScalarType();
  if (type->isFloatTy()) return std::bit_cast<uint32_t>(float(x));
  if (type->isDoubleTy()) return std::bit_cast<uint64_t>(x);
  llvm::APFloat value(x);
  bool lost;
  value.convert(type->getFltSemantics(), llvm::APFloat::rmNearestTiesToEven, &lost);
  return value.bitcastToAPInt().getZExtValue();
}

/// Takes why a program cannot go on.
using Fail = std::function<void(const std::string &)>;

Bits bitcast(const Bits &from, llvm::Type *source, llvm::Type *target);
Bits castOf(llvm::CastInst &cast, const Bits &from, const Fail &fail);
uint64_t compareOf(llvm::CmpInst &op, uint64_t x, uint64_t y, const Fail &fail);
/// Of an operation on two numbers.
uint64_t binary(llvm::Instruction &op, uint64_t x, uint64_t y, const Fail &fail);

/// Of an operand of tensor cores, of a kind as instructions name it.
double operandElement(uint64_t bits, const std::string &kind);
/// Where rows of `span` bytes are permuted: bits 7 to 9 of the address into 4 to 6, fewer for shorter spans.
inline uint64_t permuted(uint64_t place, uint64_t span) { return place ^ (place >> 7 & (span / 16 - 1)) << 4; }
/// Where the descriptor of an operand in shared memory puts an element. turned: M or N runs along the rows of a panel, else K.
uint64_t placeOf(uint64_t descriptor, bool turned, uint64_t at, uint64_t k, uint64_t bytes);

} // namespace neso::nvidia::test
