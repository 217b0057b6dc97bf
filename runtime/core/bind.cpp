// The first half of a run: checks what the caller gave, computes the sizes, finds memory for everything.
#include <stdio.h>

#include "core/arguments.h"
#include "core/binding.h"
#include "core/sizes.h"
#include "core/strided.h"

using namespace neso_rt;

namespace {
long long ll(int64_t v) { return static_cast<long long>(v); }
int item(fbs::DType t) { return int(item_size(int(t))); }

void set_value(int64_t *slots, int32_t slot, int64_t value, int64_t **define, bool *changed) {
  if (slot >= 0) slots[slot] = value;
  if (**define != value) {
    **define = value;
    *changed = true;
  }
  ++*define;
}
} // namespace

const int64_t *neso_rt::strides_of(const neso_tensor &t, int64_t *scratch) {
  if (t.strides) return t.strides;
  contiguous_strides(t.sizes, t.rank, scratch);
  return scratch;
}

neso_status neso_rt::guard_failed(const flatbuffers::String *message, const int64_t *slots, int32_t slot_count) {
  char text[700];
  size_t at = 0;
  for (const char *p = message ? message->c_str() : "a condition of the model does not hold";
       *p && at < sizeof text - 32;) {
    int32_t slot = -1, used = 0;
    if (*p == '{' && sscanf(p, "{%d}%n", &slot, &used) == 1 && used > 0 && slot >= 0 && slot < slot_count) {
      at += size_t(snprintf(text + at, sizeof text - at, "%lld", ll(slots[slot])));
      p += used;
    } else {
      text[at++] = *p++;
    }
  }
  text[at] = 0;
  return fail(NESO_GUARD_FAILED, "%s", text);
}

neso_status binding::start(const plan &program, queue *q, memory *m, const neso_context_options &options) {
  options_ = &options;
  program_ = &program;
  queue_ = q;
  memory_ = m;
  size_t definitions = 0, strides = 0, shapes = 0;
  for (const plan_input &in : program.inputs) {
    definitions += size_t(in.dims.size) + 1;
    strides += size_t(in.dims.size);
  }
  for (const plan_output &out : program.outputs) shapes += 2 * size_t(out.dims.size);
  NESO_TRY(slots.resize(size_t(program.slot_count)));
  for (int32_t i = 0; i < program.slot_constants; ++i) slots[i] = program.constant_values[i];
  NESO_TRY(bound_sizes.resize(definitions));
  NESO_TRY(input_strides_.resize(strides));
  NESO_TRY(output_shapes_.resize(shapes));
  NESO_TRY(inputs.resize(program.inputs.size()));
  NESO_TRY(outputs.resize(program.outputs.size()));
  int64_t *at = output_shapes_.data();
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    outputs[i].sizes = at;
    outputs[i].strides = at + program.outputs[i].dims.size;
    at += 2 * program.outputs[i].dims.size;
  }
  // Python scalars that a kernel reads from memory.
  for (const fbs::Buffer &b : program.buffers)
    if (b.location() == fbs::Location::Input && program.inputs[size_t(b.index())].kind != fbs::InputKind::Tensor)
      inputs[size_t(b.index())].scalar_read = true;
  NESO_TRY(arenas.resize(program.arena_slots.size()));
  NESO_TRY(addresses.resize(size_t(program.buffers.size)));
  NESO_TRY(args_.resize(size_t(program.arg_bytes)));
  NESO_TRY(buffers.resize(program.constants.size()));
  NESO_TRY(first_ids_.resize(program.constants.size()));
  for (size_t i = 0; i < program.constants.size(); ++i) {
    const plan_constant &c = program.constants[i];
    if (c.mutated) NESO_TRY(memory_->grow(&buffers[i], c.bytes ? c.bytes : 1, c.name));
  }
  constants_ = {0, q->on->constants.data(), nullptr, nullptr};
  return reset_buffers();
}

void binding::release() {
  for (bound_input &in : inputs) {
    memory_->release(&in.staging);
    free(in.packed);
    memory_->release(&in.host);
  }
  for (bound_output &out : outputs) {
    memory_->release(&out.own);
    memory_->release(&out.host);
  }
  for (block &b : arenas) memory_->release(&b);
  for (block &b : buffers) memory_->release(&b);
}

