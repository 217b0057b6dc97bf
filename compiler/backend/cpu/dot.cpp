// tt.dot: a register-blocked product of blocks that lie in memory.
//
// Operands are read in place where they can be, else packed into scratch first: A as rows [M][K], B as panels [N / panel][K][panel], both in
// the type of the accumulator. A is reached through a table of row pointers, so its rows need not be evenly spaced (a convolution's pixels are
// not) and a row that is masked off points to zeros. B in place is a plain load along contiguous rows that are near each other (or used by few
// rows of A), with no lane masked off, which is tested at run time for each block.
// The product of panel by row block keeps `rows × vectors` accumulators in registers; the accumulator block itself lives in scratch, in place
// of the loop-carried tensor when there is one.
#include <algorithm>

#include "backend/cpu/emitter.h"
#include "ir/tile/tile.h"
#include "llvm/Support/MathExtras.h"
#include "mlir/IR/BuiltinAttributes.h"

namespace neso::cpu {

using llvm::Value;

/// A: rows is a table of the addresses of its rows. B: element (k, n) is at
/// pointer + (n / panel) * panelStride + k * stride + (n % panel) * element size. Strides in bytes, i64.
struct Emitter::Operand {
  Value *pointer = nullptr, *stride = nullptr, *panelStride = nullptr;
  Buffer *rows = nullptr;
  Value *zeroRow = nullptr; // A: the address that rows without any element have, if there may be such rows
  bool inMemory = false;    // B: read where it lies, as a rule
};

namespace {
/// Whether v's elements are a linear function of the index, remainders (checked apart) and loop-carried motion included.
bool isLinear(const llvm::DenseMap<mlir::Value, mlir::Value> &inits, mlir::Value v, int depth = 0) {
  if (depth > 24) return false;
  if (!llvm::isa<mlir::RankedTensorType>(v.getType())) return true;
  if (auto it = inits.find(v); it != inits.end()) return isLinear(inits, it->second, depth + 1);
  mlir::Operation *def = v.getDefiningOp();
  if (!def) return false;
  auto all = [&] {
    for (mlir::Value o : def->getOperands())
      if (!isLinear(inits, o, depth + 1)) return false;
    return true;
  };
  switch (codeOf(def)) {
  case OpCode::MakeRange:
  case OpCode::Splat: return true;
  case OpCode::ArithConstant: {
    auto dense = llvm::dyn_cast<mlir::DenseElementsAttr>(def->getAttr("value"));
    return dense && dense.isSplat();
  }
  case OpCode::AddPtr:
  case OpCode::AddI:
  case OpCode::SubI:
  case OpCode::Broadcast:
  case OpCode::ExpandDims:
  case OpCode::Trans:
  case OpCode::ExtSI: return all();
  case OpCode::RemSI: {
    // The form that speculateRemainder tests as a whole: (start + range) % modulus.
    auto isA = [](mlir::Value o, OpCode code) { return o.getDefiningOp() && codeOf(o.getDefiningOp()) == code; };
    mlir::Operation *sum = def->getOperand(0).getDefiningOp();
    if (!isA(def->getOperand(1), OpCode::Splat) || !sum || codeOf(sum) != OpCode::AddI) return false;
    mlir::Value x = sum->getOperand(0), y = sum->getOperand(1);
    return (isA(x, OpCode::Splat) && isA(y, OpCode::MakeRange)) || (isA(y, OpCode::Splat) && isA(x, OpCode::MakeRange));
  }
  case OpCode::MulI: {
    auto fixed = [&](mlir::Value o) {
      mlir::Operation *d = o.getDefiningOp();
      while (d && (codeOf(d) == OpCode::Broadcast || codeOf(d) == OpCode::ExpandDims)) d = d->getOperand(0).getDefiningOp();
      return d && (codeOf(d) == OpCode::Splat || codeOf(d) == OpCode::ArithConstant);
    };
    return (fixed(def->getOperand(0)) || fixed(def->getOperand(1))) && all();
  }
  default: return false;
  }
}

/// How far v (a pointer in elements, or an integer) moves along `dim`, the same everywhere: a constant, or nothing when that is not known.
std::optional<int64_t> evenStride(const llvm::DenseMap<mlir::Value, mlir::Value> &inits, mlir::Value v, int64_t dim, int depth = 0) {
  auto type = llvm::dyn_cast<mlir::RankedTensorType>(v.getType());
  if (!type || type.getShape()[static_cast<size_t>(dim)] == 1) return 0;
  if (depth > 24) return std::nullopt;
  if (auto it = inits.find(v); it != inits.end()) return evenStride(inits, it->second, dim, depth + 1);
  mlir::Operation *def = v.getDefiningOp();
  if (!def) return std::nullopt;
  auto of = [&](unsigned i, int64_t d) { return evenStride(inits, def->getOperand(i), d, depth + 1); };
  auto splat = [&](mlir::Value o) -> std::optional<int64_t> {
    mlir::Operation *d = o.getDefiningOp();
    while (d && (codeOf(d) == OpCode::Broadcast || codeOf(d) == OpCode::ExpandDims || codeOf(d) == OpCode::Splat)) d = d->getOperand(0).getDefiningOp();
    if (!d || codeOf(d) != OpCode::ArithConstant) return std::nullopt;
    if (auto dense = llvm::dyn_cast<mlir::DenseElementsAttr>(d->getAttr("value")); dense && dense.isSplat() && dense.getElementType().isIntOrIndex())
      return dense.getSplatValue<llvm::APInt>().getSExtValue();
    if (auto i = llvm::dyn_cast<mlir::IntegerAttr>(d->getAttr("value"))) return i.getValue().getSExtValue();
    return std::nullopt;
  };
  switch (codeOf(def)) {
  case OpCode::MakeRange: return 1;
  case OpCode::Splat: return 0;
  case OpCode::ArithConstant: {
    auto dense = llvm::dyn_cast<mlir::DenseElementsAttr>(def->getAttr("value"));
    return dense && dense.isSplat() ? std::optional<int64_t>(0) : std::nullopt;
  }
  case OpCode::ExpandDims: {
    const int64_t axis = def->getAttrOfType<mlir::IntegerAttr>("axis").getInt();
    return axis == dim ? std::optional<int64_t>(0) : of(0, dim > axis ? dim - 1 : dim);
  }
  case OpCode::Broadcast: return of(0, dim);
  case OpCode::Trans: return of(0, def->getAttrOfType<mlir::DenseI32ArrayAttr>("order")[static_cast<size_t>(dim)]);
  case OpCode::ExtSI: return of(0, dim);
  case OpCode::AddPtr:
  case OpCode::AddI:
  case OpCode::SubI: {
    std::optional<int64_t> x = of(0, dim), y = of(1, dim);
    if (!x || !y) return std::nullopt;
    return codeOf(def) == OpCode::SubI ? *x - *y : *x + *y;
  }
  case OpCode::MulI: {
    std::optional<int64_t> x = of(0, dim), y = of(1, dim);
    if (!x || !y) return std::nullopt;
    if (*x == 0 && *y == 0) return 0;
    if (std::optional<int64_t> c = splat(def->getOperand(1)); c && *y == 0) return *x * *c;
    if (std::optional<int64_t> c = splat(def->getOperand(0)); c && *x == 0) return *y * *c;
    return std::nullopt;
  }
  default: break;
  }
  if (classOf(codeOf(def)) != OpClass::Element) return std::nullopt;
  for (unsigned i = 0; i < def->getNumOperands(); ++i)
    if (of(i, dim) != std::optional<int64_t>(0)) return std::nullopt;
  return 0;
}

/// Masks that are conjunctions of comparisons of linear functions: true on a whole block when they are true at its corners.
bool isConvexMask(const llvm::DenseMap<mlir::Value, mlir::Value> &inits, mlir::Value v, int depth = 0) {
  mlir::Operation *def = v.getDefiningOp();
  if (!def || depth > 24) return false;
  switch (codeOf(def)) {
  case OpCode::Splat: return true;
  case OpCode::Broadcast:
  case OpCode::ExpandDims:
  case OpCode::Trans: return isConvexMask(inits, def->getOperand(0), depth + 1);
  case OpCode::AndI: return isConvexMask(inits, def->getOperand(0), depth + 1) && isConvexMask(inits, def->getOperand(1), depth + 1);
  case OpCode::CmpI: {
    using P = mlir::arith::CmpIPredicate;
    P p = llvm::cast<mlir::arith::CmpIOp>(def).getPredicate();
    return (p == P::slt || p == P::sle || p == P::sgt || p == P::sge) && isLinear(inits, def->getOperand(0), depth + 1) &&
           isLinear(inits, def->getOperand(1), depth + 1);
  }
  default: return false;
  }
}
} // namespace

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

void Emitter::packOperand(mlir::Value v, mlir::Type computeType, const Lanes *batch, const Buffer &to, bool rows, int64_t panel) {
  Shape shape = shapeOf(v.getType());
  mlir::Type element = elementOf(v.getType());
  const size_t lead = shape.size() - 2;
  const int64_t inner = shape[lead + 1], outer = shape[lead];
  const int64_t size = bytesOf(computeType);
  auto converted = [&](const Lanes &x) { return operandElement(x, element, computeType); };
  // Offset of element (r, c) in the packed block.
  auto place = [&](const Lanes &r, const Lanes &c) {
    Lanes base;
    base.base = to.ptr;
    if (rows) return addPointer(base, intOp(IntOp::Add, intOp(IntOp::Mul, r, uniformInt(inner)), c), size);
    Lanes p = intOp(IntOp::UDiv, c, uniformInt(panel)), q = intOp(IntOp::URem, c, uniformInt(panel));
    Lanes linear = intOp(IntOp::Add, intOp(IntOp::Add, intOp(IntOp::Mul, p, uniformInt(outer * panel)), intOp(IntOp::Mul, r, uniformInt(panel))), q);
    return addPointer(base, linear, size);
  };
  const int dim = unitDim(shape, {v});
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
      nest.extent = outer;
      nest.width = tile;
      forLoop(0, inner, tile, [&](Value *c0) {
        Index at(shape.size(), uniformInt(0));
        if (batch) at[0] = *batch;
        Lanes column = fromValue(c0, currentLevel());
        column.align = static_cast<uint8_t>(llvm::Log2_64(tile));
        at[lead + 1] = column;
        vectorLoop(nest, at, {}, [&](const Index &index) {
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
            storeAt(place(intOp(IntOp::Add, first, uniformInt(i)), run), fromValue(vectors[i], currentLevel()), computeType, nullptr);
        });
      });
    });
    return;
  }
  Shape flat = {outer, inner};
  Nest nest = planNest(flat, {}, 64);
  if (!rows && nest.width > panel) nest.width = panel;
  sink([&] {
    llvm::SmallVector<mlir::Value, 4> masks = masksBelow({v}, shape);
    runNest(nest, {lead ? llvm::ArrayRef<mlir::Value>() : llvm::ArrayRef<mlir::Value>(masks), false}, [&](const Index &at) {
      Index index = at;
      if (lead) index.insert(index.begin(), *batch);
      storeAt(place(at[0], at[1]), converted(eval(v, index)), computeType, nullptr);
    });
  });
}

