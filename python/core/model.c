/* A loaded model: contexts for concurrent calls, and the call. */
#include "core.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>

/* ---- Contexts */

static void free_slot(model_object *self, call_slot *slot) {
  if (!slot) return;
  neso_context_free(slot->context);
  for (int32_t i = 0; slot->arguments && i < self->input_count + self->output_count; ++i) free_argument(&slot->arguments[i]);
  free(slot->arguments);
  free(slot->inputs);
  free(slot->outputs);
  free(slot->results);
  if (slot->record) free(slot->record->steps);
  free(slot->record);
  free(slot);
}

/* The runtime asks for memory of an output. Without the interpreter's lock. */
static int give_output(void *user, int32_t index, neso_tensor *out) {
  call_slot *slot = user;
  if (out->device == NESO_CUDA && !slot->exchange) return 0;
  neso_dl_versioned *memory = out->device == NESO_CUDA ? allocate_there(out, slot->exchange) : allocate_result(out);
  if (!memory) return 1;
  slot->results[index] = memory;
  out->data = memory->tensor.data;
  return 0;
}

static call_slot *new_slot(model_object *self) {
  const size_t inputs = (size_t)self->input_count + 1, outputs = (size_t)self->output_count + 1;
  call_slot *slot = calloc(1, sizeof *slot);
  if (!slot) return PyErr_NoMemory(), NULL;
  slot->arguments = calloc(inputs + outputs, sizeof *slot->arguments);
  slot->inputs = calloc(inputs, sizeof *slot->inputs);
  slot->outputs = calloc(outputs, sizeof *slot->outputs);
  slot->results = calloc(outputs, sizeof(neso_dl_versioned *));
  if (!slot->arguments || !slot->inputs || !slot->outputs || !slot->results) {
    free_slot(self, slot);
    return PyErr_NoMemory(), NULL;
  }
  neso_context_options options = {.struct_size = sizeof options, .threads = self->threads, .device = self->device, .device_index = self->device_index, .output = give_output, .output_user = slot, .cuda_driver = self->driver, .cublas = self->cublas};
  neso_status status;
  Py_BEGIN_ALLOW_THREADS
  status = neso_context_create(self->model, &options, &slot->context);
  Py_END_ALLOW_THREADS
  if (status == NESO_OK) return slot;
  raise_status(status);
  free_slot(self, slot);
  return NULL;
}

call_slot *take_slot(model_object *self) {
  if (self->bounded && sem_trywait(&self->left)) {
    Py_BEGIN_ALLOW_THREADS
    while (sem_wait(&self->left) && errno == EINTR) {}
    Py_END_ALLOW_THREADS
  }
  call_slot *slot = self->idle;
  if (slot) {
    self->idle = slot->next;
    return slot;
  }
  slot = new_slot(self);
  if (!slot && self->bounded) sem_post(&self->left);
  return slot;
}

void give_back(model_object *self, call_slot *slot) {
  slot->next = self->idle;
  self->idle = slot;
  if (self->bounded) sem_post(&self->left);
}

/* ---- Calls */

static int read_inputs(model_object *self, call_slot *slot, PyObject *values, result_maker *maker) {
  const Py_ssize_t count = PyTuple_Check(values) ? PyTuple_Size(values) : PyList_Size(values);
  if (count != self->input_count) return refuse(NESO_INPUT_COUNT, "%zd inputs were given, the model takes %d", count, self->input_count);
  for (int32_t i = 0; i < self->input_count; ++i) {
    PyObject *value = PyTuple_Check(values) ? PyTuple_GetItem(values, i) : PyList_GetItem(values, i);
    const neso_value_info *info = &self->inputs[i];
    if (read_argument(value, info, self->labels[i], info->mutated, &slot->arguments[i], &slot->inputs[i], maker)) return -1;
  }
  return 0;
}

