// neso compile --tune and --tuned. Which way is fastest is the machine's affair; what the file holds, that it is read
// back and that results do not change is not.
#include "base/diagnostics/tune.h"
#include "driver/tuning.h"
#include "test/harness.h"

using namespace neso;
using namespace neso::cli;

namespace {

const std::string kModel = NESO_SOURCE_DIR "/tests/goldens/ops/activations/gelu.pt2";
const std::string kFakeDriver = "--cuda-driver " NESO_BINARY_DIR "/lib/libneso_fake_cuda.so ";

class Tune : public CliTest {
protected:
  Outcome compile(const std::string &arguments) { return neso("compile " + kModel + " " + arguments); }
};

TEST_F(Tune, MeasuresWritesAndIsReadBack) {
  Outcome r = compile("-o tuned.neso --tune results.txt");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.err.find("tuning: round 1"), std::string::npos) << r.err;
  Result<TuneResults> results = TuneResults::parse(slurp(dir + "results.txt"), "results.txt");
  ASSERT_TRUE(static_cast<bool>(results)) << results.error().str();
  EXPECT_EQ(results->size(), 1u);
  EXPECT_EQ(results->str(), slurp(dir + "results.txt"));
  // The same package comes from the file alone.
  r = compile("-o again.neso --tuned results.txt");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(slurp(dir + "again.neso") == slurp(dir + "tuned.neso"));
}

TEST_F(Tune, ChosenWaysReachTheCodeAndResultsOfOthersStay) {
  const std::string model = NESO_SOURCE_DIR "/tests/goldens/models/llama/export.pt2";
  auto compile = [&](const std::string &arguments) { return neso("compile " + model + " " + arguments); };
  ASSERT_EQ(compile("-o plain.neso").code, 0);
  Outcome r = compile("-o tuned.neso --tune results.txt");
  ASSERT_EQ(r.code, 0) << r.err;
  std::string smaller = "neso-tune 2\n", unknown = smaller;
  std::istringstream lines(slurp(dir + "results.txt"));
  std::string line;
  std::getline(lines, line);
  int kernels = 0;
  for (; std::getline(lines, line); ++kernels) {
    smaller += line.substr(0, line.find('\t')) + "\tblocks /2\t1.00\t2.00\n";
    unknown += line.substr(0, line.find('\t')) + "\ta way of tomorrow\t1.00\t2.00\n";
  }
  EXPECT_GT(kernels, 3);
  write("smaller.txt", smaller);
  write("unknown.txt", unknown);
  ASSERT_EQ(compile("-o smaller.neso --tuned smaller.txt").code, 0);
  ASSERT_EQ(compile("-o unknown.neso --tuned unknown.txt").code, 0);
  EXPECT_TRUE(slurp(dir + "smaller.neso") != slurp(dir + "plain.neso"));
  EXPECT_TRUE(slurp(dir + "unknown.neso") == slurp(dir + "plain.neso"));
  const std::string other = "sm_90 sort-0000000000000000\tmodel\t1.00\t1.00\n";
  write("results.txt", "neso-tune 2\n" + other);
  ASSERT_EQ(Tune::compile("-o tuned.neso --tune results.txt").code, 0);
  EXPECT_NE(slurp(dir + "results.txt").find(other), std::string::npos);
}

TEST_F(Tune, FilesThatAreNoResultsAreRefused) {
  for (const char *text : {"", "hello\n", "neso-tune 2", "neso-tune 2\nkey\tway\n", "neso-tune 2\nkey\tway\tfast\t1\n",
                           "neso-tune 2\nkey\tway\t-1\t1\n", "neso-tune 2\n\tway\t1\t1\n"}) {
    write("results.txt", text);
    for (const char *flag : {"--tuned", "--tune"}) {
      Outcome r = compile(std::string("-o out.neso ") + flag + " results.txt");
      EXPECT_EQ(r.code, 1) << text;
      EXPECT_NE(r.err.find("error[E0694]"), std::string::npos) << r.err;
    }
    EXPECT_EQ(slurp(dir + "results.txt"), text);
  }
  EXPECT_NE(compile("-o out.neso --tuned nowhere.txt").err.find("E0101"), std::string::npos);
  Result<TuneResults> bad = TuneResults::parse("x", "f");
  ASSERT_FALSE(static_cast<bool>(bad));
  EXPECT_EQ(bad.error().diagnostics().front().kind, diag::TuneFileMalformed);
  // Keys of another version say something else: nothing of such a file may be taken for a result.
  Result<TuneResults> old = TuneResults::parse("neso-tune 1\nsm_90 sort-0000000000000000\tmodel\t1.00\t1.00\n", "f");
  ASSERT_FALSE(static_cast<bool>(old));
  EXPECT_EQ(old.error().diagnostics().front().kind, diag::TuneFileVersion);
}

TEST_F(Tune, DevicesThatThePackageIsNotForAreRefused) {
  // The fake driver's device is an sm_90.
  Outcome r = compile("-o out.neso --target cuda --arch sm_80 --tune results.txt " + kFakeDriver);
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.err.find("error[E0695]"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("sm_90a"), std::string::npos) << r.err;
  // Code of that chip without instructions of its own runs there too.
  r = compile("-o out.neso --target cuda --arch sm_90 --tune results.txt " + kFakeDriver);
  EXPECT_EQ(r.err.find("E0695"), std::string::npos) << r.err;
  r = compile("-o out.neso --tune results.txt --device cuda " + kFakeDriver);
  EXPECT_NE(r.err.find("error[E0695]"), std::string::npos) << r.err;
  EXPECT_EQ(slurp(dir + "results.txt"), "");
}

// Another config is another program: the choice shows in the package and leaves the results as they are.
TEST_F(Tune, ConfigsOfAutotunedKernelsAreWays) {
  const std::string folder = NESO_SOURCE_DIR "/tests/goldens/user_kernels/autotuned/", model = folder + "model.pt2";
  Outcome r = neso("compile " + model + " -o tuned.neso --tune results.txt");
  ASSERT_EQ(r.code, 0) << r.err;
  const std::string results = slurp(dir + "results.txt");
  const size_t at = results.find(" user-");
  ASSERT_NE(at, std::string::npos) << results;
  const size_t begin = results.rfind('\n', at) + 1, tab = results.find('\t', at);
  const std::string key = results.substr(begin, tab - begin);
  ASSERT_EQ(neso("run tuned.neso --input " + folder + "inputs.safetensors -o tuned.safetensors").code, 0);
  for (const char *config : {"BLOCK=16 num_warps=2 num_stages=3", "BLOCK=128 num_warps=4 num_stages=3",
                             "BLOCK=1024 num_warps=8 num_stages=3"}) {
    write("config.txt", "neso-tune 2\n" + key + "\t" + config + "\t1.00\t2.00\n");
    ASSERT_EQ(neso("compile " + model + " -o config.neso --tuned config.txt").code, 0);
    EXPECT_NE(slurp(dir + "config.neso").find(std::string("config ") + config + " of ["), std::string::npos) << config;
    ASSERT_EQ(neso("run config.neso --input " + folder + "inputs.safetensors -o config.safetensors").code, 0);
    EXPECT_TRUE(slurp(dir + "config.safetensors") == slurp(dir + "tuned.safetensors")) << config;
  }
}

TEST_F(Tune, OptionsOfTuningNeedIt) { EXPECT_EQ(compile("-o out.neso --dim s0=4").code, 2); }

} // namespace
