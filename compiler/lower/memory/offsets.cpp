// Offsets of all intermediates: life times over the tree of steps, results in the memory of operands that die, one arena.
#include <algorithm>
#include <numeric>

#include "ir/plan/lives.h"
#include "ir/plan/steps.h"
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

std::vector<Life> livesOf(const Plan &p, const plan::LifeTimes &times) {
  std::vector<Life> out;
  for (const Buffer &b : p.program.buffers) {
    const Placement &place = p.placements[b.id.index()];
    if (place.where != Placement::Where::Arena || place.arena != 0) continue;
    out.push_back({b.id.index(), times.first[b.id.index()], times.last[b.id.index()], reserve(bytesOf(b))});
  }
  return out;
}

} // namespace

void planOffsets(Plan &p, const MemoryOptions &options) {
  const plan::LifeTimes times(p);
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
      for (auto [result, operand] : plan::inPlacePairs(p, p.kernels[l->kernel.index()])) {
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
