/* neso._core: the runtime as a Python module. What its files share.
 *
 * The module holds what a call needs to be quick: reading arguments, running without the interpreter's lock, wrapping results. Trees of
 * arguments, defaults and everything that happens once are Python (python/neso). Written against Python's stable interface, so that one
 * file serves every version from 3.11 on. */
#ifndef NESO_PYTHON_CORE_H
#define NESO_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#include <Python.h>
#include <semaphore.h>

#include "abi/dlpack.h"
#include "neso/neso.h"

/* ---- Errors (module.c). All set a Python exception and return NULL or -1. */

/* The failure of a call of the runtime, with its code and text. */
PyObject *raise_status(neso_status status);
/* The same for what this module finds wrong by itself. */
int refuse(neso_status status, const char *format, ...);
/* A function of neso._hooks, called with `argument` (NULL: none). New reference. */
PyObject *call_hook(const char *name, PyObject *argument);

/* ---- Tensors (tensors.c) */

/* Who makes results: the library that the first tensor argument came from. */
typedef struct result_maker {
  const neso_dl_exchange *exchange; /* its C functions; NULL: by `kind` */
  enum { MAKER_NONE, MAKER_NUMPY, MAKER_EXCHANGE, MAKER_DLPACK } kind;
  PyObject *type; /* MAKER_DLPACK: of the tensors; borrowed */
  enum { GRAD_UNKNOWN, GRAD_ON, GRAD_OFF } grad; /* torch's mode, asked once a call */
} result_maker;

/* The runtime's view of one Python object, and what keeps that view alive. */
typedef struct argument {
  neso_dl_tensor borrowed;
  Py_buffer view;
  neso_dl_versioned *owned;
  neso_dl_managed *owned_plain;
  PyObject *viewed; /* of a dtype that buffers cannot say: the same memory as integers */
  int64_t *strides; /* own memory, in elements */
  int has_view;
  int32_t strides_capacity;
  union {
    int64_t integer;
    double real;
    uint8_t boolean;
  } scalar;
} argument;

/* `what`: "input 0 ('x')". `info` says how numbers are meant. `writable`: the run writes there. The tensor borrows from `a` and `object`
 * until release_argument. `maker` is set by the first tensor. */
int read_argument(PyObject *object, const neso_value_info *info, const char *what, int writable, argument *a,
                  neso_tensor *out, result_maker *maker);
/* The memory of a tensor that a kernel is given. Gradients are the caller's matter there. */
int read_pointer(PyObject *object, const char *what, argument *a, neso_tensor *out);
/* The C functions of tensors of that type; NULL: it has none. */
const neso_dl_exchange *exchange_of(PyTypeObject *type);
/* As DLPack says it. */
void dl_dtype_of(neso_dtype dtype, uint8_t *code, uint8_t *bits);
/* Lets go of what was read; `a` may be used again. */
void release_argument(argument *a);
/* And of what it keeps for later calls. */
void free_argument(argument *a);

/* Memory of one result, with its sizes and strides in front. Needs no interpreter lock. NULL: none is left. */
neso_dl_versioned *allocate_result(const neso_tensor *wanted);
/* The same on a GPU, from the allocator of the library that the arguments came from, in the order of its current stream. */
neso_dl_versioned *allocate_there(const neso_tensor *wanted, const neso_dl_exchange *exchange);
/* The same around memory that stays the runtime's. */
neso_dl_versioned *lend_memory(const neso_tensor *t);
/* A tensor of the maker's kind around the memory, which it owns from now on, also after a failure. */
PyObject *wrap_result(neso_dl_versioned *memory, neso_dtype dtype, const result_maker *maker);
/* The maker that a type of tensors stands for (torch.Tensor, numpy.ndarray). */
int maker_of_type(PyObject *type, result_maker *maker);

/* ---- Profiles (profile.c) */

