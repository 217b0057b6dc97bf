#include "lower/graph_to_loops/attention_match.h"

#include <algorithm>
#include <cmath>

#include "base/rules.h"

namespace neso::lower {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::ValueId;

namespace {

/// Larger heads than this leave the kernel no room for its blocks.
constexpr int64_t kMaxHead = 256;
/// A mask that replaces scores by this or less has the same effect as one that adds it: in f32 the sum of the two is
/// the mask's value.
constexpr double kAbsorbing = -1e30;

bool is(const Node &n, std::initializer_list<std::string_view> targets) {
  return std::find(targets.begin(), targets.end(), n.target) != targets.end();
}

class Matcher {
public:
  Matcher(const Graph &g, const std::unordered_map<int32_t, int> &uses) : g_(g), uses_(uses) {
    for (const Node &n : g.nodes)
      for (const std::vector<ValueId> &entry : n.outputs)
        for (ValueId id : entry)
          if (id.valid()) producers_[id.value] = &n;
    for (const Node &n : g.nodes)
      for (const Argument &a : n.args)
        if (const ValueId *id = std::get_if<ValueId>(&a)) reader_[id->value] = &n;
  }

  /// The node `product` as the second product of an attention.
  bool match(const Node &product) {
    if (!is(product, {"aten.matmul.default", "aten.bmm.default", "aten.mm.default"})) return false;
    ValueId p = tensor(product, 0), v = tensor(product, 1), out = product.outputs[0][0];
    if (!isTensor(p) || !isTensor(v) || type(p).rank() < 2 || type(v).rank() < 2) return false;
    m_.v = v;
    m_.lead = lead(out);
    rows_ = type(p).sizes[type(p).sizes.size() - 2], keys_ = type(p).sizes.back();
    // The values may not repeat the probabilities: one attention has as many rows of scores as of results. (And the
    // product of no keys is 0, where a softmax of none is NaN.)
    if (!sameLead(lead(p), m_.lead) || keys_.isConst(0)) return false;
    if (!usesAre(p, 1) || !softmax(peel(p))) return false;
    Expr head = type(m_.q).sizes.back(), value = type(v).sizes.back();
    auto fits = [](Expr e) { return e.isConst() && e.constValue() >= 1 && e.constValue() <= kMaxHead; };
    DType t = type(m_.q).dtype;
    bool narrow = t == DType::F32 || t == DType::F16 || t == DType::BF16;
    if (!fits(head) || !fits(value) || !narrow || type(m_.k).dtype != t || type(v).dtype != t || type(out).dtype != t)
      return false;
    int fills = 0;
    bool absorbing = true;
    for (const AttentionMask &k : m_.masks)
      if (k.kind != AttentionMask::Kind::Add) ++fills, absorbing &= k.factor <= kAbsorbing;
    if (fills > 0 && m_.masks.size() > 1 && !absorbing) return false;
    // The model may show the heads only where it views the result.
    see(m_.lead);
    if (auto it = reader_.find(out.value); it != reader_.end() && usesAre(out, 1) && isView(*it->second)) {
      ValueId shown = it->second->outputs[0][0];
      if (type(shown).rank() > 2 && type(shown).sizes.back() == value &&
          type(shown).sizes[type(shown).sizes.size() - 2] == rows_ &&
          neso::product(lead(shown)) == neso::product(m_.lead))
        see(lead(shown));
    }
    return true;
  }
  const AttentionMatch &result() const { return m_; }
  const std::vector<const Node *> &covered() const { return covered_; }
  void reset() { m_ = {}, covered_.clear(); }

private:
  const graph::TensorType &type(ValueId id) const { return g_.value(id).type; }
  bool isTensor(ValueId id) const { return id.valid() && g_.value(id).kind == graph::Value::Kind::Tensor; }
  std::vector<Expr> lead(ValueId id) const { return {type(id).sizes.begin(), type(id).sizes.end() - 2}; }
  /// Equal but for dims of size one in front.
  static bool sameLead(const std::vector<Expr> &a, const std::vector<Expr> &b) {
    const std::vector<Expr> &longer = a.size() < b.size() ? b : a, &shorter = a.size() < b.size() ? a : b;
    size_t more = longer.size() - shorter.size();
    return std::equal(shorter.begin(), shorter.end(), longer.begin() + static_cast<std::ptrdiff_t>(more)) &&
           std::all_of(longer.begin(), longer.begin() + static_cast<std::ptrdiff_t>(more),
                       [](Expr e) { return e.isConst(1); });
  }
  const Node *producer(ValueId id) const {
    auto it = producers_.find(id.value);
    return it == producers_.end() ? nullptr : it->second;
  }
  bool usesAre(ValueId id, int n) const {
    auto it = uses_.find(id.value);
    return it != uses_.end() && it->second == n;
  }
  static ValueId tensor(const Node &n, size_t i) {
    const ValueId *id = i < n.args.size() ? std::get_if<ValueId>(&n.args[i]) : nullptr;
    return id ? *id : ValueId();
  }
  void see(const std::vector<Expr> &sizes) {
    if (sizes.size() > m_.heads.size()) m_.heads = sizes;
  }
  static bool isView(const Node &n) {
    return is(n, {"aten.view.default", "aten.reshape.default", "aten._unsafe_view.default", "aten.expand.default",
                  "aten.clone.default", "aten.contiguous.default", "aten.unsqueeze.default", "aten.squeeze.dim"});
  }
  bool isScores(ValueId id) const {
    return isTensor(id) && type(id).rank() >= 2 && type(id).sizes.back() == keys_ &&
           type(id).sizes[type(id).sizes.size() - 2] == rows_;
  }

