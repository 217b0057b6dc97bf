#include "device/cpu/launch.h"

#include <stdio.h>

#include "device/cpu/device.h"

namespace neso_rt {
namespace {
// Work below this many nanoseconds is not worth waking another thread for.
constexpr double kWorthSharingNs = 5000;
// What one more thread costs all others, in nanoseconds: of work W as many take part as make W / n + n times this least.
constexpr double kThreadNs = 100;
// Pieces per thread: enough to even out programs of unequal cost, few enough that the counters are not contended.
constexpr uint64_t kPiecesPerThread = 4;
// Runs that measure a launch before its cost is taken as known.
constexpr int kSamples = 3;

struct job {
  neso_cpu_kernel_fn function;
  const neso_arg *args;
  const uint32_t *grid;
  uint64_t total, piece;
  bool backwards; // each share's last piece first
  int workers;
  work_share *shares; // one a worker
  const neso_kernel_env *envs;
  bool measure; // the calling thread takes the time of its own pieces
  double measured_ns = 0;
  uint64_t measured = 0; // programs

  /// Where the programs of worker number i begin.
  uint64_t first(int i) const {
    uint64_t n = uint64_t(workers), w = uint64_t(i);
    return total / n * w + (w < total % n ? w : total % n);
  }
};

// Each worker takes the pieces of its own share, in order, then what is left of the others'. A kernel's programs so mostly run where those ran that
// wrote what they read: data stay in a core's own cache from kernel to kernel. A kernel's launches go forwards and backwards in turns: what a
// cache holds at the end of one, as weights that each step of a recurrence reads, is what the next begins with, where in one direction
// anything a little larger than the cache would always have been pushed out before it is read again.
void work(void *data, int worker) {
  job *j = static_cast<job *>(data);
  for (int i = 0; i < j->workers; ++i) {
    const int owner = (worker + i) % j->workers;
    const uint64_t limit = j->first(owner + 1);
    // A share that is seen to be taken is left alone: a load does not take the cache line from the others.
    while (j->shares[owner].next.load(std::memory_order_relaxed) < limit) {
      uint64_t begin = j->shares[owner].next.fetch_add(j->piece, std::memory_order_relaxed);
      if (begin >= limit) break;
      uint64_t end = j->piece < limit - begin ? begin + j->piece : limit;
      if (j->backwards) {
        const uint64_t mirrored = j->first(owner) + limit - end;
        end = j->first(owner) + limit - begin;
        begin = mirrored;
      }
      if (!j->measure || worker != 0) {
        j->function(j->args, j->grid, begin, end, &j->envs[worker]);
        continue;
      }
      double start = now_ms();
      j->function(j->args, j->grid, begin, end, &j->envs[worker]);
      j->measured_ns += (now_ms() - start) * 1e6;
      j->measured += end - begin;
    }
  }
}

/// Threads for work of so many nanoseconds, at least 2 and at most `most`.
uint64_t worth(double work_ns, uint64_t most) {
  uint64_t n = 2;
  while (n < most && double(n) * double(n) * kThreadNs < work_ns) ++n;
  return n;
}

void learn(launch_cost *cost, double ns, uint64_t programs) {
  if (programs == 0) return;
  float seen = float(ns / double(programs));
  if (cost->samples == 0 || seen < cost->program_ns) cost->program_ns = seen;
  ++cost->samples;
}
} // namespace

cpu_executor::~cpu_executor() { free(scratch_); }

bool cpu_executor::turn(neso_cpu_kernel_fn function) {
  // Two kernels that share a bit now and then go one way twice.
  const uint64_t bit = uint64_t(1) << ((reinterpret_cast<uintptr_t>(function) * 0x9E3779B97F4A7C15u) >> 58);
  backwards_ ^= bit;
  return (backwards_ & bit) == 0;
}

neso_status cpu_executor::start(int threads, int64_t scratch_bytes, neso_parallel_for parallel_for,
                                void *parallel_for_user, void (*on_print)(void *, const char *), void *on_print_user) {
  threads_ = threads > 0 ? threads : usable_cores();
  parallel_for_ = parallel_for;
  parallel_for_user_ = parallel_for_user;
  on_print_ = on_print;
  on_print_user_ = on_print_user;
  if (!parallel_for_) {
    NESO_TRY(pool_.start(threads_));
    threads_ = pool_.threads();
  }
  NESO_TRY(envs_.resize(size_t(threads_)));
  NESO_TRY(shares_.resize(size_t(threads_)));
  // A cache line more than asked for keeps the threads' scratch apart.
  scratch_stride_ = scratch_bytes > 0 ? (size_t(scratch_bytes) + kAlign - 1) / kAlign * kAlign + kAlign : 0;
  if (scratch_stride_) {
    scratch_ = static_cast<char *>(aligned_alloc(kAlign, scratch_stride_ * size_t(threads_)));
    if (!scratch_)
      return fail(NESO_OUT_OF_MEMORY, "out of memory: %zu bytes of scratch memory for each of %d threads",
                  scratch_stride_, threads_);
  }
  for (int i = 0; i < threads_; ++i)
    envs_[i] = {scratch_ ? scratch_ + size_t(i) * scratch_stride_ : nullptr, this, report};
  return NESO_OK;
}

neso_status cpu_executor::launch(neso_cpu_kernel_fn function, const char *name, const neso_arg *args,
                                 const uint32_t grid[3], launch_cost *cost, bool serial) {
  uint64_t total = uint64_t(grid[0]) * grid[1] * grid[2];
  if (total == 0) return NESO_OK;
  kernel_ = name;
  memcpy(grid_, grid, sizeof grid_);
  uint64_t workers = uint64_t(threads_) < total ? uint64_t(threads_) : total;
  bool known = cost->samples >= kSamples;
  if (serial || workers == 1 || (known && double(total) * cost->program_ns < kWorthSharingNs)) {
    function(args, grid, 0, total, &envs_[0]);
  } else {
    if (known) workers = worth(double(total) * cost->program_ns, workers);
    uint64_t piece = total / (workers * kPiecesPerThread);
    job j{function, args, grid, total, piece ? piece : 1, turn(function), int(workers), shares_.data(), envs_.data(), !known};
    for (int i = 0; i < int(workers); ++i) shares_[size_t(i)].next.store(j.first(i), std::memory_order_relaxed);
    if (parallel_for_)
      parallel_for_(parallel_for_user_, int(workers), work, &j);
    else
      pool_.run(int(workers), work, &j);
    if (!known) learn(cost, j.measured_ns, j.measured);
  }
  return event_.load(std::memory_order_acquire) == 0 ? NESO_OK : failure();
}

void cpu_executor::report(void *data, enum neso_kernel_event event, uint64_t program, const char *text, int line,
                          const void *values, int64_t n, int is_float) {
  cpu_executor *self = static_cast<cpu_executor *>(data);
  if (event == NESO_KERNEL_PRINT) return self->print(program, text, values, n, is_float);
  int none = 0;
  if (!self->event_.compare_exchange_strong(none, -1)) return;
  self->event_program_ = program;
  self->event_line_ = line;
  snprintf(self->event_text_, sizeof self->event_text_, "%s", text ? text : "");
  for (int i = 0; i < 2; ++i) self->event_values_[i] = i < n && !is_float ? static_cast<const int64_t *>(values)[i] : 0;
  self->event_.store(event, std::memory_order_release);
}

// Triton's form: "pid (x, y, z) idx (i) prefix value".
void cpu_executor::print(uint64_t program, const char *text, const void *values, int64_t n, int is_float) {
  unsigned long long x = program % grid_[0], y = program / grid_[0] % grid_[1],
                     z = program / (uint64_t(grid_[0]) * grid_[1]);
  for (int64_t i = 0; i < (n ? n : 1); ++i) {
    char line[512];
    int at = snprintf(line, sizeof line, "pid (%llu, %llu, %llu) idx (%lld) %.300s", x, y, z, (long long)i,
                      text ? text : "");
    if (i < n && is_float)
      snprintf(line + at, sizeof line - size_t(at), "%f", static_cast<const double *>(values)[i]);
    else if (i < n)
      snprintf(line + at, sizeof line - size_t(at), "%lld", (long long)static_cast<const int64_t *>(values)[i]);
    if (on_print_)
      on_print_(on_print_user_, line);
    else
      fprintf(stderr, "%s\n", line);
  }
}

neso_status cpu_executor::failure() {
  int event = event_.exchange(0);
  unsigned long long program = event_program_;
  if (event == NESO_KERNEL_INDEX)
    return fail(NESO_INDEX_OUT_OF_RANGE,
                "index %lld is out of range for a dimension of size %lld in kernel '%s', program %llu%s%s",
                (long long)event_values_[0], (long long)event_values_[1], kernel_, program, event_text_[0] ? ": " : "",
                event_text_);
  return fail(NESO_ASSERTION_FAILED, "assertion failed in kernel '%s', program %llu, line %d: %s", kernel_, program,
              event_line_, event_text_);
}

neso_status cpu_launch(queue *q, int32_t kernel, int32_t step, const void *args, const uint32_t grid[3]) {
  cpu_queue *self = static_cast<cpu_queue *>(q);
  const plan_kernel &k = self->on->program->kernels[size_t(kernel)];
  launch_cost unknown, *cost = step < 0 ? &unknown : &self->costs[size_t(step)];
  return self->executor.launch(self->device().functions[size_t(kernel)], k.name, static_cast<const neso_arg *>(args),
                               grid, cost, k.serial);
}

void cpu_sizes_changed(queue *q) {
  array<launch_cost> &costs = static_cast<cpu_queue *>(q)->costs;
  for (launch_cost &cost : costs) cost = {};
}

} // namespace neso_rt
