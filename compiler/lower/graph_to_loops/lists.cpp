// Operators on lists of tensors (_foreach_*): the plain operator on each of them.
#include "ir/graph/ops.h"
#include "lower/graph_to_loops/op_call.h"

namespace neso::lower {

using graph::Argument;
using graph::ValueId;

namespace {

/// `arguments`: what the plain operator calls the list operator's arguments, in the order of the latter's schema.
struct ListOp {
  std::string_view list, plain, arguments;
};
constexpr ListOp kListOps[] = {
    {"_foreach_add.List", "add.Tensor", "self other alpha"},
    {"_foreach_add.Tensor", "add.Tensor", "self other alpha"},
    {"_foreach_add.Scalar", "add.Scalar", "self other"},
    {"_foreach_add.ScalarList", "add.Scalar", "self other"},
    {"_foreach_sub.List", "sub.Tensor", "self other alpha"},
    {"_foreach_sub.Scalar", "sub.Scalar", "self other"},
    {"_foreach_sub.ScalarList", "sub.Scalar", "self other"},
    {"_foreach_mul.List", "mul.Tensor", "self other"},
    {"_foreach_mul.Tensor", "mul.Tensor", "self other"},
    {"_foreach_mul.Scalar", "mul.Scalar", "self other"},
    {"_foreach_mul.ScalarList", "mul.Scalar", "self other"},
    {"_foreach_div.List", "div.Tensor", "self other"},
    {"_foreach_div.Tensor", "div.Tensor", "self other"},
    {"_foreach_div.Scalar", "div.Scalar", "self other"},
    {"_foreach_div.ScalarList", "div.Scalar", "self other"},
    {"_foreach_addcmul.Scalar", "addcmul.default", "self tensor1 tensor2 value"},
    {"_foreach_addcmul.ScalarList", "addcmul.default", "self tensor1 tensor2 value"},
    {"_foreach_addcdiv.Scalar", "addcdiv.default", "self tensor1 tensor2 value"},
    {"_foreach_addcdiv.ScalarList", "addcdiv.default", "self tensor1 tensor2 value"},
    {"_foreach_clamp_max.List", "minimum.default", "self other"},
    {"_foreach_clamp_max.Scalar", "clamp_max.default", "self max"},
    {"_foreach_clamp_max.ScalarList", "clamp_max.default", "self max"},
    {"_foreach_clamp_min.List", "maximum.default", "self other"},
    {"_foreach_clamp_min.Scalar", "clamp_min.default", "self min"},
    {"_foreach_clamp_min.ScalarList", "clamp_min.default", "self min"},
    {"_foreach_maximum.List", "maximum.default", "self other"},
    {"_foreach_maximum.Scalar", "clamp_min.default", "self min"},
    {"_foreach_maximum.ScalarList", "clamp_min.default", "self min"},
    {"_foreach_minimum.List", "minimum.default", "self other"},
    {"_foreach_minimum.Scalar", "clamp_max.default", "self max"},
    {"_foreach_minimum.ScalarList", "clamp_max.default", "self max"},
    {"_foreach_lerp.List", "lerp.Tensor", "self end weight"},
    {"_foreach_lerp.Scalar", "lerp.Scalar", "self end weight"},
    {"_foreach_lerp.ScalarList", "lerp.Scalar", "self end weight"},
    {"_foreach_pow.List", "pow.Tensor_Tensor", "self exponent"},
    {"_foreach_pow.Scalar", "pow.Tensor_Scalar", "self exponent"},
    {"_foreach_pow.ScalarList", "pow.Tensor_Scalar", "self exponent"},
    {"_foreach_pow.ScalarAndTensor", "pow.Scalar", "self exponent"},
    {"_foreach_norm.Scalar", "linalg_vector_norm.default", "self ord dtype"},
    {"_foreach_mm.default", "mm.default", "self mat2"},
    {"_foreach_max.default", "max.default", "self"},
    {"_foreach_clone.default", "clone.default", "self memory_format"},
    {"_foreach_copy.default", "copy.default", "self src non_blocking"},
    {"_foreach_zero.default", "zeros_like.default", "self"},
};
/// Operators of one list that have the plain one's name.
constexpr std::string_view kOfOne =
    "abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal round rsqrt "
    "sigmoid sign sin sinh sqrt tan tanh trunc";

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    out.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

ListOp rowOf(std::string_view target) {
  target.remove_prefix(std::string_view("aten.").size());
  for (const ListOp &row : kListOps)
    if (row.list == target) return row;
  return {target, target.substr(std::string_view("_foreach_").size()), "self"};
}

/// The k-th of a list, or what is given once for all.
Argument elementOf(const Argument &a, size_t k) {
  if (const auto *tensors = std::get_if<std::vector<ValueId>>(&a)) return (*tensors)[k];
  if (const auto *numbers = std::get_if<std::vector<double>>(&a)) return (*numbers)[k];
  if (const auto *flags = std::get_if<std::vector<bool>>(&a)) return Argument((*flags)[k]);
  if (const auto *sizes = std::get_if<std::vector<graph::IntOrSym>>(&a)) {
    const graph::IntOrSym &e = (*sizes)[k];
    return std::holds_alternative<int64_t>(e) ? Argument(std::get<int64_t>(e)) : Argument(std::get<ValueId>(e));
  }
  return a;
}

size_t lengthOf(const Argument &a) {
  if (const auto *tensors = std::get_if<std::vector<ValueId>>(&a)) return tensors->size();
  if (const auto *numbers = std::get_if<std::vector<double>>(&a)) return numbers->size();
  if (const auto *flags = std::get_if<std::vector<bool>>(&a)) return flags->size();
  if (const auto *sizes = std::get_if<std::vector<graph::IntOrSym>>(&a)) return sizes->size();
  return SIZE_MAX;
}

Tensors ofEach(OpCall &o) {
  const ListOp row = rowOf(o.node.target);
  const std::vector<std::string> names = words(row.arguments);
  const std::vector<ValueId> results = o.node.outputs.empty() ? std::vector<ValueId>() : o.node.outputs[0];
  for (const Argument &a : o.node.args)
    if (lengthOf(a) < results.size()) return o.fail("its lists are of different lengths");
  Tensors out(results.size());
  for (size_t k = 0; k < results.size(); ++k) {
    if (!results[k].valid()) continue;
    std::vector<OpCall::Named> arguments;
    for (size_t i = 0; i < o.node.args.size() && i < names.size(); ++i)
      if (!std::holds_alternative<graph::None>(o.node.args[i])) arguments.push_back({names[i], elementOf(o.node.args[i], k)});
    Tensors one = o.instead("aten." + std::string(row.plain), arguments, {results[k]});
    if (o.failed()) return {};
    out[k] = one[0];
  }
  return out;
}

/// addcmul and addcdiv whose factors are the elements of one tensor.
Tensors scaledByElements(OpCall &o) {
  const Tensors to = o.list("self"), a = o.list("tensor1"), b = o.list("tensor2");
  const Tensor factors = o.t("scalars");
  if (a.size() != to.size() || b.size() != to.size() || factors.rank() != 1) return o.fail("its lists are of different lengths");
  o.assumeEqual(factors.size(0), Expr(static_cast<int64_t>(to.size())));
  const bool divides = o.node.target == "aten._foreach_addcdiv.Tensor";
  Tensors out;
  for (size_t k = 0; k < to.size(); ++k) {
    const DType type = to[k].dtype();
    if (!isFloat(type)) return o.fail("its tensors are not of floating point");
    const Tensor xs[] = {to[k], a[k], b[k], select(factors, 0, static_cast<int64_t>(k))};
    out.push_back(pointwise(xs, type, type, [=](std::span<const Val> v) { return v[0] + v[3] * (divides ? v[1] / v[2] : v[1] * v[2]); }));
  }
  return out;
}

} // namespace

void addLists(OpTable &t) {
  // The plain operators say what they know.
  t.family(OnComplex::Own);
  for (const ListOp &row : kListOps) t.add(row.list, ofEach);
  for (const std::string &name : words(kOfOne)) t.add("_foreach_" + name + ".default", ofEach);
  t.family(OnComplex::Refuse);
  t.add("_foreach_addcmul.Tensor _foreach_addcdiv.Tensor", scaledByElements);
}

} // namespace neso::lower
