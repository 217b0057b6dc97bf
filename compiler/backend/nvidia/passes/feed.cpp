// Loops that a producer feeds (producer.h): of each product by wgmma the tiles that it reads come by themselves, each into a slot of which
// the warps say that they have left it. Three ways, by what products follow one another:
//
//     one product, whose sums its next turn alone uses: under way over the end of the turn
//         for i { await full[s]; d = dot ring[s] … open; wait_products 1; arrive empty[s-1] if i > 0;  producer: fill s-1 }
//     a product whose sums lead to another one's left operand (Q K and P V of attention): one turn's product of the first kind runs beside the
//     product of the second kind of the turn before, which goes on while what lies between them is computed
//         s = dot q, k[0]; p = f(s)
//         for i from 1 { s' = dot q, k[i] open; o' = dot p, v[i-1], o open; s = wait_products s' 1; arrive; p' = f(s)
//                        o, p = wait_products o', p' 0; arrive; … }
//         o = dot p, v[n-1], o
//     others: each product waits for itself
#include "backend/common/opcodes.h"
#include "backend/nvidia/passes/loop_plan.h"
#include "backend/nvidia/passes/producer.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;

namespace neso::nvidia {

namespace {

/// A tile that is copied once.
struct Once {
  PipelinedLoad *load;
  Value full;
};

/// The tiles of one product.
struct Feed {
  tt::DotOp dot;
  SmallVector<PipelinedLoad *, 2> loads;
  SmallVector<DescribedBox, 2> boxes; // with the indices of the turn that is copied next
  Value full, empty, slot, parity;    // of the turn at hand
};

class FeedRewriter {
public:
  FeedRewriter(LoopPlan &plan, int warps)
      : plan_(plan), warps_(warps), loop_(plan.loop), b_(plan.loop), loc_(plan.loop.getLoc()), live_(plan) {}

  void run() {
    std::erase_if(plan_.open, [&](OpenProduct &open) { return !live_.ops.contains(open.dot); });
    begin();
    SmallVector<Value> results = plan_.rotated ? rotate() : straight();
    end();
    for (auto [number, result] : llvm::zip(live_.arguments, results)) loop_.getResult(number).replaceAllUsesWith(result);
    loop_.erase();
    for (PipelinedLoad &load : plan_.once)
      if (load.load.use_empty()) load.load.erase();
  }

private:
  Value constant(int value) { return arith::ConstantOp::create(b_, loc_, b_.getI32IntegerAttr(value)); }
  /// The induction variable so many turns after `iv`.
  Value later(Value iv, int turns) {
    if (!turns) return iv;
    Value distance = arith::ConstantOp::create(b_, loc_, b_.getIntegerAttr(loop_.getStep().getType(), turns));
    return arith::AddIOp::create(b_, loc_, iv, arith::MulIOp::create(b_, loc_, loop_.getStep(), distance));
  }
  Value isTurn(Value iv) { return arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::slt, iv, loop_.getUpperBound()); }
  PipelinedLoad *loadOf(Value operand) {
    tt::TransOp turned = operand.getDefiningOp<tt::TransOp>();
    Operation *op = (turned ? turned.getSrc() : operand).getDefiningOp();
    for (PipelinedLoad &load : plan_.loads)
      if (load.load == op) return &load;
    return nullptr;
  }

  // ---- rings, barriers, copies

