// Whole kernels to PTX and, where an assembler is at hand, to cubins for every chip; and what is refused.
#include "backend/nvidia/compile.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <unistd.h>

#include <gtest/gtest.h>

#include "backend/nvidia/assembler.h"
#include "backend/nvidia/ptx.h"
#include "backend/nvidia/toolkit.h"
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

/// Of this process alone: the test may run twice at once.
std::filesystem::path ownPath(const std::string &name) {
  return std::filesystem::path(testing::TempDir()) / (name + "_" + std::to_string(getpid()));
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
  const std::string kernel = kernelText("layer_norm_rows"), name = "@layer_norm_rows", open = "module {";
  const size_t start = kernel.find(open) + open.size();
  const std::string function = kernel.substr(start, kernel.rfind('}') - start);
  std::string text = open;
  for (int i = 0; i < 24; ++i) {
    text += function;
    text.replace(text.rfind(name), name.size(), name + std::to_string(i));
  }
  text += "}\n";
  CompileOptions one = ptxOnly(), four = ptxOnly();
  one.threads = 1, four.threads = 4;
  Result<CompiledModule> a = compileText(text, "sm_90", one);
  ASSERT_TRUE(a) << a.error().str();
  ASSERT_EQ(a->code.back().functions.size(), 24u);
  EXPECT_EQ(a->code.back().target, "compute_90");
  EXPECT_EQ(a->code.back().functions[0].threads, 128);
  // Threads that meddle with each other's data do so now and then: many kernels with loops, many times.
  for (int round = 0; round < 8; ++round) {
    Result<CompiledModule> b = compileText(text, "sm_90", four);
    ASSERT_TRUE(b) << b.error().str();
    EXPECT_EQ(a->code.back().image, b->code.back().image);
  }
}

TEST(Compile, KernelsAssembleForEveryChip) {
  if (!findAssembler()) GTEST_SKIP() << "no ptxas";
  for (const char *name :
       {"vector_add", "softmax_rows", "layer_norm_rows", "argmax_rows", "cumsum_rows", "dropout", "histogram_atomic"})
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

TEST(Compile, ALimitOfRegistersIsOneEntrys) {
  Result<CompiledModule> code = compileText(kernelText("softmax_rows"), "sm_90", ptxOnly());
  ASSERT_TRUE(code) << code.error().str();
  const std::string symbol = code->code[0].functions[0].symbol;
  std::string ptx = code->code[0].asmText, other = ptx;
  // A longer name that begins alike, in front.
  other.replace(other.find(symbol + "("), symbol.size(), symbol + "2");
  ptx = joinPtx({other, ptx});
  EXPECT_FALSE(limitRegisters(ptx, "absent", 40));
  ASSERT_TRUE(limitRegisters(ptx, symbol, 40));
  const size_t limit = ptx.find(".maxnreg 40");
  ASSERT_NE(limit, std::string::npos);
  EXPECT_GT(limit, ptx.find(".entry " + symbol + "("));
  EXPECT_EQ(ptx.find(".maxnreg", limit + 1), std::string::npos);
  std::optional<std::string> ptxas = findAssembler();
  if (!ptxas) GTEST_SKIP() << "no ptxas";
  Result<Assembled> assembled = assemble(ptx, *findChip("sm_90"), *ptxas, 1);
  ASSERT_TRUE(assembled) << assembled.error().str();
  for (const FunctionUsage &u : assembled->usage)
    if (u.name == symbol) EXPECT_LE(u.registers, 40);
}

// What the text tests show of each lowering, ptxas takes, whatever the chip: instructions that a chip or its PTX
// version lacks are not used.
TEST(Compile, LoweringsAssembleForEveryChip) {
  if (!findAssembler()) GTEST_SKIP() << "no ptxas";
  size_t files = 0;
  for (const auto &entry :
       std::filesystem::directory_iterator(std::string(NESO_SOURCE_DIR) + "/compiler/backend/nvidia/test/lit")) {
    if (entry.path().extension() != ".ttir") continue;
    std::stringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    ++files;
    for (const Chip &chip : allChips()) {
      Result<CompiledModule> code = compileText(text.str(), std::string(chip.arch).c_str(), {});
      EXPECT_TRUE(code) << entry.path().filename() << " " << chip.arch << ": " << code.error().str();
    }
  }
  EXPECT_GE(files, 8u);
}

TEST(Refused, OperationWithoutCode) {
  Result<CompiledModule> code = compileText(R"(
    tt.func public @k(%p: !tt.ptr<i8>, %v: i8) {
      %old = tt.atomic_cas relaxed, gpu, %p, %v, %v : (!tt.ptr<i8>, i8, i8) -> i8
      tt.return
    })",
                                            "sm_90", ptxOnly());
  ASSERT_FALSE(code);
  EXPECT_EQ(code.error().diagnostics()[0].kind, diag::NvidiaUnsupported) << code.error().str();
  EXPECT_NE(code.error().str().find("compare and swap of single bytes"), std::string::npos) << code.error().str();
}

