// Packages whose weights lie elsewhere: in a file that several packages share, or with whoever runs the model. They compute what the
// packages that hold their weights compute, bit for bit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "driver/compile.h"
#include "e2e/tensors.h"

namespace neso::e2e {
namespace {
namespace fs = std::filesystem;

class WeightFiles : public testing::TestWithParam<const char *> {
protected:
  WeightFiles() : folder(fs::path(testing::TempDir()) / fmt::format("weight_files_{}", reinterpret_cast<uintptr_t>(this))) {
    fs::create_directories(folder);
  }
  ~WeightFiles() override { fs::remove_all(folder); }

  std::string at(const std::string &name) const { return (folder / name).string(); }
  static std::string golden(const std::string &name, const char *ending) {
    return fmt::format("{}/tests/goldens/weights/{}{}", NESO_SOURCE_DIR, name, ending);
  }
  void compile(const std::string &name, const std::string &output, WeightPlace weights, const char *arch = "x86-64-v3") {
    CompileOptions options;
    options.archs = {arch};
    options.options = {{"join", "always"}};
    options.output = at(output), options.weights = std::move(weights);
    options.updatable = options.weights.kind == WeightPlace::None;
    DiagnosticSink sink;
    Result<Compilation> c = compileModel(golden(name, ".pt2"), options, sink);
    ASSERT_TRUE(c) << c.error().str();
    EXPECT_TRUE(c->package.empty());
  }
  WeightPlace shared() const { return {WeightPlace::File, at("all.weights"), "all.weights"}; }

  struct Model {
    neso_model *model = nullptr;
    neso_context *context = nullptr;
    ~Model() {
      neso_context_free(context);
      neso_model_free(model);
    }
    neso_status open(const std::string &path, const char *weights = nullptr) {
      neso_model_options options{};
      options.struct_size = sizeof options, options.weights_path = weights;
      neso_status s = neso_model_load(path.c_str(), &options, &model);
      return s == NESO_OK ? neso_context_create(model, nullptr, &context) : s;
    }
  };
  /// The first output's bytes.
  static std::string run(Model &m, Tensors &tensors, neso_status *status = nullptr) {
    neso_tensor in = tensors.at("input/0").view(), out{};
    const neso_status s = neso_run(m.context, &in, 1, &out, 1);
    if (status) *status = s;
    if (s != NESO_OK) return neso_error_text();
    const Tensor &want = tensors.at("output/0");
    return std::string(static_cast<const char *>(out.data), static_cast<size_t>(want.bytes));
  }
  Tensors tensorsOf(const std::string &name) {
    Tensors tensors;
    std::string error;
    EXPECT_TRUE(readSafetensors(golden(name, ".safetensors"), &tensors, &error)) << error;
    return tensors;
  }

