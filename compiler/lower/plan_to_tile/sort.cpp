#include "lower/plan_to_tile/sort.h"

#include "lower/plan_to_tile/sort_digits.h"
#include "lower/plan_to_tile/sort_select.h"
#include "lower/plan_to_tile/sort_tiles.h"

namespace neso {

void emitSort(KernelContext &k, const Facts &facts, const SortTiling &tiling) {
  if (k.target.threadBlocks) return emitTileSort(k, facts, tiling);
  NESO_CHECK(k.kernel.nodes[0].get<loops::SortSpec>().scratch, "a sort without scratch memory");
  if (tiling.method == SortTiling::Method::Select) return emitSelection(k, facts, tiling);
  emitDigitSort(k, facts, tiling);
}

} // namespace neso
