#include "core/context.h"

#include <new>

#include "core/trace.h"

using namespace neso_rt;

namespace {
neso_status read_options(neso_context *c, const neso_context_options *options) {
  if (options) {
    if (options->struct_size < sizeof(size_t))
      return fail(NESO_INVALID_ARGUMENT, "neso_context_options.struct_size is not set");
    memcpy(&c->options, options, options->struct_size < sizeof c->options ? options->struct_size : sizeof c->options);
  }
  const neso_context_options &o = c->options;
  if (o.threads < 0 || o.threads > 4096) return fail(NESO_INVALID_ARGUMENT, "%d threads are not possible", o.threads);
  if (!o.allocate != !o.release) return fail(NESO_INVALID_ARGUMENT, "an allocator needs both allocate and release");
  if (o.cuda_graphs < -1 || o.cuda_graphs > 1 << 16)
    return fail(NESO_INVALID_ARGUMENT, "%d CUDA graphs are not possible", o.cuda_graphs);
  if (o.cuda_streams < 0 || o.cuda_streams > stream_order::kMaxStreams)
    return fail(NESO_INVALID_ARGUMENT, "%d streams are not possible, 1 to %d are", o.cuda_streams,
                stream_order::kMaxStreams);
  return NESO_OK;
}

neso_status create(neso_context *c, const neso_context_options *options) {
  NESO_TRY(read_options(c, options));
  const neso_device_vtable *table = device_of_kind(c->options.device);
  if (!table) return fail(NESO_DEVICE_UNAVAILABLE, "there is no device of kind %d", int(c->options.device));
  NESO_TRY(c->model->on_device(*table, c->options, &c->device));
  device_scope scope(c->device);
  NESO_TRY(table->start(c->device, c->options, &c->queue));
  c->memory.start(c->queue, c->options);
  NESO_TRY(c->binding.start(c->model->plan, c->queue, &c->memory, c->options));
  register_context(c);
  return c->walker.start(c->model->plan, c->model->ops, c->model->objects, c->queue, &c->memory, &c->binding, c->options);
}

size_t held(const block &b) { return size_t(b.capacity); }
} // namespace

neso_context::~neso_context() {
  if (!queue) return;
  device_scope scope(device);
  (void)table().synchronize(queue);
  unregister_context(this);
  walker.release();
  for (event *e : marks)
    if (e) table().free_event(queue, e);
  binding.release();
  while (lent) {
    lent_memory *first = lent;
    lent = first->next;
    memory.release(&first->memory);
    free(first);
  }
  table().stop(queue);
}

namespace {
// Queues a run. The device has been entered.
neso_status begin_run(neso_context *c, const neso_tensor *inputs, size_t input_count, neso_tensor *outputs,
                      size_t output_count) {
  NESO_TRY(c->table().alive(c->queue));
  if (c->binding.unfinished) NESO_TRY(c->binding.finish());
  c->walker.steps_done = 0;
  NESO_TRY(pin_weights(c));
  const bool traced = __builtin_expect(c->options.on_step == note_step, 0);
  if (traced) note_run(c->options.on_step_user, true);
  neso_status status = c->binding.bind(inputs, input_count, outputs, output_count);
  if (status == NESO_OK) status = c->walker.run();
  if (status == NESO_OK) status = c->binding.hand_out(outputs);
  if (status != NESO_OK) c->binding.drop();
  if (traced) note_run(c->options.on_step_user, false);
  return status;
}

neso_status check_run(const neso_context *c, const neso_tensor *inputs, size_t input_count, const neso_tensor *outputs,
                      size_t output_count) {
  if (!c || (!inputs && input_count) || (!outputs && output_count))
    return fail(NESO_INVALID_ARGUMENT, "neso_run needs a context and its tensors");
  if (c->model->plan.subplans.size() == 0)
    return fail(NESO_INVALID_ARGUMENT, "the package holds kernels only; launch them with neso_kernel_launch, or by neso kernel run");
  return NESO_OK;
}

} // namespace

