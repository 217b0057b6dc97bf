// Claim: a function whose loops are written out for one turn (one_turn.h) computes what it did, however many turns they make: random loops that carry
// tiles, numbers and pointers, in the interpreter and compiled. And it is done where it helps alone.
#include <gtest/gtest.h>

#include <random>

#include "backend/cpu/one_turn.h"
#include "backend/cpu/test/harness.h"
#include "fmt/format.h"
#include "ir/tile/interp.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace neso::cpu::test {
namespace {

using namespace mlir;

constexpr int kLanes = 32, kElements = 256, kResults = 8;

/// Text of @f(%x, %y: ptr<i32>, %lo, %n, %step: i32): a loop over blocks of %x, then reductions of what it carries, whose results go to %y.
class RandomLoop {
public:
  /// several: from zero by a constant, without a pointer, as loops must be of which several turns are taken at a time.
  RandomLoop(uint32_t seed, bool several) : random_(seed), several_(several) {}

  std::string kernel() {
    line("tt.func public @f(%x: !tt.ptr<i32>, %y: !tt.ptr<i32>, %lo: i32, %n: i32, %step: i32) {{");
    line("%range = tt.make_range {{start = 0 : i32, end = {} : i32}} : {}", kLanes, kType);
    line("%zero = arith.constant dense<0> : {}", kType);
    line("%least = arith.constant dense<-2147483648> : {}", kType);
    line("%some = arith.constant dense<5> : {}", kType);
    line("%places = arith.constant dense<{}> : {}", kElements, kType);
    line("%ns = tt.splat %n : i32 -> {}", kType);
    line("%xs = tt.splat %x : !tt.ptr<i32> -> {}", kPointers);
    line("%first = tt.addptr %xs, %range : {}, {}", kPointers, kType);
    line("%three = arith.muli %range, %some : {}", kType);
    line("%few = arith.cmpi slt, %range, %some : {}", kType);
    line("%early = tt.load %first : {}", kPointers);
    tiles_ = {"%range", "%ns", "%three", "%some"};
    if (pick(4) == 0) tiles_.push_back("%early");
    const std::string inits[] = {"%zero", "%least", "%some", "%ns", "%three"};
    line("%none = arith.constant 0 : i32");
    line("%eight = arith.constant 8 : i32");
    line("%r:{} = scf.for %i = {} iter_args(%a = {}, %b = {}, %s = %lo{}) -> ({}, {}, i32{}{}) : i32 {{", several_ ? 3 : 4, several_ ? "%none to %n step %eight" : "%lo to %n step %step",
         inits[pick(5)], inits[pick(pick(6) ? 5 : 3)], several_ ? "" : ", %p = %first", kType, kType, several_ ? "" : ", ", several_ ? "" : kPointers);
    const std::vector<std::string> outside = tiles_;
    line("%is = tt.splat %i : i32 -> {}", kType);
    line("%at = arith.addi %is, %range : {}", kType);
    line("%low = arith.cmpi slt, %at, %places : {}", kType);
    line("%high = arith.cmpi sge, %at, %zero : {}", kType);
    line("%mask = arith.andi %low, %high : {}", kBits);
    line("%ptr = tt.addptr %xs, %at : {}, {}", kPointers, kType);
    line("%v = tt.load %ptr, %mask, {} : {}", pick(2) ? "%zero" : "%least", kPointers);
    line("%ss = tt.splat %s : i32 -> {}", kType);
    for (const char *v : {"%a", "%b", "%v", "%v", "%ss", "%at"}) tiles_.push_back(v);
    for (int k = 1 + pick(6); k > 0; --k) operation();
    const std::string a = fresh(), b = fresh();
    line("{} = {} %a, {} : {}", a, pick(2) ? "arith.addi" : "arith.maxsi", tile(), kType);
    line("{} = arith.select {}, {}, %b : {}, {}", b, pick(2) ? "%mask" : "%few", tile(), kBits, kType);
    line("%c7 = arith.constant 7 : i32");
    line("%next = arith.{} %s, {} : i32", pick(2) ? "addi" : "muli", pick(2) ? "%i" : "%c7");
    if (several_) {
      line("scf.yield {}, {}, %next : {}, {}, i32", a, b, kType, kType);
    } else {
      line("%q = tt.addptr %p, %some : {}, {}", kPointers, kType);
      line("scf.yield {}, {}, %next, %q : {}, {}, i32, {}", a, b, kType, kType, kPointers);
    }
    line("}}");
    tiles_ = outside;
    for (const char *v : {"%r#0", "%r#0", "%r#1", "%r#1"}) tiles_.push_back(v);
    numbers_ = {"%r#2", "%n"};
    for (int k = 0; k < kResults; ++k) {
      for (int more = pick(3); more > 0; --more) operation();
      if (pick(3) == 0) {
        const std::string sum = fresh(), spread = fresh();
        line("{} = arith.addi {}, {} : i32", sum, number(), number());
        line("{} = tt.splat {} : i32 -> {}", spread, sum, kType);
        numbers_.push_back(sum), tiles_.push_back(spread), spread_.push_back(spread);
      }
      // In front of the last use it is in the way.
      if (pick(30) == 0) line("tt.store %y, {} : !tt.ptr<i32>", number());
      const std::string reduced = fresh();
      line(R"({} = "tt.reduce"({}) <{{axis = 0 : i32}}> ({{)", reduced, tile());
      line("^bb0(%e: i32, %f: i32):");
      line("%g = arith.{} %e, %f : i32", pick(2) ? "addi" : "maxsi");
      line("tt.reduce.return %g : i32");
      line("}}) : ({}) -> i32", kType);
      numbers_.push_back(reduced);
    }
    // Tensors of the numbers may be needed further on.
    for (int k = 0; k < 2; ++k) {
      if (spread_.empty()) break;
      line("%to_y{} = tt.splat %y : !tt.ptr<i32> -> {}", k, kPointers);
      line("%shift{} = arith.constant dense<{}> : {}", k, 32 + 64 * k, kType);
      line("%move{0} = arith.addi %range, %shift{0} : {1}", k, kType);
      line("%there{0} = tt.addptr %to_y{0}, %move{0} : {1}, {2}", k, kPointers, kType);
      line("tt.store %there{}, {} : {}", k, spread_[static_cast<size_t>(pick(static_cast<int>(spread_.size())))], kPointers);
    }
    for (size_t k = 0; k < numbers_.size(); ++k) {
      line("%c{0}_ = arith.constant {0} : i32", k);
      line("%to{0} = tt.addptr %y, %c{0}_ : !tt.ptr<i32>, i32", k);
      line("tt.store %to{}, {} : !tt.ptr<i32>", k, numbers_[k]);
    }
    line("tt.return");
    line("}}");
    return text_;
  }

private:
  static constexpr const char *kType = "tensor<32xi32>", *kPointers = "tensor<32x!tt.ptr<i32>>", *kBits = "tensor<32xi1>";

