// neso_context: the mutable half of a run. Memory of the arena and outputs, copies of mutated buffers, threads, and the
// slots.
//
// A run is: check the inputs and define slots, run the prologue, compare sizes, test guards, take memory (only when it
// must grow), fill in the kernels' arguments, walk the steps, hand out the outputs. When the sizes are those of the run
// before, everything up to the arguments is skipped but the checks of the inputs; in steady state nothing is allocated.
#pragma once
#include "core/model.h"
#include "core/streams.h"
#include "core/strided.h"
#include "device/cpu/launch.h"
#include "device/cuda/executor.h"

namespace neso_rt {

/// Memory that only grows, from the context's allocator, 64-byte aligned.
struct block {
  char *data = nullptr;
  int64_t capacity = 0;
};

/// Memory that the caller asked the context for.
struct lent_memory {
  block memory;
  lent_memory *next;
};

struct bound_input {
  char *data;    // what the kernels see: the caller's memory, or `staging`
  int64_t bytes; // extent of the model's layout
  const neso_tensor *given;
  bool staged;    // copied in because strides or alignment differ
  int64_t scalar; // the value of an int, float or bool input, in case a kernel reads it from memory
  block staging;
  bool scalar_read; // GPU: a kernel does read it, so that it is kept in `staging`
  bool scalar_kept; // and it is there
  char *packed;     // and host memory to change strides on the way there
  int64_t packed_bytes;
  host_block host; // and back
  bool scatter;    // synchronising must copy `host` to the caller's strided memory, `scatter_to`
  neso_tensor scatter_to;
};

struct bound_output {
  char *data; // memory of the output, when a buffer lies in it
  int64_t bytes;
  bool to_caller; // the caller gave memory
  bool direct;    // and `data` is that memory
  block own;
  int64_t *sizes, *strides;
  int64_t scalar;   // value of an int, float or bool output
  void *last_given; // what the run before handed out
  // GPU only.
  bool on_host; // where the result is wanted
  host_block host;
  bool scatter; // synchronising must copy `host` to the caller's strided memory, `scatter_to`
  neso_tensor scatter_to;
};
} // namespace neso_rt

struct neso_context {
  const neso_model *model = nullptr;
  neso_context_options options{};
  neso_rt::cpu_executor executor;
  neso_rt::array<int64_t> slots;
  neso_rt::array<int64_t> bound_sizes; // the values that inputs defined in the run before, in order of definition
  bool bound = false;                  // slots and memory fit bound_sizes
  neso_rt::array<neso_rt::bound_input> inputs;
  neso_rt::array<neso_rt::bound_output> outputs;
  neso_rt::array<int64_t> output_shapes; // backing of bound_output.sizes and strides
  neso_rt::array<int64_t> input_strides; // of the model's layout, one after the other
  neso_rt::array<neso_rt::block> arenas;
  neso_rt::array<neso_rt::block> buffers; // copies of mutated constants; others empty
  neso_rt::array<char *> addresses;       // one a plan buffer
  neso_rt::array<neso_arg> args;          // of all launches
  neso_rt::array<double>
      step_begins; // with time_steps, on the CPU: when each step of the model began, and when the last one ended; ms
  bool steps_timed = false;                   // a run has been timed
  neso_rt::array<neso_rt::launch_cost> costs; // one a step of the plan, for launches; forgotten when sizes change
  const neso_tensor *given_outputs = nullptr; // during a run
  int64_t steps_done = 0;
  bool unfinished = false; // GPU: a run left something to finish_gpu_run
  bool moved = false;      // bind: sizes or addresses are not those of the run before
  // On a GPU; null on the CPU.
  neso_rt::cuda_executor *gpu = nullptr;
  neso_rt::cuda_graphs::entry *last_graph = nullptr; // of the run before, while nothing has moved
  neso_rt::array<int64_t> graph_key;
  neso_rt::array<double> marks;         // CPU: milliseconds
  neso_rt::lent_memory *lent = nullptr; // what neso_context_allocate gave

