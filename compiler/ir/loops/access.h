// What a node reads and writes, and every index expression in it: the one walk.
//
// Whoever asks which memory a node touches asks here; there is no other list of the places in a node that name a buffer
// or hold an expression. The walk takes each struct of a node apart by all its fields, so that a field that is added
// and not considered here does not compile. The interpreter gives a node only the buffers that the walk names: a place
// that the walk forgets is a failed run of every test that has such a node.
//
// Example:  forEachAccess(node, [&](const Access &a) { if (a.writes()) written.insert(a.buffer); });
#pragma once
#include <vector>

#include "base/function_ref.h"
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

/// Everything that the node reads or writes: loads, then operands as a whole, then stores.
void forEachAccess(const Node &node, FunctionRef<void(const Access &)> f);

/// Those of them that write, without a look at the loads.
void forEachWrite(const Node &node, FunctionRef<void(const Access &)> f);

/// What is assigned to the references is in the node afterwards.
void rewriteAccesses(Node &node, FunctionRef<void(BufferId &buffer, Expr &index, const Access &before)> f);

/// Every index expression of the node but the ranges of its loops.
void forEachExpr(const Node &node, FunctionRef<void(Expr, ExprRole)> f);

/// The same, to be changed in place; `a` is the access whose index the expression is, nullptr elsewhere.
void rewriteExprs(Node &node, FunctionRef<void(Expr &, ExprRole, const Access *a)> f);

/// Replaces every expression over the node's loops (isOverLoop) by f of it; the ranges stay.
void mapExprs(Node &node, FunctionRef<Expr(Expr)> f);

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

/// Whether the operator is given a script object, which a call may change: such calls stay in order, and each is made.
bool usesObject(const ExternSpec &call);
/// Whether the node is such a call, or one is in its region.
bool usesObject(const Node &node);

/// All that forEachAccess gives, in its order.
std::vector<Access> accessesOf(const Node &node);
/// The expressions that mapExprs would visit.
std::vector<Expr> loopExprsOf(const Node &node);
/// Whether the node reads (writes) the buffer anywhere.
bool reads(const Node &node, BufferId buffer);
bool writes(const Node &node, BufferId buffer);

} // namespace neso::loops
