// Large strided copies by several threads, for what is copied rarely and much at once, as weights are.
#pragma once
#include "core/strided.h"

namespace neso_rt {

/// As copy_strided; copies of many bytes are shared by threads that live as long as the call: one a processor that the process may use, at most, and one alone
/// where no thread can be made. What the pages of fresh memory cost is shared by them, too.
void copy_strided_by_threads(void *dst, const int64_t *dst_strides, const void *src, const int64_t *src_strides, const int64_t *sizes, int rank, int item);

} // namespace neso_rt
