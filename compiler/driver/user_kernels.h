// The user's Triton kernels in a model: finds the source of each launch in the kernel bundle, compiles it for that launch, and rewrites the
// graph node to "neso.launch" (or "neso.launch_", which functionalize turns into it).
//
//     %y = higher_order.triton_kernel_wrapper_functional(in_ptr=%x, out_ptr=%o, n=%n, name="add_kernel_3a55…", grid=[%g, 1, 1], …)
//  -> %y = neso.launch(in_ptr=%x, out_ptr=%o) launch add_kernel[(s0 + 15)//16, 1, 1] n=s0
//
// Which pointers a kernel writes is decided by mutation analysis of its source; what the file says is only ever added to that. Constexprs,
// literal arguments and the values 1 are folded in, sizes that are provably divisible by 16 are marked, as Triton's launcher would. An
// autotuned kernel is compiled in every config, and the cheapest by driver/launch_cost.h is taken, or the one that tuning found.
// It stands right after reading: everything behind it sees memory effects, nothing of Triton.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/target.h"
#include "base/diagnostics.h"
#include "ir/graph/graph.h"

namespace mlir {
class MLIRContext;
class Operation;
} // namespace mlir

namespace neso {

class UserKernels {
public:
  /// What was taken for a launch of an autotuned kernel.
  struct ConfigChoice {
    std::string key;               // launchKey of tuning.h
    std::vector<std::string> ways; // "BLOCK=64 num_warps=4 num_stages=3", the cost model's first
    size_t way;
  };
  struct Tuning {
    const Target *target = nullptr; // whose launches the model of costs is about; null: the default one's
    /// Takes one of an autotuned kernel's configs, as CompileOptions::chooseWay does; empty: the cost model's.
    std::function<size_t(const std::string &key, const std::vector<std::string> &ways)> choose;
  };

  /// Null when the model launches no kernels of its own. Errors: KernelSourceMissing for each kernel without source,
  /// KernelBundleMismatch, KernelArgument, and those of the Triton front end. Warnings go to the sink.
  static Result<std::shared_ptr<UserKernels>> bind(graph::Model &model, const std::string &modelPath,
                                                   const std::vector<std::string> &paths, const Tuning &tuning,
                                                   DiagnosticSink &sink);
  ~UserKernels();

  /// The context that the functions live in. One compilation at a time.
  mlir::MLIRContext &context();
  /// Tile functions through the pipeline, by UserLaunch::kernel.
  std::vector<mlir::Operation *> functions() const;
  /// For the package: each kernel's configs, and which was taken.
  const std::vector<std::pair<std::string, std::string>> &metadata() const;
  /// By UserLaunch::choice.
  const std::vector<ConfigChoice> &choices() const;

  struct State; // known to user_kernels.cpp alone

private:
  explicit UserKernels(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

} // namespace neso
