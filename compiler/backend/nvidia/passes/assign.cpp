#include "backend/nvidia/passes/assign.h"

#include <algorithm>
#include <map>

#include "backend/common/opcodes.h"
#include "ir/layout/convert.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallPtrSet.h"

namespace neso::nvidia {

namespace {

/// Above this many instructions an expression of scalars and ranges is computed once, in one layout.
constexpr int kVirtualCost = 96;

bool isTensor(mlir::Value v) { return llvm::isa<mlir::RankedTensorType>(v.getType()); }
llvm::ArrayRef<int64_t> shapeOf(mlir::Value v) { return llvm::cast<mlir::RankedTensorType>(v.getType()).getShape(); }
mlir::Type elementOf(mlir::Value v) { return llvm::cast<mlir::RankedTensorType>(v.getType()).getElementType(); }
Sizes sizesOf(llvm::ArrayRef<int64_t> shape) { return Sizes(shape.begin(), shape.end()); }
int bitsOf(mlir::Type t) {
  return t.isIntOrFloat() ? std::max<int>(8, static_cast<int>(t.getIntOrFloatBitWidth())) : 64;
}
int axisOf(mlir::Operation *op) { return static_cast<int>(op->getAttrOfType<mlir::IntegerAttr>("axis").getInt()); }

bool hasNoEffect(mlir::Operation *op) {
  auto pure = op->getAttrOfType<mlir::BoolAttr>("pure");
  return !pure || pure.getValue();
}

/// How many loops the operation stands in.
int loopsAround(mlir::Operation *op) {
  int loops = 0;
  for (mlir::Operation *at = op->getParentOp(); at; at = at->getParentOp())
    loops += llvm::isa<mlir::scf::ForOp, mlir::scf::WhileOp>(at);
  return loops;
}

/// Whether the operation keeps elements at their places, or spreads them over new dims.
bool followsElements(mlir::Operation *op) {
  const OpCode code = codeOf(op);
  return classOf(code) == OpClass::Element || code == OpCode::ExpandDims || code == OpCode::Broadcast;
}

/// Rows of the product are reduced along N, or multiplied again, or it takes rows of another product: all of these stay
/// in a warp when no two warps share a row.
bool sharesRows(tt::DotOp dot) {
  llvm::SmallVector<mlir::Value, 16> todo = {dot.getD()};
  llvm::SmallPtrSet<mlir::Operation *, 32> seen;
  llvm::DenseSet<mlir::Value> carried;
  while (!todo.empty()) {
    mlir::Value v = todo.pop_back_val();
    for (mlir::OpOperand &use : v.getUses()) {
      mlir::Operation *op = use.getOwner();
      if (auto reduce = llvm::dyn_cast<tt::ReduceOp>(op);
          reduce && axisOf(op) + 1 == static_cast<int>(shapeOf(v).size()))
        return true;
      if (llvm::isa<tt::DotOp>(op) && use.getOperandNumber() == 0) return true;
      // What a turn leaves, the next one uses.
      if (auto loop = llvm::isa<mlir::scf::YieldOp>(op) ? llvm::dyn_cast<mlir::scf::ForOp>(op->getParentOp())
                                                        : mlir::scf::ForOp())
        if (mlir::Value next = loop.getRegionIterArg(use.getOperandNumber()); carried.insert(next).second)
          todo.push_back(next);
      if (llvm::isa<placed::WaitProductsOp>(op)) todo.push_back(op->getResult(use.getOperandNumber()));
      // A sum over several products is one product.
      if (llvm::isa<tt::DotOp>(op) && use.getOperandNumber() == 2 && seen.insert(op).second)
        todo.push_back(op->getResult(0));
      if (followsElements(op) && seen.insert(op).second)
        for (mlir::Value r : op->getResults())
          if (isTensor(r)) todo.push_back(r);
    }
  }
  todo = {dot.getA()};
  while (!todo.empty()) {
    mlir::Operation *op = todo.pop_back_val().getDefiningOp();
    if (!op) continue;
    if (llvm::isa<tt::DotOp>(op)) return true;
    if (followsElements(op) && seen.insert(op).second)
      for (mlir::Value o : op->getOperands()) todo.push_back(o);
  }
  return false;
}

/// Lanes along `order`, warps along the dims that are not reduced first, the slowest of them first: a row that one warp
/// holds is reduced by shuffles alone.
LinearLayout coalesced(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int> order, int64_t width, int warps,
                       const llvm::SmallDenseSet<int> &reduced) {
  const size_t rank = shape.size();
  Blocked blocked{Sizes(rank, 1), Sizes(rank, 1), Sizes(rank, 1), std::vector<int>(order.begin(), order.end())};
  Sizes left = sizesOf(shape);
  auto take = [&](Sizes &sizes, int dim, int64_t most) {
    const size_t d = static_cast<size_t>(dim);
    const int64_t n = std::min(left[d], most);
    sizes[d] *= n;
    left[d] /= n;
    return n;
  };
  take(blocked.sizePerThread, order[0], width);
  int64_t lanes = 32, remaining = warps;
  for (int dim : order) lanes /= take(blocked.threadsPerWarp, dim, lanes);
  for (bool ofReduced : {false, true})
    for (int dim : llvm::reverse(order))
      if (reduced.contains(dim) == ofReduced) remaining /= take(blocked.warpsPerBlock, dim, remaining);
  // What does not fit holds copies.
  blocked.threadsPerWarp[static_cast<size_t>(order[0])] *= lanes;
  blocked.warpsPerBlock[static_cast<size_t>(order[0])] *= remaining;
  return blockedLayout(sizesOf(shape), blocked);
}

} // namespace

std::optional<AccessOperands> accessOperands(mlir::Operation *op) {
  if (auto load = llvm::dyn_cast<tt::LoadOp>(op)) return AccessOperands{load.getPtr(), load.getMask()};
  if (auto store = llvm::dyn_cast<tt::StoreOp>(op)) return AccessOperands{store.getPtr(), store.getMask()};
  if (auto copy = llvm::dyn_cast<ttg::AsyncCopyOp>(op)) return AccessOperands{copy.getPtr(), copy.getMask()};
  if (auto rmw = llvm::dyn_cast<tt::AtomicRMWOp>(op)) return AccessOperands{rmw.getPtr(), rmw.getMask()};
  if (auto cas = llvm::dyn_cast<tt::AtomicCASOp>(op)) return AccessOperands{cas.getPtr(), {}};
  if (auto load = llvm::dyn_cast<tt::AtomicLoadOp>(op)) return AccessOperands{load.getPtr(), load.getMask()};
  if (auto store = llvm::dyn_cast<tt::AtomicStoreOp>(op)) return AccessOperands{store.getPtr(), store.getMask()};
  return std::nullopt;
}

Assignment::Assignment(tt::FuncOp function, const Chip &chip, int warps, Exchange exchange)
    : function_(function), chip_(chip), warps_(warps), exchange_(exchange), axis_(function) {
  classify();
  placeAccesses();
  placeAnchors();
  propagate();
  settleCasts();
  settleAccesses();
}
Assignment::~Assignment() = default;

LayoutRef Assignment::intern(LinearLayout layout) {
  for (const LinearLayout &known : pool_)
    if (known == layout) return &known;
  pool_.push_back(std::move(layout));
  return &pool_.back();
}

Assignment::Kind Assignment::kind(mlir::Value v) const {
  if (!isTensor(v)) return Kind::Scalar;
  auto it = kinds_.find(v);
  return it == kinds_.end() ? Kind::Placed : it->second;
}

LayoutRef Assignment::layout(mlir::Value v) const { return layouts_.lookup(v); }
void Assignment::set(mlir::Value v, LayoutRef layout) { layouts_[v] = layout; }

LayoutRef Assignment::defaultLayout(llvm::ArrayRef<int64_t> shape) {
  std::vector<int> order;
  int64_t elements = 1;
  for (size_t dim = shape.size(); dim-- > 0;) order.push_back(static_cast<int>(dim)), elements *= shape[dim];
  const int64_t width = std::clamp<int64_t>(elements / (warps_ * 32), 1, 4);
  return intern(coalesced(shape, order, width, warps_, {}));
}

// ---------------------------------------------------------------------------------------------------------------- kinds

void Assignment::classify() {
  llvm::DenseMap<mlir::Value, int> cost;
  function_.walk<mlir::WalkOrder::PreOrder>([&](mlir::Operation *op) {
    // The bodies of reductions, scans and maps are scalar code.
    if (op->getNumResults() == 0 || !isTensor(op->getResult(0))) return;
    const OpCode code = codeOf(op);
    Kind kind = Kind::Placed;
    auto operandsAreVirtual = [&] {
      return llvm::all_of(op->getOperands(), [&](mlir::Value o) {
        return this->kind(o) == Kind::Virtual || this->kind(o) == Kind::Scalar;
      });
    };
    switch (code) {
    case OpCode::ArithConstant:
    case OpCode::Poison:
    case OpCode::Splat:
    case OpCode::MakeRange: kind = Kind::Virtual; break;
    case OpCode::ExpandDims:
    case OpCode::Broadcast:
    case OpCode::Trans:
    case OpCode::Reshape: kind = operandsAreVirtual() ? Kind::Virtual : Kind::Derived; break;
    case OpCode::MapElementwise:
    case OpCode::InlineAsm: break;
    default:
      if (classOf(code) != OpClass::Element || !hasNoEffect(op) || !operandsAreVirtual()) break;
      int total = costOf(code);
      for (mlir::Value o : op->getOperands()) total += cost.lookup(o);
      if (total <= kVirtualCost) kind = Kind::Virtual;
      break;
    }
    for (mlir::Value r : op->getResults()) kinds_[r] = kind;
    if (kind != Kind::Virtual) return;
    int total = costOf(code);
    for (mlir::Value o : op->getOperands()) total += cost.lookup(o);
    for (mlir::Value r : op->getResults()) cost[r] = std::min(total, kVirtualCost + 1);
  });
}

// ------------------------------------------------------------------------------------------------------------- anchors

void Assignment::placeAccesses() {
  struct Class {
    std::vector<mlir::Operation *> ops;
    // Of the accesses by vectors that stand in the most loops: the widest run, and the widest element.
    int loops = -1;
    int64_t width = 1;
    int bits = 8;
  };
  // By shape, order of dims and whether it is for partial blocks alone; ordered, so that the result does not depend on addresses in memory.
  std::map<std::tuple<Sizes, std::vector<int>, bool>, Class> classes;
  auto isForPartialBlocks = [](mlir::Operation *op) {
    auto branch = llvm::dyn_cast<mlir::scf::IfOp>(op->getParentOp());
    return branch && branch->hasAttr(placed::kPartialBlocksAttr) && op->getBlock() == branch.elseBlock();
  };
  std::map<Sizes, llvm::SmallDenseSet<int>> reduced;
  function_.walk<mlir::WalkOrder::PreOrder>([&](mlir::Operation *op) {
    if (llvm::isa<tt::ReduceOp>(op)) reduced[sizesOf(shapeOf(op->getOperand(0)))].insert(axisOf(op));
    std::optional<AccessOperands> access = accessOperands(op);
    if (!access || !isTensor(access->ptr)) return;
    llvm::ArrayRef<int64_t> shape = shapeOf(access->ptr);
    const AxisInfo info = axis_.get(access->ptr);
    std::vector<int> order;
    for (size_t dim = shape.size(); dim-- > 0;) order.push_back(static_cast<int>(dim));
    // The run of addresses decides; dims whose size is 1 have none.
    std::stable_sort(order.begin(), order.end(), [&](int x, int y) {
      return info.contiguity[static_cast<size_t>(x)] > info.contiguity[static_cast<size_t>(y)];
    });
    const int64_t width = axis_.vectorWidth(access->ptr, access->mask, order[0]);
    const int bits = bitsOf(llvm::cast<tt::PointerType>(elementOf(access->ptr)).getPointeeType());
    if (llvm::isa<ttg::AsyncCopyOp>(op)) {
      // No register holds the elements: as wide as they can be, if need be by some of the threads.
      access_[op] = intern(coalesced(shape, order, std::min<int64_t>(width, 128 / bits), warps_, {}));
      return;
    }
    Class &c = classes[{sizesOf(shape), order, isForPartialBlocks(op)}];
    c.ops.push_back(op);
    if (width == 1) return;
    const int loops = loopsAround(op);
    if (loops < c.loops) return;
    if (loops > c.loops) c.loops = loops, c.bits = 8, c.width = 1;
    c.bits = std::max(c.bits, bits);
    c.width = std::max(c.width, width);
  });
  for (auto &[key, c] : classes) {
    const auto &[shape, order, partial] = key;
    int64_t elements = 1;
    for (int64_t size : shape) elements *= size;
    int64_t width = std::min<int64_t>(c.width, 128 / c.bits);
    width = std::clamp<int64_t>(elements / (warps_ * 32), 1, width);
    LayoutRef layout = intern(coalesced(shape, order, width, warps_, reduced[shape]));
    for (mlir::Operation *op : c.ops) access_[op] = layout;
  }
}

/// Arithmetic on a tile of a ring is done where the copies lie, each element once: in the layout of the product behind
/// it, several warps would do it for the rows or columns that they share. Null for other ops, and for one warp, which
/// shares with nobody.
LayoutRef Assignment::copiedForArithmetic(mlir::Operation *op) const {
  auto load = llvm::dyn_cast<ttg::LocalLoadOp>(op);
  if (!load || load.getOffsets() || warps_ == 1) return nullptr;
  if (llvm::none_of(op->getUsers(), [](mlir::Operation *user) { return classOf(codeOf(user)) == OpClass::Element; }))
    return nullptr;
  for (mlir::Operation *user : load.getRing().getUsers())
    if (llvm::isa<ttg::AsyncCopyOp>(user)) return access_.lookup(user);
  return nullptr;
}

void Assignment::placeAnchors() {
  function_.walk<mlir::WalkOrder::PreOrder>([&](mlir::Operation *op) {
    if (auto dot = llvm::dyn_cast<tt::DotOp>(op)) {
      llvm::ArrayRef<int64_t> a = shapeOf(dot.getA()), d = shapeOf(dot.getD());
      Sizes shape = sizesOf(d);
      shape.push_back(a.back());
      const DotTypes types{elementOf(dot.getA()), elementOf(dot.getB()), elementOf(dot.getD())};
      const DotSplit split = sharesRows(dot) ? DotSplit::Rows : DotSplit::Square;
      std::optional<DotPlan> groups = planWarpGroups(dot, chip_, warps_);
      auto plan = std::make_unique<DotPlan>(
          groups ? std::move(*groups) : planDot(chip_, shape, warps_, types, precisionOf(dot), split));
      set(dot.getD(), intern(plan->accumulator));
      dots_[op] = std::move(plan);
      placeSteps(dot);
      return;
    }
    if (op->getNumResults() != 1 || kind(op->getResult(0)) != Kind::Placed) return;
    if (LayoutRef access = access_.lookup(op)) set(op->getResult(0), access);
    if (LayoutRef copied = copiedForArithmetic(op)) set(op->getResult(0), copied);
    if (codeOf(op) == OpCode::Histogram) set(op->getResult(0), defaultLayout(shapeOf(op->getResult(0))));
  });
  function_.walk([&](tt::LoadOp load) {
    const auto [product, dot] = ofNumbersInWords(load);
    if (!product) return;
    auto place = [&](tt::LoadOp placed, LayoutRef layout) {
      access_[placed] = layout;
      set(placed.getResult(), layout);
    };
    place(load, product);
    // The other operand lies in shared memory for nobody: warps would wait for one another for it.
    for (mlir::OpOperand &operand : dot->getOpOperands()) {
      auto other = operand.get().getDefiningOp<tt::LoadOp>();
      if (operand.getOperandNumber() == 2 || !other || !access_.lookup(other)) continue;
      const LayoutRef taken = wantedByProduct(operand);
      if (taken && llvm::all_of(other.getResult().getUses(), [&](mlir::OpOperand &use) { return wantedByProduct(use) == taken; })) place(other, taken);
    }
  });
}

/// Where neighbours read the same word, of which each takes its own bits, and a product takes what comes of them: the product's layout, if its threads share nothing. A word
/// is then read once by a thread for all that the thread takes out of it. Null for other loads; and the product.
std::pair<LayoutRef, tt::DotOp> Assignment::ofNumbersInWords(tt::LoadOp load) {
  const LayoutRef now = access_.lookup(load);
  if (!now) return {};
  const AxisInfo info = axis_.get(load.getPtr());
  bool repeats = false;
  for (const LinearLayout::Out &out : now->outs()) {
    const size_t dim = size_t(&out - now->outs().data());
    if (axis_.vectorWidth(load.getPtr(), load.getMask(), static_cast<int>(dim)) > 1) return {};
    repeats |= info.constancy[dim] > 1 && (int64_t(1) << out.bits) > 1;
  }
  if (!repeats) return {};
  mlir::Value v = load.getResult();
  while (v.hasOneUse()) {
    mlir::OpOperand &use = *v.getUses().begin();
    mlir::Operation *op = use.getOwner();
    if (auto dot = llvm::dyn_cast<tt::DotOp>(op)) return {wantedByProduct(use), dot};
    if (classOf(codeOf(op)) != OpClass::Element || op->getNumResults() != 1 || kind(op->getResult(0)) != Kind::Placed) return {};
    v = op->getResult(0);
  }
  return {};
}

/// A part of a ring's tile, or what a loop carries of it.
static bool isPart(mlir::Value v) {
  if (auto argument = llvm::dyn_cast<mlir::BlockArgument>(v)) {
    auto loop = llvm::dyn_cast<mlir::scf::ForOp>(argument.getOwner()->getParentOp());
    if (!loop || argument.getArgNumber() == 0) return false;
    v = loop.getBody()->getTerminator()->getOperand(argument.getArgNumber() - 1);
  }
  auto load = v.getDefiningOp<ttg::LocalLoadOp>();
  return load && load.getOffsets();
}

void Assignment::placeSteps(tt::DotOp dot) {
  const DotPlan &plan = *dots_.find(dot)->second;
  for (bool isA : {true, false}) {
    const LinearLayout *taken = plan.operandIn(isA);
    if (!taken) continue;
    mlir::Value v = isA ? dot.getA() : dot.getB();
    LayoutRef layout = intern(*taken);
    while (auto turned = v.getDefiningOp<tt::TransOp>()) layout = pull(turned, layout), v = turned.getSrc();
    if (!isPart(v)) continue;
    set(v, layout);
    if (llvm::isa<mlir::BlockArgument>(v)) steps_.insert(v);
  }
}

// --------------------------------------------------------------------------------------------------------- propagation

LayoutRef Assignment::pull(mlir::Operation *op, LayoutRef layout) {
  auto [it, isNew] = pulled_.try_emplace({op, layout}, nullptr);
  if (!isNew) return it->second;
  llvm::ArrayRef<int64_t> from = shapeOf(op->getOperand(0));
  LinearLayout result;
  switch (codeOf(op)) {
  case OpCode::ExpandDims: result = sliceLayout(*layout, axisOf(op)); break;
  case OpCode::Trans: {
    auto order = op->getAttrOfType<mlir::DenseI32ArrayAttr>("order").asArrayRef();
    std::vector<int> inverse(order.size());
    for (size_t dim = 0; dim < order.size(); ++dim) inverse[static_cast<size_t>(order[dim])] = static_cast<int>(dim);
    result = transposeTensor(*layout, inverse);
    break;
  }
  case OpCode::Reshape: result = reshapeTensor(*layout, sizesOf(from)); break;
  case OpCode::Broadcast: result = narrowTensor(*layout, sizesOf(from)); break;
  default: NESO_UNREACHABLE("not a derived value");
  }
  return pulled_[{op, layout}] = intern(std::move(result));
}

LayoutRef Assignment::natural(mlir::Value v) {
  switch (kind(v)) {
  case Kind::Scalar:
  case Kind::Virtual: return nullptr;
  case Kind::Placed: return layout(v);
  case Kind::Derived: break;
  }
  mlir::Operation *op = v.getDefiningOp();
  LayoutRef source = natural(op->getOperand(0));
  if (!source) return nullptr;
  switch (codeOf(op)) {
  case OpCode::ExpandDims: return intern(expandDims(*source, axisOf(op)));
  case OpCode::Broadcast: return intern(broadcastTensor(*source, sizesOf(shapeOf(v))));
  case OpCode::Reshape: return intern(reshapeTensor(*source, sizesOf(shapeOf(v))));
  case OpCode::Trans: {
    auto order = op->getAttrOfType<mlir::DenseI32ArrayAttr>("order").asArrayRef();
    return intern(transposeTensor(*source, std::vector<int>(order.begin(), order.end())));
  }
  default: NESO_UNREACHABLE("not a derived value");
  }
}

namespace {
/// The values that become block argument or result `v`; nothing for other values. Of what a loop carries: what its
/// turns give, and with `entering` also what it begins with.
llvm::SmallVector<mlir::Value, 4> sourcesOf(mlir::Value v, bool entering) {
  llvm::SmallVector<mlir::Value, 4> sources;
  if (auto argument = llvm::dyn_cast<mlir::BlockArgument>(v)) {
    mlir::Block *block = argument.getOwner();
    mlir::Operation *parent = block->getParentOp();
    const unsigned i = argument.getArgNumber();
    if (auto loop = llvm::dyn_cast<mlir::scf::ForOp>(parent)) {
      if (i == 0) return sources;
      sources.push_back(block->getTerminator()->getOperand(i - 1));
      if (entering) sources.push_back(loop.getInitArgs()[i - 1]);
      return sources;
    }
    if (auto loop = llvm::dyn_cast<mlir::scf::WhileOp>(parent)) {
      if (block == &loop.getBefore().front()) {
        sources.push_back(loop.getAfter().front().getTerminator()->getOperand(i));
        if (entering) sources.push_back(loop.getInits()[i]);
        return sources;
      }
      return {loop.getBefore().front().getTerminator()->getOperand(i + 1)};
    }
    for (mlir::Block *from : block->getPredecessors()) {
      mlir::Operation *end = from->getTerminator();
      if (auto br = llvm::dyn_cast<mlir::cf::BranchOp>(end)) sources.push_back(br.getDestOperands()[i]);
      if (auto br = llvm::dyn_cast<mlir::cf::CondBranchOp>(end)) {
        if (br.getTrueDest() == block) sources.push_back(br.getTrueDestOperands()[i]);
        if (br.getFalseDest() == block) sources.push_back(br.getFalseDestOperands()[i]);
      }
    }
    return sources;
  }
  mlir::Operation *op = v.getDefiningOp();
  const unsigned i = llvm::cast<mlir::OpResult>(v).getResultNumber();
  if (auto loop = llvm::dyn_cast<mlir::scf::ForOp>(op)) return {loop.getRegionIterArgs()[i]};
  if (auto loop = llvm::dyn_cast<mlir::scf::WhileOp>(op)) return {loop.getAfter().front().getArgument(i)};
  if (llvm::isa<mlir::scf::IfOp>(op))
    for (mlir::Region &region : op->getRegions()) sources.push_back(region.front().getTerminator()->getOperand(i));
  return sources;
}
} // namespace

LayoutRef Assignment::fromOperands(mlir::Value v, bool entering, bool evenDerived) {
  mlir::Operation *op = v.getDefiningOp();
  if (!op || llvm::isa<mlir::scf::ForOp, mlir::scf::WhileOp, mlir::scf::IfOp>(op)) {
    for (mlir::Value source : sourcesOf(v, entering))
      if (LayoutRef known = natural(source)) return known;
    return nullptr;
  }
  const OpCode code = codeOf(op);
  auto firstKnown = [&]() -> LayoutRef {
    for (mlir::Value o : op->getOperands())
      if (LayoutRef known = natural(o)) return known;
    return nullptr;
  };
  switch (code) {
  case OpCode::Reduce: {
    LayoutRef source = firstKnown();
    return source ? intern(sliceLayout(*source, axisOf(op))) : nullptr;
  }
  case OpCode::Scan:
  case OpCode::Sort:
  case OpCode::Histogram: return firstKnown();
  case OpCode::Gather: return natural(op->getOperand(1));
  case OpCode::WaitProducts: return natural(op->getOperand(llvm::cast<mlir::OpResult>(v).getResultNumber()));
  case OpCode::Join: {
    LayoutRef source = firstKnown();
    return source ? intern(joinTensor(*source)) : nullptr;
  }
  case OpCode::Split: {
    LayoutRef source = firstKnown();
    return source ? intern(sliceLayout(*source, static_cast<int>(shapeOf(op->getOperand(0)).size()) - 1)) : nullptr;
  }
  case OpCode::Cat: {
    LayoutRef source = firstKnown();
    return source ? intern(catLayout(*source)) : nullptr;
  }
  default: break;
  }
  // Arithmetic stays where its widest operand is. What is only derived moves cheaply to where the result is wanted.
  LayoutRef best = nullptr;
  int bits = 0;
  for (mlir::Value o : op->getOperands()) {
    // Operations without a rule above, which the emitter may refuse, can have operands of other shapes.
    if (!isTensor(o) || shapeOf(o) != shapeOf(v)) continue;
    LayoutRef known = kind(o) == Kind::Placed || evenDerived ? natural(o) : nullptr;
    if (known && bitsOf(elementOf(o)) > bits) best = known, bits = bitsOf(elementOf(o));
  }
  return best;
}

LayoutRef Assignment::wanted(mlir::OpOperand &use) {
  mlir::Operation *op = use.getOwner();
  const unsigned i = use.getOperandNumber();
  if (LayoutRef access = access_.lookup(op)) return access;
  switch (codeOf(op)) {
  case OpCode::ExpandDims:
  case OpCode::Broadcast:
  case OpCode::Trans:
  case OpCode::Reshape: {
    LayoutRef result = fromUses(op->getResult(0));
    return result ? pull(op, result) : nullptr;
  }
  case OpCode::Dot: return i == 2 ? layout(op->getResult(0)) : nullptr;
  case OpCode::For: return i >= 3 ? layout(llvm::cast<mlir::scf::ForOp>(op).getRegionIterArgs()[i - 3]) : nullptr;
  case OpCode::While: return layout(llvm::cast<mlir::scf::WhileOp>(op).getBefore().front().getArgument(i));
  case OpCode::Yield: {
    mlir::Operation *parent = op->getParentOp();
    if (auto loop = llvm::dyn_cast<mlir::scf::ForOp>(parent)) return layout(loop.getRegionIterArgs()[i]);
    if (auto loop = llvm::dyn_cast<mlir::scf::WhileOp>(parent)) return layout(loop.getBefore().front().getArgument(i));
    return layout(parent->getResult(i));
  }
  case OpCode::Gather: return i == 1 ? layout(op->getResult(0)) : nullptr;
  case OpCode::WaitProducts: return layout(op->getResult(i));
  default: break;
  }
  if (classOf(codeOf(op)) == OpClass::Element && op->getNumResults() > 0 && kind(op->getResult(0)) == Kind::Placed)
    return layout(op->getResult(0));
  return nullptr;
}

/// Where the instruction takes the operand out of registers, if no two threads hold one element there: what is computed in that layout needs no
/// way through shared memory, and nothing of it is computed twice.
LayoutRef Assignment::wantedByProduct(mlir::OpOperand &use) {
  auto dot = llvm::dyn_cast<tt::DotOp>(use.getOwner());
  if (!dot || use.getOperandNumber() == 2) return nullptr;
  const DotPlan &plan = *dots_.find(dot)->second;
  const LinearLayout *taken = plan.kind == DotKind::MmaSync ? plan.operandIn(use.getOperandNumber() == 0) : nullptr;
  if (!taken) return nullptr;
  for (const LinearLayout::In &in : taken->ins())
    if (llvm::is_contained(in.bases, 0)) return nullptr;
  return intern(*taken);
}

LayoutRef Assignment::fromUses(mlir::Value v) {
  for (mlir::OpOperand &use : v.getUses())
    if (LayoutRef known = wanted(use)) return known;
  for (mlir::OpOperand &use : v.getUses())
    if (LayoutRef known = wantedByProduct(use)) return known;
  return nullptr;
}

void Assignment::propagate() {
  std::vector<mlir::Value> open;
  auto note = [&](mlir::Value v) {
    if (kind(v) == Kind::Placed && !layout(v)) open.push_back(v);
  };
  function_.walk<mlir::WalkOrder::PreOrder>([&](mlir::Operation *op) {
    for (mlir::Value r : op->getResults()) note(r);
    if (llvm::isa<tt::ReduceOp, tt::ScanOp, tt::MapElementwiseOp>(op)) return;
    for (mlir::Region &region : op->getRegions())
      for (mlir::Block &block : region)
        for (mlir::BlockArgument a : block.getArguments()) note(a);
  });
  auto settle = [&](auto rule, bool one) {
    bool changed = false;
    std::erase_if(open, [&](mlir::Value v) {
      if (changed && one) return false;
      LayoutRef found = rule(v);
      if (!found) return false;
      set(v, found);
      return changed = true;
    });
    return changed;
  };
  while (!open.empty()) {
    // Every turn moves what it yields in another layout than it carries; what a loop begins with moves once, before it.
    if (settle([&](mlir::Value v) { return fromOperands(v, false, false); }, false)) continue;
    if (settle([&](mlir::Value v) { return fromOperands(v, true, false); }, true)) continue;
    if (settle([&](mlir::Value v) { return fromUses(v); }, true)) continue;
    if (settle([&](mlir::Value v) { return fromOperands(v, true, true); }, true)) continue;
    settle([&](mlir::Value v) { return defaultLayout(shapeOf(v)); }, true);
  }
  // What a loop leaves lies as its turns carry it: a use elsewhere converts once, behind the loop, not in every turn.
  function_.walk([&](mlir::Operation *op) {
    mlir::ValueRange carried;
    if (auto loop = llvm::dyn_cast<mlir::scf::ForOp>(op)) carried = loop.getRegionIterArgs();
    if (auto loop = llvm::dyn_cast<mlir::scf::WhileOp>(op)) carried = loop.getAfter().front().getArguments();
    for (auto [argument, result] : llvm::zip(carried, op->getResults()))
      if (isTensor(argument)) set(result, layout(argument));
  });
}

// ---------------------------------------------------------------------------------------------------------------- costs

int64_t Assignment::accessCost(mlir::Operation *op, LayoutRef layout) {
  const AccessOperands access = *accessOperands(op);
  const int64_t bytes = bitsOf(llvm::cast<tt::PointerType>(elementOf(access.ptr)).getPointeeType()) / 8;
  const int rank = static_cast<int>(layout->outs().size());
  int fast = rank - 1;
  Access best;
  const AxisInfo info = axis_.get(access.ptr);
  for (int dim = 0; dim < rank; ++dim) {
    if (info.contiguity[static_cast<size_t>(dim)] > info.contiguity[static_cast<size_t>(fast)]) fast = dim;
    const int64_t run = std::min(axis_.vectorWidth(access.ptr, access.mask, dim), 16 / bytes);
    if (Access a = widestAccess(*layout, dimName(dim), run); a.width > best.width) best = a;
  }
  // Sectors of 32 bytes that the lanes write, or lines of 128 bytes that they read: what other warps read too comes
  // from the first cache, while a sector written in part costs as much as a whole one. Rows other than along the run of
  // addresses lie apart.
  const bool isStore = llvm::isa<tt::StoreOp>(op);
  const int64_t unit = isStore ? 32 : 128;
  llvm::SmallDenseSet<std::pair<uint64_t, int64_t>> touched;
  const LinearLayout::Out &run = layout->out(dimName(fast));
  const std::vector<uint64_t> &lanes = layout->in(kLane).bases;
  for (int lane = 0; lane < 32; ++lane) {
    uint64_t flat = 0;
    for (size_t bit = 0; bit < lanes.size(); ++bit)
      if (lane >> bit & 1) flat ^= lanes[bit];
    const uint64_t others = flat & ~(((uint64_t(1) << run.bits) - 1) << run.shift);
    touched.insert({others, run.of(flat) * bytes / unit});
  }
  const int64_t instructions = layout->inSize(kRegister) / best.width;
  return instructions * (4 + static_cast<int64_t>(touched.size()) * (isStore ? 4 : 2));
}

int64_t Assignment::conversionCost(LayoutRef from, LayoutRef to, mlir::Type element) {
  if (from == to) return 0;
  const Conversion c = conversion(*from, *to);
  switch (c.move) {
  case Move::None:
  case Move::Registers: return 0;
  // Of elements of fewer bits several travel in one word.
  case Move::Shuffle: return std::max<int64_t>(4 * to->inSize(kRegister) * std::min(bitsOf(element), 32) / 32, 4);
  default: break;
  }
  const SharedPlan plan = cheapestShared(*from, *to, bitsOf(element));
  // Two barriers, and the way through shared memory; a warp by itself waits for nobody.
  return (warps_ == 1 ? 20 : 60) + 2 * (plan.store.wavefronts + plan.load.wavefronts);
}

/// The layout that all uses of a value want; null where they differ, or some want none.
LayoutRef Assignment::wantedByAll(mlir::Value v) {
  LayoutRef all = nullptr;
  for (mlir::OpOperand &use : v.getUses()) {
    LayoutRef w = wanted(use);
    if (!w || (all && w != all)) return nullptr;
    all = w;
  }
  return all;
}

/// A cast that widens elements is done where its result is used: what is narrow moves, and loads behind it see where they are wanted.
void Assignment::settleCasts() {
  std::vector<mlir::Operation *> casts;
  function_.walk([&](mlir::Operation *op) {
    if (op->getNumOperands() != 1 || op->getNumResults() != 1 || !isTensor(op->getOperand(0)) || !isTensor(op->getResult(0))) return;
    if (classOf(codeOf(op)) != OpClass::Element || kind(op->getResult(0)) != Kind::Placed || kind(op->getOperand(0)) != Kind::Placed) return;
    if (bitsOf(elementOf(op->getOperand(0))) < bitsOf(elementOf(op->getResult(0)))) casts.push_back(op);
  });
  // Later ones first: a cast of a cast follows it.
  for (mlir::Operation *op : llvm::reverse(casts))
    if (LayoutRef all = wantedByAll(op->getResult(0))) set(op->getResult(0), all);
}

/// `layout` with as many neighbours along `dim` in a thread as one access takes, `elements`: those that lie in other lanes of its warp come in exchange for
/// others of its own. What tensor cores sum lies in pairs; four lanes then have eight columns each, and a row of theirs is two whole sectors. Null where
/// lanes have nothing to exchange.
LayoutRef Assignment::withNeighbours(LayoutRef layout, int dim, int64_t elements) {
  const LinearLayout::Out &run = layout->out(dimName(dim));
  // 0: elsewhere, too.
  auto along = [&](uint64_t basis) { return uint64_t(run.of(basis)) << run.shift == basis ? run.of(basis) : 0; };
  std::vector<LinearLayout::In> ins = layout->ins();
  const auto at = [&](const char *name) { return llvm::find_if(ins, [&](const LinearLayout::In &in) { return in.name == name; }); };
  std::vector<uint64_t> &registers = at(kRegister)->bases, &lanes = at(kLane)->bases;
  bool changed = false;
  for (int64_t bit = 1; bit < elements; bit *= 2) {
    auto holds = [&](uint64_t basis) { return along(basis) == bit; };
    if (llvm::any_of(registers, holds)) continue;
    const auto lane = llvm::find_if(lanes, holds);
    auto own = registers.end();
    for (auto r = registers.begin(); r != registers.end(); ++r)
      if (along(*r) >= elements && (own == registers.end() || along(*r) < along(*own))) own = r;
    if (lane == lanes.end() || own == registers.end()) return nullptr;
    std::swap(*lane, *own);
    changed = true;
  }
  return changed ? intern(LinearLayout(std::move(ins), layout->outSizes())) : nullptr;
}

void Assignment::settleAccesses() {
  function_.walk<mlir::WalkOrder::PreOrder>([&](mlir::Operation *op) {
    const LayoutRef now = access_.lookup(op);
    if (!now || !llvm::isa<tt::LoadOp, tt::StoreOp>(op)) return;
    mlir::Value value = llvm::isa<tt::LoadOp>(op) ? op->getResult(0) : llvm::cast<tt::StoreOp>(op).getValue();
    // Addresses and masks that lie somewhere would have to move instead.
    for (mlir::Value o : op->getOperands())
      if (o != value && kind(o) != Kind::Virtual) return;
    const bool isLoad = llvm::isa<tt::LoadOp>(op);
    const LayoutRef other = isLoad ? wantedByAll(value) : natural(value);
    if (!other || other == now) return;
    auto costOf = [&](LayoutRef layout) {
      return accessCost(op, layout) + (isLoad ? conversionCost(layout, other, elementOf(value)) : conversionCost(other, layout, elementOf(value)));
    };
    LayoutRef best = other;
    int64_t least = costOf(other);
    if (const int64_t cost = costOf(now); cost < least) best = now, least = cost;
    if (exchange_ == Exchange::InWarps) {
      const AccessOperands access = *accessOperands(op);
      const AxisInfo info = axis_.get(access.ptr);
      const int fast = int(llvm::max_element(info.contiguity) - info.contiguity.begin());
      const int64_t run = std::min<int64_t>(axis_.vectorWidth(access.ptr, access.mask, fast), 128 / bitsOf(elementOf(value)));
      if (const LayoutRef wide = withNeighbours(other, fast, run); wide && costOf(wide) < least) best = wide;
    }
    if (best == now) return;
    access_[op] = best;
    if (isLoad) set(value, best);
  });
}

} // namespace neso::nvidia
