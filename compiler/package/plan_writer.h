// Plan → the bytes of abi/plan.fbs.
#pragma once
#include <string>
#include <vector>

#include "package/package.h"

namespace neso {

struct WrittenPlan {
  std::string bytes;
  // Runs of bytes that become members of the archive, and of the file of weights; several constants may share one. Borrowed from the plan's
  // constants.
  std::vector<WeightMember> weights, beside;
};

/// Member that holds the code of contents.code[i]: "data/neso/model/code/x86-64-v4".
std::string codeMember(const CompiledCode &code);

Result<WrittenPlan> writePlan(const PackageContents &contents);

} // namespace neso
