// Steps of a graph side by side: what is ordered, what is not, and that no order which the graph allows gives another
// result.
#include <random>

#include "core/streams.h"
#include "test/fake_cuda.h"
#include "test/harness.h"

using namespace neso_test;
using namespace neso_rt;
using B = PackageBuilder;

namespace {
const char *const kFake = NESO_BINARY_DIR "/lib/libneso_fake_cuda.so";
const char *at(size_t n) { return reinterpret_cast<const char *>(0x1000 + n); }

/// Is step `before` certain to have ended when `after` begins?
bool ordered(const stream_order &o, size_t before, size_t after) {
  // Behind it on its stream, or behind a step that is, through whatever it waits for.
  std::vector<size_t> todo{after};
  std::vector<bool> seen(o.size());
  while (!todo.empty()) {
    size_t n = todo.back();
    todo.pop_back();
    if (seen[n]) continue;
    seen[n] = true;
    if (n == before) return true;
    for (size_t j = n; j-- > 0;)
      if (o.stream(j) == o.stream(n)) {
        todo.push_back(j);
        break;
      }
    for (int s = 0; s < o.streams_used(); ++s)
      if (o.wait(n, s) >= 0) todo.push_back(size_t(o.wait(n, s)));
  }
  return false;
}

TEST(StreamOrder, BranchesSpreadAndMeet) {
  // 0 writes a; 1, 2 and 3 read a and write b, c, d; 4 reads all three.
  stream_order o;
  ASSERT_EQ(o.start(5, 16, 4), NESO_OK);
  o.use({at(0), at(4), true}), o.add(true, false);
  for (size_t i = 1; i < 4; ++i)
    o.use({at(0), at(4), false}), o.use({at(4 * i), at(4 * i + 4), true}), o.add(true, false);
  for (size_t i = 1; i < 4; ++i) o.use({at(4 * i), at(4 * i + 4), false});
  o.add(true, false);
  EXPECT_EQ(o.streams_used(), 3);
  EXPECT_EQ(o.stream(1), o.stream(0));
  EXPECT_NE(o.stream(2), o.stream(1));
  EXPECT_NE(o.stream(3), o.stream(2));
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(ordered(o, i, 4)) << i;
  EXPECT_FALSE(ordered(o, 1, 2));
  EXPECT_FALSE(ordered(o, 2, 3));
}

TEST(StreamOrder, LargeStepsStayInLine) {
  stream_order o;
  ASSERT_EQ(o.start(3, 8, 4), NESO_OK);
  for (size_t i = 0; i < 3; ++i) o.use({at(8 * i), at(8 * i + 8), true}), o.add(false, false);
  EXPECT_EQ(o.streams_used(), 1);
}

TEST(StreamOrder, EveryConflictIsOrdered) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const size_t steps = 2 + random() % 30;
    std::vector<std::vector<memory_use>> uses(steps);
    std::vector<bool> alone(steps);
    stream_order o;
    ASSERT_EQ(o.start(steps, steps * 4, int(1 + random() % 8)), NESO_OK);
    for (size_t i = 0; i < steps; ++i) {
      for (size_t u = 1 + random() % 3; u-- > 0;) {
        const size_t begin = random() % 40, bytes = 1 + random() % 6;
        uses[i].push_back({at(begin), at(begin + bytes), random() % 2 == 0});
        o.use(uses[i].back());
      }
      alone[i] = random() % 12 == 0;
      o.add(random() % 4 != 0, alone[i]);
    }
    for (size_t i = 0; i < steps; ++i)
      for (size_t j = i + 1; j < steps; ++j) {
        bool conflict = alone[i] || alone[j];
        for (const memory_use &a : uses[i])
          for (const memory_use &b : uses[j]) conflict |= (a.write || b.write) && a.begin < b.end && b.begin < a.end;
        if (conflict) EXPECT_TRUE(ordered(o, i, j)) << "seed " << seed << ": " << i << " and " << j;
      }
  }
}

