// neso kernel: verbs on a kernel in Triton source and in TTIR. Expected values are worked out by hand.
#include "test/harness.h"

using namespace neso;
using namespace neso::cli;

namespace {

const char *kSource = R"(import triton
import triton.language as tl

@triton.jit
def scale(x_ptr, bias_ptr, out_ptr, n, factor, STEP, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x_ptr + i * STEP, mask=i < n, other=0.0) * factor
    if bias_ptr is not None:
        v += tl.load(bias_ptr + i, mask=i < n)
    tl.store(out_ptr + i, v, mask=i < n)

@triton.jit
def tile(desc, out_ptr, B: tl.constexpr):
    v = desc.load([1, 2])
    tl.store(out_ptr + tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :], v)
)";

class KernelCli : public CliTest {
protected:
  /// Why no C program can be built against the archive; "": it can.
  static std::string whyNoC() {
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    return "the archive needs the sanitizer's own linking";
#endif
    return std::system("command -v cc >/dev/null") ? "no C compiler" : "";
  }
  /// What main.c prints, built with the headers in the test's folder.
  std::string outputOfC() {
    EXPECT_EQ(std::system(("cd " + dir + " && cc -Wall -Wextra -Werror -I" NESO_SOURCE_DIR "/runtime/include -I" NESO_SOURCE_DIR " main.c " NESO_BINARY_DIR
                           "/lib/libneso.a -o main -lpthread -ldl -lm && ./main > out.txt")
                              .c_str()),
              0);
    return slurp(dir + "out.txt");
  }

  void SetUp() override {
    CliTest::SetUp();
    write("k.py", kSource);
    std::vector<float> numbers;
    for (int i = 0; i < 40; ++i) numbers.push_back(static_cast<float>(i));
    save("t.safetensors", {tensor("a", {40}, numbers), tensor("b", {40}, std::vector<float>(40, 100.0f)),
                           tensor("o", {40}, std::vector<float>(40, -1.0f)), tensor("m", {5, 8}, numbers)});
  }
  Outcome kernel(const std::string &arguments) { return neso("kernel " + arguments); }
  const std::string scale = "k.py:scale --signature '*fp32,*fp32,*fp32,i32,fp32,i32,constexpr' --constexpr BLOCK=32 ";
  const std::string launch =
      "--grid 2 --arg @t.safetensors#a --arg @t.safetensors#b --arg @t.safetensors#o --arg 33 --arg 0.5 --arg 1 ";
};

TEST_F(KernelCli, AnalyzeSaysWhatChanges) {
  Outcome r = kernel("analyze " + scale + "--json");
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(
      r.out,
      "{\"kernel\": \"scale\", \"mutated\": [\"out_ptr\"], \"read\": [\"x_ptr\", \"bias_ptr\"], \"known\": true}\n");
}

// A toolkit of scripts stands for NVIDIA's, which not every machine has.
TEST_F(KernelCli, EmitSassAsksTheDisassembler) {
  write("ptxas", "#!/bin/sh\nwhile [ \"$1\" != -o ]; do shift; done\necho cubin > $2\n");
  write("cuobjdump", "#!/bin/sh\necho \"FADD R1, R2, R3 ; of $(cat $2)\"\n");
  std::system(("chmod 755 " + dir + "ptxas " + dir + "cuobjdump").c_str());
  Outcome r = kernel("emit " + scale + "--stage sass --target cuda --ptxas " + dir + "ptxas");
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.out, "FADD R1, R2, R3 ; of cubin\n");
  r = kernel("emit " + scale + "--stage sass");
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.err.find("E0602"), std::string::npos) << r.err;
}

