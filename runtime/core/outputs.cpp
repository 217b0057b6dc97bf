// The last part of a run: hands the outputs to the caller, and puts mutated inputs back where they came from.
#include "core/context.h"

using namespace neso_rt;

neso_status neso_context::hand_out_tensor(int32_t index, neso_tensor *out) {
  const plan &p = model->plan;
  const plan_output &o = p.outputs[index];
  bound_output &bound = outputs[index];
  void *memory = &bound.scalar;
  if (o.kind == fbs::OutputKind::Tensor) {
    int64_t offset = o.offset < 0 ? 0 : slots[o.offset],
            extent = element_extent(bound.sizes, bound.strides, o.dims.size);
    if (offset < 0 || offset > kMaxBytes)
      return fail(NESO_SIZE_INVALID, "output %d ('%s') would have an impossible offset", index, o.name);
    int64_t item = int64_t(item_size(int(o.dtype)));
    if (extent > 0) NESO_TRY(extent_check(o.buffer, offset, offset + extent - 1, item));
    // An empty tensor has no memory of its own; callers expect an address all the same.
    memory = extent > 0 ? addresses[o.buffer] + offset * item : reinterpret_cast<char *>(&bound.scalar);
  } else {
    bound.scalar = o.kind == fbs::OutputKind::Bool ? slots[o.slot] != 0 : slots[o.slot];
  }
  static const fbs::DType scalar_types[] = {fbs::DType::F32, fbs::DType::I64, fbs::DType::F64, fbs::DType::Bool};
  fbs::DType dtype = o.kind == fbs::OutputKind::Tensor ? o.dtype : scalar_types[int(o.kind)];
  if (gpu && memory != &bound.scalar) return hand_out_gpu_tensor(index, static_cast<char *>(memory), out);
  if (bound.to_caller) {
    if (bound.direct) return NESO_OK;
    // The value of a scalar is at hand; it fits what one copy to a device takes at once.
    if (!bound.on_host)
      return o.kind == fbs::OutputKind::Tensor
                 ? NESO_OK
                 : gpu->upload(static_cast<char *>(out->data), memory, int64_t(item_size(int(dtype))));
    int64_t contiguous[kMaxRank];
    contiguous_strides(bound.sizes, o.dims.size, contiguous);
    copy_strided(out->data, out->strides ? out->strides : contiguous, memory, bound.strides, bound.sizes, o.dims.size,
                 int(item_size(int(o.dtype))));
    return NESO_OK;
  }
  *out = {memory, bound.sizes, bound.strides, o.dims.size, neso_dtype(dtype), NESO_CPU, 0};
  bound.last_given = memory;
  return NESO_OK;
}

neso_status neso_context::hand_out(neso_tensor *given) {
  const plan &p = model->plan;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (p.outputs[i].kind == fbs::OutputKind::None)
      given[i] = {};
    else
      NESO_TRY(hand_out_tensor(int32_t(i), &given[i]));
  }
  const int64_t *strides = input_strides.data();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const plan_input &in = p.inputs[i];
    if (in.kind != fbs::InputKind::Tensor) continue;
    if (gpu && in.mutated && inputs[i].staged) {
      NESO_TRY(return_gpu_input(int32_t(i), strides));
    } else if (in.mutated && inputs[i].staged) {
      const neso_tensor &t = *inputs[i].given;
      int64_t contiguous[kMaxRank];
      contiguous_strides(t.sizes, t.rank, contiguous);
      copy_strided(t.data, t.strides ? t.strides : contiguous, inputs[i].data, strides, t.sizes, t.rank,
                   int(item_size(int(in.dtype))));
    }
    strides += in.dims.size;
  }
  return NESO_OK;
}
