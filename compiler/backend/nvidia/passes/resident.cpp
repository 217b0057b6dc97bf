#include "backend/nvidia/passes/resident.h"

#include "backend/common/opcodes.h"
#include "ir/tile/build.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;

namespace neso::nvidia {

namespace {

/// Whether programs may come one after another, in any blocks of threads: none waits for what another one writes, be it by reading again and again.
bool standAlone(tt::FuncOp function) {
  if (!function.getBody().hasOneBlock()) return false;
  WalkResult result = function.walk([&](Operation *op) {
    const OpCode code = codeOf(op);
    if (tt::LoadOp load = dyn_cast<tt::LoadOp>(op); (load && load.getIsVolatile()) || isa<scf::WhileOp>(op)) return WalkResult::interrupt();
    const bool good = op == function || isMemoryEffectFree(op) || classOf(code) == OpClass::Load || isa<tt::StoreOp>(op) ||
                      op->hasTrait<OpTrait::IsTerminator>() || op->hasTrait<OpTrait::HasRecursiveMemoryEffects>() || code == OpCode::Assume;
    return good ? WalkResult::advance() : WalkResult::interrupt();
  });
  if (result.wasInterrupted()) return false;
  // One loop multiplies, and nothing else.
  int loops = 0, others = 0;
  for (Operation &op : function.getBody().front()) {
    const bool multiplies = op.walk([](tt::DotOp) { return WalkResult::interrupt(); }).wasInterrupted();
    if (multiplies) ++(isa<scf::ForOp>(op) ? loops : others);
  }
  return loops == 1 && others == 0;
}

/// A number that is the same in all programs, or a constant: it may stand in front of the loop over them.
bool isOfAllPrograms(Operation *op, scf::ForOp programs) {
  if (op->getNumRegions() || !isMemoryEffectFree(op) || isa<tt::GetProgramIdOp>(op)) return false;
  const bool scalar = llvm::none_of(op->getResultTypes(), [](Type t) { return isa<RankedTensorType>(t); });
  return (scalar || codeOf(op) == OpCode::ArithConstant) &&
         llvm::all_of(op->getOperands(), [&](Value v) { return programs.isDefinedOutsideOfLoop(v); });
}

/// The value in another program: what leads to it is computed again, of the number that `map` gives that program.
Value inProgram(Value v, scf::ForOp programs, IRMapping &map, OpBuilder &b) {
  if (Value known = map.lookupOrNull(v)) return known;
  if (programs.isDefinedOutsideOfLoop(v)) return v;
  Operation *op = v.getDefiningOp();
  for (Value operand : op->getOperands()) inProgram(operand, programs, map, b);
  b.clone(*op, map);
  return map.lookup(v);
}
/// Whether that can be.
bool isOfProgramAlone(Value v, scf::ForOp programs) {
  if (!v || v == programs.getInductionVar() || programs.isDefinedOutsideOfLoop(v)) return true;
  Operation *op = v.getDefiningOp();
  return op && op->getBlock() == programs.getBody() && op->getNumRegions() == 0 && isMemoryEffectFree(op) && !isa<RankedTensorType>(v.getType()) &&
         llvm::all_of(op->getOperands(), [&](Value operand) { return isOfProgramAlone(operand, programs); });
}

class ResidentRewriter {
public:
  ResidentRewriter(LoopPlan &plan, scf::ForOp programs, int warps)
      : plan_(plan), programs_(programs), loop_(plan.loop), warps_(warps), b_(programs), loc_(plan.loop.getLoc()), live_(plan) {}

  void run() {
    begin();
    SmallVector<Value> inits;
    addState(inits);
    scf::ForOp programs = scf::ForOp::create(b_, loc_, programs_.getLowerBound(), programs_.getUpperBound(), programs_.getStep(), inits);
    Block *body = programs.getBody();
    if (body->mightHaveTerminator()) body->getTerminator()->erase();
    body->getOperations().splice(body->end(), programs_.getBody()->getOperations());
    programs_.getInductionVar().replaceAllUsesWith(programs.getInductionVar());
    takeState(programs.getRegionIterArgs());
    std::swap(programs, programs_);
    programs.erase(); // the one without state
    b_.setInsertionPoint(loop_);
    rewriteLoop();
    Operation *end = body->getTerminator();
    b_.setInsertionPoint(end);
    SmallVector<Value> results;
    addState(results);
    scf::YieldOp::create(b_, loc_, results);
    end->erase();
    b_.setInsertionPointAfter(programs_);
    this->end();
  }

private:
  Value constant(int value) { return arith::ConstantOp::create(b_, loc_, b_.getI32IntegerAttr(value)); }
  Value below(Value a, Value b) { return arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::slt, a, b); }

  // ---- rings, barriers, and the turn whose copies begin next

