#include "device/cpu/pool.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <new>

namespace neso_rt {
namespace {
// Counts the forks between the first process and this one. Written by the child's only thread.
unsigned forks = 0;

// Long enough to bridge the gap between two launches of a run, short enough not to burn a core between runs.
constexpr double kSpinMs = 0.05;
constexpr int kPausesPerLook = 64;

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}
void futex_wait(std::atomic<uint32_t> *word, uint32_t seen) {
  syscall(SYS_futex, reinterpret_cast<uint32_t *>(word), FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}
void futex_wake_all(std::atomic<uint32_t> *word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t *>(word), FUTEX_WAKE_PRIVATE, 0x7fffffff, nullptr, nullptr, 0);
}
} // namespace

int usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  int n = CPU_COUNT(&set);
  return n > 0 ? n : 1;
}

neso_status pool::start(int threads) {
  if (threads <= 1) return NESO_OK;
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, [] { pthread_atfork(nullptr, nullptr, [] { ++forks; }); });
  NESO_TRY(workers_.resize(size_t(threads - 1)));
  start_workers();
  return NESO_OK;
}

void pool::start_workers() {
  born_ = forks;
  count_ = 0;
  epoch_ = 0;
  stop_ = false;
  sleepers_ = 0;
  pending_ = 0;
  for (size_t i = 0; i < workers_.size(); ++i) {
    workers_[i].owner = this;
    workers_[i].index = int(i) + 1;
    if (pthread_create(&workers_[i].thread, nullptr, enter, &workers_[i]) != 0) break;
    ++count_;
  }
}

pool::~pool() {
  // The parent process joins its threads.
  if (count_ == 0 || born_ != forks) return;
  stop_.store(true);
  epoch_.fetch_add(1);
  futex_wake_all(&epoch_);
  for (int i = 0; i < count_; ++i) pthread_join(workers_[i].thread, nullptr);
}

void *pool::enter(void *w) {
  worker *self = static_cast<worker *>(w);
  self->owner->serve(self->index);
  return nullptr;
}

void pool::serve(int index) {
  uint32_t seen = 0;
  for (;;) {
    double deadline = now_ms() + kSpinMs;
    while (epoch_.load(std::memory_order_acquire) == seen) {
      for (int i = 0; i < kPausesPerLook && epoch_.load(std::memory_order_relaxed) == seen; ++i) pause_cpu();
      if (now_ms() < deadline) continue;
      // sleepers_ rises before the epoch is looked at again: run() advances the epoch first and then asks for sleepers,
      // so that one of the two always sees the other.
      sleepers_.fetch_add(1);
      while (epoch_.load() == seen) futex_wait(&epoch_, seen);
      sleepers_.fetch_sub(1);
    }
    seen = epoch_.load(std::memory_order_acquire);
    if (stop_.load()) return;
    if (index < wanted_) body_(data_, index);
    pending_.fetch_sub(1, std::memory_order_release);
  }
}

void pool::run(int n, void (*body)(void *data, int i), void *data) {
  if (count_ > 0 && born_ != forks) start_workers();
  // Fewer threads than n are there only in a child process that got fewer than its parent.
  if (n <= 1 || count_ == 0 || n > threads()) {
    for (int i = 0; i < n; ++i) body(data, i);
    return;
  }
  body_ = body;
  data_ = data;
  wanted_ = n;
  pending_.store(count_, std::memory_order_relaxed);
  epoch_.fetch_add(1);
  if (sleepers_.load() > 0) futex_wake_all(&epoch_);
  body(data, 0);
  // The others run the same kind of work as this thread: they end within about the same time.
  for (int spins = 0; pending_.load(std::memory_order_acquire) != 0; ++spins) {
    pause_cpu();
    if (spins > 4096) sched_yield();
  }
}

} // namespace neso_rt