bool Emitter::mayLieInPlace(mlir::Value v, mlir::Type elementType) {
  mlir::Operation *load = v.getDefiningOp();
  Shape shape = shapeOf(v.getType());
  if (!load || codeOf(load) != OpCode::Load || buffers_.count(v) || shape.size() != 2 || shape[0] < 2 || shape[1] < 2 || elementOf(v.getType()) != elementType) return false;
  llvm::DenseMap<mlir::Value, mlir::Value> inits;
  for (auto &[k, m] : moving_) inits[k] = m.init;
  return isLinear(inits, load->getOperand(0)) && (load->getNumOperands() < 2 || isConvexMask(inits, load->getOperand(1)));
}

Emitter::Placement Emitter::probePlacement(mlir::Value v, mlir::Type elementType) {
  // Addresses of three corners show stride and contiguity; the mask's bounds along the first and last row show whether any lane is off.
  mlir::Operation *load = v.getDefiningOp();
  Shape shape = shapeOf(v.getType());
  const int64_t outer = shape[0], inner = shape[1], size = bytesOf(elementType);
  llvm::Type *i64 = b.getInt64Ty();
  frames_[0].memo.clear();
  conditions_.clear();
  speculating_ = true;
  width_ = 1;
  auto address = [&](int64_t r, int64_t c) {
    return b.CreatePtrToInt(toVector(b, eval(load->getOperand(0), {uniformInt(r), uniformInt(c)}), 1), i64);
  };
  Placement place;
  place.origin = address(0, 0);
  place.rowStride = b.CreateSub(address(1, 0), place.origin);
  place.columnStride = b.CreateSub(address(0, 1), place.origin);
  Value *ok = b.getTrue();
  if (load->getNumOperands() > 1)
    for (int64_t r : {int64_t{0}, outer - 1})
      for (int64_t c : {int64_t{0}, inner - 1}) ok = b.CreateAnd(ok, eval(load->getOperand(1), {uniformInt(r), uniformInt(c)}).base);
  for (Value *c : conditions_) ok = b.CreateAnd(ok, c);
  conditions_.clear();
  speculating_ = false;
  frames_[0].memo.clear();
  place.inside = ok;
  place.whole = b.CreateAnd(ok, b.CreateICmpEQ(place.columnStride, b.getInt64(static_cast<uint64_t>(size))));
  return place;
}

