// The calls of the interface that concern the device of a context: its memory, its stream, its time.
#include "core/context.h"
#include "core/strided.h"

using namespace neso_rt;

namespace {
neso_status check_copy(const neso_context *c, const neso_tensor *to, const neso_tensor *from) {
  if (!c || !to || !from) return fail(NESO_INVALID_ARGUMENT, "neso_tensor_copy needs a context and two tensors");
  bool same = to->dtype == from->dtype && to->rank == from->rank && to->rank >= 0 && to->rank <= kMaxRank;
  for (int32_t d = 0; same && d < to->rank; ++d) same = to->sizes[d] == from->sizes[d];
  if (!same) return fail(NESO_INVALID_ARGUMENT, "a copy needs two tensors of equal dtype and sizes");
  for (const neso_tensor *t : {to, from})
    if (!on_host(*t) && !lies_on(*t, *c->device))
      return fail(NESO_INVALID_ARGUMENT, "a tensor of the copy lies on another device than the context's");
  return NESO_OK;
}

// Host and device: through dense memory on whichever side is not dense already.
neso_status copy_across(neso_context *c, const neso_tensor &to, const int64_t *to_strides, const neso_tensor &from,
                        const int64_t *from_strides, int64_t count, int size) {
  int64_t dense[kMaxRank], bytes = count * size;
  contiguous_strides(to.sizes, to.rank, dense);
  const neso_tensor &host = on_host(to) ? to : from, &device = on_host(to) ? from : to;
  const int64_t *host_strides = on_host(to) ? to_strides : from_strides,
                *device_strides = on_host(to) ? from_strides : to_strides;
  array<char> packed;
  block middle;
  const neso_device_vtable &d = c->table();
  char *host_data = static_cast<char *>(host.data), *device_data = static_cast<char *>(device.data);
  bool pack = !same_layout(to.sizes, host_strides, dense, to.rank),
       stage = !same_layout(to.sizes, device_strides, dense, to.rank);
  if (pack) NESO_TRY(packed.resize(size_t(bytes)));
  if (pack) host_data = packed.data();
  if (stage) NESO_TRY(c->memory.grow(&middle, bytes, "a copy between host and device"));
  if (stage) device_data = middle.data;
  neso_status status = NESO_OK;
  if (on_host(from)) {
    if (pack) copy_strided(host_data, dense, from.data, from_strides, from.sizes, from.rank, size);
    status = d.upload(c->queue, device_data, host_data, bytes);
    if (status == NESO_OK && stage)
      status = d.copy(c->queue, static_cast<char *>(to.data), to_strides, device_data, dense, to.sizes, to.rank, size);
    if (status == NESO_OK) status = d.synchronize(c->queue);
  } else {
    if (stage)
      status = d.copy(c->queue, device_data, dense, static_cast<const char *>(from.data), from_strides, from.sizes,
                      from.rank, size);
    if (status == NESO_OK) status = d.download(c->queue, host_data, device_data, bytes);
    if (status == NESO_OK) status = d.synchronize(c->queue);
    if (status == NESO_OK && pack) copy_strided(to.data, to_strides, host_data, dense, to.sizes, to.rank, size);
  }
  c->memory.release(&middle);
  return status;
}

neso_status check_mark(const neso_context *c, int32_t mark) {
  if (c && mark >= 0 && mark < neso_context::kMarks) return NESO_OK;
  return fail(NESO_INVALID_ARGUMENT, "marks are numbered from 0 to %d", neso_context::kMarks - 1);
}
} // namespace

