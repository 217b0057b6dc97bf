// Jobs of the pool of threads, wanted by few and by many, more threads than there are cores: what is to be done is done once, and behind run(). So are the
// programs of a launch, forwards and backwards.
#include <gtest/gtest.h>

#include <unistd.h>

#include <random>
#include <vector>

#include "device/cpu/launch.h"

namespace neso_rt {
namespace {

struct items {
  std::vector<int> done;
  std::atomic<size_t> next{0};
  std::atomic<int> most{0}; // the largest number of a worker
};

void take(void *data, int worker) {
  auto *all = static_cast<items *>(data);
  for (size_t i; (i = all->next.fetch_add(1)) < all->done.size();) ++all->done[i];
  for (int seen = all->most.load(); seen < worker && !all->most.compare_exchange_weak(seen, worker);) {
  }
}

TEST(Pool, DoesAllOfEachJobOnce) {
  pool p;
  constexpr int kThreads = 24;
  ASSERT_EQ(p.start(kThreads), NESO_OK);
  std::mt19937 random(7);
  for (int job = 0; job < 3000; ++job) {
    const int n = 2 + int(random() % (kThreads - 1));
    items all;
    all.done.resize(random() % 200);
    p.run(n, take, &all);
    for (int times : all.done) ASSERT_EQ(times, 1) << "job " << job;
    ASSERT_LT(all.most.load(), n) << "a worker that was not wanted";
    // Some jobs come when all others sleep.
    if (job % 500 == 0) usleep(2000);
  }
}

// Programs of a launch that was measured as worth sharing: [begin, end) of each call, in order.
std::vector<std::pair<uint64_t, uint64_t>> calls;
void note(const neso_arg *, const uint32_t *, uint64_t begin, uint64_t end, const neso_kernel_env *) { calls.emplace_back(begin, end); }

TEST(Pool, LaunchesGoForwardsAndBackwardsInTurns) {
  cpu_executor executor;
  auto oneAfterTheOther = [](void *, int n, void (*body)(void *, int), void *data) {
    for (int i = 0; i < n; ++i) body(data, i);
  };
  ASSERT_EQ(executor.start(3, 0, oneAfterTheOther, nullptr, nullptr, nullptr), NESO_OK);
  launch_cost known{1e6f, 3};
  for (uint32_t programs : {3u, 7u, 25u, 96u, 1001u}) {
    const uint32_t grid[3] = {programs, 1, 1};
    uint64_t firsts[2] = {};
    for (uint64_t &first : firsts) {
      calls.clear();
      ASSERT_EQ(executor.launch(note, "note", nullptr, grid, &known, false), NESO_OK);
      std::vector<int> done(programs);
      for (auto [begin, end] : calls) {
        ASSERT_LT(begin, end);
        ASSERT_LE(end, programs);
        for (uint64_t p = begin; p < end; ++p) ++done[p];
      }
      for (int times : done) EXPECT_EQ(times, 1) << programs << " programs";
      first = calls.front().first;
    }
    EXPECT_EQ(firsts[0], 0u) << programs << " programs";
    // The first worker's share is a third; with one program a share both ways are one.
    if (programs > 3) EXPECT_GT(firsts[1], 0u) << programs << " programs";
  }
}

} // namespace
} // namespace neso_rt
