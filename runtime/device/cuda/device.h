// One model on one GPU: the device's primary context, the code that fits it, and the constants, uploaded once. Shared
// by the model's contexts there; lives until the model is freed.
//
// The code chosen is a cubin of the device's own major version with a minor version up to its own, the highest there
// is; else PTX of the highest version up to the device's, which the driver assembles.
#pragma once
#include <atomic>

#include "core/box_forms.h"
#include "device/cuda/blas.h"
#include "device/cuda/driver.h"
#include "device/device.h"

namespace neso_rt {

/// One entry of the loaded code and how it is launched.
struct cuda_entry {
  cu_function function;
  int32_t threads, shared_bytes, cluster;
};

struct cuda_kernel {
  cuda_entry usual;
  const char *name;
  bool serial; // its programs must run in order
  // The code that copies boxes of tensors; nullptr: there is none, or the driver does not describe tensors.
  const fbs::BoxForm *form;
  cuda_entry boxed;
  int32_t resident; // blocks of it on a multiprocessor, which take one program after another; 0: a block has one
};

/// What the driver says of a device.
struct cuda_limits {
  int major, minor, max_threads, max_shared, processors, l2_bytes;
  neso_status read(const cuda_driver &driver, cu_device device);
};

class cuda_device : public device {
public:
  cuda_device() = default;
  cuda_device(const cuda_device &) = delete;
  cuda_device &operator=(const cuda_device &) = delete;
  ~cuda_device();

  /// Starts the driver, loads the code and uploads the constants. Of the options: device_index, cuda_driver, cublas (a
  /// library that is opened only if the plan has products).
  neso_status open(const code_source &source, const neso_context_options &options);
  bool is(int index, const char *library) const;

  /// Kernels of the runtime's own (copy_kernel.h), assembled by the driver when they are first asked for. Any thread.
  neso_status own_kernel(int which, cu_function *out) const;
  /// The one of decide_kernel.h, likewise.
  neso_status decide_kernel(cu_function *out) const;
  size_t constant_bytes() const { return constant_bytes_; }
  /// A copy of a constant's bytes.
  neso_status place(const void *from, int64_t bytes, char **out);

  cuda_driver driver;
  cu_context context = nullptr;
  cuda_limits limits{};
  cuda_blas blas;              // handle nullptr: there is no such library
  array<cuda_kernel> kernels;  // one a kernel of the plan
  bool begins_early = false;   // they wait themselves for what is before them, and the driver records such launches
  mutable std::atomic<bool> lost{false};

private:
  // code.cpp
  neso_status load_code(const code_source &source);
  neso_status load_target(const code_source &source, int32_t target);
  neso_status resolve(int32_t target);
  neso_status resolve_entry(const char *kernel, const char *symbol, const fbs::KernelUsage &usage, cuda_entry *out);
  // memory.cpp
  neso_status upload_constants();

  char *library_ = nullptr;
  cu_device device_ = 0;
  cu_module module_ = nullptr;
  neso_status load_own(const char *text, cu_module *module, const char *name, cu_function *out) const;
  mutable cu_module own_module_ = nullptr, decide_module_ = nullptr;
  cu_pointer constant_memory_ = 0;
  size_t constant_bytes_ = 0;
};

/// The arch of a device: "sm_90".
void cuda_arch(const cuda_limits &limits, char *out, size_t size);

/// How well code for `arch` ("sm_90", "sm_90a", "compute_90") fits a device: 0: not at all; the greater the better.
int cuda_fit(const char *arch, int major, int minor);

} // namespace neso_rt
