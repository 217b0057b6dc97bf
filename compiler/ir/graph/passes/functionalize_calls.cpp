// Writes that have no functional form in PyTorch, or none that says enough: statistics of norms, tensors that change their size, users' kernels, operators
// that are not PyTorch's.
#include "ir/graph/passes/functionalizer.h"
#include "ir/graph/passes/name_objects.h"

namespace neso::graph::functional {

Status Functionalizer::trainBatchNorm(Node &n) {
  ValueId mean = std::get<ValueId>(*n.arg("running_mean"));
  const ValueId *var = std::get_if<ValueId>(n.arg("running_var"));
  if (!var) return fail(diag::MutationUnsupported, n.loc, n.target, "running_mean is given without running_var");
  ValueId variance = *var;
  Argument momentum = *n.arg("momentum"), eps = *n.arg("eps");
  for (Argument &a : n.args) read(a);
  TensorType stats = fresh(g_.value(mean).type);
  Node f;
  f.name = n.name;
  f.target = "aten._native_batch_norm_legit_functional.default";
  f.loc = n.loc;
  f.module = n.module;
  f.args = {n.args[0], n.args[1], n.args[2], n.args[3], n.args[4], true, momentum, eps};
  ValueId newMean = newValue(n.name + "_running_mean", stats), newVar = newValue(n.name + "_running_var", stats);
  // native_batch_norm gives the batch statistics to its caller.
  bool native = n.outputs.size() == 3;
  f.outputs = {n.outputs[0], {newMean}, {newVar}};
  for (size_t k : {size_t{1}, size_t{2}}) {
    std::vector<ValueId> kept =
        native ? n.outputs[k] : std::vector<ValueId>{newValue(n.name + (k == 1 ? "_save_mean" : "_save_rstd"), stats)};
    f.outputs.insert(f.outputs.begin() + static_cast<std::ptrdiff_t>(k), std::move(kept));
  }
  append(std::move(f));
  if (Status s = write(mean, newMean, n); !s) return s;
  return write(variance, newVar, n);
}

/// As torch computes it: samples and channels are the channels of a batch normalisation, whose new statistics are the mean over
/// samples.
Status Functionalizer::trainInstanceNorm(Node &n) {
  const ValueId *var = std::get_if<ValueId>(n.arg("running_var"));
  if (!var) return fail(diag::MutationUnsupported, n.loc, n.target, "running_mean is given without running_var");
  const ValueId mean = std::get<ValueId>(*n.arg("running_mean")), variance = *var;
  for (Argument &a : n.args) read(a);
  const TensorType given = g_.value(std::get<ValueId>(*n.arg("input"))).type;
  auto type = [](DType t, std::vector<Expr> sizes) {
    TensorType out;
    out.dtype = t, out.strides = contiguousStrides(sizes), out.sizes = std::move(sizes);
    return out;
  };
  const Expr samples = given.sizes[0], channels = given.sizes[1];
  auto perSample = [&](const Argument &a) -> Argument {
    const ValueId *id = std::get_if<ValueId>(&a);
    if (!id) return a;
    return emit("aten.repeat.default", {*id, sizeList(g_, {samples})}, type(g_.value(*id).type.dtype, {samples * channels}), n,
                n.name + "_repeated");
  };
  TensorType joined = type(given.dtype, given.sizes);
  joined.sizes[0] = 1, joined.sizes[1] = samples * channels;
  joined.strides = contiguousStrides(joined.sizes);
  const ValueId x = emit("aten.reshape.default", {*n.arg("input"), sizeList(g_, joined.sizes)}, joined, n, n.name + "_joined");
  Node f;
  f.name = n.name;
  f.target = "aten._native_batch_norm_legit_functional.default";
  f.loc = n.loc, f.module = n.module;
  f.args = {x, perSample(*n.arg("weight")), perSample(*n.arg("bias")), perSample(*n.arg("running_mean")),
            perSample(*n.arg("running_var")), true, *n.arg("momentum"), *n.arg("eps")};
  const TensorType each = type(g_.value(mean).type.dtype, {samples * channels});
  std::vector<ValueId> results{newValue(n.name + "_normalised", joined)};
  for (const char *what : {"_save_mean", "_save_rstd", "_means", "_vars"}) results.push_back(newValue(n.name + what, each));
  for (ValueId r : results) f.outputs.push_back({r});
  append(std::move(f));
  Node back;
  back.name = n.name;
  back.target = "aten.reshape.default";
  back.loc = n.loc, back.module = n.module;
  back.args = {results[0], sizeList(g_, given.sizes)};
  back.outputs = n.outputs;
  append(std::move(back));
  auto average = [&](ValueId to, ValueId of) {
    const ValueId table = emit("aten.reshape.default", {of, sizeList(g_, {samples, channels})},
                               type(each.dtype, {samples, channels}), n, n.name + "_by_sample");
    const ValueId now = emit("aten.mean.dim", {table, std::vector<IntOrSym>{int64_t(0)}, false}, type(each.dtype, {channels}), n,
                             n.name + "_running");
    return write(to, now, n);
  };
  if (Status s = average(mean, results[3]); !s) return s;
  return average(variance, results[4]);
}

/// A tensor that is resized names another memory from then on, with the old elements in front. Expressible where nothing else
/// names the old one; nullopt: it is no such operator.
std::optional<Status> Functionalizer::resize(Node &n, const OpSchema &op) {
  if (!isResize(op.name)) return std::nullopt;
  const ValueId self = std::get<ValueId>(n.args[0]), out = n.outputs[0][0];
  const Argument *format = n.arg("memory_format");
  // To its own size nothing happens, wherever the tensor lies.
  if (g_.value(self).type.sizes == g_.value(out).type.sizes && (!format || std::holds_alternative<None>(*format))) {
    views_[out] = view(self);
    return Status::ok();
  }
  const size_t memory = view(self).memory;
  const bool shared = std::any_of(views_.begin(), views_.end(), [&](const auto &v) {
    return v.first != self && v.second.memory == memory && v.second.value != view(self).value;
  });
  const bool outside = std::find(g_.inputs.begin(), g_.inputs.end(), memories_[memory].current) != g_.inputs.end();
  if (shared || outside || !view(self).chain.empty())
    return fail(diag::MutationUnsupported, n.loc, n.target, outside ? "it resizes an input or a weight" : "it resizes a tensor that has views");
  const TensorType before = g_.value(self).type;
  if (!sameStrides(before.sizes, before.strides, fresh(before).strides)) return unsupported(n, "what lies between the elements of the tensor that it resizes is not known");
  for (Argument &a : n.args) read(a);
  TensorType type = fresh(g_.value(out).type);
  const ValueId now = emit(op.name == "aten.resize_" ? "aten.resize.default" : "aten.resize_as.default", n.args, type, n,
                           g_.value(out).name + "_resized");
  views_[self] = view(now);
  views_[out] = view(now);
  return Status::ok();
}

/// Whether a tensor of sizes `from` must be resized to have sizes `to`; not where only a run knows.
static bool mustResize(const std::vector<Expr> &from, const std::vector<Expr> &to) {
  if (from.size() != to.size()) return true;
  for (size_t d = 0; d < from.size(); ++d)
    if (from[d] != to[d] && from[d].isConst() && (to[d].isConst() || from[d].isConst(0))) return true;
  return false;
}

/// out= that has other sizes than the result gets new memory, as by resize_. In `targets` and in the call it is replaced by a tensor of the result's sizes,
/// all of which the call writes.
Status Functionalizer::resizeOut(Node &n, const OpSchema &op, std::vector<ValueId> &targets) {
  size_t at = 0;
  for (size_t r = 0; r < op.returns.size() && r < n.outputs.size(); ++r) {
    if (!op.returns[r].mutated) continue;
    for (ValueId out : n.outputs[r]) {
      if (!out.valid() || at >= targets.size()) continue;
      const ValueId target = targets[at++];
      // What stands in the place of results; others are read as well, and keep their sizes.
      const auto isResult = [&](size_t i) {
        const ValueId *id = std::get_if<ValueId>(&n.args[i]);
        return id && *id == target && op.args[i].mutated && op.args[i].kwargOnly;
      };
      size_t given = 0;
      while (given < op.args.size() && !isResult(given)) ++given;
      if (given == op.args.size()) continue;
      const View &old = view(target);
      if (g_.value(out).kind != Value::Kind::Tensor || !mustResize(g_.value(old.value).type.sizes, g_.value(out).type.sizes)) continue;
      const bool shared = std::any_of(views_.begin(), views_.end(), [&](const auto &v) { return v.second.memory == old.memory && object(v.first) != object(target); });
      const bool outside = std::find(g_.inputs.begin(), g_.inputs.end(), memories_[old.memory].first) != g_.inputs.end();
      if (shared || outside || !old.chain.empty()) return unsupported(n, outside ? "it resizes an input or a weight" : "it resizes a tensor that has views");
      TensorType type = fresh(g_.value(out).type);
      type.dtype = g_.value(target).type.dtype;
      const ValueId other = newValue(g_.value(target).name + "_resized", type);
      n.args[given] = other;
      targets[at - 1] = other;
    }
  }
  return Status::ok();
}

/// set_: the name stands for another tensor from now on, or for what lies at such places of its memory.
Status Functionalizer::setTo(Node &n) {
  const ValueId self = std::get<ValueId>(n.args[0]), out = n.outputs[0][0], *source = std::get_if<ValueId>(&n.args[1]);
  const Memory &old = memories_[view(self).memory];
  if (!source || std::find(g_.inputs.begin(), g_.inputs.end(), old.first) != g_.inputs.end()) return unsupported(n, "it gives an input or a weight other memory");
  views_[out] = View(view(*source));
  if (n.args.size() > 2) {
    const TensorType type = g_.value(out).type;
    n.target = "aten.as_strided.default", n.argNames.clear();
    n.args = {*source, sizeList(g_, type.sizes), sizeList(g_, type.strides), n.args[2]};
    if (Status s = bindArguments(n, g_) ? node(n) : unsupported(n, "its arguments are not those of its schema"); !s) return s;
  }
  views_[self] = View(view(out));
  return Status::ok();
}

/// A user's Triton kernel that changes its arguments gives their new contents instead.
Status Functionalizer::launch(Node &n) {
  auto launch = std::make_shared<UserLaunch>(*n.launch);
  launch->sameAs.assign(n.args.size(), -1);
  std::vector<ValueId> targets, results;
  for (size_t i = 0; i < n.args.size(); ++i) {
    ValueId id = std::get<ValueId>(n.args[i]);
    // The same tensor given twice is one memory: who reads it sees what is written to it.
    for (size_t j = 0; j < n.args.size() && launch->sameAs[i] < 0; ++j)
      if (j != i && launch->written[j] && std::get<ValueId>(n.args[j]) == id && (!launch->written[i] || j < i))
        launch->sameAs[i] = static_cast<int>(j);
    if (!launch->written[i]) continue;
    TensorType type = g_.value(id).type;
    for (size_t d = 0; d < type.sizes.size(); ++d)
      if (type.strides[d].isConst(0) && !type.sizes[d].isConst(1))
        return fail(diag::MutationUnsupported, n.loc, "kernel '" + launch->function + "'",
                    "several elements of the tensor that it writes lie at one place (an expanded tensor)");
    type.offset = 0;
    targets.push_back(id);
    results.push_back(newValue(g_.value(id).name + "_new", type));
  }
  // Where elements lie the kernel is told in numbers.
  for (Argument &a : n.args) forEachValue(a, [&](ValueId &id) { id = asItLies(id); });
  Node f = n;
  f.target = "neso.launch";
  f.launch = launch;
  f.outputs = {results};
  g_.nodes.push_back(std::move(f));
  for (size_t i = 0; i < targets.size(); ++i)
    if (Status s = write(targets[i], results[i], n); !s) return s;
  return Status::ok();
}

/// What is called in the order of a token gets its operands without names: an operator of the user's has them in its schema, or else numbers.
void Functionalizer::nameOperands(Node &n) const {
  const std::string *op = n.args.size() > 1 ? std::get_if<std::string>(&n.args[1]) : nullptr;
  if (!op || !isOfCaller(*op)) return;
  const auto known = callers_.schemas.find(*op);
  n.argNames.resize(n.args.size());
  for (size_t i = 0; i + 2 < n.args.size(); ++i) {
    std::string &name = n.argNames[i + 2];
    if (name.empty()) name = known != callers_.schemas.end() && i < known->second.args.size() ? known->second.args[i].name : std::to_string(i);
  }
}

/// Whether it is known what a call of an operator that is not PyTorch's changes. Where nothing says it, the call becomes a doubtful one, which is
/// checked while the model runs.
Status Functionalizer::ofCaller(Node &n) {
  auto known = callers_.schemas.find(n.target);
  if (known != callers_.schemas.end()) {
    const OpSchema &op = known->second;
    if (op.isView()) return fail(diag::OpRefused, n.loc, n.target, "its results share memory with its operands");
    for (const std::string &name : n.argNames)
      if (op.argIndex(name) < 0) return fail(diag::OperatorArgument, n.loc, n.target, name, "is none of its schema");
    // What is there of an optional result looks like any other in the file.
    n.returns.resize(n.outputs.size());
    for (size_t k = 0; k < std::min(n.outputs.size(), op.returns.size()); ++k)
      if (op.returns[k].optional && op.returns[k].type == ArgType::Tensor) n.returns[k] = Node::Return::Optional;
    return Status::ok();
  }
  bool tensors = false, results = false;
  forEachInput(n, [&](ValueId id) { tensors |= g_.value(id).kind == Value::Kind::Tensor; });
  forEachOutput(n, [&](ValueId id) { results |= g_.value(id).kind == Value::Kind::Tensor; });
  if (callers_.functional || !tensors) return Status::ok();
  // A script object may be what the call is for.
  if (!results && !takesObject(n)) return fail(diag::OpMayChange, n.loc, n.target, "returns nothing");
  if (!atTop_) return fail(diag::OpMayChange, n.loc, n.target, "is in a branch or a loop");
  n.args.insert(n.args.begin(), n.target);
  n.argNames.insert(n.argNames.begin(), "");
  n.target = kDoubtfulCall;
  return Status::ok();
}

/// A call of an operator that is not PyTorch's and changes operands becomes the form that run_decompositions() gives it: each of these operands is
/// copied for it, and is a further result.
Status Functionalizer::changeByCaller(Node &n, const OpSchema &op) {
  Node f;
  f.name = n.name, f.loc = n.loc, f.module = n.module;
  f.target = "higher_order.auto_functionalized_v2";
  f.outputs = n.outputs, f.returns = n.returns;
  f.returns.resize(f.outputs.size());
  auto give = [&](std::string name, Argument value) {
    f.argNames.push_back(std::move(name));
    f.args.push_back(std::move(value));
  };
  give("", n.target);
  std::vector<ValueId> targets;
  std::multiset<size_t> memories;
  auto change = [&](const std::string &name, ValueId id) {
    give("_" + name + "_base_index", static_cast<int64_t>(targets.size()));
    targets.push_back(id);
  };
  for (const ArgSchema &a : op.args) {
    const Argument *given = n.arg(a.name);
    if (!given) continue;
    const Argument &value = *given;
    forEachValue(value, [&](ValueId id) {
      if (id.valid() && g_.value(id).kind == Value::Kind::Tensor) memories.insert(view(id).memory);
    });
    const ValueId *one = std::get_if<ValueId>(&value);
    const auto *list = std::get_if<std::vector<ValueId>>(&value);
    if (!a.mutated) {
      give(a.name, value);
    } else if (one && one->valid() && g_.value(*one).kind == Value::Kind::Tensor) {
      change(a.name, *one);
    } else if (list) {
      give("_" + a.name + "_length", static_cast<int64_t>(list->size()));
      for (size_t i = 0; i < list->size(); ++i) change(fmt::format("{}_{}", a.name, i), (*list)[i]);
    } else {
      give("_" + a.name + "_base_index", None{});
    }
  }
  std::vector<ValueId> bases, results;
  for (ValueId id : targets) {
    TensorType type = g_.value(id).type;
    for (size_t d = 0; d < type.sizes.size(); ++d)
      if (type.strides[d].isConst(0) && !type.sizes[d].isConst(1))
        return unsupported(n, "several elements of a tensor that it changes lie at one place (an expanded tensor)");
    if (memories.count(view(id).memory) > 1) return unsupported(n, "a tensor that it changes shares memory with another operand");
    type.offset = 0;
    results.push_back(newValue(g_.value(id).name + "_new", type));
    f.outputs.push_back({results.back()});
    bases.push_back(current(id));
  }
  for (Argument &a : f.args) read(a);
  give("_all_bases", bases);
  applied(Rule::Functionalise);
  g_.nodes.push_back(std::move(f));
  for (size_t i = 0; i < targets.size(); ++i)
    if (Status s = write(targets[i], results[i], n); !s) return s;
  return Status::ok();
}

} // namespace neso::graph::functional
