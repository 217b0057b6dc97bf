#include "ir/graph/passes/views.h"

#include <algorithm>
#include <array>

namespace neso::graph {
namespace {

bool oneOf(std::string_view s, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), s) != names.end();
}

/// A view that shows its argument's memory with the sign of (a part of) each element turned: torch sets a bit that
/// readers heed. As memory it is its argument, as a value it is not.
bool turnsSigns(std::string_view name, DType t) {
  if (name == "aten._neg_view") return true;
  return isComplex(t) &&
         oneOf(name, {"aten.conj", "aten._conj", "prims.conj", "aten.mH", "aten.adjoint", "aten.matrix_H"});
}

bool isTrue(const Argument *a) { return a && std::holds_alternative<bool>(*a) && std::get<bool>(*a); }

} // namespace

bool sameStrides(const std::vector<Expr> &sizes, const std::vector<Expr> &a, const std::vector<Expr> &b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i] && !sizes[i].isConst(1)) return false;
  return true;
}

std::vector<Expr> contiguousStrides(const std::vector<Expr> &sizes) {
  std::vector<Expr> out(sizes.size(), Expr(1));
  Expr step = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    out[i] = step;
    if (!sizes[i].isConst(0)) step = step * sizes[i];
  }
  return out;
}

std::optional<std::vector<Expr>> viewStrides(const TensorType &x, const std::vector<Expr> &sizes) {
  // As ATen's computeStride: dimensions of the input that are contiguous with each other form a chunk; each chunk must
  // be covered by whole dimensions of the result.
  for (Expr s : x.sizes)
    if (s.isConst(0)) return contiguousStrides(sizes);
  std::vector<Expr> out(sizes.size(), Expr(1));
  if (x.sizes.empty()) return out;
  size_t view = sizes.size();
  Expr base = x.strides.back(), tensorCount = 1, viewCount = 1;
  for (size_t d = x.sizes.size(); d-- > 0;) {
    tensorCount = tensorCount * x.sizes[d];
    bool chunkEnds = d == 0 || (!x.sizes[d - 1].isConst(1) && x.strides[d - 1] != tensorCount * base);
    if (!chunkEnds) continue;
    while (view > 0 && (viewCount != tensorCount || sizes[view - 1].isConst(1))) {
      --view;
      out[view] = viewCount * base;
      viewCount = viewCount * sizes[view];
      // With constants, stop as soon as the chunk is overshot.
      if (viewCount.isConst() && tensorCount.isConst() && viewCount.constValue() > tensorCount.constValue())
        return std::nullopt;
    }
    if (viewCount != tensorCount) return std::nullopt;
    if (d > 0) {
      base = x.strides[d - 1];
      tensorCount = 1;
      viewCount = 1;
    }
  }
  if (view != 0) return std::nullopt;
  return out;
}

Aliasing aliasing(const Graph &g, const Node &n, const OpSchema &op, ValueId result) {
  if (n.args.empty()) return {};
  // Results of these are the input itself under conditions that their schemas do not speak of.
  if (oneOf(op.name, {"aten.dropout", "aten.feature_dropout", "aten.alpha_dropout", "aten.feature_alpha_dropout"})) {
    const double *p = std::get_if<double>(&n.args[1]);
    return !isTrue(n.arg("train")) || (p && *p == 0) ? Aliasing{0, true} : Aliasing{};
  }
  auto tensor = [&](size_t i) -> const Value * {
    const ValueId *id = i < n.args.size() ? std::get_if<ValueId>(&n.args[i]) : nullptr;
    return id && id->valid() && g.value(*id).kind == Value::Kind::Tensor ? &g.value(*id) : nullptr;
  };
  const Value *in = tensor(0);
  const Value *out = result.valid() ? &g.value(result) : nullptr;
  for (const auto &list : n.outputs)
    for (ValueId id : list)
      if (id.valid() && !out) out = &g.value(id);
  if (!in || !out || out->kind != Value::Kind::Tensor) return {};
  bool same = in->type.dtype == out->type.dtype && in->type.sizes == out->type.sizes;
  if (oneOf(op.name, {"aten.type_as", "aten.sum_to_size"})) return same ? Aliasing{0, true} : Aliasing{};
  if (op.name == "aten.conj_physical" && !isComplex(in->type.dtype)) return {0, true};
  if (op.name == "aten.lift") return {0, true};
  if (op.name == "aten._unsafe_view") return {0, same};
  // Casts to what their argument is already.
  if (op.name.substr(0, 11) == "aten._cast_") return same ? Aliasing{0, true} : Aliasing{};
  if (!op.isView()) return {};
  if (op.name == "aten.to" || op.name == "aten.contiguous") {
    bool shared = same && !isTrue(n.arg("copy")) && sameStrides(in->type.sizes, in->type.strides, out->type.strides);
    return shared ? Aliasing{0, true} : Aliasing{};
  }
  if (oneOf(op.name,
            {"aten.detach", "aten.alias", "aten.lift_fresh", "aten.positive", "aten.resolve_conj", "aten.resolve_neg"}))
    return {0, true};
  if (oneOf(op.name, {"aten.conj", "aten._conj", "prims.conj", "aten.real"}) && same && !isComplex(in->type.dtype))
    return {0, true};
  if (oneOf(op.name, {"aten.reshape", "aten.flatten", "aten.ravel", "aten.reshape_as"})) {
    if (in->type.sizes == out->type.sizes) return {0, true};
    std::optional<std::vector<Expr>> strides = viewStrides(in->type, out->type.sizes);
    return strides && sameStrides(out->type.sizes, *strides, out->type.strides) ? Aliasing{0, false} : Aliasing{};
  }
  // A dim of dynamic size that a squeeze has kept may not be one, which its lowering checks: the call is not nothing.
  if (op.name == "aten.squeeze" && same && std::any_of(in->type.sizes.begin(), in->type.sizes.end(), [](Expr e) { return !e.isConst(); }))
    return {0, false};
  // A transposition keeps its elements' order where it moves none of more than one element. The strides do not say so: an argument that took the place
  // of its copy (simplify.cpp) may have those that the result has.
  if (const std::optional<std::vector<int64_t>> p = permutationOf(g, n)) {
    int64_t last = -1;
    bool kept = same && !turnsSigns(op.name, in->type.dtype);
    for (int64_t d : *p) {
      if (in->type.sizes[static_cast<size_t>(d)].isConst(1)) continue;
      kept &= d > last, last = d;
    }
    return {0, kept};
  }
  // The argument of the same alias set as the first aliased result.
  for (const ArgSchema &r : op.returns)
    if (r.alias)
      for (size_t i = 0; i < op.args.size(); ++i)
        if (op.args[i].alias && op.args[i].type == ArgType::Tensor && tensor(i))
          return {static_cast<int>(i), i == 0 && same && !turnsSigns(op.name, in->type.dtype) &&
                                           sameStrides(in->type.sizes, in->type.strides, out->type.strides) &&
                                           in->type.offset == out->type.offset};
  return {};
}

