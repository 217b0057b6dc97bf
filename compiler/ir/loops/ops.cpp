#include "ir/loops/ops.h"

#include <iterator>

namespace neso::loops {

#define OWN \
  {}
#define REAL(f) {.real = f}
#define INTS(i) {.sign = i, .unsign = i, .logic = i}
#define OPS(f, s, u, b) {.real = f, .sign = s, .unsign = u, .logic = b}
#define COMPARE {.compares = true}

static constexpr OpInfo kOps[] = {
#define NESO_LOOP_OP(kind, text, operands, domain, types, cost, flags, ...)                                            \
  {text, operands, OpDomain::domain, OpTypes::types, cost, flags, __VA_ARGS__},
#include "ir/loops/ops.def"
};

std::optional<OpKind> opNamed(std::string_view text) {
  for (size_t k = 0; k < std::size(kOps); ++k)
    if (kOps[k].text == text) return static_cast<OpKind>(k);
  return std::nullopt;
}

const OpInfo &info(OpKind kind) { return kOps[static_cast<size_t>(kind)]; }

} // namespace neso::loops
