#include "ir/graph/passes/simplify.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/fault.h"
#include "base/rules.h"
#include "ir/graph/ops.h"
#include "ir/graph/passes/dtype_calls.h"
#include "ir/graph/passes/factor_checks.h"
#include "ir/graph/passes/views.h"
#include "ir/graph/visit.h"

namespace neso::graph {
namespace {

bool oneOf(std::string_view s, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), s) != names.end();
}
bool startsWith(std::string_view s, std::string_view prefix) { return s.substr(0, prefix.size()) == prefix; }
std::string_view opName(const Node &n) { return std::string_view(n.target).substr(0, n.target.rfind('.')); }

bool asksForSize(std::string_view name) {
  return oneOf(name, {"aten.sym_size", "aten.sym_stride", "aten.sym_numel", "aten.sym_storage_offset", "aten.sym_is_contiguous"});
}
bool asserts(std::string_view name) {
  return oneOf(name, {"aten._assert_scalar", "aten._assert_async", "aten._assert_tensor_metadata", "aten._functional_assert_scalar", "aten._functional_assert_async",
                      "aten.sym_constrain_range", "aten.sym_constrain_range_for_size", "aten._print", "aten._linalg_check_errors"});
}
/// Python functions on numbers, and ATen's questions about sizes.
bool isSymbolicOp(const Node &n) {
  return startsWith(n.target, "_operator.") || startsWith(n.target, "torch.sym_") || startsWith(n.target, "builtins.") ||
         startsWith(n.target, "torch._sym_") || startsWith(n.target, "math.") || asksForSize(opName(n));
}
bool isAssert(const Node &n) { return asserts(opName(n)); }

void replaceUses(Graph &g, const std::unordered_map<ValueId, ValueId> &by) {
  auto find = [&](ValueId &id) {
    for (auto it = by.find(id); it != by.end(); it = by.find(id)) id = it->second;
  };
  for (Node &n : g.nodes) forEachInput(n, find);
  for (Argument &a : g.outputs) forEachValue(a, find);
}

/// The model's outputs repeat those of its graph.
void syncOutputs(Model &m) {
  for (size_t i = 0; i < m.outputs.size(); ++i) m.outputs[i].value = m.graph.outputs[i];
}

std::optional<Expr> evaluateNode(const Graph &g, const Node &n) {
  auto arg = [&](size_t i) {
    return i < n.args.size()
               ? (std::holds_alternative<bool>(n.args[i]) ? std::optional<Expr>(std::get<bool>(n.args[i]) ? 1 : 0)
                                                          : intOf(g, &n.args[i]))
               : std::nullopt;
  };
  const ValueId *tensor = n.args.empty() ? nullptr : std::get_if<ValueId>(&n.args[0]);
  if (startsWith(n.target, "aten.") && tensor && tensor->valid() && g.value(*tensor).kind == Value::Kind::Tensor) {
    const TensorType &t = g.value(*tensor).type;
    std::string_view op = opName(n);
    if (op == "aten.sym_numel") return product(t.sizes);
    if (op == "aten.sym_storage_offset") return t.offset;
    std::optional<Expr> dim = arg(1);
    if (!dim || !dim->isConst()) return std::nullopt;
    int64_t d = dim->constValue() < 0 ? dim->constValue() + t.rank() : dim->constValue();
    if (d < 0 || d >= t.rank()) return std::nullopt;
    if (op == "aten.sym_size") return t.sizes[static_cast<size_t>(d)];
    if (op == "aten.sym_stride") return t.strides[static_cast<size_t>(d)];
    return std::nullopt;
  }
  std::string_view f = std::string_view(n.target).substr(n.target.rfind('.') + 1);
  std::optional<Expr> a = arg(0), b = arg(1);
  if (!a) return std::nullopt;
  if (n.args.size() == 1) {
    if (f == "neg") return -*a;
    if (f == "pos" || f == "trunc" || f == "ceil" || f == "floor" || f == "sym_int") return *a;
    if (f == "not_" || f == "sym_not") return logicalNot(*a);
    return std::nullopt;
  }
  if (!b) return std::nullopt;
  if (f == "add") return *a + *b;
  if (f == "sub") return *a - *b;
  if (f == "mul") return *a * *b;
  if (f == "floordiv" && !b->isConst(0)) return floorDiv(*a, *b);
  if (f == "mod" && !b->isConst(0)) return mod(*a, *b);
  if (f == "sym_ite") {
    const std::optional<Expr> c = arg(2);
    return c ? std::optional<Expr>(where(*a, *b, *c)) : std::nullopt;
  }
  if (f == "sym_max") return max(*a, *b);
  if (f == "sym_min") return min(*a, *b);
  if (f == "eq") return eq(*a, *b);
  if (f == "ne") return ne(*a, *b);
  if (f == "lt") return lt(*a, *b);
  if (f == "le") return le(*a, *b);
  if (f == "gt") return gt(*a, *b);
  if (f == "ge") return ge(*a, *b);
  if (f == "and_") return logicalAnd(*a, *b);
  if (f == "or_") return logicalOr(*a, *b);
  return std::nullopt;
}

