#include "backend/nvidia/passes/place.h"

#include "backend/common/opcodes.h"
#include "backend/nvidia/atomics.h"
#include "backend/nvidia/passes/assign.h"
#include "backend/nvidia/passes/verify.h"
#include "base/diagnostics/backend.h"
#include "ir/layout/axis.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace neso::nvidia {

namespace {

using Kind = Assignment::Kind;

/// An operand of a product with more words than this in a thread, which does not change in a loop, waits in shared
/// memory: the loop needs the registers.
constexpr int64_t kMostWordsKept = 48;
/// The same of all that a loop carries and keeps for its products: the rest of a thread's 255 is for sums and operands that live within a turn.
constexpr int64_t kMostWordsTogether = 144;

bool isTensor(Value v) { return isa<RankedTensorType>(v.getType()); }
ArrayRef<int64_t> shapeOf(Value v) { return cast<RankedTensorType>(v.getType()).getShape(); }
Type elementOf(Value v) { return cast<RankedTensorType>(v.getType()).getElementType(); }
int axisOf(Operation *op) { return static_cast<int>(op->getAttrOfType<IntegerAttr>("axis").getInt()); }
bool isScalarCode(Operation *op) { return isa<tt::ReduceOp, tt::ScanOp, tt::MapElementwiseOp>(op); }

/// Whether `op` stands in a loop that v comes into from outside.
bool loopBetween(Value v, Operation *op) {
  Operation *where = v.getParentRegion()->getParentOp();
  for (Operation *at = op->getParentOp(); at != where; at = at->getParentOp())
    if (isa<scf::ForOp, scf::WhileOp>(at)) return true;
  return false;
}

/// The registers inside one access, lowest address first; of `most` elements at most.
SmallVector<int32_t> together(const Assignment &layouts, const AccessOperands &access, const LinearLayout &layout, int64_t most) {
  const Type element = cast<tt::PointerType>(elementOf(access.ptr)).getPointeeType();
  const int64_t bytes = element.isIntOrFloat() ? std::max<int64_t>(8, element.getIntOrFloatBitWidth()) / 8 : 8;
  Access best;
  for (int dim = 0; dim < static_cast<int>(layout.outs().size()); ++dim) {
    const int64_t run = std::min({layouts.axisInfo().vectorWidth(access.ptr, access.mask, dim), 16 / bytes, most});
    if (run <= best.width) continue;
    if (Access a = widestAccess(layout, dimName(dim), run); a.width > best.width) best = a;
  }
  return SmallVector<int32_t>(best.registerBits.begin(), best.registerBits.end());
}

class Placer {
public:
  Placer(tt::FuncOp function, const Chip &chip, int warps, Exchange exchange)
      : function_(function), chip_(chip), warps_(warps), layouts_(function, chip, warps, exchange), b_(function.getContext()) {}

  Status run() {
    describe();
    for (Block &block : function_.getBody())
      if (!block.isEntryBlock()) retype(block.getArguments());
    for (Block &block : function_.getBody()) {
      // What the first block knows holds everywhere; the blocks after it tell one another nothing.
      scopes_.resize(1);
      if (!block.isEntryBlock()) scopes_.emplace_back();
      place(block);
    }
    if (error_) return std::move(*error_);
    for (Operation *op : llvm::reverse(spread_))
      if (op->use_empty()) op->erase();
    function_->setAttr(placed::kWarpsAttr, b_.getI32IntegerAttr(warps_));
    function_->setAttr(placed::kChipAttr, b_.getStringAttr(chip_.arch));
    return Status::ok();
  }

private:
  // ---- what is asked of the assignment while all uses are still as it saw them

  /// A value from outside of a loop that the loop wants elsewhere.
  struct Entering {
    Value v;
    LayoutRef layout;
    bool parked;
  };

