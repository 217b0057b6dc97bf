// Walks the steps of a plan on what is bound; or, where the device records, launches the graph that was recorded when
// the same sizes and addresses came before.
#pragma once
#include <atomic>

#include "core/binding.h"
#include "core/extern.h"
#include "core/graphs.h"
#include "core/memory.h"
#include "core/recorded_slots.h"
#include "core/sight.h"
#include "core/streams.h"

namespace neso_rt {

/// Of a number that is kept for a condition.
inline constexpr int64_t kKeptBytes = 8;

class walker {
public:
  /// All borrowed, as long as it lives. Of the options: on_step, on_range, check_nan, time_steps, cuda_graphs, turn_limit.
  neso_status start(const plan &program, const op_list &ops, const object_list &objects, queue *q, memory *m, binding *b, const neso_context_options &options);
  /// Frees what it has of the device.
  void release();

  /// The steps of the model, as a graph or one by one.
  neso_status run();
  /// What step `step` of the model took in the last run. False: it was not timed.
  bool timed(int64_t step) const {
    return timed_ && step >= 0 && size_t(step) + 1 < step_marks_.size() && step_marks_[size_t(step)] &&
           step_marks_[size_t(step) + 1];
  }
  neso_status step_elapsed(int64_t step, double *out_ms) const;
  /// Inside on_step: the step that it is about; nullptr outside.
  const step *shown() const { return shown_; }

  /// The run under way, if there is one, ends before its next step. From any thread.
  void cancel() {
    cancelled_.store(true, std::memory_order_relaxed);
    if (queue_->stop) queue_->stop->asked.store(1);
  }
  /// All that was queued is done. NESO_CANCELLED: a loop of a recorded run ended because it was asked to.
  neso_status finished();

  int64_t steps_done = 0;
  int graphs_kept() const { return graphs_.kept(); }
  /// Branches of the graph that was recorded last; 0: none was.
  int32_t graph_streams() const { return graph_streams_; }

private:
  /// Each step is waited for.
  bool watched() const { return options_->on_step || options_->check_nan; }
  // walk.cpp
  neso_status walk(int32_t subplan);
  neso_status run_step(const step &s);
  neso_status do_step(const step &s);
  neso_status walk_step(const step &s);
  neso_status loop(const step &s);
  neso_status turns(const step &s);
  neso_status check_cancelled() const;
  neso_status launch(const step &s, int32_t number);
  neso_status copy(const fbs::Copy *row);
  neso_status load_scalar(const fbs::LoadScalar *row);
  neso_status notify(const step &s, int32_t subplan, int64_t index, bool after);
  neso_status wait_for_step(const step &s);
  bool launches_nothing(const step &s) const;
  neso_status walk_watched(const step &s, int32_t subplan, int64_t index);
  // product.cpp
  neso_status multiply(const step &s, bool *out_done);
  neso_status place_matrix(const fbs::Matrix *row, int64_t rows, int64_t columns, int64_t batch, fbs::DType type,
                           device_matrix *out) const;
  // record.cpp
  neso_status run_steps();
  neso_status record();
  neso_status begin_recording();
  neso_status walk_side_by_side(int32_t subplan);
  neso_status order_steps(int32_t subplan, stream_order *order) const;
  neso_status add_region(const step &s, int32_t first, stream_order *order) const;
  bool add_step(const step &s, stream_order *order) const;
  void add_uses(const step &s, const flatbuffers::Vector<uint8_t> *access, stream_order *order) const;
  void add_use(int32_t buffer, bool write, stream_order *order) const;
  // record_regions.cpp
  neso_status record_step(const step &s);
  neso_status record_load(const step &s);
  neso_status record_guard(const step &s);
  neso_status record_branch(const step &s);
  neso_status record_loop(const step &s);
  neso_status counts_turns(const step &s, bool *out) const;
  neso_status record_body(int body, int32_t subplan);
  neso_status test_of(int32_t slot, device_test *out) const;
  neso_status stays_in_place(const step &load, memory_use number, bool *out) const;

  const plan *program_ = nullptr;
  queue *queue_ = nullptr;
  binding *binding_ = nullptr;
  const neso_context_options *options_ = nullptr;
  array<event *> step_marks_; // with time_steps: when each step of the model began, and when the last one ended
  bool timed_ = false;        // a run has been timed
  graph_cache graphs_;
  graph_cache::entry *last_graph_ = nullptr; // of the run before, while nothing has moved
  array<int64_t> graph_key_;
  array<event *> signals_; // of recorded steps that others wait for
  int32_t graph_streams_ = 0;
  const step *shown_ = nullptr;
  nan_check nans_;
  std::atomic<bool> cancelled_{false};
  int64_t turn_ = 0; // of the innermost loop
  bool recording_ = false;
  int32_t recorded_ = 0; // steps so far
  int32_t choices_ = 0;  // branches and loops around the step that is recorded, which the device decides
  int32_t tested_ = -1;  // the sub-plan that is recorded as the test of such a loop
  recorded_slots known_;
  memory *memory_ = nullptr;
  block kept_; // numbers that conditions come from, one a slot, where their own memory is used again before
  extern_calls externs_;
};

} // namespace neso_rt
