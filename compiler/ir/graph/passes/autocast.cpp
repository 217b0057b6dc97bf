#include "ir/graph/passes/autocast.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include <fmt/format.h>

#include "ir/graph/passes/emit.h"
#include "ir/graph/visit.h"

namespace neso::graph {
namespace {

enum class Policy {
  Narrow,           // operands become the region's dtype
  Wide,             // float32
  WideUnlessGiven,  // float32, where the call says no dtype
  Widest,           // the widest that one of them has
};

struct Row {
  std::string_view device;
  Policy policy;
  std::string_view operators; // as they are registered: a name without overload is the default one, and forms in place or with out= are none of them
};

// What aten/src/ATen/autocast_mode.cpp (CPU) and autocast_mode.h (CUDA) register.
constexpr Row kRows[] = {
    {"cpu", Policy::Narrow,
     "_addmm_activation _convolution.deprecated _native_multi_head_attention addbmm addmm baddbmm bmm conv1d conv1d.padding conv2d conv2d.padding conv3d conv3d.padding "
     "conv_tbc conv_transpose1d conv_transpose2d.input conv_transpose3d.input linalg_vecdot linear matmul mkldnn_rnn_layer mm prelu scaled_dot_product_attention"},
    {"cpu", Policy::Widest,
     "cat index_copy stack"},
    {"cpu", Policy::Wide,
     "_lu_with_info adaptive_avg_pool3d adaptive_max_pool3d avg_pool3d binary_cross_entropy binary_cross_entropy_with_logits cdist cholesky_inverse cholesky_solve "
     "cosine_embedding_loss cross_entropy_loss ctc_loss.IntList ctc_loss.Tensor fake_quantize_per_tensor_affine fft_fft fft_fft2 fft_fftn fft_hfft fft_ifft fft_ifft2 "
     "fft_ifftn fft_ihfft fft_irfft fft_irfft2 fft_irfftn fft_rfft fft_rfft2 fft_rfftn fractional_max_pool2d fractional_max_pool3d geqrf grid_sampler grid_sampler_2d "
     "grid_sampler_3d hinge_embedding_loss huber_loss inverse kl_div l1_loss linalg_cholesky linalg_cholesky_ex linalg_cond linalg_cond.p_str linalg_eig linalg_eigh "
     "linalg_eigvals linalg_eigvalsh linalg_householder_product linalg_inv linalg_inv_ex linalg_lstsq linalg_matrix_rank linalg_matrix_rank.atol_rtol_float "
     "linalg_matrix_rank.atol_rtol_tensor linalg_matrix_rank.tol_tensor linalg_matrix_sqrth linalg_qr linalg_solve linalg_svd linalg_svdvals linalg_tensorinv "
     "linalg_tensorsolve lu_solve margin_ranking_loss max_pool3d max_unpool2d max_unpool3d mse_loss multi_margin_loss multilabel_margin_loss multilabel_margin_loss_forward "
     "nanquantile nanquantile.scalar nll_loss nll_loss2d orgqr ormqr pinverse poisson_nll_loss polar prod prod.dim_int quantile quantile.scalar reflection_pad1d "
     "reflection_pad2d replication_pad1d replication_pad2d replication_pad3d smooth_l1_loss soft_margin_loss stft stft.center svd trace triangular_solve triplet_margin_loss "
     "view_as_complex"},
    {"cuda", Policy::Narrow,
     "_convolution _convolution.deprecated _scaled_dot_product_flash_attention _thnn_fused_gru_cell _thnn_fused_lstm_cell addbmm addmm addmv addr baddbmm bmm chain_matmul "
     "conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input conv_transpose3d.input convolution einsum gru_cell linalg_multi_dot linalg_vecdot linear lstm_cell "
     "matmul mm mv prelu rnn_relu_cell rnn_tanh_cell scaled_dot_product_attention"},
    {"cuda", Policy::Widest,
     "addcdiv addcmul atan2 bilinear cross dot grid_sampler index_put scatter_add tensordot vdot"},
    {"cuda", Policy::Wide,
     "_upsample_bicubic2d_aa _upsample_bilinear2d_aa _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d acos asin binary_cross_entropy_with_logits "
     "cdist cosh cosine_embedding_loss cosine_similarity dist erfinv exp expm1 frobenius_norm.dim group_norm hinge_embedding_loss huber_loss kl_div l1_loss layer_norm "
     "linalg_matrix_sqrth log log10 log1p log2 logsumexp margin_ranking_loss mse_loss multi_margin_loss multilabel_margin_loss native_layer_norm nll_loss nll_loss2d "
     "norm.Scalar norm.ScalarOpt_dim nuclear_norm nuclear_norm.dim pdist poisson_nll_loss pow.Scalar pow.Tensor_Scalar pow.Tensor_Tensor reciprocal renorm rms_norm rsqrt sinh "
     "smooth_l1_loss soft_margin_loss softplus tan triplet_margin_loss upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d upsample_nearest2d "
     "upsample_nearest3d upsample_trilinear3d"},
    {"cuda", Policy::WideUnlessGiven,
     "cumprod cumsum linalg_matrix_norm linalg_matrix_norm.str_ord linalg_vector_norm log_softmax.int prod prod.dim_int softmax.int sum sum.dim_IntList"},
};

using Policies = std::unordered_map<std::string, Policy>;

/// By target; null: torch's lists for the device are not known here.
const Policies *policiesFor(std::string_view device) {
  static const auto read = [](std::string_view of) {
    Policies out;
    for (const Row &row : kRows) {
      if (row.device != of) continue;
      for (std::string_view words = row.operators; !words.empty();) {
        const size_t end = std::min(words.find(' '), words.size());
        const std::string_view word = words.substr(0, end);
        if (end > 0) out.emplace(fmt::format("aten.{}{}", word, word.find('.') == word.npos ? ".default" : ""), row.policy);
        words.remove_prefix(std::min(end + 1, words.size()));
      }
    }
    return out;
  };
  static const Policies cpu = read("cpu"), cuda = read("cuda");
  return device == "cpu" ? &cpu : device == "cuda" ? &cuda : nullptr;
}

/// The casts of one region, also inside of its control flow.
class Region {
public:
  Region(const Policies &policies, DType narrow) : policies_(policies), narrow_(narrow) {}

