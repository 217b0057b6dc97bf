// What every device must do, whatever it is: one set of tests, run on each row of device/devices.def. The GPU is the
// fake driver's. Expected values are computed here, element by element.
#include <random>

#include "core/context.h"
#include "device/null/device.h"
#include "test/fake_cuda.h"
#include "test/harness.h"

using namespace neso_test;
using namespace neso_rt;
using B = PackageBuilder;

extern "C" int cuMemAlloc_v2(uint64_t *, size_t);
extern "C" int cuMemFree_v2(uint64_t);

namespace {
struct Case {
  neso_device_kind kind;
  bool computes; // kernels run
};
void PrintTo(const Case &c, std::ostream *out) { *out << device_label(c.kind, 0).text; }

class Device : public testing::TestWithParam<Case> {
protected:
  void SetUp() override { fake_cuda::reset(); }
  void TearDown() override { EXPECT_EQ(fake_cuda::alive(), 0) << "something of the driver was not given back"; }

  neso_context_options options() const {
    neso_context_options o{};
    o.device = GetParam().kind;
    o.cuda_driver = NESO_BINARY_DIR "/lib/libneso_fake_cuda.so";
    return o;
  }
  // y = (x + 1) * 2, x [s0] with s0 in [2, 100]; with code for every device.
  static B model() {
    B b = forEveryDevice();
    const int32_t n = B::kVariables, bytes = n + 1;
    const std::vector<float> ones(100, 1);
    b.input("x", {B::dynamic(n, 2, 100)});
    b.weight("ones", {100}, std::string(reinterpret_cast<const char *>(ones.data()), 400));
    b.size(fbs::SizeOp::Mul, bytes, n, b.constant(4));
    int32_t x = b.buffer(fbs::Location::Input, 0, bytes), c = b.buffer(fbs::Location::Constant, 0, bytes),
            y = b.buffer(fbs::Location::Output, 0, bytes);
    b.output("y", y, {n});
    b.launch(b.kernel("test_add", 3), {B::arg(x), B::arg(c), B::arg(y)}, n);
    b.launch(b.kernel("test_double", 1), {B::arg(y)}, n);
    return b;
  }
  static B forEveryDevice() {
    B b;
    b.gpu({"sm_90"});
    b.targets.push_back(fbs::CreateTarget(b.fb, fbs::TargetKind::Cpu, b.fb.CreateString("x86-64")));
    return b;
  }
  // y = x with another order of dimensions: x [s0, 3], y [3, s0], by one Copy step; no kernel.
  static B transposing() {
    B b = forEveryDevice();
    const int32_t n = B::kVariables, bytes = n + 1, one = b.constant(1), three = b.constant(3);
    b.input("x", {B::dynamic(n, 0, 100), b.fixed(3)});
    b.size(fbs::SizeOp::Mul, bytes, n, b.constant(12));
    int32_t x = b.buffer(fbs::Location::Input, 0, bytes), y = b.buffer(fbs::Location::Output, 0, bytes);
    b.output("y", y, {three, n});
    std::vector<int32_t> sizes{three, n}, dst{n, one}, src{one, three};
    b.step(fbs::Step::Copy, fbs::CreateCopy(b.fb, y, x, 4, b.fb.CreateVector(sizes), b.fb.CreateVector(dst),
                                            b.fb.CreateVector(src)));
    return b;
  }
  // Inputs n, a, b (i64) and x [4], which is changed: i = 0; while i < n: x doubled, i += 1; then x doubled if a < b.
  static B choosing() {
    B b = forEveryDevice();
    const int32_t bytes = b.constant(8), flag_bytes = b.constant(1), one = b.constant(1), four = b.constant(4), more = B::kVariables;
    int32_t numbers[3];
    for (int i = 0; i < 3; ++i) {
      b.input(std::string(1, "nab"[i]), {}, fbs::DType::I64);
      numbers[i] = b.buffer(fbs::Location::Input, i, bytes);
    }
    b.input("x", {b.fixed(4)}, fbs::DType::F32, true);
    b.weight("step", {2}, std::string("\1\0\0\0\0\0\0\0", 8));
    b.arenas.push_back(fbs::CreateArena(b.fb, b.constant(128)));
    const int32_t x = b.buffer(fbs::Location::Input, 3, b.constant(16)), step = b.buffer(fbs::Location::Constant, 0, bytes),
                  i = b.buffer(fbs::Location::Arena, 0, bytes), flag = b.buffer(fbs::Location::Arena, 0, flag_bytes, b.constant(64));
    b.subplans.resize(5);
    b.prologueEnd = 0;
    const int32_t zero = b.kernel("test_zero", 1), less = b.kernel("test_less", 3), doubles = b.kernel("test_double", 1),
                  increase = b.kernel("test_increase", 2);
    auto read = [&](int32_t slot, size_t in) { b.step(fbs::Step::LoadScalar, fbs::CreateLoadScalar(b.fb, flag, -1, fbs::DType::Bool, slot), in); };
    b.launch(zero, {B::arg(i)}, one);
    b.step(fbs::Step::While, fbs::CreateWhile(b.fb, 1, more, 2));
    b.launch(less, {B::arg(i), B::arg(numbers[0]), B::arg(flag)}, one, 1);
    read(more, 1);
    b.launch(doubles, {B::arg(x)}, four, 2);
    b.launch(increase, {B::arg(i), B::arg(step)}, one, 2);
    b.launch(less, {B::arg(numbers[1]), B::arg(numbers[2]), B::arg(flag)}, one);
    read(more + 1, 0);
    b.step(fbs::Step::If, fbs::CreateIf(b.fb, more + 1, 3, 4));
    b.launch(doubles, {B::arg(x)}, four, 3);
    return b;
  }
};

// A model in a context on the device under test, and its queue.
struct Open : Loaded {
  explicit Open(B b, const neso_context_options &o) : Loaded(b.package(), 1, &o) {}
  const neso_device_vtable &table() const { return context->table(); }
  neso_rt::queue *queue() const { return context->queue; }
};

// Memory of the device, filled from and read back to the host.
struct Memory {
  Open &m;
  char *data = nullptr;
  size_t bytes;
  Memory(Open &m, const std::string &content) : m(m), bytes(content.size()) {
    device_scope scope(m.context->device);
    data = static_cast<char *>(m.table().allocate(m.queue(), bytes));
    EXPECT_NE(data, nullptr);
    EXPECT_EQ(m.table().upload(m.queue(), data, content.data(), int64_t(bytes)), NESO_OK) << neso_error_text();
  }
  ~Memory() {
    device_scope scope(m.context->device);
    EXPECT_EQ(m.table().synchronize(m.queue()), NESO_OK) << neso_error_text();
    m.table().release(m.queue(), data, bytes);
  }
  std::string read() const {
    device_scope scope(m.context->device);
    std::string out(bytes, '?');
    EXPECT_EQ(m.table().download(m.queue(), out.data(), data, int64_t(bytes)), NESO_OK) << neso_error_text();
    EXPECT_EQ(m.table().synchronize(m.queue()), NESO_OK) << neso_error_text();
    return out;
  }
};

std::string counted(size_t n, int first = 0) {
  std::string s;
  for (size_t i = 0; i < n; ++i) s.push_back(char(first + int(i % 97)));
  return s;
}

TEST_P(Device, IsARowOfTheTable) {
  const neso_device_vtable *t = device_of_kind(GetParam().kind);
  ASSERT_NE(t, nullptr);
  EXPECT_EQ(t->kind, GetParam().kind);
  Open m(model(), options());
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  EXPECT_EQ(m.context->device->table, t);
  EXPECT_EQ(m.queue()->table, t);
  if (m.queue()->records)
    EXPECT_TRUE(t->begin_recording && t->end_recording && t->use_branch && t->wait && t->launch_graph && t->free_graph);
  if (m.queue()->decides) EXPECT_TRUE(t->begin_choice && t->begin_body && t->end_body && t->end_choice && m.queue()->stop);
  EXPECT_GE(m.queue()->branches, 1);
  neso_device_info info;
  EXPECT_EQ(neso_device_get_info(t->kind, 0, options().cuda_driver, &info), NESO_OK) << neso_error_text();
}

TEST_P(Device, MemoryKeepsWhatIsCopiedThere) {
  Open m(model(), options());
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  for (size_t bytes : {1, 3, 64, 4099}) {
    Memory a(m, counted(bytes)), b(m, counted(bytes, 5));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data) % kAlign, 0u);
    EXPECT_EQ(a.read(), counted(bytes));
    EXPECT_EQ(b.read(), counted(bytes, 5));
  }
  device_scope scope(m.context->device);
  void *host = m.table().allocate_host(m.queue(), 100);
  ASSERT_NE(host, nullptr);
  memset(host, 7, 100);
  m.table().release_host(m.queue(), host);
}

