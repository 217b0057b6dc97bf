// Sparse tensors in coordinates (torch.sparse_coo) that the model makes: what is done with them becomes what is done with their indices and values,
// which are dense.
//
//     %s = aten.sparse_coo_tensor.indices_size(%i, %v, [m, n]);  %y = aten._sparse_mm(%s, %d)
//     ->  %rows = select(%i, 0, 0);  %columns = select(%i, 0, 1)
//         %y = index_add(full([m, k], 0), 0, %rows, index_select(%d, 0, %columns) * unsqueeze(%v, 1))
//
// It comes before all that looks at values, none of which knows such tensors. Errors: OpRefused for calls that it does not know, UnsupportedLayout for
// results of the model.
#pragma once
#include <string_view>

#include "ir/graph/graph.h"

namespace neso::graph {

Status writeOutCoordinates(Model &model);
/// Whether the operator is for sparse tensors alone, and known here.
bool isOfCoordinates(std::string_view target);

} // namespace neso::graph
