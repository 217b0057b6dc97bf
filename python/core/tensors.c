/* Python's tensors as the runtime's, and back. Nothing is copied on the host: arguments lend their memory for a call, results own theirs. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

/* Types of arguments as they were met; few in any process. What is asked of every argument of every call is asked of the C functions behind the
 * attributes, where the type has them: a third of the time of the attributes. */
enum { KNOWN_TYPES = 16 };
typedef struct known_type {
  PyTypeObject *type;
  const neso_dl_exchange *exchange; /* its C functions for exchange, if it has them */
  int is_wrapper;                   /* of other tensors, which have the elements: torch's subclasses by __torch_dispatch__ */
  const PyGetSetDef *requires_grad; /* these: NULL: by the attribute */
  PyCFunction is_conj, is_neg;
} known_type;
static known_type known_types[KNOWN_TYPES];

static const struct {
  uint8_t code, bits;
  const char *format; /* of buffers; "": they have none */
} dtypes[] = {
#define NESO_DTYPE(name, NAME, text, kind, bits, part, torch, number, safetensors, numpy, buffer, dlpack, triton) {NESO_DL_##dlpack, bits, buffer},
#include "abi/dtypes.def"
};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

static int dtype_of(neso_dl_dtype t) {
  for (int i = 0; i < DTYPES; ++i)
    if (dtypes[i].code == t.code && dtypes[i].bits == t.bits && t.lanes == 1) return i;
  return -1;
}

static int dtype_of_format(const char *format, Py_ssize_t item) {
  if (!format) return NESO_U8;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  /* The letters for 64 bits differ between platforms. */
  if (!strcmp(format, "q") || !strcmp(format, "l")) return item == 8 ? NESO_I64 : NESO_I32;
  if (!strcmp(format, "Q") || !strcmp(format, "L")) return item == 8 ? NESO_U64 : NESO_U32;
  for (int i = 0; i < DTYPES; ++i)
    if (*dtypes[i].format && !strcmp(format, dtypes[i].format)) return i;
  return -1;
}

void dl_dtype_of(neso_dtype dtype, uint8_t *code, uint8_t *bits) {
  *code = dtypes[dtype].code;
  *bits = dtypes[dtype].bits;
}

static int has_attribute(PyTypeObject *type, const char *name) { return PyObject_HasAttrString((PyObject *)type, name); }

/* Whether what `type` has under that name is what its base has: nobody overrides it. */
static int same_attribute(PyTypeObject *type, PyTypeObject *base, const char *name) {
  PyObject *here = PyObject_GetAttrString((PyObject *)type, name), *there = PyObject_GetAttrString((PyObject *)base, name);
  PyErr_Clear();
  const int same = here && here == there;
  Py_XDECREF(here);
  Py_XDECREF(there);
  return same;
}

static const PyGetSetDef *getter_of(PyTypeObject *type, const char *name) {
  for (PyTypeObject *base = type; base; base = PyType_GetSlot(base, Py_tp_base))
    for (const PyGetSetDef *row = PyType_GetSlot(base, Py_tp_getset); row && row->name; ++row)
      if (!strcmp(row->name, name)) return row->get && same_attribute(type, base, name) ? row : NULL;
  return NULL;
}

static PyCFunction method_of(PyTypeObject *type, const char *name) {
  for (PyTypeObject *base = type; base; base = PyType_GetSlot(base, Py_tp_base))
    for (const PyMethodDef *row = PyType_GetSlot(base, Py_tp_methods); row && row->ml_name; ++row)
      if (!strcmp(row->ml_name, name)) return row->ml_flags == METH_NOARGS && same_attribute(type, base, name) ? row->ml_meth : NULL;
  return NULL;
}

static const neso_dl_exchange *find_exchange(PyTypeObject *type) {
  PyObject *capsule = PyObject_GetAttrString((PyObject *)type, "__dlpack_c_exchange_api__");
  const neso_dl_exchange *exchange = capsule ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api") : NULL;
  Py_XDECREF(capsule);
  PyErr_Clear();
  while (exchange && exchange->version.major != NESO_DLPACK_MAJOR) exchange = exchange->previous;
  return exchange && exchange->borrow ? exchange : NULL;
}

