#include "verifiers/plan_mutants.h"

#include "ir/loops/access.h"
#include "ir/plan/steps.h"

namespace neso::test {
namespace {

using namespace plan;
using loops::BufferId;
using Where = Placement::Where;

Expr nowhere() { return Symbol::size("nowhere99"); }

/// Regions of steps: the plan's own, then those inside.
void collect(Region &region, std::vector<Region *> &out) {
  out.push_back(&region);
  for (Step &s : region.steps) {
    if (auto *branch = s.as<If>()) collect(branch->then, out), collect(branch->otherwise, out);
    if (auto *loop = s.as<While>()) collect(loop->test, out), collect(loop->body, out);
  }
}
std::vector<Region *> allRegions(Plan &p) {
  std::vector<Region *> out;
  collect(p.main, out);
  return out;
}

class Maker {
public:
  Maker(const Plan &p, bool complete) : copy_(p), p_(copy_), complete_(complete) {}

  std::vector<Mutant<Plan>> run() {
    kernels();
    steps();
    placements();
    if (!complete_) return std::move(out_);
    memory();
    sizes();
    callerOutputs();
    return std::move(out_);
  }

private:
  Plan copy_;
  Plan &p_;
  bool complete_;
  std::vector<Mutant<Plan>> out_;

  void add(std::string kind, std::string where, std::function<void(Plan &)> apply) {
    out_.push_back({std::move(kind), std::move(where), std::move(apply)});
  }

  void kernels() {
    for (size_t k = 0; k < p_.kernels.size(); ++k) {
      const Kernel &kernel = p_.kernels[k];
      auto change = [&](const char *kind, std::function<void(Kernel &)> apply) {
        add(kind, kernel.name, [=](Plan &p) { apply(p.kernels[k]); });
      };
      change("a kernel's id is not its position", [](Kernel &at) { at.id = KernelId(at.id.value + 1); });
      change("a part that is not there", [](Kernel &at) { at.parts.push_back(KernelId(9999)); });
      if (!kernel.parts.empty()) {
        change("a part is dropped", [](Kernel &at) { at.parts.pop_back(); });
        change("a part runs twice", [](Kernel &at) { at.parts.push_back(at.parts[0]); });
      }
      nodes(kernel, change);
      if (complete_) arguments(kernel, change);
    }
    if (!p_.kernels.empty()) add("the last kernel is dropped", p_.kernels.back().name, [](Plan &p) { p.kernels.pop_back(); });
  }

  /// Whether steps of a loop launch it: what it writes is there from before the loop, and without it another sound loop runs.
  bool runsInLoop(const Kernel &kernel) const {
    bool out = false;
    forEachStep(p_.main, [&](const Step &step) {
      const auto *loop = step.as<While>();
      for (const Region *region : loop ? std::vector<const Region *>{&loop->test, &loop->body} : std::vector<const Region *>{})
        forEachStep(*region, [&](const Step &inside) {
          const auto *launch = inside.as<Launch>();
          if (!launch) return;
          out |= launch->kernel == kernel.id;
          for (KernelId part : p_.kernels[launch->kernel.index()].parts) out |= part == kernel.id;
        });
    });
    return out;
  }

  template <typename Change> void nodes(const Kernel &kernel, const Change &change) {
    const bool turns = runsInLoop(kernel);
    for (size_t n = 0; n < kernel.nodes.size(); ++n) {
      const auto at = static_cast<int64_t>(n);
      if (!turns) change("a node is dropped", [=](Kernel &k) { k.nodes.erase(k.nodes.begin() + at); });
      if (n + 1 < kernel.nodes.size()) change("a node runs too late", [=](Kernel &k) { std::swap(k.nodes[n], k.nodes[n + 1]); });
      change("a place names no buffer", [=](Kernel &k) {
        // An attention may have no mask: its queries are always there.
        if (auto *attention = k.nodes[n].as<loops::AttentionSpec>()) return void(attention->q.buffer = {});
        bool done = false;
        loops::rewriteAccesses(k.nodes[n], [&](BufferId &b, Expr &, const loops::Access &) {
          if (!std::exchange(done, true)) b = {};
        });
      });
      if (complete_) continue;
      change("an index of an unknown symbol", [=](Kernel &k) {
        loops::rewriteAccesses(k.nodes[n], [&](BufferId &, Expr &e, const loops::Access &) { e = e + nowhere(); });
      });
      if (kernel.kind == loops::Node::Kind::UserKernel) continue;
      change("a node of another space", [=](Kernel &k) { k.nodes[n].ranges.push_back(2); });
      if (!kernel.nodes[n].reduceRanges.empty())
        change("a node of another space", [=](Kernel &k) { k.nodes[n].reduceRanges[0] = k.nodes[n].reduceRanges[0] + 1; });
    }
    if (!kernel.xRanges.empty() && !complete_ && kernel.kind != loops::Node::Kind::UserKernel)
      change("a kernel of another space", [](Kernel &k) { k.xRanges[0] = k.xRanges[0] + 1; });
  }

