// Float formats of 8 and 16 bits by integer arithmetic, exact and rounded to nearest even (or toward zero where asked),
// on scalars and vectors of LLVM values. bf16 and f8 values are integers of their width here; f16 is LLVM's half.
#pragma once
#include <optional>

#include "mlir/IR/Types.h"
#include "llvm/IR/IRBuilder.h"

namespace neso {

/// An 8-bit float format. `nan` is the code of NaN without sign; fnuz formats have one NaN (0x80) and no negative zero.
struct F8Format {
  int mantissa, bias, maxCode, nan;
  bool fnuz;
};
/// Nothing for a type that is no 8-bit float.
std::optional<F8Format> f8Format(mlir::Type t);

class FloatConverter {
public:
  explicit FloatConverter(llvm::IRBuilder<> &builder) : b(builder) {}
  /// To f32.
  llvm::Value *decodeF8(llvm::Value *v, const F8Format &f);
  llvm::Value *decodeBf16(llvm::Value *v);
  /// Of LLVM's half and to it, for processors without instructions for that.
  llvm::Value *decodeF16(llvm::Value *v);
  llvm::Value *encodeF16(llvm::Value *v);
  /// From f32. Out-of-range values become the largest finite one, as the GPU instructions (satfinite) do.
  llvm::Value *encodeF8(llvm::Value *v, const F8Format &f, bool towardZero = false);
  llvm::Value *encodeBf16(llvm::Value *v, bool towardZero);
  /// Four bits (e2m1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and a sign) in the low end of an i32, other bits ignored; to f32.
  llvm::Value *decodeFp4(llvm::Value *v);
  /// From f32 to those; what is too large, infinite or NaN becomes 6, NaN without its sign, as PTX's satfinite does.
  llvm::Value *encodeFp4(llvm::Value *v);
  /// |result| <= |v|, for rounding toward zero to f16.
  llvm::Value *encodeF16TowardZero(llvm::Value *v);
  /// f64 → f32 so that a later rounding to a narrower type is right: inexact results get an odd last bit.
  llvm::Value *toOddF32(llvm::Value *v);
  /// f64 → f32 by dropping what does not fit.
  llvm::Value *toF32TowardZero(llvm::Value *v);
  /// `element`, or the vector of it with the lanes of `like`.
  llvm::Type *shaped(llvm::Value *like, llvm::Type *element);

private:
  llvm::Value *ci(llvm::Value *like, int64_t c);
  llvm::Value *bitsOf(llvm::Value *f32) { return b.CreateBitCast(f32, shaped(f32, b.getInt32Ty())); }
  llvm::Value *floatOf(llvm::Value *i32) { return b.CreateBitCast(i32, shaped(i32, b.getFloatTy())); }
  llvm::IRBuilder<> &b;
};

} // namespace neso
