// Operations of a tile function as numbers, for switches: opcodes.def is the list.
#pragma once
#include <cstdint>

#include "mlir/IR/Operation.h"

namespace neso {

enum class OpCode : uint8_t {
  Unknown,
#define NESO_OP(code, name, cls, cost) code,
#include "backend/common/opcodes.def"
#undef NESO_OP
};
enum class OpClass : uint8_t { Unknown, Element, Index, Load, Sink, Flow };

/// Unknown for an operation that opcodes.def does not have. Thread-safe.
OpCode codeOf(mlir::Operation *op);
OpClass classOf(OpCode code);
/// Instructions of one element (CPU: of one vector), roughly: recomputing is weighed by it.
int costOf(OpCode code);

} // namespace neso
