#include "device/cuda/device.h"

#include <stdio.h>

#include <new>

#include "device/cuda/queue.h"

namespace neso_rt {

void cuda_arch(const cuda_limits &limits, char *out, size_t size) {
  snprintf(out, size, "sm_%d%d", limits.major, limits.minor);
}

neso_status cuda_limits::read(const cuda_driver &driver, cu_device device) {
  const struct {
    int attribute;
    int *value;
  } wanted[] = {{kCuAttributeMajor, &major},
                {kCuAttributeMinor, &minor},
                {kCuAttributeMaxThreads, &max_threads},
                {kCuAttributeSharedOptIn, &max_shared},
                {kCuAttributeMultiprocessors, &processors},
                {kCuAttributeL2Bytes, &l2_bytes}};
  for (const auto &w : wanted)
    NESO_TRY(driver.check(driver.cuDeviceGetAttribute(w.value, w.attribute, device), "reading a device's properties"));
  return NESO_OK;
}

bool cuda_device::is(int number, const char *library) const {
  return number == index && (library ? library_ && strcmp(library, library_) == 0 : !library_);
}

cuda_device::~cuda_device() {
  if (context) {
    {
      device_scope scope(this);
      blas.close();
      if (constant_memory_) driver.cuMemFree(constant_memory_);
      for (cu_module own : {own_module_, decide_module_})
        if (own) driver.cuModuleUnload(own);
      if (module_) driver.cuModuleUnload(module_);
    }
    driver.cuDevicePrimaryCtxRelease(device_);
  }
  free(library_);
}

neso_status cuda_device::open(const code_source &source, const neso_context_options &options) {
  program = source.program;
  index = options.device_index;
  if (options.cuda_driver && !(library_ = strdup(options.cuda_driver)))
    return fail(NESO_OUT_OF_MEMORY, "out of memory");
  NESO_TRY(driver.open(library_));
  NESO_TRY(driver.find_device(index, &device_));
  NESO_TRY(limits.read(driver, device_));
  cu_result r = driver.cuDevicePrimaryCtxRetain(&context, device_);
  if (r != 0) context = nullptr;
  NESO_TRY(driver.check(r, "opening the device"));
  device_scope scope(this);
  NESO_TRY(load_code(source));
  if (program->products.size() && !(options.cublas && !*options.cublas)) (void)blas.open(options.cublas);
  return upload_constants();
}

namespace {
cuda_device *of(device *d) { return static_cast<cuda_device *>(d); }
cuda_queue *of(queue *q) { return static_cast<cuda_queue *>(q); }

neso_status get_info(int index, const char *library, neso_device_info *out) {
  cuda_driver driver;
  cu_device found = 0;
  NESO_TRY(driver.open(library));
  NESO_TRY(driver.find_device(index, &found));
  cuda_limits limits{};
  NESO_TRY(limits.read(driver, found));
  NESO_TRY(driver.check(driver.cuDeviceGetName(out->name, int(sizeof out->name), found), "reading a device's name"));
  NESO_TRY(driver.check(driver.cuDeviceTotalMem(&out->memory_bytes, found), "reading a device's memory"));
  NESO_TRY(driver.check(driver.cuDriverGetVersion(&out->driver), "reading the driver's version"));
  cuda_arch(limits, out->arch, sizeof out->arch);
  out->l2_bytes = size_t(limits.l2_bytes);
  out->processors = limits.processors;
  return NESO_OK;
}

void close(device *d) {
  of(d)->~cuda_device();
  free(d);
}

neso_status open(const code_source &source, const neso_context_options &options, device **out) {
  void *memory = malloc(sizeof(cuda_device));
  if (!memory) return fail(NESO_OUT_OF_MEMORY, "out of memory");
  cuda_device *self = new (memory) cuda_device;
  self->table = &neso_device_cuda;
  neso_status status = self->open(source, options);
  if (status == NESO_OK)
    *out = self;
  else
    close(self);
  return status;
}

bool is(const device *d, const neso_context_options &options) {
  return static_cast<const cuda_device *>(d)->is(options.device_index, options.cuda_driver);
}

bool enter(device *d) {
  cu_context now = nullptr;
  if (of(d)->driver.cuCtxGetCurrent(&now) == 0 && now == of(d)->context) return false;
  return of(d)->driver.cuCtxPushCurrent(of(d)->context) == 0;
}
void leave(device *d) {
  cu_context popped;
  of(d)->driver.cuCtxPopCurrent(&popped);
}

void stop(queue *q) {
  of(q)->~cuda_queue();
  free(q);
}

neso_status start(device *on, const neso_context_options &options, queue **out) {
  void *memory = malloc(sizeof(cuda_queue));
  if (!memory) return fail(NESO_OUT_OF_MEMORY, "out of memory");
  cuda_queue *self = new (memory) cuda_queue(of(on));
  neso_status status = self->alive();
  if (status == NESO_OK) status = self->start(options);
  if (status == NESO_OK)
    *out = self;
  else
    stop(self);
  return status;
}

neso_status alive(const queue *q) { return static_cast<const cuda_queue *>(q)->alive(); }
neso_status synchronize(queue *q) { return of(q)->synchronize(); }
neso_status set_stream(queue *q, void *stream) { return of(q)->set_stream(stream); }
bool recorded(const queue *q) { return static_cast<const cuda_queue *>(q)->recorded(); }
void *stream(const queue *q) { return static_cast<const cuda_queue *>(q)->stream(); }
void get_stats(const queue *q, neso_context_stats *, neso_device_stats *out) {
  if (out) static_cast<const cuda_queue *>(q)->get_stats(out);
}

void *allocate(void *self, size_t bytes) { return static_cast<cuda_queue *>(self)->allocate(bytes); }
void release(void *self, void *memory, size_t) { static_cast<cuda_queue *>(self)->release(memory); }
void *allocate_host(queue *q, size_t bytes) { return of(q)->allocate_host(bytes); }
void release_host(queue *q, void *memory) { of(q)->release_host(memory); }
neso_status upload(queue *q, char *to, const void *from, int64_t bytes) { return of(q)->upload(to, from, bytes); }
neso_status download(queue *q, void *to, const char *from, int64_t bytes) { return of(q)->download(to, from, bytes); }
neso_status copy(queue *q, char *dst, const int64_t *dst_strides, const char *src, const int64_t *src_strides,
                 const int64_t *sizes, int rank, int item) {
  return of(q)->copy(dst, dst_strides, src, src_strides, sizes, rank, item);
}
neso_status fill(queue *q, char *to, int item, uint64_t bits, int64_t count) {
  return of(q)->fill(to, item, bits, count);
}

neso_status place(device *d, const void *from, int64_t bytes, char **out) {
  return static_cast<cuda_device *>(d)->place(from, bytes, out);
}
void displace(device *d, char *memory) {
  static_cast<cuda_device *>(d)->driver.cuMemFree(reinterpret_cast<cu_pointer>(memory));
}

neso_status launch(queue *q, int32_t kernel, int32_t, const void *args, const uint32_t grid[3]) {
  return of(q)->launch(kernel, args, grid);
}
void sizes_changed(queue *) {}
neso_status multiply(queue *q, int32_t which, const product_call &call, bool *out_done) {
  return of(q)->multiply(which, call, out_done);
}

neso_status mark(queue *q, event **at, bool timed) { return of(q)->mark(at, timed); }
neso_status elapsed(queue *q, event *begin, event *end, double *out_ms) { return of(q)->elapsed(begin, end, out_ms); }
void free_event(queue *q, event *e) { of(q)->free_event(e); }
neso_status begin_recording(queue *q) { return of(q)->begin_recording(); }
neso_status end_recording(queue *q, neso_status status, graph **out) { return of(q)->end_recording(status, out); }
neso_status use_branch(queue *q, int32_t branch) { return of(q)->use_branch(branch); }
neso_status wait(queue *q, event *at) { return of(q)->wait(at); }
neso_status begin_choice(queue *q, bool loop, int bodies, const device_test &test) {
  return of(q)->begin_choice(loop, bodies, test);
}
neso_status begin_body(queue *q, int body) { return of(q)->begin_body(body); }
neso_status end_body(queue *q, const device_test *again) { return of(q)->end_body(again); }
neso_status end_choice(queue *q) { return of(q)->end_choice(); }
neso_status launch_graph(queue *q, graph *g) { return of(q)->launch_graph(g); }
void free_graph(queue *q, graph *g) { of(q)->free_graph(g); }
} // namespace
} // namespace neso_rt

