// Products with weights of four bits as PyTorch's operators pack them, and the packing. The weights stay packed in memory: a kernel takes
// numbers out of their bytes where it loads them, and makes floats of them in registers.
//
// Where a number lies is the operators' own business; it was found out by packing and by reading ATen's kernels (int4mm_kernel.cpp,
// int4mm.cu).
#include "base/words.h"
#include "ir/loops/four_bits.h"
#include "lower/graph_to_loops/op_call.h"

namespace neso::lower {

using graph::Int4Packing;

namespace {

/// The number q of the weight [n, k], I32 in [0, 16).
using Number = std::function<Val(BodyBuilder &, Expr n, Expr k)>;
/// The weight that q stands for, F32.
using Weight = std::function<Val(BodyBuilder &, Val q, Expr n, Expr k)>;

/// Four bits of an element, from `shift` on.
Val fourBits(BodyBuilder &b, Val element, Expr shift) {
  const Val word = b.cast(element, DType::I32);
  return bin(OpKind::And, bin(OpKind::Shr, word, b.index(shift, DType::I32)), b.constantInt(DType::I32, 15));
}

/// x [M, K] times weights [N, K], whose numbers few rows take apart as the product reads them. `type` is that of the operands in the product.
Tensor product(OpCall &o, const Tensor &x, Expr n, const Number &number, const Weight &weight, DType type, const EpilogueFn &epilogue = {}) {
  ContractionSpec spec;
  spec.ranges = {x.sizes()[0], n}, spec.reduceRanges = {x.sizes()[1]};
  spec.operandType = type, spec.accType = DType::F32, spec.outType = o.out().dtype;
  spec.lhs = [=](BodyBuilder &b, const Index &i, const Index &r) { return x.at(b, {i[0], r[0]}); };
  auto weightAt = [=](BodyBuilder &b, Expr row, Expr column) { return weight(b, number(b, row, column), row, column); };
  spec.rhs = [=](BodyBuilder &b, const Index &i, const Index &r) { return weightAt(b, i[1], r[0]); };
  if (type != DType::F32 && o.ctx.facts.rangeOf(x.sizes()[0]).hi > loops::kRowsOfFourBits) {
    const Tensor weights = Tensor::lazy(o.ctx, type, {n, x.sizes()[1]}, [=](BodyBuilder &b, const Index &i) { return weightAt(b, i[0], i[1]); }).realize();
    spec.rhs = [=](BodyBuilder &b, const Index &i, const Index &r) { return weights.at(b, {i[1], r[0]}); };
  }
  spec.epilogue = epilogue;
  return o.ctx.contract(spec);
}

/// Groups of qGroupSize neighbours of a row have a scale and a zero each; nothing where these do not fit the weights.
std::optional<Expr> groupOf(OpCall &o, Expr n, Expr k, std::initializer_list<std::pair<Tensor, int64_t>> parameters) {
  const int64_t group = o.integer("qGroupSize");
  bool fits = group > 0 && o.ctx.equal(mod(k, group), 0);
  for (const auto &[x, each] : parameters)
    fits = fits && x.rank() == (each == 1 ? 2 : 3) && o.ctx.equal(x.sizes()[0], floorDiv(k, group)) && o.ctx.equal(x.sizes()[1], n) &&
           (each == 1 || x.sizes()[2].isConst(each));
  if (fits) return Expr(group);
  o.fail("its scales and zeros are not one a group of qGroupSize weights");
  return std::nullopt;
}

/// (q - 8) * scale + zero as q * scale + (zero - 8 * scale), of which the second part is the same for a whole group; of scales and zeros that lie side by side in [K / group, N, 2].
Weight scaledAndMoved(const Tensor &parameters, Expr group) {
  return [=](BodyBuilder &b, Val q, Expr n, Expr k) {
    auto at = [&](int which) { return b.cast(parameters.at(b, {floorDiv(k, group), n, Expr(which)}), DType::F32); };
    const Val scale = at(0);
    return b.cast(q, DType::F32) * scale + (at(1) - scale * 8.0);
  };
}

// ---- for CPUs: bytes [N, K / 2]

/// Rows of weights [N, K] that are packed in blocks of `rows`: the columns of a block follow each other, a column's rows two to a byte.
struct Block {
  Expr first;  // of the rows
  Expr rows;   // of a block
  Expr bytes;  // from the first block on
  bool halves; // a byte has rows c and c + rows / 2 of a block, else 2c and 2c + 1; the former in the low bits

