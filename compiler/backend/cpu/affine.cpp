#include "backend/cpu/affine.h"

#include <algorithm>

#include "backend/common/opcodes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"

namespace neso::cpu {

namespace {
constexpr int kDepth = 64;

mlir::RankedTensorType tensorOf(mlir::Value v) { return llvm::dyn_cast<mlir::RankedTensorType>(v.getType()); }

/// Bits of an element; index and pointers have 64.
unsigned bitsOf(mlir::Value v) {
  mlir::Type t = v.getType();
  if (mlir::RankedTensorType tensor = tensorOf(v)) t = tensor.getElementType();
  return t.isIntOrFloat() ? t.getIntOrFloatBitWidth() : 64;
}

/// v in two's complement of `bits` bits.
int64_t wrapped(int64_t v, unsigned bits) {
  if (bits >= 64) return v;
  const uint64_t high = uint64_t{1} << (bits - 1), all = (high << 1) - 1;
  return static_cast<int64_t>(((static_cast<uint64_t>(v) & all) ^ high) - high);
}
int64_t sum(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b)); }
int64_t product(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

/// Operand's dimension for each dimension of the reshape's result, -1 for a new one of size 1; nothing when elements
/// move.
std::optional<llvm::SmallVector<int64_t, 4>> unitReshape(llvm::ArrayRef<int64_t> from, llvm::ArrayRef<int64_t> to) {
  llvm::SmallVector<int64_t, 4> origin;
  size_t next = 0;
  for (int64_t size : to) {
    if (size == 1) {
      origin.push_back(-1);
      continue;
    }
    while (next < from.size() && from[next] == 1) ++next;
    if (next == from.size() || from[next] != size) return std::nullopt;
    origin.push_back(static_cast<int64_t>(next++));
  }
  for (; next < from.size(); ++next)
    if (from[next] != 1) return std::nullopt;
  return origin;
}
} // namespace

std::optional<int64_t> splatConstant(mlir::Value v) {
  mlir::Operation *def = v.getDefiningOp();
  while (def && (codeOf(def) == OpCode::Broadcast || codeOf(def) == OpCode::ExpandDims ||
                 codeOf(def) == OpCode::Splat || codeOf(def) == OpCode::Trans || codeOf(def) == OpCode::Reshape))
    def = def->getOperand(0).getDefiningOp();
  if (!def || codeOf(def) != OpCode::ArithConstant) return std::nullopt;
  mlir::Attribute value = def->getAttr("value");
  if (auto dense = llvm::dyn_cast<mlir::DenseElementsAttr>(value)) {
    if (dense.isSplat() && dense.getElementType().isIntOrIndex())
      return dense.getSplatValue<llvm::APInt>().getSExtValue();
    return std::nullopt;
  }
  if (auto i = llvm::dyn_cast<mlir::IntegerAttr>(value)) return i.getValue().getSExtValue();
  return std::nullopt;
}

void Conditions::add(NoWrap c) {
  if (std::find(noWrap.begin(), noWrap.end(), c) == noWrap.end()) noWrap.push_back(c);
}

void Conditions::add(mlir::Operation *remainder) {
  if (std::find(remainders.begin(), remainders.end(), remainder) == remainders.end()) remainders.push_back(remainder);
}

std::optional<RemainderForm> remainderForm(mlir::Operation *op) {
  if (codeOf(op) != OpCode::RemSI) return std::nullopt;
  auto splatOf = [](mlir::Value v) -> mlir::Value {
    mlir::Operation *def = v.getDefiningOp();
    return def && codeOf(def) == OpCode::Splat ? def->getOperand(0) : mlir::Value();
  };
  mlir::Value modulus = splatOf(op->getOperand(1));
  mlir::Operation *start = op->getOperand(0).getDefiningOp();
  if (!modulus || !start || codeOf(start) != OpCode::AddI) return std::nullopt;
  for (unsigned k : {0u, 1u}) {
    mlir::Operation *range = start->getOperand(k).getDefiningOp();
    mlir::Value base = splatOf(start->getOperand(1 - k));
    if (!range || codeOf(range) != OpCode::MakeRange || !base) continue;
    return RemainderForm{base, modulus, range->getAttrOfType<mlir::IntegerAttr>("start").getInt(),
                         range->getAttrOfType<mlir::IntegerAttr>("end").getInt()};
  }
  return std::nullopt;
}

