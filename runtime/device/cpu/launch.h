// Runs one kernel over a grid of programs on the threads of a context, and collects what kernels report.
#pragma once
#include "device/cpu/pool.h"

namespace neso_rt {

/// What the programs of one launch have been seen to cost. Short launches are cheaper on one thread than shared.
struct launch_cost {
  float program_ns = 0; // least average seen; 0: not known yet
  int32_t samples = 0;
};

/// How far the programs that belong to one worker have been taken; a cache line for each.
struct work_share {
  std::atomic<uint64_t> next;
  char apart[64 - sizeof(std::atomic<uint64_t>)];
};

/// Threads, scratch memory and reports of one context. One thread at a time.
class cpu_executor {
public:
  cpu_executor() = default;
  cpu_executor(const cpu_executor &) = delete;
  cpu_executor &operator=(const cpu_executor &) = delete;
  ~cpu_executor();
  /// scratch_bytes: of the most demanding kernel. parallel_for may be null: own threads.
  neso_status start(int threads, int64_t scratch_bytes, neso_parallel_for parallel_for, void *parallel_for_user,
                    void (*on_print)(void *, const char *), void *on_print_user);

  /// cost: what is known of this launch; the first runs fill it in. serial: on the calling thread, in order. A failed
  /// assertion or index of a program becomes the status; the other programs still run.
  neso_status launch(neso_cpu_kernel_fn function, const char *name, const neso_arg *args, const uint32_t grid[3],
                     launch_cost *cost, bool serial);
  int threads() const { return threads_; }
  size_t scratch_total() const { return scratch_stride_ * size_t(threads_); }

private:
  static void report(void *self, enum neso_kernel_event event, uint64_t program, const char *text, int line,
                     const void *values, int64_t n, int is_float);
  void print(uint64_t program, const char *text, const void *values, int64_t n, int is_float);
  neso_status failure();
  /// Whether this launch of a kernel goes backwards: each second one.
  bool turn(neso_cpu_kernel_fn function);

  pool pool_;
  int threads_ = 1;
  neso_parallel_for parallel_for_ = nullptr;
  void *parallel_for_user_ = nullptr;
  void (*on_print_)(void *, const char *) = nullptr;
  void *on_print_user_ = nullptr;
  char *scratch_ = nullptr;
  size_t scratch_stride_ = 0;
  array<neso_kernel_env> envs_; // one a thread
  array<work_share> shares_;    // one a thread
  uint64_t backwards_ = 0;      // a bit for a hash of the kernel

  // Of the launch under way.
  const char *kernel_ = nullptr;
  uint32_t grid_[3] = {};
  std::atomic<int> event_{0}; // neso_kernel_event of the first failure; 0: none; -1: being written
  uint64_t event_program_ = 0;
  char event_text_[256];
  int event_line_ = 0;
  int64_t event_values_[2] = {};
};

} // namespace neso_rt
