// Convolutions of one to three spatial dims, transposed ones too, as contractions over (input channel, kernel
// position).
//
// Results lie in memory channels-last, whatever the model says of strides: the channel is the innermost loop of the
// product. A depthwise convolution has nothing to share between its outputs and becomes a plain reduction.
#include <algorithm>
#include <cmath>

#include "base/rules.h"
#include "lower/graph_to_loops/op_call.h"
#include "lower/graph_to_loops/winograd.h"

namespace neso::lower {

namespace {
struct ConvSpec {
  Sizes stride, padding, dilation, outputPadding;
  Expr groups = 1;
  bool transposed = false;
};
} // namespace

DType accumulateType(DType t);

static Sizes spread(Sizes v, size_t n, Expr otherwise) {
  if (v.empty()) v = {otherwise};
  if (v.size() == 1) v.resize(n, v[0]);
  return v;
}

/// channels-last order of a tensor [N, C, spatial…]
static std::vector<int> channelsLast(size_t rank) {
  std::vector<int> order{0};
  for (size_t d = 2; d < rank; ++d) order.push_back(static_cast<int>(d));
  order.push_back(1);
  return order;
}

/// Whether outputs of a transposed convolution fall into phases (see byPhases), all of it known at compile time.
static bool hasPhases(const ConvSpec &c, const Sizes &kernel) {
  bool strided = false;
  for (size_t d = 0; d < kernel.size(); ++d) {
    if (!c.stride[d].isConst() || !c.padding[d].isConst() || !kernel[d].isConst()) return false;
    if (!c.dilation[d].isConst(1)) return false;
    strided |= !c.stride[d].isConst(1);
  }
  return c.transposed && strided;
}

/// The first tap that phase `f` meets along dimension d.
static Expr firstTap(const ConvSpec &c, size_t d, Expr phase) { return mod(phase + c.padding[d], c.stride[d]); }

/// Weights of a transposed convolution as its phases take them, [g, phase…, tap…, I/g, O/g]: zero where a phase has
/// fewer taps.
static Tensor weightsByPhase(Lowering &ctx, const Tensor &w, const ConvSpec &c, const Sizes &taps, Expr inPer,
                             Expr outPer) {
  const size_t spatial = taps.size();
  const DType t = w.dtype();
  const Sizes kernel(w.sizes().begin() + 2, w.sizes().end());
  Sizes order{c.groups};
  order.insert(order.end(), c.stride.begin(), c.stride.end());
  order.insert(order.end(), taps.begin(), taps.end());
  order.push_back(inPer), order.push_back(outPer);
  Tensor weights = ctx.fold(Tensor::lazy(ctx, t, order, [=](BodyBuilder &b, const Index &i) {
    Index at{i[0] * inPer + i[i.size() - 2], i.back()};
    Val ok = b.isTrue();
    for (size_t d = 0; d < spatial; ++d) {
      Expr tap = firstTap(c, d, i[1 + d]) + c.stride[d] * i[1 + spatial + d];
      ok = ok && b.inRange(tap, 0, kernel[d]);
      at.push_back(tap);
    }
    return b.masked(ok, [&] { return w.at(b, at); }, b.constant(computeType(t), 0));
  }));
  return weights.realize();
}

namespace {

/// A convolution of real tensors that lie in memory; copied into the bodies that it makes.
struct Convolution {
  Lowering &ctx;
  Tensor x, w, bias;
  ConvSpec c;
  Sizes outSizes;
  DType out, t; // of the result; of x and w
  size_t spatial = x.sizes().size() - 2;
  Expr groups = c.groups, inPer = floorDiv(x.sizes()[1], groups), outPer = floorDiv(outSizes[1], groups); // channels of a group
  Sizes kernel = Sizes(w.sizes().begin() + 2, w.sizes().end()), in = Sizes(x.sizes().begin() + 2, x.sizes().end());
  bool phases = hasPhases(c, kernel);
  DType acc = accumulateType(t), value = computeType(t);