extern "C" {

neso_status neso_context_synchronize(neso_context *c) {
  if (!c) return fail(NESO_INVALID_ARGUMENT, "neso_context_synchronize needs a context");
  device_scope scope(c->device);
  NESO_TRY(c->table().alive(c->queue));
  NESO_TRY(c->binding.finish());
  if (!c->model->plan.lends_constants) unpin_weights(c);
  return c->walker.finished();
}

neso_status neso_context_set_stream(neso_context *c, void *stream) {
  if (!c) return fail(NESO_INVALID_ARGUMENT, "neso_context_set_stream needs a context");
  device_scope scope(c->device);
  NESO_TRY(c->table().alive(c->queue));
  return c->table().set_stream(c->queue, stream);
}

neso_status neso_context_allocate(neso_context *c, size_t bytes, void **out_memory) {
  if (!c || !out_memory || bytes > size_t(kMaxBytes))
    return fail(NESO_INVALID_ARGUMENT,
                "neso_context_allocate needs a context, a possible size and a place for the address");
  *out_memory = nullptr;
  device_scope scope(c->device);
  lent_memory *lent = static_cast<lent_memory *>(calloc(1, sizeof(lent_memory)));
  if (!lent) return fail(NESO_OUT_OF_MEMORY, "out of memory");
  neso_status status = c->memory.grow(&lent->memory, bytes ? int64_t(bytes) : 1, "the caller");
  if (status != NESO_OK) {
    free(lent);
    return status;
  }
  lent->next = c->lent;
  c->lent = lent;
  *out_memory = lent->memory.data;
  return NESO_OK;
}

void neso_context_deallocate(neso_context *c, void *memory) {
  if (!c || !memory) return;
  device_scope scope(c->device);
  for (lent_memory **at = &c->lent; *at; at = &(*at)->next) {
    lent_memory *found = *at;
    if (found->memory.data != memory) continue;
    *at = found->next;
    c->memory.release(&found->memory);
    free(found);
    return;
  }
}

neso_status neso_tensor_copy(neso_context *c, const neso_tensor *to, const neso_tensor *from) {
  NESO_TRY(check_copy(c, to, from));
  int64_t dense[kMaxRank], count = element_count(to->sizes, to->rank);
  if (count < 0) return fail(NESO_INVALID_ARGUMENT, "the tensors of a copy are too large");
  if (count == 0) return NESO_OK;
  contiguous_strides(to->sizes, to->rank, dense);
  const int64_t *to_strides = to->strides ? to->strides : dense, *from_strides = from->strides ? from->strides : dense;
  int size = int(item_size(int(to->dtype)));
  device_scope scope(c->device);
  NESO_TRY(c->table().alive(c->queue));
  if (lies_on(*to, *c->device) && lies_on(*from, *c->device))
    return c->table().copy(c->queue, static_cast<char *>(to->data), to_strides, static_cast<const char *>(from->data),
                           from_strides, to->sizes, to->rank, size);
  if (on_host(*to) && on_host(*from)) {
    copy_strided(to->data, to_strides, from->data, from_strides, to->sizes, to->rank, size);
    return NESO_OK;
  }
  return copy_across(c, *to, to_strides, *from, from_strides, count, size);
}

neso_status neso_context_mark(neso_context *c, int32_t mark) {
  NESO_TRY(check_mark(c, mark));
  if (c->marks.size() == 0) NESO_TRY(c->marks.resize(neso_context::kMarks));
  device_scope scope(c->device);
  NESO_TRY(c->table().alive(c->queue));
  return c->table().mark(c->queue, &c->marks[size_t(mark)], true);
}

neso_status neso_context_elapsed(neso_context *c, int32_t begin, int32_t end, double *out_ms) {
  for (int32_t mark : {begin, end}) NESO_TRY(check_mark(out_ms ? c : nullptr, mark));
  if (c->marks.size() == 0 || !c->marks[size_t(begin)] || !c->marks[size_t(end)])
    return fail(NESO_INVALID_ARGUMENT, "marks %d and %d must be set before the time between them is asked for", begin,
                end);
  device_scope scope(c->device);
  NESO_TRY(c->table().alive(c->queue));
  return c->table().elapsed(c->queue, c->marks[size_t(begin)], c->marks[size_t(end)], out_ms);
}

neso_status neso_context_get_device_stats(const neso_context *c, neso_device_stats *out) {
  *out = {};
  out->graphs = c->walker.graphs_kept();
  out->graph_streams = c->walker.graph_streams();
  c->table().get_stats(c->queue, nullptr, out);
  return NESO_OK;
}

neso_status neso_device_get_info(neso_device_kind device, int32_t index, const char *library, neso_device_info *out) {
  if (!out) return fail(NESO_INVALID_ARGUMENT, "neso_device_get_info needs a place for its answer");
  *out = {};
  const neso_device_vtable *table = device_of_kind(device);
  return table ? table->get_info(index, library, out) : NESO_OK;
}
}
