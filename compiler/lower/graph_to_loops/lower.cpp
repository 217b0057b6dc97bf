#include "lower/graph_to_loops/lower.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "base/diagnostics/graph.h"
#include "base/fault.h"
#include "lower/graph_to_loops/attention.h"
#include "lower/graph_to_loops/cost.h"
#include "lower/graph_to_loops/op_call.h"
#include "lower/graph_to_loops/user_kernel.h"

namespace neso::lower {

using graph::ValueId;

namespace {

using Values = std::unordered_map<int32_t, Tensor>;

/// The state of lowering one model.
class ModelLowering {
public:
  ModelLowering(const graph::Model &model, const LowerOptions &options) : model_(model), userKernels_(model) {
    ctx_.facts = model.facts;
    ctx_.folds = !options.updatable;
  }
  Result<loops::Program> run();

private:
  void countUses(const graph::Graph &g);
  void addInputs();
  bool changes(const std::string &target, bool input) const;
  Tensor addWeight(const graph::Weight &w);
  void lowerNodes(const graph::Graph &g, Values &values);
  bool lowerCall(const graph::Graph &g, const graph::Node &node, Values &values);
  void findUnsupported(const graph::Graph &g);
  void lowerNode(const graph::Graph &g, const graph::Node &node, Values &values);
  Tensor settle(const graph::Graph &g, ValueId id, const Tensor &x);
  void addOutputs();
  void checkSizes();
  void advanceRandom();
  loops::ProgramOutput tensorOutput(const Tensor &x, const graph::TensorType &type, const Strided *target = nullptr);
  void report(Diagnostic d) { errors_.push_back(std::move(d)); }

  const graph::Model &model_;
  Lowering ctx_;
  UserKernels userKernels_;
  Values values_;
  std::map<std::pair<int, DType>, BufferId> weightBuffers_; // by storage and dtype
  std::map<std::string, Strided> weightByName_;       // where each lies
  std::vector<std::optional<Strided>> inputTensors_; // by input; nothing for what is no tensor
  std::unordered_map<int32_t, int> uses_;
  AttentionMatches attention_;
  std::set<int32_t> outputs_;
  std::set<int32_t> returned_; // buffers that an output already names
  std::vector<Diagnostic> errors_;
};

std::vector<ValueId> flatOutputs(const graph::Node &node) {
  std::vector<ValueId> ids;
  for (const std::vector<ValueId> &entry : node.outputs) ids.insert(ids.end(), entry.begin(), entry.end());
  return ids;
}

/// Size arithmetic is in the values' expressions already, and assertions have no outputs: neither needs a lowering.
bool isSymbolic(const graph::Graph &g, const graph::Node &node) {
  for (ValueId id : flatOutputs(node)) {
    if (!id.valid()) continue;
    const graph::Value &v = g.value(id);
    bool symbolic = v.kind == graph::Value::Kind::None ||
                    ((v.kind == graph::Value::Kind::SymInt || v.kind == graph::Value::Kind::SymBool) && v.expr.valid());
    if (!symbolic) return false;
  }
  return true;
}

/// Calls of sub-graphs, which are lowered in place.
bool isCall(std::string_view target) {
  return target == "higher_order.wrap_with_set_grad_enabled" || target == "higher_order.wrap_with_autocast" ||
         target == "higher_order.cond";
}

void ModelLowering::countUses(const graph::Graph &g) {
  for (const graph::Node &node : g.nodes)
    for (const graph::Argument &a : node.args) {
      if (const ValueId *id = std::get_if<ValueId>(&a)) ++uses_[id->value];
      if (const std::vector<ValueId> *ids = std::get_if<std::vector<ValueId>>(&a))
        for (ValueId id : *ids) ++uses_[id.value];
    }
  for (const graph::Output &o : model_.outputs)
    if (const ValueId *id = std::get_if<ValueId>(&o.value)) {
      ++uses_[id->value];
      if (o.kind != graph::Output::Kind::Token) outputs_.insert(id->value);
    }
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
  return Tensor::strided(ctx_, w.type.dtype, w.type.sizes, where);
}

void ModelLowering::addInputs() {
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
        p.strides = v.type.strides;
        loops::Buffer b;
        b.id = id = BufferId(static_cast<int64_t>(ctx_.program.buffers.size()));
        b.name = in.name;
        b.kind = loops::Buffer::Kind::Input;
        b.dtype = toReal(v.type.dtype);
        b.elements = extentOf(v.type.sizes, v.type.strides, ctx_.facts) * (isComplex(v.type.dtype) ? 2 : 1);
        b.index = position;
        b.mutated = changes(in.name, true);
        ctx_.program.buffers.push_back(std::move(b));
        where = Strided{id, v.type.dtype, v.type.strides, 0};
        values_[in.value.value] = Tensor::strided(ctx_, v.type.dtype, v.type.sizes, *where);
      } else if (v.kind == graph::Value::Kind::SymFloat) {
        p.kind = Kind::Float;
        loops::Buffer b;
        b.id = id = BufferId(static_cast<int64_t>(ctx_.program.buffers.size()));
        b.name = in.name;
        b.kind = loops::Buffer::Kind::ScalarInput;
        b.dtype = DType::F64;
        b.elements = 1;
        b.index = position;
        ctx_.program.buffers.push_back(std::move(b));
        values_[in.value.value] = Tensor::strided(ctx_, DType::F64, {}, {id, DType::F64, {}, 0});
      } else if (v.kind == graph::Value::Kind::None) {
        p.kind = Kind::None;
      }
      p.buffer = id;
      inputTensors_.push_back(where);
    }
    ctx_.program.inputs.push_back(std::move(p));
    ++position;
  }
}

