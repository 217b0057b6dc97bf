// What one context does on its GPU: memory, copies, launches, graphs and time, all on one stream.
//
// Every call expects the device's context to be current (cuda_scope). In steady state nothing here allocates and
// nothing waits but synchronize(). One thread at a time.
#pragma once
#include "core/streams.h"
#include "core/strided.h"
#include "device/cuda/blas.h"
#include "device/cuda/device.h"
#include "device/cuda/graphs.h"

namespace neso_rt {

/// Page-locked host memory that only grows.
struct host_block {
  char *data = nullptr;
  int64_t capacity = 0;
};

class cuda_executor {
public:
  static constexpr int32_t kMarks = 4096;
  explicit cuda_executor(const cuda_device &device, int index)
      : device_(device), driver_(device.driver), index_(index) {}
  cuda_executor(const cuda_executor &) = delete;
  cuda_executor &operator=(const cuda_executor &) = delete;
  ~cuda_executor();
  /// stream: the caller's, or nullptr. graphs: at most that many are kept. key_words: of a graph's key. args: most that
  /// a kernel has. products: of the plan; 0: none is left to a library. timed_steps: marks for mark_step. side_by_side:
  /// branches of a graph.
  neso_status start(void *stream, int graphs, size_t key_words, int32_t args, size_t products, size_t timed_steps,
                    int side_by_side);

  const cuda_device &device() const { return device_; }
  int index() const { return index_; }
  /// NESO_DEVICE_LOST when an earlier call found the device's context gone.
  neso_status alive() const;

  /// The default allocator of a context on this device; self is the executor.
  static void *allocate(void *self, size_t bytes);
  static void release(void *self, void *memory, size_t bytes);
  neso_status grow(host_block *block, int64_t bytes);
  void release(host_block *block);

  neso_status upload(char *to, const void *from, int64_t bytes);
  neso_status download(void *to, const char *from, int64_t bytes);
  /// As neso_rt::copy_strided, both sides on the device.
  neso_status copy_strided(char *dst, const int64_t *dst_strides, const char *src, const int64_t *src_strides,
                           const int64_t *sizes, int rank, int item);
  /// `count` items of 1, 2, 4 or 8 bytes, the low bytes of `bits`.
  neso_status fill(char *to, int item, uint64_t bits, int64_t count);
  /// kernel: of the plan. params[i] points at argument i.
  neso_status launch(int32_t kernel, const neso_arg *args, int32_t count, const uint32_t grid[3]);

  /// Are products left to the library?
  bool has_products() const { return products_.size() != 0; }
  /// How many of them the library computed when they last ran.
  int32_t products_taken() const;
  /// Product `which` of the plan by the library. out_done false: it takes no such product.
  neso_status multiply(int32_t which, const blas_call &call, bool *out_done);

  neso_status synchronize();
  /// Later work goes to `stream` (nullptr: the own one), after what is queued.
  neso_status set_stream(void *stream);
  neso_status mark(int32_t number);
  neso_status elapsed(int32_t begin, int32_t end, double *out_ms);
  /// The same for steps of a run: number `step` begins, the one before has ended. Makes its events when they are first
  /// needed.
  neso_status mark_step(int64_t step);
  neso_status step_elapsed(int64_t step, double *out_ms);

  cuda_graphs graphs;
  /// Between the two, work is recorded instead of queued. end_recording gives the graph, ready to launch; a failed
  /// `status` only ends.
  neso_status begin_recording();
  neso_status end_recording(neso_status status, cu_graph_exec *out);
  /// While recording: work that follows may go to `branches` streams beside each other, until join. steps: numbers for
  /// signal.
  neso_status fork(int branches, size_t steps);
  void use_branch(int branch);
  /// The branch in use has done step `number`; the branch in use goes on only after step `number`.
  neso_status signal(size_t number);
  neso_status wait_for(size_t number);
  neso_status join();
  /// How many branches there may be.
  int side_by_side() const { return side_by_side_; }
  /// How many there are in the graph that was recorded last; 0: none was.
  int graph_streams() const { return graph_streams_; }
  neso_status launch_graph(cu_graph_exec graph);
  void destroy_graph(cu_graph_exec graph);

  int64_t kernel_launches = 0, graph_launches = 0, library_calls = 0;

private:
  neso_status check(cu_result r, const char *what);
  neso_status between(cu_event first, cu_event last, double *out_ms);
  neso_status copy_dims(char *dst, const char *src, const copy_dim *dims, int rank, int item);
  neso_status launch_own(int which, void *params, uint64_t threads);

  const cuda_device &device_;
  const cuda_driver &driver_;
  int index_;
  cu_stream stream_ = nullptr;    // where work goes
  cu_stream own_ = nullptr;       // made by the executor
  cu_stream recording_ = nullptr; // only for recording: a caller's stream may not allow it
  cu_stream before_recording_ = nullptr;
  cu_event order_ = nullptr;                           // from one stream to the next
  cu_stream branches_[stream_order::kMaxStreams] = {}; // beside the recording one, which is branch 0
  int side_by_side_ = 1, forked_ = 1, branch_ = 0, graph_streams_ = 0;
  array<cu_event> signals_, step_marks_;
  array<cu_event> marks_;
  array<void *> params_;
  array<blas_product> products_; // one a product of the plan; empty without a library
  cu_function own_kernels_[8] = {};
};

} // namespace neso_rt
