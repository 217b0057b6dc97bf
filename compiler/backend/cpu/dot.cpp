// tt.dot: a register-blocked product of blocks that lie in memory.
//
// Operands are read in place where they can be, else packed into scratch first: A as rows [M][K], B as panels [N /
// panel][K][panel], both in the type of the accumulator. A is reached through a table of row pointers, so its rows need
// not be evenly spaced (a convolution's pixels are not) and a row that is masked off points to zeros. B in place is a
// plain load along contiguous rows that are near each other (or used by few rows of A), with no lane masked off, which
// is tested at run time for each block. B that is computed (dequantised weights) is packed too, but for rows of A that are all in registers at
// once: then no element of it is used twice, and it never lies in memory. The product of panel by row block keeps `rows × vectors` accumulators in
// registers; the accumulator block itself lives in scratch, in place of the loop-carried tensor when there is one.
#include <algorithm>

#include "backend/cpu/emitter.h"
#include "ir/tile/attributes.h"
#include "ir/tile/tile.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/IR/IntrinsicsX86.h"
#include "llvm/Support/MathExtras.h"

namespace neso::cpu {

using llvm::Value;

static llvm::Type *vectorOf(llvm::Type *element, int64_t lanes) {
  return lanes > 1 ? llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes)) : element;
}

/// How many rows the registers hold at a time, `most` or fewer, so that the fewest are computed of which `valid` of `M` count: seven times seven of
/// the 49 pixels that the last layers of networks for images have. What a block of rows costs beside them counts as one more.
static int64_t rowsTogether(int64_t M, int64_t valid, int64_t most) {
  int64_t best = std::min(M, most), bestCost = INT64_MAX;
  for (int64_t rows = best; rows > 0; --rows) {
    const int64_t blocks = static_cast<int64_t>(llvm::divideCeil(valid, rows)), cost = blocks * (rows + 1);
    if (blocks * rows <= M && cost < bestCost) best = rows, bestCost = cost;
  }
  return best;
}

Emitter::Product Emitter::planProduct(mlir::Operation *op) {
  Product p;
  p.op = op;
  const Shape aShape = shapeOf(op->getOperand(0).getType());
  p.shape = shapeOf(op->getResult(0).getType());
  p.lead = p.shape.size() - 2;
  p.M = p.shape[p.lead], p.N = p.shape[p.lead + 1], p.K = aShape[p.lead + 1];
  mlir::MLIRContext *context = op->getContext();
  p.resultType = elementOf(op->getResult(0).getType());
  p.computeType = p.resultType.isF64() ? mlir::Type(mlir::Float64Type::get(context))
                  : llvm::isa<mlir::FloatType>(p.resultType)
                      ? mlir::Type(mlir::Float32Type::get(context))
                      : mlir::Type(mlir::IntegerType::get(context, p.resultType.isInteger(64) ? 64 : 32));
  p.size = bytesOf(p.computeType);
  p.lanes = caps_.f32Lanes * 4 / p.size;
  while (p.lanes > p.N) p.lanes /= 2;
  const auto rows = op->getAttrOfType<mlir::IntegerAttr>(tile::kValidMAttr);
  const int64_t validRows = rows && p.lead == 0 ? rows.getInt() : p.M;
  p.rows = rowsTogether(p.M, validRows, caps_.dotRows);
  p.rowBlocks = static_cast<int64_t>(llvm::divideCeil(static_cast<uint64_t>(validRows), static_cast<uint64_t>(p.rows)));
  // Enough independent accumulators to hide the latency of a multiply-add.
  const int64_t wanted = static_cast<int64_t>(caps_.dotRows) * caps_.dotVectors;
  p.vectors = std::max<int64_t>(1, std::min<int64_t>(p.N / p.lanes, llvm::bit_floor(static_cast<uint64_t>(wanted / p.rows))));
  const auto columns = op->getAttrOfType<mlir::IntegerAttr>(tile::kValidNAttr);
  p.panels = static_cast<int64_t>(llvm::divideCeil(static_cast<uint64_t>(columns && p.lead == 0 ? columns.getInt() : p.N), static_cast<uint64_t>(p.panel())));
  // Few rows that use B once read it as it is, and widen it on the way.
  p.fewRows = p.M <= 16;
  const mlir::Type narrow = elementOf(op->getOperand(1).getType());
  p.storedType =
      p.fewRows && p.computeType.isF32() && (narrow.isBF16() || narrow.isF16()) ? narrow : p.computeType;
  // Pairs of bf16 in 4 bytes, two products a step: k counts pairs then, and B lies in panels of 16 columns as matrix
  // tiles have it.
  if (!p.fewRows && p.lanes == 16 && p.K % 2 == 0 && caps_.bf16Pairs) p.pairType = bf16OperandType(op);
  const auto valid = op->getAttrOfType<mlir::IntegerAttr>(tile::kValidKAttr);
  p.valid = valid && !p.pairType ? valid.getInt() : p.K;
  p.units = p.pairType ? p.K / 2 : p.valid;
  p.computed = p.fewRows && p.lead == 0 && p.rowBlocks == 1 && computesAlongRows(op->getOperand(1));
  p.gathers = gathering_ && gathering_->dot == op;
  p.fixed = multipliesFixed(p);
  p.mayPackDown = !p.fixed && !p.pairType;
  return p;
}

