#include "lower/graph_to_loops/test/golden.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

#include "base/diagnostics/graph.h"
#include "frontend/pt2/read.h"
#include "ir/graph/parse.h"
#include "ir/graph/passes/coordinates.h"
#include "ir/graph/passes/functionalize.h"
#include "ir/graph/passes/primitives.h"
#include "ir/graph/passes/name_objects.h"
#include "ir/graph/passes/simplify.h"
#include "ir/graph/verify.h"
#include "ir/loops/interp.h"
#include "ir/loops/numeric.h"
#include "ir/loops/parse.h"
#include "ir/loops/verify.h"
#include "lower/graph_to_loops/lower.h"

namespace neso::lower::test {

std::map<std::string, Array> readSafetensors(const std::string &path) {
  std::map<std::string, Array> out;
  std::ifstream in(path, std::ios::binary);
  std::vector<uint8_t> all((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (all.size() < 8) return out;
  uint64_t n;
  std::memcpy(&n, all.data(), 8);
  std::string text(reinterpret_cast<const char *>(all.data()) + 8, n);
  size_t at = 0;
  auto stringAt = [&](size_t &p) {
    size_t a = text.find('"', p) + 1, z = text.find('"', a);
    p = z + 1;
    return text.substr(a, z - a);
  };
  auto numbersAt = [&](size_t &p) {
    std::vector<int64_t> v;
    p = text.find('[', p) + 1;
    while (text[p] != ']') {
      if (text[p] == ',' || text[p] == ' ') {
        ++p;
        continue;
      }
      v.push_back(std::strtoll(text.c_str() + p, nullptr, 10));
      while (text[p] != ',' && text[p] != ']') ++p;
    }
    ++p;
    return v;
  };
  while ((at = text.find('"', at)) != std::string::npos) {
    std::string name = stringAt(at);
    Array a;
    size_t end = text.find('}', at);
    size_t p = text.find("\"dtype\"", at) + 7;
    a.dtype = dtypeNamed(stringAt(p), safetensorsName).value_or(DType::F32);
    p = text.find("\"shape\"", at) + 7;
    a.sizes = numbersAt(p);
    p = text.find("\"data_offsets\"", at) + 14;
    std::vector<int64_t> range = numbersAt(p);
    a.bytes.assign(all.begin() + 8 + static_cast<int64_t>(n) + range[0],
                   all.begin() + 8 + static_cast<int64_t>(n) + range[1]);
    out[name] = std::move(a);
    at = end + 1;
  }
  return out;
}

static double elementAt(const uint8_t *data, DType t, int64_t i) {
  switch (t) {
  case DType::Bool:
  case DType::U8: return data[i];
  case DType::I8: return reinterpret_cast<const int8_t *>(data)[i];
  case DType::I16: return reinterpret_cast<const int16_t *>(data)[i];
  case DType::U16: return reinterpret_cast<const uint16_t *>(data)[i];
  case DType::I32: return reinterpret_cast<const int32_t *>(data)[i];
  case DType::U32: return reinterpret_cast<const uint32_t *>(data)[i];
  case DType::I64: return static_cast<double>(reinterpret_cast<const int64_t *>(data)[i]);
  case DType::U64: return static_cast<double>(reinterpret_cast<const uint64_t *>(data)[i]);
  case DType::F64: return reinterpret_cast<const double *>(data)[i];
  case DType::F32: return static_cast<double>(reinterpret_cast<const float *>(data)[i]);
  case DType::F16:
  case DType::BF16: return static_cast<double>(loops::decodeFloat(t, reinterpret_cast<const uint16_t *>(data)[i]));
  default: return static_cast<double>(loops::decodeFloat(t, data[i]));
  }
}

static std::pair<double, double> defaultTolerance(DType t) {
  switch (t) {
  case DType::F64: return {1e-9, 1e-11};
  case DType::F16: return {4e-3, 2e-3};
  case DType::BF16: return {2e-2, 1.6e-2};
  case DType::F8E4M3FN: return {0.13, 0.13};
  case DType::F8E5M2: return {0.26, 0.26};
  default: return {1e-4, 1e-5};
  }
}

static std::string compare(const loops::HostValue &got, const Array &want, double atol, double rtol, bool values) {
  if (got.dtype == DType::C128 && want.dtype == DType::F64) {
    // The file has no name for complex pairs of doubles: a last dimension of two.
    Array pairs = want;
    pairs.dtype = DType::C128;
    if (!pairs.sizes.empty()) pairs.sizes.pop_back();
    return compare(got, pairs, atol, rtol, values);
  }
  if (got.dtype != want.dtype)
    return "dtype " + std::string(name(got.dtype)) + ", expected " + std::string(name(want.dtype));
  if (got.sizes != want.sizes) return "shape differs";
  int64_t n = got.elements();
  if (!values) return "";
  DType t = toReal(want.dtype);
  if (isComplex(want.dtype)) n *= 2;
  auto [r0, a0] = defaultTolerance(t);
  rtol = std::max(rtol, r0);
  double largest = 0;
  for (int64_t i = 0; i < n; ++i)
    if (double w = std::fabs(elementAt(want.bytes.data(), t, i)); std::isfinite(w)) largest = std::max(largest, w);
  atol = std::max(atol, a0 * std::max(1.0, std::min(largest, 1e6)));
  if (!isFloat(t)) atol = rtol = 0;
  int64_t bad = 0, worst = -1;
  double worstError = -1;
  for (int64_t i = 0; i < n; ++i) {
    double g = elementAt(got.data, t, i), w = elementAt(want.bytes.data(), t, i);
    if (std::isnan(g) && std::isnan(w)) continue;
    if (g == w) continue;
    double error = std::fabs(g - w);
    if (error <= atol + rtol * std::fabs(w)) continue;
    ++bad;
    if (!(error <= worstError)) worst = i, worstError = error;
  }
  if (bad == 0) return "";
  char text[160];
  std::snprintf(text, sizeof text, "%lld of %lld values differ, worst %.8g for %.8g at %lld",
                static_cast<long long>(bad), static_cast<long long>(n), elementAt(got.data, t, worst),
                elementAt(want.bytes.data(), t, worst), static_cast<long long>(worst));
  return text;
}

/// Puts the graph that its text says in place of the graph; storages keep their bytes. What went wrong, or "".
static std::string replaceByText(graph::Model &model) {
  const std::string text = graph::print(model);
  Result<graph::Model> read = graph::parse(text, "graph");
  if (!read) return "the graph's text is not read: " + read.error().str();
  for (size_t k = 0; k < model.storages.size(); ++k)
    read->storages[k].data = model.storages[k].data, read->storages[k].owner = model.storages[k].owner;
  if (std::string again = graph::print(*read); again != text) return "the graph's text is read as another: " + again;
  if (Status s = graph::verify(*read, graph::Form::Functional); !s) return "what was read: " + s.error().str();
  model = std::move(*read);
  return "";
}

/// The same for loops.
static std::string replaceByText(loops::Program &program) {
  const std::string text = loops::print(program);
  Result<loops::Program> read = loops::parse(text, "loops");
  if (!read) return "the loops' text is not read: " + read.error().str();
  for (size_t k = 0; k < program.constants.size(); ++k)
    read->constants[k].data = program.constants[k].data, read->constants[k].owner = program.constants[k].owner;
  if (std::string again = loops::print(*read); again != text) return "the loops' text is read as another: " + again;
  if (Status s = loops::verify(*read); !s) return "what was read: " + s.error().str();
  program = std::move(*read);
  return "";
}

Verdict judge(const std::string &modelPath, const std::string &inputs, const std::string &outputs, const Bounds &bounds,
              bool verbose) {
  using Kind = Verdict::Kind;
  Result<graph::Model> model = pt2::readPt2(modelPath);
  if (!model) return {Kind::Refused, "read: " + model.error().str()};
  if (Status s = graph::nameObjects(*model); !s) return {Kind::Refused, "script objects: " + s.error().str()};
  if (Status s = graph::writeOutCoordinates(*model); !s) return {Kind::Refused, s.error().str()};
  graph::openPrimitives(*model);
  if (Status s = graph::functionalize(*model); !s) return {Kind::Refused, "functionalize: " + s.error().str()};
  graph::simplify(*model);
  if (verbose) std::fputs(graph::print(*model).c_str(), stdout);
  // What is lowered and what runs is what the texts say.
  if (std::string lost = replaceByText(*model); !lost.empty()) return {Kind::Wrong, lost};
  DiagnosticSink sink;
  Result<loops::Program> program = lowerGraph(*model, sink, bounds.options);
  if (!program) {
    // PyTorch's own files do not contradict themselves.
    const bool ours = program.error().internal() || program.error().diagnostics()[0].kind == diag::GraphContradictsItself;
    return {ours ? Kind::Wrong : Kind::Refused, program.error().str()};
  }
  if (verbose) std::fputs(loops::print(*program).c_str(), stdout);
  Verdict v;
  v.nodes = static_cast<int>(program->nodes.size());
  for (const loops::Node &n : program->nodes) v.attentions += n.kind() == loops::Node::Kind::Attention;
  if (Status s = loops::verify(*program); !s) return {Kind::Wrong, "verify: " + s.error().str(), v.nodes};
  if (std::string lost = replaceByText(*program); !lost.empty()) return {Kind::Wrong, lost, v.nodes};
  if (bounds.prepare) bounds.prepare(*program);
  std::map<std::string, Array> given = readSafetensors(inputs), want = readSafetensors(outputs);
  std::vector<loops::HostValue> in;
  // User inputs are numbered among all leaves, None and constants included.
  for (size_t k = 0; k < program->inputs.size(); ++k) {
    auto it = given.find(bounds.prefix + std::to_string(k));
    using PK = loops::ProgramInput::Kind;
    loops::HostValue h;
    h.kind = program->inputs[k].kind;
    if (it != given.end()) {
      h.dtype = it->second.dtype;
      if (h.kind == PK::Tensor)
        h = loops::HostValue::tensor(it->second.dtype, it->second.sizes, it->second.bytes.data());
      else if (h.kind == PK::Float)
        h.floatValue = elementAt(it->second.bytes.data(), it->second.dtype, 0);
      else
        h.intValue = static_cast<int64_t>(elementAt(it->second.bytes.data(), it->second.dtype, 0));
    }
    in.push_back(h);
  }
  loops::Interpreter interp(*program);
  Result<std::vector<loops::HostValue>> out = interp.run(in);
  if (!out) return {Kind::Wrong, "run: " + out.error().str(), v.nodes};
  size_t position = 0;
  for (size_t k = 0; k < out->size(); ++k) {
    const loops::ProgramOutput &p = program->outputs[k];
    if (!p.mutationTarget.empty()) continue;
    size_t at = position++;
    auto it = want.find(bounds.prefix + std::to_string(at));
    if (it == want.end() || p.kind == loops::ProgramOutput::Kind::None) continue;
    if (p.kind != loops::ProgramOutput::Kind::Tensor) continue;
    std::string trouble = compare((*out)[k], it->second, at < bounds.atol.size() ? bounds.atol[at] : 0,
                                  at < bounds.rtol.size() ? bounds.rtol[at] : 0, bounds.values);
    if (!trouble.empty()) return {Kind::Wrong, "output " + std::to_string(at) + ": " + trouble, v.nodes};
  }
  return v;
}

} // namespace neso::lower::test
