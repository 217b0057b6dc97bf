// Memory of a GPU: blocks, copies between host and device and on the device, and a model's constants.
#include <stdio.h>

#include "device/cuda/copy_kernel.h"
#include "device/cuda/queue.h"

namespace neso_rt {
namespace {
// Items that one launch of a copy kernel handles at most: its indices have 32 bits.
constexpr int64_t kCopyLimit = int64_t(1) << 30;
// Where constants begin in device memory: full lines of every cache, and any vector access.
constexpr int64_t kConstantAlign = 256;

cu_pointer address(const void *p) { return reinterpret_cast<cu_pointer>(p); }
} // namespace

void *cuda_queue::allocate(size_t bytes) {
  cu_pointer memory = 0;
  return driver_.cuMemAlloc(&memory, bytes) == 0 ? reinterpret_cast<void *>(memory) : nullptr;
}
void cuda_queue::release(void *memory) { driver_.cuMemFree(address(memory)); }

void *cuda_queue::allocate_host(size_t bytes) {
  void *memory = nullptr;
  return driver_.cuMemHostAlloc(&memory, bytes, 0) == 0 ? memory : nullptr;
}
void cuda_queue::release_host(void *memory) { driver_.cuMemFreeHost(memory); }

neso_status cuda_queue::upload(char *to, const void *from, int64_t bytes) {
  return check(driver_.cuMemcpyHtoDAsync(address(to), from, size_t(bytes), stream_for_other()), "copying to the device");
}
neso_status cuda_queue::download(void *to, const char *from, int64_t bytes) {
  return check(driver_.cuMemcpyDtoHAsync(to, address(from), size_t(bytes), stream_for_other()), "copying from the device");
}

neso_status cuda_queue::launch_own(int which, void *params, uint64_t threads) {
  if (!own_kernels_[which]) NESO_TRY(gpu_.own_kernel(which, &own_kernels_[which]));
  uint64_t blocks = (threads + kOwnKernelThreads - 1) / kOwnKernelThreads;
  void *list[] = {params};
  return check(driver_.cuLaunchKernel(own_kernels_[which], unsigned(blocks), 1, 1, kOwnKernelThreads, 1, 1, 0, stream_for_other(),
                                      list, nullptr),
               cuda_own_kernel_names[which]);
}

// `dims` are joined, strides in items.
neso_status cuda_queue::copy_dims(char *dst, const char *src, const copy_dim *dims, int rank, int item) {
  int64_t count = 1;
  for (int i = 0; i < rank; ++i) count *= dims[i].size;
  if (rank > kCopyMaxRank || count > kCopyLimit) {
    if (rank == 1) {
      copy_dim half[2] = {dims[0], dims[0]};
      half[0].size = dims[0].size / 2;
      half[1].size = dims[0].size - half[0].size;
      NESO_TRY(copy_dims(dst, src, &half[0], 1, item));
      return copy_dims(dst + half[0].size * dims[0].dst * item, src + half[0].size * dims[0].src * item, &half[1], 1,
                       item);
    }
    for (int64_t i = 0; i < dims[0].size; ++i)
      NESO_TRY(copy_dims(dst + i * dims[0].dst * item, src + i * dims[0].src * item, dims + 1, rank - 1, item));
    return NESO_OK;
  }
  cuda_copy_params p{dst, src, uint32_t(count), uint32_t(rank), {}, {}, {}};
  for (int i = 0; i < rank; ++i) {
    p.sizes[i] = uint32_t(dims[i].size);
    p.dst_strides[i] = dims[i].dst * item;
    p.src_strides[i] = dims[i].src * item;
  }
  return launch_own(kCopy1 + __builtin_ctz(unsigned(item)), &p, uint64_t(count));
}

neso_status cuda_queue::copy(char *dst, const int64_t *dst_strides, const char *src, const int64_t *src_strides,
 const int64_t *sizes, int rank, int item) {
  copy_dim dims[kMaxRank + 1];
  bool whole = (item & (item - 1)) == 0;
  for (int i = 0; i < rank; ++i) {
    if (sizes[i] <= 0) return NESO_OK;
    int64_t unit = whole ? 1 : item;
    dims[i] = {sizes[i], dst_strides[i] * unit, src_strides[i] * unit};
  }
  if (!whole) {
    // Items of an odd size are one more dimension of bytes.
    dims[rank++] = {item, 1, 1};
    item = 1;
  }
  rank = join_dims(dims, rank);
  if (rank == 0)
    return check(driver_.cuMemcpyDtoDAsync(address(dst), address(src), size_t(item), stream_for_other()), "copying on the device");
  copy_dim &inner = dims[rank - 1];
  bool rows = inner.dst == 1 && inner.src == 1;
  if (rows && rank == 1)
    return check(driver_.cuMemcpyDtoDAsync(address(dst), address(src), size_t(inner.size * item), stream_for_other()),
                 "copying on the device");
  // Contiguous rows are moved in the widest items that all strides and addresses allow.
  while (rows && item < 16) {
    bool fits = inner.size % 2 == 0 && (address(dst) | address(src)) % uint64_t(2 * item) == 0;
    for (int i = 0; i < rank - 1; ++i) fits &= dims[i].dst % 2 == 0 && dims[i].src % 2 == 0;
    if (!fits) break;
    for (int i = 0; i < rank - 1; ++i) dims[i] = {dims[i].size, dims[i].dst / 2, dims[i].src / 2};
    inner.size /= 2;
    item *= 2;
  }
  return copy_dims(dst, src, dims, rank, item);
}

neso_status cuda_queue::fill(char *to, int item, uint64_t bits, int64_t count) {
  const char *what = "filling device memory";
  if (item == 1 || bits == 0)
    return check(
        driver_.cuMemsetD8Async(address(to), static_cast<unsigned char>(bits), size_t(count) * size_t(item), stream_for_other()),
        what);
  if (item == 2)
    return check(driver_.cuMemsetD16Async(address(to), static_cast<unsigned short>(bits), size_t(count), stream_for_other()),
                 what);
  bool twice = item == 8 && uint32_t(bits) == uint32_t(bits >> 32);
  if (item == 4 || twice)
    return check(driver_.cuMemsetD32Async(address(to), uint32_t(bits), size_t(count) * (twice ? 2 : 1), stream_for_other()), what);
  cuda_fill_params p{to, bits, uint64_t(count)};
  return launch_own(kFill8, &p, uint64_t(count));
}

neso_status cuda_device::upload_constants() {
  const array<plan_constant> &rows = program->constants;
  NESO_TRY(constants.resize(rows.size()));
  // Constants that share storage on the host (tied weights) share it here: found by address, in a table with one place
  // for each and as many free.
  size_t places = 2;
  while (places < 2 * rows.size()) places *= 2;
  array<int32_t> table;
  array<int64_t> offsets;
  NESO_TRY(table.resize(places));
  NESO_TRY(offsets.resize(rows.size()));
  int64_t total = 0;
  array<bool> first;
  NESO_TRY(first.resize(rows.size()));
  // What the package leaves out comes with a set of weights.
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].mutated || rows[i].bytes == 0 || !rows[i].data) continue;
    size_t at = reinterpret_cast<uintptr_t>(rows[i].data) / 16 * 0x9e3779b97f4a7c15u >> 20;
    for (;; ++at) {
      int32_t &entry = table[at & (places - 1)];
      if (entry == 0) {
        entry = int32_t(i) + 1;
        first[i] = true;
        offsets[i] = total;
        total += (rows[i].bytes + kConstantAlign - 1) / kConstantAlign * kConstantAlign;
        break;
      }
      const plan_constant &other = rows[size_t(entry - 1)];
      if (other.data == rows[i].data && other.bytes == rows[i].bytes) {
        offsets[i] = offsets[size_t(entry - 1)];
        break;
      }
    }
  }
  if (total == 0) return NESO_OK;
  cu_result r = driver.cuMemAlloc(&constant_memory_, size_t(total));
  if (r == kCuOutOfMemory)
    return fail(NESO_OUT_OF_MEMORY, "out of memory on cuda:%d: %lld bytes for the model's constants", index,
                (long long)total);
  NESO_TRY(driver.check(r, "memory for the model's constants"));
  constant_bytes_ = size_t(total);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].mutated || rows[i].bytes == 0 || !rows[i].data) continue;
    cu_pointer to = constant_memory_ + uint64_t(offsets[i]);
    constants[i] = reinterpret_cast<char *>(to);
    if (first[i])
      NESO_TRY(driver.check(driver.cuMemcpyHtoDAsync(to, rows[i].data, size_t(rows[i].bytes), nullptr),
                            "uploading the model's constants"));
  }
  return driver.check(driver.cuStreamSynchronize(nullptr), "uploading the model's constants");
}

neso_status cuda_device::place(const void *from, int64_t bytes, char **out) {
  cu_pointer to = 0;
  cu_result r = driver.cuMemAlloc(&to, size_t(bytes));
  if (r == kCuOutOfMemory)
    return fail(NESO_OUT_OF_MEMORY, "out of memory on cuda:%d: %lld bytes for a weight", index, (long long)bytes);
  NESO_TRY(driver.check(r, "memory for a weight"));
  r = driver.cuMemcpyHtoDAsync(to, from, size_t(bytes), nullptr);
  if (r == 0) r = driver.cuStreamSynchronize(nullptr);
  if (r != 0) driver.cuMemFree(to);
  NESO_TRY(driver.check(r, "uploading a weight"));
  *out = reinterpret_cast<char *>(to);
  return NESO_OK;
}

} // namespace neso_rt
