#include "ir/graph/passes/functionalize.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "base/diagnostics/graph.h"
#include "base/fault.h"
#include "base/rules.h"
#include "ir/graph/passes/functional_ops.h"
#include "ir/graph/passes/shared_storage.h"
#include "ir/graph/passes/unannotated_views.h"
#include "ir/graph/passes/views.h"
#include "ir/graph/passes/write_backs.h"
#include "ir/graph/promotion.h"
#include "ir/graph/visit.h"

namespace neso::graph {
namespace {

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

bool isInPlaceDropout(std::string_view name) {
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
  Functionalizer(Graph &g, const Callers &callers, bool subgraph) : g_(g), callers_(callers), subgraph_(subgraph) {
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

private:
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
    // One dimension moves from element to element, whatever its size.
    if (order.size() == 1 && t.strides[order[0]].isConst() && !t.strides[order[0]].isConst(0)) return false;
    for (size_t d : order)
      if (!t.sizes[d].isConst() || !t.strides[d].isConst()) return true;
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return t.strides[a].constValue() < t.strides[b].constValue(); });
    int64_t reach = 0; // of the dimensions with smaller strides, in elements
    for (size_t d : order) {
      if (t.strides[d].constValue() <= reach) return true;
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
  Status setTo(Node &n);
  Status launch(Node &n);
  Status ofCaller(Node &n);
  Status changeByCaller(Node &n, const OpSchema &op);

  Graph &g_;
  const Callers &callers_;
  bool subgraph_;
  std::unordered_set<std::string> names_;
  std::unordered_map<ValueId, View> views_;
  std::vector<Memory> memories_;
  std::vector<std::pair<size_t, size_t>> sharing_, mayShare_; // mayShare_: of memories
};

Status Functionalizer::node(Node &n) {
  Working at("node", n.name, &n.loc);
  const NewValue make = [this](std::string_view base, TensorType type) { return newValue(base, std::move(type)); };
  if (std::vector<Node> views = viewsOfEach(g_, make, n); !views.empty()) {
    for (Node &view : views)
      if (Status s = node(view); !s) return s;
    return Status::ok();
  }
  for (Argument &a : n.args)
    if (auto *sub = std::get_if<std::shared_ptr<Graph>>(&a)) {
      // Sub-graphs may be shared between copies of a node.
      *sub = std::make_shared<Graph>(**sub);
      Functionalizer inside(**sub, callers_, true);
      if (Status s = inside.run(); !s) return s;
      mayShare(n, inside.sharing());
    }
  if (n.target == "neso.launch_") return launch(n);
  if (isOfCaller(n.target)) {
    if (Status s = ofCaller(n); !s) return s;
    if (auto known = callers_.schemas.find(n.target); known != callers_.schemas.end() && known->second.mutates()) return changeByCaller(n, known->second);
  }
  const OpSchema *op = findOp(n.target);
  if (op && op->mutates()) return mutate(n, *op);
  const bool *training = op && (op->name == "aten.batch_norm" || n.target == "aten.native_batch_norm.default")
                             ? std::get_if<bool>(n.arg("training"))
                             : nullptr;
  if (training && *training && std::holds_alternative<ValueId>(*n.arg("running_mean"))) return trainBatchNorm(n);
  const Argument *stats = op && op->name == "aten.instance_norm" ? n.arg("use_input_stats") : nullptr;
  if (stats && std::holds_alternative<bool>(*stats) && std::get<bool>(*stats) &&
      std::holds_alternative<ValueId>(*n.arg("running_mean")))
    return trainInstanceNorm(n);
  // Which memories the results share is asked of the arguments as written, before they are replaced by their current
  // values.
  std::vector<Argument> written = n.args;
  if (op && (op->name == "aten.as_strided" || op->name == "aten.as_strided_copy"))
    if (const ValueId *self = std::get_if<ValueId>(&n.args[0])) layAsFirst(view(*self).memory, n.name);
  for (Argument &a : n.args) read(a);
  if (op) {
    std::vector<std::tuple<size_t, size_t, Aliasing>> shared; // results, by entry and index
    std::swap(n.args, written);
    for (size_t e = 0; e < n.outputs.size(); ++e)
      for (size_t i = 0; i < n.outputs[e].size(); ++i)
        if (n.outputs[e][i].valid()) shared.emplace_back(e, i, aliasing(g_, n, *op, n.outputs[e][i]));
    std::swap(n.args, written);
    for (const auto &[e, i, al] : shared) {
      if (al.argument < 0) continue;
      const ValueId source = std::get<ValueId>(written[static_cast<size_t>(al.argument)]), out = n.outputs[e][i];
      if ((op->name == "aten.resolve_conj" && signsPending(view(source), false)) || (op->name == "aten.resolve_neg" && signsPending(view(source), true))) continue;
      View v = view(source);
      if (!al.identity) v.chain.push_back({n, al.argument, e, i, g_.value(source).type, g_.value(out).type});
      v.value = out;
      v.version = memories_[v.memory].version;
      views_[out] = std::move(v);
    }
  }
  // The edges that histogramdd was given are also its results.
  if (n.target == "aten.histogramdd.TensorList_bins" && n.outputs.size() == 2)
    if (const auto *bins = std::get_if<std::vector<ValueId>>(&written[1]); bins && bins->size() == n.outputs[1].size())
      for (size_t i = 0; i < bins->size(); ++i) views_[n.outputs[1][i]] = view((*bins)[i]);
  g_.nodes.push_back(std::move(n));
  return Status::ok();
}

/// In-place changes of shape: the name stands for another view from now on; no element changes.
Status Functionalizer::changeView(Node &n, const OpSchema &op, std::string_view viewOp) {
  ValueId self = std::get<ValueId>(n.args[0]), out = n.outputs[0][0];
  Node step = n;
  step.target.clear();
  for (const OpSchema *f : overloadsOf(viewOp))
    if (f->args.size() == op.args.size() &&
        std::equal(f->args.begin(), f->args.end(), op.args.begin(), [](const ArgSchema &a, const ArgSchema &b) {
          return a.name == b.name && a.type == b.type && a.list == b.list;
        }))
      step.target = f->target;
  if (step.target.empty()) return unsupported(n, "torch has no functional form of it");
  applied(Rule::ViewInPlace);
  if (viewOp == "aten.as_strided") layAsFirst(view(self).memory, n.name);
  step.args[0] = current(self);
  View v = view(self);
  // detach_ changes nothing.
  if (!aliasing(g_, step, *findOp(step.target)).identity)
    v.chain.push_back({step, 0, 0, 0, g_.value(self).type, g_.value(out).type});
  v.value = out;
  v.version = memories_[v.memory].version;
  views_[out] = v;
  views_[self] = std::move(v);
  append(std::move(step));
  return Status::ok();
}

/// The tensors that a call writes to, in the order of its schema.
Result<std::vector<ValueId>> Functionalizer::writtenBy(const Node &n, const std::vector<size_t> &mutated) {
  std::vector<ValueId> targets;
  for (size_t i : mutated) {
    if (const ValueId *id = std::get_if<ValueId>(&n.args[i]))
      targets.push_back(*id);
    else if (const auto *list = std::get_if<std::vector<ValueId>>(&n.args[i]))
      targets.insert(targets.end(), list->begin(), list->end());
    else if (!std::holds_alternative<None>(n.args[i]))
      return unsupported(n, "what it writes to is no tensor");
  }
  for (ValueId t : targets)
    if (!t.valid() || g_.value(t).kind != Value::Kind::Tensor) return unsupported(n, "what it writes to is no tensor");
  return targets;
}

/// Appends the functional form of a call whose arguments have been read; `written` are those as they were, `only` the
/// call's one result where it has just that. Gives the new contents of the written tensors.
Result<std::vector<ValueId>> Functionalizer::callFunctional(const Node &n, const OpSchema &op, const std::vector<size_t> &mutated,
                                                            const std::vector<Argument> &written, ValueId only) {
  std::optional<FunctionalForm> form = functionalForm(op);
  if (!form) return unsupported(n, "torch has no functional form of it");
  Node f;
  f.name = n.name;
  f.target = form->op->target;
  f.loc = n.loc;
  f.module = n.module;
  for (size_t i : form->arguments) {
    f.args.push_back(n.args[i]);
    f.argNames.push_back(f.args.size() == 1 && i == 0 ? form->op->args[0].name : op.args[i].name);
  }
  // Results of the functional form: first those of the original that are no written argument, then what the original keeps to itself, then the
  // written arguments.
  size_t own = 0;
  for (size_t r = 0; r < op.returns.size(); ++r)
    if (!op.returns[r].mutated) ++own;
  for (size_t r = 0; r < own; ++r) f.outputs.push_back(r < n.outputs.size() ? n.outputs[r] : std::vector<ValueId>{});
  while (f.outputs.size() + mutated.size() < form->op->returns.size()) f.outputs.push_back({ValueId()});
  std::vector<ValueId> results;
  auto newContent = [&](ValueId target) {
    TensorType t = fresh(g_.value(target).type);
    if (op.pointwise || form->op->pointwise)
      if (std::optional<DType> d = pointwiseResult(g_, op, written)) t.dtype = *d;
    // Whoever looks at the call's result asks its type where the written tensor lies, so that of another place is not put there. A file may say nothing of it.
    Value *result = only.valid() ? &g_.value(only) : nullptr;
    const bool stated = result && result->kind == Value::Kind::Tensor;
    const bool takes = stated ? t.dtype == result->type.dtype && t.offset == result->type.offset && sameStrides(t.sizes, t.strides, result->type.strides) : result != nullptr;
    if (takes) result->kind = Value::Kind::Tensor, result->type = t;
    results.push_back(takes ? only : newValue(g_.value(target).name + "_new", t));
    return results.back();
  };
  for (size_t i : mutated) {
    std::vector<ValueId> entry;
    if (const ValueId *id = std::get_if<ValueId>(&written[i]))
      entry.push_back(newContent(*id));
    else if (const auto *list = std::get_if<std::vector<ValueId>>(&written[i]))
      for (ValueId id : *list) entry.push_back(newContent(id));
    f.outputs.push_back(std::move(entry));
  }
  if (f.outputs.size() != form->op->returns.size())
    return unsupported(n, "its functional form returns another number of results");
  append(std::move(f));
  return results;
}

/// fill_diagonal_ has no functional form in torch: of a matrix it is a diagonal of the number, put into the old contents. Of more dims, which are all as long,
/// and of a tall matrix whose diagonal goes on below the square part (wrap), it is each so many-th element.
Result<ValueId> Functionalizer::fillDiagonal(const Node &n, const TensorType &type) {
  const bool *wrap = std::get_if<bool>(n.arg("wrap"));
  TensorType part, flat;
  part.dtype = flat.dtype = type.dtype, part.strides = flat.strides = {1};
  auto numbers = [&](Expr count) {
    part.sizes = {count};
    return emit("aten.full.default", {sizeList(g_, part.sizes), *n.arg("fill_value"), type.dtype}, part, n, n.name + "_diagonal");
  };
  if (type.rank() < 2 || !wrap) return unsupported(n, "it fills the diagonal of a tensor that has none");
  const Expr rows = type.sizes[0], columns = type.sizes[1];
  if (type.rank() == 2 && (!*wrap || le(rows, columns + 1).isConst(1)))
    return emit("aten.diagonal_scatter.default", {n.args[0], numbers(min(rows, columns)), int64_t(0), int64_t(0), int64_t(1)}, fresh(type), n, n.name + "_filled");
  // ATen counts in memory.
  if (type.rank() == 2 && (type.strides[0] != columns || !type.strides[1].isConst(1))) return unsupported(n, "it goes on below the square part of a matrix that is not contiguous (wrap)");
  Expr step = columns + 1, all = rows * columns;
  if (type.rank() > 2) {
    step = all = 1;
    for (int64_t d = 0; d < type.rank(); ++d) step = d == 0 ? Expr(1) : step + all, all = all * rows;
    for (Expr size : type.sizes)
      if (size != rows) return unsupported(n, "it fills the diagonal of a tensor whose dimensions are not all as long");
  }
  flat.sizes = {all};
  const ValueId row = emit("aten.reshape.default", {n.args[0], sizeList(g_, flat.sizes)}, flat, n, n.name + "_flat");
  const ValueId filled = emit("aten.slice_scatter.default", {row, numbers(ceilDiv(all, step)), int64_t(0), int64_t(0), sizeArgument(g_, all), sizeArgument(g_, step)}, flat, n, n.name + "_stepped");
  return emit("aten.reshape.default", {filled, sizeList(g_, type.sizes)}, fresh(type), n, n.name + "_filled");
}

Status Functionalizer::mutate(Node &n, const OpSchema &op) {
  if (std::optional<Status> resized = resize(n, op)) return std::move(*resized);
  if (op.name == "aten.set_" && n.args.size() > 1) return setTo(n);
  if (std::optional<std::string> viewOp = inPlaceViewOp(op.name)) return changeView(n, op, *viewOp);
  // Dropout outside training writes nothing.
  if (isInPlaceDropout(op.name) && std::holds_alternative<bool>(*n.arg("train")) && !std::get<bool>(*n.arg("train"))) {
    views_[n.outputs[0][0]] = view(std::get<ValueId>(n.args[0]));
    return Status::ok();
  }
  std::vector<size_t> mutated;
  for (size_t i = 0; i < op.args.size(); ++i)
    if (op.args[i].mutated) mutated.push_back(i);
  Result<std::vector<ValueId>> targets = writtenBy(n, mutated);
  if (!targets) return targets.takeError();

  const std::vector<Argument> written = n.args;
  for (Argument &a : n.args) read(a);
  applied(Rule::Functionalise);
  std::vector<ValueId> results; // new contents, parallel to targets
  if (op.name == "aten.copy_") {
    const ValueId *src = std::get_if<ValueId>(&n.args[1]);
    if (!src) return unsupported(n, "its source is no tensor");
    results = {fit(*src, g_.value((*targets)[0]).type, n)};
  } else if (op.name == kFillDiagonal) {
    Result<ValueId> filled = fillDiagonal(n, g_.value((*targets)[0]).type);
    if (!filled) return filled.takeError();
    results = {*filled};
  } else {
    const bool single = targets->size() == 1 && n.outputs.size() == 1 && n.outputs[0].size() == 1;
    Result<std::vector<ValueId>> made = callFunctional(n, op, mutated, written, single ? n.outputs[0][0] : ValueId());
    if (!made) return made.takeError();
    for (size_t i = 0; i < made->size(); ++i) results.push_back(fit((*made)[i], g_.value((*targets)[i]).type, n));
  }
  for (size_t i = 0; i < targets->size(); ++i)
    if (Status s = write((*targets)[i], results[i], n); !s) return s;
  // A result that is a written argument is another name of it.
  size_t at = 0;
  for (size_t r = 0; r < op.returns.size() && r < n.outputs.size(); ++r) {
    if (!op.returns[r].mutated) continue;
    for (ValueId id : n.outputs[r])
      if (id.valid() && at < targets->size()) views_[id] = view((*targets)[at++]);
  }
  return Status::ok();
}

Status Functionalizer::trainBatchNorm(Node &n) {
  ValueId mean = std::get<ValueId>(*n.arg("running_mean"));
  const ValueId *var = std::get_if<ValueId>(n.arg("running_var"));
  if (!var) return fail(diag::MutationUnsupported, n.loc, n.target, "running_mean is given without running_var");
  ValueId variance = *var;
  Argument momentum = *n.arg("momentum"), eps = *n.arg("eps");
  for (Argument &a : n.args) read(a);
  TensorType stats = fresh(g_.value(mean).type);
  Node f;
  f.name = n.name;
  f.target = "aten._native_batch_norm_legit_functional.default";
  f.loc = n.loc;
  f.module = n.module;
  f.args = {n.args[0], n.args[1], n.args[2], n.args[3], n.args[4], true, momentum, eps};
  ValueId newMean = newValue(n.name + "_running_mean", stats), newVar = newValue(n.name + "_running_var", stats);
  // native_batch_norm gives the batch statistics to its caller.
  bool native = n.outputs.size() == 3;
  f.outputs = {n.outputs[0], {newMean}, {newVar}};
  for (size_t k : {size_t{1}, size_t{2}}) {
    std::vector<ValueId> kept =
        native ? n.outputs[k] : std::vector<ValueId>{newValue(n.name + (k == 1 ? "_save_mean" : "_save_rstd"), stats)};
    f.outputs.insert(f.outputs.begin() + static_cast<std::ptrdiff_t>(k), std::move(kept));
  }
  append(std::move(f));
  if (Status s = write(mean, newMean, n); !s) return s;
  return write(variance, newVar, n);
}

/// As torch computes it: samples and channels are the channels of a batch normalisation, whose new statistics are the mean over
/// samples.
Status Functionalizer::trainInstanceNorm(Node &n) {
  const ValueId *var = std::get_if<ValueId>(n.arg("running_var"));
  if (!var) return fail(diag::MutationUnsupported, n.loc, n.target, "running_mean is given without running_var");
  const ValueId mean = std::get<ValueId>(*n.arg("running_mean")), variance = *var;
  for (Argument &a : n.args) read(a);
  const TensorType given = g_.value(std::get<ValueId>(*n.arg("input"))).type;
  auto type = [](DType t, std::vector<Expr> sizes) {
    TensorType out;
    out.dtype = t, out.strides = contiguousStrides(sizes), out.sizes = std::move(sizes);
    return out;
  };
  const Expr samples = given.sizes[0], channels = given.sizes[1];
  auto perSample = [&](const Argument &a) -> Argument {
    const ValueId *id = std::get_if<ValueId>(&a);
    if (!id) return a;
    return emit("aten.repeat.default", {*id, sizeList(g_, {samples})}, type(g_.value(*id).type.dtype, {samples * channels}), n,
                n.name + "_repeated");
  };
  TensorType joined = type(given.dtype, given.sizes);
  joined.sizes[0] = 1, joined.sizes[1] = samples * channels;
  joined.strides = contiguousStrides(joined.sizes);
  const ValueId x = emit("aten.reshape.default", {*n.arg("input"), sizeList(g_, joined.sizes)}, joined, n, n.name + "_joined");
  Node f;
  f.name = n.name;
  f.target = "aten._native_batch_norm_legit_functional.default";
  f.loc = n.loc, f.module = n.module;
  f.args = {x, perSample(*n.arg("weight")), perSample(*n.arg("bias")), perSample(*n.arg("running_mean")),
            perSample(*n.arg("running_var")), true, *n.arg("momentum"), *n.arg("eps")};
  const TensorType each = type(g_.value(mean).type.dtype, {samples * channels});
  std::vector<ValueId> results{newValue(n.name + "_normalised", joined)};
  for (const char *what : {"_save_mean", "_save_rstd", "_means", "_vars"}) results.push_back(newValue(n.name + what, each));
  for (ValueId r : results) f.outputs.push_back({r});
  append(std::move(f));
  Node back;
  back.name = n.name;
  back.target = "aten.reshape.default";
  back.loc = n.loc, back.module = n.module;
  back.args = {results[0], sizeList(g_, given.sizes)};
  back.outputs = n.outputs;
  append(std::move(back));
  auto average = [&](ValueId to, ValueId of) {
    const ValueId table = emit("aten.reshape.default", {of, sizeList(g_, {samples, channels})},
                               type(each.dtype, {samples, channels}), n, n.name + "_by_sample");
    const ValueId now = emit("aten.mean.dim", {table, std::vector<IntOrSym>{int64_t(0)}, false}, type(each.dtype, {channels}), n,
                             n.name + "_running");
    return write(to, now, n);
  };
  if (Status s = average(mean, results[3]); !s) return s;
  return average(variance, results[4]);
}

/// A tensor that is resized names another memory from then on, with the old elements in front. Expressible where nothing else
/// names the old one; nullopt: it is no such operator.
std::optional<Status> Functionalizer::resize(Node &n, const OpSchema &op) {
  if (!isResize(op.name)) return std::nullopt;
  const ValueId self = std::get<ValueId>(n.args[0]), out = n.outputs[0][0];
  const Argument *format = n.arg("memory_format");
  // To its own size nothing happens, wherever the tensor lies.
  if (g_.value(self).type.sizes == g_.value(out).type.sizes && (!format || std::holds_alternative<None>(*format))) {
    views_[out] = view(self);
    return Status::ok();
  }
  const size_t memory = view(self).memory;
  const bool shared = std::any_of(views_.begin(), views_.end(), [&](const auto &v) {
    return v.first != self && v.second.memory == memory && v.second.value != view(self).value;
  });
  const bool outside = std::find(g_.inputs.begin(), g_.inputs.end(), memories_[memory].current) != g_.inputs.end();
  if (shared || outside || !view(self).chain.empty())
    return fail(diag::MutationUnsupported, n.loc, n.target, outside ? "it resizes an input or a weight" : "it resizes a tensor that has views");
  const TensorType before = g_.value(self).type;
  if (!sameStrides(before.sizes, before.strides, fresh(before).strides)) return unsupported(n, "what lies between the elements of the tensor that it resizes is not known");
  for (Argument &a : n.args) read(a);
  TensorType type = fresh(g_.value(out).type);
  const ValueId now = emit(op.name == "aten.resize_" ? "aten.resize.default" : "aten.resize_as.default", n.args, type, n,
                           g_.value(out).name + "_resized");
  views_[self] = view(now);
  views_[out] = view(now);
  return Status::ok();
}

/// set_: the name stands for another tensor from now on, or for what lies at such places of its memory.
Status Functionalizer::setTo(Node &n) {
  const ValueId self = std::get<ValueId>(n.args[0]), out = n.outputs[0][0], *source = std::get_if<ValueId>(&n.args[1]);
  const Memory &old = memories_[view(self).memory];
  if (!source || std::find(g_.inputs.begin(), g_.inputs.end(), old.first) != g_.inputs.end()) return unsupported(n, "it gives an input or a weight other memory");
  views_[out] = View(view(*source));
  if (n.args.size() > 2) {
    const TensorType type = g_.value(out).type;
    n.target = "aten.as_strided.default", n.argNames.clear();
    n.args = {*source, sizeList(g_, type.sizes), sizeList(g_, type.strides), n.args[2]};
    if (Status s = bindArguments(n, g_) ? node(n) : unsupported(n, "its arguments are not those of its schema"); !s) return s;
  }
  views_[self] = View(view(out));
  return Status::ok();
}

/// A user's Triton kernel that changes its arguments gives their new contents instead.
Status Functionalizer::launch(Node &n) {
  auto launch = std::make_shared<UserLaunch>(*n.launch);
  launch->sameAs.assign(n.args.size(), -1);
  std::vector<ValueId> targets, results;
  for (size_t i = 0; i < n.args.size(); ++i) {
    ValueId id = std::get<ValueId>(n.args[i]);
    // The same tensor given twice is one memory: who reads it sees what is written to it.
    for (size_t j = 0; j < n.args.size() && launch->sameAs[i] < 0; ++j)
      if (j != i && launch->written[j] && std::get<ValueId>(n.args[j]) == id && (!launch->written[i] || j < i))
        launch->sameAs[i] = static_cast<int>(j);
    if (!launch->written[i]) continue;
    TensorType type = g_.value(id).type;
    for (size_t d = 0; d < type.sizes.size(); ++d)
      if (type.strides[d].isConst(0) && !type.sizes[d].isConst(1))
        return fail(diag::MutationUnsupported, n.loc, "kernel '" + launch->function + "'",
                    "several elements of the tensor that it writes lie at one place (an expanded tensor)");
    type.offset = 0;
    targets.push_back(id);
    results.push_back(newValue(g_.value(id).name + "_new", type));
  }
  // Where elements lie the kernel is told in numbers.
  for (Argument &a : n.args) forEachValue(a, [&](ValueId &id) { id = asItLies(id); });
  Node f = n;
  f.target = "neso.launch";
  f.launch = launch;
  f.outputs = {results};
  g_.nodes.push_back(std::move(f));
  for (size_t i = 0; i < targets.size(); ++i)
    if (Status s = write(targets[i], results[i], n); !s) return s;
  return Status::ok();
}

/// Whether it is known what a call of an operator that is not PyTorch's changes. Where nothing says it, the call becomes a doubtful one, which is
/// checked while the model runs.
Status Functionalizer::ofCaller(Node &n) {
  auto known = callers_.schemas.find(n.target);
  if (known != callers_.schemas.end()) {
    const OpSchema &op = known->second;
    if (op.isView()) return fail(diag::OpRefused, n.loc, n.target, "its results share memory with its operands");
    for (const std::string &name : n.argNames)
      if (op.argIndex(name) < 0) return fail(diag::OperatorArgument, n.loc, n.target, name, "is none of its schema");
    // What is there of an optional result looks like any other in the file.
    n.returns.resize(n.outputs.size());
    for (size_t k = 0; k < std::min(n.outputs.size(), op.returns.size()); ++k)
      if (op.returns[k].optional && op.returns[k].type == ArgType::Tensor) n.returns[k] = Node::Return::Optional;
    return Status::ok();
  }
  bool tensors = false, results = false;
  forEachInput(n, [&](ValueId id) { tensors |= g_.value(id).kind == Value::Kind::Tensor; });
  forEachOutput(n, [&](ValueId id) { results |= g_.value(id).kind == Value::Kind::Tensor; });
  if (callers_.functional || !tensors) return Status::ok();
  if (!results) return fail(diag::OpMayChange, n.loc, n.target, "returns nothing");
  if (subgraph_) return fail(diag::OpMayChange, n.loc, n.target, "is in a branch or a loop");
  n.args.insert(n.args.begin(), n.target);
  n.argNames.insert(n.argNames.begin(), "");
  n.target = kDoubtfulCall;
  return Status::ok();
}

/// A call of an operator that is not PyTorch's and changes operands becomes the form that run_decompositions() gives it: each of these operands is
/// copied for it, and is a further result.
Status Functionalizer::changeByCaller(Node &n, const OpSchema &op) {
  Node f;
  f.name = n.name, f.loc = n.loc, f.module = n.module;
  f.target = "higher_order.auto_functionalized_v2";
  f.outputs = n.outputs, f.returns = n.returns;
  f.returns.resize(f.outputs.size());
  auto give = [&](std::string name, Argument value) {
    f.argNames.push_back(std::move(name));
    f.args.push_back(std::move(value));
  };
  give("", n.target);
  std::vector<ValueId> targets;
  std::multiset<size_t> memories;
  auto change = [&](const std::string &name, ValueId id) {
    give("_" + name + "_base_index", static_cast<int64_t>(targets.size()));
    targets.push_back(id);
  };
  for (const ArgSchema &a : op.args) {
    const Argument *given = n.arg(a.name);
    if (!given) continue;
    const Argument &value = *given;
    forEachValue(value, [&](ValueId id) {
      if (id.valid() && g_.value(id).kind == Value::Kind::Tensor) memories.insert(view(id).memory);
    });
    const ValueId *one = std::get_if<ValueId>(&value);
    const auto *list = std::get_if<std::vector<ValueId>>(&value);
    if (!a.mutated) {
      give(a.name, value);
    } else if (one && one->valid() && g_.value(*one).kind == Value::Kind::Tensor) {
      change(a.name, *one);
    } else if (list) {
      give("_" + a.name + "_length", static_cast<int64_t>(list->size()));
      for (size_t i = 0; i < list->size(); ++i) change(fmt::format("{}_{}", a.name, i), (*list)[i]);
    } else {
      give("_" + a.name + "_base_index", None{});
    }
  }
  std::vector<ValueId> bases, results;
  for (ValueId id : targets) {
    TensorType type = g_.value(id).type;
    for (size_t d = 0; d < type.sizes.size(); ++d)
      if (type.strides[d].isConst(0) && !type.sizes[d].isConst(1))
        return unsupported(n, "several elements of a tensor that it changes lie at one place (an expanded tensor)");
    if (memories.count(view(id).memory) > 1) return unsupported(n, "a tensor that it changes shares memory with another operand");
    type.offset = 0;
    results.push_back(newValue(g_.value(id).name + "_new", type));
    f.outputs.push_back({results.back()});
    bases.push_back(current(id));
  }
  for (Argument &a : f.args) read(a);
  give("_all_bases", bases);
  applied(Rule::Functionalise);
  g_.nodes.push_back(std::move(f));
  for (size_t i = 0; i < targets.size(); ++i)
    if (Status s = write(targets[i], results[i], n); !s) return s;
  return Status::ok();
}

} // namespace

/// The schemas that the file brings: one a line.
static Result<Callers> callersOf(const Model &m) {
  Callers c;
  c.functional = m.functional;
  const auto text = m.extraFiles.find("neso_operators");
  std::string_view rest = text == m.extraFiles.end() ? std::string_view() : std::string_view(text->second);
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.empty()) continue;
    std::optional<OpSchema> op = parseSchema(line);
    if (!op) return fail(diag::OpSchemaMalformed, {}, std::string(line));
    std::string target = op->target;
    c.schemas.emplace(std::move(target), std::move(*op));
  }
  return c;
}

