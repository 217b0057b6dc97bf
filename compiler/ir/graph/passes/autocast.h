// Regions under torch.autocast.
#pragma once
#include "ir/graph/graph.h"

namespace neso::graph {

/// The casts that autocast makes at each operator of a region, by torch's lists for the region's device, become calls of their own, and the
/// region is an ordinary one. It comes before functionalize: operators in place are on none of the lists, the functional ones that they become are.
///     %y = higher_order.wrap_with_autocast("cpu", bf16, true, None, {%r = aten.linear(%x, %w)}, …)   ->   {%r = aten.linear(_to_copy(%x, bf16), _to_copy(%w, bf16))}
void writeOutAutocast(Model &model);

} // namespace neso::graph
