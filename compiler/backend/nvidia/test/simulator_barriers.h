// What the simulator knows of barriers in shared memory that count arrivals and bytes (mbarrier), of the machine's copies
// that they count, and of what warps have seen of one another: a clock a warp, which travels with arrivals and waits.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "backend/nvidia/test/simulator.h"
#include "backend/nvidia/test/simulator_values.h"

namespace neso::nvidia::test {

/// Of every warp: up to when another one's past is known.
using Clock = std::vector<int>;

class Clocks {
public:
  explicit Clocks(int warps) : of_(size_t(warps), Clock(size_t(warps), 0)) {}
  const Clock &of(int warp) const { return of_[size_t(warp)]; }
  /// The warp's own time, after what it did so far.
  int tick(int warp) { return ++of_[size_t(warp)][size_t(warp)]; }
  void learn(int warp, const Clock &other) { join(of_[size_t(warp)], other); }
  /// These warps have met.
  void meet(const std::vector<int> &warps) {
    Clock all(of_.size(), 0);
    for (int warp : warps) join(all, of_[size_t(warp)]);
    for (int warp : warps) of_[size_t(warp)] = all;
  }
  static void join(Clock &to, const Clock &other) {
    to.resize(std::max(to.size(), other.size()));
    for (size_t i = 0; i < other.size(); ++i) to[i] = std::max(to[i], other[i]);
  }

private:
  std::vector<Clock> of_;
};

struct MachineCopy {
  uint64_t barrier = 0;
  int64_t phase = 0; // of its barrier, when it was begun
  std::vector<std::pair<uint64_t, uint8_t>> bytes;
  bool arrived = false;
};

/// The box whose first element is at (row, column), as it is copied to shared memory; zeros lie outside of the tensor.
inline MachineCopy boxAt(const TensorMap &map, int64_t plane, int64_t row, int64_t column, uint64_t to, uint64_t barrier) {
  MachineCopy copy{barrier, 0, {}, false};
  const int64_t span = map.boxColumns * map.elementBytes;
  for (int64_t r = 0; r < map.boxRows; ++r)
    for (int64_t at = 0; at < span; ++at) {
      const int64_t y = row + r, x = column + at / map.elementBytes;
      const bool inside = plane >= 0 && plane < map.planes && y >= 0 && y < map.rows && x >= 0 && x < map.columns;
      const uint8_t value = inside ? map.base[plane * map.planePitch + y * map.pitch + x * map.elementBytes + at % map.elementBytes] : 0;
      copy.bytes.emplace_back(permuted(to + uint64_t(r * span + at), uint64_t(span)), value);
    }
  return copy;
}

class Barriers {
public:
  Barriers(Clocks &clocks, int warps, std::function<void(const std::string &)> fail)
      : clocks_(clocks), seen_(size_t(warps)), fail_(std::move(fail)) {}

