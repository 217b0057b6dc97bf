// The state of lowering one model; lower.cpp has nodes, inputs and outputs, control.cpp calls of sub-graphs.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "lower/graph_to_loops/attention.h"
#include "lower/graph_to_loops/input_layout.h"
#include "lower/graph_to_loops/lower.h"
#include "lower/graph_to_loops/op_call.h"
#include "lower/graph_to_loops/user_kernel.h"

namespace neso::lower {

using Values = std::unordered_map<int32_t, Tensor>; // by graph value

class ModelLowering {
public:
  ModelLowering(const graph::Model &model, const LowerOptions &options, DiagnosticSink &sink) : model_(model), sink_(sink) {
    ctx_.facts = model.facts;
    ctx_.folds = !options.updatable;
    ctx_.reorders = !options.keepOrder;
    ctx_.winograd = options.winograd;
    ctx_.turnsAreDear = options.turnsAreDear;
    ctx_.leastChannels = options.leastChannels;
    ctx_.int4Packing = options.int4Packing == graph::Int4Packing::Unknown ? model.int4Packing : options.int4Packing;
  }
  Result<loops::Program> run();

private:
  /// What one graph, the model's or a sub-graph, says of its values; each has its own numbers for them.
  struct Scope {
    std::unordered_map<int32_t, int> uses; // readers of each value, outputs included
    std::set<int32_t> outputs;             // of the model: their memory is the caller's
    AttentionMatches attention;
  };
  Scope scopeOf(const graph::Graph &g) const;
  Scope &here() { return scopes_.back(); }
  /// Lowers the nodes of a graph whose inputs have their values. `own`: buffers around the graph that it may write, since nobody else needs
  /// what they hold.
  void lowerWhole(const graph::Graph &g, Values &values, const std::set<BufferId> &own = {});
  void roundSizes();
  BufferId addInputBuffer(const std::string &name, loops::Buffer::Kind kind, DType dtype, Expr elements, int64_t position);
  Sizes stridesOfInput(const graph::Input &in, const graph::TensorType &type, const ValueSet &addressed);
  void addInputs();
  bool changes(const std::string &target, bool input) const;
  Tensor addWeight(const graph::Weight &w);
  // ---- control.cpp
  struct Call;
  bool lowerCall(const graph::Graph &g, const graph::Node &node, Values &values);
  std::optional<Call> readCall(const graph::Node &node);
  bool lowerBody(const graph::Graph &body, const std::vector<Tensor> &operands, Tensors &results, const std::set<BufferId> &own = {});
  bool chooseCond(const graph::Graph &g, Call &call, Values &values);
  struct SizeOfResult {
    size_t result, dim;
    Expr size; // what the model calls it behind the branch
  };
  bool defineSizes(const graph::Graph &g, const Call &call, Expr condition, const std::vector<Tensor> &operands, std::vector<SizeOfResult> &computed);
  bool computeSizes(const graph::Node &node, std::array<const graph::Graph *, 2> bodies, Expr condition, const std::vector<Tensor> &operands,
                    const std::vector<SizeOfResult> &wanted);
  bool branchCond(const graph::Graph &g, Call &call, Values &values);
  bool lowerWhile(const graph::Graph &g, Call &call, Values &values);
  bool lowerTurns(const graph::Graph &g, Call &call, Values &values);
  static std::vector<Tensor> operandsOf(const Call &call, size_t list, const Values &values);
  std::vector<Tensor> inMemory(const Call &call, size_t list, const Values &values);
  static std::vector<Tensor> ofBlock(std::vector<Tensor> operands);
  std::optional<Expr> conditionOf(const graph::Graph &g, const graph::Argument &a, const Values &values);
  bool refuse(const graph::Node &node, const std::string &why);
  void lowerAssertion(const graph::Graph &g, const graph::Node &node);
  // ---- stacked.cpp
  bool lowerStacked(const graph::Graph &g, const graph::Node &node, std::array<const graph::Graph *, 2> bodies, const std::vector<Tensor> &initial,
                    const std::vector<Tensor> &rest, Values &values);
  // ---- inlined.cpp
  const graph::Graph &forThisCall(const graph::Graph &g, const graph::Node &node, const graph::Graph &body, const std::vector<graph::ValueId> &operands);
  bool lowerInlined(const graph::Graph &g, const graph::Node &node, const graph::Graph &traced, const std::vector<graph::ValueId> &ids, Values &values);

