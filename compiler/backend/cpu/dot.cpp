// tt.dot: a register-blocked product of blocks that lie in memory.
//
// Operands are read in place where they can be, else packed into scratch first: A as rows [M][K], B as panels [N /
// panel][K][panel], both in the type of the accumulator. A is reached through a table of row pointers, so its rows need
// not be evenly spaced (a convolution's pixels are not) and a row that is masked off points to zeros. B in place is a
// plain load along contiguous rows that are near each other (or used by few rows of A), with no lane masked off, which
// is tested at run time for each block. The product of panel by row block keeps `rows × vectors` accumulators in
// registers; the accumulator block itself lives in scratch, in place of the loop-carried tensor when there is one.
#include <algorithm>

#include "backend/cpu/emitter.h"
#include "ir/tile/tile.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/IR/IntrinsicsX86.h"
#include "llvm/Support/MathExtras.h"

namespace neso::cpu {

using llvm::Value;

void Emitter::emitDot(mlir::Operation *op) {
  mlir::Value a = op->getOperand(0), bb = op->getOperand(1), c = op->getOperand(2), result = op->getResult(0);
  Shape aShape = shapeOf(a.getType()), cShape = shapeOf(result.getType());
  const size_t lead = cShape.size() - 2;
  const int64_t M = cShape[lead], N = cShape[lead + 1], K = aShape[lead + 1];
  mlir::MLIRContext *context = op->getContext();
  mlir::Type resultElement = elementOf(result.getType());
  mlir::Type computeType = resultElement.isF64() ? mlir::Type(mlir::Float64Type::get(context))
                           : llvm::isa<mlir::FloatType>(resultElement)
                               ? mlir::Type(mlir::Float32Type::get(context))
                               : mlir::Type(mlir::IntegerType::get(context, 32));
  llvm::Type *compute = typeOf(computeType);
  const int64_t size = bytesOf(computeType);
  const bool isFloat = compute->isFloatingPointTy();

  int64_t lanes = caps_.f32Lanes * 4 / size;
  while (lanes > N) lanes /= 2;
  const int64_t rows = std::min<int64_t>(M, caps_.dotRows);
  // Enough independent accumulators to hide the latency of a multiply-add.
  const int64_t wanted = static_cast<int64_t>(caps_.dotRows) * caps_.dotVectors;
  int64_t vectors = std::max<int64_t>(1, std::min(N / lanes, wanted / rows));
  const int64_t panel = lanes * vectors;

  // Where the accumulator lives: the buffer of the loop-carried tensor that the result becomes, if nobody reads the old
  // value later.
  Buffer *acc = nullptr;
  bool carried = false;
  if (resultElement == computeType && result.hasOneUse()) {
    mlir::Operation *user = *result.user_begin();
    mlir::Operation *parent = op->getParentOp();
    if (codeOf(user) == OpCode::Yield && codeOf(parent) == OpCode::For) {
      mlir::Value argument = op->getBlock()->getArgument(result.use_begin()->getOperandNumber() + 1);
      mlir::Operation *last = uses_->lastSink(argument);
      Buffer *buffer = buffers_.lookup(argument);
      if (buffer && (!last || last == op)) {
        acc = buffer;
        carried = c == argument;
      }
    }
  }
  const bool zero = [&] {
    mlir::Operation *def = c.getDefiningOp();
    if (!def || codeOf(def) != OpCode::ArithConstant) return false;
    Lanes l = constant(def->getAttr("value"), elementOf(c.getType()));
    auto *k = llvm::dyn_cast_or_null<llvm::Constant>(l.base);
    return k && k->isNullValue();
  }();
  Buffer *own = nullptr;
  if (!acc) acc = own = &newBuffer(computeType, cShape);
  if (!carried && !zero) {
    if (resultElement == computeType)
      fill(*acc, c);
    else {
      Nest nest = planNest(cShape, {c}, 64);
      sink([&] {
        runNest(nest, {}, [&](const Index &index) {
          Lanes x = eval(c, index);
          storeBuffer(
              *acc, index,
              fromValue(convertFloat(x.uniform() ? x.base : vec(x), resultElement, computeType, false), x.level));
        });
      });
    }
  }

  // Few rows that use B once read it as it is, and widen it on the way.
  mlir::Type narrow = elementOf(bb.getType());
  const bool fewRows = M <= 16;
  const mlir::Type storedType =
      fewRows && computeType.isF32() && (narrow.isBF16() || narrow.isF16()) ? narrow : computeType;
  const int64_t storedSize = bytesOf(storedType);
  // Pairs of bf16 in 4 bytes, two products a step: k counts pairs then, and B lies in panels of 16 columns as matrix
  // tiles have it.
  const mlir::Type pairType = fewRows || lanes != 16 || K % 2 || !caps_.bf16Pairs ? mlir::Type() : bf16OperandType(op);
  const int64_t units = pairType ? K / 2 : K;
  const bool gathers = gathering_ && gathering_->dot == op;

  auto block = [&](const Lanes *batch) {
    if (mlir::Type operandType = tileOperandType(op)) return emitTileProduct(op, operandType, *acc, zero, batch);
    llvm::Type *i64 = b.getInt64Ty();
    auto wide = [&](llvm::Type *t) {
      return lanes > 1 ? static_cast<llvm::Type *>(llvm::FixedVectorType::get(t, static_cast<unsigned>(lanes))) : t;
    };
    llvm::Type *vector = wide(compute), *stored = wide(typeOf(storedType));
    auto *pairs = llvm::FixedVectorType::get(b.getBFloatTy(), 32);
    const llvm::Align align(static_cast<uint64_t>(size)), storedAlign(static_cast<uint64_t>(storedSize));
    auto at = [&](Value *p, Value *offset) { return b.CreateGEP(b.getInt8Ty(), p, offset); };
    auto bytes = [&](int64_t n) { return b.getInt64(static_cast<uint64_t>(n)); };
    // Addresses of A's rows and, when turns are gathered, where B is: a line of the table for each turn.
    const int64_t lineBytes = (M + 3) * 8;
    Buffer table, packedRows;
    if (gathers) {
      Value *turn = b.CreateZExt(b.CreateLoad(b.getInt32Ty(), gathering_->count), i64);
      table = *gathering_->table, packedRows = *gathering_->rows;
      table.ptr = at(table.ptr, b.CreateMul(turn, bytes(lineBytes)));
      packedRows.ptr = at(packedRows.ptr, b.CreateMul(turn, bytes(M * K * size)));
    } else {
      Buffer &ownTable = newBuffer(mlir::IntegerType::get(context, 64), {M}), &ownRows = newBuffer(computeType, {M, K});
      freeAfter_[nullptr].push_back(&ownTable), freeAfter_[nullptr].push_back(&ownRows);
      table = ownTable, packedRows = ownRows;
    }
    table.shape = {M}, packedRows.shape = {M, K};
    // B is packed unless so few rows use it that copying it costs as much as using it.
    Value *zeroRow = leftRows(a, pairType ? pairType : computeType, batch, table, packedRows);
    Panels right;
    if (pairType)
      right = {tilePanels(op, pairType, batch), bytes(64), bytes(vectors * units * 64), false};
    else
      right = rightPanels(op, storedType, batch, panel, fewRows);
    Value *count = b.getInt32(1);
    if (gathers) {
      Value *words = at(table.ptr, bytes(M * 8));
      b.CreateStore(right.pointer, words);
      b.CreateStore(right.stride, at(words, bytes(8)));
      b.CreateStore(right.panelStride, at(words, bytes(16)));
      count = enterGathered();
    }
    Value *accBase = acc->ptr;
    if (batch) accBase = at(accBase, b.CreateMul(b.CreateZExt(batch->base, i64), bytes(M * N * size)));
    llvm::SmallVector<llvm::AllocaInst *, 16> registers;
    for (int64_t i = 0; i < rows * vectors; ++i) registers.push_back(entryAlloca(vector, "c"));
    int64_t unroll = std::min<int64_t>(units, rows >= 8 ? 4 : 8);
    while (units % unroll) unroll /= 2;
    // What the next block of k will read of B is fetched into the second cache while this one is computed: packed
    // weights come from memory once, and the hardware looks ahead too little to hide that. Each turn of the k loop asks
    // for its share of the cache lines.
    const int64_t lines = std::max<int64_t>(1, panel * storedSize / 64), steps = M / rows * (K / unroll);
    const int64_t ahead =
        right.inMemory && llvm::isPowerOf2_64(static_cast<uint64_t>(lines)) ? (K * lines + steps - 1) / steps : 0;
    const bool skips = zeroRow && op->hasAttr("tt.masked_rows_unused");
    // One turn's product of `rows` rows with a panel, added to the registers.
    auto multiply = [&](Value *line, const Panels &rightBlock, Value *i, Value *j) {
      Value *panelPointer = at(rightBlock.pointer, b.CreateMul(j, rightBlock.panelStride));
      llvm::SmallVector<Value *, 8> rowPointers;
      for (int64_t r = 0; r < rows; ++r) {
        Value *slot = at(line, b.CreateAdd(b.CreateMul(i, bytes(rows * 8)), bytes(r * 8)));
        rowPointers.push_back(b.CreateAlignedLoad(b.getPtrTy(), slot, llvm::Align(8)));
      }
      Value *end = b.getInt32(static_cast<uint32_t>(units));
      if (skips) {
        Value *any = b.getFalse();
        for (Value *p : rowPointers) any = b.CreateOr(any, b.CreateICmpNE(b.CreatePtrToInt(p, i64), zeroRow));
        end = b.CreateSelect(any, end, b.getInt32(0));
      }
      forLoop(b.getInt32(0), end, unroll, [&](Value *kv) {
        Value *k = b.CreateZExt(kv, i64);
        if (ahead > 0 && ahead <= 8) {
          Value *step = b.CreateAdd(b.CreateMul(i, bytes(K / unroll)), b.CreateUDiv(k, bytes(unroll)));
          for (int64_t n = 0; n < ahead; ++n) {
            Value *cacheLine = b.CreateAdd(b.CreateMul(step, bytes(ahead)), bytes(n));
            Value *row = b.CreateAdd(b.CreateUDiv(cacheLine, bytes(lines)), bytes(K));
            Value *within = b.CreateMul(b.CreateURem(cacheLine, bytes(lines)), bytes(64));
            Value *address = at(panelPointer, b.CreateAdd(b.CreateMul(row, rightBlock.stride), within));
            // A read, to be kept in the second cache, of data.
            b.CreateIntrinsic(llvm::Intrinsic::prefetch, {address->getType()},
                              {address, b.getInt32(0), b.getInt32(2), b.getInt32(1)});
          }
        }
        Value *bRow = at(panelPointer, b.CreateMul(k, rightBlock.stride));
        Value *kBytes = b.CreateMul(k, bytes(size));
        for (int64_t u = 0; u < unroll; ++u) {
          llvm::SmallVector<Value *, 4> columns;
          for (int64_t v = 0; v < vectors; ++v) {
            if (pairType) {
              columns.push_back(b.CreateAlignedLoad(pairs, at(bRow, bytes(v * units * 64)), llvm::Align(64)));
              continue;
            }
            Value *x = b.CreateAlignedLoad(stored, at(bRow, bytes(v * lanes * storedSize)), storedAlign);
            columns.push_back(storedType == computeType ? x : convertFloat(x, storedType, computeType, false));
          }
          for (int64_t r = 0; r < rows; ++r) {
            Value *p = at(at(rowPointers[r], kBytes), bytes(u * size));
            Value *x = b.CreateAlignedLoad(pairType ? b.getInt32Ty() : compute, p, pairType ? llvm::Align(2) : align);
            if (lanes > 1) x = b.CreateVectorSplat(static_cast<unsigned>(lanes), x);
            if (pairType) x = b.CreateBitCast(x, pairs);
            for (int64_t v = 0; v < vectors; ++v) {
              llvm::AllocaInst *cell = registers[r * vectors + v];
              Value *old = b.CreateLoad(vector, cell);
              Value *next = pairType  ? b.CreateIntrinsic(vector, llvm::Intrinsic::x86_avx512bf16_dpbf16ps_512,
                                                          {old, x, columns[v]})
                            : isFloat ? b.CreateIntrinsic(llvm::Intrinsic::fma, {vector}, {x, columns[v], old})
                                      : b.CreateAdd(old, b.CreateMul(x, columns[v]));
              b.CreateStore(next, cell);
            }
          }
          if (u + 1 < unroll) bRow = at(bRow, rightBlock.stride);
        }
      });
    };
    forLoop(0, N / panel, 1, [&](Value *jv) {
      Value *j = b.CreateZExt(jv, i64);
      forLoop(0, M / rows, 1, [&](Value *iv) {
        Value *i = b.CreateZExt(iv, i64);
        Value *tile =
            at(accBase, b.CreateAdd(b.CreateMul(i, bytes(rows * N * size)), b.CreateMul(j, bytes(panel * size))));
        auto accumulator = [&](int64_t r, int64_t v) { return at(tile, bytes((r * N + v * lanes) * size)); };
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t v = 0; v < vectors; ++v)
            b.CreateStore(zero ? static_cast<Value *>(llvm::Constant::getNullValue(vector))
                               : b.CreateAlignedLoad(vector, accumulator(r, v), align),
                          registers[r * vectors + v]);
        if (!gathers)
          multiply(table.ptr, right, i, j);
        else
          forLoop(b.getInt32(0), count, 1, [&](Value *turn) {
            Value *line = at(gathering_->table->ptr, b.CreateMul(b.CreateZExt(turn, i64), bytes(lineBytes)));
            Value *words = at(line, bytes(M * 8));
            multiply(line,
                     {b.CreateLoad(b.getPtrTy(), words), b.CreateLoad(i64, at(words, bytes(8))),
                      b.CreateLoad(i64, at(words, bytes(16))), false},
                     i, j);
          });
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t v = 0; v < vectors; ++v)
            b.CreateAlignedStore(b.CreateLoad(vector, registers[r * vectors + v]), accumulator(r, v), align);
      });
    });
    if (gathers) leaveGathered();
    freeAfter(nullptr);
    freeAfter_.erase(nullptr);
  };
  if (lead == 0)
    block(nullptr);
  else {
    // Batches one after another: the operands' blocks are packed for each. Nested sinks need the function's own level,
    // so the loop is a plain one.
    llvm::BasicBlock *loop = llvm::BasicBlock::Create(b.getContext(), "batch", fn_),
                     *exit = llvm::BasicBlock::Create(b.getContext(), "batches", fn_);
    llvm::BasicBlock *pre = b.GetInsertBlock();
    b.CreateBr(loop);
    b.SetInsertPoint(loop);
    llvm::PHINode *iv = b.CreatePHI(b.getInt32Ty(), 2);
    iv->addIncoming(b.getInt32(0), pre);
    frames_[0].block = loop;
    Lanes batch = fromValue(iv, 0);
    block(&batch);
    Value *next = b.CreateAdd(iv, b.getInt32(1));
    iv->addIncoming(next, b.GetInsertBlock());
    b.CreateCondBr(b.CreateICmpSLT(next, b.getInt32(static_cast<uint32_t>(cShape[0]))), loop, exit);
    b.SetInsertPoint(exit);
    frames_[0].block = exit;
  }

  if (resultElement != computeType) {
    Buffer &narrow = newBuffer(resultElement, cShape);
    Nest nest = planNest(cShape, {}, 64);
    sink([&] {
      runNest(nest, {}, [&](const Index &index) {
        Lanes x = loadBuffer(*acc, index);
        storeBuffer(narrow, index, fromValue(convertFloat(vec(x), computeType, resultElement, false), currentLevel()));
      });
    });
    freeBuffer(*acc);
    bind(result, narrow);
  } else if (own)
    bind(result, *own);
  else
    buffers_[result] = acc;
}

} // namespace neso::cpu
