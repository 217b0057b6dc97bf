// What is known of each value's elements along each axis: how far they run by +1, what power of two divides them, how far they are
// equal. Backends choose vector widths and coalesced accesses from it.
//
// For axis d of a value with elements v:
//   contiguity c[d]:   in every window [k*c, (k+1)*c) of axis d, v grows by exactly 1 an element (1 element for a pointer).
//   divisibility e[d]: v of the first element of every such window is a multiple of e[d] (in bytes for pointers).
//   constancy s[d]:    in every window [k*s, (k+1)*s), v is the same.
// All are powers of two, at least 1. Example: pid * 128 + range(0, 128) has c = [128], e = [128], s = [1]; as an offset to an f32
// pointer with tt.divisibility = 16 it gives c = [128], e = [16], s = [1]: 16-byte vector loads are possible.
// Integer overflow is taken not to happen. Quotients and remainders get facts only where the dividend is known not to be negative; for
// that, a number that the program divides by is taken to be positive (the sizes in pid % width // size).
#pragma once
#include <memory>
#include <optional>

#include "ir/tile/tile.h"

namespace neso {

struct AxisInfo {
  llvm::SmallVector<int64_t> contiguity, divisibility, constancy; // one an axis; a scalar has one axis
  std::optional<int64_t> constant;                                // every element, where known
  bool operator==(const AxisInfo &) const = default;
};

/// Facts of every value of a function, computed once. Values made afterwards have none: make a new one after changing
/// the IR.
class AxisInfoAnalysis {
public:
  explicit AxisInfoAnalysis(tt::FuncOp func);
  ~AxisInfoAnalysis();
  AxisInfo get(mlir::Value v) const;
  /// How many elements of axis `axis` an access through `ptr` under `mask` (may be null) can take as one: at most 128
  /// bits.
  int64_t vectorWidth(mlir::Value ptr, mlir::Value mask, int axis) const;

private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Facts of one value; analyses its whole function anew, so for single questions and tests.
AxisInfo axisInfo(mlir::Value v);

} // namespace neso