  template <typename Change> void arguments(const Kernel &kernel, const Change &change) {
    for (size_t a = 0; a < kernel.args.size(); ++a) {
      const KernelArg &arg = kernel.args[a];
      if (arg.kind == KernelArg::Kind::Buffer) {
        change("an argument's buffer is not there", [=](Kernel &k) { k.args[a].buffer = BufferId(9999); });
        change("an argument of an unknown symbol", [=](Kernel &k) { k.args[a].offset = k.args[a].offset + nowhere(); });
        change("an argument without an offset", [=](Kernel &k) { k.args[a].offset = Expr(); });
        if (arg.written) change("an argument that is written is not marked so", [=](Kernel &k) { k.args[a].written = false; });
        if (arg.read) change("an argument that is read is not marked so", [=](Kernel &k) { k.args[a].read = false; });
        change("an argument is dropped", [=](Kernel &k) { k.args.erase(k.args.begin() + static_cast<int64_t>(a)); });
      } else if (arg.kind == KernelArg::Kind::Size) {
        change("an argument of an unknown symbol", [=](Kernel &k) { k.args[a].size = k.args[a].size + nowhere(); });
        change("an argument without a size", [=](Kernel &k) { k.args[a].size = Expr(); });
      }
    }
    if (!kernel.args.empty()) {
      change("a grid of an unknown symbol", [](Kernel &k) { k.grid[0] = k.grid[0] + nowhere(); });
      change("a grid without a size", [](Kernel &k) { k.grid[2] = Expr(); });
    }
    if (!kernel.product) return;
    change("a product's operand is not there", [](Kernel &k) { k.product->a.buffer = BufferId(9999); });
    change("what follows a product is not there", [](Kernel &k) { k.product->rest = KernelId(9999); });
  }

  void steps() {
    const std::vector<Region *> regions = allRegions(p_);
    for (size_t r = 0; r < regions.size(); ++r)
      for (size_t s = 0; s < regions[r]->steps.size(); ++s) step(r, s, *regions[r]);
  }
  void step(size_t r, size_t s, Region &region) {
    const Step &step = region.steps[s];
    const std::string where = fmt::format("step {} of region {}", s, r);
    auto change = [&](std::string kind, std::function<void(Step &, Region &)> apply) {
      add(std::move(kind), where, [=](Plan &p) {
        Region &in = *allRegions(p)[r];
        apply(in.steps[s], in);
      });
    };
    constexpr const char *kNames[] = {"a launch", "a copy", "a guard", "a load of a size", "sizes", "an arena's memory", "an output's memory", "a branch", "a loop"};
    const std::string what = kNames[step.what.index()];
    change(what + " is dropped", [=](Step &, Region &in) { in.steps.erase(in.steps.begin() + static_cast<int64_t>(s)); });
    // What is done twice over memory of its own is done as well as once.
    if (!step.as<Copy>() && !step.as<LoadScalar>() && !step.as<EvalSizes>() && !step.as<If>() && !step.as<While>())
      change(what + " comes twice", [=](Step &, Region &in) { in.steps.insert(in.steps.begin() + static_cast<int64_t>(s), Step(in.steps[s])); });
    if (s + 1 < region.steps.size()) change("a step comes too late", [=](Step &, Region &in) { std::swap(in.steps[s], in.steps[s + 1]); });
    if (step.as<Launch>()) change("a launch of no kernel", [](Step &at, Region &) { at.as<Launch>()->kernel = KernelId(9999); });
    if (step.as<Copy>()) {
      change("a copy from nowhere", [](Step &at, Region &) { at.as<Copy>()->src = {}; });
      change("a copy to nowhere", [](Step &at, Region &) { at.as<Copy>()->dst = {}, at.as<Copy>()->dstOutput = 99; });
      change("a copy without an offset", [](Step &at, Region &) { at.as<Copy>()->srcOffset = Expr(); });
      if (complete_) change("a copy of an unknown symbol", [](Step &at, Region &) { at.as<Copy>()->dstOffset = at.as<Copy>()->dstOffset + nowhere(); });
      if (!step.as<Copy>()->sizes.empty())
        change("a copy has fewer strides than dimensions", [](Step &at, Region &) { at.as<Copy>()->srcStrides.pop_back(); });
    }
    if (step.as<Guard>()) {
      change("a guard tests something else", [](Step &at, Region &) { at.as<Guard>()->condition = ge(nowhere(), 1); });
      change("a guard tests nothing", [](Step &at, Region &) { at.as<Guard>()->condition = Expr(); });
    }
    if (step.as<LoadScalar>()) {
      change("a size from nowhere", [](Step &at, Region &) { at.as<LoadScalar>()->buffer = BufferId(9999); });
      change("another size is loaded", [](Step &at, Region &) { at.as<LoadScalar>()->symbol = nowhere().symbol(); });
    }
    if (step.as<EvalSizes>()) change("sizes of another symbol", [](Step &at, Region &) { at.as<EvalSizes>()->symbol = nowhere().symbol(); });
    if (step.as<GrowArena>()) change("memory of no arena", [](Step &at, Region &) { at.as<GrowArena>()->arena = 99; });
    if (step.as<AllocOutput>()) change("memory of no output", [](Step &at, Region &) { at.as<AllocOutput>()->output = 99; });
    if (step.as<If>()) change("a branch without a condition", [](Step &at, Region &) { at.as<If>()->condition = Expr(); });
    if (step.as<While>()) change("a loop without a condition", [](Step &at, Region &) { at.as<While>()->condition = Expr(); });
  }