TEST_P(Device, CopiesBetweenLayouts) {
  Open m(model(), options());
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    const int rank = int(random() % 5), items[] = {1, 2, 4, 8, 16, 3, 12};
    const int item = items[random() % 7];
    std::vector<int64_t> sizes, order, dst(size_t(rank), 0), src(size_t(rank), 0);
    for (int d = 0; d < rank; ++d) sizes.push_back(int64_t(random() % 5)), order.push_back(d);
    // Each side: dense in an order of its own, with gaps now and then.
    for (std::vector<int64_t> *strides : {&dst, &src}) {
      std::shuffle(order.begin(), order.end(), random);
      int64_t next = 1;
      for (int64_t d : order) {
        (*strides)[size_t(d)] = next;
        next *= std::max<int64_t>(sizes[size_t(d)], 1) + (random() % 4 == 0);
      }
    }
    auto extent = [&](const std::vector<int64_t> &strides) {
      int64_t last = 0;
      for (int d = 0; d < rank; ++d) last += std::max<int64_t>(sizes[size_t(d)] - 1, 0) * strides[size_t(d)];
      return size_t((last + 1) * item);
    };
    const std::string from = counted(extent(src)), before(extent(dst), '.');
    std::string want = before;
    std::vector<int64_t> at(size_t(rank), 0);
    for (bool more = std::all_of(sizes.begin(), sizes.end(), [](int64_t s) { return s > 0; }); more;) {
      int64_t to = 0, of = 0;
      for (int d = 0; d < rank; ++d) to += at[size_t(d)] * dst[size_t(d)], of += at[size_t(d)] * src[size_t(d)];
      want.replace(size_t(to * item), size_t(item), from, size_t(of * item), size_t(item));
      int d = rank - 1;
      for (; d >= 0 && ++at[size_t(d)] == sizes[size_t(d)]; --d) at[size_t(d)] = 0;
      more = d >= 0;
    }
    Memory a(m, from), b(m, before);
    device_scope scope(m.context->device);
    ASSERT_EQ(m.table().copy(m.queue(), b.data, dst.data(), a.data, src.data(), sizes.data(), rank, item), NESO_OK)
        << neso_error_text();
    ASSERT_EQ(b.read(), want) << "round " << round;
  }
}