  /// Which byte has the number, and how far up in it.
  struct Place {
    Expr byte, shift;
  };
  Place of(Expr n, Expr k, Expr columns) const {
    const Expr row = n - first, inside = mod(row, rows), half = floorDiv(rows, 2);
    const Expr byte = floorDiv(row, rows) * half * columns + k * half + (halves ? mod(inside, half) : floorDiv(inside, 2));
    return {bytes + byte, (halves ? floorDiv(inside, half) : mod(inside, 2)) * 4};
  }
  /// The row in the low bits of a byte, how far behind it that in the high bits is, and the column of both.
  struct Pair {
    Expr row, apart, column;
  };
  Pair in(Expr byte, Expr columns) const {
    const Expr half = floorDiv(rows, 2), at = byte - bytes, block = floorDiv(at, half * columns), c = mod(at, half);
    return {first + block * rows + (halves ? c : c * 2), halves ? half : Expr(1), floorDiv(mod(at, half * columns), half)};
  }
};

/// All of the rows: as many whole blocks as there are, then what is left, which is packed in pairs.
struct Packing {
  Block whole, rest;
  Expr rowsInWhole, bytesInWhole;
  bool one; // of the two is empty; it is `whole`
};

/// How the machine that packed the weights did it. Fails where it matters and is not known.
std::optional<Packing> packingOf(OpCall &o, Expr n, Expr k) {
  const std::optional<int64_t> rows = n.asConst();
  if (!rows || *rows % 16 || !k.asConst() || *k.asConst() % 2) {
    o.fail("its weights have no fixed sizes [N, K] with N in multiples of 16 and an even K");
    return std::nullopt;
  }
  const Int4Packing as = o.ctx.int4Packing;
  // Less than the smallest block of any machine: all do the same.
  if (as == Int4Packing::Unknown && *rows >= 32) {
    o.fail("how its weights are packed depends on the machine that packed them, and the file does not say (one that neso.export writes does); name what "
           "torch.backends.cpu.get_cpu_capability() gives there: --option int4-packing=" +
           choice(graph::kInt4Packings));
    return std::nullopt;
  }
  const int64_t block = as == Int4Packing::Avx512 ? 64 : 32, left = *rows % block, whole = *rows - left;
  const bool halves = as == Int4Packing::Avx2 || as == Int4Packing::Avx512;
  const Block blocks = {0, block, 0, halves}, rest = {whole, left, floorDiv(k, 2) * whole, false};
  if (whole == 0) return Packing{rest, rest, n, floorDiv(k, 2) * n, true};
  return Packing{blocks, rest, whole, floorDiv(k, 2) * whole, left == 0};
}

Tensors packForCpu(OpCall &o) {
  const Tensor q = source(o.t("self"));
  const Expr n = q.sizes()[0], k = q.sizes()[1];
  const std::optional<Packing> p = packingOf(o, n, k);
  if (!p) return {};
  auto pair = [q, k](BodyBuilder &b, const Block &block, Expr byte) {
    const Block::Pair at = block.in(byte, k);
    auto number = [&](Expr row) { return bin(OpKind::And, q.at(b, {row, at.column}), b.constantInt(DType::I32, 15)); };
    return bin(OpKind::Or, number(at.row), bin(OpKind::Shl, number(at.row + at.apart), b.constantInt(DType::I32, 4)));
  };
  const Expr width = floorDiv(k, 2);
  return {Tensor::lazy(o.ctx, DType::U8, {n, width}, [=](BodyBuilder &b, const Index &i) {
    const Expr byte = i[0] * width + i[1];
    if (p->one) return b.cast(pair(b, p->whole, byte), DType::U8);
    const Val first = b.compare(OpKind::Lt, byte, p->bytesInWhole), none = b.constantInt(DType::I32, 0);
    const Val whole = b.masked(first, [&] { return pair(b, p->whole, byte); }, none);
    return b.cast(b.masked(!first, [&] { return pair(b, p->rest, byte); }, whole), DType::U8);
  })};
}

Tensors productForCpu(OpCall &o) {
  const Tensor x = source(o.t("self")), packed = source(o.t("mat2")), parameters = source(o.t("qScaleAndZeros"));
  const Expr n = packed.sizes()[0], k = x.sizes()[1];
  if (!o.ctx.equal(packed.sizes()[1] * 2, k)) return o.fail("its weights are not of half as many bytes a row as its operand has columns");
  const std::optional<Packing> p = packingOf(o, n, k);
  const std::optional<Expr> group = groupOf(o, n, k, {{parameters, 2}});
  if (!p || !group) return {};
  const Tensor bytes = reshape(packed, {floorDiv(k, 2) * n});
  const Number number = [=](BodyBuilder &b, Expr row, Expr column) {
    Block::Place at = p->whole.of(row, column, k);
    if (!p->one) {
      const Expr first = lt(row, p->rowsInWhole);
      const Block::Place rest = p->rest.of(row, column, k);
      at = {where(first, at.byte, rest.byte), where(first, at.shift, rest.shift)};
    }
    return fourBits(b, bytes.at(b, {at.byte}), at.shift);
  };
  // ATen's kernels for CPUs compute in F32, whatever the type of x.
  return {product(o, x, n, number, scaledAndMoved(parameters, *group), DType::F32)};
}

// ---- for tensor cores: I32 [N / 8, K / (16 tiles), 32, tiles / 2], as the lanes of a warp want their part of B of mma.m16n8k16

/// Which of a lane's words has the numbers of columns k and k + 1 (k even), and how far up the first of them is; the other is 16 bits above.
struct LanePlace {
  Index at;
  Expr shift;
};
LanePlace laneOf(Expr n, Expr k, Expr tiles) {
  const Expr pair = floorDiv(k, 2), inside = mod(pair, 16);
  return {{floorDiv(n, 8), floorDiv(pair, tiles * 8), mod(n, 8) * 4 + mod(inside, 4), floorDiv(mod(pair, tiles * 8), 16)}, floorDiv(inside, 4) * 4};
}

/// 16 + q for the number at bit `at` of a word, F32: the number becomes the first bits of the mantissa, which takes no conversion.
Val besideSixteen(BodyBuilder &b, Val word, int at) {
  constexpr int kFirst = 19; // of those bits
  constexpr int64_t kMantissa = 15 << kFirst, kSixteen = 0x41800000;
  const Val there = at <= kFirst ? bin(OpKind::Shl, word, b.constantInt(DType::I32, kFirst - at)) : bin(OpKind::Shr, word, b.constantInt(DType::I32, at - kFirst));
  return b.bitcast(bin(OpKind::Or, bin(OpKind::And, there, b.constantInt(DType::I32, kMantissa)), b.constantInt(DType::I32, kSixteen)), DType::F32);
}

/// One row of x times such weights, a word at a time, whose eight numbers share a scale and a zero.
Tensor rowByWords(OpCall &o, const Tensor &x, const Tensor &packed, const Tensor &parameters, Expr group) {
  const Expr n = packed.sizes()[0] * 8, k = x.sizes()[1], half = packed.sizes()[3], words = half * 4;
  // Memory as it lies, so that indices say that words of a row are neighbours.
  const Sizes sizes = {packed.sizes()[0], packed.sizes()[1], Expr(8), words};
  Strided flat = *packed.asStrided();
  flat.strides = denseStrides(sizes);
  const Tensor rows = Tensor::strided(o.ctx, packed.dtype(), sizes, flat);
  auto firstOf = [=](Expr word) {
    const Expr inside = mod(word, words);
    return floorDiv(word, words) * (words * 8) + mod(inside, half) * 32 + floorDiv(inside, half) * 2;
  };
  // x in the order of the words' numbers, neighbours of which are read together: once, not for each row of weights.
  const Tensor inOrder = Tensor::lazy(o.ctx, DType::F32, {Expr(8), floorDiv(k, 8)}, [=](BodyBuilder &b, const Index &i) {
                           return b.cast(x.at(b, {Expr(0), firstOf(i[1]) + floorDiv(i[0], 2) * 8 + mod(i[0], 2)}), DType::F32);
                         }).realize();
  const Tensor sums = o.ctx.reduce(loops::ReduceKind::Sum, DType::F32, {Expr(1), n}, {floorDiv(k, 8)}, [=](BodyBuilder &b, const Index &i, const Index &r) {
    const Val word = rows.at(b, {floorDiv(i[1], 8), floorDiv(r[0], words), mod(i[1], 8), mod(r[0], words)});
    auto at = [&](int which) { return b.cast(parameters.at(b, {floorDiv(firstOf(r[0]), group), i[1], Expr(which)}), DType::F32); };
    // Weights, not sums of numbers, are multiplied: what is infinite in x stays so.
    const Val scale = at(0), zero = at(1) - scale * 24.0;
    Val sum;
    for (int number = 0; number < 8; ++number) {
      const Val weight = besideSixteen(b, word, number / 2 * 4 + number % 2 * 16) * scale + zero, term = inOrder.at(b, {Expr(number), r[0]}) * weight;
      sum = number ? sum + term : term;
    }
    return sum;
  })[0];
  return cast(sums, o.out().dtype);
}

Tensors packForTensorCores(OpCall &o) {
  // Two numbers a byte, the first in the high bits.
  const Tensor q = source(o.t("self"));
  const int64_t tiles = o.integer("innerKTiles");
  const Sizes &sizes = o.out().sizes;
  if (tiles != 2 && tiles != 4 && tiles != 8) return o.fail("innerKTiles is not 2, 4 or 8");
  if (sizes.size() != 4 || !o.ctx.equal(mod(q.sizes()[0], 8), 0) || !o.ctx.equal(mod(q.sizes()[1], tiles * 8), 0))
    return o.fail("its weights have no sizes [N, K] with N in multiples of 8 and K in multiples of 16 innerKTiles");
  return {Tensor::lazy(o.ctx, DType::I32, {floorDiv(q.sizes()[0], 8), floorDiv(q.sizes()[1], tiles * 8), Expr(32), Expr(tiles / 2)}, [=](BodyBuilder &b, const Index &i) {
    const Expr row = i[0] * 8 + floorDiv(i[2], 4);
    Val word = b.constantInt(DType::I32, 0);
    for (int64_t part = 0; part < 4; ++part) {
      const Val byte = q.at(b, {row, i[1] * (tiles * 8) + i[3] * 16 + mod(i[2], 4) + part * 4});
      for (int64_t odd = 0; odd < 2; ++odd)
        word = bin(OpKind::Or, word, bin(OpKind::Shl, fourBits(b, byte, 4 - odd * 4), b.constantInt(DType::I32, part * 4 + odd * 16)));
    }
    return word;
  })};
}

Tensors productForTensorCores(OpCall &o) {
  const Tensor x = source(o.t("self")), packed = source(o.t("mat2")), parameters = source(o.t("qScaleAndZeros"));
  if (packed.rank() != 4) return o.fail("its weights are not packed for tensor cores, in four dimensions");
  const Expr n = packed.sizes()[0] * 8, k = x.sizes()[1], tiles = packed.sizes()[3] * 2;
  if (!packed.sizes()[2].isConst(32) || !o.ctx.equal(packed.sizes()[1] * tiles * 16, k)) return o.fail("its weights are not packed for an operand of so many columns");
  const std::optional<Expr> group = groupOf(o, n, k, {{parameters, 2}});
  if (!group) return {};
  // A word has numbers of 32 neighbours.
  const bool dense = packed.asStrided() && packed.asStrided()->strides == denseStrides(packed.sizes());
  if (dense && x.sizes()[0].isConst(1) && group->asConst() && *group->asConst() % 32 == 0) return {rowByWords(o, x, packed, parameters, *group)};
  const Number number = [=](BodyBuilder &b, Expr row, Expr column) {
    const LanePlace at = laneOf(row, column, tiles);
    return fourBits(b, packed.at(b, at.at), at.shift + mod(column, 2) * 16);
  };
  return {product(o, x, n, number, scaledAndMoved(parameters, *group), x.dtype())};
}

// ---- for Intel's GPUs: I32 [N, K / 8], eight neighbours a word; (q - zero) * scale

Tensors productWithZeros(OpCall &o) {
  const Tensor x = source(o.t("self")), packed = source(o.t("mat2")), scales = source(o.t("qScale")), zeros = source(o.t("qZeros"));
  const Expr n = packed.sizes()[0], k = x.sizes()[1];
  if (!o.ctx.equal(packed.sizes()[1] * 8, k)) return o.fail("its weights are not of an eighth as many words a row as its operand has columns");
  const std::optional<Expr> group = groupOf(o, n, k, {{scales, 1}, {zeros, 1}});
  if (!group) return {};
  const Number number = [=](BodyBuilder &b, Expr row, Expr column) {
    return fourBits(b, packed.at(b, {row, floorDiv(column, 8)}), mod(column, 8) * 4);
  };
  const Weight weight = [=](BodyBuilder &b, Val q, Expr row, Expr column) {
    auto at = [&](const Tensor &t) { return b.cast(t.at(b, {floorDiv(column, *group), row}), DType::F32); };
    return (b.cast(q, DType::F32) - at(zeros)) * at(scales);
  };
  return {product(o, x, n, number, weight, x.dtype())};
}

// ---- with operands that are quantised as they come: F32, one byte an element, then scales [N, K / block], then the bias

Tensors packForDynamic(OpCall &o) {
  Tensors parts;
  for (const char *name : {"weights", "scales_zeros", "bias"})
    if (const Tensor x = o.opt(name); x.valid()) parts.push_back(cast(flatten(x), DType::F32));
  return {concat(parts, 0)};
}

/// Each row of x in 8 bits with a sign: what is left of its numbers, less the row's zero point, and 1 / scale. As ATen's own kernel has it.
std::pair<Tensor, Tensor> quantisedRows(const Tensor &x0) {
  const Tensor x = cast(x0, DType::F32).reused();
  const Tensor low = map(amin(x, {1}, true), [](Val v) { return vmin(v, num(v, 0)); });
  const Tensor high = map(amax(x, {1}, true), [](Val v) { return vmax(v, num(v, 0)); });
  constexpr double kLeast = -128, kMost = 127;
  const Tensor ends[] = {low, high};
  const Tensor scale = pointwise(ends, DType::F32, DType::F32, [](std::span<const Val> v) {
    return where(eq(v[0], v[1]), num(v[0], 1), (kMost - kLeast) / (v[1] - v[0]));
  }).realize();
  const Tensor scaled[] = {low, high, scale};
  const Tensor point = pointwise(scaled, DType::F32, DType::F32, [](std::span<const Val> v) {
    const Val least = v[0] * v[2], most = v[1] * v[2];
    const Val p = where((least + kLeast) + (most + kMost) > 0.0, kLeast - least, kMost - most);
    return un(OpKind::Round, vmin(vmax(p, num(p, kLeast)), num(p, kMost)));
  }).realize();
  const Tensor parts[] = {x, scale, point};
  const Tensor q = pointwise(parts, DType::F32, DType::F32, [](std::span<const Val> v) {
    const Val s = v[0] * v[1], whole = un(OpKind::Trunc, s);
    // Halves go away from zero.
    const Val near = whole + where(un(OpKind::Abs, s - whole) >= 0.5, bin(OpKind::CopySign, num(s, 1), s), 0.0);
    return vmin(vmax(near + v[2], num(s, kLeast)), num(s, kMost)) - v[2];
  });
  return {q.realize(), map(scale, [](Val v) { return 1.0 / v; })};
}

Tensors productOfDynamic(OpCall &o) {
  const Tensor x = o.t("inp"), packed = source(o.t("packed_weights"));
  const int64_t k = o.integer("in_features"), n = o.integer("out_features"), block = o.integer("block_size");
  if (packed.dtype() != DType::F32 || packed.rank() != 1) return o.fail("its weights are packed for the kernels of another machine");
  if (k <= 0 || n <= 0 || block <= 0 || k % 2 || k % block || !o.ctx.equal(x.sizes()[1], k)) return o.fail("its blocks and features do not fit each other");
  const int64_t bytes = n * k / 2, scales = n * (k / block);
  const bool biased = o.ctx.equal(packed.numel(), bytes + scales + n);
  if (!biased && !o.ctx.equal(packed.numel(), bytes + scales)) return o.fail("its weights are not packed for so many features");
  const auto [q, inverse] = quantisedRows(x);
  const Number number = [packed, k](BodyBuilder &b, Expr row, Expr column) {
    return fourBits(b, packed.at(b, {row * (k / 2) + floorDiv(column, 2)}), mod(column, 2) * 4);
  };
  const Weight weight = [packed, k, block, bytes](BodyBuilder &b, Val v, Expr row, Expr column) {
    return (b.cast(v, DType::F32) - 8.0) * packed.at(b, {Expr(bytes) + row * (k / block) + floorDiv(column, block)});
  };
  const EpilogueFn epilogue = [=, rows = inverse](BodyBuilder &b, const Index &i, Val sum) {
    const Val v = sum * rows.at(b, {i[0], Expr(0)});
    return biased ? v + packed.at(b, {Expr(bytes + scales) + i[1]}) : v;
  };
  return {product(o, q, n, number, weight, DType::F32, epilogue)};
}

} // namespace

void addPackedInt4(OpTable &t) {
  t.add("_convert_weight_to_int4pack_for_cpu.default", packForCpu);
  t.add("_weight_int4pack_mm_for_cpu.default", productForCpu);
  t.add("_convert_weight_to_int4pack.default", packForTensorCores);
  t.add("_weight_int4pack_mm.default", productForTensorCores);
  t.add("_weight_int4pack_mm_with_scales_and_zeros.default", productWithZeros);
  t.add("_dyn_quant_pack_4bit_weight.default", packForDynamic);
  t.add("_dyn_quant_matmul_4bit.default", productOfDynamic);
}

} // namespace neso::lower
