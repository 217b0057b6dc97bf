#include "ir/graph/passes/coordinates.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/diagnostics/graph.h"
#include "base/diagnostics/pt2.h"
#include "base/rules.h"
#include "ir/graph/passes/emit.h"
#include "ir/graph/passes/views.h"
#include "ir/graph/visit.h"

namespace neso::graph {
namespace {

constexpr int kCoordinates = 1; // torch.sparse_coo in files

constexpr std::initializer_list<std::string_view> kMakers = {"aten.sparse_coo_tensor.indices_size", "aten._sparse_coo_tensor_unsafe.default",
                                                            "aten._sparse_coo_tensor_with_dims_and_tensors.default"};

bool oneOf(std::string_view s, std::initializer_list<std::string_view> names) { return std::find(names.begin(), names.end(), s) != names.end(); }

/// indices: one row a dimension that has coordinates, one column an element; values: of each element, with the other dimensions behind.
struct Coordinates {
  ValueId indices, values;
};

class Writer {
public:
  explicit Writer(Graph &g) : g_(g) {}

  Status run() {
    std::vector<Node> before = std::move(g_.nodes);
    for (Node &n : before)
      if (Status s = take(n); !s) return s;
    g_.nodes = std::move(nodes_);
    for (Argument &a : g_.outputs) {
      const Value *sparse = nullptr;
      forEachValue(a, [&](ValueId v) {
        v = renamed(v), sparse = isSparse(v) ? &g_.value(v) : sparse;
      });
      if (sparse) return fail(diag::UnsupportedLayout, {}, sparse->name, kCoordinates);
      forEachValue(a, [&](ValueId &v) { v = renamed(v); });
    }
    return Status::ok();
  }

private:
  bool isSparse(ValueId v) const { return v.valid() && g_.value(v).kind == Value::Kind::Tensor && g_.value(v).type.coordinates; }
  ValueId renamed(ValueId v) const {
    const auto it = replaced_.find(v);
    return it == replaced_.end() ? v : it->second;
  }

  Status take(Node &n) {
    forEachInput(n, [&](ValueId &v) { v = renamed(v); });
    bool reads = false, makes = false;
    forEachInput(n, [&](ValueId v) { reads |= isSparse(v); });
    forEachOutput(n, [&](ValueId v) { makes |= isSparse(v); });
    if (!reads && !makes) {
      nodes_.push_back(std::move(n));
      return Status::ok();
    }
    like_ = n;
    if (!(makes ? (reads ? passOn(n) : make(n)) : use(n)))
      return fail(diag::OpRefused, n.loc, n.target, makes && !reads ? "sparse tensors can be made of indices, values and a size alone" : "of sparse tensors only products with dense ones on their right, sums, multiples, transposes and to_dense are supported");
    applied(Rule::WriteOutCoordinates);
    return Status::ok();
  }

  const TensorType &typeOf(ValueId v) const { return g_.value(v).type; }
  ValueId tensor(const Node &n, std::string_view name) const {
    const Argument *a = n.arg(name);
    const ValueId *v = a ? std::get_if<ValueId>(a) : nullptr;
    return v ? *v : ValueId();
  }
  /// The named operand where it is a sparse matrix, whose both dimensions have coordinates.
  std::optional<Coordinates> matrix(const Node &n, std::string_view name) const {
    const auto it = known_.find(tensor(n, name));
    if (it == known_.end() || typeOf(it->second.values).rank() != 1 || !typeOf(it->second.indices).sizes[0].isConst(2)) return std::nullopt;
    return it->second;
  }

  ValueId emit(std::string target, std::vector<Argument> args, std::vector<Expr> sizes, DType dtype) {
    TensorType t;
    t.dtype = dtype, t.sizes = std::move(sizes), t.strides = contiguousStrides(t.sizes);
    return emitCall(g_, nodes_, like_, std::move(target), std::move(args), like_.name + "." + std::to_string(++made_), std::move(t));
  }
  /// The size of a tensor as an argument of calls.
  IntOrSym sizeOf(ValueId v, int64_t dim) {
    const Expr e = typeOf(v).sizes[static_cast<size_t>(dim)];
    if (e.isConst()) return e.constValue();
    const ValueId size = g_.addValue(like_.name + "." + std::to_string(++made_), {});
    g_.value(size).kind = Value::Kind::SymInt, g_.value(size).expr = e;
    return size;
  }

  bool make(const Node &n) {
    if (!oneOf(n.target, kMakers)) return false;
    const ValueId indices = tensor(n, "indices"), values = tensor(n, "values"), made = n.outputs[0][0];
    const auto *size = n.arg("size") ? std::get_if<std::vector<IntOrSym>>(n.arg("size")) : nullptr;
    if (!indices.valid() || !values.valid() || !size || typeOf(indices).rank() != 2 || typeOf(values).rank() < 1) return false;
    const Expr dims = typeOf(indices).sizes[0];
    if (!dims.isConst() || dims.constValue() + typeOf(values).rank() - 1 != static_cast<int64_t>(size->size()) || size->size() != typeOf(made).sizes.size()) return false;
    const DType t = typeOf(made).dtype;
    known_[made] = {indices, typeOf(values).dtype == t ? values : emit("aten.to.dtype", {values, t}, typeOf(values).sizes, t)};
    sizes_[made] = *size;
    return true;
  }

