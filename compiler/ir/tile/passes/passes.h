// Passes on tile modules, and the pipeline that every kernel goes through before a backend.
//
// runTilePipeline: inline calls → canonicalise, cse → (descriptors and block pointers to plain pointers with masks) →
// decompose → combine → canonicalise, cse → hoist out of loops → unroll loops that ask for it → canonicalise, cse, drop
// unused functions → cheaper forms of functions where their digits do not count. It stands before axis info and layouts, which read its result. Beyond it: one function a kernel, no
// calls, and in the default setting only plain pointers and masks touch memory.
#pragma once
#include <optional>
#include <span>
#include <string_view>

#include "ir/tile/tile.h"

namespace neso {

struct TilePipelineOptions {
  bool rewriteDescriptors = true; // off for targets that load through descriptors
  bool unroll = true;
  /// Kernels of Triton: their exp2 may give zero where the result is below 2^-126, as Triton's does on GPUs (a quarter of
  /// the instructions there). Marked as approximate (afn) on the operation.
  bool ofTriton = false;
};
Status runTilePipeline(mlir::ModuleOp module, const TilePipelineOptions &options = {});

/// One pass by name, for tests and tools: inline, canonicalize, cse, licm, symbol-dce, decompose, combine,
/// reorder-broadcast, rewrite-descriptors, beside-one, loop-unroll, pipeline. Errors: E0420 for an unknown name, E0421 if the pass
/// cannot do its work.
Status runTilePass(mlir::ModuleOp module, std::string_view name);

/// What a launch knows about one argument.
struct ArgFact {
  std::optional<int64_t> intValue; // the parameter is this number
  std::optional<double> floatValue;
  int64_t divisibility = 0; // the parameter (bytes of a pointer) is a multiple of this; 0: nothing known
};
/// Binds facts to the parameters of `func`, one fact a parameter: uses of a known number become constants, divisibility
/// becomes the attribute tt.divisibility. The signature stays. Errors: E0422 if a fact does not fit its parameter.
Status specialise(tt::FuncOp func, std::span<const ArgFact> facts);

/// Replaces descriptors and block pointers by addresses and masks, through loops and branches. A descriptor parameter
/// becomes a pointer to its base; its shape and stride parameters, which follow it, are then used. Errors: E0421.
Status rewriteDescriptors(mlir::ModuleOp module);

/// dot(a, b, 0) + c → dot(a, b, c); and ops on splats or broadcasts → splats or broadcasts of smaller ops.
void populateCombinePatterns(mlir::RewritePatternSet &patterns);
void populateReorderBroadcastPatterns(mlir::RewritePatternSet &patterns);
/// tt.dot_scaled → elements times scales, tt.dot; tt.map_elementwise over packs → over single elements; tt.atomic_poll
/// → a loop. Backends need no code of their own for these.
void populateDecomposePatterns(mlir::RewritePatternSet &patterns);

/// 1 + erf(x) → erfc(-x), 1 - erf(x) → erfc(x), marked as approximate (afn): beside 1 it need be as exact as 1 is, which is half of the work of an erf
/// that is exact near 0. 1 + tanh(x) → 2 / (1 + e^(-2x)). In f32, where nothing else reads the function's value. (The second factor of a gelu.)
void rewriteFunctionsBesideOne(mlir::ModuleOp module);

} // namespace neso
