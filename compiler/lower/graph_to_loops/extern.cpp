// Calls of operators that are not PyTorch's own: whoever runs the package brings them. They see tensors in memory with the strides that the
// model states, and write new ones, whose types the model states as well.
#include "base/diagnostics/graph.h"
#include "ir/graph/ops.h"
#include "ir/loops/access.h"
#include "lower/graph_to_loops/model_lowering.h"
#include "lower/graph_to_loops/tensor_ops.h"

namespace neso::lower {

using graph::ValueId;
using loops::ExternSpec;
using Kind = ExternSpec::Argument::Kind;

/// The operator that a node of this target calls, its first argument; empty: the node has another target.
static std::string_view calledBy(const graph::Node &node, std::string_view target) {
  const std::string *op = node.target == target && !node.args.empty() ? std::get_if<std::string>(&node.args[0]) : nullptr;
  return op ? std::string_view(*op) : std::string_view();
}
static std::string_view functionalizedOperator(const graph::Node &node) { return calledBy(node, "higher_order.auto_functionalized_v2"); }
/// Nothing says whether it changes its operands (graph/passes/functionalize).
static std::string_view doubtfulOperator(const graph::Node &node) { return calledBy(node, graph::kDoubtfulCall); }
std::string_view operatorOf(const graph::Node &node) {
  for (std::string_view inner : {functionalizedOperator(node), doubtfulOperator(node)})
    if (!inner.empty()) return inner;
  return node.target;
}

bool isExtern(const graph::Node &node) {
  return !node.launch && graph::isOfCaller(operatorOf(node));
}

/// "mylib.scale.default" is called mylib::scale, "mylib.scale.out" mylib::scale.out; a method of a script object has its name already.
static std::string nameOf(std::string_view target) {
  if (target.find("::") != target.npos) return std::string(target);
  const size_t dot = target.find('.');
  std::string name = fmt::format("{}::{}", target.substr(0, dot), target.substr(dot + 1));
  return name.ends_with(".default") ? name.substr(0, name.size() - 8) : name;
}

namespace {

/// Makes the arguments of one call.
class CallMaker {
public:
  /// copies: the operator gets copies of its tensors, which are compared with them afterwards (unchanged).
  CallMaker(Lowering &ctx, const graph::Graph &g, const Values &values, bool copies) : ctx_(ctx), g_(g), values_(values), copies_(copies) {}
  /// Completes "cannot compile this call: argument 'x' is …"; empty: nothing is in the way.
  std::string refusal;

