// What one context does on its GPU: memory, copies, launches, graphs and time, all on one stream.
//
// In steady state nothing here allocates and nothing waits but synchronize().
#pragma once
#include "core/streams.h"
#include "core/strided.h"
#include "device/cuda/device.h"
#include "device/cuda/tensor_map.h"

namespace neso_rt {

class cuda_queue : public queue {
public:
  explicit cuda_queue(cuda_device *on);
  cuda_queue(const cuda_queue &) = delete;
  cuda_queue &operator=(const cuda_queue &) = delete;
  ~cuda_queue();
  /// Of the options: stream, cuda_graphs, cuda_streams, cublas.
  neso_status start(const neso_context_options &options);

  const cuda_device &gpu() const { return gpu_; }
  neso_status alive() const;
  /// NESO_OK, or the driver's error as a status whose text begins with `what`; remembers a device that was lost.
  neso_status check(cu_result r, const char *what);
  void get_stats(neso_device_stats *out) const;

  // memory.cpp; all as neso_device_vtable says.
  void *allocate(size_t bytes);
  void release(void *memory);
  void *allocate_host(size_t bytes);
  void release_host(void *memory);
  neso_status upload(char *to, const void *from, int64_t bytes);
  neso_status download(void *to, const char *from, int64_t bytes);
  neso_status copy(char *dst, const int64_t *dst_strides, const char *src, const int64_t *src_strides,
                   const int64_t *sizes, int rank, int item);
  neso_status fill(char *to, int item, uint64_t bits, int64_t count);
  // launch.cpp
  neso_status launch(int32_t kernel, const void *args, const uint32_t grid[3]);
  neso_status multiply(int32_t which, const product_call &call, bool *out_done);
  // stream.cpp
  neso_status synchronize();
  neso_status set_stream(void *stream);
  bool recorded() const { return is_capturing(stream_); }
  void *stream() const { return stream_; }
  neso_status mark(event **at, bool timed);
  neso_status elapsed(event *begin, event *end, double *out_ms);
  void free_event(event *e);
  neso_status begin_recording();
  neso_status end_recording(neso_status status, graph **out);
  neso_status use_branch(int32_t branch);
  neso_status wait(event *at);
  // choice.cpp
  neso_status begin_choice(bool loop, int bodies, const device_test &test);
  neso_status begin_body(int body);
  neso_status end_body(const device_test *again);
  neso_status end_choice();
  neso_status launch_graph(graph *g);
  void free_graph(graph *g);

private:
  static constexpr int kAxes = 3; // of a launch
  /// Bodies of choices that may lie in each other: how deep the driver nests them is not said anywhere.
  static constexpr int32_t kDepth = 8;
  /// A choice that is being recorded.
  struct open_choice {
    uint64_t handle;
    cu_graph bodies[2];
    int32_t outer_branch;
    bool loop, in_body;
  };
  neso_status start_choices();
  neso_status decide(const open_choice &choice, const device_test &test);
  neso_status use_stream(int32_t depth, int32_t branch);
  void join_branches(int32_t depth);
  neso_status copy_dims(char *dst, const char *src, const copy_dim *dims, int rank, int item);
  neso_status launch_own(int which, void *params, uint64_t threads);
  int64_t products_taken() const;
  /// stream_, for work that is no launch of the plan's kernels: the launch after it waits for it.
  bool is_capturing(cu_stream s) const;
  cu_stream stream_for_other() { return behind_launch_ = false, stream_; }

  cuda_device &gpu_;
  const cuda_driver &driver_;
  cu_stream stream_ = nullptr;     // where work goes
  bool behind_launch_ = false;     // the last work there was a launch of the plan's kernels
  cu_stream own_ = nullptr;        // made by the queue
  cu_stream before_recording_ = nullptr;
  event *order_ = nullptr;                             // from one stream to the next
  // Only for recording: a caller's stream may not allow it. By depth of the body that is recorded (0: none) and branch.
  cu_stream lanes_[kDepth + 1][stream_order::kMaxStreams] = {};
  int32_t depth_ = 0, branch_ = 0;
  open_choice choices_[kDepth];
  cu_function decide_ = nullptr;
  cu_pointer asked_ = 0; // cuda_decide_params
  array<void *> params_;
  tensor_maps maps_;
  array<blas_product> products_; // one a product of the plan; empty without a library
  cu_function own_kernels_[8] = {};
  int64_t kernel_launches_ = 0, box_launches_ = 0, graph_launches_ = 0, library_calls_ = 0;
};

} // namespace neso_rt