bool isDense(const Sizes &sizes, const Sizes &strides, const Lowering &ctx) {
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
  bool isOutput = &g == &model_.graph && outputs_.count(id.value);
  const graph::TensorType &type = g.value(id).type;
  if (isOutput && !x.isView() && isDense(type.sizes, type.strides, ctx_)) {
    x.realizeWith(type.strides);
    return x;
  }
  // Values of a sub-graph are not counted: they are taken for reused.
  int uses = &g == &model_.graph ? uses_[id.value] : 2;
  if (uses > 1)
    x.reused();
  else if (worthRealizing(x.cost(), 1))
    x.realize();
  return x;
}

void ModelLowering::lowerNode(const graph::Graph &g, const graph::Node &node, Values &values) {
  Working at("node", node.name, &node.loc);
  std::vector<ValueId> outs = flatOutputs(node);
  if (isSymbolic(g, node) && !node.launch) return;
  if (isCall(node.target)) {
    if (!lowerCall(g, node, values))
      for (ValueId id : outs)
        if (id.valid()) values[id.value] = full(ctx_, g.value(id).type.sizes, g.value(id).type.dtype, 0);
    return;
  }
  if (attention_.covered.count(&node)) return;
  ctx_.current = &node;
  if (auto it = attention_.byResult.find(&node); it != attention_.byResult.end()) {
    Tensor x =
        matchedAttention(it->second, [&](ValueId id) { return values.at(id.value); }, g.value(outs[0]).type.sizes);
    values[outs[0].value] = settle(g, outs[0], x);
    ctx_.current = nullptr;
    return;
  }
  if (node.launch) {
    std::string refusal;
    Tensors results = userKernels_.lower(ctx_, g, node, values, refusal);
    if (!refusal.empty()) report(makeDiag(diag::OpRefused, node.loc, "kernel " + node.launch->function, refusal));
    for (size_t k = 0; k < outs.size(); ++k)
      if (outs[k].valid())
        values[outs[k].value] =
            k < results.size() ? results[k] : full(ctx_, g.value(outs[k]).type.sizes, g.value(outs[k]).type.dtype, 0);
    ctx_.current = nullptr;
    return;
  }
  OpCall call(ctx_, g, node, values);
  Tensors results = (*OpTable::instance().find(node.target))(call);
  if (call.failed()) {
    report(makeDiag(diag::OpRefused, node.loc, node.target, call.reason()));
    results.clear();
  }
  for (size_t k = 0; k < outs.size(); ++k) {
    if (!outs[k].valid()) continue;
    const graph::Value &v = g.value(outs[k]);
    if (v.kind == graph::Value::Kind::None) continue;
    if (k >= results.size() || !results[k].valid()) {
      // After a refusal a stand-in of the right type lets the rest of the model be checked.
      if (call.failed())
        values[outs[k].value] =
            full(ctx_, v.kind == graph::Value::Kind::Tensor ? v.type.sizes : Sizes{}, v.type.dtype, 0);
      continue;
    }
    // What was made of a number is a tensor now, and promotes as one.
    const Tensor x = v.kind == graph::Value::Kind::Tensor ? results[k].asTensor() : results[k];
    if (v.kind == graph::Value::Kind::Tensor) {
      std::string fault;
      if (x.dtype() != v.type.dtype)
        fault = fmt::format("{} gives {} for result {} ('{}'), the model says {}", node.target, name(x.dtype()), k,
                            v.name, name(v.type.dtype));
      else if (x.rank() != v.type.rank())
        fault = fmt::format("{} gives rank {} for result {} ('{}'), the model says {}", node.target, x.rank(), k,
                            v.name, v.type.rank());
      for (size_t d = 0; fault.empty() && d < v.type.sizes.size(); ++d) {
        Expr a = x.sizes()[d], e = v.type.sizes[d];
        if (a.isConst() && e.isConst() ? a != e : (ctx_.facts.provablyLess(a, e) || ctx_.facts.provablyLess(e, a)))
          fault = fmt::format("{} gives size {} for dimension {} of result {} ('{}'), the model says {}", node.target,
                              a.str(), d, k, v.name, e.str());
      }
      if (!fault.empty()) {
        report(makeDiag(diag::LoweringTypeMismatch, node.loc, fault));
        values[outs[k].value] = full(ctx_, v.type.sizes, v.type.dtype, 0);
        continue;
      }
    }
    if (Tensor blank = userKernels_.blankOf(ctx_, g, outs[k]); blank.valid()) {
      values[outs[k].value] = blank;
      continue;
    }
    values[outs[k].value] = x;
    if (v.kind == graph::Value::Kind::Tensor) values[outs[k].value] = settle(g, outs[k], x);
  }
  ctx_.current = nullptr;
}

