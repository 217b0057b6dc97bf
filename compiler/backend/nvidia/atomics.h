// What the chip has of atomics: asked where tensors are placed, where that is verified and where the instructions are written.
#pragma once
#include "backend/nvidia/chip.h"
#include "ir/tile/tile.h"

namespace neso::nvidia {

/// Whether the memory system changes the element alone (red): nobody asks for the old value, nobody waits for what it orders.
bool isReduction(tt::AtomicRMWOp op);
/// How many neighbours in memory one such instruction adds to (red.add.v4.f32); 1 where the chip has none for them.
int64_t mostAddedAtOnce(tt::AtomicRMWOp op, const Chip &chip);

} // namespace neso::nvidia
