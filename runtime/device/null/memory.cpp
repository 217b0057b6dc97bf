#include "core/strided.h"
#include "device/null/device.h"

namespace neso_rt {
namespace {
null_queue *of(queue *q) { return static_cast<null_queue *>(q); }
bool inside(const char *at, int64_t bytes, const char *begin, int64_t size) {
  return at >= begin && bytes <= size && at - begin <= size - bytes;
}
} // namespace

neso_status null_queue::check(const char *at, int64_t bytes, const char *what) const {
  if (!own_memory || bytes <= 0) return NESO_OK;
  for (const null_block *b = blocks; b; b = b->next)
    if (inside(at, bytes, b->data, int64_t(b->bytes))) return NESO_OK;
  for (size_t i = 0; i < on->constants.size(); ++i)
    if (on->constants[i] && inside(at, bytes, on->constants[i], on->program->constants[i].bytes)) return NESO_OK;
  null_device *device = static_cast<null_device *>(on);
  pthread_mutex_lock(&device->lock);
  bool placed = false;
  for (const null_block *b = device->placed; b && !placed; b = b->next)
    placed = inside(at, bytes, b->data, int64_t(b->bytes));
  pthread_mutex_unlock(&device->lock);
  if (placed) return NESO_OK;
  return fail(NESO_DEVICE_FAILED, "%s: %lld bytes at %p are not memory of device null:%d", what, (long long)bytes,
              static_cast<const void *>(at), on->index);
}

neso_status null_place(device *d, const void *from, int64_t bytes, char **out) {
  null_device *self = static_cast<null_device *>(d);
  null_block *made = static_cast<null_block *>(malloc(sizeof(null_block)));
  char *memory = static_cast<char *>(malloc(size_t(bytes)));
  if (!made || !memory) {
    free(made);
    free(memory);
    return fail(NESO_OUT_OF_MEMORY, "out of memory on null:%d: %lld bytes for a weight", self->index, (long long)bytes);
  }
  memcpy(memory, from, size_t(bytes));
  pthread_mutex_lock(&self->lock);
  *made = {memory, size_t(bytes), self->placed};
  self->placed = made;
  pthread_mutex_unlock(&self->lock);
  *out = memory;
  return NESO_OK;
}

void null_displace(device *d, char *memory) {
  null_device *self = static_cast<null_device *>(d);
  pthread_mutex_lock(&self->lock);
  null_block **at = &self->placed;
  while (*at && (*at)->data != memory) at = &(*at)->next;
  null_block *found = *at;
  if (found) *at = found->next;
  pthread_mutex_unlock(&self->lock);
  free(memory);
  free(found);
}

void *null_allocate(void *self, size_t bytes) {
  null_queue *q = static_cast<null_queue *>(self);
  null_block *made = static_cast<null_block *>(malloc(sizeof(null_block)));
  const size_t rounded = (bytes + kAlign - 1) / kAlign * kAlign;
  void *memory = made ? aligned_alloc(kAlign, rounded ? rounded : kAlign) : nullptr;
  if (!memory) {
    free(made);
    return nullptr;
  }
  memset(memory, 0, rounded);
  *made = {static_cast<char *>(memory), bytes, q->blocks};
  q->blocks = made;
  ++q->counts.allocations;
  return memory;
}

void null_release(void *self, void *memory, size_t) {
  null_queue *q = static_cast<null_queue *>(self);
  for (null_block **at = &q->blocks; *at; at = &(*at)->next) {
    null_block *found = *at;
    if (found->data != memory) continue;
    *at = found->next;
    free(found->data);
    free(found);
    ++q->counts.releases;
    return;
  }
}

void *null_allocate_host(queue *, size_t bytes) { return malloc(bytes); }
void null_release_host(queue *, void *memory) { free(memory); }

neso_status null_upload(queue *q, char *to, const void *from, int64_t bytes) {
  if (of(q)->recording) return fail(NESO_DEVICE_FAILED, "a copy from the host cannot be recorded");
  NESO_TRY(of(q)->check(to, bytes, "copying to the device"));
  memcpy(to, from, size_t(bytes));
  ++of(q)->counts.uploads;
  return NESO_OK;
}

neso_status null_download(queue *q, void *to, const char *from, int64_t bytes) {
  if (of(q)->recording) return fail(NESO_DEVICE_FAILED, "a copy to the host cannot be recorded");
  NESO_TRY(of(q)->check(from, bytes, "copying from the device"));
  memcpy(to, from, size_t(bytes));
  ++of(q)->counts.downloads;
  return NESO_OK;
}

neso_status null_copy(queue *q, char *dst, const int64_t *dst_strides, const char *src, const int64_t *src_strides,
                      const int64_t *sizes, int rank, int item) {
  NESO_TRY(of(q)->check(dst, element_extent(sizes, dst_strides, rank) * item, "copying on the device, to"));
  NESO_TRY(of(q)->check(src, element_extent(sizes, src_strides, rank) * item, "copying on the device, from"));
  null_work work{};
  work.kind = null_kind::copy, work.dst = dst, work.src = src, work.rank = rank, work.item = item;
  for (int i = 0; i < rank; ++i)
    work.sizes[i] = sizes[i], work.dst_strides[i] = dst_strides[i], work.src_strides[i] = src_strides[i];
  return of(q)->give(work);
}

neso_status null_fill(queue *q, char *to, int item, uint64_t bits, int64_t count) {
  NESO_TRY(of(q)->check(to, count * item, "filling device memory"));
  null_work work{};
  work.kind = null_kind::fill, work.dst = to, work.bits = bits, work.count = count, work.item = item;
  return of(q)->give(work);
}

} // namespace neso_rt
