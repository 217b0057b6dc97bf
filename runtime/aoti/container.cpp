#include "aoti/container.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <new>

using namespace neso_aoti;

namespace neso_aoti {
namespace {
thread_local char last_error[1200] = "";
}

int32_t failed(const char *text) {
  snprintf(last_error, sizeof last_error, "%s", text);
  return 1;
}

int32_t outcome(neso_status status) {
  if (status == NESO_OK) return 0;
  snprintf(last_error, sizeof last_error, "error[%s]: %s", neso_status_code(status), neso_error_text());
  return 1;
}

namespace {
container *of(void *handle) { return static_cast<container *>(handle); }

// "cpu", "cuda", "cuda:1"; NULL: that of the package's first target.
bool parse_device(const char *text, container *c) {
  if (!text) {
    neso_target_info target{};
    if (neso_model_target_count(c->model) > 0) neso_model_target(c->model, 0, &target);
    c->device = target.kind;
    return true;
  }
  if (strcmp(text, "cpu") == 0) return true;
  c->device = NESO_CUDA;
  if (strcmp(text, "cuda") == 0) return true;
  return sscanf(text, "cuda:%d", &c->device_index) == 1;
}

neso_status make_context(const container &c, container::seat *seat) {
  neso_context_options o{};
  o.struct_size = sizeof o;
  o.device = c.device;
  o.device_index = c.device_index;
  o.op_user = seat;
  return neso_context_create(c.model, &o, &seat->context);
}

// The loader's names have no dots.
neso_status list_constants(container *c) {
  const int32_t all = neso_model_constant_count(c->model);
  c->constants = static_cast<container::constant *>(calloc(size_t(all) + 1, sizeof *c->constants));
  if (!c->constants) return NESO_OUT_OF_MEMORY;
  for (int32_t i = 0; i < all; ++i) {
    neso_constant_info info;
    neso_model_constant(c->model, i, &info);
    if (info.kind == NESO_FOLDED_CONSTANT) continue;
    char *name = strdup(info.name);
    if (!name) return NESO_OUT_OF_MEMORY;
    for (char *at = name; *at; ++at)
      if (*at == '.') *at = '_';
    c->constants[c->constant_count++] = {info, name};
  }
  return NESO_OK;
}

int32_t fill(container *c, size_t contexts, const char *device) {
  const char *why = nullptr;
  c->torch = find_torch(&why);
  if (!c->torch) {
    char text[200];
    snprintf(text, sizeof text, "the process has no libtorch with the function %s", why);
    return failed(text);
  }
  const void *bytes = nullptr;
  size_t size = 0;
  if (int32_t bad = outcome(own_package(&bytes, &size))) return bad;
  c->operators[0] = {"*", call_operator, c, NESO_CPU};
  c->operators[1] = {"*", call_operator, c, NESO_CUDA};
  neso_model_options o{};
  o.struct_size = sizeof o;
  o.ops = c->operators, o.op_count = 2;
  if (int32_t bad = outcome(neso_model_load_memory(bytes, size, &o, &c->model))) return bad;
  if (!parse_device(device, c)) return failed("Neso runs on cpu and on cuda:N");
  if (list_constants(c) != NESO_OK) return failed("out of memory");
  const size_t count = contexts ? contexts : 1;
  c->seats = static_cast<container::seat *>(calloc(count, sizeof *c->seats));
  if (!c->seats) return failed("out of memory");
  for (size_t i = 0; i < count; ++i) {
    if (int32_t bad = outcome(make_context(*c, &c->seats[i]))) return bad;
    ++c->seat_count;
  }
  return 0;
}

// The seat that a stream has; a new stream gets the next one in turn.
size_t seat_of(container *c, void *stream) {
  size_t count = 0;
  for (container::binding *b = c->bindings; b; b = b->next, ++count)
    if (b->stream == stream) return b->seat;
  container::binding *made = static_cast<container::binding *>(calloc(1, sizeof *made));
  const size_t seat = count % c->seat_count;
  if (made) *made = {stream, seat, c->bindings}, c->bindings = made;
  return seat;
}

void free_bindings(container *c) {
  while (container::binding *b = c->bindings) {
    c->bindings = b->next;
    free(b);
  }
}
} // namespace

void destroy(container *c) {
  for (lent_tensor *t = c->extracted; t;) {
    lent_tensor *next = t->next;
    c->torch->delete_tensor_object(t->handle);
    free(t);
    t = next;
  }
  free(c->extracted_entries);
  free_bindings(c);
  free_homes(c);
  for (size_t i = 0; i < c->seat_count; ++i) neso_context_free(c->seats[i].context);
  free(c->seats);
  for (size_t i = 0; i < c->constant_count; ++i) free(c->constants[i].name);
  free(c->constants);
  free_sets(c);
  neso_model_free(c->model);
  c->~container();
  free(c);
}

int32_t create(container **out, size_t contexts, const char *device) {
  *out = nullptr;
  void *memory = malloc(sizeof(container));
  if (!memory) return failed("out of memory");
  container *c = new (memory) container;
  if (int32_t bad = fill(c, contexts, device)) {
    destroy(c);
    return bad;
  }
  *out = c;
  return 0;
}

size_t take(container *c, void *stream) {
  pthread_mutex_lock(&c->lock);
  const bool bound = c->affinity && stream;
  size_t seat = bound ? seat_of(c, stream) : 0;
  for (;;) {
    if (!bound)
      for (seat = 0; seat + 1 < c->seat_count && c->seats[seat].busy;) ++seat;
    if (!c->seats[seat].busy) break;
    pthread_cond_wait(&c->freed, &c->lock);
  }
  c->seats[seat].busy = true;
  pthread_mutex_unlock(&c->lock);
  return seat;
}

void give_back(container *c, size_t seat) {
  pthread_mutex_lock(&c->lock);
  c->seats[seat].busy = false;
  pthread_cond_broadcast(&c->freed);
  pthread_mutex_unlock(&c->lock);
}

int32_t copy(container *c, const neso_tensor &to, const neso_tensor &from) {
  const size_t seat = take(c, nullptr);
  const int32_t bad = outcome(neso_tensor_copy(c->seats[seat].context, &to, &from));
  give_back(c, seat);
  return bad;
}

run_tensors::~run_tensors() {
  free(inputs);
  free(outputs);
}

int32_t run_tensors::prepare(const container &c) {
  input_count = size_t(neso_model_input_count(c.model)), output_count = size_t(neso_model_output_count(c.model));
  inputs = static_cast<neso_tensor *>(calloc(input_count + 1, sizeof(neso_tensor)));
  outputs = static_cast<neso_tensor *>(calloc(output_count + 1, sizeof(neso_tensor)));
  if (!inputs || !outputs) return failed("out of memory");
  for (size_t i = 0; i < output_count; ++i) {
    outputs[i].device = c.device;
    outputs[i].device_index = c.device_index;
  }
  return 0;
}

namespace {
// The loader passes the tensors among the flattened inputs; what else the model takes was fixed by the export.
int32_t bind_inputs(const container &c, AtenTensorHandle *handles, size_t count, neso_tensor *to) {
  const int32_t all = neso_model_input_count(c.model);
  size_t used = 0;
  for (int32_t i = 0; i < all; ++i) {
    neso_value_info info;
    neso_model_input(c.model, i, &info);
    to[i] = {};
    if (info.kind != NESO_VALUE_TENSOR) continue;
    if (used == count) return failed("fewer inputs were given than the model takes");
    if (const char *why = view(*c.torch, handles[used++], &to[i])) return failed(why);
  }
  return used == count ? 0 : failed("more inputs were given than the model takes");
}

// A tensor of libtorch's allocator for each output, with a copy of what the run left in the context's memory.
int32_t hand_out(const container &c, neso_context *context, const neso_tensor *results, AtenTensorHandle *handles,
                 size_t count) {
  for (size_t i = 0; i < count; ++i) {
    neso_value_info info;
    neso_model_output(c.model, int32_t(i), &info);
    handles[i] = nullptr; // None, to the loader
    if (info.kind == NESO_VALUE_NONE || info.kind == NESO_VALUE_TEXT) continue;
    if (!results[i].data && !results[i].sizes) return failed("an output of the model is no tensor");
    handles[i] = new_tensor(*c.torch, results[i]);
    neso_tensor to = results[i];
    if (!handles[i] || c.torch->get_data_ptr(handles[i], &to.data)) return failed("libtorch gives no memory for an output");
    bool empty = false;
    for (int32_t d = 0; d < to.rank; ++d) empty |= to.sizes[d] == 0;
    if (empty) continue;
    if (int32_t bad = outcome(neso_tensor_copy(context, &to, &results[i]))) return bad;
  }
  return 0;
}

} // namespace

int32_t run_in(container *c, size_t number, run_tensors *t, void *stream, AOTIProxyExecutorHandle executor) {
  container::seat *seat = &c->seats[number];
  neso_context *context = seat->context;
  seat->executor = executor;
  struct done {
    const container &c;
    container::seat *seat;
    ~done() { free_kept(c, seat); }
  } at_the_end{*c, seat};
  if (int32_t bad = fetch_homes(c, context)) return bad;
  if (c->device == NESO_CUDA) {
    // A NULL stream is the legacy default one, whose handle is 1.
    if (int32_t bad = outcome(neso_context_set_stream(context, stream ? stream : reinterpret_cast<void *>(1)))) return bad;
    if (int32_t bad = outcome(neso_run_async(context, t->inputs, t->input_count, t->outputs, t->output_count))) return bad;
  } else if (int32_t bad = outcome(neso_run(context, t->inputs, t->input_count, t->outputs, t->output_count))) {
    return bad;
  }
  return leave_homes(c, context);
}

int32_t run(container *c, AtenTensorHandle *inputs, size_t input_count, AtenTensorHandle *outputs, size_t output_count,
            void *stream, AOTIProxyExecutorHandle executor) {
  run_tensors t;
  int32_t bad = t.prepare(*c);
  if (!bad && output_count != t.output_count)
    bad = failed("room was given for another number of outputs than the model has");
  if (!bad) bad = bind_inputs(*c, inputs, input_count, t.inputs);
  if (!bad) {
    const size_t seat = take(c, stream);
    bad = run_in(c, seat, &t, stream, executor);
    if (!bad) bad = hand_out(*c, c->seats[seat].context, t.outputs, outputs, t.output_count);
    give_back(c, seat);
    for (size_t i = 0; bad && i < t.output_count; ++i) {
      if (outputs[i]) c->torch->delete_tensor_object(outputs[i]);
      outputs[i] = nullptr;
    }
  }
  for (size_t i = 0; i < input_count; ++i) {
    c->torch->delete_tensor_object(inputs[i]);
    inputs[i] = nullptr;
  }
  return bad;
}
} // namespace neso_aoti