const uint8_t *binding::initial(size_t constant) const {
  return constants_.values ? constants_.values[constant] : program_->constants[constant].data;
}

neso_status binding::reset_buffers() {
  for (size_t i = 0; i < buffers.size(); ++i) {
    const plan_constant &c = program_->constants[i];
    if (c.mutated && c.bytes && initial(i)) NESO_TRY(queue_->table->upload(queue_, buffers[i].data, initial(i), c.bytes));
  }
  return queue_->table->synchronize(queue_);
}

neso_status binding::read_constants(const constant_view &view) {
  constants_ = view;
  constants_changed_ = true;
  bool uploaded = false;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const plan_constant &c = program_->constants[i];
    if (!c.mutated || !c.bytes || !initial(i)) continue;
    const int64_t id = view.ids ? view.ids[i] : 0;
    if (first_ids_[i] == id) continue;
    first_ids_[i] = id;
    NESO_TRY(queue_->table->upload(queue_, buffers[i].data, initial(i), c.bytes));
    uploaded = true;
  }
  return uploaded ? queue_->table->synchronize(queue_) : NESO_OK;
}

neso_status binding::read_scalar(int32_t index, const neso_tensor &given, int64_t **define, bool *changed) {
  const plan_input &in = program_->inputs[index];
  int64_t value = 0;
  if (!given.data && in.optional_value && in.scalar.equal() >= 0) {
    value = slots[in.scalar.equal()];
  } else {
    neso_dtype wanted = in.kind == fbs::InputKind::Int     ? NESO_I64
                        : in.kind == fbs::InputKind::Float ? NESO_F64
                                                           : NESO_BOOL;
    if (!given.data)
      return fail(NESO_INPUT_MISSING, "input %d ('%s') is missing: it is a 0-d tensor of %s", index, in.name,
                  neso_dtype_name(wanted));
    if (given.dtype != wanted)
      return fail(NESO_INPUT_DTYPE,
                  "input %d ('%s') has dtype %s; the model takes a Python scalar there, given as a 0-d tensor of %s",
                  index, in.name, neso_dtype_name(given.dtype), neso_dtype_name(wanted));
    if (given.rank != 0)
      return fail(NESO_INPUT_RANK, "input %d ('%s') has %d dimensions; a Python scalar is a 0-d tensor", index, in.name,
                  given.rank);
    if (!on_host(given))
      return fail(NESO_INPUT_DEVICE, "input %d ('%s') is a scalar and must lie in the memory of the CPU", index,
                  in.name);
    if (wanted == NESO_BOOL)
      value = *static_cast<const uint8_t *>(given.data) != 0;
    else
      memcpy(&value, given.data, 8);
  }
  if (in.kind != fbs::InputKind::Float && (value < in.scalar.min() || value > in.scalar.max()))
    return fail(NESO_INPUT_RANGE, "input %d ('%s') is %lld, outside its range [%lld, %lld]", index, in.name, ll(value),
                ll(in.scalar.min()), ll(in.scalar.max()));
  set_value(slots.data(), in.scalar.define(), value, define, changed);
  bound_input &bound = inputs[index];
  bound.scalar_kept &= bound.scalar == value;
  bound.scalar = value;
  bound.data = reinterpret_cast<char *>(&bound.scalar);
  bound.bytes = in.kind == fbs::InputKind::Bool ? 1 : 8;
  return bound.scalar_read ? place_scalar(index) : NESO_OK;
}