std::optional<Step> Affine::along(mlir::Value v, int64_t dim, Conditions &conditions) {
  const Found found = known(v, dim, 0);
  for (const NoWrap &c : found.conditions.noWrap) conditions.add(c);
  for (mlir::Operation *op : found.conditions.remainders) conditions.add(op);
  return found.step;
}

bool Affine::everywhere(mlir::Value v, Conditions &conditions) { return everywhere(v, 0, conditions); }

bool Affine::everywhere(mlir::Value v, int depth, Conditions &conditions) {
  mlir::RankedTensorType type = tensorOf(v);
  if (!type) return true;
  for (int64_t d = 0; d < type.getRank(); ++d) {
    const Found found = known(v, d, depth);
    if (!found.step) return false;
    for (const NoWrap &c : found.conditions.noWrap) conditions.add(c);
    for (mlir::Operation *op : found.conditions.remainders) conditions.add(op);
  }
  return true;
}

bool Affine::uniform(mlir::Value v, int depth, Conditions &conditions) {
  mlir::RankedTensorType type = tensorOf(v);
  if (!type) return true;
  for (int64_t d = 0; d < type.getRank(); ++d) {
    const Found found = known(v, d, depth);
    if (!found.step || !found.step->isZero()) return false;
    for (const NoWrap &c : found.conditions.noWrap) conditions.add(c);
    for (mlir::Operation *op : found.conditions.remainders) conditions.add(op);
  }
  return true;
}

Affine::Found Affine::known(mlir::Value v, int64_t dim, int depth) {
  auto it = memo_.find({v, dim});
  if (it != memo_.end()) return it->second;
  Found found = find(v, dim, depth + 1);
  memo_[{v, dim}] = found;
  return found;
}

/// A value that an operation makes wider. What does not move needs no proof.
Affine::Found Affine::widened(mlir::Value operand, int64_t dim, bool isSigned, int depth) {
  Found found = known(operand, dim, depth);
  if (!found.step || found.step->isZero() || guessing_) return found;
  if (isSigned && markedExact(operand, dim, depth)) return found;
  if (!everywhere(operand, depth, found.conditions)) return {};
  found.conditions.add(NoWrap{operand, isSigned});
  return found;
}

bool Affine::markedExact(mlir::Value v, int64_t dim, int depth) {
  if (const Found found = known(v, dim, depth); found.step && found.step->isZero()) return true;
  mlir::Operation *def = v.getDefiningOp();
  if (!def || depth > kDepth) return false;
  auto operandsExact = [&] {
    return llvm::all_of(def->getOperands(), [&](mlir::Value o) { return markedExact(o, dim, depth + 1); });
  };
  switch (codeOf(def)) {
  case OpCode::MakeRange: return true;
  case OpCode::ExpandDims: {
    const int64_t axis = def->getAttrOfType<mlir::IntegerAttr>("axis").getInt();
    return markedExact(def->getOperand(0), dim > axis ? dim - 1 : dim, depth + 1);
  }
  case OpCode::Broadcast: return operandsExact();
  case OpCode::AddI:
  case OpCode::SubI:
  case OpCode::MulI:
  case OpCode::ShlI: {
    auto flags = llvm::cast<mlir::arith::ArithIntegerOverflowFlagsInterface>(def);
    return flags.hasNoSignedWrap() && operandsExact();
  }
  default: return false;
  }
}

