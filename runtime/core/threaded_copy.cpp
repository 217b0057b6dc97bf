#include "core/threaded_copy.h"

#include <pthread.h>

#include "core/plan.h"

namespace neso_rt {
namespace {
/// Bytes that are worth a thread (a thread takes tens of microseconds to begin), and the most threads: memory is not faster for more.
constexpr int64_t kWorthAThread = 8 << 20;
constexpr int kMost = 32;

/// A range of the dimension that the threads share.
struct part {
  char *dst;
  const char *src;
  const int64_t *dst_strides, *src_strides;
  int64_t sizes[kMaxRank];
  int rank, item;
  pthread_t thread;
};

void *copy_part(void *data) {
  const part &p = *static_cast<part *>(data);
  copy_strided(p.dst, p.dst_strides, p.src, p.src_strides, p.sizes, p.rank, p.item);
  return nullptr;
}

/// The dimension whose steps in the destination are longest, so that each thread writes memory of its own.
int shared_dim(const int64_t *dst_strides, const int64_t *sizes, int rank) {
  int best = -1;
  for (int d = 0; d < rank; ++d)
    if (sizes[d] > 1 && (best < 0 || dst_strides[d] > dst_strides[best])) best = d;
  return best;
}
} // namespace

void copy_strided_by_threads(void *dst, const int64_t *dst_strides, const void *src, const int64_t *src_strides, const int64_t *sizes, int rank, int item) {
  const int dim = shared_dim(dst_strides, sizes, rank);
  int64_t threads = element_count(sizes, rank) / (kWorthAThread / item);
  if (threads > kMost) threads = kMost;
  if (threads > usable_cores()) threads = usable_cores();
  if (dim >= 0 && threads > sizes[dim]) threads = sizes[dim];
  if (dim < 0 || threads < 2) return copy_strided(dst, dst_strides, src, src_strides, sizes, rank, item);
  part parts[kMost];
  int64_t begin = 0;
  int made = 0;
  for (int64_t i = 0; i < threads; ++i) {
    part &p = parts[i];
    const int64_t end = sizes[dim] * (i + 1) / threads;
    p = {static_cast<char *>(dst) + begin * dst_strides[dim] * item, static_cast<const char *>(src) + begin * src_strides[dim] * item, dst_strides, src_strides, {}, rank, item, {}};
    for (int d = 0; d < rank; ++d) p.sizes[d] = sizes[d];
    p.sizes[dim] = end - begin;
    begin = end;
    // The caller's own thread takes the last part, and those for which there is no thread.
    if (i + 1 < threads && made == i && pthread_create(&p.thread, nullptr, copy_part, &p) == 0)
      ++made;
    else
      copy_part(&p);
  }
  for (int i = 0; i < made; ++i) pthread_join(parts[i].thread, nullptr);
}

} // namespace neso_rt