mlir::Value Emitter::rowFactors(const Product &p, mlir::Value c, mlir::Value sums) {
  mlir::Operation *def = c.getDefiningOp();
  if (!def || codeOf(def) != OpCode::MulF || !c.hasOneUse() || buffers_.count(c) || p.lead != 0 || p.gathers || p.fixed || tileOperandType(p.op)) return {};
  for (unsigned k : {0u, 1u}) {
    mlir::Operation *spread = def->getOperand(1 - k).getDefiningOp();
    if (def->getOperand(k) == sums && spread && codeOf(spread) == OpCode::Broadcast && shapeOf(spread->getOperand(0).getType()) == Shape{p.M, 1})
      return spread->getOperand(0);
  }
  return {};
}

/// Where the accumulator lives: the buffer of the loop-carried tensor that the result becomes, if nobody reads the old
/// value later; else one of its own. Filled with the third operand unless it holds that already or is to start at zero.
void Emitter::placeAccumulator(Product &p) {
  mlir::Value c = p.op->getOperand(2), result = p.op->getResult(0);
  mlir::Value factors;
  bool carried = false;
  if (p.resultType == p.computeType && result.hasOneUse()) {
    mlir::Operation *user = *result.user_begin();
    if (codeOf(user) == OpCode::Yield && codeOf(p.op->getParentOp()) == OpCode::For) {
      mlir::Value argument = p.op->getBlock()->getArgument(result.use_begin()->getOperandNumber() + 1);
      mlir::Operation *last = uses_->lastSink(argument);
      Buffer *buffer = buffers_.lookup(argument);
      if (buffer && (!last || last == p.op)) {
        p.acc = buffer;
        carried = c == argument;
        factors = rowFactors(p, c, argument);
      }
    }
  }
  if (mlir::Operation *def = c.getDefiningOp(); def && codeOf(def) == OpCode::ArithConstant) {
    Lanes start = constant(def->getAttr("value"), elementOf(c.getType()));
    auto *k = llvm::dyn_cast_or_null<llvm::Constant>(start.base);
    p.zero = k && k->isNullValue();
  }
  p.ownAcc = !p.acc;
  if (p.ownAcc) p.acc = &newBuffer(p.computeType, p.shape);
  // Rows that are not computed are not used, but what is done with the others' sums is done with theirs too: with numbers that are always the same.
  if (const int64_t computed = p.rowBlocks * p.rows; p.zero && !carried && computed < p.M)
    b.CreateMemSet(bytesAfter(p.acc->ptr, b.getInt64(static_cast<uint64_t>(computed * p.N * p.size))), b.getInt8(0),
                   static_cast<uint64_t>((p.M - computed) * p.N * p.size), llvm::MaybeAlign(4));
  if (carried || p.zero) return;
  if (factors) {
    p.factors = &newBuffer(p.computeType, {p.M});
    freeAfter_[nullptr].push_back(p.factors);
    Nest nest = planNest(p.factors->shape, {}, 64);
    return sink([&] { runNest(nest, {}, [&](const Index &row) { storeBuffer(*p.factors, row, eval(factors, {row[0], uniformInt(0)})); }); });
  }
  if (p.resultType == p.computeType) return fill(*p.acc, c);
  Nest nest = planNest(p.shape, {c}, 64);
  sink([&] {
    runNest(nest, {}, [&](const Index &index) {
      Lanes x = eval(c, index);
      Value *wide = convertFloat(x.uniform() ? x.base : vec(x), p.resultType, p.computeType, false);
      storeBuffer(*p.acc, index, fromValue(wide, x.level));
    });
  });
}