/* A step of a run as the runtime told of it. Its strings are the model's. */
typedef struct step_record {
  const char *what, *kernel; /* kernel: NULL but for launches */
  int32_t subplan;
  int64_t step, begin, end; /* nanoseconds of the monotonic clock; end 0: it did not come to its end */
  uint32_t grid[3];
  int32_t depth; /* of steps around it */
} step_record;
typedef struct run_record {
  step_record *steps;
  size_t count, capacity;
  size_t open[64]; /* begun and not ended, outermost first */
  int32_t depth;
  int64_t begin;
} run_record;

struct call_slot;
/* Whom runs are told to, as profile_sink(model, begin, end, steps); NULL: nobody. Changed under the interpreter's lock. */
extern PyObject *profile_sink;
/* profile(callable or None): sets it. */
PyObject *set_profile(PyObject *module, PyObject *sink);
int64_t now_ns(void);
/* The next run of the slot's context is recorded. */
void watch_run(struct call_slot *slot);
/* Stops, and tells what was recorded (sink NULL: tells nobody). With the interpreter's lock. */
void tell_run(PyObject *model, struct call_slot *slot, PyObject *sink);
/* The same for one launch of a kernel. */
void tell_launch(PyObject *model, const char *kernel, const uint32_t grid[3], int64_t begin, PyObject *sink);

/* ---- Models (model.c, describe.c) */

/* A context and the memory that one call needs. */
typedef struct call_slot {
  struct call_slot *next;
  neso_context *context;
  argument *arguments; /* inputs, then outputs that the caller brings */
  neso_tensor *inputs, *outputs;
  neso_dl_versioned **results;
  const neso_dl_exchange *exchange; /* of the call under way: who gives memory for results on a GPU; NULL: nobody */
  void *stream;                     /* that the context was told last; NULL: its own */
  run_record *record;               /* of runs that are profiled; NULL: none was so far */
} call_slot;

typedef struct model_object {
  PyObject_HEAD
  neso_model *model;
  Py_buffer bytes; /* of a package in memory */
  int has_bytes;
  int32_t input_count, output_count, constant_count;
  neso_value_info *inputs, *outputs;
  char **labels; /* of inputs, then outputs, in failures: "input 0 ('x')" */
  argument *constants;
  call_slot *idle;
  sem_t left; /* contexts that may be taken; models that change buffers run one call at a time, on one context */
  int bounded;
  PyObject *flatten, *unflatten, *result_type;
  PyObject *reshape;   /* of a model that gives its inputs other shapes: called with them before a run, gives what is called behind it; else NULL or None */
  PyObject *stream;    /* of every call that names none; NULL or None: that of the arguments' library */
  int stream_is_input; /* stream= is an argument of the model's */
  int32_t flat_count; /* positional arguments that need no flattening; -1: all do */
  int single;         /* the result is its only output */
  int threads;
  neso_device_kind device;
  int32_t device_index;
  neso_op *operators; /* functions of Python's; NULL: none */
  int32_t operator_count;
  char *driver, *cublas; /* paths of CUDA's libraries; NULL: where the runtime looks */
  PyObject *weak_references;
} model_object;

/* A context that nobody uses; where their number is bounded callers wait for one. */
call_slot *take_slot(model_object *self);
void give_back(model_object *self, call_slot *slot);
/* Later work of the slot's context goes to that stream; NULL: where it went so far. */
int follow_stream(call_slot *slot, void *stream);

extern PyType_Spec model_spec, memory_spec, kernel_spec;
/* Set when the module is made: of models, and of the memory behind NumPy's results. */
extern PyObject *model_type, *memory_type;

/* ---- Kernels (launch.c) */

/* launch(name, grid, letters, args, stream=0) of models: letters has one for each argument: p a pointer, i an integer, f and d floats.
 * stream: of CUDA, on which the launch is queued; 0: the context's own. */
PyObject *launch_method(PyObject *object, PyObject *args);

/* ---- Operators of the caller's (operators.c) */

/* Asks resolver(name), None or a function(arguments, outputs, asked, stream) each, for what the loaded model calls. */
int give_operators(model_object *self, PyObject *resolver);
void free_operators(model_object *self);

/* Everything that a package says of itself, as a dictionary. */
PyObject *describe_model(PyObject *self, PyObject *unused);

#endif
