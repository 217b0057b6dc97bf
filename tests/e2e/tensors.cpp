#include "e2e/tensors.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>

#include <fmt/format.h>
#include <simdjson.h>

namespace neso::e2e {
namespace {

constexpr std::pair<std::string_view, neso_dtype> kNames[] = {
#define NESO_DTYPE(name, NAME, text, kind, bits, part, torch, number, safetensors, ...) {safetensors, NESO_##NAME},
#include "abi/dtypes.def"
};

bool parseDType(std::string_view name, neso_dtype *out) {
  for (auto [text, dtype] : kNames)
    if (!text.empty() && text == name) {
      *out = dtype;
      return true;
    }
  return false;
}

std::string_view nameOf(neso_dtype wanted) {
  for (auto [text, dtype] : kNames)
    if (dtype == wanted) return text;
  return "";
}

double fromHalf(uint16_t bits) {
  int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  double sign = bits >> 15 ? -1.0 : 1.0;
  if (exponent == 31) return mantissa ? std::nan("") : sign * HUGE_VAL;
  return sign * (exponent ? std::ldexp(1024 + mantissa, exponent - 25) : std::ldexp(mantissa, -24));
}

template <typename T> T load(const char *at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// One floating-point element; complex numbers are read as two.
double loadReal(neso_dtype dtype, const char *at) {
  switch (dtype) {
  case NESO_F64: return load<double>(at);
  case NESO_F32:
  case NESO_C64: return static_cast<double>(load<float>(at));
  case NESO_F16: return fromHalf(load<uint16_t>(at));
  case NESO_BF16: {
    uint32_t bits = static_cast<uint32_t>(load<uint16_t>(at)) << 16;
    return static_cast<double>(load<float>(reinterpret_cast<const char *>(&bits)));
  }
  default: return std::nan("");
  }
}

bool isReal(neso_dtype dtype) {
  return dtype == NESO_F64 || dtype == NESO_F32 || dtype == NESO_F16 || dtype == NESO_BF16 || dtype == NESO_C64;
}

std::string integerText(neso_dtype dtype, const char *at) {
  switch (neso_dtype_size(dtype)) {
  case 1: return dtype == NESO_I8 ? fmt::format("{}", load<int8_t>(at)) : fmt::format("{}", load<uint8_t>(at));
  case 2: return fmt::format("{}", load<int16_t>(at));
  case 4: return fmt::format("{}", load<int32_t>(at));
  default: return fmt::format("{}", load<int64_t>(at));
  }
}

std::string shapeText(const int64_t *sizes, size_t rank) {
  return fmt::format("[{}]", fmt::join(sizes, sizes + rank, ", "));
}

int64_t count(const int64_t *sizes, size_t rank) {
  int64_t n = 1;
  for (size_t d = 0; d < rank; ++d) n *= sizes[d];
  return n;
}

bool readFile(const std::string &path, std::string *out) {
  std::unique_ptr<FILE, int (*)(FILE *)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) return false;
  char buffer[65536];
  for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, file.get())) > 0;) out->append(buffer, n);
  return std::ferror(file.get()) == 0;
}

bool readEntry(simdjson::dom::element entry, const char *blob, size_t blobSize, Tensor *tensor) {
  std::string_view dtype;
  simdjson::dom::array shape, offsets;
  if (entry["dtype"].get(dtype) || entry["shape"].get(shape) || entry["data_offsets"].get(offsets)) return false;
  if (!parseDType(dtype, &tensor->dtype)) return false;
  for (simdjson::dom::element size : shape) {
    int64_t value;
    if (size.get(value)) return false;
    tensor->sizes.push_back(value);
  }
  uint64_t begin, end;
  if (offsets.at(0).get(begin) || offsets.at(1).get(end) || begin > end || end > blobSize) return false;
  const int64_t elements = count(tensor->sizes.data(), tensor->sizes.size());
  if (end - begin != static_cast<size_t>(elements) * neso_dtype_size(tensor->dtype)) return false;
  tensor->fill({blob + begin, end - begin});
  return true;
}

} // namespace

