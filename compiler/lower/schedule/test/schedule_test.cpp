// A schedule computes what its program computes: random programs, at several sizes, with every option on and off.
#include <cmath>

#include <gtest/gtest.h>

#include "ir/loops/verify.h"
#include "ir/plan/access.h"
#include "ir/plan/interp.h"
#include "ir/plan/verify.h"
#include "lower/memory/memory.h"
#include "lower/schedule/schedule.h"
#include "lower/schedule/test/random_program.h"

namespace neso::schedule::test {
namespace {

struct Inputs {
  std::vector<std::vector<uint8_t>> bytes;
  std::vector<HostValue> values;
};
Inputs makeInputs(const RandomProgram &r, const SymbolMap<int64_t> &sizes, uint32_t seed) {
  Inputs in;
  std::mt19937 rng(seed);
  for (size_t k = 0; k < r.p.inputs.size(); ++k) {
    std::vector<int64_t> shape;
    int64_t elements = 1;
    for (Expr e : r.p.inputs[k].sizes) {
      shape.push_back(*evaluate(e, sizes));
      elements *= shape.back();
    }
    in.bytes.push_back(r.contents(k, elements, rng));
    in.values.push_back(HostValue::tensor(r.p.inputs[k].dtype, shape, nullptr));
  }
  for (size_t k = 0; k < in.values.size(); ++k) in.values[k].data = in.bytes[k].data();
  return in;
}

/// The first difference beyond 1e-5 relative; empty when there is none.
std::string difference(const HostValue &want, const HostValue &got) {
  if (want.sizes != got.sizes) return "sizes differ";
  for (int64_t e = 0; e < want.elements(); ++e) {
    double a, b;
    if (want.dtype == DType::F32) {
      a = static_cast<double>(reinterpret_cast<float *>(want.data)[e]);
      b = static_cast<double>(reinterpret_cast<float *>(got.data)[e]);
    } else {
      a = static_cast<double>(reinterpret_cast<int64_t *>(want.data)[e]);
      b = static_cast<double>(reinterpret_cast<int64_t *>(got.data)[e]);
    }
    bool same = (std::isnan(a) && std::isnan(b)) || a == b || std::fabs(a - b) <= 1e-5 * std::max(1.0, std::fabs(a));
    if (!same) return fmt::format("element {}: want {}, got {}", e, a, b);
  }
  return "";
}

int64_t gKernels = 0, gNodes = 0;
double gWorstPeak = 1;

void check(uint32_t seed, const ScheduleOptions &options, const memory::MemoryOptions &memory = {}) {
  RandomProgram r(seed);
  Status ok = loops::verify(r.p);
  ASSERT_TRUE(ok) << ok.error().str() << loops::print(r.p);
  Result<plan::Plan> plan = schedule(r.p, options);
  ASSERT_TRUE(plan) << plan.error().str();
  Status sound = plan::verify(*plan, plan::Form::Scheduled);
  if (sound) {
    memory::planMemory(*plan, memory);
    sound = plan::verify(*plan);
  }
  ASSERT_TRUE(sound) << "seed " << seed << ": " << sound.error().str() << print(*plan);
  gKernels += static_cast<int64_t>(plan->kernels.size());
  gNodes += static_cast<int64_t>(r.p.nodes.size());
  for (auto [s0, s1] : {std::pair<int64_t, int64_t>{1, 2}, {5, 17}, {9, 64}}) {
    SymbolMap<int64_t> sizes = {{Symbol::size("s0"), s0}, {Symbol::size("s1"), s1}};
    Inputs a = makeInputs(r, sizes, seed), b = makeInputs(r, sizes, seed);
    Result<std::vector<HostValue>> want = Interpreter(r.p).run(a.values);
    ASSERT_TRUE(want) << "seed " << seed << ": " << want.error().str() << loops::print(r.p);
    Result<plan::PlanRun> got = plan::runPlan(*plan, b.values, seed);
    ASSERT_TRUE(got) << "seed " << seed << ": " << got.error().str() << loops::print(r.p) << print(*plan);
    for (size_t k = 0; k < want->size(); ++k) {
      std::string d = difference((*want)[k], got->outputs[k]);
      ASSERT_EQ(d, "") << "seed " << seed << " output " << k << " sizes " << s0 << ", " << s1 << "\n"
                       << loops::print(r.p) << print(*plan);
    }
    if (got->lowerBound > 0)
      gWorstPeak = std::max(gWorstPeak, static_cast<double>(got->arenaBytes) / static_cast<double>(got->lowerBound));
  }
}

TEST(Schedule, OneKernelANodeComputesTheProgram) {
  ScheduleOptions options;
  options.fuse = options.reorder = options.splitReductions = false;
  for (uint32_t seed = 0; seed < 400 && !HasFatalFailure(); ++seed) check(seed, options, {false});
}

TEST(Schedule, FusedKernelsComputeTheProgram) {
  gKernels = gNodes = 0;
  gWorstPeak = 1;
  for (uint32_t seed = 1000; seed < 3000 && !HasFatalFailure(); ++seed) check(seed, {});
  RecordProperty("kernels", static_cast<int>(gKernels));
  std::printf("%lld nodes in %lld kernels, worst arena over lower bound %.3f\n", static_cast<long long>(gNodes),
              static_cast<long long>(gKernels), gWorstPeak);
}

TEST(Schedule, PackedLaunchesComputeTheProgram) {
  ScheduleOptions options;
  options.packedBytes = 4096;
  for (uint32_t seed = 5000; seed < 5600 && !HasFatalFailure(); ++seed) check(seed, options);
  options.fuse = false;
  for (uint32_t seed = 5600; seed < 6000 && !HasFatalFailure(); ++seed) check(seed, options);
}

} // namespace
} // namespace neso::schedule::test
