// Which products of a pipelined loop are under way while something else happens.
#include <algorithm>

#include "backend/common/opcodes.h"
#include "backend/nvidia/passes/loop_plan.h"
#include "backend/nvidia/passes/producer.h"
#include "backend/nvidia/shared.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;

namespace neso::nvidia {

DotPlan planOf(tt::DotOp dot, const Chip &chip, int warps) {
  RankedTensorType a = cast<RankedTensorType>(dot.getA().getType()), d = cast<RankedTensorType>(dot.getType());
  Sizes shape(d.getShape().begin(), d.getShape().end());
  shape.push_back(a.getShape().back());
  DotPrecision precision =
      dot.getInputPrecision() == tt::InputPrecision::IEEE ? DotPrecision::Ieee : DotPrecision::Tf32;
  DotTypes types{a.getElementType(), cast<RankedTensorType>(dot.getB().getType()).getElementType(), d.getElementType()};
  return planDot(chip, shape, warps, types, precision);
}

int64_t slotBytes(const PipelinedLoad &load) {
  RankedTensorType type = cast<RankedTensorType>(tt::LoadOp(load.load).getType());
  const int64_t elements = load.rows ? load.rows * type.getDimSize(unsigned(load.fast)) : type.getNumElements();
  return elements * type.getElementTypeBitWidth() / 8;
}

namespace {

RankedTensorType tensorOf(Value v) { return cast<RankedTensorType>(v.getType()); }

class ProductPlanner {
public:
  ProductPlanner(LoopPlan &plan, const Chip &chip, int warps, int most)
      : plan_(plan), chip_(chip), warps_(warps), most_(most), body_(plan.loop.getBody()) {
    for (PipelinedLoad &load : plan.loads) bytes_ += slotBytes(load);
    for (tt::DotOp dot : body_->getOps<tt::DotOp>()) dots_.push_back(dot);
  }

  void run(Early early) {
    if (early != Early::None && planEarly(early)) return;
    plan_.ahead = plan_.slots - 1;
    if (dots_.size() != 1) return;
    planOpen(dots_[0]);
    plan_.wholeTiles = plan_.loads.size() == 2 && onlyLoadOf(dots_[0].getA()) && onlyLoadOf(dots_[0].getB()) &&
                       byWarpGroups(dots_[0]).has_value();
    if (plan_.open.empty()) planSteps(dots_[0]);
  }

  /// For a producer: every load is a tile of one product by wgmma.
  bool runFed(const AxisInfoAnalysis *axis, bool always) {
    plan_.early.clear(), plan_.open.clear(), plan_.stepped = {};
    for (PipelinedLoad &load : plan_.loads) load.lead = 0;
    size_t tiles = 0;
    for (tt::DotOp dot : dots_) {
      bool reads = false;
      for (Value operand : {dot.getA(), dot.getB()}) {
        if (!loadOf(operand)) continue;
        if (!onlyLoadOf(operand)) return false;
        reads = true, ++tiles;
      }
      const std::optional<DotPlan> groups = byWarpGroups(dot);
      if (reads && !groups) return false;
      // Two blocks of one group each have 128 registers a thread at first, and the assembler wants the sums of one instruction among them.
      constexpr int64_t kMostColumns = 128;
      if (warps_ == 4 && groups && tensorOf(dot.getD()).getDimSize(1) > kMostColumns) return false;
    }
    int64_t bytesOnce = 0;
    for (tt::DotOp dot : dots_) {
      tt::LoadOp load = dot.getA().getDefiningOp<tt::LoadOp>();
      int fast = 0;
      if (!axis || dots_.size() == 1 || !load || load->getBlock() != plan_.loop->getBlock() || !load->hasOneUse() || tensorOf(load).getRank() != 2 || !isCopyable(load, *axis, fast)) continue;
      plan_.once.push_back({load, fast});
      bytesOnce += slotBytes(plan_.once.back());
    }
    // All that the block's shared memory holds beside what else the kernel wants, up to what is asked for.
    const int fitting = int((chip_.sharedPerBlock - kReserve - bytesOnce) / bytes_);
    plan_.slots = std::min({plan_.slots, fitting, most_});
    if (tiles != plan_.loads.size() || plan_.slots < 2) return false;
    if (dots_.size() == 1) {
      planOpen(dots_[0]);
      // A slot more than where threads of the block begin the copies.
      plan_.ahead = plan_.slots - 1;
    } else {
      plan_.rotated = planRotation(always);
      if (!plan_.rotated) plan_.once.clear();
    }
    return true;
  }

