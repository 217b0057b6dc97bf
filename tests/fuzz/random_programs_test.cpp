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

} // namespace
} // namespace neso
