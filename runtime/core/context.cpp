#include "core/context.h"

#include <sys/mman.h>

#include <new>

#include "core/launch_checks.h"

using namespace neso_rt;

namespace {
constexpr int64_t kHugePage = 2 << 20;

void *default_allocate(void *, size_t bytes) {
  if (bytes < size_t(2 * kHugePage)) return aligned_alloc(kAlign, bytes);
  // Large blocks are read and written as a whole by every run: huge pages save most of the translation misses.
  size_t rounded = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  void *p = aligned_alloc(kHugePage, rounded);
  if (p) madvise(p, rounded, MADV_HUGEPAGE);
  return p;
}
void default_release(void *, void *memory, size_t) { free(memory); }

// Inputs that are Python scalars and that a kernel reads from memory.
void find_scalars_read(neso_context *c) {
  const plan &p = c->model->plan;
  for (const fbs::Buffer &b : p.buffers)
    if (b.location() == fbs::Location::Input && p.inputs[size_t(b.index())].kind != fbs::InputKind::Tensor)
      c->inputs[size_t(b.index())].scalar_read = true;
}

// How many CUDA graphs a context keeps when it is not told.
constexpr int kGraphs = 16;
// And how many streams a graph spreads over.
constexpr int kStreams = 4;

neso_status start_gpu(neso_context *c) {
  neso_context_options &o = c->options;
  const cuda_device *device = nullptr;
  NESO_TRY(c->model->on_device(o.device_index, o.cuda_driver, o.cublas, &device));
  if (device->lost.load())
    return fail(NESO_DEVICE_LOST, "device cuda:%d was lost by an earlier failure: this process cannot use it again",
                o.device_index);
  void *memory = malloc(sizeof(cuda_executor));
  if (!memory) return fail(NESO_OUT_OF_MEMORY, "out of memory");
  c->gpu = new (memory) cuda_executor(*device, o.device_index);
  if (!o.allocate) {
    o.allocate = cuda_executor::allocate;
    o.release = cuda_executor::release;
    o.allocator_user = c->gpu;
  }
  const plan &p = c->model->plan;
  int32_t args = 0;
  for (const plan_kernel &k : p.kernels)
    if (k.arg_count > args) args = k.arg_count;
  find_scalars_read(c);
  NESO_TRY(c->graph_key.resize(c->bound_sizes.size() + c->addresses.size()));
  cuda_scope scope(device);
  return c->gpu->start(o.stream,
                       o.cuda_graphs < 0    ? 0
                       : o.cuda_graphs == 0 ? kGraphs
                                            : o.cuda_graphs,
                       c->graph_key.size(), args, o.cublas && !*o.cublas ? 0 : p.products.size(), c->step_begins.size(),
                       o.cuda_streams == 0 ? kStreams : o.cuda_streams);
}

neso_status create_buffers(neso_context *c) {
  const plan &p = c->model->plan;
  NESO_TRY(c->buffers.resize(p.constants.size()));
  for (size_t i = 0; i < p.constants.size(); ++i)
    if (p.constants[i].mutated)
      NESO_TRY(c->grow(&c->buffers[i], p.constants[i].bytes ? p.constants[i].bytes : 1, p.constants[i].name));
  return c->reset_buffers();
}

neso_status create_values(neso_context *c) {
  const plan &p = c->model->plan;
  size_t definitions = 0, strides = 0, shapes = 0;
  for (const plan_input &in : p.inputs) {
    definitions += size_t(in.dims.size) + 1;
    strides += size_t(in.dims.size);
  }
  for (const plan_output &out : p.outputs) shapes += 2 * size_t(out.dims.size);
  NESO_TRY(c->slots.resize(size_t(p.slot_count)));
  for (int32_t i = 0; i < p.slot_constants; ++i) c->slots[i] = p.constant_values[i];
  NESO_TRY(c->bound_sizes.resize(definitions));
  NESO_TRY(c->input_strides.resize(strides));
  NESO_TRY(c->output_shapes.resize(shapes));
  NESO_TRY(c->inputs.resize(p.inputs.size()));
  NESO_TRY(c->outputs.resize(p.outputs.size()));
  int64_t *at = c->output_shapes.data();
  for (size_t i = 0; i < p.outputs.size(); ++i) {
    c->outputs[i].sizes = at;
    c->outputs[i].strides = at + p.outputs[i].dims.size;
    at += 2 * p.outputs[i].dims.size;
  }
  NESO_TRY(c->arenas.resize(p.arena_slots.size()));
  NESO_TRY(c->addresses.resize(size_t(p.buffers.size)));
  NESO_TRY(c->costs.resize(p.steps.size()));
  return c->args.resize(size_t(p.arg_total));
}

neso_status create(neso_context *c, const neso_context_options *options) {
  if (options) {
    if (options->struct_size < sizeof(size_t))
      return fail(NESO_INVALID_ARGUMENT, "neso_context_options.struct_size is not set");
    memcpy(&c->options, options, options->struct_size < sizeof c->options ? options->struct_size : sizeof c->options);
  }
  neso_context_options &o = c->options;
  if (o.threads < 0 || o.threads > 4096) return fail(NESO_INVALID_ARGUMENT, "%d threads are not possible", o.threads);
  if (!o.allocate != !o.release) return fail(NESO_INVALID_ARGUMENT, "an allocator needs both allocate and release");
  if (o.device != NESO_CPU && o.device != NESO_CUDA)
    return fail(NESO_DEVICE_UNAVAILABLE, "there is no device of kind %d", int(o.device));
  if (o.cuda_graphs < -1 || o.cuda_graphs > 1 << 16)
    return fail(NESO_INVALID_ARGUMENT, "%d CUDA graphs are not possible", o.cuda_graphs);
  if (o.cuda_streams < 0 || o.cuda_streams > stream_order::kMaxStreams)
    return fail(NESO_INVALID_ARGUMENT, "%d streams are not possible, 1 to %d are", o.cuda_streams,
                stream_order::kMaxStreams);
  NESO_TRY(create_values(c));
  if (o.time_steps && c->model->plan.subplans.size())
    NESO_TRY(c->step_begins.resize(size_t(c->model->plan.subplans[0].end - c->model->plan.subplans[0].begin) + 1));
  if (o.device == NESO_CUDA) {
    NESO_TRY(start_gpu(c));
    cuda_scope scope(c->device());
    return create_buffers(c);
  }
  if (c->model->target < 0 && c->model->plan.kernels.size())
    return fail(NESO_NO_FITTING_TARGET,
                "the package holds code for GPUs only; make the context on one (device = NESO_CUDA, --device cuda)");
  if (!o.allocate) {
    o.allocate = default_allocate;
    o.release = default_release;
  }
  NESO_TRY(create_buffers(c));
  return c->executor.start(o.threads, c->model->plan.max_scratch, o.parallel_for, o.parallel_for_user, o.on_print,
                           o.on_print_user);
}

size_t held(const block &b) { return size_t(b.capacity); }
} // namespace

