#include "lower/schedule/access.h"

#include <algorithm>

namespace neso::schedule {

using namespace loops;

namespace {

template <typename NodeT, typename F> void visit(NodeT &n, F f) {
  for (auto *body : {&n.body, &n.epilogue})
    for (auto &op : body->ops) {
      if (op.kind == OpKind::Load || op.kind == OpKind::Index) f(op.index);
      if (op.kind == OpKind::Indirect) f(op.bound);
    }
  for (auto &s : n.stores) f(s.index);
  for (auto &r : n.reductions)
    for (auto &s : r.results) f(s.index);
}

} // namespace

std::vector<Access> accessesOf(const Node &n) {
  std::vector<Access> out;
  for (const Body *body : {&n.body, &n.epilogue})
    for (const Op &op : body->ops)
      if (op.kind == OpKind::Load) out.push_back({op.buffer, op.index, false, op.a >= 0, true, false});
  if (n.attention) {
    for (const AttentionSpec::Operand *o : {&n.attention->q, &n.attention->k, &n.attention->v, &n.attention->mask})
      if (o->buffer.valid()) out.push_back({o->buffer, o->index, false, false, true, true});
    out.push_back({n.attention->out.buffer, n.attention->out.index, true, false, true, true});
  }
  if (n.user)
    for (const UserKernelSpec::Argument &a : n.user->arguments) {
      if (a.kind != UserKernelSpec::Argument::Memory) continue;
      if (a.read) out.push_back({a.buffer, a.offset, false, false, true, true});
      if (a.written) out.push_back({a.buffer, a.offset, true, false, true, true});
    }
  if (n.lookBack) out.push_back({n.lookBack->words, 0, true, false, false, true});
  for (const Store &s : n.stores)
    out.push_back({s.buffer, s.index, true, s.mask >= 0, s.mode == StoreMode::Set, false});
  for (const Reduction &r : n.reductions)
    for (const Store &s : r.results)
      out.push_back({s.buffer, s.index, true, s.mask >= 0, s.mode == StoreMode::Set, false});
  return out;
}

void mapExprs(Node &node, const std::function<Expr(Expr)> &f) {
  visit(node, [&](Expr &e) { e = f(e); });
}
std::vector<Expr> exprsOf(const Node &node) {
  std::vector<Expr> out;
  visit(node, [&](const Expr &e) { out.push_back(e); });
  return out;
}

void renumberIndirects(Node &node, size_t &next) {
  SymbolMap<Expr> symbols;
  for (Body *body : {&node.body, &node.epilogue})
    for (Op &op : body->ops)
      if (op.kind == OpKind::Indirect) {
        Symbol fresh = Symbol::indirect(next++);
        symbols[op.symbol] = fresh;
        op.symbol = fresh;
      }
  if (!symbols.empty()) mapExprs(node, [&](Expr e) { return substitute(e, symbols); });
}

int64_t hint(Expr e, const Facts &facts, int64_t usual) {
  if (e.isConst()) return e.constValue();
  SymbolMap<int64_t> values;
  for (Symbol s : symbolsOf(e)) {
    Interval range = facts.range(s);
    values[s] = std::clamp<int64_t>(usual, range.lo == INT64_MIN ? 1 : range.lo, range.hi);
  }
  return evaluate(e, values).value_or(usual);
}

} // namespace neso::schedule
