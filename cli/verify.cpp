// neso verify: the reference interpreter and the compiled code on the same inputs; the worst error of each output. Exit
// code 1 when one is beyond its tolerance.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/diagnostics/cli.h"
#include "base/json.h"
#include "console.h"
#include "driver/compile.h"
#include "flags.h"
#include "ir/loops/interp.h"
#include "ir/loops/numeric.h"
#include "op_reference.h"
#include "session.h"
#include "summary.h"
#include "verb.h"

namespace neso::cli {
namespace {
struct Options {
  SessionOptions session;
  std::string model, package;
  double rtol = -1, atol = -1;
  bool json = false;
};

// |got - want| <= atol * max(1, largest |want|) + rtol * |want|. Sums in another order differ more the larger their
// terms are, hence the scale; integers and bools must be equal.
struct Tolerance {
  double rtol, atol;
};
Tolerance toleranceOf(DType t) {
  switch (toReal(t)) {
  case DType::F64: return {1e-9, 1e-11};
  case DType::F32: return {1e-4, 2e-6};
  case DType::F16: return {5e-3, 1e-3};
  case DType::BF16: return {4e-2, 8e-3};
  default: return isFloat(t) ? Tolerance{0.25, 0.0625} : Tolerance{0, 0};
  }
}

struct Comparison {
  std::string name, dtype, shape, problem;
  double worstAbsolute = 0, worstRelative = 0;
  int64_t elements = 0, beyond = 0;
};

struct Dense {
  DType dtype;
  std::vector<int64_t> sizes, strides;
  const uint8_t *data;
};

// Elements as doubles, in row-major order; both parts of complex ones.
std::vector<double> doubles(const Dense &t) {
  DType real = toReal(t.dtype);
  size_t item = static_cast<size_t>(itemSize(t.dtype)), part = static_cast<size_t>(itemSize(real)),
         rank = t.sizes.size();
  std::vector<int64_t> index(rank), strides = t.strides.size() == rank ? t.strides : loops::contiguousStrides(t.sizes);
  std::vector<double> out;
  for (int64_t i = 0, n = elementCount(t.sizes); i < n; ++i) {
    int64_t at = 0;
    for (size_t d = 0; d < rank; ++d) at += index[d] * strides[d];
    for (size_t p = 0; p < item / part; ++p)
      out.push_back(loops::readElement(real, t.data + static_cast<size_t>(at) * item + p * part));
    for (size_t d = rank; d-- > 0;) {
      if (++index[d] < t.sizes[d]) break;
      index[d] = 0;
    }
  }
  return out;
}

std::string shapeText(const std::vector<int64_t> &sizes) {
  std::string out = "[";
  for (size_t d = 0; d < sizes.size(); ++d) out += fmt::format("{}{}", d ? ", " : "", sizes[d]);
  return out + "]";
}

Comparison compare(const std::string &name, const Dense &want, const Dense &got, const Options &o) {
  Comparison c{name, std::string(neso::name(want.dtype)), shapeText(want.sizes), {}};
  if (want.dtype != got.dtype || want.sizes != got.sizes) {
    c.problem = fmt::format("is {} {}, the reference gives {} {}", neso::name(got.dtype), shapeText(got.sizes), c.dtype,
                            c.shape);
    return c;
  }
  std::vector<double> w = doubles(want), g = doubles(got);
  Tolerance t = toleranceOf(want.dtype);
  if (o.rtol >= 0) t.rtol = o.rtol;
  if (o.atol >= 0) t.atol = o.atol;
  double scale = 1;
  for (double v : w)
    if (std::isfinite(v)) scale = std::max(scale, std::fabs(v));
  c.elements = static_cast<int64_t>(w.size());
  for (size_t i = 0; i < w.size(); ++i) {
    if (w[i] == g[i] || (std::isnan(w[i]) && std::isnan(g[i]))) continue;
    double error = std::fabs(w[i] - g[i]);
    if (!(error <= t.atol * scale + t.rtol * std::fabs(w[i]))) ++c.beyond;
    if (!(error <= c.worstAbsolute)) c.worstAbsolute = error;
    double relative = error / std::max(std::fabs(w[i]), 1e-30);
    if (!(relative <= c.worstRelative)) c.worstRelative = relative;
  }
  return c;
}

Dense view(const neso_tensor &t) {
  Dense d{static_cast<DType>(t.dtype), {t.sizes, t.sizes + t.rank}, {}, static_cast<const uint8_t *>(t.data)};
  if (t.strides) d.strides.assign(t.strides, t.strides + t.rank);
  return d;
}

// What the interpreter takes for an input; its tensors are copies, since both engines may write to them.
loops::HostValue hostValue(const loops::ProgramInput &in, const HostTensor &t) {
  loops::HostValue v;
  v.kind = in.kind;
  v.dtype = in.dtype;
  if (in.kind == loops::ProgramInput::Kind::Tensor) {
    v = loops::HostValue::owned(t.dtype, t.sizes);
    std::memcpy(v.data, t.data(), t.bytes);
  } else if (in.kind == loops::ProgramInput::Kind::Float) {
    v.floatValue = in.floatValue;
    if (t.storage) std::memcpy(&v.floatValue, t.data(), sizeof v.floatValue);
  } else if (t.storage) {
    if (in.kind == loops::ProgramInput::Kind::Bool)
      v.intValue = *t.data() != 0;
    else
      std::memcpy(&v.intValue, t.data(), sizeof v.intValue);
  } else if (in.scalar.valid() && in.scalar.isConst()) {
    v.intValue = in.scalar.constValue();
  }
  return v;
}

bool print(const std::vector<Comparison> &all, bool json) {
  std::string rows;
  for (const Comparison &c : all) {
    bool good = c.problem.empty() && c.beyond == 0;
    if (json)
      rows +=
          fmt::format("{}{{\"output\": {}, \"dtype\": \"{}\", \"shape\": {}, \"worst_abs\": {}, \"worst_rel\": {}, "
                      "\"beyond\": {}, \"ok\": {}}}",
                      rows.empty() ? "" : ", ", jsonString(c.name), c.dtype, c.shape,
                      std::isfinite(c.worstAbsolute) ? fmt::format("{:.6g}", c.worstAbsolute) : "null",
                      std::isfinite(c.worstRelative) ? fmt::format("{:.6g}", c.worstRelative) : "null", c.beyond, good);
    else if (!c.problem.empty())
      fmt::print("{} {}: WRONG\n", c.name, c.problem);
    else
      fmt::print("{} {} {}: worst error {:.3g} absolute, {:.3g} relative: {}\n", c.name, c.dtype, c.shape,
                 c.worstAbsolute, c.worstRelative,
                 good ? "ok" : fmt::format("WRONG, {} of {} elements beyond the tolerance", c.beyond, c.elements));
  }
  bool ok = std::all_of(all.begin(), all.end(), [](const Comparison &c) { return c.problem.empty() && c.beyond == 0; });
  if (json)
    fmt::print("{{\"ok\": {}, \"outputs\": [{}]}}\n", ok, rows);
  else
    fmt::print("{}\n",
               ok ? "compiled code agrees with the interpreter" : "compiled code DISAGREES with the interpreter");
  return ok;
}

/// How the package's inputs and outputs differ from the model's; empty if they do not.
std::string difference(const loops::Program &program, const neso_model *package) {
  const size_t inputs = static_cast<size_t>(neso_model_input_count(package)),
               outputs = static_cast<size_t>(neso_model_output_count(package));
  if (inputs != program.inputs.size())
    return fmt::format("it takes {} inputs, the model {}", inputs, program.inputs.size());
  for (size_t i = 0; i < inputs; ++i) {
    const loops::ProgramInput &in = program.inputs[i];
    neso_value_info info;
    neso_model_input(package, static_cast<int32_t>(i), &info);
    if (in.name != info.name) return fmt::format("its input {} is '{}', the model's '{}'", i, info.name, in.name);
    const bool tensor = in.kind == loops::ProgramInput::Kind::Tensor;
    if (tensor != (info.kind == NESO_VALUE_TENSOR))
      return fmt::format("only one of them takes a tensor as input '{}'", in.name);
    if (tensor && (static_cast<DType>(info.dtype) != in.dtype || static_cast<size_t>(info.rank) != in.sizes.size()))
      return fmt::format("its input '{}' is {} with {} dimensions, the model's {} with {}", in.name,
                         name(static_cast<DType>(info.dtype)), info.rank, name(in.dtype), in.sizes.size());
  }
  const size_t returned =
      static_cast<size_t>(std::count_if(program.outputs.begin(), program.outputs.end(),
                                        [](const loops::ProgramOutput &out) { return out.mutationTarget.empty(); }));
  return outputs == returned ? "" : fmt::format("it gives {} outputs, the model {}", outputs, returned);
}

/// What is stored in a parameter, a buffer ("buffer.NAME") or an input ("input.N") that the program changes.
Result<HostTensor> changedTensor(Session &session, const std::string &target) {
  neso_tensor buffer;
  if (target.rfind("input.", 0) == 0)
    buffer = session.views[std::stoul(target.substr(6))];
  else if (neso_status s = neso_context_buffer(session.context(), target.c_str() + 7, &buffer); s != NESO_OK)
    return runtimeError(s);
  return session.hostCopy("", buffer);
}

/// An output that is no tensor of the program's own is a number in `want`.
Comparison compareOutput(const std::string &label, loops::ProgramOutput::Kind kind, const loops::HostValue &want, const neso_tensor &got, const Options &o) {
  using Kind = loops::ProgramOutput::Kind;
  if (kind == Kind::Tensor || want.data) return compare(label, {want.dtype, want.sizes, want.strides, want.data}, view(got), o);
  if (kind == Kind::Float) return compare(label, {DType::F64, {}, {}, reinterpret_cast<const uint8_t *>(&want.floatValue)}, view(got), o);
  const uint8_t flag = want.intValue != 0;
  if (kind == Kind::Bool) return compare(label, {DType::Bool, {}, {}, &flag}, view(got), o);
  return compare(label, {DType::I64, {}, {}, reinterpret_cast<const uint8_t *>(&want.intValue)}, view(got), o);
}

int run(Options o) {
  // The model's own samples, also where its package has none.
  if (o.session.sample) o.session.inputs = {o.model}, o.session.sample = false;
  o.session.model = o.package.empty() ? o.model : o.package;
  Session session;
  if (Status s = session.open(o.session); !s) return report(s.error());
  DiagnosticSink sink;
  Result<loops::Program> program = lowerModel(o.model, o.session.kernels, sink);
  if (!program) return report(program.error());
  // Where the model was compiled just now, its warnings were told.
  if (!o.package.empty())
    printWarnings(sink);
  if (std::string why = difference(*program, session.model()); !why.empty())
    return report(fail(diag::PackageOfAnother, {}, o.session.model, o.model, why));
  if (Status s = callInReference(*program, session.operators()); !s) return report(s.error());
  const std::vector<HostTensor> &inputs = session.inputs();
  std::vector<loops::HostValue> values;
  for (size_t i = 0; i < inputs.size(); ++i) values.push_back(hostValue(program->inputs[i], inputs[i]));
  loops::Interpreter interpreter(*program);
  Result<std::vector<loops::HostValue>> reference = interpreter.run(values);
  if (!reference) return report(reference.error());
  if (neso_status s = session.run(); s != NESO_OK) return report(s);

  std::vector<Comparison> all;
  size_t number = 0;
  for (size_t i = 0; i < program->outputs.size(); ++i) {
    const loops::ProgramOutput &out = program->outputs[i];
    const loops::HostValue &want = (*reference)[i];
    if (!out.mutationTarget.empty()) {
      Result<HostTensor> copy = changedTensor(session, out.mutationTarget);
      if (!copy) return report(copy.error());
      Dense got{copy->dtype, copy->sizes, {}, copy->data()};
      all.push_back(compare(out.mutationTarget, {want.dtype, want.sizes, want.strides, want.data}, got, o));
      continue;
    }
    const neso_tensor &got = session.outputs[number++];
    if (got.data) all.push_back(compareOutput(outputName(session.model(), number - 1), out.kind, want, got, o));
  }
  return print(all, o.json) ? 0 : 1;
}
} // namespace

void declareVerify(const Verb &parent) {
  auto o = std::make_shared<Options>();
  const Verb verb = parent.verb("verify", "compare compiled code with the reference interpreter on the same inputs");
  verb.option("model", o->model, "the .pt2").required().placeholder("FILE");
  verb.option("package", o->package, "its package; without it the model is compiled in memory").placeholder("FILE");
  declareSession(verb, o->session);
  verb.option("--rtol", o->rtol, "relative tolerance, in place of the dtype's own").notNegative();
  verb.option("--atol", o->atol, "tolerance relative to the largest value of an output").notNegative();
  verb.flag("--json", o->json, "one JSON object");
  verb.work([o] { return run(*o); });
}

} // namespace neso::cli