  ExternSpec::Argument make(std::string name, const graph::Argument &given) {
    ExternSpec::Argument a;
    a.name = std::move(name);
    std::visit([&](const auto &v) { take(a, v); }, given);
    return a;
  }
  std::optional<ExternSpec::View> view(ValueId id) {
    if (!id.valid()) return ExternSpec::View{};
    const graph::Value &v = g_.value(id);
    const auto it = values_.find(id.value);
    if (v.kind != graph::Value::Kind::Tensor || it == values_.end()) return std::nullopt;
    if (isComplex(v.type.dtype)) return refusal = "a complex tensor", ExternSpec::View{};
    graph::TensorType type = v.type;
    type.offset = 0;
    const Strided s = copies_ ? UserKernels::freshCopy(ctx_, &it->second, type) : UserKernels::inMemory(ctx_, it->second, type);
    if (copies_) copied_.push_back({v.name, Tensor::strided(ctx_, type.dtype, type.sizes, s), it->second});
    return ExternSpec::View{s.buffer, s.dtype, type.sizes, s.strides, s.offset, copies_};
  }
  /// Behind the call: the run fails if the operator changed a copy, and with it would have changed the model's tensor.
  void requireUnchanged(const std::string &op) const {
    for (const auto &[name, copy, original] : copied_) {
      const Tensor xs[] = {copy, original};
      const Tensor same = pointwise(xs, copy.dtype(), DType::Bool, [](std::span<const Val> v) {
        return eq(v[0], v[1]) || (isFloat(v[0].dtype) ? ne(v[0], v[0]) && ne(v[1], v[1]) : v[0].b->constantInt(DType::Bool, 0));
      });
      const Tensor all = ctx_.reduce(loops::ReduceKind::All, DType::Bool, {}, same.sizes(), [same](BodyBuilder &b, const Index &, const Index &r) { return same.at(b, r); })[0];
      ctx_.require(eq(ctx_.read(all), 1), fmt::format("operator '{}' changed its operand '{}', which the model's file does not say; save it after run_decompositions(), or "
                                                      "with the operator's schema (`neso explain E0254`){}",
                                                      op, name, ctx_.where()));
    }
  }

private:
  void take(ExternSpec::Argument &a, const graph::None &) { a.kind = Kind::None; }
  void take(ExternSpec::Argument &a, ValueId id) {
    if (const std::optional<ExternSpec::View> tensor = view(id)) return void((a.kind = Kind::Tensor, a.tensors = {*tensor}));
    const graph::Value &v = g_.value(id);
    using Value = graph::Value::Kind;
    if (v.kind == Value::None) return;
    if (v.kind == Value::SymFloat && v.number) return take(a, *v.number);
    if ((v.kind != Value::SymInt && v.kind != Value::SymBool) || !v.expr.valid()) return refuse("a number that is not known before the run");
    a.kind = v.kind == Value::SymInt ? Kind::Int : Kind::Bool;
    a.ints = {v.expr};
  }
  void take(ExternSpec::Argument &a, const std::vector<ValueId> &ids) {
    a.kind = Kind::Tensors;
    for (ValueId id : ids) {
      const std::optional<ExternSpec::View> tensor = view(id);
      if (!tensor) return refuse("a list of numbers that are not known before the run");
      a.tensors.push_back(*tensor);
    }
  }
  void take(ExternSpec::Argument &a, int64_t v) { a.kind = Kind::Int, a.ints = {Expr(v)}; }
  void take(ExternSpec::Argument &a, double v) { a.kind = Kind::Float, a.floats = {v}; }
  void take(ExternSpec::Argument &a, bool v) { a.kind = Kind::Bool, a.ints = {Expr(v ? 1 : 0)}; }
  void take(ExternSpec::Argument &a, const std::string &v) { a.kind = Kind::Text, a.texts = {v}; }
  void take(ExternSpec::Argument &a, const std::vector<graph::IntOrSym> &list) {
    a.kind = Kind::Ints;
    for (const graph::IntOrSym &x : list) {
      const ValueId *id = std::get_if<ValueId>(&x);
      if (id && !g_.value(*id).expr.valid()) return refuse("a number that is not known before the run");
      a.ints.push_back(id ? g_.value(*id).expr : Expr(std::get<int64_t>(x)));
    }
  }
  void take(ExternSpec::Argument &a, const std::vector<double> &v) { a.kind = Kind::Floats, a.floats = v; }
  void take(ExternSpec::Argument &a, const std::vector<bool> &list) {
    a.kind = Kind::Bools;
    for (const bool v : list) a.ints.push_back(v ? 1 : 0);
  }
  void take(ExternSpec::Argument &a, const std::vector<std::string> &v) { a.kind = Kind::Texts, a.texts = v; }
  void take(ExternSpec::Argument &a, DType t) { a.kind = Kind::DType, a.ints = {Expr(static_cast<int64_t>(t))}; }
  void take(ExternSpec::Argument &a, graph::MemoryFormat v) { a.kind = Kind::MemoryFormat, a.ints = {Expr(v.value)}; }
  void take(ExternSpec::Argument &a, graph::Layout v) { a.kind = Kind::Layout, a.ints = {Expr(v.value)}; }
  void take(ExternSpec::Argument &a, const graph::Device &d) { a.kind = Kind::Device, a.texts = {d.index < 0 ? d.type : fmt::format("{}:{}", d.type, d.index)}; }
  void take(ExternSpec::Argument &, const graph::ComplexValue &) { refuse("a complex number"); }
  void take(ExternSpec::Argument &a, const graph::CustomObject &o) { a.kind = Kind::Object, a.texts = {o.name, o.className}; }
  template <typename T> void take(ExternSpec::Argument &, const T &) { refuse("of a kind that is not passed on"); }
  void refuse(const char *what) { refusal = what; }

