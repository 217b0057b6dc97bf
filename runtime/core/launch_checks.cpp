#include "core/launch_checks.h"

#include <stdio.h>

#include "core/sizes.h"

namespace neso_rt {
namespace {
// More would be no kernel's footprint.
constexpr int32_t kMaxSlots = 1 << 16;
typedef long long ll;

template <typename Row> int32_t constants_of(const Row *row) { return row->slot_constants() ? int32_t(row->slot_constants()->size()) : 0; }

// Runs the program of a row over its slots: constants, `given`, then what it computes.
template <typename Row> neso_status run_program(const Row *row, const int64_t *given, int32_t count, array<int64_t> *slots) {
  NESO_TRY(slots->resize(size_t(row->slot_count())));
  int32_t constants = constants_of(row);
  for (int32_t i = 0; i < constants; ++i) (*slots)[size_t(i)] = row->slot_constants()->Get(uint32_t(i));
  for (int32_t i = 0; i < count; ++i) (*slots)[size_t(constants + i)] = given[i];
  if (!row->program()) return NESO_OK;
  const fbs::SizeInst *begin = reinterpret_cast<const fbs::SizeInst *>(row->program()->Data());
  return eval_sizes(begin, begin + row->program()->size(), slots->data());
}
} // namespace

neso_status verify_checks(const plan_kernel &kernel) {
  const fbs::LaunchChecks *checks = kernel.row->checks();
  if (const fbs::GridRule *rule = kernel.row->grid()) {
    int32_t slots = rule->slot_count(), given = constants_of(rule) + kernel.arg_count;
    auto slot = [&](int32_t s) { return s >= 0 && s < slots; };
    if (slots < given || slots > kMaxSlots || !program_fits(rule->program(), constants_of(rule), slots) || !slot(rule->x()) ||
        !slot(rule->y()) || !slot(rule->z()))
      return fail(NESO_PACKAGE_MALFORMED, "the grid of kernel '%s' contradicts itself", kernel.name);
  }
  if (!checks) return NESO_OK;
  int32_t constants = constants_of(checks);
  bool good = !checks->align() || checks->align()->size() == uint32_t(kernel.arg_count);
  for (uint32_t i = 0; good && checks->align() && i < checks->align()->size(); ++i) good = checks->align()->Get(i) > 0;
  int32_t slots = checks->slot_count();
  good =
      good && slots >= 0 && slots <= kMaxSlots && (!checks->footprints() || slots - constants - 3 >= kernel.arg_count);
  auto slot = [&](int32_t s) { return s >= 0 && s < slots; };
  good = good && program_fits(checks->program(), constants, slots);
  for (uint32_t i = 0; good && checks->footprints() && i < checks->footprints()->size(); ++i) {
    const fbs::Footprint *f = checks->footprints()->Get(i);
    good = f->argument() >= 0 && f->argument() < kernel.arg_count && slot(f->begin()) && slot(f->end()) &&
           slot(f->valid());
  }
  return good ? NESO_OK
              : fail(NESO_PACKAGE_MALFORMED, "the launch checks of kernel '%s' contradict themselves", kernel.name);
}

neso_status check_grid(const char *name, const uint32_t grid[3]) {
  // Program ids have 32 bits with a sign; the programs of a launch are counted in 64.
  unsigned __int128 total = 1;
  bool fits = true;
  for (int i = 0; i < 3; ++i) {
    fits = fits && grid[i] <= uint32_t(INT32_MAX);
    total *= grid[i];
  }
  if (fits && total <= uint64_t(INT64_MAX)) return NESO_OK;
  return fail(NESO_KERNEL_GRID,
              "kernel '%s' cannot be launched over a grid of %u x %u x %u: 2147483647 programs along an axis and 2^63 "
              "in all are the most",
              name, grid[0], grid[1], grid[2]);
}

neso_status grid_of(const plan_kernel &kernel, const neso_arg *args, uint32_t out[3]) {
  const fbs::GridRule *rule = kernel.row->grid();
  if (!rule) return fail(NESO_KERNEL_GRID, "the package has no grid of kernel '%s'; give one, or compile it with --grid", kernel.name);
  array<int64_t> given, slots;
  NESO_TRY(given.resize(size_t(kernel.arg_count)));
  for (int32_t i = 0; i < kernel.arg_count; ++i) given[size_t(i)] = args[i].i64;
  neso_status run = run_program(rule, given.data(), kernel.arg_count, &slots);
  if (run == NESO_OUT_OF_MEMORY) return run;
  if (run != NESO_OK) return fail(NESO_KERNEL_GRID, "the grid of kernel '%s' divides by zero for these arguments", kernel.name);
  const int32_t axes[3] = {rule->x(), rule->y(), rule->z()};
  for (int i = 0; i < 3; ++i) {
    int64_t size = slots[size_t(axes[i])];
    if (size < 0 || size > INT32_MAX)
      return fail(NESO_KERNEL_GRID, "the grid of kernel '%s' has %lld programs along axis %d for these arguments", kernel.name, ll(size), i);
    out[i] = uint32_t(size);
  }
  return NESO_OK;
}

neso_status check_alignment(const plan_kernel &kernel, const neso_arg *args) {
  const fbs::LaunchChecks *checks = kernel.row->checks();
  if (!checks || !checks->align()) return NESO_OK;
  const int32_t *align = checks->align()->data();
  for (int32_t i = 0; i < kernel.arg_count; ++i) {
    if (align[i] == 1 || args[i].i64 % align[i] == 0) continue;
    return fail(NESO_KERNEL_ALIGNMENT,
                "argument %d of kernel '%s' is %lld, but the kernel was compiled for a multiple of %d; align it, or "
                "compile with the hint 'none' for it",
                i, kernel.name, ll(args[i].i64), align[i]);
  }
  return NESO_OK;
}

neso_status check_footprints(const plan_kernel &kernel, const uint32_t grid[3], const neso_arg *args,
                             const int64_t *bytes) {
  const fbs::LaunchChecks *checks = kernel.row->checks();
  if (!checks || !checks->footprints() || grid[0] == 0 || grid[1] == 0 || grid[2] == 0) return NESO_OK;
  array<int64_t> given, slots;
  NESO_TRY(given.resize(size_t(3 + kernel.arg_count)));
  for (size_t i = 0; i < 3; ++i) given[i] = grid[i];
  for (int32_t i = 0; i < kernel.arg_count; ++i) given[size_t(3 + i)] = bytes[i] < 0 ? args[i].i64 : 0;
  // Divisors are positive by construction; were one not, nothing would be known.
  neso_status run = run_program(checks, given.data(), 3 + kernel.arg_count, &slots);
  if (run != NESO_OK) return run == NESO_OUT_OF_MEMORY ? run : NESO_OK;
  for (const fbs::Footprint *f : *checks->footprints()) {
    int64_t size = bytes[f->argument()], begin = slots[size_t(f->begin())], end = slots[size_t(f->end())];
    if (size < 0 || slots[size_t(f->valid())] == 0 || (begin >= 0 && end <= size)) continue;
    char line[32] = "";
    if (f->line() > 0) snprintf(line, sizeof line, " (line %d)", f->line());
    return fail(NESO_KERNEL_BUFFER_SIZE,
                "argument %d of kernel '%s' is a buffer of %lld bytes, but over a grid of %u x %u x %u the kernel "
                "touches bytes [%lld, %lld) of it%s",
                f->argument(), kernel.name, ll(size), grid[0], grid[1], grid[2], ll(begin), ll(end), line);
  }
  return NESO_OK;
}

} // namespace neso_rt