/// Symbolic arguments whose value is a constant become that constant.
void foldConstantArguments(Graph &g) {
  auto fold = [&](Argument &a) {
    if (ValueId *id = std::get_if<ValueId>(&a); id && id->valid()) {
      const Value &v = g.value(*id);
      bool known = v.expr.valid() && v.expr.isConst();
      if (v.kind == Value::Kind::SymInt && known)
        a = v.expr.constValue();
      else if (v.kind == Value::Kind::SymBool && known)
        a = v.expr.constValue() != 0;
      else if (v.kind == Value::Kind::SymFloat && v.number)
        a = *v.number;
    } else if (auto *list = std::get_if<std::vector<IntOrSym>>(&a)) {
      for (IntOrSym &e : *list)
        if (ValueId *s = std::get_if<ValueId>(&e); s && g.value(*s).expr.valid() && g.value(*s).expr.isConst())
          e = g.value(*s).expr.constValue();
    }
  };
  for (Node &n : g.nodes)
    for (Argument &a : n.args) fold(a);
  for (Argument &a : g.outputs) fold(a);
}

/// The input that a node returns unchanged, or invalid.
ValueId passedThrough(const Graph &g, const Node &n, const OpSchema &op) {
  if (n.outputs.size() != 1 || n.outputs[0].size() != 1 || !n.outputs[0][0].valid() || n.args.empty()) return {};
  const ValueId *in = std::get_if<ValueId>(&n.args[0]);
  if (!in || !in->valid()) return {};
  const Value &a = g.value(*in), &r = g.value(n.outputs[0][0]);
  if (a.kind != Value::Kind::Tensor || r.kind != Value::Kind::Tensor || a.type.dtype != r.type.dtype ||
      a.type.sizes != r.type.sizes)
    return {};
  if (aliasing(g, n, op).identity) return *in;
  if (oneOf(op.name, {"aten.clone", "aten.contiguous", "aten.lift_fresh_copy", "aten.detach_copy", "aten.alias_copy",
                      "aten.to", "aten._to_copy", "aten.type_as", "aten.view", "aten._unsafe_view", "aten.view_as",
                      "aten.reshape", "aten.reshape_as", "aten.flatten", "aten.expand", "aten.expand_as",
                      "aten._reshape_alias", "prims.convert_element_type"}))
    return *in;
  if (op.name == "aten.slice" && std::holds_alternative<int64_t>(*n.arg("step")) &&
      std::get<int64_t>(*n.arg("step")) == 1)
    return *in;
  return {};
}

