#include "device/null/device.h"

#include <stdio.h>

#include <new>

using namespace neso_rt;

namespace {
// As a GPU's context would have when it is not told.
constexpr int32_t kBranches = 4;

neso_status get_info(int, const char *, neso_device_info *out) {
  snprintf(out->name, sizeof out->name, "null device: runs no kernels");
  return NESO_OK;
}

bool is(const device *d, const neso_context_options &o) { return d->index == o.device_index; }
bool enter(device *) { return false; }
void leave(device *) {}

neso_status start(device *on, const neso_context_options &o, queue **out) {
  void *memory = malloc(sizeof(null_queue));
  if (!memory) return fail(NESO_OUT_OF_MEMORY, "out of memory");
  null_queue *self = new (memory) null_queue;
  self->table = &neso_device_null;
  self->on = on;
  self->records = o.cuda_graphs >= 0;
  self->decides = self->records;
  self->stop = &self->stop_words;
  self->products = on->program->products.size() && !(o.cublas && !*o.cublas);
  self->branches = o.cuda_streams ? o.cuda_streams : kBranches;
  // Every launch leaves room for another: the more steps go side by side, the more of their order is checked.
  self->side_by_side = INT64_MAX;
  self->own_memory = !o.allocate;
  *out = self;
  return NESO_OK;
}

void stop(queue *q) {
  null_queue *self = static_cast<null_queue *>(q);
  while (self->blocks) null_release(self, self->blocks->data, 0);
  self->~null_queue();
  free(self);
}

neso_status alive(const queue *) { return NESO_OK; }

void get_stats(const queue *q, neso_context_stats *, neso_device_stats *out) {
  if (!out) return;
  const null_counts &counts = null_counts_of(q);
  out->graph_launches = counts.graph_launches;
  out->kernel_launches = counts.launches;
  out->library_calls = counts.products;
}
} // namespace

const neso_device_vtable neso_device_null = {
    .kind = NESO_NULL,
    .label = "null:%d",
    .code = -1,
    .fit = nullptr,
    .get_info = get_info,
    .open = null_open,
    .close = null_close,
    .is = is,
    .enter = enter,
    .leave = leave,
    .start = start,
    .stop = stop,
    .alive = alive,
    .synchronize = null_synchronize,
    .set_stream = null_set_stream,
    .recorded = nullptr,
    .get_stats = get_stats,
    .allocate = null_allocate,
    .release = null_release,
    .allocate_host = null_allocate_host,
    .release_host = null_release_host,
    .upload = null_upload,
    .download = null_download,
    .stream = nullptr,
    .copy = null_copy,
    .fill = null_fill,
    .place = null_place,
    .displace = null_displace,
    .launch = null_launch,
    .sizes_changed = null_sizes_changed,
    .multiply = null_multiply,
    .mark = null_mark,
    .elapsed = null_elapsed,
    .free_event = null_free_event,
    .begin_recording = null_begin_recording,
    .end_recording = null_end_recording,
    .use_branch = null_use_branch,
    .wait = null_wait,
    .begin_choice = null_begin_choice,
    .begin_body = null_begin_body,
    .end_body = null_end_body,
    .end_choice = null_end_choice,
    .launch_graph = null_launch_graph,
    .free_graph = null_free_graph,
};
