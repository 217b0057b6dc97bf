// Calls: of builtins, of functions with their arguments bound, of classes; decorators as calls.
#include "base/diagnostics/triton.h"
#include "frontend/triton/evaluator.h"

#include <algorithm>

namespace neso::triton {

static bool isNamed(const Value &v, const char *name) {
  return v.kind == Kind::Builtin && std::string_view(static_cast<const Builtin *>(v.data)->name) == name;
}

static bool isDecorator(const Value &v) {
  return isNamed(v, "triton.jit") || isNamed(v, "triton.autotune") || isNamed(v, "triton.heuristics");
}

Value Evaluator::evalCall(Expr *e) {
  Value fn = eval(e->items[0]);
  if (!fn) return fn;
  if (fn.kind == Kind::Opaque && !c.frame->kernel) return c.opaque("the result of " + fn.o->text);
  CallArgs args;
  // The message of a static_assert is read only when it fails.
  bool lazy = isNamed(fn, "tl.static_assert");
  for (size_t i = 1; i < e->items.size(); ++i) {
    Expr *a = e->items[i];
    if (lazy && i == 2 && !args.positional.empty() && args.positional[0].kind == Kind::Bool && args.positional[0].i)
      break;
    if (a->kind == ExprKind::Starred) {
      Value v = eval(a->items[0]);
      std::optional<std::vector<Value>> all = v ? iterate(v) : std::nullopt;
      if (!all) return {};
      args.positional.insert(args.positional.end(), all->begin(), all->end());
      continue;
    }
    args.positional.push_back(eval(a));
    if (!args.positional.back()) return {};
  }
  for (const Keyword &k : e->keywords) {
    Value v = eval(k.value);
    if (!v) return v;
    if (!k.name.empty()) {
      args.named.emplace_back(k.name, v);
      continue;
    }
    // Decorators take options of caching from elsewhere this way; nothing in them changes what the kernel computes.
    if (v.kind == Kind::Opaque && isNamed(fn, "triton.autotune")) continue;
    if (v.kind != Kind::Dict)
      return c.frame->kernel ? c.fail(diag::TrUnsupported, k.pos, "'**' of a non-dict", "name the arguments")
                             : c.opaque("a call");
    for (size_t i = 0; i + 1 < v.items().size(); i += 2)
      if (v.items()[i].kind == Kind::Str) args.named.emplace_back(c.internText(v.items()[i].str()), v.items()[i + 1]);
  }
  // autotune(…)(fn) gives a decorated copy of fn.
  if (e->items[0]->kind == ExprKind::Call && isDecorator(fn) && args.positional.size() == 1 &&
      args.positional[0].kind == Kind::Function) {
    Object *from = args.positional[0].o, *o;
    Value out = c.object(Kind::Function, &o);
    *o = *from;
    if (from->closure == &from->members) o->closure = &o->members;
    o->decorators.insert(o->decorators.begin(), {e->items[0], c.frame->module});
    o->jit |= isNamed(fn, "triton.jit");
    return out;
  }
  return call(fn, std::move(args));
}

Value Evaluator::call(const Value &fn, CallArgs args) {
  if (c.error || !fn) return {};
  switch (fn.kind) {
  case Kind::Builtin: return callBuiltin(*static_cast<const Builtin *>(fn.data), args);
  case Kind::Method:
    args.positional.insert(args.positional.begin(), fn.items()[0]);
    return call(fn.items()[1], std::move(args));
  case Kind::Function: return callFunction(fn.o, args, c.frame->pos);
  case Kind::Class: return instantiate(fn.o, args);
  case Kind::DType:
    // tl.float32(x) and the like are casts in older kernels.
    if (args.positional.size() == 1) return call(language("tl.cast"), {args.positional[0], fn});
    break;
  case Kind::Opaque:
    return c.frame->kernel ? c.fail(diag::TrOpaque, fn.o->text) : c.opaque("the result of " + fn.o->text);
  case Kind::Namespace:
    return c.frame->kernel ? c.fail(diag::TrOpaque, static_cast<const char *>(fn.data))
                           : c.opaque(static_cast<const char *>(fn.data));
  case Kind::Instance:
    if (Value *m = fn.o->cls->members.find("__call__")) {
      args.positional.insert(args.positional.begin(), fn);
      return call(*m, std::move(args));
    }
    break;
  default: break;
  }
  return c.fail(diag::TrNotCallable, typeName(fn));
}

namespace {

/// Binds the arguments of a call to the parameters that a function of the language lists.
class BuiltinArguments {
public:
  BuiltinArguments(Context &c, const Builtin &b, CallArgs &args)
      : c_(c), args_(args), rest_(b.params), function_(b.name) {
    function_ = function_.substr(function_.rfind('.') + 1);
  }

