// The table of symbols, and their text.
#include "ir/shape/symbol.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <mutex>
#include <vector>

#include "base/diagnostics.h"

namespace neso {
namespace {

constexpr std::string_view kPrefixes[] = {
    "", "", // sizes and locals have names
#define NESO_SYMBOL(KIND, PREFIX, WHAT) PREFIX,
#include "ir/shape/symbols.def"
};
constexpr size_t kKinds = std::size(kPrefixes);

bool isDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)); }
bool isWordCharacter(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
bool isWord(std::string_view s) {
  return !s.empty() && !isDigit(s[0]) && std::all_of(s.begin(), s.end(), isWordCharacter);
}

/// The kind and number that a numbered symbol of this text has.
std::optional<std::pair<Symbol::Kind, size_t>> numbered(std::string_view text) {
  for (size_t kind = 0; kind < kKinds; ++kind) {
    std::string_view prefix = kPrefixes[kind];
    if (prefix.empty() || !text.starts_with(prefix)) continue;
    std::string_view digits = text.substr(prefix.size());
    size_t number = 0;
    auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    bool plain = digits.size() == 1 || !digits.starts_with('0');
    if (!digits.empty() && plain && error == std::errc() && end == digits.data() + digits.size())
      return std::pair{static_cast<Symbol::Kind>(kind), number};
  }
  return std::nullopt;
}

bool isPlainSize(std::string_view name) { return isWord(name) && isDigit(name.back()) && !numbered(name); }

std::string sizeText(std::string_view name) {
  if (isPlainSize(name)) return std::string(name);
  // No name has both quotes: it was read between two of one of them.
  char quote = name.find('\'') == std::string_view::npos ? '\'' : '"';
  return quote + std::string(name) + quote;
}

} // namespace

class SymbolTable {
public:
  static SymbolTable &get() {
    static SymbolTable *table = new SymbolTable; // symbols live until the process ends
    return *table;
  }
  Symbol named(Symbol::Kind kind, std::string_view name) {
    std::lock_guard lock(mutex_);
    std::unordered_map<std::string, const Symbol::Entry *> &entries = named_[kind == Symbol::Kind::Local];
    const Symbol::Entry *&entry = entries[std::string(name)];
    if (!entry) entry = make(kind, 0, std::string(name));
    return Symbol(entry);
  }
  Symbol numbered(Symbol::Kind kind, size_t number) {
    size_t k = static_cast<size_t>(kind);
    if (number < kReady) return Symbol(ready_[k][number]);
    std::lock_guard lock(mutex_);
    const Symbol::Entry *&entry = more_[k][number];
    if (!entry) entry = make(kind, number, {});
    return Symbol(entry);
  }

private:
  // Small numbers are everywhere; they skip the lock.
  static constexpr size_t kReady = 32;
  SymbolTable() {
    for (size_t k = 0; k < kKinds; ++k)
      for (size_t n = 0; n < kReady && !kPrefixes[k].empty(); ++n)
        ready_[k][n] = make(static_cast<Symbol::Kind>(k), n, {});
  }
  static const Symbol::Entry *make(Symbol::Kind kind, size_t number, std::string name) {
    std::string text = kind == Symbol::Kind::Size ? sizeText(name) : name;
    if (kind != Symbol::Kind::Size && kind != Symbol::Kind::Local)
      name = text = std::string(kPrefixes[static_cast<size_t>(kind)]) + std::to_string(number);
    size_t hash = std::hash<std::string>()(text) * 31 + static_cast<size_t>(kind);
    return new Symbol::Entry{kind, number, std::move(name), std::move(text), hash};
  }
  std::mutex mutex_;
  std::unordered_map<std::string, const Symbol::Entry *> named_[2]; // sizes, locals
  std::array<std::array<const Symbol::Entry *, kReady>, kKinds> ready_ = {};
  std::array<std::unordered_map<size_t, const Symbol::Entry *>, kKinds> more_;
};

Symbol Symbol::size(std::string_view name) { return SymbolTable::get().named(Kind::Size, name); }

Symbol Symbol::local(std::string_view name) {
  NESO_CHECK(isWord(name) && !isDigit(name.back()), "a local symbol whose text another kind of symbol could have");
  return SymbolTable::get().named(Kind::Local, name);
}

Symbol Symbol::of(Kind kind, size_t number) {
  NESO_CHECK(kind != Kind::Size && kind != Kind::Local, "a symbol with a name, asked for by number");
  return SymbolTable::get().numbered(kind, number);
}

std::optional<Symbol> Symbol::fromText(std::string_view text) {
  if (text.size() > 2 && (text[0] == '\'' || text[0] == '"') && text.back() == text[0]) {
    Symbol s = size(text.substr(1, text.size() - 2));
    return s.str() == text ? std::optional(s) : std::nullopt;
  }
  if (auto known = numbered(text)) return of(known->first, known->second);
  if (isPlainSize(text)) return size(text);
  return isWord(text) ? std::optional(local(text)) : std::nullopt;
}

bool operator<(Symbol a, Symbol b) {
  if (a == b || !a.entry_ || !b.entry_) return !a.entry_ && b.entry_;
  int order = a.str().compare(b.str());
  return order ? order < 0 : a.kind() < b.kind();
}

} // namespace neso
