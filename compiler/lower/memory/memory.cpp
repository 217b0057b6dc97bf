#include "lower/memory/memory.h"

#include <algorithm>
#include <set>

#include "ir/plan/lives.h"
#include "ir/plan/steps.h"

namespace neso::memory {

using namespace loops;
using plan::Placement;
using plan::Plan;

namespace {

Expr bytesOf(const Buffer &b) { return max(b.elements * Expr(itemSize(b.dtype)), 0); }

/// Buffers that no step and no output touches need no memory, and constants among them no place in the package.
void dropUnused(Plan &p) {
  std::vector<bool> used(p.program.buffers.size());
  plan::forEachStep(p.main, [&](const plan::Step &step) {
    for (BufferId b : plan::touchedBy(p, step)) used[b.index()] = true;
  });
  for (const ProgramOutput &o : p.program.outputs) {
    using Kind = ProgramOutput::Kind;
    if (o.buffer.valid() && (o.kind == Kind::Tensor || o.kind == Kind::Float)) used[o.buffer.index()] = true;
    if (o.writeBackTo.valid()) used[o.writeBackTo.index()] = true;
  }
  for (const Buffer &b : p.program.buffers)
    if (!used[b.id.index()]) p.placements[b.id.index()].where = Placement::Where::None;
}

/// Buffers whose size the run finds out have memory of their own: in a common arena the offsets of others would move.
void chooseArenas(Plan &p, const std::vector<Symbol> &late) {
  p.arenas.assign(1, {});
  for (const Buffer &b : p.program.buffers) {
    Placement &place = p.placements[b.id.index()];
    place.arena = 0;
    if (place.where != Placement::Where::Arena || !plan::lateness(late, b.elements)) continue;
    place.arena = p.arenas.size(), place.offset = 0;
    p.arenas.push_back({bytesOf(b), true});
  }
}

/// Bytes that a tensor of an output's sizes and strides reaches over.
Expr extentOf(const ProgramOutput &o) {
  Expr contiguous = 1, last = 1;
  bool dense = true;
  for (size_t d = o.sizes.size(); d-- > 0;) {
    const Expr stride = d < o.strides.size() ? o.strides[d] : contiguous;
    dense &= stride == contiguous;
    last = last + (o.sizes[d] - 1) * stride;
    contiguous = contiguous * o.sizes[d];
  }
  return (dense ? contiguous : max(last, 0)) * Expr(itemSize(o.dtype));
}

void planOutputs(Plan &p, const std::vector<Symbol> &late) {
  std::set<int> copied;
  plan::forEachStep(p.main, [&](const plan::Step &step) {
    if (const auto *c = step.as<plan::Copy>(); c && !c->dst.valid()) copied.insert(c->dstOutput);
  });
  p.outputs.clear();
  for (size_t k = 0; k < p.program.outputs.size(); ++k) {
    const ProgramOutput &o = p.program.outputs[k];
    if (!o.mutationTarget.empty()) continue;
    plan::CallerOutput out;
    out.output = k;
    using Kind = ProgramOutput::Kind;
    if (copied.count(static_cast<int>(k))) {
      out.bytes = extentOf(o);
    } else if ((o.kind == Kind::Tensor || o.kind == Kind::Float) && o.buffer.valid()) {
      out.buffer = o.buffer;
      out.bytes = bytesOf(p.program.buffer(o.buffer));
    }
    if (o.kind == Kind::Tensor)
      out.late = std::max({plan::lateness(late, out.bytes), plan::lateness(late, o.sizes),
                           plan::lateness(late, o.strides)}) != 0;
    p.outputs.push_back(std::move(out));
  }
}

/// Behind each LoadScalar step, what its symbol makes known: sizes, guards, arenas, outputs.
class LateSteps {
public:
  LateSteps(const Plan &p, const std::vector<Symbol> &late) : p_(p), late_(late) {}

  void addTo(plan::Region &region) {
    std::vector<plan::Step> steps;
    for (plan::Step &step : region.steps) {
      for (plan::Region *inside : plan::regionsInside(step)) addTo(*inside);
      const auto *load = step.as<plan::LoadScalar>();
      const Symbol symbol = load ? load->symbol : Symbol();
      steps.push_back(std::move(step));
      if (!symbol.valid()) continue;
      const auto at = std::find(late_.begin(), late_.end(), symbol);
      steps.push_back(plan::EvalSizes{symbol});
      known(static_cast<size_t>(at - late_.begin()) + 1, steps);
    }
    region.steps = std::move(steps);
  }

private:
  void known(size_t number, std::vector<plan::Step> &steps) const {
    for (Expr g : p_.program.guards)
      if (!g.isConst(1) && plan::lateness(late_, g) == number) steps.push_back(plan::guardOf(g));
    for (const Assertion &a : p_.program.assertions)
      if (plan::lateness(late_, a.condition) == number) steps.push_back(plan::Guard{a.condition, a.message});
    for (size_t a = 0; a < p_.arenas.size(); ++a)
      if (p_.arenas[a].late && plan::lateness(late_, p_.arenas[a].bytes) == number) steps.push_back(plan::GrowArena{a});
    for (size_t k = 0; k < p_.outputs.size(); ++k) {
      const ProgramOutput &o = p_.program.outputs[p_.outputs[k].output];
      const size_t sized = std::max({plan::lateness(late_, p_.outputs[k].bytes), plan::lateness(late_, o.sizes),
                                     plan::lateness(late_, o.strides)});
      if (p_.outputs[k].late && sized == number) steps.push_back(plan::AllocOutput{k});
    }
  }
  const Plan &p_;
  const std::vector<Symbol> &late_;
};

} // namespace

void planMemory(Plan &p, const MemoryOptions &options) {
  const std::vector<Symbol> late = plan::lateSymbols(p);
  planSizes(p);
  p.guards.clear();
  for (Expr g : p.program.guards)
    if (!g.isConst(1) && plan::lateness(late, g) == 0) p.guards.push_back(plan::guardOf(g));
  for (const Assertion &a : p.program.assertions)
    if (plan::lateness(late, a.condition) == 0) p.guards.push_back({a.condition, a.message});
  for (const ProgramOutput &o : p.program.outputs)
    if (o.writeBackTo.valid()) p.program.buffer(o.writeBackTo).mutated = true;
  dropUnused(p);
  chooseArenas(p, late);
  planOutputs(p, late);
  LateSteps(p, late).addTo(p.main);
  // Steps are final: life times count them.
  planOffsets(p, options);
}

} // namespace neso::memory
