#include "verifiers/loops_mutants.h"

#include "ir/loops/access.h"
#include "ir/loops/build.h"

namespace neso::test {
namespace {

using namespace loops;

void collect(std::vector<Node> &nodes, std::vector<Node *> &out) {
  for (Node &n : nodes) {
    out.push_back(&n);
    if (auto *region = n.as<RegionSpec>())
      for (std::vector<Node> &block : region->blocks) collect(block, out);
  }
}
/// The nodes of a program, those in regions too, by their number in this order.
std::vector<Node *> allNodes(Program &p) {
  std::vector<Node *> out;
  collect(p.nodes, out);
  return out;
}
/// Blocks of nodes: the program's own, then those of regions.
std::vector<std::vector<Node> *> allBlocks(Program &p) {
  std::vector<std::vector<Node> *> out = {&p.nodes};
  for (Node *n : allNodes(p))
    if (auto *region = n->as<RegionSpec>())
      for (std::vector<Node> &block : region->blocks) out.push_back(&block);
  return out;
}

/// f(Expr &, ExprRole, extent of the buffer that it is an index of or none) for each expression of the node alone.
template <typename F> void forEachOwnExpr(const Program &p, Node &node, F f) {
  if (auto *region = node.as<RegionSpec>()) return f(region->condition, ExprRole::Size, Expr());
  rewriteExprs(node, [&](Expr &e, ExprRole role, const Access *a) {
    const bool known = a && !a->masked && a->buffer.valid() && a->buffer.index() < p.buffers.size();
    const Expr elements = known ? p.buffer(a->buffer).elements : Expr();
    f(e, role, known && isComplex(p.buffer(a->buffer).dtype) ? elements * 2 : elements);
  });
}
template <typename F> void forEachOwnBuffer(Node &node, F f) {
  if (!node.as<RegionSpec>()) rewriteAccesses(node, [&](BufferId &b, Expr &, const Access &a) { f(b, a); });
}

DType other(DType t) {
  if (isComplex(t)) return DType::F32;
  if (t == DType::F32) return DType::F64;
  if (isFloat(t)) return DType::F32;
  return t == DType::I64 ? DType::I32 : DType::I64;
}
Expr nowhere() { return Symbol::size("nowhere99"); }

class Maker {
public:
  explicit Maker(const Program &p) : copy_(p), p_(copy_) {}

  std::vector<Mutant<Program>> run() {
    const std::vector<Node *> nodes = allNodes(p_);
    for (size_t n = 0; n < nodes.size(); ++n) {
      places(n, *nodes[n]);
      ranges(n, *nodes[n]);
      bodies(n, *nodes[n]);
      std::visit([&](auto &spec) { this->spec(n, *nodes[n], spec); }, nodes[n]->spec);
    }
    order();
    buffers();
    constants();
    inputs();
    outputs();
    conditions();
    return std::move(out_);
  }

private:
  Program copy_;
  Program &p_;
  std::vector<Mutant<Program>> out_;

  void add(std::string kind, std::string where, std::function<void(Program &)> apply) {
    out_.push_back({std::move(kind), std::move(where), std::move(apply)});
  }
  void addNode(std::string kind, size_t n, std::function<void(Node &, Program &)> apply) {
    const Node &node = *allNodes(p_)[n];
    add(std::move(kind), fmt::format("{} ({})", node.name, name(node.kind())),
        [n, apply = std::move(apply)](Program &p) { apply(*allNodes(p)[n], p); });
  }
  template <typename T> void addSpec(std::string kind, size_t n, std::function<void(T &)> apply) {
    addNode(std::move(kind), n, [apply = std::move(apply)](Node &node, Program &) { apply(node.get<T>()); });
  }

  // ---- Places that name a buffer, and expressions.

