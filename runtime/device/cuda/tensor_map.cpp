#include "device/cuda/tensor_map.h"

#include "core/sizes.h"

namespace neso_rt {
namespace {
constexpr int64_t kAddressAlign = 16, kMaxPitch = int64_t(1) << 40;

bool encode(const cuda_driver &driver, const fbs::TensorMap &row, const int64_t *slots, uint64_t address, char *out) {
  const uint32_t rank = row.sizes()->size();
  const int64_t item = row.item();
  // The driver counts dimensions from the innermost one.
  uint64_t sizes[kMaxMapRank], pitches[kMaxMapRank];
  unsigned box[kMaxMapRank], steps[kMaxMapRank];
  if (address % kAddressAlign) return false;
  for (uint32_t d = 0; d < rank; ++d) {
    const uint32_t from = rank - 1 - d;
    const int64_t size = slots[row.sizes()->Get(from)];
    if (size < 1 || size > INT32_MAX) return false;
    sizes[d] = uint64_t(size);
    box[d] = unsigned(row.box()->Get(from));
    if (size < row.box()->Get(from)) return false;
    steps[d] = 1;
    if (d == 0) continue;
    const int64_t pitch = slots[row.pitches()->Get(from)];
    if (pitch < 1 || pitch >= kMaxPitch / item || pitch * item % kAddressAlign) return false;
    pitches[d - 1] = uint64_t(pitch * item);
  }
  const int type = item == 1   ? kCuTensorU8
                   : item == 2 ? kCuTensorU16
                   : item == 4 ? kCuTensorU32
                               : kCuTensorU64;
  const int64_t width = int64_t(box[0]) * item;
  const int swizzle = width == 32 ? kCuSwizzle32 : width == 64 ? kCuSwizzle64 : kCuSwizzle128;
  return driver.cuTensorMapEncodeTiled(out, type, rank, address, sizes, pitches, box, steps, kCuInterleaveNone, swizzle,
                                       kCuPromotion128, kCuFillZeros) == 0;
}
} // namespace

neso_status tensor_maps::start(const plan &program) {
  size_t slots = 0, maps = 0;
  for (const plan_kernel &kernel : program.kernels)
    for (const auto *forms : {kernel.row->box_forms(), kernel.row->resident_forms()})
      for (uint32_t i = 0; forms && i < forms->size(); ++i) {
        const fbs::BoxForm *form = forms->Get(i);
        if (size_t(form->slot_count()) > slots) slots = size_t(form->slot_count());
        if (form->maps()->size() > maps) maps = form->maps()->size();
      }
  NESO_TRY(slots_.resize(slots));
  return memory_.resize(maps * kMapBytes);
}

bool tensor_maps::make(const cuda_driver &driver, const plan_kernel &kernel, const fbs::BoxForm &form,
                       const char *args) {
  size_t at = 0;
  for (uint32_t i = 0; form.slot_constants() && i < form.slot_constants()->size(); ++i)
    slots_[at++] = form.slot_constants()->Get(i);
  for (int32_t i = 0; i < kernel.arg_count; ++i) memcpy(&slots_[at++], args + kernel.arg_offset(i), sizeof(int64_t));
  if (const auto *program = form.program()) {
    const fbs::SizeInst *begin = reinterpret_cast<const fbs::SizeInst *>(program->Data());
    if (eval_sizes(begin, begin + program->size(), slots_.data()) != NESO_OK) return false;
  }
  for (uint32_t i = 0; i < form.maps()->size(); ++i) {
    const fbs::TensorMap *row = form.maps()->Get(i);
    uint64_t address;
    memcpy(&address, args + kernel.arg_offset(row->argument()), sizeof address);
    if (!encode(driver, *row, slots_.data(), address, map(i))) return false;
  }
  return true;
}

} // namespace neso_rt
