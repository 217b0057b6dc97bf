// Claim: what is said of a kernel's launches is what they do. Kernels of all operations are launched with random arguments in the
// interpreter: a parameter that is not written keeps its bytes, one that is not read decides nothing, and of a buffer that lacks the last
// byte of a footprint the launch complains; all that goes through a parameter that can be followed are the accesses that are told, at the
// elements that are told, as often as is told.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <random>
#include <sstream>

#include "ir/tile/build.h"
#include "ir/tile/interp.h"
#include "ir/tile/passes/effects.h"
#include "ir/tile/passes/element_access.h"
#include "ir/tile/passes/footprint.h"
#include "ir/tile/passes/passes.h"

namespace neso {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBytes = 1 << 16;

/// Small numbers that programs can live with, as indices too.
void fill(std::vector<uint8_t> &memory, mlir::Type element, std::mt19937 &rng) {
  auto each = [&](auto value) {
    for (size_t at = 0; at + sizeof(value()) <= memory.size(); at += sizeof(value())) {
      const auto v = value();
      std::memcpy(&memory[at], &v, sizeof(v));
    }
  };
  if (element.isF32())
    each([&] { return static_cast<float>(rng() % 5) / 2; });
  else if (element.isF64())
    each([&] { return static_cast<double>(rng() % 5) / 2; });
  else if (element.isInteger(64))
    each([&] { return static_cast<int64_t>(rng() % 3); });
  else if (element.isInteger(32))
    each([&] { return static_cast<int32_t>(rng() % 3); });
  else
    each([&] { return static_cast<uint8_t>(rng() % 3); });
}

/// One launch: arguments, grid, and memory of its own behind each pointer.
struct Launch {
  std::vector<InterpArg> args;
  std::vector<std::vector<uint8_t>> memory; // by parameter
  std::array<int64_t, 3> grid = {1, 1, 1};
  bool possible = true;

