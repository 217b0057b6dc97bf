// Text of plans, read back: what goldens do not have (branches, loops, products of libraries, late sizes), and what is
// no such text. Every golden's plan is read back in tests/schedule.
#include <gtest/gtest.h>

#include "base/diagnostics/loops.h"
#include "ir/plan/parse.h"
#include "ir/shape/test/text_form.h"

namespace neso::plan {
namespace {

constexpr const char *kText = R"(plan all of it
  size s0 in [2, inf]
  guard s0 % 2 == 0
  buffer x : f32[8*s0] input 0
  buffer w : f32[64] constant 0 mutated
  buffer n : i64[1] temp arena at 64 bytes 64 steps [0, 3]
  buffer t : f32[8*s0] temp nowhere
  buffer late : f32[u0] temp arena 1 at 0 bytes 4*u0 steps [1, 9]
  buffer y : f32[8*s0] temp output 0
  buffer unused : f32[4] input 1 nowhere
  in 0 tensor x : f32[8, s0] strides [s0, 1] -> x
  in 1 int n = s0
  weight 0 layer.weight : f32 256 bytes at 128 buffer
  output 0 y : f32[8, s0] strides [s0, 1] offset 0
before
  input 0 size 0 in [8, 8]
  input 0 size 1 in [2, inf] is s0
  input 1 size 0 in [-inf, inf] equals s0
  define s1 is s0 + 1
  guard s0 % 2 == 0
  arena 64*s0 bytes, lower bound 64
  arena 1 late 4*u0 bytes
  output 0 : 32*s0 bytes of y is output 0 of the program
  output 1 : 4*u0 bytes copied is output 1 of the program late
kernel mm x [8, s0] r [8] contraction  # reads 1 writes 1 bytes
    # chosen so
    or a library's 1 x [8, s0, 8] of f32 to f32: y at 0 pitch s0 batch 0 = x at 1 pitch 8 batch 0 * w ^T at 0 pitch 8 batch 64, bias w at 8, relu, in n, then mm_rest
    function mm grid [s0//16, 1, 1] warps 4 stages 3
    buffer x[4] read
    buffer y[0] read written
    size s0 + 1
    int -3
    float 0.5 : f64
  node n0 contraction ranges [8, s0] over [8]  # product
    %0 = load x[8*x0 + r0] : f32
    contract %0, %0 : f32
    store y[x0*s0 + x1] = %0
kernel mm_rest x [8] r [] pointwise serial  # reads 1 writes 1 bytes
  node n1 pointwise ranges [8]  # rest
    %0 = constant 1 : f32
    store y[x0] = %0
kernel pack x [] r [] pointwise  # reads 0 writes 0 bytes
    part mm_rest
kernel theirs x [] r [] user_kernel  # reads 1 writes 1 bytes
    at argument 1: n3 n4
  node n2 user_kernel ranges []  # theirs
    launch add_kernel over s0//16, 1, 1 function 2 choice 0
      kernel = x[4] read
      steps = 8*s0 : i32
steps
  0: launch mm, or a library
  1: u0 = scalar n : i64
  2: sizes of u0
  3: guard u0 >= 1
  4: grow arena 1
  5: allocate output 1
  6: if s0 > 4
    7: launch pack
    8: while s0 < 9 after
      9: launch theirs
      10: u0 = scalar n : i64 turn from 2
    do
      11: copy [8, s0] of f32 from x strides [s0, 1] offset 0 to output 1 strides [1, 8] offset 2
  else
    12: copy [8] of f32 from x strides [1] offset s0 to y strides [1] offset 0
  13: launch theirs
)";

Result<Plan> parseText(const std::string &text, const std::string &file) { return parse(text, file); }

TEST(PlanText, GivesBackItsText) {
  const Result<Plan> p = test::givenBack(kText, parseText, [](const Plan &made) { return print(made); });
  ASSERT_TRUE(p);
  ASSERT_EQ(p->kernels.size(), 4u);
  EXPECT_EQ(p->kernels[0].product->rest, KernelId(1));
  EXPECT_EQ(p->kernels[0].product->biasOffset, Expr(8));
  EXPECT_TRUE(p->kernels[0].product->b.transposed && p->kernels[0].product->relu && p->kernels[1].serial);
  EXPECT_EQ(p->kernels[0].args.size(), 5u);
  EXPECT_EQ(p->kernels[0].args[3].intValue, -3);
  EXPECT_TRUE(p->kernels[0].args[4].isF64);
  EXPECT_EQ(p->kernels[2].parts, std::vector<KernelId>{KernelId(1)});
  EXPECT_EQ(p->kernels[3].attached[0].nodes.size(), 2u);
  EXPECT_EQ(p->kernels[3].nodes[0].get<loops::UserKernelSpec>().arguments.size(), 2u);
  EXPECT_EQ(p->placements[4].arena, 1u);
  EXPECT_EQ(p->placements[0].where, Placement::Where::Input);
  EXPECT_EQ(p->placements[6].where, Placement::Where::None);
  EXPECT_TRUE(p->outputs[1].late && !p->outputs[1].buffer.valid());
  ASSERT_EQ(p->main.steps.size(), 8u);
  const If *branch = p->main.steps[6].as<If>();
  ASSERT_TRUE(branch);
  ASSERT_EQ(branch->then.steps.size(), 2u);
  ASSERT_TRUE(branch->then.steps[1].as<While>());
  EXPECT_EQ(branch->then.steps[1].as<While>()->body.steps[0].as<Copy>()->dstOutput, 1);
  EXPECT_EQ(branch->otherwise.steps.size(), 1u);
  EXPECT_EQ(branch->then.steps[1].as<While>()->test.steps[1].as<LoadScalar>()->turn, 2);
  EXPECT_FALSE(p->main.steps[1].as<LoadScalar>()->turn);
  EXPECT_EQ(p->guards[0].message, guardOf(p->guards[0].condition).message);
}

TEST(PlanText, SaysWhatIsWrongAndWhere) {
  auto fault = [](const std::string &text) { return test::refusalOf(text, parseText, diag::PlanSyntax); };
  EXPECT_NE(fault("").find("empty"), std::string::npos);
  EXPECT_NE(fault("loops x\n").find("'plan' is expected"), std::string::npos);
  const std::string head = "plan p\n  buffer x : f32[4] temp nowhere\n";
  EXPECT_NE(fault(head + "steps\n  0: launch k\n").find("no kernel 'k'"), std::string::npos);
  EXPECT_NE(fault(head + "steps\n  0: grow arena x\n").find("bad.text:4"), std::string::npos);
  EXPECT_NE(fault(head + "steps\n  else\n").find("nothing is before it"), std::string::npos);
  EXPECT_NE(fault(head + "steps\n      0: grow arena 1\n").find("indentation"), std::string::npos);
  EXPECT_NE(fault("plan p\n  buffer x : f32[4] temp elsewhere\n").find("'elsewhere' is unknown"), std::string::npos);
  EXPECT_NE(fault(head + "kernel k x [] r [] pointwise\nkernel k x [] r [] pointwise\n").find("another kernel"),
            std::string::npos);
}

TEST(PlanText, SurvivesDamage) { test::survivesDamage(kText, parseText, " [9%\n"); }

} // namespace
} // namespace neso::plan