void appendKey(std::string &key, const Argument &a);
std::string keyOf(const Node &n) {
  std::string key = n.target;
  for (const Argument &a : n.args) {
    key += '|';
    appendKey(key, a);
  }
  return key;
}
void appendKey(std::string &key, const Argument &a) {
  key += std::to_string(a.index()) + ':';
  std::visit(
      [&](const auto &v) {
        using T = std::decay_t<decltype(v)>;
        auto id = [&](ValueId i) { key += std::to_string(i.value) + ','; };
        if constexpr (std::is_same_v<T, ValueId>)
          id(v);
        else if constexpr (std::is_same_v<T, std::vector<ValueId>>)
          for (ValueId i : v) id(i);
        else if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, bool>)
          key += std::to_string(v);
        else if constexpr (std::is_same_v<T, double>)
          key += fmt::format("{:a}", v);
        else if constexpr (std::is_same_v<T, std::string>)
          key += fmt::format("{}#{}", v.size(), v);
        else if constexpr (std::is_same_v<T, std::vector<IntOrSym>>)
          for (const IntOrSym &e : v)
            key += e.index() == 0 ? fmt::format("{},", std::get<int64_t>(e))
                                  : fmt::format("%{},", std::get<ValueId>(e).value);
        else if constexpr (std::is_same_v<T, std::vector<double>>)
          for (double d : v) key += fmt::format("{:a},", d);
        else if constexpr (std::is_same_v<T, std::vector<bool>>)
          for (bool b : v) key += b ? '1' : '0';
        else if constexpr (std::is_same_v<T, std::vector<std::string>>)
          for (const std::string &s : v) key += fmt::format("{}#{},", s.size(), s);
        else if constexpr (std::is_same_v<T, DType>)
          key += name(v);
        else if constexpr (std::is_same_v<T, MemoryFormat> || std::is_same_v<T, Layout>)
          key += std::to_string(v.value);
        else if constexpr (std::is_same_v<T, Device>)
          key += fmt::format("{}#{}", v.type, v.index);
        else if constexpr (std::is_same_v<T, ComplexValue>)
          key += fmt::format("{:a},{:a}", v.real, v.imag);
        else if constexpr (!std::is_same_v<T, None>)
          key += fmt::format("@{}", static_cast<const void *>(&v)); // never equal to another
      },
      a);
}

/// Symbols with the same expression are one argument, so that equal calls have equal keys.
void mergeSymbolicValues(Graph &g) {
  std::unordered_map<Expr, ValueId> first;
  std::unordered_map<ValueId, ValueId> by;
  std::unordered_set<ValueId> defined;
  for (const Node &n : g.nodes) forEachOutput(n, [&](ValueId id) { defined.insert(id); });
  for (const Value &v : g.values) {
    if (v.kind != Value::Kind::SymInt || !v.expr.valid() || defined.count(v.id)) continue;
    auto [it, fresh] = first.try_emplace(v.expr, v.id);
    if (!fresh) by[v.id] = it->second;
  }
  for (ValueId in : g.inputs) by.erase(in);
  replaceUses(g, by);
}

void mergeEqualIn(Graph &g) {
  mergeSymbolicValues(g);
  std::unordered_map<std::string, size_t> seen;
  std::unordered_map<ValueId, ValueId> by;
  std::vector<Node> kept;
  for (Node &n : g.nodes) {
    forEachInput(n, [&](ValueId &id) {
      if (auto it = by.find(id); it != by.end()) id = it->second;
    });
    const OpSchema *op = findOp(n.target);
    bool pure = op && !op->random && !op->mutates() && !oneOf(op->name, {"aten.item", "aten._local_scalar_dense"});
    if (pure) {
      auto [it, fresh] = seen.try_emplace(keyOf(n), kept.size());
      const Node *other = fresh ? nullptr : &kept[it->second];
      bool same = other && other->outputs.size() == n.outputs.size();
      for (size_t e = 0; same && e < n.outputs.size(); ++e) {
        same = other->outputs[e].size() == n.outputs[e].size();
        for (size_t i = 0; same && i < n.outputs[e].size(); ++i) {
          ValueId a = other->outputs[e][i], b = n.outputs[e][i];
          // Sizes that depend on data get a symbol a call; those of equal calls are equal but named differently.
          same = a.valid() == b.valid() && (!a.valid() || (g.value(a).type.sizes == g.value(b).type.sizes &&
                                                           g.value(a).type.strides == g.value(b).type.strides &&
                                                           g.value(a).type.dtype == g.value(b).type.dtype));
        }
      }
      if (same) {
        applied(Rule::MergeEqual);
        for (size_t e = 0; e < n.outputs.size(); ++e)
          for (size_t i = 0; i < n.outputs[e].size(); ++i)
            if (n.outputs[e][i].valid()) by[n.outputs[e][i]] = other->outputs[e][i];
        continue;
      }
    }
    kept.push_back(std::move(n));
  }
  g.nodes = std::move(kept);
  replaceUses(g, by);
}

void addSymbols(Expr e, std::unordered_set<Symbol> &to) {
  if (e.valid())
    for (Symbol s : symbolsOf(e)) to.insert(s);
}
void addSymbols(const Value &v, std::unordered_set<Symbol> &to) {
  addSymbols(v.expr, to);
  for (Expr e : v.type.sizes) addSymbols(e, to);
  for (Expr e : v.type.strides) addSymbols(e, to);
  if (v.kind == Value::Kind::Tensor) addSymbols(v.type.offset, to);
}