  /// False after an error was reported.
  bool bind(std::vector<Value> &out) {
    while (!rest_.empty())
      if (!bindNext(out)) return false;
    if (next_ < args_.positional.size()) return error(diag::TrTooManyArguments, args_.positional.size());
    if (usedNamed_ < args_.named.size())
      for (const auto &[name, value] : args_.named) {
        bool internal = name == "_builder" || name == "_semantic" || name == "_generator";
        if (!isParameter(name) && !internal) return error(diag::TrUnexpectedArgument, name);
      }
    return true;
  }

private:
  template <typename Row, typename... Values> bool error(const Row &row, const Values &...values) {
    c_.fail(row, function_, values...);
    return false;
  }
  bool isParameter(std::string_view name) const { return std::find(names_.begin(), names_.end(), name) != names_.end(); }

  std::string_view takeParameter() {
    size_t comma = rest_.find(',');
    std::string_view p = rest_.substr(0, comma);
    rest_ = comma == std::string_view::npos ? std::string_view{} : rest_.substr(comma + 1);
    while (!p.empty() && p.front() == ' ') p.remove_prefix(1);
    return p;
  }

  bool bindNext(std::vector<Value> &out) {
    std::string_view p = takeParameter();
    if (p == "*") {
      keywordOnly_ = true;
      return true;
    }
    if (p.starts_with("**")) {
      out.push_back(otherNamed());
      return true;
    }
    if (p.starts_with("*")) {
      out.push_back(otherPositional(p.substr(1)));
      return true;
    }
    return bindOne(p, out);
  }

  /// "name" or "name=default".
  bool bindOne(std::string_view p, std::vector<Value> &out) {
    size_t eq = p.find('=');
    std::string_view name = p.substr(0, eq);
    names_.push_back(name);
    const Value *named = nullptr;
    for (std::pair<std::string_view, Value> &n : args_.named)
      if (n.first == name) named = &n.second;
    if (named) ++usedNamed_;
    if (!keywordOnly_ && next_ < args_.positional.size()) {
      if (named) return error(diag::TrRepeatedArgument, name);
      out.push_back(args_.positional[next_++]);
    } else if (named) {
      out.push_back(*named);
    } else if (eq != std::string_view::npos) {
      out.push_back(defaultOf(p.substr(eq + 1)));
    } else {
      return error(diag::TrMissingArgument, name);
    }
    return true;
  }

  Value defaultOf(std::string_view text) {
    if (text == "None") return Value::none();
    if (text == "True" || text == "False") return Value::boolean(text == "True");
    if (text == "()") return c_.tuple({});
    if (text.size() >= 2 && text[0] == '\'') return c_.str(std::string(text.substr(1, text.size() - 2)));
    if (text == "fp32") return c_.dtype(scalar(DT::F32));
    return Value::integer(std::atoi(std::string(text).c_str()));
  }

  /// "**rest": a dict of the named arguments that no parameter took.
  Value otherNamed() {
    std::vector<Value> items;
    for (std::pair<std::string_view, Value> &n : args_.named)
      if (!isParameter(n.first)) {
        items.push_back(c_.str(std::string(n.first)));
        items.push_back(n.second);
        ++usedNamed_;
      }
    return c_.list(Kind::Dict, std::move(items));
  }

  /// "*rest": a tuple of the positional arguments that no parameter took. Older Tritons named these parameters.
  Value otherPositional(std::string_view name) {
    for (std::pair<std::string_view, Value> &n : args_.named)
      if (n.first == name && next_ >= args_.positional.size()) {
        args_.positional.push_back(n.second);
        names_.push_back(n.first);
        ++usedNamed_;
      }
    const size_t from = std::min(next_, args_.positional.size());
    std::vector<Value> items(args_.positional.begin() + static_cast<std::ptrdiff_t>(from), args_.positional.end());
    next_ = args_.positional.size();
    keywordOnly_ = true;
    return c_.tuple(std::move(items));
  }

