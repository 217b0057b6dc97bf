#include "lower/schedule/memory.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "ir/plan/access.h"
#include "lower/schedule/access.h"
#include "lower/schedule/arena.h"

namespace neso::schedule {

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

bool contiguousFromZero(const ProgramOutput &o, Expr elements, const Facts &facts) {
  // The output's memory reaches exactly as far as the buffer: then both are the same flat array.
  Expr reach = 1;
  bool empty = false;
  for (size_t d = 0; d < o.sizes.size(); ++d) {
    if (o.sizes[d].isConst(0)) empty = true;
    Expr stride = d < o.strides.size() ? o.strides[d] : Expr(1);
    reach = reach + (o.sizes[d] - 1) * stride;
  }
  if (empty) return true;
  return o.offset.isConst(0) && (reach == elements || facts.provablyEqual(reach, elements));
}

struct Life {
  size_t buffer;
  int first, last;
  Expr bytes;
};

} // namespace

void placeOutputs(Plan &p) {
  Program &program = p.program;
  p.placements.assign(program.buffers.size(), {});
  // A temp needs memory if two kernels touch it, or one in a way that is not forwarded.
  std::vector<bool> inMemory(program.buffers.size());
  std::vector<int> user(program.buffers.size(), -1);
  for (const plan::Kernel &k : p.kernels) {
    std::set<int32_t> seen;
    for (const Node &n : k.nodes)
      forEachAccess(n, [&](const Access &a) {
        if (!seen.insert(a.buffer.value).second) return;
        inMemory[a.buffer.index()] =
            inMemory[a.buffer.index()] || user[a.buffer.index()] >= 0 || !plan::livesInside(k, a.buffer);
        user[a.buffer.index()] = k.id.value;
      });
  }
  for (size_t k = 0; k < program.outputs.size(); ++k) {
    const ProgramOutput &o = program.outputs[k];
    if (o.buffer.valid()) inMemory[o.buffer.index()] = true;
  }
  for (const Buffer &b : program.buffers) {
    Placement &place = p.placements[b.id.index()];
    place.bytes = alignUp(bytesOf(b));
    switch (b.kind) {
    case Buffer::Kind::Input:
    case Buffer::Kind::ScalarInput: place.where = Placement::Where::Input; break;
    case Buffer::Kind::Constant: place.where = Placement::Where::Constant; break;
    case Buffer::Kind::Temp:
      place.where = inMemory[b.id.index()] ? Placement::Where::Arena : Placement::Where::None;
      break;
    }
  }
  for (size_t k = 0; k < program.outputs.size(); ++k) {
    const ProgramOutput &o = program.outputs[k];
    if (o.kind != ProgramOutput::Kind::Tensor) continue;
    const Buffer &b = program.buffer(o.buffer);
    Placement &place = p.placements[b.id.index()];
    bool writeBack = o.writeBackTo.valid();
    if (writeBack && o.writeBackTo == o.buffer) continue;
    if (!writeBack && b.kind == Buffer::Kind::Temp && place.where == Placement::Where::Arena && b.dtype == o.dtype &&
        contiguousFromZero(o, b.elements, program.facts)) {
      place.where = Placement::Where::Output;
      place.output = static_cast<int>(k);
      continue;
    }
    plan::Copy copy;
    copy.src = o.buffer;
    copy.dtype = o.dtype;
    copy.sizes = o.sizes;
    copy.srcStrides = copy.dstStrides = o.strides;
    copy.srcOffset = o.offset;
    if (writeBack) {
      copy.dst = o.writeBackTo, copy.dstStrides = o.writeBackStrides, copy.dstOffset = o.writeBackOffset;
    } else {
      copy.dstOutput = static_cast<int>(k);
    }
    p.steps.push_back(copy);
  }
  // Write-backs change inputs that copies to outputs may still read: the latter go first.
  std::stable_partition(p.steps.begin(), p.steps.end(), [](const plan::Step &s) {
    const plan::Copy *c = std::get_if<plan::Copy>(&s);
    return !c || c->dstOutput >= 0;
  });
}

