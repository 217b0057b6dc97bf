// The CPU does its work at once: nothing is waited for, and a mark is a reading of the clock.
#include "device/cpu/device.h"

namespace neso_rt {

struct event {
  double ms;
};

neso_status cpu_synchronize(queue *) { return NESO_OK; }

neso_status cpu_set_stream(queue *, void *stream) {
  return stream ? fail(NESO_INVALID_ARGUMENT, "only a context on a GPU has a stream") : NESO_OK;
}

neso_status cpu_mark(queue *, event **at, bool) {
  if (!*at) *at = static_cast<event *>(malloc(sizeof(event)));
  if (!*at) return fail(NESO_OUT_OF_MEMORY, "out of memory");
  (*at)->ms = now_ms();
  return NESO_OK;
}

neso_status cpu_elapsed(queue *, event *begin, event *end, double *out_ms) {
  *out_ms = end->ms - begin->ms;
  return NESO_OK;
}

void cpu_free_event(queue *, event *e) { free(e); }

} // namespace neso_rt
