// Quantised numbers: integers q that stand for (q - zero point) * scale, with one scale a tensor, a channel, a row or a group; products
// whose operands are stored narrow.
//
// The formulas are those of torch/ao/quantization/fx/_decomposed.py, in their order, since rounding depends on it.
#include <cmath>
#include <limits>
#include <numeric>

#include "lower/graph_to_loops/op_call.h"

namespace neso::lower {

namespace {

Tensor widened(const Tensor &x) { return x.dtype() == DType::F16 || x.dtype() == DType::BF16 ? cast(x, DType::F32) : x; }

/// An argument of one element, which torch reads as a Python number.
Tensor numberOf(OpCall &o, std::string_view name, DType t) {
  const Tensor x = o.t(name);
  return cast(x.isNumber() ? x : reshape(x, {}), t).asNumber();
}

/// 1 / scale, in the type of a tensor of scales.
Tensor inverse(const Tensor &scale) {
  return map(scale, [](Val v) { return 1.0 / v; });
}

Tensor clamped(OpCall &o, const Tensor &x) {
  return binary(OpKind::Min, binary(OpKind::Max, x, numberOf(o, "quant_min", DType::I64)), numberOf(o, "quant_max", DType::I64));
}

DType wantedType(OpCall &o, std::string_view name) { return o.dtype(name).value_or(o.out().dtype); }

/// A row of numbers along one dimension of x.
Tensor along(const Tensor &row, const Tensor &x, int64_t axis) {
  Sizes sizes(x.sizes().size(), Expr(1));
  sizes[static_cast<size_t>(wrapDims({axis}, x.rank())[0])] = row.numel();
  return reshape(row, sizes);
}

Tensors quantiseTensor(OpCall &o) {
  const Tensor scale = inverse(numberOf(o, "scale", DType::F64).asTensor()).asNumber();
  const Tensor rounded = unary(mul(widened(o.t("input")), scale), OpKind::Round);
  return {cast(clamped(o, add(rounded, numberOf(o, "zero_point", DType::I64))), o.out().dtype)};
}

Tensors dequantiseTensor(OpCall &o) {
  const Tensor x = cast(o.t("input"), wantedType(o, "out_dtype"));
  return {cast(mul(sub(x, numberOf(o, "zero_point", DType::I64)), numberOf(o, "scale", DType::F64)), o.out().dtype)};
}

Tensors quantiseChannels(OpCall &o) {
  const Tensor x = widened(o.t("input"));
  const int64_t axis = o.integer("axis");
  const Tensor rounded = unary(mul(x, along(inverse(o.t("scales")), x, axis)), OpKind::Round);
  return {cast(clamped(o, add(rounded, along(o.t("zero_points"), x, axis))), o.out().dtype)};
}

Tensors dequantiseChannels(OpCall &o) {
  Tensor x = o.t("input");
  const int64_t axis = o.integer("axis");
  const Tensor scales = along(o.t("scales"), x, axis);
  if (Tensor zero = o.opt("zero_points"); zero.valid()) x = sub(x, along(zero, x, axis));
  return {cast(mul(x, scales), o.out().dtype)};
}

/// One scale a row of the last dimension; here the zero point is added before rounding.
Tensor quantiseRows(OpCall &o, const Tensor &x, const Tensor &scales, const Tensor &zeros) {
  return cast(clamped(o, unary(add(mul(x, inverse(scales)), zeros), OpKind::Round)), o.out().dtype);
}

Tensors quantiseTokens(OpCall &o) { return {quantiseRows(o, o.t("input"), o.t("scales"), o.t("zero_points"))}; }

Tensors dequantiseTokens(OpCall &o) {
  return {cast(mul(sub(o.t("input"), o.t("zero_points")), o.t("scales")), o.out().dtype)};
}

/// [groups, group]: elements that share a scale.
Tensor groupsOf(OpCall &o, const Tensor &x, const Tensor &scales) {
  Expr group = o.integer("group_size");
  if (scales.size(-1).isConst(1) && o.ctx.facts.provablyLess(x.size(-1), group)) group = x.size(-1);
  return reshape(x, {floorDiv(x.numel(), group), group});
}

Tensor column(const Tensor &x) { return reshape(x, {x.numel(), Expr(1)}); }

Tensors quantiseGroups(OpCall &o) {
  const Tensor x = o.t("input"), scales = o.t("scales");
  return {reshape(quantiseRows(o, groupsOf(o, x, scales), column(scales), column(o.t("zero_points"))), x.sizes())};
}

Tensors dequantiseGroups(OpCall &o) {
  const Tensor x = o.t("input"), scales = o.t("scales");
  Tensor q = groupsOf(o, x, scales);
  if (Tensor zero = o.opt("zero_points"); zero.valid()) q = sub(q, column(zero));
  return {reshape(cast(mul(q, column(scales)), o.out().dtype), x.sizes())};
}

/// What a number of a tensor would be behind quantising and back, and which numbers fit: fake_quantize_*. As ATen's kernels do it: 1 / scale in
/// single precision, the zero point added behind rounding if it is an integer, before if it is none.
Tensors fakeQuantised(OpCall &o, const Tensor &scale, const Tensor &zero) {
  const Tensor x = o.t("self"), xs[] = {x, scale, zero};
  const double least = static_cast<double>(o.integer("quant_min")), most = static_cast<double>(o.integer("quant_max"));
  const DType c = computeType(x.dtype());
  const bool whole = !isFloat(zero.dtype());
  auto position = [whole](std::span<const Val> v) {
    const Val q = v[0] * (1.0 / v[1]);
    return whole ? v[2] + un(OpKind::Round, q) : un(OpKind::Round, q + v[2]);
  };
  Tensors results = {pointwise(xs, c, x.dtype(), [=](std::span<const Val> v) {
    const Val q = position(v);
    return (vmin(vmax(q, num(q, least)), num(q, most)) - v[2]) * v[1];
  })};
  if (o.outCount() > 1)
    results.push_back(pointwise(xs, c, DType::Bool, [=](std::span<const Val> v) {
      const Val q = position(v);
      return q >= least && q <= most;
    }));
  if (const Tensor enabled = o.opt("fake_quant_enabled"); enabled.valid()) {
    const Tensor on = cast(reshape(enabled, {}), DType::Bool);
    results[0] = where(on, results[0], x);
    results[1] = where(on, results[1], full(o.ctx, x.sizes(), DType::Bool, 1));
  }
  return results;
}

Tensors fakeQuantiseTensor(OpCall &o) {
  // A Python number is a double, of which the kernel sees a float.
  return fakeQuantised(o, cast(numberOf(o, "scale", DType::F32).asTensor(), DType::F32), numberOf(o, "zero_point", DType::I64).asTensor());
}

Tensors fakeQuantiseChannels(OpCall &o) {
  const Tensor x = o.t("self");
  return fakeQuantised(o, along(o.t("scale"), x, o.integer("axis")), along(o.t("zero_point"), x, o.integer("axis")));
}

/// The zero point of a learnt scale, a number with a fraction while it is learnt: what the quantised numbers and what their gradients take it for.
Tensor learntZero(OpCall &o, const Tensor &zero, bool cut) {
  const double least = static_cast<double>(o.integer("quant_min")), most = static_cast<double>(o.integer("quant_max"));
  return map(zero, [=](Val v) {
    auto inside = [&](Val x) { return vmin(vmax(x, num(x, least)), num(x, most)); };
    return cut ? un(OpKind::Trunc, inside(v + 0.5)) : inside(un(OpKind::Round, v));
  });
}

Tensor firstOf(const Tensor &x) { return select(flatten(x), 0, 0); }

Tensors fakeQuantiseLearnt(OpCall &o) { return fakeQuantised(o, cast(firstOf(o.t("scale")), DType::F32), cast(learntZero(o, firstOf(o.t("zero_point")), false), DType::I32)); }

Tensors fakeQuantiseLearntChannels(OpCall &o) {
  const Tensor x = o.t("self");
  const int64_t axis = o.integer("axis");
  return fakeQuantised(o, along(o.t("scale"), x, axis), cast(along(learntZero(o, o.t("zero_point"), false), x, axis), DType::I32));
}

/// Gradients of numbers behind quantising and back, of the scale and of the zero point (Bhalgat et al., LSQ+, 2020). As ATen's kernels do it.
Tensors learntGradients(OpCall &o, const Tensor &scale, const Tensor &zero, const Dims &dims, const Sizes &sizes) {
  const Tensor x = o.t("self"), xs[] = {x, scale, zero, o.t("grad")};
  const double least = static_cast<double>(o.integer("quant_min")), most = static_cast<double>(o.integer("quant_max")), factor = o.number("grad_factor", 1);
  const DType c = computeType(x.dtype());
  auto position = [](std::span<const Val> v) { return un(OpKind::Round, v[0] * (1.0 / v[1]) + v[2]); };
  auto each = [&](const std::function<Val(std::span<const Val>, Val)> &fn) {
    return pointwise(xs, c, c, [=](std::span<const Val> v) { return fn(v, position(v)); });
  };
  auto total = [&](const Tensor &t, const Tensor &of) { return cast(reshape(reduceDims(loops::ReduceKind::Sum, t, dims, false, c), sizes), of.dtype()); };
  const Tensor dx = each([=](std::span<const Val> v, Val q) { return where(q >= least && q <= most, v[3], 0.0); });
  const Tensor dscale = each([=](std::span<const Val> v, Val q) {
    const Val back = (vmin(vmax(q, num(q, least)), num(q, most)) - v[2]) * v[1];
    const Val inside = v[3] * (back - v[0]) * (1.0 / v[1]);
    return where(q < least, v[3] * (least - v[2]), where(q > most, v[3] * (most - v[2]), inside)) * factor;
  });
  const Tensor dzero = each([=](std::span<const Val> v, Val q) { return where(q >= least && q <= most, num(q, 0), -v[3] * v[1] * factor); });
  return {cast(dx, o.out(0).dtype), total(dscale, o.t("scale")), total(dzero, o.t("zero_point"))};
}

Tensors learntTensorGradients(OpCall &o) {
  Dims all(o.t("self").sizes().size());
  std::iota(all.begin(), all.end(), 0);
  return learntGradients(o, firstOf(o.t("scale")), learntZero(o, firstOf(o.t("zero_point")), true), all, {Expr(1)});
}

Tensors learntChannelGradients(OpCall &o) {
  const Tensor x = o.t("self");
  const int64_t axis = wrapDims({o.integer("axis")}, x.rank())[0];
  Dims others;
  for (int64_t d = 0; d < x.rank(); ++d)
    if (d != axis) others.push_back(d);
  return learntGradients(o, along(o.t("scale"), x, axis), along(learntZero(o, o.t("zero_point"), false), x, axis), others, {x.size(axis)});
}

/// Which numbers a range of values is quantised with: the scale, F64, and the zero point, a whole number. In the order of ATen's and FBGEMM's
/// ChooseQuantizationParams, which counts in doubles from float bounds.
std::pair<Tensor, Tensor> scaleOfRange(const Tensor &least, const Tensor &greatest, double most, double first, bool symmetric) {
  constexpr double kSmallScale = 6.1e-5f;
  const double half = std::floor((most - first) / 2), steps = most - first;
  const Tensor range[] = {least, greatest};
  const auto bound = [&](bool upper) {
    return pointwise(range, DType::F32, DType::F32, [=](std::span<const Val> v) {
      const Val a = v[0], b = v[1], own = upper ? vmax(b, num(b, 0)) : vmin(a, num(a, 0));
      const Val step = vmax(un(OpKind::Abs, a / -(half + 1)), un(OpKind::Abs, b / half));
      return symmetric ? where(a < 0.0 && b > 0.0, step * (upper ? half : -(half + 1)), own) : own;
    });
  };
  const Tensor ends[] = {bound(false), bound(true)};
  const Tensor plain = pointwise(ends, DType::F64, DType::F64, [=](std::span<const Val> v) { return (v[1] - v[0]) / steps; });
  // What has no inverse as a float is 0.1.
  const Tensor xs[] = {plain, cast(plain, DType::F32)};
  const Tensor usable = pointwise(xs, DType::F64, DType::F64, [](std::span<const Val> v) {
    return where(v[1] < 1.0 / std::numeric_limits<float>::max() && v[1] >= 0.0, num(v[0], 0.1), v[0]);
  });
  const Tensor all[] = {ends[0], ends[1], usable};
  const Tensor scale = map(usable, [](Val v) { return where(v < kSmallScale, num(v, kSmallScale), v); });
  const Tensor point = pointwise(all, DType::F64, DType::F64, [=](std::span<const Val> v) {
    const Val small = v[2] < kSmallScale, s = where(small, num(v[2], kSmallScale), v[2]), wider = where(small, kSmallScale / v[2], num(s, 1));
    const Val low = where(small && eq(v[0], 0.0), v[0], where(small && eq(v[1], 0.0), num(s, -kSmallScale * steps), v[0] * wider));
    const Val high = where(small && eq(v[0], 0.0), num(s, kSmallScale * steps), where(small && eq(v[1], 0.0), v[1], v[1] * wider));
    const Val fromLow = first - low / s, fromHigh = most - high / s;
    const Val lowError = std::abs(first) + un(OpKind::Abs, low / s), highError = std::abs(most) + un(OpKind::Abs, high / s);
    Val at = where(lowError < highError, fromLow, fromHigh);
    if (symmetric) at = where(low < 0.0 && high > 0.0, num(at, (first + most) / 2), at);
    return un(OpKind::Round, vmin(vmax(at, num(at, first)), num(at, most)));
  });
  return {scale, point};
}

/// What a tensor would be behind quantising, with a range that follows it while the model is trained: one of the tensor, or of each channel.
Tensors observedFakeQuantised(OpCall &o) {
  const Tensor x = o.t("self"), low = o.t("running_min"), high = o.t("running_max"), oldScale = o.t("scale"), oldZero = o.t("zero_point");
  const bool channels = o.flag("per_row_fake_quant");
  const int64_t axis = wrapDims({o.integer("ch_axis")}, x.rank())[0];
  const double first = static_cast<double>(o.integer("quant_min")), most = static_cast<double>(o.integer("quant_max")), share = o.number("averaging_const");
  if (low.numel().isConst(0)) return o.fail("its range is empty: run the model once before it is exported, so that it has one");
  Dims over;
  for (int64_t d = 0; d < x.rank(); ++d)
    if (channels && d != axis) over.push_back(d);
  x.reused();
  const Tensor observes = cast(reshape(o.t("observer_on"), {}), DType::Bool), quantises = cast(reshape(o.t("fake_quant_on"), {}), DType::Bool);
  const auto followed = [&](const Tensor &old, bool upper) {
    const Tensor now = channels && over.empty() ? x : upper ? amax(x, over, false) : amin(x, over, false), xs[] = {old, reshape(now, old.sizes())};
    const Tensor moved = pointwise(xs, old.dtype(), old.dtype(), [share](std::span<const Val> v) {
      return where(eq(un(OpKind::Abs, v[0]), HUGE_VAL), v[1], v[0] + (v[1] - v[0]) * share);
    });
    return where(observes, moved, old).reused();
  };
  const Tensor least = followed(low, false), greatest = followed(high, true);
  const auto [scale, point] = scaleOfRange(least, greatest, most, first, o.flag("symmetric_quant"));
  const Tensor newScale = where(quantises, cast(reshape(scale, oldScale.sizes()), oldScale.dtype()), oldScale).reused();
  const Tensor newZero = where(quantises, cast(reshape(point, oldZero.sizes()), oldZero.dtype()), oldZero).reused();
  const Tensor s = channels ? along(newScale, x, axis) : reshape(newScale, {}), z = channels ? along(newZero, x, axis) : reshape(newZero, {});
  const Tensors quantised = fakeQuantised(o, s, z);
  return {where(quantises, quantised[0], x), where(quantises, quantised[1], full(o.ctx, x.sizes(), DType::Bool, 1)), least, greatest, newScale, newZero};
}

/// Scale and zero point of values between their least and greatest, zero among them.
Tensors chooseScale(OpCall &o, bool symmetric) {
  const Tensor x = o.t("input").reused();
  const Tensor zero = scalarFloat(o.ctx, 0);
  const double least = static_cast<double>(o.integer("quant_min")), most = static_cast<double>(o.integer("quant_max"));
  const Tensor low = binary(OpKind::Min, amin(x, {}, false), zero), high = binary(OpKind::Max, amax(x, {}, false), zero);
  const Tensor bound = full(o.ctx, {}, DType::F32, o.number("eps"));
  Tensor scale, point;
  if (symmetric) {
    scale = div(binary(OpKind::Max, neg(low), high), scalarFloat(o.ctx, (most - least) / 2));
    scale = binary(OpKind::Max, scale, bound);
    point = fullInt(o.ctx, {}, DType::I64, o.dtype("dtype") == DType::U8 ? 128 : 0);
  } else {
    scale = binary(OpKind::Max, div(sub(high, low), scalarFloat(o.ctx, most - least)), bound);
    point = sub(scalarInt(o.ctx, static_cast<int64_t>(least)), cast(unary(div(low, scale), OpKind::Round), DType::I32));
    point = binary(OpKind::Min, binary(OpKind::Max, point, scalarInt(o.ctx, static_cast<int64_t>(least))),
                   scalarInt(o.ctx, static_cast<int64_t>(most)));
  }
  return {reshape(cast(scale, o.out(0).dtype), {1}), reshape(cast(point, o.out(1).dtype), {1})};
}

/// The same for each row of the last dimension, of 8 bits with a sign.
Tensors chooseTokenScales(OpCall &o) {
  const Tensor x = o.t("input").reused();
  const Tensor low = binary(OpKind::Min, amin(x, {-1}, true), scalarFloat(o.ctx, 0)),
               high = binary(OpKind::Max, amax(x, {-1}, true), scalarFloat(o.ctx, 0));
  constexpr double kLeast = -128, kMost = 127;
  const Tensor scale = map(div(sub(high, low), scalarFloat(o.ctx, kMost - kLeast)),
                           [](Val v) { return vmax(v, num(v, 1.1920928955078125e-07)); });
  const Tensor parts[] = {div(low, scale), div(high, scale)};
  const Tensor point = pointwise(parts, scale.dtype(), scale.dtype(), [](std::span<const Val> v) {
    Val p = where((v[0] + kLeast) + (v[1] + kMost) > 0.0, kLeast - v[0], kMost - v[1]);
    return un(OpKind::Round, vmin(vmax(p, num(p, kLeast)), num(p, kMost)));
  });
  return {cast(scale, o.out(0).dtype), cast(point, o.out(1).dtype)};
}

/// x [M, K] times weights [N, K] of 8 bits, which stay so in memory and are widened where they are loaded.
Tensors int8Product(OpCall &o) {
  const Tensor x = source(o.t("self")), w = source(o.t("mat2")), scales = source(o.t("scales"));
  const DType t = x.dtype();
  ContractionSpec spec;
  spec.ranges = {x.sizes()[0], w.sizes()[0]}, spec.reduceRanges = {x.sizes()[1]};
  spec.operandType = t, spec.accType = DType::F32, spec.outType = o.out().dtype;
  spec.lhs = [=](BodyBuilder &b, const Index &i, const Index &r) { return x.at(b, {i[0], r[0]}); };
  spec.rhs = [=](BodyBuilder &b, const Index &i, const Index &r) { return b.cast(w.at(b, {i[1], r[0]}), computeType(t)); };
  spec.epilogue = [=](BodyBuilder &b, const Index &i, Val sum) { return sum * b.cast(scales.at(b, {i[1]}), sum.dtype); };
  return {o.ctx.contract(spec)};
}

// ---- linear layers that FBGEMM computes for torch on CPUs

/// Weights become f16; what f16 does not hold becomes its largest number, and NaN its least, as FBGEMM has it.
Tensors halfWeightLinear(OpCall &o) {
  constexpr double kLargest = 65504;
  const Tensor narrow = map(o.t("weight"), [](Val v) { return where(v >= -kLargest, vmin(v, num(v, kLargest)), num(v, -kLargest)); });
  return {linear(widened(o.t("X")), cast(cast(narrow, DType::F16), DType::F32), o.opt("bias"))};
}

/// What numbers become as integers in [least, most], less the zero point.
Tensor centred(const Tensor &x, const Tensor &scale, const Tensor &zero, double least, double most) {
  const Tensor xs[] = {x, scale, zero};
  return pointwise(xs, DType::F32, DType::I32, [=](std::span<const Val> v) {
    const Val q = un(OpKind::Round, v[0] * (1.0 / v[1])) + v[2];
    return vmin(vmax(q, num(q, least)), num(q, most)) - v[2];
  });
}

/// x as u8, weights as i8, their product in integers, the result as u8 and back.
Tensors quantisedLinear(OpCall &o) {
  auto number = [&](std::string_view name) { return numberOf(o, name, DType::F32).asTensor(); };
  const Tensor xScale = number("X_scale"), wScale = number("W_scale"), scale = number("output_scale"), zero = number("output_zero_point");
  const Tensor x = centred(o.t("X"), xScale, number("X_zero_point"), 0, 255), w = centred(o.t("W"), wScale, number("W_zero_point"), -128, 127);
  const Tensor sums = matmul2(x, transpose(w, 0, 1), DType::I32), xs[] = {cast(sums, DType::F32), o.t("B"), xScale, wScale, scale, zero};
  return {pointwise(xs, DType::F32, o.out().dtype, [](std::span<const Val> v) {
    const Val both = v[2] * v[3], q = un(OpKind::Round, (v[0] + v[1] / both) * (both / v[4])) + v[5];
    return (vmin(vmax(q, num(q, 0)), num(q, 255)) - v[5]) * v[4];
  })};
}

// ---- products of 8-bit floats with scales

/// How an operand [outer, K] is scaled, as torch numbers it (c10::ScalingType).
enum class Scaling : int64_t { Tensor, Row, Block1x16, Block1x32, Block1x128, Block128x128 };

/// The scales of an operand: `each` is what row i is scaled by as a whole, or `block` what its element k is; the other is empty.
struct Scales {
  std::function<Val(BodyBuilder &, Expr i)> each;
  std::function<Val(BodyBuilder &, Expr i, Expr k)> block;
};

/// Scales of blocks of 32, in tiles of 128 rows and 4 columns that follow each other; in a tile, rows that are 32 apart are neighbours
/// ("SWIZZLE_32_4_4").
Expr placeInTiles(Expr row, Expr column, Expr columns) {
  constexpr int64_t kRows = 128, kColumns = 4, kApart = 32;
  const Expr tile = floorDiv(row, kRows) * ceilDiv(columns, kColumns) + floorDiv(column, kColumns);
  return tile * (kRows * kColumns) + mod(row, kApart) * (kRows / kApart * kColumns) +
         mod(floorDiv(row, kApart), kRows / kApart) * kColumns + mod(column, kColumns);
}

/// The scales `x` of an operand with `outer` rows (columns, of the right one) of length k; nothing where they do not fit it.
std::optional<Scales> scalesOf(OpCall &o, const Tensor &x, Scaling scaling, Expr outer, Expr k) {
  auto has = [&](DType t, std::initializer_list<Expr> sizes) {
    bool fits = x.dtype() == t && x.rank() == static_cast<int64_t>(sizes.size());
    for (size_t d = 0; fits && d < sizes.size(); ++d) fits = o.ctx.equal(x.sizes()[d], sizes.begin()[d]);
    return fits;
  };
  constexpr int64_t kBlock = 128, kSmall = 32;
  const Tensor flat = flatten(x);
  auto read = [](BodyBuilder &b, const Tensor &t, Index at) { return b.cast(t.at(b, at), DType::F32); };
  switch (scaling) {
  case Scaling::Tensor:
    if (x.dtype() != DType::F32 || !x.numel().isConst(1)) break;
    return Scales{[=](BodyBuilder &b, Expr) { return read(b, flat, {Expr(0)}); }, {}};
  case Scaling::Row:
    if (x.dtype() != DType::F32 || !o.ctx.equal(x.numel(), outer)) break;
    return Scales{[=](BodyBuilder &b, Expr i) { return read(b, flat, {i}); }, {}};
  case Scaling::Block1x32: {
    const Expr columns = ceilDiv(k, kSmall);
    if (x.dtype() != DType::F8E8M0FNU ||
        !o.ctx.equal(x.numel(), ceilDiv(outer, kBlock) * kBlock * ceilDiv(columns, 4) * 4))
      break;
    return Scales{{}, [=](BodyBuilder &b, Expr i, Expr at) {
                    return read(b, flat, {placeInTiles(i, floorDiv(at, kSmall), columns)});
                  }};
  }
  case Scaling::Block1x128:
    if (!has(DType::F32, {outer, ceilDiv(k, kBlock)})) break;
    return Scales{{}, [=](BodyBuilder &b, Expr i, Expr at) { return read(b, x, {i, floorDiv(at, kBlock)}); }};
  case Scaling::Block128x128:
    // Blocks of k come first, and there are as many as make a multiple of four.
    if (!has(DType::F32, {ceilDiv(ceilDiv(k, kBlock), 4) * 4, ceilDiv(outer, kBlock)})) break;
    return Scales{{}, [=](BodyBuilder &b, Expr i, Expr at) {
                    return read(b, x, {floorDiv(at, kBlock), floorDiv(i, kBlock)});
                  }};
  default: break;
  }
  return std::nullopt;
}

/// x [M, K] times y [K, N], of 8-bit floats. One that is scaled before it is multiplied is not exact in 16 bits.
Tensors scaledProduct(OpCall &o, const Tensor &x, const Tensor &y, const std::optional<Scales> &rows,
                      const std::optional<Scales> &columns, const Tensor &bias) {
  if (!rows || !columns)
    return o.fail("its scales are not as many as its operands have blocks, or not in the order in which torch's "
                  "kernels read them");
  if (!isFloat(x.dtype()) || !isFloat(y.dtype()) || itemSize(x.dtype()) != 1 || itemSize(y.dtype()) != 1)
    return o.fail("its operands are not floats of 8 bits");
  ContractionSpec spec;
  spec.ranges = {x.sizes()[0], y.sizes()[1]}, spec.reduceRanges = {x.sizes()[1]};
  spec.operandType = rows->block || columns->block ? DType::F32 : scaledProductType(x.dtype(), y.dtype()), spec.accType = DType::F32,
  spec.outType = o.out().dtype;
  spec.lhs = [=, scale = rows->block](BodyBuilder &b, const Index &i, const Index &r) {
    const Val v = x.at(b, {i[0], r[0]});
    return scale ? v * scale(b, i[0], r[0]) : v;
  };
  spec.rhs = [=, scale = columns->block](BodyBuilder &b, const Index &i, const Index &r) {
    const Val v = y.at(b, {r[0], i[1]});
    return scale ? v * scale(b, i[1], r[0]) : v;
  };
  spec.epilogue = [=, row = rows->each, column = columns->each](BodyBuilder &b, const Index &i, Val sum) {
    Val v = sum;
    if (row) v = v * row(b, i[0]);
    if (column) v = v * column(b, i[1]);
    return bias.valid() ? v + b.cast(bias.at(b, {i[1]}), v.dtype) : v;
  };
  return {o.ctx.contract(spec)};
}

Tensors scaledProductByShapes(OpCall &o) {
  const Tensor x = source(o.t("self")), y = source(o.t("mat2")), a = source(o.t("scale_a")), b = source(o.t("scale_b"));
  const Expr m = x.sizes()[0], k = x.sizes()[1], n = y.sizes()[1];
  if (o.opt("scale_result").valid()) return o.fail("a scale of the result is not supported");
  // Which scaling it is, torch's kernels read off the scales too.
  auto scaling = [](const Tensor &s) {
    return s.dtype() == DType::F8E8M0FNU ? Scaling::Block1x32 : s.numel().isConst(1) ? Scaling::Tensor : Scaling::Row;
  };
  return scaledProduct(o, x, y, scalesOf(o, a, scaling(a), m, k), scalesOf(o, b, scaling(b), n, k), o.opt("bias"));
}

/// The same where the call says how its operands are scaled.
Tensors scaledProductByRecipe(OpCall &o) {
  constexpr int64_t kInTiles = 1;
  const Tensor x = source(o.t("self")), y = source(o.t("mat2"));
  const Expr m = x.sizes()[0], k = x.sizes()[1], n = y.sizes()[1];
  if (const Dims dims = o.ints("contraction_dim"); !dims.empty() && dims != Dims{1, 0} && dims != Dims{-1, -2})
    return o.fail("it sums over other dimensions than the last and the first");
  auto scales = [&](const std::string &side, Expr outer) -> std::optional<Scales> {
    const Tensors given = o.list("scale_" + side);
    const Dims recipe = o.ints("recipe_" + side), swizzle = o.ints("swizzle_" + side);
    if (given.size() != 1 || recipe.size() != 1) return std::nullopt;
    const bool tiles = swizzle.size() == 1 && swizzle[0] == kInTiles;
    const Scaling scaling = static_cast<Scaling>(recipe[0]);
    if (tiles != (scaling == Scaling::Block1x32)) return std::nullopt;
    return scalesOf(o, source(given[0]), scaling, outer, k);
  };
  return scaledProduct(o, x, y, scales("a", m), scales("b", n), o.opt("bias"));
}

} // namespace

void addQuantised(OpTable &t) {
  auto add = [&](const std::string &name, LowerFn fn) { t.add("torch::quantized_decomposed." + name, fn); };
  for (const char *overload : {"default", "tensor", "tensor2"}) {
    add(std::string("quantize_per_tensor.") + overload, quantiseTensor);
    add(std::string("dequantize_per_tensor.") + overload, dequantiseTensor);
  }
  add("quantize_per_channel.default", quantiseChannels);
  add("dequantize_per_channel.default", dequantiseChannels);
  add("quantize_per_token.default", quantiseTokens);
  add("dequantize_per_token.default", dequantiseTokens);
  add("quantize_per_channel_group.default", quantiseGroups);
  add("dequantize_per_channel_group.default", dequantiseGroups);
  add("choose_qparams.tensor", [](OpCall &o) { return chooseScale(o, false); });
  add("choose_qparams_symmetric.tensor", [](OpCall &o) { return chooseScale(o, true); });
  add("choose_qparams_per_token_asymmetric.default", chooseTokenScales);
  add("_choose_qparams_per_token_asymmetric_impl.default", chooseTokenScales);
  t.add("fake_quantize_per_tensor_affine.default fake_quantize_per_tensor_affine.tensor_qparams fake_quantize_per_tensor_affine_cachemask.default "
        "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default",
        fakeQuantiseTensor);
  t.add("_fake_quantize_learnable_per_tensor_affine.default", fakeQuantiseLearnt);
  t.add("_fake_quantize_learnable_per_channel_affine.default", fakeQuantiseLearntChannels);
  t.add("_fake_quantize_learnable_per_tensor_affine_backward.default", learntTensorGradients);
  t.add("_fake_quantize_learnable_per_channel_affine_backward.default", learntChannelGradients);
  t.add("fake_quantize_per_channel_affine.default fake_quantize_per_channel_affine_cachemask.default", fakeQuantiseChannels);
  t.add("_fused_moving_avg_obs_fq_helper_functional.default", observedFakeQuantised);
  t.add("_weight_int8pack_mm.default", int8Product);
  t.add("torch::quantized.linear_dynamic_fp16_unpacked_weight.default", halfWeightLinear);
  t.add("torch::_quantized.wrapped_quantized_linear.default", quantisedLinear);
  t.add("_scaled_mm.default", scaledProductByShapes);
  t.add("_scaled_mm_v2.default", scaledProductByRecipe);
}

} // namespace neso::lower
