// Controls of the fake CUDA driver (libneso_fake_cuda.so): a library with the driver's entry points over host memory,
// for tests without a GPU. Work runs when it is queued; graphs keep closures. "Device" addresses are moved out of the
// address space, so that code which touches device memory from the host crashes. Thread-safe.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fake_cuda {

struct Chip {
  int major = 9, minor = 0;
  size_t memory = size_t(1) << 30;
  int shared = 227 << 10;
};

struct Launch {
  void **params;
  unsigned grid[3], threads, shared, cluster;
  bool early; // need not wait for the launch before it
};
/// The result of the work, 0 or an error of the driver that later calls report (a trap).
using Kernel = std::function<int(const Launch &)>;

/// Devices of the machine, sound again if a trap had lost them; forgets kernels, counts and failures. Default: one
/// sm_90.
void reset(std::vector<Chip> chips = {Chip{}});
/// A tensor as cuTensorMapEncodeTiled has described it: what lies in the 128 bytes of a map. Dimensions from the innermost one.
struct TensorMap {
  uint64_t address, sizes[5], pitches[4];
  unsigned box[5], rank;
  int item, swizzle;
};

/// Every symbol of a module must be registered; test_add, test_double, test_add_scalar, test_count, test_less,
/// test_increase and test_zero (runtime/test/test_kernels.c) always are. args: how many the kernel has, of 8 bytes each; maps: of tensors, behind them.
void addKernel(const std::string &symbol, int args, Kernel kernel, int maps = 0);
/// Calls of an entry point since reset or clearCalls; "*": of all.
int calls(const std::string &function);
void clearCalls();
/// The call after `after` more of `function` gives `result` and does nothing.
void failNext(const std::string &function, int result, int after = 0);
/// What the last module was loaded from: "cubin" or the first line of the PTX.
std::string lastImage();
/// Things made and not yet destroyed: memory blocks (host and device), modules, streams, events, graphs, retained
/// contexts.
int alive();
/// Recordings that were ended although a branch was open, since reset.
int unjoined();
/// Counts what was made (+1) or destroyed (-1) by the fake cuBLASLt.
void countAlive(int change);
size_t deviceBytes();

/// Queues work on a stream as the driver's own calls do: it runs now, or when the graph that is being recorded is
/// launched. For the fake cuBLASLt (fake_cublas.cpp, in the same library), whose products are computed in double
/// precision.
int enqueue(void *stream, std::function<int()> work);
/// The fake cuBLASLt refuses products for which this says so. reset() forgets it.
void refuseProducts(std::function<bool(int64_t m, int64_t n, int64_t k)> refuse);

/// Device address ↔ the host memory behind it.
inline constexpr uint64_t kDeviceOffset = uint64_t(1) << 60;
template <typename T> T *host(const void *device) {
  return reinterpret_cast<T *>(reinterpret_cast<uint64_t>(device) - kDeviceOffset);
}
/// Argument i of a launch, a pointer of the device.
template <typename T> T *pointer(const Launch &l, int i) { return host<T>(*static_cast<void **>(l.params[i])); }
/// Argument i of a launch, a map.
inline const TensorMap &tensorMap(const Launch &l, int i) { return *static_cast<const TensorMap *>(l.params[i]); }
inline bool isDevice(const void *p) { return reinterpret_cast<uint64_t>(p) >= kDeviceOffset; }

} // namespace fake_cuda
