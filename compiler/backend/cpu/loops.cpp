// Loop nests of sinks.
#include <algorithm>

#include "backend/cpu/emitter.h"
#include "ir/tile/tile.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/ADT/Hashing.h"
#include "llvm/Support/MathExtras.h"

namespace neso::cpu {

using llvm::BasicBlock;
using llvm::Value;

size_t Emitter::KeyHash::operator()(const Key &k) const {
  return llvm::hash_combine_range(k.words.begin(), k.words.end());
}

Emitter::Key Emitter::keyOf(mlir::Value v, const Index &index) {
  Key key;
  key.words.push_back(v.getAsOpaquePointer());
  for (const Lanes &l : index) {
    key.words.push_back(l.base);
    key.words.push_back(l.offsets ? static_cast<const void *>(l.offsets) : static_cast<const void *>(l.step));
  }
  return key;
}

Emitter::AtLevel::AtLevel(Emitter &e, int level) : e_(e) {
  if (level >= e.currentLevel()) return;
  saved_ = e.b.saveIP();
  moved_ = true;
  BasicBlock *block = e.frames_[level].block;
  if (llvm::Instruction *end = block->getTerminator())
    e.b.SetInsertPoint(end);
  else
    e.b.SetInsertPoint(block);
}
Emitter::AtLevel::~AtLevel() {
  if (moved_) e_.b.restoreIP(saved_);
}

void Emitter::forLoop(Value *lo, Value *hi, int64_t step, llvm::function_ref<void(Value *)> body) {
  auto *lc = llvm::dyn_cast<llvm::ConstantInt>(lo), *hc = llvm::dyn_cast<llvm::ConstantInt>(hi);
  if (lc && hc && lc->getSExtValue() >= hc->getSExtValue()) return;
  if (lc && hc && hc->getSExtValue() - lc->getSExtValue() <= step) {
    // One turn needs no loop, but a level of its own all the same: its index may be known to be zero and must not be
    // hoisted by level.
    BasicBlock *pre = b.GetInsertBlock();
    BasicBlock *once = BasicBlock::Create(b.getContext(), "once", fn_);
    b.CreateBr(once);
    frames_.back().block = pre;
    b.SetInsertPoint(once);
    frames_.push_back({once, {}});
    body(lo);
    frames_.pop_back();
    frames_.back().block = b.GetInsertBlock();
    // Code of the outer level that comes later goes on in this block.
    return;
  }
  BasicBlock *pre = b.GetInsertBlock();
  BasicBlock *loop = BasicBlock::Create(b.getContext(), "loop", fn_);
  BasicBlock *exit = BasicBlock::Create(b.getContext(), "done", fn_);
  if (lc && hc)
    b.CreateBr(loop);
  else
    b.CreateCondBr(b.CreateICmpSLT(lo, hi), loop, exit);
  frames_.back().block = pre;
  b.SetInsertPoint(loop);
  llvm::PHINode *iv = b.CreatePHI(b.getInt32Ty(), 2, "i");
  iv->addIncoming(lo, pre);
  frames_.push_back({loop, {}});
  body(iv);
  frames_.pop_back();
  Value *next = b.CreateNSWAdd(iv, b.getInt32(static_cast<uint32_t>(step)));
  iv->addIncoming(next, b.GetInsertBlock());
  b.CreateCondBr(b.CreateICmpSLT(next, hi), loop, exit);
  b.SetInsertPoint(exit);
  frames_.back().block = exit;
}

void Emitter::forLoop(int64_t lo, int64_t hi, int64_t step, llvm::function_ref<void(Value *)> body) {
  forLoop(b.getInt32(static_cast<uint32_t>(lo)), b.getInt32(static_cast<uint32_t>(hi)), step, body);
}

void Emitter::ifThen(Value *condition, llvm::function_ref<void()> body) {
  BasicBlock *pre = b.GetInsertBlock();
  BasicBlock *then = BasicBlock::Create(b.getContext(), "then", fn_);
  BasicBlock *exit = BasicBlock::Create(b.getContext(), "endif", fn_);
  b.CreateCondBr(condition, then, exit);
  frames_.back().block = pre;
  b.SetInsertPoint(then);
  frames_.push_back({then, {}});
  body();
  frames_.pop_back();
  b.CreateBr(exit);
  b.SetInsertPoint(exit);
  frames_.back().block = exit;
}

void Emitter::sink(llvm::function_ref<void()> emit) {
  // Nested use (a buffer that a sink finds missing) is laid out before the outer sink by its caller, so frames start
  // afresh here.
  NESO_CHECK(frames_.size() == 1, "sinks do not nest");
  frames_[0].memo.clear();
  BasicBlock *pre = b.GetInsertBlock();
  BasicBlock *fast = BasicBlock::Create(b.getContext(), "sink", fn_);
  llvm::BranchInst *go = b.CreateBr(fast);
  frames_[0].block = pre;
  conditions_.clear();
  speculating_ = true;
  b.SetInsertPoint(fast);
  frames_.push_back({fast, {}});
  emit();
  frames_.pop_back();
  speculating_ = false;
  if (!conditions_.empty()) {
    BasicBlock *merge = BasicBlock::Create(b.getContext(), "merge", fn_);
    b.CreateBr(merge);
    BasicBlock *slow = BasicBlock::Create(b.getContext(), "general", fn_);
    b.SetInsertPoint(go);
    Value *all = conditions_[0];
    for (size_t i = 1; i < conditions_.size(); ++i) all = b.CreateAnd(all, conditions_[i]);
    b.CreateCondBr(all, fast, slow);
    go->eraseFromParent();
    conditions_.clear();
    b.SetInsertPoint(slow);
    frames_.push_back({slow, {}});
    emit();
    frames_.pop_back();
    b.CreateBr(merge);
    b.SetInsertPoint(merge);
  }
  frames_[0].memo.clear();
  frames_[0].block = b.GetInsertBlock();
}

// ---------------------------------------------------------------------------------------------------------------- shape of the nest

namespace {
/// Elements that v (a pointer or integer tensor) moves by along `dim`: a constant, or nothing when it is not known.
std::optional<int64_t> strideAlong(mlir::Value v, int64_t dim, int depth = 0) {
  mlir::Operation *def = v.getDefiningOp();
  if (!def || depth > 24) return std::nullopt;
  auto type = llvm::dyn_cast<mlir::RankedTensorType>(v.getType());
  if (!type) return 0;
  auto of = [&](unsigned i, int64_t d) { return strideAlong(def->getOperand(i), d, depth + 1); };
  switch (codeOf(def)) {
  case OpCode::MakeRange: return 1;
  case OpCode::Splat: return 0;
  case OpCode::ArithConstant: {
    auto dense = llvm::dyn_cast<mlir::DenseElementsAttr>(def->getAttr("value"));
    return dense && dense.isSplat() ? std::optional<int64_t>(0) : std::nullopt;
  }
  case OpCode::ExpandDims: {
    int64_t axis = def->getAttrOfType<mlir::IntegerAttr>("axis").getInt();
    return axis == dim ? std::optional<int64_t>(0) : of(0, dim > axis ? dim - 1 : dim);
  }
  case OpCode::Broadcast:
    return llvm::cast<mlir::RankedTensorType>(def->getOperand(0).getType()).getShape()[dim] == 1
               ? std::optional<int64_t>(0)
               : of(0, dim);
  case OpCode::Trans: {
    auto order = def->getAttrOfType<mlir::DenseI32ArrayAttr>("order");
    return of(0, order[dim]);
  }
  case OpCode::AddI:
  case OpCode::AddPtr: {
    std::optional<int64_t> a = of(0, dim), c = of(1, dim);
    if (a && c) return *a + *c;
    return std::nullopt;
  }
  case OpCode::SubI: {
    std::optional<int64_t> a = of(0, dim), c = of(1, dim);
    if (a && c) return *a - *c;
    return std::nullopt;
  }
  case OpCode::MulI: {
    std::optional<int64_t> a = of(0, dim), c = of(1, dim);
    if (a && c && *a == 0 && *c == 0) return 0;
    for (int k : {0, 1}) {
      mlir::Operation *other = def->getOperand(1 - k).getDefiningOp();
      if (!other || codeOf(other) != OpCode::ArithConstant) continue;
      auto dense = llvm::dyn_cast<mlir::DenseElementsAttr>(other->getAttr("value"));
      std::optional<int64_t> s = k == 0 ? a : c;
      if (dense && dense.isSplat() && s) return *s * dense.getSplatValue<llvm::APInt>().getSExtValue();
    }
    return std::nullopt;
  }
  case OpCode::ExtSI:
  case OpCode::ExtUI:
  case OpCode::TruncI:
  case OpCode::RemSI:
  case OpCode::RemUI: return of(0, dim);
  default: return std::nullopt;
  }
}

/// Calls fn on every virtual operation below `values` once.
void walkBelow(const Uses &uses, llvm::ArrayRef<mlir::Value> values, llvm::function_ref<bool(mlir::Operation *)> fn) {
  llvm::SmallVector<mlir::Value, 16> todo(values.begin(), values.end());
  llvm::DenseMap<mlir::Operation *, bool> seen;
  while (!todo.empty() && seen.size() < 256) {
    mlir::Operation *def = todo.pop_back_val().getDefiningOp();
    if (!def || !uses.isVirtual(def) || !seen.try_emplace(def, true).second) continue;
    if (fn(def))
      for (mlir::Value o : def->getOperands()) todo.push_back(o);
  }
}
} // namespace

int Emitter::unitDim(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<mlir::Value> values) {
  const int rank = static_cast<int>(shape.size());
  llvm::SmallVector<int, 4> votes(rank, 0);
  auto vote = [&](mlir::Value pointer, int weight) {
    auto type = llvm::dyn_cast<mlir::RankedTensorType>(pointer.getType());
    if (!type || type.getShape() != shape) return;
    // Loop-carried pointers move as their initial value does.
    for (auto it = moving_.find(pointer); it != moving_.end(); it = moving_.find(pointer)) pointer = it->second.init;
    for (int d = 0; d < rank; ++d)
      if (std::optional<int64_t> s = strideAlong(pointer, d); s && *s == 1 && shape[d] > 1) votes[d] += weight;
  };
  for (mlir::Value v : values)
    if (llvm::isa<tt::PointerType>(elementOf(v.getType()))) vote(v, 3);
  walkBelow(*uses_, values, [&](mlir::Operation *op) {
    if (buffers_.count(op->getResult(0))) return false;
    auto type = llvm::dyn_cast<mlir::RankedTensorType>(op->getResult(0).getType());
    if (!type || type.getShape() != shape) return false;
    if (codeOf(op) == OpCode::Load) vote(op->getOperand(0), 2);
    return true;
  });
  int best = rank - 1;
  for (int d = 0; d < rank; ++d)
    if (votes[d] > votes[best]) best = d;
  return best;
}

int64_t Emitter::widthFor(llvm::ArrayRef<mlir::Value> values, int64_t extent, int maxFactor) {
  int cost = 0;
  for (mlir::Value v : values) cost += uses_->cost(v);
  // Cheap bodies take several registers a step to hide latencies; costly ones have enough independent work.
  int factor = cost > 60 ? 1 : cost > 16 ? 2 : 4;
  factor = std::min(factor, maxFactor);
  int64_t width = static_cast<int64_t>(caps_.f32Lanes) * factor;
  while (width > extent) width /= 2;
  return std::max<int64_t>(width, 1);
}

Emitter::Nest Emitter::planNest(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<mlir::Value> values, int64_t maxWidth) {
  Nest nest;
  nest.shape.assign(shape.begin(), shape.end());
  if (shape.empty()) return nest;
  int dim = unitDim(shape, values);
  const int rank = static_cast<int>(shape.size());
  const int64_t native = caps_.f32Lanes;
  if (shape[dim] >= native || rank == 1) {
    nest.vectorDim = dim;
    nest.extent = shape[dim];
  } else {
    int from = rank;
    int64_t extent = 1;
    while (from > 0 && extent < native * 4) extent *= shape[--from];
    if (from == rank - 1) {
      nest.vectorDim = rank - 1;
    } else
      nest.flatFrom = from;
    nest.extent = extent;
  }
  nest.width = std::min(maxWidth, widthFor(values, nest.extent, 4));
  // Shapes are powers of two; anything else is walked one element at a time.
  while (nest.extent % nest.width) nest.width /= 2;
  return nest;
}

Index Emitter::vectorIndex(const Nest &nest, const Index &outer, Value *iv) {
  Lanes run;
  run.base = iv;
  run.level = static_cast<uint8_t>(currentLevel());
  run.align = static_cast<uint8_t>(llvm::Log2_64(nest.width));
  if (nest.width > 1) {
    run.kind = Lanes::Kind::Offsets;
    run.offsets = pool_.run(nest.width, 1);
  }
  Index index = outer;
  if (nest.vectorDim >= 0)
    index[nest.vectorDim] = run;
  else {
    Index inner = delinearize(run, llvm::ArrayRef<int64_t>(nest.shape).drop_front(nest.flatFrom));
    for (size_t d = 0; d < inner.size(); ++d) index[nest.flatFrom + d] = inner[d];
  }
  return index;
}

Lanes Emitter::linearize(const Index &index, llvm::ArrayRef<int64_t> shape) {
  Lanes sum = uniformInt(0);
  int64_t stride = 1;
  for (int d = static_cast<int>(shape.size()) - 1; d >= 0; --d) {
    if (shape[d] != 1) {
      Lanes term = stride == 1 ? index[d] : intOp(IntOp::Mul, index[d], uniformInt(stride));
      sum = stride == 1 ? term : intOp(IntOp::Add, sum, term);
    }
    stride *= shape[d];
  }
  return sum;
}

Index Emitter::delinearize(const Lanes &linear, llvm::ArrayRef<int64_t> shape) {
  Index index(shape.size());
  int64_t stride = 1, total = 1;
  for (int64_t s : shape) total *= s;
  for (int d = static_cast<int>(shape.size()) - 1; d >= 0; --d) {
    Lanes x = stride == 1 ? linear : intOp(IntOp::UDiv, linear, uniformInt(stride));
    if (shape[d] == 1)
      x = uniformInt(0);
    else if (stride * shape[d] != total)
      x = intOp(IntOp::URem, x, uniformInt(shape[d]));
    index[d] = x;
    stride *= shape[d];
  }
  return index;
}

// ------------------------------------------------------------------------------------------------------------------------- masks

llvm::SmallVector<mlir::Value, 4> Emitter::masksBelow(llvm::ArrayRef<mlir::Value> values,
                                                      llvm::ArrayRef<int64_t> shape) {
  llvm::SmallVector<mlir::Value, 4> masks;
  walkBelow(*uses_, values, [&](mlir::Operation *op) {
    if (buffers_.count(op->getResult(0))) return false;
    auto type = llvm::dyn_cast<mlir::RankedTensorType>(op->getResult(0).getType());
    if (!type || type.getShape() != shape) return false;
    if (codeOf(op) == OpCode::Load && op->getNumOperands() > 1 &&
        std::find(masks.begin(), masks.end(), op->getOperand(1)) == masks.end())
      masks.push_back(op->getOperand(1));
    return true;
  });
  return masks;
}

Value *Emitter::prefixBound(mlir::Value mask, const Index &index, const Nest &nest) {
  Value *extent = b.getInt32(static_cast<uint32_t>(nest.extent));
  // Where the index does not move along the vector direction, one condition decides.
  if (std::all_of(index.begin(), index.end(), [](const Lanes &l) { return l.uniform(); })) {
    Lanes m = eval(mask, index);
    if (!m.uniform()) return nullptr;
    return b.CreateSelect(m.base, extent, b.getInt32(0));
  }
  if (buffers_.count(mask)) return nullptr;
  mlir::Operation *def = mask.getDefiningOp();
  if (!def) return nullptr;
  switch (codeOf(def)) {
  case OpCode::ArithConstant:
  case OpCode::Splat: {
    Lanes m = eval(mask, index);
    return b.CreateSelect(m.base, extent, b.getInt32(0));
  }
  case OpCode::AndI: {
    Value *x = prefixBound(def->getOperand(0), index, nest);
    Value *y = x ? prefixBound(def->getOperand(1), index, nest) : nullptr;
    return y ? b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, x, y) : nullptr;
  }
  case OpCode::Broadcast: {
    auto type = llvm::cast<mlir::RankedTensorType>(def->getOperand(0).getType());
    Index inner = index;
    for (size_t d = 0; d < inner.size(); ++d)
      if (type.getShape()[d] == 1) inner[d] = uniformInt(0);
    return prefixBound(def->getOperand(0), inner, nest);
  }
  case OpCode::ExpandDims: {
    Index inner = index;
    inner.erase(inner.begin() + def->getAttrOfType<mlir::IntegerAttr>("axis").getInt());
    return prefixBound(def->getOperand(0), inner, nest);
  }
  case OpCode::CmpI: {
    using P = mlir::arith::CmpIPredicate;
    P predicate = llvm::cast<mlir::arith::CmpIOp>(def).getPredicate();
    const bool flipped = predicate == P::sgt || predicate == P::sge;
    if (!flipped && predicate != P::slt && predicate != P::sle) return nullptr;
    Lanes x = eval(def->getOperand(flipped ? 1 : 0), index), y = eval(def->getOperand(flipped ? 0 : 1), index);
    if (!y.uniform() || x.kind != Lanes::Kind::Offsets || !isRun(*x.offsets, 1)) return nullptr;
    // base + l < y  <=>  l < y - base; in 64 bits, so that nothing wraps.
    llvm::Type *i64 = b.getInt64Ty();
    Value *bound = b.CreateSub(b.CreateSExt(y.base, i64), b.CreateSExt(x.base, i64));
    if (predicate == P::sle || predicate == P::sge) bound = b.CreateAdd(bound, b.getInt64(1));
    bound = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, bound, b.getInt64(static_cast<uint64_t>(nest.extent)));
    bound = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, bound, b.getInt64(0));
    return b.CreateTrunc(bound, b.getInt32Ty());
  }
  default: return nullptr;
  }
}

