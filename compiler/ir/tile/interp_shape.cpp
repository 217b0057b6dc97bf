// The interpreter on shapes, products, reductions and scans.
#include <cmath>

#include "base/diagnostics/tile.h"
#include "ir/tile/interp_impl.h"
#include "ir/tile/softfloat.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace neso::tile {
namespace {

/// Row-major strides of `shape`.
SmallVector<int64_t> stridesOf(ArrayRef<int64_t> shape) {
  SmallVector<int64_t> strides(shape.size(), 1);
  for (int64_t i = static_cast<int64_t>(shape.size()) - 2; i >= 0; --i) strides[i] = strides[i + 1] * shape[i + 1];
  return strides;
}

/// Calls f(linear index, coordinates) for every element of `shape`, row by row.
template <typename F> void eachIndex(ArrayRef<int64_t> shape, F f) {
  int64_t n = 1;
  for (int64_t s : shape) n *= s;
  SmallVector<int64_t> at(shape.size(), 0);
  for (int64_t i = 0; i < n; ++i) {
    f(i, ArrayRef<int64_t>(at));
    for (int64_t d = static_cast<int64_t>(shape.size()) - 1; d >= 0 && ++at[d] == shape[d]; --d) at[d] = 0;
  }
}

ArrayRef<int64_t> shapeOf(Value v) { return cast<RankedTensorType>(v.getType()).getShape(); }

/// One element of a scaled dot's operand in its small format; narrow formats lie packed in i8, the low bits first.
double smallFloat(tt::ScaleDotElemType kind, uint64_t bits, MLIRContext *ctx) {
  auto minifloat = [&](int exponentBits, int mantissaBits, int bias) {
    int64_t mantissa = bits & ((1 << mantissaBits) - 1), exponent = (bits >> mantissaBits) & ((1 << exponentBits) - 1);
    double v = exponent ? std::ldexp(1.0 + std::ldexp(double(mantissa), -mantissaBits), int(exponent) - bias)
                        : std::ldexp(double(mantissa), 1 - bias - mantissaBits);
    return (bits >> (mantissaBits + exponentBits)) & 1 ? -v : v;
  };
  switch (kind) {
  case tt::ScaleDotElemType::E4M3: return decode(Float8E4M3FNType::get(ctx), bits);
  case tt::ScaleDotElemType::E5M2: return decode(Float8E5M2Type::get(ctx), bits);
  case tt::ScaleDotElemType::E2M3: return minifloat(2, 3, 1);
  case tt::ScaleDotElemType::E3M2: return minifloat(3, 2, 3);
  case tt::ScaleDotElemType::E2M1: return minifloat(2, 1, 1);
  case tt::ScaleDotElemType::BF16: return decode(BFloat16Type::get(ctx), bits);
  case tt::ScaleDotElemType::FP16: return decode(Float16Type::get(ctx), bits);
  }
  return 0;
}

/// A scale factor: 2^(byte - 127), 255 is NaN; or an f8E4M3FN number.
double scaleOf(Type element, Slot s) {
  if (isa<FloatType>(element)) return s.f;
  uint64_t byte = asUnsigned(s.i, 8);
  return byte == 255 ? NAN : std::ldexp(1.0, static_cast<int>(byte) - 127);
}

/// Operand of a scaled dot as numbers [rows, k] (lhs) or [k, columns] (rhs), unpacked and scaled along k.
Lanes scaledOperand(const Lanes &raw, RankedTensorType type, tt::ScaleDotElemType kind, bool packAlongK, bool isLhs,
                    const Lanes *scale, RankedTensorType scaleType, int64_t &k) {
  bool packed = kind == tt::ScaleDotElemType::E2M1;
  int64_t rows = type.getDimSize(0), columns = type.getDimSize(1);
  Type element = type.getElementType();
  bool packRows = packed && (isLhs != packAlongK), packColumns = packed && (isLhs == packAlongK);
  int64_t outRows = rows * (packRows ? 2 : 1), outColumns = columns * (packColumns ? 2 : 1);
  Lanes out(outRows * outColumns);
  k = isLhs ? outColumns : outRows;
  int64_t outer = isLhs ? outRows : outColumns;
  for (int64_t r = 0; r < outRows; ++r)
    for (int64_t c = 0; c < outColumns; ++c) {
      int64_t src = (packRows ? r / 2 : r) * columns + (packColumns ? c / 2 : c);
      double v;
      if (FloatType real = dyn_cast<FloatType>(element)) {
        v = raw[src].f;
      } else {
        uint64_t bits = asUnsigned(raw[src].i, 8);
        if (packed) bits = (bits >> (4 * ((packRows ? r : c) % 2))) & 15;
        v = smallFloat(kind, bits, type.getContext());
      }
      if (scale) {
        int64_t perScale = k / scaleType.getDimSize(1), at = isLhs ? c : r, line = isLhs ? r : c;
        if (line < outer)
          v *= scaleOf(scaleType.getElementType(), (*scale)[line * scaleType.getDimSize(1) + at / perScale]);
      }
      out[r * outColumns + c] = slotOf(v);
    }
  return out;
}

bool apply(Machine &machine, tt::MakeRangeOp range) {
  Lanes out;
  for (int64_t i = static_cast<int32_t>(range.getStart()); i < static_cast<int32_t>(range.getEnd()); ++i)
    out.push_back(slotOf(i));
  machine.set(range, std::move(out));
  return true;
}

bool apply(Machine &machine, tt::SplatOp splat) {
  Slot v = machine.get(splat.getSrc())[0];
  machine.set(splat, Lanes(elementCount(splat.getType()), v));
  return true;
}

bool apply(Machine &machine, tt::BroadcastOp broadcast) {
  const Lanes &src = machine.get(broadcast.getSrc());
  ArrayRef<int64_t> from = shapeOf(broadcast.getSrc());
  SmallVector<int64_t> strides = stridesOf(from);
  Lanes out(elementCount(broadcast.getType()));
  eachIndex(shapeOf(broadcast), [&](int64_t i, ArrayRef<int64_t> at) {
    int64_t j = 0;
    for (size_t d = 0; d < at.size(); ++d) j += from[d] == 1 ? 0 : at[d] * strides[d];
    out[i] = src[j];
  });
  machine.set(broadcast, std::move(out));
  return true;
}

bool apply(Machine &machine, tt::TransOp trans) {
  const Lanes &src = machine.get(trans.getSrc());
  SmallVector<int64_t> strides = stridesOf(shapeOf(trans.getSrc()));
  Lanes out(src.size());
  eachIndex(shapeOf(trans), [&](int64_t i, ArrayRef<int64_t> at) {
    int64_t j = 0;
    for (size_t d = 0; d < at.size(); ++d) j += at[d] * strides[trans.getOrder()[d]];
    out[i] = src[j];
  });
  machine.set(trans, std::move(out));
  return true;
}

bool apply(Machine &machine, tt::JoinOp join) {
  Lanes out;
  for (auto [a, b] : llvm::zip_equal(machine.get(join.getLhs()), machine.get(join.getRhs()))) out.append({a, b});
  machine.set(join, std::move(out));
  return true;
}

bool apply(Machine &machine, tt::SplitOp split) {
  const Lanes &src = machine.get(split.getSrc());
  Lanes left, right;
  for (size_t i = 0; i < src.size(); i += 2) {
    left.push_back(src[i]);
    right.push_back(src[i + 1]);
  }
  machine.set(split.getOutLHS(), std::move(left));
  machine.set(split.getOutRHS(), std::move(right));
  return true;
}

bool apply(Machine &machine, tt::CatOp cat) {
  Lanes out = machine.get(cat.getLhs());
  const Lanes &rhs = machine.get(cat.getRhs());
  out.append(rhs.begin(), rhs.end());
  machine.set(cat, std::move(out));
  return true;
}

bool apply(Machine &machine, tt::GatherOp gather) {
  const Lanes &src = machine.get(gather.getSrc()), &indices = machine.get(gather.getIndices());
  ArrayRef<int64_t> from = shapeOf(gather.getSrc());
  SmallVector<int64_t> strides = stridesOf(from);
  size_t axis = gather.getAxis();
  Lanes out(indices.size());
  bool ok = true;
  eachIndex(shapeOf(gather), [&](int64_t i, ArrayRef<int64_t> at) {
    int64_t j = 0, pick = indices[i].i;
    if (pick < 0 || pick >= from[axis]) {
      ok = ok && machine.fault(diag::TileOutOfBounds, gather, machine.programName(), fmt::format("picks element {}", pick),
                       fmt::format("an axis of length {}", from[axis]));
      return;
    }
    for (size_t d = 0; d < at.size(); ++d) j += (d == axis ? pick : at[d]) * strides[d];
    out[i] = src[j];
  });
  if (!ok) return false;
  machine.set(gather, std::move(out));
  return true;
}

bool apply(Machine &machine, tt::HistogramOp histogram) {
  const Lanes &src = machine.get(histogram.getSrc());
  Lanes out(elementCount(histogram.getType()), slotOf(int64_t(0)));
  for (size_t i = 0; i < src.size(); ++i) {
    bool counts = !histogram.getMask() || machine.get(histogram.getMask())[i].i;
    if (counts && src[i].i >= 0 && src[i].i < static_cast<int64_t>(out.size())) ++out[src[i].i].i;
  }
  machine.set(histogram, std::move(out));
  return true;
}

bool apply(Machine &machine, tt::DotOp dot) {
  const Lanes &a = machine.get(dot.getA()), &b = machine.get(dot.getB()), &c = machine.get(dot.getC());
  RankedTensorType ta = dot.getA().getType(), tb = dot.getB().getType(), tc = dot.getC().getType();
  int64_t rank = ta.getRank(), m = ta.getDimSize(rank - 2), k = ta.getDimSize(rank - 1), n = tb.getDimSize(rank - 1);
  int64_t batches = rank == 3 ? ta.getDimSize(0) : 1;
  FloatType real = dyn_cast<FloatType>(tc.getElementType());
  bool cut = machine.options.honourTf32 && ta.getElementType().isF32() &&
             dot.getInputPrecision() == tt::InputPrecision::TF32;
  Lanes out(c.size());
  for (int64_t batch = 0; batch < batches; ++batch)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        int64_t at = (batch * m + i) * n + j;
        const Slot *row = &a[(batch * m + i) * k], *column = &b[batch * k * n + j];
        if (real) {
          double sum = 0;
          for (int64_t x = 0; x < k; ++x)
            sum += cut ? cutToTf32(row[x].f) * cutToTf32(column[x * n].f) : row[x].f * column[x * n].f;
          out[at] = slotOf(roundTo(real, c[at].f + sum));
        } else {
          uint64_t sum = c[at].i;
          for (int64_t x = 0; x < k; ++x)
            sum += static_cast<uint64_t>(row[x].i) * static_cast<uint64_t>(column[x * n].i);
          out[at] = slotOf(wrap(static_cast<int64_t>(sum), tc.getElementType().getIntOrFloatBitWidth()));
        }
      }
  machine.set(dot, std::move(out));
  return true;
}

