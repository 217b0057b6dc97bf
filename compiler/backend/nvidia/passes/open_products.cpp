#include "backend/nvidia/passes/open_products.h"

#include <deque>

#include "backend/nvidia/dot.h"
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
};

class Run {
public:
  explicit Run(scf::ForOp loop) : loop_(loop) {}

  std::optional<OpenProductsFault> run() {
    for (Operation &op : *loop_->getBlock()) {
      if (&op == loop_) break;
      step(&op);
    }
    int64_t turns = 2;
    for (Operation &op : *loop_.getBody())
      if (auto load = dyn_cast<ttg::LocalLoadOp>(op)) turns = std::max(turns, 2 * load.getRing().getType().getSlots() + 2);
    std::vector<std::optional<int64_t>> numbers;
    std::vector<int64_t> sums;
    for (Value v : loop_.getInitArgs()) numbers.push_back(numberOf(v)), sums.push_back(0);
    for (int64_t turn = 0; turn < turns && !fault_; ++turn) {
      for (auto [i, argument] : llvm::enumerate(loop_.getRegionIterArgs())) {
        numbers_[argument] = numbers[i];
        products_[argument] = sums[i];
      }
      turn_ = turn;
      for (Operation &op : loop_.getBody()->without_terminator()) step(&op);
      for (auto [i, v] : llvm::enumerate(loop_.getBody()->getTerminator()->getOperands()))
        numbers[i] = numberOf(v), sums[i] = products_.lookup(v);
    }
    return fault_;
  }

private:
  struct Product {
    int64_t number; // in the order in which they are begun, from 1
    SmallVector<Slot, 2> reads;
    /// Phases of barriers in which the warps have said that they have left it.
    SmallVector<std::pair<std::pair<Value, int64_t>, int64_t>, 1> left = {};
  };
  /// A slot's barrier, as it is when all warps have come as far as this.
  struct Barrier {
    int64_t phase = 0;             // that have ended
    int64_t expected = 0, sent = 0; // bytes, of the phase at hand
    int64_t known = 0;             // phases that the thread which copies has seen to end
    bool announced = false;
  };
  /// What the machine has copied into a slot last.
  struct Fill {
    std::pair<Value, int64_t> barrier;
    int64_t phase = 0;
    bool awaited = false;
  };

  void require(bool holds, Operation *op, const char *rule) {
    if (!holds && !fault_) fault_ = OpenProductsFault{op, rule};
  }

  /// Of a counter: what it is in this turn.
  std::optional<int64_t> numberOf(Value v) {
    if (auto it = numbers_.find(v); it != numbers_.end()) return it->second;
    APInt constant;
    if (matchPattern(v, m_ConstantInt(&constant))) return constant.getSExtValue();
    return std::nullopt;
  }
  void count(Operation *op) {
    if (op->getNumResults() != 1 || !op->getResult(0).getType().isIntOrIndex()) return;
    std::optional<int64_t> &result = numbers_[op->getResult(0)];
    result = std::nullopt;
    if (APInt constant; matchPattern(op->getResult(0), m_ConstantInt(&constant))) result = constant.getSExtValue();
    SmallVector<std::optional<int64_t>, 3> in;
    for (Value operand : op->getOperands()) in.push_back(numberOf(operand));
    if (isa<arith::AddIOp>(op) && in[0] && in[1]) result = *in[0] + *in[1];
    if (auto compare = dyn_cast<arith::CmpIOp>(op); compare && in[0] && in[1])
      if (compare.getPredicate() == arith::CmpIPredicate::eq) result = *in[0] == *in[1];
    if (isa<arith::SelectOp>(op) && in[0]) result = *in[0] ? in[1] : in[2];
    if (isa<arith::XOrIOp>(op) && in[0] && in[1]) result = *in[0] ^ *in[1];
    // Whether this is not the first turn.
    if (auto compare = dyn_cast<arith::CmpIOp>(op); compare && compare.getPredicate() == arith::CmpIPredicate::ne)
      if (compare.getLhs() == loop_.getInductionVar() && compare.getRhs() == loop_.getLowerBound()) result = turn_ != 0;
  }

