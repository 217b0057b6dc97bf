// Passes, axis facts and effects. Rewritten programs are compared with the interpreter on the original; facts and
// effects with what the kernels in goldens/ and the texts below plainly do (effects: the answers PyTorch's own analysis
// is tested for).
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "base/diagnostics/tile.h"
#include "ir/tile/interp.h"
#include "ir/tile/passes/axis_info.h"
#include "ir/tile/passes/effects.h"
#include "ir/tile/passes/passes.h"

using namespace neso;

namespace {

struct Kernel {
  std::unique_ptr<mlir::MLIRContext> ctx = makeTileContext();
  mlir::OwningOpRef<mlir::ModuleOp> module;

  explicit Kernel(const std::string &text, const std::string &name = "test.ttir") {
    Result<mlir::OwningOpRef<mlir::ModuleOp>> m = parseTile(text, name, ctx.get());
    EXPECT_TRUE(m) << m.error().str();
    module = std::move(*m);
  }
  static Kernel golden(const std::string &name) {
    std::ifstream in(std::filesystem::path(NESO_SOURCE_DIR) / "compiler/ir/tile/test/goldens" / (name + ".ttir"));
    std::stringstream text;
    text << in.rdbuf();
    return Kernel(text.str(), name + ".ttir");
  }
  tt::FuncOp func() {
    for (tt::FuncOp f : module->getOps<tt::FuncOp>())
      if (f.isPublic()) return f;
    return nullptr;
  }
  void pass(const char *name) {
    Status s = runTilePass(*module, name);
    ASSERT_TRUE(s) << name << ": " << s.error().str();
    Status v = verifyTile(*module);
    ASSERT_TRUE(v) << name << ": " << v.error().str() << printTile(*module);
  }
  template <typename Op> int count() {
    int n = 0;
    module->walk([&](Op) { ++n; });
    return n;
  }
  template <typename Op> Op first() {
    Op found;
    module->walk([&](Op op) {
      if (!found) found = op;
    });
    return found;
  }
};

template <typename T> InterpArg buffer(std::vector<T> &v) {
  return InterpArg::pointer(v.data(), static_cast<int64_t>(v.size() * sizeof(T)));
}
using Indices = std::vector<unsigned>;

} // namespace

TEST(TilePasses, PipelineKeepsEveryGoldenValid) {
  for (const auto &entry :
       std::filesystem::directory_iterator(std::filesystem::path(NESO_SOURCE_DIR) / "compiler/ir/tile/test/goldens")) {
    Kernel k = Kernel::golden(entry.path().stem().string());
    SCOPED_TRACE(entry.path().string());
    k.pass("pipeline");
    EXPECT_EQ(k.count<tt::MakeTensorDescOp>(), 0);
    EXPECT_EQ(k.count<tt::CallOp>(), 0);
  }
}

// The same inputs before and after the pipeline: small integers, which every float type and any order of addition keeps
// exact. A kernel that must fail on them (an assertion, assembly) has to fail in the same way.
TEST(TilePasses, PipelineKeepsWhatEveryGoldenComputes) {
  int compared = 0;
  for (const auto &entry :
       std::filesystem::directory_iterator(std::filesystem::path(NESO_SOURCE_DIR) / "compiler/ir/tile/test/goldens")) {
    std::string name = entry.path().stem().string();
    if (name == "host_descriptor" || name == "attention" || name == "math" || name == "softmax")
      continue; // tested by themselves, or inexact
    SCOPED_TRACE(name);
    Kernel k = Kernel::golden(name);
    auto run = [&](std::vector<std::vector<char>> &memory) -> Status {
      std::vector<InterpArg> args;
      memory.resize(k.func().getNumArguments());
      for (auto [i, type] : llvm::enumerate(k.func().getArgumentTypes())) {
        tt::PointerType pointer = mlir::dyn_cast<tt::PointerType>(type);
        if (!pointer) {
          args.push_back(InterpArg::integer(16));
          continue;
        }
        mlir::Type element = pointer.getPointeeType();
        memory[i].resize(64 * 1024);
        for (size_t j = 0; j < memory[i].size(); j += 4) {
          int32_t v = static_cast<int32_t>((j / 4 * 7 + i) % 8);
          float f = static_cast<float>(v);
          if (element.isF32())
            std::memcpy(&memory[i][j], &f, 4);
          else if (element.isInteger(32))
            std::memcpy(&memory[i][j], &v, 4);
        }
        args.push_back(buffer(memory[i]));
      }
      InterpOptions options;
      options.maxSteps = 1 << 20;
      return interpretTile(k.func(), args, {2, 1, 1}, options);
    };
    std::vector<std::vector<char>> before, after;
    Status one = run(before);
    k.pass("pipeline");
    Status two = run(after);
    ASSERT_EQ(bool(one), bool(two)) << (one ? two.error().str() : one.error().str());
    if (!one) {
      EXPECT_EQ(one.error().diagnostics().front().kind, two.error().diagnostics().front().kind);
      continue;
    }
    EXPECT_TRUE(before == after);
    ++compared;
  }
  EXPECT_GE(compared, 20);
}

