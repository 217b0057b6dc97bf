#include "lower/plan_to_tile/reduce.h"

#include <cmath>
#include <limits>

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

Accumulator::Accumulator(const loops::Node &scan, size_t node)
    : node(node), kind_(reduceKindOf(scan.scan)), type_(scan.body.ops[static_cast<size_t>(scan.inputs[0])].dtype),
      logSumExp_(scan.scan == loops::ScanKind::LogSumExp), reverse_(scan.reverse) {}

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
  case ReduceKind::Welford:
  case ReduceKind::OnlineSoftmax: NESO_UNREACHABLE("a two-pass reduction that was not expanded");
  }
  std::vector<Val> out = {e.widen(e.constant(type_, f, i), vary)};
  if (isArg()) out.push_back(e.widen(e.intConst(e.k.indexType.isInteger(32) ? INT32_MAX : INT64_MAX), vary));
  return out;
}

std::vector<Val> Accumulator::element(Emitter &e, Val value, Val position) const {
  if (isArg()) return {value, position};
  return {value};
}

std::vector<Val> Accumulator::combine(Emitter &e, const std::vector<Val> &a, const std::vector<Val> &b) const {
  bool fp = isFloat(type_), uns = isUnsignedInt(type_) || type_ == DType::Bool;
  if (logSumExp_) {
    // log(exp(a) + exp(b)) = m + log1p(exp(-|a - b|)); equal infinities have no difference, so the larger one stands for both.
    Val m = e.binary("arith.maximumf", a[0], b[0]);
    auto unary = [&](const char *op, Val v) {
      OperationState state(e.k.loc, op);
      state.addOperands(v.v);
      state.addTypes(v.v.getType());
      return Val{e.k.b.create(state)->getResult(0), v.vary};
    };
    Val d = unary("arith.negf", unary("math.absf", e.binary("arith.subf", a[0], b[0])));
    Val sum = e.binary("arith.addf", m, unary("math.log1p", unary("math.exp", d)));
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
  case ReduceKind::Welford:
  case ReduceKind::OnlineSoftmax: break;
  }
  NESO_UNREACHABLE("a two-pass reduction that was not expanded");
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
  std::vector<Val> out;
  for (Value v : reduced) {
    if (e.frame.tile.size() > 1) v = tb::expandDims(e.k.b, e.k.loc, v, static_cast<int>(dim));
    out.push_back({v, full & ~(1u << dim)});
  }
  return out;
}

Val Accumulator::scanTile(Emitter &e, Val element, size_t dim, Val mask) {
  unsigned full = e.frame.full();
  std::vector<Val> identity = initial(e, 0);
  if (mask) element = e.select(e.widen(mask, element.vary | mask.vary), element, identity[0]);
  element = e.widen(element, full);
  SmallVector<Value> scanned = tb::scan(e.k.b, e.k.loc, {element.v}, static_cast<int>(dim), reverse_, combiner(*this, e));
  Val out{scanned[0], full};
  std::vector<Val> before = carried;
  out = combine(e, {before[0]}, {out})[0];
  carried = combine(e, before, reduceTile(e, {element}, dim, {}));
  return out;
}

} // namespace neso
