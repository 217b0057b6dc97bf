#include "device/cuda/executor.h"

#include <stdio.h>

#include "device/cuda/copy_kernel.h"

namespace neso_rt {
namespace {
// Items that one launch of a copy kernel handles at most: its indices have 32 bits.
constexpr int64_t kCopyLimit = int64_t(1) << 30;
constexpr uint64_t kGridX = 0x7fffffff, kGridYZ = 65535;

cu_pointer address(const void *p) { return reinterpret_cast<cu_pointer>(p); }
} // namespace

neso_status cuda_executor::check(cu_result r, const char *what) {
  if (__builtin_expect(r == 0, 1)) return NESO_OK;
  neso_status status = driver_.check(r, what);
  if (status == NESO_DEVICE_LOST) device_.lost.store(true);
  return status;
}

neso_status cuda_executor::alive() const {
  if (__builtin_expect(!device_.lost.load(std::memory_order_relaxed), 1)) return NESO_OK;
  return fail(NESO_DEVICE_LOST, "device cuda:%d was lost by an earlier failure: this process cannot use it again",
              index_);
}

neso_status cuda_executor::start(void *stream, int graphs_kept, size_t key_words, int32_t args, size_t products,
                                 size_t timed_steps, int side_by_side) {
  side_by_side_ = side_by_side;
  if (!stream) {
    NESO_TRY(check(driver_.cuStreamCreate(&own_, kCuStreamNonBlocking), "making a stream"));
    stream = own_;
  }
  stream_ = static_cast<cu_stream>(stream);
  NESO_TRY(params_.resize(size_t(args)));
  NESO_TRY(step_marks_.resize(timed_steps));
  if (device_.blas.handle) NESO_TRY(products_.resize(products));
  if (graphs_kept == 0) return NESO_OK;
  NESO_TRY(check(driver_.cuStreamCreate(&recording_, kCuStreamNonBlocking), "making a stream"));
  return graphs.start(graphs_kept, key_words);
}

cuda_executor::~cuda_executor() {
  if (stream_) driver_.cuStreamSynchronize(stream_);
  for (cuda_graphs::entry &e : graphs.entries()) destroy_graph(e.exec);
  for (blas_product &p : products_) p.release();
  for (cu_event e : marks_)
    if (e) driver_.cuEventDestroy(e);
  for (array<cu_event> *events : {&step_marks_, &signals_})
    for (cu_event e : *events)
      if (e) driver_.cuEventDestroy(e);
  for (cu_stream s : branches_)
    if (s) driver_.cuStreamDestroy(s);
  if (order_) driver_.cuEventDestroy(order_);
  if (recording_) driver_.cuStreamDestroy(recording_);
  if (own_) driver_.cuStreamDestroy(own_);
}

void *cuda_executor::allocate(void *self, size_t bytes) {
  cuda_executor *e = static_cast<cuda_executor *>(self);
  cu_pointer memory = 0;
  return e->driver_.cuMemAlloc(&memory, bytes) == 0 ? reinterpret_cast<void *>(memory) : nullptr;
}
void cuda_executor::release(void *self, void *memory, size_t) {
  static_cast<cuda_executor *>(self)->driver_.cuMemFree(address(memory));
}

neso_status cuda_executor::grow(host_block *block, int64_t bytes) {
  if (bytes <= block->capacity) return NESO_OK;
  NESO_TRY(synchronize());
  release(block);
  void *memory = nullptr;
  if (driver_.cuMemHostAlloc(&memory, size_t(bytes), 0) != 0)
    return fail(NESO_OUT_OF_MEMORY, "out of memory: %lld bytes of page-locked memory for results", (long long)bytes);
  *block = {static_cast<char *>(memory), bytes};
  return NESO_OK;
}
void cuda_executor::release(host_block *block) {
  if (block->data) driver_.cuMemFreeHost(block->data);
  *block = {};
}

neso_status cuda_executor::upload(char *to, const void *from, int64_t bytes) {
  return check(driver_.cuMemcpyHtoDAsync(address(to), from, size_t(bytes), stream_), "copying to the device");
}
neso_status cuda_executor::download(void *to, const char *from, int64_t bytes) {
  return check(driver_.cuMemcpyDtoHAsync(to, address(from), size_t(bytes), stream_), "copying from the device");
}

neso_status cuda_executor::launch_own(int which, void *params, uint64_t threads) {
  if (!own_kernels_[which]) NESO_TRY(device_.own_kernel(which, &own_kernels_[which]));
  uint64_t blocks = (threads + kOwnKernelThreads - 1) / kOwnKernelThreads;
  void *list[] = {params};
  return check(driver_.cuLaunchKernel(own_kernels_[which], unsigned(blocks), 1, 1, kOwnKernelThreads, 1, 1, 0, stream_,
                                      list, nullptr),
               cuda_own_kernel_names[which]);
}

// `dims` are joined, strides in items.
neso_status cuda_executor::copy_dims(char *dst, const char *src, const copy_dim *dims, int rank, int item) {
  int64_t count = 1;
  for (int i = 0; i < rank; ++i) count *= dims[i].size;
  if (rank > kCopyMaxRank || count > kCopyLimit) {
    if (rank == 1) {
      copy_dim half[2] = {dims[0], dims[0]};
      half[0].size = dims[0].size / 2;
      half[1].size = dims[0].size - half[0].size;
      NESO_TRY(copy_dims(dst, src, &half[0], 1, item));
      return copy_dims(dst + half[0].size * dims[0].dst * item, src + half[0].size * dims[0].src * item, &half[1], 1,
                       item);
    }
    for (int64_t i = 0; i < dims[0].size; ++i)
      NESO_TRY(copy_dims(dst + i * dims[0].dst * item, src + i * dims[0].src * item, dims + 1, rank - 1, item));
    return NESO_OK;
  }
  cuda_copy_params p{dst, src, uint32_t(count), uint32_t(rank), {}, {}, {}};
  for (int i = 0; i < rank; ++i) {
    p.sizes[i] = uint32_t(dims[i].size);
    p.dst_strides[i] = dims[i].dst * item;
    p.src_strides[i] = dims[i].src * item;
  }
  return launch_own(kCopy1 + __builtin_ctz(unsigned(item)), &p, uint64_t(count));
}

neso_status cuda_executor::copy_strided(char *dst, const int64_t *dst_strides, const char *src,
                                        const int64_t *src_strides, const int64_t *sizes, int rank, int item) {
  copy_dim dims[kMaxRank + 1];
  bool whole = (item & (item - 1)) == 0;
  for (int i = 0; i < rank; ++i) {
    if (sizes[i] <= 0) return NESO_OK;
    int64_t unit = whole ? 1 : item;
    dims[i] = {sizes[i], dst_strides[i] * unit, src_strides[i] * unit};
  }
  if (!whole) {
    // Items of an odd size are one more dimension of bytes.
    dims[rank++] = {item, 1, 1};
    item = 1;
  }
  rank = join_dims(dims, rank);
  if (rank == 0)
    return check(driver_.cuMemcpyDtoDAsync(address(dst), address(src), size_t(item), stream_), "copying on the device");
  copy_dim &inner = dims[rank - 1];
  bool rows = inner.dst == 1 && inner.src == 1;
  if (rows && rank == 1)
    return check(driver_.cuMemcpyDtoDAsync(address(dst), address(src), size_t(inner.size * item), stream_),
                 "copying on the device");
  // Contiguous rows are moved in the widest items that all strides and addresses allow.
  while (rows && item < 16) {
    bool fits = inner.size % 2 == 0 && (address(dst) | address(src)) % uint64_t(2 * item) == 0;
    for (int i = 0; i < rank - 1; ++i) fits &= dims[i].dst % 2 == 0 && dims[i].src % 2 == 0;
    if (!fits) break;
    for (int i = 0; i < rank - 1; ++i) dims[i] = {dims[i].size, dims[i].dst / 2, dims[i].src / 2};
    inner.size /= 2;
    item *= 2;
  }
  return copy_dims(dst, src, dims, rank, item);
}

neso_status cuda_executor::fill(char *to, int item, uint64_t bits, int64_t count) {
  const char *what = "filling device memory";
  if (item == 1 || bits == 0)
    return check(
        driver_.cuMemsetD8Async(address(to), static_cast<unsigned char>(bits), size_t(count) * size_t(item), stream_),
        what);
  if (item == 2)
    return check(driver_.cuMemsetD16Async(address(to), static_cast<unsigned short>(bits), size_t(count), stream_),
                 what);
  bool twice = item == 8 && uint32_t(bits) == uint32_t(bits >> 32);
  if (item == 4 || twice)
    return check(driver_.cuMemsetD32Async(address(to), uint32_t(bits), size_t(count) * (twice ? 2 : 1), stream_), what);
  cuda_fill_params p{to, bits, uint64_t(count)};
  return launch_own(kFill8, &p, uint64_t(count));
}

neso_status cuda_executor::launch(int32_t kernel, const neso_arg *args, int32_t count, const uint32_t grid[3]) {
  if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0) return NESO_OK;
  const cuda_kernel &k = device_.kernels[size_t(kernel)];
  if (grid[0] > kGridX || grid[1] > kGridYZ || grid[2] > kGridYZ)
    return fail(
        NESO_SIZE_INVALID,
        "kernel '%s' would be launched over a grid of %u x %u x %u programs; a GPU takes 2147483647 x 65535 x 65535",
        k.name, grid[0], grid[1], grid[2]);
  if (k.serial && uint64_t(grid[0]) * grid[1] * grid[2] != 1)
    return fail(NESO_SIZE_INVALID, "kernel '%s' needs its %llu programs in order, which a GPU does not keep", k.name,
                (unsigned long long)grid[0] * grid[1] * grid[2]);
  for (int32_t i = 0; i < count; ++i) params_[size_t(i)] = const_cast<neso_arg *>(args + i);
  ++kernel_launches;
  cu_result r;
  if (k.cluster > 1) {
    cu_launch_attribute cluster{};
    cluster.id = kCuLaunchCluster;
    cluster.value.cluster = {unsigned(k.cluster), 1, 1};
    cu_launch_config config{grid[0], grid[1],  grid[2], unsigned(k.threads), 1, 1, unsigned(k.shared_bytes),
                            stream_, &cluster, 1};
    r = driver_.cuLaunchKernelEx(&config, k.function, params_.data(), nullptr);
  } else {
    r = driver_.cuLaunchKernel(k.function, grid[0], grid[1], grid[2], unsigned(k.threads), 1, 1,
                               unsigned(k.shared_bytes), stream_, params_.data(), nullptr);
  }
  if (__builtin_expect(r == 0, 1)) return NESO_OK;
  char what[256];
  snprintf(what, sizeof what,
           "launching kernel '%.120s' over %u x %u x %u blocks of %d threads with %d bytes of shared memory", k.name,
           grid[0], grid[1], grid[2], k.threads, k.shared_bytes);
  return check(r, what);
}

