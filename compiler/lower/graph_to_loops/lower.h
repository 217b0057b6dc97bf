// Lowers the functional ATen graph to loops: what each value is becomes how each value is computed.
//
// Reads a graph::Model after the pass `functionalize` (nothing mutates or aliases; write-backs are outputs), with composite operators
// (conv2d, linear, layer_norm, scaled_dot_product_attention, …) or core ATen or both. Writes a loops::Program. It stands before
// lower/schedule, which fuses the nodes; here each value is only either inlined into its users or given a buffer (cost.h).
//
// Example: y = relu(x + 1) for x [8] becomes
//     node n0 pointwise ranges [8]
//       %0 = load x[i0] : f32
//       %1 = constant 1
//       %2 = add %0, %1
//       %3 = relu %2
//       store y[i0] = %3
//
// Errors: OpUnsupported and OpRefused, all of the model at once, each at its source line; GraphContradictsItself where a result
// disagrees with the type in the file, which is the file's fault, or a wrong lowering's: tests take it for the latter. Weights are not
// copied: constants point into the model's mapping and keep it alive.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostics.h"
#include "ir/graph/graph.h"
#include "ir/loops/loops.h"

namespace neso::lower {

/// When convolutions of 3 x 3 are computed by fewer multiplications, with larger weights (winograd.h).
enum class Winograd : uint8_t { Never, WherePays, Always };

struct LowerOptions {
  /// Every weight can be given another value later: nothing is computed from them now.
  bool updatable = false;
  /// Weights stay in the model's order of elements.
  bool keepOrder = false;
  /// In place of what the model says.
  graph::Int4Packing int4Packing = graph::Int4Packing::Unknown;
  Winograd winograd = Winograd::Never;
  /// A turn of a loop costs what several launches do: on GPUs, where it is a node of a graph (6 us on an H200, bench/gpu/README.md).
  bool turnsAreDear = false;
  /// Channels of a convolution's group, from which on a copy of the input that puts them side by side pays. CPUs multiply 8 where they lie (lower/tiling/contraction.cpp).
  int64_t leastChannels = 16;
};

Result<loops::Program> lowerGraph(const graph::Model &model, DiagnosticSink &sink, const LowerOptions &options = {});

/// Whether the operator has a lowering ("aten.add.Tensor"); a call of it may still be refused for its arguments.
bool isSupported(std::string_view target);
/// All that have one, sorted.
std::vector<std::string> supportedTargets();

} // namespace neso::lower
