#include "backend/nvidia/passes/boxes.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "backend/common/opcodes.h"
#include "backend/nvidia/passes/resident.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace neso::nvidia {

// ---- polynomials

void Polynomial::add(const Product &product, int64_t factor) {
  std::vector<int> key(product.begin(), product.end());
  std::sort(key.begin(), key.end());
  int64_t &slot = terms[key];
  slot += factor;
  if (slot == 0) terms.erase(key);
}
Polynomial Polynomial::operator+(const Polynomial &o) const {
  Polynomial sum = *this;
  for (const auto &[product, factor] : o.terms) sum.add(Product(product.begin(), product.end()), factor);
  return sum;
}
Polynomial Polynomial::operator-(const Polynomial &o) const { return *this + o * Polynomial(-1); }
Polynomial Polynomial::operator*(const Polynomial &o) const {
  Polynomial out;
  for (const auto &[a, x] : terms)
    for (const auto &[b, y] : o.terms) {
      Product both(a.begin(), a.end());
      both.append(b.begin(), b.end());
      out.add(both, x * y);
    }
  return out;
}
bool Polynomial::has(int scalar) const {
  return llvm::any_of(terms, [&](const auto &term) { return llvm::is_contained(term.first, scalar); });
}

namespace {

/// Bytes: 2^31 of them in a row are more than any device's memory.
constexpr int64_t kLeastOpenPitch = 4096;

using MaybePolynomial = std::optional<Polynomial>;
/// Which dim of the tile each dim of a tensor is; -1: none.
using Dims = SmallVector<int, 4>;

/// What stands for the elements of a tile's dim: its position, or the remainder of an index by a size.
struct Lane {
  int dim;
  Polynomial start, size; // of a remainder: (start + position) % size
  bool remainder = false;
};

class Finder {
public:
  Finder(scf::ForOp loop, std::string &why) : loop_(loop), why_(why) { turn_ = scalar(loop.getInductionVar()); }

  std::optional<std::vector<Box>> run(ArrayRef<PipelinedLoad> loads) {
    std::vector<Box> boxes;
    for (const PipelinedLoad &load : loads) {
      std::optional<Box> box = boxOf(load.load, load.fast);
      if (!box) return std::nullopt;
      boxes.push_back(std::move(*box));
    }
    // Sizes are positive, which those who make descriptors check; so are indices then, if they are.
    for (const Box &box : boxes)
      for (const Box::Dim &dim : box.dims)
        if (dim.size) notePositive(*dim.size);
    for (size_t i = 0; i < boxes.size(); ++i) {
      bool good = !boxes[i].outer || notNegative(indexOf(*boxes[i].outer));
      for (size_t d = 0; d < 2; ++d) good &= bounded_.count({i, int(d)}) || notNegative(indexOf(boxes[i].dims[d]));
      if (!good) return none("an index that may be negative");
    }
    for (Box &box : boxes) box.scalars = scalars_;
    return boxes;
  }

private:
  std::nullopt_t none(const char *why) {
    why_ = why;
    return std::nullopt;
  }

  // ---- scalars and lanes: numbers in polynomials

  int scalar(Value v) {
    auto [entry, fresh] = numbers_.try_emplace(v, int(scalars_.size()));
    if (fresh) scalars_.push_back(v), lanes_.push_back({});
    return entry->second;
  }
  int lane(const Lane &lane) {
    for (size_t i = 0; i < lanes_.size(); ++i)
      if (const Lane *l = lanes_[i] ? &*lanes_[i] : nullptr)
        if (l->dim == lane.dim && l->remainder == lane.remainder && l->start == lane.start && l->size == lane.size)
          return int(i);
    scalars_.push_back(Value());
    lanes_.push_back(lane);
    return int(lanes_.size()) - 1;
  }
  /// The lanes of a dim that it is made of.
  std::vector<int> lanesOf(const Polynomial &p, int dim) const {
    std::vector<int> found;
    for (size_t i = 0; i < lanes_.size(); ++i)
      if (lanes_[i] && lanes_[i]->dim == dim && p.has(int(i))) found.push_back(int(i));
    return found;
  }
  bool hasLanes(const Polynomial &p) const { return !lanesOf(p, 0).empty() || !lanesOf(p, 1).empty(); }

