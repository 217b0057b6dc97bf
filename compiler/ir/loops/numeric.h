// Exact scalar arithmetic for the interpreters: reduced float formats, integer wrapping, casts, Philox, special
// functions.
//
// Reduced floats round to nearest, ties to even. Overflow follows PyTorch: F16 and F8E5M2 give infinity, the other FP8
// formats NaN. Special functions are computed in double with about 1e-14 relative error, so that they can judge f32
// code.
#pragma once
#include <array>
#include <cstdint>

#include "base/dtype.h"
#include "base/polynomials.h"
#include "base/special.h"

namespace neso::loops {

/// Bits of `value` in the reduced float format t.
uint32_t encodeFloat(DType t, float value);
/// The exact value of a bit pattern of the reduced float format t.
float decodeFloat(DType t, uint32_t bits);
/// value rounded to t's grid; t may be any float type (F32: the value itself).
float roundTo(DType t, float value);
/// The low bits of v, sign- or zero-extended, as an integer type holds them. U64 keeps its bits. Bool is v & 1.
int64_t wrapInt(DType t, int64_t v);
/// The element at `at`: an integer's or Bool's value (of U64 its bits); a real type's as a double.
int64_t readInteger(DType t, const uint8_t *at);
double readElement(DType t, const uint8_t *at);
/// Truncation as x86 does it: NaN and what does not fit give INT64_MIN; then wrapped to t.
int64_t floatToInt(DType t, double v);

/// Philox 4x32-10 with key = seed, counter = (offset low, offset high, 0, 0).
std::array<uint32_t, 4> philox(uint64_t seed, uint64_t offset);
/// Top 24 bits over 2^24: in [0, 1).
float uniformOf(uint32_t bits);
/// Box-Muller, u0 and u1 the uniform numbers of the two words: sqrt(-2 ln(1 - u0)) * cos(2 pi u1).
float normalOf(uint32_t first, uint32_t second);

using namespace special; // erfinv, digamma, the Bessel functions, …
int64_t gcdInt(int64_t a, int64_t b);

} // namespace neso::loops
