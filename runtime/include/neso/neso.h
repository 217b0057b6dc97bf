/* Neso's runtime: loads packages (.neso) and runs them. This is the whole interface.
 *
 *     neso_model *model;
 *     neso_context *context;
 *     if (neso_model_load("resnet.neso", NULL, &model) || neso_context_create(model, NULL, &context)) puts(neso_error_text());
 *     int64_t sizes[] = {1, 3, 224, 224};
 *     neso_tensor in = {.data = pixels, .dtype = NESO_F32, .rank = 4, .sizes = sizes};
 *     neso_tensor out = {0};
 *     neso_run(context, &in, 1, &out, 1);          // out.data: the logits, valid until the context's next run
 *
 * Names: neso_<noun>_<verb>; what a call gives back comes last and is called out_*. Calls return neso_status (0: done) and never
 * throw; after a failure neso_error_text() says what happened, per thread.
 *
 * Threads: a model is immutable, but for the weights that it uses, and may be used by any number of threads at once. A context serves one call at a time; make one per
 * concurrent run (contexts share the model's constants and code). Nothing here depends on environment variables or global state. */
#ifndef NESO_NESO_H
#define NESO_NESO_H

#include <stddef.h>
#include <stdint.h>

#include "abi/kernel_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(NESO_BUILDING_SHARED)
#define NESO_API __attribute__((visibility("default")))
#else
#define NESO_API
#endif

#define NESO_VERSION_MAJOR 0
#define NESO_VERSION_MINOR 1

typedef enum neso_status {
#define NESO_STATUS(name, value, code, text) NESO_##name = value,
#include "abi/status.def"
#undef NESO_STATUS
} neso_status;

/* "0.1.0": of the library that runs, which may be newer than this header. */
NESO_API const char *neso_version(void);

/* "E0824": the code under which the documentation explains a status; "" for NESO_OK. */
NESO_API const char *neso_status_code(neso_status status);
/* "INPUT_DTYPE". */
NESO_API const char *neso_status_name(neso_status status);
/* What went wrong in this thread's last failed call: what, where, what was expected. Valid until the thread's next
 * failure. */
NESO_API const char *neso_error_text(void);

/* Element types, NESO_F32 and so on: the rows of dtypes.def. Bit layouts are IEEE 754, bfloat16 and OCP FP8; complex numbers are pairs, real
 * part first. */
typedef enum neso_dtype {
#define NESO_DTYPE(name, NAME, text, kind, bits, part, torch, number, safetensors, numpy, buffer, dlpack, triton) NESO_##NAME,
#include "abi/dtypes.def"
} neso_dtype;
/* Bytes of one element; 0 for a value outside the enumeration. */
NESO_API size_t neso_dtype_size(neso_dtype dtype);
/* "f32", "bf16", "i64", "bool"; "?" outside. */
NESO_API const char *neso_dtype_name(neso_dtype dtype);

typedef enum neso_device_kind {
  NESO_CPU = 0,
  NESO_CUDA = 1,
  NESO_NULL = 2 /* runs no kernels, but does everything else, as on a GPU: for checking plans without one */
} neso_device_kind;

/* A tensor in the caller's or the context's memory; the fields of a DLTensor. Sizes and strides count elements,
 * outermost first. */
typedef struct neso_tensor {
  void *data;             /* element 0 */
  const int64_t *sizes;   /* rank of them */
  const int64_t *strides; /* rank of them, or NULL: contiguous */
  int32_t rank;
  neso_dtype dtype;
  neso_device_kind device;
  int32_t device_index;
} neso_tensor;

/* ---- Models
 * ---------------------------------------------------------------------------------------------------------------- */

typedef struct neso_model neso_model;

typedef enum neso_check {
  NESO_CHECK_DEFAULT =
      0, /* plan and code, and constants of up to 32 MiB in all: loading stays independent of the model's size */
  NESO_CHECK_ALL = 1 /* every byte */
} neso_check;

/* A kernel of a package that is linked into the program (from `neso compile --emit asm`, say): it serves the package's kernel of
 * that symbol. */
typedef struct neso_static_kernel {
  const char *symbol;
  neso_cpu_kernel_fn function;
} neso_static_kernel;

/* ---- Operators of the caller's
 *
 * A model may call operators that are not PyTorch's own ("mylib::scale"). Whoever runs it brings them: a row of neso_op for each, in
 * neso_model_options, or an array of rows called neso_ops, ended by one without a name, in a library for `neso run --op-library`.
 * An operator that decides the sizes of its results has a second row, "mylib::scale:sizes": called before it with the same arguments, it fills
 * one row of I64 with those sizes, in the order of results and dimensions.
 * A row of the name "*" is called for every operator that has no row of its own.
 * A method of a script object (torchbind) is an operator of its class: "__torch__.torch.classes.mylib.Table::find", its first argument "self" the
 * object, those without a name "1", "2", …. What such objects are is the caller's affair: a row of neso_object for each, in neso_model_options, or
 * an array of rows called neso_objects, ended by one without a name, in the library of operators. Operators that are given objects are called in the
 * order of the program, each as often as there, also where nobody reads what they return. */