/* What is known of the type; in `unkept` where there is no more place for it. */
static const known_type *known(PyTypeObject *type, known_type *unkept) {
  int at = 0;
  for (; at < KNOWN_TYPES && known_types[at].type; ++at)
    if (known_types[at].type == type) return &known_types[at];
  *unkept = (known_type){type, find_exchange(type), has_attribute(type, "__tensor_flatten__"), NULL, NULL, NULL};
  if (at == KNOWN_TYPES) return unkept;
  if (unkept->exchange) {
    unkept->requires_grad = getter_of(type, "requires_grad");
    unkept->is_conj = method_of(type, "is_conj");
    unkept->is_neg = method_of(type, "is_neg");
  }
  Py_INCREF((PyObject *)type);
  known_types[at] = *unkept;
  return &known_types[at];
}

const neso_dl_exchange *exchange_of(PyTypeObject *type) {
  known_type unkept;
  return known(type, &unkept)->exchange;
}

static int take_dl(const neso_dl_tensor *t, const char *what, neso_tensor *out) {
  const int dtype = dtype_of(t->dtype);
  if (dtype < 0) return refuse(NESO_INPUT_DTYPE, "%s has a dtype that Neso does not know (DLPack code %d, %d bits)", what, t->dtype.code, t->dtype.bits);
  /* Pinned host memory is the host's. */
  if (t->device.type != 1 && t->device.type != 2 && t->device.type != 3)
    return refuse(NESO_INPUT_DEVICE, "%s lies on a device that is neither the host nor CUDA", what);
  const int cuda = t->device.type == 2;
  *out = (neso_tensor){(char *)t->data + t->byte_offset, t->sizes, t->strides, t->rank, (neso_dtype)dtype, cuda ? NESO_CUDA : NESO_CPU, cuda ? t->device.index : 0};
  /* Empty tensors have no memory; the runtime takes NULL for an absent one. */
  static _Alignas(64) char nothing[64];
  if (!t->data) out->data = nothing;
  return 0;
}

/* Whether torch records for gradients now. -1: failed. */
static int grad_enabled(result_maker *maker) {
  static PyObject *asked; /* torch.is_grad_enabled; NULL: torch has not been loaded so far */
  if (maker->grad == GRAD_UNKNOWN) {
    PyObject *found = asked ? asked : call_hook("grad_function", NULL);
    if (!found) return -1;
    if (found == Py_None) return Py_DECREF(found), 0;
    asked = found;
    PyObject *enabled = PyObject_CallNoArgs(asked);
    if (!enabled) return -1;
    maker->grad = enabled == Py_True ? GRAD_ON : GRAD_OFF;
    Py_DECREF(enabled);
  }
  return maker->grad == GRAD_ON;
}

/* A tensor that requires a gradient would lose it. */
static int check_grad(const known_type *k, PyObject *object, const char *what, result_maker *maker) {
  static PyObject *name;
  const int enabled = grad_enabled(maker);
  if (enabled <= 0) return enabled;
  if (!name) name = PyUnicode_InternFromString("requires_grad");
  PyObject *value = k->requires_grad ? k->requires_grad->get(object, k->requires_grad->closure) : PyObject_GetAttr(object, name);
  if (!value) PyErr_Clear();
  const int required = value == Py_True;
  Py_XDECREF(value);
  if (!required) return 0;
  return refuse(NESO_INVALID_ARGUMENT, "%s requires a gradient, which a package cannot give; call it under torch.no_grad(), or pass x.detach()", what);
}

/* 1: the method says yes; 0: it says no, or the type has none. */
static int says_yes(PyObject *object, PyCFunction method, PyObject **name, const char *text) {
  if (!*name) *name = PyUnicode_InternFromString(text);
  PyObject *value = method ? method(object, NULL) : PyObject_CallMethodObjArgs(object, *name, NULL);
  if (!value) PyErr_Clear();
  Py_XDECREF(value);
  return value == Py_True;
}

