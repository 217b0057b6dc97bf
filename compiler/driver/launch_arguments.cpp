#include "driver/launch_arguments.h"

#include <cctype>
#include <cstdlib>

#include "base/diagnostics/pt2.h"

namespace neso {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::ValueId;
using pt2::BundledLaunch;

Error bundleMismatch(const Node &n, const BundledLaunch &row, const std::string &why) {
  return fail(diag::KernelBundleMismatch, n.loc, row.function, why);
}
Error badArgument(const Node &n, const BundledLaunch &row, const std::string &parameter, const std::string &why) {
  return fail(diag::KernelArgument, n.loc, row.function, parameter, why);
}

namespace {

std::string lowercase(std::string s) {
  for (char &c : s) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return s;
}

/// The argument of that name, also where the file keeps the kernel's arguments in a dictionary.
const Argument *givenTo(const Node &n, const std::string &parameter) {
  if (const Argument *a = n.arg(parameter)) return a;
  if (const Argument *kwargs = n.arg("kwargs"))
    if (const auto *dict = std::get_if<std::shared_ptr<graph::ArgumentDict>>(kwargs))
      for (const auto &[key, value] : (*dict)->entries)
        if (key == parameter) return &value;
  return nullptr;
}

Result<BoundParameter> bindLiteral(const Node &n, const BundledLaunch &row, const std::string &parameter,
                                   const std::string &type, const std::string &text) {
  BoundParameter b;
  b.type = type;
  std::string low = lowercase(text);
  if (type == "constexpr" || low == "none") return b.text = low == "none" ? "None" : text, b;
  if (isPointerType(type))
    return badArgument(n, row, parameter, "is a pointer, but the bundle gives it the value " + text);
  if (isFloatType(type)) {
    char *end = nullptr;
    b.kind = BoundParameter::Real;
    b.real = std::strtod(text.c_str(), &end);
    if (text.starts_with("float('")) b.real = std::strtod(text.c_str() + 7, &end), end = const_cast<char *>("");
    if (*end) return badArgument(n, row, parameter, "has the value '" + text + "', which is no number");
    return b;
  }
  b.kind = BoundParameter::Integer;
  if (low == "true" || low == "false") return b.integer = low == "true" ? 1 : 0, b;
  Result<Expr> value = parseExpr(text);
  if (!value) return badArgument(n, row, parameter, "has the value '" + text + "', which is no integer expression");
  b.integer = *value;
  return b;
}

Result<BoundParameter> bindGiven(const Graph &g, const Node &n, const BundledLaunch &row, const std::string &parameter,
                                 const std::string &type, const Argument &a) {
  BoundParameter b;
  b.type = type;
  if (const ValueId *id = std::get_if<ValueId>(&a)) {
    const graph::Value &v = g.value(*id);
    if (v.kind == graph::Value::Kind::Tensor) {
      if (!isPointerType(type))
        return bundleMismatch(
            n, row, "parameter '" + parameter + "' has the type " + type + ", but the model gives it a tensor");
      b.kind = BoundParameter::Tensor, b.tensor = *id;
      return b;
    }
    if (isPointerType(type))
      return bundleMismatch(n, row,
                            "parameter '" + parameter + "' has the type " + type + ", but the model gives it a number");
    if (v.kind == graph::Value::Kind::SymFloat) {
      if (v.number) return b.kind = BoundParameter::Real, b.real = *v.number, b;
      if (!isFloatType(type))
        return badArgument(n, row, parameter, "is a float that is known only at run time, but has the type " + type);
      return b.kind = BoundParameter::Number, b.tensor = *id, b;
    }
    if (!v.expr.valid()) return badArgument(n, row, parameter, "depends on data");
    if (type == "constexpr") {
      if (!v.expr.isConst())
        return badArgument(n, row, parameter, "is a constexpr, but its value " + v.expr.str() + " varies");
      return b.text = v.expr.str(), b;
    }
    b.kind = BoundParameter::Integer, b.integer = v.expr;
    return b;
  }
  if (const int64_t *i = std::get_if<int64_t>(&a)) return bindLiteral(n, row, parameter, type, std::to_string(*i));
  if (const double *d = std::get_if<double>(&a)) return bindLiteral(n, row, parameter, type, fmt::format("{}", *d));
  if (const bool *v = std::get_if<bool>(&a)) return bindLiteral(n, row, parameter, type, *v ? "True" : "False");
  if (const std::string *s = std::get_if<std::string>(&a))
    return bindLiteral(n, row, parameter, "constexpr", "'" + *s + "'");
  if (std::holds_alternative<graph::None>(a)) return bindLiteral(n, row, parameter, type, "none");
  return badArgument(n, row, parameter, "has a kind of value that no kernel takes");
}

/// The items of "(a, (b, c), d[1, 2])", or nothing where the text is no tuple.
std::optional<std::vector<std::string>> itemsOf(std::string_view text) {
  if (!text.starts_with("(") || !text.ends_with(")")) return std::nullopt;
  std::vector<std::string> out(1);
  int depth = 0;
  for (char c : text.substr(1, text.size() - 2)) {
    depth += c == '(' || c == '[' ? 1 : c == ')' || c == ']' ? -1 : 0;
    if (c == ',' && depth == 0)
      out.emplace_back();
    else if (c != ' ' || !out.back().empty())
      out.back() += c;
  }
  if (out.back().empty()) out.pop_back();
  return out;
}

/// A tuple of what the model gives ("input:NAME") and of numbers, each of a type of its own.
Result<BoundParameter> bindTuple(const Graph &g, const Node &n, const BundledLaunch &row, const std::string &parameter,
                                 const std::string &type, const std::vector<std::string> &types, const std::vector<std::string> &texts) {
  if (types.size() != texts.size())
    return bundleMismatch(n, row, fmt::format("parameter '{}' is a tuple of {}, but the bundle gives {} values", parameter, types.size(), texts.size()));
  BoundParameter b;
  b.kind = BoundParameter::Tuple, b.type = type;
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] == "constexpr" || types[i].starts_with("tensordesc") || types[i].starts_with("("))
      return badArgument(n, row, parameter, "is a tuple with an item of type " + types[i] + "; only pointers and numbers are supported there");
    const Argument *a = texts[i].starts_with("input:") ? givenTo(n, texts[i].substr(6)) : nullptr;
    if (!a && texts[i].starts_with("input:")) return bundleMismatch(n, row, "the node has no argument '" + texts[i].substr(6) + "'");
    Result<BoundParameter> item = a ? bindGiven(g, n, row, parameter, types[i], *a) : bindLiteral(n, row, parameter, types[i], texts[i]);
    if (!item) return item;
    if (item->kind == BoundParameter::Constexpr) return badArgument(n, row, parameter, "is a tuple that holds " + texts[i]);
    b.items.push_back(std::move(*item));
  }
  return b;
}

} // namespace

