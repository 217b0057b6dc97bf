// What a run says when the data break what the model asserts of them, and that the context is usable afterwards.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "driver/compile.h"
#include "neso/neso.h"

namespace neso {
namespace {

/// A model of tests/goldens/ops, of data_sizes where nothing else is said.
class DataSizes : public testing::Test {
protected:
  void load(const std::string &name, const std::string &group = "data_sizes") {
    DiagnosticSink sink;
    Result<Compilation> compiled =
        compileModel(NESO_SOURCE_DIR "/tests/goldens/ops/" + group + "/" + name + ".pt2", CompileOptions(), sink);
    ASSERT_TRUE(compiled);
    package_ = std::move(compiled->package);
    ASSERT_EQ(neso_model_load_memory(package_.data(), package_.size(), nullptr, &model_), NESO_OK);
    ASSERT_EQ(neso_context_create(model_, nullptr, &context_), NESO_OK);
  }
  void TearDown() override {
    neso_context_free(context_);
    neso_model_free(model_);
  }
  std::string package_;
  neso_model *model_ = nullptr;
  neso_context *context_ = nullptr;
  neso_tensor out_[3] = {};
};

/// x [6, 4], k = n.item(), 1 <= k <= 6, x[:k].sum(0), ….
class ItemSizes : public DataSizes {
protected:
  void SetUp() override {
    load("item_sizes");
    std::iota(x_.begin(), x_.end(), 0.0f);
  }
  neso_status run(int64_t k) {
    const int64_t sizes[] = {6, 4};
    neso_tensor in[2] = {};
    in[0].data = x_.data(), in[0].dtype = NESO_F32, in[0].rank = 2, in[0].sizes = sizes;
    in[1].data = &k, in[1].dtype = NESO_I64;
    return neso_run(context_, in, 2, out_, 3);
  }
  std::vector<float> x_ = std::vector<float>(24);
};

/// bincount(x) and bincount(x, minlength=7) of x [12].
class Bins : public DataSizes {
protected:
  void SetUp() override { load("bins"); }
  neso_status run(std::vector<int64_t> x) {
    const int64_t sizes[] = {12};
    neso_tensor in = {};
    in.data = x.data(), in.dtype = NESO_I64, in.rank = 1, in.sizes = sizes;
    return neso_run(context_, &in, 1, out_, 2);
  }
};

/// x [3, 5] with its rows repeated to 9 of them, and their numbers times two.
class RepeatedTo : public DataSizes {
protected:
  void SetUp() override { load("repeated_to"); }
  neso_status run(std::vector<int64_t> times) {
    std::vector<float> x(15);
    const int64_t sizes[] = {3, 5};
    neso_tensor in[2] = {};
    in[0].data = x.data(), in[0].dtype = NESO_F32, in[0].rank = 2, in[0].sizes = sizes;
    in[1].data = times.data(), in[1].dtype = NESO_I64, in[1].rank = 1, in[1].sizes = sizes;
    return neso_run(context_, in, 2, out_, 2);
  }
};

/// x [4] + y [4], with assertions on tensors: x.sum() < 1e30 and y[0].
class AssertedTensors : public DataSizes {
protected:
  void SetUp() override { load("assertions", "odd_calls"); }
  neso_status run(std::vector<float> x, std::vector<int64_t> y) {
    const int64_t sizes[] = {4};
    neso_tensor in[2] = {};
    in[0].data = x.data(), in[0].dtype = NESO_F32, in[0].rank = 1, in[0].sizes = sizes;
    in[1].data = y.data(), in[1].dtype = NESO_I64, in[1].rank = 1, in[1].sizes = sizes;
    return neso_run(context_, in, 2, out_, 1);
  }
};

/// Eigenvalues of x [2, 4, 4].
class Eigenvalues : public DataSizes {
protected:
  void SetUp() override { load("transposed", "general_eigenvalues"); }
  neso_status run(float element) {
    std::vector<float> x(32);
    std::iota(x.begin(), x.end(), 0.0f);
    x[27] = element;
    const int64_t sizes[] = {2, 4, 4};
    neso_tensor in = {};
    in.data = x.data(), in.dtype = NESO_F32, in.rank = 3, in.sizes = sizes;
    return neso_run(context_, &in, 1, out_, 3);
  }
};

TEST_F(Eigenvalues, AMatrixThatIsNotFiniteHasNone) {
  for (float element : {NAN, INFINITY}) {
    EXPECT_EQ(run(element), NESO_GUARD_FAILED);
    EXPECT_NE(std::string(neso_error_text()).find("infinite or no numbers"), std::string::npos) << neso_error_text();
    EXPECT_EQ(run(3), NESO_OK) << neso_error_text();
  }
}

TEST_F(AssertedTensors, WhatATensorMustBeIsChecked) {
  EXPECT_EQ(run({1, 2, 3, 4}, {1, 0, 0, 0}), NESO_OK) << neso_error_text();
  EXPECT_EQ(run({1e30f, 1e30f, 3, 4}, {1, 0, 0, 0}), NESO_GUARD_FAILED);
  EXPECT_NE(std::string(neso_error_text()).find("a sum is too large"), std::string::npos) << neso_error_text();
  EXPECT_EQ(run({1, 2, 3, 4}, {0, 1, 1, 1}), NESO_GUARD_FAILED);
  EXPECT_EQ(run({1, 2, 3, 4}, {-5, 1, 1, 1}), NESO_OK) << neso_error_text();
}

/// What indices of rows [3, 1] and columns [1, 6] name in x [rows, 3], and x with numbers added there, as torch decomposes masked indices.
class NamedElements : public DataSizes {
protected:
  void SetUp() override { load("of_any_size.core", "masked_indices"); }
  neso_status run(int64_t rows) {
    std::vector<float> x(static_cast<size_t>(3 * rows)), values(18);
    const bool mask[18] = {true};
    const int64_t indices[6] = {}, sizes[] = {rows, 3}, of[] = {3, 6}, ofRows[] = {3, 1}, ofColumns[] = {1, 6};
    neso_tensor in[5] = {};
    in[0].data = rows == 0 ? nullptr : x.data(), in[0].dtype = NESO_F32, in[0].rank = 2, in[0].sizes = sizes;
    in[1].data = const_cast<bool *>(mask), in[1].dtype = NESO_BOOL, in[1].rank = 2, in[1].sizes = of;
    in[2].data = const_cast<int64_t *>(indices), in[2].dtype = NESO_I64, in[2].rank = 2, in[2].sizes = ofRows;
    in[3].data = const_cast<int64_t *>(indices), in[3].dtype = NESO_I64, in[3].rank = 2, in[3].sizes = ofColumns;
    in[4].data = values.data(), in[4].dtype = NESO_F32, in[4].rank = 2, in[4].sizes = of;
    return neso_run(context_, in, 5, out_, 2);
  }
};

TEST_F(NamedElements, AnEmptyTensorHasNone) {
  EXPECT_EQ(run(4), NESO_OK) << neso_error_text();
  EXPECT_EQ(run(0), NESO_ASSERTION_FAILED);
  EXPECT_NE(std::string(neso_error_text()).find("index out of range"), std::string::npos) << neso_error_text();
  EXPECT_EQ(run(4), NESO_OK) << neso_error_text();
}

/// Attention over q [b, 4, 2, 8], k and v, whose batches and lengths the export names apart.
class OpenBatches : public DataSizes {
protected:
  void SetUp() override { load("open_batches", "fused_attention"); }
  neso_status run(int64_t queries, int64_t keys, int64_t values, int64_t keyLength = 3, int64_t valueLength = 3) {
    std::vector<float> data(static_cast<size_t>(4 * 8 * 8 * 8));
    const int64_t sizes[3][4] = {{queries, 4, 2, 8}, {keys, 4, keyLength, 8}, {values, 4, valueLength, 8}};
    neso_tensor in[3] = {};
    for (size_t k = 0; k < 3; ++k) in[k].data = data.data(), in[k].dtype = NESO_F32, in[k].rank = 4, in[k].sizes = sizes[k];
    return neso_run(context_, in, 3, out_, 1);
  }
};

TEST_F(OpenBatches, OperandsOfOtherSizesAreRefused) {
  EXPECT_EQ(run(2, 2, 2), NESO_OK) << neso_error_text();
  EXPECT_EQ(run(4, 2, 2), NESO_GUARD_FAILED);
  EXPECT_EQ(run(2, 4, 2), NESO_GUARD_FAILED);
  EXPECT_EQ(run(2, 2, 4), NESO_GUARD_FAILED);
  EXPECT_EQ(run(2, 2, 2, 5, 3), NESO_GUARD_FAILED);
  EXPECT_EQ(run(4, 4, 4, 5, 5), NESO_OK) << neso_error_text();
}

/// A model of tests/goldens/ops/places, of x [7, 2] and a number that points into it.
class Places : public DataSizes {
protected:
  neso_status run(int64_t n) {
    std::vector<float> x(14);
    std::iota(x.begin(), x.end(), 0.0f);
    const int64_t sizes[] = {7, 2};
    neso_tensor in[2] = {};
    in[0].data = x.data(), in[0].dtype = NESO_F32, in[0].rank = 2, in[0].sizes = sizes;
    in[1].data = &n, in[1].dtype = NESO_I64;
    return neso_run(context_, in, 2, out_, static_cast<size_t>(neso_model_output_count(model_)));
  }
};

TEST_F(Places, ANumberThatPointsNowhereIsRefused) {
  struct Row {
    const char *model;
    std::vector<int64_t> good, bad;
    const char *says;
  };
  // 2^32 and a little is a place in 32 bits.
  constexpr int64_t kWide = (int64_t{1} << 32) + 3;
  const Row rows[] = {
      {"row", {6, -7}, {7, -8, kWide}, "select: its index"},
      {"column", {1, -2}, {2, -3}, "select: its index"},
      {"row_set", {6, -7}, {7, -8}, "select: its index"},
      {"rows_set", {5, 0}, {6, 8}, "was exported for sizes with"},
      {"strided", {0, 9}, {10, -1}, "as_strided: elements outside of its storage"},
      {"stated", {7}, {6, 8, -7}, "where the model says 7"},
      {"viewed", {7}, {6, 0}, "where the model says 7"},
      {"counted", {-99}, {99, 3}, "where the model says 14"},
      {"divided", {3, -2}, {0}, "division or modulo by zero"},
      {"greatest", {0}, {99}, "a dimension without elements is reduced"},
      {"gathered", {0, 6}, {7, -1, kWide, -kWide}, "index out of range"},
      {"selected", {0, 6}, {7, -1, kWide, -kWide}, "index out of range"},
      {"scattered", {0, 6}, {7, -1, kWide, -kWide}, "index out of range"},
      {"added", {0, 6}, {7, -1, kWide, -kWide}, "index out of range"},
      {"filled", {6, -7}, {7, -8, kWide, -kWide}, "index out of range"},
      {"label", {0, 6}, {7, -1, kWide, -kWide}, "index out of range"},
  };
  for (const Row &row : rows) {
    SCOPED_TRACE(row.model);
    load(row.model, "places");
    std::fill(std::begin(out_), std::end(out_), neso_tensor{});
    for (int64_t n : row.bad) {
      EXPECT_NE(run(n), NESO_OK) << n;
      EXPECT_NE(std::string(neso_error_text()).find(row.says), std::string::npos) << n << ": " << neso_error_text();
    }
    for (int64_t n : row.good) EXPECT_EQ(run(n), NESO_OK) << n << ": " << neso_error_text();
    TearDown();
    context_ = nullptr, model_ = nullptr;
  }
}

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

TEST_F(Bins, ANegativeElementHasNoBin) {
  EXPECT_EQ(run({1, 2, 0, 3, 5, -4, 0, 0, 0, 0, 0, 0}), NESO_GUARD_FAILED);
  EXPECT_NE(std::string(neso_error_text()).find("= -1"), std::string::npos) << neso_error_text();
  ASSERT_EQ(run({1, 2, 0, 3, 5, 4, 0, 0, 0, 0, 0, 0}), NESO_OK) << neso_error_text();
  EXPECT_EQ(out_[0].sizes[0], 6);
  EXPECT_EQ(out_[1].sizes[0], 7);
}

TEST_F(RepeatedTo, AnotherTotalIsRefused) {
  EXPECT_EQ(run({2, 0, 6}), NESO_ASSERTION_FAILED);
  EXPECT_EQ(run({2, 1, 7}), NESO_ASSERTION_FAILED);
  EXPECT_EQ(run({12, -1, -2}), NESO_ASSERTION_FAILED);
  EXPECT_EQ(run({1, 3, 5}), NESO_OK) << neso_error_text();
}

} // namespace
} // namespace neso
