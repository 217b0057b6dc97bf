// What all tables of abi/plan.fbs share while a plan is written: the slots of sizes, and the numbers of the rows of
// buffers, constants and kernels. What is written was decided by lower/memory.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "abi/plan_generated.h"
#include "ir/plan/plan.h"
#include "package/size_program.h"

namespace neso {

template <typename T> using Vec = flatbuffers::Offset<flatbuffers::Vector<T>>;
template <typename T> using Rows = flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<T>>>;

inline fbs::DType dtypeOf(DType t) { return static_cast<fbs::DType>(t); }

/// Strides are left out where they are the contiguous ones.
inline bool isStrided(const std::vector<Expr> &sizes, const std::vector<Expr> &strides) {
  Expr contiguous = 1;
  bool differ = false;
  for (size_t d = sizes.size(); strides.size() == sizes.size() && d-- > 0; contiguous = contiguous * sizes[d])
    differ |= strides[d] != contiguous;
  return differ;
}

class RowNumbers {
public:
  /// Borrows the plan, which may be null: then nothing has a number.
  explicit RowNumbers(const plan::Plan *plan);

  flatbuffers::FlatBufferBuilder fb;
  SizeProgram sizes;
  std::string problem; // the first thing that cannot be written
  std::map<int64_t, int32_t> constants;    // by constant of the program
  std::map<size_t, int32_t> copiedOutputs; // by output of the program: the row of its memory, which copies fill

  void note(const std::string &why) {
    if (problem.empty()) problem = why;
  }
  int32_t slot(Expr e) { return sizes.finalSlot(sizes.slot(e)); }
  /// -1 stands for 0.
  int32_t offsetSlot(Expr e) { return !e.valid() || e == Expr(0) ? -1 : slot(e); }
  Vec<int32_t> slots(const std::vector<Expr> &es);
  int32_t buffer(loops::BufferId id);
  /// -1: a part, whose code is in another kernel's.
  int32_t kernel(plan::KernelId id) const { return kernels_[id.index()]; }

private:
  const plan::Plan *plan_;
  std::map<int32_t, int32_t> buffers_;
  std::vector<int32_t> kernels_;
};

} // namespace neso