  void describe() {
    function_.walk([&](Operation *op) {
      if (isa<scf::ForOp, scf::WhileOp>(op)) entering_[op] = enteringValues(op);
      if (std::optional<AccessOperands> access = accessOperands(op); access && layouts_.access(op)) {
        auto rmw = dyn_cast<tt::AtomicRMWOp>(op);
        const int64_t most = rmw ? mostAddedAtOnce(rmw, chip_) : INT64_MAX;
        if (isa<tt::LoadOp, tt::StoreOp, ttg::AsyncCopyOp>(op) || (rmw && most > 1))
          op->setAttr(placed::kTogetherAttr,
                      b_.getDenseI32ArrayAttr(together(layouts_, *access, *layouts_.access(op), most)));
      }
      if (scf::ForOp loop = dyn_cast<scf::ForOp>(op)) {
        SmallVector<int32_t> words;
        for (auto [i, argument] : llvm::enumerate(loop.getRegionIterArgs()))
          if (layouts_.isStep(argument)) words.push_back(static_cast<int32_t>(i));
        if (!words.empty()) op->setAttr(placed::kWordsAttr, b_.getDenseI32ArrayAttr(words));
      }
      if (tt::DotOp dot = dyn_cast<tt::DotOp>(op))
        op->setAttr(placed::kProductAttr, attributeOf(layouts_.dot(op), b_.getContext()));
    });
  }

  int64_t wordsOf(Value v, LayoutRef layout) const { return layout->inSize(kRegister) * elementOf(v).getIntOrFloatBitWidth() / 32; }

  /// Words that a thread carries from turn to turn, of the loop or of one in it.
  int64_t wordsCarried(Operation *nest) const {
    int64_t most = 0;
    nest->walk([&](LoopLikeOpInterface loop) {
      int64_t words = 0;
      for (Value v : loop.getRegionIterArgs())
        if (layouts_.kind(v) == Kind::Placed && elementOf(v).isIntOrFloat()) words += wordsOf(v, layouts_.layout(v));
      most = std::max(most, words);
    });
    return most;
  }

  std::vector<Entering> enteringValues(Operation *loop) {
    std::vector<Entering> entering;
    const int64_t carried = wordsCarried(loop);
    llvm::DenseSet<Value> seen;
    int64_t kept = 0;
    auto outside = [&](Value v) { return !loop->isAncestor(v.getParentRegion()->getParentOp()); };
    loop->walk<WalkOrder::PreOrder>([&](Operation *op) {
      if (op == loop) return WalkResult::advance();
      if (isScalarCode(op)) return WalkResult::skip();
      for (OpOperand &use : op->getOpOperands()) {
        Value v = use.get();
        if (layouts_.kind(v) != Kind::Placed || !outside(v)) continue;
        LayoutRef layout = layouts_.wanted(use);
        bool parked = false;
        if (tt::DotOp dot = dyn_cast<tt::DotOp>(op); dot && !layout) {
          layout = ready(use);
          const int64_t words = layout ? wordsOf(v, layout) : 0;
          parked = (words > kMostWordsKept || carried + kept + words > kMostWordsTogether) && readsShared(layouts_.dot(dot), dot);
          if (!parked && seen.insert(v).second) kept += words;
        }
        if (layout && (parked || layout != layouts_.layout(v))) entering.push_back({v, layout, parked});
      }
      return WalkResult::advance();
    });
    return entering;
  }

  /// Where a product takes an operand from; null where that is shared memory, or the elements are converted first.
  LayoutRef ready(OpOperand &use) {
    const DotPlan &plan = layouts_.dot(use.getOwner());
    const bool isA = use.getOperandNumber() == 0;
    const LinearLayout *taken = plan.operandIn(isA);
    return taken && elementOf(use.get()) == (isA ? plan.types.a : plan.types.b) ? layouts_.intern(*taken) : nullptr;
  }

  // ---- values in layouts

  RankedTensorType typeIn(Value v, LayoutRef layout) {
    return placed::placedType(cast<RankedTensorType>(v.getType()), *layout);
  }

