// ATen's type promotion.
#pragma once
#include "ir/graph/graph.h"

namespace neso::graph {

/// The dtype that ATen computes from these operands (c10::result_type): tensors with dimensions count first, then
/// tensors of rank 0, then numbers; a lower class decides only when its category (bool < integer < float < complex) is
/// higher. Arguments that are no operands (None, strings, …) are ignored; nullopt if none is one.
std::optional<DType> resultType(const Graph &graph, const std::vector<Argument> &operands);

} // namespace neso::graph
