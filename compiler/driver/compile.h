// The compiler's public entry: a model file in, a package out.
//
//     CompileOptions options;
//     options.archs = {"x86-64-v4"};
//     DiagnosticSink sink;
//     Result<Compilation> c = compileModel("resnet18.pt2", options, sink);
//     if (!c) print(c.error().str());  else write(c->package);
//
// Nothing is written to disk here but what `output` and `weights` ask for, and nothing global changes. Same file, options and compiler give
// the same bytes.
// Thread-safety: independent calls may run side by side.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostics.h"
#include "driver/stages.h"
#include "ir/loops/loops.h"
#include "package/weight_place.h"

namespace neso {

struct CompileOptions {
  std::string target;                                       // a back end's kind; empty: the first of targets.def
  std::vector<std::string> archs;                           // all go into the package; none: the target's usual one
  std::vector<std::string> kernelPaths;                     // --kernels: where sources of user kernels lie
  std::vector<std::pair<std::string, std::string>> options; // --option K=V
  std::optional<Stage> emit;                                // stop there and give its text
  /// The path given is not a model's but of the text that `emit` gives for this stage (graph, loops, schedule, plan).
  std::optional<Stage> from;
  std::string sourceModel; // with from: the model whose weights and kernels the text speaks of, if it does
  std::string tileText;    // with from plan: what `emit` gives for tile
  /// Given the text of each of these stages on the way, as far as the compilation gets.
  std::vector<Stage> shown;
  std::function<void(Stage, std::string)> show;
  bool report = false; // fill Compilation::report
  int threads = 0;     // of the compiler itself, which change nothing in the package; 0: one per core, at most 16
  /// Nothing is computed from weights when compiling, so that each of them can be given another value later.
  bool updatable = false;
  /// The package is written to this file, piece by piece, and Compilation::package stays empty: weights are never copied.
  std::string output;
  /// With output: called when all but the package is there; if it fails there is no package.
  std::function<Status(const struct Compilation &)> beforeOutput;
  WeightPlace weights; // File: with output only
  bool strip = false; // of the model's source files the names alone are kept, not their folders
  std::string samples; // inputs to try the model with, as .safetensors, into the package; empty: none
  bool forTorch = false; // fill Compilation::operatorCalls
  std::vector<std::pair<std::string, std::string>> metadata; // the user's notes, into the package
  /// Chooses among the ways to compile a kernel, for tuning: given its machine and key ("sm_90 contraction-…",
  /// tuning.h) and the names of the ways, the cost model's first. Empty: the cost model's.
  std::function<size_t(const std::string &key, const std::vector<std::string> &ways)> chooseWay;
};

/// Time of one step of the pipeline, for --verbose and the compile-time bench.
struct StepTime {
  const char *step;
  double milliseconds;
};

/// A kernel for which chooseWay was asked.
struct KernelWay {
  std::string kernel, key; // its name in the plan
  std::vector<std::string> ways;
  size_t way;
};

struct Compilation {
  std::string package; // the bytes of the .neso; empty when `emit` or `output` was asked
  std::string emitted; // the text of the stage asked for
  std::string report;  // HTML
  std::string operatorCalls; // JSON: what PyTorch's loader is told of the operators of the caller's; empty: the model calls none
  std::vector<StepTime> times;
  std::vector<KernelWay> ways;
  std::vector<std::string_view> targets; // names of the machines that code was made for
};

Result<Compilation> compileModel(const std::string &path, const CompileOptions &options, DiagnosticSink &sink);

/// The same from loops on, for programs that no file holds (random ones in tests).
Result<Compilation> compileProgram(loops::Program program, const CompileOptions &options);

/// The model as loops, for the reference interpreter (`neso verify`).
Result<loops::Program> lowerModel(const std::string &path, const std::vector<std::string> &kernelPaths,
                                  DiagnosticSink &sink);

} // namespace neso
