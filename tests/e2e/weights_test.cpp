// Models that are given other weights after they were compiled compute what PyTorch computes with these (tests/goldens/weights): whatever
// order the compiler put the weights into, and under every name that the model has for them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "driver/compile.h"
#include "e2e/tensors.h"

namespace neso::e2e {
namespace {

class Updated : public testing::Test {
protected:
  ~Updated() override {
    neso_weights_free(weights);
    neso_context_free(context);
    neso_model_free(model);
  }

  void open(const std::string &name, bool updatable) {
    const std::string path = fmt::format("{}/tests/goldens/weights/{}", NESO_SOURCE_DIR, name);
    file = path + ".safetensors";
    std::string error;
    ASSERT_TRUE(readSafetensors(file, &tensors, &error)) << error;
    CompileOptions options;
    options.updatable = updatable;
    // Also where it does not pay: what becomes of the weights is the question here.
    options.options = {{"join", "always"}};
    DiagnosticSink sink;
    Result<Compilation> c = compileModel(path + ".pt2", options, sink);
    ASSERT_TRUE(c) << c.error().str();
    package = std::move(c->package);
    ASSERT_EQ(neso_model_load_memory(package.data(), package.size(), nullptr, &model), NESO_OK) << neso_error_text();
    ASSERT_EQ(neso_context_create(model, nullptr, &context), NESO_OK) << neso_error_text();
    ASSERT_EQ(neso_weights_create(model, nullptr, &weights), NESO_OK) << neso_error_text();
  }
  std::string run(Tolerance tolerance) {
    neso_tensor in = tensors.at("input/0").view(), out{};
    if (neso_run(context, &in, 1, &out, 1) != NESO_OK) return neso_error_text();
    return compare(out, tensors.at("output/0"), tolerance);
  }
  /// Every weight that the program has comes back as it was set.
  void expectWeightsBack() {
    for (int32_t i = 0; i < neso_model_constant_count(model); ++i) {
      neso_constant_info info;
      ASSERT_EQ(neso_model_constant(model, i, &info), NESO_OK);
      auto it = tensors.find(std::string("weight/") + info.name);
      if (it == tensors.end()) continue;
      Tensor got = it->second;
      neso_tensor to = got.view();
      std::fill(got.data(), got.data() + got.bytes, char(0x5a));
      ASSERT_EQ(neso_weights_get(weights, info.name, &to), NESO_OK) << neso_error_text();
      EXPECT_EQ(compare(to, it->second, {}), "") << info.name;
    }
  }

  Tensors tensors;
  std::string package, file;
  neso_model *model = nullptr;
  neso_context *context = nullptr;
  neso_weights *weights = nullptr;
};

struct Case {
  const char *name;
  // Of the dtype: sums in another order than eager's.
  Tolerance tolerance;
};
class UpdatedModel : public Updated, public testing::WithParamInterface<Case> {};

TEST_P(UpdatedModel, ComputesWithItsNewWeights) {
  open(GetParam().name, true);
  if (HasFatalFailure()) return;
  EXPECT_NE(run(GetParam().tolerance), "");
  int64_t set = 0;
  ASSERT_EQ(neso_weights_load(weights, file.c_str(), "weight/", &set, nullptr), NESO_OK) << neso_error_text();
  EXPECT_GE(set, 1);
  ASSERT_EQ(neso_weights_seal(weights), NESO_OK) << neso_error_text();
  ASSERT_EQ(neso_model_use(model, weights), NESO_OK);
  EXPECT_EQ(run(GetParam().tolerance), "");
  expectWeightsBack();
}

INSTANTIATE_TEST_SUITE_P(Weights, UpdatedModel,
                         testing::Values(Case{"mlp", {1e-5, 1e-5}}, Case{"mlp_bf16", {2e-2, 1e-2}},
                                         Case{"conv_norm", {1e-5, 2e-5}}, Case{"tied", {1e-5, 1e-5}},
                                         Case{"parts", {1e-5, 1e-4}}, Case{"counter", {1e-6, 1e-6}},
                                         Case{"siblings", {1e-5, 1e-5}}, Case{"flipped", {1e-5, 1e-5}}),
                         [](const testing::TestParamInfo<Case> &p) { return p.param.name; });

TEST_F(Updated, WhatWasFoldedIsRefusedByName) {
  open("conv_norm", false);
  if (HasFatalFailure()) return;
  EXPECT_EQ(neso_weights_load(weights, file.c_str(), "weight/", nullptr, nullptr), NESO_WEIGHT_FIXED);
  EXPECT_NE(std::string(neso_error_text()).find("'norm."), std::string::npos) << neso_error_text();
}

} // namespace
} // namespace neso::e2e