static int read_outputs(model_object *self, call_slot *slot, PyObject *given) {
  memset(slot->outputs, 0, sizeof *slot->outputs * (size_t)self->output_count);
  for (int32_t i = 0; i < self->output_count; ++i) slot->results[i] = NULL;
  if (!given) return 0;
  if (!PyTuple_Check(given) || PyTuple_Size(given) != self->output_count)
    return refuse(NESO_OUTPUT_MISMATCH, "out= must be one tensor for each of the %d outputs", self->output_count);
  result_maker ignored = {0};
  for (int32_t i = 0; i < self->output_count; ++i) {
    PyObject *value = PyTuple_GetItem(given, i);
    const char *what = self->labels[self->input_count + i];
    if (value != Py_None && read_argument(value, &self->outputs[i], what, 1, &slot->arguments[self->input_count + i], &slot->outputs[i], &ignored)) return -1;
  }
  return 0;
}

static PyObject *result_of(const neso_model *model, const neso_value_info *info, call_slot *slot, int32_t i, PyObject *given, const result_maker *maker) {
  if (given && PyTuple_GetItem(given, i) != Py_None) return Py_NewRef(PyTuple_GetItem(given, i));
  const neso_tensor *out = &slot->outputs[i];
  neso_dl_versioned *memory = slot->results[i];
  slot->results[i] = NULL;
  switch (info->kind) {
  case NESO_VALUE_TENSOR: return wrap_result(memory, info->dtype, maker);
  case NESO_VALUE_INT: return PyLong_FromLongLong(*(int64_t *)out->data);
  case NESO_VALUE_FLOAT: return PyFloat_FromDouble(*(double *)out->data);
  case NESO_VALUE_BOOL: return PyBool_FromLong(*(uint8_t *)out->data);
  case NESO_VALUE_TEXT: return PyUnicode_FromString(neso_model_output_text(model, i));
  default: return Py_NewRef(Py_None);
  }
}

static PyObject *collect(model_object *self, call_slot *slot, PyObject *given, const result_maker *maker) {
  if (self->single && self->output_count == 1) return result_of(self->model, &self->outputs[0], slot, 0, given, maker);
  PyObject *out = PyTuple_New(self->output_count);
  for (int32_t i = 0; out && i < self->output_count; ++i) {
    PyObject *one = result_of(self->model, &self->outputs[i], slot, i, given, maker);
    if (!one) return Py_DECREF(out), NULL;
    PyTuple_SetItem(out, i, one);
  }
  return out;
}

int follow_stream(call_slot *slot, void *stream) {
  if (!stream || stream == slot->stream) return 0;
  neso_status status = neso_context_set_stream(slot->context, stream);
  if (status != NESO_OK) return raise_status(status), -1;
  slot->stream = stream;
  return 0;
}

/* On a GPU, for arguments that lie there: the work goes to the stream that their library works on, results stay there in memory of its
 * own, and nobody waits. 1: so it is; 0: the run waits, and results come back to the host; -1: failed. */
static int stay_there(model_object *self, call_slot *slot, PyObject *given, const result_maker *maker) {
  slot->exchange = NULL;
  if (self->device != NESO_CUDA || maker->kind != MAKER_EXCHANGE || !maker->exchange->allocate || !maker->exchange->current_stream) return 0;
  int there = 0, here = 0;
  for (int32_t i = 0; i < self->input_count; ++i) {
    if (self->inputs[i].kind != NESO_VALUE_TENSOR || !slot->inputs[i].data) continue;
    *(slot->inputs[i].device == NESO_CUDA ? &there : &here) = 1;
  }
  if (!there) return 0;
  void *stream = NULL;
  if (maker->exchange->current_stream(2, self->device_index, &stream)) return -1;
  /* Torch says 0 for the legacy stream, for which the runtime has a name of its own. */
  if (!stream) stream = (void *)1;
  if (follow_stream(slot, stream)) return -1;
  slot->exchange = maker->exchange;
  for (int32_t i = 0; i < self->output_count; ++i) {
    if (self->outputs[i].kind != NESO_VALUE_TENSOR) here = 1;
    else if (!given || PyTuple_GetItem(given, i) == Py_None) slot->outputs[i].device = NESO_CUDA, slot->outputs[i].device_index = self->device_index;
    else if (slot->outputs[i].device != NESO_CUDA) here = 1;
  }
  return !here;
}