std::optional<std::vector<int64_t>> permutationOf(const Graph &g, const Node &n) {
  const ValueId *self = n.args.empty() ? nullptr : std::get_if<ValueId>(&n.args[0]);
  if (!self || !self->valid()) return std::nullopt;
  int64_t rank = g.value(*self).type.rank();
  std::vector<int64_t> p(static_cast<size_t>(rank));
  for (int64_t i = 0; i < rank; ++i) p[static_cast<size_t>(i)] = i;
  std::string_view op = std::string_view(n.target).substr(0, n.target.rfind('.'));
  bool bad = false;
  auto wrap = [&](int64_t d) -> size_t {
    if (d < 0) d += rank;
    if (d < 0 || d >= rank) bad = true;
    return bad ? 0 : static_cast<size_t>(d);
  };
  auto ints = [&](size_t i) {
    std::vector<int64_t> out;
    if (i >= n.args.size()) return out;
    if (const int64_t *one = std::get_if<int64_t>(&n.args[i])) out.push_back(*one);
    if (const auto *list = std::get_if<std::vector<IntOrSym>>(&n.args[i]))
      for (const IntOrSym &e : *list) out.push_back(e.index() == 0 ? std::get<int64_t>(e) : rank);
    return out;
  };
  if (op == "aten.permute") {
    std::vector<int64_t> dims = ints(1);
    if (dims.size() != p.size()) return std::nullopt;
    for (size_t i = 0; i < dims.size(); ++i) p[i] = static_cast<int64_t>(wrap(dims[i]));
  } else if (oneOf(op, {"aten.transpose", "aten.swapaxes", "aten.swapdims"})) {
    std::vector<int64_t> a = ints(1), b = ints(2);
    if (a.size() != 1 || b.size() != 1) return std::nullopt;
    if (rank > 0) std::swap(p[wrap(a[0])], p[wrap(b[0])]);
  } else if (op == "aten.t" || op == "aten.mT" || op == "aten.mH" || op == "aten.adjoint" || op == "aten.matrix_H") {
    if (op != "aten.t" && op != "aten.mT" && isComplex(g.value(*self).type.dtype)) return std::nullopt;
    if (rank >= 2) std::swap(p[p.size() - 1], p[p.size() - 2]);
  } else if (op == "aten.numpy_T") {
    std::reverse(p.begin(), p.end());
  } else if (oneOf(op, {"aten.movedim", "aten.moveaxis"})) {
    std::vector<int64_t> from = ints(1), to = ints(2);
    if (from.size() != to.size()) return std::nullopt;
    std::fill(p.begin(), p.end(), -1);
    std::vector<bool> taken(p.size());
    for (size_t i = 0; i < from.size(); ++i) {
      size_t f = wrap(from[i]), t = wrap(to[i]);
      if (bad || taken[f] || p[t] >= 0) return std::nullopt;
      p[t] = static_cast<int64_t>(f);
      taken[f] = true;
    }
    size_t next = 0;
    for (int64_t &x : p) {
      if (x >= 0) continue;
      while (taken[next]) ++next;
      x = static_cast<int64_t>(next++);
    }
  } else {
    return std::nullopt;
  }
  if (bad) return std::nullopt;
  return p;
}

static ValueId symbolic(Graph &g, Expr e) {
  // One value an expression; its name cannot clash with a name of the file, which are identifiers.
  ValueId id(static_cast<int64_t>(g.values.size()));
  Value v;
  v.id = id;
  v.name = fmt::format("size.{}", id.value);
  v.kind = Value::Kind::SymInt;
  v.expr = e;
  g.values.push_back(std::move(v));
  return id;
}

Argument sizeArgument(Graph &g, Expr size) {
  if (std::optional<int64_t> c = size.asConst()) return *c;
  return symbolic(g, size);
}

Argument sizeList(Graph &g, const std::vector<Expr> &sizes) {
  std::vector<IntOrSym> out;
  for (Expr s : sizes) {
    if (std::optional<int64_t> c = s.asConst())
      out.emplace_back(*c);
    else
      out.emplace_back(symbolic(g, s));
  }
  return out;
}

std::optional<Expr> intOf(const Graph &g, const Argument *a) {
  if (!a) return std::nullopt;
  if (const int64_t *i = std::get_if<int64_t>(a)) return Expr(*i);
  if (const ValueId *id = std::get_if<ValueId>(a); id && id->valid() && g.value(*id).expr.valid())
    return g.value(*id).expr;
  return std::nullopt;
}

} // namespace neso::graph
