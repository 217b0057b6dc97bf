// Claim: what Uses says of a function may be acted on. Loads that need not be kept are done again in front of whoever asks for their elements, the
// stores of a group run in one loop over the elements, and the function still computes what it did: random functions that load from and
// store to the same buffers, in the interpreter.
#include <gtest/gtest.h>

#include <random>

#include "backend/cpu/uses.h"
#include "fmt/format.h"
#include "ir/tile/build.h"
#include "ir/tile/interp.h"
#include "ir/tile/tile.h"

namespace neso::cpu::test {
namespace {

using namespace mlir;

constexpr int kLanes = 8, kElements = 64;

/// Text of @f(%x, %y: ptr<i32>, %n: i32), all on tensors of kLanes elements, with branches and loops around some of it.
class RandomUses {
public:
  explicit RandomUses(uint32_t seed) : random_(seed) {}

  std::string kernel() {
    text_ = "tt.func public @f(%x: !tt.ptr<i32>, %y: !tt.ptr<i32>, %n: i32) {\n";
    line("%range = tt.make_range {{start = 0 : i32, end = {0} : i32}} : tensor<{0}xi32>", kLanes);
    line("%two = arith.constant dense<2> : {}", kType);
    line("%seven = arith.constant dense<7> : {}", kType);
    line("%twice = arith.muli %range, %two : {}", kType);
    line("%ns = tt.splat %n : i32 -> {}", kType);
    line("%halved = arith.divui %range, %two : {}", kType);
    line("%any = arith.muli %range, %ns : {}", kType);
    line("%turned = arith.subi %seven, %range : {}", kType);
    line("%xs = tt.splat %x : !tt.ptr<i32> -> {}", kPointers);
    line("%ys = tt.splat %y : !tt.ptr<i32> -> {}", kPointers);
    line("%none = arith.constant 0 : i32");
    line("%turns = arith.constant 2 : i32");
    line("%one = arith.constant 1 : i32");
    line("%few = arith.cmpi slt, %n, %turns : i32");
    line("%some = arith.cmpi slt, %range, %seven : {}", kType);
    values_ = {"%range", "%ns"};
    body(6 + pick(12), 0);
    text_ += "  tt.return\n}\n";
    return text_;
  }

private:
  static constexpr const char *kType = "tensor<8xi32>", *kPointers = "tensor<8x!tt.ptr<i32>>";

