// Formats, casts and random numbers.
#include "ir/loops/numeric.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace neso::loops {
namespace {

/// What an integer of that many bits keeps of a value.
int64_t wrapBits(int64_t v, int64_t bits, bool isSigned) {
  const int unused = static_cast<int>(64 - bits);
  const uint64_t shifted = static_cast<uint64_t>(v) << unused;
  return isSigned ? static_cast<int64_t>(shifted) >> unused : static_cast<int64_t>(shifted >> unused);
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
  const FloatFormat &f = floatFormat(t);
  if (f.zeros == 0) return encodeE8M0(value);
  const uint32_t sign = std::signbit(value) ? 1u << (itemSize(t) * 8 - 1) : 0, largest = static_cast<uint32_t>(f.largest);
  const uint32_t nan = f.zeros == 2 ? static_cast<uint32_t>(f.nan) | sign : static_cast<uint32_t>(f.nan);
  if (std::isnan(value)) return nan;
  uint32_t code;
  double a = std::fabs(static_cast<double>(value));
  if (std::isinf(a)) {
    code = largest + 1;
  } else if (a == 0) {
    code = 0;
  } else {
    int e = std::max(std::ilogb(a), f.leastExponent);
    double q = std::nearbyint(std::ldexp(a, f.mantissa - e)); // exact scaling, ties to even
    int64_t wide = static_cast<int64_t>(q) + (static_cast<int64_t>(e - f.leastExponent) << f.mantissa);
    code = wide > static_cast<int64_t>(largest) ? largest + 1 : static_cast<uint32_t>(wide);
  }
  // What is too large becomes infinity, or NaN where there is none.
  if (code > largest) return f.infinity ? static_cast<uint32_t>(f.infinity) | sign : nan;
  if (code == 0 && f.zeros == 1) return 0;
  return code | sign;
}

float decodeFloat(DType t, uint32_t bits) {
  if (t == DType::BF16) return std::bit_cast<float>(bits << 16);
  const FloatFormat &f = floatFormat(t);
  if (f.zeros < 2 && bits == f.nan) return std::numeric_limits<float>::quiet_NaN();
  if (f.zeros == 0) return std::ldexp(1.0f, static_cast<int>(bits) + f.leastExponent);
  const uint32_t signBit = 1u << (itemSize(t) * 8 - 1);
  uint32_t code = bits & (signBit - 1);
  float sign = bits & signBit ? -1.0f : 1.0f;
  if (code > f.largest)
    return f.infinity && code == f.infinity ? sign * std::numeric_limits<float>::infinity()
                                            : std::numeric_limits<float>::quiet_NaN();
  uint32_t exponent = code >> f.mantissa, m = code & ((1u << f.mantissa) - 1);
  float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(m), f.leastExponent - f.mantissa)
                                  : std::ldexp(static_cast<float>(m | (1u << f.mantissa)),
                                               f.leastExponent - f.mantissa + static_cast<int>(exponent) - 1);
  return sign * magnitude;
}

float roundTo(DType t, float value) { return isReducedFloat(t) ? decodeFloat(t, encodeFloat(t, value)) : value; }

int64_t wrapInt(DType t, int64_t v) {
  if (t == DType::Bool) return v & 1;
  return isInteger(t) ? wrapBits(v, itemSize(t) * 8, isSignedInt(t)) : v;
}

int64_t readInteger(DType t, const uint8_t *at) {
  if (t == DType::Bool) return *at != 0;
  uint64_t bits = 0;
  std::memcpy(&bits, at, static_cast<size_t>(itemSize(t)));
  return wrapInt(t, static_cast<int64_t>(bits));
}

double readElement(DType t, const uint8_t *at) {
  if (!isFloat(t)) {
    const int64_t v = readInteger(t, at);
    return isUnsignedInt(t) ? static_cast<double>(static_cast<uint64_t>(v)) : static_cast<double>(v);
  }
  uint64_t bits = 0;
  std::memcpy(&bits, at, static_cast<size_t>(itemSize(t)));
  if (itemSize(t) == 8) return std::bit_cast<double>(bits);
  if (itemSize(t) == 4) return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  return static_cast<double>(decodeFloat(t, static_cast<uint32_t>(bits)));
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
