// The program under construction, and the ways to add nodes to it.
#pragma once
#include <map>
#include <set>
#include <string>
#include <utility>

#include "ir/graph/graph.h"
#include "lower/graph_to_loops/lower.h"
#include "lower/graph_to_loops/tensor.h"

namespace neso::lower {

/// Emits the element at output index i and reduction index r.
using ReduceFn = std::function<Val(BodyBuilder &, const Index &i, const Index &r)>;
/// Maps the finished sum of a contraction to what is stored.
using EpilogueFn = std::function<Val(BodyBuilder &, const Index &i, Val sum)>;

struct ContractionSpec {
  Sizes ranges, reduceRanges;
  ReduceFn lhs, rhs;
  DType operandType = DType::F32; // lhs and rhs are narrowed to it
  DType accType = DType::F32;
  EpilogueFn epilogue; // may be empty
  DType outType = DType::F32;
  /// Buffer strides of the result in the order of `ranges`; empty for row-major.
  Sizes strides;
  /// Where the result goes, with strides in the order of `ranges`, in place of a buffer of its own.
  std::optional<Strided> into;
};

class Lowering {
public:
  loops::Program program;
  Facts facts; // of the model's size symbols
  /// The graph node being lowered; names and source lines of new loop nodes come from it.
  const graph::Node *current = nullptr;
  /// The condition under which the branch that is being lowered would run; null outside of branches.
  std::shared_ptr<const BodyBuilder::Guard> guard;

  /// Whether small tensors that depend on constants alone are computed now: their weights cannot be given other values.
  bool folds = true;
  /// Whether weights may be put into another order of elements.
  bool reorders = true;
  Winograd winograd = Winograd::Never;
  bool turnsAreDear = false; // LowerOptions
  int64_t leastChannels = 16; // LowerOptions
  graph::Int4Packing int4Packing = graph::Int4Packing::Unknown;

  /// Refuses the operator being lowered where its elements are built, as OpCall::fail() does where it is called.
  void refuse(std::string why) {
    if (refusal_.empty()) refusal_ = std::move(why);
  }
  /// Why it was refused, which is forgotten; empty: it was not.
  std::string takeRefusal() { return std::exchange(refusal_, {}); }

  // ---- numbers that the data decides
  /// Whether the inputs, or nodes so far, say what e is.
  bool isKnown(Expr e) const;
  /// Whether the inputs, or any node so far, say it, be it in a region alone.
  bool isRead(Expr e) const;
  void learn(Expr e); // its symbols are known from here on
  /// The one element of x, an integer or Bool, becomes the value of `wanted`: of its symbol if that is not known yet
  /// (for a Bool also where `wanted` compares it with 1), else it is asserted to be equal.
  void define(const Tensor &x, Expr wanted);
  /// Reads the one element of x into a new symbol.
  Expr read(const Tensor &x);
  /// The number of a loop's turn, in its test: the element of `x`, which is `from` before the first turn and one more after each.
  Expr readTurn(const Tensor &x, int64_t from);
  /// Asserts a condition that may depend on data; `message` as in Assertion.
  void require(Expr condition, std::string message);
  /// Says of the operator being lowered what its operands' sizes and numbers must be, where no fact proves it: `what` is wrong otherwise. Whoever
  /// lowers the model asserts it where the operator runs.
  void demand(Expr condition, std::string what);
  std::vector<Assertion> takeDemands() { return std::exchange(demands_, {}); }
  std::string where() const; // " (model.py:7)": the line of the node being lowered

  /// Nodes that `fill` adds, as a block of a region. Numbers that it reads are known in it only.
  std::vector<loops::Node> block(const std::function<void()> &fill);
  using Known = std::set<Symbol>;
  const Known &known() const { return known_; }
  void setKnown(Known known) { known_ = std::move(known); }
  /// A size with a name that no other has.
  Symbol freshSymbol(const std::string &like);
  /// What a symbol that was read is certain to be.
  void bound(Symbol symbol, Interval range);

  BufferId addTemp(DType t, Expr elements);
  /// A compile-time constant; the bytes are copied.
  Tensor addConstant(DType t, const Sizes &sizes, std::vector<uint8_t> bytes);
  /// A constant of the model as a copy whose dims lie in `order`, outermost first; anything else, and what lies so
  /// already, is x itself.
  Tensor constantInOrder(const Tensor &x, const std::vector<int> &order);
  /// A node of the graph node being lowered.
  void addNode(loops::Node::Spec spec, Sizes ranges = {}, Sizes reduceRanges = {});

