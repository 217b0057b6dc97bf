#include "ir/loops/verify.h"

#include "base/diagnostics/loops.h"
#include "ir/loops/access.h"
#include "ir/loops/coverage.h"
#include "ir/loops/interp_reduce.h"

#include <algorithm>
#include <set>

namespace neso::loops {
namespace {

class Checker {
public:
  Checker(const Program &p, std::set<Symbol> sizes, Symbol::Kind outer)
      : p_(p), sizes_(std::move(sizes)), outer_(outer) {}

  /// Checks at the sizes that the model was made with too, where it says them.
  void alsoAtUsualSizes() {
    SymbolMap<int64_t> values;
    for (Symbol s : sizes_) {
      const std::optional<int64_t> hint = p_.facts.hint(s);
      if (!hint) return;
      values[s] = *hint;
    }
    if (values.empty() || !std::all_of(p_.guards.begin(), p_.guards.end(), [&](Expr g) { return g.valid() && evaluate(g, values) == 1; }))
      return;
    usual_.emplace();
    for (const auto &[symbol, value] : values) usual_->emplace(symbol, value);
  }
  /// e, at the usual sizes where those are known.
  Expr atUsualSizes(Expr e) const { return usual_ ? substitute(e, *usual_) : e; }

  void breach(const char *rule, const Node &n, const std::string &what) {
    if (diags_.size() < 20) diags_.push_back(makeDiag(diag::LoopsInvariant, {}, rule, n.name, what));
  }
  void programBreach(const char *rule, const std::string &what) {
    if (diags_.size() < 20) diags_.push_back(makeDiag(diag::LoopsInvariant, {}, rule, p_.name, what));
  }
  Status status() && { return diags_.empty() ? Status() : Status(Error(std::move(diags_))); }

  void expr(const Node &n, Expr e, const std::set<Symbol> &known, const char *what) {
    if (!e.valid()) return breach("L4", n, fmt::format("{} has no expression", what));
    for (Symbol s : symbolsOf(e))
      if (!known.contains(s) && !sizes_.contains(s))
        breach("L4", n, fmt::format("{} '{}' uses the unknown symbol '{}'", what, e.str(), s.str()));
  }
  bool validBuffer(const Node &n, BufferId id) {
    bool ok = id.valid() && id.index() < p_.buffers.size();
    if (!ok) breach("L1", n, fmt::format("names buffer {}, which does not exist", id.value));
    return ok;
  }
  /// A proven breach only: all points of the loop are out of the buffer, or one is that the loop is sure to reach; for all
  /// sizes, or for those that the model was made with.
  void bounds(const Node &n, Expr index, const Points &points, const Facts &facts, BufferId id) {
    const Buffer &b = p_.buffer(id);
    if (!index.valid() || !b.elements.valid()) return;
    const Expr extent = isComplex(b.dtype) ? b.elements * 2 : b.elements;
    for (const auto &[symbol, size] : points)
      if (!size.valid()) return;
    Expr out = outside(index, extent, points, facts);
    if (!out.valid() && usual_) {
      Points usual = points;
      for (auto &[symbol, size] : usual) size = atUsualSizes(size);
      const Expr at = atUsualSizes(index), have = atUsualSizes(extent);
      if (at != index || have != extent || usual != points) out = outside(at, have, usual, facts);
    }
    if (out.valid())
      breach("L5", n, fmt::format("index '{}' of '{}' reaches {}, but there are {} elements", index.str(), b.name, out.str(), extent.str()));
  }
  /// What holds where something is read: its sizes are 1 at least.
  static Facts whereSome(Facts facts, const std::vector<Expr> &sizes) {
    for (Expr e : sizes)
      if (const Interval range = facts.rangeOf(e); e.isSymbol() && range.lo < 1 && range.hi > 0)
        facts.setRange(e.symbol(), {1, range.hi});
    return facts;
  }
  /// An element that is not there and is asked for; invalid: none is, as far as can be told.
  static Expr outside(Expr index, Expr extent, const Points &points, const Facts &known) {
    std::vector<Expr> sizes;
    for (const auto &[symbol, size] : points) sizes.push_back(size);
    const Facts facts = whereSome(known, sizes);
    // A loop of no turns reads nothing.
    if (std::any_of(sizes.begin(), sizes.end(), [&](Expr e) { return facts.rangeOf(e).hi < 1; })) return {};
    const bool some = std::all_of(sizes.begin(), sizes.end(), [&](Expr e) { return facts.rangeOf(e).lo > 0; });
    // What has no elements is read by nobody.
    if (!some && facts.rangeOf(extent).lo < 1) return {};
    if (facts.provablyLessEqual(extent, index) || facts.provablyLess(index, 0)) return index;
    if (!some) return {};
    for (Expr at : {pointOf(index, points, facts, false), pointOf(index, points, facts, true)})
      if (facts.rangeOf(at).hi < 0 || facts.rangeOf(at - extent).lo >= 0) return at;
    return {};
  }
  /// The index at the point of the loop where it is greatest or least, as far as that can be told: at some point in any case.
  static Expr pointOf(Expr index, const Points &points, const Facts &facts, bool greatest) {
    SymbolMap<Expr> at;
    for (const auto &[symbol, size] : points) {
      const std::optional<Affine> a = affineIn(index, symbol);
      const bool falls = a && facts.rangeOf(a->coefficient).hi <= 0;
      at[symbol] = falls == greatest ? Expr(0) : size - 1;
    }
    return substitute(index, at);
  }

