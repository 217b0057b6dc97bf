// Requests that the driver refuses.
#include <gtest/gtest.h>

#include "backend/nvidia/compile.h"
#include "backend/nvidia/toolkit.h"
#include "base/diagnostics/backend.h"
#include "base/diagnostics/cli.h"
#include "base/diagnostics/pt2.h"
#include "driver/compile.h"
#include "driver/settings.h"
#include "driver/target.h"

namespace neso {
namespace {

Diag refusal(const CompileOptions &options,
             const std::string &path = NESO_SOURCE_DIR "/tests/goldens/ops/activations/gelu.pt2") {
  DiagnosticSink sink;
  Result<Compilation> c = compileModel(path, options, sink);
  EXPECT_FALSE(static_cast<bool>(c));
  return c ? diag::InternalFault : c.error().diagnostics().front().kind;
}

TEST(DriverErrors, Target) {
  CompileOptions o;
  o.target = "tpu";
  EXPECT_EQ(refusal(o), diag::TargetUnknown);
}
TEST(DriverErrors, Arch) {
  CompileOptions o;
  o.archs = {"pentium"};
  EXPECT_EQ(refusal(o), diag::ArchUnknown);
}
TEST(DriverErrors, GpuArch) {
  CompileOptions o;
  o.target = "cuda", o.archs = {"sm_90", "sm_12"};
  EXPECT_EQ(refusal(o), diag::ArchUnknown);
}
// What only a device knows is never guessed; what a target usually is holds without --arch.
TEST(DriverErrors, NativeOfDevices) {
  CompileOptions o;
  o.target = "cuda", o.archs = {"native"};
  EXPECT_EQ(refusal(o), diag::NativeUnknown);
  Result<Targets> usual = parseTargets("cuda", {}), first = parseTargets("", {}),
                  here = parseTargets("cpu", {"native"});
  ASSERT_TRUE(usual && first && here);
  EXPECT_EQ(usual->machine(), "sm_90a");
  EXPECT_EQ(first->machine(), here->machine());
  // A device says its number alone; what uses most of it may have a name of its own.
  const Backend *cuda = findBackend("cuda");
  EXPECT_EQ(cuda->ofDevice("sm_90")->name, "sm_90a");
  EXPECT_EQ(cuda->ofDevice("sm_80")->name, "sm_80");
  EXPECT_EQ(cuda->ofDevice("sm_12"), nullptr);
}
// What cannot be checked of an export is said, whatever else is.
TEST(DriverErrors, GuardsThatCannotBeRead) {
  DiagnosticSink sink;
  Result<Compilation> c = compileModel(NESO_SOURCE_DIR "/tests/goldens/ops/searches/isin_dynamic.core.pt2", CompileOptions(), sink);
  ASSERT_TRUE(static_cast<bool>(c)) << c.error().str();
  ASSERT_EQ(sink.warnings().size(), 1u);
  EXPECT_EQ(sink.warnings()[0].kind, diag::GuardIgnored);
}
TEST(DriverErrors, Option) {
  CompileOptions o;
  o.options = {{"speed", "warp"}};
  EXPECT_EQ(refusal(o), diag::OptionUnknown);
}
TEST(DriverErrors, PrecisionOfProductsUnknown) {
  CompileOptions o;
  o.options = {{"f32-products", "bf16"}};
  EXPECT_EQ(refusal(o), diag::OptionUnknown);
}
TEST(DriverErrors, UseOfLibrariesUnknown) {
  CompileOptions o;
  o.options = {{"library", "sometimes"}};
  EXPECT_EQ(refusal(o), diag::OptionUnknown);
}
TEST(DriverErrors, UseOfBoxesUnknown) {
  CompileOptions o;
  o.options = {{"boxes", "on"}};
  EXPECT_EQ(refusal(o), diag::OptionUnknown);
}
TEST(DriverErrors, PackingOfInt4Unknown) {
  CompileOptions o;
  o.options = {{"int4-packing", "neon"}};
  EXPECT_EQ(refusal(o), diag::OptionUnknown);
}
// Settings of GPUs are said to do nothing where there is none; those of any machine are not.
TEST(DriverErrors, OptionIdle) {
  Result<Targets> cpu = parseTargets("cpu", {"x86-64-v3"}), gpu = parseTargets("cuda", {"sm_90"});
  ASSERT_TRUE(cpu && gpu);
  auto idle = [](const Targets &targets, const std::string &key, const std::string &value) {
    DiagnosticSink sink;
    EXPECT_TRUE(parseSettings({{key, value}}, targets, sink));
    return sink.warnings().size() == 1 && sink.warnings()[0].kind == diag::OptionIdle;
  };
  EXPECT_TRUE(idle(*cpu, "library", "always"));
  EXPECT_TRUE(idle(*cpu, "f32-products", "ieee"));
  EXPECT_TRUE(idle(*cpu, "assembler", "none"));
  EXPECT_TRUE(idle(*cpu, "boxes", "never"));
  EXPECT_FALSE(idle(*cpu, "fuse-user-kernels", "off"));
  EXPECT_FALSE(idle(*cpu, "int4-packing", "avx2"));
  EXPECT_FALSE(idle(*gpu, "library", "always"));
}
TEST(Driver, SpillsAreWarningsWithTheKernelsName) {
  FunctionUsage calm, full;
  calm.name = "calm", full.name = "full", full.spillBytes = 96, full.registers = 255;
  nvidia::CompiledModule made;
  made.usage = {calm, full};
  std::vector<Diagnostic> warnings = nvidia::warningsOf(made, "sm_90");
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0].kind, diag::NvidiaSpills);
  EXPECT_NE(warnings[0].str().find("kernel 'full'"), std::string::npos);
}
TEST(Driver, ProductsThatWaitForOneAnotherAreAWarning) {
  nvidia::CompiledModule made;
  made.serialised = "(C7514) Potential Performance Loss";
  std::vector<Diagnostic> warnings = nvidia::warningsOf(made, "sm_90a");
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0].kind, diag::NvidiaSerialised);
  EXPECT_NE(warnings[0].str().find("C7514"), std::string::npos);
}
TEST(DriverErrors, MissingFile) { EXPECT_EQ(refusal({}, "/nonexistent/model.pt2"), diag::FileUnreadable); }

