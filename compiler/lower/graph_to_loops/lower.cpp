#include "lower/graph_to_loops/lower.h"

#include <algorithm>

#include "base/diagnostics/graph.h"
#include "base/fault.h"
#include "ir/graph/ops.h"
#include "ir/graph/visit.h"
#include "lower/graph_to_loops/cost.h"
#include "lower/graph_to_loops/data_sizes.h"
#include "lower/graph_to_loops/in_place.h"
#include "lower/graph_to_loops/model_lowering.h"

namespace neso::lower {

using graph::ValueId;

std::vector<ValueId> flatOutputs(const graph::Node &node) {
  std::vector<ValueId> ids;
  for (const std::vector<ValueId> &entry : node.outputs) ids.insert(ids.end(), entry.begin(), entry.end());
  return ids;
}

namespace {
/// torch.vmap in a program that is not decomposed: marks around operators whose tensors hide their batch.
bool isOfVmap(std::string_view target) { return target.starts_with("torch._functorch.predispatch."); }


/// Size arithmetic is in the values' expressions already, and assertions have no outputs: neither needs a lowering. What
/// somebody else defined and has no output does something that nobody sees here.
bool isSymbolic(const graph::Graph &g, const graph::Node &node) {
  if (isExtern(node) || (node.target.starts_with("higher_order.") && !isCall(node.target))) return false;
  for (ValueId id : flatOutputs(node)) {
    if (!id.valid()) continue;
    const graph::Value &v = g.value(id);
    bool symbolic = v.kind == graph::Value::Kind::None ||
                    ((v.kind == graph::Value::Kind::SymInt || v.kind == graph::Value::Kind::SymBool) && v.expr.valid());
    if (!symbolic) return false;
  }
  return true;
}

/// A tensor's element as a number: torch may know which one it must be, which is then asserted.
bool isItem(const graph::Node &node) {
  return node.target == "aten.item.default" || node.target == "aten._local_scalar_dense.default";
}

/// What a sub-graph asserts; those of the model itself are in its list.
bool isAssertion(const graph::Node &node) { return node.target == "aten._assert_scalar.default"; }

} // namespace

bool isCall(std::string_view target) {
  return graph::isInlined(target) || target == "higher_order.cond" || target == "higher_order.while_loop" || target == "higher_order.while_loop_stack_output" ||
         target == "higher_order.map_impl" ||
         target == "higher_order.scan" || target == "higher_order.associative_scan";
}

ModelLowering::Scope ModelLowering::scopeOf(const graph::Graph &g) const {
  Scope scope;
  for (const graph::Node &node : g.nodes) graph::forEachInput(node, [&](ValueId id) { ++scope.uses[id.value]; });
  for (const graph::Argument &a : g.outputs)
    if (const ValueId *id = std::get_if<ValueId>(&a)) ++scope.uses[id->value];
  if (&g == &model_.graph)
    for (const graph::Output &o : model_.outputs)
      if (const ValueId *id = std::get_if<ValueId>(&o.value); id && o.kind != graph::Output::Kind::Token) scope.outputs.insert(id->value);
  scope.attention = findAttention(g, scope.uses);
  return scope;
}

void ModelLowering::lowerWhole(const graph::Graph &g, Values &values, const std::set<BufferId> &own) {
  scopes_.push_back(scopeOf(g));
  userKernels_.enter(ctx_, g, own);
  for (const auto &[node, match] : here().attention.byResult) {
    for (ValueId id : {match.q, match.k, match.v}) userKernels_.memory().readAt(id, *node);
    for (const AttentionMask &mask : match.masks) userKernels_.memory().readAt(mask.value, *node);
  }
  for (const graph::Node &node : g.nodes) {
    roundSizes();
    lowerNode(g, node, values);
    checkSizes(g, node);
  }
  roundSizes(); // what only an assertion asks for
  userKernels_.leave();
  scopes_.pop_back();
}

/// Whether a run leaves another content in the buffer, parameter or input of that name.
bool ModelLowering::changes(const std::string &target, bool input) const {
  return std::any_of(model_.outputs.begin(), model_.outputs.end(), [&](const graph::Output &o) {
    using Kind = graph::Output::Kind;
    bool fits =
        input ? o.kind == Kind::InputMutation : o.kind == Kind::BufferMutation || o.kind == Kind::ParameterMutation;
    return fits && o.target == target;
  });
}

Tensor ModelLowering::addWeight(const graph::Weight &w) {
  const graph::Storage &storage = model_.storages[static_cast<size_t>(w.storage)];
  DType element = toReal(w.type.dtype);
  auto [it, fresh] = weightBuffers_.try_emplace({w.storage, w.type.dtype});
  if (fresh) {
    loops::Constant c;
    bool mutated = false;
    c.fqn = w.fqn;
    c.dtype = w.type.dtype;
    c.data = storage.data;
    c.bytes = storage.bytes;
    c.fileOffset = storage.fileOffset;
    for (const graph::Weight &other : model_.weights)
      if (other.storage == w.storage) mutated |= changes(other.fqn, false);
    c.isBuffer = w.kind == graph::Weight::Kind::Buffer;
    c.owner = storage.owner;
    loops::Buffer b;
    b.id = BufferId(static_cast<int64_t>(ctx_.program.buffers.size()));
    b.name = w.fqn;
    b.dtype = element;
    b.kind = loops::Buffer::Kind::Constant;
    b.mutated = mutated;
    b.elements = storage.bytes / itemSize(element);
    b.index = static_cast<int64_t>(ctx_.program.constants.size());
    ctx_.program.constants.push_back(std::move(c));
    ctx_.program.buffers.push_back(std::move(b));
    it->second = ctx_.program.buffers.back().id;
  }
  loops::Constant::ModelTensor tensor{w.fqn, {}, {}, w.type.offset.constValue()};
  for (Expr e : w.type.sizes) tensor.sizes.push_back(e.constValue());
  for (Expr e : w.type.strides) tensor.strides.push_back(e.constValue());
  ctx_.program.constants[static_cast<size_t>(ctx_.program.buffer(it->second).index)].tensors.push_back(tensor);
  Strided where{it->second, w.type.dtype, w.type.strides, w.type.offset};
  weightByName_.insert_or_assign(w.fqn, where);
  if (!changes(w.fqn, false)) userKernels_.keep({w.type.sizes, where});
  return Tensor::strided(ctx_, w.type.dtype, w.type.sizes, where);
}

/// A buffer that the caller gives, as its input number `position`.
BufferId ModelLowering::addInputBuffer(const std::string &name, loops::Buffer::Kind kind, DType dtype, Expr elements, int64_t position) {
  loops::Buffer b;
  b.id = BufferId(static_cast<int64_t>(ctx_.program.buffers.size()));
  b.name = name;
  b.kind = kind;
  b.dtype = dtype;
  b.elements = elements;
  b.index = position;
  b.mutated = kind == loops::Buffer::Kind::Input && changes(name, true);
  ctx_.program.buffers.push_back(b);
  return b.id;
}

/// The strides that a run's tensor is brought to: those of the export's example, unless several of its elements were in one place of memory.
Sizes ModelLowering::stridesOfInput(const graph::Input &in, const graph::TensorType &type, const ValueSet &addressed) {
  if (changes(in.name, true) || addressed.contains(in.value.value) || isApartFromItself(type.sizes, type.strides, ctx_.facts)) return type.strides;
  laidAnew_.insert(in.value.value);
  return denseStrides(type.sizes);
}

void ModelLowering::addInputs() {
  const ValueSet addressed = addressedIn(model_.graph);
  int64_t position = 0;
  for (const graph::Input &in : model_.inputs) {
    if (in.kind == graph::Input::Kind::Weight) {
      Tensor w = addWeight(model_.weights[static_cast<size_t>(in.weight)]);
      if (in.value.valid()) values_[in.value.value] = w;
      continue;
    }
    if (in.kind == graph::Input::Kind::Token || in.kind == graph::Input::Kind::CustomObj) continue;
    loops::ProgramInput p;
    p.name = in.name;
    using Kind = loops::ProgramInput::Kind;
    if (in.kind == graph::Input::Kind::Constant) {
      p.kind = Kind::None;
      if (const int64_t *i = std::get_if<int64_t>(&in.constant)) p.kind = Kind::Int, p.scalar = *i;
      if (const bool *b = std::get_if<bool>(&in.constant)) p.kind = Kind::Bool, p.scalar = *b ? 1 : 0;
      if (const double *d = std::get_if<double>(&in.constant)) p.kind = Kind::Float, p.floatValue = *d;
      if (std::holds_alternative<std::string>(in.constant)) p.kind = Kind::String;
      inputTensors_.emplace_back();
    } else {
      const graph::Value &v = model_.graph.value(in.value);
      p.kind = Kind::Int;
      p.scalar = v.expr;
      BufferId id;
      std::optional<Strided> where;
      if (v.kind == graph::Value::Kind::Tensor) {
        p.kind = Kind::Tensor;
        p.dtype = v.type.dtype;
        p.sizes = v.type.sizes;
        p.strides = stridesOfInput(in, v.type, addressed);
        const Expr elements = extentOf(v.type.sizes, p.strides, ctx_.facts) * (isComplex(v.type.dtype) ? 2 : 1);
        id = addInputBuffer(in.name, loops::Buffer::Kind::Input, toReal(v.type.dtype), elements, position);
        where = Strided{id, v.type.dtype, p.strides, 0};
        values_[in.value.value] = Tensor::strided(ctx_, v.type.dtype, v.type.sizes, *where);
      } else if (v.kind == graph::Value::Kind::SymFloat) {
        p.kind = Kind::Float;
        id = addInputBuffer(in.name, loops::Buffer::Kind::ScalarInput, DType::F64, 1, position);
        values_[in.value.value] = Tensor::strided(ctx_, DType::F64, {}, {id, DType::F64, {}, 0});
      } else if (v.kind == graph::Value::Kind::None || v.kind == graph::Value::Kind::Object) {
        // An object is not passed: it keeps its number among the inputs, as in the exported program.
        p.kind = Kind::None;
      }
      p.buffer = id;
      inputTensors_.push_back(where);
    }
    ctx_.program.inputs.push_back(std::move(p));
    ++position;
  }
  addViews(model_.graph, laidAnew_);
}

static bool isDense(const Sizes &sizes, const Sizes &strides, const Lowering &ctx) {
  std::vector<int> order = orderOfStrides(sizes, strides, ctx.facts);
  Sizes dense = denseStrides(sizes, order);
  for (size_t d = 0; d < sizes.size(); ++d)
    if (!sizes[d].isConst(1) && !ctx.equal(dense[d], strides[d])) return false;
  return true;
}

/// Decides between inlining and a buffer for a value that a node has just defined.
Tensor ModelLowering::settle(const graph::Graph &g, ValueId id, const Tensor &x) {
  if (x.realized()) return x;
  Tensor folded = ctx_.fold(x);
  if (folded.key() != x.key()) return folded;
  bool isOutput = here().outputs.count(id.value) > 0;
  const graph::TensorType &type = g.value(id).type;
  if (isOutput && !x.isView() && isDense(type.sizes, type.strides, ctx_)) {
    x.realizeWith(type.strides);
    return x;
  }
  if (here().uses[id.value] > 1)
    x.reused();
  else if (worthRealizing(x.cost(), 1))
    x.realize();
  return x;
}

void ModelLowering::lowerNode(const graph::Graph &g, const graph::Node &node, Values &values) {
  Working at("node", node.name, &node.loc);
  std::vector<ValueId> outs = flatOutputs(node);
  if (isAssertion(node)) return lowerAssertion(g, node);
  if (isSymbolic(g, node) && !node.launch && !isItem(node) && !definesSizes(g, node)) return;
  if (isCall(node.target)) {
    if (!lowerCall(g, node, values))
      for (ValueId id : outs)
        if (id.valid()) values[id.value] = standIn(g.value(id));
    return;
  }
  if (here().attention.covered.count(&node)) return;
  ctx_.current = &node;
  if (auto it = here().attention.byResult.find(&node); it != here().attention.byResult.end()) {
    Tensor x =
        matchedAttention(it->second, [&](ValueId id) { return values.at(id.value); }, g.value(outs[0]).type.sizes);
    values[outs[0].value] = settle(g, outs[0], x);
    ctx_.current = nullptr;
    return;
  }
  if (node.launch)
    lowerLaunch(g, node, values);
  else if (const OpRow *row = OpTable::instance().find(node.target))
    lowerOperator(g, node, *row, values);
  else if (isExtern(node))
    lowerOperatorOfCaller(g, node, values);
  else // size arithmetic that the graph could not follow: checkSizes reports it
    return;
  ctx_.current = nullptr;
}

/// A tensor of the right type, with which the rest of the model is checked after a refusal.
Tensor ModelLowering::standIn(const graph::Value &v) {
  return full(ctx_, v.kind == graph::Value::Kind::Tensor ? v.type.sizes : Sizes{}, v.type.dtype, 0);
}

/// A kernel of the user's.
void ModelLowering::lowerLaunch(const graph::Graph &g, const graph::Node &node, Values &values) {
  std::vector<ValueId> outs = flatOutputs(node);
  std::string refusal;
  Tensors results = userKernels_.lower(ctx_, g, node, values, refusal);
  if (!refusal.empty()) report(makeDiag(diag::OpRefused, node.loc, "kernel " + node.launch->function, refusal));
  for (size_t k = 0; k < outs.size(); ++k)
    if (outs[k].valid()) values[outs[k].value] = k < results.size() ? results[k] : standIn(g.value(outs[k]));
}

/// An operator that whoever runs the package brings.
void ModelLowering::lowerOperatorOfCaller(const graph::Graph &g, const graph::Node &node, Values &values) {
  if (lowerExtern(g, node, values)) return;
  for (ValueId id : flatOutputs(node))
    if (id.valid()) values[id.value] = standIn(g.value(id));
}

void ModelLowering::lowerOperator(const graph::Graph &g, const graph::Node &node, const OpRow &row, Values &values) {
  std::vector<ValueId> outs = flatOutputs(node);
  OpCall call(ctx_, g, node, values, &userKernels_.memory());
  Tensors results = call.lower(row);
  if (call.failed()) {
    refuse(node, call.reason());
    results.clear();
  }
  for (Expr condition : call.assumed()) assume(node, condition);
  for (Assertion &d : ctx_.takeDemands()) {
    if (d.condition.isConst()) refuse(node, d.message);
    else ctx_.require(logicalOr(logicalNot(path_), d.condition), std::move(d.message));
  }
  for (size_t k = 0; k < outs.size(); ++k) {
    if (!outs[k].valid()) continue;
    const graph::Value &v = g.value(outs[k]);
    if (v.kind == graph::Value::Kind::None) continue;
    if (k < results.size() && results[k].valid())
      values[outs[k].value] = resultOf(g, node, k, outs[k], results[k]);
    else if (call.failed())
      values[outs[k].value] = standIn(v);
    else if (call.isNone(k) && onlyReturned(g, outs[k]))
      continue; // addOutputs says None of what has no elements
    else if (v.kind == graph::Value::Kind::Tensor && here().uses[outs[k].value] > 0) {
      refuse(node, fmt::format("its result {} ('{}') is not computed here", k, v.name));
      values[outs[k].value] = standIn(v);
    }
  }
  // What turned out only where its elements were asked for.
  if (const std::string why = ctx_.takeRefusal(); !why.empty() && !call.failed()) refuse(node, why);
}

/// Whether the model gives the value to its caller and computes nothing of it.
bool ModelLowering::onlyReturned(const graph::Graph &g, ValueId id) {
  if (&g != &model_.graph) return false;
  const auto uses = here().uses.find(id.value);
  const auto returned = std::count_if(g.outputs.begin(), g.outputs.end(), [&](const graph::Argument &a) { const ValueId *out = std::get_if<ValueId>(&a); return out && *out == id; });
  return uses != here().uses.end() && static_cast<int64_t>(uses->second) == returned;
}

/// Result k of an operator as the rest of the model reads it, once it is what the model says.
Tensor ModelLowering::resultOf(const graph::Graph &g, const graph::Node &node, size_t k, ValueId id, const Tensor &result) {
  const graph::Value &v = g.value(id);
  if (v.kind != graph::Value::Kind::Tensor) {
    Tensor blank = userKernels_.blankOf(ctx_, g, id);
    return blank.valid() ? blank : result;
  }
  // What was made of a number is a tensor now, and promotes as one.
  const Tensor x = result.asTensor();
  if (std::string fault = checkType(node, k, v, x); !fault.empty()) {
    // torch 2.11 says wrong shapes of the states of an LSTM in two directions; where nobody reads them, nothing follows from it.
    if (here().uses[id.value] > 0) report(makeDiag(diag::GraphContradictsItself, node.loc, fault));
    return standIn(v);
  }
  if (Tensor blank = userKernels_.blankOf(ctx_, g, id); blank.valid()) return blank;
  return settle(g, id, x);
}

/// In which way result k has another type than the model says; empty: in none. Sizes that may differ are assumed equal.
std::string ModelLowering::checkType(const graph::Node &node, size_t k, const graph::Value &v, const Tensor &x) {
  if (x.dtype() != v.type.dtype)
    return fmt::format("{} gives {} for result {} ('{}'), the model says {}", node.target, name(x.dtype()), k, v.name,
                       name(v.type.dtype));
  if (x.rank() != v.type.rank())
    return fmt::format("{} gives rank {} for result {} ('{}'), the model says {}", node.target, x.rank(), k, v.name,
                       v.type.rank());
  for (size_t d = 0; d < v.type.sizes.size(); ++d) {
    Expr a = x.sizes()[d], e = v.type.sizes[d];
    if (a.isConst() && e.isConst() ? a != e : (ctx_.facts.provablyLess(a, e) || ctx_.facts.provablyLess(e, a)))
      return fmt::format("{} gives size {} for dimension {} of result {} ('{}'), the model says {}", node.target,
                         a.str(), d, k, v.name, e.str());
    if (!ctx_.equal(a, e)) assume(node, eq(a, e));
  }
  return {};
}

void ModelLowering::assume(const graph::Node &node, Expr condition) {
  if (condition.isConst() || !ctx_.isKnown(condition)) return;
  addAssertion(ctx_.program.assertions,
               {logicalOr(logicalNot(path_), condition),
                fmt::format("{}{} was exported for sizes with {}{}", node.target, ctx_.where(), condition.str(), valuesOf(condition))});
}

bool ModelLowering::definesSizes(const graph::Graph &g, const graph::Node &node) const {
  const std::vector<ValueId> outs = flatOutputs(node);
  return std::any_of(outs.begin(), outs.end(), [&](ValueId id) { return id.valid() && isNew(g.value(id)); });
}

/// With a target (what a write-back changes), a tensor that lies there already stays where it is.
loops::ProgramOutput ModelLowering::tensorOutput(const Tensor &x, const graph::TensorType &type,
                                                 const Strided *target) {
  loops::ProgramOutput out;
  out.dtype = type.dtype;
  out.sizes = type.sizes;
  out.strides = type.strides;
  if (target) out.writeBackTo = target->buffer, out.writeBackStrides = target->strides, out.writeBackOffset = target->offset;
  bool sparse = false;
  for (size_t d = 0; d < type.sizes.size(); ++d) sparse |= type.sizes[d].isConst(0);
  if (std::optional<Strided> s = x.asStrided(); s && !sparse) {
    if (target && s->buffer == target->buffer) {
      bool same = s->dtype == target->dtype && ctx_.equal(s->offset, target->offset) &&
                  sameStrides(ctx_, type.sizes, s->strides, target->strides);
      if (same) {
        out.buffer = target->buffer, out.offset = s->offset, out.strides = s->strides;
        return out;
      }
    }
    bool same = s->dtype == type.dtype && ctx_.program.buffer(s->buffer).kind == loops::Buffer::Kind::Temp &&
                !returned_.count(s->buffer.value);
    for (size_t d = 0; same && d < type.sizes.size(); ++d)
      same = type.sizes[d].isConst(1) || ctx_.equal(s->strides[d], type.strides[d]);
    if (same) {
      out.buffer = s->buffer;
      out.offset = s->offset;
      returned_.insert(out.buffer.value);
      return out;
    }
  }
  Expr extent = extentOf(type.sizes, type.strides, ctx_.facts);
  bool complex = isComplex(type.dtype);
  Strided w{ctx_.addTemp(toReal(type.dtype), complex ? extent * 2 : extent), type.dtype, type.strides, 0};
  Tensor made = Tensor::strided(ctx_, type.dtype, type.sizes, w);
  if (complex) {
    ctx_.storeParts(x, made);
  } else {
    ctx_.store(x, w);
  }
  out.buffer = w.buffer;
  returned_.insert(out.buffer.value);
  return out;
}

void ModelLowering::addOutputs() {
  for (const graph::Output &o : model_.outputs) {
    using Kind = loops::ProgramOutput::Kind;
    if (o.kind == graph::Output::Kind::Token) continue;
    loops::ProgramOutput p;
    p.kind = Kind::None;
    std::string mutationTarget;
    const Strided *target = nullptr;
    if (o.kind == graph::Output::Kind::BufferMutation || o.kind == graph::Output::Kind::ParameterMutation) {
      mutationTarget = "buffer." + o.target;
      auto weight = weightByName_.find(o.target);
      if (weight != weightByName_.end()) target = &weight->second;
    } else if (o.kind == graph::Output::Kind::InputMutation) {
      for (size_t k = 0; k < ctx_.program.inputs.size(); ++k)
        if (ctx_.program.inputs[k].name == o.target)
          mutationTarget = "input." + std::to_string(k), target = inputTensors_[k] ? &*inputTensors_[k] : nullptr;
    }
    if (const ValueId *id = std::get_if<ValueId>(&o.value); id && id->valid()) {
      const graph::Value &v = model_.graph.value(*id);
      auto it = values_.find(id->value);
      if (v.kind == graph::Value::Kind::Tensor && it != values_.end()) {
        graph::TensorType type = v.type;
        if (laidAnew_.contains(id->value)) type.strides = denseStrides(type.sizes);
        p = tensorOutput(it->second, type, target);
      } else if (v.kind == graph::Value::Kind::SymFloat && it != values_.end()) {
        graph::TensorType type;
        type.dtype = DType::F64;
        p = tensorOutput(cast(it->second, DType::F64), type);
        p.kind = Kind::Float;
      } else if (v.kind == graph::Value::Kind::SymInt || v.kind == graph::Value::Kind::SymBool) {
        p.kind = v.kind == graph::Value::Kind::SymInt ? Kind::Int : Kind::Bool;
        p.scalar = v.expr;
      }
    } else if (const int64_t *i = std::get_if<int64_t>(&o.value)) {
      p.kind = Kind::Int;
      p.scalar = *i;
    } else if (const bool *b = std::get_if<bool>(&o.value)) {
      p.kind = Kind::Bool;
      p.scalar = *b ? 1 : 0;
    } else if (const double *d = std::get_if<double>(&o.value)) {
      p.kind = Kind::Float;
      p.floatValue = *d;
    } else if (const std::string *t = std::get_if<std::string>(&o.value)) {
      p.kind = Kind::Text;
      p.text = *t;
    }
    p.mutationTarget = std::move(mutationTarget);
    if (p.writeBackTo.valid()) ctx_.program.buffer(p.writeBackTo).mutated = true;
    ctx_.program.outputs.push_back(std::move(p));
  }
}

/// Sizes that the inputs give; all others must be defined by the lowering of the node that makes them.
void ModelLowering::learnInputs() {
  for (ValueId id : model_.graph.inputs) {
    if (!id.valid()) continue;
    const graph::Value &v = model_.graph.value(id);
    for (Expr e : v.type.sizes) ctx_.learn(e);
    for (Expr e : v.type.strides) ctx_.learn(e);
    ctx_.learn(v.expr);
  }
}

/// Computes the numbers that are rounded from doubles, as soon as what they are made of is known.
void ModelLowering::roundSizes() {
  for (const RoundedSize &r : model_.rounded.all()) {
    const std::vector<Symbol> of = symbolsOf(r.of);
    if (!ctx_.isKnown(Expr(r.symbol)) && std::all_of(of.begin(), of.end(), [&](Symbol s) { return ctx_.isKnown(Expr(s)); })) defineRounded(ctx_, r);
  }
}

/// What the graph says of the value over symbols that nothing before it defines.
bool ModelLowering::isNew(const graph::Value &v) const {
  bool known = ctx_.isKnown(v.expr);
  for (Expr e : v.type.sizes) known &= ctx_.isKnown(e);
  return !known;
}

/// A node whose lowering leaves a size of its results without value cannot be compiled.
void ModelLowering::checkSizes(const graph::Graph &g, const graph::Node &node) {
  for (ValueId id : flatOutputs(node)) {
    if (!id.valid() || !isNew(g.value(id))) continue;
    const graph::Value &v = g.value(id);
    refuse(node, "the size or value of '" + v.name + "' depends on the data");
    ctx_.learn(v.expr);
    for (Expr e : v.type.sizes) ctx_.learn(e);
  }
}

/// What the model asserts of numbers that nobody computes is not asked.
void ModelLowering::dropUnknownAssertions() {
  std::erase_if(ctx_.program.assertions, [&](const Assertion &a) { return !ctx_.isRead(a.condition); });
}

/// The next run draws from where this one stopped: the state is written back as a buffer that the model mutates.
void ModelLowering::advanceRandom() {
  Tensor rng = ctx_.rng(), ofRegions = ctx_.countersOfRegions();
  Expr taken = ctx_.countersTaken();
  Tensor next = Tensor::lazy(ctx_, DType::I64, {Expr(2)}, [=](BodyBuilder &b, const Index &i) {
    const Val all = ofRegions.valid() ? b.index(taken) + ofRegions.at(b, {}) : b.index(taken);
    return rng.at(b, i) + where(b.compare(OpKind::Eq, i[0], 1), all, b.constantInt(DType::I64, 0));
  });
  graph::TensorType type;
  type.dtype = DType::I64;
  type.sizes = {Expr(2)};
  type.strides = {Expr(1)};
  const Strided target = *rng.asStrided();
  loops::ProgramOutput p = tensorOutput(next, type, &target);
  p.mutationTarget = "buffer.neso.rng";
  ctx_.program.buffer(p.writeBackTo).mutated = true;
  ctx_.program.outputs.insert(ctx_.program.outputs.begin(), std::move(p));
}

void ModelLowering::findUnsupported(const graph::Graph &g) {
  for (const graph::Node &node : g.nodes) {
    for (const graph::Argument &a : node.args)
      if (const std::shared_ptr<graph::Graph> *sub = std::get_if<std::shared_ptr<graph::Graph>>(&a);
          sub && isCall(node.target))
        findUnsupported(**sub);
    // Said once: a call of vmap leaves many.
    if (isOfVmap(node.target)) {
      if (std::none_of(errors_.begin(), errors_.end(), [](const Diagnostic &d) { return d.kind == diag::OpOfVmap; }))
        report(makeDiag(diag::OpOfVmap, node.loc, node.target));
      continue;
    }
    if (!isSymbolic(g, node) && !isCall(node.target) && !node.launch && !isSupported(node.target) && !isExtern(node))
      report(makeDiag(diag::OpUnsupported, node.loc, node.target));
  }
}

Result<loops::Program> ModelLowering::run() {
  learnInputs();
  findUnsupported(model_.graph);
  if (!errors_.empty()) return Error(std::move(errors_));
  ctx_.program.name = model_.name;
  ctx_.program.facts = model_.facts;
  ctx_.program.guards = model_.guards;
  ctx_.program.assertions = model_.assertions;
  ctx_.program.inSpec = model_.inSpec;
  ctx_.program.outSpec = model_.outSpec;
  addInputs();
  lowerWhole(model_.graph, values_);
  dropUnknownAssertions();
  if (errors_.empty()) addOutputs();
  if (errors_.empty() && (!ctx_.countersTaken().isConst(0) || ctx_.countersOfRegions().valid())) advanceRandom();
  if (!errors_.empty()) return Error(std::move(errors_));
  return std::move(ctx_.program);
}

Result<loops::Program> lowerGraph(const graph::Model &model, DiagnosticSink &sink, const LowerOptions &options) {
  Working stage("graph to loops");
  ModelLowering lowering(model, options, sink);
  return lowering.run();
}

bool isSupported(std::string_view target) { return OpTable::instance().find(target) != nullptr; }

std::vector<std::string> supportedTargets() { return OpTable::instance().targets(); }

} // namespace neso::lower
