#include "backend/nvidia/passes/verify.h"

#include "backend/common/opcodes.h"
#include "backend/nvidia/atomics.h"
#include "backend/nvidia/dot.h"
#include "backend/nvidia/passes/assign.h"
#include "backend/nvidia/passes/producer.h"
#include "backend/nvidia/passes/under_way.h"
#include "base/diagnostics/backend.h"
#include "ir/layout/axis.h"
#include "ir/tile/attributes.h"
#include "ir/tile/passes/axis_info.h"
#include "mlir/IR/Dominance.h"
#include "mlir/IR/Verifier.h"

using namespace mlir;

namespace neso::nvidia {

namespace {

bool isTensor(Value v) { return isa<RankedTensorType>(v.getType()); }
bool hasNoPlace(Value v) { return isTensor(v) && !placed::layoutOf(v); }

class Checker {
public:
  Checker(tt::FuncOp function, const Chip &chip) : function_(function), chip_(chip) {}

  Status run() {
    DiagnosticCapture capture(function_.getContext());
    if (failed(mlir::verify(function_)))
      return capture.take(diag::NvidiaNotPlaced, "the function breaks a rule that was not named");
    StringAttr chip = function_->getAttrOfType<StringAttr>(placed::kChipAttr);
    if (!isPlaced(function_) || !chip) return refuse(function_, "N1: has no placed.warps or placed.chip");
    if (chip.getValue() != llvm::StringRef(chip_.arch))
      return refuse(function_, "N1: is placed for " + chip.getValue().str());
    warps_ = warpsOf(function_);
    checkProducer();
    function_.walk([&](Operation *op) {
      check(op);
      return error_ ? WalkResult::interrupt() : WalkResult::advance();
    });
    if (!error_)
      if (std::optional<UnderWayFault> fault = findUnderWayFault(function_, chip_, warps_)) require(false, fault->op, fault->rule);
    if (error_) return std::move(*error_);
    return Status::ok();
  }

private:
  Status refuse(Operation *op, const std::string &rule) {
    SourceLoc loc = sourceLoc(op->getLoc());
    const std::string name = op->getName().getStringRef().str();
    if (!loc.known()) loc.context = name;
    return fail(diag::NvidiaNotPlaced, loc, name + " " + rule);
  }
  void require(bool holds, Operation *op, const char *rule) {
    if (holds || error_) return;
    error_ = refuse(op, rule).takeError();
  }

  void check(Operation *op) {
    if (op == function_) return;
    auto fits = [&](Value v) {
      const LinearLayout *layout = placed::layoutOf(v);
      return !layout || (layout->inSize(kWarp) == warps_ && layout->inSize(kBlock) == 1);
    };
    for (Region &region : op->getRegions())
      for (Block &block : region)
        require(llvm::all_of(block.getArguments(), fits), op, "N1: carries layouts of other warps");
    require(llvm::all_of(op->getResults(), fits), op, "N1: has layouts of other warps");

    const bool withoutPlace = llvm::any_of(op->getResults(), hasNoPlace);
    if (withoutPlace) {
      require(op->getNumRegions() == 0 && isMemoryEffectFree(op), op, "N3: computes what has no place, with effects");
      require(llvm::none_of(op->getOperands(), [](Value v) { return placed::layoutOf(v) != nullptr; }), op,
              "N3: computes what has no place from what has one");
    } else if (!isa<placed::PlaceOp, tt::UnsplatOp>(op)) {
      require(llvm::none_of(op->getOperands(), hasNoPlace), op, "N2: takes a tensor that has no place");
    }
    checkOneLayout(op);
    checkAccess(op);
    checkWords(op);
    checkProduct(op);
    checkOpen(op);
    checkAxis(op);
    checkSlots(op);
    checkBarriers(op);
    checkTurns(op);
  }

