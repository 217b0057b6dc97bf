/* Launches of kernels: a package's by name, and kernel[grid](…) of programs in Triton, which finds the compiled kernel for arguments of kinds
 * that were launched before and takes Python's way for all others. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

/* Arguments of one launch; more are refused, or go Python's way. */
enum { MOST_ARGUMENTS = 256, MOST_PARAMETERS = 64, MOST_OPTIONS = 8, MOST_VARIANTS = 256 };

/* ---- One launch */

/* The launch itself, on a free context, without the interpreter's lock. stream: of CUDA; NULL: the context's own. */
static int launch_packed(model_object *model, const char *name, const uint32_t grid[3], const union neso_arg *packed, size_t count, void *stream) {
  /* What memory the arguments have behind them is not known here. */
  int64_t bytes[MOST_ARGUMENTS];
  for (size_t i = 0; i < count; ++i) bytes[i] = -1;
  call_slot *slot = take_slot(model);
  if (!slot) return -1;
  int failed = follow_stream(slot, stream);
  if (!failed) {
    neso_status status;
    PyObject *sink = Py_XNewRef(profile_sink);
    const int64_t begin = sink ? now_ns() : 0;
    Py_BEGIN_ALLOW_THREADS
    status = neso_kernel_launch_checked(slot->context, name, grid, packed, bytes, count);
    Py_END_ALLOW_THREADS
    if (sink && status == NESO_OK) tell_launch((PyObject *)model, name, grid, begin, sink);
    Py_XDECREF(sink);
    if (status != NESO_OK) raise_status(status), failed = -1;
  }
  give_back(model, slot);
  return failed;
}

static int read_integer(PyObject *value, union neso_arg *out) {
  int overflow;
  out->i64 = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (overflow > 0) out->i64 = (int64_t)PyLong_AsUnsignedLongLong(value);
  else if (overflow < 0) PyErr_SetString(PyExc_OverflowError, "an argument is below what 64 bits hold");
  return PyErr_Occurred() ? -1 : 0;
}

/* letter: p a pointer, i an integer, f and d floats. */
static int read_launch_argument(PyObject *value, char letter, int index, argument *a, union neso_arg *out) {
  if (letter == 'i') return read_integer(value, out);
  if (letter == 'f' || letter == 'd') {
    const double v = PyFloat_AsDouble(value);
    if (letter == 'f') out->f32 = (float)v;
    else out->f64 = v;
    return PyErr_Occurred() ? -1 : 0;
  }
  if (value == Py_None || PyLong_Check(value)) {
    out->ptr = value == Py_None ? NULL : PyLong_AsVoidPtr(value);
    return PyErr_Occurred() ? -1 : 0;
  }
  neso_tensor t;
  char what[32];
  PyOS_snprintf(what, sizeof what, "argument %d", index);
  if (read_pointer(value, what, a, &t)) return -1;
  out->ptr = t.data;
  return 0;
}

PyObject *launch_method(PyObject *object, PyObject *args) {
  const char *name, *letters;
  PyObject *values;
  uint32_t grid[3];
  Py_ssize_t stream = 0;
  if (!PyArg_ParseTuple(args, "s(III)sO!|n", &name, &grid[0], &grid[1], &grid[2], &letters, &PyTuple_Type, &values, &stream)) return NULL;
  const Py_ssize_t count = PyTuple_Size(values);
  if (count != (Py_ssize_t)strlen(letters) || count > MOST_ARGUMENTS) return refuse(NESO_KERNEL_ARGUMENTS, "%zd arguments were given, %zu are described", count, strlen(letters)), NULL;
  argument *read = calloc((size_t)count + 1, sizeof *read);
  if (!read) return PyErr_NoMemory();
  union neso_arg packed[MOST_ARGUMENTS];
  Py_ssize_t i = 0;
  while (i < count && read_launch_argument(PyTuple_GetItem(values, i), letters[i], (int)i, &read[i], &packed[i]) == 0) ++i;
  int failed = i < count || launch_packed((model_object *)object, name, grid, packed, (size_t)count, (void *)stream);
  for (i = 0; i < count; ++i) free_argument(&read[i]);
  free(read);
  return failed ? NULL : Py_NewRef(Py_None);
}

