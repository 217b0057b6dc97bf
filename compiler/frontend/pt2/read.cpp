#include "frontend/pt2/read.h"

#include <algorithm>
#include <cctype>

#include "abi/archive.h"
#include "base/diagnostics/pt2.h"
#include "base/fault.h"
#include "base/words.h"
#include "frontend/pt2/archive.h"
#include "frontend/pt2/guards.h"
#include "frontend/pt2/input_strides.h"
#include "frontend/pt2/read_graph.h"
#include "frontend/pt2/weights.h"
#include "ir/graph/verify.h"

namespace neso::pt2 {
namespace {

using graph::Argument;
using graph::Input;
using graph::Output;
using graph::ValueId;

std::string trimmed(std::string_view s) {
  size_t a = s.find_first_not_of(" \t\r\n"), b = s.find_last_not_of(" \t\r\n");
  return a == std::string_view::npos ? std::string() : std::string(s.substr(a, b - a + 1));
}

/// The texts that say what kind of archive this is.
Status checkHeader(const Archive &a) {
  struct Row {
    const char *member, *required;
    bool must;
  };
  for (Row row :
       {Row{"archive_format", "pt2", true}, Row{"archive_version", "0", false}, Row{"byteorder", "little", false}}) {
    const Member *m = a.find(row.member);
    if (!m && row.must) {
      if (a.find("data.pkl") || a.find("constants.pkl"))
        return fail(diag::NotAnArchive, {}, a.path(), "it is a torch.save or TorchScript file");
      return fail(diag::MemberMissing, a.loc(), row.member);
    }
    if (m && trimmed(a.text(*m)) != row.required)
      return fail(diag::NotPt2, a.loc(), row.member, trimmed(a.text(*m).substr(0, 60)), row.required);
  }
  return Status::ok();
}

Result<std::string> chooseModel(const Archive &a, const std::string &wanted) {
  std::vector<std::string> names;
  for (const Member &m : a.members())
    if (m.name.starts_with("models/") && m.name.size() > 12 && m.name.ends_with(".json"))
      names.push_back(m.name.substr(7, m.name.size() - 12));
  std::string pick = !wanted.empty() ? wanted : names.size() == 1 ? names[0] : "model";
  for (const std::string &n : names)
    if (n == pick) return n;
  if (!names.empty()) return fail(diag::ModelChoice, a.loc(), fmt::format("'{}'", fmt::join(names, "', '")));
  bool compiled = std::any_of(a.members().begin(), a.members().end(),
                              [](const Member &m) { return m.name.starts_with(NESO_ARCHIVE_MODEL_FOLDER); });
  if (compiled) return fail(diag::AlreadyCompiled, {}, a.path());
  if (std::any_of(a.members().begin(), a.members().end(), [](const Member &m) { return m.name.starts_with("data/aotinductor/"); }))
    return fail(diag::CompiledByTorch, {}, a.path());
  return fail(diag::MemberMissing, a.loc(), "models/model.json");
}

class ModelReader {
public:
  ModelReader(const Archive &a, std::string member) : archive_(a), r_(a.path(), std::move(member)) {}

