#include "core/streams.h"

namespace neso_rt {

neso_status stream_order::start(size_t steps, size_t uses, int streams) {
  streams_ = streams > kMaxStreams ? kMaxStreams : streams < 1 ? 1 : streams;
  NESO_TRY(rows_.resize(steps));
  return uses_.resize(uses);
}

bool stream_order::conflict(const row &a, const row &b) const {
  if (a.alone || b.alone) return true;
  for (int32_t i = a.first_use; i < a.end_use; ++i)
    for (int32_t j = b.first_use; j < b.end_use; ++j) {
      const memory_use &x = uses_[size_t(i)], &y = uses_[size_t(j)];
      if ((x.write || y.write) && x.begin < y.end && y.begin < x.end) return true;
    }
  return false;
}

void stream_order::add(bool small, bool alone) {
  alone |= full_;
  row &r = rows_[used_];
  r.first_use = used_ ? rows_[used_ - 1].end_use : 0;
  r.end_use = int32_t(uses_used_);
  r.alone = alone;
  if (r.first_use == r.end_use && !alone) {
    // It records nothing, or nothing that anybody waits for.
    for (int s = 0; s < kMaxStreams; ++s) r.waits[s] = r.seen[s] = -1;
    r.stream = 0;
    ++used_;
    return;
  }
  // The last step of each stream that this one needs.
  int32_t needs[kMaxStreams];
  for (int s = 0; s < kMaxStreams; ++s) needs[s] = r.waits[s] = r.seen[s] = -1;
  for (size_t j = used_; j-- > 0;) {
    const row &before = rows_[j];
    if (needs[before.stream] < 0 && conflict(before, r)) needs[before.stream] = int32_t(j);
  }
  int last = 0, free_stream = -1;
  bool tail = false;
  for (int s = 0; s < streams_; ++s) {
    if (needs[s] > needs[last]) last = s;
    if (free_stream < 0 && tails_[s] < 0) free_stream = s;
  }
  // Behind what it needs, if nothing else came there since.
  for (int s = 0; s < streams_; ++s)
    if (needs[s] >= 0 && needs[s] == tails_[s] && (!tail || needs[s] > needs[last])) last = s, tail = true;
  if (!tail && small && !alone) {
    // A stream whose work this step waits for anyway, or that has none.
    if (free_stream >= 0)
      last = free_stream;
    else
      for (int s = 0; s < streams_; ++s)
        if (tails_[s] < tails_[last]) last = s;
  }
  r.stream = last;
  if (last >= streams_used_) streams_used_ = last + 1;
  if (tails_[last] >= 0) memcpy(r.seen, rows_[size_t(tails_[last])].seen, sizeof r.seen);
  r.seen[last] = tails_[last];
  for (int s = 0; s < streams_; ++s) {
    if (s == last || needs[s] <= r.seen[s]) continue;
    row &before = rows_[size_t(needs[s])];
    r.waits[s] = needs[s];
    before.awaited = true;
    for (int t = 0; t < kMaxStreams; ++t)
      if (before.seen[t] > r.seen[t]) r.seen[t] = before.seen[t];
    if (needs[s] > r.seen[s]) r.seen[s] = needs[s];
  }
  tails_[last] = int32_t(used_++);
}

} // namespace neso_rt