neso_status cuda_executor::multiply(int32_t which, const blas_call &call, bool *out_done) {
  // Products beside each other have parts of the workspace of their own; they are as large when there is but one, so
  // that it computes the same.
  blas_call mine = call;
  mine.workspace_bytes = call.workspace_bytes / side_by_side_ / 256 * 256;
  mine.workspace += mine.workspace_bytes * branch_;
  NESO_TRY(products_[size_t(which)].run(device_.blas, mine, stream_, out_done));
  library_calls += *out_done;
  return NESO_OK;
}

int32_t cuda_executor::products_taken() const {
  int32_t count = 0;
  for (const blas_product &p : products_) count += p.taken();
  return count;
}

neso_status cuda_executor::synchronize() { return check(driver_.cuStreamSynchronize(stream_), "running on the GPU"); }

neso_status cuda_executor::set_stream(void *stream) {
  if (!stream && !own_) NESO_TRY(check(driver_.cuStreamCreate(&own_, kCuStreamNonBlocking), "making a stream"));
  cu_stream to = stream ? static_cast<cu_stream>(stream) : own_;
  if (to == stream_) return NESO_OK;
  if (!order_) NESO_TRY(check(driver_.cuEventCreate(&order_, kCuEventNoTiming), "making an event"));
  NESO_TRY(check(driver_.cuEventRecord(order_, stream_), "ordering two streams"));
  NESO_TRY(check(driver_.cuStreamWaitEvent(to, order_, 0), "ordering two streams"));
  stream_ = to;
  return NESO_OK;
}