/* Where no argument says what results are made of: torch's tensors where it is loaded. */
static int default_maker(const model_object *self, PyObject *given, result_maker *maker) {
  int tensors = 0;
  for (int32_t i = 0; i < self->output_count; ++i) tensors |= self->outputs[i].kind == NESO_VALUE_TENSOR;
  if (maker->kind != MAKER_NONE || given || !tensors) return 0;
  PyObject *type = call_hook("result_type", NULL);
  const int failed = !type || maker_of_type(type, maker);
  Py_XDECREF(type);
  return failed ? -1 : 0;
}

/* One run on flat inputs. given: a tuple of the caller's outputs, or NULL. stream: that the caller chose for this run; NULL: none. A tuple of
 * results, or the only one. */
static PyObject *run_flat(model_object *self, PyObject *values, PyObject *given, void *stream) {
  PyObject *reshape = self->reshape && self->reshape != Py_None ? PyObject_CallFunctionObjArgs(self->reshape, values, NULL) : NULL;
  if (!reshape && self->reshape && self->reshape != Py_None) return NULL;
  call_slot *slot = take_slot(self);
  if (!slot) return Py_XDECREF(reshape), NULL;
  result_maker maker = {0};
  PyObject *out = NULL;
  int failed = follow_stream(slot, stream) || (self->result_type && self->result_type != Py_None && maker_of_type(self->result_type, &maker));
  failed = failed || read_outputs(self, slot, given) || read_inputs(self, slot, values, &maker) || default_maker(self, given, &maker);
  int queued = failed ? -1 : stay_there(self, slot, given, &maker);
  if (queued >= 0) {
    neso_status status;
    PyObject *sink = Py_XNewRef(profile_sink);
    if (sink) watch_run(slot);
    Py_BEGIN_ALLOW_THREADS
    status = (queued ? neso_run_async : neso_run)(slot->context, slot->inputs, (size_t)self->input_count, slot->outputs, (size_t)self->output_count);
    Py_END_ALLOW_THREADS
    if (sink) tell_run((PyObject *)self, slot, status == NESO_OK ? sink : NULL);
    Py_XDECREF(sink);
    out = status == NESO_OK ? collect(self, slot, given, &maker) : raise_status(status);
  }
  for (int32_t i = 0; i < self->output_count; ++i) {
    if (slot->results[i]) slot->results[i]->release(slot->results[i]);
    slot->results[i] = NULL;
  }
  for (int32_t i = 0; i < self->input_count + (given ? self->output_count : 0); ++i) release_argument(&slot->arguments[i]);
  /* The caller may destroy its stream once this call's work is done: the context goes on behind it on its own. */
  if (stream && neso_context_set_stream(slot->context, NULL) == NESO_OK) slot->stream = NULL;
  give_back(self, slot);
  if (reshape && out) {
    PyObject *done = PyObject_CallFunctionObjArgs(reshape, NULL);
    if (!done) Py_CLEAR(out);
    Py_XDECREF(done);
  }
  Py_XDECREF(reshape);
  return out;
}

