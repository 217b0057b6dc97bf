// Branches and loops of recorded runs: which plans have them, what they compute, and how they end. Expected values are computed here.
#include "test/choice_models.h"
#include "test/fake_cuda.h"

using namespace neso_test;
using namespace neso_rt;

namespace {
class Choices : public testing::Test {
protected:
  void SetUp() override { fake_cuda::reset(); }
  void TearDown() override {
    EXPECT_EQ(fake_cuda::alive(), 0) << "something of the driver was not given back";
    EXPECT_EQ(fake_cuda::unjoined(), 0) << "a recording was ended although a branch was open";
  }
};

neso_context_options gpu(const char *driver = "libneso_fake_cuda.so") {
  static std::string path;
  path = std::string(NESO_BINARY_DIR "/lib/") + driver;
  neso_context_options o{};
  o.device = NESO_CUDA;
  o.cuda_driver = path.c_str();
  return o;
}

TEST_F(Choices, ABranchFollowsEachRunsOwnNumbers) {
  Runs m(branches(), 2, gpu());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(m.of({1, 2}), 2);
    EXPECT_EQ(m.of({2, 2}), 4);
  }
  EXPECT_EQ(m.graphs(), 5);
  // Nothing is read back while the run is under way.
  fake_cuda::clearCalls();
  EXPECT_EQ(m.of({1, 2}), 2);
  EXPECT_EQ(fake_cuda::calls("cuStreamSynchronize"), 1);
  EXPECT_EQ(fake_cuda::calls("cuLaunchKernel"), 0);
}

TEST_F(Choices, ALoopTurnsAsOftenAsEachRunSays) {
  Runs m(counting(), 2, gpu());
  for (int64_t n : {3, 3, 0, 1, 7, 0, 10}) EXPECT_EQ(m.of({n, 1}), float(int64_t(2) << n)) << n;
  EXPECT_EQ(m.graphs(), 6);
  EXPECT_EQ(m.of({10, 3}), 32);
}

TEST_F(Choices, DriversWithoutConditionalNodesWalk) {
  Runs m(counting(), 2, gpu("libneso_fake_cuda_old.so"));
  EXPECT_FALSE(m.context->queue->decides);
  for (int64_t n : {3, 3, 0, 5}) EXPECT_EQ(m.of({n, 1}), float(int64_t(2) << n)) << n;
  EXPECT_EQ(m.graphs(), 0);
}

// The same through integers and conditions that the size program computes of one number.
TEST_F(Choices, ConditionsThatAreComparedWithNumbers) {
  using Op = fbs::SizeOp;
  struct Case {
    std::function<int32_t(Model &, int32_t read)> condition; // its slot
    std::function<bool(int64_t)> want;
  };
  const int32_t free = B::kVariables + 1;
  auto compare = [&](Op op, bool left, int64_t c) {
    return [=](Model &m, int32_t read) {
      const int32_t k = m.constant(c);
      m.size(op, free, left ? read : k, left ? k : read);
      return free;
    };
  };
  const Case cases[] = {
      {[](Model &, int32_t read) { return read; }, [](int64_t v) { return v != 0; }},
      {compare(Op::Lt, true, 3), [](int64_t v) { return v < 3; }},
      {compare(Op::Lt, false, 3), [](int64_t v) { return 3 < v; }},
      {compare(Op::Le, true, -3), [](int64_t v) { return v <= -3; }},
      {compare(Op::Le, false, -3), [](int64_t v) { return -3 <= v; }},
      {compare(Op::Eq, true, 4), [](int64_t v) { return v == 4; }},
      {compare(Op::Ne, false, 4), [](int64_t v) { return v != 4; }},
      {compare(Op::Lt, true, INT64_MIN), [](int64_t) { return false; }},
      {compare(Op::Lt, false, INT64_MAX), [](int64_t) { return false; }},
      {compare(Op::Le, false, INT64_MIN), [](int64_t) { return true; }},
      {[&](Model &m, int32_t read) {
         m.size(Op::Not, free, read);
         return free;
       },
       [](int64_t v) { return v == 0; }},
      {[&](Model &m, int32_t read) { // 0 != (3 < v), as cond's predicates are written
         m.size(Op::Lt, free, m.constant(3), read);
         m.size(Op::Ne, free + 1, m.constant(0), free);
         return free + 1;
       },
       [](int64_t v) { return v > 3; }},
      {[&](Model &m, int32_t read) { // -3 <= v and v < 4 and 1
         m.size(Op::Le, free, m.constant(-3), read);
         m.size(Op::Lt, free + 1, read, m.constant(4));
         m.size(Op::And, free + 2, free, free + 1);
         m.size(Op::And, free + 3, m.constant(1), free + 2);
         return free + 3;
       },
       [](int64_t v) { return v >= -3 && v < 4; }},
      {[&](Model &m, int32_t read) { // not (v != -3) or v != 4 ...
         m.size(Op::Ne, free, read, m.constant(4));
         m.size(Op::Ne, free + 1, m.constant(4), read);
         m.size(Op::Or, free + 2, free, free + 1);
         m.size(Op::Eq, free + 3, free + 2, m.constant(0));
         return free + 3;
       },
       [](int64_t v) { return v == 4; }},
      {[&](Model &m, int32_t read) { // (v < 3) < 2 always holds; (v < 3) == 7 never does
         m.size(Op::Lt, free, read, m.constant(3));
         m.size(Op::Lt, free + 1, free, m.constant(2));
         m.size(Op::Eq, free + 2, free, m.constant(7));
         m.size(Op::Or, free + 3, free + 2, free + 1);
         return free + 3;
       },
       [](int64_t) { return true; }},
  };
  int number = 0;
  for (const Case &c : cases) {
    Model m({"v"});
    const int32_t read = B::kVariables;
    const size_t then = m.sub(), otherwise = m.sub();
    m.read(m.numbers[0], read, 0, fbs::DType::I64);
    const int32_t begin = int32_t(m.program.size()), condition = c.condition(m, read);
    m.sizes(begin, 0);
    m.branch(condition, then, otherwise, 0);
    m.twice(then);
    Runs r(std::move(m), 1, gpu());
    for (int64_t v : {0, 0, 1, 2, 3, 4, 5, -2, -3, -4})
      EXPECT_EQ(r.of({v}), c.want(v) ? 2 : 1) << "condition " << number << " of " << v;
    EXPECT_EQ(r.graphs(), 9) << number;
    ++number;
  }
}

