// Sets of weights: values in and out, other orders, sharing, swaps while runs are under way. Run under the thread sanitizer by the tsan preset.
#include <pthread.h>
#include <unistd.h>

#include <atomic>

#include "test/harness.h"

using namespace neso_test;
using B = PackageBuilder;

namespace {
/// y = x + w with x, w [n] of f32; w's bytes are `bytes`, its rows are given by `describe`.
template <typename Describe> std::string addWeight(int64_t n, const std::vector<float> &bytes, Describe describe) {
  B b;
  int32_t size = b.constant(n), extent = b.constant(4 * n);
  b.input("x", {b.fixed(n)});
  std::string member = "data/weights/weight_0";
  b.members.emplace_back(member, std::string(reinterpret_cast<const char *>(bytes.data()), bytes.size() * 4));
  b.constantRows.push_back(describe(b, member));
  int32_t x = b.buffer(fbs::Location::Input, 0, extent), c = b.buffer(fbs::Location::Constant, 0, extent),
          out = b.buffer(fbs::Location::Output, 0, extent);
  b.output("y", out, {size});
  b.launch(b.kernel("test_add", 3), {B::arg(x), B::arg(c), B::arg(out)}, size);
  return b.package();
}

/// "fc.weight" [2, 3] kept transposed, then in blocks of two columns padded to four rows: 8 elements, of which [6] and [7] are padding.
std::string inOrder() {
  return addWeight(8, {1, 4, 2, 5, 3, 6, 0, 0}, [](B &b, const std::string &member) {
    auto piece = [&](std::vector<int64_t> sizes, std::vector<int64_t> to, std::vector<int64_t> from) {
      return fbs::CreateOrderPiece(b.fb, b.fb.CreateVector(sizes), b.fb.CreateVector(to), b.fb.CreateVector(from));
    };
    std::vector<flatbuffers::Offset<fbs::OrderPiece>> turned{piece({3, 2}, {2, 1}, {1, 3})}, padded{piece({6}, {1}, {1})};
    std::vector<flatbuffers::Offset<fbs::ElementOrder>> orders{
        fbs::CreateElementOrder(b.fb, 6, b.fb.CreateVector(turned)),
        fbs::CreateElementOrder(b.fb, 8, b.fb.CreateVector(padded))};
    std::vector<int64_t> sizes{2, 3}, strides{3, 1}, row{3};
    std::vector<int64_t> one{1};
    std::vector<flatbuffers::Offset<fbs::ModelTensor>> sources{
        fbs::CreateModelTensor(b.fb, b.fb.CreateString("fc.weight"), b.fb.CreateVector(sizes), b.fb.CreateVector(strides), 0),
        fbs::CreateModelTensor(b.fb, b.fb.CreateString("fc.second_row"), b.fb.CreateVector(row), b.fb.CreateVector(one), 3)};
    std::vector<int64_t> elements{8};
    return fbs::CreateConstant(b.fb, b.fb.CreateString("fc.weight"), fbs::ConstantKind::Parameter, fbs::DType::F32,
                               b.fb.CreateVector(elements), 0, b.fb.CreateString(member), 0, 32, false, 0,
                               b.fb.CreateVector(orders), 6, b.fb.CreateVector(sources));
  });
}

struct Set {
  neso_weights *w = nullptr;
  neso_status status;
  explicit Set(const neso_model *m, const neso_weights *base = nullptr) { status = neso_weights_create(m, base, &w); }
  Set(const Set &) = delete;
  ~Set() { neso_weights_free(w); }
  neso_status set(const char *name, const Tensor &t, neso_weights_mode mode = NESO_WEIGHTS_COPY) {
    return neso_weights_set(w, name, &t.t, mode);
  }
  std::vector<float> get(const char *name, std::vector<int64_t> sizes) const {
    int64_t count = 1;
    for (int64_t s : sizes) count *= s;
    Tensor t(sizes, std::vector<float>(size_t(count)));
    EXPECT_EQ(neso_weights_get(w, name, &t.t), NESO_OK) << neso_error_text();
    return t.data;
  }
};

std::vector<float> result(neso_context *c, const std::vector<float> &x) {
  Tensor in({int64_t(x.size())}, x);
  neso_tensor out{};
  EXPECT_EQ(neso_run(c, &in.t, 1, &out, 1), NESO_OK) << neso_error_text();
  return out.data ? floats(out, x.size()) : std::vector<float>();
}

Tensor hundred(float value) { return Tensor({100}, std::vector<float>(100, value)); }
} // namespace

