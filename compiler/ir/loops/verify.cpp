#include "ir/loops/verify.h"

#include "base/diagnostics/loops.h"
#include "ir/loops/access.h"

#include <algorithm>
#include <set>

namespace neso::loops {
namespace {

class Checker {
public:
  Checker(const Program &p, std::set<Symbol> sizes, Symbol::Kind outer)
      : p_(p), sizes_(std::move(sizes)), outer_(outer) {}

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
  void bounds(const Node &n, Expr index, const Facts &facts, BufferId id, bool masked) {
    if (masked || !index.valid()) return;
    Expr extent = isComplex(p_.buffer(id).dtype) ? p_.buffer(id).elements * 2 : p_.buffer(id).elements;
    bool empty = false; // a loop that may run zero times reads nothing
    for (const std::vector<Expr> *ranges : {&n.ranges, &n.reduceRanges})
      for (Expr r : *ranges) empty |= facts.rangeOf(r).lo <= 0;
    if (empty) return;
    Interval range = facts.rangeOf(index);
    Interval size = facts.rangeOf(extent);
    // A proven breach: the least or greatest value itself is out. The interval of an affine form over a box is exact
    // for constants.
    bool exact = std::all_of(n.ranges.begin(), n.ranges.end(), [](Expr e) { return e.isConst(); }) &&
                 std::all_of(n.reduceRanges.begin(), n.reduceRanges.end(), [](Expr e) { return e.isConst(); }) &&
                 extent.isConst();
    for (Symbol s : symbolsOf(index)) exact &= affineIn(index, s) && s.kind() != Symbol::Kind::Indirect;
    if (exact && range.bounded() && size.bounded() && (range.lo < 0 || range.hi >= size.hi))
      breach("L5", n,
             fmt::format("index '{}' of '{}' is in [{}, {}], but there are {} elements", index.str(),
                         p_.buffer(id).name, range.lo, range.hi, size.hi));
  }

  void body(const Node &n, const Body &b, std::set<Symbol> &known, Facts &facts) {
    for (size_t k = 0; k < b.ops.size(); ++k) op(n, b, k, known, facts);
  }

