// Every kernel that Triton printed for the tile dialect's tests, compiled and run beside the tile interpreter on the
// same buffers.
//
// Arguments are made up from the parameter types: buffers of 2^16 elements with small numbers, integers from a list
// until the interpreter finds no access out of bounds. Tolerance: floats 2e-5 relative to the largest magnitude of the
// buffer (sums are associated differently), f16 and bf16 to two units of their last place; everything else exact.
#include <cmath>
#include <cstring>
#include <filesystem>
#include <gtest/gtest.h>

#include "backend/cpu/test/harness.h"
#include "ir/tile/interp.h"
#include "ir/tile/passes/passes.h"

namespace neso::cpu::test {
namespace {

constexpr size_t kElements = 1 << 16;

struct Buffers {
  std::vector<std::vector<uint8_t>> bytes;
  std::vector<mlir::Type> types;
};

void fillBuffer(std::vector<uint8_t> &bytes, mlir::Type element, uint32_t seed) {
  const unsigned bits = element.getIntOrFloatBitWidth();
  const size_t size = std::max(1u, bits / 8);
  bytes.assign(kElements * size, 0);
  std::vector<float> values = numbers(kElements, seed);
  for (size_t i = 0; i < kElements; ++i) {
    uint64_t raw = 0;
    if (auto f = llvm::dyn_cast<mlir::FloatType>(element)) {
      llvm::APFloat v(values[i]);
      bool lost = false;
      v.convert(f.getFloatSemantics(), llvm::APFloat::rmNearestTiesToEven, &lost);
      raw = v.bitcastToAPInt().getZExtValue();
    } else
      raw = static_cast<uint64_t>(static_cast<int64_t>(std::floor((values[i] + 1) * 8)));
    std::memcpy(bytes.data() + i * size, &raw, size);
  }
}

double numberAt(const std::vector<uint8_t> &bytes, mlir::Type element, size_t i) {
  const unsigned bits = element.getIntOrFloatBitWidth();
  const size_t size = std::max(1u, bits / 8);
  uint64_t raw = 0;
  std::memcpy(&raw, bytes.data() + i * size, size);
  if (auto f = llvm::dyn_cast<mlir::FloatType>(element)) {
    llvm::APFloat v(f.getFloatSemantics(), llvm::APInt(bits, raw));
    bool lost = false;
    v.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &lost);
    return v.convertToDouble();
  }
  const int shift = 64 - static_cast<int>(size) * 8;
  return static_cast<double>(static_cast<int64_t>(raw << shift) >> shift);
}

std::vector<std::filesystem::path> kernelFiles() {
  std::vector<std::filesystem::path> files;
  for (const char *folder : {"compiler/ir/tile/test/goldens", "compiler/backend/cpu/test/kernels"})
    for (const auto &entry : std::filesystem::directory_iterator(std::filesystem::path(NESO_SOURCE_DIR) / folder))
      if (entry.path().extension() == ".ttir") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

class DiffTest : public testing::TestWithParam<std::filesystem::path> {};
INSTANTIATE_TEST_SUITE_P(Kernels, DiffTest, testing::ValuesIn(kernelFiles()), [](const auto &info) {
  return info.param.parent_path().filename().string() + "_" + info.param.stem().string();
});

TEST_P(DiffTest, AgreesWithTheInterpreter) {
  std::ifstream in(GetParam());
  std::stringstream text;
  text << in.rdbuf();
  std::unique_ptr<mlir::MLIRContext> context = makeTileContext();
  Result<mlir::OwningOpRef<mlir::ModuleOp>> module = parseTile(text.str(), "kernel.ttir", context.get());
  ASSERT_TRUE(module) << module.error().str();
  Status piped = runTilePipeline(**module);
  ASSERT_TRUE(piped) << piped.error().str();
  tt::FuncOp function;
  for (tt::FuncOp f : (*module)->getOps<tt::FuncOp>())
    if (f.isPublic()) function = f;

  // Arguments on which the interpreter is content.
  const std::array<int64_t, 3> grid = {3, 2, 1};
  Buffers reference, start;
  std::vector<InterpArg> interp;
  bool found = false;
  std::string refusal;
  for (int64_t number : {100, 1000, 64, 16, 7, 4, 1}) {
    start = {};
    for (mlir::Type t : function.getFunctionType().getInputs())
      if (auto p = llvm::dyn_cast<tt::PointerType>(t)) {
        start.bytes.emplace_back();
        start.types.push_back(p.getPointeeType());
        fillBuffer(start.bytes.back(), p.getPointeeType(), static_cast<uint32_t>(start.bytes.size()));
      }
    reference = start;
    interp.clear();
    size_t buffer = 0;
    for (mlir::Type t : function.getFunctionType().getInputs()) {
      if (llvm::isa<tt::PointerType>(t)) {
        interp.push_back(
            InterpArg::pointer(reference.bytes[buffer].data(), static_cast<int64_t>(reference.bytes[buffer].size())));
        ++buffer;
      } else if (t.isIntOrIndex())
        interp.push_back(InterpArg::integer(t.isInteger(1) ? 1 : number));
      else
        interp.push_back(InterpArg::real(0.5));
    }
    InterpOptions options;
    options.detectRaces = true;
    Status s = interpretTile(function, interp, grid, options);
    if (s) {
      found = true;
      break;
    }
    refusal = s.error().str();
  }
  if (!found) GTEST_SKIP() << "no arguments suit the interpreter: " << refusal;

  for (CpuLevel level : runnableLevels()) {
    Kernel k(printTile(**module), level);
    ASSERT_TRUE(k.ok()) << k.error;
    Buffers ours = start;
    std::vector<neso_arg> args;
    size_t buffer = 0;
    for (size_t i = 0; i < interp.size(); ++i) {
      mlir::Type t = function.getFunctionType().getInput(static_cast<unsigned>(i));
      if (interp[i].kind == InterpArg::Pointer)
        args.push_back(pointer(ours.bytes[buffer++].data()));
      else if (interp[i].kind == InterpArg::Int)
        args.push_back(integer(interp[i].intValue));
      else if (t.isF64()) {
        neso_arg a;
        a.f64 = interp[i].floatValue;
        args.push_back(a);
      } else
        args.push_back(real(static_cast<float>(interp[i].floatValue)));
    }
    k.run(args, static_cast<uint32_t>(grid[0]), static_cast<uint32_t>(grid[1]), static_cast<uint32_t>(grid[2]), 1);
    for (size_t p = 0; p < ours.bytes.size(); ++p) {
      mlir::Type t = ours.types[p];
      double largest = 1;
      if (llvm::isa<mlir::FloatType>(t))
        for (size_t i = 0; i < kElements; ++i)
          if (double v = std::abs(numberAt(reference.bytes[p], t, i)); std::isfinite(v)) largest = std::max(largest, v);
      const unsigned bits = t.getIntOrFloatBitWidth();
      const double tolerance = !llvm::isa<mlir::FloatType>(t) ? 0
                                                              : largest * (t.isBF16()  ? 0x1p-7
                                                                           : t.isF16() ? 0x1p-9
                                                                           : bits <= 8 ? 0.13
                                                                                       : 2e-5);
      int bad = 0;
      for (size_t i = 0; i < kElements && bad < 3; ++i) {
        const double x = numberAt(ours.bytes[p], t, i), y = numberAt(reference.bytes[p], t, i);
        const bool same = x == y || std::abs(x - y) <= tolerance || (std::isnan(x) && std::isnan(y));
        EXPECT_TRUE(same) << name(level) << " buffer " << p << " element " << i << ": " << x << ", interpreter " << y;
        bad += !same;
      }
    }
  }
}

} // namespace
} // namespace neso::cpu::test
