// Blocks of attention: a program computes some query rows of one head over all keys, block by block.
#pragma once
#include "lower/tiling/target.h"

namespace neso {

struct AttentionTiling {
  /// Rows of a block of queries, and of one of keys and values: powers of two.
  int64_t queries = 32, keys = 64;
  /// How many rows of a block of queries a program computes; all but on a CPU that knows how many there are.
  int64_t rows = 32;
  /// Elements of a row of queries and keys, and of one of values, up to a power of two.
  int64_t head = 1, value = 1;
  /// Queries and keys go into their product, and probabilities and values into theirs, as the narrow floats that they
  /// are: products of matrices take those and add in f32.
  bool narrowScores = false, narrowValues = false;
  /// Of targets of thread blocks.
  int warps = 4, stages = 3;
};

/// Of a kernel of one Attention node.
AttentionTiling chooseAttentionTiling(const Facts &facts, const plan::Kernel &kernel, const TileTarget &target);

} // namespace neso
