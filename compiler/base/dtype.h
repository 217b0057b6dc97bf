// Element types of tensors, shared by every IR: the rows of abi/dtypes.def as values. Names follow PyTorch; bit layouts are IEEE 754, bfloat16
// and OCP FP8.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace neso {

enum class DType : uint8_t {
#define NESO_DTYPE(name, ...) name,
#include "abi/dtypes.def"
};
inline constexpr int kDTypeCount = 0
#define NESO_DTYPE(...) +1
#include "abi/dtypes.def"
    ;

/// Bytes of one element; a complex element counts both parts.
int64_t itemSize(DType t);
bool isFloat(DType t); // real floating point, FP8 included
bool isComplex(DType t);
bool isSignedInt(DType t);
bool isUnsignedInt(DType t);  // without Bool
bool isInteger(DType t);      // signed or unsigned, without Bool
bool isReducedFloat(DType t); // F16, BF16 and FP8: arithmetic is done in F32 and rounded
/// The real type of a complex type's parts; the type itself otherwise.
DType toReal(DType t);
/// The complex type whose parts have that type, C64 where there is none; a complex type itself.
DType toComplex(DType t);
/// The integer of `bytes` bytes (1, 2, 4 or 8).
DType integerOf(bool isSigned, int64_t bytes);
/// PyTorch's promotion of two tensor dtypes of the same category rank (c10::promoteTypes).
DType promote(DType a, DType b);
/// The type that ATen computes in ("opmath"): F32 for reduced floats, else the type itself.
DType computeType(DType t);
/// The least and the greatest value, as exactly as a double has it: of a float the finite ones; [0, 1] for Bool. Not of complex types.
double leastOf(DType t);
double greatestOf(DType t);
/// The least positive number that keeps all its bits, of a float (torch.finfo(t).tiny).
double leastNormalOf(DType t);

/// Short name as used in printed IR: "f32", "bf16", "i64", "u8", "bool", "c64", "f8e4m3fn".
std::string_view name(DType t);
/// The names of others; "" where they have none. In safetensors ("F32", "BOOL"), in NumPy ("f4"), in a Triton kernel's signature ("fp32", "i1"),
/// in the tile IR ("f32", "i1", "f8E4M3FN", which knows no signs).
std::string_view safetensorsName(DType t);
std::string_view numpyName(DType t);
std::string_view tritonName(DType t);
std::string_view tileName(DType t);
/// The type of which such a function says that text, by the order of the table; nullopt for "" and what is no type.
std::optional<DType> dtypeNamed(std::string_view text, std::string_view (*nameOf)(DType) = name);
/// PyTorch's number in a .pt2, and the type of that number.
int torchNumber(DType t);
std::optional<DType> dtypeOfTorch(int64_t number);

/// How a float's bits are read (NESO_FLOAT of abi/dtypes.def).
struct FloatFormat {
  int mantissa, leastExponent;
  // Codes without the sign; infinity 0: none.
  uint64_t largest, infinity, nan;
  // 2: signed, 1: the code of a negative zero is the NaN, 0: powers of two alone, without sign.
  int zeros;
};
/// Of a float.
const FloatFormat &floatFormat(DType t);

} // namespace neso