TEST_P(Device, FillsWithItems) {
  Open m(model(), options());
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  for (int item : {1, 2, 4, 8})
    for (uint64_t bits : {uint64_t(0), uint64_t(0x0102030405060708), uint64_t(0x1111111122222222)})
      for (int64_t count : {1, 5, 33}) {
        std::string want;
        for (int64_t i = 0; i < count; ++i) want.append(reinterpret_cast<const char *>(&bits), size_t(item));
        Memory a(m, std::string(want.size() + 8, '.'));
        device_scope scope(m.context->device);
        ASSERT_EQ(m.table().fill(m.queue(), a.data, item, bits, count), NESO_OK) << neso_error_text();
        EXPECT_EQ(a.read(), want + std::string(8, '.'));
      }
}

TEST_P(Device, WorkIsDoneInOrderAndUploadsTakeTheirBytes) {
  Open m(model(), options());
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  Memory a(m, counted(64)), b(m, std::string(64, '.'));
  const int64_t size = 64, one = 1;
  std::string host = counted(64, 9);
  {
    device_scope scope(m.context->device);
    EXPECT_EQ(m.table().copy(m.queue(), b.data, &one, a.data, &one, &size, 1, 1), NESO_OK);
    EXPECT_EQ(m.table().upload(m.queue(), a.data, host.data(), 64), NESO_OK);
    host.assign(64, '!');
  }
  EXPECT_EQ(b.read(), counted(64));
  EXPECT_EQ(a.read(), counted(64, 9));
}

TEST_P(Device, TimePasses) {
  neso_context_options o = options();
  o.time_steps = 1;
  Open m(model(), o);
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  double ms = -1;
  EXPECT_STATUS(neso_context_elapsed(m.context, 0, 1, &ms), NESO_INVALID_ARGUMENT, "must be set");
  Tensor x({4}, {1, 2, 3, 4});
  std::vector<neso_tensor> out(1);
  neso_step_time step{};
  EXPECT_STATUS(neso_context_step_time(m.context, 0, &step), NESO_INVALID_ARGUMENT, "was not timed");
  ASSERT_EQ(neso_context_mark(m.context, 0), NESO_OK) << neso_error_text();
  ASSERT_EQ(m.run({x.t}, out), NESO_OK) << neso_error_text();
  ASSERT_EQ(neso_context_mark(m.context, 1), NESO_OK) << neso_error_text();
  ASSERT_EQ(neso_context_elapsed(m.context, 0, 1, &ms), NESO_OK) << neso_error_text();
  EXPECT_GE(ms, 0);
  for (int64_t i : {0, 1}) {
    ASSERT_EQ(neso_context_step_time(m.context, i, &step), NESO_OK) << neso_error_text();
    EXPECT_STREQ(step.kernel, i ? "test_double" : "test_add");
    EXPECT_GE(step.ms, 0);
  }
  EXPECT_STATUS(neso_context_step_time(m.context, 2, &step), NESO_INVALID_ARGUMENT, "was not timed");
}