  fs::path folder;
};

TEST_P(WeightFiles, ComputeWhatEmbeddedOnesDo) {
  compile(GetParam(), "embedded.neso", {});
  compile(GetParam(), "external.neso", shared());
  if (HasFatalFailure()) return;
  EXPECT_LT(fs::file_size(at("external.neso")), fs::file_size(at("embedded.neso")));
  Tensors tensors = tensorsOf(GetParam());
  Model embedded, external;
  ASSERT_EQ(embedded.open(at("embedded.neso")), NESO_OK) << neso_error_text();
  ASSERT_EQ(external.open(at("external.neso")), NESO_OK) << neso_error_text();
  EXPECT_EQ(run(embedded, tensors), run(external, tensors));
}

TEST_P(WeightFiles, OfTheCallerAreAskedForByName) {
  compile(GetParam(), "embedded.neso", {});
  compile(GetParam(), "none.neso", {WeightPlace::None, "", ""});
  if (HasFatalFailure()) return;
  EXPECT_LT(fs::file_size(at("none.neso")), fs::file_size(at("embedded.neso")));
  Tensors tensors = tensorsOf(GetParam());
  Model m;
  ASSERT_EQ(m.open(at("none.neso")), NESO_OK) << neso_error_text();
  neso_status status = NESO_OK;
  run(m, tensors, &status);
  EXPECT_EQ(status, NESO_CONSTANT_MISSING) << neso_error_text();
  neso_weights *set = nullptr;
  ASSERT_EQ(neso_weights_create(m.model, nullptr, &set), NESO_OK) << neso_error_text();
  EXPECT_EQ(neso_weights_seal(set), NESO_CONSTANT_MISSING);
  ASSERT_EQ(neso_weights_load(set, golden(GetParam(), ".safetensors").c_str(), "weight/", nullptr, nullptr), NESO_OK) << neso_error_text();
  ASSERT_EQ(neso_weights_seal(set), NESO_OK) << neso_error_text();
  ASSERT_EQ(neso_model_use(m.model, set), NESO_OK);
  neso_weights_free(set);
  neso_tensor in = tensors.at("input/0").view(), out{};
  ASSERT_EQ(neso_run(m.context, &in, 1, &out, 1), NESO_OK) << neso_error_text();
  EXPECT_EQ(compare(out, tensors.at("output/0"), {1e-5, 1e-4}), "");
}

INSTANTIATE_TEST_SUITE_P(Models, WeightFiles, testing::Values("mlp", "conv_norm", "tied", "parts", "siblings", "flipped"),
                         [](const auto &p) { return std::string(p.param); });

class SharedWeights : public WeightFiles {};

TEST_F(SharedWeights, KeepWhatOtherPackagesHaveThere) {
  compile("mlp", "first.neso", shared());
  const auto alone = fs::file_size(at("all.weights"));
  // The same weights, packed for another kind of registers or not, and those of another model.
  compile("mlp", "again.neso", shared());
  EXPECT_EQ(fs::file_size(at("all.weights")), alone);
  compile("conv_norm", "second.neso", shared());
  if (HasFatalFailure()) return;
  EXPECT_GT(fs::file_size(at("all.weights")), alone);
  for (const char *name : {"first.neso", "again.neso", "second.neso"}) {
    Model m;
    EXPECT_EQ(m.open(at(name)), NESO_OK) << neso_error_text();
  }
}

TEST_F(SharedWeights, ThatAreNotThereAreMissedByName) {
  compile("mlp", "m.neso", shared());
  if (HasFatalFailure()) return;
  fs::rename(at("all.weights"), at("moved.weights"));
  Model lost, found, later;
  EXPECT_EQ(lost.open(at("m.neso")), NESO_FILE_UNREADABLE);
  EXPECT_NE(std::string(neso_error_text()).find("all.weights"), std::string::npos) << neso_error_text();
  EXPECT_EQ(found.open(at("m.neso"), at("moved.weights").c_str()), NESO_OK) << neso_error_text();
  EXPECT_EQ(later.open(at("m.neso"), ""), NESO_OK) << neso_error_text();
  Tensors tensors = tensorsOf("mlp");
  neso_status status = NESO_OK;
  run(later, tensors, &status);
  EXPECT_EQ(status, NESO_CONSTANT_MISSING);
  compile("conv_norm", "other.neso", {WeightPlace::File, at("other.weights"), "other.weights"});
  Model mistaken;
  EXPECT_EQ(mistaken.open(at("m.neso"), at("other.weights").c_str()), NESO_PACKAGE_MEMBER_MISSING) << neso_error_text();
}

TEST_F(SharedWeights, ThatWereAlteredAreNoticed) {
  compile("mlp", "m.neso", shared());
  if (HasFatalFailure()) return;
  std::fstream file(at("all.weights"), std::ios::in | std::ios::out | std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), {});
  const size_t weight = bytes.find("data/weights/") + 200;
  file.seekp(static_cast<std::streamoff>(weight));
  file.put(static_cast<char>(bytes[weight] ^ 1));
  file.close();
  Model m;
  EXPECT_EQ(m.open(at("m.neso")), NESO_PACKAGE_ALTERED) << neso_error_text();
}

TEST_F(SharedWeights, NeverTakeThePlaceOfAFileOfAnotherKind) {
  std::ofstream(at("all.weights")) << "notes of mine";
  CompileOptions options;
  options.output = at("m.neso"), options.weights = shared();
  DiagnosticSink sink;
  Result<Compilation> c = compileModel(golden("mlp", ".pt2"), options, sink);
  ASSERT_FALSE(c);
  EXPECT_NE(c.error().str().find("all.weights"), std::string::npos) << c.error().str();
  EXPECT_FALSE(fs::exists(at("m.neso")));
  EXPECT_EQ(fs::file_size(at("all.weights")), strlen("notes of mine"));
}

} // namespace
} // namespace neso::e2e