  /// Sparse tensors of sparse ones. Where coordinates repeat, their values stay to be added up, so only what is linear may be done to them.
  bool passOn(const Node &n) {
    if (n.args.empty() || n.outputs.size() != 1 || n.outputs[0].size() != 1) return false;
    const ValueId *self = std::get_if<ValueId>(&n.args[0]);
    if (!self || !known_.count(*self)) return false;
    const ValueId made = n.outputs[0][0];
    Coordinates of = known_.at(*self);
    std::vector<IntOrSym> size = sizes_.at(*self);
    const DType t = typeOf(made).dtype;
    if (oneOf(n.target, {"aten.coalesce.default", "aten._coalesce.default", "aten.detach.default", "aten.alias.default", "aten.clone.default", "aten.contiguous.default"})) {
      if (t != typeOf(of.values).dtype) return false;
    } else if (oneOf(n.target, {"aten.t.default", "aten.transpose.int", "aten.permute.default", "aten.numpy_T.default", "aten.mT.default"})) {
      if (!matrix(n, n.argNames[0]) || typeOf(made).sizes.size() != 2) return false;
      if (!turns(n)) return define(made, of, size);
      of.indices = emit("aten.flip.default", {of.indices, std::vector<IntOrSym>{int64_t(0)}}, typeOf(of.indices).sizes, typeOf(of.indices).dtype);
      std::swap(size[0], size[1]);
    } else if (n.target == "aten.neg.default") {
      of.values = emit(n.target, {of.values}, typeOf(of.values).sizes, t);
    } else if (oneOf(n.target, {"aten.mul.Tensor", "aten.mul.Scalar", "aten.div.Tensor", "aten.div.Scalar"})) {
      const ValueId *by = n.args.size() > 1 ? std::get_if<ValueId>(&n.args[1]) : nullptr;
      if (n.args.size() < 2 || isTrueTensor(by)) return false;
      std::vector<Argument> args = n.args;
      args[0] = of.values;
      of.values = emit(n.target, std::move(args), typeOf(of.values).sizes, t);
    } else {
      return false;
    }
    return define(made, of, size);
  }

  bool isTrueTensor(const ValueId *v) const { return v && v->valid() && g_.value(*v).kind == Value::Kind::Tensor && (isSparse(*v) || typeOf(*v).rank() > 0); }

  bool define(ValueId made, const Coordinates &of, std::vector<IntOrSym> size) {
    known_[made] = of, sizes_[made] = std::move(size);
    return true;
  }

  /// Whether a call that transposes a matrix changes it: dimensions may be named such that it does not.
  bool turns(const Node &n) const {
    auto positive = [](int64_t d) { return d < 0 ? d + 2 : d; };
    if (n.target == "aten.transpose.int") {
      const int64_t *a = std::get_if<int64_t>(&n.args[1]), *b = std::get_if<int64_t>(&n.args[2]);
      return !a || !b || positive(*a) != positive(*b);
    }
    if (n.target != "aten.permute.default") return true;
    const auto *dims = std::get_if<std::vector<IntOrSym>>(&n.args[1]);
    const int64_t *first = dims && !dims->empty() ? std::get_if<int64_t>(&(*dims)[0]) : nullptr;
    return !first || positive(*first) != 0;
  }

  /// Dense tensors of sparse ones.
  bool use(const Node &n) {
    if (n.outputs.size() != 1 || n.outputs[0].size() != 1) return false;
    const ValueId result = n.outputs[0][0];
    if (oneOf(n.target, {"aten.to_dense.default", "aten._to_dense.default"})) return define(result, dense(n));
    if (oneOf(n.target, {"aten._sparse_sum.default", "aten.sum.default"})) return define(result, sum(n));
    if (n.target == "aten._sparse_mm.default") return define(result, product(n, "sparse", "dense"));
    if (n.target == "aten.mm.default") return define(result, product(n, "self", "mat2"));
    if (n.target == "aten.matmul.default") return define(result, product(n, "self", "other"));
    if (n.target == "aten.mv.default") return define(result, product(n, "self", "vec"));
    if (oneOf(n.target, {"aten.addmm.default", "aten._sparse_addmm.default"})) return define(result, sumWithProduct(n));
    return false;
  }
  bool define(ValueId result, ValueId by) {
    if (!by.valid()) return false;
    replaced_[result] = by;
    return true;
  }

