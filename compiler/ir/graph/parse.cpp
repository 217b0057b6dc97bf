#include "ir/graph/parse.h"

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "base/diagnostics/graph.h"
#include "base/words.h"
#include "ir/shape/line.h"

namespace neso::graph {
namespace {

/// All lines of a text, one after the other; a graph inside a node takes lines in the middle of that node's.
class Lines {
public:
  explicit Lines(std::string_view text) {
    (void)static_cast<bool>(forEachLine(text, [&](std::string_view line, int number) {
      if (!Line(line).atEnd()) all_.emplace_back(line, number);
      return Status::ok();
    }));
  }
  bool atEnd() const { return at_ == all_.size(); }
  std::string_view next() { return atEnd() ? std::string_view() : all_[at_++].first; }
  std::string_view peek() const { return atEnd() ? std::string_view() : all_[at_].first; }
  /// Of the line that next() gave last.
  int number() const { return at_ ? all_[at_ - 1].second : 1; }

private:
  std::vector<std::pair<std::string_view, int>> all_;
  size_t at_ = 0;
};

/// The type that the text has for a value.
void readType(Line &line, Value &v) {
  auto inner = [&](auto read) {
    if (!line.eat("(")) return;
    read(), line.expect(")");
  };
  v.kind = Value::Kind::Tensor;
  if (line.eat("int")) return v.kind = Value::Kind::SymInt, inner([&] { v.expr = line.expr({")"}); });
  if (line.eat("float")) return v.kind = Value::Kind::SymFloat, inner([&] { v.number = line.real(); });
  if (line.eat("none")) return void(v.kind = Value::Kind::None);
  if (line.eat("object")) return void(v.kind = Value::Kind::Object);
  if (line.next("bool") && !line.next("bool[")) {
    line.expect("bool");
    return v.kind = Value::Kind::SymBool, inner([&] { v.expr = line.expr({")"}); });
  }
  TensorType &t = v.type;
  t.dtype = line.dtype(), t.sizes = line.list();
  if (line.eat("strides")) {
    line.expect("(");
    while (!line.failed() && !line.eat(")")) {
      if (!t.strides.empty()) line.expect(",");
      t.strides.push_back(line.expr({",", ")"}));
    }
  } else {
    t.strides.resize(t.sizes.size());
    Expr stride = 1;
    for (size_t d = t.sizes.size(); d-- > 0;) t.strides[d] = stride, stride = stride * t.sizes[d];
  }
  if (line.eat("offset")) t.offset = line.expr({",", "  //", " storage "});
}

class GraphReader {
public:
  GraphReader(Lines &lines, Graph &g) : lines_(lines), g_(g) {}

  /// From "inputs:" to the last line of the outputs; `line` says what is wrong. Inside a node, up to "}".
  void read(Line &line, bool inside) {
    section("inputs:", line, [&](Line &one) {
      if (one.eat("(constant)")) return g_.inputs.push_back(ValueId());
      g_.inputs.push_back(typed(one));
    });
    if (Line(lines_.peek()).next("sizes:")) section("sizes:", line, [&](Line &one) { typed(one); });
    section("nodes:", line, [&](Line &one) { node(one); });
    section("outputs:", line, [&](Line &one) { g_.outputs.push_back(argument(one)); });
    if (!inside || line.failed()) return;
    line = Line(lines_.next());
    line.expect("}");
  }

  /// One argument of an operator.
  Argument argument(Line &line) {
    if (line.eat("none")) return None{};
    if (line.eat("true")) return true;
    if (line.eat("false")) return false;
    if (line.eat("inf")) return std::numeric_limits<double>::infinity();
    if (line.eat("-inf")) return -std::numeric_limits<double>::infinity();
    if (line.eat("nan") || line.eat("-nan")) return std::numeric_limits<double>::quiet_NaN();
    if (line.next("%")) return value(line);
    if (line.next("\"")) return line.quotedText();
    if (line.eat("values[]")) return std::vector<ValueId>();
    if (line.eat("reals[]")) return std::vector<double>();
    if (line.eat("bools[]")) return std::vector<bool>();
    if (line.eat("strings[]")) return std::vector<std::string>();
    if (line.eat("[")) return list(line);
    if (line.eat("{")) return braces(line);
    if (line.nextIsNumber()) return number(line);
    return named(line);
  }

private:
  Lines &lines_;
  Graph &g_;
  std::unordered_map<std::string, ValueId> values_;

