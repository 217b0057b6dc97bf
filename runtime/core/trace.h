// Runs as a file that Perfetto and Chrome open: what neso_trace notes of each run and step.
#pragma once
#include "core/common.h"

namespace neso_rt {

/// neso_context_options::on_step of a context that is traced; user: its track.
int note_step(void *track, const neso_step_event *event);
/// A run begins, or has ended, also by a failure.
void note_run(void *track, bool begins);

} // namespace neso_rt
