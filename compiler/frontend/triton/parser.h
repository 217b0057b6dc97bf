// Python source -> syntax tree, by recursive descent over the tokens; the whole of Python 3.12's statements and
// expressions.
//
// The first mistake ends the parse with a diagnostic at its place; nothing is guessed. Nesting is bounded, so hostile
// input cannot exhaust the stack.
#pragma once
#include "frontend/triton/ast.h"

namespace neso::triton {

Result<std::shared_ptr<SyntaxTree>> parse(std::shared_ptr<Source> source);

} // namespace neso::triton
