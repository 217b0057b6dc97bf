// One operator call of the graph as its lowering function sees it, and the table of lowering functions.
//
// A lowering function reads its arguments by their schema names (with the schema's default where the file leaves it
// out) and returns one Tensor for each tensor result. What it cannot do it refuses with fail(): the call is then
// reported, with all others of the model.
#pragma once
#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "lower/graph_to_loops/tensor_ops.h"

namespace neso::lower {

class InPlace;
class OpCall;
using LowerFn = Tensors (*)(OpCall &);

/// What a lowering function makes of complex operands and results. It is stated, so that none meets what it does not know.
enum class OnComplex {
  Refuse, // nothing: the call is refused
  Own,    // it knows them
  Parts,  // it moves elements or is linear over the real numbers: it is called for the real parts, and again for the imaginary ones
};

struct OpRow {
  LowerFn fn;
  OnComplex complex = OnComplex::Refuse;
};

class OpCall {
public:
  /// memory: decides what may be written over; null: nothing may.
  OpCall(Lowering &lowering, const graph::Graph &graph, const graph::Node &node,
         std::unordered_map<int32_t, Tensor> &values, InPlace *memory = nullptr)
      : ctx(lowering), node(node), graph_(graph), values_(values), memory_(memory) {}

  Lowering &ctx;
  const graph::Node &node;

  bool has(std::string_view name) const; // given and not None
  /// A tensor, or a Python or symbolic number as a 0-d tensor that promotes as a number.
  Tensor t(std::string_view name);
  Tensor opt(std::string_view name);   // invalid when None or absent
  /// An operand of Python's own functions on numbers, which have no schema.
  Tensor operand(size_t position);
  Tensors list(std::string_view name); // None entries are invalid tensors
  Expr expr(std::string_view name, Expr otherwise = 0);
  std::optional<Expr> optExpr(std::string_view name);
  int64_t integer(std::string_view name, int64_t otherwise = 0);
  double number(std::string_view name, double otherwise = 0);
  bool flag(std::string_view name, bool otherwise = false);
  Sizes exprs(std::string_view name); // a list of ints, or one int
  Dims ints(std::string_view name);
  std::vector<double> numbers(std::string_view name);
  std::string text(std::string_view name, std::string otherwise = "");
  std::optional<DType> dtype(std::string_view name);

  /// The type that the exported graph states for a tensor argument; null when it is none.
  const graph::TensorType *typeOf(std::string_view name) const;
  /// The results of another operator, given by name and arguments, where this call would stand; refuses what that refuses.
  struct Named {
    std::string name;
    graph::Argument value;
  };
  Tensors instead(std::string target, const std::vector<Named> &arguments, std::vector<graph::ValueId> results);
  /// The type that the exported graph states for a tensor result.
  const graph::TensorType &out(size_t i = 0) const;
  size_t outCount() const;
  /// Whether anything reads result k. Looks through the graph.
  bool isRead(size_t k) const;
  /// What the graph calls the number that is the only result.
  Expr outExpr() const;
  /// Whether the only result is a number of Python's type float.
  bool givesFloat() const;

  /// Whether the only result may be written over the operand x, which then is all but `part` of it: nobody needs x as it was
  /// (in_place.h). What the call reads while it writes, `reads`, is moved elsewhere where it lies there.
  bool over(const Tensor &x, const Sizes &sizes, const Strided &part, Tensors &reads);

  /// What the exporter took for granted of sizes when it wrote down the results' types, where no range proves it: sizes of 0 and 1 in
  /// particular. It is checked when the sizes are known, and a run that breaks it is refused.
  void assume(Expr condition) { assumed_.push_back(condition); }
  void assumeEqual(Expr a, Expr b);
  const std::vector<Expr> &assumed() const { return assumed_; }
  /// Result k is None in eager PyTorch, though the model describes a tensor.
  void makeNone(size_t k) { none_.push_back(k); }
  bool isNone(size_t k) const { return std::find(none_.begin(), none_.end(), k) != none_.end(); }

  /// Whether the call is for one part of complex operands (OnComplex::Parts), which then are real ones.
  bool ofPart() const { return part_ != Part::Whole; }

  /// The results of a row for this call, which is refused where one meets complex numbers that the row does not know, or dtypes that PyTorch's
  /// kernels do not take (operand_dtypes.h).
  Tensors lower(const OpRow &row);

  /// Refuses the call; the reason completes "cannot compile OP: ...".
  Tensors fail(std::string why);
  /// Sizes of operands that must be equal, which exports do not ask of operators that are mostly written by PyTorch itself; `what` says so.
  void mustAgree(Expr a, Expr b, std::string_view what) { ctx.demand(eq(a, b), fmt::format("{}: {}", node.target, what)); }
  bool failed() const { return failed_; }
  const std::string &reason() const { return reason_; }

private:
  /// Which part of complex operands the arguments give, and of complex results is asked for.
  enum class Part { Whole, Real, Imag };
  OpCall(const OpCall &whole, Part part);
  bool meetsComplex() const;
  Tensors byParts(LowerFn fn);
  Tensor partOf(std::string_view name, const Tensor &x) const;
  Tensor fromValue(graph::ValueId id);
  Tensor fromArgument(const graph::Argument &argument); // invalid when it is no tensor and no number
  Expr exprOf(graph::ValueId id);
  const graph::Graph &graph_;
  std::unordered_map<int32_t, Tensor> &values_;
  InPlace *memory_;
  Part part_ = Part::Whole;
  mutable std::vector<std::unique_ptr<graph::TensorType>> partTypes_; // those that were asked for, with a part's dtype
  const graph::TensorType &typeOfPart(const graph::TensorType &type) const;
  bool failed_ = false;
  std::string reason_;
  std::vector<Expr> assumed_;
  std::vector<size_t> none_;
};

class OpTable {
public:
  /// Names are without the "aten." prefix, separated by blanks: "add.Tensor add.Scalar".
  void add(std::string_view names, LowerFn fn);
  /// What the rows that follow make of complex numbers, where nothing else is said of them.
  void family(OnComplex what) { family_ = what; }
  /// States of rows that are there what they make of complex numbers. A name without overload stands for all overloads.
  void onComplex(OnComplex what, std::string_view names);
  const OpRow *find(std::string_view target) const;
  /// Sorted.
  std::vector<std::string> targets() const;
  static const OpTable &instance();

private:
  /// Calls fn with each row that the names name.
  void forEachRow(std::string_view names, const std::function<void(OpRow &)> &fn);
  std::unordered_map<std::string, OpRow> rows_;
  OnComplex family_ = OnComplex::Refuse;
};

// The families, one file each; op_table.cpp calls them all.
#define NESO_LOWER_FAMILIES(X)                                                                                         \
  X(Pointwise)                                                                                                         \
  X(Views) X(Creation) X(Reductions) X(Norm) X(Matmul) X(Conv) X(Pool) X(Indexing) X(ScanSort) X(Statistics)           \
      X(Attention) X(Losses) X(Ctc) X(Resize) X(Rnn) X(Fft) X(Random) X(Misc) X(Polynomials) X(DataSizes) X(Unique) X(Jagged) X(Lists) X(Optimisers) X(Quantised) X(QuantisedBlocks) X(PackedInt4) X(Grouped) X(Sampling) X(SamplingGradients) X(Detection) X(Gradients) X(Derivatives) X(NormGradients) X(ViewGradients)
#define NESO_DECLARE_FAMILY(F) void add##F(OpTable &table);
NESO_LOWER_FAMILIES(NESO_DECLARE_FAMILY)
#undef NESO_DECLARE_FAMILY

} // namespace neso::lower
