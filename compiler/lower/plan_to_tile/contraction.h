// Tile programs of contractions: out[b, m, n] = sum over k of A[b, m, k] * B[b, k, n], where m, n, k and b each stand
// for one or several loop dimensions. Matrix products, convolutions (as implicit matrix products, no im2col buffer) and
// einsums all come here.
//
// Which dimension is which is read off the bodies: one that only the left operand uses is m, only the right one n, both
// b, the reduction ones k. A program computes one [BM, BN] block of the (flattened) m and n spaces, with the blocks of
// n outermost, so that a thread streams each block of B once from memory.
#pragma once
#include "ir/plan/access.h"
#include "lower/plan_to_tile/emit.h"
#include "lower/plan_to_tile/plan_to_tile.h"

namespace neso {

struct Contraction {
  std::vector<size_t> m, n, batch; // dimensions of x
  std::vector<size_t> kOuter;      // dimensions of r that are loops
  std::vector<size_t> kInner;      // dimensions of r that the blocks of k run along, flattened
  int64_t bm = 1, bn = 1, bk = 1;
  Expr mSize = 1, nSize = 1, kSize = 1;
  bool packed =
      false; // the right operand is a constant in blocks [batch, n blocks, k, BN], zeros behind the last n and k
};

/// How to run the kernel's contraction with dots, or nullopt when it is better off as a plain reduction (no n, integer
/// or f64 types, rows that are contiguous along k in a product with a vector). May swap the operands of the node.
std::optional<Contraction> planContraction(plan::Kernel &kernel, const Facts &facts, const TileTarget &target);

/// Rewrites the contraction as a sum reduction and its epilogue as a pointwise node.
void contractionToReduction(plan::Plan &plan, plan::Kernel &kernel);

/// Puts the right operand's constant into block order if it is a constant that nothing else touches; sets packed.
/// `users` are those of the plan before any kernel was built.
void packRightOperand(plan::Plan &plan, plan::Kernel &kernel, const plan::Users &users, Contraction &c);

/// Puts the right operand's constant into the order [batch, n, outer k, k], in which rows run along k, if it is a
/// constant that nothing else touches and that lies contiguous neither along k nor along n: weights of convolutions.
void orderRightOperand(plan::Plan &plan, plan::Kernel &kernel, const plan::Users &users, const Contraction &c);

void emitContraction(KernelContext &k, const Facts &facts, const Contraction &c);

} // namespace neso