TEST(Weights, ASetReplacesThePackagesValuesAndGivesThemBack) {
  Loaded m(addThenDouble(1).package());
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  EXPECT_EQ(result(m.context, {1, 2}), (std::vector<float>{4, 6}));
  Set s(m.model);
  EXPECT_EQ(s.get("layer.weight", {100}), std::vector<float>(100, 1));
  ASSERT_EQ(s.set("layer.weight", hundred(10)), NESO_OK) << neso_error_text();
  EXPECT_STATUS(neso_model_use(m.model, s.w), NESO_INVALID_ARGUMENT, "sealed");
  ASSERT_EQ(neso_weights_seal(s.w), NESO_OK) << neso_error_text();
  EXPECT_STATUS(s.set("layer.weight", hundred(11)), NESO_INVALID_ARGUMENT, "not sealed");
  ASSERT_EQ(neso_model_use(m.model, s.w), NESO_OK);
  EXPECT_EQ(result(m.context, {1, 2}), (std::vector<float>{22, 24}));
  EXPECT_EQ(s.get("layer.weight", {100}), std::vector<float>(100, 10));
  ASSERT_EQ(neso_model_use(m.model, nullptr), NESO_OK);
  EXPECT_EQ(result(m.context, {1, 2}), (std::vector<float>{4, 6}));
}

TEST(Weights, WrongNamesShapesAndTypesAreRefused) {
  Loaded m(addThenDouble(1).package());
  Set s(m.model);
  EXPECT_STATUS(s.set("layer.bias", hundred(1)), NESO_NO_SUCH_NAME, "layer.bias");
  EXPECT_STATUS(s.set("layer.weight", Tensor({99}, std::vector<float>(99))), NESO_INVALID_ARGUMENT, "size 99");
  EXPECT_STATUS(s.set("layer.weight", Tensor({10, 10}, std::vector<float>(100))), NESO_INVALID_ARGUMENT, "2 dimensions");
  Tensor t = hundred(1);
  t.t.dtype = NESO_I32;
  EXPECT_STATUS(s.set("layer.weight", t), NESO_INVALID_ARGUMENT, "i32");
  Tensor empty = hundred(1);
  empty.t.data = nullptr;
  EXPECT_STATUS(neso_weights_set(s.w, "layer.weight", &empty.t, NESO_WEIGHTS_COPY), NESO_INVALID_ARGUMENT, "without data");
  EXPECT_EQ(s.get("layer.weight", {100}), std::vector<float>(100, 1));
}

TEST(Weights, ASetKeepsWhatItsBaseHas) {
  Loaded m(addThenDouble(1).package());
  Set a(m.model);
  ASSERT_EQ(a.set("layer.weight", hundred(5)), NESO_OK);
  Set early(m.model, a.w);
  EXPECT_EQ(early.status, NESO_INVALID_ARGUMENT);
  ASSERT_EQ(neso_weights_seal(a.w), NESO_OK);
  Set b(m.model, a.w);
  neso_weights_free(a.w);
  a.w = nullptr;
  EXPECT_EQ(b.get("layer.weight", {100}), std::vector<float>(100, 5));
  ASSERT_EQ(neso_weights_seal(b.w), NESO_OK);
  ASSERT_EQ(neso_model_use(m.model, b.w), NESO_OK);
  EXPECT_EQ(result(m.context, {1, 2}), (std::vector<float>{12, 14}));
}

