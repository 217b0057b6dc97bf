#include "backend/nvidia/passes/under_way.h"

#include <deque>

#include "backend/common/opcodes.h"
#include "backend/nvidia/dot.h"
#include "backend/nvidia/passes/producer.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/DenseMap.h"

using namespace mlir;

namespace neso::nvidia {

namespace {

/// A slot of a ring; nothing: not known which.
struct Slot {
  Value ring;
  std::optional<int64_t> number;
  bool meets(const Slot &other) const { return ring == other.ring && (!number || !other.number || number == other.number); }
  bool operator==(const Slot &) const = default;
};

using Key = std::pair<Value, int64_t>; // a slot of a ring or of barriers; -1: not known which

/// What reads slots: a product by wgmma from when it is begun, a thread where it loads.
struct Reader {
  int64_t number; // in the order in which they begin, from 1
  SmallVector<Slot, 2> slots;
  bool complete = true;
  bool met = false;       // the block has waited since: a producer alone may not know
  int64_t begunSince = 0; // products by wgmma
  /// Phases of barriers in which the warps have said that they have left it.
  SmallVector<std::pair<Key, int64_t>, 1> left = {};
};

/// A slot's barrier, as it is when all warps have come as far as this.
struct Barrier {
  int64_t phase = 0;              // that have ended
  int64_t expected = 0, sent = 0; // bytes, of the phase at hand
  int64_t known = 0;              // phases that the thread which copies has seen to end
  bool announced = false;
  bool operator==(const Barrier &) const = default;
};

/// What has been brought into a slot last.
struct Fill {
  std::optional<Key> barrier = {}; // that counts the machine's copy
  int64_t phase = 0;
  bool awaited = true;
  bool read = false;
};

/// Whether the machine may copy where threads have written before.
enum class Fence : uint8_t { None, Behind, Seen };

/// What is under way at a place of the code.
struct State {
  std::vector<Reader> readers;                           // that some thread may still be at
  std::deque<SmallVector<Slot, 4>> copies{{}};           // by group, the open one last
  llvm::DenseMap<Key, Fill> fills;                       // of a ring's slot, once something has been brought there
  llvm::DenseMap<Key, Barrier> barriers;
  llvm::DenseMap<Value, Fence> fences;                   // of a ring

  bool isComplete(int64_t number) const {
    return llvm::none_of(readers, [&](const Reader &r) { return r.number == number && !r.complete; });
  }
  /// What holds whichever way was taken here; false where barriers differ by the way.
  bool join(const State &other) {
    for (const Reader &theirs : other.readers) {
      auto own = llvm::find_if(readers, [&](const Reader &r) { return r.number == theirs.number; });
      if (own == readers.end()) {
        readers.push_back(theirs);
        continue;
      }
      own->complete &= theirs.complete, own->met &= theirs.met;
      own->begunSince = std::min(own->begunSince, theirs.begunSince);
    }
    // A wait counts groups from the last.
    while (copies.size() < other.copies.size()) copies.emplace_front();
    for (size_t i = 1; i <= other.copies.size(); ++i)
      for (const Slot &slot : other.copies[other.copies.size() - i])
        if (auto &group = copies[copies.size() - i]; !llvm::is_contained(group, slot)) group.push_back(slot);
    SmallVector<Key> missing;
    for (auto &[key, fill] : fills) {
      auto theirs = other.fills.find(key);
      if (theirs == other.fills.end())
        missing.push_back(key);
      else
        fill.awaited &= theirs->second.awaited, fill.read &= theirs->second.read;
    }
    for (const Key &key : missing) fills.erase(key);
    for (auto &[ring, fence] : fences) fence = std::min(fence, other.fences.lookup(ring));
    return barriers == other.barriers;
  }
};

/// Whether the operation has to do with rings, barriers or products.
bool counts(Operation *op) {
  return isa<ttg::LocalAllocOp, ttg::LocalDeallocOp, ttg::LocalLoadOp, placed::LocalStoreOp, ttg::AsyncCopyOp, ttg::AsyncCommitOp,
             ttg::AsyncWaitOp, ttg::BarriersOp, ttg::EndBarriersOp, ttg::ByOneThreadOp, ttg::ExpectOp, ttg::BulkCopyOp, ttg::AwaitOp, ttg::ArriveOp,
             tt::DotOp, placed::WaitProductsOp, placed::FenceAsyncOp>(op);
}

class Run {
public:
  Run(tt::FuncOp function, const Chip &chip, int warps)
      : function_(function), chip_(chip), warps_(warps), hasProducer_(producerOf(function).has_value()) {
    int64_t slots = 0;
    function.walk([&](Operation *op) {
      if (auto alloc = dyn_cast<ttg::LocalAllocOp>(op)) slots = std::max(slots, alloc.getRing().getType().getSlots());
      for (Operation *parent = counts(op) ? op->getParentOp() : nullptr; parent; parent = parent->getParentOp())
        if (!inside_.insert(parent).second) break;
    });
    // Slots come round, and the phases of their barriers once more.
    most_ = 2 * slots + 2;
    few_ = slots + 1;
  }

