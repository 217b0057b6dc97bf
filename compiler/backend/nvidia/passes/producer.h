// The producer: warps beside those of the block, one thread of which begins the machine's copies.
//
//     tt.func @gemm(…) attributes {placed.producer = array<i32: 4, 24, 240>} {     4 warps of 24 registers a thread; 240 in the block's own
//       … barriers …; ttg.barrier local {placed.with_producer}
//       for … { ttg.by_one_thread %more { await empty; expect full; bulk_copy … } {placed.by_producer}; … }
//
// What stands in by_one_thread runs beside the block, as far ahead as its awaits let it: the producer walks through the function for itself,
// computes what leads to its copies, scalars and loops alone, and leaves out everything else. It comes to no wait of the block but those
// that say so; the block's own warps wait for one another without it. In the interpreter it is one order of many: copies begin where they stand.
//
//     N14  a producer has groups of four warps, and registers that a multiprocessor can give; all ttg.by_one_thread are its then, and stand
//          in loops and branches of a function of one block; what leads to them is computed of the function's scalar arguments without
//          reading memory
//
// Groups of four warps that multiply a turn's products by turns do not come in one another's way: while one has the tensor cores, the other
// computes what lies between its products.
//
//     turn first; for … { …; turn wait; d = dot … open; e = dot … open; turn pass; … }; turn last        each a ttg.barrier {placed.turn = "…"}
//
//     N15  turns are passed on once in each turn of a loop, behind the wait for one's own; before the loop the last group gives the first one
//          its turn, and behind it the first one takes back what the last has passed on
#pragma once
#include <optional>

#include "backend/nvidia/chip.h"
#include "ir/tile/placed.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

namespace neso::placed {
/// "first", "wait", "pass" or "last", of a ttg.barrier that is no wait of the block.
inline constexpr const char *kTurnAttr = "placed.turn";
} // namespace neso::placed

namespace neso::nvidia {

/// What a barrier is in this order. None: it is a wait of the block; Unknown: its text says something else (N15).
enum class Turn : uint8_t { None, First, Wait, Pass, Last, Unknown };
Turn turnOf(mlir::Operation *op);
void setTurn(mlir::Operation *op, Turn turn);

/// What the producer runs of a function.
struct ProducerSlice {
  llvm::DenseSet<mlir::Operation *> ops; // by_one_thread, waits with the block, scalars, and the loops and branches around them
  llvm::DenseSet<mlir::Value> values;    // results and iteration arguments of those loops and branches that are needed
  bool has(mlir::Value v) const { return values.contains(v); }
  /// Adds what leads to v; false where that is not computed of scalars alone.
  bool add(mlir::Value v);
  /// The same of an operation with the loops and branches around it, up to the function.
  bool addOperation(mlir::Operation *op);
};
/// Of a function with a producer; nothing where it breaks N14.
std::optional<ProducerSlice> producerSlice(tt::FuncOp function);

struct Producer {
  int warps = 4;
  int registers = 24, registersOfBlock = 240; // of a thread
};
/// Nothing: the function has none.
std::optional<Producer> producerOf(tt::FuncOp function);
/// For a block of so many warps; nothing where the machine has too few registers.
std::optional<Producer> producerFor(const Chip &chip, int warps);
/// How many such blocks a multiprocessor is to hold: by it the assembler knows how many registers a thread has at the entry.
int blocksWithProducer(const Chip &chip, int warps);

} // namespace neso::nvidia