  /// What a value of the function as it was is in `layout`: made at the builder's place unless it is known there.
  Value in(Value v, LayoutRef layout) {
    const Kind kind = layouts_.kind(v);
    if (kind == Kind::Scalar) return v;
    if (kind == Kind::Placed && layouts_.layout(v) == layout) return placed(v);
    for (const Scope &scope : scopes_)
      if (Value known = scope.lookup({v, layout})) return known;
    Value result;
    if (kind == Kind::Virtual) {
      result = placed::PlaceOp::create(b_, v.getLoc(), typeIn(v, layout), v);
    } else if (kind == Kind::Derived) {
      Operation *op = v.getDefiningOp();
      result = spread(op, in(op->getOperand(0), layouts_.pull(op, layout)), layout);
    } else {
      OpBuilder::InsertionGuard guard(b_);
      const size_t scope = outOfLoops(v, layout);
      result = placed::ConvertLayoutOp::create(b_, v.getLoc(), typeIn(v, layout), placed(v));
      scopes_[scope][{v, layout}] = result;
      return result;
    }
    scopes_.back()[{v, layout}] = result;
    return result;
  }

  /// Sets the builder's place in front of the outermost loop that v comes into from outside, where a thread has room for what is moved; gives the scope
  /// that knows it.
  size_t outOfLoops(Value v, LayoutRef layout) {
    constexpr int64_t kMostWords = 8;
    size_t level = scopes_.size() - 1, scope = level;
    if (!elementOf(v).isIntOrFloat() || wordsOf(v, layout) > kMostWords) return scope;
    Operation *where = v.getParentRegion()->getParentOp();
    for (Operation *at = b_.getInsertionBlock()->getParentOp(); !isa<tt::FuncOp>(at) && !at->isAncestor(where); at = at->getParentOp()) {
      --level;
      if (isa<scf::ForOp, scf::WhileOp>(at)) b_.setInsertionPoint(at), scope = level;
    }
    return scope;
  }

  /// The shape operation on an operand in the layout that it has below `layout`.
  Value spread(Operation *op, Value operand, LayoutRef layout) {
    Operation *clone = b_.insert(op->clone());
    clone->setOperand(0, operand);
    clone->getResult(0).setType(typeIn(op->getResult(0), layout));
    return clone->getResult(0);
  }

  /// A placed value where the assignment has it.
  Value placed(Value v) const {
    Value moved = moved_.lookup(v);
    return moved ? moved : v;
  }

  LayoutRef naturalOrDefault(Value v) {
    LayoutRef natural = layouts_.natural(v);
    return natural ? natural : layouts_.defaultLayout(shapeOf(v));
  }

  void bring(OpOperand &use, LayoutRef layout) {
    if (isTensor(use.get())) use.set(in(use.get(), layout));
  }
  void bringAll(Operation *op, LayoutRef layout) {
    for (OpOperand &use : op->getOpOperands()) bring(use, layout);
  }

  void retype(ValueRange values) {
    for (Value v : values)
      if (isTensor(v)) v.setType(typeIn(v, layouts_.layout(v)));
  }

  /// The results come out in natural[0] and go through the others to where they are assigned.
  void define(Operation *op, SmallVector<LayoutRef, 3> natural) {
    b_.setInsertionPointAfter(op);
    SmallVector<Value, 2> now;
    for (Value r : op->getResults()) {
      now.push_back(isTensor(r) ? r : Value());
      if (isTensor(r)) r.setType(typeIn(r, natural[0]));
    }
    auto move = [&](size_t i, LayoutRef to) {
      if (now[i] && *placed::layoutOf(now[i]) != *to)
        now[i] = placed::ConvertLayoutOp::create(b_, op->getLoc(), typeIn(now[i], to), now[i]);
    };
    for (LayoutRef to : llvm::drop_begin(natural))
      for (size_t i = 0; i < now.size(); ++i) move(i, to);
    for (size_t i = 0; i < now.size(); ++i) {
      if (!now[i]) continue;
      move(i, layouts_.layout(op->getResult(unsigned(i))));
      if (now[i] != op->getResult(unsigned(i))) moved_[op->getResult(unsigned(i))] = now[i];
    }
  }

  // ---- operations

  void place(Block &block) {
    for (Operation &op : llvm::make_early_inc_range(block)) {
      if (error_) return;
      place(&op);
    }
  }

  void placeInScope(Block &block) {
    scopes_.emplace_back();
    place(block);
    scopes_.pop_back();
  }

