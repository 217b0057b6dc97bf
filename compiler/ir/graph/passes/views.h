// View operators: whether a call shares memory with its argument, and how a write to the view changes what it looks at.
#pragma once
#include "ir/graph/ops.h"

namespace neso::graph {

/// How one result of a call relates to the memory of an argument: `result`, or the first. Of a list of parts one may be all of the argument, and others not.
struct Aliasing {
  int argument = -1; // index into node.args of the tensor whose memory the results share; -1: the results are new
  bool identity =
      false; // the result is the argument itself, or a view of the same sizes and elements in the same order
};
Aliasing aliasing(const Graph &graph, const Node &node, const OpSchema &op, ValueId result = {});

/// True if strides a and b address the same elements of a tensor of these sizes (dimensions of size 1 do not matter).
bool sameStrides(const std::vector<Expr> &sizes, const std::vector<Expr> &a, const std::vector<Expr> &b);
/// Strides of a row-major tensor of these sizes, in elements.
std::vector<Expr> contiguousStrides(const std::vector<Expr> &sizes);
/// The strides that x.view(sizes) has, or nullopt if reshape must copy (or that cannot be told).
std::optional<std::vector<Expr>> viewStrides(const TensorType &x, const std::vector<Expr> &sizes);
/// The permutation that a transposing call applies: result dimension i is input dimension p[i]; nullopt for other
/// operators.
std::optional<std::vector<int64_t>> permutationOf(const Graph &graph, const Node &node);
/// An int list argument for these sizes; symbolic ones become SymInt values of the graph that no node defines.
Argument sizeList(Graph &graph, const std::vector<Expr> &sizes);
/// The same for one int.
Argument sizeArgument(Graph &graph, Expr size);
/// The value of an int argument, if it is an integer or a symbolic one with an expression.
std::optional<Expr> intOf(const Graph &graph, const Argument *argument);

} // namespace neso::graph