  void addBuffer(std::string kind, size_t n, int k, BufferId to) {
    addNode(std::move(kind), n, [k, to](Node &node, Program &) {
      int at = 0;
      forEachOwnBuffer(node, [&](BufferId &b, const Access &) {
        if (at++ == k) b = to;
      });
    });
  }
  void addExpr(std::string kind, size_t n, int k, Expr to) {
    addNode(std::move(kind), n, [k, to](Node &node, Program &p) {
      int at = 0;
      forEachOwnExpr(p, node, [&](Expr &e, ExprRole, Expr) {
        if (at++ == k) e = to;
      });
    });
  }
  void places(size_t n, Node &node) {
    int k = 0;
    forEachOwnBuffer(node, [&](BufferId &b, const Access &a) {
      // Attention without a mask is another attention.
      const auto *attention = node.as<AttentionSpec>();
      if (!attention || b != attention->mask.buffer) addBuffer("a place names no buffer", n, k, {});
      addBuffer("a place names a buffer behind the last", n, k, BufferId(static_cast<int64_t>(p_.buffers.size())));
      const DType t = toReal(p_.buffer(b).dtype);
      if (a.use != Use::User && a.use != Use::Host)
        for (const Buffer &to : p_.buffers)
          if (toReal(to.dtype) != t && to.kind == p_.buffer(b).kind) {
            addBuffer("a place names a buffer of another dtype", n, k, to.id);
            break;
          }
      if (a.writes())
        for (const Buffer &to : p_.buffers)
          if (toReal(to.dtype) == t && to.kind != Buffer::Kind::Temp && !to.mutated) {
            addBuffer("what may not be written is written", n, k, to.id);
            break;
          }
      ++k;
    });
    k = 0;
    forEachOwnExpr(p_, node, [&](Expr &e, ExprRole role, Expr extent) {
      addExpr("an expression of an unknown symbol", n, k, e + nowhere());
      addExpr("no expression", n, k, Expr());
      if (isOverLoop(role)) addExpr("an expression of a dimension that is not there", n, k, e + Expr(Symbol::inner(9)));
      if (extent.valid() && !node.as<UserKernelSpec>()) {
        addExpr("an index behind its buffer", n, k, e + extent);
        addExpr("an index before its buffer", n, k, e - extent);
        addExpr("an index moved by one", n, k, e + 1);
        addExpr("an index moved back by one", n, k, e - 1);
      }
      ++k;
    });
  }

  // ---- Ranges.

  void addRange(std::string kind, size_t n, bool inner, size_t d, Expr to) {
    addNode(std::move(kind), n, [=](Node &node, Program &) {
      std::vector<Expr> &ranges = inner ? node.reduceRanges : node.ranges;
      if (to.valid())
        ranges[d] = to;
      else
        ranges.erase(ranges.begin() + static_cast<int64_t>(d));
    });
  }
  void ranges(size_t n, Node &node) {
    for (bool inner : {false, true}) {
      const std::vector<Expr> &all = inner ? node.reduceRanges : node.ranges;
      for (size_t d = 0; d < all.size(); ++d) {
        addRange("a range of an unknown symbol", n, inner, d, all[d] + nowhere());
        addRange("a range is longer by one", n, inner, d, all[d] + 1);
        if (!inner) addRange("a range is shorter by one", n, inner, d, all[d] - 1);
        if (d + 1 == all.size()) addRange("a dimension is dropped", n, inner, d, Expr());
      }
    }
    addNode("a dimension more", n, [](Node &node, Program &) { node.ranges.push_back(Expr(2)); });
  }

  // ---- Bodies.