TEST(Weights, TensorsKeptInAnotherOrderAreSetAndReadAsTheModelHasThem) {
  Loaded m(inOrder());
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  ASSERT_EQ(neso_model_constant_count(m.model), 2);
  neso_constant_info info;
  ASSERT_EQ(neso_model_constant(m.model, 0, &info), NESO_OK);
  EXPECT_STREQ(info.name, "fc.weight");
  ASSERT_EQ(info.tensor.rank, 2);
  EXPECT_EQ(info.tensor.sizes[1], 3);
  EXPECT_EQ(info.tensor.data, nullptr);
  const std::vector<float> zeros(8, 0);
  Set s(m.model);
  EXPECT_EQ(s.get("fc.weight", {2, 3}), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  ASSERT_EQ(s.set("fc.weight", Tensor({2, 3}, {10, 20, 30, 40, 50, 60})), NESO_OK) << neso_error_text();
  EXPECT_EQ(s.get("fc.weight", {2, 3}), (std::vector<float>{10, 20, 30, 40, 50, 60}));
  // A part of it, and columns first.
  ASSERT_EQ(s.set("fc.second_row", Tensor({3}, {7, 8, 9})), NESO_OK) << neso_error_text();
  EXPECT_EQ(s.get("fc.weight", {2, 3}), (std::vector<float>{10, 20, 30, 7, 8, 9}));
  ASSERT_EQ(neso_weights_seal(s.w), NESO_OK);
  ASSERT_EQ(neso_context_use(m.context, s.w), NESO_OK);
  EXPECT_EQ(result(m.context, zeros), (std::vector<float>{10, 7, 20, 8, 30, 9, 0, 0}));
  Set t(m.model, s.w);
  ASSERT_EQ(t.set("fc.weight", Tensor({2, 3}, {1, 2}, {1, 2, 3, 4, 5, 6})), NESO_OK) << neso_error_text();
  EXPECT_EQ(t.get("fc.weight", {2, 3}), (std::vector<float>{1, 3, 5, 2, 4, 6}));
  EXPECT_EQ(s.get("fc.weight", {2, 3}), (std::vector<float>{10, 20, 30, 7, 8, 9}));
  EXPECT_STATUS(t.set("fc.weight", Tensor({2, 3}, std::vector<float>(6)), NESO_WEIGHTS_BORROW), NESO_INVALID_ARGUMENT,
                "another order");
  ASSERT_EQ(neso_context_use(m.context, nullptr), NESO_OK);
  EXPECT_EQ(result(m.context, zeros), (std::vector<float>{1, 4, 2, 5, 3, 6, 0, 0}));
}

TEST(Weights, OrdersThatLeaveTheirBytesAreRefused) {
  auto broken = [](int64_t elements, std::vector<int64_t> sizes, std::vector<int64_t> to, int64_t sourceElements, int64_t step = 1,
                   int64_t begin = 0) {
    return addWeight(8, std::vector<float>(8), [&](B &b, const std::string &member) {
      std::vector<int64_t> from(sizes.size(), step);
      std::vector<flatbuffers::Offset<fbs::OrderPiece>> pieces{
          fbs::CreateOrderPiece(b.fb, b.fb.CreateVector(sizes), b.fb.CreateVector(to), b.fb.CreateVector(from), 0, begin)};
      std::vector<flatbuffers::Offset<fbs::ElementOrder>> orders{
          fbs::CreateElementOrder(b.fb, elements, b.fb.CreateVector(pieces))};
      std::vector<int64_t> whole{8};
      return fbs::CreateConstant(b.fb, b.fb.CreateString("w"), fbs::ConstantKind::Parameter, fbs::DType::F32,
                                 b.fb.CreateVector(whole), 0, b.fb.CreateString(member), 0, 32, false, 0,
                                 b.fb.CreateVector(orders), sourceElements);
    });
  };
  EXPECT_EQ(Loaded(broken(8, {8}, {1}, 8)).status, NESO_OK) << neso_error_text();
  EXPECT_EQ(Loaded(broken(8, {8}, {1}, 8, -1, 7)).status, NESO_OK) << neso_error_text();
  for (const std::string &package : {broken(8, {9}, {1}, 9), broken(8, {8}, {2}, 8), broken(8, {8}, {1}, 7),
                                     broken(7, {7}, {1}, 8), broken(8, {8}, {-1}, 8), broken(8, {8}, {1}, -1), broken(8, {8}, {1}, 8, -1, 6),
                                     broken(8, {8}, {1}, 8, -1, 8), broken(8, {8}, {1}, 8, INT64_MIN, 7)})
    EXPECT_EQ(Loaded(package).status, NESO_PACKAGE_MALFORMED);
}

TEST(Weights, WhatWasFoldedCannotBeSet) {
  Loaded m(addWeight(2, {3, 4}, [](B &b, const std::string &member) {
    std::vector<int64_t> sizes{2};
    std::vector<std::string> from{"bn.weight", "bn.bias"};
    return fbs::CreateConstant(b.fb, b.fb.CreateString("constant.0"), fbs::ConstantKind::Folded, fbs::DType::F32,
                               b.fb.CreateVector(sizes), 0, b.fb.CreateString(member), 0, 8, false, 0, 0, 0, 0,
                               b.fb.CreateVectorOfStrings(from));
  }));
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  Set s(m.model);
  EXPECT_STATUS(s.set("bn.bias", Tensor({2}, {1, 2})), NESO_WEIGHT_FIXED, "--updatable");
  EXPECT_STATUS(s.set("bn.other", Tensor({2}, {1, 2})), NESO_NO_SUCH_NAME, "bn.other");
}

TEST(Weights, BorrowedMemoryIsUsedWhereItLies) {
  Loaded m(addThenDouble(1).package());
  alignas(64) float mine[100];
  for (float &f : mine) f = 2;
  int64_t size = 100;
  neso_tensor t{mine, &size, nullptr, 1, NESO_F32, NESO_CPU, 0};
  Set s(m.model);
  ASSERT_EQ(neso_weights_set(s.w, "layer.weight", &t, NESO_WEIGHTS_BORROW), NESO_OK) << neso_error_text();
  ASSERT_EQ(neso_weights_seal(s.w), NESO_OK);
  ASSERT_EQ(neso_model_use(m.model, s.w), NESO_OK);
  EXPECT_EQ(result(m.context, {1, 1}), (std::vector<float>{6, 6}));
  mine[1] = 5;
  EXPECT_EQ(result(m.context, {1, 1}), (std::vector<float>{6, 12}));
  t.data = mine + 1;
  Set u(m.model);
  EXPECT_STATUS(neso_weights_set(u.w, "layer.weight", &t, NESO_WEIGHTS_BORROW), NESO_INVALID_ARGUMENT, "64");
}

TEST(Weights, MutatedBuffersKeepWhatRunsLeftUnlessTheSetHasItsOwn) {
  B b;
  int32_t n = b.constant(2), bytes = b.constant(8);
  std::vector<float> w{1, 1}, other{3, 3};
  b.weight("state", {2}, std::string(reinterpret_cast<char *>(w.data()), 8), true, fbs::ConstantKind::Buffer);
  b.weight("w", {2}, std::string(reinterpret_cast<char *>(other.data()), 8));
  b.input("x", {b.fixed(2)});
  int32_t x = b.buffer(fbs::Location::Input, 0, bytes), state = b.buffer(fbs::Location::Constant, 0, bytes),
          c = b.buffer(fbs::Location::Constant, 1, bytes), out = b.buffer(fbs::Location::Output, 0, bytes);
  b.output("y", out, {n});
  int32_t add = b.kernel("test_add", 3);
  b.launch(add, {B::arg(x), B::arg(state), B::arg(state)}, n);
  b.launch(add, {B::arg(state), B::arg(c), B::arg(out)}, n);
  Loaded m(b.package());
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  EXPECT_EQ(result(m.context, {1, 1}), (std::vector<float>{5, 5}));
  Set s(m.model);
  ASSERT_EQ(s.set("w", Tensor({2}, {10, 10})), NESO_OK);
  ASSERT_EQ(neso_weights_seal(s.w), NESO_OK);
  ASSERT_EQ(neso_model_use(m.model, s.w), NESO_OK);
  EXPECT_EQ(result(m.context, {1, 1}), (std::vector<float>{13, 13}));
  Set t(m.model, s.w);
  ASSERT_EQ(t.set("state", Tensor({2}, {100, 200})), NESO_OK);
  ASSERT_EQ(neso_weights_seal(t.w), NESO_OK);
  ASSERT_EQ(neso_model_use(m.model, t.w), NESO_OK);
  EXPECT_EQ(result(m.context, {1, 1}), (std::vector<float>{111, 211}));
  EXPECT_EQ(result(m.context, {1, 1}), (std::vector<float>{112, 212}));
  ASSERT_EQ(neso_context_reset_buffers(m.context), NESO_OK);
  EXPECT_EQ(result(m.context, {1, 1}), (std::vector<float>{111, 211}));
  // Sets that are gone by the next call.
  ASSERT_EQ(neso_model_use(m.model, nullptr), NESO_OK);
  neso_weights_free(t.w);
  t.w = nullptr;
  ASSERT_EQ(neso_context_reset_buffers(m.context), NESO_OK);
  EXPECT_EQ(result(m.context, {1, 1}), (std::vector<float>{5, 5}));
  {
    Set u(m.model);
    ASSERT_EQ(u.set("state", Tensor({2}, {7, 7})), NESO_OK);
    ASSERT_EQ(neso_weights_seal(u.w), NESO_OK);
    ASSERT_EQ(neso_model_use(m.model, u.w), NESO_OK);
    EXPECT_EQ(result(m.context, {1, 1}), (std::vector<float>{11, 11}));
    ASSERT_EQ(neso_model_use(m.model, nullptr), NESO_OK);
  }
  EXPECT_EQ(result(m.context, {1, 1}), (std::vector<float>{5, 5}));
}

TEST(Weights, OtherDevicesGetCopiesWhenTheSetIsSealed) {
  neso_context_options o{};
  o.device = NESO_NULL;
  Loaded m(addThenDouble(1).package(), 1, &o);
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  Tensor x({4}, {1, 2, 3, 4});
  std::vector<neso_tensor> out(1);
  for (int round = 0; round < 4; ++round) {
    Set s(m.model);
    ASSERT_EQ(s.set("layer.weight", hundred(float(round))), NESO_OK);
    ASSERT_EQ(neso_weights_seal(s.w), NESO_OK) << neso_error_text();
    ASSERT_EQ(neso_model_use(m.model, s.w), NESO_OK);
    // Twice and once more: the run is recorded on the way. The device refuses memory that is not its own.
    for (int i = 0; i < 3; ++i) ASSERT_EQ(m.run({x.t}, out), NESO_OK) << neso_error_text();
    ASSERT_EQ(neso_run_async(m.context, &x.t, 1, out.data(), 1), NESO_OK) << neso_error_text();
    EXPECT_EQ(neso_weights_users(s.w), 1);
  }
  ASSERT_EQ(neso_context_synchronize(m.context), NESO_OK);
  ASSERT_EQ(neso_model_use(m.model, nullptr), NESO_OK);
  ASSERT_EQ(m.run({x.t}, out), NESO_OK) << neso_error_text();
}

namespace {
/// A file of the header and `floats` floats, each 7.
std::string safetensorsFile(const std::string &header, size_t floats, int64_t length = -1) {
  static int count = 0;
  std::string path = testing::TempDir() + "/neso_weights_" + std::to_string(count++) + ".safetensors";
  uint64_t size = length < 0 ? header.size() : uint64_t(length);
  std::vector<float> values(floats, 7);
  FILE *f = fopen(path.c_str(), "wb");
  fwrite(&size, 8, 1, f);
  fwrite(header.data(), 1, header.size(), f);
  fwrite(values.data(), 4, floats, f);
  fclose(f);
  return path;
}
} // namespace

TEST(Weights, AreLoadedFromSafetensors) {
  Loaded m(addThenDouble(1).package());
  Set s(m.model);
  int64_t set = -1, ignored = -1;
  std::string path = safetensorsFile(R"({"__metadata__":{"a":"b\"c","d":{}},
    "model.layer.wei\u0067ht": {"shape":[100],"dtype":"F32","data_offsets":[4,404]}, "model.other":{"dtype":"F32","shape":[],"data_offsets":[0,4]}} )",
                                     101);
  ASSERT_EQ(neso_weights_load(s.w, path.c_str(), "model.", &set, &ignored), NESO_OK) << neso_error_text();
  EXPECT_EQ(set, 1);
  EXPECT_EQ(ignored, 1);
  EXPECT_EQ(s.get("layer.weight", {100}), std::vector<float>(100, 7));
  ASSERT_EQ(neso_weights_load(s.w, path.c_str(), nullptr, &set, &ignored), NESO_OK) << neso_error_text();
  EXPECT_EQ(set, 0);
  EXPECT_EQ(neso_weights_load(s.w, (path + "x").c_str(), nullptr, nullptr, nullptr), NESO_FILE_UNREADABLE);
}

