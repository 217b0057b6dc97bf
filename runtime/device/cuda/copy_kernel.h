// The runtime's own kernels: strided copies of items of 1, 2, 4, 8 or 16 bytes, and filling with an 8-byte pattern.
// PTX, assembled by the driver when a run first needs one.
#pragma once
#include <stdint.h>

namespace neso_rt {

/// Numbers of the kernels, in cuda_own_kernel_names.
enum cuda_own_kernel { kCopy1, kCopy2, kCopy4, kCopy8, kCopy16, kFill8, kOwnKernels };
extern const char *const cuda_own_kernel_names[kOwnKernels];

/// The PTX text of all of them.
const char *cuda_own_kernels();

inline constexpr int kCopyMaxRank = 8;
inline constexpr unsigned kOwnKernelThreads = 256; // of a block

/// The one parameter of the copies. Thread i below `count` copies the item whose index tuple, last dimension fastest,
/// is number i.
struct cuda_copy_params {
  char *dst;
  const char *src;
  uint32_t count, rank;
  uint32_t sizes[kCopyMaxRank];
  int64_t dst_strides[kCopyMaxRank], src_strides[kCopyMaxRank]; // bytes
};
static_assert(sizeof(cuda_copy_params) == 184, "the PTX has these offsets");

/// The one parameter of the fill.
struct cuda_fill_params {
  char *dst;
  uint64_t bits;
  uint64_t count;
};

} // namespace neso_rt
