// A plan (abi/plan.fbs) checked and ready to walk. After plan::open has said NESO_OK, every slot, buffer, constant,
// kernel, sub-plan and enumeration value that the plan mentions is known to exist, so that the walker checks nothing
// but sizes.
//
// The plan's own bytes stay in use: vectors of numbers and structs are read where they lie. Only the steps are
// unpacked, into one flat array in which each sub-plan is a range.
#pragma once
#include "abi/plan_generated.h"
#include "core/weight_file.h"

namespace neso_rt {
namespace fbs = neso::fbs;

inline constexpr int kMaxRank = 64;
/// Bytes of the arguments of one kernel, and where the last of them may begin.
inline constexpr int32_t kMaxArgBytes = 1 << 20;

template <typename T> struct span {
  const T *data = nullptr;
  int32_t size = 0;
  bool present = false; // an absent vector differs from an empty one
  const T &operator[](int32_t i) const { return data[i]; }
  const T *begin() const { return data; }
  const T *end() const { return data + size; }
};

struct plan_input {
  const char *name;
  fbs::InputKind kind;
  fbs::DType dtype;
  span<fbs::InputDim> dims;
  span<int32_t> strides;
  int32_t align;
  bool mutated, optional_value;
  fbs::InputDim scalar;
};

struct plan_output {
  const char *name;
  fbs::OutputKind kind;
  fbs::DType dtype;
  int32_t buffer;
  span<int32_t> dims, strides;
  int32_t offset, slot;
  bool late;
  const char *text; // of a result that is a string; NULL: it is none
  bool number;      // a tensor of one element that callers know as a number
};

/// Elements put into another order, as fbs::ElementOrder says.
struct element_piece {
  span<int64_t> sizes, to_strides, from_strides;
  int64_t to, from;
};
struct element_order {
  int64_t elements;
  span<element_piece> pieces;
};

struct plan_constant {
  const char *name;
  fbs::ConstantKind kind;
  fbs::DType dtype;
  span<int64_t> sizes, strides;
  const uint8_t *data; // nullptr: the caller gives it
  int64_t bytes;
  bool mutated;
  span<element_order> orders; // how the bytes were made of those that its tensors lie in; empty: they are those
  int64_t source_elements;     // of the latter
};

/// A tensor of the model and the constant that it lies in, before that was put into order.
struct plan_tensor {
  const char *name;
  int32_t constant;
  span<int64_t> sizes, strides;
  int64_t offset; // elements
  int32_t next;   // the same tensor in another constant, an index into plan::tensors; -1: none
};

struct plan_kernel {
  const char *name;
  const fbs::Kernel *row;
  int32_t arg_count;
  int64_t scratch_bytes;
  bool serial;
  span<fbs::ArgPlace> arg_places; // absent: 8 bytes each, without gaps
  int64_t arg_bytes;              // of the memory of all of them
  bool args_are_words;            // they lie as in an array of neso_arg
  int32_t arg_offset(int32_t i) const { return arg_places.present ? arg_places[i].offset() : 8 * i; }
};

struct step {
  fbs::Step kind;
  int32_t a, b, c;     // meaning by kind, below
  const void *row;     // the step's own table
  span<fbs::Arg> args; // Launch
  int32_t grid[3];     // Launch: slots
  int64_t arg_memory;  // Launch: byte of its arguments' memory in that of all launches, a multiple of kAlign
  int32_t product;     // Launch: what a library may do instead, an index into plan::products; -1: nothing
};
// CallExtern: a its number among those.   Launch: a kernel.   EvalSizes: [a, b) of the size program.   If: a slot, b then, c else.   While: a condition, b
// slot, c body. GrowArena: a arena.   AllocOutput: a output.   Others: row.

struct step_range {
  int32_t begin, end; // in plan::steps
};

/// A matrix product that stands for a launch.
struct plan_product {
  const fbs::Product *row;
  step rest; // the launch that follows it; kind NONE: none does
};

class plan {
public:
  /// `member` holds the plan; `files` the other parts. Both borrowed as long as the plan lives. Code is not touched.
  /// beside: holds the constants that `files` does not; opened if the plan asks for it.
  neso_status open(const uint8_t *bytes, size_t size, const archive &files, weight_file *beside);
  /// Sets `root` alone, whose tables are then whole; open() begins with it.
  neso_status check_header(const uint8_t *bytes, size_t size);

  const fbs::Plan *root = nullptr;
  int32_t slot_count = 0, slot_constants = 0;
  span<int64_t> constant_values; // of the first slots
  span<fbs::SizeInst> size_program;
  int32_t prologue_begin = 0, prologue_end = 0;
  array<plan_input> inputs;
  array<plan_output> outputs;
  array<plan_constant> constants;
  array<plan_tensor> tensors; // what the model calls them, constant by constant
  array<int32_t> named;       // of these, the first of each name
  span<fbs::Buffer> buffers;
  array<int32_t> arena_slots; // slot of each arena's bytes
  array<bool> arena_late;
  array<plan_kernel> kernels;
  array<step> steps;
  array<step_range> subplans;
  array<plan_product> products;
  int32_t arg_total = 0; // arguments of all launches
  int64_t arg_bytes = 0; // and the memory that they take
  int64_t launch_count = 0;
  int32_t extern_count = 0; // calls of operators of the caller's
  int64_t max_scratch = 0;
  bool lends_constants = false; // an output is a constant where it lies
  bool has_late_sizes = false; // slots change while the steps run
  bool late_memory = false;    // so do memory, or what is handed out

  /// The first of the name among `tensors`; -1: none.
  int32_t find_tensor(const char *name) const;
  /// What the package holds code for, for failures: "x86-64-v3, sm_90"; "no target". Cut off at `size` bytes.
  void name_targets(char *out, size_t size) const;

private:
  template <typename T, typename V> span<T> elements(const V *v);
  template <typename T> span<T> numbers(const flatbuffers::Vector<T> *v);
  template <typename T> span<T> structs(const flatbuffers::Vector<const T *> *v);
  neso_status read_sizes();
  neso_status read_inputs();
  neso_status read_constants(const archive &files, weight_file *beside);
  neso_status count_orders();
  neso_status read_orders(const fbs::Constant *row, plan_constant *c);
  neso_status read_order(const fbs::ElementOrder *row, const plan_constant &c, int64_t from, element_order *out);
  neso_status read_tensors();
  neso_status name_tensors();
  neso_status read_buffers();
  neso_status read_outputs();
  neso_status read_kernels();
  neso_status read_subplans();
  neso_status judge_memory();
  neso_status read_arg_places(plan_kernel *kernel);
  neso_status check_copy(const fbs::Copy *copy);
  neso_status read_step(int32_t subplan, fbs::Step kind, const void *row, step *out);
  neso_status read_launch(const fbs::Launch *row, step *out);
  neso_status read_product(const fbs::Product *row);
  neso_status read_matrix(const fbs::Matrix *row) const;
  neso_status slot(int64_t index, const char *where) const;
  neso_status slot_or_none(int64_t index, const char *where) const;
  neso_status writable_slot(int64_t index, const char *where) const;
  neso_status slots(span<int32_t> indices, const char *where) const;
  neso_status buffer(int64_t index, const char *where) const;
  array<element_order> orders_;  // of all constants
  array<element_piece> pieces_;  // of all orders
  array<int32_t> name_table_; // places of `tensors` plus one, by hash of the name; 0: free
  bool misaligned_ = false;
  int32_t products_read_ = 0;
  size_t orders_read_ = 0, pieces_read_ = 0;
};

} // namespace neso_rt
