// Attention of few queries: heads become rows, keys become parts, and the result is what it was.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "ir/loops/interp.h"
#include "ir/loops/parse.h"
#include "ir/loops/verify.h"
#include "lower/schedule/split.h"

namespace neso::schedule::test {
namespace {

using namespace loops;

/// q [B, 4, M, 4] against `heads` key heads of s0 keys; `with`: what else the node's first line says.
std::string textOf(const std::string &batches, int heads, int queries, const std::string &with = "") {
  const std::string keys = std::to_string(4 * heads), rows = std::to_string(queries), all = std::to_string(16 * queries), own = std::to_string(4 * queries);
  const std::string group = heads == 4 ? "h" : "(h//" + std::to_string(4 / heads) + ")";
  const std::string at = "[" + keys + "*b*s0 + d + 4*n + 4*s0*" + group + "]";
  return "loops attention\n  size s0 in [1, 5000]\n  size s1 in [1, 64]\n  buffer q : f32[" + all + "*" + batches + "] input 0\n  buffer k : f32[" + keys + "*s0*" + batches +
         "] input 1\n  buffer v : f32[" + keys + "*s0*" + batches + "] input 2\n  buffer mask : f32[s0] input 3\n  buffer y : f32[" + all + "*" + batches + "] temp\n" +
         "  in 0 tensor q : f32[" + batches + ", 4, " + rows + ", 4] strides [" + all + ", " + own + ", 4, 1] -> q\n" +
         "  in 1 tensor k : f32[" + batches + ", " + keys + ", s0] strides [" + keys + "*s0, s0, 1] -> k\n" +
         "  in 2 tensor v : f32[" + batches + ", " + keys + ", s0] strides [" + keys + "*s0, s0, 1] -> v\n" + "  in 3 tensor mask : f32[s0] strides [1] -> mask\n" +
         "  node n0 attention ranges [" + batches + ", 4, " + rows + ", 4]  # look\n    attention keys s0 head 4 scale 0.5" + with + "\n" + "    q = q[" + all + "*b + d + " + own +
         "*h + 4*m] : f32\n    k = k" + at + " : f32\n    v = v" + at + " : f32\n    mask = mask[n] : f32\n    out = y[" + all + "*b + d + " + own + "*h + 4*m] : f32\n" +
         "  output 0 y : f32[" + batches + ", 4, " + rows + ", 4] strides [" + all + ", " + own + ", 4, 1] offset 0\n";
}

/// The program's result; scores of a part of the keys are -inf by the mask.
std::vector<float> run(const Program &p, int64_t keys, int64_t batches) {
  std::mt19937 rng(7);
  std::vector<std::vector<float>> memory;
  std::vector<HostValue> inputs;
  for (const ProgramInput &in : p.inputs) {
    std::vector<int64_t> sizes;
    int64_t count = 1;
    for (Expr e : in.sizes) sizes.push_back(*evaluate(e, {{Symbol::size("s0"), keys}, {Symbol::size("s1"), batches}})), count *= sizes.back();
    memory.emplace_back(static_cast<size_t>(count));
    for (size_t i = 0; i < memory.back().size(); ++i) {
      const bool left = inputs.size() == 3 && i % 3 == 0 && i < 400;
      memory.back()[i] = left ? -INFINITY : static_cast<float>(static_cast<int>(rng() % 64) - 32) / 16;
    }
    inputs.push_back(HostValue::tensor(DType::F32, sizes, memory.back().data()));
  }
  Result<std::vector<HostValue>> out = Interpreter(p, 0xa5).run(inputs);
  EXPECT_TRUE(out) << out.error().str() << print(p);
  if (!out) return {};
  const float *data = static_cast<const float *>(static_cast<const void *>((*out)[0].data));
  return std::vector<float>(data, data + (*out)[0].elements());
}

/// The program after the step for 132 processors. It must be sound, and compute the same at these sizes.
Program splitOf(const std::string &text, std::initializer_list<std::pair<int64_t, int64_t>> keysAndBatches) {
  Result<Program> read = parse(text, "test");
  EXPECT_TRUE(read) << read.error().str() << text;
  if (!read) return {};
  Status sound = verify(*read);
  EXPECT_TRUE(sound) << sound.error().str();
  Program p = *read;
  MachineSheet machine;
  machine.processors = 132;
  splitAttention(p, SplitRule::manyProcessors(machine));
  sound = verify(p);
  EXPECT_TRUE(sound) << sound.error().str() << print(p);
  for (const auto &[keys, batches] : keysAndBatches) {
    const std::vector<float> want = run(*read, keys, batches), got = run(p, keys, batches);
    EXPECT_EQ(want.size(), got.size());
    for (size_t i = 0; i < want.size() && i < got.size(); ++i) EXPECT_NEAR(want[i], got[i], 2e-6) << i << " of " << keys << " keys, " << batches << " batches";
  }
  return p;
}

TEST(SplitAttention, KeysInPartsAsARunAsksFor) {
  // Eight programs leave room for 33 parts, of which each has 256 keys at least; three batches of four heads for 22.
  const Program p = splitOf(textOf("s1", 4, 1), {{1, 1}, {500, 2}, {512, 2}, {1000, 2}, {1029, 1}, {2049, 3}});
  ASSERT_EQ(p.nodes.size(), 4u);
  const Symbol batches = Symbol::size("s1"), keys = Symbol::size("s0");
  auto parts = [&](int64_t b, int64_t n) { return *evaluate(p.nodes[1].reduceRanges[0], {{batches, b}, {keys, n}}); };
  EXPECT_EQ(parts(2, 4096), 16);
  EXPECT_EQ(parts(3, 5000), 19);
  EXPECT_EQ(parts(4, 5000), 16);
  EXPECT_EQ(parts(64, 5000), 1);
  EXPECT_EQ(parts(1, 100), 1);
  EXPECT_EQ(p.nodes[0].ranges[0], batches * p.nodes[1].reduceRanges[0]);
}

TEST(SplitAttention, HeadsThatShareKeysAreRowsOfOne) {
  const Program p = splitOf(textOf("1", 2, 3), {{40, 1}, {700, 1}});
  ASSERT_EQ(p.nodes.size(), 4u);
  EXPECT_EQ(p.nodes[0].ranges[1], Expr(2));
  EXPECT_EQ(p.nodes[0].ranges[2], Expr(6));
  const Program one = splitOf(textOf("2", 1, 1), {{40, 2}, {600, 2}});
  EXPECT_EQ(one.nodes[0].ranges[1], Expr(1));
  EXPECT_EQ(one.nodes[0].ranges[2], Expr(4));
  // Of many queries each head has blocks of its own.
  EXPECT_EQ(splitOf(textOf("1", 2, 17), {{40, 1}}).nodes[0].ranges[1], Expr(4));
}

TEST(SplitAttention, OthersStay) {
  // Causal ones begin with the first key; NaN of a row without keys would have to be kept apart.
  for (const char *with : {" causal", " empty nan"}) {
    const Program p = splitOf(textOf("1", 2, 1, with), {{40, 1}});
    EXPECT_EQ(p.nodes.size(), 1u);
    EXPECT_EQ(p.nodes[0].ranges[1], Expr(4));
  }
  // Many rows.
  EXPECT_EQ(splitOf(textOf("1", 4, 65), {}).nodes.size(), 1u);
}

} // namespace
} // namespace neso::schedule::test