  /// Of integer arguments of the function alone.
  bool isInvariant(const std::vector<int> &product) const {
    return llvm::all_of(product, [&](int i) {
      BlockArgument argument = dyn_cast_or_null<BlockArgument>(scalars_[size_t(i)]);
      return argument && isa<tt::FuncOp>(argument.getOwner()->getParentOp()) && argument.getOwner()->isEntryBlock() &&
             argument.getType().isInteger() && !isProgramCount(argument);
    });
  }
  bool isInvariant(const Polynomial &p) const {
    return llvm::all_of(p.terms, [&](const auto &term) { return isInvariant(term.first); });
  }
  Polynomial onlyInvariant(const Polynomial &p, bool invariant) const {
    Polynomial out;
    for (const auto &[product, factor] : p.terms)
      if (isInvariant(product) == invariant) out.terms[product] = factor;
    return out;
  }

  // ---- values to polynomials

  MaybePolynomial combine(Operation *op, const Dims &dims) {
    MaybePolynomial a = form(op->getOperand(0), dims), b = a ? form(op->getOperand(1), dims) : std::nullopt;
    if (!a || !b) return std::nullopt;
    if (isa<arith::MulIOp>(op)) return *a * *b;
    return isa<arith::SubIOp>(op) ? *a - *b : *a + *b;
  }
  MaybePolynomial form(Value v, const Dims &dims) {
    if (BlockArgument argument = dyn_cast<BlockArgument>(v)) return ofArgument(argument, dims);
    Operation *op = v.getDefiningOp();
    APInt number;
    if (matchPattern(v, m_ConstantInt(&number))) return Polynomial(number.getSExtValue());
    DenseElementsAttr elements;
    if (matchPattern(v, m_Constant(&elements)) && elements.isSplat() && isa<IntegerType>(elements.getElementType()))
      return Polynomial(elements.getSplatValue<APInt>().getSExtValue());
    if (isa<arith::AddIOp, arith::SubIOp, arith::MulIOp, tt::AddPtrOp>(op))
      if (MaybePolynomial p = combine(op, dims)) return p;
    if (isa<tt::SplatOp>(op)) return form(op->getOperand(0), {});
    if (isa<arith::ExtSIOp, arith::IndexCastOp>(op)) return form(op->getOperand(0), dims);
    if (tt::BroadcastOp o = dyn_cast<tt::BroadcastOp>(op)) return form(o.getSrc(), dims);
    if (tt::ExpandDimsOp o = dyn_cast<tt::ExpandDimsOp>(op)) {
      Dims inner = dims;
      inner.erase(inner.begin() + o.getAxis());
      return form(o.getSrc(), inner);
    }
    if (tt::MakeRangeOp o = dyn_cast<tt::MakeRangeOp>(op)) {
      if (dims[0] < 0) return std::nullopt;
      return Polynomial::of(lane({dims[0], {}, {}, false})) + Polynomial(int64_t(int32_t(o.getStart())));
    }
    if (isa<arith::RemSIOp>(op) && isa<RankedTensorType>(v.getType())) return ofRemainder(op, dims);
    // A scalar that the loop does not change.
    const bool outside = !loop_->isAncestor(v.getParentRegion()->getParentOp());
    if (!isa<RankedTensorType>(v.getType()) && outside && isNumber(v.getType())) return Polynomial::of(scalar(v));
    return std::nullopt;
  }
  static bool isNumber(Type type) { return type.isInteger(64) || type.isInteger(32) || type.isInteger(16) || type.isInteger(8); }
  bool isWide(const Polynomial &p) const {
    for (size_t i = 0; i < scalars_.size(); ++i)
      if (scalars_[i] && scalars_[i].getType().isInteger(64) && p.has(int(i))) return true;
    return false;
  }
  MaybePolynomial ofArgument(BlockArgument argument, const Dims &dims) {
    if (argument.getOwner() != loop_.getBody()) {
      const bool outside = !loop_->isAncestor(argument.getOwner()->getParentOp());
      if (!outside || !(isNumber(argument.getType()) || isa<tt::PointerType>(argument.getType()))) return std::nullopt;
      return Polynomial::of(scalar(argument));
    }
    if (argument == loop_.getInductionVar()) {
      MaybePolynomial low = form(loop_.getLowerBound(), {}), step = form(loop_.getStep(), {});
      if (!low || !step) return std::nullopt;
      return *low + *step * Polynomial::of(turn_);
    }
    const unsigned number = argument.getArgNumber() - 1;
    Operation *next = loop_.getBody()->getTerminator()->getOperand(number).getDefiningOp();
    if (!next || !isa<tt::AddPtrOp, arith::AddIOp>(next) || next->getOperand(0) != argument) return std::nullopt;
    MaybePolynomial first = form(loop_.getInitArgs()[number], dims), step = form(next->getOperand(1), dims);
    if (!first || !step || step->has(turn_) || hasLanes(*step)) return std::nullopt;
    return *first + *step * Polynomial::of(turn_);
  }
  MaybePolynomial ofRemainder(Operation *op, const Dims &dims) {
    MaybePolynomial x = form(op->getOperand(0), dims), n = form(op->getOperand(1), dims);
    if (!x || !n || hasLanes(*n)) return std::nullopt;
    for (int dim : {0, 1}) {
      const int position = lane({dim, {}, {}, false});
      Polynomial start = *x - Polynomial::of(position);
      if (x->has(position) && !hasLanes(start)) return Polynomial::of(lane({dim, start, *n, true}));
    }
    return std::nullopt;
  }