neso_status neso_context::grow(block *b, int64_t bytes, const char *what) {
  if (bytes <= b->capacity) return NESO_OK;
  if (bytes > kMaxBytes) return fail(NESO_SIZE_INVALID, "%s would need %lld bytes", what, (long long)bytes);
  release(b);
  int64_t rounded = (bytes + int64_t(kAlign) - 1) / int64_t(kAlign) * int64_t(kAlign);
  void *memory = options.allocate(options.allocator_user, size_t(rounded));
  if (!memory && gpu)
    return fail(NESO_OUT_OF_MEMORY, "out of memory on cuda:%d: %lld bytes for %s", gpu->index(), (long long)rounded,
                what);
  if (!memory) return fail(NESO_OUT_OF_MEMORY, "out of memory: %lld bytes for %s", (long long)rounded, what);
  b->data = static_cast<char *>(memory);
  b->capacity = rounded;
  return NESO_OK;
}

void neso_context::release(block *b) {
  // What is queued on the device may still use it.
  if (b->data && gpu) (void)gpu->synchronize();
  if (b->data) options.release(options.allocator_user, b->data, size_t(b->capacity));
  *b = {};
}

neso_context::~neso_context() {
  cuda_scope scope(device());
  for (bound_input &in : inputs) {
    release(&in.staging);
    free(in.packed);
    if (gpu) gpu->release(&in.host);
  }
  for (bound_output &out : outputs) {
    release(&out.own);
    if (gpu) gpu->release(&out.host);
  }
  while (lent) {
    lent_memory *first = lent;
    lent = first->next;
    release(&first->memory);
    free(first);
  }
  for (block &b : arenas) release(&b);
  for (block &b : buffers) release(&b);
  if (gpu) {
    gpu->~cuda_executor();
    free(gpu);
  }
}