neso_status cuda_executor::mark(int32_t number) {
  if (marks_.size() == 0) NESO_TRY(marks_.resize(kMarks));
  cu_event &event = marks_[size_t(number)];
  if (!event) NESO_TRY(check(driver_.cuEventCreate(&event, 0), "making an event"));
  return check(driver_.cuEventRecord(event, stream_), "marking a time");
}

neso_status cuda_executor::mark_step(int64_t step) {
  cu_event &event = step_marks_[size_t(step)];
  if (!event) NESO_TRY(check(driver_.cuEventCreate(&event, 0), "making an event"));
  return check(driver_.cuEventRecord(event, stream_), "marking a time");
}

neso_status cuda_executor::step_elapsed(int64_t step, double *out_ms) {
  return between(step_marks_[size_t(step)], step_marks_[size_t(step) + 1], out_ms);
}

neso_status cuda_executor::elapsed(int32_t begin, int32_t end, double *out_ms) {
  cu_event first = marks_.size() ? marks_[size_t(begin)] : nullptr,
           last = marks_.size() ? marks_[size_t(end)] : nullptr;
  if (!first || !last)
    return fail(NESO_INVALID_ARGUMENT, "marks %d and %d must be set before the time between them is asked for", begin,
                end);
  return between(first, last, out_ms);
}

