// What a node reads and writes, and every index expression in it: the one walk.
//
// Whoever asks which memory a node touches asks here; there is no other list of the places in a node that name a buffer
// or hold an expression. The walk takes each struct of a node apart by all its fields, so that a field that is added
// and not considered here does not compile. The interpreter gives a node only the buffers that the walk names: a place
// that the walk forgets is a failed run of every test that has such a node.
//
// Example:  forEachAccess(node, [&](const Access &a) { if (a.writes()) written.insert(a.buffer); });
#pragma once
#include <type_traits>
#include <vector>

#include "ir/loops/loops.h"

namespace neso::loops {

/// Which part of a node names the buffer.
enum class Use : uint8_t {
  Body,      // a load of the body, or a store of a result
  Epilogue,  // a load behind the sum of a contraction
  Attention, // an operand or the result of an attention
  Scratch,   // memory in which a sort works
  LookBack,  // the words of a scan whose rows programs share
  User,      // an argument of a user's kernel, or of an operator of the caller's
  Host,      // the element that a ReadScalar reads
  Region,    // what a node inside a region touches
};

/// Update: a store that depends on what is there.
enum class AccessMode : uint8_t { Read, Write, Update };

struct Access {
  BufferId buffer = {};
  Use use = Use::Body;
  AccessMode mode = AccessMode::Read;
  Expr index = {};     // element; see whole()
  bool masked = false; // happens at some points of the loop only
  StoreMode update = StoreMode::Set; // Update by a store: which
  bool inside = false; // User: answered within the plan's kernel, see UserKernelSpec::Argument::inside
  bool reads() const { return mode != AccessMode::Write; }
  bool writes() const { return mode != AccessMode::Read; }
  /// The buffer is used as a whole, not one element at each point of the loop: `index` is in symbols of the operand's
  /// own (Attention), where the pointer is (User), or says nothing (Scratch, LookBack, Host, Region).
  bool whole() const { return use >= Use::Attention; }
};

/// What an index expression is for.
enum class ExprRole : uint8_t {
  Element, // of a load or store, over the loop's indices
  Value,   // of an Index op, over the loop's indices
  Bound,   // of an Indirect, over sizes
  Operand, // of an operand that is used as a whole: see Access::whole
  Size,    // what a kind of node needs besides: lengths, a grid, numbers that a kernel is given
};
/// Whether the expression may name the indices of the node's loops.
inline bool isOverLoop(ExprRole r) { return r <= ExprRole::Bound; }

namespace detail {

template <typename T, typename As> using Like = std::conditional_t<std::is_const_v<As>, const T, T>;

/// Calls v.access(buffer, index, access) at each place that names a buffer and v.expr(expr, role) at each expression;
/// both are references into the node, which may be changed where the node is not const. Loads come before operands that
/// are used as a whole, these before stores.
template <typename N, typename V, bool kLoads = true> class Walk;

/// Shows what is inside a region to those who look from outside: no index, and nothing is sure to happen.
template <typename V> struct Inside {
  V &outside;
  template <typename B, typename E> void access(B &buffer, E &index, const Access &a) {
    Access seen = a;
    seen.use = Use::Region, seen.masked = true;
    outside.access(buffer, index, static_cast<const Access &>(seen));
  }
  template <typename E> void expr(E &e, ExprRole) { outside.expr(e, ExprRole::Size); }
};
template <typename V> struct InsideOf { using type = Inside<V>; };
template <typename V> struct InsideOf<Inside<V>> { using type = Inside<V>; };

template <typename N, typename V, bool kLoads> class Walk {
public:
  Walk(N &node, V &visitor) : visitor_(visitor) {
    auto &[id, name, origins, ranges, reduceRanges, spec] = node;
    std::visit([this](auto &s) { this->of(s); }, spec);
  }

private:
  template <typename T> void touch(Like<BufferId, T> &buffer, Like<Expr, T> &index, Access a) {
    a.buffer = buffer, a.index = index;
    visitor_.access(buffer, index, static_cast<const Access &>(a));
  }

  void of(Like<PointwiseSpec, N> &s) {
    auto &[body, stores] = s;
    loads(body, Use::Body), storesOf(stores);
  }
  void of(Like<ReductionSpec, N> &s) {
    auto &[body, reductions] = s;
    loads(body, Use::Body), resultsOf(reductions);
  }
  void of(Like<SegmentsSpec, N> &s) {
    auto &[body, reductions, first, last] = s;
    loads(body, Use::Body), resultsOf(reductions);
  }
  void of(Like<ContractionSpec, N> &s) {
    auto &[body, lhs, rhs, accType, epilogue, stores] = s;
    loads(body, Use::Body), loads(epilogue, Use::Epilogue), storesOf(stores);
  }
  void of(Like<ScanSpec, N> &s) {
    auto &[body, inputs, kind, reverse, lookBack, stores] = s;
    loads(body, Use::Body);
    if (lookBack) words(*lookBack);
    storesOf(stores);
  }
  void of(Like<SortSpec, N> &s) {
    auto &[body, key, position, descending, run, take, place, scratch, stores] = s;
    loads(body, Use::Body);
    if (scratch) sortsIn(*scratch);
    if (take.valid()) visitor_.expr(take, ExprRole::Size);
    if (run.valid()) visitor_.expr(run, ExprRole::Size);
    storesOf(stores);
  }

  void loads(Like<Body, N> &body, Use use) {
    if constexpr (!kLoads) return;
    for (auto &op : body.ops) {
      auto &[kind, dtype, a, b, c, imm, immInt, buffer, index, symbol, bound, wrap, check] = op;
      switch (kind) {
      case OpKind::Load:
        touch<N>(buffer, index, {.use = use, .mode = AccessMode::Read, .masked = a >= 0});
        visitor_.expr(index, ExprRole::Element);
        break;
      case OpKind::Index: visitor_.expr(index, ExprRole::Value); break;
      case OpKind::Indirect: visitor_.expr(bound, ExprRole::Bound); break;
      default: break;
      }
    }
  }

  void resultsOf(Like<std::vector<Reduction>, N> &reductions) {
    for (auto &r : reductions) {
      auto &[kind, dtype, input, results] = r;
      storesOf(results);
    }
  }
  void storesOf(Like<std::vector<Store>, N> &stores) {
    for (auto &s : stores) store(s);
  }
  void store(Like<Store, N> &s) {
    auto &[buffer, index, value, mask, mode] = s;
    touch<N>(buffer, index,
             {.mode = mode == StoreMode::Set ? AccessMode::Write : AccessMode::Update, .masked = mask >= 0, .update = mode});
    visitor_.expr(index, ExprRole::Element);
  }

  void of(Like<AttentionSpec, N> &spec) {
    auto &[q, k, v, mask, keyLength, headSize, scale, causal, masked, emptyIsNan, out] = spec;
    for (auto *operand : {&q, &k, &v, &mask, &out}) {
      auto &[buffer, index, dtype] = *operand;
      if (!buffer.valid()) continue;
      touch<N>(buffer, index,
               {.use = Use::Attention, .mode = operand == &out ? AccessMode::Write : AccessMode::Read});
      visitor_.expr(index, ExprRole::Operand);
    }
    visitor_.expr(keyLength, ExprRole::Size), visitor_.expr(headSize, ExprRole::Size);
  }

  void of(Like<UserKernelSpec, N> &spec) {
    auto &[kernel, choice, function, arguments, grid, reference, notes] = spec;
    for (auto &argument : arguments) {
      auto &[kind, name, buffer, offset, read, written, integer, real, bits, follows, loads, stores, inside] = argument;
      if (kind == UserKernelSpec::Argument::Integer) visitor_.expr(integer, ExprRole::Size);
      if (kind != UserKernelSpec::Argument::Memory) continue;
      if (read || written)
        touch<N>(buffer, offset,
                 {.use = Use::User,
                  .mode = !written ? AccessMode::Read
                          : read   ? AccessMode::Update
                                   : AccessMode::Write,
                  .inside = inside});
      visitor_.expr(offset, ExprRole::Operand);
    }
    for (auto &g : grid) visitor_.expr(g, ExprRole::Size);
  }

  void of(Like<ReadSpec, N> &spec) {
    auto &[buffer, symbol, turn] = spec;
    Like<Expr, N> first = 0;
    touch<N>(buffer, first, {.use = Use::Host, .mode = AccessMode::Read});
  }

  void of(Like<ExternSpec, N> &spec) {
    auto &[op, arguments, outputs, reference] = spec;
    for (auto &argument : arguments) {
      auto &[name, kind, tensors, ints, floats, texts] = argument;
      for (auto &t : tensors) view(t, t.changed ? AccessMode::Update : AccessMode::Read);
      for (auto &e : ints) visitor_.expr(e, ExprRole::Size);
    }
    for (auto &t : outputs) view(t, AccessMode::Write);
  }
  void view(Like<ExternSpec::View, N> &v, AccessMode mode) {
    auto &[buffer, dtype, sizes, strides, offset, changed] = v;
    if (!buffer.valid()) return;
    touch<N>(buffer, offset, {.use = Use::User, .mode = mode});
    visitor_.expr(offset, ExprRole::Operand);
    for (auto *all : {&sizes, &strides})
      for (auto &e : *all) visitor_.expr(e, ExprRole::Size);
  }

  void of(Like<RegionSpec, N> &spec) {
    auto &[kind, condition, blocks] = spec;
    using Seen = typename InsideOf<V>::type;
    visitor_.expr(condition, ExprRole::Size);
    for (auto &block : blocks)
      for (auto &node : block) {
        for (auto *ranges : {&node.ranges, &node.reduceRanges})
          for (auto &e : *ranges) visitor_.expr(e, ExprRole::Size);
        if constexpr (std::is_same_v<Seen, V>) {
          Walk<Like<Node, N>, Seen, kLoads>(node, visitor_);
        } else {
          Seen seen{visitor_};
          Walk<Like<Node, N>, Seen, kLoads>(node, seen);
        }
      }
  }

  void words(Like<LookBack, N> &look) {
    auto &[buffer, tile] = look;
    Like<Expr, N> nothing = 0;
    touch<N>(buffer, nothing, {.use = Use::LookBack, .mode = AccessMode::Update});
  }

  void sortsIn(Like<SortScratch, N> &scratch) {
    auto &[keys, positions, counts] = scratch;
    Like<Expr, N> nothing = 0;
    for (auto *buffer : {&keys, &positions, &counts})
      if (buffer->valid()) touch<N>(*buffer, nothing, {.use = Use::Scratch, .mode = AccessMode::Write});
  }

  V &visitor_;
};

} // namespace detail

/// f(const Access &) for everything that the node reads or writes: loads, then operands as a whole, then stores.
template <typename F> void forEachAccess(const Node &node, F f) {
  struct Visitor {
    F &f;
    void access(const BufferId &, const Expr &, const Access &a) { f(a); }
    void expr(const Expr &, ExprRole) {}
  } v{f};
  detail::Walk<const Node, Visitor>(node, v);
}

/// Those of them that write, without a look at the loads.
template <typename F> void forEachWrite(const Node &node, F f) {
  struct Visitor {
    F &f;
    void access(const BufferId &, const Expr &, const Access &a) {
      if (a.writes()) f(a);
    }
    void expr(const Expr &, ExprRole) {}
  } v{f};
  detail::Walk<const Node, Visitor, false>(node, v);
}

/// f(BufferId &buffer, Expr &index, const Access &before): what is assigned to the references is in the node afterwards.
template <typename F> void rewriteAccesses(Node &node, F f) {
  struct Visitor {
    F &f;
    void access(BufferId &buffer, Expr &index, const Access &a) { f(buffer, index, a); }
    void expr(Expr &, ExprRole) {}
  } v{f};
  detail::Walk<Node, Visitor>(node, v);
}

/// f(Expr, ExprRole) for every index expression of the node but the ranges of its loops.
template <typename F> void forEachExpr(const Node &node, F f) {
  struct Visitor {
    F &f;
    void access(const BufferId &, const Expr &, const Access &) {}
    void expr(const Expr &e, ExprRole role) { f(e, role); }
  } v{f};
  detail::Walk<const Node, Visitor>(node, v);
}

/// Replaces every expression over the node's loops (isOverLoop) by f of it; the ranges stay.
template <typename F> void mapExprs(Node &node, F f) {
  struct Visitor {
    F &f;
    void access(BufferId &, Expr &, const Access &) {}
    void expr(Expr &e, ExprRole role) {
      if (isOverLoop(role)) e = f(Expr(e));
    }
  } v{f};
  detail::Walk<Node, Visitor>(node, v);
}

/// f(node) for each node and those in its regions, outer ones first.
template <typename F> void forEachNode(const std::vector<Node> &nodes, F &&f) {
  for (const Node &n : nodes) {
    f(n);
    if (const auto *region = n.as<RegionSpec>())
      for (const std::vector<Node> &block : region->blocks) forEachNode(block, f);
  }
}

/// Symbols that ReadScalar nodes define: this one, or those in its region.
std::vector<Symbol> definedBy(const Node &node);
/// Symbols that must be known before the node runs: those of its ranges, indices and sizes, and of the sizes of what it
/// touches. Indices of its loops are among them.
std::vector<Symbol> neededBy(const Program &program, const Node &node);

/// All that forEachAccess gives, in its order.
std::vector<Access> accessesOf(const Node &node);
/// The expressions that mapExprs would visit.
std::vector<Expr> loopExprsOf(const Node &node);
/// Whether the node reads (writes) the buffer anywhere.
bool reads(const Node &node, BufferId buffer);
bool writes(const Node &node, BufferId buffer);

} // namespace neso::loops
