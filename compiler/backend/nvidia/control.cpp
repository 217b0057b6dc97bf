// Structured and unstructured control flow. What changes is held in phis, one a register of a tensor. All threads of a
// block take the same way, since conditions are scalars of the program.
#include "backend/nvidia/emitter.h"

#include "backend/nvidia/move.h"
#include "backend/nvidia/wgmma.h"

namespace neso::nvidia {

using llvm::BasicBlock;
using llvm::Value;

/// What is computed inside a region is not known behind it.
class Emitter::InScope {
public:
  explicit InScope(Emitter &e) : e_(e) { e_.scopes_.emplace_back(); }
  ~InScope() { e_.scopes_.pop_back(); }
  InScope(const InScope &) = delete;

private:
  Emitter &e_;
};

bool Emitter::travelsInWords(mlir::Value v) {
  auto argument = llvm::dyn_cast<mlir::BlockArgument>(v);
  mlir::Operation *loop = argument ? argument.getOwner()->getParentOp() : nullptr;
  auto words = loop ? loop->getAttrOfType<mlir::DenseI32ArrayAttr>(placed::kWordsAttr) : mlir::DenseI32ArrayAttr();
  return words && argument.getArgNumber() > 0 &&
         llvm::is_contained(words.asArrayRef(), static_cast<int32_t>(argument.getArgNumber()) - 1);
}

void Emitter::declarePhis(mlir::Value v) {
  llvm::Type *type = typeOf(elementOf(v.getType()));
  // What unpacks words stands behind the phis.
  BasicBlock *block = b.GetInsertBlock();
  auto phi = [&](llvm::Type *t) {
    return phis_[v].emplace_back(llvm::PHINode::Create(t, 2, "", block->getFirstNonPHIIt()));
  };
  phis_[v].clear();
  if (!llvm::isa<mlir::RankedTensorType>(v.getType())) {
    scalars_[v] = phi(type);
    return;
  }
  LayoutRef layout = layoutOf(v);
  const int count = static_cast<int>(layout->inSize(kRegister));
  const bool packed = travelsInWords(v);
  Registers values;
  for (int64_t r = 0; r < (packed ? count * bytesOf(elementOf(v.getType())) / 4 : count); ++r)
    values.push_back(phi(packed ? b.getInt32Ty() : type));
  define(v, {*layout, packed ? fromWords(b, values, type, count) : std::move(values)});
}

Registers Emitter::incoming(mlir::Value from, mlir::Value to) {
  if (!llvm::isa<mlir::RankedTensorType>(to.getType())) return {scalar(from)};
  Registers values = tile(from).values;
  return travelsInWords(to) ? toWords(b, values) : values;
}

void Emitter::connect(mlir::Value to, const Registers &values, BasicBlock *from) {
  for (auto [phi, value] : llvm::zip_equal(phis_.find(to)->second, values)) phi->addIncoming(value, from);
}

void Emitter::connectAll(mlir::ValueRange to, mlir::ValueRange from) {
  // All values are read before the block ends: a conversion may add blocks of its own.
  llvm::SmallVector<Registers, 4> values;
  for (size_t i = 0; i < to.size(); ++i) values.push_back(incoming(from[i], to[i]));
  for (size_t i = 0; i < to.size(); ++i) connect(to[i], values[i], b.GetInsertBlock());
}

void Emitter::emitFor(mlir::Operation *op) {
  auto loop = llvm::cast<mlir::scf::ForOp>(op);
  mlir::Block &body = *loop.getBody();
  Value *lo = scalar(loop.getLowerBound()), *hi = scalar(loop.getUpperBound()), *step = scalar(loop.getStep());
  const bool isUnsigned = op->hasAttr("unsignedCmp");
  auto less = [&](Value *x, Value *y) { return isUnsigned ? b.CreateICmpULT(x, y) : b.CreateICmpSLT(x, y); };

  BasicBlock *head = BasicBlock::Create(b.getContext(), "for", fn_);
  BasicBlock *exit = BasicBlock::Create(b.getContext(), "endfor", fn_);
  // The turn's values come in by the arguments' phis; what the loop leaves by its results' phis at the exit.
  llvm::SmallVector<Registers, 4> inits, unchanged;
  mlir::ValueRange arguments = loop.getRegionIterArgs(), results = loop.getResults();
  for (size_t i = 0; i < arguments.size(); ++i) {
    inits.push_back(incoming(loop.getInitArgs()[i], arguments[i]));
    unchanged.push_back(incoming(loop.getInitArgs()[i], results[i]));
  }
  auto openValues = op->getAttrOfType<mlir::DenseI32ArrayAttr>(placed::kOpenValuesAttr);
  const llvm::ArrayRef<int32_t> open = openValues ? openValues.asArrayRef() : llvm::ArrayRef<int32_t>();
  for (int32_t number : open)
    if (tt::DotOp dot = productInTensorMemory(loop, number)) {
      tensorMemory_->store(dot, planOf(dot), inits[static_cast<size_t>(number)]);
      if (!TensorMemory::meetsBefore(dot, planOf(dot))) tensorMemory_->meet();
    }
  BasicBlock *before = b.GetInsertBlock();
  b.CreateCondBr(less(lo, hi), head, exit);
  b.SetInsertPoint(exit);
  for (mlir::Value r : results) declarePhis(r);
  for (size_t i = 0; i < results.size(); ++i) connect(results[i], unchanged[i], before);

  b.SetInsertPoint(head);
  llvm::PHINode *iv = b.CreatePHI(lo->getType(), 2, "iv");
  iv->addIncoming(lo, before);
  scalars_[loop.getInductionVar()] = iv;
  for (mlir::Value a : arguments) declarePhis(a);
  for (size_t i = 0; i < arguments.size(); ++i) connect(arguments[i], inits[i], before);
  {
    InScope scope(*this);
    emitBlock(body);
    if (failed()) return;
    llvm::SmallVector<Registers, 4> next, last;
    for (size_t i = 0; i < arguments.size(); ++i) {
      mlir::Value yielded = body.getTerminator()->getOperand(i);
      next.push_back(incoming(yielded, arguments[i]));
      last.push_back(incoming(yielded, results[i]));
    }
    Value *following = b.CreateAdd(iv, step);
    BasicBlock *latch = b.GetInsertBlock(), *leave = latch;
    Value *more = less(following, hi);
    if (!open.empty()) {
      // Sums that are under way meet no others: on the way out of the last turn they are waited for.
      leave = BasicBlock::Create(b.getContext(), "complete", fn_);
      b.CreateCondBr(more, head, leave);
      b.SetInsertPoint(leave);
      for (int32_t number : open) {
        Registers &sums = last[static_cast<size_t>(number)];
        tt::DotOp dot = productInTensorMemory(loop, number);
        if (!dot) {
          waitProducts(block_, 0, sums);
          continue;
        }
        tensorMemory_->wait(0);
        sums = tensorMemory_->load(dot, planOf(dot));
        leave = b.GetInsertBlock();
      }
      b.CreateBr(exit);
    } else {
      b.CreateCondBr(more, head, exit);
    }
    iv->addIncoming(following, latch);
    for (size_t i = 0; i < arguments.size(); ++i) {
      connect(arguments[i], next[i], latch);
      connect(results[i], last[i], leave);
    }
  }
  exit->moveAfter(b.GetInsertBlock());
  b.SetInsertPoint(exit);
}

void Emitter::emitIf(mlir::Operation *op) {
  auto branch = llvm::cast<mlir::scf::IfOp>(op);
  BasicBlock *then = BasicBlock::Create(b.getContext(), "if", fn_);
  BasicBlock *otherwise = BasicBlock::Create(b.getContext(), "else", fn_);
  BasicBlock *exit = BasicBlock::Create(b.getContext(), "endif", fn_);
  b.CreateCondBr(scalar(branch.getCondition()), then, otherwise);
  b.SetInsertPoint(exit);
  for (mlir::Value r : op->getResults()) declarePhis(r);
  for (unsigned side : {0u, 1u}) {
    b.SetInsertPoint(side ? otherwise : then);
    mlir::Region &region = op->getRegion(side);
    if (!region.empty()) {
      InScope scope(*this);
      emitBlock(region.front());
      if (failed()) return;
      connectAll(op->getResults(), region.front().getTerminator()->getOperands());
    }
    b.CreateBr(exit);
  }
  exit->moveAfter(b.GetInsertBlock());
  b.SetInsertPoint(exit);
}

void Emitter::emitWhile(mlir::Operation *op) {
  auto loop = llvm::cast<mlir::scf::WhileOp>(op);
  mlir::Block &before = loop.getBefore().front(), &after = loop.getAfter().front();
  BasicBlock *test = BasicBlock::Create(b.getContext(), "while", fn_);
  BasicBlock *turn = BasicBlock::Create(b.getContext(), "do", fn_);
  BasicBlock *exit = BasicBlock::Create(b.getContext(), "endwhile", fn_);
  {
    llvm::IRBuilderBase::InsertPointGuard guard(b);
    b.SetInsertPoint(test);
    for (mlir::Value v : before.getArguments()) declarePhis(v);
    b.SetInsertPoint(turn);
    for (mlir::Value v : after.getArguments()) declarePhis(v);
    b.SetInsertPoint(exit);
    for (mlir::Value v : op->getResults()) declarePhis(v);
  }
  connectAll(before.getArguments(), loop.getInits());
  b.CreateBr(test);

  b.SetInsertPoint(test);
  {
    InScope scope(*this);
    emitBlock(before);
    if (failed()) return;
    mlir::Operation *condition = before.getTerminator();
    connectAll(after.getArguments(), condition->getOperands().drop_front());
    connectAll(op->getResults(), condition->getOperands().drop_front());
    b.CreateCondBr(scalar(condition->getOperand(0)), turn, exit);
  }
  turn->moveAfter(b.GetInsertBlock());
  b.SetInsertPoint(turn);
  {
    InScope scope(*this);
    emitBlock(after);
    if (failed()) return;
    connectAll(before.getArguments(), after.getTerminator()->getOperands());
    b.CreateBr(test);
  }
  exit->moveAfter(b.GetInsertBlock());
  b.SetInsertPoint(exit);
}

void Emitter::emitBranch(mlir::Operation *op) {
  auto go = [&](mlir::Block *to, mlir::ValueRange values) {
    connectAll(to->getArguments(), values);
    b.CreateBr(blocks_[to]);
  };
  if (auto branch = llvm::dyn_cast<mlir::cf::BranchOp>(op)) return go(branch.getDest(), branch.getDestOperands());
  auto branch = llvm::cast<mlir::cf::CondBranchOp>(op);
  BasicBlock *yes = BasicBlock::Create(b.getContext(), "taken", fn_);
  BasicBlock *no = BasicBlock::Create(b.getContext(), "nottaken", fn_);
  b.CreateCondBr(scalar(branch.getCondition()), yes, no);
  for (bool side : {true, false}) {
    b.SetInsertPoint(side ? yes : no);
    InScope scope(*this);
    go(side ? branch.getTrueDest() : branch.getFalseDest(),
       side ? branch.getTrueDestOperands() : branch.getFalseDestOperands());
  }
}

} // namespace neso::nvidia
