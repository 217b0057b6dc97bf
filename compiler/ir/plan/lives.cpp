#include "ir/plan/lives.h"

#include <algorithm>

#include "ir/plan/access.h"
#include "ir/plan/steps.h"

namespace neso::plan {

using namespace loops;

std::vector<BufferId> touchedBy(const Plan &p, const Step &step) {
  std::vector<BufferId> out;
  auto add = [&](BufferId b) {
    if (b.valid()) out.push_back(b);
  };
  auto kernel = [&](const Kernel &k) {
    for (const BufferAccess &a : memoryAccesses(p, k)) add(a.buffer);
    for (const KernelArg &a : k.args)
      if (a.kind == KernelArg::Kind::Buffer) add(a.buffer);
  };
  if (const auto *launch = step.as<Launch>()) {
    const Kernel &k = p.kernels[launch->kernel.index()];
    kernel(k);
    if (k.product) {
      for (const Matrix *m : {&k.product->a, &k.product->b, &k.product->d}) add(m->buffer);
      add(k.product->bias), add(k.product->workspace);
      if (k.product->rest.valid()) kernel(p.kernels[k.product->rest.index()]);
    }
  }
  for (const NamedBuffer &named : namedBuffers(step)) add(named.buffer);
  return out;
}

LifeTimes::LifeTimes(const Plan &p) : first(p.program.buffers.size(), -1), last(p.program.buffers.size(), -1), p_(p) {
  visit(p.main);
  // Scalars are read when the run ends.
  for (const ProgramOutput &o : p.program.outputs)
    if (o.kind == ProgramOutput::Kind::Float && o.buffer.valid()) last[o.buffer.index()] = steps;
}

void LifeTimes::touch(BufferId b, int from, int to) {
  int &begin = first[b.index()], &end = last[b.index()];
  begin = begin < 0 ? from : std::min(begin, from);
  end = std::max(end, to);
  for (std::vector<BufferId> &loop : loops_) loop.push_back(b);
}

void LifeTimes::visit(const Region &region) {
  for (const Step &step : region.steps) {
    const int here = steps++;
    for (BufferId b : touchedBy(p_, step)) touch(b, here, here);
    const bool turns = step.as<While>();
    if (turns) loops_.emplace_back();
    for (const Region *inside : regionsInside(step)) visit(*inside);
    if (turns) {
      const std::vector<BufferId> inside = std::move(loops_.back());
      loops_.pop_back();
      for (BufferId b : inside) touch(b, here, steps - 1);
    }
  }
}

/// Of the parts of k, those that no other part touches.
static std::vector<std::pair<BufferId, BufferId>> inPlacePairsOfParts(const Plan &p, const Kernel &k) {
  std::vector<std::pair<BufferId, BufferId>> out;
  for (KernelId part : k.parts)
    for (auto [result, operand] : inPlacePairs(p, p.kernels[part.index()])) {
      bool alone = true;
      for (KernelId other : k.parts)
        for (const BufferAccess &a : memoryAccesses(p, p.kernels[other.index()]))
          alone &= other == part || a.buffer != operand;
      if (alone) out.push_back({result, operand});
    }
  return out;
}

std::vector<std::pair<BufferId, BufferId>> inPlacePairs(const Plan &p, const Kernel &k) {
  std::vector<std::pair<BufferId, BufferId>> out;
  if (!k.parts.empty()) return inPlacePairsOfParts(p, k);
  if (k.kind != Node::Kind::Pointwise && k.kind != Node::Kind::Reduction) return out;
  Passes passes = passesOf(k);
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

} // namespace neso::plan
