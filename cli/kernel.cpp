// neso kernel analyze | compile | emit | run | bench: single kernels, from Triton source or TTIR.
#include <cstdio>
#include <map>

#include <CLI/CLI.hpp>

#include "backend/target.h"
#include "base/atomic_file.h"
#include "driver/kernel.h"
#include "flags.h"
#include "kernel_args.h"
#include "model_file.h"
#include "timing.h"
#include "verb.h"

namespace neso::cli {
namespace {

struct Options {
  std::string source, signature, output, target{backends().front()->kind()}, stage, grid, ptxas;
  DeviceChoice device;
  std::vector<std::string> constexprs, hints, archs, args, paths;
  int numWarps = 0, numStages = 0, threads = 0, iterations = 0;
  bool json = false, interpret = false, debug = false;
};

/// K=V, split at the first '='. The form was checked when the command line was read.
std::pair<std::string, std::string> pairOf(const std::string &text) {
  size_t equals = text.find('=');
  return {text.substr(0, equals), text.substr(equals + 1)};
}

Result<KernelSource> sourceOf(const Options &o) {
  Result<KernelSource> s = parseKernelSource(o.source);
  if (!s) return s;
  s->signature = o.signature;
  for (const std::string &c : o.constexprs) s->constexprs.push_back(pairOf(c));
  for (const std::string &h : o.hints) s->hints.push_back(pairOf(h));
  if (o.numWarps) s->numWarps = o.numWarps;
  if (o.numStages) s->numStages = o.numStages;
  s->searchPaths = o.paths;
  s->debug = o.debug;
  return s;
}

std::string jsonList(const std::vector<std::string> &names) {
  std::string out;
  for (const std::string &n : names) out += (out.empty() ? "" : ", ") + jsonString(n);
  return "[" + out + "]";
}

std::string plainList(const std::vector<std::string> &names) {
  std::string out;
  for (const std::string &n : names) out += (out.empty() ? "" : ", ") + n;
  return out.empty() ? "none" : out;
}

int analyze(const Options &o) {
  Result<KernelSource> source = sourceOf(o);
  if (!source) return report(source.error());
  Result<Kernel> kernel = Kernel::read(*source);
  if (!kernel) return report(kernel.error());
  KernelMutation m = kernel->mutation();
  if (o.json) {
    fmt::print("{{\"kernel\": {}, \"mutated\": {}, \"read\": {}, \"known\": {}{}}}\n", jsonString(kernel->name()),
               jsonList(m.mutated), jsonList(m.read), m.known,
               m.known ? "" : ", \"because\": " + jsonString(m.unknownBecause));
  } else {
    fmt::print("kernel   {}\nmutated  {}\nread     {}\n", kernel->name(), plainList(m.mutated), plainList(m.read));
    if (!m.known) fmt::print("assumed, because {}\n", m.unknownBecause);
  }
  return 0;
}

int compile(Options o) {
  if (Status s = resolveNative(o.target, o.archs, o.device); !s) return report(s.error());
  Result<KernelSource> source = sourceOf(o);
  if (!source) return report(source.error());
  Result<Kernel> kernel = Kernel::read(*source);
  if (!kernel) return report(kernel.error());
  std::vector<std::string> notes;
  Result<std::string> bytes = kernel->package(o.target, o.archs, &notes, o.ptxas);
  if (!bytes) return report(bytes.error());
  for (const std::string &note : notes) std::fprintf(stderr, "%s\n", note.c_str());
  Status s = writeFileAtomically(o.output, *bytes);
  return s ? 0 : report(s.error());
}

int emit(Options o) {
  if (Status s = resolveNative(o.target, o.archs, o.device); !s) return report(s.error());
  Result<KernelSource> source = sourceOf(o);
  if (!source) return report(source.error());
  Result<Kernel> kernel = Kernel::read(*source);
  if (!kernel) return report(kernel.error());
  Result<std::string> text =
      kernel->emit(*parseKernelStage(o.stage), o.target, o.archs.empty() ? "" : o.archs.front(), o.ptxas);
  if (!text) return report(text.error());
  if (o.output.empty()) {
    std::fwrite(text->data(), 1, text->size(), stdout);
    return 0;
  }
  Status s = writeFileAtomically(o.output, *text);
  return s ? 0 : report(s.error());
}

/// A kernel with its values, and, unless it is to be interpreted, its machine code loaded.
class Launch {
public:
  Launch() = default;
  Launch(const Launch &) = delete;
  Launch &operator=(const Launch &) = delete;
  ~Launch() {
    neso_context_free(context_);
    neso_model_free(model_);
  }