TEST_P(Device, RecordedWorkIsDoneAtEachLaunchAndNotBefore) {
  Open m(model(), options());
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  if (!m.queue()->records) GTEST_SKIP() << "this device records nothing";
  Memory a(m, counted(64)), b(m, std::string(64, '.')), c(m, std::string(64, '-'));
  const int64_t size = 64, one = 1;
  device_scope scope(m.context->device);
  const neso_device_vtable &t = m.table();
  ASSERT_EQ(t.synchronize(m.queue()), NESO_OK);
  graph *g = nullptr;
  event *begin = nullptr, *end = nullptr;
  ASSERT_EQ(t.begin_recording(m.queue()), NESO_OK) << neso_error_text();
  // Beside each other: b = a, and c = 7s; then a = 0.
  neso_status s = t.mark(m.queue(), &begin, false);
  if (s == NESO_OK && m.queue()->branches > 1) s = t.use_branch(m.queue(), 1);
  if (s == NESO_OK) s = t.wait(m.queue(), begin);
  if (s == NESO_OK) s = t.fill(m.queue(), c.data, 1, 7, 64);
  if (s == NESO_OK) s = t.mark(m.queue(), &end, false);
  if (s == NESO_OK) s = t.use_branch(m.queue(), 0);
  if (s == NESO_OK) s = t.copy(m.queue(), b.data, &one, a.data, &one, &size, 1, 1);
  if (s == NESO_OK) s = t.wait(m.queue(), end);
  if (s == NESO_OK) s = t.fill(m.queue(), a.data, 1, 0, 64);
  ASSERT_EQ(t.end_recording(m.queue(), s, &g), NESO_OK) << neso_error_text();
  ASSERT_NE(g, nullptr);
  EXPECT_EQ(b.read(), std::string(64, '.'));
  for (int round = 0; round < 2; ++round) {
    ASSERT_EQ(t.upload(m.queue(), a.data, counted(64, round).data(), 64), NESO_OK);
    ASSERT_EQ(t.launch_graph(m.queue(), g), NESO_OK) << neso_error_text();
    EXPECT_EQ(b.read(), counted(64, round));
    EXPECT_EQ(a.read(), std::string(64, '\0'));
    EXPECT_EQ(c.read(), std::string(64, '\7'));
  }
  t.free_graph(m.queue(), g);
  // A recording that fails leaves nothing, and the queue as it was.
  ASSERT_EQ(t.begin_recording(m.queue()), NESO_OK) << neso_error_text();
  EXPECT_EQ(t.end_recording(m.queue(), NESO_CANCELLED, &g), NESO_CANCELLED);
  EXPECT_EQ(g, nullptr);
  EXPECT_EQ(a.read(), std::string(64, '\0'));
  t.free_event(m.queue(), begin);
  t.free_event(m.queue(), end);
}