typedef enum neso_op_argument_kind {
  NESO_OP_NONE,
  NESO_OP_TENSOR, /* ints[0]: which of the call's inputs; -1: None */
  NESO_OP_INT,    /* ints[0]; also BOOL and DTYPE, a neso_dtype */
  NESO_OP_FLOAT,
  NESO_OP_BOOL,
  NESO_OP_TEXT,
  NESO_OP_DTYPE,
  NESO_OP_TENSORS,
  NESO_OP_INTS,
  NESO_OP_FLOATS,
  NESO_OP_BOOLS,
  NESO_OP_TEXTS,
  NESO_OP_LAYOUT,        /* ints[0]: the number that torch.export writes, as of MEMORY_FORMAT */
  NESO_OP_MEMORY_FORMAT,
  NESO_OP_DEVICE,        /* texts[0]: "cpu", "cuda:1" */
  NESO_OP_OBJECT         /* ints[0]: which of the call's objects; texts[0]: its class */
} neso_op_argument_kind;
/* Dimension `dim` of tensor `result` of those that an operator returns. */
typedef struct neso_op_size {
  int32_t result, dim;
} neso_op_size;
typedef struct neso_op_argument {
  const char *name; /* in the operator's schema */
  neso_op_argument_kind kind;
  int32_t count; /* of what follows; one where the kind is no list */
  const int64_t *ints;
  const double *floats;
  const char *const *texts;
} neso_op_argument;
/* A script object of the model: an attribute of a module ("encoder.table"), or an argument of forward, by its name. */
typedef struct neso_object {
  const char *name;
  void *object; /* what operators get; the runtime does not look at it */
} neso_object;
/* All borrowed during the call. */
typedef struct neso_op_call {
  size_t struct_size;
  const char *name;
  const neso_op_argument *arguments; /* as in the model: what was left to its default is not there */
  int32_t argument_count;
  const neso_tensor *inputs; /* strides are given; not to be written */
  int32_t input_count;
  const neso_tensor *outputs; /* sizes, strides and memory are given; to be filled */
  int32_t output_count;
  neso_device_kind device;
  int32_t device_index;
  void *stream; /* on a GPU: the CUstream that the work is to be queued on, without waiting */
  /* What went wrong, for the run's message; returns NESO_OP_FAILED. A library of operators needs nothing of the runtime but this header. */
  neso_status (*fail)(const struct neso_op_call *call, const char *text);
  void *failure; /* fail's own */
  int32_t call;  /* which of the model's calls this is, the same in each run and turn of a loop; a call for sizes has the number of the call that
                  * they are for. -1: the package does not say */
  int32_t result_count; /* tensors that the operator returns; for a call for sizes, those that the call after it fills */
  const neso_op_size *asked; /* of a call for sizes: whose sizes its row wants, in order */
  int32_t asked_count;       /* 0: this is no call for sizes */
  void *op_user;             /* neso_context_options.op_user */
  const neso_object *objects; /* as the caller gave them */
  int32_t object_count;
} neso_op_call;
typedef struct neso_op {
  const char *name; /* "mylib::scale"; an overload with a name: "mylib::scale.out"; "*": those that no other row names */
  /* May be called by several threads at once, one for each context. Anything but NESO_OK ends the run with NESO_OP_FAILED. */
  neso_status (*run)(void *user, const neso_op_call *call);
  void *user;
  neso_device_kind device;
} neso_op;

typedef struct neso_model_options {
  size_t struct_size; /* sizeof(neso_model_options): lets later versions add fields */
  const char *name;   /* which model of the package; NULL: its only one, or the only one for the device (for_device) */
  const char *arch; /* "x86-64-v3", "sm_90": use that code; NULL: the best for each device that a context is made on */
  neso_check check;
  const neso_static_kernel *static_kernels; /* looked up before the package's code; borrowed during the call */
  size_t static_kernel_count;
  const char *const *constant_names; /* constants given by the caller, by name; they replace those of the package */
  const neso_tensor
      *constants; /* contiguous, in host memory; borrowed as long as the model lives, not copied (but to a GPU) */
  size_t constant_count;
  int32_t look_only; /* not 0: the model is only described. Its code, for whatever machine, is not loaded, and no
                      * context can be made */
  const char *weights_path; /* of a package whose weights lie in a file: that file; NULL: where the package says, beside it; "": nowhere, they
                             * come by neso_weights */
  const neso_op *ops; /* operators that the model calls, more are allowed; borrowed as long as the model lives. A context of a model that calls one
                       * which is not here for its device cannot be made: NESO_OP_MISSING */
  size_t op_count;
  int32_t for_device; /* 0: not said; else 1 + the neso_device_kind that contexts will be made on. Of several models it chooses the only one with code
                       * for such devices, where `name` is NULL or "m" and they are called "m/…", as `neso compile --target cpu,cuda` does */
  const neso_object *objects; /* script objects that the model uses, more are allowed; rows and objects borrowed as long as the model lives. A context
                               * of a model that uses one which is not here cannot be made: NESO_OBJECT_MISSING */
  size_t object_count;
  int32_t perf_map; /* not 0: the names of the CPU's kernels are appended to /tmp/perf-PID.map, where perf looks for those of code without a file */
} neso_model_options;