  /// Goes up while values only change their leading dims or their floating point type; the value that it stops at.
  ValueId peel(ValueId id) {
    for (const Node *n = producer(id); n && isScores(id); n = producer(id)) {
      ValueId in = tensor(*n, 0);
      bool cast = is(*n, {"aten.to.dtype", "aten._to_copy.default", "aten.type_as.default",
                          "prims.convert_element_type.default", "aten.dropout.default"});
      if (!(cast || isView(*n)) || !isScores(in) || !usesAre(in, 1) || !isFloat(type(in).dtype)) break;
      if (const bool *train = n->target == "aten.dropout.default" ? std::get_if<bool>(n->arg("train")) : nullptr;
          train && *train)
        break;
      if (n->target == "aten.expand.default" && type(in).sizes != type(id).sizes) break;
      covered_.push_back(n);
      see(lead(id));
      id = in;
    }
    return id;
  }

  std::optional<double> number(const Argument &a) const {
    if (const double *d = std::get_if<double>(&a)) return *d;
    if (const int64_t *i = std::get_if<int64_t>(&a)) return static_cast<double>(*i);
    const ValueId *id = std::get_if<ValueId>(&a);
    if (!id || !id->valid()) return std::nullopt;
    const graph::Value &v = g_.value(*id);
    if (v.kind == graph::Value::Kind::SymFloat) return v.number;
    if (v.kind == graph::Value::Kind::SymInt && v.expr.valid() && v.expr.isConst())
      return static_cast<double>(v.expr.constValue());
    const Node *n = producer(*id);
    if (!n || v.kind != graph::Value::Kind::Tensor) return std::nullopt;
    // A tensor that holds one number throughout.
    if (is(*n, {"aten.full.default", "aten.full_like.default"})) return number(*n->arg("fill_value"));
    if (n->target == "aten.scalar_tensor.default") return number(*n->arg("s"));
    if (is(*n, {"aten.zeros.default", "aten.zeros_like.default"})) return 0;
    if (is(*n, {"aten.to.dtype", "aten._to_copy.default", "aten.expand.default", "aten.lift_fresh_copy.default"}) &&
        isFloat(v.type.dtype))
      return number(n->args[0]);
    return std::nullopt;
  }

  /// where(not any(not (s == -inf)), 0, softmax(s)): PyTorch's safe softmax after run_decompositions(). The softmax's
  /// value, or invalid.
  ValueId unwrapSafe(const Node &n) {
    if (n.target != "aten.where.self" || number(n.args[1]) != 0.0) return {};
    ValueId id = tensor(n, 0), soft = tensor(n, 2);
    std::vector<const Node *> chain{&n};
    for (std::string_view step :
         {"aten.logical_not.default", "aten.any.dim", "aten.logical_not.default", "aten.eq.Scalar"}) {
      const Node *c = isTensor(id) && usesAre(id, 1) ? producer(id) : nullptr;
      if (!c || c->target != step) return {};
      chain.push_back(c);
      id = tensor(*c, 0);
    }
    const Node *s = isTensor(soft) ? producer(soft) : nullptr, *fill = producer(tensor(n, 1));
    std::optional<double> empty = number(*chain.back()->arg("other"));
    if (!s || tensor(*s, 0) != id || !empty || *empty != -HUGE_VAL) return {};
    // full_like(softmax, 0) is the softmax's other reader.
    bool like = fill && !fill->args.empty() && tensor(*fill, 0) == soft;
    if (!usesAre(soft, like ? 2 : 1) || !usesAre(id, 2)) return {};
    if (like) chain.push_back(fill);
    covered_.insert(covered_.end(), chain.begin(), chain.end());
    m_.safe = true;
    return soft;
  }

  bool softmax(ValueId id) {
    const Node *n = producer(id);
    if (!n) return false;
    if (ValueId soft = unwrapSafe(*n); soft.valid()) id = soft, n = producer(soft);
    if (!is(*n, {"aten.softmax.int", "aten._softmax.default", "aten._safe_softmax.default"})) return false;
    bool split = m_.safe;
    m_.safe |= n->target == "aten._safe_softmax.default";
    const Argument *dim = n->arg("dim");
    const int64_t *d = dim ? std::get_if<int64_t>(dim) : nullptr;
    ValueId in = tensor(*n, 0);
    if (!d || (*d != -1 && *d != type(id).rank() - 1) || !isScores(in) || !isFloat(type(in).dtype) ||
        !usesAre(in, split ? 2 : 1))
      return false;
    covered_.push_back(n);
    see(lead(id));
    return scores(in, 1);
  }