  /// Symbols that expressions of a node may use: of its outer ranges; with them those of its reduction ranges and what its
  /// body defines.
  struct Scope {
    std::set<Symbol> outer, known;
    Facts facts;
    Points points;
  };

  void body(const Node &n, const Body &b, std::set<Symbol> &known, Scope &scope) {
    for (size_t k = 0; k < b.ops.size(); ++k) op(n, b, k, known, scope);
  }

  void op(const Node &n, const Body &b, size_t k, std::set<Symbol> &known, Scope &scope) {
    const Op &o = b.ops[k];
    auto fault = [&](const char *rule, const std::string &what) {
      breach(rule, n, fmt::format("%{} ({}): {}", k, name(o.kind), what));
    };
    for (ValueIdx v : {o.a, o.b, o.c})
      if (v >= static_cast<ValueIdx>(k)) return fault("L2", fmt::format("operand %{} does not come before it", v));
    auto type = [&](ValueIdx v) { return b.ops[static_cast<size_t>(v)].dtype; };
    if (isComplex(o.dtype)) fault("L3", "a value is complex");
    switch (o.kind) {
    case OpKind::Constant: return;
    case OpKind::Index:
      if (isFloat(o.dtype)) fault("L3", "an index is an integer");
      return expr(n, o.index, known, "index");
    case OpKind::Load:
      expr(n, o.index, known, "load index");
      if (!validBuffer(n, o.buffer)) return;
      if (toReal(p_.buffer(o.buffer).dtype) != o.dtype)
        fault("L3", fmt::format("loads {} from '{}', which has {}", name(o.dtype), p_.buffer(o.buffer).name,
                                name(p_.buffer(o.buffer).dtype)));
      if (o.a >= 0 && type(o.a) != DType::Bool) fault("L3", "its mask is not Bool");
      if (o.b >= 0 && type(o.b) != o.dtype) fault("L3", "its other value has another dtype");
      if (o.a < 0) bounds(n, o.index, scope.points, scope.facts, o.buffer);
      return;
    case OpKind::Indirect:
      if (o.a < 0 || isFloat(type(o.a))) fault("L2", "needs an integer operand");
      if (o.b >= 0 && type(o.b) != DType::Bool) fault("L3", "its mask is not Bool");
      expr(n, o.bound, known, "bound");
      if (!o.symbol.valid() || !known.insert(o.symbol).second)
        fault("L4", fmt::format("the symbol '{}' is not new", o.symbol.valid() ? o.symbol.str() : ""));
      else if (o.bound.valid())
        // The data may name any of them.
        scope.facts.setIndex(o.symbol, o.bound), scope.points.push_back({o.symbol, o.bound});
      return;
    default: break;
    }
    const OpInfo &info = loops::info(o.kind);
    int want = info.operands, have = (o.a >= 0) + (o.b >= 0) + (o.c >= 0);
    if (have != want || o.a < 0) return fault("L2", fmt::format("has {} operands, needs {}", have, want));
    opTypes(o, info, type, fault);
  }

  template <typename Type, typename Fault> void opTypes(const Op &o, const OpInfo &info, Type type, Fault fault) {
    const DType first = type(o.a);
    switch (info.types) {
    case OpTypes::Special:
      if (o.kind == OpKind::Bitcast && itemSize(o.dtype) != itemSize(first)) fault("L3", "a bitcast keeps the size");
      return;
    case OpTypes::Choice:
      if (first != DType::Bool) fault("L3", "the condition is not Bool");
      if (type(o.b) != type(o.c) || type(o.b) != o.dtype) fault("L3", "the choices have other dtypes");
      return;
    case OpTypes::Draw:
      if (first != DType::I64 || type(o.b) != DType::I64 || type(o.c) != DType::I64)
        fault("L3", "seed, offset and word must be i64");
      if (o.dtype != (o.kind == OpKind::RandU32 ? DType::U32 : DType::F32)) fault("L3", "has the wrong result dtype");
      return;
    case OpTypes::Shift:
      if (isFloat(first) || isFloat(type(o.b)) || first != o.dtype) fault("L3", "shifts integers by integers");
      return;
    case OpTypes::Same:
    case OpTypes::Test: break;
    }
    if (o.b >= 0 && first != type(o.b)) fault("L3", fmt::format("operands are {} and {}", name(first), name(type(o.b))));
    if (o.c >= 0 && type(o.c) != first) fault("L3", "the third operand has another dtype");
    if (o.dtype != (info.types == OpTypes::Test ? DType::Bool : first))
      fault("L3", fmt::format("gives {} from {}", name(o.dtype), name(first)));
    if (!info.existsOn(first)) fault("L3", fmt::format("does not exist on {}", name(first)));
  }

