#include "ir/graph/passes/functionalize.h"

#include "ir/graph/passes/functionalizer.h"
#include "ir/graph/passes/shared_storage.h"
#include "ir/graph/passes/write_backs.h"

namespace neso::graph {
namespace functional {

Status Functionalizer::node(Node &n) {
  Working at("node", n.name, &n.loc);
  const NewValue make = [this](std::string_view base, TensorType type) { return newValue(base, std::move(type)); };
  if (std::vector<Node> views = viewsOfEach(g_, make, n); !views.empty()) {
    for (Node &view : views)
      if (Status s = node(view); !s) return s;
    return Status::ok();
  }
  for (Argument &a : n.args)
    if (auto *sub = std::get_if<std::shared_ptr<Graph>>(&a)) {
      // Sub-graphs may be shared between copies of a node.
      *sub = std::make_shared<Graph>(**sub);
      Functionalizer inside(**sub, callers_, true, atTop_ && isInlined(n.target));
      if (Status s = inside.run(); !s) return s;
      mayShare(n, inside.sharing());
    }
  if (n.target == "higher_order.with_effects") nameOperands(n);
  if (n.target == "neso.launch_") return launch(n);
  if (isOfCaller(n.target)) {
    if (Status s = ofCaller(n); !s) return s;
    if (auto known = callers_.schemas.find(n.target); known != callers_.schemas.end() && known->second.mutates()) return changeByCaller(n, known->second);
  }
  const OpSchema *op = findOp(n.target);
  if (op && op->mutates()) return mutate(n, *op);
  const bool *training = op && (op->name == "aten.batch_norm" || n.target == "aten.native_batch_norm.default")
                             ? std::get_if<bool>(n.arg("training"))
                             : nullptr;
  if (training && *training && std::holds_alternative<ValueId>(*n.arg("running_mean"))) return trainBatchNorm(n);
  const Argument *stats = op && op->name == "aten.instance_norm" ? n.arg("use_input_stats") : nullptr;
  if (stats && std::holds_alternative<bool>(*stats) && std::get<bool>(*stats) &&
      std::holds_alternative<ValueId>(*n.arg("running_mean")))
    return trainInstanceNorm(n);
  // Which memories the results share is asked of the arguments as written, before they are replaced by their current
  // values.
  std::vector<Argument> written = n.args;
  if (op && (op->name == "aten.as_strided" || op->name == "aten.as_strided_copy"))
    if (const ValueId *self = std::get_if<ValueId>(&n.args[0])) layAsFirst(view(*self).memory, n.name);
  for (Argument &a : n.args) read(a);
  if (op) {
    std::vector<std::tuple<size_t, size_t, Aliasing>> shared; // results, by entry and index
    std::swap(n.args, written);
    for (size_t e = 0; e < n.outputs.size(); ++e)
      for (size_t i = 0; i < n.outputs[e].size(); ++i)
        if (n.outputs[e][i].valid()) shared.emplace_back(e, i, aliasing(g_, n, *op, n.outputs[e][i]));
    std::swap(n.args, written);
    for (const auto &[e, i, al] : shared) {
      if (al.argument < 0) continue;
      const ValueId source = std::get<ValueId>(written[static_cast<size_t>(al.argument)]), out = n.outputs[e][i];
      if ((op->name == "aten.resolve_conj" && signsPending(view(source), false)) || (op->name == "aten.resolve_neg" && signsPending(view(source), true))) continue;
      View v = view(source);
      if (!al.identity) v.chain.push_back({n, al.argument, e, i, g_.value(source).type, g_.value(out).type});
      v.value = out;
      v.version = memories_[v.memory].version;
      views_[out] = std::move(v);
    }
  }
  // The edges that histogramdd was given are also its results.
  if (n.target == "aten.histogramdd.TensorList_bins" && n.outputs.size() == 2)
    if (const auto *bins = std::get_if<std::vector<ValueId>>(&written[1]); bins && bins->size() == n.outputs[1].size())
      for (size_t i = 0; i < bins->size(); ++i) views_[n.outputs[1][i]] = view((*bins)[i]);
  g_.nodes.push_back(std::move(n));
  return Status::ok();
}

/// In-place changes of shape: the name stands for another view from now on; no element changes.
Status Functionalizer::changeView(Node &n, const OpSchema &op, std::string_view viewOp) {
  ValueId self = std::get<ValueId>(n.args[0]), out = n.outputs[0][0];
  Node step = n;
  step.target.clear();
  for (const OpSchema *f : overloadsOf(viewOp))
    if (f->args.size() == op.args.size() &&
        std::equal(f->args.begin(), f->args.end(), op.args.begin(), [](const ArgSchema &a, const ArgSchema &b) {
          return a.name == b.name && a.type == b.type && a.list == b.list;
        }))
      step.target = f->target;
  if (step.target.empty()) return unsupported(n, "torch has no functional form of it");
  applied(Rule::ViewInPlace);
  if (viewOp == "aten.as_strided") layAsFirst(view(self).memory, n.name);
  step.args[0] = current(self);
  View v = view(self);
  // detach_ changes nothing.
  if (!aliasing(g_, step, *findOp(step.target)).identity)
    v.chain.push_back({step, 0, 0, 0, g_.value(self).type, g_.value(out).type});
  v.value = out;
  v.version = memories_[v.memory].version;
  nameAgain(out, self);
  views_[object(self)] = v;
  for (const auto &[name, first] : objects_)
    if (first == object(self)) views_[name] = v;
  append(std::move(step));
  return Status::ok();
}

/// The tensors that a call writes to, in the order of its schema.
Result<std::vector<ValueId>> Functionalizer::writtenBy(const Node &n, const std::vector<size_t> &mutated) {
  std::vector<ValueId> targets;
  for (size_t i : mutated) {
    if (const ValueId *id = std::get_if<ValueId>(&n.args[i]))
      targets.push_back(*id);
    else if (const auto *list = std::get_if<std::vector<ValueId>>(&n.args[i]))
      targets.insert(targets.end(), list->begin(), list->end());
    else if (!std::holds_alternative<None>(n.args[i]))
      return unsupported(n, "what it writes to is no tensor");
  }
  for (ValueId t : targets)
    if (!t.valid() || g_.value(t).kind != Value::Kind::Tensor) return unsupported(n, "what it writes to is no tensor");
  return targets;
}

/// Appends the functional form of a call whose arguments have been read; `written` are those as they were, `only` the
/// call's one result where it has just that. Gives the new contents of the written tensors.
Result<std::vector<ValueId>> Functionalizer::callFunctional(const Node &n, const OpSchema &op, const std::vector<size_t> &mutated,
                                                            const std::vector<Argument> &written, ValueId only) {
  std::optional<FunctionalForm> form = functionalForm(op);
  if (!form) return unsupported(n, "torch has no functional form of it");
  Node f;
  f.name = n.name;
  f.target = form->op->target;
  f.loc = n.loc;
  f.module = n.module;
  for (size_t i : form->arguments) {
    f.args.push_back(n.args[i]);
    f.argNames.push_back(f.args.size() == 1 && i == 0 ? form->op->args[0].name : op.args[i].name);
  }
  // Results of the functional form: first those of the original that are no written argument, then what the original keeps to itself, then the
  // written arguments.
  size_t own = 0;
  for (size_t r = 0; r < op.returns.size(); ++r)
    if (!op.returns[r].mutated) ++own;
  for (size_t r = 0; r < own; ++r) f.outputs.push_back(r < n.outputs.size() ? n.outputs[r] : std::vector<ValueId>{});
  while (f.outputs.size() + mutated.size() < form->op->returns.size()) f.outputs.push_back({ValueId()});
  std::vector<ValueId> results;
  auto newContent = [&](ValueId target) {
    TensorType t = fresh(g_.value(target).type);
    if (op.pointwise || form->op->pointwise)
      if (std::optional<DType> d = pointwiseResult(g_, op, written)) t.dtype = *d;
    // Whoever looks at the call's result asks its type where the written tensor lies, so that of another place is not put there. A file may say nothing of it.
    Value *result = only.valid() ? &g_.value(only) : nullptr;
    const bool stated = result && result->kind == Value::Kind::Tensor;
    const bool takes = stated ? t.dtype == result->type.dtype && t.offset == result->type.offset && sameStrides(t.sizes, t.strides, result->type.strides) : result != nullptr;
    if (takes) result->kind = Value::Kind::Tensor, result->type = t;
    results.push_back(takes ? only : newValue(g_.value(target).name + "_new", t));
    return results.back();
  };
  for (size_t i : mutated) {
    std::vector<ValueId> entry;
    if (const ValueId *id = std::get_if<ValueId>(&written[i]))
      entry.push_back(newContent(*id));
    else if (const auto *list = std::get_if<std::vector<ValueId>>(&written[i]))
      for (ValueId id : *list) entry.push_back(newContent(id));
    f.outputs.push_back(std::move(entry));
  }
  if (f.outputs.size() != form->op->returns.size())
    return unsupported(n, "its functional form returns another number of results");
  append(std::move(f));
  return results;
}

/// fill_diagonal_ has no functional form in torch: of a matrix it is a diagonal of the number, put into the old contents. Of more dims, which are all as long,
/// and of a tall matrix whose diagonal goes on below the square part (wrap), it is each so many-th element.
Result<ValueId> Functionalizer::fillDiagonal(const Node &n, const TensorType &type) {
  const bool *wrap = std::get_if<bool>(n.arg("wrap"));
  TensorType part, flat;
  part.dtype = flat.dtype = type.dtype, part.strides = flat.strides = {1};
  auto numbers = [&](Expr count) {
    part.sizes = {count};
    return emit("aten.full.default", {sizeList(g_, part.sizes), *n.arg("fill_value"), type.dtype}, part, n, n.name + "_diagonal");
  };
  if (type.rank() < 2 || !wrap) return unsupported(n, "it fills the diagonal of a tensor that has none");
  const Expr rows = type.sizes[0], columns = type.sizes[1];
  if (type.rank() == 2 && (!*wrap || le(rows, columns + 1).isConst(1)))
    return emit("aten.diagonal_scatter.default", {n.args[0], numbers(min(rows, columns)), int64_t(0), int64_t(0), int64_t(1)}, fresh(type), n, n.name + "_filled");
  // ATen counts in memory.
  if (type.rank() == 2 && (type.strides[0] != columns || !type.strides[1].isConst(1))) return unsupported(n, "it goes on below the square part of a matrix that is not contiguous (wrap)");
  Expr step = columns + 1, all = rows * columns;
  if (type.rank() > 2) {
    step = all = 1;
    for (int64_t d = 0; d < type.rank(); ++d) step = d == 0 ? Expr(1) : step + all, all = all * rows;
    for (Expr size : type.sizes)
      if (size != rows) return unsupported(n, "it fills the diagonal of a tensor whose dimensions are not all as long");
  }
  flat.sizes = {all};
  const ValueId row = emit("aten.reshape.default", {n.args[0], sizeList(g_, flat.sizes)}, flat, n, n.name + "_flat");
  const ValueId filled = emit("aten.slice_scatter.default", {row, numbers(ceilDiv(all, step)), int64_t(0), int64_t(0), sizeArgument(g_, all), sizeArgument(g_, step)}, flat, n, n.name + "_stepped");
  return emit("aten.reshape.default", {filled, sizeList(g_, type.sizes)}, fresh(type), n, n.name + "_filled");
}

Status Functionalizer::mutate(Node &n, const OpSchema &op) {
  if (std::optional<Status> resized = resize(n, op)) return std::move(*resized);
  if (setsToTensor(op)) return setTo(n);
  if (std::optional<std::string> viewOp = inPlaceViewOp(op.name)) return changeView(n, op, *viewOp);
  // Dropout outside training writes nothing.
  if (isInPlaceDropout(op.name) && std::holds_alternative<bool>(*n.arg("train")) && !std::get<bool>(*n.arg("train"))) {
    views_[n.outputs[0][0]] = view(std::get<ValueId>(n.args[0]));
    return Status::ok();
  }
  std::vector<size_t> mutated;
  for (size_t i = 0; i < op.args.size(); ++i)
    if (op.args[i].mutated) mutated.push_back(i);
  Result<std::vector<ValueId>> targets = writtenBy(n, mutated);
  if (!targets) return targets.takeError();
  const std::vector<ValueId> given = *targets;
  if (Status s = resizeOut(n, op, *targets); !s) return s;

  const std::vector<Argument> written = n.args;
  for (Argument &a : n.args) read(a);
  applied(Rule::Functionalise);
  std::vector<ValueId> results; // new contents, parallel to targets
  ValueId taken; // the value that the call's only result names by itself
  if (op.name == "aten.copy_") {
    const ValueId *src = std::get_if<ValueId>(&n.args[1]);
    if (!src) return unsupported(n, "its source is no tensor");
    results = {fit(*src, g_.value((*targets)[0]).type, n)};
  } else if (op.name == kFillDiagonal) {
    Result<ValueId> filled = fillDiagonal(n, g_.value((*targets)[0]).type);
    if (!filled) return filled.takeError();
    results = {*filled};
  } else {
    const bool single = targets->size() == 1 && n.outputs.size() == 1 && n.outputs[0].size() == 1;
    Result<std::vector<ValueId>> made = callFunctional(n, op, mutated, written, single ? n.outputs[0][0] : ValueId());
    if (!made) return made.takeError();
    if (!made->empty()) taken = made->front();
    for (size_t i = 0; i < made->size(); ++i) results.push_back(fit((*made)[i], g_.value((*targets)[i]).type, n));
  }
  for (size_t i = 0; i < targets->size(); ++i)
    if (Status s = write((*targets)[i], results[i], n); !s) return s;
  for (size_t i = 0; i < targets->size(); ++i)
    if ((*targets)[i] != given[i]) nameOtherMemory(given[i], (*targets)[i]);
  // A result that is a written argument is another name of it.
  size_t at = 0;
  for (size_t r = 0; r < op.returns.size() && r < n.outputs.size(); ++r) {
    if (!op.returns[r].mutated) continue;
    for (ValueId id : n.outputs[r])
      if (id.valid() && at < targets->size()) {
        nameAgain(id, given[at]);
        // What the file says of it is what tracing made of out=: new strides, where the tensor keeps its own.
        const Value &is = g_.value((*targets)[at]);
        if (Value &said = g_.value(id); id != taken && said.kind == Value::Kind::Tensor && said.type.dtype == is.type.dtype && said.type.sizes == is.type.sizes) said.type = is.type;
        views_[id] = view((*targets)[at++]);
      }
  }
  return Status::ok();
}

} // namespace functional

/// The schemas that the file brings: one a line.
static Result<functional::Callers> callersOf(const Model &m) {
  functional::Callers c;
  c.functional = m.functional;
  const auto text = m.extraFiles.find("neso_operators");
  std::string_view rest = text == m.extraFiles.end() ? std::string_view() : std::string_view(text->second);
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.empty()) continue;
    std::optional<OpSchema> op = parseSchema(line);
    if (!op) return fail(diag::OpSchemaMalformed, {}, std::string(line));
    std::string target = op->target;
    c.schemas.emplace(std::move(target), std::move(*op));
  }
  return c;
}

