// Ops that every backend gets in terms of others: products of block-scaled operands, maps over packs, waits for a
// value.
#include <optional>

#include "ir/tile/build.h"
#include "base/rules.h"
#include "ir/tile/passes/passes.h"
#include "mlir/IR/PatternMatch.h"

using namespace mlir;

namespace neso {
namespace {

/// Short forms of what the rewrites build, all at one place and time.
struct Maker {
  PatternRewriter &b;
  Location loc;

  static RankedTensorType withShape(Value v, ArrayRef<int64_t> shape) {
    return RankedTensorType::get(shape, getElementTypeOrSelf(v.getType()));
  }
  static RankedTensorType withElement(Value v, Type element) {
    return RankedTensorType::get(cast<RankedTensorType>(v.getType()).getShape(), element);
  }
  static SmallVector<int64_t> shapeOf(Value v) {
    return SmallVector<int64_t>(cast<RankedTensorType>(v.getType()).getShape());
  }

  Value constant(Value like, Type element, int64_t bits) {
    RankedTensorType type = withElement(like, element);
    return arith::ConstantOp::create(b, loc, type, DenseElementsAttr::get(type, b.getIntegerAttr(element, bits)));
  }
  Value reshape(Value v, ArrayRef<int64_t> shape) {
    return tt::ReshapeOp::create(b, loc, withShape(v, shape), v, /*allowReorder=*/false);
  }
  Value join(Value x, Value y) { return tt::JoinOp::create(b, loc, x, y); }
  /// Swaps the dimensions `first` and `first + 1`.
  Value swapDims(Value v, int64_t first) {
    SmallVector<int64_t> shape = shapeOf(v);
    SmallVector<int32_t> order(llvm::to_vector(llvm::seq<int32_t>(0, static_cast<int32_t>(shape.size()))));
    std::swap(order[static_cast<size_t>(first)], order[static_cast<size_t>(first) + 1]);
    std::swap(shape[static_cast<size_t>(first)], shape[static_cast<size_t>(first) + 1]);
    return tt::TransOp::create(b, loc, withShape(v, shape), v, order);
  }
};

// ---- tt.dot_scaled ----

/// One operand of a scaled product: [.., outer, K] of a left one, [.., K, outer] of a right one, each element times
/// 2^(scale - 127) of its block of K elements.
class ScaledOperand {
public:
  ScaledOperand(Maker maker, Value data, Value scale, tt::ScaleDotElemType kind, bool packAlongK, bool isLhs,
                bool fastMath)
      : m_(maker), data_(data), scale_(scale), kind_(kind), packAlongK_(packAlongK), isLhs_(isLhs),
        fastMath_(fastMath) {}

  /// Whether bf16 holds every element times its scale: 8 bits of fp16's 11 are too few, but 2^k costs none.
  bool fitsBf16() const {
    bool scaleIsPower = !scale_ || getElementTypeOrSelf(scale_.getType()).isInteger(8);
    return kind_ != tt::ScaleDotElemType::FP16 && (scaleIsPower || kind_ != tt::ScaleDotElemType::BF16);
  }

  Value build(Type compute) {
    bool real = isa<FloatType>(getElementTypeOrSelf(data_.getType()));
    Value v = kind_ == tt::ScaleDotElemType::E2M1 ? unpack()
              : real ? data_
                     : Value(tt::BitcastOp::create(m_.b, m_.loc, Maker::withElement(data_, byteType()), data_));
    if (!scale_ && getElementTypeOrSelf(v.getType()) == compute) return v;
    v = toF32(v);
    if (scale_) v = arith::MulFOp::create(m_.b, m_.loc, v, spread(scaleAsF32(), Maker::shapeOf(v)));
    if (compute.isF32()) return v;
    return arith::TruncFOp::create(m_.b, m_.loc, Maker::withElement(v, compute), v);
  }

private:
  Maker m_;
  Value data_, scale_;
  tt::ScaleDotElemType kind_;
  bool packAlongK_, isLhs_, fastMath_;

  Type byteType() const {
    return kind_ == tt::ScaleDotElemType::E5M2 ? Type(Float8E5M2Type::get(m_.b.getContext()))
                                               : Type(Float8E4M3FNType::get(m_.b.getContext()));
  }

  Value toF32(Value v) {
    Type element = getElementTypeOrSelf(v.getType());
    if (element.isF32()) return v;
    RankedTensorType type = Maker::withElement(v, m_.b.getF32Type());
    if (element.getIntOrFloatBitWidth() == 8)
      return tt::FpToFpOp::create(m_.b, m_.loc, type, v, tt::RoundingModeAttr());
    return arith::ExtFOp::create(m_.b, m_.loc, type, v);
  }

