// Strided copies of elements, for inputs and outputs whose layout is not the model's and for Copy steps.
#pragma once
#include "core/common.h"

namespace neso_rt {

/// dst[i * dst_strides] = src[i * src_strides] for all index tuples below sizes; items of `item` bytes, strides in
/// elements. The two must not overlap. No dimension may be negative, strides may be; a dimension of zero copies nothing.
void copy_strided(void *dst, const int64_t *dst_strides, const void *src, const int64_t *src_strides,
                  const int64_t *sizes, int rank, int item);

/// One dimension of a copy; strides in elements.
struct copy_dim {
  int64_t size, dst, src;
};
/// Drops dimensions of size 1 and joins neighbours that both sides walk as one. Returns the new rank.
int join_dims(copy_dim *dims, int rank);

/// Product of the sizes; -1 when one is negative or the result exceeds kMaxBytes.
int64_t element_count(const int64_t *sizes, int rank);
void contiguous_strides(const int64_t *sizes, int rank, int64_t *out_strides);
/// Are the two layouts the same for these sizes? Strides of dimensions of size 1, and all of an empty tensor, do not
/// matter.
bool same_layout(const int64_t *sizes, const int64_t *a, const int64_t *b, int rank);
/// Elements from the first in memory to the last, plus one; 0 for an empty tensor; -1 when a stride is negative or it
/// is too large.
int64_t element_extent(const int64_t *sizes, const int64_t *strides, int rank);

} // namespace neso_rt
