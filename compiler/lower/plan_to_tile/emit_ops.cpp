// Scalar operators of loop bodies as tile operations.
#include <cmath>

#include "ir/tile/build.h"
#include "lower/plan_to_tile/emit.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

namespace neso {

using namespace mlir;
using loops::Op;
using loops::OpKind;
namespace tb = tile;

namespace {

Type like(Value v, Type element) {
  if (auto shaped = dyn_cast<ShapedType>(v.getType())) return shaped.clone(element);
  return element;
}

} // namespace

/// A power of two from its bits: f32's exponent, which is not a normal one for the least; the greatest says NaN.
static Val scaleToFloat(Emitter &e, Val x) {
  auto c = [&](int64_t v) { return e.constant(DType::U32, 0, v); };
  const Val bits = e.cast(x, DType::U8, DType::U32);
  const Val normal = e.select(e.compare("eq", bits, c(0xff)), c(0x7fc00000), e.binary("arith.shli", bits, c(23)));
  const Val all = e.select(e.compare("eq", bits, c(0)), c(0x400000), normal);
  return {tb::bitcast(e.k.b, e.k.loc, all.v, like(all.v, e.k.b.getF32Type())), all.vary};
}

/// The nearest power of two, as ATen rounds: halves up, but not from the least exponent. The sign goes.
static Val floatToScale(Emitter &e, Val x) {
  auto c = [&](int64_t v) { return e.constant(DType::U32, 0, v); };
  const Val bits = {tb::bitcast(e.k.b, e.k.loc, x.v, like(x.v, e.k.b.getI32Type())), x.vary};
  const Val exponent = e.binary("arith.andi", e.binary("arith.shrui", bits, c(23)), c(0xff));
  auto has = [&](int64_t mask) { return e.compare("ne", e.binary("arith.andi", bits, c(mask)), c(0)); };
  const Val up =
      e.binary("arith.andi", has(0x400000), e.binary("arith.ori", has(0x3fffff), e.compare("ne", exponent, c(0))));
  const Val rounded = e.select(up, e.binary("arith.addi", exponent, c(1)), exponent);
  return e.cast(e.select(e.compare("eq", exponent, c(0xff)), exponent, rounded), DType::U32, DType::U8);
}

Val Emitter::cast(Val x, DType from, DType to) {
  if (from == to) return x;
  if (from == DType::F8E8M0FNU) return cast(scaleToFloat(*this, x), DType::F32, to);
  if (to == DType::F8E8M0FNU) return floatToScale(*this, cast(x, from, DType::F32));
  Type target = like(x.v, computeTypeOf(k.b.getContext(), to));
  OpBuilder &b = k.b;
  auto made = [&](Value v) { return Val{v, x.vary}; };
  bool fromF8 = isFloat(from) && itemSize(from) == 1, toF8 = isFloat(to) && itemSize(to) == 1;
  if (isFloat(from) && isFloat(to)) {
    if (fromF8 || toF8 || itemSize(from) == itemSize(to)) {
      // f16 <-> bf16 and FP8 meet in f32, rounded once more on the way down.
      if (!fromF8 && !toF8) return cast(cast(x, from, DType::F32), DType::F32, to);
      if (fromF8 && to != DType::F32) return cast(cast(x, from, DType::F32), DType::F32, to);
      if (toF8 && from != DType::F32) return cast(cast(x, from, DType::F32), DType::F32, to);
      return made(tb::fpToFp(b, k.loc, x.v, target));
    }
    if (itemSize(from) < itemSize(to)) return made(arith::ExtFOp::create(b, k.loc, target, x.v));
    return made(arith::TruncFOp::create(b, k.loc, target, x.v));
  }
  if (isFloat(from)) {
    if (fromF8) return cast(cast(x, from, DType::F32), DType::F32, to);
    if (to == DType::Bool) return compare("ne", x, constant(from, 0, 0));
    if (to == DType::U64) return made(arith::FPToUIOp::create(b, k.loc, target, x.v));
    // Narrow and unsigned integers wrap as ATen's CPU casts do: through a wider signed integer.
    DType wide = itemSize(to) < 4 ? DType::I32 : DType::I64;
    if (to == DType::I32) wide = DType::I32;
    Value v = arith::FPToSIOp::create(b, k.loc, like(x.v, computeTypeOf(b.getContext(), wide)), x.v);
    return cast({v, x.vary}, wide, to);
  }
  if (isFloat(to)) {
    if (toF8) return cast(cast(x, from, DType::F32), DType::F32, to);
    if (isSignedInt(from)) return made(arith::SIToFPOp::create(b, k.loc, target, x.v));
    return made(arith::UIToFPOp::create(b, k.loc, target, x.v));
  }
  if (to == DType::Bool) return compare("ne", x, constant(from, 0, 0));
  if (itemSize(from) == itemSize(to) && from != DType::Bool) return x;
  if (from != DType::Bool && itemSize(from) > itemSize(to)) return made(arith::TruncIOp::create(b, k.loc, target, x.v));
  if (isSignedInt(from)) return made(arith::ExtSIOp::create(b, k.loc, target, x.v));
  return made(arith::ExtUIOp::create(b, k.loc, target, x.v));
}

namespace {

/// An integer body value as an index expression, so that it is computed with the indices and comparisons can be proved
/// away.
std::optional<Expr> asExpr(const loops::Body &body, loops::ValueIdx i, int depth = 0) {
  const Op &op = body.ops[static_cast<size_t>(i)];
  if (depth > 8) return std::nullopt;
  if (op.kind == OpKind::Index) return op.index;
  if (!isSignedInt(op.dtype) || itemSize(op.dtype) < 4) return std::nullopt;
  if (op.kind == OpKind::Constant) return Expr(op.immInt);
  if (op.kind == OpKind::Cast) {
    DType from = body.ops[static_cast<size_t>(op.a)].dtype;
    return isSignedInt(from) ? asExpr(body, op.a, depth + 1) : std::nullopt;
  }
  if (op.kind != OpKind::Add && op.kind != OpKind::Sub && op.kind != OpKind::Mul) return std::nullopt;
  std::optional<Expr> a = asExpr(body, op.a, depth + 1);
  std::optional<Expr> b = a ? asExpr(body, op.b, depth + 1) : std::nullopt;
  if (!b) return std::nullopt;
  return op.kind == OpKind::Add ? *a + *b : op.kind == OpKind::Sub ? *a - *b : *a * *b;
}

std::optional<Expr> comparisonOf(const loops::Body &body, const Op &op) {
  Expr (*make)(Expr, Expr) = nullptr;
  switch (op.kind) {
  case OpKind::Eq: make = eq; break;
  case OpKind::Ne: make = ne; break;
  case OpKind::Lt: make = lt; break;
  case OpKind::Le: make = le; break;
  case OpKind::Gt: make = gt; break;
  case OpKind::Ge: make = ge; break;
  default: return std::nullopt;
  }
  std::optional<Expr> a = asExpr(body, op.a), b = a ? asExpr(body, op.b) : std::nullopt;
  return b ? std::optional(make(*a, *b)) : std::nullopt;
}

bool isTrue(Val v) {
  auto constant = v ? v.v.getDefiningOp<arith::ConstantOp>() : nullptr;
  auto attr = constant ? dyn_cast<IntegerAttr>(constant.getValue()) : nullptr;
  return attr && attr.getType().isInteger(1) && !attr.getValue().isZero();
}

} // namespace

void Emitter::defineIndirects(const loops::Body &body, std::vector<Val> &memo) {
  for (size_t i = 0; i < body.ops.size(); ++i)
    if (body.ops[i].kind == OpKind::Indirect) value(body, static_cast<loops::ValueIdx>(i), memo);
}

Val Emitter::value(const loops::Body &body, loops::ValueIdx i, std::vector<Val> &memo) {
  if (memo.size() < body.ops.size()) memo.resize(body.ops.size());
  Val &slot = memo[static_cast<size_t>(i)];
  if (slot) return slot;
  const Op &op = body.ops[static_cast<size_t>(i)];
  // Indices that later operators use must be defined first: bodies are in order, so all Indirects before i are.
  for (loops::ValueIdx j = 0; j < i; ++j) {
    const Op &before = body.ops[static_cast<size_t>(j)];
    if (before.kind == OpKind::Indirect && !memo[static_cast<size_t>(j)]) value(body, j, memo);
  }
  Val out;
  switch (op.kind) {
  case OpKind::Constant: out = constant(op.dtype, op.imm, op.immInt); break;
  case OpKind::Index: {
    Val v = index(simplified(op.index));
    DType have = k.indexType.isInteger(32) ? DType::I32 : DType::I64;
    out = cast(v, have, op.dtype);
    break;
  }
  case OpKind::Load: {
    Val mask = op.a >= 0 ? value(body, op.a, memo) : Val();
    Val other = op.b >= 0 ? value(body, op.b, memo) : Val();
    if (isTrue(mask)) mask = other = Val();
    out = load(op.buffer, op.index, mask, other, op.dtype);
    break;
  }
  case OpKind::Indirect: {
    Val v = value(body, op.a, memo);
    DType from = body.ops[static_cast<size_t>(op.a)].dtype;
    // What is checked is compared as wide as it is: a number that has no place in an index is none, whatever is left of it.
    const DType own = k.indexType.isInteger(32) ? DType::I32 : DType::I64, wide = op.check && isSignedInt(from) && itemSize(from) > itemSize(own) ? from : own;
    if (wide == own) v = toIndex(v, from);
    const Val bound = cast(index(op.bound), own, wide), zero = constant(wide, 0, 0);
    if (op.wrap) v = select(compare("lt", v, zero), binary("arith.addi", v, bound), v);
    const Val inside = wide == own ? binary("arith.andi", compare("ge", v, zero), compare("lt", v, bound)) : compare("lt", v, bound, true);
    v = toIndex(v, wide);
    if (op.b >= 0) v = select(value(body, op.b, memo), v, intConst(0));
    if (op.check) {
      Val ok = inside;
      Val applies = tileMask(v.vary);
      if (op.b >= 0) applies = andMask(applies, value(body, op.b, memo));
      if (applies) ok = binary("arith.ori", inside, binary("arith.xori", applies, constant(DType::Bool, 0, 1)));
      tb::assertOp(k.b, k.loc, ok.v, "index out of range in " + k.kernel.name);
    }
    // Memory safety does not rest on the assertion: an index out of range reads element 0, and nothing where there is none.
    if (op.check || !masks.empty()) v = select(inside, v, intConst(0));
    Interval range = facts.rangeOf(op.bound);
    someElement_.erase(op.symbol);
    if (op.check && range.lo <= 0) someElement_[op.symbol] = condition(lt(0, op.bound));
    facts.setRange(op.symbol, {0, range.hi == INT64_MAX ? INT64_MAX : range.hi - 1});
    facts.setIndex(op.symbol, op.bound);
    env[op.symbol] = v;
    // Symbols are unique in a node only: what an earlier node computed from its symbol of this name is another value.
    std::erase_if(indexMemo_, [&](const auto &entry) { return uses(entry.first, op.symbol); });
    out = v;
    break;
  }
  default: {
    if (std::optional<Expr> e = comparisonOf(body, op)) {
      out = condition(*e);
      break;
    }
    std::vector<Val> args;
    std::vector<DType> types;
    for (loops::ValueIdx o : {op.a, op.b, op.c})
      if (o >= 0) {
        args.push_back(value(body, o, memo));
        types.push_back(body.ops[static_cast<size_t>(o)].dtype);
      }
    if (op.kind == OpKind::And && op.dtype == DType::Bool && (isTrue(args[0]) || isTrue(args[1])))
      out = isTrue(args[0]) ? args[1] : args[0];
    else
      out = scalarOp(op, args, types);
  }
  }
  memo[static_cast<size_t>(i)] = out;
  return out;
}

Val Emitter::scalarOp(const Op &op, const std::vector<Val> &args, const std::vector<DType> &types) {
  OpBuilder &b = k.b;
  DType t = types.empty() ? op.dtype : types[0];
  if (op.kind == OpKind::Where) t = op.dtype;
  bool fp = isFloat(t), uns = isUnsignedInt(t) || t == DType::Bool;
  Val x = args.empty() ? Val() : args[0], y = args.size() > 1 ? args[1] : Val();
  auto unary = [&](const char *opName, Val v) {
    OperationState state(k.loc, opName);
    state.addOperands(v.v);
    state.addTypes(v.v.getType());
    return Val{b.create(state)->getResult(0), v.vary};
  };
  auto c = [&](double f, int64_t i) { return constant(t, f, i); };
  const loops::OpInfo &info = loops::info(op.kind);
  if (info.form.compares) return compare(info.text.data(), x, y, uns);
  if (const char *form = info.form.on(t)) {
    const std::string_view what = form;
    if (what == "=") return x;
    if (what.find('.') == std::string_view::npos) return external(what, args, t, op.dtype);
    return args.size() == 2 ? binary(form, x, y) : unary(form, x);
  }

  switch (op.kind) {
  case OpKind::Cast: return cast(x, types[0], op.dtype);
  case OpKind::Bitcast: return {tb::bitcast(b, k.loc, x.v, like(x.v, computeTypeOf(b.getContext(), op.dtype))), x.vary};
  case OpKind::Neg: return fp ? unary("arith.negf", x) : binary("arith.subi", c(0, 0), x);
  case OpKind::Abs:
    return fp    ? unary("math.absf", x)
           : uns ? x
                 : select(compare("lt", x, c(0, 0)), binary("arith.subi", c(0, 0), x), x);
  case OpKind::Sign: {
    if (uns) return t == DType::Bool ? x : select(compare("eq", x, c(0, 0)), c(0, 0), c(1, 1));
    Val s = select(compare("gt", x, c(0, 0)), c(1, 1), select(compare("lt", x, c(0, 0)), c(-1, -1), c(0, 0)));
    return s; // sign(NaN) is 0, as ATen has it
  }
  case OpKind::Reciprocal: return binary("arith.divf", c(1, 1), x);
  case OpKind::Relu: // NaN stays: x < 0 is false for it
    return select(compare("lt", x, c(0, 0), uns), c(0, 0), x);
  case OpKind::Sigmoid:
    return binary("arith.divf", c(1, 0), binary("arith.addf", c(1, 0), unary("math.exp", unary("arith.negf", x))));
  case OpKind::Not: return binary("arith.xori", x, constant(DType::Bool, 0, 1));
  case OpKind::BitNot: return binary("arith.xori", x, t == DType::Bool ? c(0, 1) : c(0, -1));
  case OpKind::IsNan: return compare("uno", x, x);
  case OpKind::IsInf: return compare("eq", unary("math.absf", x), c(INFINITY, 0));
  case OpKind::SignBit: {
    if (!fp) return compare("lt", x, c(0, 0), uns);
    DType bits = itemSize(t) == 2 ? DType::I16 : itemSize(t) == 4 ? DType::I32 : DType::I64;
    Val raw{tb::bitcast(b, k.loc, x.v, like(x.v, computeTypeOf(b.getContext(), bits))), x.vary};
    return compare("lt", raw, constant(bits, 0, 0));
  }
  case OpKind::Div:
  case OpKind::FloorDiv:
  case OpKind::Mod:
  case OpKind::Fmod: return fp ? floatDivision(op.kind, x, y, t) : intDivision(op.kind, x, y, t);
  case OpKind::Shl:
  case OpKind::Shr: {
    // A shift by the width or more has no value in the IR; ATen gives 0, or the sign for a right shift.
    int64_t bits = itemSize(t) * 8;
    Val within = compare("lt", y, c(0, bits), true);
    Val amount = select(within, y, c(0, bits - 1));
    if (op.kind == OpKind::Shr && !uns) return binary("arith.shrsi", x, amount);
    Val r = binary(op.kind == OpKind::Shl ? "arith.shli" : "arith.shrui", x, amount);
    return select(within, r, c(0, 0));
  }
  case OpKind::Where: return select(x, y, args[2]);
  case OpKind::Fma:
    if (fp) return fusedMultiplyAdd(x, y, args[2]);
    return t == DType::Bool ? binary("arith.ori", binary("arith.andi", x, y), args[2])
                            : binary("arith.addi", binary("arith.muli", x, y), args[2]);
  case OpKind::Ldexp: return binary("arith.mulf", x, unary("math.exp2", y));
  case OpKind::Lcm: {
    Op g = op;
    g.kind = OpKind::Gcd;
    Val d = scalarOp(g, args, types);
    // Narrow integers are multiplied as C does it, in 32 bits.
    const DType wide = uns || itemSize(t) >= 4 ? t : DType::I32;
    Val p = binary("arith.muli", cast(intDivision(OpKind::Div, x, d, t), t, wide), cast(y, t, wide));
    if (uns) return p;
    Val zero = constant(wide, 0, 0);
    return cast(select(compare("lt", p, zero), binary("arith.subi", zero, p), p), wide, t);
  }
  case OpKind::RandU32:
  case OpKind::RandUniform:
  case OpKind::RandNormal: return random(op.kind, x, y, args[2]);
  default: break;
  }
  NESO_UNREACHABLE("a scalar operator without a tile form");
}

/// A function of the device library, by its f64 name to which f32 adds an 'f', or one of ours, to which the dtype is added.
Val Emitter::external(std::string_view function, const std::vector<Val> &args, DType t, DType result) {
  unsigned vary = 0;
  for (Val a : args) vary |= a.vary;
  SmallVector<Value> operands;
  for (Val a : args) operands.push_back(widen(a, vary).v);
  std::string full(function);
  if (!function.starts_with("__nv_"))
    full += "_" + std::string(name(t));
  else if (t == DType::F32)
    full += "f";
  return {tb::externElementwise(k.b, k.loc, full, operands, like(operands[0], computeTypeOf(k.b.getContext(), result))),
          vary};
}

Val Emitter::softmaxWeight(Val d) { return {math::ExpOp::create(k.b, k.loc, d.v, arith::FastMathFlags::afn), d.vary}; }

Val Emitter::softmaxWeight2(Val d) { return {math::Exp2Op::create(k.b, k.loc, d.v, arith::FastMathFlags::afn), d.vary}; }

Val Emitter::fusedMultiplyAdd(Val x, Val y, Val z) {
  unsigned vary = x.vary | y.vary | z.vary;
  return {math::FmaOp::create(k.b, k.loc, widen(x, vary).v, widen(y, vary).v, widen(z, vary).v), vary};
}

Val Emitter::intDivision(OpKind kind, Val a, Val d, DType t) {
  auto c = [&](int64_t i) { return constant(t, 0, i); };
  // Division by zero and INT_MIN / -1 trap on some machines, also in lanes that a mask throws away: divide by 1 there.
  Val zero = compare("eq", d, c(0));
  if (isUnsignedInt(t) || t == DType::Bool) {
    Val safe = select(zero, c(1), d);
    return binary(kind == OpKind::Div || kind == OpKind::FloorDiv ? "arith.divui" : "arith.remui", a, safe);
  }
  Val minusOne = compare("eq", d, c(-1));
  Val safe = select(binary("arith.ori", zero, minusOne), c(1), d);
  if (kind == OpKind::Div || kind == OpKind::FloorDiv) {
    Val q = binary("arith.divsi", a, safe);
    if (kind == OpKind::FloorDiv) {
      Val r = binary("arith.remsi", a, safe);
      Val down = binary("arith.andi", compare("ne", r, c(0)), compare("lt", binary("arith.xori", r, safe), c(0)));
      q = select(down, binary("arith.subi", q, c(1)), q);
    }
    return select(minusOne, binary("arith.subi", c(0), a), q);
  }
  Val r = select(minusOne, c(0), binary("arith.remsi", a, safe));
  if (kind == OpKind::Fmod) return r;
  Val up = binary("arith.andi", compare("ne", r, c(0)), compare("lt", binary("arith.xori", r, d), c(0)));
  return select(up, binary("arith.addi", r, d), r);
}

Val Emitter::floatDivision(OpKind kind, Val a, Val d, DType t) {
  auto c = [&](double f) { return constant(t, f, 0); };
  if (kind == OpKind::Div) return binary("arith.divf", a, d);
  Val r = binary("arith.remf", a, d);
  if (kind == OpKind::Fmod) return r;
  Val differ = binary("arith.andi", compare("ne", r, c(0)),
                      binary("arith.xori", compare("lt", r, c(0)), compare("lt", d, c(0))));
  if (kind == OpKind::Mod) return select(differ, binary("arith.addf", r, d), r);
  // c10::div_floor_floating: exact where a rounded quotient would step over an integer.
  Val q = binary("arith.divf", binary("arith.subf", a, r), d);
  q = select(differ, binary("arith.subf", q, c(1)), q);
  OperationState state(k.loc, "math.floor");
  state.addOperands(q.v);
  state.addTypes(q.v.getType());
  Val down{k.b.create(state)->getResult(0), q.vary};
  down = select(compare("gt", binary("arith.subf", q, down), c(0.5)), binary("arith.addf", down, c(1)), down);
  Val plain = binary("arith.divf", a, d);
  Val zero = binary("math.copysign", c(0), plain);
  down = select(compare("eq", q, c(0)), zero, down);
  return select(compare("eq", d, c(0)), plain, down);
}

/// Philox 4x32-10 (Salmon et al., SC 2011): key = the two halves of the seed, counter = (offset low, offset high, 0,
/// 0). RandU32 is word 0; RandUniform is its upper 24 bits times 2^-24; RandNormal is Box-Muller on words 0 and 1.
Val Emitter::random(OpKind kind, Val seed, Val offset, Val which) {
  auto word = [&](Val v, int64_t shift) {
    if (shift) v = binary("arith.shrui", v, constant(DType::I64, 0, shift));
    return cast(v, DType::U64, DType::U32);
  };
  auto u32 = [&](int64_t v) { return constant(DType::U32, 0, static_cast<int32_t>(v)); };
  auto high = [&](Val a, Val b) {
    unsigned vary = a.vary | b.vary;
    return Val{tb::mulhiui(k.b, k.loc, widen(a, vary).v, widen(b, vary).v), vary};
  };
  Val k0 = word(seed, 0), k1 = word(seed, 32), c0 = word(offset, 0), c1 = word(offset, 32), c2 = u32(0), c3 = u32(0);
  for (int round = 0; round < 10; ++round) {
    Val h0 = high(c0, u32(0xD2511F53)), l0 = binary("arith.muli", c0, u32(0xD2511F53));
    Val h1 = high(c2, u32(0xCD9E8D57)), l1 = binary("arith.muli", c2, u32(0xCD9E8D57));
    c0 = binary("arith.xori", binary("arith.xori", h1, c1), k0);
    c2 = binary("arith.xori", binary("arith.xori", h0, c3), k1);
    c1 = l1, c3 = l0;
    k0 = binary("arith.addi", k0, u32(0x9E3779B9)), k1 = binary("arith.addi", k1, u32(0xBB67AE85));
  }
  // Elements of a thread that share a call share its rounds too: their numbers are equal, and `which` is a constant for
  // each.
  auto is = [&](int64_t n) { return compare("eq", which, constant(DType::I64, 0, n)); };
  auto wordOf = [&] { return select(is(0), c0, select(is(1), c1, select(is(2), c2, c3))); };
  if (kind == OpKind::RandU32) return wordOf();
  auto uniform = [&](Val bits) {
    Val top = binary("arith.shrui", bits, u32(8));
    return binary("arith.mulf", cast(top, DType::U32, DType::F32), constant(DType::F32, 0x1p-24, 0));
  };
  if (kind == OpKind::RandUniform) return uniform(wordOf());
  auto f = [&](double v) { return constant(DType::F32, v, 0); };
  auto unary = [&](const char *opName, Val v) {
    OperationState state(k.loc, opName);
    state.addOperands(v.v);
    state.addTypes(v.v.getType());
    return Val{k.b.create(state)->getResult(0), v.vary};
  };
  Val u1 = binary("arith.subf", f(1), uniform(select(is(0), c0, c2))); // (0, 1]: its logarithm is finite
  Val radius = unary("math.sqrt", binary("arith.mulf", f(-2), unary("math.log", u1)));
  return binary("arith.mulf", radius,
                unary("math.cos", binary("arith.mulf", f(6.283185307179586), uniform(select(is(0), c1, c3)))));
}

} // namespace neso