  using Bodies = std::vector<Body *>;
  static Bodies bodiesOf(Node &node) {
    Bodies out;
    forEachBody(node, [&](Body &b) { out.push_back(&b); });
    return out;
  }
  void addOp(std::string kind, size_t n, size_t b, size_t k, std::function<void(Op &)> apply) {
    addNode(std::move(kind), n, [=](Node &node, Program &) { apply(bodiesOf(node)[b]->ops[k]); });
  }
  /// Some value before op k of another dtype than `than`; -1: none.
  static ValueIdx otherValue(const Body &body, size_t k, DType than) {
    for (size_t v = 0; v < k; ++v)
      if (body.ops[v].dtype != than) return static_cast<ValueIdx>(v);
    return -1;
  }
  /// Whether some user of the value takes one dtype only.
  static bool strictlyUsed(const Body &body, size_t k) {
    const auto v = static_cast<ValueIdx>(k);
    return std::any_of(body.ops.begin(), body.ops.end(), [&](const Op &o) {
      if (o.kind == OpKind::Load) return o.a == v || o.b == v;
      if (o.kind == OpKind::Indirect) return o.b == v;
      const OpTypes types = info(o.kind).types;
      if (types == OpTypes::Special) return false;
      return o.a == v || (types != OpTypes::Shift && (o.b == v || o.c == v));
    });
  }
  void bodies(size_t n, Node &node) {
    const Bodies bodies = bodiesOf(node);
    for (size_t b = 0; b < bodies.size(); ++b)
      for (size_t k = 0; k < bodies[b]->ops.size(); ++k) op(n, b, k, *bodies[b]);
  }
  void op(size_t n, size_t b, size_t k, const Body &body) {
    const Op &o = body.ops[k];
    const OpInfo &row = info(o.kind);
    const auto self = static_cast<ValueIdx>(k);
    ValueIdx Op::*const operands[] = {&Op::a, &Op::b, &Op::c};
    for (ValueIdx Op::*which : operands) {
      if (o.*which < 0) continue;
      addOp("an operand that comes later", n, b, k, [=](Op &at) { at.*which = self; });
      addOp("an operand that is not there", n, b, k, [=](Op &at) { at.*which = 1000; });
      if (row.operands > 0 || o.kind == OpKind::Indirect)
        if (which == &Op::a || row.operands > 0) addOp("an operand is dropped", n, b, k, [=](Op &at) { at.*which = -1; });
      if (row.types == OpTypes::Special && (o.kind != OpKind::Load || which == &Op::c)) continue;
      if (row.types == OpTypes::Shift && which == &Op::b) continue;
      if (ValueIdx to = otherValue(body, k, body.ops[static_cast<size_t>(o.*which)].dtype); to >= 0 && row.operands != 1)
        addOp("an operand of another dtype", n, b, k, [=](Op &at) { at.*which = to; });
    }
    if (row.types != OpTypes::Special || strictlyUsed(body, k))
      addOp("a value of another dtype", n, b, k, [](Op &at) { at.dtype = other(at.dtype); });
    addOp("a complex value", n, b, k, [](Op &at) { at.dtype = DType::C64; });
    if (o.kind == OpKind::Index) addOp("an index that is a float", n, b, k, [](Op &at) { at.dtype = DType::F32; });
    if (row.operands == 1) addOp("an operator of other arity", n, b, k, [](Op &at) { at.kind = OpKind::Add; });
    if (row.operands == 2 || row.operands == 3) addOp("an operator of other arity", n, b, k, [](Op &at) { at.kind = OpKind::Neg; });
    if (row.operands < 0 && o.kind != OpKind::Load) addOp("an operator of other arity", n, b, k, [](Op &at) { at.kind = OpKind::Add; });
    if (o.kind == OpKind::Indirect) {
      addOp("a symbol that is no symbol", n, b, k, [](Op &at) { at.symbol = {}; });
      addOp("a symbol that is defined already", n, b, k, [](Op &at) { at.symbol = Symbol::inner(0); });
      addOp("another symbol than the one used", n, b, k, [](Op &at) { at.symbol = Symbol::indirect(77); });
    }
    addNode("an operation is dropped", n, [=](Node &node, Program &) {
      Body &at = *bodiesOf(node)[b];
      at.ops.erase(at.ops.begin() + static_cast<int64_t>(k));
      for (Op &user : at.ops)
        for (ValueIdx Op::*which : {&Op::a, &Op::b, &Op::c})
          if (user.*which == self)
            user.*which = -1;
          else if (user.*which > self)
            --(user.*which);
    });
  }

  // ---- What each kind of node has besides.

