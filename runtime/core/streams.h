// Which steps of a plan may run side by side: each gets a stream and the steps of other streams that it must wait for.
//
// Two steps are in order when one writes memory that the other uses; addresses decide, so that memory which the plan
// uses twice is safe. A step goes to the stream of the last one that it needs. Where that stream has gone on with
// something else, it goes to a free one, if it leaves room on the device beside it. Used when a run is recorded as a
// graph; nothing here is kept between runs.
#pragma once
#include "core/common.h"

namespace neso_rt {

/// Bytes [begin, end) that a step uses.
struct memory_use {
  const char *begin, *end;
  bool write;
};

class stream_order {
public:
  static constexpr int kMaxStreams = 8;
  /// steps: how many will be added; uses: of all of them; streams: at most kMaxStreams.
  neso_status start(size_t steps, size_t uses, int streams);
  /// What the step that comes next uses; more than was said in all puts it in order with every other step. small: it does not fill the device. alone: in order with every other step.
  void use(const memory_use &u) {
    if (uses_used_ < uses_.size())
      uses_[uses_used_++] = u;
    else
      full_ = true;
  }
  void add(bool small, bool alone);

  size_t size() const { return used_; }
  int streams_used() const { return streams_used_; }
  int stream(size_t step) const { return rows_[step].stream; }
  /// The step of stream `other` after which `step` may begin, if its own stream does not say so already; -1: none.
  int32_t wait(size_t step, int other) const { return rows_[step].waits[other]; }
  /// Must they be in order?
  bool conflict(size_t a, size_t b) const { return conflict(rows_[a], rows_[b]); }
  /// Does a later step wait for it?
  bool awaited(size_t step) const { return rows_[step].awaited; }

private:
  struct row {
    int32_t first_use, end_use;
    int32_t stream;
    bool alone, awaited;
    int32_t waits[kMaxStreams];
    int32_t seen[kMaxStreams]; // the last step of each stream that has ended when this one begins
  };
  bool conflict(const row &a, const row &b) const;

  array<row> rows_;
  array<memory_use> uses_;
  size_t used_ = 0, uses_used_ = 0;
  bool full_ = false;
  int streams_ = 1, streams_used_ = 1;
  int32_t tails_[kMaxStreams] = {-1, -1, -1, -1, -1, -1, -1, -1};
};

} // namespace neso_rt