  Status prepare(const Options &o) {
    device_ = o.device;
    if (Status s = device_.parse(); !s) return s;
    Result<std::array<uint32_t, 3>> grid = parseGrid(o.source, o.grid);
    if (!grid) return grid.takeError();
    grid_ = *grid;
    Result<KernelSource> source = sourceOf(o);
    if (!source) return source.takeError();
    Result<std::vector<std::string>> names = specialiseOnValues(*source, o.args);
    if (!names) return names.takeError();
    Result<Kernel> kernel = Kernel::read(*source);
    if (!kernel) return kernel.takeError();
    kernel_.emplace(std::move(*kernel));
    Result<KernelArguments> args = readKernelArguments(*kernel_, o.args, *names);
    if (!args) return args.takeError();
    arguments = std::move(*args);
    if (o.interpret) return Status::ok();
    return load(o);
  }

  Status interpret() {
    auto print = [](const std::string &line) { std::fprintf(stderr, "%s\n", line.c_str()); };
    return kernel_->interpret(arguments.values, {grid_[0], grid_[1], grid_[2]}, print);
  }
  neso_status launch() {
    return neso_kernel_launch_checked(context_, kernel_->name().c_str(), grid_.data(), args_.data(), argBytes_.data(),
                                      args_.size());
  }

  /// Waits, and brings what the kernel wrote back to the buffers of the host.
  Status collect() {
    if (neso_status s = neso_context_synchronize(context_); s != NESO_OK) return runtimeError(s);
    for (const auto &[host, there] : onDevice_)
      if (Status s = copy(plain(host, there.second, NESO_CPU), plain(there.first, there.second, device_.kind)); !s)
        return s;
    return Status::ok();
  }
  neso_context *context() const { return context_; }
  const DeviceChoice &device() const { return device_; }

  KernelArguments arguments;

private:
  neso_tensor plain(void *data, const int64_t &bytes, neso_device_kind kind) const {
    return {data, &bytes, nullptr, 1, NESO_U8, kind, kind == device_.kind ? device_.index : 0};
  }
  Status copy(const neso_tensor &to, const neso_tensor &from) const {
    neso_status s = neso_tensor_copy(context_, &to, &from);
    return s == NESO_OK ? Status::ok() : Status(runtimeError(s));
  }

  // Each buffer of the host gets one on the GPU, so that parameters that share a buffer share it there.
  Status moveToDevice(std::vector<KernelValue> &values) {
    for (KernelValue &v : values) {
      if (!v.data) continue;
      auto [it, added] = onDevice_.try_emplace(v.data, std::pair<void *, int64_t>{nullptr, v.bytes});
      if (added) {
        if (neso_status s = neso_context_allocate(context_, static_cast<size_t>(v.bytes), &it->second.first);
            s != NESO_OK)
          return runtimeError(s);
        if (Status s = copy(plain(it->second.first, v.bytes, device_.kind), plain(v.data, v.bytes, NESO_CPU)); !s)
          return s;
      }
      v.data = it->second.first;
    }
    return Status::ok();
  }

  Status load(const Options &o) {
    Result<DeviceChoice::Code> code = device_.code();
    if (!code) return code.takeError();
    std::vector<std::string> archs = o.archs.empty() ? std::vector{code->arch} : o.archs;
    std::replace(archs.begin(), archs.end(), std::string(kNativeArch), code->arch);
    Result<std::string> bytes = kernel_->package(code->target, archs, nullptr, o.ptxas);
    if (!bytes) return bytes.takeError();
    bytes_ = std::move(*bytes);
    if (neso_status s = neso_model_load_memory(bytes_.data(), bytes_.size(), nullptr, &model_); s != NESO_OK)
      return runtimeError(s);
    neso_context_options options{};
    options.struct_size = sizeof options;
    options.threads = o.threads;
    device_.apply(options);
    if (neso_status s = neso_context_create(model_, &options, &context_); s != NESO_OK) return runtimeError(s);
    std::vector<KernelValue> values = arguments.values;
    if (device_.apart())
      if (Status s = moveToDevice(values); !s) return s;
    args_ = kernel_->arguments(values);
    argBytes_ = kernel_->bufferBytes(values);
    return Status::ok();
  }

