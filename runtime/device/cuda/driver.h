// The CUDA driver, found at run time: its types as far as they are needed, a table of its functions, and its errors as
// statuses.
//
// The library is opened with dlopen when the first context on a GPU is made, so that nothing here needs CUDA to build
// or to start. It is never closed: the driver keeps threads and handlers of its own.
#pragma once
#include "core/common.h"

// The driver's handles, under its own names for what they point to.
struct CUctx_st;
struct CUmod_st;
struct CUfunc_st;
struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphExec_st;
struct CUgraphNode_st;

namespace neso_rt {

using cu_result = int;
using cu_device = int;
using cu_pointer = uint64_t;
using cu_context = CUctx_st *;
using cu_module = CUmod_st *;
using cu_function = CUfunc_st *;
using cu_stream = CUstream_st *;
using cu_event = CUevent_st *;
using cu_graph = CUgraph_st *;
using cu_graph_exec = CUgraphExec_st *;
using cu_graph_node = CUgraphNode_st *;

struct cu_launch_attribute {
  int id, pad;
  union {
    char bytes[64];
    struct {
      unsigned x, y, z;
    } cluster;
    int begins_early;
  } value;
};
struct cu_launch_config {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  cu_stream stream;
  cu_launch_attribute *attributes;
  unsigned attribute_count;
};

/// Of a new node of a graph; of its kinds only the conditional one.
struct cu_node_params {
  int type, reserved[3];
  union {
    struct {
      uint64_t handle;
      int type;
      unsigned size;
      cu_graph *bodies; // written by the driver, whose memory it is
      cu_context context;
    } conditional;
    int64_t words[29];
  };
  int64_t reserved_too;
};

// Values of the driver's enumerations.
inline constexpr int kCuInvalidValue = 1, kCuOutOfMemory = 2, kCuNoDevice = 100, kCuInvalidDevice = 101,
                     kCuInvalidImage = 200, kCuNoBinaryForGpu = 209, kCuInvalidPtx = 218,
                     kCuUnsupportedPtxVersion = 222, kCuNotFound = 500, kCuAssert = 710;
inline constexpr int kCuAttributeMaxThreads = 1, kCuAttributeMultiprocessors = 16, kCuAttributeL2Bytes = 38,
                     kCuAttributeMajor = 75, kCuAttributeMinor = 76, kCuAttributeSharedOptIn = 97;
inline constexpr int kCuFunctionMaxDynamicShared = 8;
inline constexpr int kCuJitErrorLog = 5, kCuJitErrorLogBytes = 6;
inline constexpr unsigned kCuStreamNonBlocking = 1, kCuEventNoTiming = 2;
inline constexpr int kCuCaptureRelaxed = 2, kCuCapturing = 1;
inline constexpr int kCuLaunchCluster = 4, kCuLaunchBeginsEarly = 6; // "programmatic stream serialization"
inline constexpr int kCuNodeConditional = 13, kCuConditionIf = 0, kCuConditionWhile = 1;
inline constexpr unsigned kCuSetDependencies = 1;
inline constexpr int kCuTensorU8 = 0, kCuTensorU16 = 1, kCuTensorU32 = 2, kCuTensorU64 = 4, kCuInterleaveNone = 0,
                     kCuSwizzle32 = 1, kCuSwizzle64 = 2, kCuSwizzle128 = 3, kCuPromotion128 = 2, kCuFillZeros = 0;

struct cuda_driver {
#define NESO_CUDA_SYMBOL(name, symbol, parameters) cu_result(*name) parameters = nullptr;
#include "device/cuda/symbols.h"
#undef NESO_CUDA_SYMBOL

  /// Opens `library` (nullptr: "libcuda.so.1") and initialises the driver. NESO_DEVICE_UNAVAILABLE when there is none,
  /// when it lacks a function or when it finds no device. Functions that are optional stay nullptr where it lacks them.
  neso_status open(const char *library);
  /// Does it know branches and loops inside graphs?
  bool decides() const {
    return cuStreamGetCaptureInfo && cuStreamUpdateCaptureDependencies && cuStreamBeginCaptureToGraph &&
           cuGraphConditionalHandleCreate && cuGraphAddNode;
  }
  /// The device of that number. NESO_DEVICE_UNAVAILABLE.
  neso_status find_device(int index, cu_device *out) const;
  /// NESO_OK, or the driver's error as a status whose text begins with `what`. NESO_DEVICE_LOST: the context is gone
  /// for good.
  neso_status check(cu_result result, const char *what) const;
  /// "CUDA_ERROR_LAUNCH_FAILED (unspecified launch failure)", in the thread's own memory until its next call.
  const char *describe(cu_result result) const;
};

/// A sticky error: every later call in the context fails likewise.
bool cuda_context_lost(cu_result result);

} // namespace neso_rt
