// What a software pipeline of one loop does (pipeline.h): found by planLoop, planProducts, carried out by the rewriter.
#pragma once
#include <vector>

#include "backend/nvidia/dot.h"
#include "llvm/ADT/SetVector.h"

namespace neso::nvidia {

struct PipelinedLoad {
  tt::LoadOp load;
  int fast; // the dim with neighbours in memory
  /// How many turns before the others its tile is read: 1 where products that run a turn ahead read it.
  int lead = 0;
  mlir::Value ring = {};
};

/// The ops of a loop that lead to some values, and the numbers of the iteration arguments that they begin from.
struct LoopSlice {
  llvm::SetVector<mlir::Operation *> ops;
  llvm::SetVector<unsigned> arguments;
};

/// A product that is still under way when the next turn begins.
struct OpenProduct {
  tt::DotOp dot;
  unsigned number = 0; // of the iteration argument that is its sums
  /// What stands behind the wait for the product of the turn before, in order: what the argument becomes before it is
  /// added to, and what makes the left operand out of `tied` (may be null), whose registers that product still reads.
  llvm::SetVector<mlir::Operation *> late;
  mlir::Value tied;
};

struct LoopPlan {
  mlir::scf::ForOp loop;
  int slots = 0;
  /// How many turns the copies run ahead: all slots but the one that is read, and but those of products under way.
  int ahead = 0;
  std::vector<PipelinedLoad> loads;
  LoopSlice slice; // of addresses and masks
  /// The product whose steps along K read their operands one step ahead; null: products read whole tiles.
  tt::DotOp stepped;
  int64_t stepK = 0;
  /// Products that are begun a turn before their sums are used.
  llvm::SetVector<mlir::Operation *> early;
  /// Where there are early products, in the order of the loop; else one at most, the loop's only one.
  std::vector<OpenProduct> open;
};

/// Left for what the rest of the kernel wants of shared memory while a ring is live.
inline constexpr int64_t kReserve = 16 * 1024;

int64_t tileBytes(tt::LoadOp load);
/// Decides on stepped, early and open, and the slots and turns that they take. most: slots.
void planProducts(LoopPlan &plan, const Chip &chip, int warps, int most, bool early);
/// By other instructions than wgmma.
DotPlan planOf(tt::DotOp dot, const Chip &chip, int warps);

} // namespace neso::nvidia
