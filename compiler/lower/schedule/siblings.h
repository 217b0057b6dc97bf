// Products that share an operand and have constants as the other one become one product, whose result their readers see in parts.
//
//     q[i0, i1] = x[i0, r0] * wq[i1, r0]       qkv[i0, i1] = x[i0, r0] * wqkv[i1, r0], i1 < 3 * 768
//     k[i0, i1] = x[i0, r0] * wk[i1, r0]  →    and who read k[768*i0 + i1] reads qkv[2304*i0 + i1 + 768]
//     v[i0, i1] = x[i0, r0] * wv[i1, r0]
//
// Constants that run along the columns (weights, scales of quantised ones, biases) become one constant each, which keeps how it was made; the
// others and what stands behind the sums must be alike. Sums are added in the order in which they were added before.
//
// Stands before products are cut along k, which asks how large they are, and before fusion, of which it must foresee what a product of its own
// would have computed behind its sums: that becomes a pass over memory. By the machine's rates, one product must take less time than several.
#pragma once
#include "lower/schedule/schedule.h"
#include "lower/schedule/users.h"

namespace neso::schedule {

Remarks joinSiblings(loops::Program &program, const SplitRule &rule);

} // namespace neso::schedule