  void op(const Node &n, const Body &b, size_t k, std::set<Symbol> &known, Facts &facts) {
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
    case OpKind::Index: return expr(n, o.index, known, "index");
    case OpKind::Load:
      expr(n, o.index, known, "load index");
      if (!validBuffer(n, o.buffer)) return;
      if (toReal(p_.buffer(o.buffer).dtype) != o.dtype)
        fault("L3", fmt::format("loads {} from '{}', which has {}", name(o.dtype), p_.buffer(o.buffer).name,
                                name(p_.buffer(o.buffer).dtype)));
      if (o.a >= 0 && type(o.a) != DType::Bool) fault("L3", "its mask is not Bool");
      if (o.b >= 0 && type(o.b) != o.dtype) fault("L3", "its other value has another dtype");
      return bounds(n, o.index, facts, o.buffer, o.a >= 0);
    case OpKind::Indirect:
      if (o.a < 0 || isFloat(type(o.a))) fault("L2", "needs an integer operand");
      if (o.b >= 0 && type(o.b) != DType::Bool) fault("L3", "its mask is not Bool");
      expr(n, o.bound, known, "bound");
      if (!o.symbol.valid() || !known.insert(o.symbol).second)
        fault("L4", fmt::format("the symbol '{}' is not new", o.symbol.valid() ? o.symbol.str() : ""));
      facts.setIndex(o.symbol, o.bound);
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

  void store(const Node &n, const Store &s, const std::set<Symbol> &known, const Facts &facts) {
    expr(n, s.index, known, "store index");
    if (!validBuffer(n, s.buffer)) return;
    const Buffer &b = p_.buffer(s.buffer);
    if (b.kind == Buffer::Kind::ScalarInput || (b.kind != Buffer::Kind::Temp && !b.mutated))
      breach("L6", n, fmt::format("writes '{}', which is not a temp and not marked as mutated", b.name));
    bounds(n, s.index, facts, s.buffer, s.mask >= 0);
  }
  void valueStore(const Node &n, const Store &s, const Body &b, DType fallback) {
    if (s.value < 0 || (s.value >= static_cast<ValueIdx>(b.ops.size()) && !(b.ops.empty() && s.value == 0)))
      return breach("L2", n, fmt::format("stores value %{}, which does not exist", s.value));
    DType t = b.ops.empty() ? fallback : b.ops[static_cast<size_t>(s.value)].dtype;
    if (s.buffer.valid() && s.buffer.index() < p_.buffers.size() && toReal(p_.buffer(s.buffer).dtype) != t)
      breach("L3", n,
             fmt::format("stores {} to '{}', which has {}", name(t), p_.buffer(s.buffer).name,
                         name(p_.buffer(s.buffer).dtype)));
    if (s.mask >= 0 &&
        (s.mask >= static_cast<ValueIdx>(b.ops.size()) || b.ops[static_cast<size_t>(s.mask)].dtype != DType::Bool))
      breach("L3", n, "a store's mask is not a Bool value");
  }

  void node(const Node &n) {
    Facts facts = p_.facts;
    std::set<Symbol> outerSymbols, known;
    for (size_t d = 0; d < n.ranges.size(); ++d) outerSymbols.insert(Symbol::of(outer_, d));
    known = outerSymbols;
    for (size_t d = 0; d < n.reduceRanges.size(); ++d) known.insert(Symbol::inner(d));
    for (size_t d = 0; d < n.ranges.size(); ++d) {
      expr(n, n.ranges[d], {}, "range");
      if (n.ranges[d].valid()) facts.setIndex(Symbol::of(outer_, d), n.ranges[d]);
    }
    for (size_t d = 0; d < n.reduceRanges.size(); ++d) {
      expr(n, n.reduceRanges[d], {}, "range");
      if (n.reduceRanges[d].valid()) facts.setIndex(Symbol::inner(d), n.reduceRanges[d]);
    }
    Scope scope{std::move(outerSymbols), std::move(known), std::move(facts)};
    std::visit([&](const auto &spec) { this->spec(n, spec, scope); }, n.spec);
  }

  /// Symbols that expressions of a node may use: of its outer ranges; with them those of its reduction ranges and what its
  /// body defines.
  struct Scope {
    std::set<Symbol> outer, known;
    Facts facts;
  };

  void spec(const Node &n, const PointwiseSpec &s, Scope &scope) {
    body(n, s.body, scope.known, scope.facts);
    for (const Store &to : s.stores) store(n, to, scope.known, scope.facts), valueStore(n, to, s.body, DType::F32);
  }

  void spec(const Node &n, const ReductionSpec &s, Scope &scope) {
    body(n, s.body, scope.known, scope.facts);
    reductions(n, s.reductions, scope);
  }
  void reductions(const Node &n, const std::vector<Reduction> &all, const Scope &scope) {
    if (all.empty()) breach("L7", n, "a reduction node needs reductions");
    for (const Reduction &r : all) {
      if (!isValue(n.body(), r.input)) breach("L2", n, "a reduction's input does not exist");
      for (const Store &s : r.results) {
        store(n, s, scope.outer, scope.facts);
        int results = r.kind == ReduceKind::Welford ? 3 : r.kind == ReduceKind::OnlineSoftmax ? 2 : 1;
        if (s.value < 0 || s.value >= results || s.mask >= 0 || s.mode != StoreMode::Set)
          breach("L7", n, "a reduction's result store is not plain");
      }
    }
  }
  static bool isValue(const Body &b, ValueIdx v) { return v >= 0 && v < static_cast<ValueIdx>(b.ops.size()); }

  /// Where the segments of r0 begin and end is known before r0.
  void spec(const Node &n, const SegmentsSpec &s, Scope &scope) {
    body(n, s.body, scope.known, scope.facts);
    if (n.reduceRanges.size() != 1 || !isValue(s.body, s.first) || !isValue(s.body, s.last))
      return breach("L7", n, "segments need the values where they begin and end, along one dimension");
    const std::vector<Op> &ops = s.body.ops;
    std::vector<bool> overR(ops.size());
    std::set<Symbol> inner{Symbol::inner(0)};
    for (size_t k = 0; k < ops.size(); ++k) {
      for (ValueIdx v : {ops[k].a, ops[k].b, ops[k].c}) overR[k] = overR[k] || (v >= 0 && overR[static_cast<size_t>(v)]);
      if (ops[k].index.valid())
        for (Symbol symbol : symbolsOf(ops[k].index)) overR[k] = overR[k] || inner.contains(symbol);
      if (ops[k].kind == OpKind::Indirect && overR[k]) inner.insert(ops[k].symbol);
    }
    for (ValueIdx v : {s.first, s.last})
      if (overR[static_cast<size_t>(v)] || ops[static_cast<size_t>(v)].dtype != DType::I64)
        breach("L7", n, "the ends of a segment are I64 values that do not depend on r0");
    for (const Reduction &r : s.reductions)
      if (r.kind == ReduceKind::ArgMin || r.kind == ReduceKind::ArgMax)
        breach("L7", n, "positions of extremes are not found in segments");
    reductions(n, s.reductions, scope);
  }

  void spec(const Node &n, const ContractionSpec &s, Scope &scope) {
    body(n, s.body, scope.known, scope.facts);
    if (!isValue(s.body, s.lhs) || !isValue(s.body, s.rhs)) breach("L7", n, "a contraction needs two operands");
    if (!s.epilogue.ops.empty() && s.epilogue.ops[0].kind != OpKind::Constant)
      breach("L7", n, "op 0 of an epilogue stands for the sum");
    std::set<Symbol> names = scope.outer;
    body(n, s.epilogue, names, scope.facts);
    for (const Store &to : s.stores) store(n, to, names, scope.facts), valueStore(n, to, s.epilogue, s.accType);
  }

  void spec(const Node &n, const ScanSpec &s, Scope &scope) {
    body(n, s.body, scope.known, scope.facts);
    if (s.inputs.empty() || n.reduceRanges.empty()) breach("L7", n, "a scan needs inputs and the dimension r0");
    if (s.lookBack && (s.inputs.size() != 1 || n.reduceRanges.size() != 1 || s.lookBack->tile < 1 ||
                       !validBuffer(n, s.lookBack->words)))
      breach("L7", n, "programs look back in a scan of one value, along one dimension, in a buffer of their own");
    for (ValueIdx v : s.inputs)
      if (!isValue(s.body, v)) breach("L2", n, "an input does not exist");
    for (const Store &to : s.stores) store(n, to, scope.known, scope.facts);
  }

  void spec(const Node &n, const SortSpec &s, Scope &scope) {
    body(n, s.body, scope.known, scope.facts);
    if (n.reduceRanges.empty()) breach("L7", n, "a sort needs the dimension r0");
    if (!isValue(s.body, s.key) || (s.position != -1 && !isValue(s.body, s.position)))
      breach("L2", n, "a sort's key or position does not exist");
    if (s.run.valid() && s.position < 0) breach("L7", n, "only a sort with positions merges runs");
    if (s.scratch && n.reduceRanges.size() != 1)
      breach("L7", n, "only a sort along one dimension has scratch memory");
    if (s.take.valid()) {
      expr(n, s.take, {}, "range");
      scope.facts.setIndex(Symbol::inner(0), s.take);
    }
    for (const Store &to : s.stores) store(n, to, scope.known, scope.facts);
  }

  void spec(const Node &n, const AttentionSpec &a, Scope &) {
    if (n.ranges.size() != 4) return breach("L7", n, "an attention node needs the ranges [B, H, M, Dv]");
    expr(n, a.keyLength, {}, "number of keys"), expr(n, a.headSize, {}, "head size");
    std::set<Symbol> axes;
    for (size_t axis = 0; axis < AttentionSpec::kAxes; ++axis)
      axes.insert(AttentionSpec::symbol(static_cast<AttentionSpec::Axis>(axis)));
    for (const AttentionSpec::Operand *o : {&a.q, &a.k, &a.v, &a.out, &a.mask}) {
      if (o == &a.mask && !o->buffer.valid()) continue;
      if (validBuffer(n, o->buffer)) expr(n, o->index, axes, "attention index");
    }
  }

  void spec(const Node &n, const UserKernelSpec &s, Scope &) {
    noRanges(n);
    for (Expr g : s.grid) expr(n, g, {}, "grid");
    for (const UserKernelSpec::Argument &a : s.arguments) {
      if (a.kind == UserKernelSpec::Argument::Integer) expr(n, a.integer, {}, "argument");
      if (a.kind != UserKernelSpec::Argument::Memory || !validBuffer(n, a.buffer)) continue;
      expr(n, a.offset, {}, "offset");
      const Buffer &b = p_.buffer(a.buffer);
      if (a.written && (b.kind == Buffer::Kind::ScalarInput || (b.kind != Buffer::Kind::Temp && !b.mutated)))
        breach("L6", n, fmt::format("writes '{}', which is not a temp and not marked as mutated", b.name));
    }
  }

  void spec(const Node &n, const ReadSpec &s, Scope &) {
    noRanges(n);
    if (!s.symbol.valid() || !s.symbol.isSize()) breach("L4", n, "it defines no size symbol");
    if (!validBuffer(n, s.buffer)) return;
    const DType t = p_.buffer(s.buffer).dtype;
    if (isFloat(t) || isComplex(t)) breach("L3", n, fmt::format("a scalar of {} is no size", name(t)));
  }

  /// Its condition and its blocks are checked where their place among the nodes is known.
  void spec(const Node &n, const RegionSpec &, Scope &) { noRanges(n); }

  void noRanges(const Node &n) {
    if (!n.ranges.empty() || !n.reduceRanges.empty()) breach("L7", n, fmt::format("a {} node has no ranges", name(n.kind())));
  }

  /// Nodes in order, and those of regions where they stand: what is read was written, and symbols are known. Of a branch
  /// counts what both ways write, of a loop what its test writes.
  void block(const std::vector<Node> &nodes, std::vector<bool> &written, std::set<int32_t> &ids) {
    for (const Node &n : nodes) {
      if (!ids.insert(n.id.value).second) breach("L1", n, fmt::format("the node id {} is used twice", n.id.value));
      node(n);
      if (const auto *r = n.as<RegionSpec>()) {
        region(*r, n, written, ids);
        continue;
      }
      const std::vector<Access> accesses = accessesOf(n);
      auto exists = [&](const Access &a) { return a.buffer.valid() && a.buffer.index() < written.size(); };
      for (const Access &a : accesses)
        if (a.reads() && exists(a) && !written[a.buffer.index()])
          breach("L6", n, fmt::format("reads '{}' before it is written", p_.buffer(a.buffer).name));
      for (const Access &a : accesses)
        if (a.writes() && exists(a)) written[a.buffer.index()] = true;
      if (const auto *read = n.as<ReadSpec>()) sizes_.insert(read->symbol);
    }
  }

  void region(const RegionSpec &r, const Node &n, std::vector<bool> &written, std::set<int32_t> &ids) {
    const std::set<Symbol> around = sizes_;
    if (r.kind == RegionSpec::Kind::If) {
      expr(n, r.condition, {}, "condition");
      std::vector<bool> then = written, otherwise = written;
      block(r.blocks[0], then, ids);
      sizes_ = around;
      block(r.blocks[1], otherwise, ids);
      for (size_t b = 0; b < written.size(); ++b) written[b] = then[b] && otherwise[b];
    } else {
      block(r.blocks[0], written, ids);
      expr(n, r.condition, {}, "condition");
      std::vector<bool> body = written;
      block(r.blocks[1], body, ids);
    }
    sizes_ = around;
  }

private:
  const Program &p_;
  std::set<Symbol> sizes_;
  Symbol::Kind outer_;
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
/// What an output writes back stays inside its target, as far as Facts can decide it.
void writeBack(const Program &p, const ProgramOutput &o, Checker &checker) {
  if (o.writeBackTo.index() >= p.buffers.size()) return checker.programBreach("L8", "a write-back names no buffer");
  const Buffer &target = p.buffer(o.writeBackTo);
  if (o.writeBackStrides.size() != o.sizes.size())
    return checker.programBreach("L8", fmt::format("the write-back to '{}' has {} strides for {} dimensions", target.name,
                                                   o.writeBackStrides.size(), o.sizes.size()));
  Expr last = o.writeBackOffset;
  for (size_t d = 0; d < o.sizes.size(); ++d) {
    if (p.facts.rangeOf(o.sizes[d]).lo < 1) return;
    last = last + (o.sizes[d] - 1) * o.writeBackStrides[d];
  }
  if (isComplex(o.dtype)) last = last * 2 + 1;
  if (p.facts.rangeOf(last).lo < 0 || p.facts.rangeOf(target.elements - last).hi < 1)
    checker.programBreach("L8", fmt::format("the write-back to '{}' reaches element {} of {}", target.name, last.str(),
                                            target.elements.str()));
}
} // namespace

Status verify(const Program &p) {
  std::set<Symbol> sizes;
  for (Symbol s : sizeSymbols(p)) sizes.insert(s);
  // Their ranges are known from the start, their values are not.
  for (const Node &n : p.nodes)
    for (Symbol s : definedBy(n)) sizes.erase(s);
  Checker checker(p, sizes, Symbol::Kind::Index);
  std::vector<bool> written(p.buffers.size());
  for (size_t k = 0; k < p.buffers.size(); ++k) {
    const Buffer &b = p.buffers[k];
    if (b.id.value != static_cast<int32_t>(k))
      checker.programBreach("L1", fmt::format("buffer '{}' at {} has the id {}", b.name, k, b.id.value));
    // What has no elements need not be written.
    written[k] = b.kind != Buffer::Kind::Temp || b.elements.isConst(0);
    if (b.kind == Buffer::Kind::Constant && (b.index < 0 || b.index >= static_cast<int64_t>(p.constants.size())))
      checker.programBreach("L1", fmt::format("constant buffer '{}' has no constant", b.name));
    if (b.kind == Buffer::Kind::Input && (b.index < 0 || b.index >= static_cast<int64_t>(p.inputs.size())))
      checker.programBreach("L1", fmt::format("input buffer '{}' has no input", b.name));
  }
  std::set<int32_t> ids;
  checker.block(p.nodes, written, ids);
  for (const ProgramOutput &o : p.outputs) {
    if (o.kind != ProgramOutput::Kind::Tensor) continue;
    if (!o.buffer.valid() || o.buffer.index() >= p.buffers.size())
      checker.programBreach("L8", "an output names no buffer");
    else if (!written[o.buffer.index()])
      checker.programBreach("L8", fmt::format("output '{}' is never written", p.buffer(o.buffer).name));
    if (o.writeBackTo.valid() && o.writeBackTo != o.buffer) writeBack(p, o, checker);
  }
  return std::move(checker).status();
}

} // namespace neso::loops
