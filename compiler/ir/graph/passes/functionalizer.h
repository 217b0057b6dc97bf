// What functionalize does with one graph: which memory each tensor is a view of, and what that holds now. functionalize.cpp has the walk and the
// writes of PyTorch's operators by their functional forms; functionalize_calls.cpp those that are spelled out otherwise.
#pragma once
#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "base/diagnostics/graph.h"
#include "base/fault.h"
#include "base/rules.h"
#include "ir/graph/graph.h"
#include "ir/graph/passes/functional_ops.h"
#include "ir/graph/passes/unannotated_views.h"
#include "ir/graph/passes/views.h"
#include "ir/graph/promotion.h"
#include "ir/graph/visit.h"

namespace neso::graph::functional {

/// One view operator between a memory and a view of it.
struct Step {
  Node node; // args[argument] is replaced when the step is applied again
  int argument = 0;
  size_t entry = 0, index = 0; // which result
  TensorType in, out;
};

/// What a memory holds now. The version counts writes.
struct Memory {
  ValueId current, first; // first: what it held before them, whose type says how its elements lie
  int version = 0;
};

struct View {
  size_t memory = 0;
  std::vector<Step> chain; // from the memory's value to this view
  ValueId value;           // holds the view's content as of `version`
  int version = 0;
};

inline bool isInPlaceDropout(std::string_view name) {
  return name == "aten.dropout_" || name == "aten.feature_dropout_" || name == "aten.alpha_dropout_" ||
         name == "aten.feature_alpha_dropout_";
}

/// What is known of operators that are not PyTorch's.
struct Callers {
  bool functional = false; // all that their calls change is among the results
  std::map<std::string, OpSchema, std::less<>> schemas; // by target
};

class Functionalizer {
public:
  /// atTop: each run computes the graph once: it is the model's, or called by one that is as if it stood there.
  Functionalizer(Graph &g, const Callers &callers, bool subgraph, bool atTop) : g_(g), callers_(callers), subgraph_(subgraph), atTop_(atTop) {
    for (const Value &v : g_.values) names_.insert(v.name);
  }

  Status run() {
    std::vector<Node> nodes = std::move(g_.nodes);
    g_.nodes.clear();
    for (Node &n : nodes)
      if (Status s = node(n); !s) return s;
    if (subgraph_) noteSharing();
    for (Argument &a : g_.outputs) forEachValue(a, [&](ValueId &id) { id = returned(id); });
    if (subgraph_)
      for (ValueId in : g_.inputs)
        if (in.valid() && written(in))
          return fail(diag::MutationUnsupported, nodes.empty() ? SourceLoc{} : nodes[0].loc, "a sub-graph",
                      "it writes to its inputs");
    return Status::ok();
  }

  /// Of a sub-graph: (output, input) pairs, by their positions, of which the one lies in the memory of the other.
  const std::vector<std::pair<size_t, size_t>> &sharing() const { return sharing_; }
  /// Two inputs that are the same view of one storage share their memory.
  void shareMemory(ValueId a, ValueId b) { views_[b] = view(a); }
  /// The final content of the memory of an input that was written to; invalid if it was not. In-place changes of shape give the input's name another
  /// view of it.
  ValueId finalValue(ValueId input) {
    if (!written(input)) return {};
    ValueId v = memories_[view(input).memory].current;
    return v == input ? ValueId() : v;
  }
  /// In-place changes of shape that the input's name stands behind.
  const std::vector<Step> &reshaping(ValueId input) { return view(input).chain; }
  /// What the input's name shows at the end, where that is another view than at first.
  ValueId finalView(ValueId input) { return current(input); }

