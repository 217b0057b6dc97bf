// Formats, casts and random numbers.
#include "ir/loops/numeric.h"

#include <bit>
#include <cmath>
#include <limits>

namespace neso::loops {
namespace {

enum class Overflow { Infinity, NaN };
/// A binary format with `mantissa` stored bits and exponents from emin (normal) up; the largest finite code is maxCode.
struct Format {
  int bits, mantissa, emin;
  uint32_t maxCode; // of the magnitude
  uint32_t infCode; // 0 when there is none
  uint32_t nanCode;
  Overflow overflow;
  bool negativeZero;
};

const Format &formatOf(DType t) {
  static const Format f16{16, 10, -14, 0x7bff, 0x7c00, 0x7e00, Overflow::Infinity, true};
  static const Format bf16{16, 7, -126, 0x7f7f, 0x7f80, 0x7fc0, Overflow::Infinity, true};
  static const Format e4m3fn{8, 3, -6, 0x7e, 0, 0x7f, Overflow::NaN, true};
  static const Format e5m2{8, 2, -14, 0x7b, 0x7c, 0x7f, Overflow::Infinity, true};
  static const Format e4m3fnuz{8, 3, -7, 0x7f, 0, 0x80, Overflow::NaN, false};
  static const Format e5m2fnuz{8, 2, -15, 0x7f, 0, 0x80, Overflow::NaN, false};
  switch (t) {
  case DType::F16: return f16;
  case DType::BF16: return bf16;
  case DType::F8E4M3FN: return e4m3fn;
  case DType::F8E5M2: return e5m2;
  case DType::F8E4M3FNUZ: return e4m3fnuz;
  default: return e5m2fnuz;
  }
}

/// F8E8M0FNU has only exponents: 2^(code - 127), 255 is NaN.
uint32_t encodeE8M0(float v) {
  uint32_t bits = std::bit_cast<uint32_t>(v);
  uint32_t exponent = (bits >> 23) & 0xff;
  if (exponent == 0xff) return 0xff;
  // Round half up in the exponent as PyTorch does: guard bit with a non-zero sticky part, or an odd last bit.
  bool g = bits & 0x400000, r = bits & 0x200000, s = bits & 0x1fffff, l = exponent > 0;
  if (g && (r || s || l)) ++exponent;
  return exponent;
}

} // namespace

uint32_t encodeFloat(DType t, float value) {
  if (t == DType::F8E8M0FNU) return encodeE8M0(value);
  const Format &f = formatOf(t);
  uint32_t sign = std::signbit(value) ? 1u << (f.bits - 1) : 0;
  if (std::isnan(value)) return f.negativeZero ? (f.nanCode | sign) : f.nanCode;
  uint32_t code;
  double a = std::fabs(static_cast<double>(value));
  if (std::isinf(a)) {
    code = f.maxCode + 1;
  } else if (a == 0) {
    code = 0;
  } else {
    int e = std::max(std::ilogb(a), f.emin);
    double q = std::nearbyint(std::ldexp(a, f.mantissa - e)); // exact scaling, ties to even
    int64_t wide = static_cast<int64_t>(q) + (static_cast<int64_t>(e - f.emin) << f.mantissa);
    code = wide > static_cast<int64_t>(f.maxCode) ? f.maxCode + 1 : static_cast<uint32_t>(wide);
  }
  if (code > f.maxCode) {
    if (f.overflow == Overflow::NaN) return f.negativeZero ? (f.nanCode | sign) : f.nanCode;
    code = f.infCode;
  }
  if (code == 0 && !f.negativeZero) return 0;
  return code | sign;
}

float decodeFloat(DType t, uint32_t bits) {
  if (t == DType::F8E8M0FNU)
    return bits == 0xff ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, static_cast<int>(bits) - 127);
  if (t == DType::BF16) return std::bit_cast<float>(bits << 16);
  const Format &f = formatOf(t);
  uint32_t signBit = 1u << (f.bits - 1);
  if (!f.negativeZero && bits == f.nanCode) return std::numeric_limits<float>::quiet_NaN();
  uint32_t code = bits & (signBit - 1);
  float sign = bits & signBit ? -1.0f : 1.0f;
  if (code > f.maxCode)
    return f.infCode && code == f.infCode ? sign * std::numeric_limits<float>::infinity()
                                          : std::numeric_limits<float>::quiet_NaN();
  uint32_t exponent = code >> f.mantissa, m = code & ((1u << f.mantissa) - 1);
  float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(m), f.emin - f.mantissa)
                                  : std::ldexp(static_cast<float>(m | (1u << f.mantissa)),
                                               f.emin - f.mantissa + static_cast<int>(exponent) - 1);
  return sign * magnitude;
}

float roundTo(DType t, float value) { return isReducedFloat(t) ? decodeFloat(t, encodeFloat(t, value)) : value; }

int64_t wrapInt(DType t, int64_t v) {
  switch (t) {
  case DType::Bool: return v & 1;
  case DType::U8: return static_cast<uint8_t>(v);
  case DType::U16: return static_cast<uint16_t>(v);
  case DType::U32: return static_cast<uint32_t>(v);
  case DType::I8: return static_cast<int8_t>(v);
  case DType::I16: return static_cast<int16_t>(v);
  case DType::I32: return static_cast<int32_t>(v);
  default: return v;
  }
}

int64_t floatToInt(DType t, double v) {
  if (t == DType::U64 && v >= 9223372036854775808.0 && v < 18446744073709551616.0)
    return static_cast<int64_t>(static_cast<uint64_t>(v));
  bool fits = v >= -9223372036854775808.0 && v < 9223372036854775808.0;
  return wrapInt(t, fits ? static_cast<int64_t>(v) : INT64_MIN);
}

std::array<uint32_t, 4> philox(uint64_t seed, uint64_t offset) {
  std::array<uint32_t, 4> c = {static_cast<uint32_t>(offset), static_cast<uint32_t>(offset >> 32), 0, 0};
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    uint64_t p0 = uint64_t{0xD2511F53} * c[0], p1 = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

float uniformOf(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }

float normalOf(uint32_t first, uint32_t second) {
  double u0 = 1.0 - static_cast<double>(uniformOf(first)), u1 = static_cast<double>(uniformOf(second));
  return static_cast<float>(std::sqrt(-2.0 * std::log(u0)) * std::cos(6.283185307179586476925 * u1));
}

int64_t gcdInt(int64_t a, int64_t b) {
  uint64_t x = a < 0 ? 0 - static_cast<uint64_t>(a) : static_cast<uint64_t>(a),
           y = b < 0 ? 0 - static_cast<uint64_t>(b) : static_cast<uint64_t>(b);
  while (y) {
    uint64_t r = x % y;
    x = y;
    y = r;
  }
  return static_cast<int64_t>(x);
}

} // namespace neso::loops
