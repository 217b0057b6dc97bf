// neso compile: a .pt2 becomes a package, or the text of one stage of the compiler.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "aoti_file.h"
#include "backend/target.h"
#include "base/atomic_file.h"
#include "base/json.h"
#include "console.h"
#include "driver/compile.h"
#include "notes.h"
#include "packing.h"
#include "progress.h"
#include "sample_inputs.h"
#include "tune.h"
#include "verb.h"

namespace neso::cli {
namespace {

struct Options {
  std::string model, output, report, trace, emit, from, ptxas, format = "neso", aotiLibrary, weights = "embedded", weightFile;
  std::vector<std::string> targets, archs, kernels, settings, metadata;
  std::string shown; // what the package is called in messages; "": its path
  CompileOptions compile;
  TuneRequest tune;
  bool verbose = false, json = false, samples = false;
};

/// A file of weights is beside the package, or where the user says: the package then knows the way from its own folder.
WeightPlace weightPlace(const Options &o) {
  if (o.weights == "none") return {WeightPlace::None, "", ""};
  if (o.weights == "embedded") return {};
  namespace fs = std::filesystem;
  const fs::path package = fs::absolute(o.output);
  const fs::path file = o.weightFile.empty() ? fs::path(package).replace_extension(".weights") : fs::absolute(o.weightFile);
  return {WeightPlace::File, file.string(), file.lexically_normal().lexically_relative(package.parent_path().lexically_normal()).string()};
}

uint64_t sizeOf(const std::string &path) {
  std::error_code unknown; // of a pipe: 0
  return std::filesystem::is_regular_file(path, unknown) ? std::filesystem::file_size(path, unknown) : 0;
}

/// The compiler's steps behind each other, in the format that Perfetto and Chrome open.
std::string traceOf(const Compilation &c) {
  std::string out = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": 1, \"args\": {\"name\": \"neso compile\"}}";
  double begin = 0;
  for (const StepTime &t : c.times) {
    out += fmt::format(",\n{{\"name\": {}, \"ph\": \"X\", \"pid\": 1, \"tid\": 1, \"ts\": {:.3f}, \"dur\": {:.3f}}}", jsonString(t.step), begin * 1e3,
                       t.milliseconds * 1e3);
    begin += t.milliseconds;
  }
  return out + "\n]}\n";
}

/// What --json prints of one package. `what`: a row of it for each of the targets that it is for.
void printJson(const std::string &package, const std::vector<std::string> &what) {
  fmt::print("{{\"package\": {}, \"bytes\": {}, \"models\": [{}]}}\n", jsonString(package), sizeOf(package), fmt::join(what, ", "));
}

std::string jsonOf(const Compilation &c, const Options &o, double seconds) {
  std::vector<std::string> targets, steps;
  for (std::string_view t : c.targets) targets.push_back(jsonString(t));
  for (const StepTime &t : c.times) steps.push_back(fmt::format("{{\"step\": {}, \"ms\": {:.3f}}}", jsonString(t.step), t.milliseconds));
  return fmt::format("{{\"device\": {}, \"targets\": [{}], \"seconds\": {:.3f}, \"weights_file\": {}, \"steps\": [{}]}}", jsonString(o.compile.target),
                     fmt::join(targets, ", "), seconds, o.compile.weights.kind == WeightPlace::File ? jsonString(o.compile.weights.path) : "null", fmt::join(steps, ", "));
}

/// rows: gets what --json says, in place of the line for people; nullptr: nobody asked.
int run(Options o, std::vector<std::string> *rows) {
  if (Status s = resolveNative(o.compile.target, o.archs, o.tune.device); !s) return report(s.error());
  o.compile.archs = o.archs;
  o.compile.kernelPaths = o.kernels;
  for (const std::string &s : o.settings) {
    const size_t equals = s.find('=');
    o.compile.options.emplace_back(s.substr(0, equals), s.substr(equals + 1));
  }
  if (!o.ptxas.empty()) o.compile.options.emplace_back("assembler", o.ptxas);
  // PyTorch's loader may give any weight another value, and what it brings weights for may hand over memory to be read where it lies.
  o.compile.updatable |= o.format == "aoti";
  o.compile.forTorch = o.format == "aoti";
  if (o.format == "aoti" && o.weights == "none") o.compile.options.emplace_back("weight-order", "model");
  Result<Notes> notes = parseNotes(o.metadata);
  if (!notes) return report(notes.error());
  o.compile.metadata = *notes;
  o.compile.report = !o.report.empty();
  if (o.samples) {
    Result<std::string> samples = samplesForPackage(o.model);
    if (!samples) return report(samples.error());
    o.compile.samples = std::move(*samples);
  }
  if (!o.emit.empty()) o.compile.emit = parseStage(o.emit);
  if (!o.from.empty()) o.compile.from = parseStage(o.from);
  if (o.emit.empty()) o.compile.weights = weightPlace(o);
  // Nothing may be left of values that the compiler does not know.
  o.compile.updatable |= o.compile.weights.kind == WeightPlace::None;
  if (o.emit.empty() && o.format == "neso") {
    o.compile.output = o.output;
    // All or nothing: without its report and its trace there is no package.
    o.compile.beforeOutput = [&o](const Compilation &c) {
      if (!o.report.empty())
        if (Status s = writeFileAtomically(o.report, c.report); !s) return s;
      return o.trace.empty() ? Status::ok() : writeFileAtomically(o.trace, traceOf(c));
    };
  }
  DiagnosticSink sink;
  auto start = std::chrono::steady_clock::now();
  const bool tuned = !o.tune.measureInto.empty() || !o.tune.readFrom.empty();
  // Tuning says on lines of its own how it goes on.
  std::optional<Progress> progress;
  if (!tuned) progress.emplace();
  Result<Compilation> c =
      tuned ? compileTuned(o.model, o.compile, o.tune, sink) : compileModel(o.model, o.compile, sink);
  progress.reset();
  printWarnings(sink);
  if (!c) return report(c.error());
  if (o.compile.emit) {
    if (o.output.empty()) {
      std::fwrite(c->emitted.data(), 1, c->emitted.size(), stdout);
      return 0;
    }
    Status s = writeFileAtomically(o.output, c->emitted);
    return s ? 0 : report(s.error());
  }
  if (o.format == "aoti") {
    Result<std::string> archive = asAotiArchive(*c, o.compile, o.aotiLibrary);
    if (!archive) return report(archive.error());
    if (!o.report.empty())
      if (Status s = writeFileAtomically(o.report, c->report); !s) return report(s.error());
    if (Status s = writeFileAtomically(o.output, *archive); !s) return report(s.error());
  }
  if (o.verbose)
    for (const StepTime &t : c->times) std::fprintf(stderr, "%9.2f ms  %s\n", t.milliseconds, t.step);
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (rows) {
    rows->push_back(jsonOf(*c, o, seconds));
    return 0;
  }
  const uint64_t bytes = sizeOf(o.output);
  fmt::print(stderr, "{}: {}for {}, compiled in {:.2f} s\n", o.shown.empty() ? o.output : o.shown, bytes ? bytesText(bytes) + " " : "", fmt::join(c->targets, ", "), seconds);
  if (o.compile.weights.kind == WeightPlace::File)
    std::fprintf(stderr, "its weights: %s\n", o.compile.weights.path.c_str());
  return 0;
}

/// Those of `archs` that mean something to the target; all, where none of the targets knows them: the compiler then says so.
std::vector<std::string> archsOf(const std::string &target, const Options &o) {
  auto knows = [](const Backend *backend, const std::string &arch) {
    if (!backend || arch == kNativeArch) return true;
    const std::span<const Target> targets = backend->targets();
    return arch == kPortableArch ? std::any_of(targets.begin(), targets.end(), [](const Target &t) { return t.portable; }) : backend->find(arch) != nullptr;
  };
  std::vector<std::string> out;
  for (const std::string &arch : o.archs)
    if (knows(findBackend(target), arch) ||
        std::none_of(o.targets.begin(), o.targets.end(), [&](const std::string &t) { return knows(findBackend(t), arch); }))
      out.push_back(arch);
  return out;
}

/// One package for several devices: a model for each is written beside it, and they are packed. Their names say what each is for, by which
/// the runtime chooses.
int runForEach(const Options &o, std::vector<std::string> *rows) {
  namespace fs = std::filesystem;
  std::vector<PackageToPack> packages;
  int code = 0;
  for (const std::string &target : o.targets) {
    Options one = o;
    one.targets = {target}, one.compile.target = target, one.archs = archsOf(target, o), one.tune.device.text = target;
    one.output = o.output + "." + target + ".part", one.shown = o.output + ", " + target;
    // Not said to be of no use to the others.
    if (target != deviceName(NESO_CUDA)) one.ptxas.clear();
    if (o.weights == "external") one.weightFile = weightPlace(o).path;
    packages.push_back({one.output, "model/" + target});
    if (code = run(one, rows); code) break;
  }
  if (!code)
    if (Status s = packPackages(packages, {}, o.output); !s) code = report(s.error());
  std::error_code absent;
  for (const PackageToPack &p : packages) fs::remove(p.path, absent);
  return code;
}

} // namespace

void declareCompile(const Verb &parent) {
  auto o = std::make_shared<Options>();
  o->targets = {std::string(backends().front()->kind())};
  const Verb verb = parent.verb("compile", "compile a PyTorch exported program (.pt2) into a package");
  verb.option("model", o->model, "the .pt2; with --from, the text of a stage").required().placeholder("FILE");
  const Option output = verb.option("-o,--output", o->output,
                                    "the package to write; with --emit, the text (default: standard output)").placeholder("FILE").group("Result");
  verb.option("--target", o->targets, backendKinds() + "; several, cpu,cuda: one package for all of them, which chooses by the device that it is run on")
      .delimiter(',')
      .single()
      .showDefault().placeholder("DEVICE").group("Target");
  verb.option("--arch", o->archs, targetHelp() + "; several: all go in, the best is chosen at load")
      .delimiter(',')
      .single().placeholder("ARCH").group("Target");
  verb.option("--kernels", o->kernels,
              "kernel bundle (folder written by neso_export) or Triton source of the model's user kernels, when "
              "the .pt2 does not carry them")
      .single().placeholder("PATH").group("The model");
  verb.option("--option", o->settings,
              "one of:"
              "\n  f32-products=tf32x3: on GPUs, by default: tensor cores, three products of halves, nearly f32's accuracy; ieee: multiply-add; tf32: one "
              "product, 11 bits"
              "\n  library=auto: on GPUs, by default: cuBLASLt, where the machine that runs has it, computes products that it is estimated to be faster at; "
              "never, always"
              "\n  fuse-user-kernels=on: by default: pointwise neighbours are computed at the loads and stores of the model's own Triton kernels; off"
              "\n  pack=on: by default: small kernels that do not need each other share a launch on a GPU; off"
              "\n  join=auto: by default: products that share an operand, as those of attention do, are one where that takes less time; never, always"
              "\n  boxes=auto: by default: products whose blocks it was measured to be faster for are made once more in code that has sm_90 copy their "
              "tiles itself, for launches whose tensors the driver can describe; loops of attention are fed by warps of their own; never, always, fed: all so"
              "\n  winograd=auto: on CPUs, by default: convolutions of 3 x 3 in f32 take fewer multiplications where that takes less time; their weights "
              "take 16/9 of the memory, their error is about twice as large; never, always"
              "\n  weight-order=best: by default: weights are put into the order in which products read them; model: they stay as the model has them, so "
              "that a caller's memory can be read where it lies, NESO_WEIGHTS_BORROW"
              "\n  int4-packing=avx2, avx512, default: how a model's weights of four bits are packed for CPUs, which only the machine that packed them "
              "knows (torch.backends.cpu.get_cpu_capability())")
      .placeholder("K=V")
      .single().group("Target");
  verb.option("--ptxas", o->ptxas,
              "path of NVIDIA's assembler, or none: only PTX goes into the package and the GPU's driver assembles "
              "it; default: bin/ptxas of the first of /usr/local/cuda, /usr/local/cuda-VERSION (the newest), "
              "/opt/cuda, /usr/local, "
              "/usr that has one").placeholder("FILE").group("Target");
  std::vector<std::string> names;
  std::string stages;
  for (int i = 0; i < stageCount(); ++i) {
    names.push_back(info(static_cast<Stage>(i)).name);
    stages += std::string("\n  ") + info(static_cast<Stage>(i)).name + ": " + info(static_cast<Stage>(i)).description;
  }
  verb.option("--emit", o->emit, "print a stage instead of writing a package:" + stages).oneOf(names).group("Stages of the compiler");
  const Option from = verb.option("--from", o->from,
                                  "start from the text of this stage (graph, loops, schedule, plan), as --emit wrote it")
      .oneOf(names).group("Stages of the compiler");
  verb.option("--model", o->compile.sourceModel,
              "with --from: the .pt2 whose weights and Triton kernels the text refers to")
      .needs(from).placeholder("FILE").group("Stages of the compiler");
  verb.option("--tile", o->compile.tileText, "with --from plan: the kernels' programs, as --emit tile wrote them").needs(from).placeholder("FILE").group("Stages of the compiler");
  verb.option("--report", o->report,
              "also write a page (HTML) that shows the kernels, what was fused and why, and memory").placeholder("FILE").group("Result");
  const Option tune = verb.option("--tune", o->tune.measureInto,
                                  "measure other ways to compile each kernel on the device, keep the fastest, and write "
                                  "what was found to this file; its other results stay").placeholder("FILE").group("Tuning");
  verb.option("--tuned", o->tune.readFrom, "compile with the results of an earlier --tune").excludes(tune).placeholder("FILE").group("Tuning");
  const Option device = verb.option("--device", o->tune.device.text, "to tune on: " + deviceNames() + "; default: that of --target").needs(tune).placeholder("DEVICE").group("Tuning");
  verb.option("--cuda-driver", o->tune.device.driver, "the CUDA driver's library, for --tune and --arch native").placeholder("FILE").group("Tuning");
  verb.option("--dim", o->tune.dims, "a size to tune with, s0=17").needs(tune).single().placeholder("NAME=N").group("Tuning");
  verb.option("--run-threads", o->tune.runThreads, "of the model while it is tuned on a CPU (default: all)").needs(tune).group("Tuning");
  verb.option("--format", o->format,
              "neso: a package; aoti: an archive that PyTorch's own loader runs (torch._inductor.aoti_load_package)")
      .oneOf({"neso", "aoti"})
      .showDefault().group("Result");
  verb.option("--aoti-library", o->aotiLibrary,
              "with --format aoti: the library to put into the archive (default: libneso_aoti.so in ../libexec/neso of this program)").placeholder("FILE").group("Result");
  const Option weights = verb.option("--weights", o->weights,
                                     "embedded: in the package; external: in a file beside it, which several packages may share; none: who runs the "
                                     "model gives them (neso run --weights, neso_weights_load)")
      .oneOf({"embedded", "external", "none"})
      .showDefault().group("Result");
  verb.option("--weights-file", o->weightFile,
              "with --weights external: the file (default: the package's name with .weights); what other packages have there stays")
      .needs(weights).placeholder("FILE").group("Result");
  declareNotes(verb, o->metadata);
  verb.flag("--updatable", o->compile.updatable,
            "compute nothing from weights when compiling, so that each of them can be given another value later").group("Result");
  verb.option("--threads", o->compile.threads, "of the compiler (default: one per core, at most 16)").range(1, 256).group("Target");
  verb.flag("--samples", o->samples, "put the inputs that the model was exported with into the package, for --sample of run, bench and verify").group("Result");
  verb.flag("--strip", o->compile.strip, "keep no folders of the model's source files in the package, their names alone").group("Result");
  verb.option("--trace", o->trace, "also write what the compiler's steps took, as JSON that Perfetto opens").placeholder("FILE").group("Result");
  verb.flag("--verbose", o->verbose, "print the time of each step").group("Result");
  verb.flag("--json", o->json, "when it is done, one JSON object on standard output: the package, its targets, the time of each step").group("Result");
  auto wrong = [o, output]() -> std::string {
    if (o->json && (!o->emit.empty() || o->output == "-")) return "--json: standard output has the stage or the package already";
    if (o->emit.empty() && output.count() == 0) return "-o is required";
    if (o->targets.size() > 1 && (!o->emit.empty() || !o->from.empty() || !o->report.empty() || o->format != "neso" || !o->tune.measureInto.empty() || !o->tune.readFrom.empty()))
      return "--target: --emit, --from, --report, --tune, --tuned and --format aoti are for one target";
    if (!o->trace.empty() && (o->targets.size() > 1 || !o->emit.empty() || o->format != "neso")) return "--trace: is for a package of one target";
    if (!o->weightFile.empty() && o->weights != "external") return "--weights-file: is for --weights external";
    if (o->weights == "external" && o->format == "aoti")
      return "--weights: PyTorch's loader takes archives with their weights (embedded) or without (none: load_constants gives them)";
    if (o->samples && (!o->emit.empty() || !o->from.empty() || o->format != "neso")) return "--samples: is for packages that are made of a .pt2";
    for (const std::string &s : o->settings)
      if (s.find('=') == std::string::npos) return "--option: '" + s + "' is not of the form K=V";
    return "";
  };
  auto work = [o, device] {
    // Each once, in the order given.
    std::vector<std::string> targets;
    for (const std::string &t : o->targets)
      if (std::find(targets.begin(), targets.end(), t) == targets.end()) targets.push_back(t);
    o->targets = targets;
    std::vector<std::string> rows, *wanted = o->json ? &rows : nullptr;
    int code = 0;
    if (targets.size() > 1) {
      code = runForEach(*o, wanted);
    } else {
      o->compile.target = targets.front();
      if (device.count() == 0) o->tune.device.text = o->compile.target;
      code = run(*o, wanted);
    }
    if (!code && wanted) printJson(o->output, rows);
    return code;
  };
  verb.work(work, wrong);
}

} // namespace neso::cli