  void begin() {
    for (PipelinedLoad &load : plan_.loads) load.ring = ringFor(load, plan_.slots, b_, loc_);
    for (tt::DotOp dot : loop_.getBody()->getOps<tt::DotOp>()) {
      Feed feed;
      feed.dot = dot;
      for (Value operand : {dot.getA(), dot.getB()})
        if (PipelinedLoad *load = loadOf(operand)) feed.loads.push_back(load);
      if (!feed.loads.empty() && live_.ops.contains(dot)) feeds_.push_back(std::move(feed));
    }
    OpBuilder entry = entryOf(loop_);
    for (Feed &feed : feeds_)
      for (PipelinedLoad *load : feed.loads)
        feed.boxes.push_back(describeBox(entry, b_, *load, plan_.boxes[size_t(load - plan_.loads.data())]));
    SmallVector<DescribedBox, 1> boxesOnce;
    for (auto [load, box] : llvm::zip(plan_.once, plan_.boxesOnce)) {
      load.ring = ringFor(load, 1, b_, loc_);
      boxesOnce.push_back(describeBox(entry, b_, load, box));
      once_.push_back({&load, {}});
    }
    // What threads have written there before does not come behind the machine's copies.
    placed::FenceAsyncOp::create(b_, loc_);
    Type type = ttg::BarriersType::get(b_.getContext(), plan_.slots);
    for (Feed &feed : feeds_) {
      feed.full = ttg::BarriersOp::create(b_, loc_, type, 1u);
      feed.empty = ttg::BarriersOp::create(b_, loc_, type, uint32_t(warps_));
    }
    for (Once &once : once_) once.full = ttg::BarriersOp::create(b_, loc_, ttg::BarriersType::get(b_.getContext(), 1), 1u);
    ttg::BarrierOp::create(b_, loc_, "local")->setAttr(placed::kWithProducerAttr, b_.getUnitAttr());
    for (auto [once, box] : llvm::zip(once_, boxesOnce)) {
      Value any = isTurn(loop_.getLowerBound()), slot = constant(0);
      OpBuilder b = byProducer(any);
      ttg::ExpectOp::create(b, loc_, once.full, slot, uint32_t(slotBytes(*once.load)));
      ttg::BulkCopyOp::create(b, once.load->load.getLoc(), box.descriptor, box.indices, once.load->ring, slot, once.full, slot);
    }
    for (int turn = 0; turn < plan_.slots; ++turn)
      for (Feed &feed : feeds_) copy(feed, isTurn(later(loop_.getLowerBound(), turn)), constant(turn), {});
    for (Feed &feed : feeds_) feed.slot = constant(0), feed.parity = constant(0);
  }
  void end() {
    ttg::BarrierOp::create(b_, loc_, "local");
    for (Feed &feed : feeds_) {
      ttg::EndBarriersOp::create(b_, loc_, feed.full);
      ttg::EndBarriersOp::create(b_, loc_, feed.empty);
    }
    for (Once &once : once_) ttg::EndBarriersOp::create(b_, loc_, once.full);
    for (PipelinedLoad &load : plan_.loads) ttg::LocalDeallocOp::create(b_, loc_, load.ring);
    for (PipelinedLoad &load : plan_.once) ttg::LocalDeallocOp::create(b_, loc_, load.ring);
  }
  OpBuilder byProducer(Value condition) {
    ttg::ByOneThreadOp one = ttg::ByOneThreadOp::create(b_, loc_, condition);
    one->setAttr(placed::kByProducerAttr, b_.getUnitAttr());
    return OpBuilder::atBlockBegin(&one.getBody().emplaceBlock());
  }
  /// The copies of the next turn that has none. parity: of the phase in which the slot's readers leave it, absent where there were none.
  void copy(Feed &feed, Value inside, Value slot, Value parity) {
    OpBuilder b = byProducer(inside);
    if (parity) ttg::AwaitOp::create(b, loc_, feed.empty, slot, parity);
    int64_t bytes = 0;
    for (PipelinedLoad *load : feed.loads) bytes += slotBytes(*load);
    ttg::ExpectOp::create(b, loc_, feed.full, slot, uint32_t(bytes));
    for (auto [load, box] : llvm::zip(feed.loads, feed.boxes))
      ttg::BulkCopyOp::create(b, load->load.getLoc(), box.descriptor, box.indices, load->ring, slot, feed.full, slot);
    for (DescribedBox &box : feed.boxes)
      for (auto [index, step] : llvm::zip(box.indices, box.steps)) index = arith::AddIOp::create(b_, loc_, index, step);
  }
  /// The slot of the turn with induction variable `iv` is left, and takes the tiles of the turn that comes to it next.
  void leave(Feed &feed, Value iv) {
    ttg::ArriveOp::create(b_, loc_, feed.empty, feed.slot, Value());
    copy(feed, isTurn(later(iv, plan_.slots)), feed.slot, feed.parity);
    advance(feed);
  }
  void advance(Feed &feed) {
    Value isLast = arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::eq, feed.slot, constant(plan_.slots - 1));
    Value next = arith::AddIOp::create(b_, loc_, feed.slot, constant(1));
    feed.parity = arith::SelectOp::create(b_, loc_, isLast, arith::XOrIOp::create(b_, loc_, feed.parity, constant(1)), feed.parity);
    feed.slot = arith::SelectOp::create(b_, loc_, isLast, constant(0), next);
  }

  // ---- products