Affine::Found Affine::find(mlir::Value v, int64_t dim, int depth) {
  const Found zero{Step{0}, {}}, unknown{};
  mlir::RankedTensorType type = tensorOf(v);
  if (!type || type.getShape()[static_cast<size_t>(dim)] == 1) return zero;
  if (depth > kDepth) return unknown;
  if (mlir::Value init = initOf_(v)) return known(init, dim, depth);
  mlir::Operation *def = v.getDefiningOp();
  if (!def) return unknown;
  const unsigned bits = bitsOf(v);
  auto of = [&](unsigned i) -> Found { return known(def->getOperand(i), dim, depth); };
  auto join = [](Found a, const Found &b, std::optional<Step> step) {
    for (const NoWrap &c : b.conditions.noWrap) a.conditions.add(c);
    for (mlir::Operation *op : b.conditions.remainders) a.conditions.add(op);
    a.step = step;
    return a;
  };
  auto total = [&](const Found &a, const Found &b, bool subtract) {
    if (!a.step || !b.step) return unknown;
    std::optional<int64_t> constant;
    if (a.step->constant && b.step->constant)
      constant = wrapped(sum(*a.step->constant, product(*b.step->constant, subtract ? -1 : 1)), bits);
    return join(a, b, Step{constant});
  };
  /// x times a factor that is the same everywhere.
  auto scaled = [&](const Found &x, std::optional<int64_t> factor) {
    std::optional<int64_t> constant;
    if (x.step->constant && factor) constant = wrapped(product(*x.step->constant, *factor), bits);
    if (x.step->isZero()) constant = 0;
    Found r = x;
    r.step = Step{constant};
    return r;
  };

  switch (codeOf(def)) {
  case OpCode::MakeRange: return {Step{1}, {}};
  case OpCode::Splat: return zero;
  case OpCode::ArithConstant: {
    auto dense = llvm::dyn_cast<mlir::DenseElementsAttr>(def->getAttr("value"));
    return dense && dense.isSplat() ? zero : unknown;
  }
  case OpCode::ExpandDims: {
    const int64_t axis = def->getAttrOfType<mlir::IntegerAttr>("axis").getInt();
    return known(def->getOperand(0), dim > axis ? dim - 1 : dim, depth);
  }
  case OpCode::Broadcast: return of(0); // a dimension of size 1 does not move
  case OpCode::Trans:
    return known(def->getOperand(0), def->getAttrOfType<mlir::DenseI32ArrayAttr>("order")[static_cast<size_t>(dim)],
                 depth);
  case OpCode::Reshape: {
    mlir::Value from = def->getOperand(0);
    Found same;
    if (uniform(from, depth, same.conditions)) return same.step = Step{0}, same;
    auto allowReorder = def->getAttrOfType<mlir::UnitAttr>("allow_reorder");
    std::optional<llvm::SmallVector<int64_t, 4>> origin = unitReshape(tensorOf(from).getShape(), type.getShape());
    if (!origin || allowReorder) return unknown;
    return known(from, (*origin)[static_cast<size_t>(dim)], depth);
  }
  case OpCode::AddI: return total(of(0), of(1), false);
  case OpCode::SubI: return total(of(0), of(1), true);
  case OpCode::AddPtr: return total(of(0), bitsOf(def->getOperand(1)) < 64 ? widened(def->getOperand(1), dim, true, depth) : of(1), false);
  case OpCode::MulI: {
    Found a = of(0), c = of(1);
    if (!a.step || !c.step) return unknown;
    if (a.step->isZero() && c.step->isZero()) return join(a, c, Step{0});
    for (unsigned k : {0u, 1u}) {
      Found moving = k == 0 ? a : c;
      if (uniform(def->getOperand(1 - k), depth, moving.conditions))
        return scaled(moving, splatConstant(def->getOperand(1 - k)));
    }
    return unknown;
  }
  case OpCode::ShlI: {
    std::optional<int64_t> by = splatConstant(def->getOperand(1));
    Found a = of(0);
    if (a.step && by && *by >= 0 && *by < bits && *by < 63) return scaled(a, int64_t{1} << *by);
    break;
  }
  case OpCode::Select: {
    Found a = of(1), c = of(2);
    if (!a.step || !c.step || !a.step->constant || a.step->constant != c.step->constant || a.step->isZero()) break;
    Found r = join(a, c, a.step);
    return uniform(def->getOperand(0), depth, r.conditions) ? r : unknown;
  }
  case OpCode::TruncI: {
    Found a = of(0);
    return a.step ? scaled(a, 1) : unknown;
  }
  case OpCode::ExtSI: return widened(def->getOperand(0), dim, true, depth);
  case OpCode::ExtUI: return widened(def->getOperand(0), dim, false, depth);
  case OpCode::IndexCast:
  case OpCode::IndexCastUI: {
    if (bits > bitsOf(def->getOperand(0)))
      return widened(def->getOperand(0), dim, codeOf(def) == OpCode::IndexCast, depth);
    Found a = of(0);
    return a.step ? scaled(a, 1) : unknown;
  }
  case OpCode::DivSI:
  case OpCode::DivUI: {
    // Most neighbours have the same quotient; of a divisor that is known at run time only (a size) that is the likely case, too.
    const Found a = of(0);
    if (!guessing_ || !a.step || !a.step->constant) break;
    const std::optional<int64_t> by = splatConstant(def->getOperand(1));
    Conditions none;
    if (by ? std::abs(*a.step->constant) < *by : uniform(def->getOperand(1), depth, none)) return zero;
    break;
  }
  case OpCode::RemSI:
  case OpCode::RemUI: {
    if (guessing_) return of(0);
    Found a = of(0), c = of(1);
    if (a.step && c.step && a.step->isZero() && c.step->isZero()) return join(a, c, Step{0});
    if (!remainderForm(def)) return unknown;
    Found r{Step{1}, {}};
    r.conditions.add(def);
    return r;
  }
  // Not known to give the same for the same operands.
  case OpCode::InlineAsm:
  case OpCode::MapElementwise: return unknown;
  default: break;
  }
  if (classOf(codeOf(def)) != OpClass::Element) return unknown;
  // Operands that are the same along `dim` give results that are.
  Found same = zero;
  for (unsigned i = 0; i < def->getNumOperands(); ++i) {
    Found operand = of(i);
    if (!operand.step || !operand.step->isZero()) return unknown;
    same = join(same, operand, Step{0});
  }
  return same;
}