neso_status binding::read_input(int32_t index, const neso_tensor &given, int64_t **define, bool *changed) {
  const plan_input &in = program_->inputs[index];
  if (in.kind == fbs::InputKind::Text) return NESO_OK;
  if (in.kind == fbs::InputKind::None) {
    if (!given.data) return NESO_OK;
    return fail(NESO_INPUT_DTYPE, "input %d ('%s') is a tensor; the model was exported with None there", index,
                in.name);
  }
  if (in.kind != fbs::InputKind::Tensor) return read_scalar(index, given, define, changed);
  bool empty = false;
  for (int32_t d = 0; given.sizes && d < given.rank; ++d) empty |= given.sizes[d] == 0;
  if (!given.data && !empty)
    return fail(NESO_INPUT_MISSING, "input %d ('%s') is missing: it is a tensor of %s", index, in.name,
                neso_dtype_name(neso_dtype(in.dtype)));
  if (int(given.dtype) != int(in.dtype))
    return fail(NESO_INPUT_DTYPE, "input %d ('%s') has dtype %s, the model takes %s", index, in.name,
                neso_dtype_name(given.dtype), neso_dtype_name(neso_dtype(in.dtype)));
  if (given.rank != in.dims.size)
    return fail(NESO_INPUT_RANK, "input %d ('%s') has %d dimensions, the model takes %d", index, in.name, given.rank,
                in.dims.size);
  if (!on_host(given) && !here(given))
    return fail(NESO_INPUT_DEVICE, "input %d ('%s') lies on device %s, the model runs on %s", index, in.name,
                device_label(given.device, given.device_index).text,
                device_label(queue_->table->kind, queue_->on->index).text);
  if (given.rank && !given.sizes) return fail(NESO_INVALID_ARGUMENT, "input %d ('%s') has no sizes", index, in.name);
  for (int32_t d = 0; d < in.dims.size; ++d) {
    const fbs::InputDim &dim = in.dims[d];
    int64_t size = given.sizes[d];
    if (size < 0)
      return fail(NESO_INPUT_DIM, "input %d ('%s') has size %lld in dimension %d", index, in.name, ll(size), d);
    if (size < dim.min() || size > dim.max()) {
      if (dim.min() == dim.max())
        return fail(NESO_INPUT_DIM, "input %d ('%s') has size %lld in dimension %d, the model takes %lld", index,
                    in.name, ll(size), d, ll(dim.min()));
      if (dim.max() == INT64_MAX)
        return fail(NESO_INPUT_RANGE, "input %d ('%s') has size %lld in dimension %d, below the exported least of %lld", index, in.name, ll(size), d,
                    ll(dim.min()));
      return fail(NESO_INPUT_RANGE,
                  "input %d ('%s') has size %lld in dimension %d, outside the exported range [%lld, %lld]", index,
                  in.name, ll(size), d, ll(dim.min()), ll(dim.max()));
    }
    if (dim.define() >= 0) set_value(slots.data(), dim.define(), size, define, changed);
  }
  if (element_count(given.sizes, given.rank) < 0)
    return fail(NESO_INPUT_DIM, "input %d ('%s') is too large", index, in.name);
  return NESO_OK;
}

// The sizes that the prologue says an input must have.
neso_status binding::check_equal(const neso_tensor *given) {
  const plan &p = *program_;
  for (size_t i = 0; i < p.inputs.size(); ++i) {
    const plan_input &in = p.inputs[i];
    if (in.kind == fbs::InputKind::Tensor) {
      for (int32_t d = 0; d < in.dims.size; ++d) {
        int32_t slot = in.dims[d].equal();
        if (slot >= 0 && slots[slot] != given[i].sizes[d])
          return fail(NESO_INPUT_DIM, "input %zu ('%s') has size %lld in dimension %d, %s %lld", i, in.name,
                      ll(given[i].sizes[d]), d,
                      slot < p.slot_constants ? "the model takes" : "given the sizes of the other inputs it must be",
                      ll(slots[slot]));
      }
    } else if (in.scalar.equal() >= 0 && in.scalar.define() >= 0 &&
               slots[in.scalar.equal()] != slots[in.scalar.define()]) {
      int64_t wanted = slots[in.scalar.equal()];
      if (in.kind == fbs::InputKind::Float) {
        return fail(NESO_INPUT_RANGE, "input %zu ('%s') is %g, the model was exported for %g", i, in.name,
                    slot_as_double(slots[in.scalar.define()]), slot_as_double(wanted));
      }
      return fail(NESO_INPUT_RANGE, "input %zu ('%s') is %lld, the model was exported for %lld", i, in.name,
                  ll(slots[in.scalar.define()]), ll(wanted));
    }
  }
  return NESO_OK;
}