  Feed *feedOf(Operation *op) {
    for (Feed &feed : feeds_)
      if (feed.dot == op) return &feed;
    return nullptr;
  }
  void await(Feed &feed) { ttg::AwaitOp::create(b_, loc_, feed.full, feed.slot, feed.parity); }
  /// The product of the turn at hand, once its tiles are there; awaited: they are.
  Operation *multiply(Feed &feed, IRMapping &map, bool awaited = false) {
    if (!awaited) await(feed);
    for (Value operand : {feed.dot.getA(), feed.dot.getB()}) {
      for (Once &once : once_)
        if (operand.getDefiningOp() == once.load->load)
          map.map(operand, ttg::LocalLoadOp::create(b_, loc_, operand.getType(), once.load->ring, constant(0), DenseI32ArrayAttr()).getResult());
      PipelinedLoad *load = loadOf(operand);
      if (!load) continue;
      Value tile = ttg::LocalLoadOp::create(b_, load->load.getLoc(), load->load.getType(), load->ring, feed.slot, DenseI32ArrayAttr()).getResult();
      if (tt::TransOp turned = operand.getDefiningOp<tt::TransOp>())
        tile = tt::TransOp::create(b_, turned.getLoc(), tile, turned.getOrder());
      map.map(operand, tile);
    }
    return b_.clone(*feed.dot, map);
  }
  bool isTile(Operation *op) {
    return op->getNumResults() == 1 && isa<RankedTensorType>(op->getResult(0).getType()) && loadOf(op->getResult(0));
  }

  // ---- what the loop carries beside its own values

  void addState(SmallVectorImpl<Value> &values) {
    for (Feed &feed : feeds_) {
      values.push_back(feed.slot), values.push_back(feed.parity);
      for (DescribedBox &box : feed.boxes) values.append(box.indices.begin(), box.indices.end());
    }
  }
  template <class Iterator> void takeState(Iterator &at) {
    for (Feed &feed : feeds_) {
      feed.slot = *at++, feed.parity = *at++;
      for (DescribedBox &box : feed.boxes)
        for (Value &index : box.indices) index = *at++;
    }
  }
  scf::ForOp makeLoop(Value from, ArrayRef<Value> inits) {
    scf::ForOp made = scf::ForOp::create(b_, loc_, from, loop_.getUpperBound(), loop_.getStep(), inits);
    made->setAttrs(loop_->getAttrs());
    if (made.getBody()->mightHaveTerminator()) made.getBody()->getTerminator()->erase();
    b_.setInsertionPointToEnd(made.getBody());
    return made;
  }

  // ---- each turn by itself