  /// Whether elements of a tensor lie at one place, as those of what expand gives do.
  static bool isRepeated(const TensorType &t) {
    for (size_t d = 0; d < t.sizes.size(); ++d)
      if (t.strides[d].isConst(0) && !t.sizes[d].isConst(0) && !t.sizes[d].isConst(1)) return true;
    return allConst(t) && elementsMeet(t);
  }

private:
  ValueId object(ValueId id) const {
    const auto at = objects_.find(id);
    return at == objects_.end() ? id : at->second;
  }
  /// `other` is one more name of the tensor `id`.
  void nameAgain(ValueId other, ValueId id) { objects_[other] = object(id); }
  /// The tensor `id`, under all its names, lies where `other` does from now on.
  void nameOtherMemory(ValueId id, ValueId other) {
    const View there = view(other);
    nameAgain(other, id);
    views_[id] = there;
    for (const auto &[name, first] : objects_)
      if (first == object(id)) views_[name] = there;
    views_[object(id)] = there;
  }
  void noteSharing() {
    std::vector<ValueId> outputs;
    for (const Argument &a : g_.outputs) forEachValue(a, [&](ValueId v) { outputs.push_back(v); });
    auto isTensor = [&](ValueId v) { return v.valid() && g_.value(v).kind == Value::Kind::Tensor; };
    for (size_t k = 0; k < outputs.size(); ++k)
      for (size_t i = 0; i < g_.inputs.size(); ++i)
        if (isTensor(outputs[k]) && isTensor(g_.inputs[i]) && view(outputs[k]).memory == view(g_.inputs[i]).memory) sharing_.emplace_back(k, i);
  }
  /// What a branch or a loop gives may lie in the memory of an operand, or be new: which of them, only a run knows.
  void mayShare(const Node &n, const std::vector<std::pair<size_t, size_t>> &pairs) {
    std::vector<ValueId> operands, results;
    for (const Argument &a : n.args)
      if (const auto *list = std::get_if<std::vector<ValueId>>(&a)) operands.insert(operands.end(), list->begin(), list->end());
    for (const std::vector<ValueId> &entry : n.outputs) results.insert(results.end(), entry.begin(), entry.end());
    for (const auto &[result, operand] : pairs)
      if (result < results.size() && operand < operands.size() && results[result].valid())
        mayShare_.emplace_back(view(results[result]).memory, view(operands[operand]).memory);
  }
  bool written(ValueId input) {
    return g_.value(input).kind == Value::Kind::Tensor && memories_[view(input).memory].version > 0;
  }

  View &view(ValueId id) {
    auto [it, fresh] = views_.try_emplace(id);
    if (fresh) {
      it->second.memory = memories_.size();
      it->second.value = id;
      memories_.push_back({id, id, 0});
    }
    return it->second;
  }

  ValueId newValue(std::string_view base, TensorType type) {
    std::string name(base);
    for (int i = 1; !names_.insert(name).second; ++i) name = fmt::format("{}_{}", base, i);
    return g_.addValue(std::move(name), std::move(type));
  }

  /// Memory of its own: strides stay if they are dense, offset 0.
  static TensorType fresh(TensorType t) {
    t.offset = 0;
    bool keep = sameStrides(t.sizes, t.strides, contiguousStrides(t.sizes)) || isDense(t);
    if (!keep) t.strides = contiguousStrides(t.sizes);
    return t;
  }
  /// A permutation of contiguous strides, as channels-last is.
  static bool isDense(const TensorType &t) {
    std::vector<size_t> left;
    for (size_t d = 0; d < t.sizes.size(); ++d)
      if (!t.sizes[d].isConst(1)) left.push_back(d);
    for (Expr step = 1; !left.empty();) {
      const auto inner = std::find_if(left.rbegin(), left.rend(), [&](size_t d) { return t.strides[d] == step; });
      if (inner == left.rend()) return false;
      step = step * t.sizes[*inner];
      left.erase(std::next(inner).base());
    }
    return true;
  }

  /// Appends a node with one result of that type.
  ValueId emit(std::string target, std::vector<Argument> args, TensorType type, const Node &from,
               std::string_view base) {
    Node n;
    n.target = std::move(target);
    n.args = std::move(args);
    n.loc = from.loc;
    n.module = from.module;
    ValueId out = newValue(base, std::move(type));
    n.name = g_.value(out).name;
    n.outputs = {{out}};
    append(std::move(n));
    return out;
  }
  void append(Node n) {
    Status bound = bindArguments(n, g_);
    NESO_CHECK(static_cast<bool>(bound), "functionalize made a node that its schema refuses");
    g_.nodes.push_back(std::move(n));
  }