  std::optional<UnderWayFault> run() {
    // Few: pipelines that are never full.
    for (turns_ = 0; turns_ <= few_ && !fault_; ++turns_) once();
    turns_ = most_;
    if (!fault_) once();
    return fault_;
  }

private:
  void once() {
    assumed_.clear(), numbers_.clear(), sums_.clear();
    // A ring ends in the block in which it is made (N7): blocks leave one another nothing.
    for (Block &block : function_.getBody()) {
      state_ = State();
      carryOut(block);
    }
  }

  void require(bool holds, Operation *op, const char *rule) {
    if (!holds && !fault_) fault_ = UnderWayFault{op, rule};
  }

  // ---- numbers that loops count

  std::optional<int64_t> numberOf(Value v) {
    if (auto it = assumed_.find(v); it != assumed_.end()) return it->second;
    if (auto it = numbers_.find(v); it != numbers_.end()) return it->second;
    APInt constant;
    if (!matchPattern(v, m_ConstantInt(&constant))) return std::nullopt;
    return constant.getBitWidth() == 1 ? int64_t(!constant.isZero()) : constant.getSExtValue();
  }
  static bool compared(arith::CmpIPredicate predicate, int64_t a, int64_t b) {
    using P = arith::CmpIPredicate;
    switch (predicate) {
    case P::eq: return a == b;
    case P::ne: return a != b;
    case P::slt:
    case P::ult: return a < b;
    case P::sle:
    case P::ule: return a <= b;
    case P::sgt:
    case P::ugt: return a > b;
    case P::sge:
    case P::uge: return a >= b;
    }
    return false;
  }
  void count(Operation *op) {
    if (op->getNumResults() != 1 || !op->getResult(0).getType().isIntOrIndex()) return;
    numbers_.erase(op->getResult(0));
    SmallVector<std::optional<int64_t>, 3> in;
    for (Value operand : op->getOperands()) in.push_back(numberOf(operand));
    std::optional<int64_t> result;
    if (isa<arith::SelectOp>(op) && in[0]) result = *in[0] ? in[1] : in[2];
    if (isa<arith::ExtSIOp, arith::TruncIOp, arith::IndexCastOp>(op)) result = in[0];
    if (in.size() == 2 && in[0] && in[1]) {
      if (isa<arith::AddIOp>(op)) result = *in[0] + *in[1];
      if (isa<arith::SubIOp>(op)) result = *in[0] - *in[1];
      if (isa<arith::MulIOp>(op)) result = *in[0] * *in[1];
      if (isa<arith::XOrIOp>(op)) result = *in[0] ^ *in[1];
      if (isa<arith::AndIOp>(op)) result = *in[0] & *in[1];
      if (auto compare = dyn_cast<arith::CmpIOp>(op)) result = compared(compare.getPredicate(), *in[0], *in[1]);
    }
    if (result) numbers_[op->getResult(0)] = *result;
  }
  void copyNumber(Value to, std::optional<int64_t> number) {
    numbers_.erase(to);
    if (number) numbers_[to] = *number;
  }

