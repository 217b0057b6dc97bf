// The first half of a run: checks what the caller gave, computes the sizes, finds memory for everything.
#include "core/context.h"
#include "core/sizes.h"

using namespace neso_rt;

namespace {
// Alignment that kernels may count on for memory of outputs.
constexpr uintptr_t kOutputAlign = 16;

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

// The strides of a caller's tensor, written out when it leaves them to us.
const int64_t *strides_of(const neso_tensor &t, int64_t *scratch) {
  if (t.strides) return t.strides;
  contiguous_strides(t.sizes, t.rank, scratch);
  return scratch;
}
} // namespace

neso_status neso_context::read_scalar(int32_t index, const neso_tensor &given, int64_t **define, bool *changed) {
  const plan_input &in = model->plan.inputs[index];
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
    if (given.device != NESO_CPU)
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
  return bound.scalar_read ? place_gpu_scalar(index) : NESO_OK;
}

neso_status neso_context::read_input(int32_t index, const neso_tensor &given, int64_t **define, bool *changed) {
  const plan_input &in = model->plan.inputs[index];
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
  if (given.device != NESO_CPU && !gpu)
    return fail(NESO_INPUT_DEVICE, "input %d ('%s') does not lie in the memory of the CPU, where the model runs", index,
                in.name);
  if (given.device != NESO_CPU && given.device_index != gpu->index())
    return fail(NESO_INPUT_DEVICE, "input %d ('%s') lies on device cuda:%d, the model runs on cuda:%d", index, in.name,
                given.device_index, gpu->index());
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
neso_status neso_context::check_equal(const neso_tensor *given) {
  const plan &p = model->plan;
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

neso_status neso_context::place_input(int32_t index, const neso_tensor &given, const int64_t *strides) {
  const plan_input &in = model->plan.inputs[index];
  bound_input &bound = inputs[index];
  int64_t scratch[kMaxRank];
  bound.given = &given;
  bound.staged = false;
  bound.data = static_cast<char *>(given.data);
  if (bound.bytes == 0) return NESO_OK;
  const int64_t *have = strides_of(given, scratch);
  bool same = same_layout(given.sizes, have, strides, given.rank),
       fits = same && reinterpret_cast<uintptr_t>(given.data) % uintptr_t(in.align) == 0;
  if (fits && (!gpu || given.device != NESO_CPU)) return NESO_OK;
  if (gpu) return place_gpu_input(index, given, have, strides, same);
  NESO_TRY(grow(&bound.staging, bound.bytes, "a copy of an input"));
  copy_strided(bound.staging.data, strides, given.data, have, given.sizes, given.rank, item(in.dtype));
  bound.data = bound.staging.data;
  bound.staged = true;
  return NESO_OK;
}

neso_status neso_context::lay_out_inputs(const neso_tensor *given) {
  const plan &p = model->plan;
  int64_t *strides = input_strides.data();
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

// How much memory the buffers need that lie in outputs. Late ones are measured again when their AllocOutput step comes.
neso_status neso_context::measure_outputs() {
  const plan &p = model->plan;
  for (bound_output &out : outputs) out.bytes = 0;
  for (const fbs::Buffer &b : p.buffers) {
    if (b.location() != fbs::Location::Output) continue;
    int64_t offset = b.offset() < 0 ? 0 : slots[b.offset()], bytes = slots[b.bytes()];
    bool possible = offset >= 0 && bytes >= 0 && offset <= kMaxBytes && bytes <= kMaxBytes;
    if (!possible && !p.outputs[b.index()].late)
      return fail(NESO_SIZE_INVALID, "an output would have an impossible size");
    if (possible && offset + bytes > outputs[b.index()].bytes) outputs[b.index()].bytes = offset + bytes;
  }
  return NESO_OK;
}

// Sizes and memory of one output. `given`: the caller's tensor.
neso_status neso_context::size_output(int32_t index, const neso_tensor *given) {
  const plan &p = model->plan;
  const plan_output &out = p.outputs[index];
  bound_output &bound = outputs[index];
  bound.direct = false;
  if (out.kind == fbs::OutputKind::None) return NESO_OK;
  for (int32_t d = 0; d < out.dims.size; ++d) bound.sizes[d] = slots[out.dims[d]];
  if (element_count(bound.sizes, out.dims.size) < 0)
    return fail(NESO_SIZE_INVALID, "output %d ('%s') would have an impossible size", index, out.name);
  if (out.strides.present)
    for (int32_t d = 0; d < out.dims.size; ++d) bound.strides[d] = slots[out.strides[d]];
  else
    contiguous_strides(bound.sizes, out.dims.size, bound.strides);
  int64_t extent = element_extent(bound.sizes, bound.strides, out.dims.size);
  if (extent < 0) return fail(NESO_SIZE_INVALID, "output %d ('%s') would have impossible strides", index, out.name);
  bool given_memory = given->data && given->data != bound.last_given;
  bound.to_caller = given_memory;
  bound.on_host = !gpu || given->device == NESO_CPU;
  if (given_memory) {
    if (!bound.on_host && given->device_index != gpu->index())
      return fail(NESO_OUTPUT_MISMATCH,
                  "output %d ('%s'): the buffer given lies on device cuda:%d, the model runs on cuda:%d", index,
                  out.name, given->device_index, gpu->index());
    if (int(given->dtype) != int(out.dtype) || given->rank != out.dims.size || (!gpu && given->device != NESO_CPU) ||
        (given->rank && !given->sizes))
      return fail(NESO_OUTPUT_MISMATCH, "output %d ('%s') is %s with %d dimensions; the buffer given is %s with %d",
                  index, out.name, neso_dtype_name(neso_dtype(out.dtype)), out.dims.size, neso_dtype_name(given->dtype),
                  given->rank);
    for (int32_t d = 0; d < out.dims.size; ++d)
      if (given->sizes[d] != bound.sizes[d])
        return fail(NESO_OUTPUT_MISMATCH, "output %d ('%s') has size %lld in dimension %d; the buffer given has %lld",
                    index, out.name, ll(bound.sizes[d]), d, ll(given->sizes[d]));
  }
  if (out.kind != fbs::OutputKind::Tensor || bound.bytes == 0) return NESO_OK;
  const fbs::Buffer &buffer = p.buffers[out.buffer];
  bool own = buffer.location() == fbs::Location::Output && buffer.index() == index &&
             (buffer.offset() < 0 || slots[buffer.offset()] == 0) && (out.offset < 0 || slots[out.offset] == 0);
  int64_t scratch[kMaxRank];
  if (given_memory && own && bound.on_host == !gpu && reinterpret_cast<uintptr_t>(given->data) % kOutputAlign == 0 &&
      bound.bytes <= extent * item(out.dtype) &&
      same_layout(bound.sizes, strides_of(*given, scratch), bound.strides, out.dims.size)) {
    bound.data = static_cast<char *>(given->data);
    bound.direct = true;
    return NESO_OK;
  }
  NESO_TRY(grow(&bound.own, bound.bytes, "an output"));
  bound.data = bound.own.data;
  return NESO_OK;
}

// Addresses of all buffers, each checked against the memory that it lies in.
neso_status neso_context::locate_buffers() {
  const plan &p = model->plan;
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
      base = p.constants[k].mutated ? buffers[k].data
             : gpu                  ? const_cast<char *>(gpu->device().constant(k))
                                    : reinterpret_cast<char *>(const_cast<uint8_t *>(p.constants[k].data));
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

neso_arg neso_context::resolve(const fbs::Arg &a) const {
  neso_arg v;
  v.i64 = 0;
  switch (a.kind()) {
  case fbs::ArgKind::Buffer: v.ptr = addresses[a.index()] + (a.offset() < 0 ? 0 : slots[a.offset()]); break;
  case fbs::ArgKind::Slot: v.i64 = slots[a.index()]; break;
  case fbs::ArgKind::SlotF64: v.f64 = slot_as_double(slots[a.index()]); break;
  case fbs::ArgKind::SlotF32: v.f32 = float(slot_as_double(slots[a.index()])); break;
  case fbs::ArgKind::I64: v.i64 = a.bits(); break;
  case fbs::ArgKind::F64: v.f64 = slot_as_double(a.bits()); break;
  case fbs::ArgKind::F32: v.f32 = float(slot_as_double(a.bits())); break;
  case fbs::ArgKind::Null: v.ptr = nullptr; break;
  }
  return v;
}

void neso_context::fill_args() {
  for (const step &s : model->plan.steps)
    if (s.kind == fbs::Step::Launch) fill_args(s);
  for (const plan_product &p : model->plan.products)
    if (p.rest.kind == fbs::Step::Launch) fill_args(p.rest);
}

void neso_context::fill_args(const step &launch) {
  for (int32_t i = 0; i < launch.args.size; ++i) args[size_t(launch.first_arg + i)] = resolve(launch.args[i]);
}

neso_status neso_context::bind(const neso_tensor *given, size_t input_count, const neso_tensor *outputs_given,
                               size_t output_count) {
  const plan &p = model->plan;
  if (input_count != p.inputs.size())
    return fail(NESO_INPUT_COUNT, "%zu inputs were given, the model takes %zu", input_count, p.inputs.size());
  if (output_count != p.outputs.size())
    return fail(NESO_INPUT_COUNT, "room for %zu outputs was given, the model has %zu", output_count, p.outputs.size());
  given_outputs = outputs_given;
  bool fresh = !bound || p.has_late_sizes, changed = false;
  bound = false;
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
    if (changed && costs.size()) memset(costs.data(), 0, costs.size() * sizeof(launch_cost));
    NESO_TRY(lay_out_inputs(given));
    for (size_t a = 0; a < arenas.size(); ++a)
      if (!p.arena_late[a]) NESO_TRY(grow(&arenas[a], slots[p.arena_slots[a]], "intermediate results"));
    NESO_TRY(measure_outputs());
  }
  moved = fresh;
  const int64_t *strides = input_strides.data();
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
    NESO_TRY(size_output(int32_t(i), &given_outputs[i]));
    moved |= outputs[i].data != before;
  }
  if (moved) {
    NESO_TRY(locate_buffers());
    if (!p.has_late_sizes) fill_args();
  }
  bound = true;
  return NESO_OK;
}
