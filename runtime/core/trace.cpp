#include "core/trace.h"

#include <atomic>
#include <errno.h>
#include <new>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/context.h"

using namespace neso_rt;

namespace {
constexpr size_t kSteps = 65536;
// Steps inside of branches and loops inside of each other; what lies deeper is not noted.
constexpr int kDeepest = 32;

// A step or a run, once it has ended.
struct noted {
  const char *name;
  const neso_model *model;
  double begin_ms, end_ms;
  uint32_t grid[3];
  int32_t track;
  bool launch, run;
};
} // namespace

// Of one context.
struct neso_track {
  neso_trace *trace;
  const neso_model *model;
  int32_t number;
  int depth;
  double run_ms;
  noted open[kDeepest];
  neso_track *next;
};

struct neso_trace {
  array<noted> spans; // the last of them: number n at n modulo their count
  std::atomic<size_t> count{0};
  std::atomic<neso_track *> tracks{nullptr};
  std::atomic<int32_t> track_count{0};
  double zero_ms = now_ms();

  void add(const noted &s) { spans[count.fetch_add(1) % spans.size()] = s; }
};

namespace {
// Text inside of quotes.
void put_text(FILE *f, const char *text) {
  for (; *text; ++text) {
    const unsigned char c = static_cast<unsigned char>(*text);
    if (c < 0x20)
      fprintf(f, "\\u%04x", unsigned(c));
    else
      fprintf(f, c == '"' || c == '\\' ? "\\%c" : "%c", c);
  }
}

void put_sources(FILE *f, const neso_model *m, const char *kernel) {
  const plan &p = m->plan;
  for (size_t k = 0; k < p.kernels.size(); ++k) {
    if (p.kernels[k].name != kernel) continue;
    const char *between = "";
    for (int32_t i = 0; const char *line = neso_model_kernel_source(m, int32_t(k), i); ++i, between = "; ") {
      fputs(between, f);
      put_text(f, line);
    }
    return;
  }
}

void put_span(FILE *f, const noted &s, double zero) {
  fputs(",\n{\"name\": \"", f);
  put_text(f, s.name);
  fprintf(f, "\", \"cat\": \"%s\", \"ph\": \"X\", \"ts\": %.3f, \"dur\": %.3f, \"pid\": 1, \"tid\": %d", s.run ? "run" : "step", (s.begin_ms - zero) * 1e3,
          (s.end_ms - s.begin_ms) * 1e3, s.track);
  if (s.launch) {
    fprintf(f, ", \"args\": {\"grid\": [%u, %u, %u], \"source\": \"", s.grid[0], s.grid[1], s.grid[2]);
    put_sources(f, s.model, s.name);
    fputs("\"}", f);
  }
  fputs("}", f);
}
} // namespace

int neso_rt::note_step(void *user, const neso_step_event *event) {
  neso_track *track = static_cast<neso_track *>(user);
  // A loop tells of its turns as steps of the model's own plan, which have no end.
  if (!event->after && event->subplan == 0 && track->depth > 0) return 0;
  if (event->after) {
    const double now = now_ms();
    if (track->depth-- > kDeepest) return 0;
    track->open[track->depth].end_ms = now;
    track->trace->add(track->open[track->depth]);
    return 0;
  }
  if (track->depth++ >= kDeepest) return 0;
  noted &s = track->open[track->depth - 1];
  s = {event->kernel ? event->kernel : event->what, track->model, 0, 0, {event->grid[0], event->grid[1], event->grid[2]}, track->number, strcmp(event->what, "launch") == 0, false};
  // Behind all of the above, which is no part of the step.
  s.begin_ms = now_ms();
  return 0;
}

void neso_rt::note_run(void *user, bool begins) {
  neso_track *track = static_cast<neso_track *>(user);
  const double now = now_ms();
  track->depth = 0;
  if (begins)
    track->run_ms = now;
  else
    track->trace->add({"run", track->model, track->run_ms, now, {0, 0, 0}, track->number, false, true});
}

extern "C" {

neso_status neso_trace_create(size_t steps, neso_trace **out) {
  if (!out) return fail(NESO_INVALID_ARGUMENT, "neso_trace_create needs a place for the trace");
  *out = nullptr;
  void *memory = malloc(sizeof(neso_trace));
  if (!memory) return fail(NESO_OUT_OF_MEMORY, "out of memory: %zu bytes", sizeof(neso_trace));
  neso_trace *trace = new (memory) neso_trace;
  neso_status status = trace->spans.resize(steps ? steps : kSteps);
  status == NESO_OK ? void(*out = trace) : neso_trace_free(trace);
  return status;
}

neso_status neso_context_trace(neso_context *c, neso_trace *trace) {
  if (!c) return fail(NESO_INVALID_ARGUMENT, "neso_context_trace needs a context");
  if (!trace) return neso_context_watch(c, nullptr, nullptr);
  neso_track *track = static_cast<neso_track *>(calloc(1, sizeof(neso_track)));
  if (!track) return fail(NESO_OUT_OF_MEMORY, "out of memory: %zu bytes", sizeof(neso_track));
  track->trace = trace;
  track->model = c->model;
  track->number = ++trace->track_count;
  for (track->next = trace->tracks.load(); !trace->tracks.compare_exchange_weak(track->next, track);) {
  }
  return neso_context_watch(c, note_step, track);
}

neso_status neso_trace_write(const neso_trace *trace, const char *path) {
  if (!trace || !path) return fail(NESO_INVALID_ARGUMENT, "neso_trace_write needs a trace and a path");
  // Beside the file, and then in its place: what stood there stays until all is written. A device or a pipe is the system's.
  static std::atomic<unsigned> made{0};
  struct stat about;
  const bool apart = stat(path, &about) == 0 && !S_ISREG(about.st_mode);
  array<char> beside;
  NESO_TRY(beside.resize(strlen(path) + 64));
  snprintf(beside.data(), beside.size(), "%s.%ld.%u.part", path, long(getpid()), made.fetch_add(1));
  const char *target = apart ? path : beside.data();
  FILE *f = fopen(target, apart ? "w" : "wx");
  if (!f) return fail(NESO_FILE_UNWRITABLE, "cannot write '%s': %s", path, strerror(errno));
  fputs("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": 1, \"args\": {\"name\": \"neso\"}}", f);
  for (const neso_track *t = trace->tracks.load(); t; t = t->next) {
    const char *name = neso_model_metadata(t->model, "model");
    fprintf(f, ",\n{\"name\": \"thread_name\", \"ph\": \"M\", \"pid\": 1, \"tid\": %d, \"args\": {\"name\": \"", t->number);
    put_text(f, name && *name ? name : "kernels");
    fputs("\"}}", f);
  }
  const size_t count = trace->count.load(), kept = trace->spans.size();
  for (size_t n = count > kept ? count - kept : 0; n < count; ++n) put_span(f, trace->spans[n % kept], trace->zero_ms);
  fputs("\n]}\n", f);
  const bool wrong = ferror(f) != 0, open = fclose(f) != 0;
  if (!wrong && !open && (apart || rename(target, path) == 0)) return NESO_OK;
  const int why = errno;
  if (!apart) remove(target);
  return fail(NESO_FILE_UNWRITABLE, "cannot write '%s': %s", path, strerror(why));
}

void neso_trace_free(neso_trace *trace) {
  if (!trace) return;
  for (neso_track *t = trace->tracks.load(); t;) {
    neso_track *next = t->next;
    free(t);
    t = next;
  }
  trace->~neso_trace();
  free(trace);
}
}