  bool isPlain3x3() const {
    auto all = [&](const Sizes &sizes, int64_t n) { return std::all_of(sizes.begin(), sizes.end(), [n](Expr e) { return e.isConst(n); }); };
    return spatial == 2 && !c.transposed && groups.isConst(1) && all(kernel, 3) && all(c.stride, 1) && all(c.dilation, 1) && t == DType::F32 && out == DType::F32;
  }
  bool isDepthwise() const { return inPer.isConst(1) && (outPer.isConst(1) || !groups.isConst(1)); }
  /// For a depthwise convolution, whose lanes are channels: the weights of one kernel position lie side by side.
  void putChannelsInnermost() {
    std::vector<int> order;
    for (size_t d = 0; d < spatial; ++d) order.push_back(static_cast<int>(d) + 2);
    order.insert(order.end(), {1, 0});
    w = ctx.constantInOrder(w, order);
  }

  Tensor depthwise() const;
  Tensor byPhases() const;
  Tensor byProduct() const;

private:
  Index inputAt(BodyBuilder &b, Expr batch, Expr channel, const std::vector<Expr> &o, const std::vector<Expr> &k, Val &ok) const;
  Val weightAt(BodyBuilder &b, Expr group, Expr oc, Expr ic, const std::vector<Expr> &k) const;
  Val depthwiseTerm(BodyBuilder &b, const Index &i, const Index &r) const;
  /// Adds the bias; the product's indices begin with the group and end with the channel of the group.
  void addBias(ContractionSpec &spec) const;
  Tensor seenAs(const Tensor &product, const Sizes &strides) const;
};

/// Position of the input element that kernel position k meets at output position o; its condition goes to `ok`.
Index Convolution::inputAt(BodyBuilder &b, Expr batch, Expr channel, const std::vector<Expr> &o,
                           const std::vector<Expr> &k, Val &ok) const {
  Index j{batch, channel};
  for (size_t d = 0; d < spatial; ++d) {
    Expr e;
    if (!c.transposed) {
      e = o[d] * c.stride[d] - c.padding[d] + k[d] * c.dilation[d];
      if (!c.padding[d].isConst(0)) ok = ok && b.inRange(e, 0, in[d]);
    } else {
      Expr n = o[d] + c.padding[d] - k[d] * c.dilation[d];
      if (!c.stride[d].isConst(1)) ok = ok && b.compare(OpKind::Eq, mod(n, c.stride[d]), 0);
      e = floorDiv(n, c.stride[d]);
      ok = ok && b.inRange(e, 0, in[d]);
    }
    j.push_back(e);
  }
  return j;
}

/// weight: [O, I/g, k…], or transposed [I, O/g, k…].
Val Convolution::weightAt(BodyBuilder &b, Expr group, Expr oc, Expr ic, const std::vector<Expr> &k) const {
  Index j = c.transposed ? Index{group * inPer + ic, oc} : Index{group * outPer + oc, ic};
  j.insert(j.end(), k.begin(), k.end());
  return w.at(b, j);
}

void Convolution::addBias(ContractionSpec &spec) const {
  if (!bias.valid()) return;
  spec.epilogue = [bias = bias, outPer = outPer](BodyBuilder &b, const Index &i, Val sum) {
    return sum + b.cast(bias.at(b, {i[0] * outPer + i.back()}), sum.dtype);
  };
}

/// The memory of a product, seen as the result [N, C, out…].
Tensor Convolution::seenAs(const Tensor &product, const Sizes &strides) const {
  Strided where;
  where.buffer = product.asStrided()->buffer;
  where.dtype = out;
  where.strides = strides;
  return Tensor::strided(ctx, out, outSizes, where);
}

/// What kernel position r adds at output position i.
Val Convolution::depthwiseTerm(BodyBuilder &b, const Index &i, const Index &r) const {
  Val ok = b.isTrue();
  std::vector<Expr> o(i.begin() + 2, i.end()), k(r.begin() + 1, r.end());
  // Of a transposed one only the taps that meet an element: see byPhases.
  for (size_t d = 0; d < spatial && phases; ++d) {
    k[d] = mod(o[d] + c.padding[d], c.stride[d]) + c.stride[d] * k[d];
    ok = ok && b.inRange(k[d], 0, kernel[d]);
  }
  Expr group = outPer.isConst(1) ? i[1] : floorDiv(i[1], outPer),
       oc = outPer.isConst(1) ? Expr(0) : mod(i[1], outPer);
  Index j = inputAt(b, i[0], group * inPer + r[0], o, k, ok);
  Val element = b.masked(ok, [&] { return x.at(b, j); }, b.constant(value, 0));
  auto weight = [&] { return weightAt(b, group, oc, r[0], k); };
  Val factor = phases ? b.masked(ok, weight, b.constant(value, 0)) : weight();
  return b.cast(element, acc) * b.cast(factor, acc);
}

/// Nothing is shared between outputs: a plain reduction over the kernel.
Tensor Convolution::depthwise() const {
  applied(Rule::DepthwiseConvolution);
  Sizes reduced{inPer};
  for (size_t d = 0; d < spatial; ++d) reduced.push_back(phases ? ceilDiv(kernel[d], c.stride[d]) : kernel[d]);
  auto term = [self = *this](BodyBuilder &b, const Index &i, const Index &r) { return self.depthwiseTerm(b, i, r); };
  Tensor s = ctx.reduce(loops::ReduceKind::Sum, acc, outSizes, reduced, term, channelsLast(spatial + 2))[0];
  if (bias.valid()) {
    Sizes sizes(outSizes.size(), Expr(1));
    sizes[1] = outSizes[1];
    s = add(s, cast(reshape(bias, sizes), acc));
  }
  if (out == acc) return s;
  // Stored as the model has it: whoever reads it would read the sums, which are wider.
  return cast(s, out).withOrder(channelsLast(spatial + 2)).realize();
}

/// A transposed convolution with strides. Output o = m s + f of phase f < s meets the taps k = k0 + s t alone, with
/// k0 = (f + padding) mod s, and input m + (f + padding) div s - t: each phase is a product with weights of its own, and
/// all phases are one batch of products, over ceil(K / s) taps in place of K.
Tensor Convolution::byPhases() const {
  applied(Rule::ConvolutionByPhases);
  Sizes steps, taps;
  for (size_t d = 0; d < spatial; ++d) {
    steps.push_back(ceilDiv(outSizes[d + 2], c.stride[d]));
    taps.push_back(ceilDiv(kernel[d], c.stride[d]));
  }
  const Tensor weights = weightsByPhase(ctx, w, c, taps, inPer, outPer);
  ContractionSpec spec;
  spec.ranges = {groups};
  spec.ranges.insert(spec.ranges.end(), c.stride.begin(), c.stride.end());
  spec.ranges.push_back(outSizes[0]);
  spec.ranges.insert(spec.ranges.end(), steps.begin(), steps.end());
  spec.ranges.push_back(outPer);
  spec.reduceRanges = taps;
  spec.reduceRanges.push_back(inPer);
  spec.operandType = t, spec.accType = acc, spec.outType = out;
  spec.lhs = [self = *this](BodyBuilder &b, const Index &i, const Index &r) {
    const ConvSpec &c = self.c;
    const size_t spatial = self.spatial;
    Val ok = b.isTrue();
    Index at{i[1 + spatial], i[0] * self.inPer + r.back()};
    for (size_t d = 0; d < spatial; ++d) {
      Expr e = i[2 + spatial + d] + floorDiv(i[1 + d] + c.padding[d], c.stride[d]) - r[d];
      ok = ok && b.inRange(e, 0, self.in[d]);
      at.push_back(e);
    }
    return b.masked(ok, [&] { return self.x.at(b, at); }, b.constant(self.value, 0));
  };
  spec.rhs = [weights, spatial = spatial](BodyBuilder &b, const Index &i, const Index &r) {
    Index at(i.begin(), i.begin() + static_cast<int64_t>(spatial) + 1);
    at.insert(at.end(), r.begin(), r.end());
    at.push_back(i.back());
    return weights.at(b, at);
  };
  addBias(spec);
  // Memory: channels-last, of as many elements a dimension as all phases have; a view of it is the result.
  Sizes padded{outSizes[0], outSizes[1]};
  for (size_t d = 0; d < spatial; ++d) padded.push_back(steps[d] * c.stride[d]);
  const Sizes strides = denseStrides(padded, channelsLast(spatial + 2));
  spec.strides = {outPer};
  for (size_t d = 0; d < spatial; ++d) spec.strides.push_back(strides[d + 2]);
  spec.strides.push_back(strides[0]);
  for (size_t d = 0; d < spatial; ++d) spec.strides.push_back(strides[d + 2] * c.stride[d]);
  spec.strides.push_back(1);
  return seenAs(ctx.contract(spec), strides);
}

/// Ranges [g, N, out…, O/g]; reduced [kernel…, I/g] with the channel innermost, as it lies in memory.
Tensor Convolution::byProduct() const {
  ContractionSpec spec;
  spec.ranges = {groups, outSizes[0]};
  spec.ranges.insert(spec.ranges.end(), outSizes.begin() + 2, outSizes.end());
  spec.ranges.push_back(outPer);
  spec.reduceRanges = kernel;
  spec.reduceRanges.push_back(inPer);
  spec.operandType = t, spec.accType = acc, spec.outType = out;
  spec.lhs = [self = *this](BodyBuilder &b, const Index &i, const Index &r) {
    Val ok = b.isTrue();
    std::vector<Expr> o(i.begin() + 2, i.end() - 1), k(r.begin(), r.end() - 1);
    Index j = self.inputAt(b, i[1], i[0] * self.inPer + r.back(), o, k, ok);
    return b.masked(ok, [&] { return self.x.at(b, j); }, b.constant(self.value, 0));
  };
  spec.rhs = [self = *this](BodyBuilder &b, const Index &i, const Index &r) {
    std::vector<Expr> k(r.begin(), r.end() - 1);
    return self.weightAt(b, i[0], i.back(), r.back(), k);
  };
  addBias(spec);
  // Memory: [N, out…, g, O/g], so that channels are innermost and contiguous.
  std::vector<int> order;
  for (size_t d = 1; d + 1 < spec.ranges.size(); ++d) order.push_back(static_cast<int>(d));
  order.push_back(0);
  order.push_back(static_cast<int>(spec.ranges.size()) - 1);
  spec.strides = denseStrides(spec.ranges, order);
  return seenAs(ctx.contract(spec), denseStrides(outSizes, channelsLast(spatial + 2)));
}

} // namespace

static Tensor convolve(Lowering &ctx, Tensor x, Tensor w, const Tensor &bias, const ConvSpec &c, const Sizes &outSizes,
                       DType out);

/// (a + bi)(c + di) by four convolutions of real tensors.
static Tensor convolveComplex(Lowering &ctx, const Tensor &x, const Tensor &w, const Tensor &bias, const ConvSpec &c,
                              const Sizes &outSizes, DType out) {
  DType r = toReal(out);
  Tensor none;
  Tensor rr = convolve(ctx, x.real(), w.real(), none, c, outSizes, r),
         ii = convolve(ctx, x.imag(), w.imag(), none, c, outSizes, r);
  Tensor ri = convolve(ctx, x.real(), w.imag(), none, c, outSizes, r),
         ir = convolve(ctx, x.imag(), w.real(), none, c, outSizes, r);
  Tensor y = Tensor::complex(sub(rr, ii), add(ri, ir), out);
  if (!bias.valid()) return y;
  Sizes s(outSizes.size(), Expr(1));
  s[1] = outSizes[1];
  return add(y, reshape(bias, s));
}

/// x with its channels side by side, where a product reads each element for several kernel positions and would find them
/// apart: one copy costs less than that (a tenth of the time on CPUs; GPUs copy into shared memory by 16 bytes then).
static Tensor withChannelsInnermost(Lowering &ctx, const Tensor &x, const Tensor &w, const ConvSpec &c) {
  std::optional<Strided> where = x.asStrided();
  const Expr channels = floorDiv(x.sizes()[1], c.groups);
  // Narrow ones are multiplied in pairs and more, of more channels.
  const int64_t least = itemSize(x.dtype()) >= 4 ? ctx.leastChannels : std::max<int64_t>(ctx.leastChannels, 16);
  const Expr positions = product(Sizes(w.sizes().begin() + 2, w.sizes().end()));
  if (!where || where->strides[1].isConst(1) || positions.isConst(1) || ctx.facts.rangeOf(channels).lo < least) return x;
  Tensor copy = Tensor::lazy(ctx, x.dtype(), x.sizes(), [x](BodyBuilder &b, const Index &i) { return x.at(b, i); });
  copy.realizeWith(denseStrides(x.sizes(), channelsLast(x.sizes().size())));
  return copy;
}

static Tensor convolve(Lowering &ctx, Tensor x, Tensor w, const Tensor &bias, const ConvSpec &c, const Sizes &outSizes,
                       DType out) {
  if (x.isComplex() || w.isComplex()) return convolveComplex(ctx, x, w, bias, c, outSizes, out);
  DType t = promote(x.dtype(), w.dtype());
  x = cast(x, t);
  w = cast(w, t);
  if (!x.asStrided()) x.withOrder(channelsLast(x.sizes().size())).realize();
  if (!w.asStrided()) w.realize();
  x = withChannelsInnermost(ctx, x, w, c);
  Convolution conv{ctx, x, w, bias, c, outSizes, out, t};
  if (conv.isPlain3x3())
    if (std::optional<Tensor> y = convolveByWinograd(ctx, x, w, bias, c.padding, outSizes)) return *y;
  const bool depthwise = conv.isDepthwise();
  if (depthwise && !c.transposed) conv.putChannelsInnermost();
  return depthwise ? conv.depthwise() : conv.phases ? conv.byPhases() : conv.byProduct();
}

static Tensors convOp(OpCall &o) {
  const std::string &n = o.node.target;
  Tensor x = o.t("input"), w = o.t("weight"), bias = o.opt("bias");
  size_t spatial = w.sizes().size() - 2;
  bool unbatched = x.sizes().size() == spatial + 1;
  if (unbatched) x = unsqueeze(x, 0);
  ConvSpec c;
  c.transposed = n.find("transpose") != std::string::npos || o.flag("transposed");
  c.stride = spread(o.exprs("stride"), spatial, 1);
  c.dilation = spread(o.exprs("dilation"), spatial, 1);
  c.groups = o.expr("groups", 1);
  std::string mode = o.text("padding");
  if (mode == "same") {
    // Uneven totals put the larger half behind.
    for (size_t d = 0; d < spatial; ++d) c.padding.push_back(floorDiv(c.dilation[d] * (w.sizes()[d + 2] - 1), 2));
  } else if (mode == "valid") {
    c.padding = Sizes(spatial, Expr(0));
  } else {
    c.padding = spread(o.exprs("padding"), spatial, 0);
  }
  if (mode == "same") {
    bool uneven = false;
    for (size_t d = 0; d < spatial; ++d)
      uneven |= !o.ctx.equal(c.padding[d] * 2, c.dilation[d] * (w.sizes()[d + 2] - 1));
    if (uneven) {
      Sizes before(spatial + 2, Expr(0)), after = before;
      for (size_t d = 0; d < spatial; ++d) {
        before[d + 2] = c.padding[d];
        after[d + 2] = c.dilation[d] * (w.sizes()[d + 2] - 1) - c.padding[d];
      }
      x = pad(x, before, after, 0);
      c.padding = Sizes(spatial, Expr(0));
    }
  }
  Sizes outSizes = o.out().sizes;
  if (unbatched) outSizes.insert(outSizes.begin(), Expr(1));
  // Padding that no output reaches on the right still needs no mask; inRange() finds that out.
  Tensor y = convolve(o.ctx, x, w, bias, c, outSizes, o.out().dtype);
  return {unbatched ? select(y, 0, 0) : y};
}

/// d loss / d weight [A, B/g, k…] = sum over n, p of a[n, A, p] b[n, B, p stride - padding + k dilation]: a is the gradient of a
/// convolution's result and b its input; of a transposed one they change places.
static Tensor weightGradient(Lowering &ctx, const Tensor &a, const Tensor &b, const ConvSpec &c, const Sizes &sizes, DType t) {
  const size_t spatial = sizes.size() - 2;
  const Expr aPer = floorDiv(sizes[0], c.groups), bPer = sizes[1];
  const Sizes in(b.sizes().begin() + 2, b.sizes().end());
  const DType value = computeType(t);
  ContractionSpec spec;
  spec.ranges = {c.groups, aPer, bPer};
  spec.ranges.insert(spec.ranges.end(), sizes.begin() + 2, sizes.end());
  spec.reduceRanges = {a.sizes()[0]};
  spec.reduceRanges.insert(spec.reduceRanges.end(), a.sizes().begin() + 2, a.sizes().end());
  spec.operandType = t, spec.accType = accumulateType(t), spec.outType = t;
  spec.lhs = [=](BodyBuilder &e, const Index &i, const Index &r) {
    Index at{r[0], i[0] * aPer + i[1]};
    at.insert(at.end(), r.begin() + 1, r.end());
    return a.at(e, at);
  };
  spec.rhs = [=](BodyBuilder &e, const Index &i, const Index &r) {
    Val ok = e.isTrue();
    Index at{r[0], i[0] * bPer + i[2]};
    for (size_t d = 0; d < spatial; ++d) {
      at.push_back(r[d + 1] * c.stride[d] - c.padding[d] + i[d + 3] * c.dilation[d]);
      ok = ok && e.inRange(at.back(), 0, in[d]);
    }
    return e.masked(ok, [&] { return b.at(e, at); }, e.constant(value, 0));
  };
  return reshape(ctx.contract(spec), sizes);
}

/// Gradients of the input, the weight and the bias, as many of them as output_mask asks for.
static Tensors convBackward(OpCall &o) {
  const Tensor grad = source(o.t("grad_output")), x = source(o.t("input")), w = source(o.t("weight"));
  if (grad.isComplex() || x.isComplex() || w.isComplex()) return o.fail("complex numbers are not supported here");
  const size_t spatial = w.sizes().size() - 2;
  if (x.sizes().size() != spatial + 2) return o.fail("its input has no batch dimension");
  ConvSpec c;
  c.stride = spread(o.exprs("stride"), spatial, 1), c.padding = spread(o.exprs("padding"), spatial, 0);
  c.dilation = spread(o.exprs("dilation"), spatial, 1), c.groups = o.expr("groups", 1);
  const bool transposed = o.flag("transposed");
  o.mustAgree(grad.size(0), x.size(0), "'grad_output' and 'input' have one batch");
  o.mustAgree((transposed ? x : grad).size(1), w.size(0), "'weight' has the channels of 'input' and 'grad_output'");
  o.mustAgree((transposed ? grad : x).size(1), w.size(1) * c.groups, "'weight' has the channels of 'input' and 'grad_output'");
  const std::vector<Expr> added = spread(o.exprs("output_padding"), spatial, 0);
  for (size_t d = 0; d < spatial; ++d) {
    const int64_t at = static_cast<int64_t>(d) + 2;
    const Expr window = c.dilation[d] * (w.size(at) - 1) + 1, around = c.padding[d] * 2;
    const Expr result = transposed ? (x.size(at) - 1) * c.stride[d] - around + window + added[d] : floorDiv(x.size(at) + around - window, c.stride[d]) + 1;
    o.mustAgree(grad.size(at), result, "'grad_output' is as large as the convolution's result");
  }
  Tensors out(3);
  const std::vector<bool> *asked = o.node.arg("output_mask") ? std::get_if<std::vector<bool>>(o.node.arg("output_mask")) : nullptr;
  if (!asked || asked->size() != 3) return o.fail("output_mask is no list of three");
  if ((*asked)[0]) {
    ConvSpec back = c;
    back.transposed = !transposed;
    out[0] = convolve(o.ctx, grad, w, {}, back, x.sizes(), x.dtype());
  }
  if ((*asked)[1]) out[1] = weightGradient(o.ctx, transposed ? x : grad, transposed ? grad : x, c, w.sizes(), w.dtype());
  if ((*asked)[2]) {
    Dims others{0};
    for (size_t d = 0; d < spatial; ++d) others.push_back(static_cast<int64_t>(d) + 2);
    out[2] = sum(grad, others, false, grad.dtype());
  }
  // The model has a value for each that is asked for, and maybe for the others.
  Tensors results;
  for (size_t e = 0; e < o.node.outputs.size() && e < out.size(); ++e)
    if (!o.node.outputs[e].empty()) results.push_back(out[e]);
  return results;
}

/// A convolution of [steps, batch, channels] by a weight [width, channels, results].
static Tensors convOfSteps(OpCall &o) {
  ConvSpec c;
  c.stride = c.dilation = {Expr(1)}, c.padding = {o.expr("pad", 0)};
  const Sizes &out = o.out().sizes;
  const Tensor y = convolve(o.ctx, permute(o.t("self"), {1, 2, 0}), permute(o.t("weight"), {2, 1, 0}), o.t("bias"), c, {out[1], out[2], out[0]}, o.out().dtype);
  return {permute(y, {2, 0, 1})};
}

void addConv(OpTable &t) {
  t.add("conv_tbc.default", convOfSteps);
  t.add("conv1d.default conv2d.default conv3d.default conv1d.padding conv2d.padding conv3d.padding "
        "conv_transpose1d.default "
        "conv_transpose2d.input conv_transpose3d.input convolution.default _convolution.default",
        convOp);
  t.add("convolution_backward.default", convBackward);
  t.onComplex(OnComplex::Own, "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution _convolution");
}

} // namespace neso::lower