// The device of this machine is asked, and without one nobody guesses.
TEST_F(KernelCli, NativeIsTheDeviceOfThisMachine) {
  Outcome r = kernel("compile " + scale +
                     "--target cuda --arch native --ptxas none -o k.neso --cuda-driver /nonexistent/libcuda.so");
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.err.find("error[E0693]"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("sm_90"), std::string::npos) << r.err;
  r = kernel("compile " + scale +
             "--target cuda --arch native --ptxas none -o k.neso --cuda-driver " NESO_BINARY_DIR
             "/lib/libneso_fake_cuda.so");
  ASSERT_EQ(r.code, 0) << r.err;
  r = neso("info k.neso");
  EXPECT_NE(r.out.find("target cuda compute_90"), std::string::npos) << r.out;
}

TEST_F(KernelCli, RunCompiledAndInterpretedGiveTheSame) {
  for (const char *how : {"", "--interpret"}) {
    Outcome r = kernel("run " + scale + launch + "-o o.safetensors " + how);
    ASSERT_EQ(r.code, 0) << r.err;
    auto out = load("o.safetensors");
    ASSERT_EQ(out.size(), 3u);
    for (int i = 0; i < 40; ++i)
      EXPECT_EQ(out["out_ptr"][static_cast<size_t>(i)], i < 33 ? static_cast<float>(i) * 0.5f + 100 : -1.0f) << i;
    EXPECT_EQ(out["x_ptr"][39], 39.0f);
  }
}

TEST_F(KernelCli, TheSignatureIsThatOfTheValues) {
  for (const char *how : {"", "--interpret"}) {
    Outcome r = kernel(std::string("run k.py:scale --constexpr BLOCK=32 ") + launch + "-o o.safetensors " + how);
    ASSERT_EQ(r.code, 0) << r.err;
    auto out = load("o.safetensors");
    for (int i = 0; i < 40; ++i)
      EXPECT_EQ(out["out_ptr"][static_cast<size_t>(i)], i < 33 ? static_cast<float>(i) * 0.5f + 100 : -1.0f) << i;
  }
  Outcome r = kernel("run k.py:scale --constexpr BLOCK=32 --grid 1 --arg @t.safetensors#a -o o.safetensors");
  EXPECT_NE(r.err.find("it takes 6 arguments (x_ptr, bias_ptr, out_ptr, n, factor, STEP), 1 are given"),
            std::string::npos)
      << r.err;
}

TEST_F(KernelCli, GridsAreExpressions) {
  for (const char *grid : {"'cdiv(n, BLOCK)'", "'(n + BLOCK - 1) // BLOCK, 1'", "'lambda meta: (triton.cdiv(n, meta[\"BLOCK\"]),)'"}) {
    Outcome r = kernel("run " + scale + "--grid " + grid +
                       " --arg @t.safetensors#a --arg none --arg @t.safetensors#o --arg 40 --arg 2.0 --arg 1 -o o.safetensors");
    ASSERT_EQ(r.code, 0) << grid << r.err;
    EXPECT_EQ(load("o.safetensors")["out_ptr"][39], 78.0f) << grid;
  }
}

TEST_F(KernelCli, AnAutotunedKernelSaysItsConfig) {
  write("tuned.py", R"(import triton
import triton.language as tl

@triton.autotune(configs=[triton.Config({"BLOCK": 16}, num_warps=2)], key=["n"])
@triton.jit
def twice(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)
)");
  Outcome r = kernel("run tuned.py:twice --grid 'cdiv(n, BLOCK)' --arg @t.safetensors#a --arg 40 -o o.safetensors");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.err.find("twice runs with num_warps=2, BLOCK=16 over a grid of 3 x 1 x 1"), std::string::npos) << r.err;
  EXPECT_EQ(load("o.safetensors")["x"][39], 78.0f);
}

TEST_F(KernelCli, RunWithoutAFileShowsTheBuffers) {
  const Outcome r = kernel("run " + scale + launch);
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.out.find("x_ptr     f32 [40]  min 0  max 39  mean 19.5\n"), 0u) << r.out;
  EXPECT_NE(r.out.find("out_ptr   f32 [40]  min -1  max 116 "), std::string::npos) << r.out;
}

