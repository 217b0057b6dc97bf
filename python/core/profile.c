/* What runs tell profilers: each step with its times. Nothing is recorded, and nothing paid for, while nobody listens. */
#include "core.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

PyObject *profile_sink;

int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

PyObject *set_profile(PyObject *module, PyObject *sink) {
  PyObject *old = profile_sink;
  profile_sink = sink == Py_None ? NULL : Py_NewRef(sink);
  Py_XDECREF(old);
  return Py_NewRef(Py_None);
}

/* Around each step, without the interpreter's lock. A record that cannot grow loses steps, never the run. */
static int told(void *user, const neso_step_event *event) {
  run_record *r = user;
  const int64_t now = now_ns();
  enum { DEEPEST = sizeof r->open / sizeof *r->open };
  if (event->after) {
    if (--r->depth < DEEPEST && r->open[r->depth] < r->count) r->steps[r->open[r->depth]].end = now;
    return 0;
  }
  /* A loop tells of its turns as steps of the model's own plan, which have no end. */
  if (event->subplan == 0 && r->depth > 0) return 0;
  if (r->count == r->capacity) {
    const size_t capacity = r->capacity ? 2 * r->capacity : 64;
    step_record *steps = realloc(r->steps, capacity * sizeof *steps);
    if (steps) r->steps = steps, r->capacity = capacity;
  }
  if (r->depth < DEEPEST) r->open[r->depth] = r->count < r->capacity ? r->count : SIZE_MAX;
  if (r->count < r->capacity) {
    step_record *s = &r->steps[r->count++];
    *s = (step_record){event->what, event->kernel, event->subplan, event->step, 0, 0, {event->grid[0], event->grid[1], event->grid[2]}, r->depth};
    /* Behind all of the above, which is no part of the step. */
    s->begin = now_ns();
  }
  ++r->depth;
  return 0;
}

void watch_run(call_slot *slot) {
  if (!slot->record && !(slot->record = calloc(1, sizeof *slot->record))) return;
  slot->record->count = 0;
  slot->record->depth = 0;
  slot->record->begin = now_ns();
  neso_context_watch(slot->context, told, slot->record);
}

static void tell(PyObject *model, PyObject *sink, int64_t begin, int64_t end, PyObject *steps) {
  PyObject *done = steps ? PyObject_CallFunction(sink, "OLLN", model, (long long)begin, (long long)end, steps) : NULL;
  if (!done) PyErr_WriteUnraisable(sink);
  Py_XDECREF(done);
}

static PyObject *step_row(const step_record *s, int64_t end) {
  return Py_BuildValue("(sz(III)LLi)", s->what, s->kernel, s->grid[0], s->grid[1], s->grid[2], (long long)s->begin, (long long)(s->end ? s->end : end), s->depth);
}

void tell_run(PyObject *model, call_slot *slot, PyObject *sink) {
  const int64_t end = now_ns();
  const run_record *r = slot->record;
  neso_context_watch(slot->context, NULL, NULL);
  if (!sink) return;
  PyObject *steps = PyList_New(r ? (Py_ssize_t)r->count : 0);
  for (size_t i = 0; steps && r && i < r->count; ++i) {
    PyObject *row = step_row(&r->steps[i], end);
    if (!row) Py_CLEAR(steps);
    else PyList_SetItem(steps, (Py_ssize_t)i, row);
  }
  tell(model, sink, r ? r->begin : end, end, steps);
}

void tell_launch(PyObject *model, const char *kernel, const uint32_t grid[3], int64_t begin, PyObject *sink) {
  const int64_t end = now_ns();
  const step_record step = {"launch", kernel, 0, 0, begin, end, {grid[0], grid[1], grid[2]}, 0};
  PyObject *row = step_row(&step, end), *steps = row ? PyList_New(1) : NULL;
  if (steps) PyList_SetItem(steps, 0, row);
  tell(model, sink, begin, end, steps);
}