// Work on the device alone, so that devices whose kernels compute nothing have it too: a loop over the bytes of `flags`, each turn of which
// moves them down by one and appends a byte to `trace`, and a branch on the first of `other`.
TEST_P(Device, RecordedChoicesFollowTheMemoryOfEachLaunch) {
  Open m(choosing(), options());
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  if (!m.queue()->decides) GTEST_SKIP() << "this device decides nothing";
  Memory flags(m, std::string(16, '\0')), other(m, std::string(1, '\0')), trace(m, std::string(16, '.')), x(m, std::string(2, '.'));
  const int64_t one = 1, all = 15;
  device_scope scope(m.context->device);
  const neso_device_vtable &t = m.table();
  neso_rt::queue *q = m.queue();
  const device_test goes{flags.data, NESO_BOOL, 1, 1, false}, low{other.data, NESO_I8, -3, 3, false};
  auto shift = [&](Memory &in) {
    // One after the other: what a copy writes the next one does not read.
    for (int64_t i = 0; i < all; ++i) NESO_TRY(t.copy(q, in.data + i, &one, in.data + i + 1, &one, &one, 1, 1));
    return NESO_OK;
  };
  auto record = [&] {
    NESO_TRY(t.begin_choice(q, true, 1, goes));
    NESO_TRY(t.begin_body(q, 0));
    NESO_TRY(shift(flags));
    NESO_TRY(shift(trace));
    // A branch in the loop: outside of its interval it has no body.
    NESO_TRY(t.begin_choice(q, false, 1, low));
    NESO_TRY(t.begin_body(q, 0));
    NESO_TRY(t.fill(q, trace.data + all, 1, 'a', 1));
    NESO_TRY(t.end_body(q, nullptr));
    NESO_TRY(t.end_choice(q));
    NESO_TRY(t.end_body(q, &goes));
    NESO_TRY(t.end_choice(q));
    NESO_TRY(t.begin_choice(q, false, 2, low));
    for (int body : {0, 1}) {
      NESO_TRY(t.begin_body(q, body));
      NESO_TRY(t.fill(q, x.data, 1, body ? 'n' : 'y', 1));
      NESO_TRY(t.end_body(q, nullptr));
    }
    NESO_TRY(t.end_choice(q));
    return t.fill(q, x.data + 1, 1, '!', 1);
  };
  graph *g = nullptr;
  ASSERT_EQ(t.begin_recording(q), NESO_OK) << neso_error_text();
  ASSERT_EQ(t.end_recording(q, record(), &g), NESO_OK) << neso_error_text();
  struct {
    int turns;
    int8_t other;
  } const launches[] = {{3, 0}, {0, 3}, {1, 4}, {5, -3}, {2, -4}};
  for (const auto &l : launches) {
    std::string begins(16, '\0'), want(16, '.');
    for (int i = 0; i < l.turns; ++i) begins[size_t(i)] = 1;
    const bool low = l.other >= -3 && l.other <= 3;
    if (low) want.replace(size_t(16 - l.turns), size_t(l.turns), size_t(l.turns), 'a');
    ASSERT_EQ(t.upload(q, flags.data, begins.data(), 16), NESO_OK);
    ASSERT_EQ(t.upload(q, other.data, &l.other, 1), NESO_OK);
    ASSERT_EQ(t.upload(q, trace.data, std::string(16, '.').data(), 16), NESO_OK);
    ASSERT_EQ(t.launch_graph(q, g), NESO_OK) << neso_error_text();
    EXPECT_EQ(flags.read(), std::string(16, '\0'));
    EXPECT_EQ(trace.read(), want) << l.turns;
    EXPECT_EQ(x.read(), low ? "y!" : "n!");
  }
  t.free_graph(q, g);
  // One that is given up in a body leaves nothing, and the queue as it was.
  ASSERT_EQ(t.begin_recording(q), NESO_OK);
  ASSERT_EQ(t.begin_choice(q, true, 1, goes), NESO_OK);
  ASSERT_EQ(t.begin_body(q, 0), NESO_OK);
  EXPECT_EQ(t.end_recording(q, NESO_CANCELLED, &g), NESO_CANCELLED);
  EXPECT_EQ(g, nullptr);
  EXPECT_EQ(x.read(), "n!");
}

// n times, as the input says: x doubled; then, where a < b, once more. Every device, recorded or walked, in runs with other numbers.
TEST_P(Device, BranchesAndLoopsOfAPlan) {
  Open m(choosing(), options());
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  const int64_t runs[][3] = {{3, 1, 2}, {3, 1, 2}, {0, 2, 2}, {1, 5, 6}, {6, 0, -1}, {0, -1, 0}};
  int64_t numbers[3];
  Tensor x({4}, {1, 1, 1, 1});
  for (const auto &run : runs) {
    std::vector<neso_tensor> in, out(0);
    for (int i = 0; i < 3; ++i) {
      numbers[i] = run[i];
      in.push_back({&numbers[i], nullptr, nullptr, 0, NESO_I64, NESO_CPU, 0});
    }
    x.data.assign(4, 1);
    in.push_back(x.t);
    ASSERT_EQ(m.run(in, out), NESO_OK) << neso_error_text();
    if (!GetParam().computes) continue;
    EXPECT_EQ(x.data, std::vector<float>(4, float((1 << run[0]) << (run[1] < run[2])))) << run[0];
  }
  neso_device_stats stats;
  neso_context_get_device_stats(m.context, &stats);
  EXPECT_EQ(stats.graph_launches, m.queue()->decides ? 5 : 0);
}