/* ---- Kernels as programs call them */

/* What a compiled kernel takes for granted of one argument. */
typedef struct trait {
  enum { CONSTANT, NONE, BOOLEAN, FLOATING, INTEGER, POINTER } kind;
  uint8_t wide, is_one, by_16;    /* INTEGER: whether it fits 32 bits, 64 with and 64 without a sign; POINTER: by_16 */
  uint8_t code, bits, read_only;  /* POINTER: DLPack's, and whether the memory is not to be written */
  int32_t device, index;          /* POINTER: DLPack's */
  PyObject *value;                /* CONSTANT: owned in variants, borrowed else */
  const neso_dl_exchange *exchange;
  union neso_arg read;            /* of this launch */
} trait;

typedef struct parameter {
  PyObject *name, *initial; /* initial: NULL where callers must give it */
  int constant, by_value, by_alignment;
} parameter;

typedef struct option {
  PyObject *name, *value;
} option;

/* A value of a dictionary that must be there, or be missing, for a variant to hold. */
typedef struct guard {
  PyObject *dictionary, *key, *value;
} guard;

/* A compiled kernel and the arguments that it is for. */
typedef struct variant {
  trait *traits;
  option options[MOST_OPTIONS];
  int option_count;
  guard *guards;
  int guard_count;
  PyObject *model, *kernel, *name;
  const char *name_text;
  int count; /* of arguments that are passed, their letters and the parameters that they are */
  char *letters;
  int32_t *places;
} variant;

typedef struct kernel_object {
  PyObject_HEAD
  parameter *parameters;
  int count;
  PyObject *slow, *hooks;
  variant *variants[MOST_VARIANTS];
  int variant_count;
} kernel_object;

/* A call as it was bound; everything is borrowed. */
typedef struct call {
  PyObject *values[MOST_ARGUMENTS];
  option options[MOST_OPTIONS];
  int option_count;
} call;

static int same_name(PyObject *a, PyObject *b) { return a == b || PyUnicode_Compare(a, b) == 0; }

/* 1: bound; 0: not by these rules, so that Python says what is wrong. names, values: of keywords. */
static int bind(kernel_object *self, PyObject *const *args, Py_ssize_t count, PyObject *names, PyObject *const *values, call *out) {
  if (count > self->count) return 0;
  for (int i = 0; i < self->count; ++i) out->values[i] = i < count ? args[i] : NULL;
  out->option_count = 0;
  int expected = (int)count;
  for (Py_ssize_t k = 0; names && k < PyTuple_Size(names); ++k) {
    PyObject *name = PyTuple_GetItem(names, k);
    int at = expected;
    /* Most callers give them in the kernel's order. */
    if (at >= self->count || self->parameters[at].name != name)
      for (at = 0; at < self->count && !same_name(self->parameters[at].name, name);) ++at;
    if (at < self->count) {
      if (out->values[at]) return 0;
      out->values[at] = values[k];
      expected = at + 1;
    } else {
      if (out->option_count == MOST_OPTIONS) return 0;
      out->options[out->option_count++] = (option){name, values[k]};
    }
  }
  for (int i = 0; i < self->count; ++i)
    if (!out->values[i] && !(out->values[i] = self->parameters[i].initial)) return 0;
  return 1;
}

/* Whether a kernel that was compiled for one value is right for the other. Values of types that are not known here are so only as the same object. */
static int same_value(PyObject *a, PyObject *b) {
  if (a == b) return 1;
  if (Py_TYPE(a) != Py_TYPE(b)) return 0;
  if (PyFloat_CheckExact(a)) {
    /* 0.0 and -0.0 are equal and not the same. */
    const double x = PyFloat_AsDouble(a), y = PyFloat_AsDouble(b);
    return memcmp(&x, &y, sizeof x) == 0;
  }
  if (PyUnicode_CheckExact(a)) return PyUnicode_Compare(a, b) == 0;
  if (PyLong_CheckExact(a)) return PyObject_RichCompareBool(a, b, Py_EQ) == 1;
  if (!PyTuple_CheckExact(a) || PyTuple_Size(a) != PyTuple_Size(b)) return 0;
  for (Py_ssize_t i = 0; i < PyTuple_Size(a); ++i)
    if (!same_value(PyTuple_GetItem(a, i), PyTuple_GetItem(b, i))) return 0;
  return 1;
}

