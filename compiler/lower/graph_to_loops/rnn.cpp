// Recurrent layers over time: one product for the inputs of all steps, one a step for the state. Steps are unrolled, or turns of a loop where their
// number is not known or large.
#include <cmath>

#include "lower/graph_to_loops/op_call.h"
#include "lower/graph_to_loops/turns.h"

namespace neso::lower {

namespace {
enum class Cell { Lstm, Gru, Tanh, Relu };
/// Beyond so many steps there are loops, for the program would grow without bound: of a layer, and of all layers and directions, which take 5 to 20 ms each to compile. On a CPU
/// a turn of several rows takes no longer than an unrolled step; of one row, whose product streams the weight, steps run it forwards and backwards by
/// turns, which is 3 % faster, and of few numbers the turn itself is 10 to 20 %.
constexpr int64_t kMostUnrolled = 256, kMostWhereTurnsAreDear = 1024, kMostOfSeveralRows = 64, kFewNumbers = 64;
struct State {
  Tensor h, c;
};
} // namespace

static Tensor sigmoid(const Tensor &x) { return unary(x, OpKind::Sigmoid); }
static Tensor tanh(const Tensor &x) { return unary(x, OpKind::Tanh); }

/// One step. gx: W_ih x + b_ih of this step [N, G*H].
static State step(Cell kind, const Tensor &gx, const State &s, const Tensor &whh, const Tensor &bhh, Expr hidden) {
  Tensor gh = linear(s.h, whh, bhh);
  auto part = [&](const Tensor &x, int64_t k) { return slice(x, 1, hidden * k, hidden); };
  if (kind == Cell::Tanh || kind == Cell::Relu) {
    Tensor z = add(gx, gh);
    return {kind == Cell::Tanh ? tanh(z) : unary(z, OpKind::Relu), {}};
  }
  if (kind == Cell::Lstm) {
    auto gate = [&](int64_t k) { return add(part(gx, k), part(gh, k)); };
    Tensor c = add(mul(sigmoid(gate(1)), s.c), mul(sigmoid(gate(0)), tanh(gate(2))));
    c.realize();
    return {mul(sigmoid(gate(3)), tanh(c)), c};
  }
  Tensor r = sigmoid(add(part(gx, 0), part(gh, 0))), z = sigmoid(add(part(gx, 1), part(gh, 1)));
  Tensor n = tanh(add(part(gx, 2), mul(r, part(gh, 2))));
  return {add(mul(sub(s.h, n), z), n), {}};
}

/// One direction of one layer.
struct Direction {
  Cell kind;
  bool backwards;
  Tensor whh, bhh, projection; // the last two may be invalid
  Expr hidden;
};

/// The step behind `s` for the inputs gx [N, G*H].
static State next(const Direction &d, const Tensor &gx, const State &s) {
  State out = step(d.kind, gx, s, d.whh, d.bhh, d.hidden);
  if (d.projection.valid()) out.h = linear(out.h, d.projection, {});
  out.h.realize();
  return out;
}

/// The states of all steps [T, N, H], and the last one to `s`. gx: [T, N, G*H].
static Tensor unrolled(const Direction &d, const Tensor &gx, int64_t steps, State &s) {
  Tensors hs(static_cast<size_t>(steps));
  for (int64_t k = 0; k < steps; ++k) {
    const int64_t t = d.backwards ? steps - 1 - k : k;
    s = next(d, select(gx, 0, t), s);
    hs[static_cast<size_t>(t)] = unsqueeze(s.h, 0);
  }
  return hs.size() == 1 ? hs[0] : concat(hs, 0);
}

static Tensor inTurns(Direction d, const Tensor &gx, Expr steps, State &s) {
  Lowering &ctx = gx.ctx();
  // What all turns read is computed before the first one.
  for (Tensor *x : {&d.whh, &d.bhh, &d.projection})
    if (x->valid() && !x->asStrided()) x->realize();
  gx.realize();
  Tensors carried{carry(cast(s.h, gx.dtype()))};
  if (s.c.valid()) carried.push_back(carry(cast(s.c, gx.dtype())));
  Sizes sizes = carried[0].sizes();
  sizes.insert(sizes.begin(), steps);
  const Tensor all = place(ctx, gx.dtype(), sizes);
  // That each row is written in its turn is more than the verifiers can see.
  put(full(ctx, sizes, gx.dtype(), 0), all);
  forTurns(ctx, steps, [&](Expr turn) {
    const Expr t = d.backwards ? steps - 1 - turn : turn;
    const State now = next(d, select(gx, 0, t), {carried[0], s.c.valid() ? carried[1] : Tensor()});
    Strided row = *all.asStrided();
    row.offset = row.offset + t * row.strides[0];
    row.strides.erase(row.strides.begin());
    ctx.store(now.h, row);
    putAll(s.c.valid() ? Tensors{now.h, now.c} : Tensors{now.h}, carried);
  });
  s = {carried[0], s.c.valid() ? carried[1] : Tensor()};
  return all;
}

/// The states of all steps [T, N, H], as the number of steps asks for; `alike`: directions of all layers that go through as many.
static Tensor allSteps(const Direction &d, const Tensor &gx, State &s, int64_t alike = 1) {
  const Expr length = gx.sizes()[0];
  const std::optional<int64_t> steps = length.asConst();
  if (!steps) gx.ctx().require(le(1, length), "a recurrent layer takes sequences of at least one step" + gx.ctx().where());
  const bool severalRows = s.h.sizes()[0].asConst().value_or(2) > 1 && d.hidden.asConst().value_or(0) > kFewNumbers;
  const int64_t most = gx.ctx().turnsAreDear ? kMostWhereTurnsAreDear : severalRows ? kMostOfSeveralRows : kMostUnrolled;
  return steps && *steps <= kMostUnrolled && *steps * alike <= most ? unrolled(d, gx, *steps, s) : inTurns(d, gx, length, s);
}

static Tensors rnnOp(OpCall &o, Cell kind) {
  Tensor x = o.t("input");
  Tensors hx = o.list("hx"), params = o.list("params");
  bool biases = o.flag("has_biases", true), bidirectional = o.flag("bidirectional"), batchFirst = o.flag("batch_first");
  int64_t layers = o.integer("num_layers", 1), directions = bidirectional ? 2 : 1;
  if (o.flag("train") && o.number("dropout", 0) > 0) return o.fail("dropout draws random numbers in training mode");
  bool unbatched = x.rank() == 2;
  auto batchOf = [&](const Tensor &h) { return unbatched ? unsqueeze(h, 1) : h; };
  if (unbatched)
    x = unsqueeze(x, 1);
  else if (batchFirst)
    x = transpose(x, 0, 1);
  if (params.empty() || hx.empty()) return o.fail("weights are missing");
  size_t each = biases ? 4 : 2;
  bool projection = kind == Cell::Lstm && params.size() == static_cast<size_t>(layers * directions) * (each + 1);
  if (projection) ++each;
  if (params.size() != static_cast<size_t>(layers * directions) * each) return o.fail("unexpected number of weights");
  Tensor h0 = batchOf(hx[0]), c0 = kind == Cell::Lstm ? batchOf(hx[1]) : Tensor();
  Tensors lastH, lastC;
  Tensor in = x;
  for (int64_t l = 0; l < layers; ++l) {
    Tensors outs;
    for (int64_t dir = 0; dir < directions; ++dir) {
      size_t at = static_cast<size_t>(l * directions + dir);
      const Tensor *p = &params[at * each];
      Tensor wih = p[0], whh = p[1], bih = biases ? p[2] : Tensor(), bhh = biases ? p[3] : Tensor(),
             proj = projection ? p[each - 1] : Tensor();
      Expr hidden = floorDiv(whh.sizes()[0], kind == Cell::Lstm ? 4 : kind == Cell::Gru ? 3 : 1);
      Tensor gx = linear(in, wih, bih);
      State s{select(h0, 0, static_cast<int64_t>(at)), c0.valid() ? select(c0, 0, static_cast<int64_t>(at)) : Tensor()};
      const Direction d{kind, dir == 1, whh, bhh, proj, hidden};
      outs.push_back(allSteps(d, gx, s, layers * directions));
      lastH.push_back(unsqueeze(s.h, 0));
      if (s.c.valid()) lastC.push_back(unsqueeze(s.c, 0));
    }
    in = outs.size() == 1 ? outs[0] : concat(outs, 2);
  }
  Tensor y = unbatched ? squeeze(in, 1) : batchFirst ? transpose(in, 0, 1) : in;
  auto restore = [&](const Tensors &hs) {
    Tensor h = concat(hs, 0);
    return unbatched ? squeeze(h, 1) : h;
  };
  Tensors out{y, restore(lastH)};
  if (kind == Cell::Lstm) out.push_back(restore(lastC));
  return out;
}

/// One direction of one layer of an LSTM, as PyTorch decomposes it for its library on CPUs.
static Tensors mkldnnLayer(OpCall &o) {
  if (o.integer("mode") != 2) return o.fail("mode is not 2 (LSTM)");
  if (o.flag("train") || o.flag("bidirectional") || o.flag("batch_first") || o.integer("num_layers", 1) != 1 || !o.ints("batch_sizes").empty())
    return o.fail("only one layer and direction, over [steps, batch, features] and without a workspace, is supported");
  const Tensor whh = o.t("weight1");
  const bool biases = o.flag("has_biases", true);
  State s{select(o.t("hx_"), 0, 0), select(o.t("cx_"), 0, 0)};
  const Direction d{Cell::Lstm, o.flag("reverse"), whh, biases ? o.t("weight3") : Tensor(), {}, floorDiv(whh.sizes()[0], 4)};
  const Tensor y = allSteps(d, linear(o.t("input"), o.t("weight0"), biases ? o.t("weight2") : Tensor()), s);
  return {y, unsqueeze(s.h, 0), unsqueeze(s.c, 0), full(o.ctx, o.out(3).sizes, o.out(3).dtype, 0)};
}

static Tensors cellOp(OpCall &o, Cell kind) {
  Tensor x = o.t("input"), whh = o.t("w_hh");
  Tensors hx = o.list("hx");
  Expr hidden = floorDiv(whh.sizes()[0], kind == Cell::Lstm ? 4 : kind == Cell::Gru ? 3 : 1);
  Tensor gx = linear(x, o.t("w_ih"), o.opt("b_ih"));
  bool flat = x.rank() == 1;
  auto two = [flat](const Tensor &t) { return flat ? unsqueeze(t, 0) : t; };
  State s = step(kind, two(gx), {two(hx[0]), kind == Cell::Lstm ? two(hx[1]) : Tensor()}, whh, o.opt("b_hh"), hidden);
  Tensors out{flat ? squeeze(s.h, 0) : s.h};
  if (kind == Cell::Lstm) out.push_back(flat ? squeeze(s.c, 0) : s.c);
  return out;
}

void addRnn(OpTable &t) {
  t.add("lstm.input", [](OpCall &o) { return rnnOp(o, Cell::Lstm); });
  t.add("gru.input", [](OpCall &o) { return rnnOp(o, Cell::Gru); });
  t.add("rnn_tanh.input", [](OpCall &o) { return rnnOp(o, Cell::Tanh); });
  t.add("rnn_relu.input", [](OpCall &o) { return rnnOp(o, Cell::Relu); });
  t.add("mkldnn_rnn_layer.default", mkldnnLayer);
  t.add("lstm_cell.default", [](OpCall &o) { return cellOp(o, Cell::Lstm); });
  t.add("gru_cell.default", [](OpCall &o) { return cellOp(o, Cell::Gru); });
  t.add("rnn_tanh_cell.default", [](OpCall &o) { return cellOp(o, Cell::Tanh); });
  t.add("rnn_relu_cell.default", [](OpCall &o) { return cellOp(o, Cell::Relu); });
}

} // namespace neso::lower
