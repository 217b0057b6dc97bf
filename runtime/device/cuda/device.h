// One model on one GPU: the device's primary context, the code that fits it, and the constants, uploaded once. Shared
// by the model's contexts there; lives until the model is freed.
//
// The code chosen is a cubin of the device's own major version with a minor version up to its own, the highest there
// is; else PTX of the highest version up to the device's, which the driver assembles.
#pragma once
#include <atomic>

#include "core/plan.h"
#include "device/cuda/blas.h"
#include "device/cuda/driver.h"

struct neso_model;

namespace neso_rt {

struct cuda_kernel {
  cu_function function;
  const char *name;
  int32_t threads, shared_bytes, cluster;
  bool serial; // its programs must run in order
};

/// What the driver says of a device.
struct cuda_limits {
  int major, minor, max_threads, max_shared, processors, l2_bytes;
  neso_status read(const cuda_driver &driver, cu_device device);
};

class cuda_device {
public:
  cuda_device() = default;
  cuda_device(const cuda_device &) = delete;
  cuda_device &operator=(const cuda_device &) = delete;
  ~cuda_device();

  /// Starts the driver, loads the code of `model` and uploads its constants. `library` as in
  /// neso_context_options.cuda_driver. blas: as in neso_context_options.cublas; opened only if the plan has products.
  neso_status open(const neso_model &model, int index, const char *library, const char *blas);
  bool is(int index, const char *library) const;

  /// Kernels of the runtime's own (copy_kernel.h), assembled by the driver when they are first asked for. Any thread.
  neso_status own_kernel(int which, cu_function *out) const;
  const char *constant(size_t index) const { return constants_[index]; }
  size_t constant_bytes() const { return constant_bytes_; }

  cuda_driver driver;
  cu_context context = nullptr;
  cuda_limits limits{};
  cuda_blas blas;             // handle nullptr: there is no such library
  array<cuda_kernel> kernels; // one a kernel of the plan
  mutable std::atomic<bool> lost{false};
  cuda_device *next = nullptr; // the model's other devices

private:
  neso_status load_code(const neso_model &model);
  neso_status load_target(const neso_model &model, int32_t target);
  neso_status resolve(const neso_model &model, int32_t target);
  neso_status upload(const neso_model &model);

  int index_ = -1;
  char *library_ = nullptr;
  cu_device device_ = 0;
  cu_module module_ = nullptr;
  mutable cu_module own_module_ = nullptr;
  array<char *> constants_; // addresses on the device; nullptr for those that each context copies
  cu_pointer constant_memory_ = 0;
  size_t constant_bytes_ = 0;
};

/// Makes the device's context current for the calling thread, as long as this lives; the caller's own comes back
/// afterwards. nullptr: does nothing.
class cuda_scope {
public:
  explicit cuda_scope(const cuda_device *device);
  ~cuda_scope();
  cuda_scope(const cuda_scope &) = delete;
  cuda_scope &operator=(const cuda_scope &) = delete;

private:
  const cuda_device *device_;
  bool pushed_ = false;
};

/// The arch of a device: "sm_90".
void cuda_arch(const cuda_limits &limits, char *out, size_t size);

/// How well code for `arch` ("sm_90", "sm_90a", "compute_90") fits a device: 0: not at all; the greater the better.
int cuda_fit(const char *arch, int major, int minor);

} // namespace neso_rt