  /// Two 4-bit floats a byte, the first in the low half, along K or along the other dimension → f32.
  Value unpack() {
    SmallVector<int64_t> shape = Maker::shapeOf(data_);
    int64_t rank = static_cast<int64_t>(shape.size()), dim = packAlongK_ == isLhs_ ? rank - 1 : rank - 2;
    Type i32 = m_.b.getI32Type();
    Value bytes = arith::ExtUIOp::create(m_.b, m_.loc, Maker::withElement(data_, i32), data_);
    Value low = arith::AndIOp::create(m_.b, m_.loc, bytes, m_.constant(bytes, i32, 15)),
          high = arith::ShRUIOp::create(m_.b, m_.loc, bytes, m_.constant(bytes, i32, 4));
    Value both = m_.join(decode(low), decode(high));
    if (dim != rank - 1) both = m_.swapDims(both, rank - 1);
    shape[static_cast<size_t>(dim)] *= 2;
    return m_.reshape(both, shape);
  }

  /// seem: from 1 on the bits are those of an f32, shifted, with another bias; 0 and 0.5 are 0 and 1 times the bits of
  /// 0.5.
  Value decode(Value nibble) {
    Type i32 = m_.b.getI32Type();
    auto number = [&](int64_t v) { return m_.constant(nibble, i32, v); };
    Value magnitude = arith::AndIOp::create(m_.b, m_.loc, nibble, number(7));
    Value sign =
        arith::ShLIOp::create(m_.b, m_.loc, arith::AndIOp::create(m_.b, m_.loc, nibble, number(8)), number(28));
    Value large = arith::AddIOp::create(m_.b, m_.loc, arith::ShLIOp::create(m_.b, m_.loc, magnitude, number(22)),
                                        number(126 << 23));
    Value small = arith::MulIOp::create(m_.b, m_.loc, magnitude, number(126 << 23));
    Value isSmall = arith::CmpIOp::create(m_.b, m_.loc, arith::CmpIPredicate::ult, magnitude, number(2));
    Value bits = arith::OrIOp::create(m_.b, m_.loc, arith::SelectOp::create(m_.b, m_.loc, isSmall, small, large), sign);
    return tt::BitcastOp::create(m_.b, m_.loc, Maker::withElement(bits, m_.b.getF32Type()), bits);
  }

  /// A byte is the exponent of an f32; 0 stands for 2^-127, which has none, and 255 for NaN.
  Value scaleAsF32() {
    if (!getElementTypeOrSelf(scale_.getType()).isInteger(8)) return toF32(scale_);
    Type i32 = m_.b.getI32Type();
    Value byte = arith::ExtUIOp::create(m_.b, m_.loc, Maker::withElement(scale_, i32), scale_);
    Value bits = arith::ShLIOp::create(m_.b, m_.loc, byte, m_.constant(byte, i32, 23));
    bits = arith::MaxSIOp::create(m_.b, m_.loc, bits, m_.constant(byte, i32, 1 << 22));
    if (!fastMath_) {
      Value isNan = arith::CmpIOp::create(m_.b, m_.loc, arith::CmpIPredicate::eq, byte, m_.constant(byte, i32, 255));
      bits = arith::SelectOp::create(m_.b, m_.loc, isNan, m_.constant(byte, i32, 0x7fc00000), bits);
    }
    return tt::BitcastOp::create(m_.b, m_.loc, Maker::withElement(bits, m_.b.getF32Type()), bits);
  }