bool writeSafetensors(const std::string &path, Tensors &tensors) {
  std::string header = "{", blob;
  for (auto &[name, tensor] : tensors) {
    header += fmt::format("{}\"{}\":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", header.size() > 1 ? "," : "", name,
                          nameOf(tensor.dtype), fmt::join(tensor.sizes, ","), blob.size(), blob.size() + tensor.bytes);
    blob.append(tensor.data(), tensor.bytes);
  }
  header += "}";
  header.append((8 - header.size() % 8) % 8, ' ');
  const uint64_t size = header.size();
  std::unique_ptr<FILE, int (*)(FILE *)> file(std::fopen(path.c_str(), "wb"), std::fclose);
  return file && std::fwrite(&size, 8, 1, file.get()) == 1 && std::fwrite(header.data(), 1, size, file.get()) == size &&
         std::fwrite(blob.data(), 1, blob.size(), file.get()) == blob.size();
}

bool readSafetensors(const std::string &path, Tensors *out, std::string *error) {
  std::string bytes;
  uint64_t headerSize = 0;
  *error = path + ": cannot be read";
  if (!readFile(path, &bytes) || bytes.size() < 8) return false;
  std::memcpy(&headerSize, bytes.data(), 8);
  *error = path + ": no .safetensors";
  if (headerSize > bytes.size() - 8) return false;
  simdjson::dom::parser parser;
  simdjson::dom::object header;
  if (parser.parse(bytes.data() + 8, headerSize).get(header)) return false;
  const char *blob = bytes.data() + 8 + headerSize;
  size_t blobSize = bytes.size() - 8 - headerSize;
  for (auto [name, entry] : header) {
    if (name == "__metadata__") continue;
    if (!readEntry(entry, blob, blobSize, &(*out)[std::string(name)])) return false;
  }
  error->clear();
  return true;
}

std::string compare(const neso_tensor &got, Tensor &want, Tolerance tolerance, bool values) {
  size_t rank = want.sizes.size();
  // safetensors has no double-precision complex numbers: those are written as pairs.
  bool pairs = got.dtype == NESO_C128 && want.dtype == NESO_F64 && static_cast<size_t>(got.rank) + 1 == rank &&
               want.sizes.back() == 2;
  if (pairs) rank -= 1;
  if (got.dtype != want.dtype && !pairs)
    return fmt::format("dtype {}, expected {}", neso_dtype_name(got.dtype), neso_dtype_name(want.dtype));
  if (got.rank != static_cast<int32_t>(rank) ||
      !std::equal(want.sizes.begin(), want.sizes.begin() + static_cast<ptrdiff_t>(rank), got.sizes))
    return fmt::format("shape {}, expected {}", shapeText(got.sizes, static_cast<size_t>(got.rank)),
                       shapeText(want.sizes.data(), rank));
  if (!values) return "";
  std::vector<char> data = dense(got);
  size_t item = neso_dtype_size(want.dtype), bad = 0, first = 0;
  if (!isReal(want.dtype)) {
    for (size_t at = 0; at < want.bytes; at += item)
      if (std::memcmp(data.data() + at, want.data() + at, item) != 0 && bad++ == 0) first = at;
    if (bad == 0) return "";
    return fmt::format("{} of {} values differ, first at {}: {} for {}", bad, want.bytes / item, first / item,
                       integerText(want.dtype, data.data() + first), integerText(want.dtype, want.data() + first));
  }
  if (want.dtype == NESO_C64) item /= 2;
  double worst = 0;
  for (size_t at = 0; at < want.bytes; at += item) {
    double g = loadReal(want.dtype, data.data() + at), w = loadReal(want.dtype, want.data() + at);
    if (g == w || (std::isnan(g) && std::isnan(w))) continue;
    double bound = tolerance.absolute + tolerance.relative * std::fabs(w), off = std::fabs(g - w);
    // NaN and infinity on one side alone are beyond every bound.
    if (std::isfinite(g) && std::isfinite(w) && off <= bound) continue;
    double excess = std::isfinite(off) && bound > 0 ? off / bound : HUGE_VAL;
    if (bad++ == 0 || excess > worst) {
      worst = excess;
      first = at;
    }
  }
  if (bad == 0) return "";
  return fmt::format("{} of {} values beyond tolerance, worst at {}: {:.8g} for {:.8g}", bad, want.bytes / item,
                     first / item, loadReal(want.dtype, data.data() + first),
                     loadReal(want.dtype, want.data() + first));
}

} // namespace neso::e2e