  void make(uint64_t at, int64_t arrivals, int warp) {
    if (at % 8) fail_("a barrier that is not aligned");
    if (all_.count(at)) fail_("a barrier is made where one is");
    all_[at] = {arrivals, arrivals, 0, 0, false, clocks_.tick(warp), warp, {}, {}, Clock(seen_.size(), 0)};
  }
  void end(uint64_t at, int warp) {
    Barrier *barrier = find(at, warp);
    if (!barrier) return;
    for (size_t other = 0; other < seen_.size(); ++other)
      if (clocks_.of(warp)[other] < barrier->used[other]) return fail_("a barrier ends that another warp may still use");
    all_.erase(at);
    for (std::map<uint64_t, int64_t> &seen : seen_) seen.erase(at);
  }
  /// The machine sees those that are made.
  void showMachine() {
    for (auto &[at, barrier] : all_) barrier.forMachine = true;
  }
  bool isForMachine(uint64_t at) const { return all_.count(at) && all_.at(at).forMachine; }
  void arrive(uint64_t at, int64_t bytes, int warp) {
    Barrier *barrier = find(at, warp);
    if (!barrier) return;
    barrier->bytes += bytes;
    barrier->used[size_t(warp)] = clocks_.tick(warp);
    Clocks::join(barrier->gathered, clocks_.of(warp));
    if (--barrier->pending < 0) return fail_("more arrivals than a phase has");
    settle(*barrier);
  }
  /// Whether the phase of this parity has ended.
  bool await(uint64_t at, uint64_t parity, int warp) {
    Barrier *barrier = find(at, warp);
    if (!barrier || uint64_t(barrier->phase & 1) == parity) return false;
    clocks_.learn(warp, barrier->ended);
    barrier->used[size_t(warp)] = clocks_.tick(warp);
    int64_t &seen = seen_[size_t(warp)][at];
    seen = std::max(seen, barrier->phase);
    return true;
  }
  /// The number of a copy that a thread of `warp` has begun.
  int begin(MachineCopy copy, int warp) {
    if (Barrier *barrier = find(copy.barrier, warp)) {
      if (!barrier->forMachine) fail_("the machine does not see a barrier yet");
      copy.phase = barrier->phase;
    }
    copies_.push_back(std::move(copy));
    return int(copies_.size()) - 1;
  }
  const MachineCopy &copy(int number) const { return copies_[size_t(number)]; }
  /// The next copy that has not arrived; -1: none.
  int underWay() const {
    for (size_t i = 0; i < copies_.size(); ++i)
      if (!copies_[i].arrived) return int(i);
    return -1;
  }
  /// Its bytes are there.
  void arrived(int number) {
    MachineCopy &copy = copies_[size_t(number)];
    copy.arrived = true;
    auto barrier = all_.find(copy.barrier);
    if (barrier == all_.end()) return fail_("a copy arrives at a barrier that has ended");
    barrier->second.bytes -= int64_t(copy.bytes.size());
    settle(barrier->second);
  }
  /// Whether the warp has waited for the copy.
  bool hasSeen(int warp, int number) const {
    const MachineCopy &copy = copies_[size_t(number)];
    auto seen = seen_[size_t(warp)].find(copy.barrier);
    return seen != seen_[size_t(warp)].end() && seen->second > copy.phase;
  }
  /// These warps have met: what one has waited for, all have.
  void meet(const std::vector<int> &warps) {
    std::map<uint64_t, int64_t> all;
    for (int warp : warps)
      for (const auto &[at, phase] : seen_[size_t(warp)]) all[at] = std::max(all[at], phase);
    for (int warp : warps) seen_[size_t(warp)] = all;
  }
  /// How many phases have ended, of all barriers: whoever waits looks again when there are more.
  int64_t ended() const { return ended_; }

private:
  struct Barrier {
    int64_t arrivals, pending, bytes, phase;
    bool forMachine;
    int made, maker; // by which warp, and when
    Clock gathered, ended;
    Clock used; // by warp: when it used it last
  };
  Barrier *find(uint64_t at, int warp) {
    auto found = all_.find(at);
    if (found == all_.end()) return fail_("no barrier is there"), nullptr;
    if (clocks_.of(warp)[size_t(found->second.maker)] < found->second.made)
      return fail_("a barrier is used by a warp that does not know it is made"), nullptr;
    return &found->second;
  }
  void settle(Barrier &barrier) {
    if (barrier.pending != 0 || barrier.bytes != 0) return;
    ++barrier.phase, ++ended_;
    barrier.pending = barrier.arrivals;
    barrier.ended = barrier.gathered;
  }

  Clocks &clocks_;
  std::vector<std::map<uint64_t, int64_t>> seen_; // by warp: of a barrier, phases that it knows to have ended
  std::function<void(const std::string &)> fail_;
  std::map<uint64_t, Barrier> all_;
  std::vector<MachineCopy> copies_;
  int64_t ended_ = 0;
};

} // namespace neso::nvidia::test
