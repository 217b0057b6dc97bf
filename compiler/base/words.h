// Tables of words that stand for values, as options take them: rows of {word, value}.
#pragma once
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

namespace neso {

/// The words as a sentence names them: "a, b or c".
template <typename Rows> std::string choice(const Rows &rows) {
  std::string out;
  for (const auto &row : rows) out += (&row == std::begin(rows) ? "" : &row + 1 == std::end(rows) ? " or " : ", ") + std::string(row.first);
  return out;
}

/// nullopt for a word that no row has.
template <typename Rows> auto named(const Rows &rows, std::string_view word) -> std::optional<decltype(rows[0].second)> {
  for (const auto &row : rows)
    if (row.first == word) return row.second;
  return std::nullopt;
}

} // namespace neso
