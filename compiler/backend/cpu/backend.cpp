// The levels of CPUs as targets.
#include "backend/cpu/compile.h"
#include "backend/cpu/target.h"
#include "backend/target.h"
#include "ir/tile/passes/passes.h"
#include "mlir/IR/BuiltinOps.h"

namespace neso {
namespace cpu {
namespace {

constexpr std::string_view kStages[] = {"llvm", "asm"};

class CpuBackend final : public Backend {
public:
  CpuBackend() {
    for (const LevelInfo &level : allLevels())
      targets_.push_back({level.name, {}, {}, this, static_cast<int>(&level - allLevels().data()), level.machine, level.portable});
  }
  std::string_view kind() const override { return "cpu"; }
  std::span<const Target> targets() const override { return targets_; }
  const Target &usual() const override { return *native(); }
  const Target *native() const override { return find(neso::cpu::name(nativeLevel())); }
  std::span<const std::string_view> stages() const override { return kStages; }
  Status prepare(mlir::ModuleOp module) const override {
    rewriteFunctionsBesideOne(module);
    return Status::ok();
  }

  const Target *find(std::string_view name) const override {
    for (const Target &t : targets_)
      if (t.name == name) return &t;
    return nullptr;
  }

  Result<GeneratedCode> compile(const std::vector<TileFunction> &functions, const Target &target,
                                const CodeRequest &request) const override {
    CompileOptions options;
    options.threads = request.threads;
    options.keepLlvm = request.wants("llvm"), options.keepAsm = request.wants("asm");
    Result<CompiledCode> code = compileForCpu(functions, static_cast<CpuLevel>(target.number), options);
    if (!code) return code.takeError();
    GeneratedCode out;
    if (options.keepLlvm) out.texts.emplace_back("llvm", std::move(code->llvmText));
    if (options.keepAsm) out.texts.emplace_back("asm", std::move(code->asmText));
    out.code.push_back(std::move(*code));
    return out;
  }

private:
  std::vector<Target> targets_;
};

} // namespace
} // namespace cpu

const Backend &cpuBackend() {
  static const cpu::CpuBackend backend;
  return backend;
}

} // namespace neso
