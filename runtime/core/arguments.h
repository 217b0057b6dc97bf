// What the arguments of a launch are and how they lie in memory: bytes, each argument at the place that its kernel's row
// gives it (fbs::ArgPlace), in memory that begins at a multiple of 64. Without places every argument has 8 bytes, one
// behind the other, as in an array of neso_arg.
//
//     kernel of (x: pointer, n: i32, map: 128 bytes)    places  [0, 8)  [8, 16)  [64, 192)
#pragma once
#include "core/plan.h"

namespace neso_rt {

/// A kind of argument (fbs::ArgKind): what it takes, and how its value is written to its place.
struct arg_kind {
  int32_t bytes, align;
  void (*write)(const fbs::Arg &arg, const int64_t *slots, char *const *addresses, char *to);
};
/// nullptr: there is none of that number.
const arg_kind *arg_kind_of(fbs::ArgKind kind);

/// Writes all arguments of a launch to `memory`, plan_kernel::arg_bytes of the launched kernel.
void write_arguments(const step &launch, const plan_kernel &kernel, const int64_t *slots, char *const *addresses,
                     char *memory);

/// The arguments of a launch by name, which are words, as its kernel wants them: `words` themselves where it wants
/// nothing else, or a copy that `memory` holds. Arguments of other sizes cannot be given by name.
neso_status place_words(const plan_kernel &kernel, const neso_arg *words, aligned_bytes *memory, const void **out);

} // namespace neso_rt
