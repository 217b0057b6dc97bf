// The demos, as a user builds them: C programs linked statically without the C++ library. And the C++ wrapper.
#include <cstdio>
#include <fstream>
#include <sstream>

#include "neso/neso.hpp"
#include "test/harness.h"

using namespace neso_test;

namespace {
std::string output(const std::string &command) {
  std::string out;
  FILE *pipe = popen(command.c_str(), "r");
  for (int c; (c = fgetc(pipe)) != EOF;) out += char(c);
  out += "exit " + std::to_string(WEXITSTATUS(pclose(pipe)));
  return out;
}
std::string slurp(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream s;
  s << file.rdbuf();
  return s.str();
}
// (x + w) * 2 as in the harness, its code inside.
std::string package() {
  PackageBuilder b = addThenDouble(3);
  b.targets.push_back(fbs::CreateTarget(b.fb, fbs::TargetKind::Cpu, b.fb.CreateString("x86-64"), b.fb.CreateString("data/neso/model/code/it")));
  b.members.emplace_back("data/neso/model/code/it", slurp(NESO_BINARY_DIR "/lib/libneso_test_kernels.so"));
  return b.package();
}
const std::string kPath = NESO_BINARY_DIR "/demo_test.neso";
} // namespace

TEST(Demo, TerseAndExplainedPrintTheModelsResult) {
  std::ofstream(kPath, std::ios::binary) << package();
  EXPECT_EQ(output(NESO_BINARY_DIR "/bin/neso_hello_terse " + kPath), "8\nexit 0");
  EXPECT_EQ(output(NESO_BINARY_DIR "/bin/neso_hello_explained " + kPath), "input 0 'x': f32 [2..100]\noutput 0: f32 [8] starts with 8\nexit 0");
  EXPECT_EQ(output(NESO_BINARY_DIR "/bin/neso_hello_terse /nonexistent"), "cannot open '/nonexistent': No such file or directory\nexit 1");
}

TEST(Demo, NothingOfTheCppLibraryIsLinked) {
  std::string needed = output("readelf -d " NESO_BINARY_DIR "/bin/neso_hello_terse | grep NEEDED");
  EXPECT_EQ(needed.find("libstdc++"), std::string::npos) << needed;
}

TEST(Demo, CppWrapperOwnsWhatItMakes) {
  std::string bytes = package();
  neso::Model model;
  neso::Context context;
  ASSERT_EQ(model.load(bytes.data(), bytes.size()), NESO_OK) << neso_error_text();
  ASSERT_EQ(context.create(model, 1), NESO_OK);
  std::vector<float> x{1, 2};
  std::vector<int64_t> sizes{2};
  neso_tensor in = neso::tensor(x.data(), sizes), out{};
  ASSERT_EQ(context.run(&in, 1, &out, 1), NESO_OK);
  EXPECT_EQ(floats(out, 2), (std::vector<float>{8, 10}));
  EXPECT_STREQ(model.input(0).name, "x");
}
