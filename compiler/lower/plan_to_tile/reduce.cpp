#include "lower/plan_to_tile/reduce.h"

#include <cmath>
#include <limits>

#include "ir/tile/attributes.h"
#include "ir/tile/build.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

namespace neso {

using namespace mlir;
using loops::ReduceKind;
namespace tb = tile;

namespace {
ReduceKind reduceKindOf(loops::ScanKind k) {
  switch (k) {
  case loops::ScanKind::Sum: return ReduceKind::Sum;
  case loops::ScanKind::Prod: return ReduceKind::Prod;
  case loops::ScanKind::Max: return ReduceKind::Max;
  case loops::ScanKind::Min: return ReduceKind::Min;
  case loops::ScanKind::LogSumExp: return ReduceKind::Max; // identity -inf; combined by its own rule
  }
  return ReduceKind::Sum;
}

Val unaryOf(Emitter &e, const char *op, Val x) {
  OperationState state(e.k.loc, op);
  state.addOperands(x.v);
  state.addTypes(x.v.getType());
  return {e.k.b.create(state)->getResult(0), x.vary};
}
Val expOf(Emitter &e, Val x) { return unaryOf(e, "math.exp", x); }
Val absOf(Emitter &e, Val x) { return unaryOf(e, "math.absf", x); }
/// x - y; equal infinities have none.
Val differenceOf(Emitter &e, DType t, Val x, Val y) {
  return e.select(e.compare("eq", x, y), e.constant(t, 0, 0), e.binary("arith.subf", x, y));
}

int64_t smallestInt(DType t) {
  if (isUnsignedInt(t) || t == DType::Bool) return 0;
  return itemSize(t) == 8 ? INT64_MIN : -(int64_t{1} << (itemSize(t) * 8 - 1));
}
int64_t largestInt(DType t) {
  if (t == DType::Bool) return 1;
  if (isUnsignedInt(t)) return itemSize(t) == 8 ? -1 : (int64_t{1} << (itemSize(t) * 8)) - 1;
  return itemSize(t) == 8 ? INT64_MAX : (int64_t{1} << (itemSize(t) * 8 - 1)) - 1;
}
} // namespace

Accumulator::Accumulator(const loops::ScanSpec &scan, size_t node)
    : node(node), kind_(reduceKindOf(scan.kind)), type_(scan.body.ops[static_cast<size_t>(scan.inputs[0])].dtype),
      logSumExp_(scan.kind == loops::ScanKind::LogSumExp), reverse_(scan.reverse) {}

std::vector<Val> Accumulator::initial(Emitter &e, unsigned vary) const {
  double f = 0;
  int64_t i = 0;
  switch (kind_) {
  case ReduceKind::Sum:
  case ReduceKind::Any:
  case ReduceKind::XorSum: break;
  case ReduceKind::Prod:
  case ReduceKind::All: f = 1, i = 1; break;
  case ReduceKind::Min:
  case ReduceKind::ArgMin: f = INFINITY, i = largestInt(type_); break;
  case ReduceKind::Max:
  case ReduceKind::ArgMax: f = -INFINITY, i = smallestInt(type_); break;
  case ReduceKind::OnlineSoftmax: f = -INFINITY; break;
  case ReduceKind::Welford: break;
  }
  std::vector<Val> out = {e.widen(e.constant(type_, f, i), vary)};
  if (isArg()) out.push_back(e.widen(e.intConst(e.k.indexType.isInteger(32) ? INT32_MAX : INT64_MAX), vary));
  while (out.size() < arity())
    out.push_back(e.widen(e.constant(type_, 0, 0), vary)); // sum of exponentials; deviations, count
  return out;
}

std::vector<Val> Accumulator::element(Val value, Val position) const {
  if (isArg()) return {value, position};
  return {value};
}

std::vector<Val> Accumulator::combine(Emitter &e, const std::vector<Val> &a, const std::vector<Val> &b) const {
  bool fp = isFloat(type_), uns = isUnsignedInt(type_) || type_ == DType::Bool;
  if (logSumExp_) {
    // log(exp(a) + exp(b)) = m + log1p(exp(-|a - b|)); equal infinities have no difference, so the larger one stands
    // for both.
    Val m = e.binary("arith.maximumf", a[0], b[0]);
    Val d = unaryOf(e, "arith.negf", absOf(e, e.binary("arith.subf", a[0], b[0])));
    Val sum = e.binary("arith.addf", m, unaryOf(e, "math.log1p", expOf(e, d)));
    return {e.select(e.compare("eq", a[0], b[0]), e.binary("arith.addf", m, e.constant(type_, M_LN2, 0)), sum)};
  }
  switch (kind_) {
  case ReduceKind::Sum: return {e.binary(fp ? "arith.addf" : "arith.addi", a[0], b[0])};
  case ReduceKind::Prod: return {e.binary(fp ? "arith.mulf" : "arith.muli", a[0], b[0])};
  case ReduceKind::Min: return {e.binary(fp ? "arith.minimumf" : uns ? "arith.minui" : "arith.minsi", a[0], b[0])};
  case ReduceKind::Max: return {e.binary(fp ? "arith.maximumf" : uns ? "arith.maxui" : "arith.maxsi", a[0], b[0])};
  case ReduceKind::Any: return {e.binary("arith.ori", a[0], b[0])};
  case ReduceKind::All: return {e.binary("arith.andi", a[0], b[0])};
  case ReduceKind::XorSum: return {e.binary("arith.xori", a[0], b[0])};
  case ReduceKind::ArgMin:
  case ReduceKind::ArgMax: {
    const char *better = kind_ == ReduceKind::ArgMin ? "lt" : "gt";
    Val takeA = e.compare(better, a[0], b[0], uns);
    Val tie = e.compare("eq", a[0], b[0]);
    if (fp) { // NaN is the extreme of extremes, and the first one wins
      Val aNan = e.compare("uno", a[0], a[0]), bNan = e.compare("uno", b[0], b[0]);
      Val onlyA = e.binary("arith.andi", aNan, e.binary("arith.xori", bNan, e.constant(DType::Bool, 0, 1)));
      takeA = e.binary("arith.ori", takeA, onlyA);
      tie = e.binary("arith.ori", tie, e.binary("arith.andi", aNan, bNan));
    }
    takeA = e.binary("arith.ori", takeA, e.binary("arith.andi", tie, e.compare("lt", a[1], b[1])));
    return {e.select(takeA, a[0], b[0]), e.select(takeA, a[1], b[1])};
  }
  case ReduceKind::OnlineSoftmax: {
    Val m = e.binary("arith.maximumf", a[0], b[0]);
    auto scaled = [&](const std::vector<Val> &x) {
      return e.binary("arith.mulf", x[1], e.softmaxWeight(differenceOf(e, type_, x[0], m)));
    };
    return {m, e.binary("arith.addf", scaled(a), scaled(b))};
  }
  case ReduceKind::Welford: {
    // Chan, Golub, LeVeque 1983. Parts without elements have weight 0.
    Val n = e.binary("arith.addf", a[2], b[2]), d = e.binary("arith.subf", b[0], a[0]);
    Val none = e.compare("eq", n, e.constant(type_, 0, 0));
    Val weight = e.binary("arith.divf", b[2], e.select(none, e.constant(type_, 1, 0), n));
    Val mean = e.fusedMultiplyAdd(d, weight, a[0]);
    Val between = e.binary("arith.mulf", e.binary("arith.mulf", d, d), e.binary("arith.mulf", a[2], weight));
    return {mean, e.binary("arith.addf", e.binary("arith.addf", a[1], b[1]), between), n};
  }
  }
  NESO_UNREACHABLE("a kind of reduction");
}

std::vector<Val> Accumulator::fold(Emitter &e, const std::vector<Val> &a, std::vector<Val> element, Val mask) const {
  if (kind_ == ReduceKind::OnlineSoftmax) {
    // One exponential an element (Milakov and Gimelshein 2018): of the larger and the smaller of x and the maximum, one
    // has exponential 1. A lane that is left out is -inf: it adds to a sum only while that has seen nothing else, and
    // the first number then wipes it out.
    Val x = mask ? e.select(e.widen(mask, element[0].vary | mask.vary), element[0], e.constant(type_, -INFINITY, 0))
                 : element[0];
    x = e.widen(x, e.frame.full());
    Val m = e.binary("arith.maximumf", a[0], x), d = differenceOf(e, type_, x, a[0]);
    Val exponential = e.softmaxWeight(unaryOf(e, "arith.negf", absOf(e, d)));
    Val one = e.constant(type_, 1, 0), larger = e.compare("gt", x, a[0]);
    return {m, e.fusedMultiplyAdd(a[1], e.select(larger, exponential, one), e.select(larger, one, exponential))};
  }
  if (kind_ == ReduceKind::Welford) {
    Val x = e.widen(element[0], e.frame.full());
    Val n = e.binary("arith.addf", a[2], e.constant(type_, 1, 0)), d = e.binary("arith.subf", x, a[0]);
    Val mean = e.binary("arith.addf", a[0], e.binary("arith.divf", d, n));
    std::vector<Val> out = {mean, e.fusedMultiplyAdd(d, e.binary("arith.subf", x, mean), a[1]), n};
    if (mask)
      for (size_t i = 0; i < out.size(); ++i) out[i] = e.select(e.widen(mask, e.frame.full()), out[i], a[i]);
    return out;
  }
  return combine(e, a, maskTile(e, std::move(element), mask));
}

std::vector<Val> Accumulator::finish(Emitter &e, std::vector<Val> carried) const {
  // exp(x - max) of an infinite maximum is NaN somewhere in the sum.
  if (kind_ == ReduceKind::OnlineSoftmax)
    carried[1] = e.binary("arith.addf", carried[1], e.binary("arith.subf", carried[0], carried[0]));
  return carried;
}

namespace {
/// The region that combines scalars, for tt.reduce and tt.scan.
auto combiner(const Accumulator &a, Emitter &e) {
  return [&a, &e](ValueRange args) {
    size_t n = args.size() / 2;
    std::vector<Val> lhs, rhs;
    for (size_t i = 0; i < n; ++i) lhs.push_back({args[i]}), rhs.push_back({args[n + i]});
    SmallVector<Value> out;
    for (Val v : a.combine(e, lhs, rhs)) out.push_back(v.v);
    return out;
  };
}
} // namespace

std::vector<Val> Accumulator::maskTile(Emitter &e, std::vector<Val> element, Val mask) const {
  std::vector<Val> identity = initial(e, 0);
  if (isArg() && getElementTypeOrSelf(element[1].v).isInteger(32)) identity[1] = e.constant(DType::I32, 0, INT32_MAX);
  for (size_t i = 0; i < element.size(); ++i) {
    if (mask) element[i] = e.select(e.widen(mask, element[i].vary | mask.vary), element[i], identity[i]);
    element[i] = e.widen(element[i], e.frame.full());
  }
  return element;
}

std::vector<Val> Accumulator::reduceTile(Emitter &e, std::vector<Val> element, size_t dim, Val mask) const {
  unsigned full = e.frame.full();
  SmallVector<Value> operands;
  for (Val v : maskTile(e, std::move(element), mask)) operands.push_back(v.v);
  SmallVector<Value> reduced = tb::reduce(e.k.b, e.k.loc, operands, static_cast<int>(dim), combiner(*this, e));
  // The last of all positions changes nothing, however often it is taken: a CPU's loop may end with the mask.
  if (mask && isArg() && !e.k.target.threadBlocks)
    reduced[0].getDefiningOp()->setAttr(tile::kMaskedLanesNeutralAttr, e.k.b.getUnitAttr());
  std::vector<Val> out;
  for (Value v : reduced) {
    if (e.frame.tile.size() > 1) v = tb::expandDims(e.k.b, e.k.loc, v, static_cast<int>(dim));
    out.push_back({v, full & ~(1u << dim)});
  }
  return out;
}

Val Accumulator::scanAlone(Emitter &e, Val element, size_t dim, Val mask) const {
  element = maskTile(e, {element}, mask)[0];
  SmallVector<Value> scanned =
      tb::scan(e.k.b, e.k.loc, {element.v}, static_cast<int>(dim), reverse_, combiner(*this, e));
  return {scanned[0], e.frame.full()};
}

Val Accumulator::scanTile(Emitter &e, Val element, size_t dim, Val mask) {
  element = maskTile(e, {element}, mask)[0];
  Val out = combine(e, carried, {scanAlone(e, element, dim, {})})[0];
  carried = combine(e, carried, reduceTile(e, {element}, dim, {}));
  return out;
}

} // namespace neso
