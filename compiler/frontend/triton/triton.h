// Triton kernels from Python source, without Python: compileKernel gives the tile module of one kernel for one signature.
//
//     KernelRequest r;
//     r.path = "kernels.py";  r.function = "vector_add";
//     r.signature = "*fp32, *fp32, *fp32, i32, constexpr";
//     r.constexprs = {{"BLOCK", "1024"}};
//     Result<CompiledKernel> k = compileKernel(r, *makeTileContext());
//
// The module holds one public tt.func with everything inlined, verified, canonical; its arguments are the run-time parameters in order
// (CompiledKernel::params says which). Every op knows its file, line and column. Errors: E05xx, E10xx, with the place in the source.
// Each call is independent; a context may serve one call at a time.
#pragma once
#include "ir/shape/expr.h"
#include "ir/tile/tile.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace neso::triton {

using NamedText = std::pair<std::string, std::string>;

struct KernelRequest {
  std::string path;
  std::string function;
  /// Triton's spelling, comma separated: "*fp32, i32, fp32, u1, constexpr, tensordesc<bf16[64,64]>", or "name:type" in
  /// any order. One type a parameter, or one for each parameter that is no constexpr. "*kfp32" is a pointer that is
  /// only read; "(i32, *fp32)" a tuple.
  std::string signature;
  /// Values of constexpr parameters as Python literals, none, true, false, tl.float32, or names in reach of the kernel.
  /// A value for a parameter of any type makes it a constexpr: {"bias_ptr", "none"} is an absent pointer.
  std::vector<NamedText> constexprs;
  /// Files that are not on disk, by path: `path` and what it imports are looked for here first.
  std::vector<NamedText> sources;
  /// Further heuristics: parameter -> a function of the arguments' dict, as text. Those with a value above are not run.
  std::vector<NamedText> heuristics;
  /// Run-time values that are known, as literals: heuristics may read them. They do not specialise the kernel.
  std::vector<NamedText> values;
  /// parameter -> "divisible_by_16", "equal_to_1", "none". Without one a pointer counts as 16-byte aligned.
  std::vector<NamedText> hints;
  /// Which config of an autotuned kernel gives the constexprs that are not given here; without: the best that
  /// prune_configs_by leaves, as far as it can be told from `constexprs` and `values`.
  std::optional<size_t> config;
  std::optional<int> numWarps, numStages;
  /// Files and folders where imports are looked up, after the kernel's own.
  std::vector<std::string> searchPaths;
  /// Keep device_assert, as TRITON_DEBUG=1 does.
  bool debug = false;
  /// Leave the IR as built, for looking at.
  bool raw = false;
  /// Neso launches the kernel: a hook of its autotune is refused then, also where no config of it gives a value.
  bool launchedHere = false;
};

struct ParamInfo {
  std::string name;
  bool isConstexpr = false; // annotated tl.constexpr
  std::string fallback;     // its default as written, or empty
  bool hasDefault = false;
  bool doNotSpecialize = false;
};

struct ConfigInfo {
  std::vector<NamedText> kwargs; // values as Python literals
  int numWarps = 4, numStages = 3, numCtas = 1;
  std::optional<int> maxRegisters;
  bool hooked = false; // it has a pre_hook
};

struct KernelInfo {
  std::string name;
  std::string path;
  int line = 0;
  std::vector<ParamInfo> params;
  std::vector<ConfigInfo> configs; // of @triton.autotune; empty without
  std::string hook;                // "pre_hook" or "post_hook" of @triton.autotune itself; empty without
  std::vector<std::string> key, restoreValue, resetToZero;
  std::vector<std::string> heuristics; // the parameters that heuristics set
};

struct KernelParam {
  std::string name;
  std::string type;      // "*fp32", "i32", "constexpr", "tensordesc<fp16[64,64]>"
  std::string value;     // of a constexpr: its repr
  unsigned firstArg = 0; // index of its first argument in the tt.func, when not constexpr
  unsigned argCount = 0; // 0 for a constexpr, 1, or 1 + 2 * rank for a descriptor (descriptor, i32 shape, i64 strides)
  bool divisibleBy16 = false;
};

struct CompiledKernel {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::string name;
  std::vector<KernelParam> params; // all parameters, in order
  int numWarps = 4, numStages = 3;
  KernelInfo info;
  size_t config = 0;                // of info.configs, where there are some
  std::vector<Diagnostic> warnings;
  std::vector<size_t> configsLeft;  // those that prune_configs_by leaves, in its order; filled where the request names none
};

Result<CompiledKernel> compileKernel(const KernelRequest &request, mlir::MLIRContext &context);

struct BoundParam {
  std::string name;
  std::string type; // as the signature has it, or "constexpr"
  bool doNotSpecialize = false;
};
/// What the signature gives to each parameter, in order, before the body is looked at. Heuristics are not run.
Result<std::vector<BoundParam>> bindSignature(const KernelRequest &request);

/// The @triton.jit functions of a file, in order, with what their decorators say.
Result<std::vector<KernelInfo>> listKernels(const std::string &path, const std::vector<std::string> &searchPaths = {});

/// A launch grid: a Python expression or lambda of `meta` over the given names, e.g. "lambda meta: (triton.cdiv(n,
/// meta['BLOCK']),)" with n and BLOCK given. Up to three values, the rest 1.
Result<std::vector<int64_t>> evaluateGrid(const std::string &text, const std::vector<NamedText> &values);

/// The same text as three expressions of values that a launch brings: sizes, arithmetic in Python's sense, comparisons, conditions, cdiv,
/// min and max. TrGridRule for anything else.
Result<std::vector<neso::Expr>> gridExpressions(const std::string &text, const std::vector<std::pair<std::string, neso::Expr>> &names);

} // namespace neso::triton
