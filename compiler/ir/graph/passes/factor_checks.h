// Factorisations that fail: torch ends the call where a matrix is singular or not positive-definite.
#pragma once
#include "ir/graph/graph.h"

namespace neso::graph {

/// Operators that raise become those that say what went wrong in a tensor, and an assertion that nothing did; torch's own question, which
/// run_decompositions() leaves, becomes the assertion. It follows functionalize and comes before numberAsserts.
///     %y = aten.linalg_inv(%a)                      ->   %y, %info = aten.linalg_inv_ex(%a); aten._linalg_check_errors(%info, "linalg.inv", …)
///     aten._linalg_check_errors(%info, "linalg.inv", …)   ->   aten._assert_async.msg(logical_not(any(ne(%info, 0))), "linalg.inv: …")
void assertFactors(Model &model);

} // namespace neso::graph