/* A tensor that wraps others has no elements of its own: what its memory holds, if it has any, means nothing. */
static int check_wrapper(const known_type *k, PyObject *object, const char *what) {
  if (!k->is_wrapper) return 0;
  PyObject *name = PyType_GetName(Py_TYPE(object)), *bytes = name ? PyUnicode_AsUTF8String(name) : NULL;
  refuse(NESO_INVALID_ARGUMENT, "%s is a %s, a tensor that wraps others; pass a plain one (as by x.dequantize() or x.to_local()), or those that it wraps", what, bytes ? PyBytes_AsString(bytes) : "subclass");
  Py_XDECREF(name);
  Py_XDECREF(bytes);
  return -1;
}

/* Torch puts conjugation and the change of a sign off: such a tensor shares the memory of another, and its values are not in it. Other
 * libraries' exchange refuses them; torch's C functions hand the memory out. */
static int check_lazy(const known_type *k, PyObject *object, neso_dl_dtype dtype, const char *what) {
  static PyObject *is_conj, *is_neg;
  const int complex = dtype.code == NESO_DL_COMPLEX;
  if (complex && says_yes(object, k->is_conj, &is_conj, "is_conj"))
    return refuse(NESO_INVALID_ARGUMENT, "%s is a conjugate that torch has not computed yet; pass x.resolve_conj()", what);
  if ((complex || dtype.code == NESO_DL_FLOAT || dtype.code == NESO_DL_BFLOAT) && says_yes(object, k->is_neg, &is_neg, "is_neg"))
    return refuse(NESO_INVALID_ARGUMENT, "%s has a sign that torch has not applied yet; pass x.resolve_neg()", what);
  return 0;
}

/* What another library says of a tensor that it cannot hand out (it lies nowhere, is sparse, …), its first line, as a refusal of the argument. */
static int unreadable(const char *what) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyObject *text = value ? PyObject_Str(value) : NULL, *bytes = text ? PyUnicode_AsUTF8String(text) : NULL;
  PyErr_Clear();
  const char *line = bytes ? PyBytes_AsString(bytes) : "its library does not say why";
  const int failed = refuse(NESO_INVALID_ARGUMENT, "%s cannot be read: %.*s; pass a dense tensor on the host or on a CUDA device", what, (int)strcspn(line, "\n"), line);
  Py_XDECREF(bytes);
  Py_XDECREF(text);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(trace);
  return failed;
}

static int read_exchange(const known_type *k, PyObject *object, const char *what, argument *a, neso_tensor *out, result_maker *maker) {
  if (check_wrapper(k, object, what) || check_grad(k, object, what, maker)) return -1;
  if (k->exchange->borrow(object, &a->borrowed)) return unreadable(what);
  if (check_lazy(k, object, a->borrowed.dtype, what)) return -1;
  return take_dl(&a->borrowed, what, out);
}

static int read_buffer(PyObject *object, const char *what, int writable, argument *a, neso_tensor *out, int dtype) {
  a->has_view = 1;
  const Py_buffer *v = &a->view;
  if (writable && v->readonly) return refuse(NESO_INVALID_ARGUMENT, "%s is read-only, and the model writes to it", what);
  if (dtype < 0) dtype = dtype_of_format(v->format, v->itemsize);
  if (dtype < 0) return refuse(NESO_INPUT_DTYPE, "%s has elements of format '%s', which no model takes", what, v->format);
  if (v->ndim > a->strides_capacity) {
    int64_t *grown = realloc(a->strides, sizeof(int64_t) * (size_t)v->ndim);
    if (!grown) return PyErr_NoMemory(), -1;
    a->strides = grown;
    a->strides_capacity = v->ndim;
  }
  for (int d = 0; d < v->ndim; ++d) {
    if (v->strides[d] % v->itemsize) return refuse(NESO_INVALID_ARGUMENT, "%s has strides that are no multiple of its elements", what);
    a->strides[d] = v->strides[d] / v->itemsize;
  }
  *out = (neso_tensor){v->buf, (const int64_t *)v->shape, a->strides, v->ndim, (neso_dtype)dtype, NESO_CPU, 0};
  return 0;
}

