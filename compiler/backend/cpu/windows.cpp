// Windows that slide: several positions of one dimension are computed side by side.
//
// A depthwise convolution, written out, is one long sum of taps for each position, and neighbours read the same weights
// and almost the same elements. One position at a time, every product waits for the sum before it and loads both of its
// factors. Here the nest runs along its vectors outside and along the positions inside, a few at a time, operation by
// operation: sums are independent, each weight is loaded once, and what several taps read stays in registers.
//
//     sum0 = x0*w0; sum1 = x1*w0; sum2 = x2*w0;  sum0 += x1*w1; sum1 += x2*w1; sum2 += x3*w1;  …
//
// The positions are constants, so a mask that asks for the edge of a row is decided here and costs nothing in the code.
#include <algorithm>

#include "backend/cpu/emitter.h"
#include "ir/tile/tile.h"
#include "llvm/Support/MathExtras.h"

namespace neso::cpu {

namespace {
/// Less than that many shared operands are no window.
constexpr int kLeastTaps = 4;
/// Operations on elements that one nest may consist of, all positions counted.
constexpr int64_t kMostWritten = 2560;

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
  if (code == OpCode::Splat || code == OpCode::ArithConstant) return true;
  if (!uses_->isVirtual(def) || def->getNumResults() != 1) return false;
  if (!ordered.seen.insert(def).second) return true;
  if (code == OpCode::Broadcast) {
    // What is spread along the positions is loaded once for all of them.
    mlir::Operation *from = def->getOperand(0).getDefiningOp();
    if (from && isLoad(from)) ++ordered.shared;
    return from && (isLoad(from) || inOrder(def->getOperand(0), shape, ordered));
  }
  if (!isLoad(def) && classOf(code) != OpClass::Element) return false;
  if (!isLoad(def))
    for (mlir::Value o : def->getOperands())
      if (!inOrder(o, shape, ordered)) return false;
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
  const int64_t positions = nest.shape[static_cast<size_t>(s.dim)];
  const int64_t written = static_cast<int64_t>(ordered.operations.size()) - ordered.own;
  if (ordered.shared < kLeastTaps || ordered.own < kLeastTaps || written * positions > kMostWritten) return std::nullopt;
  s.operations = std::move(ordered.operations);
  return s;
}

void Emitter::runSliding(const Nest &nest, const Sliding &sliding, llvm::ArrayRef<mlir::Operation *> stores) {
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
  runNest(vectors, masks, [&](const Index &index) { slide(nest, sliding, stores, index); });
}

void Emitter::slide(const Nest &nest, const Sliding &sliding, llvm::ArrayRef<mlir::Operation *> stores,
                    const Index &index) {
  const size_t dim = static_cast<size_t>(sliding.dim);
  llvm::SmallVector<Index, 16> live;
  for (int64_t p = 0; p < nest.shape[dim]; ++p) {
    Index at = index;
    at[dim] = uniformInt(p);
    const bool stored = llvm::any_of(stores, [&](mlir::Operation *op) {
      if (op->getNumOperands() < 3) return true;
      auto *c = llvm::dyn_cast<llvm::ConstantInt>(eval(op->getOperand(2), at).base);
      return !c || !c->isZero();
    });
    if (stored) live.push_back(at);
  }
  // Sums, and behind them what they share: a quarter of the registers leaves room for both. Blocks of even length.
  const size_t most = static_cast<size_t>(std::max<int64_t>(caps_.vectorRegisters / 4, 2));
  const size_t blocks = llvm::divideCeil(live.size(), most);
  for (size_t k = 0; k < blocks; ++k) {
    const size_t begin = live.size() * k / blocks, end = live.size() * (k + 1) / blocks;
    llvm::ArrayRef<Index> block = llvm::ArrayRef<Index>(live).slice(begin, end - begin);
    for (mlir::Operation *op : sliding.operations)
      for (const Index &at : block) eval(op->getResult(0), at);
    for (const Index &at : block) storeAll(stores, at);
  }
}

} // namespace neso::cpu