// Types of numbers, read from the first bytes of an i64.
TEST_F(Choices, NumbersOfAllWidths) {
  struct Case {
    fbs::DType type;
    std::function<int64_t(int64_t)> as;
  };
  const Case cases[] = {
      {fbs::DType::Bool, [](int64_t v) { return int64_t((v & 255) != 0); }},
      {fbs::DType::U8, [](int64_t v) { return int64_t(uint8_t(v)); }},
      {fbs::DType::I8, [](int64_t v) { return int64_t(int8_t(v)); }},
      {fbs::DType::I16, [](int64_t v) { return int64_t(int16_t(v)); }},
      {fbs::DType::I32, [](int64_t v) { return int64_t(int32_t(v)); }},
      {fbs::DType::I64, [](int64_t v) { return v; }},
  };
  for (const Case &c : cases) {
    Model m({"v"});
    const int32_t read = B::kVariables;
    const size_t then = m.sub(), otherwise = m.sub();
    m.read(m.numbers[0], read, 0, c.type);
    m.size(fbs::SizeOp::Lt, read + 1, read, m.constant(1));
    m.sizes(0, 0);
    m.branch(read + 1, then, otherwise, 0);
    m.twice(then);
    Runs r(std::move(m), 1, gpu());
    for (int64_t v : {int64_t(0), int64_t(0), int64_t(1), int64_t(-1), int64_t(200), int64_t(40000), int64_t(3) << 31, int64_t(1) << 40, INT64_MIN})
      EXPECT_EQ(r.of({v}), c.as(v) < 1 ? 2 : 1) << int(c.type) << " of " << v;
    EXPECT_EQ(r.graphs(), 8);
  }
}