  void place(Operation *op) {
    const OpCode code = codeOf(op);
    if (op->getNumResults() > 0 && classOf(code) != OpClass::Unknown) {
      const Kind kind = layouts_.kind(op->getResult(0));
      if (kind == Kind::Derived) spread_.push_back(op);
      // Computed, or spread, where they are used.
      if (kind == Kind::Virtual || kind == Kind::Derived) return;
    }
    b_.setInsertionPoint(op);
    switch (code) {
    case OpCode::Load:
    case OpCode::Store:
    case OpCode::AtomicRmw:
    case OpCode::AtomicCas:
    case OpCode::AtomicLoad:
    case OpCode::AtomicStore:
    case OpCode::AsyncCopy:
      if (auto pointer = dyn_cast<tt::PointerType>(op->getOperand(0).getType()); pointer && pointer.isBlock())
        return refuse(op, code == OpCode::Load ? "a load through a block pointer" : "a store through a block pointer");
      if (LayoutRef access = layouts_.access(op)) bringAll(op, access);
      return retype(op->getResults());
    case OpCode::Reduce:
    case OpCode::Scan:
    case OpCode::Sort: return placeAlongAxis(op);
    case OpCode::Dot: return placeDot(cast<tt::DotOp>(op));
    case OpCode::Join: {
      LayoutRef part = inOneLayout(op);
      return define(op, {layouts_.intern(joinTensor(*part))});
    }
    case OpCode::Cat: {
      LayoutRef part = inOneLayout(op);
      return define(op, {layouts_.intern(catLayout(*part))});
    }
    case OpCode::Split: {
      LayoutRef half = layouts_.layout(op->getResult(0));
      bringAll(op, layouts_.intern(joinTensor(*half)));
      return define(op, {half});
    }
    case OpCode::Gather: {
      LayoutRef wanted = layouts_.layout(op->getResult(0)), source = naturalOrDefault(op->getOperand(0));
      bring(op->getOpOperand(0), source);
      bring(op->getOpOperand(1), wanted);
      return retype(op->getResults());
    }
    case OpCode::Histogram: {
      LayoutRef source = naturalOrDefault(op->getOperand(0));
      bringAll(op, source);
      return retype(op->getResults());
    }
    case OpCode::LocalStore: return bring(op->getOpOperand(0), naturalOrDefault(op->getOperand(0)));
    case OpCode::Unsplat:
      if (layouts_.kind(op->getOperand(0)) != Kind::Virtual)
        bring(op->getOpOperand(0), naturalOrDefault(op->getOperand(0)));
      return;
    case OpCode::Print:
    case OpCode::Assert:
      for (OpOperand &use : op->getOpOperands())
        if (isTensor(use.get())) bring(use, naturalOrDefault(use.get()));
      return;
    case OpCode::WaitProducts:
      for (OpOperand &use : op->getOpOperands())
        bring(use, layouts_.layout(op->getResult(use.getOperandNumber())));
      return retype(op->getResults());
    case OpCode::For: return placeFor(cast<scf::ForOp>(op));
    case OpCode::While: return placeWhile(cast<scf::WhileOp>(op));
    case OpCode::If:
      for (Region &region : op->getRegions())
        if (!region.empty()) placeInScope(region.front());
      return retype(op->getResults());
    case OpCode::Yield:
    case OpCode::Condition: return placeEnd(op);
    case OpCode::Br:
    case OpCode::CondBr: return placeBranch(op);
    default: break;
    }
    if (classOf(code) == OpClass::Unknown || code == OpCode::Call || code == OpCode::ExecuteRegion)
      return refuse(op, "operation " + op->getName().getStringRef().str());
    if (classOf(code) == OpClass::Element && op->getNumResults() > 0 && isTensor(op->getResult(0))) {
      LayoutRef layout = layouts_.layout(op->getResult(0));
      bringAll(op, layout);
      return define(op, {layout});
    }
    retype(op->getResults());
  }

  void refuse(Operation *op, const std::string &what) {
    SourceLoc loc = sourceLoc(op->getLoc());
    if (!loc.known()) loc.context = op->getName().getStringRef().str();
    error_ = fail(diag::NvidiaUnsupported, loc, what);
  }

  /// The operands in the first layout that one of them has.
  LayoutRef inOneLayout(Operation *op) {
    LayoutRef layout = nullptr;
    for (Value o : op->getOperands())
      if (!layout) layout = layouts_.natural(o);
    if (!layout) layout = layouts_.defaultLayout(shapeOf(op->getOperand(0)));
    bringAll(op, layout);
    return layout;
  }

