#include "frontend/pt2/size_names.h"

#include <algorithm>
#include <cctype>

namespace neso::pt2 {
namespace {
bool isOfWord(unsigned char c) { return std::isalnum(c) || c == '_'; }
bool isWord(std::string_view s) {
  return !s.empty() && s.size() < 64 && !std::isdigit(static_cast<unsigned char>(s[0])) && std::all_of(s.begin(), s.end(), isOfWord);
}
} // namespace

std::optional<Expr> SizeNames::in(const Expr &e) const {
  if (empty()) return e;
  for (Symbol s : symbolsOf(e))
    if (names.contains(s) && !renamed.contains(s)) return std::nullopt;
  return substitute(e, renamed);
}

Symbol SizeNames::in(Symbol s) const {
  const auto it = renamed.find(s);
  return it == renamed.end() ? s : it->second.symbol();
}

std::string SizeNames::in(std::string_view text) const {
  std::string out;
  while (!text.empty()) {
    const auto count = static_cast<size_t>(std::find_if_not(text.begin(), text.end(), isOfWord) - text.begin());
    const std::string_view word = text.substr(0, std::max<size_t>(count, 1));
    const auto it = isWord(word) ? renamed.find(Symbol::size(word)) : renamed.end();
    out += it == renamed.end() ? std::string(word) : it->second.symbol().name();
    text.remove_prefix(word.size());
  }
  return out;
}

SizeNames readSizeNames(std::string_view text) {
  SizeNames out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view symbol = line.substr(0, equals), name = line.substr(equals + 1);
    if (!isWord(symbol) || !isWord(name) || symbol == name || out.renamed.contains(Symbol::size(symbol))) continue;
    if (out.names.insert(Symbol::size(name)).second) out.renamed.emplace(Symbol::size(symbol), Expr(Symbol::size(name)));
  }
  return out;
}

} // namespace neso::pt2
