// Products by groups of four warps: wgmma, and tcgen05 of later chips (DotTraits::byGroups). What both have in common: which operands they take, and
// how these lie in shared memory.
//
// An operand is a matrix in panels (panelledLayout), named by a descriptor: where it begins, how far its panels and its
// groups of 8 rows lie apart, and how the pieces of a row are permuted. The next rows or the next 32 bytes of K begin
// elsewhere and are otherwise the same.
#pragma once
#include <string>

#include "backend/nvidia/dot.h"

namespace neso::nvidia {

/// A kind of products.
struct GroupRow {
  int bits;            // of an operand's element
  bool integers;       // summed in i32, else in f32
  bool imprecise;      // sums keep fewer bits than an f32 has
  bool anyOrder;       // operands may have M or N side by side; else K alone
  const char *types;   // of result, A, B in wgmma's name
  const char *kind;    // in tcgen05's name, and
  uint32_t codeA, codeB, codeD; // the types in its instruction's descriptor
  int k() const { return 256 / bits; }
};

/// Rows of one wgmma, the warps of a group, and the columns of one instruction.
inline constexpr int64_t kRowsOfWgmma = 64, kWarpsOfGroup = 4, kMostColumns = 256;
/// What a multiprocessor has of tensor memory, in words of 32 bits: a product's rows take all of its rows.
inline constexpr int64_t kRowsOfTensorMemory = 128, kColumnsOfTensorMemory = 512;

/// i32: which group of four warps the thread is of. All threads of a warp say the same, which the assembler sees by a shuffle.
llvm::Value *warpGroup(BlockContext &block);

/// A matrix in shared memory as the instructions read it.
class Panels {
public:
  /// k: the dim along which is multiplied.
  Panels(BlockContext &block, const SharedTile &tile, int k, int bits);
  bool kFast() const { return kFast_; }
  /// Bytes from the matrix' begin to row (or column) `at` and element `k` of it.
  int64_t offset(int64_t at, int64_t k) const;
  /// i64: of the part that begins `units` (i32) pieces of 16 bytes behind the matrix' begin. wgmma's; tcgen05 has a bit more in it.
  llvm::Value *descriptor(llvm::IRBuilder<> &b, llvm::Value *units) const;

private:
  int64_t bytes_, span_ = 0, panel_ = 0; // of an element, of a panel's row, of a panel
  bool kFast_ = false;
  llvm::Value *begin_ = nullptr; // pieces of 16 bytes
};

/// Inline assembly that takes and gives `sums` (f32 or i32) in their places, `more` (words and descriptors) behind them. In its text
/// $0 … are the sums. Nothing that uses them moves above it.
void runOnSums(llvm::IRBuilder<> &b, llvm::MutableArrayRef<llvm::Value *> sums, llvm::ArrayRef<llvm::Value *> more, const std::string &text);

} // namespace neso::nvidia