  int pick(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  template <typename... A> void line(fmt::format_string<A...> format, A &&...args) {
    text_ += "  " + fmt::format(format, std::forward<A>(args)...) + "\n";
  }
  std::string fresh() { return "%v" + std::to_string(next_++); }
  std::string value() { return values_[static_cast<size_t>(pick(static_cast<int>(values_.size())))]; }

  /// The latest address again, or another: one of two buffers, a stride, a start.
  std::string address() {
    if (!addresses_.empty() && pick(2)) return addresses_[static_cast<size_t>(pick(static_cast<int>(addresses_.size())))];
    const std::string start = fresh(), offset = fresh(), out = fresh();
    if (pick(4))
      line("{} = arith.constant dense<{}> : {}", start, pick(10), kType);
    else
      line("{} = arith.addi %ns, %two : {}", start, kType);
    // Each element at a place of its own, or several at one.
    static constexpr const char *kSteps[] = {"%range", "%range", "%range", "%twice", "%turned", "%halved", "%any"};
    line("{} = arith.addi {}, {} : {}", offset, kSteps[pick(7)], start, kType);
    line("{} = tt.addptr %{}s, {} : {}, {}", out, pick(2) ? "x" : "y", offset, kPointers, kType);
    addresses_.push_back(out);
    return out;
  }

  void body(int length, int depth) {
    const std::vector<std::string> values = values_, addresses = addresses_;
    for (int i = 0; i < length; ++i) {
      const int what = pick(11);
      if (what == 10) {
        const std::string of = value(), out = fresh();
        line("{} = tt.gather {}[%{}] {{axis = 0 : i32}} : ({}, {}) -> {}", out, of, pick(2) ? "turned" : "halved", kType, kType, kType);
        values_.push_back(out);
      } else if (what < 4) {
        const std::string from = address(), out = fresh();
        if (pick(3))
          line("{} = tt.load {} : {}", out, from, kPointers);
        else
          line("{} = tt.load {}, %some, %two : {}", out, from, kPointers);
        values_.push_back(out);
      } else if (what < 6) {
        const std::string a = value(), b = pick(4) ? value() : "%seven", out = fresh();
        static constexpr const char *kOps[] = {"addi", "muli", "xori", "divui"};
        const int op = b == "%seven" ? pick(4) : pick(3);
        line("{} = arith.{} {}, {} : {}", out, kOps[op], a, b, kType);
        values_.push_back(out);
      } else if (what < 9 || depth == 2) {
        const std::string to = address(), v = value();
        if (pick(3))
          line("tt.store {}, {} : {}", to, v, kPointers);
        else
          line("tt.store {}, {}, %some : {}", to, v, kPointers);
      } else {
        const int kind = pick(3);
        if (kind == 0) {
          line("scf.if %few {{");
        } else if (kind == 1) {
          line("scf.for %i{} = %none to %turns step %one : i32 {{", next_++);
        } else {
          moving(depth);
          continue;
        }
        body(1 + pick(4), depth + 1);
        line("}}");
      }
    }
    if (depth) values_ = values, addresses_ = addresses;
  }

  /// A loop that carries an address, which moves by one number for all elements, or by one for each.
  void moving(int depth) {
    const std::vector<std::string> values = values_, addresses = addresses_;
    const std::string from = address(), carried = fresh(), next = fresh();
    line("{} = scf.for %i{} = %none to %turns step %one iter_args({} = {}) -> ({}) : i32 {{", fresh(), next_++, carried, from, kPointers);
    addresses_.assign(3, carried);
    body(2 + pick(4), depth + 1);
    line("{} = tt.addptr {}, {} : {}, {}", next, carried, pick(3) ? "%two" : "%turned", kPointers, kType);
    line("scf.yield {} : {}", next, kPointers);
    line("}}");
    values_ = values, addresses_ = addresses;
  }

  std::mt19937 random_;
  std::string text_;
  int next_ = 0;
  std::vector<std::string> values_, addresses_;
};

/// A function as a back end would run it that follows Uses to the letter.
class Follower {
public:
  explicit Follower(tt::FuncOp function) : function_(function) {
    Uses uses;
    std::vector<Operation *> ops;
    function.walk([&](Operation *op) { ops.push_back(op); });
    for (Operation *op : ops)
      if (uses.isVirtual(op)) {
        virtual_.insert(op);
        for (Value r : op->getResults())
          if (uses.mustKeep(r)) kept_.insert(op);
      }
    llvm::DenseSet<Operation *> grouped;
    for (Operation *op : ops) {
      if (grouped.contains(op)) continue;
      if (!isa<tt::StoreOp>(op)) {
        if (!virtual_.contains(op) || kept_.contains(op)) sinks_.push_back({op});
        continue;
      }
      sinks_.push_back(uses.storeGroup(op));
      grouped.insert(sinks_.back().begin(), sinks_.back().end());
      if (sinks_.back().size() > 1) ++groups;
    }
    for (Operation *op : ops) again += isa<tt::LoadOp>(op) && !kept_.contains(op);
  }

  /// As many elements at a time.
  void rewrite(int chunk) {
    for (const auto &sink : sinks_) {
      OpBuilder b(sink.front());
      if (!isa<tt::StoreOp>(sink.front())) {
        ask(b, sink.front());
        continue;
      }
      for (int begin = 0; begin < kLanes; begin += chunk) {
        const Value here = lanes(b, sink.front()->getLoc(), begin, begin + chunk);
        std::vector<Operation *> stores;
        for (Operation *store : sink) {
          Operation *copy = store->clone();
          ask(b, copy);
          stores.push_back(copy);
        }
        for (Operation *copy : stores) {
          auto store = cast<tt::StoreOp>(copy);
          Value mask = here;
          if (Value own = store.getMask()) mask = arith::AndIOp::create(b, store.getLoc(), mask, own);
          tile::store(b, store.getLoc(), store.getPtr(), store.getValue(), mask);
          copy->erase();
        }
      }
      for (Operation *store : sink) store->erase();
    }
  }

