// What the runtime itself costs: time of one step (a launch of a kernel that does nothing), of an empty run, and of
// loading. Prints one line a figure; with --check fails when a step takes 200 ns or loading a small package 5 ms.
// With --threads [MOST]: what a kernel pays for being shared among 2, 4, … threads.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "device/cpu/pool.h"
#include "test/harness.h"

using namespace neso_test;

namespace {
double now() {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A plan of n launches with 5 arguments each, over 1 program.
std::string idle(int n) {
  PackageBuilder b;
  int32_t bytes = b.constant(16), one = b.constant(1);
  b.input("x", {b.fixed(4)});
  int32_t x = b.buffer(fbs::Location::Input, 0, bytes), y = b.buffer(fbs::Location::Output, 0, bytes);
  b.output("y", y, {b.constant(4)});
  int32_t k = b.kernel("test_nothing", 5);
  for (int i = 0; i < n; ++i)
    b.launch(k,
             {PackageBuilder::arg(x), PackageBuilder::arg(y), PackageBuilder::arg(x), PackageBuilder::slotArg(bytes),
              PackageBuilder::slotArg(one)},
             one);
  return b.package();
}

// Median time of a run, in nanoseconds, when `buffers` pairs of inputs and outputs take turns.
double runTime(int launches) {
  Loaded m(idle(launches));
  Tensor a({4}, {1, 2, 3, 4}), b({4}, {1, 2, 3, 4});
  std::vector<double> times;
  neso_tensor out{};
  for (int i = 0; i < 2001; ++i) {
    double start = now();
    neso_run(m.context, i % 2 ? &a.t : &b.t, 1, &out, 1);
    times.push_back(now() - start);
  }
  std::nth_element(times.begin(), times.begin() + 1000, times.end());
  return times[1000];
}

/// Parts of 20 microseconds each, as many as there are threads.
constexpr double kPart = 20e3;
struct Job {
  std::atomic<int> next{0}; // that nobody has
  int parts = 0;
};
void work(void *data, int) {
  Job &job = *static_cast<Job *>(data);
  while (job.next.fetch_add(1) < job.parts)
    for (double start = now(); now() - start < kPart;) {
    }
}

/// Of jobs that follow each other closely, as the kernels of a model do: their time less that of a part.
bool forkAndJoin(int most) {
  for (int threads = 1; threads <= most; threads *= 2) {
    neso_rt::pool pool;
    if (pool.start(threads) != NESO_OK) return false;
    std::vector<double> times;
    for (int k = 0; k < 2200; ++k) {
      Job job;
      job.parts = threads;
      double start = now();
      pool.run(threads, work, &job);
      if (k >= 200) times.push_back(now() - start - kPart);
    }
    std::sort(times.begin(), times.end());
    std::printf("%d threads %.2f us, nine of ten under %.2f\n", threads, times[times.size() / 2] * 1e-3, times[times.size() * 9 / 10] * 1e-3);
  }
  return true;
}
} // namespace

int main(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "--threads") == 0) return forkAndJoin(argc > 2 ? atoi(argv[2]) : neso_rt::usable_cores()) ? 0 : 1;
  double empty = runTime(0), many = runTime(1000), step = (many - empty) / 1000;
  std::string bytes = idle(50);
  std::vector<double> loads;
  for (int i = 0; i < 51; ++i) {
    neso_model_options o = modelOptions();
    neso_model *model = nullptr;
    double start = now();
    if (neso_model_load_memory(bytes.data(), bytes.size(), &o, &model) != NESO_OK) return 1;
    loads.push_back(now() - start);
    neso_model_free(model);
  }
  std::nth_element(loads.begin(), loads.begin() + 25, loads.end());
  std::printf("step %.1f ns\nempty run %.1f ns\nload %.4f ms\n", step, empty, loads[25] * 1e-6);
  if (argc > 1 && strcmp(argv[1], "--check") == 0) return step < 200 && loads[25] < 5e6 ? 0 : 1;
  return 0;
}
