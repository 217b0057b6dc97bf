#include "model_file.h"
#include "base/diagnostics/cli.h"
#include "console.h"
#include "sample_inputs.h"

#include "driver/compile.h"

#include <cmath>
#include <cstring>
#include <random>

namespace neso::cli {

Error runtimeError(neso_status status) {
  return fail(diag::RuntimeRefused, {{}, 0, 0, neso_status_code(status)}, neso_error_text());
}

Status OpenModel::open(const std::string &path, neso_check check, const DeviceChoice &device,
                       const std::vector<std::string> &kernels, bool updatable, const std::string &name, bool perfMap) {
  neso_model_options options{};
  options.perf_map = perfMap;
  options.check = check, options.name = name.empty() ? nullptr : name.c_str();
  options.for_device = 1 + device.kind;
  return load(path, options, device, kernels, updatable);
}

Status OpenModel::look(const std::string &path, const std::string &name) {
  neso_model_options options{};
  options.name = name.empty() ? nullptr : name.c_str();
  options.check = NESO_CHECK_ALL, options.look_only = 1;
  return load(path, options, {}, {}, false);
}

Status OpenModel::load(const std::string &path, neso_model_options options, const DeviceChoice &device,
                       const std::vector<std::string> &kernels, bool updatable) {
  options.struct_size = sizeof options;
  options.ops = operators_.ops(), options.op_count = operators_.count();
  options.objects = operators_.objects(), options.object_count = operators_.objectCount();
  if (path.size() > 4 && path.compare(path.size() - 4, 4, ".pt2") == 0) {
    Result<DeviceChoice::Code> code = device.code();
    if (!code) return code.takeError();
    CompileOptions compile;
    compile.target = code->target;
    compile.archs = {code->arch};
    compile.kernelPaths = kernels;
    compile.updatable = updatable;
    DiagnosticSink sink;
    Result<Compilation> compiled = compileModel(path, compile, sink);
    printWarnings(sink);
    if (!compiled) return compiled.takeError();
    bytes_ = std::move(compiled->package);
    neso_status status = neso_model_load_memory(bytes_.data(), bytes_.size(), &options, &model_);
    return status == NESO_OK ? Status::ok() : Status(runtimeError(status));
  }
  neso_status status = neso_model_load(path.c_str(), &options, &model_);
  return status == NESO_OK ? Status::ok() : Status(runtimeError(status));
}

std::string outputName(const neso_model *model, size_t index) {
  neso_value_info info{};
  neso_model_output(model, static_cast<int32_t>(index), &info);
  return info.name && *info.name ? info.name : std::to_string(index);
}

std::string inputList(const neso_model *model) {
  std::string out;
  for (int32_t i = 0; i < neso_model_input_count(model); ++i) {
    neso_value_info info;
    neso_model_input(model, i, &info);
    if (info.kind == NESO_VALUE_TEXT || info.kind == NESO_VALUE_NONE) continue;
    out += fmt::format("{}{} ('{}')", out.empty() ? "" : ", ", i, info.name);
  }
  return out.empty() ? "no inputs" : out;
}

namespace {
bool takesValue(const neso_value_info &info) { return info.kind != NESO_VALUE_TEXT && info.kind != NESO_VALUE_NONE; }

// NumPy has no bfloat16: it and raw two-byte data look alike, and complex128 comes as pairs of F64 from safetensors.
void adapt(HostTensor &t, const neso_value_info &info) {
  if (info.dtype == NESO_C128 && t.dtype == DType::F64 && !t.sizes.empty() && t.sizes.back() == 2 &&
      static_cast<int32_t>(t.sizes.size()) == info.rank + 1) {
    t.sizes.pop_back();
    t.dtype = DType::C128;
  }
}

// The number of the input that a tensor's name means: its number or its exported name; -1: none.
int32_t findInput(const std::vector<neso_value_info> &infos, const std::string &name) {
  for (size_t i = 0; i < infos.size(); ++i)
    if (name == std::to_string(i)) return static_cast<int32_t>(i);
  for (size_t i = 0; i < infos.size(); ++i)
    if (name == infos[i].name) return static_cast<int32_t>(i);
  return -1;
}

bool isNpy(const std::string &path) { return path.size() > 4 && path.compare(path.size() - 4, 4, ".npy") == 0; }
} // namespace

Result<std::vector<HostTensor>> inputsFromFiles(const neso_model *model, const std::vector<std::string> &files, const std::string &name) {
  std::vector<neso_value_info> infos(static_cast<size_t>(neso_model_input_count(model)));
  for (size_t i = 0; i < infos.size(); ++i) neso_model_input(model, static_cast<int32_t>(i), &infos[i]);
  std::vector<HostTensor> inputs(infos.size()), loose;
  auto place = [&](size_t i, HostTensor t) -> Status {
    if (inputs[i].storage) return fail(diag::InputTwice, {}, i, infos[i].name);
    adapt(t, infos[i]);
    inputs[i] = std::move(t);
    return Status::ok();
  };
  for (const std::string &file : files) {
    if (file.ends_with(".pt2")) {
      Result<std::vector<std::optional<HostTensor>>> samples = sampleInputs(file);
      if (!samples) return samples.takeError();
      if (samples->size() != infos.size())
        return fail(diag::SampleUnusable, {}, file, fmt::format("there are {}, but the model takes {}", samples->size(), infos.size()));
      for (size_t i = 0; i < infos.size(); ++i)
        if (std::optional<HostTensor> &t = (*samples)[i]; t && takesValue(infos[i]))
          if (Status s = place(i, std::move(*t)); !s) return s.takeError();
      continue;
    }
    Result<std::vector<HostTensor>> tensors = file.ends_with(".neso") ? packagedSamples(file, name) : readTensorFile(file);
    if (!tensors) return tensors.takeError();
    for (HostTensor &t : *tensors) {
      if (isNpy(file)) {
        loose.push_back(std::move(t));
        continue;
      }
      int32_t i = findInput(infos, t.name);
      if (i < 0) return fail(diag::InputUnknown, {file, 0, 0, {}}, t.name, inputList(model));
      if (Status s = place(static_cast<size_t>(i), std::move(t)); !s) return s.takeError();
    }
  }
  if (!loose.empty()) {
    std::vector<size_t> open, required;
    for (size_t i = 0; i < infos.size(); ++i) {
      if (!takesValue(infos[i]) || inputs[i].storage) continue;
      open.push_back(i);
      if (!infos[i].optional) required.push_back(i);
    }
    const std::vector<size_t> &slots = loose.size() == required.size() ? required : open;
    if (slots.size() != loose.size()) return fail(diag::NpyCount, {}, loose.size(), required.size(), inputList(model));
    for (size_t i = 0; i < slots.size(); ++i)
      if (Status s = place(slots[i], std::move(loose[i])); !s) return s.takeError();
  }
  for (size_t i = 0; i < infos.size(); ++i)
    if (!inputs[i].storage && takesValue(infos[i]) && !infos[i].optional)
      return fail(diag::InputNotGiven, {}, i, infos[i].name, inputList(model));
  return inputs;
}

namespace {
uint16_t halfBits(float v, DType dtype) {
  uint32_t bits;
  std::memcpy(&bits, &v, 4);
  if (dtype == DType::BF16) return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  // Normal numbers of f16 only; smaller ones become zero, which is as random as any.
  int exponent = static_cast<int>(bits >> 23 & 255) - 112;
  if (exponent <= 0) return 0;
  return static_cast<uint16_t>((bits >> 16 & 0x8000) | static_cast<uint32_t>(exponent) << 10 | (bits >> 13 & 0x3ff));
}

// xorshift and Box-Muller, so that a seed means the same inputs everywhere.
class Random {
public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u) {}
  uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }
  double uniform() { return (static_cast<double>(next() >> 11) + 0.5) * 0x1p-53; }
  double normal() { return std::sqrt(-2 * std::log(uniform())) * std::cos(6.283185307179586 * uniform()); }

private:
  uint64_t state_;
};