  Launch(tt::FuncOp func, std::mt19937 &rng) {
    for (int64_t &programs : grid) programs = 1 + static_cast<int64_t>(rng() % 3);
    memory.resize(func.getNumArguments());
    for (unsigned k = 0; k < func.getNumArguments(); ++k) {
      const mlir::Type type = func.getArgument(k).getType();
      if (auto pointer = llvm::dyn_cast<tt::PointerType>(type)) {
        memory[k].resize(kBytes);
        fill(memory[k], pointer.getPointeeType(), rng);
        args.push_back(InterpArg::pointer(memory[k].data(), kBytes));
      } else if (type.isIntOrIndex()) {
        const bool whole = func.getArgAttr(k, "tt.divisibility") != nullptr;
        args.push_back(InterpArg::integer(static_cast<int64_t>(rng() % 5 ? 1 + rng() % 40 : rng() % 3) * (whole ? 16 : 1)));
      } else if (llvm::isa<mlir::FloatType>(type)) {
        args.push_back(InterpArg::real(0.5));
      } else {
        possible = false;
      }
    }
  }
  Launch(const Launch &other) : args(other.args), memory(other.memory), grid(other.grid), possible(other.possible) {
    for (size_t k = 0; k < memory.size(); ++k)
      if (!memory[k].empty()) args[k].data = memory[k].data();
  }
  Status run(tt::FuncOp func) {
    InterpOptions options;
    options.maxSteps = 200000;
    return interpretTile(func, args, grid, options);
  }
};

/// f(function, name) for the kernels that lie beside the tests.
template <typename F> void forEachKernel(F f) {
  for (const char *folder : {"compiler/ir/tile/test/goldens", "compiler/ir/tile/test/lit", "compiler/backend/cpu/test/kernels", "tests/mutation/ttir"})
    for (const auto &entry : fs::directory_iterator(fs::path(NESO_SOURCE_DIR) / folder)) {
      if (entry.path().extension() != ".ttir" && entry.path().extension() != ".mlir") continue;
      std::stringstream text;
      text << std::ifstream(entry.path()).rdbuf();
      std::unique_ptr<mlir::MLIRContext> context = makeTileContext();
      Result<mlir::OwningOpRef<mlir::ModuleOp>> module = parseTile(text.str(), entry.path().string(), context.get());
      // Some texts show what is refused.
      if (!module || !runTilePipeline(**module)) continue;
      for (tt::FuncOp func : (**module).getOps<tt::FuncOp>())
        if (func.isPublic()) f(func, entry.path().filename().string() + " " + func.getName().str());
    }
}

TEST(Launches, TouchWhatFootprintsSay) {
  std::mt19937 rng(5);
  int tried = 0;
  forEachKernel([&](tt::FuncOp func, const std::string &name) {
    const std::vector<Footprint> all = provableFootprints(func);
    for (int round = 0; round < 8 && !all.empty(); ++round) {
      const Launch valid(func, rng);
      if (!valid.possible || !Launch(valid).run(func)) continue;
      SymbolMap<int64_t> at;
      for (unsigned axis = 0; axis < 3; ++axis) at[gridSymbol(axis)] = valid.grid[axis];
      for (unsigned k = 0; k < func.getNumArguments(); ++k)
        if (valid.args[k].kind == InterpArg::Int) at[argumentSymbol(k)] = valid.args[k].intValue;
      for (const Footprint &f : all) {
        if (evaluate(f.valid, at) != 1) continue;
        const std::optional<int64_t> begin = evaluate(f.begin, at), end = evaluate(f.end, at);
        if (!begin || !end || *end <= *begin) continue;
        ASSERT_LE(*end, static_cast<int64_t>(kBytes)) << name << ", parameter " << f.param << ": the launch was sound";
        if (*end <= 0) continue;
        Launch less(valid);
        less.args[f.param].bytes = *end - 1;
        EXPECT_FALSE(less.run(func)) << name << ", parameter " << f.param << " [" << f.begin.str() << ", " << f.end.str() << ") if " << f.valid.str();
        ++tried;
      }
    }
  });
  EXPECT_GT(tried, 200);
}

TEST(Launches, ReadAndWriteWhatEffectsSay) {
  std::mt19937 rng(6);
  int unwritten = 0, unread = 0;
  forEachKernel([&](tt::FuncOp func, const std::string &name) {
    const KernelEffects effects = analyzeEffects(func);
    for (int round = 0; round < 4; ++round) {
      const Launch valid(func, rng);
      Launch after(valid);
      if (!valid.possible || !after.run(func)) continue;
      for (unsigned k = 0; k < func.getNumArguments(); ++k) {
        if (valid.memory[k].empty()) continue;
        if (!effects.params[k].written) {
          EXPECT_EQ(after.memory[k], valid.memory[k]) << name << " writes parameter " << k;
          ++unwritten;
        }
        if (effects.params[k].read) continue;
        // Other content, and what was not written is as it was: the rest does not see it.
        Launch other(valid);
        for (uint8_t &byte : other.memory[k]) byte = static_cast<uint8_t>(byte ^ 0x55);
        const std::vector<uint8_t> before = other.memory[k];
        ASSERT_TRUE(other.run(func)) << name << " reads parameter " << k;
        for (unsigned j = 0; j < func.getNumArguments(); ++j)
          if (j != k) EXPECT_EQ(other.memory[j], after.memory[j]) << name << " reads parameter " << k;
        for (size_t b = 0; b < kBytes; ++b)
          if (after.memory[k][b] != valid.memory[k][b] && other.memory[k][b] != before[b])
            ASSERT_EQ(other.memory[k][b], after.memory[k][b]) << name << " reads parameter " << k << " at " << b;
        ++unread;
      }
    }
  });
  EXPECT_GT(unwritten, 150);
  EXPECT_GT(unread, 60);
}

/// A copy of a kernel with one more parameter.
struct Copy {
  Copy(tt::FuncOp func, mlir::Type parameter) {
    module = func->getParentOfType<mlir::ModuleOp>().clone();
    function = module->lookupSymbol<tt::FuncOp>(func.getName());
    const unsigned last = function.getNumArguments();
    EXPECT_TRUE(mlir::succeeded(function.insertArgument(last, parameter, {}, function.getLoc())));
    added = function.getArgument(last);
  }
  mlir::OwningOpRef<mlir::ModuleOp> module;
  tt::FuncOp function;
  mlir::Value added;
};

std::vector<mlir::Operation *> accesses(const ElementAccess &access) {
  std::vector<mlir::Operation *> out;
  for (tt::LoadOp load : access.loads) out.push_back(load);
  for (tt::StoreOp store : access.stores) out.push_back(store);
  return out;
}

mlir::Value everywhere(mlir::OpBuilder &b, mlir::Value scalar, mlir::Value like) {
  auto tensor = llvm::dyn_cast<mlir::RankedTensorType>(like.getType());
  return tensor ? tile::splat(b, like.getLoc(), scalar, tensor.getShape()) : scalar;
}

TEST(Launches, TouchTheElementsThatAreTold) {
  std::mt19937 rng(8);
  int followed = 0;
  forEachKernel([&](tt::FuncOp func, const std::string &name) {
    for (unsigned k = 0; k < func.getNumArguments(); ++k) {
      if (!elementAccess(func, k).followed) continue;
      // All that is told goes to another buffer, element by element; what is behind the parameter has no byte.
      Copy copy(func, func.getArgument(k).getType());
      for (mlir::Operation *op : accesses(elementAccess(copy.function, k))) {
        mlir::OpBuilder b(op);
        const mlir::Value address = op->getOperand(0), element = elementOf(address, b, b.getI64Type());
        op->setOperand(0, tile::addptr(b, op->getLoc(), everywhere(b, copy.added, address), element));
      }
      for (int round = 0; round < 3; ++round) {
        const Launch valid(func, rng);
        Launch after(valid), moved(valid);
        if (!valid.possible || !after.run(func)) continue;
        moved.memory.push_back(valid.memory[k]);
        moved.args.push_back(InterpArg::pointer(moved.memory.back().data(), kBytes));
        moved.args[k].bytes = 0;
        const Status s = moved.run(copy.function);
        ASSERT_TRUE(s) << name << ", parameter " << k << ": " << s.error().str();
        EXPECT_EQ(moved.memory[k], valid.memory[k]) << name << ", parameter " << k;
        EXPECT_EQ(moved.memory.back(), after.memory[k]) << name << ", parameter " << k;
        for (unsigned j = 0; j < func.getNumArguments(); ++j)
          if (j != k) EXPECT_EQ(moved.memory[j], after.memory[j]) << name << ", parameter " << k;
        ++followed;
      }
    }
  });
  EXPECT_GT(followed, 150);
}

/// Whether an access runs wherever its program does, apart from the turns of loops.
bool alwaysRuns(mlir::Operation *op) {
  for (mlir::Operation *at = op->getParentOp(); !llvm::isa<tt::FuncOp>(at); at = at->getParentOp())
    if (!llvm::isa<mlir::scf::ForOp>(at)) return false;
  return true;
}

TEST(Launches, TouchAsOftenAsIsTold) {
  std::mt19937 rng(9);
  int once = 0, counted = 0;
  forEachKernel([&](tt::FuncOp func, const std::string &name) {
    for (unsigned k = 0; k < func.getNumArguments(); ++k) {
      const size_t all = accesses(elementAccess(func, k)).size();
      for (size_t i = 0; i < all; ++i) {
        // Beside the access each lane of it is counted, whatever its mask: at its element, or all in one place.
        for (bool byElement : {true, false}) {
          Copy copy(func, tt::PointerType::get(mlir::IntegerType::get(func.getContext(), 32), 1));
          mlir::Operation *op = accesses(elementAccess(copy.function, k))[i];
          const mlir::Value address = op->getOperand(0);
          const bool covers = timesTouched({op}, 2, 1, {}) == 1;
          if (byElement && !covers) continue;
          mlir::OpBuilder b(op);
          mlir::Value at = everywhere(b, copy.added, address);
          if (byElement) at = tile::addptr(b, op->getLoc(), at, elementOf(address, b, b.getI64Type()));
          mlir::Value one = mlir::arith::ConstantOp::create(b, op->getLoc(), b.getI32IntegerAttr(1));
          tile::atomicRmw(b, op->getLoc(), tile::AtomicKind::Add, at, everywhere(b, one, address), {});
          for (int round = 0; round < 2; ++round) {
            Launch launch(func, rng);
            launch.grid = {byElement ? 3 : 1, 1, 1};
            if (!launch.possible) continue;
            std::vector<std::optional<int64_t>> numbers;
            for (const InterpArg &a : launch.args)
              numbers.push_back(a.kind == InterpArg::Int ? std::optional(a.intValue) : std::nullopt);
            std::vector<int32_t> counts(kBytes / 4);
            launch.args.push_back(InterpArg::pointer(counts.data(), kBytes));
            if (!launch.run(copy.function)) continue;
            const std::string where = name + ", parameter " + std::to_string(k) + ", access " + std::to_string(i);
            if (byElement) {
              const int32_t most = *std::max_element(counts.begin(), counts.end());
              EXPECT_LE(most, 1) << where;
              // From the first element on, without gaps.
              if (alwaysRuns(op)) EXPECT_TRUE(std::is_sorted(counts.rbegin(), counts.rend()) && most == 1) << where;
              ++once;
              continue;
            }
            // In the first program the number is exact where it is known; an address that covers the tensor is told as one.
            const double told = timesTouched({op}, 1, 1, numbers);
            if (covers || !alwaysRuns(op) || !std::isfinite(told)) continue;
            EXPECT_EQ(told, counts[0]) << where;
            ++counted;
          }
        }
      }
    }
  });
  EXPECT_GT(once, 20);
  EXPECT_GT(counted, 100);
}

} // namespace
} // namespace neso