/// The call of an in-place operator that does what the step does to a tensor, as JSON: ["transpose_", 0, 1]. nullopt: numbers of it are not the same in
/// every run.
static std::optional<std::string> callOf(const functional::Step &step) {
  const std::string_view target = step.node.target, name = target.substr(target.find('.') + 1);
  std::string out = fmt::format("[\"{}_\"", name.substr(0, name.find('.')));
  for (size_t i = 1; i < step.node.args.size(); ++i) {
    const Argument &a = step.node.args[i];
    if (const int64_t *number = std::get_if<int64_t>(&a)) {
      out += fmt::format(", {}", *number);
    } else if (const auto *list = std::get_if<std::vector<IntOrSym>>(&a)) {
      std::vector<int64_t> numbers;
      for (const IntOrSym &x : *list)
        if (const int64_t *known = std::get_if<int64_t>(&x)) numbers.push_back(*known);
      if (numbers.size() != list->size()) return std::nullopt;
      out += fmt::format(", [{}]", fmt::join(numbers, ", "));
    } else if (std::holds_alternative<None>(a)) {
      out += ", null";
    } else {
      return std::nullopt;
    }
  }
  return out + "]";
}

/// The calls that give the caller's tensor the shape in which the model leaves it.
static Result<std::string> callsOf(const std::vector<functional::Step> &steps, const std::string &input) {
  std::string out;
  for (const functional::Step &s : steps) {
    std::optional<std::string> call = callOf(s);
    if (!call) return fail(diag::MutationUnsupported, s.node.loc, s.node.target + " on '" + input + "'", "it gives the caller's tensor a shape that differs from run to run");
    out += (out.empty() ? "[" : ", ") + *call;
  }
  return out.empty() ? out : out + "]";
}

