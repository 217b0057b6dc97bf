// Claim: functions of CUDA's library that look at bits, scale, or join integers mean on the CPU what CUDA's manual says. Expected values are those of
// the C library, or computed here in wider types; none has a tolerance but norms.
#include <bit>
#include <functional>
#include <cmath>
#include <gtest/gtest.h>

#include "backend/cpu/test/harness.h"

namespace neso::cpu::test {
namespace {

constexpr size_t kElements = 64;

template <class T> const char *nameOf();
template <> const char *nameOf<float>() { return "f32"; }
template <> const char *nameOf<double>() { return "f64"; }
template <> const char *nameOf<int32_t>() { return "i32"; }

/// The function on every element, at each level that this machine has: symbol(x), (x, y) or (x, y, z).
template <class Result, class Function, class... In>
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
  const std::string r = nameOf<Result>();
  const std::string text = "module {\n  tt.func public @f(" + parameters + "%dst: !tt.ptr<" + r + ">) {\n    %lane = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>\n" + loads +
                           "    %r = tt.extern_elementwise " + arguments + " {libname = \"\", libpath = \"\", pure = true, symbol = \"" + symbol + "\"} : (" + types + ") -> tensor<64x" + r +
                           ">\n    %ds = tt.splat %dst : !tt.ptr<" + r + "> -> tensor<64x!tt.ptr<" + r + ">>\n    %da = tt.addptr %ds, %lane : tensor<64x!tt.ptr<" + r +
                           ">>, tensor<64xi32>\n    tt.store %da, %r : tensor<64x!tt.ptr<" + r + ">>\n    tt.return\n  }\n}\n";
  for (CpuLevel level : runnableLevels()) {
    Kernel k(text, level);
    ASSERT_TRUE(k.ok()) << symbol << ": " << k.error;
    std::vector<Result> out(kElements);
    k.run({pointer(const_cast<In *>(in.data()))..., pointer(out.data())}, 1);
    for (size_t i = 0; i < kElements; ++i) {
      const Result want = expected(in[i]...);
      if (want == out[i] || (want != want && out[i] != out[i])) continue;
      ASSERT_LE(std::abs(static_cast<double>(out[i]) - static_cast<double>(want)), tolerance * std::abs(static_cast<double>(want))) << symbol << " of element " << i;
    }
  }
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

} // namespace
} // namespace neso::cpu::test
