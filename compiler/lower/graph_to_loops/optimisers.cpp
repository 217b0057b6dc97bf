// Steps of optimisers over lists of parameters (_fused_*), in the order of ATen's CPU kernels: their results are the new parameters, gradients and
// states, each a list.
#include <cmath>

#include "lower/graph_to_loops/op_call.h"

namespace neso::lower {

namespace {

using Values = std::span<const Val>;

/// The gradient as the parameter is moved by it; `decays`: the parameter's decay is part of it.
struct Direction {
  double decay;
  bool maximise;

  Val operator()(Val param, Val grad, bool decays = true) const {
    if (maximise) grad = -grad;
    return decays && decay != 0 ? grad + param * decay : grad;
  }
};

/// What all of these operators are given.
struct FusedStep {
  OpCall &o;
  Tensors params = o.list("self"), grads = o.list("grads");
  Tensor unscale = o.opt("grad_scale"), overflow = o.opt("found_inf");
  double decay = o.number("weight_decay"), eps = o.number("eps", 0);
  Direction direction{decay, o.flag("maximize")};
  /// A number or a tensor of one element.
  Tensor rate = o.t("lr");

  /// A list of as many tensors as there are parameters.
  Tensors state(std::string_view name) {
    Tensors list = o.list(name);
    if (list.size() != params.size()) o.fail("its lists are of different lengths");
    return list;
  }

  /// A number that fn computes in doubles from tensors of one element.
  Tensor once(const Tensors &from, const std::function<Val(Values)> &fn) const {
    Tensors scalars;
    for (const Tensor &x : from) scalars.push_back(reshape(x, {}));
    return pointwise(scalars, DType::F64, DType::F64, fn).realize();
  }

  /// The gradient as the forward pass meant it, which is also a result.
  Tensor unscaled(size_t k) const { return unscale.valid() ? div(grads[k], reshape(unscale, {})) : grads[k]; }