  /// Columns of the right operand that do not count are the last rows of its tile, where that is one panel along K.
  std::vector<int64_t> rowsRead() {
    std::vector<int64_t> rows(plan_.loads.size(), 0);
    if (!plan_.wholeTiles || placeOf(dots_[0].getB(), 0) != GroupOperand::AlongK) return rows;
    const PipelinedLoad &load = *onlyLoadOf(dots_[0].getB());
    RankedTensorType tile = tensorOf(tt::LoadOp(load.load).getResult());
    const int64_t span = tile.getDimSize(unsigned(load.fast)) * tile.getElementTypeBitWidth() / 8, columns = byWarpGroups(dots_[0])->columnsRead();
    if (span <= kPanelSpan && columns < tile.getDimSize(unsigned(1 - load.fast))) rows[size_t(&load - plan_.loads.data())] = columns;
    return rows;
  }

private:
  /// Of a thread, beside sums and operands in registers: addresses, masks and what the arithmetic holds.
  static constexpr int64_t kBesideProducts = 32;

  /// Early products, and open ones which what these lead to is multiplied by.
  bool planRotation(bool always) {
    const std::optional<Producer> producer = producerFor(chip_, warps_);
    if (!producer) return false;
    const int64_t kMostRegisters = producer->registersOfBlock - kBesideProducts;
    // Four warps that hold fewer stand in four blocks on a multiprocessor, with a producer in two: attention in 64 x 64 of heads of 64 lost
    // up to 17 % on an H100, of heads of 128 it won 10 to 30 %.
    const int64_t kFewestRegisters = warps_ == 4 && !always ? 96 : 0;
    for (tt::DotOp dot : dots_)
      if (canRunAhead(dot)) plan_.early.insert(dot);
    for (tt::DotOp dot : dots_)
      if (!plan_.early.contains(dot))
        if (std::optional<OpenProduct> open = asOpen(dot)) plan_.open.push_back(std::move(*open));
    int64_t words = 0;
    for (tt::DotOp dot : dots_) {
      const std::optional<DotPlan> groups = byWarpGroups(dot);
      if (!groups) continue;
      words += groups->accumulator.inSize(kRegister);
      if (!loadOf(dot.getA()) && !groups->operandA.ins().empty() && !isOutside(dot.getA()))
        words += groups->operandA.inSize(kRegister) * tensorOf(dot.getA()).getElementTypeBitWidth() / 32;
    }
    if (!plan_.early.empty() && !plan_.open.empty() && plan_.early.size() + plan_.open.size() == dots_.size() && words <= kMostRegisters && words >= kFewestRegisters)
      return true;
    plan_.early.clear(), plan_.open.clear();
    return false;
  }

  // ---- operands

  /// The load of a ring's tile that an operand is, transposed or not; null for any other.
  PipelinedLoad *loadOf(Value v) {
    if (tt::TransOp turned = v.getDefiningOp<tt::TransOp>()) v = turned.getSrc();
    tt::LoadOp load = v.getDefiningOp<tt::LoadOp>();
    for (PipelinedLoad &l : plan_.loads)
      if (load && l.load == load) return &l;
    return nullptr;
  }
  /// The same of what is nothing else.
  PipelinedLoad *onlyLoadOf(Value v) {
    if (!v.hasOneUse()) return nullptr;
    if (tt::TransOp turned = v.getDefiningOp<tt::TransOp>(); turned && !turned.getSrc().hasOneUse()) return nullptr;
    return loadOf(v);
  }
  const PipelinedLoad *onceOf(Value v) const {
    for (const PipelinedLoad &l : plan_.once)
      if (v.getDefiningOp() == l.load) return &l;
    return nullptr;
  }
  bool isOutside(Value v) const { return !plan_.loop->isAncestor(v.getParentRegion()->getParentOp()); }

