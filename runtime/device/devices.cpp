#include <stdio.h>

#include "device/device.h"

namespace neso_rt {
namespace {
const neso_device_vtable *const tables[] = {
#define NESO_DEVICE(folder) &neso_device_##folder,
#include "device/devices.def"
#undef NESO_DEVICE
};
} // namespace

const neso_device_vtable *device_of_kind(int kind) {
  for (const neso_device_vtable *t : tables)
    if (t->kind == kind) return t;
  return nullptr;
}

const neso_device_vtable *device_of_code(int code) {
  for (const neso_device_vtable *t : tables)
    if (t->code == code) return t;
  return nullptr;
}

device_label::device_label(int kind, int index) {
  const neso_device_vtable *t = device_of_kind(kind);
  snprintf(text, sizeof text, t ? t->label : "?", index);
}

} // namespace neso_rt
