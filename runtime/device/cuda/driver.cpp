#include "device/cuda/driver.h"

#include <dlfcn.h>
#include <stdio.h>

namespace neso_rt {
namespace {
constexpr const char *kLibrary = "libcuda.so.1";

neso_status find_symbol(void *library, const char *path, const char *symbol, void **out) {
  *out = dlsym(library, symbol);
  if (*out) return NESO_OK;
  return fail(NESO_DEVICE_UNAVAILABLE, "the CUDA driver '%s' lacks %s: it is too old (CUDA 11.8 or newer is needed)",
              path, symbol);
}
} // namespace

neso_status cuda_driver::open(const char *path) {
  if (!path) path = kLibrary;
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return fail(NESO_DEVICE_UNAVAILABLE,
                "no CUDA driver: %s; install NVIDIA's driver or name its library (cuda_driver, --cuda-driver)",
                dlerror());
  void *found = nullptr;
#define NESO_CUDA_SYMBOL(name, symbol, parameters)                                                                     \
  NESO_TRY(find_symbol(library, path, symbol, &found));                                                                \
  memcpy(&name, &found, sizeof found);
#define NESO_CUDA_OPTIONAL(name, symbol, parameters)                                                                   \
  found = dlsym(library, symbol);                                                                                      \
  memcpy(&name, &found, sizeof found);
#include "device/cuda/symbols.h"
#undef NESO_CUDA_SYMBOL
  if (cu_result r = cuInit(0); r != 0)
    return fail(NESO_DEVICE_UNAVAILABLE, "the CUDA driver does not start: %s", describe(r));
  return NESO_OK;
}

neso_status cuda_driver::find_device(int index, cu_device *out) const {
  int count = 0;
  if (cu_result r = cuDeviceGetCount(&count); r != 0)
    return fail(NESO_DEVICE_UNAVAILABLE, "the CUDA driver cannot count its devices: %s", describe(r));
  if (index < 0 || index >= count)
    return fail(NESO_DEVICE_UNAVAILABLE, "there is no device cuda:%d: the driver sees %d", index, count);
  cu_result r = cuDeviceGet(out, index);
  return r == 0 ? NESO_OK : fail(NESO_DEVICE_UNAVAILABLE, "device cuda:%d cannot be opened: %s", index, describe(r));
}

bool cuda_context_lost(cu_result r) {
  switch (r) {
  case 201: // invalid context
  case 214: // uncorrectable ECC error
  case 220: // NVLink error
  case 226: // contained memory error
  case 700: // illegal address
  case 702: // launch timeout
  case 709: // context destroyed
  case kCuAssert:
  case 714: // hardware stack error
  case 715: // illegal instruction
  case 716: // misaligned address
  case 717: // invalid address space
  case 718: // invalid program counter
  case 719: // launch failed
  case 721: // tensor memory leak
    return true;
  default: return false;
  }
}

const char *cuda_driver::describe(cu_result r) const {
  static thread_local char text[200];
  const char *name = nullptr, *meaning = nullptr;
  cuGetErrorName(r, &name);
  cuGetErrorString(r, &meaning);
  snprintf(text, sizeof text, "%s (%s)", name ? name : "unknown error", meaning ? meaning : "no description");
  return text;
}

neso_status cuda_driver::check(cu_result r, const char *what) const {
  if (r == 0) return NESO_OK;
  if (r == kCuOutOfMemory) return fail(NESO_OUT_OF_MEMORY, "%s: out of device memory", what);
  if (r == kCuAssert)
    return fail(NESO_DEVICE_LOST,
                "%s: an assertion failed in a kernel (its text was printed by the driver); this process cannot use the "
                "GPU again",
                what);
  if (cuda_context_lost(r))
    return fail(NESO_DEVICE_LOST, "%s: a kernel trapped: %s; this process cannot use the GPU again", what, describe(r));
  return fail(NESO_DEVICE_FAILED, "%s: %s", what, describe(r));
}

} // namespace neso_rt