TEST(Weights, HostileFilesAreRefused) {
  Loaded m(addThenDouble(1).package());
  Set s(m.model);
  const std::string good = R"({"layer.weight":{"dtype":"F32","shape":[100],"data_offsets":[0,400]}})";
  EXPECT_EQ(neso_weights_load(s.w, safetensorsFile(good, 100).c_str(), nullptr, nullptr, nullptr), NESO_OK);
  auto refused = [&](const std::string &header, size_t floats, int64_t length = -1) {
    std::string path = safetensorsFile(header, floats, length);
    EXPECT_EQ(neso_weights_load(s.w, path.c_str(), nullptr, nullptr, nullptr), NESO_INVALID_ARGUMENT) << header;
  };
  refused(good, 99);
  refused(good, 100, 1 << 20);
  refused(good, 100, INT64_MAX);
  // Every shorter header, and every byte replaced.
  for (size_t i = 0; i < good.size(); ++i) refused(good.substr(0, i), 100);
  for (size_t i = 0; i < good.size(); ++i)
    for (char c : {'\0', '"', '{', '}', '[', '\\', '9'}) {
      std::string bad = good;
      bad[i] = c;
      std::string path = safetensorsFile(bad, 100);
      (void)neso_weights_load(s.w, path.c_str(), nullptr, nullptr, nullptr);
      unlink(path.c_str());
    }
  refused(R"({"layer.weight":{"dtype":"F32","shape":[99],"data_offsets":[0,396]}})", 100);
  refused(R"({"layer.weight":{"dtype":"I32","shape":[100],"data_offsets":[0,400]}})", 100);
  refused(R"({"layer.weight":{"dtype":"F32","shape":[100],"data_offsets":[400,0]}})", 100);
  refused(R"({"layer.weight":{"dtype":"F32","shape":[9223372036854775807,9223372036854775807],"data_offsets":[0,4]}})", 100);
  refused(R"({"layer.weight":{"dtype":"F32","shape":[100]}})", 100);
}