TEST(TilePasses, DescriptorsBecomeMaskedAddresses) {
  std::vector<_Float16> x(20 * 24);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<_Float16>(static_cast<int>(i) % 9);
  std::vector<_Float16> want(x.size()), got(x.size());
  Kernel k = Kernel::golden("descriptor");
  std::vector<InterpArg> args = {buffer(x), buffer(want), InterpArg::integer(20), InterpArg::integer(24)};
  ASSERT_TRUE(interpretTile(k.func(), args, {2, 2, 1}));
  k.pass("rewrite-descriptors");
  EXPECT_EQ(k.count<tt::DescriptorLoadOp>() + k.count<tt::DescriptorReduceOp>(), 0);
  args[1] = buffer(got);
  Status s = interpretTile(k.func(), args, {2, 2, 1});
  ASSERT_TRUE(s) << s.error().str();
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(float(got[i]), float(want[i])) << i;
}

TEST(TilePasses, DescriptorParameterBecomesPointer) {
  Kernel k = Kernel::golden("host_descriptor");
  k.pass("rewrite-descriptors");
  EXPECT_TRUE(mlir::isa<tt::PointerType>(k.func().getArgumentTypes()[0]));
  std::vector<_Float16> t(400);
  for (size_t i = 0; i < t.size(); ++i) t[i] = static_cast<_Float16>(static_cast<int>(i));
  std::vector<float> p(512, -1);
  std::vector<InterpArg> args = {buffer(t)};
  for (int64_t v : {10, 40, 40, 1}) args.push_back(InterpArg::integer(v));
  args.push_back(buffer(p));
  Status s = interpretTile(k.func(), args, {1, 1, 1});
  ASSERT_TRUE(s) << s.error().str();
  EXPECT_EQ(p[32], 56);
  EXPECT_EQ(p[24], 0);
  EXPECT_EQ(p[320], 0);
}

static const char *kBlockLoop = R"(tt.func public @copy(%x: !tt.ptr<f32>, %o: !tt.ptr<f32>, %n: i32) {
  %one = arith.constant 1 : i64
  %zero = arith.constant 0 : i32
  %step = arith.constant 8 : i32
  %unit = arith.constant 1 : i32
  %big = arith.extsi %n : i32 to i64
  %a = tt.make_tensor_ptr %x, [%big, %big], [%big, %one], [%zero, %zero] {order = array<i32: 1, 0>} : <tensor<8x8xf32>>
  %b = tt.make_tensor_ptr %o, [%big, %big], [%big, %one], [%zero, %zero] {order = array<i32: 1, 0>} : <tensor<8x8xf32>>
  %r:2 = scf.for %i = %zero to %n step %step iter_args(%p = %a, %q = %b) -> (!tt.ptr<tensor<8x8xf32>>, !tt.ptr<tensor<8x8xf32>>) : i32 {
    %v = tt.load %p {boundaryCheck = array<i32: 0, 1>, padding = 1 : i32} : !tt.ptr<tensor<8x8xf32>>
    tt.store %q, %v {boundaryCheck = array<i32: 0, 1>} : !tt.ptr<tensor<8x8xf32>>
    %p2 = tt.advance %p, [%zero, %step] : <tensor<8x8xf32>>
    %q2 = tt.advance %q, [%zero, %step] : <tensor<8x8xf32>>
    scf.yield %p2, %q2 : !tt.ptr<tensor<8x8xf32>>, !tt.ptr<tensor<8x8xf32>>
  }
  tt.return
})";

