// The size program: computes slots from slots (SizeOp in abi/plan.fbs says what each operation does).
#pragma once
#include "core/plan.h"

namespace neso_rt {

/// Operands that an operation reads: 1, 2 or 3; 0 for a number that is none.
int size_op_arity(fbs::SizeOp op);

/// Whether a program of a row of its own names operations and slots that exist: it reads [0, slots) and writes those behind the
/// `constants` first.
bool program_fits(const flatbuffers::Vector<const fbs::SizeInst *> *program, int32_t constants, int32_t slots);

/// Runs instructions [begin, end). Fails with NESO_SIZE_INVALID on division by zero; never traps.
neso_status eval_sizes(const fbs::SizeInst *begin, const fbs::SizeInst *end, int64_t *slots);

inline double slot_as_double(int64_t bits) {
  double v;
  memcpy(&v, &bits, 8);
  return v;
}
inline int64_t double_as_slot(double v) {
  int64_t bits;
  memcpy(&bits, &v, 8);
  return bits;
}

} // namespace neso_rt
