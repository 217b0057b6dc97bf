// neso pack on packages of PyTorch's files: models by name, equal weights once, weights beside, notes, refusals.
#include "test/harness.h"

using namespace neso;
using namespace neso::cli;

namespace {
const std::string kModels = NESO_SOURCE_DIR "/tests/goldens/weights/", kGelu = NESO_SOURCE_DIR "/tests/goldens/ops/activations/gelu.pt2";

class Pack : public CliTest {
protected:
  void SetUp() override {
    CliTest::SetUp();
    Result<std::vector<HostTensor>> tensors = readTensorFile(kModels + "mlp.safetensors");
    ASSERT_TRUE(static_cast<bool>(tensors));
    for (HostTensor &t : *tensors)
      if (t.name == "input/0") t.name = "0", save("in.safetensors", {t});
    compile("mlp.neso");
    EXPECT_EQ(run("mlp.neso"), 0);
    want_ = load("out.safetensors");
    EXPECT_FALSE(want_.empty());
  }
  void compile(const std::string &package, const std::string &options = "", const std::string &model = kModels + "mlp.pt2") {
    const Outcome o = neso(fmt::format("compile {} -o {} {}", model, package, options));
    ASSERT_EQ(o.code, 0) << o.err;
  }
  int run(const std::string &package) { return neso(fmt::format("run {} --input {}in.safetensors -o out.safetensors", package, dir)).code; }
  /// Members of weights; each name stands twice in an archive.
  size_t weightsIn(const std::string &package) {
    const std::string bytes = slurp(dir + package);
    size_t count = 0;
    for (size_t at = 0; (at = bytes.find("package/data/weights/", at)) != std::string::npos; ++at) ++count;
    return count / 2;
  }
  void refused(const std::string &arguments, const std::string &code, const std::string &text) {
    const Outcome o = neso("pack " + arguments);
    EXPECT_EQ(o.code, 1) << arguments;
    EXPECT_NE(o.err.find("error[" + code + "]"), std::string::npos) << o.err;
    EXPECT_NE(o.err.find(text), std::string::npos) << o.err;
  }
  std::map<std::string, std::vector<float>> want_;
};
} // namespace

TEST_F(Pack, ModelsAreChosenByName) {
  compile("gelu.neso", "", kGelu);
  Outcome o = neso("pack mlp.neso gelu.neso -o both.neso --metadata author=me --metadata note=a=b");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.err.find("mlp, gelu"), std::string::npos) << o.err;
  ASSERT_EQ(run("both.neso --name mlp"), 0);
  EXPECT_EQ(load("out.safetensors"), want_);
  EXPECT_EQ(neso(fmt::format("verify {} both.neso --name gelu", kGelu)).code, 0);
  o = neso("run both.neso --random");
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("error[E0717]: the package holds several models, name one of: "), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("--name"), std::string::npos) << o.err;
  o = neso("info both.neso");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("--name mlp\nmodel "), std::string::npos) << o.out;
  EXPECT_NE(o.out.find("--name gelu\nmodel "), std::string::npos) << o.out;
  o = neso("info both.neso --json");
  EXPECT_EQ(o.out.find("{\"models\": [{\"model\": "), 0u) << o.out;
  o = neso("info both.neso --name gelu --json");
  EXPECT_NE(o.out.find("\"author\": \"me\""), std::string::npos) << o.out;
  EXPECT_NE(o.out.find("\"note\": \"a=b\""), std::string::npos) << o.out;
  // The same bytes again; a note is replaced; a package of several keeps their names.
  ASSERT_EQ(neso("pack mlp.neso gelu.neso -o again.neso --metadata author=me --metadata note=a=b").code, 0);
  EXPECT_EQ(slurp(dir + "both.neso"), slurp(dir + "again.neso"));
  ASSERT_EQ(neso("pack both.neso mlp.neso -o three.neso --name zoo --name one --metadata note=c").code, 0);
  ASSERT_EQ(run("three.neso --name zoo/mlp"), 0);
  EXPECT_EQ(load("out.safetensors"), want_);
  ASSERT_EQ(run("three.neso --name one"), 0);
  EXPECT_NE(neso("info three.neso --name zoo/gelu").out.find("note: c\n"), std::string::npos);
}

