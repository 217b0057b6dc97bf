// Products on the simulator, whose mma.sync follows the PTX ISA's drawings and not our layouts. Operands are small
// integers, so sums are exact in every type and order; tf32 has its own cases.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "backend/nvidia/dot.h"
#include "backend/nvidia/test/harness.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/ADT/APFloat.h"

namespace neso::nvidia::test {
namespace {

struct Format {
  const char *name;
  mlir::Type type;
  llvm::Type *(*element)(llvm::LLVMContext &);
  int bytes;
};

uint64_t encode(mlir::Type type, double x) {
  if (type.isInteger()) return uint64_t(int64_t(x));
  llvm::APFloat value(x);
  bool lost;
  value.convert(llvm::cast<mlir::FloatType>(type).getFloatSemantics(), llvm::APFloat::rmNearestTiesToEven, &lost);
  return value.bitcastToAPInt().getZExtValue();
}

class Formats {
public:
  Formats() : b(&context) {}
  Format of(std::string name) {
    if (name == "bf16")
      return {"bf16", b.getBF16Type(), [](llvm::LLVMContext &c) { return llvm::Type::getBFloatTy(c); }, 2};
    if (name == "f16") return {"f16", b.getF16Type(), [](llvm::LLVMContext &c) { return llvm::Type::getHalfTy(c); }, 2};
    if (name == "f32")
      return {"f32", b.getF32Type(), [](llvm::LLVMContext &c) { return llvm::Type::getFloatTy(c); }, 4};
    if (name == "f64")
      return {"f64", b.getF64Type(), [](llvm::LLVMContext &c) { return llvm::Type::getDoubleTy(c); }, 8};
    if (name == "i8") return {"i8", b.getI8Type(), integer8, 1};
    if (name == "i32")
      return {"i32", b.getI32Type(),
              [](llvm::LLVMContext &c) { return static_cast<llvm::Type *>(llvm::Type::getInt32Ty(c)); }, 4};
    if (name == "e4m3") return {"e4m3", mlir::Float8E4M3FNType::get(&context), integer8, 1};
    return {"e5m2", mlir::Float8E5M2Type::get(&context), integer8, 1};
  }
  static llvm::Type *integer8(llvm::LLVMContext &c) { return llvm::Type::getInt8Ty(c); }
  mlir::MLIRContext context;
  mlir::Builder b;
};

std::vector<uint8_t> bytesOf(const std::vector<double> &values, const Format &format) {
  std::vector<uint8_t> bytes(values.size() * size_t(format.bytes));
  for (size_t i = 0; i < values.size(); ++i) {
    uint64_t bits = encode(format.type, values[i]);
    std::memcpy(&bytes[i * size_t(format.bytes)], &bits, size_t(format.bytes));
  }
  return bytes;
}

enum class From { Registers, Shared };
struct Case {
  const char *a, *b, *d;
  int64_t batch, m, n, k; // batch 0: none
  int warps;
  DotPrecision precision = DotPrecision::Ieee;
  bool columnMajorB = false;
  From from = From::Registers;
  const char *chip = "sm_90";
};

struct Result {
  DotKind kind;
  Outcome outcome;
};

Result runCase(const Case &c, std::mt19937 &random) {
  Formats formats;
  Format a = formats.of(c.a), b = formats.of(c.b), d = formats.of(c.d);
  Kernel kernel(c.warps, 4, c.chip);
  Sizes shape{c.m, c.n, c.k}, shapeA{c.m, c.k}, shapeB{c.k, c.n};
  int64_t batch = std::max<int64_t>(c.batch, 1);
  if (c.batch)
    for (Sizes *s : {&shape, &shapeA, &shapeB}) s->insert(s->begin(), c.batch);
  DotPlan plan = planDot(*findChip(c.chip), shape, c.warps, {a.type, b.type, d.type}, c.precision);

  // As loads lie: 16 bytes of a row, or of a column, a thread.
  auto loaded = [&](const Sizes &s, int bytes, bool columns) {
    int rank = int(s.size());
    Sizes one(s.size(), 1), lanes = one, warps = one;
    std::vector<int> order;
    for (int i = rank - 1; i >= 0; --i) order.push_back(i);
    if (columns) std::swap(order[0], order[1]);
    one[size_t(order[0])] = std::min<int64_t>(16 / bytes, s[size_t(order[0])]);
    lanes[size_t(order[0])] = std::min<int64_t>(s[size_t(order[0])] / one[size_t(order[0])], 32);
    lanes[size_t(order[1])] = 32 / lanes[size_t(order[0])];
    warps[size_t(order[1])] = c.warps;
    return blocked(s, one, lanes, warps, order);
  };
  auto operand = [&](int buffer, const Sizes &s, const Format &format, bool columns) -> DotOperand {
    Tile tile = kernel.load(buffer, loaded(s, format.bytes, columns), format.element(kernel.context));
    if (c.from == From::Registers) return tile;
    // The second slot of a ring of two.
    int64_t bytes = sharedBytes(tile.values[0]->getType()) << tile.layout.totalOutBits();
    int fast = int(s.size()) - (columns ? 2 : 1);
    SharedTile shared{kernel.shared.allocate(2 * bytes, "ring"), dotBuffer(*findChip(c.chip), s, fast, format.bytes * 8),
                      tile.values[0]->getType(), kernel.b.getInt32(uint32_t(bytes))};
    storeShared(*kernel.block, tile, shared);
    return shared;
  };
  DotOperand x = operand(0, shapeA, a, false), y = operand(1, shapeB, b, c.columnMajorB);
  Tile sums = kernel.load(2, plan.accumulator, d.element(kernel.context));
  kernel.storePlaces(3, emitDot(*kernel.block, plan, x, y, sums));

  std::vector<double> na(size_t(batch * c.m * c.k)), nb(size_t(batch * c.k * c.n)), nd(size_t(batch * c.m * c.n));
  for (double &v : na) v = double(int(random() % 9) - 4);
  for (double &v : nb) v = double(int(random() % 9) - 4);
  for (double &v : nd) v = double(int(random() % 100) - 50);
  std::vector<uint8_t> ba = bytesOf(na, a), bb = bytesOf(nb, b), bd = bytesOf(nd, d);
  for (int64_t z = 0; z < batch; ++z)
    for (int64_t i = 0; i < c.m; ++i)
      for (int64_t j = 0; j < c.n; ++j)
        for (int64_t k = 0; k < c.k; ++k)
          nd[size_t((z * c.m + i) * c.n + j)] +=
              na[size_t((z * c.m + i) * c.k + k)] * nb[size_t((z * c.k + k) * c.n + j)];
  size_t places = size_t(plan.accumulator.inSize(kRegister)) * size_t(c.warps) * 32;
  std::vector<uint8_t> out(places * size_t(d.bytes)), expected = bytesOf(nd, d);
  Outcome outcome = kernel.run({ba.data(), bb.data(), bd.data(), out.data()});
  if (outcome.error.empty()) {
    auto compare = [&](auto zero) {
      std::vector<decltype(zero)> got(places), want(nd.size());
      std::memcpy(got.data(), out.data(), out.size());
      std::memcpy(want.data(), expected.data(), expected.size());
      return comparePlaces(got, plan.accumulator, want);
    };
    outcome.error = d.bytes == 2 ? compare(uint16_t()) : d.bytes == 4 ? compare(uint32_t()) : compare(uint64_t());
  }
  return {plan.kind, outcome};
}

TEST(Dot, TensorCoresInEveryFormatAndShape) {
  std::mt19937 random(23);
  const DotPrecision tf32 = DotPrecision::Tf32, x3 = DotPrecision::Tf32x3, ieee = DotPrecision::Ieee;
  const Case cases[] = {
      {"bf16", "bf16", "f32", 0, 16, 8, 16, 1},
      {"bf16", "bf16", "f32", 0, 32, 32, 32, 4},
      {"bf16", "bf16", "f32", 0, 64, 32, 64, 4, ieee, true},
      {"f16", "f16", "f32", 0, 16, 64, 32, 4},
      {"f16", "f16", "f16", 0, 32, 16, 16, 2},
      {"bf16", "bf16", "bf16", 0, 32, 16, 16, 2},
      {"bf16", "bf16", "f32", 4, 16, 16, 32, 2},
      {"f16", "f16", "f32", 2, 32, 16, 16, 4, ieee, true},
      {"f32", "f32", "f32", 0, 32, 32, 16, 2, tf32},
      {"f32", "f32", "f32", 0, 32, 16, 32, 4, tf32, true},
      {"f32", "f32", "f32", 0, 16, 16, 16, 1, x3},
      {"i8", "i8", "i32", 0, 32, 16, 64, 2},
      {"i8", "i8", "i32", 0, 16, 32, 32, 4, ieee, true},
      {"e4m3", "e4m3", "f32", 0, 16, 16, 64, 2, ieee, true},
      {"e5m2", "e5m2", "f32", 0, 32, 16, 32, 2},
      {"e4m3", "e5m2", "f32", 0, 16, 8, 32, 1, ieee, true},
      {"f64", "f64", "f64", 0, 16, 8, 8, 1},
      {"f64", "f64", "f64", 0, 32, 32, 16, 4, ieee, true},
      {"f64", "f64", "f64", 2, 32, 16, 32, 4},
      {"f64", "f64", "f64", 0, 64, 64, 16, 4, ieee, false, From::Registers, "sm_90a"},
      {"f64", "f64", "f64", 0, 32, 16, 16, 2, ieee, false, From::Registers, "sm_80"},
  };
  for (Case c : cases) {
    for (From from : {From::Registers, From::Shared}) {
      c.from = from;
      Result result = runCase(c, random);
      EXPECT_EQ(result.outcome.error, "")
          << c.a << " " << c.m << "x" << c.n << "x" << c.k << (from == From::Shared ? " from shared memory" : "");
      EXPECT_EQ(result.kind, DotKind::MmaSync);
      EXPECT_LE(result.outcome.barriers, 1);
    }
  }
}

TEST(Dot, MultiplyAddForTheRest) {
  std::mt19937 random(29);
  const Case cases[] = {
      {"f32", "f32", "f32", 0, 32, 32, 16, 4}, {"f32", "f32", "f32", 0, 4, 2, 8, 4},
      {"f32", "f32", "f32", 0, 1, 64, 32, 2},  {"f32", "f32", "f32", 0, 1, 1, 1, 1},
      {"f64", "f64", "f64", 0, 8, 16, 8, 2},   {"i32", "i32", "i32", 0, 8, 16, 8, 1},
      {"i8", "i8", "i32", 0, 16, 16, 16, 2},   {"bf16", "bf16", "f32", 0, 8, 4, 16, 2},
      {"f16", "f16", "f16", 0, 8, 8, 2, 1},    {"f32", "f32", "f32", 4, 8, 8, 8, 4},
      {"f32", "f32", "f32", 2, 16, 4, 4, 1},   {"f32", "f32", "f32", 0, 64, 64, 32, 4, DotPrecision::Ieee, true},
  };
  for (const Case &c : cases) {
    Result result = runCase(c, random);
    EXPECT_EQ(result.outcome.error, "") << c.a << " " << c.batch << " " << c.m << "x" << c.n << "x" << c.k;
    EXPECT_EQ(result.kind, DotKind::Fma);
  }
}

TEST(Dot, OperandsComeByLdmatrix) {
  // 64 x 64 x 64 by 4 warps in squares: a warp has 2 x 4 tiles and 4 steps of K, so 8 loads of A and 8 of B by x4.
  std::mt19937 random(31);
  Case c{"bf16", "bf16", "f32", 0, 64, 64, 64, 4, DotPrecision::Ieee, false, From::Shared};
  Result result = runCase(c, random);
  EXPECT_EQ(result.outcome.error, "");
  EXPECT_EQ(result.outcome.mmas, 4 * 2 * 4 * 4);
  EXPECT_EQ(result.outcome.sharedLoads, 4 * (8 + 8));
}

TEST(Dot, ThreeProductsOfTf32AreNearF32) {
  // Operands with all 24 bits: a product of tf32 alone is off by up to 2^-10 of a term, three are by about 2^-21.
  Formats formats;
  Format f32 = formats.of("f32");
  Kernel kernel(1, 4, "sm_90");
  DotPlan plan = planDot(*findChip("sm_90"), {16, 8, 32}, 1, {f32.type, f32.type, f32.type}, DotPrecision::Tf32x3);
  ASSERT_EQ(plan.kind, DotKind::MmaSync);
  llvm::Type *element = f32.element(kernel.context);
  Tile x = kernel.load(0, plan.operandA, element), y = kernel.load(1, plan.operandB, element);
  Tile sums = kernel.load(2, plan.accumulator, element);
  kernel.storePlaces(3, emitDot(*kernel.block, plan, x, y, sums));
  std::mt19937 random(5);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> a(16 * 32), b(32 * 8), c(16 * 8, 0), out(32 * 4);
  for (float &v : a) v = uniform(random);
  for (float &v : b) v = uniform(random);
  const float infinity = std::numeric_limits<float>::infinity();
  a[0] = infinity, b[0] = 1; // row 0, column 0
  a[3 * 32 + 1] = NAN;       // row 3
  Outcome outcome = kernel.run({reinterpret_cast<uint8_t *>(a.data()), reinterpret_cast<uint8_t *>(b.data()),
                                reinterpret_cast<uint8_t *>(c.data()), reinterpret_cast<uint8_t *>(out.data())});
  ASSERT_EQ(outcome.error, "");
  for (int lane = 0; lane < 32; ++lane)
    for (int reg = 0; reg < 4; ++reg) {
      DimValues at = plan.accumulator.apply({{kRegister, reg}, {kLane, lane}, {kWarp, 0}, {kBlock, 0}});
      int64_t row = 0, column = 0;
      for (const auto &[name, value] : at) (name == "dim0" ? row : column) = value;
      double want = 0, size = 0;
      for (int k = 0; k < 32; ++k) {
        double term = double(a[size_t(row * 32 + k)]) * double(b[size_t(k * 8 + column)]);
        want += term, size += std::abs(term);
      }
      float got = out[size_t(lane * 4 + reg)];
      if (row == 0 && column == 0)
        EXPECT_EQ(got, infinity);
      else if (row == 0)
        EXPECT_TRUE(std::isinf(got)) << got;
      else if (row == 3)
        EXPECT_TRUE(std::isnan(got)) << got;
      else
        EXPECT_NEAR(got, want, size * 0x1p-20) << row << ' ' << column;
    }
}

TEST(Dot, ChipWithoutF8AsksForHalf) {
  Formats formats;
  mlir::Type f8 = formats.of("e4m3").type;
  DotPlan plan = planDot(*findChip("sm_80"), {64, 64, 64}, 4, {f8, f8, formats.of("f32").type}, DotPrecision::Ieee);
  EXPECT_EQ(plan.kind, DotKind::MmaSync);
  EXPECT_TRUE(plan.types.a.isF16() && plan.types.b.isF16());
}

TEST(Dot, TilesTooSmallForF8AskForHalf) {
  Formats formats;
  for (const char *chip : {"sm_80", "sm_90", "sm_90a"}) {
    for (const auto &[shape, kind] : {std::pair{Sizes{32, 16, 16}, DotKind::MmaSync}, {Sizes{4, 4, 16}, DotKind::Fma}, {Sizes{2, 32, 16, 16}, DotKind::MmaSync}}) {
      DotPlan plan = planDot(*findChip(chip), shape, 4, {formats.of("e5m2").type, formats.of("e4m3").type, formats.of("f32").type}, DotPrecision::Ieee);
      EXPECT_EQ(plan.kind, kind) << chip;
      EXPECT_TRUE(plan.types.a.isF16() && plan.types.b.isF16()) << chip;
    }
  }
}

TEST(Dot, RowsStayInOneWarp) {
  Formats formats;
  mlir::Type type = formats.of("bf16").type;
  DotPlan plan = planDot(*findChip("sm_90"), {128, 64, 64}, 4, {type, type, formats.of("f32").type}, DotPrecision::Ieee,
                         DotSplit::Rows);
  for (uint64_t basis : plan.accumulator.in(kWarp).bases) EXPECT_EQ(plan.accumulator.out("dim1").of(basis), 0);
}

} // namespace
} // namespace neso::nvidia::test