  void writable(const Node &n, BufferId id) {
    const Buffer &b = p_.buffer(id);
    if (b.kind == Buffer::Kind::ScalarInput || (b.kind != Buffer::Kind::Temp && !b.mutated))
      breach("L6", n, fmt::format("writes '{}', which is not a temp and not marked as mutated", b.name));
  }
  void store(const Node &n, const Store &s, const std::set<Symbol> &known, const Scope &scope) {
    expr(n, s.index, known, "store index");
    if (!validBuffer(n, s.buffer)) return;
    writable(n, s.buffer);
    if (s.mask < 0) bounds(n, s.index, scope.points, scope.facts, s.buffer);
  }
  /// A result of the node, of that dtype: stored as it is, wherever it is.
  void resultStore(const Node &n, const Store &s, const std::set<Symbol> &known, const Scope &scope, int results, auto dtype) {
    store(n, s, known, scope);
    if (s.value < 0 || s.value >= results || s.mask >= 0 || s.mode != StoreMode::Set)
      return breach("L7", n, "a result's store is not plain");
    if (!exists(s.buffer)) return;
    const DType have = toReal(p_.buffer(s.buffer).dtype), want = dtype(s.value);
    if (have != want)
      breach("L3", n, fmt::format("stores {} to '{}', which has {}", name(want), p_.buffer(s.buffer).name, name(have)));
  }
  bool exists(BufferId id) const { return id.valid() && id.index() < p_.buffers.size(); }
  /// `sum` is the dtype of what a contraction without an epilogue stores.
  void valueStore(const Node &n, const Store &s, const Body &b, std::optional<DType> sum = {}) {
    const bool plain = sum && b.ops.empty() && s.value == 0;
    if (!isValue(b, s.value) && !plain)
      return breach("L2", n, fmt::format("stores value %{}, which does not exist", s.value));
    const DType t = plain ? *sum : b.ops[static_cast<size_t>(s.value)].dtype;
    if (s.buffer.valid() && s.buffer.index() < p_.buffers.size() && toReal(p_.buffer(s.buffer).dtype) != t)
      breach("L3", n,
             fmt::format("stores {} to '{}', which has {}", name(t), p_.buffer(s.buffer).name,
                         name(p_.buffer(s.buffer).dtype)));
    if (s.mask >= 0 &&
        (s.mask >= static_cast<ValueIdx>(b.ops.size()) || b.ops[static_cast<size_t>(s.mask)].dtype != DType::Bool))
      breach("L3", n, "a store's mask is not a Bool value");
  }

  void node(const Node &n) {
    Scope scope;
    scope.facts = p_.facts;
    auto range = [&](Symbol symbol, Expr size) {
      expr(n, size, {}, "range");
      if (size.valid()) scope.facts.setIndex(symbol, size);
      scope.known.insert(symbol), scope.points.push_back({symbol, size});
    };
    for (size_t d = 0; d < n.ranges.size(); ++d) range(Symbol::of(outer_, d), n.ranges[d]);
    scope.outer = scope.known;
    for (size_t d = 0; d < n.reduceRanges.size(); ++d) range(Symbol::inner(d), n.reduceRanges[d]);
    std::visit([&](const auto &spec) { this->spec(n, spec, scope); }, n.spec);
  }

  void spec(const Node &n, const PointwiseSpec &s, Scope &scope) {
    body(n, s.body, scope.known, scope);
    for (const Store &to : s.stores) store(n, to, scope.known, scope), valueStore(n, to, s.body);
  }

  void spec(const Node &n, const ReductionSpec &s, Scope &scope) {
    body(n, s.body, scope.known, scope);
    reductions(n, s.reductions, scope);
  }
  void reductions(const Node &n, const std::vector<Reduction> &all, const Scope &scope) {
    if (all.empty()) breach("L7", n, "a reduction node needs reductions");
    // Results do not change while the inner dimensions run.
    Scope outside = scope;
    std::erase_if(outside.points, [&](const auto &point) { return !scope.outer.contains(point.first); });
    for (const Reduction &r : all) {
      if (!isValue(n.body(), r.input)) {
        breach("L2", n, "a reduction's input does not exist");
        continue;
      }
      const DType in = n.body().ops[static_cast<size_t>(r.input)].dtype;
      const bool counts = r.kind == ReduceKind::Any || r.kind == ReduceKind::All || r.kind == ReduceKind::Welford;
      if (!counts && isFloat(in) != isFloat(r.dtype))
        breach("L3", n, fmt::format("folds {} in {}", name(in), name(r.dtype)));
      const int results = r.kind == ReduceKind::Welford ? 3 : r.kind == ReduceKind::OnlineSoftmax ? 2 : 1;
      for (const Store &s : r.results)
        resultStore(n, s, scope.outer, outside, results, [&](int) { return resultType(r); });
    }
  }
  static bool isValue(const Body &b, ValueIdx v) { return v >= 0 && v < static_cast<ValueIdx>(b.ops.size()); }

  /// Whether the value does not depend on r0.
  static bool ofWholeRow(const Body &body, ValueIdx value) {
    const std::vector<Op> &ops = body.ops;
    std::vector<bool> overR(ops.size());
    std::set<Symbol> inner{Symbol::inner(0)};
    for (size_t k = 0; k < ops.size(); ++k) {
      for (ValueIdx v : {ops[k].a, ops[k].b, ops[k].c}) overR[k] = overR[k] || (isValue(body, v) && overR[static_cast<size_t>(v)]);
      if (ops[k].index.valid())
        for (Symbol symbol : symbolsOf(ops[k].index)) overR[k] = overR[k] || inner.contains(symbol);
      if (ops[k].kind == OpKind::Indirect && overR[k]) inner.insert(ops[k].symbol);
    }
    return !overR[static_cast<size_t>(value)];
  }

  /// Where the segments of r0 begin and end is known before r0.
  void spec(const Node &n, const SegmentsSpec &s, Scope &scope) {
    body(n, s.body, scope.known, scope);
    if (n.reduceRanges.size() != 1 || !isValue(s.body, s.first) || !isValue(s.body, s.last))
      return breach("L7", n, "segments need the values where they begin and end, along one dimension");
    for (ValueIdx v : {s.first, s.last})
      if (!ofWholeRow(s.body, v) || s.body.ops[static_cast<size_t>(v)].dtype != DType::I64)
        breach("L7", n, "the ends of a segment are I64 values that do not depend on r0");
    for (const Reduction &r : s.reductions)
      if (r.kind == ReduceKind::ArgMin || r.kind == ReduceKind::ArgMax)
        breach("L7", n, "positions of extremes are not found in segments");
    reductions(n, s.reductions, scope);
  }