  neso_context() = default;
  neso_context(const neso_context &) = delete;
  neso_context &operator=(const neso_context &) = delete;
  ~neso_context();

  /// Grows `b` to `bytes`; keeps nothing of what was in it.
  neso_status grow(neso_rt::block *b, int64_t bytes, const char *what);
  void release(neso_rt::block *b);

  // bind.cpp: from the caller's tensors to slots, memory and addresses.
  neso_status bind(const neso_tensor *inputs, size_t input_count, const neso_tensor *outputs, size_t output_count);
  neso_status measure_outputs();
  neso_status size_output(int32_t index, const neso_tensor *given);
  neso_status locate_buffers();
  void fill_args();
  // outputs.cpp: from memory to the caller's tensors.
  neso_status hand_out(neso_tensor *outputs);
  // walk.cpp: the steps.
  neso_status walk(int32_t subplan);
  // device.cpp: the part of a run that differs on a GPU.
  neso_status run_on_gpu();
  neso_status place_gpu_input(int32_t index, const neso_tensor &given, const int64_t *have, const int64_t *strides,
                              bool same);
  neso_status place_gpu_scalar(int32_t index);
  neso_status hand_out_gpu_tensor(int32_t index, char *memory, neso_tensor *out);
  neso_status return_gpu_input(int32_t index, const int64_t *strides);
  /// Waits, then finishes what only the host can do: results whose strides are not the model's.
  neso_status finish_gpu_run();
  /// Of a run that failed: its tensors may be gone when the next one comes.
  void drop_gpu_run();
  neso_status reset_buffers();
  const neso_rt::cuda_device *device() const { return gpu ? &gpu->device() : nullptr; }

private:
  neso_status read_input(int32_t index, const neso_tensor &given, int64_t **define, bool *changed);
  neso_status read_scalar(int32_t index, const neso_tensor &given, int64_t **define, bool *changed);
  neso_status check_equal(const neso_tensor *given);
  neso_status lay_out_inputs(const neso_tensor *given);
  neso_status place_input(int32_t index, const neso_tensor &given, const int64_t *strides);
  neso_status hand_out_tensor(int32_t index, neso_tensor *out);
  neso_status record_run();
  neso_status walk_side_by_side();
  neso_status order_steps(neso_rt::stream_order *order);
  void add_uses(const neso_rt::step &s, const flatbuffers::Vector<uint8_t> *access, neso_rt::stream_order *order) const;
  void add_use(int32_t buffer, bool write, neso_rt::stream_order *order) const;
  neso_status wait_for_step(const neso_rt::step &s);
  neso_status run_step(const neso_rt::step &s, bool *ended);
  neso_status launch(const neso_rt::step &s);
  neso_status copy(const neso_rt::fbs::Copy *row);
  neso_status fill(const neso_rt::fbs::Fill *row);
  neso_status load_scalar(const neso_rt::fbs::LoadScalar *row);
  neso_status store_scalar(const neso_rt::fbs::StoreScalar *row);
  neso_status time_step(int64_t index);
  neso_status notify(const neso_rt::step &s, int32_t subplan, int64_t index, bool after);
  neso_status extent_check(int32_t buffer, int64_t first, int64_t last, int64_t item_bytes) const;
  void fill_args(const neso_rt::step &launch);
  neso_status multiply(const neso_rt::step &s, bool *out_done);
  neso_status place_matrix(const neso_rt::fbs::Matrix *row, int64_t rows, int64_t columns, int64_t batch,
                           neso_rt::fbs::DType type, neso_rt::blas_matrix *out) const;
  neso_arg resolve(const neso_rt::fbs::Arg &a) const;
};

namespace neso_rt {
/// An address that no step may use yet: its arena or output is sized by a later step.
inline char *const kNotYet = reinterpret_cast<char *>(~uintptr_t(0));

/// The text of a failed guard, with "{N}" replaced by slot N.
neso_status guard_failed(const flatbuffers::String *message, const int64_t *slots, int32_t slot_count);
} // namespace neso_rt
