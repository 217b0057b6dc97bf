// Claim: what is said of a kernel's launches is what they do. Kernels of all operations are launched with random arguments in the
// interpreter: a parameter that is not written keeps its bytes, one that is not read decides nothing, and of a buffer that lacks the last
// byte of a footprint the launch complains.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <random>
#include <sstream>

#include "ir/tile/interp.h"
#include "ir/tile/passes/effects.h"
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

} // namespace
} // namespace neso
