#include "frontend/pt2/read_graph.h"

#include <algorithm>

#include "base/diagnostics/graph.h"
#include "base/diagnostics/pt2.h"
#include "frontend/pt2/stack_trace.h"
#include "ir/graph/ops.h"

namespace neso::pt2 {
using graph::Argument;
using graph::Value;
using graph::ValueId;

/// "torch.ops.aten.add.Tensor" is "aten.add.Tensor"; other targets stay.
static std::string plainTarget(std::string_view target) {
  constexpr std::string_view prefix = "torch.ops.";
  if (target.substr(0, prefix.size()) == prefix) target.remove_prefix(prefix.size());
  return std::string(target);
}

void GraphReader::collect(Json json) {
  auto add = [&](const char *key, Value::Kind kind) {
    std::optional<Json> table = r_.optional(json, key);
    if (!table) {
      if (kind == Value::Kind::Tensor) r_.bad(key, "it is missing");
      return;
    }
    for (auto [name, meta] : r_.asObject(*table, key))
      if (!metas_.emplace(name, Meta{kind, meta}).second) r_.report(diag::DuplicateName, name);
  };
  add("tensor_values", Value::Kind::Tensor);
  add("sym_int_values", Value::Kind::SymInt);
  add("sym_bool_values", Value::Kind::SymBool);
  add("sym_float_values", Value::Kind::SymFloat);
  add("custom_obj_values", Value::Kind::Object);
}

void GraphReader::fillScalar(Value &v, Json meta) {
  auto [kind, value] = r_.asUnion(meta, v.name);
  if (!r_.ok()) return;
  if (kind == "as_expr") {
    std::string_view text = r_.string(meta["as_expr"].value_unsafe(), "expr_str");
    // A float need not be an integer expression; what cannot be read stays without one and is computed by its node, and so is what depends
    // on a number that a tensor of floats gave.
    const std::optional<Expr> e = r_.tryExpression(text);
    if (!e) return;
    const std::vector<Symbol> symbols = symbolsOf(*e);
    if (v.kind == Value::Kind::SymFloat) {
      // ToFloat(s0) is read as s0, which stays a whole number.
      if (symbols.size() == 1 && *e == Expr(symbols[0]) && text.find("ToFloat") == std::string_view::npos) r_.floats.insert(symbols[0]);
    } else if (std::none_of(symbols.begin(), symbols.end(), [&](Symbol s) { return r_.floats.contains(s); })) {
      v.expr = *e;
    }
  } else if (kind == "as_int") {
    v.expr = r_.asInt(value, v.name);
  } else if (kind == "as_bool") {
    v.expr = r_.asBool(value, v.name) ? 1 : 0;
  } else if (kind == "as_float") {
    v.number = r_.asFloat(value, v.name);
  } else {
    r_.report(diag::UnknownArgument, v.name, kind);
  }
}

ValueId GraphReader::defineOther(std::string name, Value::Kind kind) {
  ValueId id(static_cast<int64_t>(graph_.values.size()));
  if (!ids_.emplace(name, id).second) {
    r_.report(diag::DuplicateName, name);
    return id;
  }
  Value v;
  v.id = id;
  v.name = std::move(name);
  v.kind = kind;
  graph_.values.push_back(std::move(v));
  return id;
}

ValueId GraphReader::define(std::string_view name, bool mayBeSparse) {
  auto it = metas_.find(name);
  // Effect tokens are the only values without an entry in the tables.
  ValueId id = defineOther(std::string(name), it == metas_.end() ? Value::Kind::Object : it->second.kind);
  if (!r_.ok() || it == metas_.end()) return id;
  Value &v = graph_.values[id.index()];
  if (v.kind == Value::Kind::Tensor)
    v.type = r_.tensorType(it->second.json, name, mayBeSparse);
  else if (v.kind != Value::Kind::Object)
    fillScalar(v, it->second.json);
  return id;
}

ValueId GraphReader::use(std::string_view name) {
  auto it = ids_.find(std::string(name));
  if (it != ids_.end()) return it->second;
  r_.report(diag::UndefinedValue, name);
  return {};
}

std::vector<ValueId> GraphReader::tensors(Json list, std::string_view field) {
  std::vector<ValueId> out;
  for (Json e : r_.asArray(list, field)) {
    std::string_view name = r_.string(e, "name");
    if (r_.ok()) out.push_back(use(name));
  }
  return out;
}

ValueId GraphReader::optionalTensor(Json json, std::string_view field) {
  auto [kind, value] = r_.asUnion(json, field);
  if (!r_.ok() || kind == "as_none") return {};
  if (kind != "as_tensor") {
    r_.report(diag::UnknownArgument, field, kind);
    return {};
  }
  return use(r_.string(value, "name"));
}

std::optional<Argument> GraphReader::singleArgument(std::string_view kind, Json value, std::string_view field) {
  if (kind == "as_tensor") return use(r_.string(value, "name"));
  if (kind == "as_none") return graph::None{};
  if (kind == "as_int") return r_.asInt(value, field);
  if (kind == "as_float") return r_.asFloat(value, field);
  if (kind == "as_bool") return r_.asBool(value, field);
  if (kind == "as_string") return std::string(r_.asString(value, field));
  if (kind == "as_operator") return plainTarget(r_.asString(value, field));
  if (kind == "as_scalar_type") return r_.dtype(r_.asInt(value, field), field);
  if (kind == "as_memory_format") return graph::MemoryFormat{static_cast<int>(r_.asInt(value, field))};
  if (kind == "as_layout") return graph::Layout{static_cast<int>(r_.asInt(value, field))};
  if (kind == "as_device") {
    graph::Device d;
    d.type = r_.string(value, "type");
    if (std::optional<Json> index = r_.optional(value, "index")) d.index = static_cast<int>(r_.asInt(*index, "index"));
    return d;
  }
  if (kind == "as_optional_tensor") {
    ValueId id = optionalTensor(value, field);
    return id.valid() ? Argument(id) : Argument(graph::None{});
  }
  if (kind == "as_complex") {
    Json real = r_.get(value, "real"), imag = r_.get(value, "imag");
    if (!r_.ok()) return graph::None{};
    return graph::ComplexValue{r_.asFloat(real, field), r_.asFloat(imag, field)};
  }
  if (kind == "as_custom_obj") {
    std::string objectName(r_.string(value, "name"));
    return graph::CustomObject{objectName, std::string(r_.string(value, "class_fqn"))};
  }
  return std::nullopt;
}

std::optional<Argument> GraphReader::listArgument(std::string_view kind, Json value, std::string_view field) {
  // The elements of a list, each read by `read`.
  auto each = [&](Json list, auto read) {
    std::vector<decltype(read(list))> out;
    for (Json e : r_.asArray(list, field)) out.push_back(read(e));
    return out;
  };
  auto integer = [&](Json e) { return r_.asInt(e, field); };
  auto real = [&](Json e) { return r_.asFloat(e, field); };
  if (kind == "as_tensors") return tensors(value, field);
  if (kind == "as_ints") return each(value, [&](Json e) { return graph::IntOrSym(r_.asInt(e, field)); });
  if (kind == "as_floats") return each(value, real);
  if (kind == "as_bools") return each(value, [&](Json e) { return r_.asBool(e, field); });
  if (kind == "as_strings") return each(value, [&](Json e) { return std::string(r_.asString(e, field)); });
  if (kind == "as_optional_tensors") return each(value, [&](Json e) { return optionalTensor(e, field); });
  if (kind == "as_nested_tensors") return each(value, [&](Json e) { return tensors(e, field); });
  if (kind == "as_int_lists") return each(value, [&](Json e) { return each(e, integer); });
  if (kind == "as_float_lists") return each(value, [&](Json e) { return each(e, real); });
  return std::nullopt;
}

std::optional<Argument> GraphReader::symbolicArgument(std::string_view kind, Json value, std::string_view field) {
  // One of {as_name} | {as_int/float/bool}.
  auto one = [&](Json e, auto onName, auto onValue) {
    auto [k, v] = r_.asUnion(e, field);
    if (!r_.ok()) return;
    if (k == "as_name")
      onName(use(r_.asString(v, field)));
    else
      onValue(v);
  };
  auto single = [&](auto onValue) {
    Argument out = graph::None{};
    one(value, [&](ValueId id) { out = id; }, [&](Json v) { out = onValue(v); });
    return out;
  };
  if (kind == "as_sym_int") return single([&](Json v) -> Argument { return r_.asInt(v, field); });
  if (kind == "as_sym_float") return single([&](Json v) -> Argument { return r_.asFloat(v, field); });
  if (kind == "as_sym_bool") return single([&](Json v) -> Argument { return r_.asBool(v, field); });
  if (kind == "as_sym_ints") {
    std::vector<graph::IntOrSym> out;
    for (Json e : r_.asArray(value, field)) {
      if (!r_.ok()) break;
      one(e, [&](ValueId id) { out.emplace_back(id); }, [&](Json v) { out.emplace_back(r_.asInt(v, field)); });
    }
    return out;
  }
  if (kind != "as_sym_floats" && kind != "as_sym_bools") return std::nullopt;
  const bool floats = kind == "as_sym_floats";
  std::vector<ValueId> ids;
  std::vector<double> numbers;
  std::vector<bool> bools;
  auto constant = [&](Json v) {
    if (floats)
      numbers.push_back(r_.asFloat(v, field));
    else
      bools.push_back(r_.asBool(v, field));
  };
  for (Json e : r_.asArray(value, field)) {
    if (!r_.ok()) break;
    one(e, [&](ValueId id) { ids.push_back(id); }, constant);
  }
  if (ids.empty()) return floats ? Argument(numbers) : Argument(bools);
  if (!numbers.empty() || !bools.empty())
    r_.bad(field, "lists that mix constants with symbolic floats or bools are not supported");
  return ids;
}

std::optional<Argument> GraphReader::nestedArgument(std::string_view kind, Json value, std::string_view field) {
  if (kind != "as_string_to_argument" && kind != "as_graph") return std::nullopt;
  if (depth_ >= kMaxGraphDepth) {
    r_.report(diag::NestedTooDeep, kMaxGraphDepth);
    return graph::None{};
  }
  if (kind == "as_string_to_argument") {
    auto dict = std::make_shared<graph::ArgumentDict>();
    ++depth_;
    for (auto [key, v] : r_.asObject(value, field)) dict->entries.emplace_back(std::string(key), argument(v, key));
    --depth_;
    return dict;
  }
  Json sub = r_.get(value, "graph");
  if (!r_.ok()) return graph::None{};
  // What is read inside is reported under its own nodes.
  std::string node = r_.node;
  SourceLoc line = r_.sourceLine;
  GraphReader inner(r_, depth_ + 1);
  auto out = std::make_shared<graph::Graph>(inner.read(sub));
  r_.node = node;
  r_.sourceLine = line;
  return out;
}

Argument GraphReader::argument(Json json, std::string_view field) {
  auto [kind, value] = r_.asUnion(json, field);
  if (!r_.ok()) return graph::None{};
  for (auto read : {&GraphReader::singleArgument, &GraphReader::listArgument, &GraphReader::symbolicArgument,
                    &GraphReader::nestedArgument})
    if (std::optional<Argument> out = (this->*read)(kind, value, field)) return std::move(*out);
  r_.report(diag::UnknownArgument, field, kind);
  return graph::None{};
}

/// The values that one entry of a node's outputs defines.
std::vector<ValueId> GraphReader::defineOutput(Json json) {
  auto [kind, value] = r_.asUnion(json, "outputs");
  if (!r_.ok()) return {};
  if (kind == "as_none") return {};
  if (kind == "as_tensor" || kind == "as_custom_obj") return {define(r_.string(value, "name"), true)};
  if (kind == "as_sym_int" || kind == "as_sym_float" || kind == "as_sym_bool") {
    auto [k, v] = r_.asUnion(value, "outputs");
    if (!r_.ok()) return {};
    // A constant result has no name and nobody can refer to it.
    return k == "as_name" ? std::vector<ValueId>{define(r_.asString(v, "outputs"))} : std::vector<ValueId>{};
  }
  std::vector<ValueId> out;
  if (kind == "as_tensors") {
    for (Json e : r_.asArray(value, "outputs")) {
      std::string_view n = r_.string(e, "name");
      if (r_.ok()) out.push_back(define(n));
    }
    return out;
  }
  if (kind == "as_optional_tensors") {
    for (Json e : r_.asArray(value, "outputs")) {
      auto [k, v] = r_.asUnion(e, "outputs");
      if (!r_.ok()) break;
      if (k == "as_tensor")
        out.push_back(define(r_.string(v, "name")));
      else
        out.push_back({});
    }
    return out;
  }
  if (kind == "as_optional_tensor") {
    auto [k, v] = r_.asUnion(value, "outputs");
    if (r_.ok() && k == "as_tensor") out.push_back(define(r_.string(v, "name")));
    return out;
  }
  if (kind == "as_sym_ints" || kind == "as_sym_floats" || kind == "as_sym_bools") {
    for (Json e : r_.asArray(value, "outputs")) {
      auto [k, v] = r_.asUnion(e, "outputs");
      if (!r_.ok()) break;
      if (k == "as_name") out.push_back(define(r_.asString(v, "outputs")));
    }
    return out;
  }
  if (kind == "as_int" || kind == "as_bool" || kind == "as_float" || kind == "as_string" || kind == "as_ints")
    return {};
  r_.report(diag::UnknownArgument, "outputs", kind);
  return {};
}

graph::Node::Return GraphReader::declared(Json json) {
  using Return = graph::Node::Return;
  const std::string_view kind = r_.asUnion(json, "outputs").first;
  if (kind == "as_tensors") return Return::List;
  if (kind == "as_optional_tensor") return Return::Optional;
  return kind == "as_tensor" || kind == "as_none" ? Return::Plain : Return::Other;
}

void GraphReader::readNode(Json json) {
  graph::Node n;
  r_.sourceLine = {};
  std::string_view target = r_.string(json, "target");
  if (std::optional<Json> name = r_.optional(json, "name")) n.name = r_.asString(*name, "name");
  r_.node = n.name.empty() ? std::string(target) : n.name;
  n.target = plainTarget(target);
  for (auto [key, value] : r_.object(json, "metadata")) {
    if (key == "stack_trace")
      n.loc = innermostUserLine(r_.asString(value, key));
    else if (key == "nn_module_stack")
      n.module = modulePath(r_.asString(value, key));
  }
  r_.sourceLine = n.loc;
  n.loc.context = r_.node;
  for (Json in : r_.array(json, "inputs")) {
    std::string_view argName = r_.string(in, "name");
    Json arg = r_.get(in, "arg");
    if (!r_.ok()) return;
    n.args.push_back(argument(arg, argName));
    n.argNames.emplace_back(argName);
  }
  if (Status s = graph::bindArguments(n, graph_); !s) return r_.adopt(s.takeError());
  const bool ofCaller = graph::isOfCaller(n.target) || n.target == "higher_order.auto_functionalized_v2";
  for (Json out : r_.array(json, "outputs")) {
    n.outputs.push_back(defineOutput(out));
    // One of several results that is None keeps its place.
    if (n.outputs.back().empty() && r_.array(json, "outputs").size() > 1 && r_.asUnion(out, "outputs").first == "as_none" && graph::findOp(n.target)) n.outputs.back().push_back({});
    if (ofCaller) n.returns.push_back(declared(out));
    if (!r_.ok()) return;
  }
  if (const graph::OpSchema *op = graph::findOp(n.target); op && op->returns.size() != n.outputs.size())
    return r_.report(diag::OperatorArgument, n.target, "outputs",
                     fmt::format("has {} entries where the operator returns {}", n.outputs.size(), op->returns.size()));
  if (n.name.empty()) {
    // Older minors have no node names: the first result names the node, as in torch.
    for (const auto &list : n.outputs)
      if (n.name.empty() && !list.empty() && list[0].valid()) n.name = graph_.value(list[0]).name;
    if (n.name.empty()) n.name = fmt::format("node_{}", graph_.nodes.size());
  }
  graph_.nodes.push_back(std::move(n));
}

graph::Graph GraphReader::read(Json json) {
  collect(json);
  for (Json in : r_.array(json, "inputs")) {
    auto [kind, value] = r_.asUnion(in, "inputs");
    if (!r_.ok()) return {};
    ValueId id;
    if (kind == "as_tensor" || kind == "as_custom_obj") {
      std::string_view name = r_.string(value, "name");
      if (r_.ok()) id = define(name);
    } else if (kind == "as_sym_int" || kind == "as_sym_float" || kind == "as_sym_bool") {
      auto [k, v] = r_.asUnion(value, "inputs");
      if (r_.ok() && k == "as_name") id = define(r_.asString(v, "inputs"));
    }
    graph_.inputs.push_back(id);
    inputs_.push_back(id.valid() ? Argument(id) : argument(in, "inputs"));
    if (!r_.ok()) return {};
  }
  for (Json node : r_.array(json, "nodes")) {
    readNode(node);
    if (!r_.ok()) return {};
  }
  r_.node.clear();
  r_.sourceLine = {};
  for (Json out : r_.array(json, "outputs")) graph_.outputs.push_back(argument(out, "outputs"));
  return std::move(graph_);
}

} // namespace neso::pt2