  template <typename F> void section(const char *title, Line &line, F one) {
    if (line.failed()) return;
    line = Line(lines_.next());
    line.expect(title);
    const int indent = line.indent();
    while (!line.failed() && !lines_.atEnd() && Line(lines_.peek()).indent() > indent) {
      line = Line(lines_.next());
      one(line);
      if (!line.failed() && !line.atEnd()) line.error("nothing more is expected");
    }
  }

  ValueId define(Line &line, std::string_view word) {
    if (word == "none") return ValueId();
    if (!word.starts_with('%')) return line.error(fmt::format("'{}' is no value,", word)), ValueId();
    Value v;
    v.name = std::string(word.substr(1)), v.id = ValueId(static_cast<int64_t>(g_.values.size()));
    if (!values_.emplace(v.name, v.id).second) line.error(fmt::format("there is another value '{}',", v.name));
    g_.values.push_back(v);
    return v.id;
  }
  /// %x: f32[8]
  ValueId typed(Line &line) {
    const ValueId id = define(line, line.until(":"));
    line.expect(":");
    if (id.valid()) readType(line, g_.value(id));
    return id;
  }
  ValueId value(Line &line) {
    if (line.eat("none")) return ValueId();
    line.expect("%");
    const std::string name(line.until(" ,)]}"));
    auto it = values_.find(name);
    if (it == values_.end()) return line.error(fmt::format("there is no value '{}',", name)), ValueId();
    return it->second;
  }

  Argument number(Line &line) {
    const std::string word(line.until(" ,)]}"));
    Line of(word);
    const bool real = word.find_first_of(".en") != std::string::npos;
    Argument out;
    if (real)
      out = of.real();
    else
      out = of.integer();
    if (of.failed() || !of.atEnd()) line.error(fmt::format("'{}' is no number,", word));
    return out;
  }

  /// A word, or a word with something in parentheses.
  Argument named(Line &line) {
    auto whole = [&] {
      const int64_t n = line.integer();
      line.expect(")");
      return static_cast<int>(n);
    };
    if (line.eat("memory_format(")) return MemoryFormat{whole()};
    if (line.eat("layout(")) return Layout{whole()};
    if (line.eat("device(")) {
      Device d;
      d.type = std::string(line.until(":)"));
      if (line.eat(":")) d.index = static_cast<int>(line.integer());
      line.expect(")");
      return d;
    }
    if (line.eat("complex(")) {
      ComplexValue c{line.real(), 0};
      line.expect(","), c.imag = line.real(), line.expect(")");
      return c;
    }
    if (line.eat("object(")) {
      CustomObject o;
      o.name = std::string(line.until(",")), line.expect(","), o.className = std::string(line.until(")"));
      line.expect(")");
      return o;
    }
    return line.dtype();
  }