Emitter::Operand Emitter::dotOperand(mlir::Value v, llvm::Type *compute, mlir::Type computeType, const Lanes *batch, bool rows, int64_t panel,
                                     bool preferInPlace) {
  Shape shape = shapeOf(v.getType());
  const size_t lead = shape.size() - 2;
  const int64_t outer = shape[lead], inner = shape[lead + 1], size = bytesOf(computeType);
  llvm::Type *i64 = b.getInt64Ty();
  Value *packedStride = b.getInt64(static_cast<uint64_t>(panel * size));
  Value *packedPanel = b.getInt64(static_cast<uint64_t>(outer * panel * size));
  Value *panelInPlace = b.getInt64(static_cast<uint64_t>(panel * size));
  llvm::DenseMap<mlir::Value, mlir::Value> inits;
  for (auto &[k, m] : moving_) inits[k] = m.init;
  mlir::Operation *load = v.getDefiningOp();
  const bool plainLoad = load && codeOf(load) == OpCode::Load && !buffers_.count(v) && lead == 0 && elementOf(v.getType()) == computeType;
  const bool hasMask = plainLoad && load->getNumOperands() > 1;
  const bool convex = !hasMask || isConvexMask(inits, load->getOperand(1));

  if (rows) {
    mlir::Type i64Type = mlir::IntegerType::get(v.getContext(), 64);
    Buffer &table = newBuffer(i64Type, {outer});
    freeAfter_[nullptr].push_back(&table);
    Nest nest = planNest(table.shape, {}, 16);
    auto evenRows = [&](Value *base) {
      sink([&] {
        runNest(nest, {}, [&](const Index &at) {
          Lanes offset = resize(intOp(IntOp::Mul, at[0], uniformInt(inner * size)), i64, true);
          storeBuffer(table, at, intOp(IntOp::Add, fromValue(b.CreatePtrToInt(base, i64), currentLevel()), offset));
        });
      });
    };
    if (Buffer *known = buffers_.lookup(v); known && known->elementType == computeType && lead == 0) {
      evenRows(known->ptr);
      return {nullptr, nullptr, nullptr, &table};
    }
    const bool rowMask = hasMask && evenStride(inits, load->getOperand(1), 1) == std::optional<int64_t>(0);
    const bool direct = plainLoad && evenStride(inits, load->getOperand(0), 1) == std::optional<int64_t>(1) && (!hasMask || rowMask || convex);
    auto pack = [&] {
      Buffer &packed = newBuffer(computeType, {outer, inner});
      packOperand(v, computeType, batch, packed, true, 0);
      evenRows(packed.ptr);
      freeAfter_[nullptr].push_back(&packed);
    };
    if (!direct) {
      pack();
      return {nullptr, nullptr, nullptr, &table};
    }
    Buffer *zeros = nullptr;
    if (rowMask) {
      // Masked-off rows have `other`, which must be zero to be shared; another value is packed.
      zeros = &newBuffer(computeType, {inner});
      freeAfter_[nullptr].push_back(zeros);
      Lanes other;
      other.base = llvm::Constant::getNullValue(compute);
      if (load->getNumOperands() > 2 && isUniformTensor(load->getOperand(2))) {
        frames_[0].memo.clear();
        other = eval(load->getOperand(2), {uniformInt(0), uniformInt(0)});
      } else if (load->getNumOperands() > 2) {
        pack();
        return {nullptr, nullptr, nullptr, &table};
      }
      Nest line = planNest(zeros->shape, {}, 64);
      sink([&] { runNest(line, {}, [&](const Index &at) { storeBuffer(*zeros, at, other); }); });
    }
    auto rowAddresses = [&] {
      sink([&] {
        runNest(nest, {}, [&](const Index &at) {
          Index first = {at[0], uniformInt(0)};
          Lanes pointer = eval(load->getOperand(0), first);
          Lanes mask;
          if (rowMask) mask = eval(load->getOperand(1), first);
          Value *p = vec(pointer);
          if (rowMask) {
            Value *nothing = nest.width > 1 ? b.CreateVectorSplat(static_cast<unsigned>(nest.width), zeros->ptr) : zeros->ptr;
            p = b.CreateSelect(vec(mask), p, nothing);
          }
          storeBuffer(table, at, fromValue(b.CreatePtrToInt(p, p->getType()->isVectorTy() ? p->getType()->getWithNewType(i64) : i64), currentLevel()));
        });
      });
    };
    if (!hasMask || rowMask) {
      rowAddresses();
      return {nullptr, nullptr, nullptr, &table, rowMask ? b.CreatePtrToInt(zeros->ptr, i64) : nullptr};
    }
    // A mask along the row too: in place when the whole block is inside.
    width_ = 1;
    frames_[0].memo.clear();
    Value *inside = b.getTrue();
    for (int64_t r : {int64_t{0}, outer - 1})
      for (int64_t c : {int64_t{0}, inner - 1}) inside = b.CreateAnd(inside, eval(load->getOperand(1), {uniformInt(r), uniformInt(c)}).base);
    frames_[0].memo.clear();
    llvm::BasicBlock *whole = llvm::BasicBlock::Create(b.getContext(), "whole", fn_), *edge = llvm::BasicBlock::Create(b.getContext(), "edge", fn_);
    llvm::BasicBlock *ready = llvm::BasicBlock::Create(b.getContext(), "ready", fn_);
    b.CreateCondBr(inside, whole, edge);
    for (bool isWhole : {true, false}) {
      b.SetInsertPoint(isWhole ? whole : edge);
      frames_[0].block = b.GetInsertBlock();
      frames_[0].memo.clear();
      if (isWhole)
        rowAddresses();
      else
        pack();
      b.CreateBr(ready);
    }
    b.SetInsertPoint(ready);
    frames_[0].block = ready;
    frames_[0].memo.clear();
    return {nullptr, nullptr, nullptr, &table};
  }

  Buffer *known = buffers_.lookup(v);
  if (known && known->elementType == computeType && lead == 0 && preferInPlace)
    return {known->ptr, b.getInt64(static_cast<uint64_t>(inner * size)), panelInPlace, nullptr};
  Buffer &packed = newBuffer(computeType, {outer, inner});
  Operand packedOperand{packed.ptr, packedStride, packedPanel, nullptr};
  std::optional<int64_t> apart = plainLoad ? evenStride(inits, load->getOperand(0), 0) : std::nullopt;
  const bool near = apart && *apart > 0 && *apart <= 4 * inner;
  const bool candidate = (preferInPlace || near) && mayLieInPlace(v, computeType);
  if (!candidate) {
    packOperand(v, computeType, batch, packed, false, panel);
    freeAfter_[nullptr].push_back(&packed);
    return packedOperand;
  }
  llvm::AllocaInst *pointer = entryAlloca(b.getPtrTy(), "operand"), *stride = entryAlloca(i64, "stride"), *panels = entryAlloca(i64, "panels");
  Placement place = probePlacement(v, computeType);
  b.CreateStore(b.CreateIntToPtr(place.origin, b.getPtrTy()), pointer);
  b.CreateStore(place.rowStride, stride);
  b.CreateStore(panelInPlace, panels);
  llvm::BasicBlock *pack = llvm::BasicBlock::Create(b.getContext(), "pack", fn_), *ready = llvm::BasicBlock::Create(b.getContext(), "ready", fn_);
  b.CreateCondBr(place.whole, ready, pack);
  b.SetInsertPoint(pack);
  frames_[0].block = pack;
  packOperand(v, computeType, batch, packed, false, panel);
  b.CreateStore(packed.ptr, pointer);
  b.CreateStore(packedStride, stride);
  b.CreateStore(packedPanel, panels);
  b.CreateBr(ready);
  b.SetInsertPoint(ready);
  frames_[0].block = ready;
  frames_[0].memo.clear();
  freeAfter_[nullptr].push_back(&packed);
  return {b.CreateLoad(b.getPtrTy(), pointer), b.CreateLoad(i64, stride), b.CreateLoad(i64, panels), nullptr, nullptr, true};
}

