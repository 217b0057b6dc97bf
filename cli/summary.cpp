#include "summary.h"

#include <cmath>
#include <cstring>

#include "ir/loops/numeric.h"

namespace neso::cli {
namespace {
// Tensors of so many elements are shown whole.
constexpr int64_t kShown = 8;

template <typename T> double as(const uint8_t *p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return static_cast<double>(v);
}
} // namespace

double readElement(DType t, const uint8_t *p) {
  switch (t) {
  case DType::F64: return as<double>(p);
  case DType::F32: return as<float>(p);
  case DType::I64: return as<int64_t>(p);
  case DType::I32: return as<int32_t>(p);
  case DType::I16: return as<int16_t>(p);
  case DType::I8: return as<int8_t>(p);
  case DType::U64: return as<uint64_t>(p);
  case DType::U32: return as<uint32_t>(p);
  case DType::U16: return as<uint16_t>(p);
  case DType::Bool:
  case DType::U8: return *p;
  case DType::F16:
  case DType::BF16: return loops::decodeFloat(t, static_cast<uint32_t>(as<uint16_t>(p)));
  default: return loops::decodeFloat(t, *p);
  }
}

std::string summary(const HostTensor &t) {
  std::string out = fmt::format("{} [", neso::name(t.dtype));
  for (size_t d = 0; d < t.sizes.size(); ++d) out += fmt::format("{}{}", d ? ", " : "", t.sizes[d]);
  out += "]";
  const int64_t count = elementCount(t.sizes);
  if (isComplex(t.dtype) || count <= 0) return out;
  const size_t item = static_cast<size_t>(itemSize(t.dtype));
  double least = INFINITY, most = -INFINITY, sum = 0;
  int64_t nans = 0;
  std::string values;
  for (int64_t i = 0; i < count; ++i) {
    const double v = readElement(t.dtype, t.data() + static_cast<size_t>(i) * item);
    if (count <= kShown) values += fmt::format("{}{:g}", i ? ", " : "", v);
    if (std::isnan(v)) {
      ++nans;
      continue;
    }
    least = std::min(least, v);
    most = std::max(most, v);
    sum += v;
  }
  if (count <= kShown) return out + "  " + values;
  if (nans < count)
    out += fmt::format("  min {:g}  max {:g}  mean {:g}", least, most, sum / static_cast<double>(count - nans));
  return nans ? out + fmt::format("  {} NaN", nans) : out;
}

} // namespace neso::cli