void Emitter::vectorLoop(const Nest &nest, Index &outer, const Masks &masks,
                         llvm::function_ref<void(const Index &)> body) {
  width_ = nest.width;
  auto run = [&](Value *lo, Value *hi, llvm::ArrayRef<mlir::Value> known) -> void {
    forLoop(lo, hi, nest.width, [&](Value *iv) {
      Index index = vectorIndex(nest, outer, iv);
      if (!known.empty()) {
        Lanes yes;
        yes.base = b.getTrue();
        for (mlir::Value m : known) frames_.back().memo[keyOf(m, index)] = yes;
      }
      body(index);
    });
  };
  Value *zero = b.getInt32(0);
  Value *extent = b.getInt32(static_cast<uint32_t>(nest.extent));
  llvm::SmallVector<mlir::Value, 4> known;
  Value *bound = nullptr, *trimmed = nullptr;
  if (nest.vectorDim >= 0 && nest.width > 1 && !masks.values.empty()) {
    // Bounds are found at position 0 of the vector direction, where the base of every run is its start.
    Nest probe = nest;
    frames_.push_back({b.GetInsertBlock(), {}});
    Index at = vectorIndex(probe, outer, zero);
    at[nest.vectorDim].level = static_cast<uint8_t>(currentLevel());
    at[nest.vectorDim].align = 30;
    for (size_t i = 0; i < masks.values.size(); ++i) {
      Value *n = prefixBound(masks.values[i], at, nest);
      if (!n) continue;
      known.push_back(masks.values[i]);
      bound = bound ? b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, bound, n) : n;
      if (i == 0 && masks.trim) trimmed = n;
    }
    frames_.pop_back();
  }
  Value *start = b.getInt32(static_cast<uint32_t>(masks.start));
  if (!bound) return run(start, extent, {});
  Value *step = b.getInt32(static_cast<uint32_t>(-nest.width));
  Value *full = b.CreateAnd(bound, step);
  if (auto *c = llvm::dyn_cast<llvm::ConstantInt>(full); c && c->getSExtValue() == nest.extent)
    return run(start, extent, known);
  if (masks.start) full = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, full, start);
  run(start, full, known);
  Value *end = extent;
  if (trimmed) {
    end = b.CreateAnd(b.CreateAdd(trimmed, b.getInt32(static_cast<uint32_t>(nest.width - 1))), step);
    end = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, end, full);
  }
  run(full, end, {});
}

void Emitter::runNest(const Nest &nest, const Masks &masks, llvm::function_ref<void(const Index &)> body) {
  const int64_t savedWidth = width_;
  Index outer(nest.shape.size(), uniformInt(0));
  const int rank = static_cast<int>(nest.shape.size());
  auto nestFrom = [&](auto &self, int d) -> void {
    while (d < rank && (d == nest.vectorDim || nest.shape[d] == 1)) ++d;
    if (d >= rank || (nest.flatFrom >= 0 && d >= nest.flatFrom)) {
      if (rank == 0) {
        width_ = 1;
        body(outer);
      } else
        vectorLoop(nest, outer, masks, body);
      return;
    }
    forLoop(0, nest.shape[d], 1, [&](Value *iv) {
      outer[d] = fromValue(iv, currentLevel());
      self(self, d + 1);
    });
  };
  nestFrom(nestFrom, 0);
  width_ = savedWidth;
}

} // namespace neso::cpu
