// Frame of the kernel, walk over the operations of a tile function, reports.
#include "abi/kernel_abi.h"
#include "backend/common/arg_places.h"
#include "backend/cpu/emitter.h"
#include "base/diagnostics/backend.h"
#include "ir/tile/tile.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/IR/IntrinsicsX86.h"
#include "llvm/Support/SaveAndRestore.h"

namespace neso::cpu {

using llvm::BasicBlock;
using llvm::Value;

Emitter::Emitter(llvm::Module &module, CpuLevel level)
    : module_(module), level_(level), caps_(capabilities(level)), b(module.getContext()), math_(b, caps_.scales),
      affine_([this](mlir::Value v) { return initOf(v); }) {}

void Emitter::fail(mlir::Operation *op, const std::string &why) {
  if (error_) return;
  SourceLoc loc = sourceLoc(op->getLoc());
  if (!loc.known()) loc.context = op->getName().getStringRef().str();
  error_ = neso::fail(diag::CpuUnsupported, loc, why);
}

mlir::Type Emitter::elementOf(mlir::Type type) {
  if (auto t = llvm::dyn_cast<mlir::RankedTensorType>(type)) return t.getElementType();
  return type;
}

Shape Emitter::shapeOf(mlir::Type type) {
  if (auto t = llvm::dyn_cast<mlir::RankedTensorType>(type)) return Shape(t.getShape().begin(), t.getShape().end());
  return {};
}

llvm::Type *Emitter::typeOf(mlir::Type element) {
  if (llvm::isa<tt::PointerType>(element)) return b.getPtrTy();
  if (element.isIndex()) return b.getInt64Ty();
  if (auto i = llvm::dyn_cast<mlir::IntegerType>(element)) return b.getIntNTy(i.getWidth());
  if (element.isF16()) return b.getHalfTy();
  if (element.isF32()) return b.getFloatTy();
  if (element.isF64()) return b.getDoubleTy();
  if (auto f = llvm::dyn_cast<mlir::FloatType>(element)) return b.getIntNTy(f.getWidth());
  return b.getInt32Ty();
}

llvm::Type *Emitter::memoryTypeOf(mlir::Type element) {
  llvm::Type *t = typeOf(element);
  return t->isIntegerTy() && t->getIntegerBitWidth() < 8 ? b.getInt8Ty() : t;
}

int64_t Emitter::bytesOf(mlir::Type element) {
  llvm::Type *t = memoryTypeOf(element);
  return t->isPointerTy() ? 8 : static_cast<int64_t>(t->getPrimitiveSizeInBits().getFixedValue()) / 8;
}

llvm::Type *Emitter::typeLike(mlir::Type element, Value *like) {
  llvm::Type *t = typeOf(element);
  if (auto *v = llvm::dyn_cast<llvm::VectorType>(like->getType()))
    return llvm::VectorType::get(t, v->getElementCount());
  return t;
}

llvm::AllocaInst *Emitter::entryAlloca(llvm::Type *type, const char *name) {
  llvm::IRBuilderBase::InsertPointGuard guard(b);
  b.SetInsertPoint(entry_, entry_->begin());
  return b.CreateAlloca(type, nullptr, name);
}

Value *Emitter::globalText(llvm::StringRef text) { return b.CreateGlobalString(text, "text"); }

Result<int64_t> Emitter::emitKernel(mlir::Operation *function, const std::string &symbol, int64_t programs) {
  programs_ = programs;
  llvm::LLVMContext &context = module_.getContext();
  llvm::Type *ptr = b.getPtrTy(), *i64 = b.getInt64Ty();
  auto *type = llvm::FunctionType::get(b.getVoidTy(), {ptr, ptr, i64, i64, ptr}, false);
  fn_ = llvm::Function::Create(type, llvm::GlobalValue::ExternalLinkage, symbol, module_);
  setTargetAttributes(*fn_, level_);
  uses_ = std::make_unique<Uses>();
  mlir::Region &body = function->getRegion(0);
  if (body.empty()) return neso::fail(diag::CpuUnsupported, sourceLoc(function->getLoc()), "a function without a body");

  entry_ = BasicBlock::Create(context, "entry", fn_);
  BasicBlock *loop = programBegin_ = BasicBlock::Create(context, "program", fn_);
  programExit_ = BasicBlock::Create(context, "next", fn_);
  BasicBlock *exit = BasicBlock::Create(context, "exit", fn_);
  Value *begin = fn_->getArg(2), *end = fn_->getArg(3);
  env_ = fn_->getArg(4);
  b.SetInsertPoint(entry_);
  scratch_ = b.CreateLoad(ptr, env_, "scratch");
  llvm::cast<llvm::LoadInst>(scratch_)->setMetadata(
      llvm::LLVMContext::MD_align, llvm::MDNode::get(context, llvm::ConstantAsMetadata::get(b.getInt64(64))));
  dummy_ = b.CreateAlloca(b.getInt64Ty(), nullptr, "dummy");
  b.CreateStore(b.getInt64(0), dummy_);
  for (int i = 0; i < 3; ++i)
    sizes_[i] =
        b.CreateLoad(b.getInt32Ty(), b.CreateConstGEP1_64(b.getInt32Ty(), fn_->getArg(1), static_cast<uint64_t>(i)));
  loadArguments(body);
  Value *sx = b.CreateZExt(sizes_[0], i64), *sy = b.CreateZExt(sizes_[1], i64);
  b.CreateCondBr(b.CreateICmpULT(begin, end), loop, exit);

  b.SetInsertPoint(loop);
  llvm::PHINode *p = b.CreatePHI(i64, 2, "p");
  program_ = p;
  p->addIncoming(begin, entry_);
  ids_[0] = b.CreateTrunc(b.CreateURem(p, sx), b.getInt32Ty());
  Value *rest = b.CreateUDiv(p, sx);
  ids_[1] = b.CreateTrunc(b.CreateURem(rest, sy), b.getInt32Ty());
  ids_[2] = b.CreateTrunc(b.CreateUDiv(rest, sy), b.getInt32Ty());
  frames_.assign(1, Frame{loop, {}});
  emitBody(body, programExit_);

  programExit_->moveAfter(&fn_->back());
  b.SetInsertPoint(programExit_);
  Value *next = b.CreateAdd(p, b.getInt64(1));
  p->addIncoming(next, programExit_);
  b.CreateCondBr(b.CreateICmpULT(next, end), loop, exit);
  exit->moveAfter(&fn_->back());
  b.SetInsertPoint(exit);
  if (usesTiles_) configureTiles(exit);
  // Whoever is told that the launch has ended finds in memory what it wrote.
  if (leavesStores_) b.CreateIntrinsic(b.getVoidTy(), llvm::Intrinsic::x86_sse_sfence, {});
  b.CreateRetVoid();
  if (error_) return std::move(*error_);
  return (scratchTop_ + 63) / 64 * 64;
}

void Emitter::loadArguments(mlir::Region &body) {
  const std::vector<neso_arg_place> places = argPlaces(llvm::cast<tt::FuncOp>(body.getParentOp()));
  for (mlir::BlockArgument argument : body.front().getArguments()) {
    Value *slot = b.CreateConstGEP1_64(b.getInt64Ty(), fn_->getArg(0), places[argument.getArgNumber()].offset / 8);
    mlir::Type type = argument.getType();
    Value *v = nullptr;
    if (auto p = llvm::dyn_cast<tt::PointerType>(type); p && !p.isBlock())
      v = b.CreateLoad(b.getPtrTy(), slot);
    else if (type.isIntOrIndex())
      v = b.CreateTrunc(b.CreateLoad(b.getInt64Ty(), slot), typeOf(type));
    else if (type.isF64())
      v = b.CreateLoad(b.getDoubleTy(), slot);
    else if (llvm::isa<mlir::FloatType>(type))
      v = convertFloat(b.CreateLoad(b.getFloatTy(), slot), mlir::Float32Type::get(type.getContext()), type, false);
    else {
      fail(body.getParentOp(), "a parameter that is neither a pointer to elements nor a number");
      v = llvm::PoisonValue::get(typeOf(type));
    }
    scalars_[argument] = fromValue(v, 0);
  }
}

void Emitter::emitBody(mlir::Region &body, BasicBlock *exit) {
  // Blocks are emitted in dominance order of their listing, which both Triton's and our front end keep.
  for (mlir::Block &block : body) {
    if (&block == &body.front()) {
      blocks_[&block] = b.GetInsertBlock();
      continue;
    }
    blocks_[&block] = BasicBlock::Create(b.getContext(), "bb", fn_);
    for (mlir::BlockArgument argument : block.getArguments()) declareCarried(argument);
  }
  for (mlir::Block &block : body) {
    if (&block != &body.front()) {
      b.SetInsertPoint(blocks_[&block]);
      for (mlir::BlockArgument argument : block.getArguments()) loadCarried(argument);
    }
    frames_[0].block = b.GetInsertBlock();
    emitBlock(block);
    if (failed()) {
      // Leave valid IR behind; the caller drops the module.
      if (!b.GetInsertBlock()->getTerminator()) b.CreateBr(exit);
      for (mlir::Block &rest : body)
        if (BasicBlock *bb = blocks_.lookup(&rest); bb && !bb->getTerminator()) {
          b.SetInsertPoint(bb);
          b.CreateBr(exit);
        }
      return;
    }
  }
}

void Emitter::emitBlock(mlir::Block &block) {
  llvm::SaveAndRestore<mlir::Block *> here(block_, &block);
  llvm::SmallVector<mlir::Operation *, 4> done;
  for (mlir::Operation &op : block) {
    if (failed()) return;
    if (std::find(done.begin(), done.end(), &op) != done.end()) continue;
    if (codeOf(&op) == OpCode::Store) {
      done = uses_->storeGroup(&op);
      mlir::Operation *const last = done.back();
      for (mlir::Operation *between = &op; between != last; between = between->getNextNode())
        if (!uses_->isVirtual(between) && codeOf(between) != OpCode::Store) {
          emitOp(between);
          done.push_back(between);
        }
      llvm::SmallVector<mlir::Operation *, 4> stores;
      for (mlir::Operation *s : done)
        if (codeOf(s) == OpCode::Store) stores.push_back(s);
      emitStores(stores);
      for (mlir::Operation *s : stores) freeAfter(s);
      continue;
    }
    emitOp(&op);
    // What a terminator reads may be read in other blocks too; loops free what their yield read themselves.
    if (!op.hasTrait<mlir::OpTrait::IsTerminator>()) freeAfter(&op);
  }
}

void Emitter::emitOp(mlir::Operation *op) {
  const OpCode code = codeOf(op);
  width_ = 1;
  if (uses_->isVirtual(op)) {
    for (mlir::Value r : op->getResults())
      if (uses_->mustKeep(r) && !buffers_.count(r)) materialize(r);
    return;
  }
  switch (code) {
  case OpCode::ProgramId:
    scalars_[op->getResult(0)] = fromValue(ids_[op->getAttrOfType<mlir::IntegerAttr>("axis").getInt()], 0);
    return;
  case OpCode::NumPrograms:
    scalars_[op->getResult(0)] = fromValue(sizes_[op->getAttrOfType<mlir::IntegerAttr>("axis").getInt()], 0);
    return;
  case OpCode::ArithConstant:
    scalars_[op->getResult(0)] = constant(op->getAttr("value"), op->getResult(0).getType());
    return;
  case OpCode::Poison:
    scalars_[op->getResult(0)] = fromValue(llvm::Constant::getNullValue(typeOf(op->getResult(0).getType())), 0);
    return;
  case OpCode::Load:
    frames_[0].memo.clear();
    scalars_[op->getResult(0)] = loadOp(op, {});
    return;
  case OpCode::Unsplat: {
    mlir::Value source = op->getOperand(0);
    frames_[0].memo.clear();
    scalars_[op->getResult(0)] = eval(source, Index(shapeOf(source.getType()).size(), uniformInt(0)));
    return;
  }
  case OpCode::Store: return emitStores(op);
  case OpCode::AtomicRmw:
  case OpCode::AtomicCas:
  case OpCode::AtomicLoad:
  case OpCode::AtomicStore: return emitAtomic(op);
  case OpCode::Reduce: return emitReduce(op);
  case OpCode::Scan: return emitScan(op);
  case OpCode::Dot: return emitDot(op);
  case OpCode::Histogram: return emitHistogram(op);
  case OpCode::Print: return emitPrint(op);
  case OpCode::Assert: return emitAssert(op);
  case OpCode::Assume:
  case OpCode::Barrier:
  case OpCode::GpuBarrier:
  case OpCode::GridWait:
  case OpCode::GridLaunch: return;
  case OpCode::For: return emitFor(op);
  case OpCode::If: return emitIf(op);
  case OpCode::While: return emitWhile(op);
  case OpCode::MapElementwise: return emitScalarMap(op);
  case OpCode::Br:
  case OpCode::CondBr: return emitBranch(op);
  case OpCode::Return: b.CreateBr(programExit_); return;
  case OpCode::Yield:
  case OpCode::Condition: return; // read by the operation that holds the region
  default: break;
  }
  if (classOf(code) == OpClass::Element && op->getNumResults() > 0) {
    llvm::SmallVector<Lanes, 4> args;
    for (mlir::Value o : op->getOperands()) args.push_back(scalar(o));
    llvm::SmallVector<Lanes, 2> results = elementwise(op, args);
    for (unsigned i = 0; i < op->getNumResults() && i < results.size(); ++i) {
      results[i].level = 0;
      scalars_[op->getResult(i)] = results[i];
    }
    return;
  }
  fail(op, "operation " + op->getName().getStringRef().str());
}

// ------------------------------------------------------------------------------------------------------------------------- reports

void Emitter::report(int event, Value *text, int line, Value *values, Value *n, bool isFloat) {
  llvm::Type *ptr = b.getPtrTy(), *i32 = b.getInt32Ty(), *i64 = b.getInt64Ty();
  Value *data = b.CreateLoad(ptr, b.CreateConstGEP1_64(b.getInt8Ty(), env_, offsetof(neso_kernel_env, report_data)));
  Value *function = b.CreateLoad(ptr, b.CreateConstGEP1_64(b.getInt8Ty(), env_, offsetof(neso_kernel_env, report)));
  auto *type = llvm::FunctionType::get(b.getVoidTy(), {ptr, i32, i64, ptr, i32, ptr, i64, i32}, false);
  b.CreateCall(type, function,
               {data, b.getInt32(static_cast<uint32_t>(event)), program_, text, b.getInt32(static_cast<uint32_t>(line)),
                values, n, b.getInt32(isFloat)});
}

void Emitter::emitAssert(mlir::Operation *op) {
  mlir::Value condition = op->getOperand(0);
  llvm::StringRef message = op->getAttrOfType<mlir::StringAttr>("message").getValue();
  const int line = sourceLoc(op->getLoc()).line;
  Value *failedAny = nullptr;
  if (isTensor(condition.getType())) {
    llvm::AllocaInst *cell = entryAlloca(b.getInt1Ty(), "failed");
    b.CreateStore(b.getFalse(), cell);
    Shape shape = shapeOf(condition.getType());
    Nest nest = planNest(shape, {condition}, 64);
    sink([&] {
      b.CreateStore(b.getFalse(), cell);
      runNest(nest, {}, [&](const Index &index) {
        Value *bad = b.CreateNot(vec(eval(condition, index)));
        if (bad->getType()->isVectorTy()) bad = b.CreateOrReduce(bad);
        b.CreateStore(b.CreateOr(b.CreateLoad(b.getInt1Ty(), cell), bad), cell);
      });
    });
    failedAny = b.CreateLoad(b.getInt1Ty(), cell);
  } else
    failedAny = b.CreateNot(scalar(condition).base);
  ifThen(failedAny, [&] {
    report(NESO_KERNEL_ASSERT, globalText(message), line, llvm::ConstantPointerNull::get(b.getPtrTy()), b.getInt64(0),
           false);
  });
  frames_[0].block = b.GetInsertBlock();
}

void Emitter::emitPrint(mlir::Operation *op) {
  llvm::StringRef prefix = op->getAttrOfType<mlir::StringAttr>("prefix").getValue();
  const int line = sourceLoc(op->getLoc()).line;
  if (op->getNumOperands() == 0)
    return report(NESO_KERNEL_PRINT, globalText(prefix), line, llvm::ConstantPointerNull::get(b.getPtrTy()),
                  b.getInt64(0), false);
  auto isSigned = op->getAttrOfType<mlir::DenseI32ArrayAttr>("isSigned");
  for (unsigned i = 0; i < op->getNumOperands(); ++i) {
    mlir::Value v = op->getOperand(i);
    mlir::Type element = elementOf(v.getType());
    const bool isFloat = llvm::isa<mlir::FloatType>(element);
    mlir::Type wideType = isFloat ? mlir::Type(mlir::Float64Type::get(op->getContext()))
                                  : mlir::Type(mlir::IntegerType::get(op->getContext(), 64));
    Shape shape = shapeOf(v.getType());
    Buffer &buffer = newBuffer(wideType, shape);
    auto widen = [&](Value *x) -> Value * {
      if (isFloat) return convertFloat(x, element, wideType, false);
      if (x->getType()->isPointerTy()) return b.CreatePtrToInt(x, b.getInt64Ty());
      return isSigned && i < isSigned.size() && isSigned[i] && !x->getType()->isIntegerTy(1)
                 ? b.CreateSExt(x, b.getInt64Ty())
                 : b.CreateZExt(x, b.getInt64Ty());
    };
    int64_t n = 1;
    for (int64_t s : shape) n *= s;
    if (isTensor(v.getType())) {
      Nest nest = planNest(shape, {v}, 1);
      sink([&] {
        runNest(nest, {}, [&](const Index &index) {
          storeBuffer(buffer, index, fromValue(widen(toVector(b, eval(v, index), 1)), currentLevel()));
        });
      });
    } else
      b.CreateStore(widen(scalar(v).base), buffer.ptr);
    report(NESO_KERNEL_PRINT, globalText(prefix), line, buffer.ptr, b.getInt64(static_cast<uint64_t>(n)), isFloat);
    freeBuffer(buffer);
  }
}

} // namespace neso::cpu