using namespace neso_rt;

const neso_device_vtable neso_device_cuda = {
    .kind = NESO_CUDA,
    .label = "cuda:%d",
    .code = int32_t(fbs::TargetKind::Cuda),
    .fit = nullptr,
    .get_info = get_info,
    .open = open,
    .close = close,
    .is = is,
    .enter = enter,
    .leave = leave,
    .start = start,
    .stop = stop,
    .alive = alive,
    .synchronize = synchronize,
    .set_stream = set_stream,
    .recorded = recorded,
    .get_stats = get_stats,
    .allocate = allocate,
    .release = release,
    .allocate_host = allocate_host,
    .release_host = release_host,
    .upload = upload,
    .download = download,
    .stream = stream,
    .copy = copy,
    .fill = fill,
    .place = place,
    .displace = displace,
    .launch = launch,
    .sizes_changed = sizes_changed,
    .multiply = multiply,
    .mark = mark,
    .elapsed = elapsed,
    .free_event = free_event,
    .begin_recording = begin_recording,
    .end_recording = end_recording,
    .use_branch = use_branch,
    .wait = wait,
    .begin_choice = begin_choice,
    .begin_body = begin_body,
    .end_body = end_body,
    .end_choice = end_choice,
    .launch_graph = launch_graph,
    .free_graph = free_graph,
};
