// The CPU as a device: a model's shared object, loaded from memory, and one context's threads.
#pragma once
#include "core/plan.h"
#include "device/cpu/code.h"
#include "device/cpu/launch.h"
#include "device/device.h"

namespace neso_rt {

struct cpu_device : device {
  cpu_code code;
  array<neso_cpu_kernel_fn> functions; // one a kernel of the plan

  /// Loads the code of `source`, or finds its kernels among the static ones.
  neso_status load(const code_source &source);

private:
  neso_status resolve(const code_source &source);
  neso_status name_for_perf(const code_source &source) const;
};

struct cpu_queue : queue {
  cpu_executor executor;
  array<launch_cost> costs; // one a step of the plan

  const cpu_device &device() const { return *static_cast<const cpu_device *>(on); }
};

// memory.cpp
void *cpu_allocate(void *self, size_t bytes);
void cpu_release(void *self, void *memory, size_t bytes);
void *cpu_allocate_host(queue *, size_t bytes);
void cpu_release_host(queue *, void *memory);
neso_status cpu_upload(queue *, char *to, const void *from, int64_t bytes);
neso_status cpu_download(queue *, void *to, const char *from, int64_t bytes);
neso_status cpu_copy(queue *, char *dst, const int64_t *dst_strides, const char *src, const int64_t *src_strides,
                     const int64_t *sizes, int rank, int item);
neso_status cpu_fill(queue *, char *to, int item, uint64_t bits, int64_t count);
// launch.cpp
neso_status cpu_launch(queue *, int32_t kernel, int32_t step, const void *args, const uint32_t grid[3]);
void cpu_sizes_changed(queue *);
// stream.cpp
neso_status cpu_synchronize(queue *);
neso_status cpu_set_stream(queue *, void *stream);
neso_status cpu_mark(queue *, event **at, bool timed);
neso_status cpu_elapsed(queue *, event *begin, event *end, double *out_ms);
void cpu_free_event(queue *, event *);

} // namespace neso_rt
