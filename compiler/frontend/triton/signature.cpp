#include "frontend/triton/signature.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace neso::triton {

std::vector<std::string> splitItems(std::string_view text) {
  std::vector<std::string> out;
  int nest = 0;
  std::string item;
  for (char ch : text) {
    if (ch == '<' || ch == '[' || ch == '(') ++nest;
    if (ch == '>' || ch == ']' || ch == ')') --nest;
    if (ch == ',' && nest == 0) {
      out.push_back(item);
      item.clear();
    } else if (ch != ' ' && ch != '\t' && ch != '\n') {
      item += ch;
    }
  }
  if (!item.empty() || !out.empty()) out.push_back(item);
  return out;
}

/// Also of nothing.
static bool isName(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char ch) { return std::isalnum(ch) || ch == '_'; }) &&
         (text.empty() || !std::isdigit(static_cast<unsigned char>(text[0])));
}

std::optional<SigType> parseSigType(std::string_view text) {
  SigType t;
  t.text = std::string(text);
  if (text == "constexpr" || text == "tl.constexpr") {
    t.kind = SigType::Constexpr;
    return t;
  }
  if (text == "nvTmaDesc") {
    t.scalar = scalar(DT::I8).pointer();
    return t;
  }
  if (size_t open = text.find('('); open != text.npos && text.ends_with(")") && isName(text.substr(0, open))) {
    t.kind = SigType::Tuple;
    t.named = std::string(text.substr(0, open));
    for (const std::string &item : splitItems(text.substr(open + 1, text.size() - open - 2))) {
      if (item.empty()) continue;
      std::optional<SigType> inner;
      if (item.size() > 1 && item.front() == '=') {
        inner.emplace().kind = SigType::Constexpr;
        inner->text = item.substr(1);
      } else {
        inner = parseSigType(item);
        // What is known of a part stands behind its equals sign.
        if (!inner || inner->kind == SigType::Constexpr) return std::nullopt;
      }
      t.items.push_back(*inner);
    }
    return t;
  }
  if (text.starts_with("tensordesc<") && text.ends_with(">")) {
    text = text.substr(11, text.size() - 12);
    size_t open = text.find('['), close = text.find(']');
    if (open == std::string_view::npos || close == std::string_view::npos) return std::nullopt;
    std::optional<DT> e = parseSignatureType(text.substr(0, open));
    if (!e) return std::nullopt;
    t.kind = SigType::Desc;
    t.scalar = scalar(*e);
    for (const std::string &d : splitItems(text.substr(open + 1, close - open - 1))) {
      int64_t n = std::atoll(d.c_str());
      if (n <= 0) return std::nullopt;
      t.block.push_back(n);
    }
    if (t.block.empty() || t.block.size() > 5) return std::nullopt;
    return t;
  }
  if (size_t colon = text.rfind(':'); colon != std::string_view::npos) {
    // Anything else behind a colon is a type, and what stands before it a parameter's name ("B:i32"), whatever type that
    // name may spell.
    t.divisible = text.substr(colon + 1) == "16";
    t.one = text.substr(colon + 1) == "1";
    if (!t.divisible && !t.one) return std::nullopt;
    text = text.substr(0, colon);
  }
  int stars = 0;
  while (text.starts_with("*")) {
    ++stars;
    text.remove_prefix(1);
  }
  bool constant = stars > 0 && text.starts_with("k") && parseSignatureType(text.substr(1));
  if (constant) text.remove_prefix(1);
  std::optional<DT> e = parseSignatureType(text);
  if (!e || stars > 3) return std::nullopt;
  t.scalar = {*e, static_cast<uint8_t>(stars), constant};
  return t;
}

} // namespace neso::triton