/* Opens a package. The file is mapped, not read; it must not be changed while the model lives. options may be NULL. */
NESO_API neso_status neso_model_load(const char *path, const neso_model_options *options, neso_model **out_model);
/* The same from memory, which the caller keeps until the model is freed. Constants are used where they lie when `bytes` is aligned to
 * 64, else copied. */
NESO_API neso_status neso_model_load_memory(const void *bytes, size_t size, const neso_model_options *options,
                                            neso_model **out_model);
/* Frees the model. Its contexts must be gone. NULL is allowed. */
NESO_API void neso_model_free(neso_model *model);

/* Introspection. Strings and arrays belong to the model. Indices out of range give 0, NULL or -1. */
typedef enum neso_value_kind {
  NESO_VALUE_TENSOR,
  NESO_VALUE_INT,
  NESO_VALUE_FLOAT,
  NESO_VALUE_BOOL,
  NESO_VALUE_TEXT,
  NESO_VALUE_NONE
} neso_value_kind;
typedef struct neso_dim {
  int64_t min, max;   /* both inclusive; equal for a fixed size */
  const char *symbol; /* "s0", or NULL: fixed, or an expression of other sizes */
} neso_dim;
typedef struct neso_value_info {
  const char *name;
  neso_value_kind
      kind; /* Int, float and bool values are passed as 0-d tensors of I64, F64, BOOL; text and none are not passed */
  neso_dtype dtype;
  int32_t rank;
  const neso_dim *dims;
  int mutated;  /* inputs: the run writes to the caller's memory */
  int optional; /* inputs: the export fixed the value, data may be NULL */
} neso_value_info;
NESO_API int32_t neso_model_input_count(const neso_model *model);
NESO_API int32_t neso_model_output_count(const neso_model *model);
NESO_API neso_status neso_model_input(const neso_model *model, int32_t index, neso_value_info *out_info);
NESO_API neso_status neso_model_output(const neso_model *model, int32_t index, neso_value_info *out_info);
/* The number of the input or output of that name; -1: there is none. */
NESO_API int32_t neso_model_find_input(const neso_model *model, const char *name);
NESO_API int32_t neso_model_find_output(const neso_model *model, const char *name);
/* What an output of NESO_VALUE_TEXT says: the export fixed it, and runs give nothing for it. NULL for all others. */
NESO_API const char *neso_model_output_text(const neso_model *model, int32_t index);

typedef enum neso_constant_kind {
  NESO_PARAMETER,
  NESO_BUFFER,
  NESO_TENSOR_CONSTANT,
  NESO_FOLDED_CONSTANT
} neso_constant_kind;
typedef struct neso_constant_info {
  const char *name; /* fully qualified, as in state_dict() */
  neso_constant_kind kind;
  int mutated;        /* runs change it: each context has its own copy */
  neso_tensor tensor; /* the value as stored; read-only. data is NULL while the caller has not given it */
} neso_constant_info;
/* Each name once, in the model's own shape. The tensor's data is NULL as well where the package keeps it in another order: neso_weights_get
 * copies it out. */
NESO_API int32_t neso_model_constant_count(const neso_model *model);
NESO_API neso_status neso_model_constant(const neso_model *model, int32_t index, neso_constant_info *out_info);

typedef struct neso_kernel_info {
  const char *name;
  const char *symbol;
  const char *doc;
  int32_t arg_count;
  int64_t scratch_bytes;
  int32_t source_count;
} neso_kernel_info;
NESO_API int32_t neso_model_kernel_count(const neso_model *model);
NESO_API neso_status neso_model_kernel(const neso_model *model, int32_t index, neso_kernel_info *out_info);
/* Line `line` of the sources that a kernel computes: "model.py:12 in relu (layers.0)", with the
 * node of the graph and the module that it ran in. Valid until this thread's next call;
 * NULL past the last. */
NESO_API const char *neso_model_kernel_source(const neso_model *model, int32_t kernel, int32_t line);

