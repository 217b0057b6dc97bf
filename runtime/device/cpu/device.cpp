#include "device/cpu/device.h"

#include <new>

using namespace neso_rt;

namespace {
int fit(const char *arch) { return cpu_supports(arch); }
neso_status get_info(int, const char *, neso_device_info *) { return NESO_OK; }

void close(device *d) {
  cpu_device *self = static_cast<cpu_device *>(d);
  self->~cpu_device();
  free(self);
}

neso_status load(cpu_device *self, const code_source &source) {
  const array<plan_constant> &rows = source.program->constants;
  NESO_TRY(self->constants.resize(rows.size()));
  for (size_t i = 0; i < rows.size(); ++i)
    if (!rows[i].mutated) self->constants[i] = reinterpret_cast<char *>(const_cast<uint8_t *>(rows[i].data));
  return self->load(source);
}

neso_status open(const code_source &source, const neso_context_options &, device **out) {
  void *memory = malloc(sizeof(cpu_device));
  if (!memory) return fail(NESO_OUT_OF_MEMORY, "out of memory");
  cpu_device *self = new (memory) cpu_device;
  self->table = &neso_device_cpu;
  self->program = source.program;
  neso_status status = load(self, source);
  if (status == NESO_OK)
    *out = self;
  else
    close(self);
  return status;
}

bool is(const device *, const neso_context_options &) { return true; }
bool enter(device *) { return false; }
void leave(device *) {}

void stop(queue *q) {
  cpu_queue *self = static_cast<cpu_queue *>(q);
  self->~cpu_queue();
  free(self);
}

neso_status start(device *on, const neso_context_options &o, queue **out) {
  // The thread pool inside asks for the alignment of a cache line.
  void *memory = aligned_alloc(kAlign, (sizeof(cpu_queue) + kAlign - 1) / kAlign * kAlign);
  if (!memory) return fail(NESO_OUT_OF_MEMORY, "out of memory");
  cpu_queue *self = new (memory) cpu_queue;
  self->table = &neso_device_cpu;
  self->on = on;
  self->branches = 1;
  neso_status status = self->costs.resize(on->program->steps.size());
  if (status == NESO_OK)
    status = self->executor.start(o.threads, on->program->max_scratch, o.parallel_for, o.parallel_for_user, o.on_print,
                                  o.on_print_user);
  if (status == NESO_OK)
    *out = self;
  else
    stop(self);
  return status;
}

neso_status alive(const queue *) { return NESO_OK; }

void get_stats(const queue *q, neso_context_stats *out, neso_device_stats *) {
  if (!out) return;
  const cpu_queue *self = static_cast<const cpu_queue *>(q);
  out->scratch_bytes = self->executor.scratch_total();
  out->threads = self->executor.threads();
}
} // namespace

const neso_device_vtable neso_device_cpu = {
    .kind = NESO_CPU,
    .label = "cpu",
    .code = int32_t(fbs::TargetKind::Cpu),
    .fit = fit,
    .get_info = get_info,
    .open = open,
    .close = close,
    .is = is,
    .enter = enter,
    .leave = leave,
    .start = start,
    .stop = stop,
    .alive = alive,
    .synchronize = cpu_synchronize,
    .set_stream = cpu_set_stream,
    .recorded = nullptr,
    .get_stats = get_stats,
    .allocate = cpu_allocate,
    .release = cpu_release,
    .allocate_host = cpu_allocate_host,
    .release_host = cpu_release_host,
    .upload = cpu_upload,
    .download = cpu_download,
    .stream = nullptr,
    .copy = cpu_copy,
    .fill = cpu_fill,
    .place = nullptr,
    .displace = nullptr,
    .launch = cpu_launch,
    .sizes_changed = cpu_sizes_changed,
    .multiply = nullptr,
    .mark = cpu_mark,
    .elapsed = cpu_elapsed,
    .free_event = cpu_free_event,
    .begin_recording = nullptr,
    .end_recording = nullptr,
    .use_branch = nullptr,
    .wait = nullptr,
    .begin_choice = nullptr,
    .begin_body = nullptr,
    .end_body = nullptr,
    .end_choice = nullptr,
    .launch_graph = nullptr,
    .free_graph = nullptr,
};
