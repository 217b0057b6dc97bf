// Loop nests of sinks.
#include <algorithm>

#include "backend/cpu/emitter.h"
#include "backend/cpu/masks.h"
#include "ir/tile/tile.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/ADT/Hashing.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/Support/KnownBits.h"
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
    if (l.step) key.words.push_back(reinterpret_cast<const void *>(l.scale));
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
    // What was known under the conditions is not known here.
    frames_[0].memo.clear();
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
/// Operations that a walk below a value looks at, at most: more than a window of 7 x 7 has.
constexpr size_t kMostWalked = 4096;

/// Divisions that a vector's first elements are computed of; more are left to lanes.
constexpr size_t kMostDivided = 2;
/// Vectors of several registers are taken where a period is as many of them long.
constexpr int64_t kPeriods = 8;

/// Vectors of one register that take their masks one by one rather than in loops.
constexpr int64_t kFewVectors = 4;

/// Whether a tensor of shape `from` has an element for each of `shape`, by having size 1 where the sizes differ.
bool spreadsTo(llvm::ArrayRef<int64_t> from, llvm::ArrayRef<int64_t> shape) {
  bool fits = from.size() == shape.size();
  for (size_t d = 0; fits && d < shape.size(); ++d) fits = from[d] == shape[d] || from[d] == 1;
  return fits;
}

/// Calls fn on every virtual operation below `values` once.
void walkBelow(const Uses &uses, llvm::ArrayRef<mlir::Value> values, llvm::function_ref<bool(mlir::Operation *)> fn) {
  llvm::SmallVector<mlir::Value, 16> todo(values.begin(), values.end());
  llvm::DenseMap<mlir::Operation *, bool> seen;
  while (!todo.empty() && seen.size() < kMostWalked) {
    mlir::Operation *def = todo.pop_back_val().getDefiningOp();
    if (!def || !uses.isVirtual(def) || !seen.try_emplace(def, true).second) continue;
    if (fn(def))
      for (mlir::Value o : def->getOperands()) todo.push_back(o);
  }
}
} // namespace

int Emitter::unitDim(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<mlir::Value> values, int64_t farthest) {
  const int rank = static_cast<int>(shape.size());
  llvm::SmallVector<int, 4> votes(rank, 0);
  auto vote = [&](mlir::Value pointer, int weight) {
    auto type = llvm::dyn_cast<mlir::RankedTensorType>(pointer.getType());
    if (!type || type.getShape() != shape) return;
    for (int d = 0; d < rank; ++d)
      if (const std::optional<int64_t> step = shape[d] > 1 ? affine_.likelyStep(pointer, d) : std::nullopt; step && *step > 0 && *step <= farthest)
        votes[d] += *step == 1 ? 2 * weight : weight;
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

bool Emitter::takesApart(const Nest &nest, llvm::ArrayRef<mlir::Value> values) {
  if (nest.vectorDim < 0) return true;
  bool apart = false;
  auto look = [&](mlir::Value pointer) {
    auto type = llvm::dyn_cast<mlir::RankedTensorType>(pointer.getType());
    if (!type || type.getShape() != llvm::ArrayRef<int64_t>(nest.shape)) return;
    std::optional<int64_t> step = affine_.likelyStep(pointer, nest.vectorDim);
    apart |= step && (*step < 0 || *step > 1);
  };
  for (mlir::Value v : values)
    if (llvm::isa<tt::PointerType>(elementOf(v.getType()))) look(v);
  walkBelow(*uses_, values, [&](mlir::Operation *op) {
    if (buffers_.count(op->getResult(0))) return false;
    if (codeOf(op) == OpCode::Load) look(op->getOperand(0));
    return true;
  });
  return apart;
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
    if (!type || !spreadsTo(type.getShape(), shape)) return false;
    if (codeOf(op) == OpCode::Load && op->getNumOperands() > 1 &&
        std::find(masks.begin(), masks.end(), op->getOperand(1)) == masks.end())
      masks.push_back(op->getOperand(1));
    return true;
  });
  return masks;
}

bool Emitter::rowsFollow(llvm::ArrayRef<mlir::Value> values, llvm::ArrayRef<int64_t> shape, int axis, int dim) {
  bool follow = true;
  walkBelow(*uses_, values, [&](mlir::Operation *op) {
    if (buffers_.count(op->getResult(0))) return false;
    auto type = llvm::dyn_cast<mlir::RankedTensorType>(op->getResult(0).getType());
    if (!type || !spreadsTo(type.getShape(), shape)) return false;
    if (codeOf(op) == OpCode::Load && type.getShape()[static_cast<size_t>(dim)] > 1) {
      const std::optional<int64_t> step = affine_.likelyStep(op->getOperand(0), dim);
      follow &= step && *step >= 0 && *step <= shape[static_cast<size_t>(axis)];
    }
    return true;
  });
  return follow;
}