  /// Where the product finds an operand with K as dim `k`, if it is one by wgmma.
  GroupOperand placeOf(Value operand, int k) {
    PipelinedLoad *load = loadOf(operand);
    const PipelinedLoad *once = load ? nullptr : onceOf(operand);
    if (!load && !once) return GroupOperand::Registers;
    const bool turned = bool(operand.getDefiningOp<tt::TransOp>());
    if (!load) return (once->fast == k) ? GroupOperand::AlongK : GroupOperand::AcrossK;
    return (turned ? 1 - load->fast : load->fast) == k ? GroupOperand::AlongK : GroupOperand::AcrossK;
  }
  /// The plan by wgmma, which reads whole tiles where they lie.
  std::optional<DotPlan> byWarpGroups(tt::DotOp dot) {
    return planWarpGroups(dot, chip_, warps_, placeOf(dot.getA(), 1), placeOf(dot.getB(), 0));
  }
  /// Whether the product may be under way while something else happens, its sums being those of the next turn's product alone.
  bool mayStayOpen(tt::DotOp dot) {
    const std::optional<DotPlan> groups = byWarpGroups(dot);
    return groups && groups->leavesSums();
  }
  /// Whether threads may compute with the sums of one turn while the next one's product is under way.
  bool leavesSums(tt::DotOp dot) { return mayStayOpen(dot) && !byWarpGroups(dot)->traits().keepsSums; }

  /// The number of the iteration argument that the product's sums become, and nothing else.
  std::optional<unsigned> carriedAs(tt::DotOp dot) {
    if (!dot->hasOneUse() || *dot->user_begin() != body_->getTerminator()) return std::nullopt;
    return dot->use_begin()->getOperandNumber();
  }

  // ---- one product

  /// Leaves the loop's only product under way over the end of a turn where its operands are read out of rings alone and
  /// its sums are used by the next turn's product alone: tensor cores have work then while the block waits for copies.
  /// It costs a slot; the ring takes as many as leave other blocks their room, and where that are few products are
  /// waited for.
  void planOpen(tt::DotOp dot) {
    const std::optional<unsigned> number = carriedAs(dot);
    if (!number || dot.getC() != plan_.loop.getRegionIterArg(*number) || !dot.getC().hasOneUse()) return;
    if (!onlyLoadOf(dot.getA()) || !onlyLoadOf(dot.getB()) || !mayStayOpen(dot)) return;
    // What a block may have without taking another one's place on the multiprocessor. Beside its sums a thread wants
    // about as many registers; On an H200 products of 4096 in blocks
    // of 128 x 256 x 32 came to 571 TFLOP/s with 4 slots and to 743 with 6; in blocks of 128 x 128 x 64 to 542 with 3
    // slots, one of which an open product keeps, and to 671 where products are waited for.
    constexpr int64_t kOtherRegisters = 48;
    // Sums that are in no register would be moved in each turn else.
    constexpr int kEnoughSlots = 6;
    const int fewest = byWarpGroups(dot)->traits().keepsSums ? 3 : 4;
    const int64_t blocks = std::min(chip_.sharedPerSm / (plan_.slots * bytes_ + kSharedOfSystem),
                                    chip_.registersPerSm /
                                        (tensorOf(dot.getD()).getNumElements() + kOtherRegisters * 32 * warps_));
    const int64_t room =
        std::min<int64_t>(chip_.sharedPerBlock, chip_.sharedPerSm / std::max<int64_t>(blocks, 1) - kSharedOfSystem);
    const int fitting = std::min(kEnoughSlots, int((room - kReserve) / bytes_));
    plan_.slots = std::min(std::max(plan_.slots, fitting), most_);
    plan_.ahead = plan_.slots - 1;
    if (plan_.slots < fewest) return;
    plan_.ahead = plan_.slots - 2;
    plan_.open.push_back({dot, *number, {}, {}});
  }

