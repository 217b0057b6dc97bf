// Axis facts against what programs compute: random integer programs over [4, 32] tensors are analysed, executed, and
// every value's elements are checked against every fact. Seeds are fixed.
#include <random>

#include <gtest/gtest.h>

#include "ir/tile/interp.h"
#include "ir/tile/passes/axis_info.h"

using namespace neso;

namespace {

constexpr int kRows = 4, kColumns = 32;
const char *kType = "tensor<4x32xi32>";

/// Text of a program of `length` random ops; value %v<i> is stored to %o at i * 128. The last line of each op defines
/// it.
std::string randomProgram(std::mt19937 &rng, int length) {
  auto pick = [&](int n) { return static_cast<int>(rng() % static_cast<unsigned>(n)); };
  std::string text = "tt.func public @f(%o: !tt.ptr<i32>, %n: i32 {tt.divisibility = 16 : i32}, %m: i32) {\n"
                     "  %c = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>\n"
                     "  %r = tt.make_range {end = 4 : i32, start = 0 : i32} : tensor<4xi32>\n"
                     "  %c1 = tt.expand_dims %c {axis = 0 : i32} : tensor<32xi32> -> tensor<1x32xi32>\n"
                     "  %r1 = tt.expand_dims %r {axis = 1 : i32} : tensor<4xi32> -> tensor<4x1xi32>\n"
                     "  %v0 = tt.broadcast %c1 : tensor<1x32xi32> -> tensor<4x32xi32>\n"
                     "  %v1 = tt.broadcast %r1 : tensor<4x1xi32> -> tensor<4x32xi32>\n"
                     "  %v2 = tt.splat %n : i32 -> tensor<4x32xi32>\n"
                     "  %v3 = tt.splat %m : i32 -> tensor<4x32xi32>\n";
  const int constants[] = {1, 2, 3, 4, 6, 8, 16, 32, 12, 128};
  for (int i = 0; i < length; ++i) {
    int at = 4 + i, a = pick(at), b = pick(at);
    switch (pick(10)) {
    case 0: text += fmt::format("  %v{} = arith.constant dense<{}> : {}\n", at, constants[pick(10)], kType); break;
    case 1:
    case 2: {
      const char *names[] = {"addi", "subi", "muli", "andi", "ori", "minsi", "maxsi"};
      text += fmt::format("  %v{} = arith.{} %v{}, %v{} : {}\n", at, names[pick(7)], a, b, kType);
      break;
    }
    case 3:
    case 4:
    case 5: {
      const char *names[] = {"divsi", "divui", "remsi", "remui", "muli", "addi"};
      text += fmt::format("  %k{0} = arith.constant dense<{1}> : {2}\n  %v{0} = arith.{3} %v{4}, %k{0} : {2}\n", at,
                          constants[pick(10)], kType, names[pick(6)], a);
      break;
    }
    case 6: {
      const char *names[] = {"shli", "shrsi", "shrui"};
      text += fmt::format("  %k{0} = arith.constant dense<{1}> : {2}\n  %v{0} = arith.{3} %v{4}, %k{0} : {2}\n", at,
                          1 + pick(4), kType, names[pick(3)], a);
      break;
    }
    case 7: {
      const char *predicates[] = {"slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge", "eq", "ne"};
      text += fmt::format(
          "  %k{0} = arith.cmpi {1}, %v{2}, %v{3} : {4}\n  %v{0} = arith.extui %k{0} : tensor<4x32xi1> to {4}\n", at,
          predicates[pick(10)], a, b, kType);
      break;
    }
    case 8:
      text += fmt::format("  %k{0} = arith.cmpi slt, %v{1}, %v{2} : {3}\n  %v{0} = arith.select %k{0}, %v{2}, %v{4} : "
                          "tensor<4x32xi1>, {3}\n",
                          at, a, b, kType, pick(at));
      break;
    default:
      text += fmt::format("  %k{0} = tt.trans %v{1} {{order = array<i32: 1, 0>}} : {2} -> tensor<32x4xi32>\n"
                          "  %v{0} = tt.trans %k{0} {{order = array<i32: 1, 0>}} : tensor<32x4xi32> -> {2}\n",
                          at, a, kType);
    }
  }
  text += "  %w = arith.constant dense<32> : tensor<4x1xi32>\n  %rw = arith.muli %r1, %w : tensor<4x1xi32>\n"
          "  %rb = tt.broadcast %rw : tensor<4x1xi32> -> tensor<4x32xi32>\n  %at = arith.addi %rb, %v0 : "
          "tensor<4x32xi32>\n";
  for (int i = 0; i < 4 + length; ++i)
    text += fmt::format("  %i{0} = arith.constant {1} : i32\n  %p{0} = tt.addptr %o, %i{0} : !tt.ptr<i32>, i32\n"
                        "  %q{0} = tt.splat %p{0} : !tt.ptr<i32> -> tensor<4x32x!tt.ptr<i32>>\n"
                        "  %s{0} = tt.addptr %q{0}, %at : tensor<4x32x!tt.ptr<i32>>, {2}\n"
                        "  tt.store %s{0}, %v{0} : tensor<4x32x!tt.ptr<i32>>\n",
                        i, i * 128, kType);
  return text + "  tt.return\n}\n";
}

/// Whether (up to wrapping at 32 bits) the elements `v` [4, 32] bear out what `info` says of axis d.
::testing::AssertionResult holds(const AxisInfo &info, const int32_t *v, int d) {
  int length = d == 0 ? kRows : kColumns, lines = d == 0 ? kColumns : kRows;
  for (int line = 0; line < lines; ++line)
    for (int i = 0; i < length; ++i) {
      auto at = [&](int64_t x) { return static_cast<int64_t>(v[d == 0 ? x * kColumns + line : line * kColumns + x]); };
      int64_t c = i / info.contiguity[d] * info.contiguity[d], s = i / info.constancy[d] * info.constancy[d];
      if (at(i) != static_cast<int32_t>(at(c) + (i - c)))
        return ::testing::AssertionFailure() << "contiguity " << info.contiguity[d] << " at " << line << ", " << i;
      if (at(i) != at(s))
        return ::testing::AssertionFailure() << "constancy " << info.constancy[d] << " at " << line << ", " << i;
      if (at(c) % info.divisibility[d] != 0)
        return ::testing::AssertionFailure()
               << "divisibility " << info.divisibility[d] << " of " << at(c) << " at " << line << ", " << c;
      if (info.constant && at(i) != static_cast<int32_t>(*info.constant))
        return ::testing::AssertionFailure() << "constant " << *info.constant;
    }
  return ::testing::AssertionSuccess();
}

} // namespace

