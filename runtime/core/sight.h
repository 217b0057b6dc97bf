// Sight into a run: which memory a step reads and writes, and a search for the first step that makes a NaN.
#pragma once
#include "core/binding.h"

namespace neso_rt {

/// One use of a buffer by a step.
struct step_use {
  int32_t buffer; // of the plan
  bool read, written;
};

/// Use `index` of a step, in the order of its arguments; false: it has no more.
bool use_of_step(const plan &program, const step &s, int32_t index, step_use *out);
/// "model.py:12 in relu (layers.0)".
void describe_source(const fbs::SourceLine *line, char *out, size_t room);
/// What the plan calls a buffer.
const char *buffer_name(const plan &program, int32_t buffer);

class nan_check {
public:
  /// All borrowed, as long as it lives.
  neso_status start(const plan &program, queue *q, binding *b);
  /// Forgets what earlier runs wrote.
  neso_status begin_run();
  /// Clears what the step is about to write for the first time.
  neso_status before(const step &s);
  /// NESO_NAN_FOUND.
  neso_status after(const step &s);

private:
  // What is known of the content of each buffer in this run.
  enum class state : uint8_t {
    stale,   // remains of what lay there before
    clean,   // the run's own, without NaN
    skipped, // held NaN when the run first wrote it
  };
  neso_status claim(const step &s, int32_t buffer);
  bool overlap(int32_t a, int32_t b) const;
  int64_t bytes_of(int32_t buffer) const { return binding_->slots[program_->buffers[buffer].bytes()]; }
  /// Scalar number `*out` of the buffer's memory is a NaN; -1: none.
  neso_status find(int32_t buffer, int64_t *out);
  neso_status report(const step &s, int32_t buffer, int64_t where);

  const plan *program_ = nullptr;
  queue *queue_ = nullptr;
  binding *binding_ = nullptr;
  array<state> states_; // one a buffer
  array<char> chunk_;   // memory of the host, for a part of a buffer
};

} // namespace neso_rt