/// Random plans of additions and doublings over an arena whose memory is used again and again: out = the last buffer.
class SideBySide : public testing::Test {
protected:
  void SetUp() override { fake_cuda::reset(); }
  void TearDown() override { EXPECT_EQ(fake_cuda::alive(), 0); }
};

TEST_F(SideBySide, AnyOrderThatTheGraphAllowsGivesTheSame) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    B b;
    b.gpu({"sm_90"});
    const int32_t four = b.constant(4), n = b.constant(4), bytes = b.constant(16);
    b.arenas.push_back(fbs::CreateArena(b.fb, b.constant(256)));
    b.input("x", {b.fixed(4)});
    const int32_t x = b.buffer(fbs::Location::Input, 0, bytes), out = b.buffer(fbs::Location::Output, 0, bytes);
    b.output("y", out, {four});
    std::vector<int32_t> space;
    for (int i = 0; i < 6; ++i) space.push_back(b.buffer(fbs::Location::Arena, 0, bytes, b.constant(16 * i)));
    const int32_t add = b.kernel("test_add", 3), twice = b.kernel("test_double", 1);
    std::vector<std::vector<float>> value(6, std::vector<float>(4));
    const std::vector<float> given = {1, 2, 3, 4};
    auto launch = [&](int32_t kernel, const std::vector<int32_t> &buffers, std::vector<uint8_t> access) {
      std::vector<fbs::Arg> args;
      for (int32_t buffer : buffers) args.push_back(B::arg(buffer));
      const int32_t one = b.constant(1);
      b.step(fbs::Step::Launch, fbs::CreateLaunch(b.fb, kernel, b.fb.CreateVectorOfStructs(args), n, one, one, 0,
                                                  seed % 3 ? b.fb.CreateVector(access) : 0));
    };
    for (size_t i = 0; i < 6; ++i) {
      launch(add, {x, x, space[i]}, {1, 1, 2});
      for (size_t k = 0; k < 4; ++k) value[i][k] = 2 * given[k];
    }
    for (int s = 0; s < 25; ++s) {
      const size_t i = random() % 6, j = random() % 6, to = random() % 6;
      if (random() % 4 == 0) {
        launch(twice, {space[to]}, {3});
        for (float &v : value[to]) v *= 2;
      } else {
        launch(add, {space[i], space[j], space[to]}, {1, 1, 2});
        for (size_t k = 0; k < 4; ++k) value[to][k] = std::fmod(value[i][k] + value[j][k], 1e30f);
      }
    }
    std::vector<float> want(4);
    launch(add, {space[0], space[1], out}, {1, 1, 2});
    for (size_t k = 0; k < 4; ++k) want[k] = value[0][k] + value[1][k];
    const std::string package = b.package();
    for (int streams : {1, 2, 4, 8, 0}) {
      neso_context_options o{};
      o.device = NESO_CUDA, o.cuda_driver = kFake, o.cuda_streams = streams;
      Loaded m(package, 1, &o);
      ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
      Tensor input({4}, given);
      for (int run = 0; run < 4; ++run) {
        std::vector<neso_tensor> result(1);
        ASSERT_EQ(m.run({input.t}, result), NESO_OK) << neso_error_text();
        EXPECT_EQ(floats(result[0], 4), want) << "seed " << seed << ", " << streams << " streams, run " << run;
      }
      neso_device_stats stats;
      neso_context_get_device_stats(m.context, &stats);
      EXPECT_EQ(stats.graph_launches, 3);
    }
  }
}

TEST_F(SideBySide, StreamsThatAreNotPossibleAreRefused) {
  for (int streams : {-1, 9}) {
    neso_context_options o{};
    o.device = NESO_CUDA, o.cuda_driver = kFake, o.cuda_streams = streams;
    Loaded m(addThenDouble(1, {"sm_90"}).package(), 1, &o);
    EXPECT_EQ(m.status, NESO_INVALID_ARGUMENT);
  }
}
} // namespace
