// Draws of random operators: random.cpp says where the numbers come from.
#pragma once
#include "lower/graph_to_loops/op_call.h"

namespace neso::lower {

/// The place of one element in a stream: which word of which call of Philox is its own.
struct Draw {
  Val seed, counter, word;
};

/// Elements that share a call: it gives four words, of which a normal number takes two.
constexpr int64_t kWords = 4, kNormals = 2;

/// Elementwise over `sizes`, in memory; `calls` elements share a call. Neighbours do, so that a thread or vector that computes several of them
/// calls once.
Tensor draw(OpCall &o, const Sizes &sizes, DType t, int64_t calls, const std::function<Val(BodyBuilder &, const Draw &, const Index &)> &fn);

/// x in training: each element becomes 0 with probability p, the others are divided by 1 - p.
Tensor withDropout(OpCall &o, const Tensor &x, double p);

} // namespace neso::lower
