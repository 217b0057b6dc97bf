// What one run works on: the values of the slots, where every buffer of the plan lies, and the kernels' arguments.
//
// bind: checks what the caller gave and defines slots, runs the prologue, compares sizes, tests guards, takes memory
// (only when it must grow), finds addresses, fills in arguments. When the sizes are those of the run before, everything
// up to the arguments is skipped but the checks of the inputs; in steady state nothing is allocated.
//
// Tensors that do not lie in the device's memory are copied there and back; where the device's memory is the host's,
// there are none.
#pragma once
#include "core/memory.h"
#include "core/plan.h"

namespace neso_rt {

struct bound_input {
  char *data;    // what the kernels see: the caller's memory, or `staging`
  int64_t bytes; // extent of the model's layout
  const neso_tensor *given;
  bool staged;    // copied in because strides, alignment or device differ
  int64_t scalar; // the value of an int, float or bool input
  block staging;
  bool scalar_read; // a kernel reads it from memory, so that it is kept in `staging`
  bool scalar_kept; // and it is there
  char *packed;     // and memory of the host to change strides on the way there
  int64_t packed_bytes;
  host_block host; // and back
  bool scatter;    // finishing must copy `host` to the caller's strided memory, `scatter_to`
  neso_tensor scatter_to;
};

struct bound_output {
  char *data; // memory of the output, when a buffer lies in it
  int64_t bytes;
  bool to_caller; // the caller gave memory
  bool direct;    // and `data` is that memory
  bool fetched;   // the result is wanted on the host, and the device's memory is another
  block own;
  int64_t *sizes, *strides;
  int64_t scalar;   // value of an int, float or bool output
  void *last_given; // what the run before handed out
  host_block host;
  bool scatter; // finishing must copy `host` to the caller's strided memory, `scatter_to`
  neso_tensor scatter_to;
};

/// The constants that runs read: one element a constant of the plan each.
struct constant_view {
  int64_t id;                   // equal ids: the same view
  char *const *addresses;       // on the device; nullptr for those that contexts copy
  const uint8_t *const *values; // on the host; nullptr: the package's
  const int64_t *ids;           // equal ids: the same content; nullptr: 0, the package's, for all
};

/// An address that no step may use yet: its arena or output is sized by a later step.
inline char *const kNotYet = reinterpret_cast<char *>(~uintptr_t(0));

class binding {
public:
  /// All borrowed, as long as it lives. Of the options: output.
  neso_status start(const plan &program, queue *q, memory *m, const neso_context_options &options);
  void release();

  // bind.cpp: from the caller's tensors to slots, memory and addresses.
  neso_status bind(const neso_tensor *inputs, size_t input_count, neso_tensor *outputs, size_t output_count);
  // outputs.cpp: from memory to the caller's tensors.
  neso_status hand_out(neso_tensor *outputs);
  /// Waits, then finishes what only the host can do: results whose strides are not the model's.
  neso_status finish();
  /// Of a run that failed: its tensors may be gone when the next one comes.
  void drop();
  /// Mutated buffers as the constants have them that runs read now.
  neso_status reset_buffers();
  /// Later runs read these constants, which stay until others are given. A mutated buffer keeps what runs left in it, unless it has
  /// another content in `view` than in what was read before.
  neso_status read_constants(const constant_view &view);
  int64_t constants_id() const { return constants_.id; }

  // For steps that find out sizes while the run is under way.
  neso_status locate_buffers();
  neso_status grow_arena(int32_t index);
  neso_status place_late_output(int32_t index);
  /// Arguments of a launch, from what is known now.
  void fill_args(const step &launch);
  /// Elements [first, last] of a buffer, counted from its start, must lie inside it.
  neso_status extent_check(int32_t buffer, int64_t first, int64_t last, int64_t item_bytes) const;
  /// The argument memory of a launch.
  const void *args_of(const step &launch) const { return args_.data() + launch.arg_memory; }

  array<int64_t> slots;
  array<char *> addresses;      // one a plan buffer
  array<int64_t> bound_sizes;   // the values that inputs defined in the run before, in order of definition
  bool moved = false;           // sizes or addresses are not those of the run before
  bool unfinished = false;      // a run left something to `finish`
  array<block> arenas, buffers; // buffers: copies of mutated constants; others empty
  array<bound_input> inputs;
  array<bound_output> outputs;

private:
  neso_status read_input(int32_t index, const neso_tensor &given, int64_t **define, bool *changed);
  neso_status read_scalar(int32_t index, const neso_tensor &given, int64_t **define, bool *changed);
  neso_status check_equal(const neso_tensor *given);
  const uint8_t *initial(size_t constant) const;
  neso_status lay_out_inputs(const neso_tensor *given);
  neso_status place_input(int32_t index, const neso_tensor &given, const int64_t *strides);
  neso_status place_scalar(int32_t index);
  neso_status measure_outputs();
  neso_status size_output(int32_t index, neso_tensor *given);
  bool lies_in_an_input(const char *memory, int64_t bytes) const;
  neso_status check_apart(int32_t index, const neso_tensor &given) const;
  neso_status ask_for_output(int32_t index, neso_tensor *given);
  neso_status check_output(int32_t index, const neso_tensor &given) const;
  neso_status hand_out_tensor(int32_t index, neso_tensor *out);
  neso_status hand_out_memory(int32_t index, char *memory, neso_tensor *out);
  neso_status return_input(int32_t index, const int64_t *strides);
  bool here(const neso_tensor &t) const { return lies_on(t, *queue_->on); }

  const plan *program_ = nullptr;
  queue *queue_ = nullptr;
  memory *memory_ = nullptr;
  bool bound_ = false;            // slots and memory fit bound_sizes
  constant_view constants_{};     // that runs read; what it points to is there while a run has its set pinned
  array<int64_t> first_ids_;      // of the content that each mutated buffer began with
  bool constants_changed_ = false; // since addresses were found
  array<int64_t> output_shapes_;  // backing of bound_output.sizes and strides
  array<int64_t> input_strides_;  // of the model's layout, one after the other
  aligned_bytes args_;            // of all launches
  neso_tensor *given_outputs_ = nullptr;       // during a run
  const neso_context_options *options_ = nullptr;
};

/// The strides of a caller's tensor, written out when it leaves them to us.
const int64_t *strides_of(const neso_tensor &t, int64_t *scratch);

/// The text of a failed guard, with "{N}" replaced by slot N.
neso_status guard_failed(const flatbuffers::String *message, const int64_t *slots, int32_t slot_count);

} // namespace neso_rt