  void spec(const Node &n, const ContractionSpec &s, Scope &scope) {
    body(n, s.body, scope.known, scope);
    if (!isValue(s.body, s.lhs) || !isValue(s.body, s.rhs)) return breach("L7", n, "a contraction needs two operands");
    const DType lhs = s.body.ops[static_cast<size_t>(s.lhs)].dtype, rhs = s.body.ops[static_cast<size_t>(s.rhs)].dtype;
    if (isFloat(lhs) != isFloat(rhs) || isFloat(lhs) != isFloat(s.accType))
      breach("L3", n, fmt::format("adds up products of {} and {} in {}", name(lhs), name(rhs), name(s.accType)));
    if (!s.epilogue.ops.empty() && (s.epilogue.ops[0].kind != OpKind::Constant || s.epilogue.ops[0].dtype != s.accType))
      breach("L7", n, "op 0 of an epilogue stands for the sum");
    std::set<Symbol> names = scope.outer;
    body(n, s.epilogue, names, scope);
    for (const Store &to : s.stores) store(n, to, names, scope), valueStore(n, to, s.epilogue, s.accType);
  }

  void spec(const Node &n, const ScanSpec &s, Scope &scope) {
    body(n, s.body, scope.known, scope);
    if (s.inputs.empty() || n.reduceRanges.empty()) return breach("L7", n, "a scan needs inputs and the dimension r0");
    if (s.lookBack && (s.inputs.size() != 1 || n.reduceRanges.size() != 1 || s.lookBack->tile < 1 ||
                       !validBuffer(n, s.lookBack->words) || p_.buffer(s.lookBack->words).dtype != DType::I64))
      breach("L7", n, "programs look back in a scan of one value, along one dimension, in I64 words of their own");
    for (ValueIdx v : s.inputs)
      if (!isValue(s.body, v)) return breach("L2", n, "an input does not exist");
    const int inputs = static_cast<int>(s.inputs.size());
    const bool positions = s.kind == ScanKind::Max || s.kind == ScanKind::Min;
    for (const Store &to : s.stores)
      resultStore(n, to, scope.known, scope, positions ? 2 * inputs : inputs, [&](int which) {
        return which < inputs ? s.body.ops[static_cast<size_t>(s.inputs[static_cast<size_t>(which)])].dtype : DType::I64;
      });
  }

  void spec(const Node &n, const SortSpec &s, Scope &scope) {
    body(n, s.body, scope.known, scope);
    if (n.reduceRanges.empty()) return breach("L7", n, "a sort needs the dimension r0");
    if (!isValue(s.body, s.key) || (s.position != -1 && !isValue(s.body, s.position)))
      return breach("L2", n, "a sort's key or position does not exist");
    const DType position = s.position >= 0 ? s.body.ops[static_cast<size_t>(s.position)].dtype : DType::I64;
    if (position != DType::I32 && position != DType::I64) breach("L3", n, "positions are I32 or I64");
    if (s.run.valid() && s.position < 0) breach("L7", n, "only a sort with positions merges runs");
    if (s.run.valid()) expr(n, s.run, {}, "run");
    if (s.place != -1) place(n, s);
    if (s.scratch) scratch(n, s, *s.scratch);
    if (s.take.valid()) {
      expr(n, s.take, {}, "range");
      if (scope.facts.provablyLess(product(n.reduceRanges), s.take)) breach("L7", n, "takes more than there is");
      scope.facts.setIndex(Symbol::inner(0), s.take);
      for (auto &[symbol, size] : scope.points)
        if (symbol == Symbol::inner(0)) size = min(size, s.take);
    }
    const DType key = s.body.ops[static_cast<size_t>(s.key)].dtype;
    for (const Store &to : s.stores)
      resultStore(n, to, scope.known, scope, 2, [&](int which) {
        // Positions that are handed from one pass to the next keep their dtype; those that a model reads are I64.
        const bool keeps = exists(to.buffer) && p_.buffer(to.buffer).dtype == position;
        return which == 0 ? key : keeps ? position : DType::I64;
      });
  }
  /// The place that a sort stores: of the whole row, so no value that it is made of depends on r0.
  void place(const Node &n, const SortSpec &s) {
    if (!isValue(s.body, s.place)) return breach("L2", n, "a sort's place does not exist");
    if (s.body.ops[static_cast<size_t>(s.place)].dtype != DType::I64) breach("L3", n, "places are I64");
    if (!s.take.valid() || !s.take.isConst(1)) breach("L7", n, "a sort that stores a place takes one element");
    if (!ofWholeRow(s.body, s.place)) breach("L7", n, "the place that a sort stores differs along its row");
  }
  void scratch(const Node &n, const SortSpec &sort, const SortScratch &s) {
    if (n.reduceRanges.size() != 1) breach("L7", n, "only a sort along one dimension has scratch memory");
    const bool whole = sort.place < 0;
    const DType key = sort.body.ops[static_cast<size_t>(sort.key)].dtype;
    const DType words = whole || itemSize(key) == 8 ? DType::U64 : DType::U32;
    if (!whole && s.counts.valid()) breach("L7", n, "a sort that stores a place counts no digits");
    struct Part {
      BufferId buffer;
      DType dtype;
      bool needed;
    };
    for (const auto &[buffer, dtype, needed] : {Part{s.words, words, true}, Part{s.positions, DType::U32, false}, Part{s.counts, DType::U32, whole}})
      if ((buffer.valid() || needed) && validBuffer(n, buffer) && p_.buffer(buffer).dtype != dtype)
        breach("L3", n, fmt::format("sorts in '{}', which has not {}", p_.buffer(buffer).name, name(dtype)));
  }

