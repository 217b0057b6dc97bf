// Triton's types as the front end tracks them: element types with signedness (which the IR forgets), pointers, and
// block shapes.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace neso::triton {

/// Element types, named as triton.language names them.
enum class DT : uint8_t {
  Void,
  I1,
  I8,
  I16,
  I32,
  I64,
  U8,
  U16,
  U32,
  U64,
  F8E4B15,
  F8E4NV,
  F8E4B8,
  F8E5,
  F8E5B16,
  F16,
  BF16,
  F32,
  F64
};

/// An element: a plain type, or a pointer (ptrDepth 1), or a pointer to pointers (2) to `base`.
struct Scalar {
  DT base = DT::Void;
  uint8_t ptrDepth = 0;
  bool isConst = false; // a pointer that may not be stored to

  bool isPtr() const { return ptrDepth > 0; }
  bool isFloat() const { return !isPtr() && base >= DT::F8E4B15; }
  bool isFp8() const { return !isPtr() && base >= DT::F8E4B15 && base <= DT::F8E5B16; }
  bool isStandardFloat() const { return !isPtr() && base >= DT::F16; }
  bool isInt() const { return !isPtr() && base >= DT::I1 && base <= DT::U64; }
  bool isSigned() const { return !isPtr() && base >= DT::I8 && base <= DT::I64; }
  bool isUnsigned() const { return isInt() && !isSigned(); } // bool counts as unsigned, as in Triton
  bool isBool() const { return !isPtr() && base == DT::I1; }
  bool is(DT t) const { return !isPtr() && base == t; }
  Scalar pointee() const { return {base, static_cast<uint8_t>(ptrDepth - 1), false}; }
  Scalar pointer(bool constant = false) const { return {base, static_cast<uint8_t>(ptrDepth + 1), constant}; }
  /// Bits of one element: 64 for a pointer, 1 for bool.
  int bits() const;
  /// Mantissa bits, to order floats in true division.
  int mantissa() const;
  /// Triton's name: "int32", "fp16", "pointer<fp32>".
  std::string str() const;
  friend bool operator==(const Scalar &, const Scalar &) = default;
};
inline Scalar scalar(DT t) { return {t, 0, false}; }

/// The type of a run-time value: a scalar, or a block when `shape` is not empty.
struct Type {
  Scalar element;
  std::vector<int64_t> shape;

  bool isBlock() const { return !shape.empty(); }
  int64_t numel() const {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    return n;
  }
  Type with(Scalar s) const { return {s, shape}; }
  /// Triton's name: "int32", "<[16, 32], fp32>".
  std::string str() const;
  friend bool operator==(const Type &, const Type &) = default;
};

/// "float32", "fp32", "int1", "pointer", … as attributes of triton.language name them; nullopt when it is no type.
std::optional<DT> parseLanguageType(std::string_view name);
/// The short spelling of signatures: "fp32", "i64", "u8", "bf16", "fp8e4nv", "B"; nullopt when it is no type.
std::optional<DT> parseSignatureType(std::string_view name);
/// Inclusive range of an integer type.
__int128 minOf(DT t);
__int128 maxOf(DT t);

} // namespace neso::triton
