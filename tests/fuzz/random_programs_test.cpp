// Machine code computes what the loops interpreter computes: random programs, compiled, packaged, loaded and run at
// several sizes. tools/campaign runs others without end.
#include <gtest/gtest.h>

#include "fuzz/random_run.h"

namespace neso {
namespace {

TEST(RandomPrograms, MachineCodeAgreesWithTheInterpreter) {
  for (uint32_t seed = 1; seed <= 300 && !HasFatalFailure(); ++seed) {
    std::string why = fuzz::runRandomProgram(seed);
    ASSERT_EQ(why, "") << "seed " << seed << "\n" << loops::print(schedule::test::RandomProgram(seed).p);
  }
}

// Found by campaigns, mended, and kept: updates of a buffer fused around a norm (in 1000511, 1000907, 1002322), and an argmax beside a
// reader of the transposed (in 1004031). In 41014033 products of products cancel, in 42007968 what a mean leaves is summed: what is left of them is
// rounding, which the oracle has to see.
TEST(RandomPrograms, FoundOnce) {
  for (uint32_t seed : {1000511u, 1000907u, 1001759u, 1002322u, 1003030u, 1004031u, 1007280u, 41014033u, 42007968u})
    EXPECT_EQ(fuzz::runRandomProgram(seed), "") << "seed " << seed << "\n" << loops::print(schedule::test::RandomProgram(seed).p);
}

} // namespace
} // namespace neso
