// One request to the front end on its way: the file, the kernel in it, what its decorators and the request say of its
// parameters, the module.
//
// kernel.cpp reads and builds; decorators.cpp evaluates autotune, heuristics and jit around the kernel. Nobody else
// includes this.
#pragma once
#include <algorithm>

#include "base/diagnostics/triton.h"
#include "frontend/triton/lang.h"
#include "frontend/triton/parser.h"
#include "frontend/triton/signature.h"
#include "frontend/triton/triton.h"

namespace neso::triton {

/// What went wrong in the evaluator, as an error.
inline Error takeError(Context &c) {
  return Error(c.error ? *c.error : makeDiag(diag::InternalFault, {}, "Triton front end", "no error was reported"));
}

class Compilation {
public:
  Compilation(const KernelRequest &request, mlir::MLIRContext &ctx, CodegenOptions options)
      : request_(request), loader_(request.searchPaths, request.sources), c_(&ctx), e_(c_, loader_, options) {}

  Result<CompiledKernel> run();
  Result<std::vector<KernelInfo>> list();
  Result<std::vector<BoundParam>> bind();

private:
  // kernel.cpp
  Status findKernel();
  bool findNested(std::string &names);
  Status applyConstexprs();
  Result<Value> literal(const std::string &name, const std::string &text);
  Result<std::vector<SigType>> signature();
  Status placePositional(const std::vector<std::string> &positional, std::vector<std::optional<SigType>> &found);
  bool isFixed(size_t parameter);
  Error wrongCount(size_t types);
  Result<Value> argument(const std::string &name, const SigType &t, std::vector<mlir::Type> &irTypes);
  Result<Value> tupleArgument(const std::string &name, const SigType &t, std::vector<mlir::Type> &irTypes);
  /// Run-time parameters: their values by number, and the types of the function's arguments that they become.
  struct Arguments {
    std::vector<std::pair<size_t, Value>> values;
    std::vector<mlir::Type> types;
  };
  Status build(CompiledKernel &out, const std::vector<SigType> &types);
  Status bindParameters(CompiledKernel &out, const std::vector<SigType> &types, Frame &frame, Arguments &arguments);
  Result<Value> constantOf(size_t parameter, const SigType &type, const CompiledKernel &out);
  mlir::Block *makeFunction(CompiledKernel &out, Frame &frame, const Arguments &arguments);

  // decorators.cpp
  Result<KernelInfo> describe(Object *fn);
  Status describeDecorator(Expr *d, Module *module, KernelInfo &k, std::vector<std::string> &frozen);
  Status describeAutotune(Expr *decorator, std::string_view argument, const Value &v, KernelInfo &k);
  Status describeConfigs(Expr *decorator, const Value &list, KernelInfo &k);
  Result<Value> knownArguments();
  Value callFunction(const Value &function, CallArgs args);
  Result<size_t> firstSurvivor();
  Status applyConfig();
  Status applyHeuristics();
  Status runHeuristic(const std::string &name, const Value &function, Pos pos);

  Value *given(std::string_view name) {
    for (std::pair<std::string, Value> &v : constexprs_)
      if (v.first == name) return &v.second;
    return nullptr;
  }
  bool isParameter(std::string_view name) const {
    return std::any_of(info_.params.begin(), info_.params.end(), [&](const ParamInfo &p) { return p.name == name; });
  }
  Error unknownParameter(const std::string &name) const {
    return fail(diag::TrSignatureName, {request_.path, info_.line, 0, {}}, info_.name, name, paramNames());
  }
  std::string paramNames() const {
    std::string out;
    for (const Param &p : fn_->function->params) out += (out.empty() ? "" : ", ") + std::string(p.name);
    return out;
  }
  Error at(Pos pos, Diagnostic d) {
    d.loc = module_->tree->source->loc(pos);
    d.sourceLine = std::string(module_->tree->source->line(pos.line));
    return Error(std::move(d));
  }

  const KernelRequest &request_;
  Loader loader_;
  Context c_;
  Evaluator e_;
  Module *module_ = nullptr;
  Object *fn_ = nullptr;
  KernelInfo info_;
  std::vector<std::pair<std::string, Value>> constexprs_;
  std::vector<Value> configs_; // of info_, as values
  Value prune_;                // prune_configs_by, if it is a dict
  size_t config_ = 0;          // of configs_
  std::vector<size_t> configsLeft_;
  int numWarps_ = 4, numStages_ = 3;
  std::vector<std::shared_ptr<SyntaxTree>> trees_; // of literals: functions in them live as long as the compilation
};

} // namespace neso::triton