static int is_numpy(PyObject *value) {
  static PyObject *array;
  if (!array) {
    PyObject *modules = PyImport_GetModuleDict(), *numpy = modules ? PyDict_GetItemString(modules, "numpy") : NULL;
    array = numpy ? PyObject_GetAttrString(numpy, "ndarray") : NULL;
    PyErr_Clear();
  }
  /* Its scalars lend memory too, and are no pointers. */
  return array && PyObject_TypeCheck(value, (PyTypeObject *)array);
}

/* 1: known, 0: not by these rules; no failure stays. */
static int trait_of(const parameter *p, PyObject *value, argument *a, trait *out) {
  if (p->constant) {
    out->kind = CONSTANT;
    out->value = value;
    /* Lists change behind our back. */
    return !PyList_Check(value);
  }
  if (PyLong_CheckExact(value)) {
    if (read_integer(value, &out->read)) return PyErr_Clear(), 0;
    const int64_t v = out->read.i64;
    int overflow;
    PyLong_AsLongLongAndOverflow(value, &overflow);
    out->kind = INTEGER;
    out->wide = overflow ? 2 : v < INT32_MIN || v > INT32_MAX;
    out->is_one = p->by_value && v == 1;
    out->by_16 = !out->is_one && p->by_alignment && v % 16 == 0;
    return 1;
  }
  if (value == Py_None) return out->kind = NONE, 1;
  if (PyBool_Check(value)) return out->kind = BOOLEAN, out->read.i64 = value == Py_True, 1;
  if (PyFloat_CheckExact(value)) return out->kind = FLOATING, out->read.f64 = PyFloat_AsDouble(value), 1;
  neso_tensor t;
  out->exchange = exchange_of(Py_TYPE(value));
  if (!out->exchange && !is_numpy(value)) return 0;
  if (read_pointer(value, "an argument", a, &t)) return PyErr_Clear(), 0;
  out->kind = POINTER;
  dl_dtype_of(t.dtype, &out->code, &out->bits);
  out->read_only = a->has_view && a->view.readonly;
  out->device = t.device;
  out->index = t.device_index;
  out->by_16 = p->by_alignment && (uintptr_t)t.data % 16 == 0;
  out->read.ptr = t.data;
  return 1;
}

static int same_trait(const trait *a, const trait *b) {
  if (a->kind != b->kind) return 0;
  if (a->kind == INTEGER) return a->wide == b->wide && a->is_one == b->is_one && a->by_16 == b->by_16;
  if (a->kind == POINTER) return a->by_16 == b->by_16 && a->code == b->code && a->bits == b->bits && a->read_only == b->read_only && a->device == b->device && a->index == b->index;
  return a->kind != CONSTANT || same_value(a->value, b->value);
}

static int holds(const variant *v, const call *c, const trait *traits, int count) {
  if (v->option_count != c->option_count) return 0;
  for (int i = 0; i < count; ++i)
    if (!same_trait(&v->traits[i], &traits[i])) return 0;
  for (int i = 0; i < c->option_count; ++i)
    if (!same_name(v->options[i].name, c->options[i].name) || !same_value(v->options[i].value, c->options[i].value)) return 0;
  for (int i = 0; i < v->guard_count; ++i)
    if (PyDict_GetItemWithError(v->guards[i].dictionary, v->guards[i].key) != v->guards[i].value) return PyErr_Clear(), 0;
  return 1;
}

static int read_axis(PyObject *value, uint32_t *out) {
  /* What is no whole number is refused, as Triton does: a grid that is cut off leaves the last programs out. */
  PyObject *whole = PyNumber_Index(value);
  const long long v = whole ? PyLong_AsLongLong(whole) : 0;
  Py_XDECREF(whole);
  if (PyErr_Occurred()) return -1;
  if (v < 0 || v > UINT32_MAX) return refuse(NESO_KERNEL_GRID, "a grid has the size %lld; sizes are 0 to 2147483647", v);
  *out = (uint32_t)v;
  return 0;
}