/// Whether the model states a number that the data decides: the element of a tensor, or how many elements there are.
bool statesANumber(const Graph &g, const Node &n) {
  const std::string_view op = opName(n);
  const bool counts = oneOf(op, {"aten.nonzero", "aten.argwhere", "aten.nonzero_numpy", "aten.masked_select", "aten.bincount", "aten.unique_dim", "aten._unique2",
                                 "aten.unique_consecutive", "aten.unique_dim_consecutive"});
  if (!counts && !oneOf(op, {"aten.item", "aten._local_scalar_dense"})) return false;
  bool stated = false;
  forEachOutput(n, [&](ValueId id) {
    const Value &v = g.value(id);
    if (v.kind == Value::Kind::SymInt || v.kind == Value::Kind::SymBool) stated |= v.expr.valid() && v.expr.isConst();
    if (counts && v.kind == Value::Kind::Tensor) stated |= v.type.rank() > 0 && v.type.sizes[0].isConst();
  });
  return stated;
}

/// `asserted`: symbols that must get their value, whoever else needs them.
void removeDeadIn(Graph &g, const std::unordered_set<Symbol> &asserted) {
  // Which node gives a symbol its value: the first whose results mention it, if no input does.
  SymbolMap<size_t> definer;
  std::unordered_set<Symbol> symbols;
  for (ValueId in : g.inputs)
    if (in.valid()) addSymbols(g.value(in), symbols);
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    std::unordered_set<Symbol> mine;
    forEachOutput(g.nodes[i], [&](ValueId id) { addSymbols(g.value(id), mine); });
    for (Symbol s : mine)
      if (!symbols.count(s)) definer.emplace(s, i);
  }
  std::vector<std::vector<Symbol>> defines(g.nodes.size());
  for (const auto &[s, i] : definer) defines[i].push_back(s);

  std::vector<bool> live(g.values.size());
  std::unordered_set<Symbol> liveSymbols = asserted;
  auto use = [&](ValueId id) {
    if (live[id.index()]) return;
    live[id.index()] = true;
    addSymbols(g.value(id), liveSymbols);
  };
  for (const Argument &a : g.outputs) forEachValue(a, use);
  std::vector<bool> keep(g.nodes.size());
  for (size_t i = g.nodes.size(); i-- > 0;) {
    const Node &n = g.nodes[i];
    const OpSchema *op = findOp(n.target);
    bool effect =
        op ? op->mutates()
           : !(isSymbolicOp(n) || oneOf(n.target, {"neso.launch", "higher_order.cond", "higher_order.map_impl",
                                                   "higher_order.scan", "higher_order.associative_scan",
                                                   "higher_order.while_loop", "higher_order.while_loop_stack_output"}));
    if (op && op->returns.empty()) effect = true;
    // What the exporter took to be one number the run must find to be that: its assertions, over a constant, say nothing.
    if (statesANumber(g, n)) effect = true;
    keep[i] = effect;
    forEachOutput(n, [&](ValueId id) { keep[i] = keep[i] || live[id.index()]; });
    for (Symbol s : defines[i]) keep[i] = keep[i] || liveSymbols.count(s);
    if (keep[i]) {
      forEachInput(n, use);
      forEachOutput(n, [&](ValueId id) { addSymbols(g.value(id), liveSymbols); });
      // A launch holds its grid and numbers as expressions, which name no value.
      if (n.launch) {
        for (Expr e : n.launch->grid) addSymbols(e, liveSymbols);
        for (const UserLaunch::Parameter &p : n.launch->parameters) addSymbols(p.integer, liveSymbols);
      }
    }
  }
  std::vector<Node> kept;
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    if (keep[i])
      kept.push_back(std::move(g.nodes[i]));
    else
      applied(Rule::RemoveDead);
  }
  g.nodes = std::move(kept);
}

} // namespace

bool isResolved(std::string_view name) { return asksForSize(name) || asserts(name); }

