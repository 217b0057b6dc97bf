// Lowering of "neso.launch": which buffers a user's kernel works on, and which copies it needs.
#pragma once
#include <memory>

#include "lower/graph_to_loops/in_place.h"

namespace neso::lower {

/// Knows who reads which value, so that a launch may write in place where nobody else looks.
class UserKernels {
public:
  using Values = InPlace::Values;
  /// Adds the node; one tensor for each written argument. `refusal` completes "cannot compile this call".
  Tensors lower(Lowering &ctx, const graph::Graph &g, const graph::Node &node, Values &values, std::string &refusal);
  /// Memory for a result of `torch.empty` that is only written, part by part, by launches; else an invalid tensor.
  Tensor blankOf(Lowering &ctx, const graph::Graph &g, graph::ValueId id);
  /// A tensor of the model that no run changes, whatever lies beside it.
  void keep(InPlace::Region region) { kept_.push_back(std::move(region)); }
  /// The lowering of a graph begins, of the model's or within that of another, whose buffers `own` it may write; it ends with leave().
  void enter(const Lowering &ctx, const graph::Graph &g, const std::set<BufferId> &own);
  void leave() { graphs_.pop_back(); }
  /// Of the graph that is being lowered.
  InPlace &memory() { return *graphs_.back(); }

  /// Where a tensor lies, or a copy of it, with exactly the strides that the model states.
  static Strided inMemory(Lowering &ctx, const Tensor &x, const graph::TensorType &type);
  /// Memory of that type, which holds x unless that is null.
  static Strided freshCopy(Lowering &ctx, const Tensor *x, const graph::TensorType &type);

private:
  struct Written {
    Strided where;
    bool undefined = false;
  };
  Written placeWritten(Lowering &ctx, const graph::Graph &g, const graph::Node &node, size_t i, Values &values, std::string &why);
  static loops::UserKernelSpec::Argument argumentOf(Lowering &ctx, const graph::UserLaunch &launch, const graph::UserLaunch::Parameter &p,
                                                    const std::vector<Written> &tensors);
  static void fillBlank(Lowering &ctx, BufferId buffer);

  std::vector<InPlace::Region> kept_;
  std::vector<std::unique_ptr<InPlace>> graphs_; // innermost last
};

} // namespace neso::lower