  void placeAlongAxis(Operation *op) {
    const int axis = axisOf(op);
    LayoutRef given = inOneLayout(op);
    LayoutRef separate = layouts_.intern(separateAxis(*given, axis, isa<tt::ScanOp>(op)));
    auto moveTo = [&](LayoutRef from, LayoutRef to) {
      if (from == to) return;
      for (OpOperand &use : op->getOpOperands())
        use.set(placed::ConvertLayoutOp::create(b_, op->getLoc(), typeIn(use.get(), to), use.get()));
    };
    moveTo(given, separate);
    if (isa<tt::ReduceOp>(op)) {
      if (!isTensor(op->getResult(0))) return;
      return define(op, {layouts_.intern(sliceLayout(*separate, axis)), layouts_.intern(sliceLayout(*given, axis))});
    }
    if (isa<tt::ScanOp>(op)) return define(op, {separate, given});
    LayoutRef numbered = layouts_.intern(numberedByPlace(*separate, axis));
    if (cast<ttg::SortOp>(op).getBitonic()) moveTo(separate, numbered);
    define(op, {numbered});
  }

  // ---- products

  void placeDot(tt::DotOp dot) {
    const DotPlan &plan = layouts_.dot(dot);
    for (unsigned i : {0u, 1u}) {
      OpOperand &use = dot->getOpOperand(i);
      Value v = use.get();
      if (readsShared(plan, dot))
        if (Value shared = sharedOperand(dot, v)) {
          use.set(shared);
          continue;
        }
      LayoutRef layout = layouts_.natural(v), wanted = ready(use);
      // What comes into a loop from outside was converted before it; what has no place is computed where it is wanted.
      const bool invariant = layouts_.kind(v) == Kind::Placed && loopBetween(v, dot);
      if (wanted && (!layout || invariant || !plan.traits().movesOperands)) layout = wanted;
      bring(use, layout ? layout : layouts_.defaultLayout(shapeOf(v)));
    }
    LayoutRef accumulator = layouts_.intern(plan.accumulator);
    bring(dot->getOpOperand(2), accumulator);
    // Elements that the chip does not multiply are widened first.
    for (unsigned i : {0u, 1u}) {
      Value v = dot->getOperand(i);
      const Type wanted = i == 0 ? plan.types.a : plan.types.b;
      if (elementOf(v) == wanted) continue;
      RankedTensorType type = cast<RankedTensorType>(v.getType());
      dot->setOperand(i, tt::FpToFpOp::create(b_, dot.getLoc(),
                                              RankedTensorType::get(type.getShape(), wanted, type.getEncoding()), v,
                                              tt::RoundingModeAttr()));
    }
    if (plan.traits().besideThreads && !isFenced(dot)) placed::FenceAsyncOp::create(b_, dot.getLoc());
    define(dot, {accumulator});
  }

  /// An operand that lies in shared memory, transposed or not: as the tile that is read from there.
  Value sharedOperand(tt::DotOp dot, Value v) {
    tt::TransOp turned = v.getDefiningOp<tt::TransOp>();
    Value base = turned && !parked_.contains(v) ? turned.getSrc() : v;
    if (Value ring = parked_.lookup(base)) {
      Value slot = arith::ConstantOp::create(b_, dot.getLoc(), b_.getI32IntegerAttr(0));
      Value tile = ttg::LocalLoadOp::create(b_, dot.getLoc(), typeIn(base, layouts_.layout(base)), ring, slot,
                                            DenseI32ArrayAttr());
      return base == v ? tile : spread(turned, tile, layouts_.natural(v));
    }
    ttg::LocalLoadOp load = base.getDefiningOp<ttg::LocalLoadOp>();
    if (!load || load.getOffsets()) return {};
    return base == v ? placed(v) : in(v, layouts_.natural(v));
  }