  Lowering &ctx_;
  const graph::Graph &g_;
  const Values &values_;
  bool copies_;
  struct Copied {
    std::string name;
    Tensor copy, original;
  };
  std::vector<Copied> copied_;
};

/// The operands that higher_order.auto_functionalized_v2 lets its operator change: views of bases, each a copy that the operator has for
/// itself. "_x_base_index" says which base argument x is of, "_x_slice_…" or "_x_size", "_x_stride" and "_x_storage_offset" which part. Of a
/// list there are "_xs_length" and the same of "xs_0", "xs_1", ….
class ChangedOperands {
public:
  ChangedOperands(Lowering &ctx, const graph::Graph &g, const graph::Node &node, const Values &values) : ctx_(ctx), g_(g), node_(node) {
    findNames();
    const graph::Argument *bases = node.arg("_all_bases");
    const auto *ids = bases ? std::get_if<std::vector<ValueId>>(bases) : nullptr;
    for (ValueId id : ids ? *ids : std::vector<ValueId>()) {
      graph::TensorType type = g.value(id).type;
      if (isComplex(type.dtype)) refusal = "it changes a complex tensor";
      offsets_.push_back(type.offset);
      type.offset = 0;
      bases_.push_back(type);
      places_.push_back(isComplex(type.dtype) ? Strided() : UserKernels::freshCopy(ctx, &values.at(id.value), type));
    }
    if (!ids) refusal = "it does not say what it changes";
  }
  /// Why the call cannot be made; empty: nothing is in the way.
  std::string refusal;

  size_t count() const { return bases_.size(); }
  /// Whether the node's argument describes one that changes, and is none of the operator's.
  bool describes(const std::string &argument) const { return std::find(described_.begin(), described_.end(), argument) != described_.end(); }
  /// Base k as the operator leaves it.
  Tensor result(size_t k) const { return Tensor::strided(ctx_, bases_[k].dtype, bases_[k].sizes, places_[k]); }

  /// The operator's arguments that change, lists whole.
  std::vector<ExternSpec::Argument> make() {
    std::vector<ExternSpec::Argument> out;
    for (const auto &[name, parts] : names_) {
      ExternSpec::Argument a;
      a.name = name;
      if (parts < 0) {
        if (const std::optional<ExternSpec::View> v = view(name)) a.kind = Kind::Tensor, a.tensors = {*v};
      } else {
        a.kind = Kind::Tensors;
        for (int64_t i = 0; i < parts; ++i) a.tensors.push_back(view(fmt::format("{}_{}", name, i)).value_or(ExternSpec::View{}));
      }
      out.push_back(std::move(a));
    }
    return out;
  }

private:
  void findNames() {
    constexpr std::string_view kIndex = "_base_index", kLength = "_length";
    for (const std::string &given : node_.argNames) {
      if (given.starts_with("_") && given.ends_with(kLength)) {
        const std::string name = given.substr(1, given.size() - 1 - kLength.size());
        const std::optional<Expr> length = number(name, "length");
        if (!length || !length->isConst() || length->constValue() < 0) continue;
        // A plain argument may be called so, too.
        if (length->constValue() > 0 && !node_.arg("_" + name + "_0_base_index")) continue;
        names_.emplace_back(name, length->constValue());
        described_.push_back(given);
        for (int64_t i = 0; i < length->constValue(); ++i) describe(fmt::format("{}_{}", name, i));
      } else if (given.starts_with("_") && given.ends_with(kIndex) && !describes(given)) {
        names_.emplace_back(given.substr(1, given.size() - 1 - kIndex.size()), -1);
        describe(names_.back().first);
      }
    }
    described_.push_back("_all_bases");
  }
  void describe(const std::string &name) {
    for (const char *what : {"base_index", "alias", "slice_dim", "slice_start", "slice_end", "size", "stride", "storage_offset"})
      described_.push_back(fmt::format("_{}_{}", name, what));
  }