  template <typename T> void stores(size_t n, const Node &node, const T &spec, bool results) {
    const auto ops = static_cast<ValueIdx>(node.body().ops.size() + 50);
    for (size_t k = 0; k < spec.stores.size(); ++k) {
      addSpec<T>("a store is dropped", n, [=](T &s) { s.stores.erase(s.stores.begin() + static_cast<int64_t>(k)); });
      addSpec<T>("a store of a value that is not there", n, [=](T &s) { s.stores[k].value = ops; });
      addSpec<T>("a store of no value", n, [=](T &s) { s.stores[k].value = -1; });
      addSpec<T>("a store under a mask that is not there", n, [=](T &s) { s.stores[k].mask = ops; });
      if (results) {
        addSpec<T>("a result stored under a mask", n, [=](T &s) { s.stores[k].mask = 0; });
        addSpec<T>("a result stored as an update", n, [=](T &s) { s.stores[k].mode = StoreMode::AtomicAdd; });
      }
    }
  }
  void storesOfValues(size_t n, const Body &body, auto &spec) {
    using T = std::remove_cvref_t<decltype(spec)>;
    for (size_t k = 0; k < spec.stores.size() && !body.ops.empty(); ++k) {
      const DType t = body.ops[static_cast<size_t>(spec.stores[k].value)].dtype;
      if (ValueIdx to = otherValue(body, body.ops.size(), t); to >= 0)
        addSpec<T>("a store of a value of another dtype", n, [=](T &s) { s.stores[k].value = to; });
      if (ValueIdx to = otherValue(body, body.ops.size(), DType::Bool); to >= 0)
        addSpec<T>("a mask that is not Bool", n, [=](T &s) { s.stores[k].mask = to; });
    }
  }

  void spec(size_t n, Node &node, PointwiseSpec &s) { stores(n, node, s, false), storesOfValues(n, s.body, s); }

