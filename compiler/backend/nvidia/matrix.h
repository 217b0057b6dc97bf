// Operands of mma.sync out of shared memory, by ldmatrix where the layouts allow it.
#pragma once
#include "backend/nvidia/move.h"
#include "llvm/ADT/DenseMap.h"

namespace neso::nvidia {

/// The operand `wanted` (mmaOperandA or mmaOperandB, with a batch above or not) of the tensor in shared memory,
/// register word by register word, each loaded where it is first asked for: products then load what they are about to
/// multiply, and need few registers.
class MatrixLoader {
public:
  /// Waits for the writers. togetherBit: a register bit whose words are needed at the same time as the first ones,
  /// beside the bit just above those inside a word, which is understood; -1: the next bit.
  MatrixLoader(BlockContext &block, const SharedTile &from, const LinearLayout &wanted, int togetherBit);
  /// Registers number * perWord … of the operand, in one i32.
  llvm::Value *word(int number);

private:
  bool planMatrices(bool transposed);
  void loadMatrices(int number);
  void loadElements(int number);
  llvm::Value *address(uint64_t offset);

  BlockContext &block_;
  llvm::IRBuilder<> &b_;
  SharedTile from_;
  LinearLayout map_; // (register, lane, warp) -> offset
  int64_t bytes_;    // of an element
  int wordBits_;     // log2 of the elements in a word
  int togetherBit_;
  Registers words_;

  enum class How : uint8_t { Elements, Matrices, Transposed } how_ = How::Elements;
  std::vector<int> groupBits_;    // register bits that number the matrices of one ldmatrix: 0 to 2
  llvm::Value *thread_ = nullptr; // bytes, the thread's part of an address
  uint64_t varying_ = 0;          // offset bits that thread_ may set
  llvm::DenseMap<uint64_t, llvm::Value *> bases_;
};

} // namespace neso::nvidia