  std::optional<ExternSpec::View> view(const std::string &name) {
    const std::optional<Expr> index = number(name, "base_index");
    if (!index) return std::nullopt; // None was given
    if (!index->isConst() || index->constValue() < 0 || index->constValue() >= static_cast<int64_t>(count())) {
      refusal = fmt::format("argument '{}' is a view of nothing", name);
      return std::nullopt;
    }
    const size_t k = static_cast<size_t>(index->constValue());
    ExternSpec::View view{places_[k].buffer, places_[k].dtype, bases_[k].sizes, places_[k].strides, places_[k].offset, true};
    if (const std::optional<Expr> dim = number(name, "slice_dim")) {
      const std::optional<Expr> start = number(name, "slice_start"), end = number(name, "slice_end");
      const int64_t d = dim->isConst() ? dim->constValue() : -1;
      if (d < 0 || d >= static_cast<int64_t>(view.sizes.size()) || !start || !end) refusal = fmt::format("argument '{}' is an impossible slice", name);
      if (!refusal.empty()) return std::nullopt;
      view.offset = view.offset + *start * view.strides[static_cast<size_t>(d)];
      Expr &size = view.sizes[static_cast<size_t>(d)];
      size = ctx_.facts.simplify(min(*end, size) - *start);
    } else if (node_.arg("_" + name + "_size")) {
      const std::optional<Expr> offset = number(name, "storage_offset");
      if (!numbers(name, "size", view.sizes) || !numbers(name, "stride", view.strides) || !offset || view.sizes.size() != view.strides.size())
        refusal = fmt::format("argument '{}' is an impossible view", name);
      else
        view.offset = *offset - offsets_[k];
    }
    return view;
  }

  std::optional<Expr> value(const graph::IntOrSym &x) const {
    if (const int64_t *i = std::get_if<int64_t>(&x)) return Expr(*i);
    const Expr e = g_.value(std::get<ValueId>(x)).expr;
    return e.valid() ? std::optional(e) : std::nullopt;
  }
  std::optional<Expr> number(const std::string &name, const char *what) const {
    const graph::Argument *a = node_.arg(fmt::format("_{}_{}", name, what));
    if (const int64_t *i = a ? std::get_if<int64_t>(a) : nullptr) return Expr(*i);
    if (const ValueId *id = a ? std::get_if<ValueId>(a) : nullptr) return value(*id);
    return std::nullopt;
  }
  bool numbers(const std::string &name, const char *what, std::vector<Expr> &out) const {
    const graph::Argument *a = node_.arg(fmt::format("_{}_{}", name, what));
    const auto *list = a ? std::get_if<std::vector<graph::IntOrSym>>(a) : nullptr;
    out.clear();
    for (const graph::IntOrSym &x : list ? *list : std::vector<graph::IntOrSym>()) {
      const std::optional<Expr> e = value(x);
      if (!e) return false;
      out.push_back(*e);
    }
    return list != nullptr;
  }