/// The result's element of type resultType, from the accumulator.
void Emitter::bindProduct(const Product &p) {
  mlir::Value result = p.op->getResult(0);
  if (p.resultType == p.computeType) {
    if (p.ownAcc)
      bind(result, *p.acc);
    else
      buffers_[result] = p.acc;
    return;
  }
  Buffer &narrow = newBuffer(p.resultType, p.shape);
  Nest nest = planNest(p.shape, {}, 64);
  sink([&] {
    runNest(nest, {}, [&](const Index &index) {
      Lanes x = loadBuffer(*p.acc, index);
      storeBuffer(narrow, index, fromValue(convertFloat(vec(x), p.computeType, p.resultType, false), currentLevel()));
    });
  });
  freeBuffer(*p.acc);
  bind(result, narrow);
}

Value *Emitter::bytesAfter(Value *p, Value *offset) { return b.CreateGEP(b.getInt8Ty(), p, offset); }

/// Columns k of one row of B, a panel's width of them, in vectors of the accumulator's type (or of pairs).
llvm::SmallVector<Value *, 4> Emitter::rightColumns(const Product &p, Value *row) {
  auto *pairs = llvm::FixedVectorType::get(b.getBFloatTy(), 32);
  llvm::SmallVector<Value *, 4> columns;
  const int64_t storedSize = bytesOf(p.storedType);
  for (int64_t v = 0; v < p.vectors; ++v) {
    if (p.pairType) {
      Value *at = bytesAfter(row, b.getInt64(static_cast<uint64_t>(v * p.units * 64)));
      columns.push_back(b.CreateAlignedLoad(pairs, at, llvm::Align(64)));
      continue;
    }
    Value *at = bytesAfter(row, b.getInt64(static_cast<uint64_t>(v * p.lanes * storedSize)));
    Value *x = b.CreateAlignedLoad(vectorOf(typeOf(p.storedType), p.lanes), at,
                                   llvm::Align(static_cast<uint64_t>(storedSize)));
    columns.push_back(p.storedType == p.computeType ? x : convertFloat(x, p.storedType, p.computeType, false));
  }
  return columns;
}

bool Emitter::computesAlongRows(mlir::Value v) {
  mlir::Operation *def = v.getDefiningOp();
  return def && uses_->isVirtual(def) && codeOf(def) != OpCode::Load && !buffers_.count(v) &&
         unitDim(shapeOf(v.getType()), {v}) == 1;
}

