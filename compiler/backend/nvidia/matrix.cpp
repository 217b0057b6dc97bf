#include "backend/nvidia/matrix.h"

#include <bit>

#include "backend/nvidia/linear.h"
#include "base/diagnostics.h"
#include "llvm/IR/IntrinsicsNVPTX.h"

namespace neso::nvidia {

MatrixLoader::MatrixLoader(BlockContext &block, const SharedTile &from, const LinearLayout &wanted, int togetherBit)
    : block_(block), b_(block.b), from_(from), wanted_(wanted), togetherBit_(togetherBit) {
  LinearLayout whole = wanted;
  for (const auto &[dim, size] : from.layout.outSizes()) whole = whole.resizeOut(dim, size);
  std::optional<LinearLayout> map = whole.invertAndCompose(from.layout);
  NESO_CHECK(map.has_value(), "a shared buffer holds every element");
  map_ = *map;
  wordBits_ = isWide() ? 0 : log2Exact(4 / sharedBytes(from.element));
  words_.assign(size_t(map_.inSize(kRegister)) >> wordBits_, nullptr);
  if (!from.synchronised) block.shared.beforeRead(block, from.buffer);
  bool hasMatrices = block.chip.has(Feature::LdMatrix) && !isWide();
  if (hasMatrices && planMatrices(false))
    how_ = How::Matrices;
  else if (hasMatrices && planMatrices(true))
    how_ = How::Transposed;
  else
    addresses_.emplace(block, from, map_);
}

/// One matrix is 8 rows of 16 bytes. Lane l receives word l % 4 of row l / 4, or, transposed, the elements 2 (l % 4)
/// and 2 (l % 4) + 1 of column l / 4, which are 16 bits wide. So the place bits that walk a row must be the low bits of
/// the offset, and those that number the rows must leave them alone.
bool MatrixLoader::planMatrices(bool transposed) {
  const std::vector<uint64_t> &registers = map_.in(kRegister).bases, &lanes = map_.in(kLane).bases;
  if (transposed && wordBits_ != 1) return false;
  if (registers.size() < size_t(wordBits_) || lanes.size() != 5) return false;
  std::vector<uint64_t> inRow, rows;
  if (transposed) {
    inRow = {lanes[2], lanes[3], lanes[4]};
    rows = {registers[0], lanes[0], lanes[1]};
  } else {
    inRow.assign(registers.begin(), registers.begin() + wordBits_);
    inRow.insert(inRow.end(), {lanes[0], lanes[1]});
    rows = {lanes[2], lanes[3], lanes[4]};
  }
  uint64_t inside = 0;
  for (size_t i = 0; i < inRow.size(); ++i) {
    if (inRow[i] != uint64_t(1) << i) return false;
    inside |= inRow[i];
  }
  if (from_.flip & inside) return false;
  for (uint64_t row : rows)
    if (row & inside) return false;
  for (size_t i = size_t(wordBits_); i < registers.size(); ++i)
    if (registers[i] & inside) return false;
  for (uint64_t warp : map_.in(kWarp).bases)
    if (warp & inside) return false;

  // Two further register bits number the matrices of one instruction.
  groupBits_.clear();
  int spare = int(registers.size()) - wordBits_;
  if (spare >= 1) groupBits_.push_back(wordBits_);
  if (spare >= 2) groupBits_.push_back(togetherBit_ >= 0 ? togetherBit_ : wordBits_ + 1);
  // Lanes 8 m … 8 m + 7 point at the rows of matrix m.
  std::vector<uint64_t> pointers = rows;
  for (int bit : groupBits_) pointers.push_back(registers[size_t(bit)]);
  addresses_.emplace(
      block_, from_,
      LinearLayout({{kRegister, registers}, {kLane, pointers}, {kWarp, map_.in(kWarp).bases}}, map_.outSizes()));
  return true;
}

llvm::Value *MatrixLoader::word(int number) {
  if (!words_[size_t(number)]) {
    if (how_ == How::Elements)
      loadElements(number);
    else
      loadMatrices(number);
  }
  return words_[size_t(number)];
}

Tile MatrixLoader::tile() {
  const int count = int(wanted_.inSize(kRegister));
  Registers words;
  for (int i = 0; i < count >> wordBits_; ++i) words.push_back(word(i));
  if (isWide()) return {wanted_, words};
  return {wanted_, fromWords(b_, words, from_.element, count)};
}

std::optional<Tile> loadMatrices(BlockContext &block, const SharedTile &from, const LinearLayout &wanted) {
  // ldmatrix has words of 32 bits.
  if (sharedBytes(from.element) > 4) return std::nullopt;
  MatrixLoader loader(block, from, wanted, -1);
  return loader.hasMatrices() ? std::optional(loader.tile()) : std::nullopt;
}

void MatrixLoader::loadMatrices(int number) {
  using namespace llvm::Intrinsic;
  static constexpr llvm::Intrinsic::ID plain[] = {nvvm_ldmatrix_sync_aligned_m8n8_x1_b16,
                                                  nvvm_ldmatrix_sync_aligned_m8n8_x2_b16,
                                                  nvvm_ldmatrix_sync_aligned_m8n8_x4_b16};
  static constexpr llvm::Intrinsic::ID turned[] = {nvvm_ldmatrix_sync_aligned_m8n8_x1_trans_b16,
                                                   nvvm_ldmatrix_sync_aligned_m8n8_x2_trans_b16,
                                                   nvvm_ldmatrix_sync_aligned_m8n8_x4_trans_b16};
  uint64_t first = uint64_t(number) << wordBits_;
  for (int bit : groupBits_) first &= ~(uint64_t(1) << bit);
  llvm::Value *from = addresses_->of(first);
  size_t count = groupBits_.size();
  llvm::Value *loaded = b_.CreateIntrinsic((how_ == How::Matrices ? plain : turned)[count], {from->getType()}, {from});
  for (unsigned m = 0; m < 1u << count; ++m) {
    uint64_t reg = first;
    for (size_t i = 0; i < count; ++i) reg |= uint64_t(m >> i & 1) << groupBits_[i];
    words_[reg >> wordBits_] = count == 0 ? loaded : b_.CreateExtractValue(loaded, m);
  }
}

void MatrixLoader::loadElements(int number) {
  llvm::Type *storage = storageType(from_.element);
  if (isWide()) {
    words_[size_t(number)] = b_.CreateAlignedLoad(storage, addresses_->of(uint64_t(number)), llvm::Align(uint64_t(sharedBytes(from_.element))));
    return;
  }
  uint64_t first = uint64_t(number) << wordBits_, low = (uint64_t(1) << wordBits_) - 1;
  // Side by side and aligned: one load.
  bool together = !(addresses_->varying() & low) && !((registerPart(map_, first) ^ from_.flip) & low);
  for (int bit = 0; bit < wordBits_; ++bit) together &= map_.in(kRegister).bases[size_t(bit)] == uint64_t(1) << bit;
  if (together) {
    words_[size_t(number)] = b_.CreateAlignedLoad(b_.getInt32Ty(), addresses_->of(first), llvm::Align(4));
    return;
  }
  Registers parts;
  for (uint64_t i = 0; i <= low; ++i)
    parts.push_back(
        b_.CreateAlignedLoad(storage, addresses_->of(first + i), llvm::Align(uint64_t(sharedBytes(from_.element)))));
  words_[size_t(number)] = toWords(b_, parts)[0];
}

} // namespace neso::nvidia
