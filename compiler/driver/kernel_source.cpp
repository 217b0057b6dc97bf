// Where a single kernel comes from, and what its signature is: from the text of the command line and from the values of a launch.
#include "driver/kernel_source.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <set>

#include "base/diagnostics/cli.h"
#include "base/diagnostics/tile.h"

namespace neso {

triton::KernelRequest requestOf(const KernelSource &source) {
  triton::KernelRequest r;
  r.path = source.file, r.function = source.function, r.signature = source.signature;
  r.constexprs = source.constexprs, r.values = source.values, r.hints = source.hints;
  r.numWarps = source.numWarps, r.numStages = source.numStages;
  r.searchPaths = source.searchPaths, r.debug = source.debug;
  if (source.config) r.config = static_cast<size_t>(*source.config);
  return r;
}

bool isTtir(const KernelSource &source) { return source.file.ends_with(".ttir"); }

Result<KernelSource> parseKernelSource(const std::string &text) {
  KernelSource out;
  size_t colon = text.rfind(':');
  out.file = text;
  if (colon != std::string::npos && text.find('/', colon) == std::string::npos) {
    out.file = text.substr(0, colon);
    out.function = text.substr(colon + 1);
  }
  if (isTtir(out)) return out;
  if (!out.file.ends_with(".py"))
    return fail(diag::KernelUnnamed, {}, text, std::string("its file is neither a .py nor a .ttir"));
  if (!out.function.empty()) return out;
  Result<std::vector<triton::KernelInfo>> held = triton::listKernels(out.file);
  if (!held) return held.takeError();
  std::string names;
  for (const triton::KernelInfo &k : *held) names += (names.empty() ? "" : ", ") + k.name;
  return fail(diag::KernelUnnamed, {}, text,
              names.empty() ? "it defines no @triton.jit function" : "it defines " + names);
}

namespace {

/// Decimal or 0x…; nothing else around it.
std::optional<int64_t> integerIn(const std::string &text) {
  errno = 0;
  char *end = nullptr;
  int64_t v = std::strtoll(text.c_str(), &end, 0);
  if (text.empty() || *end || errno) return std::nullopt;
  return v;
}

bool isIntegerType(const std::string &type) {
  return type.size() > 1 && (type[0] == 'i' || type[0] == 'u') && std::isdigit(static_cast<unsigned char>(type[1])) &&
         type != "i1" && type != "u1";
}

/// Parameters that a launch gives no value.
std::set<std::string> fixedParameters(const triton::KernelInfo &kernel, const KernelSource &source) {
  std::set<std::string> out(kernel.heuristics.begin(), kernel.heuristics.end());
  for (const triton::ParamInfo &p : kernel.params)
    if (p.isConstexpr) out.insert(p.name);
  for (const triton::ConfigInfo &config : kernel.configs)
    for (const auto &[name, value] : config.kwargs) out.insert(name);
  for (const auto &[name, value] : source.constexprs) out.insert(name);
  return out;
}

} // namespace

Status inferSignature(KernelSource &source, const std::vector<std::string> &values,
                      const std::function<Result<DType>(const std::string &)> &dtypeOf) {
  if (isTtir(source) || !source.signature.empty()) return Status::ok();
  Result<std::vector<triton::KernelInfo>> kernels = triton::listKernels(source.file, source.searchPaths);
  if (!kernels) return kernels.takeError();
  auto kernel = std::find_if(kernels->begin(), kernels->end(), [&](const auto &k) { return k.name == source.function; });
  // The front end says that there is none.
  if (kernel == kernels->end()) return Status::ok();
  const std::set<std::string> fixed = fixedParameters(*kernel, source);
  std::vector<std::string> open;
  for (const triton::ParamInfo &p : kernel->params)
    if (!fixed.count(p.name)) open.push_back(p.name);
  if (open.size() != values.size()) {
    std::string list;
    for (const std::string &name : open) list += (list.empty() ? "" : ", ") + name;
    return fail(diag::TileBadArguments, {}, source.function,
                fmt::format("it takes {} arguments ({}), {} are given", open.size(), list, values.size()));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string &value = values[i];
    auto cannot = [&](const std::string &why) {
      return fail(diag::TileBadArguments, {}, source.function,
                  fmt::format("argument '{}' is '{}', {}; give --signature", open[i], value, why));
    };
    std::string type;
    if (value.starts_with("@")) {
      Result<DType> dtype = dtypeOf(value);
      if (!dtype) return dtype.takeError();
      type = tritonName(*dtype);
      if (type.empty()) return cannot(fmt::format("of dtype {}, for which Triton has no pointer", name(*dtype)));
      type = "*" + type;
    } else if (value == "true" || value == "false" || value == "True" || value == "False") {
      type = "u1";
    } else if (value == "none" || value == "None") {
      type = "*fp32";
    } else if (std::optional<int64_t> number = integerIn(value)) {
      type = *number >= INT32_MIN && *number <= INT32_MAX ? "i32" : "i64";
    } else {
      char *end = nullptr;
      std::strtod(value.c_str(), &end);
      if (value.empty() || *end) return cannot("which is neither a number nor a buffer");
      type = "fp32";
    }
    source.signature += (i ? ", " : "") + open[i] + ":" + type;
  }
  return Status::ok();
}

Result<std::vector<std::string>> specialiseOnValues(KernelSource &source, const std::vector<std::string> &values) {
  std::vector<std::string> names;
  if (isTtir(source)) return names;
  Result<std::vector<triton::BoundParam>> bound = triton::bindSignature(requestOf(source));
  if (!bound) return bound.takeError();
  std::erase_if(*bound, [](const triton::BoundParam &p) { return p.type == "constexpr"; });
  if (bound->size() != values.size()) {
    std::string list;
    for (const triton::BoundParam &p : *bound) list += (list.empty() ? "" : ", ") + p.name;
    return fail(diag::TileBadArguments, {}, source.function,
                fmt::format("it takes {} arguments ({}), {} are given", bound->size(), list, values.size()));
  }
  std::string signature;
  for (size_t i = 0; i < values.size(); ++i) {
    const triton::BoundParam &p = (*bound)[i];
    const std::string &value = values[i];
    names.push_back(p.name);
    // By name: a value that becomes a constexpr must not move the types of the others.
    signature += (i ? ", " : "") + p.name + ":" + p.type;
    if (value == "none" || value == "None") {
      source.constexprs.emplace_back(p.name, "None");
      continue;
    }
    if (value.starts_with("@")) continue;
    source.values.emplace_back(p.name, value == "true" ? "True" : value == "false" ? "False" : value);
    bool hinted =
        std::any_of(source.hints.begin(), source.hints.end(), [&](const auto &h) { return h.first == p.name; });
    std::optional<int64_t> number = integerIn(value);
    if (hinted || p.doNotSpecialize || !isIntegerType(p.type) || !number) continue;
    if (*number == 1)
      source.hints.emplace_back(p.name, "equal_to_1");
    else if (*number % 16 == 0)
      source.hints.emplace_back(p.name, "divisible_by_16");
  }
  source.signature = signature;
  return names;
}

} // namespace neso
