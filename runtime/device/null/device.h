// A device that runs no kernels: for walking plans without hardware. Everything else is done as on a GPU: its memory is
// not the host's, runs are recorded as graphs with branches, products are taken. What it is asked for is counted, and
// what no device could do is refused with NESO_DEVICE_FAILED: memory that it did not give, marks that were never set.
//
// Memory is zero when it is given, so that results are the same each time.
#pragma once
#include <pthread.h>

#include "core/plan.h"
#include "device/device.h"

namespace neso_rt {

/// Calls of a queue. Work that a graph repeats counts each time.
struct null_counts {
  int64_t allocations, releases, uploads, downloads, copies, fills, launches, products, waits, marks, graph_launches;
};

/// Memory that a queue has given and not yet taken back.
struct null_block {
  char *data;
  size_t bytes;
  null_block *next;
};

/// One piece of work: done at once, or kept by a graph.
struct null_work;
struct graph {
  null_work *first;
};
/// Bodies of choices that may lie in each other.
inline constexpr int kNullDepth = 16;
struct event {
  double ms;
};

struct null_device : device {
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  null_block *placed = nullptr; // copies of constants; under the lock
};

struct null_queue : queue {
  null_counts counts{};
  bool own_memory = true; // no allocator of the caller's: every address is known
  null_block *blocks = nullptr;
  graph *recording = nullptr;
  null_work **last = nullptr; // of the recording
  // Of the choices that are being recorded: where work goes behind each, and the choice.
  null_work **outer[kNullDepth];
  null_work *choices[kNullDepth];
  int depth = 0;
  loop_stop stop_words{};

  /// Are the bytes the device's? NESO_DEVICE_FAILED.
  neso_status check(const char *at, int64_t bytes, const char *what) const;
  /// Does it, or keeps it while a run is recorded.
  neso_status give(const null_work &work);
};

enum class null_kind { copy, fill, launch, product, choice };
struct null_work {
  null_kind kind;
  char *dst;
  const char *src;
  uint64_t bits;
  int64_t count;
  int item, rank;
  int64_t sizes[kMaxRank], dst_strides[kMaxRank], src_strides[kMaxRank];
  device_test test, again; // of a choice
  bool loop;
  null_work *bodies[2];
  null_work *next;
};

/// What was asked of a context's queue, which must be on this device.
inline const null_counts &null_counts_of(const queue *q) { return static_cast<const null_queue *>(q)->counts; }

// code.cpp
neso_status null_open(const code_source &source, const neso_context_options &options, device **out);
void null_close(device *);
// memory.cpp
neso_status null_place(device *, const void *from, int64_t bytes, char **out);
void null_displace(device *, char *memory);
void *null_allocate(void *self, size_t bytes);
void null_release(void *self, void *memory, size_t bytes);
void *null_allocate_host(queue *, size_t bytes);
void null_release_host(queue *, void *memory);
neso_status null_upload(queue *, char *to, const void *from, int64_t bytes);
neso_status null_download(queue *, void *to, const char *from, int64_t bytes);
neso_status null_copy(queue *, char *dst, const int64_t *dst_strides, const char *src, const int64_t *src_strides,
                      const int64_t *sizes, int rank, int item);
neso_status null_fill(queue *, char *to, int item, uint64_t bits, int64_t count);
// launch.cpp
neso_status null_launch(queue *, int32_t kernel, int32_t step, const void *args, const uint32_t grid[3]);
void null_sizes_changed(queue *);
neso_status null_multiply(queue *, int32_t which, const product_call &call, bool *out_done);
// stream.cpp
neso_status null_synchronize(queue *);
neso_status null_set_stream(queue *, void *stream);
neso_status null_mark(queue *, event **at, bool timed);
neso_status null_elapsed(queue *, event *begin, event *end, double *out_ms);
void null_free_event(queue *, event *);
neso_status null_begin_recording(queue *);
neso_status null_end_recording(queue *, neso_status status, graph **out);
neso_status null_use_branch(queue *, int32_t branch);
neso_status null_wait(queue *, event *at);
neso_status null_begin_choice(queue *, bool loop, int bodies, const device_test &test);
neso_status null_begin_body(queue *, int body);
neso_status null_end_body(queue *, const device_test *again);
neso_status null_end_choice(queue *);
neso_status null_launch_graph(queue *, graph *);
void null_free_graph(queue *, graph *);

} // namespace neso_rt