/* The sizes of a grid: a number, up to three of them, or a function of the arguments by name that gives these. */
static int read_grid(kernel_object *self, PyObject *grid, const call *c, uint32_t out[3]) {
  PyObject *made = NULL;
  if (PyCallable_Check(grid)) {
    PyObject *named = PyDict_New();
    for (int i = 0; named && i < self->count; ++i)
      if (PyDict_SetItem(named, self->parameters[i].name, c->values[i])) Py_CLEAR(named);
    made = named ? PyObject_CallFunctionObjArgs(grid, named, NULL) : NULL;
    Py_XDECREF(named);
    if (!made) return -1;
    grid = made;
  }
  int failed = 0;
  out[0] = out[1] = out[2] = 1;
  if (PyTuple_Check(grid) || PyList_Check(grid)) {
    const Py_ssize_t count = PySequence_Size(grid);
    if (count < 1 || count > 3) failed = refuse(NESO_KERNEL_GRID, "a grid has %zd sizes; it has one to three", count);
    for (Py_ssize_t i = 0; i < count && !failed; ++i)
      failed = read_axis(PyTuple_Check(grid) ? PyTuple_GetItem(grid, i) : PyList_GetItem(grid, i), &out[i]);
  } else {
    failed = read_axis(grid, &out[0]);
  }
  Py_XDECREF(made);
  return failed;
}

/* The stream that the arguments' library works on; NULL: the launch is on the CPU. */
static int stream_of(const trait *traits, int count, void **out) {
  *out = NULL;
  for (int i = 0; i < count; ++i) {
    const trait *t = &traits[i];
    if (t->kind != POINTER || t->device != NESO_CUDA || !t->exchange || !t->exchange->current_stream) continue;
    /* 2 is DLPack's name for CUDA. Torch says 0 for the legacy stream, for which the runtime has a name of its own. */
    if (t->exchange->current_stream(2, t->index, out)) return -1;
    if (!*out) *out = (void *)1;
    return 0;
  }
  return 0;
}

static PyObject *launch_variant(kernel_object *self, variant *v, PyObject *grid, const call *c, const trait *traits) {
  union neso_arg packed[MOST_ARGUMENTS];
  uint32_t sizes[3];
  void *stream;
  if (read_grid(self, grid, c, sizes)) return NULL;
  if (!sizes[0] || !sizes[1] || !sizes[2]) return Py_NewRef(v->kernel);
  if (stream_of(traits, self->count, &stream)) return NULL;
  for (int i = 0; i < v->count; ++i) {
    packed[i] = traits[v->places[i]].read;
    if (v->letters[i] == 'f') packed[i].f32 = (float)traits[v->places[i]].read.f64;
  }
  return launch_packed((model_object *)v->model, v->name_text, sizes, packed, (size_t)v->count, stream) ? NULL : Py_NewRef(v->kernel);
}

/* Python's way, which compiles: slow(grid, args, kwargs). */
static PyObject *call_slow(kernel_object *self, PyObject *grid, PyObject *const *args, Py_ssize_t count, PyObject *names) {
  PyObject *positional = PyTuple_New(count), *keywords = PyDict_New(), *out = NULL;
  for (Py_ssize_t i = 0; positional && i < count; ++i) PyTuple_SetItem(positional, i, Py_NewRef(args[i]));
  int failed = !positional || !keywords;
  for (Py_ssize_t k = 0; !failed && names && k < PyTuple_Size(names); ++k) failed = PyDict_SetItem(keywords, PyTuple_GetItem(names, k), args[count + k]);
  if (!failed) out = PyObject_CallFunctionObjArgs(self->slow, grid, positional, keywords, NULL);
  Py_XDECREF(positional);
  Py_XDECREF(keywords);
  return out;
}

