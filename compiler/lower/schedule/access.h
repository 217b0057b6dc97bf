// What a node touches, and rewriting of its index expressions.
#pragma once
#include <functional>

#include "ir/loops/loops.h"

namespace neso::schedule {

struct Access {
  loops::BufferId buffer;
  Expr index;
  bool store = false;
  bool masked = false;
  bool plainStore = true; // StoreMode::Set
  bool whole = false;     // Attention, UserKernel: the operand as a whole; index means nothing here
};

/// All loads and stores of a node, in order.
std::vector<Access> accessesOf(const loops::Node &node);
/// Replaces every index expression (loads, Index ops, bounds, stores) by f of it. Attention operands are left alone.
void mapExprs(loops::Node &node, const std::function<Expr(Expr)> &f);
/// All expressions that mapExprs would visit.
std::vector<Expr> exprsOf(const loops::Node &node);
/// Gives the Indirect symbols of a node the numbers from `next` on, so that they are unique in a kernel.
void renumberIndirects(loops::Node &node, size_t &next);

/// A usual value of a size expression, for ordering by size: each symbol at `usual`, or the nearest value in its range.
int64_t hint(Expr e, const Facts &facts, int64_t usual = 64);

} // namespace neso::schedule
