// Conversions between float formats: by the chip's instructions where it has them, else by integer arithmetic.
#include "backend/common/float_convert.h"
#include "backend/nvidia/emitter.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/IR/InlineAsm.h"

namespace neso::nvidia {

using llvm::Value;

namespace {
/// "e4m3x2" of the formats that the hardware converts; null for others.
const char *hardwareF8(mlir::Type t) {
  if (llvm::isa<mlir::Float8E4M3FNType>(t)) return "e4m3x2";
  if (llvm::isa<mlir::Float8E5M2Type>(t)) return "e5m2x2";
  return nullptr;
}

Value *pureAsm(llvm::IRBuilder<> &b, llvm::Type *result, const std::string &text, const char *constraints, Value *x) {
  auto *type = llvm::FunctionType::get(result, {x->getType()}, false);
  llvm::CallInst *call = b.CreateCall(type, llvm::InlineAsm::get(type, text, constraints, false), {x});
  call->setDoesNotThrow();
  call->setDoesNotAccessMemory();
  return call;
}
} // namespace

Value *Emitter::convertFloat(Value *v, mlir::Type from, mlir::Type to, bool towardZero) {
  if (from == to) return v;
  FloatConverter c(b);
  const bool hardware = chip_.has(Feature::CvtF8);
  llvm::Type *f32 = b.getFloatTy();
  // Up to f32 or f64.
  Value *wide = v;
  if (from.isF16() || from.isBF16()) {
    wide = b.CreateFPExt(v, f32);
  } else if (std::optional<F8Format> f = f8Format(from)) {
    if (const char *name = hardwareF8(from); name && hardware) {
      Value *pair = pureAsm(b, b.getInt32Ty(), std::string("cvt.rn.f16x2.") + name + " $0, $1;", "=r,h",
                            b.CreateZExt(v, b.getInt16Ty()));
      wide = b.CreateFPExt(b.CreateBitCast(b.CreateTrunc(pair, b.getInt16Ty()), b.getHalfTy()), f32);
    } else
      wide = c.decodeF8(v, *f);
  }
  // Down from there.
  if (to.isF64()) return wide->getType()->isDoubleTy() ? wide : b.CreateFPExt(wide, b.getDoubleTy());
  if (wide->getType()->isDoubleTy()) {
    if (to.isF32() && !towardZero) return b.CreateFPTrunc(wide, f32);
    wide = towardZero ? c.toF32TowardZero(wide) : c.toOddF32(wide);
  }
  if (to.isF32()) return wide;
  if (to.isF16()) return towardZero ? c.encodeF16TowardZero(wide) : b.CreateFPTrunc(wide, b.getHalfTy());
  if (to.isBF16()) {
    if (towardZero) return b.CreateBitCast(c.encodeBf16(wide, true), b.getBFloatTy());
    return b.CreateFPTrunc(wide, b.getBFloatTy());
  }
  if (std::optional<F8Format> f = f8Format(to)) {
    const char *name = hardwareF8(to);
    // The instruction rounds to the nearest alone.
    if (!name || !hardware || towardZero) return c.encodeF8(wide, *f, towardZero);
    Value *pair =
        pureAsm(b, b.getInt16Ty(), std::string("cvt.rn.satfinite.") + name + ".f32 $0, 0f00000000, $1;", "=h,f", wide);
    return b.CreateTrunc(pair, b.getInt8Ty());
  }
  return nullptr;
}

} // namespace neso::nvidia