  /// A loop that carries copies or products over its turns has as many as are tried; one around whole pipelines two at most.
  int64_t turnsOf(scf::ForOp loop) {
    bool carries = false;
    loop->walk([&](Operation *op) {
      for (Value v : op->getOperands())
        carries |= isa<ttg::RingType, ttg::BarriersType>(v.getType()) && !loop->isAncestor(v.getParentRegion()->getParentOp());
      carries |= op->hasAttr(placed::kOpenAttr);
    });
    return carries ? turns_ : std::min<int64_t>(turns_, 2);
  }
  /// Gives the loops of a block bounds where they have none, before anything is computed of these. A bound that is known leaves it to the
  /// loop how many turns it has, unless these were too many to carry out.
  void assumeBounds(Block &block) {
    for (scf::IfOp branch : block.getOps<scf::IfOp>())
      if (inside_.contains(branch)) assumeInside(branch);
    for (scf::ForOp loop : block.getOps<scf::ForOp>()) {
      if (!inside_.contains(loop)) continue;
      auto assume = [&](Value v, int64_t number) {
        if (isa<scf::IfOp>(block.getParentOp())) countBehind(v, block);
        if (assumed_.count(v) || (numberOf(v) && isa<scf::IfOp>(block.getParentOp()))) return;
        if ((v.getDefiningOp() && v.getParentBlock() == &block) || !numberOf(v)) assumed_.try_emplace(v, number);
      };
      APInt constant;
      for (auto [bound, number] : {std::pair(loop.getLowerBound(), 0), std::pair(loop.getStep(), 1)})
        if (!matchPattern(bound, m_ConstantInt(&constant))) assume(bound, number);
      const Value end = loop.getUpperBound();
      const int64_t begin = *numberOf(loop.getLowerBound()), step = std::max<int64_t>(*numberOf(loop.getStep()), 1);
      const int64_t wanted = begin + turnsOf(loop) * step;
      if (!matchPattern(end, m_ConstantInt(&constant)))
        assume(end, wanted);
      else if (constant.getSExtValue() - begin > most_ * step)
        assumed_.try_emplace(end, wanted);
      assumeInside(loop);
    }
  }

  /// Of loops in a branch or another loop the bounds that come from outside: whether it is taken, and what stands in front of it, may depend on them.
  void assumeInside(Operation *outer) {
    outer->walk([&](scf::ForOp loop) {
      if (loop == outer || !inside_.contains(loop)) return;
      APInt constant;
      auto assume = [&](Value v, int64_t number) {
        if (!outer->isAncestor(v.getParentRegion()->getParentOp()) && !numberOf(v)) assumed_.try_emplace(v, number);
      };
      assume(loop.getLowerBound(), 0), assume(loop.getStep(), 1);
      const int64_t begin = numberOf(loop.getLowerBound()).value_or(0), step = std::max<int64_t>(numberOf(loop.getStep()).value_or(1), 1);
      const int64_t wanted = begin + turnsOf(loop) * step;
      assume(loop.getUpperBound(), wanted);
      if (matchPattern(loop.getUpperBound(), m_ConstantInt(&constant)) && constant.getSExtValue() - begin > most_ * step)
        assumed_.try_emplace(loop.getUpperBound(), wanted);
    });
  }
  /// Counts what leads to a value, as far as it stands in the block.
  void countBehind(Value v, Block &block) {
    Operation *op = v.getDefiningOp();
    if (!op || op->getBlock() != &block || op->getNumRegions()) return;
    for (Value operand : op->getOperands()) countBehind(operand, block);
    count(op);
  }

  // ---- the walk

  void carryOut(Block &block) {
    assumeBounds(block);
    for (Operation &op : block) {
      if (fault_) return;
      if (op.getNumRegions() == 0)
        step(&op);
      else if (inside_.contains(&op))
        carryOut(&op);
    }
  }
  void carryOut(Operation *op) {
    if (auto loop = dyn_cast<scf::ForOp>(op)) return carryOut(loop);
    if (auto branch = dyn_cast<scf::IfOp>(op)) return carryOut(branch);
    if (auto loop = dyn_cast<scf::WhileOp>(op)) return carryOut(loop);
    auto one = dyn_cast<ttg::ByOneThreadOp>(op);
    require(bool(one), op, "N12: holds copies or products that are not followed there");
    if (!one || numberOf(one.getCondition()) == 0) return;
    for (Operation &inside : one.getBody().front()) stepOfOneThread(&inside);
  }

