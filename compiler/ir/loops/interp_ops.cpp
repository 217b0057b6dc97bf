// Scalar ops, casts, loads and stores on lanes.
#include <bit>
#include <cmath>
#include <cstring>

#include "base/special.h"
#include "ir/loops/lanes.h"

namespace neso::loops {
namespace {

template <typename T> T *cells(Register &r) {
  if constexpr (std::is_same_v<T, float>)
    return r.f;
  else if constexpr (std::is_same_v<T, double>)
    return r.d;
  else
    return r.i;
}
template <typename T> const T *cells(const Register &r) { return cells<T>(const_cast<Register &>(r)); }

uint64_t u64(int64_t v) { return static_cast<uint64_t>(v); }
int64_t s64(uint64_t v) { return static_cast<int64_t>(v); }

template <typename T, typename F> void map1(const Register &a, Register &out, int n, F f) {
  const T *x = cells<T>(a);
  T *o = cells<T>(out);
  for (int l = 0; l < n; ++l) o[l] = f(x[l]);
}
template <typename T, typename F> void map2(const Register &a, const Register &b, Register &out, int n, F f) {
  const T *x = cells<T>(a), *y = cells<T>(b);
  T *o = cells<T>(out);
  for (int l = 0; l < n; ++l) o[l] = f(x[l], y[l]);
}
template <typename T, typename F> void test1(const Register &a, Register &out, int n, F f) {
  const T *x = cells<T>(a);
  for (int l = 0; l < n; ++l) out.i[l] = f(x[l]);
}
template <typename T, typename F> void test2(const Register &a, const Register &b, Register &out, int n, F f) {
  const T *x = cells<T>(a), *y = cells<T>(b);
  for (int l = 0; l < n; ++l) out.i[l] = f(x[l], y[l]);
}
/// A function of doubles, rounded once to T.
template <typename T, typename F> void viaDouble(const Register &a, Register &out, int n, F f) {
  map1<T>(a, out, n, [&](T x) { return static_cast<T>(f(static_cast<double>(x))); });
}
template <typename T, typename F> void viaDouble2(const Register &a, const Register &b, Register &out, int n, F f) {
  map2<T>(a, b, out, n, [&](T x, T y) { return static_cast<T>(f(static_cast<double>(x), static_cast<double>(y))); });
}

double sigmoid(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }

template <typename T> T floorDivFloat(T a, T b) {
  if (b == 0) return a / b;
  T mod = std::fmod(a, b), div = (a - mod) / b;
  if (mod != 0 && (b < 0) != (mod < 0)) div -= 1;
  if (div == 0) return std::copysign(T(0), a / b);
  T whole = std::floor(div);
  return div - whole > T(0.5) ? whole + 1 : whole;
}
template <typename T> T modFloat(T a, T b) {
  T mod = std::fmod(a, b);
  return mod != 0 && (b < 0) != (mod < 0) ? mod + b : mod;
}

template <typename T>
bool evalFloat(const Op &op, const Register *pa, const Register *pb, const Register *pc, Register &out, int n) {
  const Register &a = *pa, &b = pb ? *pb : a;
  switch (op.kind) {
  case OpKind::Neg: map1<T>(a, out, n, [](T x) { return -x; }); return true;
  case OpKind::Abs: map1<T>(a, out, n, [](T x) { return std::fabs(x); }); return true;
  case OpKind::Sign: map1<T>(a, out, n, [](T x) { return static_cast<T>((x > 0) - (x < 0)); }); return true;
  case OpKind::Floor: map1<T>(a, out, n, [](T x) { return std::floor(x); }); return true;
  case OpKind::Ceil: map1<T>(a, out, n, [](T x) { return std::ceil(x); }); return true;
  case OpKind::Trunc: map1<T>(a, out, n, [](T x) { return std::trunc(x); }); return true;
  case OpKind::Round: map1<T>(a, out, n, [](T x) { return std::nearbyint(x); }); return true;
  case OpKind::Sqrt: map1<T>(a, out, n, [](T x) { return std::sqrt(x); }); return true;
  case OpKind::Relu: map1<T>(a, out, n, [](T x) { return x < 0 ? T(0) : x; }); return true;
  case OpKind::Reciprocal: map1<T>(a, out, n, [](T x) { return 1 / x; }); return true;
#define NESO_MATH(kind, expression)                                                                                    \
  case OpKind::kind: viaDouble<T>(a, out, n, [](double x) { return expression; }); return true;
    NESO_MATH(Rsqrt, 1 / std::sqrt(x))
    NESO_MATH(Exp, std::exp(x))
    NESO_MATH(Exp2, std::exp2(x))
    NESO_MATH(Expm1, std::expm1(x))
    NESO_MATH(Log, std::log(x))
    NESO_MATH(Log2, std::log2(x))
    NESO_MATH(Log10, std::log10(x))
    NESO_MATH(Log1p, std::log1p(x))
    NESO_MATH(Sin, std::sin(x))
    NESO_MATH(Cos, std::cos(x))
    NESO_MATH(Tan, std::tan(x))
    NESO_MATH(Asin, std::asin(x))
    NESO_MATH(Acos, std::acos(x))
    NESO_MATH(Atan, std::atan(x))
    NESO_MATH(Sinh, std::sinh(x))
    NESO_MATH(Cosh, std::cosh(x))
    NESO_MATH(Tanh, std::tanh(x))
    NESO_MATH(Asinh, std::asinh(x))
    NESO_MATH(Acosh, std::acosh(x))
    NESO_MATH(Atanh, std::atanh(x))
    NESO_MATH(Erf, std::erf(x))
    NESO_MATH(Erfc, std::erfc(x))
    NESO_MATH(Erfinv, erfinv(x))
    NESO_MATH(Lgamma, special::logGamma(x))
    NESO_MATH(Digamma, digamma(x))
    NESO_MATH(I0, besselI0(x))
    NESO_MATH(I1, besselI1(x))
    NESO_MATH(I0e, besselI0e(x))
    NESO_MATH(I1e, besselI1e(x))
    NESO_MATH(NdtrI, ndtri(x))
    NESO_MATH(Sigmoid, sigmoid(x))
    NESO_MATH(BesselJ0, ::j0(x))
    NESO_MATH(BesselJ1, ::j1(x))
    NESO_MATH(BesselY0, ::y0(x))
    NESO_MATH(BesselY1, ::y1(x))
    NESO_MATH(K0, besselK0(x))
    NESO_MATH(K1, besselK1(x))
    NESO_MATH(K0e, besselK0e(x))
    NESO_MATH(K1e, besselK1e(x))
    NESO_MATH(AiryAi, airyAi(x))
    NESO_MATH(LogNdtr, logNdtr(x))
    NESO_MATH(Erfcx, erfcx(x))
#undef NESO_MATH
  case OpKind::IsNan: test1<T>(a, out, n, [](T x) { return std::isnan(x); }); return true;
  case OpKind::IsInf: test1<T>(a, out, n, [](T x) { return std::isinf(x); }); return true;
  case OpKind::SignBit: test1<T>(a, out, n, [](T x) { return std::signbit(x); }); return true;
  case OpKind::Not: test1<T>(a, out, n, [](T x) { return x == 0; }); return true;
  case OpKind::Add: map2<T>(a, b, out, n, [](T x, T y) { return x + y; }); return true;
  case OpKind::Sub: map2<T>(a, b, out, n, [](T x, T y) { return x - y; }); return true;
  case OpKind::Mul: map2<T>(a, b, out, n, [](T x, T y) { return x * y; }); return true;
  case OpKind::Div: map2<T>(a, b, out, n, [](T x, T y) { return x / y; }); return true;
  case OpKind::FloorDiv: map2<T>(a, b, out, n, floorDivFloat<T>); return true;
  case OpKind::Mod: map2<T>(a, b, out, n, modFloat<T>); return true;
  case OpKind::Fmod: map2<T>(a, b, out, n, [](T x, T y) { return std::fmod(x, y); }); return true;
  case OpKind::Min:
    map2<T>(a, b, out, n, [](T x, T y) { return std::isnan(x) || x < y ? x : std::isnan(y) || y < x ? y : x; });
    return true;
  case OpKind::Max:
    map2<T>(a, b, out, n, [](T x, T y) { return std::isnan(x) || x > y ? x : std::isnan(y) || y > x ? y : x; });
    return true;
  case OpKind::FmaxNum: map2<T>(a, b, out, n, [](T x, T y) { return std::fmax(x, y); }); return true;
  case OpKind::FminNum: map2<T>(a, b, out, n, [](T x, T y) { return std::fmin(x, y); }); return true;
  case OpKind::CopySign: map2<T>(a, b, out, n, [](T x, T y) { return std::copysign(x, y); }); return true;
  case OpKind::NextAfter: map2<T>(a, b, out, n, [](T x, T y) { return std::nextafter(x, y); }); return true;
  case OpKind::Pow: viaDouble2<T>(a, b, out, n, [](double x, double y) { return std::pow(x, y); }); return true;
  case OpKind::Atan2: viaDouble2<T>(a, b, out, n, [](double x, double y) { return std::atan2(x, y); }); return true;
  case OpKind::Hypot: viaDouble2<T>(a, b, out, n, [](double x, double y) { return std::hypot(x, y); }); return true;
  case OpKind::Zeta: viaDouble2<T>(a, b, out, n, hurwitzZeta); return true;
  case OpKind::Polygamma:
    viaDouble2<T>(a, b, out, n, [](double k, double x) { return polygamma(static_cast<int64_t>(k), x); });
    return true;
  case OpKind::Igamma: viaDouble2<T>(a, b, out, n, igamma); return true;
  case OpKind::Igammac: viaDouble2<T>(a, b, out, n, igammac); return true;
  case OpKind::ChebyshevT: map2<T>(a, b, out, n, chebyshevT<T>); return true;
  case OpKind::ChebyshevU: map2<T>(a, b, out, n, chebyshevU<T>); return true;
  case OpKind::ChebyshevV: map2<T>(a, b, out, n, chebyshevV<T>); return true;
  case OpKind::ChebyshevW: map2<T>(a, b, out, n, chebyshevW<T>); return true;
  case OpKind::HermiteH: map2<T>(a, b, out, n, hermiteH<T>); return true;
  case OpKind::HermiteHe: map2<T>(a, b, out, n, hermiteHe<T>); return true;
  case OpKind::Laguerre: map2<T>(a, b, out, n, laguerre<T>); return true;
  case OpKind::Legendre: map2<T>(a, b, out, n, legendre<T>); return true;
  case OpKind::Ldexp: viaDouble2<T>(a, b, out, n, [](double x, double y) { return x * std::exp2(y); }); return true;
  case OpKind::Eq: test2<T>(a, b, out, n, [](T x, T y) { return x == y; }); return true;
  case OpKind::Ne: test2<T>(a, b, out, n, [](T x, T y) { return x != y; }); return true;
  case OpKind::Lt: test2<T>(a, b, out, n, [](T x, T y) { return x < y; }); return true;
  case OpKind::Le: test2<T>(a, b, out, n, [](T x, T y) { return x <= y; }); return true;
  case OpKind::Gt: test2<T>(a, b, out, n, [](T x, T y) { return x > y; }); return true;
  case OpKind::Ge: test2<T>(a, b, out, n, [](T x, T y) { return x >= y; }); return true;
  case OpKind::And: test2<T>(a, b, out, n, [](T x, T y) { return x != 0 && y != 0; }); return true;
  case OpKind::Or: test2<T>(a, b, out, n, [](T x, T y) { return x != 0 || y != 0; }); return true;
  case OpKind::Fma: {
    const T *x = cells<T>(a), *y = cells<T>(b), *z = cells<T>(*pc);
    T *o = cells<T>(out);
    for (int l = 0; l < n; ++l) o[l] = std::fma(x[l], y[l], z[l]);
    return true;
  }
  default: return false;
  }
}

int64_t divTrunc(int64_t x, int64_t y) { return y == 0 ? 0 : y == -1 ? s64(0 - u64(x)) : x / y; }
int64_t divFloor(int64_t x, int64_t y) {
  int64_t q = divTrunc(x, y);
  return y != 0 && y != -1 && x % y != 0 && (x < 0) != (y < 0) ? q - 1 : q;
}
int64_t remTrunc(int64_t x, int64_t y) { return y == 0 || y == -1 ? 0 : x % y; }
int64_t remFloor(int64_t x, int64_t y) {
  int64_t r = remTrunc(x, y);
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
int64_t powInt(int64_t x, int64_t y) {
  if (y < 0) return x == 1 ? 1 : x == -1 ? (y % 2 ? -1 : 1) : 0;
  uint64_t out = 1, base = u64(x);
  for (; y > 0; y >>= 1, base *= base)
    if (y & 1) out *= base;
  return s64(out);
}

bool evalInt(const Op &op, DType in, const Register *pa, const Register *pb, const Register *pc, Register &out, int n) {
  const Register &a = *pa, &b = pb ? *pb : a;
  bool u = in == DType::U64;
  int bits = static_cast<int>(8 * itemSize(in));
  auto one = [&](auto f) {
    map1<int64_t>(a, out, n, f);
    return true;
  };
  auto two = [&](auto f) {
    map2<int64_t>(a, b, out, n, f);
    return true;
  };
  switch (op.kind) {
  case OpKind::Neg: return one([](int64_t x) { return s64(0 - u64(x)); });
  case OpKind::Abs: return one([u](int64_t x) { return x < 0 && !u ? s64(0 - u64(x)) : x; });
  case OpKind::Sign: return one([u](int64_t x) { return u ? int64_t{x != 0} : int64_t{x > 0} - int64_t{x < 0}; });
  case OpKind::Floor:
  case OpKind::Ceil:
  case OpKind::Trunc:
  case OpKind::Round: return one([](int64_t x) { return x; });
  case OpKind::Relu: return one([u](int64_t x) { return x < 0 && !u ? 0 : x; });
  case OpKind::Not: return one([](int64_t x) { return int64_t{x == 0}; });
  case OpKind::BitNot: return one([in](int64_t x) { return in == DType::Bool ? int64_t{x == 0} : ~x; });
  case OpKind::IsNan:
  case OpKind::IsInf: return one([](int64_t) { return int64_t{0}; });
  case OpKind::SignBit: return one([u](int64_t x) { return int64_t{x < 0 && !u}; });
  case OpKind::Add:
    if (in == DType::Bool) return two([](int64_t x, int64_t y) { return x | y; });
    return two([](int64_t x, int64_t y) { return s64(u64(x) + u64(y)); });
  case OpKind::Sub: return two([](int64_t x, int64_t y) { return s64(u64(x) - u64(y)); });
  case OpKind::Mul: return two([](int64_t x, int64_t y) { return s64(u64(x) * u64(y)); });
  case OpKind::Div:
    return two([u](int64_t x, int64_t y) { return u ? (y ? s64(u64(x) / u64(y)) : 0) : divTrunc(x, y); });
  case OpKind::FloorDiv:
    return two([u](int64_t x, int64_t y) { return u ? (y ? s64(u64(x) / u64(y)) : 0) : divFloor(x, y); });
  case OpKind::Mod:
    return two([u](int64_t x, int64_t y) { return u ? (y ? s64(u64(x) % u64(y)) : 0) : remFloor(x, y); });
  case OpKind::Fmod:
    return two([u](int64_t x, int64_t y) { return u ? (y ? s64(u64(x) % u64(y)) : 0) : remTrunc(x, y); });
  case OpKind::Pow: return two(powInt);
  case OpKind::FminNum:
  case OpKind::Min: return two([u](int64_t x, int64_t y) { return (u ? u64(y) < u64(x) : y < x) ? y : x; });
  case OpKind::FmaxNum:
  case OpKind::Max: return two([u](int64_t x, int64_t y) { return (u ? u64(y) > u64(x) : y > x) ? y : x; });
  case OpKind::And: return two([](int64_t x, int64_t y) { return x & y; });
  case OpKind::Or: return two([](int64_t x, int64_t y) { return x | y; });
  case OpKind::Xor: return two([](int64_t x, int64_t y) { return x ^ y; });
  case OpKind::Shl: return two([bits](int64_t x, int64_t y) { return y < 0 || y >= bits ? 0 : s64(u64(x) << y); });
  case OpKind::Shr:
    return two([bits, u](int64_t x, int64_t y) {
      if (y < 0 || y >= bits) return x < 0 && !u ? int64_t{-1} : int64_t{0};
      return u ? s64(u64(x) >> y) : x >> y;
    });
  case OpKind::Eq: return two([](int64_t x, int64_t y) { return int64_t{x == y}; });
  case OpKind::Ne: return two([](int64_t x, int64_t y) { return int64_t{x != y}; });
  case OpKind::Lt: return two([u](int64_t x, int64_t y) { return int64_t{u ? u64(x) < u64(y) : x < y}; });
  case OpKind::Le: return two([u](int64_t x, int64_t y) { return int64_t{u ? u64(x) <= u64(y) : x <= y}; });
  case OpKind::Gt: return two([u](int64_t x, int64_t y) { return int64_t{u ? u64(x) > u64(y) : x > y}; });
  case OpKind::Ge: return two([u](int64_t x, int64_t y) { return int64_t{u ? u64(x) >= u64(y) : x >= y}; });
  case OpKind::Gcd: return two(gcdInt);
  case OpKind::Lcm:
    // Narrow integers are multiplied as C does it, in 32 bits.
    return two([in, u, bits](int64_t x, int64_t y) {
      int64_t g = gcdInt(x, y);
      if (g == 0) return int64_t{0};
      int64_t v = s64(u64(x / g) * u64(y));
      if (bits >= 32) v = wrapInt(in, v);
      return v < 0 && !u ? s64(0 - u64(v)) : v;
    });
  case OpKind::Fma:
    for (int l = 0; l < n; ++l)
      out.i[l] = in == DType::Bool ? (a.i[l] & b.i[l]) | pc->i[l] : s64(u64(a.i[l]) * u64(b.i[l]) + u64(pc->i[l]));
    return true;
  default: return false;
  }
}

template <typename T> T loadRaw(const uint8_t *p) {
  T v;
  std::memcpy(&v, p, sizeof(T));
  return v;
}
template <typename S, typename O, typename F>
void loadAs(const uint8_t *data, const int64_t *index, const int64_t *mask, O *out, int n, F convert) {
  for (int l = 0; l < n; ++l) {
    if (mask && !mask[l]) continue;
    out[l] = convert(loadRaw<S>(data + index[l] * static_cast<int64_t>(sizeof(S))));
  }
}

uint64_t packLane(DType t, const Register &v, int l) {
  if (t == DType::F32) return std::bit_cast<uint32_t>(v.f[l]);
  if (t == DType::F64) return std::bit_cast<uint64_t>(v.d[l]);
  if (isReducedFloat(t)) return encodeFloat(t, v.f[l]);
  return u64(v.i[l]);
}
template <typename T> T combine(StoreMode mode, T old, T v) {
  switch (mode) {
  case StoreMode::Set: return v;
  case StoreMode::AtomicAdd: return static_cast<T>(old + v);
  case StoreMode::AtomicMul: return static_cast<T>(old * v);
  case StoreMode::AtomicMin: return old != old || old < v ? old : v;
  case StoreMode::AtomicMax: return old != old || old > v ? old : v;
  }
  return v;
}

} // namespace

double laneDouble(const Register &r, DType t, int l) {
  switch (classOf(t)) {
  case LaneClass::Float: return static_cast<double>(r.f[l]);
  case LaneClass::Double: return r.d[l];
  case LaneClass::Int: return t == DType::U64 ? static_cast<double>(u64(r.i[l])) : static_cast<double>(r.i[l]);
  }
  return 0;
}
int64_t laneInt(const Register &r, DType t, int l) {
  return classOf(t) == LaneClass::Int ? r.i[l] : floatToInt(DType::I64, laneDouble(r, t, l));
}

void castLanes(DType from, DType to, const Register &a, Register &out, int n) {
  LaneClass target = classOf(to);
  for (int l = 0; l < n; ++l) {
    if (classOf(from) == LaneClass::Int) {
      int64_t v = a.i[l];
      if (target == LaneClass::Int)
        out.i[l] = to == DType::Bool ? int64_t{v != 0} : wrapInt(to, v);
      else if (target == LaneClass::Double)
        out.d[l] = from == DType::U64 ? static_cast<double>(u64(v)) : static_cast<double>(v);
      else
        out.f[l] = from == DType::U64 ? static_cast<float>(u64(v)) : static_cast<float>(v);
    } else {
      double v = classOf(from) == LaneClass::Float ? static_cast<double>(a.f[l]) : a.d[l];
      if (target == LaneClass::Int)
        out.i[l] = to == DType::Bool ? int64_t{v != 0} : floatToInt(to, v);
      else if (target == LaneClass::Double)
        out.d[l] = v;
      else
        out.f[l] = static_cast<float>(v);
    }
  }
  if (isReducedFloat(to) && from != to)
    for (int l = 0; l < n; ++l) out.f[l] = roundTo(to, out.f[l]);
}

void loadLanes(DType t, const uint8_t *data, const int64_t *index, const int64_t *mask, Register &out, int n) {
  auto widen = [](auto v) { return static_cast<int64_t>(v); };
  auto reduced = [t](auto v) { return decodeFloat(t, v); };
  if (t == DType::Bool) return loadAs<uint8_t>(data, index, mask, out.i, n, [](uint8_t v) { return int64_t{v != 0}; });
  const int64_t size = itemSize(t);
  if (isReducedFloat(t)) {
    if (size == 2) return loadAs<uint16_t>(data, index, mask, out.f, n, reduced);
    return loadAs<uint8_t>(data, index, mask, out.f, n, reduced);
  }
  if (isFloat(t)) {
    if (size == 4) return loadAs<float>(data, index, mask, out.f, n, [](float v) { return v; });
    return loadAs<double>(data, index, mask, out.d, n, [](double v) { return v; });
  }
  const bool isSigned = isSignedInt(t);
  switch (size) {
  case 1: return isSigned ? loadAs<int8_t>(data, index, mask, out.i, n, widen) : loadAs<uint8_t>(data, index, mask, out.i, n, widen);
  case 2: return isSigned ? loadAs<int16_t>(data, index, mask, out.i, n, widen) : loadAs<uint16_t>(data, index, mask, out.i, n, widen);
  case 4: return isSigned ? loadAs<int32_t>(data, index, mask, out.i, n, widen) : loadAs<uint32_t>(data, index, mask, out.i, n, widen);
  default: return loadAs<int64_t>(data, index, mask, out.i, n, widen);
  }
}

void storeLanes(DType t, StoreMode mode, uint8_t *data, const int64_t *index, const int64_t *mask,
                const Register &given, DType valueType, int n) {
  Register converted;
  const Register *value = &given;
  if (valueType != t) {
    castLanes(valueType, t, given, converted, n);
    value = &converted;
  }
  int64_t size = itemSize(t);
  if (mode == StoreMode::Set && t == DType::F32 && !mask) { // by far the most frequent store
    for (int l = 0; l < n; ++l) std::memcpy(data + index[l] * 4, &value->f[l], 4);
    return;
  }
  Register old, updated;
  for (int l = 0; l < n; ++l) {
    if (mask && !mask[l]) continue;
    uint8_t *p = data + index[l] * size;
    const Register *source = value;
    int lane = l;
    if (mode != StoreMode::Set) {
      loadLanes(t, data, index + l, nullptr, old, 1);
      if (classOf(t) == LaneClass::Float)
        updated.f[0] = roundTo(t, combine(mode, old.f[0], value->f[l]));
      else if (classOf(t) == LaneClass::Double)
        updated.d[0] = combine(mode, old.d[0], value->d[l]);
      else if (t == DType::U64)
        updated.i[0] = s64(combine(mode, u64(old.i[0]), u64(value->i[l])));
      else if (t == DType::Bool && mode == StoreMode::AtomicAdd)
        updated.i[0] = old.i[0] | value->i[l];
      else if (mode == StoreMode::AtomicAdd || mode == StoreMode::AtomicMul)
        updated.i[0] = s64(combine(mode, u64(old.i[0]), u64(value->i[l])));
      else
        updated.i[0] = combine(mode, old.i[0], value->i[l]);
      source = &updated;
      lane = 0;
    }
    uint64_t bits = packLane(t, *source, lane);
    std::memcpy(p, &bits, static_cast<size_t>(size)); // little-endian hosts only, as everywhere in the formats we read
  }
}

void evalOp(const Op &op, DType in, const Register *a, const Register *b, const Register *c, Register &out, int n) {
  switch (op.kind) {
  case OpKind::Cast: return castLanes(in, op.dtype, *a, out, n);
  case OpKind::Bitcast: {
    Register packed;
    int64_t index[kLanes];
    for (int l = 0; l < n; ++l) {
      packed.i[l] = s64(packLane(in, *a, l));
      index[l] = l * (8 / itemSize(op.dtype));
    }
    return loadLanes(op.dtype, reinterpret_cast<const uint8_t *>(packed.i), index, nullptr, out, n);
  }
  case OpKind::Where:
    for (int l = 0; l < n; ++l) {
      const Register &from = a->i[l] ? *b : *c;
      if (classOf(op.dtype) == LaneClass::Float)
        out.f[l] = from.f[l];
      else
        out.i[l] = from.i[l]; // double and int64 cells share their bytes
    }
    return;
  case OpKind::RandU32:
  case OpKind::RandUniform:
  case OpKind::RandNormal:
    for (int l = 0; l < n; ++l) {
      std::array<uint32_t, 4> w = philox(u64(a->i[l]), u64(b->i[l]));
      const size_t word = static_cast<size_t>(c->i[l]);
      if (op.kind == OpKind::RandU32)
        out.i[l] = w[word & 3];
      else
        out.f[l] =
            op.kind == OpKind::RandUniform ? uniformOf(w[word & 3]) : normalOf(w[2 * word & 3], w[(2 * word & 3) + 1]);
    }
    return;
  default: break;
  }
  bool known = classOf(in) == LaneClass::Float    ? evalFloat<float>(op, a, b, c, out, n)
               : classOf(in) == LaneClass::Double ? evalFloat<double>(op, a, b, c, out, n)
                                                  : evalInt(op, in, a, b, c, out, n);
  NESO_CHECK(known, "an op on a dtype that verify() refuses");
  if (isReducedFloat(op.dtype))
    for (int l = 0; l < n; ++l) out.f[l] = roundTo(op.dtype, out.f[l]);
  else if (classOf(op.dtype) == LaneClass::Int && itemSize(op.dtype) < 8)
    for (int l = 0; l < n; ++l) out.i[l] = wrapInt(op.dtype, out.i[l]);
}

} // namespace neso::loops