  void spec(const Node &n, const AttentionSpec &a, Scope &) {
    if (n.ranges.size() != 4 || !n.reduceRanges.empty()) return breach("L7", n, "an attention node needs the ranges [B, H, M, Dv]");
    expr(n, a.keyLength, {}, "number of keys"), expr(n, a.headSize, {}, "head size");
    using A = AttentionSpec;
    const std::vector<Expr> &r = n.ranges;
    const Points b = {{A::symbol(A::Batch), r[0]}, {A::symbol(A::Head), r[1]}};
    auto over = [&](std::initializer_list<std::pair<A::Axis, Expr>> more) {
      Points all = b;
      for (const auto &[axis, size] : more) all.push_back({A::symbol(axis), size});
      return all;
    };
    operand(n, a.q, over({{A::Query, r[2]}, {A::Element, a.headSize}}));
    // Which of them are read `keys` says, which depends on the batch.
    const Expr keys = a.keys.valid() ? Expr() : a.keyLength;
    if (a.keys.valid()) expr(n, a.keys, {A::symbol(A::Batch)}, "number of keys");
    operand(n, a.k, over({{A::Key, keys}, {A::Element, a.headSize}}));
    operand(n, a.v, over({{A::Key, keys}, {A::Element, r[3]}}));
    operand(n, a.out, over({{A::Query, r[2]}, {A::Element, r[3]}}));
    if (a.mask.buffer.valid()) operand(n, a.mask, over({{A::Query, r[2]}, {A::Key, keys}}), true);
    if (a.logSum.buffer.valid()) {
      operand(n, a.logSum, over({{A::Query, r[2]}}));
      if (a.logSum.dtype != DType::F32) breach("L3", n, "a logarithm of sums that is no F32");
      if (exists(a.logSum.buffer)) writable(n, a.logSum.buffer);
    }
    if (exists(a.out.buffer)) writable(n, a.out.buffer);
  }
  /// An operand of attention, over its axes.
  void operand(const Node &n, const AttentionSpec::Operand &o, const Points &axes, bool mask = false) {
    std::set<Symbol> names;
    Facts facts = p_.facts;
    for (const auto &[symbol, size] : axes) {
      names.insert(symbol);
      if (size.valid()) facts.setIndex(symbol, size);
    }
    if (!validBuffer(n, o.buffer)) return;
    expr(n, o.index, names, "attention index");
    const DType t = p_.buffer(o.buffer).dtype;
    if (t != o.dtype || !(isFloat(t) || (mask && t == DType::Bool)))
      breach("L3", n, fmt::format("takes {} from '{}', which has {}", name(o.dtype), p_.buffer(o.buffer).name, name(t)));
    bounds(n, o.index, axes, facts, o.buffer);
  }

  void spec(const Node &n, const UserKernelSpec &s, Scope &) {
    noRanges(n);
    for (Expr g : s.grid) expr(n, g, {}, "grid");
    for (const UserKernelSpec::Argument &a : s.arguments) {
      if (a.kind == UserKernelSpec::Argument::Integer) expr(n, a.integer, {}, "argument");
      if (a.kind != UserKernelSpec::Argument::Memory || !validBuffer(n, a.buffer)) continue;
      expr(n, a.offset, {}, "offset");
      if (a.written) writable(n, a.buffer);
    }
  }

  void spec(const Node &n, const ReadSpec &s, Scope &) {
    noRanges(n);
    if (!s.symbol.valid() || !s.symbol.isSize()) breach("L4", n, "it defines no size symbol");
    if (!validBuffer(n, s.buffer)) return;
    const DType t = p_.buffer(s.buffer).dtype;
    if (isFloat(t) || isComplex(t)) breach("L3", n, fmt::format("a scalar of {} is no size", name(t)));
  }

  void spec(const Node &n, const ExternSpec &s, Scope &) {
    noRanges(n);
    auto view = [&](const ExternSpec::View &v, bool written) {
      if (!v.buffer.valid() && !written) return;
      if (!validBuffer(n, v.buffer)) return;
      expr(n, v.offset, {}, "offset");
      for (Expr e : v.sizes) expr(n, e, {}, "size");
      for (Expr e : v.strides) expr(n, e, {}, "stride");
      const Buffer &b = p_.buffer(v.buffer);
      if (v.sizes.size() != v.strides.size()) breach("L7", n, "a tensor has another number of strides than of sizes");
      if (v.dtype != b.dtype) breach("L3", n, fmt::format("sees '{}', which is {}, as {}", b.name, name(b.dtype), name(v.dtype)));
      if ((written || v.changed) && b.kind != Buffer::Kind::Temp) breach("L6", n, fmt::format("writes '{}', which is not a temp", b.name));
    };
    for (const ExternSpec::Argument &a : s.arguments) {
      for (const ExternSpec::View &v : a.tensors) view(v, false);
      for (Expr e : a.ints) expr(n, e, {}, "argument");
      if (a.kind == ExternSpec::Argument::Kind::Object && a.texts.size() != 2) breach("L7", n, "a script object has no name or no class");
    }
    for (const ExternSpec::View &v : s.outputs) view(v, true);
  }

