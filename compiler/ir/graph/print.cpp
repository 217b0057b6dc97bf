// Text of graphs, for people, tests and --emit=graph; parse.cpp reads it back.
#include <fmt/format.h>

#include "ir/graph/graph.h"
#include "ir/graph/visit.h"
#include "ir/shape/line.h"

namespace neso::graph {
namespace {

std::string typeText(const Value &v) {
  switch (v.kind) {
  case Value::Kind::SymInt: return v.expr.valid() ? fmt::format("int({})", v.expr.str()) : "int";
  case Value::Kind::SymFloat: return v.number ? fmt::format("float({})", *v.number) : "float";
  case Value::Kind::SymBool: return v.expr.valid() ? fmt::format("bool({})", v.expr.str()) : "bool";
  case Value::Kind::None: return "none";
  case Value::Kind::Object: return "object";
  case Value::Kind::Tensor: break;
  }
  std::string out = fmt::format("{}[", name(v.type.dtype));
  for (size_t i = 0; i < v.type.sizes.size(); ++i) out += (i ? ", " : "") + v.type.sizes[i].str();
  out += "]";
  // Strides are shown when they are not those of a contiguous tensor.
  Expr expected = 1;
  bool contiguous = true;
  for (size_t i = v.type.sizes.size(); i-- > 0;) {
    if (v.type.strides[i] != expected) contiguous = false;
    expected = expected * v.type.sizes[i];
  }
  if (!contiguous) {
    out += " strides(";
    for (size_t i = 0; i < v.type.strides.size(); ++i) out += (i ? ", " : "") + v.type.strides[i].str();
    out += ")";
  }
  if (!v.type.offset.isConst(0)) out += fmt::format(" offset {}", v.type.offset.str());
  return out;
}

class Printer {
public:
  Printer(const Graph &g, std::string indent) : g_(g), indent_(std::move(indent)) {}

  std::string run() {
    std::string out = indent_ + "inputs:\n";
    for (ValueId id : g_.inputs)
      out += indent_ + "  " +
             (id.valid() ? fmt::format("%{}: {}", g_.value(id).name, typeText(g_.value(id))) : "(constant)") + "\n";
    const std::vector<ValueId> sizes = withoutNode();
    if (!sizes.empty()) out += indent_ + "sizes:\n";
    for (ValueId id : sizes) out += indent_ + fmt::format("  %{}: {}\n", g_.value(id).name, typeText(g_.value(id)));
    out += indent_ + "nodes:\n";
    for (const Node &n : g_.nodes) out += node(n);
    out += indent_ + "outputs:\n";
    for (const Argument &a : g_.outputs) out += indent_ + "  " + argument(a) + "\n";
    return out;
  }

private:
  /// Values that are used and that no input or node gives: their expression says what they are.
  std::vector<ValueId> withoutNode() const {
    std::vector<bool> given(g_.values.size());
    std::vector<ValueId> out;
    auto use = [&](ValueId id) {
      if (!given[id.index()]) out.push_back(id);
      given[id.index()] = true;
    };
    for (ValueId id : g_.inputs)
      if (id.valid()) given[id.index()] = true;
    for (const Node &n : g_.nodes) forEachOutput(n, [&](ValueId id) { given[id.index()] = true; });
    for (const Node &n : g_.nodes) forEachInput(n, use);
    for (const Argument &a : g_.outputs) forEachValue(a, use);
    return out;
  }

  std::string ref(ValueId id) const { return id.valid() ? "%" + g_.value(id).name : "none"; }

