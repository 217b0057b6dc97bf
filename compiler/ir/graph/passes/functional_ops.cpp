#include "ir/graph/passes/functional_ops.h"

#include <algorithm>

#include "ir/graph/passes/views.h"
#include "ir/graph/promotion.h"

namespace neso::graph {
namespace {

bool oneOf(std::string_view s, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), s) != names.end();
}

/// The arguments of `op` that `candidate` takes, by name; nullopt if they are not exactly its own.
std::optional<std::vector<size_t>> matching(const OpSchema &op, const OpSchema &candidate, bool withMutated) {
  std::vector<size_t> out;
  for (size_t i = 0; i < candidate.args.size(); ++i) {
    const ArgSchema &want = candidate.args[i];
    int at = op.argIndex(want.name);
    // "self" of the in-place form may be called "input".
    if (at < 0 && i == 0 && withMutated && !op.args.empty() && op.args[0].mutated) at = 0;
    if (at < 0) {
      // An argument with a default may be absent from the in-place form.
      if (want.defaultValue || want.optional) continue;
      return std::nullopt;
    }
    const ArgSchema &have = op.args[static_cast<size_t>(at)];
    if (have.type != want.type || have.list != want.list || (have.mutated && !withMutated)) return std::nullopt;
    out.push_back(static_cast<size_t>(at));
  }
  for (size_t i = 0; i < op.args.size(); ++i)
    if (!(op.args[i].mutated && !withMutated) && std::find(out.begin(), out.end(), i) == out.end() &&
        op.args[i].type != ArgType::Generator)
      return std::nullopt;
  return out;
}

} // namespace

bool isResize(std::string_view name) { return oneOf(name, {"aten.resize_", "aten.resize_as_"}); }

bool setsToTensor(const OpSchema &op) { return op.name == "aten.set_" && op.args.size() > 1; }

std::optional<FunctionalForm> functionalForm(const OpSchema &op) {
  std::string base = op.name;
  std::string_view local = std::string_view(base).substr(base.find('.') + 1);
  // These make a tensor name other memory, which no value can express.
  if (isResize(op.name) || oneOf(op.name, {"aten.set_", "aten.set_data"})) return std::nullopt;
  struct Special {
    const char *mutating, *functional;
  };
  for (Special s : {Special{"aten.normal_", "aten.normal_functional"},
                    Special{"aten.rrelu_with_noise", "aten.rrelu_with_noise_functional"},
                    Special{"aten.rrelu_with_noise_", "aten.rrelu_with_noise_functional"},
                    Special{"aten._native_batch_norm_legit", "aten._native_batch_norm_legit_functional"},
                    Special{"aten.fused_moving_avg_obs_fake_quant", "aten._fused_moving_avg_obs_fq_helper_functional"},
                    Special{"aten._fused_moving_avg_obs_fq_helper", "aten._fused_moving_avg_obs_fq_helper_functional"},
                    Special{"aten._batch_norm_with_update", "aten._batch_norm_with_update_functional"}})
    if (op.name == s.mutating)
      for (const OpSchema *f : overloadsOf(s.functional))
        if (auto args = matching(op, *f, true)) return FunctionalForm{f, std::move(*args)};
  if (local.size() > 4 && local.substr(0, 3) == "__i" && local.substr(local.size() - 2) == "__")
    base = "aten.__" + std::string(local.substr(3));
  else if (!base.empty() && base.back() == '_' && local.substr(0, 2) != "__")
    base.pop_back();

  bool inPlace = base != op.name;
  // The overload of the same name first, then any that takes the same arguments.
  std::vector<const OpSchema *> candidates = overloadsOf(base);
  for (size_t i = 1; i < candidates.size(); ++i)
    if (candidates[i]->overload == op.overload) std::swap(candidates[0], candidates[i]);
  size_t written = 0, own = 0;
  for (const ArgSchema &a : op.args) written += a.mutated;
  for (const ArgSchema &r : op.returns) own += !r.mutated;
  for (const OpSchema *f : candidates) {
    if (f->mutates() || f->isView() || f->returns.size() != own + written) continue;
    if (auto args = matching(op, *f, inPlace)) return FunctionalForm{f, std::move(*args)};
  }
  return std::nullopt;
}