/* GPU code of one target: 0 where it is not known (PTX is assembled by the driver). */
typedef struct neso_kernel_usage {
  int32_t threads;       /* of a block */
  int32_t shared_bytes;  /* dynamic shared memory of a block */
  int32_t cluster;       /* blocks of a cluster */
  int32_t registers;     /* of a thread */
  int32_t spill_bytes;   /* stores and loads together */
  int32_t blocks_per_sm; /* that fit one multiprocessor at once */
} neso_kernel_usage;
/* All zero for CPU code. */
NESO_API neso_status neso_model_kernel_usage(const neso_model *model, int32_t kernel, int32_t target,
                                             neso_kernel_usage *out_usage);

/* Of how many tensors the kernel's second code for a target copies boxes (TMA); 0: it has none. That code is launched wherever the driver can
 * describe those tensors: from CUDA 12.0 on, where no tensor is smaller than such a box, and addresses and distances of rows are multiples of 16 bytes. */
NESO_API int32_t neso_model_kernel_boxes(const neso_model *model, int32_t kernel, int32_t target);

typedef struct neso_target_info {
  neso_device_kind kind;
  const char *arch;
  size_t code_bytes;
  int chosen;
} neso_target_info;
NESO_API int32_t neso_model_target_count(const neso_model *model);
NESO_API neso_status neso_model_target(const neso_model *model, int32_t index, neso_target_info *out_info);

typedef struct neso_symbol_info {
  const char *name;
  int64_t min, max, hint;
} neso_symbol_info;
NESO_API int32_t neso_model_symbol_count(const neso_model *model);
NESO_API neso_status neso_model_symbol(const neso_model *model, int32_t index, neso_symbol_info *out_info);

/* Operators of the caller's that the model calls (see neso_op), each once, in the order of their first calls: "mylib::scale". */
NESO_API int32_t neso_model_op_count(const neso_model *model);
NESO_API const char *neso_model_op(const neso_model *model, int32_t index);
/* Gives them after the model was loaded, in place of neso_model_options.ops. Contexts that were made before keep those that they found. */
NESO_API void neso_model_set_ops(neso_model *model, const neso_op *ops, size_t count);
/* Script objects that the model uses (see neso_object), each once, in the order of their first uses. */
typedef struct neso_object_info {
  const char *name;
  const char *class_name; /* "__torch__.torch.classes.mylib.Table" */
} neso_object_info;
NESO_API int32_t neso_model_object_count(const neso_model *model);
NESO_API neso_status neso_model_object(const neso_model *model, int32_t index, neso_object_info *out_info);
/* As neso_model_set_ops, in place of neso_model_options.objects. */
NESO_API void neso_model_set_objects(neso_model *model, const neso_object *objects, size_t count);

/* The sizes that all inputs take when the named sizes have the given values: for making inputs. Sizes that are not named take their hint,
 * else the least value of their range that is at least 2. out_sizes: the dimensions of all inputs, one input after the other. */
NESO_API neso_status neso_model_solve_sizes(const neso_model *model, const char *const *names, const int64_t *values,
                                            size_t count, int64_t *out_sizes);

/* Keys "model", "producer", "in_spec", "out_spec" (PyTorch's serialised tree specs), "input.NAME.reshaped" and what the user gave; NULL: no
 * such key. A model that gives its caller's tensor another shape, as x.transpose_(0, 1) of an input does, says so under the third, as JSON:
 * [["transpose_", 0, 1]]. A run writes that memory as it lay; what a tensor of the caller's has for sizes and strides is the caller's to change. */
NESO_API const char *neso_model_metadata(const neso_model *model, const char *key);
/* The user's keys in order; NULL past the last. */
NESO_API const char *neso_model_metadata_key(const neso_model *model, int32_t index);

typedef struct neso_model_stats {
  size_t package_bytes, plan_bytes, constant_bytes;
  int64_t step_count;    /* steps of all sub-plans */
  int64_t launch_count;  /* launches among them */
  int64_t product_count; /* launches that may be left to a library for matrix products */
  double load_ms;
} neso_model_stats;
NESO_API neso_status neso_model_get_stats(const neso_model *model, neso_model_stats *out_stats);

/* ---- Contexts
 * -------------------------------------------------------------------------------------------------------------- */

typedef struct neso_context neso_context;

/* Calls body(data, i) for every i in [0, n), on any threads, and returns when all are done. i names the worker: no two calls with the
 * same i run at once. n is at most the context's `threads`. */
typedef void (*neso_parallel_for)(void *user, int n, void (*body)(void *data, int i), void *data);

/* One step of a run, for profilers and debuggers. What it reads and writes: neso_context_step_argument. */
typedef struct neso_step_event {
  int64_t step; /* number of the step in its sub-plan */
  int32_t subplan;
  const char *what;   /* "launch", "copy", … */
  const char *kernel; /* name, for launches */
  uint32_t grid[3];
  int after; /* 0: before the step, 1: after it */
} neso_step_event;

