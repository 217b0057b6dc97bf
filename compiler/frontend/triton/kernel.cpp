// The entry: from a request to a module. Reads the file, finds the kernel, binds its parameters, builds the body, cleans up.
#include "base/diagnostics/triton.h"
#include "frontend/triton/triton.h"

#include "frontend/triton/lang.h"
#include "frontend/triton/parser.h"

#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

#include <algorithm>

namespace neso::triton {
namespace {

Error takeError(Context &c) { return Error(c.error ? *c.error : makeDiag(diag::InternalFault, {}, "Triton front end", "no error was reported")); }

std::vector<std::string> splitTop(std::string_view text) {
  std::vector<std::string> out;
  int nest = 0;
  std::string item;
  for (char ch : text) {
    if (ch == '<' || ch == '[' || ch == '(') ++nest;
    if (ch == '>' || ch == ']' || ch == ')') --nest;
    if (ch == ',' && nest == 0) {
      out.push_back(item);
      item.clear();
    } else if (ch != ' ' && ch != '\t' && ch != '\n') {
      item += ch;
    }
  }
  if (!item.empty() || !out.empty()) out.push_back(item);
  return out;
}

/// A parameter's type in a signature.
struct SigType {
  enum Kind { Constexpr, Plain, Desc, Tuple } kind = Plain;
  Scalar scalar;
  std::vector<int64_t> block; // Desc
  std::vector<SigType> items; // Tuple
  std::string text;
  bool divisible = false, one = false; // old spellings "*fp32:16", "i32:1"
};

std::optional<SigType> parseType(std::string_view text) {
  SigType t;
  t.text = std::string(text);
  if (text == "constexpr" || text == "tl.constexpr") {
    t.kind = SigType::Constexpr;
    return t;
  }
  if (text == "nvTmaDesc") {
    t.scalar = scalar(DT::I8).pointer();
    return t;
  }
  if (text.starts_with("(") && text.ends_with(")")) {
    t.kind = SigType::Tuple;
    for (const std::string &item : splitTop(text.substr(1, text.size() - 2))) {
      if (item.empty()) continue;
      std::optional<SigType> inner = parseType(item);
      if (!inner) return std::nullopt;
      t.items.push_back(*inner);
    }
    return t;
  }
  if (text.starts_with("tensordesc<") && text.ends_with(">")) {
    text = text.substr(11, text.size() - 12);
    size_t open = text.find('['), close = text.find(']');
    if (open == std::string_view::npos || close == std::string_view::npos) return std::nullopt;
    std::optional<DT> e = parseSignatureType(text.substr(0, open));
    if (!e) return std::nullopt;
    t.kind = SigType::Desc;
    t.scalar = scalar(*e);
    for (const std::string &d : splitTop(text.substr(open + 1, close - open - 1))) {
      int64_t n = std::atoll(d.c_str());
      if (n <= 0) return std::nullopt;
      t.block.push_back(n);
    }
    if (t.block.empty() || t.block.size() > 5) return std::nullopt;
    return t;
  }
  if (size_t colon = text.rfind(':'); colon != std::string_view::npos) {
    t.divisible = text.substr(colon + 1) == "16";
    t.one = text.substr(colon + 1) == "1";
    text = text.substr(0, colon);
  }
  int stars = 0;
  while (text.starts_with("*")) {
    ++stars;
    text.remove_prefix(1);
  }
  bool constant = stars > 0 && text.starts_with("k") && parseSignatureType(text.substr(1));
  if (constant) text.remove_prefix(1);
  std::optional<DT> e = parseSignatureType(text);
  if (!e || stars > 3) return std::nullopt;
  t.scalar = {*e, static_cast<uint8_t>(stars), constant};
  return t;
}

/// Evaluates decorators and values around one kernel.
class Compilation {
public:
  Compilation(const KernelRequest &request, mlir::MLIRContext &ctx, CodegenOptions options)
      : request_(request), loader_(request.searchPaths, request.sources), c_(&ctx), e_(c_, loader_, options) {}