  Result<graph::Model> read(Json root, WeightTable &weights) {
    for (const Member &m : archive_.members())
      if (m.name.rfind("extra/", 0) == 0) m_.extraFiles.emplace(m.name.substr(6), std::string(archive_.text(m)));
    if (const auto names = m_.extraFiles.find("neso_sizes"); names != m_.extraFiles.end()) r_.sizeNames = readSizeNames(names->second);
    Json version = r_.get(root, "schema_version");
    m_.schemaMajor = r_.ok() ? static_cast<int>(r_.integer(version, "major")) : 0;
    m_.schemaMinor = r_.ok() ? static_cast<int>(r_.integer(version, "minor")) : 0;
    if (r_.ok() && m_.schemaMajor != 8) r_.report(diag::SchemaVersion, m_.schemaMajor, m_.schemaMinor);
    if (std::optional<Json> v = r_.optional(root, "torch_version")) m_.torchVersion = r_.asString(*v, "torch_version");
    readDialect(root);
    Json module = r_.get(root, "graph_module");
    Json json = r_.ok() ? r_.get(module, "graph") : Json();
    if (!r_.ok()) return r_.takeError();
    GraphReader graph(r_, 0);
    m_.graph = graph.read(json);
    if (!r_.ok()) return r_.takeError();
    readCallingConvention(module);
    Json signature = r_.get(module, "signature");
    if (r_.ok()) readInputs(signature, graph, weights);
    if (r_.ok()) readOutputs(signature);
    if (r_.ok()) readRanges(root);
    if (r_.ok()) readGuards(root);
    if (r_.ok())
      if (std::optional<graph::UnknownSymbol> s = settleInputStrides(m_)) r_.report(diag::StrideAsked, s->symbol.str(), s->place);
    if (r_.ok())
      if (std::optional<graph::UnknownSymbol> s = graph::unknownSymbol(m_)) r_.report(diag::UndefinedSize, s->symbol.str(), s->place);
    if (!r_.ok()) return r_.takeError();
    if (const auto said = m_.extraFiles.find("neso_cpu_capability"); said != m_.extraFiles.end())
      m_.int4Packing = named(graph::kInt4Packings, said->second).value_or(graph::Int4Packing::Unknown);
    return std::move(m_);
  }

private:
  /// Which rules torch says that the graph obeys: all but TRAINING have functional operators only.
  void readDialect(Json root) {
    const std::optional<Json> dialects = r_.ok() ? r_.optional(root, "verifiers") : std::nullopt;
    if (!dialects) return;
    for (Json d : r_.asArray(*dialects, "verifiers")) {
      if (!r_.ok()) return;
      m_.functional = r_.asString(d, "verifiers") != "TRAINING";
      if (!m_.functional) return;
    }
  }
  void mismatch(std::string why) { r_.report(diag::SignatureMismatch, why); }

  void readInputs(Json signature, const GraphReader &reader, WeightTable &weights) {
    simdjson::dom::array specs = r_.array(signature, "input_specs");
    if (!r_.ok()) return;
    const std::vector<Argument> &args = reader.inputArguments();
    if (specs.size() != args.size())
      return mismatch(fmt::format("it lists {} inputs, the graph has {}", specs.size(), args.size()));
    size_t i = 0;
    for (Json spec : specs) {
      auto [kind, body] = r_.asUnion(spec, "input_specs");
      if (!r_.ok()) return;
      Input in;
      in.value = m_.graph.inputs[i];
      if (in.value.valid()) in.name = m_.graph.value(in.value).name;
      // The signature names the same value as the graph.
      auto sameName = [&](std::string_view name) {
        if (name != in.name) mismatch(fmt::format("its input {} is '{}', the graph's '{}'", i, name, in.name));
      };
      auto weight = [&](const char *key, graph::Weight::Kind k, bool persistent) {
        in.kind = Input::Kind::Weight;
        Json arg = r_.get(body, "arg");
        if (r_.ok()) sameName(r_.string(arg, "name"));
        std::string_view fqn = r_.string(body, key);
        if (!r_.ok()) return;
        Result<int> index = weights.add(m_, fqn, k, persistent, r_.loc());
        if (!index) return r_.adopt(index.takeError());
        in.weight = *index;
        checkType(in, m_.weights[static_cast<size_t>(*index)]);
      };
      if (kind == "user_input") {
        Json arg = r_.get(body, "arg");
        if (r_.ok()) readUserInput(arg, in, args[i]);
      } else if (kind == "parameter") {
        weight("parameter_name", graph::Weight::Kind::Parameter, true);
      } else if (kind == "buffer") {
        Json persistent = r_.get(body, "persistent");
        if (r_.ok()) weight("buffer_name", graph::Weight::Kind::Buffer, r_.asBool(persistent, "persistent"));
      } else if (kind == "tensor_constant") {
        weight("tensor_constant_name", graph::Weight::Kind::Constant, false);
      } else if (kind == "constant_input") {
        in.kind = Input::Kind::Constant;
        in.name = r_.string(body, "name");
        in.constant = args[i];
        if (in.value.valid()) mismatch(fmt::format("its input {} is a constant, the graph's a value", i));
      } else if (kind == "token") {
        in.kind = Input::Kind::Token;
      } else if (kind == "custom_obj") {
        in.kind = Input::Kind::CustomObj;
        in.name = r_.string(body, "custom_obj_name");
      } else {
        r_.report(diag::UnknownArgument, "input_specs", kind);
      }
      if (!r_.ok()) return;
      m_.inputs.push_back(std::move(in));
      ++i;
    }
  }