/* The same on `stream`, an object of the caller's; None: where the work of its library goes. */
static PyObject *run_on(model_object *self, PyObject *values, PyObject *given, PyObject *stream) {
  if (!stream || stream == Py_None) return run_flat(self, values, given, NULL);
  PyObject *asked = Py_BuildValue("(OO)", (PyObject *)self, stream), *found = asked ? call_hook("on_stream", asked) : NULL, *out = NULL;
  unsigned long long handle = 0;
  PyObject *current = NULL;
  if (found && PyArg_ParseTuple(found, "KO", &handle, &current)) {
    /* Torch gives memory of results in the order of its current stream, which is this one meanwhile. */
    PyObject *entered = current == Py_None ? Py_NewRef(current) : PyObject_CallMethod(current, "__enter__", NULL);
    if (entered) out = run_flat(self, values, given, (void *)(uintptr_t)handle);
    if (entered && current != Py_None) {
      PyObject *type, *value, *trace;
      PyErr_Fetch(&type, &value, &trace);
      PyObject *left = PyObject_CallMethod(current, "__exit__", "OOO", Py_None, Py_None, Py_None);
      if (!left && type) PyErr_Clear();
      else if (!left) Py_CLEAR(out);
      Py_XDECREF(left);
      if (type) PyErr_Restore(type, value, trace);
    }
    Py_XDECREF(entered);
  }
  Py_XDECREF(asked);
  Py_XDECREF(found);
  return out;
}

/* Takes `name` out of *kwargs, which then is a copy. New reference; NULL: not given, or *failed. */
static PyObject *take_keyword(PyObject **kwargs, const char *name, int *failed) {
  PyObject *value = *kwargs ? PyDict_GetItemString(*kwargs, name) : NULL;
  if (!value || *failed) return NULL;
  Py_INCREF(value);
  PyObject *rest = PyDict_Copy(*kwargs);
  *failed = !rest || PyDict_DelItemString(rest, name);
  Py_DECREF(*kwargs);
  *kwargs = rest;
  if (*failed) Py_CLEAR(value);
  return value;
}

/* out=tensor, or a tuple or list of them. Steals the reference. */
static PyObject *as_tuple(PyObject *out) {
  if (!out || PyTuple_Check(out)) return out;
  PyObject *tuple = PyList_Check(out) ? PyList_AsTuple(out) : PyTuple_Pack(1, out);
  Py_DECREF(out);
  return tuple;
}

static PyObject *call_model(PyObject *object, PyObject *args, PyObject *kwargs) {
  model_object *self = (model_object *)object;
  PyObject *given = NULL, *stream = NULL, *rest = Py_XNewRef(kwargs), *flat = NULL, *out = NULL;
  int failed = 0;
  if (kwargs && PyDict_Size(kwargs)) {
    given = take_keyword(&rest, "out", &failed);
    failed |= given && !(given = as_tuple(given));
    /* A model may have an argument of that name. */
    if (!self->stream_is_input) stream = take_keyword(&rest, "stream", &failed);
  }
  if (!failed) {
    if ((!rest || !PyDict_Size(rest)) && PyTuple_Size(args) == self->flat_count) flat = Py_NewRef(args);
    else if (self->flatten) flat = PyObject_CallFunctionObjArgs(self->flatten, args, rest ? rest : Py_None, NULL);
    else refuse(NESO_INPUT_COUNT, "%zd arguments were given, the model takes %d, by position", PyTuple_Size(args), self->input_count);
  }
  if (flat) out = run_on(self, flat, given, stream ? stream : self->stream);
  if (out && self->unflatten) {
    PyObject *tree = PyObject_CallFunctionObjArgs(self->unflatten, out, NULL);
    Py_DECREF(out);
    out = tree;
  }
  Py_XDECREF(flat);
  Py_XDECREF(given);
  Py_XDECREF(stream);
  Py_XDECREF(rest);
  return out;
}

static PyObject *run_method(PyObject *object, PyObject *args) {
  model_object *self = (model_object *)object;
  PyObject *values, *given = NULL;
  if (!PyArg_ParseTuple(args, "O|O", &values, &given)) return NULL;
  if (!PyTuple_Check(values) && !PyList_Check(values)) return PyErr_SetString(PyExc_TypeError, "run takes a list or tuple of the flat inputs"), NULL;
  return run_on(self, values, given == Py_None ? NULL : given, self->stream);
}

