#include "base/diagnostics/graph.h"
#include "ir/graph/ops.h"

namespace neso::graph {
namespace {

bool isKind(const Graph &g, ValueId id, std::initializer_list<Value::Kind> kinds) {
  for (Value::Kind k : kinds)
    if (g.value(id).kind == k) return true;
  return false;
}
constexpr auto kTensor = Value::Kind::Tensor, kInt = Value::Kind::SymInt, kFloat = Value::Kind::SymFloat,
               kBool = Value::Kind::SymBool;

/// Converts one list element or single value to what the schema's type asks for. False if it does not fit.
bool coerce(const ArgSchema &s, Argument &a, const Graph &g) {
  const ValueId *id = std::get_if<ValueId>(&a);
  if (id && !id->valid()) return s.optional || s.elementOptional;
  const int64_t *i = std::get_if<int64_t>(&a);
  const bool *b = std::get_if<bool>(&a);
  bool number = i || b || std::holds_alternative<double>(a) || std::holds_alternative<ComplexValue>(a);
  switch (s.type) {
  case ArgType::Tensor: return number || (id && isKind(g, *id, {kTensor, kInt, kFloat, kBool, Value::Kind::Object}));
  case ArgType::Int:
    if (b) a = int64_t(*b);
    return std::holds_alternative<int64_t>(a) || (id && isKind(g, *id, {kInt, kBool}));
  case ArgType::Float:
    if (i) a = static_cast<double>(*i);
    return std::holds_alternative<double>(a) || (id && isKind(g, *id, {kInt, kFloat}));
  case ArgType::Scalar: return number || (id && isKind(g, *id, {kInt, kFloat, kBool}));
  case ArgType::Bool:
    if (i) a = *i != 0;
    return std::holds_alternative<bool>(a) || (id && isKind(g, *id, {kBool, kInt}));
  case ArgType::Complex: return number;
  case ArgType::String: return std::holds_alternative<std::string>(a);
  case ArgType::DType: return std::holds_alternative<DType>(a);
  case ArgType::Layout: return std::holds_alternative<Layout>(a);
  case ArgType::MemoryFormat: return std::holds_alternative<MemoryFormat>(a);
  case ArgType::Device: return std::holds_alternative<Device>(a);
  case ArgType::Generator: return std::holds_alternative<CustomObject>(a);
  }
  return false;
}

bool coerceList(const ArgSchema &s, Argument &a, const Graph &g) {
  // One value for a list of fixed size, and one value where torch accepts a list.
  auto copies = [&] { return static_cast<size_t>(s.fixedSize > 0 ? s.fixedSize : 1); };
  if (s.type == ArgType::Int) {
    if (int64_t *i = std::get_if<int64_t>(&a))
      a = std::vector<IntOrSym>(copies(), *i);
    else if (ValueId *id = std::get_if<ValueId>(&a))
      a = std::vector<IntOrSym>(copies(), *id);
    else if (auto *none = std::get_if<std::vector<ValueId>>(&a); none && none->empty())
      a = std::vector<IntOrSym>();
    auto *list = std::get_if<std::vector<IntOrSym>>(&a);
    if (!list) return false;
    for (IntOrSym &e : *list)
      if (ValueId *id = std::get_if<ValueId>(&e); id && !(id->valid() && isKind(g, *id, {kInt, kBool}))) return false;
    return true;
  }
  if (s.type == ArgType::Tensor) {
    if (ValueId *id = std::get_if<ValueId>(&a)) a = std::vector<ValueId>{*id};
    if (auto *list = std::get_if<std::vector<IntOrSym>>(&a); list && list->empty()) a = std::vector<ValueId>();
    auto *list = std::get_if<std::vector<ValueId>>(&a);
    if (!list) return false;
    for (ValueId id : *list)
      if (id.valid() ? !isKind(g, id, {kTensor, Value::Kind::Object}) : !s.elementOptional) return false;
    return true;
  }
  if (s.type == ArgType::Float) {
    if (auto *ints = std::get_if<std::vector<IntOrSym>>(&a)) {
      std::vector<double> out;
      for (IntOrSym &e : *ints) {
        if (e.index() != 0) return false;
        out.push_back(static_cast<double>(std::get<int64_t>(e)));
      }
      a = out;
    }
    if (double *d = std::get_if<double>(&a)) a = std::vector<double>(copies(), *d);
    return std::holds_alternative<std::vector<double>>(a) || std::holds_alternative<std::vector<ValueId>>(a);
  }
  if (s.type == ArgType::Bool) {
    if (bool *b = std::get_if<bool>(&a)) a = std::vector<bool>(copies(), *b);
    return std::holds_alternative<std::vector<bool>>(a);
  }
  if (s.type == ArgType::Scalar)
    return std::holds_alternative<std::vector<IntOrSym>>(a) || std::holds_alternative<std::vector<double>>(a) ||
           std::holds_alternative<std::vector<bool>>(a) || std::holds_alternative<std::vector<ValueId>>(a);
  return std::holds_alternative<std::vector<std::string>>(a);
}

} // namespace

bool fits(const ArgSchema &s, const Argument &argument, const Graph &g) {
  if (std::holds_alternative<None>(argument)) return s.optional || s.defaultValue || s.type == ArgType::Generator;
  // Defaults are what the schema's text says, of whatever kind.
  if (s.defaultValue && argument.index() == s.defaultValue->index()) return true;
  Argument copy = argument;
  return s.list ? coerceList(s, copy, g) : coerce(s, copy, g);
}

Status bindArguments(Node &n, const Graph &g) {
  const OpSchema *op = findOp(n.target);
  if (!op) return Status::ok();
  auto bad = [&](std::string_view arg, std::string why) {
    return fail(diag::OperatorArgument, n.loc, n.target, arg, why);
  };
  std::vector<Argument> args(op->args.size());
  std::vector<bool> given(op->args.size());
  for (size_t i = 0; i < n.args.size(); ++i) {
    std::string_view argName = i < n.argNames.size() ? std::string_view(n.argNames[i]) : std::string_view();
    int at = argName.empty() ? static_cast<int>(i) : op->argIndex(argName);
    if (at < 0 || at >= static_cast<int>(args.size())) return bad(argName, "is not in the operator's schema");
    size_t p = static_cast<size_t>(at);
    if (given[p]) return bad(op->args[p].name, "is given twice");
    given[p] = true;
    args[p] = std::move(n.args[i]);
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < args.size(); ++i) {
    const ArgSchema &s = op->args[i];
    names.push_back(s.name);
    if (!given[i]) {
      if (s.defaultValue)
        args[i] = *s.defaultValue;
      else if (!s.optional)
        return bad(s.name, "is required but missing");
      continue;
    }
    if (std::holds_alternative<None>(args[i])) {
      if (s.optional || s.defaultValue || s.type == ArgType::Generator) continue;
      return bad(s.name, "may not be None");
    }
    if (!(s.list ? coerceList(s, args[i], g) : coerce(s, args[i], g))) return bad(s.name, "is of the wrong kind");
  }
  n.args = std::move(args);
  n.argNames = std::move(names);
  return Status::ok();
}

} // namespace neso::graph
