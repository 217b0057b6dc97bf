#include "base/dtype.h"

#include <array>

namespace neso {
namespace {

struct Row {
  std::string_view name;
  std::string_view safetensors;
  int64_t size;
};
constexpr std::array<Row, kDTypeCount> kRows = {{{"bool", "BOOL", 1},      {"u8", "U8", 1},
                                                 {"u16", "U16", 2},        {"u32", "U32", 4},
                                                 {"u64", "U64", 8},        {"i8", "I8", 1},
                                                 {"i16", "I16", 2},        {"i32", "I32", 4},
                                                 {"i64", "I64", 8},        {"f8e4m3fn", "F8_E4M3", 1},
                                                 {"f8e5m2", "F8_E5M2", 1}, {"f8e4m3fnuz", "", 1},
                                                 {"f8e5m2fnuz", "", 1},    {"f8e8m0fnu", "F8_E8M0", 1},
                                                 {"f16", "F16", 2},        {"bf16", "BF16", 2},
                                                 {"f32", "F32", 4},        {"f64", "F64", 8},
                                                 {"c32", "", 4},           {"c64", "C64", 8},
                                                 {"c128", "", 16}}};

bool between(DType t, DType lo, DType hi) { return lo <= t && t <= hi; }
const Row &row(DType t) { return kRows[static_cast<size_t>(t)]; }

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
  switch (itemSize(u)) {
  case 1: return DType::I16;
  case 2: return DType::I32;
  default: return DType::I64;
  }
}

} // namespace

int64_t itemSize(DType t) { return row(t).size; }
bool isFloat(DType t) { return between(t, DType::F8E4M3FN, DType::F64); }
bool isComplex(DType t) { return between(t, DType::C32, DType::C128); }
bool isSignedInt(DType t) { return between(t, DType::I8, DType::I64); }
bool isUnsignedInt(DType t) { return between(t, DType::U8, DType::U64); }
bool isInteger(DType t) { return between(t, DType::U8, DType::I64); }
bool isReducedFloat(DType t) { return between(t, DType::F8E4M3FN, DType::BF16); }

DType toReal(DType t) {
  switch (t) {
  case DType::C32: return DType::F16;
  case DType::C64: return DType::F32;
  case DType::C128: return DType::F64;
  default: return t;
  }
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (isComplex(a) || isComplex(b)) {
    DType f = promote(toReal(a), toReal(b));
    if (!isFloat(f)) f = isComplex(a) ? toReal(a) : toReal(b);
    if (f == DType::F64) return DType::C128;
    return f == DType::F16 ? DType::C32 : DType::C64;
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
  if (t == DType::C32) return DType::C64;
  return isReducedFloat(t) ? DType::F32 : t;
}

std::string_view name(DType t) { return row(t).name; }
std::string_view safetensorsName(DType t) { return row(t).safetensors; }

} // namespace neso
