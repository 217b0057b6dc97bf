// What is under way while a block goes on, carried out on paper: asynchronous copies, and products that were begun.
#pragma once
#include <optional>

#include "backend/nvidia/chip.h"
#include "ir/tile/placed.h"

namespace neso::nvidia {

struct UnderWayFault {
  mlir::Operation *op;
  const char *rule;
};

/// Carries out the rings, barriers and open products of a placed function (rules N12 and N13 of verify.h) in the worst order that
/// its waits allow: between two waits of the block any thread may be before or behind another. Loops that use them have no
/// turn, then one, then two, … and as many as bring every slot and phase round; of a branch both sides are taken. Slots are followed by
/// value; a slot that depends on more than counters is any slot. The function keeps the other rules.
std::optional<UnderWayFault> findUnderWayFault(tt::FuncOp function, const Chip &chip, int warps);

} // namespace neso::nvidia
