#include "ir/tile/passes/axis_info.h"
#include "ir/tile/placed.h"

#include <numeric>

#include "mlir/Analysis/DataFlow/SparseAnalysis.h"
#include "mlir/Analysis/DataFlow/Utils.h"
#include "mlir/Analysis/DataFlowFramework.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace neso {
namespace {

constexpr int64_t kMost = int64_t(1) << 30; // divisibility of 0

int64_t powerOfTwo(int64_t v) { return v == 0 ? kMost : std::min<int64_t>(v & -v, kMost); }
int64_t gcd(int64_t a, int64_t b) { return std::gcd(a, b); }
int64_t product(int64_t a, int64_t b) { return a >= kMost / b ? kMost : a * b; }

/// AxisInfo as a lattice value: `info` is absent while nothing reached it.
struct Facts {
  std::optional<AxisInfo> info;
  bool operator==(const Facts &) const = default;
  void print(raw_ostream &out) const { out << (info ? "facts" : "none"); }

  static Facts join(const Facts &a, const Facts &b) {
    if (!a.info) return b;
    if (!b.info) return a;
    AxisInfo r;
    for (size_t d = 0; d < a.info->contiguity.size(); ++d) {
      int64_t c = gcd(a.info->contiguity[d], b.info->contiguity[d]);
      auto at = [&](const AxisInfo &x) { return x.contiguity[d] > c ? gcd(x.divisibility[d], c) : x.divisibility[d]; };
      r.contiguity.push_back(c);
      r.divisibility.push_back(gcd(at(*a.info), at(*b.info)));
      r.constancy.push_back(gcd(a.info->constancy[d], b.info->constancy[d]));
    }
    if (a.info->constant == b.info->constant) r.constant = a.info->constant;
    return {r};
  }
};

SmallVector<int64_t> shapeOf(Type type) {
  if (RankedTensorType tensor = dyn_cast<RankedTensorType>(type)) return SmallVector<int64_t>(tensor.getShape());
  return {1};
}

/// Nothing known.
AxisInfo unknown(Type type) {
  size_t rank = shapeOf(type).size();
  AxisInfo r;
  r.contiguity.assign(rank, 1);
  r.divisibility.assign(rank, 1);
  r.constancy.assign(rank, 1);
  return r;
}

/// Divisibility of the elements that start windows of `c` elements; the value's own windows may be longer.
int64_t divisibilityAt(const AxisInfo &x, size_t d, int64_t c, int64_t step = 1) {
  return x.contiguity[d] > c ? gcd(x.divisibility[d], product(c, step)) : x.divisibility[d];
}

/// Whether v is known not to be negative, looking a few ops back.
bool notNegative(Value v, int depth = 8) {
  Operation *op = v.getDefiningOp();
  if (!op || depth == 0) {
    BlockArgument arg = dyn_cast<BlockArgument>(v);
    scf::ForOp loop = arg ? dyn_cast_or_null<scf::ForOp>(arg.getOwner()->getParentOp()) : nullptr;
    return loop && depth > 0 && arg == loop.getInductionVar() && notNegative(loop.getLowerBound(), depth - 1);
  }
  APInt value;
  if (matchPattern(v, m_ConstantInt(&value))) return !value.isNegative();
  if (isa<placed::PlaceOp, placed::ConvertLayoutOp>(op)) return notNegative(op->getOperand(0), depth);
  if (tt::MakeRangeOp range = dyn_cast<tt::MakeRangeOp>(op)) return static_cast<int32_t>(range.getStart()) >= 0;
  if (isa<tt::GetProgramIdOp, tt::GetNumProgramsOp, arith::ExtUIOp>(op)) return true;
  // A remainder has its dividend's sign. So has a quotient, divisors being taken to be positive (axis_info.h).
  if (isa<arith::DivSIOp, arith::RemSIOp>(op)) return notNegative(op->getOperand(0), depth - 1);
  if (isa<arith::AddIOp, arith::MulIOp, arith::MinSIOp, tt::SplatOp, tt::BroadcastOp, tt::ExpandDimsOp, tt::ReshapeOp,
          arith::ExtSIOp>(op)) {
    for (Value operand : op->getOperands())
      if (!notNegative(operand, depth - 1)) return false;
    return true;
  }
  return isa<arith::DivUIOp, arith::RemUIOp>(op);
}

int64_t bytesOf(Type pointer) {
  Type pointee = cast<tt::PointerType>(getElementTypeOrSelf(pointer)).getPointeeType();
  return pointee.isIntOrFloat() ? std::max<int64_t>(1, pointee.getIntOrFloatBitWidth() / 8) : 8;
}

/// lhs + rhs, whose elements count `stepL` and `stepR` units (bytes of a pointer's element and offset).
AxisInfo sum(const AxisInfo &a, const AxisInfo &b, int64_t unit, bool subtract) {
  AxisInfo r;
  for (size_t d = 0; d < a.contiguity.size(); ++d) {
    int64_t c = gcd(a.contiguity[d], b.constancy[d]);
    if (!subtract) c = std::max(c, gcd(a.constancy[d], b.contiguity[d]));
    r.contiguity.push_back(c);
    r.divisibility.push_back(gcd(divisibilityAt(a, d, c, unit), product(divisibilityAt(b, d, c), unit)));
    r.constancy.push_back(gcd(a.constancy[d], b.constancy[d]));
  }
  if (a.constant && b.constant && unit == 1)
    r.constant = subtract ? *a.constant - *b.constant : *a.constant + *b.constant;
  return r;
}

AxisInfo times(const AxisInfo &a, const AxisInfo &b) {
  if (a.constant == 1) return b;
  if (b.constant == 1) return a;
  AxisInfo r;
  for (size_t d = 0; d < a.contiguity.size(); ++d) {
    r.contiguity.push_back(1);
    r.divisibility.push_back(product(divisibilityAt(a, d, 1), divisibilityAt(b, d, 1)));
    r.constancy.push_back(gcd(a.constancy[d], b.constancy[d]));
  }
  if (a.constant && b.constant) r.constant = *a.constant * *b.constant;
  return r;
}

/// Length of aligned windows in which a run of `a` stays within one multiple of the (uniform) `b`.
int64_t window(const AxisInfo &a, const AxisInfo &b, size_t d, int64_t size) {
  if (b.constancy[d] < size && !b.constant) return 1;
  return gcd(gcd(a.contiguity[d], a.divisibility[d]), b.divisibility[d]);
}

AxisInfo quotient(const AxisInfo &a, const AxisInfo &b, ArrayRef<int64_t> shape, bool runs) {
  if (b.constant == 1) return a;
  AxisInfo r;
  for (size_t d = 0; d < a.contiguity.size(); ++d) {
    int64_t same = gcd(a.constancy[d], b.constancy[d]);
    r.contiguity.push_back(1);
    r.constancy.push_back(runs ? std::max(same, window(a, b, d, shape[d])) : same);
    bool power = b.constant && *b.constant > 0 && (*b.constant & (*b.constant - 1)) == 0;
    int64_t each = divisibilityAt(a, d, 1);
    r.divisibility.push_back(power && each % *b.constant == 0 ? std::max<int64_t>(1, each / *b.constant) : 1);
  }
  // Signed and unsigned division agree on numbers that are not negative.
  if (a.constant && b.constant && *a.constant >= 0 && *b.constant > 0) r.constant = *a.constant / *b.constant;
  return r;
}

AxisInfo remainder(const AxisInfo &a, const AxisInfo &b, ArrayRef<int64_t> shape, bool runs) {
  AxisInfo r;
  for (size_t d = 0; d < a.contiguity.size(); ++d) {
    int64_t c = runs ? window(a, b, d, shape[d]) : 1;
    r.contiguity.push_back(c);
    r.constancy.push_back(gcd(a.constancy[d], b.constancy[d]));
    r.divisibility.push_back(gcd(divisibilityAt(a, d, c), divisibilityAt(b, d, 1)));
  }
  if (a.constant && b.constant && *a.constant >= 0 && *b.constant > 0) r.constant = *a.constant % *b.constant;
  return r;
}

AxisInfo comparison(arith::CmpIPredicate p, const AxisInfo &a, const AxisInfo &b, ArrayRef<int64_t> shape) {
  using P = arith::CmpIPredicate;
  AxisInfo r;
  for (size_t d = 0; d < a.contiguity.size(); ++d) {
    int64_t same = gcd(a.constancy[d], b.constancy[d]);
    if (p == P::slt || p == P::sge || p == P::ult || p == P::uge) same = std::max(same, window(a, b, d, shape[d]));
    if (p == P::sgt || p == P::sle || p == P::ugt || p == P::ule) same = std::max(same, window(b, a, d, shape[d]));
    r.contiguity.push_back(1);
    r.divisibility.push_back(1);
    r.constancy.push_back(same);
  }
  return r;
}

/// Any of two values, the choice constant over `choice` elements (absent: a scalar decides).
AxisInfo either(const AxisInfo &a, const AxisInfo &b, const AxisInfo *choice) {
  AxisInfo r;
  for (size_t d = 0; d < a.contiguity.size(); ++d) {
    int64_t s = choice ? choice->constancy[d] : kMost, c = gcd(gcd(a.contiguity[d], b.contiguity[d]), s);
    r.contiguity.push_back(c);
    r.divisibility.push_back(gcd(divisibilityAt(a, d, c), divisibilityAt(b, d, c)));
    r.constancy.push_back(gcd(gcd(a.constancy[d], b.constancy[d]), s));
  }
  if (a.constant == b.constant) r.constant = a.constant;
  return r;
}

/// Hints on an op or argument (tt.contiguity and its like: one integer or one an axis) replace what was found if they
/// say more.
void applyHint(Attribute hint, SmallVector<int64_t> &facts) {
  if (IntegerAttr one = dyn_cast_or_null<IntegerAttr>(hint)) facts[0] = std::max(facts[0], one.getInt());
  if (DenseIntElementsAttr many = dyn_cast_or_null<DenseIntElementsAttr>(hint))
    for (auto [i, v] : llvm::enumerate(many.getValues<APInt>()))
      if (i < facts.size()) facts[i] = std::max(facts[i], v.getSExtValue());
}

/// A value that the program holds from the start: a constant or a range.
std::optional<AxisInfo> ofLeaf(Operation *op, ArrayRef<int64_t> shape, AxisInfo r) {
  if (arith::ConstantOp constant = dyn_cast<arith::ConstantOp>(op)) {
    std::optional<int64_t> v;
    if (IntegerAttr i = dyn_cast<IntegerAttr>(constant.getValue())) v = i.getInt();
    DenseElementsAttr dense = dyn_cast<DenseElementsAttr>(constant.getValue());
    if (dense && dense.isSplat()) {
      r.constancy.assign(shape.begin(), shape.end());
      if (isa<IntegerType>(dense.getElementType())) v = dense.getSplatValue<APInt>().getSExtValue();
    }
    r.constant = v;
    if (v) r.divisibility.assign(shape.size(), powerOfTwo(*v));
    return r;
  }
  if (tt::MakeRangeOp range = dyn_cast<tt::MakeRangeOp>(op)) {
    int64_t n = powerOfTwo(shape[0]);
    int64_t start = static_cast<int32_t>(range.getStart());
    r.contiguity = {n};
    r.divisibility = {n == shape[0] ? powerOfTwo(start) : gcd(powerOfTwo(start), n)};
    return r;
  }
  return std::nullopt;
}

/// The same elements in another shape.
std::optional<AxisInfo> ofShapeOp(Operation *op, ArrayRef<const AxisInfo *> in, ArrayRef<int64_t> shape, AxisInfo r) {
  if (isa<placed::PlaceOp, placed::ConvertLayoutOp>(op)) return *in[0];
  if (isa<tt::SplatOp>(op)) {
    r.divisibility.assign(shape.size(), in[0]->divisibility[0]);
    r.constancy.assign(shape.begin(), shape.end());
    r.constant = in[0]->constant;
    return r;
  }
  if (tt::BroadcastOp broadcast = dyn_cast<tt::BroadcastOp>(op)) {
    r = *in[0];
    SmallVector<int64_t> from = shapeOf(broadcast.getSrc().getType());
    for (size_t d = 0; d < shape.size(); ++d)
      if (from[d] == 1 && shape[d] != 1) r.contiguity[d] = 1, r.constancy[d] = shape[d];
    return r;
  }
  if (tt::ExpandDimsOp expand = dyn_cast<tt::ExpandDimsOp>(op)) {
    r = *in[0];
    int64_t each = kMost;
    for (size_t d = 0; d < r.contiguity.size(); ++d) each = gcd(each, divisibilityAt(*in[0], d, 1));
    int64_t axis = static_cast<int32_t>(expand.getAxis());
    r.contiguity.insert(r.contiguity.begin() + axis, 1);
    r.constancy.insert(r.constancy.begin() + axis, 1);
    r.divisibility.insert(r.divisibility.begin() + axis, each);
    return r;
  }
  if (tt::TransOp trans = dyn_cast<tt::TransOp>(op)) {
    for (auto [d, from] : llvm::enumerate(trans.getOrder())) {
      r.contiguity[d] = in[0]->contiguity[from];
      r.divisibility[d] = in[0]->divisibility[from];
      r.constancy[d] = in[0]->constancy[from];
    }
    r.constant = in[0]->constant;
    return r;
  }
  return std::nullopt;
}

/// The divisor or factor that a shift by a known number of bits stands for.
std::optional<AxisInfo> shiftedBy(const AxisInfo &bits, size_t rank) {
  if (!bits.constant || *bits.constant < 0 || *bits.constant >= 30) return std::nullopt;
  AxisInfo by = bits;
  by.constant = int64_t(1) << *bits.constant;
  by.divisibility.assign(rank, *by.constant);
  return by;
}

std::optional<AxisInfo> ofArithmetic(Operation *op, ArrayRef<const AxisInfo *> in, ArrayRef<int64_t> shape) {
  if (isa<arith::AddIOp>(op)) return sum(*in[0], *in[1], 1, false);
  if (isa<arith::SubIOp>(op)) return sum(*in[0], *in[1], 1, true);
  if (tt::AddPtrOp add = dyn_cast<tt::AddPtrOp>(op)) return sum(*in[0], *in[1], bytesOf(add.getType()), false);
  if (isa<arith::MulIOp>(op)) return times(*in[0], *in[1]);
  if (isa<arith::ShLIOp>(op))
    if (std::optional<AxisInfo> by = shiftedBy(*in[1], shape.size())) return times(*in[0], *by);
  if (isa<arith::ShRUIOp, arith::ShRSIOp>(op))
    if (std::optional<AxisInfo> by = shiftedBy(*in[1], shape.size())) {
      AxisInfo q = quotient(*in[0], *by, shape, true); // a shift rounds down, also below zero
      if (in[0]->constant) q.constant = std::nullopt;
      return q;
    }
  if (isa<arith::DivSIOp, arith::DivUIOp>(op))
    return quotient(*in[0], *in[1], shape, isa<arith::DivUIOp>(op) || notNegative(op->getOperand(0)));
  if (isa<arith::RemSIOp, arith::RemUIOp>(op))
    return remainder(*in[0], *in[1], shape, isa<arith::RemUIOp>(op) || notNegative(op->getOperand(0)));
  if (arith::CmpIOp cmp = dyn_cast<arith::CmpIOp>(op)) return comparison(cmp.getPredicate(), *in[0], *in[1], shape);
  if (arith::SelectOp select = dyn_cast<arith::SelectOp>(op)) {
    bool scalar = !isa<RankedTensorType>(select.getCondition().getType());
    return either(*in[1], *in[2], scalar ? nullptr : in[0]);
  }
  return std::nullopt;
}

/// The same numbers in another type.
std::optional<AxisInfo> ofCast(Operation *op, const AxisInfo &in, Value result, ArrayRef<int64_t> shape) {
  AxisInfo r = in;
  if (isa<arith::ExtSIOp, arith::ExtUIOp, arith::TruncIOp, arith::IndexCastOp, arith::IndexCastUIOp, tt::IntToPtrOp,
          tt::PtrToIntOp>(op)) {
    bool sized = isa<tt::IntToPtrOp>(op) ? bytesOf(result.getType()) != 1
                                         : isa<tt::PtrToIntOp>(op) && bytesOf(op->getOperand(0).getType()) != 1;
    if (sized) {
      for (size_t d = 0; d < shape.size(); ++d) r.divisibility[d] = divisibilityAt(in, d, 1), r.contiguity[d] = 1;
    }
    return r;
  }
  if (tt::BitcastOp cast = dyn_cast<tt::BitcastOp>(op)) {
    bool pointers = isa<tt::PointerType>(getElementTypeOrSelf(result.getType()));
    if (pointers && bytesOf(result.getType()) == bytesOf(cast.getSrc().getType())) return r;
    for (size_t d = 0; d < shape.size(); ++d) {
      r.divisibility[d] = pointers ? divisibilityAt(in, d, 1) : 1;
      r.contiguity[d] = 1;
    }
    r.constant = std::nullopt;
    return r;
  }
  return std::nullopt;
}

AxisInfo ofLoad(tt::LoadOp load, ArrayRef<const AxisInfo *> in, AxisInfo r) {
  bool block = cast<tt::PointerType>(getElementTypeOrSelf(load.getPtr().getType())).isBlock();
  if (block || load.getOther() || load.getIsVolatile()) return r;
  for (size_t d = 0; d < r.constancy.size(); ++d)
    r.constancy[d] = load.getMask() ? gcd(in[0]->constancy[d], in[1]->constancy[d]) : in[0]->constancy[d];
  return r;
}

/// Any other op on elements gives equal results where all its operands are equal.
AxisInfo ofElements(Operation *op, ArrayRef<const AxisInfo *> in, Value result, ArrayRef<int64_t> shape, AxisInfo r) {
  if (!op->hasTrait<OpTrait::Elementwise>() || !isMemoryEffectFree(op) || in.empty() ||
      isa<tt::ElementwiseInlineAsmOp, tt::MapElementwiseOp>(op))
    return r;
  for (size_t d = 0; d < shape.size(); ++d) {
    int64_t same = kMost;
    for (auto [x, operand] : llvm::zip(in, op->getOperands()))
      if (isa<RankedTensorType>(operand.getType())) same = gcd(same, x->constancy[d]);
    r.constancy[d] = isa<RankedTensorType>(result.getType()) ? gcd(same, powerOfTwo(shape[d])) : 1;
  }
  if (isa<arith::MinSIOp, arith::MaxSIOp, arith::MinUIOp, arith::MaxUIOp>(op))
    for (size_t d = 0; d < shape.size(); ++d)
      r.divisibility[d] = gcd(divisibilityAt(*in[0], d, 1), divisibilityAt(*in[1], d, 1));
  return r;
}

AxisInfo transfer(Operation *op, ArrayRef<const AxisInfo *> in, Value result) {
  const SmallVector<int64_t> shape = shapeOf(result.getType());
  const AxisInfo nothing = unknown(result.getType());
  if (std::optional<AxisInfo> r = ofLeaf(op, shape, nothing)) return *r;
  if (std::optional<AxisInfo> r = ofShapeOp(op, in, shape, nothing)) return *r;
  if (std::optional<AxisInfo> r = ofArithmetic(op, in, shape)) return *r;
  if (!in.empty())
    if (std::optional<AxisInfo> r = ofCast(op, *in[0], result, shape)) return *r;
  if (tt::LoadOp load = dyn_cast<tt::LoadOp>(op)) return ofLoad(load, in, nothing);
  return ofElements(op, in, result, shape, nothing);
}

using FactsLattice = dataflow::Lattice<Facts>;

class Analysis : public dataflow::SparseForwardDataFlowAnalysis<FactsLattice> {
public:
  using SparseForwardDataFlowAnalysis::SparseForwardDataFlowAnalysis;

