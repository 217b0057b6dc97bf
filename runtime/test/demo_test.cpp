// The demos, as a user builds them: C programs linked statically without the C++ library. And the C++ wrapper.
#include <cstdio>
#include <fstream>
#include <sstream>

#include "neso/neso.hpp"
#include "test/harness.h"

#ifndef __has_feature
#define __has_feature(x) 0
#endif

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
  b.targets.push_back(fbs::CreateTarget(b.fb, fbs::TargetKind::Cpu, b.fb.CreateString("x86-64"),
                                        b.fb.CreateString("data/neso/model/code/it")));
  b.members.emplace_back("data/neso/model/code/it", slurp(NESO_BINARY_DIR "/lib/libneso_test_kernels.so"));
  return b.package();
}
const std::string kPath = NESO_BINARY_DIR "/demo_test.neso";
} // namespace

TEST(Demo, TerseAndExplainedPrintTheModelsResult) {
  std::ofstream(kPath, std::ios::binary) << package();
  EXPECT_EQ(output(NESO_BINARY_DIR "/bin/neso_hello_terse " + kPath), "8\nexit 0");
  EXPECT_EQ(output(NESO_BINARY_DIR "/bin/neso_hello_explained " + kPath),
            "input 0 'x': f32 [2..100]\noutput 0: f32 [8] starts with 8\nexit 0");
  EXPECT_EQ(output(NESO_BINARY_DIR "/bin/neso_hello_terse /nonexistent"),
            "cannot open '/nonexistent': No such file or directory; check the path and its permissions\nexit 1");
}

TEST(Demo, NothingOfTheCppLibraryIsLinked) {
  std::string needed = output("readelf -d " NESO_BINARY_DIR "/bin/neso_hello_terse | grep NEEDED");
  EXPECT_EQ(needed.find("libstdc++"), std::string::npos) << needed;
}

// A model as a C array, linked with libneso.a by the system's C compiler: no file is opened but what the system itself
// opens.
TEST(Demo, AModelEmbeddedInAStaticCProgram) {
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  GTEST_SKIP() << "the archive needs the sanitizer's own linking";
#endif
  if (output("command -v cc").find("exit 0") == std::string::npos) GTEST_SKIP() << "no C compiler";
  std::string bytes = package(),
              source =
                  "#include <stdio.h>\n#include \"neso/neso.h\"\n_Alignas(64) static const unsigned char package[] = {";
  for (unsigned char c : bytes) source += std::to_string(c) + ",";
  source += "};\nint main(void) { neso_model *m; neso_context *c; float x[2] = {1, 2}; long sizes[1] = {2};\n"
            "neso_tensor in = {.data = x, .sizes = sizes, .rank = 1, .dtype = NESO_F32}, out = {0};\n"
            "if (neso_model_load_memory(package, sizeof package, 0, &m) || neso_context_create(m, 0, &c) || "
            "neso_run(c, &in, 1, &out, 1)) return puts(neso_error_text()), 1;\n"
            "printf(\"%g %g\\n\", ((float *)out.data)[0], ((float *)out.data)[1]); neso_context_free(c); "
            "neso_model_free(m); return 0; }\n";
  std::ofstream(kPath + ".c") << source;
  std::string build = "cc -I" NESO_SOURCE_DIR "/runtime/include " + kPath + ".c " NESO_BINARY_DIR "/lib/libneso.a -o " +
                      kPath + ".bin -lpthread -ldl -lm 2>&1";
  ASSERT_EQ(output(build), "exit 0");
  EXPECT_EQ(output(kPath + ".bin"), "8 10\nexit 0");
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
