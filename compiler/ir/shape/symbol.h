// What an unknown integer is: a size of the model, a loop index, a block number, ….
//
// The kind of a symbol is a type, never a matter of its name: the size that a model calls `x0` and the outer dimension
// x0 of a kernel are two symbols, and a pass that wants to know which it has asks kind(). Names are for people.
//
// A Symbol is a pointer to an entry that is made once and lives until the process ends, so == is O(1). Within a kind,
// numbered symbols are told apart by their number (symbols.def has the kinds), sizes and locals by their name:
//   - a Size is an integer of the model, under the name that the model has for it (s77). Where it comes from (an
//     input's dimension, or data) is a fact of the program that uses it, not of the symbol;
//   - a Local is one more index that some pass needs, under a name that the pass chose ("nblock").
//
// Text. str() is what expressions print, and can be read back without loss (fromText): a size is printed as it is
// called where that is a word that ends in a digit and is no numbered symbol's text, and in quotes otherwise; names of
// locals never end in a digit. So s77 and u0 are sizes, x0 is a kernel's dimension, 'x0' and 'batch' are sizes, and m
// is a local.
//
// Thread-safety: making one may take a lock; reading needs none.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace neso {

class Symbol {
public:
  enum class Kind : uint8_t {
    Size,
    Local,
#define NESO_SYMBOL(KIND, PREFIX, WHAT) KIND,
#include "ir/shape/symbols.def"
  };

  Symbol() = default; // no symbol; only valid() and == may be asked
  static Symbol size(std::string_view name);
  static Symbol local(std::string_view name);
  /// Of a numbered kind.
  static Symbol of(Kind kind, size_t number);
  static Symbol index(size_t dim) { return of(Kind::Index, dim); }
  static Symbol outer(size_t dim) { return of(Kind::Outer, dim); }
  static Symbol inner(size_t dim) { return of(Kind::Inner, dim); }
  static Symbol indirect(size_t number) { return of(Kind::Indirect, number); }
  static Symbol program(size_t blocking) { return of(Kind::Program, blocking); }
  static Symbol lane(size_t blocking) { return of(Kind::Lane, blocking); }
  /// Reads what str() writes; nullopt for text that it never writes.
  static std::optional<Symbol> fromText(std::string_view text);

  bool valid() const { return entry_ != nullptr; }
  Kind kind() const { return entry_->kind; }
  bool isSize() const { return kind() == Kind::Size; }
  /// Of a numbered kind.
  size_t number() const { return entry_->number; }
  /// As the model or the pass calls it, for messages.
  const std::string &name() const { return entry_->name; }
  const std::string &str() const { return entry_->text; }

  friend bool operator==(Symbol a, Symbol b) { return a.entry_ == b.entry_; }
  /// By text: the same in every run.
  friend bool operator<(Symbol a, Symbol b);
  size_t hash() const { return entry_ ? entry_->hash : 0; }

private:
  friend class SymbolTable;
  struct Entry {
    Kind kind;
    size_t number;
    std::string name, text;
    size_t hash; // of kind and text, not of an address
  };
  explicit Symbol(const Entry *entry) : entry_(entry) {}
  const Entry *entry_ = nullptr;
};

} // namespace neso

template <> struct std::hash<neso::Symbol> {
  size_t operator()(neso::Symbol s) const noexcept { return s.hash(); }
};

namespace neso {

/// What symbols stand for, or their values.
template <typename T> using SymbolMap = std::unordered_map<Symbol, T>;

} // namespace neso