  Result<CompiledKernel> run();
  Result<std::vector<KernelInfo>> list();
  Result<std::vector<BoundParam>> bind();

private:
  Status findKernel();
  Status applyConstexprs();
  Result<KernelInfo> describe(Object *fn);
  Result<Value> knownArguments();
  Value callFunction(const Value &function, CallArgs args);
  Result<size_t> firstSurvivor();
  Status applyConfig();
  Status applyHeuristics();
  Status runHeuristic(const std::string &name, const Value &function, Pos pos);
  Result<std::vector<SigType>> signature();
  Result<Value> literal(const std::string &name, const std::string &text);
  Status build(CompiledKernel &out, const std::vector<SigType> &types);
  Value argument(const SigType &t, std::vector<mlir::Type> &irTypes);
  Value *given(std::string_view name) {
    for (std::pair<std::string, Value> &v : constexprs_)
      if (v.first == name) return &v.second;
    return nullptr;
  }
  bool isParameter(std::string_view name) const {
    return std::any_of(info_.params.begin(), info_.params.end(), [&](const ParamInfo &p) { return p.name == name; });
  }
  Error unknownParameter(const std::string &name) const { return fail(diag::TrSignatureName, {request_.path, info_.line, 0, {}}, info_.name, name, paramNames()); }
  std::string paramNames() const {
    std::string out;
    for (const Param &p : fn_->function->params) out += (out.empty() ? "" : ", ") + std::string(p.name);
    return out;
  }
  Error at(Pos pos, Diagnostic d) {
    d.loc = module_->tree->source->loc(pos);
    d.sourceLine = std::string(module_->tree->source->line(pos.line));
    return Error(std::move(d));
  }

