// Conversions between float formats: which step the pair of types takes. bf16 and f8 values are integers of their width
// here; f16 is LLVM's half.
#include "backend/common/float_convert.h"
#include "backend/cpu/emitter.h"
#include "ir/tile/tile.h"

namespace neso::cpu {

using llvm::Value;

Value *Emitter::convertFloat(Value *v, mlir::Type from, mlir::Type to, bool towardZero) {
  if (from == to) return v;
  FloatConverter c(b);
  // Up to f32 or f64.
  Value *wide = v;
  if (from.isF16())
    wide = b.CreateFPExt(v, c.shaped(v, b.getFloatTy()));
  else if (from.isBF16())
    wide = c.decodeBf16(v);
  else if (std::optional<F8Format> f = f8Format(from))
    wide = c.decodeF8(v, *f);
  // Down from there.
  if (to.isF64())
    return wide->getType()->getScalarType()->isDoubleTy() ? wide : b.CreateFPExt(wide, c.shaped(v, b.getDoubleTy()));
  if (wide->getType()->getScalarType()->isDoubleTy()) {
    if (to.isF32() && !towardZero) return b.CreateFPTrunc(wide, c.shaped(v, b.getFloatTy()));
    wide = towardZero ? c.toF32TowardZero(wide) : c.toOddF32(wide);
  }
  if (to.isF32()) return wide;
  if (to.isF16()) return towardZero ? c.encodeF16TowardZero(wide) : b.CreateFPTrunc(wide, c.shaped(v, b.getHalfTy()));
  if (to.isBF16()) return c.encodeBf16(wide, towardZero);
  if (std::optional<F8Format> f = f8Format(to)) return c.encodeF8(wide, *f, towardZero);
  return nullptr;
}

} // namespace neso::cpu
