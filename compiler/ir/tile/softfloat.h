// Numbers of the interpreter: every float type as a double that is exactly on that type's grid, every integer
// sign-extended.
#pragma once
#include <cstdint>

#include "mlir/IR/BuiltinTypes.h"

namespace neso::tile {

/// `value` rounded to `type` (to nearest, ties to even, or towards zero). Overflow gives infinity, or NaN in types
/// without one.
double roundTo(mlir::FloatType type, double value, bool towardsZero = false);
/// As roundTo, but a finite or infinite value beyond the largest number of an f8 type becomes that number.
double saturateTo(mlir::FloatType type, double value, bool towardsZero = false);
/// The largest finite number of `type`.
double largest(mlir::FloatType type);
/// Bits of a value that is on the type's grid, and back. At most 64 bits, in the low end.
uint64_t encode(mlir::FloatType type, double value);
double decode(mlir::FloatType type, uint64_t bits);
/// f32 with its mantissa cut to 10 bits, as tensor cores read it.
double cutToTf32(double value);

/// `value` wrapped to `width` bits and sign-extended; width 1 gives 0 or 1.
inline int64_t wrap(int64_t value, unsigned width) {
  if (width == 1) return value & 1;
  if (width >= 64) return value;
  return static_cast<int64_t>(static_cast<uint64_t>(value) << (64 - width)) >> (64 - width);
}
/// The unsigned reading of a wrapped integer.
inline uint64_t asUnsigned(int64_t value, unsigned width) {
  return width >= 64 ? static_cast<uint64_t>(value) : static_cast<uint64_t>(value) & ((uint64_t(1) << width) - 1);
}
/// The signed reading: differs from `value` only for width 1, whose 1 is -1.
inline int64_t asSigned(int64_t value, unsigned width) { return width == 1 ? -value : value; }

} // namespace neso::tile