  // ---- masks: each polynomial is below 0

  bool conditions(Value mask, const Dims &dims, std::vector<Polynomial> &out) {
    if (!mask || matchPattern(mask, m_One())) return true;
    Operation *op = mask.getDefiningOp();
    if (!op) return false;
    if (isa<arith::AndIOp>(op)) return conditions(op->getOperand(0), dims, out) && conditions(op->getOperand(1), dims, out);
    if (tt::BroadcastOp o = dyn_cast<tt::BroadcastOp>(op)) return conditions(o.getSrc(), dims, out);
    if (tt::ExpandDimsOp o = dyn_cast<tt::ExpandDimsOp>(op)) {
      Dims inner = dims;
      inner.erase(inner.begin() + o.getAxis());
      return conditions(o.getSrc(), inner, out);
    }
    arith::CmpIOp compare = dyn_cast<arith::CmpIOp>(op);
    MaybePolynomial a = compare ? form(compare.getLhs(), dims) : std::nullopt, b = a ? form(compare.getRhs(), dims) : std::nullopt;
    if (!a || !b) return false;
    using P = arith::CmpIPredicate;
    switch (compare.getPredicate()) {
    case P::slt: out.push_back(*a - *b); return true;
    case P::sle: out.push_back(*a - *b - Polynomial(1)); return true;
    case P::sgt: out.push_back(*b - *a); return true;
    case P::sge: out.push_back(*b - *a - Polynomial(1)); return true;
    default: return false;
    }
  }

  // ---- one load

