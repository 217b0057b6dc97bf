#include "core/box_forms.h"

#include "core/sizes.h"

namespace neso_rt {
namespace {
constexpr int32_t kMaxSlots = 1 << 16;
constexpr int32_t kMaxBox = 256;
constexpr uint32_t kMaxMaps = 16;

uint32_t count(const flatbuffers::Vector<int32_t> *v) { return v ? v->size() : 0; }

bool map_fits(const fbs::TensorMap &map, const plan_kernel &kernel, int32_t slots) {
  const uint32_t rank = count(map.sizes());
  const int32_t item = map.item();
  if (map.argument() < 0 || map.argument() >= kernel.arg_count || rank < 1 || rank > uint32_t(kMaxMapRank) ||
      count(map.pitches()) != rank - 1 || count(map.box()) != rank || item < 1 || item > 8 || (item & (item - 1)))
    return false;
  for (const auto *indices : {map.sizes(), map.pitches()})
    for (uint32_t i = 0; i < count(indices); ++i)
      if (indices->Get(i) < 0 || indices->Get(i) >= slots) return false;
  for (uint32_t d = 0; d < rank; ++d)
    if (map.box()->Get(d) < 1 || map.box()->Get(d) > kMaxBox) return false;
  const int32_t width = map.box()->Get(rank - 1) * item;
  return width == 32 || width == 64 || width == 128;
}

bool form_fits(const fbs::BoxForm &form, const plan_kernel &kernel, size_t targets) {
  const int32_t constants = form.slot_constants() ? int32_t(form.slot_constants()->size()) : 0, slots = form.slot_count();
  bool good = form.target() >= 0 && size_t(form.target()) < targets && form.symbol() && form.usage() && form.maps() &&
              form.maps()->size() > 0 && form.maps()->size() <= kMaxMaps && slots <= kMaxSlots &&
              slots - constants >= kernel.arg_count && program_fits(form.program(), constants, slots);
  for (uint32_t i = 0; good && i < form.maps()->size(); ++i) good = map_fits(*form.maps()->Get(i), kernel, slots);
  return good;
}
} // namespace

neso_status verify_box_forms(const plan_kernel &kernel, size_t targets) {
  for (const auto *forms : {kernel.row->box_forms(), kernel.row->resident_forms()})
    for (uint32_t i = 0; forms && i < forms->size(); ++i)
      if (!form_fits(*forms->Get(i), kernel, targets) || (forms == kernel.row->resident_forms() && forms->Get(i)->usage()->blocks_per_sm() < 1))
        return fail(NESO_PACKAGE_MALFORMED, "the code of kernel '%s' that copies boxes contradicts itself", kernel.name);
  return NESO_OK;
}

const fbs::BoxForm *box_form(const plan_kernel &kernel, int32_t target, bool *out_resident) {
  *out_resident = false;
  for (const auto *forms : {kernel.row->box_forms(), kernel.row->resident_forms()}) {
    for (uint32_t i = 0; forms && i < forms->size(); ++i)
      if (forms->Get(i)->target() == target) return forms->Get(i);
    *out_resident = true;
  }
  return nullptr;
}

} // namespace neso_rt
