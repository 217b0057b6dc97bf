#include "lower/tiling/ways.h"

#include "lower/tiling/contraction.h"
#include "lower/tiling/cost.h"
#include "lower/tiling/library.h"

namespace neso {

using Kind = loops::Node::Kind;

namespace {

constexpr size_t kDotBlocks = 4; // beside the best by cost

void addBlocks(std::vector<Way> &ways, const TileTarget &target) {
  for (int shift : {1, -1}) {
    Way w{shift > 0 ? "blocks x2" : "blocks /2", target};
    for (int64_t *size : {&w.target.pointwiseBlock, &w.target.reduceChunk, &w.target.columnBlock})
      *size = shift > 0 ? *size * 2 : *size / 2;
    ways.push_back(std::move(w));
  }
}

void addWarps(std::vector<Way> &ways, const TileTarget &target) {
  for (int shift : {1, -1}) ways.push_back({shift > 0 ? "warps x2" : "warps /2", target, shift});
}

void addProducts(std::vector<Way> &ways, const plan::Plan &plan, plan::Kernel kernel, const TileTarget &target) {
  const Facts &facts = plan.program.facts;
  std::optional<DotTiling> c = chooseDotTiling(kernel, facts, target);
  if (!c || c->slices > 1) return;
  const std::vector<DotBlock> blocks = dotBlocks(target, sizesOf(*c, kernel, facts));
  // A way by our kernel must not be one by the library.
  TileTarget own = target;
  own.library = TileTarget::Library::Never;
  for (size_t i = 1; i < blocks.size() && i <= kDotBlocks; ++i) {
    Way w{fmt::format("dot {}x{}", blocks[i].m, blocks[i].n), own};
    w.target.fixedDotM = blocks[i].m, w.target.fixedDotN = blocks[i].n;
    ways.push_back(std::move(w));
  }
  for (int stages : {2, 4}) {
    Way w{fmt::format("stages {}", stages), own};
    w.target.fixedStages = stages;
    ways.push_back(std::move(w));
  }
  TileTarget always = target;
  always.library = TileTarget::Library::Always;
  if (target.library == TileTarget::Library::Never || !libraryForm(plan, kernel, *c, always)) return;
  ways.push_back({"own", own});
  ways.push_back({"library", always});
}

} // namespace

std::vector<Way> waysOf(const plan::Plan &plan, const plan::Kernel &kernel, const TileTarget &target) {
  std::vector<Way> ways = {{"model", target}};
  switch (kernel.kind) {
  case Kind::Pointwise:
  case Kind::Reduction:
  case Kind::Scan:
    if (kernel.serial) break;
    addBlocks(ways, target);
    if (target.threadBlocks) addWarps(ways, target);
    break;
  case Kind::Contraction:
    if (target.threadBlocks) addProducts(ways, plan, kernel, target);
    break;
  case Kind::Attention:
    if (target.threadBlocks) addWarps(ways, target);
    break;
  case Kind::Segments:
  case Kind::Sort:
  case Kind::UserKernel:
  case Kind::ReadScalar:
  case Kind::Region:
  case Kind::Extern: break;
  }
  return ways;
}

} // namespace neso
