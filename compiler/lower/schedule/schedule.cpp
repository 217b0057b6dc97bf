#include "lower/schedule/schedule.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <set>
#include <unordered_set>

#include "base/fault.h"
#include "ir/loops/build.h"
#include "ir/plan/steps.h"
#include "lower/schedule/access.h"
#include "lower/schedule/attach.h"
#include "lower/schedule/fuse.h"
#include "lower/schedule/inside.h"
#include "lower/schedule/memory.h"
#include "lower/schedule/repeats.h"
#include "lower/schedule/siblings.h"
#include "lower/schedule/split.h"

namespace neso::schedule {

using namespace loops;

namespace {

/// Removes nodes and stores whose results nobody sees, in regions as around them: a value that a loop carries for itself alone goes, too.
class DeadNodes {
public:
  explicit DeadNodes(Program &program) : program_(program), live_(program.buffers.size()) {
    for (const Buffer &b : program.buffers) live_[b.id.index()] = b.kind != Buffer::Kind::Temp;
    for (const ProgramOutput &o : program.outputs)
      if (o.buffer.valid()) live_[o.buffer.index()] = true;
    for (const Assertion &a : program.assertions) asserted(a.condition);
    for (Expr guard : program.guards) asserted(guard);
  }

  void drop() {
    do {
      changed_ = false;
      keepNeeded(program_.nodes, true);
    } while (changed_);
    sweep(program_.nodes);
  }

private:
  void asserted(Expr condition) {
    for (Symbol s : symbolsOf(condition)) asserted_.insert(s);
  }

  /// Whether any of the block is needed; `runs`: the block is sure to stay.
  bool keepNeeded(const std::vector<Node> &block, bool runs) {
    bool any = false;
    for (size_t n = block.size(); n-- > 0;) {
      if (!kept_.count(&block[n]) && isNeeded(block[n], runs)) keep(block[n]);
      // What happens in a kept region may still become needed.
      if (const auto *region = block[n].as<RegionSpec>(); region && kept_.count(&block[n]))
        for (const std::vector<Node> &inner : region->blocks) keepNeeded(inner, true);
      any |= kept_.count(&block[n]) > 0;
    }
    return any;
  }

  bool isNeeded(const Node &node, bool runs) {
    // Whoever lowered the model has dropped the reads and the operators that nobody needs. Those of a region go with it, unless somebody asks
    // for what they find.
    if (const auto *read = node.as<ReadSpec>()) return runs || asserted_.count(read->symbol);
    if (node.as<ExternSpec>()) return true;
    if (const auto *region = node.as<RegionSpec>()) {
      const bool second = keepNeeded(region->blocks[1], false);
      return keepNeeded(region->blocks[0], false) || second;
    }
    bool needed = false;
    forEachWrite(node, [&](const Access &a) { needed |= live_[a.buffer.index()]; });
    return needed;
  }

  void keep(const Node &node) {
    kept_.insert(&node), changed_ = true;
    if (node.as<RegionSpec>()) return; // the nodes inside say what they read
    forEachAccess(node, [&](const Access &a) {
      if (a.reads()) live_[a.buffer.index()] = true;
    });
  }

  void sweep(std::vector<Node> &block) {
    auto dead = [&](const Store &s) { return !live_[s.buffer.index()]; };
    std::vector<Node> nodes;
    for (Node &node : block) {
      if (!kept_.count(&node)) continue;
      std::visit(
          [&](auto &spec) {
            if constexpr (requires { spec.stores; }) std::erase_if(spec.stores, dead);
            if constexpr (requires { spec.reductions; }) {
              for (Reduction &r : spec.reductions) std::erase_if(r.results, dead);
              std::erase_if(spec.reductions, [](const Reduction &r) { return r.results.empty(); });
            }
            if constexpr (requires { spec.blocks; })
              for (std::vector<Node> &inner : spec.blocks) sweep(inner);
          },
          node.spec);
      nodes.push_back(std::move(node));
    }
    block = std::move(nodes);
  }

