// Memory of the CPU: the host's, so that copies are done when they return.
#include <sys/mman.h>

#include "core/strided.h"
#include "device/cpu/device.h"

namespace neso_rt {
namespace {
constexpr int64_t kHugePage = 2 << 20;
}

void *cpu_allocate(void *, size_t bytes) {
  if (bytes < size_t(2 * kHugePage)) return aligned_alloc(kAlign, bytes);
  // Large blocks are read and written as a whole by every run: huge pages save most of the translation misses.
  size_t rounded = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  void *p = aligned_alloc(kHugePage, rounded);
  if (p) madvise(p, rounded, MADV_HUGEPAGE);
  return p;
}
void cpu_release(void *, void *memory, size_t) { free(memory); }

void *cpu_allocate_host(queue *, size_t bytes) { return malloc(bytes); }
void cpu_release_host(queue *, void *memory) { free(memory); }

neso_status cpu_upload(queue *, char *to, const void *from, int64_t bytes) {
  memcpy(to, from, size_t(bytes));
  return NESO_OK;
}
neso_status cpu_download(queue *, void *to, const char *from, int64_t bytes) {
  memcpy(to, from, size_t(bytes));
  return NESO_OK;
}

neso_status cpu_copy(queue *, char *dst, const int64_t *dst_strides, const char *src, const int64_t *src_strides,
                     const int64_t *sizes, int rank, int item) {
  copy_strided(dst, dst_strides, src, src_strides, sizes, rank, item);
  return NESO_OK;
}

neso_status cpu_fill(queue *, char *to, int item, uint64_t bits, int64_t count) {
  if (bits == 0 || item == 1) {
    memset(to, int(bits & 255), size_t(count) * size_t(item));
    return NESO_OK;
  }
  for (int64_t i = 0; i < count; ++i) memcpy(to + i * item, &bits, size_t(item));
  return NESO_OK;
}

} // namespace neso_rt
