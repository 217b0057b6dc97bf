// The executable specification of a graph. Each invariant has a number, which the diagnostic and the test name.
#pragma once
#include <optional>
#include <string>

#include "ir/graph/graph.h"

namespace neso::graph {

enum class Form : uint8_t {
  AsExported, // operators may write to their arguments
  Functional, // after passes/functionalize
};

/// Checks every invariant; GraphInvalid names the first that does not hold. Time: linear in the graph.
Status verify(const Graph &graph, Form form);
Status verify(const Model &model, Form form);

/// A symbol that sizes, strides or launches of a model name though nothing says what it is.
struct UnknownSymbol {
  Symbol symbol;
  std::string place; // the value or node that names it
};
/// The first of them. What a file may lack is asked by its reader; behind it there is none (G10).
std::optional<UnknownSymbol> unknownSymbol(const Model &model);

} // namespace neso::graph