  /// What follows "[": the elements decide which kind of list it is.
  Argument list(Line &line) {
    std::vector<Argument> all;
    while (!line.failed() && !line.eat("]")) {
      if (!all.empty()) line.expect(",");
      all.push_back(argument(line));
    }
    auto are = [&](auto like) {
      using T = decltype(like);
      return std::all_of(all.begin(), all.end(), [](const Argument &a) { return std::holds_alternative<T>(a); });
    };
    auto take = [&](auto like) {
      std::vector<decltype(like)> out;
      for (const Argument &a : all) out.push_back(std::get<decltype(like)>(a));
      return out;
    };
    auto isInt = [&](const Argument &a) {
      const ValueId *v = std::get_if<ValueId>(&a);
      return std::holds_alternative<int64_t>(a) || (v && g_.value(*v).kind == Value::Kind::SymInt);
    };
    if (line.failed()) return None{};
    if (std::all_of(all.begin(), all.end(), isInt)) {
      std::vector<IntOrSym> out;
      for (const Argument &a : all)
        if (const int64_t *i = std::get_if<int64_t>(&a))
          out.push_back(*i);
        else
          out.push_back(std::get<ValueId>(a));
      return out;
    }
    if (are(double())) return take(double());
    if (are(bool())) return take(bool());
    if (are(std::string())) return take(std::string());
    if (are(std::vector<IntOrSym>())) {
      std::vector<std::vector<int64_t>> out;
      for (const Argument &a : all) {
        out.emplace_back();
        for (const IntOrSym &i : std::get<std::vector<IntOrSym>>(a))
          if (const int64_t *n = std::get_if<int64_t>(&i)) out.back().push_back(*n);
      }
      return out;
    }
    if (are(std::vector<double>())) return take(std::vector<double>());
    if (are(std::vector<ValueId>())) return take(std::vector<ValueId>());
    std::vector<ValueId> out;
    for (const Argument &a : all) {
      const ValueId *v = std::get_if<ValueId>(&a);
      if (!v && !std::holds_alternative<None>(a)) line.error("a list of one kind is expected");
      out.push_back(v ? *v : ValueId());
    }
    return out;
  }

  /// What follows "{": a graph, which takes the lines that come, or named arguments.
  Argument braces(Line &line) {
    if (line.atEnd()) {
      auto graph = std::make_shared<Graph>();
      GraphReader(lines_, *graph).read(line, true);
      return graph;
    }
    auto dict = std::make_shared<ArgumentDict>();
    while (!line.failed() && !line.eat("}")) {
      if (!dict->entries.empty()) line.expect(",");
      std::string key(line.until(":"));
      line.expect(":");
      dict->entries.emplace_back(std::move(key), argument(line));
    }
    return dict;
  }

  void node(Line &line) {
    Node n;
    std::vector<std::string> names;
    // Results: %a, [%b, %c] = …
    if (line.next("%") || line.next("[") || line.next("none")) {
      do {
        std::vector<ValueId> &out = n.outputs.emplace_back();
        Node::Return &declared = n.returns.emplace_back(Node::Return::Plain);
        if (!line.eat("[")) {
          std::string_view name = line.until(" ,");
          declared = name.ends_with('?') ? Node::Return::Optional : name.ends_with('!') ? Node::Return::Other : Node::Return::Plain;
          if (declared != Node::Return::Plain) name.remove_suffix(1);
          out.push_back(define(line, name));
          continue;
        }
        while (!line.failed() && !line.eat("]")) {
          if (!out.empty()) line.expect(",");
          out.push_back(define(line, line.until(" ,]")));
        }
        declared = line.eat("?") ? Node::Return::Optional : line.eat("!") ? Node::Return::Other : out.empty() ? Node::Return::Plain : Node::Return::List;
      } while (line.eat(","));
      line.expect("=");
    }
    n.target = std::string(line.until("("));
    line.expect("(");
    while (!line.failed() && !line.eat(")")) {
      if (!n.args.empty()) line.expect(",");
      n.argNames.push_back(argumentName(line));
      n.args.push_back(argument(line));
    }
    if (line.next("launch ")) return line.error("the text does not hold a user's kernel,");
    if (!n.outputs.empty() && !n.outputs[0].empty() && n.outputs[0][0].valid())
      n.name = g_.value(n.outputs[0][0]).name;
    if (line.eat("named")) n.name = line.token();
    if (line.eat(":")) types(line, n);
    if (line.eat("//")) {
      n.loc.file = std::string(line.until(":"));
      line.expect(":"), n.loc.line = static_cast<int>(line.integer());
    }
    g_.nodes.push_back(std::move(n));
  }
  /// "name=" before an argument; "" if there is none.
  std::string argumentName(Line &line) {
    Line ahead = line;
    std::string word(ahead.until("= ,()[]{}%\""));
    if (word.empty() || !ahead.next("=")) return "";
    line = ahead;
    line.expect("=");
    return word;
  }
  void types(Line &line, const Node &n) {
    bool first = true;
    for (const std::vector<ValueId> &out : n.outputs)
      for (ValueId id : out) {
        if (!id.valid()) continue;
        if (!first) line.expect(",");
        readType(line, g_.value(id));
        first = false;
      }
  }
};

class ModelReader {
public:
  ModelReader(Lines &lines, Model &m) : lines_(lines), m_(m), graph_(lines, m.graph) {}