TEST(AxisInfo, HoldsOnRandomPrograms) {
  std::mt19937 rng(7);
  int facts = 0;
  for (int program = 0; program < 300 && !HasFailure(); ++program) {
    std::string text = randomProgram(rng, 8);
    std::unique_ptr<mlir::MLIRContext> ctx = makeTileContext();
    Result<mlir::OwningOpRef<mlir::ModuleOp>> module = parseTile(text, "random", ctx.get());
    ASSERT_TRUE(module) << module.error().str() << text;
    tt::FuncOp func = *(**module).getOps<tt::FuncOp>().begin();
    AxisInfoAnalysis analysis(func);
    // Small numbers, so that no program overflows into wrapped results more than a shift or product of its own makes
    // it.
    for (auto [n, m] : {std::pair(16, 3), std::pair(0, 0), std::pair(48, 8), std::pair(-32, -5)}) {
      std::vector<int32_t> out(12 * 128);
      std::vector<InterpArg> args = {InterpArg::pointer(out.data(), static_cast<int64_t>(out.size() * 4)),
                                     InterpArg::integer(n), InterpArg::integer(m)};
      Status s = interpretTile(func, args, {1, 1, 1});
      ASSERT_TRUE(s) << s.error().str();
      int index = 0;
      func.walk([&](tt::StoreOp store) {
        AxisInfo info = analysis.get(store.getValue());
        for (int d = 0; d < 2; ++d) {
          EXPECT_TRUE(holds(info, out.data() + index * 128, d))
              << "value " << index << ", axis " << d << ", n " << n << ", m " << m << "\n"
              << text;
          facts += (info.contiguity[d] > 1) + (info.constancy[d] > 1) + (info.divisibility[d] > 1);
        }
        ++index;
      });
    }
  }
  EXPECT_GT(facts, 10000); // the analysis says something
}