neso_status cuda_executor::between(cu_event first, cu_event last, double *out_ms) {
  NESO_TRY(check(driver_.cuEventSynchronize(last), "waiting for a mark"));
  float ms = 0;
  NESO_TRY(check(driver_.cuEventElapsedTime(&ms, first, last), "reading a time"));
  *out_ms = ms;
  return NESO_OK;
}

neso_status cuda_executor::begin_recording() {
  NESO_TRY(check(driver_.cuStreamBeginCapture(recording_, kCuCaptureRelaxed), "recording a graph"));
  before_recording_ = stream_;
  stream_ = recording_;
  graph_streams_ = 1;
  return NESO_OK;
}

neso_status cuda_executor::end_recording(neso_status status, cu_graph_exec *out) {
  branch_ = 0;
  stream_ = before_recording_;
  cu_graph graph = nullptr;
  cu_result r = driver_.cuStreamEndCapture(recording_, &graph);
  *out = nullptr;
  if (status == NESO_OK && r == 0) r = driver_.cuGraphInstantiate(out, graph, 0);
  if (graph) driver_.cuGraphDestroy(graph);
  if (status != NESO_OK) return status;
  return check(r, "recording a graph");
}

neso_status cuda_executor::fork(int branches, size_t steps) {
  // The signals of the steps, one for the fork and one for each branch to join.
  if (signals_.size() == 0) NESO_TRY(signals_.resize(steps + 1 + stream_order::kMaxStreams));
  forked_ = graph_streams_ = branches;
  branch_ = 0;
  const size_t begin = signals_.size() - 1;
  NESO_TRY(signal(begin));
  for (int b = 1; b < branches; ++b) {
    if (!branches_[b]) NESO_TRY(check(driver_.cuStreamCreate(&branches_[b], kCuStreamNonBlocking), "making a stream"));
    use_branch(b);
    NESO_TRY(wait_for(begin));
  }
  use_branch(0);
  return NESO_OK;
}

void cuda_executor::use_branch(int branch) {
  branch_ = branch;
  stream_ = branch ? branches_[branch] : recording_;
}

neso_status cuda_executor::signal(size_t number) {
  cu_event &event = signals_[number];
  if (!event) NESO_TRY(check(driver_.cuEventCreate(&event, kCuEventNoTiming), "making an event"));
  return check(driver_.cuEventRecord(event, stream_), "ordering two streams");
}

neso_status cuda_executor::wait_for(size_t number) {
  return check(driver_.cuStreamWaitEvent(stream_, signals_[number], 0), "ordering two streams");
}

neso_status cuda_executor::join() {
  for (int b = 1; b < forked_; ++b) {
    const size_t end = signals_.size() - 1 - size_t(b);
    use_branch(b);
    NESO_TRY(signal(end));
    use_branch(0);
    NESO_TRY(wait_for(end));
  }
  return NESO_OK;
}

neso_status cuda_executor::launch_graph(cu_graph_exec graph) {
  ++graph_launches;
  return check(driver_.cuGraphLaunch(graph, stream_), "launching a run's graph");
}

void cuda_executor::destroy_graph(cu_graph_exec graph) {
  if (graph) driver_.cuGraphExecDestroy(graph);
}

} // namespace neso_rt
