// What the code of one thread block shares while it is emitted: the builder, the thread's place, and the block's shared
// memory.
//
// A tensor value is a Tile: a distributed layout (ir/layout/gpu.h: register, lane, warp, block -> dims) and one LLVM
// value for each register of the calling thread. The functions of move.h, reduce.h, scan.h, dot.h … work on Tiles
// through a BlockContext; the emitter walks the tile program and calls them.
#pragma once
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "backend/nvidia/chip.h"
#include "ir/layout/gpu.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/IRBuilder.h"

namespace neso::nvidia {

class SharedMemory; // shared.h

/// One LLVM value a register of the layout, in order of the register index. i1 tensors hold i1, pointers hold ptr
/// addrspace(1), bf16 and f16 their LLVM types, f8 types i8.
using Registers = llvm::SmallVector<llvm::Value *, 16>;

struct Tile {
  LinearLayout layout;
  Registers values;
};

struct BlockContext {
  llvm::IRBuilder<> &b;
  const Chip &chip;
  int warps = 4;
  llvm::Value *thread = nullptr, *lane = nullptr, *warp = nullptr; // i32
  SharedMemory &shared;
  /// i32: the thread's group of four warps, for products by wgmma; the assembler sees that a warp agrees on it. Null where
  /// there are none.
  llvm::Value *group = nullptr;
  /// Code that may stand anywhere before the next wait for copies: a product puts it between its instructions, so that
  /// the copies of later steps do not queue before its own loads. In order.
  std::deque<std::function<void()>> later = {};

  /// Warps beside those of the block that begin the machine's copies (passes/producer.h): the block's own wait for one another without them.
  int producerWarps = 0;

  int threads() const { return warps * 32; }
  /// Emits the first `count` of `later`.
  void emitLater(size_t count);
};

/// bar.sync of the block's own warps.
void emitBarrier(BlockContext &block);
/// The same with the producer's.
void emitBarrierOfAll(BlockContext &block);
/// The flat out index (first out-dim lowest) of register `reg` of the calling thread, i32: constants folded, one xor a
/// bit that varies.
llvm::Value *flatIndex(BlockContext &block, const LinearLayout &layout, int reg);
/// The same, one value an out-dim, in order of dim0, dim1, ….
llvm::SmallVector<llvm::Value *, 4> tensorIndex(BlockContext &block, const LinearLayout &layout, int reg);
/// The same for dim{dim} alone.
llvm::Value *dimIndex(BlockContext &block, const LinearLayout &layout, int reg, int dim);
/// i1: the calling thread is the one of lowest lane and warp among those that hold copies of the same elements (free
/// bits of lane and warp are zero). nullptr when no two threads hold the same element. Stores and atomics run under it.
llvm::Value *ownsElements(BlockContext &block, const LinearLayout &layout);

} // namespace neso::nvidia