  void begin() {
    for (PipelinedLoad &load : plan_.loads) load.ring = ringFor(load, plan_.slots, b_, loc_);
    OpBuilder entry = entryOf(loop_);
    for (auto [load, box] : llvm::zip(plan_.loads, plan_.boxes)) {
      descriptors_.push_back(describeTensor(entry, load, box));
      steps_.push_back(indexSteps(b_, load, box));
    }
    // What threads have written there before does not come behind the machine's copies.
    placed::FenceAsyncOp::create(b_, loc_);
    Type type = ttg::BarriersType::get(b_.getContext(), plan_.slots);
    full_ = ttg::BarriersOp::create(b_, loc_, type, 1u);
    empty_ = ttg::BarriersOp::create(b_, loc_, type, uint32_t(warps_));
    ttg::BarrierOp::create(b_, loc_, "local");
    any_ = below(loop_.getLowerBound(), loop_.getUpperBound());
    program_ = programs_.getLowerBound(), turn_ = loop_.getLowerBound();
    indices_ = indicesOf(program_);
    fill_ = constant(0);
    for (int turn = 0; turn < plan_.ahead; ++turn) copyNext({});
    // A slot that nobody has read is in the phase before the first.
    fillParity_ = constant(1), read_ = constant(0), readParity_ = constant(0);
  }
  void end() {
    ttg::BarrierOp::create(b_, loc_, "local");
    ttg::EndBarriersOp::create(b_, loc_, full_);
    ttg::EndBarriersOp::create(b_, loc_, empty_);
    for (PipelinedLoad &load : plan_.loads) ttg::LocalDeallocOp::create(b_, loc_, load.ring);
  }
  using Indices = SmallVector<SmallVector<Value, 3>, 2>;
  /// Of all boxes, in the first turn of a program.
  Indices indicesOf(Value program) {
    IRMapping map;
    map.map(programs_.getInductionVar(), program);
    Indices out;
    for (auto [load, box] : llvm::zip(plan_.loads, plan_.boxes)) {
      Box there = box;
      for (const Box::Dim *dim : {&box.dims[0], &box.dims[1], box.outer ? &*box.outer : nullptr})
        if (dim)
          for (const auto &[product, factor] : dim->first.terms)
            for (int i : product) there.scalars[size_t(i)] = inProgram(box.scalars[size_t(i)], programs_, map, b_);
      out.push_back(firstIndices(b_, load, there));
    }
    return out;
  }
  /// Begins the copies of the turn at hand into the slot at hand, and goes on to the next of both. parity: of the phase that the slot's readers have ended,
  /// absent where there were none.
  void copyNext(Value parity) {
    ttg::ByOneThreadOp one = ttg::ByOneThreadOp::create(b_, loc_, arith::AndIOp::create(b_, loc_, any_, below(program_, programs_.getUpperBound())));
    OpBuilder b = OpBuilder::atBlockBegin(&one.getBody().emplaceBlock());
    if (parity) ttg::AwaitOp::create(b, loc_, empty_, fill_, parity);
    int64_t bytes = 0;
    for (const PipelinedLoad &load : plan_.loads) bytes += slotBytes(load);
    ttg::ExpectOp::create(b, loc_, full_, fill_, uint32_t(bytes));
    for (auto [load, descriptor, indices] : llvm::zip(plan_.loads, descriptors_, indices_))
      ttg::BulkCopyOp::create(b, load.load.getLoc(), descriptor, indices, load.ring, fill_, full_, fill_);
    goOn();
    if (parity) fillParity_ = parityBehind(fill_, fillParity_);
    fill_ = next(fill_);
  }
  void goOn() {
    Value turn = arith::AddIOp::create(b_, loc_, turn_, loop_.getStep());
    Value inside = below(turn, loop_.getUpperBound());
    Value program = arith::AddIOp::create(b_, loc_, program_, programs_.getStep());
    turn_ = arith::SelectOp::create(b_, loc_, inside, turn, loop_.getLowerBound());
    program_ = arith::SelectOp::create(b_, loc_, inside, program_, program);
    SmallVector<Type, 6> types;
    for (auto &indices : indices_) types.append(indices.size(), b_.getI32Type());
    scf::IfOp branch = scf::IfOp::create(b_, loc_, types, inside, true);
    OpBuilder::InsertionGuard guard(b_);
    auto give = [&](Block *block, llvm::function_ref<Indices()> make) {
      b_.setInsertionPointToStart(block);
      SmallVector<Value, 6> flat;
      for (auto &indices : make()) flat.append(indices.begin(), indices.end());
      scf::YieldOp::create(b_, loc_, flat);
    };
    give(branch.thenBlock(), [&] {
      Indices moved = indices_;
      for (auto [indices, steps] : llvm::zip(moved, steps_))
        for (auto [index, step] : llvm::zip(indices, steps)) index = arith::AddIOp::create(b_, loc_, index, step);
      return moved;
    });
    // Behind the last program there is none whose numbers could be computed: a division by zero, say, is no number.
    give(branch.elseBlock(), [&] {
      return indicesOf(arith::SelectOp::create(b_, loc_, below(program_, programs_.getUpperBound()), program_, programs_.getLowerBound()));
    });
    auto result = branch.getResults().begin();
    for (auto &indices : indices_)
      for (Value &index : indices) index = *result++;
  }
  Value next(Value slot) { return slotBehind(b_, loc_, slot, plan_.slots); }
  Value parityBehind(Value slot, Value parity) { return neso::nvidia::parityBehind(b_, loc_, slot, parity, plan_.slots); }
  /// What loops carry of it.
  SmallVector<Value *, 12> state() {
    SmallVector<Value *, 12> out{&program_, &turn_, &fill_, &fillParity_, &read_, &readParity_};
    for (auto &indices : indices_)
      for (Value &index : indices) out.push_back(&index);
    return out;
  }
  void addState(SmallVectorImpl<Value> &values) {
    for (Value *v : state()) values.push_back(*v);
  }
  void takeState(ValueRange values) {
    for (auto [v, given] : llvm::zip(state(), values)) *v = given;
  }