  /// `line` says what is wrong.
  void read(Line &line) {
    line.expect("model"), m_.name = line.quotedText();
    line.expect("("), line.expect("torch"), m_.torchVersion = std::string(line.until(","));
    line.expect(","), line.expect("schema"), m_.schemaMajor = static_cast<int>(line.integer());
    line.expect("."), m_.schemaMinor = static_cast<int>(line.integer()), line.expect(")");
    // Constants and outputs name values of the graph, which comes behind them: they are read again then.
    std::vector<std::pair<size_t, std::string>> constants, outputs;
    while (!line.failed() && line.atEnd() && !lines_.atEnd() && lines_.peek() != "inputs:") {
      line = Line(lines_.next());
      one(line, constants, outputs);
    }
    if (!line.failed() && !line.atEnd()) line.error("nothing more is expected");
    graph_.read(line, false);
    for (auto &[k, text] : constants) late(line, text, m_.inputs[k].constant);
    for (auto &[k, text] : outputs) late(line, text, m_.outputs[k].value);
    if (line.failed()) return;
    if (m_.inputs.size() != m_.graph.inputs.size() || m_.outputs.size() != m_.graph.outputs.size())
      return line.error("the model's inputs or outputs are not as many as the graph's");
    for (size_t k = 0; k < m_.inputs.size(); ++k) m_.inputs[k].value = m_.graph.inputs[k];
  }

private:
  Lines &lines_;
  Model &m_;
  GraphReader graph_;

  void late(Line &line, const std::string &text, Argument &to) {
    if (line.failed()) return;
    Line words(text);
    to = graph_.argument(words);
    if (!words.failed() && !words.atEnd()) words.error("nothing more is expected");
    if (words.failed()) line.error(words.why);
  }

  void one(Line &line, std::vector<std::pair<size_t, std::string>> &constants,
           std::vector<std::pair<size_t, std::string>> &outputs) {
    if (line.eat("range")) {
      Line name(line.until(":"));
      const Symbol s = name.symbol();
      if (name.failed()) return line.error(name.why);
      line.expect(":");
      m_.facts.setRange(s, line.interval());
    } else if (line.eat("rounded")) {
      Line name(line.until("="));
      const Symbol s = name.symbol();
      if (name.failed()) return line.error(name.why);
      line.expect("=");
      Result<RoundedSize> size = parseRounded(line.remainder(), s);
      if (!size) return line.error("a number that is rounded is expected");
      m_.rounded.add(std::move(*size));
    } else if (line.eat("packs")) {
      line.expect("int4"), line.expect("as");
      m_.int4Packing = named(kInt4Packings, line.until(" ")).value_or(Int4Packing::Unknown);
      if (m_.int4Packing == Int4Packing::Unknown) line.error("no machine packs weights so");
    } else if (line.eat("guard")) {
      m_.guards.push_back(line.expr({}));
    } else if (line.eat("assert")) {
      Assertion a{line.expr({" says "}), ""};
      line.expect("says"), a.message = line.quotedText();
      m_.assertions.push_back(std::move(a));
    } else if (line.eat("storage")) {
      storage(line);
    } else if (line.eat("weight")) {
      weight(line);
    } else if (line.eat("input")) {
      if (std::string text = input(line); !text.empty()) constants.emplace_back(m_.inputs.size() - 1, std::move(text));
    } else if (line.eat("output")) {
      std::string text = output(line);
      if (!text.empty()) outputs.emplace_back(m_.outputs.size() - 1, std::move(text));
    } else if (line.eat("parameters")) {
      while (!line.failed() && !line.atEnd()) {
        if (!m_.argumentNames.empty()) line.expect(",");
        m_.argumentNames.emplace_back(line.until(","));
      }
    } else if (line.eat("arguments")) {
      m_.inSpec = std::string(line.remainder());
    } else if (line.eat("results")) {
      m_.outSpec = std::string(line.remainder());
    } else {
      line.error("a line of a model is expected");
    }
  }