static int read_capsule(PyObject *object, const char *what, int writable, argument *a, neso_tensor *out) {
  PyObject *capsule = call_hook("dlpack_capsule", object);
  if (!capsule) return PyErr_ExceptionMatches(PyExc_BufferError) ? unreadable(what) : -1;
  int failed = 0;
  if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    a->owned = PyCapsule_GetPointer(capsule, "dltensor_versioned");
    PyCapsule_SetName(capsule, "used_dltensor_versioned");
    if (a->owned->version.major != NESO_DLPACK_MAJOR) failed = refuse(NESO_INVALID_ARGUMENT, "%s comes by version %u of DLPack", what, a->owned->version.major);
    else if (writable && (a->owned->flags & NESO_DL_READ_ONLY)) failed = refuse(NESO_INVALID_ARGUMENT, "%s is read-only, and the model writes to it", what);
    else failed = take_dl(&a->owned->tensor, what, out);
  } else if (PyCapsule_IsValid(capsule, "dltensor")) {
    a->owned_plain = PyCapsule_GetPointer(capsule, "dltensor");
    PyCapsule_SetName(capsule, "used_dltensor");
    failed = take_dl(&a->owned_plain->tensor, what, out);
  } else {
    failed = refuse(NESO_INVALID_ARGUMENT, "%s gave no DLPack capsule", what);
  }
  Py_DECREF(capsule);
  return failed;
}

/* 1: `object` was a number for an input that takes one, 0: it was not, -1: failed. */
static int read_number(PyObject *object, const neso_value_info *info, argument *a, neso_tensor *out) {
  if (info->kind == NESO_VALUE_TENSOR) return 0;
  *out = (neso_tensor){&a->scalar, NULL, NULL, 0, info->dtype, NESO_CPU, 0};
  if (info->kind == NESO_VALUE_NONE || info->kind == NESO_VALUE_TEXT || (object == Py_None && info->optional)) {
    out->data = NULL;
    return 1;
  }
  if (info->kind == NESO_VALUE_BOOL && (object == Py_True || object == Py_False)) {
    a->scalar.boolean = object == Py_True;
    out->dtype = NESO_BOOL;
    return 1;
  }
  if (info->kind == NESO_VALUE_FLOAT && (PyFloat_Check(object) || PyLong_Check(object))) {
    a->scalar.real = PyFloat_AsDouble(object);
    out->dtype = NESO_F64;
    return PyErr_Occurred() ? -1 : 1;
  }
  if (info->kind == NESO_VALUE_INT && PyLong_Check(object)) {
    a->scalar.integer = PyLong_AsLongLong(object);
    out->dtype = NESO_I64;
    return PyErr_Occurred() ? -1 : 1;
  }
  return 0;
}

