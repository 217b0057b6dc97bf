#include "ir/graph/passes/primitives.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/rules.h"
#include "ir/graph/ops.h"
#include "ir/graph/passes/emit.h"
#include "ir/graph/passes/views.h"
#include "ir/graph/visit.h"

namespace neso::graph {
namespace {

/// Operators whose arguments stand in ATen's order, by their names there; overload: of those without another one.
struct Same {
  std::string_view overload, names; // "prims", or "prims=aten"
};
constexpr Same kSame[] = {
    {"default",
     "abs acos acosh asin asinh atan atanh bessel_i0=i0 bessel_i0e=special_i0e bessel_i1=special_i1 bessel_i1e=special_i1e bessel_j0=special_bessel_j0 "
     "bessel_j1=special_bessel_j1 bitwise_not ceil clone conj_physical cos cosh digamma erf erf_inv=erfinv erfc erfcx=special_erfcx exp exp2 expm1 floor imag isfinite lgamma "
     "log log10 log1p log2 ndtri=special_ndtri neg real reciprocal round rsqrt sign signbit sin sinh spherical_bessel_j0=special_spherical_bessel_j0 sqrt tan tanh trunc "
     "atan2 fmax fmin gcd hypot igamma igammac maximum minimum nextafter zeta=special_zeta frexp=frexp.Tensor where=where.self "
     "cat reshape rev=flip squeeze=squeeze.dims transpose=permute view_of=alias view_of_dtype=view.dtype as_strided"},
    {"Tensor",
     "add bitwise_and bitwise_or bitwise_xor div eq fmod ge gt le lt mul ne pow=pow.Tensor_Tensor remainder shift_left=bitwise_left_shift "
     "shift_right_arithmetic=bitwise_right_shift sub"},
};

/// By the primitive's target, the ATen operator's.
const std::unordered_map<std::string, std::string> &sameByTarget() {
  static const auto table = [] {
    std::unordered_map<std::string, std::string> out;
    for (const Same &row : kSame)
      for (std::string_view words = row.names; !words.empty();) {
        const size_t end = std::min(words.find(' '), words.size());
        const std::string word(words.substr(0, end));
        words.remove_prefix(std::min(end + 1, words.size()));
        if (word.empty()) continue;
        const size_t is = word.find('=');
        std::string to = is == word.npos ? word : word.substr(is + 1);
        if (to.find('.') == to.npos) to += "." + std::string(row.overload);
        out.emplace("prims." + word.substr(0, is) + ".default", "aten." + to);
      }
    return out;
  }();
  return table;
}

/// Those whose arguments are put elsewhere.
constexpr std::pair<std::string_view, std::string_view> kOther[] = {
    {"prims.broadcast_in_dim.default", "aten.expand.default"}, {"prims.iota.default", "aten.arange.start_step"}, {"prims.full.default", "aten.full.default"},
    {"prims.full_like.default", "aten.full_like.default"},     {"prims.empty.default", "aten.empty.memory_format"}, {"prims.device_put.default", "aten.alias.default"},
    {"prims.sum.default", "aten.sum.dim_IntList"},             {"prims.amax.default", "aten.amax.default"},         {"prims.amin.default", "aten.amin.default"},
    {"prims.var.default", "aten.var.correction"},              {"prims.split_dim.default", "aten.view.default"},     {"prims.collapse.default", "aten.reshape.default"},
    {"prims.collapse_view.default", "aten.view.default"},      {"prims.empty_strided.default", "aten.empty_strided.default"},
    {"prims.fft_r2c.default", "aten._fft_r2c.default"},        {"prims.fft_c2r.default", "aten._fft_c2r.default"},   {"prims.fft_c2c.default", "aten._fft_c2c.default"},
    {"prims.svd.default", "aten._linalg_svd.default"},         {"prims.fill.default", "aten.fill.Scalar"},           {"prims.item.default", "aten._local_scalar_dense.default"},
};

class Opener {
public:
  Opener(Graph &g, std::vector<Node> &nodes) : g_(g), nodes_(nodes) {}

  void take(Node n) {
    if (n.target.starts_with("prims."))
      if (std::optional<Node> call = opened(n); call && bindArguments(*call, g_)) {
        applied(Rule::OpenPrimitive);
        n = std::move(*call);
      }
    nodes_.push_back(std::move(n));
  }

private:
  /// The call that n is, with the same results, perhaps behind others.
  std::optional<Node> opened(const Node &n) {
    if (n.target == "prims.div.default" && isInteger(n))
      return call(n, "aten.div.Tensor_mode", {n.args[0], n.args[1], std::string("trunc")});
    // PyTorch writes the operand's type there; what it computes are truth values.
    if (n.target == "prims.signbit.default" && resultOf(n)) g_.value(n.outputs[0][0]).type.dtype = DType::Bool;
    const std::optional<std::string> as = primitiveAs(n.target);
    if (!as) return std::nullopt;
    if (sameByTarget().count(n.target)) return call(n, *as, n.args);
    if (n.target == "prims.broadcast_in_dim.default") return broadcast(n, *as);
    if (n.target == "prims.iota.default") return iota(n, *as);
    if (n.target == "prims.full.default" || n.target == "prims.full_like.default") return call(n, *as, {n.args[0], n.args[1], given(n, "dtype")});
    if (n.target == "prims.empty.default") return call(n, *as, {n.args[0], given(n, "dtype")});
    if (n.target == "prims.device_put.default" || n.target == "prims.item.default") return call(n, *as, {n.args[0]});
    if (n.target == "prims.fill.default") return call(n, *as, n.args);
    if (n.target == "prims.empty_strided.default") return call(n, *as, {n.args[0], n.args[1], given(n, "dtype")});
    if (n.target == "prims.split_dim.default" || n.target.starts_with("prims.collapse")) return resultOf(n) ? std::optional(call(n, *as, {n.args[0], sizesOf(n)})) : std::nullopt;
    if (n.target == "prims.svd.default") return call(n, *as, {n.args[0], given(n, "full_matrices")});
    // 0: nothing is divided by.
    if (n.target.starts_with("prims.fft_")) return call(n, *as, {n.args[0], n.args[1], int64_t(0), n.args[2]});
    // What is left are reductions.
    if (!someDims(n)) return std::nullopt;
    if (n.target == "prims.sum.default") return call(n, *as, {n.args[0], n.args[1], false, given(n, "output_dtype")});
    if (!none(n, "output_dtype")) return std::nullopt;
    if (n.target != "prims.var.default") return call(n, *as, {n.args[0], n.args[1], false});
    Node var = call(n, *as, {n.args[0], n.args[1], given(n, "correction")});
    var.argNames = {"self", "dim", "correction"};
    return var;
  }

