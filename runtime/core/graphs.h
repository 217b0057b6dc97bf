// The recorded runs (graphs) of one context: a run whose sizes and addresses came before is one graph launch.
//
// A key is the words that a run's steps depend on: what the inputs defined, and the address of every buffer. A key that
// comes for the first time is only remembered (its hash, among the last 64): callers that pass other memory each time
// never pay for recording. When it comes again its run is recorded. The least recently used graph makes room for a new
// one.
#pragma once
#include "device/device.h"

namespace neso_rt {

class graph_cache {
public:
  struct entry {
    uint64_t hash;
    int64_t *key; // owned
    graph *exec;
    int64_t steps; // that the recorded run walked
    uint64_t last_use;
  };

  graph_cache() = default;
  graph_cache(const graph_cache &) = delete;
  graph_cache &operator=(const graph_cache &) = delete;
  ~graph_cache();
  /// limit: graphs kept, 0: none. words: of a key.
  neso_status start(int limit, size_t words);
  bool enabled() const { return entries_.size() != 0; }
  /// The graph of that key, now the most recently used; nullptr: none.
  entry *find(const int64_t *key);
  /// Has the key that find was last asked for come before? Remembers it.
  bool came_before();
  /// An entry for the key that find was last asked for, without a graph yet; the one that it held before, if any, is
  /// the caller's to destroy.
  neso_status place(const int64_t *key, entry **out, graph **out_old);
  /// Gives `e` its graph.
  void keep(entry *e, graph *exec, int64_t steps) {
    e->exec = exec;
    e->steps = steps;
    ++kept_;
  }
  void touch(entry *e) { e->last_use = ++clock_; }
  void turn_off() { off_ = true; }
  bool off() const { return off_; }
  int kept() const { return kept_; }
  array<entry> &entries() { return entries_; }

private:
  static constexpr int kRemembered = 64;
  array<entry> entries_;
  size_t words_ = 0;
  int kept_ = 0;
  bool off_ = false;
  uint64_t asked_ = 0, clock_ = 0;
  uint64_t recent_[kRemembered] = {};
  int next_recent_ = 0;
};

} // namespace neso_rt