  void storage(Line &line) {
    Storage s;
    if (line.integer() != static_cast<int64_t>(m_.storages.size())) line.error("storages are not in order");
    line.expect(":"), s.bytes = line.integer(), line.expect("bytes");
    if (line.eat("at")) s.fileOffset = line.integer();
    if (line.eat("=")) {
      auto bytes = std::make_shared<std::vector<uint8_t>>(line.hex());
      if (static_cast<int64_t>(bytes->size()) != s.bytes) line.error("the bytes are not as many as said");
      s.data = bytes->data(), s.owner = std::move(bytes);
    }
    m_.storages.push_back(std::move(s));
  }

  void weight(Line &line) {
    Weight w;
    w.fqn = line.quotedText();
    if (line.eat("buffer"))
      w.kind = Weight::Kind::Buffer;
    else if (line.eat("constant"))
      w.kind = Weight::Kind::Constant;
    else
      line.expect("parameter");
    w.persistent = !line.eat("(not persistent)");
    line.expect(":");
    Value v;
    readType(line, v);
    w.type = v.type;
    line.expect("storage"), w.storage = static_cast<int>(line.integer());
    m_.weights.push_back(std::move(w));
  }

  /// The text of the value of a constant.
  std::string input(Line &line) {
    Input in;
    std::string late;
    in.name = std::string(line.until(":")), line.expect(":");
    if (line.eat("user")) {
      in.kind = Input::Kind::User;
      if (line.eat("reshaped")) in.reshaped = std::string(line.remainder());
    } else if (line.eat("weight")) {
      in.kind = Input::Kind::Weight;
      const std::string fqn = line.quotedText();
      for (size_t k = 0; k < m_.weights.size() && in.weight < 0; ++k)
        if (m_.weights[k].fqn == fqn) in.weight = static_cast<int>(k);
      if (in.weight < 0) line.error(fmt::format("there is no weight '{}'", fqn));
    } else if (line.eat("constant")) {
      in.kind = Input::Kind::Constant;
      late = std::string(line.remainder());
    } else if (line.eat("token")) {
      in.kind = Input::Kind::Token;
    } else {
      line.expect("custom"), line.expect("object");
      in.kind = Input::Kind::CustomObj;
    }
    m_.inputs.push_back(std::move(in));
    return late;
  }

  /// The text of its value.
  std::string output(Line &line) {
    Output o;
    std::string late;
    if (line.eat("token")) {
      o.kind = Output::Kind::Token, late = std::string(line.remainder());
    } else {
      const std::string_view rest = line.remainder();
      // Before the last arrow, which no text in quotes of a mutation's target has.
      const size_t arrow = rest.find(" -> ");
      late = std::string(rest.substr(0, arrow));
      if (arrow != std::string_view::npos) {
        Line target(rest.substr(arrow + 4));
        if (target.eat("input"))
          o.kind = Output::Kind::InputMutation, o.target = target.token();
        else if (target.eat("buffer"))
          o.kind = Output::Kind::BufferMutation, o.target = target.quotedText();
        else
          target.expect("parameter"), o.kind = Output::Kind::ParameterMutation, o.target = target.quotedText();
        if (target.failed()) line.error(target.why);
      }
    }
    m_.outputs.push_back(std::move(o));
    return late;
  }
};

} // namespace

Result<Model> parse(std::string_view text, const std::string &file) {
  Lines lines(text);
  Model model;
  Line line(lines.next());
  ModelReader(lines, model).read(line);
  if (!line.failed() && !lines.atEnd()) line.error("nothing more is expected");
  if (line.failed()) return fail(diag::GraphSyntax, SourceLoc{file, lines.number(), 0, {}}, line.why);
  return model;
}

} // namespace neso::graph
