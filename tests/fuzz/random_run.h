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

/// The first element that differs. Inputs are small multiples of 1/4, so most sums are exact; 1e-4 covers exp and
/// divisions in f32 over the at most 700 terms of a row, each good to about 1e-7.
inline std::string difference(const HostValue &want, const neso_tensor &got) {
  if (std::vector<int64_t>(got.sizes, got.sizes + got.rank) != want.sizes) return "sizes differ";
  std::vector<int64_t> strides = loops::contiguousStrides(want.sizes),
                       from = got.strides ? std::vector<int64_t>(got.strides, got.strides + got.rank) : strides;
  std::vector<uint8_t> dense(static_cast<size_t>(want.elements() * itemSize(want.dtype)));
  if (want.elements() > 0)
    loops::copyStrided(dense.data(), strides, static_cast<const uint8_t *>(got.data), from, want.sizes,
                       itemSize(want.dtype));
  for (int64_t e = 0; e < want.elements(); ++e) {
    bool isFp = want.dtype == DType::F32;
    double a = isFp ? reinterpret_cast<const float *>(want.data)[e]
                    : static_cast<double>(reinterpret_cast<const int64_t *>(want.data)[e]);
    double b = isFp ? reinterpret_cast<const float *>(dense.data())[e]
                    : static_cast<double>(reinterpret_cast<const int64_t *>(dense.data())[e]);
    bool same = (std::isnan(a) && std::isnan(b)) || a == b || std::fabs(a - b) <= 1e-4 * std::max(1.0, std::fabs(a));
    if (!same) return fmt::format("element {}: want {}, got {}", e, a, b);
  }
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
    std::vector<HostValue> values;
    std::vector<neso_tensor> views(a.bytes.size(), neso_tensor{});
    for (size_t k = 0; k < a.bytes.size(); ++k) {
      values.push_back(HostValue::tensor(r.p.inputs[k].dtype, a.shapes[k], a.bytes[k].data()));
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
    for (size_t k = 0; k < outputs.size() && k < want->size(); ++k)
      if (std::string d = difference((*want)[k], outputs[k]); !d.empty())
        return fmt::format("output {}{}: {}", k, at, d);
    // Inputs that the program writes to.
    for (size_t k = 0; k < a.bytes.size(); ++k)
      if (r.p.inputs[k].dtype == DType::F32)
        if (std::string d = difference(values[k], views[k]); !d.empty())
          return fmt::format("input {}{}: {}", k, at, d);
  }
  return "";
}

} // namespace neso::fuzz
