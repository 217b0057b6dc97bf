// Kernels that are there once more in code that copies boxes of tensors (fbs::BoxForm): what is asked of their rows.
#pragma once
#include "core/plan.h"

namespace neso_rt {

/// Dimensions that a tensor map can have.
inline constexpr int kMaxMapRank = 5;
/// Bytes of a map as an argument of a kernel.
inline constexpr int kMapBytes = 128;

/// Whether the rows of `kernel` refer to targets, arguments and slots that exist, and to boxes that a GPU copies. Once, when the
/// plan is read.
neso_status verify_box_forms(const plan_kernel &kernel, size_t targets);

/// The kernel's form for a target; nullptr: it has none. out_resident: whether its blocks take one program after another.
const fbs::BoxForm *box_form(const plan_kernel &kernel, int32_t target, bool *out_resident);

} // namespace neso_rt