/* The traits of all parameters; 0: one is not known here. */
static int traits_of(kernel_object *self, const call *c, argument *read, trait *traits) {
  for (int i = 0; i < self->count; ++i)
    if (!trait_of(&self->parameters[i], c->values[i], &read[i], &traits[i])) return 0;
  return 1;
}

static int any_hook(const kernel_object *self) {
  for (Py_ssize_t i = 0; i < PyTuple_Size(self->hooks); ++i)
    if (PyList_Size(PyTuple_GetItem(self->hooks, i))) return 1;
  return 0;
}

/* kernel[grid](…): `bound` is the pair of both. */
static PyObject *call_kernel(PyObject *bound, PyObject *const *args, Py_ssize_t count, PyObject *names) {
  kernel_object *self = (kernel_object *)PyTuple_GetItem(bound, 0);
  PyObject *grid = PyTuple_GetItem(bound, 1), *out = NULL;
  call c;
  if (self->count > MOST_PARAMETERS || any_hook(self) || !bind(self, args, count, names, args + count, &c)) return call_slow(self, grid, args, count, names);
  trait traits[MOST_PARAMETERS];
  argument read[MOST_PARAMETERS];
  memset(read, 0, sizeof *read * (size_t)self->count);
  variant *found = NULL;
  if (traits_of(self, &c, read, traits)) {
    for (int i = 0; i < self->variant_count && !found; ++i) {
      if (!holds(self->variants[i], &c, traits, self->count)) continue;
      found = self->variants[i];
      /* What is launched often comes first. */
      if (i) self->variants[i] = self->variants[i / 2], self->variants[i / 2] = found;
    }
  }
  if (found) {
    Py_INCREF((PyObject *)self);
    out = launch_variant(self, found, grid, &c, traits);
    Py_DECREF((PyObject *)self);
  }
  for (int i = 0; i < self->count; ++i) free_argument(&read[i]);
  return found ? out : call_slow(self, grid, args, count, names);
}

static PyMethodDef launcher = {"launch", (PyCFunction)(void (*)(void))call_kernel, METH_FASTCALL | METH_KEYWORDS, "launches the kernel over its grid"};

static PyObject *at_method(PyObject *object, PyObject *grid) {
  PyObject *bound = PyTuple_Pack(2, object, grid), *out = bound ? PyCFunction_NewEx(&launcher, bound, NULL) : NULL;
  Py_XDECREF(bound);
  return out;
}

/* ---- What is remembered */

static void free_variant(variant *v, int parameters) {
  if (!v) return;
  for (int i = 0; v->traits && i < parameters; ++i) Py_XDECREF(v->traits[i].value);
  for (int i = 0; i < v->option_count; ++i) {
    Py_DECREF(v->options[i].name);
    Py_DECREF(v->options[i].value);
  }
  for (int i = 0; i < v->guard_count; ++i) {
    Py_DECREF(v->guards[i].dictionary);
    Py_DECREF(v->guards[i].key);
    Py_XDECREF(v->guards[i].value);
  }
  Py_XDECREF(v->model);
  Py_XDECREF(v->kernel);
  Py_XDECREF(v->name);
  free(v->traits);
  free(v->guards);
  free(v->letters);
  free(v->places);
  free(v);
}

/* guards: a list of (dictionary, key); what they hold now must stay. */
static int keep_guards(variant *v, PyObject *guards) {
  const Py_ssize_t count = PyList_Size(guards);
  if (count < 0 || !(v->guards = calloc((size_t)count + 1, sizeof *v->guards))) return -1;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject *dictionary, *key;
    if (!PyArg_ParseTuple(PyList_GetItem(guards, i), "O!O", &PyDict_Type, &dictionary, &key)) return -1;
    PyObject *value = PyDict_GetItemWithError(dictionary, key);
    if (!value && PyErr_Occurred()) return -1;
    v->guards[v->guard_count++] = (guard){Py_NewRef(dictionary), Py_NewRef(key), Py_XNewRef(value)};
  }
  return 0;
}