TEST_F(KernelCli, AFunctionInPlaceOfItsNameIsTold) {
  write("act.py", R"(import neso.triton as triton
import neso.triton.language as tl
from neso import triton as again

@triton.jit
def relu(v):
    return tl.maximum(v, 0.0)

@again.jit
def apply(x, n, B: tl.constexpr, ACT: tl.constexpr):
    for k in tl.static_range(2):
        i = k * B + tl.arange(0, B)
        v = tl.load(x + i, mask=i < n) - 20
        if ACT == "relu":
            v = relu(v)
        tl.store(x + i, v, mask=i < n)
)");
  const std::string run = "run act.py:apply --grid 1 --constexpr B=32 --arg @t.safetensors#a --arg 40 -o o.safetensors --constexpr ACT=";
  Outcome r = kernel(run + "relu");
  ASSERT_EQ(r.code, 0) << r.err;
  const std::string warning = "warning[E1080]: act.py:14:12: the function relu is compared with the text 'relu', which it never equals";
  EXPECT_NE(r.err.find(warning), std::string::npos) << r.err;
  EXPECT_EQ(r.err.find(warning), r.err.rfind(warning)) << r.err;
  EXPECT_EQ(load("o.safetensors")["x"][0], -20.0f);
  r = kernel(run + "\"'relu'\"");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.err.find("E1080"), std::string::npos) << r.err;
  EXPECT_EQ(load("o.safetensors")["x"][0], 0.0f);
}

TEST_F(KernelCli, PackagesKeepConfigsAndGrid) {
  write("tuned.py", R"(import triton
import triton.language as tl

@triton.autotune(configs=[triton.Config({"BLOCK": 16}, num_warps=2), triton.Config({"BLOCK": 8}), triton.Config({"BLOCK": 16}, num_warps=4)], key=["n"])
@triton.jit
def twice(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)
)");
  const std::string source = "tuned.py:twice --signature '*fp32,i32' ", values = "--arg @t.safetensors#a --arg 40 ";
  Outcome r = kernel("compile " + source + "--configs all --grid 'cdiv(n, BLOCK)' -o k.neso --header k.h");
  ASSERT_EQ(r.code, 0) << r.err;
  // On a CPU the third config is the first one.
  for (auto [name, says] : {std::pair{"", "num_warps=2, BLOCK=16"}, {":twice", "BLOCK=16"}, {"':twice#1'", "BLOCK=8"}}) {
    r = kernel(std::string("run k.neso") + name + " " + values + "-o o.safetensors");
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_EQ(load("o.safetensors")["x"][39], 78.0f);
    EXPECT_NE(r.err.find(says), std::string::npos) << r.err;
    EXPECT_NE(r.err.find(std::string(says) == "BLOCK=8" ? "grid of 5 x" : "grid of 3 x"), std::string::npos) << r.err;
  }
  EXPECT_EQ(kernel("bench k.neso " + values + "--iters 2").code, 0);
  r = kernel("run 'k.neso:twice#2' " + values + "-o o.safetensors");
  EXPECT_NE(r.err.find("it holds twice, twice#1"), std::string::npos) << r.err;
  r = kernel("run k.neso --grid 1 " + values + "-o o.safetensors");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(load("o.safetensors")["x"][39], 39.0f);
  // The fastest becomes the kernel: each program of the other does its work many times.
  write("slow.py", R"(import triton
import triton.language as tl

@triton.autotune(configs=[triton.Config({"TURNS": 20000}), triton.Config({"TURNS": 1}), triton.Config({"TURNS": 400})], key=["n"])
@triton.jit
def turn(x, n, TURNS: tl.constexpr):
    i = tl.arange(0, 64)
    v = tl.load(x + i, mask=i < n)
    for _ in range(TURNS):
        v = tl.sin(v)
    tl.store(x + i, v, mask=i < n)
)");
  const std::string slow = "compile slow.py:turn --signature '*fp32,i32' --configs all --grid 1 -o slow.neso ";
  r = kernel(slow + "--tune " + values);
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.err.find("turn with num_warps=4, TURNS=20000, num_stages=3: "), std::string::npos) << r.err;
  EXPECT_NE(neso("info slow.neso").out.find("kernel.turn.constant.TURNS: 1\n"), std::string::npos);
  EXPECT_NE(neso("info slow.neso").out.find("kernel.turn#1.constant.TURNS: 20000\n"), std::string::npos);
  EXPECT_EQ(kernel(slow + values).code, 2);
  EXPECT_EQ(kernel("compile " + source + "--tune " + values + "-o l.neso").code, 2);
  // One config by its number, and what goes wrong.
  r = kernel("run " + source + "--config 1 --grid 'cdiv(n, BLOCK)' " + values + "-o o.safetensors");
  EXPECT_NE(r.err.find("num_warps=4, BLOCK=8 over a grid of 5 x"), std::string::npos) << r.err;
  r = kernel("compile " + source + "--config 3 -o l.neso");
  EXPECT_NE(r.err.find("there are 3 configs, counted from 0, and number 3 was asked for"), std::string::npos) << r.err;
  r = kernel("compile " + source + "--grid 'cdiv(m, BLOCK)' -o l.neso");
  EXPECT_NE(r.err.find("error[E1078]"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("'m' is no integer that a launch or a config gives; those are num_warps, BLOCK, n"), std::string::npos) << r.err;
  r = kernel("run " + source + values + "-o o.safetensors");
  EXPECT_EQ(r.code, 2) << r.err;
  EXPECT_NE(r.err.find("--grid: is required"), std::string::npos) << r.err;
  ASSERT_EQ(kernel("compile " + scale + "-o s.neso").code, 0);
  r = kernel("run s.neso --arg @t.safetensors#a --arg none --arg @t.safetensors#o --arg 40 --arg 2.0 --arg 1 -o o.safetensors");
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.err.find("has no grid of kernel 'scale'; give one, or compile it with --grid"), std::string::npos) << r.err;
}