  int pick(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  template <typename... A> void line(fmt::format_string<A...> format, A &&...args) {
    text_ += "  " + fmt::format(format, std::forward<A>(args)...) + "\n";
  }
  std::string fresh() { return "%v" + std::to_string(next_++); }
  std::string tile() { return tiles_[static_cast<size_t>(pick(static_cast<int>(tiles_.size())))]; }
  std::string number() { return numbers_[static_cast<size_t>(pick(static_cast<int>(numbers_.size())))]; }
  void operation() {
    static constexpr const char *kNames[] = {"addi", "subi", "muli", "maxsi", "minsi", "xori"};
    const std::string out = fresh();
    line("{} = arith.{} {}, {} : {}", out, kNames[pick(6)], tile(), tile(), kType);
    tiles_.push_back(out);
  }

  std::minstd_rand random_;
  std::string text_;
  int next_ = 0;
  bool several_;
  std::vector<std::string> tiles_, numbers_, spread_;
};

struct Memory {
  std::vector<int32_t> x, y;
  explicit Memory(uint32_t seed) : x(kElements), y(kElements) {
    std::minstd_rand random(seed);
    for (int32_t &v : x) v = static_cast<int32_t>(random() % 100);
  }
};

std::vector<int32_t> interpreted(tt::FuncOp function, uint32_t seed, int64_t lo, int64_t n, int64_t step) {
  Memory m(seed);
  const InterpArg args[] = {InterpArg::pointer(m.x.data(), kElements * 4), InterpArg::pointer(m.y.data(), kElements * 4), InterpArg::integer(lo),
                            InterpArg::integer(n), InterpArg::integer(step)};
  const Status s = interpretTile(function, args, {1, 1, 1});
  EXPECT_TRUE(s) << s.error().str();
  return m.y;
}

TEST(OneTurn, ComputesTheSameHoweverManyTurns) {
  std::unique_ptr<MLIRContext> context = makeTileContext();
  int written = 0, several = 0;
  for (uint32_t seed = 0; seed < 160; ++seed) {
    const std::string text = RandomLoop(seed, seed % 2).kernel();
    Result<OwningOpRef<ModuleOp>> module = parseTile(text, "random.ttir", context.get());
    ASSERT_TRUE(module) << module.error().str() << text;
    tt::FuncOp function = *(*module)->getOps<tt::FuncOp>().begin();
    OwningOpRef<tt::FuncOp> changed = withOneTurnWrittenOut(function);
    written += changed ? 1 : 0;
    int loops = 0;
    if (changed) changed->walk([&](scf::ForOp) { ++loops; });
    several += loops == 2;
    Kernel kernel(text, runnableLevels().back());
    ASSERT_TRUE(kernel.ok()) << kernel.error << text;
    constexpr std::array<int, 3> kRuns[] = {{0, 0, 32}, {0, -5, 32}, {0, 1, 32}, {0, 32, 32}, {0, 33, 32}, {0, 64, 32}, {0, 200, 32}, {7, 30, 32}, {7, 60, 16}, {40, 20, 8}, {0, 24, 8}, {0, 25, 8}, {0, 65, 8}};
    for (const auto &[lo, n, step] : kRuns) {
      const std::vector<int32_t> want = interpreted(function, seed, lo, n, step);
      if (changed) ASSERT_EQ(interpreted(*changed, seed, lo, n, step), want) << "from " << lo << " to " << n << " by " << step << "\n" << text;
      Memory m(seed);
      kernel.run({pointer(m.x.data()), pointer(m.y.data()), integer(lo), integer(n), integer(step)}, 1);
      ASSERT_EQ(m.y, want) << "from " << lo << " to " << n << " by " << step << "\n" << text;
    }
  }
  EXPECT_GT(written, 80);
  EXPECT_GT(several, 40);
}

/// A sum of rows of %x in blocks, as text; `between` stands behind the loop.
std::string rowSum(std::string_view hi, std::string_view between, std::string_view body = "arith.addf %acc, %v") {
  return fmt::format(R"(tt.func public @f(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>, %n: i32) {{
  %c0 = arith.constant 0 : i32
  %c64 = arith.constant 64 : i32
  %c256 = arith.constant 256 : i32
  %zero = arith.constant dense<0.0> : tensor<64xf32>
  %range = tt.make_range {{end = 64 : i32, start = 0 : i32}} : tensor<64xi32>
  %xs = tt.splat %x : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>
  %bound = tt.splat %n : i32 -> tensor<64xi32>
  %tile = scf.for %i = %c0 to {} step %c64 iter_args(%acc = %zero) -> (tensor<64xf32>) : i32 {{
    %is = tt.splat %i : i32 -> tensor<64xi32>
    %at = arith.addi %is, %range : tensor<64xi32>
    %mask = arith.cmpi slt, %at, %bound : tensor<64xi32>
    %p = tt.addptr %xs, %at : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
    %v = tt.load %p, %mask, %zero : tensor<64x!tt.ptr<f32>>
    %next = {} : tensor<64xf32>
    scf.yield %next : tensor<64xf32>
  }}
  {}
  %sum = "tt.reduce"(%tile) <{{axis = 0 : i32}}> ({{
  ^bb0(%a: f32, %b: f32):
    %s = arith.addf %a, %b : f32
    tt.reduce.return %s : f32
  }}) : (tensor<64xf32>) -> f32
  tt.store %y, %sum : !tt.ptr<f32>
  tt.return
}}
)",
                     hi, body, between);
}