  /// [.., outer, K / block] → `shape`.
  Value spread(Value scale, ArrayRef<int64_t> shape) {
    SmallVector<int64_t> blocks = Maker::shapeOf(scale), full(blocks);
    size_t rank = shape.size();
    int64_t k = isLhs_ ? shape[rank - 1] : shape[rank - 2];
    Value v = tt::ExpandDimsOp::create(m_.b, m_.loc, scale, static_cast<int32_t>(rank));
    blocks.push_back(k / blocks.back());
    v = tt::BroadcastOp::create(m_.b, m_.loc, Maker::withShape(v, blocks), v);
    full.back() = k;
    v = m_.reshape(v, full);
    return isLhs_ ? v : m_.swapDims(v, static_cast<int64_t>(rank) - 2);
  }
};

/// Elements times scales in bf16 where that loses nothing, else in f32 whose products keep fp16's bits (tf32 has as
/// many), then a dot.
struct DecomposeDotScaled : OpRewritePattern<tt::DotScaledOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(tt::DotScaledOp op, PatternRewriter &b) const override {
    applied(Rule::DecomposeDotScaled);
    Maker maker{b, op.getLoc()};
    ScaledOperand x(maker, op.getA(), op.getAScale(), op.getAElemType(), op.getLhsKPack(), true, op.getFastMath());
    ScaledOperand y(maker, op.getB(), op.getBScale(), op.getBElemType(), op.getRhsKPack(), false, op.getFastMath());
    bool narrow = x.fitsBf16() && y.fitsBf16();
    Type compute = narrow ? Type(b.getBF16Type()) : b.getF32Type();
    tt::InputPrecision precision = narrow ? tt::InputPrecision::IEEE : tt::InputPrecision::TF32;
    b.replaceOpWithNewOp<tt::DotOp>(op, op.getC().getType(), x.build(compute), y.build(compute), op.getC(), precision,
                                    0);
    return success();
  }
};

// ---- tt.atomic_poll ----

/// Reads until every element is as expected; the loop is marked tt.waits, for the interpreter. With a limit of time it
/// stays: there is no clock.
struct DecomposeAtomicPoll : OpRewritePattern<tt::AtomicPollOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(tt::AtomicPollOp op, PatternRewriter &b) const override {
    Location loc = op.getLoc();
    Type type = op.getExpected().getType();
    if (op.getTimeout() || !isa<IntegerType>(getElementTypeOrSelf(type))) return failure();
    applied(Rule::DecomposeAtomicPoll);
    auto read = [&](OpBuilder &, Location, ValueRange) {
      tt::MemSemantic sem =
          op.getSem() == tt::MemSemantic::RELAXED ? tt::MemSemantic::RELAXED : tt::MemSemantic::ACQUIRE;
      Value now = tt::AtomicLoadOp::create(b, loc, type, op.getPtr(), Value(), sem, op.getScope());
      Value differs = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, now, op.getExpected());
      if (RankedTensorType tile = dyn_cast<RankedTensorType>(type)) {
        differs = tt::ReshapeOp::create(b, loc, RankedTensorType::get({tile.getNumElements()}, b.getI1Type()), differs,
                                        false);
        differs = tile::reduce(b, loc, {differs}, 0, [&](ValueRange v) {
                    return SmallVector<Value>{arith::OrIOp::create(b, loc, v[0], v[1])};
                  }).front();
      }
      scf::ConditionOp::create(b, loc, differs, ValueRange());
    };
    auto again = [&](OpBuilder &, Location, ValueRange) { scf::YieldOp::create(b, loc); };
    scf::WhileOp loop = scf::WhileOp::create(b, loc, TypeRange(), ValueRange(), read, again);
    loop->setAttr("tt.waits", b.getUnitAttr());
    b.replaceOpWithNewOp<arith::ConstantOp>(op, b.getBoolAttr(true));
    return success();
  }
};

// ---- tt.map_elementwise over packs ----

/// A pack is neighbours of the row-major order. Each place of it becomes a tensor of its own, and the region maps one
/// element of each.
struct DecomposePackedMap : OpRewritePattern<tt::MapElementwiseOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(tt::MapElementwiseOp op, PatternRewriter &b) const override {
    int64_t pack = op.getPack();
    if (pack == 1) return failure();
    Maker maker{b, op.getLoc()};
    SmallVector<int64_t> shape = Maker::shapeOf(op.getSrcs().front()), outer = shape;
    if (outer.back() % pack != 0) outer = {cast<RankedTensorType>(op.getSrcs().front().getType()).getNumElements()};
    if (outer.back() % pack != 0 || (pack & (pack - 1)) != 0) return failure();
    applied(Rule::DecomposePackedMap);
    outer.back() /= pack;
    SmallVector<Value> places;
    for (Value src : op.getSrcs()) {
      SmallVector<int64_t> split = outer;
      for (int64_t p = pack; p > 1; p /= 2) split.push_back(2);
      SmallVector<Value> parts = {maker.reshape(src, split)};
      // The lowest bit of a place is split off first, so that parts stand in the order of places.
      for (int64_t p = pack; p > 1; p /= 2) {
        SmallVector<Value> halves(parts.size() * 2);
        for (size_t i = 0; i < parts.size(); ++i) {
          tt::SplitOp two = tt::SplitOp::create(b, op.getLoc(), parts[i]);
          halves[i] = two.getOutLHS(), halves[i + parts.size()] = two.getOutRHS();
        }
        parts = std::move(halves);
      }
      places.append(parts);
    }
    SmallVector<Type> types;
    for (Type t : op.getResultTypes())
      for (int64_t p = 0; p < pack; ++p) types.push_back(RankedTensorType::get(outer, getElementTypeOrSelf(t)));
    tt::MapElementwiseOp mapped = tt::MapElementwiseOp::create(b, op.getLoc(), types, places, 1);
    b.inlineRegionBefore(op.getScalarOp(), mapped.getScalarOp(), mapped.getScalarOp().begin());
    SmallVector<Value> results;
    for (size_t r = 0; r < op.getNumResults(); ++r) {
      SmallVector<Value> parts(mapped.getResults().slice(r * static_cast<size_t>(pack), static_cast<size_t>(pack)));
      while (parts.size() > 1) {
        size_t half = parts.size() / 2;
        SmallVector<Value> joined(half);
        for (size_t i = 0; i < half; ++i) joined[i] = maker.join(parts[i], parts[i + half]);
        parts = std::move(joined);
      }
      results.push_back(maker.reshape(parts.front(), shape));
    }
    b.replaceOp(op, results);
    return success();
  }
};

} // namespace

void populateDecomposePatterns(RewritePatternSet &patterns) {
  patterns.add<DecomposeAtomicPoll, DecomposeDotScaled, DecomposePackedMap>(patterns.getContext());
}

} // namespace neso
