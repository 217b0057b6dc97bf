// Plan → the bytes of abi/plan.fbs.
#pragma once
#include <string>
#include <vector>

#include "package/package.h"

namespace neso {

/// A run of bytes that becomes one member of the archive; several constants may share one.
struct WeightMember {
  std::string name; // below the root
  const uint8_t *data;
  size_t bytes;
};

struct WrittenPlan {
  std::string bytes;
  std::vector<WeightMember> weights; // borrowed from the plan's constants
};

/// Member that holds the code of contents.code[i]: "data/neso/model/code/x86-64-v4".
std::string codeMember(const CompiledCode &code);

Result<WrittenPlan> writePlan(const PackageContents &contents);

} // namespace neso
