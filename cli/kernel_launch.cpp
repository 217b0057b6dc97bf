#include "kernel_launch.h"

#include <algorithm>
#include <cctype>
#include <cstdio>

#include "base/diagnostics/cli.h"
#include "base/diagnostics/tile.h"
#include "console.h"
#include "model_file.h"
#include "timing.h"

namespace neso::cli {
namespace {
/// K=V, split at the first '='. The form was checked when the command line was read.
std::pair<std::string, std::string> pairOf(const std::string &text) {
  size_t equals = text.find('=');
  return {text.substr(0, equals), text.substr(equals + 1)};
}


/// "k.neso:add" as ("k.neso", "add"); nothing for another kind of source.
std::optional<std::pair<std::string, std::string>> packageOf(const std::string &source) {
  const std::string ending = ".neso";
  if (source.ends_with(ending)) return std::pair{source, std::string()};
  const size_t at = source.rfind(ending + ":");
  if (at == std::string::npos) return std::nullopt;
  return std::pair{source.substr(0, at + ending.size()), source.substr(at + ending.size() + 1)};
}

/// Whether a compile-time value is a number, a text, True, False or None, and not the name of something.
bool isLiteral(const std::string &text) {
  const unsigned char c = text.empty() ? 0 : static_cast<unsigned char>(text[0]);
  return std::isdigit(c) || c == '-' || c == '\'' || c == '"' || text == "True" || text == "False" || text == "None";
}
} // namespace

Result<KernelSource> sourceOf(const KernelOptions &o) {
  Result<KernelSource> s = parseKernelSource(o.source);
  if (!s) return s;
  s->signature = o.signature;
  for (const std::string &c : o.constexprs) s->constexprs.push_back(pairOf(c));
  for (const std::string &h : o.hints) s->hints.push_back(pairOf(h));
  if (o.numWarps) s->numWarps = o.numWarps;
  if (o.numStages) s->numStages = o.numStages;
  if (o.config >= 0) s->config = o.config;
  s->allConfigs = o.configs == "all";
  s->searchPaths = o.paths;
  s->debug = o.debug;
  return s;
}

Result<Kernel> readKernel(const KernelSource &source) {
  Result<Kernel> kernel = Kernel::read(source);
  if (kernel)
    for (const Diagnostic &warning : kernel->warnings()) print(warning);
  return kernel;
}

bool isPackage(const std::string &source) { return packageOf(source).has_value(); }

Launch::~Launch() {
  neso_context_free(context_);
  neso_model_free(model_);
}

Status Launch::prepare(const KernelOptions &o) {
  device_ = o.device;
  if (Status s = device_.parse(); !s) return s;
  const auto package = packageOf(o.source);
  if (Status s = package ? readPackage(o, package->first, package->second) : readSource(o); !s) return s;
  if (Status s = o.grid.empty() ? ruledGrid() : readGrid(o); !s) return s;
  if (o.interpret) return Status::ok();
  if (!package)
    if (Status s = build(o); !s) return s;
  return makeContext(o);
}

Status Launch::readSource(const KernelOptions &o) {
  Result<KernelSource> source = sourceOf(o);
  if (!source) return source.takeError();
  if (Status s = inferSignature(*source, o.args, dtypeOfArgument); !s) return s;
  Result<std::vector<std::string>> names = specialiseOnValues(*source, o.args);
  if (!names) return names.takeError();
  Result<Kernel> kernel = readKernel(*source);
  if (!kernel) return kernel.takeError();
  kernel_.emplace(std::move(*kernel));
  name_ = kernel_->name(), parameters_ = kernel_->parameters(), constants_ = kernel_->constants();
  Result<KernelArguments> args = readKernelArguments(name_, parameters_, o.args, *names);
  if (!args) return args.takeError();
  arguments = std::move(*args);
  return Status::ok();
}

Status Launch::readPackage(const KernelOptions &o, const std::string &path, const std::string &kernel) {
  const auto unnamed = [&](const std::string &why) { return fail(diag::KernelUnnamed, {}, o.source, why); };
  if (o.interpret || !o.signature.empty() || !o.constexprs.empty() || !o.hints.empty() || o.numWarps || o.numStages || o.config >= 0)
    return unnamed("a package holds machine code, whose signature and constexprs are fixed and which nobody interprets");
  neso_model_options options{};
  options.struct_size = sizeof options;
  if (neso_status s = neso_model_load(path.c_str(), &options, &model_); s != NESO_OK) return runtimeError(s);
  return readHeld(o, kernel);
}

Status Launch::readHeld(const KernelOptions &o, const std::string &kernel) {
  const auto unnamed = [&](const std::string &why) { return fail(diag::KernelUnnamed, {}, o.source, why); };
  std::string held;
  for (int32_t i = 0; i < neso_model_kernel_count(model_); ++i) {
    neso_kernel_info info;
    neso_model_kernel(model_, i, &info);
    const char *text = neso_model_metadata(model_, fmt::format("kernel.{}.parameters", info.name).c_str());
    if (!text) continue;
    held += (held.empty() ? "" : ", ") + std::string(info.name);
    // Configs but the chosen one are launched where somebody names them.
    const bool further = std::string(info.name).find('#') != std::string::npos;
    severalConfigs_ |= further;
    if (kernel.empty() ? further : kernel != info.name) continue;
    if (!name_.empty()) name_.clear(), i = neso_model_kernel_count(model_);
    else name_ = info.name;
  }
  if (name_.empty()) return unnamed(held.empty() ? "it holds a model, which neso run runs" : "it holds " + held);
  Result<std::vector<KernelParameter>> parameters =
      parametersFromText(name_, neso_model_metadata(model_, fmt::format("kernel.{}.parameters", name_).c_str()));
  if (!parameters) return parameters.takeError();
  parameters_ = std::move(*parameters);
  const std::string prefix = fmt::format("kernel.{}.constant.", name_);
  for (int32_t i = 0; const char *key = neso_model_metadata_key(model_, i); ++i)
    if (std::string(key).starts_with(prefix))
      constants_.emplace_back(std::string(key).substr(prefix.size()), neso_model_metadata(model_, key));
  Result<KernelArguments> args = readKernelArguments(name_, parameters_, o.args, {});
  if (!args) return args.takeError();
  arguments = std::move(*args);
  return Status::ok();
}

Status Launch::prepare(const KernelOptions &o, const std::string &package) {
  device_ = o.device;
  if (Status s = device_.parse(); !s) return s;
  if (neso_status s = neso_model_load_memory(package.data(), package.size(), nullptr, &model_); s != NESO_OK) return runtimeError(s);
  if (Status s = readHeld(o, ""); !s) return s;
  if (Status s = ruledGrid(); !s) return s;
  return makeContext(o);
}

std::string Launch::valuesOf(const std::string &config) const {
  const std::string prefix = fmt::format("kernel.{}.constant.", config);
  std::string out;
  for (int32_t i = 0; const char *key = neso_model_metadata_key(model_, i); ++i)
    if (std::string(key).starts_with(prefix))
      out += fmt::format("{}{}={}", out.empty() ? "" : ", ", std::string(key).substr(prefix.size()), neso_model_metadata(model_, key));
  return out;
}

Result<size_t> Launch::fastestConfig() {
  neso_device_info device{};
  if (Status s = device_.info(device); !s) return s.takeError();
  const DeviceTimer timer(context_, device_, device.l2_bytes);
  std::optional<size_t> best;
  double least = 0;
  neso_status failed = NESO_OK;
  const int32_t count = neso_kernel_configs(model_, name_.c_str());
  for (int32_t i = 0; i < count; ++i) {
    const char *config = neso_kernel_config(model_, name_.c_str(), i);
    const auto queue = [&] { return neso_kernel_launch_checked(context_, config, nullptr, args_.data(), argBytes_.data(), args_.size()); };
    const auto once = [&](double *ms) {
      const double begin = nowMs();
      neso_status s = queue();
      if (s == NESO_OK) s = neso_context_synchronize(context_);
      *ms = nowMs() - begin;
      return s;
    };
    double cold = 0;
    Spread warm;
    DeviceTimer again = timer;
    neso_status s = once(&cold);
    if (s == NESO_OK) s = measure(device_.apart() ? again.warm(queue) : Repetition(once), 0, cold, warm);
    if (s != NESO_OK) {
      // As for Triton, one that this device cannot run is no fault of the others.
      failed = s;
      std::fprintf(stderr, "%s with %s: %s\n", name_.c_str(), valuesOf(config).c_str(), neso_error_text());
      continue;
    }
    std::fprintf(stderr, "%s with %s: %s\n", name_.c_str(), valuesOf(config).c_str(), warm.text().c_str());
    if (!best || warm.median < least) best = static_cast<size_t>(i), least = warm.median;
  }
  if (!best) return runtimeError(failed);
  return *best;
}

Status Launch::readGrid(const KernelOptions &o) {
  std::vector<KernelSource::NamedText> names;
  for (const auto &constant : constants_)
    if (isLiteral(constant.second)) names.push_back(constant);
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (parameters_[i].kind == KernelParameter::Integer)
      names.emplace_back(parameters_[i].name, std::to_string(arguments.values[i].integer));
  Result<std::array<uint32_t, 3>> grid = evaluateLaunchGrid(o.source, o.grid, names);
  if (!grid) return grid.takeError();
  grid_ = *grid;
  return Status::ok();
}

Status Launch::ruledGrid() {
  const std::vector<neso_arg> args = packArguments(parameters_, arguments.values);
  neso_status s = neso_kernel_grid(model_, name_.c_str(), args.data(), args.size(), grid_.data());
  return s == NESO_OK ? Status::ok() : Status(runtimeError(s));
}

void Launch::sayConfig() const {
  if (kernel_ ? !kernel_->autotuned() : !severalConfigs_) return;
  std::string text;
  for (const auto &[name, value] : constants_) text += fmt::format("{}{}={}", text.empty() ? "" : ", ", name, value);
  std::fprintf(stderr, "%s runs with %s over a grid of %u x %u x %u\n", name_.c_str(), text.c_str(), grid_[0], grid_[1], grid_[2]);
}

Status Launch::interpret(bool races) {
  auto print = [](const std::string &line) { std::fprintf(stderr, "%s\n", line.c_str()); };
  return kernel_->interpret(arguments.values, {grid_[0], grid_[1], grid_[2]}, print, races);
}

neso_status Launch::launch() {
  return neso_kernel_launch_checked(context_, name_.c_str(), grid_.data(), args_.data(), argBytes_.data(), args_.size());
}

Status Launch::collect() {
  if (neso_status s = neso_context_synchronize(context_); s != NESO_OK) return runtimeError(s);
  for (const auto &[host, there] : onDevice_)
    if (Status s = copy(plain(host, there.second, NESO_CPU), plain(there.first, there.second, device_.kind)); !s) return s;
  return Status::ok();
}

neso_tensor Launch::plain(void *data, const int64_t &bytes, neso_device_kind kind) const {
  return {data, &bytes, nullptr, 1, NESO_U8, kind, kind == device_.kind ? device_.index : 0};
}

Status Launch::copy(const neso_tensor &to, const neso_tensor &from) const {
  neso_status s = neso_tensor_copy(context_, &to, &from);
  return s == NESO_OK ? Status::ok() : Status(runtimeError(s));
}

// Each buffer of the host gets one on the GPU, so that parameters that share a buffer share it there.
Status Launch::moveToDevice(std::vector<KernelValue> &values) {
  for (KernelValue &v : values) {
    if (!v.data) continue;
    auto [it, added] = onDevice_.try_emplace(v.data, std::pair<void *, int64_t>{nullptr, v.bytes});
    if (added) {
      if (neso_status s = neso_context_allocate(context_, static_cast<size_t>(v.bytes), &it->second.first); s != NESO_OK)
        return runtimeError(s);
      if (Status s = copy(plain(it->second.first, v.bytes, device_.kind), plain(v.data, v.bytes, NESO_CPU)); !s) return s;
    }
    v.data = it->second.first;
  }
  return Status::ok();
}

Status Launch::build(const KernelOptions &o) {
  Result<DeviceChoice::Code> code = device_.code();
  if (!code) return code.takeError();
  std::vector<std::string> archs = o.archs.empty() ? std::vector{code->arch} : o.archs;
  std::replace(archs.begin(), archs.end(), std::string(kNativeArch), code->arch);
  Result<std::string> bytes = kernel_->package(code->target, archs, nullptr, o.ptxas);
  if (!bytes) return bytes.takeError();
  bytes_ = std::move(*bytes);
  if (neso_status s = neso_model_load_memory(bytes_.data(), bytes_.size(), nullptr, &model_); s != NESO_OK)
    return runtimeError(s);
  return Status::ok();
}

Status Launch::makeContext(const KernelOptions &o) {
  neso_context_options options{};
  options.struct_size = sizeof options;
  options.threads = o.threads;
  device_.apply(options);
  if (neso_status s = neso_context_create(model_, &options, &context_); s != NESO_OK) return runtimeError(s);
  std::vector<KernelValue> values = arguments.values;
  if (device_.apart())
    if (Status s = moveToDevice(values); !s) return s;
  args_ = packArguments(parameters_, values);
  argBytes_ = packBufferBytes(parameters_, values);
  return Status::ok();
}

} // namespace neso::cli
