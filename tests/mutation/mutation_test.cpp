// Claim: the mutation analysis gives the answers of PyTorch's own tests of such analyses (cases.txt: case, kernel,
// signature, constexprs, written, read), from Python source, from Triton's TTIR with calls in place, and from both
// after the pipeline.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "driver/kernel.h"

namespace neso {
namespace {

const std::string kFolder = NESO_SOURCE_DIR "/tests/mutation/";

std::vector<std::string> split(const std::string &text, char at) {
  std::vector<std::string> out;
  std::stringstream in(text);
  for (std::string part; std::getline(in, part, at);) out.push_back(part);
  return out;
}

void expectMutation(const KernelSource &source, const std::vector<std::string> &written,
                    const std::vector<std::string> &read, bool known) {
  Result<Kernel> kernel = Kernel::read(source);
  ASSERT_TRUE(kernel) << kernel.error().str();
  KernelMutation m = kernel->mutation();
  EXPECT_EQ(m.mutated, written);
  EXPECT_EQ(m.read, read);
  EXPECT_EQ(m.known, known) << m.unknownBecause;
}

TEST(Mutation, EveryCaseFromSourceAndFromTtir) {
  std::ifstream cases(kFolder + "cases.txt");
  int count = 0;
  for (std::string line; std::getline(cases, line); ++count) {
    SCOPED_TRACE(line);
    std::vector<std::string> fields = split(line + "|", '|');
    ASSERT_GE(fields.size(), 5u);
    fields.resize(6);
    std::vector<std::string> written = split(fields[4], ' '), read = split(fields[5], ' ');
    // Nothing is known of assembly with side effects: every pointer is listed.
    bool known = fields[0] != "assembly_impure";
    KernelSource source;
    source.file = kFolder + "kernels.py", source.function = fields[1], source.signature = fields[2];
    for (const std::string &c : split(fields[3], ' '))
      source.constexprs.emplace_back(c.substr(0, c.find('=')), c.substr(c.find('=') + 1));
    expectMutation(source, written, read, known);
    KernelSource text;
    text.file = kFolder + "ttir/" + fields[0] + ".ttir";
    expectMutation(text, written, read, known);
  }
  EXPECT_GE(count, 34);
}

} // namespace
} // namespace neso
