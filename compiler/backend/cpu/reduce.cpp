// Reductions and scans with any combine function.
#include <algorithm>
#include <numeric>

#include "backend/cpu/emitter.h"
#include "ir/tile/attributes.h"
#include "ir/tile/tile.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/SaveAndRestore.h"

namespace neso::cpu {

using llvm::Value;

/// Neutral element of a combine function that is one operation on its two arguments; null for all others.
llvm::Constant *Emitter::reduceIdentity(mlir::Operation *op) {
  mlir::Block &body = op->getRegion(0).front();
  if (body.getNumArguments() != 2 || body.getOperations().size() != 2) return nullptr;
  mlir::Operation &f = body.front();
  if (f.getNumOperands() != 2 || f.getOperand(0) == f.getOperand(1) || f.getOperand(0).getParentBlock() != &body ||
      f.getOperand(1).getParentBlock() != &body)
    return nullptr;
  mlir::Type element = f.getResult(0).getType();
  llvm::Type *t = typeOf(element);
  const bool plainFloat = t->isFloatTy() || t->isDoubleTy() || t->isHalfTy();
  auto number = [&](double v) -> llvm::Constant * { return plainFloat ? llvm::ConstantFP::get(t, v) : nullptr; };
  auto integer = [&](const llvm::APInt &v) { return llvm::ConstantInt::get(b.getContext(), v); };
  const unsigned bits = t->isIntegerTy() ? t->getIntegerBitWidth() : 0;
  switch (codeOf(&f)) {
  case OpCode::AddF: return number(-0.0);
  case OpCode::MulF: return number(1.0);
  case OpCode::MaxNumF:
  case OpCode::MinNumF: return plainFloat ? llvm::ConstantFP::getNaN(t) : nullptr;
  case OpCode::MaximumF: return plainFloat ? llvm::ConstantFP::getInfinity(t, true) : nullptr;
  case OpCode::MinimumF: return plainFloat ? llvm::ConstantFP::getInfinity(t, false) : nullptr;
  case OpCode::AddI:
  case OpCode::OrI:
  case OpCode::XorI:
  case OpCode::MaxUI: return bits ? integer(llvm::APInt(bits, 0)) : nullptr;
  case OpCode::MulI: return integer(llvm::APInt(bits, 1));
  case OpCode::AndI:
  case OpCode::MinUI: return integer(llvm::APInt::getAllOnes(bits));
  case OpCode::MaxSI: return integer(llvm::APInt::getSignedMinValue(bits));
  case OpCode::MinSI: return integer(llvm::APInt::getSignedMaxValue(bits));
  default: return nullptr;
  }
}

namespace {
/// Rows that are walked at one time, each a stream of its own from memory, where rows are long or lie apart. One stream alone has too little under way
/// then: on a Xeon eight read 1.5 times as much a second.
constexpr int64_t kStreams = 8;
/// Rows of at most so many bytes that follow one another are walked one after the other: that is one stream, which no prefetcher has to find
/// again at each row's begin. On Zen 4 it reads up to 2.3 times as much from memory as eight streams of 1 KiB and 1.15 times as much from the
/// third cache; on Sapphire Rapids as much where it is fetched ahead, else, from rows of 4 KiB on, 0.75 of it. What rows are multiplied with is read once more for each row and has to stay in the first cache.
constexpr int64_t kShortRow = 8192;
/// Bytes by which such a stream is fetched ahead into the second cache where it is read once from memory. The hardware looks ahead less: on Sapphire Rapids
/// rows of 1 KiB to 11 come 1.2 to 1.25 times as fast from memory, and as fast from the third cache; numbers that lie in the
/// second cache would take 1.25 times as long.
constexpr int64_t kAhead = 4096;
/// Operations between a reduction and the mask of what it adds up, at most, and the cost of one.
constexpr int kDeepestMasked = 8;
constexpr int kCheapMasked = 5;
/// Rows of columns whose elements are combined at one time, at most.
constexpr int64_t kRowsTogether = 4;

/// f(f(x, v), v) is f(x, v).
bool onceIsOften(OpCode combine, llvm::Constant *v) {
  switch (combine) {
  case OpCode::AddF:
  case OpCode::AddI:
  case OpCode::XorI: return v->isZeroValue();
  case OpCode::MulF: return llvm::cast<llvm::ConstantFP>(v)->isExactlyValue(1.0);
  case OpCode::MulI: return v->isOneValue();
  default: return true; // of two values one is chosen, or bits are
  }
}
} // namespace

/// Of a reduction whose combine function is more than one operation: the mask outside of which all its elements are what changes
/// nothing, which whoever wrote it states.
mlir::Value Emitter::statedMask(mlir::Operation *op) {
  if (!op->hasAttr(tile::kMaskedLanesNeutralAttr)) return {};
  mlir::Value mask;
  for (mlir::Value source : op->getOperands()) {
    mlir::Operation *def = source.getDefiningOp();
    if (!def || buffers_.count(source) || !uses_->isVirtual(def) || codeOf(def) != OpCode::Select ||
        !isTensor(def->getOperand(0).getType()) || (mask && mask != def->getOperand(0)))
      return {};
    // What is kept on the way must be there as a whole.
    if (keepsBelow(source, shapeOf(source.getType()))) return {};
    mask = def->getOperand(0);
  }
  return mask;
}

llvm::Constant *Emitter::outsideMask(mlir::Value v, mlir::Value &mask, int depth) {
  mlir::Operation *def = v.getDefiningOp();
  if (!def || depth > kDeepestMasked || buffers_.count(v) || !uses_->isVirtual(def)) return nullptr;
  const OpCode code = codeOf(def);
  if (code == OpCode::Splat) return llvm::dyn_cast_or_null<llvm::Constant>(scalar(def->getOperand(0)).base);
  if (code == OpCode::ArithConstant) return llvm::dyn_cast_or_null<llvm::Constant>(constant(def->getAttr("value"), elementOf(v.getType())).base);
  const bool selects = code == OpCode::Select && isTensor(def->getOperand(0).getType());
  if (selects || (code == OpCode::Load && def->getNumOperands() > 2)) {
    mlir::Value own = def->getOperand(selects ? 0 : 1);
    if (mask && mask != own) return nullptr;
    mask = own;
    return outsideMask(def->getOperand(2), mask, depth + 1);
  }
  // Functions are no constants before LLVM has looked at them.
  if (classOf(code) != OpClass::Element || costOf(code) > kCheapMasked || def->getNumResults() != 1 || def->getNumRegions()) return nullptr;
  llvm::SmallVector<Lanes, 4> args;
  for (mlir::Value o : def->getOperands()) {
    llvm::Constant *c = isTensor(o.getType()) ? outsideMask(o, mask, depth + 1) : nullptr;
    if (!c) return nullptr;
    args.push_back(fromValue(c, currentLevel()));
  }
  const llvm::SmallVector<Lanes, 2> results = elementwise(def, args);
  llvm::Constant *c = results.empty() ? nullptr : llvm::dyn_cast_or_null<llvm::Constant>(results[0].base);
  return c && !llvm::isa<llvm::UndefValue>(c) ? c : nullptr;
}

std::optional<Emitter::MaskedReduction> Emitter::maskedReduction(mlir::Operation *op, bool across) {
  if (mlir::Value mask = across ? mlir::Value() : statedMask(op)) return MaskedReduction{mask, nullptr, {}};
  llvm::Constant *identity = reduceIdentity(op);
  mlir::Value source = op->getOperand(0);
  if (!identity || !source.getDefiningOp() || buffers_.count(source)) return std::nullopt;
  mlir::Value mask;
  llvm::Constant *outside = outsideMask(source, mask);
  if (!outside || !mask || outside->getType() != identity->getType() ||
      !onceIsOften(codeOf(&op->getRegion(0).front().front()), outside))
    return std::nullopt;
  // What is kept on the way must be there as a whole.
  if (keepsBelow(source, shapeOf(source.getType()))) return std::nullopt;
  mlir::Value columns;
  if (across) {
    const int axis = static_cast<int>(op->getAttrOfType<mlir::IntegerAttr>("axis").getInt());
    if (shapeOf(mask.getType()).size() == 2) columns = partAlong(mask, 1 - axis);
    mask = partAlong(mask, axis);
  }
  if (!mask) return std::nullopt;
  return MaskedReduction{mask, outside, columns};
}

std::optional<Emitter::Reach> Emitter::reachOf(mlir::Value mask, const Index &outer, int axis) {
  Nest nest;
  nest.shape = shapeOf(mask.getType());
  nest.vectorDim = axis, nest.extent = nest.shape[static_cast<size_t>(axis)];
  nest.width = std::min<int64_t>(caps_.f32Lanes, nest.extent);
  while (nest.extent % nest.width) nest.width /= 2;
  if (nest.width == 1) return std::nullopt;
  const int64_t saved = width_;
  width_ = nest.width;
  frames_.push_back({b.GetInsertBlock(), {}});
  std::optional<Prefix> prefix = prefixOf(mask, vectorIndex(nest, outer, b.getInt32(0)), nest);
  frames_.pop_back();
  width_ = saved;
  if (!prefix) return std::nullopt;
  Value *extent = b.getInt32(static_cast<uint32_t>(nest.extent)), *zero = b.getInt32(0);
  Reach r{prefix->below, prefix->below, nullptr};
  if (prefix->certain) {
    r.sure = b.CreateSelect(prefix->certain, prefix->below, zero);
    r.end = b.CreateSelect(prefix->certain, prefix->below, extent);
  }
  r.outside = b.CreateICmpSLT(r.end, extent);
  return r;
}

/// Combines the lanes of each operand's vector down to one, halves against halves.
llvm::SmallVector<Value *, 2> Emitter::combineLanes(mlir::Region &combine, llvm::SmallVector<Value *, 2> values,
                                                    int64_t width) {
  const int64_t savedWidth = width_;
  const int level = currentLevel();
  while (width > 1) {
    const int64_t half = width / 2;
    llvm::SmallVector<Lanes, 4> args;
    for (int64_t from : {int64_t{0}, half})
      for (Value *v : values) {
        if (half == 1) {
          args.push_back(fromValue(b.CreateExtractElement(v, static_cast<uint64_t>(from)), level));
          continue;
        }
        llvm::SmallVector<int, 32> pick;
        for (int64_t l = 0; l < half; ++l) pick.push_back(static_cast<int>(from + l));
        args.push_back(fromValue(b.CreateShuffleVector(v, pick), level));
      }
    width_ = half;
    llvm::SmallVector<Lanes> results;
    if (!evalRegion(combine, args, results)) break;
    for (size_t i = 0; i < values.size(); ++i) values[i] = toVector(b, results[i], half);
    width = half;
  }
  width_ = savedWidth;
  return values;
}

llvm::SmallVector<Lanes> Emitter::combineReduced(const Reduced &r, llvm::ArrayRef<Value *> accumulated,
                                                 llvm::ArrayRef<Lanes> elements) {
  llvm::SmallVector<Lanes, 4> args;
  for (Value *a : accumulated) args.push_back(fromValue(a, currentLevel()));
  args.append(elements.begin(), elements.end());
  llvm::SmallVector<Lanes> out;
  if (!evalRegion(r.op->getRegion(0), args, out) && !failed()) fail(r.op, "this combine function");
  return out;
}

void Emitter::makeAccumulators(Reduced &r, int64_t width) {
  for (mlir::Value s : r.sources) {
    llvm::Type *t = typeOf(elementOf(s.getType()));
    r.accumulators.push_back(
        entryAlloca(width > 1 ? llvm::FixedVectorType::get(t, static_cast<unsigned>(width)) : t, "acc"));
  }
}

/// The first accumulator before any element; `reach`: of the mask, what lies outside of it counts once.
void Emitter::startAccumulator(const Reduced &r, const std::optional<Reach> &reach, int64_t width) {
  Value *from = reach ? b.CreateSelect(reach->outside, r.masked->outside, r.identity) : r.identity;
  b.CreateStore(width > 1 ? b.CreateVectorSplat(static_cast<unsigned>(width), from) : from, r.accumulators[0]);
}

/// The first lanes of an accumulator. Those of a narrow tail are part of a byte where lanes are bits, so bits are taken out of the whole.
static bool sharesBytes(const llvm::AllocaInst *accumulator, int64_t lanes) {
  auto *whole = llvm::dyn_cast<llvm::FixedVectorType>(accumulator->getAllocatedType());
  return whole && whole->getElementType()->isIntegerTy(1) && whole->getNumElements() > lanes && lanes % 8 != 0;
}

Value *Emitter::firstLanes(llvm::AllocaInst *accumulator) {
  llvm::Type *whole = accumulator->getAllocatedType(), *lane = whole->getScalarType();
  if (sharesBytes(accumulator, width_)) {
    llvm::SmallVector<int, 8> pick(static_cast<size_t>(width_));
    std::iota(pick.begin(), pick.end(), 0);
    return b.CreateShuffleVector(b.CreateLoad(whole, accumulator), pick);
  }
  return b.CreateLoad(width_ > 1 ? llvm::FixedVectorType::get(lane, static_cast<unsigned>(width_)) : lane, accumulator);
}

void Emitter::storeFirstLanes(Value *lanes, llvm::AllocaInst *accumulator) {
  if (sharesBytes(accumulator, width_)) {
    auto *whole = llvm::cast<llvm::FixedVectorType>(accumulator->getAllocatedType());
    const int all = static_cast<int>(whole->getNumElements()), mine = static_cast<int>(width_);
    llvm::SmallVector<int, 64> widen(static_cast<size_t>(all), -1), both(static_cast<size_t>(all));
    for (int l = 0; l < all; ++l) both[static_cast<size_t>(l)] = l < mine ? l : all + l;
    std::iota(widen.begin(), widen.begin() + mine, 0);
    lanes = b.CreateShuffleVector(b.CreateShuffleVector(lanes, widen), b.CreateLoad(whole, accumulator), both);
  }
  b.CreateStore(lanes, accumulator);
}

/// Elements at `index` go into the accumulators: the first ones as they are. A narrow tail goes into the first lanes.
void Emitter::accumulate(const Reduced &r, const Index &index, bool first, bool covers) {
  if (covers) cover(r.shape, &index);
  llvm::SmallVector<Lanes, 2> elements;
  for (mlir::Value s : r.sources) elements.push_back(eval(s, index));
  coverIndex_ = nullptr;
  if (!first) {
    llvm::SmallVector<Value *, 2> current;
    for (llvm::AllocaInst *a : r.accumulators) current.push_back(firstLanes(a));
    llvm::SmallVector<Lanes> out = combineReduced(r, current, elements);
    elements.assign(out.begin(), out.end());
  }
  for (size_t i = 0; i < r.accumulators.size() && i < elements.size(); ++i)
    storeFirstLanes(vec(elements[i]), r.accumulators[i]);
}

/// One row along the vector direction: several accumulators, combined at the end.
void Emitter::reduceRow(const Reduced &r, const Nest &nest, Index &outer, llvm::ArrayRef<mlir::Value> masks) {
  width_ = nest.width;
  Masks loopMasks{{masks.begin(), masks.end()}, r.masked.has_value(), 0, r.identity != nullptr};
  if (r.identity) {
    startAccumulator(r, r.masked ? reachOf(r.masked->mask, outer, r.axis) : std::nullopt, nest.width);
  } else {
    forLoop(0, 1, 1, [&](Value *) { accumulate(r, vectorIndex(nest, outer, b.getInt32(0)), true, !r.masked); });
    loopMasks.start = nest.width;
  }
  if (loopMasks.start < nest.extent)
    vectorLoop(nest, outer, loopMasks, [&](const Index &index) { accumulate(r, index, false, !r.masked); });
  finishRow(r, nest, outer);
}

void Emitter::finishRow(const Reduced &r, const Nest &nest, const Index &outer) {
  llvm::SmallVector<Value *, 2> last;
  for (llvm::AllocaInst *a : r.accumulators) last.push_back(b.CreateLoad(a->getAllocatedType(), a));
  last = combineLanes(r.op->getRegion(0), last, nest.width);
  width_ = 1;
  Index at = outer;
  at.erase(at.begin() + r.axis);
  for (size_t i = 0; i < last.size(); ++i) {
    if (r.scalarResult)
      b.CreateStore(last[i], r.cells[i]);
    else
      storeBuffer(*r.results[i], at, fromValue(last[i], currentLevel()));
  }
}

int Emitter::rowDim(const Reduced &r) {
  int dim = static_cast<int>(r.shape.size()) - 1;
  while (dim >= 0 && (dim == r.axis || r.shape[static_cast<size_t>(dim)] == 1)) --dim;
  return dim;
}

bool Emitter::isOneStream(const Reduced &r) {
  const int64_t bytes = r.shape[static_cast<size_t>(r.axis)] * bytesOf(elementOf(r.sources[0].getType()));
  const int dim = rowDim(r);
  return dim >= 0 && bytes <= kShortRow && rowsFollow(r.sources, r.shape, r.axis, dim);
}

int Emitter::streamedDim(const Reduced &r, llvm::ArrayRef<mlir::Value> masks) {
  const int dim = rowDim(r);
  if (dim < 0 || !r.identity || r.shape[static_cast<size_t>(dim)] % kStreams != 0 || isOneStream(r)) return -1;
  // A mask decides for all rows at one time how far they go.
  for (mlir::Value m : masks) {
    Conditions conditions;
    std::optional<Step> step = affine_.along(m, dim, conditions);
    const bool still = step && step->isZero() && conditions.empty();
    const bool same = still || shapeOf(m.getType())[static_cast<size_t>(dim)] == 1;
    if (!same) return -1;
  }
  for (mlir::Value s : r.sources)
    if (keepsBelow(s, r.shape)) return -1;
  return dim;
}

void Emitter::reduceRows(llvm::ArrayRef<Reduced> streams, const Nest &nest, Index &outer, int dim,
                         llvm::ArrayRef<mlir::Value> masks) {
  const Reduced &first = streams.front();
  const size_t d = static_cast<size_t>(dim);
  width_ = nest.width;
  llvm::SmallVector<Lanes, 8> rows;
  for (size_t g = 0; g < streams.size(); ++g)
    rows.push_back(g ? intOp(IntOp::Add, outer[d], uniformInt(static_cast<int64_t>(g))) : outer[d]);
  const std::optional<Reach> reach = first.masked ? reachOf(first.masked->mask, outer, first.axis) : std::nullopt;
  for (const Reduced &r : streams) startAccumulator(r, reach, nest.width);
  vectorLoop(nest, outer, {masks, first.masked.has_value(), 0, true}, [&](const Index &index) {
    for (size_t g = 0; g < streams.size(); ++g) {
      Index at = index;
      at[d] = rows[g];
      // What is known of the first row is known of all.
      for (mlir::Value m : masks)
        if (auto known = frames_.back().memo.find(keyOf(m, indexIn(m, index))); known != frames_.back().memo.end()) {
          const Lanes yes = known->second;
          frames_.back().memo[keyOf(m, indexIn(m, at))] = yes;
        }
      accumulate(streams[g], at, false, !first.masked);
    }
  });
  for (size_t g = 0; g < streams.size(); ++g) {
    Index at = outer;
    at[d] = rows[g];
    finishRow(streams[g], nest, at);
  }
}

/// The axis is the vector direction: one vector loop for each outer index, or for several at one time, so these are walked
/// by loops of their own.
void Emitter::reduceAlong(Reduced &r) {
  Nest nest;
  nest.shape = r.shape;
  nest.vectorDim = r.axis;
  nest.extent = r.shape[r.axis];
  nest.width = widthFor(r.sources, nest.extent, 4);
  while (nest.extent % nest.width) nest.width /= 2;
  r.masked = maskedReduction(r.op, false);
  // Of few vectors as many are taken as there are elements for, and lanes of one register are left to combine.
  if (r.masked && takesFewVectors(nest.extent)) nest.width = std::min<int64_t>(nest.width, caps_.f32Lanes);
  auto masksOf = [&] {
    llvm::SmallVector<mlir::Value, 4> masks = masksBelow(r.sources, r.shape);
    if (r.masked) {
      llvm::erase(masks, r.masked->mask);
      masks.insert(masks.begin(), r.masked->mask);
    }
    return masks;
  };
  const int streamed = streamedDim(r, masksOf());
  if (streamed >= 0) {
    // Half of the registers hold sums.
    const int64_t element = bytesOf(elementOf(r.sources[0].getType()));
    const int64_t registers = std::max<int64_t>(caps_.vectorRegisters / (2 * kStreams), 1);
    nest.width = std::min(nest.width, registers * caps_.f32Lanes * 4 / std::max<int64_t>(element, 4));
  }
  llvm::SmallVector<Reduced, 0> streams(streamed >= 0 ? kStreams : 1, r);
  const llvm::SaveAndRestore<int64_t> ahead(ahead_, isOneStream(r) ? kAhead : 0);
  for (Reduced &each : streams) makeAccumulators(each, nest.width);
  sink([&] {
    const llvm::SmallVector<mlir::Value, 4> masks = masksOf();
    Index outer(r.shape.size(), uniformInt(0));
    auto rowsFrom = [&](auto &self, size_t d) -> void {
      while (d < r.shape.size() && (static_cast<int>(d) == r.axis || r.shape[d] == 1)) ++d;
      if (d == r.shape.size())
        return streamed >= 0 ? reduceRows(streams, nest, outer, streamed, masks)
                             : reduceRow(streams.front(), nest, outer, masks);
      forLoop(0, r.shape[d], static_cast<int>(d) == streamed ? kStreams : 1, [&](Value *iv) {
        outer[d] = fromValue(iv, currentLevel());
        self(self, d + 1);
      });
    };
    rowsFrom(rowsFrom, 0);
  });
}

/// The accumulators of all streams go into the first's.
void Emitter::mergeStreams(llvm::ArrayRef<Reduced> streams) {
  const Reduced &first = streams.front();
  for (const Reduced &r : streams.drop_front()) {
    llvm::SmallVector<Value *, 2> mine;
    llvm::SmallVector<Lanes, 2> others;
    for (llvm::AllocaInst *a : first.accumulators) mine.push_back(firstLanes(a));
    for (llvm::AllocaInst *a : r.accumulators) others.push_back(fromValue(firstLanes(a), currentLevel()));
    llvm::SmallVector<Lanes> out = combineReduced(first, mine, others);
    for (size_t i = 0; i < out.size(); ++i) storeFirstLanes(vec(out[i]), first.accumulators[i]);
  }
}

/// The elements of one vector of results, for the positions that the mask may let through: as many at one time as there are streams,
/// since one waits for the one before it.
void Emitter::accumulateReached(llvm::ArrayRef<Reduced> streams, const Index &at, const Reach &reach) {
  const Reduced &r = streams.front();
  const int64_t together = static_cast<int64_t>(streams.size());
  auto rows = [&](Value *lo, Value *hi, int64_t step, bool known) {
    forLoop(lo, hi, step, [&](Value *iv) {
      for (int64_t g = 0; g < step; ++g) {
        Lanes position = fromValue(iv, currentLevel());
        if (g) position = intOp(IntOp::Add, position, uniformInt(g));
        if (known) {
          Index row(r.shape.size(), uniformInt(0));
          row[static_cast<size_t>(r.axis)] = position;
          Lanes yes;
          yes.base = b.getTrue(), yes.level = static_cast<uint8_t>(currentLevel());
          frames_.back().memo[keyOf(r.masked->mask, row)] = yes;
        }
        Index index = at;
        index.insert(index.begin() + r.axis, position);
        accumulate(streams[static_cast<size_t>(g)], index, false, false);
      }
    });
  };
  startAccumulator(r, reach, width_);
  Value *begin = b.getInt32(0);
  if (together > 1) {
    // To bring few rows together takes as long as they do.
    auto number = [&](int64_t n) { return b.getInt32(static_cast<uint32_t>(n)); };
    Value *many = b.CreateICmpSGE(reach.sure, number(kRowsTogether * together));
    Value *all = b.CreateSelect(many, b.CreateAnd(reach.sure, number(-together)), begin);
    ifThen(many, [&] {
      for (const Reduced &other : streams.drop_front()) startAccumulator(other, std::nullopt, width_);
      rows(begin, all, together, true);
      mergeStreams(streams);
    });
    begin = all;
  }
  rows(begin, reach.sure, 1, true);
  rows(reach.sure, reach.end, 1, false);
}

/// Results in vectors, a loop over the axis inside.
void Emitter::reduceAcross(Reduced &r, int vectorDim) {
  Shape outShape = r.shape;
  outShape.erase(outShape.begin() + r.axis);
  Nest nest = planNest(outShape, {}, widthFor(r.sources, 64, 4));
  if (vectorDim != r.axis && r.shape[vectorDim] >= caps_.f32Lanes) {
    nest.vectorDim = vectorDim > r.axis ? vectorDim - 1 : vectorDim;
    nest.flatFrom = -1;
    nest.extent = r.shape[vectorDim];
    nest.width = widthFor(r.sources, nest.extent, 4);
    while (nest.extent % nest.width) nest.width /= 2;
  }
  const int64_t count = r.shape[r.axis];
  if (count > 4) r.masked = maskedReduction(r.op, true);
  // Of what is cheap; half of the registers hold sums.
  const bool severalRows = r.masked && nest.width > caps_.f32Lanes;
  const int64_t vectors = std::max<int64_t>(nest.width / caps_.f32Lanes, 1);
  llvm::SmallVector<Reduced, 0> streams(
      severalRows ? static_cast<size_t>(std::clamp<int64_t>(caps_.vectorRegisters / 2 / vectors, 1, kRowsTogether)) : 1, r);
  for (Reduced &each : streams) makeAccumulators(each, nest.width);
  r = streams.front();
  const bool ofColumns = r.masked && r.masked->columns && nest.vectorDim == 0 && nest.width >= caps_.f32Lanes;
  sink([&] {
    const Index first(r.shape.size(), uniformInt(0));
    const std::optional<Reach> reach = r.masked ? reachOf(r.masked->mask, first, r.axis) : std::nullopt;
    const std::optional<Reach> across =
        reach && ofColumns ? reachOf(r.masked->columns, first, 1 - r.axis) : std::nullopt;
    if (across) return reduceColumns(streams, nest, *reach, *across);
    runNest(nest, {}, [&](const Index &at) {
      auto step = [&](const Lanes &position, bool first) {
        Index index = at;
        index.insert(index.begin() + r.axis, position);
        accumulate(r, index, first, true);
      };
      if (reach) {
        accumulateReached(streams, at, *reach);
      } else if (count <= 4) {
        for (int64_t k = 0; k < count; ++k) step(uniformInt(k), k == 0);
      } else {
        forLoop(0, 1, 1, [&](Value *iv) { step(fromValue(iv, currentLevel()), true); });
        forLoop(1, count, 1, [&](Value *iv) { step(fromValue(iv, currentLevel()), false); });
      }
      for (size_t i = 0; i < r.results.size(); ++i) {
        Value *v = b.CreateLoad(r.accumulators[i]->getAllocatedType(), r.accumulators[i]);
        storeBuffer(*r.results[i], at, fromValue(v, currentLevel()));
      }
    });
  });
}

/// Columns of which the mask leaves out all elements are not walked.
void Emitter::reduceColumns(llvm::ArrayRef<Reduced> streams, const Nest &nest, const Reach &reach, const Reach &across) {
  const Reduced &r = streams.front();
  auto walk = [&](Value *lo, Value *hi, int64_t width, bool known) {
    width_ = width;
    Nest part = nest;
    part.width = width;
    forLoop(lo, hi, width, [&](Value *iv) {
      Index at(1, uniformInt(0));
      at = vectorIndex(part, at, iv);
      if (known) {
        Index column(2, uniformInt(0));
        column[static_cast<size_t>(1 - r.axis)] = at[0];
        Lanes yes;
        yes.base = b.getTrue(), yes.level = static_cast<uint8_t>(currentLevel());
        frames_.back().memo[keyOf(r.masked->columns, column)] = yes;
      }
      accumulateReached(streams, at, reach);
      storeBuffer(*r.results[0], at, fromValue(firstLanes(r.accumulators[0]), currentLevel()));
    });
  };
  const int64_t narrow = caps_.f32Lanes;
  auto number = [&](int64_t n) { return b.getInt32(static_cast<uint32_t>(n)); };
  Value *full = b.CreateAnd(across.sure, number(-nest.width));
  Value *end = b.CreateAnd(b.CreateAdd(across.end, number(narrow - 1)), number(-narrow));
  const int64_t savedWidth = width_;
  walk(number(0), full, nest.width, true);
  walk(full, end, narrow, false);
  width_ = narrow;
  Nest rest = nest;
  rest.width = narrow;
  forLoop(end, number(nest.extent), narrow, [&](Value *iv) {
    Lanes outside;
    outside.base = r.masked->outside;
    storeBuffer(*r.results[0], vectorIndex(rest, Index(1, uniformInt(0)), iv), outside);
  });
  width_ = savedWidth;
}

void Emitter::emitReduce(mlir::Operation *op) {
  if (mlir::Operation *scan = Uses::scanOfTotal(op)) {
    llvm::AllocaInst *last = scanned_.at(scan);
    scalars_[op->getResult(0)] = fromValue(b.CreateLoad(last->getAllocatedType(), last), 0);
    return;
  }
  Reduced r;
  r.op = op;
  r.axis = static_cast<int>(op->getAttrOfType<mlir::IntegerAttr>("axis").getInt());
  r.sources.assign(op->operand_begin(), op->operand_end());
  r.shape = shapeOf(r.sources[0].getType());
  r.scalarResult = !isTensor(op->getResult(0).getType());
  r.identity = reduceIdentity(op);
  Shape outShape = r.shape;
  outShape.erase(outShape.begin() + r.axis);
  for (mlir::Value result : op->getResults()) {
    mlir::Type element = elementOf(result.getType());
    if (r.scalarResult)
      r.cells.push_back(entryAlloca(typeOf(element), "reduced"));
    else
      r.results.push_back(&newBuffer(element, outShape));
  }
  const int vectorDim = unitDim(r.shape, r.sources);
  if (r.scalarResult || (vectorDim == r.axis && r.shape[r.axis] >= caps_.f32Lanes))
    reduceAlong(r);
  else
    reduceAcross(r, vectorDim);
  commitKept();
  for (unsigned i = 0; i < op->getNumResults(); ++i) {
    mlir::Value result = op->getResult(i);
    if (r.scalarResult)
      scalars_[result] = fromValue(b.CreateLoad(r.cells[i]->getAllocatedType(), r.cells[i]), 0);
    else
      bind(result, *r.results[i]);
  }
}

llvm::SmallVector<Lanes> Emitter::combineScanned(const Scan &scan, llvm::ArrayRef<Lanes> earlier, llvm::ArrayRef<Lanes> later) {
  llvm::SmallVector<Lanes, 4> args(earlier.begin(), earlier.end());
  args.append(later.begin(), later.end());
  llvm::SmallVector<Lanes> out;
  if (evalRegion(scan.op->getRegion(0), args, out)) return out;
  if (!failed()) fail(scan.op, "this combine function");
  return llvm::SmallVector<Lanes>(later.begin(), later.end());
}

/// The running values, in as many lanes as the next elements have.
llvm::SmallVector<Lanes, 2> Emitter::carriedOf(const Scan &scan, int64_t width, int level) {
  llvm::SmallVector<Lanes, 2> out;
  for (llvm::AllocaInst *carry : scan.carries) {
    Value *v = b.CreateLoad(carry->getAllocatedType(), carry);
    const bool one = width > 1 && !v->getType()->isVectorTy();
    out.push_back(fromValue(one ? b.CreateVectorSplat(static_cast<unsigned>(width), v) : v, level));
  }
  return out;
}

/// Each lane becomes the combination of all up to it: doubling steps (Hillis and Steele 1986).
void Emitter::scanLanes(const Scan &scan, llvm::SmallVectorImpl<Value *> &values, int64_t width, int level) {
  for (int64_t s = 1; s < width; s *= 2) {
    llvm::SmallVector<int, 16> pattern;
    llvm::SmallVector<llvm::Constant *, 16> reached;
    for (int64_t l = 0; l < width; ++l) {
      pattern.push_back(static_cast<int>(l >= s ? l - s : l));
      reached.push_back(b.getInt1(l >= s));
    }
    llvm::SmallVector<Lanes, 2> earlier, later;
    for (Value *v : values) {
      earlier.push_back(fromValue(b.CreateShuffleVector(v, pattern), level));
      later.push_back(fromValue(v, level));
    }
    llvm::SmallVector<Lanes> out = combineScanned(scan, earlier, later);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = b.CreateSelect(llvm::ConstantVector::get(reached), vec(out[i]), values[i]);
  }
}

Value *Emitter::reversedLanes(Value *v, int64_t width) {
  if (width == 1) return v;
  llvm::SmallVector<int, 16> pattern;
  for (int64_t l = width - 1; l >= 0; --l) pattern.push_back(static_cast<int>(l));
  return b.CreateShuffleVector(v, pattern);
}

/// One vector of a row, `from` elements after the row's beginning, or before its end.
void Emitter::scanVector(const Scan &scan, const Nest &nest, const Index &outer, Value *from, bool first) {
  const int64_t width = nest.width;
  Value *start =
      scan.reverse ? b.CreateSub(b.getInt32(static_cast<uint32_t>(nest.extent - width)), from) : from;
  Index index = vectorIndex(nest, outer, start);
  auto flip = [&](Value *v) { return scan.reverse ? reversedLanes(v, width) : v; };
  llvm::SmallVector<Value *, 2> values;
  for (mlir::Value s : scan.sources) values.push_back(flip(vec(eval(s, index))));
  const int level = currentLevel();
  scanLanes(scan, values, width, level);
  if (!first) {
    llvm::SmallVector<Lanes, 2> later;
    for (Value *v : values) later.push_back(fromValue(v, level));
    llvm::SmallVector<Lanes> out = combineScanned(scan, carriedOf(scan, width, level), later);
    for (size_t i = 0; i < values.size(); ++i) values[i] = vec(out[i]);
  }
  for (size_t i = 0; i < values.size(); ++i) {
    b.CreateStore(width > 1 ? b.CreateExtractElement(values[i], static_cast<uint64_t>(width - 1)) : values[i],
                  scan.carries[i]);
    storeBuffer(*scan.results[i], index, fromValue(flip(values[i]), level));
  }
}

/// A row up to where the mask ends; behind that, where elements are `outside`, nothing changes any more.
void Emitter::scanReached(const Scan &scan, const Nest &nest, const Index &outer, const Reach &reach,
                          llvm::Constant *outside) {
  auto number = [&](int64_t n) { return b.getInt32(static_cast<uint32_t>(n)); };
  auto still = [&] {
    const Lanes last = fromValue(b.CreateLoad(scan.carries[0]->getAllocatedType(), scan.carries[0]), currentLevel());
    width_ = 1;
    const Lanes combined = combineScanned(scan, {last}, {fromValue(outside, currentLevel())})[0];
    width_ = nest.width;
    return combined;
  };
  if (takesFewVectors(nest.extent) && sameForPrograms(reach.end)) {
    scanVector(scan, nest, outer, number(0), true);
    for (int64_t at = nest.width; at < nest.extent; at += nest.width) {
      Value *more = b.CreateICmpSGT(reach.end, number(at));
      ifThen(more, [&] { scanVector(scan, nest, outer, number(at), false); });
      ifThen(b.CreateNot(more), [&] { storeBuffer(*scan.results[0], vectorIndex(nest, outer, number(at)), still()); });
    }
    return;
  }
  Value *end = b.CreateAnd(b.CreateAdd(reach.end, number(nest.width - 1)), number(-nest.width));
  b.CreateStore(outside, scan.carries[0]);
  Value *begun = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, end, number(nest.width));
  forLoop(number(0), begun, nest.width, [&](Value *iv) { scanVector(scan, nest, outer, iv, true); });
  forLoop(number(nest.width), end, nest.width, [&](Value *iv) { scanVector(scan, nest, outer, iv, false); });
  const Lanes last = still();
  forLoop(end, number(nest.extent), nest.width,
          [&](Value *iv) { storeBuffer(*scan.results[0], vectorIndex(nest, outer, iv), last); });
}