// while i < n: j = 0; while j < i: x doubled, j += 1; if i < 2: x doubled; i += 1.
TEST_F(Choices, LoopsAndBranchesInLoops) {
  Model m({"n", "one", "two"});
  const int32_t flag = m.inArena(0, 1), flag2 = m.inArena(64, 1), i = m.inArena(128, 8), j = m.inArena(192, 8), slot = B::kVariables;
  const size_t test = m.sub(), body = m.sub(), innerTest = m.sub(), inner = m.sub(), then = m.sub(), otherwise = m.sub();
  m.launch(m.zero, {B::arg(i)}, m.one);
  m.loop(test, slot, body, 0);
  m.launch(m.less, {B::arg(i), B::arg(m.numbers[0]), B::arg(flag)}, m.one, test);
  m.read(flag, slot, test);
  m.launch(m.zero, {B::arg(j)}, m.one, body);
  m.loop(innerTest, slot + 1, inner, body);
  m.launch(m.less, {B::arg(j), B::arg(i), B::arg(flag2)}, m.one, innerTest);
  m.read(flag2, slot + 1, innerTest);
  m.twice(inner);
  m.launch(m.increase, {B::arg(j), B::arg(m.numbers[1])}, m.one, inner);
  m.launch(m.less, {B::arg(i), B::arg(m.numbers[2]), B::arg(flag2)}, m.one, body);
  m.read(flag2, slot + 2, body);
  m.branch(slot + 2, then, otherwise, body);
  m.twice(then);
  m.launch(m.increase, {B::arg(i), B::arg(m.numbers[1])}, m.one, body);
  Runs r(std::move(m), 3, gpu());
  for (int64_t n : {2, 2, 0, 1, 4, 5}) {
    int64_t doublings = 0;
    for (int64_t k = 0; k < n; ++k) doublings += k + (k < 2);
    EXPECT_EQ(r.of({n, 1, 2}), float(int64_t(1) << doublings)) << n;
  }
  EXPECT_EQ(r.graphs(), 5);
}

// The number's memory is used again before the second condition that comes from it.
TEST_F(Choices, ANumberOutlivesItsMemory) {
  Model m({"a", "b", "c"});
  const int32_t flag = m.inArena(0, 1), slot = B::kVariables;
  const size_t then = m.sub(), otherwise = m.sub(), then2 = m.sub(), nothing = m.sub();
  m.launch(m.less, {B::arg(m.numbers[0]), B::arg(m.numbers[1]), B::arg(flag)}, m.one);
  m.read(flag, slot, 0);
  m.branch(slot, then, otherwise, 0);
  m.twice(then);
  m.launch(m.less, {B::arg(m.numbers[1]), B::arg(m.numbers[2]), B::arg(flag)}, m.one);
  m.branch(slot, then2, nothing, 0);
  m.twice(then2), m.twice(then2);
  Runs r(std::move(m), 3, gpu());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(r.of({1, 2, 0}), 8);
    EXPECT_EQ(r.of({2, 1, 9}), 1);
  }
  EXPECT_EQ(r.graphs(), 5);
}

// Two branches that use other memory, beside each other, and work beside both: order by memory, whatever runs first.
TEST_F(Choices, BranchesBesideEachOther) {
  Model m({"a", "b"});
  const int32_t flag = m.inArena(0, 1), flag2 = m.inArena(64, 1), i = m.inArena(128, 8), j = m.inArena(192, 8), slot = B::kVariables;
  const size_t then = m.sub(), then2 = m.sub(), nothing = m.sub(), last = m.sub();
  m.launch(m.zero, {B::arg(i)}, m.one);
  m.launch(m.zero, {B::arg(j)}, m.one);
  m.launch(m.less, {B::arg(m.numbers[0]), B::arg(m.numbers[1]), B::arg(flag)}, m.one);
  m.read(flag, slot, 0);
  m.branch(slot, then, nothing, 0);
  m.launch(m.increase, {B::arg(i), B::arg(m.numbers[0])}, m.one, then);
  m.launch(m.increase, {B::arg(i), B::arg(m.numbers[1])}, m.one, then);
  m.launch(m.less, {B::arg(m.numbers[1]), B::arg(m.numbers[0]), B::arg(flag2)}, m.one);
  m.read(flag2, slot + 1, 0);
  m.branch(slot + 1, then2, nothing, 0);
  m.launch(m.increase, {B::arg(j), B::arg(m.numbers[0])}, m.one, then2);
  m.launch(m.increase, {B::arg(j), B::arg(m.numbers[1])}, m.one, then2);
  m.launch(m.increase, {B::arg(i), B::arg(j)}, m.one);
  // x doubled if i is 7 now.
  m.read(i, slot + 2, 0, fbs::DType::I64);
  m.size(fbs::SizeOp::Eq, slot + 3, slot + 2, m.constant(7));
  m.sizes(0, 0);
  m.branch(slot + 3, last, nothing, 0);
  m.twice(last);
  Runs r(std::move(m), 2, gpu());
  for (int k = 0; k < 3; ++k) {
    EXPECT_EQ(r.of({3, 4}), 2);
    EXPECT_EQ(r.of({4, 3}), 2);
    EXPECT_EQ(r.of({3, 3}), 1);
    EXPECT_EQ(r.of({3, 5}), 1);
  }
  EXPECT_EQ(r.graphs(), 11);
  neso_device_stats s;
  neso_context_get_device_stats(r.context, &s);
  EXPECT_GT(s.graph_streams, 1);
}

