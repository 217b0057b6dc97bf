// The other half: memory for the outputs, and the last part of a run, which hands them to the caller and puts mutated
// inputs back where they came from.
#include "core/binding.h"
#include "core/strided.h"

using namespace neso_rt;

namespace {
// Alignment that kernels may count on for memory of outputs.
constexpr uintptr_t kOutputAlign = 16;

int item(fbs::DType t) { return int(item_size(int(t))); }

void scatter(bool *pending, const host_block &from, const neso_tensor &to, const int64_t *sizes, const int64_t *strides,
             int rank, int item) {
  int64_t scratch[kMaxRank];
  if (*pending) copy_strided(to.data, strides_of(to, scratch), from.data, strides, sizes, rank, item);
  *pending = false;
}
} // namespace

// How much memory the buffers need that lie in outputs. Late ones are measured again when their AllocOutput step comes.
neso_status binding::measure_outputs() {
  const plan &p = *program_;
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

neso_status binding::check_output(int32_t index, const neso_tensor &given) const {
  const plan_output &out = program_->outputs[size_t(index)];
  const bound_output &bound = outputs[size_t(index)];
  if (!on_host(given) && !here(given))
    return fail(NESO_OUTPUT_MISMATCH, "output %d ('%s'): the buffer given lies on device %s, the model runs on %s",
                index, out.name, device_label(given.device, given.device_index).text,
                device_label(queue_->table->kind, queue_->on->index).text);
  if (int(given.dtype) != int(out.dtype) || given.rank != out.dims.size || (given.rank && !given.sizes))
    return fail(NESO_OUTPUT_MISMATCH, "output %d ('%s') is %s with %d dimensions; the buffer given is %s with %d",
                index, out.name, neso_dtype_name(neso_dtype(out.dtype)), out.dims.size, neso_dtype_name(given.dtype),
                given.rank);
  for (int32_t d = 0; d < out.dims.size; ++d)
    if (given.sizes[d] != bound.sizes[d])
      return fail(NESO_OUTPUT_MISMATCH, "output %d ('%s') has size %lld in dimension %d; the buffer given has %lld",
                  index, out.name, (long long)bound.sizes[d], d, (long long)given.sizes[d]);
  return NESO_OK;
}

// Lets the caller bring memory for an output whose sizes and strides are known by now.
neso_status binding::ask_for_output(int32_t index, neso_tensor *given) {
  const plan_output &out = program_->outputs[size_t(index)];
  const bound_output &bound = outputs[size_t(index)];
  neso_tensor wanted = *given;
  wanted.data = nullptr;
  wanted.sizes = bound.sizes;
  wanted.strides = bound.strides;
  wanted.rank = out.dims.size;
  wanted.dtype = neso_dtype(out.dtype);
  if (options_->output(options_->output_user, index, &wanted) != 0)
    return fail(NESO_OUT_OF_MEMORY, "the caller has no memory for output %d ('%s')", index, out.name);
  if (wanted.data) *given = wanted;
  return NESO_OK;
}

// Whether a run would read an input where it writes these bytes: element i of a result may need any element of an input.
bool binding::lies_in_an_input(const char *memory, int64_t bytes) const {
  for (const bound_input &in : inputs)
    if (in.data && in.bytes && memory < in.data + in.bytes && in.data < memory + bytes) return true;
  return false;
}

// The caller's memory is that of one output alone. Columns of one tensor may lie between each other.
neso_status binding::check_apart(int32_t index, const neso_tensor &given) const {
  const auto dense_bytes = [&](const neso_tensor &t, const plan_output &of) {
    int64_t dense[kMaxRank];
    contiguous_strides(t.sizes, t.rank, dense);
    return !t.strides || same_layout(t.sizes, t.strides, dense, t.rank) ? element_count(t.sizes, t.rank) * item(of.dtype) : 1;
  };
  const char *memory = static_cast<const char *>(given.data);
  const int64_t bytes = dense_bytes(given, program_->outputs[size_t(index)]);
  for (int32_t k = 0; k < index; ++k) {
    const neso_tensor &other = given_outputs_[k];
    if (!outputs[size_t(k)].to_caller || !other.data || other.device != given.device) continue;
    const char *there = static_cast<const char *>(other.data);
    if (bytes && memory < there + dense_bytes(other, program_->outputs[size_t(k)]) && there < memory + bytes)
      return fail(NESO_INVALID_ARGUMENT, "the buffers given for outputs %d ('%s') and %d ('%s') share memory", k, program_->outputs[size_t(k)].name, index,
                  program_->outputs[size_t(index)].name);
  }
  return NESO_OK;
}

// Sizes and memory of one output. `given`: the caller's tensor.
neso_status binding::size_output(int32_t index, neso_tensor *given) {
  const plan &p = *program_;
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
  const bool open = !given->data || given->data == bound.last_given;
  const bool asked = open && options_->output && out.kind == fbs::OutputKind::Tensor && !out.number;
  if (asked) NESO_TRY(ask_for_output(index, given));
  bool given_memory = given->data && given->data != bound.last_given;
  bound.to_caller = given_memory;
  bound.fetched = on_host(*given) && !here(*given);
  if (given_memory) NESO_TRY(check_output(index, *given));
  // What was asked for is new.
  const bool kept = given_memory && !asked;
  if (kept) NESO_TRY(check_apart(index, *given));
  if (out.kind != fbs::OutputKind::Tensor || (bound.bytes == 0 && !out.late)) return NESO_OK;
  const fbs::Buffer &buffer = p.buffers[out.buffer];
  bool own = buffer.location() == fbs::Location::Output && buffer.index() == index &&
             (buffer.offset() < 0 || slots[buffer.offset()] == 0) && (out.offset < 0 || slots[out.offset] == 0);
  int64_t scratch[kMaxRank];
  if (given_memory && bound.bytes && own && here(*given) && reinterpret_cast<uintptr_t>(given->data) % kOutputAlign == 0 &&
      bound.bytes <= extent * item(out.dtype) &&
      same_layout(bound.sizes, strides_of(*given, scratch), bound.strides, out.dims.size) &&
      !(kept && lies_in_an_input(static_cast<const char *>(given->data), bound.bytes))) {
    bound.data = static_cast<char *>(given->data);
    bound.direct = true;
    return NESO_OK;
  }
  // An empty one that came late has an address, too: it says that the sizes are known (locate_buffers).
  NESO_TRY(memory_->grow(&bound.own, bound.bytes ? bound.bytes : int64_t(kOutputAlign), "an output"));
  bound.data = bound.own.data;
  return NESO_OK;
}

neso_status binding::place_late_output(int32_t index) {
  NESO_TRY(measure_outputs());
  NESO_TRY(size_output(index, &given_outputs_[index]));
  return locate_buffers();
}

neso_status binding::extent_check(int32_t buffer, int64_t first, int64_t last, int64_t item_bytes) const {
  int64_t bytes = slots[program_->buffers[buffer].bytes()];
  if (addresses[buffer] != kNotYet && first >= 0 && last < bytes / item_bytes) return NESO_OK;
  return fail(NESO_SIZE_INVALID, "a step of the plan reaches outside buffer %d of %lld bytes", buffer,
              (long long)bytes);
}

// A mutated input that was copied: back to the caller's memory. strides: the model's.
neso_status binding::return_input(int32_t index, const int64_t *strides) {
  bound_input &bound = inputs[size_t(index)];
  const neso_tensor &to = *bound.given;
  int64_t scratch[kMaxRank];
  const int64_t *have = strides_of(to, scratch);
  const neso_device_vtable &device = *queue_->table;
  if (here(to))
    return device.copy(queue_, static_cast<char *>(to.data), have, bound.data, strides, to.sizes, to.rank,
                       item(program_->inputs[size_t(index)].dtype));
  unfinished = true;
  if (same_layout(to.sizes, have, strides, to.rank)) return device.download(queue_, to.data, bound.data, bound.bytes);
  NESO_TRY(memory_->grow(&bound.host, bound.bytes));
  bound.scatter = true;
  bound.scatter_to = to;
  return device.download(queue_, bound.host.data, bound.data, bound.bytes);
}

// memory: of the output's element 0, on the device; the output is not empty.
neso_status binding::hand_out_memory(int32_t index, char *memory, neso_tensor *out) {
  const plan_output &o = program_->outputs[size_t(index)];
  bound_output &bound = outputs[size_t(index)];
  if (bound.to_caller && bound.direct) return NESO_OK;
  const neso_device_vtable &device = *queue_->table;
  int size = item(o.dtype);
  int64_t scratch[kMaxRank];
  if (bound.to_caller && !bound.fetched)
    return device.copy(queue_, static_cast<char *>(out->data), strides_of(*out, scratch), memory, bound.strides,
                       bound.sizes, o.dims.size, size);
  if (!bound.fetched) {
    *out = {memory, bound.sizes, bound.strides, o.dims.size, neso_dtype(o.dtype), device.kind, queue_->on->index};
    bound.last_given = memory;
    return NESO_OK;
  }
  unfinished = true;
  int64_t extent = element_extent(bound.sizes, bound.strides, o.dims.size);
  bool dense = extent == element_count(bound.sizes, o.dims.size);
  if (bound.to_caller && dense && same_layout(bound.sizes, strides_of(*out, scratch), bound.strides, o.dims.size))
    return device.download(queue_, out->data, memory, extent * size);
  NESO_TRY(memory_->grow(&bound.host, extent * size));
  NESO_TRY(device.download(queue_, bound.host.data, memory, extent * size));
  if (bound.to_caller) {
    bound.scatter = true;
    bound.scatter_to = *out;
    return NESO_OK;
  }
  *out = {bound.host.data, bound.sizes, bound.strides, o.dims.size, neso_dtype(o.dtype), NESO_CPU, 0};
  bound.last_given = bound.host.data;
  return NESO_OK;
}

neso_status binding::hand_out_tensor(int32_t index, neso_tensor *out) {
  const plan_output &o = program_->outputs[index];
  bound_output &bound = outputs[index];
  const bool tensor = o.kind == fbs::OutputKind::Tensor;
  if (tensor) {
    int64_t offset = o.offset < 0 ? 0 : slots[o.offset],
            extent = element_extent(bound.sizes, bound.strides, o.dims.size);
    if (offset < 0 || offset > kMaxBytes)
      return fail(NESO_SIZE_INVALID, "output %d ('%s') would have an impossible offset", index, o.name);
    if (extent > 0) {
      NESO_TRY(extent_check(o.buffer, offset, offset + extent - 1, item(o.dtype)));
      return hand_out_memory(index, addresses[o.buffer] + offset * item(o.dtype), out);
    }
  } else {
    bound.scalar = o.kind == fbs::OutputKind::Bool ? slots[o.slot] != 0 : slots[o.slot];
  }
  static const fbs::DType scalar_types[] = {fbs::DType::F32, fbs::DType::I64, fbs::DType::F64, fbs::DType::Bool};
  const fbs::DType dtype = tensor ? o.dtype : scalar_types[int(o.kind)];
  if (!bound.to_caller) {
    // An empty tensor has no memory of its own; callers expect an address all the same, and the device of others.
    const bool stays = tensor && !bound.fetched;
    *out = {&bound.scalar, bound.sizes, bound.strides, o.dims.size, neso_dtype(dtype), stays ? queue_->table->kind : NESO_CPU, stays ? queue_->on->index : 0};
    bound.last_given = &bound.scalar;
    return NESO_OK;
  }
  if (tensor) return NESO_OK;
  if (on_host(*out)) memcpy(out->data, &bound.scalar, size_t(item(dtype)));
  // The value is at hand; it fits what one copy to a device takes at once.
  return on_host(*out)
             ? NESO_OK
             : queue_->table->upload(queue_, static_cast<char *>(out->data), &bound.scalar, item(dtype));
}

neso_status binding::hand_out(neso_tensor *given) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (program_->outputs[i].kind == fbs::OutputKind::None)
      given[i] = {};
    else
      NESO_TRY(hand_out_tensor(int32_t(i), &given[i]));
  }
  const int64_t *strides = input_strides_.data();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const plan_input &in = program_->inputs[i];
    if (in.kind != fbs::InputKind::Tensor) continue;
    if (in.mutated && inputs[i].staged) NESO_TRY(return_input(int32_t(i), strides));
    strides += in.dims.size;
  }
  return NESO_OK;
}

neso_status binding::finish() {
  NESO_TRY(queue_->table->synchronize(queue_));
  if (!unfinished) return NESO_OK;
  unfinished = false;
  const int64_t *strides = input_strides_.data();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const plan_input &in = program_->inputs[i];
    if (in.kind != fbs::InputKind::Tensor) continue;
    scatter(&inputs[i].scatter, inputs[i].host, inputs[i].scatter_to, inputs[i].scatter_to.sizes, strides, in.dims.size,
            item(in.dtype));
    strides += in.dims.size;
  }
  for (size_t i = 0; i < outputs.size(); ++i)
    scatter(&outputs[i].scatter, outputs[i].host, outputs[i].scatter_to, outputs[i].sizes, outputs[i].strides,
            program_->outputs[i].dims.size, item(program_->outputs[i].dtype));
  return NESO_OK;
}

void binding::drop() {
  unfinished = false;
  for (bound_input &in : inputs) in.scatter = false;
  for (bound_output &out : outputs) out.scatter = false;
}