  // ---- the loop

  const PipelinedLoad *pipelined(Operation *op) const {
    for (const PipelinedLoad &load : plan_.loads)
      if (load.load == op) return &load;
    return nullptr;
  }
  void rewriteLoop() {
    SmallVector<Value> inits;
    for (unsigned number : live_.arguments) inits.push_back(loop_.getInitArgs()[number]);
    const unsigned own = unsigned(inits.size());
    inits.push_back(read_); // the slot that the turn before read
    addState(inits);
    scf::ForOp made = scf::ForOp::create(b_, loc_, loop_.getLowerBound(), loop_.getUpperBound(), loop_.getStep(), inits);
    made->setAttrs(loop_->getAttrs());
    tt::DotOp open = plan_.open.empty() ? tt::DotOp() : plan_.open.front().dot;
    if (open) {
      const auto number = llvm::find(live_.arguments, plan_.open.front().number) - live_.arguments.begin();
      made->setAttr(placed::kOpenValuesAttr, b_.getDenseI32ArrayAttr({int32_t(number)}));
    }
    if (made.getBody()->mightHaveTerminator()) made.getBody()->getTerminator()->erase();
    b_.setInsertionPointToEnd(made.getBody());
    IRMapping map;
    map.map(loop_.getInductionVar(), made.getInductionVar());
    for (auto [number, argument] : llvm::zip(live_.arguments, made.getRegionIterArgs())) map.map(loop_.getRegionIterArg(number), argument);
    const Value before = made.getRegionIterArg(own);
    takeState(made.getRegionIterArgs().drop_front(own + 1));

    ttg::AwaitOp::create(b_, loc_, full_, read_, readParity_);
    // What is not under way over turns has left its slot at the end of its turn.
    if (!open) copyNext(fillParity_);
    for (Operation &op : loop_.getBody()->without_terminator()) {
      if (!live_.ops.contains(&op)) continue;
      if (const PipelinedLoad *load = pipelined(&op)) {
        map.map(op.getResult(0), ttg::LocalLoadOp::create(b_, op.getLoc(), op.getResult(0).getType(), load->ring, read_, DenseI32ArrayAttr()).getResult());
        continue;
      }
      Operation *copy = b_.clone(op, map);
      if (open != &op) continue;
      copy->setAttr(placed::kOpenAttr, b_.getUnitAttr());
      copyNext(fillParity_);
      placed::WaitProductsOp::create(b_, loc_, TypeRange(), ValueRange(), 1u);
      // The product of the turn before has left its slot; that of a program's last turn says so behind the loop.
      Value notFirst = arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::ne, made.getInductionVar(), loop_.getLowerBound());
      ttg::ArriveOp::create(b_, loc_, empty_, before, notFirst);
    }
    if (!open) ttg::ArriveOp::create(b_, loc_, empty_, read_, Value());
    SmallVector<Value> results;
    for (unsigned n : live_.arguments) results.push_back(map.lookupOrDefault(loop_.getBody()->getTerminator()->getOperand(n)));
    results.push_back(read_);
    readParity_ = parityBehind(read_, readParity_);
    read_ = next(read_);
    addState(results);
    scf::YieldOp::create(b_, loc_, results);
    b_.setInsertionPointAfter(made);
    if (open) ttg::ArriveOp::create(b_, loc_, empty_, made.getResult(own), any_);
    takeState(made.getResults().drop_front(own + 1));
    for (auto [i, n] : llvm::enumerate(live_.arguments)) loop_.getResult(n).replaceAllUsesWith(made.getResult(unsigned(i)));
    loop_.erase();
  }