  int groups = 0, again = 0;

private:
  Value lanes(OpBuilder &b, Location loc, int begin, int end) {
    const Value range = tile::makeRange(b, loc, 0, kLanes);
    auto edge = [&](int at) {
      const Value number = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(at));
      return tile::splat(b, loc, number, {kLanes});
    };
    const Value from = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, range, edge(begin));
    const Value to = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, range, edge(end));
    return arith::AndIOp::create(b, loc, from, to);
  }
  /// Computes what an operation takes in front of it, down to what is kept.
  void ask(OpBuilder &b, Operation *op) {
    for (OpOperand &operand : op->getOpOperands()) operand.set(computed(b, operand.get()));
  }
  Value computed(OpBuilder &b, Value v) {
    Operation *def = v.getDefiningOp();
    if (!def || !virtual_.contains(def) || kept_.contains(def)) return v;
    Operation *copy = def->clone();
    ask(b, copy);
    b.insert(copy);
    return copy->getResult(cast<OpResult>(v).getResultNumber());
  }

  tt::FuncOp function_;
  llvm::DenseSet<Operation *> virtual_, kept_;
  std::vector<llvm::SmallVector<Operation *, 4>> sinks_;
};

std::vector<int32_t> run(tt::FuncOp function, uint32_t seed, int64_t n) {
  std::mt19937 random(seed);
  std::vector<int32_t> memory(2 * kElements);
  for (int32_t &m : memory) m = static_cast<int32_t>(random() % 100);
  const InterpArg args[] = {InterpArg::pointer(memory.data(), kElements * 4), InterpArg::pointer(memory.data() + kElements, kElements * 4),
                            InterpArg::integer(n)};
  const Status s = interpretTile(function, args, {1, 1, 1});
  EXPECT_TRUE(s) << s.error().str();
  return memory;
}

TEST(Uses, MayBeActedOn) {
  int groups = 0, again = 0;
  for (uint32_t seed = 0; seed < 400; ++seed) {
    const std::string text = RandomUses(seed).kernel();
    std::unique_ptr<MLIRContext> context = makeTileContext();
    for (int chunk : {1, 4, kLanes}) {
      Result<OwningOpRef<ModuleOp>> module = parseTile(text, "random.ttir", context.get()), other = parseTile(text, "random.ttir", context.get());
      ASSERT_TRUE(module) << module.error().str() << text;
      tt::FuncOp function = *(*module)->getOps<tt::FuncOp>().begin(), changed = *(*other)->getOps<tt::FuncOp>().begin();
      Follower follower(changed);
      follower.rewrite(chunk);
      groups += follower.groups, again += follower.again;
      for (int64_t n : {0, 1, 5}) ASSERT_EQ(run(function, seed, n), run(changed, seed, n)) << "seed " << seed << ", " << chunk << " elements at a time:\n" << text;
    }
  }
  EXPECT_GT(groups, 100);
  EXPECT_GT(again, 100);
}

/// A scan and a reduction of %x by one operation each, given as text of %a and %b.
std::string scanAndTotal(std::string_view scan, std::string_view total, bool reverse) {
  return fmt::format(R"(tt.func public @f(%x: tensor<8xf32>, %y: !tt.ptr<f32>) {{
  %0 = "tt.scan"(%x) <{{axis = 0 : i32, reverse = {}}}> ({{
  ^bb0(%a: f32, %b: f32):
    %3 = {} : (f32, f32) -> f32
    tt.scan.return %3 : f32
  }}) : (tensor<8xf32>) -> tensor<8xf32>
  %1 = "tt.reduce"(%x) <{{axis = 0 : i32}}> ({{
  ^bb0(%a: f32, %b: f32):
    %3 = {} : (f32, f32) -> f32
    tt.reduce.return %3 : f32
  }}) : (tensor<8xf32>) -> f32
  tt.store %y, %1 : !tt.ptr<f32>
  tt.return
}}
)",
                     reverse, scan, total);
}

TEST(Uses, TakesATotalFromTheScanByTheSameFunction) {
  auto call = [](std::string_view name, std::string_view operands) {
    return fmt::format(R"(tt.extern_elementwise {} {{libname = "", libpath = "", pure = true, symbol = "{}"}})", operands, name);
  };
  const std::string hypot = call("__nv_hypotf", "%a, %b"), sign = call("__nv_copysignf", "%a, %b"), turned = call("__nv_copysignf", "%b, %a");
  const std::tuple<std::string, std::string, bool, bool> cases[] = {
      {hypot, hypot, false, true}, {sign, sign, false, true}, {sign, sign, true, false}, {hypot, sign, false, false}, {sign, turned, false, false}};
  std::unique_ptr<MLIRContext> context = makeTileContext();
  for (const auto &[scan, total, reverse, same] : cases) {
    const std::string text = scanAndTotal(scan, total, reverse);
    Result<OwningOpRef<ModuleOp>> module = parseTile(text, "total.ttir", context.get());
    ASSERT_TRUE(module) << module.error().str() << text;
    Operation *reduce = nullptr;
    (*module)->walk([&](tt::ReduceOp op) { reduce = op; });
    ASSERT_TRUE(reduce);
    EXPECT_EQ(Uses::scanOfTotal(reduce) != nullptr, same) << text;
  }
}

