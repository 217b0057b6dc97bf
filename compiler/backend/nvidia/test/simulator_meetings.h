// What the simulator knows of the barriers of a block that have numbers (bar.sync, bar.arrive): which threads have come, who may go on, and how
// often they have met.
#pragma once
#include "backend/nvidia/test/simulator_barriers.h"

namespace neso::nvidia::test {

class Meetings {
public:
  /// The barrier at which a thread stands, and how many threads meet there.
  struct Place {
    int64_t number;
    int wanted;
  };
  Meetings(int threads, Clocks &clocks, Barriers &barriers, std::function<void(const std::string &)> fail)
      : clocks_(clocks), barriers_(barriers), fail_(std::move(fail)), passed_(size_t(threads), false) {}

  /// Threads that have all come to a barrier may go on, though it stands in several places. `standing`: by thread.
  void meet(const std::map<int, Place> &standing) {
    std::map<int64_t, std::vector<int>> waiting;
    for (const auto &[t, place] : standing)
      if (!passed_[size_t(t)]) waiting[place.number].push_back(t);
    for (const auto &[number, threads] : waiting) {
      const int wanted = standing.at(threads[0]).wanted;
      Arrived &arrived = arrived_[number];
      if (int(threads.size()) + arrived.threads > wanted) fail_("more threads come to a barrier than it counts");
      if (int(threads.size()) + arrived.threads == wanted) open(threads, arrived);
    }
  }
  bool mayPass(int t) const { return passed_[size_t(t)]; }
  /// It goes on; false: it may not.
  bool pass(int t) {
    const bool may = passed_[size_t(t)];
    passed_[size_t(t)] = false;
    return may;
  }
  /// Comes to a barrier without waiting there.
  void arrive(int t, Place place) {
    Arrived &arrived = arrived_[place.number];
    Clocks::join(arrived.clock, clocks_.of(t / 32));
    if (++arrived.threads >= place.wanted) fail_("all arrive at a barrier, and nobody waits");
  }
  /// Whether threads have arrived somewhere and nobody has waited for them.
  bool isLeftOpen() const {
    return std::any_of(arrived_.begin(), arrived_.end(), [](const auto &entry) { return entry.second.threads > 0; });
  }
  int count() const { return count_; }
  /// How often threads have met without some that only arrived, and when all had last.
  int epoch() const { return epoch_; }
  int epochOfAll() const { return epochOfAll_; }

private:
  struct Arrived {
    int threads = 0;
    Clock clock;
  };
  void open(const std::vector<int> &threads, Arrived &arrived) {
    std::vector<int> warps;
    for (int t : threads) {
      passed_[size_t(t)] = true;
      if (warps.empty() || warps.back() != t / 32) warps.push_back(t / 32);
    }
    ++count_;
    if (arrived.threads) {
      // Those who wait know what the others have done, and no more.
      for (int warp : warps) clocks_.learn(warp, arrived.clock);
      arrived = {};
      return;
    }
    ++epoch_;
    if (threads.size() == passed_.size()) epochOfAll_ = epoch_;
    clocks_.meet(warps);
    barriers_.meet(warps);
  }

  Clocks &clocks_;
  Barriers &barriers_;
  std::function<void(const std::string &)> fail_;
  std::map<int64_t, Arrived> arrived_;
  std::vector<char> passed_; // threads that go on from the barrier at which they stand
  int count_ = 0, epoch_ = 0, epochOfAll_ = 0;
};

} // namespace neso::nvidia::test
