#include "lower/plan_to_tile/sort.h"

#include "lower/plan_to_tile/sort_digits.h"
#include "lower/plan_to_tile/sort_tiles.h"

namespace neso {

void emitSort(KernelContext &k, const Facts &facts, const SortTiling &tiling) {
  if (k.target.threadBlocks) return emitTileSort(k, facts, tiling);
  NESO_CHECK(k.kernel.nodes[0].get<loops::SortSpec>().scratch, "a sort without scratch memory");
  emitDigitSort(k, facts, tiling);
}

} // namespace neso