extern "C" {

neso_status neso_context_create(const neso_model *model, const neso_context_options *options,
                                neso_context **out_context) {
  if (!model || !out_context)
    return fail(NESO_INVALID_ARGUMENT, "neso_context_create needs a model and a place for the context");
  *out_context = nullptr;
  if (model->look_only)
    return fail(NESO_INVALID_ARGUMENT,
                "the model was loaded to be looked at (neso_model_options.look_only, device=None): its code is not there; "
                "load it for a device");
  void *memory = malloc(sizeof(neso_context));
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
  device_scope scope(c->device);
  neso_status status = begin_run(c, inputs, input_count, outputs, output_count);
  if (status == NESO_OK) {
    status = c->binding.finish();
    if (status == NESO_OK) status = c->walker.finished();
  } else if (status != NESO_DEVICE_LOST) {
    // What was queued before the failure still uses the caller's memory. Waiting fails, and says more, only when the
    // device is lost.
    neso_status waited = c->table().synchronize(c->queue);
    if (waited != NESO_OK) status = waited;
  }
  // Outputs that lie in a constant are valid until the next run.
  if (!c->model->plan.lends_constants) unpin_weights(c);
  return status;
}

neso_status neso_context_watch(neso_context *c, int (*on_step)(void *, const neso_step_event *), void *user) {
  if (!c) return fail(NESO_INVALID_ARGUMENT, "neso_context_watch needs a context");
  c->options.on_step = on_step;
  c->options.on_step_user = user;
  return NESO_OK;
}

void neso_context_cancel(neso_context *c) {
  if (c) c->walker.cancel();
}

neso_status neso_run_async(neso_context *c, const neso_tensor *inputs, size_t input_count, neso_tensor *outputs,
                           size_t output_count) {
  NESO_TRY(check_run(c, inputs, input_count, outputs, output_count));
  device_scope scope(c->device);
  return begin_run(c, inputs, input_count, outputs, output_count);
}

neso_status neso_context_buffer(neso_context *c, const char *name, neso_tensor *out) {
  const plan &p = c->model->plan;
  for (const plan_tensor &t : p.tensors) {
    const plan_constant &k = p.constants[size_t(t.constant)];
    if (!k.mutated || strcmp(t.name, name) != 0) continue;
    *out = {c->binding.buffers[size_t(t.constant)].data + t.offset * int64_t(item_size(int(k.dtype))),
            t.sizes.data,
            t.strides.present ? t.strides.data : nullptr,
            t.sizes.size,
            neso_dtype(k.dtype),
            c->table().kind,
            c->device->index};
    return NESO_OK;
  }
  return fail(NESO_NO_SUCH_NAME, "the model mutates no buffer '%s'", name);
}

neso_status neso_context_reset_buffers(neso_context *c) {
  device_scope scope(c->device);
  NESO_TRY(pin_weights(c));
  const neso_status status = c->binding.reset_buffers();
  if (!c->model->plan.lends_constants) unpin_weights(c);
  return status;
}

neso_status neso_context_get_stats(const neso_context *c, neso_context_stats *out) {
  *out = {};
  for (const block &b : c->binding.arenas) out->arena_bytes += held(b);
  for (const block &b : c->binding.buffers) out->buffer_bytes += held(b);
  for (const bound_input &in : c->binding.inputs) out->output_bytes += held(in.staging);
  for (const bound_output &o : c->binding.outputs) out->output_bytes += held(o.own);
  c->table().get_stats(c->queue, out, nullptr);
  out->steps = c->walker.steps_done;
  return NESO_OK;
}

neso_status neso_context_step_time(neso_context *c, int64_t step, neso_step_time *out) {
  if (!c || !out || !c->walker.timed(step))
    return fail(NESO_INVALID_ARGUMENT,
                "step %lld was not timed; make the context with time_steps, run it, and ask for a step of the model",
                (long long)step);
  const plan &p = c->model->plan;
  const neso_rt::step &s = p.steps[size_t(p.subplans[0].begin) + size_t(step)];
  *out = {s.kind == fbs::Step::Launch ? p.kernels[size_t(s.a)].name : nullptr, 0};
  device_scope scope(c->device);
  NESO_TRY(c->table().alive(c->queue));
  return c->walker.step_elapsed(step, &out->ms);
}
}