  ValueId apply(const Step &s, ValueId x) {
    Node n = s.node;
    n.args[static_cast<size_t>(s.argument)] = x;
    ValueId result;
    for (size_t e = 0; e < n.outputs.size(); ++e)
      for (size_t i = 0; i < n.outputs[e].size(); ++i) {
        ValueId old = n.outputs[e][i];
        if (!old.valid()) continue;
        n.outputs[e][i] = newValue(g_.value(old).name, g_.value(old).type);
        if (e == s.entry && i == s.index) result = n.outputs[e][i];
      }
    n.name = g_.value(result).name;
    g_.nodes.push_back(std::move(n));
    return result;
  }

  /// Who finds elements by strides finds them where the memory has them, however that lies which was last copied to all of it.
  void layAsFirst(size_t memory, const std::string &name) {
    Memory &m = memories_[memory];
    const TensorType &has = g_.value(m.current).type;
    TensorType type = g_.value(m.first).type;
    if (m.current == m.first || (sameStrides(type.sizes, type.strides, has.strides) && type.offset == has.offset)) return;
    // A new tensor begins its memory. What lies between the elements of one with gaps it does not have; who reads that is refused by what the type says.
    m.current = emit("aten.clone.default", {m.current}, type, Node(), name + "_laid");
    ++m.version;
  }

  /// The value that holds what the tensor `id` contains now.
  ValueId current(ValueId id) {
    if (!id.valid() || g_.value(id).kind != Value::Kind::Tensor) return id;
    if (std::any_of(view(id).chain.begin(), view(id).chain.end(), looksAnywhere)) layAsFirst(view(id).memory, g_.value(id).name);
    View &v = view(id);
    Memory m = memories_[v.memory];
    if (v.version == m.version) return v.value;
    ValueId x = m.current;
    for (const Step &s : v.chain) x = apply(s, x);
    v.value = x;
    v.version = m.version;
    return x;
  }
  void read(Argument &a) {
    forEachValue(a, [&](ValueId &id) { id = current(id); });
  }

  /// The tensor's content now, with the strides that the tensor has, whatever those of what was last written to it.
  ValueId asItLies(ValueId id) {
    const ValueId now = current(id);
    if (!id.valid() || g_.value(id).kind != Value::Kind::Tensor) return now;
    const TensorType stated = g_.value(id).type, &has = g_.value(now).type;
    if (stated.dtype != has.dtype || stated.sizes != has.sizes || sameStrides(has.sizes, has.strides, stated.strides)) return now;
    return emit("aten.alias.default", {now}, stated, Node(), g_.value(now).name + "_as_it_lies");
  }
  ValueId returned(ValueId id) { return subgraph_ ? current(id) : asItLies(id); }

  /// A complex tensor whose real or imaginary part, which the step looks at, is `part`, and whose other part is that of
  /// `old`; nullopt if the step does not look at a part.
  std::optional<ValueId> joinParts(const Step &s, ValueId old, ValueId part, const Node &from) {
    bool real = s.node.target == "aten.real.default", imaginary = s.node.target == "aten.imag.default";
    if ((!real && !imaginary) || !isComplex(s.in.dtype)) return std::nullopt;
    ValueId other =
        emit(real ? "aten.imag.default" : "aten.real.default", {old}, fresh(s.out), from, g_.value(old).name + "_part");
    return emit("aten.complex.default", {real ? part : other, real ? other : part}, fresh(s.in), from,
                g_.value(old).name + "_joined");
  }

  /// Whether torch would find the conjugate (or negative) bit of this view set: then resolve_conj (resolve_neg) copies.
  bool signsPending(const View &v, bool negative) {
    bool conjugate = false, negated = false;
    for (const Step &s : v.chain) {
      std::string_view op = std::string_view(s.node.target).substr(0, s.node.target.rfind('.'));
      if (op == "aten._neg_view")
        negated = !negated;
      else if (op == "aten.imag")
        // The imaginary part of a conjugate is a negative view.
        negated = negated != conjugate, conjugate = false;
      else if (op == "aten.real")
        conjugate = false;
      else if (isComplex(s.in.dtype) && (op == "aten.conj" || op == "aten._conj" || op == "prims.conj" ||
                                         op == "aten.mH" || op == "aten.adjoint" || op == "aten.matrix_H"))
        conjugate = !conjugate;
    }
    return negative ? negated : conjugate;
  }