std::optional<std::string> inPlaceViewOp(std::string_view name) {
  if (!oneOf(name, {"aten.squeeze_", "aten.unsqueeze_", "aten.transpose_", "aten.t_", "aten.swapaxes_",
                    "aten.swapdims_", "aten.detach_", "aten.as_strided_"}))
    return std::nullopt;
  name.remove_suffix(1);
  return std::string(name);
}

std::optional<DType> pointwiseResult(const Graph &g, const OpSchema &op, const std::vector<Argument> &args) {
  std::string_view local = std::string_view(op.name).substr(op.name.find('.') + 1);
  if (!local.empty() && local.back() == '_') local.remove_suffix(1);
  if (oneOf(local, {"eq", "ne", "lt", "le", "gt", "ge", "not_equal", "less", "less_equal", "greater", "greater_equal",
                    "logical_and", "logical_or", "logical_xor", "logical_not", "isnan", "isinf", "isfinite"}))
    return DType::Bool;
  if (!oneOf(local, {"add",     "sub",         "subtract",     "mul",         "multiply",    "div",
                     "divide",  "true_divide", "floor_divide", "pow",         "float_power", "remainder",
                     "fmod",    "atan2",       "arctan2",      "bitwise_and", "bitwise_or",  "bitwise_xor",
                     "maximum", "minimum",     "fmax",         "fmin",        "hypot",       "copysign",
                     "xlogy",   "addcmul",     "addcdiv",      "clamp",       "clamp_min",   "clamp_max",
                     "gcd",     "lcm",         "heaviside",    "__iand__",    "__ior__",     "__ixor__"}))
    return std::nullopt;
  if (local == "float_power") return DType::F64;
  // A factor of an operand has no say: truths stay truths.
  std::vector<Argument> operands;
  for (size_t i = 0; i < args.size() && i < op.args.size(); ++i)
    if (op.args[i].name != "alpha" && op.args[i].name != "value") operands.push_back(args[i]);
  return resultType(g, operands);
}

/// The dimension that an argument names, counted from the front; nullopt if there is none.
static std::optional<int64_t> dimOf(const Argument *a, const TensorType &in) {
  const int64_t *d = a ? std::get_if<int64_t>(a) : nullptr;
  if (!d) return std::nullopt;
  int64_t dim = *d < 0 ? *d + in.rank() : *d;
  return dim >= 0 && dim < in.rank() ? std::optional(dim) : std::nullopt;
}

/// Views of a stretch along one dimension: select, slice, narrow, unbind.
static std::optional<Insertion> insertionOfStretch(Graph &g, const Node &n, std::string_view op, size_t index, ValueId whole,
                                                   ValueId part, const TensorType &in, const TensorType &out) {
  std::optional<int64_t> dim = dimOf(n.arg("dim"), in);
  if (!dim) return std::nullopt;
  if (op == "aten.select") return Insertion{"aten.select_scatter.default", {whole, part, *dim, *n.arg("index")}};
  if (op == "aten.unbind") return Insertion{"aten.select_scatter.default", {whole, part, *dim, static_cast<int64_t>(index)}};
  if (op == "aten.slice") {
    if (in.sizes == out.sizes) return Insertion{"aten.alias.default", {part}};
    return Insertion{"aten.slice_scatter.default", {whole, part, *dim, *n.arg("start"), *n.arg("end"), *n.arg("step")}};
  }
  std::optional<Expr> start = intOf(g, n.arg("start")), length = intOf(g, n.arg("length"));
  if (!start || !length) return std::nullopt;
  if (start->isConst() && start->constValue() < 0) start = *start + in.sizes[static_cast<size_t>(*dim)];
  return Insertion{"aten.slice_scatter.default",
                   {whole, part, *dim, sizeArgument(g, *start), sizeArgument(g, *start + *length), int64_t(1)}};
}

