// What stands around a kernel: the decorators triton.jit, autotune and heuristics, and the values that they give to
// parameters.
#include "frontend/triton/compilation.h"

namespace neso::triton {

static bool isConstexprAnnotation(const Param &p) {
  if (!p.annotation) return false;
  return p.annotation->text == "constexpr" ||
         (p.annotation->kind == ExprKind::String && p.annotation->string.ends_with("constexpr"));
}

static std::vector<std::string> strings(const Value &v) {
  std::vector<std::string> out;
  if (v.isSequence())
    for (const Value &i : v.items())
      if (i.kind == Kind::Str) out.push_back(i.str());
  return out;
}

/// Hooks change arguments or results around a launch. Who gives every value himself launches himself, and may run them.
static Diagnostic hookRefused(std::string_view what, const std::string &kernel) {
  return makeDiag(diag::TrBadDecorator, {}, what, kernel,
                  "hooks are Python that runs at every launch; drop it, or do its work in the kernel, or give every constexpr and run it before you launch");
}

/// Configs of autotune; those that depend on the device or on libraries are left out: the request must then give their
/// constexprs.
Status Compilation::describeConfigs(Expr *decorator, const Value &list, KernelInfo &k) {
  if (!list.isSequence()) return Status::ok();
  for (const Value &cfg : list.items()) {
    if (cfg.kind != Kind::Tuple || cfg.o->text != "Config") continue;
    ConfigInfo info;
    const std::vector<Value> &f = cfg.items();
    if (f[0].kind == Kind::Dict)
      for (size_t i = 0; i + 1 < f[0].items().size(); i += 2) {
        const Value &v = f[0].items()[i + 1];
        info.kwargs.emplace_back(toStr(f[0].items()[i]), v.kind == Kind::DType ? "tl." + repr(v) : repr(v));
      }
    info.numWarps = f[1].isIntLike() ? static_cast<int>(f[1].i) : 4;
    info.numStages = f[2].isIntLike() ? static_cast<int>(f[2].i) : 3;
    info.numCtas = f[3].isIntLike() ? static_cast<int>(f[3].i) : 1;
    if (f[4].isIntLike()) info.maxRegisters = static_cast<int>(f[4].i);
    info.hooked = !f[5].isNone();
    if (info.hooked && request_.launchedHere) return at(decorator->pos, hookRefused("pre_hook of a config", k.name));
    k.configs.push_back(std::move(info));
    configs_.push_back(cfg);
  }
  return Status::ok();
}

/// One argument of triton.autotune.
Status Compilation::describeAutotune(Expr *decorator, std::string_view argument, const Value &v, KernelInfo &k) {
  if (argument == "key") k.key = strings(v);
  if (argument == "reset_to_zero") k.resetToZero = strings(v);
  if (argument == "restore_value") k.restoreValue = strings(v);
  if (argument == "prune_configs_by" && v.kind == Kind::Dict) prune_ = v;
  if (argument == "configs") return describeConfigs(decorator, v, k);
  return Status::ok();
}

/// A call among a kernel's decorators, of what the module says of it; names that it freezes go to `frozen`.
Status Compilation::describeDecorator(Expr *d, Module *module, KernelInfo &k, std::vector<std::string> &frozen) {
  Value what = e_.evalIn(module, d->kind == ExprKind::Call ? d->items[0] : d);
  c_.error.reset();
  if (d->kind != ExprKind::Call) return Status::ok();
  // Libraries wrap autotune in decorators of their own, which keep the names of its parameters.
  bool wraps = what.kind != Kind::Builtin && std::any_of(d->keywords.begin(), d->keywords.end(),
                                                         [](const Keyword &kw) { return kw.name == "configs"; });
  if (what.kind != Kind::Builtin && !wraps) return Status::ok();
  const std::string_view name = wraps ? "triton.autotune" : static_cast<const Builtin *>(what.data)->name;
  const bool tunes = name == "triton.autotune";
  std::vector<std::pair<std::string_view, Expr *>> args;
  static constexpr std::string_view kTune[] = {"configs", "key", "prune_configs_by", "reset_to_zero", "restore_value"};
  for (size_t i = 1; i < d->items.size(); ++i)
    args.emplace_back(tunes && i <= std::size(kTune) ? kTune[i - 1] : "values", d->items[i]);
  for (const Keyword &kw : d->keywords) args.emplace_back(kw.name, kw.value);
  if (tunes && !k.configs.empty()) return at(d->pos, makeDiag(diag::TrTwoAutotunes, {}, k.name));
  for (auto [argument, value] : args) {
    if (tunes && (argument == "pre_hook" || argument == "post_hook")) {
      if (value->kind == ExprKind::None) continue;
      if (request_.launchedHere) return at(d->pos, hookRefused(argument, k.name));
      k.hook = argument;
      continue;
    }
    Value v = e_.evalIn(module, value);
    if (!v) {
      c_.error.reset();
      v = Value::none();
    }
    if (name == "triton.jit" && (argument == "do_not_specialize" || argument == "do_not_specialize_on_alignment"))
      frozen = strings(v);
    if (name == "triton.heuristics" && argument == "values" && v.kind == Kind::Dict)
      for (size_t i = 0; i + 1 < v.items().size(); i += 2) k.heuristics.push_back(toStr(v.items()[i]));
    if (tunes)
      if (Status s = describeAutotune(d, argument, v, k); !s) return s;
  }
  return Status::ok();
}

Result<KernelInfo> Compilation::describe(Object *fn) {
  KernelInfo k;
  k.name = fn->text;
  k.path = fn->module->path;
  k.line = fn->pos.line;
  std::vector<std::string> frozen;
  configs_.clear();
  prune_ = {};
  for (auto [d, module] : fn->decorators)
    if (Status s = describeDecorator(d, module, k, frozen); !s) return s.takeError();
  for (const Param &p : fn->function->params) {
    ParamInfo info;
    info.name = std::string(p.name);
    info.isConstexpr = isConstexprAnnotation(p);
    info.hasDefault = p.fallback != nullptr;
    if (p.fallback) {
      Value v = e_.evalIn(fn->module, p.fallback);
      c_.error.reset();
      if (v) info.fallback = repr(v);
    }
    info.doNotSpecialize = std::find(frozen.begin(), frozen.end(), info.name) != frozen.end();
    k.params.push_back(std::move(info));
  }
  return k;
}

/// The dict of the arguments that are known: constexprs and request_.values.
Result<Value> Compilation::knownArguments() {
  std::vector<Value> args;
  for (const std::pair<std::string, Value> &v : constexprs_) {
    args.push_back(c_.str(v.first));
    args.push_back(v.second);
  }
  for (const NamedText &t : request_.values) {
    Result<Value> v = literal(t.first, t.second);
    if (!v) return v.takeError();
    args.push_back(c_.str(t.first));
    args.push_back(*v);
  }
  return c_.list(Kind::Dict, std::move(args));
}

Value Compilation::callFunction(const Value &function, CallArgs args) {
  Frame f;
  f.module = module_;
  f.pos = fn_->pos;
  c_.frame = &f;
  Value v = e_.call(function, std::move(args));
  c_.frame = nullptr;
  if (c_.error) v = {};
  c_.error.reset();
  return v;
}

/// Which config prune_configs_by leaves as the first, best one. Its functions read arguments of the launch; where those
/// are not known at compile time, they say nothing, and the configs stay as they are: pruning saves time of tuning, it
/// changes no result.
Result<size_t> Compilation::firstSurvivor() {
  for (size_t i = 0; i < configs_.size(); ++i) configsLeft_.push_back(i);
  if (prune_.kind != Kind::Dict) return size_t{0};
  Value early, model;
  for (size_t i = 0; i + 1 < prune_.items().size(); i += 2) {
    std::string key = toStr(prune_.items()[i]);
    if (key == "early_config_prune") early = prune_.items()[i + 1];
    if (key == "perf_model") model = prune_.items()[i + 1];
  }
  Result<Value> known = knownArguments();
  if (!known) return known.takeError();
  CallArgs named;
  for (size_t i = 0; i + 1 < known->items().size(); i += 2)
    named.named.emplace_back(c_.internText(known->items()[i].str()), known->items()[i + 1]);
  std::vector<Value> left = configs_;
  if (early.kind == Kind::Function) {
    CallArgs args = named;
    args.positional = {c_.list(Kind::List, configs_), *known};
    Value v = callFunction(early, std::move(args));
    if (v.isSequence() && !v.items().empty()) left = v.items();
  }
  auto indexOf = [&](const Value &config) {
    for (size_t i = 0; i < configs_.size(); ++i)
      if (config.kind == Kind::Tuple && config.o == configs_[i].o) return i;
    return size_t{0};
  };
  configsLeft_.clear();
  for (const Value &config : left) configsLeft_.push_back(indexOf(config));
  size_t best = indexOf(left.front());
  if (model.kind != Kind::Function) return best;
  // A model may take buffers that it does not look at.
  for (const Param &p : fn_->function->params)
    if (!given(p.name) &&
        std::none_of(request_.values.begin(), request_.values.end(),
                     [&](const NamedText &t) { return t.first == p.name; }) &&
        std::none_of(info_.configs.front().kwargs.begin(), info_.configs.front().kwargs.end(),
                     [&](const NamedText &t) { return t.first == p.name; })) {
      named.named.emplace_back(p.name, c_.opaque("argument '" + std::string(p.name) + "'"));
    }
  double least = 0;
  for (size_t n = 0; n < left.size(); ++n) {
    CallArgs args = named;
    size_t index = indexOf(left[n]);
    const std::vector<Value> &fields = configs_[index].items();
    for (size_t i = 0; fields[0].kind == Kind::Dict && i + 1 < fields[0].items().size(); i += 2)
      args.named.emplace_back(c_.internText(toStr(fields[0].items()[i])), fields[0].items()[i + 1]);
    args.named.emplace_back("num_warps", fields[1]);
    args.named.emplace_back("num_stages", fields[2]);
    args.named.emplace_back("num_ctas", fields[3]);
    Value v = callFunction(model, std::move(args));
    if (!v.isIntLike() && v.kind != Kind::Float) return indexOf(left.front());
    double time = v.kind == Kind::Float ? v.f : static_cast<double>(v.i);
    if (n == 0 || time < least) least = time, best = index;
  }
  return best;
}

Status Compilation::applyConfig() {
  if (info_.configs.empty()) return Status::ok();
  if (request_.config && *request_.config >= info_.configs.size())
    return fail(
        diag::TrBadDecorator, {request_.path, info_.line, 0, {}}, "autotune", info_.name,
        fmt::format("there are {} configs, counted from 0, and number {} was asked for", info_.configs.size(), *request_.config));
  Result<size_t> chosen = request_.config ? Result<size_t>(*request_.config) : firstSurvivor();
  if (!chosen) return chosen.takeError();
  config_ = *chosen;
  const ConfigInfo &config = info_.configs[*chosen];
  for (const NamedText &k : config.kwargs) {
    if (given(k.first)) continue;
    if (config.hooked || !info_.hook.empty())
      return at({info_.line, 0}, hookRefused(config.hooked ? "pre_hook of a config" : info_.hook, info_.name));
    Result<Value> v = literal(k.first, k.second);
    if (!v) return v.takeError();
    constexprs_.emplace_back(k.first, *v);
  }
  numWarps_ = config.numWarps;
  numStages_ = config.numStages;
  return Status::ok();
}

/// Calls one heuristic with the arguments that are known and takes its result for the parameter.
Status Compilation::runHeuristic(const std::string &name, const Value &function, Pos pos) {
  Result<Value> known = knownArguments();
  if (!known) return known.takeError();
  // An argument that the signature gives a type is there, whatever its value: most heuristics ask only whether it is
  // None.
  Result<std::vector<SigType>> types = signature();
  for (size_t i = 0; types && i < types->size(); ++i) {
    std::string param(fn_->function->params[i].name);
    bool has = false;
    for (size_t k = 0; k + 1 < known->items().size(); k += 2) has |= known->items()[k].str() == param;
    if (has || (*types)[i].kind == SigType::Constexpr) continue;
    known->o->items.push_back(c_.str(param));
    Value argument = c_.opaque("the value of argument '" + param + "'");
    argument.o->present = true;
    known->o->items.push_back(argument);
  }
  Frame f;
  f.module = module_;
  f.pos = pos;
  c_.frame = &f;
  Value v = e_.call(function, {*known});
  c_.frame = nullptr;
  if (!v || v.kind == Kind::Opaque) {
    std::string why = c_.error ? c_.error->message : "its result is not known at compile time";
    c_.error.reset();
    return at(pos, makeDiag(diag::TrBadDecorator, {}, "heuristic '" + name + "'", info_.name,
                            why + "; give the value with --constexpr " + name + "=…"));
  }
  v.wrapped = true;
  if (Value *old = given(name))
    *old = v;
  else
    constexprs_.emplace_back(name, v);
  return Status::ok();
}

/// Runs the heuristics bottom-up over the arguments that are known; each may read what those below it set.
Status Compilation::applyHeuristics() {
  auto byHand = [&](const std::string &name) {
    return std::any_of(request_.constexprs.begin(), request_.constexprs.end(), [&](const NamedText &k) { return k.first == name; });
  };
  for (size_t n = fn_->decorators.size(); n-- > 0;) {
    auto [d, module] = fn_->decorators[n];
    if (d->kind != ExprKind::Call) continue;
    Value what = e_.evalIn(module, d->items[0]);
    c_.error.reset();
    if (what.kind != Kind::Builtin ||
        std::string_view(static_cast<const Builtin *>(what.data)->name) != "triton.heuristics")
      continue;
    Expr *table = d->items.size() > 1 ? d->items[1] : d->keywords.empty() ? nullptr : d->keywords[0].value;
    Value dict = table ? e_.evalIn(module, table) : Value{};
    if (dict.kind != Kind::Dict) {
      c_.error.reset();
      // Which values it sets is not known either: with all of them given, it does not matter.
      std::string missing;
      for (const ParamInfo &p : info_.params)
        if (p.isConstexpr && !byHand(p.name)) missing += (missing.empty() ? "" : ", ") + p.name;
      if (missing.empty()) continue;
      return at(d->pos, makeDiag(diag::TrBadDecorator, {}, "heuristics", info_.name,
                                 "its table is not known at compile time; give with --constexpr what it may set: " + missing));
    }
    for (size_t i = 0; i + 1 < dict.items().size(); i += 2) {
      std::string name = toStr(dict.items()[i]);
      // A value given by hand wins.
      if (byHand(name)) continue;
      if (Status s = runHeuristic(name, dict.items()[i + 1], d->pos); !s) return s.takeError();
    }
  }
  for (const NamedText &rule : request_.heuristics) {
    if (given(rule.first)) continue;
    Result<Value> function = literal(rule.first, rule.second);
    if (!function) return function.takeError();
    if (Status s = runHeuristic(rule.first, *function, fn_->pos); !s) return s.takeError();
  }
  return Status::ok();
}

} // namespace neso::triton
