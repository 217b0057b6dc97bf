#include "base/dtype.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace neso {
namespace {

enum class Kind : uint8_t { BOOL, UNSIGNED, SIGNED, FLOAT, COMPLEX };
struct Row {
  std::string_view name;
  Kind kind;
  int bits;
  DType part;
  int torchNumber;
  std::string_view safetensors, numpy, triton;
};
constexpr std::array<Row, kDTypeCount> kRows = {{
#define NESO_DTYPE(name, NAME, text, kind, bits, part, torch, number, safetensors, numpy, buffer, dlpack, triton)                                     \
  {text, Kind::kind, bits, DType::part, number, safetensors, numpy, triton},
#include "abi/dtypes.def"
}};
struct FloatRow {
  DType type;
  std::string_view tile;
  FloatFormat format;
};
constexpr FloatRow kFloats[] = {
#define NESO_FLOAT(name, mlir, tile, mantissa, exponent, largest, infinity, nan, zeros)                                                               \
  {DType::name, tile, {mantissa, exponent, largest, infinity, nan, zeros}},
#include "abi/dtypes.def"
};

constexpr const Row &row(DType t) { return kRows[static_cast<size_t>(t)]; }
constexpr const FloatRow *findFloat(DType t) {
  for (const FloatRow &f : kFloats)
    if (f.type == t) return &f;
  return nullptr;
}
// Where a type's row stands among the floats'; looked up for every element that an interpreter rounds.
constexpr std::array<const FloatRow *, kDTypeCount> kFloatOf = [] {
  std::array<const FloatRow *, kDTypeCount> out{};
  for (int t = 0; t < kDTypeCount; ++t) out[static_cast<size_t>(t)] = findFloat(static_cast<DType>(t));
  return out;
}();
constexpr bool everyFloatHasAFormat() {
  for (int t = 0; t < kDTypeCount; ++t)
    if ((kRows[static_cast<size_t>(t)].kind == Kind::FLOAT) != (findFloat(static_cast<DType>(t)) != nullptr)) return false;
  return true;
}
static_assert(everyFloatHasAFormat(), "abi/dtypes.def: a FLOAT has a row of NESO_FLOAT, and no other type has");

DType promoteFloat(DType a, DType b) {
  if (a == b) return a;
  // Two different floats below F32 (f16 with bf16, any FP8 with another) meet in F32, as c10::promoteTypes has it for
  // f16 with bf16; FP8 with a wider float takes the wider one.
  if (isReducedFloat(a) && isReducedFloat(b)) {
    if (itemSize(a) != itemSize(b)) return itemSize(a) > itemSize(b) ? a : b;
    return DType::F32;
  }
  return itemSize(a) > itemSize(b) ? a : b;
}

DType promoteInt(DType a, DType b) {
  if (a == b) return a;
  if (isSignedInt(a) == isSignedInt(b)) return itemSize(a) >= itemSize(b) ? a : b;
  DType s = isSignedInt(a) ? a : b, u = isSignedInt(a) ? b : a;
  if (itemSize(s) > itemSize(u)) return s;
  return integerOf(true, std::min<int64_t>(itemSize(u) * 2, 8));
}

} // namespace

int64_t itemSize(DType t) { return row(t).bits / 8; }
bool isFloat(DType t) { return row(t).kind == Kind::FLOAT; }
bool isComplex(DType t) { return row(t).kind == Kind::COMPLEX; }
bool isSignedInt(DType t) { return row(t).kind == Kind::SIGNED; }
bool isUnsignedInt(DType t) { return row(t).kind == Kind::UNSIGNED; }
bool isInteger(DType t) { return isSignedInt(t) || isUnsignedInt(t); }
bool isReducedFloat(DType t) { return isFloat(t) && row(t).bits < 32; }

DType toReal(DType t) { return row(t).part; }

DType toComplex(DType t) {
  if (isComplex(t)) return t;
  for (int c = 0; c < kDTypeCount; ++c)
    if (DType complex = static_cast<DType>(c); isComplex(complex) && toReal(complex) == t) return complex;
  return DType::C64;
}

DType integerOf(bool isSigned, int64_t bytes) {
  const Kind kind = isSigned ? Kind::SIGNED : Kind::UNSIGNED;
  DType out = DType::I64;
  for (int t = 0; t < kDTypeCount; ++t)
    if (const Row &r = kRows[static_cast<size_t>(t)]; r.kind == kind && r.bits == bytes * 8) out = static_cast<DType>(t);
  return out;
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (isComplex(a) || isComplex(b)) {
    DType f = promote(toReal(a), toReal(b));
    if (!isFloat(f)) f = isComplex(a) ? toReal(a) : toReal(b);
    return toComplex(f);
  }
  if (isFloat(a) || isFloat(b)) {
    if (!isFloat(a)) return b;
    if (!isFloat(b)) return a;
    return promoteFloat(a, b);
  }
  if (a == DType::Bool) return b;
  if (b == DType::Bool) return a;
  return promoteInt(a, b);
}

DType computeType(DType t) {
  if (isComplex(t)) return toComplex(computeType(toReal(t)));
  return isReducedFloat(t) ? DType::F32 : t;
}

double greatestOf(DType t) {
  if (isFloat(t)) {
    const FloatFormat &f = floatFormat(t);
    const uint64_t exponent = f.largest >> f.mantissa, fraction = f.largest & ((uint64_t(1) << f.mantissa) - 1);
    const int least = f.zeros ? f.leastExponent - 1 : f.leastExponent;
    return std::ldexp(1 + std::ldexp(static_cast<double>(fraction), -f.mantissa), static_cast<int>(exponent) + least);
  }
  if (t == DType::Bool) return 1;
  return std::ldexp(1.0, row(t).bits - isSignedInt(t)) - (itemSize(t) < 8);
}

double leastOf(DType t) {
  if (isFloat(t)) return floatFormat(t).zeros ? -greatestOf(t) : std::ldexp(1.0, floatFormat(t).leastExponent);
  return isSignedInt(t) ? -std::ldexp(1.0, row(t).bits - 1) : 0;
}

double leastNormalOf(DType t) { return std::ldexp(1.0, floatFormat(t).leastExponent); }

std::string_view name(DType t) { return row(t).name; }
std::string_view safetensorsName(DType t) { return row(t).safetensors; }
std::string_view numpyName(DType t) { return row(t).numpy; }
std::string_view tritonName(DType t) { return row(t).triton; }
std::string_view tileName(DType t) {
  if (const FloatRow *f = findFloat(t)) return f->tile;
  if (t == DType::Bool) return "i1";
  return isInteger(t) ? name(integerOf(true, itemSize(t))) : "";
}

std::optional<DType> dtypeNamed(std::string_view text, std::string_view (*nameOf)(DType)) {
  for (int t = 0; t < kDTypeCount && !text.empty(); ++t)
    if (nameOf(static_cast<DType>(t)) == text) return static_cast<DType>(t);
  return std::nullopt;
}

int torchNumber(DType t) { return row(t).torchNumber; }
std::optional<DType> dtypeOfTorch(int64_t number) {
  for (int t = 0; t < kDTypeCount; ++t)
    if (kRows[static_cast<size_t>(t)].torchNumber == number) return static_cast<DType>(t);
  return std::nullopt;
}

const FloatFormat &floatFormat(DType t) { return kFloatOf[static_cast<size_t>(t)]->format; }

} // namespace neso
