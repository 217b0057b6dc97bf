// Greedy fusion: all pairs of groups that touch a common buffer, most bytes first, until nothing more can be joined.
#include "lower/schedule/fuse.h"

#include <algorithm>
#include <map>

#include "lower/schedule/match.h"

namespace neso::schedule {

using namespace loops;

namespace {

/// A reduction with few rows and long ones runs on few cores: pointwise work over its inner space stays apart.
constexpr int64_t kFewRows = 32, kLongRow = 16384;

/// Instructions of one element, roughly.
int64_t costOf(const Node &node) {
  int64_t cost = 0;
  forEachBody(node, [&](const Body &body) {
    for (const Op &op : body.ops) cost += info(op.kind).cost;
  });
  return cost;
}

class Fuser {
public:
  Fuser(const Program &program, const ScheduleOptions &options, const std::vector<bool> &shared)
      : program_(program), options_(options) {
    for (size_t n = 0; n < program.nodes.size(); ++n) {
      groups_.push_back(groupOf(program.nodes[n], static_cast<int>(n), dims_));
      touched_.push_back(touchedBuffers(groups_.back()));
      cost_.push_back(costOf(program.nodes[n]));
    }
    next_.resize(groups_.size());
    previous_.resize(groups_.size());
    version_.resize(groups_.size());
    seen_.resize(groups_.size());
    for (size_t g = 0; g < groups_.size(); ++g) level_.push_back(g);
    findDependences();
    findSymbolDependences();
    keepObjectsInOrder();
    findUsers(shared);
  }

  std::vector<Group> run() {
    if (options_.fuse)
      for (int round = 0; round < 12 && fuseRound(); ++round) {
      }
    return inOrder();
  }

private:
  const Program &program_;
  const ScheduleOptions &options_;
  NewDims dims_;
  std::vector<Group> groups_;
  std::vector<std::set<int32_t>> touched_;        // buffers, by group
  std::vector<std::set<size_t>> next_, previous_; // dependences between groups
  std::vector<size_t> level_;        // of a group is below those of its successors: what lies above another cannot lead to it (Pearce and Kelly 2006)
  mutable std::vector<size_t> seen_; // the search that saw a group last
  mutable size_t searches_ = 0;
  std::vector<int> version_;
  std::vector<int64_t> cost_; // of a group's nodes
  std::vector<std::set<size_t>> users_;      // groups, by buffer
  std::vector<bool> needed_;                 // buffer: the plan's outputs or the caller see it
  std::set<std::array<int64_t, 4>> refused_; // pairs with versions that were tried in vain

  static std::set<int32_t> touchedBuffers(const Group &g) {
    std::set<int32_t> out;
    for (const GroupNode &n : g.nodes)
      forEachAccess(n.node, [&](const Access &a) { out.insert(a.buffer.value); });
    return out;
  }

  void edge(size_t from, size_t to) {
    if (from == to) return;
    next_[from].insert(to);
    previous_[to].insert(from);
  }

  void findDependences() {
    std::vector<std::vector<size_t>> readers(program_.buffers.size());
    std::vector<size_t> writer(program_.buffers.size(), SIZE_MAX);
    for (size_t g = 0; g < groups_.size(); ++g) {
      std::vector<Access> accesses = accessesOf(groups_[g].nodes[0].node);
      for (const Access &a : accesses)
        if (writer[a.buffer.index()] != SIZE_MAX) edge(writer[a.buffer.index()], g);
      for (const Access &a : accesses)
        if (a.writes())
          for (size_t r : readers[a.buffer.index()]) edge(r, g);
      for (const Access &a : accesses) {
        if (a.writes()) {
          writer[a.buffer.index()] = g;
          readers[a.buffer.index()].clear();
        }
      }
      for (const Access &a : accesses)
        if (!a.writes()) readers[a.buffer.index()].push_back(g);
    }
  }

  /// What needs a symbol comes behind the read that defines it.
  void findSymbolDependences() {
    SymbolMap<size_t> definer;
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (!definer.empty())
        for (Symbol s : neededBy(program_, groups_[g].nodes[0].node))
          if (auto it = definer.find(s); it != definer.end()) edge(it->second, g);
      for (Symbol s : definedBy(groups_[g].nodes[0].node)) definer[s] = g;
    }
  }

  void keepObjectsInOrder() {
    size_t last = SIZE_MAX;
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (!usesObject(groups_[g].nodes[0].node)) continue;
      if (last != SIZE_MAX) edge(last, g);
      last = g;
    }
  }