  void findUnsupported(const graph::Graph &g);
  void lowerNode(const graph::Graph &g, const graph::Node &node, Values &values);
  void lowerOperatorOfCaller(const graph::Graph &g, const graph::Node &node, Values &values);
  void lowerLaunch(const graph::Graph &g, const graph::Node &node, Values &values);
  void lowerOperator(const graph::Graph &g, const graph::Node &node, const OpRow &row, Values &values);
  bool onlyReturned(const graph::Graph &g, graph::ValueId id);
  Tensor resultOf(const graph::Graph &g, const graph::Node &node, size_t k, graph::ValueId id, const Tensor &result);
  std::string checkType(const graph::Node &node, size_t k, const graph::Value &v, const Tensor &x);
  Tensor standIn(const graph::Value &v);
  Tensor settle(const graph::Graph &g, graph::ValueId id, const Tensor &x);
  void addOutputs();
  void learnInputs();
  bool isNew(const graph::Value &v) const;
  bool definesSizes(const graph::Graph &g, const graph::Node &node) const;
  void checkSizes(const graph::Graph &g, const graph::Node &node);
  /// Tests a condition on sizes at the start of a run, or where the last of them is read.
  void assume(const graph::Node &node, Expr condition);
  void dropUnknownAssertions();
  void advanceRandom();
  loops::ProgramOutput tensorOutput(const Tensor &x, const graph::TensorType &type, const Strided *target = nullptr);
  void report(Diagnostic d) { errors_.push_back(std::move(d)); }

  // ---- extern.cpp
  bool lowerExtern(const graph::Graph &g, const graph::Node &node, Values &values);
  std::string askForSizes(const graph::Graph &g, const std::vector<graph::ValueId> &results, bool changes, const loops::ExternSpec &call);
  void announce(const std::string &op, bool doubtful);
  std::string externResult(const graph::Value &v, graph::ValueId id, loops::ExternSpec &spec, Values &values);

  const graph::Model &model_;
  DiagnosticSink &sink_;
  Lowering ctx_;
  UserKernels userKernels_;
  Values values_;
  std::map<std::pair<int, DType>, BufferId> weightBuffers_; // by storage and dtype
  std::map<std::string, Strided> weightByName_;       // where each lies
  std::vector<std::optional<Strided>> inputTensors_; // by input; nothing for what is no tensor
  ValueSet laidAnew_; // inputs that do not lie as the model says, and their views
  std::vector<Scope> scopes_; // of the graphs being lowered, innermost last
  std::set<int32_t> returned_; // buffers that an output already names
  std::vector<Diagnostic> errors_;
  std::vector<std::string> externs_; // operators of the caller's, by name
  int64_t externCalls_ = 0;          // of them
  std::vector<std::shared_ptr<const graph::Graph>> copies_; // of sub-graphs, for what points into them
  Expr path_ = 1; // not 0 where what is being lowered runs: the conditions of the regions around it
};

/// Whether whoever runs the package brings the operator: it is neither PyTorch's nor Neso's.
bool isExtern(const graph::Node &node);
/// What the node calls: its target, or of a call that is wrapped because of what it may change the operator inside.
std::string_view operatorOf(const graph::Node &node);
std::vector<graph::ValueId> flatOutputs(const graph::Node &node);
/// Calls of sub-graphs.
bool isCall(std::string_view target);

} // namespace neso::lower
