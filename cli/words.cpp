#include "words.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

namespace neso::cli {
namespace {
/// How many letters must be added, taken away or changed to get from one word to the other.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row[b.size()];
}
} // namespace

std::string suggestion(const std::string &given, const std::vector<std::string> &words) {
  const std::string *best = nullptr;
  for (const std::string &word : words)
    if (distance(given, word) <= given.size() / 3 && (!best || distance(given, word) < distance(given, *best))) best = &word;
  return best ? fmt::format("; did you mean '{}'?", *best) : "";
}

} // namespace neso::cli