  void findUsers(const std::vector<bool> &shared) {
    users_.resize(program_.buffers.size());
    needed_.resize(program_.buffers.size());
    for (size_t g = 0; g < groups_.size(); ++g)
      for (int32_t b : touched_[g]) users_[static_cast<size_t>(b)].insert(g);
    for (const Buffer &b : program_.buffers)
      needed_[b.id.index()] = b.kind != Buffer::Kind::Temp || shared[b.id.index()];
    for (const ProgramOutput &o : program_.outputs)
      if (o.buffer.valid()) needed_[o.buffer.index()] = true;
  }

  static bool mayFuse(Node::Kind k) {
    return k == Node::Kind::Pointwise || k == Node::Kind::Reduction || k == Node::Kind::Contraction;
  }

  struct Pair {
    size_t a, b;
    int64_t score;
  };
  std::vector<Pair> candidates() const {
    std::map<std::pair<size_t, size_t>, int64_t> scores;
    for (const Buffer &b : program_.buffers) {
      const std::set<size_t> &users = users_[b.id.index()];
      if (users.size() < 2) continue;
      int64_t bytes = usualSize(b.elements, program_.facts) * itemSize(b.dtype);
      std::vector<size_t> list(users.begin(), users.end());
      // Pairs far apart in a long list of users (a weight, a mask) are not tried.
      for (size_t i = 0; i < list.size(); ++i)
        for (size_t j = i + 1; j < std::min(list.size(), i + 9); ++j)
          if (mayFuse(groups_[list[i]].kind) && mayFuse(groups_[list[j]].kind)) scores[{list[i], list[j]}] += bytes;
    }
    std::vector<Pair> out;
    for (const auto &[pair, score] : scores)
      if (!refused_.contains(key(pair.first, pair.second))) out.push_back({pair.first, pair.second, score});
    std::stable_sort(out.begin(), out.end(), [](const Pair &p, const Pair &q) { return p.score > q.score; });
    return out;
  }
  std::array<int64_t, 4> key(size_t a, size_t b) const {
    return {static_cast<int64_t>(a), static_cast<int64_t>(b), version_[a], version_[b]};
  }

  bool fuseRound() {
    bool any = false;
    for (const Pair &p : candidates()) {
      if (!groups_[p.a].alive || !groups_[p.b].alive) continue;
      std::array<int64_t, 4> k = key(p.a, p.b);
      if (refused_.contains(k)) continue;
      if (tryFuse(p.a, p.b))
        any = true;
      else
        refused_.insert(k);
    }
    return any;
  }

  /// Is there a way from a to b through another group? Joining them would make a circle.
  bool detour(size_t from, size_t to) const {
    const size_t search = ++searches_;
    std::vector<size_t> stack;
    auto visit = [&](size_t n) {
      if (seen_[n] == search || level_[n] >= level_[to]) return;
      seen_[n] = search;
      stack.push_back(n);
    };
    for (size_t n : next_[from])
      if (n != to) visit(n);
    while (!stack.empty()) {
      size_t g = stack.back();
      stack.pop_back();
      for (size_t n : next_[g]) {
        if (n == to) return true;
        visit(n);
      }
    }
    return false;
  }

  /// Lifts what a group that has moved to another level leads to.
  void lift(size_t group) {
    std::vector<size_t> stack{group};
    while (!stack.empty()) {
      const size_t g = stack.back();
      stack.pop_back();
      for (size_t n : next_[g])
        if (level_[n] <= level_[g]) level_[n] = level_[g] + 1, stack.push_back(n);
    }
  }

  std::string tooMuch(size_t a, size_t b) const {
    if (static_cast<int>(groups_[a].nodes.size() + groups_[b].nodes.size()) > options_.maxNodesPerKernel)
      return "the kernel would have too many nodes";
    if (cost_[a] + cost_[b] > options_.maxCostPerKernel) return "the kernel would have too many operators";
    return "";
  }

  bool contractionRules(size_t a, size_t b, std::string &why) const {
    const Group &ga = groups_[a], &gb = groups_[b];
    bool ca = ga.kind == Node::Kind::Contraction, cb = gb.kind == Node::Kind::Contraction;
    if (!ca && !cb) return true;
    const Group &other = ca ? gb : ga;
    size_t contraction = ca ? a : b, epilogue = ca ? b : a;
    if (ca && cb)
      why = "two contractions do not share a kernel";
    else if (!options_.fuseEpilogues)
      why = "epilogues are switched off";
    else if (!other.r.empty())
      why = "a reduction is no epilogue of a contraction";
    else if (next_[epilogue].contains(contraction))
      why = "it comes before the contraction";
    else if (!next_[contraction].contains(epilogue))
      why = "it does not use the contraction's result";
    return why.empty();
  }

