// neso run: one run of a package (or of a .pt2, compiled in memory first) on inputs from files, its outputs to a file.
#include <CLI/CLI.hpp>

#include "model_file.h"
#include "verb.h"

namespace neso::cli {
namespace {
struct Options {
  std::string model, output, device = "cpu";
  std::vector<std::string> inputs;
  int threads = 0;
  bool strides = false;
};

std::string strideText(const neso_tensor &t) {
  std::string text;
  for (int32_t d = 0; d < t.rank; ++d) text += fmt::format("{}{}", d ? "," : "", t.strides ? t.strides[d] : 0);
  return text;
}

// A dense copy of a tensor of any strides.
Result<HostTensor> denseCopy(const std::string &name, const neso_tensor &t) {
  HostTensor out;
  out.name = name;
  out.dtype = static_cast<DType>(t.dtype);
  out.sizes.assign(t.sizes, t.sizes + t.rank);
  if (Status s = out.allocate(); !s) return s.takeError();
  size_t item = neso_dtype_size(t.dtype);
  std::vector<int64_t> index(out.sizes.size()), strides(out.sizes.size());
  int64_t stride = 1;
  for (size_t d = strides.size(); d-- > 0; stride *= out.sizes[d]) strides[d] = t.strides ? t.strides[d] : stride;
  for (size_t i = 0, n = out.bytes / item; i < n; ++i) {
    int64_t from = 0;
    for (size_t d = 0; d < index.size(); ++d) from += index[d] * strides[d];
    std::memcpy(out.data() + i * item, static_cast<const char *>(t.data) + from * static_cast<int64_t>(item), item);
    for (size_t d = index.size(); d-- > 0;) {
      if (++index[d] < out.sizes[d]) break;
      index[d] = 0;
    }
  }
  return out;
}

int run(const Options &o) {
  if (Status s = checkDevice(o.device); !s) return report(s.error());
  OpenModel model;
  if (Status s = model.open(o.model, NESO_CHECK_ALL); !s) return report(s.error());
  Result<std::vector<HostTensor>> inputs = inputsFromFiles(model.get(), o.inputs);
  if (!inputs) return report(inputs.error());
  neso_context_options options{};
  options.struct_size = sizeof options;
  options.threads = o.threads;
  neso_context *raw = nullptr;
  if (neso_status s = neso_context_create(model.get(), &options, &raw); s != NESO_OK) return report(s);
  std::unique_ptr<neso_context, void (*)(neso_context *)> context(raw, neso_context_free);
  std::vector<neso_tensor> views = tensorViews(*inputs), outputs(static_cast<size_t>(neso_model_output_count(model.get())));
  if (neso_status s = neso_run(raw, views.data(), views.size(), outputs.data(), outputs.size()); s != NESO_OK) return report(s);

  std::vector<HostTensor> results;
  std::map<std::string, std::string> metadata;
  Status kept;
  auto keep = [&](const std::string &name, const neso_tensor &t) {
    Result<HostTensor> copy = denseCopy(name, t);
    if (copy) results.push_back(std::move(*copy));
    else kept = copy.takeError();
  };
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].data) continue;
    keep(std::to_string(i), outputs[i]);
    if (o.strides) metadata["strides." + std::to_string(i)] = strideText(outputs[i]);
  }
  for (size_t i = 0; i < views.size(); ++i) {
    neso_value_info info;
    neso_model_input(model.get(), static_cast<int32_t>(i), &info);
    if (info.mutated) keep(fmt::format("input.{}", i), views[i]);
  }
  for (int32_t i = 0; i < neso_model_constant_count(model.get()); ++i) {
    neso_constant_info info;
    neso_tensor buffer;
    neso_model_constant(model.get(), i, &info);
    if (info.mutated && neso_context_buffer(raw, info.name, &buffer) == NESO_OK) keep(fmt::format("buffer.{}", info.name), buffer);
  }
  if (!kept) return report(kept.error());
  if (Status s = writeSafetensors(o.output, results, metadata); !s) return report(s.error());
  return 0;
}
} // namespace

void declareRun(CLI::App &parent, Action &todo) {
  auto o = std::make_shared<Options>();
  CLI::App *app = parent.add_subcommand("run", "run a package (or a .pt2, compiled in memory first) once");
  app->add_option("model", o->model, "the package")->required();
  app->add_option("--input", o->inputs, ".safetensors (tensors named 0, 1, … or by argument), or several .npy, one an input, in order")->allow_extra_args(false);
  app->add_option("-o,--output", o->output, "where the outputs go (.safetensors)")->required();
  app->add_option("--device", o->device, "cpu, cuda or cuda:N");
  app->add_option("--threads", o->threads, "0: one per core")->check(CLI::Range(0, 4096));
  app->add_flag("--strides", o->strides, "add the outputs' strides to the file's metadata");
  app->callback([o, &todo] { todo = [o] { return run(*o); }; });
}

} // namespace neso::cli