  void checkProducer() {
    constexpr int kGroup = 4, kPortion = 8;
    const bool given = function_->hasAttr(placed::kProducerAttr);
    function_.walk([&](Operation *op) {
      require(given || !(op->hasAttr(placed::kByProducerAttr) || op->hasAttr(placed::kWithProducerAttr)), op, "N14: is for a producer, and there is none");
    });
    if (!given || error_) return;
    const std::optional<Producer> producer = producerOf(function_);
    require(producer && producer->warps > 0 && producer->warps % kGroup == 0 && warps_ % kGroup == 0, function_, "N14: has a producer of other than groups of warps");
    if (error_) return;
    const auto fits = [](int registers) { return registers >= 24 && registers <= 256 && registers % kPortion == 0; };
    require(fits(producer->registers) && fits(producer->registersOfBlock) &&
                32 * (producer->warps * producer->registers + warps_ * producer->registersOfBlock) * blocksWithProducer(chip_, warps_) <= chip_.registersPerSm,
            function_, "N14: has a producer for which there are too few registers");
    require(producerSlice(function_).has_value(), function_, "N14: has a producer whose copies are led to by more than scalars");
  }

  /// Where a barrier in a loop is one's turn, the others stand in their places.
  void checkTurns(Operation *op) {
    if (!isa<ttg::BarrierOp>(op) || !op->hasAttr(placed::kTurnAttr)) return;
    const Turn which = turnOf(op);
    auto next = [](Operation *at, bool forwards) {
      do at = forwards ? at->getNextNode() : at->getPrevNode();
      while (at && turnOf(at) == Turn::None && !(isa<scf::ForOp>(at) && at->walk([](ttg::BarrierOp b) { return turnOf(b) == Turn::None ? WalkResult::advance() : WalkResult::interrupt(); }).wasInterrupted()));
      return at;
    };
    Operation *before = next(op, false), *behind = next(op, true);
    auto is = [](Operation *at, Turn turn) { return at && turnOf(at) == turn; };
    bool good = false;
    if (which == Turn::Wait) good = isa<scf::ForOp>(op->getParentOp()) && !before && is(behind, Turn::Pass) && is(next(op->getParentOp(), false), Turn::First);
    if (which == Turn::Pass) good = isa<scf::ForOp>(op->getParentOp()) && !behind && is(before, Turn::Wait) && is(next(op->getParentOp(), true), Turn::Last);
    if (which == Turn::First) good = behind && isa<scf::ForOp>(behind) && is(next(behind, true), Turn::Last);
    if (which == Turn::Last) good = before && isa<scf::ForOp>(before) && is(next(before, false), Turn::First);
    require(good && warps_ % 4 == 0 && warps_ > 4, op, "N15: is a turn out of turn");
  }

  void checkBarriers(Operation *op) {
    ttg::BarriersOp barriers = dyn_cast<ttg::BarriersOp>(op);
    if (!barriers) return;
    int ends = 0;
    for (Operation *user : op->getUsers()) {
      ends += isa<ttg::EndBarriersOp>(user) && user->getBlock() == op->getBlock();
      const int64_t arrivals = isa<ttg::ArriveOp>(user) ? warps_ : isa<ttg::ExpectOp>(user) ? 1 : int64_t(barriers.getArrivals());
      require(arrivals == int64_t(barriers.getArrivals()), user, "N13: arrives as others than the barrier counts");
    }
    require(ends == 1, op, "N13: makes barriers that do not end in its block");
    if (error_) return;
    // The block waits before anybody uses them, and when all have.
    auto uses = [&](Operation &other) {
      return llvm::any_of(op->getUsers(), [&](Operation *user) { return other.isAncestor(user) && !isa<ttg::EndBarriersOp>(user); });
    };
    bool waited = false, used = false;
    const bool hasProducer = function_->hasAttr(placed::kProducerAttr);
    for (Operation *at = op->getNextNode(); at; at = at->getNextNode()) {
      if (isa<ttg::BarrierOp>(at) && turnOf(at) == Turn::None && (used || !hasProducer || at->hasAttr(placed::kWithProducerAttr))) waited = true;
      if (uses(*at)) {
        require(waited || used, at, "N13: uses barriers behind no wait of the block");
        used = true, waited = false;
      }
      if (isa<ttg::EndBarriersOp>(at) && at->getOperand(0) == op->getResult(0))
        require(waited, at, "N13: ends barriers behind no wait of the block");
    }
  }

