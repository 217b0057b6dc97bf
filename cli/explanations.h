// What each diagnostic of the compiler and each status of the runtime means, for people.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostics.h"

namespace neso::cli {

struct Explanation {
  std::string_view code; // "E0250"
  std::string_view name; // of the kind, or of the runtime's status
  Severity severity;
  std::string_view message; // with {} where values stand
  std::string_view area;    // what is said of all codes that begin like this one (docs/errors)
  std::string text;         // what is said of this one; may be empty
};

/// All of them, by code.
const std::vector<Explanation> &explanations();

} // namespace neso::cli
