// There is no code: a model is its constants, which are read where they lie.
#include <new>

#include "device/null/device.h"

namespace neso_rt {

neso_status null_open(const code_source &source, const neso_context_options &options, device **out) {
  if (options.device_index < 0)
    return fail(NESO_DEVICE_UNAVAILABLE, "there is no device null:%d", options.device_index);
  void *memory = malloc(sizeof(null_device));
  if (!memory) return fail(NESO_OUT_OF_MEMORY, "out of memory");
  null_device *self = new (memory) null_device;
  self->table = &neso_device_null;
  self->program = source.program;
  self->index = options.device_index;
  const array<plan_constant> &rows = source.program->constants;
  neso_status status = self->constants.resize(rows.size());
  if (status != NESO_OK) {
    null_close(self);
    return status;
  }
  for (size_t i = 0; i < rows.size(); ++i)
    if (!rows[i].mutated) self->constants[i] = reinterpret_cast<char *>(const_cast<uint8_t *>(rows[i].data));
  *out = self;
  return NESO_OK;
}

void null_close(device *d) {
  null_device *self = static_cast<null_device *>(d);
  self->~null_device();
  free(self);
}

} // namespace neso_rt
