// Memory of one context: blocks on its device, from the context's allocator, and blocks of the host for results.
#pragma once
#include "device/device.h"

namespace neso_rt {

/// Memory of the device that only grows, 64-byte aligned.
struct block {
  char *data = nullptr;
  int64_t capacity = 0;
};

/// Memory of the host for results, likewise.
struct host_block {
  char *data = nullptr;
  int64_t capacity = 0;
};

class memory {
public:
  /// Of the options: the caller's allocator, if there is one.
  void start(queue *q, const neso_context_options &options);
  /// Grows `b` to `bytes`; keeps nothing of what was in it. what: of which memory, for the message.
  neso_status grow(block *b, int64_t bytes, const char *what);
  neso_status grow(host_block *b, int64_t bytes);
  /// Waits for what is queued, which may still use it.
  void release(block *b);
  void release(host_block *b);

private:
  queue *queue_ = nullptr;
  void *(*allocate_)(void *user, size_t bytes) = nullptr;
  void (*release_)(void *user, void *memory, size_t bytes) = nullptr;
  void *user_ = nullptr;
};

} // namespace neso_rt