bool Emitter::keepsBelow(mlir::Value v, llvm::ArrayRef<int64_t> shape) {
  bool keeps = false;
  walkBelow(*uses_, {v}, [&](mlir::Operation *op) {
    mlir::Value result = op->getResult(0);
    auto type = llvm::dyn_cast<mlir::RankedTensorType>(result.getType());
    keeps |= type && type.getShape() == shape && !buffers_.count(result) && uses_->worthKeeping(result);
    return !buffers_.count(result);
  });
  return keeps;
}

bool Emitter::sameForPrograms(const llvm::Value *v, int depth) const {
  const auto *made = llvm::dyn_cast<llvm::Instruction>(v);
  if (!made || made->getParent() == entry_) return true;
  if (depth == 0 || llvm::isa<llvm::PHINode>(made) || made->mayReadOrWriteMemory()) return false;
  return llvm::all_of(made->operands(), [&](const llvm::Use &u) { return sameForPrograms(u.get(), depth - 1); });
}

bool Emitter::takesFewVectors(int64_t extent) const {
  return caps_.maskedMemory && extent <= kFewVectors * caps_.f32Lanes;
}

llvm::SmallVector<Emitter::Turning, 4> Emitter::turningBelow(Nest &nest, llvm::ArrayRef<mlir::Value> values) {
  llvm::SmallVector<Turning, 4> found;
  if (nest.vectorDim < 0 || nest.width == 1) return found;
  llvm::SmallVector<mlir::Value, 8> pointers;
  for (mlir::Value v : values)
    if (llvm::isa<tt::PointerType>(elementOf(v.getType()))) pointers.push_back(v);
  walkBelow(*uses_, values, [&](mlir::Operation *op) {
    if (codeOf(op) == OpCode::Load) pointers.push_back(op->getOperand(0));
    return !buffers_.count(op->getResult(0));
  });
  using Kind = Turning::Kind;
  llvm::SmallVector<mlir::Operation *, 4> divided, others; // divided: of equal operands one
  walkBelow(*uses_, pointers, [&](mlir::Operation *op) {
    const OpCode code = codeOf(op);
    if (code == OpCode::Load) return false;
    const bool remainder = code == OpCode::RemUI || code == OpCode::RemSI;
    if (!remainder && code != OpCode::DivUI && code != OpCode::DivSI) return !buffers_.count(op->getResult(0));
    auto type = llvm::dyn_cast<mlir::RankedTensorType>(op->getResult(0).getType());
    if (!type || !spreadsTo(type.getShape(), nest.shape) || type.getShape()[static_cast<size_t>(nest.vectorDim)] != nest.extent)
      return true;
    Conditions conditions;
    std::optional<Step> step = affine_.along(op->getOperand(0), nest.vectorDim, conditions), still = affine_.along(op->getOperand(1), nest.vectorDim, conditions);
    if (!still || !still->isZero() || !conditions.empty()) return true;
    if (!step || !step->isUnit()) return others.push_back(op), true;
    found.push_back({op->getResult(0), remainder ? Kind::Remainder : Kind::Quotient});
    auto isSame = [&](mlir::Operation *o) { return sameExpression(o->getOperand(0), op->getOperand(0)) && sameExpression(o->getOperand(1), op->getOperand(1)); };
    if (llvm::none_of(divided, isSame)) divided.push_back(op);
    return true;
  });
  if (divided.size() > kMostDivided) return {};
  // Of a quotient, and kept in memory: else it is computed of the one value that the quotient has.
  auto isQuotient = [&](mlir::Value v) { return llvm::any_of(found, [&](const Turning &t) { return t.value == v && t.kind != Kind::Remainder; }); };
  for (size_t before = 0; before != found.size();) {
    before = found.size();
    for (mlir::Operation *op : others)
      if (mlir::Value r = op->getResult(0); buffers_.count(r) && isQuotient(op->getOperand(0)) && !isQuotient(r)) found.push_back({r, Kind::OfQuotient});
  }
  // The wider the vectors, the more of them does a short period turn over in. Rows of images are short.
  for (const Turning &t : found) {
    if (t.kind == Kind::OfQuotient) continue;
    const mlir::Value n = t.value.getDefiningOp()->getOperand(1);
    const Lanes period = eval(n, Index(shapeOf(n.getType()).size(), uniformInt(0)));
    auto *known = llvm::dyn_cast<llvm::ConstantInt>(period.base);
    if (known ? known->getZExtValue() < static_cast<uint64_t>(kPeriods * nest.width) : t.kind == Kind::Quotient) nest.width = std::min<int64_t>(nest.width, caps_.f32Lanes);
  }
  return found;
}