  std::optional<Kernel> kernel_;
  std::array<uint32_t, 3> grid_{1, 1, 1};
  std::string bytes_;
  neso_model *model_ = nullptr;
  neso_context *context_ = nullptr;
  std::vector<neso_arg> args_;
  std::vector<int64_t> argBytes_; // of the buffers behind args_
  DeviceChoice device_;
  std::map<void *, std::pair<void *, int64_t>> onDevice_; // buffer of the host → of the GPU, bytes
};

int run(const Options &o) {
  Launch launch;
  if (Status s = launch.prepare(o); !s) return report(s.error());
  if (o.interpret) {
    if (Status s = launch.interpret(); !s) return report(s.error());
  } else if (neso_status s = launch.launch(); s != NESO_OK) {
    return report(s);
  } else if (Status s = launch.collect(); !s) {
    return report(s.error());
  }
  Status s = writeSafetensors(o.output, launch.arguments.outputs, {});
  return s ? 0 : report(s.error());
}

int bench(const Options &o) {
  Launch launch;
  double start = nowMs();
  if (Status s = launch.prepare(o); !s) return report(s.error());
  double prepareMs = nowMs() - start;
  bool gpu = launch.device().apart();
  auto once = [&](double *ms) {
    double begin = nowMs();
    neso_status s = launch.launch();
    if (s == NESO_OK) s = neso_context_synchronize(launch.context());
    *ms = nowMs() - begin;
    return s;
  };
  double cold = 0;
  if (neso_status s = once(&cold); s != NESO_OK) return report(s);
  neso_device_info device{};
  if (Status s = launch.device().info(device); !s) return report(s.error());
  DeviceTimer timer(launch.context(), launch.device(), device.l2_bytes);
  auto queue = [&] { return launch.launch(); };
  Spread warm, coldCache;
  if (neso_status s = measure(gpu ? timer.warm(queue) : Repetition(once), o.iterations, cold, warm); s != NESO_OK)
    return report(s);
  if (gpu)
    if (neso_status s = measure(timer.cold(queue), o.iterations, cold, coldCache); s != NESO_OK) return report(s);
  if (o.json) {
    fmt::print("{{\"warm\": {}{}, \"cold_ms\": {:.6f}, \"compile_ms\": {:.6f}, \"runs\": {}, \"device\": {}}}\n",
               warm.json(), gpu ? ", \"cold_l2\": " + coldCache.json() : "", cold, prepareMs, warm.runs,
               jsonString(o.device.text));
    return 0;
  }
  fmt::print("warm     {}\n", warm.text());
  if (gpu) fmt::print("cold L2  {}\n", coldCache.text());
  fmt::print("cold     {:.4f} ms\ncompile  {:.1f} ms, arguments read\n", cold, prepareMs);
  return 0;
}

const char *kPair = "K=V";
const CLI::Validator kHasEquals(
    [](std::string &text) {
      return text.find('=') == std::string::npos ? "'" + text + "' is not of the form K=V" : std::string();
    },
    "");

CLI::App *declareSource(CLI::App *kernel, const char *verb, const char *text, Options &o) {
  CLI::App *app = kernel->add_subcommand(verb, text);
  app->add_option("source", o.source, "FILE.py:NAME or FILE.ttir[:NAME]")->required();
  app->add_option("--signature", o.signature,
                  "the types of the arguments, in order: *fp32, *bf16, i32, fp32, constexpr, tensordesc<bf16[64,64]>; "
                  "also name:type");
  app->add_option("--constexpr", o.constexprs, "a compile-time value, as a Python literal")
      ->type_name(kPair)
      ->check(kHasEquals)
      ->allow_extra_args(false);
  app->add_option("--hint", o.hints, "divisible_by_16, equal_to_1 or none, for an argument")
      ->type_name(kPair)
      ->check(kHasEquals)
      ->allow_extra_args(false);
  app->add_option("--num-warps", o.numWarps, "of 32 threads a program, on GPUs (default: the config's, or 4)")
      ->check(CLI::Range(1, 64));
  app->add_option("--num-stages", o.numStages, "of pipelined loops, on GPUs (default: the config's, or 3)")
      ->check(CLI::Range(1, 64));
  app->add_option("--path", o.paths, "a file or folder where imports are looked up")->allow_extra_args(false);
  app->add_flag("--debug", o.debug, "keep device_assert");
  return app;
}

/// What is asked of NVIDIA's software where code is made and nothing is launched.
void declareToolkit(CLI::App *app, Options &o) {
  app->add_option("--ptxas", o.ptxas, "path of NVIDIA's assembler, or none: as for neso compile");
  app->add_option("--cuda-driver", o.device.driver, "the CUDA driver's library, for --arch native");
}

void declareLaunch(CLI::App *app, Options &o) {
  app->add_option("--grid", o.grid, "X[,Y[,Z]] programs")->required();
  app->add_option(
         "--arg", o.args,
         "a value for each argument that is no constexpr, in order: @x.npy, @x.safetensors#name, none, 1024, 0.5, true")
      ->allow_extra_args(false);
  app->add_option("--arch", o.archs, "as for compile")->delimiter(',')->allow_extra_args(false);
  app->add_option("--ptxas", o.ptxas, "path of NVIDIA's assembler, or none: as for neso compile");
  declareDevice(app, o.device, o.threads);
}

} // namespace

void declareKernel(CLI::App &parent, Action &todo) {
  auto o = std::make_shared<Options>();
  CLI::App *kernel = parent.add_subcommand("kernel", "analyze, compile and run one Triton kernel, from source or TTIR");
  kernel->require_subcommand(1);

  CLI::App *app = declareSource(kernel, "analyze", "which arguments the kernel mutates", *o);
  app->add_flag("--json", o->json, "one JSON object");
  app->callback([o, &todo] { todo = [o] { return analyze(*o); }; });

  app = declareSource(kernel, "compile", "write a package that holds the kernel", *o);
  app->add_option("-o,--output", o->output, "the package")->required();
  app->add_option("--target", o->target, backendKinds())->capture_default_str();
  app->add_option("--arch", o->archs, targetHelp() + "; several: all go in")->delimiter(',')->allow_extra_args(false);
  declareToolkit(app, *o);
  app->callback([o, &todo] { todo = [o] { return compile(*o); }; });

  app = declareSource(kernel, "emit", "print a stage of the compiler", *o);
  std::vector<std::string> stages;
  for (Stage stage : kernelStages()) stages.emplace_back(kernelStageName(stage));
  app->add_option("--stage", o->stage, "the stage; some are of one target only")
      ->required()
      ->check(CLI::IsMember(stages));
  app->add_option("-o,--output", o->output, "the text (default: standard output)");
  app->add_option("--target", o->target, backendKinds())->capture_default_str();
  app->add_option("--arch", o->archs, "as for compile; one")->delimiter(',')->expected(1);
  declareToolkit(app, *o);
  app->callback([o, &todo] { todo = [o] { return emit(*o); }; });

  app = declareSource(kernel, "run", "launch the kernel on files and write every buffer", *o);
  declareLaunch(app, *o);
  app->add_option("-o,--output", o->output, "a .safetensors: every buffer argument, named after its parameter")
      ->required();
  app->add_flag("--interpret", o->interpret,
                "execute in the interpreter of the tile IR, which watches every access, in place of machine code");
  app->callback([o, &todo] { todo = [o] { return run(*o); }; });

  app = declareSource(kernel, "bench", "measure launches of the kernel", *o);
  declareLaunch(app, *o);
  app->add_option("--iters", o->iterations, "timed launches (default: about a second's worth)")
      ->check(CLI::Range(1, 100000000));
  app->add_flag("--json", o->json, "one JSON object");
  app->callback([o, &todo] { todo = [o] { return bench(*o); }; });
}

} // namespace neso::cli
