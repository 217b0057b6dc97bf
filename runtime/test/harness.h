// What the runtime's tests share: the hand-written kernels, loading from bytes, and expectations on statuses.
#pragma once
#include <gtest/gtest.h>

#include "test/package_builder.h"

extern "C" {
void test_add(const union neso_arg *, const uint32_t[3], uint64_t, uint64_t, const struct neso_kernel_env *);
void test_double(const union neso_arg *, const uint32_t[3], uint64_t, uint64_t, const struct neso_kernel_env *);
void test_add_scalar(const union neso_arg *, const uint32_t[3], uint64_t, uint64_t, const struct neso_kernel_env *);
void test_report(const union neso_arg *, const uint32_t[3], uint64_t, uint64_t, const struct neso_kernel_env *);
void test_nothing(const union neso_arg *, const uint32_t[3], uint64_t, uint64_t, const struct neso_kernel_env *);
void test_less(const union neso_arg *, const uint32_t[3], uint64_t, uint64_t, const struct neso_kernel_env *);
void test_increase(const union neso_arg *, const uint32_t[3], uint64_t, uint64_t, const struct neso_kernel_env *);
void test_zero(const union neso_arg *, const uint32_t[3], uint64_t, uint64_t, const struct neso_kernel_env *);
void test_count(const union neso_arg *, const uint32_t[3], uint64_t, uint64_t, const struct neso_kernel_env *);
void test_spread(const union neso_arg *, const uint32_t[3], uint64_t, uint64_t, const struct neso_kernel_env *);
}

namespace neso_test {

inline const neso_static_kernel kKernels[] = {
    {"test_add", test_add},       {"test_double", test_double},   {"test_add_scalar", test_add_scalar},
    {"test_report", test_report}, {"test_nothing", test_nothing}, {"test_count", test_count},
    {"test_less", test_less}, {"test_increase", test_increase}, {"test_zero", test_zero},
    {"test_spread", test_spread}};

inline neso_model_options modelOptions() {
  neso_model_options o{};
  o.struct_size = sizeof o;
  o.static_kernels = kKernels;
  o.static_kernel_count = sizeof kKernels / sizeof kKernels[0];
  return o;
}

/// A model and one context of it, from bytes in aligned memory.
struct Loaded {
  std::string bytes;
  neso_model *model = nullptr;
  neso_context *context = nullptr;
  neso_status status = NESO_OK;
  explicit Loaded(std::string package, int threads = 1, const neso_context_options *options = nullptr)
      : bytes(std::move(package)) {
    neso_model_options o = modelOptions();
    status = neso_model_load_memory(bytes.data(), bytes.size(), &o, &model);
    if (status != NESO_OK) return;
    neso_context_options c{};
    if (options) c = *options;
    c.struct_size = sizeof c;
    c.threads = threads;
    status = neso_context_create(model, &c, &context);
  }
  Loaded(const Loaded &) = delete;
  ~Loaded() {
    neso_context_free(context);
    neso_model_free(model);
  }
  neso_status run(const std::vector<neso_tensor> &in, std::vector<neso_tensor> &out) {
    return neso_run(context, in.data(), in.size(), out.data(), out.size());
  }
};

#define EXPECT_STATUS(expression, wanted, fragment)                                                                    \
  do {                                                                                                                 \
    EXPECT_EQ(expression, wanted) << neso_error_text();                                                                \
    EXPECT_NE(std::string(neso_error_text()).find(fragment), std::string::npos) << neso_error_text();                  \
  } while (false)

inline std::vector<float> floats(const neso_tensor &t, size_t n) {
  const float *p = static_cast<const float *>(t.data);
  return std::vector<float>(p, p + n);
}

/// out[s0] = (x + w) * 2 with x [s0] for s0 in [2, 100]: one arena buffer, then the output; w has 100 elements, all
/// `weight`.
inline PackageBuilder addThenDouble(float weight = 1, const std::vector<std::string> &gpuArchs = {},
                                    const std::vector<std::string> &cpuArchs = {}) {
  PackageBuilder b;
  b.gpu(gpuArchs);
  // Their members are the caller's to add.
  for (const std::string &arch : cpuArchs)
    b.targets.push_back(fbs::CreateTarget(b.fb, fbs::TargetKind::Cpu, b.fb.CreateString(arch),
                                          b.fb.CreateString("data/neso/model/code/" + arch)));
  const int32_t n = PackageBuilder::kVariables, bytes = n + 1;
  int32_t four = b.constant(4);
  b.symbols.push_back(fbs::CreateSymbol(b.fb, b.fb.CreateString("s0"), n, 2, 100, 8));
  b.input("x", {PackageBuilder::dynamic(n, 2, 100)});
  std::vector<float> w(100, weight);
  b.weight("layer.weight", {100}, std::string(reinterpret_cast<char *>(w.data()), 400));
  b.size(fbs::SizeOp::Mul, bytes, n, four);
  b.arenas.push_back(fbs::CreateArena(b.fb, bytes));
  int32_t x = b.buffer(fbs::Location::Input, 0, bytes), c = b.buffer(fbs::Location::Constant, 0, bytes),
          out = b.buffer(fbs::Location::Output, 0, bytes);
  b.output("y", out, {n});
  b.launch(b.kernel("test_add", 3), {PackageBuilder::arg(x), PackageBuilder::arg(c), PackageBuilder::arg(out)}, n);
  b.launch(b.kernel("test_double", 1), {PackageBuilder::arg(out)}, n);
  return b;
}

} // namespace neso_test
