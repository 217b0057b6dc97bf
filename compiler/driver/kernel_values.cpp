// The values of a launch: parameters as text, arguments as the runtime takes them, grids.
#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "base/diagnostics/tile.h"
#include "driver/kernel.h"
#include "frontend/triton/triton.h"

namespace neso {
namespace {

int64_t strideOf(const std::vector<int64_t> &sizes, size_t dim) {
  int64_t stride = 1;
  for (size_t e = dim + 1; e < sizes.size(); ++e) stride *= sizes[e];
  return stride;
}

/// Items between commas that stand in no brackets.
std::vector<std::string> items(const std::string &text) {
  std::vector<std::string> out(1);
  int nest = 0;
  for (char c : text) {
    nest += (c == '<' || c == '(') - (c == '>' || c == ')');
    if (c == ',' && nest == 0)
      out.emplace_back();
    else if (c != ' ' || !out.back().empty())
      out.back() += c;
  }
  return out;
}

/// What stands in the outermost brackets of "!tt.ptr<f32>"; the text itself where there are none.
std::string inside(const std::string &type) {
  const size_t open = type.find('<'), close = type.rfind('>');
  return open == std::string::npos || close == std::string::npos ? type : type.substr(open + 1, close - open - 1);
}

/// Sets `element`, `bits` and `floating` from "f32", "i1", "!tt.ptr<…>".
void setElement(KernelParameter &p, const std::string &element) {
  p.element = element;
  p.floating = element.starts_with("f") || element.starts_with("bf");
  const size_t digits = element.find_first_of("0123456789");
  p.bits = element.starts_with("!") || digits == std::string::npos ? 64 : std::atoi(element.c_str() + digits);
}

KernelParameter parameterOf(const std::string &name, const std::string &type, unsigned argument) {
  KernelParameter p;
  p.name = name, p.type = type, p.argument = argument;
  if (type.starts_with("!tt.ptr")) {
    p.kind = KernelParameter::Pointer;
    setElement(p, items(inside(type)).front());
  } else if (type.starts_with("!tt.tensordesc")) {
    p.kind = KernelParameter::Descriptor;
    std::string block = items(inside(type)).front();
    if (block.starts_with("tensor<")) block = items(inside(block)).front();
    // "64x32xf16": the sizes come before the last x.
    for (size_t x = block.find('x'); x != std::string::npos && std::isdigit(static_cast<unsigned char>(block[0])); x = block.find('x')) {
      ++p.rank;
      block = block.substr(x + 1);
    }
    setElement(p, block);
  } else {
    setElement(p, type);
    p.kind = p.floating ? KernelParameter::Float : KernelParameter::Integer;
  }
  return p;
}

} // namespace

bool KernelParameter::accepts(DType dtype) const {
  if (floating) return isFloat(dtype) && tileName(dtype) == element;
  return (isInteger(dtype) || dtype == DType::Bool) && itemSize(dtype) * 8 == std::max(bits, 8);
}

std::vector<neso_arg> packArguments(const std::vector<KernelParameter> &parameters,
                                    const std::vector<KernelValue> &values) {
  std::vector<neso_arg> out;
  auto integer = [&](int64_t v) {
    neso_arg a;
    a.i64 = v;
    out.push_back(a);
  };
  for (size_t i = 0; i < values.size(); ++i) {
    const KernelParameter &p = parameters[i];
    const KernelValue &v = values[i];
    neso_arg a;
    a.i64 = 0;
    if (p.kind == KernelParameter::Integer)
      a.i64 = v.integer;
    else if (p.kind == KernelParameter::Float && p.bits == 64)
      a.f64 = v.real;
    else if (p.kind == KernelParameter::Float)
      a.f32 = static_cast<float>(v.real);
    else
      a.ptr = v.data;
    out.push_back(a);
    if (p.kind != KernelParameter::Descriptor) continue;
    for (int64_t s : v.sizes) integer(s);
    for (size_t d = 0; d < v.sizes.size(); ++d) integer(strideOf(v.sizes, d));
  }
  return out;
}

std::vector<int64_t> packBufferBytes(const std::vector<KernelParameter> &parameters,
                                     const std::vector<KernelValue> &values) {
  std::vector<int64_t> out;
  for (size_t i = 0; i < values.size(); ++i) {
    const KernelParameter &p = parameters[i];
    out.push_back(p.isBuffer() ? values[i].bytes : -1);
    if (p.kind == KernelParameter::Descriptor) out.insert(out.end(), 2 * values[i].sizes.size(), -1);
  }
  return out;
}

std::string parameterText(const std::vector<KernelParameter> &parameters) {
  std::string out;
  for (const KernelParameter &p : parameters) {
    out += (out.empty() ? "" : ", ") + p.name + ": " + p.type;
    if (p.divisor > 1) out += fmt::format(" % {}", p.divisor);
  }
  return out;
}

Result<std::vector<KernelParameter>> parametersFromText(const std::string &kernel, const std::string &text) {
  std::vector<KernelParameter> out;
  unsigned argument = 0;
  if (text.empty()) return out;
  for (const std::string &item : items(text)) {
    const size_t colon = item.find(": "), divisor = item.find(" % ");
    if (colon == std::string::npos)
      return fail(diag::TileBadArguments, {}, kernel, fmt::format("the package describes its parameters as '{}'", text));
    out.push_back(parameterOf(item.substr(0, colon), item.substr(colon + 2, divisor - colon - 2), argument));
    if (divisor != std::string::npos) out.back().divisor = std::max(std::atoll(item.c_str() + divisor + 3), 1ll);
    argument += 1 + 2 * out.back().rank;
  }
  return out;
}

Result<std::array<uint32_t, 3>> evaluateLaunchGrid(const std::string &kernel, const std::string &text,
                                                   const std::vector<KernelSource::NamedText> &names) {
  std::array<uint32_t, 3> out{1, 1, 1};
  std::vector<int64_t> sizes;
  const bool plain = text.find_first_not_of("0123456789,") == std::string::npos;
  if (plain) {
    for (const std::string &item : items(text))
      if (!item.empty() && item.size() < 18) sizes.push_back(std::atoll(item.c_str()));
    if (sizes.size() != items(text).size()) sizes.clear();
  } else {
    std::vector<KernelSource::NamedText> all = names;
    all.emplace_back("cdiv", "triton.cdiv");
    Result<std::vector<int64_t>> found = triton::evaluateGrid(text, all);
    if (!found) return found.takeError();
    sizes = std::move(*found);
  }
  if (sizes.empty() || sizes.size() > 3 ||
      std::any_of(sizes.begin(), sizes.end(), [](int64_t v) { return v < 0 || v > 0xffffffffll; }))
    return fail(diag::TileBadArguments, {}, kernel,
                fmt::format("grid '{}' is not one to three numbers up to 4294967295, separated by commas{}", text,
                            plain || sizes.empty() ? "" : fmt::format("; it is {}", fmt::join(sizes, ", "))));
  for (size_t i = 0; i < sizes.size(); ++i) out[i] = static_cast<uint32_t>(sizes[i]);
  return out;
}

} // namespace neso
