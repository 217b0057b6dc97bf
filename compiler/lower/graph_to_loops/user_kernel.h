// Lowering of "neso.launch": which buffers a user's kernel works on, and which copies it needs.
#pragma once
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "lower/graph_to_loops/lowering.h"

namespace neso::lower {

/// Elements of the storage that a tensor reaches, from its first element on.
Expr extentOf(const Sizes &sizes, const Sizes &strides, const Facts &facts);

/// Knows who reads which value, so that a launch may write in place where nobody else looks.
class UserKernels {
public:
  using Values = std::unordered_map<int32_t, Tensor>;
  explicit UserKernels(const graph::Model &model);
  /// Adds the node; one tensor for each written argument. `refusal` completes "cannot compile this call".
  Tensors lower(Lowering &ctx, const graph::Graph &g, const graph::Node &node, Values &values, std::string &refusal);

private:
  bool mayTake(BufferId buffer, size_t at, const Values &values) const;
  static Strided inMemory(Lowering &ctx, const Tensor &x, const graph::TensorType &type);
  static Strided freshCopy(Lowering &ctx, const Tensor *x, const graph::TensorType &type);

  const graph::Graph &graph_;
  std::unordered_map<int32_t, std::set<size_t>> readers_; // value -> nodes of the main graph
  std::unordered_map<int32_t, size_t> definition_;        // value -> node
  std::set<int32_t> returned_;
};

} // namespace neso::lower
