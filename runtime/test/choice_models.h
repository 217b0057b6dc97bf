// Models with branches and loops for tests on the fake GPU and on a real one, and contexts that run them again and again.
#pragma once
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "core/context.h"
#include "test/harness.h"

namespace neso_test {
using B = PackageBuilder;

// Inputs: i64 scalars in memory, named in order, each of one element; x [4], which the run changes.
struct Model : B {
  int32_t bytes8, bytes1, four, one, x;
  std::vector<int32_t> numbers;
  explicit Model(const std::vector<std::string> &names, const std::string &arch = "sm_90") {
    gpu({arch});
    bytes8 = constant(8), bytes1 = constant(1), four = constant(4), one = constant(1);
    for (const std::string &n : names) {
      input(n, {}, fbs::DType::I64);
      numbers.push_back(buffer(fbs::Location::Input, int32_t(numbers.size()), bytes8));
    }
    input("x", {fixed(4)}, fbs::DType::F32, true);
    x = buffer(fbs::Location::Input, int32_t(names.size()), constant(16));
    arenas.push_back(fbs::CreateArena(fb, constant(4096)));
    prologueEnd = 0;
    doubles = kernel("test_double", 1), less = kernel("test_less", 3), increase = kernel("test_increase", 2), zero = kernel("test_zero", 1);
  }
  int32_t doubles, less, increase, zero;
  int32_t inArena(int64_t at, int64_t size) { return buffer(fbs::Location::Arena, 0, constant(size), constant(at)); }
  size_t sub() {
    subplans.emplace_back();
    return subplans.size() - 1;
  }
  void twice(size_t in) { launch(doubles, {arg(x)}, four, in); }
  void read(int32_t from, int32_t slot, size_t in, fbs::DType type = fbs::DType::Bool) {
    step(fbs::Step::LoadScalar, fbs::CreateLoadScalar(fb, from, -1, type, slot), in);
  }
  // The number of the turn, in the test of a loop.
  void turn(int32_t from, int32_t slot, int64_t first, size_t in) {
    step(fbs::Step::LoadScalar, fbs::CreateLoadScalar(fb, from, -1, fbs::DType::I64, slot, first), in);
  }
  void sizes(int32_t begin, size_t in) {
    fbs::SizeRange range(begin, int32_t(program.size()));
    step(fbs::Step::EvalSizes, fbs::CreateEvalSizes(fb, &range), in);
  }
  void branch(int32_t slot, size_t then, size_t otherwise, size_t in) {
    step(fbs::Step::If, fbs::CreateIf(fb, slot, int32_t(then), int32_t(otherwise)), in);
  }
  void loop(size_t test, int32_t slot, size_t body, size_t in) {
    step(fbs::Step::While, fbs::CreateWhile(fb, int32_t(test), slot, int32_t(body)), in);
  }
};

// One context and its runs: the same tensors each time, so that the second run is recorded.
struct Runs : Loaded {
  std::vector<int64_t> numbers;
  Tensor x{{4}, {1, 1, 1, 1}};
  explicit Runs(B b, size_t count, const neso_context_options &o) : Loaded(b.package(), 1, &o), numbers(count) {
    EXPECT_EQ(status, NESO_OK) << neso_error_text();
  }
  neso_status again(const std::vector<int64_t> &values) {
    std::vector<neso_tensor> in, out(context->model->plan.outputs.size());
    for (size_t i = 0; i < numbers.size(); ++i) {
      numbers[i] = values[i];
      in.push_back({&numbers[i], nullptr, nullptr, 0, NESO_I64, NESO_CPU, 0});
    }
    x.data.assign(4, 1);
    in.push_back(x.t);
    return run(in, out);
  }
  // What x became.
  float of(const std::vector<int64_t> &values) {
    EXPECT_EQ(again(values), NESO_OK) << neso_error_text();
    for (float v : x.data) EXPECT_EQ(v, x.data[0]);
    return x.data[0];
  }
  int64_t graphs() const {
    neso_device_stats s;
    neso_context_get_device_stats(context, &s);
    return s.graph_launches;
  }
};

// A loop that never ends sees the word of the host's, and its run fails; the next one is itself again. m: counting().
inline void expectCancelled(Runs &m) {
  std::atomic<bool> ended{false};
  std::thread other([&] {
    while (!ended) neso_context_cancel(m.context), std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  EXPECT_STATUS(m.again({1, 0}), NESO_CANCELLED, "the run was cancelled");
  ended = true;
  other.join();
  EXPECT_EQ(m.of({3, 1}), 16);
}

// if a < b: x doubled, else doubled twice, three times over.
inline B branches(const std::string &arch = "sm_90") {
  Model m({"a", "b"}, arch);
  const int32_t flag = m.inArena(0, 1), slot = B::kVariables;
  const size_t then = m.sub(), otherwise = m.sub();
  m.launch(m.less, {B::arg(m.numbers[0]), B::arg(m.numbers[1]), B::arg(flag)}, m.one);
  m.read(flag, slot, 0);
  m.branch(slot, then, otherwise, 0);
  m.twice(then);
  m.twice(otherwise), m.twice(otherwise);
  return std::move(m);
}

// i = 0; while i < n: x doubled, i += step.
inline B counting(const std::string &arch = "sm_90") {
  Model m({"n", "step"}, arch);
  const int32_t flag = m.inArena(0, 1), i = m.inArena(64, 8), slot = B::kVariables;
  const size_t test = m.sub(), body = m.sub();
  m.launch(m.zero, {B::arg(i)}, m.one);
  m.loop(test, slot, body, 0);
  m.launch(m.less, {B::arg(i), B::arg(m.numbers[0]), B::arg(flag)}, m.one, test);
  m.read(flag, slot, test);
  m.twice(body);
  m.launch(m.increase, {B::arg(i), B::arg(m.numbers[1])}, m.one, body);
  m.twice(0);
  return std::move(m);
}

} // namespace neso_test
