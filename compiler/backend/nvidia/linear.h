// Linear maps over GF(2) as instructions, and the two other forms that the movers of data share: a conditional part,
// and values as words.
#pragma once
#include "backend/nvidia/block.h"
#include "llvm/ADT/STLFunctionalExtras.h"

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

/// values[r] becomes values[r xor the image of the thread's place under `map` (in-dims lane and warp, out-dim
/// register)]: a chain of selects, one level an image.
void emitPermute(BlockContext &block, const LinearLayout &map, llvm::MutableArrayRef<llvm::Value *> values);

/// Emits `body` under `condition` (i1; null: always). The builder stands behind it afterwards.
void emitWhen(BlockContext &block, llvm::Value *condition, llvm::function_ref<void()> body);

/// How an element is held where bits are moved: i1 as i8, a pointer as i64, all others as they are.
llvm::Type *storageType(llvm::Type *element);
llvm::Value *toStorage(llvm::IRBuilder<> &b, llvm::Value *value);
llvm::Value *fromStorage(llvm::IRBuilder<> &b, llvm::Value *value, llvm::Type *element);
/// The bits of `values` (all of one storage type) in 32-bit words, the first value lowest; bits beyond the last value
/// are zero.
Registers toWords(llvm::IRBuilder<> &b, llvm::ArrayRef<llvm::Value *> values);
Registers fromWords(llvm::IRBuilder<> &b, llvm::ArrayRef<llvm::Value *> words, llvm::Type *storage, int count);

} // namespace neso::nvidia
