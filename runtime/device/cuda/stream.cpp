// The streams of a queue, what is recorded on them, and time.
#include "device/cuda/queue.h"

namespace neso_rt {
namespace {
// A recorded run may spread over so many streams when the caller does not say.
constexpr int32_t kStreams = 4;

cu_event handle(event *e) { return reinterpret_cast<cu_event>(e); }
cu_graph_exec handle(graph *g) { return reinterpret_cast<cu_graph_exec>(g); }
} // namespace

cuda_queue::cuda_queue(cuda_device *device) : gpu_(*device), driver_(device->driver) {
  table = device->table;
  on = device;
}

neso_status cuda_queue::start(const neso_context_options &o) {
  const plan &p = *on->program;
  int32_t args = 0;
  for (size_t k = 0; k < p.kernels.size(); ++k) {
    const fbs::BoxForm *form = gpu_.kernels[k].form;
    const int32_t count = p.kernels[k].arg_count + (form ? kAxes + int32_t(form->maps()->size()) : 0);
    if (count > args) args = count;
  }
  branches = o.cuda_streams == 0 ? kStreams : o.cuda_streams;
  records = o.cuda_graphs >= 0;
  // Two blocks on each multiprocessor leave nothing to gain from another kernel beside.
  side_by_side = 2 * gpu_.limits.processors;
  stream_ = static_cast<cu_stream>(o.stream);
  if (!stream_) {
    NESO_TRY(check(driver_.cuStreamCreate(&own_, kCuStreamNonBlocking), "making a stream"));
    stream_ = own_;
  }
  NESO_TRY(params_.resize(size_t(args)));
  NESO_TRY(maps_.start(p));
  if (gpu_.blas.handle && !(o.cublas && !*o.cublas)) NESO_TRY(products_.resize(p.products.size()));
  products = products_.size() != 0;
  if (!records) return NESO_OK;
  NESO_TRY(check(driver_.cuStreamCreate(&lanes_[0][0], kCuStreamNonBlocking), "making a stream"));
  return start_choices();
}

cuda_queue::~cuda_queue() {
  if (stream_) driver_.cuStreamSynchronize(stream_);
  for (blas_product &p : products_) p.release();
  for (const auto &lanes : lanes_)
    for (cu_stream s : lanes)
      if (s) driver_.cuStreamDestroy(s);
  free_event(order_);
  if (asked_) driver_.cuMemFree(asked_);
  if (stop) driver_.cuMemFreeHost(stop);
  if (own_) driver_.cuStreamDestroy(own_);
}

neso_status cuda_queue::check(cu_result r, const char *what) {
  if (__builtin_expect(r == 0, 1)) return NESO_OK;
  neso_status status = driver_.check(r, what);
  if (status == NESO_DEVICE_LOST) gpu_.lost.store(true);
  return status;
}

neso_status cuda_queue::alive() const {
  if (__builtin_expect(!gpu_.lost.load(std::memory_order_relaxed), 1)) return NESO_OK;
  return fail(NESO_DEVICE_LOST, "device cuda:%d was lost by an earlier failure: this process cannot use it again",
              on->index);
}

neso_status cuda_queue::synchronize() { return check(driver_.cuStreamSynchronize(stream_), "running on the GPU"); }

bool cuda_queue::is_capturing(cu_stream s) const {
  int state = 0;
  return s != own_ && driver_.cuStreamIsCapturing(s, &state) == 0 && state == kCuCapturing;
}

neso_status cuda_queue::set_stream(void *stream) {
  if (!stream && !own_) NESO_TRY(check(driver_.cuStreamCreate(&own_, kCuStreamNonBlocking), "making a stream"));
  cu_stream to = stream ? static_cast<cu_stream>(stream) : own_;
  if (to == stream_) return NESO_OK;
  // A stream that the caller records cannot wait for work outside of the recording, nor may work outside wait for what is only recorded.
  if (is_capturing(stream_) == is_capturing(to)) {
    NESO_TRY(mark(&order_, false));
    NESO_TRY(check(driver_.cuStreamWaitEvent(to, handle(order_), 0), "ordering two streams"));
  }
  stream_ = to;
  behind_launch_ = false;
  return NESO_OK;
}

neso_status cuda_queue::mark(event **at, bool timed) {
  if (!*at) {
    cu_event made = nullptr;
    NESO_TRY(check(driver_.cuEventCreate(&made, timed ? 0 : kCuEventNoTiming), "making an event"));
    *at = reinterpret_cast<event *>(made);
  }
  // A launch that is timed begins behind the mark.
  return check(driver_.cuEventRecord(handle(*at), timed ? stream_for_other() : stream_), timed ? "marking a time" : "ordering two streams");
}

neso_status cuda_queue::elapsed(event *begin, event *end, double *out_ms) {
  NESO_TRY(check(driver_.cuEventSynchronize(handle(end)), "waiting for a mark"));
  float ms = 0;
  NESO_TRY(check(driver_.cuEventElapsedTime(&ms, handle(begin), handle(end)), "reading a time"));
  *out_ms = ms;
  return NESO_OK;
}

void cuda_queue::free_event(event *e) {
  if (e) driver_.cuEventDestroy(handle(e));
}

neso_status cuda_queue::begin_recording() {
  // What it needs is loaded before, not while the driver records.
  if (decides && !decide_) NESO_TRY(gpu_.decide_kernel(&decide_));
  NESO_TRY(check(driver_.cuStreamBeginCapture(lanes_[0][0], kCuCaptureRelaxed), "recording a graph"));
  before_recording_ = stream_;
  stream_ = lanes_[0][0];
  behind_launch_ = false;
  return NESO_OK;
}

// The branches that are still open come back to where recording began: the driver calls it an error to end it without them.
void cuda_queue::join_branches(int32_t depth) {
  for (int32_t b = 1; b < stream_order::kMaxStreams; ++b) {
    int state = 0;
    if (!lanes_[depth][b] || driver_.cuStreamIsCapturing(lanes_[depth][b], &state) != 0 || state != kCuCapturing) continue;
    stream_ = lanes_[depth][b];
    if (mark(&order_, false) != NESO_OK) continue;
    stream_ = lanes_[depth][0];
    (void)wait(order_);
  }
}

neso_status cuda_queue::end_recording(neso_status status, graph **out) {
  cu_graph recorded = nullptr;
  cu_graph_exec ready = nullptr;
  // What a failure left open; the graphs of bodies belong to their nodes.
  for (; depth_ > 0; --depth_)
    if (choices_[depth_ - 1].in_body) {
      join_branches(depth_);
      driver_.cuStreamEndCapture(lanes_[depth_][0], &recorded);
    }
  if (status != NESO_OK) join_branches(0);
  recorded = nullptr;
  branch_ = 0;
  stream_ = before_recording_;
  behind_launch_ = false;
  cu_result r = driver_.cuStreamEndCapture(lanes_[0][0], &recorded);
  if (status == NESO_OK && r == 0) r = driver_.cuGraphInstantiate(&ready, recorded, 0);
  if (recorded) driver_.cuGraphDestroy(recorded);
  *out = reinterpret_cast<graph *>(ready);
  return status == NESO_OK ? check(r, "recording a graph") : status;
}

neso_status cuda_queue::use_branch(int32_t branch) {
  return use_stream(depth_, branch);
}

neso_status cuda_queue::use_stream(int32_t depth, int32_t branch) {
  cu_stream &lane = lanes_[depth][branch];
  if (!lane) NESO_TRY(check(driver_.cuStreamCreate(&lane, kCuStreamNonBlocking), "making a stream"));
  depth_ = depth;
  branch_ = branch;
  behind_launch_ = behind_launch_ && lane == stream_;
  stream_ = lane;
  return NESO_OK;
}

neso_status cuda_queue::wait(event *at) {
  return check(driver_.cuStreamWaitEvent(stream_for_other(), handle(at), 0), "ordering two streams");
}

neso_status cuda_queue::launch_graph(graph *g) {
  ++graph_launches_;
  return check(driver_.cuGraphLaunch(handle(g), stream_for_other()), "launching a run's graph");
}

void cuda_queue::free_graph(graph *g) {
  if (g) driver_.cuGraphExecDestroy(handle(g));
}

void cuda_queue::get_stats(neso_device_stats *out) const {
  out->constant_bytes = gpu_.constant_bytes();
  out->graph_launches = graph_launches_;
  out->kernel_launches = kernel_launches_;
  out->box_launches = box_launches_;
  out->library_calls = library_calls_;
  out->library_products = products_taken();
  if (!products) return;
  out->library = gpu_.blas.path;
  out->library_version = gpu_.blas.version;
}

} // namespace neso_rt
