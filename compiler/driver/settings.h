// What --option K=V says, beside the target and its machines.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/diagnostics.h"
#include "driver/target.h"
#include "ir/graph/graph.h"
#include "lower/graph_to_loops/lower.h"
#include "lower/schedule/schedule.h"

namespace neso {

/// What is empty is left to the target.
struct Settings {
  std::string assembler;                        // path of ptxas, or "none": PTX alone
  std::optional<tile::F32Products> f32Products; // how tensor cores compute products of f32
  std::optional<TileTarget::Library> library;   // when products are left to cuBLASLt
  bool fuseUserKernels = true;                  // pointwise neighbours of the user's kernels become part of them
  std::optional<schedule::Siblings> join;       // when products that share an operand become one
  bool pack = true;                             // small kernels that do not need each other share a launch on a GPU
  BoxForms boxes = BoxForms::Faster;            // products whose tiles a GPU copies itself
  std::optional<lower::Winograd> winograd;      // when convolutions of 3 x 3 take fewer multiplications
  bool keepOrder = false;                       // weights stay in the model's order, products that share an operand apart
  graph::Int4Packing int4Packing = graph::Int4Packing::Unknown; // in place of what the model says
};

/// "auto", "always" or "never"; nothing for another word.
std::optional<BoxForms> parseBoxForms(const std::string &text);

/// Errors: OptionUnknown for a key or a value that there is not. Warning: OptionIdle for a setting of GPUs where none
/// is compiled for.
Result<Settings> parseSettings(const std::vector<std::pair<std::string, std::string>> &options, const Targets &targets,
                               DiagnosticSink &sink);

} // namespace neso