static int read_any(PyObject *object, const neso_value_info *info, const char *what, int writable, argument *a, neso_tensor *out, result_maker *maker) {
  int number = read_number(object, info, a, out);
  if (number) return number < 0 ? -1 : 0;
  known_type unkept;
  const known_type *k = known(Py_TYPE(object), &unkept);
  if (k->exchange) {
    if (maker->kind == MAKER_NONE) maker->exchange = k->exchange, maker->kind = MAKER_EXCHANGE;
    return read_exchange(k, object, what, a, out, maker);
  }
  if (PyObject_CheckBuffer(object)) {
    if (maker->kind == MAKER_NONE) maker->kind = MAKER_NUMPY;
    if (PyObject_GetBuffer(object, &a->view, PyBUF_STRIDES | PyBUF_FORMAT) == 0) return read_buffer(object, what, writable, a, out, -1);
    /* NumPy has no letter for bfloat16 and the like: the same memory as integers, and the dtype's name. */
    PyErr_Clear();
    PyObject *pair = call_hook("as_integers", object);
    int dtype;
    if (!pair) return -1;
    if (!PyArg_ParseTuple(pair, "Oi", &a->viewed, &dtype)) return Py_DECREF(pair), -1;
    Py_INCREF(a->viewed);
    Py_DECREF(pair);
    if (PyObject_GetBuffer(a->viewed, &a->view, PyBUF_STRIDES | PyBUF_FORMAT)) return -1;
    return read_buffer(a->viewed, what, writable, a, out, dtype);
  }
  if (PyObject_HasAttrString(object, "__dlpack__")) {
    if (maker->kind == MAKER_NONE) maker->kind = MAKER_DLPACK, maker->type = (PyObject *)Py_TYPE(object);
    return read_capsule(object, what, writable, a, out);
  }
  PyObject *name = PyType_GetName(Py_TYPE(object)), *bytes = name ? PyUnicode_AsUTF8String(name) : NULL;
  refuse(NESO_INVALID_ARGUMENT, "%s is %s %s; it must be a tensor (of torch, numpy, or any with __dlpack__)", what, "a Python", bytes ? PyBytes_AsString(bytes) : "object");
  Py_XDECREF(name);
  Py_XDECREF(bytes);
  return -1;
}

int read_argument(PyObject *object, const neso_value_info *info, const char *what, int writable, argument *a, neso_tensor *out, result_maker *maker) {
  if (read_any(object, info, what, writable, a, out, maker)) return -1;
  for (int32_t d = 0; writable && out->data && out->strides && d < out->rank; ++d)
    if (out->strides[d] == 0 && out->sizes[d] > 1) return refuse(NESO_INVALID_ARGUMENT, "%s holds several elements in one place, and the model writes to it; pass a copy", what);
  return 0;
}

int read_pointer(PyObject *object, const char *what, argument *a, neso_tensor *out) {
  known_type unkept;
  const known_type *k = known(Py_TYPE(object), &unkept);
  if (k->exchange) {
    if (check_wrapper(k, object, what)) return -1;
    if (k->exchange->borrow(object, &a->borrowed)) return unreadable(what);
    if (check_lazy(k, object, a->borrowed.dtype, what)) return -1;
    return take_dl(&a->borrowed, what, out);
  }
  const neso_value_info info = {.kind = NESO_VALUE_TENSOR};
  result_maker ignored = {0};
  return read_argument(object, &info, what, 0, a, out, &ignored);
}

void release_argument(argument *a) {
  if (a->has_view) PyBuffer_Release(&a->view);
  if (a->owned && a->owned->release) a->owned->release(a->owned);
  if (a->owned_plain && a->owned_plain->release) a->owned_plain->release(a->owned_plain);
  Py_CLEAR(a->viewed);
  a->has_view = 0;
  a->owned = NULL;
  a->owned_plain = NULL;
}

void free_argument(argument *a) {
  release_argument(a);
  free(a->strides);
  a->strides = NULL;
}

/* ---- Results */

static void free_result(neso_dl_versioned *self) { free(self); }

/* Elements between the first and the last one, both included; strides are not negative. */
static size_t extent_of(const neso_tensor *t) {
  size_t extent = 1;
  for (int32_t d = 0; d < t->rank; ++d) extent = t->sizes[d] == 0 ? 0 : extent;
  for (int32_t d = 0; d < t->rank && extent; ++d) extent += (size_t)((t->sizes[d] - 1) * t->strides[d]);
  return extent;
}