TEST(Driver, SameInputGivesTheSameBytes) {
  for (int threads : {1, 2}) {
    CompileOptions o;
    o.archs = {"x86-64-v3", "x86-64-v4"};
    DiagnosticSink sink;
    const std::string path = NESO_SOURCE_DIR "/tests/goldens/models/resnet/export.pt2";
    Result<Compilation> a = compileModel(path, o, sink);
    o.threads = threads;
    Result<Compilation> b = compileModel(path, o, sink);
    ASSERT_TRUE(static_cast<bool>(a) && static_cast<bool>(b));
    EXPECT_EQ(a->package, b->package);
  }
}

TEST(Driver, EveryStagePrints) {
  for (int i = 0; i < stageCount(); ++i) {
    CompileOptions o;
    o.emit = static_cast<Stage>(i);
    if (*o.emit == Stage::Layout || *o.emit == Stage::Ptx || *o.emit == Stage::Sass) o.target = "cuda";
    if (*o.emit == Stage::Sass && !nvidia::findTool("cuobjdump") && !nvidia::findTool("nvdisasm")) continue;
    DiagnosticSink sink;
    Result<Compilation> c = compileModel(NESO_SOURCE_DIR "/tests/goldens/ops/activations/gelu.pt2", o, sink);
    ASSERT_TRUE(static_cast<bool>(c)) << info(*o.emit).name;
    EXPECT_NE(c->emitted.find("gelu"), std::string::npos) << info(*o.emit).name;
  }
}

} // namespace
} // namespace neso
