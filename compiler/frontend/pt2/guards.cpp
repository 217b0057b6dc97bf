#include "frontend/pt2/guards.h"

#include <algorithm>
#include <cctype>

#include <simdjson.h>

namespace neso::pt2 {
namespace {

using Json = simdjson::dom::element;
constexpr int kMaxDepth = 64;

/// Walks a tree spec and names each leaf as Python would reach it.
struct Walker {
  std::map<std::string, int, std::less<>> &leaves;
  const std::vector<int> &userInputs;
  int next = 0;

  void leaf(const std::string &path) {
    if (next < static_cast<int>(userInputs.size())) leaves.emplace(path, userInputs[static_cast<size_t>(next)]);
    ++next;
  }
  /// `keysAreNames`: the children are the arguments themselves, named names[i].
  void walk(Json spec, const std::string &path, int depth, const std::vector<std::string> *names) {
    std::string_view type;
    if (depth > kMaxDepth) return;
    if (spec["type"].get(type) != simdjson::SUCCESS) return leaf(path);
    std::vector<std::string> keys;
    std::string_view context;
    simdjson::dom::parser parser;
    Json parsed;
    bool isDict = type.find("ict") != std::string_view::npos;
    if (isDict && spec["context"].get(context) == simdjson::SUCCESS &&
        parser.parse(context.data(), context.size(), true).get(parsed) == simdjson::SUCCESS) {
      simdjson::dom::array list;
      if (parsed.get(list) == simdjson::SUCCESS)
        for (Json k : list) {
          std::string_view key;
          keys.push_back(k.get(key) == simdjson::SUCCESS ? fmt::format("'{}'", key) : simdjson::minify(k));
        }
    }
    simdjson::dom::array children;
    if (spec["children_spec"].get(children) != simdjson::SUCCESS) return;
    size_t i = 0;
    for (Json child : children) {
      std::string part = names             ? (i < names->size() ? fmt::format("'{}'", (*names)[i]) : "?")
                         : i < keys.size() ? keys[i]
                                           : std::to_string(i);
      walk(child, path + "[" + part + "]", depth + 1, nullptr);
      ++i;
    }
  }
};

} // namespace

GuardReader::GuardReader(graph::Model &model) : model_(model) {
  std::vector<int> user;
  for (size_t i = 0; i < model.inputs.size(); ++i)
    if (model.inputs[i].kind == graph::Input::Kind::User || model.inputs[i].kind == graph::Input::Kind::Constant)
      user.push_back(static_cast<int>(i));
  simdjson::dom::parser parser;
  Json root, args, kwargs;
  if (parser.parse(model.inSpec).get(root) != simdjson::SUCCESS) return;
  Json top;
  if (root.at(1).get(top) != simdjson::SUCCESS) return;
  Walker w{leaves_, user};
  if (top["children_spec"].at(0).get(args) == simdjson::SUCCESS) w.walk(args, "L", 0, &model.argumentNames);
  if (top["children_spec"].at(1).get(kwargs) == simdjson::SUCCESS) w.walk(kwargs, "L", 0, nullptr);
}

/// Of def forward(self, x, *a, **k) the file names its leaves L['x'], L['a_0'] and L['z']; guards say L['a'][0] and L['k']['z'].
std::optional<int> GuardReader::leafOf(std::string_view path) const {
  const auto at = [&](std::string_view p) {
    const auto it = leaves_.find(p);
    return it == leaves_.end() ? std::nullopt : std::optional(it->second);
  };
  if (const std::optional<int> leaf = at(path)) return leaf;
  const size_t close = path.find("']"), next = close + 2;
  if (!path.starts_with("L['") || close == path.npos || next >= path.size()) return std::nullopt;
  const std::string_view name = path.substr(3, close - 3);
  if (std::find(model_.argumentNames.begin(), model_.argumentNames.end(), name) != model_.argumentNames.end()) return std::nullopt;
  if (path[next + 1] == '\'') return at(fmt::format("L{}", path.substr(next)));
  const size_t end = path.find(']', next);
  return at(fmt::format("L['{}_{}']{}", name, path.substr(next + 1, end - next - 1), path.substr(end + 1)));
}

/// Whether what stands left of " >= 0" is made of sizes and strides, which are not negative, by what leaves them so: +, *, /, ** and the functions here.
static bool isNeverNegative(std::string_view text, const SymbolMap<Expr> &sizes) {
  constexpr std::string_view kKeep[] = {"torch", "math", "sym_float", "sym_max", "sym_min", "max", "min", "trunc", "floor", "ceil", "sqrt", "sym_sqrt"};
  text.remove_suffix(text.size() - text.rfind(" >= 0"));
  for (size_t at = 0; at < text.size();) {
    const auto isWord = [&](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
    size_t end = at;
    while (end < text.size() && isWord(text[end])) ++end;
    const std::string_view word = text.substr(at, end - at);
    const bool isName = !word.empty() && !std::isdigit(static_cast<unsigned char>(word.front()));
    if (isName && std::find(std::begin(kKeep), std::end(kKeep), word) == std::end(kKeep) && !sizes.count(Symbol::size(std::string(word)))) return false;
    if (word.empty() && std::string_view("+*/(). ,").find(text[at]) == std::string_view::npos) return false;
    at = word.empty() ? at + 1 : end;
  }
  return true;
}

std::optional<Expr> GuardReader::read(std::string_view text, std::string &why) const {
  // Each "L[…].size()[i]" becomes a symbol of its own, which is replaced after parsing.
  std::string plain;
  SymbolMap<Expr> values;
  bool mayBeNegative = !(text.ends_with(" >= 0.0") || text.ends_with(" >= 0"));
  while (true) {
    size_t at = text.find("L[");
    while (at != std::string_view::npos && at > 0 &&
           (std::isalnum(static_cast<unsigned char>(text[at - 1])) || text[at - 1] == '_'))
      at = text.find("L[", at + 1);
    plain += text.substr(0, at);
    if (at == std::string_view::npos) break;
    text.remove_prefix(at);
    // The access path: "L" and its brackets, quotes respected.
    size_t end = 1;
    while (end < text.size() && text[end] == '[') {
      size_t p = end + 1;
      if (p < text.size() && (text[p] == '\'' || text[p] == '"')) p = text.find(text[p], p + 1);
      size_t close = p == std::string_view::npos ? p : text.find(']', p);
      if (close == std::string_view::npos) {
        why = "its brackets do not match";
        return std::nullopt;
      }
      end = close + 1;
    }
    const std::optional<int> leaf = leafOf(text.substr(0, end));
    if (!leaf) {
      why = fmt::format("'{}' is no input", text.substr(0, end));
      return std::nullopt;
    }
    text.remove_prefix(end);
    const graph::Input &input = model_.inputs[static_cast<size_t>(*leaf)];
    Expr value;
    auto indexed = [&](std::string_view call, const std::vector<Expr> &list) {
      if (text.substr(0, call.size()) != call) return false;
      size_t p = call.size(), index = 0, digits = 0;
      for (; p < text.size() && std::isdigit(static_cast<unsigned char>(text[p])) && digits < 6; ++p, ++digits)
        index = index * 10 + static_cast<size_t>(text[p] - '0');
      if (digits == 0 || p >= text.size() || text[p] != ']' || index >= list.size()) return false;
      value = list[index];
      text.remove_prefix(p + 1);
      return true;
    };
    if (input.kind == graph::Input::Kind::Constant) {
      if (const int64_t *c = std::get_if<int64_t>(&input.constant))
        value = *c;
      else if (const bool *b = std::get_if<bool>(&input.constant))
        value = *b ? 1 : 0;
    } else if (input.value.valid()) {
      const graph::Value &v = model_.graph.value(input.value);
      constexpr std::string_view offset = ".storage_offset()", rank = ".dim()";
      if (v.kind == graph::Value::Kind::SymInt)
        value = v.expr, mayBeNegative = true;
      else if (indexed(".size()[", v.type.sizes) || indexed(".shape[", v.type.sizes) ||
               indexed(".stride()[", v.type.strides)) {
      } else if (text.substr(0, offset.size()) == offset) {
        value = v.type.offset;
        text.remove_prefix(offset.size());
      } else if (text.substr(0, rank.size()) == rank) {
        value = v.type.rank();
        text.remove_prefix(rank.size());
      }
    }
    if (!value.valid()) {
      why = "it asks for more than sizes and strides";
      return std::nullopt;
    }
    std::string name = fmt::format("input__{}", values.size());
    plain += " " + name + " ";
    values.emplace(Symbol::size(name), value);
  }
  RoundedSizes rounded;
  Result<Expr> e = parseExpr(plain, rounded);
  for (RoundedSize &r : rounded.all()) {
    if (!e) break;
    for (Symbol s : symbolsOf(r.of))
      if (!values.count(s)) return why = fmt::format("'{}' is no input", s.name()), std::nullopt;
    mapWhole(r.of, [&](Expr whole) { return substitute(whole, values); });
    values[r.symbol] = model_.rounded.symbolOf(r.rounding, std::move(r.of));
  }
  if (!e && !mayBeNegative && isNeverNegative(plain, values)) return Expr(1);
  if (!e) {
    why = "it is no expression over sizes";
    return std::nullopt;
  }
  for (Symbol s : symbolsOf(*e))
    if (!values.count(s)) {
      why = fmt::format("'{}' is no input", s.name());
      return std::nullopt;
    }
  return substitute(*e, values);
}

} // namespace neso::pt2