void unifySymbols(Model &m) {
  // Those that are a whole size of an input, so that running the model binds them.
  std::unordered_set<Symbol> ofInputs;
  for (ValueId in : m.graph.inputs)
    if (in.valid()) {
      for (Expr e : m.graph.value(in).type.sizes)
        if (e.isSymbol()) ofInputs.insert(e.symbol());
    }
  SymbolMap<Expr> by;
  for (bool again = true; again;) {
    again = false;
    for (Expr &g : m.guards) {
      if (g.kind() != ExprKind::Eq) continue;
      Expr difference = g.operands()[0] - g.operands()[1];
      std::vector<Symbol> symbols = symbolsOf(difference);
      if (symbols.size() != 2 || !ofInputs.count(symbols[0]) || !ofInputs.count(symbols[1])) continue;
      Expr a = symbols[0], b = symbols[1];
      // c*a - c*b == 0
      std::optional<Affine> f = affineIn(difference, symbols[0]);
      if (!f || !f->coefficient.isConst() || f->coefficient.isConst(0) || f->rest != -f->coefficient * b) continue;
      Interval ra = m.facts.range(symbols[0]), rb = m.facts.range(symbols[1]);
      m.facts.setRange(symbols[0], {std::max(ra.lo, rb.lo), std::min(ra.hi, rb.hi)});
      SymbolMap<Expr> one{{symbols[1], a}};
      for (auto &[symbol, e] : by) e = substitute(e, one);
      by.emplace(symbols[1], a);
      applied(Rule::UnifySymbols);
      for (Expr &other : m.guards) other = substitute(other, one);
      for (Assertion &other : m.assertions) other.condition = substitute(other.condition, one);
      std::erase_if(m.guards, [](Expr e) { return e.isConst() && !e.isConst(0); });
      again = true;
      break;
    }
  }
  if (by.empty()) return;
  replaceSymbols(m, by);
}

/// A division of sizes fails where a run divides by 0. (In a region it is done where the region runs: nothing is said of that.)
void assertDivisors(Model &m) {
  for (const Node &n : m.graph.nodes) {
    if (!isSymbolicOp(n) || n.args.size() != 2 || !oneOf(std::string_view(n.target).substr(n.target.rfind('.') + 1), {"floordiv", "mod", "truediv"})) continue;
    const std::optional<Expr> by = intOf(m.graph, &n.args[1]);
    if (by && !by->isConst() && m.facts.rangeOf(*by).lo <= 0) addAssertion(m.assertions, {ne(*by, 0), "integer division or modulo by zero"});
  }
}

void resolveSymbolic(Model &m) {
  assertDivisors(m);
  forEachGraph(m.graph, [](Graph &g) {
    std::vector<Node> kept;
    for (Node &n : g.nodes) {
      if (isSymbolicOp(n)) {
        bool resolved = true;
        forEachOutput(n, [&](ValueId id) {
          Value &v = g.value(id);
          if (v.kind == Value::Kind::SymFloat)
            resolved = v.number.has_value();
          else if (v.kind != Value::Kind::SymInt && v.kind != Value::Kind::SymBool)
            resolved = false;
          else if (!v.expr.valid()) {
            std::optional<Expr> e = evaluateNode(g, n);
            if (e)
              v.expr = *e;
            else
              resolved = false;
          }
        });
        if (resolved) {
          applied(Rule::ResolveSymbolic);
          continue;
        }
      }
      kept.push_back(std::move(n));
    }
    g.nodes = std::move(kept);
    foldConstantArguments(g);
  });
  syncOutputs(m);
}

void dropTokens(Model &m) {
  forEachGraph(m.graph, [](Graph &g) {
    std::unordered_map<ValueId, ValueId> by;
    for (Node &n : g.nodes) {
      if (n.target != "higher_order.with_effects" || n.args.size() < 2 || n.outputs.empty()) continue;
      const ValueId *token = std::get_if<ValueId>(&n.args[0]);
      const std::string *op = std::get_if<std::string>(&n.args[1]);
      if (!token || !op || n.outputs[0].size() != 1) continue;
      Node call = n;
      call.target = *op;
      call.args.erase(call.args.begin(), call.args.begin() + 2);
      if (call.argNames.size() >= 2) call.argNames.erase(call.argNames.begin(), call.argNames.begin() + 2);
      call.outputs.erase(call.outputs.begin());
      if (!isAssert(call) && !bindArguments(call, g)) continue;
      by[n.outputs[0][0]] = *token;
      applied(Rule::DropToken);
      n = std::move(call);
    }
    replaceUses(g, by);
  });
  syncOutputs(m);
}

/// Whether the run computes a condition as it computes tensors: one of tensors is, and one of floats.
static bool isComputed(const Value &condition) {
  return condition.kind == Value::Kind::Tensor || (condition.kind == Value::Kind::SymBool && !condition.expr.valid());
}

