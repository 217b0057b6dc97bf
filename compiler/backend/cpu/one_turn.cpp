#include "backend/cpu/one_turn.h"

#include "backend/cpu/uses.h"
#include "base/rules.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/SetVector.h"

namespace neso::cpu {

namespace {
/// Bodies of more operations keep their time elsewhere than in the carried tiles.
constexpr int kMostOperations = 64;
/// Turns that are taken at a time where there are so many, in loops of so short bodies.
constexpr int64_t kTurns = 4, kLongestStep = 1 << 20;
constexpr size_t kMostRepeated = 24;

bool isTensor(mlir::Value v) { return llvm::isa<mlir::RankedTensorType>(v.getType()); }

bool isConstant(mlir::Value v) {
  mlir::Operation *def = v.getDefiningOp();
  return def && codeOf(def) == OpCode::ArithConstant;
}

/// Element by element or an index of it, on tensors or numbers, wherever it stands.
bool isPlain(mlir::Operation *op) {
  const OpClass cls = classOf(codeOf(op));
  return (cls == OpClass::Element || cls == OpClass::Index) && op->getNumRegions() == 0 && mlir::isMemoryEffectFree(op);
}

bool isPlainLoad(mlir::Operation *op) {
  auto isVolatile = op->getAttrOfType<mlir::BoolAttr>("isVolatile");
  return classOf(codeOf(op)) == OpClass::Load && !(isVolatile && isVolatile.getValue());
}

/// What elements are computed from, down to memory, numbers and what other operations give.
void plainBelow(mlir::Value v, llvm::SetVector<mlir::Operation *> &out) {
  mlir::Operation *def = v.getDefiningOp();
  if (!def || !isTensor(v) || !isPlain(def) || out.contains(def)) return;
  for (mlir::Value o : def->getOperands()) plainBelow(o, out);
  out.insert(def);
}

/// A loop and what stands behind it, in two: what reads its results, and what does not and moves before it.
struct Candidate {
  mlir::scf::ForOp loop;
  llvm::SmallVector<mlir::Operation *, 8> behind, before;
  /// Tensors made of the loop's, element by element or in another order.
  llvm::DenseSet<mlir::Value> tiles;
};

/// Whether the carried value is a tile in memory: not one that stays or moves by one amount.
bool isAccumulated(mlir::scf::ForOp loop, unsigned i) {
  mlir::Value argument = loop.getRegionIterArg(i), next = loop.getBody()->getTerminator()->getOperand(i);
  if (!isTensor(argument) || next == argument) return false;
  if (llvm::isa<tt::PointerType>(llvm::cast<mlir::RankedTensorType>(argument.getType()).getElementType())) return false;
  mlir::Operation *def = next.getDefiningOp();
  return def && !(codeOf(def) == OpCode::AddI && llvm::is_contained(def->getOperands(), argument) &&
                  llvm::any_of(def->getOperands(), [](mlir::Value o) {
                    mlir::Operation *by = o.getDefiningOp();
                    return by && (codeOf(by) == OpCode::Splat || codeOf(by) == OpCode::ArithConstant);
                  }));
}

bool helps(mlir::scf::ForOp loop) {
  // Where the bounds are numbers, so is the number of turns, and the loop of one turn is gone.
  if (isConstant(loop.getLowerBound()) && isConstant(loop.getUpperBound()) && isConstant(loop.getStep())) return false;
  bool accumulates = false;
  for (unsigned i = 0; i < loop.getNumResults(); ++i) {
    if (!isTensor(loop.getResult(i))) continue;
    accumulates |= isAccumulated(loop, i) && !loop.getResult(i).use_empty();
    // What the first turn begins with is computed where it is used.
    llvm::SetVector<mlir::Operation *> below;
    plainBelow(loop.getInitArgs()[i], below);
    if (below.empty()) return false;
    for (mlir::Operation *op : below)
      for (mlir::Value o : op->getOperands())
        if (isTensor(o) && (!o.getDefiningOp() || !below.contains(o.getDefiningOp()))) return false;
  }
  if (!accumulates) return false;
  int operations = 0;
  for (mlir::Operation &op : loop.getBody()->without_terminator()) {
    if (!isPlain(&op) && !isPlainLoad(&op)) return false;
    if (++operations > kMostOperations) return false;
  }
  return true;
}

std::optional<Candidate> candidate(mlir::scf::ForOp loop) {
  if (!helps(loop)) return std::nullopt;
  // The last operation that needs a tile of the loop, by way of others or at once.
  Candidate c{loop, {}, {}, {}};
  llvm::DenseSet<mlir::Value> &tiles = c.tiles;
  for (mlir::Value r : loop.getResults())
    if (isTensor(r)) tiles.insert(r);
  mlir::Block *block = loop->getBlock();
  mlir::Operation *last = nullptr;
  for (mlir::Operation *op = loop->getNextNode(); op; op = op->getNextNode()) {
    if (llvm::none_of(op->getOperands(), [&](mlir::Value o) { return tiles.contains(o); })) continue;
    if (isPlain(op))
      for (mlir::Value r : op->getResults()) tiles.insert(r);
    else if (codeOf(op) != OpCode::Reduce)
      return std::nullopt;
    last = op;
  }
  if (!last) return std::nullopt;
  for (mlir::Value t : tiles)
    for (mlir::Operation *user : t.getUsers())
      if (user->getBlock() != block) return std::nullopt;
  llvm::DenseSet<mlir::Value> inside(loop.getResults().begin(), loop.getResults().end());
  for (mlir::Operation *op = loop->getNextNode();; op = op->getNextNode()) {
    if (llvm::any_of(op->getOperands(), [&](mlir::Value o) { return inside.contains(o); })) {
      if (!isPlain(op) && codeOf(op) != OpCode::Reduce) return std::nullopt;
      inside.insert(op->getResults().begin(), op->getResults().end());
      c.behind.push_back(op);
    } else if (isPlain(op) || codeOf(op) == OpCode::Reduce || isPlainLoad(op)) {
      // Nothing writes between here and the loop's beginning.
      c.before.push_back(op);
    } else
      return std::nullopt;
    if (op == last) break;
    if (c.behind.size() > kMostOperations) return std::nullopt;
  }
  // What the operations behind the loop compute with anew must not come from memory: it is read where the program says.
  for (mlir::Operation *op : c.behind)
    for (mlir::Value o : op->getOperands()) {
      if (!isTensor(o) || inside.contains(o)) continue;
      llvm::SetVector<mlir::Operation *> below;
      plainBelow(o, below);
      if (below.empty()) return std::nullopt;
      for (mlir::Operation *part : below)
        for (mlir::Value p : part->getOperands())
          if (isTensor(p) && (!p.getDefiningOp() || !below.contains(p.getDefiningOp()))) return std::nullopt;
    }
  return c;
}

/// Copies the plain operations below the tensors that `op` reads from outside: what is used in another block would be kept in memory.
void copyPlainOperands(mlir::OpBuilder &b, mlir::Operation *op, mlir::IRMapping &map) {
  llvm::SetVector<mlir::Operation *> below;
  for (mlir::Value o : op->getOperands())
    if (!map.contains(o)) plainBelow(o, below);
  for (mlir::Operation *part : below)
    if (!map.contains(part->getResult(0))) b.clone(*part, map);
}

/// Whether the loop makes one turn, by the tests that it makes itself.
mlir::Value makesOneTurn(mlir::OpBuilder &b, mlir::scf::ForOp loop) {
  const mlir::Location loc = loop.getLoc();
  const auto less = loop->hasAttr("unsignedCmp") ? mlir::arith::CmpIPredicate::ult : mlir::arith::CmpIPredicate::slt;
  mlir::Value lo = loop.getLowerBound(), hi = loop.getUpperBound();
  mlir::Value begins = mlir::arith::CmpIOp::create(b, loc, less, lo, hi);
  mlir::Value goesOn = mlir::arith::CmpIOp::create(b, loc, less, mlir::arith::AddIOp::create(b, loc, lo, loop.getStep()), hi);
  mlir::Value yes = mlir::arith::ConstantIntOp::create(b, loc, 1, 1);
  return mlir::arith::AndIOp::create(b, loc, begins, mlir::arith::XOrIOp::create(b, loc, goesOn, yes));
}

/// What is needed further on: numbers of the loop, results of the operations behind it; `again`: tensors that are computed from those, which
/// no branch needs to hand out.
llvm::SmallVector<mlir::Value, 4> neededOf(const Candidate &c, llvm::DenseSet<mlir::Operation *> &again) {
  mlir::scf::ForOp loop = c.loop;
  const llvm::DenseSet<mlir::Operation *> moved(c.behind.begin(), c.behind.end());
  auto isNeeded = [&](mlir::Value v) {
    return llvm::any_of(v.getUsers(), [&](mlir::Operation *user) {
      mlir::Operation *here = loop->getBlock()->findAncestorOpInBlock(*user);
      return !moved.contains(here) || again.contains(here);
    });
  };
  for (mlir::Operation *op : llvm::reverse(c.behind))
    if (isPlain(op) && llvm::all_of(op->getResults(), [&](mlir::Value r) { return isTensor(r) && !c.tiles.contains(r); }) &&
        llvm::any_of(op->getResults(), isNeeded))
      again.insert(op);
  llvm::SmallVector<mlir::Value, 4> needed;
  for (mlir::Value r : loop.getResults())
    if (isNeeded(r)) needed.push_back(r);
  for (mlir::Operation *op : c.behind)
    for (mlir::Value r : op->getResults())
      if (!again.contains(op) && isNeeded(r)) needed.push_back(r);
  return needed;
}

/// The loop's body once more, behind where b stands, for an index and carried values of its own; gives what it hands on.
llvm::SmallVector<mlir::Value, 4> copyBody(mlir::OpBuilder &b, mlir::scf::ForOp loop, mlir::Value iv, mlir::ValueRange carried) {
  mlir::IRMapping map;
  map.map(loop.getInductionVar(), iv);
  map.map(loop.getRegionIterArgs(), carried);
  for (mlir::Operation &op : loop.getBody()->without_terminator()) b.clone(op, map);
  llvm::SmallVector<mlir::Value, 4> next;
  for (mlir::Value v : loop.getBody()->getTerminator()->getOperands()) next.push_back(map.lookupOrDefault(v));
  return next;
}

/// Several turns at a time, then the rest one by one: between those of one time tiles are in registers. For loops from zero by a constant, whose
/// carried tiles all accumulate.
void takeSeveralTurns(mlir::scf::ForOp loop) {
  llvm::APInt lo, step;
  if (!matchPattern(loop.getLowerBound(), mlir::m_ConstantInt(&lo)) || !lo.isZero() || !matchPattern(loop.getStep(), mlir::m_ConstantInt(&step))) return;
  if (loop->hasAttr("unsignedCmp") || step.getBitWidth() != 32 || !step.isStrictlyPositive() || step.getSExtValue() > kLongestStep) return;
  if (loop.getBody()->getOperations().size() > kMostRepeated) return;
  for (unsigned i = 0; i < loop.getNumResults(); ++i)
    if (isTensor(loop.getResult(i)) && !isAccumulated(loop, i)) return;
  mlir::OpBuilder b(loop);
  const mlir::Location loc = loop.getLoc();
  auto number = [&](int64_t v) -> mlir::Value { return mlir::arith::ConstantIntOp::create(b, loc, v, 32); };
  const int64_t stride = step.getSExtValue(), all = kTurns * stride;
  // Of max(n - (kTurns - 1) * step, 0) indices from zero on every kTurns * step-th begins several turns that all take place.
  mlir::Value zero = number(0), n = mlir::arith::MaxSIOp::create(b, loc, loop.getUpperBound(), zero);
  mlir::Value end = mlir::arith::MaxSIOp::create(b, loc, mlir::arith::SubIOp::create(b, loc, n, number(all - stride)), zero);
  mlir::Value times = mlir::arith::DivUIOp::create(b, loc, mlir::arith::AddIOp::create(b, loc, end, number(all - 1)), number(all));
  mlir::Value rest = mlir::arith::MulIOp::create(b, loc, times, number(all));
  auto several = mlir::scf::ForOp::create(b, loc, zero, end, number(all), loop.getInitArgs(), [&](mlir::OpBuilder &inner, mlir::Location, mlir::Value iv, mlir::ValueRange carried) {
    llvm::SmallVector<mlir::Value, 4> values(carried);
    for (int64_t turn = 0; turn < kTurns; ++turn) {
      mlir::Value at = iv;
      if (turn) {
        mlir::Value ahead = mlir::arith::ConstantIntOp::create(inner, loc, turn * stride, 32);
        at = mlir::arith::AddIOp::create(inner, loc, iv, ahead, mlir::arith::IntegerOverflowFlags::nsw);
      }
      values = copyBody(inner, loop, at, values);
    }
    mlir::scf::YieldOp::create(inner, loc, values);
  });
  loop.getLowerBoundMutable().assign(rest);
  loop.getInitArgsMutable().assign(several.getResults());
}

void writeOut(const Candidate &c) {
  mlir::scf::ForOp loop = c.loop;
  for (mlir::Operation *op : c.before) op->moveBefore(loop);
  mlir::OpBuilder b(loop);
  const mlir::Location loc = loop.getLoc();
  mlir::Value lo = loop.getLowerBound(), one = makesOneTurn(b, loop);
  llvm::DenseSet<mlir::Operation *> again;
  const llvm::SmallVector<mlir::Value, 4> outs = neededOf(c, again);
  auto branch = mlir::scf::IfOp::create(b, loc, mlir::ValueRange(outs).getTypes(), one, true);
  for (bool single : {true, false}) {
    mlir::OpBuilder side = single ? branch.getThenBodyBuilder() : branch.getElseBodyBuilder();
    mlir::IRMapping map;
    if (single) {
      map.map(loop.getInductionVar(), lo);
      for (auto [argument, init] : llvm::zip(loop.getRegionIterArgs(), loop.getInitArgs())) {
        llvm::SetVector<mlir::Operation *> below;
        plainBelow(init, below);
        for (mlir::Operation *part : below)
          if (!map.contains(part->getResult(0))) side.clone(*part, map);
        map.map(argument, map.lookupOrDefault(init));
      }
      for (mlir::Operation &op : loop.getBody()->without_terminator()) {
        copyPlainOperands(side, &op, map);
        side.clone(op, map);
      }
      for (auto [result, next] : llvm::zip(loop.getResults(), loop.getBody()->getTerminator()->getOperands()))
        map.map(result, map.lookupOrDefault(next));
    } else {
      copyPlainOperands(side, loop, map);
      takeSeveralTurns(llvm::cast<mlir::scf::ForOp>(side.clone(*loop, map)));
    }
    for (mlir::Operation *op : c.behind) {
      copyPlainOperands(side, op, map);
      side.clone(*op, map);
    }
    llvm::SmallVector<mlir::Value, 4> results;
    for (mlir::Value v : outs) results.push_back(map.lookupOrDefault(v));
    mlir::scf::YieldOp::create(side, loc, results);
  }
  for (auto [v, result] : llvm::zip(outs, branch.getResults())) mlir::Value(v).replaceAllUsesWith(result);
  for (mlir::Operation *op : llvm::reverse(c.behind)) again.contains(op) ? op->moveAfter(branch) : op->erase();
  loop.erase();
  applied(Rule::OneTurn);
}
} // namespace

mlir::OwningOpRef<tt::FuncOp> withOneTurnWrittenOut(tt::FuncOp function) {
  bool any = false;
  function->walk([&](mlir::scf::ForOp loop) {
    any |= candidate(loop).has_value();
    return any ? mlir::WalkResult::interrupt() : mlir::WalkResult::advance();
  });
  if (!any) return {};
  mlir::OwningOpRef<tt::FuncOp> copy(function.clone());
  llvm::SmallVector<mlir::scf::ForOp, 4> loops;
  copy->walk([&](mlir::scf::ForOp loop) { loops.push_back(loop); });
  // A loop may stand behind another whose branch it would not be in; each is looked at when its turn comes.
  for (mlir::scf::ForOp loop : loops)
    if (std::optional<Candidate> c = candidate(loop)) writeOut(*c);
  return copy;
}

} // namespace neso::cpu