#define AOTI_API __attribute__((visibility("default")))

extern "C" {

AOTI_API int32_t AOTInductorModelContainerCreateWithDevice(void **out, size_t num_models, const char *device,
                                                           const char *) {
  return create(reinterpret_cast<container **>(out), num_models, device);
}
// The values are read where they lie; those that the model needs in another order are copied into it, as folded ones are.
AOTI_API int32_t AOTInductorModelContainerCreateWithExternalConstants(void **out, size_t num_models, const char *device,
                                                                      const char *, const named_tensor *entries, size_t count) {
  container *c = nullptr;
  int32_t bad = create(&c, num_models, device);
  if (!bad) bad = update(c, entries, count, false, true, holding::borrow_if_possible);
  if (bad && c) destroy(c), c = nullptr;
  *out = c;
  return bad;
}
AOTI_API int32_t AOTInductorModelContainerCreate(void **out, size_t num_models, bool is_cpu, const char *folder) {
  return AOTInductorModelContainerCreateWithDevice(out, num_models, is_cpu ? "cpu" : "cuda", folder);
}
AOTI_API int32_t AOTInductorModelContainerDelete(void *handle) {
  destroy(of(handle));
  return 0;
}

AOTI_API int32_t AOTInductorModelContainerRun(void *handle, AtenTensorHandle *inputs, size_t input_count,
                                              AtenTensorHandle *outputs, size_t output_count, void *stream,
                                              AOTIProxyExecutorHandle executor) {
  return run(of(handle), inputs, input_count, outputs, output_count, stream, executor);
}
AOTI_API int32_t AOTInductorModelContainerRunSingleThreaded(void *handle, AtenTensorHandle *inputs, size_t input_count,
                                                            AtenTensorHandle *outputs, size_t output_count, void *stream,
                                                            AOTIProxyExecutorHandle executor) {
  return AOTInductorModelContainerRun(handle, inputs, input_count, outputs, output_count, stream, executor);
}

// With affinity a stream always gets the context that it got first.
AOTI_API int32_t AOTInductorModelContainerSetUseStreamAffinity(void *handle, bool use) {
  container *c = of(handle);
  pthread_mutex_lock(&c->lock);
  c->affinity = use;
  free_bindings(c);
  pthread_mutex_unlock(&c->lock);
  return 0;
}
AOTI_API int32_t AOTInductorModelContainerGetStreamAffinityModelIndexForTesting(void *handle, void *stream, int64_t *out) {
  constexpr int64_t kDisabled = -2, kUnbound = -1;
  container *c = of(handle);
  pthread_mutex_lock(&c->lock);
  *out = c->affinity ? kUnbound : kDisabled;
  for (container::binding *b = c->affinity ? c->bindings : nullptr; b; b = b->next)
    if (b->stream == stream) *out = int64_t(b->seat);
  pthread_mutex_unlock(&c->lock);
  return 0;
}

AOTI_API int32_t AOTInductorModelContainerGetNumInputs(void *handle, size_t *out) {
  return *out = size_t(neso_model_input_count(of(handle)->model)), 0;
}
AOTI_API int32_t AOTInductorModelContainerGetNumOutputs(void *handle, size_t *out) {
  return *out = size_t(neso_model_output_count(of(handle)->model)), 0;
}
AOTI_API int32_t AOTInductorModelContainerGetInputName(void *handle, size_t index, const char **out) {
  neso_value_info info;
  const neso_status status = neso_model_input(of(handle)->model, int32_t(index), &info);
  if (status == NESO_OK) *out = info.name;
  return outcome(status);
}
AOTI_API int32_t AOTInductorModelContainerGetOutputName(void *handle, size_t index, const char **out) {
  neso_value_info info;
  const neso_status status = neso_model_output(of(handle)->model, int32_t(index), &info);
  if (status == NESO_OK) *out = info.name;
  return outcome(status);
}
AOTI_API int32_t AOTInductorModelContainerGetCallSpec(void *handle, const char **in_spec, const char **out_spec) {
  *in_spec = neso_model_metadata(of(handle)->model, "in_spec");
  *out_spec = neso_model_metadata(of(handle)->model, "out_spec");
  return *in_spec && *out_spec ? 0 : failed("the package does not say how its inputs and outputs are nested");
}
// How weights are copied to a GPU is the runtime's choice.
AOTI_API int32_t AOTInductorSetUsePinnedAsyncConstantsCopy(bool) { return 0; }
AOTI_API int32_t AOTInductorSetPinnedAsyncConstantsCopyStageBufferBytes(size_t) { return 0; }
AOTI_API int32_t AOTInductorSetPinnedAsyncConstantsCopyCpuThreads(size_t) { return 0; }
AOTI_API int32_t AOTInductorGetLastError(const char **out) { return *out = last_error, 0; }
}