neso_dl_versioned *allocate_result(const neso_tensor *wanted) {
  const size_t rank = (size_t)wanted->rank, item = neso_dtype_size(wanted->dtype), extent = extent_of(wanted);
  const size_t head = (sizeof(neso_dl_versioned) + 2 * rank * sizeof(int64_t) + 63) / 64 * 64;
  /* malloc's small blocks come from its thread's cache, those of aligned_alloc do not (glibc 2.36): a tenth of a small call. The elements are
   * aligned to 64 bytes, the head lies in front of them. */
  char *memory = malloc(63 + head + (extent * item + 63) / 64 * 64 + 64);
  if (!memory) return NULL;
  char *data = (char *)(((uintptr_t)memory + head + 63) / 64 * 64);
  neso_dl_versioned *out = (neso_dl_versioned *)memory;
  int64_t *sizes = (int64_t *)(out + 1);
  if (rank) memcpy(sizes, wanted->sizes, rank * sizeof(int64_t));
  if (rank) memcpy(sizes + rank, wanted->strides, rank * sizeof(int64_t));
  const neso_dl_dtype dtype = {dtypes[wanted->dtype].code, dtypes[wanted->dtype].bits, 1};
  *out = (neso_dl_versioned){{NESO_DLPACK_MAJOR, 0}, NULL, free_result, 0, {data, {1, 0}, wanted->rank, dtype, sizes, sizes + rank, 0}};
  return out;
}

neso_dl_versioned *lend_memory(const neso_tensor *t) {
  const size_t rank = (size_t)t->rank;
  neso_dl_versioned *out = malloc(sizeof *out + 2 * rank * sizeof(int64_t));
  if (!out) return NULL;
  int64_t *sizes = (int64_t *)(out + 1);
  if (rank) memcpy(sizes, t->sizes, rank * sizeof(int64_t));
  if (rank) memcpy(sizes + rank, t->strides, rank * sizeof(int64_t));
  const neso_dl_dtype dtype = {dtypes[t->dtype].code, dtypes[t->dtype].bits, 1};
  *out = (neso_dl_versioned){{NESO_DLPACK_MAJOR, 0}, NULL, free_result, 0, {t->data, {t->device == NESO_CUDA ? 2 : 1, t->device_index}, t->rank, dtype, sizes, sizes + rank, 0}};
  return out;
}

static void free_result_there(neso_dl_versioned *self) {
  neso_dl_versioned *inner = self->owner;
  if (inner->release) inner->release(inner);
  free(self);
}

static void ignore_error(void *user, const char *kind, const char *message) {}

neso_dl_versioned *allocate_there(const neso_tensor *wanted, const neso_dl_exchange *exchange) {
  const size_t rank = (size_t)wanted->rank;
  int64_t count = (int64_t)extent_of(wanted);
  const neso_dl_dtype dtype = {dtypes[wanted->dtype].code, dtypes[wanted->dtype].bits, 1};
  /* A row of as many elements as the strides reach: allocators know no strides. */
  neso_dl_tensor row = {NULL, {2, wanted->device_index}, 1, dtype, &count, NULL, 0};
  neso_dl_versioned *inner = NULL, *out = malloc(sizeof *out + 2 * rank * sizeof(int64_t));
  if (!out || exchange->allocate(&row, &inner, NULL, ignore_error) || !inner) return free(out), NULL;
  int64_t *sizes = (int64_t *)(out + 1);
  if (rank) memcpy(sizes, wanted->sizes, rank * sizeof(int64_t));
  if (rank) memcpy(sizes + rank, wanted->strides, rank * sizeof(int64_t));
  *out = (neso_dl_versioned){{NESO_DLPACK_MAJOR, 0}, inner, free_result_there, 0, {(char *)inner->tensor.data + inner->tensor.byte_offset, {2, wanted->device_index}, wanted->rank, dtype, sizes, sizes + rank, 0}};
  return out;
}

/* Memory behind arrays of NumPy. */
typedef struct memory_object {
  PyObject_HEAD
  neso_dl_versioned *memory;
  Py_ssize_t bytes;
} memory_object;

static int memory_buffer(PyObject *self, Py_buffer *view, int flags) {
  memory_object *m = (memory_object *)self;
  return PyBuffer_FillInfo(view, self, m->memory->tensor.data, m->bytes, 0, flags);
}
static void memory_free(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  memory_object *m = (memory_object *)self;
  if (m->memory) m->memory->release(m->memory);
  PyObject_Free(self);
  Py_DECREF(type);
}
static PyType_Slot memory_slots[] = {{Py_bf_getbuffer, (void *)memory_buffer}, {Py_tp_dealloc, (void *)memory_free}, {0, NULL}};
PyType_Spec memory_spec = {"neso._core.Memory", sizeof(memory_object), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, memory_slots};