  template <typename T, typename F> std::string list(const std::vector<T> &xs, F f) const {
    std::string out = "[";
    for (size_t i = 0; i < xs.size(); ++i) out += (i ? ", " : "") + f(xs[i]);
    return out + "]";
  }

public:
  std::string argument(const Argument &a) const {
    return std::visit(
        [&](const auto &v) -> std::string {
          using T = std::decay_t<decltype(v)>;
          if constexpr (std::is_same_v<T, None>)
            return "none";
          else if constexpr (std::is_same_v<T, ValueId>)
            return ref(v);
          else if constexpr (std::is_same_v<T, std::vector<ValueId>>)
            return v.empty() ? "values[]" : list(v, [&](ValueId id) { return ref(id); });
          else if constexpr (std::is_same_v<T, int64_t>)
            return fmt::format("{}", v);
          else if constexpr (std::is_same_v<T, double>)
            return real(v);
          else if constexpr (std::is_same_v<T, bool>)
            return v ? "true" : "false";
          else if constexpr (std::is_same_v<T, std::string>)
            return quoted(v);
          else if constexpr (std::is_same_v<T, std::vector<IntOrSym>>)
            return list(v, [&](const IntOrSym &e) {
              return e.index() == 0 ? fmt::format("{}", std::get<int64_t>(e)) : ref(std::get<ValueId>(e));
            });
          else if constexpr (std::is_same_v<T, std::vector<double>>)
            return v.empty() ? "reals[]" : list(v, real);
          else if constexpr (std::is_same_v<T, std::vector<bool>>)
            return v.empty() ? "bools[]" : list(v, [](bool b) { return std::string(b ? "true" : "false"); });
          else if constexpr (std::is_same_v<T, std::vector<std::string>>)
            return v.empty() ? "strings[]" : list(v, [](const std::string &s) { return quoted(s); });
          else if constexpr (std::is_same_v<T, DType>)
            return std::string(name(v));
          else if constexpr (std::is_same_v<T, MemoryFormat>)
            return fmt::format("memory_format({})", v.value);
          else if constexpr (std::is_same_v<T, Layout>)
            return fmt::format("layout({})", v.value);
          else if constexpr (std::is_same_v<T, Device>)
            return v.index < 0 ? fmt::format("device({})", v.type) : fmt::format("device({}:{})", v.type, v.index);
          else if constexpr (std::is_same_v<T, ComplexValue>)
            return fmt::format("complex({}, {})", v.real, v.imag);
          else if constexpr (std::is_same_v<T, std::shared_ptr<Graph>>)
            return "{\n" + Printer(*v, indent_ + "    ").run() + indent_ + "  }";
          else if constexpr (std::is_same_v<T, std::vector<std::vector<int64_t>>>)
            return list(v, [&](const std::vector<int64_t> &l) {
              return list(l, [](int64_t i) { return fmt::format("{}", i); });
            });
          else if constexpr (std::is_same_v<T, std::vector<std::vector<double>>>)
            return list(v, [&](const std::vector<double> &l) { return list(l, real); });
          else if constexpr (std::is_same_v<T, std::vector<std::vector<ValueId>>>)
            return list(v, [&](const std::vector<ValueId> &l) { return list(l, [&](ValueId id) { return ref(id); }); });
          else if constexpr (std::is_same_v<T, CustomObject>)
            return fmt::format("object({}, {})", v.name, v.className);
          else
            return dict(*v);
        },
        a);
  }

private:
  std::string dict(const ArgumentDict &d) const {
    std::string out = "{";
    for (size_t i = 0; i < d.entries.size(); ++i)
      out += (i ? ", " : "") + d.entries[i].first + ": " + argument(d.entries[i].second);
    return out + "}";
  }

  /// Shortest text that reads back to the same double, with a dot or exponent so that it is no integer.
  static std::string real(double d) {
    std::string s = fmt::format("{}", d);
    return s.find_first_of(".en") == std::string::npos ? s + ".0" : s;
  }

  static std::string launch(const UserLaunch &l) {
    std::string out =
        fmt::format(" launch {}[{}, {}, {}]", l.function, l.grid[0].str(), l.grid[1].str(), l.grid[2].str());
    for (const UserLaunch::Parameter &p : l.parameters) {
      if (p.kind == UserLaunch::Parameter::Integer) out += fmt::format(" {}={}", p.name, p.integer.str());
      if (p.kind == UserLaunch::Parameter::Real) out += fmt::format(" {}={}", p.name, real(p.real));
    }
    return out;
  }

  std::string node(const Node &n) const {
    std::string out = indent_ + "  ";
    for (size_t i = 0; i < n.outputs.size(); ++i) {
      if (i) out += ", ";
      const auto &o = n.outputs[i];
      const Node::Return declared = i < n.returns.size() ? n.returns[i] : Node::Return::Plain;
      out += o.size() == 1 && declared != Node::Return::List ? ref(o[0]) : list(o, [&](ValueId id) { return ref(id); });
      if (declared == Node::Return::Optional) out += "?";
      if (declared == Node::Return::Other) out += "!";
    }
    if (!n.outputs.empty()) out += " = ";
    out += n.target + "(";
    for (size_t i = 0; i < n.args.size(); ++i) {
      if (i) out += ", ";
      if (i < n.argNames.size() && !n.argNames[i].empty()) out += n.argNames[i] + "=";
      out += argument(n.args[i]);
    }
    out += ")";
    if (n.launch) out += launch(*n.launch);
    // Most nodes are called like their first result.
    const bool likeResult = !n.outputs.empty() && !n.outputs[0].empty() && n.outputs[0][0].valid() &&
                            g_.value(n.outputs[0][0]).name == n.name;
    if (!likeResult && !n.name.empty()) out += " named " + n.name;
    std::string types;
    for (const auto &o : n.outputs)
      for (ValueId id : o)
        if (id.valid()) types += (types.empty() ? "" : ", ") + typeText(g_.value(id));
    if (!types.empty()) out += " : " + types;
    if (n.loc.line > 0) out += fmt::format("  // {}:{}", n.loc.file.substr(n.loc.file.rfind('/') + 1), n.loc.line);
    return out + "\n";
  }