  void carryOut(scf::ForOp loop) {
    const int64_t begin = *numberOf(loop.getLowerBound()), step = std::max<int64_t>(*numberOf(loop.getStep()), 1),
                  end = *numberOf(loop.getUpperBound());
    SmallVector<std::optional<int64_t>> numbers;
    SmallVector<int64_t> sums;
    auto take = [&](ValueRange values) {
      numbers.clear(), sums.clear();
      for (Value v : values) numbers.push_back(numberOf(v)), sums.push_back(sums_.lookup(v));
    };
    auto give = [&](ValueRange values) {
      for (auto [v, number, product] : llvm::zip(values, numbers, sums)) copyNumber(v, number), sums_[v] = product;
    };
    take(loop.getInitArgs());
    for (int64_t at = begin; at < end && !fault_; at += step) {
      give(loop.getRegionIterArgs());
      copyNumber(loop.getInductionVar(), at);
      carryOut(*loop.getBody());
      take(loop.getBody()->getTerminator()->getOperands());
    }
    give(loop.getResults());
    // Where a loop ends that carries sums of products under way, it waits for them.
    if (!loop->hasAttr(placed::kOpenValuesAttr)) return;
    for (Reader &reader : state_.readers) reader.complete = true;
    for (Value v : loop.getResults()) sums_[v] = 0;
  }

  void join(const State &other, Operation *op) {
    require(state_.join(other), op, "N13: has barriers that not every way through it uses");
  }
  void carryOut(scf::IfOp branch) {
    if (const std::optional<int64_t> taken = numberOf(branch.getCondition())) {
      Region &region = *taken ? branch.getThenRegion() : branch.getElseRegion();
      if (!region.empty()) carryOut(region.front());
      return;
    }
    const State before = state_;
    carryOut(branch.getThenRegion().front());
    const State taken = state_;
    state_ = before;
    if (!branch.getElseRegion().empty()) carryOut(branch.getElseRegion().front());
    join(taken, branch);
  }
  void carryOut(scf::WhileOp loop) {
    carryOut(loop.getBefore().front());
    State left = state_;
    for (int64_t turn = 0; turn < turns_ && !fault_; ++turn) {
      carryOut(loop.getAfter().front());
      carryOut(loop.getBefore().front());
      join(left, loop);
      left = state_;
    }
  }

  void step(Operation *op) {
    count(op);
    if (auto alloc = dyn_cast<ttg::LocalAllocOp>(op)) state_.fences[alloc.getRing()] = Fence::None;
    if (auto end = dyn_cast<ttg::LocalDeallocOp>(op)) endRing(end);
    if (auto store = dyn_cast<placed::LocalStoreOp>(op)) fillByThreads(store);
    if (auto copy = dyn_cast<ttg::AsyncCopyOp>(op)) fill(copy);
    if (isa<ttg::AsyncCommitOp>(op)) state_.copies.emplace_back();
    if (auto wait = dyn_cast<ttg::AsyncWaitOp>(op))
      while (state_.copies.size() > size_t(wait.getPending()) + 1) state_.copies.pop_front();
    if (const OpCode code = codeOf(op); code == OpCode::AsyncWait || ((code == OpCode::Barrier || code == OpCode::GpuBarrier) && turnOf(op) == Turn::None))
      waitOfBlock(!hasProducer_ || op->hasAttr(placed::kWithProducerAttr));
    if (isa<ttg::LocalLoadOp, tt::DotOp>(op)) read(op);
    if (auto wait = dyn_cast<placed::WaitProductsOp>(op)) waitProducts(wait);
    if (isa<placed::FenceAsyncOp>(op))
      for (auto &[ring, fence] : state_.fences) fence = std::max(fence, Fence::Behind);
    if (auto await = dyn_cast<ttg::AwaitOp>(op)) awaitPhase(await, await.getBarriers(), await.getSlot(), await.getParity());
    if (auto arrive = dyn_cast<ttg::ArriveOp>(op)) arriveAt(arrive);
    if (auto end = dyn_cast<ttg::EndBarriersOp>(op)) endBarriers(end);
  }