llvm::SmallVector<Value *, 4> Emitter::computedColumns(const Product &p, const Lanes &j, const Lanes &k) {
  mlir::Value right = p.op->getOperand(1);
  llvm::SmallVector<Value *, 4> columns;
  for (int64_t v = 0; v < p.vectors; ++v) {
    Lanes column = intOp(IntOp::Add, intOp(IntOp::Mul, j, uniformInt(p.panel())), uniformInt(v * p.lanes));
    if (p.lanes > 1) column.kind = Lanes::Kind::Offsets, column.offsets = pool_.run(p.lanes, 1);
    column.align = static_cast<uint8_t>(llvm::Log2_64(static_cast<uint64_t>(p.lanes)));
    columns.push_back(vec(operandElement(eval(right, {k, column}), elementOf(right.getType()), p.computeType)));
  }
  return columns;
}

/// What the next block of k will read of B is fetched into the second cache while this one is computed: packed weights
/// come from memory once, and the hardware looks ahead too little to hide that. Each turn of the k loop asks for its
/// share of the cache lines.
void Emitter::prefetchNext(const Product &p, const Panels &right, Value *panel, Value *i, Value *k, int64_t unroll) {
  const int64_t lines = std::max<int64_t>(1, p.panel() * bytesOf(p.storedType) / 64);
  const int64_t steps = p.rowBlocks * (p.valid / unroll);
  const int64_t ahead =
      right.inMemory && llvm::isPowerOf2_64(static_cast<uint64_t>(lines)) ? (p.valid * lines + steps - 1) / steps : 0;
  if (ahead == 0 || ahead > 8) return;
  auto number = [&](int64_t n) { return b.getInt64(static_cast<uint64_t>(n)); };
  Value *step = b.CreateAdd(b.CreateMul(i, number(p.valid / unroll)), b.CreateUDiv(k, number(unroll)));
  for (int64_t n = 0; n < ahead; ++n) {
    Value *cacheLine = b.CreateAdd(b.CreateMul(step, number(ahead)), number(n));
    Value *row = b.CreateAdd(b.CreateUDiv(cacheLine, number(lines)), number(p.valid));
    Value *within = b.CreateMul(b.CreateURem(cacheLine, number(lines)), number(64));
    Value *address = bytesAfter(panel, b.CreateAdd(b.CreateMul(row, right.stride), within));
    // A read, to be kept in the second cache, of data.
    b.CreateIntrinsic(llvm::Intrinsic::prefetch, {address->getType()},
                      {address, b.getInt32(0), b.getInt32(2), b.getInt32(1)});
  }
}

