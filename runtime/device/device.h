// A device: where kernels run and where their memory lies. Each kind is one table of functions (devices.def lists
// them); the rest of the runtime knows a CPU from a GPU by nothing else.
//
//     model    ── open ──▶  device   its code and constants there; shared by the model's contexts, immutable
//     context  ── start ─▶  queue    memory, copies, launches, graphs and time of one context
//
// Work of a queue is done in the order in which it is given, at the latest when `synchronize` returns. A device whose
// memory is the process's own (the CPU) is one where tensors of the host need no copy; nobody asks for more.
//
// Errors are statuses with a text (fail). Functions of a queue are called by one thread at a time, with the device
// entered (device_scope); those of a device by any thread.
#pragma once
#include <atomic>

#include "core/common.h"

struct neso_device_vtable;

namespace neso_rt {

class archive;
class plan;
/// A point of a queue's work, and a recorded run: each device's own.
struct event;
struct graph;

/// What a device is opened with. All borrowed: the plan and the files as long as the model lives, the static kernels
/// for the call.
struct code_source {
  const plan *program;
  const archive *files;
  int32_t target; // of the plan's, the one to use; -1: the device chooses
  const neso_static_kernel *static_kernels;
  size_t static_kernel_count;
  bool perf_map; // as in neso_model_options
};

/// The part of a device that everybody sees; each kind's own struct begins with it.
struct device {
  const neso_device_vtable *table = nullptr;
  const plan *program = nullptr;
  int index = 0;           // among the devices of its kind
  device *next = nullptr;  // the model's other devices
  array<char *> constants; // one a constant of the plan: its address there; nullptr for those that contexts copy
};

/// Two words of the host's that loops of recorded runs look at while they turn. Lock-free, so that signal handlers may ask.
struct loop_stop {
  std::atomic<uint32_t> asked; // not 0: they end before one of their next turns
  std::atomic<uint32_t> ended; // not 0: one did, though its condition said that it goes on
};

/// The same for a queue.
struct queue {
  const neso_device_vtable *table = nullptr;
  device *on = nullptr;
  bool records = false;      // begin_recording … free_graph may be called
  bool products = false;     // multiply may be called
  bool decides = false;      // begin_choice … end_choice may be called
  loop_stop *stop = nullptr; // there when a recorded run may hold a loop
  int32_t branches = 1;      // that a recorded run may have
  int64_t side_by_side = 0;  // a launch of fewer programs leaves room for another beside it
};

/// A condition on a number in the device's memory: it lies in [low, high], or outside of it. Signed integers, and bool as 0 and 1,
/// compare as int64 do.
struct device_test {
  const char *at;
  neso_dtype type; // bool or an integer
  int64_t low, high;
  bool outside;
};

/// A matrix in the device's memory, in elements: row r begins at r * pitch; transposed: column r does.
struct device_matrix {
  char *data;
  int64_t pitch, batch_stride;
  bool transposed;
};
/// D[b] = A[b] B[b], then + bias, then relu, accumulated in float32.
struct product_call {
  device_matrix a, b, d; // [m, k], [k, n], [m, n]; d is not transposed
  int64_t batch, m, n, k;
  char *bias; // [n] of out_type, or nullptr
  char *workspace;
  int64_t workspace_bytes;
  neso_dtype type, out_type; // of a and b; of d and the bias
  bool relu;
};

} // namespace neso_rt

struct neso_device_vtable {
  neso_device_kind kind;
  const char *label; // in messages: "cpu", "cuda:%d" with its index
  int32_t code;      // fbs::TargetKind of the code that it runs; -1: it runs none

  /// How well this machine runs code for `arch`: 0: not at all; the greater the better. Null: only an open device
  /// knows. Code of devices that know is loaded with the model.
  int (*fit)(const char *arch);
  /// Fills in what there is to tell of a device of this machine, zeroed before. library: as cuda_driver of the options.
  neso_status (*get_info)(int index, const char *library, neso_device_info *out);

  neso_status (*open)(const neso_rt::code_source &source, const neso_context_options &options, neso_rt::device **out);
  void (*close)(neso_rt::device *);
  /// Is it the device that these options ask for?
  bool (*is)(const neso_rt::device *, const neso_context_options &options);
  /// Makes the device current for the calling thread. True: `leave` must follow.
  bool (*enter)(neso_rt::device *);
  void (*leave)(neso_rt::device *);

  neso_status (*start)(neso_rt::device *, const neso_context_options &options, neso_rt::queue **out);
  /// Waits, then frees it; events and graphs are gone before.
  void (*stop)(neso_rt::queue *);
  /// NESO_DEVICE_LOST when an earlier call found the device gone.
  neso_status (*alive)(const neso_rt::queue *);
  neso_status (*synchronize)(neso_rt::queue *);
  /// Later work goes to the caller's `stream` (null: the queue's own), after what was given before.
  neso_status (*set_stream)(neso_rt::queue *, void *stream);
  /// Whether the caller records that stream, into a graph of its own; null: nobody can.
  bool (*recorded)(const neso_rt::queue *);
  void (*get_stats)(const neso_rt::queue *, neso_context_stats *, neso_device_stats *);