  template <typename T> void reductions(size_t n, T &spec) {
    addSpec<T>("no reductions", n, [](T &s) { s.reductions.clear(); });
    for (size_t r = 0; r < spec.reductions.size(); ++r) {
      addSpec<T>("a reduction is dropped", n, [=](T &s) { s.reductions.erase(s.reductions.begin() + static_cast<int64_t>(r)); });
      addSpec<T>("an input that is not there", n, [=](T &s) { s.reductions[r].input = 1000; });
      addSpec<T>("an accumulator of another dtype", n, [=](T &s) { s.reductions[r].dtype = other(s.reductions[r].dtype); });
      const DType t = spec.body.ops[static_cast<size_t>(spec.reductions[r].input)].dtype;
      for (size_t v = 0; v < spec.body.ops.size(); ++v)
        if (isFloat(spec.body.ops[v].dtype) != isFloat(t)) {
          addSpec<T>("an input of another dtype", n, [=](T &s) { s.reductions[r].input = static_cast<ValueIdx>(v); });
          break;
        }
      for (size_t k = 0; k < spec.reductions[r].results.size(); ++k) {
        addSpec<T>("a result's store is dropped", n, [=](T &s) {
          s.reductions[r].results.erase(s.reductions[r].results.begin() + static_cast<int64_t>(k));
        });
        addSpec<T>("a result that is not there", n, [=](T &s) { s.reductions[r].results[k].value = 3; });
        addSpec<T>("a result stored under a mask", n, [=](T &s) { s.reductions[r].results[k].mask = 0; });
        addSpec<T>("a result stored as an update", n, [=](T &s) { s.reductions[r].results[k].mode = StoreMode::AtomicAdd; });
        addSpec<T>("a result stored by the reduced dimension", n, [=](T &s) {
          s.reductions[r].results[k].index = s.reductions[r].results[k].index + Symbol::inner(0);
        });
      }
    }
  }
  void spec(size_t n, Node &, ReductionSpec &s) { reductions(n, s); }
  void spec(size_t n, Node &, SegmentsSpec &s) {
    reductions(n, s);
    addSpec<SegmentsSpec>("an end that is not there", n, [](SegmentsSpec &at) { at.first = -1; });
    addSpec<SegmentsSpec>("an end that is not there", n, [](SegmentsSpec &at) { at.last = 1000; });
    if (isFloat(s.body.ops[static_cast<size_t>(s.reductions[0].input)].dtype))
      addSpec<SegmentsSpec>("an end that is a float", n, [](SegmentsSpec &at) { at.last = at.reductions[0].input; });
  }
  void spec(size_t n, Node &node, ContractionSpec &s) {
    stores(n, node, s, false), storesOfValues(n, s.epilogue, s);
    addSpec<ContractionSpec>("an operand of the product that is not there", n, [](ContractionSpec &at) { at.lhs = -1; });
    addSpec<ContractionSpec>("an operand of the product that is not there", n, [](ContractionSpec &at) { at.rhs = 1000; });
    addSpec<ContractionSpec>("an accumulator of another dtype", n, [](ContractionSpec &at) { at.accType = other(at.accType); });
    if (!s.epilogue.ops.empty())
      addSpec<ContractionSpec>("nothing stands for the sum", n, [](ContractionSpec &at) { at.epilogue.ops[0].kind = OpKind::Index; });
  }
  void spec(size_t n, Node &node, ScanSpec &s) {
    stores(n, node, s, true);
    addSpec<ScanSpec>("no inputs", n, [](ScanSpec &at) { at.inputs.clear(); });
    addSpec<ScanSpec>("an input that is not there", n, [](ScanSpec &at) { at.inputs[0] = 1000; });
    for (size_t k = 0; k < s.stores.size(); ++k)
      if (isFloat(p_.buffer(s.stores[k].buffer).dtype))
        addSpec<ScanSpec>("positions stored as values", n, [=](ScanSpec &at) {
          at.stores[k].value = static_cast<ValueIdx>(at.inputs.size());
        });
  }
  void spec(size_t n, Node &node, SortSpec &s) {
    stores(n, node, s, true);
    addSpec<SortSpec>("a key that is not there", n, [](SortSpec &at) { at.key = -1; });
    addSpec<SortSpec>("a position that is not there", n, [](SortSpec &at) { at.position = 1000; });
    addSpec<SortSpec>("more is taken than is there", n, [=](SortSpec &at) { at.take = Expr(int64_t{1} << 40); });
    addSpec<SortSpec>("a place that is not there", n, [](SortSpec &at) { at.place = 1000, at.take = Expr(1); });
    addSpec<SortSpec>("a place that differs along the row", n, [](SortSpec &at) {
      at.place = loops::appendIndex(at.body, Symbol::inner(0)), at.take = Expr(1);
    });
    addSpec<SortSpec>("a place of several results", n, [](SortSpec &at) { at.place = loops::appendIndex(at.body, Expr(0)), at.take = Expr(); });
    if (s.position < 0) addSpec<SortSpec>("runs without positions", n, [](SortSpec &at) { at.run = Expr(1); });
    if (isFloat(s.body.ops[static_cast<size_t>(s.key)].dtype)) {
      addSpec<SortSpec>("a position that is a float", n, [](SortSpec &at) { at.position = at.key; });
      for (size_t k = 0; k < s.stores.size(); ++k)
        addSpec<SortSpec>("positions stored as values", n, [=](SortSpec &at) { at.stores[k].value = 1 - at.stores[k].value; });
    }
  }
  void spec(size_t n, Node &, AttentionSpec &s) {
    AttentionSpec::Operand AttentionSpec::*const operands[] = {&AttentionSpec::q, &AttentionSpec::k, &AttentionSpec::v,
                                                               &AttentionSpec::out, &AttentionSpec::mask, &AttentionSpec::logSum};
    for (AttentionSpec::Operand AttentionSpec::*which : operands) {
      if (!(s.*which).buffer.valid()) continue;
      addSpec<AttentionSpec>("an operand of another dtype than its buffer", n, [=](AttentionSpec &at) { (at.*which).dtype = other((at.*which).dtype); });
      addSpec<AttentionSpec>("an operand over an axis that it has not", n, [=](AttentionSpec &at) {
        const bool overKeys = which == &AttentionSpec::k || which == &AttentionSpec::v;
        Symbol axis = AttentionSpec::symbol(which == &AttentionSpec::mask ? AttentionSpec::Element
                                            : overKeys                    ? AttentionSpec::Query
                                            : which == &AttentionSpec::logSum ? AttentionSpec::Element
                                                                          : AttentionSpec::Key);
        (at.*which).index = (at.*which).index + axis;
      });
    }
    addSpec<AttentionSpec>("more keys than there are", n, [](AttentionSpec &at) { at.keyLength = at.keyLength + 1; });
    addSpec<AttentionSpec>("keys by the head", n, [](AttentionSpec &at) { at.keys = AttentionSpec::symbol(AttentionSpec::Head); });
    addSpec<AttentionSpec>("a longer head", n, [](AttentionSpec &at) { at.headSize = at.headSize * 8; });
  }
  void spec(size_t n, Node &, UserKernelSpec &s) {
    addNode("a kernel with ranges", n, [](Node &node, Program &) { node.ranges.push_back(2); });
    for (size_t k = 0; k < s.arguments.size(); ++k)
      if (s.arguments[k].kind == UserKernelSpec::Argument::Memory && !p_.buffer(s.arguments[k].buffer).mutated &&
          p_.buffer(s.arguments[k].buffer).kind != Buffer::Kind::Temp)
        addSpec<UserKernelSpec>("what may not be written is written", n, [=](UserKernelSpec &at) { at.arguments[k].written = true; });
  }
  void spec(size_t n, Node &, ExternSpec &s) {
    addNode("an operator with ranges", n, [](Node &node, Program &) { node.ranges.push_back(2); });
    for (size_t k = 0; k < s.outputs.size(); ++k) {
      addSpec<ExternSpec>("a result of another dtype than its buffer", n, [=](ExternSpec &at) { at.outputs[k].dtype = other(at.outputs[k].dtype); });
      addSpec<ExternSpec>("a result without memory", n, [=](ExternSpec &at) { at.outputs[k].buffer = {}; });
      addSpec<ExternSpec>("a tensor with a stride too many", n, [=](ExternSpec &at) { at.outputs[k].strides.push_back(1); });
    }
    for (size_t k = 0; k < s.arguments.size(); ++k) {
      if (!s.arguments[k].ints.empty())
        addSpec<ExternSpec>("a number that nobody knows", n, [=](ExternSpec &at) { at.arguments[k].ints[0] = nowhere(); });
      if (s.arguments[k].tensors.empty() || !s.arguments[k].tensors[0].buffer.valid()) continue;
      addSpec<ExternSpec>("an operand of another dtype than its buffer", n, [=](ExternSpec &at) { at.arguments[k].tensors[0].dtype = other(at.arguments[k].tensors[0].dtype); });
      if (p_.buffer(s.arguments[k].tensors[0].buffer).kind != Buffer::Kind::Temp)
        addSpec<ExternSpec>("what may not be written is changed", n, [=](ExternSpec &at) { at.arguments[k].tensors[0].changed = true; });
    }
  }
  void spec(size_t n, Node &, ReadSpec &) {
    addSpec<ReadSpec>("a symbol that is no symbol", n, [](ReadSpec &s) { s.symbol = {}; });
    addSpec<ReadSpec>("a symbol that is no size", n, [](ReadSpec &s) { s.symbol = Symbol::index(0); });
    addSpec<ReadSpec>("another symbol than the one used", n, [](ReadSpec &s) { s.symbol = Symbol::size("elsewhere9"); });
    for (const Buffer &b : p_.buffers)
      if (isFloat(b.dtype)) {
        addSpec<ReadSpec>("a size that is a float", n, [to = b.id](ReadSpec &s) { s.buffer = to; });
        break;
      }
  }
  void spec(size_t n, Node &, RegionSpec &) {
    addNode("a region with ranges", n, [](Node &node, Program &) { node.ranges.push_back(2); });
    for (size_t b : {0u, 1u})
      addSpec<RegionSpec>("a block of a region is dropped", n, [=](RegionSpec &s) { s.blocks[b].clear(); });
  }