static PyObject *tuple_of(const int64_t *values, int32_t count, int64_t scale) {
  PyObject *out = PyTuple_New(count);
  for (int32_t i = 0; out && i < count; ++i) PyTuple_SetItem(out, i, PyLong_FromLongLong(values[i] * scale));
  return out;
}

/* numpy.ndarray(sizes, dtype, memory, 0, strides) */
static PyObject *wrap_numpy(neso_dl_versioned *memory, neso_dtype dtype) {
  static PyObject *numpy; /* (ndarray, dtypes) */
  memory_object *owner = PyObject_New(memory_object, (PyTypeObject *)memory_type);
  if (!owner) return memory->release(memory), NULL;
  const neso_dl_tensor *t = &memory->tensor;
  const int64_t item = (int64_t)neso_dtype_size(dtype);
  int64_t extent = 1;
  for (int32_t d = 0; d < t->rank; ++d) extent = t->sizes[d] == 0 ? 0 : extent;
  for (int32_t d = 0; d < t->rank && extent; ++d) extent += (t->sizes[d] - 1) * t->strides[d];
  owner->memory = memory;
  owner->bytes = (Py_ssize_t)(extent * item);
  if (!numpy) numpy = call_hook("numpy_types", NULL);
  PyObject *sizes = tuple_of(t->sizes, t->rank, 1), *strides = tuple_of(t->strides, t->rank, item), *out = NULL;
  PyObject *type = numpy ? PyTuple_GetItem(PyTuple_GetItem(numpy, 1), dtype) : NULL;
  if (type == Py_None) refuse(NESO_INVALID_ARGUMENT, "a result has dtype %s, which numpy lacks: install ml_dtypes, or pass torch tensors", neso_dtype_name(dtype));
  else if (type && sizes && strides) out = PyObject_CallFunction(PyTuple_GetItem(numpy, 0), "OOOiO", sizes, type, (PyObject *)owner, 0, strides);
  Py_XDECREF(sizes);
  Py_XDECREF(strides);
  Py_DECREF(owner);
  return out;
}

static void free_capsule(PyObject *capsule) {
  if (!PyCapsule_IsValid(capsule, "dltensor_versioned")) return;
  neso_dl_versioned *memory = PyCapsule_GetPointer(capsule, "dltensor_versioned");
  memory->release(memory);
}

PyObject *wrap_result(neso_dl_versioned *memory, neso_dtype dtype, const result_maker *maker) {
  if (maker->kind == MAKER_EXCHANGE) {
    void *out = NULL;
    return maker->exchange->import_owned(memory, &out) == 0 ? out : NULL;
  }
  if (maker->kind != MAKER_DLPACK) return wrap_numpy(memory, dtype);
  PyObject *capsule = PyCapsule_New(memory, "dltensor_versioned", free_capsule);
  if (!capsule) return memory->release(memory), NULL;
  PyObject *pair = PyTuple_Pack(2, maker->type, capsule), *out = pair ? call_hook("from_capsule", pair) : NULL;
  Py_XDECREF(pair);
  Py_DECREF(capsule);
  return out;
}

int maker_of_type(PyObject *type, result_maker *maker) {
  const neso_dl_exchange *exchange = exchange_of((PyTypeObject *)type);
  if (exchange) {
    *maker = (result_maker){exchange, MAKER_EXCHANGE, NULL, GRAD_UNKNOWN};
    return 0;
  }
  PyObject *name = PyObject_GetAttrString(type, "__name__");
  if (!name) return -1;
  const int array = PyUnicode_CompareWithASCIIString(name, "ndarray") == 0 && !PyObject_HasAttrString(type, "__jax_array__");
  Py_DECREF(name);
  *maker = (result_maker){NULL, array ? MAKER_NUMPY : MAKER_DLPACK, type, GRAD_UNKNOWN};
  return 0;
}