  LogicalResult visitOperation(Operation *op, ArrayRef<const FactsLattice *> operands,
                               ArrayRef<FactsLattice *> results) override {
    SmallVector<const AxisInfo *> in;
    for (const FactsLattice *lattice : operands) {
      if (!lattice->getValue().info) return success(); // comes later
      in.push_back(&*lattice->getValue().info);
    }
    for (auto [lattice, result] : llvm::zip(results, op->getResults())) {
      AxisInfo r = transfer(op, in, result);
      applyHint(op->getAttr("tt.contiguity"), r.contiguity);
      applyHint(op->getAttr("tt.divisibility"), r.divisibility);
      applyHint(op->getAttr("tt.constancy"), r.constancy);
      propagateIfChanged(lattice, lattice->join(Facts{r}));
    }
    return success();
  }

  void visitNonControlFlowArguments(Operation *op, const RegionSuccessor &successor, ArrayRef<FactsLattice *> lattices,
                                    unsigned firstIndex) override {
    scf::ForOp loop = dyn_cast<scf::ForOp>(op);
    if (!loop || lattices.empty())
      return SparseForwardDataFlowAnalysis::visitNonControlFlowArguments(op, successor, lattices, firstIndex);
    const Facts &lower = getLatticeElementFor(getProgramPointBefore(op), loop.getLowerBound())->getValue();
    const Facts &step = getLatticeElementFor(getProgramPointBefore(op), loop.getStep())->getValue();
    if (!lower.info || !step.info) return;
    AxisInfo r = unknown(loop.getInductionVar().getType());
    r.divisibility[0] = gcd(lower.info->divisibility[0], step.info->divisibility[0]);
    propagateIfChanged(lattices[0], lattices[0]->join(Facts{r}));
  }

