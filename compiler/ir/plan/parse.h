// Reads the text that print() writes: the other half of `--emit schedule` and `--emit plan`.
//
// What the text does not say is not there afterwards: see ir/loops/parse.h; which operation of MLIR a kernel's function is, is said by its name.
#pragma once
#include <string>
#include <string_view>

#include "ir/plan/plan.h"

namespace neso::plan {

/// `file` names the text in messages. PlanSyntax (E0363) with its line; what is read is not verified.
Result<Plan> parse(std::string_view text, const std::string &file);

} // namespace neso::plan