  void step(Operation *op) {
    count(op);
    if (tt::DotOp dot = dyn_cast<tt::DotOp>(op)) return multiply(dot);
    if (auto wait = dyn_cast<placed::WaitProductsOp>(op)) return waitProducts(wait);
    if (auto copy = dyn_cast<ttg::AsyncCopyOp>(op)) return fill(copy);
    if (auto one = dyn_cast<ttg::ByOneThreadOp>(op))
      for (Operation &inside : one.getBody().front()) stepOfOneThread(&inside);
    if (auto await = dyn_cast<ttg::AwaitOp>(op)) awaitPhase(await, await.getBarriers(), await.getSlot(), await.getParity());
    if (auto arrive = dyn_cast<ttg::ArriveOp>(op)) arriveAt(arrive);
    if (isa<ttg::AsyncCommitOp>(op)) copies_.emplace_back();
    if (auto wait = dyn_cast<ttg::AsyncWaitOp>(op)) {
      while (copies_.size() > size_t(wait.getPending()) + 1) copies_.pop_front();
      begun_.clear();
      completeForAll_ = complete_;
      std::erase_if(reading_, [&](const Product &p) { return p.number <= completeForAll_; });
    }
  }

  void multiply(tt::DotOp dot) {
    if (!isa_and_present<placed::WgmmaAttr>(dot->getAttr(placed::kProductAttr))) return;
    Product product{++last_, {}};
    for (Value operand : {dot.getA(), dot.getB()}) {
      auto load = operandSource(operand).getDefiningOp<ttg::LocalLoadOp>();
      if (!load || load.getOffsets() || !isCopiedInto(load.getRing())) continue;
      const Slot slot{load.getRing(), numberOf(load.getSlot())};
      for (const Slot &other : begun_)
        require(!slot.meets(other), dot, "N12: reads a slot that a copy fills meanwhile");
      for (const auto &group : copies_)
        for (const Slot &other : group) require(!slot.meets(other), dot, "N12: reads a slot before its copy has arrived");
      if (auto fill = fills_.find(keyOf(slot)); fill != fills_.end())
        require(fill->second.awaited, dot, "N13: reads a slot before its copy has arrived");
      product.reads.push_back(slot);
    }
    reading_.push_back(std::move(product));
    products_[dot.getD()] = dot->hasAttr(placed::kOpenAttr) ? last_ : 0;
    if (!dot->hasAttr(placed::kOpenAttr)) complete_ = last_;
  }

  void waitProducts(placed::WaitProductsOp wait) {
    complete_ = std::max(complete_, last_ - int64_t(wait.getPending()));
    for (auto [from, to] : llvm::zip(wait.getValues(), wait.getResults())) {
      require(products_.lookup(from) <= complete_, wait, "N12: gives sums of a product that is still under way");
      products_[to] = 0;
    }
  }

  void fill(ttg::AsyncCopyOp copy) {
    const Slot slot{copy.getRing(), numberOf(copy.getSlot())};
    for (const Product &product : reading_)
      for (const Slot &other : product.reads)
        require(!slot.meets(other), copy, "N12: fills a slot that a product may still read");
    begun_.push_back(slot);
    if (copies_.empty()) copies_.emplace_back();
    copies_.back().push_back(slot);
  }

  // ---- copies by the machine

  using Key = std::pair<Value, int64_t>; // a ring's or barriers' slot; -1: not known which
  static Key keyOf(const Slot &slot) { return {slot.ring, slot.number.value_or(-1)}; }
  Key keyOf(Value barriers, Value slot) { return {barriers, numberOf(slot).value_or(-1)}; }