  void readUserInput(Json arg, Input &in, const Argument &fromGraph) {
    auto [kind, value] = r_.asUnion(arg, "user_input");
    if (!r_.ok()) return;
    if (in.value.valid()) {
      std::string_view name;
      if (kind == "as_tensor" || kind == "as_custom_obj")
        name = r_.string(value, "name");
      else if (kind == "as_sym_int" || kind == "as_sym_float" || kind == "as_sym_bool") {
        auto [k, v] = r_.asUnion(value, "user_input");
        if (r_.ok()) name = r_.asString(v, "user_input");
      }
      if (r_.ok() && name != in.name) mismatch(fmt::format("its input is '{}', the graph's '{}'", name, in.name));
    } else {
      in.kind = Input::Kind::Constant;
      in.constant = fromGraph;
    }
  }

  /// The payload and the graph must agree on what a weight is.
  void checkType(const Input &in, const graph::Weight &w) {
    const graph::Value &v = m_.graph.value(in.value);
    if (v.kind != graph::Value::Kind::Tensor) return mismatch(fmt::format("'{}' is no tensor", in.name));
    if (v.type.dtype != w.type.dtype || v.type.sizes != w.type.sizes)
      mismatch(fmt::format("'{}' has another type or size in the graph than the weight '{}' has", in.name, w.fqn));
  }

  void readOutputs(Json signature) {
    simdjson::dom::array specs = r_.array(signature, "output_specs");
    if (!r_.ok()) return;
    const std::vector<Argument> &values = m_.graph.outputs;
    if (specs.size() != values.size())
      return mismatch(fmt::format("it lists {} outputs, the graph has {}", specs.size(), values.size()));
    size_t i = 0;
    for (Json spec : specs) {
      auto [kind, body] = r_.asUnion(spec, "output_specs");
      if (!r_.ok()) return;
      Output out;
      out.value = values[i++];
      if (kind == "user_output" || kind == "loss_output") {
        out.kind = Output::Kind::User;
      } else if (kind == "buffer_mutation") {
        out.kind = Output::Kind::BufferMutation;
        out.target = r_.string(body, "buffer_name");
      } else if (kind == "parameter_mutation") {
        out.kind = Output::Kind::ParameterMutation;
        out.target = r_.string(body, "parameter_name");
      } else if (kind == "user_input_mutation") {
        out.kind = Output::Kind::InputMutation;
        out.target = r_.string(body, "user_input_name");
      } else if (kind == "token") {
        out.kind = Output::Kind::Token;
      } else if (kind == "gradient_to_parameter" || kind == "gradient_to_user_input") {
        // A gradient is returned like any other output.
        out.kind = Output::Kind::User;
        out.target = r_.string(body, kind == "gradient_to_parameter" ? "parameter_name" : "user_input_name");
      } else {
        r_.report(diag::UnknownArgument, "output_specs", kind);
      }
      if (!r_.ok()) return;
      if (out.kind != Output::Kind::User && out.kind != Output::Kind::Token &&
          !std::holds_alternative<ValueId>(out.value))
        return mismatch(fmt::format("what is written to '{}' is no value", out.target));
      if (out.kind == Output::Kind::BufferMutation || out.kind == Output::Kind::ParameterMutation) {
        bool found = false;
        for (const graph::Weight &w : m_.weights) found |= w.fqn == out.target;
        if (!found) return mismatch(fmt::format("'{}' is written but is no weight", out.target));
      }
      if (out.kind == Output::Kind::InputMutation) {
        bool found = false;
        for (const Input &in : m_.inputs) found |= in.kind == Input::Kind::User && in.name == out.target;
        if (!found) return mismatch(fmt::format("'{}' is written but is no input", out.target));
      }
      m_.outputs.push_back(std::move(out));
    }
  }

