#include "ir/loops/four_bits.h"

#include <algorithm>

#include "ir/loops/dependences.h"

namespace neso::loops {

bool isFourBits(const Body &body, const Op &op) {
  constexpr int64_t kMask = 15;
  if (op.kind != OpKind::And) return false;
  const Op &mask = body.ops[static_cast<size_t>(op.b)];
  return mask.kind == OpKind::Constant && mask.immInt == kMask;
}

bool usesFourBits(const Body &body, ValueIdx root) {
  const std::set<ValueIdx> used = reachable(body, root);
  return std::any_of(used.begin(), used.end(), [&](ValueIdx i) { return isFourBits(body, body.ops[static_cast<size_t>(i)]); });
}

} // namespace neso::loops
