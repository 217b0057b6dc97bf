// Linear maps over GF(2) as instructions.
#pragma once
#include "backend/nvidia/block.h"

namespace neso::nvidia {

/// Image of index `value` (i32) under one in-dim's bases (basis i belongs to bit i of value), i32. One and, one shift
/// and one xor for each distance that a bit travels, so an identity costs one and.
llvm::Value *emitBases(llvm::IRBuilder<> &b, llvm::Value *value, llvm::ArrayRef<uint64_t> bases);

/// What the calling thread's lane and warp contribute to the flat out index of `map` (in-dims register, lane, warp, in
/// any order), i32; the register contributes the constant registerPart, and the index is their xor.
llvm::Value *emitThreadPart(BlockContext &block, const LinearLayout &map);
uint64_t registerPart(const LinearLayout &map, uint64_t reg);
/// The bits of the flat out index that some lane or warp bit touches.
uint64_t threadBits(const LinearLayout &map);

} // namespace neso::nvidia