  /// Its condition and its blocks are checked where their place among the nodes is known.
  void spec(const Node &n, const RegionSpec &, Scope &) { noRanges(n); }

  void noRanges(const Node &n) {
    if (!n.ranges.empty() || !n.reduceRanges.empty()) breach("L7", n, fmt::format("a {} node has no ranges", name(n.kind())));
  }

  /// What may have been written so far, by buffer: anything, and of how many elements at most (invalid: any number).
  struct Written {
    std::vector<bool> some;
    std::vector<Expr> most;
  };
  /// Before the first node: what is given, and what has no elements, need not be written.
  Written given() const {
    Written out;
    for (const Buffer &b : p_.buffers) {
      out.some.push_back(b.kind != Buffer::Kind::Temp || b.elements.isConst(0));
      out.most.push_back(b.kind == Buffer::Kind::Temp ? Expr(0) : Expr());
    }
    return out;
  }
  /// Says what is read and cannot be there.
  std::string missing(const Written &written, BufferId id, Expr least) const {
    const Buffer &b = p_.buffer(id);
    if (!written.some[id.index()]) return fmt::format("reads '{}' before it is written", b.name);
    const Expr most = written.most[id.index()];
    if (!most.valid() || least.isConst(0)) return "";
    const Expr spare = most - least;
    if (p_.facts.rangeOf(spare).hi >= 0 && p_.facts.rangeOf(atUsualSizes(spare)).hi >= 0) return "";
    return fmt::format("reads {} elements of '{}', of which {} are written", least.str(), b.name, most.str());
  }

  /// Nodes in order, and those of regions where they stand: what is read was written, and symbols are known. Of a branch
  /// counts what both ways write, of a loop what its test writes.
  void block(const std::vector<Node> &nodes, Written &written, std::set<int32_t> &ids) {
    for (const Node &n : nodes) {
      if (!ids.insert(n.id.value).second) breach("L1", n, fmt::format("the node id {} is used twice", n.id.value));
      const size_t before = diags_.size();
      node(n);
      if (const auto *r = n.as<RegionSpec>()) {
        region(*r, n, written, ids);
        continue;
      }
      // What is no sound node touches nothing that can be told.
      if (diags_.size() == before) accesses(n, written);
      if (const auto *read = n.as<ReadSpec>()) sizes_.insert(read->symbol);
    }
  }
  void accesses(const Node &n, Written &written) {
    const std::vector<Access> all = accessesOf(n);
    for (const Access &a : all)
      if (a.reads())
        if (std::string what = missing(written, a.buffer, leastRead(p_.facts, n, a)); !what.empty()) breach("L6", n, what);
    for (const Access &a : all) {
      if (!a.writes()) continue;
      written.some[a.buffer.index()] = true;
      Expr &most = written.most[a.buffer.index()];
      const Expr more = mostWritten(n, a);
      most = !most.valid() || !more.valid() ? Expr() : isComplex(p_.buffer(a.buffer).dtype) ? Expr() : most + more;
    }
  }

  void region(const RegionSpec &r, const Node &n, Written &written, std::set<int32_t> &ids) {
    const std::set<Symbol> around = sizes_;
    // Sizes may decide that a block does not run.
    const std::optional<SymbolMap<Expr>> usual = std::exchange(usual_, std::nullopt);
    if (r.kind == RegionSpec::Kind::If) {
      expr(n, r.condition, {}, "condition");
      Written then = written, otherwise = written;
      block(r.blocks[0], then, ids);
      sizes_ = around;
      block(r.blocks[1], otherwise, ids);
      for (size_t b = 0; b < written.some.size(); ++b) {
        written.some[b] = then.some[b] && otherwise.some[b];
        const bool known = then.most[b].valid() && otherwise.most[b].valid();
        written.most[b] = known ? max(then.most[b], otherwise.most[b]) : Expr();
      }
    } else {
      // Turns may write other elements each.
      forEachAccess(n, [&](const Access &a) {
        if (a.writes() && exists(a.buffer)) written.most[a.buffer.index()] = Expr();
      });
      block(r.blocks[0], written, ids);
      expr(n, r.condition, {}, "condition");
      Written body = written;
      block(r.blocks[1], body, ids);
    }
    sizes_ = around, usual_ = usual;
  }

private:
  const Program &p_;
  std::set<Symbol> sizes_;
  Symbol::Kind outer_;
  /// Sizes that the inputs may have, as the model was made with; none: not known, or there are no others.
  std::optional<SymbolMap<Expr>> usual_;
  std::vector<Diagnostic> diags_;
};

} // namespace

std::vector<Symbol> sizeSymbols(const Program &p) {
  std::vector<Symbol> out;
  for (const auto &[symbol, range] : p.facts.ranges()) out.push_back(symbol);
  for (const ProgramInput &in : p.inputs) {
    for (const std::vector<Expr> *es : {&in.sizes, &in.strides})
      for (Expr e : *es)
        if (e.valid() && e.isSymbol()) out.push_back(e.symbol());
    if (in.scalar.valid() && in.scalar.isSymbol()) out.push_back(in.scalar.symbol());
  }
  return out;
}

Status verifyNode(const Program &p, const Node &node, Symbol::Kind outer, const std::vector<Symbol> &sizes) {
  Checker checker(p, {sizes.begin(), sizes.end()}, outer);
  checker.node(node);
  return std::move(checker).status();
}

namespace {

/// What a program has besides its nodes: buffers, inputs, constants, outputs and conditions agree with each other.
class Frame {
public:
  /// `known` are the size symbols that the inputs give and the nodes define.
  Frame(const Program &p, const std::set<Symbol> &known, Checker &checker) : p_(p), known_(known), checker_(checker) {}

