// Statements of kernels: control flow on run-time values becomes scf ops, all else happens while compiling.
#include "base/diagnostics/triton.h"
#include "frontend/triton/evaluator.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Block.h"

#include <algorithm>

namespace neso::triton {
namespace {

bool containsReturn(llvm::ArrayRef<Stmt *> stmts);
bool containsReturn(Stmt *st) {
  if (st->kind == StmtKind::Return) return true;
  return containsReturn(st->body) || containsReturn(st->orelse) || containsReturn(st->finalbody);
}
bool containsReturn(llvm::ArrayRef<Stmt *> stmts) {
  return std::any_of(stmts.begin(), stmts.end(), [](Stmt *st) { return containsReturn(st); });
}

/// Names that statements may bind, in order of first appearance.
class NameCollector {
public:
  std::vector<std::string_view> names;
  void stmts(llvm::ArrayRef<Stmt *> list) {
    for (Stmt *st : list) stmt(st);
  }
  void expr(Expr *e) {
    if (!e) return;
    if (e->kind == ExprKind::Named) add(e->text);
    for (Expr *i : e->items) expr(i);
    for (Keyword &k : e->keywords) expr(k.value);
  }

private:
  void add(std::string_view n) {
    if (std::find(names.begin(), names.end(), n) == names.end()) names.push_back(n);
  }
  void target(Expr *e) {
    if (e->kind == ExprKind::Name) add(e->text);
    if (e->kind == ExprKind::Tuple || e->kind == ExprKind::List || e->kind == ExprKind::Starred)
      for (Expr *i : e->items) target(i);
  }
  void stmt(Stmt *st) {
    if (st->kind == StmtKind::Assign || st->kind == StmtKind::AugAssign || st->kind == StmtKind::AnnAssign ||
        st->kind == StmtKind::For)
      for (Expr *t : st->exprs) target(t);
    for (Expr *t : st->targets)
      if (t) target(t);
    if (st->kind == StmtKind::Function || st->kind == StmtKind::Class) {
      add(st->text);
      return;
    }
    for (ImportName &n : st->names) add(n.alias.empty() ? n.name.substr(0, n.name.find('.')) : n.alias);
    expr(st->value);
    for (Expr *e : st->exprs) expr(e);
    stmts(st->body);
    stmts(st->orelse);
    stmts(st->finalbody);
    for (std::vector<Stmt *> &h : st->handlers) stmts(h);
  }
};

/// A block that belongs to no region yet, and the insertion point to return to.
struct Detached {
  explicit Detached(mlir::OpBuilder &b) : guard(b), block(std::make_unique<mlir::Block>()) {
    b.setInsertionPointToStart(block.get());
  }
  mlir::OpBuilder::InsertionGuard guard;
  std::unique_ptr<mlir::Block> block;
};

std::string describe(const Value &v) {
  if (v.isTensor()) return v.type->str();
  if (v.isRuntime()) return repr(v);
  return "constexpr[" + repr(v) + "]";
}

} // namespace

std::vector<std::string_view> Evaluator::assignedNames(llvm::ArrayRef<Stmt *> stmts) {
  NameCollector collector;
  collector.stmts(stmts);
  return collector.names;
}

// ---- run-time parts of values ------------------------------------------------------------------------------------------------------

void Evaluator::flatten(const Value &v, std::vector<mlir::Value> &out) {
  if (v.kind == Kind::Tensor || v.kind == Kind::Descriptor) out.push_back(v.handle);
  if (v.kind == Kind::Tuple || v.kind == Kind::Instance || v.kind == Kind::Descriptor || v.kind == Kind::BlockPtr)
    for (const Value &i : v.items()) flatten(i, out);
}

Value Evaluator::rebuild(const Value &like, llvm::ArrayRef<mlir::Value> handles, size_t &at) {
  if (like.kind == Kind::Tensor) return c.tensor(handles[at++], *like.type);
  if (like.kind != Kind::Tuple && like.kind != Kind::Instance && like.kind != Kind::Descriptor &&
      like.kind != Kind::BlockPtr)
    return like;
  Object *o;
  Value v = c.object(like.kind, &o);
  *o = *like.o;
  if (like.kind == Kind::Descriptor) v.handle = handles[at++];
  for (Value &i : o->items) i = rebuild(i, handles, at);
  return v;
}

/// Whether two values have the same kind and types, so that one may stand for the other at run time.
bool Evaluator::sameShapeOfValue(const Value &a, const Value &b) {
  if (a.kind != b.kind) return false;
  switch (a.kind) {
  case Kind::Tensor: return *a.type == *b.type;
  case Kind::Descriptor:
  case Kind::BlockPtr:
    if (a.o->shape != b.o->shape || a.o->element != b.o->element || a.o->order != b.o->order) return false;
    break;
  case Kind::Instance:
    if (a.o->cls != b.o->cls) return false;
    break;
  case Kind::Tuple: break;
  default: return equals(a, b);
  }
  if (a.items().size() != b.items().size()) return false;
  for (size_t i = 0; i < a.items().size(); ++i)
    if (!sameShapeOfValue(a.items()[i], b.items()[i])) return false;
  return true;
}

/// `v` made to match `like` where a compile-time number must become a tensor of like's type; v itself where nothing can
/// be done.
Value Evaluator::unify(const Value &like, const Value &v) {
  if (sameShapeOfValue(like, v)) return v;
  if (like.isTensor() && v.isNumber()) {
    std::optional<Scalar> t = s.typeOfNumber(v);
    if (t && !like.type->isBlock() && *t == like.type->element) return s.constant(v, *t);
    return v;
  }
  if (like.isNumber() && v.isNumber()) return s.toTensor(v);
  if (like.kind == Kind::Tuple && v.kind == Kind::Tuple && like.items().size() == v.items().size()) {
    Object *o;
    Value out = c.object(Kind::Tuple, &o);
    *o = *v.o;
    for (size_t i = 0; i < o->items.size(); ++i) o->items[i] = unify(like.items()[i], v.items()[i]);
    return out;
  }
  return v;
}

Value Evaluator::sanitize(const Value &v) {
  if (v.isNumber()) return s.toTensor(v);
  // A type of PyTorch is no value of a kernel.
  if (v.kind == Kind::Namespace && std::string_view(static_cast<const char *>(v.data)).starts_with("torch."))
    return c.fail(diag::TrOpaque, static_cast<const char *>(v.data));
  if (v.kind == Kind::Tuple) {
    Object *o;
    Value out = c.object(Kind::Tuple, &o);
    *o = *v.o;
    for (Value &i : o->items) {
      i = sanitize(i);
      if (!i) return {};
    }
    return out;
  }
  return v;
}

/// A condition as a scalar i1; compile-time ones stay what they are, after a check that Triton makes as well.
Value Evaluator::condition(const Value &v, Pos pos, const char *where) {
  if (!v) return v;
  if (v.isTensor()) {
    if (v.type->numel() != 1) return c.fail(diag::TrAmbiguous, pos, v.type->str());
    return s.cast(s.unsplat(v), scalar(DT::I1));
  }
  if (v.kind == Kind::Opaque) return c.fail(diag::TrOpaque, pos, v.o->text);
  if (v.kind != Kind::Bool && v.kind != Kind::Int && v.kind != Kind::None)
    return c.fail(diag::TrConditionType, pos, where, typeName(v));
  return v;
}

// ---- returns -----------------------------------------------------------------------------------------------------------------------

bool Evaluator::kernelTail(llvm::ArrayRef<Stmt *> stmts, const Rest *rest) {
  for (size_t i = 0; i < stmts.size(); ++i) {
    Stmt *st = stmts[i];
    c.frame->pos = st->pos;
    if (st->kind == StmtKind::Return) {
      c.frame->result = st->value ? eval(st->value) : Value::none();
      if (c.frame->isEntry && c.frame->result && !c.frame->result.isNone()) c.fail(diag::TrKernelReturn, st->pos);
      return !c.error;
    }
    if (!containsReturn(st)) {
      if (!kernelStatement(st)) return false;
      continue;
    }
    if (st->kind == StmtKind::For || st->kind == StmtKind::While) {
      c.fail(diag::TrReturnInLoop, st->pos);
      return false;
    }
    if (st->kind != StmtKind::If) {
      c.fail(diag::TrUnsupported, st->pos, "'return' here", "return at the end of the function or inside an 'if'");
      return false;
    }
    Value cond = condition(eval(st->value), st->value->pos, "if");
    if (!cond) return false;
    Rest after{stmts.drop_front(i + 1), rest};
    if (cond.isTensor()) return tailIf(st, cond, &after);
    return kernelTail(truthy(cond) ? st->body : st->orelse, &after);
  }
  if (rest) return kernelTail(rest->stmts, rest->outer);
  c.frame->result = Value::none();
  return true;
}

bool Evaluator::tailIf(Stmt *st, const Value &cond, const Rest *rest) {
  if (++duplicated_ > 2000) {
    c.fail(diag::TrTooManyReturns, st->pos);
    return false;
  }
  mlir::Location loc = c.loc();
  Scope liveins = c.frame->locals;
  std::unique_ptr<mlir::Block> blocks[2];
  Value results[2];
  for (int side = 0; side < 2; ++side) {
    Detached d(c.builder);
    c.frame->locals = liveins;
    if (!kernelTail(side == 0 ? st->body : st->orelse, rest)) return false;
    results[side] = c.frame->result;
    blocks[side] = std::move(d.block);
  }
  c.frame->pos = st->pos;
  for (int side = 0; side < 2; ++side) {
    mlir::OpBuilder::InsertionGuard guard(c.builder);
    c.builder.setInsertionPointToEnd(blocks[side].get());
    results[side] = unify(results[1 - side], results[side]);
    if (!results[side]) return false;
  }
  if (!sameShapeOfValue(results[0], results[1])) {
    c.fail(diag::TrReturnType, st->pos, describe(results[0]), describe(results[1]));
    return false;
  }
  std::vector<mlir::Type> types;
  mlir::OperationState state(loc, "scf.if", mlir::ValueRange{cond.handle}, {});
  for (int side = 0; side < 2; ++side) {
    std::vector<mlir::Value> handles;
    flatten(results[side], handles);
    mlir::OpBuilder::InsertionGuard guard(c.builder);
    c.builder.setInsertionPointToEnd(blocks[side].get());
    mlir::scf::YieldOp::create(c.builder, loc, handles);
    if (side == 0)
      for (mlir::Value h : handles) state.types.push_back(h.getType());
    state.addRegion()->push_back(blocks[side].release());
  }
  mlir::Operation *op = c.builder.create(state);
  std::vector<mlir::Value> out(op->result_begin(), op->result_end());
  size_t at = 0;
  c.frame->result = rebuild(results[0], out, at);
  return true;
}

bool Evaluator::kernelBody(Frame &frame) {
  frame.parent = c.frame;
  c.frame = &frame;
  bool ok = kernelTail(frame.function->function->body, nullptr);
  c.frame = frame.parent;
  return ok && !c.error;
}

Value Evaluator::inlineCall(Object *fn, Scope locals, Pos pos) {
  // As in Triton a function is compiled anew for other constexprs and types, so a function may call itself until a
  // constexpr ends it. A call that differs from one around it in no such thing has no end.
  auto same = [&](const ActiveCall &call) {
    if (call.function != fn || call.arguments.entries.size() != locals.entries.size()) return false;
    for (size_t i = 0; i < locals.entries.size(); ++i)
      if (!sameShapeOfValue(call.arguments.entries[i].second, locals.entries[i].second)) return false;
    return true;
  };
  if (std::any_of(active_.begin(), active_.end(), same)) return c.fail(diag::TrRecursion, pos, fn->text);
  if (active_.size() > 100) return c.fail(diag::PyTooDeep, pos, "calls", 100);
  Frame f;
  f.module = fn->module;
  f.function = fn;
  f.closure = fn->closure;
  f.kernel = true;
  f.locals = locals;
  f.pos = fn->function->pos;
  f.callLoc = c.loc();
  f.parent = c.frame;
  f.result = Value::none();
  c.frame = &f;
  active_.push_back({fn, std::move(locals)});
  bool ok = kernelTail(fn->function->body, nullptr);
  active_.pop_back();
  c.frame = f.parent;
  return ok ? f.result : Value{};
}

// ---- statements ----------------------------------------------------------------------------------------------------------------------

bool Evaluator::kernelBlock(llvm::ArrayRef<Stmt *> stmts) {
  for (Stmt *st : stmts) {
    if (st->kind == StmtKind::Return) {
      c.fail(diag::TrReturnInLoop, st->pos);
      return false;
    }
    if (!kernelStatement(st)) return false;
  }
  return true;
}

bool Evaluator::kernelStatement(Stmt *st) {
  if (c.error || !step()) return false;
  c.frame->pos = st->pos;
  auto refuse = [&](const char *what, const char *instead) {
    c.fail(diag::TrUnsupported, st->pos, what, instead);
    return false;
  };
  switch (st->kind) {
  case StmtKind::Pass: return true;
  case StmtKind::Expr:
    if (st->value->kind == ExprKind::String) return true;
    if (st->value->kind == ExprKind::Call) {
      Expr *callee = st->value->items[0];
      if (callee->text == "advance") {
        c.fail(diag::TrUnusedAdvance, st->pos);
        return false;
      }
    }
    return bool(eval(st->value));
  case StmtKind::Assign:
  case StmtKind::AnnAssign:
  case StmtKind::AugAssign: return kernelAssign(st);
  case StmtKind::If: return kernelIf(st);
  case StmtKind::For: return kernelFor(st);
  case StmtKind::While: return kernelWhile(st);
  case StmtKind::Assert: {
    Value test = eval(st->value);
    if (!test) return false;
    if (!options_.debug) return true;
    Value text = st->exprs.empty() ? c.str("") : eval(st->exprs[0]);
    return text && call(language("tl.device_assert"), {test, text});
  }
  case StmtKind::Function: c.fail(diag::TrNestedFunction, st->pos, st->text); return false;
  case StmtKind::Return: c.fail(diag::TrReturnInLoop, st->pos); return false;
  case StmtKind::With: return kernelWith(st);
  case StmtKind::Break: return refuse("'break'", "put the condition into a 'while', or mask what follows");
  case StmtKind::Continue: return refuse("'continue'", "put what follows under an 'if'");
  case StmtKind::Class: return refuse("a class inside a kernel", "define it at module level");
  case StmtKind::Try: return refuse("'try'", "test the condition with 'if'");
  case StmtKind::Raise: return refuse("'raise'", "use tl.static_assert or tl.device_assert");
  case StmtKind::Import:
  case StmtKind::ImportFrom: return refuse("'import' inside a kernel", "import at module level");
  case StmtKind::Delete: return refuse("'del'", "leave the name alone");
  case StmtKind::Global:
  case StmtKind::Nonlocal: return refuse("'global' and 'nonlocal'", "return the value instead");
  case StmtKind::Match: return refuse("'match'", "use if and elif");
  case StmtKind::TypeAlias: return refuse("'type'", "define it at module level");
  }
  return true;
}

bool Evaluator::kernelWith(Stmt *st) {
  c.fail(diag::TrUnsupported, st->pos, "'with'", "write its body without it");
  return false;
}

bool Evaluator::sanitizeInto(Expr *target, const Value &v) {
  if (target->kind == ExprKind::Tuple || target->kind == ExprKind::List) {
    if (v.kind != Kind::Tuple && v.kind != Kind::List) {
      c.fail(diag::TrUnpack, target->pos, typeName(v));
      return false;
    }
    return unpack(target, sanitize(v));
  }
  if (target->kind == ExprKind::Name) {
    // A bare `x: tl.constexpr` above keeps this assignment at compile time.
    if (Value *pending = c.frame->locals.find(target->text); pending && pending->kind == Kind::Invalid) {
      *pending = v;
      return true;
    }
  }
  // Fields of an aggregate keep compile-time values.
  Value out = target->kind == ExprKind::Attribute ? v : sanitize(v);
  return out && assign(target, out);
}

bool Evaluator::kernelAssign(Stmt *st) {
  if (st->kind == StmtKind::AugAssign) {
    Value old = eval(st->exprs[0]);
    if (!old) return false;
    Value v = eval(st->value);
    if (!v) return false;
    c.frame->pos = st->pos;
    v = binary(st->op, old, v);
    return v && sanitizeInto(st->exprs[0], v);
  }
  if (st->kind == StmtKind::AnnAssign) {
    Value annotation = eval(st->annotation);
    if (!annotation) return false;
    bool isConstexpr = annotation.kind == Kind::Builtin &&
                       std::string_view(static_cast<const Builtin *>(annotation.data)->name) == "tl.constexpr";
    Expr *target = st->exprs[0];
    if (!st->value) {
      if (isConstexpr && target->kind == ExprKind::Name) c.frame->locals.set(target->text, Value{});
      return true;
    }
    Value v = eval(st->value);
    if (!v) return false;
    if (!isConstexpr || target->kind != ExprKind::Name) return sanitizeInto(target, v);
    if (Value *known = c.frame->locals.find(target->text); known && known->kind != Kind::Invalid) {
      c.fail(diag::TrConstexprRedefined, target->pos, target->text);
      return false;
    }
    c.frame->locals.set(target->text, v);
    return true;
  }
  Value v = eval(st->value);
  if (!v) return false;
  for (Expr *t : st->exprs)
    if (!sanitizeInto(t, v)) return false;
  return true;
}

// ---- if --------------------------------------------------------------------------------------------------------------------------------

bool Evaluator::kernelIf(Stmt *st) {
  Value cond = condition(eval(st->value), st->value->pos, "if");
  if (!cond) return false;
  if (!cond.isTensor()) return kernelBlock(truthy(cond) ? st->body : st->orelse);
  c.frame->pos = st->pos;
  mlir::Location loc = c.loc();
  Scope liveins = c.frame->locals;
  std::unique_ptr<mlir::Block> blocks[2];
  Scope after[2];
  for (int side = 0; side < 2; ++side) {
    Detached d(c.builder);
    c.frame->locals = liveins;
    if (!kernelBlock(side == 0 ? st->body : st->orelse)) return false;
    after[side] = std::move(c.frame->locals);
    blocks[side] = std::move(d.block);
  }
  c.frame->pos = st->pos;
  c.frame->locals = liveins;
  std::vector<std::pair<std::string_view, Value>> merged;
  std::vector<mlir::Value> yields[2];
  auto merge = [&](std::string_view name, const Value &a, const Value &b) {
    flatten(a, yields[0]);
    flatten(b, yields[1]);
    merged.emplace_back(name, a);
  };
  for (const std::pair<std::string_view, Value> &live : liveins.entries) {
    const Value *v[2] = {after[0].find(live.first), after[1].find(live.first)};
    std::vector<mlir::Value> h[2];
    for (int side = 0; side < 2; ++side) flatten(*v[side], h[side]);
    std::vector<mlir::Value> before;
    flatten(live.second, before);
    if (before == h[0] && before == h[1] && sameShapeOfValue(live.second, *v[0]) &&
        sameShapeOfValue(live.second, *v[1]))
      continue;
    for (int side = 0; side < 2; ++side)
      if (!sameShapeOfValue(live.second, *v[side])) {
        c.fail(diag::TrIfRedefines, st->pos, live.first, describe(live.second), side == 0 ? "then" : "else",
               describe(*v[side]));
        return false;
      }
    merge(live.first, *v[0], *v[1]);
  }
  for (const std::pair<std::string_view, Value> &def : after[0].entries) {
    if (liveins.find(def.first)) continue;
    const Value *other = after[1].find(def.first);
    if (!other || def.second.kind == Kind::Invalid || other->kind == Kind::Invalid) continue;
    if (!sameShapeOfValue(def.second, *other)) {
      c.fail(diag::TrIfMismatch, st->pos, def.first, describe(def.second), describe(*other));
      return false;
    }
    merge(def.first, def.second, *other);
  }
  mlir::OperationState state(loc, "scf.if", mlir::ValueRange{cond.handle}, {});
  for (mlir::Value h : yields[0]) state.types.push_back(h.getType());
  for (int side = 0; side < 2; ++side) {
    mlir::Region *region = state.addRegion();
    if (side == 1 && yields[1].empty() && blocks[1]->empty()) continue;
    mlir::OpBuilder::InsertionGuard guard(c.builder);
    c.builder.setInsertionPointToEnd(blocks[side].get());
    mlir::scf::YieldOp::create(c.builder, loc, yields[side]);
    region->push_back(blocks[side].release());
  }
  mlir::Operation *op = c.builder.create(state);
  std::vector<mlir::Value> out(op->result_begin(), op->result_end());
  size_t at = 0;
  for (std::pair<std::string_view, Value> &m : merged) c.frame->locals.set(m.first, rebuild(m.second, out, at));
  return true;
}

/// `x if … else y` of a module that cannot be decided: what both are, as in tl.constexpr(3) if HAS_TRITON else 3; else the condition, which says
/// what is not known.
Value Evaluator::evalBoth(Expr *e, const Value &condition) {
  Value yes = eval(e->items[0]), no = yes ? eval(e->items[2]) : Value{};
  c.error.reset();
  if (!yes || !no || yes.kind != no.kind || yes.kind == Kind::Opaque || !equals(yes, no)) return condition;
  yes.wrapped |= no.wrapped;
  return yes;
}

Value Evaluator::evalIf(Expr *e) {
  Value cond = eval(e->items[1]);
  if (!cond) return cond;
  if (!c.frame->kernel) {
    if (cond.kind == Kind::Opaque) return evalBoth(e, cond);
    if (cond.isRuntime()) return c.failRuntime();
    return eval(truthy(cond) ? e->items[0] : e->items[2]);
  }
  cond = condition(cond, e->items[1]->pos, "if");
  if (!cond) return cond;
  if (!cond.isTensor()) return eval(truthy(cond) ? e->items[0] : e->items[2]);
  mlir::Location loc = c.loc();
  mlir::OperationState state(loc, "scf.if", mlir::ValueRange{cond.handle}, {});
  Value values[2];
  for (int side = 0; side < 2; ++side) {
    Detached d(c.builder);
    values[side] = sanitize(eval(e->items[side == 0 ? 0 : 2]));
    if (!values[side]) return {};
    std::vector<mlir::Value> handles;
    flatten(values[side], handles);
    mlir::scf::YieldOp::create(c.builder, loc, handles);
    if (side == 0)
      for (mlir::Value h : handles) state.types.push_back(h.getType());
    state.addRegion()->push_back(d.block.release());
  }
  if (!sameShapeOfValue(values[0], values[1]))
    return c.fail(diag::TrTernary, e->pos, describe(values[0]), describe(values[1]));
  mlir::Operation *op = c.builder.create(state);
  std::vector<mlir::Value> out(op->result_begin(), op->result_end());
  size_t at = 0;
  return rebuild(values[0], out, at);
}

// ---- loops ---------------------------------------------------------------------------------------------------------------------------

bool Evaluator::kernelFor(Stmt *st) {
  if (st->level) {
    c.fail(diag::TrUnsupported, st->pos, "'async for'", "use a plain 'for'");
    return false;
  }
  if (!st->orelse.empty()) {
    c.fail(diag::TrUnsupported, st->pos, "'else' after 'for'", "put it behind the loop");
    return false;
  }
  Value it = eval(st->value);
  if (!it) return false;
  if (it.kind != Kind::Range) {
    c.fail(diag::TrIterator, st->value->pos, typeName(it));
    return false;
  }
  if (it.o->text == "static_range") {
    std::optional<std::vector<Value>> all = iterate(it);
    return all && staticFor(st, *all);
  }
  if (st->exprs[0]->kind != ExprKind::Name) {
    c.fail(diag::TrUnsupported, st->exprs[0]->pos, "this loop target", "use one name");
    return false;
  }
  return dynamicFor(st, it);
}

bool Evaluator::staticFor(Stmt *st, llvm::ArrayRef<Value> items) {
  for (const Value &v : items) {
    if (!assign(st->exprs[0], v) || !kernelBlock(st->body)) return false;
  }
  return true;
}

/// Bounds and step of a range as scalars of one type. A loop downwards runs up over the mirrored range.
struct Evaluator::LoopRange {
  Value lower, upper, step;
  bool mirrored = false;
  Scalar type;
};

std::optional<Evaluator::LoopRange> Evaluator::loopRange(Stmt *st, const Value &range) {
  LoopRange out{range.items()[0], range.items()[1], range.items()[2], false, {}};
  out.mirrored = out.step.isIntLike() && out.step.i < 0;
  if (out.step.isIntLike() && out.step.i == 0) {
    c.fail(diag::TrRangeStep, st->value->pos);
    return std::nullopt;
  }
  if (out.mirrored) {
    out.step = Value::integer(-out.step.i);
    std::swap(out.lower, out.upper);
  }
  const char *names[] = {"lower bound", "upper bound", "step"};
  Value *parts[] = {&out.lower, &out.upper, &out.step};
  for (int i = 0; i < 3; ++i) {
    *parts[i] = s.toTensor(*parts[i]);
    if (!*parts[i]) return std::nullopt;
    if (!parts[i]->type->element.isInt()) {
      c.fail(diag::TrRangeType, st->value->pos, parts[i]->type->str(), names[i]);
      return std::nullopt;
    }
    if (parts[i]->type->numel() != 1) {
      c.fail(diag::TrRangeScalar, st->value->pos, names[i], parts[i]->type->str());
      return std::nullopt;
    }
    *parts[i] = s.unsplat(*parts[i]);
  }
  out.type = s.promoteInts(s.promoteInts(out.lower.type->element, out.upper.type->element), out.step.type->element);
  for (Value *p : parts) *p = s.cast(*p, out.type);
  return out;
}

/// What tl.range says of a loop beyond its bounds.
static void setLoopHints(Context &c, mlir::scf::ForOp loop, const std::vector<Value> &options) {
  auto flag = [&](size_t i, const char *name) {
    if (options.size() > i && truthy(options[i])) loop->setAttr(name, c.builder.getUnitAttr());
  };
  auto number = [&](size_t i, const char *name) {
    if (options.size() > i && options[i].isIntLike())
      loop->setAttr(name, c.builder.getI32IntegerAttr(static_cast<int32_t>(options[i].i)));
  };
  number(3, "tt.num_stages");
  number(4, "tt.loop_unroll_factor");
  flag(5, "tt.disallow_acc_multi_buffer");
  flag(6, "tt.flatten");
  flag(7, "tt.warp_specialize");
}

/// Whether the names that the body assigns are what they were before: what a loop carries keeps its shape, and what is
/// known when compiling is not changed.
bool Evaluator::keepsShapes(Stmt *st, Scope &liveins, const std::vector<std::string_view> &assigned,
                            const std::vector<std::string_view> &carried) {
  for (std::string_view name : assigned) {
    const Value *before = liveins.find(name);
    if (!before || name == st->exprs[0]->text) continue;
    const Value &now = *c.frame->locals.find(name);
    if (sameShapeOfValue(*before, now)) continue;
    if (std::find(carried.begin(), carried.end(), name) == carried.end())
      c.fail(diag::TrLoopConstexpr, st->pos, name, describe(*before), describe(now));
    else
      c.fail(diag::TrLoopCarried, st->pos, name, describe(*before), describe(now));
    return false;
  }
  return true;
}

bool Evaluator::dynamicFor(Stmt *st, const Value &range) {
  std::optional<LoopRange> bounds = loopRange(st, range);
  if (!bounds) return false;
  std::string_view target = st->exprs[0]->text;
  Scope liveins = c.frame->locals;
  std::vector<std::string_view> assigned = assignedNames(st->body);
  std::vector<std::string_view> carried;
  std::vector<mlir::Value> inits;
  for (const std::pair<std::string_view, Value> &live : liveins.entries) {
    if (live.first == target || std::find(assigned.begin(), assigned.end(), live.first) == assigned.end()) continue;
    size_t before = inits.size();
    flatten(live.second, inits);
    if (inits.size() > before) carried.push_back(live.first);
  }
  mlir::scf::ForOp loop = mlir::scf::ForOp::create(c.builder, c.loc(), bounds->lower.handle, bounds->upper.handle,
                                                   bounds->step.handle, inits);
  setLoopHints(c, loop, range.items());
  {
    mlir::OpBuilder::InsertionGuard guard(c.builder);
    mlir::Block *body = loop.getBody();
    if (inits.empty())
      c.builder.setInsertionPoint(body->getTerminator());
    else
      c.builder.setInsertionPointToEnd(body);
    std::vector<mlir::Value> args(loop.getRegionIterArgs().begin(), loop.getRegionIterArgs().end());
    size_t at = 0;
    for (std::string_view name : carried) c.frame->locals.set(name, rebuild(*liveins.find(name), args, at));
    Value index = c.tensor(loop.getInductionVar(), {bounds->type, {}});
    if (bounds->mirrored) index = s.add(s.sub(bounds->upper, index), bounds->lower);
    c.frame->locals.set(target, index);
    ++c.frame->loops;
    bool ok = kernelBlock(st->body);
    --c.frame->loops;
    if (!ok) return false;
    c.frame->pos = st->pos;
    if (!keepsShapes(st, liveins, assigned, carried)) return false;
    std::vector<mlir::Value> yields;
    for (std::string_view name : carried) flatten(*c.frame->locals.find(name), yields);
    if (!inits.empty()) mlir::scf::YieldOp::create(c.builder, c.loc(), yields);
  }
  c.frame->locals = std::move(liveins);
  std::vector<mlir::Value> results(loop->result_begin(), loop->result_end());
  size_t at = 0;
  for (std::string_view name : carried) c.frame->locals.set(name, rebuild(*c.frame->locals.find(name), results, at));
  return true;
}

bool Evaluator::kernelWhile(Stmt *st) {
  if (!st->orelse.empty()) {
    c.fail(diag::TrUnsupported, st->pos, "'else' after 'while'", "put it behind the loop");
    return false;
  }
  Scope liveins = c.frame->locals;
  NameCollector collector;
  collector.stmts(st->body);
  collector.expr(st->value);
  std::vector<std::string_view> carried;
  std::vector<mlir::Value> inits;
  for (const std::pair<std::string_view, Value> &live : liveins.entries) {
    if (std::find(collector.names.begin(), collector.names.end(), live.first) == collector.names.end()) continue;
    size_t before = inits.size();
    flatten(live.second, inits);
    if (inits.size() > before) carried.push_back(live.first);
  }
  mlir::Location loc = c.loc();
  mlir::OperationState state(loc, "scf.while", inits, {});
  llvm::SmallVector<mlir::Type> types;
  for (mlir::Value v : inits) types.push_back(v.getType());
  state.addTypes(types);
  llvm::SmallVector<mlir::Location> locs(types.size(), loc);
  for (int part = 0; part < 2; ++part) {
    Detached d(c.builder);
    d.block->addArguments(types, locs);
    std::vector<mlir::Value> args(d.block->args_begin(), d.block->args_end());
    c.frame->locals = liveins;
    size_t at = 0;
    for (std::string_view name : carried) c.frame->locals.set(name, rebuild(*liveins.find(name), args, at));
    if (part == 0) {
      Value cond = condition(eval(st->value), st->value->pos, "while");
      if (!cond) return false;
      if (!cond.isTensor()) {
        c.frame->locals = liveins;
        if (!truthy(cond)) return true;
        c.fail(diag::TrEndlessLoop, st->value->pos);
        return false;
      }
      mlir::scf::ConditionOp::create(c.builder, loc, cond.handle, args);
    } else {
      ++c.frame->loops;
      bool ok = kernelBlock(st->body);
      --c.frame->loops;
      if (!ok) return false;
      c.frame->pos = st->pos;
      for (std::string_view name : collector.names) {
        const Value *before = liveins.find(name);
        if (!before) continue;
        const Value &now = *c.frame->locals.find(name);
        if (sameShapeOfValue(*before, now)) continue;
        bool compileTime = std::find(carried.begin(), carried.end(), name) == carried.end();
        if (compileTime)
          c.fail(diag::TrLoopConstexpr, st->pos, name, describe(*before), describe(now));
        else
          c.fail(diag::TrLoopCarried, st->pos, name, describe(*before), describe(now));
        return false;
      }
      std::vector<mlir::Value> yields;
      for (std::string_view name : carried) flatten(*c.frame->locals.find(name), yields);
      mlir::scf::YieldOp::create(c.builder, loc, yields);
    }
    state.addRegion()->push_back(d.block.release());
  }
  mlir::Operation *loop = c.builder.create(state);
  c.frame->locals = std::move(liveins);
  std::vector<mlir::Value> results(loop->result_begin(), loop->result_end());
  size_t at = 0;
  for (std::string_view name : carried) c.frame->locals.set(name, rebuild(*c.frame->locals.find(name), results, at));
  return true;
}

} // namespace neso::triton
