#include "tensor_file.h"
#include "base/diagnostics/cli.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include <simdjson.h>

#include "base/atomic_file.h"
#include "base/json.h"
#include "neso/neso.h"

namespace neso::cli {
namespace {
constexpr int64_t kMaxElements = int64_t(1) << 46;

Error malformed(const std::string &path, const std::string &why) {
  return fail(diag::TensorFileMalformed, {}, path, why);
}

Result<std::string> readAll(const std::string &path) {
  std::unique_ptr<FILE, int (*)(FILE *)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) return fail(diag::FileUnreadable, {}, path, std::strerror(errno));
  std::string out;
  char chunk[1 << 16];
  while (size_t n = std::fread(chunk, 1, sizeof chunk, file.get())) out.append(chunk, n);
  if (std::ferror(file.get())) return fail(diag::FileUnreadable, {}, path, std::strerror(errno));
  return out;
}

bool endsWith(const std::string &text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

Status fillFrom(HostTensor &t, const std::string &path, const char *bytes, size_t size) {
  int64_t n = elementCount(t.sizes);
  if (n < 0 || static_cast<size_t>(n) * static_cast<size_t>(itemSize(t.dtype)) != size)
    return malformed(path,
                     fmt::format("tensor '{}' has {} bytes, which its shape and dtype do not ask for", t.name, size));
  if (Status s = t.allocate(); !s) return s;
  if (size) std::memcpy(t.data(), bytes, size);
  return Status::ok();
}

// One entry of the header: {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}.
Result<HostTensor> readEntry(const std::string &path, std::string_view name, simdjson::dom::element entry,
                             const char *data, size_t dataSize) {
  HostTensor t;
  t.name = std::string(name);
  std::string_view dtype;
  simdjson::dom::array shape, offsets;
  if (entry["dtype"].get(dtype) || entry["shape"].get(shape) || entry["data_offsets"].get(offsets))
    return malformed(path, fmt::format("the entry of tensor '{}' lacks dtype, shape or data_offsets", name));
  std::optional<DType> known = dtypeNamed(dtype, safetensorsName);
  if (!known) return malformed(path, fmt::format("tensor '{}' has dtype '{}', which Neso does not know", name, dtype));
  t.dtype = *known;
  for (simdjson::dom::element e : shape) {
    int64_t size;
    if (e.get(size) || size < 0)
      return malformed(path, fmt::format("tensor '{}' has a size that is no natural number", name));
    t.sizes.push_back(size);
  }
  uint64_t range[2], count = 0;
  for (simdjson::dom::element e : offsets)
    if (count >= 2 || e.get(range[count++]))
      return malformed(path, fmt::format("tensor '{}' has wrong data_offsets", name));
  if (count != 2 || range[0] > range[1] || range[1] > dataSize)
    return malformed(path, fmt::format("tensor '{}' lies outside the file", name));
  if (Status s = fillFrom(t, path, data + range[0], range[1] - range[0]); !s) return s.takeError();
  return t;
}

} // namespace

Result<std::vector<HostTensor>> readSafetensors(const std::string &path, const std::string &file) {
  uint64_t header = 0;
  if (file.size() < 8) return malformed(path, "it is shorter than its header");
  std::memcpy(&header, file.data(), 8);
  if (header > file.size() - 8) return malformed(path, "its header reaches past its end");
  simdjson::dom::parser parser;
  simdjson::dom::object root;
  if (auto error = parser.parse(simdjson::padded_string(file.data() + 8, header)).get(root))
    return malformed(path, fmt::format("its header is no JSON object ({})", simdjson::error_message(error)));
  std::vector<HostTensor> out;
  const char *data = file.data() + 8 + header;
  size_t dataSize = file.size() - 8 - header;
  for (simdjson::dom::key_value_pair field : root) {
    if (field.key == "__metadata__") continue;
    Result<HostTensor> t = readEntry(path, field.key, field.value, data, dataSize);
    if (!t) return t.takeError();
    out.push_back(std::move(*t));
  }
  return out;
}

namespace {
// ---- .npy

// The value of a key in the header's Python dictionary: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
std::string npyField(const std::string &header, const std::string &key) {
  size_t at = header.find("'" + key + "'");
  if (at == std::string::npos) return "";
  at = header.find(':', at);
  if (at == std::string::npos) return "";
  ++at;
  while (at < header.size() && header[at] == ' ') ++at;
  if (at < header.size() && header[at] == '(') {
    size_t end = header.find(')', at);
    return end == std::string::npos ? "" : header.substr(at, end - at + 1);
  }
  size_t end = header.find_first_of(",}", at);
  return end == std::string::npos ? "" : header.substr(at, end - at);
}

std::optional<DType> dtypeOfNpy(const std::string &descr) {
  if (descr.size() < 4 || descr.front() != '\'' || descr.back() != '\'') return std::nullopt;
  char order = descr[1];
  if (order == '>') return std::nullopt;
  const bool ordered = order == '<' || order == '|' || order == '=';
  const std::string type = descr.substr(ordered ? 2 : 1, descr.size() - (ordered ? 3 : 2));
  // NumPy has no bfloat16; its bytes come as void.
  return type == "V2" ? DType::BF16 : dtypeNamed(type, numpyName);
}

// Column-major bytes to row-major ones.
void transposeFrom(HostTensor &t, const char *bytes) {
  size_t item = static_cast<size_t>(itemSize(t.dtype)), rank = t.sizes.size();
  std::vector<int64_t> index(rank);
  for (size_t i = 0, n = t.bytes / item; i < n; ++i) {
    size_t from = 0, stride = 1;
    for (size_t d = 0; d < rank; ++d) {
      from += static_cast<size_t>(index[d]) * stride;
      stride *= static_cast<size_t>(t.sizes[d]);
    }
    std::memcpy(t.data() + i * item, bytes + from * item, item);
    for (size_t d = rank; d-- > 0;) {
      if (++index[d] < t.sizes[d]) break;
      index[d] = 0;
    }
  }
}

Result<HostTensor> readNpy(const std::string &path, const std::string &file) {
  if (file.size() < 10 || file.compare(0, 6, "\x93NUMPY") != 0)
    return malformed(path, "it does not start as a .npy file does");
  size_t start = file[6] == 1 ? 10 : 12, length = 0;
  if (file.size() < start) return malformed(path, "it is shorter than its header");
  for (size_t i = 8; i < start; ++i) length |= static_cast<size_t>(static_cast<uint8_t>(file[i])) << (8 * (i - 8));
  if (length > file.size() - start) return malformed(path, "its header reaches past its end");
  std::string header = file.substr(start, length), descr = npyField(header, "descr"), shape = npyField(header, "shape");
  std::optional<DType> dtype = dtypeOfNpy(descr);
  if (!dtype)
    return malformed(
        path,
        fmt::format("its dtype {} is not one that Neso knows (little-endian bool, integers, floats, complex)", descr));
  if (shape.empty()) return malformed(path, "its header gives no shape");
  HostTensor t;
  t.dtype = *dtype;
  for (size_t at = 1; at < shape.size();) {
    size_t end = shape.find_first_of(",)", at);
    std::string number = shape.substr(at, end - at);
    if (number.find_first_of("0123456789") != std::string::npos)
      t.sizes.push_back(std::strtoll(number.c_str(), nullptr, 10));
    at = end == std::string::npos ? shape.size() : end + 1;
  }
  const char *data = file.data() + start + length;
  if (Status s = fillFrom(t, path, data, file.size() - start - length); !s) return s.takeError();
  if (npyField(header, "fortran_order").find("True") == 0 && t.sizes.size() > 1) transposeFrom(t, data);
  return t;
}
} // namespace

Status HostTensor::allocate() {
  bytes = static_cast<size_t>(elementCount(sizes)) * static_cast<size_t>(itemSize(dtype));
  size_t rounded = (bytes + 64) / 64 * 64;
  storage.reset(static_cast<uint8_t *>(std::aligned_alloc(64, rounded)), std::free);
  if (!storage)
    return fail(diag::RuntimeRefused, {{}, 0, 0, neso_status_code(NESO_OUT_OF_MEMORY)},
                fmt::format("out of memory: {} bytes for tensor '{}'", rounded, name));
  std::memset(storage.get(), 0, rounded);
  return Status::ok();
}

int64_t elementCount(const std::vector<int64_t> &sizes) {
  int64_t n = 1;
  bool empty = false;
  for (int64_t s : sizes) {
    if (s < 0) return -1;
    if (s == 0)
      empty = true;
    else if (__builtin_mul_overflow(n, s, &n) || n > kMaxElements)
      return -1;
  }
  return empty ? 0 : n;
}

Result<std::vector<HostTensor>> readTensorFile(const std::string &path) {
  Result<std::string> file = readAll(path);
  if (!file) return file.takeError();
  if (endsWith(path, ".npy")) {
    Result<HostTensor> t = readNpy(path, *file);
    if (!t) return t.takeError();
    std::vector<HostTensor> out;
    out.push_back(std::move(*t));
    return out;
  }
  if (endsWith(path, ".safetensors")) return readSafetensors(path, *file);
  return malformed(path, "its name ends neither in .safetensors nor in .npy");
}

// What stands before the data: the header's length and the header.
static std::string safetensorsHead(const std::vector<HostTensor> &tensors, const std::map<std::string, std::string> &metadata) {
  std::string header = "{";
  if (!metadata.empty()) {
    header += "\"__metadata__\":{";
    const char *joint = "";
    for (const auto &[key, value] : metadata) {
      header += joint + jsonString(key) + ":" + jsonString(value);
      joint = ",";
    }
    header += "},";
  }
  size_t at = 0;
  for (const HostTensor &t : tensors) {
    bool pair = t.dtype == DType::C128 || t.dtype == DType::C32;
    std::string shape;
    for (int64_t s : t.sizes) shape += fmt::format("{}{}", shape.empty() ? "" : ",", s);
    if (pair) shape += shape.empty() ? "2" : ",2";
    header += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}},", jsonString(t.name),
                          safetensorsName(pair ? toReal(t.dtype) : t.dtype), shape, at, at + t.bytes);
    at += t.bytes;
  }
  if (header.back() == ',') header.pop_back();
  header += "}";
  // Readers want the data aligned to 8; blanks are allowed at the end of the header.
  while (header.size() % 8) header += ' ';
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char *>(&length), 8) + header;
}