  void readCallingConvention(Json module) {
    for (Json entry : r_.array(module, "module_call_graph")) {
      std::string_view fqn = r_.string(entry, "fqn");
      std::optional<Json> s = r_.optional(entry, "signature");
      if (!r_.ok()) return;
      if (!fqn.empty() || !s) continue;
      m_.inSpec = r_.string(*s, "in_spec");
      m_.outSpec = r_.string(*s, "out_spec");
      if (std::optional<Json> names = r_.optional(*s, "forward_arg_names"))
        for (Json n : r_.asArray(*names, "forward_arg_names"))
          m_.argumentNames.emplace_back(r_.asString(n, "forward_arg_names"));
      return;
    }
  }

  void readRanges(Json root) {
    for (auto [name, range] : r_.object(root, "range_constraints")) {
      Interval interval;
      if (std::optional<Json> lo = r_.optional(range, "min_val")) interval.lo = r_.asInt(*lo, "min_val");
      if (std::optional<Json> hi = r_.optional(range, "max_val")) interval.hi = r_.asInt(*hi, "max_val");
      if (!r_.ok()) return;
      if (interval.lo > interval.hi)
        return r_.bad(name, fmt::format("its range [{}, {}] is empty", interval.lo, interval.hi));
      m_.facts.setRange(r_.sizeNames.in(Symbol::size(name)), interval);
    }
    for (const auto &[symbol, size] : r_.hints()) m_.facts.setHint(symbol, size);
    for (const RoundedSize &r : r_.rounded.all()) {
      for (Symbol s : symbolsOf(r.of))
        if (r_.floats.contains(s)) return r_.bad(print(r.rounding, r.of), "it is rounded from a float that data decides");
    }
    m_.rounded = r_.rounded;
    for (RoundedSize &r : m_.rounded.all()) mapWhole(r.of, [&](Expr whole) { return r_.sizeNames.in(whole).value_or(whole); });
    boundRounded();
  }

  void boundRounded() {
    for (const RoundedSize &r : m_.rounded.all()) m_.facts.setRange(r.symbol, {mayBeNegative(r.of, m_.facts) ? INT64_MIN : 0, INT64_MAX});
  }

  /// Whether it speaks of a number that a run has to compute first.
  bool needsRounded(Expr e) const {
    return std::any_of(m_.rounded.all().begin(), m_.rounded.all().end(), [&](const RoundedSize &r) { return uses(e, r.symbol); });
  }

  void readGuards(Json root) {
    std::optional<Json> guards = r_.optional(root, "guards_code");
    if (!guards) return;
    GuardReader reader(m_);
    for (Json g : r_.asArray(*guards, "guards_code")) {
      std::string_view text = r_.asString(g, "guards_code");
      if (!r_.ok()) return;
      std::string why;
      std::optional<Expr> e = reader.read(text, why);
      if (!e)
        m_.warnings.push_back(makeDiag(diag::GuardIgnored, archive_.loc(), text, why));
      else if (needsRounded(*e))
        addAssertion(m_.assertions, {*e, fmt::format("the export's guard {} does not hold", text)});
      else if (!e->isConst() || e->isConst(0))
        m_.guards.push_back(*e);
    }
    boundRounded();
  }

