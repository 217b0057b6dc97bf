// What a run says when the data break what the model asserts of them, and that the context is usable afterwards.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "driver/compile.h"
#include "neso/neso.h"

namespace neso {
namespace {

/// tests/goldens/ops/data_sizes/item_sizes: x [6, 4], k = n.item(), 1 <= k <= 6, x[:k].sum(0), ….
class ItemSizes : public testing::Test {
protected:
  void SetUp() override {
    DiagnosticSink sink;
    Result<Compilation> compiled =
        compileModel(NESO_SOURCE_DIR "/tests/goldens/ops/data_sizes/item_sizes.pt2", CompileOptions(), sink);
    ASSERT_TRUE(compiled);
    package_ = std::move(compiled->package);
    ASSERT_EQ(neso_model_load_memory(package_.data(), package_.size(), nullptr, &model_), NESO_OK);
    ASSERT_EQ(neso_context_create(model_, nullptr, &context_), NESO_OK);
    std::iota(x_.begin(), x_.end(), 0.0f);
  }
  void TearDown() override {
    neso_context_free(context_);
    neso_model_free(model_);
  }
  neso_status run(int64_t k) {
    const int64_t sizes[] = {6, 4};
    neso_tensor in[2] = {};
    in[0].data = x_.data(), in[0].dtype = NESO_F32, in[0].rank = 2, in[0].sizes = sizes;
    in[1].data = &k, in[1].dtype = NESO_I64;
    return neso_run(context_, in, 2, out_, 3);
  }
  std::string package_;
  neso_model *model_ = nullptr;
  neso_context *context_ = nullptr;
  std::vector<float> x_ = std::vector<float>(24);
  neso_tensor out_[3] = {};
};

TEST_F(ItemSizes, AViolatedAssertionHasTorchsWordsAndTheValue) {
  EXPECT_EQ(run(7), NESO_GUARD_FAILED);
  const std::string text = neso_error_text();
  EXPECT_NE(text.find("Runtime assertion failed for expression u0 <= 6"), std::string::npos) << text;
  EXPECT_NE(text.find("u0 = 7"), std::string::npos) << text;
}

TEST_F(ItemSizes, ANegativeSizeIsRefused) {
  EXPECT_EQ(run(-3), NESO_GUARD_FAILED);
  const std::string text = neso_error_text();
  EXPECT_NE(text.find("Runtime assertion failed for expression u0 >= 1"), std::string::npos) << text;
  EXPECT_NE(text.find("u0 = -3"), std::string::npos) << text;
}

TEST_F(ItemSizes, TheContextIsUsableAfterwards) {
  for (int64_t k : {9, 2, 0, 6, -1, 1}) {
    const bool fits = k >= 1 && k <= 6;
    ASSERT_EQ(run(k), fits ? NESO_OK : NESO_GUARD_FAILED) << neso_error_text();
    if (!fits) continue;
    ASSERT_EQ(out_[1].rank, 2);
    EXPECT_EQ(out_[1].sizes[0], k);
    // Column 0 is 0, 4, 8, …: the sum of its first k.
    EXPECT_EQ(static_cast<const float *>(out_[0].data)[0], static_cast<float>(2 * k * (k - 1)));
  }
}

} // namespace
} // namespace neso
