// How elements travel in the registers of tt.elementwise_inline_asm, the same for every back end.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace mlir {
class Operation;
}

namespace neso {

/// Elements of `bytes` bytes that one register holds where the assembly takes `pack` of each operand at a time: elements below 32 bits
/// share one.
int elementsPerRegister(int64_t pack, int64_t bytes);

/// What the constraints say that the operands and results do not: another number of registers, or narrower ones. Nothing when they agree.
std::optional<std::string> constraintMisfit(mlir::Operation *assembly);

} // namespace neso
