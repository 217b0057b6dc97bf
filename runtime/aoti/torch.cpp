#include "aoti/torch.h"

#include <dlfcn.h>
#include <pthread.h>

namespace neso_aoti {
namespace {
constexpr int kMaxRank = 64;

torch_functions found;
const char *missing = nullptr;
pthread_once_t once = PTHREAD_ONCE_INIT;

const struct {
  neso_dtype dtype;
  const char *function;
} kTypes[] = {
#define NESO_DTYPE(name, NAME, text, kind, bits, part, torch, ...) {NESO_##NAME, "aoti_torch_dtype_" torch},
#include "abi/dtypes.def"
};

void find() {
  // Python opens extension modules for themselves alone, so that libtorch is asked for by name; the program's own symbols come last.
  void *library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (!library) library = RTLD_DEFAULT;
  auto look = [&]<typename F>(const char *name, F **to) {
    void *symbol = dlsym(library, name);
    if (!symbol) missing = name;
    *to = reinterpret_cast<F *>(symbol);
  };
  look("aoti_torch_get_data_ptr", &found.get_data_ptr);
  look("aoti_torch_get_dim", &found.get_dim);
  look("aoti_torch_get_sizes", &found.get_sizes);
  look("aoti_torch_get_strides", &found.get_strides);
  look("aoti_torch_get_dtype", &found.get_dtype);
  look("aoti_torch_get_device_type", &found.get_device_type);
  look("aoti_torch_get_device_index", &found.get_device_index);
  look("aoti_torch_new_tensor_handle", &found.new_tensor_handle);
  look("aoti_torch_delete_tensor_object", &found.delete_tensor_object);
  look("aoti_torch_empty_strided", &found.empty_strided);
  look("aoti_torch_device_type_cpu", &found.device_type_cpu);
  look("aoti_torch_device_type_cuda", &found.device_type_cuda);
  auto look_for = [](void *in, const char *name, auto **to) { *reinterpret_cast<void **>(to) = dlsym(in, name); };
  look_for(library, "aoti_torch_proxy_executor_call_function", &found.proxy_executor_call_function);
  look_for(library, "aoti_torch_create_tensor_from_blob", &found.create_tensor_from_blob);
  look_for(library, "aoti_torch_new_uninitialized_tensor", &found.new_uninitialized_tensor);
  look_for(library, "aoti_torch_copy_", &found.copy_);
  look_for(library, "torch_exception_get_what_without_backtrace", &found.exception_text);
  void *cuda = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
  if (!cuda) cuda = RTLD_DEFAULT;
  look_for(cuda, "aoti_torch_create_cuda_stream_guard", &found.create_cuda_stream_guard);
  look_for(cuda, "aoti_torch_delete_cuda_stream_guard", &found.delete_cuda_stream_guard);
  for (int32_t &t : found.dtypes) t = -1;
  for (const auto &row : kTypes)
    if (void *symbol = dlsym(library, row.function)) found.dtypes[row.dtype] = reinterpret_cast<int32_t (*)()>(symbol)();
}
} // namespace

const torch_functions *find_torch(const char **why) {
  pthread_once(&once, find);
  *why = missing;
  return missing ? nullptr : &found;
}

const char *view(const torch_functions &torch, AtenTensorHandle handle, neso_tensor *out) {
  int64_t rank = 0;
  int64_t *sizes = nullptr, *strides = nullptr;
  int32_t dtype = -1, device = -1, index = 0;
  if (torch.get_dim(handle, &rank) || torch.get_sizes(handle, &sizes) || torch.get_strides(handle, &strides) ||
      torch.get_dtype(handle, &dtype) || torch.get_device_type(handle, &device) ||
      torch.get_device_index(handle, &index) || torch.get_data_ptr(handle, &out->data))
    return "libtorch does not tell what a tensor is";
  if (rank > kMaxRank) return "a tensor has too many dimensions";
  out->sizes = sizes;
  out->strides = strides;
  out->rank = int32_t(rank);
  const bool cuda = device == torch.device_type_cuda();
  if (!cuda && device != torch.device_type_cpu()) return "a tensor lies on a device that this library does not know";
  out->device = cuda ? NESO_CUDA : NESO_CPU;
  out->device_index = cuda ? index : 0;
  for (int t = 0; t < kDTypes; ++t)
    if (torch.dtypes[t] >= 0 && torch.dtypes[t] == dtype) return out->dtype = neso_dtype(t), nullptr;
  return "a tensor has a dtype that this library does not know";
}

AtenTensorHandle over_memory(const torch_functions &torch, const neso_tensor &t) {
  AtenTensorHandle out = nullptr;
  const bool cuda = t.device == NESO_CUDA;
  if (torch.dtypes[t.dtype] < 0 ||
      torch.create_tensor_from_blob(t.data, t.rank, t.sizes, t.strides, 0, torch.dtypes[t.dtype], cuda ? torch.device_type_cuda() : torch.device_type_cpu(),
                                    cuda ? t.device_index : 0, &out))
    return nullptr;
  return out;
}

AtenTensorHandle new_tensor(const torch_functions &torch, const neso_tensor &like) {
  int64_t contiguous[kMaxRank];
  int64_t step = 1;
  if (like.rank > kMaxRank || torch.dtypes[like.dtype] < 0) return nullptr;
  for (int32_t d = like.rank; d-- > 0;) {
    contiguous[d] = step;
    step *= like.sizes[d] ? like.sizes[d] : 1;
  }
  const bool cuda = like.device == NESO_CUDA;
  AtenTensorHandle out = nullptr;
  if (torch.empty_strided(like.rank, like.sizes, like.strides ? like.strides : contiguous, torch.dtypes[like.dtype],
                          cuda ? torch.device_type_cuda() : torch.device_type_cpu(), cuda ? like.device_index : 0, &out))
    return nullptr;
  return out;
}

} // namespace neso_aoti
