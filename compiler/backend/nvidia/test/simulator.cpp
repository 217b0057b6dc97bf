#include "backend/nvidia/test/simulator_block.h"

namespace neso::nvidia::test {

Outcome simulate(llvm::Function &kernel, int threads, int64_t sharedBytes, const std::vector<uint64_t> &arguments) {
  return Simulator(kernel, threads, sharedBytes).run(arguments, true);
}

Outcome simulateEntry(llvm::Function &kernel, int threads, int64_t sharedBytes, const std::vector<uint64_t> &arguments,
                      const Schedule &schedule) {
  return Simulator(kernel, threads, sharedBytes, schedule).run(arguments, false);
}

} // namespace neso::nvidia::test
