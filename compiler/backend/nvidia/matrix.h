// Operands of mma.sync out of shared memory, by ldmatrix where the layouts allow it.
#pragma once
#include <optional>

#include "backend/nvidia/move.h"

namespace neso::nvidia {

/// The operand `wanted` (mmaOperandA or mmaOperandB, with a batch above or not) of the tensor in shared memory, or of
/// the part of it that `from` names and that has the sizes of `wanted`, register word by register word, each loaded
/// where it is first asked for: products then load what they are about to multiply, and need few registers.
class MatrixLoader {
public:
  /// Waits for the writers. togetherBit: a register bit whose words are needed at the same time as the first ones,
  /// beside the bit just above those inside a word, which is understood; -1: the next bit.
  MatrixLoader(BlockContext &block, const SharedTile &from, const LinearLayout &wanted, int togetherBit);
  /// Registers number * perWord … of the operand, in one i32; an element that is wider as itself.
  llvm::Value *word(int number);
  /// Whether ldmatrix loads it.
  bool hasMatrices() const { return how_ != How::Elements; }
  /// All of it.
  Tile tile();

private:
  /// An element is more than a word.
  bool isWide() const { return sharedBytes(from_.element) > 4; }
  bool planMatrices(bool transposed);
  void loadMatrices(int number);
  void loadElements(int number);

  BlockContext &block_;
  llvm::IRBuilder<> &b_;
  SharedTile from_;
  LinearLayout wanted_;
  LinearLayout map_; // (register, lane, warp) -> offset
  int wordBits_;     // log2 of the elements in a word
  int togetherBit_;
  Registers words_;

  enum class How : uint8_t { Elements, Matrices, Transposed } how_ = How::Elements;
  std::vector<int> groupBits_;               // register bits that number the matrices of one ldmatrix: 0 to 2
  std::optional<SharedAddresses> addresses_; // of the thread's elements, or of the rows that it points ldmatrix to
};

/// A tensor in shared memory as a tile of a layout that ldmatrix loads; nothing for other layouts and wide elements.
std::optional<Tile> loadMatrices(BlockContext &block, const SharedTile &from, const LinearLayout &wanted);

} // namespace neso::nvidia
