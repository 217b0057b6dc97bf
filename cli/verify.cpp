// neso verify: the compiled code against the reference interpreter of the loops, on the same inputs.
#include <cmath>
#include <cstring>

#include <CLI/CLI.hpp>

#include "driver/compile.h"
#include "ir/loops/interp.h"
#include "model_file.h"
#include "verb.h"

namespace neso::cli {
namespace {

struct Options {
  std::string model, package;
  std::vector<std::string> inputs, dims;
  uint64_t seed = 0;
  int threads = 0;
  bool json = false;
};

/// What an output may differ by: relative to its largest magnitude, in the precision of its type. Sums run in another order than the
/// interpreter's (which accumulates in double), so an error of some thousand ulp of the largest term is no fault.
double toleranceOf(DType t) {
  switch (t) {
  case DType::F64:
  case DType::C128: return 1e-10;
  case DType::F32:
  case DType::C64: return 1e-4;
  case DType::F16: return 4e-3;
  case DType::BF16: return 3e-2;
  default: return isFloat(t) ? 0.25 : 0;
  }
}

/// Element i of a contiguous array as a double; complex types as pairs of their parts.
double elementAt(const uint8_t *data, DType t, int64_t i) {
  auto as = [&](auto v) {
    std::memcpy(&v, data + i * static_cast<int64_t>(sizeof v), sizeof v);
    return static_cast<double>(v);
  };
  switch (t) {
  case DType::F64: return as(double());
  case DType::F32: return as(float());
  case DType::F16: return as(_Float16());
  case DType::BF16: {
    uint16_t half;
    std::memcpy(&half, data + i * 2, 2);
    uint32_t bits = static_cast<uint32_t>(half) << 16;
    float f;
    std::memcpy(&f, &bits, 4);
    return f;
  }
  case DType::I64: return as(int64_t());
  case DType::U64: return as(uint64_t());
  case DType::I32: return as(int32_t());
  case DType::U32: return as(uint32_t());
  case DType::I16: return as(int16_t());
  case DType::U16: return as(uint16_t());
  case DType::I8: return as(int8_t());
  default: return as(uint8_t());
  }
}

struct Difference {
  double worst = 0, scale = 0;
  int64_t at = -1;
  bool ok = true;
};
Difference compare(const uint8_t *got, const uint8_t *want, DType dtype, int64_t elements) {
  DType part = toReal(dtype);
  if (isComplex(dtype)) elements *= 2;
  Difference d;
  for (int64_t i = 0; i < elements; ++i)
    if (double w = elementAt(want, part, i); std::isfinite(w)) d.scale = std::max(d.scale, std::fabs(w));
  for (int64_t i = 0; i < elements; ++i) {
    double g = elementAt(got, part, i), w = elementAt(want, part, i);
    if ((std::isnan(g) && std::isnan(w)) || g == w) continue;
    double error = std::isfinite(g) && std::isfinite(w) ? std::fabs(g - w) : INFINITY;
    if (error > d.worst) d.worst = error, d.at = i;
  }
  d.ok = d.worst <= toleranceOf(dtype) * d.scale;
  return d;
}

std::vector<uint8_t> denseBytes(const neso_tensor &t) {
  std::vector<int64_t> sizes(t.sizes, t.sizes + t.rank), strides = loops::contiguousStrides(sizes);
  int64_t item = static_cast<int64_t>(neso_dtype_size(t.dtype)), n = elementCount(sizes);
  std::vector<uint8_t> out(static_cast<size_t>(n * item));
  std::vector<int64_t> from = t.strides ? std::vector<int64_t>(t.strides, t.strides + t.rank) : strides;
  if (n > 0) loops::copyStrided(out.data(), strides, static_cast<const uint8_t *>(t.data), from, sizes, item);
  return out;
}

loops::HostValue interpreterInput(const neso_value_info &info, const HostTensor &t) {
  loops::HostValue v;
  if (!t.storage) return v;
  switch (info.kind) {
  case NESO_VALUE_INT: v.kind = loops::HostValue::Kind::Int, std::memcpy(&v.intValue, t.data(), 8); break;
  case NESO_VALUE_FLOAT: v.kind = loops::HostValue::Kind::Float, std::memcpy(&v.floatValue, t.data(), 8); break;
  case NESO_VALUE_BOOL: v.kind = loops::HostValue::Kind::Bool, v.intValue = *t.data(); break;
  default: // its own copy: a model may write to its inputs
    v = loops::HostValue::owned(t.dtype, t.sizes);
    std::memcpy(v.data, t.data(), t.bytes);
  }
  return v;
}

int run(const Options &o) {
  OpenModel model;
  if (Status s = model.open(o.package.empty() ? o.model : o.package, NESO_CHECK_ALL); !s) return report(s.error());
  Result<std::vector<HostTensor>> inputs =
      o.inputs.empty() ? randomInputs(model.get(), o.seed, o.dims) : inputsFromFiles(model.get(), o.inputs);
  if (!inputs) return report(inputs.error());
  DiagnosticSink sink;
  Result<loops::Program> program = lowerModel(o.model, sink);
  if (!program) return report(program.error());
  std::vector<loops::HostValue> values;
  for (size_t i = 0; i < inputs->size(); ++i) {
    neso_value_info info;
    neso_model_input(model.get(), static_cast<int32_t>(i), &info);
    values.push_back(interpreterInput(info, (*inputs)[i]));
  }
  loops::Interpreter interpreter(*program);
  Result<std::vector<loops::HostValue>> expected = interpreter.run(values);
  if (!expected) return report(expected.error());

  neso_context_options options{};
  options.struct_size = sizeof options;
  options.threads = o.threads;
  neso_context *raw = nullptr;
  if (neso_status s = neso_context_create(model.get(), &options, &raw); s != NESO_OK) return report(s);
  std::unique_ptr<neso_context, void (*)(neso_context *)> context(raw, neso_context_free);
  std::vector<neso_tensor> views = tensorViews(*inputs), outputs(static_cast<size_t>(neso_model_output_count(model.get())));
  if (neso_status s = neso_run(raw, views.data(), views.size(), outputs.data(), outputs.size()); s != NESO_OK) return report(s);

  bool ok = true;
  std::string rows;
  for (size_t i = 0; i < outputs.size() && i < expected->size(); ++i) {
    const loops::HostValue &want = (*expected)[i];
    if (!outputs[i].data || want.kind != loops::HostValue::Kind::Tensor) continue;
    std::vector<uint8_t> got = denseBytes(outputs[i]);
    if (static_cast<int64_t>(got.size()) != want.elements() * itemSize(want.dtype)) {
      ok = false;
      rows += o.json ? fmt::format("{}{{\"output\": {}, \"ok\": false}}", rows.empty() ? "" : ", ", i) : fmt::format("output {}: another shape\n", i);
      continue;
    }
    Difference d = compare(got.data(), want.data, want.dtype, want.elements());
    ok &= d.ok;
    double worst = std::isfinite(d.worst) ? d.worst : 1e308;
    if (o.json) rows += fmt::format("{}{{\"output\": {}, \"worst_abs\": {}, \"scale\": {}, \"ok\": {}}}", rows.empty() ? "" : ", ", i, worst, d.scale, d.ok);
    else rows += fmt::format("output {}: worst error {:.3g} (largest value {:.3g}, allowed {:.3g}){}\n", i, d.worst, d.scale, toleranceOf(want.dtype) * d.scale,
                             d.ok ? "" : fmt::format("  WRONG at element {}", d.at));
  }
  if (o.json) fmt::print("{{\"ok\": {}, \"outputs\": [{}]}}\n", ok, rows);
  else fmt::print("{}{}\n", rows, ok ? "compiled code agrees with the interpreter" : "compiled code DISAGREES with the interpreter");
  return ok ? 0 : 1;
}

} // namespace

void declareVerify(CLI::App &parent, Action &todo) {
  auto o = std::make_shared<Options>();
  CLI::App *app = parent.add_subcommand("verify", "run the compiled code and the reference interpreter on the same inputs and compare");
  app->add_option("model", o->model, "the .pt2")->required();
  app->add_option("package", o->package, "its package; without it the model is compiled in memory");
  app->add_option("--input", o->inputs, "inputs as for run; without it they are random, inside the exported ranges")->allow_extra_args(false);
  app->add_option("--seed", o->seed, "of random inputs");
  app->add_option("--dim", o->dims, "a size of random inputs: s0=17")->allow_extra_args(false);
  app->add_option("--threads", o->threads, "0: one per core")->check(CLI::Range(0, 4096));
  app->add_flag("--json", o->json, "one JSON object");
  app->callback([o, &todo] { todo = [o] { return run(*o); }; });
}

} // namespace neso::cli
