// The guards of an export ("L['x'].size()[0] == L['y'].size()[0]") as expressions over the model's size symbols.
#pragma once
#include "ir/graph/graph.h"

namespace neso::pt2 {

/// Reads one guard. Inputs are found by their path in model.inSpec, so inputs, inSpec and argumentNames must be set.
/// Numbers that it rounds from doubles are added to the model's. nullopt, with the reason in `why`, if the guard speaks of what no expression can say.
class GuardReader {
public:
  explicit GuardReader(graph::Model &model);
  std::optional<Expr> read(std::string_view text, std::string &why) const;

private:
  std::optional<int> leafOf(std::string_view path) const;
  graph::Model &model_;
  std::map<std::string, int, std::less<>> leaves_; // "L['x'][0]" -> index into model.inputs
};

} // namespace neso::pt2