void numberAsserts(Model &m) {
  int32_t count = 0;
  forEachGraph(m.graph, [&](Graph &g) {
    std::vector<Node> nodes;
    for (Node &n : g.nodes) {
      const ValueId *asked = oneOf(opName(n), {"aten._assert_async", "aten._assert_scalar", "aten._functional_assert_scalar"}) ? std::get_if<ValueId>(&n.args[0]) : nullptr;
      if (!asked || !asked->valid() || !isComputed(g.value(*asked))) {
        nodes.push_back(std::move(n));
        continue;
      }
      const std::string *text = n.args.size() > 1 ? std::get_if<std::string>(&n.args[1]) : nullptr;
      auto add = [&](std::string target, std::vector<Argument> args, Value result) {
        Node step;
        step.target = std::move(target), step.args = std::move(args);
        step.loc = n.loc, step.module = n.module;
        if (result.kind != Value::Kind::None) {
          result.id = ValueId(static_cast<int64_t>(g.values.size()));
          step.name = result.name;
          step.outputs = {{result.id}};
          g.values.push_back(result);
        } else {
          step.name = result.name;
        }
        Status bound = bindArguments(step, g);
        NESO_CHECK(static_cast<bool>(bound), "an assertion of a tensor became a call that its schema refuses");
        nodes.push_back(std::move(step));
        return result.id;
      };
      applied(Rule::NumberAssert);
      // No name of the file has a point.
      const std::string name = fmt::format("assert.{}", count++);
      Value truth, number, holds, nothing;
      nothing.kind = Value::Kind::None, nothing.name = name;
      truth.name = name, truth.kind = Value::Kind::Tensor;
      truth.type.dtype = DType::Bool;
      ValueId condition = *asked;
      if (g.value(condition).kind == Value::Kind::Tensor) {
        truth.type = g.value(condition).type, truth.type.dtype = DType::Bool;
      } else {
        Value made = truth;
        made.name = name + ".computed";
        condition = add("aten.scalar_tensor.default", {condition, DType::Bool}, made);
      }
      number.name = name + ".number", number.kind = Value::Kind::SymInt, number.expr = Symbol::size(number.name);
      m.facts.setRange(Symbol::size(number.name), {0, 1});
      const ValueId is = add("aten.ne.Scalar", {condition, int64_t(0)}, truth);
      add("aten.item.default", {is}, number);
      holds.name = name + ".holds", holds.kind = Value::Kind::SymBool, holds.expr = ne(number.expr, 0);
      holds.id = ValueId(static_cast<int64_t>(g.values.size()));
      g.values.push_back(holds);
      add("aten._assert_scalar.default", {holds.id, text ? *text : std::string("an assertion of the model on a tensor does not hold")}, nothing);
    }
    g.nodes = std::move(nodes);
  });
}

void removeAsserts(Model &m) {
  std::unordered_set<Symbol> inputs;
  for (ValueId in : m.graph.inputs)
    if (in.valid()) addSymbols(m.graph.value(in), inputs);
  auto assertThat = [&](Expr condition, const Node &n, std::string text) {
    if (condition.isConst(1)) return;
    const std::vector<Symbol> symbols = symbolsOf(condition);
    if (std::all_of(symbols.begin(), symbols.end(), [&](Symbol s) { return inputs.count(s) > 0; })) {
      applied(Rule::AssertToGuard);
      if (std::find(m.guards.begin(), m.guards.end(), condition) == m.guards.end()) m.guards.push_back(condition);
      return;
    }
    applied(Rule::AssertToStep);
    text += valuesOf(condition);
    if (!n.loc.file.empty()) text += fmt::format(" ({}:{})", n.loc.file, n.loc.line);
    addAssertion(m.assertions, {condition, std::move(text)});
  };
  for (const Node &n : m.graph.nodes) {
    const std::optional<Expr> e = n.args.empty() ? std::nullopt : intOf(m.graph, &n.args[0]);
    if (opName(n) == "aten._assert_scalar" || opName(n) == "aten._functional_assert_scalar") {
      // That a condition cannot hold is told when the model is compiled, if at all.
      if (!e || e->isConst()) continue;
      const std::string *text = n.args.size() > 1 ? std::get_if<std::string>(&n.args[1]) : nullptr;
      assertThat(*e, n, text ? *text : "an assertion of the model does not hold: " + e->str());
    } else if (e && (opName(n) == "aten.sym_constrain_range" || opName(n) == "aten.sym_constrain_range_for_size")) {
      auto bound = [&](const char *name) { return n.arg(name) ? intOf(m.graph, n.arg(name)) : std::nullopt; };
      const std::string text = "a number is outside of the range that the model gives it";
      if (std::optional<Expr> least = bound("min")) assertThat(le(*least, *e), n, text);
      if (std::optional<Expr> most = bound("max")) assertThat(le(*e, *most), n, text);
    }
  }
  // Those of sub-graphs that compare numbers stay: they hold where the sub-graph runs.
  forEachGraph(m.graph, [&](Graph &g) {
    std::erase_if(g.nodes, [&](const Node &n) {
      return isAssert(n) && (&g == &m.graph || n.target != "aten._assert_scalar.default");
    });
  });
}