TEST_P(Device, RunsAPlan) {
  Open m(transposing(), options());
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  // Equal sizes and addresses follow each other, so that devices which record come to it; so do other ones.
  for (int64_t n : {2, 2, 2, 2, 5, 0, 2, 2}) {
    std::vector<float> values, want;
    for (int64_t i = 0; i < 3 * n; ++i) values.push_back(float(i));
    for (int64_t j = 0; j < 3; ++j)
      for (int64_t i = 0; i < n; ++i) want.push_back(float(3 * i + j));
    Tensor x({n, 3}, values);
    std::vector<neso_tensor> out(1);
    ASSERT_EQ(m.run({x.t}, out), NESO_OK) << neso_error_text();
    EXPECT_EQ(out[0].device, NESO_CPU);
    EXPECT_EQ(floats(out[0], want.size()), want);
    // From and to strided memory of the host.
    std::vector<float> spread(size_t(6 * n + 1), -1), room(size_t(6 * n + 1), -1);
    for (int64_t i = 0; i < 3 * n; ++i) spread[size_t(2 * i)] = float(i);
    Tensor wide({n, 3}, {6, 2}, spread);
    int64_t sizes[] = {3, n}, strides[] = {2 * n, 2};
    std::vector<neso_tensor> given{{room.data(), sizes, strides, 2, NESO_F32, NESO_CPU, 0}};
    ASSERT_EQ(m.run({wide.t}, given), NESO_OK) << neso_error_text();
    for (size_t i = 0; i < room.size(); ++i) EXPECT_EQ(room[i], i % 2 || i / 2 >= want.size() ? -1 : want[i / 2]);
  }
  neso_context_stats stats;
  neso_context_get_stats(m.context, &stats);
  EXPECT_EQ(stats.steps, 1);
}

TEST_P(Device, ArgumentsLieAtTheirPlaces) {
  B b = forEveryDevice();
  const int32_t n = B::kVariables, bytes = n + 1;
  b.input("x", {B::dynamic(n, 0, 100)});
  b.size(fbs::SizeOp::Mul, bytes, n, b.constant(4));
  int32_t x = b.buffer(fbs::Location::Input, 0, bytes), y = b.buffer(fbs::Location::Output, 0, bytes),
          z = b.buffer(fbs::Location::Output, 1, bytes);
  b.output("y", y, {n});
  b.output("z", z, {n});
  b.argPlaces = {{0, 8}, {64, 8}, {192, 8}};
  const int32_t spread = b.kernel("test_spread", 3);
  b.argPlaces = {{0, 8}, {8, 8}, {16, 8}};
  const int32_t dense = b.kernel("test_add", 3);
  b.argPlaces = {{0, 8}, {64, 128}};
  b.kernel("test_nothing", 2);
  fake_cuda::addKernel("test_nothing", 2, [](const fake_cuda::Launch &) { return 0; });
  b.launch(spread, {B::arg(x), fbs::Arg(fbs::ArgKind::I64, 0, -1, 5), B::arg(y)}, n);
  b.launch(dense, {B::arg(x), B::arg(y), B::arg(z)}, n);
  fake_cuda::addKernel("test_spread", 3, [](const fake_cuda::Launch &l) {
    for (unsigned i = 0; i < l.grid[0]; ++i)
      fake_cuda::pointer<float>(l, 2)[i] =
          fake_cuda::pointer<float>(l, 0)[i] + float(*static_cast<int64_t *>(l.params[1]));
    return 0;
  });
  Open m(std::move(b), options());
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  Tensor in({3}, {1, 2, 3});
  std::vector<neso_tensor> out(2);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(m.run({in.t}, out), NESO_OK) << neso_error_text();
    if (!GetParam().computes) continue;
    EXPECT_EQ(floats(out[0], 3), (std::vector<float>{6, 7, 8}));
    EXPECT_EQ(floats(out[1], 3), (std::vector<float>{7, 9, 11}));
  }
  // By name the same kernel takes words.
  Memory from(m, std::string(reinterpret_cast<const char *>(in.data.data()), 12)), to(m, std::string(12, '.'));
  const uint32_t grid[] = {3, 1, 1};
  neso_arg args[3];
  args[0].ptr = from.data, args[1].i64 = 2, args[2].ptr = to.data;
  ASSERT_EQ(neso_kernel_launch(m.context, "test_spread", grid, args, 3), NESO_OK) << neso_error_text();
  EXPECT_STATUS(neso_kernel_launch(m.context, "test_nothing", grid, args, 2), NESO_KERNEL_ARGUMENTS,
                "argument 1 of kernel 'test_nothing' has 128 bytes, which cannot be given by name");
  if (!GetParam().computes) return;
  const std::vector<float> want{3, 4, 5};
  EXPECT_EQ(to.read(), std::string(reinterpret_cast<const char *>(want.data()), 12));
}