  // ---- The program.

  void order() {
    const std::vector<std::vector<Node> *> blocks = allBlocks(p_);
    for (size_t b = 0; b < blocks.size(); ++b)
      for (size_t k = 0; k < blocks[b]->size(); ++k) {
        const std::string where = (*blocks[b])[k].name;
        add("a node is dropped", where, [=](Program &p) {
          auto &nodes = *allBlocks(p)[b];
          nodes.erase(nodes.begin() + static_cast<int64_t>(k));
        });
        if (k + 1 < blocks[b]->size())
          add("a node runs too late", where, [=](Program &p) {
            auto &nodes = *allBlocks(p)[b];
            std::swap(nodes[k], nodes[k + 1]);
          });
        add("a node runs last", where, [=](Program &p) {
          auto &nodes = *allBlocks(p)[b];
          std::rotate(nodes.begin() + static_cast<int64_t>(k), nodes.begin() + static_cast<int64_t>(k) + 1, nodes.end());
        });
      }
    const std::vector<Node *> nodes = allNodes(p_);
    for (size_t n = 1; n < nodes.size(); ++n)
      addNode("a node's id is another's", n, [](Node &node, Program &p) { node.id = allNodes(p)[0]->id; });
  }

  void addField(std::string kind, size_t b, std::function<void(Buffer &)> apply) {
    add(std::move(kind), p_.buffers[b].name, [=](Program &p) { apply(p.buffers[b]); });
  }
  void buffers() {
    for (size_t b = 0; b < p_.buffers.size(); ++b) {
      const Buffer &buffer = p_.buffers[b];
      addField("a buffer's id is not its position", b, [](Buffer &at) { at.id = BufferId(at.id.value + 1); });
      addField("a buffer has another dtype", b, [](Buffer &at) { at.dtype = other(at.dtype); });
      addField("a buffer's size is of an unknown symbol", b, [](Buffer &at) { at.elements = at.elements + nowhere(); });
      addField("a buffer has no size", b, [](Buffer &at) { at.elements = Expr(); });
      addField("a buffer is shorter by one", b, [](Buffer &at) { at.elements = at.elements - 1; });
      addField("a buffer is half as long", b, [](Buffer &at) { at.elements = floorDiv(at.elements, 2); });
      if (buffer.mutated) addField("a buffer that is written is not marked so", b, [](Buffer &at) { at.mutated = false; });
      if (buffer.kind != Buffer::Kind::Temp) {
        addField("a given buffer has no number", b, [](Buffer &at) { at.index = -1; });
        addField("a given buffer has a number too high", b, [](Buffer &at) { at.index = 1000; });
        addField("a given buffer is a temporary", b, [](Buffer &at) { at.kind = Buffer::Kind::Temp, at.index = -1; });
      } else {
        addField("a temporary is an input", b, [](Buffer &at) { at.kind = Buffer::Kind::Input, at.index = 0; });
      }
    }
    if (!p_.buffers.empty())
      add("the last buffer is dropped", p_.buffers.back().name, [](Program &p) { p.buffers.pop_back(); });
  }

