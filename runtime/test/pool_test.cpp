// Jobs of the pool of threads, wanted by few and by many, more threads than there are cores: what is to be done is done once, and behind run().
#include <gtest/gtest.h>

#include <unistd.h>

#include <random>
#include <vector>

#include "device/cpu/pool.h"

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

} // namespace
} // namespace neso_rt