TEST_P(Device, TakesAndGivesTensorsOfItsOwn) {
  Open m(transposing(), options());
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  const int64_t sizes[] = {2, 3}, turned[] = {3, 2};
  neso_tensor x{nullptr, sizes, nullptr, 2, NESO_F32, GetParam().kind, 0}, y = x;
  y.sizes = turned;
  for (neso_tensor *t : {&x, &y}) ASSERT_EQ(neso_context_allocate(m.context, 24, &t->data), NESO_OK);
  Tensor host({2, 3}, {0, 1, 2, 3, 4, 5}), back({3, 2}, {0, 0, 0, 0, 0, 0});
  ASSERT_EQ(neso_tensor_copy(m.context, &x, &host.t), NESO_OK) << neso_error_text();
  for (int i = 0; i < 4; ++i) {
    neso_tensor out = y;
    ASSERT_EQ(neso_run_async(m.context, &x, 1, &out, 1), NESO_OK) << neso_error_text();
    EXPECT_EQ(out.data, y.data);
  }
  ASSERT_EQ(neso_tensor_copy(m.context, &back.t, &y), NESO_OK) << neso_error_text();
  ASSERT_EQ(neso_context_synchronize(m.context), NESO_OK);
  EXPECT_EQ(back.data, (std::vector<float>{0, 3, 1, 4, 2, 5}));
  neso_device_stats stats;
  neso_context_get_device_stats(m.context, &stats);
  EXPECT_EQ(stats.graph_launches > 0, m.queue()->records);
  // Another device's are refused by name.
  neso_tensor strange = x, out{};
  strange.device = GetParam().kind == NESO_CUDA ? NESO_NULL : NESO_CUDA;
  strange.device_index = 3;
  EXPECT_STATUS(neso_run(m.context, &strange, 1, &out, 1), NESO_INPUT_DEVICE, "the model runs on");
  EXPECT_STATUS(neso_tensor_copy(m.context, &strange, &host.t), NESO_INVALID_ARGUMENT, "another device");
}

TEST_P(Device, LaunchesTheKernelsOfAPlan) {
  Open m(model(), options());
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  for (int64_t n : {3, 3, 3, 100}) {
    Tensor x({n}, std::vector<float>(size_t(n), 3));
    std::vector<neso_tensor> out(1);
    ASSERT_EQ(m.run({x.t}, out), NESO_OK) << neso_error_text();
    EXPECT_EQ(floats(out[0], size_t(n)), std::vector<float>(size_t(n), GetParam().computes ? 8 : 0));
  }
  neso_device_stats stats;
  neso_context_get_device_stats(m.context, &stats);
  if (GetParam().kind == NESO_NULL) {
    EXPECT_EQ(stats.kernel_launches, 8);
  }
  const uint32_t grid[] = {1, 1, 1};
  EXPECT_STATUS(neso_kernel_launch(m.context, "test_add", grid, nullptr, 0), NESO_KERNEL_ARGUMENTS, "has 3 arguments");
  EXPECT_STATUS(neso_kernel_launch(m.context, "none", grid, nullptr, 0), NESO_NO_SUCH_NAME, "no kernel 'none'");
}

TEST_P(Device, MutatedBuffersAreTheContextsOwn) {
  B b = model();
  const float stored[] = {1, 2, 3};
  b.weight("state", {3}, std::string(reinterpret_cast<const char *>(stored), 12), true, fbs::ConstantKind::Buffer);
  Open m(std::move(b), options());
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  neso_tensor t{};
  ASSERT_EQ(neso_context_buffer(m.context, "state", &t), NESO_OK) << neso_error_text();
  EXPECT_EQ(t.device, GetParam().kind);
  Tensor other({3}, {7, 8, 9}), back({3}, {0, 0, 0});
  ASSERT_EQ(neso_tensor_copy(m.context, &t, &other.t), NESO_OK) << neso_error_text();
  ASSERT_EQ(neso_tensor_copy(m.context, &back.t, &t), NESO_OK) << neso_error_text();
  EXPECT_EQ(back.data, (std::vector<float>{7, 8, 9}));
  ASSERT_EQ(neso_context_reset_buffers(m.context), NESO_OK) << neso_error_text();
  ASSERT_EQ(neso_tensor_copy(m.context, &back.t, &t), NESO_OK) << neso_error_text();
  EXPECT_EQ(back.data, (std::vector<float>{1, 2, 3}));
}