/* Waits for all that calls have queued on a GPU. */
static PyObject *synchronize_method(PyObject *object, PyObject *unused) {
  model_object *self = (model_object *)object;
  neso_status status = NESO_OK;
  for (call_slot *slot = self->idle; slot && status == NESO_OK; slot = slot->next) status = neso_context_synchronize(slot->context);
  return status == NESO_OK ? Py_NewRef(Py_None) : raise_status(status);
}

/* ---- Buffers that runs change */

static PyObject *reset_method(PyObject *object, PyObject *unused) {
  model_object *self = (model_object *)object;
  call_slot *slot = take_slot(self);
  if (!slot) return NULL;
  neso_status status = neso_context_reset_buffers(slot->context);
  give_back(self, slot);
  return status == NESO_OK ? Py_NewRef(Py_None) : raise_status(status);
}

/* buffer(name, type of tensor): a copy. */
static PyObject *buffer_method(PyObject *object, PyObject *args) {
  model_object *self = (model_object *)object;
  const char *name;
  PyObject *type;
  result_maker maker;
  if (!PyArg_ParseTuple(args, "sO", &name, &type) || maker_of_type(type, &maker)) return NULL;
  call_slot *slot = take_slot(self);
  if (!slot) return NULL;
  neso_tensor from, to;
  neso_dl_versioned *memory = NULL;
  neso_status status = neso_context_buffer(slot->context, name, &from);
  if (status == NESO_OK) {
    to = from;
    int64_t strides[64], step = 1;
    for (int32_t d = from.rank - 1; d >= 0; step *= from.sizes[d--]) strides[d] = step;
    to.strides = strides;
    to.device = NESO_CPU;
    memory = allocate_result(&to);
    to.data = memory ? memory->tensor.data : NULL;
    status = memory ? neso_tensor_copy(slot->context, &to, &from) : NESO_OUT_OF_MEMORY;
  }
  give_back(self, slot);
  if (status == NESO_OK) return wrap_result(memory, from.dtype, &maker);
  if (memory) memory->release(memory);
  return raise_status(status);
}

/* ---- Making and freeing */

static int read_constants(model_object *self, PyObject *given, neso_model_options *options) {
  const Py_ssize_t count = PyDict_Size(given);
  const char **names = calloc((size_t)count + 1, sizeof *names);
  neso_tensor *tensors = calloc((size_t)count + 1, sizeof *tensors);
  self->constants = calloc((size_t)count + 1, sizeof *self->constants);
  options->constant_names = names;
  options->constants = tensors;
  if (!names || !tensors || !self->constants) return PyErr_NoMemory(), -1;
  PyObject *key, *value;
  Py_ssize_t at = 0;
  const neso_value_info info = {.kind = NESO_VALUE_TENSOR};
  result_maker ignored = {0};
  while (PyDict_Next(given, &at, &key, &value)) {
    const Py_ssize_t i = self->constant_count++;
    names[i] = PyUnicode_AsUTF8AndSize(key, NULL);
    if (!names[i] || read_argument(value, &info, names[i], 0, &self->constants[i], &tensors[i], &ignored)) return -1;
  }
  options->constant_count = (size_t)count;
  return 0;
}

static int read_signature(model_object *self, int contexts) {
  self->input_count = neso_model_input_count(self->model);
  self->output_count = neso_model_output_count(self->model);
  self->inputs = calloc((size_t)self->input_count + 1, sizeof *self->inputs);
  self->outputs = calloc((size_t)self->output_count + 1, sizeof *self->outputs);
  self->labels = calloc((size_t)(self->input_count + self->output_count) + 1, sizeof(char *));
  if (!self->inputs || !self->outputs || !self->labels) return PyErr_NoMemory(), -1;
  for (int32_t i = 0; i < self->input_count + self->output_count; ++i) {
    const int32_t out = i - self->input_count;
    char text[160];
    if (out < 0) neso_model_input(self->model, i, &self->inputs[i]), snprintf(text, sizeof text, "input %d ('%s')", i, self->inputs[i].name);
    else neso_model_output(self->model, out, &self->outputs[out]), snprintf(text, sizeof text, "the buffer for output %d", out);
    if (!(self->labels[i] = strdup(text))) return PyErr_NoMemory(), -1;
  }
  self->flat_count = self->input_count;
  /* Runs that change buffers are one after the other, on the one context that has them. */
  for (int32_t i = 0; i < neso_model_constant_count(self->model) && contexts != 1; ++i) {
    neso_constant_info info;
    neso_model_constant(self->model, i, &info);
    if (info.mutated) contexts = 1;
  }
  if (contexts > 0 && sem_init(&self->left, 0, (unsigned)contexts)) return PyErr_SetFromErrno(PyExc_OSError), -1;
  self->bounded = contexts > 0;
  return 0;
}

