// What the walk over a node's accesses says is what nodes of random programs do to memory, before and after scheduling;
// and who touches a buffer of a plan.
#include <gtest/gtest.h>

#include "ir/loops/test/touched.h"
#include "ir/plan/access.h"
#include "lower/schedule/schedule.h"
#include "lower/schedule/test/random_program.h"

namespace neso::schedule::test {
namespace {

using loops::test::Memory;

Memory memoryOf(const RandomProgram &r, const Program &p, const Bindings &sizes, uint32_t seed) {
  Memory memory = loops::test::memoryFor(p, sizes, 0x3f);
  std::mt19937 rng(seed);
  for (size_t k = 0; k < r.p.inputs.size(); ++k) {
    std::vector<uint8_t> &m = memory[r.p.inputs[k].buffer.index()];
    m = r.contents(k, static_cast<int64_t>(m.size()) / itemSize(r.p.inputs[k].dtype), rng);
  }
  return memory;
}

TEST(Access, NodesTouchWhatTheWalkNames) {
  const Bindings sizes = {{Symbol::size("s0"), 5}, {Symbol::size("s1"), 7}};
  int64_t nodes = 0;
  for (uint32_t seed = 0; seed < 600 && !HasFailure(); ++seed) {
    RandomProgram r(seed);
    Memory memory = memoryOf(r, r.p, sizes, seed);
    for (const Node &n : r.p.nodes)
      EXPECT_EQ(loops::test::differenceFromWalk(r.p, n, sizes, Symbol::Kind::Index, memory), "") << "seed " << seed << print(r.p);
    Result<plan::Plan> plan = schedule(r.p, {});
    ASSERT_TRUE(plan) << plan.error().str();
    Memory again = memoryOf(r, plan->program, sizes, seed);
    for (const plan::Kernel &k : plan->kernels)
      for (const Node &n : k.nodes)
        EXPECT_EQ(loops::test::differenceFromWalk(plan->program, n, sizes, Symbol::Kind::Outer, again), "") << "seed " << seed;
    nodes += static_cast<int64_t>(r.p.nodes.size());
  }
  EXPECT_GT(nodes, 3000);
}

TEST(Access, UsersOfABufferAreAllThatTouchIt) {
  Program p;
  const BufferId x = addTemp(p, "x", DType::F32, 4), y = addTemp(p, "y", DType::F32, 4);
  plan::Plan plan;
  plan::Kernel k;
  k.id = plan::KernelId(0);
  Node n;
  n.ranges = {4};
  auto &spec = n.spec.emplace<PointwiseSpec>();
  spec.stores = {{y, Symbol::outer(0), appendLoad(spec.body, x, DType::F32, Symbol::outer(0))}};
  k.nodes = {n};
  plan.kernels = {k};
  plan::Copy copy;
  copy.src = y, copy.dst = x;
  plan.main.steps = {plan::Launch{k.id}, copy};
  ProgramOutput o;
  o.buffer = y;
  p.outputs = {o};
  plan.program = p;
  plan::Users users(plan);
  ASSERT_EQ(users.of(x).size(), 2u);
  EXPECT_TRUE(users.of(x)[0].kernel == k.id && users.of(x)[0].access.reads());
  EXPECT_TRUE(!users.of(x)[1].kernel.valid() && users.of(x)[1].access.writes());
  EXPECT_EQ(users.of(y).size(), 3u); // stored, copied, returned
}

} // namespace
} // namespace neso::schedule::test