  void stepOfOneThread(Operation *op) {
    if (auto await = dyn_cast<ttg::AwaitOp>(op)) {
      awaitPhase(await, await.getBarriers(), await.getSlot(), await.getParity());
      Barrier &barrier = barriers_[keyOf(await.getBarriers(), await.getSlot())];
      barrier.known = barrier.phase;
    }
    if (auto expect = dyn_cast<ttg::ExpectOp>(op)) {
      Barrier &barrier = barriers_[keyOf(expect.getBarriers(), expect.getSlot())];
      require(!barrier.announced, op, "N13: announces bytes twice");
      barrier.announced = true, barrier.expected = expect.getBytes();
    }
    if (auto copy = dyn_cast<ttg::BulkCopyOp>(op)) fillByMachine(copy);
  }
  void fillByMachine(ttg::BulkCopyOp copy) {
    const Slot slot{copy.getRing(), numberOf(copy.getSlot())};
    std::erase_if(reading_, [&](const Product &product) {
      if (llvm::none_of(product.reads, [&](const Slot &other) { return slot.meets(other); })) return false;
      const bool free = llvm::any_of(product.left, [&](const auto &left) { return left.second < barriers_[left.first].known; });
      require(free, copy, "N13: copies into a slot that a product may still read");
      // Its other operand may be in another ring.
      return free && llvm::all_of(product.reads, [&](const Slot &other) { return slot.meets(other); });
    });
    const Key key = keyOf(copy.getBarriers(), copy.getBarrier());
    require(slot.number && key.second >= 0, copy, "N13: copies into a slot that is not known");
    Barrier &barrier = barriers_[key];
    RankedTensorType tile = copy.getRing().getType().getTileType();
    barrier.sent += tile.getNumElements() * tile.getElementTypeBitWidth() / 8;
    fills_[keyOf(slot)] = {key, barrier.phase, false};
  }
  /// Passes when the phase of this parity has ended: its copies have come then.
  void awaitPhase(Operation *op, Value barriers, Value slot, Value parityValue) {
    const Key key = keyOf(barriers, slot);
    const std::optional<int64_t> parity = numberOf(parityValue);
    require(key.second >= 0 && parity, op, "N13: waits for a phase that is not known");
    if (fault_) return;
    Barrier &barrier = barriers_[key];
    if ((barrier.phase & 1) == *parity) {
      require(barrier.announced && barrier.expected == barrier.sent, op, "N13: waits for what never comes");
      ++barrier.phase;
      barrier.announced = false, barrier.expected = barrier.sent = 0;
    }
    for (auto &[ring, fill] : fills_) fill.awaited |= fill.barrier == key && fill.phase < barrier.phase;
  }
  void arriveAt(ttg::ArriveOp arrive) {
    if (arrive.getCondition() && numberOf(arrive.getCondition()) == 0) return;
    const Key key = keyOf(arrive.getBarriers(), arrive.getSlot());
    require(key.second >= 0, arrive, "N13: arrives at a barrier that is not known");
    Barrier &barrier = barriers_[key];
    for (Product &product : reading_)
      if (product.number <= complete_) product.left.push_back({key, barrier.phase});
    ++barrier.phase;
  }

  scf::ForOp loop_;
  std::optional<OpenProductsFault> fault_;
  int64_t turn_ = 0;
  llvm::DenseMap<Key, Barrier> barriers_;
  llvm::DenseMap<Key, Fill> fills_; // of a ring's slot
  llvm::DenseMap<Value, std::optional<int64_t>> numbers_;
  llvm::DenseMap<Value, int64_t> products_; // of sums under way: whose; 0: of none
  std::vector<Product> reading_;      // that some thread may still be at
  std::deque<SmallVector<Slot, 4>> copies_; // by group, the open one last
  std::vector<Slot> begun_;                 // copies since the last wait of the block
  int64_t last_ = 0, complete_ = 0, completeForAll_ = 0;
};

} // namespace

std::optional<OpenProductsFault> runOpenProducts(scf::ForOp loop) { return Run(loop).run(); }

} // namespace neso::nvidia