neso_status neso_context::reset_buffers() {
  const plan &p = model->plan;
  for (size_t i = 0; i < p.constants.size(); ++i) {
    if (!p.constants[i].mutated || p.constants[i].bytes == 0) continue;
    if (gpu)
      NESO_TRY(gpu->upload(buffers[i].data, p.constants[i].data, p.constants[i].bytes));
    else
      memcpy(buffers[i].data, p.constants[i].data, size_t(p.constants[i].bytes));
  }
  return gpu ? gpu->synchronize() : NESO_OK;
}

namespace {
// Queues a run, or on the CPU does it. The device's context is current.
neso_status begin_run(neso_context *c, const neso_tensor *inputs, size_t input_count, neso_tensor *outputs,
                      size_t output_count) {
  if (c->gpu) NESO_TRY(c->gpu->alive());
  if (c->unfinished) NESO_TRY(c->finish_gpu_run());
  c->steps_done = 0;
  neso_status status = c->bind(inputs, input_count, outputs, output_count);
  if (status == NESO_OK) status = c->gpu ? c->run_on_gpu() : c->walk(0);
  if (status == NESO_OK) status = c->hand_out(outputs);
  if (status != NESO_OK && c->gpu) c->drop_gpu_run();
  return status;
}

neso_status check_run(const neso_context *c, const neso_tensor *inputs, size_t input_count, const neso_tensor *outputs,
                      size_t output_count) {
  if (!c || (!inputs && input_count) || (!outputs && output_count))
    return fail(NESO_INVALID_ARGUMENT, "neso_run needs a context and its tensors");
  if (c->model->plan.subplans.size() == 0)
    return fail(NESO_INVALID_ARGUMENT, "the package holds kernels only; launch them with neso_kernel_launch");
  return NESO_OK;
}

// The sizes that the caller leaves open are known of memory that the context lent.
neso_status check_launch(const neso_context *c, const plan_kernel &kernel, const uint32_t grid[3], const neso_arg *args,
                         const int64_t *given) {
  NESO_TRY(check_grid(kernel.name, grid));
  NESO_TRY(check_alignment(kernel, args));
  const fbs::LaunchChecks *checks = kernel.row->checks();
  if (!checks || !checks->footprints() || (!given && !c->lent)) return NESO_OK;
  array<int64_t> bytes;
  NESO_TRY(bytes.resize(size_t(kernel.arg_count)));
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = given ? given[i] : -1;
    for (const lent_memory *l = c->lent; l && bytes[i] < 0; l = l->next)
      if (l->memory.data == args[i].ptr) bytes[i] = l->memory.capacity;
  }
  return check_footprints(kernel, grid, args, bytes.data());
}
} // namespace