bool Affine::isConvexMask(mlir::Value v, Conditions &conditions) {
  if (uniform(v, 0, conditions)) return true;
  mlir::Operation *def = v.getDefiningOp();
  if (!def) return false;
  switch (codeOf(def)) {
  case OpCode::Broadcast:
  case OpCode::ExpandDims:
  case OpCode::Trans: return isConvexMask(def->getOperand(0), conditions);
  case OpCode::AndI: return isConvexMask(def->getOperand(0), conditions) && isConvexMask(def->getOperand(1), conditions);
  case OpCode::CmpI: {
    using P = mlir::arith::CmpIPredicate;
    const P p = llvm::cast<mlir::arith::CmpIOp>(def).getPredicate();
    if (p != P::slt && p != P::sle && p != P::sgt && p != P::sge) return false;
    for (mlir::Value x : def->getOperands()) {
      if (!everywhere(x, conditions)) return false;
      Conditions none;
      if (!uniform(x, 0, none)) conditions.add(NoWrap{x, true});
    }
    return true;
  }
  default: return false;
  }
}

std::optional<int64_t> Affine::likelyStep(mlir::Value v, int64_t dim) {
  Affine guess(initOf_);
  guess.guessing_ = true;
  std::optional<Step> step = guess.known(v, dim, 0).step;
  return step ? step->constant : std::nullopt;
}

} // namespace neso::cpu
