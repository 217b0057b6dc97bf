// Offsets of all intermediates: life times over the tree of steps, results in the memory of operands that die, one arena.
#include <algorithm>
#include <numeric>

#include "ir/loops/access.h"
#include "ir/plan/access.h"
#include "lower/memory/arena.h"
#include "lower/memory/memory.h"

namespace neso::memory {

using namespace loops;
using plan::Placement;
using plan::Plan;

namespace {

constexpr int64_t kAlign = 64;

Expr alignUp(Expr bytes) { return ceilDiv(bytes, kAlign) * Expr(kAlign); }
Expr alignDown(Expr bytes) { return floorDiv(bytes, kAlign) * Expr(kAlign); }
/// What the packing reserves: polynomials only, which compare well. Offsets are rounded down to 64 at the end; 63 bytes
/// more make up for that: floor64(p + bytes + 63) >= floor64(p) + ceil64(bytes).
Expr reserve(Expr bytes) {
  Expr aligned = alignUp(bytes);
  return aligned == bytes || aligned.isConst() ? aligned : bytes + Expr(kAlign - 1);
}
Expr bytesOf(const Buffer &b) { return b.elements * Expr(itemSize(b.dtype)); }

struct Life {
  size_t buffer;
  int first, last;
  Expr bytes;
};

/// Of the parts of k, those that no other part touches.
std::vector<std::pair<BufferId, BufferId>> inPlacePairs(const Plan &p, const plan::Kernel &k);
std::vector<std::pair<BufferId, BufferId>> inPlacePairsOfParts(const Plan &p, const plan::Kernel &k) {
  std::vector<std::pair<BufferId, BufferId>> out;
  for (plan::KernelId part : k.parts)
    for (auto [result, operand] : inPlacePairs(p, p.kernels[part.index()])) {
      bool alone = true;
      for (plan::KernelId other : k.parts)
        for (const plan::BufferAccess &a : plan::memoryAccesses(p, p.kernels[other.index()]))
          alone &= other == part || a.buffer != operand;
      if (alone) out.push_back({result, operand});
    }
  return out;
}

/// Buffers that kernel k may write over the memory of: (result, dying operand) pairs of equal size, read and written at
/// the same place.
std::vector<std::pair<BufferId, BufferId>> inPlacePairs(const Plan &p, const plan::Kernel &k) {
  std::vector<std::pair<BufferId, BufferId>> out;
  if (!k.parts.empty()) return inPlacePairsOfParts(p, k);
  if (k.kind != Node::Kind::Pointwise && k.kind != Node::Kind::Reduction) return out;
  plan::Passes passes = plan::passesOf(k);
  // Whether nothing of the kernel runs after node n: no operand is read again, and no value computed anew, once n has
  // overwritten one.
  auto runsLast = [&](size_t n) {
    bool innerAfter = false;
    for (size_t m = 0; m < k.nodes.size(); ++m)
      innerAfter |= !passes.inner[n] && passes.inner[m] && passes.pass[m] == passes.last;
    return n + 1 == k.nodes.size() && passes.pass[n] == passes.last && !innerAfter;
  };
  for (size_t n = 0; n < k.nodes.size(); ++n) {
    const Node &node = k.nodes[n];
    if (node.kind() != Node::Kind::Pointwise) continue;
    if (!k.rRanges.empty() && !runsLast(n)) continue;
    for (const Store &s : node.stores()) {
      if (s.mode != StoreMode::Set || s.mask >= 0) continue;
      const Buffer &result = p.program.buffer(s.buffer);
      for (const Access &load : accessesOf(node)) {
        if (load.mode != AccessMode::Read || load.masked || load.whole() || load.index != s.index) continue;
        const Buffer &operand = p.program.buffer(load.buffer);
        if (operand.id == result.id || itemSize(operand.dtype) != itemSize(result.dtype) ||
            operand.elements != result.elements)
          continue;
        bool onlyHere = true;
        for (size_t m = 0; m < k.nodes.size(); ++m)
          forEachAccess(k.nodes[m], [&](const Access &a) {
            if (a.buffer == operand.id) onlyHere &= !a.writes() && !a.whole() && a.index == s.index && m <= n;
            if (a.buffer == result.id) onlyHere &= !a.whole() && a.index == s.index && m >= n;
          });
        if (onlyHere) out.push_back({result.id, operand.id});
      }
    }
  }
  return out;
}

/// First and last step at which each buffer is touched, in the order of forEachStep. What a loop touches lives through all
/// of it: the next turn may need it.
class LifeTimes {
public:
  explicit LifeTimes(const Plan &p)
      : first(p.program.buffers.size(), -1), last(p.program.buffers.size(), -1), p_(p) {
    visit(p.main);
    // Scalars are read when the run ends.
    for (const ProgramOutput &o : p.program.outputs)
      if (o.kind == ProgramOutput::Kind::Float && o.buffer.valid()) last[o.buffer.index()] = steps;
  }
  std::vector<int> first, last;
  int steps = 0;

private:
  void touch(BufferId b, int from, int to) {
    int &begin = first[b.index()], &end = last[b.index()];
    begin = begin < 0 ? from : std::min(begin, from);
    end = std::max(end, to);
    for (std::vector<BufferId> &loop : loops_) loop.push_back(b);
  }
  void visit(const plan::Region &region) {
    for (const plan::Step &step : region.steps) {
      const int here = steps++;
      for (BufferId b : touchedBy(p_, step)) touch(b, here, here);
      if (const auto *branch = step.as<plan::If>()) visit(branch->then), visit(branch->otherwise);
      if (const auto *loop = step.as<plan::While>()) {
        loops_.emplace_back();
        visit(loop->test), visit(loop->body);
        const std::vector<BufferId> inside = std::move(loops_.back());
        loops_.pop_back();
        for (BufferId b : inside) touch(b, here, steps - 1);
      }
    }
  }
  const Plan &p_;
  std::vector<std::vector<BufferId>> loops_; // what the loops around touch, outermost first
};

std::vector<Life> livesOf(const Plan &p, const LifeTimes &times) {
  std::vector<Life> out;
  for (const Buffer &b : p.program.buffers) {
    const Placement &place = p.placements[b.id.index()];
    if (place.where != Placement::Where::Arena || place.arena != 0) continue;
    out.push_back({b.id.index(), times.first[b.id.index()], times.last[b.id.index()], reserve(bytesOf(b))});
  }
  return out;
}

} // namespace

std::vector<BufferId> touchedBy(const Plan &p, const plan::Step &step) {
  std::vector<BufferId> out;
  auto add = [&](BufferId b) {
    if (b.valid()) out.push_back(b);
  };
  auto kernel = [&](const plan::Kernel &k) {
    for (const plan::BufferAccess &a : plan::memoryAccesses(p, k)) add(a.buffer);
    for (const plan::KernelArg &a : k.args)
      if (a.kind == plan::KernelArg::Kind::Buffer) add(a.buffer);
  };
  if (const auto *launch = step.as<plan::Launch>()) {
    const plan::Kernel &k = p.kernels[launch->kernel.index()];
    kernel(k);
    if (k.product) {
      for (const plan::Matrix *m : {&k.product->a, &k.product->b, &k.product->d}) add(m->buffer);
      add(k.product->bias), add(k.product->workspace);
      if (k.product->rest.valid()) kernel(p.kernels[k.product->rest.index()]);
    }
  } else if (const auto *copy = step.as<plan::Copy>()) {
    add(copy->src), add(copy->dst);
  } else if (const auto *load = step.as<plan::LoadScalar>()) {
    add(load->buffer);
  } else if (const auto *call = step.as<plan::CallExtern>()) {
    plan::forEachView(call->call, [&](const ExternSpec::View &view, AccessMode) { add(view.buffer); });
  }
  return out;
}

void planOffsets(Plan &p, const MemoryOptions &options) {
  const LifeTimes times(p);
  for (Buffer &b : p.program.buffers) {
    Placement &place = p.placements[b.id.index()];
    place.firstStep = times.first[b.id.index()], place.lastStep = times.last[b.id.index()];
    place.bytes = alignUp(bytesOf(b));
  }
  std::vector<Life> lives = livesOf(p, times);
  std::vector<size_t> lifeOf(p.program.buffers.size(), SIZE_MAX);
  for (size_t k = 0; k < lives.size(); ++k) lifeOf[lives[k].buffer] = k;

  // A result that takes a dying operand's memory shares its block: blocks are chains of such buffers.
  std::vector<size_t> block(lives.size());
  std::iota(block.begin(), block.end(), 0);
  std::vector<bool> taken(lives.size()), given(lives.size());
  std::vector<const plan::Step *> steps;
  plan::forEachStep(p.main, [&](const plan::Step &step) { steps.push_back(&step); });
  if (options.inPlace)
    for (int s = 0; s < static_cast<int>(steps.size()); ++s) {
      const auto *l = steps[static_cast<size_t>(s)]->as<plan::Launch>();
      if (!l) continue;
      for (auto [result, operand] : inPlacePairs(p, p.kernels[l->kernel.index()])) {
        size_t a = lifeOf[result.index()], b = lifeOf[operand.index()];
        if (a == SIZE_MAX || b == SIZE_MAX || given[a] || taken[b]) continue;
        if (lives[a].first != s || lives[b].last != s ||
            lives[b].first == s)
          continue;
        given[a] = taken[b] = true;
        block[a] = block[b];
        p.kernels[l->kernel.index()].decisions.push_back(
            fmt::format("{} takes the memory of {}", p.program.buffer(result).name, p.program.buffer(operand).name));
      }
    }

  std::vector<Block> blocks(lives.size());
  for (size_t k = 0; k < lives.size(); ++k) {
    size_t root = k;
    while (block[root] != root) root = block[root];
    Block &b = blocks[root];
    b.first = std::min(b.first, lives[k].first);
    b.last = std::max(b.last, lives[k].last);
    b.bytes = lives[k].bytes;
    b.members.push_back(k);
  }
  std::erase_if(blocks, [](const Block &b) { return b.members.empty(); });

  p.arenaLowerBound = peakOf(blocks, steps.size(), p.program.facts);
  p.arenas[0].bytes = alignUp(placeBlocks(blocks, p.program.facts));
  for (const Block &b : blocks)
    for (size_t m : b.members) p.placements[lives[m].buffer].offset = alignDown(b.offset);
}

} // namespace neso::memory
