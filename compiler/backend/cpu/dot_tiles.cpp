// tt.dot by matrix tiles (AMX): blocks of 16 × 16 results, 64 bytes of k at a time.
//
// Tile registers hold 16 rows of 64 bytes. A's tiles are rows of A as they lie in memory. B's tiles hold 16 columns;
// their row i has the elements of k = i * g … i * g + g - 1 of each column side by side, g of them in 4 bytes. So B is
// packed into panels of 16 columns, [N / 16][K / g][16][g], and A is read in place where its rows are evenly spaced and
// no lane is masked off, else packed as [M][K]. All tiles have the full shape, so the registers are set up once for
// each call of the kernel.
//
// Products of bf16 are summed in f32; the hardware reads denormals as zeros and rounds a denormal sum to zero.
#include <algorithm>

#include "backend/common/float_convert.h"
#include "backend/cpu/emitter.h"
#include "llvm/IR/IntrinsicsX86.h"
#include "llvm/Support/MathExtras.h"

namespace neso::cpu {

using llvm::Value;

namespace {
constexpr int64_t kTileRows = 16, kTileBytes = 64;
constexpr int kTileRegisters = 8;
/// The layout that the instruction which sets up the registers reads.
struct TileConfig {
  uint8_t palette = 1, startRow = 0, reserved[14] = {};
  uint16_t rowBytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);
} // namespace

mlir::Type Emitter::bf16OperandType(mlir::Operation *op) {
  mlir::Type result = elementOf(op->getResult(0).getType());
  // Formats of 8 bits are exact in bf16.
  auto narrow = [](mlir::Type t) { return t.isBF16() || f8Format(t).has_value(); };
  const bool fits = narrow(elementOf(op->getOperand(0).getType())) && narrow(elementOf(op->getOperand(1).getType()));
  return fits && llvm::isa<mlir::FloatType>(result) && !result.isF64() ? mlir::BFloat16Type::get(op->getContext())
                                                                       : mlir::Type();
}

mlir::Type Emitter::tileOperandType(mlir::Operation *op) {
  if (!caps_.tiles) return {};
  mlir::Type a = elementOf(op->getOperand(0).getType()), c = elementOf(op->getOperand(1).getType());
  Shape aShape = shapeOf(op->getOperand(0).getType()), shape = shapeOf(op->getResult(0).getType());
  mlir::Type type = bf16OperandType(op);
  if (!type && a.isInteger(8) && c.isInteger(8) && elementOf(op->getResult(0).getType()).isInteger(32)) type = a;
  if (!type) return {};
  const size_t lead = shape.size() - 2;
  const bool whole = shape[lead] % kTileRows == 0 && shape[lead + 1] % kTileRows == 0 &&
                     aShape[lead + 1] * bytesOf(type) % kTileBytes == 0;
  return whole ? type : mlir::Type();
}

/// A as rows of operandType, in place or in `packed`: the address of the first and, in `stride`, the bytes from one to
/// the next.
Value *Emitter::tileRows(mlir::Value v, mlir::Type operandType, const Lanes *batch, const Buffer &packed,
                         Value *&stride) {
  Shape shape = shapeOf(v.getType());
  const size_t lead = shape.size() - 2;
  const int64_t rowBytes = shape[lead + 1] * bytesOf(operandType);
  Value *dense = b.getInt64(static_cast<uint64_t>(rowBytes));
  stride = dense;
  if (Buffer *known = buffers_.lookup(v); known && known->elementType == operandType && lead == 0) return known->ptr;
  if (!mayLieInPlace(v, operandType)) {
    packOperand(v, operandType, batch, packed, true, 0, shape[lead + 1]);
    return packed.ptr;
  }
  Placement place = probePlacement(v, operandType, shape[0]);
  llvm::AllocaInst *start = entryAlloca(b.getPtrTy(), "rows"), *apart = entryAlloca(b.getInt64Ty(), "rows.stride");
  branch(
      place.whole,
      [&] {
        b.CreateStore(b.CreateIntToPtr(place.origin, b.getPtrTy()), start);
        b.CreateStore(place.rowStride, apart);
      },
      [&] {
        packOperand(v, operandType, batch, packed, true, 0, shape[lead + 1]);
        b.CreateStore(packed.ptr, start);
        b.CreateStore(dense, apart);
      });
  stride = b.CreateLoad(b.getInt64Ty(), apart);
  return b.CreateLoad(b.getPtrTy(), start);
}

/// B in panels of 16 columns: [N / 16][K / g][16][g].
Value *Emitter::tilePanels(mlir::Operation *op, mlir::Type operandType, const Lanes *batch) {
  mlir::Value v = op->getOperand(1);
  Shape shape = shapeOf(v.getType());
  const int64_t bytes = shape.end()[-2] * shape.end()[-1] * bytesOf(operandType);
  return packedOnce(op, bytes, shape.end()[-2], [&](Value *to) { packPanels(v, operandType, batch, to); });
}

void Emitter::packPanels(mlir::Value v, mlir::Type operandType, const Lanes *batch, Value *to) {
  Shape shape = shapeOf(v.getType());
  mlir::Type element = elementOf(v.getType());
  const size_t lead = shape.size() - 2;
  const int64_t K = shape[lead], N = shape[lead + 1], size = bytesOf(operandType), group = 4 / size;
  llvm::Type *i32 = b.getInt32Ty();
  auto elementAt = [&](const Index &index) { return vec(operandElement(eval(v, index), element, operandType)); };
  Index start(shape.size(), uniformInt(0));
  if (batch) start[0] = *batch;
  // Address of the 64 bytes of k group `k` in the panel of column `column`.
  auto lineAt = [&](const Lanes &k, const Lanes &column) {
    Lanes base;
    base.base = to;
    Lanes panel = intOp(IntOp::UDiv, column, uniformInt(kTileRows));
    Lanes line = intOp(IntOp::Add, intOp(IntOp::Mul, panel, uniformInt(K / group)), k);
    return toVector(b, addIndex(base, line, kTileBytes), 1);
  };
  auto firstOf = [](Lanes x) {
    x.kind = Lanes::Kind::Uniform;
    x.offsets = nullptr;
    return x;
  };
  const llvm::Align align(kTileBytes);
  Nest nest;
  nest.shape = shape;
  if (unitDim(shape, {v}) == static_cast<int>(lead) && K * size % kTileBytes == 0) {
    // Contiguous along k: 16 columns' vectors, transposed in units of 4 bytes.
    nest.vectorDim = static_cast<int>(lead);
    nest.extent = K;
    nest.width = kTileBytes / size;
    sink([&] {
      forLoop(0, N, kTileRows, [&](Value *n) {
        Lanes column = fromValue(n, currentLevel());
        column.align = static_cast<uint8_t>(llvm::Log2_64(kTileRows));
        Index at = start;
        at[lead + 1] = column;
        vectorLoop(nest, at, {}, [&](const Index &index) {
          llvm::SmallVector<Value *, 16> lines;
          for (int64_t i = 0; i < kTileRows; ++i) {
            Index one = index;
            one[lead + 1] = intOp(IntOp::Add, column, uniformInt(i));
            lines.push_back(b.CreateBitCast(elementAt(one), llvm::FixedVectorType::get(i32, kTileRows)));
          }
          transposeSquare(lines);
          Lanes k = intOp(IntOp::UDiv, firstOf(index[lead]), uniformInt(group));
          Value *p = lineAt(k, column);
          for (int64_t i = 0; i < kTileRows; ++i)
            b.CreateAlignedStore(lines[i], b.CreateConstGEP1_64(b.getInt8Ty(), p, i * kTileBytes), align);
        });
      });
    });
    return;
  }
  // Contiguous along n, or not at all: `group` rows, interleaved.
  nest.vectorDim = static_cast<int>(lead) + 1;
  nest.extent = N;
  nest.width = std::min<int64_t>(N, group == 2 ? 2 * kTileRows : kTileRows);
  sink([&] {
    forLoop(0, K / group, 1, [&](Value *i) {
      Lanes k = fromValue(i, currentLevel());
      Index at = start;
      at[lead] = intOp(IntOp::Mul, k, uniformInt(group));
      vectorLoop(nest, at, {}, [&](const Index &index) {
        llvm::SmallVector<Value *, 4> rows;
        for (int64_t j = 0; j < group; ++j) {
          Index one = index;
          one[lead] = intOp(IntOp::Add, index[lead], uniformInt(j));
          rows.push_back(elementAt(one));
        }
        const Lanes first = firstOf(index[lead + 1]);
        for (int64_t part = 0; part < nest.width; part += kTileRows) {
          Value *line = nullptr;
          if (group == 2) {
            llvm::SmallVector<int, 32> pairs;
            for (int64_t n = 0; n < kTileRows; ++n)
              pairs.push_back(static_cast<int>(part + n)), pairs.push_back(static_cast<int>(nest.width + part + n));
            line = b.CreateShuffleVector(rows[0], rows[1], pairs);
          } else {
            auto *wide = llvm::FixedVectorType::get(i32, kTileRows);
            for (int64_t j = 0; j < group; ++j) {
              Value *x = b.CreateShl(b.CreateZExt(rows[j], wide), static_cast<uint64_t>(8 * j));
              line = line ? b.CreateOr(line, x) : x;
            }
          }
          b.CreateAlignedStore(line, lineAt(k, intOp(IntOp::Add, first, uniformInt(part))), align);
        }
      });
    });
  });
}

void Emitter::emitTileProduct(mlir::Operation *op, mlir::Type operandType, const Buffer &acc, bool zero,
                              const Lanes *batch) {
  usesTiles_ = true;
  Shape aShape = shapeOf(op->getOperand(0).getType()), shape = shapeOf(op->getResult(0).getType());
  const size_t lead = shape.size() - 2;
  const int64_t M = shape[lead], N = shape[lead + 1], K = aShape[lead + 1], size = bytesOf(operandType);
  llvm::Type *i64 = b.getInt64Ty();
  auto at = [&](Value *p, Value *offset) { return b.CreateGEP(b.getInt8Ty(), p, offset); };
  auto bytes = [&](int64_t n) { return b.getInt64(static_cast<uint64_t>(n)); };
  // A line of the table holds A's start and stride and B's panels.
  const int64_t lineBytes = (M + 3) * 8;
  const bool gathers = gathering_ && gathering_->dot == op;
  Value *count = b.getInt32(1), *aStride = nullptr, *aRows = nullptr, *panels = nullptr;
  if (gathers) {
    Value *turn = b.CreateLoad(b.getInt32Ty(), gathering_->count);
    Buffer rows = *gathering_->rows;
    rows.ptr = at(rows.ptr, b.CreateMul(b.CreateZExt(turn, i64), bytes(M * K * size)));
    aRows = tileRows(op->getOperand(0), operandType, batch, rows, aStride);
    panels = tilePanels(op, operandType, batch);
    Value *entry = at(gathering_->table->ptr, b.CreateMul(b.CreateZExt(turn, i64), bytes(lineBytes)));
    b.CreateStore(aRows, entry);
    b.CreateStore(aStride, at(entry, bytes(8)));
    b.CreateStore(panels, at(entry, bytes(16)));
    count = enterGathered();
  } else {
    Buffer &rows = newBuffer(operandType, {M, K});
    freeAfter_[nullptr].push_back(&rows);
    aRows = tileRows(op->getOperand(0), operandType, batch, rows, aStride);
    panels = tilePanels(op, operandType, batch);
  }
  Value *accBase = acc.ptr;
  if (batch) accBase = at(accBase, b.CreateMul(b.CreateZExt(batch->base, i64), bytes(M * N * 4)));

  // Registers: down × across of results, then A's, then B's; as many of the last as are left.
  const int64_t down = M % (2 * kTileRows) == 0 ? 2 : 1;
  const int64_t across = N % (2 * kTileRows) ? 1 : down == 1 && N % (4 * kTileRows) == 0 ? 4 : 2;
  const int aFirst = static_cast<int>(down * across), bFirst = aFirst + static_cast<int>(down);
  const int bCount = std::min(static_cast<int>(across), kTileRegisters - bFirst);
  auto tile = [&](int64_t n) { return b.getInt8(static_cast<uint8_t>(n)); };
  auto call = [&](llvm::Intrinsic::ID id, llvm::ArrayRef<Value *> args) { b.CreateIntrinsic(b.getVoidTy(), id, args); };
  const llvm::Intrinsic::ID product = size == 2 ? llvm::Intrinsic::x86_tdpbf16ps : llvm::Intrinsic::x86_tdpbssd;
  const int64_t steps = K * size / kTileBytes;
  int64_t unroll = std::min<int64_t>(steps, 4);
  while (steps % unroll) --unroll;
  Value *lineStride = bytes(kTileBytes), *rowStride = bytes(N * 4);
  const int64_t panelBytes = K * kTileRows * size;

  forLoop(0, N / (across * kTileRows), 1, [&](Value *jv) {
    Value *j = b.CreateZExt(jv, i64);
    Value *panelOffset = b.CreateMul(j, bytes(across * panelBytes));
    forLoop(0, M / (down * kTileRows), 1, [&](Value *iv) {
      Value *i = b.CreateZExt(iv, i64);
      Value *block = at(accBase, b.CreateAdd(b.CreateMul(i, bytes(down * kTileRows * N * 4)),
                                             b.CreateMul(j, bytes(across * kTileRows * 4))));
      auto result = [&](int64_t r, int64_t c) { return at(block, bytes((r * N + c) * kTileRows * 4)); };
      for (int64_t r = 0; r < down; ++r)
        for (int64_t c = 0; c < across; ++c) {
          if (zero)
            call(llvm::Intrinsic::x86_tilezero, {tile(r * across + c)});
          else
            call(llvm::Intrinsic::x86_tileloadd64, {tile(r * across + c), result(r, c), rowStride});
        }
      forLoop(b.getInt32(0), count, 1, [&](Value *turn) {
        Value *stride = aStride, *first = aRows, *panel = panels;
        if (gathers) {
          Value *entry = at(gathering_->table->ptr, b.CreateMul(b.CreateZExt(turn, i64), bytes(lineBytes)));
          first = b.CreateLoad(b.getPtrTy(), entry);
          stride = b.CreateLoad(i64, at(entry, bytes(8)));
          panel = b.CreateLoad(b.getPtrTy(), at(entry, bytes(16)));
        }
        Value *rows = at(first, b.CreateMul(b.CreateMul(i, bytes(down * kTileRows)), stride));
        Value *lower = down > 1 ? at(rows, b.CreateMul(stride, bytes(kTileRows))) : nullptr;
        panel = at(panel, panelOffset);
        forLoop(0, steps, unroll, [&](Value *kv) {
          Value *k = b.CreateZExt(kv, i64);
          Value *aAt = b.CreateMul(k, bytes(kTileBytes)), *bAt = b.CreateMul(k, bytes(kTileRows * kTileBytes));
          for (int64_t u = 0; u < unroll; ++u) {
            for (int64_t r = 0; r < down; ++r)
              call(llvm::Intrinsic::x86_tileloadd64,
                   {tile(aFirst + r), at(at(r ? lower : rows, aAt), bytes(u * kTileBytes)), stride});
            for (int64_t c = 0; c < across; ++c) {
              const int64_t right = bFirst + c % bCount;
              call(llvm::Intrinsic::x86_tileloadd64,
                   {tile(right), at(at(panel, bAt), bytes(c * panelBytes + u * kTileRows * kTileBytes)), lineStride});
              for (int64_t r = 0; r < down; ++r) call(product, {tile(r * across + c), tile(aFirst + r), tile(right)});
            }
          }
        });
      });
      for (int64_t r = 0; r < down; ++r)
        for (int64_t c = 0; c < across; ++c)
          call(llvm::Intrinsic::x86_tilestored64, {tile(r * across + c), result(r, c), rowStride});
    });
  });
  if (gathers) leaveGathered();
  freeAfter(nullptr);
  freeAfter_.erase(nullptr);
}

void Emitter::configureTiles(llvm::BasicBlock *exit) {
  TileConfig config;
  for (int i = 0; i < kTileRegisters; ++i) config.rowBytes[i] = kTileBytes, config.rows[i] = kTileRows;
  llvm::Constant *image = llvm::ConstantDataArray::getRaw(
      llvm::StringRef(reinterpret_cast<const char *>(&config), sizeof config), sizeof config, b.getInt8Ty());
  auto *global =
      new llvm::GlobalVariable(module_, image->getType(), true, llvm::GlobalValue::PrivateLinkage, image, "tiles");
  global->setAlignment(llvm::Align(64));
  llvm::IRBuilderBase::InsertPointGuard guard(b);
  b.SetInsertPoint(entry_->getTerminator());
  b.CreateIntrinsic(b.getVoidTy(), llvm::Intrinsic::x86_ldtilecfg, {global});
  b.SetInsertPoint(exit);
  b.CreateIntrinsic(b.getVoidTy(), llvm::Intrinsic::x86_tilerelease, {});
}

} // namespace neso::cpu