/// What a weight holds for the next run where its name stands behind in-place changes of shape: as many numbers, which it shows in another order.
static Result<ValueId> turnedWeight(const Model &m, functional::Functionalizer &f, const Input &in) {
  const functional::Step &last = f.reshaping(in.value).back();
  const Weight &w = m.weights[static_cast<size_t>(in.weight)];
  const bool shared = std::any_of(m.weights.begin(), m.weights.end(), [&](const Weight &other) { return &other != &w && other.storage == w.storage; });
  if (last.out.sizes != w.type.sizes || shared)
    return fail(diag::MutationUnsupported, last.node.loc, last.node.target + " on '" + w.fqn + "'", "the next run would find it with another shape");
  return f.finalView(in.value);
}

/// A write to one element of an example that holds it several times changes all of them, and of any other tensor that a run may be given one.
static Status writesToOnePlace(const Model &m) {
  for (const Output &o : m.outputs)
    for (const Input &in : m.inputs)
      if (o.kind == Output::Kind::InputMutation && in.kind == Input::Kind::User && in.name == o.target && functional::Functionalizer::isRepeated(m.graph.value(in.value).type))
        return fail(diag::MutationUnsupported, {}, "the model", fmt::format("its example of '{}' holds one place in memory as several elements (expand, unfold); export with an example that is contiguous()", in.name));
  return Status::ok();
}