  Context &c_;
  CallArgs &args_;
  std::string_view rest_, function_; // parameters that are still to come; the function's name
  std::vector<std::string_view> names_;
  bool keywordOnly_ = false;
  size_t next_ = 0, usedNamed_ = 0;
};

} // namespace

Value Evaluator::callBuiltin(const Builtin &b, CallArgs &args) {
  // Opaque arguments make an opaque result at module level.
  if (!c.frame->kernel)
    for (const Value &v : args.positional)
      if (v.kind == Kind::Opaque && std::string_view(b.name) != "builtins.isinstance" &&
          !std::string_view(b.name).starts_with("triton."))
        return v;
  std::vector<Value> bound;
  if (!BuiltinArguments(c, b, args).bind(bound)) return {};
  return b.fn(*this, b, bound);
}

bool Evaluator::bind(Object *fn, CallArgs &args, Scope &out) {
  FunctionNode *node = fn->function;
  size_t next = 0, usedNamed = 0;
  for (const Param &p : node->params) {
    if (p.kind == Param::Star) {
      std::vector<Value> items(args.positional.begin() +
                                   static_cast<std::ptrdiff_t>(std::min(next, args.positional.size())),
                               args.positional.end());
      next = args.positional.size();
      out.set(p.name, c.tuple(std::move(items)));
      continue;
    }
    if (p.kind == Param::DoubleStar) {
      std::vector<Value> items;
      for (std::pair<std::string_view, Value> &n : args.named) {
        bool taken = false;
        for (const Param &q : node->params) taken |= q.name == n.first;
        if (taken) continue;
        items.push_back(c.str(std::string(n.first)));
        items.push_back(n.second);
        ++usedNamed;
      }
      out.set(p.name, c.list(Kind::Dict, std::move(items)));
      continue;
    }
    const Value *named = nullptr;
    for (std::pair<std::string_view, Value> &n : args.named)
      if (n.first == p.name) named = &n.second;
    if (named) ++usedNamed;
    Value v;
    if (p.kind == Param::Plain && next < args.positional.size()) {
      if (named) {
        c.fail(diag::TrRepeatedArgument, fn->text, p.name);
        return false;
      }
      v = args.positional[next++];
    } else if (named) {
      v = *named;
    } else if (p.fallback) {
      v = evalIn(fn->module, p.fallback);
      if (!v) return false;
    } else {
      c.fail(diag::TrMissingArgument, fn->text, p.name);
      return false;
    }
    out.set(p.name, v);
  }
  if (next < args.positional.size()) {
    c.fail(diag::TrTooManyArguments, fn->text, args.positional.size());
    return false;
  }
  if (usedNamed < args.named.size())
    for (std::pair<std::string_view, Value> &n : args.named)
      if (!out.find(n.first)) {
        c.fail(diag::TrUnexpectedArgument, fn->text, n.first);
        return false;
      }
  return true;
}

Value Evaluator::evalIn(Module *m, Expr *e) {
  Frame f;
  f.module = m;
  f.parent = c.frame;
  f.pos = e->pos;
  c.frame = &f;
  Value v = eval(e);
  c.frame = f.parent;
  return v;
}

static bool holdsRuntime(const Value &v) {
  return v.isRuntime() || ((v.isSequence() || v.kind == Kind::Dict) && llvm::any_of(v.items(), holdsRuntime));
}

Value Evaluator::callFunction(Object *fn, CallArgs &args, Pos pos) {
  bool kernel = c.frame->kernel;
  if (kernel && !fn->jit && !fn->constexprFunction && !fn->builtinFunction && !(fn->function->expr && fn->closure))
    return c.fail(diag::TrPlainFunction, fn->text);
  if (!kernel && fn->jit) return c.opaque("a call of kernel " + fn->text);
  Scope locals;
  if (!bind(fn, args, locals)) return {};
  if (kernel && fn->jit) return inlineCall(fn, std::move(locals), pos);
  Frame f;
  f.module = fn->module;
  f.function = fn;
  f.parent = c.frame;
  f.locals = std::move(locals);
  f.closure = fn->closure;
  f.pos = fn->function->pos;
  f.result = Value::none();
  f.emits = kernel ? fn->builtinFunction : c.frame->emits;
  c.frame = &f;
  Value result;
  if (++depth_ > 1400) {
    result = c.fail(diag::PyTooDeep, pos, "calls", 1400);
  } else if (fn->function->expr) {
    result = eval(fn->function->expr);
  } else {
    Flow flow = runBlock(fn->function->body);
    result = flow == Flow::Fail ? Value{} : f.result;
  }
  // It may ask a run-time value for its type; neither the value nor what is computed with it comes back, but from what Triton calls with both.
  if (result && !f.emits && holdsRuntime(result)) result = c.failRuntime();
  --depth_;
  c.frame = f.parent;
  return c.error ? Value{} : result;
}

} // namespace neso::triton
