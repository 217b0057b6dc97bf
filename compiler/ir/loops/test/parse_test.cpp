// Text of loops, read back: what goldens do not have (user kernels, look-back, masks), and what is no such text. Every
// golden is read back in lower/graph_to_loops/test.
#include <gtest/gtest.h>

#include "base/diagnostics/loops.h"
#include "ir/loops/parse.h"
#include "ir/shape/test/text_form.h"

namespace neso::loops {
namespace {

constexpr const char *kText = R"(loops all of it
  size s0 in [2, inf]
  guard s0 % 2 == 0
  buffer x : f32[8*s0] input 0
  buffer w#1 : f32[64] constant 0 mutated
  buffer w#2 : bool[s0] temp
  buffer words : i64[1024] temp
  buffer y : f32[8*s0] temp
  in 0 tensor x : f32[8, s0] strides [s0, 1] -> x
  in 1 int n = s0
  in 2 float scale of 0.5
  in 3 none -
  weight 0 layer.weight : f32 256 bytes at 128 tensor layer.weight sizes [8, 8] strides [8, 1] offset 0 tensor half sizes [4] strides [2] offset 1 buffer
  node n0 pointwise ranges [s0]  # mask and more
    %0 = index i0 + 1 : i64
    %1 = indirect t0 < Min(s0, 8) wrap check, %0 : i64
    %2 = constant 4 : i64
    %3 = lt %1, %2 : bool
    %4 = load x[s0*t0 + i0], %3 : f32
    %5 = constant -inf : f32
    %6 = where %3, %4, %5 : f32
    store w#2[i0] if %3 = %3
    atomic_add y[i0] = %6
  node n1 reduction ranges [8] over [s0]  # totals
    %0 = load x[i0*s0 + r0] : f32
    reduce welford %0 : f32 -> store y[i0] = result 0, store w#1[i0] = result 1
    reduce max %0 : f32
  node n2 scan ranges [8] over [s0]  # running
    %0 = load x[i0*s0 + r0] : f32
    scan sum %0 reverse
    tiles of 4096 look back in words
    store y[i0*s0 + r0] = result 0
  node n3 sort ranges [8] over [s0]  # order
    %0 = load x[i0*s0 + r0] : f32
    %1 = index r0 : i64
    sort %0 descending positions %1 merges runs of s0//2
    store y[i0*s0 + r0] = result 0
  node n4 contraction ranges [8, 8] over [8]  # product
    %0 = load w#1[8*i0 + r0] : f32
    contract %0, %0 : f32
    epilogue of %0:
    %0 = constant 0 : f32
    %1 = relu %0 : f32
    store y[8*i0 + i1] = %1
  node n5 attention ranges [1, 1, s0, 8]  # look
    attention keys s0 head 8 scale 0.25 below min(s0, b + 4); causal masked -1e+09 empty nan
    q = x[8*m + d] : f32
    k = x[8*n + d] : f32
    v = x[8*n + d] : f32
    mask = w#2[n] : bool
    out = y[8*m + d] : f32
    log sum = y[m] : f32
  node n6 user_kernel ranges []  # theirs
    launch add_kernel over s0//16, 1, 1 function 2 choice 0
      p = x[4] read
      q = y[0] read written inside loads 1.5 stores 1
      n = 8*s0 : i32
      scale = 0.125 : f64
  output 0 y : f32[8, s0] strides [s0, 1] offset 0
  output 1 scalar s0 + 1
  output 2 truth 1
  output 3 float 2.5
  output 4 none
  output 5 w#1 : f32[8, 8] strides [8, 1] offset 0 -> w#1 as buffer.weight
  output 6 y : f32[8, 8] strides [8, 1] offset 0 -> w#1 strides [1, 8] offset s0 - 2 as buffer.weight
  arguments [1, {"type": null}]
)";

Result<Program> parseText(const std::string &text, const std::string &file) { return parse(text, file); }

TEST(Parse, GivesBackItsText) {
  const Result<Program> p = test::givenBack(kText, parseText, [](const Program &made) { return print(made); });
  ASSERT_TRUE(p);
  EXPECT_EQ(p->nodes.size(), 7u);
  EXPECT_EQ(p->nodes[0].body().ops[1].symbol, Symbol::indirect(0));
  EXPECT_TRUE(p->nodes[0].body().ops[1].wrap && p->nodes[0].body().ops[1].check);
  EXPECT_EQ(p->nodes[5].get<AttentionSpec>().masked, -1e9);
  EXPECT_EQ(p->nodes[6].get<UserKernelSpec>().arguments[1].loads, 1.5);
  EXPECT_EQ(p->nodes[6].get<UserKernelSpec>().arguments[3].kind, UserKernelSpec::Argument::Real);
  EXPECT_EQ(p->buffers[2].name, "w");
  EXPECT_EQ(p->outputs[5].mutationTarget, "buffer.weight");
  EXPECT_EQ(p->outputs[6].writeBackStrides, (std::vector<Expr>{1, 8}));
  EXPECT_EQ(p->constants[0].tensors.at(1).strides, std::vector<int64_t>{2});
}

TEST(Parse, SaysWhatIsWrongAndWhere) {
  auto fault = [](const std::string &text) { return test::refusalOf(text, parseText, diag::LoopsSyntax); };
  EXPECT_NE(fault("").find("empty"), std::string::npos);
  EXPECT_NE(fault("graph x\n").find("'loops' is expected"), std::string::npos);
  const std::string head = "loops p\n  buffer x : f32[4] temp\n";
  EXPECT_NE(fault(head + "  node n0 pointwise ranges [4]  # n\n    %0 = plus %1, %2 : f32\n").find("no operator 'plus'"),
            std::string::npos);
  EXPECT_NE(fault(head + "  node n0 pointwise ranges [4]  # n\n    %0 = load z[i0] : f32\n").find("no buffer 'z'"),
            std::string::npos);
  EXPECT_NE(fault(head + "  buffer x : f32[4] temp\n").find("another buffer"), std::string::npos);
  EXPECT_NE(fault(head + "  buffer z : f33[4] temp\n").find("'f33' is no dtype"), std::string::npos);
  EXPECT_NE(fault(head + "  node n0 pointwise ranges [4  # n\n").find("bad.text:3"), std::string::npos);
  EXPECT_NE(fault(head + "  size s0 in [1, 4] more\n").find("nothing more"), std::string::npos);
}

TEST(Parse, SurvivesDamage) { test::survivesDamage(kText, parseText, " [9%\n"); }

} // namespace
} // namespace neso::loops