  void placements() {
    for (size_t b = 0; b < p_.placements.size(); ++b) {
      const Placement &place = p_.placements[b];
      auto change = [&](const char *kind, std::function<void(Placement &, Plan &)> apply) {
        add(kind, p_.program.buffers[b].name, [=](Plan &p) { apply(p.placements[b], p); });
      };
      change("a buffer's id is not its position", [=](Placement &, Plan &p) { p.program.buffers[b].id = BufferId(9999); });
      const bool temp = p_.program.buffers[b].kind == loops::Buffer::Kind::Temp;
      if (place.where != Where::None) change("a buffer is placed as it cannot be", [=](Placement &at, Plan &) { at.where = temp ? Where::Input : Where::Arena; });
      if (place.where == Where::Output) {
        change("a buffer of an output that is not there", [](Placement &at, Plan &) { at.output = 99; });
        change("an output's buffer is in the arena", [](Placement &at, Plan &) { at.where = Where::Arena; });
      }
      if (place.where != Where::Arena) continue;
      change("a buffer in use has no memory", [](Placement &at, Plan &) { at.where = Where::None; });
      if (!complete_) continue;
      change("memory that is not aligned", [](Placement &at, Plan &) { at.offset = at.offset + 4; });
      change("memory before the arena", [](Placement &at, Plan &) { at.offset = at.offset - (int64_t{1} << 40); });
      change("memory behind the arena", [](Placement &at, Plan &) { at.offset = at.offset + (int64_t{1} << 40); });
      change("memory without a size", [](Placement &at, Plan &) { at.bytes = Expr(); });
      change("memory that is too small", [](Placement &at, Plan &) { at.bytes = at.bytes - 64; });
      change("memory in no arena", [](Placement &at, Plan &) { at.arena = 99; });
      if (place.firstStep < place.lastStep) {
        change("a life that ends too early", [](Placement &at, Plan &) { --at.lastStep; });
        change("a life that begins too late", [](Placement &at, Plan &) { ++at.firstStep; });
      }
      if (place.arena == 0) overlap(b, change);
    }
    add("a placement is dropped", "", [](Plan &p) { p.placements.pop_back(); });
  }
  /// On the memory of another that lives at the same time, at two steps at least.
  template <typename Change> void overlap(size_t b, const Change &change) {
    const Placement &mine = p_.placements[b];
    for (size_t o = 0; o < p_.placements.size(); ++o) {
      const Placement &other = p_.placements[o];
      if (o == b || other.where != Where::Arena || other.arena != 0 || other.bytes.isConst(0) || mine.bytes.isConst(0)) continue;
      if (std::min(mine.lastStep, other.lastStep) < std::max(mine.firstStep, other.firstStep)) continue;
      if (mine.offset != other.offset) change("memory that something else uses", [=](Placement &at, Plan &p) { at.offset = p.placements[o].offset; });
      return;
    }
  }