  Lowering &ctx_;
  const graph::Graph &g_;
  const graph::Node &node_;
  std::vector<std::pair<std::string, int64_t>> names_; // with a list's length, -1: none
  std::vector<std::string> described_;                 // arguments of the node that are none of the operator's
  std::vector<graph::TensorType> bases_; // with offset 0
  std::vector<Expr> offsets_;            // that they have in the model
  std::vector<Strided> places_;
};

/// What operand i of an operator is called in the model's file.
std::string nameOfArgument(const graph::Node &node, size_t i) { return i < node.argNames.size() ? node.argNames[i] : std::to_string(i); }

} // namespace

/// The dtype of the tensor of one element in which an operator gives a number; of other values none.
static std::optional<DType> dtypeOfNumber(const graph::Value &v) {
  switch (v.kind) {
  case graph::Value::Kind::SymInt: return DType::I64;
  case graph::Value::Kind::SymFloat: return DType::F64;
  case graph::Value::Kind::SymBool: return DType::Bool;
  default: return std::nullopt;
  }
}

/// Gives a result of the call memory of its own; empty if that can be, else why not.
std::string ModelLowering::externResult(const graph::Value &v, ValueId id, ExternSpec &spec, Values &values) {
  if (const std::optional<DType> number = dtypeOfNumber(v)) {
    if (v.kind != graph::Value::Kind::SymFloat && !v.expr.valid()) return fmt::format("the model has no name for its result '{}'", v.name);
    graph::TensorType type;
    type.dtype = *number;
    const Strided w = UserKernels::freshCopy(ctx_, nullptr, type);
    spec.outputs.push_back({w.buffer, w.dtype, {}, {}, 0, false});
    values[id.value] = Tensor::strided(ctx_, *number, {}, w);
    return "";
  }
  if (v.kind != graph::Value::Kind::Tensor) return fmt::format("result '{}' is neither a tensor nor a number, and an operator of the caller's gives only those", v.name);
  if (isComplex(v.type.dtype)) return fmt::format("result '{}' is complex, which an operator of the caller's does not give", v.name);
  if (isNew(v)) return fmt::format("the size of its result '{}' depends on the data in a way that is not one of its dimensions", v.name);
  graph::TensorType type = v.type;
  type.offset = 0;
  const Strided w = UserKernels::freshCopy(ctx_, nullptr, type);
  spec.outputs.push_back({w.buffer, w.dtype, type.sizes, w.strides, 0, false});
  values[id.value] = Tensor::strided(ctx_, type.dtype, type.sizes, w);
  return "";
}

/// The arguments of the operator; empty if they can be given, else why not.
static std::string makeArguments(CallMaker &call, ChangedOperands *changed, const graph::Node &node, ExternSpec &spec) {
  for (size_t i = operatorOf(node) == node.target ? 0 : 1; i < node.args.size(); ++i) {
    const std::string name = nameOfArgument(node, i);
    if (changed && changed->describes(name)) continue;
    spec.arguments.push_back(call.make(name, node.args[i]));
    if (!call.refusal.empty()) return fmt::format("argument '{}' is {}, which an operator of the caller's is not given", name, call.refusal);
  }
  if (!changed) return "";
  for (ExternSpec::Argument &a : changed->make()) spec.arguments.push_back(std::move(a));
  return changed->refusal;
}

/// Sizes of the results that the operator decides: asked of a second function before the call, so that there is memory for them. It gets what
/// the operator gets, and gives a row of I64: each such size, in the order of results and dimensions. Empty if that can be, else why not.
std::string ModelLowering::askForSizes(const graph::Graph &g, const std::vector<ValueId> &results, bool changes, const ExternSpec &call) {
  std::vector<Expr> wanted;
  std::vector<ExternSpec::Size> asked;
  int64_t tensors = 0;
  for (ValueId id : results) {
    if (!id.valid() || g.value(id).kind != graph::Value::Kind::Tensor) continue;
    const std::vector<Expr> &sizes = g.value(id).type.sizes;
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (!sizes[d].isSymbol() || ctx_.isKnown(sizes[d]) || std::find(wanted.begin(), wanted.end(), sizes[d]) != wanted.end()) continue;
      wanted.push_back(sizes[d]);
      asked.push_back({tensors, static_cast<int64_t>(d)});
    }
    ++tensors;
  }
  if (wanted.empty()) return "";
  if (changes) return "it decides the size of a result, and changes what it is given";
  ExternSpec ask = call;
  ask.op += ":sizes";
  ask.asked = std::move(asked);
  announce(ask.op, false);
  graph::TensorType type;
  type.dtype = DType::I64;
  type.sizes = {Expr(static_cast<int64_t>(wanted.size()))}, type.strides = {Expr(1)};
  const Strided w = UserKernels::freshCopy(ctx_, nullptr, type);
  ask.outputs = {{w.buffer, w.dtype, type.sizes, w.strides, 0, false}};
  ctx_.addNode(std::move(ask));
  const Tensor sizes = Tensor::strided(ctx_, DType::I64, type.sizes, w);
  for (size_t k = 0; k < wanted.size(); ++k) ctx_.define(select(sizes, 0, static_cast<int64_t>(k)), wanted[k]);
  return "";
}

