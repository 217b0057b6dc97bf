#include "backend/nvidia/move.h"

#include <bit>

#include "backend/nvidia/linear.h"
#include "base/diagnostics.h"
#include "ir/layout/convert.h"
#include "llvm/IR/IntrinsicsNVPTX.h"

namespace neso::nvidia {

namespace {

/// x with `bit` inserted at position `at`.
uint64_t insertBit(uint64_t x, int at, uint64_t bit) {
  uint64_t low = x & ((uint64_t(1) << at) - 1);
  return low | bit << at | (x ^ low) << 1;
}
uint64_t removeBit(uint64_t x, int at) {
  uint64_t low = x & ((uint64_t(1) << at) - 1);
  return low | (x >> (at + 1)) << at;
}

/// A wanted register bit and the source register bit that it alone selects: neighbours along both travel together.
struct RegisterPair {
  int wanted, source;
};

std::optional<RegisterPair> findPair(const LinearLayout &fetch) {
  const LinearLayout::Out &registers = fetch.out(kRegister);
  const std::vector<uint64_t> &bases = fetch.in(kRegister).bases;
  for (int w = 0; w < int(bases.size()); ++w) {
    if (std::popcount(bases[w]) != 1) continue;
    int bit = std::countr_zero(bases[w]);
    if (bit < registers.shift || bit >= registers.shift + registers.bits) continue;
    int users = 0;
    for (const LinearLayout::In &in : fetch.ins())
      for (uint64_t basis : in.bases) users += int(basis >> bit & 1);
    if (users == 1) return RegisterPair{w, bit - registers.shift};
  }
  return std::nullopt;
}

/// `fetch` on words of two registers.
LinearLayout withoutPair(const LinearLayout &fetch, const RegisterPair &pair) {
  int bit = fetch.out(kRegister).shift + pair.source;
  std::vector<LinearLayout::In> ins = fetch.ins();
  for (LinearLayout::In &in : ins) {
    if (in.name == kRegister) in.bases.erase(in.bases.begin() + pair.wanted);
    for (uint64_t &basis : in.bases) basis = removeBit(basis, bit);
  }
  DimValues outs = fetch.outSizes();
  for (auto &[name, size] : outs)
    if (name == kRegister) size /= 2;
  return LinearLayout(std::move(ins), outs);
}

/// A move inside warps: first registers are paired into words, then each round moves a word.
struct ShuffleMove {
  std::vector<RegisterPair> pairs;
  ShufflePlan plan;
  int instructions = 0;
};

std::optional<ShuffleMove> planShuffles(const Conversion &conversion, unsigned bits) {
  ShuffleMove move;
  Conversion words = conversion;
  while (bits < 32) {
    std::optional<RegisterPair> pair = findPair(words.fetch);
    if (!pair) break;
    words.fetch = withoutPair(words.fetch, *pair);
    move.pairs.push_back(*pair);
    bits *= 2;
  }
  std::optional<ShufflePlan> plan = shufflePlan(words);
  if (!plan) return std::nullopt;
  move.plan = *plan;
  int rounds = int(plan->from.inSize(kRound));
  auto levels = [](const LinearLayout &map) {
    int n = 0;
    for (const char *dim : {kLane, kWarp})
      if (map.hasIn(dim))
        for (uint64_t basis : map.in(dim).bases) n += basis != 0;
    return n;
  };
  move.instructions = int(bits + 31) / 32 * rounds * (2 + levels(plan->put) + levels(plan->give));
  return move;
}

Registers moveRegisters(BlockContext &block, const LinearLayout &fetch, const Registers &values) {
  Registers shifted = values, result;
  emitPermute(block, fetch, shifted);
  const std::vector<uint64_t> &bases = fetch.in(kRegister).bases;
  for (uint64_t r = 0; r < uint64_t(1) << bases.size(); ++r)
    result.push_back(shifted[size_t(fetch.out(kRegister).of(registerPart(fetch, r)))]);
  return result;
}

Registers moveByShuffles(BlockContext &block, const ShuffleMove &move, Registers values, size_t depth = 0) {
  llvm::IRBuilder<> &b = block.b;
  if (depth < move.pairs.size()) {
    const RegisterPair &pair = move.pairs[depth];
    llvm::Type *storage = values[0]->getType();
    llvm::Type *both = b.getIntNTy(2 * storage->getPrimitiveSizeInBits());
    llvm::Type *vector = llvm::FixedVectorType::get(storage, 2);
    Registers packed, result;
    for (size_t i = 0; i < values.size() / 2; ++i) {
      llvm::Value *word = llvm::PoisonValue::get(vector);
      for (uint64_t half : {0, 1}) word = b.CreateInsertElement(word, values[insertBit(i, pair.source, half)], half);
      packed.push_back(b.CreateBitCast(word, both));
    }
    packed = moveByShuffles(block, move, packed, depth + 1);
    for (size_t i = 0; i < packed.size() * 2; ++i)
      result.push_back(b.CreateExtractElement(b.CreateBitCast(packed[removeBit(i, pair.wanted)], vector),
                                              uint64_t(i >> pair.wanted & 1)));
    return result;
  }
  const ShufflePlan &plan = move.plan;
  emitPermute(block, plan.give, values);
  llvm::Value *fromThread = emitThreadPart(block, plan.from);
  // A round in which every lane keeps what it gives needs no shuffle.
  bool ownLane = true;
  for (int bit = 0; bit < plan.from.inBits(kLane); ++bit) ownLane &= plan.from.basis(kLane, bit, kLane) == int64_t(1) << bit;
  Registers result;
  for (int64_t round = 0; round < plan.from.inSize(kRound); ++round) {
    int64_t give = plan.give.apply({{kRound, round}})[0].second, from = plan.from.apply({{kRound, round}})[0].second;
    llvm::Value *value = values[size_t(give)];
    result.push_back(ownLane && from == 0 ? value : shuffle(block, value, b.CreateXor(fromThread, b.getInt32(uint32_t(from)))));
  }
  emitPermute(block, plan.put, result);
  return result;
}

/// The memory accesses of one thread on its part of a shared tensor, one call an access: the address, and the registers
/// that lie there side by side.
void forEachAccess(BlockContext &block, const LinearLayout &map, const SharedTile &tile,
                   llvm::function_ref<void(llvm::Value *address, llvm::ArrayRef<int> registers)> emit) {
  Access access = widestAccess(map, kOffset, 16 / sharedBytes(tile.element));
  uint64_t inAccess = 0;
  for (int bit : access.registerBits) inAccess |= uint64_t(1) << bit;
  SharedAddresses addresses(block, tile, map);
  for (uint64_t reg = 0; reg < uint64_t(map.inSize(kRegister)); ++reg) {
    if (reg & inAccess) continue;
    llvm::SmallVector<int, 16> registers;
    for (int64_t i = 0; i < access.width; ++i) {
      uint64_t member = reg;
      for (size_t bit = 0; bit < access.registerBits.size(); ++bit)
        if (i >> bit & 1) member |= uint64_t(1) << access.registerBits[bit];
      registers.push_back(int(member));
    }
    emit(addresses.of(reg), registers);
  }
}

/// Values of one access as one LLVM value that a single instruction moves: words where there are any.
llvm::Type *accessType(llvm::IRBuilder<> &b, unsigned bits) {
  if (bits < 32) return b.getIntNTy(bits);
  return bits == 32 ? b.getInt32Ty() : static_cast<llvm::Type *>(llvm::FixedVectorType::get(b.getInt32Ty(), bits / 32));
}

llvm::Value *emitShuffle(BlockContext &block, llvm::Intrinsic::ID kind, llvm::Value *value, llvm::Value *lane) {
  llvm::IRBuilder<> &b = block.b;
  llvm::Value *storage = toStorage(b, value);
  Registers words = toWords(b, storage);
  for (llvm::Value *&word : words) word = b.CreateIntrinsic(kind, {b.getInt32(~0u), word, lane, b.getInt32(31)});
  return fromStorage(b, fromWords(b, words, storage->getType(), 1)[0], value->getType());
}

LinearLayout placesIn(const LinearLayout &layout, const LinearLayout &buffer) {
  std::optional<LinearLayout> map = layout.invertAndCompose(buffer);
  NESO_CHECK(map.has_value(), "a shared buffer holds every element");
  return *map;
}

} // namespace

SharedAddresses::SharedAddresses(BlockContext &block, const SharedTile &tile, LinearLayout map)
    : block_(block), tile_(tile), map_(std::move(map)), bytes_(uint64_t(sharedBytes(tile.element))),
      varying_(threadBits(map_)),
      thread_(block.b.CreateMul(emitThreadPart(block, map_), block.b.getInt32(uint32_t(bytes_)))) {}

llvm::Value *SharedAddresses::of(uint64_t reg) {
  // The register's part is constant. Where no thread bit meets it, adding is as good as xor and goes into the
  // instruction.
  llvm::IRBuilder<> &b = block_.b;
  uint64_t offset = registerPart(map_, reg) ^ tile_.flip;
  llvm::Value *&base = bases_[offset & varying_];
  if (!base) {
    llvm::Value *inside = b.CreateXor(thread_, b.getInt32(uint32_t((offset & varying_) * bytes_)));
    base =
        block_.shared.address(block_, tile_.buffer, tile_.byteOffset ? b.CreateAdd(inside, tile_.byteOffset) : inside);
  }
  return b.CreateConstInBoundsGEP1_32(b.getInt8Ty(), base, uint32_t((offset & ~varying_) * bytes_));
}

int64_t sharedBytes(llvm::Type *element) { return int64_t(storageType(element)->getPrimitiveSizeInBits()) / 8; }

llvm::Value *shuffle(BlockContext &block, llvm::Value *value, llvm::Value *lane) {
  return emitShuffle(block, llvm::Intrinsic::nvvm_shfl_sync_idx_i32, value, lane);
}

llvm::Value *shuffleXor(BlockContext &block, llvm::Value *value, uint32_t mask) {
  return emitShuffle(block, llvm::Intrinsic::nvvm_shfl_sync_bfly_i32, value, block.b.getInt32(mask));
}

void storeShared(BlockContext &block, const Tile &tile, const SharedTile &to) {
  llvm::IRBuilder<> &b = block.b;
  block.shared.beforeWrite(block, to.buffer);
  LinearLayout map = placesIn(tile.layout, to.layout);
  Registers values;
  for (llvm::Value *value : tile.values) values.push_back(toStorage(b, value));
  unsigned bits = values[0]->getType()->getPrimitiveSizeInBits();
  emitWhen(block, ownsElements(block, tile.layout), [&] {
    forEachAccess(block, map, to, [&](llvm::Value *address, llvm::ArrayRef<int> registers) {
      Registers members;
      for (int reg : registers) members.push_back(values[reg]);
      Registers words = toWords(b, members);
      llvm::Type *type = accessType(b, bits * unsigned(registers.size()));
      llvm::Value *all = words[0];
      if (type->isVectorTy()) {
        all = llvm::PoisonValue::get(type);
        for (size_t i = 0; i < words.size(); ++i) all = b.CreateInsertElement(all, words[i], uint64_t(i));
      } else if (type != b.getInt32Ty()) {
        all = b.CreateTrunc(all, type);
      }
      b.CreateAlignedStore(all, address, llvm::Align(bits * registers.size() / 8));
    });
  });
}

Tile loadShared(BlockContext &block, const SharedTile &from, const LinearLayout &wanted) {
  llvm::IRBuilder<> &b = block.b;
  block.shared.beforeRead(block, from.buffer);
  LinearLayout map = placesIn(wanted, from.layout);
  llvm::Type *storage = storageType(from.element);
  unsigned bits = storage->getPrimitiveSizeInBits();
  Tile result{wanted, Registers(size_t(wanted.inSize(kRegister)))};
  forEachAccess(block, map, from, [&](llvm::Value *address, llvm::ArrayRef<int> registers) {
    llvm::Type *type = accessType(b, bits * unsigned(registers.size()));
    llvm::Value *all = b.CreateAlignedLoad(type, address, llvm::Align(bits * registers.size() / 8));
    Registers words;
    if (type->isVectorTy()) {
      for (unsigned i = 0; i < llvm::cast<llvm::FixedVectorType>(type)->getNumElements(); ++i)
        words.push_back(b.CreateExtractElement(all, uint64_t(i)));
    } else {
      words.push_back(b.CreateZExt(all, b.getInt32Ty()));
    }
    Registers values = fromWords(b, words, storage, int(registers.size()));
    for (size_t i = 0; i < registers.size(); ++i) result.values[registers[i]] = fromStorage(b, values[i], from.element);
  });
  return result;
}

/// The shuffles that carry a conversion out; nothing when shared memory does it, or none are needed.
static std::optional<ShuffleMove> shufflesFor(const Conversion &move, const LinearLayout &from,
                                              const LinearLayout &wanted, int bits) {
  std::optional<ShuffleMove> shuffles = planShuffles(move, unsigned(bits));
  if (!shuffles) return std::nullopt;
  SharedPlan shared = cheapestShared(from, wanted, bits);
  // In instruction slots of a warp: a barrier and the way through memory and back weigh about 40. A warp alone has no barrier, but no other
  // warps either behind whose work it could wait: a small tile is not worth the way.
  const int64_t waves = 2 * (shared.store.wavefronts + shared.load.wavefronts);
  const int64_t sharedCost = from.inBits(kWarp) == 0 ? std::max<int64_t>(40, 10 + waves) : 40 + waves;
  return shuffles->instructions <= sharedCost ? shuffles : std::nullopt;
}

bool movesThroughShared(const LinearLayout &from, const LinearLayout &wanted, int bits) {
  const Conversion move = conversion(from, wanted);
  return move.move > Move::Registers && !shufflesFor(move, from, wanted, bits);
}

Tile convertTile(BlockContext &block, const Tile &tile, const LinearLayout &wanted) {
  if (tile.layout == wanted) return tile;
  Conversion move = conversion(tile.layout, wanted);
  NESO_CHECK(move.move != Move::Cluster, "the blocks of a cluster exchange no tensors");
  if (move.move <= Move::Registers) return {wanted, moveRegisters(block, move.fetch, tile.values)};

  llvm::Type *element = tile.values[0]->getType();
  int bits = int(sharedBytes(element)) * 8;
  if (std::optional<ShuffleMove> shuffles = shufflesFor(move, tile.layout, wanted, bits)) {
    Registers values;
    for (llvm::Value *value : tile.values) values.push_back(toStorage(block.b, value));
    values = moveByShuffles(block, *shuffles, values);
    for (llvm::Value *&value : values) value = fromStorage(block.b, value, element);
    return {wanted, values};
  }
  int64_t elements = int64_t(1) << wanted.totalOutBits();
  SharedTile buffer{block.shared.allocate(elements * bits / 8, "layout conversion"),
                    cheapestShared(tile.layout, wanted, bits).buffer, element, nullptr};
  storeShared(block, tile, buffer);
  Tile result = loadShared(block, buffer, wanted);
  block.shared.release(buffer.buffer);
  return result;
}

Tile broadcastFromOwners(BlockContext &block, const Tile &tile) {
  if (!ownsElements(block, tile.layout)) return tile;
  if (tile.layout.freeMask(kWarp) == 0) {
    // The owner of every place: the inverse uses no free bit.
    LinearLayout owner = tile.layout.compose(tile.layout.pseudoinvert());
    LinearLayout lanes = owner.sublayout({kLane}, {kLane});
    llvm::Value *from = emitBases(block.b, block.lane, lanes.in(kLane).bases);
    Tile result = tile;
    for (llvm::Value *&value : result.values) value = shuffle(block, value, from);
    return result;
  }
  Sizes shape = tensorShape(tile.layout);
  std::vector<int> order;
  for (int i = int(shape.size()) - 1; i >= 0; --i) order.push_back(i);
  llvm::Type *element = tile.values[0]->getType();
  int64_t bytes = sharedBytes(element) << tile.layout.totalOutBits();
  SharedTile buffer{block.shared.allocate(bytes, "results of atomics"), sharedLayout(shape, order), element, nullptr};
  storeShared(block, tile, buffer);
  Tile result = loadShared(block, buffer, tile.layout);
  block.shared.release(buffer.buffer);
  return result;
}

Tile catTiles(const Tile &a, const Tile &b) {
  NESO_CHECK(a.layout == b.layout, "the parts of cat have one layout");
  Tile result{catLayout(a.layout), a.values};
  result.values.append(b.values.begin(), b.values.end());
  return result;
}

Tile gatherTile(BlockContext &block, const Tile &source, const Tile &indices, int axis) {
  llvm::IRBuilder<> &b = block.b;
  Sizes shape = tensorShape(source.layout);
  int rank = int(shape.size());
  std::vector<int> order;
  for (int i = rank - 1; i >= 0; --i) order.push_back(i);
  llvm::Type *element = source.values[0]->getType(), *storage = storageType(element);
  int64_t bytes = sharedBytes(element);
  SharedTile buffer{block.shared.allocate(bytes << source.layout.totalOutBits(), "source of gather"),
                    sharedLayout(shape, order), element, nullptr};
  storeShared(block, source, buffer);
  block.shared.beforeRead(block, buffer.buffer);
  Tile result{indices.layout, {}};
  for (size_t reg = 0; reg < indices.values.size(); ++reg) {
    llvm::SmallVector<llvm::Value *, 4> index = tensorIndex(block, indices.layout, int(reg));
    // Wrapped, so that no index leaves the buffer.
    index[axis] =
        b.CreateAnd(b.CreateZExtOrTrunc(indices.values[reg], b.getInt32Ty()), b.getInt32(uint32_t(shape[axis] - 1)));
    llvm::Value *offset = b.getInt32(0);
    for (int i = 0; i < rank; ++i) offset = b.CreateAdd(b.CreateMul(offset, b.getInt32(uint32_t(shape[i]))), index[i]);
    llvm::Value *address = block.shared.address(block, buffer.buffer, b.CreateMul(offset, b.getInt32(uint32_t(bytes))));
    result.values.push_back(
        fromStorage(b, b.CreateAlignedLoad(storage, address, llvm::Align(uint64_t(bytes))), element));
  }
  block.shared.release(buffer.buffer);
  return result;
}

Tile histogramTile(BlockContext &block, const Tile &source, const Tile *mask, const LinearLayout &wanted,
                   llvm::Type *count) {
  llvm::IRBuilder<> &b = block.b;
  int64_t bins = int64_t(1) << wanted.totalOutBits();
  // One bin more than asked for takes what does not count.
  SharedTile buffer{block.shared.allocate(4 * (bins + 1), "bins of a histogram"), sharedLayout({bins}, {0}),
                    b.getInt32Ty(), nullptr};
  Tile zeros{wanted, Registers(size_t(wanted.inSize(kRegister)), b.getInt32(0))};
  storeShared(block, zeros, buffer);
  block.shared.beforeWrite(block, buffer.buffer);
  llvm::Value *owns = ownsElements(block, source.layout);
  for (size_t reg = 0; reg < source.values.size(); ++reg) {
    llvm::Value *value = source.values[reg];
    llvm::Value *counts = value->getType()->getIntegerBitWidth() < 32 && bins >> value->getType()->getIntegerBitWidth()
                              ? b.getTrue()
                              : b.CreateICmpULT(value, llvm::ConstantInt::get(value->getType(), uint64_t(bins)));
    if (mask) counts = b.CreateAnd(counts, mask->values[reg]);
    if (owns) counts = b.CreateAnd(counts, owns);
    llvm::Value *bin = b.CreateSelect(counts, b.CreateZExtOrTrunc(value, b.getInt32Ty()), b.getInt32(uint32_t(bins)));
    llvm::Value *address = block.shared.address(block, buffer.buffer, b.CreateShl(bin, b.getInt32(2)));
    b.CreateAtomicRMW(llvm::AtomicRMWInst::Add, address, b.getInt32(1), llvm::Align(4),
                      llvm::AtomicOrdering::Monotonic);
  }
  Tile result = loadShared(block, buffer, wanted);
  block.shared.release(buffer.buffer);
  for (llvm::Value *&value : result.values) value = b.CreateZExtOrTrunc(value, count);
  return result;
}

} // namespace neso::nvidia
