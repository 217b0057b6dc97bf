// Operands of tt.dot: where their blocks lie, and packing those that cannot be read in place.
#include <algorithm>

#include "backend/cpu/emitter.h"
#include "ir/tile/tile.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/Support/MathExtras.h"

namespace neso::cpu {

using llvm::Value;

void Emitter::transposeSquare(llvm::SmallVectorImpl<Value *> &rows) {
  const int64_t n = static_cast<int64_t>(rows.size());
  for (int64_t s = 1; s < n; s *= 2) {
    llvm::SmallVector<int, 16> even, odd;
    for (int64_t l = 0; l < n; ++l) {
      even.push_back(static_cast<int>(l & s ? n + (l ^ s) : l));
      odd.push_back(static_cast<int>(l & s ? n + l : l ^ s));
    }
    for (int64_t i = 0; i < n; ++i) {
      if (i & s) continue;
      Value *x = rows[i], *y = rows[i | s];
      rows[i] = b.CreateShuffleVector(x, y, even);
      rows[i | s] = b.CreateShuffleVector(x, y, odd);
    }
  }
}

Lanes Emitter::operandElement(const Lanes &x, mlir::Type from, mlir::Type to) {
  if (from == to) return x;
  AtLevel at(*this, x.level);
  Value *value = x.uniform() ? x.base : vec(x);
  if (llvm::isa<mlir::FloatType>(from)) return fromValue(convertFloat(value, from, to, false), x.level);
  return fromValue(b.CreateSExt(value, typeLike(to, value)), x.level);
}

int Emitter::unitDimBehindTranspose(mlir::Value v, int64_t farthest) {
  mlir::Operation *def = v.getDefiningOp();
  if (!def || codeOf(def) != OpCode::Trans || buffers_.count(v)) return unitDim(shapeOf(v.getType()), {v}, farthest);
  mlir::Value source = def->getOperand(0);
  const int dim = unitDim(shapeOf(source.getType()), {source}, farthest);
  llvm::ArrayRef<int32_t> order = def->getAttrOfType<mlir::DenseI32ArrayAttr>("order").asArrayRef();
  return static_cast<int>(std::find(order.begin(), order.end(), dim) - order.begin());
}

void Emitter::packOperand(mlir::Value v, mlir::Type computeType, const Lanes *batch, const Buffer &to, bool rows,
                          int64_t panel, int64_t valid) {
  Shape shape = shapeOf(v.getType());
  mlir::Type element = elementOf(v.getType());
  const size_t lead = shape.size() - 2;
  const int64_t inner = shape[lead + 1], outer = shape[lead];
  const int64_t size = bytesOf(computeType);
  // What is walked of both: along k no more than counts.
  const int64_t used = std::min(rows ? inner : outer, static_cast<int64_t>(llvm::alignTo(static_cast<uint64_t>(valid), 16)));
  const int64_t lines = rows ? outer : used, columns = rows ? used : inner;
  auto converted = [&](const Lanes &x) { return operandElement(x, element, computeType); };
  // Offset of element (r, c) in the packed block.
  auto place = [&](const Lanes &r, const Lanes &c) {
    Lanes base;
    base.base = to.ptr;
    if (rows) return addIndex(base, intOp(IntOp::Add, intOp(IntOp::Mul, r, uniformInt(inner)), c), size);
    Lanes p = intOp(IntOp::UDiv, c, uniformInt(panel)), q = intOp(IntOp::URem, c, uniformInt(panel));
    Lanes linear = intOp(
        IntOp::Add,
        intOp(IntOp::Add, intOp(IntOp::Mul, p, uniformInt(outer * panel)), intOp(IntOp::Mul, r, uniformInt(panel))), q);
    return addIndex(base, linear, size);
  };
  const int dim = unitDimBehindTranspose(v);
  const int64_t native = caps_.f32Lanes;
  const int64_t tile = size == 4 ? native : native / 2;
  if (dim == static_cast<int>(lead) && outer >= tile && inner >= tile) {
    // Contiguous along the other direction: square blocks are read along it and transposed in registers.
    sink([&] {
      width_ = tile;
      llvm::SmallVector<mlir::Value, 4> masks = masksBelow({v}, shape);
      Nest nest;
      nest.shape = shape;
      nest.vectorDim = dim;
      nest.extent = lines;
      nest.width = tile;
      const llvm::SmallVector<Turning, 4> turning = lead ? llvm::SmallVector<Turning, 4>() : turningBelow(nest, {v});
      forLoop(0, columns, tile, [&](Value *c0) {
        Index at(shape.size(), uniformInt(0));
        if (batch) at[0] = *batch;
        Lanes column = fromValue(c0, currentLevel());
        column.align = static_cast<uint8_t>(llvm::Log2_64(tile));
        at[lead + 1] = column;
        Masks evenly;
        evenly.turning = turning;
        vectorLoop(nest, at, evenly, [&](const Index &index) {
          llvm::SmallVector<Value *, 16> vectors;
          for (int64_t i = 0; i < tile; ++i) {
            Index one = index;
            one[lead + 1] = intOp(IntOp::Add, column, uniformInt(i));
            vectors.push_back(vec(converted(eval(v, one))));
          }
          transposeSquare(vectors);
          Lanes run = column;
          run.kind = Lanes::Kind::Offsets;
          run.offsets = pool_.run(tile, 1);
          Lanes first = index[lead];
          first.kind = Lanes::Kind::Uniform;
          first.offsets = nullptr;
          for (int64_t i = 0; i < tile; ++i)
            storeAt(place(intOp(IntOp::Add, first, uniformInt(i)), run), fromValue(vectors[i], currentLevel()),
                    computeType, nullptr);
        });
      });
    });
    return;
  }
  Shape flat = {lines, columns};
  Nest nest = planNest(flat, {}, 64);
  if (!rows && nest.width > panel) nest.width = panel;
  sink([&] {
    llvm::SmallVector<mlir::Value, 4> masks = masksBelow({v}, shape);
    runNest(nest, {lead ? llvm::ArrayRef<mlir::Value>() : llvm::ArrayRef<mlir::Value>(masks), false},
            [&](const Index &at) {
              Index index = at;
              if (lead) index.insert(index.begin(), *batch);
              storeAt(place(at[0], at[1]), converted(eval(v, index)), computeType, nullptr);
            });
  });
}

bool Emitter::inPlaceIf(mlir::Operation *load, Conditions &conditions) {
  return affine_.everywhere(load->getOperand(0), conditions) &&
         (load->getNumOperands() < 2 || affine_.isConvexMask(load->getOperand(1), conditions));
}

bool Emitter::mayLieInPlace(mlir::Value v, mlir::Type elementType) {
  mlir::Operation *load = v.getDefiningOp();
  Shape shape = shapeOf(v.getType());
  if (!load || codeOf(load) != OpCode::Load || buffers_.count(v) || shape.size() != 2 || shape[0] < 2 || shape[1] < 2 ||
      elementOf(v.getType()) != elementType)
    return false;
  Conditions conditions;
  return inPlaceIf(load, conditions);
}

Value *Emitter::atCorners(mlir::Value mask, const Shape &shape) {
  Value *all = b.getTrue();
  for (int64_t r : {int64_t{0}, shape[0] - 1})
    for (int64_t c : {int64_t{0}, shape[1] - 1})
      all = b.CreateAnd(all, eval(mask, {uniformInt(r), uniformInt(c)}).base);
  return all;
}

Value *Emitter::sameAlongRows(mlir::Value mask, int64_t valid) {
  mlir::Operation *def = mask.getDefiningOp();
  if (def && codeOf(def) == OpCode::AndI && !buffers_.count(mask)) {
    Value *left = sameAlongRows(def->getOperand(0), valid), *right = sameAlongRows(def->getOperand(1), valid);
    return left && right ? b.CreateAnd(left, right) : nullptr;
  }
  Conditions still, down, convex;
  if (std::optional<Step> along = affine_.along(mask, 1, still); along && along->isZero()) return holds(still);
  // One that goes along the rows is the same for all of them, and holds at both ends.
  std::optional<Step> below = affine_.along(mask, 0, down);
  if (!below || !below->isZero() || !affine_.isConvexMask(mask, convex)) return nullptr;
  return b.CreateAnd(b.CreateAnd(holds(down), holds(convex)), atCorners(mask, {1, valid}));
}

Emitter::Placement Emitter::probePlacement(mlir::Value v, mlir::Type elementType, int64_t rows) {
  // Addresses of three corners show stride and contiguity; the mask at the four corners shows whether any lane is off.
  mlir::Operation *load = v.getDefiningOp();
  const int64_t size = bytesOf(elementType);
  llvm::Type *i64 = b.getInt64Ty();
  frames_[0].memo.clear();
  width_ = 1;
  auto address = [&](int64_t r, int64_t c) {
    return b.CreatePtrToInt(toVector(b, eval(load->getOperand(0), {uniformInt(r), uniformInt(c)}), 1), i64);
  };
  Placement place;
  place.origin = address(0, 0);
  place.rowStride = b.CreateSub(address(1, 0), place.origin);
  place.columnStride = b.CreateSub(address(0, 1), place.origin);
  Conditions conditions;
  NESO_CHECK(inPlaceIf(load, conditions), "a load that does not lie in place");
  Value *ok = holds(conditions);
  if (load->getNumOperands() > 1) ok = b.CreateAnd(ok, atCorners(load->getOperand(1), {rows, shapeOf(v.getType())[1]}));
  frames_[0].memo.clear();
  place.inside = ok;
  place.whole = b.CreateAnd(ok, b.CreateICmpEQ(place.columnStride, b.getInt64(static_cast<uint64_t>(size))));
  return place;
}

void Emitter::branch(Value *condition, llvm::function_ref<void()> yes, llvm::function_ref<void()> no) {
  llvm::BasicBlock *ready = llvm::BasicBlock::Create(b.getContext(), "ready", fn_),
                   *then = llvm::BasicBlock::Create(b.getContext(), "whole", fn_);
  llvm::BasicBlock *otherwise = no ? llvm::BasicBlock::Create(b.getContext(), "pack", fn_) : ready;
  b.CreateCondBr(condition, then, otherwise);
  for (bool side : {true, false}) {
    if (!side && !no) break;
    b.SetInsertPoint(side ? then : otherwise);
    frames_[0].block = b.GetInsertBlock();
    frames_[0].memo.clear();
    side ? yes() : no();
    b.CreateBr(ready);
  }
  b.SetInsertPoint(ready);
  frames_[0].block = ready;
  frames_[0].memo.clear();
}

void Emitter::evenRows(const Buffer &table, Value *base, Value *stride) {
  Nest nest = planNest(table.shape, {}, 16);
  sink([&] {
    runNest(nest, {}, [&](const Index &at) {
      Lanes offset = intOp(IntOp::Mul, resize(at[0], b.getInt64Ty(), true, true), fromValue(stride, 0));
      storeBuffer(table, at, intOp(IntOp::Add, fromValue(base, 0), offset));
    });
  });
}

void Emitter::packDown(const Product &p, const Lanes *batch, const Buffer &table, const Buffer &packed, int64_t lanes) {
  mlir::Value v = p.op->getOperand(0);
  const mlir::Type element = elementOf(v.getType());
  // Offset of element (r, k): vectors of `lanes` rows, one for each k, follow each other.
  auto place = [&](const Lanes &r, const Lanes &k) {
    const Lanes group = intOp(IntOp::UDiv, r, uniformInt(lanes)), within = intOp(IntOp::URem, r, uniformInt(lanes));
    const Lanes before = intOp(IntOp::Add, intOp(IntOp::Mul, group, uniformInt(p.K * lanes)), within);
    return intOp(IntOp::Add, before, intOp(IntOp::Mul, k, uniformInt(lanes)));
  };
  Nest down;
  down.shape = shapeOf(v.getType()), down.vectorDim = static_cast<int>(p.lead), down.extent = p.M, down.width = lanes;
  const llvm::SmallVector<Turning, 4> turning = p.lead ? llvm::SmallVector<Turning, 4>() : turningBelow(down, {v});
  auto store = [&](const Lanes &r, const Lanes &k) {
    Index index = {r, k};
    if (p.lead) index.insert(index.begin(), *batch);
    Lanes base;
    base.base = packed.ptr;
    storeAt(addIndex(base, place(r, k), p.size), operandElement(eval(v, index), element, p.computeType), p.computeType, nullptr);
  };
  // Several vectors of rows a turn share what is computed of k.
  const int64_t together = std::min<int64_t>(4, p.M / lanes) * lanes;
  sink([&] {
    width_ = lanes;
    triesWhole_ = true;
    if (!turning.empty()) {
      // Most vectors are pixels of one line, side by side in memory.
      vectorSteps(down, Index(2, uniformInt(0)), b.getInt32(0), b.getInt32(static_cast<uint32_t>(p.M)), {}, [&](const Index &index) {
        forLoop(0, p.valid, 1, [&](Value *k) { store(index[0], fromValue(k, currentLevel())); });
      }, turning);
    } else
      forLoop(0, p.M, together, [&](Value *r0) {
        Lanes from = fromValue(r0, currentLevel());
        from.align = static_cast<uint8_t>(llvm::Log2_64(static_cast<uint64_t>(together)));
        forLoop(0, p.valid, 1, [&](Value *k0) {
          const Lanes k = fromValue(k0, currentLevel());
          for (int64_t first = 0; first < together; first += lanes) {
            Lanes r = intOp(IntOp::Add, from, uniformInt(first));
            r.kind = Lanes::Kind::Offsets, r.offsets = pool_.run(lanes, 1);
            store(r, k);
          }
        });
      });
    triesWhole_ = false;
  });
  Nest rows = planNest(table.shape, {}, 16);
  Value *from = b.CreatePtrToInt(packed.ptr, b.getInt64Ty());
  sink([&] {
    runNest(rows, {}, [&](const Index &at) {
      const Lanes offset = intOp(IntOp::Mul, resize(place(at[0], uniformInt(0)), b.getInt64Ty(), true, true), fromValue(b.getInt64(static_cast<uint64_t>(p.size)), 0));
      storeBuffer(table, at, intOp(IntOp::Add, fromValue(from, 0), offset));
    });
  });
}

Emitter::LeftRows Emitter::leftRows(const Product &p, const Lanes *batch, const Buffer &table, const Buffer &packed) {
  mlir::Value v = p.op->getOperand(0);
  const mlir::Type type = p.pairType ? p.pairType : p.computeType;
  const Shape shape = shapeOf(v.getType());
  llvm::Type *i64 = b.getInt64Ty();
  Value *dense = b.getInt64(static_cast<uint64_t>(p.K * bytesOf(type)));
  const LeftRows one = {nullptr, p.size};
  auto pack = [&] {
    packOperand(v, type, batch, packed, true, 0, p.valid);
    evenRows(table, b.CreatePtrToInt(packed.ptr, i64), dense);
  };
  // Packed in any case, and so in the order in which it is read best: a convolution with a stride of 2 over channels that lie apart steps by 2 along
  // the pixels of a line, and by no regular step along k.
  auto packBest = [&]() -> LeftRows {
    const int64_t lanes = p.size == 4 ? caps_.f32Lanes : caps_.f32Lanes / 2;
    if (!p.mayPackDown || p.M < lanes || unitDimBehindTranspose(v, 2) != static_cast<int>(p.lead)) {
      pack();
      return one;
    }
    packDown(p, batch, table, packed, lanes);
    return {nullptr, lanes * p.size};
  };
  if (Buffer *known = buffers_.lookup(v); known && known->elementType == type && p.lead == 0) {
    evenRows(table, b.CreatePtrToInt(known->ptr, i64), dense);
    return one;
  }
  mlir::Operation *load = v.getDefiningOp();
  if (!load || codeOf(load) != OpCode::Load || buffers_.count(v) || p.lead != 0 || elementOf(v.getType()) != type)
    return packBest();
  mlir::Value mask = load->getNumOperands() > 1 ? load->getOperand(1) : mlir::Value();
  Conditions along, convex;
  std::optional<Step> step = affine_.along(load->getOperand(0), 1, along);
  if (!step || !step->isUnit()) {
    if (!mayLieInPlace(v, type)) return packBest();
    // The stride along the row is known at run time only.
    Placement place = probePlacement(v, type, p.M);
    branch(place.whole, [&] { evenRows(table, place.origin, place.rowStride); }, pack);
    return one;
  }
  Value *nothing = nullptr;
  width_ = 1;
  frames_[0].memo.clear();
  Value *inPlace = holds(along);
  if (Value *same = mask ? sameAlongRows(mask, p.valid) : b.getTrue()) {
    inPlace = b.CreateAnd(inPlace, same);
    if (mask && !(nothing = maskedOffRow(load, type))) {
      pack();
      return one;
    }
  } else if (affine_.isConvexMask(mask, convex)) {
    // A mask along the row too: in place when the whole block is inside.
    inPlace = b.CreateAnd(b.CreateAnd(inPlace, holds(convex)), atCorners(mask, shape));
  } else {
    pack();
    return one;
  }
  if (auto *always = llvm::dyn_cast<llvm::ConstantInt>(inPlace); always && always->isOne())
    rowAddresses(load, table, nothing);
  else
    branch(inPlace, [&] { rowAddresses(load, table, nothing); }, pack);
  return {nothing ? b.CreatePtrToInt(nothing, i64) : nullptr, p.size};
}

/// A row of what masked-off lanes of `load` hold; null unless that is the same everywhere.
Value *Emitter::maskedOffRow(mlir::Operation *load, mlir::Type computeType) {
  Lanes other;
  other.base = llvm::Constant::getNullValue(typeOf(computeType));
  if (load->getNumOperands() > 2) {
    if (!isUniformTensor(load->getOperand(2))) return nullptr;
    frames_[0].memo.clear();
    other = eval(load->getOperand(2), {uniformInt(0), uniformInt(0)});
  }
  Buffer &row = newBuffer(computeType, {shapeOf(load->getResult(0).getType())[1]});
  freeAfter_[nullptr].push_back(&row);
  Nest line = planNest(row.shape, {}, 64);
  sink([&] { runNest(line, {}, [&](const Index &at) { storeBuffer(row, at, other); }); });
  return row.ptr;
}

void Emitter::rowAddresses(mlir::Operation *load, const Buffer &table, Value *nothing) {
  Nest nest = planNest({shapeOf(load->getResult(0).getType())[0]}, {}, 16);
  llvm::Type *i64 = b.getInt64Ty();
  sink([&] {
    runNest(nest, {}, [&](const Index &at) {
      Index first = {at[0], uniformInt(0)};
      Lanes pointer = eval(load->getOperand(0), first);
      Value *p = nullptr;
      if (nothing) {
        Lanes mask = eval(load->getOperand(1), first);
        p = b.CreateSelect(vec(mask), vec(pointer),
                           nest.width > 1 ? b.CreateVectorSplat(static_cast<unsigned>(nest.width), nothing) : nothing);
      } else
        p = vec(pointer);
      storeBuffer(table, at,
                  fromValue(b.CreatePtrToInt(p, p->getType()->isVectorTy() ? p->getType()->getWithNewType(i64) : i64),
                            currentLevel()));
    });
  });
}

Emitter::Panels Emitter::rightPanels(const Product &p, const Lanes *batch) {
  const mlir::Type storedType = p.storedType;
  const int64_t panel = p.panel();
  // Few rows use each element once.
  const bool preferInPlace = p.fewRows;
  mlir::Value v = p.op->getOperand(1);
  Shape shape = shapeOf(v.getType());
  const size_t lead = shape.size() - 2;
  const int64_t outer = shape[lead], inner = shape[lead + 1], size = bytesOf(storedType);
  llvm::Type *i64 = b.getInt64Ty();
  auto bytes = [&](int64_t n) { return b.getInt64(static_cast<uint64_t>(n)); };
  Value *packedStride = bytes(panel * size), *packedPanel = bytes(outer * panel * size),
        *panelInPlace = bytes(panel * size);
  if (Buffer *known = buffers_.lookup(v); known && known->elementType == storedType && lead == 0 && preferInPlace)
    return {known->ptr, bytes(inner * size), panelInPlace, false};
  auto pack = [&](Value *to) {
    Buffer packed;
    packed.elementType = storedType, packed.shape = {outer, inner}, packed.ptr = to;
    packOperand(v, storedType, batch, packed, false, panel, p.valid);
  };
  const bool inPlace = mayLieInPlace(v, storedType);
  std::optional<int64_t> apart = inPlace ? affine_.likelyStep(v.getDefiningOp()->getOperand(0), 0) : std::nullopt;
  const bool near = apart && *apart > 0 && *apart <= 4 * inner;
  if (!inPlace || !(preferInPlace || near))
    return {packedOnce(p.op, outer * inner * size, p.valid, pack), packedStride, packedPanel, false};
  llvm::AllocaInst *pointer = entryAlloca(b.getPtrTy(), "operand"), *stride = entryAlloca(i64, "stride"),
                   *panels = entryAlloca(i64, "panels");
  Placement place = probePlacement(v, storedType, p.valid);
  branch(
      place.whole,
      [&] {
        b.CreateStore(b.CreateIntToPtr(place.origin, b.getPtrTy()), pointer);
        b.CreateStore(place.rowStride, stride);
        b.CreateStore(panelInPlace, panels);
      },
      [&] {
        b.CreateStore(packedFresh(p.op, outer * inner * size, pack), pointer);
        b.CreateStore(packedStride, stride);
        b.CreateStore(packedPanel, panels);
      });
  return {b.CreateLoad(b.getPtrTy(), pointer), b.CreateLoad(i64, stride), b.CreateLoad(i64, panels), true};
}

} // namespace neso::cpu
