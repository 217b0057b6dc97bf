#include "frontend/triton/types.h"

#include <array>

namespace neso::triton {
namespace {

struct Row {
  DT type;
  std::string_view name;      // Triton's own name, as printed
  std::string_view language;  // as an attribute of triton.language
  std::string_view signature; // as in a kernel's signature
  int bits;
  int mantissa;
};
constexpr std::array<Row, 19> kRows = {{{DT::Void, "void", "void", "", 0, 0},
                                        {DT::I1, "int1", "int1", "i1", 1, 0},
                                        {DT::I8, "int8", "int8", "i8", 8, 0},
                                        {DT::I16, "int16", "int16", "i16", 16, 0},
                                        {DT::I32, "int32", "int32", "i32", 32, 0},
                                        {DT::I64, "int64", "int64", "i64", 64, 0},
                                        {DT::U8, "uint8", "uint8", "u8", 8, 0},
                                        {DT::U16, "uint16", "uint16", "u16", 16, 0},
                                        {DT::U32, "uint32", "uint32", "u32", 32, 0},
                                        {DT::U64, "uint64", "uint64", "u64", 64, 0},
                                        {DT::F8E4B15, "fp8e4b15", "float8e4b15", "fp8e4b15", 8, 3},
                                        {DT::F8E4NV, "fp8e4nv", "float8e4nv", "fp8e4nv", 8, 3},
                                        {DT::F8E4B8, "fp8e4b8", "float8e4b8", "fp8e4b8", 8, 3},
                                        {DT::F8E5, "fp8e5", "float8e5", "fp8e5", 8, 2},
                                        {DT::F8E5B16, "fp8e5b16", "float8e5b16", "fp8e5b16", 8, 2},
                                        {DT::F16, "fp16", "float16", "fp16", 16, 10},
                                        {DT::BF16, "bf16", "bfloat16", "bf16", 16, 7},
                                        {DT::F32, "fp32", "float32", "fp32", 32, 23},
                                        {DT::F64, "fp64", "float64", "fp64", 64, 52}}};
const Row &row(DT t) { return kRows[static_cast<size_t>(t)]; }

} // namespace

int Scalar::bits() const { return isPtr() ? 64 : row(base).bits; }
int Scalar::mantissa() const { return row(base).mantissa; }

std::string Scalar::str() const {
  std::string out(row(base).name);
  for (int i = 0; i < ptrDepth; ++i) out = (isConst && i + 1 == ptrDepth ? "const_pointer<" : "pointer<") + out + ">";
  return out;
}

std::string Type::str() const {
  if (!isBlock()) return element.str();
  std::string out = "<[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i ? ", " : "") + std::to_string(shape[i]);
  return out + "], " + element.str() + ">";
}

std::optional<DT> parseLanguageType(std::string_view name) {
  for (const Row &r : kRows)
    if (r.language == name) return r.type;
  return std::nullopt;
}

std::optional<DT> parseSignatureType(std::string_view name) {
  static constexpr std::pair<std::string_view, DT> kAliases[] = {
      {"B", DT::I1},          {"u1", DT::I1},           {"bool", DT::I1},      {"float16", DT::F16},
      {"bfloat16", DT::BF16}, {"float32", DT::F32},     {"float64", DT::F64},  {"f16", DT::F16},
      {"f32", DT::F32},       {"f64", DT::F64},         {"fp8e4", DT::F8E4NV}, {"fp8e4m3fn", DT::F8E4NV},
      {"fp8e5m2", DT::F8E5},  {"f8e4m3fn", DT::F8E4NV}, {"f8e5m2", DT::F8E5},  {"int1", DT::I1},
      {"int8", DT::I8},       {"int16", DT::I16},       {"int32", DT::I32},    {"int64", DT::I64},
      {"uint8", DT::U8},      {"uint16", DT::U16},      {"uint32", DT::U32},   {"uint64", DT::U64}};
  for (const Row &r : kRows)
    if (!r.signature.empty() && r.signature == name) return r.type;
  for (const std::pair<std::string_view, DT> &a : kAliases)
    if (a.first == name) return a.second;
  return std::nullopt;
}

__int128 minOf(DT t) {
  Scalar s = scalar(t);
  return s.isSigned() ? -(static_cast<__int128>(1) << (s.bits() - 1)) : 0;
}
__int128 maxOf(DT t) {
  Scalar s = scalar(t);
  return s.isSigned() ? (static_cast<__int128>(1) << (s.bits() - 1)) - 1 : (static_cast<__int128>(1) << s.bits()) - 1;
}

} // namespace neso::triton