  const KernelRequest &request_;
  Loader loader_;
  Context c_;
  Evaluator e_;
  Module *module_ = nullptr;
  Object *fn_ = nullptr;
  KernelInfo info_;
  std::vector<std::pair<std::string, Value>> constexprs_;
  std::vector<Value> configs_; // of info_, as values
  Value prune_;                // prune_configs_by, if it is a dict
  int numWarps_ = 4, numStages_ = 3;
  std::vector<std::shared_ptr<SyntaxTree>> trees_; // of literals: functions in them live as long as the compilation
};

bool isConstexprAnnotation(const Param &p) {
  if (!p.annotation) return false;
  return p.annotation->text == "constexpr" || (p.annotation->kind == ExprKind::String && p.annotation->string.ends_with("constexpr"));
}

Status Compilation::findKernel() {
  module_ = e_.module(request_.path);
  if (!module_) return takeError(c_);
  Value v = e_.global(module_, request_.function);
  if (v.kind == Kind::Function && v.o->jit) {
    fn_ = v.o;
    return Status::ok();
  }
  std::string names;
  for (std::pair<std::string_view, Value> &g : module_->globals.entries)
    if (g.second.kind == Kind::Function && g.second.o->jit && g.second.o->module == module_) names += (names.empty() ? "" : ", ") + std::string(g.first);
  return fail(diag::TrFunctionNotFound, {request_.path, 0, 0, {}}, request_.path, request_.function, names.empty() ? "no @triton.jit function" : names);
}

std::vector<std::string> strings(const Value &v) {
  std::vector<std::string> out;
  if (v.isSequence())
    for (const Value &i : v.items())
      if (i.kind == Kind::Str) out.push_back(i.str());
  return out;
}

Result<KernelInfo> Compilation::describe(Object *fn) {
  KernelInfo k;
  k.name = fn->text;
  k.path = fn->module->path;
  k.line = fn->pos.line;
  std::vector<std::string> frozen;
  configs_.clear();
  prune_ = {};
  for (auto [d, module] : fn->decorators) {
    Expr *callee = d->kind == ExprKind::Call ? d->items[0] : d;
    Value what = e_.evalIn(module, callee);
    c_.error.reset();
    if (d->kind != ExprKind::Call) continue;
    // Libraries wrap autotune in decorators of their own, which keep the names of its parameters.
    bool wraps = what.kind != Kind::Builtin && std::any_of(d->keywords.begin(), d->keywords.end(), [](const Keyword &kw) { return kw.name == "configs"; });
    if (what.kind != Kind::Builtin && !wraps) continue;
    std::string_view name = wraps ? "triton.autotune" : static_cast<const Builtin *>(what.data)->name;
    std::vector<std::pair<std::string_view, Expr *>> args;
    static constexpr std::string_view kTune[] = {"configs", "key", "prune_configs_by", "reset_to_zero", "restore_value"};
    for (size_t i = 1; i < d->items.size(); ++i) args.emplace_back(name == "triton.autotune" && i <= 5 ? kTune[i - 1] : "values", d->items[i]);
    for (const Keyword &kw : d->keywords) args.emplace_back(kw.name, kw.value);
    if (name == "triton.autotune" && !k.configs.empty()) return at(d->pos, makeDiag(diag::TrTwoAutotunes, {}, k.name));
    for (std::pair<std::string_view, Expr *> &a : args) {
      if (name == "triton.autotune" && (a.first == "pre_hook" || a.first == "post_hook")) {
        if (a.second->kind != ExprKind::None)
          return at(d->pos, makeDiag(diag::TrBadDecorator, {}, a.first, k.name, "hooks are Python that runs at every launch; drop it, or do its work in the kernel"));
        continue;
      }
      Value v = e_.evalIn(module, a.second);
      if (!v) {
        c_.error.reset();
        v = Value::none();
      }
      if (name == "triton.jit" && (a.first == "do_not_specialize" || a.first == "do_not_specialize_on_alignment")) frozen = strings(v);
      if (name == "triton.heuristics" && a.first == "values" && v.kind == Kind::Dict)
        for (size_t i = 0; i + 1 < v.items().size(); i += 2) k.heuristics.push_back(toStr(v.items()[i]));
      if (name != "triton.autotune") continue;
      if (a.first == "key") k.key = strings(v);
      if (a.first == "reset_to_zero") k.resetToZero = strings(v);
      if (a.first == "restore_value") k.restoreValue = strings(v);
      if (a.first == "prune_configs_by" && v.kind == Kind::Dict) prune_ = v;
      if (a.first != "configs") continue;
      // Configs that depend on the device or on libraries are left out: the request must then give their constexprs.
      if (!v.isSequence()) continue;
      for (const Value &cfg : v.items()) {
        if (cfg.kind != Kind::Tuple || cfg.o->text != "Config") continue;
        ConfigInfo info;
        const std::vector<Value> &f = cfg.items();
        if (f[0].kind == Kind::Dict)
          for (size_t i = 0; i + 1 < f[0].items().size(); i += 2) info.kwargs.emplace_back(toStr(f[0].items()[i]), f[0].items()[i + 1].kind == Kind::DType ? "tl." + repr(f[0].items()[i + 1]) : repr(f[0].items()[i + 1]));
        info.numWarps = f[1].isIntLike() ? static_cast<int>(f[1].i) : 4;
        info.numStages = f[2].isIntLike() ? static_cast<int>(f[2].i) : 3;
        info.numCtas = f[3].isIntLike() ? static_cast<int>(f[3].i) : 1;
        if (f[4].isIntLike()) info.maxRegisters = static_cast<int>(f[4].i);
        if (!f[5].isNone()) return at(d->pos, makeDiag(diag::TrBadDecorator, {}, "pre_hook of a config", k.name, "hooks are Python that runs at every launch; drop it"));
        k.configs.push_back(std::move(info));
        configs_.push_back(cfg);
      }
    }
  }
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

Result<std::vector<KernelInfo>> Compilation::list() {
  module_ = e_.module(request_.path);
  if (!module_) return takeError(c_);
  std::vector<KernelInfo> out;
  for (std::pair<std::string_view, Value> &g : module_->globals.entries) {
    if (g.second.kind != Kind::Function || !g.second.o->jit || g.second.o->module != module_) continue;
    Result<KernelInfo> k = describe(g.second.o);
    if (!k) return k.takeError();
    out.push_back(std::move(*k));
  }
  return out;
}

Result<Value> Compilation::literal(const std::string &name, const std::string &text) {
  std::string python = text;
  std::string lower = text;
  for (char &ch : lower) ch = static_cast<char>(std::tolower(static_cast<unsigned char>(ch)));
  if (lower == "none" || lower == "true" || lower == "false") {
    python = lower;
    python[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(python[0])));
  }
  if (lower == "inf" || lower == "-inf" || lower == "nan") python = "float('" + lower + "')";
  Result<std::shared_ptr<SyntaxTree>> tree = parse(std::make_shared<Source>("<constexpr " + name + ">", python));
  if (!tree || (*tree)->body.size() != 1 || (*tree)->body[0]->kind != StmtKind::Expr) return fail(diag::TrConstexprValue, {}, text, name);
  trees_.push_back(*tree);
  Value v = e_.evalIn(module_, (*tree)->body[0]->value);
  // Names of the language are in reach even where the file does not import them as tl.
  if (!v && python.starts_with("tl.")) {
    c_.error.reset();
    Frame f;
    f.module = module_;
    c_.frame = &f;
    v = e_.language(python);
    c_.frame = nullptr;
  }
  if (!v || v.kind == Kind::Opaque) {
    c_.error.reset();
    return fail(diag::TrConstexprValue, {}, text, name);
  }
  v.wrapped = true;
  return v;
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

/// Which config prune_configs_by leaves as the first, best one. Its functions read arguments of the launch; where those are not known at
/// compile time, they say nothing, and the configs stay as they are: pruning saves time of tuning, it changes no result.
Result<size_t> Compilation::firstSurvivor() {
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
  for (size_t i = 0; i + 1 < known->items().size(); i += 2) named.named.emplace_back(c_.internText(known->items()[i].str()), known->items()[i + 1]);
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
  size_t best = indexOf(left.front());
  if (model.kind != Kind::Function) return best;
  // A model may take buffers that it does not look at.
  for (const Param &p : fn_->function->params)
    if (!given(p.name) && std::none_of(request_.values.begin(), request_.values.end(), [&](const NamedText &t) { return t.first == p.name; }) &&
        std::none_of(info_.configs.front().kwargs.begin(), info_.configs.front().kwargs.end(), [&](const NamedText &t) { return t.first == p.name; })) {
      named.named.emplace_back(p.name, c_.opaque("argument '" + std::string(p.name) + "'"));
    }
  double least = 0;
  for (size_t n = 0; n < left.size(); ++n) {
    CallArgs args = named;
    size_t index = indexOf(left[n]);
    const std::vector<Value> &fields = configs_[index].items();
    for (size_t i = 0; fields[0].kind == Kind::Dict && i + 1 < fields[0].items().size(); i += 2) args.named.emplace_back(c_.internText(toStr(fields[0].items()[i])), fields[0].items()[i + 1]);
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
  if (request_.config >= info_.configs.size())
    return fail(diag::TrBadDecorator, {request_.path, info_.line, 0, {}}, "autotune", info_.name, fmt::format("there are {} configs, and number {} was asked for", info_.configs.size(), request_.config));
  Result<size_t> chosen = request_.config == 0 ? firstSurvivor() : Result<size_t>(request_.config);
  if (!chosen) return chosen.takeError();
  const ConfigInfo &config = info_.configs[*chosen];
  for (const NamedText &k : config.kwargs) {
    if (given(k.first)) continue;
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
  // An argument that the signature gives a type is there, whatever its value: most heuristics ask only whether it is None.
  Result<std::vector<SigType>> types = signature();
  for (size_t i = 0; types && i < types->size(); ++i) {
    std::string param(fn_->function->params[i].name);
    bool has = false;
    for (size_t k = 0; k + 1 < known->items().size(); k += 2) has |= known->items()[k].str() == param;
    if (has || (*types)[i].kind == SigType::Constexpr) continue;
    known->o->items.push_back(c_.str(param));
    known->o->items.push_back(c_.opaque("the value of argument '" + param + "'"));
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
    return at(pos, makeDiag(diag::TrBadDecorator, {}, "heuristic '" + name + "'", info_.name, why + "; give the value with --constexpr " + name + "=…"));
  }
  v.wrapped = true;
  if (Value *old = given(name)) *old = v;
  else constexprs_.emplace_back(name, v);
  return Status::ok();
}

/// Runs the heuristics bottom-up over the arguments that are known; each may read what those below it set.
Status Compilation::applyHeuristics() {
  for (size_t n = fn_->decorators.size(); n-- > 0;) {
    auto [d, module] = fn_->decorators[n];
    if (d->kind != ExprKind::Call) continue;
    Value what = e_.evalIn(module, d->items[0]);
    c_.error.reset();
    if (what.kind != Kind::Builtin || std::string_view(static_cast<const Builtin *>(what.data)->name) != "triton.heuristics") continue;
    Expr *table = d->items.size() > 1 ? d->items[1] : d->keywords.empty() ? nullptr : d->keywords[0].value;
    Value dict = table ? e_.evalIn(module, table) : Value{};
    if (dict.kind != Kind::Dict) {
      c_.error.reset();
      return at(d->pos, makeDiag(diag::TrBadDecorator, {}, "heuristics", info_.name, "its table is not known at compile time"));
    }
    for (size_t i = 0; i + 1 < dict.items().size(); i += 2) {
      std::string name = toStr(dict.items()[i]);
      // A value given by hand wins.
      bool byHand = std::any_of(request_.constexprs.begin(), request_.constexprs.end(), [&](const NamedText &k) { return k.first == name; });
      if (byHand) continue;
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

Result<std::vector<SigType>> Compilation::signature() {
  const std::vector<Param> &params = fn_->function->params;
  std::vector<std::optional<SigType>> found(params.size());
  std::vector<std::string> positional;
  for (const Param &p : params)
    if (p.kind == Param::Star || p.kind == Param::DoubleStar) return at(p.pos, makeDiag(diag::TrKernelVarargs, {}, info_.name));
  for (const std::string &item : splitTop(request_.signature)) {
    size_t colon = item.find(':');
    bool named = colon != std::string::npos && !parseType(item);
    if (!named) {
      positional.push_back(item);
      continue;
    }
    std::string name = item.substr(0, colon);
    std::optional<SigType> t = parseType(item.substr(colon + 1));
    if (!t) return fail(diag::TrSignatureSyntax, {}, item);
    bool known = false;
    for (size_t i = 0; i < params.size(); ++i)
      if (params[i].name == name) {
        found[i] = t;
        known = true;
      }
    if (!known) return unknownParameter(name);
  }
  // Types without names: one a parameter, or one for each that is not constexpr.
  auto isFixed = [&](size_t i) { return info_.params[i].isConstexpr || given(params[i].name); };
  std::vector<size_t> slots, runtime;
  for (size_t i = 0; i < params.size(); ++i)
    if (!found[i]) {
      slots.push_back(i);
      if (!isFixed(i)) runtime.push_back(i);
    }
  std::vector<size_t> plain;
  for (size_t i : slots)
    if (!info_.params[i].isConstexpr) plain.push_back(i);
  if (!positional.empty()) {
    const std::vector<size_t> *use = positional.size() == slots.size() ? &slots : positional.size() == plain.size() ? &plain : positional.size() == runtime.size() ? &runtime : nullptr;
    // Trailing parameters with defaults may be left out.
    std::vector<size_t> shortened;
    if (!use && positional.size() < slots.size()) {
      bool rest = true;
      for (size_t k = positional.size(); k < slots.size(); ++k) rest &= info_.params[slots[k]].hasDefault || isFixed(slots[k]);
      if (rest) {
        shortened.assign(slots.begin(), slots.begin() + static_cast<std::ptrdiff_t>(positional.size()));
        use = &shortened;
      }
    }
    if (!use) return at(fn_->pos, makeDiag(diag::TrSignatureCount, {}, positional.size(), info_.name, params.size(), paramNames()));
    for (size_t k = 0; k < positional.size(); ++k) {
      std::optional<SigType> t = parseType(positional[k]);
      if (!t) return fail(diag::TrSignatureSyntax, {}, positional[k]);
      found[(*use)[k]] = t;
    }
  }
  std::vector<SigType> out;
  for (size_t i = 0; i < params.size(); ++i) {
    if (!found[i] || isFixed(i)) {
      if (!found[i] && !isFixed(i) && !info_.params[i].hasDefault)
        return at(fn_->pos, makeDiag(diag::TrSignatureCount, {}, positional.size(), info_.name, params.size(), paramNames()));
      SigType t;
      t.kind = SigType::Constexpr;
      t.text = "constexpr";
      out.push_back(t);
    } else {
      out.push_back(*found[i]);
    }
  }
  return out;
}

/// The parameter as a value whose handles are filled in once the function exists.
Value Compilation::argument(const SigType &t, std::vector<mlir::Type> &irTypes) {
  auto tensor = [&](Scalar s) {
    irTypes.push_back(e_.s.irType(s));
    return c_.tensor({}, {s, {}});
  };
  if (t.kind == SigType::Plain) return tensor(t.scalar);
  if (t.kind == SigType::Tuple) {
    std::vector<Value> items;
    for (const SigType &i : t.items) items.push_back(argument(i, irTypes));
    return c_.tuple(std::move(items));
  }
  Object *o;
  Value v = c_.object(Kind::Descriptor, &o);
  o->shape = t.block;
  o->element = t.scalar;
  irTypes.push_back(tt::TensorDescType::get(c_.builder.getContext(), t.block, e_.s.irType(t.scalar)));
  for (size_t i = 0; i < t.block.size(); ++i) o->items.push_back(tensor(scalar(DT::I32)));
  for (size_t i = 0; i < t.block.size(); ++i) o->items.push_back(tensor(scalar(DT::I64)));
  return v;
}

Status Compilation::build(CompiledKernel &out, const std::vector<SigType> &types) {
  const std::vector<Param> &params = fn_->function->params;
  Frame frame;
  frame.module = module_;
  frame.function = fn_;
  frame.closure = fn_->closure;
  frame.kernel = frame.isEntry = true;
  frame.pos = fn_->pos;
  std::vector<mlir::Type> irTypes;
  std::vector<std::pair<size_t, Value>> runtime;
  c_.frame = &frame;
  for (size_t i = 0; i < params.size(); ++i) {
    KernelParam p;
    p.name = std::string(params[i].name);
    p.type = types[i].text;
    std::string hint;
    for (const NamedText &h : request_.hints)
      if (h.first == p.name) hint = h.second;
    if (types[i].kind == SigType::Constexpr || hint == "equal_to_1" || types[i].one) {
      Value v;
      if (Value *known = given(p.name)) v = *known;
      else if (types[i].kind != SigType::Constexpr) v = Value::integer(1);
      else if (params[i].fallback) v = e_.evalIn(module_, params[i].fallback);
      else if (p.name == "num_warps") v = Value::integer(out.numWarps);
      else if (p.name == "num_stages") v = Value::integer(out.numStages);
      else return at(params[i].pos, makeDiag(diag::TrMissingConstexpr, {}, p.name, info_.name, p.name));
      if (!v) return takeError(c_);
      p.value = repr(v);
      p.type = "constexpr";
      frame.locals.set(params[i].name, v);
    } else {
      p.firstArg = static_cast<unsigned>(irTypes.size());
      Value v = argument(types[i], irTypes);
      for (mlir::Type t : irTypes)
        if (!t) return takeError(c_);
      p.argCount = static_cast<unsigned>(irTypes.size()) - p.firstArg;
      bool pointer = types[i].kind == SigType::Plain && types[i].scalar.isPtr();
      p.divisibleBy16 = hint == "divisible_by_16" || types[i].divisible || (pointer && hint.empty() && !info_.params[i].doNotSpecialize);
      frame.locals.set(params[i].name, v);
      runtime.emplace_back(i, v);
    }
    out.params.push_back(std::move(p));
  }
  mlir::MLIRContext *ctx = c_.builder.getContext();
  mlir::Location loc = c_.loc();
  out.module = mlir::ModuleOp::create(loc);
  c_.builder.setInsertionPointToEnd(out.module->getBody());
  std::vector<mlir::DictionaryAttr> argAttrs(irTypes.size(), mlir::DictionaryAttr::get(ctx));
  for (const KernelParam &p : out.params)
    if (p.divisibleBy16 && p.argCount == 1)
      argAttrs[p.firstArg] = mlir::DictionaryAttr::get(ctx, {c_.builder.getNamedAttr("tt.divisibility", c_.builder.getI32IntegerAttr(16))});
  mlir::FunctionType type = mlir::FunctionType::get(ctx, irTypes, {});
  std::vector<mlir::NamedAttribute> attrs = {c_.builder.getNamedAttr("sym_visibility", c_.builder.getStringAttr("public")), c_.builder.getNamedAttr("noinline", c_.builder.getBoolAttr(false))};
  tt::FuncOp func = tt::FuncOp::create(c_.builder, loc, info_.name, type, attrs, argAttrs);
  mlir::Block *entry = func.getBody().empty() ? func.addEntryBlock() : &func.getBody().front();
  std::vector<mlir::Value> args(entry->args_begin(), entry->args_end());
  size_t next = 0;
  for (std::pair<size_t, Value> &r : runtime) {
    mlir::Location named = mlir::NameLoc::get(c_.builder.getStringAttr(params[r.first].name), mlir::FileLineColLoc::get(ctx, module_->path, static_cast<unsigned>(params[r.first].pos.line), static_cast<unsigned>(params[r.first].pos.column)));
    size_t before = next;
    frame.locals.set(params[r.first].name, e_.rebuild(r.second, args, next));
    for (size_t k = before; k < next; ++k) entry->getArgument(static_cast<unsigned>(k)).setLoc(named);
  }
  c_.builder.setInsertionPointToStart(entry);
  c_.frame = nullptr;
  if (!e_.kernelBody(frame)) return takeError(c_);
  c_.frame = &frame;
  e_.s.op("tt.return", {}, {});
  c_.frame = nullptr;
  return Status::ok();
}

/// Finds the kernel, gives its constexprs the values of the request, and checks that its hints speak of parameters.
Status Compilation::applyConstexprs() {
  if (Status s = findKernel(); !s) return s.takeError();
  Result<KernelInfo> info = describe(fn_);
  if (!info) return info.takeError();
  info_ = std::move(*info);
  for (const NamedText &k : request_.constexprs) {
    Result<Value> v = literal(k.first, k.second);
    if (!v) return v.takeError();
    if (!isParameter(k.first)) return unknownParameter(k.first);
    constexprs_.emplace_back(k.first, *v);
  }
  for (const NamedText &h : request_.hints) {
    if (!isParameter(h.first)) return unknownParameter(h.first);
    if (h.second != "divisible_by_16" && h.second != "equal_to_1" && h.second != "none") return fail(diag::TrHintValue, {}, h.second, h.first);
  }
  return Status::ok();
}

Result<std::vector<BoundParam>> Compilation::bind() {
  if (Status s = applyConstexprs(); !s) return s.takeError();
  if (Status s = applyConfig(); !s) return s.takeError();
  Result<std::vector<SigType>> types = signature();
  if (!types) return types.takeError();
  std::vector<BoundParam> out;
  for (size_t i = 0; i < types->size(); ++i) out.push_back({info_.params[i].name, (*types)[i].text, info_.params[i].doNotSpecialize});
  return out;
}

Result<CompiledKernel> Compilation::run() {
  if (Status s = applyConstexprs(); !s) return s.takeError();
  if (Status s = applyConfig(); !s) return s.takeError();
  if (Status s = applyHeuristics(); !s) return s.takeError();
  Result<std::vector<SigType>> types = signature();
  if (!types) return types.takeError();
  CompiledKernel out;
  out.name = info_.name;
  out.numWarps = request_.numWarps.value_or(numWarps_);
  out.numStages = request_.numStages.value_or(numStages_);
  DiagnosticCapture capture(c_.builder.getContext());
  if (Status s = build(out, *types); !s) return s.takeError();
  if (mlir::failed(mlir::verify(*out.module))) return capture.take(diag::TrBadIR, "a rule of the dialect");
  if (!request_.raw) {
    mlir::PassManager pm(c_.builder.getContext());
    pm.enableVerifier(false);
    // Once before: unrolled loops and inlined helpers repeat a lot, and the canonicaliser walks the body of an early return's scf.if
    // again for each change inside.
    pm.addPass(mlir::createCSEPass());
    pm.addPass(mlir::createCanonicalizerPass());
    pm.addPass(mlir::createCSEPass());
    if (mlir::failed(pm.run(*out.module))) return capture.take(diag::TrBadIR, "canonicalisation failed");
  }
  out.info = std::move(info_);
  return out;
}

} // namespace

Result<CompiledKernel> compileKernel(const KernelRequest &request, mlir::MLIRContext &context) {
  CodegenOptions options;
  options.debug = request.debug;
  return Compilation(request, context, options).run();
}

Result<std::vector<BoundParam>> bindSignature(const KernelRequest &request) {
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  return Compilation(request, context, {}).bind();
}

Result<std::vector<KernelInfo>> listKernels(const std::string &path, const std::vector<std::string> &searchPaths) {
  KernelRequest request;
  request.path = path;
  request.searchPaths = searchPaths;
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  return Compilation(request, context, {}).list();
}

Result<std::vector<int64_t>> evaluateGrid(const std::string &text, const std::vector<NamedText> &values) {
  std::string program = "import triton\nimport triton.language as tl\nimport math\n";
  std::string dict;
  for (const NamedText &v : values) {
    program += v.first + " = " + v.second + "\n";
    dict += "'" + v.first + "': " + v.second + ", ";
  }
  program += "__meta = {" + dict + "}\n__grid = " + text + "\n";
  Result<std::shared_ptr<SyntaxTree>> tree = parse(std::make_shared<Source>("<grid>", program));
  if (!tree) return tree.takeError();
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  Loader loader({});
  Context c(&context);
  Evaluator e(c, loader, {});
  Module m;
  m.path = "<grid>";
  m.tree = *tree;
  Value grid = e.runModule(m, "__grid");
  if (grid.kind == Kind::Function) grid = e.callIn(m, grid, {e.global(&m, "__meta")});
  if (grid.isIntLike()) grid = c.tuple({grid});
  if (c.error) return Error(*c.error);
  if (!grid.isSequence() || grid.items().empty() || grid.items().size() > 3) return fail(diag::TrConstexprValue, {}, text, "grid");
  std::vector<int64_t> out(3, 1);
  for (size_t i = 0; i < grid.items().size(); ++i) {
    if (!grid.items()[i].isIntLike()) return fail(diag::TrConstexprValue, {}, text, "grid");
    out[i] = static_cast<int64_t>(grid.items()[i].i);
  }
  return out;
}

} // namespace neso::triton