extern "C" {

neso_status neso_context_create(const neso_model *model, const neso_context_options *options,
                                neso_context **out_context) {
  if (!model || !out_context)
    return fail(NESO_INVALID_ARGUMENT, "neso_context_create needs a model and a place for the context");
  *out_context = nullptr;
  // The thread pool inside asks for the alignment of a cache line.
  void *memory = aligned_alloc(kAlign, (sizeof(neso_context) + kAlign - 1) / kAlign * kAlign);
  if (!memory) return fail(NESO_OUT_OF_MEMORY, "out of memory");
  neso_context *c = new (memory) neso_context;
  c->model = model;
  neso_status status = create(c, options);
  if (status == NESO_OK)
    *out_context = c;
  else
    neso_context_free(c);
  return status;
}

void neso_context_free(neso_context *context) {
  if (!context) return;
  context->~neso_context();
  free(context);
}

neso_status neso_run(neso_context *c, const neso_tensor *inputs, size_t input_count, neso_tensor *outputs,
                     size_t output_count) {
  NESO_TRY(check_run(c, inputs, input_count, outputs, output_count));
  cuda_scope scope(c->device());
  neso_status status = begin_run(c, inputs, input_count, outputs, output_count);
  if (!c->gpu) return status;
  if (status == NESO_OK) return c->finish_gpu_run();
  if (status == NESO_DEVICE_LOST) return status;
  // What was queued before the failure still uses the caller's memory. Waiting fails, and says more, only when the
  // device is lost.
  neso_status waited = c->gpu->synchronize();
  return waited == NESO_OK ? status : waited;
}

neso_status neso_run_async(neso_context *c, const neso_tensor *inputs, size_t input_count, neso_tensor *outputs,
                           size_t output_count) {
  NESO_TRY(check_run(c, inputs, input_count, outputs, output_count));
  cuda_scope scope(c->device());
  return begin_run(c, inputs, input_count, outputs, output_count);
}

neso_status neso_context_buffer(neso_context *c, const char *name, neso_tensor *out) {
  const plan &p = c->model->plan;
  for (const plan_tensor &t : p.tensors) {
    const plan_constant &k = p.constants[size_t(t.constant)];
    if (!k.mutated || strcmp(t.name, name) != 0) continue;
    *out = {c->buffers[size_t(t.constant)].data + t.offset * int64_t(item_size(int(k.dtype))),
            t.sizes.data,
            t.strides.present ? t.strides.data : nullptr,
            t.sizes.size,
            neso_dtype(k.dtype),
            c->gpu ? NESO_CUDA : NESO_CPU,
            c->gpu ? c->gpu->index() : 0};
    return NESO_OK;
  }
  return fail(NESO_NO_SUCH_NAME, "the model mutates no buffer '%s'", name);
}

neso_status neso_context_reset_buffers(neso_context *c) {
  cuda_scope scope(c->device());
  return c->reset_buffers();
}

neso_status neso_context_get_stats(const neso_context *c, neso_context_stats *out) {
  *out = {};
  for (const block &b : c->arenas) out->arena_bytes += held(b);
  for (const block &b : c->buffers) out->buffer_bytes += held(b);
  for (const bound_input &in : c->inputs) out->output_bytes += held(in.staging);
  for (const bound_output &o : c->outputs) out->output_bytes += held(o.own);
  out->scratch_bytes = c->executor.scratch_total();
  out->threads = c->executor.threads();
  out->steps = c->steps_done;
  return NESO_OK;
}

neso_status neso_context_step_time(neso_context *c, int64_t step, neso_step_time *out) {
  if (!c || !out || !c->steps_timed || step < 0 || size_t(step) + 1 >= c->step_begins.size())
    return fail(NESO_INVALID_ARGUMENT,
                "step %lld was not timed; make the context with time_steps, run it, and ask for a step of the model",
                (long long)step);
  const plan &p = c->model->plan;
  const neso_rt::step &s = p.steps[size_t(p.subplans[0].begin) + size_t(step)];
  *out = {s.kind == fbs::Step::Launch ? p.kernels[size_t(s.a)].name : nullptr,
          c->step_begins[size_t(step) + 1] - c->step_begins[size_t(step)]};
  if (!c->gpu) return NESO_OK;
  cuda_scope scope(c->device());
  NESO_TRY(c->gpu->alive());
  return c->gpu->step_elapsed(step, &out->ms);
}

neso_status neso_kernel_launch(neso_context *c, const char *name, const uint32_t grid[3], const union neso_arg *args,
                               size_t arg_count) {
  return neso_kernel_launch_checked(c, name, grid, args, nullptr, arg_count);
}

neso_status neso_kernel_launch_checked(neso_context *c, const char *name, const uint32_t grid[3],
                                       const union neso_arg *args, const int64_t *buffer_bytes, size_t arg_count) {
  if (!c || !name || !grid || (!args && arg_count))
    return fail(NESO_INVALID_ARGUMENT, "neso_kernel_launch needs a context, a name, a grid and arguments");
  const plan &p = c->model->plan;
  for (size_t k = 0; k < p.kernels.size(); ++k) {
    const plan_kernel &kernel = p.kernels[k];
    if (strcmp(kernel.name, name) != 0) continue;
    if (arg_count != size_t(kernel.arg_count))
      return fail(NESO_KERNEL_ARGUMENTS, "kernel '%s' has %d arguments, %zu were given", name, kernel.arg_count,
                  arg_count);
    NESO_TRY(check_launch(c, kernel, grid, args, buffer_bytes));
    if (c->gpu) {
      cuda_scope scope(c->device());
      NESO_TRY(c->gpu->alive());
      return c->gpu->launch(int32_t(k), args, int32_t(arg_count), grid);
    }
    // Callers launch the same kernel over other data each time: no cost is remembered.
    launch_cost cost;
    return c->executor.launch(c->model->functions[k], kernel.name, args, grid, &cost, kernel.serial);
  }
  return fail(NESO_NO_SUCH_NAME, "the package holds no kernel '%s'", name);
}
}