std::string safetensorsText(const std::vector<HostTensor> &tensors) {
  std::string out = safetensorsHead(tensors, {});
  for (const HostTensor &t : tensors) out.append(reinterpret_cast<const char *>(t.data()), t.bytes);
  return out;
}

Status writeSafetensors(const std::string &path, const std::vector<HostTensor> &tensors,
                        const std::map<std::string, std::string> &metadata) {
  const std::string head = safetensorsHead(tensors, metadata);
  AtomicFile file;
  if (Status s = file.open(path); !s) return s;
  if (Status s = file.write(head.data(), head.size()); !s) return s;
  for (const HostTensor &t : tensors)
    if (Status s = file.write(t.data(), t.bytes); !s) return s;
  return file.commit();
}

Status writeNpy(const std::string &path, const HostTensor &t) {
  const std::string_view descr = numpyName(t.dtype);
  std::string shape;
  if (descr.empty()) return fail(diag::NpyImpossible, {path, 0, 0, {}}, fmt::format("NumPy has no dtype {}", neso::name(t.dtype)));
  for (int64_t size : t.sizes) shape += fmt::format("{},", size);
  std::string header =
      fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}), }}", itemSize(t.dtype) > 1 ? "<" : "|", descr, shape);
  // The data begins at a multiple of 64, behind a line break.
  while ((header.size() + 11) % 64) header += ' ';
  header += '\n';
  const std::string start = {'\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, static_cast<char>(header.size() & 255),
                             static_cast<char>(header.size() >> 8)};
  AtomicFile file;
  if (Status s = file.open(path); !s) return s;
  if (Status s = file.write(start.data(), start.size()); !s) return s;
  if (Status s = file.write(header.data(), header.size()); !s) return s;
  if (Status s = file.write(t.data(), t.bytes); !s) return s;
  return file.commit();
}

} // namespace neso::cli
