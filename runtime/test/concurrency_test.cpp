// Many contexts of one model at once, and many threads in one context. Run under the thread sanitizer by the tsan
// preset.
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "test/harness.h"

#ifndef __has_feature
#define __has_feature(x) 0
#endif

using namespace neso_test;
using B = PackageBuilder;

namespace {
struct Job {
  const neso_model *model;
  int threads;
  int failures = 0;
};
void *runMany(void *data) {
  Job *job = static_cast<Job *>(data);
  neso_context *context = nullptr;
  neso_context_options o{};
  o.struct_size = sizeof o;
  o.threads = job->threads;
  if (neso_context_create(job->model, &o, &context) != NESO_OK) return job->failures = 1, nullptr;
  neso_tensor out{};
  for (int i = 0; i < 50; ++i) {
    int64_t n = 2 + i;
    Tensor x({n}, std::vector<float>(size_t(n), float(i)));
    if (neso_run(context, &x.t, 1, &out, 1) != NESO_OK ||
        floats(out, size_t(n)) != std::vector<float>(size_t(n), float(2 * i + 2)))
      ++job->failures;
  }
  neso_context_free(context);
  return nullptr;
}
} // namespace

TEST(Concurrency, ContextsOfOneModelRunAtOnce) {
  Loaded m(addThenDouble().package());
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  Job jobs[4];
  pthread_t threads[4];
  for (int i = 0; i < 4; ++i) {
    jobs[i] = {m.model, 1 + i % 3};
    pthread_create(&threads[i], nullptr, runMany, &jobs[i]);
  }
  for (int i = 0; i < 4; ++i) {
    pthread_join(threads[i], nullptr);
    EXPECT_EQ(jobs[i].failures, 0);
  }
}

TEST(Concurrency, EveryProgramRunsOnceOnEachThreadCount) {
  B b;
  b.kernelsOnly = true;
  b.kernel("test_double", 1);
  std::string package = b.package();
  for (int threads : {1, 2, 3, 5}) {
    Loaded m(package, threads);
    ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
    for (uint32_t n : {1u, 2u, 3u, 17u, 1000u}) {
      std::vector<float> x(n, 1);
      union neso_arg arg;
      arg.ptr = x.data();
      uint32_t grid[3] = {n, 1, 1};
      for (int i = 0; i < 20; ++i) ASSERT_EQ(neso_kernel_launch(m.context, "test_double", grid, &arg, 1), NESO_OK);
      EXPECT_EQ(x, std::vector<float>(n, 1048576));
    }
  }
}

TEST(Concurrency, SleepingWorkersWakeUp) {
  B b;
  b.kernelsOnly = true;
  b.kernel("test_double", 1);
  Loaded m(b.package(), 3);
  std::vector<float> x(64, 1);
  union neso_arg arg;
  arg.ptr = x.data();
  uint32_t grid[3] = {64, 1, 1};
  for (int i = 0; i < 5; ++i) {
    timespec pause{0, 2000000};
    nanosleep(&pause, nullptr);
    ASSERT_EQ(neso_kernel_launch(m.context, "test_double", grid, &arg, 1), NESO_OK);
  }
  EXPECT_EQ(x, std::vector<float>(64, 32));
}

// The thread sanitizer starts no threads after a fork.
#if !defined(__SANITIZE_THREAD__) && !__has_feature(thread_sanitizer)
TEST(Concurrency, AChildProcessHasWorkersOfItsOwn) {
  Loaded m(addThenDouble().package(), 3);
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  auto right = [&] {
    neso_tensor out{};
    Tensor x({50}, std::vector<float>(50, 3));
    return neso_run(m.context, &x.t, 1, &out, 1) == NESO_OK && floats(out, 50) == std::vector<float>(50, 8);
  };
  ASSERT_TRUE(right());
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    bool all = true;
    for (int i = 0; i < 20; ++i) all = right() && all;
    _exit(all ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(right());
}
#endif

TEST(Concurrency, CallersParallelForIsUsed) {
  static std::atomic<int> calls{0};
  neso_context_options o{};
  o.parallel_for = [](void *, int n, void (*body)(void *, int), void *data) {
    ++calls;
    for (int i = n - 1; i >= 0; --i) body(data, i);
  };
  Loaded m(addThenDouble().package(), 4, &o);
  Tensor x({90}, std::vector<float>(90, 1));
  std::vector<neso_tensor> out(1);
  ASSERT_EQ(m.run({x.t}, out), NESO_OK) << neso_error_text();
  EXPECT_EQ(floats(out[0], 90), std::vector<float>(90, 4));
  EXPECT_EQ(calls.load(), 2);
}