TEST_F(KernelCli, PackagesRun) {
  ASSERT_EQ(kernel("compile " + scale + "-o k.neso").code, 0);
  EXPECT_NE(neso("info k.neso").out.find("kernel.scale.written: out_ptr\n"), std::string::npos);
  EXPECT_NE(neso("run k.neso").err.find("the package holds kernels only; launch them with neso_kernel_launch, or by neso kernel run"), std::string::npos);
  for (const char *name : {"", ":scale"}) {
    Outcome r = kernel(std::string("run k.neso") + name +
                       " --grid 'cdiv(n, BLOCK)' --arg @t.safetensors#a --arg @t.safetensors#b --arg @t.safetensors#o --arg 33 --arg 0.5 "
                       "--arg 1 -o o.safetensors");
    ASSERT_EQ(r.code, 0) << r.err;
    auto out = load("o.safetensors");
    for (int i = 0; i < 40; ++i)
      EXPECT_EQ(out["out_ptr"][static_cast<size_t>(i)], i < 33 ? static_cast<float>(i) * 0.5f + 100 : -1.0f) << i;
  }
  Outcome r = kernel("bench k.neso " + launch + "--iters 3 --json");
  EXPECT_EQ(r.out.rfind("{\"warm\": {\"median_ms\": ", 0), 0u) << r.out << r.err;
  r = kernel("run k.neso:other " + launch + "-o o.safetensors");
  EXPECT_NE(r.err.find("error[E0811]"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("it holds scale"), std::string::npos) << r.err;
  r = kernel("run k.neso --interpret " + launch + "-o o.safetensors");
  EXPECT_NE(r.err.find("a package holds machine code"), std::string::npos) << r.err;
  ASSERT_EQ(kernel("compile k.py:tile --signature 'tensordesc<fp32[4,4]>,*fp32' --constexpr B=4 -o d.neso").code, 0);
  r = kernel("run d.neso --grid 1 --arg @t.safetensors#m --arg @t.safetensors#o -o o.safetensors");
  ASSERT_EQ(r.code, 0) << r.err;
  auto out = load("o.safetensors");
  for (int i = 0; i < 16; ++i)
    EXPECT_EQ(out["out_ptr"][static_cast<size_t>(i)], static_cast<float>((1 + i / 4) * 8 + 2 + i % 4));
}

#ifndef __has_feature
#define __has_feature(x) 0
#endif

TEST_F(KernelCli, ACProgramLaunchesByTheHeader) {
  if (const std::string why = whyNoC(); !why.empty()) GTEST_SKIP() << why;
  Outcome r = kernel("compile " + scale + "-o k.neso --header k.h");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_NE(slurp(dir + "k.h").find("x_ptr: its address is a multiple of 16"), std::string::npos) << slurp(dir + "k.h");
  write("main.c", R"(#include <stdio.h>
#include <stdlib.h>
#include "k.h"
int main(void) {
  neso_model *m;
  neso_context *c;
  float *x = aligned_alloc(64, 256), *b = aligned_alloc(64, 256), *o = aligned_alloc(64, 256);
  for (int i = 0; i < 40; ++i) x[i] = (float)i, b[i] = 100, o[i] = -1;
  const uint32_t grid[3] = {(40 + SCALE_BLOCK - 1) / SCALE_BLOCK, 1, 1};
  if (neso_model_load("k.neso", 0, &m) || neso_context_create(m, 0, &c) || scale_launch(c, grid, x, b, o, 33, 0.5f, 1))
    return puts(neso_error_text()), 1;
  printf("%g %g %g\n", o[0], o[32], o[33]);
  neso_context_free(c);
  neso_model_free(m);
  return 0;
}
)");
  EXPECT_EQ(outputOfC(), "100 116 -1\n");
}

TEST_F(KernelCli, ACProgramChoosesAConfigAndLeavesTheGridToThePackage) {
  if (const std::string why = whyNoC(); !why.empty()) GTEST_SKIP() << why;
  write("tuned.py", R"(import triton
import triton.language as tl

@triton.autotune(configs=[triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 8})], key=["n"])
@triton.jit
def fill(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, BLOCK, mask=i < n)
)");
  Outcome r = kernel("compile tuned.py:fill --signature '*fp32,i32' --configs all --grid 'lambda meta: (triton.cdiv(n, meta[\"BLOCK\"]),)' -o k.neso --header k.h");
  ASSERT_EQ(r.code, 0) << r.err;
  write("main.c", R"(#include <stdio.h>
#include <stdlib.h>
#include "k.h"
int main(void) {
  neso_model *m;
  neso_context *c;
  float *x = aligned_alloc(64, 256);
  if (neso_model_load("k.neso", 0, &m) || neso_context_create(m, 0, &c)) return puts(neso_error_text()), 1;
  const int32_t configs = neso_kernel_configs(m, "fill");
  for (int32_t i = 0; i < configs; ++i) {
    const char *name = neso_kernel_config(m, "fill", i);
    char key[64];
    snprintf(key, sizeof key, "kernel.%s.constant.BLOCK", name);
    union neso_arg args[2];
    uint32_t grid[3];
    args[0].ptr = x, args[1].i64 = 40;
    for (int k = 0; k < 64; ++k) x[k] = 0;
    if (neso_kernel_grid(m, name, args, 2, grid) || fill_launch_config(c, name, NULL, x, 40)) return puts(neso_error_text()), 1;
    printf("%s %s %u: %g %g\n", name, neso_model_metadata(m, key), grid[0], x[39], x[40]);
  }
  if (fill_launch(c, NULL, x, 64)) return puts(neso_error_text()), 1;
  printf("%d %g\n", FILL_BLOCK, x[63]);
  neso_context_free(c);
  neso_model_free(m);
  return 0;
}
)");
  EXPECT_EQ(outputOfC(), "fill 16 3: 16 0\nfill#1 8 5: 8 0\n16 16\n");
}

