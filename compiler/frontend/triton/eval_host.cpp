// Statements at module level and in compile-time functions: plain Python, run by the interpreter.
#include "base/diagnostics/triton.h"
#include "frontend/triton/evaluator.h"

#include <filesystem>

namespace neso::triton {

bool Evaluator::step() {
  if (++steps_ <= 2000000) return true;
  c.fail(diag::TrTooManySteps, 2000000);
  return false;
}

Module *Evaluator::standard() {
  if (standard_) return standard_;
  Result<Module *> m = loader_.loadStandard();
  if (!m) {
    if (!c.error) c.error = m.error().diagnostics()[0];
    return nullptr;
  }
  standard_ = *m;
  if (!standard_->ready) {
    standard_->ready = true;
    Frame f;
    f.module = standard_;
    f.parent = c.frame;
    c.frame = &f;
    for (Stmt *st : standard_->tree->body) moduleStatement(st);
    c.frame = f.parent;
  }
  return standard_;
}

Value Evaluator::runModule(Module &m, std::string_view name) {
  Frame f;
  f.module = &m;
  f.parent = c.frame;
  c.frame = &f;
  for (Stmt *st : m.tree->body)
    if (run(st) == Flow::Fail) break;
  c.frame = f.parent;
  return c.error ? Value{} : global(&m, name);
}

Value Evaluator::callIn(Module &m, const Value &fn, std::vector<Value> args) {
  Frame f;
  f.module = &m;
  f.parent = c.frame;
  c.frame = &f;
  Value v = call(fn, std::move(args));
  c.frame = f.parent;
  return v;
}

std::string notKnown(const Diagnostic &error) {
  return fmt::format("not known at compile time: line {} says \"{}\"", error.loc.line, error.message);
}

/// The kernel of `kernel = tuner(…)(kernel)`, a decorator written as a call; none for other statements.
static Value wrappedKernel(const Stmt &st, Scope &globals) {
  if (st.kind != StmtKind::Assign || st.exprs.size() != 1 || st.exprs[0]->kind != ExprKind::Name || st.value->kind != ExprKind::Call) return {};
  const std::string_view name = st.exprs[0]->text;
  const auto isName = [&](const Expr *e) { return e->kind == ExprKind::Name && e->text == name; };
  const Value *held = globals.find(name);
  const bool isKernel = held && held->kind == Kind::Function && held->o->jit;
  return isKernel && std::any_of(st.value->items.begin() + 1, st.value->items.end(), isName) ? *held : Value{};
}

/// Runs one statement of a module. What fails binds its names to an Opaque value and is forgotten, except in our own
/// library. What wraps a kernel and is not known may say how it is launched, not what it computes: as a decorator that is not known.
void Evaluator::moduleStatement(Stmt *st) {
  // Globals are the locals of the module's frame.
  c.frame->pos = st->pos;
  bool strict = c.frame->module->standard;
  Scope &globals = c.frame->module->globals;
  const Value kernel = wrappedKernel(*st, globals);
  Flow flow = run(st);
  if (flow == Flow::Fail && !strict && c.error && info(c.error->kind).severity == Severity::Error) {
    std::string why = notKnown(*c.error);
    c.error.reset();
    bindOpaque(st, why);
  }
  if (kernel)
    if (const Value *now = globals.find(st->exprs[0]->text); now && now->kind == Kind::Opaque) globals.set(st->exprs[0]->text, kernel);
}

/// Names that the statement would have bound are not known, whatever they were before.
void Evaluator::bindOpaque(Stmt *st, const std::string &why) {
  std::vector<Stmt *> one = {st};
  for (std::string_view name : assignedNames(one)) c.frame->module->globals.set(name, c.opaque(why));
}

Scope &scopeOf(Frame &f) { return f.function ? f.locals : f.module->globals; }

bool Evaluator::assign(Expr *target, const Value &v) {
  switch (target->kind) {
  case ExprKind::Name:
    if (c.frame->kernel || c.frame->function)
      c.frame->locals.set(target->text, v);
    else
      c.frame->module->globals.set(target->text, v);
    return true;
  case ExprKind::Tuple:
  case ExprKind::List: return unpack(target, v);
  case ExprKind::Starred: return assign(target->items[0], v);
  case ExprKind::Subscript: {
    if (c.frame->kernel) {
      c.fail(diag::TrSetItem, target->pos);
      return false;
    }
    Value base = eval(target->items[0]);
    if (!base) return false;
    if (base.kind == Kind::Opaque) return true;
    Value index = eval(target->items[1]);
    if (!index) return false;
    if (base.kind == Kind::Dict) {
      for (size_t i = 0; i + 1 < base.items().size(); i += 2)
        if (equals(base.items()[i], index)) {
          base.items()[i + 1] = v;
          return true;
        }
      base.items().push_back(index);
      base.items().push_back(v);
      return true;
    }
    if (base.kind == Kind::List && index.isIntLike()) {
      __int128 n = static_cast<__int128>(base.items().size()), i = index.i < 0 ? index.i + n : index.i;
      if (i >= 0 && i < n) {
        base.items()[static_cast<size_t>(i)] = v;
        return true;
      }
    }
    c.fail(diag::TrSetItem, target->pos);
    return false;
  }
  case ExprKind::Attribute: {
    Value base = eval(target->items[0]);
    if (!base) return false;
    // The fields of an aggregate are set in its constructor. Later a branch or a loop would change them for all that name the object, whether
    // it runs or not.
    if (base.kind == Kind::Instance && !(c.frame->kernel && base.o->sealed)) {
      for (size_t i = 0; i < base.o->fields.size(); ++i)
        if (base.o->fields[i] == target->text) {
          base.o->items[i] = v;
          return true;
        }
      base.o->fields.emplace_back(target->text);
      base.o->items.push_back(v);
      return true;
    }
    if (c.frame->kernel) {
      c.fail(diag::TrSetAttribute, target->pos, target->text);
      return false;
    }
    if (base.kind == Kind::Class) base.o->members.set(target->text, v);
    return true;
  }
  default: c.fail(diag::PyBadTarget, target->pos); return false;
  }
}

bool Evaluator::unpack(Expr *target, const Value &v) {
  if (v.kind == Kind::Opaque) {
    for (Expr *t : target->items)
      if (!assign(t, v)) return false;
    return true;
  }
  if (!v.isSequence() && v.kind != Kind::Str && v.kind != Kind::Dict && v.kind != Kind::Range) {
    c.fail(diag::TrUnpack, target->pos, typeName(v));
    return false;
  }
  std::optional<std::vector<Value>> all = iterate(v);
  if (!all) return false;
  size_t n = target->items.size(), star = n;
  for (size_t i = 0; i < n; ++i)
    if (target->items[i]->kind == ExprKind::Starred) star = i;
  if (star < n && c.frame->kernel) {
    c.fail(diag::TrUnsupported, target->items[star]->pos, "a starred target", "name each element");
    return false;
  }
  if (star == n ? all->size() != n : all->size() + 1 < n) {
    if (all->size() > n)
      c.fail(diag::TrUnpackCount, target->pos, n, all->size());
    else
      c.fail(diag::TrUnpackFew, target->pos, n, all->size());
    return false;
  }
  size_t extra = all->size() + 1 - n, at = 0;
  for (size_t i = 0; i < n; ++i) {
    Value item;
    if (i == star) {
      item = c.list(Kind::List, std::vector<Value>(all->begin() + static_cast<std::ptrdiff_t>(at),
                                                   all->begin() + static_cast<std::ptrdiff_t>(at + extra)));
      at += extra;
    } else {
      item = (*all)[at++];
    }
    if (!assign(target->items[i], item)) return false;
  }
  return true;
}

Evaluator::Flow Evaluator::runBlock(llvm::ArrayRef<Stmt *> stmts) {
  for (Stmt *st : stmts) {
    Flow f = run(st);
    if (f != Flow::Next) return f;
  }
  return Flow::Next;
}

/// The class `cls` names itself or one of its bases `name`: "NamedTuple", "Enum".
static bool hasBase(Stmt *st, std::string_view name) {
  for (Expr *b : st->exprs)
    if (b->text == name) return true;
  return false;
}

Evaluator::Flow Evaluator::defineClass(Stmt *st) {
  Object *o;
  Value cls = c.object(Kind::Class, &o);
  o->text = std::string(st->text);
  o->module = c.frame->module;
  o->namedTuple = hasBase(st, "NamedTuple");
  for (Expr *d : st->decorators) {
    Value v = eval(d->kind == ExprKind::Call ? d->items[0] : d);
    c.error.reset();
    if (v.kind == Kind::Builtin && std::string_view(static_cast<const Builtin *>(v.data)->name) == "tl._aggregate")
      o->aggregate = true;
    if (d->text == "aggregate" || d->text == "_aggregate" || d->text == "dataclass" ||
        (d->kind == ExprKind::Call && d->items[0]->text == "dataclass"))
      o->aggregate = true;
  }
  for (Expr *b : st->exprs) {
    Value base = eval(b);
    c.error.reset();
    if (base.kind != Kind::Class) continue;
    o->fields = base.o->fields;
    o->items = base.o->items;
    o->members = base.o->members;
    o->aggregate |= base.o->aggregate;
    o->namedTuple |= base.o->namedTuple;
  }
  for (Stmt *m : st->body) {
    if (m->kind == StmtKind::AnnAssign && m->exprs[0]->kind == ExprKind::Name) {
      o->fields.emplace_back(m->exprs[0]->text);
      o->items.push_back(m->value ? eval(m->value) : Value{});
      if (c.error) return Flow::Fail;
    } else if (m->kind == StmtKind::Function) {
      Value f = define(m->function);
      if (f) o->members.set(m->text, f);
    } else if (m->kind == StmtKind::Assign && m->exprs[0]->kind == ExprKind::Name) {
      Value v = eval(m->value);
      if (c.error) {
        v = c.opaque("a member of class " + o->text);
        c.error.reset();
      }
      v.wrapped = true;
      o->members.set(m->exprs[0]->text, v);
    }
  }
  scopeOf(*c.frame).set(st->text, cls);
  return Flow::Next;
}

Value Evaluator::instantiate(Object *cls, CallArgs &args) {
  auto make = [&](Object **out) {
    Value v = c.object(cls->namedTuple ? Kind::Tuple : Kind::Instance, out);
    (*out)->cls = cls;
    (*out)->namedTuple = cls->namedTuple;
    return v;
  };
  Object *o;
  Value *init = cls->members.find("__init__");
  if (init && init->kind == Kind::Function) {
    Value v = make(&o);
    args.positional.insert(args.positional.begin(), v);
    // A constructor sets fields of its self; it runs in the caller's mode.
    bool jit = init->o->jit;
    init->o->jit = c.frame->kernel;
    Value done = call(*init, std::move(args));
    init->o->jit = jit;
    v.o->sealed = true;
    return done ? v : done;
  }
  if (cls->fields.empty() && !cls->aggregate && !cls->namedTuple)
    return c.frame->kernel ? c.fail(diag::TrClass, cls->text) : c.opaque("an object of class " + cls->text);
  Value v = make(&o);
  o->fields = cls->fields;
  o->sealed = true;
  for (const std::pair<std::string_view, Value> &n : args.named) {
    std::vector<std::string>::const_iterator at = std::find(cls->fields.begin(), cls->fields.end(), n.first);
    if (at == cls->fields.end()) return c.fail(diag::TrUnexpectedArgument, cls->text, n.first);
    if (static_cast<size_t>(at - cls->fields.begin()) < args.positional.size())
      return c.fail(diag::TrRepeatedArgument, cls->text, n.first);
  }
  size_t next = 0;
  for (size_t i = 0; i < cls->fields.size(); ++i) {
    Value field = cls->items[i];
    if (next < args.positional.size()) field = args.positional[next++];
    for (std::pair<std::string_view, Value> &n : args.named)
      if (n.first == cls->fields[i]) field = n.second;
    if (!field) return c.fail(diag::TrMissingArgument, cls->text, cls->fields[i]);
    o->items.push_back(field);
  }
  if (next < args.positional.size()) return c.fail(diag::TrTooManyArguments, cls->text, args.positional.size());
  return v;
}

/// Whether a decorator marks what it is given as Triton marks its own functions: X.__triton_builtin__ = True.
static bool marksBuiltins(llvm::ArrayRef<Stmt *> body) {
  return llvm::any_of(body, [](const Stmt *st) {
    const bool marks = st->kind == StmtKind::Assign && llvm::any_of(st->exprs, [](const Expr *e) {
      return e->kind == ExprKind::Attribute && e->text == "__triton_builtin__";
    });
    return marks || marksBuiltins(st->body) || marksBuiltins(st->orelse);
  });
}

/// A function object with what its decorators say. Decorators we do not know leave the function as it is.
Value Evaluator::define(FunctionNode *f) {
  Object *o;
  Value fn = c.object(Kind::Function, &o);
  o->text = std::string(f->name);
  o->function = f;
  o->module = c.frame->module;
  o->pos = f->pos;
  for (Expr *d : f->decorators) o->decorators.emplace_back(d, o->module);
  if (c.frame->function || c.frame->closure) {
    o->members = c.frame->locals;
    if (c.frame->closure)
      for (std::pair<std::string_view, Value> &e : c.frame->closure->entries)
        if (!o->members.find(e.first)) o->members.set(e.first, e.second);
    o->closure = &o->members;
  }
  for (size_t i = f->decorators.size(); i-- > 0;) {
    Expr *d = f->decorators[i];
    Expr *callee = d->kind == ExprKind::Call ? d->items[0] : d;
    Value v = eval(callee);
    if (c.error) {
      c.error.reset();
      continue;
    }
    if (v.kind == Kind::Function) o->builtinFunction |= marksBuiltins(v.o->function->body);
    if (v.kind != Kind::Builtin) continue;
    std::string_view name = static_cast<const Builtin *>(v.data)->name;
    if (name == "triton.jit") o->jit = true;
    if (name == "tl.builtin") o->builtinFunction = true;
    // A constexpr of a function is called as the function is.
    if (name == "triton.constexpr_function" || name == "triton.runtime.jit.constexpr_function" ||
        name == "tl.constexpr_function" || name == "tl.constexpr")
      o->constexprFunction = true;
    if (name == "triton.jit" && d->kind == ExprKind::Call)
      for (const Keyword &k : d->keywords)
        if (k.name == "noinline" && k.value->kind == ExprKind::True) o->noinline = true;
  }
  return fn;
}

Evaluator::Flow Evaluator::runAugAssign(Stmt *st) {
  Value old = eval(st->exprs[0]);
  if (!old) return Flow::Fail;
  Value v = eval(st->value);
  if (!v) return Flow::Fail;
  if (old.kind == Kind::List && st->op == OpKind::Add && v.isSequence()) {
    old.items().insert(old.items().end(), v.items().begin(), v.items().end());
    return Flow::Next;
  }
  v = binary(st->op, old, v);
  return v && assign(st->exprs[0], v) ? Flow::Next : Flow::Fail;
}

Evaluator::Flow Evaluator::runAnnAssign(Stmt *st) {
  if (!st->value) return Flow::Next;
  Value v = eval(st->value);
  if (!v) return Flow::Fail;
  // Older Tritons let `X: tl.constexpr = 1` mark a global.
  Value annotation = eval(st->annotation);
  c.error.reset();
  if (annotation.kind == Kind::Builtin &&
      std::string_view(static_cast<const Builtin *>(annotation.data)->name) == "tl.constexpr")
    v.wrapped = true;
  return assign(st->exprs[0], v) ? Flow::Next : Flow::Fail;
}

/// False, with an error, where only a run could know it.
bool Evaluator::decided(const Value &v) {
  if (!v) return false;
  if (v.kind != Kind::Opaque && !v.isRuntime()) return true;
  if (v.isRuntime())
    c.failRuntime();
  else
    c.fail(diag::TrOpaque, v.o->text);
  return false;
}

/// Definitions of one name are taken for ways to say the same; values are facts, and may differ.
static bool isDefinition(const Value &v) {
  switch (v.kind) {
  case Kind::Function:
  case Kind::Builtin:
  case Kind::Method:
  case Kind::Module:
  case Kind::Namespace:
  case Kind::Class: return true;
  default: return false;
  }
}

/// Both branches of a module's `if` that cannot be decided. A name that one of them defines is that, the first branch's before the other's;
/// a name that would have another value after one branch than after the other is not known.
Evaluator::Flow Evaluator::runBoth(Stmt *st, const Value &condition) {
  Module *m = c.frame->module;
  const Scope before = m->globals;
  auto run = [&](const std::vector<Stmt *> &branch) {
    for (Stmt *inner : branch) moduleStatement(inner);
  };
  run(st->orelse);
  if (c.error) return Flow::Fail;
  Scope other = std::exchange(m->globals, before);
  run(st->body);
  if (c.error) return Flow::Fail;
  for (std::pair<std::string_view, Value> &g : other.entries) {
    const Value *there = m->globals.find(g.first);
    if (!there) {
      m->globals.set(g.first, g.second);
      continue;
    }
    if (there->kind == g.second.kind && equals(*there, g.second)) continue;
    // An import is what it brings.
    const Value first = resolved(m, g.first, *there), second = resolved(m, g.first, g.second);
    const bool same = equals(first, second) && first.wrapped == second.wrapped;
    m->globals.set(g.first, isDefinition(first) || same ? first
                            : isDefinition(second)
                                ? second
                                : c.opaque(fmt::format("'{}', which line {} sets by a condition that asks for {}", g.first,
                                                       st->pos.line, condition.o->text)));
  }
  return Flow::Next;
}

Evaluator::Flow Evaluator::runIf(Stmt *st) {
  const bool moduleLevel = !c.frame->function;
  Value cond = eval(st->value);
  if (!cond) return Flow::Fail;
  if (cond.kind == Kind::Opaque && moduleLevel) return runBoth(st, cond);
  if (!decided(cond)) return Flow::Fail;
  const std::vector<Stmt *> &branch = truthy(cond) ? st->body : st->orelse;
  // In a `try` what fails is for its handler to see.
  if (!moduleLevel || guarded_ != 0) return runBlock(branch);
  for (Stmt *inner : branch) moduleStatement(inner);
  return c.error ? Flow::Fail : Flow::Next;
}

Evaluator::Flow Evaluator::runWhile(Stmt *st) {
  while (true) {
    Value cond = eval(st->value);
    if (!cond || !step() || !decided(cond)) return Flow::Fail;
    if (!truthy(cond)) break;
    Flow f = runBlock(st->body);
    if (f == Flow::Break) return Flow::Next;
    if (f == Flow::Return || f == Flow::Fail) return f;
  }
  return runBlock(st->orelse);
}

Evaluator::Flow Evaluator::runFor(Stmt *st) {
  Value source = eval(st->value);
  if (!decided(source)) return Flow::Fail;
  std::optional<std::vector<Value>> all = iterate(source);
  if (!all) return Flow::Fail;
  for (const Value &v : *all) {
    if (!assign(st->exprs[0], v)) return Flow::Fail;
    Flow f = runBlock(st->body);
    if (f == Flow::Break) return Flow::Next;
    if (f == Flow::Return || f == Flow::Fail) return f;
  }
  return runBlock(st->orelse);
}

/// Whether Python would have raised, as opposed to what is not known at compile time.
static bool isException(Diag kind) {
  return kind == diag::TrRaised || kind == diag::TrAssertion || kind == diag::TrNoMember || kind == diag::TrUndefined ||
         kind == diag::TrKey || kind == diag::TrIndexRange;
}

Evaluator::Flow Evaluator::runTry(Stmt *st) {
  // A handler stands in for what failed.
  const bool handled = !st->handlers.empty();
  guarded_ += handled;
  Flow f = Flow::Next;
  for (Stmt *inner : st->body) {
    f = run(inner);
    // What a module cannot know at compile time is taken to work where it runs.
    if (f == Flow::Fail && handled && !c.frame->function && c.error && !isException(c.error->kind)) {
      std::string why = notKnown(*c.error);
      c.error.reset();
      bindOpaque(inner, why);
      f = Flow::Next;
    }
    if (f != Flow::Next) break;
  }
  guarded_ -= handled;
  if (f == Flow::Fail && handled && c.error && isException(c.error->kind)) {
    c.error.reset();
    f = runBlock(st->handlers[0]);
  } else if (f == Flow::Next) {
    f = runBlock(st->orelse);
  }
  if (f == Flow::Fail || st->finalbody.empty()) return f;
  Flow last = runBlock(st->finalbody);
  return last == Flow::Next ? f : last;
}

Evaluator::Flow Evaluator::runAssert(Stmt *st) {
  Value v = eval(st->value);
  if (!v) return Flow::Fail;
  if (v.kind == Kind::Opaque || truthy(v)) return Flow::Next;
  Value m = st->exprs.empty() ? c.str("") : eval(st->exprs[0]);
  c.fail(diag::TrAssertion, st->pos, m ? toStr(m) : "");
  return Flow::Fail;
}

/// Python's exceptions are no values here; their name and first argument tell what went wrong.
Evaluator::Flow Evaluator::runRaise(Stmt *st) {
  std::string what = "an exception";
  Expr *raised = st->exprs.empty() ? nullptr : st->exprs[0];
  if (raised && raised->kind == ExprKind::Call && raised->items[0]->kind == ExprKind::Name) {
    what = raised->items[0]->text;
    if (raised->items.size() > 1)
      if (Value message = eval(raised->items[1])) what += ": " + toStr(message);
  } else if (Value v = raised ? eval(raised) : Value{}) {
    what = toStr(v);
  }
  if (!c.error) c.fail(diag::TrRaised, st->pos, what);
  return Flow::Fail;
}

Evaluator::Flow Evaluator::run(Stmt *st) {
  if (c.error || !step()) return Flow::Fail;
  c.frame->pos = st->pos;
  switch (st->kind) {
  case StmtKind::Function: {
    Value v = define(st->function);
    if (v) scopeOf(*c.frame).set(st->text, v);
    return v ? Flow::Next : Flow::Fail;
  }
  case StmtKind::Class: return defineClass(st);
  case StmtKind::Return:
    c.frame->result = st->value ? eval(st->value) : Value::none();
    return c.frame->result ? Flow::Return : Flow::Fail;
  case StmtKind::Assign: {
    Value v = eval(st->value);
    if (!v) return Flow::Fail;
    for (Expr *t : st->exprs)
      if (!assign(t, v)) return Flow::Fail;
    return Flow::Next;
  }
  case StmtKind::AugAssign: return runAugAssign(st);
  case StmtKind::AnnAssign: return runAnnAssign(st);
  case StmtKind::Expr: return eval(st->value) ? Flow::Next : Flow::Fail;
  case StmtKind::If: return runIf(st);
  case StmtKind::While: return runWhile(st);
  case StmtKind::For: return runFor(st);
  case StmtKind::Try: return runTry(st);
  case StmtKind::With:
    for (Expr *t : st->targets)
      if (t && !assign(t, c.opaque("a 'with' target"))) return Flow::Fail;
    return runBlock(st->body);
  case StmtKind::Import:
  case StmtKind::ImportFrom: return import(st);
  case StmtKind::Assert: return runAssert(st);
  case StmtKind::Raise: return runRaise(st);
  case StmtKind::Break: return Flow::Break;
  case StmtKind::Continue: return Flow::Continue;
  case StmtKind::Pass:
  case StmtKind::Global:
  case StmtKind::Nonlocal:
  case StmtKind::Delete:
  case StmtKind::TypeAlias: return Flow::Next;
  case StmtKind::Match: c.fail(diag::TrUnsupported, st->pos, "'match'", "use if and elif"); return Flow::Fail;
  }
  return Flow::Next;
}

} // namespace neso::triton
