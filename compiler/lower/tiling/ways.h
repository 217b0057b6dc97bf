// The ways to compile a kernel that tuning measures: what the cost model chooses, and its neighbours.
#pragma once
#include <string>
#include <vector>

#include "lower/tiling/target.h"

namespace neso {

struct Way {
  std::string name;  // stable between versions as long as it means the same: "dot 128x64", "warps x2"
  TileTarget target; // to build the kernel with
  int warpShift = 0; // of the number of warps that it then has: doubled so many times, halved if negative
};

/// The first is the cost model's own, "model". `kernel` as it comes from the schedule.
std::vector<Way> waysOf(const plan::Plan &plan, const plan::Kernel &kernel, const TileTarget &target);

} // namespace neso
