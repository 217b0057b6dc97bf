// Memory of the CPU: the host's, so that copies are done when they return.
#include <sys/mman.h>

#include "core/strided.h"
#include "device/cpu/device.h"

namespace neso_rt {
namespace {
constexpr size_t kHugePage = 2 << 20;

size_t rounded_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }
} // namespace

void *cpu_allocate(void *, size_t bytes) {
  // The C library may refuse sizes that are no multiple of the alignment.
  if (bytes < 2 * kHugePage) return aligned_alloc(kAlign, rounded_up(bytes, kAlign));
  // Large blocks are read and written as a whole by every run: huge pages save most of the translation misses.
  bytes = rounded_up(bytes, kHugePage);
  void *p = aligned_alloc(kHugePage, bytes);
  if (p) madvise(p, bytes, MADV_HUGEPAGE);
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
