#include "ir/tile/passes/passes.h"

#include "base/diagnostics/tile.h"
#include "base/fault.h"
#include "base/rules.h"
#include "ir/tile/placed.h"
#include "mlir/Dialect/SCF/Utils/Utils.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

namespace neso {
namespace {

/// Runs MLIR's own passes, added by `add`.
Status runPasses(ModuleOp module, const std::function<void(PassManager &)> &add) {
  DiagnosticCapture capture(module.getContext());
  PassManager manager(module.getContext());
  manager.enableVerifier(false); // the pipeline verifies its result
  add(manager);
  if (failed(manager.run(module))) return capture.take(diag::TilePassFailed, "a pass gave up without saying why");
  return Status::ok();
}

Status runPatterns(ModuleOp module, void (*populate)(RewritePatternSet &)) {
  DiagnosticCapture capture(module.getContext());
  RewritePatternSet patterns(module.getContext());
  populate(patterns);
  if (failed(applyPatternsGreedily(module, std::move(patterns))))
    return fail(diag::TilePassFailed, sourceLoc(module.getLoc()), std::string("rewriting did not come to an end"));
  return Status::ok();
}

/// Unrolls loops that carry tt.loop_unroll_factor.
void unrollLoops(ModuleOp module) {
  SmallVector<scf::ForOp> loops;
  module.walk([&](scf::ForOp loop) {
    if (loop->hasAttr("tt.loop_unroll_factor")) loops.push_back(loop);
  });
  for (scf::ForOp loop : loops) {
    IntegerAttr factor = dyn_cast<IntegerAttr>(loop->getAttr("tt.loop_unroll_factor"));
    loop->removeAttr("tt.loop_unroll_factor");
    applied(Rule::UnrollLoop);
    // A loop that MLIR declines to unroll stays as it is.
    if (factor && factor.getInt() > 1) (void)loopUnrollByFactor(loop, factor.getInt());
  }
}

void addCanonicalize(PassManager &manager) {
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());
}

} // namespace

Status runTilePass(ModuleOp module, std::string_view name) {
  if (name == "inline")
    return runPasses(module, [](PassManager &m) { m.addPass(createInlinerPass({}, [](OpPassManager &) {})); });
  if (name == "canonicalize") return runPasses(module, [](PassManager &m) { m.addPass(createCanonicalizerPass()); });
  if (name == "cse") return runPasses(module, [](PassManager &m) { m.addPass(createCSEPass()); });
  if (name == "licm") return runPasses(module, [](PassManager &m) { m.addPass(createLoopInvariantCodeMotionPass()); });
  if (name == "symbol-dce") return runPasses(module, [](PassManager &m) { m.addPass(createSymbolDCEPass()); });
  if (name == "decompose") return runPatterns(module, populateDecomposePatterns);
  if (name == "combine") return runPatterns(module, populateCombinePatterns);
  if (name == "reorder-broadcast") return runPatterns(module, populateReorderBroadcastPatterns);
  if (name == "rewrite-descriptors") return rewriteDescriptors(module);
  if (name == "beside-one") {
    rewriteFunctionsBesideOne(module);
    return Status::ok();
  }
  if (name == "pipeline") return runTilePipeline(module);
  if (name == "loop-unroll") {
    unrollLoops(module);
    return Status::ok();
  }
  return fail(diag::TileUnknownPass, {}, name);
}

Status runTilePipeline(ModuleOp module, const TilePipelineOptions &options) {
  Working stage("tile passes");
  // Functions that a backend has placed went through it before, and are no longer what these passes know.
  if (llvm::any_of(module.getOps<tt::FuncOp>(), [](tt::FuncOp f) { return f->hasAttr(placed::kWarpsAttr); }))
    return verifyTile(module);
  // Helpers have no purpose of their own; kernels keep everything.
  Status status = runPasses(module, [](PassManager &m) {
    m.addPass(createInlinerPass({}, [](OpPassManager &) {}));
    addCanonicalize(m);
    m.addPass(createSymbolDCEPass());
  });
  if (status && options.rewriteDescriptors) status = rewriteDescriptors(module);
  if (status) status = runPatterns(module, populateDecomposePatterns);
  if (status) status = runPatterns(module, populateCombinePatterns);
  // Fewer elements to compute on, and the scalar part of an address in one place.
  if (status) status = runPatterns(module, populateReorderBroadcastPatterns);
  if (status)
    status = runPasses(module, [](PassManager &m) {
      addCanonicalize(m);
      m.addPass(createLoopInvariantCodeMotionPass());
    });
  if (status && options.unroll) unrollLoops(module);
  if (status) status = runPasses(module, addCanonicalize);
  if (status) rewriteFunctionsBesideOne(module);
  if (options.ofTriton) module.walk([](math::Exp2Op op) { op.setFastmath(arith::FastMathFlags::afn); });
  return status ? verifyTile(module) : std::move(status);
}

Status specialise(tt::FuncOp func, std::span<const ArgFact> facts) {
  SourceLoc loc = sourceLoc(func.getLoc());
  if (facts.size() != func.getNumArguments())
    return fail(diag::TileBadFact, loc, func.getSymName().str(),
                fmt::format("{} facts for {} parameters", facts.size(), func.getNumArguments()));
  if (func.isExternal()) return fail(diag::TileBadFact, loc, func.getSymName().str(), "it has no body");
  OpBuilder builder(&func.getBody().front(), func.getBody().front().begin());
  for (size_t i = 0; i < facts.size(); ++i) {
    const ArgFact &fact = facts[i];
    BlockArgument arg = func.getArgument(i);
    TypedAttr value;
    if (fact.intValue && isa<IntegerType>(arg.getType()))
      value = builder.getIntegerAttr(arg.getType(), *fact.intValue);
    else if (fact.floatValue && isa<FloatType>(arg.getType()))
      value = builder.getFloatAttr(arg.getType(), *fact.floatValue);
    else if (fact.intValue || fact.floatValue)
      return fail(diag::TileBadFact, loc, func.getSymName().str(),
                  fmt::format("parameter {} is no number of that kind", i));
    if (value) arg.replaceAllUsesWith(arith::ConstantOp::create(builder, arg.getLoc(), value));
    if (fact.divisibility > 1)
      func.setArgAttr(i, "tt.divisibility", builder.getI32IntegerAttr(static_cast<int32_t>(fact.divisibility)));
  }
  return Status::ok();
}

} // namespace neso
