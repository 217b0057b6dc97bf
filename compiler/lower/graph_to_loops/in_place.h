// Reinplacing: may a user's kernel, or an operator that changes a part of its operand, write straight over the memory that lies in?
//
// In the functional graph both give a new value, so that the old one stays; in memory they can be one buffer where nobody needs the
// old content any more. That is asked for each written argument, in the order of the nodes:
//
//     r = launch(z);              z is read by nobody behind it                      r lies where z lies
//     r = index_put(z, [i], v)    the same                                           the rows i of z are written, and no others
//     s = z[:, 3]; r = launch(s); z' = select_scatter(z, r, 1, 3)                   r lies in z's column, z' where z lies
//     r = launch(y), y an input that receives r at the end                           the caller's memory changes, nothing is copied back
//
// A value is needed later if a node behind the launch reads it or the model returns it. One that lies elsewhere, or in a part of the buffer
// that provably does not meet what is written, does not mind. Any other is computed (or copied) before the launch where that costs less than
// the copy of what is written; else the launch works on a copy.
//
// Tensors in a buffer always mean its present content; the rule keeps that true. The pair slice and scatter is recognised by where both lie.
#pragma once
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "lower/graph_to_loops/lowering.h"

namespace neso::lower {

/// Elements of the storage that a tensor reaches, from its first element on. Strides are not negative.
Expr extentOf(const Sizes &sizes, const Sizes &strides, const Facts &facts);
/// Whether no two elements of the tensor are one in memory; false where that is not known.
bool isApartFromItself(const Sizes &sizes, const Sizes &strides, const Facts &facts);
bool sameStrides(const Lowering &ctx, const Sizes &sizes, const Sizes &a, const Sizes &b);
/// Whether two tensors in one buffer provably have no element in common: the buffer's rows apart, columns of the same
/// rows apart, or one behind the other.
bool provablyApart(const Sizes &sizesA, const Strided &a, const Sizes &sizesB, const Strided &b, const Facts &facts);

/// Who reads what in one graph. A sub-graph's own memory are the buffers that came into being since its lowering began, and those that it
/// was given: what a loop carries from turn to turn is the loop's. Others belong to the graph around it.
class InPlace {
public:
  using Values = std::unordered_map<int32_t, Tensor>;
  InPlace(const graph::Graph &graph, std::set<int32_t> returned, size_t firstBuffer, std::set<BufferId> own);

  struct Region {
    Sizes sizes;
    Strided where;
  };
  /// A tensor of the model that no run changes, whatever lies beside it.
  void keep(Region region) { kept_.push_back(std::move(region)); }
  /// `node` reads the value as well, in place of nodes before it.
  void readAt(graph::ValueId id, const graph::Node &node);

  /// Begins a launch: `node` is one of the graph's.
  void begin(const graph::Node &node);
  /// Where argument `i` may be written in its own memory; `why` then says what was gained, else (if anything could have
  /// been) what is in the way. Adds the nodes that bring into safety what is still needed, and replaces those values.
  std::optional<Strided> place(Lowering &ctx, size_t i, Values &values, std::string &why);
  /// Whether an operator of the graph may write its first result over x, the tensor of its argument `self`: of x's buffer it writes `part`
  /// alone. What it reads meanwhile, `reads`, is moved out of the way where it must be.
  bool over(Lowering &ctx, const graph::Node &node, const Tensor &x, const Region &part, Tensors &reads, Values &values);
  /// Argument `i` was given other memory: a later argument must not overlap `where`.
  void wrote(const Sizes &sizes, const Strided &where) { written_.push_back({sizes, where}); }

  /// The argument's definition leaves its elements without values (torch.empty).
  bool isUninitialised(graph::ValueId id) const;
  /// Whether torch.empty's result is only ever written part by part, by launches in place; then its buffer may begin
  /// without content.
  bool startsBlank(graph::ValueId id) const;
  void blank(BufferId buffer) { blank_.insert(buffer.value); }
  /// Nothing was stored to the buffer yet; from now on something is.
  bool firstTouch(BufferId buffer) { return blank_.erase(buffer.value) != 0; }

private:
  bool isOutside(BufferId buffer) const { return buffer.index() < firstBuffer_ && !own_.count(buffer); }
  bool isOurs(const Lowering &ctx, const Region &region) const;
  bool release(Lowering &ctx, const Region &region, graph::ValueId result, const Tensor &whole, Expr saved, Values &values, std::string &why);
  void settleBase(graph::ValueId result, Values &values);
  void absorb(Lowering &ctx, graph::ValueId source, const Tensor &x, Values &values);
  const graph::Node *scatterOf(graph::ValueId source) const;
  bool neededLater(int32_t id) const;
  bool meets(Lowering &ctx, const Tensor &x, const Region &region) const;
  static void save(Lowering &ctx, int32_t id, Values &values);

  const graph::Graph &graph_;
  std::set<int32_t> returned_;
  size_t firstBuffer_;
  std::set<BufferId> own_;
  std::unordered_map<int32_t, std::vector<size_t>> readers_; // value -> nodes, ascending
  std::unordered_map<int32_t, size_t> definition_;           // value -> node
  std::set<int32_t> blank_;                                  // buffers without content
  std::vector<Region> kept_;
  // Of the present launch:
  const graph::Node *node_ = nullptr;
  size_t at_ = 0;
  std::vector<Region> written_;
  std::set<std::pair<size_t, int32_t>>
      absorbed_; // (scatter node, value that it reads): gives the present content of its buffer
  std::unordered_map<int32_t, Tensor> coming_; // results of those
};

} // namespace neso::lower
