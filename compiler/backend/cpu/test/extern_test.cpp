// Claim: functions of CUDA's library that look at bits, scale, or join integers mean on the CPU what CUDA's manual says. Expected values are those of
// the C library, or computed here in wider types; none has a tolerance but norms.
#include <bit>
#include <cfenv>
#include <cmath>
#include <functional>
#include <gtest/gtest.h>

#include "backend/cpu/test/harness.h"
#include "ir/tile/interp.h"

namespace neso::cpu::test {
namespace {

constexpr size_t kElements = 64;

template <class T> const char *nameOf();
template <> const char *nameOf<float>() { return "f32"; }
template <> const char *nameOf<double>() { return "f64"; }
template <> const char *nameOf<int32_t>() { return "i32"; }
template <> const char *nameOf<int64_t>() { return "i64"; }

/// The function on every element, at each level that this machine has and in the interpreter: symbol(x), (x, y) or (x, y, z).
template <class Out, class Function, class... In>
void check(const std::string &symbol, const Function &expected, double tolerance, const std::vector<In> &...in) {
  std::string arguments, types, loads;
  int number = 0;
  std::string parameters;
  auto operand = [&](const char *type) {
    const std::string n = std::to_string(number++), t = type;
    parameters += "%p" + n + ": !tt.ptr<" + t + ">, ";
    loads += "    %s" + n + " = tt.splat %p" + n + " : !tt.ptr<" + t + "> -> tensor<64x!tt.ptr<" + t + ">>\n    %a" + n + " = tt.addptr %s" + n + ", %lane : tensor<64x!tt.ptr<" +
             t + ">>, tensor<64xi32>\n    %x" + n + " = tt.load %a" + n + " : tensor<64x!tt.ptr<" + t + ">>\n";
    arguments += (n == "0" ? "%x" : ", %x") + n;
    types += (n == "0" ? "tensor<64x" : ", tensor<64x") + t + ">";
  };
  (operand(nameOf<In>()), ...);
  const std::string r = nameOf<Out>();
  const std::string text = "module {\n  tt.func public @f(" + parameters + "%dst: !tt.ptr<" + r + ">) {\n    %lane = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>\n" + loads +
                           "    %r = tt.extern_elementwise " + arguments + " {libname = \"\", libpath = \"\", pure = true, symbol = \"" + symbol + "\"} : (" + types + ") -> tensor<64x" + r +
                           ">\n    %ds = tt.splat %dst : !tt.ptr<" + r + "> -> tensor<64x!tt.ptr<" + r + ">>\n    %da = tt.addptr %ds, %lane : tensor<64x!tt.ptr<" + r +
                           ">>, tensor<64xi32>\n    tt.store %da, %r : tensor<64x!tt.ptr<" + r + ">>\n    tt.return\n  }\n}\n";
  const size_t count = std::get<0>(std::tie(in...)).size();
  std::vector<Out> out(count);
  auto compare = [&](const char *engine) {
    for (size_t i = 0; i < count; ++i) {
      const Out want = expected(in[i]...);
      // Exact results have the sign of their zeros as well.
      if (want != want && out[i] != out[i]) continue;
      if (want == out[i] && (tolerance > 0 || !std::memcmp(&want, &out[i], sizeof(want)))) continue;
      std::string operands;
      ((operands += fmt::format("{:a} ", static_cast<double>(in[i]))), ...);
      ASSERT_TRUE(tolerance > 0 && std::abs(static_cast<double>(out[i]) - static_cast<double>(want)) <= tolerance * std::abs(static_cast<double>(want)))
          << symbol << " of element " << i << " " << engine << ": " << fmt::format("{} = {:a}, not {:a}", operands, static_cast<double>(out[i]), static_cast<double>(want));
    }
  };
  for (CpuLevel level : runnableLevels()) {
    Kernel k(text, level);
    ASSERT_TRUE(k.ok()) << symbol << ": " << k.error;
    for (size_t at = 0; at < count; at += kElements) k.run({pointer(const_cast<In *>(in.data() + at))..., pointer(out.data() + at)}, 1);
    compare("as machine code");
  }
  std::unique_ptr<mlir::MLIRContext> context = makeTileContext();
  neso::Result<mlir::OwningOpRef<mlir::ModuleOp>> module = parseTile(text, "extern.ttir", context.get());
  ASSERT_TRUE(module) << module.error().str();
  for (size_t at = 0; at < count; at += kElements) {
    const std::vector<InterpArg> memory = {InterpArg::pointer(const_cast<In *>(in.data() + at), kElements * sizeof(In))..., InterpArg::pointer(out.data() + at, kElements * sizeof(Out))};
    const Status ran = interpretTile(*(*module)->getOps<tt::FuncOp>().begin(), memory, {1, 1, 1});
    ASSERT_TRUE(ran) << symbol << ": " << ran.error().str();
  }
  compare("in the interpreter");
}

/// Numbers of every size, with the special ones in front.
template <class T> std::vector<T> numbersOf(uint64_t seed, int range) {
  std::vector<T> v = {0, T(-0.0), 1, -1, std::numeric_limits<T>::infinity(), -std::numeric_limits<T>::infinity(), std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::denorm_min(),
                      std::numeric_limits<T>::min(), -std::numeric_limits<T>::denorm_min() * 5, std::numeric_limits<T>::max(), T(0.75)};
  for (; v.size() < kElements; seed = seed * 6364136223846793005ull + 1442695040888963407ull)
    v.push_back(static_cast<T>(std::ldexp(static_cast<double>(static_cast<int64_t>(seed)) * 0x1p-63, static_cast<int>((seed >> 20) % static_cast<uint64_t>(2 * range)) - range)));
  return v;
}
std::vector<int32_t> integers(uint64_t seed, int32_t range = 0) {
  std::vector<int32_t> v = {0, 1, -1, INT32_MIN, INT32_MAX};
  for (; v.size() < kElements; seed = seed * 6364136223846793005ull + 1442695040888963407ull) v.push_back(static_cast<int32_t>(seed >> 32));
  if (range)
    for (size_t i = 5; i < v.size(); ++i) v[i] %= range;
  return v;
}

template <class T> std::vector<T> numbersUpTo(std::initializer_list<int> ranges) {
  std::vector<T> all;
  for (int range : ranges) {
    const std::vector<T> some = numbersOf<T>(static_cast<uint64_t>(range), range);
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

template <class T> void exponents(const std::string &suffix, int range) {
  const std::vector<T> x = numbersOf<T>(7, range);
  const auto ilogb = [](T v) { return v == 0 || v != v ? INT32_MIN : std::isinf(v) ? INT32_MAX : std::ilogb(v); };
  check<int32_t>("__nv_ilogb" + suffix, ilogb, 0, x);
  check<T>("__nv_logb" + suffix, [](T v) { return std::logb(v); }, 0, x);
  for (const int32_t most : {30, 200, 1200, 2300})
    for (const char *name : {"__nv_ldexp", "__nv_scalbn"}) check<T>(name + suffix, [](T v, int32_t n) { return std::ldexp(v, n); }, 0, x, integers(11, most));
}

TEST(Extern, Exponents) {
  exponents<float>("f", 150);
  exponents<double>("", 1070);
}

TEST(Extern, Norms) {
  const std::vector<float> x = numbersOf<float>(1, 120), y = numbersOf<float>(2, 120), z = numbersOf<float>(3, 120);
  const auto norm = [](auto a, auto b, auto c) {
    // A side without end makes the length so, whatever the others are.
    if (std::isinf(a) || std::isinf(b) || std::isinf(c)) return std::numeric_limits<long double>::infinity();
    return std::sqrt(static_cast<long double>(a) * a + static_cast<long double>(b) * b + static_cast<long double>(c) * c);
  };
  check<float>("__nv_norm3df", [&](float a, float b, float c) { return static_cast<float>(norm(a, b, c)); }, 2e-7, x, y, z);
  check<float>("__nv_rnorm3df", [&](float a, float b, float c) { return static_cast<float>(1 / norm(a, b, c)); }, 2e-7, x, y, z);
  const std::vector<double> u = numbersOf<double>(4, 1000), v = numbersOf<double>(5, 1000), w = numbersOf<double>(6, 1000);
  check<double>("__nv_norm3d", [&](double a, double b, double c) { return static_cast<double>(norm(a, b, c)); }, 1e-15, u, v, w);
}

TEST(Extern, Integers) {
  using U = uint32_t;
  const std::vector<int32_t> x = integers(1), y = integers(2), z = integers(3);
  using Two = std::function<int32_t(int32_t, int32_t)>;
  const std::pair<const char *, Two> functions[] = {
      {"hadd", [](int32_t a, int32_t b) { return static_cast<int32_t>((int64_t(a) + b) >> 1); }},
      {"rhadd", [](int32_t a, int32_t b) { return static_cast<int32_t>((int64_t(a) + b + 1) >> 1); }},
      {"uhadd", [](int32_t a, int32_t b) { return static_cast<int32_t>((uint64_t(U(a)) + U(b)) >> 1); }},
      {"urhadd", [](int32_t a, int32_t b) { return static_cast<int32_t>((uint64_t(U(a)) + U(b) + 1) >> 1); }},
      {"mulhi", [](int32_t a, int32_t b) { return static_cast<int32_t>((int64_t(a) * b) >> 32); }},
      {"umulhi", [](int32_t a, int32_t b) { return static_cast<int32_t>((uint64_t(U(a)) * U(b)) >> 32); }},
      {"mul24", [](int32_t a, int32_t b) { return static_cast<int32_t>(int64_t(int32_t(U(a) << 8) >> 8) * (int32_t(U(b) << 8) >> 8)); }},
      {"umul24", [](int32_t a, int32_t b) { return static_cast<int32_t>(uint64_t(U(a) & 0xffffff) * (U(b) & 0xffffff)); }}};
  for (const auto &[name, function] : functions) check<int32_t>("__nv_" + std::string(name), function, 0, x, y);
  check<int32_t>("__nv_sad", [](int32_t a, int32_t b, int32_t c) { return static_cast<int32_t>(U(std::abs(int64_t(a) - b)) + U(c)); }, 0, x, y, z);
  check<int32_t>("__nv_usad", [](int32_t a, int32_t b, int32_t c) { return static_cast<int32_t>(U(std::abs(int64_t(U(a)) - U(b))) + U(c)); }, 0, x, y, z);
  check<int32_t>("__nv_ffs", [](int32_t a) { return a == 0 ? 0 : std::countr_zero(U(a)) + 1; }, 0, x);
  check<double>("__nv_hiloint2double", [](int32_t high, int32_t low) { return std::bit_cast<double>(uint64_t(U(high)) << 32 | U(low)); }, 0, x, y);
  const std::vector<double> d = numbersOf<double>(9, 1000);
  check<int32_t>("__nv_double2hiint", [](double v) { return static_cast<int32_t>(std::bit_cast<uint64_t>(v) >> 32); }, 0, d);
  check<int32_t>("__nv_double2loint", [](double v) { return static_cast<int32_t>(std::bit_cast<uint64_t>(v)); }, 0, d);
}

// ---- Rounded in a direction: the C library's arithmetic under that rounding mode says what is right.

struct Direction {
  const char *suffix;
  int mode;
};
constexpr Direction kDirections[] = {{"_rn", FE_TONEAREST}, {"_rz", FE_TOWARDZERO}, {"_rd", FE_DOWNWARD}, {"_ru", FE_UPWARD}};

/// What `function` gives under the mode. Nothing may be computed before or behind the change of it.
template <class Function> auto under(int mode, Function function) {
  return [mode, function](auto... in) {
    std::tuple<decltype(in)...> held(in...);
    asm volatile("" : : "r"(&held) : "memory");
    std::fesetround(mode);
    auto result = std::apply(function, held);
    asm volatile("" : : "r"(&result) : "memory");
    std::fesetround(FE_TONEAREST);
    return result;
  };
}

template <class T> void directions(const std::string &letter, const std::string &fma, int range) {
  std::vector<T> x, y, z;
  for (int spread : {2, 30, range / 2, range})
    for (uint64_t k = 0; k < 12; ++k) {
      const uint64_t seed = k * 1013 + static_cast<uint64_t>(spread);
      std::vector<T> a = numbersOf<T>(seed + 1, spread), b = numbersOf<T>(seed + 2, spread), c = numbersOf<T>(seed + 3, spread);
      // Special values meet each other, and sums and products cancel or nearly do.
      std::rotate(b.begin(), b.begin() + static_cast<long>(k), b.begin() + 12);
      for (size_t i = 12; i < 20; ++i) b[i] = -std::nextafter(a[i], T(k % 2 ? 1e30 : 0)), c[i] = -a[i] * b[i];
      x.insert(x.end(), a.begin(), a.end()), y.insert(y.end(), b.begin(), b.end()), z.insert(z.end(), c.begin(), c.end());
    }
  for (const auto &[suffix, mode] : kDirections) {
    const std::string s = suffix;
    check<T>("__nv_" + letter + "add" + s, under(mode, [](T a, T b) { return a + b; }), 0, x, y);
    check<T>("__nv_" + letter + "sub" + s, under(mode, [](T a, T b) { return a - b; }), 0, x, y);
    check<T>("__nv_" + letter + "mul" + s, under(mode, [](T a, T b) { return a * b; }), 0, x, y);
    check<T>("__nv_" + letter + "div" + s, under(mode, [](T a, T b) { return a / b; }), 0, x, y);
    check<T>("__nv_" + letter + "rcp" + s, under(mode, [](T a) { return T(1) / a; }), 0, x);
    check<T>("__nv_" + letter + "sqrt" + s, under(mode, [](T a) { return std::sqrt(a); }), 0, x);
    check<T>("__nv_" + fma + s, under(mode, [](T a, T b, T c) { return std::fma(a, b, c); }), 0, x, y, z);
  }
}

TEST(Extern, ArithmeticInDirectionsOnFloats) { directions<float>("f", "fmaf", 140); }
TEST(Extern, ArithmeticInDirectionsOnDoubles) { directions<double>("d", "fma", 1060); }

TEST(Extern, ConversionsInDirections) {
  using U = uint32_t;
  std::vector<int32_t> i = integers(5), small = integers(6, 100000);
  std::vector<int64_t> l = {0, 1, -1, INT64_MIN, INT64_MAX, INT64_MAX - 512, INT64_MIN + 1, (int64_t(1) << 53) + 1, -(int64_t(1) << 53) - 1, (int64_t(1) << 24) + 1};
  for (uint64_t seed = 99; l.size() < kElements; seed = seed * 6364136223846793005ull + 1442695040888963407ull) l.push_back(static_cast<int64_t>(seed) >> (seed % 50));
  for (const auto &[suffix, mode] : kDirections) {
    const std::string s = suffix;
    check<float>("__nv_double2float" + s, under(mode, [](double x) { return static_cast<float>(x); }), 0, numbersUpTo<double>({3, 30, 140, 1000}));
    check<float>("__nv_int2float" + s, under(mode, [](int32_t n) { return static_cast<float>(n); }), 0, i);
    check<float>("__nv_int2float" + s, under(mode, [](int32_t n) { return static_cast<float>(n); }), 0, small);
    check<float>("__nv_uint2float" + s, under(mode, [](int32_t n) { return static_cast<float>(static_cast<int64_t>(U(n))); }), 0, i);
    check<float>("__nv_ll2float" + s, under(mode, [](int64_t n) { return static_cast<float>(n); }), 0, l);
    check<double>("__nv_ll2double" + s, under(mode, [](int64_t n) { return static_cast<double>(n); }), 0, l);
    // 80-bit numbers hold every integer of 64 bits.
    auto whole = [](int64_t n) { return static_cast<long double>(static_cast<int64_t>(static_cast<uint64_t>(n) >> 32)) * 0x1p32L + static_cast<long double>(n & 0xffffffff); };
    check<float>("__nv_ull2float" + s, under(mode, [&](int64_t n) { return static_cast<float>(whole(n)); }), 0, l);
    check<double>("__nv_ull2double" + s, under(mode, [&](int64_t n) { return static_cast<double>(whole(n)); }), 0, l);
  }
}

/// Floats to integers: what does not fit is the nearest that does, as CUDA has it; not a number is 0, or the highest bit alone where either
/// side has 64 bits.
template <class T, class Integer, class Stored> void toIntegers(const std::string &name) {
  for (const auto &[suffix, mode] : kDirections) {
    auto want = [mode = mode](T x) {
      if (x != x) return sizeof(T) == 8 || sizeof(Stored) == 8 ? std::numeric_limits<Stored>::min() : Stored(0);
      const T whole = under(mode, [](T v) { return std::nearbyint(v); })(x);
      if (whole < static_cast<T>(std::numeric_limits<Integer>::min())) return static_cast<Stored>(std::numeric_limits<Integer>::min());
      if (whole >= std::ldexp(T(1), std::numeric_limits<Integer>::digits)) return static_cast<Stored>(std::numeric_limits<Integer>::max());
      return static_cast<Stored>(static_cast<Integer>(whole));
    };
    check<Stored>("__nv_" + name + suffix, want, 0, numbersUpTo<T>({3, 31, 33, 62, 66}));
  }
}

TEST(Extern, FloatsToIntegers) {
  toIntegers<float, int32_t, int32_t>("float2int");
  toIntegers<float, uint32_t, int32_t>("float2uint");
  toIntegers<float, int64_t, int64_t>("float2ll");
  toIntegers<float, uint64_t, int64_t>("float2ull");
  toIntegers<double, int32_t, int32_t>("double2int");
  toIntegers<double, uint32_t, int32_t>("double2uint");
  toIntegers<double, int64_t, int64_t>("double2ll");
  toIntegers<double, uint64_t, int64_t>("double2ull");
}

TEST(Extern, InverseRootsRoundedOnce) {
  // 80-bit arithmetic is exact enough to be rounded once more.
  check<float>("__nv_frsqrt_rn", [](float v) { return static_cast<float>(1 / std::sqrt(static_cast<long double>(v))); }, 0,
               numbersUpTo<float>({1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 120, 140}));
}

TEST(Extern, BytesAndHighHalves) {
  using U = uint32_t;
  auto permuted = [](int32_t x, int32_t y, int32_t s) {
    uint8_t bytes[8];
    std::memcpy(bytes, &x, 4), std::memcpy(bytes + 4, &y, 4);
    U r = 0;
    for (int k = 0; k < 4; ++k) r |= U(bytes[U(s) >> 4 * k & 7]) << 8 * k;
    return static_cast<int32_t>(r);
  };
  check<int32_t>("__nv_byte_perm", permuted, 0, integers(1), integers(2), integers(3));
  EXPECT_EQ(permuted(0x33221100, 0x77665544, 0x7531), 0x77553311); // of CUDA's manual: bytes 1, 3, 5 and 7
  // 20 bits of mantissa; the lower half is nothing.
  const std::vector<double> d = numbersOf<double>(5, 1000);
  check<double>("__nv_rcp64h",
                [](double v) {
                  if (std::fabs(v) < 0x1p-1022) return std::copysign(std::numeric_limits<double>::infinity(), v);
                  const double r = 1 / v;
                  return std::fabs(r) < 0x1p-1022 ? std::copysign(0.0, v) : r;
                },
                0x1p-19, d);
}

/// jn, yn and the inverse of erfc, from mpmath 1.3 at 40 digits.
TEST(Extern, BesselFunctionsOfAnyOrderAndTheInverseOfErfc) {
  struct Value {
    int32_t n;
    double x, j, y;
  };
  constexpr Value kBessel[] = {
      {0, 0.25, 0x1.f807fc72aa864p-1, -0x1.dcf723b7d21f4p-1},
      {0, 1.0, 0x1.87c7fdbd7b8f0p-1, 0x1.6980226f358dfp-4},
      {0, 2.5, -0x1.8c5c2232cff3cp-5, 0x1.fe0628069e15dp-2},
      {0, 10.0, -0x1.f7ad2b89e1e54p-3, 0x1.c80ee65a05c59p-5},
      {0, 50.0, 0x1.c936ef41b2c50p-5, -0x1.91ac99c6d2688p-4},
      {0, 400.0, -0x1.3e0e4e9df38d0p-5, -0x1.2c990fe544fd9p-7},
      {1, 0.25, 0x1.fc02a9c749ee9p-4, -0x1.5a201ec26d052p+1},
      {1, 1.0, 0x1.c29c9ee970c6cp-2, -0x1.8ffb207d66b94p-1},
      {1, 2.5, 0x1.fd063c84795ffp-2, 0x1.2ad720f3af3a9p-3},
      {1, 10.0, 0x1.6420f4e200911p-5, 0x1.fdfbcc7958f3cp-3},
      {1, 50.0, -0x1.8f68900c5532ap-4, -0x1.d1452660e7e7dp-5},
      {1, 400.0, -0x1.2e303bad21537p-7, 0x1.3df652aa7bcc3p-5},
      {2, 0.25, 0x1.fd56aa4fb4243p-8, -0x1.4b3865a4ae742p+4},
      {2, 1.0, 0x1.d6a5095fa9be6p-4, -0x1.a69322a45a122p+0},
      {2, 2.5, 0x1.c8c3b4b054b1ap-2, -0x1.867ce7a524cb3p-2},
      {2, 10.0, 0x1.04bdcf1764297p-2, -0x1.8092162df4e11p-8},
      {2, 50.0, -0x1.e92ad1d20b816p-5, 0x1.885e6aedd802ap-4},
      {2, 400.0, 0x1.3dad9b57a7ab4p-5, 0x1.32f5074f14443p-7},
      {3, 0.25, 0x1.5400886a35a2fp-12, -0x1.48842567299a2p+8},
      {3, 1.0, 0x1.4086a7638f7a3p-6, -0x1.7493be94ad3b0p+2},
      {3, 2.5, 0x1.bb98fc5e82abbp-3, -0x1.8319b4c1093e0p-1},
      {3, 10.0, 0x1.de3e6e9c0cc06p-5, -0x1.016536602934ep-2},
      {3, 50.0, 0x1.7bd77d6a54bcdp-4, 0x1.080649d2d7275p-4},
      {3, 400.0, 0x1.3ae541e3d61cep-7, -0x1.3d31decec4112p-5},
      {5, 0.25, 0x1.105b39aaf0fadp-22, -0x1.ead6bda26623ep+17},
      {5, 1.0, 0x1.05e3d487e8376p-12, -0x1.0467e6e00c66cp+8},
      {5, 2.5, 0x1.3f83be8afa8f3p-6, -0x1.ea43350a8d845p+1},
      {5, 10.0, -0x1.df5ba68683325p-3, 0x1.154e316cd618dp-3},
      {5, 50.0, -0x1.4d6a589be3992p-4, -0x1.41bbfb4e8cba0p-4},
      {5, 400.0, -0x1.54371f381e36dp-7, 0x1.3b909ac9991a9p-5},
      {10, 0.25, 0x1.2779744eec572p-52, -0x1.c3fd05d02b4dep+46},
      {10, 1.0, 0x1.213d3baa4f296p-32, -0x1.cfef9791d60b3p+26},
      {10, 2.5, 0x1.2a99161bcc46ep-19, -0x1.cdf6c81f56564p+13},
      {10, 10.0, 0x1.a8ee79d2eacb0p-3, -0x1.70731f01100eep-2},
      {10, 50.0, -0x1.d2521f4d1212cp-4, 0x1.771f0f33dcb3cp-8},
      {10, 400.0, 0x1.324092858f595p-5, 0x1.c8f20ea923877p-7},
      {20, 1.0, 0x1.df8435d9133aap-82, -0x1.16c60243be144p+75},
      {20, 2.5, 0x1.31356d87c198ap-55, -0x1.b8e6d6a11b8a2p+48},
      {20, 10.0, 0x1.825316b9c7673p-17, -0x1.8f5ef75ebb914p+10},
      {20, 50.0, -0x1.de05622673ae4p-4, 0x1.0d6567c44deecp-6},
      {20, 400.0, -0x1.e671655a139f2p-6, -0x1.b530fa4ce70b1p-6},
  };
  std::vector<int32_t> n(kElements);
  std::vector<double> x(kElements), j(kElements), y(kElements);
  std::vector<float> xf(kElements);
  for (size_t i = 0; i < kElements; ++i) {
    const Value &v = kBessel[i % std::size(kBessel)];
    n[i] = v.n, x[i] = v.x, j[i] = v.j, y[i] = v.y, xf[i] = static_cast<float>(v.x);
  }
  auto from = [&](const std::vector<double> &values) {
    return [&](int32_t order, auto at) {
      for (size_t i = 0; i < kElements; ++i)
        if (n[i] == order && x[i] == at) return static_cast<decltype(at)>(values[i]);
      return decltype(at)(0);
    };
  };
  check<double>("__nv_jn", from(j), 1e-11, n, x);
  check<double>("__nv_yn", from(y), 1e-11, n, x);
  check<float>("__nv_jnf", from(j), 2e-7, n, xf);
  check<float>("__nv_ynf", from(y), 2e-7, n, xf);

  constexpr std::pair<double, double> kErfcinv[] = {
      {0x1.0000000000000p-2, 0x1.a07890f6b2ba1p-1},
      {0x1.0000000000000p-1, 0x1.e861fbb24c00ap-2},
      {0x1.0000000000000p+0, 0x0.0p+0},
      {0x1.8000000000000p+0, -0x1.e861fbb24c00ap-2},
      {0x1.c000000000000p+0, -0x1.a07890f6b2ba1p-1},
      {0x1.0000000000000p-3, 0x1.15b49a7c38e2fp+0},
      {0x1.0000000000000p-7, 0x1.e1860db82947bp+0},
      {0x1.0000000000000p-20, 0x1.bb95ab2ef976fp+1},
      {0x1.0000000000000p-60, 0x1.908cf901fe9c2p+2},
      {0x1.0000000000000p-100, 0x1.0537b25df5fccp+3},
      {0x1.fe00000000000p+0, -0x1.e1860db82947bp+0},
      {0x1.fffff00000000p+0, -0x1.bb95ab2ef976fp+1},
      {0x1.8000000000000p-1, 0x1.cd70681d5ff70p-3},
      {0x1.4000000000000p+0, -0x1.cd70681d5ff70p-3},
      {0x1.ff80000000000p-1, 0x1.c5bf9087f724cp-11},
  };
  std::vector<double> p(kElements);
  std::vector<float> pf(kElements);
  for (size_t i = 0; i < kElements; ++i) p[i] = kErfcinv[i % std::size(kErfcinv)].first, pf[i] = static_cast<float>(p[i]);
  auto inverse = [&](auto at) {
    for (const auto &[in, out] : kErfcinv)
      if (static_cast<decltype(at)>(in) == at) return static_cast<decltype(at)>(out);
    return decltype(at)(0);
  };
  check<double>("__nv_erfcinv", inverse, 1e-13, p);
  check<float>("__nv_erfcinvf", inverse, 2e-6, pf);
}

TEST(Extern, NormsOfFour) {
  const std::vector<float> x = numbersOf<float>(1, 120), y = numbersOf<float>(2, 120), z = numbersOf<float>(3, 120), w = numbersOf<float>(4, 120);
  auto norm = [](float a, float b, float c, float d) {
    for (float v : {a, b, c, d})
      if (std::isinf(v)) return std::numeric_limits<long double>::infinity();
    long double s = 0;
    for (float v : {a, b, c, d}) s += static_cast<long double>(v) * v;
    return std::sqrt(s);
  };
  check<float>("__nv_norm4df", [&](float a, float b, float c, float d) { return static_cast<float>(norm(a, b, c, d)); }, 2e-7, x, y, z, w);
  check<float>("__nv_rnorm4df", [&](float a, float b, float c, float d) { return static_cast<float>(1 / norm(a, b, c, d)); }, 2e-7, x, y, z, w);
}

} // namespace
} // namespace neso::cpu::test
