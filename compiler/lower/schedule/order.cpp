// Launch order for memory.
#include <algorithm>
#include <optional>
#include <set>

#include "ir/plan/access.h"
#include "lower/schedule/access.h"
#include "lower/schedule/memory.h"

namespace neso::schedule {

using namespace loops;

namespace {

class Orderer {
public:
  Orderer(const plan::Plan &p, const std::vector<size_t> &block)
      : block_(block), bytes_(p.program.buffers.size()), users_(p.program.buffers.size()), pinned_(p.program.buffers.size()) {
    for (const Buffer &b : p.program.buffers)
      if (p.placements[b.id.index()].where == plan::Placement::Where::Arena)
        bytes_[b.id.index()] = usualSize(p.placements[b.id.index()].bytes, p.program.facts);
    for (const ProgramOutput &o : p.program.outputs)
      if (o.buffer.valid()) pinned_[o.buffer.index()] = true; // copied at the end
    waits_.resize(p.kernels.size());
    touched_.resize(p.kernels.size());
    std::vector<bool> mine(p.kernels.size());
    for (size_t k : block) mine[k] = true;
    for (size_t k = 0; k < p.kernels.size(); ++k) {
      for (const Node &n : p.kernels[k].nodes)
        forEachAccess(n, [&](const Access &a) {
          if (mine[k])
            touched_[k].insert(a.buffer.index());
          else if (p.kernels[k].kind != Node::Kind::Region)
            pinned_[a.buffer.index()] = true; // another block needs it
        });
      for (size_t b : touched_[k]) ++users_[b];
    }
    next_ = followers(p, block);
    for (const std::set<size_t> &after : next_)
      for (size_t k : after) ++waits_[k];
  }

  int64_t peak(const std::vector<size_t> &order) const {
    State s(*this);
    for (size_t k : order) s.run(k);
    return s.peak;
  }

  /// Among the kernels that may run, the one after which least memory is live; the earliest of equals.
  std::vector<size_t> greedy() const {
    std::vector<int> waits = waits_;
    std::set<size_t> ready;
    for (size_t k : block_)
      if (waits[k] == 0) ready.insert(k);
    State state(*this);
    std::vector<size_t> out;
    while (!ready.empty()) {
      size_t best = *ready.begin();
      int64_t least = INT64_MAX;
      int tried = 0;
      for (size_t k : ready) {
        int64_t d = state.delta(k);
        if (d < least) least = d, best = k;
        if (++tried == 32) break; // far ahead of its turn nothing is gained
      }
      ready.erase(best);
      state.run(best);
      out.push_back(best);
      for (size_t n : next_[best])
        if (--waits[n] == 0) ready.insert(n);
    }
    return out;
  }

private:
  const std::vector<size_t> &block_;
  std::vector<int64_t> bytes_;
  std::vector<int> users_;   // kernels that touch a buffer
  std::vector<bool> pinned_; // lives until the end
  std::vector<std::set<size_t>> next_, touched_;
  std::vector<int> waits_;

  struct State {
    explicit State(const Orderer &o) : o(o), left(o.users_), born(o.users_.size()) {}
    const Orderer &o;
    std::vector<int> left;
    std::vector<bool> born;
    int64_t live = 0, peak = 0;
    /// Live bytes after k less those before.
    int64_t delta(size_t k) const {
      int64_t d = 0;
      for (size_t b : o.touched_[k]) {
        if (!born[b]) d += o.bytes_[b];
        if (left[b] == 1 && !o.pinned_[b]) d -= o.bytes_[b];
      }
      return d;
    }
    void run(size_t k) {
      for (size_t b : o.touched_[k])
        if (!born[b]) born[b] = true, live += o.bytes_[b];
      peak = std::max(peak, live);
      for (size_t b : o.touched_[k])
        if (--left[b] == 0 && !o.pinned_[b]) live -= o.bytes_[b];
    }
  };
};

} // namespace

std::vector<std::set<size_t>> followers(const plan::Plan &plan, const std::vector<size_t> &block) {
  std::vector<std::set<size_t>> next(plan.kernels.size());
  struct Writer {
    size_t kernel;
    std::optional<Interval> range; // elements, where it only writes
  };
  std::vector<std::vector<size_t>> readers(plan.program.buffers.size());
  std::vector<std::vector<Writer>> writers(plan.program.buffers.size());
  SymbolMap<size_t> definer;
  std::optional<size_t> object; // the last kernel that uses a script object
  for (size_t k : block) {
    std::set<size_t> reads, writes;
    for (const Node &n : plan.kernels[k].nodes)
      forEachAccess(n, [&](const Access &a) { (a.writes() ? writes : reads).insert(a.buffer.index()); });
    auto edge = [&](size_t from) {
      if (from != k) next[from].insert(k);
    };
    for (const Node &n : plan.kernels[k].nodes) {
      if (!definer.empty())
        for (Symbol s : neededBy(plan.program, n))
          if (auto it = definer.find(s); it != definer.end()) edge(it->second);
      for (Symbol s : definedBy(n)) definer[s] = k;
      if (!usesObject(n)) continue;
      if (object) edge(*object);
      object = k;
    }
    for (size_t b : reads)
      for (const Writer &w : writers[b]) edge(w.kernel);
    for (size_t b : writes) {
      const std::optional<Interval> range =
          plan::storedRange(plan.program.facts, plan.kernels[k], plan.program.buffers[b].id);
      bool all = true;
      for (const Writer &w : writers[b]) {
        const bool apart = range && w.range && (range->hi < w.range->lo || w.range->hi < range->lo);
        if (!apart) edge(w.kernel);
        all &= !apart;
      }
      for (size_t r : readers[b]) edge(r);
      // Whoever comes after this kernel comes after those that it waits for.
      if (all) writers[b].clear(), readers[b].clear();
      writers[b].push_back({k, range});
    }
    for (size_t b : reads) readers[b].push_back(k);
  }
  return next;
}

std::vector<size_t> launchOrder(const plan::Plan &plan, const std::vector<size_t> &block, const ScheduleOptions &options) {
  const std::vector<size_t> &order = block;
  if (!options.reorder) return order;
  Orderer orderer(plan, block);
  std::vector<size_t> other = orderer.greedy();
  return other.size() == order.size() && orderer.peak(other) < orderer.peak(order) ? other : order;
}

} // namespace neso::schedule