typedef struct neso_context_options {
  size_t struct_size;             /* sizeof(neso_context_options) */
  int threads;                    /* 0: one per core that the process may use; 1: everything on the calling thread */
  neso_parallel_for parallel_for; /* the caller's threads; NULL: the context's own, kept between runs */
  void *parallel_for_user;
  /* Memory of the arena, of outputs and of copies; NULL: the C library. 64-byte aligned; NULL return:
   * NESO_OUT_OF_MEMORY. */
  void *(*allocate)(void *user, size_t bytes);
  void (*release)(void *user, void *memory, size_t bytes);
  void *allocator_user;
  /* Called around each step that has something to do, a launch some programs; a non-zero return ends the run with NESO_CANCELLED. NULL: no cost. */
  int (*on_step)(void *user, const neso_step_event *event);
  void *on_step_user;
  /* What kernels print (tl.device_print); NULL: stderr. One line, without newline. May be called from several threads.
   */
  void (*on_print)(void *user, const char *line);
  void *on_print_user;
  /* Where the model runs. On NESO_CUDA the allocator above gives memory of that device (256-byte aligned, usable on the context's
   * stream), threads do not matter, and with on_step each step is waited for, so that its time and its failure are its own. */
  neso_device_kind device;
  int32_t device_index;
  void *stream; /* a CUstream (cudaStream_t) of the device, borrowed; NULL: the context's own. (void *)1: the legacy
                   default */
  int32_t cuda_graphs; /* how many CUDA graphs are kept, one for sizes and addresses that came twice; 0: 16; -1: none */
  const char *cuda_driver; /* the driver's library; NULL: "libcuda.so.1" */
  /* The library for matrix products that packages may leave to it: a path of cuBLASLt, of which a model's first context on a device decides;
   * "": none, the package's own kernels run; NULL: the one that the process has loaded already, else what the dynamic loader finds, else
   * that of a toolkit under /usr/local/cuda or /opt/cuda. Where it cannot be opened the package's own kernels run: see
   * neso_device_stats.library. */
  const char *cublas;
  int32_t cuda_streams; /* how many streams the steps of a recorded graph may spread over where they do not need each
                           other; 0: 4 */
  int32_t time_steps;   /* nonzero: runs note the time of every step, see neso_context_step_time; none is recorded as a
                           CUDA graph */
  /* Memory for a tensor that the run gives back and the caller has left open: asked once its sizes are known, mostly before any kernel
   * runs. `out` holds dtype, rank, sizes, strides and device; set out->data, to memory that is as large as the strides reach; NULL: the
   * context's memory, as without this call. Results are always written there, also those that are views of an input. A non-zero return
   * ends the run with NESO_OUT_OF_MEMORY. Called on the thread of the run, which must not use the context meanwhile. */
  int (*output)(void *user, int32_t index, neso_tensor *out);
  void *output_user;
  /* Not 0: what each step writes is looked at before the next one, and the first NaN ends the run with NESO_NAN_FOUND, whose text names
   * kernel, element, lines of the model and modules. Memory is zeroed before a step writes it for the first time, so that no remains of
   * others are taken for its results; a mutated input or buffer that holds NaN when the run begins to write it is left out. For debugging:
   * every step is waited for. */
  int32_t check_nan;
  /* Called where the work of a step begins and ends to be queued, and of the run ("run") around them, never waiting for it: ranges for a
   * profiler, NVTX's for one. A run that is one launch of a CUDA graph has no steps. NULL: no cost. */
  void (*on_range)(void *user, const char *name, int begin);
  void *on_range_user;
  /* How many turns each loop of the model may make, each time that it is reached; the turn after them ends the run with NESO_TURN_LIMIT.
   * 0: no limit. With a limit the host counts, so that runs with loops whose end the device decides are not recorded as CUDA graphs. */
  int64_t turn_limit;
  void *op_user; /* what neso_op_call has as op_user: of the context, where neso_op.user is of the operator */
} neso_context_options;

/* Cheap: some kilobytes, its threads, and a copy of each buffer that the model mutates. options may be NULL. The model must outlive it.
 * The first context on a GPU starts its driver and uploads code and constants, which all contexts of the model on that GPU share. */
NESO_API neso_status neso_context_create(const neso_model *model, const neso_context_options *options,
                                         neso_context **out_context);
/* Frees the context and all memory that it gave to the caller. NULL is allowed. */
NESO_API void neso_context_free(neso_context *context);

