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
  }

  void step(Operation *op) {
    count(op);
    if (tt::DotOp dot = dyn_cast<tt::DotOp>(op)) return multiply(dot);
    if (auto wait = dyn_cast<placed::WaitProductsOp>(op)) return waitProducts(wait);
    if (auto copy = dyn_cast<ttg::AsyncCopyOp>(op)) return fill(copy);
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

  scf::ForOp loop_;
  std::optional<OpenProductsFault> fault_;
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
