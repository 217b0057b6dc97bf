// The strict JSON access that both readers of this folder share: every look-up either succeeds or records one named
// diagnostic, after which ok() is false and further results are empty. Reading goes on only while ok().
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include <simdjson.h>

#include "base/diagnostics.h"
#include "base/diagnostics/pt2.h"
#include "base/dtype.h"
#include "frontend/pt2/size_names.h"
#include "ir/graph/graph.h"

namespace neso::pt2 {

using Json = simdjson::dom::element;

class JsonReader {
public:
  JsonReader(std::string path, std::string member) : path_(std::move(path)), member_(std::move(member)) {}

  bool ok() const { return !error_; }
  Error takeError() { return std::move(*error_); }

  /// Records the first fault; later ones are consequences of it.
  template <typename... Args> void report(Diag kind, const Args &...args) {
    if (!error_) error_ = fail(kind, loc(), args...);
  }
  void adopt(Error e) {
    if (!error_) error_ = std::move(e);
  }
  void bad(std::string_view field, std::string_view why) { report(diag::BadField, field, why); }
  SourceLoc loc() const;

  // Fields of an object. A missing field is an error, except through optional().
  Json get(Json object, const char *key);
  std::optional<Json> optional(Json object, const char *key); // also nullopt for null
  std::string_view string(Json object, const char *key);
  int64_t integer(Json object, const char *key);
  simdjson::dom::array array(Json object, const char *key);
  simdjson::dom::object object(Json object, const char *key);

  // Elements. `field` names them in diagnostics.
  std::string_view asString(Json e, std::string_view field);
  int64_t asInt(Json e, std::string_view field);
  double asFloat(Json e, std::string_view field); // also the texts "Infinity", "-Infinity", "NaN"
  bool asBool(Json e, std::string_view field);
  simdjson::dom::array asArray(Json e, std::string_view field);
  simdjson::dom::object asObject(Json e, std::string_view field);
  /// A union: an object with exactly one key.
  std::pair<std::string_view, Json> asUnion(Json e, std::string_view field);

  // Pieces of the schema that weights and graphs share.
  DType dtype(int64_t code, std::string_view what);
  Expr symInt(Json e, std::string_view field); // SymInt; where it is a symbol with a hint, that is noted
  const SymbolMap<int64_t> &hints() const { return hints_; }
  std::optional<Expr>
  tryExpression(std::string_view text); // parsed once a text; nullopt if it is no integer expression
  graph::TensorType tensorType(Json meta, std::string_view name, bool mayBeSparse = false);

  SizeNames sizeNames;               // of the user's; every expression that is read has them
  RoundedSizes rounded;              // what expressions call a number that is rounded from doubles, of sizes as the file names them
  std::unordered_set<Symbol> floats; // symbols that stand for floats
  std::string node;     // the graph node being read, for diagnostics
  SourceLoc sourceLine; // its line of the model

private:
  std::string path_, member_;
  std::optional<Error> error_;
  SymbolMap<int64_t> hints_; // with which sizes the model was exported
  std::unordered_map<std::string, Expr> expressions_;
};

} // namespace neso::pt2
