// Claims: what a reader gets to see; each op that the corpus and the models lack, written and read back, gives the same
// bits; what Triton's language cannot say is refused by name and place.
#include <gtest/gtest.h>

#include <numeric>

#include "base/diagnostics/tile.h"
#include "lower/tile_to_triton/test/round_trip.h"

using namespace neso;
using triton_source::TritonRoundTrip;

namespace {

struct Module {
  std::unique_ptr<mlir::MLIRContext> context = makeTileContext();
  mlir::OwningOpRef<mlir::ModuleOp> module;
  explicit Module(const std::string &body) {
    Result<mlir::OwningOpRef<mlir::ModuleOp>> parsed = parseTile(body, "kernel.ttir", context.get());
    if (!parsed)
      ADD_FAILURE() << parsed.error().str();
    else
      module = std::move(*parsed);
  }
};

/// A kernel of 8 lanes: %i is 0 … 7, %a and %b are what `in` holds there, %result goes to `out`.
std::string onLanes(const std::string &type, const std::string &body, const std::string &out) {
  return "tt.func public @k(%in: !tt.ptr<" + type + ">, %out: !tt.ptr<" + out + ">) {\n"
         "  %i = tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<8xi32>\n"
         "  %p = tt.splat %in : !tt.ptr<" + type + "> -> tensor<8x!tt.ptr<" + type + ">>\n"
         "  %pa = tt.addptr %p, %i : tensor<8x!tt.ptr<" + type + ">>, tensor<8xi32>\n"
         "  %a = tt.load %pa : tensor<8x!tt.ptr<" + type + ">>\n"
         "  %eight = arith.constant dense<8> : tensor<8xi32>\n"
         "  %pb = tt.addptr %pa, %eight : tensor<8x!tt.ptr<" + type + ">>, tensor<8xi32>\n"
         "  %b = tt.load %pb : tensor<8x!tt.ptr<" + type + ">>\n" + body +
         "  %o = tt.splat %out : !tt.ptr<" + out + "> -> tensor<8x!tt.ptr<" + out + ">>\n"
         "  %po = tt.addptr %o, %i : tensor<8x!tt.ptr<" + out + ">>, tensor<8xi32>\n"
         "  tt.store %po, %result : tensor<8x!tt.ptr<" + out + ">>\n"
         "  tt.return\n}\n";
}

/// Runs the kernel on 16 numbers of `type` and back again; "" or what is wrong.
std::string roundTrip(const std::string &text, const std::vector<uint8_t> &input) {
  Module m(text);
  if (!m.module) return "no module";
  Result<TritonRoundTrip> made = TritonRoundTrip::make(*m.module, {});
  if (!made) return made.error().str();
  std::vector<uint8_t> in = input, out(256);
  InterpArg args[] = {InterpArg::pointer(in.data(), static_cast<int64_t>(in.size())), InterpArg::pointer(out.data(), 256)};
  Status s = made->launch(*m.module->getOps<tt::FuncOp>().begin(), args, {1, 1, 1}, {});
  return s ? "" : s.error().str();
}

template <class T> std::vector<uint8_t> bytesOf(const std::vector<T> &values) {
  const auto *begin = reinterpret_cast<const uint8_t *>(values.data());
  return {begin, begin + values.size() * sizeof(T)};
}
const std::vector<uint8_t> kInts = bytesOf<int32_t>({0, 1, -1, 7, -8, 1 << 30, INT32_MIN, INT32_MAX, 3, 1, -1, -7, 8, 5, 2, 9});
const std::vector<uint8_t> kFloats = bytesOf<float>({0, -0.0F, 1.5F, -2.25F, NAN, INFINITY, 3e-39F, 100, 1, 0, -1.5F, NAN, NAN, -INFINITY, 2, 7});

TEST(TritonSource, ReadsAsItWouldBeWritten) {
  Module m(onLanes("f32", "%half = arith.constant dense<0.5> : tensor<8xf32>\n%s = arith.addf %a, %b : tensor<8xf32>\n%result = arith.mulf %s, %half : tensor<8xf32>\n", "f32"));
  TritonKernel kernel{{"x_ptr", "y"}, 2, 3, {{"k_0", {"s0//2", "1", "1"}, {"x[0]", "t1[s0]"}}}};
  Result<std::string> source = tileToTriton(*m.module, {{"k", kernel}}, "A title");
  ASSERT_TRUE(bool(source)) << source.error().str();
  EXPECT_EQ(*source, R"("""A title"""

import triton
import triton.language as tl


# k_0: grid (s0//2, 1, 1), 2 warps
#   x_ptr = x[0]
#   y = t1[s0]
@triton.jit
def k(x_ptr, y):
    lanes = tl.arange(0, 8)
    ptrs = x_ptr + lanes
    x = tl.load(ptrs)
    x_1 = tl.load(ptrs + 8)
    tl.store(y + lanes, (x + x_1) * 0.5)


KERNELS = {
    "k": {
        "signature": {"x_ptr": "*fp32", "y": "*fp32"},
        "divisible": {},
        "num_warps": 2,
        "num_stages": 3,
        "launches": [
            {"name": "k_0", "grid": ("s0//2", "1", "1"), "args": ["x[0]", "t1[s0]"]},
        ],
    },
}
)");
}

TEST(TritonSource, IntegersKeepTheirSigns) {
  for (const char *op : {"addi", "subi", "muli", "divsi", "divui", "remsi", "remui", "andi", "ori", "xori", "minsi", "maxsi", "minui", "maxui"}) {
    // Divisors are positive.
    const std::string divisor = "%one = arith.constant dense<1> : tensor<8xi32>\n%mask = arith.constant dense<255> : tensor<8xi32>\n"
                                "%low = arith.andi %b, %mask : tensor<8xi32>\n%d = arith.ori %low, %one : tensor<8xi32>\n";
    EXPECT_EQ(roundTrip(onLanes("i32", divisor + "%result = arith." + op + " %a, %d : tensor<8xi32>\n", "i32"), kInts), "") << op;
  }
  for (const char *op : {"shli", "shrsi", "shrui"})
    EXPECT_EQ(roundTrip(onLanes("i32", std::string("%three = arith.constant dense<3> : tensor<8xi32>\n%result = arith.") + op + " %a, %three : tensor<8xi32>\n", "i32"), kInts), "") << op;
  EXPECT_EQ(roundTrip(onLanes("i32", "%result = tt.mulhiui %a, %b : tensor<8xi32>\n", "i32"), kInts), "");
  EXPECT_EQ(roundTrip(onLanes("i32", "%m = arith.constant dense<-1> : tensor<8xi32>\n%result = arith.divui %m, %m : tensor<8xi32>\n", "i32"), kInts), "");
}

TEST(TritonSource, ComparisonsKeepTheirSignsAndNans) {
  for (const char *p : {"eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"}) {
    EXPECT_EQ(roundTrip(onLanes("i32", std::string("%c = arith.cmpi ") + p + ", %a, %b : tensor<8xi32>\n%result = arith.extui %c : tensor<8xi1> to tensor<8xi32>\n", "i32"), kInts), "") << p;
    EXPECT_EQ(roundTrip(onLanes("i32", std::string("%u = arith.trunci %a : tensor<8xi32> to tensor<8xi1>\n%v = arith.trunci %b : tensor<8xi32> to tensor<8xi1>\n"
                                                   "%c = arith.cmpi ") + p + ", %u, %v : tensor<8xi1>\n%result = arith.extsi %c : tensor<8xi1> to tensor<8xi32>\n", "i32"), kInts), "") << p << " of bits";
  }
  for (const char *p : {"oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno"})
    EXPECT_EQ(roundTrip(onLanes("f32", std::string("%c = arith.cmpf ") + p + ", %a, %b : tensor<8xf32>\n%result = arith.extui %c : tensor<8xi1> to tensor<8xi8>\n", "i8"), kFloats), "") << p;
}

TEST(TritonSource, BitsAreArithmeticModuloTwo) {
  for (const char *op : {"addi", "subi", "muli", "andi", "ori", "xori", "minsi", "maxsi", "minui", "maxui"})
    EXPECT_EQ(roundTrip(onLanes("i32", std::string("%u = arith.trunci %a : tensor<8xi32> to tensor<8xi1>\n%v = arith.trunci %b : tensor<8xi32> to tensor<8xi1>\n%c = arith.") +
                                           op + " %u, %v : tensor<8xi1>\n%result = arith.extui %c : tensor<8xi1> to tensor<8xi32>\n", "i32"), kInts), "") << op;
}

TEST(TritonSource, Casts) {
  for (auto [body, out] : std::vector<std::pair<std::string, std::string>>{
           {"%result = arith.sitofp %a : tensor<8xi32> to tensor<8xf32>\n", "f32"},
           {"%result = arith.uitofp %a : tensor<8xi32> to tensor<8xf32>\n", "f32"},
           {"%result = arith.extui %a : tensor<8xi32> to tensor<8xi64>\n", "i64"},
           {"%result = arith.extsi %a : tensor<8xi32> to tensor<8xi64>\n", "i64"},
           {"%result = arith.trunci %a : tensor<8xi32> to tensor<8xi8>\n", "i8"},
           {"%c = arith.trunci %a : tensor<8xi32> to tensor<8xi1>\n%result = arith.sitofp %c : tensor<8xi1> to tensor<8xf32>\n", "f32"},
           {"%c = arith.trunci %a : tensor<8xi32> to tensor<8xi1>\n%result = arith.uitofp %c : tensor<8xi1> to tensor<8xf32>\n", "f32"},
           {"%result = tt.bitcast %a : tensor<8xi32> -> tensor<8xf32>\n", "f32"}})
    EXPECT_EQ(roundTrip(onLanes("i32", body, out), kInts), "") << body;
  const std::vector<uint8_t> reals = bytesOf<float>({0, 1, -1, 2.5F, 3.75F, 100, -128, 0.1F, 0, 0, 0, 0, 0, 0, 0, 0});
  for (auto [body, out] : std::vector<std::pair<std::string, std::string>>{
           {"%result = arith.fptosi %a : tensor<8xf32> to tensor<8xi32>\n", "i32"},
           {"%m = math.absf %a : tensor<8xf32>\n%result = arith.fptoui %m : tensor<8xf32> to tensor<8xi32>\n", "i32"},
           {"%result = arith.truncf %a : tensor<8xf32> to tensor<8xbf16>\n", "bf16"},
           {"%result = arith.extf %a : tensor<8xf32> to tensor<8xf64>\n", "f64"},
           {"%result = tt.fp_to_fp %a, rounding = rtne : tensor<8xf32> -> tensor<8xf8E5M2>\n", "f8E5M2"},
           {"%result = tt.fp_to_fp %a, rounding = rtz : tensor<8xf32> -> tensor<8xbf16>\n", "bf16"},
           {"%h = arith.truncf %a : tensor<8xf32> to tensor<8xf16>\n%result = tt.fp_to_fp %h : tensor<8xf16> -> tensor<8xbf16>\n", "bf16"},
           {"%h = arith.truncf %a : tensor<8xf32> to tensor<8xf16>\n%k = arith.truncf %b : tensor<8xf32> to tensor<8xf16>\n%result = arith.divf %h, %k : tensor<8xf16>\n", "f16"},
           {"%h = tt.fp_to_fp %a, rounding = rtne : tensor<8xf32> -> tensor<8xf8E4M3FN>\n%result = tt.fp_to_fp %h : tensor<8xf8E4M3FN> -> tensor<8xf32>\n", "f32"}})
    EXPECT_EQ(roundTrip(onLanes("f32", body, out), reals), "") << body;
}

TEST(TritonSource, FunctionsOfFloats) {
  for (const char *op : {"math.absf", "math.exp", "math.exp2", "math.log", "math.log2", "math.sin", "math.cos", "math.sqrt", "math.rsqrt", "math.erf", "math.floor", "math.ceil",
                         "math.tanh", "math.trunc", "math.roundeven", "math.round", "math.expm1", "math.log1p", "math.log10", "math.tan", "math.asin", "math.acos", "math.atan",
                         "math.sinh", "math.cosh", "math.asinh", "math.acosh", "math.atanh", "math.erfc", "math.cbrt", "arith.negf", "tt.precise_sqrt"})
    EXPECT_EQ(roundTrip(onLanes("f32", std::string("%result = ") + op + " %a : tensor<8xf32>\n", "f32"), kFloats), "") << op;
  for (const char *op : {"arith.divf", "arith.remf", "arith.minimumf", "arith.maximumf", "arith.minnumf", "arith.maxnumf", "math.copysign", "math.powf",
                         "tt.precise_divf", "tt.approx_divf"})
    EXPECT_EQ(roundTrip(onLanes("f32", std::string("%result = ") + op + " %a, %b : tensor<8xf32>\n", "f32"), kFloats), "") << op;
  for (const char *nan : {"none", "all"})
    EXPECT_EQ(roundTrip(onLanes("f32", std::string("%lo = arith.constant dense<-1.0> : tensor<8xf32>\n%result = tt.clampf %a, %lo, %b, propagateNan = ") + nan + " : tensor<8xf32>\n", "f32"), kFloats), "");
}

TEST(TritonSource, ShapesRegionsAndMemory) {
  for (const char *body : {
           "%result = tt.cat %x, %y : tensor<4xi32> -> tensor<8xi32>\n",
           "%j = tt.join %x, %y : tensor<4xi32> -> tensor<4x2xi32>\n%t = tt.trans %j {order = array<i32: 1, 0>} : tensor<4x2xi32> -> tensor<2x4xi32>\n"
           "%result = tt.reshape %t : tensor<2x4xi32> -> tensor<8xi32>\n",
           "%result = tt.gather %a[%i] {axis = 0 : i32} : (tensor<8xi32>, tensor<8xi32>) -> tensor<8xi32>\n",
           "%m = arith.constant dense<7> : tensor<8xi32>\n%v = arith.andi %a, %m : tensor<8xi32>\n%result = tt.histogram %v : tensor<8xi32> -> tensor<8xi32>\n",
           "%result = \"tt.scan\"(%a) <{axis = 0 : i32, reverse = true}> ({\n^bb0(%u: i32, %v: i32):\n%s = arith.addi %u, %v : i32\ntt.scan.return %s : i32\n}) : (tensor<8xi32>) -> tensor<8xi32>\n",
           "%r, %at = \"tt.reduce\"(%a, %i) <{axis = 0 : i32}> ({\n^bb0(%u: i32, %k: i32, %v: i32, %l: i32):\n%c = arith.cmpi slt, %u, %v : i32\n"
           "%s = arith.select %c, %u, %v : i32\n%t = arith.select %c, %k, %l : i32\ntt.reduce.return %s, %t : i32, i32\n}) : (tensor<8xi32>, tensor<8xi32>) -> (i32, i32)\n"
           "%w = arith.addi %r, %at : i32\n%result = tt.splat %w : i32 -> tensor<8xi32>\n",
           "%result = \"tt.map_elementwise\"(%a, %b) <{pack = 1 : i32}> ({\n^bb0(%u: i32, %v: i32):\n%c = arith.cmpi slt, %u, %v : i32\n"
           "%s = scf.if %c -> i32 {\nscf.yield %u : i32\n} else {\n%d = arith.subi %v, %u : i32\nscf.yield %d : i32\n}\ntt.map_elementwise.return %s : i32\n}) : (tensor<8xi32>, tensor<8xi32>) -> tensor<8xi32>\n",
           "%s0, %s1 = ttg.sort %a, %b {axis = 0 : i32} : tensor<8xi32>, tensor<8xi32>\n%result = arith.xori %s0, %s1 : tensor<8xi32>\n",
           "%true = arith.constant dense<true> : tensor<8xi1>\n%old = tt.atomic_rmw umax, relaxed, gpu, %pa, %b, %true : (tensor<8x!tt.ptr<i32>>, tensor<8xi32>, tensor<8xi1>) -> tensor<8xi32>\n"
           "%result = tt.atomic_cas acq_rel, gpu, %pa, %b, %i : (tensor<8x!tt.ptr<i32>>, tensor<8xi32>, tensor<8xi32>) -> tensor<8xi32>\n",
           "%a2 = tt.reshape %a : tensor<8xi32> -> tensor<2x4xi32>\n%b2 = tt.reshape %b : tensor<8xi32> -> tensor<4x2xi32>\n%zero = arith.constant dense<5> : tensor<2x2xi32>\n"
           "%d = tt.dot %a2, %b2, %zero : tensor<2x4xi32> * tensor<4x2xi32> -> tensor<2x2xi32>\n%f = tt.reshape %d : tensor<2x2xi32> -> tensor<4xi32>\n"
           "%result = tt.cat %f, %f : tensor<4xi32> -> tensor<8xi32>\n"}) {
    const std::string halves = "%aa = tt.reshape %a : tensor<8xi32> -> tensor<4x2xi32>\n%x, %y = tt.split %aa : tensor<4x2xi32> -> tensor<4xi32>\n";
    EXPECT_EQ(roundTrip(onLanes("i32", halves + body, "i32"), kInts), "") << body;
  }
}

TEST(TritonSource, LoopsCarryWhatTheySwap) {
  EXPECT_EQ(roundTrip(onLanes("i32", R"(
  %c0 = arith.constant 0 : i64
  %c5 = arith.constant 5 : i64
  %c1 = arith.constant 1 : i64
  %u, %v = scf.for %n = %c0 to %c5 step %c1 iter_args(%s = %a, %t = %b) -> (tensor<8xi32>, tensor<8xi32>) : i64 {
    %n32 = arith.trunci %n : i64 to i32
    %x = tt.splat %n32 : i32 -> tensor<8xi32>
    %y = arith.addi %s, %x : tensor<8xi32>
    scf.yield %t, %y : tensor<8xi32>, tensor<8xi32>
  }
  %result = arith.subi %u, %v : tensor<8xi32>
)", "i32"), kInts), "");
  EXPECT_EQ(roundTrip(onLanes("i32", R"(
  %c0 = arith.constant 0 : i32
  %c3 = arith.constant 3 : i32
  %c1 = arith.constant 1 : i32
  %n, %w = scf.while (%s = %c0, %t = %a) : (i32, tensor<8xi32>) -> (i32, tensor<8xi32>) {
    %more = arith.cmpi slt, %s, %c3 : i32
    %q = arith.addi %t, %i : tensor<8xi32>
    scf.condition(%more) %s, %q : i32, tensor<8xi32>
  } do {
  ^bb0(%s: i32, %t: tensor<8xi32>):
    %next = arith.addi %s, %c1 : i32
    scf.yield %next, %t : i32, tensor<8xi32>
  }
  %result = arith.addi %w, %eight : tensor<8xi32>
)", "i32"), kInts), "");
}

void refused(const std::string &text, Diag kind, const std::string &what) {
  Module m(text);
  ASSERT_TRUE(bool(m.module));
  Result<std::string> source = tileToTriton(*m.module, {}, "");
  ASSERT_FALSE(bool(source)) << *source;
  EXPECT_TRUE(source.error().diagnostics()[0].kind == kind) << source.error().str();
  EXPECT_NE(source.error().str().find(what), std::string::npos) << source.error().str();
  EXPECT_NE(source.error().str().find("kernel.ttir:"), std::string::npos) << source.error().str();
}

TEST(TritonSource, RefusesByName) {
  refused(onLanes("f32", "%result = tt.extern_elementwise %a {libname = \"\", libpath = \"\", pure = true, symbol = \"neso_digamma_f32\"} : (tensor<8xf32>) -> tensor<8xf32>\n", "f32"),
          diag::TritonNoForm, "the function 'neso_digamma_f32'");
  refused(onLanes("i32", "%result = arith.ceildivsi %a, %b : tensor<8xi32>\n", "i32"), diag::TritonNoForm, "the op arith.ceildivsi");
  refused("tt.func public @k(%p: !tt.ptr<i32>) {\n%c = arith.constant dense<1> : tensor<12xi32>\n%q = tt.splat %p : !tt.ptr<i32> -> tensor<12x!tt.ptr<i32>>\n"
          "tt.store %q, %c : tensor<12x!tt.ptr<i32>>\ntt.return\n}\n", diag::TritonShape, "dimension of 12");
}

} // namespace