  void checkOneLayout(Operation *op) {
    const OpCode code = codeOf(op);
    if (classOf(code) != OpClass::Element &&
        !isa<tt::LoadOp, tt::StoreOp, ttg::AsyncCopyOp, tt::AtomicRMWOp, tt::AtomicCASOp, tt::AtomicLoadOp,
             tt::AtomicStoreOp, tt::ReduceOp, tt::ScanOp, ttg::SortOp>(op))
      return;
    const LinearLayout *one = nullptr;
    auto same = [&](Value v) {
      const LinearLayout *layout = placed::layoutOf(v);
      if (!one) one = layout;
      return !layout || layout == one;
    };
    bool all = llvm::all_of(op->getOperands(), same);
    if (!isa<tt::ReduceOp, ttg::SortOp>(op)) all &= llvm::all_of(op->getResults(), same);
    require(all, op, "N2: works on tensors that lie in several layouts");
  }

  void checkAccess(Operation *op) {
    auto rmw = dyn_cast<tt::AtomicRMWOp>(op);
    if (!isa<tt::LoadOp, tt::StoreOp, ttg::AsyncCopyOp>(op) && !(rmw && op->hasAttr(placed::kTogetherAttr))) return;
    const LinearLayout *layout = placed::layoutOf(op->getOperand(0));
    if (!layout) return;
    auto together = op->getAttrOfType<DenseI32ArrayAttr>(placed::kTogetherAttr);
    require(bool(together), op, "N4: has no placed.together");
    if (!together) return;
    const std::vector<uint64_t> &bases = layout->in(kRegister).bases;
    std::optional<int> along; // the dim whose neighbours they are
    for (int dim = 0; dim < static_cast<int>(layout->outs().size()); ++dim) {
      const LinearLayout::Out &out = layout->out(dimName(dim));
      bool neighbours = !together.empty();
      for (auto [i, bit] : llvm::enumerate(together.asArrayRef()))
        neighbours &= bases[size_t(bit)] == uint64_t(1) << (out.shift + int(i)) && int(i) < out.bits;
      if (neighbours) along = dim;
    }
    require(along || together.empty(), op, "N4: takes registers at once that are no neighbours");
    const int64_t most = rmw ? mostAddedAtOnce(rmw, chip_) : 0;
    require(!rmw || (most > 1 && int64_t(1) << together.size() <= most), op, "N4: adds to more at once than the chip does");
    const AccessOperands access = *accessOperands(op);
    if (along) {
      if (!axis_) axis_.emplace(function_);
      require(axis_->vectorWidth(access.ptr, access.mask, *along) >= int64_t(1) << together.size(), op,
              "N4: takes more at once than its addresses and mask allow");
    }
    auto copy = dyn_cast<ttg::AsyncCopyOp>(op);
    if (!copy || error_) return;
    constexpr int64_t kFewestBits = 32;
    require(int64_t(copy.getRing().getType().getTileType().getElementTypeBitWidth()) << together.size() >= kFewestBits, op, "N4: copies less than 4 bytes");
    auto ring = copy.getRing().getDefiningOp<ttg::LocalAllocOp>();
    require(!along || (ring && int(ring.getFast()) == *along), op, "N4: copies at once what does not lie side by side in its ring");
  }

  void checkProduct(Operation *op) {
    tt::DotOp dot = dyn_cast<tt::DotOp>(op);
    if (!dot || error_) return;
    require(op->hasAttr(placed::kProductAttr) && placed::layoutOf(dot.getD()), op, "N5: has no placed.product");
    if (error_) return;
    const std::optional<DotPlan> plan = placedPlan(dot, chip_, warps_);
    require(plan.has_value(), op, "N5: is multiplied as the chip cannot");
    if (plan) require(plan->accumulator == *placed::layoutOf(dot.getD()), op, "N5: sums elsewhere than it multiplies");
    if (plan && plan->traits().besideThreads) require(isFenced(op), op, "N10: reads what no fence stands behind");
  }

