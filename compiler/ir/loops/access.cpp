#include "ir/loops/access.h"

#include <algorithm>
#include <set>
#include <type_traits>

namespace neso::loops {

namespace {

template <typename T, typename As> using Like = std::conditional_t<std::is_const_v<As>, const T, T>;

/// Called at each place that names a buffer and at each expression; both are references into the node, which may be changed
/// where the node is not const. Loads come before operands that are used as a whole, these before stores.
template <typename N> struct Visitor {
  FunctionRef<void(Like<BufferId, N> &, Like<Expr, N> &, const Access &)> access;
  FunctionRef<void(Like<Expr, N> &, ExprRole, const Access *)> expr;
  bool loads = true;
};

template <typename N> class Walk {
public:
  /// `inside`: of a region, seen from outside: no index, and nothing is sure to happen.
  explicit Walk(const Visitor<N> &visitor, bool inside = false) : visitor_(visitor), inside_(inside) {}
  void all(N &node) {
    auto &[id, name, origins, ranges, reduceRanges, spec] = node;
    std::visit([this](auto &s) { this->of(s); }, spec);
  }

private:
  void touch(Like<BufferId, N> &buffer, Like<Expr, N> &index, Access a, std::optional<ExprRole> role = {}) {
    a.buffer = buffer, a.index = index;
    if (inside_) a.use = Use::Region, a.masked = true;
    visitor_.access(buffer, index, a);
    if (role) expr(index, *role, &a);
  }
  void expr(Like<Expr, N> &e, ExprRole role, const Access *a = nullptr) {
    if (inside_) role = ExprRole::Size, a = nullptr;
    visitor_.expr(e, role, a);
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
    if (take.valid()) expr(take, ExprRole::Size);
    if (run.valid()) expr(run, ExprRole::Size);
    storesOf(stores);
  }

  void loads(Like<Body, N> &body, Use use) {
    if (!visitor_.loads) return;
    for (auto &op : body.ops) {
      auto &[kind, dtype, a, b, c, imm, immInt, buffer, index, symbol, bound, wrap, check] = op;
      switch (kind) {
      case OpKind::Load:
        touch(buffer, index, {.use = use, .mode = AccessMode::Read, .masked = a >= 0}, ExprRole::Element);
        break;
      case OpKind::Index: expr(index, ExprRole::Value); break;
      case OpKind::Indirect: expr(bound, ExprRole::Bound); break;
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
    touch(buffer, index, {.mode = mode == StoreMode::Set ? AccessMode::Write : AccessMode::Update, .masked = mask >= 0, .update = mode},
          ExprRole::Element);
  }

  void of(Like<AttentionSpec, N> &spec) {
    auto &[q, k, v, mask, keyLength, headSize, keys, scale, causal, masked, emptyIsNan, out, logSum] = spec;
    for (auto *operand : {&q, &k, &v, &mask, &out, &logSum}) {
      auto &[buffer, index, dtype] = *operand;
      if (!buffer.valid()) continue;
      const bool written = operand == &out || operand == &logSum;
      touch(buffer, index, {.use = Use::Attention, .mode = written ? AccessMode::Write : AccessMode::Read, .masked = keys.valid() && !written && operand != &q},
            ExprRole::Operand);
    }
    expr(keyLength, ExprRole::Size), expr(headSize, ExprRole::Size);
    if (keys.valid()) expr(keys, ExprRole::Operand);
  }

  void of(Like<UserKernelSpec, N> &spec) {
    auto &[kernel, choice, function, arguments, grid, reference, notes] = spec;
    for (auto &argument : arguments) {
      auto &[kind, name, buffer, offset, read, written, integer, real, bits, follows, loads, stores, inside] = argument;
      if (kind == UserKernelSpec::Argument::Integer) expr(integer, ExprRole::Size);
      if (kind != UserKernelSpec::Argument::Memory) continue;
      const AccessMode mode = !written ? AccessMode::Read : read ? AccessMode::Update : AccessMode::Write;
      if (read || written)
        touch(buffer, offset, {.use = Use::User, .mode = mode, .inside = inside}, ExprRole::Operand);
      else
        expr(offset, ExprRole::Operand);
    }
    for (auto &g : grid) expr(g, ExprRole::Size);
  }

  void of(Like<ReadSpec, N> &spec) {
    auto &[buffer, symbol, turn] = spec;
    Like<Expr, N> first = 0;
    touch(buffer, first, {.use = Use::Host, .mode = AccessMode::Read});
  }

  void of(Like<ExternSpec, N> &spec) {
    auto &[op, arguments, outputs, number, results, asked, reference] = spec;
    for (auto &argument : arguments) {
      auto &[name, kind, tensors, ints, floats, texts] = argument;
      for (auto &t : tensors) view(t, t.changed ? AccessMode::Update : AccessMode::Read);
      for (auto &e : ints) expr(e, ExprRole::Size);
    }
    for (auto &t : outputs) view(t, AccessMode::Write);
  }
  void view(Like<ExternSpec::View, N> &v, AccessMode mode) {
    auto &[buffer, dtype, sizes, strides, offset, changed] = v;
    if (!buffer.valid()) return;
    touch(buffer, offset, {.use = Use::User, .mode = mode}, ExprRole::Operand);
    for (auto *all : {&sizes, &strides})
      for (auto &e : *all) expr(e, ExprRole::Size);
  }

  void of(Like<RegionSpec, N> &spec) {
    auto &[kind, condition, blocks] = spec;
    expr(condition, ExprRole::Size);
    for (auto &block : blocks)
      for (auto &node : block) {
        Walk inside(visitor_, true);
        for (auto *ranges : {&node.ranges, &node.reduceRanges})
          for (auto &e : *ranges) inside.expr(e, ExprRole::Size);
        inside.all(node);
      }
  }

  void words(Like<LookBack, N> &look) {
    auto &[buffer, tile] = look;
    Like<Expr, N> nothing = 0;
    touch(buffer, nothing, {.use = Use::LookBack, .mode = AccessMode::Update});
  }

  void sortsIn(Like<SortScratch, N> &scratch) {
    auto &[keys, positions, counts] = scratch;
    Like<Expr, N> nothing = 0;
    for (auto *buffer : {&keys, &positions, &counts})
      if (buffer->valid()) touch(*buffer, nothing, {.use = Use::Scratch, .mode = AccessMode::Write});
  }

  const Visitor<N> &visitor_;
  const bool inside_;
};

template <typename N> void walk(N &node, const Visitor<N> &visitor) { Walk<N>(visitor).all(node); }

constexpr auto kNoAccess = [](const BufferId &, const Expr &, const Access &) {};
constexpr auto kNoExpr = [](const Expr &, ExprRole, const Access *) {};

} // namespace

void forEachAccess(const Node &node, FunctionRef<void(const Access &)> f) {
  walk<const Node>(node, {[f](const BufferId &, const Expr &, const Access &a) { f(a); }, kNoExpr});
}

void forEachWrite(const Node &node, FunctionRef<void(const Access &)> f) {
  walk<const Node>(node, {[f](const BufferId &, const Expr &, const Access &a) { if (a.writes()) f(a); }, kNoExpr, false});
}

void rewriteAccesses(Node &node, FunctionRef<void(BufferId &, Expr &, const Access &)> f) { walk<Node>(node, {f, kNoExpr}); }

void forEachExpr(const Node &node, FunctionRef<void(Expr, ExprRole)> f) {
  walk<const Node>(node, {kNoAccess, [f](const Expr &e, ExprRole role, const Access *) { f(e, role); }});
}

void rewriteExprs(Node &node, FunctionRef<void(Expr &, ExprRole, const Access *)> f) { walk<Node>(node, {kNoAccess, f}); }

void mapExprs(Node &node, FunctionRef<Expr(Expr)> f) {
  rewriteExprs(node, [f](Expr &e, ExprRole role, const Access *) {
    if (isOverLoop(role)) e = f(e);
  });
}

std::vector<Access> accessesOf(const Node &node) {
  std::vector<Access> out;
  forEachAccess(node, [&](const Access &a) { out.push_back(a); });
  return out;
}

std::vector<Expr> loopExprsOf(const Node &node) {
  std::vector<Expr> out;
  forEachExpr(node, [&](Expr e, ExprRole role) {
    if (isOverLoop(role)) out.push_back(e);
  });
  return out;
}

std::vector<Symbol> definedBy(const Node &node) {
  std::vector<Symbol> out;
  auto add = [&](const Node &n) {
    if (const auto *read = n.as<ReadSpec>()) out.push_back(read->symbol);
  };
  add(node);
  if (const auto *region = node.as<RegionSpec>())
    for (const std::vector<Node> &block : region->blocks) forEachNode(block, add);
  return out;
}

bool usesObject(const ExternSpec &call) {
  return std::any_of(call.arguments.begin(), call.arguments.end(), [](const ExternSpec::Argument &a) { return a.kind == ExternSpec::Argument::Kind::Object; });
}

bool usesObject(const Node &node) {
  if (const auto *call = node.as<ExternSpec>()) return usesObject(*call);
  bool found = false;
  if (const auto *region = node.as<RegionSpec>())
    for (const std::vector<Node> &block : region->blocks) forEachNode(block, [&](const Node &n) { found |= n.as<ExternSpec>() && usesObject(n); });
  return found;
}

std::vector<Symbol> neededBy(const Program &program, const Node &node) {
  std::set<Symbol> out;
  auto need = [&](Expr e) {
    if (!e.valid()) return;
    for (Symbol s : symbolsOf(e)) out.insert(s);
  };
  for (const std::vector<Expr> *ranges : {&node.ranges, &node.reduceRanges})
    for (Expr e : *ranges) need(e);
  forEachExpr(node, [&](Expr e, ExprRole) { need(e); });
  forEachAccess(node, [&](const Access &a) {
    if (a.buffer.valid()) need(program.buffer(a.buffer).elements);
  });
  return {out.begin(), out.end()};
}

bool reads(const Node &node, BufferId buffer) {
  bool found = false;
  forEachAccess(node, [&](const Access &a) { found |= a.buffer == buffer && a.reads(); });
  return found;
}

bool writes(const Node &node, BufferId buffer) {
  bool found = false;
  forEachAccess(node, [&](const Access &a) { found |= a.buffer == buffer && a.writes(); });
  return found;
}

} // namespace neso::loops