neso_status binding::place_scalar(int32_t index) {
  bound_input &bound = inputs[size_t(index)];
  NESO_TRY(memory_->grow(&bound.staging, int64_t(sizeof bound.scalar), "an input"));
  bound.data = bound.staging.data;
  if (bound.scalar_kept) return NESO_OK;
  NESO_TRY(queue_->table->upload(queue_, bound.data, &bound.scalar, int64_t(sizeof bound.scalar)));
  bound.scalar_kept = true;
  return NESO_OK;
}

// strides: the model's.
neso_status binding::place_input(int32_t index, const neso_tensor &given, const int64_t *strides) {
  const plan_input &in = program_->inputs[index];
  bound_input &bound = inputs[index];
  int64_t scratch[kMaxRank];
  bound.given = &given;
  bound.staged = false;
  bound.data = static_cast<char *>(given.data);
  if (bound.bytes == 0) return NESO_OK;
  const int64_t *have = strides_of(given, scratch);
  bool same = same_layout(given.sizes, have, strides, given.rank);
  if (same && here(given) && reinterpret_cast<uintptr_t>(given.data) % uintptr_t(in.align) == 0) return NESO_OK;
  const neso_device_vtable &device = *queue_->table;
  NESO_TRY(memory_->grow(&bound.staging, bound.bytes, "a copy of an input"));
  bound.data = bound.staging.data;
  bound.staged = true;
  if (here(given))
    return device.copy(queue_, bound.data, strides, static_cast<const char *>(given.data), have, given.sizes,
                       given.rank, item(in.dtype));
  if (same) return device.upload(queue_, bound.data, given.data, bound.bytes);
  // Upload has taken the bytes when it returns, so that the next run may write here at once.
  if (bound.packed_bytes < bound.bytes) {
    free(bound.packed);
    bound.packed = static_cast<char *>(calloc(1, size_t(bound.bytes)));
    bound.packed_bytes = bound.packed ? bound.bytes : 0;
    if (!bound.packed)
      return fail(NESO_OUT_OF_MEMORY, "out of memory: %lld bytes for a copy of an input", ll(bound.bytes));
  }
  copy_strided(bound.packed, strides, given.data, have, given.sizes, given.rank, item(in.dtype));
  return device.upload(queue_, bound.data, bound.packed, bound.bytes);
}

neso_status binding::lay_out_inputs(const neso_tensor *given) {
  const plan &p = *program_;
  int64_t *strides = input_strides_.data();
  for (size_t i = 0; i < p.inputs.size(); ++i) {
    const plan_input &in = p.inputs[i];
    if (in.kind != fbs::InputKind::Tensor) continue;
    if (in.strides.present)
      for (int32_t d = 0; d < in.strides.size; ++d) strides[d] = slots[in.strides[d]];
    else
      contiguous_strides(given[i].sizes, in.dims.size, strides);
    int64_t extent = element_extent(given[i].sizes, strides, in.dims.size);
    if (extent < 0)
      return fail(NESO_SIZE_INVALID, "input %zu ('%s') would need strides that the runtime cannot serve", i, in.name);
    inputs[i].bytes = extent * item(in.dtype);
    strides += in.dims.size;
  }
  return NESO_OK;
}

// Addresses of all buffers, each checked against the memory that it lies in.
neso_status binding::locate_buffers() {
  const plan &p = *program_;
  for (int32_t i = 0; i < p.buffers.size; ++i) {
    const fbs::Buffer &b = p.buffers[i];
    int64_t offset = b.offset() < 0 ? 0 : slots[b.offset()], bytes = slots[b.bytes()], capacity = 0;
    char *base = nullptr;
    bool late = false;
    size_t k = size_t(b.index());
    switch (b.location()) {
    case fbs::Location::Input:
      base = inputs[k].data;
      capacity = inputs[k].bytes;
      break;
    case fbs::Location::Constant:
      base = p.constants[k].mutated ? buffers[k].data : constants_.addresses[k];
      capacity = p.constants[k].bytes;
      break;
    case fbs::Location::Arena:
      base = arenas[k].data;
      capacity = arenas[k].capacity;
      late = p.arena_late[k];
      break;
    case fbs::Location::Output:
      base = outputs[k].data;
      capacity = outputs[k].bytes;
      late = p.outputs[k].late;
      if (late && !base) capacity = -1;
      break;
    }
    bool fits = offset >= 0 && bytes >= 0 && offset <= capacity && bytes <= capacity - offset;
    if (!fits && !late)
      return fail(NESO_SIZE_INVALID, "buffer %d of the plan (%lld bytes at %lld) does not fit its memory of %lld bytes",
                  i, ll(bytes), ll(offset), ll(capacity));
    addresses[i] = fits ? base + offset : kNotYet;
  }
  return NESO_OK;
}