TEST_F(Pack, EqualWeightsAreInItOnce) {
  compile("v3.neso", "--arch x86-64-v3");
  compile("gpu.neso", "--target cuda --arch sm_90 --ptxas none");
  ASSERT_EQ(neso("pack mlp.neso mlp.neso -o both.neso --name a --name b").code, 0);
  EXPECT_GT(weightsIn("mlp.neso"), 0u);
  EXPECT_EQ(weightsIn("both.neso"), weightsIn("mlp.neso"));
  for (const char *name : {"a", "b"}) {
    ASSERT_EQ(run(fmt::format("both.neso --name {}", name)), 0);
    EXPECT_EQ(load("out.safetensors"), want_);
  }
  // CPUs and GPUs.
  const Outcome o = neso("pack v3.neso gpu.neso -o all.neso --name mlp/cpu --name mlp/cuda");
  ASSERT_EQ(o.code, 0) << o.err;
  ASSERT_EQ(run("all.neso --name mlp/cpu"), 0);
  EXPECT_NE(neso("info all.neso --name mlp/cuda").out.find("compute_90"), std::string::npos);
}

TEST_F(Pack, TheDeviceChoosesInAPackageForSeveral) {
  compile("all.neso", "--target cpu,cuda --arch x86-64-v3,sm_90 --ptxas none --metadata author=me");
  ASSERT_EQ(run("all.neso"), 0);
  EXPECT_EQ(load("out.safetensors"), want_);
  ASSERT_EQ(run("all.neso --name model"), 0);
  EXPECT_EQ(load("out.safetensors"), want_);
  compile("cpu.neso", "--arch x86-64-v3");
  compile("gpu.neso", "--target cuda --arch sm_90 --ptxas none");
  // What both read in one order is there once.
  EXPECT_LT(weightsIn("all.neso"), weightsIn("cpu.neso") + weightsIn("gpu.neso"));
  EXPECT_NE(neso("info all.neso --name model/cuda").out.find("author: me"), std::string::npos);
  // Nothing is left beside it, and nothing where one of them fails.
  EXPECT_EQ(slurp(dir + "all.neso.cpu.part") + slurp(dir + "all.neso.cuda.part"), "");
  Outcome o = neso(fmt::format("compile {}mlp.pt2 -o {}bad.neso --target cpu,cuda --arch x86-64-v3,sm_12345", kModels, dir));
  EXPECT_EQ(o.code, 1) << o.err;
  EXPECT_NE(o.err.find("sm_12345"), std::string::npos) << o.err;
  EXPECT_EQ(slurp(dir + "bad.neso") + slurp(dir + "bad.neso.cpu.part"), "");
  EXPECT_EQ(neso(fmt::format("compile {}mlp.pt2 -o {}bad.neso --target cpu,cuda --report r.html", kModels, dir)).code, 2);
  // One file of weights for both.
  compile("beside.neso", "--target cpu,cuda --arch x86-64-v3,sm_90 --ptxas none --weights external");
  ASSERT_EQ(run("beside.neso"), 0);
  EXPECT_EQ(load("out.safetensors"), want_);
  EXPECT_EQ(weightsIn("beside.neso"), 0u);
}

TEST_F(Pack, WeightsBesideAreFoundFromElsewhere) {
  compile("b.neso", "--weights external");
  ASSERT_EQ(std::system(("mkdir " + dir + "sub").c_str()), 0);
  ASSERT_EQ(neso("pack b.neso -o sub/c.neso").code, 0);
  ASSERT_EQ(run("sub/c.neso"), 0);
  EXPECT_EQ(load("out.safetensors"), want_);
  EXPECT_EQ(weightsIn("sub/c.neso"), 0u);
}

TEST_F(Pack, RefusesWhatWouldNotRun) {
  refused("mlp.neso mlp.neso -o x.neso", "E0703", "two models are called 'mlp'");
  refused("mlp.neso -o x.neso --name a//b", "E0704", "'a//b' is no name");
  refused("mlp.neso -o x.neso --metadata author", "E0705", "'--metadata author'");
  refused("absent.neso -o x.neso", "E0710", "absent.neso");
  refused("in.safetensors -o x.neso", "E0711", "");
  refused("mlp.neso -o absent/x.neso", "E0801", "absent/x.neso");
  EXPECT_EQ(neso("pack mlp.neso -o x.neso --name a --name b").code, 2);
  compile("b.neso", "--weights external");
  refused("b.weights -o x.neso", "E0702", "it holds no model");
  std::string bytes = slurp(dir + "mlp.neso");
  bytes[bytes.find("package/data/neso/model/plan") + 200] ^= 0x40;
  write("altered.neso", bytes);
  refused("altered.neso -o x.neso", "E0713", "");
  EXPECT_EQ(slurp(dir + "x.neso"), "");
}