  void setToEntryState(FactsLattice *lattice) override {
    Value v = lattice->getAnchor();
    AxisInfo r = unknown(v.getType());
    BlockArgument arg = dyn_cast<BlockArgument>(v);
    tt::FuncOp func = arg ? dyn_cast_or_null<tt::FuncOp>(arg.getOwner()->getParentOp()) : nullptr;
    if (func && arg.getOwner()->isEntryBlock()) {
      applyHint(func.getArgAttr(arg.getArgNumber(), "tt.contiguity"), r.contiguity);
      applyHint(func.getArgAttr(arg.getArgNumber(), "tt.divisibility"), r.divisibility);
      applyHint(func.getArgAttr(arg.getArgNumber(), "tt.constancy"), r.constancy);
    }
    propagateIfChanged(lattice, lattice->join(Facts{r}));
  }
};

} // namespace

struct AxisInfoAnalysis::State {
  DataFlowSolver solver;
};

AxisInfoAnalysis::AxisInfoAnalysis(tt::FuncOp func) : state_(std::make_unique<State>()) {
  dataflow::loadBaselineAnalyses(state_->solver);
  state_->solver.load<Analysis>();
  // From the module, where callers and visibility of functions are seen. It cannot fail: no visit above does.
  Operation *top = func->getParentOp() ? func->getParentOp() : func.getOperation();
  (void)state_->solver.initializeAndRun(top);
}

AxisInfoAnalysis::~AxisInfoAnalysis() = default;

AxisInfo AxisInfoAnalysis::get(Value v) const {
  const FactsLattice *lattice = state_->solver.lookupState<FactsLattice>(v);
  if (!lattice || !lattice->getValue().info) return unknown(v.getType());
  return *lattice->getValue().info;
}

int64_t AxisInfoAnalysis::vectorWidth(Value ptr, Value mask, int axis) const {
  AxisInfo p = get(ptr);
  int64_t bytes = bytesOf(ptr.getType());
  int64_t width = std::min(
      {p.contiguity[axis], std::max<int64_t>(1, p.divisibility[axis] / bytes), std::max<int64_t>(1, 16 / bytes)});
  return mask ? std::min(width, get(mask).constancy[axis]) : width;
}

AxisInfo axisInfo(Value v) {
  Operation *op = v.getParentRegion()->getParentOp();
  tt::FuncOp func = dyn_cast<tt::FuncOp>(op);
  if (!func) func = op->getParentOfType<tt::FuncOp>();
  return AxisInfoAnalysis(func).get(v);
}

} // namespace neso