  void writeOut(Graph &g) {
    std::vector<Node> nodes;
    for (Node &n : g.nodes) {
      if (n.target != kRegion) { // has a state of its own
        forEachSubgraph(n, [&](Graph &sub) { writeOut(sub); });
        castOperands(g, n, nodes);
      }
      nodes.push_back(std::move(n));
    }
    g.nodes = std::move(nodes);
  }

  static constexpr std::string_view kRegion = "higher_order.wrap_with_autocast";
  template <class Fn> static void forEachSubgraph(Node &n, Fn fn) {
    for (Argument &a : n.args)
      if (const auto *sub = std::get_if<std::shared_ptr<Graph>>(&a)) fn(**sub);
  }

private:
  /// Autocast sees these alone: integers, truth values and float64 stay.
  static bool isCast(const Graph &g, ValueId id) {
    return id.valid() && g.value(id).kind == Value::Kind::Tensor && isFloat(g.value(id).type.dtype) && g.value(id).type.dtype != DType::F64;
  }

  std::optional<DType> dtypeFor(const Graph &g, const Node &n) const {
    const auto found = policies_.find(n.target);
    if (found == policies_.end()) return std::nullopt;
    const Argument *given = n.arg("dtype");
    switch (found->second) {
    case Policy::Narrow: return narrow_;
    case Policy::WideUnlessGiven:
      if (given && !std::holds_alternative<None>(*given)) return std::nullopt;
      [[fallthrough]];
    case Policy::Wide: return DType::F32;
    case Policy::Widest: break;
    }
    DType widest = narrow_;
    forEachInput(n, [&](ValueId id) {
      if (isCast(g, id) && g.value(id).type.dtype == DType::F32) widest = DType::F32;
    });
    return widest;
  }

  void castOperands(Graph &g, Node &n, std::vector<Node> &nodes) const {
    const std::optional<DType> dtype = dtypeFor(g, n);
    if (!dtype) return;
    for (Argument &a : n.args)
      forEachValue(a, [&](ValueId &id) {
        if (!isCast(g, id) || g.value(id).type.dtype == *dtype) return;
        TensorType type = g.value(id).type;
        type.dtype = *dtype;
        id = emitCall(g, nodes, n, "aten._to_copy.default", {id, *dtype}, g.value(id).name + "." + n.name, std::move(type));
      });
  }

  const Policies &policies_;
  DType narrow_;
};

} // namespace

void writeOutAutocast(Model &m) {
  forEachGraph(m.graph, [](Graph &g) {
    for (Node &n : g.nodes) {
      if (n.target != Region::kRegion || n.args.size() < 3) continue;
      const std::string *device = std::get_if<std::string>(&n.args[0]);
      const DType *dtype = std::get_if<DType>(&n.args[1]);
      bool *on = std::get_if<bool>(&n.args[2]);
      const Policies *policies = device ? policiesFor(*device) : nullptr;
      if (!policies || !on || !*on) continue;
      Region region(*policies, dtype ? *dtype : *device == "cpu" ? DType::BF16 : DType::F16);
      Region::forEachSubgraph(n, [&](Graph &body) { region.writeOut(body); });
      *on = false;
    }
  });
}

} // namespace neso::graph
