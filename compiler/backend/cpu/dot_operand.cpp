// Operands of tt.dot: where their blocks lie, and packing those that cannot be read in place.
#include <algorithm>

#include "backend/cpu/emitter.h"
#include "ir/tile/tile.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/Support/MathExtras.h"

namespace neso::cpu {

using llvm::Value;

namespace {
/// Whether v's elements are a linear function of the index, remainders (checked apart) and loop-carried motion
/// included.
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
      while (d && (codeOf(d) == OpCode::Broadcast || codeOf(d) == OpCode::ExpandDims))
        d = d->getOperand(0).getDefiningOp();
      return d && (codeOf(d) == OpCode::Splat || codeOf(d) == OpCode::ArithConstant);
    };
    return (fixed(def->getOperand(0)) || fixed(def->getOperand(1))) && all();
  }
  default: return false;
  }
}

/// How far v (a pointer in elements, or an integer) moves along `dim`, the same everywhere: a constant, or nothing when
/// that is not known.
std::optional<int64_t> evenStride(const llvm::DenseMap<mlir::Value, mlir::Value> &inits, mlir::Value v, int64_t dim,
                                  int depth = 0) {
  auto type = llvm::dyn_cast<mlir::RankedTensorType>(v.getType());
  if (!type || type.getShape()[static_cast<size_t>(dim)] == 1) return 0;
  if (depth > 24) return std::nullopt;
  if (auto it = inits.find(v); it != inits.end()) return evenStride(inits, it->second, dim, depth + 1);
  mlir::Operation *def = v.getDefiningOp();
  if (!def) return std::nullopt;
  auto of = [&](unsigned i, int64_t d) { return evenStride(inits, def->getOperand(i), d, depth + 1); };
  auto splat = [&](mlir::Value o) -> std::optional<int64_t> {
    mlir::Operation *d = o.getDefiningOp();
    while (d && (codeOf(d) == OpCode::Broadcast || codeOf(d) == OpCode::ExpandDims || codeOf(d) == OpCode::Splat))
      d = d->getOperand(0).getDefiningOp();
    if (!d || codeOf(d) != OpCode::ArithConstant) return std::nullopt;
    if (auto dense = llvm::dyn_cast<mlir::DenseElementsAttr>(d->getAttr("value"));
        dense && dense.isSplat() && dense.getElementType().isIntOrIndex())
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

/// Masks that are conjunctions of comparisons of linear functions: true on a whole block when they are true at its
/// corners.
bool isConvexMask(const llvm::DenseMap<mlir::Value, mlir::Value> &inits, mlir::Value v, int depth = 0) {
  mlir::Operation *def = v.getDefiningOp();
  if (!def || depth > 24) return false;
  switch (codeOf(def)) {
  case OpCode::Splat: return true;
  case OpCode::Broadcast:
  case OpCode::ExpandDims:
  case OpCode::Trans: return isConvexMask(inits, def->getOperand(0), depth + 1);
  case OpCode::AndI:
    return isConvexMask(inits, def->getOperand(0), depth + 1) && isConvexMask(inits, def->getOperand(1), depth + 1);
  case OpCode::CmpI: {
    using P = mlir::arith::CmpIPredicate;
    P p = llvm::cast<mlir::arith::CmpIOp>(def).getPredicate();
    return (p == P::slt || p == P::sle || p == P::sgt || p == P::sge) &&
           isLinear(inits, def->getOperand(0), depth + 1) && isLinear(inits, def->getOperand(1), depth + 1);
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

void Emitter::packOperand(mlir::Value v, mlir::Type computeType, const Lanes *batch, const Buffer &to, bool rows,
                          int64_t panel) {
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
    Lanes linear = intOp(
        IntOp::Add,
        intOp(IntOp::Add, intOp(IntOp::Mul, p, uniformInt(outer * panel)), intOp(IntOp::Mul, r, uniformInt(panel))), q);
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
            storeAt(place(intOp(IntOp::Add, first, uniformInt(i)), run), fromValue(vectors[i], currentLevel()),
                    computeType, nullptr);
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
    runNest(nest, {lead ? llvm::ArrayRef<mlir::Value>() : llvm::ArrayRef<mlir::Value>(masks), false},
            [&](const Index &at) {
              Index index = at;
              if (lead) index.insert(index.begin(), *batch);
              storeAt(place(at[0], at[1]), converted(eval(v, index)), computeType, nullptr);
            });
  });
}

bool Emitter::mayLieInPlace(mlir::Value v, mlir::Type elementType) {
  mlir::Operation *load = v.getDefiningOp();
  Shape shape = shapeOf(v.getType());
  if (!load || codeOf(load) != OpCode::Load || buffers_.count(v) || shape.size() != 2 || shape[0] < 2 || shape[1] < 2 ||
      elementOf(v.getType()) != elementType)
    return false;
  llvm::DenseMap<mlir::Value, mlir::Value> inits;
  for (auto &[k, m] : moving_) inits[k] = m.init;
  return isLinear(inits, load->getOperand(0)) &&
         (load->getNumOperands() < 2 || isConvexMask(inits, load->getOperand(1)));
}

Emitter::Placement Emitter::probePlacement(mlir::Value v, mlir::Type elementType) {
  // Addresses of three corners show stride and contiguity; the mask's bounds along the first and last row show whether
  // any lane is off.
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
      for (int64_t c : {int64_t{0}, inner - 1})
        ok = b.CreateAnd(ok, eval(load->getOperand(1), {uniformInt(r), uniformInt(c)}).base);
  for (Value *c : conditions_) ok = b.CreateAnd(ok, c);
  conditions_.clear();
  speculating_ = false;
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

Value *Emitter::leftRows(mlir::Value v, mlir::Type computeType, const Lanes *batch, const Buffer &table,
                         const Buffer &packed) {
  Shape shape = shapeOf(v.getType());
  const size_t lead = shape.size() - 2;
  const int64_t outer = shape[lead], inner = shape[lead + 1], size = bytesOf(computeType);
  llvm::Type *i64 = b.getInt64Ty();
  llvm::DenseMap<mlir::Value, mlir::Value> inits;
  for (auto &[k, m] : moving_) inits[k] = m.init;
  mlir::Operation *load = v.getDefiningOp();
  const bool plainLoad =
      load && codeOf(load) == OpCode::Load && !buffers_.count(v) && lead == 0 && elementOf(v.getType()) == computeType;
  const bool hasMask = plainLoad && load->getNumOperands() > 1;
  Nest nest = planNest({outer}, {}, 16);
  auto evenRows = [&](Value *base, Value *stride) {
    sink([&] {
      runNest(nest, {}, [&](const Index &at) {
        Lanes offset = intOp(IntOp::Mul, resize(at[0], i64, true), fromValue(stride, 0));
        storeBuffer(table, at, intOp(IntOp::Add, fromValue(base, 0), offset));
      });
    });
  };
  auto pack = [&] {
    packOperand(v, computeType, batch, packed, true, 0);
    evenRows(b.CreatePtrToInt(packed.ptr, i64), b.getInt64(static_cast<uint64_t>(inner * size)));
  };
  if (Buffer *known = buffers_.lookup(v); known && known->elementType == computeType && lead == 0) {
    evenRows(b.CreatePtrToInt(known->ptr, i64), b.getInt64(static_cast<uint64_t>(inner * size)));
    return nullptr;
  }
  const bool rowMask = hasMask && evenStride(inits, load->getOperand(1), 1) == std::optional<int64_t>(0);
  const bool contiguous = plainLoad && evenStride(inits, load->getOperand(0), 1) == std::optional<int64_t>(1);
  if (!contiguous || (hasMask && !rowMask)) {
    if (contiguous && isConvexMask(inits, load->getOperand(1))) {
      // A mask along the row too: in place when the whole block is inside.
      width_ = 1;
      frames_[0].memo.clear();
      Value *inside = b.getTrue();
      for (int64_t r : {int64_t{0}, outer - 1})
        for (int64_t c : {int64_t{0}, inner - 1})
          inside = b.CreateAnd(inside, eval(load->getOperand(1), {uniformInt(r), uniformInt(c)}).base);
      branch(inside, [&] { rowAddresses(load, table, nullptr); }, pack);
    } else if (mayLieInPlace(v, computeType)) {
      // The stride along the row is known at run time only.
      Placement place = probePlacement(v, computeType);
      branch(place.whole, [&] { evenRows(place.origin, place.rowStride); }, pack);
    } else
      pack();
    return nullptr;
  }
  if (!rowMask) {
    rowAddresses(load, table, nullptr);
    return nullptr;
  }
  // Masked-off rows have `other`, which must be the same everywhere to be shared; another value is packed.
  Lanes other;
  other.base = llvm::Constant::getNullValue(typeOf(computeType));
  if (load->getNumOperands() > 2 && isUniformTensor(load->getOperand(2))) {
    frames_[0].memo.clear();
    other = eval(load->getOperand(2), {uniformInt(0), uniformInt(0)});
  } else if (load->getNumOperands() > 2) {
    pack();
    return nullptr;
  }
  Buffer &zeros = newBuffer(computeType, {inner});
  freeAfter_[nullptr].push_back(&zeros);
  Nest line = planNest(zeros.shape, {}, 64);
  sink([&] { runNest(line, {}, [&](const Index &at) { storeBuffer(zeros, at, other); }); });
  rowAddresses(load, table, zeros.ptr);
  return b.CreatePtrToInt(zeros.ptr, i64);
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

Emitter::Panels Emitter::rightPanels(mlir::Operation *op, mlir::Type storedType, const Lanes *batch, int64_t panel,
                                     bool preferInPlace) {
  mlir::Value v = op->getOperand(1);
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
    packOperand(v, storedType, batch, packed, false, panel);
  };
  llvm::DenseMap<mlir::Value, mlir::Value> inits;
  for (auto &[k, m] : moving_) inits[k] = m.init;
  const bool inPlace = mayLieInPlace(v, storedType);
  std::optional<int64_t> apart = inPlace ? evenStride(inits, v.getDefiningOp()->getOperand(0), 0) : std::nullopt;
  const bool near = apart && *apart > 0 && *apart <= 4 * inner;
  if (!inPlace || !(preferInPlace || near))
    return {packedOnce(op, outer * inner * size, pack), packedStride, packedPanel, false};
  llvm::AllocaInst *pointer = entryAlloca(b.getPtrTy(), "operand"), *stride = entryAlloca(i64, "stride"),
                   *panels = entryAlloca(i64, "panels");
  Placement place = probePlacement(v, storedType);
  branch(
      place.whole,
      [&] {
        b.CreateStore(b.CreateIntToPtr(place.origin, b.getPtrTy()), pointer);
        b.CreateStore(place.rowStride, stride);
        b.CreateStore(panelInPlace, panels);
      },
      [&] {
        b.CreateStore(packedFresh(op, outer * inner * size, pack), pointer);
        b.CreateStore(packedStride, stride);
        b.CreateStore(packedPanel, panels);
      });
  return {b.CreateLoad(b.getPtrTy(), pointer), b.CreateLoad(i64, stride), b.CreateLoad(i64, panels), true};
}

} // namespace neso::cpu
