#include "device/cuda/blas.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>

namespace neso_rt {
namespace {
const char *const kLibraries[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
const char *const kFolders[] = {"/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib", "/opt/cuda/lib64"};
// More than this the library never asks for.
constexpr uint64_t kMaxAlignment = 256;

uint32_t alignment(const char *p) {
  uint64_t at = reinterpret_cast<uint64_t>(p);
  uint64_t lowest = at & (~at + 1);
  return uint32_t(at == 0 || lowest > kMaxAlignment ? kMaxAlignment : lowest);
}

void *find_library() {
  for (int flags : {RTLD_NOW | RTLD_NOLOAD, RTLD_NOW | RTLD_LOCAL})
    for (const char *name : kLibraries)
      if (void *library = dlopen(name, flags)) return library;
  for (const char *folder : kFolders)
    for (const char *name : kLibraries) {
      char path[100];
      snprintf(path, sizeof path, "%s/%s", folder, name);
      if (void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL)) return library;
    }
  return nullptr;
}

int library_type(neso_dtype t) { return t == NESO_F32 ? kBlasF32 : t == NESO_F16 ? kBlasF16 : kBlasBF16; }

bool same_matrix(const device_matrix &a, const device_matrix &b) {
  return alignment(a.data) == alignment(b.data) && a.pitch == b.pitch && a.batch_stride == b.batch_stride &&
         a.transposed == b.transposed;
}
} // namespace

bool cuda_blas::open(const char *wanted) {
  void *library = wanted ? dlopen(wanted, RTLD_NOW | RTLD_LOCAL) : find_library();
  if (!library) return false;
  void *found;
#define NESO_BLAS_SYMBOL(name, parameters)                                                                             \
  if (!(found = dlsym(library, #name))) return false;                                                                  \
  memcpy(&name, &found, sizeof found);
#include "device/cuda/blas_symbols.h"
#undef NESO_BLAS_SYMBOL
  if (cublasLtCreate(&handle) != 0) {
    handle = nullptr;
    return false;
  }
  const link_map *loaded = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &loaded) == 0) snprintf(path, sizeof path, "%s", loaded->l_name);
  int parts[3] = {};
  for (int i = 0; i < 3; ++i) (void)cublasLtGetProperty(i, &parts[i]);
  version = parts[0] * 10000 + parts[1] * 100 + parts[2];
  return true;
}

void cuda_blas::close() {
  if (handle) cublasLtDestroy(handle);
  handle = nullptr;
}

void blas_product::release() {
  if (operation_) blas_->cublasLtMatmulDescDestroy(operation_);
  for (blas_layout *l : {&left_, &right_, &result_}) {
    if (*l) blas_->cublasLtMatrixLayoutDestroy(*l);
    *l = nullptr;
  }
  operation_ = nullptr;
  prepared_ = false;
}

bool blas_product::fits(const product_call &c) const {
  const product_call &s = shape_;
  return prepared_ && same_matrix(c.a, s.a) && same_matrix(c.b, s.b) && same_matrix(c.d, s.d) && c.batch == s.batch &&
         c.m == s.m && c.n == s.n && c.k == s.k && !c.bias == !s.bias && c.workspace_bytes == s.workspace_bytes &&
         c.type == s.type && c.out_type == s.out_type && c.relu == s.relu;
}

bool blas_product::layout(blas_layout *out, int type, int64_t rows, int64_t columns, int64_t pitch, int64_t batch,
                          int64_t batch_stride) const {
  // The stride of a dimension of one element says nothing.
  if (columns == 1 && pitch < rows) pitch = rows;
  if (pitch < rows) return false;
  if (blas_->cublasLtMatrixLayoutCreate(out, type, uint64_t(rows), uint64_t(columns), pitch) != 0) return false;
  if (batch == 1) return true;
  int32_t count = int32_t(batch);
  return blas_->cublasLtMatrixLayoutSetAttribute(*out, kBlasBatchCount, &count, sizeof count) == 0 &&
         blas_->cublasLtMatrixLayoutSetAttribute(*out, kBlasBatchStride, &batch_stride, sizeof batch_stride) == 0;
}

// The library's matrices are column-major, where a row-major D is its transpose, B^T A^T: B is its left operand.
bool blas_product::prepare(const product_call &c) {
  release();
  prepared_ = true;
  shape_ = c;
  if (c.batch > INT32_MAX || blas_->cublasLtMatmulDescCreate(&operation_, kBlasCompute32F, kBlasF32) != 0) return false;
  int32_t left = c.b.transposed, right = c.a.transposed;
  uint32_t epilogue = c.relu   ? (c.bias ? kBlasEpilogueReluBias : kBlasEpilogueRelu)
                      : c.bias ? kBlasEpilogueBias
                               : kBlasEpilogueNone;
  bool ok = blas_->cublasLtMatmulDescSetAttribute(operation_, kBlasTransposeA, &left, sizeof left) == 0;
  ok = ok && blas_->cublasLtMatmulDescSetAttribute(operation_, kBlasTransposeB, &right, sizeof right) == 0;
  ok = ok && blas_->cublasLtMatmulDescSetAttribute(operation_, kBlasEpilogue, &epilogue, sizeof epilogue) == 0;
  ok = ok &&
       (!c.bias || blas_->cublasLtMatmulDescSetAttribute(operation_, kBlasBiasPointer, &c.bias, sizeof c.bias) == 0);
  const int type = library_type(c.type);
  ok = ok && layout(&left_, type, left ? c.k : c.n, left ? c.n : c.k, c.b.pitch, c.batch, c.b.batch_stride);
  ok = ok && layout(&right_, type, right ? c.m : c.k, right ? c.k : c.m, c.a.pitch, c.batch, c.a.batch_stride);
  ok = ok && layout(&result_, library_type(c.out_type), c.n, c.m, c.d.pitch, c.batch, c.d.batch_stride);
  blas_preference preference = nullptr;
  if (!ok || blas_->cublasLtMatmulPreferenceCreate(&preference) != 0) return false;
  const struct {
    int attribute;
    const char *data;
  } aligned[] = {{kBlasAlignmentA, c.b.data},
                 {kBlasAlignmentB, c.a.data},
                 {kBlasAlignmentC, c.d.data},
                 {kBlasAlignmentD, c.d.data}};
  uint64_t room = uint64_t(c.workspace_bytes) > kMaxAlignment ? uint64_t(c.workspace_bytes) - kMaxAlignment : 0;
  ok = blas_->cublasLtMatmulPreferenceSetAttribute(preference, kBlasWorkspaceBytes, &room, sizeof room) == 0;
  for (const auto &a : aligned) {
    uint32_t bytes = alignment(a.data);
    ok = ok && blas_->cublasLtMatmulPreferenceSetAttribute(preference, a.attribute, &bytes, sizeof bytes) == 0;
  }
  blas_found found{};
  int count = 0;
  ok = ok && blas_->cublasLtMatmulAlgoGetHeuristic(blas_->handle, operation_, left_, right_, result_, result_,
                                                   preference, 1, &found, &count) == 0;
  blas_->cublasLtMatmulPreferenceDestroy(preference);
  algorithm_ = found.algorithm;
  return ok && count == 1 && found.status == 0 && found.workspace_bytes <= room;
}

neso_status blas_product::run(const cuda_blas &blas, const product_call &c, cu_stream stream, bool *out_done) {
  blas_ = &blas;
  if (!fits(c)) taken_ = prepare(c);
  *out_done = taken_;
  if (!taken_) return NESO_OK;
  if (c.bias && c.bias != shape_.bias) {
    if (blas.cublasLtMatmulDescSetAttribute(operation_, kBlasBiasPointer, &c.bias, sizeof c.bias) != 0)
      return fail(NESO_DEVICE_FAILED, "cuBLASLt takes no bias");
    shape_.bias = c.bias;
  }
  // The library wants its workspace at a multiple of 256; the plan's lies at one of 64.
  const uint64_t skip = -reinterpret_cast<uint64_t>(c.workspace) % kMaxAlignment;
  const float one = 1, zero = 0;
  int status =
      blas.cublasLtMatmul(blas.handle, operation_, &one, c.b.data, left_, c.a.data, right_, &zero, c.d.data, result_,
                          c.d.data, result_, &algorithm_, c.workspace + skip, size_t(c.workspace_bytes) - skip, stream);
  if (status == 0) return NESO_OK;
  if (status == kBlasInvalidValue || status == kBlasNotSupported) {
    // It finds out only now.
    *out_done = taken_ = false;
    return NESO_OK;
  }
  return fail(NESO_DEVICE_FAILED, "cuBLASLt refused a product of [%lld, %lld] and [%lld, %lld], %lld times: status %d",
              (long long)c.m, (long long)c.k, (long long)c.k, (long long)c.n, (long long)c.batch, status);
}

} // namespace neso_rt
