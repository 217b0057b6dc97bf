// Claim: kernels compiled from source to machine code of every level that this machine runs compute what Triton's own
// interpreter computes, with arguments of unknown value and, on the best level, specialised on them as `neso kernel run`
// does. Refusals stand in
// kernels_unsupported.txt with their code.
#include <cstdlib>
#include <gtest/gtest.h>
#include <map>
#include <memory>

#include "backend/cpu/compile.h"
#include "driver/kernel.h"
#include "frontend/triton/triton.h"
#include "kernel_corpus.h"
#include "neso/neso.h"

using namespace neso;
using namespace neso::corpus;

namespace {

/// Case -> code of its refusal.
std::map<std::string, std::string> readUnsupported() {
  std::map<std::string, std::string> out;
  std::ifstream in(std::string(NESO_SOURCE_DIR) + "/tests/e2e/kernels_unsupported.txt");
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name, code;
    if (line.starts_with("#") || !(words >> name >> code)) continue;
    out[name] = code;
  }
  return out;
}

struct Prepared {
  std::vector<Buffer> buffers;
  std::vector<std::string> texts; // as --arg has them
  std::vector<int> bufferOf;      // index into buffers, or -1
};

Prepared prepare(const Case &c, size_t index) {
  triton::KernelRequest request;
  request.path = kFolder + c.file + ".py", request.function = c.kernel, request.signature = c.signature,
  request.constexprs = c.constexprs;
  Result<std::vector<triton::BoundParam>> params = triton::bindSignature(request);
  Prepared p;
  p.buffers.reserve(c.args.size());
  // Absent pointers have no entry in `args`, but keep their place in the numbering of seeds.
  size_t place = 0;
  auto absent = [&](size_t at) {
    return params && at < params->size() &&
           std::any_of(
               c.constexprs.begin(), c.constexprs.end(),
               [&](const auto &k) { return k.second == "None" && k.first == (*params)[at].name; });
  };
  for (const std::string &a : c.args) {
    while (absent(place)) ++place;
    bool buffer = isBuffer(a);
    p.bufferOf.push_back(buffer ? static_cast<int>(p.buffers.size()) : -1);
    if (buffer) p.buffers.push_back(makeBuffer(a, index * 16 + place));
    p.texts.push_back(buffer ? "@" : a);
    ++place;
  }
  return p;
}

/// "" when done, else the diagnostics.
std::string runCompiled(const Case &c, Prepared &p, bool specialise, cpu::CpuLevel level) {
  KernelSource source;
  source.file = kFolder + c.file + ".py", source.function = c.kernel, source.signature = c.signature,
  source.constexprs = c.constexprs;
  KernelSource bound = source;
  Result<std::vector<std::string>> given = specialiseOnValues(bound, p.texts);
  if (!given) return given.error().str();
  Result<Kernel> kernel = Kernel::read(specialise ? bound : source);
  if (!kernel) return kernel.error().str();
  std::vector<KernelValue> values;
  // The corpus' buffers need not be aligned as the kernels may assume; copies are.
  std::vector<std::pair<std::unique_ptr<uint8_t, void (*)(void *)>, Buffer *>> copies;
  for (const KernelParameter &parameter : kernel->parameters()) {
    size_t at = static_cast<size_t>(std::find(given->begin(), given->end(), parameter.name) - given->begin());
    if (at == given->size()) return "no value for " + parameter.name;
    KernelValue v;
    if (p.bufferOf[at] >= 0) {
      Buffer &b = p.buffers[static_cast<size_t>(p.bufferOf[at])];
      copies.emplace_back(
          std::unique_ptr<uint8_t, void (*)(void *)>(
              static_cast<uint8_t *>(std::aligned_alloc(64, (b.bytes.size() + 63) / 64 * 64)), std::free),
          &b);
      std::memcpy(copies.back().first.get(), b.bytes.data(), b.bytes.size());
      v.data = copies.back().first.get(), v.bytes = static_cast<int64_t>(b.bytes.size()), v.sizes = {b.count()};
    } else if (parameter.kind == KernelParameter::Float) {
      v.real = std::stod(p.texts[at]);
    } else {
      v.integer = std::stoll(p.texts[at]);
    }
    values.push_back(v);
  }
  Result<std::string> bytes = kernel->package("cpu", {std::string(cpu::name(level))});
  if (!bytes) return bytes.error().str();
  neso_model *model = nullptr;
  neso_context *context = nullptr;
  neso_context_options options{};
  options.struct_size = sizeof options;
  options.threads = 2;
  std::vector<neso_arg> args = kernel->arguments(values);
  std::vector<int64_t> bufferBytes = kernel->bufferBytes(values);
  uint32_t grid[3] = {static_cast<uint32_t>(c.grid[0]), static_cast<uint32_t>(c.grid[1]),
                      static_cast<uint32_t>(c.grid[2])};
  std::string error;
  if (neso_model_load_memory(bytes->data(), bytes->size(), nullptr, &model) != NESO_OK ||
      neso_context_create(model, &options, &context) != NESO_OK ||
      neso_kernel_launch_checked(context, kernel->name().c_str(), grid, args.data(), bufferBytes.data(), args.size()) !=
          NESO_OK)
    error = neso_error_text();
  neso_context_free(context);
  neso_model_free(model);
  for (auto &[copy, buffer] : copies) std::memcpy(buffer->bytes.data(), copy.get(), buffer->bytes.size());
  return error;
}

void compare(const Case &c, const Prepared &p, const uint8_t *want) {
  for (size_t n = 0; n < p.buffers.size(); ++n) {
    const Buffer &b = p.buffers[n];
    int64_t where;
    double worst = worstError(b, want, &where);
    EXPECT_LE(worst, b.type[0] == 'i' ? 0 : c.tolerance) << "buffer " << n << " element " << where << ": "
                                                         << b.at(b.bytes.data(), where) << " for " << b.at(want, where);
    want += b.bytes.size();
  }
}

/// Level, and whether arguments are known.
std::vector<std::pair<cpu::CpuLevel, bool>> forms() {
  std::vector<std::pair<cpu::CpuLevel, bool>> out = {{cpu::nativeLevel(), true}};
  for (cpu::CpuLevel level : cpu::runnableLevels()) out.emplace_back(level, false);
  return out;
}

TEST(CompiledKernels, ComputeWhatTritonComputes) {
  std::vector<Case> cases = readCases();
  ASSERT_GE(cases.size(), 100u);
  std::vector<uint8_t> expected = readExpected();
  std::map<std::string, std::string> unsupported = readUnsupported();
  size_t at = 0;
  for (size_t index = 0; index < cases.size(); ++index) {
    const Case &c = cases[index];
    size_t bytes = 0;
    for (auto [level, specialise] : forms()) {
      SCOPED_TRACE(c.name + ", " + std::string(cpu::name(level)) + (specialise ? ", specialised" : ""));
      Prepared p = prepare(c, index);
      bytes = 0;
      for (const Buffer &b : p.buffers) bytes += b.bytes.size();
      ASSERT_LE(at + bytes, expected.size());
      std::string error = runCompiled(c, p, specialise, level);
      auto refused = unsupported.find(c.name);
      if (refused != unsupported.end()) {
        EXPECT_NE(error.find(refused->second), std::string::npos)
            << "listed in kernels_unsupported.txt as " << refused->second
            << ", but: " << (error.empty() ? "it works" : error);
      } else if (!error.empty()) {
        ADD_FAILURE() << error;
      } else {
        compare(c, p, expected.data() + at);
      }
    }
    at += bytes;
  }
  EXPECT_EQ(at, expected.size());
}

} // namespace