  /// False: buffers are not what their ids say, and nothing else can be asked.
  bool buffers() {
    bool sound = true;
    for (size_t k = 0; k < p_.buffers.size(); ++k) {
      const Buffer &b = p_.buffers[k];
      if (b.id.value != static_cast<int32_t>(k))
        breach("L1", fmt::format("buffer '{}' at {} has the id {}", b.name, k, b.id.value)), sound = false;
      sound &= known("L4", b.elements, "the size of " + b.name);
      if (sound && b.kind == Buffer::Kind::Constant) sound &= constant(b);
      if (sound && (b.kind == Buffer::Kind::Input || b.kind == Buffer::Kind::ScalarInput)) sound &= given(b);
    }
    return sound;
  }
  void inputs() {
    for (const ProgramInput &in : p_.inputs) {
      if (in.kind != ProgramInput::Kind::Tensor || !in.buffer.valid()) continue;
      const bool exists = in.buffer.index() < p_.buffers.size();
      if (!exists || p_.buffer(in.buffer).kind != Buffer::Kind::Input || toReal(p_.buffer(in.buffer).dtype) != toReal(in.dtype))
        breach("L1", fmt::format("input '{}' has no buffer of its dtype", in.name));
      else
        inside("L1", "input '" + in.name + "'", p_.buffer(in.buffer), in.dtype, in.sizes, in.strides, 0);
    }
  }
  void constants() {
    for (const Constant &c : p_.constants) {
      const int64_t elements = c.sourceElements > 0 ? c.sourceElements : c.bytes / itemSize(c.dtype);
      for (const Constant::ModelTensor &t : c.tensors) {
        bool empty = false, fits = t.sizes.size() == t.strides.size();
        int64_t last = t.offset;
        for (size_t d = 0; fits && d < t.sizes.size(); ++d) empty |= t.sizes[d] == 0, last += (t.sizes[d] - 1) * t.strides[d];
        if (!fits || t.offset < 0 || (!empty && last >= elements))
          breach("L1", fmt::format("the tensor '{}' does not lie in its constant", t.fqn));
      }
    }
  }
  void outputs(const Checker::Written &written) {
    for (size_t k = 0; k < p_.outputs.size(); ++k) {
      const ProgramOutput &o = p_.outputs[k];
      const std::string what = fmt::format("output {}", k);
      if (o.kind == ProgramOutput::Kind::Int || o.kind == ProgramOutput::Kind::Bool) known("L8", o.scalar, what);
      if (o.kind != ProgramOutput::Kind::Tensor) continue;
      if (!o.buffer.valid() || o.buffer.index() >= p_.buffers.size()) {
        breach("L8", what + " names no buffer");
        continue;
      }
      const Buffer &b = p_.buffer(o.buffer);
      if (toReal(b.dtype) != toReal(o.dtype)) breach("L8", fmt::format("{} is {}, its buffer '{}' is {}", what, name(o.dtype), b.name, name(b.dtype)));
      inside("L8", what, b, o.dtype, o.sizes, o.strides, o.offset);
      writeBack(o, what);
      const Expr least = o.sizes.size() == o.strides.size() && !isComplex(o.dtype) ? elementsOf(o.sizes, o.strides) : 0;
      if (std::string missing = checker_.missing(written, o.buffer, least); !missing.empty()) breach("L8", what + " " + missing);
    }
  }
  void conditions() {
    for (Expr g : p_.guards) known("L4", g, "a guard");
    for (const Assertion &a : p_.assertions) known("L4", a.condition, "an assertion");
  }

private:
  void breach(const char *rule, const std::string &what) { checker_.programBreach(rule, what); }
  bool known(const char *rule, Expr e, const std::string &what) {
    if (!e.valid()) return breach(rule, what + " has no expression"), false;
    for (Symbol s : symbolsOf(e))
      if (!known_.contains(s)) return breach(rule, fmt::format("{} '{}' uses the unknown symbol '{}'", what, e.str(), s.str())), false;
    return true;
  }
  bool constant(const Buffer &b) {
    if (b.index < 0 || b.index >= static_cast<int64_t>(p_.constants.size()))
      return breach("L1", fmt::format("constant buffer '{}' has no constant", b.name)), false;
    const Constant &c = p_.constants[static_cast<size_t>(b.index)];
    const std::optional<int64_t> elements = b.elements.asConst();
    if (toReal(c.dtype) != b.dtype || !elements || c.bytes < *elements * itemSize(b.dtype))
      return breach("L1", fmt::format("the constant of '{}' has {} bytes of {}", b.name, c.bytes, name(c.dtype))), false;
    return true;
  }
  bool given(const Buffer &b) {
    const bool exists = b.index >= 0 && b.index < static_cast<int64_t>(p_.inputs.size());
    if (!exists) return breach("L1", fmt::format("input buffer '{}' has no input", b.name)), false;
    const ProgramInput &in = p_.inputs[static_cast<size_t>(b.index)];
    const bool tensor = in.kind == ProgramInput::Kind::Tensor;
    if (tensor != (b.kind == Buffer::Kind::Input) || (tensor && in.buffer != b.id))
      return breach("L1", fmt::format("input '{}' is not what '{}' holds", in.name, b.name)), false;
    return true;
  }
  /// A tensor of these sizes and strides lies in the buffer, as far as Facts can decide it.
  void inside(const char *rule, const std::string &what, const Buffer &b, DType t, const std::vector<Expr> &sizes,
              const std::vector<Expr> &strides, Expr offset) {
    if (sizes.size() != strides.size())
      return breach(rule, fmt::format("{} has {} strides for {} dimensions", what, strides.size(), sizes.size()));
    bool sound = known(rule, offset, what);
    Expr first = offset, last = offset;
    for (size_t d = 0; d < sizes.size(); ++d) {
      sound = sound && known(rule, sizes[d], what) && known(rule, strides[d], what);
      if (!sound) return;
      Expr &end = p_.facts.rangeOf(strides[d]).hi < 0 ? first : last;
      end = end + (sizes[d] - 1) * strides[d];
    }
    if (!sound) return;
    if (isComplex(t)) last = last * 2 + 1;
    const Expr extent = isComplex(b.dtype) ? b.elements * 2 : b.elements;
    const Facts facts = Checker::whereSome(p_.facts, sizes);
    auto within = [&](auto at) {
      if (std::any_of(sizes.begin(), sizes.end(), [&](Expr e) { return facts.rangeOf(at(e)).lo < 1; })) return true;
      return facts.rangeOf(at(first)).hi >= 0 && facts.rangeOf(at(extent - last)).hi >= 1;
    };
    if (!within([](Expr e) { return e; }) || !within([&](Expr e) { return checker_.atUsualSizes(e); }))
      breach(rule, fmt::format("{} reaches from {} to {} of the {} elements of '{}'", what, first.str(), last.str(),
                               b.elements.str(), b.name));
  }
  void writeBack(const ProgramOutput &o, const std::string &what) {
    if (!o.writeBackTo.valid()) {
      if (!o.mutationTarget.empty()) breach("L8", fmt::format("{} does not reach '{}'", what, o.mutationTarget));
      return;
    }
    if (o.writeBackTo.index() >= p_.buffers.size()) return breach("L8", "a write-back names no buffer");
    const Buffer &target = p_.buffer(o.writeBackTo);
    if (target.kind == Buffer::Kind::Temp || !target.mutated)
      breach("L8", fmt::format("{} is written back to '{}', which is not marked as mutated", what, target.name));
    if (o.writeBackTo != o.buffer)
      inside("L8", "the write-back", target, o.dtype, o.sizes, o.writeBackStrides, o.writeBackOffset);
    else if (!mayLieThere(o, o.sizes, o.strides, o.offset))
      breach("L8", fmt::format("{} stays in '{}', but not where it is written back", what, target.name));
    if (target.kind != Buffer::Kind::Constant) return;
    const std::vector<Constant::ModelTensor> &tensors = p_.constants[static_cast<size_t>(target.index)].tensors;
    const bool found = std::any_of(tensors.begin(), tensors.end(), [&](const Constant::ModelTensor &t) {
      return mayLieThere(o, {t.sizes.begin(), t.sizes.end()}, {t.strides.begin(), t.strides.end()}, t.offset);
    });
    if (!found && !tensors.empty()) breach("L8", fmt::format("{} is written back to no tensor of '{}'", what, target.name));
  }
  /// Whether a tensor may be just where the output is written back: nothing shows that it is elsewhere.
  bool mayLieThere(const ProgramOutput &o, const std::vector<Expr> &sizes, const std::vector<Expr> &strides, Expr offset) const {
    // What has no expression is a breach already.
    auto differ = [&](Expr a, Expr b) {
      if (!a.valid() || !b.valid()) return false;
      const Interval range = p_.facts.rangeOf(a - b);
      return range.lo > 0 || range.hi < 0;
    };
    const size_t rank = o.sizes.size();
    if (std::any_of(o.sizes.begin(), o.sizes.end(), [](Expr e) { return !e.valid() || e.isConst(0); })) return true;
    if (sizes.size() != rank || strides.size() != rank || o.writeBackStrides.size() != rank || differ(offset, o.writeBackOffset)) return false;
    for (size_t d = 0; d < rank; ++d)
      if (differ(sizes[d], o.sizes[d]) || (!o.sizes[d].isConst(1) && differ(strides[d], o.writeBackStrides[d]))) return false;
    return true;
  }

