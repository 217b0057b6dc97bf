#include "package/operator_calls.h"

#include <cmath>

#include "base/diagnostics/package.h"
#include "base/dtype.h"
#include "base/json.h"
#include "ir/plan/steps.h"

namespace neso {
namespace {
using loops::ExternSpec;
using Argument = ExternSpec::Argument;

template <typename List, typename F> std::string listed(const List &list, F &&text) {
  std::string out;
  for (const auto &x : list) out += (out.empty() ? "" : ", ") + std::string(text(x));
  return "[" + out + "]";
}

/// Writes the nodes of one plan.
class Nodes {
public:
  /// Why the loader cannot make the call; empty: nothing is in the way.
  std::string problem;

  std::string node(const plan::CallExtern &call) {
    const ExternSpec &spec = call.call;
    constexpr std::string_view kAsks = ":sizes";
    std::string_view op = spec.op;
    if (!spec.asked.empty()) op.remove_suffix(kAsks.size());
    std::string inputs;
    for (const Argument &a : spec.arguments)
      inputs += fmt::format("{}{{\"name\": {}, \"arg\": {}, \"kind\": 1}}", inputs.empty() ? "" : ", ", jsonString(a.name), argument(a));
    return fmt::format("{{\"name\": {}, \"node\": {{\"target\": {}, \"inputs\": [{}], \"outputs\": {}, \"metadata\": {{}}}}}}", jsonString(call.name), jsonString(op),
                       inputs, listed(spec.results, [&](const ExternSpec::Result &r) { return result(r); }));
  }

private:
  static std::string only(std::string_view kind, std::string_view value) { return fmt::format("{{\"{}\": {}}}", kind, value); }
  /// Nobody looks at the names of values: each has another.
  std::string tensor() { return fmt::format("{{\"name\": \"t{}\"}}", values_++); }
  std::string boolean(Expr e) {
    if (!e.isConst()) problem = "a bool that is not known before the run";
    return e.isConst() && e.constValue() ? "true" : "false";
  }
  std::string real(double d) {
    if (!std::isfinite(d)) problem = "a number that is not finite, which JSON does not have";
    return fmt::format("{:.17g}", d);
  }
  static int64_t integer(const Argument &a) { return a.ints[0].constValue(); }

  std::string argument(const Argument &a) {
    using Kind = Argument::Kind;
    if ((a.kind == Kind::Tensors && a.tensors.empty()) || (a.kind == Kind::Ints && a.ints.empty())) problem = "an empty list of tensors or integers, for which the loader passes None";
    switch (a.kind) {
    case Kind::None: return only("as_none", "true");
    case Kind::Tensor: return a.tensors[0].buffer.valid() ? only("as_tensor", tensor()) : only("as_none", "true");
    case Kind::Tensors: {
      const bool all = std::all_of(a.tensors.begin(), a.tensors.end(), [](const ExternSpec::View &v) { return v.buffer.valid(); });
      return only(all ? "as_tensors" : "as_optional_tensors", listed(a.tensors, [&](const ExternSpec::View &v) {
                    return all ? tensor() : v.buffer.valid() ? only("as_tensor", tensor()) : only("as_none", "true");
                  }));
    }
    // The kind of an integer for which every loader asks the run, also where a Scalar is expected.
    case Kind::Int: return only("as_int", "0");
    case Kind::Ints: return only("as_ints", listed(a.ints, [](Expr) { return "0"; }));
    case Kind::Float: return only("as_float", real(a.floats[0]));
    case Kind::Floats: return only("as_floats", listed(a.floats, [&](double d) { return real(d); }));
    case Kind::Bool: return only("as_bool", boolean(a.ints[0]));
    case Kind::Bools: return only("as_bools", listed(a.ints, [&](Expr e) { return boolean(e); }));
    case Kind::Text: return only("as_string", jsonString(a.texts[0]));
    case Kind::Texts: return only("as_strings", listed(a.texts, [](const std::string &t) { return jsonString(t); }));
    case Kind::DType: return only("as_scalar_type", std::to_string(torchNumber(static_cast<DType>(integer(a)))));
    case Kind::Layout: return only("as_layout", std::to_string(integer(a)));
    case Kind::MemoryFormat: return only("as_memory_format", std::to_string(integer(a)));
    case Kind::Device: {
      const std::string &text = a.texts[0];
      const size_t colon = text.find(':');
      return only("as_device", fmt::format("{{\"type\": {}, \"index\": {}}}", jsonString(text.substr(0, colon)), colon == text.npos ? "null" : text.substr(colon + 1)));
    }
    case Kind::Object: problem = fmt::format("the script object '{}', which PyTorch's loader does not pass on for a library", a.texts[0]); return "";
    }
    NESO_UNREACHABLE("unknown kind of argument");
  }

  std::string result(const ExternSpec::Result &r) {
    using Kind = ExternSpec::Result::Kind;
    switch (r.kind) {
    case Kind::Tensor: return only("as_tensor", tensor());
    case Kind::Tensors: return only("as_tensors", listed(std::vector<int>(static_cast<size_t>(r.count)), [&](int) { return tensor(); }));
    case Kind::Optional: return only("as_optional_tensor", only("as_tensor", tensor()));
    case Kind::None: return only("as_optional_tensor", only("as_none", "true"));
    case Kind::Other: problem = "a result that is no tensor"; return "";
    }
    NESO_UNREACHABLE("unknown kind of result");
  }

  int64_t values_ = 0;
};
} // namespace

std::vector<const plan::CallExtern *> operatorCalls(const plan::Plan &plan) {
  std::vector<const plan::CallExtern *> out;
  plan::forEachStep(plan.main, [&](const plan::Step &step) {
    const auto *call = std::get_if<plan::CallExtern>(&step.what);
    if (!call) return;
    for (const plan::CallExtern *&before : out) {
      if (before->call.number != call->call.number) continue;
      if (call->call.asked.empty()) before = call;
      return;
    }
    out.push_back(call);
  });
  return out;
}

std::map<int64_t, int32_t> operatorCallNumbers(const plan::Plan &plan) {
  std::map<int64_t, int32_t> out;
  for (const plan::CallExtern *call : operatorCalls(plan)) out.emplace(call->call.number, static_cast<int32_t>(out.size()));
  return out;
}

Result<std::string> operatorCallsForTorch(const plan::Plan &plan) {
  std::string out;
  Nodes nodes;
  for (const plan::CallExtern *call : operatorCalls(plan)) {
    out += (out.empty() ? "" : ",\n") + nodes.node(*call);
    if (!nodes.problem.empty())
      return fail(diag::OpNotForTorch, call->origins.empty() ? SourceLoc{} : call->origins[0].loc, call->call.op, nodes.problem);
  }
  return out.empty() ? out : "{\"nodes\": [\n" + out + "\n]}\n";
}

} // namespace neso
