// Threads that stay between launches. A worker that has nothing to do spins for a short while, since the next launch
// usually follows within microseconds, and then sleeps. The calling thread is worker 0.
//
// One thread at a time may call run(). A pool of one thread has no threads of its own and run() is a plain call.
//
// A child process (fork) inherits the pool's memory and none of its threads: the pool starts new ones there.
#pragma once
#include <pthread.h>

#include <atomic>

#include "core/common.h"

namespace neso_rt {

class pool {
public:
  /// Starts threads - 1 workers; fewer when the system refuses some (see threads()).
  neso_status start(int threads);
  ~pool();
  int threads() const { return count_ + 1; }
  /// body(data, 0) here and body(data, i) of i < n, n <= threads(), on other threads, as far as these come before body(data, 0) ends: it has to leave nothing
  /// undone then. So a thread that the system does not run holds nobody up. Returns when all that began have ended.
  void run(int n, void (*body)(void *data, int i), void *data);

private:
  struct worker {
    pool *owner;
    pthread_t thread;
    int index;
  };
  static void *enter(void *w);
  void serve(int index);
  void start_workers();

  array<worker> workers_;
  int count_ = 0;
  unsigned born_ = 0; // which process of a line of forks the threads belong to
  // The job: written by run() before it opens it.
  void (*body_)(void *, int) = nullptr;
  void *data_ = nullptr;
  // Number of the job in the upper half, then how many workers it wants, whether it is closed, and how many are at it (pool.cpp).
  alignas(64) std::atomic<uint64_t> state_{0};
  alignas(64) std::atomic<uint32_t> number_{0}; // of the newest job: what idle workers look at
  std::atomic<bool> stop_{false};
  static constexpr int kGroups = 15;
  std::atomic<int> sleepers_[kGroups] = {}; // of the workers from 2^g up to the next power
};

} // namespace neso_rt
