// One kernel of the tests: a function (thread, in, out) whose body is emitted through a BlockContext and run by the
// simulator.
#pragma once
#include <cstring>
#include <memory>
#include <random>

#include "backend/nvidia/block.h"
#include "backend/nvidia/chip.h"
#include "backend/nvidia/linear.h"
#include "backend/nvidia/move.h"
#include "backend/nvidia/shared.h"
#include "backend/nvidia/test/simulator.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Verifier.h"
#include "llvm/Support/raw_ostream.h"

namespace neso::nvidia::test {

class Kernel {
public:
  Kernel(int warps, int buffers, const char *chip = "sm_90") : module("test", context), b(context) {
    llvm::Type *pointer = llvm::PointerType::get(context, 1);
    llvm::SmallVector<llvm::Type *, 4> types{b.getInt32Ty()};
    types.append(size_t(buffers), pointer);
    function = llvm::Function::Create(llvm::FunctionType::get(b.getVoidTy(), types, false),
                                      llvm::Function::ExternalLinkage, "kernel", module);
    b.SetInsertPoint(llvm::BasicBlock::Create(context, "entry", function));
    block = std::unique_ptr<BlockContext>(
        new BlockContext{b, *findChip(chip), warps, function->getArg(0), nullptr, nullptr, shared});
    block->lane = b.CreateAnd(block->thread, b.getInt32(31));
    block->warp = b.CreateLShr(block->thread, b.getInt32(5));
  }

  llvm::Value *buffer(int i) { return function->getArg(unsigned(i) + 1); }
  llvm::Value *at(int i, llvm::Value *index, llvm::Type *type) {
    return b.CreateGEP(b.getInt8Ty(), buffer(i),
                       b.CreateMul(b.CreateZExt(index, b.getInt64Ty()), b.getInt64(uint64_t(sharedBytes(type)))));
  }
  /// buffer i holds the tensor row-major; i1 as bytes.
  Tile load(int i, const LinearLayout &layout, llvm::Type *element) {
    Tile tile{layout, {}};
    for (int reg = 0; reg < layout.inSize(kRegister); ++reg) {
      llvm::Value *value = b.CreateLoad(storageType(element), at(i, flatIndex(*block, layout, reg), element));
      tile.values.push_back(fromStorage(b, value, element));
    }
    return tile;
  }
  /// Every register of every thread, at thread * registers + register: see check().
  void storePlaces(int i, const Tile &tile) {
    uint32_t n = uint32_t(tile.values.size());
    for (uint32_t reg = 0; reg < n; ++reg)
      b.CreateStore(
          toStorage(b, tile.values[reg]),
          at(i, b.CreateAdd(b.CreateMul(block->thread, b.getInt32(n)), b.getInt32(reg)), tile.values[reg]->getType()));
  }
  Outcome run(const std::vector<void *> &buffers) {
    b.CreateRetVoid();
    std::string text;
    llvm::raw_string_ostream stream(text);
    if (llvm::verifyModule(module, &stream)) return {"invalid module: " + text};
    std::vector<uint64_t> arguments;
    for (void *buffer : buffers) arguments.push_back(reinterpret_cast<uint64_t>(buffer));
    return simulate(*function, block->threads(), shared.size(), arguments);
  }

  llvm::LLVMContext context;
  llvm::Module module;
  llvm::IRBuilder<> b;
  SharedMemory shared;
  llvm::Function *function = nullptr;
  std::unique_ptr<BlockContext> block;
};

/// What storePlaces wrote is, at every place, the element of `tensor` (row-major) that `layout` puts there. Returns the
/// first difference.
template <typename T>
std::string comparePlaces(const std::vector<T> &places, const LinearLayout &layout, const std::vector<T> &tensor) {
  int64_t registers = layout.inSize(kRegister), threads = int64_t(places.size()) / registers;
  for (int64_t t = 0; t < threads; ++t) {
    for (int64_t r = 0; r < registers; ++r) {
      DimValues index{{kRegister, r}, {kLane, t % 32}, {kWarp, t / 32}};
      uint64_t flat = 0;
      for (const LinearLayout::Out &out : layout.outs())
        for (const auto &[name, value] : layout.apply(index))
          if (name == out.name) flat |= uint64_t(value) << out.shift;
      if (std::memcmp(&places[size_t(t * registers + r)], &tensor[flat], sizeof(T)) != 0)
        return "thread " + std::to_string(t) + " register " + std::to_string(r) + " should hold element " +
               std::to_string(flat);
    }
  }
  return {};
}

inline LinearLayout blocked(const Sizes &shape, const Sizes &perThread, const Sizes &lanes, const Sizes &warps,
                            const std::vector<int> &order) {
  return blockedLayout(shape, {perThread, lanes, warps, order});
}

/// Any layout of `shape`: the tensor's bits dealt to registers, lanes and warps by chance, mixed by chance when
/// `mixed`, with copies where bits are left.
inline LinearLayout randomLayout(std::mt19937 &random, const Sizes &shape, int warps, bool mixed = false) {
  DimValues outs;
  int total = 0;
  for (int i = int(shape.size()) - 1; i >= 0; --i) {
    outs.push_back({dimName(i), shape[i]});
    total += log2Exact(shape[i]);
  }
  std::vector<uint64_t> bits;
  for (int i = 0; i < total; ++i) bits.push_back(uint64_t(1) << i);
  std::shuffle(bits.begin(), bits.end(), random);
  if (mixed)
    for (int i = 1; i < total; ++i)
      if (random() % 2) bits[size_t(i)] ^= bits[random() % size_t(i)];
  std::vector<uint64_t> lane, warp, registers;
  int warpBits = log2Exact(warps);
  for (uint64_t bit : bits) {
    unsigned where = random() % 3;
    if (where == 0 && lane.size() < 5)
      lane.push_back(bit);
    else if (where == 1 && int(warp.size()) < warpBits)
      warp.push_back(bit);
    else
      registers.push_back(bit);
  }
  lane.resize(5, 0);
  warp.resize(size_t(warpBits), 0);
  std::shuffle(lane.begin(), lane.end(), random);
  std::shuffle(warp.begin(), warp.end(), random);
  return LinearLayout({{kRegister, registers}, {kLane, lane}, {kWarp, warp}, {kBlock, {}}}, outs);
}

} // namespace neso::nvidia::test