  const Archive &archive_;
  JsonReader r_;
  graph::Model m_;
};

/// Whether a number that is wider than int64 says there no more than the widest one does: a bound of range_constraints, or what a size is compared
/// with. No size is wider.
bool isBound(std::string_view before) {
  constexpr std::string_view kTarget = "\"target\":";
  const size_t section = before.rfind("\"range_constraints\""), node = before.rfind(kTarget);
  if (section != std::string_view::npos && (node == std::string_view::npos || section > node)) return true;
  if (node == std::string_view::npos) return false;
  std::string_view target = before.substr(node + kTarget.size());
  target.remove_prefix(std::min(target.find('"') + 1, target.size()));
  target = target.substr(0, target.find('"'));
  for (std::string_view name : {"_operator.le", "_operator.lt", "_operator.ge", "_operator.gt", "_operator.eq", "_operator.ne"})
    if (target == name) return true;
  return false;
}

/// The text with bounds within int64: torch writes them as wide as the user gave them or as it derived them. nullopt: none of them is wider.
std::optional<std::string> withNarrowBounds(std::string_view text) {
  constexpr std::string_view kMost = "9223372036854775807";
  std::string out;
  size_t kept = 0; // what of the text is in `out`
  for (size_t at = text.find_first_of("\"0123456789"); at != std::string_view::npos; at = text.find_first_of("\"0123456789", at)) {
    if (text[at] == '"') {
      for (++at; at < text.size() && text[at] != '"'; ++at) at += text[at] == '\\';
      ++at;
      continue;
    }
    const size_t end = std::min(text.find_first_not_of("0123456789", at), text.size());
    const std::string_view digits = text.substr(at, end - at);
    const bool wide = digits.size() > kMost.size() || (digits.size() == kMost.size() && digits > kMost);
    const bool whole = end < text.size() && std::string_view(",]} \n\r\t").find(text[end]) != std::string_view::npos;
    const char before = at > 0 ? text[at - 1] : ' ';
    if (wide && whole && before != '.' && before != '+' && before != '-' && isBound(text.substr(0, at))) {
      out += text.substr(kept, at - kept);
      out += kMost;
      kept = end;
    }
    at = end;
  }
  if (!kept) return std::nullopt;
  out += text.substr(kept);
  return out;
}

Result<graph::Model> readArchive(const Archive &archive, const ReadOptions &options) {
  if (Status s = checkHeader(archive); !s) return s.takeError();
  Result<std::string> name = chooseModel(archive, options.model);
  if (!name) return name.takeError();
  const Member &member = *archive.find("models/" + *name + ".json");
  if (Status s = archive.verify(member); !s) return s.takeError();
  simdjson::dom::parser parser;
  std::string_view text = archive.text(member);
  const std::optional<std::string> narrowed = withNarrowBounds(text);
  if (narrowed) text = *narrowed;
  Json root;
  if (auto err = parser.parse(text.data(), text.size(), true).get(root))
    return fail(diag::BadJson, archive.loc(member.name), simdjson::error_message(err));
  Result<WeightTable> weights = WeightTable::read(archive, *name, options.checkWeights);
  if (!weights) return weights.takeError();
  Result<graph::Model> model = ModelReader(archive, member.name).read(root, *weights);
  if (model) model->name = *name;
  return model;
}

} // namespace

Result<graph::Model> readPt2(const std::string &path, const ReadOptions &options) {
  Working stage("reading the model");
  Result<Archive> archive = Archive::open(path);
  if (!archive) return archive.takeError();
  return readArchive(*archive, options);
}

Result<graph::Model> readPt2(std::shared_ptr<const void> owner, const uint8_t *data, int64_t size, std::string name,
                             const ReadOptions &options) {
  Result<Archive> archive = Archive::fromMemory(std::move(owner), data, size, std::move(name));
  if (!archive) return archive.takeError();
  return readArchive(*archive, options);
}

} // namespace neso::pt2