  Program &program_;
  std::vector<bool> live_;
  std::unordered_set<Symbol> asserted_;
  std::unordered_set<const Node *> kept_;
  bool changed_ = false;
};

/// What a loop's test computes stands before the loop and at the end of its body instead, in the order in which it ran: there it may share
/// kernels with what a turn leaves for the next one.
///
///     while { t = f(x);  c0 = read t } c0 { x = g(x) }     →     t = f(x);  while { c0 = read t } c0 { x = g(x);  t = f(x) }
///
/// There are two of each such node then: of few and light ones alone.
class Tests {
public:
  explicit Tests(Program &program) : program_(program), next_(freeNodeId(program).value) {}
  void moveOut() { moveOut(program_.nodes); }

private:
  static constexpr size_t kMostNodes = 6;

  void moveOut(std::vector<Node> &block) {
    std::vector<Node> out;
    for (Node &node : block) {
      if (auto *region = node.as<RegionSpec>()) {
        for (std::vector<Node> &inner : region->blocks) moveOut(inner);
        if (region->kind == RegionSpec::Kind::While) moveTest(*region, out);
      }
      out.push_back(std::move(node));
    }
    block = std::move(out);
  }

  void moveTest(RegionSpec &loop, std::vector<Node> &before) {
    auto &[test, body] = loop.blocks;
    const auto end = std::find_if(test.begin(), test.end(), [](const Node &n) { return n.kind() != Node::Kind::Pointwise && n.kind() != Node::Kind::Reduction; });
    if (static_cast<size_t>(end - test.begin()) > kMostNodes) return;
    for (auto n = test.begin(); n != end; ++n) {
      before.push_back(*n);
      before.back().id = NodeId(next_++);
      body.push_back(std::move(*n));
    }
    test.erase(test.begin(), end);
  }

  Program &program_;
  int32_t next_;
};

/// Makes kernels of the nodes block by block, then a step of each, in the tree that the regions make.
class Scheduler {
public:
  Scheduler(Program program, Remarks remarks, const ScheduleOptions &options)
      : options_(options), remarks_(std::move(remarks)), touches_(countTouches(program, program.nodes)) {
    p_.program = std::move(program);
  }

  plan::Plan run() && {
    formBlock(std::move(p_.program.nodes));
    p_.program.nodes.clear();
    if (options_.fuseUserKernels) renumber(attachNeighbours(p_));

    // Beyond this point kernels are fixed; what follows decides where and in which order they run.
    placeOutputs(p_);
    std::vector<plan::Step> steps = stepsOf(0);
    p_.main.steps.insert(p_.main.steps.begin(), std::make_move_iterator(steps.begin()), std::make_move_iterator(steps.end()));
    dropSteps();
    return std::move(p_);
  }

private:
  /// How many nodes touch each buffer, those in regions counted, regions themselves not.
  static std::vector<int> countTouches(const Program &program, const std::vector<Node> &nodes) {
    std::vector<int> out(program.buffers.size());
    forEachNode(nodes, [&](const Node &n) {
      if (n.as<RegionSpec>()) return;
      std::set<size_t> seen;
      forEachAccess(n, [&](const Access &a) { seen.insert(a.buffer.index()); });
      for (size_t b : seen) ++out[b];
    });
    return out;
  }

  /// Kernels of a block and, behind them, of the regions in it.
  size_t formBlock(std::vector<Node> nodes) {
    Program &program = p_.program;
    std::vector<bool> shared(touches_.size());
    const std::vector<int> inside = countTouches(program, nodes);
    for (size_t b = 0; b < touches_.size(); ++b) shared[b] = touches_[b] > inside[b];
    program.nodes = std::move(nodes);
    if (options_.splitReductions) {
      splitContractions(program, options_.split);
      splitAttention(program, options_.split);
      splitReductions(program, options_.split);
      splitSorts(program, options_.split);
      splitScans(program, options_.split);
      splitUpdates(program, options_.split);
    }
    if (options_.split.sortByDigits) giveSortsScratch(program);
    shared.resize(program.buffers.size());
    const size_t block = blocks_.size();
    blocks_.emplace_back();
    std::vector<Node> regions;
    for (Group &g : formGroups(program, options_, shared)) {
      const int number = static_cast<int>(p_.kernels.size());
      for (const GroupNode &n : g.nodes)
        if (auto said = remarks_.find(n.node.id.value); said != remarks_.end())
          g.decisions.insert(g.decisions.begin(), said->second.begin(), said->second.end());
      p_.kernels.push_back(finish(std::move(g), program, number));
      blocks_[block].push_back(static_cast<size_t>(number));
      if (const Node &first = p_.kernels.back().nodes[0]; first.as<RegionSpec>()) regions.push_back(first);
    }
    for (const Node &r : regions) {
      const std::array<std::vector<Node>, 2> &blocks = r.get<RegionSpec>().blocks;
      const size_t first = formBlock(blocks[0]), second = formBlock(blocks[1]);
      inside_[r.id.value] = {first, second};
    }
    return block;
  }