/// Rows one after another; from vector to vector the last lane is carried.
void Emitter::scanAlong(Scan &scan) {
  Nest nest;
  nest.shape = scan.shape;
  nest.vectorDim = scan.axis;
  nest.extent = scan.shape[scan.axis];
  nest.width = caps_.f32Lanes;
  while (nest.extent % nest.width || nest.width > nest.extent) nest.width /= 2;
  for (mlir::Value s : scan.sources) scan.carries.push_back(entryAlloca(typeOf(elementOf(s.getType())), "carry"));
  const std::optional<MaskedReduction> masked =
      scan.reverse || scan.sources.size() != 1 || nest.width == 1 ? std::nullopt : maskedReduction(scan.op, false);
  sink([&] {
    Index outer(scan.shape.size(), uniformInt(0));
    auto row = [&] {
      width_ = nest.width;
      if (std::optional<Reach> reach = masked ? reachOf(masked->mask, outer, scan.axis) : std::nullopt)
        return scanReached(scan, nest, outer, *reach, masked->outside);
      forLoop(0, 1, 1, [&](Value *iv) { scanVector(scan, nest, outer, iv, true); });
      forLoop(nest.width, nest.extent, nest.width, [&](Value *iv) { scanVector(scan, nest, outer, iv, false); });
    };
    auto rowsFrom = [&](auto &self, size_t d) -> void {
      while (d < scan.shape.size() && (static_cast<int>(d) == scan.axis || scan.shape[d] == 1)) ++d;
      if (d == scan.shape.size()) return row();
      forLoop(0, scan.shape[d], 1, [&](Value *iv) {
        outer[d] = fromValue(iv, currentLevel());
        self(self, d + 1);
      });
    };
    rowsFrom(rowsFrom, 0);
  });
}

