#include "ir/loops/access.h"

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
