// Claim: without a GPU, every kernel of the corpus and every function of CUDA's device library becomes PTX for each
// chip, and ptxas takes what is made for the three generations of data centre chips. tools/gpu_check.py runs the same
// kernels where there is a GPU.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

#include "backend/nvidia/assembler.h"
#include "backend/nvidia/chip.h"
#include "driver/kernel.h"
#include "kernel_corpus.h"

using namespace neso;
using namespace neso::corpus;

namespace {

const std::vector<std::string> kAssembled = {"sm_80", "sm_90a", "sm_100a"};

Result<Kernel> read(const Case &c) {
  KernelSource source;
  source.file = kFolder + c.file + ".py", source.function = c.kernel, source.signature = c.signature,
  source.constexprs = c.constexprs;
  return Kernel::read(source);
}

TEST(GpuKernels, CorpusBecomesPtxForEveryChip) {
  std::vector<Case> cases = readCases();
  ASSERT_GE(cases.size(), 100u);
  for (const Case &c : cases) {
    SCOPED_TRACE(c.name);
    Result<Kernel> kernel = read(c);
    ASSERT_TRUE(kernel) << kernel.error().str();
    for (const nvidia::Chip &chip : nvidia::allChips()) {
      Result<std::string> ptx = kernel->emit(Stage::Ptx, "cuda", std::string(chip.arch));
      EXPECT_TRUE(ptx) << chip.arch << ": " << ptx.error().str();
    }
  }
}

TEST(GpuKernels, CorpusAssembles) {
  if (!nvidia::findAssembler()) GTEST_SKIP() << "no ptxas is found: nothing was assembled";
  for (const Case &c : readCases()) {
    SCOPED_TRACE(c.name);
    Result<Kernel> kernel = read(c);
    ASSERT_TRUE(kernel) << kernel.error().str();
    Result<std::string> bytes = kernel->package("cuda", kAssembled);
    EXPECT_TRUE(bytes) << bytes.error().str();
  }
}

/// A TTIR function that calls `variants` of a library function ("fi>f __nv_powif, …"), each on values that it loads,
/// and stores the results.
void addCalls(std::ostream &out, const std::string &variants, int &number) {
  static const std::map<char, std::string> types = {{'f', "f32"}, {'d', "f64"}, {'i', "i32"},
                                                    {'l', "i64"}, {'u', "i32"}, {'U', "i64"},
                                                    {'h', "f16"}, {'s', "i16"}, {'b', "i1"}};
  std::string list = variants[0] == '!' ? variants.substr(1) : variants;
  for (const std::string &variant : split(list, ',')) {
    std::istringstream words(variant);
    std::string shape, symbol;
    words >> shape >> symbol;
    const std::string result = types.at(shape.back()), id = std::to_string(number++);
    std::string operands, operandTypes;
    for (char argument : shape.substr(0, shape.find('>'))) {
      operands += (operands.empty() ? "%" : ", %") + std::string(1, argument);
      operandTypes += (operandTypes.empty() ? "" : ", ") + types.at(argument);
    }
    out << "  %r" << id << " = tt.extern_elementwise " << operands
        << " {libname = \"\", libpath = \"\", pure = true, symbol = \"" << symbol << "\"} : (" << operandTypes
        << ") -> " << result << "\n";
    out << "  tt.store %p" << shape.back() << ", %r" << id << " : !tt.ptr<" << result << ">\n";
  }
}

TEST(GpuKernels, DeviceLibraryAssembles) {
  if (!nvidia::findAssembler()) GTEST_SKIP() << "no ptxas is found: nothing was assembled";
  const std::string loads = "fdiluUhsb", types[] = {"f32", "f64", "i32", "i64", "i32", "i64", "f16", "i16", "i1"};
  std::ostringstream text;
  text << "tt.func public @k(";
  for (size_t i = 0; i < loads.size(); ++i)
    text << (i ? ", " : "") << "%p" << loads[i] << ": !tt.ptr<" << types[i] << ">";
  text << ") {\n";
  for (size_t i = 0; i < loads.size(); ++i)
    text << "  %" << loads[i] << " = tt.load %p" << loads[i] << " : !tt.ptr<" << types[i] << ">\n";
  int number = 0;
#define NESO_LIBDEVICE(name, arguments, variants) addCalls(text, variants, number);
#include "ir/tile/libdevice.def"
  text << "  tt.return\n}\n";
  EXPECT_GT(number, 300);

  const std::filesystem::path file = std::filesystem::path(testing::TempDir()) / "neso_device_library.ttir";
  std::ofstream(file) << text.str();
  KernelSource source;
  source.file = file.string();
  Result<Kernel> kernel = Kernel::read(source);
  ASSERT_TRUE(kernel) << kernel.error().str();
  Result<std::string> bytes = kernel->package("cuda", kAssembled);
  EXPECT_TRUE(bytes) << bytes.error().str();
  std::filesystem::remove(file);
}

} // namespace