  std::optional<Box> boxOf(tt::LoadOp load, int fast) {
    RankedTensorType tile = cast<RankedTensorType>(load.getType());
    if (tile.getRank() != 2) return none("a tile that is no matrix");
    MaybePolynomial address = form(load.getPtr(), {0, 1});
    std::vector<Polynomial> mask;
    if (!address) return none("an address that is no sum of products");
    if (!conditions(load.getMask(), {0, 1}, mask)) return none("a mask that is no border");
    Box box;
    box.dims.resize(2);
    Polynomial rest = *address;
    if (!takeBase(rest, box)) return none("a base that is no argument");
    std::optional<Lane> lanes[2];
    for (int d : {0, 1})
      if (!takeLane(rest, d, box.dims[size_t(d)], lanes[d])) return none("an address whose rows do not lie alike");
    if (box.dims[size_t(fast)].pitch != Polynomial(1)) return none("no neighbours along a dim");
    const size_t number = found_++;
    for (const Polynomial &condition : mask)
      if (!takeCondition(condition, number, box)) return none("a mask that is no border");
    return settle(load, rest, lanes, box) ? std::optional<Box>(std::move(box)) : std::nullopt;
  }
  /// The pointer argument, once.
  bool takeBase(Polynomial &rest, Box &box) {
    for (const auto &[product, factor] : rest.terms) {
      Value v = product.size() == 1 ? scalars_[size_t(product[0])] : Value();
      if (!v || !isa<tt::PointerType>(v.getType())) continue;
      BlockArgument argument = dyn_cast<BlockArgument>(v);
      if (box.base || factor != 1 || !argument || !isa<tt::FuncOp>(argument.getOwner()->getParentOp())) return false;
      box.base = v;
    }
    if (box.base) rest = rest - Polynomial::of(scalar(box.base));
    return bool(box.base);
  }
  /// What stands for the elements of dim d, and how far they lie apart.
  bool takeLane(Polynomial &rest, int d, Box::Dim &dim, std::optional<Lane> &lane) {
    const std::vector<int> found = lanesOf(rest, d);
    if (found.size() != 1) return false;
    lane = lanes_[size_t(found[0])];
    Polynomial part;
    for (const auto &[product, factor] : rest.terms) {
      auto at = llvm::find(product, found[0]);
      if (at == product.end()) continue;
      part.terms[product] = factor;
      std::vector<int> others(product.begin(), at);
      others.insert(others.end(), at + 1, product.end());
      dim.pitch.terms[others] = factor;
    }
    rest = rest - part;
    return dim.pitch.terms.size() == 1 && isInvariant(dim.pitch);
  }
  /// A border of one dim: the part that arguments give is its size, the rest its index.
  bool takeCondition(const Polynomial &condition, size_t number, Box &box) {
    for (int d : {0, 1}) {
      const int position = lane({d, {}, {}, false});
      auto term = condition.terms.find({position});
      if (term == condition.terms.end()) continue;
      Box::Dim &dim = box.dims[size_t(d)];
      if (term->second == 1) {
        const Polynomial other = condition - Polynomial::of(position);
        if (hasLanes(other) || dim.size) return false;
        dim.size = onlyInvariant(other, true) * Polynomial(-1);
        dim.first = onlyInvariant(other, false);
        return true;
      }
      if (term->second == -1) {
        // Not negative: -(index) - 1 < 0.
        const Polynomial other = condition + Polynomial::of(position);
        if (hasLanes(other)) return false;
        lower_.push_back({number, d, (other + Polynomial(1)) * Polynomial(-1)});
        return true;
      }
      return false;
    }
    return false;
  }