TEST_F(KernelCli, AbsentPointersAndOneBufferTwice) {
  Outcome r = kernel(
      "run " + scale +
      "--grid 2 --arg @t.safetensors#a --arg none --arg @t.safetensors#a --arg 20 --arg 2.0 --arg 2 -o o.safetensors");
  ASSERT_EQ(r.code, 0) << r.err;
  auto out = load("o.safetensors");
  EXPECT_EQ(out.size(), 2u);
  EXPECT_EQ(out["x_ptr"], out["out_ptr"]);
  EXPECT_EQ(out["out_ptr"][0], 0.0f);
  EXPECT_EQ(out["out_ptr"][39], 39.0f);
}

TEST_F(KernelCli, AGridWithoutProgramsDoesNothing) {
  for (const char *how : {"", "--interpret"}) {
    Outcome r = kernel("run " + scale +
                       "--grid 0 --arg @t.safetensors#a --arg none --arg @t.safetensors#o --arg 99 --arg 2.0 --arg 2 "
                       "-o o.safetensors " +
                       how);
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_EQ(load("o.safetensors")["out_ptr"], std::vector<float>(40, -1.0f));
  }
}

TEST_F(KernelCli, DescriptorsTakeATensor) {
  for (const char *how : {"", "--interpret"}) {
    Outcome r = kernel("run k.py:tile --signature 'tensordesc<fp32[4,4]>,*fp32' --constexpr B=4 --grid 1 --arg "
                       "@t.safetensors#m --arg @t.safetensors#o -o o.safetensors " +
                       std::string(how));
    ASSERT_EQ(r.code, 0) << r.err;
    auto out = load("o.safetensors");
    for (int i = 0; i < 16; ++i)
      EXPECT_EQ(out["out_ptr"][static_cast<size_t>(i)], static_cast<float>((1 + i / 4) * 8 + 2 + i % 4));
  }
}