  LoopPlan &plan_;
  scf::ForOp programs_, loop_;
  int warps_;
  OpBuilder b_;
  Location loc_;
  LiveBody live_;
  SmallVector<Value, 2> descriptors_;
  SmallVector<SmallVector<Value, 3>, 2> steps_;
  Value full_, empty_, any_; // whether the loop has a turn
  // Whose copies begin next: program, induction variable, slot and its phase, indices; what is read next.
  Value program_, turn_, fill_, fillParity_, read_, readParity_;
  Indices indices_;
};

} // namespace

bool isProgramCount(Value v) {
  BlockArgument argument = dyn_cast<BlockArgument>(v);
  tt::FuncOp function = argument ? dyn_cast<tt::FuncOp>(argument.getOwner()->getParentOp()) : tt::FuncOp();
  return function && function->hasAttr(placed::kResidentAttr) && argument.getArgNumber() + 3 >= function.getNumArguments();
}

scf::ForOp makeResident(tt::FuncOp function) {
  if (!standAlone(function)) return {};
  const Location loc = function.getLoc();
  Block &body = function.getBody().front();
  OpBuilder b = OpBuilder::atBlockBegin(&body);
  SmallVector<Value, 3> counts;
  for (int axis = 0; axis < 3; ++axis) {
    const unsigned number = function.getNumArguments();
    (void)function.insertArgument(number, b.getI32Type(), {}, loc);
    counts.push_back(function.getArgument(number));
  }
  function->setAttr(placed::kResidentAttr, b.getUnitAttr());
  Value plane = arith::MulIOp::create(b, loc, counts[0], counts[1]), all = arith::MulIOp::create(b, loc, plane, counts[2]);
  Value first = tile::programId(b, loc, 0);
  Value step = tt::GetNumProgramsOp::create(b, loc, b.getI32Type(), tt::ProgramIDDim::X);
  scf::ForOp programs = scf::ForOp::create(b, loc, first, all, step);
  for (Operation &op : llvm::make_early_inc_range(llvm::make_range(std::next(Block::iterator(programs)), std::prev(body.end()))))
    isOfAllPrograms(&op, programs) ? op.moveBefore(programs) : op.moveBefore(programs.getBody()->getTerminator());
  b.setInsertionPointToStart(programs.getBody());
  Value number = programs.getInductionVar();
  Value rest = arith::DivUIOp::create(b, loc, number, counts[0]);
  const SmallVector<Value, 3> ids{arith::RemUIOp::create(b, loc, number, counts[0]), arith::RemUIOp::create(b, loc, rest, counts[1]),
                                  arith::DivUIOp::create(b, loc, number, plane)};
  SmallVector<Operation *, 4> replaced;
  function.walk([&](Operation *op) {
    if (op == first.getDefiningOp() || op == step.getDefiningOp()) return;
    if (auto id = dyn_cast<tt::GetProgramIdOp>(op)) id.replaceAllUsesWith(ids[size_t(id.getAxis())]), replaced.push_back(op);
    if (auto count = dyn_cast<tt::GetNumProgramsOp>(op)) count.replaceAllUsesWith(counts[size_t(count.getAxis())]), replaced.push_back(op);
  });
  for (Operation *op : replaced) op->erase();
  return programs;
}

bool runsOverPrograms(const LoopPlan &plan, scf::ForOp programs) {
  scf::ForOp loop = plan.loop;
  if (plan.boxes.empty() || plan.fed || plan.stepped || !plan.early.empty() || plan.open.size() > 1) return false;
  for (const OpenProduct &open : plan.open)
    if (!open.late.empty() || open.tied || !LiveBody(plan).arguments.contains(open.number)) return false;
  if (loop->getBlock() != programs.getBody() || !loop.getInductionVar().getType().isInteger(32)) return false;
  for (Value bound : {loop.getLowerBound(), loop.getUpperBound(), loop.getStep()})
    if (!programs.isDefinedOutsideOfLoop(bound)) return false;
  for (const Box &box : plan.boxes)
    for (const Box::Dim *dim : {&box.dims[0], &box.dims[1], box.outer ? &*box.outer : nullptr}) {
      if (!dim) continue;
      for (const auto &[product, factor] : dim->first.terms)
        if (!llvm::all_of(product, [&](int i) { return isOfProgramAlone(box.scalars[size_t(i)], programs); })) return false;
      for (const auto &[product, factor] : dim->step.terms)
        if (!llvm::all_of(product, [&](int i) { return programs.isDefinedOutsideOfLoop(box.scalars[size_t(i)]); })) return false;
    }
  return true;
}

void rewriteResident(LoopPlan &plan, scf::ForOp programs, int warps) { ResidentRewriter(plan, programs, warps).run(); }

} // namespace neso::nvidia
