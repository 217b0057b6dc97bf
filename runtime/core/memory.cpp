#include "core/memory.h"

namespace neso_rt {

void memory::start(queue *q, const neso_context_options &o) {
  queue_ = q;
  allocate_ = o.allocate ? o.allocate : q->table->allocate;
  release_ = o.allocate ? o.release : q->table->release;
  user_ = o.allocate ? o.allocator_user : q;
}

neso_status memory::grow(block *b, int64_t bytes, const char *what) {
  if (bytes <= b->capacity) return NESO_OK;
  if (bytes > kMaxBytes) return fail(NESO_SIZE_INVALID, "%s would need %lld bytes", what, (long long)bytes);
  release(b);
  int64_t rounded = (bytes + int64_t(kAlign) - 1) / int64_t(kAlign) * int64_t(kAlign);
  void *data = allocate_(user_, size_t(rounded));
  if (!data)
    return fail(NESO_OUT_OF_MEMORY, "out of memory on %s: %lld bytes for %s",
                device_label(queue_->table->kind, queue_->on->index).text, (long long)rounded, what);
  *b = {static_cast<char *>(data), rounded};
  return NESO_OK;
}

neso_status memory::grow(host_block *b, int64_t bytes) {
  if (bytes <= b->capacity) return NESO_OK;
  NESO_TRY(queue_->table->synchronize(queue_));
  release(b);
  void *data = queue_->table->allocate_host(queue_, size_t(bytes));
  if (!data)
    return fail(NESO_OUT_OF_MEMORY, "out of memory: %lld bytes of the host's memory for results", (long long)bytes);
  *b = {static_cast<char *>(data), bytes};
  return NESO_OK;
}

void memory::release(block *b) {
  if (b->data) {
    (void)queue_->table->synchronize(queue_);
    release_(user_, b->data, size_t(b->capacity));
  }
  *b = {};
}

void memory::release(host_block *b) {
  if (b->data) queue_->table->release_host(queue_, b->data);
  *b = {};
}

} // namespace neso_rt