/* Letters and places, which must fit the arguments that were given. */
static int keep_places(variant *v, const char *letters, PyObject *places, int parameters) {
  v->count = (int)strlen(letters);
  if (v->count > MOST_ARGUMENTS || PyTuple_Size(places) != v->count) return PyErr_SetString(PyExc_ValueError, "as many letters as places are passed"), -1;
  v->letters = strdup(letters);
  v->places = calloc((size_t)v->count + 1, sizeof *v->places);
  if (!v->letters || !v->places) return PyErr_NoMemory(), -1;
  for (int i = 0; i < v->count; ++i) {
    const long at = PyLong_AsLong(PyTuple_GetItem(places, i));
    if (PyErr_Occurred()) return -1;
    if (at < 0 || at >= parameters) return PyErr_SetString(PyExc_ValueError, "a place is none of the kernel's"), -1;
    static const char *const takes[] = {[CONSTANT] = "", [NONE] = "", [BOOLEAN] = "i", [FLOATING] = "fd", [INTEGER] = "i", [POINTER] = "p"};
    if (!strchr(takes[v->traits[at].kind], letters[i])) return 1;
    v->places[i] = (int32_t)at;
  }
  return 0;
}

/* 1: not to be remembered, -1: failed. */
static int fill_variant(variant *v, kernel_object *self, const call *c, const char *letters, PyObject *places, PyObject *guards) {
  argument read[MOST_PARAMETERS];
  memset(read, 0, sizeof read);
  if (!(v->traits = calloc((size_t)self->count + 1, sizeof *v->traits))) return PyErr_NoMemory(), -1;
  const int known = traits_of(self, c, read, v->traits);
  for (int i = 0; i < self->count; ++i) {
    free_argument(&read[i]);
    Py_XINCREF(v->traits[i].value);
  }
  if (!known) return 1;
  for (int i = 0; i < c->option_count; ++i) v->options[v->option_count++] = (option){Py_NewRef(c->options[i].name), Py_NewRef(c->options[i].value)};
  const int failed = keep_places(v, letters, places, self->count);
  return failed ? failed : keep_guards(v, guards);
}

/* bind() for a dictionary of keywords. */
static int bind_dictionary(kernel_object *self, PyObject *args, PyObject *kwargs, call *c) {
  PyObject *positional[MOST_PARAMETERS], *values[128], *key, *value;
  const Py_ssize_t count = PyTuple_Size(args), named = PyDict_Size(kwargs);
  if (count > MOST_PARAMETERS || named > 128) return 0;
  for (Py_ssize_t i = 0; i < count; ++i) positional[i] = PyTuple_GetItem(args, i);
  PyObject *names = PyTuple_New(named);
  if (!names) return PyErr_Clear(), 0;
  for (Py_ssize_t at = 0, k = 0; PyDict_Next(kwargs, &at, &key, &value); ++k) {
    PyTuple_SetItem(names, k, Py_NewRef(key));
    values[k] = value;
  }
  const int bound = bind(self, positional, count, names, values, c);
  Py_DECREF(names);
  return bound;
}

/* remember(args, kwargs, model, name, letters, places, kernel, guards): launches with such arguments are that kernel's from now on. False:
 * they will go on Python's way. */
static PyObject *remember_method(PyObject *object, PyObject *args) {
  kernel_object *self = (kernel_object *)object;
  PyObject *given, *keywords, *model, *name, *places, *kernel, *guards;
  const char *letters;
  if (!PyArg_ParseTuple(args, "O!O!OUsO!OO!", &PyTuple_Type, &given, &PyDict_Type, &keywords, &model, &name, &letters, &PyTuple_Type, &places, &kernel, &PyList_Type, &guards)) return NULL;
  call c;
  if (self->count > MOST_PARAMETERS || self->variant_count == MOST_VARIANTS || !bind_dictionary(self, given, keywords, &c)) return PyBool_FromLong(0);
  if (!PyObject_TypeCheck(model, (PyTypeObject *)model_type)) return PyErr_SetString(PyExc_TypeError, "remember takes a neso.Model"), NULL;
  variant *v = calloc(1, sizeof *v);
  if (!v) return PyErr_NoMemory();
  const int failed = fill_variant(v, self, &c, letters, places, guards);
  v->model = Py_NewRef(model);
  v->kernel = Py_NewRef(kernel);
  v->name = Py_NewRef(name);
  v->name_text = PyUnicode_AsUTF8AndSize(name, NULL);
  if (failed || !v->name_text) {
    free_variant(v, self->count);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(0);
  }
  self->variants[self->variant_count++] = v;
  return PyBool_FromLong(1);
}