/// One turn's product of `rows` rows (block i, addresses in `line`) with panel j of B, added to the registers.
void Emitter::multiplyBlock(const Product &p, const Registers &registers, Value *line, const Panels &right,
                            const LeftRows &left, Value *i, const Lanes &j) {
  llvm::Type *i64 = b.getInt64Ty(), *compute = typeOf(p.computeType);
  auto number = [&](int64_t n) { return b.getInt64(static_cast<uint64_t>(n)); };
  Value *panel =
      p.computed ? nullptr : bytesAfter(right.pointer, b.CreateMul(b.CreateZExt(j.base, i64), right.panelStride));
  llvm::SmallVector<Value *, 8> rows;
  for (int64_t r = 0; r < p.rows; ++r) {
    Value *slot = bytesAfter(line, b.CreateAdd(b.CreateMul(i, number(p.rows * 8)), number(r * 8)));
    rows.push_back(b.CreateAlignedLoad(b.getPtrTy(), slot, llvm::Align(8)));
  }
  int64_t unroll = std::min<int64_t>(p.units, p.rows >= 8 && !p.computed ? 4 : 8);
  while (unroll > 4 && p.units % unroll) unroll /= 2;
  Value *used = nullptr;
  if (left.nothing) {
    used = b.getFalse();
    for (Value *row : rows) used = b.CreateOr(used, b.CreateICmpNE(b.CreatePtrToInt(row, i64), left.nothing));
  }
  auto turn = [&](Value *kv, int64_t count) {
    Value *k = b.CreateZExt(kv, i64);
    Lanes row = fromValue(kv, currentLevel());
    row.align = static_cast<uint8_t>(llvm::countr_zero(static_cast<uint64_t>(count)));
    Value *bRow = nullptr, *kBytes = b.CreateMul(k, number(left.step));
    if (!p.computed) {
      prefetchNext(p, right, panel, i, k, unroll);
      bRow = bytesAfter(panel, b.CreateMul(k, right.stride));
    }
    for (int64_t u = 0; u < count; ++u) {
      const llvm::SmallVector<Value *, 4> columns =
          p.computed ? computedColumns(p, j, intOp(IntOp::Add, row, uniformInt(u))) : rightColumns(p, bRow);
      for (int64_t r = 0; r < p.rows; ++r) {
        Value *at = bytesAfter(bytesAfter(rows[r], kBytes), number(u * left.step));
        const llvm::Align align(p.pairType ? 2 : static_cast<uint64_t>(p.size));
        Value *x = b.CreateAlignedLoad(p.pairType ? b.getInt32Ty() : compute, at, align);
        if (p.lanes > 1) x = b.CreateVectorSplat(static_cast<unsigned>(p.lanes), x);
        if (p.pairType) x = b.CreateBitCast(x, columns[0]->getType());
        for (int64_t v = 0; v < p.vectors; ++v) addProduct(p, registers[r * p.vectors + v], x, columns[v]);
      }
      if (bRow && u + 1 < count) bRow = bytesAfter(bRow, right.stride);
    }
  };
  const int64_t whole = p.units - p.units % unroll;
  for (auto [from, to, count] : {std::tuple{int64_t{0}, whole, unroll}, std::tuple{whole, p.units, p.units - whole}}) {
    if (from == to) continue;
    Value *lo = b.getInt32(static_cast<uint32_t>(from)), *hi = b.getInt32(static_cast<uint32_t>(to));
    if (used) hi = b.CreateSelect(used, hi, b.getInt32(0));
    forLoop(lo, hi, count, [&, count = count](Value *k) { turn(k, count); });
  }
}

/// x y + sum.
Value *Emitter::multiplyAdd(const Product &p, Value *x, Value *y, Value *sum) {
  llvm::Type *type = sum->getType();
  if (p.pairType && x->getType() != type) return b.CreateIntrinsic(type, llvm::Intrinsic::x86_avx512bf16_dpbf16ps_512, {sum, x, y});
  if (!llvm::isa<mlir::FloatType>(p.computeType)) return b.CreateAdd(sum, b.CreateMul(x, y));
  // Sums of products have no rounding to keep: without the instruction they are rounded twice.
  return caps_.fusedMultiplyAdd ? b.CreateIntrinsic(llvm::Intrinsic::fma, {type}, {x, y, sum}) : b.CreateFAdd(sum, b.CreateFMul(x, y));
}

void Emitter::addProduct(const Product &p, llvm::AllocaInst *sum, Value *x, Value *y) {
  b.CreateStore(multiplyAdd(p, x, y, b.CreateLoad(sum->getAllocatedType(), sum)), sum);
}

/// Bytes of a gathered turn in the table: addresses of A's rows, and where B is.
static int64_t lineOf(int64_t rows) { return (rows + 3) * 8; }

