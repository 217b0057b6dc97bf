// Expressions, at module level and in kernels.
#include "base/diagnostics/triton.h"
#include "frontend/triton/evaluator.h"

#include <algorithm>
#include <cmath>

namespace neso::triton {

Value Evaluator::eval(Expr *e) {
  if (c.error) return {};
  Pos saved = c.frame->pos;
  c.frame->pos = e->pos;
  if (++depth_ > 1500) {
    --depth_;
    return c.fail(diag::PyTooDeep, e->pos, "calls and expressions", 1500);
  }
  Value v = evalInner(e);
  --depth_;
  c.frame->pos = saved;
  return v;
}

Value Evaluator::evalSlice(Expr *e) {
  std::vector<Value> parts;
  for (Expr *p : e->items) {
    parts.push_back(p ? eval(p) : Value::none());
    if (!parts.back()) return {};
  }
  return c.list(Kind::Slice, std::move(parts));
}

Value Evaluator::evalUnary(Expr *e) {
  Value v = eval(e->items[0]);
  if (!v) return v;
  if (v.isTensor()) return s.unaryOperator(e->op, v);
  if (v.kind == Kind::Opaque) return c.frame->kernel ? c.fail(diag::TrOpaque, v.o->text) : v;
  if (e->op == OpKind::Not) return Value::boolean(!truthy(v));
  if (v.kind == Kind::Float && e->op != OpKind::Invert) return Value::real(e->op == OpKind::Neg ? -v.f : v.f);
  if (v.isIntLike()) return Value::integer(e->op == OpKind::Neg ? -v.i : e->op == OpKind::Invert ? ~v.i : v.i);
  return c.fail(diag::TrUnary, spelling(e->op), typeName(v));
}

/// A tuple, list or set; kernels know tuples alone.
Value Evaluator::evalSequence(Expr *e) {
  std::vector<Value> items;
  for (Expr *i : e->items) {
    if (i->kind == ExprKind::Starred) {
      Value v = eval(i->items[0]);
      std::optional<std::vector<Value>> all = v ? iterate(v) : std::nullopt;
      if (!all) return {};
      items.insert(items.end(), all->begin(), all->end());
      continue;
    }
    items.push_back(eval(i));
    if (!items.back()) return {};
  }
  return c.list(e->kind == ExprKind::Tuple || c.frame->kernel ? Kind::Tuple : Kind::List, std::move(items));
}

Value Evaluator::evalDict(Expr *e) {
  std::vector<Value> items;
  for (size_t i = 0; i + 1 < e->items.size(); i += 2) {
    if (!e->items[i]) {
      Value v = eval(e->items[i + 1]);
      if (!v) return v;
      if (v.kind == Kind::Dict) items.insert(items.end(), v.items().begin(), v.items().end());
      continue;
    }
    items.push_back(eval(e->items[i]));
    if (!items.back()) return {};
    items.push_back(eval(e->items[i + 1]));
    if (!items.back()) return {};
  }
  return c.list(Kind::Dict, std::move(items));
}

Value Evaluator::evalInner(Expr *e) {
  // What only module-level code may hold.
  auto hostOnly = [&](const char *what, const char *instead) {
    return c.frame->kernel ? c.fail(diag::TrUnsupported, what, instead) : c.opaque(what);
  };
  switch (e->kind) {
  case ExprKind::None: return Value::none();
  case ExprKind::True: return Value::boolean(true);
  case ExprKind::False: return Value::boolean(false);
  case ExprKind::Int: return e->big ? c.fail(diag::TrBigInt, e->text) : Value::integer(e->integer);
  case ExprKind::Float: return Value::real(e->number);
  case ExprKind::String: return c.str(e->string);
  case ExprKind::JoinedStr: return joined(e);
  case ExprKind::Name: return name(e);
  case ExprKind::Attribute: {
    Value base = eval(e->items[0]);
    return base ? attribute(base, e->text) : base;
  }
  case ExprKind::Subscript: {
    Value base = eval(e->items[0]);
    if (!base) return base;
    Value index = eval(e->items[1]);
    return index ? subscript(base, index) : index;
  }
  case ExprKind::Slice: return evalSlice(e);
  case ExprKind::Call: return evalCall(e);
  case ExprKind::Unary: return evalUnary(e);
  case ExprKind::Binary: {
    Value a = eval(e->items[0]);
    if (!a) return a;
    Value b = eval(e->items[1]);
    return b ? binary(e->op, a, b) : b;
  }
  case ExprKind::Bool: return evalBool(e);
  case ExprKind::Compare: return evalCompare(e);
  case ExprKind::IfExp: return evalIf(e);
  case ExprKind::Lambda: return define(e->function);
  case ExprKind::Tuple:
  case ExprKind::List:
  case ExprKind::Set: return evalSequence(e);
  case ExprKind::Dict: return evalDict(e);
  case ExprKind::Comprehension: return comprehension(e);
  case ExprKind::Named: {
    Value v = eval(e->items[0]);
    if (!v) return v;
    if (c.frame->kernel) v = sanitize(v);
    if (v) c.frame->locals.set(e->text, v);
    return v;
  }
  case ExprKind::Ellipsis: return hostOnly("'...'", "write the missing code");
  case ExprKind::Bytes: return hostOnly("a bytes literal", "use a string");
  case ExprKind::Imaginary: return hostOnly("a complex number", "keep real and imaginary parts apart");
  case ExprKind::Starred: return c.fail(diag::TrUnsupported, "'*' here", "use it in a call or a tuple");
  case ExprKind::Await: return c.fail(diag::TrUnsupported, "'await'", "return a value instead");
  case ExprKind::Yield: return c.fail(diag::TrUnsupported, "'yield'", "return a value instead");
  }
  return c.fail(diag::TrUnsupported, "this expression", "rewrite it");
}

// ---- subscripts ------------------------------------------------------------------------------------------------------------------

Value Evaluator::subscript(const Value &base, const Value &index) {
  switch (base.kind) {
  case Kind::Tensor: {
    std::vector<Value> list = index.kind == Kind::Tuple ? index.items() : std::vector<Value>{index};
    Value v = base;
    size_t used = 0, rank = base.type->shape.size();
    for (size_t d = 0; d < list.size(); ++d) {
      const Value &i = list[d];
      bool whole = i.kind == Kind::Slice && i.items()[0].isNone() && i.items()[1].isNone() && i.items()[2].isNone();
      if (i.isNone())
        v = s.expandDims(v, static_cast<int64_t>(d));
      else if (!whole)
        return c.fail(diag::TrIndex, repr(i));
      else if (++used > rank)
        return c.fail(diag::TrTooManyIndices, rank);
      if (!v) return v;
    }
    return v;
  }
  case Kind::Tuple:
  case Kind::List:
  case Kind::Str: {
    int64_t n = static_cast<int64_t>(base.kind == Kind::Str ? base.str().size() : base.items().size());
    if (index.kind == Kind::Slice) {
      int64_t step = index.items()[2].isNone() ? 1 : static_cast<int64_t>(index.items()[2].i);
      if (step == 0) return c.fail(diag::TrIndex, "slice step cannot be zero");
      auto edge = [&](const Value &v, int64_t missing) {
        if (v.isNone()) return missing;
        int64_t i = static_cast<int64_t>(v.i);
        if (i < 0) i += n;
        return step > 0 ? std::clamp<int64_t>(i, 0, n) : std::clamp<int64_t>(i, -1, n - 1);
      };
      for (const Value &part : index.items())
        if (!part.isNone() && !part.isIntLike()) return c.fail(diag::TrIndex, repr(part));
      int64_t from = edge(index.items()[0], step > 0 ? 0 : n - 1), to = edge(index.items()[1], step > 0 ? n : -1);
      std::string text;
      std::vector<Value> items;
      for (int64_t i = from; step > 0 ? i < to : i > to; i += step) {
        if (base.kind == Kind::Str)
          text += base.str()[static_cast<size_t>(i)];
        else
          items.push_back(base.items()[static_cast<size_t>(i)]);
      }
      return base.kind == Kind::Str ? c.str(text) : c.list(base.kind, std::move(items));
    }
    if (!index.isIntLike())
      return c.fail(diag::TrIndex,
                    index.isTensor() ? "a tensor; an index into a tuple must be constexpr" : repr(index));
    __int128 i = index.i < 0 ? index.i + n : index.i;
    if (i < 0 || i >= n) return c.fail(diag::TrIndexRange, int128ToString(index.i), n);
    if (base.kind == Kind::Str) return c.str(std::string(1, base.str()[static_cast<size_t>(i)]));
    return base.items()[static_cast<size_t>(i)];
  }
  case Kind::Dict:
    for (size_t i = 0; i + 1 < base.items().size(); i += 2)
      if (equals(base.items()[i], index)) return base.items()[i + 1];
    return c.fail(diag::TrKey, repr(index));
  case Kind::Opaque: return c.frame->kernel ? c.fail(diag::TrOpaque, base.o->text) : base;
  case Kind::Function: return c.opaque("a launch of " + base.o->text);
  case Kind::Builtin:
  case Kind::Class:
  case Kind::DType:
  case Kind::Namespace: return base;
  case Kind::Instance:
    if (Value *fn = base.o->cls->members.find("__getitem__")) return call(*fn, {base, index});
    [[fallthrough]];
  default: return c.fail(diag::TrNotSubscriptable, typeName(base));
  }
}

// ---- booleans, comparisons, strings, comprehensions --------------------------------------------------------------------------------

Value Evaluator::evalBool(Expr *e) {
  bool isAnd = e->op == OpKind::And;
  std::vector<Value> dynamic;
  Value last;
  for (Expr *item : e->items) {
    last = eval(item);
    if (!last) return last;
    if (last.kind == Kind::Opaque) return c.frame->kernel ? c.fail(diag::TrOpaque, last.o->text) : last;
    if (last.isTensor()) {
      dynamic.push_back(last);
      continue;
    }
    if (truthy(last) != isAnd) return last;
  }
  if (dynamic.empty()) return last;
  while (dynamic.size() >= 2) {
    Value rhs = dynamic.back();
    dynamic.pop_back();
    Value lhs = dynamic.back();
    dynamic.pop_back();
    Value v = s.logical(isAnd, lhs, rhs);
    if (!v) return v;
    dynamic.push_back(v);
  }
  return dynamic[0];
}

Value Evaluator::compare(OpKind op, const Value &a, const Value &b) {
  auto identical = [&] {
    return a.kind == b.kind && (a.isNone() || (a.kind == Kind::Tensor ? a.handle == b.handle : equals(a, b)));
  };
  switch (op) {
  case OpKind::Is:
  case OpKind::IsNot:
    // What is not known may be None.
    for (const Value &v : {a, b})
      if (!c.frame->kernel && v.kind == Kind::Opaque && !v.o->present) return v;
    return Value::boolean(identical() == (op == OpKind::Is));
  case OpKind::In:
  case OpKind::NotIn: {
    if (b.kind == Kind::Opaque || a.kind == Kind::Opaque)
      return c.frame->kernel ? c.fail(diag::TrOpaque, (a.kind == Kind::Opaque ? a : b).o->text)
                             : (b.kind == Kind::Opaque ? b : a);
    bool found = false;
    if (b.kind == Kind::Str && a.kind == Kind::Str) {
      found = b.str().find(a.str()) != std::string::npos;
    } else {
      std::optional<std::vector<Value>> all = iterate(b);
      if (!all) return {};
      for (const Value &v : *all) found |= equals(a, v);
    }
    return Value::boolean(found == (op == OpKind::In));
  }
  case OpKind::Eq:
  case OpKind::Ne:
    // An activation given as the name of a function, where the kernel looks for its text, would be left out without a word.
    for (const auto &[function, text] : {std::pair{&a, &b}, std::pair{&b, &a}})
      if (c.frame->kernel && function->kind == Kind::Function && text->kind == Kind::Str)
        c.warn(diag::TrFunctionIsNoText, function->o->text, "'" + text->str() + "'", "'" + text->str() + "'");
    [[fallthrough]];
  default: return binary(op, a, b);
  }
}

Value Evaluator::evalCompare(Expr *e) {
  Value left = eval(e->items[0]);
  if (!left) return left;
  Value all;
  for (size_t i = 0; i < e->ops.size(); ++i) {
    Value right = eval(e->items[i + 1]);
    if (!right) return right;
    Value v = compare(e->ops[i], left, right);
    if (!v) return v;
    left = right;
    if (v.isTensor() || e->ops.size() == 1) {
      all = all && all.isTensor() && v.isTensor() ? s.logical(true, all, v) : v;
      if (!all) return all;
      continue;
    }
    if (v.kind == Kind::Opaque) return v;
    if (!truthy(v)) return v;
    if (!all) all = v;
  }
  return all;
}

std::string Evaluator::format(const Value &v, std::string_view how) {
  bool asRepr = how.starts_with("!r");
  if (how.starts_with("!")) how.remove_prefix(2);
  if (how.starts_with(":")) how.remove_prefix(1);
  std::string text = asRepr ? repr(v) : toStr(v);
  if (how.empty()) return text;
  char type = how.back();
  std::string spec(how);
  if (v.isIntLike() && std::string_view("dxXob").find(type) != std::string_view::npos)
    return fmt::format(fmt::runtime("{:" + spec + "}"), static_cast<int64_t>(v.i));
  if (v.isNumber() && std::string_view("feEgG").find(type) != std::string_view::npos)
    return fmt::format(fmt::runtime("{:" + spec + "}"), v.number());
  bool digits = how.find_first_not_of("0123456789") == std::string_view::npos && how.size() < 4;
  if (digits && v.isIntLike()) return fmt::format(fmt::runtime("{:" + spec + "}"), static_cast<int64_t>(v.i));
  return text;
}

/// Whether fmt will take the format spec: only a plain [fill][0][width][.precision][type], so that no input can upset
/// it.
static bool plainSpec(std::string_view how) {
  if (how.starts_with("!")) how.remove_prefix(std::min<size_t>(2, how.size()));
  if (how.empty()) return true;
  if (!how.starts_with(":")) return false;
  how.remove_prefix(1);
  size_t i = 0;
  auto digits = [&] {
    size_t from = i;
    while (i < how.size() && how[i] >= '0' && how[i] <= '9') ++i;
    return i - from <= 3;
  };
  if (!digits()) return false;
  if (i < how.size() && how[i] == '.') {
    ++i;
    size_t from = i;
    if (!digits() || i == from) return false;
    return i + 1 == how.size() && std::string_view("feEgG").find(how[i]) != std::string_view::npos;
  }
  if (i < how.size() && std::string_view("dxXobfeEgGs").find(how[i]) != std::string_view::npos) ++i;
  return i == how.size();
}

Value Evaluator::joined(Expr *e) {
  std::string out;
  for (Expr *part : e->items) {
    if (part->kind == ExprKind::String) {
      out += part->string;
      continue;
    }
    Value v = eval(part->items[0]);
    if (!v) return v;
    if (v.isRuntime()) return c.fail(diag::TrFString, part->pos, typeName(v));
    if (v.kind == Kind::Opaque && !c.frame->kernel) return v;
    out += plainSpec(part->text) ? format(v, part->text) : toStr(v);
  }
  return c.str(std::move(out));
}

std::optional<std::vector<Value>> Evaluator::iterate(const Value &v) {
  switch (v.kind) {
  case Kind::Tuple:
  case Kind::List: return v.items();
  case Kind::Str: {
    std::vector<Value> out;
    for (char ch : v.str()) out.push_back(c.str(std::string(1, ch)));
    return out;
  }
  case Kind::Dict: {
    std::vector<Value> out;
    for (size_t i = 0; i + 1 < v.items().size(); i += 2) out.push_back(v.items()[i]);
    return out;
  }
  case Kind::Range: {
    std::vector<Value> out;
    for (size_t i = 0; i < 3; ++i)
      if (!v.items()[i].isIntLike()) {
        c.fail(diag::TrNotIterable, "range over run-time values here");
        return std::nullopt;
      }
    __int128 step = v.items()[2].i;
    if (step == 0) {
      c.fail(diag::TrRangeStep);
      return std::nullopt;
    }
    for (__int128 i = v.items()[0].i; step > 0 ? i < v.items()[1].i : i > v.items()[1].i; i += step) {
      out.push_back(Value::integer(i));
      if (out.size() > 100000) {
        c.fail(diag::TrUnrollTooLong, 100000);
        return std::nullopt;
      }
    }
    return out;
  }
  default: c.fail(diag::TrNotIterable, typeName(v)); return std::nullopt;
  }
}

bool Evaluator::comprehend(Expr *e, size_t clause, std::vector<Value> &out) {
  if (clause == e->clauses.size()) {
    for (Expr *item : e->items) {
      out.push_back(eval(item));
      if (!out.back()) return false;
    }
    return step();
  }
  ComprehensionFor &f = e->clauses[clause];
  Value source = eval(f.iter);
  std::optional<std::vector<Value>> all = source ? iterate(source) : std::nullopt;
  if (!all) return false;
  for (const Value &v : *all) {
    if (!assign(f.target, v)) return false;
    bool keep = true;
    for (Expr *cond : f.conditions) {
      Value k = eval(cond);
      if (!k) return false;
      if (k.isTensor()) {
        c.fail(diag::TrConstexprCondition, cond->pos, typeName(k));
        return false;
      }
      keep &= truthy(k);
    }
    if (keep && !comprehend(e, clause + 1, out)) return false;
  }
  return true;
}

Value Evaluator::comprehension(Expr *e) {
  // The loop names are the comprehension's own.
  Scope saved = c.frame->locals;
  std::vector<Value> out;
  bool ok = comprehend(e, 0, out);
  c.frame->locals = std::move(saved);
  if (!ok) return {};
  if (e->text == "dict") return c.list(Kind::Dict, std::move(out));
  return c.list(c.frame->kernel || e->text == "generator" ? Kind::Tuple : Kind::List, std::move(out));
}

} // namespace neso::triton