  const Graph &g_;
  std::string indent_;
};

const char *kindText(Weight::Kind k) {
  return k == Weight::Kind::Parameter ? "parameter" : k == Weight::Kind::Buffer ? "buffer" : "constant";
}

/// Few bytes that do not lie in the model's file are said.
std::string storage(const Storage &s, size_t number) {
  constexpr int64_t saidBytes = 1024;
  std::string out = fmt::format("storage {}: {} bytes", number, s.bytes);
  if (s.fileOffset >= 0) return out + fmt::format(" at {}\n", s.fileOffset);
  return out + (s.bytes > 0 && s.bytes <= saidBytes ? " = " + hexText(s.data, s.bytes) : "") + "\n";
}

} // namespace

std::string print(const Graph &graph) { return Printer(graph, "").run(); }

std::string print(const Model &m) {
  std::string out =
      fmt::format("model {} (torch {}, schema {}.{})\n", quoted(m.name), m.torchVersion, m.schemaMajor, m.schemaMinor);
  if (m.int4Packing != Int4Packing::Unknown) out += fmt::format("packs int4 as {}\n", name(m.int4Packing));
  for (const auto &[symbol, range] : m.facts.ranges())
    out += fmt::format("range {}: {}\n", symbol.str(), intervalText(range));
  for (const RoundedSize &r : m.rounded.all()) out += fmt::format("rounded {} = {}\n", r.symbol.str(), print(r.rounding, r.of));
  for (Expr g : m.guards) out += fmt::format("guard {}\n", g.str());
  for (const Assertion &a : m.assertions) out += fmt::format("assert {} says {}\n", a.condition.str(), quoted(a.message));
  for (size_t k = 0; k < m.storages.size(); ++k) out += storage(m.storages[k], k);
  for (const Weight &w : m.weights) {
    Value v;
    v.type = w.type;
    out +=
        fmt::format("weight \"{}\" {}{}: {} storage {}\n", w.fqn, kindText(w.kind),
                    w.persistent || w.kind != Weight::Kind::Buffer ? "" : " (not persistent)", typeText(v), w.storage);
  }
  Printer p(m.graph, "");
  for (const Input &in : m.inputs) {
    switch (in.kind) {
    case Input::Kind::User: out += fmt::format("input {}: user{}\n", in.name, in.reshaped.empty() ? "" : " reshaped " + in.reshaped); break;
    case Input::Kind::Weight:
      out += fmt::format("input {}: weight \"{}\"\n", in.name, m.weights[static_cast<size_t>(in.weight)].fqn);
      break;
    case Input::Kind::Constant: out += fmt::format("input {}: constant {}\n", in.name, p.argument(in.constant)); break;
    case Input::Kind::Token: out += fmt::format("input {}: token\n", in.name); break;
    case Input::Kind::CustomObj: out += fmt::format("input {}: custom object\n", in.name); break;
    }
  }
  for (const Output &o : m.outputs) {
    switch (o.kind) {
    case Output::Kind::User: out += fmt::format("output {}\n", p.argument(o.value)); break;
    case Output::Kind::BufferMutation:
      out += fmt::format("output {} -> buffer \"{}\"\n", p.argument(o.value), o.target);
      break;
    case Output::Kind::InputMutation:
      out += fmt::format("output {} -> input {}\n", p.argument(o.value), o.target);
      break;
    case Output::Kind::ParameterMutation:
      out += fmt::format("output {} -> parameter \"{}\"\n", p.argument(o.value), o.target);
      break;
    case Output::Kind::Token: out += fmt::format("output token {}\n", p.argument(o.value)); break;
    }
  }
  if (!m.argumentNames.empty()) out += fmt::format("parameters {}\n", fmt::join(m.argumentNames, ", "));
  if (!m.inSpec.empty()) out += "arguments " + m.inSpec + "\n";
  if (!m.outSpec.empty()) out += "results " + m.outSpec + "\n";
  return out + p.run();
}

} // namespace neso::graph