/* Runs the model. inputs: in flattened order, borrowed during the call; one with data == NULL stands for a none or text value.
 * outputs: where out[i].data is NULL it is set to memory of the context or, for an output that is a view of an input or a constant, to
 * that memory; valid until the context's next run or its end. Where out[i].data is given, dtype, rank and sizes must be the output's
 * and the result is written there, with the given strides (NULL: contiguous). It may be the memory of an input, whose elements are read before it
 * is written, but not that of another output. Sizes and strides set by the call belong to the context.
 * On a GPU inputs may lie on the host (they are copied) or on the context's device (they are used where they lie), and out[i].device says
 * where each result is wanted, whether out[i].data is given or not: a zeroed struct asks for host memory. Python scalars stay on the host.
 * After a failure the context is usable as before; the contents of the caller's outputs and of mutated inputs are unspecified if the
 * failure came from a kernel, untouched otherwise. */
NESO_API neso_status neso_run(neso_context *context, const neso_tensor *inputs, size_t input_count,
                              neso_tensor *outputs, size_t output_count);

/* The same without waiting: the work is queued on the context's stream. Inputs and outputs are borrowed, and results on the host are
 * complete, when neso_context_synchronize returns; results on the device are in the order of the stream. A step that reads a size from the
 * device waits for it. On the CPU it is neso_run. */
NESO_API neso_status neso_run_async(neso_context *context, const neso_tensor *inputs, size_t input_count,
                                    neso_tensor *outputs, size_t output_count);
/* Waits for all that the context has queued. NESO_DEVICE_LOST when a kernel trapped: the driver
 * lets the process use that GPU no more; everything else goes on. */
NESO_API neso_status neso_context_synchronize(neso_context *context);
/* Later work goes to this stream (meaning of `stream` as in the options), after what the context has queued so far.
 * The caller may be recording the stream into a CUDA graph of its own: neso_run_async and neso_kernel_launch then put their steps into it. For that,
 * run once before with the same sizes and wait for it, so that memory and code are there; give inputs and outputs on the device; models that
 * read sizes from the device cannot be recorded. Such a graph uses the context's memory: keep the context, unused by other runs, as long as it. */
NESO_API neso_status neso_context_set_stream(neso_context *context, void *stream);

/* Runs that begin from now on call on_step as in the options, also where those named none; NULL: nobody is called. */
NESO_API neso_status neso_context_watch(neso_context *context, int (*on_step)(void *user, const neso_step_event *event),
                                        void *user);

/* Ends the run that is under way on another thread, with NESO_CANCELLED, before its next step or turn of a loop: kernels that have begun
 * are not stopped, of a run that is one CUDA graph only its loops are. Behind neso_run_async it is neso_context_synchronize that says so. From
 * any thread, and from signal handlers; without a run under way it does nothing, and later runs are not touched.
 * NULL is allowed. */
NESO_API void neso_context_cancel(neso_context *context);

/* Memory of the context's device, from its allocator. Freed by neso_context_deallocate or, at the latest, with the
 * context. */
NESO_API neso_status neso_context_allocate(neso_context *context, size_t bytes, void **out_memory);
NESO_API void neso_context_deallocate(neso_context *context, void *memory);
/* Copies elements between two tensors of equal dtype and sizes, of any strides, on the host or on the context's device. Queued on the
 * stream; waits for its end where one of the two lies on the host. */
NESO_API neso_status neso_tensor_copy(neso_context *context, const neso_tensor *to, const neso_tensor *from);

/* Time on the context's device: marks are numbered [0, 4096) and set in the order of the stream; elapsed waits for the
 * later of the two. */
NESO_API neso_status neso_context_mark(neso_context *context, int32_t mark);
NESO_API neso_status neso_context_elapsed(neso_context *context, int32_t begin, int32_t end, double *out_ms);

/* A buffer that the model mutates (see neso_constant_info.mutated), as this context's runs have left it, on the context's device; writable
 * between runs. */
NESO_API neso_status neso_context_buffer(neso_context *context, const char *name, neso_tensor *out_tensor);
/* Puts all mutated buffers back to the values stored in the package. */
NESO_API neso_status neso_context_reset_buffers(neso_context *context);

typedef struct neso_context_stats {
  size_t arena_bytes;   /* held for intermediates */
  size_t output_bytes;  /* held for outputs and for copies of inputs */
  size_t buffer_bytes;  /* copies of mutated buffers */
  size_t scratch_bytes; /* of all threads */
  int threads;
  int64_t steps; /* executed in the last run */
} neso_context_stats;
NESO_API neso_status neso_context_get_stats(const neso_context *context, neso_context_stats *out_stats);

typedef struct neso_step_time {
  const char *kernel; /* of a launch; else NULL */
  double ms;          /* on a GPU between marks on the stream, so that steps follow each other as in any run */
} neso_step_time;
/* What step number `step` of the model took in the last run, which must be finished; steps of branches and loops count to the step that runs
 * them. NESO_INVALID_ARGUMENT without time_steps, before a run, and for a step that does not exist. */
NESO_API neso_status neso_context_step_time(neso_context *context, int64_t step, neso_step_time *out_time);