Result<std::vector<BoundParameter>> bindParameters(const Graph &g, const Node &n, const BundledLaunch &row,
                                                   bool isOperator) {
  std::vector<BoundParameter> out;
  for (size_t i = 0; i < row.parameters.size(); ++i) {
    const std::string &parameter = row.parameters[i], &type = row.signature[i];
    const std::string *text = row.value(parameter);
    BoundParameter unset;
    unset.type = type;
    if (!text) {
      // A config, a heuristic or a default gives it.
      if (type != "constexpr")
        return bundleMismatch(n, row, "the bundle gives no value to parameter '" + parameter + "'");
      out.push_back(unset);
      continue;
    }
    if (const auto types = itemsOf(type), texts = itemsOf(*text); types && texts) {
      Result<BoundParameter> b = bindTuple(g, n, row, parameter, type, *types, *texts);
      if (!b) return b.takeError();
      out.push_back(std::move(*b));
      continue;
    }
    if (*text == "input" || text->starts_with("input:")) {
      std::string from = text->size() > 6 ? text->substr(6) : parameter;
      const Argument *a = givenTo(n, from);
      if (a) {
        Result<BoundParameter> b = bindGiven(g, n, row, parameter, type, *a);
        if (!b) return b.takeError();
        out.push_back(std::move(*b));
        continue;
      }
      if (!isOperator) return bundleMismatch(n, row, "the node has no argument '" + from + "'");
      if (!isPointerType(type))
        return badArgument(n, row, parameter, "is no argument of the operator; give its value in the bundle");
      unset.kind = BoundParameter::Tensor; // which tensor is found once the kernel's effects are known
      out.push_back(unset);
      continue;
    }
    if (isOperator && text->starts_with("output")) {
      unset.kind = BoundParameter::Tensor;
      out.push_back(unset);
      continue;
    }
    Result<BoundParameter> b = bindLiteral(n, row, parameter, type, *text);
    if (!b) return b.takeError();
    out.push_back(std::move(*b));
  }
  return out;
}

} // namespace neso