/// The product of A's rows, whose addresses are in `table`, with the panels of B.
void Emitter::emitPanels(const Product &p, const Lanes *batch, const Buffer &table, const LeftRows &left) {
  llvm::Type *i64 = b.getInt64Ty();
  auto number = [&](int64_t n) { return b.getInt64(static_cast<uint64_t>(n)); };
  const int64_t lineBytes = lineOf(p.M);
  // B is packed unless so few rows use it that copying it costs as much as using it.
  Panels right = {};
  if (p.pairType)
    right = {tilePanels(p.op, p.pairType, batch), number(64), number(p.vectors * p.units * 64), false};
  else if (!p.computed)
    right = rightPanels(p, batch);
  Value *count = b.getInt32(1);
  if (p.gathers) {
    Value *words = bytesAfter(table.ptr, number(p.M * 8));
    b.CreateStore(right.pointer, words);
    b.CreateStore(right.stride, bytesAfter(words, number(8)));
    b.CreateStore(right.panelStride, bytesAfter(words, number(16)));
    count = enterGathered();
  }
  Value *acc = p.acc->ptr;
  if (batch) acc = bytesAfter(acc, b.CreateMul(b.CreateZExt(batch->base, i64), number(p.M * p.N * p.size)));
  llvm::Type *vector = vectorOf(typeOf(p.computeType), p.lanes);
  const llvm::Align align(static_cast<uint64_t>(p.size));
  auto add = [&](Value *x, Value *y) { return llvm::isa<mlir::FloatType>(p.computeType) ? b.CreateFAdd(x, y) : b.CreateAdd(x, y); };
  Registers registers;
  for (int64_t i = 0; i < p.rows * p.vectors; ++i) registers.push_back(entryAlloca(vector, "c"));
  auto panelAt = [&](Value *jv) {
    const Lanes panel = fromValue(jv, currentLevel());
    Value *j = b.CreateZExt(jv, i64);
    forLoop(0, p.rowBlocks, 1, [&](Value *iv) {
      Value *i = b.CreateZExt(iv, i64);
      Value *tile = bytesAfter(acc, b.CreateAdd(b.CreateMul(i, number(p.rows * p.N * p.size)),
                                                b.CreateMul(j, number(p.panel() * p.size))));
      auto accumulator = [&](int64_t r, int64_t v) {
        return bytesAfter(tile, number((r * p.N + v * p.lanes) * p.size));
      };
      for (llvm::AllocaInst *sum : registers) b.CreateStore(llvm::Constant::getNullValue(vector), sum);
      if (!p.gathers)
        multiplyBlock(p, registers, table.ptr, right, left, i, panel);
      else
        forLoop(b.getInt32(0), count, 1, [&](Value *turn) {
          Value *line = bytesAfter(gathering_->table->ptr, b.CreateMul(b.CreateZExt(turn, i64), number(lineBytes)));
          Value *words = bytesAfter(line, number(p.M * 8));
          const Panels gathered = {b.CreateLoad(b.getPtrTy(), words), b.CreateLoad(i64, bytesAfter(words, number(8))),
                                   b.CreateLoad(i64, bytesAfter(words, number(16))), right.inMemory};
          multiplyBlock(p, registers, line, gathered, left, i, panel);
        });
      // A block of k is summed for itself and then added: the error of a long sum grows with the length of its parts (Higham 4.2, and what BLAS
      // libraries do), not with the whole.
      for (int64_t r = 0; r < p.rows; ++r) {
        Value *factor = nullptr;
        if (p.factors) {
          factor = b.CreateAlignedLoad(typeOf(p.computeType), bytesAfter(p.factors->ptr, b.CreateAdd(b.CreateMul(i, number(p.rows * p.size)), number(r * p.size))), align);
          if (p.lanes > 1) factor = b.CreateVectorSplat(static_cast<unsigned>(p.lanes), factor);
        }
        for (int64_t v = 0; v < p.vectors; ++v) {
          Value *sum = b.CreateLoad(vector, registers[r * p.vectors + v]);
          if (factor)
            sum = multiplyAdd(p, b.CreateAlignedLoad(vector, accumulator(r, v), align), factor, sum);
          else if (!p.zero)
            sum = add(b.CreateAlignedLoad(vector, accumulator(r, v), align), sum);
          b.CreateAlignedStore(sum, accumulator(r, v), align);
        }
      }
    });
  };
  auto panels = [&] { forLoop(0, p.panels, 1, panelAt); };
  if (p.computed) {
    width_ = p.lanes;
    sink(panels);
  } else
    panels();
}

