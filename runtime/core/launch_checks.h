// What a launch by name must satisfy before it runs: alignments, and sizes of buffers where the caller gives them; and the grid that goes
// with its arguments.
#pragma once
#include "abi/kernel_abi.h"
#include "core/plan.h"

namespace neso_rt {

/// Whether the rows of `kernel` refer to slots and arguments that exist. Once, when the plan is read.
neso_status verify_checks(const plan_kernel &kernel);

/// A grid that no launch can have, on any device: NESO_KERNEL_GRID.
neso_status check_grid(const char *name, const uint32_t grid[3]);

/// By the kernel's rule. NESO_KERNEL_GRID where it has none, or where the rule gives no grid.
neso_status grid_of(const plan_kernel &kernel, const neso_arg *args, uint32_t out[3]);

/// NESO_KERNEL_ALIGNMENT.
neso_status check_alignment(const plan_kernel &kernel, const neso_arg *args);

/// bytes: of the buffer that starts at each argument's address; negative: unknown, or no pointer.
/// NESO_KERNEL_BUFFER_SIZE.
neso_status check_footprints(const plan_kernel &kernel, const uint32_t grid[3], const neso_arg *args,
                             const int64_t *bytes);

} // namespace neso_rt