Status functionalize(Model &m) {
  Working stage("functionalisation");
  if (Status s = copyWriteBacks(m); !s) return s;
  Result<functional::Callers> callers = callersOf(m);
  if (!callers) return callers.takeError();
  functional::Functionalizer f(m.graph, *callers, false, true);
  // Weights that are the same view of one storage are one memory. Other views of one storage stay apart; a write to one
  // of them would be lost to those that overlap it, so it is refused (writesAreSeen).
  for (size_t i = 0; i < m.inputs.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      const Input &a = m.inputs[j], &b = m.inputs[i];
      if (a.kind != Input::Kind::Weight || b.kind != Input::Kind::Weight) continue;
      const Weight &wa = m.weights[static_cast<size_t>(a.weight)], &wb = m.weights[static_cast<size_t>(b.weight)];
      if (sameView(wa, wb)) {
        f.shareMemory(a.value, b.value);
        break;
      }
    }
  if (Status s = f.run(); !s) return s;
  std::vector<Output> writes;
  for (Input &in : m.inputs) {
    if (!in.value.valid() || (in.kind != Input::Kind::User && in.kind != Input::Kind::Weight)) continue;
    ValueId v = f.finalValue(in.value);
    if (const std::vector<functional::Step> &steps = f.reshaping(in.value); !steps.empty() && m.graph.value(in.value).kind == Value::Kind::Tensor) {
      const TensorType &was = m.graph.value(in.value).type, &is = steps.back().out;
      const bool as = was.sizes == is.sizes && sameStrides(was.sizes, was.strides, is.strides) && was.offset == is.offset;
      if (in.kind == Input::Kind::User && !as) {
        Result<std::string> calls = callsOf(steps, in.name);
        if (!calls) return calls.takeError();
        in.reshaped = std::move(*calls);
      } else if (!as) {
        Result<ValueId> turned = turnedWeight(m, f, in);
        if (!turned) return turned.takeError();
        v = *turned;
      }
    }
    if (!v.valid()) continue;
    Output o;
    o.value = v;
    if (in.kind == Input::Kind::User) {
      o.kind = Output::Kind::InputMutation;
      o.target = in.name;
    } else {
      const Weight &w = m.weights[static_cast<size_t>(in.weight)];
      o.kind = w.kind == Weight::Kind::Parameter ? Output::Kind::ParameterMutation : Output::Kind::BufferMutation;
      o.target = w.fqn;
    }
    writes.push_back(std::move(o));
  }
  for (size_t i = 0; i < m.outputs.size(); ++i) m.outputs[i].value = m.graph.outputs[i];
  if (Status s = writesAreSeen(m, writes); !s) return s;
  m.outputs.insert(m.outputs.begin(), writes.begin(), writes.end());
  std::vector<Argument> values;
  for (const Output &o : m.outputs) values.push_back(o.value);
  m.graph.outputs = std::move(values);
  return writesToOnePlace(m);
}

} // namespace neso::graph