  /// All threads have come here, and left what is complete; all: a producer's too.
  void waitOfBlock(bool all) {
    for (Reader &reader : state_.readers) reader.met |= reader.complete;
    if (!all) return;
    std::erase_if(state_.readers, [](const Reader &reader) { return reader.complete; });
    for (auto &[ring, fence] : state_.fences)
      if (fence == Fence::Behind) fence = Fence::Seen;
  }

  // ---- slots

  Slot slotOf(Operation *op, Value ring, Value number) {
    const Slot slot{ring, numberOf(number)};
    require(!slot.number || (*slot.number >= 0 && *slot.number < cast<ttg::RingType>(ring.getType()).getSlots()), op,
            "N12: uses a slot that its ring has not");
    return slot;
  }
  static Key keyOf(const Slot &slot) { return {slot.ring, slot.number.value_or(-1)}; }
  bool isBeingCopied(const Slot &slot) const {
    return llvm::any_of(state_.copies, [&](const auto &group) {
      return llvm::any_of(group, [&](const Slot &other) { return slot.meets(other); });
    });
  }
  template <class Which> bool isBeingRead(const Slot &slot, Which which) const {
    return llvm::any_of(state_.readers, [&](const Reader &reader) {
      return which(reader) && llvm::any_of(reader.slots, [&](const Slot &other) { return slot.meets(other); });
    });
  }
  static bool any(const Reader &reader) { return !reader.met; }
  static bool isUnderWay(const Reader &reader) { return !reader.complete; }

  /// What an operation reads of rings: a tile that only products take is read by them.
  ArrayRef<ttg::LocalLoadOp> loadsOf(Operation *op) {
    auto [it, isNew] = loads_.try_emplace(op);
    if (!isNew) return it->second;
    SmallVector<ttg::LocalLoadOp, 2> loads;
    tt::DotOp dot = dyn_cast<tt::DotOp>(op);
    if (dot && readsShared(*placedPlan(dot, chip_, warps_), dot)) {
      for (Value operand : {dot.getA(), dot.getB()})
        if (auto load = operandSource(operand).getDefiningOp<ttg::LocalLoadOp>(); load && !load.getOffsets()) loads.push_back(load);
    } else if (auto load = dyn_cast<ttg::LocalLoadOp>(op); load && !isReadByProductsAlone(load, chip_, warps_)) {
      loads.push_back(load);
    }
    return loads_[op] = std::move(loads);
  }

  void read(Operation *op) {
    const DotTraits *product = traitsOf(op);
    const bool besideThreads = product && product->besideThreads, open = op->hasAttr(placed::kOpenAttr);
    Reader reader{++last_, {}, !open};
    for (ttg::LocalLoadOp load : loadsOf(op)) {
      const Slot slot = slotOf(op, load.getRing(), load.getSlot());
      require(!isBeingCopied(slot), op, "N12: reads a slot before its copy has arrived");
      const int64_t slots = load.getRing().getType().getSlots();
      for (int64_t number = slot.number.value_or(0); number <= slot.number.value_or(slots - 1); ++number) {
        auto fill = state_.fills.find({slot.ring, number});
        require(fill != state_.fills.end(), op, "N12: reads a slot that nothing has been brought into");
        if (fault_) return;
        require(fill->second.awaited, op, "N13: reads a slot before its copy has arrived");
        fill->second.read = true;
      }
      // Threads' own reads of what threads have stored are the matter of placed.waits (N9).
      if (open || isCopiedInto(slot.ring)) reader.slots.push_back(slot);
    }
    if (besideThreads) {
      for (Reader &other : state_.readers) {
        ++other.begunSince;
        // One that is not open waits for itself, and for those before.
        other.complete |= !open;
      }
      sums_[op->getResult(0)] = open ? last_ : 0;
    }
    if (open || !reader.slots.empty()) state_.readers.push_back(std::move(reader));
  }

