#include "core/strided.h"
#include "device/null/device.h"

namespace neso_rt {
namespace {
null_queue *of(queue *q) { return static_cast<null_queue *>(q); }

void perform_all(null_queue *q, const null_work *first);

bool holds(const device_test &t) {
  const dtype_row *row = row_of_dtype(int(t.type));
  uint64_t bits = 0;
  memcpy(&bits, t.at, row->bytes);
  const int unused = int(64 - row->bytes * 8);
  const int64_t value = row->kind == dtype_kind::BOOL     ? bits != 0
                        : row->kind == dtype_kind::SIGNED ? int64_t(bits << unused) >> unused
                                                          : int64_t(bits);
  return (value >= t.low && value <= t.high) != t.outside;
}

void choose(null_queue *q, const null_work &w) {
  bool taken = holds(w.test);
  if (!w.loop) return perform_all(q, w.bodies[taken ? 0 : 1]);
  for (; taken; taken = holds(w.again)) {
    if (q->stop->asked) {
      q->stop->ended = 1;
      return;
    }
    perform_all(q, w.bodies[0]);
  }
}

void perform(null_queue *q, const null_work &w) {
  switch (w.kind) {
  case null_kind::copy:
    copy_strided(w.dst, w.dst_strides, w.src, w.src_strides, w.sizes, w.rank, w.item);
    ++q->counts.copies;
    break;
  case null_kind::fill:
    for (int64_t i = 0; i < w.count; ++i) memcpy(w.dst + i * w.item, &w.bits, size_t(w.item));
    ++q->counts.fills;
    break;
  case null_kind::launch: ++q->counts.launches; break;
  case null_kind::product: ++q->counts.products; break;
  case null_kind::choice: choose(q, w); break;
  }
}

void perform_all(null_queue *q, const null_work *first) {
  for (const null_work *w = first; w; w = w->next) perform(q, *w);
}
} // namespace

neso_status null_queue::give(const null_work &work) {
  if (!recording) {
    perform(this, work);
    return NESO_OK;
  }
  null_work *kept = static_cast<null_work *>(malloc(sizeof(null_work)));
  if (!kept) return fail(NESO_OUT_OF_MEMORY, "out of memory");
  *kept = work;
  kept->next = nullptr;
  *last = kept;
  last = &kept->next;
  return NESO_OK;
}

neso_status null_launch(queue *q, int32_t, int32_t, const void *, const uint32_t grid[3]) {
  if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0) return NESO_OK;
  null_work work{};
  work.kind = null_kind::launch;
  return of(q)->give(work);
}

void null_sizes_changed(queue *) {}

neso_status null_multiply(queue *q, int32_t, const product_call &call, bool *out_done) {
  NESO_TRY(of(q)->check(call.workspace, call.workspace_bytes, "the workspace of a product"));
  null_work work{};
  work.kind = null_kind::product;
  *out_done = true;
  return of(q)->give(work);
}

neso_status null_launch_graph(queue *q, graph *g) {
  perform_all(of(q), g->first);
  ++of(q)->counts.graph_launches;
  return NESO_OK;
}

} // namespace neso_rt