bool apply(Machine &machine, tt::DotScaledOp dot) {
  int64_t k = 0, kb = 0;
  auto scaleType = [](Value v) { return v ? cast<RankedTensorType>(v.getType()) : RankedTensorType(); };
  RankedTensorType ta = dot.getA().getType(), tb = dot.getB().getType(), tc = dot.getC().getType();
  if (ta.getRank() != 2) return machine.fault(diag::TileInterpUnsupported, dot, "a batch of scaled dots");
  Lanes a = scaledOperand(machine.get(dot.getA()), ta, dot.getAElemType(), dot.getLhsKPack(), true,
                          dot.getAScale() ? &machine.get(dot.getAScale()) : nullptr, scaleType(dot.getAScale()), k);
  Lanes b = scaledOperand(machine.get(dot.getB()), tb, dot.getBElemType(), dot.getRhsKPack(), false,
                          dot.getBScale() ? &machine.get(dot.getBScale()) : nullptr, scaleType(dot.getBScale()), kb);
  const Lanes &c = machine.get(dot.getC());
  int64_t m = tc.getDimSize(0), n = tc.getDimSize(1);
  if (k != kb || static_cast<int64_t>(a.size()) != m * k || static_cast<int64_t>(b.size()) != k * n)
    return machine.fault(diag::TileInterpUnsupported, dot, "a scaled dot of these shapes");
  Lanes out(c.size());
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t x = 0; x < k; ++x) sum += a[i * k + x].f * b[x * n + j].f;
      out[i * n + j] = slotOf(roundTo(cast<FloatType>(tc.getElementType()), c[i * n + j].f + sum));
    }
  machine.set(dot, std::move(out));
  return true;
}

} // namespace

