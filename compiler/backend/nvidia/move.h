// Bringing a tensor from one layout into another, and through shared memory.
//
//     Tile b = convertTile(block, a, wanted);   // registers, shuffles or shared memory, as ir/layout/convert.h decides
//
// Shared memory is written by one owner an element, in the widest accesses that the layouts allow, and waits for other
// threads only by the dependences that SharedMemory knows. All functions are executed by every thread of the block.
#pragma once
#include "backend/nvidia/block.h"
#include "backend/nvidia/shared.h"
#include "llvm/ADT/DenseMap.h"

namespace neso::nvidia {

/// A tensor in shared memory. layout: offset (in elements) -> dims. i1 takes a byte, a pointer 8 bytes.
struct SharedTile {
  SharedBuffer buffer;
  LinearLayout layout;
  llvm::Type *element = nullptr;     // as in Registers
  llvm::Value *byteOffset = nullptr; // i32, of the tensor in the buffer; null: 0
  /// Of a part of the tensor: the offset of its first element, in elements. Since layouts are linear, offsets in the
  /// part are those at the tensor's begin xor this. MatrixLoader alone reads parts.
  uint64_t flip = 0;
  /// Of a ring: waiting for its copies is an operation of its own, and reading waits for nobody.
  bool synchronised = false;
};

/// Addresses of the calling thread's elements in a shared tensor. map: (register, lane, warp) -> offset in elements.
class SharedAddresses {
public:
  SharedAddresses(BlockContext &block, const SharedTile &tile, LinearLayout map);
  /// ptr addrspace(3) of the element at register `reg`.
  llvm::Value *of(uint64_t reg);
  const LinearLayout &map() const { return map_; }
  /// The bits of an offset that depend on the thread.
  uint64_t varying() const { return varying_; }

private:
  BlockContext &block_;
  SharedTile tile_;
  LinearLayout map_;
  uint64_t bytes_, varying_;
  llvm::Value *thread_; // bytes
  llvm::DenseMap<uint64_t, llvm::Value *> bases_;
};

/// Bytes that an element takes in shared memory.
int64_t sharedBytes(llvm::Type *element);

/// Whether a conversion of elements of that many bits goes through shared memory; registers or shuffles do otherwise.
bool movesThroughShared(const LinearLayout &from, const LinearLayout &wanted, int bits);
/// The same tensor in `wanted`.
Tile convertTile(BlockContext &block, const Tile &tile, const LinearLayout &wanted);

/// Writes every element once. The caller has room in `to.buffer`; barriers by beforeWrite.
void storeShared(BlockContext &block, const Tile &tile, const SharedTile &to);
/// Reads the tensor into `wanted`; barriers by beforeRead.
Tile loadShared(BlockContext &block, const SharedTile &from, const LinearLayout &wanted);

/// Only the owners (ownsElements) hold good values: gives them to the threads that hold copies. For results of atomics.
Tile broadcastFromOwners(BlockContext &block, const Tile &tile);

/// `values` of the thread in lane `lane` (i32) of the own warp. Any element type of Registers.
llvm::Value *shuffle(BlockContext &block, llvm::Value *value, llvm::Value *lane);
/// The same from lane `own lane xor mask`.
llvm::Value *shuffleXor(BlockContext &block, llvm::Value *value, uint32_t mask);

/// tt.cat: the rows of `b` behind those of `a` (dim 0). Both have one layout; nothing moves.
Tile catTiles(const Tile &a, const Tile &b);
/// tt.gather: result[i..] = source[i.., with index `indices[i..]` at `axis`], in the layout of `indices`. Indices (i8
/// to i64) outside the source are the user's mistake and read anything inside the buffer.
Tile gatherTile(BlockContext &block, const Tile &source, const Tile &indices, int axis);
/// tt.histogram: counts of the values of `source` (integers) in [0, size of `wanted`), by atomics in shared memory;
/// others count nowhere. mask: null or i1 in the layout of `source`. Results are integers of type `count`, i32 or i64.
Tile histogramTile(BlockContext &block, const Tile &source, const Tile *mask, const LinearLayout &wanted,
                   llvm::Type *count);

} // namespace neso::nvidia
