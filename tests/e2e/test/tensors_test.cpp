// The comparison decides what counts as right, so it is tested by itself; expected values are closed forms.
#include "e2e/tensors.h"

#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

namespace neso::e2e {
namespace {

template <typename T> Tensor make(neso_dtype dtype, std::vector<int64_t> sizes, const std::vector<T> &values) {
  Tensor t;
  t.dtype = dtype;
  t.sizes = std::move(sizes);
  t.bytes = values.size() * sizeof(T);
  t.storage.resize(t.bytes + 64);
  std::memcpy(t.data(), values.data(), t.bytes);
  return t;
}

TEST(Compare, ToleranceIsAbsolutePlusRelative) {
  Tensor want = make<float>(NESO_F32, {2}, {100.0f, 0.0f});
  Tensor near = make<float>(NESO_F32, {2}, {100.9f, 0.09f}), far = make<float>(NESO_F32, {2}, {100.9f, 0.2f});
  EXPECT_EQ(compare(near.view(), want, {0.01, 0.1}), "");
  EXPECT_NE(compare(far.view(), want, {0.01, 0.1}).find("1 of 2"), std::string::npos);
  EXPECT_NE(compare(near.view(), want, {}), "");
}

TEST(Compare, NanAndInfinityMatchOnlyThemselves) {
  Tensor want = make<float>(NESO_F32, {3}, {NAN, INFINITY, 1.0f});
  Tensor other = make<float>(NESO_F32, {3}, {NAN, -INFINITY, NAN});
  EXPECT_EQ(compare(want.view(), want, {}), "");
  EXPECT_NE(compare(other.view(), want, {1, 1e30}).find("2 of 3"), std::string::npos);
}

TEST(Compare, HalfAndBfloat16AreWidened) {
  // 1.0 and 1.0009765625; the smallest half; 65504.
  Tensor half = make<uint16_t>(NESO_F16, {3}, {0x3c00, 0x0001, 0x7bff}),
         next = make<uint16_t>(NESO_F16, {3}, {0x3c01, 0x0001, 0x7bff});
  EXPECT_EQ(compare(next.view(), half, {0, 0.00098}), "");
  EXPECT_NE(compare(next.view(), half, {0, 0.00097}), "");
  Tensor brain = make<uint16_t>(NESO_BF16, {1}, {0x3f80}), more = make<uint16_t>(NESO_BF16, {1}, {0x3f81});
  EXPECT_EQ(compare(more.view(), brain, {0, 0.0079}), "");
  EXPECT_NE(compare(more.view(), brain, {0, 0.0078}), "");
}

TEST(Compare, StridesDTypeAndShapeAreSeen) {
  Tensor stored = make<int64_t>(NESO_I64, {2, 3}, {1, 2, 3, 4, 5, 6}),
         want = make<int64_t>(NESO_I64, {3, 2}, {1, 4, 2, 5, 3, 6});
  neso_tensor transposed = stored.view();
  int64_t sizes[] = {3, 2}, strides[] = {1, 3};
  transposed.sizes = sizes;
  transposed.strides = strides;
  EXPECT_EQ(compare(transposed, want, {}), "");
  EXPECT_NE(compare(stored.view(), want, {}).find("shape [2, 3]"), std::string::npos);
  Tensor narrow = make<int32_t>(NESO_I32, {3, 2}, {1, 4, 2, 5, 3, 6});
  EXPECT_NE(compare(narrow.view(), want, {}).find("dtype"), std::string::npos);
}

TEST(Read, GoldensOfModels) {
  Tensors tensors;
  std::string error;
  ASSERT_TRUE(readSafetensors(NESO_SOURCE_DIR "/tests/goldens/models/bert/inputs.safetensors", &tensors, &error))
      << error;
  EXPECT_EQ(tensors["0"].sizes, (std::vector<int64_t>{2, 12}));
  EXPECT_EQ(tensors["1"].dtype, NESO_I64);
  EXPECT_FALSE(readSafetensors(NESO_SOURCE_DIR "/README.md", &tensors, &error));
}

} // namespace
} // namespace neso::e2e