bool Machine::executeShape(Operation *op, bool &known) {
  known = true;
  return llvm::TypeSwitch<Operation *, bool>(op)
      .Case<tt::UnsplatOp, tt::ExpandDimsOp, tt::ReshapeOp>([&](auto) {
        Lanes copy = get(op->getOperand(0));
        set(op->getResult(0), std::move(copy));
        return true;
      })
      .Case<tt::MakeRangeOp, tt::SplatOp, tt::BroadcastOp, tt::TransOp, tt::JoinOp, tt::SplitOp, tt::CatOp,
            tt::GatherOp, tt::HistogramOp, tt::DotOp, tt::DotScaledOp>(
          [&](auto o) { return apply(*this, o); })
      .Default([&](Operation *) {
        known = false;
        return true;
      });
}

/// Whether the ops of a region work element by element, so that one run of it can stand for many.
static bool isLanewise(Region &region) {
  if (!region.hasOneBlock()) return false;
  for (Operation &op : region.front())
    if (op.getNumRegions() != 0 || isa<tt::CallOp>(op) || !isMemoryEffectFree(&op)) return false;
  return true;
}

bool Machine::mapElements(tt::MapElementwiseOp map) {
  int64_t pack = map.getPack(), n = elementCount(map.getOperand(0).getType()) / pack;
  int64_t lanes = isLanewise(map.getScalarOp()) ? n : 1;
  std::vector<Lanes> out(map.getNumResults(), Lanes(n * pack));
  for (int64_t first = 0; first < n; first += lanes) {
    std::vector<Lanes> inputs, results;
    for (Value src : map.getSrcs())
      for (int64_t p = 0; p < pack; ++p) {
        Lanes &in = inputs.emplace_back();
        for (int64_t i = first; i < first + lanes; ++i) in.push_back(get(src)[i * pack + p]);
      }
    if (!runRegion(map.getScalarOp(), inputs, results)) return false;
    for (size_t r = 0; r < results.size(); ++r)
      for (int64_t i = 0; i < lanes; ++i)
        out[r / pack][(first + i) * pack + r % pack] = results[r][results[r].size() == 1 ? 0 : i];
  }
  for (auto [result, o] : llvm::zip_equal(map.getResults(), out)) set(result, std::move(o));
  return true;
}

