// The calls of operators of the caller's in a plan: their numbers in the package, and what PyTorch's loader is told of them.
//
// The loader reads a file of JSON beside the library (torch/_export/serde/schema.py, ExternKernelNodes), in which each call is a node of
// torch.export: the operator, its arguments with their values, and what it returns. It then makes call k for the library, which gives it the
// tensors and the integers of the arguments, in the order of the node, and gets the tensors that came out. So all integers are written as 0:
// their values are those of the run.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "base/diagnostics.h"
#include "ir/plan/plan.h"

namespace neso {

/// One call a number. What asks for the sizes of a call has its number, and stands for it where the call is not in the plan.
std::vector<const plan::CallExtern *> operatorCalls(const plan::Plan &plan);
/// By number in the model, fbs::CallExtern.call.
std::map<int64_t, int32_t> operatorCallNumbers(const plan::Plan &plan);

/// The loader's file; empty where the plan calls no operator. Error: OpNotForTorch for a call that the loader cannot make.
Result<std::string> operatorCallsForTorch(const plan::Plan &plan);

} // namespace neso
