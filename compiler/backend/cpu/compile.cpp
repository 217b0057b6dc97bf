#include "backend/cpu/compile.h"

#include <algorithm>
#include <set>

#include "backend/common/arg_places.h"
#include "backend/common/llvm_common.h"
#include "backend/common/special.h"
#include "backend/common/units.h"
#include "backend/cpu/emitter.h"
#include "backend/cpu/one_turn.h"
#include "base/diagnostics/backend.h"
#include "base/fault.h"
#include "base/watch.h"
#include "ir/tile/tile.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Verifier.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Transforms/Utils/Cloning.h"

namespace neso::cpu {

namespace {
/// One unit of work: some functions in one LLVM module.
struct Unit {
  std::vector<size_t> functions;
  std::vector<uint8_t> object;
  std::string llvmText, asmText;
  Status status;
};

void compileUnit(Unit &unit, const std::vector<TileFunction> &functions, CpuLevel level, const CompileOptions &options,
                 std::vector<CompiledFunction> &out) {
  std::unique_ptr<llvm::TargetMachine> machine = makeTargetMachine(level);
  if (!machine) {
    unit.status = fail(diag::CpuTargetMissing, {}, "code generation for " + std::string(name(level)));
    return;
  }
  llvm::LLVMContext context;
  llvm::Module module("neso", context);
  module.setTargetTriple(machine->getTargetTriple());
  module.setDataLayout(machine->createDataLayout());
  for (size_t i : unit.functions) {
    const SourceLoc loc = sourceLoc(functions[i].function->getLoc());
    Working at("kernel", functions[i].name, &loc);
    mlir::OwningOpRef<tt::FuncOp> written = withOneTurnWrittenOut(llvm::cast<tt::FuncOp>(functions[i].function));
    Emitter emitter(module, level);
    Result<int64_t> scratch = emitter.emitKernel(written ? *written : functions[i].function, out[i].symbol, functions[i].programs);
    if (!scratch) {
      unit.status = scratch.takeError();
      return;
    }
    out[i].scratchBytes = *scratch;
  }
  linkSpecialFunctions(module);
  withoutInstructions(module, capabilities(level));
  for (llvm::Function &f : module)
    if (!f.isDeclaration()) setTargetAttributes(f, level);
  std::string why;
  llvm::raw_string_ostream os(why);
  if (llvm::verifyModule(module, &os)) {
    unit.status = fail(diag::InternalFault, {}, "backend/cpu", why);
    return;
  }
  // Kernels of a unit are optimised together; the first one stands for them.
  Working at("kernel", functions[unit.functions.front()].name);
  optimize(module, *machine);
  if (options.keepLlvm) {
    llvm::raw_string_ostream text(unit.llvmText);
    module.print(text, nullptr);
  }
  if (options.keepAsm) {
    // Code generation consumes the module's form; the text comes from a second run over a copy.
    std::vector<uint8_t> text;
    std::unique_ptr<llvm::Module> copy = llvm::CloneModule(module);
    text = emitObject(*copy, *machine, true);
    unit.asmText.assign(text.begin(), text.end());
  }
  unit.object = emitObject(module, *machine, false);
}
} // namespace

Result<CompiledCode> compileForCpu(const std::vector<TileFunction> &functions, CpuLevel level,
                                   const CompileOptions &options) {
  CompiledCode code;
  code.target = name(level);
  std::set<std::string> taken;
  for (const TileFunction &f : functions) {
    CompiledFunction out;
    out.name = f.name;
    out.symbol = entrySymbol(f.name, taken);
    out.args = argPlaces(llvm::cast<tt::FuncOp>(f.function));
    code.functions.push_back(std::move(out));
  }
  // The units do not depend on the number of threads, so that neither do the bytes.
  constexpr size_t kPerUnit = 4;
  std::vector<Unit> units;
  const size_t perUnit = options.object ? std::max<size_t>(functions.size(), 1) : kPerUnit;
  for (size_t i = 0; i < functions.size(); ++i) {
    if (i % perUnit == 0) units.emplace_back();
    units.back().functions.push_back(i);
  }
  Working stage("code for the CPU");
  const WorkingParts parts(functions.size());
  mlir::MLIRContext *context = functions.empty() ? nullptr : functions[0].function->getContext();
  forEachUnit(units.size(), options.threads, context,
              [&](size_t u) { compileUnit(units[u], functions, level, options, code.functions); });

  std::optional<Error> error;
  std::vector<std::vector<uint8_t>> objects;
  for (Unit &unit : units) {
    if (!unit.status) {
      if (error)
        error->append(unit.status.takeError());
      else
        error = unit.status.takeError();
      continue;
    }
    code.llvmText += unit.llvmText;
    code.asmText += unit.asmText;
    objects.push_back(std::move(unit.object));
  }
  if (error) return std::move(*error);
  if (options.object) {
    code.format = CompiledCode::Format::RelocatableObject;
    if (!objects.empty()) code.image = std::move(objects[0]);
    return code;
  }
  Result<std::vector<uint8_t>> image = linkShared(objects);
  if (!image) return image.takeError();
  code.image = std::move(*image);
  return code;
}

} // namespace neso::cpu
