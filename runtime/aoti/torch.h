// What is used of libtorch's stable C interface (aoti_torch_*): found in the process that loaded this library, which is not linked against it.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "neso/neso.h"

extern "C" {
/// at::Tensor, to be looked at by libtorch alone.
struct AtenTensorOpaque;
typedef struct AtenTensorOpaque *AtenTensorHandle;
/// What calls operators by PyTorch's dispatcher; the loader's.
struct AOTIProxyExecutorOpaque;
typedef struct AOTIProxyExecutorOpaque *AOTIProxyExecutorHandle;
struct CUDAStreamGuardOpaque;
typedef struct CUDAStreamGuardOpaque *CUDAStreamGuardHandle;
}

namespace neso_aoti {

inline constexpr int kDTypes = 0
#define NESO_DTYPE(...) +1
#include "abi/dtypes.def"
    ;

/// One entry a function: result type is always int32_t, 0 for success.
struct torch_functions {
  int32_t (*get_data_ptr)(AtenTensorHandle, void **);
  int32_t (*get_dim)(AtenTensorHandle, int64_t *);
  int32_t (*get_sizes)(AtenTensorHandle, int64_t **);
  int32_t (*get_strides)(AtenTensorHandle, int64_t **);
  int32_t (*get_dtype)(AtenTensorHandle, int32_t *);
  int32_t (*get_device_type)(AtenTensorHandle, int32_t *);
  int32_t (*get_device_index)(AtenTensorHandle, int32_t *);
  int32_t (*new_tensor_handle)(AtenTensorHandle, AtenTensorHandle *); // another handle of the same tensor, which keeps its memory
  int32_t (*delete_tensor_object)(AtenTensorHandle);
  int32_t (*empty_strided)(int64_t rank, const int64_t *sizes, const int64_t *strides, int32_t dtype, int32_t device_type,
                           int32_t device_index, AtenTensorHandle *out);
  int32_t (*device_type_cpu)();
  int32_t (*device_type_cuda)();
  int32_t dtypes[kDTypes]; // torch's number of each dtype; -1: it has none

  // For models that call operators of the user's: NULL where this libtorch does not have it.
  int32_t (*proxy_executor_call_function)(AOTIProxyExecutorHandle, int call, int int_count, int64_t *ints, int tensor_count, AtenTensorHandle *tensors);
  int32_t (*create_tensor_from_blob)(void *data, int64_t rank, const int64_t *sizes, const int64_t *strides, int64_t offset, int32_t dtype,
                                     int32_t device_type, int32_t device_index, AtenTensorHandle *out);
  int32_t (*new_uninitialized_tensor)(AtenTensorHandle *out);
  int32_t (*copy_)(AtenTensorHandle to, AtenTensorHandle from, int32_t non_blocking);
  const char *(*exception_text)(); // of this thread's last failure
  // Of libtorch_cuda.
  int32_t (*create_cuda_stream_guard)(void *stream, int32_t device_index, CUDAStreamGuardHandle *out);
  int32_t (*delete_cuda_stream_guard)(CUDAStreamGuardHandle);
};

/// nullptr, with a text for neso_error_text's caller in `why`: the process has no libtorch.
const torch_functions *find_torch(const char **why);

/// Borrows the tensor's memory, sizes and strides. nullptr or what is wrong.
const char *view(const torch_functions &torch, AtenTensorHandle handle, neso_tensor *out);
/// A tensor over the memory of `t`, which has strides and outlives it. nullptr: failed.
AtenTensorHandle over_memory(const torch_functions &torch, const neso_tensor &t);
/// A new tensor of these sizes and strides (NULL: contiguous) beside `like`'s device. nullptr: failed.
AtenTensorHandle new_tensor(const torch_functions &torch, const neso_tensor &like);

} // namespace neso_aoti