void ModelLowering::lowerNodes(const graph::Graph &g, Values &values) {
  for (const graph::Node &node : g.nodes) lowerNode(g, node, values);
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
    ctx_.store(x.real(), *made.real().asStrided());
    ctx_.store(x.imag(), *made.imag().asStrided());
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
        p = tensorOutput(it->second, v.type, target);
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
    }
    p.mutationTarget = std::move(mutationTarget);
    if (p.writeBackTo.valid()) ctx_.program.buffer(p.writeBackTo).mutated = true;
    ctx_.program.outputs.push_back(std::move(p));
  }
}

/// Every size must follow from the inputs: one that only the data determines has no place in a loop nest.
void ModelLowering::checkSizes() {
  const graph::Graph &g = model_.graph;
  std::set<Symbol> known;
  auto learn = [&](Expr e) {
    if (e.valid())
      for (Symbol s : symbolsOf(e)) known.insert(s);
  };
  for (ValueId id : g.inputs) {
    if (!id.valid()) continue;
    const graph::Value &v = g.value(id);
    for (Expr e : v.type.sizes) learn(e);
    for (Expr e : v.type.strides) learn(e);
    learn(v.expr);
  }
  auto unknown = [&](Expr e) {
    if (e.valid())
      for (Symbol s : symbolsOf(e))
        if (!known.count(s)) return true;
    return false;
  };
  for (const graph::Node &node : g.nodes)
    for (ValueId id : flatOutputs(node)) {
      if (!id.valid()) continue;
      const graph::Value &v = g.value(id);
      bool bad = unknown(v.expr);
      for (Expr e : v.type.sizes) bad |= unknown(e);
      if (!bad) continue;
      report(makeDiag(diag::OpRefused, node.loc, node.target,
                      "the size or value of '" + v.name + "' depends on the data"));
      break;
    }
}