void randomise(HostTensor &t, Random &random) {
  size_t item = static_cast<size_t>(itemSize(t.dtype));
  DType real = toReal(t.dtype);
  size_t part = static_cast<size_t>(itemSize(real));
  for (size_t i = 0; i < t.bytes / (isComplex(t.dtype) ? part : item); ++i) {
    uint8_t *p = t.data() + i * part;
    if (real == DType::F32) {
      float v = static_cast<float>(random.normal());
      std::memcpy(p, &v, 4);
    } else if (real == DType::F64) {
      double v = random.normal();
      std::memcpy(p, &v, 8);
    } else if (real == DType::F16 || real == DType::BF16) {
      uint16_t v = halfBits(static_cast<float>(random.normal()), real);
      std::memcpy(p, &v, 2);
    } else {
      p[0] = static_cast<uint8_t>(random.next() >> 40 & 1);
    }
  }
}
} // namespace

Result<std::vector<HostTensor>> randomInputs(const neso_model *model, uint64_t seed,
                                             const std::vector<std::string> &dims) {
  std::string symbols;
  for (int32_t i = 0; i < neso_model_symbol_count(model); ++i) {
    neso_symbol_info info;
    neso_model_symbol(model, i, &info);
    symbols += fmt::format("{}{} in [{}, {}]", i ? ", " : "", info.name, info.min, info.max);
  }
  std::vector<std::string> names;
  std::vector<int64_t> values;
  for (const std::string &dim : dims) {
    size_t equal = dim.find('=');
    char *end = nullptr;
    long long value = equal == std::string::npos ? 0 : std::strtoll(dim.c_str() + equal + 1, &end, 10);
    if (!end || *end || end == dim.c_str() + equal + 1)
      return fail(diag::BadSizeSetting, {}, dim, symbols.empty() ? "none" : symbols);
    names.push_back(dim.substr(0, equal));
    values.push_back(value);
  }
  std::vector<const char *> namePointers;
  for (const std::string &n : names) namePointers.push_back(n.c_str());
  std::vector<neso_value_info> infos(static_cast<size_t>(neso_model_input_count(model)));
  size_t total = 0;
  for (size_t i = 0; i < infos.size(); ++i) {
    neso_model_input(model, static_cast<int32_t>(i), &infos[i]);
    total += static_cast<size_t>(infos[i].rank);
  }
  std::vector<int64_t> sizes(total + 1);
  if (neso_status s = neso_model_solve_sizes(model, namePointers.data(), values.data(), names.size(), sizes.data());
      s != NESO_OK)
    return runtimeError(s);
  Random random(seed);
  for (int i = 0; i < 8; ++i) random.next();
  std::vector<HostTensor> inputs(infos.size());
  size_t at = 0;
  for (size_t i = 0; i < infos.size(); ++i) {
    if (!takesValue(infos[i]) || (infos[i].optional && infos[i].kind != NESO_VALUE_TENSOR)) continue;
    inputs[i].dtype = static_cast<DType>(infos[i].dtype);
    for (int32_t d = 0; d < infos[i].rank; ++d) inputs[i].sizes.push_back(sizes[at++]);
    if (elementCount(inputs[i].sizes) < 0) return fail(diag::BadSizeSetting, {}, dims.empty() ? "" : dims[0], symbols);
    if (Status s = inputs[i].allocate(); !s) return s.takeError();
    randomise(inputs[i], random);
  }
  return inputs;
}

std::vector<neso_tensor> tensorViews(const std::vector<HostTensor> &inputs) {
  std::vector<neso_tensor> out;
  for (const HostTensor &t : inputs) {
    neso_tensor view{};
    if (t.storage)
      view = {t.data(),
              t.sizes.data(),
              nullptr,
              static_cast<int32_t>(t.sizes.size()),
              static_cast<neso_dtype>(t.dtype),
              NESO_CPU,
              0};
    out.push_back(view);
  }
  return out;
}

} // namespace neso::cli