/* The first context is made when the model is loaded: a machine without the device, or without code that fits it, is found here and not at
 * the first call. */
static int make_first_slot(model_object *self) {
  call_slot *slot = take_slot(self);
  if (!slot) return -1;
  give_back(self, slot);
  return 0;
}

/* Model(source, name, arch, check, threads, device, device_index, constants, driver, cublas, operators, resolver, contexts, objects, perf_map): source is a path or the package's
 * bytes; device -1: the package is only looked at, and no call can be made; operators is the address of an array of neso_op that ends with a
 * row without a name, and outlives the model; 0: none, then resolver, if it is not None, is asked for those that the model calls; contexts: the
 * most calls that run at once; 0: any number; objects: as operators, of neso_object; perf_map: as in neso_model_options. */
static int init_model(PyObject *object, PyObject *args, PyObject *kwargs) {
  model_object *self = (model_object *)object;
  static char *keywords[] = {"source", "name", "arch", "check", "threads", "device", "device_index", "constants", "driver", "cublas", "operators", "resolver", "contexts", "objects", "perf_map", NULL};
  unsigned long long operators = 0, objects = 0;
  PyObject *source, *constants = NULL, *resolver = Py_None;
  const char *name = NULL, *arch = NULL, *driver = NULL, *cublas = NULL;
  int check = 0, device = 0, contexts = 0, perf_map = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|zziiiiOzzKOiKp", keywords, &source, &name, &arch, &check, &self->threads, &device, &self->device_index, &constants, &driver, &cublas, &operators, &resolver, &contexts, &objects, &perf_map)) return -1;
  if (self->model) return PyErr_SetString(PyExc_RuntimeError, "the model is loaded already"), -1;
  self->driver = driver ? strdup(driver) : NULL;
  self->cublas = cublas ? strdup(cublas) : NULL;
  self->device = device < 0 ? NESO_CPU : (neso_device_kind)device;
  neso_model_options options = {.struct_size = sizeof options, .name = name, .arch = arch, .check = (neso_check)check, .look_only = device < 0, .for_device = device < 0 ? 0 : 1 + device, .perf_map = perf_map};
  options.ops = (const neso_op *)(uintptr_t)operators;
  while (options.ops && options.ops[options.op_count].name) ++options.op_count;
  options.objects = (const neso_object *)(uintptr_t)objects;
  while (options.objects && options.objects[options.object_count].name) ++options.object_count;
  int failed = constants && constants != Py_None && read_constants(self, constants, &options);
  neso_status status = NESO_OK;
  if (!failed && PyUnicode_Check(source)) {
    const char *path = PyUnicode_AsUTF8AndSize(source, NULL);
    failed = !path;
    Py_BEGIN_ALLOW_THREADS
    if (path) status = neso_model_load(path, &options, &self->model);
    Py_END_ALLOW_THREADS
  } else if (!failed) {
    failed = PyObject_GetBuffer(source, &self->bytes, PyBUF_SIMPLE);
    self->has_bytes = !failed;
    Py_BEGIN_ALLOW_THREADS
    if (!failed) status = neso_model_load_memory(self->bytes.buf, (size_t)self->bytes.len, &options, &self->model);
    Py_END_ALLOW_THREADS
  }
  free((void *)options.constant_names);
  free((void *)options.constants);
  if (failed) return -1;
  if (status != NESO_OK) return raise_status(status), -1;
  if (read_signature(self, contexts) || (!options.ops && !options.look_only && give_operators(self, resolver))) return -1;
  return options.look_only ? 0 : make_first_slot(self);
}