void binding::fill_args(const step &launch) {
  write_arguments(launch, program_->kernels[size_t(launch.a)], slots.data(), addresses.data(),
                  args_.data() + launch.arg_memory);
}

neso_status binding::grow_arena(int32_t index) {
  NESO_TRY(memory_->grow(&arenas[index], slots[program_->arena_slots[index]], "intermediate results"));
  return locate_buffers();
}

neso_status binding::bind(const neso_tensor *given, size_t input_count, neso_tensor *outputs_given,
                          size_t output_count) {
  const plan &p = *program_;
  if (input_count != p.inputs.size())
    return fail(NESO_INPUT_COUNT, "%zu inputs were given, the model takes %zu", input_count, p.inputs.size());
  if (output_count != p.outputs.size())
    return fail(NESO_INPUT_COUNT, "room for %zu outputs was given, the model has %zu", output_count, p.outputs.size());
  given_outputs_ = outputs_given;
  bool fresh = !bound_ || p.late_memory, changed = false;
  bound_ = false;
  int64_t *define = bound_sizes.data();
  for (size_t i = 0; i < input_count; ++i) NESO_TRY(read_input(int32_t(i), given[i], &define, &changed));
  fresh |= changed;
  if (fresh)
    NESO_TRY(eval_sizes(p.size_program.data + p.prologue_begin, p.size_program.data + p.prologue_end, slots.data()));
  NESO_TRY(check_equal(given));
  if (fresh) {
    const auto *guards = p.root->guards();
    for (uint32_t g = 0; guards && g < guards->size(); ++g)
      if (slots[guards->Get(g)->slot()] == 0)
        return guard_failed(guards->Get(g)->message(), slots.data(), p.slot_count);
    if (changed) queue_->table->sizes_changed(queue_);
    NESO_TRY(lay_out_inputs(given));
    for (size_t a = 0; a < arenas.size(); ++a)
      if (!p.arena_late[a]) NESO_TRY(memory_->grow(&arenas[a], slots[p.arena_slots[a]], "intermediate results"));
    NESO_TRY(measure_outputs());
  }
  moved = fresh || constants_changed_;
  const int64_t *strides = input_strides_.data();
  for (size_t i = 0; i < input_count; ++i) {
    if (p.inputs[i].kind != fbs::InputKind::Tensor) continue;
    char *before = inputs[i].data;
    NESO_TRY(place_input(int32_t(i), given[i], strides));
    moved |= inputs[i].data != before;
    strides += p.inputs[i].dims.size;
  }
  for (size_t i = 0; i < output_count; ++i) {
    if (p.outputs[i].late) {
      outputs[i].data = nullptr;
      continue;
    }
    char *before = outputs[i].data;
    NESO_TRY(size_output(int32_t(i), &given_outputs_[i]));
    moved |= outputs[i].data != before;
  }
  if (moved) {
    NESO_TRY(locate_buffers());
    constants_changed_ = false;
    // Plans whose memory comes up while they run fill theirs in at each launch.
    for (const step &s : p.steps)
      if (s.kind == fbs::Step::Launch && !p.has_late_sizes) fill_args(s);
    for (const plan_product &product : p.products)
      if (product.rest.kind == fbs::Step::Launch && !p.has_late_sizes) fill_args(product.rest);
  }
  bound_ = true;
  return NESO_OK;
}
