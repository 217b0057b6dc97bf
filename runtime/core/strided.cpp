#include "core/strided.h"

#include "core/plan.h"

namespace neso_rt {
namespace {
/// Bytes of a cache line: a transposed plane goes in squares whose sides are as long, of which each line is fetched once.
constexpr int64_t kLine = 64;

template <int Item> void copy_row(char *dst, int64_t dst_stride, const char *src, int64_t src_stride, int64_t n) {
  if (dst_stride == 1 && src_stride == 1) {
    memcpy(dst, src, size_t(n) * Item);
    return;
  }
  for (int64_t i = 0; i < n; ++i) memcpy(dst + i * dst_stride * Item, src + i * src_stride * Item, Item);
}

template <int Item> void copy_block(char *dst, const char *src, copy_dim rows, copy_dim columns) {
  for (int64_t i = 0; i < rows.size; ++i)
    copy_row<Item>(dst + i * rows.dst * Item, columns.dst, src + i * rows.src * Item, columns.src, columns.size);
}

/// Whether the source's neighbours lie along `a` rather than along `b`.
bool runs_along(const copy_dim &a, const copy_dim &b) { return a.src > 0 && a.src < b.src; }

/// The last two dimensions. Where the source runs along the rows' dimension, in squares.
template <int Item>
void copy_plane(char *dst, const char *src, copy_dim rows, copy_dim columns) {
  if (!runs_along(rows, columns)) return copy_block<Item>(dst, src, rows, columns);
  constexpr int64_t side = kLine / Item;
  // Few rows leave room for more columns.
  const int64_t wide = rows.size < side ? side * side / rows.size : side;
  for (int64_t i = 0; i < rows.size; i += side)
    for (int64_t k = 0; k < columns.size; k += wide) {
      const copy_dim r = {rows.size - i < side ? rows.size - i : side, rows.dst, rows.src};
      const copy_dim c = {columns.size - k < wide ? columns.size - k : wide, columns.dst, columns.src};
      copy_block<Item>(dst + (i * r.dst + k * c.dst) * Item, src + (i * r.src + k * c.src) * Item, r, c);
    }
}
using plane_function = void (*)(char *, const char *, copy_dim, copy_dim);
plane_function plane_for(int item) {
  switch (item) {
  case 1: return copy_plane<1>;
  case 2: return copy_plane<2>;
  case 4: return copy_plane<4>;
  case 8: return copy_plane<8>;
  default: return copy_plane<16>;
  }
}

/// Moves dims[from] to `to`, those between make room.
void move_dim(copy_dim *dims, int from, int to) {
  const copy_dim moved = dims[from];
  for (; from < to; ++from) dims[from] = dims[from + 1];
  for (; from > to; --from) dims[from] = dims[from - 1];
  dims[to] = moved;
}

/// The destination is written in the order of its memory, whatever the order of the dimensions; equal ones keep theirs.
void order_dims(copy_dim *dims, int rank) {
  for (int i = 1; i < rank; ++i) {
    int to = i;
    while (to > 0 && dims[to - 1].dst < dims[i].dst) --to;
    move_dim(dims, i, to);
  }
}

/// Beside the last dimension goes the one along which the source runs.
void pair_dims(copy_dim *dims, int rank) {
  if (rank < 3) return;
  int nearest = rank - 1;
  for (int i = rank - 2; i >= 0; --i)
    if (runs_along(dims[i], dims[nearest])) nearest = i;
  if (nearest < rank - 1) move_dim(dims, nearest, rank - 2);
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
  order_dims(dims, rank);
  rank = join_dims(dims, rank);
  pair_dims(dims, rank);
  char *d = static_cast<char *>(dst);
  const char *s = static_cast<const char *>(src);
  const copy_dim one = {1, 0, 0}, element = {1, 1, 1};
  const copy_dim &rows = rank > 1 ? dims[rank - 2] : one, &columns = rank > 0 ? dims[rank - 1] : element;
  const plane_function plane = plane_for(item);
  int64_t index[kMaxRank + 1] = {};
  for (;;) {
    plane(d, s, rows, columns);
    int at = rank - 3;
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