/// Reductions and scans walk the axis step by step, all lines at once where the region allows it: a block argument then
/// holds one element for each line. `map_elementwise` gives its region all packs at once in the same way.
bool Machine::executeCombine(Operation *op, bool &known) {
  known = true;
  if (tt::MapElementwiseOp map = dyn_cast<tt::MapElementwiseOp>(op)) return mapElements(map);
  tt::ReduceOp reduce = dyn_cast<tt::ReduceOp>(op);
  tt::ScanOp scan = dyn_cast<tt::ScanOp>(op);
  if (!reduce && !scan) {
    known = false;
    return true;
  }
  Region &region = op->getRegion(0);
  ArrayRef<int64_t> shape = shapeOf(op->getOperand(0));
  int64_t axis = reduce ? reduce.getAxis() : scan.getAxis(), length = shape[axis], inner = 1, outer = 1;
  for (size_t d = axis + 1; d < shape.size(); ++d) inner *= shape[d];
  for (int64_t d = 0; d < axis; ++d) outer *= shape[d];
  size_t n = op->getNumOperands();
  int64_t lines = outer * inner;
  std::vector<Lanes> out(n, Lanes(reduce ? lines : lines * length));
  bool reverse = scan && scan.getReverse();
  int64_t group = isLanewise(region) ? lines : 1;
  for (int64_t first = 0; first < lines; first += group) {
    auto element = [&](int64_t line, int64_t step) {
      int64_t at = reverse ? length - 1 - step : step;
      return (line / inner * length + at) * inner + line % inner;
    };
    std::vector<Lanes> total(n);
    for (int64_t step = 0; step < length; ++step) {
      std::vector<Lanes> next(n), inputs, results;
      for (size_t i = 0; i < n; ++i)
        for (int64_t line = first; line < first + group; ++line)
          next[i].push_back(get(op->getOperand(i))[element(line, step)]);
      if (step == 0) {
        total = std::move(next);
      } else {
        inputs = std::move(total);
        for (Lanes &l : next) inputs.push_back(std::move(l));
        if (!runRegion(region, inputs, total)) return false;
        for (Lanes &l : total)
          if (static_cast<int64_t>(l.size()) != group) l.assign(group, Slot(l[0]));
      }
      if (scan)
        for (size_t i = 0; i < n; ++i)
          for (int64_t line = 0; line < group; ++line) out[i][element(first + line, step)] = total[i][line];
    }
    if (reduce)
      for (size_t i = 0; i < n; ++i)
        for (int64_t line = 0; line < group; ++line) out[i][first + line] = total[i][line];
  }
  for (auto [result, o] : llvm::zip_equal(op->getResults(), out)) set(result, std::move(o));
  return true;
}

} // namespace neso::tile
