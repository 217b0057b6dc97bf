// What the tests of the command line share: a folder for each test, the program's answers, tensors in files.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic_file.h"
#include "tensor_file.h"

namespace neso::cli {

inline std::string slurp(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream s;
  s << file.rdbuf();
  return s.str();
}

struct Outcome {
  int code;
  std::string out, err;
};

/// The program runs in the test's folder `dir` (which ends in '/').
class CliTest : public testing::Test {
protected:
  std::string dir;
  void SetUp() override {
    char name[] = "/tmp/neso_cli_XXXXXX";
    dir = std::string(mkdtemp(name)) + "/";
  }
  void TearDown() override { std::system(("rm -rf " + dir).c_str()); }
  Outcome neso(const std::string &arguments) {
    int raw = std::system(fmt::format("cd {} && {}/bin/neso {} >out 2>err", dir, NESO_BINARY_DIR, arguments).c_str());
    return {WEXITSTATUS(raw), slurp(dir + "out"), slurp(dir + "err")};
  }
  void write(const std::string &name, const std::string &bytes) {
    ASSERT_TRUE(static_cast<bool>(writeFileAtomically(dir + name, bytes)));
  }
  HostTensor tensor(const std::string &name, std::vector<int64_t> sizes, const std::vector<float> &data) {
    HostTensor t;
    t.name = name;
    t.sizes = std::move(sizes);
    EXPECT_TRUE(static_cast<bool>(t.allocate()));
    std::memcpy(t.data(), data.data(), t.bytes);
    return t;
  }
  void save(const std::string &name, const std::vector<HostTensor> &tensors) {
    ASSERT_TRUE(static_cast<bool>(writeSafetensors(dir + name, tensors, {})));
  }
  std::map<std::string, std::vector<float>> load(const std::string &name) {
    Result<std::vector<HostTensor>> tensors = readTensorFile(dir + name);
    EXPECT_TRUE(static_cast<bool>(tensors)) << (tensors ? "" : tensors.error().str());
    std::map<std::string, std::vector<float>> out;
    if (tensors)
      for (HostTensor &t : *tensors)
        out[t.name] = {reinterpret_cast<float *>(t.data()), reinterpret_cast<float *>(t.data() + t.bytes)};
    return out;
  }
};

} // namespace neso::cli