  /// Indices of all dims, from the borders and what is left of the address.
  bool settle(tt::LoadOp load, Polynomial rest, const std::optional<Lane> (&lanes)[2], Box &box) {
    bool given[2] = {box.dims[0].size.has_value(), box.dims[1].size.has_value()};
    for (int d : {0, 1}) {
      Box::Dim &dim = box.dims[size_t(d)];
      if (lanes[d]->remainder) {
        if (given[d] || !isInvariant(lanes[d]->size) || !isDontCare(load, d, *lanes[d])) {
          why_ = "a remainder whose rows are stored";
          return false;
        }
        dim.size = lanes[d]->size, dim.first = lanes[d]->start;
        given[d] = true;
        bounded_.insert({found_ - 1, d});
        continue;
      }
      if (given[d]) rest = rest - dim.first * dim.pitch;
    }
    // What no border tells belongs to the dim whose pitch divides it.
    Polynomial left;
    const int slow = box.dims[0].pitch == Polynomial(1) ? 1 : 0;
    for (const auto &[product, factor] : rest.terms) {
      Polynomial quotient;
      if (!given[slow] && divide(product, factor, box.dims[size_t(slow)].pitch, quotient))
        box.dims[size_t(slow)].first = box.dims[size_t(slow)].first + quotient;
      else
        left.terms[product] = factor;
    }
    left = takeOuter(left, box);
    if (!left.isZero()) {
      if (given[1 - slow]) {
        why_ = "an address that its mask does not follow";
        return false;
      }
      box.dims[size_t(1 - slow)].first = left;
    }
    for (Box::Dim *dim : {&box.dims[0], &box.dims[1], box.outer ? &*box.outer : nullptr})
      if (dim && !splitTurn(*dim)) {
        why_ = "an index that does not change by the same each turn";
        return false;
      }
    takeOpen(box.dims[size_t(slow)], box);
    for (Box::Dim *dim : {&box.dims[0], &box.dims[1], box.outer ? &*box.outer : nullptr})
      if (dim && !hasCoordinates(*dim, load)) {
        why_ = dim->size ? "an index that changes by 64 bits each turn" : "an index of 64 bits without a border";
        return false;
      }
    return takeLower(box);
  }
  /// What may be more than 31 bits of an index without a border, as an open number of batches is, is the index of a further dim, whose pitch is larger.
  void takeOpen(Box::Dim &dim, Box &box) {
    const auto &[product, pitch] = *dim.pitch.terms.begin();
    if (dim.size || box.outer || !product.empty() || !isWide(dim.first) || mostOf(dim.first) <= INT32_MAX) return;
    Polynomial open;
    int64_t common = 0;
    for (const auto &[scalars, factor] : dim.first.terms) {
      Polynomial term;
      term.terms[scalars] = factor;
      if (mostOf(term) > INT32_MAX) open = open + term, common = std::gcd(common, factor);
    }
    if (common == 0) return;
    dim.first = dim.first - open;
    for (auto &[scalars, factor] : open.terms) factor /= common;
    box.outer.emplace();
    box.outer->pitch = Polynomial(common * pitch), box.outer->first = open;
  }
  /// Whether the index, or what 32 bits can say of it, is the place of the copy. With a border an index beyond 31 bits is outside, clamped too.
  bool hasCoordinates(Box::Dim &dim, tt::LoadOp load) {
    if (isWide(dim.step)) return false;
    if (dim.size || !isWide(dim.first) || mostOf(dim.first) <= INT32_MAX) return true;
    // The tile lies in memory, and no memory is as large as 2^31 rows of this pitch.
    const int64_t least = kLeastOpenPitch * 8 / std::max<int64_t>(8, getElementTypeOrSelf(load.getType()).getIntOrFloatBitWidth());
    const auto &[product, factor] = *dim.pitch.terms.begin();
    if (product.empty()) return factor >= least;
    dim.leastPitch = least;
    return true;
  }
  /// What an argument is multiplied with is the index of a further dim, of that pitch; gives what is left.
  Polynomial takeOuter(const Polynomial &address, Box &box) const {
    Polynomial left;
    // The largest pitch of those that fit: a pitch has to be a multiple of 16 bytes whatever the argument is.
    int64_t common = 0;
    auto split = [&](const std::vector<int> &product) {
      std::pair<std::vector<int>, std::vector<int>> fixedAndOthers;
      for (int i : product) (isInvariant(std::vector<int>{i}) ? fixedAndOthers.first : fixedAndOthers.second).push_back(i);
      return fixedAndOthers;
    };
    for (const auto &[product, factor] : address.terms)
      if (const auto [fixed, others] = split(product); !fixed.empty() && !others.empty()) common = std::gcd(common, factor);
    for (const auto &[product, factor] : address.terms) {
      const auto [fixed, others] = split(product);
      Polynomial pitch, index;
      if (!fixed.empty() && !others.empty()) pitch.terms[fixed] = common, index.terms[others] = factor / common;
      if (pitch.isZero() || (box.outer && !(box.outer->pitch == pitch))) {
        left.terms[product] = factor;
        continue;
      }
      if (!box.outer) {
        box.outer.emplace();
        box.outer->pitch = pitch;
      }
      box.outer->first = box.outer->first + index;
    }
    return left;
  }
  static bool divide(const std::vector<int> &product, int64_t factor, const Polynomial &by, Polynomial &quotient) {
    const auto &[divisor, divisorFactor] = *by.terms.begin();
    if (factor % divisorFactor != 0) return false;
    std::vector<int> remaining = product;
    for (int i : divisor) {
      auto at = llvm::find(remaining, i);
      if (at == remaining.end()) return false;
      remaining.erase(at);
    }
    quotient.terms[remaining] = factor / divisorFactor;
    return true;
  }
  /// first becomes that of the first turn, and what is added each turn.
  bool splitTurn(Box::Dim &dim) {
    Polynomial first, step;
    for (const auto &[product, factor] : dim.first.terms) {
      const auto turns = llvm::count(product, turn_);
      if (turns > 1) return false;
      std::vector<int> others = product;
      if (turns) others.erase(llvm::find(others, turn_));
      (turns ? step : first).terms[others] = factor;
    }
    dim.first = first, dim.step = step;
    return true;
  }
  Polynomial indexOf(const Box::Dim &dim) const { return dim.first + dim.step * Polynomial::of(turn_); }
  /// Borders at zero are of the very index.
  bool takeLower(const Box &box) {
    const size_t number = found_ - 1;
    for (const auto &[load, d, index] : lower_) {
      if (load != number) continue;
      if (!(indexOf(box.dims[size_t(d)]) == index)) {
        why_ = "a mask that is no border";
        return false;
      }
      bounded_.insert({load, d});
    }
    return true;
  }

