// The placed form of kernels: it is text that compiles to the same code, and is of one chip. That its verifier notices what is taken away
// or altered is in tests/verifiers.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "backend/nvidia/compile.h"
#include "backend/nvidia/passes/verify.h"
#include "base/diagnostics/backend.h"
#include "ir/tile/passes/passes.h"

namespace neso::nvidia {
namespace {

namespace fs = std::filesystem;
using namespace mlir;

const fs::path kKernels = fs::path(NESO_SOURCE_DIR) / "compiler/backend/cpu/test/kernels";
const fs::path kLit = fs::path(NESO_SOURCE_DIR) / "compiler/backend/nvidia/test/lit";

std::vector<fs::path> kernels() {
  std::vector<fs::path> files;
  for (const fs::path &folder : {kKernels, kLit})
    for (const auto &entry : fs::directory_iterator(folder))
      if (entry.path().extension() == ".ttir") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

class Placed : public testing::Test {
protected:
  /// PTX and placed text of all functions of a module; empty when something in it is refused.
  std::pair<std::string, std::string> compile(ModuleOp module) {
    std::vector<TileFunction> functions;
    for (tt::FuncOp f : module.getOps<tt::FuncOp>())
      if (f.isPublic()) functions.push_back({f, f.getName().str(), 4, 3});
    CompileOptions options;
    options.assemble = false, options.keepPtx = options.keepLayouts = true;
    Result<CompiledModule> code = compileForNvidia(functions, chip_, options);
    if (!code) return {};
    return {code->code.back().asmText, code->layoutText};
  }

  OwningOpRef<ModuleOp> parse(const std::string &text) {
    Result<OwningOpRef<ModuleOp>> module = parseTile(text, "kernel.ttir", context_.get());
    EXPECT_TRUE(bool(module)) << module.error().str();
    return std::move(*module);
  }

  OwningOpRef<ModuleOp> read(const fs::path &file) {
    std::stringstream text;
    text << std::ifstream(file).rdbuf();
    OwningOpRef<ModuleOp> module = parse(text.str());
    EXPECT_TRUE(bool(runTilePipeline(*module)));
    return module;
  }

  std::unique_ptr<MLIRContext> context_ = makeTileContext();
  const Chip &chip_ = *findChip("sm_90");
};

TEST_F(Placed, TextCompilesToTheSameCode) {
  int seen = 0;
  for (const fs::path &file : kernels()) {
    auto [ptx, text] = compile(*read(file));
    if (text.empty()) continue;
    ++seen;
    // Names of values that come from locations are not read again.
    OwningOpRef<ModuleOp> again = parse(text);
    const std::string plain = printTile(*again);
    EXPECT_EQ(printTile(*parse(plain)), plain) << file;
    auto [ptxAgain, textAgain] = compile(*again);
    EXPECT_EQ(plain, textAgain) << file;
    // A failed assertion says its line.
    if (text.find("tt.assert") == std::string::npos) EXPECT_EQ(ptx, ptxAgain) << file;
  }
  EXPECT_GE(seen, 20);
}

TEST_F(Placed, AnotherChip) {
  OwningOpRef<ModuleOp> module = parse(compile(*read(kLit / "placed.ttir")).second);
  for (tt::FuncOp function : module->getOps<tt::FuncOp>()) {
    Status s = verifyPlaced(function, *findChip("sm_80"));
    ASSERT_FALSE(bool(s));
    EXPECT_EQ(s.error().diagnostics()[0].kind, diag::NvidiaNotPlaced);
  }
}

// An instruction that adds to neighbours orders nothing behind itself.
TEST_F(Placed, WhatAddsToNeighboursAcquiresNothing) {
  OwningOpRef<ModuleOp> module = parse(compile(*read(kLit / "atomics_neighbours.ttir")).second);
  int seen = 0;
  for (tt::FuncOp function : module->getOps<tt::FuncOp>()) {
    ASSERT_TRUE(bool(verifyPlaced(function, chip_)));
    function.walk([&](tt::AtomicRMWOp rmw) {
      if (!rmw->hasAttr(placed::kTogetherAttr)) return;
      ++seen;
      const tt::MemSemantic before = rmw.getSem();
      rmw.setSem(tt::MemSemantic::ACQUIRE_RELEASE);
      EXPECT_FALSE(bool(verifyPlaced(function, chip_)));
      rmw.setSem(before);
    });
  }
  EXPECT_GE(seen, 3);
}

} // namespace
} // namespace neso::nvidia