  /// Sums that are under way go by operations that take them as such, and the block waits where it must.
  void checkOpen(Operation *op) {
    if (DenseI32ArrayAttr held = op->getAttrOfType<DenseI32ArrayAttr>(placed::kHeldAttr)) {
      const auto isValue = [&](int32_t number) {
        if (!isa<placed::WaitProductsOp>(op) || number < 0 || unsigned(number) >= op->getNumOperands()) return false;
        Operation *by = op->getOperand(unsigned(number)).getDefiningOp();
        return by && !by->hasAttr(placed::kOpenAttr);
      };
      require(llvm::all_of(held.asArrayRef(), isValue), op, "N11: holds what is no value beside the sums");
      if (error_) return;
    }
    scf::ForOp loop = dyn_cast<scf::ForOp>(op);
    auto carried = loop ? loop->getAttrOfType<DenseI32ArrayAttr>(placed::kOpenValuesAttr) : DenseI32ArrayAttr();
    for (int32_t number : carried ? carried.asArrayRef() : ArrayRef<int32_t>()) {
      Operation *by = loop.getBody()->getTerminator()->getOperand(unsigned(number)).getDefiningOp();
      require(by && by->hasAttr(placed::kOpenAttr) && by->getBlock() == loop.getBody(), op,
              "N11: carries as open what is no sum of an open product");
      checkUses(loop.getRegionIterArg(unsigned(number)));
    }
    if (op->hasAttr(placed::kOpenAttr) && !error_) {
      tt::DotOp dot = cast<tt::DotOp>(op);
      require(placedPlan(dot, chip_, warps_)->leavesSums(), op, "N11: is open, and leaves no sums that may be");
      require(isa<scf::ForOp>(op->getParentOp()), op, "N11: is open, and in no loop");
      checkUses(dot.getD());
    }
  }
  /// Of sums that are under way.
  void checkUses(Value sums) {
    for (OpOperand &use : sums.getUses()) {
      Operation *user = use.getOwner();
      bool open = isa<placed::WaitProductsOp>(user);
      if (isa<tt::DotOp>(user)) open = user->hasAttr(placed::kOpenAttr) && use.getOperandNumber() == 2;
      if (scf::ForOp loop = dyn_cast<scf::ForOp>(user->getParentOp()); loop && isa<scf::YieldOp>(user)) {
        auto carried = loop->getAttrOfType<DenseI32ArrayAttr>(placed::kOpenValuesAttr);
        open = carried && llvm::is_contained(carried.asArrayRef(), int32_t(use.getOperandNumber()));
      }
      require(open, user, "N11: uses sums that are under way");
    }
  }

  void checkAxis(Operation *op) {
    if (!isa<tt::ReduceOp, tt::ScanOp, ttg::SortOp>(op)) return;
    const int axis = int(op->getAttrOfType<IntegerAttr>("axis").getInt());
    for (Value v : op->getOperands())
      if (const LinearLayout *layout = placed::layoutOf(v))
        require(separateAxis(*layout, axis, isa<tt::ScanOp>(op)) == *layout, op,
                "N6: works along an axis that is mixed with others");
  }

  /// What a thread holds in words of 32 bits.
  void checkWords(Operation *op) {
    auto fillsWords = [](Value v) {
      const Type element = cast<RankedTensorType>(v.getType()).getElementType();
      const int64_t bits = element.isIntOrFloat() ? std::max(8u, element.getIntOrFloatBitWidth()) : 64;
      return bits <= 32 && placed::layoutOf(v)->inSize(kRegister) * bits % 32 == 0;
    };
    if (auto part = dyn_cast<ttg::LocalLoadOp>(op); part && part.getOffsets())
      require(fillsWords(part.getResult()), op, "N4: reads a part of which a thread has no whole words");
    scf::ForOp loop = dyn_cast<scf::ForOp>(op);
    auto words = loop ? loop->getAttrOfType<DenseI32ArrayAttr>(placed::kWordsAttr) : DenseI32ArrayAttr();
    for (int32_t number : words ? words.asArrayRef() : ArrayRef<int32_t>())
      require(fillsWords(loop.getRegionIterArg(unsigned(number))), op, "N4: carries in words what does not fill them");
  }