typedef struct neso_step_argument {
  const char *name;      /* of the value, as the model has it; the model's own string */
  int32_t read, written; /* by the step; both are set where it is not known */
  neso_tensor tensor;    /* on the context's device; flat where its shape is not known, data NULL where its memory is not */
} neso_step_argument;
/* Inside on_step: tensor `index` of those that the step reads or writes. Its elements may be copied by neso_tensor_copy: behind the step
 * they are its results. Valid until the next call. NESO_INVALID_ARGUMENT past the last, and outside of on_step. */
NESO_API neso_status neso_context_step_argument(neso_context *context, int32_t index, neso_step_argument *out_argument);

typedef struct neso_device_stats {
  size_t constant_bytes;   /* on the device, shared by the model's contexts there */
  int32_t graphs;          /* CUDA graphs kept */
  int64_t graph_launches;  /* runs that were one graph launch */
  int64_t kernel_launches; /* kernels launched one by one, or recorded into a graph */
  int64_t library_calls; /* matrix products that cuBLASLt computed, in place of a kernel: queued one by one, or recorded
                            into a graph */
  int64_t library_products; /* launches of the plan that cuBLASLt did in their last run, of
                               neso_model_stats.product_count */
  const char *library;      /* path of the cuBLASLt in use, the model's own string; NULL: none is */
  int32_t library_version;  /* 130100 for 13.1.0 */
  int32_t graph_streams;    /* that the graph recorded last spreads over */
  int64_t box_launches;     /* of kernel_launches: in code that copies boxes of tensors (TMA), see neso_model_kernel_boxes */
} neso_device_stats;
/* Zeros on the CPU. */
NESO_API neso_status neso_context_get_device_stats(const neso_context *context, neso_device_stats *out_stats);

typedef struct neso_device_info {
  char name[64]; /* "NVIDIA H200" */
  char arch[16]; /* "sm_90" */
  size_t memory_bytes, l2_bytes;
  int32_t processors; /* multiprocessors */
  int32_t driver;     /* version, 13000 for CUDA 13.0 */
} neso_device_info;
/* A device of this machine. driver: as in neso_context_options.cuda_driver. NESO_DEVICE_UNAVAILABLE; the CPU has
 * nothing to tell. */
NESO_API neso_status neso_device_get_info(neso_device_kind device, int32_t index, const char *driver,
                                          neso_device_info *out_info);

/* Launches one kernel of the package by name over a grid of programs, on the context's threads. Arguments in the order
 * of the kernel's parameters, without the constexpr ones; pointers as the caller's memory. On a GPU pointers are of its
 * memory, and the launch is queued on the context's stream. A grid of no programs does nothing; NULL stands for that of
 * neso_kernel_grid. Refused before anything
 * runs: NESO_KERNEL_GRID for a grid larger than a launch can have; NESO_KERNEL_ALIGNMENT for an address or a number
 * that is not the multiple that the kernel was compiled for (16 for pointers, unless compiled with the hint "none");
 * NESO_KERNEL_BUFFER_SIZE as for neso_kernel_launch_checked, for memory of neso_context_allocate. */
NESO_API neso_status neso_kernel_launch(neso_context *context, const char *name, const uint32_t grid[3],
                                        const union neso_arg *args, size_t arg_count);
/* The same, where the caller says how large its buffers are: buffer_bytes[i] counts from the address in args[i], which
 * is the start of the buffer; -1 where it is unknown or the argument is no pointer. NESO_KERNEL_BUFFER_SIZE if the
 * launch is certain to touch memory outside of one. What depends on data, or on sizes in a way that the compiler does
 * not follow, is not checked. */
NESO_API neso_status neso_kernel_launch_checked(neso_context *context, const char *name, const uint32_t grid[3],
                                                const union neso_arg *args, const int64_t *buffer_bytes,
                                                size_t arg_count);

/* A kernel that triton.autotune surrounds may be in the package once for each config (`neso kernel compile --configs all`): the name under
 * which config `index` is launched. 0: `name` itself, the config that was chosen when the package was made; then "name#1" and so on, in the
 * source's order without the chosen one. All take the same arguments. What a config gives to a constexpr BLOCK is
 * neso_model_metadata(model, "kernel.NAME.constant.BLOCK"), with that name for NAME; num_warps stands there, too. NULL: past the last, or no
 * such kernel. The model's own string. */
NESO_API const char *neso_kernel_config(const neso_model *model, const char *name, int32_t index);
/* How many configs: 1 for a kernel without, 0: no such kernel. */
NESO_API int32_t neso_kernel_configs(const neso_model *model, const char *name);
/* The programs along x, y and z that go with these arguments, by the rule that the package has of the kernel or config (`neso kernel compile
 * --grid`). Arguments as for neso_kernel_launch, of which integers are read and no memory is. NESO_NO_SUCH_NAME, NESO_KERNEL_ARGUMENTS;
 * NESO_KERNEL_GRID where there is no rule, or where it gives no grid for these arguments: out_grid is then not to be read. */
