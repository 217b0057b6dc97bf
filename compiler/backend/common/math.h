// Elementary functions as LLVM IR, on scalars and vectors alike.
//
// f32, and vectors of f64 for common functions (math_f64.h): inline polynomials, at most 2 ulp over all inputs (denormals,
// infinities and NaN included), checked against libm in test/math_test. Others: one libm call a lane, inside a helper
// function with a loop, so that code stays small. Coefficients are interpolations in Chebyshev points of the function
// named beside them, computed with 40 digits and rounded, where nothing else is said.
#pragma once
#include <optional>
#include <string>
#include <utility>

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/IR/IRBuilder.h"

namespace neso {

enum class MathFn : uint8_t {
  Exp,
  ExpOrZero, // exp, of f32 0 where it is below 2^-125 and to 3 ulp + |x| / 20 ulp, less than x is rounded by
  Exp2,
  Exp2OrZero, // exp2, of f32 0 where it is below 2^-125
  Exp10,
  ExpM1,
  Log,
  Log2,
  Log10,
  Log1p,
  Sin,
  Cos,
  Tan,
  Sinh,
  Cosh,
  Tanh,
  Asin,
  Acos,
  Atan,
  Asinh,
  Acosh,
  Atanh,
  Atan2,
  Erf,
  Erfc,
  ErfcBesideOne, // erfc, of f32 to 2.2e-7, whatever its size
  Pow,
  Cbrt,
  Fmod,
  LGamma,
  TGamma,
  Hypot,
  ErfInv,
  J0,
  J1,
  Y0,
  Y1,
  Nextafter,
  Remainder,
  // Only as f32: of other types these are functions of the special library.
  I0,
  I1,
  I0e,
  I1e,
  NdtrI,
};

/// By its name in C and in libdevice without its prefix ("exp", "atan2"); nothing: no such function here.
std::optional<MathFn> mathFnOf(llvm::StringRef name);
/// The functions of the special library that f32 has inline, by the library's names ("i0e", "ndtri").
std::optional<MathFn> inlineSpecialOf(llvm::StringRef name);

/// q, from the highest power down, of erfc(a) = 2^(a q(a)), a >= 0 (ErfcBesideOne).
inline constexpr double kErfcPower[] = {-0x1.7c7edc0000000p-15, 0x1.d326120000000p-12, -0x1.8672c20000000p-10, -0x1.9620f60000000p-11,
                                        0x1.cee8860000000p-6,   -0x1.3017200000000p-3, -0x1.d63aac0000000p-1,  -0x1.a0be9e0000000p+0};

class MathEmitter {
public:
  /// `scales`: the machine has AVX-512's vscalef.
  explicit MathEmitter(llvm::IRBuilder<> &builder, bool scales = false) : b(builder), scales_(scales) {}
  /// Operands are float or double, scalar or vector, all of one type.
  llvm::Value *emit(MathFn fn, llvm::ArrayRef<llvm::Value *> args);
  /// One call of the libm function `name` (its double form; "f" is appended for float) a lane.
  llvm::Value *libm(llvm::StringRef name, llvm::ArrayRef<llvm::Value *> args);
  /// One call for each `width` lanes of a function that takes pointers to the result's and the operands' lanes; `symbol` as in
  /// libm, "_v" and the width are appended. The operands are vectors of a multiple of that many lanes.
  llvm::Value *onVectors(llvm::StringRef symbol, unsigned width, llvm::ArrayRef<llvm::Value *> args);

private:
  using V = llvm::Value *;
  /// Calls a helper whose loop runs `body` at every `step` lanes of the result and the operands in memory.
  V throughMemory(const std::string &helper, llvm::ArrayRef<V> args, unsigned step,
                  llvm::function_ref<void(llvm::IRBuilder<> &, llvm::ArrayRef<V> at)> body);
  V exp(V x);
  V expOrZero(V x);
  V exp2(V x);
  V exp2OrZero(V x);
  std::pair<V, V> powerOf(V x);
  std::pair<V, V> reducedOf(V x);
  V expOfReduced(V r);
  V expWithin(V x, V none);
  V exp2Within(V x, V none);
  V scaledByPower(V p, V n, V k, V none);
  V scaledBy(V x, V k, V none);
  V expFromReduced(V r, V n);
  V expm1(V x);
  V tanh(V x);
  V erf(V x);
  V erfc(V x);
  V erfcBesideOne(V x);
  /// Sine and cosine of |x| less the nearest multiple of a quarter turn, in double, and the number of quarters.
  struct Turned {
    V sine, cosine, quarter, notFinite;
  };
  Turned quarterTurns(V x);
  llvm::GlobalVariable *quarterTable();
  V sinCos(V x, bool cosine);
  V tan(V x);
  V asinAcos(V x, bool cosine);
  V areaFunction(MathFn fn, V x);
  V besselI(MathFn fn, V x);
  V ndtri(V x);
  V nextafter(V x, V y);
  V fmod(V x, V y);
  void fmodBody(llvm::Function *helper, V x, V y);
  V log(V x);
  V atan(V x);
  V atan2(V y, V x);
  V pow(V x, V y);
  /// log in double precision of a positive finite double (relative error 2^-45); x scalar or vector of double.
  V logDouble(V x);
  V exp2Double(V x);
  /// e^x of doubles, to 1 unit in the last place everywhere.
  V expDouble(V x);
  V logFamily(MathFn fn, V x);

  V like(V x, double c);
  V likeInt(V x, int64_t c);
  llvm::Type *intType(V x);
  llvm::Type *floatType(V x);
  llvm::Type *doubleType(V x);
  V poly(V x, llvm::ArrayRef<double> highToLow);
  V fma(V a, V b2, V c);
  V bits(V x) { return b.CreateBitCast(x, intType(x)); }
  V unary(unsigned intrinsic, V x);
  llvm::IRBuilder<> &b;
  bool scales_;
};

} // namespace neso
