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
  const std::vector<Symbol> symbols = symbolsOf(condition);
  // A truth that is asserted was 0: that says nothing.
  if (symbols.size() == 1 && condition == ne(Expr(symbols[0]), 0)) return text;
  for (Symbol s : symbols) {
    text += fmt::format("{}{} = {{{}}}", joint, s.str(), s.str());
    joint = ", ";
  }
  return text;
}

} // namespace neso
