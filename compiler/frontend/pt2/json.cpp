#include "frontend/pt2/json.h"

#include "base/diagnostics/pt2.h"

#include <cmath>
#include <limits>

namespace neso::pt2 {

/// An empty list and an empty object, so that a loop over the result of a failed look-up does nothing. (simdjson's
/// default-constructed ones may not be iterated.)
struct Empty {
  simdjson::dom::parser parser;
  simdjson::dom::array array;
  simdjson::dom::object object;
  Empty() {
    simdjson::dom::element root = parser.parse(std::string_view("[[],{}]")).value_unsafe();
    array = root.at(0).get_array().value_unsafe();
    object = root.at(1).get_object().value_unsafe();
  }
};
static const Empty &empty() {
  static const Empty e;
  return e;
}

SourceLoc JsonReader::loc() const {
  if (sourceLine.line > 0) {
    SourceLoc l = sourceLine;
    l.context = "node " + node;
    return l;
  }
  return {path_, 0, 0, node.empty() ? member_ : member_ + ", node " + node};
}

Json JsonReader::get(Json object, const char *key) {
  Json out;
  if (!ok()) return out;
  if (object[key].get(out) != simdjson::SUCCESS) bad(key, "it is missing");
  return out;
}

std::optional<Json> JsonReader::optional(Json object, const char *key) {
  Json out;
  if (!ok() || object[key].get(out) != simdjson::SUCCESS || out.is_null()) return std::nullopt;
  return out;
}

std::string_view JsonReader::asString(Json e, std::string_view field) {
  std::string_view out;
  if (ok() && e.get(out) != simdjson::SUCCESS) bad(field, "a text is required");
  return out;
}
int64_t JsonReader::asInt(Json e, std::string_view field) {
  int64_t out = 0;
  if (ok() && e.get(out) != simdjson::SUCCESS) bad(field, "an integer of 64 bits is required");
  return out;
}
double JsonReader::asFloat(Json e, std::string_view field) {
  if (!ok()) return 0;
  double out = 0;
  if (e.get(out) == simdjson::SUCCESS) return out;
  std::string_view text;
  if (e.get(text) == simdjson::SUCCESS) {
    if (text == "Infinity") return std::numeric_limits<double>::infinity();
    if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
    if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  }
  bad(field, "a number is required");
  return 0;
}
bool JsonReader::asBool(Json e, std::string_view field) {
  bool out = false;
  if (ok() && e.get(out) != simdjson::SUCCESS) bad(field, "true or false is required");
  return out;
}
simdjson::dom::array JsonReader::asArray(Json e, std::string_view field) {
  simdjson::dom::array out = empty().array;
  if (ok() && e.get(out) != simdjson::SUCCESS) bad(field, "a list is required");
  return out;
}
simdjson::dom::object JsonReader::asObject(Json e, std::string_view field) {
  simdjson::dom::object out = empty().object;
  if (ok() && e.get(out) != simdjson::SUCCESS) bad(field, "an object is required");
  return out;
}
std::pair<std::string_view, Json> JsonReader::asUnion(Json e, std::string_view field) {
  if (!ok()) return {};
  simdjson::dom::object o;
  if (e.get(o) != simdjson::SUCCESS || o.size() != 1) {
    bad(field, "an object with exactly one key is required");
    return {};
  }
  return {o.begin().key(), o.begin().value()};
}

std::string_view JsonReader::string(Json object, const char *key) {
  Json e = get(object, key);
  return ok() ? asString(e, key) : std::string_view();
}
int64_t JsonReader::integer(Json object, const char *key) {
  Json e = get(object, key);
  return ok() ? asInt(e, key) : 0;
}
simdjson::dom::array JsonReader::array(Json object, const char *key) {
  Json e = get(object, key);
  return ok() ? asArray(e, key) : empty().array;
}
simdjson::dom::object JsonReader::object(Json object, const char *key) {
  Json e = get(object, key);
  return ok() ? asObject(e, key) : empty().object;
}

DType JsonReader::dtype(int64_t code, std::string_view what) {
  if (std::optional<DType> t = dtypeOfTorch(code)) return *t;
  report(diag::UnknownDType, what, code);
  return DType::F32;
}

std::optional<Expr> JsonReader::tryExpression(std::string_view text) {
  auto [it, fresh] = expressions_.try_emplace(std::string(text));
  const size_t before = rounded.all().size();
  if (fresh)
    if (Result<Expr> e = parseExpr(text, rounded)) {
      if (std::optional<Expr> named = sizeNames.in(*e)) it->second = *named;
      else bad("neso_sizes", fmt::format("it calls a size what another is called in '{}'", text));
    } else {
      rounded.all().erase(rounded.all().begin() + static_cast<ptrdiff_t>(before), rounded.all().end());
    }
  return it->second.valid() ? std::optional(it->second) : std::nullopt;
}

Expr JsonReader::symInt(Json e, std::string_view field) {
  auto [kind, value] = asUnion(e, field);
  if (!ok()) return 0;
  if (kind == "as_int") return asInt(value, field);
  if (kind != "as_expr") {
    report(diag::UnknownArgument, field, kind);
    return 0;
  }
  std::string_view text = string(value, "expr_str");
  if (!ok()) return 0;
  if (std::optional<Expr> parsed = tryExpression(text)) {
    // {"hint": {"as_int": 8}}, or null for sizes that come from data.
    simdjson::dom::object hint;
    if (int64_t size; parsed->isSymbol() && value["hint"].get(hint) == simdjson::SUCCESS &&
                      hint["as_int"].get(size) == simdjson::SUCCESS)
      hints_.try_emplace(parsed->symbol(), size);
    return *parsed;
  }
  if (!ok()) return 0;
  Result<Expr> again = parseExpr(text);
  Error error = again.takeError();
  Diagnostic d = error.diagnostics().front();
  d.loc = loc();
  adopt(Error(std::move(d)));
  return 0;
}

graph::TensorType JsonReader::tensorType(Json meta, std::string_view name, bool mayBeSparse) {
  graph::TensorType t;
  int64_t layout = integer(meta, "layout");
  t.coordinates = mayBeSparse && layout == 1;
  if (ok() && layout != 7 && !t.coordinates) report(diag::UnsupportedLayout, name, layout);
  int64_t code = integer(meta, "dtype");
  if (ok()) t.dtype = dtype(code, name);
  for (Json s : array(meta, "sizes")) t.sizes.push_back(symInt(s, "sizes"));
  for (Json s : array(meta, "strides")) t.strides.push_back(symInt(s, "strides"));
  Json offset = get(meta, "storage_offset");
  if (ok()) t.offset = symInt(offset, "storage_offset");
  if (!ok()) return t;
  if (t.sizes.size() != t.strides.size())
    bad("strides", fmt::format("'{}' has {} sizes but {} strides", name, t.sizes.size(), t.strides.size()));
  for (Expr s : t.sizes)
    if (std::optional<int64_t> c = s.asConst(); c && *c < 0)
      bad("sizes", fmt::format("'{}' has the size {}", name, *c));
  return t;
}

} // namespace neso::pt2