Value *Emitter::growEvenly(const Nest &nest, const Index &outer, Value *iv, llvm::ArrayRef<Turning> turning,
                           llvm::SmallVectorImpl<Value *> &first) {
  Nest one = nest;
  one.width = 1;
  Value *all = nullptr;
  for (const Turning &t : turning) {
    mlir::Operation *op = t.value.getDefiningOp();
    const Index at = indexIn(t.value, vectorIndex(one, outer, iv));
    Buffer *const kept = buffers_.lookup(t.value);
    if (t.kind == Turning::Kind::OfQuotient) {
      first.push_back(loadBuffer(*kept, at).base);
      continue;
    }
    const Lanes x = eval(op->getOperand(0), at), n = eval(op->getOperand(1), at);
    if (!x.uniform() || !n.uniform()) return nullptr;
    llvm::Type *type = x.base->getType();
    first.push_back(kept ? loadBuffer(*kept, at).base : emitDivision(codeOf(op), x.base, n.base));
    Value *remainder = t.kind == Turning::Kind::Remainder ? first.back() : b.CreateSub(x.base, b.CreateMul(first.back(), n.base));
    // The dividend does not wrap around in the vector, nor become positive; as many elements are left before it turns over.
    const bool isSigned = codeOf(op) == OpCode::RemSI || codeOf(op) == OpCode::DivSI;
    const unsigned bits = type->getIntegerBitWidth();
    auto number = [&](const llvm::APInt &v) { return llvm::ConstantInt::get(type, v); };
    const llvm::APInt width(bits, static_cast<uint64_t>(nest.width));
    const llvm::APInt most = (isSigned ? llvm::APInt::getSignedMaxValue(bits) : llvm::APInt::getMaxValue(bits)) - width;
    Value *fits = b.CreateICmpULE(x.base, number(most));
    Value *left = b.CreateSub(n.base, remainder);
    fits = b.CreateAnd(fits, b.CreateICmpSGE(left, number(width)));
    // As signed numbers they grow, too.
    if (!isSigned) fits = b.CreateAnd(fits, b.CreateICmpSGT(n.base, number(llvm::APInt(bits, 0))));
    all = all ? b.CreateAnd(all, fits) : fits;
  }
  return all;
}

void Emitter::vectorSteps(const Nest &nest, const Index &outer, Value *lo, Value *hi, llvm::ArrayRef<mlir::Value> known,
                          llvm::function_ref<void(const Index &)> body, llvm::ArrayRef<Turning> turning) {
  width_ = nest.width;
  auto step = [&](Value *iv, llvm::ArrayRef<Value *> first) {
    Index index = vectorIndex(nest, outer, iv);
    // Known here only: what a load may leave out its mask for is not moved out of this loop.
    auto know = [&](mlir::Value v, Lanes lanes) {
      lanes.level = static_cast<uint8_t>(currentLevel());
      frames_.back().memo[keyOf(v, indexIn(v, index))] = lanes;
    };
    for (mlir::Value m : known) know(m, fromValue(b.getTrue(), 0));
    for (size_t k = 0; k < first.size(); ++k) {
      Lanes run = fromValue(first[k], 0);
      if (turning[k].kind == Turning::Kind::Remainder) run.kind = Lanes::Kind::Offsets, run.offsets = pool_.run(nest.width, 1), run.exact = true;
      know(turning[k].value, run);
    }
    body(index);
  };
  forLoop(lo, hi, nest.width, [&](Value *iv) {
    llvm::SmallVector<Value *, 2> first;
    Value *evenly = turning.empty() || nest.width == 1 ? nullptr : growEvenly(nest, outer, iv, turning, first);
    if (!evenly) return step(iv, {});
    ifThen(evenly, [&] { step(iv, first); });
    ifThen(b.CreateNot(evenly), [&] { step(iv, {}); });
  });
}