  /// Whether elements of a tensor of those sizes and strides lie at one place, or may.
  static bool elementsMeet(const TensorType &t) {
    std::vector<size_t> order;
    for (size_t d = 0; d < t.sizes.size(); ++d) {
      if (t.sizes[d].isConst(0)) return false;
      if (!t.sizes[d].isConst(1)) order.push_back(d);
    }
    for (size_t d : order)
      if (!t.strides[d].isConst()) return true;
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return t.strides[a].constValue() < t.strides[b].constValue(); });
    int64_t reach = 0; // of the dimensions with smaller strides, in elements
    for (size_t d : order) {
      if (t.strides[d].constValue() <= reach) return true;
      // The dimension with the widest stride moves on behind all others, whatever its size.
      if (d == order.back()) break;
      if (!t.sizes[d].isConst()) return true;
      reach += (t.sizes[d].constValue() - 1) * t.strides[d].constValue();
    }
    return false;
  }
  static bool unfoldsOverlap(const Node &unfold) {
    const Argument *size = unfold.arg("size"), *step = unfold.arg("step");
    const int64_t *n = size ? std::get_if<int64_t>(size) : nullptr, *by = step ? std::get_if<int64_t>(step) : nullptr;
    return !n || !by || *by < *n;
  }
  /// Whether the step shows one element of its operand at several places. What is left there after a write to them then hangs on the order of the
  /// writes, which torch does not define.
  static bool repeatsElements(const Step &s) {
    const std::string_view op = std::string_view(s.node.target).substr(0, s.node.target.rfind('.'));
    if (op == "aten.unfold" && !allConst(s.out)) return unfoldsOverlap(s.node);
    if (op == "aten.as_strided" || op == "aten.unfold") return elementsMeet(s.out);
    if (op != "aten.expand" && op != "aten.expand_as") return false;
    const size_t lead = s.out.sizes.size() - s.in.sizes.size();
    for (size_t d = 0; d < s.out.sizes.size(); ++d)
      if (s.out.sizes[d] != (d < lead ? Expr(1) : s.in.sizes[d - lead])) return true;
    return false;
  }
  static bool allConst(const TensorType &t) {
    auto isConst = [](const Expr &e) { return e.isConst(); };
    return std::all_of(t.sizes.begin(), t.sizes.end(), isConst) && std::all_of(t.strides.begin(), t.strides.end(), isConst);
  }
  /// Every element that it writes gets the same value.
  static bool writesOneValue(const Node &n) {
    const std::string_view op = std::string_view(n.target).substr(0, n.target.rfind('.'));
    return op == "aten.fill_" || op == "aten.zero_";
  }

  static Error throughView(const Step &s, const Node &from) {
    return fail(diag::MutationUnsupported, from.loc, from.target, fmt::format("it writes through {}", s.node.target));
  }
  /// Whether only strides say where the elements of the step's result lie in its operand.
  static bool liesByStrides(const Step &s) {
    const std::string_view op = std::string_view(s.node.target).substr(0, s.node.target.rfind('.'));
    return op == "aten.as_strided" || op == "aten.unfold" || repeatsElements(s);
  }
  /// Whether what the step shows is found in the memory, beside its operand's elements too.
  static bool looksAnywhere(const Step &s) { return s.node.target == "aten.as_strided.default"; }
  /// Whether the step shows its operand's elements as they are, wherever they lie.
  bool keepsElements(const Step &s) {
    View alone;
    alone.chain = {s};
    return s.in.dtype == s.out.dtype && !signsPending(alone, false) && !signsPending(alone, true);
  }

  /// Whether the step shows the bits of its operand's elements as elements of another dtype.
  static bool readsBits(const Step &s) {
    const std::string_view name = s.node.target;
    return name == "aten.view.dtype" || name == "aten.view_as_real.default" || ((name == "aten.real.default" || name == "aten.imag.default") && isComplex(s.in.dtype));
  }
  /// The type of a dense tensor of that one's bits as elements of another dtype, no wider; nullopt: there is none.
  static std::optional<TensorType> bitsAs(TensorType t, DType dtype) {
    const int64_t times = itemSize(t.dtype) / itemSize(dtype);
    if (times < 1 || (times > 1 && (t.sizes.empty() || !t.strides.back().isConst(1)))) return std::nullopt;
    for (Expr &stride : t.strides) stride = stride * times;
    if (times > 1) t.strides.back() = 1, t.sizes.back() = t.sizes.back() * times;
    t.offset = t.offset * times;
    t.dtype = dtype;
    return t;
  }

  /// Puts `x`, the new content of a view whose elements lie by strides, into what some step of its chain looks at: gives that with its new content,
  /// and how many steps are left in front. Elements that as_strided finds need not be among those of its operand, so they go into the memory itself.
  Result<std::pair<ValueId, size_t>> writeByStrides(const View &v, const std::vector<ValueId> &before, ValueId x, const Node &from) {
    const auto first = std::find_if(v.chain.begin(), v.chain.end(), liesByStrides);
    size_t at = v.chain.size();
    while (at > 0 && (keepsElements(v.chain[at - 1]) || readsBits(v.chain[at - 1]))) --at;
    const TensorType &in = at < v.chain.size() ? v.chain[at].in : v.chain.back().out;
    const bool anywhere = std::any_of(v.chain.begin(), v.chain.end(), looksAnywhere);
    if (at > static_cast<size_t>(first - v.chain.begin()) || (anywhere && at > 0) ||
        !sameStrides(in.sizes, in.strides, g_.value(before[at]).type.strides))
      return throughView(*first, from);
    TensorType part = v.chain.back().out;
    // In the dtype of what is written, in which its strides count.
    const std::optional<TensorType> bits = part.dtype == in.dtype ? in : bitsAs(in, part.dtype);
    if (!bits || !sameStrides(bits->sizes, bits->strides, fresh(*bits).strides)) return throughView(*first, from);
    const bool several = std::any_of(v.chain.begin(), v.chain.end(), repeatsElements) && elementsMeet(part);
    if (several && !writesOneValue(from))
      return fail(diag::MutationUnsupported, from.loc, from.target,
                  fmt::format("several elements of what it writes lie at one place ({})", first->node.target));
    for (size_t d = part.sizes.size(); several && d-- > 0;) {
      if (!part.strides[d].isConst(0) || part.sizes[d].isConst(0)) continue;
      const std::ptrdiff_t place = static_cast<std::ptrdiff_t>(d);
      part.sizes.erase(part.sizes.begin() + place), part.strides.erase(part.strides.begin() + place);
      x = emit("aten.select.int", {x, static_cast<int64_t>(d), int64_t(0)}, fresh(part), from, g_.value(x).name + "_once");
    }
    applied(Rule::WriteThroughView);
    const std::string name = g_.value(v.chain[at].node.outputs[v.chain[at].entry][v.chain[at].index]).name;
    const bool other = part.dtype != in.dtype;
    const ValueId base = other ? emit("aten.view.dtype", {before[at], part.dtype}, fresh(*bits), from, name + "_bits") : before[at];
    const Expr offset = part.offset - bits->offset + g_.value(base).type.offset;
    ValueId whole = emit("aten.as_strided_scatter.default", {base, x, sizeList(g_, part.sizes), sizeList(g_, part.strides), sizeArgument(g_, offset)},
                         fresh(*bits), from, name + "_base");
    if (other) whole = emit("aten.view.dtype", {whole, in.dtype}, fresh(in), from, name + "_whole");
    return std::pair(whole, at);
  }

  /// `x`, the new content of the view, becomes the content of its memory.
  Status write(ValueId target, ValueId x, const Node &from) {
    if (std::any_of(view(target).chain.begin(), view(target).chain.end(), liesByStrides)) layAsFirst(view(target).memory, g_.value(target).name);
    View v = view(target);
    for (const auto &[a, b] : mayShare_)
      if (v.memory == a || v.memory == b)
        return fail(diag::MutationUnsupported, from.loc, from.target,
                    "a branch or a loop before it may have given back its operand, or a new tensor: whether both change, only a run knows; return a clone");
    // The contents along the chain, before the write.
    std::vector<ValueId> before{memories_[v.memory].current};
    for (size_t i = 0; i + 1 < v.chain.size(); ++i) before.push_back(apply(v.chain[i], before.back()));
    ValueId whole = x;
    size_t left = v.chain.size();
    if (std::any_of(v.chain.begin(), v.chain.end(), liesByStrides)) {
      Result<std::pair<ValueId, size_t>> put = writeByStrides(v, before, x, from);
      if (!put) return put.takeError();
      std::tie(whole, left) = *put;
    }
    for (size_t i = left; i-- > 0;) {
      if (std::optional<ValueId> joined = joinParts(v.chain[i], before[i], whole, from)) {
        applied(Rule::JoinParts);
        whole = *joined;
        continue;
      }
      std::optional<Insertion> ins = insertionOf(g_, v.chain[i].node, v.chain[i].entry,
                                                 v.chain[i].index, before[i], whole, v.chain[i].in, v.chain[i].out);
      if (!ins) return throughView(v.chain[i], from);
      applied(Rule::WriteThroughView);
      whole = emit(ins->target, ins->args, fresh(v.chain[i].in), from,
                   g_.value(v.chain[i].node.outputs[v.chain[i].entry][v.chain[i].index]).name + "_base");
    }
    Memory &m = memories_[v.memory];
    m.current = whole;
    ++m.version;
    View &now = view(target);
    now.value = x;
    now.version = m.version;
    return Status::ok();
  }

  /// x with the dtype and sizes of the memory that it is stored to.
  ValueId fit(ValueId x, const TensorType &to, const Node &from) {
    TensorType t = g_.value(x).type;
    if (t.sizes != to.sizes) {
      TensorType type = to;
      type.dtype = t.dtype;
      // The dimensions that are repeated have stride 0.
      size_t lead = to.sizes.size() - std::min(to.sizes.size(), t.sizes.size());
      for (size_t i = 0; i < to.sizes.size(); ++i)
        type.strides[i] =
            i < lead || (t.sizes[i - lead].isConst(1) && !to.sizes[i].isConst(1)) ? Expr(0) : t.strides[i - lead];
      type.offset = t.offset;
      x = emit("aten.expand.default", {x, sizeList(g_, to.sizes)}, type, from, g_.value(x).name + "_expanded");
      t = type;
    }
    if (t.dtype != to.dtype) {
      TensorType type = t;
      type.dtype = to.dtype;
      x = emit("aten._to_copy.default", {x, to.dtype}, fresh(type), from, g_.value(x).name + "_cast");
    }
    return x;
  }

  Status node(Node &n);
  Status mutate(Node &n, const OpSchema &op);
  Result<ValueId> fillDiagonal(const Node &n, const TensorType &type);
  Status changeView(Node &n, const OpSchema &op, std::string_view viewOp);
  Result<std::vector<ValueId>> writtenBy(const Node &n, const std::vector<size_t> &mutated);
  Result<std::vector<ValueId>> callFunctional(const Node &n, const OpSchema &op, const std::vector<size_t> &mutated,
                                              const std::vector<Argument> &written, ValueId only);
  static Error unsupported(const Node &n, const char *why) {
    return fail(diag::MutationUnsupported, n.loc, n.target, why);
  }
  Status trainBatchNorm(Node &n);
  Status trainInstanceNorm(Node &n);
  std::optional<Status> resize(Node &n, const OpSchema &op);
  Status resizeOut(Node &n, const OpSchema &op, std::vector<ValueId> &targets);
  Status setTo(Node &n);
  Status launch(Node &n);
  void nameOperands(Node &n) const;
  Status ofCaller(Node &n);
  Status changeByCaller(Node &n, const OpSchema &op);

  Graph &g_;
  const Callers &callers_;
  bool subgraph_, atTop_;
  std::unordered_set<std::string> names_;
  std::unordered_map<ValueId, View> views_;
  std::unordered_map<ValueId, ValueId> objects_; // names of one tensor, which in-place operators return: the first of them
  std::vector<Memory> memories_;
  std::vector<std::pair<size_t, size_t>> sharing_, mayShare_; // mayShare_: of memories
};

} // namespace neso::graph::functional