TEST_F(KernelCli, StagesAndTtirAsSource) {
  Outcome r = kernel("emit " + scale + "--stage ttir -o k.ttir");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_NE(slurp(dir + "k.ttir").find("tt.func public @scale"), std::string::npos);
  EXPECT_NE(kernel("emit " + scale + "--stage llvm").out.find("define"), std::string::npos);
  // Triton source is a kernel's source like any other.
  r = kernel("emit " + scale + "--stage triton -o again.py");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_NE(slurp(dir + "again.py").find("@triton.jit"), std::string::npos);
  r = kernel("run again.py:scale --signature '*fp32,*fp32,*fp32,i32,fp32,i32' " + launch + "-o again.safetensors");
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_NE(kernel("emit " + scale + "--stage asm").out.find(".globl"), std::string::npos);
  r = kernel("run k.ttir " + launch + "-o o.safetensors");
  ASSERT_EQ(r.code, 0) << r.err;
  auto out = load("o.safetensors");
  EXPECT_EQ(out.size(), 3u);
  r = kernel("analyze k.ttir:scale");
  EXPECT_EQ(r.code, 0) << r.err;
  r = kernel("compile k.ttir -o k.neso --arch x86-64-v3,x86-64-v4");
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_GT(slurp(dir + "k.neso").size(), 1000u);
}

TEST_F(KernelCli, BenchGivesJson) {
  Outcome r = kernel("bench " + scale + launch + "--iters 3 --json");
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.out.rfind("{\"warm\": {\"median_ms\": ", 0), 0u) << r.out;
}