void Emitter::fewSteps(const Nest &nest, const Index &outer, const Masks &masks, Value *end,
                       llvm::function_ref<void(const Index &)> body) {
  Nest cut = nest;
  if (end && masks.narrowTail) cut.width = std::min<int64_t>(nest.width, caps_.f32Lanes);
  auto stepsFrom = [&](auto &self, int64_t at) -> void {
    if (at >= nest.extent) return;
    auto number = [&](int64_t n) { return b.getInt32(static_cast<uint32_t>(n)); };
    auto steps = [&] {
      vectorSteps(cut, outer, number(at), number(at + cut.width), {}, body);
      self(self, at + cut.width);
    };
    end && at > masks.start ? ifThen(b.CreateICmpSGT(end, number(at)), steps) : steps();
  };
  stepsFrom(stepsFrom, masks.start);
  width_ = nest.width;
}

void Emitter::vectorLoop(const Nest &nest, Index &outer, const Masks &masks,
                         llvm::function_ref<void(const Index &)> body) {
  auto run = [&](const Nest &cut, Value *lo, Value *hi, llvm::ArrayRef<mlir::Value> known) {
    vectorSteps(cut, outer, lo, hi, known, body, masks.turning);
  };
  width_ = nest.width;
  auto number = [&](int64_t n) { return b.getInt32(static_cast<uint32_t>(n)); };
  Value *zero = number(0), *extent = number(nest.extent);
  llvm::SmallVector<mlir::Value, 4> known;
  Value *bound = nullptr, *trimmed = nullptr;
  if (nest.width > 1 && !masks.values.empty()) {
    frames_.push_back({b.GetInsertBlock(), {}});
    for (size_t i = 0; i < masks.values.size(); ++i) {
      std::optional<Prefix> prefix = prefixAlong(masks.values[i], outer, nest);
      if (!prefix) continue;
      known.push_back(masks.values[i]);
      // Without certainty the main loop has no turns and the tail goes to the end.
      auto unless = [&](Value *otherwise) {
        return prefix->certain ? b.CreateSelect(prefix->certain, prefix->below, otherwise) : prefix->below;
      };
      Value *n = unless(zero);
      bound = bound ? smaller(b, bound, n) : n;
      if (i == 0 && masks.trim) trimmed = unless(extent);
    }
    frames_.pop_back();
  }
  Value *start = b.getInt32(static_cast<uint32_t>(masks.start));
  if (!bound) return run(nest, start, extent, {});
  Value *step = b.getInt32(static_cast<uint32_t>(-nest.width));
  Value *full = b.CreateAnd(bound, step);
  if (auto *c = llvm::dyn_cast<llvm::ConstantInt>(full); c && c->getSExtValue() == nest.extent)
    return run(nest, start, extent, known);
  // Few vectors, and as many in every program: masks that were made before the first program take no time, loops do.
  if (takesFewVectors(nest.extent) && !llvm::isa<llvm::Constant>(bound) && sameForPrograms(bound))
    return fewSteps(nest, outer, masks, trimmed, body);
  if (masks.start) full = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, full, start);
  run(nest, start, full, known);
  if (masks.pieces && trimmed == bound && masks.start == 0)
    if (std::optional<Reached> reached = reachedOf(bound)) {
      auto pieces = [&] {
        int64_t at = reached->elements & -nest.width;
        for (Nest piece = nest; (piece.width /= 2) > 0;)
          if (reached->elements - at >= piece.width) {
            run(piece, number(at), number(at + piece.width), known);
            at += piece.width;
          }
      };
      reached->where ? ifThen(reached->where, pieces) : pieces();
      width_ = nest.width;
      return;
    }
  // Nothing happens behind the bound, and it is a whole number of vectors.
  const unsigned evenBits = llvm::computeKnownBits(bound, module_.getDataLayout()).countMinTrailingZeros();
  if (trimmed == bound && evenBits >= llvm::Log2_64(static_cast<uint64_t>(nest.width))) return;
  Nest tail = nest;
  if (masks.narrowTail) tail.width = std::min<int64_t>(nest.width, caps_.f32Lanes);
  Value *end = extent;
  if (trimmed) {
    end = b.CreateAnd(b.CreateAdd(trimmed, b.getInt32(static_cast<uint32_t>(tail.width - 1))),
                      b.getInt32(static_cast<uint32_t>(-tail.width)));
    end = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, end, full);
  }
  run(tail, full, end, {});
  width_ = nest.width;
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
