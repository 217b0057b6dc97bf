// Windows that slide: several positions of one dimension are computed side by side.
//
// A depthwise convolution, written out, is one long sum of taps for each position, and neighbours read the same weights
// and almost the same elements. One position at a time, every product waits for the sum before it and loads both of its
// factors. Here the nest runs along its vectors outside and along the positions inside, a few at a time, operation by
// operation: sums are independent, each weight is loaded once, and what several taps read stays in registers.
//
//     sum0 = x0*w0; sum1 = x1*w0; sum2 = x2*w0;  sum0 += x1*w1; sum1 += x2*w1; sum2 += x3*w1;  …
//
// Of a row of known size the positions are constants, so a mask that asks for its edge is decided here and costs nothing in the code; else each block of
// positions asks whether it lies between the edges. Where a row has too
// many for that, only those near its edges are; between them all positions have the same masks and are a loop, whose turns take as many as
// the registers hold sums of.
#include <algorithm>

#include "backend/cpu/emitter.h"
#include "ir/tile/tile.h"
#include "llvm/Support/MathExtras.h"

namespace neso::cpu {

namespace {
/// Less than that many shared operands are no window.
constexpr int kLeastTaps = 4;
/// Operations on elements that one nest may consist of, all positions counted but those of loops.
constexpr int64_t kMostWritten = 2560;
/// Positions that are computed side by side: sums that wait for nobody else's while a multiplication with addition takes its time.
constexpr int64_t kMostSums = 8;

bool isLoad(mlir::Operation *op) { return codeOf(op) == OpCode::Load; }
} // namespace

mlir::Value partAlong(mlir::Value mask, int axis) {
  mlir::Operation *def = mask ? mask.getDefiningOp() : nullptr;
  if (!def) return {};
  if (codeOf(def) == OpCode::AndI) {
    mlir::Value x = partAlong(def->getOperand(0), axis);
    return x ? x : partAlong(def->getOperand(1), axis);
  }
  if (codeOf(def) != OpCode::Broadcast) return {};
  llvm::ArrayRef<int64_t> shape = llvm::cast<mlir::RankedTensorType>(def->getOperand(0).getType()).getShape();
  for (size_t d = 0; d < shape.size(); ++d)
    if (static_cast<int>(d) != axis && shape[d] != 1) return {};
  return def->getOperand(0);
}

/// The operations on elements below `v`, operands first; loads are the last that it looks at. False: there are others.
bool Emitter::inOrder(mlir::Value v, llvm::ArrayRef<int64_t> shape, Ordered &ordered) {
  mlir::Operation *def = v.getDefiningOp();
  auto type = llvm::dyn_cast<mlir::RankedTensorType>(v.getType());
  if (!def || !type || buffers_.count(v) || moving_.count(v)) return true;
  const OpCode code = codeOf(def);
  if (code == OpCode::Splat) {
    // A number that belongs to the whole program, as weights of a plane do.
    mlir::Operation *from = def->getOperand(0).getDefiningOp();
    if (from && isLoad(from) && ordered.seen.insert(from).second) ++ordered.shared;
    return true;
  }
  if (code == OpCode::ArithConstant) return true;
  if (!uses_->isVirtual(def) || def->getNumResults() != 1) return false;
  if (!ordered.seen.insert(def).second) return true;
  if (code == OpCode::Broadcast) {
    // What is spread along the positions is loaded once for all of them.
    mlir::Operation *from = def->getOperand(0).getDefiningOp();
    if (from && isLoad(from)) ++ordered.shared;
    return from && (isLoad(from) || inOrder(def->getOperand(0), shape, ordered));
  }
  if (!isLoad(def) && classOf(code) != OpClass::Element) return false;
  // The sum so far before what is added to it: else all loads would stand before all sums, more than there are registers for.
  auto loads = [](mlir::Value o) { return o.getDefiningOp() && isLoad(o.getDefiningOp()); };
  for (bool later : {false, true})
    for (mlir::Value o : def->getOperands())
      if (!isLoad(def) && loads(o) == later && !inOrder(o, shape, ordered)) return false;
  if (type.getShape() != shape) return true;
  ordered.own += isLoad(def);
  ordered.operations.push_back(def);
  return true;
}

std::optional<Emitter::Sliding> Emitter::slidingWindow(const Nest &nest, llvm::ArrayRef<mlir::Operation *> stores) {
  if (nest.vectorDim < 0 || nest.width < caps_.f32Lanes) return std::nullopt;
  Sliding s;
  for (size_t d = 0; d < nest.shape.size(); ++d) {
    if (static_cast<int>(d) == nest.vectorDim || nest.shape[d] == 1) continue;
    if (s.dim >= 0) return std::nullopt;
    s.dim = static_cast<int>(d);
  }
  if (s.dim < 0) return std::nullopt;
  Ordered ordered;
  for (mlir::Operation *op : stores)
    if (!inOrder(op->getOperand(1), nest.shape, ordered) || keepsBelow(op->getOperand(1), nest.shape))
      return std::nullopt;
  // Elements apart under masks are read one by one where masks have no registers, a branch for each.
  auto apart = [&](mlir::Operation *op) {
    const std::optional<int64_t> step = isLoad(op) && op->getNumOperands() > 1 ? affine_.likelyStep(op->getOperand(0), nest.vectorDim) : std::nullopt;
    return step && *step != 0 && *step != 1;
  };
  if (!caps_.maskedMemory && llvm::any_of(ordered.operations, apart)) return std::nullopt;
  const int64_t positions = nest.shape[static_cast<size_t>(s.dim)];
  const int64_t written = static_cast<int64_t>(ordered.operations.size()) - ordered.own;
  if (ordered.shared < kLeastTaps || ordered.own < kLeastTaps) return std::nullopt;
  s.operations = std::move(ordered.operations);
  s.evenly = evenPositions(nest, s, stores);
  // Of known edges a mask is a constant, or what else it asks for (whether a row is inside), which is the same for all positions.
  s.asks = llvm::any_of(s.evenly.parts, [&](mlir::Value part) {
    auto at = [&](int64_t p) { return eval(part, positionIn(nest, s, uniformInt(p))).base; };
    llvm::Value *one = at(positions / 2), *other = at(positions / 2 - 1);
    return one != other && !llvm::isa<llvm::Constant>(one) && !llvm::isa<llvm::Constant>(other);
  });
  if (s.asks) {
    s.loops = true;
    return written * (sumsAtOnce() + 1) > kMostWritten ? std::nullopt : std::optional<Sliding>(std::move(s));
  }
  s.loops = written * positions > kMostWritten;
  const int64_t turns = std::max<int64_t>(s.evenly.end - s.evenly.begin - sumsAtOnce(), 0);
  if (written * (positions - turns) > kMostWritten) return std::nullopt;
  return s;
}

namespace {
/// The scalars that a mask is made of, which hold for all elements or for none.
void scalarsOf(mlir::Value mask, llvm::SmallVectorImpl<mlir::Value> &scalars) {
  mlir::Operation *def = mask.getDefiningOp();
  if (!def) return;
  const OpCode code = codeOf(def);
  if (code == OpCode::Splat) {
    if (!llvm::is_contained(scalars, def->getOperand(0))) scalars.push_back(def->getOperand(0));
  } else if (code == OpCode::AndI || code == OpCode::Broadcast || code == OpCode::ExpandDims) {
    for (mlir::Value o : def->getOperands()) scalarsOf(o, scalars);
  }
}
} // namespace

void Emitter::runSliding(const Nest &nest, const Sliding &sliding, llvm::ArrayRef<mlir::Operation *> stores) {
  // Away from the upper and the lower edge of an image all rows of a window are inside: then loads have no masks, and
  // those that several taps have in common are one.
  llvm::SmallVector<mlir::Value, 8> scalars;
  llvm::SmallVector<std::pair<mlir::Value, Lanes>, 8> assumed;
  if (speculating_ && sliding.loops)
    for (mlir::Operation *op : sliding.operations)
      if (isLoad(op) && op->getNumOperands() > 1) scalarsOf(op->getOperand(1), scalars);
  for (mlir::Value v : scalars) {
    const Lanes known = scalar(v);
    if (known.level != 0 || llvm::isa<llvm::Constant>(known.base)) continue;
    if (!llvm::is_contained(conditions_, known.base)) conditions_.push_back(known.base);
    assumed.push_back({v, known});
    scalars_[v] = fromValue(b.getTrue(), 0);
  }
  walkSliding(nest, sliding, stores);
  for (const auto &[v, known] : assumed) scalars_[v] = known;
}

void Emitter::walkSliding(const Nest &nest, const Sliding &sliding, llvm::ArrayRef<mlir::Operation *> stores) {
  const size_t dim = static_cast<size_t>(sliding.dim);
  Masks masks;
  llvm::SmallVector<mlir::Value, 8> along;
  mlir::Value common;
  bool same = true;
  for (mlir::Operation *op : stores) {
    mlir::Value part = partAlong(op->getNumOperands() > 2 ? op->getOperand(2) : mlir::Value(), nest.vectorDim);
    same &= part && (!common || common == part);
    common = part;
    if (part && !llvm::is_contained(along, part)) along.push_back(part);
  }
  for (mlir::Operation *op : sliding.operations) {
    if (!isLoad(op) || op->getNumOperands() < 2) continue;
    mlir::Value part = partAlong(op->getOperand(1), nest.vectorDim);
    if (part && !llvm::is_contained(along, part)) along.push_back(part);
  }
  masks.values = along, masks.trim = same;
  Nest vectors = nest;
  vectors.shape[dim] = 1;
  if (!sliding.loops) {
    // Sums, and behind them what they share: a quarter of the registers leaves room for both. Blocks of even length.
    const int64_t stored = sliding.evenly.stored, blocks = llvm::divideCeil(stored, std::max<int64_t>(caps_.vectorRegisters / 4, 2));
    return runNest(vectors, masks, [&](const Index &index) {
      for (int64_t k = 0; k < blocks; ++k) {
        llvm::SmallVector<Lanes, 8> positions;
        for (int64_t p = stored * k / blocks; p < stored * (k + 1) / blocks; ++p) positions.push_back(uniformInt(p));
        computeTogether(sliding, stores, index, positions, {});
      }
    });
  }
  // Along the vectors inside: of each position all neighbours in memory are read before the next positions'.
  llvm::SmallVector<Lanes, 8> inside;
  auto blockOf = [&](llvm::ArrayRef<Lanes> positions, llvm::ArrayRef<Lanes> known) {
    runNest(vectors, masks, [&](const Index &index) { computeTogether(sliding, stores, index, positions, known); });
  };
  if (sliding.asks) return askSliding(nest, sliding, blockOf);
  auto block = [&](llvm::ArrayRef<Lanes> positions) { blockOf(positions, inside); };
  // Constant positions, in blocks of even length.
  auto apart = [&](int64_t from, int64_t to) {
    const int64_t blocks = llvm::divideCeil(to - from, sumsAtOnce());
    for (int64_t k = 0; k < blocks; ++k) {
      llvm::SmallVector<Lanes, 8> positions;
      for (int64_t p = from + (to - from) * k / blocks; p < from + (to - from) * (k + 1) / blocks; ++p)
        positions.push_back(uniformInt(p));
      block(positions);
    }
  };
  const Evenly &even = sliding.evenly;
  const int64_t step = sumsAtOnce(), turns = (even.end - even.begin) / step;
  if (turns < 2) return apart(0, even.stored);
  const int64_t end = even.begin + turns * step;
  apart(0, even.begin);
  for (mlir::Value part : even.parts) inside.push_back(eval(part, positionIn(nest, sliding, uniformInt(even.begin))));
  forLoop(even.begin, end, step, [&](llvm::Value *first) {
    llvm::SmallVector<Lanes, 8> positions;
    for (int64_t p = 0; p < step; ++p) positions.push_back(intOp(IntOp::Add, fromValue(first, currentLevel()), uniformInt(p)));
    block(positions);
  });
  inside.clear();
  apart(end, even.stored);
}

llvm::Value *Emitter::holdsAlong(mlir::Value part, const Nest &nest, const Sliding &sliding, llvm::Value *first, int64_t n) {
  auto at = [&](int64_t p) { return eval(part, positionIn(nest, sliding, intOp(IntOp::Add, fromValue(first, currentLevel()), uniformInt(p)))).base; };
  Conditions conditions;
  if (affine_.isConvexMask(part, conditions)) return b.CreateAnd(holds(conditions), b.CreateAnd(at(0), at(n - 1)));
  llvm::Value *all = at(0);
  for (int64_t p = 1; p < n; ++p) all = b.CreateAnd(all, at(p));
  return all;
}

void Emitter::askSliding(const Nest &nest, const Sliding &sliding, llvm::function_ref<void(llvm::ArrayRef<Lanes>, llvm::ArrayRef<Lanes>)> block) {
  const Evenly &even = sliding.evenly;
  auto number = [&](int64_t n) { return b.getInt32(static_cast<uint32_t>(n)); };
  const int64_t together = std::min(sumsAtOnce(), even.stored);
  if (even.stored == 0) return;
  llvm::BasicBlock *before = b.GetInsertBlock(), *loop = llvm::BasicBlock::Create(b.getContext(), "loop", fn_), *done = llvm::BasicBlock::Create(b.getContext(), "done", fn_);
  b.CreateBr(loop);
  frames_.back().block = before;
  b.SetInsertPoint(loop);
  llvm::PHINode *position = b.CreatePHI(b.getInt32Ty(), 2, "i");
  position->addIncoming(number(0), before);
  frames_.push_back({loop, {}});
  llvm::Value *all = b.CreateICmpSLE(position, number(even.stored - together));
  for (mlir::Value part : even.parts) all = b.CreateAnd(all, holdsAlong(part, nest, sliding, position, together));
  ifThen(all, [&] {
    llvm::SmallVector<Lanes, 8> positions, inside(even.parts.size(), fromValue(b.getTrue(), 0));
    for (int64_t p = 0; p < together; ++p) positions.push_back(intOp(IntOp::Add, fromValue(position, currentLevel()), uniformInt(p)));
    block(positions, inside);
  });
  llvm::Value *one = b.CreateNot(all);
  for (mlir::Value part : even.storing) one = b.CreateAnd(one, holdsAlong(part, nest, sliding, position, 1));
  ifThen(one, [&] { block(fromValue(position, currentLevel()), {}); });
  frames_.pop_back();
  llvm::Value *next = b.CreateAdd(position, b.CreateSelect(all, number(together), number(1)));
  position->addIncoming(next, b.GetInsertBlock());
  b.CreateCondBr(b.CreateICmpSLT(next, number(even.stored)), loop, done);
  b.SetInsertPoint(done);
  frames_.back().block = done;
}

void Emitter::computeTogether(const Sliding &sliding, llvm::ArrayRef<mlir::Operation *> stores, const Index &index,
                              llvm::ArrayRef<Lanes> positions, llvm::ArrayRef<Lanes> inside) {
  llvm::SmallVector<Index, 8> places(positions.size(), index);
  for (size_t p = 0; p < positions.size(); ++p) {
    // What belongs to a position is read where it is used: weights of all positions are more than registers hold from one vector to the next.
    Lanes here = positions[p];
    here.level = static_cast<uint8_t>(currentLevel());
    places[p][static_cast<size_t>(sliding.dim)] = here;
    for (size_t i = 0; i < inside.size(); ++i) {
      Lanes known = inside[i];
      known.level = here.level;
      mlir::Value part = sliding.evenly.parts[i];
      frames_.back().memo[keyOf(part, indexIn(part, places[p]))] = known;
    }
  }
  for (mlir::Operation *op : sliding.operations)
    for (const Index &at : places) eval(op->getResult(0), at);
  for (const Index &at : places) storeAll(stores, at);
}

Index Emitter::positionIn(const Nest &nest, const Sliding &sliding, const Lanes &position) {
  Index at(nest.shape.size(), uniformInt(0));
  at[static_cast<size_t>(sliding.dim)] = position;
  return at;
}

int64_t Emitter::sumsAtOnce() const {
  // Behind the sums there are what they share and, of a window that slides, what several of them read.
  return std::clamp<int64_t>(caps_.vectorRegisters * 3 / 8, 2, kMostSums);
}

/// The parts of a mask that vary along `axis` alone.
void Emitter::partsAlong(mlir::Value mask, int axis, llvm::SmallVectorImpl<mlir::Value> &parts) {
  mlir::Operation *def = mask ? mask.getDefiningOp() : nullptr;
  if (!def) return;
  if (codeOf(def) == OpCode::AndI)
    for (mlir::Value o : def->getOperands()) partsAlong(o, axis, parts);
  else if (mlir::Value part = partAlong(mask, axis);
           part && shapeOf(part.getType())[static_cast<size_t>(axis)] > 1 && !llvm::is_contained(parts, part))
    parts.push_back(part);
}

/// The positions around the middle one at which every part of a mask is what it is there.
Emitter::Evenly Emitter::evenPositions(const Nest &nest, const Sliding &sliding,
                                       llvm::ArrayRef<mlir::Operation *> stores) {
  Evenly even;
  for (mlir::Operation *op : sliding.operations)
    if (isLoad(op) && op->getNumOperands() > 1) partsAlong(op->getOperand(1), sliding.dim, even.parts);
  for (mlir::Operation *op : stores)
    if (op->getNumOperands() > 2) partsAlong(op->getOperand(2), sliding.dim, even.parts);
  llvm::SmallVector<mlir::Value, 8> &storing = even.storing;
  for (mlir::Operation *op : stores)
    if (mlir::Value mask = op->getNumOperands() > 2 ? op->getOperand(2) : mlir::Value())
      partsAlong(mask, sliding.dim, storing);
  const int64_t positions = nest.shape[static_cast<size_t>(sliding.dim)];
  auto maskAt = [&](mlir::Value part, int64_t p) { return eval(part, positionIn(nest, sliding, uniformInt(p))).base; };
  auto masksAt = [&](int64_t p) {
    llvm::SmallVector<llvm::Value *, 8> masks;
    for (mlir::Value part : even.parts) masks.push_back(maskAt(part, p));
    return masks;
  };
  auto isOff = [&](mlir::Value part, int64_t p) {
    auto *known = llvm::dyn_cast<llvm::ConstantInt>(maskAt(part, p));
    return known && known->isZero();
  };
  for (even.stored = positions; even.stored > 0; --even.stored)
    if (llvm::none_of(storing, [&](mlir::Value part) { return isOff(part, even.stored - 1); })) break;
  const llvm::SmallVector<llvm::Value *, 8> middle = masksAt(positions / 2);
  even.begin = even.end = positions / 2;
  while (even.begin > 0 && masksAt(even.begin - 1) == middle) --even.begin;
  while (even.end < positions && masksAt(even.end) == middle) ++even.end;
  return even;
}

} // namespace neso::cpu