/// The product of one batch's blocks, added to the accumulator.
void Emitter::emitBlockProduct(const Product &p, const Lanes *batch) {
  llvm::Type *i64 = b.getInt64Ty();
  auto number = [&](int64_t n) { return b.getInt64(static_cast<uint64_t>(n)); };
  // Addresses of A's rows and, when turns are gathered, where B is: a line of the table for each turn.
  const int64_t lineBytes = lineOf(p.M);
  Buffer table, packedRows;
  if (p.gathers) {
    Value *turn = b.CreateZExt(b.CreateLoad(b.getInt32Ty(), gathering_->count), i64);
    table = *gathering_->table, packedRows = *gathering_->rows;
    table.ptr = bytesAfter(table.ptr, b.CreateMul(turn, number(lineBytes)));
    packedRows.ptr = bytesAfter(packedRows.ptr, b.CreateMul(turn, number(p.M * p.K * p.size)));
  } else {
    Buffer &ownTable = newBuffer(mlir::IntegerType::get(p.op->getContext(), 64), {p.M}), &ownRows = newBuffer(p.computeType, {p.M, p.K});
    freeAfter_[nullptr].push_back(&ownTable), freeAfter_[nullptr].push_back(&ownRows);
    table = ownTable, packedRows = ownRows;
  }
  table.shape = {p.M}, packedRows.shape = {p.M, p.K};
  LeftRows left = leftRows(p, batch, table, packedRows);
  if (!p.op->hasAttr(tile::kMaskedRowsUnusedAttr)) left.nothing = nullptr;
  if (p.fixed) {
    const Fixed f = {&newBuffer(mlir::IntegerType::get(p.op->getContext(), 8), {p.M, p.K, 4}), &newBuffer(p.computeType, {p.M})};
    freeAfter_[nullptr].push_back(f.digits), freeAfter_[nullptr].push_back(f.scales);
    Value *whole = fixedRows(p, f, table);
    branch(whole, [&] { multiplyFixed(p, f); }, [&] { emitPanels(p, batch, table, left); });
  } else
    emitPanels(p, batch, table, left);
  if (p.gathers) leaveGathered();
  freeAfter(nullptr);
  freeAfter_.erase(nullptr);
}

/// Batches one after another: the operands' blocks are packed for each. Nested sinks need the function's own level, so
/// the loop is a plain one.
void Emitter::forEachBatch(int64_t count, llvm::function_ref<void(const Lanes &)> body) {
  llvm::BasicBlock *loop = llvm::BasicBlock::Create(b.getContext(), "batch", fn_),
                   *exit = llvm::BasicBlock::Create(b.getContext(), "batches", fn_);
  llvm::BasicBlock *pre = b.GetInsertBlock();
  b.CreateBr(loop);
  b.SetInsertPoint(loop);
  llvm::PHINode *iv = b.CreatePHI(b.getInt32Ty(), 2);
  iv->addIncoming(b.getInt32(0), pre);
  frames_[0].block = loop;
  body(fromValue(iv, 0));
  Value *next = b.CreateAdd(iv, b.getInt32(1));
  iv->addIncoming(next, b.GetInsertBlock());
  b.CreateCondBr(b.CreateICmpSLT(next, b.getInt32(static_cast<uint32_t>(count))), loop, exit);
  b.SetInsertPoint(exit);
  frames_[0].block = exit;
}

void Emitter::emitDot(mlir::Operation *op) {
  Product p = planProduct(op);
  placeAccumulator(p);
  auto block = [&](const Lanes *batch) {
    if (mlir::Type operandType = tileOperandType(op))
      emitTileProduct(op, operandType, *p.acc, p.zero, batch);
    else
      emitBlockProduct(p, batch);
  };
  if (p.lead == 0)
    block(nullptr);
  else
    forEachBatch(p.shape[0], [&](const Lanes &batch) { block(&batch); });
  bindProduct(p);
}

} // namespace neso::cpu
