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
  /// body(data, i) for i in [0, n), n <= threads(); returns when all are done.
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
  // The job: written by run() before it advances the epoch.
  void (*body_)(void *, int) = nullptr;
  void *data_ = nullptr;
  int wanted_ = 0;
  alignas(64) std::atomic<uint32_t> epoch_{0}; // advances once a job
  std::atomic<bool> stop_{false};
  std::atomic<int> sleepers_{0};
  alignas(64) std::atomic<int> pending_{0}; // workers that have not finished the current job
};

/// Cores that this process may run on.
int usable_cores();

} // namespace neso_rt
