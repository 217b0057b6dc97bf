// neso kernel analyze | compile | emit | run | bench: single kernels, from Triton source or TTIR.
#include <cstdio>

#include "backend/target.h"
#include "base/atomic_file.h"
#include "base/json.h"
#include "driver/kernel.h"
#include "driver/settings.h"
#include "flags.h"
#include "kernel_header.h"
#include "kernel_launch.h"
#include "summary.h"
#include "timing.h"
#include "verb.h"

namespace neso::cli {
namespace {

using Options = KernelOptions;

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
  Result<Kernel> kernel = readKernel(*source);
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
  Result<Kernel> kernel = readKernel(*source);
  if (!kernel) return report(kernel.error());
  std::vector<std::string> notes;
  ConfigChoice choose;
  if (o.tune)
    choose = [&](const std::string &package) -> Result<size_t> {
      KernelOptions onDevice = o;
      onDevice.device.text = o.target;
      Launch launch;
      if (Status s = launch.prepare(onDevice, package); !s) return s.takeError();
      return launch.fastestConfig();
    };
  Result<std::string> bytes = kernel->package(o.target, o.archs, &notes, o.ptxas, *parseBoxForms(o.boxes), o.grid, choose);
  if (!bytes) return report(bytes.error());
  for (const std::string &note : notes) std::fprintf(stderr, "%s\n", note.c_str());
  // All or nothing: without its header there is no package.
  if (!o.header.empty())
    if (Status s = writeFileAtomically(o.header, kernelHeader(*kernel, o.grid)); !s) return report(s.error());
  Status s = writeFileAtomically(o.output, *bytes);
  return s ? 0 : report(s.error());
}

int emit(Options o) {
  if (Status s = resolveNative(o.target, o.archs, o.device); !s) return report(s.error());
  Result<KernelSource> source = sourceOf(o);
  if (!source) return report(source.error());
  Result<Kernel> kernel = readKernel(*source);
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

int run(const Options &o) {
  Launch launch;
  if (Status s = launch.prepare(o); !s) return report(s.error());
  launch.sayConfig();
  if (o.interpret) {
    if (Status s = launch.interpret(o.races); !s) return report(s.error());
  } else if (neso_status s = launch.launch(); s != NESO_OK) {
    return report(s);
  } else if (Status s = launch.collect(); !s) {
    return report(s.error());
  }
  if (o.output.empty()) {
    printSummaries(launch.arguments.outputs);
    return 0;
  }
  Status s = writeSafetensors(o.output, launch.arguments.outputs, {});
  return s ? 0 : report(s.error());
}

int bench(const Options &o) {
  Launch launch;
  double start = nowMs();
  if (Status s = launch.prepare(o); !s) return report(s.error());
  double prepareMs = nowMs() - start;
  launch.sayConfig();
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
std::string withoutEquals(const std::string &text) {
  return text.find('=') == std::string::npos ? "'" + text + "' is not of the form K=V" : "";
}

/// packages: whether the verb takes kernels that were compiled before.
Verb declareSource(const Verb &kernel, const char *name, const char *text, Options &o, bool packages = false) {
  const Verb verb = kernel.verb(name, text);
  verb.option("source", o.source, packages ? "FILE.py:NAME, FILE.ttir[:NAME] or PACKAGE.neso[:NAME]" : "FILE.py:NAME or FILE.ttir[:NAME]").required();
  verb.option("--signature", o.signature,
              std::string("the types of the arguments, in order: *fp32, *bf16, i32, fp32, constexpr, tensordesc<bf16[64,64]>; "
                          "also name:type") + (packages ? "; default: those of the values" : "")).placeholder("TYPES");
  verb.option("--constexpr", o.constexprs, "a compile-time value, as a Python literal")
      .placeholder(kPair)
      .check(withoutEquals)
      .single();
  verb.option("--hint", o.hints, "divisible_by_16, equal_to_1 or none, for an argument")
      .placeholder(kPair)
      .check(withoutEquals)
      .single();
  verb.option("--num-warps", o.numWarps, "of 32 threads a program, on GPUs (default: the config's, or 4)").range(1, 64);
  verb.option("--num-stages", o.numStages, "of pipelined loops, on GPUs (default: the config's, or 3)").range(1, 64);
  verb.option("--config", o.config, "which config of triton.autotune, from 0 (default: the best that prune_configs_by leaves)").range(0, 100000).placeholder("N");
  verb.option("--path", o.paths, "a file or folder where imports are looked up").single().placeholder("DIR");
  verb.flag("--debug", o.debug, "keep device_assert");
  return verb;
}

/// What is asked of NVIDIA's software where code is made and nothing is launched.
void declareToolkit(const Verb &verb, Options &o) {
  verb.option("--ptxas", o.ptxas, "path of NVIDIA's assembler, or none: as for neso compile").placeholder("FILE");
  verb.option("--cuda-driver", o.device.driver, "the CUDA driver's library, for --arch native").placeholder("FILE");
}

void declareLaunch(const Verb &verb, Options &o) {
  verb.option("--grid", o.grid, "X[,Y[,Z]] programs, or a Python expression over parameters and constexprs: cdiv(n, BLOCK); default: the package's own").placeholder("X[,Y[,Z]]");
  verb.option("--arg", o.args,
              "a value for each argument that is no constexpr, in order: @x.npy, @x.safetensors#name, none, 1024, 0.5, true")
      .single().placeholder("VALUE");
  verb.option("--arch", o.archs, "as for compile").delimiter(',').single().placeholder("ARCH");
  verb.option("--ptxas", o.ptxas, "path of NVIDIA's assembler, or none: as for neso compile");
  declareDevice(verb, o.device, o.threads);
}

/// What is wrong with a launch that names no grid; "" where a package may have one.
std::string wantsGrid(const Options &o) {
  return o.grid.empty() && !isPackage(o.source) ? "--grid: is required, but for packages that were compiled with one" : "";
}

} // namespace

void declareKernel(const Verb &parent) {
  auto o = std::make_shared<Options>();
  const Verb kernel = parent.verb("kernel", "analyze, compile and run one Triton kernel, from source or TTIR");

  Verb verb = declareSource(kernel, "analyze", "which arguments the kernel mutates", *o);
  verb.flag("--json", o->json, "one JSON object");
  verb.work([o] { return analyze(*o); });

  verb = declareSource(kernel, "compile", "write a package that holds the kernel", *o);
  verb.option("-o,--output", o->output, "the package").required().placeholder("FILE");
  verb.option("--target", o->target, backendKinds()).showDefault().placeholder("DEVICE");
  verb.option("--arch", o->archs, targetHelp() + "; several: all go in").delimiter(',').single();
  declareToolkit(verb, *o);
  verb.option("--boxes", o->boxes, "auto, always, fed or never: code in which the GPU copies tiles of products itself, as for neso compile")
      .oneOf({"auto", "always", "never", "fed"});
  verb.option("--configs", o->configs, "best, or all: each config of triton.autotune that prune_configs_by leaves, as a kernel NAME#1 and so on behind the best")
      .oneOf({"best", "all"});
  verb.option("--grid", o->grid, "the grid to keep in the package, for launches that give none: as for run, an expression over parameters and constexprs")
      .placeholder("X[,Y[,Z]]");
  verb.flag("--tune", o->tune, "with --configs all, --grid and --arg: measure each config on this machine with these values; the fastest stands for the kernel");
  verb.option("--arg", o->args, "of --tune: a value for each argument, as for run").single().placeholder("VALUE");
  verb.option("--header", o->header, "also write a C header with a function that launches the kernel").placeholder("FILE");
  verb.work([o] { return compile(*o); }, [o]() -> std::string {
    if (o->tune && (o->configs != "all" || o->grid.empty())) return "--tune: is for --configs all, and wants the --grid";
    return !o->tune && !o->args.empty() ? "--arg: is for --tune" : "";
  });

  verb = declareSource(kernel, "emit", "print a stage of the compiler", *o);
  std::vector<std::string> stages;
  for (Stage stage : kernelStages()) stages.emplace_back(kernelStageName(stage));
  verb.option("--stage", o->stage, "the stage; some are of one target only").required().oneOf(stages);
  verb.option("-o,--output", o->output, "the text (default: standard output)");
  verb.option("--target", o->target, backendKinds()).showDefault();
  verb.option("--arch", o->archs, "as for compile; one").delimiter(',').values(1);
  declareToolkit(verb, *o);
  verb.work([o] { return emit(*o); });

  verb = declareSource(kernel, "run", "launch the kernel on files, and write or show every buffer", *o, true);
  declareLaunch(verb, *o);
  verb.option("-o,--output", o->output, "a .safetensors: every buffer argument, named after its parameter (default: a line for each on the terminal)").placeholder("FILE");
  verb.flag("--interpret", o->interpret,
            "execute in the interpreter of the tile IR, which watches every access, in place of machine code");
  verb.flag("--races", o->races, "with --interpret: also report programs that store different values to one place, or read what another stored, without atomics");
  verb.work([o] { return run(*o); }, [o] { return o->races && !o->interpret ? "--races: is for --interpret" : wantsGrid(*o); });

  verb = declareSource(kernel, "bench", "measure launches of the kernel", *o, true);
  declareLaunch(verb, *o);
  verb.option("--iters", o->iterations, "timed launches (default: about a second's worth)").range(1, 100000000);
  verb.flag("--json", o->json, "one JSON object");
  verb.work([o] { return bench(*o); }, [o] { return wantsGrid(*o); });
}

} // namespace neso::cli
