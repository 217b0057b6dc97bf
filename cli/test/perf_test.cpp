// --perf-map: what the program leaves for perf.
#include "test/harness.h"

using namespace neso;
using namespace neso::cli;

namespace {

class Perf : public CliTest {};

// perf asks the map about anonymous memory alone: the code must lie there, and compute what it computes elsewhere.
TEST_F(Perf, KernelsAreNamedForPerf) {
  const std::string model = NESO_SOURCE_DIR "/tests/goldens/ops/activations/gelu.pt2";
  ASSERT_EQ(neso("compile " + model + " -o m.neso").code, 0);
  ASSERT_EQ(neso("run m.neso --random --seed 7 -o plain.safetensors").code, 0);
  std::system(fmt::format("cd {} && sh -c 'echo $$ > pid; exec {}/bin/neso run m.neso --random --seed 7 -o named.safetensors --perf-map' >out 2>err", dir, NESO_BINARY_DIR).c_str());
  EXPECT_EQ(load("named.safetensors"), load("plain.safetensors"));
  const std::string path = fmt::format("/tmp/perf-{}.map", std::stoi(slurp(dir + "pid")));
  std::istringstream rows(slurp(path));
  uint64_t begin = 0, bytes = 0;
  std::string name;
  ASSERT_TRUE(rows >> std::hex >> begin >> bytes >> name) << slurp(dir + "err");
  EXPECT_GT(begin, 0u);
  EXPECT_GT(bytes, 16u);
  EXPECT_EQ(name.rfind("neso:", 0), 0u) << name;
  // What is no file of this user's is not written to.
  std::remove(path.c_str());
  std::system(fmt::format("cd {} && sh -c 'ln -s {}victim /tmp/perf-$$.map; echo $$ > pid; exec {}/bin/neso run m.neso --random --perf-map' >out 2>err; echo $? > code", dir, dir, NESO_BINARY_DIR).c_str());
  EXPECT_EQ(slurp(dir + "code"), "1\n");
  EXPECT_NE(slurp(dir + "err").find("perf's map of this process"), std::string::npos) << slurp(dir + "err");
  EXPECT_NE(access((dir + "victim").c_str(), F_OK), 0);
  std::remove(fmt::format("/tmp/perf-{}.map", std::stoi(slurp(dir + "pid"))).c_str());
}

} // namespace