  void constants() {
    for (size_t k = 0; k < p_.constants.size(); ++k) {
      auto addConstant = [&](std::string kind, std::function<void(Constant &)> apply) {
        add(std::move(kind), p_.constants[k].fqn, [=](Program &p) { apply(p.constants[k]); });
      };
      addConstant("a constant has fewer bytes", [](Constant &c) { c.bytes -= 1; });
      addConstant("a constant has another dtype", [](Constant &c) { c.dtype = other(c.dtype); });
      for (size_t t = 0; t < p_.constants[k].tensors.size(); ++t) {
        addConstant("a tensor lies behind its constant", [=](Constant &c) { c.tensors[t].offset += int64_t{1} << 40; });
        addConstant("a tensor lies before its constant", [=](Constant &c) { c.tensors[t].offset = -1; });
        if (!p_.constants[k].tensors[t].sizes.empty())
          addConstant("a tensor has other dimensions than strides", [=](Constant &c) { c.tensors[t].strides.pop_back(); });
      }
    }
    if (!p_.constants.empty()) add("the last constant is dropped", "", [](Program &p) { p.constants.pop_back(); });
  }

  void inputs() {
    for (size_t k = 0; k < p_.inputs.size(); ++k) {
      auto addInput = [&](std::string kind, std::function<void(ProgramInput &)> apply) {
        add(std::move(kind), p_.inputs[k].name, [=](Program &p) { apply(p.inputs[k]); });
      };
      if (p_.inputs[k].kind != ProgramInput::Kind::Tensor || !p_.inputs[k].buffer.valid()) continue;
      addInput("an input names a buffer behind the last", [](ProgramInput &in) { in.buffer = BufferId(9999); });
      addInput("an input has another dtype than its buffer", [](ProgramInput &in) { in.dtype = other(in.dtype); });
      for (const Buffer &b : p_.buffers)
        if (b.kind == Buffer::Kind::Temp) {
          addInput("an input names a buffer that is none", [to = b.id](ProgramInput &in) { in.buffer = to; });
          break;
        }
      if (p_.inputs[k].sizes.empty()) continue;
      addInput("an input has fewer strides than dimensions", [](ProgramInput &in) { in.strides.resize(in.sizes.size() - 1); });
      addInput("an input has a dimension without a size", [](ProgramInput &in) { in.sizes.back() = Expr(); });
      addInput("an input is longer than its buffer", [](ProgramInput &in) { in.sizes.front() = in.sizes.front() * 2; });
    }
    if (!p_.inputs.empty()) add("the last input is dropped", p_.inputs.back().name, [](Program &p) { p.inputs.pop_back(); });
  }

