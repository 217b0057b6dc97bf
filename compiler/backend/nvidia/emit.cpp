// Frame of the kernel, and the walk over the operations of a tile function.
#include "backend/nvidia/emitter.h"

#include "backend/nvidia/passes/producer.h"
#include "backend/nvidia/wgmma.h"
#include "base/diagnostics/backend.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/IR/IntrinsicsNVPTX.h"

namespace neso::nvidia {

using llvm::BasicBlock;
using llvm::Value;

Emitter::Emitter(llvm::Module &module, const Chip &chip)
    : module_(module), chip_(chip), b(module.getContext()), block_{b, chip, 0, nullptr, nullptr, nullptr, shared_} {
  shared_.carryOut();
}

void Emitter::fail(mlir::Operation *op, const std::string &why) {
  if (error_) return;
  SourceLoc loc = sourceLoc(op->getLoc());
  if (!loc.known()) loc.context = op->getName().getStringRef().str();
  error_ = neso::fail(diag::NvidiaUnsupported, loc, why);
}

mlir::Type Emitter::elementOf(mlir::Type type) {
  if (auto t = llvm::dyn_cast<mlir::RankedTensorType>(type)) return t.getElementType();
  return type;
}

llvm::ArrayRef<int64_t> Emitter::shapeOf(mlir::Type type) {
  if (auto t = llvm::dyn_cast<mlir::RankedTensorType>(type)) return t.getShape();
  return {};
}

llvm::Type *Emitter::typeOf(mlir::Type element) {
  if (llvm::isa<tt::PointerType>(element)) return b.getPtrTy(1);
  if (element.isIndex()) return b.getInt64Ty();
  if (auto i = llvm::dyn_cast<mlir::IntegerType>(element)) return b.getIntNTy(i.getWidth());
  if (element.isF16()) return b.getHalfTy();
  if (element.isBF16()) return b.getBFloatTy();
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

Value *Emitter::special(llvm::Intrinsic::ID id) {
  return b.CreateIntrinsic(id, llvm::ArrayRef<llvm::Type *>(), llvm::ArrayRef<Value *>());
}

Value *Emitter::programId(int axis) {
  static constexpr llvm::Intrinsic::ID ids[] = {llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_x,
                                                llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_y,
                                                llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_z};
  return special(ids[axis]);
}

llvm::Function *Emitter::declareEntry(tt::FuncOp function, const std::string &symbol) {
  llvm::SmallVector<llvm::Type *, 8> types;
  for (mlir::Type type : function.getFunctionType().getInputs()) {
    auto pointer = llvm::dyn_cast<tt::PointerType>(type);
    const bool number = type.isIntOrIndex() || type.isF32() || type.isF64();
    const bool narrow = !number && llvm::isa<mlir::FloatType>(type); // passed as f32
    if (!number && !narrow && (!pointer || pointer.isBlock())) {
      fail(function, "a parameter that is neither a pointer to elements nor a number");
      return nullptr;
    }
    types.push_back(narrow ? b.getFloatTy() : memoryTypeOf(type));
  }
  const size_t given = types.size();
  function.walk([&](tt::MakeTensorDescOp) { types.push_back(b.getPtrTy()); });
  auto *fn = llvm::Function::Create(llvm::FunctionType::get(b.getVoidTy(), types, false),
                                    llvm::GlobalValue::ExternalLinkage, symbol, module_);
  fn->setCallingConv(llvm::CallingConv::PTX_Kernel);
  fn->addFnAttr("nvvm.reqntid", std::to_string(block_.threads() + 32 * block_.producerWarps));
  // Registers change hands where the assembler knows how many there are at first.
  if (block_.producerWarps) fn->addFnAttr("nvvm.minctasm", std::to_string(blocksWithProducer(chip_, block_.warps)));
  fn->addFnAttr(llvm::Attribute::NoUnwind);
  // Descriptors of tensors lie in the memory of the arguments.
  for (unsigned i = unsigned(given); i < types.size(); ++i) {
    llvm::Type *bytes = llvm::ArrayType::get(b.getInt8Ty(), uint64_t(kDescriptorBytes));
    fn->addParamAttr(i, llvm::Attribute::getWithByValType(b.getContext(), bytes));
    fn->addParamAttr(i, llvm::Attribute::getWithAlignment(b.getContext(), llvm::Align(uint64_t(kDescriptorAlign))));
    fn->addParamAttr(i, llvm::Attribute::get(b.getContext(), "nvvm.grid_constant"));
  }
  for (unsigned i = 0; i < given; ++i) {
    auto divisibility = function.getArgAttrOfType<mlir::IntegerAttr>(i, "tt.divisibility");
    const int64_t d = divisibility ? divisibility.getInt() : 1;
    if (types[i]->isPointerTy() && d > 1)
      fn->addParamAttr(i, llvm::Attribute::getWithAlignment(b.getContext(), llvm::Align(uint64_t(d & -d))));
  }
  return fn;
}

Status Emitter::emitKernel(tt::FuncOp function, const std::string &symbol, int maxRegisters) {
  if (function.getBody().empty())
    return neso::fail(diag::NvidiaUnsupported, sourceLoc(function.getLoc()), "a function without a body");
  auto warps = function->getAttrOfType<mlir::IntegerAttr>(placed::kWarpsAttr);
  NESO_CHECK(warps && function->hasAttr(placed::kSharedBytesAttr), "the function is placed");
  axis_.emplace(function);
  block_.warps = static_cast<int>(warps.getInt());
  const std::optional<Producer> producer = producerOf(function);
  block_.producerWarps = producer ? producer->warps : 0;
  fn_ = declareEntry(function, symbol);
  if (error_) return std::move(*error_);
  if (maxRegisters > 0) fn_->addFnAttr("nvvm.maxnreg", std::to_string(maxRegisters));

  b.SetInsertPoint(BasicBlock::Create(b.getContext(), "entry", fn_));
  Value *thread = special(llvm::Intrinsic::nvvm_read_ptx_sreg_tid_x);
  block_.thread = thread;
  block_.lane = b.CreateAnd(thread, b.getInt32(31));
  block_.warp = block_.warps == 1 ? static_cast<Value *>(b.getInt32(0)) : b.CreateLShr(thread, 5);

  const TensorMemoryPlan tensors = planTensorMemory(function, chip_);
  if (tensors.any()) tensorMemory_.emplace(block_, tensors, function->getAttrOfType<mlir::IntegerAttr>(placed::kSharedBytesAttr).getInt() - tensors.sharedBytes());

  // Once, where all warps come by: the shuffle would stand in every turn of a loop.
  block_.group = nullptr;
  function.walk([&](tt::DotOp dot) {
    if (!block_.group && traitsOf(dot.getOperation())->byGroups) block_.group = warpGroup(block_);
  });

  for (mlir::BlockArgument argument : function.getBody().front().getArguments()) {
    Value *v = fn_->getArg(argument.getArgNumber());
    mlir::Type type = argument.getType();
    if (type.isInteger(1)) v = b.CreateTrunc(v, b.getInt1Ty());
    if (llvm::isa<mlir::FloatType>(type) && v->getType()->isFloatTy() && !type.isF32())
      v = convertFloat(v, mlir::Float32Type::get(type.getContext()), type);
    scalars_[argument] = v;
  }
  unsigned next = function.getNumArguments();
  function.walk([&](tt::MakeTensorDescOp made) { scalars_[made] = fn_->getArg(next++); });
  scopes_.emplace_back();
  // The launch after this one may begin when the last block of this one has ended. Let it begin earlier, with
  // launch_dependents, and its blocks take the room of those that work: on an H100 DenseNet-121 in f32 took 3.3 ms in place of 2.3.
  waitsForLaunches_ = chip_.has(Feature::GridDependency);
  if (producer) {
    if (Status s = emitWithProducer(function, *producer); !s) return s;
  } else {
    emitBody(function.getBody());
    if (error_) return std::move(*error_);
  }
  if (tensorMemory_) tensorMemory_->finish();
  return Status::ok();
}

void Emitter::waitForLaunches(mlir::Operation *before) {
  if (!waitsForLaunches_) return;
  // Memory of the block's own is nobody else's; what a text of instructions reads, nobody knows. All threads come by: the first branch
  // is behind the wait.
  const OpCode code = codeOf(before);
  const bool own = code == OpCode::LocalAlloc || code == OpCode::Barriers;
  const bool sees = code == OpCode::InlineAsm || before->hasTrait<mlir::OpTrait::IsTerminator>() || !mlir::isMemoryEffectFree(before);
  if (own || !sees) return;
  waitsForLaunches_ = false;
  special(llvm::Intrinsic::nvvm_griddepcontrol_wait);
}

void Emitter::emitBody(mlir::Region &body) {
  // Blocks are emitted in dominance order of their listing, which both Triton's and our front end keep.
  for (mlir::Block &block : body) {
    if (&block == &body.front()) {
      blocks_[&block] = b.GetInsertBlock();
      continue;
    }
    blocks_[&block] = BasicBlock::Create(b.getContext(), "bb", fn_);
  }
  for (mlir::Block &block : body) {
    if (&block == &body.front()) continue;
    llvm::IRBuilderBase::InsertPointGuard guard(b);
    b.SetInsertPoint(blocks_[&block]);
    for (mlir::BlockArgument argument : block.getArguments()) declarePhis(argument);
  }
  for (mlir::Block &block : body) {
    if (&block != &body.front()) {
      b.SetInsertPoint(blocks_[&block]);
      // What the first block knows holds everywhere; the blocks after it tell one another nothing.
      scopes_.resize(1);
      scopes_.emplace_back();
    }
    emitBlock(block);
    if (failed()) return;
  }
}

void Emitter::emitBlock(mlir::Block &block) {
  for (mlir::Operation &op : block) {
    if (failed()) return;
    waitForLaunches(&op);
    auto waits = op.getAttrOfType<mlir::DenseI32ArrayAttr>(placed::kWaitsAttr);
    auto offsets = op.getAttrOfType<mlir::DenseI64ArrayAttr>(placed::kSharedAttr);
    const bool usesShared = waits || offsets;
    if (usesShared)
      shared_.begin(offsets ? offsets.asArrayRef() : llvm::ArrayRef<int64_t>(),
                    waits ? waits.asArrayRef() : llvm::ArrayRef<int32_t>());
    emitOp(&op);
    if (usesShared && !failed()) shared_.end();
  }
}

void Emitter::emitOp(mlir::Operation *op) {
  const OpCode code = codeOf(op);
  if (op->getNumResults() > 0 && classOf(code) != OpClass::Unknown) {
    // What has no place is computed where it gets one.
    mlir::Value first = op->getResult(0);
    if (llvm::isa<mlir::RankedTensorType>(first.getType()) && !layoutOf(first)) return;
  }
  auto axisOf = [&] { return static_cast<int>(op->getAttrOfType<mlir::IntegerAttr>("axis").getInt()); };
  switch (code) {
  case OpCode::ProgramId: scalars_[op->getResult(0)] = programId(axisOf()); return;
  case OpCode::NumPrograms: {
    static constexpr llvm::Intrinsic::ID ids[] = {llvm::Intrinsic::nvvm_read_ptx_sreg_nctaid_x,
                                                  llvm::Intrinsic::nvvm_read_ptx_sreg_nctaid_y,
                                                  llvm::Intrinsic::nvvm_read_ptx_sreg_nctaid_z};
    scalars_[op->getResult(0)] = special(ids[axisOf()]);
    return;
  }
  case OpCode::ArithConstant:
    scalars_[op->getResult(0)] = constant(op->getAttr("value"), op->getResult(0).getType(), {}, {});
    return;
  case OpCode::Poison:
    scalars_[op->getResult(0)] = llvm::Constant::getNullValue(typeOf(op->getResult(0).getType()));
    return;
  case OpCode::Unsplat: {
    // Every element is the same: any register will do.
    mlir::Value source = op->getOperand(0);
    scalars_[op->getResult(0)] = layoutOf(source)
                                     ? element(source, 0)
                                     : evalVirtual(source, Index(shapeOf(source.getType()).size(), b.getInt32(0)));
    return;
  }
  case OpCode::Load: return emitLoad(op);
  case OpCode::Store: return emitStore(op);
  case OpCode::AtomicRmw:
  case OpCode::AtomicCas:
  case OpCode::AtomicLoad:
  case OpCode::AtomicStore: return emitAtomic(op);
  case OpCode::Reduce: return emitReduce(op);
  case OpCode::Scan: return emitScan(op);
  case OpCode::Sort: return emitSort(op);
  case OpCode::Dot: return emitDotOp(op);
  case OpCode::Join: return emitJoin(op);
  case OpCode::Split: return emitSplit(op);
  case OpCode::Cat: return emitCat(op);
  case OpCode::Gather: return emitGather(op);
  case OpCode::Histogram: return emitHistogram(op);
  case OpCode::Print: return emitPrint(op);
  case OpCode::Assert: return emitAssert(op);
  case OpCode::Assume: return;
  case OpCode::Barrier:
  case OpCode::GpuBarrier:
    // Memory of other threads of the block is seen behind it, shared and global.
    if (turnOf(op) != Turn::None)
      emitTurn(op);
    else if (op->hasAttr(placed::kWithProducerAttr))
      emitBarrierOfAll(block_);
    else
      emitBarrier(block_);
    return;
  // Registers of the operand, or elements at an index: where they are used.
  case OpCode::Place:
  case OpCode::ExpandDims:
  case OpCode::Broadcast:
  case OpCode::Trans:
  case OpCode::Reshape: return;
  case OpCode::ConvertLayout:
    return define(op->getResult(0), convertTile(block_, tile(op->getOperand(0)), *layoutOf(op->getResult(0))));
  case OpCode::LocalAlloc: return emitRing(op);
  case OpCode::LocalDealloc: return emitRingEnd(op);
  case OpCode::LocalStore: return emitLocalStore(op);
  case OpCode::LocalLoad: return emitLocalLoad(op);
  case OpCode::AsyncCopy: return emitAsyncCopy(op);
  case OpCode::AsyncCommit: return emitAsyncCommit();
  case OpCode::AsyncWait: return emitAsyncWait(op);
  // An argument of the kernel, which has its value from the beginning.
  case OpCode::MakeDescriptor: return;
  case OpCode::Barriers: return emitBarriers(op);
  case OpCode::EndBarriers: return emitEndBarriers(op);
  case OpCode::ByOneThread:
    // Or what a producer does (emitSlice).
    if (!op->hasAttr(placed::kByProducerAttr)) emitByOneThread(op);
    return;
  case OpCode::Expect: return emitExpect(op);
  case OpCode::BulkCopy: return emitBulkCopy(op);
  case OpCode::Await: return emitAwait(op);
  case OpCode::Arrive: return emitArrive(op);
  case OpCode::FenceAsync: return emitFenceAsync(block_);
  case OpCode::WaitProducts: return emitWaitForProducts(op);
  // Where launches never overlap there is nothing to wait for.
  case OpCode::GridWait:
    if (chip_.has(Feature::GridDependency)) special(llvm::Intrinsic::nvvm_griddepcontrol_wait);
    return;
  case OpCode::GridLaunch:
    if (chip_.has(Feature::GridDependency)) special(llvm::Intrinsic::nvvm_griddepcontrol_launch_dependents);
    return;
  case OpCode::For: return emitFor(op);
  case OpCode::If: return emitIf(op);
  case OpCode::While: return emitWhile(op);
  case OpCode::MapElementwise: return emitMap(op);
  case OpCode::InlineAsm: return emitInlineAsm(op);
  case OpCode::Br:
  case OpCode::CondBr: return emitBranch(op);
  case OpCode::Return:
    if (tensorMemory_) tensorMemory_->giveBack();
    b.CreateRetVoid();
    return;
  case OpCode::Yield:
  case OpCode::Condition: return; // read by the operation that holds the region
  default: break;
  }
  if (classOf(code) == OpClass::Element && op->getNumResults() > 0) return emitElementwise(op);
  fail(op, "operation " + op->getName().getStringRef().str());
}

} // namespace neso::nvidia