  ValueId dense(const Node &n) {
    const ValueId self = tensor(n, "self");
    const auto it = known_.find(self);
    const TensorType &out = typeOf(n.outputs[0][0]);
    if (it == known_.end() || out.dtype != typeOf(it->second.values).dtype) return {};
    const Coordinates of = it->second;
    const std::vector<Expr> sizes = out.sizes;
    const DType t = out.dtype;
    const ValueId none = emit("aten.full.default", {sizes_.at(self), int64_t(0), t}, sizes, t);
    std::vector<ValueId> places;
    for (int64_t k = 0; k < typeOf(of.indices).sizes[0].constValue(); ++k) places.push_back(row(of, k));
    return emit("aten.index_put.default", {none, places, of.values, true}, sizes, t);
  }

  ValueId row(const Coordinates &of, int64_t k) {
    const TensorType &t = typeOf(of.indices);
    return emit("aten.select.int", {of.indices, int64_t(0), k}, {t.sizes[1]}, t.dtype);
  }

  ValueId sum(const Node &n) {
    const auto it = known_.find(tensor(n, "self"));
    const TensorType &out = typeOf(n.outputs[0][0]);
    if (it == known_.end() || out.rank() != 0) return {};
    std::vector<Argument> args = n.args;
    args[0] = it->second.values;
    return emit("aten.sum.default", std::move(args), {}, out.dtype);
  }

  ValueId product(const Node &n, std::string_view left, std::string_view right) {
    const std::optional<Coordinates> of = matrix(n, left);
    const ValueId by = tensor(n, right);
    if (!of || !by.valid() || isSparse(by) || typeOf(by).rank() < 1 || typeOf(by).rank() > 2 || typeOf(by).dtype != typeOf(of->values).dtype) return {};
    const bool vector = typeOf(by).rank() == 1;
    const ValueId rows = row(*of, 0), columns = row(*of, 1);
    const DType t = typeOf(by).dtype;
    const Expr count = typeOf(of->values).sizes[0];
    std::vector<Expr> sizes = {typeOf(tensor(n, left)).sizes[0]}, parts = {count};
    std::vector<IntOrSym> size = {sizes_.at(tensor(n, left))[0]};
    ValueId factor = of->values;
    if (!vector) {
      const Expr width = typeOf(by).sizes[1];
      sizes.push_back(width), parts.push_back(width), size.push_back(sizeOf(by, 1));
      factor = emit("aten.unsqueeze.default", {factor, int64_t(1)}, {count, Expr(1)}, t);
    }
    const ValueId picked = emit("aten.index_select.default", {by, int64_t(0), columns}, parts, t);
    const ValueId scaled = emit("aten.mul.Tensor", {picked, factor}, parts, t);
    const ValueId none = emit("aten.full.default", {size, int64_t(0), t}, sizes, t);
    return emit("aten.index_add.default", {none, int64_t(0), rows, scaled}, sizes, t);
  }

  /// beta * self + alpha * (mat1 @ mat2), of which self does not count where beta is 0, whatever it holds.
  ValueId sumWithProduct(const Node &n) {
    const ValueId self = tensor(n, "self");
    if (!self.valid() || isSparse(self)) return {};
    ValueId y = product(n, "mat1", "mat2");
    if (!y.valid()) return {};
    const std::vector<Expr> sizes = typeOf(y).sizes;
    const DType t = typeOf(y).dtype;
    const Argument *alpha = n.arg("alpha"), *beta = n.arg("beta");
    const auto is = [](const Argument *a, int64_t value) {
      if (!a) return value == 1;
      const int64_t *i = std::get_if<int64_t>(a);
      const double *d = std::get_if<double>(a);
      return (i && *i == value) || (d && *d == static_cast<double>(value));
    };
    if (!is(alpha, 1)) y = emit("aten.mul.Scalar", {y, *alpha}, sizes, t);
    if (is(beta, 0)) return y;
    const ValueId scaled = is(beta, 1) ? self : emit("aten.mul.Scalar", {self, *beta}, typeOf(self).sizes, t);
    return emit("aten.add.Tensor", {y, scaled}, sizes, t);
  }

  Graph &g_;
  Node like_; // the call in whose place others stand
  int made_ = 0;
  std::vector<Node> nodes_;
  std::unordered_map<ValueId, Coordinates> known_;
  std::unordered_map<ValueId, std::vector<IntOrSym>> sizes_; // of each of them, as arguments
  std::unordered_map<ValueId, ValueId> replaced_;            // dense results by what is in their place
};

} // namespace

bool isOfCoordinates(std::string_view target) {
  return oneOf(target, kMakers) || oneOf(target, {"aten.to_dense.default", "aten._to_dense.default", "aten.coalesce.default", "aten._coalesce.default", "aten._sparse_mm.default",
                                                  "aten._sparse_addmm.default", "aten._sparse_sum.default"});
}

Status writeOutCoordinates(Model &m) {
  Status status = Status::ok();
  forEachGraph(m.graph, [&](Graph &g) {
    const bool any = std::any_of(g.values.begin(), g.values.end(), [](const Value &v) { return v.type.coordinates; });
    if (any && status) status = Writer(g).run();
  });
  if (!status) return status;
  for (size_t i = 0; i < m.outputs.size(); ++i) m.outputs[i].value = m.graph.outputs[i];
  return status;
}

} // namespace neso::graph
