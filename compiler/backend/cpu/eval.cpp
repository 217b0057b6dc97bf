// Tensor expressions at an index.
#include <algorithm>

#include "backend/cpu/emitter.h"
#include "ir/tile/tile.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Matchers.h"

namespace neso::cpu {

using llvm::Value;

Lanes Emitter::scalar(mlir::Value v) {
  auto it = scalars_.find(v);
  if (it != scalars_.end()) return it->second;
  if (mlir::Operation *def = v.getDefiningOp(); def && codeOf(def) == OpCode::ArithConstant)
    return constant(def->getAttr("value"), v.getType());
  NESO_CHECK(failed(), "scalar used before its definition");
  return fromValue(llvm::PoisonValue::get(typeOf(v.getType())), 0);
}

Lanes Emitter::eval(mlir::Value v, const Index &index) {
  if (!isTensor(v.getType())) return scalar(v);
  int level = 0;
  for (const Lanes &l : index) level = std::max<int>(level, l.level);
  // Values of outer loops keep their level's memory; the map of the right frame outlives this step.
  const Key key = keyOf(v, index);
  Memo &memo = frames_[std::min(level, currentLevel())].memo;
  auto known = memo.find(key);
  if (known != memo.end()) return known->second;
  Lanes r;
  if (Buffer *buffer = buffers_.lookup(v))
    r = loadBuffer(*buffer, index);
  else {
    r = evalUncached(v, index);
    if (coverIndex_ && index.size() == coverIndex_->size() &&
        std::equal(index.begin(), index.end(), coverIndex_->begin()) && shapeOf(v.getType()) == coverShape_ &&
        uses_->worthKeeping(v) && !llvm::is_contained(together_, uses_->lastSink(v)) && level == currentLevel() &&
        v.getParentBlock() == block_)
      keep(v, index, r);
  }
  frames_[std::min(level, currentLevel())].memo[key] = r;
  return r;
}

Lanes Emitter::evalUncached(mlir::Value v, const Index &index) {
  if (auto moving = moving_.find(v); moving != moving_.end()) {
    Lanes init = eval(moving->second.init, index);
    const Lanes &moved = moving->second.current;
    if (init.elementType()->isPointerTy()) return addPointer(init, moved, 1); // bytes, in 64 bits
    return intOp(IntOp::Add, init, moved);
  }
  mlir::Operation *op = v.getDefiningOp();
  if (!op) {
    NESO_CHECK(failed(), "carried tensor without a buffer");
    return fromValue(llvm::PoisonValue::get(typeOf(elementOf(v.getType()))), 0);
  }
  const OpCode code = codeOf(op);
  auto operandShape = [&](unsigned i) {
    return llvm::cast<mlir::RankedTensorType>(op->getOperand(i).getType()).getShape();
  };
  switch (code) {
  case OpCode::MakeRange: {
    const int64_t start = op->getAttrOfType<mlir::IntegerAttr>("start").getInt();
    return start == 0 ? index[0] : intOp(IntOp::Add, index[0], uniformInt(start));
  }
  case OpCode::Splat: return scalar(op->getOperand(0));
  case OpCode::ArithConstant: {
    mlir::Attribute value = op->getAttr("value");
    Lanes c = constant(value, elementOf(v.getType()));
    if (c.base) return c;
    auto dense = llvm::cast<mlir::DenseElementsAttr>(value);
    llvm::GlobalVariable *&global = constants_[value];
    mlir::Type element = elementOf(v.getType());
    if (!global) {
      llvm::SmallVector<llvm::Constant *> elements;
      llvm::Type *type = memoryTypeOf(element);
      if (llvm::isa<mlir::FloatType>(element))
        for (const llvm::APFloat &f : dense.getValues<llvm::APFloat>())
          elements.push_back(type->isIntegerTy()
                                 ? static_cast<llvm::Constant *>(llvm::ConstantInt::get(type, f.bitcastToAPInt()))
                                 : llvm::ConstantFP::get(b.getContext(), f));
      else
        for (const llvm::APInt &i : dense.getValues<llvm::APInt>())
          elements.push_back(llvm::ConstantInt::get(type, i.zextOrTrunc(type->getIntegerBitWidth())));
      auto *array = llvm::ArrayType::get(type, elements.size());
      global = new llvm::GlobalVariable(module_, array, true, llvm::GlobalValue::PrivateLinkage,
                                        llvm::ConstantArray::get(array, elements), "table");
      global->setAlignment(llvm::Align(64));
    }
    Lanes base;
    base.base = global;
    Shape shape = shapeOf(v.getType());
    return loadAt(addIndex(base, linearize(index, shape), bytesOf(element)), element, nullptr, nullptr, false);
  }
  case OpCode::Poison: return fromValue(llvm::Constant::getNullValue(typeOf(elementOf(v.getType()))), 0);
  case OpCode::Broadcast: {
    Index inner = index;
    for (size_t d = 0; d < inner.size(); ++d)
      if (operandShape(0)[d] == 1) inner[d] = uniformInt(0);
    return eval(op->getOperand(0), inner);
  }
  case OpCode::ExpandDims: {
    Index inner = index;
    inner.erase(inner.begin() + op->getAttrOfType<mlir::IntegerAttr>("axis").getInt());
    return eval(op->getOperand(0), inner);
  }
  case OpCode::Trans: {
    auto order = op->getAttrOfType<mlir::DenseI32ArrayAttr>("order");
    Index inner(index.size());
    for (size_t d = 0; d < index.size(); ++d) inner[order[d]] = index[d];
    return eval(op->getOperand(0), inner);
  }
  case OpCode::Reshape: {
    Shape to = shapeOf(v.getType());
    llvm::ArrayRef<int64_t> from = operandShape(0);
    // Leading dimensions that agree pass through, so that their symbols survive.
    size_t same = 0;
    while (same < to.size() && same < from.size() && to[same] == from[same]) ++same;
    Lanes linear = linearize(Index(index.begin() + static_cast<std::ptrdiff_t>(same), index.end()),
                             llvm::ArrayRef<int64_t>(to).drop_front(same));
    Index tail = delinearize(linear, from.drop_front(same));
    Index inner(index.begin(), index.begin() + static_cast<std::ptrdiff_t>(same));
    inner.append(tail.begin(), tail.end());
    return eval(op->getOperand(0), inner);
  }
  case OpCode::Join: {
    Index inner(index.begin(), index.end() - 1);
    const Lanes &which = index.back();
    if (auto *c = llvm::dyn_cast<llvm::ConstantInt>(which.base); c && which.uniform())
      return eval(op->getOperand(c->isZero() ? 0 : 1), inner);
    Lanes x = eval(op->getOperand(0), inner), y = eval(op->getOperand(1), inner);
    const int level = std::max({x.level, y.level, which.level});
    AtLevel at(*this, level);
    const bool uniform = which.uniform() && x.uniform() && y.uniform();
    Value *w = uniform ? which.base : vec(which);
    Value *second = b.CreateICmpNE(w, llvm::Constant::getNullValue(w->getType()));
    return fromValue(b.CreateSelect(second, uniform ? y.base : vec(y), uniform ? x.base : vec(x)), level);
  }
  case OpCode::Split: {
    Index inner = index;
    inner.push_back(uniformInt(llvm::cast<mlir::OpResult>(v).getResultNumber()));
    return eval(op->getOperand(0), inner);
  }
  case OpCode::Cat: {
    const int64_t n = operandShape(0)[0];
    Lanes half = index[0];
    Index first = index, second = index;
    AtLevel at(*this, half.level);
    // Both sides are read at a place that exists; the wrong one is dropped.
    first[0] = intOp(IntOp::And, half, uniformInt(n - 1));
    second[0] = first[0];
    Lanes x = eval(op->getOperand(0), first), y = eval(op->getOperand(1), second);
    const int level = std::max({x.level, y.level, half.level});
    const bool uniform = half.uniform() && x.uniform() && y.uniform();
    Value *w = uniform ? half.base : vec(half);
    Value *later = b.CreateICmpSGE(w, llvm::ConstantInt::get(w->getType(), static_cast<uint64_t>(n)));
    return fromValue(b.CreateSelect(later, uniform ? y.base : vec(y), uniform ? x.base : vec(x)), level);
  }
  case OpCode::Gather: {
    const int64_t axis = op->getAttrOfType<mlir::IntegerAttr>("axis").getInt();
    Lanes where = widen(op->getOperand(1), eval(op->getOperand(1), index), index, b.getInt32Ty(), true);
    // An index out of range must not reach memory.
    const int64_t n = operandShape(0)[axis];
    {
      AtLevel at(*this, where.level);
      Value *w = where.uniform() ? where.base : vec(where);
      Value *limit = llvm::ConstantInt::get(w->getType(), static_cast<uint64_t>(n - 1));
      where = fromValue(b.CreateBinaryIntrinsic(llvm::Intrinsic::umin, w, limit), where.level);
    }
    Index inner = index;
    inner[axis] = where;
    return eval(op->getOperand(0), inner);
  }
  case OpCode::Load: return loadOp(op, index);
  case OpCode::RemSI:
    if (std::optional<Lanes> r = speculateRemainder(op, index)) return *r;
    break;
  case OpCode::AddPtr: {
    mlir::Type pointee = llvm::cast<tt::PointerType>(elementOf(v.getType())).getPointeeType();
    return displaced(eval(op->getOperand(0), index), op->getOperand(1), index, bytesOf(pointee));
  }
  case OpCode::ExtSI:
  case OpCode::ExtUI:
  case OpCode::IndexCast:
  case OpCode::IndexCastUI: {
    Lanes x = eval(op->getOperand(0), index);
    const bool isSigned = code == OpCode::ExtSI || code == OpCode::IndexCast;
    return widen(op->getOperand(0), x, index, typeOf(elementOf(v.getType())), isSigned);
  }
  default: break;
  }
  if (classOf(code) != OpClass::Element) {
    fail(op, "operation " + op->getName().getStringRef().str() + " as a tensor expression");
    return fromValue(llvm::Constant::getNullValue(typeOf(elementOf(v.getType()))), 0);
  }
  llvm::SmallVector<Lanes, 4> args;
  for (mlir::Value o : op->getOperands()) args.push_back(eval(o, index));
  llvm::SmallVector<Lanes, 2> results = elementwise(op, args);
  // Operations with several results: keep the others too.
  for (size_t r = 0; r < results.size() && results.size() > 1; ++r) {
    int level = 0;
    for (const Lanes &l : index) level = std::max<int>(level, l.level);
    frames_[std::min(level, currentLevel())].memo[keyOf(op->getResult(static_cast<unsigned>(r)), index)] = results[r];
  }
  return results[llvm::cast<mlir::OpResult>(v).getResultNumber()];
}

bool Emitter::evalRegion(mlir::Region &region, llvm::ArrayRef<Lanes> args, llvm::SmallVectorImpl<Lanes> &results) {
  if (!region.hasOneBlock()) return false;
  mlir::Block &block = region.front();
  llvm::DenseMap<mlir::Value, Lanes> local;
  for (unsigned i = 0; i < block.getNumArguments(); ++i) local[block.getArgument(i)] = args[i];
  auto value = [&](mlir::Value v) {
    auto it = local.find(v);
    return it != local.end() ? it->second : scalar(v);
  };
  auto runBlock = [&](auto &self, mlir::Block &body, llvm::SmallVectorImpl<Lanes> &out) -> bool {
    for (mlir::Operation &op : body) {
      const OpCode code = codeOf(&op);
      if (op.hasTrait<mlir::OpTrait::IsTerminator>()) {
        for (mlir::Value o : op.getOperands()) out.push_back(value(o));
        return true;
      }
      if (code == OpCode::ArithConstant) {
        local[op.getResult(0)] = constant(op.getAttr("value"), op.getResult(0).getType());
        continue;
      }
      if (code == OpCode::If) {
        // Both sides have no effects here: compute both and select.
        bool pure = true;
        op.walk([&](mlir::Operation *inner) {
          pure &= inner == &op || classOf(codeOf(inner)) == OpClass::Element ||
                  codeOf(inner) == OpCode::ArithConstant || codeOf(inner) == OpCode::Yield ||
                  codeOf(inner) == OpCode::If;
        });
        llvm::SmallVector<Lanes> yes, no;
        if (!pure || op.getRegion(0).empty() || !self(self, op.getRegion(0).front(), yes)) return false;
        if (!op.getRegion(1).empty() && !self(self, op.getRegion(1).front(), no)) return false;
        Lanes c = value(op.getOperand(0));
        for (unsigned i = 0; i < op.getNumResults(); ++i) {
          const int level = std::max({c.level, yes[i].level, no[i].level});
          AtLevel at(*this, level);
          const bool uniform = c.uniform() && yes[i].uniform() && no[i].uniform();
          local[op.getResult(i)] =
              fromValue(b.CreateSelect(uniform || c.uniform() ? c.base : vec(c), uniform ? yes[i].base : vec(yes[i]),
                                       uniform ? no[i].base : vec(no[i])),
                        level);
        }
        continue;
      }
      if (classOf(code) != OpClass::Element) {
        fail(&op, "operation " + op.getName().getStringRef().str() + " inside a combine function");
        return false;
      }
      llvm::SmallVector<Lanes, 4> operands;
      for (mlir::Value o : op.getOperands()) operands.push_back(value(o));
      llvm::SmallVector<Lanes, 2> r = elementwise(&op, operands);
      for (unsigned i = 0; i < op.getNumResults(); ++i) local[op.getResult(i)] = r[i];
    }
    return true;
  };
  return runBlock(runBlock, block, results);
}

} // namespace neso::cpu
