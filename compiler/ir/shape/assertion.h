// What a model asserts about numbers that only a run finds out, and what to say when it does not hold.
#pragma once
#include <string>

#include "ir/shape/expr.h"

namespace neso {

/// condition (0 or 1) must be 1 once its symbols have values; else the run is refused with message, in which "{u0}"
/// stands for the value of u0.
struct Assertion {
  Expr condition;
  std::string message;
};

/// Adds it unless one with that condition is there, or it always holds.
void addAssertion(std::vector<Assertion> &list, Assertion assertion);
/// " with u0 = {u0}, s1 = {s1}": the values of the condition's symbols, for messages.
std::string valuesOf(Expr condition);

} // namespace neso
