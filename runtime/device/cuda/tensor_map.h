// Tensors as the GPU's own copies want them described (fbs::TensorMap), made of a launch's arguments.
//
// Making one takes the driver a tenth of a microsecond and no context, so that none are kept: a recorded launch has its own.
#pragma once
#include "core/box_forms.h"
#include "device/cuda/driver.h"

namespace neso_rt {

/// Room for the maps of any kernel of a plan, and for what they are computed from.
class tensor_maps {
public:
  neso_status start(const plan &program);
  /// The maps of a launch: true where the driver makes all of them. args: as those of a launch (device.h).
  bool make(const cuda_driver &driver, const plan_kernel &kernel, const fbs::BoxForm &form, const char *args);
  /// Map i of the last launch for which that was so, kMapBytes.
  char *map(uint32_t i) { return memory_.data() + size_t(i) * kMapBytes; }

private:
  array<int64_t> slots_;
  aligned_bytes memory_;
};

} // namespace neso_rt
