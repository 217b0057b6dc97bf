// One random program of loop nodes (compiler/lower/schedule/test/random_program.h) through the whole chain: machine code
// against the loops interpreter at several sizes.
#pragma once
#include <cmath>
#include <memory>

#include "driver/compile.h"
#include "ir/loops/interp.h"
#include "lower/schedule/test/random_program.h"
#include "neso/neso.h"

namespace neso::fuzz {

using loops::HostValue;
using schedule::test::RandomProgram;

struct Inputs {
  std::vector<std::vector<uint8_t>> bytes;
  std::vector<std::vector<int64_t>> shapes;
};
inline Inputs makeInputs(const RandomProgram &r, const SymbolMap<int64_t> &sizes, uint32_t seed) {
  Inputs in;
  std::mt19937 rng(seed);
  for (size_t k = 0; k < r.p.inputs.size(); ++k) {
    std::vector<int64_t> shape;
    int64_t elements = 1;
    for (Expr e : r.p.inputs[k].sizes) shape.push_back(*evaluate(e, sizes)), elements *= shape.back();
    in.bytes.push_back(r.contents(k, elements, rng));
    in.shapes.push_back(shape);
  }
  return in;
}

inline double element(DType t, const uint8_t *data, int64_t e) {
  return t == DType::F32 ? reinterpret_cast<const float *>(data)[e] : static_cast<double>(reinterpret_cast<const int64_t *>(data)[e]);
}
/// Inputs are small multiples of 1/4, so most sums are exact; 1e-4 covers exp and divisions in f32 over the at most 700 terms of a row, each good to
/// about 1e-7.
inline bool near(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || a == b || std::fabs(a - b) <= 1e-4 * std::max(1.0, std::fabs(a));
}

/// The first element that differs, but for those whose value is not determined (`open`, empty: none).
inline std::string difference(const HostValue &want, const neso_tensor &got, const std::vector<bool> &open = {}) {
  if (std::vector<int64_t>(got.sizes, got.sizes + got.rank) != want.sizes) return "sizes differ";
  std::vector<int64_t> strides = loops::contiguousStrides(want.sizes),
                       from = got.strides ? std::vector<int64_t>(got.strides, got.strides + got.rank) : strides;
  std::vector<uint8_t> dense(static_cast<size_t>(want.elements() * itemSize(want.dtype)));
  if (want.elements() > 0)
    loops::copyStrided(dense.data(), strides, static_cast<const uint8_t *>(got.data), from, want.sizes,
                       itemSize(want.dtype));
  for (int64_t e = 0; e < want.elements(); ++e) {
    const double a = element(want.dtype, want.data, e), b = element(want.dtype, dense.data(), e);
    if (!near(a, b) && (open.empty() || !open[static_cast<size_t>(e)])) return fmt::format("element {}: want {}, got {}", e, a, b);
  }
  return "";
}

/// The inputs as the interpreter takes them; `in` keeps the memory.
inline std::vector<HostValue> valuesOf(const RandomProgram &r, Inputs &in) {
  std::vector<HostValue> out;
  for (size_t k = 0; k < in.bytes.size(); ++k) out.push_back(HostValue::tensor(r.p.inputs[k].dtype, in.shapes[k], in.bytes[k].data()));
  return out;
}

/// Which elements of the outputs and then of the inputs hang on a choice between numbers that rounding alone tells apart (an argmax): those that
/// another run of the oracle, with these numbers moved a little, gives otherwise.
inline std::vector<std::vector<bool>> undetermined(uint32_t seed, const SymbolMap<int64_t> &sizes, const std::vector<HostValue> &want, const std::vector<HostValue> &inputs) {
  constexpr int kShakes = 5;
  std::vector<const HostValue *> values;
  for (const HostValue &v : want) values.push_back(&v);
  for (const HostValue &v : inputs) values.push_back(&v);
  std::vector<std::vector<bool>> out;
  for (const HostValue *v : values) out.emplace_back(static_cast<size_t>(v->elements()));
  for (int shake = 1; shake <= kShakes; ++shake) {
    RandomProgram r(seed, shake);
    Inputs in = makeInputs(r, sizes, seed);
    std::vector<HostValue> shaken = valuesOf(r, in);
    Result<std::vector<HostValue>> got = loops::Interpreter(r.p).run(shaken);
    if (!got) return out;
    got->insert(got->end(), shaken.begin(), shaken.end());
    for (size_t k = 0; k < values.size(); ++k)
      for (int64_t e = 0; e < values[k]->elements(); ++e)
        if (!near(element(values[k]->dtype, values[k]->data, e), element(values[k]->dtype, (*got)[k].data, e))) out[k][static_cast<size_t>(e)] = true;
  }
  return out;
}

/// What differs between the outputs and inputs after a run and those of the oracle, or "".
inline std::string differences(uint32_t seed, const SymbolMap<int64_t> &sizes, const std::vector<HostValue> &want, const std::vector<HostValue> &inputs,
                               const std::vector<neso_tensor> &outputs, const std::vector<neso_tensor> &views) {
  std::vector<std::vector<bool>> open;
  auto compare = [&](const char *what, size_t k, size_t at, const HostValue &a, const neso_tensor &b) {
    std::string d = difference(a, b);
    if (d.empty()) return d;
    if (open.empty()) open = undetermined(seed, sizes, want, inputs);
    d = difference(a, b, open[at]);
    return d.empty() ? d : fmt::format("{} {}: {}", what, k, d);
  };
  for (size_t k = 0; k < outputs.size() && k < want.size(); ++k)
    if (std::string d = compare("output", k, k, want[k], outputs[k]); !d.empty()) return d;
  // Inputs that the program writes to.
  for (size_t k = 0; k < inputs.size(); ++k)
    if (inputs[k].dtype == DType::F32)
      if (std::string d = compare("input", k, want.size() + k, inputs[k], views[k]); !d.empty()) return d;
  return "";
}

/// What is wrong with the program of a seed compiled for `arch`, or "".
inline std::string runRandomProgram(uint32_t seed, const std::string &arch = "native") {
  RandomProgram r(seed);
  CompileOptions options;
  options.archs = {arch};
  Result<Compilation> compiled = compileProgram(r.p, options);
  if (!compiled) return compiled.error().str();
  neso_model *model = nullptr;
  if (neso_model_load_memory(compiled->package.data(), compiled->package.size(), nullptr, &model) != NESO_OK)
    return neso_error_text();
  std::unique_ptr<neso_model, void (*)(neso_model *)> ownedModel(model, neso_model_free);
  for (auto [s0, s1] : {std::pair<int64_t, int64_t>{1, 2}, {5, 17}, {9, 64}}) {
    const std::string at = fmt::format(" at sizes {}, {}", s0, s1);
    SymbolMap<int64_t> sizes = {{Symbol::size("s0"), s0}, {Symbol::size("s1"), s1}};
    Inputs a = makeInputs(r, sizes, seed), b = makeInputs(r, sizes, seed);
    std::vector<HostValue> values = valuesOf(r, a);
    std::vector<neso_tensor> views(a.bytes.size(), neso_tensor{});
    for (size_t k = 0; k < a.bytes.size(); ++k) {
      views[k].data = b.bytes[k].data(), views[k].dtype = static_cast<neso_dtype>(r.p.inputs[k].dtype);
      views[k].rank = static_cast<int32_t>(b.shapes[k].size()), views[k].sizes = b.shapes[k].data();
    }
    Result<std::vector<HostValue>> want = loops::Interpreter(r.p).run(values);
    if (!want) return want.error().str() + at;
    neso_context *context = nullptr;
    if (neso_context_create(model, nullptr, &context) != NESO_OK) return neso_error_text();
    std::unique_ptr<neso_context, void (*)(neso_context *)> ownedContext(context, neso_context_free);
    std::vector<neso_tensor> outputs(static_cast<size_t>(neso_model_output_count(model)), neso_tensor{});
    if (neso_run(context, views.data(), views.size(), outputs.data(), outputs.size()) != NESO_OK)
      return neso_error_text() + at;
    if (std::string d = differences(seed, sizes, *want, values, outputs, views); !d.empty()) return d + at;
  }
  return "";
}

} // namespace neso::fuzz
