// A cuBLASLt over the fake driver's memory: products in double precision, in the library's own column-major terms.
#include <cmath>
#include <cstring>
#include <vector>

#include "device/cuda/blas.h"
#include "test/fake_cuda.h"

using namespace neso_rt;

struct cublasLtContext {};
struct cublasLtMatmulDescOpaque_t {
  int32_t transposeA = 0, transposeB = 0;
  uint32_t epilogue = kBlasEpilogueNone;
  const char *bias = nullptr;
};
struct cublasLtMatrixLayoutOpaque_t {
  int type;
  uint64_t rows, columns;
  int64_t pitch;
  int32_t batch = 1;
  int64_t batchStride = 0;
};
struct cublasLtMatmulPreferenceOpaque_t {
  uint64_t workspace = 0;
};

namespace {
constexpr int kInvalid = kBlasInvalidValue, kUnsupported = kBlasNotSupported;
std::function<bool(int64_t, int64_t, int64_t)> refuse;

size_t itemBytes(int type) { return type == kBlasF32 ? 4 : 2; }

double read(const char *at, int type) {
  if (type == kBlasF32) return *reinterpret_cast<const float *>(at);
  uint16_t bits = *reinterpret_cast<const uint16_t *>(at);
  if (type == kBlasF16) {
    _Float16 h;
    std::memcpy(&h, &bits, 2);
    return double(h);
  }
  uint32_t wide = uint32_t(bits) << 16;
  float f;
  std::memcpy(&f, &wide, 4);
  return f;
}
void write(char *at, int type, double v) {
  float f = float(v);
  if (type == kBlasF32) {
    std::memcpy(at, &f, 4);
  } else if (type == kBlasF16) {
    _Float16 h = _Float16(f);
    std::memcpy(at, &h, 2);
  } else {
    uint32_t bits;
    std::memcpy(&bits, &f, 4);
    uint16_t rounded = uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    std::memcpy(at, &rounded, 2);
  }
}

struct Matrix {
  const char *data;
  cublasLtMatrixLayoutOpaque_t layout;
  int32_t transposed;
  double at(int64_t batch, int64_t row, int64_t column) const {
    if (transposed) std::swap(row, column);
    return read(data + (batch * layout.batchStride + column * layout.pitch + row) * int64_t(itemBytes(layout.type)),
                layout.type);
  }
};
const char *hostOf(const void *device) { return fake_cuda::host<char>(device); }

bool agree(blas_operation op, blas_layout a, blas_layout b, blas_layout d) {
  uint64_t m = op->transposeA ? a->columns : a->rows, k = op->transposeA ? a->rows : a->columns;
  uint64_t k2 = op->transposeB ? b->columns : b->rows, n = op->transposeB ? b->rows : b->columns;
  return k == k2 && d->rows == m && d->columns == n && a->type == b->type && a->batch == b->batch &&
         a->batch == d->batch;
}
template <typename T> int make(T **out, T value) {
  *out = new T(value);
  fake_cuda::countAlive(1);
  return 0;
}
template <typename T> int destroy(T *p) {
  delete p;
  fake_cuda::countAlive(-1);
  return 0;
}
template <typename T> int set(T &field, const void *value, size_t bytes) {
  if (bytes != sizeof field) return kInvalid;
  std::memcpy(&field, value, bytes);
  return 0;
}
} // namespace

void fake_cuda::refuseProducts(std::function<bool(int64_t, int64_t, int64_t)> f) { refuse = std::move(f); }