/// Rows times a factor each, as a softmax scales its sums.
TEST(Uses, KeepsColumnsThatTakeMuchAndOfAChainOnlyItsEnd) {
  const std::string text = R"(tt.func public @f(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>, %c: tensor<16x1xf32>, %t: tensor<16x8xf32>) {
  %e = math.log %c : tensor<16x1xf32>
  %d = arith.negf %c : tensor<16x1xf32>
  %eb = tt.broadcast %e : tensor<16x1xf32> -> tensor<16x8xf32>
  %db = tt.broadcast %d : tensor<16x1xf32> -> tensor<16x8xf32>
  %s = math.log %t : tensor<16x8xf32>
  %u = math.exp %s : tensor<16x8xf32>
  %v = arith.mulf %u, %eb : tensor<16x8xf32>
  %w = arith.mulf %u, %db : tensor<16x8xf32>
  %xs = tt.splat %x : !tt.ptr<f32> -> tensor<16x8x!tt.ptr<f32>>
  %ys = tt.splat %y : !tt.ptr<f32> -> tensor<16x8x!tt.ptr<f32>>
  tt.store %xs, %v : tensor<16x8x!tt.ptr<f32>>
  tt.store %ys, %w : tensor<16x8x!tt.ptr<f32>>
  tt.return
}
)";
  std::unique_ptr<MLIRContext> context = makeTileContext();
  Result<OwningOpRef<ModuleOp>> module = parseTile(text, "columns.ttir", context.get());
  ASSERT_TRUE(module) << module.error().str();
  tt::FuncOp function = *(*module)->getOps<tt::FuncOp>().begin();
  Uses uses;
  auto resultOf = [&](StringRef name, unsigned columns) {
    Value found;
    function.walk([&](Operation *op) {
      if (op->getName().getStringRef() == name && cast<RankedTensorType>(op->getResult(0).getType()).getDimSize(1) == columns) found = op->getResult(0);
    });
    return found;
  };
  EXPECT_TRUE(uses.mustKeep(resultOf("math.log", 1)));   // a factor for each row
  EXPECT_FALSE(uses.mustKeep(resultOf("arith.negf", 1))); // as dear to load
  // Both stores read the exponential, whose logarithm nothing else reads.
  EXPECT_TRUE(uses.worthKeeping(resultOf("math.exp", 8)));
  EXPECT_FALSE(uses.worthKeeping(resultOf("math.log", 8)));
}

/// Steps that each read a tensor at its own places and at others, `how`: by a gather, transposed, by the sums of a scan, or as another shape by reductions. Nothing but the last is stored.
std::string chainOf(std::string_view how, int steps) {
  std::string text = R"(tt.func public @f(%x: !tt.ptr<f32>, %v0: tensor<8x8xf32>, %at: tensor<8x8xi32>) {
  %h = arith.constant dense<5.0e-01> : tensor<8x8xf32>
)";
  for (int i = 0; i < steps; ++i) {
    auto line = [&](std::string_view code) { text += fmt::format("  {}\n", fmt::format(fmt::runtime(code), fmt::arg("i", i), fmt::arg("n", i + 1))); };
    const std::string_view sum = "^bb0(%a: f32, %b: f32):\n  %c = arith.addf %a, %b : f32\n  ";
    if (how == "gather") line("%w{i} = tt.gather %v{i}[%at] {{axis = 1 : i32}} : (tensor<8x8xf32>, tensor<8x8xi32>) -> tensor<8x8xf32>");
    if (how == "trans") line("%w{i} = tt.trans %v{i} {{order = array<i32: 1, 0>}} : tensor<8x8xf32> -> tensor<8x8xf32>");
    if (how == "scan") {
      line("%w{i} = \"tt.scan\"(%v{i}) <{{axis = 1 : i32, reverse = false}}> ({{");
      text += std::string(sum) + "tt.scan.return %c : f32\n";
      line("}}) : (tensor<8x8xf32>) -> tensor<8x8xf32>");
    }
    if (how == "reduce") {
      line("%q{i} = tt.reshape %v{i} : tensor<8x8xf32> -> tensor<4x2x8xf32>");
      line("%r{i} = \"tt.reduce\"(%q{i}) <{{axis = 1 : i32}}> ({{");
      text += std::string(sum) + "tt.reduce.return %c : f32\n";
      line("}}) : (tensor<4x2x8xf32>) -> tensor<4x8xf32>");
      line("%e{i} = tt.expand_dims %r{i} {{axis = 1 : i32}} : tensor<4x8xf32> -> tensor<4x1x8xf32>");
      line("%b{i} = tt.broadcast %e{i} : tensor<4x1x8xf32> -> tensor<4x2x8xf32>");
      line("%w{i} = tt.reshape %b{i} : tensor<4x2x8xf32> -> tensor<8x8xf32>");
    }
    line("%m{i} = arith.mulf %v{i}, %h : tensor<8x8xf32>");
    line("%v{n} = arith.addf %m{i}, %w{i} : tensor<8x8xf32>");
  }
  return text + fmt::format("  %xs = tt.splat %x : !tt.ptr<f32> -> tensor<8x8x!tt.ptr<f32>>\n  tt.store %xs, %v{} : tensor<8x8x!tt.ptr<f32>>\n  tt.return\n}}\n", steps);
}