namespace {

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
    if (node.kind != Node::Kind::Pointwise) continue;
    if (!k.rRanges.empty() && !runsLast(n)) continue;
    for (const Store &s : node.stores) {
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

std::vector<Life> livesOf(const Plan &p, const std::vector<std::vector<BufferId>> &touched) {
  std::vector<int> first(p.program.buffers.size(), -1), last(p.program.buffers.size(), -1);
  for (size_t s = 0; s < touched.size(); ++s)
    for (BufferId b : touched[s]) {
      if (first[b.index()] < 0) first[b.index()] = static_cast<int>(s);
      last[b.index()] = static_cast<int>(s);
    }
  for (const ProgramOutput &o : p.program.outputs) // scalars are read when the run ends
    if (o.kind == ProgramOutput::Kind::Float && o.buffer.valid())
      last[o.buffer.index()] = static_cast<int>(touched.size());
  std::vector<Life> out;
  for (const Buffer &b : p.program.buffers)
    if (p.placements[b.id.index()].where == Placement::Where::Arena) {
      out.push_back({b.id.index(), first[b.id.index()], last[b.id.index()], reserve(bytesOf(b))});
    }
  return out;
}

std::vector<BufferId> touchedBy(const Plan &p, const plan::Step &step) {
  std::vector<BufferId> out;
  if (const plan::Launch *l = std::get_if<plan::Launch>(&step)) {
    for (const plan::BufferAccess &a : plan::memoryAccesses(p, p.kernels[l->kernel.index()])) out.push_back(a.buffer);
  } else if (const plan::Copy *c = std::get_if<plan::Copy>(&step)) {
    out.push_back(c->src);
    if (c->dst.valid()) out.push_back(c->dst);
  } else if (const plan::LoadScalar *s = std::get_if<plan::LoadScalar>(&step)) {
    out.push_back(s->buffer);
  }
  return out;
}

} // namespace

void planArena(Plan &p, const ScheduleOptions &options) {
  std::vector<std::vector<BufferId>> touched;
  for (const plan::Step &s : p.steps) touched.push_back(touchedBy(p, s));
  std::vector<Life> lives = livesOf(p, touched);
  std::vector<size_t> lifeOf(p.program.buffers.size(), SIZE_MAX);
  for (size_t k = 0; k < lives.size(); ++k) lifeOf[lives[k].buffer] = k;
  for (const Life &l : lives) {
    p.placements[l.buffer].firstStep = l.first;
    p.placements[l.buffer].lastStep = l.last;
  }

  // A result that takes a dying operand's memory shares its block: blocks are chains of such buffers.
  std::vector<size_t> block(lives.size());
  std::iota(block.begin(), block.end(), 0);
  std::vector<bool> taken(lives.size()), given(lives.size());
  if (options.inPlace)
    for (size_t s = 0; s < p.steps.size(); ++s) {
      const plan::Launch *l = std::get_if<plan::Launch>(&p.steps[s]);
      if (!l) continue;
      for (auto [result, operand] : inPlacePairs(p, p.kernels[l->kernel.index()])) {
        size_t a = lifeOf[result.index()], b = lifeOf[operand.index()];
        if (a == SIZE_MAX || b == SIZE_MAX || given[a] || taken[b]) continue;
        if (lives[a].first != static_cast<int>(s) || lives[b].last != static_cast<int>(s) ||
            lives[b].first == static_cast<int>(s))
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

  p.arenaLowerBound = peakOf(blocks, p.steps.size(), p.program.facts);
  p.arenaBytes = alignUp(placeBlocks(blocks, p.program.facts));
  for (const Block &b : blocks)
    for (size_t m : b.members) p.placements[lives[m].buffer].offset = alignDown(b.offset);
}

} // namespace neso::schedule