/// How many loops and branches the function has when its loops are written out; none: they are not.
std::optional<std::pair<int, int>> writtenOut(const std::string &text) {
  std::unique_ptr<MLIRContext> context = makeTileContext();
  Result<OwningOpRef<ModuleOp>> module = parseTile(text, "sum.ttir", context.get());
  if (!module) {
    ADD_FAILURE() << module.error().str() << text;
    return std::nullopt;
  }
  OwningOpRef<tt::FuncOp> changed = withOneTurnWrittenOut(*(*module)->getOps<tt::FuncOp>().begin());
  if (!changed) return std::nullopt;
  std::pair<int, int> found;
  changed->walk([&](scf::ForOp) { ++found.first; });
  changed->walk([&](scf::IfOp) { ++found.second; });
  return found;
}

TEST(OneTurn, IsWrittenOutWhereTilesNeedNoMemoryThen) {
  // Beside the branch a loop takes four turns at a time, and one the rest.
  EXPECT_EQ(writtenOut(rowSum("%n", "")), std::pair(2, 1));
  // Numbers that have nothing to do with the tile stand before it then.
  EXPECT_EQ(writtenOut(rowSum("%n", "%f = arith.sitofp %n : i32 to f32")), std::pair(2, 1));
  // Four turns, as everybody can see.
  EXPECT_EQ(writtenOut(rowSum("%c256", "")), std::nullopt);
  // What may write what the loop reads stays behind it.
  EXPECT_EQ(writtenOut(rowSum("%n", "%f = arith.sitofp %n : i32 to f32\n  tt.store %x, %f : !tt.ptr<f32>")), std::nullopt);
  // A tile that is stored needs memory of its own nowhere, but that is no reduction.
  EXPECT_EQ(writtenOut(rowSum("%n", "tt.store %xs, %tile : tensor<64x!tt.ptr<f32>>")), std::nullopt);
  // Nothing is carried.
  EXPECT_EQ(writtenOut(rowSum("%n", "").replace(rowSum("%n", "").find("yield %next"), 11, "yield %acc")), std::nullopt);
}

// The first turn of sums begins with zero: negative zeros do not stay.
TEST(OneTurn, KeepsTheSignOfZero) {
  for (CpuLevel level : runnableLevels()) {
    Kernel k(rowSum("%n", ""), level);
    ASSERT_TRUE(k.ok()) << k.error;
    std::vector<float> x(256, -0.0f);
    for (int n : {0, 1, 16, 40, 64, 65, 200}) {
      float sum = 7;
      k.run({pointer(x.data()), pointer(&sum), integer(n)}, 1);
      EXPECT_EQ(sum, 0.0f) << n;
      EXPECT_FALSE(std::signbit(sum)) << n;
    }
  }
}

} // namespace
} // namespace neso::cpu::test
