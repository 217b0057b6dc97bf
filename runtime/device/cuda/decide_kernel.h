// The runtime's own kernel that decides branches and loops inside a graph: it tests a number in memory and sets the condition of
// a node. PTX in a module of its own: it needs a function that drivers have as of CUDA 12.3, and copies must load without it.
#pragma once
#include <stdint.h>

namespace neso_rt {

inline constexpr const char *kDecideKernel = "neso_decide";

/// The PTX text.
const char *cuda_decide_kernel();

/// Its one parameter; one thread. The condition becomes 1 where the number lies in [low, high] (outside 1: where it does not), else 0.
/// A loop (stop not null) asks the host's memory whether to go on, which takes about a microsecond, so only at every eighth test. Once it has
/// been told to end it notes that in stop[1], and the next test asks too, so that loops around it end.
struct cuda_decide_params {
  uint64_t handle; // of the node's condition
  const char *at;
  int64_t low, high;
  uint32_t shift;     // 64 less the bits of the number
  uint32_t is_signed; // else unsigned
  uint32_t is_bool;   // whatever is not 0 is 1
  uint32_t outside;
  uint32_t *stop;  // memory of the host, loop_stop of device.h
  uint32_t *asked; // memory of the device: how many tests loops have passed
};
static_assert(sizeof(cuda_decide_params) == 64, "the PTX has these offsets");

} // namespace neso_rt