void Emitter::emitDot(mlir::Operation *op) {
  mlir::Value a = op->getOperand(0), bb = op->getOperand(1), c = op->getOperand(2), result = op->getResult(0);
  Shape aShape = shapeOf(a.getType()), cShape = shapeOf(result.getType());
  const size_t lead = cShape.size() - 2;
  const int64_t M = cShape[lead], N = cShape[lead + 1], K = aShape[lead + 1];
  mlir::MLIRContext *context = op->getContext();
  mlir::Type resultElement = elementOf(result.getType());
  mlir::Type computeType = resultElement.isF64()                        ? mlir::Type(mlir::Float64Type::get(context))
                           : llvm::isa<mlir::FloatType>(resultElement) ? mlir::Type(mlir::Float32Type::get(context))
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

  // Where the accumulator lives: the buffer of the loop-carried tensor that the result becomes, if nobody reads the old value later.
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
          storeBuffer(*acc, index, fromValue(convertFloat(x.uniform() ? x.base : vec(x), resultElement, computeType, false), x.level));
        });
      });
    }
  }

  auto block = [&](const Lanes *batch) {
    if (mlir::Type operandType = tileOperandType(op)) return emitTileProduct(op, operandType, *acc, zero, batch);
    // B is packed unless so few rows use it that copying it costs as much as using it.
    Operand left = dotOperand(a, compute, computeType, batch, true, 0, true);
    Operand right = dotOperand(bb, compute, computeType, batch, false, panel, M <= 16);
    llvm::Type *i64 = b.getInt64Ty();
    llvm::Type *vector = lanes > 1 ? static_cast<llvm::Type *>(llvm::FixedVectorType::get(compute, static_cast<unsigned>(lanes))) : compute;
    const llvm::Align align(static_cast<uint64_t>(size));
    auto at = [&](Value *p, Value *offset) { return b.CreateGEP(b.getInt8Ty(), p, offset); };
    Value *accBase = acc->ptr;
    if (batch) accBase = at(accBase, b.CreateMul(b.CreateZExt(batch->base, i64), b.getInt64(static_cast<uint64_t>(M * N * size))));
    llvm::SmallVector<llvm::AllocaInst *, 16> registers;
    for (int64_t i = 0; i < rows * vectors; ++i) registers.push_back(entryAlloca(vector, "c"));
    int64_t unroll = std::min<int64_t>(K, rows >= 8 ? 4 : 8);
    while (K % unroll) unroll /= 2;
    // What the next block of k will read of B is fetched into the second cache while this one is computed: packed weights come from memory
    // once, and the hardware looks ahead too little to hide that. Each turn of the k loop asks for its share of the cache lines.
    const int64_t lines = std::max<int64_t>(1, panel * size / 64), turns = M / rows * (K / unroll);
    const int64_t ahead = right.inMemory && llvm::isPowerOf2_64(static_cast<uint64_t>(lines)) ? (K * lines + turns - 1) / turns : 0;
    const bool skips = left.zeroRow && op->hasAttr("tt.masked_rows_unused");
    forLoop(0, N / panel, 1, [&](Value *jv) {
      Value *j = b.CreateZExt(jv, i64);
      Value *panelPointer = at(right.pointer, b.CreateMul(j, right.panelStride));
      forLoop(0, M / rows, 1, [&](Value *iv) {
        Value *i = b.CreateZExt(iv, i64);
        Value *tile = at(accBase, b.CreateAdd(b.CreateMul(i, b.getInt64(static_cast<uint64_t>(rows * N * size))),
                                              b.CreateMul(j, b.getInt64(static_cast<uint64_t>(panel * size)))));
        auto accumulator = [&](int64_t r, int64_t v) { return at(tile, b.getInt64(static_cast<uint64_t>((r * N + v * lanes) * size))); };
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t v = 0; v < vectors; ++v)
            b.CreateStore(zero ? static_cast<Value *>(llvm::Constant::getNullValue(vector)) : b.CreateAlignedLoad(vector, accumulator(r, v), align),
                          registers[r * vectors + v]);
        llvm::SmallVector<Value *, 8> rowPointers;
        for (int64_t r = 0; r < rows; ++r) {
          Value *slot = at(left.rows->ptr, b.CreateAdd(b.CreateMul(i, b.getInt64(static_cast<uint64_t>(rows * 8))), b.getInt64(static_cast<uint64_t>(r * 8))));
          rowPointers.push_back(b.CreateAlignedLoad(b.getPtrTy(), slot, llvm::Align(8)));
        }
        Value *end = b.getInt32(static_cast<uint32_t>(K));
        if (skips) {
          Value *any = b.getFalse();
          for (Value *p : rowPointers) any = b.CreateOr(any, b.CreateICmpNE(b.CreatePtrToInt(p, i64), left.zeroRow));
          end = b.CreateSelect(any, end, b.getInt32(0));
        }
        forLoop(b.getInt32(0), end, unroll, [&](Value *kv) {
          Value *k = b.CreateZExt(kv, i64);
          if (ahead > 0 && ahead <= 8) {
            Value *turn = b.CreateAdd(b.CreateMul(i, b.getInt64(static_cast<uint64_t>(K / unroll))), b.CreateUDiv(k, b.getInt64(static_cast<uint64_t>(unroll))));
            for (int64_t n = 0; n < ahead; ++n) {
              Value *line = b.CreateAdd(b.CreateMul(turn, b.getInt64(static_cast<uint64_t>(ahead))), b.getInt64(static_cast<uint64_t>(n)));
              Value *row = b.CreateAdd(b.CreateUDiv(line, b.getInt64(static_cast<uint64_t>(lines))), b.getInt64(static_cast<uint64_t>(K)));
              Value *within = b.CreateMul(b.CreateURem(line, b.getInt64(static_cast<uint64_t>(lines))), b.getInt64(64));
              Value *address = at(panelPointer, b.CreateAdd(b.CreateMul(row, right.stride), within));
              // A read, to be kept in the second cache, of data.
              b.CreateIntrinsic(llvm::Intrinsic::prefetch, {address->getType()}, {address, b.getInt32(0), b.getInt32(2), b.getInt32(1)});
            }
          }
          Value *bRow = at(panelPointer, b.CreateMul(k, right.stride));
          Value *kBytes = b.CreateMul(k, b.getInt64(static_cast<uint64_t>(size)));
          for (int64_t u = 0; u < unroll; ++u) {
            llvm::SmallVector<Value *, 4> columns;
            for (int64_t v = 0; v < vectors; ++v)
              columns.push_back(b.CreateAlignedLoad(vector, at(bRow, b.getInt64(static_cast<uint64_t>(v * lanes * size))), align));
            for (int64_t r = 0; r < rows; ++r) {
              Value *p = at(at(rowPointers[r], kBytes), b.getInt64(static_cast<uint64_t>(u * size)));
              Value *x = b.CreateAlignedLoad(compute, p, align);
              if (lanes > 1) x = b.CreateVectorSplat(static_cast<unsigned>(lanes), x);
              for (int64_t v = 0; v < vectors; ++v) {
                llvm::AllocaInst *cell = registers[r * vectors + v];
                Value *old = b.CreateLoad(vector, cell);
                Value *next = isFloat ? b.CreateIntrinsic(llvm::Intrinsic::fma, {vector}, {x, columns[v], old})
                                      : b.CreateAdd(old, b.CreateMul(x, columns[v]));
                b.CreateStore(next, cell);
              }
            }
            if (u + 1 < unroll) bRow = at(bRow, right.stride);
          }
        });
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t v = 0; v < vectors; ++v) b.CreateAlignedStore(b.CreateLoad(vector, registers[r * vectors + v]), accumulator(r, v), align);
      });
    });
    freeAfter(nullptr);
    freeAfter_.erase(nullptr);
  };
  if (lead == 0)
    block(nullptr);
  else {
    // Batches one after another: the operands' blocks are packed for each. Nested sinks need the function's own level, so the loop is a plain one.
    llvm::BasicBlock *loop = llvm::BasicBlock::Create(b.getContext(), "batch", fn_), *exit = llvm::BasicBlock::Create(b.getContext(), "batches", fn_);
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