  void checkSlots(Operation *op) {
    for (Value v : op->getOperands())
      if (isa<ttg::RingType, ttg::BarriersType>(v.getType()))
        require(v.getDefiningOp<ttg::LocalAllocOp>() || v.getDefiningOp<ttg::BarriersOp>(), op, "N7: uses a ring or barriers by another name");
    ttg::LocalAllocOp alloc = dyn_cast<ttg::LocalAllocOp>(op);
    if (!alloc) return;
    Operation *end = nullptr;
    for (Operation *user : op->getUsers())
      if (isa<ttg::LocalDeallocOp>(user)) {
        require(!end && user->getBlock() == op->getBlock(), op, "N7: ends more than once, or elsewhere");
        end = user;
      }
    require(end, op, "N7: never ends");
    if (error_) return;
    if (auto rows = op->getAttrOfType<IntegerAttr>(tile::kSlotRowsAttr)) checkRows(alloc, rows.getInt());
    for (Operation *user : op->getUsers()) {
      Operation *here = op->getBlock()->findAncestorOpInBlock(*user);
      require(here && !end->isBeforeInBlock(here), user, "N7: uses a ring behind its end");
    }
  }

  void checkRows(ttg::LocalAllocOp ring, int64_t rows) {
    auto readsFewer = [&](Operation *user) {
      tt::DotOp dot = dyn_cast<tt::DotOp>(user);
      const std::optional<DotPlan> plan = dot ? placedPlan(dot, chip_, warps_) : std::nullopt;
      return plan && plan->traits().byGroups && !plan->isSplit() && ringOf(dot.getB()) == ring.getRing() && ringOf(dot.getA()) != ring.getRing() &&
             plan->columnsRead() <= rows;
    };
    for (Operation *user : ring->getUsers()) {
      bool good = isa<ttg::BulkCopyOp, ttg::LocalDeallocOp>(user);
      if (auto load = dyn_cast<ttg::LocalLoadOp>(user))
        good = !load.getOffsets() && llvm::all_of(load->getUsers(), [&](Operation *next) {
          return isa<tt::TransOp>(next) ? llvm::all_of(next->getUsers(), readsFewer) : readsFewer(next);
        });
      require(good, user, "N14: wants rows of a tile that its slot does not hold");
    }
  }

  tt::FuncOp function_;
  const Chip &chip_;
  int warps_ = 0;
  std::optional<Error> error_;
  std::optional<AxisInfoAnalysis> axis_;
};

} // namespace

bool isFenced(Operation *product) {
  // What the machine itself has copied is seen by whoever has waited for it.
  const auto byMachine = [](Value operand) {
    Value ring = ringOf(operand);
    return !ring || (isCopiedInto(ring) && llvm::none_of(ring.getUsers(), [](Operation *user) { return isa<ttg::AsyncCopyOp>(user); }));
  };
  if (byMachine(product->getOperand(0)) && byMachine(product->getOperand(1))) return true;
  for (Operation *op = product->getPrevNode(); op; op = op->getPrevNode()) {
    if (isa<placed::FenceAsyncOp>(op)) return true;
    if (isa<ttg::AsyncWaitOp, placed::LocalStoreOp, scf::ForOp, scf::WhileOp, scf::IfOp>(op)) return false;
  }
  return false;
}

bool isPlaced(tt::FuncOp function) { return function->hasAttr(placed::kWarpsAttr); }

int warpsOf(tt::FuncOp function) {
  return static_cast<int>(function->getAttrOfType<IntegerAttr>(placed::kWarpsAttr).getInt());
}

Status verifyPlaced(tt::FuncOp function, const Chip &chip) { return Checker(function, chip).run(); }

} // namespace neso::nvidia