/// Says once of each operator that whoever runs the package brings it.
void ModelLowering::announce(const std::string &op, bool doubtful) {
  if (std::find(externs_.begin(), externs_.end(), op) != externs_.end()) return;
  externs_.push_back(op);
  const graph::Node *node = ctx_.current;
  sink_.warn(makeDiag(diag::OpOfCaller, node ? node->loc : SourceLoc{}, op,
                      doubtful ? "; the file does not say whether it changes its operands, so each call copies and compares them (`neso explain E0254`)" : ""));
}

/// What the operator returns, of the first `count` results of the node. The others are what it changed.
static std::vector<ExternSpec::Result> resultsOf(const graph::Graph &g, const graph::Node &node, size_t count) {
  using Result = ExternSpec::Result::Kind;
  using Return = graph::Node::Return;
  std::vector<ExternSpec::Result> out;
  for (size_t k = 0; k < count; ++k) {
    const Return declared = k < node.returns.size() ? node.returns[k] : Return::Plain;
    int64_t tensors = 0;
    for (ValueId id : node.outputs[k]) tensors += id.valid() && g.value(id).kind == graph::Value::Kind::Tensor;
    const bool list = declared == Return::List || tensors > 1;
    out.push_back({declared == Return::Other ? Result::Other : list ? Result::Tensors : tensors == 0 ? Result::None : declared == Return::Optional ? Result::Optional : Result::Tensor,
                   tensors});
  }
  // The functional form of an operator that returns nothing says None.
  if (count == 1 && count < node.outputs.size() && out[0].kind == Result::None) out.clear();
  return out;
}

bool ModelLowering::lowerExtern(const graph::Graph &g, const graph::Node &node, Values &values) {
  const bool doubtful = !doubtfulOperator(node).empty();
  ExternSpec spec;
  spec.op = nameOf(operatorOf(node));
  CallMaker call(ctx_, g, values, doubtful);
  std::optional<ChangedOperands> changed;
  if (!functionalizedOperator(node).empty()) changed.emplace(ctx_, g, node, values);
  if (changed && (!changed->refusal.empty() || node.outputs.size() < changed->count()))
    return refuse(node, changed->refusal.empty() ? "it has fewer results than it changes operands" : changed->refusal);
  if (const std::string why = makeArguments(call, changed ? &*changed : nullptr, node, spec); !why.empty()) return refuse(node, why);

  const size_t results = node.outputs.size() - (changed ? changed->count() : 0);
  spec.number = externCalls_++;
  spec.results = resultsOf(g, node, results);
  std::vector<ValueId> own;
  for (size_t k = 0; k < results; ++k) own.insert(own.end(), node.outputs[k].begin(), node.outputs[k].end());
  if (const std::string why = askForSizes(g, own, changed.has_value(), spec); !why.empty()) return refuse(node, why);
  for (size_t k = 0; k < node.outputs.size(); ++k)
    for (ValueId id : node.outputs[k]) {
      if (!id.valid() || g.value(id).kind == graph::Value::Kind::None) continue;
      if (k >= results)
        values[id.value] = changed->result(k - results);
      else if (const std::string why = externResult(g.value(id), id, spec, values); !why.empty())
        return refuse(node, why);
    }
  if (spec.outputs.empty() && !changed && !loops::usesObject(spec))
    return refuse(node, "it returns nothing and changes none of its operands, so that no result needs it; leave it out");
  announce(spec.op, doubtful);
  const std::string op = spec.op;
  ctx_.addNode(std::move(spec));
  call.requireUnchanged(op);
  for (ValueId id : own)
    if (const auto it = id.valid() ? values.find(id.value) : values.end(); it != values.end() && g.value(id).expr.valid() && dtypeOfNumber(g.value(id)))
      ctx_.define(it->second, g.value(id).expr);
  return true;
}

} // namespace neso::lower
