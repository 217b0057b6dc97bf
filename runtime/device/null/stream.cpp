#include "device/null/device.h"

namespace neso_rt {
namespace {
null_queue *of(queue *q) { return static_cast<null_queue *>(q); }
} // namespace

neso_status null_synchronize(queue *q) {
  if (of(q)->recording) return fail(NESO_DEVICE_FAILED, "a run that is recorded cannot be waited for");
  ++of(q)->counts.waits;
  return NESO_OK;
}

neso_status null_set_stream(queue *, void *) { return NESO_OK; }

neso_status null_mark(queue *q, event **at, bool) {
  if (!*at) *at = static_cast<event *>(malloc(sizeof(event)));
  if (!*at) return fail(NESO_OUT_OF_MEMORY, "out of memory");
  (*at)->ms = now_ms();
  ++of(q)->counts.marks;
  return NESO_OK;
}

neso_status null_elapsed(queue *, event *begin, event *end, double *out_ms) {
  *out_ms = end->ms - begin->ms;
  return NESO_OK;
}

void null_free_event(queue *, event *e) { free(e); }

neso_status null_begin_recording(queue *q) {
  null_queue *self = of(q);
  self->recording = static_cast<graph *>(calloc(1, sizeof(graph)));
  if (!self->recording) return fail(NESO_OUT_OF_MEMORY, "out of memory");
  self->last = &self->recording->first;
  return NESO_OK;
}

neso_status null_end_recording(queue *q, neso_status status, graph **out) {
  graph *recorded = of(q)->recording;
  of(q)->recording = nullptr;
  *out = nullptr;
  if (status == NESO_OK)
    *out = recorded;
  else
    null_free_graph(q, recorded);
  return status;
}

neso_status null_use_branch(queue *q, int32_t branch) {
  if (of(q)->recording && branch >= 0 && branch < q->branches) return NESO_OK;
  return fail(NESO_DEVICE_FAILED, "branch %d is none of the %d of a run that is recorded", branch, q->branches);
}

neso_status null_wait(queue *, event *at) {
  return at ? NESO_OK : fail(NESO_DEVICE_FAILED, "a step waits for one that set no mark");
}

void null_free_graph(queue *, graph *g) {
  while (null_work *first = g->first) {
    g->first = first->next;
    free(first);
  }
  free(g);
}

} // namespace neso_rt
