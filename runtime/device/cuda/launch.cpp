#include <stdio.h>

#include "device/cuda/queue.h"

namespace neso_rt {
namespace {
constexpr uint64_t kGridX = 0x7fffffff, kGridYZ = 65535, kResidentPrograms = 0x7fffffff;
}

neso_status cuda_queue::launch(int32_t kernel, const void *args, const uint32_t grid[3]) {
  if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0) return NESO_OK;
  const cuda_kernel &k = gpu_.kernels[size_t(kernel)];
  if (grid[0] > kGridX || grid[1] > kGridYZ || grid[2] > kGridYZ)
    return fail(
        NESO_SIZE_INVALID,
        "kernel '%s' would be launched over a grid of %u x %u x %u programs; a GPU takes 2147483647 x 65535 x 65535",
        k.name, grid[0], grid[1], grid[2]);
  const uint64_t programs = uint64_t(grid[0]) * grid[1] * grid[2];
  if (k.serial && programs != 1)
    return fail(NESO_SIZE_INVALID, "kernel '%s' needs its %llu programs in order, which a GPU does not keep", k.name,
                (unsigned long long)programs);
  const plan_kernel &row = on->program->kernels[size_t(kernel)];
  char *memory = static_cast<char *>(const_cast<void *>(args));
  for (int32_t i = 0; i < row.arg_count; ++i) params_[size_t(i)] = memory + row.arg_offset(i);
  const bool boxed = k.form && (!k.resident || programs <= kResidentPrograms) && maps_.make(driver_, row, *k.form, memory);
  const cuda_entry &entry = boxed ? k.boxed : k.usual;
  size_t at = size_t(row.arg_count);
  uint64_t of_programs[kAxes] = {grid[0], grid[1], grid[2]}; // each in a slot, as the kernel's arguments are
  uint32_t blocks[kAxes] = {grid[0], grid[1], grid[2]};
  if (boxed && k.resident) {
    for (uint64_t &count : of_programs) params_[at++] = &count;
    const uint64_t most = uint64_t(gpu_.limits.processors) * uint64_t(k.resident);
    blocks[0] = uint32_t(programs < most ? programs : most), blocks[1] = blocks[2] = 1;
  }
  for (uint32_t i = 0; boxed && i < k.form->maps()->size(); ++i) params_[at++] = maps_.map(i);
  ++kernel_launches_;
  box_launches_ += boxed;
  cu_launch_attribute attributes[2];
  cu_launch_config config{blocks[0], blocks[1],  blocks[2],  unsigned(entry.threads), 1, 1, unsigned(entry.shared_bytes),
                          stream_,   attributes, 0};
  if (entry.cluster > 1) {
    cu_launch_attribute &cluster = attributes[config.attribute_count++] = {};
    cluster.id = kCuLaunchCluster;
    cluster.value.cluster = {unsigned(entry.cluster), 1, 1};
  }
  if (behind_launch_ && gpu_.begins_early) {
    cu_launch_attribute &early = attributes[config.attribute_count++] = {};
    early.id = kCuLaunchBeginsEarly;
    early.value.begins_early = 1;
  }
  const cu_result r = driver_.cuLaunchKernelEx(&config, entry.function, params_.data(), nullptr);
  behind_launch_ = true;
  if (__builtin_expect(r == 0, 1)) return NESO_OK;
  char what[256];
  snprintf(what, sizeof what,
           "launching kernel '%.120s' over %u x %u x %u blocks of %d threads with %d bytes of shared memory", k.name,
           blocks[0], blocks[1], blocks[2], entry.threads, entry.shared_bytes);
  return check(r, what);
}

neso_status cuda_queue::multiply(int32_t which, const product_call &call, bool *out_done) {
  // Products beside each other have parts of the workspace of their own; they are as large when there is but one, so
  // that it computes the same.
  product_call mine = call;
  mine.workspace_bytes = call.workspace_bytes / branches / 256 * 256;
  mine.workspace += mine.workspace_bytes * branch_;
  NESO_TRY(products_[size_t(which)].run(gpu_.blas, mine, stream_for_other(), out_done));
  library_calls_ += *out_done;
  return NESO_OK;
}

int64_t cuda_queue::products_taken() const {
  int64_t count = 0;
  for (const blas_product &p : products_) count += p.taken();
  return count;
}

} // namespace neso_rt