// Turns that count are known: i = 2; while i < 6: x += i, i += 1 — x [4] by one kernel whose argument is i; inside a branch.
B unrolled(bool branch) {
  Model m({"a", "b", "one"});
  const int32_t flag = m.inArena(0, 1), i = m.inArena(64, 8), turn = B::kVariables, more = turn + 1, slot = turn + 2;
  const size_t then = branch ? m.sub() : 0, nothing = m.sub(), test = m.sub(), body = m.sub();
  if (branch) {
    m.launch(m.less, {B::arg(m.numbers[0]), B::arg(m.numbers[1]), B::arg(flag)}, m.one);
    m.read(flag, slot, 0);
    m.branch(slot, then, nothing, 0);
  }
  m.launch(m.zero, {B::arg(i)}, m.one, then);
  m.loop(test, more, body, then);
  m.turn(i, turn, 2, test);
  m.size(fbs::SizeOp::Lt, more, turn, m.constant(6));
  m.sizes(0, test);
  m.launch(m.kernel("test_add_scalar", 3), {B::arg(m.x), B::arg(m.x), B::slotArg(turn)}, m.four, body);
  m.launch(m.increase, {B::arg(i), B::arg(m.numbers[2])}, m.one, body);
  m.twice(0);
  return std::move(m);
}

TEST_F(Choices, LoopsThatCountAreUnrolled) {
  for (bool branch : {false, true}) {
    Runs m(unrolled(branch), 3, gpu());
    for (int k = 0; k < 4; ++k) {
      EXPECT_EQ(m.of({1, 2, 1}), 2 * (1 + 2 + 3 + 4 + 5));
      EXPECT_EQ(m.of({2, 2, 1}), branch ? 2 : 30);
    }
    EXPECT_EQ(m.graphs(), 7);
    // Walked, they wait for nothing either.
    neso_context_options o = gpu();
    o.cuda_graphs = -1;
    Runs walked(unrolled(false), 3, o);
    fake_cuda::clearCalls();
    EXPECT_EQ(walked.of({1, 2, 1}), 30);
    EXPECT_EQ(fake_cuda::calls("cuStreamSynchronize"), 1);
    o.turn_limit = 3;
    Runs limited(unrolled(branch), 3, gpu());
    limited.context->options.turn_limit = 3;
    for (int k = 0; k < 3; ++k) EXPECT_STATUS(limited.again({1, 2, 1}), NESO_TURN_LIMIT, "more than the 3 turns");
  }
}

// Too many steps for one graph.
TEST_F(Choices, LongLoopsThatCountAreWalked) {
  Model m({"one"});
  const int32_t i = m.inArena(64, 8), turn = B::kVariables, more = turn + 1;
  const size_t test = m.sub(), body = m.sub();
  m.loop(test, more, body, 0);
  m.turn(i, turn, 0, test);
  m.size(fbs::SizeOp::Lt, more, turn, m.constant(5000));
  m.sizes(0, test);
  m.launch(m.kernel("test_add_scalar", 3), {B::arg(m.x), B::arg(m.x), B::slotArg(turn)}, m.four, body);
  Runs r(std::move(m), 1, gpu());
  for (int k = 0; k < 3; ++k) EXPECT_EQ(r.of({1}), 1 + 5000 * 4999 / 2);
  EXPECT_EQ(r.graphs(), 0);
}

// A number whose own memory is read by the test although other work lies in between; and one where that work writes there.
TEST_F(Choices, WorkBetweenANumberAndItsBranch) {
  for (bool overwritten : {false, true}) {
    Model m({"a", "b", "c"});
    const int32_t flag = m.inArena(0, 1), slot = B::kVariables;
    const size_t then = m.sub(), nothing = m.sub();
    m.launch(m.less, {B::arg(m.numbers[0]), B::arg(m.numbers[1]), B::arg(flag)}, m.one);
    m.read(flag, slot, 0);
    m.twice(0);
    if (overwritten) m.launch(m.less, {B::arg(m.numbers[1]), B::arg(m.numbers[2]), B::arg(flag)}, m.one);
    m.branch(slot, then, nothing, 0);
    m.twice(then);
    Runs r(std::move(m), 3, gpu());
    for (int k = 0; k < 3; ++k) {
      EXPECT_EQ(r.of({1, 2, 0}), 4);
      fake_cuda::clearCalls();
      EXPECT_EQ(r.of({2, 1, 9}), 2);
      // The second run is recorded.
      if (k == 0) EXPECT_EQ(fake_cuda::calls("cuMemcpyDtoDAsync"), overwritten);
    }
  }
}

