// What is computed several times in a row: which nodes compute it once, and which stay as they are.
#include "lower/schedule/repeats.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "ir/loops/interp.h"
#include "ir/loops/parse.h"
#include "ir/loops/verify.h"

namespace neso::schedule::test {
namespace {

using namespace loops;

/// q [2, 4, s0, 8] against 2 key heads: `keys` is the node that makes t0 of x [2, s0, 16], at `index` for the attention.
struct Attention {
  std::string keys, index, elements = "64*s0", mask = {}, buffers = {}, nodes = {}, outputs = {}, sizes = "[1, 64]";
  std::string text() const {
    return fmt::format("loops attention\n"
                       "  size s0 in {}\n"
                       "  buffer q : f32[64*s0] input 0\n"
                       "  buffer x : f32[32*s0] input 1\n"
                       "  buffer t0 : f32[{}] temp\n"
                       "  buffer y : f32[64*s0] temp\n{}"
                       "  in 0 tensor q : f32[2, s0, 4, 8] strides [32*s0, 32, 8, 1] -> q\n"
                       "  in 1 tensor x : f32[2, s0, 16] strides [16*s0, 16, 1] -> x\n{}"
                       "  node n1 attention ranges [2, 4, s0, 8]  # attention\n"
                       "    attention keys s0 head 8 scale 0.5\n"
                       "    q = q[32*b*s0 + d + 8*h + 32*m] : f32\n"
                       "    k = {} : f32\n"
                       "    v = x[16*b*s0 + d + 16*n + 8*(h//2)] : f32\n{}"
                       "    out = y[32*b*s0 + d + 8*h + 32*m] : f32\n{}"
                       "  output 0 y : f32[2, s0, 4, 8] strides [32*s0, 32, 8, 1] offset 0\n{}",
                       sizes, elements, buffers, keys, index, mask, nodes, outputs);
  }
};

Attention grouped() {
  return {.keys = "  node n0 pointwise ranges [2, 4, s0, 8]  # keys\n"
                  "    %0 = load x[16*i0*s0 + 16*i2 + i3 + 8*(i1//2)] : f32\n"
                  "    %1 = cos %0 : f32\n"
                  "    store t0[32*i0*s0 + 8*i1*s0 + 8*i2 + i3] = %1\n",
          .index = "t0[32*b*s0 + d + 8*h*s0 + 8*n]"};
}
/// A mask that is the same for both of a batch and all heads.
Attention masked() {
  return {.keys = "  node n0 pointwise ranges [2, 4, s0, s0]  # bias\n"
                  "    %0 = index i2 - i3 : i64\n"
                  "    %1 = cast %0 : f32\n"
                  "    store t0[4*i0*s0*s0 + i1*s0*s0 + i2*s0 + i3] = %1\n",
          .index = "x[16*b*s0 + d + 16*n + 8*(h//2)]",
          .elements = "8*s0*s0",
          .mask = "    mask = t0[4*b*s0*s0 + h*s0*s0 + m*s0 + n] : f32\n"};
}

std::vector<HostValue> run(const Program &p, int64_t s0, std::vector<std::vector<float>> &memory) {
  memory.clear();
  std::mt19937 rng(7);
  std::vector<HostValue> inputs;
  for (const ProgramInput &in : p.inputs) {
    std::vector<int64_t> sizes;
    int64_t count = 1;
    for (Expr e : in.sizes) sizes.push_back(*evaluate(e, {{Symbol::size("s0"), s0}})), count *= sizes.back();
    memory.emplace_back(static_cast<size_t>(count));
    for (float &f : memory.back()) f = static_cast<float>(static_cast<int>(rng() % 64) - 32) / 16;
    inputs.push_back(HostValue::tensor(DType::F32, sizes, memory.back().data()));
  }
  Result<std::vector<HostValue>> out = Interpreter(p, 0xa5).run(inputs);
  EXPECT_TRUE(out) << out.error().str() << print(p);
  return out ? std::move(*out) : std::vector<HostValue>();
}

/// The program after the step, which must be sound and compute the same bits.
struct Shared {
  Program p;
  size_t said = 0;
  explicit Shared(const std::string &text, const MachineSheet &machine = {}) {
    Result<Program> read = parse(text, "test");
    EXPECT_TRUE(read) << read.error().str() << text;
    if (!read) return;
    p = std::move(*read);
    Status sound = verify(p);
    EXPECT_TRUE(sound) << sound.error().str();
    const Program before = p;
    for (const auto &[node, lines] : shareRepeats(p, machine)) said += lines.size();
    sound = verify(p);
    EXPECT_TRUE(sound) << sound.error().str() << print(p);
    for (int64_t s0 : {1, 5, 40}) {
      std::vector<std::vector<float>> a, b;
      const std::vector<HostValue> want = run(before, s0, a), got = run(p, s0, b);
      for (size_t k = 0; k < want.size() && k < got.size(); ++k)
        EXPECT_EQ(std::memcmp(want[k].data, got[k].data, static_cast<size_t>(want[k].elements()) * 4), 0) << print(p);
    }
  }
  const Node &made() const { return p.nodes[0]; }
  const Buffer &buffer() const { return p.buffers[2]; }
  const AttentionSpec &attention() const { return p.nodes[1].get<AttentionSpec>(); }
};

Expr at(AttentionSpec::Axis a) { return AttentionSpec::symbol(a); }
const Expr b = at(AttentionSpec::Batch), h = at(AttentionSpec::Head), m = at(AttentionSpec::Query), n = at(AttentionSpec::Key),
           d = at(AttentionSpec::Element);
const Expr s0 = Symbol::size("s0");
Expr i(int k) { return Symbol::index(static_cast<size_t>(k)); }

TEST(Repeats, KeyHeadsOfSeveralQueryHeadsAreComputedOnce) {
  const Shared s(grouped().text());
  EXPECT_EQ(s.made().ranges, (std::vector<Expr>{2, 2, s0, 8}));
  EXPECT_EQ(s.made().body().ops[0].index, 16 * i(0) * s0 + 8 * i(1) + 16 * i(2) + i(3));
  EXPECT_EQ(s.made().stores()[0].index, 16 * i(0) * s0 + 8 * i(1) * s0 + 8 * i(2) + i(3));
  EXPECT_EQ(s.buffer().elements, 32 * s0);
  EXPECT_EQ(s.attention().k.index, 16 * b * s0 + 8 * s0 * floorDiv(h, 2) + 8 * n + d);
  EXPECT_EQ(s.said, 1u);
}

TEST(Repeats, AMaskOfAllHeadsAndBatchesIsOne) {
  const Shared s(masked().text());
  EXPECT_EQ(s.made().ranges, (std::vector<Expr>{s0, s0}));
  EXPECT_EQ(s.buffer().elements, s0 * s0);
  EXPECT_EQ(s.attention().mask.index, m * s0 + n);
  EXPECT_EQ(s.said, 2u);
}

TEST(Repeats, ThatLieInnermostStay) {
  // Of four neighbours one would be left: the attention would no longer find its keys side by side. The heads may still go.
  Attention a = grouped();
  a.keys = "  node n0 pointwise ranges [2, 4, s0, 8]  # keys\n"
           "    %0 = load x[16*i0*s0 + 16*i2 + 8*(i1//2) + i3//4] : f32\n"
           "    store t0[32*i0*s0 + 8*i1*s0 + 8*i2 + i3] = %0\n";
  const Shared s(a.text());
  EXPECT_EQ(s.made().ranges, (std::vector<Expr>{2, 2, s0, 8}));
  EXPECT_EQ(s.said, 1u);
}

TEST(Repeats, OfWhatIsNoRepeatStay) {
  // The number of the head itself, beside that of its group; and groups that do not fill the heads.
  for (std::string more : {"i1", "i1//3"}) {
    Attention a = grouped();
    a.keys = fmt::format("  node n0 pointwise ranges [2, 4, s0, 8]  # keys\n"
                         "    %0 = load x[16*i0*s0 + 16*i2 + i3 + 8*(i1//2)] : f32\n"
                         "    %1 = index {} : i64\n"
                         "    %2 = cast %1 : f32\n"
                         "    %3 = add %0, %2 : f32\n"
                         "    store t0[32*i0*s0 + 8*i1*s0 + 8*i2 + i3] = %3\n", more);
    EXPECT_EQ(Shared(a.text()).said, 0u) << more;
  }
}

TEST(Repeats, ThatMayBeNoneStay) {
  // Where there are no rows nothing is computed, but a node that does not run over rows always runs. The eight heads may go.
  Attention a = masked();
  a.sizes = "[0, 64]";
  a.keys = "  node n0 pointwise ranges [s0, 8, s0]  # bias\n"
           "    %0 = index i2 : i64\n"
           "    %1 = cast %0 : f32\n"
           "    store t0[i1*s0*s0 + i0*s0 + i2] = %1\n";
  const Shared s(a.text());
  EXPECT_EQ(s.made().ranges, (std::vector<Expr>{s0, s0}));
}

TEST(Repeats, ThatAReaderComputesAtItsLoadsStay) {
  Attention a = grouped();
  a.buffers = "  buffer z : f32[64*s0] temp\n";
  a.nodes = "  node n2 pointwise ranges [64*s0]  # neg\n"
           "    %0 = load t0[i0] : f32\n"
           "    %1 = neg %0 : f32\n"
           "    store z[i0] = %1\n";
  a.outputs = "  output 1 z : f32[64*s0] strides [1] offset 0\n";
  EXPECT_EQ(Shared(a.text()).said, 0u);
}

TEST(Repeats, ThatTheCallerSeesStay) {
  Attention a = grouped();
  a.outputs = "  output 1 t0 : f32[64*s0] strides [1] offset 0\n";
  EXPECT_EQ(Shared(a.text()).said, 0u);
}

TEST(Repeats, ThatAReaderMeetsElsewhereStay) {
  // Across the ends of heads, around the whole buffer.
  Attention a = grouped();
  a.elements = "64*s0", a.index = "t0[(32*b*s0 + d + 8*h*s0 + 8*n + 3)%(64*s0)]";
  EXPECT_EQ(Shared(a.text()).said, 0u);
}

TEST(Repeats, ReadByAScanAreComputedOnceWhereItsStridesStay) {
  const std::string head = "loops rows\n"
                           "  size s0 in [1, 64]\n"
                           "  buffer x : f32[2*s0] input 0\n"
                           "  buffer w : f32[1] input 1\n"
                           "  buffer t0 : f32[6*s0] temp\n"
                           "  buffer y : f32[6*s0] temp\n"
                           "  in 0 tensor x : f32[2, s0] strides [s0, 1] -> x\n"
                           "  in 1 tensor w : f32[1] strides [1] -> w\n"
                           "  node n0 pointwise ranges [6, s0]  # repeat\n"
                           "    %0 = load x[(i0//3)*s0 + i1] : f32\n"
                           "    %1 = load w[0] : f32\n"
                           "    %2 = mul %0, %1 : f32\n"
                           "    store t0[i0*s0 + i1] = %2\n",
                    tail = "  output 0 y : f32[6, s0] strides [s0, 1] offset 0\n";
  const Shared s(head +
                 "  node n1 scan ranges [2, 3] over [s0]  # cumsum\n"
                 "    %0 = load t0[3*i0*s0 + i1*s0 + r0] : f32\n"
                 "    scan sum %0\n"
                 "    store y[3*i0*s0 + i1*s0 + r0] = result 0\n" + tail);
  EXPECT_EQ(s.made().ranges, (std::vector<Expr>{2, s0}));
  EXPECT_EQ(s.p.nodes[1].body().ops[0].index, i(0) * s0 + Symbol::inner(0));
  const Shared apart(head +
                     "  node n1 scan ranges [6] over [s0]  # cumsum\n"
                     "    %0 = load t0[i0*s0 + r0] : f32\n"
                     "    scan sum %0\n"
                     "    store y[i0*s0 + r0] = result 0\n" + tail);
  EXPECT_EQ(apart.said, 0u);
}

TEST(Repeats, ThatShareAKernelStayWhereALaunchCostsMore) {
  MachineSheet machine;
  machine.nextLaunch = 2, machine.bytesPerUs = 1e6;
  // Nobody else runs over the space of the keys.
  EXPECT_EQ(Shared(grouped().text(), machine).said, 1u);
  Attention a = grouped();
  a.buffers = "  buffer z : f32[64*s0] temp\n";
  a.nodes = "  node n2 pointwise ranges [2, 4, s0, 8]  # neg\n"
           "    %0 = load x[16*i0*s0 + 16*i2 + i3 + 8*(i1//2)] : f32\n"
           "    %1 = neg %0 : f32\n"
           "    store z[32*i0*s0 + 8*i1*s0 + 8*i2 + i3] = %1\n";
  a.outputs = "  output 1 z : f32[64*s0] strides [1] offset 0\n";
  EXPECT_EQ(Shared(a.text(), machine).said, 0u);
  machine.bytesPerUs = 1e3;
  EXPECT_EQ(Shared(a.text(), machine).said, 1u);
}

} // namespace
} // namespace neso::schedule::test