  /// fn over xs in the type in which parameter k is computed; the old content where a gradient has overflowed.
  Tensor next(const Tensor &old, const Tensors &xs, const std::function<Val(Values)> &fn) const {
    const Tensor y = pointwise(xs, computeType(old.dtype()), old.dtype(), fn);
    if (!overflow.valid()) return y;
    const Tensor over = binary(OpKind::Eq, reshape(overflow, {}), scalarFloat(o.ctx, 1));
    return where(over, old, y);
  }
};

Tensors flat(std::initializer_list<Tensors> lists) {
  Tensors out;
  for (const Tensors &list : lists) out.insert(out.end(), list.begin(), list.end());
  return out;
}

/// Adam. apart: AdamW, which shrinks the parameter instead of adding to the gradient.
template <bool apart> Tensors adamStep(OpCall &o) {
  FusedStep f{o};
  const Direction direction = f.direction;
  const bool greatest = o.flag("amsgrad");
  const double beta1 = o.number("beta1"), beta2 = o.number("beta2"), decay = f.decay, eps = f.eps, share = 1 - beta1, shareOfSquares = 1 - beta2;
  const Tensors means = f.state("exp_avgs"), squares = f.state("exp_avg_sqs"), most = greatest ? f.state("max_exp_avg_sqs") : o.list("max_exp_avg_sqs"), steps = f.state("state_steps");
  if (o.failed()) return {};
  Tensors params, grads, newMeans, newSquares, newMost = most;
  for (size_t k = 0; k < f.params.size(); ++k) {
    const Tensor p = f.params[k], g = f.unscaled(k).reused();
    const Tensor mean = f.next(means[k], {means[k], p, g}, [=](Values v) {
      const Val to = direction(v[1], v[2], !apart);
      // As lerp does, from the nearer end.
      return share < 0.5 ? v[0] + (to - v[0]) * share : to + (to - v[0]) * (share - 1);
    }).realize();
    const Tensor square = f.next(squares[k], {squares[k], p, g}, [=](Values v) {
      const Val to = direction(v[1], v[2], !apart);
      return v[0] * beta2 + to * to * shareOfSquares;
    }).realize();
    if (greatest) newMost[k] = f.next(most[k], {most[k], square}, [](Values v) { return vmax(v[0], v[1]); }).realize();
    const Tensor stride = f.once({steps[k], f.rate}, [=](Values v) { return v[1] / (1.0 - bin(OpKind::Pow, num(v[0], beta1), v[0])); });
    const Tensor root = f.once({steps[k]}, [=](Values v) { return un(OpKind::Sqrt, 1.0 - bin(OpKind::Pow, num(v[0], beta2), v[0])); });
    const Tensor kept = f.once({f.rate}, [=](Values v) { return 1.0 - v[0] * decay; });
    params.push_back(f.next(p, {p, mean, greatest ? newMost[k] : square, stride, root, kept}, [=](Values v) {
      const Val from = apart && decay != 0 ? v[0] * v[5] : v[0];
      return from - v[3] * v[1] / (un(OpKind::Sqrt, v[2]) / v[4] + eps);
    }));
    grads.push_back(f.next(f.grads[k], {g}, [](Values v) { return v[0]; }));
    newMeans.push_back(mean);
    newSquares.push_back(square);
  }
  return flat({params, grads, newMeans, newSquares, newMost});
}

Tensors gradientStep(OpCall &o) {
  FusedStep f{o};
  const Direction direction = f.direction;
  const double momentum = o.number("momentum"), damped = 1 - o.number("dampening");
  const bool ahead = o.flag("nesterov"), first = o.flag("is_first_step");
  const Tensors buffers = momentum != 0 ? f.state("momentum_buffer_list") : o.list("momentum_buffer_list");
  if (o.failed()) return {};
  Tensors params, grads, newBuffers = buffers;
  const Tensor rate = f.once({f.rate}, [](Values v) { return v[0]; });
  for (size_t k = 0; k < f.params.size(); ++k) {
    const Tensor p = f.params[k], g = f.unscaled(k).reused();
    if (momentum != 0)
      newBuffers[k] = f.next(buffers[k], {buffers[k], p, g}, [=](Values v) {
        const Val to = direction(v[1], v[2]);
        return first ? to : v[0] * momentum + to * damped;
      }).realize();
    params.push_back(f.next(p, {p, g, rate, momentum != 0 ? newBuffers[k] : g}, [=](Values v) {
      const Val to = direction(v[0], v[1]);
      return v[0] - v[2] * (momentum == 0 ? to : ahead ? to + v[3] * momentum : v[3]);
    }));
    grads.push_back(f.next(f.grads[k], {g}, [](Values v) { return v[0]; }));
  }
  return flat({params, grads, newBuffers});
}

/// counts: the numbers of steps are a result, too.
template <bool counts> Tensors adagradStep(OpCall &o) {
  FusedStep f{o};
  const Direction direction = f.direction;
  const double slower = o.number("lr_decay"), eps = f.eps;
  const Tensors sums = f.state("state_sums"), steps = f.state("state_steps");
  if (o.failed()) return {};
  Tensors params, grads, newSums;
  for (size_t k = 0; k < f.params.size(); ++k) {
    const Tensor p = f.params[k], g = f.unscaled(k).reused();
    const Tensor sum = f.next(sums[k], {sums[k], p, g}, [=](Values v) {
      const Val to = direction(v[1], v[2]);
      return v[0] + to * to;
    }).realize();
    const Tensor rate = f.once({steps[k], f.rate}, [=](Values v) { return v[1] / ((v[0] - 1.0) * slower + 1.0); });
    params.push_back(f.next(p, {p, g, sum, rate}, [=](Values v) { return v[0] - v[3] * direction(v[0], v[1]) / (un(OpKind::Sqrt, v[2]) + eps); }));
    grads.push_back(f.next(f.grads[k], {g}, [](Values v) { return v[0]; }));
    newSums.push_back(sum);
  }
  return counts ? flat({params, grads, newSums, steps}) : flat({params, grads, newSums});
}

} // namespace

void addOptimisers(OpTable &t) {
  t.add("_fused_adam.default _fused_adam.tensor_lr", adamStep<false>);
  t.add("_fused_adamw.default _fused_adamw.tensor_lr", adamStep<true>);
  t.add("_fused_sgd.default _fused_sgd.tensor_lr", gradientStep);
  t.add("_fused_adagrad.default", adagradStep<true>);
  t.add("_fused_adagrad.tensor_lr", adagradStep<false>);
}

} // namespace neso::lower