  // ---- rows that nobody stores

  /// Whether what is computed from row x >= size of a product's operand (dim d of the load) is stored nowhere.
  bool isDontCare(tt::LoadOp load, int d, const Lane &lane) {
    if (!load->hasOneUse()) return false;
    Operation *user = *load->user_begin();
    int axis = d;
    Value operand = load.getResult();
    if (tt::TransOp turned = dyn_cast<tt::TransOp>(user)) {
      if (!turned->hasOneUse()) return false;
      axis = 1 - axis, operand = turned.getResult(), user = *turned->user_begin();
    }
    tt::DotOp dot = dyn_cast<tt::DotOp>(user);
    // Rows of A are rows of the sums, columns of B their columns; the others are summed over.
    if (!dot || (operand == dot.getA() ? axis != 0 : operand != dot.getB() || axis != 1)) return false;
    llvm::DenseSet<Value> seen;
    return storedWithin(dot.getD(), axis, lane, seen);
  }
  bool storedWithin(Value v, int axis, const Lane &lane, llvm::DenseSet<Value> &seen) {
    if (!seen.insert(v).second) return true;
    return llvm::all_of(v.getUses(), [&](OpOperand &use) { return useIsWithin(use, axis, lane, seen); });
  }
  bool useIsWithin(OpOperand &use, int axis, const Lane &lane, llvm::DenseSet<Value> &seen) {
    Operation *user = use.getOwner();
    const unsigned number = use.getOperandNumber();
    if (tt::StoreOp store = dyn_cast<tt::StoreOp>(user)) {
      std::vector<Polynomial> mask;
      const Polynomial border = lane.start + Polynomial::of(this->lane({axis, {}, {}, false})) - lane.size;
      return store.getValue() == use.get() && store.getPtr() != use.get() && conditions(store.getMask(), {0, 1}, mask) &&
             llvm::is_contained(mask, border);
    }
    if (scf::ForOp loop = dyn_cast<scf::ForOp>(user)) {
      const unsigned first = loop.getNumControlOperands();
      return number >= first && storedWithin(loop.getResult(number - first), axis, lane, seen) &&
             storedWithin(loop.getRegionIterArg(number - first), axis, lane, seen);
    }
    if (isa<scf::YieldOp>(user)) {
      scf::ForOp loop = dyn_cast<scf::ForOp>(user->getParentOp());
      return loop && storedWithin(loop.getResult(number), axis, lane, seen) &&
             storedWithin(loop.getRegionIterArg(number), axis, lane, seen);
    }
    if (tt::DotOp dot = dyn_cast<tt::DotOp>(user)) return number == 2 && storedWithin(dot.getD(), axis, lane, seen);
    if (classOf(codeOf(user)) != OpClass::Element || user->getNumRegions() || !isMemoryEffectFree(user)) return false;
    return llvm::all_of(user->getResults(), [&](Value result) { return storedWithin(result, axis, lane, seen); });
  }

