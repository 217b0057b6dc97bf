#include "backend/nvidia/linear.h"

#include <map>

namespace neso::nvidia {

llvm::Value *emitBases(llvm::IRBuilder<> &b, llvm::Value *value, llvm::ArrayRef<uint64_t> bases) {
  // Distance from an in bit to an out bit -> the in bits that travel it.
  std::map<int, uint32_t> diagonals;
  for (int in = 0; in < int(bases.size()); ++in)
    for (int out = 0; out < 32; ++out)
      if (bases[in] >> out & 1) diagonals[out - in] |= 1u << in;
  llvm::Value *sum = nullptr;
  for (const auto &[distance, bits] : diagonals) {
    llvm::Value *part = b.CreateAnd(value, b.getInt32(bits));
    if (distance > 0) part = b.CreateShl(part, b.getInt32(distance));
    if (distance < 0) part = b.CreateLShr(part, b.getInt32(-distance));
    sum = sum ? b.CreateXor(sum, part) : part;
  }
  return sum ? sum : b.getInt32(0);
}

llvm::Value *emitThreadPart(BlockContext &block, const LinearLayout &map) {
  llvm::Value *sum = nullptr;
  for (const auto &[dim, value] : {std::pair{kLane, block.lane}, std::pair{kWarp, block.warp}}) {
    if (!map.hasIn(dim) || map.zeroOn(dim)) continue;
    llvm::Value *part = emitBases(block.b, value, map.in(dim).bases);
    sum = sum ? block.b.CreateXor(sum, part) : part;
  }
  return sum ? sum : block.b.getInt32(0);
}

uint64_t registerPart(const LinearLayout &map, uint64_t reg) {
  uint64_t sum = 0;
  if (!map.hasIn(kRegister)) return 0;
  const std::vector<uint64_t> &bases = map.in(kRegister).bases;
  for (size_t bit = 0; bit < bases.size(); ++bit)
    if (reg >> bit & 1) sum ^= bases[bit];
  return sum;
}

uint64_t threadBits(const LinearLayout &map) {
  uint64_t bits = 0;
  for (const char *dim : {kLane, kWarp})
    if (map.hasIn(dim))
      for (uint64_t basis : map.in(dim).bases) bits |= basis;
  return bits;
}

void emitPermute(BlockContext &block, const LinearLayout &map, llvm::MutableArrayRef<llvm::Value *> values) {
  llvm::IRBuilder<> &b = block.b;
  const LinearLayout::Out &to = map.out(kRegister);
  // Image in registers -> its condition: an odd number of the bits that have it are set.
  std::map<int64_t, llvm::Value *> levels;
  for (const auto &[dim, value] : {std::pair{kLane, block.lane}, std::pair{kWarp, block.warp}}) {
    if (!map.hasIn(dim)) continue;
    const std::vector<uint64_t> &bases = map.in(dim).bases;
    for (size_t bit = 0; bit < bases.size(); ++bit) {
      int64_t image = to.of(bases[bit]);
      if (image == 0) continue;
      llvm::Value *set = b.CreateICmpNE(b.CreateAnd(value, b.getInt32(1u << bit)), b.getInt32(0));
      llvm::Value *&level = levels[image];
      level = level ? b.CreateXor(level, set) : set;
    }
  }
  for (const auto &[image, condition] : levels) {
    Registers before(values.begin(), values.end());
    for (size_t r = 0; r < values.size(); ++r)
      values[r] = b.CreateSelect(condition, before[r ^ size_t(image)], before[r]);
  }
}

void emitWhen(BlockContext &block, llvm::Value *condition, llvm::function_ref<void()> body) {
  if (!condition) return body();
  llvm::IRBuilder<> &b = block.b;
  llvm::BasicBlock *here = b.GetInsertBlock();
  llvm::Function *function = here->getParent();
  llvm::BasicBlock *then = llvm::BasicBlock::Create(b.getContext(), "when", function);
  llvm::BasicBlock *behind = llvm::BasicBlock::Create(b.getContext(), "after", function);
  // The builder may stand inside a block: what follows it moves behind.
  behind->splice(behind->begin(), here, b.GetInsertPoint(), here->end());
  behind->replaceSuccessorsPhiUsesWith(here, behind);
  b.SetInsertPoint(here);
  b.CreateCondBr(condition, then, behind);
  b.SetInsertPoint(then);
  body();
  b.CreateBr(behind);
  b.SetInsertPoint(behind, behind->begin());
}

llvm::Type *storageType(llvm::Type *element) {
  if (element->isIntegerTy(1)) return llvm::Type::getInt8Ty(element->getContext());
  if (element->isPointerTy()) return llvm::Type::getInt64Ty(element->getContext());
  return element;
}

llvm::Value *toStorage(llvm::IRBuilder<> &b, llvm::Value *value) {
  if (value->getType()->isIntegerTy(1)) return b.CreateZExt(value, b.getInt8Ty());
  if (value->getType()->isPointerTy()) return b.CreatePtrToInt(value, b.getInt64Ty());
  return value;
}

llvm::Value *fromStorage(llvm::IRBuilder<> &b, llvm::Value *value, llvm::Type *element) {
  if (element->isIntegerTy(1)) return b.CreateTrunc(value, element);
  if (element->isPointerTy()) return b.CreateIntToPtr(value, element);
  return value;
}

/// The 32 bits of which `value` is the low part; null: it is computed as what it is.
static llvm::Value *partOfWord(llvm::Value *value) {
  while (auto *cast = llvm::dyn_cast<llvm::BitCastInst>(value)) value = cast->getOperand(0);
  auto *part = llvm::dyn_cast<llvm::TruncInst>(value);
  return part && part->getSrcTy()->isIntegerTy(32) ? part->getOperand(0) : nullptr;
}

Registers toWords(llvm::IRBuilder<> &b, llvm::ArrayRef<llvm::Value *> values) {
  Registers words;
  llvm::Type *storage = values[0]->getType();
  unsigned bits = storage->getPrimitiveSizeInBits();
  if (bits == 32) {
    for (llvm::Value *value : values) words.push_back(b.CreateBitCast(value, b.getInt32Ty()));
  } else if (bits == 64) {
    for (llvm::Value *value : values) {
      llvm::Value *pair = b.CreateBitCast(value, llvm::FixedVectorType::get(b.getInt32Ty(), 2));
      for (uint64_t half : {0, 1}) words.push_back(b.CreateExtractElement(pair, half));
    }
  } else {
    // Two or four in a word: vectors that the target holds in one register.
    unsigned perWord = 32 / bits;
    llvm::Type *vector = llvm::FixedVectorType::get(storage, perWord);
    for (size_t first = 0; first < values.size(); first += perWord) {
      const llvm::ArrayRef<llvm::Value *> parts = values.slice(first, std::min<size_t>(perWord, values.size() - first));
      // Parts of words that were computed alike are computed together then: numbers of four bits, of which pairs lie 16 bits apart.
      if (llvm::all_of(parts, partOfWord)) {
        llvm::Value *whole = nullptr;
        for (size_t i = 0; i < parts.size(); ++i) {
          llvm::Value *part = b.CreateAnd(partOfWord(parts[i]), (uint64_t{1} << bits) - 1);
          part = b.CreateShl(part, i * bits);
          whole = whole ? b.CreateOr(whole, part) : part;
        }
        words.push_back(whole);
        continue;
      }
      llvm::Value *word = llvm::Constant::getNullValue(vector);
      for (size_t i = 0; i < perWord && first + i < values.size(); ++i)
        word = b.CreateInsertElement(word, values[first + i], uint64_t(i));
      words.push_back(b.CreateBitCast(word, b.getInt32Ty()));
    }
  }
  return words;
}

Registers fromWords(llvm::IRBuilder<> &b, llvm::ArrayRef<llvm::Value *> words, llvm::Type *storage, int count) {
  Registers values;
  unsigned bits = storage->getPrimitiveSizeInBits();
  if (bits == 32) {
    for (llvm::Value *word : words) values.push_back(b.CreateBitCast(word, storage));
  } else if (bits == 64) {
    for (size_t i = 0; i + 1 < words.size(); i += 2) {
      llvm::Value *pair = llvm::Constant::getNullValue(llvm::FixedVectorType::get(b.getInt32Ty(), 2));
      for (size_t half : {0, 1}) pair = b.CreateInsertElement(pair, words[i + half], uint64_t(half));
      values.push_back(b.CreateBitCast(pair, storage));
    }
  } else {
    unsigned perWord = 32 / bits;
    llvm::Type *vector = llvm::FixedVectorType::get(storage, perWord);
    for (llvm::Value *word : words) {
      llvm::Value *parts = b.CreateBitCast(word, vector);
      for (unsigned i = 0; i < perWord && int(values.size()) < count; ++i)
        values.push_back(b.CreateExtractElement(parts, uint64_t(i)));
    }
  }
  return values;
}

} // namespace neso::nvidia
