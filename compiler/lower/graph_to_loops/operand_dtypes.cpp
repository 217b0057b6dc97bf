#include "lower/graph_to_loops/operand_dtypes.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/dtype.h"

namespace neso::lower {

namespace {

using graph::ValueId;

enum class Demand {
  OneDtype,   // the operands named have one dtype
  Parameters, // they have that of the first one, or float32 beside a narrower one
  NoFloats,   // they are integers or Bool
  NoBool,     // they are not Bool
  Floats,     // they are real or complex floating point
};

struct Rule {
  Demand demand;
  std::string_view operands;  // by their names in the schema; "*": all; empty: the first result, where operands of several dtypes are promoted
  std::string_view operators; // a name without overload stands for all overloads
  std::string_view given = {}; // the rule holds for calls that give all of these arguments
};

constexpr Rule kRules[] = {
    {Demand::OneDtype, "*",
     "mm bmm matmul __rmatmul__ linalg_matmul mv dot vdot linalg_vecdot addmm.default addmv addbmm baddbmm.default linear tensordot linalg_multi_dot chain_matmul"},
    {Demand::OneDtype, "self source", "index_add index_copy index_reduce put masked_scatter"},
    {Demand::OneDtype, "self values", "index_put _index_put_impl _unsafe_index_put _unsafe_masked_index_put_accumulate"},
    {Demand::OneDtype, "self src", "scatter.src scatter_add scatter_reduce.two"},
    {Demand::OneDtype, "self other", "cross linalg_cross"},
    {Demand::OneDtype, "self values", "heaviside"},
    {Demand::OneDtype, "self weight", "prelu"},
    {Demand::OneDtype, "x1 x2", "cdist _cdist_forward _euclidean_dist"},
    {Demand::OneDtype, "real imag", "complex"},
    {Demand::OneDtype, "input grid", "grid_sampler grid_sampler_2d grid_sampler_3d"},
    {Demand::OneDtype, "input weight bias", "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution"},
    {Demand::OneDtype, "query key value", "_scaled_dot_product_flash_attention_for_cpu"},
    {Demand::OneDtype, "self target", "binary_cross_entropy"},
    {Demand::OneDtype, "weight per_sample_weights", "embedding_bag"},
    {Demand::OneDtype, "grad_output output", "_softmax_backward_data _log_softmax_backward_data"},
    {Demand::Parameters, "input weight bias", "layer_norm native_layer_norm group_norm native_group_norm"},
    {Demand::Parameters, "input weight bias running_mean running_var",
     "batch_norm native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training _batch_norm_with_update instance_norm"},
    {Demand::NoFloats, "index", "index_add index_copy index_reduce index_fill index_select put"},
    {Demand::NoFloats, "indices", "index_put _unsafe_index_put index.Tensor"},
    {Demand::NoBool, "self", "argmax argmin"},
    {Demand::NoBool, "self other", "sub rsub"},
    {Demand::NoBool, "",
     "abs addbmm addcmul addmm addmv avg_pool1d avg_pool2d avg_pool3d baddbmm bilinear bmm ceil conv1d conv2d conv3d conv_transpose1d conv_transpose2d "
     "conv_transpose3d convolution cross linalg_cross div.Tensor_mode dot floor fmod.Tensor index_reduce inner kthvalue linalg_matrix_power linalg_multi_dot linear matmul "
     "max_pool1d_with_indices max_pool2d max_pool2d_with_indices max_pool3d max_pool3d_with_indices median mm mv nanmedian relu remainder.Tensor round tensordot threshold "
     "topk trunc vdot"},
    // One bound is a maximum or a minimum, which there is of truth values.
    {Demand::NoBool, "", "clamp.Tensor", "min max"},
    {Demand::Floats, "",
     "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d celu "
     "frac glu grid_sampler grid_sampler_2d grid_sampler_3d hardshrink hardsigmoid hardswish igamma igammac lerp log_sigmoid max_pool1d max_unpool2d max_unpool3d mish prelu "
     "round.decimals segment_reduce softplus"},
    {Demand::Floats, "self", "var var_mean std std_mean"},
};

template <class Fn> void forEachWord(std::string_view words, Fn fn) {
  while (!words.empty()) {
    const size_t end = std::min(words.find(' '), words.size());
    if (end > 0) fn(words.substr(0, end));
    words.remove_prefix(std::min(end + 1, words.size()));
  }
}

/// The rules of each operator, by its name with "aten." and with or without overload.
const std::unordered_map<std::string, std::vector<const Rule *>> &rules() {
  static const auto table = [] {
    std::unordered_map<std::string, std::vector<const Rule *>> out;
    for (const Rule &rule : kRules) forEachWord(rule.operators, [&](std::string_view name) { out["aten." + std::string(name)].push_back(&rule); });
    return out;
  }();
  return table;
}

struct Operand {
  std::string name;
  DType dtype;
};

std::vector<Operand> operandsOf(const Rule &rule, const graph::Graph &graph, const graph::Node &node) {
  std::vector<Operand> out;
  auto take = [&](const std::string &name, ValueId id) {
    if (id.valid() && graph.value(id).kind == graph::Value::Kind::Tensor) out.push_back({name, graph.value(id).type.dtype});
  };
  if (rule.operands.empty()) {
    if (!node.outputs.empty() && !node.outputs[0].empty()) take("its result", node.outputs[0][0]);
    return out;
  }
  forEachWord(rule.operands, [&](std::string_view word) {
    for (size_t k = 0; k < node.args.size(); ++k) {
      if (word != "*" && node.argNames[k] != word) continue;
      const std::string name = "'" + node.argNames[k] + "'";
      if (const ValueId *id = std::get_if<ValueId>(&node.args[k])) take(name, *id);
      if (const auto *ids = std::get_if<std::vector<ValueId>>(&node.args[k]))
        for (ValueId id : *ids) take(name, id);
    }
  });
  return out;
}

bool holdsFor(const Rule &rule, const graph::Node &node) {
  bool all = true;
  forEachWord(rule.given, [&](std::string_view word) {
    const graph::Argument *argument = node.arg(word);
    all = all && argument && !std::holds_alternative<graph::None>(*argument);
  });
  return all;
}

std::string faultOf(const Rule &rule, const std::vector<Operand> &operands) {
  if (operands.empty()) return {};
  const Operand &first = operands[0];
  auto has = [](const Operand &x) { return x.name + " has " + std::string(name(x.dtype)); };
  for (const Operand &x : operands) {
    const bool parameter = isReducedFloat(first.dtype) && x.dtype == DType::F32, number = isFloat(x.dtype) || isComplex(x.dtype);
    switch (rule.demand) {
    case Demand::OneDtype:
      if (x.dtype != first.dtype) return "PyTorch takes operands of one dtype only: " + has(first) + " and " + has(x);
      break;
    case Demand::Parameters:
      if (x.dtype != first.dtype && !parameter) return "PyTorch takes parameters of the dtype of what they belong to, or float32 beside a narrower one: " + has(first) + " and " + has(x);
      break;
    case Demand::NoFloats:
      if (number) return "PyTorch takes integers only: " + has(x);
      break;
    case Demand::NoBool:
      if (x.dtype == DType::Bool) return "PyTorch does not compute it of truth values: " + has(x);
      break;
    case Demand::Floats:
      if (!number) return "PyTorch takes floating point numbers only: " + has(x);
      break;
    }
  }
  return {};
}

} // namespace

std::string operandDtypeFault(const graph::Graph &graph, const graph::Node &node) {
  const size_t overload = node.target.find('.', std::string_view("aten.").size());
  for (const std::string &name : {node.target, node.target.substr(0, overload)}) {
    const auto found = rules().find(name);
    if (found == rules().end()) continue;
    for (const Rule *rule : found->second) {
      if (!holdsFor(*rule, node)) continue;
      if (std::string why = faultOf(*rule, operandsOf(*rule, graph, node)); !why.empty()) return why;
    }
  }
  return {};
}

} // namespace neso::lower