/// Along an outer dimension: vectors across, the running values in registers.
void Emitter::scanAcross(Scan &scan) {
  Shape across = scan.shape;
  across.erase(across.begin() + scan.axis);
  const Nest nest = planNest(across, {}, widthFor(scan.sources, 64, 2));
  const int64_t extent = scan.shape[scan.axis];
  for (mlir::Value s : scan.sources) {
    llvm::Type *t = typeOf(elementOf(s.getType()));
    scan.carries.push_back(
        entryAlloca(nest.width > 1 ? llvm::FixedVectorType::get(t, static_cast<unsigned>(nest.width)) : t, "carry"));
  }
  sink([&] {
    runNest(nest, {}, [&](const Index &at) {
      auto step = [&](Value *iv, bool first) {
        Value *position = scan.reverse ? b.CreateSub(b.getInt32(static_cast<uint32_t>(extent - 1)), iv) : iv;
        Index index = at;
        index.insert(index.begin() + scan.axis, fromValue(position, currentLevel()));
        llvm::SmallVector<Lanes, 2> values;
        for (mlir::Value s : scan.sources) values.push_back(eval(s, index));
        if (!first) {
          llvm::SmallVector<Lanes> out = combineScanned(scan, carriedOf(scan, nest.width, currentLevel()), values);
          values.assign(out.begin(), out.end());
        }
        for (size_t i = 0; i < values.size(); ++i) {
          b.CreateStore(vec(values[i]), scan.carries[i]);
          storeBuffer(*scan.results[i], index, values[i]);
        }
      };
      forLoop(0, 1, 1, [&](Value *iv) { step(iv, true); });
      forLoop(1, extent, 1, [&](Value *iv) { step(iv, false); });
    });
  });
}

void Emitter::emitScan(mlir::Operation *op) {
  Scan scan;
  scan.op = op;
  scan.axis = static_cast<int>(op->getAttrOfType<mlir::IntegerAttr>("axis").getInt());
  auto reverse = op->getAttrOfType<mlir::BoolAttr>("reverse");
  scan.reverse = reverse && reverse.getValue();
  scan.sources.assign(op->operand_begin(), op->operand_end());
  scan.shape = shapeOf(scan.sources[0].getType());
  for (mlir::Value r : op->getResults()) scan.results.push_back(&newBuffer(elementOf(r.getType()), scan.shape));
  if (scan.axis == static_cast<int>(scan.shape.size()) - 1)
    scanAlong(scan);
  else
    scanAcross(scan);
  // Of a single row.
  if (scan.shape.size() == 1) scanned_[op] = scan.carries[0];
  for (unsigned i = 0; i < op->getNumResults(); ++i) bind(op->getResult(i), *scan.results[i]);
}

} // namespace neso::cpu