/// Else each step would double the work of all before it (gathers, transposes), or add to it once more what all of them take.
TEST(Uses, KeepsWhatStepsOfAChainWouldComputeAgain) {
  std::unique_ptr<MLIRContext> context = makeTileContext();
  for (const std::string_view how : {"gather", "trans", "scan", "reduce"}) {
    const std::string text = chainOf(how, 64);
    Result<OwningOpRef<ModuleOp>> module = parseTile(text, "chain.ttir", context.get());
    ASSERT_TRUE(module) << module.error().str() << text;
    Uses uses;
    int steps = 0, kept = 0, since = 0, longest = 0;
    (*module)->walk([&](arith::AddFOp op) {
      if (!isa<RankedTensorType>(op.getType())) return;
      ++steps, ++since;
      if (uses.mustKeep(op)) ++kept, since = 0;
      longest = std::max(longest, since);
    });
    EXPECT_EQ(steps, 64) << how;
    EXPECT_GT(kept, 4) << how;
    EXPECT_LT(longest, 24) << how; // steps without one that is kept
  }
}

/// A row of 64 logarithms of exponentials whose halves are added until `left` numbers are left: each step asks for what is before it at twice as many places.
TEST(Uses, KeepsWhatHalvesWouldAskForPieceByPiece) {
  auto keeps = [](int left) {
    std::string text = "tt.func public @f(%x: !tt.ptr<f32>, %a: tensor<64xf32>) {\n  %e = math.exp %a : tensor<64xf32>\n  %v64 = math.log %e : tensor<64xf32>\n";
    for (int n = 64; n > left; n /= 2)
      text += fmt::format(R"(  %q{0} = tt.reshape %v{0} : tensor<{0}xf32> -> tensor<2x{1}xf32>
  %t{0} = tt.trans %q{0} {{order = array<i32: 1, 0>}} : tensor<2x{1}xf32> -> tensor<{1}x2xf32>
  %l{0}, %h{0} = tt.split %t{0} : tensor<{1}x2xf32> -> tensor<{1}xf32>
  %v{1} = arith.addf %l{0}, %h{0} : tensor<{1}xf32>
)", n, n / 2);
    text += fmt::format("  %xs = tt.splat %x : !tt.ptr<f32> -> tensor<{0}x!tt.ptr<f32>>\n  tt.store %xs, %v{0} : tensor<{0}x!tt.ptr<f32>>\n  tt.return\n}}\n", left);
    std::unique_ptr<MLIRContext> context = makeTileContext();
    Result<OwningOpRef<ModuleOp>> module = parseTile(text, "halves.ttir", context.get());
    EXPECT_TRUE(module) << text;
    Uses uses;
    bool kept = false;
    (*module)->walk([&](Operation *op) { kept |= uses.isVirtual(op) && uses.mustKeep(op->getResult(0)); });
    return kept;
  };
  EXPECT_TRUE(keeps(1));
  EXPECT_FALSE(keeps(32)); // in whole vectors, each element once
}

} // namespace
} // namespace neso::cpu::test
