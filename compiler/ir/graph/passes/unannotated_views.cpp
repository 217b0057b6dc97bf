#include "ir/graph/passes/unannotated_views.h"

#include <algorithm>
#include <set>

#include "base/fault.h"
#include "ir/graph/ops.h"
#include "ir/graph/passes/views.h"

namespace neso::graph {
namespace {

/// A call of a view operator, with the place in the model of the call that it stands for.
Node viewCall(Graph &g, const Node &from, std::string target, ValueId x, std::vector<Argument> rest, ValueId result) {
  Node out;
  out.target = std::move(target);
  out.loc = from.loc, out.module = from.module;
  out.outputs = {{result}};
  out.args = {x};
  out.args.insert(out.args.end(), rest.begin(), rest.end());
  out.name = g.value(result).name;
  Status bound = bindArguments(out, g);
  NESO_CHECK(static_cast<bool>(bound), "functionalize made a view that its schema refuses");
  return out;
}

/// The labels of an einsum of one operand of `rank` dimensions, and of its result; "..." stands for the dimensions that no
/// letter names, which get numbers of 1000 and more.
std::pair<std::vector<int>, std::vector<int>> einsumLabels(const std::string &equation, int64_t rank) {
  std::string text;
  for (char c : equation)
    if (c != ' ') text += c;
  const size_t arrow = text.find("->");
  const std::string_view in = std::string_view(text).substr(0, arrow);
  const int64_t unnamed = rank - std::count_if(in.begin(), in.end(), [](char c) { return c != '.'; });
  auto labelsOf = [&](std::string_view part) {
    std::vector<int> out;
    for (size_t i = 0; i < part.size(); ++i) {
      if (part[i] != '.') {
        out.push_back(part[i]);
        continue;
      }
      for (int64_t k = 0; k < unnamed; ++k) out.push_back(1000 + static_cast<int>(k));
      i += 2;
    }
    return out;
  };
  std::vector<int> labels = labelsOf(in), result;
  if (arrow != std::string::npos) return {labels, labelsOf(std::string_view(text).substr(arrow + 2))};
  // Without an arrow: the unnamed dimensions, then the letters that stand there once, sorted.
  for (int l : labels)
    if (std::count(labels.begin(), labels.end(), l) == 1) result.push_back(l);
  std::sort(result.begin(), result.end(), [](int x, int y) { return (x >= 1000) != (y >= 1000) ? x >= 1000 : x < y; });
  return {labels, result};
}

/// The subscripts of an einsum of one tensor as calls of views: diagonals of repeated letters, then a permutation. Empty where it sums, and then
/// its result is new.
std::vector<Node> viewsOfEinsum(Graph &g, const NewValue &newValue, const Node &n) {
  const auto *equation = n.args.size() > 1 ? std::get_if<std::string>(&n.args[0]) : nullptr;
  const auto *operands = n.args.size() > 1 ? std::get_if<std::vector<ValueId>>(&n.args[1]) : nullptr;
  if (!equation || !operands || operands->size() != 1) return {};
  const TensorType &type = g.value(operands->front()).type;
  auto [labels, result] = einsumLabels(*equation, type.rank());
  if (labels.size() != type.sizes.size()) return {};
  std::vector<Node> out;
  ValueId x = operands->front();
  TensorType t = type;
  auto step = [&](std::string target, std::vector<Argument> args, TensorType to) {
    ValueId y = newValue(n.name + "_view", to);
    out.push_back(viewCall(g, n, std::move(target), x, std::move(args), y));
    x = y, t = std::move(to);
  };
  for (size_t i = 0; i < labels.size(); ++i)
    for (size_t j = i + 1; j < labels.size(); ++j) {
      if (labels[i] != labels[j]) continue;
      TensorType to = t;
      to.sizes.push_back(t.sizes[i]), to.strides.push_back(t.strides[i] + t.strides[j]);
      for (size_t d : {j, i}) {
        to.sizes.erase(to.sizes.begin() + static_cast<std::ptrdiff_t>(d));
        to.strides.erase(to.strides.begin() + static_cast<std::ptrdiff_t>(d));
        labels.push_back(labels[d]);
        labels.erase(labels.begin() + static_cast<std::ptrdiff_t>(d));
      }
      labels.pop_back();
      step("aten.diagonal.default", {int64_t(0), static_cast<int64_t>(i), static_cast<int64_t>(j)}, to);
      i = static_cast<size_t>(-1);
      break;
    }
  std::vector<IntOrSym> order;
  for (int l : result)
    if (auto at = std::find(labels.begin(), labels.end(), l); at != labels.end()) order.emplace_back(static_cast<int64_t>(at - labels.begin()));
  if (order.size() != labels.size() || result.size() != labels.size()) return {};
  out.push_back(viewCall(g, n, "aten.permute.default", x, {order}, n.outputs[0][0]));
  return out;
}

/// One tensor of a meshgrid: its only dimension is dimension `d` of the result, along the others it is repeated.
void viewsOfGrid(Graph &g, const NewValue &newValue, const Node &n, ValueId x, size_t d, ValueId result, std::vector<Node> &out) {
  const TensorType &to = g.value(result).type;
  TensorType line = to;
  for (size_t k = 0; k < line.sizes.size(); ++k)
    if (k != d) line.sizes[k] = 1, line.strides[k] = 1;
  const bool whole = line.sizes == to.sizes;
  ValueId y = whole ? result : newValue(n.name + "_line", line);
  out.push_back(viewCall(g, n, "aten.view.default", x, {sizeList(g, line.sizes)}, y));
  if (!whole) out.push_back(viewCall(g, n, "aten.expand.default", y, {sizeList(g, g.value(result).type.sizes), false}, result));
}

} // namespace

std::vector<Node> viewsOfEach(Graph &g, const NewValue &newValue, const Node &n) {
  const std::string_view op = std::string_view(n.target).substr(0, n.target.rfind('.'));
  if (n.args.empty()) return {};
  if (op == "aten.einsum") return viewsOfEinsum(g, newValue, n);
  std::vector<ValueId> tensors;
  if (const auto *list = std::get_if<std::vector<ValueId>>(&n.args[0])) tensors = *list;
  if (const auto *one = std::get_if<ValueId>(&n.args[0])) tensors = {*one};
  std::vector<ValueId> results;
  for (const std::vector<ValueId> &entry : n.outputs) results.insert(results.end(), entry.begin(), entry.end());
  std::vector<Node> out;
  // "unsafe" leaves out what differentiation needs; the memory is shared as by the others.
  if (op == "aten.unsafe_split" || op == "aten.unsafe_chunk" || op == "aten.unsafe_split_with_sizes") {
    out = {n};
    out[0].target.erase(std::string_view("aten.").size(), std::string_view("unsafe_").size());
    return out;
  }
  static const std::set<std::string_view> kViews = {"aten.atleast_1d",    "aten.atleast_2d", "aten.atleast_3d",   "aten.broadcast_tensors",
                                                    "aten.align_tensors", "aten.meshgrid",   "aten.cartesian_prod"};
  if (!kViews.contains(op) || tensors.size() != results.size()) return {};
  // Of several tensors it computes.
  if (op == "aten.cartesian_prod" && tensors.size() != 1) return {};
  const std::string *indexing = n.arg("indexing") ? std::get_if<std::string>(n.arg("indexing")) : nullptr;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorType &from = g.value(tensors[i]).type, &to = g.value(results[i]).type;
    if (op == "aten.meshgrid")
      viewsOfGrid(g, newValue, n, tensors[i], indexing && *indexing == "xy" && i < 2 && tensors.size() > 1 ? 1 - i : i, results[i], out);
    else if (from.sizes == to.sizes)
      out.push_back(viewCall(g, n, "aten.alias.default", tensors[i], {}, results[i]));
    else if (op == "aten.broadcast_tensors")
      out.push_back(viewCall(g, n, "aten.expand.default", tensors[i], {sizeList(g, to.sizes), false}, results[i]));
    else
      out.push_back(viewCall(g, n, "aten.view.default", tensors[i], {sizeList(g, to.sizes)}, results[i]));
  }
  return out;
}

} // namespace neso::graph
