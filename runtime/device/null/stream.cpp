#include "device/null/device.h"

namespace neso_rt {
namespace {
null_queue *of(queue *q) { return static_cast<null_queue *>(q); }

void free_work(null_work *first) {
  while (first) {
    null_work *next = first->next;
    if (first->kind == null_kind::choice)
      for (null_work *body : first->bodies) free_work(body);
    free(first);
    first = next;
  }
}

neso_status check_test(const null_queue &q, const device_test &t) {
  const dtype_row *row = row_of_dtype(int(t.type));
  const bool integer = row && (row->kind == dtype_kind::BOOL || row->kind == dtype_kind::SIGNED || row->kind == dtype_kind::UNSIGNED);
  if (!integer) return fail(NESO_DEVICE_FAILED, "a number of dtype %d decides nothing", int(t.type));
  return q.check(t.at, int64_t(row->bytes), "a condition");
}
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
  self->depth = 0;
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

neso_status null_begin_choice(queue *q, bool loop, int bodies, const device_test &test) {
  null_queue *self = of(q);
  if (!self->recording || bodies < 1 || bodies > (loop ? 1 : 2) || self->depth == kNullDepth)
    return fail(NESO_DEVICE_FAILED, "a choice of %d bodies cannot be recorded at depth %d", bodies, self->depth);
  NESO_TRY(check_test(*self, test));
  null_work work{};
  work.kind = null_kind::choice, work.test = test, work.loop = loop;
  null_work **at = self->last;
  NESO_TRY(self->give(work));
  self->choices[self->depth] = *at;
  self->outer[self->depth++] = self->last;
  return NESO_OK;
}

neso_status null_begin_body(queue *q, int body) {
  if (of(q)->depth == 0 || body < 0 || body > 1) return fail(NESO_DEVICE_FAILED, "there is no choice with a body %d", body);
  of(q)->last = &of(q)->choices[of(q)->depth - 1]->bodies[body];
  return NESO_OK;
}

neso_status null_end_body(queue *q, const device_test *again) {
  if (of(q)->depth == 0) return fail(NESO_DEVICE_FAILED, "no body began");
  null_work *choice = of(q)->choices[of(q)->depth - 1];
  if (choice->loop != (again != nullptr)) return fail(NESO_DEVICE_FAILED, "loops are tested again, branches are not");
  if (!again) return NESO_OK;
  choice->again = *again;
  return check_test(*of(q), *again);
}

neso_status null_end_choice(queue *q) {
  if (of(q)->depth == 0) return fail(NESO_DEVICE_FAILED, "no choice began");
  of(q)->last = of(q)->outer[--of(q)->depth];
  return NESO_OK;
}

void null_free_graph(queue *, graph *g) {
  free_work(g->first);
  free(g);
}

} // namespace neso_rt
