// What the user calls the sizes of a model: torch.export.Dim("batch"). Torch's file calls them s77; neso.export and neso.compile write beside
// it what they were called, as extra/neso_sizes: "s77=batch", a line for each.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>

#include "ir/shape/expr.h"

namespace neso::pt2 {

struct SizeNames {
  SymbolMap<Expr> renamed;           // the file's symbol → the user's
  std::unordered_set<Symbol> names; // the user's

  bool empty() const { return renamed.empty(); }
  /// With the user's symbols in place of the file's. One that is already called what the user calls another: nullopt.
  std::optional<Expr> in(const Expr &e) const;
  Symbol in(Symbol s) const;
  /// The text of an expression, word by word.
  std::string in(std::string_view text) const;
};

/// Lines that are none, and names that are given twice, are left out: the file's own stay.
SizeNames readSizeNames(std::string_view text);

} // namespace neso::pt2