TEST(TilePasses, BlockPointersThroughLoops) {
  Kernel k(kBlockLoop);
  std::vector<float> x(10 * 10), o(100), p(100);
  for (int i = 0; i < 100; ++i) x[i] = i + 1;
  std::vector<InterpArg> args = {buffer(x), buffer(o), InterpArg::integer(10)};
  Status s = interpretTile(k.func(), args, {1, 1, 1});
  ASSERT_TRUE(s) << s.error().str();
  for (int i = 0; i < 100; ++i) ASSERT_EQ(o[i], i < 80 ? i + 1 : 0);
  k.pass("rewrite-descriptors");
  EXPECT_EQ(k.count<tt::AdvanceOp>(), 0);
  args[1] = buffer(p);
  s = interpretTile(k.func(), args, {1, 1, 1});
  ASSERT_TRUE(s) << s.error().str();
  EXPECT_EQ(o, p);
}

TEST(TilePasses, CombineAndHints) {
  Kernel k = Kernel::golden("matmul");
  k.pass("pipeline");
  EXPECT_EQ(k.count<tt::DotOp>(), 1);
  EXPECT_FALSE(mlir::isa<mlir::arith::ConstantOp>(k.first<tt::DotOp>().getC().getDefiningOp()
                                                      ? k.first<tt::DotOp>().getC().getDefiningOp()
                                                      : k.func().getOperation()));
  Kernel loop(R"(tt.func public @f(%p: !tt.ptr<i32>, %n: i32) {
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %r = scf.for %i = %zero to %n step %one iter_args(%a = %zero) -> (i32) : i32 {
      %b = arith.addi %a, %i : i32
      scf.yield %b : i32
    } {tt.loop_unroll_factor = 4 : i32}
    tt.store %p, %r : !tt.ptr<i32>
    tt.return
  })");
  loop.pass("loop-unroll");
  EXPECT_EQ(loop.count<mlir::scf::ForOp>(), 2);
  std::vector<int32_t> out(1);
  std::vector<InterpArg> args = {buffer(out), InterpArg::integer(11)};
  ASSERT_TRUE(interpretTile(loop.func(), args, {1, 1, 1}));
  EXPECT_EQ(out[0], 55);
}

TEST(TilePasses, SpecialiseBindsArguments) {
  Kernel k = Kernel::golden("add");
  std::vector<ArgFact> facts(4);
  facts[0].divisibility = 32;
  facts[3].intValue = 100;
  Status s = specialise(k.func(), facts);
  ASSERT_TRUE(s) << s.error().str();
  k.pass("pipeline");
  EXPECT_TRUE(k.func().getArgument(3).use_empty());
  EXPECT_EQ(k.func().getArgAttrOfType<mlir::IntegerAttr>(0, "tt.divisibility").getInt(), 32);
  facts.resize(3);
  EXPECT_EQ(specialise(k.func(), facts).error().diagnostics().front().kind, diag::TileBadFact);
  EXPECT_EQ(runTilePass(*k.module, "no-such").error().diagnostics().front().kind, diag::TileUnknownPass);
  Kernel bad("tt.func public @f(%d: !tt.tensordesc<8x8xf32>, %i: i32) {\n %0 = tt.descriptor_load %d[%i, %i] : "
             "!tt.tensordesc<8x8xf32> -> tensor<8x8xf32>\n tt.return\n}");
  EXPECT_EQ(runTilePass(*bad.module, "rewrite-descriptors").error().diagnostics().front().kind, diag::TilePassFailed);
}

