// Can two groups share one iteration space, and how do their dimensions correspond?
//
// Dimensions are aligned from the innermost out, split where one group's dimension is a multiple of the other's ([48]
// against [6, 8]), in the order of the strides of an access that both make (so that a transposed consumer matches its
// producer), or in their own order. Whether the correspondence is right is then decided by the accesses alone: every
// buffer that one group writes and the other touches must be touched at the same element at the same point.
#pragma once
#include "base/rules.h"
#include "lower/schedule/group.h"

namespace neso::schedule {

struct Fusion {
  Group group;                     // the result: nodes of both in program order, in one space
  int64_t bytesSaved = 0;          // by hint: loads answered in the kernel, loads made once, stores no longer needed
  std::vector<std::string> shared; // names of the buffers that paid for it
  Rule rule = Rule::JoinSameSpace; // by which it came
};
struct Refusal {
  std::string reason;
};

/// Tries to join two groups; `temporary` says which buffers nobody but these two groups touches. Bounds on parallelism
/// and on what a kernel can hold are applied by the caller.
std::variant<Fusion, Refusal> join(const Group &a, const Group &b, const loops::Program &program,
                                   const std::vector<bool> &temporary, NewDims &dims);

/// Does the store hit each element at most once over these dimensions?
bool injective(Expr index, const std::vector<Dim> &dims, const Facts &facts);

} // namespace neso::schedule
