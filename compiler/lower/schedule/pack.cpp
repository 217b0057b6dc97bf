// Small kernels side by side in one launch.
//
// A launch costs a microsecond or two, in which a GPU moves megabytes: many small kernels (a list of tensors updated
// one by one, the small reductions of many heads) take the time of their launches. Programs of a pack find out by their
// number which part they belong to.
#include <algorithm>

#include "base/rules.h"
#include "ir/plan/access.h"
#include "lower/schedule/access.h"
#include "lower/schedule/memory.h"

namespace neso::schedule {

using namespace loops;

namespace {

/// Kernels that are looked at behind a pack's first, and parts of one pack.
constexpr size_t kWindow = 128, kMostParts = 32;

class Packer {
public:
  Packer(plan::Plan &plan, const std::vector<size_t> &order, int64_t most, int64_t buffers)
      : plan_(plan), order_(order), most_(most), mostBuffers_(static_cast<size_t>(buffers)),
        next_(followers(plan, order)), waits_(plan.kernels.size()) {
    for (const std::set<size_t> &after : next_)
      for (size_t k : after) ++waits_[k];
    for (const plan::Kernel &k : plan.kernels) small_.push_back(isSmall(k));
  }

  std::vector<plan::KernelId> run() {
    std::vector<plan::KernelId> out;
    std::vector<bool> launched(plan_.kernels.size());
    for (size_t at = 0; at < order_.size(); ++at) {
      if (launched[order_[at]]) continue;
      std::vector<size_t> pack = {order_[at]};
      if (small_[order_[at]]) {
        std::set<size_t> buffers = touched(order_[at]);
        for (size_t i = at + 1; i < std::min(order_.size(), at + kWindow) && pack.size() < kMostParts; ++i) {
          const size_t k = order_[i];
          // Whatever it needs has run: then it needs nothing of the pack, and nobody of the pack needs it.
          if (launched[k] || !small_[k] || waits_[k] > 0) continue;
          std::set<size_t> more = touched(k);
          more.insert(buffers.begin(), buffers.end());
          if (more.size() > mostBuffers_) continue;
          buffers = std::move(more);
          pack.push_back(k);
        }
      }
      for (size_t k : pack) {
        launched[k] = true;
        for (size_t n : next_[k]) --waits_[n];
      }
      out.push_back(pack.size() > 1 ? packOf(pack) : plan_.kernels[pack[0]].id);
    }
    return out;
  }

private:
  /// Without order among its programs, and over soon.
  bool isSmall(const plan::Kernel &k) const {
    if (k.kind != Node::Kind::Pointwise && k.kind != Node::Kind::Reduction && k.kind != Node::Kind::Scan) return false;
    for (const Node &n : k.nodes) {
      bool updates = false;
      forEachAccess(n, [&](const Access &a) { updates |= a.mode == AccessMode::Update; });
      if (updates) return false;
    }
    const plan::KernelTraffic t = plan::traffic(plan_, k);
    return usualSize(t.bytesRead + t.bytesWritten, plan_.program.facts) <= most_;
  }

  std::set<size_t> touched(size_t k) const {
    std::set<size_t> out;
    for (const plan::BufferAccess &a : plan::memoryAccesses(plan_, plan_.kernels[k])) out.insert(a.buffer.index());
    return out;
  }

  plan::KernelId packOf(const std::vector<size_t> &pack) {
    plan::Kernel k;
    k.id = plan::KernelId(static_cast<int64_t>(plan_.kernels.size()));
    k.name = fmt::format("pack_{}", k.id.value);
    std::string names;
    for (size_t p : pack) {
      k.parts.push_back(plan_.kernels[p].id);
      names += (names.empty() ? "" : ", ") + plan_.kernels[p].name;
    }
    k.decisions.push_back(fmt::format("one launch for {} kernels that do not need each other: {}", pack.size(), names));
    applied(Rule::PackLaunches);
    plan_.kernels.push_back(std::move(k));
    return plan_.kernels.back().id;
  }

  plan::Plan &plan_;
  const std::vector<size_t> &order_;
  int64_t most_;
  size_t mostBuffers_;
  std::vector<std::set<size_t>> next_;
  std::vector<int> waits_; // by kernel: those it needs that have not run
  std::vector<bool> small_;
};

} // namespace

std::vector<plan::KernelId> packLaunches(plan::Plan &plan, const std::vector<size_t> &order,
                                         const ScheduleOptions &options) {
  if (options.packedBytes > 0) return Packer(plan, order, options.packedBytes, options.packedBuffers).run();
  std::vector<plan::KernelId> out;
  for (size_t k : order) out.push_back(plan.kernels[k].id);
  return out;
}

} // namespace neso::schedule
