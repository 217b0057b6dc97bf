#include "lower/graph_to_loops/body.h"

#include <cmath>
#include <cstring>

#include "ir/loops/numeric.h"

namespace neso::lower {

using loops::Op;

static int64_t bitsOf(double d) {
  int64_t bits;
  std::memcpy(&bits, &d, sizeof bits);
  return bits;
}

Val BodyBuilder::emit(Op op) {
  if (loops::info(op.kind).has(loops::Commutative) && op.a > op.b) std::swap(op.a, op.b);
  Key key{static_cast<int>(op.kind),
          static_cast<int>(op.dtype),
          op.a,
          op.b,
          op.c,
          bitsOf(op.imm),
          op.immInt,
          op.buffer.value,
          op.index.valid() ? op.index.node() : nullptr,
          op.bound.valid() ? op.bound.node() : nullptr,
          (op.wrap ? 1 : 0) + (op.check ? 2 : 0)};
  auto [it, fresh] = seen_.try_emplace(key, static_cast<ValueIdx>(body_.ops.size()));
  DType t = op.dtype;
  if (fresh) body_.ops.push_back(std::move(op));
  return {this, it->second, t};
}

Expr BodyBuilder::addIndex(Symbol symbol, Expr extent) {
  if (extent.isConst(1)) return 0;
  facts_.setIndex(symbol, extent);
  return symbol;
}

Val BodyBuilder::constant(DType t, double value) {
  if (isFloat(t)) {
    Op op{};
    op.kind = OpKind::Constant;
    op.dtype = t;
    // Values of reduced float tensors are held in F32; a literal is what F32 makes of it.
    op.imm = t == DType::F32 ? static_cast<double>(static_cast<float>(value)) : value;
    return emit(op);
  }
  if (t == DType::Bool) return constantInt(t, value != 0);
  if (std::isnan(value)) return constantInt(t, 0);
  if (value >= 9223372036854775807.0) return constantInt(t, INT64_MAX);
  if (value <= -9223372036854775808.0) return constantInt(t, INT64_MIN);
  return constantInt(t, static_cast<int64_t>(value));
}

Val BodyBuilder::constantInt(DType t, int64_t value) {
  if (isFloat(t)) return constant(t, static_cast<double>(value));
  Op op{};
  op.kind = OpKind::Constant;
  op.dtype = t;
  op.immInt = t == DType::Bool ? int64_t{value != 0} : loops::wrapInt(t, value);
  return emit(op);
}

Val BodyBuilder::placeholder(DType t) {
  Op op{};
  op.kind = OpKind::Constant;
  op.dtype = t;
  body_.ops.push_back(op);
  return {this, static_cast<ValueIdx>(body_.ops.size() - 1), t};
}

Val BodyBuilder::index(Expr e, DType t) {
  e = facts_.simplify(e);
  if (e.isConst()) return constantInt(t, e.constValue());
  if (isFloat(t)) return cast(index(e, DType::I64), t);
  Op op{};
  op.kind = OpKind::Index;
  op.dtype = t;
  op.index = e;
  return emit(op);
}

Val BodyBuilder::load(BufferId buffer, DType t, Expr index) {
  Op op{};
  op.kind = OpKind::Load;
  op.dtype = t;
  op.buffer = buffer;
  op.index = facts_.simplify(index);
  op.a = mask_;
  Val v = emit(op);
  return cast(v, computeType(t));
}

Expr BodyBuilder::indirect(Val v, Expr bound, bool wrap, bool check) {
  if (std::optional<double> c = constantOf(v)) {
    int64_t i = op(v).immInt;
    std::optional<int64_t> n = bound.asConst();
    if (i >= 0 && (!n || i < *n)) return i;
    if (i < 0 && wrap && n && i >= -*n) return i + *n;
  }
  ValueIdx mask = mask_;
  if (check && guard_) {
    Val ok = (*guard_)(*this);
    mask = mask < 0 ? ok.idx : binary(OpKind::And, {this, mask, DType::Bool}, ok).idx;
  }
  Op op{};
  op.kind = OpKind::Indirect;
  op.dtype = DType::I64;
  op.a = cast(v, DType::I64).idx;
  op.b = mask;
  op.bound = bound;
  op.wrap = wrap;
  op.check = check;
  size_t before = body_.ops.size();
  Val r = emit(op);
  if (body_.ops.size() != before) {
    body_.ops[r.idx].symbol = Symbol::indirect(indirects_++);
    facts_.setIndex(body_.ops[r.idx].symbol, bound);
  }
  return body_.ops[r.idx].symbol;
}

std::optional<double> BodyBuilder::constantOf(Val v) const {
  if (!v.valid() || v.idx < 0) return std::nullopt;
  const Op &o = body_.ops[v.idx];
  if (o.kind != OpKind::Constant || v.idx >= static_cast<ValueIdx>(body_.ops.size())) return std::nullopt;
  // The placeholder of a contraction's sum is no constant: it is op 0 and not in the table.
  if (v.idx == 0) {
    Key key{static_cast<int>(o.kind),
            static_cast<int>(o.dtype),
            -1,
            -1,
            -1,
            bitsOf(o.imm),
            o.immInt,
            -1,
            nullptr,
            nullptr,
            0};
    auto it = seen_.find(key);
    if (it == seen_.end() || it->second != 0) return std::nullopt;
  }
  return isFloat(o.dtype) ? o.imm : static_cast<double>(o.immInt);
}

Val BodyBuilder::cast(Val v, DType t) {
  if (v.dtype == t) return v;
  const Op &o = body_.ops[v.idx];
  if (std::optional<double> c = constantOf(v)) {
    if (!isFloat(v.dtype) && !isFloat(t)) return constantInt(t, o.immInt);
    if (!isFloat(v.dtype)) return constant(t, static_cast<double>(o.immInt));
    if (isFloat(t) && !isReducedFloat(t)) return constant(t, *c);
    if (t == DType::Bool) return constantInt(t, *c != 0);
    if (std::isfinite(*c) && std::fabs(*c) < 1e9 && !isFloat(t)) return constantInt(t, static_cast<int64_t>(*c));
  }
  // A value that was widened from t is that value.
  if (o.kind == OpKind::Cast && v.dtype == DType::F32 && isReducedFloat(t) && body_.ops[o.a].dtype == t)
    return {this, o.a, t};
  Op op{};
  op.kind = OpKind::Cast;
  op.dtype = t;
  op.a = v.idx;
  return emit(op);
}

Val BodyBuilder::bitcast(Val v, DType t) {
  Op op{};
  op.kind = OpKind::Bitcast;
  op.dtype = t;
  op.a = v.idx;
  return emit(op);
}

Val BodyBuilder::round(Val v, DType t) {
  if (!isReducedFloat(t)) return v;
  // Integers of 8 bits are exact in 16.
  if (const Op &o = body_.ops[v.idx]; o.kind == OpKind::Cast && (t == DType::BF16 || t == DType::F16))
    if (const DType from = body_.ops[o.a].dtype; !isFloat(from) && itemSize(from) == 1) return v;
  return cast(cast(v, t), v.dtype);
}

Val BodyBuilder::unary(OpKind k, Val a) {
  if (k == OpKind::Not || k == OpKind::Neg) {
    if (std::optional<double> c = constantOf(a)) {
      if (k == OpKind::Not) return constantInt(DType::Bool, *c == 0);
      if (isFloat(a.dtype)) return constant(a.dtype, -*c);
    }
  }
  Op op{};
  op.kind = k;
  op.dtype = loops::info(k).types == loops::OpTypes::Test ? DType::Bool : a.dtype;
  op.a = a.idx;
  return emit(op);
}

Val BodyBuilder::binary(OpKind k, Val a, Val b) {
  NESO_CHECK(a.dtype == b.dtype || k == OpKind::Ldexp, "operands of different dtypes");
  std::optional<double> ca = constantOf(a), cb = constantOf(b);
  if (a.dtype == DType::Bool && (k == OpKind::And || k == OpKind::Or)) {
    bool absorbing = k == OpKind::Or;
    if (ca) return (*ca != 0) == absorbing ? a : b;
    if (cb) return (*cb != 0) == absorbing ? b : a;
    if (a.idx == b.idx) return a;
  }
  if (cb && *cb == 1 && (k == OpKind::Mul || k == OpKind::Div)) return a;
  if (ca && *ca == 1 && k == OpKind::Mul) return b;
  // x + 0 is not x for x = -0.0, but x - 0 is.
  if (cb && *cb == 0 && !std::signbit(*cb) && (k == OpKind::Sub || (k == OpKind::Add && !isFloat(a.dtype)))) return a;
  if (ca && *ca == 0 && k == OpKind::Add && !isFloat(a.dtype)) return b;
  Op op{};
  op.kind = k;
  op.dtype = loops::info(k).types == loops::OpTypes::Test ? DType::Bool : a.dtype;
  op.a = a.idx;
  op.b = b.idx;
  return emit(op);
}

Val BodyBuilder::where(Val c, Val a, Val b) {
  NESO_CHECK(a.dtype == b.dtype, "branches of different dtypes");
  if (std::optional<double> cc = constantOf(c)) return *cc != 0 ? a : b;
  if (a.idx == b.idx) return a;
  Op op{};
  op.kind = OpKind::Where;
  op.dtype = a.dtype;
  op.a = c.idx;
  op.b = a.idx;
  op.c = b.idx;
  return emit(op);
}

Val BodyBuilder::random(OpKind k, Val seed, Val counter, Val word) {
  Op op{};
  op.kind = k;
  op.dtype = k == OpKind::RandU32 ? DType::U32 : DType::F32;
  op.a = seed.idx;
  op.b = counter.idx;
  op.c = word.idx;
  return emit(op);
}

Val BodyBuilder::masked(Val cond, const std::function<Val()> &fn, Val other) {
  if (std::optional<double> c = constantOf(cond)) return *c != 0 ? fn() : other;
  ValueIdx outer = mask_;
  mask_ = outer < 0 ? cond.idx : binary(OpKind::And, {this, outer, DType::Bool}, cond).idx;
  Val v = fn();
  mask_ = outer;
  // A masked load gives 0 by itself.
  if (constantOf(other) == 0.0 && outer < 0) {
    const Op *o = &body_.ops[v.idx];
    if (o->kind == OpKind::Cast) o = &body_.ops[o->a];
    if (o->kind == OpKind::Load && o->a == cond.idx && o->b < 0) return v;
  }
  return where(cond, v, other);
}

Val BodyBuilder::compare(OpKind k, Expr a, Expr b) {
  a = facts_.simplify(a);
  b = facts_.simplify(b);
  switch (k) {
  case OpKind::Lt:
    if (facts_.provablyLess(a, b)) return isTrue();
    if (facts_.provablyLessEqual(b, a)) return constantInt(DType::Bool, 0);
    break;
  case OpKind::Le:
    if (facts_.provablyLessEqual(a, b)) return isTrue();
    if (facts_.provablyLess(b, a)) return constantInt(DType::Bool, 0);
    break;
  case OpKind::Eq:
    if (facts_.provablyEqual(a, b)) return isTrue();
    if (facts_.provablyLess(a, b) || facts_.provablyLess(b, a)) return constantInt(DType::Bool, 0);
    break;
  default: break;
  }
  return binary(k, index(a), index(b));
}

Val BodyBuilder::inRange(Expr e, Expr lo, Expr hi) { return compare(OpKind::Le, lo, e) && compare(OpKind::Lt, e, hi); }

// Operators on values.
static Val two(OpKind k, Val a, Val b) { return a.b->binary(k, a, b); }
Val num(Val like, double v) { return like.b->constant(like.dtype, v); }
Val operator+(Val a, Val b) { return two(OpKind::Add, a, b); }
Val operator-(Val a, Val b) { return two(OpKind::Sub, a, b); }
Val operator*(Val a, Val b) { return two(OpKind::Mul, a, b); }
Val operator/(Val a, Val b) { return two(OpKind::Div, a, b); }
Val operator-(Val a) { return a.b->unary(OpKind::Neg, a); }
Val operator+(Val a, double b) { return a + num(a, b); }
Val operator-(Val a, double b) { return a - num(a, b); }
Val operator*(Val a, double b) { return a * num(a, b); }
Val operator/(Val a, double b) { return a / num(a, b); }
Val operator+(double a, Val b) { return num(b, a) + b; }
Val operator-(double a, Val b) { return num(b, a) - b; }
Val operator*(double a, Val b) { return num(b, a) * b; }
Val operator/(double a, Val b) { return num(b, a) / b; }
Val operator<(Val a, Val b) { return two(OpKind::Lt, a, b); }
Val operator<=(Val a, Val b) { return two(OpKind::Le, a, b); }
Val operator>(Val a, Val b) { return two(OpKind::Gt, a, b); }
Val operator>=(Val a, Val b) { return two(OpKind::Ge, a, b); }
Val operator<(Val a, double b) { return a < num(a, b); }
Val operator<=(Val a, double b) { return a <= num(a, b); }
Val operator>(Val a, double b) { return a > num(a, b); }
Val operator>=(Val a, double b) { return a >= num(a, b); }
Val eq(Val a, Val b) { return two(OpKind::Eq, a, b); }
Val eq(Val a, double b) { return eq(a, num(a, b)); }
Val ne(Val a, Val b) { return two(OpKind::Ne, a, b); }
Val ne(Val a, double b) { return ne(a, num(a, b)); }
Val operator&&(Val a, Val b) { return two(OpKind::And, a, b); }
Val operator||(Val a, Val b) { return two(OpKind::Or, a, b); }
Val operator!(Val a) { return a.b->unary(OpKind::Not, a); }
Val where(Val c, Val a, Val b) { return c.b->where(c, a, b); }
Val where(Val c, Val a, double b) { return where(c, a, num(a, b)); }
Val where(Val c, double a, Val b) { return where(c, num(b, a), b); }
Val vmin(Val a, Val b) { return two(OpKind::Min, a, b); }
Val vmax(Val a, Val b) { return two(OpKind::Max, a, b); }
Val un(OpKind k, Val a) { return a.b->unary(k, a); }
Val bin(OpKind k, Val a, Val b) { return two(k, a, b); }
Val bin(OpKind k, Val a, double b) { return two(k, a, num(a, b)); }

} // namespace neso::lower
