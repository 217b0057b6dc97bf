// Values, index expressions, loads and stores of the Emitter. Scalar operators are in emit_ops.cpp.
#include "lower/plan_to_tile/emit.h"

#include <algorithm>
#include <bit>

#include "ir/loops/numeric.h"
#include "ir/tile/build.h"
#include "ir/tile/tile.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

namespace neso {

using namespace mlir;
namespace tb = tile;

Type computeTypeOf(MLIRContext *ctx, DType t) {
  if (t == DType::Bool) return IntegerType::get(ctx, 1);
  if (isInteger(t)) return IntegerType::get(ctx, static_cast<unsigned>(itemSize(t)) * 8);
  // A type of scales alone knows no sign and no zero: its bits stand for it.
  if (t == DType::F8E8M0FNU) return IntegerType::get(ctx, 8);
  if (isFloat(t)) switch (t) {
#define NESO_FLOAT(name, mlir, ...)                                                                                                                   \
  case DType::name: return mlir##Type::get(ctx);
#include "abi/dtypes.def"
    default: break;
    }
  NESO_UNREACHABLE("a complex type in a loop body");
}

Type storageTypeOf(MLIRContext *ctx, DType t) {
  return t == DType::Bool ? Builder(ctx).getI8Type() : computeTypeOf(ctx, t);
}

namespace {
Type elementType(Value v) { return getElementTypeOrSelf(v.getType()); }

std::vector<int64_t> shapeOf(const Frame &f, unsigned vary) {
  std::vector<int64_t> shape;
  for (size_t d = 0; d < f.tile.size(); ++d) shape.push_back(vary >> d & 1 ? f.tile[d] : 1);
  return shape;
}
} // namespace

bool KernelContext::writes(loops::BufferId buffer) const {
  return std::any_of(code.args.begin(), code.args.end(), [&](const plan::KernelArg &a) {
    return a.kind == plan::KernelArg::Kind::Buffer && a.buffer == buffer && a.written;
  });
}

Val Emitter::intConst(int64_t v) { return {arith::ConstantOp::create(k.b, k.loc, k.b.getIntegerAttr(k.indexType, v))}; }

Val Emitter::constant(DType t, double f, int64_t i) {
  Type type = computeTypeOf(k.b.getContext(), t);
  if (t == DType::F8E8M0FNU) i = loops::encodeFloat(t, static_cast<float>(f));
  if (auto floatType = dyn_cast<FloatType>(type)) {
    llvm::APFloat value(f);
    bool loses = false;
    value.convert(floatType.getFloatSemantics(), llvm::APFloat::rmNearestTiesToEven, &loses);
    return {arith::ConstantOp::create(k.b, k.loc, FloatAttr::get(floatType, value))};
  }
  return {arith::ConstantOp::create(k.b, k.loc, k.b.getIntegerAttr(type, i))};
}

Val Emitter::lanes(size_t d) { return lanesOf(d, k.indexType); }

Val Emitter::lanesOf(size_t d, Type type) {
  int64_t n = frame.tile[d];
  Value range = tb::makeRange(k.b, k.loc, 0, n);
  if (type != k.b.getI32Type()) range = arith::ExtSIOp::create(k.b, k.loc, RankedTensorType::get({n}, type), range);
  for (size_t o = 0; o < frame.tile.size(); ++o)
    if (o != d) range = tb::expandDims(k.b, k.loc, range, static_cast<int>(o));
  return {range, 1u << d};
}

Val Emitter::widen(Val x, unsigned vary) {
  vary |= x.vary;
  if (vary == x.vary) return x;
  std::vector<int64_t> shape = shapeOf(frame, vary);
  if (x.vary == 0) return {tb::splat(k.b, k.loc, x.v, shape), vary};
  return {tb::broadcast(k.b, k.loc, x.v, shape), vary};
}

Val Emitter::binary(const char *op, Val a, Val b) {
  unsigned vary = a.vary | b.vary;
  a = widen(a, vary), b = widen(b, vary);
  OperationState state(k.loc, op);
  state.addOperands({a.v, b.v});
  state.addTypes(a.v.getType());
  return {k.b.create(state)->getResult(0), vary};
}

Val Emitter::indexBinary(const char *op, Val a, Val b) {
  Val out = binary(op, a, b);
  Operation *def = out.v.getDefiningOp();
  if (auto add = dyn_cast<arith::AddIOp>(def)) add.setOverflowFlags(arith::IntegerOverflowFlags::nsw);
  if (auto mul = dyn_cast<arith::MulIOp>(def)) mul.setOverflowFlags(arith::IntegerOverflowFlags::nsw);
  return out;
}

Val Emitter::compare(const char *predicate, Val a, Val b, bool isUnsigned) {
  unsigned vary = a.vary | b.vary;
  a = widen(a, vary), b = widen(b, vary);
  std::string p = predicate;
  if (isa<FloatType>(elementType(a.v))) {
    arith::CmpFPredicate f = p == "eq"    ? arith::CmpFPredicate::OEQ
                             : p == "ne"  ? arith::CmpFPredicate::UNE
                             : p == "lt"  ? arith::CmpFPredicate::OLT
                             : p == "le"  ? arith::CmpFPredicate::OLE
                             : p == "gt"  ? arith::CmpFPredicate::OGT
                             : p == "uno" ? arith::CmpFPredicate::UNO
                                          : arith::CmpFPredicate::OGE;
    return {arith::CmpFOp::create(k.b, k.loc, f, a.v, b.v), vary};
  }
  using P = arith::CmpIPredicate;
  P i = p == "eq"   ? P::eq
        : p == "ne" ? P::ne
        : p == "lt" ? (isUnsigned ? P::ult : P::slt)
        : p == "le" ? (isUnsigned ? P::ule : P::sle)
        : p == "gt" ? (isUnsigned ? P::ugt : P::sgt)
                    : (isUnsigned ? P::uge : P::sge);
  return {arith::CmpIOp::create(k.b, k.loc, i, a.v, b.v), vary};
}

Val Emitter::select(Val c, Val a, Val b) {
  unsigned vary = c.vary | a.vary | b.vary;
  // A scalar condition may choose between tensors as it is.
  if (c.vary) c = widen(c, vary);
  a = widen(a, vary), b = widen(b, vary);
  return {arith::SelectOp::create(k.b, k.loc, c.v, a.v, b.v), vary};
}

Val Emitter::andMask(Val a, Val b) {
  if (!a) return b;
  if (!b || a.v == b.v) return a;
  Val &both = ands_[{a.v.getAsOpaquePointer(), b.v.getAsOpaquePointer()}];
  if (!both) both = binary("arith.andi", a, b);
  return both;
}

Val Emitter::widenMask(Val mask, unsigned vary) {
  if (!mask || (mask.vary | vary) == mask.vary) return mask;
  Val &wide = wideMasks_[{mask.v.getAsOpaquePointer(), mask.vary | vary}];
  if (!wide) wide = widen(mask, vary);
  return wide;
}

Val Emitter::toIndex(Val x, DType from) {
  Type type = elementType(x.v);
  unsigned want = k.indexType.getIntOrFloatBitWidth(), have = type.getIntOrFloatBitWidth();
  if (want == have) return x;
  Type to = k.indexType;
  if (auto shaped = dyn_cast<ShapedType>(x.v.getType())) to = shaped.clone(k.indexType);
  if (have > want) return {arith::TruncIOp::create(k.b, k.loc, to, x.v), x.vary};
  if (isSignedInt(from)) return {arith::ExtSIOp::create(k.b, k.loc, to, x.v), x.vary};
  return {arith::ExtUIOp::create(k.b, k.loc, to, x.v), x.vary};
}

Val Emitter::tileMask(unsigned vary) {
  Val out;
  for (Val m : masks)
    if (m.vary & vary) out = andMask(out, m);
  return out;
}

Val Emitter::index(Expr e) {
  if (e.isConst()) return intConst(e.constValue());
  if (e.isSymbol()) {
    if (auto it = env.find(e.symbol()); it != env.end()) return it->second;
    auto it = k.sizes.find(e.symbol());
    NESO_CHECK(it != k.sizes.end(), "an index expression with an unbound symbol");
    return {it->second};
  }
  if (auto it = k.computed.find(e); it != k.computed.end()) return {it->second};
  if (auto it = indexMemo_.find(e); it != indexMemo_.end()) return it->second;
  const std::vector<Expr> &ops = e.operands();
  auto asBool = [&](Expr x) {
    Val v = index(x);
    return compare("ne", v, intConst(0));
  };
  auto fromBool = [&](Val v) {
    Type to = k.indexType;
    if (auto shaped = dyn_cast<ShapedType>(v.v.getType())) to = shaped.clone(k.indexType);
    return Val{arith::ExtUIOp::create(k.b, k.loc, to, v.v), v.vary};
  };
  /// Parts that vary less come first, so that scalars meet scalars and rows meet rows.
  auto fold = [&](const char *op) {
    std::vector<Val> vals;
    for (Expr o : ops) vals.push_back(index(o));
    std::stable_sort(vals.begin(), vals.end(), [](Val a, Val b) {
      return std::pair(std::popcount(a.vary), a.vary) < std::pair(std::popcount(b.vary), b.vary);
    });
    std::vector<Val> groups; // one for each distinct vary
    for (Val v : vals) {
      if (!groups.empty() && groups.back().vary == v.vary)
        groups.back() = indexBinary(op, groups.back(), v);
      else
        groups.push_back(v);
    }
    Val out = groups[0];
    for (size_t i = 1; i < groups.size(); ++i) out = indexBinary(op, out, groups[i]);
    return out;
  };
  Val out;
  switch (e.kind()) {
  case ExprKind::Add: out = fold("arith.addi"); break;
  case ExprKind::Mul: out = fold("arith.muli"); break;
  case ExprKind::Min: out = fold("arith.minsi"); break;
  case ExprKind::Max: out = fold("arith.maxsi"); break;
  case ExprKind::FloorDiv:
  case ExprKind::Mod: {
    bool isMod = e.kind() == ExprKind::Mod;
    Val a = index(ops[0]), d = index(ops[1]);
    if (facts.rangeOf(ops[0]).lo >= 0 && facts.rangeOf(ops[1]).lo >= 0) {
      // Unsigned, where signs do not matter: by a power of two that is a shift, and bits that are known stay known.
      out = binary(isMod ? "arith.remui" : "arith.divui", a, d);
      break;
    }
    Val q = binary("arith.divsi", a, d), r = binary("arith.remsi", a, d);
    // Python's rule: where the remainder and the divisor have different signs, one step down.
    Val differ =
        binary("arith.andi", compare("ne", r, intConst(0)), compare("lt", binary("arith.xori", r, d), intConst(0)));
    out =
        isMod ? select(differ, binary("arith.addi", r, d), r) : select(differ, binary("arith.subi", q, intConst(1)), q);
    break;
  }
  case ExprKind::Pow: {
    // By squares. Of exponents past 63 only 0, 1 and -1 have a power in 64 bits, and for them parity is all that counts.
    Val square = index(ops[0]), n = index(ops[1]);
    n = binary("arith.minsi", n, binary("arith.addi", intConst(62), binary("arith.andi", n, intConst(1))));
    out = intConst(1);
    for (int bit = 0; bit < 6; ++bit) {
      if (bit) square = binary("arith.muli", square, square);
      out = select(compare("ne", binary("arith.andi", n, intConst(1 << bit)), intConst(0)), binary("arith.muli", out, square), out);
    }
    break;
  }
  case ExprKind::Eq: out = fromBool(compareIndices("eq", ops[0], ops[1])); break;
  case ExprKind::Ne: out = fromBool(compareIndices("ne", ops[0], ops[1])); break;
  case ExprKind::Lt: out = fromBool(compareIndices("lt", ops[0], ops[1])); break;
  case ExprKind::Le: out = fromBool(compareIndices("le", ops[0], ops[1])); break;
  case ExprKind::And: out = fold("arith.andi"); break;
  case ExprKind::Or: out = fold("arith.ori"); break;
  case ExprKind::Not: out = fromBool(compare("eq", index(ops[0]), intConst(0))); break;
  case ExprKind::Where: out = select(asBool(ops[0]), index(ops[1]), index(ops[2])); break;
  case ExprKind::Const:
  case ExprKind::Symbol: NESO_UNREACHABLE("a leaf");
  }
  indexMemo_.emplace(e, out);
  return out;
}

Val Emitter::compareIndices(const char *how, Expr a, Expr b) {
  // A number that has no place in an index of 32 bits lies above or below all that do.
  auto beyond = [&](Expr e) {
    const std::optional<int64_t> v = e.asConst();
    if (!v || k.indexType.getIntOrFloatBitWidth() >= 64) return 0;
    return *v > INT32_MAX ? 1 : *v < INT32_MIN ? -1 : 0;
  };
  const int left = beyond(a), right = beyond(b);
  if (left == right) return compare(how, index(a), index(b));
  const std::string_view test = how;
  return constant(DType::Bool, 0, test == "ne" || (test != "eq" && left < right));
}

Expr Emitter::simplified(Expr e) const {
  e = facts.simplify(e);
  auto divides = [](auto &self, Expr x) -> bool {
    if (x.kind() == ExprKind::FloorDiv || x.kind() == ExprKind::Mod) return true;
    for (Expr o : x.operands())
      if (self(self, o)) return true;
    return false;
  };
  return blocked.empty() || !divides(divides, e) ? e : facts.simplify(substitute(e, blocked));
}

Val Emitter::condition(Expr e) {
  e = simplified(e);
  const std::vector<Expr> &ops = e.operands();
  switch (e.kind()) {
  case ExprKind::Eq: return compareIndices("eq", ops[0], ops[1]);
  case ExprKind::Ne: return compareIndices("ne", ops[0], ops[1]);
  case ExprKind::Lt: return compareIndices("lt", ops[0], ops[1]);
  case ExprKind::Le: return compareIndices("le", ops[0], ops[1]);
  case ExprKind::Const: return constant(DType::Bool, 0, e.constValue() != 0);
  default: return compare("ne", index(e), intConst(0));
  }
}

Val Emitter::pointer(loops::BufferId buffer, Expr e) {
  auto it = k.buffers.find(buffer);
  NESO_CHECK(it != k.buffers.end(), "a buffer that is no argument of its kernel");
  Val offset = index(e);
  Val base = widen({it->second}, offset.vary);
  return {tb::addptr(k.b, k.loc, base.v, offset.v), offset.vary};
}

bool Emitter::spansSpace(Expr index) const {
  std::set<Symbol> used;
  for (Symbol s : symbolsOf(index)) used.insert(s);
  auto spans = [&](Symbol::Kind kind, const std::vector<Expr> &ranges) {
    for (size_t d = 0; d < ranges.size(); ++d)
      if (!ranges[d].isConst(1) && !used.count(Symbol::of(kind, d))) return false;
    return true;
  };
  return spans(Symbol::Kind::Outer, k.kernel.xRanges) && spans(Symbol::Kind::Inner, k.kernel.rRanges);
}

Val Emitter::accessMask(Expr index, Val mask) {
  for (const auto &[symbol, some] : someElement_)
    if (uses(index, symbol)) mask = andMask(mask, some);
  return mask;
}

Val Emitter::load(loops::BufferId buffer, Expr e, Val mask, Val other, DType dtype) {
  const bool once = streams && spansSpace(e);
  e = simplified(e);
  for (const Stored &s : stored)
    if (s.buffer == buffer && s.index == e) {
      if (!mask || !other) return s.value;
      return select(mask, s.value, other);
    }
  mask = accessMask(e, mask);
  bool keep = keepLoads && !mask && !k.writes(buffer);
  if (keep)
    for (const Loaded &l : loads_)
      if (l.buffer == buffer && l.index == e && l.masks == masks.size()) return l.value;
  if (k.target.threadBlocks && k.dirty.count(buffer)) {
    ttg::BarrierOp::create(k.b, k.loc, "global_read");
    k.dirty.clear();
  }
  Val at = pointer(buffer, e);
  // An element outside the tile must not be read, also where only the condition depends on the outside dimension.
  mask = andMask(mask, tileMask(at.vary | (mask ? mask.vary : 0)));
  if (mask && (mask.vary & ~at.vary)) at = widen(at, mask.vary);
  mask = widenMask(mask, at.vary);
  Type element = storageTypeOf(k.b.getContext(), dtype);
  if (mask && other && dtype == DType::Bool) {
    Type to = element;
    if (auto shaped = dyn_cast<ShapedType>(other.v.getType())) to = shaped.clone(element);
    other.v = arith::ExtUIOp::create(k.b, k.loc, to, other.v);
  }
  if (mask && !other) other = dtype == DType::Bool ? constant(DType::U8, 0, 0) : constant(dtype, 0, 0);
  if (mask) other = widen(other, at.vary);
  Val out{tb::load(k.b, k.loc, at.v, mask.v, mask ? other.v : Value(), once), at.vary};
  if (dtype == DType::Bool) out = compare("ne", out, constant(DType::U8, 0, 0));
  if (keep) loads_.push_back({buffer, e, masks.size(), out});
  return out;
}

void Emitter::forward(loops::BufferId buffer, Expr index, Val v) {
  std::erase_if(stored, [&](const Stored &old) { return old.buffer == buffer && old.index == index; });
  stored.push_back({buffer, index, v});
}

void Emitter::store(const loops::Store &s, Val value, Val mask) {
  Expr e = simplified(s.index);
  mask = accessMask(e, mask);
  bool inMemory = k.buffers.count(s.buffer) > 0;
  if (s.mode == loops::StoreMode::Set && !mask)
    forward(s.buffer, e, value);
  else
    std::erase_if(stored,
                  [&](const Stored &old) { return old.buffer == s.buffer; }); // what it holds is known to memory alone
  if (!inMemory) return;
  k.dirty.insert(s.buffer);
  bool set = s.mode == loops::StoreMode::Set;
  if (!set && (!k.kernel.serial || k.inTurn)) return update(s, value, mask);
  Val at = pointer(s.buffer, e);
  mask = andMask(mask, tileMask(set ? at.vary : at.vary | value.vary));
  unsigned vary = at.vary | (set ? 0 : value.vary) | (mask ? mask.vary : 0);
  // A store whose address does not vary along a dimension of its value would write one element many times; one lane is
  // no variation.
  for (size_t d = 0; d < frame.tile.size(); ++d)
    if (set && (value.vary & ~vary) >> d & 1) {
      bool first = oneElement >> d & 1;
      NESO_CHECK(frame.tile[d] == 1 || first, "a store of a tile to fewer elements");
      if (first) mask = andMask(mask, tileMask(1u << d));
      vary |= 1u << d | (mask ? mask.vary : 0);
    }
  at = widen(at, vary), value = widen(value, vary);
  mask = widenMask(mask, vary);
  DType dtype = k.plan.program.buffer(s.buffer).dtype;
  if (set && dtype == DType::Bool) {
    Type to = k.b.getI8Type();
    if (auto shaped = dyn_cast<ShapedType>(value.v.getType())) to = shaped.clone(to);
    value.v = arith::ExtUIOp::create(k.b, k.loc, to, value.v);
  }
  if (set) {
    tb::store(k.b, k.loc, at.v, value.v, mask.v);
    return;
  }
  NESO_CHECK(k.kernel.serial, "an update of memory by a kernel whose programs are not in order");
  Val old = load(s.buffer, s.index, mask, {}, dtype);
  bool fp = isFloat(dtype), uns = isUnsignedInt(dtype) || dtype == DType::Bool;
  // Reduced floats are updated in F32, as ATen does.
  DType wide = computeType(dtype);
  Val a = cast(old, dtype, wide), b = cast(value, dtype, wide), sum;
  switch (s.mode) {
  case loops::StoreMode::AtomicAdd:
    sum = binary(fp ? "arith.addf" : dtype == DType::Bool ? "arith.ori" : "arith.addi", a, b);
    break;
  case loops::StoreMode::AtomicMul:
    sum = binary(fp ? "arith.mulf" : dtype == DType::Bool ? "arith.andi" : "arith.muli", a, b);
    break;
  case loops::StoreMode::AtomicMin:
    sum = binary(fp ? "arith.minimumf" : uns ? "arith.minui" : "arith.minsi", a, b);
    break;
  case loops::StoreMode::AtomicMax:
    sum = binary(fp ? "arith.maximumf" : uns ? "arith.maxui" : "arith.maxsi", a, b);
    break;
  case loops::StoreMode::Set: NESO_UNREACHABLE("a plain store");
  }
  Val out = cast(sum, wide, dtype);
  loops::Store plain = s;
  plain.mode = loops::StoreMode::Set;
  store(plain, out, mask);
}

} // namespace neso