  bool tryFuse(size_t a, size_t b) {
    const std::string nameA = groups_[a].nodes[0].node.name, nameB = groups_[b].nodes[0].node.name;
    bool dependent = next_[a].contains(b) || next_[b].contains(a);
    std::string why = tooMuch(a, b);
    if (why.empty()) contractionRules(a, b, why);
    if (why.empty() && (detour(a, b) || detour(b, a))) why = "another kernel runs between them";
    std::optional<Fusion> fusion;
    if (why.empty()) {
      std::vector<bool> temporary(program_.buffers.size());
      for (int32_t buf : touched_[a])
        if (touched_[b].contains(buf))
          temporary[static_cast<size_t>(buf)] =
              !needed_[static_cast<size_t>(buf)] && users_[static_cast<size_t>(buf)].size() == 2;
      std::variant<Fusion, Refusal> result = join(groups_[a], groups_[b], program_, temporary, dims_);
      if (Refusal *r = std::get_if<Refusal>(&result))
        why = r->reason;
      else
        fusion = std::move(std::get<Fusion>(result));
    }
    if (fusion && fusion->bytesSaved <= 0) why = "no bytes would be saved";
    if (fusion && why.empty()) why = poorShape(fusion->group, a, b);
    if (!why.empty()) {
      std::string line = fmt::format("{} not with {}: {}", nameA, nameB, why);
      std::vector<std::string> &log = groups_[a].decisions;
      if (dependent && std::find(log.begin(), log.end(), line) == log.end()) log.push_back(std::move(line));
      return false;
    }
    fusion->group.decisions.push_back(fmt::format("{} with {}: {} bytes less, by {}", nameA, nameB, fusion->bytesSaved,
                                                  fmt::join(fusion->shared, ", ")));
    applied(fusion->rule);
    merge(a, b, std::move(fusion->group));
    return true;
  }

  /// Reasons that lie in the kernel that would result.
  std::string poorShape(const Group &g, size_t a, size_t b) const {
    std::set<int32_t> memory = touched_[a];
    memory.insert(touched_[b].begin(), touched_[b].end());
    int count = 0;
    for (int32_t buf : memory) {
      size_t k = static_cast<size_t>(buf);
      size_t inside = users_[k].contains(a) + users_[k].contains(b);
      count += needed_[k] || users_[k].size() > inside;
    }
    if (count > options_.maxBuffersPerKernel) return "the kernel would touch too many buffers";
    if (!g.r.empty() && g.kind == Node::Kind::Reduction) {
      bool innerWork = false;
      for (const GroupNode &n : g.nodes) innerWork |= n.overR && n.node.kind() == Node::Kind::Pointwise;
      int64_t rows = 1, length = 1;
      for (const Dim &d : g.x) rows *= usualSize(d.extent, program_.facts);
      for (const Dim &d : g.r) length *= usualSize(d.extent, program_.facts);
      if (innerWork && rows < kFewRows && length >= kLongRow) return "few long rows would leave cores idle";
    }
    return "";
  }

  void merge(size_t a, size_t b, Group group) {
    groups_[a] = std::move(group);
    groups_[b].alive = false;
    ++version_[a];
    cost_[a] += cost_[b];
    for (int32_t buf : touched_[b]) {
      users_[static_cast<size_t>(buf)].erase(b);
      users_[static_cast<size_t>(buf)].insert(a);
    }
    touched_[a].insert(touched_[b].begin(), touched_[b].end());
    touched_[b].clear();
    auto redirect = [&](std::vector<std::set<size_t>> &forward, std::vector<std::set<size_t>> &backward) {
      for (size_t n : forward[b]) {
        backward[n].erase(b);
        if (n == a) continue;
        forward[a].insert(n);
        backward[n].insert(a);
      }
      forward[b].clear();
      forward[a].erase(b);
    };
    redirect(next_, previous_);
    redirect(previous_, next_);
    next_[a].erase(a);
    previous_[a].erase(a);
    level_[a] = std::max(level_[a], level_[b]);
    lift(a);
  }

  /// Groups in a topological order, earliest program position first.
  std::vector<Group> inOrder() {
    std::vector<size_t> waiting(groups_.size());
    std::set<std::pair<int, size_t>> ready;
    auto position = [&](size_t g) { return groups_[g].nodes.back().order; };
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (!groups_[g].alive) continue;
      waiting[g] = previous_[g].size();
      if (waiting[g] == 0) ready.insert({position(g), g});
    }
    std::vector<Group> out;
    while (!ready.empty()) {
      size_t g = ready.begin()->second;
      ready.erase(ready.begin());
      for (size_t n : next_[g])
        if (--waiting[n] == 0) ready.insert({position(n), n});
      out.push_back(std::move(groups_[g]));
    }
    return out;
  }
};

} // namespace

std::vector<Group> formGroups(const Program &program, const ScheduleOptions &options, const std::vector<bool> &shared) {
  return Fuser(program, options, shared).run();
}

} // namespace neso::schedule
