// Kernels that callers launch by name: their configs, the grids that go with their arguments, launches.
#include "core/arguments.h"
#include "core/context.h"
#include "core/launch_checks.h"

using namespace neso_rt;

namespace {
// -1: there is none.
int64_t find_kernel(const plan &p, const char *name) {
  for (size_t k = 0; name && k < p.kernels.size(); ++k)
    if (strcmp(p.kernels[k].name, name) == 0) return int64_t(k);
  return -1;
}

neso_status kernel_of(const plan &p, const char *name, size_t arg_count, size_t *out) {
  int64_t k = find_kernel(p, name);
  if (k < 0) return fail(NESO_NO_SUCH_NAME, "the package holds no kernel '%s'", name);
  if (arg_count != size_t(p.kernels[size_t(k)].arg_count))
    return fail(NESO_KERNEL_ARGUMENTS, "kernel '%s' has %d arguments, %zu were given", name, p.kernels[size_t(k)].arg_count, arg_count);
  *out = size_t(k);
  return NESO_OK;
}

// The sizes that the caller leaves open are known of memory that the context lent.
neso_status check_launch(const neso_context *c, const plan_kernel &kernel, const uint32_t grid[3], const neso_arg *args,
                         const int64_t *given) {
  NESO_TRY(check_grid(kernel.name, grid));
  NESO_TRY(check_alignment(kernel, args));
  const fbs::LaunchChecks *checks = kernel.row->checks();
  if (!checks || !checks->footprints() || (!given && !c->lent)) return NESO_OK;
  array<int64_t> bytes;
  NESO_TRY(bytes.resize(size_t(kernel.arg_count)));
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = given ? given[i] : -1;
    for (const lent_memory *l = c->lent; l && bytes[i] < 0; l = l->next)
      if (l->memory.data == args[i].ptr) bytes[i] = l->memory.capacity;
  }
  return check_footprints(kernel, grid, args, bytes.data());
}
} // namespace

extern "C" {

const char *neso_kernel_config(const neso_model *m, const char *name, int32_t index) {
  // Configs stand behind the one that was chosen, called "name#1" and so on.
  const plan &p = m->plan;
  int64_t first = find_kernel(p, name), k = first + index;
  if (first < 0 || index < 0 || k >= int64_t(p.kernels.size())) return nullptr;
  const char *found = p.kernels[size_t(k)].name;
  size_t length = strlen(name);
  return index == 0 || (strncmp(found, name, length) == 0 && found[length] == '#') ? found : nullptr;
}

int32_t neso_kernel_configs(const neso_model *m, const char *name) {
  int32_t count = 0;
  while (neso_kernel_config(m, name, count)) ++count;
  return count;
}

neso_status neso_kernel_grid(const neso_model *m, const char *name, const union neso_arg *args, size_t arg_count, uint32_t out_grid[3]) {
  if (!m || !name || (!args && arg_count) || !out_grid)
    return fail(NESO_INVALID_ARGUMENT, "neso_kernel_grid needs a model, a name, arguments and where the grid goes");
  size_t k;
  NESO_TRY(kernel_of(m->plan, name, arg_count, &k));
  return grid_of(m->plan.kernels[k], args, out_grid);
}

neso_status neso_kernel_launch(neso_context *c, const char *name, const uint32_t grid[3], const union neso_arg *args,
                               size_t arg_count) {
  return neso_kernel_launch_checked(c, name, grid, args, nullptr, arg_count);
}

neso_status neso_kernel_launch_checked(neso_context *c, const char *name, const uint32_t grid[3],
                                       const union neso_arg *args, const int64_t *buffer_bytes, size_t arg_count) {
  if (!c || !name || (!args && arg_count))
    return fail(NESO_INVALID_ARGUMENT, "neso_kernel_launch needs a context, a name and arguments");
  const plan &p = c->model->plan;
  size_t k;
  NESO_TRY(kernel_of(p, name, arg_count, &k));
  const plan_kernel &kernel = p.kernels[k];
  uint32_t ruled[3];
  if (!grid) {
    NESO_TRY(grid_of(kernel, args, ruled));
    grid = ruled;
  }
  NESO_TRY(check_launch(c, kernel, grid, args, buffer_bytes));
  device_scope scope(c->device);
  NESO_TRY(c->table().alive(c->queue));
  aligned_bytes copy;
  const void *placed = nullptr;
  NESO_TRY(place_words(kernel, args, &copy, &placed));
  // Callers launch the same kernel over other data each time: no cost is remembered.
  return c->table().launch(c->queue, int32_t(k), -1, placed, grid);
}
}