// What only the host can know is walked, as ever: a launch over as many programs as the device counted.
TEST_F(Choices, LaunchesOverNumbersThatAreReadAreWalked) {
  Model m({"n"});
  const int32_t slot = B::kVariables;
  m.read(m.numbers[0], slot, 0, fbs::DType::I64);
  m.launch(m.doubles, {B::arg(m.x)}, slot);
  Runs r(std::move(m), 1, gpu());
  for (int i = 0; i < 4; ++i) EXPECT_EQ(r.of({4}), 2);
  EXPECT_EQ(r.graphs(), 0);
}

// Given up where work lies on two streams, in a branch that the device decides and outside.
TEST_F(Choices, RecordingsThatAreGivenUpJoinTheirStreams) {
  for (bool inside : {false, true}) {
    Model m({"a", "b"});
    const int32_t flag = m.inArena(0, 1), other = m.inArena(64, 8), slot = B::kVariables;
    const size_t then = m.sub(), nothing = m.sub(), where = inside ? then : 0;
    m.launch(m.less, {B::arg(m.numbers[0]), B::arg(m.numbers[1]), B::arg(flag)}, m.one);
    m.read(flag, slot, 0);
    m.branch(slot, then, nothing, 0);
    m.launch(m.zero, {B::arg(other)}, m.one, where);
    m.twice(where);
    m.read(m.numbers[1], slot + 1, where, fbs::DType::I64);
    m.launch(m.doubles, {B::arg(m.x)}, slot + 1, where);
    Runs r(std::move(m), 2, gpu());
    for (int i = 0; i < 3; ++i) EXPECT_EQ(r.of({1, 4}), 4);
    EXPECT_EQ(r.graphs(), 0);
    // The last call looked whether a branch was open: a stream was.
    EXPECT_GT(fake_cuda::calls("cuStreamIsCapturing"), 0);
  }
}

// A check of a number that a branch reads is the host's.
TEST_F(Choices, ChecksOfNumbersThatAreReadAreWalked) {
  Model m({"v"});
  const int32_t slot = B::kVariables;
  const size_t then = m.sub(), nothing = m.sub();
  m.read(m.numbers[0], slot, 0, fbs::DType::I64);
  m.size(fbs::SizeOp::Lt, slot + 1, slot, m.constant(5));
  m.sizes(0, 0);
  m.branch(slot + 1, then, nothing, 0);
  m.step(fbs::Step::Guard, fbs::CreateGuard(m.fb, slot, m.fb.CreateString("v is {32}")), then);
  m.twice(then);
  Runs r(std::move(m), 1, gpu());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(r.of({4}), 2);
    EXPECT_EQ(r.of({7}), 1);
    EXPECT_STATUS(r.again({0}), NESO_GUARD_FAILED, "v is 0");
  }
  EXPECT_EQ(r.graphs(), 0);
}

TEST_F(Choices, LoopsWithALimitOfTurnsAreWalked) {
  neso_context_options o = gpu();
  o.turn_limit = 5;
  Runs m(counting(), 2, o);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(m.of({5, 1}), 64);
    EXPECT_STATUS(m.again({6, 1}), NESO_TURN_LIMIT, "more than the 5 turns");
  }
  EXPECT_EQ(m.graphs(), 0);
}

TEST_F(Choices, AnotherThreadEndsALoopThatTurnsForEver) {
  Runs m(counting(), 2, gpu());
  for (int64_t n : {1, 2}) EXPECT_EQ(m.of({n, 1}), float(2 << n));
  for (int i = 0; i < 2; ++i) expectCancelled(m);
  EXPECT_EQ(m.graphs(), 5);
}

// A driver that refuses while it records: the run is walked, and nothing is left open.
TEST_F(Choices, AFailureWhileRecordingWalks) {
  for (const char *function : {"cuGraphConditionalHandleCreate", "cuStreamGetCaptureInfo", "cuGraphAddNode", "cuStreamUpdateCaptureDependencies",
                               "cuStreamBeginCaptureToGraph", "cuStreamEndCapture", "cuGraphInstantiate"})
    for (int after : {0, 1}) {
      fake_cuda::reset();
      Runs m(branches(), 2, gpu());
      EXPECT_EQ(m.of({1, 2}), 2);
      fake_cuda::failNext(function, 801, after);
      EXPECT_EQ(m.of({2, 2}), 4) << function;
      EXPECT_EQ(m.of({1, 2}), 2) << function;
    }
}
} // namespace
