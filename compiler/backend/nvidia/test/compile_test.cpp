// Whole kernels to PTX and, where an assembler is at hand, to cubins for every chip; and what is refused.
#include "backend/nvidia/compile.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "base/diagnostics/backend.h"
#include "ir/tile/passes/passes.h"
#include "ir/tile/tile.h"

namespace neso::nvidia {
namespace {

/// The public functions of a TTIR text, compiled.
Result<CompiledModule> compileText(const std::string &text, const char *arch, CompileOptions options, int warps = 4) {
  auto context = makeTileContext();
  Result<mlir::OwningOpRef<mlir::ModuleOp>> module = parseTile(text, "test.ttir", context.get());
  if (!module) return module.takeError();
  if (Status s = runTilePipeline(**module); !s) return s.takeError();
  std::vector<TileFunction> functions;
  for (tt::FuncOp f : (*module)->getOps<tt::FuncOp>())
    if (f.isPublic()) functions.push_back({f, f.getName().str(), warps, 3});
  return compileForNvidia(functions, *findChip(arch), options);
}

std::string kernelText(const std::string &name) {
  std::stringstream text;
  text << std::ifstream(std::string(NESO_SOURCE_DIR) + "/compiler/backend/cpu/test/kernels/" + name + ".ttir").rdbuf();
  return text.str();
}

CompileOptions ptxOnly() {
  CompileOptions options;
  options.assemble = false, options.keepPtx = true;
  return options;
}

TEST(Chips, AreFoundByArchWithOrWithoutItsSuffix) {
  EXPECT_EQ(findChip("sm_90a")->capability, 90);
  EXPECT_EQ(findChip("sm_100")->capability, 100);
  EXPECT_EQ(findChip("sm_70"), nullptr);
  EXPECT_FALSE(findChip("sm_80")->has(Feature::MmaF8));
  EXPECT_TRUE(findChip("sm_89")->has(Feature::MmaF8));
}

TEST(Compile, PtxIsTheSameForAnyNumberOfThreads) {
  CompileOptions one = ptxOnly(), four = ptxOnly();
  one.threads = 1, four.threads = 4;
  Result<CompiledModule> a = compileText(kernelText("softmax_rows"), "sm_90", one), b = compileText(kernelText("softmax_rows"), "sm_90", four);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(a->code.back().image, b->code.back().image);
  EXPECT_EQ(a->code.back().target, "compute_90");
  EXPECT_EQ(a->code.back().functions[0].threads, 128);
}

TEST(Compile, KernelsAssembleForEveryChip) {
  if (!findAssembler()) GTEST_SKIP() << "no ptxas";
  for (const char *name : {"vector_add", "softmax_rows", "layer_norm_rows", "argmax_rows", "cumsum_rows", "dropout", "histogram_atomic"})
    for (const char *arch : {"sm_80", "sm_90", "sm_100"}) {
      Result<CompiledModule> code = compileText(kernelText(name), arch, {});
      ASSERT_TRUE(code) << name << " " << arch << ": " << code.error().str();
      ASSERT_EQ(code->code.size(), 2u);
      EXPECT_EQ(code->code[0].format, CompiledCode::Format::Cubin);
      EXPECT_EQ(code->code[0].target, arch);
      ASSERT_EQ(code->usage.size(), 1u);
      EXPECT_EQ(code->usage[0].name, name);
      EXPECT_GT(code->usage[0].registers, 0);
      EXPECT_EQ(code->usage[0].spillBytes, 0);
      EXPECT_GT(code->usage[0].blocksPerSm, 0);
    }
}

TEST(Refused, OperationWithoutCode) {
  Result<CompiledModule> code = compileText(R"(
    tt.func public @k(%p: !tt.ptr<i8>, %v: i8) {
      %old = tt.atomic_cas relaxed, gpu, %p, %v, %v : (!tt.ptr<i8>, i8, i8) -> i8
      tt.return
    })", "sm_90", ptxOnly());
  ASSERT_FALSE(code);
  EXPECT_EQ(code.error().diagnostics()[0].kind, diag::NvidiaUnsupported) << code.error().str();
  EXPECT_NE(code.error().str().find("compare and swap of single bytes"), std::string::npos) << code.error().str();
}

// Its operands have other shapes than its result, so no layout may follow from them.
TEST(Refused, ScaledProductByName) {
  std::stringstream text;
  text << std::ifstream(NESO_SOURCE_DIR "/compiler/ir/tile/test/goldens/dot_scaled.ttir").rdbuf();
  Result<CompiledModule> code = compileText(text.str(), "sm_90", ptxOnly());
  ASSERT_FALSE(code);
  EXPECT_EQ(code.error().diagnostics()[0].kind, diag::NvidiaUnsupported);
}

TEST(Refused, MoreSharedMemoryThanTheChipHas) {
  Result<CompiledModule> code = compileText(R"(
    tt.func public @k(%p: !tt.ptr<i32>) {
      %r = tt.make_range {end = 131072 : i32, start = 0 : i32} : tensor<131072xi32>
      %s = tt.splat %p : !tt.ptr<i32> -> tensor<131072x!tt.ptr<i32>>
      %a = tt.addptr %s, %r : tensor<131072x!tt.ptr<i32>>, tensor<131072xi32>
      %x = tt.load %a : tensor<131072x!tt.ptr<i32>>
      %y = tt.gather %x[%x] {axis = 0 : i32} : (tensor<131072xi32>, tensor<131072xi32>) -> tensor<131072xi32>
      tt.store %a, %y : tensor<131072x!tt.ptr<i32>>
      tt.return
    })", "sm_90", ptxOnly(), 32);
  ASSERT_FALSE(code);
  EXPECT_EQ(code.error().diagnostics()[0].kind, diag::NvidiaSharedMemory);
  EXPECT_NE(code.error().str().find("gather 524288"), std::string::npos) << code.error().str();
}

TEST(Refused, AssemblerThatIsMissingOrFails) {
  CompileOptions options;
  options.ptxas = "/nonexistent/ptxas";
  Result<CompiledModule> code = compileText(kernelText("vector_add"), "sm_90", options);
  ASSERT_FALSE(code);
  EXPECT_EQ(code.error().diagnostics()[0].kind, diag::NvidiaNoAssembler);
  std::string script = testing::TempDir() + "failing_ptxas";
  std::ofstream(script) << "#!/bin/sh\necho no such luck\nexit 3\n";
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  options.ptxas = script;
  code = compileText(kernelText("vector_add"), "sm_90", options);
  ASSERT_FALSE(code);
  EXPECT_EQ(code.error().diagnostics()[0].kind, diag::NvidiaAssembler);
  EXPECT_NE(code.error().str().find("no such luck"), std::string::npos) << code.error().str();
}

TEST(Refused, DisassemblyWithoutATool) {
  // An assembler that writes nothing a disassembler could read.
  std::string script = testing::TempDir() + "empty_ptxas";
  std::ofstream(script) << "#!/bin/sh\nexit 0\n";
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  CompileOptions options;
  options.ptxas = script, options.keepSass = true;
  Result<CompiledModule> code = compileText(kernelText("vector_add"), "sm_90", options);
  ASSERT_FALSE(code);
  EXPECT_EQ(code.error().diagnostics()[0].kind, diag::NvidiaAssembler);
}

TEST(Refused, LibraryFunctionThatDoesNotExist) {
  Result<CompiledModule> code = compileText(R"(
    tt.func public @k(%p: !tt.ptr<f32>, %x: f32) {
      %y = tt.extern_elementwise %x {libname = "", libpath = "", pure = true, symbol = "__nv_nosuch"} : (f32) -> f32
      tt.store %p, %y : !tt.ptr<f32>
      tt.return
    })", "sm_90", ptxOnly());
  ASSERT_FALSE(code);
  EXPECT_EQ(code.error().diagnostics()[0].kind, diag::NvidiaNoLibrary);
}

} // namespace
} // namespace neso::nvidia
