// Reads the text that print() writes: the other half of `--emit loops`.
//
// What the text does not say is not there afterwards: bytes of weights (Constant::data), lines of the model
// (Node::origins), the values that buffers were made for (Buffer::value), and what runs a user's kernel in the interpreter (UserKernelSpec::reference).
#pragma once
#include <string_view>

#include "ir/loops/loops.h"

namespace neso::loops {

/// `file` names the text in messages. LoopsSyntax (E0360) with its line; what is read is not verified.
Result<Program> parse(std::string_view text, const std::string &file);

} // namespace neso::loops
