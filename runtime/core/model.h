// neso_model: a package opened, checked, its code loaded. Immutable once loaded, but for the count of what it lends.
#pragma once
#include <pthread.h>

#include "core/plan.h"
#include "device/cpu/code.h"
#include "device/cuda/device.h"

/// Everything that neso_run needs of a model, shared by all its contexts.
struct neso_model {
  // The bytes of the package: mapped (owned) or the caller's.
  const uint8_t *bytes = nullptr;
  size_t size = 0;
  bool mapped = false;
  neso_rt::archive files;
  neso_rt::plan plan;
  uint8_t *aligned_plan = nullptr; // own copies when the package's memory is not aligned
  neso_rt::array<uint8_t *> aligned_constants;
  neso_rt::cpu_code code;
  int32_t target = -1;        // index of the one for the CPU; -1: all kernels are linked statically, or there are none
  int32_t forced_target = -1; // the one that the caller asked for by arch
  neso_rt::array<neso_cpu_kernel_fn> functions; // one a kernel; null where the package has no code for the CPU
  // The GPUs that contexts were made on. Opened when the first one asks, under the lock.
  mutable pthread_mutex_t device_lock = PTHREAD_MUTEX_INITIALIZER;
  mutable neso_rt::cuda_device *devices = nullptr;
  // For introspection, in the order of inputs and outputs.
  neso_rt::array<neso_dim> dims;
  neso_rt::array<int32_t> input_dims, output_dims; // first element in dims
  double load_ms = 0;

  neso_model() = default;
  neso_model(const neso_model &) = delete;
  neso_model &operator=(const neso_model &) = delete;
  ~neso_model();
  /// The model on GPU `index`; library, blas as in neso_context_options.cuda_driver, .cublas. Any thread.
  neso_status on_device(int index, const char *library, const char *blas, const neso_rt::cuda_device **out) const;
};