  void renumber(const std::vector<plan::KernelId> &now) {
    for (std::vector<size_t> &block : blocks_) {
      std::vector<size_t> kept;
      for (size_t k : block)
        if (now[k].valid()) kept.push_back(now[k].index());
      block = std::move(kept);
    }
  }

  std::vector<plan::Step> stepsOf(size_t block) {
    std::vector<plan::Step> out;
    for (plan::KernelId k : packLaunches(p_, launchOrder(p_, blocks_[block], options_), options_)) {
      const plan::Kernel &kernel = p_.kernels[k.index()];
      if (kernel.kind == Node::Kind::ReadScalar) {
        const auto &read = kernel.nodes[0].get<ReadSpec>();
        out.push_back(plan::LoadScalar{read.buffer, p_.program.buffer(read.buffer).dtype, read.symbol, read.turn});
      } else if (kernel.kind == Node::Kind::Extern) {
        const Node &node = kernel.nodes[0];
        out.push_back(plan::CallExtern{node.name, node.get<ExternSpec>(), node.origins});
      } else if (kernel.kind == Node::Kind::Region) {
        // Taken before the steps inside are made, which may move the kernels.
        const RegionSpec::Kind kind = kernel.nodes[0].get<RegionSpec>().kind;
        const Expr condition = kernel.nodes[0].get<RegionSpec>().condition;
        const auto [first, second] = inside_.at(kernel.nodes[0].id.value);
        plan::Region one{stepsOf(first)}, two{stepsOf(second)};
        if (kind == RegionSpec::Kind::If)
          out.push_back(plan::If{condition, std::move(one), std::move(two)});
        else
          out.push_back(plan::While{std::move(one), condition, std::move(two)});
      } else {
        out.push_back(plan::Launch{k});
      }
    }
    return out;
  }

  /// Reads, operators of the caller's and regions stood among the kernels while their order was sought; they are steps now.
  void dropSteps() {
    std::vector<plan::KernelId> now(p_.kernels.size());
    std::vector<plan::Kernel> kept;
    for (plan::Kernel &k : p_.kernels) {
      if (k.kind == Node::Kind::ReadScalar || k.kind == Node::Kind::Region || k.kind == Node::Kind::Extern) continue;
      now[k.id.index()] = plan::KernelId(static_cast<int64_t>(kept.size()));
      kept.push_back(std::move(k));
    }
    for (plan::Kernel &k : kept) {
      k.id = now[k.id.index()];
      for (plan::KernelId &part : k.parts) part = now[part.index()];
    }
    p_.kernels = std::move(kept);
    plan::forEachStep(p_.main, [&](plan::Step &step) {
      if (auto *launch = step.as<plan::Launch>()) launch->kernel = now[launch->kernel.index()];
    });
  }

  const ScheduleOptions &options_;
  const Remarks remarks_;
  plan::Plan p_;
  std::vector<int> touches_;                            // by buffer, of the whole program
  std::vector<std::vector<size_t>> blocks_;             // kernels, in a topological order near the program's; 0 is the model
  std::map<int32_t, std::array<size_t, 2>> inside_;     // by the id of a region's node: its blocks
};

} // namespace

Result<plan::Plan> schedule(Program program, const ScheduleOptions &options) {
  Working stage("schedule");
  DeadNodes(program).drop();
  assertInside(program);
  Tests(program).moveOut();
  Remarks remarks = shareRepeats(program, options.split.machine);
  // Products are as large as they will be before anybody asks how large they are.
  for (auto &[node, said] : joinSiblings(program, options.split)) {
    std::vector<std::string> &all = remarks[node];
    all.insert(all.end(), std::make_move_iterator(said.begin()), std::make_move_iterator(said.end()));
  }
  return Scheduler(std::move(program), std::move(remarks), options).run();
}

} // namespace neso::schedule
