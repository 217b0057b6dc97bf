#include "base/machine.h"

namespace neso {

int64_t tilesOf(const ProductBlock &block, int64_t batch, int64_t m, int64_t n) {
  return batch * ((m + block.m - 1) / block.m) * ((n + block.n - 1) / block.n);
}

double blockTime(const MachineSheet &machine, const ProductBlock &block, int64_t tiles, int64_t k) {
  const int64_t round = machine.processors * block.together, full = tiles / round, rest = tiles % round;
  const double depth = static_cast<double>((k + block.k - 1) / block.k * block.k) / 1024;
  double time = static_cast<double>(full) * (depth * block.shared + block.start);
  if (rest) {
    const double beside = static_cast<double>((rest + machine.processors - 1) / machine.processors - 1);
    time += depth * (block.alone + (beside ? (block.shared - block.alone) * beside / (block.together - 1) : 0)) + block.start;
  }
  return time;
}

} // namespace neso