TEST(AxisInfo, VectorWidthOfAdd) {
  Kernel k = Kernel::golden("add");
  tt::StoreOp store = k.first<tt::StoreOp>();
  AxisInfo p = axisInfo(store.getPtr());
  EXPECT_EQ(p.contiguity[0], 128);
  EXPECT_EQ(p.divisibility[0], 16);
  AxisInfoAnalysis facts(k.func());
  EXPECT_EQ(facts.vectorWidth(store.getPtr(), {}, 0), 4);
  EXPECT_EQ(facts.vectorWidth(store.getPtr(), store.getMask(), 0), 1); // n may be any number
  k.func().setArgAttr(3, "tt.divisibility", mlir::IntegerAttr::get(mlir::IntegerType::get(k.ctx.get(), 32), 16));
  EXPECT_EQ(AxisInfoAnalysis(k.func()).vectorWidth(store.getPtr(), store.getMask(), 0), 4);
}

// Grouped program ids, as products name them: rows of B are loaded in vectors although nothing says that N is positive.
TEST(AxisInfo, RemainderOfGroupedProgramIds) {
  Kernel k(R"(tt.func public @f(%n: i32 {tt.divisibility = 16 : i32}, %width: i32, %size: i32) {
    %c128 = arith.constant 128 : i32
    %pid = tt.get_program_id x : i32
    %in = arith.remsi %pid, %width : i32
    %q = arith.divsi %in, %size : i32
    %start = arith.muli %q, %c128 : i32
    %r = tt.make_range {end = 128 : i32, start = 0 : i32} : tensor<128xi32>
    %s = tt.splat %start : i32 -> tensor<128xi32>
    %i = arith.addi %s, %r : tensor<128xi32>
    %ns = tt.splat %n : i32 -> tensor<128xi32>
    %m = arith.remsi %i, %ns : tensor<128xi32>
    tt.return
  })");
  mlir::Operation *last = nullptr;
  k.module->walk([&](mlir::arith::RemSIOp op) { last = op; });
  EXPECT_EQ(AxisInfoAnalysis(k.func()).get(last->getResult(0)).contiguity[0], 16);
}

TEST(AxisInfo, Rules) {
  Kernel k(R"(tt.func public @f(%n: i32 {tt.divisibility = 16 : i32}, %p: !tt.ptr<f32>) {
    %r = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
    %c8 = arith.constant dense<8> : tensor<64xi32>
    %q = arith.divsi %r, %c8 : tensor<64xi32>
    %m = arith.remsi %r, %c8 : tensor<64xi32>
    %s = tt.splat %n : i32 -> tensor<64xi32>
    %neg = arith.addi %r, %s : tensor<64xi32>
    %t = arith.divsi %neg, %c8 : tensor<64xi32>
    %w = arith.muli %r, %s : tensor<64xi32>
    %e = tt.expand_dims %r {axis = 0 : i32} : tensor<64xi32> -> tensor<1x64xi32>
    %b = tt.broadcast %e : tensor<1x64xi32> -> tensor<4x64xi32>
    %cmp = arith.cmpi slt, %r, %s : tensor<64xi32>
    %zero = arith.constant 0 : i32
    %l = scf.for %i = %zero to %n step %n iter_args(%a = %b) -> (tensor<4x64xi32>) : i32 {
      %is = tt.splat %i : i32 -> tensor<4x64xi32>
      %x = arith.addi %a, %is : tensor<4x64xi32>
      scf.yield %x : tensor<4x64xi32>
    }
    tt.return
  })");
  AxisInfoAnalysis facts(k.func());
  auto of = [&](auto op) { return facts.get(op->getResult(0)); };
  std::vector<mlir::Operation *> divs;
  k.module->walk([&](mlir::arith::DivSIOp op) { divs.push_back(op); });
  EXPECT_EQ(of(divs[0]).constancy[0], 8);
  EXPECT_EQ(of(divs[1]).constancy[0], 1); // n may be negative, and division rounds to zero
  EXPECT_EQ(of(k.first<mlir::arith::RemSIOp>()).contiguity[0], 8);
  EXPECT_EQ(of(k.first<mlir::arith::RemSIOp>()).divisibility[0], 8);
  EXPECT_EQ(of(k.first<mlir::arith::MulIOp>()).divisibility[0], 16);
  EXPECT_EQ(of(k.first<mlir::arith::MulIOp>()).contiguity[0], 1);
  AxisInfo b = of(k.first<tt::BroadcastOp>());
  EXPECT_EQ(b.constancy[0], 4);
  EXPECT_EQ(b.contiguity[1], 64);
  EXPECT_EQ(of(k.first<mlir::arith::CmpIOp>()).constancy[0], 16);
  AxisInfo l = of(k.first<mlir::scf::ForOp>());
  EXPECT_EQ(l.contiguity[1], 64);
  EXPECT_EQ(l.divisibility[1], 16);
}