extern "C" {
int cublasLtCreate(blas_handle *out) { return make(out, cublasLtContext{}); }
int cublasLtGetProperty(int property, int *value) {
  *value = property == 0 ? 13 : property == 1 ? 2 : 1;
  return 0;
}
int cublasLtDestroy(blas_handle h) { return destroy(h); }
int cublasLtMatmulDescCreate(blas_operation *out, int compute, int scale) {
  return compute == kBlasCompute32F && scale == kBlasF32 ? make(out, cublasLtMatmulDescOpaque_t{}) : kInvalid;
}
int cublasLtMatmulDescDestroy(blas_operation op) { return destroy(op); }
int cublasLtMatmulDescSetAttribute(blas_operation op, int attribute, const void *value, size_t bytes) {
  switch (attribute) {
  case kBlasTransposeA: return set(op->transposeA, value, bytes);
  case kBlasTransposeB: return set(op->transposeB, value, bytes);
  case kBlasEpilogue: return set(op->epilogue, value, bytes);
  case kBlasBiasPointer: return set(op->bias, value, bytes);
  default: return kInvalid;
  }
}
int cublasLtMatrixLayoutCreate(blas_layout *out, int type, uint64_t rows, uint64_t columns, int64_t pitch) {
  return pitch < int64_t(rows) ? kInvalid : make(out, cublasLtMatrixLayoutOpaque_t{type, rows, columns, pitch});
}
int cublasLtMatrixLayoutDestroy(blas_layout l) { return destroy(l); }
int cublasLtMatrixLayoutSetAttribute(blas_layout l, int attribute, const void *value, size_t bytes) {
  return attribute == kBlasBatchCount    ? set(l->batch, value, bytes)
         : attribute == kBlasBatchStride ? set(l->batchStride, value, bytes)
                                         : kInvalid;
}
int cublasLtMatmulPreferenceCreate(blas_preference *out) { return make(out, cublasLtMatmulPreferenceOpaque_t{}); }
int cublasLtMatmulPreferenceDestroy(blas_preference p) { return destroy(p); }
int cublasLtMatmulPreferenceSetAttribute(blas_preference p, int attribute, const void *value, size_t bytes) {
  uint32_t alignment;
  if (attribute == kBlasWorkspaceBytes) return set(p->workspace, value, bytes);
  return attribute >= kBlasAlignmentA && attribute <= kBlasAlignmentD ? set(alignment, value, bytes) : kInvalid;
}
int cublasLtMatmulAlgoGetHeuristic(blas_handle, blas_operation op, blas_layout a, blas_layout b, blas_layout c,
                                   blas_layout d, blas_preference p, int wanted, blas_found *out, int *found) {
  *found = 0;
  if (wanted < 1 || c != d || !agree(op, a, b, d)) return kInvalid;
  if (refuse && refuse(int64_t(d->columns), int64_t(d->rows), int64_t(op->transposeA ? a->rows : a->columns)))
    return kUnsupported;
  *out = {};
  out->algorithm.data[0] = 1;
  out->workspace_bytes = p->workspace;
  *found = 1;
  return 0;
}
int cublasLtMatmul(blas_handle, blas_operation op, const void *alpha, const void *a, blas_layout la, const void *b,
                   blas_layout lb, const void *beta, const void *c, blas_layout, void *d, blas_layout ld,
                   const blas_algorithm *algorithm, void *workspace, size_t, cu_stream stream) {
  if (*static_cast<const float *>(alpha) != 1 || *static_cast<const float *>(beta) != 0 || c != d ||
      algorithm->data[0] != 1 || reinterpret_cast<uint64_t>(workspace) % 256 != 0 || !agree(op, la, lb, ld))
    return kInvalid;
  Matrix left{hostOf(a), *la, op->transposeA}, right{hostOf(b), *lb, op->transposeB};
  cublasLtMatmulDescOpaque_t desc = *op;
  cublasLtMatrixLayoutOpaque_t result = *ld;
  int64_t depth = int64_t(desc.transposeA ? la->rows : la->columns);
  char *to = const_cast<char *>(hostOf(d));
  return fake_cuda::enqueue(stream, [=] {
    for (int64_t batch = 0; batch < result.batch; ++batch)
      for (int64_t j = 0; j < int64_t(result.columns); ++j)
        for (int64_t i = 0; i < int64_t(result.rows); ++i) {
          double sum = 0;
          for (int64_t k = 0; k < depth; ++k) sum += left.at(batch, i, k) * right.at(batch, k, j);
          if (desc.epilogue & kBlasEpilogueBias)
            sum += read(hostOf(desc.bias) + i * int64_t(itemBytes(result.type)), result.type);
          if (desc.epilogue & kBlasEpilogueRelu) sum = std::fmax(sum, 0);
          write(to + (batch * result.batchStride + j * result.pitch + i) * int64_t(itemBytes(result.type)), result.type,
                sum);
        }
    return 0;
  });
}
}