  const Program &p_;
  const std::set<Symbol> &known_;
  Checker &checker_;
};

} // namespace

Status verify(const Program &p) {
  auto symbols = [](Expr e) {
    const std::vector<Symbol> all = symbolsOf(e);
    return std::set<Symbol>(all.begin(), all.end());
  };
  std::set<Symbol> sizes, late;
  for (const ProgramInput &in : p.inputs) {
    for (const std::vector<Expr> *es : {&in.sizes, &in.strides})
      for (Expr e : *es)
        if (e.valid()) sizes.merge(symbols(e));
    if (in.scalar.valid()) sizes.merge(symbols(in.scalar));
  }
  for (const Node &n : p.nodes)
    for (Symbol s : definedBy(n))
      if (s.valid()) late.insert(s);
  // What the nodes define is known in its place only.
  std::set<Symbol> known = sizes;
  known.insert(late.begin(), late.end());
  for (Symbol s : late) sizes.erase(s);
  Checker checker(p, sizes, Symbol::Kind::Index);
  checker.alsoAtUsualSizes();
  Frame frame(p, known, checker);
  if (!frame.buffers()) return std::move(checker).status();
  frame.inputs(), frame.constants();
  Checker::Written written = checker.given();
  std::set<int32_t> ids;
  checker.block(p.nodes, written, ids);
  frame.outputs(written), frame.conditions();
  return std::move(checker).status();
}

} // namespace neso::loops
