// Numbers and sizes that the data decides: item, nonzero, boolean indices, bins, repetitions.
//
// A count is computed as a tensor, read into a symbol (loops::ReadSpec), and what has that size is computed behind it:
//
//     nonzero(x) [u0, rank]:  count = sum(x != 0);  u0 = read count;  k-th true element by a running sum -> its position
#include "lower/graph_to_loops/data_sizes.h"

#include <algorithm>

#include "lower/graph_to_loops/bisect.h"
#include "lower/graph_to_loops/op_call.h"

namespace neso::lower {

// ---- Lowering: which numbers are known

bool Lowering::isKnown(Expr e) const {
  if (!e.valid()) return true;
  for (Symbol s : symbolsOf(e))
    if (!known_.count(s)) return false;
  return true;
}

bool Lowering::isRead(Expr e) const {
  const std::vector<Symbol> symbols = symbolsOf(e);
  return std::all_of(symbols.begin(), symbols.end(), [&](Symbol s) { return known_.count(s) || late_.count(s); });
}

void Lowering::learn(Expr e) {
  if (!e.valid()) return;
  for (Symbol s : symbolsOf(e)) known_.insert(s);
}

std::string Lowering::where() const {
  if (!current || current->loc.file.empty()) return "";
  return fmt::format(" ({}:{})", current->loc.file, current->loc.line);
}

void Lowering::require(Expr condition, std::string message) {
  const std::vector<Symbol> symbols = symbolsOf(condition);
  const bool late = std::any_of(symbols.begin(), symbols.end(), [&](Symbol s) { return late_.count(s) != 0; });
  if (late)
    addAssertion(program.assertions, {condition, std::move(message)});
  else
    program.guards.push_back(condition);
}

void Lowering::demand(Expr condition, std::string what) {
  condition = facts.simplify(condition);
  if (!condition.isConst(1)) demands_.push_back({condition, std::move(what) + where()});
}

void Lowering::readInto(const Tensor &x, Symbol symbol, std::optional<int64_t> turn) {
  const Tensor scalar = reshape(x, {});
  std::optional<Strided> at = scalar.asStrided();
  if (!at || !at->offset.isConst(0)) {
    at = allocate(x.dtype(), {});
    store(scalar, *at);
  }
  addNode(loops::ReadSpec{at->buffer, symbol, turn});
  known_.insert(symbol), late_.insert(symbol);
  // What the compiler takes for granted of the number must hold.
  const Interval range = facts.range(symbol);
  program.facts.setRange(symbol, range);
  auto bound = [&](Expr condition) {
    require(condition, fmt::format("'{}' is {{{}}}, outside of its range in the model: {}{}", current ? current->name : "",
                                   symbol.str(), condition.str(), where()));
  };
  if (range.lo != INT64_MIN) bound(le(range.lo, symbol));
  if (range.hi != INT64_MAX) bound(le(symbol, range.hi));
}

Symbol Lowering::freshSymbol(const std::string &like) { return Symbol::size(fmt::format("{}.{}", like, reads_++)); }

Expr Lowering::read(const Tensor &x) {
  const Symbol symbol = freshSymbol("read");
  readInto(x, symbol);
  if (x.dtype() == DType::Bool) bound(symbol, {0, 1});
  return symbol;
}

Expr Lowering::readTurn(const Tensor &x, int64_t from) {
  const Symbol symbol = freshSymbol("read");
  readInto(x, symbol, from);
  bound(symbol, {0, INT64_MAX});
  return symbol;
}

void Lowering::bound(Symbol symbol, Interval range) {
  facts.setRange(symbol, range);
  program.facts.setRange(symbol, range);
}

std::vector<loops::Node> Lowering::block(const std::function<void()> &fill) {
  std::vector<loops::Node> nodes;
  const Known around = known_;
  const Expr drawn = counters_;
  std::swap(nodes, program.nodes);
  ++depth_;
  fill();
  if (counters_ != drawn) countDraws(counters_ - drawn);
  counters_ = drawn;
  --depth_;
  std::swap(nodes, program.nodes);
  known_ = around;
  return nodes;
}

void Lowering::define(const Tensor &x, Expr wanted) {
  if (wanted.isSymbol() && !isKnown(wanted)) return readInto(x, wanted.symbol());
  if (x.dtype() == DType::Bool && wanted.kind() == ExprKind::Eq && !isKnown(wanted))
    for (size_t k : {0, 1})
      if (wanted.operands()[k].isSymbol() && wanted.operands()[1 - k].isConst(1))
        return readInto(x, wanted.operands()[k].symbol());
  const Expr given = read(x);
  require(eq(given, wanted), fmt::format("'{}' gives {{{}}} where the model says {}{}", current ? current->name : "", given.str(), wanted.str(), where()));
}

/// The number; nothing is divided by 0.
static Val inDoubles(BodyBuilder &b, const DoubleExpr &e) {
  using Kind = DoubleExpr::Kind;
  auto of = [&](size_t k) { return inDoubles(b, e.of[k]); };
  switch (e.kind) {
  case Kind::Whole: return b.cast(b.index(e.whole), DType::F64);
  case Kind::Number: return b.constant(DType::F64, e.number);
  case Kind::Add: return of(0) + of(1);
  case Kind::Mul: return of(0) * of(1);
  case Kind::Div: return of(0) / of(1);
  case Kind::Min: return vmin(of(0), of(1));
  case Kind::Max: return vmax(of(0), of(1));
  case Kind::Sqrt: return un(OpKind::Sqrt, of(0));
  }
  NESO_UNREACHABLE("operator of doubles");
}

static void demandDivisors(Lowering &ctx, const DoubleExpr &e) {
  for (const DoubleExpr &o : e.of) demandDivisors(ctx, o);
  if (e.kind == DoubleExpr::Kind::Div && e.of[1].kind == DoubleExpr::Kind::Whole && ctx.facts.rangeOf(e.of[1].whole).lo <= 0)
    ctx.require(ne(e.of[1].whole, 0), "division by zero where a size is computed");
}

void defineRounded(Lowering &ctx, const RoundedSize &size) {
  constexpr OpKind kKinds[] = {OpKind::Trunc, OpKind::Floor, OpKind::Ceil, OpKind::Round};
  demandDivisors(ctx, size.of);
  const Tensor number = Tensor::lazy(ctx, DType::I64, {}, [&](BodyBuilder &b, const Index &) {
    return b.cast(un(kKinds[static_cast<size_t>(size.rounding)], inDoubles(b, size.of)), DType::I64);
  });
  ctx.define(number.realize(), size.symbol);
}

// ---- what a mask takes

Tensor countUp(const Tensor &mask) {
  return mask.ctx().scan(loops::ScanKind::Sum, DType::I64, mask.sizes(), 0, false,
                         [mask](BodyBuilder &b, const Index &i) { return b.cast(mask.at(b, i), DType::I64); });
}

/// Elements of a mask that are counted together: a row of it.
constexpr int64_t kMaskRow = 1024;

/// The same as positionsOf, by rows: how many each has, how many those before it have, and the places inside a row, of 32 bits. Rows are
/// independent of one another.
static Tensor positionsByRows(const Tensor &mask, Expr count, bool asserted) {
  Lowering &ctx = mask.ctx();
  const Expr n = mask.numel(), rows = ceilDiv(n, kMaskRow);
  const Tensor inRows = Tensor::lazy(ctx, DType::Bool, {rows, Expr(kMaskRow)}, [=](BodyBuilder &b, const Index &i) {
    const Expr at = i[0] * kMaskRow + i[1];
    return b.masked(b.compare(OpKind::Lt, at, n), [&] { return mask.at(b, {at}); }, b.constant(DType::Bool, 0));
  });
  auto one = [inRows](BodyBuilder &b, Expr row, Expr column) { return b.cast(inRows.at(b, {row, column}), DType::I64); };
  const Tensor own = ctx.reduce(loops::ReduceKind::Sum, DType::I64, {rows}, {Expr(kMaskRow)}, [=](BodyBuilder &b, const Index &i, const Index &r) { return one(b, i[0], r[0]); })[0];
  ctx.define(reduceDims(loops::ReduceKind::Sum, own, {}, false, DType::I64), count);
  const Tensor upTo = ctx.scan(loops::ScanKind::Sum, DType::I64, {rows}, 0, false, [own](BodyBuilder &b, const Index &i) { return own.at(b, i); });
  const Tensor within = ctx.scan(loops::ScanKind::Sum, DType::I32, inRows.sizes(), 1, false, [=](BodyBuilder &b, const Index &i) { return b.cast(inRows.at(b, i), DType::I32); });
  const Strided w = ctx.allocate(DType::I64, {count});
  ctx.scatter(
      inRows.sizes(),
      [&](BodyBuilder &b, const Index &i) {
        const Val rank = b.cast(within.at(b, i), DType::I64) + (upTo.at(b, {i[0]}) - own.at(b, {i[0]}));
        Val take = inRows.at(b, i);
        if (asserted) take = take && rank <= b.index(count);
        return Lowering::ScatterItem{{b.indirect(where(take, rank - 1.0, b.constantInt(DType::I64, 0)), count, false, false)}, b.index(i[0] * kMaskRow + i[1]), take};
      },
      w, DType::I64, loops::StoreMode::Set);
  return Tensor::strided(ctx, DType::I64, {count}, w);
}

Tensor positionsOf(const Tensor &mask, Expr count, const Tensor &counted) {
  Lowering &ctx = mask.ctx();
  const Tensor m = flatten(cast(mask, DType::Bool)).reused();
  // A count that only is asserted to be `count` may be another; nothing is stored beyond.
  const bool asserted = ctx.isKnown(count);
  if (!counted.valid() && m.numel().asConst().value_or(kMaskRow + 1) > kMaskRow) return positionsByRows(m, count, asserted);
  ctx.define(ctx.reduce(loops::ReduceKind::Sum, DType::I64, {}, m.sizes(),
                        [m](BodyBuilder &b, const Index &, const Index &r) { return b.cast(m.at(b, r), DType::I64); })[0],
             count);
  if (mask.numel().isConst(0)) return full(ctx, {count}, DType::I64, 0);
  const Tensor rank = counted.valid() ? counted : countUp(m);
  const Strided w = ctx.allocate(DType::I64, {count});
  ctx.scatter(
      m.sizes(),
      [&](BodyBuilder &b, const Index &i) {
        Val take = m.at(b, i);
        if (asserted) take = take && rank.at(b, i) <= b.index(count);
        Expr row = b.indirect(where(take, rank.at(b, i) - 1.0, b.constantInt(DType::I64, 0)), count, false, false);
        return Lowering::ScatterItem{{row}, b.index(i[0]), take};
      },
      w, DType::I64, loops::StoreMode::Set);
  return Tensor::strided(ctx, DType::I64, {count}, w);
}

Tensors coordinatesOf(const Tensor &positions, const Sizes &sizes) {
  Tensors out;
  const Sizes strides = denseStrides(sizes);
  for (size_t d = 0; d < sizes.size(); ++d)
    out.push_back(Tensor::lazy(positions.ctx(), DType::I64, positions.sizes(), [=](BodyBuilder &b, const Index &i) {
      Val at = positions.at(b, i);
      if (!strides[d].isConst(1)) at = bin(OpKind::FloorDiv, at, b.index(strides[d]));
      return d == 0 ? at : bin(OpKind::Mod, at, b.index(sizes[d]));
    }));
  return out;
}

namespace {

Tensor isTrue(const Tensor &x) {
  if (!x.isComplex()) return cast(x, DType::Bool);
  return binary(OpKind::Or, cast(x.real(), DType::Bool), cast(x.imag(), DType::Bool));
}

/// Rows of coordinates, side by side.
Tensors nonzeroOp(OpCall &o) {
  const Tensor mask = isTrue(o.t("self"));
  const Expr count = o.out().sizes[0];
  const Tensors at = coordinatesOf(positionsOf(mask, count), mask.sizes());
  if (at.empty()) return {full(o.ctx, {count, Expr(0)}, DType::I64, 0)};
  return {Tensor::lazy(o.ctx, DType::I64, {count, Expr(static_cast<int64_t>(at.size()))},
                       [at](BodyBuilder &b, const Index &i) {
                         Val v = at.back().at(b, {i[0]});
                         for (size_t d = at.size() - 1; d-- > 0;)
                           v = where(b.compare(OpKind::Eq, i[1], static_cast<int64_t>(d)), at[d].at(b, {i[0]}), v);
                         return v;
                       })};
}

Tensors nonzeroColumns(OpCall &o) {
  Tensor mask = isTrue(o.t("self"));
  // A single number has one coordinate here, which is 0.
  if (mask.rank() == 0) mask = reshape(mask, {1});
  return coordinatesOf(positionsOf(mask, o.out().sizes[0]), mask.sizes());
}

Tensors maskedSelect(OpCall &o) {
  const Tensor self = o.t("self"), mask = o.t("mask");
  const Tensor both[] = {self, mask};
  const Sizes sizes = broadcastSizes(both);
  const Tensor x = flatten(broadcastTo(self, sizes));
  return {indexSelect(x, 0, positionsOf(broadcastTo(mask, sizes), o.out().sizes[0]))};
}

// ---- counts and repetitions

/// [] I64: `length`, or -1, which no size may be, where an element of x is negative.
Tensor lengthUnlessNegative(const Tensor &x, const Tensor &length) {
  const Tensor low = reduceDims(loops::ReduceKind::Min, x, {}, false, DType::I64);
  return Tensor::lazy(x.ctx(), DType::I64, {}, [=](BodyBuilder &b, const Index &) {
    return where(low.at(b, {}) < 0.0, b.constantInt(DType::I64, -1), length.at(b, {}));
  });
}

Tensors bincountOp(OpCall &o) {
  const Tensor x = flatten(cast(o.t("self"), DType::I64)), given = o.opt("weights");
  const Tensor weights = given.valid() ? flatten(given) : given;
  const Expr least = o.expr("minlength"), count = o.out().sizes[0];
  const DType acc = computeType(o.out().dtype);
  x.reused();
  Tensor length = scalarExpr(o.ctx, least);
  if (!x.numel().isConst(0)) {
    const Tensor high = reduceDims(loops::ReduceKind::Max, x, {}, false, DType::I64);
    length = lengthUnlessNegative(x, Tensor::lazy(o.ctx, DType::I64, {}, [=](BodyBuilder &b, const Index &) {
      return vmax(high.at(b, {}) + 1.0, b.index(least));
    }));
  }
  o.ctx.define(length, count);
  const Strided bins = o.ctx.allocate(acc, {count});
  o.ctx.store(full(o.ctx, {count}, acc, 0), bins);
  o.ctx.scatter(
      x.sizes(),
      [&](BodyBuilder &b, const Index &i) {
        const Val one = weights.valid() ? b.cast(weights.at(b, i), acc) : b.constant(acc, 1);
        return Lowering::ScatterItem{{b.indirect(x.at(b, i), count, false, true)}, one, {}};
      },
      bins, acc, loops::StoreMode::AtomicAdd);
  return {cast(Tensor::strided(o.ctx, acc, {count}, bins), o.out().dtype)};
}

/// [total] I64: each k as often as repeats[k] says. Where the model knows the total beforehand, nothing is read: another
/// one is an index out of range.
Tensor repeatedPositions(const Tensor &repeats, Expr total) {
  Lowering &ctx = repeats.ctx();
  const Tensor times = cast(repeats, DType::I64).reused();
  const bool known = ctx.isKnown(total);
  const Expr n = times.numel();
  if (n.isConst(0)) {
    ctx.define(scalarInt(ctx, 0), total);
    return full(ctx, {total}, DType::I64, 0);
  }
  const Tensor ends = ctx.scan(loops::ScanKind::Sum, DType::I64, times.sizes(), 0, false,
                               [times](BodyBuilder &b, const Index &i) { return times.at(b, i); });
  const Tensor length = lengthUnlessNegative(times, reduceDims(loops::ReduceKind::Sum, times, {}, false, DType::I64));
  if (known)
    length.realize();
  else
    ctx.define(length, total);
  return Tensor::lazy(ctx, DType::I64, {total}, [=](BodyBuilder &b, const Index &i) {
           Val k = bisect(b, [&](Expr at) { return ends.at(b, {at}); }, n, b.index(i[0]), true);
           if (known) k = where(eq(length.at(b, {}), b.index(total)), k, b.constantInt(DType::I64, -1));
           return b.index(b.indirect(k, n, false, known));
         })
      .realize();
}

Tensors repeatPositions(OpCall &o) {
  return {cast(repeatedPositions(o.t("repeats"), o.out().sizes[0]), o.out().dtype)};
}

Tensors repeatElements(OpCall &o) {
  Tensor self = o.t("self"), repeats = o.t("repeats");
  if (!o.has("dim") || self.rank() == 0) self = flatten(self);
  const size_t d = static_cast<size_t>(wrapDims({o.integer("dim", 0)}, self.rank())[0]);
  // One number is meant for all.
  if (repeats.numel().isConst(1)) repeats = broadcastTo(reshape(repeats, {1}), {self.sizes()[d]});
  return {indexSelect(self, static_cast<int64_t>(d), repeatedPositions(repeats, o.out().sizes[d]))};
}

/// The number itself: an integer or Bool through a symbol of the model's, a float as it is.
Tensors itemOp(OpCall &o) {
  const Tensor x = o.t("self");
  if (x.isComplex()) return o.fail("a complex number is no size");
  if (isFloat(x.dtype())) return {reshape(cast(x, DType::F64), {})};
  if (!o.outExpr().valid()) return o.fail("the model has no name for the number");
  o.ctx.define(x, o.outExpr());
  return {};
}

} // namespace

void addDataSizes(OpTable &t) {
  t.add("item.default _local_scalar_dense.default", itemOp);
  t.add("nonzero.default argwhere.default", nonzeroOp);
  t.add("nonzero_numpy.default where.default", nonzeroColumns);
  t.add("masked_select.default", maskedSelect);
  t.add("bincount.default", bincountOp);
  t.add("repeat_interleave.Tensor", repeatPositions);
  t.add("repeat_interleave.self_Tensor", repeatElements);
  t.onComplex(OnComplex::Own, "nonzero argwhere nonzero_numpy where.default masked_select repeat_interleave.self_Tensor");
}

} // namespace neso::lower
