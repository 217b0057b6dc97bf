// Connectionist temporal classification (Graves et al., 2006): the loss of a sequence whose labels stand in order, but not where, and its gradient.
//
// The labels of a sequence are spread with a blank in front of, between and behind them: 2 S + 1 states. alpha[t][s] is the log-probability of all that
// leads to state s at step t, beta[t][s] that of all that may follow; either is a loop over steps of one kernel each, for all sequences at once. A step
// beyond a sequence's end leaves its states as they are.
#include <cmath>

#include "lower/graph_to_loops/op_call.h"
#include "lower/graph_to_loops/turns.h"

namespace neso::lower {

namespace {

/// The operands of all of these operators. Everything lies in memory, for all steps read it.
struct Sequences {
  Tensor logProbs;           // [T, N, C]
  Tensor steps, labels;      // [N] I64: how many each has
  Tensor states;             // [N, P] I64: the label of each state, the blank between them, -1 behind a sequence's last state
  Expr stateCount;           // P = 2 S + 1
  Expr turns() const { return logProbs.size(0); }
  Expr count() const { return logProbs.size(1); }
  Expr classes() const { return logProbs.size(2); }
  Sizes sizes() const { return {count(), stateCount}; }
};

/// A list of numbers as a tensor.
Tensor listed(Lowering &ctx, const Sizes &numbers) {
  Tensors parts;
  for (Expr e : numbers) parts.push_back(reshape(cast(scalarExpr(ctx, e).asTensor(), DType::I64), {1}));
  return concat(parts, 0);
}

/// Lengths as ints or as a tensor, [N] I64 in memory; each is at least 0 and, where that is given, at most `most`.
Tensor lengthsOf(OpCall &o, const char *name, Expr count, Expr most) {
  const bool isTensor = o.typeOf(name) != nullptr;
  const std::string what = fmt::format("{}: '{}' has a length below 0 or beyond what is given", o.node.target, name);
  Tensor out;
  if (isTensor) {
    out = cast(flatten(o.t(name)), DType::I64);
  } else {
    const Sizes numbers = o.exprs(name);
    for (Expr e : numbers) o.ctx.demand(most.valid() ? logicalAnd(le(0, e), le(e, most)) : le(0, e), what);
    if (numbers.empty()) return fullInt(o.ctx, {0}, DType::I64, 0);
    out = listed(o.ctx, numbers);
  }
  o.ctx.demand(eq(out.size(0), count), fmt::format("{}: '{}' has one length for each sequence", o.node.target, name));
  out = source(out.realize());
  if (!isTensor) return out;
  const Tensor fits = o.ctx.reduce(loops::ReduceKind::All, DType::Bool, {}, {count}, [out, most](BodyBuilder &b, const Index &, const Index &r) {
    const Val n = out.at(b, r);
    return most.valid() ? n >= 0.0 && n <= b.index(most) : n >= 0.0;
  })[0];
  o.ctx.require(eq(o.ctx.read(fits), 1), what + o.ctx.where());
  return out;
}

/// The largest of lengths, of which there may be none.
Expr largest(OpCall &o, const char *name, const Tensor &lengths) {
  if (o.typeOf(name)) {
    const Expr most = o.ctx.read(o.ctx.reduce(loops::ReduceKind::Max, DType::I64, {}, lengths.sizes(),
                                              [=](BodyBuilder &b, const Index &, const Index &r) { return vmax(lengths.at(b, r), b.constantInt(DType::I64, 0)); })[0]);
    o.ctx.bound(most.symbol(), {0, INT64_MAX});
    return most;
  }
  Expr most = 0;
  for (Expr e : o.exprs(name)) most = max(most, e);
  return o.ctx.facts.simplify(most);
}

/// Why the call cannot be computed; empty: it can.
std::string faultOf(OpCall &o, const Tensor &logProbs, const Tensor &targets) {
  const DType t = logProbs.dtype();
  if (t != DType::F32 && t != DType::F64) return "PyTorch computes it of float32 and float64 only";
  if (isFloat(targets.dtype()) || isComplex(targets.dtype())) return "PyTorch takes integers only: 'targets' has " + std::string(name(targets.dtype()));
  if (targets.rank() != 1 && targets.rank() != 2) return "'targets' is neither [sequences, labels] nor all labels one behind the other";
  const int64_t blank = o.integer("blank", 0);
  const std::optional<int64_t> classes = logProbs.sizes().back().asConst();
  if (blank < 0 || (classes && blank >= *classes)) return "'blank' is none of the classes";
  return {};
}

/// logProbs: [T, N, C]. stateCount: how many states there are, if that is stated; invalid: as many as the longest sequence has.
Sequences sequencesOf(OpCall &o, const Tensor &logProbs, const Tensor &targets0, Expr stateCount) {
  Lowering &ctx = o.ctx;
  Sequences x;
  x.logProbs = source(logProbs.realize());
  const Tensor targets = cast(source(targets0), DType::I64);
  const bool padded = targets.rank() == 2;
  const Expr n = x.count(), classes = x.classes();
  ctx.demand(logicalAnd(le(1, x.turns()), le(1, n)), fmt::format("{}: there is at least one step of one sequence", o.node.target));
  x.steps = lengthsOf(o, "input_lengths", n, x.turns());
  x.labels = lengthsOf(o, "target_lengths", n, padded ? targets.size(1) : targets.size(0));
  Tensor ends;
  if (padded) {
    ctx.demand(eq(targets.size(0), n), fmt::format("{}: 'targets' has one row for each sequence", o.node.target));
  } else {
    ends = ctx.scan(loops::ScanKind::Sum, DType::I64, {n}, 0, false, [labels = x.labels](BodyBuilder &b, const Index &i) { return labels.at(b, i); });
    ctx.define(sum(x.labels, {0}, false, DType::I64), targets.size(0));
  }
  x.stateCount = stateCount;
  if (!stateCount.valid()) x.stateCount = (padded && o.typeOf("target_lengths") ? targets.size(1) : largest(o, "target_lengths", x.labels)) * 2 + 1;
  const double blank = static_cast<double>(o.integer("blank", 0));
  x.states = Tensor::lazy(ctx, DType::I64, x.sizes(), [=, labels = x.labels](BodyBuilder &b, const Index &i) {
               const Expr k = floorDiv(i[1], 2);
               const Val own = labels.at(b, {i[0]}), isLabel = b.compare(OpKind::Eq, mod(i[1], 2), 1) && b.index(k) < own;
               const Val label = b.masked(
                   isLabel,
                   [&] {
                     const Index at = padded ? Index{i[0], min(k, targets.size(1) - 1)}
                                             : Index{b.indirect(ends.at(b, {i[0]}) - own + b.index(k), targets.size(0), false, true)};
                     return b.index(b.indirect(targets.at(b, at), classes, false, true));
                   },
                   b.constantInt(DType::I64, static_cast<int64_t>(blank)));
               return where(b.index(i[1]) <= own * 2.0, label, -1.0);
             }).realize();
  return x;
}

/// Whether a path may go between two states that are two apart: their labels differ, between which a blank may then be left out.
Val mayPass(BodyBuilder &b, const Sequences &x, const Index &i, Expr from) {
  return b.compare(OpKind::Ge, from, 0) && b.compare(OpKind::Lt, from, x.stateCount) &&
         ne(x.states.at(b, {i[0], min(max(from, 0), x.stateCount - 1)}), x.states.at(b, i));
}

/// One step: what the states hold behind step t, from what they hold before it. Paths go on to the next states, or come from them if `back`.
Tensor step(const Sequences &x, const Tensor &before, Expr t, bool back) {
  return Tensor::lazy(x.logProbs.ctx(), before.dtype(), x.sizes(), [=](BodyBuilder &b, const Index &i) {
    const Val own = before.at(b, i), none = num(own, -INFINITY), label = x.states.at(b, i);
    auto from = [&](int64_t distance) {
      const Expr s = back ? i[1] + distance : i[1] - distance;
      const Val v = before.at(b, {i[0], min(max(s, 0), x.stateCount - 1)});
      const Val leads = distance == 2 ? mayPass(b, x, i, s) : b.inRange(s, 0, x.stateCount);
      return where(leads, v, none);
    };
    const Val one = from(1), two = from(2);
    Val most = where(one > own, one, own);
    most = where(two > most, two, most);
    most = where(eq(most, -INFINITY), 0.0, most);
    const Val sum = un(OpKind::Exp, own - most) + un(OpKind::Exp, one - most) + un(OpKind::Exp, two - most);
    const Val at = b.masked(
        label >= 0.0, [&] { return x.logProbs.at(b, {min(t, x.turns() - 1), i[0], b.indirect(label, x.classes(), false, false)}); }, none);
    const Val next = where(label >= 0.0, un(OpKind::Log, sum) + most + at, none);
    return where(b.index(t) < x.steps.at(b, {i[0]}), next, own);
  });
}

/// Goes through all steps, two a turn so that nothing is moved: each leaves the states in memory that the other reads. `seen` gets what they hold
/// behind step t.
void walk(const Sequences &x, Tensor states, bool back, const std::function<void(const Tensor &states, Expr t)> &seen) {
  Lowering &ctx = x.logProbs.ctx();
  const Tensor even = carry(states), odd = carry(states);
  const Expr pairs = ceilDiv(x.turns(), 2);
  forTurns(ctx, pairs, [&](Expr turn) {
    const Expr first = back ? (pairs - 1 - turn) * 2 + 1 : turn * 2, second = back ? first - 1 : first + 1;
    put(step(x, even, first, back), odd);
    seen(odd, first);
    put(step(x, odd, second, back), even);
    seen(even, second);
  });
  put(even, states);
}

/// The states in front of the first step, or behind the last one: paths begin, and end, there alone.
Tensor start(const Sequences &x, bool back) {
  return carry(Tensor::lazy(x.logProbs.ctx(), x.logProbs.dtype(), x.sizes(), [=](BodyBuilder &b, const Index &i) {
    const Val s = b.index(i[1]), is = eq(s, back ? x.labels.at(b, {i[0]}) * 2.0 : num(s, 0));
    return where(is, b.constant(x.logProbs.dtype(), 0), -INFINITY);
  }));
}

/// Room for what the states hold at every step, [T, N, P] or one step more.
Tensor placeForAll(const Sequences &x, double value) {
  const Sizes sizes{ceilDiv(x.turns(), 2) * 2, x.count(), x.stateCount};
  const Tensor out = place(x.logProbs.ctx(), x.logProbs.dtype(), sizes);
  // That each row is written in its turn is more than the verifiers can see.
  put(full(x.logProbs.ctx(), sizes, x.logProbs.dtype(), value), out);
  return out;
}

/// The loss of each sequence [N], and alpha [N, T, P] if it is asked for.
Tensors lossOf(const Sequences &x, bool wantsAlpha) {
  const Tensor last = start(x, false), all = wantsAlpha ? placeForAll(x, -INFINITY) : Tensor();
  walk(x, last, false, [&](const Tensor &states, Expr t) {
    if (wantsAlpha) putRow(states, all, t);
  });
  const Tensor loss = Tensor::lazy(x.logProbs.ctx(), last.dtype(), {x.count()}, [=](BodyBuilder &b, const Index &i) {
    const Val end = x.labels.at(b, i) * 2.0, none = b.constant(last.dtype(), -INFINITY);
    const Val blank = last.at(b, {i[0], b.indirect(end, x.stateCount, false, true)});
    const Val before = last.at(b, {i[0], b.indirect(vmax(end - 1.0, num(end, 0)), x.stateCount, false, true)}), label = where(end > 0.0, before, none);
    Val most = where(label > blank, label, blank);
    most = where(eq(most, -INFINITY), 0.0, most);
    // Of one state alone it is what the state holds, to the last bit.
    return -where(end > 0.0, un(OpKind::Log, un(OpKind::Exp, blank - most) + un(OpKind::Exp, label - most)) + most, blank);
  });
  if (!wantsAlpha) return {loss};
  return {loss, permute(slice(all, 0, 0, x.turns()), {1, 0, 2})};
}

Tensors withAlpha(OpCall &o) {
  const Tensor logProbs = o.t("log_probs"), targets = o.t("targets");
  if (const std::string fault = logProbs.rank() == 3 ? faultOf(o, logProbs, targets) : "'log_probs' is not [steps, sequences, classes]"; !fault.empty()) return o.fail(fault);
  const bool wantsAlpha = o.isRead(1);
  if (wantsAlpha && !o.ctx.isKnown(o.out(1).sizes[2])) return o.fail("nothing says how many states 'log_alpha' has");
  const Sequences x = sequencesOf(o, logProbs, targets, wantsAlpha ? o.out(1).sizes[2] : Expr());
  Tensors out = lossOf(x, wantsAlpha);
  // Nobody reads it, and nothing need say how large it is.
  if (!wantsAlpha) out.push_back(full(o.ctx, o.out(1).sizes, logProbs.dtype(), 0));
  return out;
}

Tensors ctcLoss(OpCall &o) {
  Tensor logProbs = o.t("log_probs");
  const Tensor targets = o.t("targets");
  const bool batched = logProbs.rank() == 3;
  if (!batched && logProbs.rank() != 2) return o.fail("'log_probs' is neither [steps, sequences, classes] nor [steps, classes]");
  if (!batched) logProbs = unsqueeze(logProbs, 1);
  if (const std::string fault = faultOf(o, logProbs, targets); !fault.empty()) return o.fail(fault);
  const Sequences x = sequencesOf(o, logProbs, targets, {});
  Tensor loss = lossOf(x, false)[0];
  if (o.flag("zero_infinity")) loss = map(loss, [](Val v) { return where(eq(v, INFINITY), 0.0, v); });
  const int64_t reduction = o.integer("reduction", 1);
  if (reduction == 1) {
    const Tensor each = pointwise(Tensors{loss, x.labels}, loss.dtype(), loss.dtype(), [](std::span<const Val> v) { return v[0] / vmax(v[1], num(v[1], 1)); });
    return {mean(each, {}, false, loss.dtype())};
  }
  if (reduction == 2) return {sum(loss, {}, false, loss.dtype())};
  return {batched ? loss : squeeze(loss, 0)};
}

/// The gradient of a class at a step is what its probability has over the share of all paths that go through it there.
Tensors gradient(OpCall &o) {
  const Tensor logProbs = o.t("log_probs"), targets = o.t("targets");
  if (const std::string fault = logProbs.rank() == 3 ? faultOf(o, logProbs, targets) : "'log_probs' is not [steps, sequences, classes]"; !fault.empty()) return o.fail(fault);
  const Tensor loss = source(o.t("neg_log_likelihood").realize()), alpha = source(o.t("log_alpha").realize()), grad = o.t("grad").reused();
  const Sequences x = sequencesOf(o, logProbs, targets, alpha.size(2));
  const DType t = logProbs.dtype();
  const Tensor states = start(x, true), all = placeForAll(x, 0);
  walk(x, states, true, [&](const Tensor &beta, Expr step) {
    // Both have the step's own probability.
    const Tensor share = Tensor::lazy(o.ctx, t, x.sizes(), [=](BodyBuilder &b, const Index &i) {
      const Val label = x.states.at(b, i), zero = b.constant(t, 0);
      const Expr at = min(step, x.turns() - 1);
      return b.masked(
          label >= 0.0 && b.index(step) < x.steps.at(b, {i[0]}),
          [&] {
            const Val own = x.logProbs.at(b, {at, i[0], b.indirect(label, x.classes(), false, false)});
            return un(OpKind::Exp, alpha.at(b, {i[0], at, i[1]}) + beta.at(b, i) + loss.at(b, {i[0]}) - own);
          },
          zero);
    });
    putRow(share, all, step);
  });
  const Sizes sizes = logProbs.sizes();
  const Tensor shares = carry(full(o.ctx, sizes, t, 0));
  o.ctx.scatter(
      {x.turns(), x.count(), x.stateCount},
      [&](BodyBuilder &b, const Index &i) {
        const Val label = x.states.at(b, {i[1], i[2]}), is = label >= 0.0;
        return Lowering::ScatterItem{{i[0], i[1], b.indirect(where(is, label, 0.0), x.classes(), false, false)}, all.at(b, i), is};
      },
      *shares.asStrided(), t, loops::StoreMode::AtomicAdd);
  const bool zeroInfinity = o.flag("zero_infinity");
  return {Tensor::lazy(o.ctx, t, sizes, [=](BodyBuilder &b, const Index &i) {
    const Val own = x.logProbs.at(b, i), total = loss.at(b, {i[1]}), isNone = eq(total, INFINITY);
    // A class that has no probability, or a sequence that has none, has no gradient either; PyTorch says NaN.
    const Val v = where(isNone || eq(own, -INFINITY), NAN, un(OpKind::Exp, own) - shares.at(b, i)) * grad.at(b, {i[1]});
    const Val counts = b.index(i[0]) < x.steps.at(b, {i[1]});
    return where(zeroInfinity ? counts && !isNone : counts, v, 0.0);
  })};
}

} // namespace

void addCtc(OpTable &t) {
  t.add("_ctc_loss.default _ctc_loss.Tensor", withAlpha);
  t.add("_ctc_loss_backward.default _ctc_loss_backward.Tensor", gradient);
  t.add("ctc_loss.IntList ctc_loss.Tensor", ctcLoss);
}

} // namespace neso::lower