namespace {
struct Hammer {
  neso_model *model;
  std::atomic<bool> stop{false};
  std::atomic<int64_t> runs{0}, torn{0}, failed{0};
};

/// Every output must come from one set: all its elements are equal.
void *runAll(void *data) {
  Hammer *h = static_cast<Hammer *>(data);
  neso_context_options o{};
  o.struct_size = sizeof o;
  o.threads = 1;
  neso_context *c = nullptr;
  if (neso_context_create(h->model, &o, &c) != NESO_OK) return ++h->failed, nullptr;
  Tensor x({100}, std::vector<float>(100, 0));
  neso_tensor out{};
  while (!h->stop) {
    if (neso_run(c, &x.t, 1, &out, 1) != NESO_OK) {
      ++h->failed;
      continue;
    }
    std::vector<float> y = floats(out, 100);
    for (float f : y) h->torn += f != y[0];
    ++h->runs;
  }
  neso_context_free(c);
  return nullptr;
}
} // namespace

TEST(Weights, SwapsWhileThreadsRunAreNeverSeenInPart) {
  Loaded m(addThenDouble(1).package());
  ASSERT_EQ(m.status, NESO_OK);
  Hammer h{m.model};
  pthread_t threads[4];
  for (pthread_t &t : threads) pthread_create(&t, nullptr, runAll, &h);
  int swaps = 0;
  timespec begin, now;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  do {
    Set s(m.model);
    ASSERT_EQ(s.set("layer.weight", hundred(float(swaps % 1000))), NESO_OK);
    ASSERT_EQ(neso_weights_seal(s.w), NESO_OK);
    ASSERT_EQ(neso_model_use(m.model, s.w), NESO_OK);
    ++swaps;
    clock_gettime(CLOCK_MONOTONIC, &now);
  } while (now.tv_sec - begin.tv_sec < 2 || h.runs < 100);
  h.stop = true;
  for (pthread_t &t : threads) pthread_join(t, nullptr);
  EXPECT_EQ(h.failed, 0);
  EXPECT_EQ(h.torn, 0);
  EXPECT_GT(swaps, 100);
  RecordProperty("swaps", swaps);
}

TEST(Weights, ASetIsFreedWithTheLastRunThatReadsIt) {
  neso_context_options o{};
  o.device = NESO_NULL;
  Loaded m(addThenDouble(1).package(), 1, &o);
  Tensor x({4}, {1, 2, 3, 4});
  neso_tensor out{};
  neso_weights *held = nullptr;
  {
    Set s(m.model);
    ASSERT_EQ(s.set("layer.weight", hundred(2)), NESO_OK);
    ASSERT_EQ(neso_weights_seal(s.w), NESO_OK);
    ASSERT_EQ(neso_context_use(m.context, s.w), NESO_OK);
    ASSERT_EQ(neso_run_async(m.context, &x.t, 1, &out, 1), NESO_OK) << neso_error_text();
    held = neso_weights_retain(s.w);
  }
  ASSERT_EQ(neso_context_use(m.context, nullptr), NESO_OK);
  EXPECT_EQ(neso_weights_users(held), 1);
  ASSERT_EQ(neso_context_synchronize(m.context), NESO_OK);
  EXPECT_EQ(neso_weights_users(held), 0);
  neso_weights_free(held);
}