/// The next run draws from where this one stopped: the state is written back as a buffer that the model mutates.
void ModelLowering::advanceRandom() {
  Tensor rng = ctx_.rng();
  Expr taken = ctx_.countersTaken();
  Tensor next = Tensor::lazy(ctx_, DType::I64, {Expr(2)}, [rng, taken](BodyBuilder &b, const Index &i) {
    return rng.at(b, i) + where(b.compare(OpKind::Eq, i[0], 1), b.index(taken), b.constantInt(DType::I64, 0));
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
    if (!isSymbolic(g, node) && !isCall(node.target) && !node.launch && !isSupported(node.target))
      report(makeDiag(diag::OpUnsupported, node.loc, node.target));
  }
}

/// A sub-graph's nodes join the program. cond computes both branches and chooses: neither has effects, and the one that
/// is not taken reports no error.
bool ModelLowering::lowerCall(const graph::Graph &g, const graph::Node &node, Values &values) {
  std::vector<const graph::Graph *> bodies;
  std::vector<ValueId> operands;
  for (const graph::Argument &a : node.args) {
    if (const std::shared_ptr<graph::Graph> *sub = std::get_if<std::shared_ptr<graph::Graph>>(&a)) {
      bodies.push_back(sub->get());
      operands.clear();
    } else if (const ValueId *id = std::get_if<ValueId>(&a)) {
      operands.push_back(*id);
    } else if (const std::vector<ValueId> *ids = std::get_if<std::vector<ValueId>>(&a)) {
      operands.insert(operands.end(), ids->begin(), ids->end());
    } else if (const std::vector<graph::IntOrSym> *syms = std::get_if<std::vector<graph::IntOrSym>>(&a)) {
      for (const graph::IntOrSym &s : *syms)
        if (const ValueId *id = std::get_if<ValueId>(&s)) operands.push_back(*id);
    }
  }
  bool cond = node.target == "higher_order.cond";
  auto refuse = [&](const char *why) {
    report(makeDiag(diag::OpRefused, node.loc, node.target, std::string(why)));
    return false;
  };
  if (bodies.size() != (cond ? 2u : 1u)) return refuse("it does not have the expected sub-graphs");
  if (node.target == "higher_order.wrap_with_autocast" && node.args.size() > 2)
    if (const bool *on = std::get_if<bool>(&node.args[2]); !on || *on)
      return refuse(
          "it computes under autocast; export the model with run_decompositions(), which writes the casts out");
  Tensor choice;
  if (cond) {
    const ValueId *p = std::get_if<ValueId>(&node.args[0]);
    if (!p) return refuse("its condition is not a tensor");
    if (auto it = values.find(p->value); it != values.end())
      choice = reshape(cast(it->second, DType::Bool), {}).reused();
    else if (g.value(*p).expr.valid())
      choice = cast(scalarExpr(ctx_, g.value(*p).expr), DType::Bool);
    else
      return refuse("its condition has no value");
  }
  std::vector<Tensors> results;
  const std::shared_ptr<const BodyBuilder::Guard> outer = ctx_.guard;
  for (const graph::Graph *body : bodies) {
    Values inner;
    if (cond)
      // What the other branch would refuse, as an index out of range, is no error of this run.
      ctx_.guard = std::make_shared<const BodyBuilder::Guard>([choice, outer, first = results.empty()](BodyBuilder &b) {
        Val taken = first ? choice.at(b, {}) : !choice.at(b, {});
        return outer ? (*outer)(b) && taken : taken;
      });
    if (body->inputs.size() != operands.size()) return refuse("its sub-graph takes another number of operands");
    for (size_t k = 0; k < operands.size(); ++k)
      if (auto it = values.find(operands[k].value); it != values.end() && body->inputs[k].valid())
        inner[body->inputs[k].value] = it->second;
    userKernels_.enter(ctx_, *body);
    lowerNodes(*body, inner);
    userKernels_.leave();
    ctx_.guard = outer;
    Tensors outs;
    for (const graph::Argument &a : body->outputs) {
      const ValueId *id = std::get_if<ValueId>(&a);
      auto it = id ? inner.find(id->value) : inner.end();
      outs.push_back(it == inner.end() ? Tensor() : it->second);
    }
    results.push_back(std::move(outs));
  }
  std::vector<ValueId> outs = flatOutputs(node);
  for (size_t k = 0; k < outs.size(); ++k) {
    if (!outs[k].valid() || g.value(outs[k]).kind != graph::Value::Kind::Tensor) continue;
    for (const Tensors &r : results)
      if (k >= r.size() || !r[k].valid()) return refuse("a result of its sub-graph is not a tensor");
    Tensor x = cond ? where(choice, results[0][k], results[1][k]) : results[0][k];
    values[outs[k].value] = settle(g, outs[k], x);
  }
  return true;
}

Result<loops::Program> ModelLowering::run() {
  findUnsupported(model_.graph);
  checkSizes();
  if (!errors_.empty()) return Error(std::move(errors_));
  ctx_.program.name = model_.name;
  ctx_.program.facts = model_.facts;
  ctx_.program.guards = model_.guards;
  ctx_.program.inSpec = model_.inSpec;
  ctx_.program.outSpec = model_.outSpec;
  countUses(model_.graph);
  attention_ = findAttention(model_.graph, uses_);
  addInputs();
  lowerNodes(model_.graph, values_);
  if (errors_.empty()) addOutputs();
  if (errors_.empty() && !ctx_.countersTaken().isConst(0)) advanceRandom();
  if (!errors_.empty()) return Error(std::move(errors_));
  return std::move(ctx_.program);
}

} // namespace

Result<loops::Program> lowerGraph(const graph::Model &model, DiagnosticSink &, const LowerOptions &options) {
  Working stage("graph to loops");
  ModelLowering lowering(model, options);
  return lowering.run();
}

bool isSupported(std::string_view target) { return OpTable::instance().find(target) != nullptr; }

} // namespace neso::lower
