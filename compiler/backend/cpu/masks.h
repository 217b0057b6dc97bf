// Arithmetic of the bounds that masks give to vector loops: what is known while compiling is computed there.
#pragma once
#include <cstdint>
#include <optional>

#include "llvm/IR/IRBuilder.h"

namespace neso::cpu {

/// The smaller and the larger of two signed integers. Of numbers, and of `condition ? number : 0`, the smaller has that form again.
llvm::Value *smaller(llvm::IRBuilder<> &b, llvm::Value *x, llvm::Value *y);
llvm::Value *larger(llvm::IRBuilder<> &b, llvm::Value *x, llvm::Value *y);

/// A bound that is `elements` where `where` (i1; null: everywhere) holds, and 0 elsewhere.
struct Reached {
  llvm::Value *where;
  int64_t elements;
};
std::optional<Reached> reachedOf(llvm::Value *bound);

} // namespace neso::cpu
