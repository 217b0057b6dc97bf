#include "core/arguments.h"

#include "core/sizes.h"

namespace neso_rt {
namespace {
template <typename T> void put(char *to, T value) { memcpy(to, &value, sizeof value); }

void write_buffer(const fbs::Arg &a, const int64_t *slots, char *const *addresses, char *to) {
  put(to, addresses[a.index()] + (a.offset() < 0 ? 0 : slots[a.offset()]));
}
void write_slot(const fbs::Arg &a, const int64_t *slots, char *const *, char *to) { put(to, slots[a.index()]); }
void write_slot_f32(const fbs::Arg &a, const int64_t *slots, char *const *, char *to) {
  put(to, float(slot_as_double(slots[a.index()])));
}
void write_bits(const fbs::Arg &a, const int64_t *, char *const *, char *to) { put(to, a.bits()); }
void write_f32(const fbs::Arg &a, const int64_t *, char *const *, char *to) { put(to, float(slot_as_double(a.bits()))); }
void write_null(const fbs::Arg &, const int64_t *, char *const *, char *to) { put(to, int64_t(0)); }

// In the order of fbs::ArgKind. A double lies in a slot, and in the plan, as its bits.
constexpr arg_kind kinds[] = {
    {8, 8, write_buffer},   // Buffer
    {8, 8, write_slot},     // Slot
    {8, 8, write_slot_f32}, // SlotF32
    {8, 8, write_slot},     // SlotF64
    {8, 8, write_bits},     // I64
    {8, 8, write_f32},      // F32
    {8, 8, write_bits},     // F64
    {8, 8, write_null},     // Null
};
static_assert(sizeof kinds / sizeof kinds[0] == size_t(fbs::ArgKind::MAX) + 1, "a kind of argument has no row");
} // namespace

const arg_kind *arg_kind_of(fbs::ArgKind kind) {
  return size_t(kind) < sizeof kinds / sizeof kinds[0] ? &kinds[size_t(kind)] : nullptr;
}

void write_arguments(const step &launch, const plan_kernel &kernel, const int64_t *slots, char *const *addresses,
                     char *memory) {
  for (int32_t i = 0; i < launch.args.size; ++i)
    kinds[size_t(launch.args[i].kind())].write(launch.args[i], slots, addresses, memory + kernel.arg_offset(i));
}

neso_status place_words(const plan_kernel &kernel, const neso_arg *words, aligned_bytes *memory, const void **out) {
  *out = words;
  if (kernel.args_are_words) return NESO_OK;
  NESO_TRY(memory->resize(size_t(kernel.arg_bytes)));
  for (int32_t i = 0; i < kernel.arg_count; ++i) {
    if (kernel.arg_places[i].bytes() != int32_t(sizeof words[i]))
      return fail(NESO_KERNEL_ARGUMENTS,
                  "argument %d of kernel '%s' has %d bytes, which cannot be given by name; run the model", i,
                  kernel.name, kernel.arg_places[i].bytes());
    memcpy(memory->data() + kernel.arg_offset(i), &words[i], sizeof words[i]);
  }
  *out = memory->data();
  return NESO_OK;
}

} // namespace neso_rt
