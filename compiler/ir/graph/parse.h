// Reads the text that print() writes: the other half of `--emit graph`.
//
// What the text does not say is not there afterwards: bytes of storages that lie in the model's file, the modules of
// nodes, and what a launch of a user's kernel needs (refused: GraphSyntax).
#pragma once
#include <string>
#include <string_view>

#include "ir/graph/graph.h"

namespace neso::graph {

/// `file` names the text in messages. GraphSyntax (E0204) with its line; what is read is not verified.
Result<Model> parse(std::string_view text, const std::string &file);

} // namespace neso::graph
