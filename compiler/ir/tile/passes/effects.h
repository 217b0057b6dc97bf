// What a kernel does to the memory behind each of its parameters (mutation analysis). The graph uses it to know which
// arguments of a user's kernel change, so it errs to "written" and "read", never to "untouched".
//
// From each op that touches memory the address is followed back to parameters: through pointer arithmetic (its base,
// not its offset), casts, splats, selects, loops, branches, calls, block pointers and descriptors (their base). What a
// load gives is data; where it is used as an address, or an impure assembly or library call or an unknown op occurs, or
// calls recurse, nothing is known and every pointer counts as read and written.
//
// Example: y[i] = x[i] + 1 gives x {read}, y {written, writers 1, writtenOnce}, n {}.
#pragma once
#include <string>
#include <vector>

#include "ir/tile/tile.h"

namespace neso {

struct ParamEffect {
  bool pointer = false; // a pointer or descriptor; the rest is false for other parameters
  bool read = false;
  bool written = false;
  int writers = 0; // ops that may write it, each counted once for every way of calling it
  bool writtenOnce =
      false; // no program writes an element twice, and no two programs write one element; false if not proved
};

struct KernelEffects {
  bool known = true;
  std::string unknownBecause;      // empty if known
  std::vector<ParamEffect> params; // by parameter, in order
  /// Indices of parameters that may be written, in order.
  std::vector<unsigned> written() const;
  std::vector<unsigned> read() const;
};

/// Analyses a kernel with its callees, before or after the pipeline. Does not change it.
KernelEffects analyzeEffects(tt::FuncOp func);

/// Whether `offset` is program_id(axis) * n + range(0, n) of one axis: every element of every program differs. `axis`
/// receives it.
bool coversOnce(mlir::Value offset, int64_t &axis);

} // namespace neso
