// Structured and unstructured control flow. Scalars that change are kept in stack cells (LLVM turns them into
// registers), tensors in scratch buffers, and tensors that only move by a uniform amount each turn (pointers, index
// ranges) as one scalar beside their start.
#include <algorithm>

#include "backend/cpu/emitter.h"
#include "ir/tile/tile.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/Support/SaveAndRestore.h"

namespace neso::cpu {

using llvm::BasicBlock;
using llvm::Value;

void Emitter::freeAfter(mlir::Operation *op) {
  auto it = freeAfter_.find(op);
  if (it == freeAfter_.end()) return;
  llvm::SmallVector<Buffer *, 2> buffers = it->second;
  for (Buffer *buffer : buffers) freeBuffer(*buffer);
}

bool Emitter::isUniformTensor(mlir::Value v, int depth) {
  mlir::Operation *def = v.getDefiningOp();
  if (!def || depth > 8 || buffers_.count(v) || !uses_->isVirtual(def)) return false;
  switch (codeOf(def)) {
  case OpCode::Splat: return true;
  case OpCode::ArithConstant: {
    auto dense = llvm::dyn_cast<mlir::DenseElementsAttr>(def->getAttr("value"));
    return dense && dense.isSplat();
  }
  case OpCode::Broadcast:
  case OpCode::ExpandDims:
  case OpCode::Reshape: return isUniformTensor(def->getOperand(0), depth + 1);
  default: break;
  }
  if (classOf(codeOf(def)) != OpClass::Element) return false;
  for (mlir::Value o : def->getOperands())
    if (!isUniformTensor(o, depth + 1)) return false;
  return true;
}

void Emitter::declareCarried(mlir::Value v) {
  if (isTensor(v.getType())) {
    Buffer &buffer = newBuffer(elementOf(v.getType()), shapeOf(v.getType()));
    // The buffer of a block's parameter is written again when the block is entered again, so it lives as long as the
    // kernel.
    if (llvm::isa<mlir::OpResult>(v))
      bind(v, buffer);
    else
      buffers_[v] = &buffer;
    return;
  }
  cells_[v] = entryAlloca(typeOf(v.getType()), "carried");
}

void Emitter::loadCarried(mlir::Value v) {
  if (llvm::AllocaInst *cell = cells_.lookup(v))
    scalars_[v] = fromValue(b.CreateLoad(cell->getAllocatedType(), cell), 0);
}

void Emitter::assign(mlir::ValueRange targets, mlir::ValueRange values) {
  // At a block's end nothing is kept: whoever reads it next may have come another way.
  llvm::SaveAndRestore<mlir::Block *> noBlock(block_, nullptr);
  llvm::SmallVector<std::pair<llvm::AllocaInst *, Value *>, 4> cells;
  struct Move {
    Buffer *to;
    mlir::Value v;
    Buffer *temporary = nullptr;
  };
  llvm::SmallVector<Move, 4> moves;
  for (size_t i = 0; i < targets.size(); ++i) {
    if (moving_.count(targets[i])) continue;
    if (!isTensor(targets[i].getType())) {
      if (llvm::AllocaInst *cell = cells_.lookup(targets[i])) cells.push_back({cell, scalar(values[i]).base});
      continue;
    }
    Buffer *to = buffers_.lookup(targets[i]);
    if (buffers_.lookup(values[i]) != to) moves.push_back({to, values[i]});
  }
  // A value may be written in place while it is computed only when all that it reads of the buffers being written
  // stands at the same index of the same loop nest; else it takes a way round.
  auto safe = [&](const Move &m) {
    llvm::SmallVector<std::pair<mlir::Value, bool>, 16> todo = {{m.v, true}};
    llvm::DenseMap<mlir::Value, bool> seen;
    while (!todo.empty()) {
      auto [v, same] = todo.pop_back_val();
      if (!isTensor(v.getType())) continue;
      auto [it, isNew] = seen.try_emplace(v, same);
      if (!isNew && (it->second == same || !it->second)) continue;
      it->second = same;
      if (Buffer *buffer = buffers_.lookup(v)) {
        for (const Move &other : moves)
          if (other.to == buffer && (!same || other.to->shape != m.to->shape)) return false;
        continue;
      }
      if (auto moving = moving_.find(v); moving != moving_.end()) {
        todo.push_back({moving->second.init, same});
        continue;
      }
      mlir::Operation *def = v.getDefiningOp();
      if (!def) continue;
      const bool element = classOf(codeOf(def)) == OpClass::Element || codeOf(def) == OpCode::Load;
      for (mlir::Value o : def->getOperands()) todo.push_back({o, same && element});
    }
    return true;
  };
  llvm::SmallVector<Move *, 4> direct;
  for (Move &m : moves) {
    if (safe(m)) {
      direct.push_back(&m);
      continue;
    }
    m.temporary = &newBuffer(m.to->elementType, m.to->shape);
    fill(*m.temporary, m.v);
  }
  // In place, shape by shape.
  while (!direct.empty()) {
    Shape shape = direct[0]->to->shape;
    llvm::SmallVector<Move *, 4> group, rest;
    for (Move *m : direct) (m->to->shape == shape ? group : rest).push_back(m);
    direct = rest;
    llvm::SmallVector<mlir::Value, 4> sources;
    for (Move *m : group) sources.push_back(m->v);
    Nest nest = planNest(shape, sources, 64);
    sink([&] {
      llvm::SmallVector<mlir::Value, 4> masks = masksBelow(sources, shape);
      runNest(nest, {masks, false}, [&](const Index &index) {
        llvm::SmallVector<Lanes, 4> lanes;
        for (Move *m : group) lanes.push_back(eval(m->v, index));
        for (size_t i = 0; i < group.size(); ++i) storeBuffer(*group[i]->to, index, lanes[i]);
      });
    });
  }
  for (Move &m : moves) {
    if (!m.temporary) continue;
    int64_t bytes = bytesOf(m.to->elementType);
    for (int64_t s : m.to->shape) bytes *= s;
    b.CreateMemCpy(m.to->ptr, llvm::MaybeAlign(64), m.temporary->ptr, llvm::MaybeAlign(64),
                   static_cast<uint64_t>(bytes));
    freeBuffer(*m.temporary);
  }
  for (auto &[cell, v] : cells) b.CreateStore(v, cell);
}

void Emitter::emitFor(mlir::Operation *op) {
  mlir::Block &body = op->getRegion(0).front();
  mlir::Operation *yield = body.getTerminator();
  Value *lo = scalar(op->getOperand(0)).base, *hi = scalar(op->getOperand(1)).base,
        *step = scalar(op->getOperand(2)).base;
  const bool isUnsigned = op->hasAttr("unsignedCmp");
  const unsigned carried = op->getNumResults();

  // What each carried value is.
  struct Motion {
    mlir::Value by;
    llvm::AllocaInst *cell = nullptr;
    int64_t scale = 1; // bytes of a pointee, 1 for integers
  };
  llvm::SmallVector<Motion, 4> motions(carried);
  // Buffers that belong to an enclosing loop: theirs to free.
  llvm::SmallVector<bool, 4> borrowed(carried, false);
  llvm::SmallVector<mlir::Value, 4> targets, inits;
  for (unsigned i = 0; i < carried; ++i) {
    mlir::Value argument = body.getArgument(i + 1), init = op->getOperand(i + 3), next = yield->getOperand(i);
    if (isTensor(argument.getType())) {
      mlir::Operation *def = next.getDefiningOp();
      mlir::Type element = elementOf(argument.getType());
      const bool pointer = llvm::isa<tt::PointerType>(element);
      mlir::Value by;
      if (def && def->getBlock() == &body &&
          ((pointer && codeOf(def) == OpCode::AddPtr) || (!pointer && codeOf(def) == OpCode::AddI)))
        for (unsigned k : {0u, 1u})
          if (def->getOperand(k) == argument && isUniformTensor(def->getOperand(1 - k))) by = def->getOperand(1 - k);
      if (by || next == argument) {
        if (uses_->readsMemory(init) || uses_->cost(init) >= 20) materialize(init);
        Motion &m = motions[i];
        m.by = by;
        llvm::Type *type = pointer ? b.getInt64Ty() : typeOf(element);
        m.cell = entryAlloca(type, "moved");
        m.scale = pointer ? bytesOf(llvm::cast<tt::PointerType>(element).getPointeeType()) : 1;
        b.CreateStore(llvm::ConstantInt::get(type, 0), m.cell);
        moving_[argument] = {init, m.cell, {}};
        continue;
      }
      // A buffer that nobody needs any more goes on as the loop's own, without a copy.
      Buffer *taken = init.hasOneUse() ? buffers_.lookup(init) : nullptr;
      if (taken && uses_->lastSink(init) == op && taken->bytes) {
        llvm::SmallVector<Buffer *, 2> &ending = freeAfter_[op];
        auto owned = std::find(ending.begin(), ending.end(), taken);
        borrowed[i] = owned == ending.end();
        if (!borrowed[i]) ending.erase(owned);
        buffers_[argument] = taken;
        continue;
      }
      Buffer &buffer = newBuffer(element, shapeOf(argument.getType()));
      fill(buffer, init);
      buffers_[argument] = &buffer;
    } else {
      cells_[argument] = entryAlloca(typeOf(argument.getType()), "carried");
      b.CreateStore(scalar(init).base, cells_[argument]);
    }
  }

  if (loneProduct(op)) beginGathering(op);
  BasicBlock *loop = BasicBlock::Create(b.getContext(), "for", fn_);
  BasicBlock *exit = BasicBlock::Create(b.getContext(), "endfor", fn_);
  auto less = [&](Value *x, Value *y) { return isUnsigned ? b.CreateICmpULT(x, y) : b.CreateICmpSLT(x, y); };
  BasicBlock *pre = b.GetInsertBlock();
  b.CreateCondBr(less(lo, hi), loop, exit);
  b.SetInsertPoint(loop);
  llvm::PHINode *iv = b.CreatePHI(lo->getType(), 2, "iv");
  iv->addIncoming(lo, pre);
  scalars_[body.getArgument(0)] = fromValue(iv, 0);
  if (gathering_) gathering_->lastTurn = b.CreateNot(less(b.CreateAdd(iv, step), hi));
  frames_[0].block = loop;
  frames_[0].memo.clear();
  for (unsigned i = 0; i < carried; ++i) {
    mlir::Value argument = body.getArgument(i + 1);
    if (motions[i].cell)
      moving_[argument].current = fromValue(b.CreateLoad(motions[i].cell->getAllocatedType(), motions[i].cell), 0);
    else
      loadCarried(argument);
  }
  emitBlock(body);
  if (failed()) {
    endGathering();
    b.CreateBr(exit);
    iv->addIncoming(lo, b.GetInsertBlock());
    b.SetInsertPoint(exit);
    return;
  }
  // The amounts of motion are read before anything moves.
  llvm::SmallVector<Value *, 4> moved(carried, nullptr);
  frames_[0].memo.clear();
  for (unsigned i = 0; i < carried; ++i)
    if (motions[i].by) {
      Index origin(shapeOf(motions[i].by.getType()).size(), uniformInt(0));
      Value *by = eval(motions[i].by, origin).base;
      llvm::Type *type = motions[i].cell->getAllocatedType();
      by = b.CreateMul(b.CreateSExtOrTrunc(by, type), llvm::ConstantInt::getSigned(type, motions[i].scale));
      moved[i] = b.CreateAdd(moving_[body.getArgument(i + 1)].current.base, by);
    }
  for (unsigned i = 0; i < carried; ++i) {
    targets.push_back(body.getArgument(i + 1));
    inits.push_back(yield->getOperand(i));
  }
  assign(targets, inits);
  for (unsigned i = 0; i < carried; ++i)
    if (moved[i]) b.CreateStore(moved[i], motions[i].cell);
  endGathering();
  freeAfter(yield);
  Value *next = b.CreateAdd(iv, step);
  iv->addIncoming(next, b.GetInsertBlock());
  b.CreateCondBr(less(next, hi), loop, exit);
  b.SetInsertPoint(exit);
  frames_[0].block = exit;
  frames_[0].memo.clear();
  for (unsigned i = 0; i < carried; ++i) {
    mlir::Value result = op->getResult(i), argument = body.getArgument(i + 1);
    if (motions[i].cell)
      moving_[result] = {op->getOperand(i + 3), motions[i].cell,
                         fromValue(b.CreateLoad(motions[i].cell->getAllocatedType(), motions[i].cell), 0)};
    else if (isTensor(result.getType())) {
      Buffer &buffer = *buffers_[argument];
      if (borrowed[i])
        buffers_[result] = &buffer;
      else if (uses_->lastSink(result))
        bind(result, buffer);
      else
        freeBuffer(buffer);
    } else
      scalars_[result] = fromValue(b.CreateLoad(cells_[argument]->getAllocatedType(), cells_[argument]), 0);
  }
}

void Emitter::emitIf(mlir::Operation *op) {
  Value *condition = scalar(op->getOperand(0)).base;
  for (mlir::Value r : op->getResults()) declareCarried(r);
  BasicBlock *then = BasicBlock::Create(b.getContext(), "if", fn_);
  BasicBlock *otherwise = BasicBlock::Create(b.getContext(), "else", fn_);
  BasicBlock *exit = BasicBlock::Create(b.getContext(), "endif", fn_);
  b.CreateCondBr(condition, then, otherwise);
  for (unsigned side : {0u, 1u}) {
    b.SetInsertPoint(side ? otherwise : then);
    frames_[0].block = b.GetInsertBlock();
    frames_[0].memo.clear();
    if (!op->getRegion(side).empty()) {
      mlir::Block &body = op->getRegion(side).front();
      emitBlock(body);
      if (!failed()) {
        assign(op->getResults(), body.getTerminator()->getOperands());
        freeAfter(body.getTerminator());
      }
    }
    b.CreateBr(exit);
  }
  b.SetInsertPoint(exit);
  frames_[0].block = exit;
  frames_[0].memo.clear();
  for (mlir::Value r : op->getResults()) loadCarried(r);
}

void Emitter::emitWhile(mlir::Operation *op) {
  mlir::Block &before = op->getRegion(0).front(), &after = op->getRegion(1).front();
  for (mlir::Value v : before.getArguments()) declareCarried(v);
  for (mlir::Value v : after.getArguments()) declareCarried(v);
  assign(before.getArguments(), op->getOperands());
  BasicBlock *test = BasicBlock::Create(b.getContext(), "while", fn_);
  BasicBlock *loop = BasicBlock::Create(b.getContext(), "do", fn_);
  BasicBlock *exit = BasicBlock::Create(b.getContext(), "endwhile", fn_);
  b.CreateBr(test);
  b.SetInsertPoint(test);
  frames_[0].block = test;
  frames_[0].memo.clear();
  for (mlir::Value v : before.getArguments()) loadCarried(v);
  emitBlock(before);
  if (!failed()) {
    mlir::Operation *condition = before.getTerminator();
    assign(after.getArguments(), condition->getOperands().drop_front());
    b.CreateCondBr(scalar(condition->getOperand(0)).base, loop, exit);
  } else
    b.CreateBr(exit);
  b.SetInsertPoint(loop);
  frames_[0].block = loop;
  frames_[0].memo.clear();
  if (!failed()) {
    for (mlir::Value v : after.getArguments()) loadCarried(v);
    emitBlock(after);
    if (!failed()) assign(before.getArguments(), after.getTerminator()->getOperands());
  }
  b.CreateBr(test);
  b.SetInsertPoint(exit);
  frames_[0].block = exit;
  frames_[0].memo.clear();
  for (unsigned i = 0; i < op->getNumResults(); ++i) {
    mlir::Value result = op->getResult(i), argument = after.getArgument(i);
    if (isTensor(result.getType()))
      buffers_[result] = buffers_[argument];
    else
      scalars_[result] = fromValue(b.CreateLoad(cells_[argument]->getAllocatedType(), cells_[argument]), 0);
  }
}

void Emitter::emitBranch(mlir::Operation *op) {
  auto go = [&](mlir::Block *to, mlir::ValueRange values) {
    assign(to->getArguments(), values);
    b.CreateBr(blocks_[to]);
  };
  if (codeOf(op) == OpCode::Br) return go(op->getSuccessor(0), op->getOperands());
  auto branch = llvm::cast<mlir::cf::CondBranchOp>(op);
  Value *condition = scalar(op->getOperand(0)).base;
  BasicBlock *yes = BasicBlock::Create(b.getContext(), "taken", fn_);
  BasicBlock *no = BasicBlock::Create(b.getContext(), "nottaken", fn_);
  b.CreateCondBr(condition, yes, no);
  for (bool side : {true, false}) {
    b.SetInsertPoint(side ? yes : no);
    frames_[0].block = b.GetInsertBlock();
    frames_[0].memo.clear();
    go(side ? branch.getTrueDest() : branch.getFalseDest(),
       side ? branch.getTrueDestOperands() : branch.getFalseDestOperands());
  }
}

void Emitter::emitScalarMap(mlir::Operation *op) {
  auto packAttr = op->getAttrOfType<mlir::IntegerAttr>("pack");
  const int64_t pack = packAttr ? packAttr.getInt() : 1;
  mlir::Region &region = op->getRegion(0);
  Shape shape = shapeOf(op->getResult(0).getType());
  int64_t n = 1;
  for (int64_t s : shape) n *= s;
  llvm::SmallVector<Buffer *, 2> results;
  for (mlir::Value r : op->getResults()) results.push_back(&newBuffer(elementOf(r.getType()), shape));
  // A plain loop at the function's own level, one pack a turn, since the body may branch.
  BasicBlock *pre = b.GetInsertBlock();
  BasicBlock *loop = BasicBlock::Create(b.getContext(), "map", fn_),
             *exit = BasicBlock::Create(b.getContext(), "endmap", fn_);
  b.CreateBr(loop);
  b.SetInsertPoint(loop);
  llvm::PHINode *iv = b.CreatePHI(b.getInt32Ty(), 2, "pack");
  iv->addIncoming(b.getInt32(0), pre);
  frames_[0].block = loop;
  frames_[0].memo.clear();
  width_ = 1;
  auto place = [&](int64_t p) {
    return delinearize(fromValue(b.CreateAdd(b.CreateMul(iv, b.getInt32(static_cast<uint32_t>(pack))),
                                             b.getInt32(static_cast<uint32_t>(p))),
                                 0),
                       shape);
  };
  unsigned argument = 0;
  for (mlir::Value source : op->getOperands())
    for (int64_t p = 0; p < pack; ++p) scalars_[region.front().getArgument(argument++)] = eval(source, place(p));
  BasicBlock *next = BasicBlock::Create(b.getContext(), "mapped", fn_);
  for (mlir::Block &block : region) {
    if (&block == &region.front()) continue;
    blocks_[&block] = BasicBlock::Create(b.getContext(), "bb", fn_);
    for (mlir::BlockArgument a : block.getArguments()) declareCarried(a);
  }
  for (mlir::Block &block : region) {
    if (&block != &region.front()) {
      b.SetInsertPoint(blocks_[&block]);
      frames_[0].block = blocks_[&block];
      for (mlir::BlockArgument a : block.getArguments()) loadCarried(a);
    }
    for (mlir::Operation &inner : block) {
      if (codeOf(&inner) != OpCode::MapReturn) {
        emitOp(&inner);
        continue;
      }
      for (unsigned i = 0; i < inner.getNumOperands(); ++i)
        storeBuffer(*results[i / pack], place(i % pack), scalar(inner.getOperand(i)));
      b.CreateBr(next);
    }
    if (!b.GetInsertBlock()->getTerminator()) b.CreateBr(next);
  }
  b.SetInsertPoint(next);
  frames_[0].block = next;
  frames_[0].memo.clear();
  Value *following = b.CreateAdd(iv, b.getInt32(1));
  iv->addIncoming(following, next);
  b.CreateCondBr(b.CreateICmpSLT(following, b.getInt32(static_cast<uint32_t>(n / pack))), loop, exit);
  b.SetInsertPoint(exit);
  frames_[0].block = exit;
  for (unsigned i = 0; i < op->getNumResults(); ++i) bind(op->getResult(i), *results[i]);
}

} // namespace neso::cpu