  void fill(ttg::AsyncCopyOp copy) {
    const Slot slot = slotOf(copy, copy.getRing(), copy.getSlot());
    require(!isBeingRead(slot, any), copy, "N12: fills a slot that some thread may still read");
    require(!isBeingCopied(slot), copy, "N12: fills a slot into which a copy is under way");
    bring(copy, slot, Fill());
    state_.copies.back().push_back(slot);
  }
  /// What is brought is read before the next: else slots have been mixed up.
  void bring(Operation *op, const Slot &slot, const Fill &fill) {
    if (!slot.number) return;
    auto [before, isFirst] = state_.fills.try_emplace(keyOf(slot), fill);
    require(isFirst || before->second.read || !isRead(slot.ring), op, "N12: fills a slot of which nothing has read what it held");
    before->second = fill;
  }
  static bool isRead(Value ring) {
    return llvm::any_of(ring.getUsers(), [](Operation *user) { return isa<ttg::LocalLoadOp>(user) && !user->use_empty(); });
  }
  void fillByThreads(placed::LocalStoreOp store) {
    const Slot slot = slotOf(store, store.getRing(), store.getSlot());
    require(!isCopiedInto(slot.ring), store, "N12: writes into a ring that copies fill");
    require(!isBeingRead(slot, isUnderWay), store, "N12: fills a slot that a product may still read");
    if (slot.number) state_.fills[keyOf(slot)] = Fill();
  }

  void endRing(ttg::LocalDeallocOp end) {
    const Slot all{end.getRing(), std::nullopt};
    require(!isBeingCopied(all), end, "N12: ends a ring into which copies are under way");
    require(isCopiedInto(all.ring) ? !isBeingRead(all, any) : !isBeingRead(all, isUnderWay), end,
            "N12: ends a ring that some thread may still read");
    SmallVector<Key> filled;
    for (const auto &[key, fill] : state_.fills) {
      if (key.first != all.ring) continue;
      require(fill.awaited, end, "N13: ends a ring into which copies are under way");
      filled.push_back(key);
    }
    for (const Key &key : filled) state_.fills.erase(key);
    state_.fences.erase(all.ring);
    for (Reader &reader : state_.readers) llvm::erase_if(reader.slots, [&](const Slot &slot) { return slot.meets(all); });
    std::erase_if(state_.readers, [](const Reader &reader) { return reader.met && reader.slots.empty(); });
  }

  // ---- products

  void waitProducts(placed::WaitProductsOp wait) {
    for (Reader &reader : state_.readers) reader.complete |= reader.begunSince >= int64_t(wait.getPending());
    for (auto [from, to] : llvm::zip(wait.getValues(), wait.getResults())) {
      require(state_.isComplete(sums_.lookup(from)), wait, "N12: gives sums of a product that is still under way");
      sums_[to] = 0;
    }
  }

  // ---- copies by the machine

  Key barrierOf(Operation *op, Value barriers, Value slot) {
    const std::optional<int64_t> number = numberOf(slot);
    require(number && *number >= 0 && *number < cast<ttg::BarriersType>(barriers.getType()).getSlots(), op,
            "N13: uses a barrier that is not known");
    return {barriers, number.value_or(-1)};
  }