// The pipeline makes plain products of them before a backend sees them.
TEST(Compile, ScaledProductsAreTensorCoreProducts) {
  std::stringstream text;
  text << std::ifstream(NESO_SOURCE_DIR "/compiler/ir/tile/test/goldens/dot_scaled.ttir").rdbuf();
  Result<CompiledModule> code = compileText(text.str(), "sm_80", ptxOnly());
  ASSERT_TRUE(code) << code.error().str();
  EXPECT_NE(code->code[0].asmText.find("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"), std::string::npos);
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
    })",
                                            "sm_90", ptxOnly(), 32);
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
  const std::string script = ownPath("failing_ptxas").string();
  std::ofstream(script) << "#!/bin/sh\necho no such luck\nexit 3\n";
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  options.ptxas = script;
  code = compileText(kernelText("vector_add"), "sm_90", options);
  ASSERT_FALSE(code);
  EXPECT_EQ(code.error().diagnostics()[0].kind, diag::NvidiaAssembler);
  EXPECT_NE(code.error().str().find("no such luck"), std::string::npos) << code.error().str();
}

TEST(Refused, InlineAssemblyWhoseConstraintsDoNotFit) {
  for (const char *constraints : {"=r,r,r", "=r", "=h,r", "=,"}) {
    Result<CompiledModule> code = compileText(fmt::format(R"(
    tt.func public @k(%p: !tt.ptr<i32>, %v: i32) {{
      %s = tt.elementwise_inline_asm "mov.u32 $0, $1;" {{constraints = "{}", packed_element = 1 : i32, pure = true}} %v : i32 -> i32
      tt.store %p, %s : !tt.ptr<i32>
      tt.return
    }})",
                                                          constraints),
                                              "sm_90", ptxOnly());
    ASSERT_FALSE(code) << constraints;
    EXPECT_EQ(code.error().diagnostics()[0].kind, diag::NvidiaUnsupported) << code.error().str();
    EXPECT_NE(code.error().str().find("an inline assembly with constraint"), std::string::npos) << code.error().str();
  }
}

// What a chip lacks is known to the assembler alone: its words go to the line of the kernel. (A script refuses for it.)
TEST(Refused, InlineAssemblyThatTheChipLacks) {
  const std::string script = ownPath("refusing_ptxas").string();
  std::ofstream(script) << R"(#!/bin/sh
for argument in "$@"; do case $argument in *.ptx) in=$argument ;; esac; done
line=$(grep -n -m1 nanosleep "$in" | cut -d: -f1)
echo "ptxas $in, line $line; error   : Instruction 'nanosleep' requires .target sm_99 or higher"
exit 255
)";
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  CompileOptions options;
  options.ptxas = script;
  Result<CompiledModule> code = compileText(R"(
    tt.func public @k(%p: !tt.ptr<i32>, %v: i32) {
      %s = tt.elementwise_inline_asm "{ .reg .pred q;\0A setp.ne.s32 q, $1, 0;\0A @q nanosleep.u32 $1; mov.u32 $0, $1; }" {constraints = "=r,r", packed_element = 1 : i32, pure = false} %v : i32 -> i32
      tt.store %p, %s : !tt.ptr<i32>
      tt.return
    })",
                                            "sm_90", options);
  ASSERT_FALSE(code);
  EXPECT_EQ(code.error().diagnostics()[0].kind, diag::NvidiaInlineAssembly) << code.error().str();
  EXPECT_NE(code.error().str().find("test.ttir:3"), std::string::npos) << code.error().str();
  EXPECT_NE(code.error().str().find("'nanosleep.u32' cannot be assembled for sm_90: Instruction 'nanosleep' requires"),
            std::string::npos)
      << code.error().str();
}

/// A folder with programs that are shell scripts: name → text. The first is ptxas in every test here.
class FakeToolkit {
public:
  explicit FakeToolkit(const std::string &name) : folder(ownPath(name)) {
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder / "bin");
  }
  ~FakeToolkit() {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
  FakeToolkit(const FakeToolkit &) = delete;
  FakeToolkit &operator=(const FakeToolkit &) = delete;
  void add(const std::string &name, const std::string &text) const {
    std::filesystem::path file = folder / "bin" / name;
    std::ofstream(file) << "#!/bin/sh\n" << text;
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  }
  std::string tool(const std::string &name) const { return (folder / "bin" / name).string(); }
  std::filesystem::path folder;
};

/// Sets a variable of the environment as long as it lives.
class Variable {
public:
  Variable(const char *name, const std::string &value) : name_(name) {
    if (const char *old = std::getenv(name)) old_ = old;
    setenv(name, value.c_str(), 1);
  }
  ~Variable() { old_ ? setenv(name_, old_->c_str(), 1) : unsetenv(name_); }

private:
  const char *name_;
  std::optional<std::string> old_;
};