/// Views of the parts that a dimension is cut into.
static std::optional<Insertion> insertionOfPart(Graph &g, const Node &n, std::string_view op, size_t entry, size_t index,
                                                ValueId whole, ValueId part, const TensorType &in, const TensorType &out) {
  std::optional<int64_t> dim = op == "aten.hsplit"   ? in.rank() == 1 ? 0 : 1
                               : op == "aten.vsplit" ? 0
                               : op == "aten.dsplit" ? 2
                                                     : dimOf(n.arg("dim"), in);
  if (!dim) return std::nullopt;
  if (n.arg("indices")) {
    // Each part goes from one index to the next, which may lie before it; the insertion clamps as the view does.
    const auto *indices = std::get_if<std::vector<IntOrSym>>(n.arg("indices"));
    if (!indices) return std::nullopt;
    auto edge = [&](size_t k) -> Argument {
      if (const int64_t *i = std::get_if<int64_t>(&(*indices)[k])) return *i;
      return std::get<ValueId>((*indices)[k]);
    };
    return Insertion{"aten.slice_scatter.default",
                     {whole, part, *dim, index == 0 ? Argument(int64_t(0)) : edge(index - 1),
                      index < indices->size() ? edge(index) : Argument(None{}), int64_t(1)}};
  }
  Expr start = 0;
  for (size_t i = 0; i < index; ++i)
    start = start + g.value(n.outputs[entry][i]).type.sizes[static_cast<size_t>(*dim)];
  Expr end = start + out.sizes[static_cast<size_t>(*dim)];
  return Insertion{"aten.slice_scatter.default",
                   {whole, part, *dim, sizeArgument(g, start), sizeArgument(g, end), int64_t(1)}};
}

std::optional<Insertion> insertionOf(Graph &g, const Node &n, size_t entry, size_t index, ValueId whole, ValueId part,
                                     const TensorType &in, const TensorType &out) {
  std::string_view op = std::string_view(n.target).substr(0, n.target.rfind('.'));
  if (std::optional<std::vector<int64_t>> p = permutationOf(g, n)) {
    std::vector<IntOrSym> inverse(p->size());
    for (size_t i = 0; i < p->size(); ++i) inverse[static_cast<size_t>((*p)[i])] = static_cast<int64_t>(i);
    // A new tensor: a view that had a new tensor's strides would look as if it did nothing.
    return Insertion{"aten.permute_copy.default", {part, inverse}};
  }
  if (oneOf(op, {"aten.select", "aten.slice", "aten.narrow", "aten.unbind"}))
    return insertionOfStretch(g, n, op, index, whole, part, in, out);
  if (op == "aten.diagonal") {
    const Argument *offset = n.arg("offset"), *d1 = n.arg("dim1"), *d2 = n.arg("dim2");
    if (!offset || !d1 || !d2) return std::nullopt;
    return Insertion{"aten.diagonal_scatter.default", {whole, part, *offset, *d1, *d2}};
  }
  if (oneOf(op, {"aten.split", "aten.split_with_sizes", "aten.chunk", "aten.tensor_split", "aten.hsplit", "aten.vsplit", "aten.dsplit"}))
    return insertionOfPart(g, n, op, entry, index, whole, part, in, out);
  if (op == "aten.view" && in.dtype != out.dtype) return Insertion{"aten.view.dtype", {part, in.dtype}};
  if (oneOf(op,
            {"aten.view", "aten._unsafe_view", "aten.reshape", "aten.reshape_as", "aten.flatten", "aten.unflatten",
             "aten.ravel", "aten.squeeze", "aten.unsqueeze", "aten.view_as", "aten._reshape_alias", "aten.atleast_1d",
             // Of elements that are repeated strides say where they lie.
             "aten.expand", "aten.expand_as"}))
    return Insertion{"aten.reshape.default", {part, sizeList(g, in.sizes)}};
  // Each is its own inverse.
  if (oneOf(op, {"aten.conj", "aten._conj", "prims.conj", "aten._neg_view", "aten.mH", "aten.adjoint",
                 "aten.matrix_H"}))
    return Insertion{n.target, {part}};
  if (op == "aten.view_as_real") return Insertion{"aten.view_as_complex.default", {part}};
  if (op == "aten.view_as_complex") return Insertion{"aten.view_as_real.default", {part}};
  return std::nullopt;
}

} // namespace neso::graph