  /// Walks up from the softmax's input: id holds scores that are multiplied by f on their way down.
  bool scores(ValueId id, double f) {
    id = peel(id);
    const Node *n = isScores(id) ? producer(id) : nullptr;
    if (!n) return false;
    see(lead(id));
    size_t mark = covered_.size();
    covered_.push_back(n);
    AttentionMatch before = m_;
    auto undo = [&] {
      m_ = before;
      covered_.resize(mark + 1);
    };
    auto goUp = [&](size_t arg, double factor) {
      ValueId in = tensor(*n, arg);
      // A side that broadcasts is not the scores.
      return isScores(in) && type(in).sizes == type(id).sizes && usesAre(in, 1) && isFloat(type(in).dtype) &&
             scores(in, factor);
    };
    auto mask = [&](AttentionMask::Kind kind, size_t arg, double factor) {
      ValueId value = tensor(*n, arg);
      if (!isTensor(value)) return false;
      m_.masks.push_back({kind, value, factor, type(id).sizes});
      return true;
    };
    const std::string &t = n->target;
    if (is(*n, {"aten.mul.Tensor", "aten.mul.Scalar"})) {
      if (std::optional<double> c = number(n->args[1]); c && goUp(0, f * *c)) return true;
      undo();
      std::optional<double> c = number(n->args[0]);
      return c && goUp(1, f * *c);
    }
    if (is(*n, {"aten.div.Tensor", "aten.div.Scalar"})) {
      std::optional<double> c = number(n->args[1]);
      return c && *c != 0 && goUp(0, f / *c);
    }
    if (is(*n, {"aten.add.Tensor", "aten.sub.Tensor"})) {
      std::optional<double> alpha = number(*n->arg("alpha"));
      if (!alpha) return false;
      double other = t == "aten.add.Tensor" ? f * *alpha : -f * *alpha;
      if (mask(AttentionMask::Kind::Add, 1, other) && goUp(0, f)) return true;
      undo();
      return mask(AttentionMask::Kind::Add, 0, f) && goUp(1, other);
    }
    if (is(*n, {"aten.where.self", "aten.where.ScalarOther"})) {
      if (std::optional<double> c = number(n->args[2]); c && mask(AttentionMask::Kind::Keep, 0, f * *c) && goUp(1, f))
        return true;
      undo();
    }
    if (is(*n, {"aten.where.self", "aten.where.ScalarSelf"})) {
      std::optional<double> c = number(n->args[1]);
      return c && mask(AttentionMask::Kind::Drop, 0, f * *c) && goUp(2, f);
    }
    if (is(*n, {"aten.masked_fill.Scalar", "aten.masked_fill.Tensor"})) {
      std::optional<double> c = number(n->args[2]);
      return c && mask(AttentionMask::Kind::Drop, 1, f * *c) && goUp(0, f);
    }
    if (is(*n, {"aten.matmul.default", "aten.bmm.default", "aten.mm.default"})) return firstProduct(*n, 0, id, f);
    if (t == "aten.baddbmm.default") {
      std::optional<double> alpha = number(*n->arg("alpha")), beta = number(*n->arg("beta"));
      if (!alpha || !beta || (*beta != 0 && !mask(AttentionMask::Kind::Add, 0, f * *beta))) return false;
      return firstProduct(*n, 1, id, f * *alpha);
    }
    return false;
  }

  bool firstProduct(const Node &n, size_t arg, ValueId out, double f) {
    m_.q = tensor(n, arg), m_.k = tensor(n, arg + 1);
    m_.scale = f;
    m_.firstLead = lead(out);
    return isTensor(m_.q) && isTensor(m_.k) && type(m_.q).rank() >= 2 && type(m_.k).rank() >= 2;
  }

  const Graph &g_;
  const std::unordered_map<int32_t, int> &uses_;
  std::unordered_map<int32_t, const Node *> producers_, reader_;
  Expr rows_, keys_;
  AttentionMatch m_;
  std::vector<const Node *> covered_;
};

} // namespace

AttentionMatches findAttention(const Graph &graph, const std::unordered_map<int32_t, int> &uses) {
  AttentionMatches found;
  Matcher matcher(graph, uses);
  for (const Node &n : graph.nodes) {
    matcher.reset();
    if (!matcher.match(n)) continue;
    applied(Rule::MatchAttention);
    found.byResult.emplace(&n, matcher.result());
    for (const Node *c : matcher.covered()) found.covered[c] = true;
  }
  return found;
}

} // namespace neso::lower
