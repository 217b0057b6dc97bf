// Products that are under way while the loop goes on, carried out on paper: which of them are complete where.
#pragma once
#include <optional>

#include "ir/tile/placed.h"

namespace neso::nvidia {

struct OpenProductsFault {
  mlir::Operation *op;
  const char *rule;
};

/// Runs the loop, and what stands before it in its block, for as many turns as bring every slot of its rings round, in
/// the worst order that its waits allow: between two waits of the block (async_wait) any thread may be before or behind
/// another. Slots are followed by value; a slot that depends on more than counters is any slot.
std::optional<OpenProductsFault> runOpenProducts(mlir::scf::ForOp loop);

} // namespace neso::nvidia
