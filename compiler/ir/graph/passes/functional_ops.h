// The functional counterparts of operators that write to their arguments, and of writes through views.
#pragma once
#include <optional>

#include "ir/graph/ops.h"

namespace neso::graph {

/// Which operator computes what a mutating one writes, and from which of its arguments.
struct FunctionalForm {
  const OpSchema *op = nullptr;
  std::vector<size_t>
      arguments; // positions in the mutating operator; the first keeps its place, the others their names
};
/// In-place ("add_"), out= and annotated operators; nullopt if torch has no such operator. Results: those of the
/// mutating operator that are not written arguments, perhaps some that it keeps to itself, then one for each written argument.
std::optional<FunctionalForm> functionalForm(const OpSchema &op);

/// Writes without a functional form in torch, which functionalize spells out: what a tensor's own size is changed by, what makes its name stand for another
/// tensor, and what fills a diagonal.
bool isResize(std::string_view name);
bool setsToTensor(const OpSchema &op);
inline constexpr std::string_view kFillDiagonal = "aten.fill_diagonal_";

/// The name of the view operator that an in-place change of shape applies ("aten.squeeze" for "aten.squeeze_"); nullopt
/// for others.
std::optional<std::string> inPlaceViewOp(std::string_view name);

/// The dtype that the functional form of a pointwise in-place operator has before it is stored; nullopt if that of the
/// memory.
std::optional<DType> pointwiseResult(const Graph &graph, const OpSchema &op, const std::vector<Argument> &args);

/// A call that puts the content of a view back into what it is a view of.
struct Insertion {
  std::string target;
  std::vector<Argument> args;
};
/// For the view operator `node`, whose viewed argument has the type `in` and whose result outputs[entry][index] the
/// type `out`: the call that makes, from the old content `whole` of that argument and the new content `part` of that
/// result, the argument's new content. nullopt if the view cannot be written through.
std::optional<Insertion> insertionOf(Graph &graph, const Node &node, size_t entry, size_t index,
                                     ValueId whole, ValueId part, const TensorType &in, const TensorType &out);

} // namespace neso::graph