  static Node call(const Node &n, std::string target, std::vector<Argument> args) {
    Node out = n;
    out.target = std::move(target), out.args = std::move(args);
    out.argNames.clear();
    return out;
  }
  static Argument given(const Node &n, std::string_view name) {
    const Argument *a = n.arg(name);
    return a ? *a : Argument(None{});
  }
  static bool none(const Node &n, std::string_view name) { return std::holds_alternative<None>(given(n, name)); }
  const TensorType *resultOf(const Node &n) const {
    return n.outputs.size() == 1 && n.outputs[0].size() == 1 && n.outputs[0][0].valid() ? &g_.value(n.outputs[0][0]).type : nullptr;
  }
  bool isInteger(const Node &n) const { return resultOf(n) && !isFloat(resultOf(n)->dtype) && !isComplex(resultOf(n)->dtype); }
  /// Whether the dimensions that a reduction goes over are said, or all: ATen takes a list of none for all.
  static bool someDims(const Node &n) {
    if (n.args.size() < 2) return false;
    const auto *dims = std::get_if<std::vector<IntOrSym>>(&n.args[1]);
    return std::holds_alternative<None>(n.args[1]) || (dims && !dims->empty());
  }

  /// The sizes of the result as an argument.
  std::vector<IntOrSym> sizesOf(const Node &n) {
    std::vector<IntOrSym> out;
    for (const Expr e : std::vector<Expr>(resultOf(n)->sizes)) {
      if (e.isConst()) {
        out.push_back(e.constValue());
        continue;
      }
      const ValueId size = g_.addValue(n.name + ".size" + std::to_string(out.size()), {});
      g_.value(size).kind = Value::Kind::SymInt, g_.value(size).expr = e;
      out.push_back(size);
    }
    return out;
  }

  std::optional<Node> broadcast(const Node &n, const std::string &as) {
    const ValueId *x = std::get_if<ValueId>(&n.args[0]);
    const auto *dims = std::get_if<std::vector<IntOrSym>>(&n.args[2]);
    const TensorType *out = resultOf(n);
    if (!x || !dims || !out || static_cast<int64_t>(dims->size()) != g_.value(*x).type.rank()) return std::nullopt;
    std::vector<bool> kept(out->sizes.size(), false);
    for (const IntOrSym &d : *dims) {
      const int64_t *at = std::get_if<int64_t>(&d);
      if (!at || *at < 0 || *at >= out->rank()) return std::nullopt;
      kept[static_cast<size_t>(*at)] = true;
    }
    const std::vector<Expr> sizes = out->sizes;
    ValueId y = *x;
    for (size_t k = 0; k < kept.size(); ++k) {
      if (kept[k]) continue;
      TensorType t = g_.value(y).type;
      const auto at = static_cast<std::ptrdiff_t>(k);
      t.sizes.insert(t.sizes.begin() + at, Expr(1));
      t.strides = contiguousStrides(t.sizes);
      y = emitCall(g_, nodes_, n, "aten.unsqueeze.default", {y, static_cast<int64_t>(k)}, n.name + "." + std::to_string(k), std::move(t));
    }
    return call(n, as, {y, n.args[1]});
  }

  /// start, start + step, …: as many as are asked for.
  static std::optional<Node> iota(const Node &n, const std::string &as) {
    const int64_t *start = std::get_if<int64_t>(n.arg("start")), *step = std::get_if<int64_t>(n.arg("step")), *length = std::get_if<int64_t>(&n.args[0]);
    if (!start || !step) return std::nullopt;
    if (*start == 0 && *step == 1) return call(n, as, {int64_t(0), n.args[0], int64_t(1), given(n, "dtype")});
    int64_t end = 0;
    if (!length || __builtin_mul_overflow(*length, *step, &end) || __builtin_add_overflow(end, *start, &end)) return std::nullopt;
    return call(n, as, {*start, end, *step, given(n, "dtype")});
  }

  Graph &g_;
  std::vector<Node> &nodes_;
};

} // namespace

std::optional<std::string> primitiveAs(std::string_view target) {
  if (const auto it = sameByTarget().find(std::string(target)); it != sameByTarget().end()) return it->second;
  for (const auto &[name, as] : kOther)
    if (name == target) return std::string(as);
  return std::nullopt;
}

void openPrimitives(Model &m) {
  forEachGraph(m.graph, [](Graph &g) {
    if (std::none_of(g.nodes.begin(), g.nodes.end(), [](const Node &n) { return n.target.starts_with("prims."); })) return;
    std::vector<Node> nodes;
    Opener opener(g, nodes);
    for (Node &n : g.nodes) opener.take(std::move(n));
    g.nodes = std::move(nodes);
  });
}

} // namespace neso::graph