  void memory() {
    for (size_t a = 0; a < p_.arenas.size(); ++a) {
      auto change = [&](const char *kind, std::function<void(Arena &)> apply) {
        add(kind, fmt::format("arena {}", a), [=](Plan &p) { apply(p.arenas[a]); });
      };
      const bool used = std::any_of(p_.placements.begin(), p_.placements.end(), [&](const Placement &at) {
        return at.where == Where::Arena && at.arena == a && !at.bytes.isConst(0);
      });
      if (!used) continue;
      // What is rounded up leaves some room.
      change("an arena that is too small", [](Arena &at) { at.bytes = at.bytes.isConst() ? at.bytes - 64 : floorDiv(at.bytes, 2); });
      change("an arena is late or not", [](Arena &at) { at.late = !at.late; });
    }
    if (p_.arenas.size() > 1) add("the last arena is dropped", "", [](Plan &p) { p.arenas.pop_back(); });
  }

  void sizes() {
    for (size_t i = 0; i < p_.inputSizes.size(); ++i)
      for (size_t d = 0; d < p_.inputSizes[i].size(); ++d) {
        auto change = [&](const char *kind, std::function<void(InputSize &)> apply) {
          add(kind, fmt::format("input {} size {}", i, d), [=](Plan &p) { apply(p.inputSizes[i][d]); });
        };
        const InputSize &size = p_.inputSizes[i][d];
        if (p_.program.inputs[i].kind != loops::ProgramInput::Kind::Tensor) continue;
        if (size.defines.valid()) change("a size is not taken", [](InputSize &at) { at.defines = {}; });
        if (size.equal.valid()) {
          change("a size is not compared", [](InputSize &at) { at.equal = Expr(); });
          change("a size is compared with another", [](InputSize &at) { at.equal = at.equal + 1; });
        }
        change("a size may be anything", [](InputSize &at) { at.range = {INT64_MIN, INT64_MAX}; });
      }
    for (size_t d = 0; d < p_.definitions.size(); ++d) {
      add("a definition is dropped", "", [=](Plan &p) { p.definitions.erase(p.definitions.begin() + static_cast<int64_t>(d)); });
      add("a definition comes twice", "", [=](Plan &p) { p.definitions.push_back(p.definitions[d]); });
    }
    for (size_t g = 0; g < p_.guards.size(); ++g) {
      add("a guard before the steps is dropped", "", [=](Plan &p) { p.guards.erase(p.guards.begin() + static_cast<int64_t>(g)); });
      add("a guard before the steps comes twice", "", [=](Plan &p) { p.guards.push_back(p.guards[g]); });
      add("a guard before the steps tests something else", "", [=](Plan &p) { p.guards[g].condition = logicalNot(p.guards[g].condition); });
    }
    if (!p_.inputSizes.empty()) add("an input's sizes are dropped", "", [](Plan &p) { p.inputSizes.pop_back(); });
  }

  void callerOutputs() {
    for (size_t k = 0; k < p_.outputs.size(); ++k) {
      auto change = [&](const char *kind, std::function<void(CallerOutput &, Plan &)> apply) {
        add(kind, fmt::format("output {}", k), [=](Plan &p) { apply(p.outputs[k], p); });
      };
      change("an output is dropped", [=](CallerOutput &, Plan &p) { p.outputs.erase(p.outputs.begin() + static_cast<int64_t>(k)); });
      change("an output comes twice", [=](CallerOutput &, Plan &p) { p.outputs.insert(p.outputs.begin(), p.outputs[k]); });
      change("an output is another", [](CallerOutput &at, Plan &) { at.output += 1; });
      if (p_.program.outputs[p_.outputs[k].output].kind != loops::ProgramOutput::Kind::Tensor) continue;
      change("an output is late or not", [](CallerOutput &at, Plan &) { at.late = !at.late; });
      if (p_.outputs[k].buffer.valid()) {
        change("an output's buffer is not there", [](CallerOutput &at, Plan &) { at.buffer = BufferId(9999); });
        for (const loops::Buffer &b : p_.program.buffers)
          if (b.id != p_.outputs[k].buffer && p_.placements[b.id.index()].where != Where::None) {
            change("an output is another buffer", [to = b.id](CallerOutput &at, Plan &) { at.buffer = to; });
            break;
          }
      }
      if (!p_.outputs[k].bytes.isConst(0) && !p_.outputs[k].late)
        change("an output has too little memory", [](CallerOutput &at, Plan &) { at.bytes = at.bytes - 1; });
    }
  }
};

} // namespace

std::vector<Mutant<Plan>> mutantsOf(const Plan &plan, bool complete) { return Maker(plan, complete).run(); }

} // namespace neso::test