TEST_F(KernelCli, MistakesAreNamed) {
  write("two.ttir", "module {\n  tt.func public @one() { tt.return }\n  tt.func public @two() { tt.return }\n}\n");
  struct Mistake {
    std::string arguments, code, text;
  };
  const std::string run = "run " + scale + "-o o.safetensors ",
                    buffers = "--arg @t.safetensors#a --arg @t.safetensors#b --arg @t.safetensors#o ";
  for (const Mistake &m : std::vector<Mistake>{
           {"analyze k.cu", "E0811", "FILE.py:NAME"},
           {"analyze k.py", "E0811", "it defines scale, tile"},
           {"analyze two.ttir", "E0811", "it holds 'one', 'two'"},
           {"analyze two.ttir:three", "E0811", "it holds 'one', 'two'"},
           {"analyze " + scale + "--hint m=divisible_by_16", "E1048", "no parameter 'm'; its parameters are: x_ptr"},
           {"analyze " + scale + "--hint n=divisible_by_15", "E1051", "divisible_by_15"},
           {"analyze missing.ttir", "E0101", "missing.ttir"},
           {run + "--grid 2 --arg 1", "E0414",
            "takes 6 arguments (x_ptr, bias_ptr, out_ptr, n, factor, STEP), 1 are given"},
           {run + "--grid -1 " + buffers + "--arg 33 --arg 0.5 --arg 1", "E0414", "grid '-1'"},
           {run + "--grid 4000000000 " + buffers + "--arg 33 --arg 0.5 --arg 1", "E0843", "grid of 4000000000 x 1 x 1"},
           {run + "--grid 2 " + buffers + "--arg 41 --arg 0.5 --arg 1", "E0841",
            "buffer of 160 bytes, but over a grid of 2 x 1 x 1 the kernel touches bytes [0, 164)"},
           {run + "--grid 2 " + buffers + "--arg 21 --arg 0.5 --arg 2", "E0841", "[0, 164) of it (line 7)"},
           {run + "--grid 2 " + buffers + "--arg x --arg 0.5 --arg 1", "E0", "'x'"},
           {run + "--grid 2 " + buffers + "--arg 5000000000 --arg 0.5 --arg 1", "E0414", "an integer of 32 bits"},
           {run + "--grid 2 " + buffers + "--arg @t.safetensors#a --arg 0.5 --arg 1", "E0414", "an integer of 32 bits"},
           {run + "--grid 2 --arg @t.safetensors#zz --arg none --arg @t.safetensors#o --arg 3 --arg 0.5 --arg 1",
            "E0802", "no tensor 'zz'"},
           {run + "--grid 2 --arg 7 --arg none --arg @t.safetensors#o --arg 3 --arg 0.5 --arg 1", "E0414",
            "is no buffer"},
           {run + launch + "--device gpu", "E0808", "gpu"},
           {run + launch + "--device cuda --cuda-driver none.so", "E0838", "no CUDA driver"},
           {run + "--interpret --grid 2 " + buffers + "--arg 60 --arg 0.5 --arg 1", "E0410", "k.py"},
           {"compile " + scale + "-o k.neso --target rocm", "E0690", "rocm"},
           {"compile " + scale + "-o k.neso --arch sm_90", "E0691", "sm_90"},
           {"emit " + scale + "--stage ptx", "E0602", "stage ptx"},
           {"emit " + scale + "--stage layout", "E0602", "stage layout"},
           {"run " + scale + "--grid 1", "E0414", "0 are given"},
       }) {
    Outcome r = kernel(m.arguments);
    EXPECT_EQ(r.code, 1) << m.arguments;
    EXPECT_NE(r.err.find("error[" + m.code), std::string::npos) << m.arguments << "\n" << r.err;
    EXPECT_NE(r.err.find(m.text), std::string::npos) << m.arguments << "\n" << r.err;
  }
  EXPECT_EQ(kernel("run " + scale + "--grid").code, 2);
  EXPECT_EQ(kernel("").code, 2);
  EXPECT_EQ(kernel("emit " + scale + "--stage sas").code, 2);
  Outcome r = kernel("analyse k.py:scale");
  EXPECT_EQ(r.code, 2);
  EXPECT_NE(r.err.find("'analyse' is no command; the commands of neso kernel are analyze, compile, emit, run, bench"),
            std::string::npos)
      << r.err;
}

} // namespace
