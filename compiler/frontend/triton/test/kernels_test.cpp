// Claim: kernels compiled from source compute, in the tile interpreter, what Triton's own interpreter computes. The cases and their
// expected buffers are made by tools/make_kernel_goldens.py. Tolerances are relative to max(1, |expected|) and stand in each case.
#include "frontend/triton/triton.h"
#include "ir/tile/interp.h"

#include "llvm/ADT/APFloat.h"

#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

using namespace neso;
using namespace neso::triton;

namespace {

const std::string kFolder = std::string(NESO_SOURCE_DIR) + "/tests/goldens/kernels/";

uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

std::vector<std::string> split(const std::string &text, char sep) {
  std::vector<std::string> out;
  std::stringstream in(text);
  for (std::string item; std::getline(in, item, sep);)
    if (!item.empty() || sep == '|') out.push_back(item);
  return out;
}

struct Buffer {
  std::string type;
  int64_t size = 0; // bytes of an element
  std::vector<uint8_t> bytes;
  int64_t count() const { return static_cast<int64_t>(bytes.size()) / size; }
  double at(const uint8_t *data, int64_t i) const {
    const uint8_t *p = data + i * size;
    auto as = [&](auto v) {
      std::memcpy(&v, p, sizeof v);
      return static_cast<double>(v);
    };
    if (type == "f32") return as(float());
    if (type == "f64") return as(double());
    if (type == "i8") return as(int8_t());
    if (type == "i1") return as(uint8_t());
    if (type == "i16") return as(int16_t());
    if (type == "i32") return as(int32_t());
    if (type == "i64") return as(int64_t());
    uint16_t h;
    std::memcpy(&h, p, 2);
    return llvm::APFloat(type == "f16" ? llvm::APFloat::IEEEhalf() : llvm::APFloat::BFloat(), llvm::APInt(16, h)).convertToDouble();
  }
};

int64_t sizeOf(const std::string &t) { return t == "i1" || t == "i8" ? 1 : t == "f64" || t == "i64" ? 8 : t == "f32" || t == "i32" ? 4 : 2; }

Buffer makeBuffer(std::string spec, uint64_t seed) {
  Buffer b;
  bool zero = spec.rfind("out_", 0) == 0;
  if (zero) spec = spec.substr(4);
  size_t open = spec.find('['), close = spec.find(']');
  b.type = spec.substr(0, open);
  b.size = sizeOf(b.type);
  int64_t count = std::stoll(spec.substr(open + 1, close - open - 1));
  double lo = -1, hi = 1;
  if (close + 1 < spec.size()) {
    std::vector<std::string> range = split(spec.substr(close + 2), ',');
    lo = std::stod(range[0]);
    hi = std::stod(range[1]);
  }
  b.bytes.resize(static_cast<size_t>(count * b.size));
  for (int64_t i = 0; i < count && !zero; ++i) {
    uint64_t bits = mix(seed * 1000003 + static_cast<uint64_t>(i));
    uint8_t *p = b.bytes.data() + i * b.size;
    if (b.type[0] == 'i') {
      int64_t v = static_cast<int64_t>(lo) + static_cast<int64_t>(bits % static_cast<uint64_t>(hi - lo));
      std::memcpy(p, &v, static_cast<size_t>(b.size));
      continue;
    }
    double v = static_cast<double>(bits >> 40) / 16777216.0 * (hi - lo) + lo;
    float f = static_cast<float>(v);
    if (b.type == "f64") std::memcpy(p, &v, 8);
    else if (b.type == "f32") std::memcpy(p, &f, 4);
    else {
      llvm::APFloat half(f);
      bool lost;
      half.convert(b.type == "f16" ? llvm::APFloat::IEEEhalf() : llvm::APFloat::BFloat(), llvm::APFloat::rmNearestTiesToEven, &lost);
      uint16_t h = static_cast<uint16_t>(half.bitcastToAPInt().getZExtValue());
      std::memcpy(p, &h, 2);
    }
  }
  return b;
}

struct Case {
  std::string name, file, kernel, signature;
  std::vector<NamedText> constexprs;
  std::array<int64_t, 3> grid;
  std::vector<std::string> args;
  double tolerance;
};

std::vector<Case> readCases() {
  std::vector<Case> out;
  std::ifstream in(kFolder + "cases.txt");
  for (std::string line; std::getline(in, line);) {
    std::vector<std::string> f = split(line, '|');
    Case c{f[0], f[1], f[2], f[3], {}, {1, 1, 1}, split(f[6], ' '), std::stod(f[7])};
    for (const std::string &k : split(f[4], ' ')) c.constexprs.emplace_back(k.substr(0, k.find('=')), k.substr(k.find('=') + 1));
    std::vector<std::string> g = split(f[5], ' ');
    for (size_t i = 0; i < 3; ++i) c.grid[i] = std::stoll(g[i]);
    out.push_back(std::move(c));
  }
  return out;
}

TEST(Kernels, ComputeWhatTritonComputes) {
  std::vector<Case> cases = readCases();
  ASSERT_GE(cases.size(), 100u);
  std::ifstream in(kFolder + "expected.bin", std::ios::binary);
  std::vector<uint8_t> expected((std::istreambuf_iterator<char>(in)), {});
  size_t at = 0, index = 0;
  for (const Case &c : cases) {
    SCOPED_TRACE(c.name);
    KernelRequest r;
    r.path = kFolder + c.file + ".py";
    r.function = c.kernel;
    r.signature = c.signature;
    r.constexprs = c.constexprs;
    std::unique_ptr<mlir::MLIRContext> context = makeTileContext();
    Result<CompiledKernel> k = compileKernel(r, *context);
    std::vector<Buffer> buffers;
    std::vector<InterpArg> args;
    // Absent pointers have no entry in `args`, but keep their place in the numbering of seeds.
    size_t place = 0;
    std::vector<std::string> absent;
    for (const NamedText &n : c.constexprs)
      if (n.second == "None") absent.push_back(n.first);
    buffers.reserve(c.args.size());
    for (const std::string &a : c.args) {
      if (k)
        while (place < k->params.size() && std::find(absent.begin(), absent.end(), k->params[place].name) != absent.end()) ++place;
      if (a.find('[') != std::string::npos) {
        buffers.push_back(makeBuffer(a, index * 16 + place));
        args.push_back(InterpArg::pointer(buffers.back().bytes.data(), static_cast<int64_t>(buffers.back().bytes.size())));
      } else if (a.find_first_of(".e") != std::string::npos) {
        args.push_back(InterpArg::real(std::stod(a)));
      } else {
        args.push_back(InterpArg::integer(std::stoll(a)));
      }
      ++place;
    }
    ++index;
    const uint8_t *want = expected.data() + at;
    for (const Buffer &b : buffers) at += b.bytes.size();
    ASSERT_LE(at, expected.size());
    if (!k) {
      ADD_FAILURE() << k.error().str();
      continue;
    }
    tt::FuncOp func = *k->module->getOps<tt::FuncOp>().begin();
    Status s = interpretTile(func, args, c.grid);
    if (!s) {
      ADD_FAILURE() << s.error().str();
      continue;
    }
    for (size_t n = 0; n < buffers.size(); ++n) {
      const Buffer &b = buffers[n];
      double worst = 0;
      int64_t where = -1;
      for (int64_t i = 0; i < b.count(); ++i) {
        double got = b.at(b.bytes.data(), i), exp = b.at(want, i);
        double error = std::isnan(got) && std::isnan(exp) ? 0 : std::fabs(got - exp) / std::max(1.0, std::fabs(exp));
        if (!(error <= worst)) {
          worst = error;
          where = i;
        }
      }
      double limit = b.type[0] == 'i' ? 0 : c.tolerance;
      EXPECT_LE(worst, limit) << "buffer " << n << " element " << where << ": " << b.at(b.bytes.data(), where) << " for " << b.at(want, where);
      want += b.bytes.size();
    }
  }
  EXPECT_EQ(at, expected.size());
}

/// The front end on its largest kernels, without the time of the first call (tables and dialects). The limit is ten times the target of
/// 20 ms, so that a loaded machine does not fail it.
TEST(Kernels, CompileQuickly) {
  KernelRequest r;
  r.path = kFolder + "memory.py";
  r.function = "attention";
  r.signature = "*fp32,*fp32,*fp32,*fp32,i32,fp32";
  r.constexprs = {{"BM", "64"}, {"BN", "64"}, {"D", "64"}, {"CAUSAL", "True"}};
  double best = 1e9;
  for (int round = 0; round < 5; ++round) {
    std::unique_ptr<mlir::MLIRContext> context = makeTileContext();
    std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
    ASSERT_TRUE(bool(compileKernel(r, *context)));
    best = std::min(best, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  RecordProperty("milliseconds", std::to_string(best));
  EXPECT_LT(best, 200);
}

TEST(Kernels, ListTellsWhatDecoratorsSay) {
  Result<std::vector<KernelInfo>> list = listKernels(kFolder + "decorated.py");
  ASSERT_TRUE(bool(list)) << list.error().str();
  const KernelInfo *k = nullptr;
  for (const KernelInfo &i : *list)
    if (i.name == "tuned") k = &i;
  ASSERT_TRUE(k);
  ASSERT_EQ(k->configs.size(), 2u);
  EXPECT_EQ(k->configs[1].kwargs, (std::vector<NamedText>{{"B", "64"}}));
  EXPECT_EQ(k->configs[1].numWarps, 8);
  EXPECT_EQ(k->configs[0].numStages, 2);
  EXPECT_EQ(k->key, std::vector<std::string>{"n"});
  EXPECT_EQ(k->restoreValue, std::vector<std::string>{"x"});
  EXPECT_EQ(k->heuristics, std::vector<std::string>{"EVEN"});
  EXPECT_TRUE(k->params[1].doNotSpecialize);
  EXPECT_TRUE(k->params[2].isConstexpr);
}

TEST(Kernels, ConfigAndHeuristicsGiveConstexprs) {
  KernelRequest r;
  r.path = kFolder + "decorated.py";
  r.function = "tuned";
  r.signature = "*fp32,i32";
  r.config = 1;
  r.values = {{"n", "128"}};
  std::unique_ptr<mlir::MLIRContext> context = makeTileContext();
  Result<CompiledKernel> k = compileKernel(r, *context);
  ASSERT_TRUE(bool(k)) << k.error().str();
  EXPECT_EQ(k->numWarps, 8);
  EXPECT_EQ(k->params[2].value, "64");
  EXPECT_EQ(k->params[3].value, "True");
  EXPECT_EQ(k->params[1].argCount, 1u);
  EXPECT_FALSE(k->params[1].divisibleBy16);
  r.values = {{"n", "100"}};
  std::unique_ptr<mlir::MLIRContext> again = makeTileContext();
  Result<CompiledKernel> uneven = compileKernel(r, *again);
  ASSERT_TRUE(bool(uneven));
  EXPECT_EQ(uneven->params[3].value, "False");
}

TEST(Kernels, SignaturesInEveryForm) {
  auto tryCompile = [&](const char *kernel, const char *signature, std::vector<NamedText> constexprs, std::vector<NamedText> hints = {}) {
    KernelRequest r;
    r.path = kFolder + "decorated.py";
    r.function = kernel;
    r.signature = signature;
    r.constexprs = std::move(constexprs);
    r.hints = std::move(hints);
    static std::vector<std::unique_ptr<mlir::MLIRContext>> contexts;
    contexts.push_back(makeTileContext());
    return compileKernel(r, *contexts.back());
  };
  for (const char *s : {"*fp32,i32,constexpr", "*fp32,i32", "x:*fp32,n:i32", "n:i32, x:*fp32", "*fp32:16, i32", "*fp32, i32, constexpr"}) {
    Result<CompiledKernel> k = tryCompile("plain", s, {{"B", "32"}});
    ASSERT_TRUE(bool(k)) << s << k.error().str();
    EXPECT_EQ(k->params.size(), 3u);
    EXPECT_TRUE(k->params[0].divisibleBy16);
    EXPECT_EQ(k->params[2].type, "constexpr");
  }
  Result<CompiledKernel> one = tryCompile("plain", "*fp32,i32", {{"B", "32"}}, {{"n", "equal_to_1"}, {"x", "none"}});
  ASSERT_TRUE(bool(one));
  EXPECT_EQ(one->params[1].value, "1");
  EXPECT_FALSE(one->params[0].divisibleBy16);
  Result<CompiledKernel> desc = tryCompile("descriptor", "tensordesc<fp16[8,16]>,*fp16", {});
  ASSERT_TRUE(bool(desc)) << desc.error().str();
  EXPECT_EQ(desc->params[0].argCount, 5u);
  EXPECT_EQ(desc->params[1].firstArg, 5u);
  Result<CompiledKernel> tuple = tryCompile("tuple_arg", "(*fp32,i32),i32", {});
  ASSERT_TRUE(bool(tuple)) << tuple.error().str();
  EXPECT_EQ(tuple->params[0].argCount, 2u);
  for (const char *v : {"none", "'gelu'", "relu", "tl.float16", "(1, 2)", "0.5", "-1", "true"})
    EXPECT_TRUE(bool(tryCompile("any_constexpr", "*fp32", {{"C", v}}))) << v;
}

TEST(Kernels, GridsAreEvaluated) {
  Result<std::vector<int64_t>> g = evaluateGrid("lambda meta: (triton.cdiv(n, meta['B']), 2)", {{"n", "100"}, {"B", "32"}});
  ASSERT_TRUE(bool(g)) << g.error().str();
  EXPECT_EQ(*g, (std::vector<int64_t>{4, 2, 1}));
  g = evaluateGrid("((n + 15)//16, 1, 1)", {{"n", "33"}});
  ASSERT_TRUE(bool(g));
  EXPECT_EQ(*g, (std::vector<int64_t>{3, 1, 1}));
  EXPECT_FALSE(bool(evaluateGrid("(n,", {{"n", "33"}})));
}

} // namespace