  /// Reads a step ahead where the loop's loads are the two operands of one product, and where the registers hold both
  /// steps beside the sums.
  void planSteps(tt::DotOp dot) {
    // Of 255; the rest is for slots, masks and what the loop does besides. With more, kernels spilled.
    constexpr int64_t kMostRegisters = 220;
    if (plan_.loads.size() != 2 || !onlyLoadOf(dot.getA()) || !onlyLoadOf(dot.getB())) return;
    const DotPlan product = planOf(dot, chip_, warps_);
    RankedTensorType a = tensorOf(dot.getA());
    if (product.types.a != a.getElementType() || a.getRank() != 2 || byWarpGroups(dot)) return;
    const int64_t bits = a.getElementTypeBitWidth(), k = 256 / bits;
    // Parts are carried in words of 32 bits.
    if (bits > 32) return;
    const int64_t words = (product.operandA.inSize(kRegister) + product.operandB.inSize(kRegister)) * bits / 32;
    // An address of 64 bits for each copy of 16 bytes.
    int64_t addresses = 0;
    for (const PipelinedLoad &load : plan_.loads) addresses += 2 * slotBytes(load) / (16 * 32 * warps_);
    const int64_t registers = product.accumulator.inSize(kRegister) + 2 * words * k / a.getDimSize(1) + addresses;
    if (a.getDimSize(1) < 2 * k || registers > kMostRegisters) return;
    plan_.stepped = dot;
    plan_.stepK = k;
  }

  // ---- several products

  /// A product of what is known a turn before.
  bool canRunAhead(tt::DotOp dot) {
    return (loadOf(dot.getA()) || isOutside(dot.getA())) && loadOf(dot.getB()) && isOutside(dot.getC()) &&
           leavesSums(dot) && !carriedAs(dot);
  }

  /// What `number` becomes the sums that the product begins with, if it is nothing else: operations on elements.
  bool findLate(OpenProduct &open) {
    llvm::SmallVector<Value, 8> todo{plan_.loop.getRegionIterArg(open.number)};
    while (!todo.empty()) {
      for (OpOperand &use : todo.pop_back_val().getUses()) {
        Operation *op = use.getOwner();
        if (op == open.dot && use.getOperandNumber() == 2) continue;
        if (op->getBlock() != body_ || classOf(codeOf(op)) != OpClass::Element || !isMemoryEffectFree(op) ||
            op->getNumRegions() || !op->isBeforeInBlock(open.dot))
          return false;
        if (open.late.insert(op)) todo.append(op->result_begin(), op->result_end());
      }
    }
    return true;
  }
  /// What the left operand is converted from: where it is kept from until the last product has read its own. False
  /// when that is not to be had.
  bool findTied(OpenProduct &open) {
    Value a = open.dot.getA();
    if (loadOf(a)) return true;
    Operation *op = a.getDefiningOp();
    if (!op || op->getBlock() != body_ || !a.hasOneUse() || classOf(codeOf(op)) != OpClass::Element ||
        op->getNumOperands() != 1 || !isMemoryEffectFree(op) || op->getNumRegions())
      return false;
    RankedTensorType from = dyn_cast<RankedTensorType>(op->getOperand(0).getType());
    if (!from || !from.getElementType().isIntOrFloat() || from.getElementTypeBitWidth() != 32) return false;
    open.tied = op->getOperand(0);
    open.late.insert(op);
    return true;
  }
  std::optional<OpenProduct> asOpen(tt::DotOp dot) {
    OpenProduct open;
    open.dot = dot;
    const std::optional<unsigned> number = carriedAs(dot);
    if (!number || !loadOf(dot.getB()) || !leavesSums(dot)) return std::nullopt;
    open.number = *number;
    if (!findLate(open) || !findTied(open)) return std::nullopt;
    // In the order of the loop.
    SmallVector<Operation *> sorted = open.late.takeVector();
    llvm::sort(sorted, [](Operation *x, Operation *y) { return x->isBeforeInBlock(y); });
    open.late.insert(sorted.begin(), sorted.end());
    return open;
  }

  /// Of a thread: sums of products, left operands. `twice`: those that run ahead have sums for this turn and the next.
  int64_t registersOfProducts(bool twice) {
    int64_t words = 0;
    for (tt::DotOp dot : dots_) {
      const bool early = twice && plan_.early.contains(dot);
      const std::optional<DotPlan> groups = byWarpGroups(dot);
      const DotPlan product = groups ? *groups : planOf(dot, chip_, warps_);
      words += product.accumulator.inSize(kRegister) * (early ? 2 : 1);
      if (!loadOf(dot.getA()) && !product.operandA.ins().empty())
        words += product.operandA.inSize(kRegister) * tensorOf(dot.getA()).getElementTypeBitWidth() / 32;
    }
    return words;
  }