  /// Puts a value into shared memory, in front of a loop.
  void park(Operation *loop, Value v) {
    RankedTensorType type = cast<RankedTensorType>(v.getType());
    SmallVector<int64_t> shape{1};
    shape.append(type.getShape().begin(), type.getShape().end());
    Value ring =
        ttg::LocalAllocOp::create(b_, loop->getLoc(), ttg::RingType::get(b_.getContext(), shape, type.getElementType()),
                                  uint32_t(type.getRank() - 1));
    Value slot = arith::ConstantOp::create(b_, loop->getLoc(), b_.getI32IntegerAttr(0));
    placed::LocalStoreOp::create(b_, loop->getLoc(), placed(v), ring, slot);
    parked_[v] = ring;
  }

  // ---- control flow

  /// What a loop takes from outside moves once, before it. Gives what was parked for it.
  SmallVector<Value, 2> enter(Operation *loop) {
    SmallVector<Value, 2> parked;
    for (const Entering &e : entering_[loop]) {
      if (!e.parked) {
        in(e.v, e.layout);
      } else if (!parked_.contains(e.v)) {
        park(loop, e.v);
        parked.push_back(e.v);
      }
    }
    return parked;
  }

  void leave(Operation *loop, ArrayRef<Value> parked) {
    b_.setInsertionPointAfter(loop);
    for (Value v : parked) {
      ttg::LocalDeallocOp::create(b_, loop->getLoc(), parked_.lookup(v));
      parked_.erase(v);
    }
  }

  void placeFor(scf::ForOp loop) {
    SmallVector<Value, 2> parked = enter(loop);
    for (auto [use, argument] : llvm::zip(loop.getInitArgsMutable(), loop.getRegionIterArgs()))
      bring(use, layouts_.layout(argument));
    retype(loop.getRegionIterArgs());
    placeInScope(*loop.getBody());
    retype(loop.getResults());
    leave(loop, parked);
  }

  void placeWhile(scf::WhileOp loop) {
    SmallVector<Value, 2> parked = enter(loop);
    for (auto [use, argument] : llvm::zip(loop.getInitsMutable(), loop.getBeforeArguments()))
      bring(use, layouts_.layout(argument));
    retype(loop.getBeforeArguments());
    placeInScope(loop.getBefore().front());
    retype(loop.getAfterArguments());
    placeInScope(loop.getAfter().front());
    retype(loop.getResults());
    leave(loop, parked);
  }

  /// What a region gives lies where its operation carries it.
  void placeEnd(Operation *end) {
    Operation *parent = end->getParentOp();
    ValueRange to = parent->getResults();
    if (scf::ForOp loop = dyn_cast<scf::ForOp>(parent)) to = loop.getRegionIterArgs();
    unsigned first = 0;
    if (scf::WhileOp loop = dyn_cast<scf::WhileOp>(parent)) {
      const bool condition = isa<scf::ConditionOp>(end);
      to = condition ? ValueRange(loop.getAfterArguments()) : ValueRange(loop.getBeforeArguments());
      first = condition;
    }
    for (unsigned i = 0; i < to.size(); ++i) bring(end->getOpOperand(first + i), layouts_.layout(to[i]));
  }

  void placeBranch(Operation *op) {
    BranchOpInterface branch = cast<BranchOpInterface>(op);
    for (unsigned i = 0; i < op->getNumSuccessors(); ++i)
      for (auto [use, argument] :
           llvm::zip(branch.getSuccessorOperands(i).getMutableForwardedOperands(), op->getSuccessor(i)->getArguments()))
        bring(use, layouts_.layout(argument));
  }

  using Scope = llvm::DenseMap<std::pair<Value, LayoutRef>, Value>;

  tt::FuncOp function_;
  const Chip &chip_;
  int warps_;
  Assignment layouts_;
  OpBuilder b_;
  std::optional<Error> error_;
  llvm::DenseMap<Operation *, std::vector<Entering>> entering_;
  std::vector<Scope> scopes_ = std::vector<Scope>(1);
  llvm::DenseMap<Value, Value> moved_;  // of a result that comes out elsewhere: where it is assigned
  llvm::DenseMap<Value, Value> parked_; // to the ring of one slot that holds it
  std::vector<Operation *> spread_;     // shape operations, whose clones are used
};

} // namespace

Status placeTensors(tt::FuncOp function, const Chip &chip, int warps, Exchange exchange) { return Placer(function, chip, warps, exchange).run(); }

} // namespace neso::nvidia
