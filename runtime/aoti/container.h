// AOTInductorModelContainer: a model of the runtime with contexts to run it in, and two sets of weights.
#pragma once
#include <pthread.h>

#include "aoti/torch.h"
#include "neso/neso.h"

namespace neso_aoti {

/// The package that stands at the end of this library's file; kept mapped for the life of the process.
neso_status own_package(const void **bytes, size_t *size);

/// AOTInductorConstantMapEntry.
struct named_tensor {
  const char *name;
  AtenTensorHandle handle;
};

/// How a new value is kept: copied, read where it lies (refused where the model needs it in another order), or the latter where it can be.
enum class holding : uint8_t { copy, borrow, borrow_if_possible };

/// Weights, and handles that keep the memory which they borrow.
struct weight_set {
  neso_weights *weights;
  AtenTensorHandle *held; // one for each of the container's constants; NULL: it is not borrowed
  weight_set *next;
};

/// Handles that the loader looks at and this library frees.
struct lent_tensor {
  AtenTensorHandle handle;
  lent_tensor *next;
};

/// Results of a call of an operator that said their sizes, kept for the step that wants the results themselves (operators.cpp).
struct kept_results {
  int32_t call, count;
  kept_results *next;
  AtenTensorHandle *handles() { return reinterpret_cast<AtenTensorHandle *>(this + 1); } // count of them
};

struct container {
  const torch_functions *torch = nullptr;
  neso_model *model = nullptr;
  neso_op operators[2]; // of the host and of the GPU
  neso_device_kind device = NESO_CPU;
  int32_t device_index = 0;

  // A run takes a context that no other uses; with `affinity` always the one that its stream was given first. Under `lock`.
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t freed = PTHREAD_COND_INITIALIZER;
  struct seat {
    neso_context *context;
    bool busy;
    AOTIProxyExecutorHandle executor; // of the run that has the seat; NULL: the loader gave none
    kept_results *kept;
  } *seats = nullptr;
  size_t seat_count = 0;
  bool affinity = false;
  struct binding {
    void *stream;
    size_t seat;
    binding *next;
  } *bindings = nullptr;

  // Of the plan's constants those that have names in the model, and these names as the loader's maps have them.
  struct constant {
    neso_constant_info info;
    char *name;
  } *constants = nullptr;
  size_t constant_count = 0;

  // The sets that runs read and that the next swap gives them; NULL: the package's. `retired` are those that runs may still read. Under the
  // weights' lock, which runs do not take.
  pthread_mutex_t weights_lock = PTHREAD_MUTEX_INITIALIZER;
  weight_set *active = nullptr, *inactive = nullptr, *retired = nullptr;
  lent_tensor *extracted = nullptr;           // what the last extraction gave
  named_tensor *extracted_entries = nullptr; // the same, by name
  // Constants that runs change in the user's memory: a run begins with what is there and leaves there what it made. Under homes_lock, in which
  // nobody waits for a seat.
  pthread_mutex_t homes_lock = PTHREAD_MUTEX_INITIALIZER;
  struct home {
    neso_constant_info info;
    neso_tensor memory;
    AtenTensorHandle held;
    home *next;
  } *homes = nullptr;
};

/// device: "cpu", "cuda", "cuda:1"; NULL: what the package's code is for. On failure there is no container.
int32_t create(container **out, size_t contexts, const char *device);
void destroy(container *c);

/// A context that no other run uses until it is given back; waits for one.
size_t take(container *c, void *stream);
void give_back(container *c, size_t seat);

/// The input tensors that run() and the arrays' interface have; freed at the end.
struct run_tensors {
  neso_tensor *inputs = nullptr, *outputs = nullptr;
  size_t input_count = 0, output_count = 0;
  run_tensors() = default;
  run_tensors(const run_tensors &) = delete;
  run_tensors &operator=(const run_tensors &) = delete;
  ~run_tensors();
  /// Room for what the model takes and gives.
  int32_t prepare(const container &c);
};
/// A run in a seat that was taken, t's inputs given: t's outputs are the context's until its next run. executor: calls the user's operators.
int32_t run_in(container *c, size_t seat, run_tensors *t, void *stream, AOTIProxyExecutorHandle executor);
/// A run from handles to handles. Those of the inputs are the library's from here on.
int32_t run(container *c, AtenTensorHandle *inputs, size_t input_count, AtenTensorHandle *outputs, size_t output_count,
            void *stream, AOTIProxyExecutorHandle executor);

/// neso_op.run of all operators of the user's: `user` is the container, neso_op_call.op_user the seat.
neso_status call_operator(void *user, const neso_op_call *call);
/// Frees what a run that failed left.
void free_kept(const container &c, container::seat *seat);

/// Copies elements between tensors of equal sizes, wherever they lie.
int32_t copy(container *c, const neso_tensor &to, const neso_tensor &from);

/// Other values for constants, under the loader's names or the model's.
int32_t update(container *c, const named_tensor *entries, size_t count, bool use_inactive, bool full, holding how);
/// The same from the loader's map.
int32_t update_map(container *c, void *map, bool use_inactive, bool full, holding how);

/// From now on the constant lives in this tensor's memory (NULL: in the contexts), which is contiguous.
int32_t settle(container *c, const neso_constant_info &constant, AtenTensorHandle tensor);
/// Brings what lies in homes into the context, or back: a run's first and last step.
int32_t fetch_homes(container *c, neso_context *context);
int32_t leave_homes(container *c, neso_context *context);
void free_homes(container *c);

/// A set that begins with what `base` has (NULL: the package).
int32_t create_set(container *c, const weight_set *base, weight_set **out);
/// The set takes the place of `*place`, which goes when no run reads it any more; NULL: the package's.
void replace_set(container *c, weight_set **place, weight_set *set);
/// For a set that no run has read.
void free_set(container *c, weight_set *set);
/// All of them; no run is under way.
void free_sets(container *c);

struct locked {
  pthread_mutex_t *lock;
  explicit locked(pthread_mutex_t *l) : lock(l) { pthread_mutex_lock(l); }
  locked(const locked &) = delete;
  locked &operator=(const locked &) = delete;
  ~locked() { pthread_mutex_unlock(lock); }
};

/// The thread's last failure, for AOTInductorGetLastError; returns 1.
int32_t failed(const char *text);
/// 0, or `failed` with the runtime's text.
int32_t outcome(neso_status status);

} // namespace neso_aoti
