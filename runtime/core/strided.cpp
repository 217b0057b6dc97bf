#include "core/strided.h"

#include "core/plan.h"

namespace neso_rt {
namespace {
template <int Item> void copy_row(char *dst, int64_t dst_stride, const char *src, int64_t src_stride, int64_t n) {
  if (dst_stride == 1 && src_stride == 1) {
    memcpy(dst, src, size_t(n) * Item);
    return;
  }
  for (int64_t i = 0; i < n; ++i) memcpy(dst + i * dst_stride * Item, src + i * src_stride * Item, Item);
}
using row_function = void (*)(char *, int64_t, const char *, int64_t, int64_t);
row_function row_for(int item) {
  switch (item) {
  case 1: return copy_row<1>;
  case 2: return copy_row<2>;
  case 4: return copy_row<4>;
  case 8: return copy_row<8>;
  default: return copy_row<16>;
  }
}
} // namespace

int join_dims(copy_dim *dims, int rank) {
  int n = 0;
  for (int i = 0; i < rank; ++i) {
    if (dims[i].size == 1) continue;
    if (n && dims[n - 1].dst == dims[i].dst * dims[i].size && dims[n - 1].src == dims[i].src * dims[i].size) {
      dims[n - 1] = {dims[n - 1].size * dims[i].size, dims[i].dst, dims[i].src};
    } else {
      dims[n++] = dims[i];
    }
  }
  return n;
}

void copy_strided(void *dst, const int64_t *dst_strides, const void *src, const int64_t *src_strides,
                  const int64_t *sizes, int rank, int item) {
  copy_dim dims[kMaxRank + 1];
  // Items of another size than a row moves at once are one more dimension of bytes.
  const bool whole = (item & (item - 1)) == 0;
  const int64_t unit = whole ? 1 : item;
  for (int i = 0; i < rank; ++i) {
    if (sizes[i] <= 0) return;
    dims[i] = {sizes[i], dst_strides[i] * unit, src_strides[i] * unit};
  }
  if (!whole) {
    dims[rank++] = {item, 1, 1};
    item = 1;
  }
  rank = join_dims(dims, rank);
  char *d = static_cast<char *>(dst);
  const char *s = static_cast<const char *>(src);
  row_function row = row_for(item);
  if (rank == 0) return row(d, 1, s, 1, 1);
  const copy_dim inner = dims[rank - 1];
  int64_t index[kMaxRank + 1] = {};
  for (;;) {
    row(d, inner.dst, s, inner.src, inner.size);
    int at = rank - 2;
    for (; at >= 0; --at) {
      d += dims[at].dst * item;
      s += dims[at].src * item;
      if (++index[at] < dims[at].size) break;
      d -= dims[at].dst * dims[at].size * item;
      s -= dims[at].src * dims[at].size * item;
      index[at] = 0;
    }
    if (at < 0) return;
  }
}

int64_t element_count(const int64_t *sizes, int rank) {
  int64_t n = 1;
  bool empty = false;
  for (int i = 0; i < rank; ++i) {
    if (sizes[i] < 0) return -1;
    if (sizes[i] == 0)
      empty = true;
    else if (__builtin_mul_overflow(n, sizes[i], &n) || n > kMaxBytes)
      return -1;
  }
  return empty ? 0 : n;
}

void contiguous_strides(const int64_t *sizes, int rank, int64_t *out_strides) {
  int64_t stride = 1;
  for (int i = rank - 1; i >= 0; --i) {
    out_strides[i] = stride;
    if (sizes[i] > 1) stride *= sizes[i];
  }
}

bool same_layout(const int64_t *sizes, const int64_t *a, const int64_t *b, int rank) {
  for (int i = 0; i < rank; ++i)
    if (sizes[i] == 0) return true;
  for (int i = 0; i < rank; ++i)
    if (sizes[i] != 1 && a[i] != b[i]) return false;
  return true;
}

int64_t element_extent(const int64_t *sizes, const int64_t *strides, int rank) {
  int64_t last = 0;
  for (int i = 0; i < rank; ++i) {
    if (sizes[i] == 0) return 0;
    int64_t reach;
    if (sizes[i] == 1) continue;
    if (strides[i] < 0 || __builtin_mul_overflow(sizes[i] - 1, strides[i], &reach) ||
        __builtin_add_overflow(last, reach, &last) || last > kMaxBytes)
      return -1;
  }
  return last + 1;
}

} // namespace neso_rt
