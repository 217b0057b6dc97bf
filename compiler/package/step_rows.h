// The steps of a plan as rows of abi/plan.fbs.
#pragma once
#include <map>
#include <vector>

#include "package/operator_calls.h"
#include "package/rows.h"

namespace neso {

class StepRows {
public:
  /// Borrows both.
  StepRows(RowNumbers &rows, const plan::Plan &plan) : rows_(rows), plan_(plan), calls_(operatorCallNumbers(plan)) {}

  /// The region and those inside it: each is a sub-plan, whose number is greater than that of the one around it.
  Rows<fbs::SubPlan> all(const plan::Region &region);
  /// A guard that is tested before the steps.
  flatbuffers::Offset<fbs::Guard> row(const plan::Guard &guard);

private:
  int32_t number(const plan::Region &region);
  fbs::Arg argument(const plan::KernelArg &arg);
  flatbuffers::Offset<fbs::Launch> launch(const plan::Kernel &kernel);
  flatbuffers::Offset<fbs::Product> product(const plan::Product &product);
  flatbuffers::Offset<fbs::Launch> row(const plan::Launch &s) { return launch(plan_.kernels[s.kernel.index()]); }
  flatbuffers::Offset<fbs::Copy> row(const plan::Copy &copy);
  flatbuffers::Offset<fbs::LoadScalar> row(const plan::LoadScalar &load);
  flatbuffers::Offset<fbs::EvalSizes> row(const plan::EvalSizes &eval);
  flatbuffers::Offset<fbs::GrowArena> row(const plan::GrowArena &s);
  flatbuffers::Offset<fbs::AllocOutput> row(const plan::AllocOutput &s);
  flatbuffers::Offset<fbs::If> row(const plan::If &branch);
  flatbuffers::Offset<fbs::While> row(const plan::While &loop);
  flatbuffers::Offset<fbs::CallExtern> row(const plan::CallExtern &call);
  flatbuffers::Offset<fbs::OpTensor> row(const loops::ExternSpec::View &view);
  flatbuffers::Offset<fbs::OpArgument> row(const loops::ExternSpec::Argument &argument, std::vector<flatbuffers::Offset<fbs::OpTensor>> &inputs);

  RowNumbers &rows_;
  const plan::Plan &plan_;
  std::map<int64_t, int32_t> calls_; // of operators, by number in the model
  std::vector<flatbuffers::Offset<fbs::SubPlan>> subplans_;
};

} // namespace neso
