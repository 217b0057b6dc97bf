#include "ir/loops/access.h"

#include <set>

namespace neso::loops {

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