void strideAsOnCpus(Model &m) {
  forEachGraph(m.graph, [](Graph &g) {
    for (const Node &n : g.nodes) {
      const Argument *dim = oneOf(opName(n), {"aten.unique_dim", "aten.unique_dim_consecutive", "aten.unique_consecutive"}) ? n.arg("dim") : nullptr;
      const int64_t *d = dim ? std::get_if<int64_t>(dim) : nullptr;
      if (!d || n.outputs.empty() || n.outputs[0].size() != 1 || !n.outputs[0][0].valid()) continue;
      TensorType &t = g.value(n.outputs[0][0]).type;
      const int64_t at = *d < 0 ? *d + t.rank() : *d;
      if (at < 0 || at >= t.rank()) continue;
      std::vector<Expr> rest = t.sizes;
      rest.erase(rest.begin() + at);
      std::vector<Expr> strides = contiguousStrides(rest);
      strides.insert(strides.begin() + at, product(rest));
      t.strides = std::move(strides);
    }
  });
}

void removeNoOps(Model &m) {
  forEachGraph(m.graph, [](Graph &g) {
    // Values whose strides matter: outputs, and what is read by position in memory.
    std::unordered_set<ValueId> fixed;
    for (const Argument &a : g.outputs) forEachValue(a, [&](ValueId id) { fixed.insert(id); });
    for (const Node &n : g.nodes)
      if (oneOf(opName(n), {"aten.as_strided", "aten.as_strided_scatter", "aten.as_strided_copy", "aten.resize", "aten.resize_as"}) ||
          startsWith(n.target, "higher_order.") || !findOp(n.target))
        forEachInput(n, [&](ValueId id) { fixed.insert(id); });
    std::unordered_map<ValueId, ValueId> by;
    std::vector<Node> kept;
    for (Node &n : g.nodes) {
      forEachInput(n, [&](ValueId &id) {
        if (auto it = by.find(id); it != by.end()) id = it->second;
      });
      const OpSchema *op = findOp(n.target);
      ValueId in = op ? passedThrough(g, n, *op) : ValueId();
      if (in.valid()) {
        ValueId out = n.outputs[0][0];
        const TensorType &a = g.value(in).type, &r = g.value(out).type;
        if (!fixed.count(out) || sameStrides(a.sizes, a.strides, r.strides)) {
          by[out] = in;
          applied(Rule::RemoveNoOp);
          continue;
        }
      }
      kept.push_back(std::move(n));
    }
    g.nodes = std::move(kept);
    replaceUses(g, by);
  });
  syncOutputs(m);
}

void mergeEqual(Model &m) {
  forEachGraph(m.graph, mergeEqualIn);
  syncOutputs(m);
}

void removeDead(Model &m) {
  std::unordered_set<Symbol> asserted;
  for (const Assertion &a : m.assertions) addSymbols(a.condition, asserted);
  forEachGraph(m.graph, [&](Graph &g) { removeDeadIn(g, asserted); });
}

void simplify(Model &m) {
  Working stage("graph passes");
  unifySymbols(m);
  resolveSymbolic(m);
  readStorage(m);
  dropTokens(m);
  openDtypeCalls(m);
  assertFactors(m);
  numberAsserts(m);
  removeAsserts(m);
  auto countNodes = [&] {
    size_t count = 0;
    forEachGraph(m.graph, [&](const Graph &g) { count += g.nodes.size(); });
    return count;
  };
  for (size_t before = SIZE_MAX, now = countNodes(); now < before; now = countNodes()) {
    before = now;
    removeNoOps(m);
    mergeEqual(m);
    removeDead(m);
  }
}

} // namespace neso::graph