  void stepOfOneThread(Operation *op) {
    if (fault_) return;
    if (auto await = dyn_cast<ttg::AwaitOp>(op)) {
      awaitPhase(await, await.getBarriers(), await.getSlot(), await.getParity());
      Barrier &barrier = state_.barriers[barrierOf(op, await.getBarriers(), await.getSlot())];
      // A parity tells a phase from the one before it, and from no other.
      require(!hasProducer_ || barrier.phase <= barrier.known + 1, op, "N13: waits for a phase, and has not for the one before");
      barrier.known = barrier.phase;
    }
    if (auto expect = dyn_cast<ttg::ExpectOp>(op)) {
      Barrier &barrier = state_.barriers[barrierOf(op, expect.getBarriers(), expect.getSlot())];
      require(!barrier.announced, op, "N13: announces bytes twice");
      barrier.announced = true, barrier.expected = expect.getBytes();
    }
    if (auto copy = dyn_cast<ttg::BulkCopyOp>(op)) fillByMachine(copy);
  }
  void fillByMachine(ttg::BulkCopyOp copy) {
    const Slot slot = slotOf(copy, copy.getRing(), copy.getSlot());
    const Key key = barrierOf(copy, copy.getBarriers(), copy.getBarrier());
    require(slot.number.has_value(), copy, "N13: copies into a slot that is not known");
    require(state_.fences.lookup(slot.ring) == Fence::Seen, copy, "N13: copies where threads have written, behind no fence and wait");
    for (Reader &reader : state_.readers) {
      if (llvm::none_of(reader.slots, [&](const Slot &other) { return slot.meets(other); })) continue;
      const bool free = llvm::any_of(reader.left, [&](const auto &left) { return left.second < state_.barriers[left.first].known; });
      require(free, copy, "N13: copies into a slot that a product may still read");
      llvm::erase_if(reader.slots, [&](const Slot &other) { return slot.meets(other); });
    }
    std::erase_if(state_.readers, [](const Reader &reader) { return reader.complete && reader.slots.empty(); });
    if (auto before = state_.fills.find(keyOf(slot)); before != state_.fills.end())
      require(before->second.awaited, copy, "N13: fills a slot into which a copy is under way");
    Barrier &barrier = state_.barriers[key];
    const RankedTensorType box = copy.getDesc().getType().getBlockType();
    barrier.sent += box.getNumElements() * box.getElementTypeBitWidth() / 8;
    bring(copy, slot, Fill{key, barrier.phase, false});
  }
  /// Passes when the phase of this parity has ended: its copies have come then.
  void awaitPhase(Operation *op, Value barriers, Value slot, Value parityValue) {
    const Key key = barrierOf(op, barriers, slot);
    const std::optional<int64_t> parity = numberOf(parityValue);
    require(parity && (*parity == 0 || *parity == 1), op, "N13: waits for a phase that is not known");
    if (fault_) return;
    Barrier &barrier = state_.barriers[key];
    if ((barrier.phase & 1) == *parity) {
      require(barrier.announced && barrier.expected == barrier.sent, op, "N13: waits for what never comes");
      ++barrier.phase;
      barrier.announced = false, barrier.expected = barrier.sent = 0;
    }
    for (auto &[ring, fill] : state_.fills) fill.awaited |= fill.barrier == key && fill.phase < barrier.phase;
  }
  void arriveAt(ttg::ArriveOp arrive) {
    if (arrive.getCondition() && numberOf(arrive.getCondition()) == 0) return;
    const Key key = barrierOf(arrive, arrive.getBarriers(), arrive.getSlot());
    Barrier &barrier = state_.barriers[key];
    for (Reader &reader : state_.readers)
      if (reader.complete) reader.left.push_back({key, barrier.phase});
    ++barrier.phase;
  }
  void endBarriers(ttg::EndBarriersOp end) {
    for (const auto &[ring, fill] : state_.fills)
      require(fill.awaited || fill.barrier->first != end.getBarriers(), end, "N13: ends barriers that copies still count at");
    for (int64_t i = 0; i < end.getBarriers().getType().getSlots(); ++i) state_.barriers.erase({end.getBarriers(), i});
  }

  tt::FuncOp function_;
  const Chip &chip_;
  int warps_;
  bool hasProducer_;
  int64_t turns_ = 0, few_ = 0, most_ = 0; // of loops whose bounds are not known
  std::optional<UnderWayFault> fault_;
  State state_;
  int64_t last_ = 0;                            // reader
  llvm::DenseSet<Operation *> inside_;          // whose regions hold what counts
  llvm::DenseMap<Value, int64_t> assumed_;      // bounds of loops
  llvm::DenseMap<Value, int64_t> numbers_;      // of counters, in this turn
  llvm::DenseMap<Value, int64_t> sums_;         // under way: the number of their product; 0: of none
  llvm::DenseMap<Operation *, SmallVector<ttg::LocalLoadOp, 2>> loads_;
};

} // namespace

std::optional<UnderWayFault> findUnderWayFault(tt::FuncOp function, const Chip &chip, int warps) {
  auto isFollowed = [](Operation *op) { return counts(op) && !isa<tt::DotOp>(op) ? WalkResult::interrupt() : WalkResult::advance(); };
  if (!function.walk(isFollowed).wasInterrupted()) return std::nullopt;
  return Run(function, chip, warps).run();
}

} // namespace neso::nvidia