TEST_P(Device, TakesTheCallersAllocatorAndNothingInSteadyState) {
  struct Count {
    neso_device_kind kind;
    int held = 0, taken = 0;
  } count{GetParam().kind};
  neso_context_options o = options();
  o.allocator_user = &count;
  o.allocate = [](void *user, size_t bytes) -> void * {
    ++static_cast<Count *>(user)->held, ++static_cast<Count *>(user)->taken;
    // The fake GPU's memory comes from its driver alone.
    uint64_t address = 0;
    if (static_cast<Count *>(user)->kind == NESO_CUDA)
      return cuMemAlloc_v2(&address, bytes) == 0 ? reinterpret_cast<void *>(address) : nullptr;
    return aligned_alloc(kAlign, (bytes + kAlign - 1) / kAlign * kAlign);
  };
  o.release = [](void *user, void *memory, size_t) {
    --static_cast<Count *>(user)->held;
    if (static_cast<Count *>(user)->kind == NESO_CUDA)
      cuMemFree_v2(reinterpret_cast<uint64_t>(memory));
    else
      free(memory);
  };
  {
    Open m(transposing(), o);
    ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
    Tensor x({2, 3}, {0, 1, 2, 3, 4, 5});
    std::vector<neso_tensor> out(1);
    for (int i = 0; i < 3; ++i) ASSERT_EQ(m.run({x.t}, out), NESO_OK) << neso_error_text();
    const int before = count.taken;
    EXPECT_GT(before, 0);
    for (int i = 0; i < 5; ++i) ASSERT_EQ(m.run({x.t}, out), NESO_OK) << neso_error_text();
    EXPECT_EQ(count.taken, before);
    EXPECT_EQ(floats(out[0], 6), (std::vector<float>{0, 3, 1, 4, 2, 5}));
  }
  EXPECT_EQ(count.held, 0);
}

INSTANTIATE_TEST_SUITE_P(Devices, Device,
                         testing::Values(Case{NESO_CPU, true}, Case{NESO_CUDA, true}, Case{NESO_NULL, false}),
                         [](const auto &info) { return std::string(info.param.kind == NESO_CPU    ? "cpu"
                                                                   : info.param.kind == NESO_CUDA ? "cuda"
                                                                                                  : "null"); });

// What only the null device can say.
TEST(NullDevice, RefusesMemoryThatItDidNotGive) {
  neso_context_options o{};
  o.device = NESO_NULL;
  Open m(addThenDouble(1, {"sm_90"}), o);
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  char elsewhere[64];
  EXPECT_STATUS(m.table().upload(m.queue(), elsewhere, "x", 1), NESO_DEVICE_FAILED, "are not memory of device null:0");
  char *block = static_cast<char *>(m.table().allocate(m.queue(), 64));
  EXPECT_EQ(m.table().fill(m.queue(), block, 4, 1, 16), NESO_OK);
  EXPECT_STATUS(m.table().fill(m.queue(), block, 4, 1, 17), NESO_DEVICE_FAILED, "68 bytes");
  m.table().release(m.queue(), block, 64);
  EXPECT_STATUS(m.table().fill(m.queue(), block, 4, 1, 1), NESO_DEVICE_FAILED, "filling device memory");
  ASSERT_EQ(m.table().begin_recording(m.queue()), NESO_OK);
  EXPECT_STATUS(m.table().synchronize(m.queue()), NESO_DEVICE_FAILED, "cannot be waited for");
  EXPECT_STATUS(m.table().wait(m.queue(), nullptr), NESO_DEVICE_FAILED, "set no mark");
  EXPECT_STATUS(m.table().use_branch(m.queue(), 99), NESO_DEVICE_FAILED, "branch 99");
  graph *g = nullptr;
  EXPECT_EQ(m.table().end_recording(m.queue(), NESO_CANCELLED, &g), NESO_CANCELLED);
}

// Also needs no code that this machine could run, and counts what is asked of it.
TEST(NullDevice, WalksAPlanForHardwareThatIsNotThere) {
  neso_context_options o{};
  o.device = NESO_NULL;
  Open m(addThenDouble(1, {"sm_120"}), o);
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  Tensor x({4}, {1, 2, 3, 4});
  std::vector<neso_tensor> out(1);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(m.run({x.t}, out), NESO_OK) << neso_error_text();
  const null_counts before = null_counts_of(m.queue());
  EXPECT_EQ(before.launches, 6);
  EXPECT_EQ(before.graph_launches, 2);
  for (int i = 0; i < 5; ++i) ASSERT_EQ(m.run({x.t}, out), NESO_OK) << neso_error_text();
  const null_counts after = null_counts_of(m.queue());
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_EQ(after.graph_launches, before.graph_launches + 5);
  EXPECT_EQ(after.uploads, before.uploads + 5);
  EXPECT_EQ(after.downloads, before.downloads + 5);
}
} // namespace
