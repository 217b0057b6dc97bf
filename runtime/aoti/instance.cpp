// AOTInductorModel: a model with one context, for programs that order its runs themselves. It is a container with one seat, and takes and gives
// tensors, or arrays that the caller describes.
#include <string.h>

#include "aoti/container.h"

using namespace neso_aoti;

namespace {
constexpr int32_t kMaxDims = 8;

/// AOTInductorArrayRefTensor.
struct array_tensor {
  void *data;
  int64_t numel;
  int64_t sizes[kMaxDims], strides[kMaxDims];
  int32_t ndim, dtype, device_type, device_index;
  int64_t reserved[4];
};
static_assert(sizeof(array_tensor) == 192, "the header's own size");

container *of(void *handle) { return static_cast<container *>(handle); }

int32_t dtype_of(const torch_functions &torch, int32_t number) {
  for (int32_t t = 0; t < kDTypes; ++t)
    if (torch.dtypes[t] >= 0 && torch.dtypes[t] == number) return t;
  return -1;
}

int32_t read(const container &c, const array_tensor &a, neso_tensor *out) {
  const int32_t dtype = dtype_of(*c.torch, a.dtype);
  if (dtype < 0) return failed("an array has a dtype that this library does not know");
  if (a.ndim < 0 || a.ndim > kMaxDims) return failed("an array has more than 8 dimensions");
  const bool cuda = a.device_type == c.torch->device_type_cuda();
  *out = {a.data, a.sizes, a.strides, a.ndim, neso_dtype(dtype), cuda ? NESO_CUDA : NESO_CPU, cuda ? a.device_index : 0};
  return 0;
}

int32_t write(const container &c, const neso_tensor &t, array_tensor *out) {
  if (t.rank > kMaxDims) return failed("an output has more than 8 dimensions");
  *out = {};
  out->data = t.data;
  out->ndim = t.rank;
  out->dtype = c.torch->dtypes[t.dtype];
  out->device_type = t.device == NESO_CUDA ? c.torch->device_type_cuda() : c.torch->device_type_cpu();
  out->device_index = t.device_index;
  out->numel = 1;
  for (int32_t d = t.rank; d-- > 0;) {
    out->sizes[d] = t.sizes[d];
    out->strides[d] = t.strides ? t.strides[d] : out->numel;
    out->numel *= t.sizes[d];
  }
  return 0;
}

int32_t run_arrays(container *c, int32_t input_count, const array_tensor *inputs, int32_t output_count, array_tensor *outputs) {
  run_tensors t;
  if (int32_t bad = t.prepare(*c)) return bad;
  if (size_t(input_count) != t.input_count || size_t(output_count) != t.output_count)
    return failed("another number of inputs or outputs was given than the model has");
  for (size_t i = 0; i < t.input_count; ++i)
    if (int32_t bad = read(*c, inputs[i], &t.inputs[i])) return bad;
  const size_t seat = take(c, nullptr);
  int32_t bad = run_in(c, seat, &t, nullptr, nullptr);
  give_back(c, seat);
  for (size_t i = 0; !bad && i < t.output_count; ++i) bad = write(*c, t.outputs[i], &outputs[i]);
  return bad;
}

int32_t create_with(void **out, const named_tensor *entries, size_t count) {
  container *c = nullptr;
  int32_t bad = create(&c, 1, nullptr);
  if (!bad && count) bad = update(c, entries, count, false, true, holding::borrow_if_possible);
  if (bad && c) destroy(c), c = nullptr;
  *out = c;
  return bad;
}
} // namespace

#define AOTI_API __attribute__((visibility("default")))

extern "C" {

AOTI_API int32_t AOTInductorModelCreate(void **out, void *map) {
  if (int32_t bad = create_with(out, nullptr, 0)) return bad;
  int32_t bad = map ? update_map(of(*out), map, false, true, holding::borrow_if_possible) : 0;
  if (bad) destroy(of(*out)), *out = nullptr;
  return bad;
}
AOTI_API int32_t AOTInductorModelCreateV2(void **out, const named_tensor *pairs, size_t count) {
  return create_with(out, pairs, pairs ? count : 0);
}
AOTI_API int32_t AOTInductorModelDelete(void *handle) {
  destroy(of(handle));
  return 0;
}
AOTI_API int32_t AOTInductorModelGetNumOutputs(void *handle, size_t *out) {
  return *out = size_t(neso_model_output_count(of(handle)->model)), 0;
}
// As many handles as the exported module has tensors among its inputs.
AOTI_API int32_t AOTInductorModelRun(void *handle, AtenTensorHandle *inputs, AtenTensorHandle *outputs) {
  container *c = of(handle);
  size_t count = 0;
  for (int32_t i = 0, all = neso_model_input_count(c->model); i < all; ++i) {
    neso_value_info info;
    neso_model_input(c->model, i, &info);
    count += info.kind == NESO_VALUE_TENSOR;
  }
  return run(c, inputs, count, outputs, size_t(neso_model_output_count(c->model)), nullptr, nullptr);
}
// Outputs are the model's memory until its next run.
AOTI_API int32_t AOTInductorModelRunMinimalArrayrefInterfaceV2(void *handle, int32_t input_count, const array_tensor *inputs,
                                                               int32_t output_count, array_tensor *outputs) {
  return run_arrays(of(handle), input_count, inputs, output_count, outputs);
}
AOTI_API int32_t AOTInductorModelUpdateConstantsMap(void *handle, void *map) {
  return update_map(of(handle), map, false, false, holding::borrow_if_possible);
}
AOTI_API int32_t AOTInductorModelUpdateConstantsMapV2(void *handle, const named_tensor *pairs, int32_t count) {
  return update(of(handle), pairs, size_t(count), false, false, holding::borrow_if_possible);
}
}
