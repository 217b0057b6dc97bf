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
void futex_wait(std::atomic<uint32_t> *word, uint32_t seen, uint32_t groups) {
  syscall(SYS_futex, reinterpret_cast<uint32_t *>(word), FUTEX_WAIT_BITSET_PRIVATE, seen, nullptr, nullptr, groups);
}
void futex_wake(std::atomic<uint32_t> *word, uint32_t groups) {
  syscall(SYS_futex, reinterpret_cast<uint32_t *>(word), FUTEX_WAKE_BITSET_PRIVATE, 0x7fffffff, nullptr, nullptr, groups);
}

// Of state_: workers wanted from bit 16, closed in bit 15, workers at it below.
constexpr int kNumberShift = 32, kWantedShift = 16, kMostThreads = 1 << 14;
constexpr uint64_t kClosed = 1 << 15, kAtIt = kClosed - 1;
int wanted(uint64_t state) { return int(state >> kWantedShift & 0xffff); }

int group_of(int worker) {
  int g = 0;
  while (worker >> (g + 1)) ++g;
  return g;
}
} // namespace

neso_status pool::start(int threads) {
  if (threads <= 1) return NESO_OK;
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, [] { pthread_atfork(nullptr, nullptr, [] { ++forks; }); });
  if (threads > kMostThreads) threads = kMostThreads;
  NESO_TRY(workers_.resize(size_t(threads - 1)));
  start_workers();
  return NESO_OK;
}

void pool::start_workers() {
  born_ = forks;
  count_ = 0;
  state_ = kClosed;
  number_ = 0;
  stop_ = false;
  for (std::atomic<int> &n : sleepers_) n = 0;
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
  number_.fetch_add(1);
  futex_wake(&number_, ~0u);
  for (int i = 0; i < count_; ++i) pthread_join(workers_[i].thread, nullptr);
}

void *pool::enter(void *w) {
  worker *self = static_cast<worker *>(w);
  self->owner->serve(self->index);
  return nullptr;
}

void pool::serve(int index) {
  const int group = group_of(index);
  uint32_t seen = 0;
  for (;;) {
    double deadline = now_ms() + kSpinMs;
    while (number_.load(std::memory_order_acquire) == seen) {
      for (int i = 0; i < kPausesPerLook && number_.load(std::memory_order_relaxed) == seen; ++i) pause_cpu();
      if (now_ms() < deadline) continue;
      // sleepers_ rises before the number is looked at again: run() advances the number first and then asks for sleepers,
      // so that one of the two always sees the other.
      sleepers_[group].fetch_add(1);
      while (number_.load() == seen) futex_wait(&number_, seen, 1u << group);
      sleepers_[group].fetch_sub(1);
    }
    seen = number_.load(std::memory_order_acquire);
    if (stop_.load()) return;
    // Who is at a job is waited for; a job that has closed, or given way to another one, is over.
    uint64_t state = state_.load(std::memory_order_acquire);
    while (state >> kNumberShift == seen && !(state & kClosed) && index < wanted(state))
      if (state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel)) {
        body_(data_, index);
        state_.fetch_sub(1, std::memory_order_release);
        break;
      }
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
  const uint32_t number = number_.load(std::memory_order_relaxed) + 1;
  state_.store(uint64_t(number) << kNumberShift | uint64_t(n) << kWantedShift, std::memory_order_release);
  number_.store(number);
  uint32_t asleep = 0;
  for (int g = 0; g < kGroups && 1 << g < n; ++g)
    if (sleepers_[g].load() > 0) asleep |= 1u << g;
  if (asleep) futex_wake(&number_, asleep);
  body(data, 0);
  state_.fetch_or(kClosed, std::memory_order_acq_rel);
  // What is left is the last piece of each that began.
  for (int spins = 0; (state_.load(std::memory_order_acquire) & kAtIt) != 0; ++spins) {
    pause_cpu();
    if (spins > 4096) sched_yield();
  }
}

} // namespace neso_rt
