#include "backend/cpu/places.h"

#include <algorithm>
#include <cstdlib>

#include "backend/common/opcodes.h"
#include "backend/cpu/uses.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/SmallVector.h"

namespace neso::cpu {

namespace {

struct Term {
  mlir::Value value;
  int64_t factor;
};

struct Sum {
  llvm::SmallVector<Term, 8> terms;
  int64_t constant = 0;
};

/// Beyond these the proof is given up: nothing that the compiler makes itself comes near.
constexpr size_t kMostTerms = 32;
constexpr int kDeepest = 48;
constexpr int64_t kMostFactor = int64_t{1} << 40;

std::optional<int64_t> constantOf(mlir::Value v) {
  while (mlir::Operation *def = v.getDefiningOp()) {
    if (codeOf(def) != OpCode::Splat && codeOf(def) != OpCode::Broadcast) break;
    v = def->getOperand(0);
  }
  llvm::APInt value;
  if (!mlir::matchPattern(v, mlir::m_ConstantInt(&value)) || value.getBitWidth() > 64) return std::nullopt;
  return value.getSExtValue();
}

template <typename Op> bool isExact(mlir::Operation *op) {
  return mlir::arith::bitEnumContainsAll(llvm::cast<Op>(op).getOverflowFlags(), mlir::arith::IntegerOverflowFlags::nsw);
}

/// Adds factor * v to the sum; false: the expression is too large.
bool add(mlir::Value v, int64_t factor, Sum &sum, int depth) {
  if (depth > kDeepest || sum.terms.size() > kMostTerms || std::abs(factor) > kMostFactor) return false;
  if (std::optional<int64_t> c = constantOf(v)) {
    if (std::abs(*c) > kMostFactor) return false;
    sum.constant += factor * *c;
    return true;
  }
  mlir::Operation *def = v.getDefiningOp();
  if (def) switch (codeOf(def)) {
    case OpCode::Splat:
    case OpCode::Broadcast:
    case OpCode::ExtSI: return add(def->getOperand(0), factor, sum, depth + 1);
    case OpCode::AddI:
      if (!isExact<mlir::arith::AddIOp>(def)) break;
      return add(def->getOperand(0), factor, sum, depth + 1) && add(def->getOperand(1), factor, sum, depth + 1);
    case OpCode::SubI:
      if (!isExact<mlir::arith::SubIOp>(def)) break;
      return add(def->getOperand(0), factor, sum, depth + 1) && add(def->getOperand(1), -factor, sum, depth + 1);
    case OpCode::MulI:
      if (!isExact<mlir::arith::MulIOp>(def)) break;
      for (unsigned side : {0u, 1u})
        if (std::optional<int64_t> c = constantOf(def->getOperand(side)); c && std::abs(*c) < kMostFactor)
          return std::abs(*c) * std::abs(factor) < kMostFactor &&
                 add(def->getOperand(1 - side), factor * *c, sum, depth + 1);
      break;
    default: break;
    }
  for (Term &t : sum.terms)
    if (t.value == v) {
      t.factor += factor;
      return true;
    }
  sum.terms.push_back({v, factor});
  return true;
}

/// The offset in elements from the pointer's root, times `factor`.
bool addOffset(mlir::Value pointer, int64_t factor, Sum &sum) {
  for (int depth = 0; depth < kDeepest; ++depth) {
    mlir::Operation *def = pointer.getDefiningOp();
    if (!def) return true;
    if (codeOf(def) == OpCode::AddPtr) {
      if (!add(def->getOperand(1), factor, sum, 0)) return false;
    } else if (codeOf(def) != OpCode::Splat && codeOf(def) != OpCode::Broadcast) {
      return true;
    }
    pointer = def->getOperand(0);
  }
  return false;
}

mlir::Value rootOf(mlir::Value pointer) {
  while (mlir::Operation *def = pointer.getDefiningOp()) {
    if (codeOf(def) != OpCode::AddPtr && codeOf(def) != OpCode::Splat && codeOf(def) != OpCode::Broadcast) break;
    pointer = def->getOperand(0);
  }
  return pointer;
}

/// The dimension of the tile along which the term grows by 1; -1: it is a scalar; nothing: neither.
std::optional<int64_t> dimOf(mlir::Value v, llvm::ArrayRef<int64_t> shape) {
  if (!llvm::isa<mlir::RankedTensorType>(v.getType())) return -1;
  llvm::SmallVector<int64_t, 4> axes;
  while (mlir::Operation *def = v.getDefiningOp()) {
    if (codeOf(def) == OpCode::MakeRange) {
      int64_t dim = 0;
      for (size_t k = axes.size(); k-- > 0;) dim += axes[k] <= dim ? 1 : 0;
      const int64_t extent = llvm::cast<mlir::RankedTensorType>(v.getType()).getShape()[0];
      if (dim >= static_cast<int64_t>(shape.size()) || shape[static_cast<size_t>(dim)] != extent) return std::nullopt;
      return dim;
    }
    if (codeOf(def) != OpCode::ExpandDims) return std::nullopt;
    axes.push_back(def->getAttrOfType<mlir::IntegerAttr>("axis").getInt());
    v = def->getOperand(0);
  }
  return std::nullopt;
}

struct Move {
  int64_t step, extent;
};

/// Whether two positions of the tile can be `apart` elements from each other.
bool reaches(llvm::ArrayRef<Move> moves, int64_t apart) {
  if (moves.empty()) return apart == 0;
  const Move m = moves.front();
  if (moves.size() == 1) return m.step == 0 ? apart == 0 : apart % m.step == 0 && std::abs(apart / m.step) < m.extent;
  for (int64_t d = 1 - m.extent; d < m.extent; ++d)
    if (reaches(moves.drop_front(), apart - d * m.step)) return true;
  return false;
}

} // namespace

std::optional<int64_t> distance(mlir::Value p, mlir::Value q) {
  if (p.getType() != q.getType() || rootOf(p) != rootOf(q)) return std::nullopt;
  Sum sum;
  if (!addOffset(q, 1, sum) || !addOffset(p, -1, sum)) return std::nullopt;
  if (llvm::any_of(sum.terms, [](const Term &t) { return t.factor != 0; })) return std::nullopt;
  return sum.constant;
}

/// Cuts extents to where the mask, a conjunction with comparisons of ranges with constants, may be true.
static void cutTo(mlir::Value mask, llvm::MutableArrayRef<Move> moves, llvm::ArrayRef<int64_t> shape, int depth) {
  mlir::Operation *def = mask ? mask.getDefiningOp() : nullptr;
  if (!def || depth > kDeepest) return;
  if (codeOf(def) == OpCode::AndI || codeOf(def) == OpCode::Broadcast) {
    for (mlir::Value o : def->getOperands()) cutTo(o, moves, shape, depth + 1);
    return;
  }
  if (codeOf(def) != OpCode::CmpI) return;
  if (llvm::cast<mlir::arith::CmpIOp>(def).getPredicate() != mlir::arith::CmpIPredicate::slt) return;
  const std::optional<int64_t> bound = constantOf(def->getOperand(1));
  Sum sum;
  if (!bound || !add(def->getOperand(0), 1, sum, 0) || sum.terms.size() != 1 || sum.terms[0].factor != 1) return;
  const std::optional<int64_t> dim = dimOf(sum.terms[0].value, shape);
  if (!dim || *dim < 0) return;
  int64_t &extent = moves[static_cast<size_t>(*dim)].extent;
  // A range may begin above zero: then the cut is less than it could be.
  extent = std::max<int64_t>(1, std::min(extent, *bound - sum.constant));
}

namespace {

/// Offsets as sums modulo 2^bits: there nothing needs to be marked as not wrapping, and extensions are what they extend.
struct Wrapped {
  Sum sum;
  unsigned bits = 64;
};

mlir::Value beginningOf(mlir::Value v);

bool addWrapped(mlir::Value v, int64_t factor, Wrapped &out, int depth) {
  if (depth > kDeepest || out.sum.terms.size() > kMostTerms || std::abs(factor) > kMostFactor) return false;
  // One number for all elements moves no element towards another.
  if (!llvm::isa<mlir::RankedTensorType>(v.getType())) return true;
  if (const mlir::Type element = mlir::getElementTypeOrSelf(v.getType()); element.isInteger()) out.bits = std::min(out.bits, element.getIntOrFloatBitWidth());
  if (constantOf(v)) return true;
  mlir::Operation *def = v.getDefiningOp();
  if (!def) {
    mlir::Value begin = beginningOf(v);
    return begin && addWrapped(begin, factor, out, depth + 1);
  }
  switch (codeOf(def)) {
  case OpCode::Splat: return true;
  case OpCode::Broadcast:
  case OpCode::ExtSI:
  case OpCode::ExtUI:
  case OpCode::TruncI: return addWrapped(def->getOperand(0), factor, out, depth + 1);
  case OpCode::AddPtr:
  case OpCode::AddI: return addWrapped(def->getOperand(0), factor, out, depth + 1) && addWrapped(def->getOperand(1), factor, out, depth + 1);
  case OpCode::SubI: return addWrapped(def->getOperand(0), factor, out, depth + 1) && addWrapped(def->getOperand(1), -factor, out, depth + 1);
  case OpCode::MulI:
    for (unsigned side : {0u, 1u})
      if (std::optional<int64_t> c = constantOf(def->getOperand(side)); c && std::abs(*c) < kMostFactor)
        return std::abs(*c) * std::abs(factor) < kMostFactor && addWrapped(def->getOperand(1 - side), factor * *c, out, depth + 1);
    break;
  default: break;
  }
  for (Term &t : out.sum.terms)
    if (t.value == v) {
      t.factor += factor;
      return true;
    }
  out.sum.terms.push_back({v, factor});
  return true;
}

/// Of a tensor that a loop carries along by one number for all elements: what it began with; null: it is none.
mlir::Value beginningOf(mlir::Value v) {
  auto argument = llvm::dyn_cast<mlir::BlockArgument>(v);
  auto loop = argument ? llvm::dyn_cast<mlir::scf::ForOp>(argument.getOwner()->getParentOp()) : nullptr;
  if (!loop || argument == loop.getInductionVar()) return {};
  auto isUniform = [](mlir::Value by) {
    while (mlir::Operation *def = by.getDefiningOp()) {
      if (codeOf(def) == OpCode::Splat || constantOf(by)) return true;
      if (codeOf(def) != OpCode::Broadcast && codeOf(def) != OpCode::ExtSI && codeOf(def) != OpCode::MulI) return false;
      if (codeOf(def) == OpCode::MulI && !constantOf(def->getOperand(1))) return false;
      by = def->getOperand(0);
    }
    return false;
  };
  mlir::Value next = loop.getTiedLoopYieldedValue(argument)->get();
  for (int depth = 0; next != v; ++depth) {
    mlir::Operation *def = next.getDefiningOp();
    if (!def || depth > kDeepest || (codeOf(def) != OpCode::AddPtr && codeOf(def) != OpCode::AddI) || !isUniform(def->getOperand(1))) return {};
    next = def->getOperand(0);
  }
  return loop.getTiedLoopInit(argument)->get();
}

} // namespace

bool areDistinct(mlir::Value p) {
  llvm::ArrayRef<int64_t> shape = llvm::cast<mlir::RankedTensorType>(p.getType()).getShape();
  Wrapped offset;
  if (!addWrapped(p, 1, offset, 0)) return false;
  llvm::SmallVector<Move, 4> moves;
  for (int64_t extent : shape) moves.push_back({0, extent});
  for (const Term &t : offset.sum.terms) {
    std::optional<int64_t> dim = dimOf(t.value, shape);
    if (!dim || *dim < 0) return false;
    moves[static_cast<size_t>(*dim)].step += t.factor;
  }
  llvm::erase_if(moves, [](const Move &m) { return m.extent == 1; });
  // Each step is longer than all that the shorter ones reach together, and all of them stay within 2^bits.
  std::sort(moves.begin(), moves.end(), [](const Move &a, const Move &b) { return std::abs(a.step) < std::abs(b.step); });
  int64_t reach = 0;
  for (const Move &m : moves) {
    if (std::abs(m.step) <= reach || m.extent > kMostFactor || std::abs(m.step) > kMostFactor / m.extent) return false;
    reach += std::abs(m.step) * (m.extent - 1);
  }
  return offset.bits >= 64 || reach < int64_t{1} << offset.bits;
}

bool areApart(mlir::Value p, mlir::Value q, mlir::Value mask) {
  // Where each element begins elsewhere (what a loop carries), nothing is known of other elements.
  if (llvm::isa<mlir::RankedTensorType>(rootOf(p).getType())) return false;
  const std::optional<int64_t> between = distance(p, q);
  if (!between) return false;
  llvm::ArrayRef<int64_t> shape = llvm::cast<mlir::RankedTensorType>(p.getType()).getShape();
  llvm::SmallVector<Move, 4> moves;
  for (int64_t extent : shape) moves.push_back({0, extent});
  cutTo(mask, moves, shape, 0);
  Sum sum;
  if (!addOffset(p, 1, sum)) return false;
  for (const Term &t : sum.terms) {
    std::optional<int64_t> dim = dimOf(t.value, shape);
    if (!dim) return false;
    if (*dim >= 0) moves[static_cast<size_t>(*dim)].step += t.factor;
  }
  // The widest dimension is solved for, the others are tried.
  llvm::erase_if(moves, [](const Move &m) { return m.extent == 1; });
  std::sort(moves.begin(), moves.end(), [](const Move &a, const Move &b) { return a.extent < b.extent; });
  int64_t tries = 1;
  for (size_t k = 0; k + 1 < moves.size(); ++k) tries *= 2 * moves[k].extent;
  return tries <= 4096 && !reaches(moves, *between);
}

} // namespace neso::cpu