NESO_API neso_status neso_kernel_grid(const neso_model *model, const char *name, const union neso_arg *args, size_t arg_count,
                                      uint32_t out_grid[3]);

/* ---- Traces
 * ---------------------------------------------------------------------------------------------------------------- */

/* Notes the runs of contexts and writes them as JSON that Perfetto and Chrome open: a row for each context, in which each step has its kernel,
 * grid and lines of the model. Contexts may run at once on any threads.
 *
 *     neso_trace *trace;
 *     neso_trace_create(0, &trace);
 *     neso_context_trace(context, trace);
 *     neso_run(context, …);
 *     neso_trace_write(trace, "trace.json");
 */
typedef struct neso_trace neso_trace;
/* steps: how many are kept, the last ones, of about 64 bytes each; 0: 65536. */
NESO_API neso_status neso_trace_create(size_t steps, neso_trace **out_trace);
/* Runs that begin from now on are noted; NULL: they are not. In place of neso_context_watch and on_step: on a GPU each step is waited for, so
 * that its time is its own, and runs are no CUDA graphs. The trace must live as long as runs are noted. */
NESO_API neso_status neso_context_trace(neso_context *context, neso_trace *trace);
/* While no run is noted, and while the models of its contexts live. NESO_FILE_UNWRITABLE. */
NESO_API neso_status neso_trace_write(const neso_trace *trace, const char *path);
/* NULL is allowed. */
NESO_API void neso_trace_free(neso_trace *trace);

/* ---- Weights
 * ---------------------------------------------------------------------------------------------------------------- */

/* A set of values for the constants of a model: what was not set is as in the set that it began from. Made by one thread, then sealed;
 * sealed it never changes and may be used by any thread.
 *
 *     neso_weights *w;
 *     neso_weights_create(model, NULL, &w);                     // begins from the package's values
 *     neso_weights_set(w, "fc.weight", &value, NESO_WEIGHTS_COPY);
 *     neso_weights_seal(w);
 *     neso_model_use(model, w);                                 // runs that begin from now on read it
 *     neso_weights_free(w);                                     // freed when the last run that reads it is over
 */
typedef struct neso_weights neso_weights;

/* base: a sealed set of the same model; NULL: the package's. The model must outlive the set. */
NESO_API neso_status neso_weights_create(const neso_model *model, const neso_weights *base, neso_weights **out_weights);

typedef enum neso_weights_mode {
  NESO_WEIGHTS_COPY = 0,
  NESO_WEIGHTS_BORROW = 1 /* the caller's memory is used where it lies, and outlives the set; contiguous, aligned to 64. Refused for
                             weights that the model keeps in another order. On a GPU it is copied when the set is sealed */
} neso_weights_mode;
/* value: in host memory, of the model's dtype and sizes, any strides when copied. NESO_NO_SUCH_NAME; NESO_WEIGHT_FIXED for a weight that was
 * folded when compiling. */
NESO_API neso_status neso_weights_set(neso_weights *weights, const char *name, const neso_tensor *value,
                                      neso_weights_mode mode);
/* Sets, by copying, every weight that a .safetensors file has under its name, after `prefix` (NULL: none) is taken off. out_set, out_ignored
 * (may be NULL): tensors that were set, and tensors of names that the model does not have. */
NESO_API neso_status neso_weights_load(neso_weights *weights, const char *path, const char *prefix, int64_t *out_set,
                                       int64_t *out_ignored);
/* Copies a value into the caller's memory: `to` has the model's dtype and sizes, and any strides. */
NESO_API neso_status neso_weights_get(const neso_weights *weights, const char *name, const neso_tensor *to);
/* The set is complete and may be used. NESO_CONSTANT_MISSING when it is not; it can then be completed. */
NESO_API neso_status neso_weights_seal(neso_weights *weights);

/* Runs that begin from now on, in contexts without weights of their own, read this set; NULL: the package's. Never waits for a run, and no
 * run ever sees two sets. Any thread. A buffer that the model mutates keeps what the context's runs left in it, unless the set gives it a
 * value that the set before did not have. */
NESO_API neso_status neso_model_use(neso_model *model, neso_weights *weights);
/* The same for this context alone; NULL: it reads the model's again. */
NESO_API neso_status neso_context_use(neso_context *context, neso_weights *weights);

NESO_API neso_weights *neso_weights_retain(neso_weights *weights);
/* Gives up the caller's hold. NULL is allowed. */
NESO_API void neso_weights_free(neso_weights *weights);
/* Contexts that read it in a run that is not known to be over. */
NESO_API int32_t neso_weights_users(const neso_weights *weights);

#ifdef __cplusplus
}
#endif
#endif