  // ---- signs

  void notePositive(const Polynomial &size) {
    if (size.terms.size() != 1) return;
    const auto &[product, factor] = *size.terms.begin();
    if (product.size() == 1 && factor == 1) positive_.insert(scalars_[size_t(product[0])]);
  }
  bool notNegative(const Polynomial &p) {
    return llvm::all_of(p.terms, [&](const auto &term) {
      return term.second >= 0 && llvm::all_of(term.first, [&](int i) { return i == turn_ || notNegative(scalars_[size_t(i)]); });
    });
  }
  /// At least the largest value of what is not negative.
  int64_t mostOf(const Polynomial &p) {
    uint64_t sum = 0;
    for (const auto &[product, factor] : p.terms) {
      uint64_t most = uint64_t(factor);
      for (int i : product) most = llvm::SaturatingMultiply(most, uint64_t(mostOf(scalars_[size_t(i)])));
      sum = llvm::SaturatingAdd(sum, most);
    }
    return int64_t(std::min<uint64_t>(sum, INT64_MAX));
  }
  int64_t mostOf(Value v) {
    APInt number;
    if (matchPattern(v, m_ConstantInt(&number))) return number.isNegative() ? INT64_MAX : number.getSExtValue();
    const int64_t ofType = v.getType().isInteger(64) ? INT64_MAX : INT32_MAX;
    Operation *op = v.getDefiningOp();
    if (!op) return ofType;
    if (isa<arith::ExtSIOp>(op)) return mostOf(op->getOperand(0));
    if (isa<arith::MinSIOp>(op)) return std::min(mostOf(op->getOperand(0)), mostOf(op->getOperand(1)));
    if (isa<arith::RemSIOp, arith::RemUIOp>(op) && matchPattern(op->getOperand(1), m_ConstantInt(&number)) && number.isStrictlyPositive())
      return std::min(ofType, number.getSExtValue() - 1);
    return ofType;
  }
  bool notNegative(Value v) {
    APInt number;
    if (matchPattern(v, m_ConstantInt(&number))) return !number.isNegative();
    if (positive_.contains(v) || isProgramCount(v)) return true;
    Operation *op = v.getDefiningOp();
    if (!op) {
      scf::ForOp loop = dyn_cast<scf::ForOp>(cast<BlockArgument>(v).getOwner()->getParentOp());
      return loop && v == loop.getInductionVar() && notNegative(loop.getLowerBound()) && notNegative(loop.getStep());
    }
    if (isa<tt::GetProgramIdOp, tt::GetNumProgramsOp>(op)) return true;
    auto operand = [&](unsigned i) { return notNegative(op->getOperand(i)); };
    if (isa<arith::RemSIOp, arith::ExtSIOp, arith::IndexCastOp>(op)) return operand(0);
    if (isa<arith::MaxSIOp>(op)) return operand(0) || operand(1);
    // Numbers without a sign: at most the first operand, which is the same with one if it is not negative.
    if (isa<arith::RemUIOp, arith::DivUIOp>(op)) return operand(0);
    if (isa<arith::AddIOp, arith::MulIOp, arith::DivSIOp, arith::MinSIOp>(op)) return operand(0) && operand(1);
    return false;
  }

  scf::ForOp loop_;
  std::string &why_;
  int turn_ = 0; // how many turns of the loop have ended; scalars_ has its induction variable in that place
  std::vector<Value> scalars_;
  std::vector<std::optional<Lane>> lanes_; // where a number is one of them
  llvm::DenseMap<Value, int> numbers_;
  llvm::DenseSet<Value> positive_;
  size_t found_ = 0; // loads looked at
  struct Lower {
    size_t load;
    int dim;
    Polynomial index; // is not negative
  };
  std::vector<Lower> lower_;
  std::set<std::pair<size_t, int>> bounded_; // dims of loads with a border at zero
};

} // namespace

std::optional<std::vector<Box>> boxesOf(scf::ForOp loop, ArrayRef<PipelinedLoad> loads, std::string &why) {
  return Finder(loop, why).run(loads);
}

} // namespace neso::nvidia
