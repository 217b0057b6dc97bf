#include "ir/shape/assertion.h"

#include <algorithm>

#include <fmt/format.h>

namespace neso {

void addAssertion(std::vector<Assertion> &list, Assertion assertion) {
  if (assertion.condition.isConst(1)) return;
  const bool known = std::any_of(list.begin(), list.end(), [&](const Assertion &a) { return a.condition == assertion.condition; });
  if (!known) list.push_back(std::move(assertion));
}

std::string valuesOf(Expr condition) {
  std::string text;
  const char *joint = " with ";
  for (Symbol s : symbolsOf(condition)) {
    text += fmt::format("{}{} = {{{}}}", joint, s.str(), s.str());
    joint = ", ";
  }
  return text;
}

} // namespace neso