  /// How many slots a ring needs beside those of the turns that its copies run ahead: one to read from, one while the
  /// product of the turn before is under way, one more where two turns' tiles are read at once.
  int slotsBeside(const PipelinedLoad &load) {
    bool underWay = false, isLate = false;
    auto reads = [&](Operation *user) {
      if (plan_.early.contains(user)) return;
      isLate = true;
      underWay |= llvm::any_of(plan_.open, [&](const OpenProduct &open) { return open.dot == user; });
    };
    for (Operation *user : load.load->getUsers()) {
      if (isa<tt::TransOp>(user))
        for (Operation *behind : user->getUsers()) reads(behind);
      else
        reads(user);
    }
    return 1 + (underWay ? 1 : 0) + (load.lead && isLate ? 1 : 0);
  }

  /// Products of what is known a turn before (Q K of attention) are begun a turn ahead, so that the tensor cores
  /// multiply while the block computes on what they gave for this turn; those behind it (P V) are under way until the
  /// next turn uses their sums.
  bool planEarly(Early which) {
    // Beside these there are addresses, masks and what the arithmetic holds. Kernels that spill are compiled again
    // without.
    constexpr int64_t kMostRegisters = 208;
    for (tt::DotOp dot : dots_)
      if (canRunAhead(dot)) plan_.early.insert(dot);
    const bool any = !plan_.early.empty() && plan_.early.size() < dots_.size();
    for (tt::DotOp dot : dots_)
      if (any && !plan_.early.contains(dot))
        if (std::optional<OpenProduct> open = asOpen(dot)) plan_.open.push_back(std::move(*open));
    int beside = 1;
    for (PipelinedLoad &load : plan_.loads) {
      auto isEarly = [&](Operation *user) { return plan_.early.contains(user); };
      load.lead = llvm::any_of(load.load->getUsers(), [&](Operation *user) {
        return isEarly(user) || (isa<tt::TransOp>(user) && llvm::any_of(user->getUsers(), isEarly));
      });
      beside = std::max(beside, slotsBeside(load));
    }
    const int slots = std::max(plan_.slots, beside + 1);
    // Where two blocks stand on a multiprocessor, one computes while another multiplies: running ahead cost blocks of four warps 3 to 4 % (attention in
    // 64 x 64 on an H200), blocks of eight 14 % for heads of 64 (128 x 64 on an H100), and won 0 to 4 % for heads of 128.
    // Two that run ahead of a third (attention's gradient of Q in 128 x 64 of heads of 64) cost 16 %.
    const bool alone = registersOfProducts(false) + kBesideProducts > chip_.registersOfThread(32 * warps_, 2);
    const bool pays = which == Early::All || (alone && plan_.early.size() == 1);
    if (any && pays && slots <= most_ && slots * bytes_ <= chip_.sharedPerBlock - kReserve &&
        registersOfProducts(true) <= kMostRegisters) {
      plan_.slots = slots;
      plan_.ahead = slots - beside;
      return true;
    }
    plan_.early.clear();
    plan_.open.clear();
    for (PipelinedLoad &load : plan_.loads) load.lead = 0;
    return false;
  }

  LoopPlan &plan_;
  const Chip &chip_;
  int warps_, most_;
  Block *body_;
  int64_t bytes_ = 0; // of one slot of all rings
  SmallVector<tt::DotOp, 4> dots_;
};

} // namespace

bool planFeeds(LoopPlan &plan, const Chip &chip, int warps, int most, const AxisInfoAnalysis *axis, bool always) {
  return ProductPlanner(plan, chip, warps, most).runFed(axis, always);
}

std::vector<int64_t> rowsRead(LoopPlan &plan, const Chip &chip, int warps) { return ProductPlanner(plan, chip, warps, plan.slots).rowsRead(); }

void planProducts(LoopPlan &plan, const Chip &chip, int warps, int most, Early early) {
  ProductPlanner(plan, chip, warps, most).run(early);
}

} // namespace neso::nvidia