  // memory.cpp. The default allocator of a context (neso_context_options.allocate, release); `self` is the queue.
  void *(*allocate)(void *self, size_t bytes);
  void (*release)(void *self, void *memory, size_t bytes);
  /// Memory of the host that results are copied to.
  void *(*allocate_host)(neso_rt::queue *, size_t bytes);
  void (*release_host)(neso_rt::queue *, void *memory);
  /// From the host's memory, whose bytes are taken when it returns, and to it.
  neso_status (*upload)(neso_rt::queue *, char *to, const void *from, int64_t bytes);
  neso_status (*download)(neso_rt::queue *, void *to, const char *from, int64_t bytes);
  /// The stream that later work goes to; null: work of this device has none.
  void *(*stream)(const neso_rt::queue *);
  /// As copy_strided of core/strided.h, both sides in the device's memory.
  neso_status (*copy)(neso_rt::queue *, char *dst, const int64_t *dst_strides, const char *src,
                      const int64_t *src_strides, const int64_t *sizes, int rank, int item);
  /// `count` items of 1, 2, 4 or 8 bytes, the low bytes of `bits`.
  neso_status (*fill)(neso_rt::queue *, char *to, int item, uint64_t bits, int64_t count);

  /// A copy of a constant's bytes in the device's memory, complete when it returns, and its end. Any thread, with the device
  /// entered. Null: the device reads the host's memory.
  neso_status (*place)(neso_rt::device *, const void *from, int64_t bytes, char **out);
  void (*displace)(neso_rt::device *, char *memory);

  // launch.cpp.
  /// A kernel of the plan over a grid. args: its arguments' bytes, each at its place (core/arguments.h), read before it
  /// returns. step: which step of the plan it is, for
  /// devices that learn what launches cost; -1: none.
  neso_status (*launch)(neso_rt::queue *, int32_t kernel, int32_t step, const void *args, const uint32_t grid[3]);
  /// What launches cost is no longer what it was.
  void (*sizes_changed)(neso_rt::queue *);
  /// Product `which` of the plan. out_done false: nothing was done, its kernel must run.
  neso_status (*multiply)(neso_rt::queue *, int32_t which, const neso_rt::product_call &call, bool *out_done);

  // stream.cpp.
  /// Notes in `*at` (made when it is null) that all work given so far is done; timed: and when.
  neso_status (*mark)(neso_rt::queue *, neso_rt::event **at, bool timed);
  /// Between two timed marks; waits for the later one.
  neso_status (*elapsed)(neso_rt::queue *, neso_rt::event *begin, neso_rt::event *end, double *out_ms);
  void (*free_event)(neso_rt::queue *, neso_rt::event *);
  /// Between the two, work is recorded instead of done. end_recording gives the graph, ready to launch; with a failed
  /// `status` it only ends, and returns it. NESO_DEVICE_FAILED: such work cannot be recorded. These six: null unless
  /// queue.records.
  neso_status (*begin_recording)(neso_rt::queue *);
  neso_status (*end_recording)(neso_rt::queue *, neso_status status, neso_rt::graph **out);
  /// While recording: later work goes to that branch, [0, queue.branches); it waits for nothing but what `wait` says.
  neso_status (*use_branch)(neso_rt::queue *, int32_t branch);
  neso_status (*wait)(neso_rt::queue *, neso_rt::event *at);
  /// While recording: a branch (one body for a condition that holds, or two) or a loop (one body), taken or not when the graph
  /// runs. Work given after begin_body belongs to that body and goes to its own branches, of which 0 is used first; other work may be
  /// given only after end_choice, where the branch is again what it was. A loop's body ends with its test, which begins the next turn
  /// when it holds; `again` is null for branches. Choices nest. These four: null unless queue.decides.
  neso_status (*begin_choice)(neso_rt::queue *, bool loop, int bodies, const neso_rt::device_test &test);
  neso_status (*begin_body)(neso_rt::queue *, int body);
  neso_status (*end_body)(neso_rt::queue *, const neso_rt::device_test *again);
  neso_status (*end_choice)(neso_rt::queue *);
  neso_status (*launch_graph)(neso_rt::queue *, neso_rt::graph *);
  void (*free_graph)(neso_rt::queue *, neso_rt::graph *);
};

#define NESO_DEVICE(folder) extern const neso_device_vtable neso_device_##folder;
#include "device/devices.def"
#undef NESO_DEVICE

namespace neso_rt {

/// nullptr: there is none.
const neso_device_vtable *device_of_kind(int kind);
/// The one that runs code of an fbs::TargetKind.
const neso_device_vtable *device_of_code(int code);

/// "cuda:0".
struct device_label {
  char text[24];
  device_label(int kind, int index);
};

inline bool on_host(const neso_tensor &t) { return t.device == NESO_CPU; }
/// Does `t` lie in the memory of `d`? The host has one memory, whatever its index.
inline bool lies_on(const neso_tensor &t, const device &d) {
  return t.device == d.table->kind && (on_host(t) || t.device_index == d.index);
}

/// The device is current for the calling thread as long as this lives.
class device_scope {
public:
  explicit device_scope(device *on) : entered_(on && on->table->enter(on) ? on : nullptr) {}
  ~device_scope() {
    if (entered_) entered_->table->leave(entered_);
  }
  device_scope(const device_scope &) = delete;
  device_scope &operator=(const device_scope &) = delete;

private:
  device *entered_;
};

} // namespace neso_rt