Status functionalize(Model &m) {
  Working stage("functionalisation");
  if (Status s = copyWriteBacks(m); !s) return s;
  Result<Callers> callers = callersOf(m);
  if (!callers) return callers.takeError();
  Functionalizer f(m.graph, *callers, false);
  // Weights that are the same view of one storage are one memory. Other views of one storage stay apart; a write to one
  // of them would be lost to those that overlap it, so it is refused (writesAreSeen).
  for (size_t i = 0; i < m.inputs.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      const Input &a = m.inputs[j], &b = m.inputs[i];
      if (a.kind != Input::Kind::Weight || b.kind != Input::Kind::Weight) continue;
      const Weight &wa = m.weights[static_cast<size_t>(a.weight)], &wb = m.weights[static_cast<size_t>(b.weight)];
      if (sameView(wa, wb)) {
        f.shareMemory(a.value, b.value);
        break;
      }
    }
  if (Status s = f.run(); !s) return s;
  std::vector<Output> writes;
  for (size_t i = 0; i < m.inputs.size(); ++i) {
    const Input &in = m.inputs[i];
    if (!in.value.valid() || (in.kind != Input::Kind::User && in.kind != Input::Kind::Weight)) continue;
    ValueId v = f.finalValue(in.value);
    if (!v.valid()) continue;
    Output o;
    o.value = v;
    if (in.kind == Input::Kind::User) {
      o.kind = Output::Kind::InputMutation;
      o.target = in.name;
    } else {
      const Weight &w = m.weights[static_cast<size_t>(in.weight)];
      o.kind = w.kind == Weight::Kind::Parameter ? Output::Kind::ParameterMutation : Output::Kind::BufferMutation;
      o.target = w.fqn;
    }
    writes.push_back(std::move(o));
  }
  for (size_t i = 0; i < m.outputs.size(); ++i) m.outputs[i].value = m.graph.outputs[i];
  if (Status s = writesAreSeen(m, writes); !s) return s;
  m.outputs.insert(m.outputs.begin(), writes.begin(), writes.end());
  std::vector<Argument> values;
  for (const Output &o : m.outputs) values.push_back(o.value);
  m.graph.outputs = std::move(values);
  return Status::ok();
}

} // namespace neso::graph