/* Kernel(parameters, slow, hooks): parameters are (name, has a default, the default, constant, by value, by alignment); hooks are lists of
 * those that run around a launch, which is Python's matter where there are any. */
static int init_kernel(PyObject *object, PyObject *args, PyObject *kwargs) {
  kernel_object *self = (kernel_object *)object;
  PyObject *parameters, *slow, *hooks;
  if (self->parameters) return PyErr_SetString(PyExc_RuntimeError, "the kernel is made already"), -1;
  if (!PyArg_ParseTuple(args, "O!OO!", &PyList_Type, &parameters, &slow, &PyTuple_Type, &hooks)) return -1;
  const Py_ssize_t count = PyList_Size(parameters);
  self->slow = Py_NewRef(slow);
  self->hooks = Py_NewRef(hooks);
  if (!(self->parameters = calloc((size_t)count + 1, sizeof *self->parameters))) return PyErr_NoMemory(), -1;
  for (Py_ssize_t i = 0; i < count; ++i) {
    parameter p;
    int optional;
    if (!PyArg_ParseTuple(PyList_GetItem(parameters, i), "UpOppp", &p.name, &optional, &p.initial, &p.constant, &p.by_value, &p.by_alignment)) return -1;
    Py_INCREF(p.name);
    PyUnicode_InternInPlace(&p.name);
    p.initial = optional ? Py_NewRef(p.initial) : NULL;
    self->parameters[self->count++] = p;
  }
  return 0;
}

static int traverse_kernel(PyObject *object, visitproc visit, void *arg) {
  kernel_object *self = (kernel_object *)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->slow);
  Py_VISIT(self->hooks);
  for (int i = 0; i < self->count; ++i) Py_VISIT(self->parameters[i].initial);
  for (int i = 0; i < self->variant_count; ++i) {
    variant *v = self->variants[i];
    for (int k = 0; k < self->count; ++k) Py_VISIT(v->traits[k].value);
    for (int k = 0; k < v->option_count; ++k) Py_VISIT(v->options[k].value);
    for (int k = 0; k < v->guard_count; ++k) {
      Py_VISIT(v->guards[k].dictionary);
      Py_VISIT(v->guards[k].value);
    }
    Py_VISIT(v->model);
    Py_VISIT(v->kernel);
  }
  return 0;
}

static int clear_kernel(PyObject *object) {
  kernel_object *self = (kernel_object *)object;
  Py_CLEAR(self->slow);
  Py_CLEAR(self->hooks);
  while (self->variant_count) free_variant(self->variants[--self->variant_count], self->count);
  for (int i = 0; i < self->count; ++i) Py_CLEAR(self->parameters[i].initial);
  return 0;
}

static void free_kernel(PyObject *object) {
  kernel_object *self = (kernel_object *)object;
  PyTypeObject *type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  clear_kernel(object);
  for (int i = 0; i < self->count; ++i) Py_XDECREF(self->parameters[i].name);
  free(self->parameters);
  PyObject_GC_Del(object);
  Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"at", at_method, METH_O, "at(grid): the call that launches over that grid"},
    {"remember", remember_method, METH_VARARGS, "remember(args, kwargs, model, name, letters, places, kernel, guards): what launches with such arguments do"},
    {NULL, NULL, 0, NULL}};
static PyType_Slot slots[] = {{Py_tp_init, (void *)init_kernel}, {Py_tp_dealloc, (void *)free_kernel}, {Py_tp_methods, methods}, {Py_tp_traverse, (void *)traverse_kernel}, {Py_tp_clear, (void *)clear_kernel}, {0, NULL}};
PyType_Spec kernel_spec = {"neso._core.Kernel", sizeof(kernel_object), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};
