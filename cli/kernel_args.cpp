#include "kernel_args.h"
#include "base/diagnostics/cli.h"
#include "base/diagnostics/tile.h"

#include <cerrno>
#include <cstdlib>
#include <map>

namespace neso::cli {
namespace {

/// Tensors of files that were opened so far, by path.
class Files {
public:
  /// `spec`: "x.npy" or "x.safetensors#name".
  Result<HostTensor> get(const std::string &spec) {
    size_t hash = spec.rfind('#');
    std::string path = spec.substr(0, hash), name = hash == std::string::npos ? "" : spec.substr(hash + 1);
    auto found = files_.find(path);
    if (found == files_.end()) {
      Result<std::vector<HostTensor>> tensors = readTensorFile(path);
      if (!tensors) return tensors.takeError();
      found = files_.emplace(path, std::move(*tensors)).first;
    }
    if (name.empty() && found->second.size() == 1) return found->second.front();
    std::string held;
    for (const HostTensor &t : found->second) {
      if (t.name == name) return t;
      held += (held.empty() ? "" : ", ") + t.name;
    }
    return fail(diag::TensorFileMalformed, {}, path,
                "it holds no tensor '" + name + "' but " + (held.empty() ? "none" : held));
  }

private:
  std::map<std::string, std::vector<HostTensor>> files_;
};

std::string describe(const KernelParameter &p) {
  switch (p.kind) {
  case KernelParameter::Pointer: return "a pointer to " + p.element;
  case KernelParameter::Descriptor:
    return "a descriptor of a tensor of " + p.element + " with " + std::to_string(p.rank) + " dimensions";
  case KernelParameter::Integer: return "an integer of " + std::to_string(p.bits) + " bits";
  case KernelParameter::Float: return "a float of " + std::to_string(p.bits) + " bits";
  }
  return "";
}

Error wrong(const std::string &kernel, const KernelParameter &p, const std::string &text, const std::string &why) {
  return fail(diag::TileBadArguments, {}, kernel,
              fmt::format("argument '{}' is {}; '{}' {}", p.name, describe(p), text, why));
}

/// Decimal or 0x…, true, false; fits `bits` with or without a sign.
std::optional<int64_t> integerOf(const std::string &text, int bits) {
  if (text == "true" || text == "True") return 1;
  if (text == "false" || text == "False") return 0;
  if (text.empty()) return std::nullopt;
  errno = 0;
  char *end = nullptr;
  bool negative = text[0] == '-';
  int64_t v =
      negative ? std::strtoll(text.c_str(), &end, 0) : static_cast<int64_t>(std::strtoull(text.c_str(), &end, 0));
  if (*end || errno) return std::nullopt;
  if (bits >= 64) return v;
  int64_t limit = int64_t{1} << bits;
  // From -2^(bits-1) to 2^bits - 1: unsigned numbers are given as they are and wrapped.
  if (v < -(limit / 2) || v >= limit) return std::nullopt;
  return bits > 1 && v >= limit / 2 ? v - limit : v;
}

} // namespace

Result<DType> dtypeOfArgument(const std::string &text) {
  Result<HostTensor> tensor = Files().get(text.substr(1));
  if (!tensor) return tensor.takeError();
  return tensor->dtype;
}

Result<KernelArguments> readKernelArguments(const std::string &kernel, const std::vector<KernelParameter> &parameters,
                                            const std::vector<std::string> &texts,
                                            const std::vector<std::string> &names) {
  KernelArguments out;
  Files files;
  if (names.empty() && texts.size() != parameters.size()) {
    std::string list;
    for (const KernelParameter &p : parameters) list += (list.empty() ? "" : ", ") + p.name;
    return fail(diag::TileBadArguments, {}, kernel,
                fmt::format("it takes {} arguments ({}), {} are given", parameters.size(), list, texts.size()));
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    const KernelParameter &p = parameters[i];
    std::string text = names.empty() ? texts[i] : "none";
    for (size_t n = 0; n < names.size(); ++n)
      if (names[n] == p.name) text = texts[n];
    KernelValue value;
    if (p.kind == KernelParameter::Float) {
      char *end = nullptr;
      value.real = std::strtod(text.c_str(), &end);
      if (text.empty() || *end) return wrong(kernel, p, text, "is not a number");
    } else if (p.kind == KernelParameter::Integer) {
      std::optional<int64_t> v = integerOf(text, p.bits);
      if (!v) return wrong(kernel, p, text, "is not an integer of that width");
      value.integer = *v;
    } else if (text.starts_with("@")) {
      Result<HostTensor> tensor = files.get(text.substr(1));
      if (!tensor) return tensor.takeError();
      if (!p.accepts(tensor->dtype)) return wrong(kernel, p, text, "holds " + std::string(neso::name(tensor->dtype)));
      if (p.kind == KernelParameter::Descriptor && tensor->sizes.size() != p.rank)
        return wrong(kernel, p, text, "has " + std::to_string(tensor->sizes.size()) + " dimensions");
      value.data = tensor->data(), value.bytes = static_cast<int64_t>(tensor->bytes), value.sizes = tensor->sizes;
      tensor->name = p.name;
      out.outputs.push_back(std::move(*tensor));
    } else if (text == "none" || text == "None") {
      // Only a .ttir comes here: its kernel was compiled with the pointer in place, so that an access is an error of
      // the caller.
      if (p.kind == KernelParameter::Descriptor) return wrong(kernel, p, text, "is no tensor");
    } else {
      return wrong(kernel, p, text, "is no buffer; give @FILE.npy, @FILE.safetensors#NAME or none");
    }
    out.values.push_back(std::move(value));
  }
  return out;
}

} // namespace neso::cli