  SmallVector<Value> straight() {
    const bool open = !plan_.open.empty();
    SmallVector<Value> inits;
    for (unsigned number : live_.arguments) inits.push_back(loop_.getInitArgs()[number]);
    addState(inits);
    // Of the turn before.
    if (open) inits.push_back(constant(0)), inits.push_back(constant(0));
    scf::ForOp made = makeLoop(loop_.getLowerBound(), inits);
    if (open) {
      const int32_t number = int32_t(llvm::find(live_.arguments, plan_.open[0].number) - live_.arguments.begin());
      made->setAttr(placed::kOpenValuesAttr, b_.getDenseI32ArrayAttr({number}));
    }
    IRMapping map;
    map.map(loop_.getInductionVar(), made.getInductionVar());
    auto argument = made.getRegionIterArgs().begin();
    for (unsigned number : live_.arguments) map.map(loop_.getRegionIterArg(number), *argument++);
    takeState(argument);
    Value before = open ? *argument++ : Value(), parityBefore = open ? *argument++ : Value();
    for (Operation &op : loop_.getBody()->without_terminator()) {
      if (!live_.ops.contains(&op) || isTile(&op)) continue;
      Feed *feed = feedOf(&op);
      if (!feed) {
        b_.clone(op, map);
      } else if (open) {
        multiply(*feed, map)->setAttr(placed::kOpenAttr, b_.getUnitAttr());
        leaveBefore(*feed, made.getInductionVar(), before, parityBefore);
      } else {
        multiply(*feed, map);
        leave(*feed, made.getInductionVar());
      }
    }
    SmallVector<Value> yields;
    for (unsigned number : live_.arguments) yields.push_back(map.lookupOrDefault(loop_.getBody()->getTerminator()->getOperand(number)));
    addState(yields);
    if (open) yields.push_back(before), yields.push_back(parityBefore);
    scf::YieldOp::create(b_, loc_, yields);
    b_.setInsertionPointAfter(made);
    return SmallVector<Value>(made.getResults().take_front(live_.arguments.size()));
  }
  /// The product of the turn before, if there was one, has left its slot.
  void leaveBefore(Feed &feed, Value iv, Value &before, Value &parityBefore) {
    placed::WaitProductsOp::create(b_, loc_, TypeRange(), ValueRange(), 1u);
    Value notFirst = arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::ne, iv, loop_.getLowerBound());
    ttg::ArriveOp::create(b_, loc_, feed.empty, before, notFirst);
    // The indices stay where nothing is copied.
    SmallVector<DescribedBox, 2> boxes = feed.boxes;
    copy(feed, arith::AndIOp::create(b_, loc_, notFirst, isTurn(later(iv, plan_.slots - 1))), before, parityBefore);
    for (auto [box, old] : llvm::zip(feed.boxes, boxes))
      for (auto [index, last] : llvm::zip(box.indices, old.indices)) index = arith::SelectOp::create(b_, loc_, notFirst, index, last);
    before = feed.slot, parityBefore = feed.parity;
    advance(feed);
  }

  // ---- two turns at once

  const OpenProduct *openOf(Operation *op) const {
    for (const OpenProduct &open : plan_.open)
      if (open.dot == op) return &open;
    return nullptr;
  }
  bool isLate(Operation *op) const {
    return llvm::any_of(plan_.open, [&](const OpenProduct &open) { return open.late.contains(op); });
  }
  bool isOpenValue(unsigned number) const {
    return llvm::any_of(plan_.open, [&](const OpenProduct &open) { return open.number == number; });
  }
  /// What an open product of this turn takes to the next one: its sums, scaled, and its left operand.
  void addTaken(const IRMapping &map, SmallVectorImpl<Value> &values) {
    for (OpenProduct &open : plan_.open) {
      values.push_back(map.lookupOrDefault(open.dot.getC()));
      if (!loadOf(open.dot.getA())) values.push_back(map.lookupOrDefault(open.dot.getA()));
    }
  }
  template <class Iterator> void takeTaken(IRMapping &map, Iterator &at) {
    for (OpenProduct &open : plan_.open) {
      map.map(open.dot.getC(), *at++);
      if (!loadOf(open.dot.getA())) map.map(open.dot.getA(), *at++);
    }
  }
  /// What lies between the products of a turn.
  void cloneBetween(IRMapping &map) {
    for (Operation &op : loop_.getBody()->without_terminator())
      if (live_.ops.contains(&op) && !isTile(&op) && !plan_.early.contains(&op) && !openOf(&op) && !isLate(&op)) b_.clone(op, map);
  }
  void cloneLate(IRMapping &map) {
    for (OpenProduct &open : plan_.open)
      for (Operation *op : open.late) b_.clone(*op, map);
  }
  void addOwn(const IRMapping &map, SmallVectorImpl<Value> &values) {
    for (unsigned number : live_.arguments)
      if (!isOpenValue(number)) values.push_back(map.lookupOrDefault(loop_.getBody()->getTerminator()->getOperand(number)));
  }

  SmallVector<Value> rotate() {
    SmallVector<Value> unchanged;
    SmallVector<Type> types;
    for (unsigned number : live_.arguments) {
      unchanged.push_back(loop_.getInitArgs()[number]);
      types.push_back(unchanged.back().getType());
    }
    Value any = arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::slt, loop_.getLowerBound(), loop_.getUpperBound());
    scf::IfOp branch = scf::IfOp::create(b_, loc_, types, any, /*withElse=*/true);
    OpBuilder otherwise = OpBuilder::atBlockEnd(&branch.getElseRegion().front());
    scf::YieldOp::create(otherwise, loc_, unchanged);
    b_.setInsertionPointToStart(&branch.getThenRegion().front());

    // The first turn up to its last product.
    IRMapping first;
    first.map(loop_.getInductionVar(), loop_.getLowerBound());
    for (unsigned number : live_.arguments) first.map(loop_.getRegionIterArg(number), loop_.getInitArgs()[number]);
    for (Once &once : once_) ttg::AwaitOp::create(b_, loc_, once.full, constant(0), constant(0));
    for (Operation *op : plan_.early) {
      multiply(*feedOf(op), first);
      leave(*feedOf(op), loop_.getLowerBound());
    }
    cloneBetween(first);
    cloneLate(first);
    SmallVector<Value> inits;
    addOwn(first, inits);
    addTaken(first, inits);
    addState(inits);
    Value second = later(loop_.getLowerBound(), 1);
    turn(Turn::First);
    scf::ForOp made = makeLoop(second, inits);
    rotatedTurn(made);
    b_.setInsertionPointAfter(made);
    turn(Turn::Last);

    // The last products of the last turn.
    auto result = made.getResults().begin();
    IRMapping last;
    SmallVector<Value> results;
    for (unsigned number : live_.arguments) results.push_back(isOpenValue(number) ? Value() : Value(*result++));
    takeTaken(last, result);
    takeState(result);
    for (OpenProduct &open : plan_.open) {
      Value sums = multiply(*feedOf(open.dot), last)->getResult(0);
      results[size_t(llvm::find(live_.arguments, open.number) - live_.arguments.begin())] = sums;
    }
    scf::YieldOp::create(b_, loc_, results);
    b_.setInsertionPointAfter(branch);
    return SmallVector<Value>(branch.getResults());
  }

  /// Two groups of warps begin their products by turns.
  void turn(Turn which) {
    constexpr int kTwoGroups = 8;
    if (warps_ == kTwoGroups) setTurn(ttg::BarrierOp::create(b_, loc_, "local"), which);
  }

  void rotatedTurn(scf::ForOp made) {
    IRMapping turn, before;
    Value iv = made.getInductionVar();
    turn.map(loop_.getInductionVar(), iv);
    auto argument = made.getRegionIterArgs().begin();
    for (unsigned number : live_.arguments)
      if (!isOpenValue(number)) turn.map(loop_.getRegionIterArg(number), *argument++);
    takeTaken(before, argument);
    takeState(argument);

    SmallVector<Value> early, open;
    // Nobody has the other's turn while his own tiles are on their way.
    for (Operation *op : plan_.early) await(*feedOf(op));
    this->turn(Turn::Wait);
    for (Operation *op : plan_.early) early.push_back(multiply(*feedOf(op), turn, true)->getResult(0));
    for (OpenProduct &product : plan_.open) open.push_back(multiply(*feedOf(product.dot), before)->getResult(0));
    this->turn(Turn::Pass);
    for (Value sums : early) sums.getDefiningOp()->setAttr(placed::kOpenAttr, b_.getUnitAttr());
    for (Value sums : open) sums.getDefiningOp()->setAttr(placed::kOpenAttr, b_.getUnitAttr());
    placed::WaitProductsOp known = placed::WaitProductsOp::create(b_, loc_, ValueRange(early).getTypes(), early, uint32_t(open.size()));
    for (auto [op, sums] : llvm::zip(plan_.early, known.getResults())) turn.map(op->getResult(0), sums);
    for (Operation *op : plan_.early) leave(*feedOf(op), iv);
    cloneBetween(turn);
    // Their left operands are registers until then: what the next ones are made of comes through the wait.
    SmallVector<Value> through = open;
    for (OpenProduct &product : plan_.open)
      if (product.tied) through.push_back(turn.lookupOrDefault(product.tied));
    // So do sums of it, which are computed before the wait then, and what they are sums of.
    SmallVector<int32_t, 2> held;
    for (OpenProduct &product : plan_.open)
      for (Operation *user : product.tied ? SmallVector<Operation *>(product.tied.user_begin(), product.tied.user_end()) : SmallVector<Operation *>())
        if (isa<tt::ReduceOp>(user) && user->getNumResults() == 1 && live_.ops.contains(user)) {
          held.push_back(int32_t(through.size()));
          through.push_back(turn.lookup(user->getResult(0)));
        }
    placed::WaitProductsOp done = placed::WaitProductsOp::create(b_, loc_, ValueRange(through).getTypes(), through, 0u);
    if (!held.empty()) done->setAttr(placed::kHeldAttr, b_.getDenseI32ArrayAttr(held));
    auto complete = done.getResults().begin();
    for (OpenProduct &product : plan_.open) turn.map(loop_.getRegionIterArg(product.number), *complete++);
    for (OpenProduct &product : plan_.open)
      if (product.tied) turn.map(product.tied, *complete++);
    // Their tiles are those of the turn before.
    Value ivBefore = arith::SubIOp::create(b_, loc_, iv, loop_.getStep());
    for (OpenProduct &product : plan_.open) leave(*feedOf(product.dot), ivBefore);
    cloneLate(turn);
    SmallVector<Value> yields;
    addOwn(turn, yields);
    addTaken(turn, yields);
    addState(yields);
    scf::YieldOp::create(b_, loc_, yields);
  }

  LoopPlan &plan_;
  int warps_;
  scf::ForOp loop_;
  OpBuilder b_;
  Location loc_;
  LiveBody live_;
  SmallVector<Feed, 2> feeds_;
  SmallVector<Once, 1> once_;
};

} // namespace

void rewriteFed(LoopPlan &plan, int warps) { FeedRewriter(plan, warps).run(); }

} // namespace neso::nvidia
