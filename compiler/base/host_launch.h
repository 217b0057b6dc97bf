// A launch of a tile function in the reference interpreter, as the loops interpreter sees it: it knows no tile IR, only
// this call.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <span>

#include "base/diagnostics.h"

namespace neso {

/// One argument of the function: memory (data with its bytes), an integer, or a float.
struct HostArgument {
  enum Kind : uint8_t { Memory, Integer, Real } kind = Integer;
  void *data = nullptr;
  int64_t bytes = 0;
  int64_t integer = 0;
  double real = 0;
};

/// Runs every program of the grid. Errors are those of the tile interpreter.
using HostLaunch = std::function<Status(std::span<const HostArgument>, std::array<int64_t, 3> grid)>;

} // namespace neso