  void outputs() {
    for (size_t k = 0; k < p_.outputs.size(); ++k) {
      auto addOutput = [&](std::string kind, std::function<void(ProgramOutput &)> apply) {
        add(std::move(kind), fmt::format("output {}", k), [=](Program &p) { apply(p.outputs[k]); });
      };
      const ProgramOutput &o = p_.outputs[k];
      if (o.kind == ProgramOutput::Kind::Int || o.kind == ProgramOutput::Kind::Bool) {
        addOutput("an output of an unknown symbol", [](ProgramOutput &at) { at.scalar = at.scalar + nowhere(); });
        addOutput("an output that is no expression", [](ProgramOutput &at) { at.scalar = Expr(); });
      }
      if (o.kind != ProgramOutput::Kind::Tensor) continue;
      addOutput("an output names no buffer", [](ProgramOutput &at) { at.buffer = {}; });
      addOutput("an output names a buffer behind the last", [](ProgramOutput &at) { at.buffer = BufferId(9999); });
      addOutput("an output has another dtype than its buffer", [](ProgramOutput &at) { at.dtype = other(at.dtype); });
      addOutput("an output of an unknown symbol", [](ProgramOutput &at) { at.offset = at.offset + nowhere(); });
      addOutput("an output before its buffer", [](ProgramOutput &at) { at.offset = at.offset - 1; });
      addOutput("an output behind its buffer", [n = p_.buffer(o.buffer).elements](ProgramOutput &at) { at.offset = at.offset + n; });
      if (!o.sizes.empty()) {
        addOutput("an output of an unknown symbol", [](ProgramOutput &at) { at.sizes[0] = at.sizes[0] + nowhere(); });
        addOutput("an output without a size", [](ProgramOutput &at) { at.sizes[0] = Expr(); });
        addOutput("an output longer than its buffer", [](ProgramOutput &at) { at.sizes[0] = at.sizes[0] + 1; });
        addOutput("an output has fewer strides than dimensions", [](ProgramOutput &at) { at.strides.resize(at.sizes.size() - 1); });
      }
      if (!o.writeBackTo.valid()) continue;
      if (!o.mutationTarget.empty()) addOutput("a write-back is dropped", [](ProgramOutput &at) { at.writeBackTo = {}; });
      addOutput("a write-back to a buffer behind the last", [](ProgramOutput &at) { at.writeBackTo = BufferId(9999); });
      for (const Buffer &b : p_.buffers)
        if (b.kind == Buffer::Kind::Temp && b.id != o.buffer) {
          addOutput("a write-back to a temporary", [to = b.id](ProgramOutput &at) { at.writeBackTo = to; });
          break;
        }
      if (o.writeBackTo != o.buffer && !o.sizes.empty()) {
        addOutput("a write-back has fewer strides than dimensions", [](ProgramOutput &at) { at.writeBackStrides.pop_back(); });
        addOutput("a write-back behind its target", [n = p_.buffer(o.writeBackTo).elements](ProgramOutput &at) {
          at.writeBackOffset = at.writeBackOffset + n;
        });
      }
    }
  }

  void conditions() {
    add("a guard of an unknown symbol", "", [](Program &p) { p.guards.push_back(ge(nowhere(), 2)); });
    add("a guard that is no expression", "", [](Program &p) { p.guards.push_back(Expr()); });
    add("an assertion of an unknown symbol", "", [](Program &p) { p.assertions.push_back({ge(nowhere(), 2), "no"}); });
  }
};

} // namespace

std::vector<Mutant<Program>> mutantsOf(const Program &program) { return Maker(program).run(); }

} // namespace neso::test