  /// buffer[strides] = x, as one Pointwise node whose loops run in the order of the strides.
  void store(const Tensor &x, const Strided &where);
  /// The same for both parts of a complex tensor: one node, which writes neighbours in memory.
  void storeParts(const Tensor &x, const Tensor &to);
  /// for all i: fn's scatter. Writes value to where at the index that fn returns (with mode), in one Pointwise node
  /// over `ranges`.
  struct ScatterItem {
    Index index;
    Val value;
    Val mask;
  };
  void scatter(const Sizes &ranges, const std::function<ScatterItem(BodyBuilder &, const Index &)> &fn,
               const Strided &where, DType t, loops::StoreMode mode);
  /// One Pointwise node over `ranges` that stores several elements of tensors in buffers at each point.
  struct Placed {
    Tensor where; // as Tensor::asStrided gives it
    Index index;
    Val value;
  };
  void storeMany(const Sizes &ranges, const std::function<std::vector<Placed>(BodyBuilder &, const Index &)> &fn);
  /// One Reduction node; a tensor of `sizes` for each of its results (3 for Welford, 2 for OnlineSoftmax, else 1).
  Tensors reduce(loops::ReduceKind kind, DType accType, const Sizes &sizes, const Sizes &reduceSizes,
                 const ReduceFn &fn, const std::vector<int> &order = {});
  Tensor contract(const ContractionSpec &spec);
  /// Inclusive scan along `dim` of a tensor of `sizes`; one tensor.
  Tensor scan(loops::ScanKind kind, DType accType, const Sizes &sizes, int64_t dim, bool reverse, const ElementFn &fn);
  /// Sorted values and their I64 positions along `dim`.
  /// With `take`, only so many of the first; with `place` too, whose values are the same along `dim`, the one that stands there: take is 1.
  std::pair<Tensor, Tensor> sort(const Tensor &x, int64_t dim, bool descending, Expr take = {}, const ElementFn &place = {});
  /// One Segments node: the fold of fn over r in the segment of i, whose ends (first, last; I64) `ends` emits.
  Tensor segments(loops::ReduceKind kind, DType accType, const Sizes &sizes, Expr length,
                  const std::function<std::pair<Val, Val>(BodyBuilder &, const Index &)> &ends, const ReduceFn &fn);

  /// The I64 [2] state of the random numbers, (seed, next counter), a mutable constant of the program.
  Tensor rng();
  /// Reserves counters; the first one, relative to the state's.
  Expr takeCounters(Expr count);
  /// All that were reserved outside of regions.
  Expr countersTaken() const { return counters_; }
  /// Those that regions have reserved so far, I64 [] in memory: how often a block runs is not known here. Invalid: none.
  Tensor countersOfRegions();
  /// A tensor that depends on constants alone, as a compile-time constant where that is small; else x itself.
  Tensor fold(const Tensor &x);

  /// Fresh uninitialised buffer with row-major (or given) strides.
  Strided allocate(DType t, const Sizes &sizes, const std::vector<int> &order = {});
  bool equal(Expr a, Expr b) const { return a == b || facts.provablyEqual(a, b); }

private:
  std::vector<Assertion> demands_;
  std::string refusal_;
  Strided resultOf(const ContractionSpec &spec);
  void readInto(const Tensor &x, Symbol symbol, std::optional<int64_t> turn = std::nullopt);
  Known known_;           // sizes that have a value
  std::set<Symbol> late_; // those that ReadScalar nodes define
  int64_t nextNode_ = 0;
  size_t reads_ = 0;
  void countDraws(Expr count);
  Tensor rng_;
  Expr counters_ = 0;
  Tensor ofRegions_;
  bool ofRegionsIsSet_ = false; // to 0, in front of the first region that draws
  int depth_ = 0;               // of blocks
};

/// Row-major strides of sizes; with order, strides such that order lists the dims from outermost to innermost.
Sizes denseStrides(const Sizes &sizes, const std::vector<int> &order = {});
/// Dims sorted by stride, largest first (stable), size-1 dims in place.
std::vector<int> orderOfStrides(const Sizes &sizes, const Sizes &strides, const Facts &facts);

} // namespace neso::lower
