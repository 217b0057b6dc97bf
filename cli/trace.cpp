#include "trace.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "base/atomic_file.h"
#include "base/json.h"
#include "tensor_file.h"
#include "timing.h"

namespace neso::cli {

void Trace::attach(neso_context_options &options) {
  options.on_step = told;
  options.on_step_user = this;
}

int Trace::told(void *user, const neso_step_event *event) {
  Trace *self = static_cast<Trace *>(user);
  if (!event->after) {
    // A loop tells of its turns as steps of the model's own plan, which have no end.
    if (event->subplan == 0 && !self->open_.empty()) return 0;
    self->open_.push_back(self->steps_.size());
    self->steps_.push_back({event->kernel ? event->kernel : event->what, 0, 0, {event->grid[0], event->grid[1], event->grid[2]}, event->kernel != nullptr});
    // Behind all of the above, which is no part of the step.
    self->steps_.back().beginMs = nowMs();
    return 0;
  }
  const double now = nowMs();
  if (self->open_.empty()) return 0;
  self->steps_[self->open_.back()].endMs = now;
  self->open_.pop_back();
  return 0;
}

Status Trace::write(const std::string &path, const neso_model *model) const {
  std::map<std::string, std::string> sources;
  for (int32_t i = 0; i < neso_model_kernel_count(model); ++i) {
    neso_kernel_info kernel;
    neso_model_kernel(model, i, &kernel);
    std::string &text = sources[kernel.name];
    for (int32_t line = 0; line < kernel.source_count; ++line)
      text += fmt::format("{}{}", line ? "; " : "", neso_model_kernel_source(model, i, line));
  }
  const char *name = neso_model_metadata(model, "model");
  const double zero = steps_.empty() ? 0 : steps_.front().beginMs;
  double end = zero;
  for (const Step &s : steps_) end = std::max(end, s.endMs);
  std::string out = fmt::format("{{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n"
                                "{{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": 1, \"args\": {{\"name\": {}}}}},\n"
                                "{{\"name\": \"run\", \"cat\": \"run\", \"ph\": \"X\", \"ts\": 0, \"dur\": {:.3f}, \"pid\": 1, \"tid\": 1}}",
                                jsonString(std::string("neso ") + (name ? name : "")), (end - zero) * 1e3);
  for (const Step &s : steps_) {
    out += fmt::format(",\n{{\"name\": {}, \"cat\": \"step\", \"ph\": \"X\", \"ts\": {:.3f}, \"dur\": {:.3f}, \"pid\": 1, \"tid\": 1", jsonString(s.name), (s.beginMs - zero) * 1e3,
                       (s.endMs - s.beginMs) * 1e3);
    if (s.launch) out += fmt::format(", \"args\": {{\"grid\": [{}, {}, {}], \"source\": {}}}", s.grid[0], s.grid[1], s.grid[2], jsonString(sources[s.name]));
    out += "}";
  }
  return writeFileAtomically(path, out + "\n]}\n");
}

} // namespace neso::cli