TEST(Effects, Goldens) {
  auto written = [](const char *name) { return analyzeEffects(Kernel::golden(name).func()).written(); };
  EXPECT_EQ(written("add"), (Indices{2}));
  EXPECT_EQ(written("branch_pointers"), (Indices{2})); // each yielded position by itself
  EXPECT_EQ(written("argmax"), (Indices{1, 2}));
  EXPECT_EQ(written("cumsum"), (Indices{1}));
  EXPECT_EQ(written("atomics"), (Indices{0, 1}));
  EXPECT_EQ(written("early_return"), (Indices{0}));
  EXPECT_EQ(written("descriptor"), (Indices{1}));
  EXPECT_EQ(written("gather_rows"), (Indices{0}));
  EXPECT_EQ(written("host_descriptor"), (Indices{5}));
  EXPECT_EQ(written("attention"), (Indices{3}));
  Kernel assembly = Kernel::golden("inline_asm");
  KernelEffects unknown = analyzeEffects(assembly.func());
  EXPECT_FALSE(unknown.known);
  EXPECT_EQ(unknown.written(), (Indices{0, 1}));
  Kernel add = Kernel::golden("add");
  KernelEffects e = analyzeEffects(add.func());
  EXPECT_EQ(e.read(), (Indices{0, 1}));
  EXPECT_TRUE(e.params[2].writtenOnce);
  EXPECT_FALSE(analyzeEffects(Kernel::golden("matmul").func()).params[2].writtenOnce); // not proved
}

TEST(Effects, CallsLoopsAndRecursion) {
  Kernel calls(R"(
  tt.func public @outer(%in: !tt.ptr<f32>, %n: i32, %out: !tt.ptr<f32>) {
    %0 = tt.call @identity(%out) : (!tt.ptr<f32>) -> !tt.ptr<f32>
    tt.call @inner(%0, %in, %n) : (!tt.ptr<f32>, !tt.ptr<f32>, i32) -> ()
    tt.return
  }
  tt.func private @identity(%p: !tt.ptr<f32>) -> !tt.ptr<f32> {
    tt.return %p : !tt.ptr<f32>
  }
  tt.func private @inner(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %offset: i32) {
    %0 = tt.addptr %p, %offset : !tt.ptr<f32>, i32
    %1 = tt.load %q : !tt.ptr<f32>
    tt.store %0, %1 : !tt.ptr<f32>
    tt.return
  })");
  KernelEffects e = analyzeEffects(calls.func());
  EXPECT_TRUE(e.known) << e.unknownBecause;
  EXPECT_EQ(e.written(), (Indices{2})); // the number in the address is no parameter that changes
  EXPECT_EQ(e.read(), (Indices{0}));
  EXPECT_EQ(analyzeEffects(Kernel(kBlockLoop).func()).written(), (Indices{1}));
  Kernel recursive(R"(tt.func public @f(%p: !tt.ptr<f32>) {
    tt.call @f(%p) : (!tt.ptr<f32>) -> ()
    tt.return
  })");
  EXPECT_FALSE(analyzeEffects(recursive.func()).known);
  Kernel indirect(R"(tt.func public @f(%p: !tt.ptr<i64>, %q: !tt.ptr<f32>, %x: f32) {
    %0 = tt.load %p : !tt.ptr<i64>
    %1 = tt.int_to_ptr %0 : i64 -> !tt.ptr<f32>
    tt.store %1, %x : !tt.ptr<f32>
    tt.return
  })");
  KernelEffects i = analyzeEffects(indirect.func());
  EXPECT_FALSE(i.known); // the address comes from memory
  EXPECT_EQ(i.written(), (Indices{0, 1}));
}