/// Takes "-o FILE" as ptxas does.
const char *kWritesCubin = "while [ \"$1\" != -o ]; do shift; done\necho cubin > $2\n";

TEST(Sass, IsWhatTheToolBesideTheAssemblerWrites) {
  FakeToolkit kit("toolkit_cuobjdump");
  kit.add("ptxas", kWritesCubin);
  kit.add("cuobjdump", "[ \"$1\" = -sass ] && [ \"$(cat $2)\" = cubin ] && echo 'FADD R1, R2, R3 ;'\n");
  CompileOptions options;
  options.ptxas = kit.tool("ptxas"), options.keepSass = true;
  Result<CompiledModule> code = compileText(kernelText("vector_add"), "sm_90", options);
  ASSERT_TRUE(code) << code.error().str();
  EXPECT_EQ(code->sassText, "FADD R1, R2, R3 ;\n");
}

TEST(Sass, SoIsTheOtherToolBesideIt) {
  FakeToolkit kit("toolkit_nvdisasm");
  kit.add("ptxas", kWritesCubin);
  kit.add("nvdisasm", "echo disassembled\n");
  if (findTool("cuobjdump")) GTEST_SKIP() << "a toolkit of the system comes first";
  CompileOptions options;
  options.ptxas = kit.tool("ptxas"), options.keepSass = true;
  Result<CompiledModule> code = compileText(kernelText("vector_add"), "sm_90", options);
  ASSERT_TRUE(code) << code.error().str();
  EXPECT_EQ(code->sassText, "disassembled\n");
}

TEST(Toolkit, TheEnvironmentChangesNothing) {
  const std::optional<std::string> assembler = findTool("ptxas"), disassembler = findTool("cuobjdump");
  const std::vector<std::string> folders = toolkitFolders();
  FakeToolkit kit("toolkit_environment");
  kit.add("ptxas", kWritesCubin);
  kit.add("cuobjdump", "echo disassembled\n");
  const std::string folder = kit.folder.string();
  Variable path("PATH", folder + "/bin"), home("HOME", folder), cuda("CUDA_HOME", folder), root("PYENV_ROOT", folder),
      active("VIRTUAL_ENV", folder);
  EXPECT_EQ(findTool("ptxas"), assembler);
  EXPECT_EQ(findTool("cuobjdump"), disassembler);
  EXPECT_EQ(toolkitFolders(), folders);
  // What the caller names is taken, and its toolkit comes first.
  EXPECT_EQ(findTool("ptxas", kit.tool("ptxas")), kit.tool("ptxas"));
  EXPECT_EQ(toolkitFolders(kit.tool("ptxas")).front(), folder);
}

TEST(Refused, DisassemblyWithoutATool) {
  FakeToolkit kit("toolkit_bare");
  kit.add("ptxas", kWritesCubin);
  CompileOptions options;
  options.ptxas = kit.tool("ptxas"), options.keepSass = true;
  if (findTool("cuobjdump") || findTool("nvdisasm")) GTEST_SKIP() << "the system has a disassembler";
  kit.add("ptxas", "exit 0\n");
  Result<CompiledModule> code = compileText(kernelText("vector_add"), "sm_90", options);
  ASSERT_FALSE(code);
  EXPECT_EQ(code.error().diagnostics()[0].kind, diag::NvidiaNoDisassembler) << code.error().str();
}

TEST(Refused, DisassemblerThatFails) {
  FakeToolkit kit("toolkit_broken");
  kit.add("ptxas", kWritesCubin);
  kit.add("cuobjdump", "echo not a cubin\nexit 1\n");
  CompileOptions options;
  options.ptxas = kit.tool("ptxas"), options.keepSass = true;
  Result<CompiledModule> code = compileText(kernelText("vector_add"), "sm_90", options);
  ASSERT_FALSE(code);
  EXPECT_EQ(code.error().diagnostics()[0].kind, diag::NvidiaDisassembler);
  EXPECT_NE(code.error().str().find("not a cubin"), std::string::npos) << code.error().str();
}

TEST(Refused, LibraryFunctionThatDoesNotExist) {
  Result<CompiledModule> code = compileText(R"(
    tt.func public @k(%p: !tt.ptr<f32>, %x: f32) {
      %y = tt.extern_elementwise %x {libname = "", libpath = "", pure = true, symbol = "__nv_nosuch"} : (f32) -> f32
      tt.store %p, %y : !tt.ptr<f32>
      tt.return
    })",
                                            "sm_90", ptxOnly());
  ASSERT_FALSE(code);
  EXPECT_EQ(code.error().diagnostics()[0].kind, diag::NvidiaNoLibrary);
}

} // namespace
} // namespace neso::nvidia
