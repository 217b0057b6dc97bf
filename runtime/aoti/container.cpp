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

// "cpu", "cuda", "cuda:1".
bool parse_device(const char *text, container *c) {
  if (strcmp(text, "cpu") == 0) return true;
  c->device = NESO_CUDA;
  if (strcmp(text, "cuda") == 0) return true;
  return sscanf(text, "cuda:%d", &c->device_index) == 1;
}

neso_status make_context(const container &c, neso_context **out) {
  neso_context_options o{};
  o.struct_size = sizeof o;
  o.device = c.device;
  o.device_index = c.device_index;
  return neso_context_create(c.model, &o, out);
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

void destroy(container *c) {
  for (lent_tensor *t = c->extracted; t;) {
    lent_tensor *next = t->next;
    c->torch->delete_tensor_object(t->handle);
    free(t);
    t = next;
  }
  for (size_t i = 0; i < c->idle_count; ++i) neso_context_free(c->idle[i]);
  free(c->idle);
  for (size_t i = 0; i < c->constant_count; ++i) free(c->constants[i].name);
  free(c->constants);
  neso_weights_free(c->active);
  neso_weights_free(c->inactive);
  neso_model_free(c->model);
  c->~container();
  free(c);
}

int32_t create(container *c, size_t contexts, const char *device) {
  const char *why = nullptr;
  c->torch = find_torch(&why);
  if (!c->torch) {
    char text[200];
    snprintf(text, sizeof text, "the process has no libtorch with the function %s", why);
    return failed(text);
  }
  if (!parse_device(device, c)) return failed("Neso runs on cpu and on cuda:N");
  const void *bytes = nullptr;
  size_t size = 0;
  if (int32_t bad = outcome(own_package(&bytes, &size))) return bad;
  if (int32_t bad = outcome(neso_model_load_memory(bytes, size, nullptr, &c->model))) return bad;
  if (list_constants(c) != NESO_OK) return failed("out of memory");
  c->context_count = contexts ? contexts : 1;
  c->idle = static_cast<neso_context **>(calloc(c->context_count, sizeof *c->idle));
  if (!c->idle) return failed("out of memory");
  for (size_t i = 0; i < c->context_count; ++i) {
    if (int32_t bad = outcome(make_context(*c, &c->idle[i]))) return bad;
    ++c->idle_count;
  }
  return 0;
}

neso_context *take(container *c) {
  pthread_mutex_lock(&c->lock);
  while (c->idle_count == 0) pthread_cond_wait(&c->freed, &c->lock);
  neso_context *context = c->idle[--c->idle_count];
  pthread_mutex_unlock(&c->lock);
  return context;
}

void give_back(container *c, neso_context *context) {
  pthread_mutex_lock(&c->lock);
  c->idle[c->idle_count++] = context;
  pthread_cond_signal(&c->freed);
  pthread_mutex_unlock(&c->lock);
}

/// Memory of one run.
struct run_tensors {
  neso_tensor *inputs = nullptr, *outputs = nullptr;
  run_tensors() = default;
  run_tensors(const run_tensors &) = delete;
  run_tensors &operator=(const run_tensors &) = delete;
  ~run_tensors() {
    free(inputs);
    free(outputs);
  }
};

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

int32_t run(container *c, AtenTensorHandle *inputs, size_t input_count, AtenTensorHandle *outputs, size_t output_count,
            void *stream) {
  const size_t takes = size_t(neso_model_input_count(c->model)), gives = size_t(neso_model_output_count(c->model));
  if (output_count != gives) return failed("room was given for another number of outputs than the model has");
  run_tensors t;
  t.inputs = static_cast<neso_tensor *>(calloc(takes + 1, sizeof(neso_tensor)));
  t.outputs = static_cast<neso_tensor *>(calloc(gives + 1, sizeof(neso_tensor)));
  if (!t.inputs || !t.outputs) return failed("out of memory");
  if (int32_t bad = bind_inputs(*c, inputs, input_count, t.inputs)) return bad;
  for (size_t i = 0; i < gives; ++i) {
    t.outputs[i].device = c->device;
    t.outputs[i].device_index = c->device_index;
  }
  neso_context *context = take(c);
  int32_t bad = 0;
  if (c->device == NESO_CUDA) bad = outcome(neso_context_set_stream(context, stream ? stream : reinterpret_cast<void *>(1)));
  if (!bad)
    bad = outcome(c->device == NESO_CUDA ? neso_run_async(context, t.inputs, takes, t.outputs, gives)
                                         : neso_run(context, t.inputs, takes, t.outputs, gives));
  if (!bad) bad = hand_out(*c, context, t.outputs, outputs, gives);
  give_back(c, context);
  for (size_t i = 0; bad && i < gives; ++i) {
    if (outputs[i]) c->torch->delete_tensor_object(outputs[i]);
    outputs[i] = nullptr;
  }
  return bad;
}
} // namespace
} // namespace neso_aoti

#define AOTI_API __attribute__((visibility("default")))

extern "C" {

AOTI_API int32_t AOTInductorModelContainerCreateWithDevice(void **out, size_t num_models, const char *device,
                                                           const char *) {
  *out = nullptr;
  void *memory = malloc(sizeof(container));
  if (!memory) return failed("out of memory");
  container *c = new (memory) container;
  if (int32_t bad = create(c, num_models, device)) {
    destroy(c);
    return bad;
  }
  *out = c;
  return 0;
}
AOTI_API int32_t AOTInductorModelContainerCreate(void **out, size_t num_models, bool is_cpu, const char *folder) {
  return AOTInductorModelContainerCreateWithDevice(out, num_models, is_cpu ? "cpu" : "cuda", folder);
}
AOTI_API int32_t AOTInductorModelContainerDelete(void *handle) {
  destroy(of(handle));
  return 0;
}

// The inputs are the library's from here on; the loader frees what is not null afterwards.
AOTI_API int32_t AOTInductorModelContainerRun(void *handle, AtenTensorHandle *inputs, size_t input_count,
                                              AtenTensorHandle *outputs, size_t output_count, void *stream, void *) {
  container *c = of(handle);
  const int32_t bad = run(c, inputs, input_count, outputs, output_count, stream);
  for (size_t i = 0; i < input_count; ++i) {
    c->torch->delete_tensor_object(inputs[i]);
    inputs[i] = nullptr;
  }
  return bad;
}
AOTI_API int32_t AOTInductorModelContainerRunSingleThreaded(void *handle, AtenTensorHandle *inputs, size_t input_count,
                                                            AtenTensorHandle *outputs, size_t output_count, void *stream,
                                                            void *executor) {
  return AOTInductorModelContainerRun(handle, inputs, input_count, outputs, output_count, stream, executor);
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
AOTI_API int32_t AOTInductorGetLastError(const char **out) { return *out = last_error, 0; }
}
