// Element types of tensors, shared by every IR. Names follow PyTorch; bit layouts are IEEE 754, bfloat16 and OCP FP8.
#pragma once
#include <cstdint>
#include <string_view>

namespace neso {

enum class DType : uint8_t {
  Bool, // one byte, 0 or 1
  U8,
  U16,
  U32,
  U64,
  I8,
  I16,
  I32,
  I64,
  F8E4M3FN,
  F8E5M2,
  F8E4M3FNUZ,
  F8E5M2FNUZ,
  F8E8M0FNU,
  F16,
  BF16,
  F32,
  F64,
  C32,
  C64,
  C128, // complex of two F16, F32, F64: real part first
};
inline constexpr int kDTypeCount = static_cast<int>(DType::C128) + 1;

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
/// PyTorch's promotion of two tensor dtypes of the same category rank (c10::promoteTypes).
DType promote(DType a, DType b);
/// The type that ATen computes in ("opmath"): F32 for reduced floats, else the type itself.
DType computeType(DType t);

/// Short name as used in printed IR: "f32", "bf16", "i64", "u8", "bool", "c64", "f8e4m3fn".
std::string_view name(DType t);
/// The name that safetensors uses ("F32", "BF16", "I64", "BOOL", "C64"); C128 and C32 have none.
std::string_view safetensorsName(DType t);

} // namespace neso
