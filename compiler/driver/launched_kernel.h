// The kernels of a model's launches: compiled from source, once for each set of constants, types and hints.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/host_launch.h"
#include "frontend/pt2/kernel_bundle.h"
#include "frontend/triton/triton.h"
#include "ir/graph/graph.h"
#include "ir/shape/expr.h"
#include "ir/tile/passes/effects.h"
#include "ir/tile/tile.h"

namespace neso {

/// A kernel compiled for one launch: the program as written (for the interpreter and the analysis) and after the
/// pipeline.
struct LaunchedKernel {
  triton::CompiledKernel kernel;
  mlir::OwningOpRef<mlir::ModuleOp> lowered;
  tt::FuncOp written, function;
  KernelEffects effects;
};

/// What one parameter of the source gets in one launch.
struct BoundParameter {
  /// Number: a float that is known only at run time; the launch hands on a tensor that holds it, as f64.
  enum Kind : uint8_t { Constexpr, Tensor, Integer, Real, Number, Tuple } kind = Constexpr;
  std::string type;      // of the signature
  std::string text;      // Constexpr; empty: the default of the source
  graph::ValueId tensor; // Tensor, Number
  Expr integer;          // Integer
  double real = 0;
  std::vector<BoundParameter> items; // Tuple; none of them a Constexpr or a descriptor
};

/// f(what it gets, which parameter, the number of its argument, which item of a tuple or -1) for each run-time argument of the kernel: a
/// parameter, or an item of a tuple.
template <typename F>
void forEachArgument(const triton::CompiledKernel &kernel, const std::vector<BoundParameter> &bound, F f) {
  for (size_t i = 0; i < bound.size() && i < kernel.params.size(); ++i) {
    const triton::KernelParam &p = kernel.params[i];
    if (p.argCount == 0) continue;
    if (bound[i].kind != BoundParameter::Tuple) f(bound[i], i, p.firstArg, -1);
    for (size_t k = 0; k < bound[i].items.size(); ++k)
      f(bound[i].items[k], i, p.firstArg + static_cast<unsigned>(k), static_cast<int>(k));
  }
}

bool isPointerType(const std::string &type);
bool isFloatType(const std::string &type);
int bitsOf(const std::string &type);

class LaunchedKernels {
public:
  /// The number of the kernel for this launch, by everything that its compilation depends on. `facts` are those of the
  /// model's sizes, `paths` where imports are looked for. Errors: those of the Triton front end, KernelBundleMismatch.
  Result<int> compile(const pt2::KernelBundle &bundle, const std::vector<std::string> &paths, const Facts &facts,
                      const pt2::BundledLaunch &row, const std::vector<BoundParameter> &bound,
                      const pt2::BundledConfig *config);
  LaunchedKernel &operator[](int kernel) const { return *kernels_[static_cast<size_t>(kernel)]; }
  mlir::MLIRContext &context() const { return *context_; }
  size_t size() const { return kernels_.size(); }

private:
  std::unique_ptr<mlir::MLIRContext> context_ = makeTileContext();
  std::vector<std::unique_ptr<LaunchedKernel>> kernels_;
  std::map<std::string, int> known_;
};

/// The kernel in the interpreter of the tile IR. `owner` keeps it alive.
HostLaunch referenceLaunch(const LaunchedKernel &kernel, std::shared_ptr<const void> owner);

} // namespace neso