static int traverse_model(PyObject *object, visitproc visit, void *arg) {
  model_object *self = (model_object *)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->flatten);
  Py_VISIT(self->unflatten);
  Py_VISIT(self->result_type);
  Py_VISIT(self->reshape);
  Py_VISIT(self->stream);
  return 0;
}
static int clear_model(PyObject *object) {
  model_object *self = (model_object *)object;
  Py_CLEAR(self->flatten);
  Py_CLEAR(self->unflatten);
  Py_CLEAR(self->result_type);
  Py_CLEAR(self->reshape);
  Py_CLEAR(self->stream);
  return 0;
}

static void free_model(PyObject *object) {
  model_object *self = (model_object *)object;
  PyTypeObject *type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  if (self->weak_references) PyObject_ClearWeakRefs(object);
  clear_model(object);
  while (self->idle) {
    call_slot *slot = self->idle;
    self->idle = slot->next;
    free_slot(self, slot);
  }
  neso_model_free(self->model);
  free_operators(self);
  for (int32_t i = 0; i < self->constant_count; ++i) free_argument(&self->constants[i]);
  free(self->constants);
  for (int32_t i = 0; self->labels && i < self->input_count + self->output_count; ++i) free(self->labels[i]);
  free(self->labels);
  free(self->driver);
  free(self->cublas);
  free(self->inputs);
  free(self->outputs);
  if (self->bounded) sem_destroy(&self->left);
  if (self->has_bytes) PyBuffer_Release(&self->bytes);
  PyObject_GC_Del(object);
  Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"run", run_method, METH_VARARGS, "run(inputs, out=None): one run on the flat inputs; a tuple of outputs, or the only one"},
    {"launch", launch_method, METH_VARARGS, "launch(name, grid, kinds, args): one kernel of the package"},
    {"describe", describe_model, METH_NOARGS, "what the package says of itself"},
    {"_buffer", buffer_method, METH_VARARGS, "a copy of a buffer that runs change"},
    {"synchronize", synchronize_method, METH_NOARGS, "waits for all that calls have queued on a GPU"},
    {"reset_buffers", reset_method, METH_NOARGS, "puts the buffers that runs change back to the package's values"},
    {NULL, NULL, 0, NULL}};
static PyMemberDef members[] = {
    {"_flatten", T_OBJECT, offsetof(model_object, flatten), 0, NULL},
    {"_unflatten", T_OBJECT, offsetof(model_object, unflatten), 0, NULL},
    {"_result_type", T_OBJECT, offsetof(model_object, result_type), 0, NULL},
    {"_reshape", T_OBJECT, offsetof(model_object, reshape), 0, NULL},
    {"_stream", T_OBJECT, offsetof(model_object, stream), 0, NULL},
    {"_stream_is_input", T_INT, offsetof(model_object, stream_is_input), 0, NULL},
    {"_flat_count", T_INT, offsetof(model_object, flat_count), 0, NULL},
    {"_single", T_INT, offsetof(model_object, single), 0, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(model_object, weak_references), READONLY, NULL},
    {NULL, 0, 0, 0, NULL}};
static PyType_Slot slots[] = {{Py_tp_init, (void *)init_model}, {Py_tp_dealloc, (void *)free_model}, {Py_tp_call, (void *)call_model}, {Py_tp_methods, methods}, {Py_tp_members, members}, {Py_tp_traverse, (void *)traverse_model}, {Py_tp_clear, (void *)clear_model}, {0, NULL}};
PyType_Spec model_spec = {"neso._core.Model", sizeof(model_object), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};
