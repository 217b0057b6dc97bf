// Matrix products by cuBLASLt, found at run time: D[b] = A[b] B[b], then + bias, then relu, accumulated in float32.
//
// The library is optional. Where it is absent, or takes no product of some shape, the plan's own kernel runs. It is
// opened with dlopen when the first context on a GPU whose plan has products is made, and never closed. Nothing here
// allocates device memory: the library works in the plan's workspace.
//
// Which one, when the caller names none: the one that the process has loaded already (PyTorch brings its own), else
// what the dynamic loader finds (LD_LIBRARY_PATH, the program's run path, the system's cache), else that of a CUDA
// toolkit in its usual place; of each the newest.
#pragma once
#include "device/cuda/driver.h"
#include "device/device.h"

struct cublasLtContext;
struct cublasLtMatmulDescOpaque_t;
struct cublasLtMatrixLayoutOpaque_t;
struct cublasLtMatmulPreferenceOpaque_t;

namespace neso_rt {

using blas_handle = cublasLtContext *;
using blas_operation = cublasLtMatmulDescOpaque_t *;
using blas_layout = cublasLtMatrixLayoutOpaque_t *;
using blas_preference = cublasLtMatmulPreferenceOpaque_t *;
struct blas_algorithm {
  uint64_t data[8];
};
/// What the library's heuristics propose.
struct blas_found {
  blas_algorithm algorithm;
  size_t workspace_bytes;
  int status;
  float waves;
  int reserved[4];
};

// Values of the library's enumerations.
inline constexpr int kBlasF32 = 0, kBlasF16 = 2, kBlasBF16 = 14;
inline constexpr int kBlasCompute32F = 68;
inline constexpr int kBlasTransposeA = 3, kBlasTransposeB = 4, kBlasEpilogue = 7, kBlasBiasPointer = 8;
inline constexpr uint32_t kBlasEpilogueNone = 1, kBlasEpilogueRelu = 2, kBlasEpilogueBias = 4,
                          kBlasEpilogueReluBias = 6;
inline constexpr int kBlasInvalidValue = 7, kBlasNotSupported = 15;
inline constexpr int kBlasBatchCount = 5, kBlasBatchStride = 6;
inline constexpr int kBlasWorkspaceBytes = 1, kBlasAlignmentA = 5, kBlasAlignmentB = 6, kBlasAlignmentC = 7,
                     kBlasAlignmentD = 8;

/// One device's library: its functions and its handle. Thread-safe once open.
struct cuda_blas {
#define NESO_BLAS_SYMBOL(name, parameters) int(*name) parameters = nullptr;
#include "device/cuda/blas_symbols.h"
#undef NESO_BLAS_SYMBOL
  blas_handle handle = nullptr;
  /// Of the open library: where it lies, and its version, 130100 for 13.1.0.
  char path[400] = "";
  int version = 0;

  /// Opens `library` (nullptr: see above) with the device's context current. False: there is none that works.
  bool open(const char *library);
  /// With the device's context current.
  void close();
};

/// The library's plan for products of one shape. Remembers the last shape it was asked for, so that a repeated product
/// makes nothing anew. A plain value, all zero at first.
class blas_product {
public:
  void release();
  /// Queues the product on `stream`. out_done false: the library takes no such product, nothing was queued.
  /// NESO_DEVICE_FAILED.
  neso_status run(const cuda_blas &blas, const product_call &call, cu_stream stream, bool *out_done);
  /// Did the library compute the last one?
  bool taken() const { return taken_; }

private:
  bool prepare(const product_call &call);
  bool fits(const product_call &call) const;
  bool layout(blas_layout *out, int type, int64_t rows, int64_t columns, int64_t pitch, int64_t batch,
              int64_t batch_stride) const;

  const cuda_blas *blas_;
  bool prepared_, taken_;
  product_call shape_; // of the last run; pointers stand for their alignment
  blas_operation operation_;
  blas_layout left_, right_, result_;
  blas_algorithm algorithm_;
};

} // namespace neso_rt
