// Folding of one reduction at one outer element; used by interp_node.cpp.
#pragma once
#include "ir/loops/lanes.h"

namespace neso::loops {

struct Accumulator {
  double x = 0, y = 0; // floats: sum or product or extreme; mean and M2; max and sum
  int64_t i = 0;       // integers: the same; Any and All
  int64_t at = 0;      // ArgMin, ArgMax: position of the extreme
  int64_t n = 0;       // elements seen
};

/// Takes in one element: `d` when the input's dtype t is a float, else `v`.
void accumulate(ReduceKind kind, DType t, Accumulator &s, double d, int64_t v, int64_t position);
/// Result number `result` of a finished reduction, written to lane l of a register of resultType().
void finishInto(const Reduction &r, DType inputType, const Accumulator &s, int result, Register &out, int l);
DType resultType(const Reduction &r);

} // namespace neso::loops
