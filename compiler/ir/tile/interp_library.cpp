// Device libraries' functions on one element. Real numbers of every type are doubles here; what depends on the type asks for it.
#include <bit>
#include <cmath>

#include "base/special.h"
#include "ir/tile/interp_impl.h"
#include "ir/tile/library.h"
#include "ir/tile/softfloat.h"

namespace neso::tile {

using namespace directed;
using mlir::Type;

namespace {

using Unary = double (*)(double);
using Binary = double (*)(double, double);

/// Functions that are no more than what their name says. Null: unknown.
Unary unaryNamed(llvm::StringRef name) {
  static const llvm::StringMap<Unary> table = {{"exp", std::exp},
                                               {"exp2", std::exp2},
                                               {"exp10", [](double x) { return std::pow(10.0, x); }},
                                               {"expm1", std::expm1},
                                               {"log", std::log},
                                               {"log2", std::log2},
                                               {"log10", std::log10},
                                               {"log1p", std::log1p},
                                               {"cbrt", std::cbrt},
                                               {"sin", std::sin},
                                               {"cos", std::cos},
                                               {"tan", std::tan},
                                               {"asin", std::asin},
                                               {"acos", std::acos},
                                               {"atan", std::atan},
                                               {"sinh", std::sinh},
                                               {"cosh", std::cosh},
                                               {"tanh", std::tanh},
                                               {"asinh", std::asinh},
                                               {"acosh", std::acosh},
                                               {"atanh", std::atanh},
                                               {"erf", std::erf},
                                               {"erfc", std::erfc},
                                               {"erfinv", special::erfinv},
                                               {"erfcx", special::erfcx},
                                               {"normcdf", [](double x) { return 0.5 * std::erfc(-x * M_SQRT1_2); }},
                                               {"normcdfinv", special::ndtri},
                                               {"tgamma", std::tgamma},
                                               {"lgamma", special::logGamma},
                                               {"digamma", special::digamma},
                                               {"cyl_bessel_i0", special::besselI0},
                                               {"cyl_bessel_i1", special::besselI1},
                                               {"j0", ::j0},
                                               {"j1", ::j1},
                                               {"y0", ::y0},
                                               {"y1", ::y1}};
  auto it = table.find(name);
  return it == table.end() ? nullptr : it->second;
}

Binary binaryNamed(llvm::StringRef name) {
  static const llvm::StringMap<Binary> table = {
      {"pow", std::pow},
      {"atan2", std::atan2},
      {"fmod", std::fmod},
      {"remainder", std::remainder},
      {"hypot", std::hypot},
      {"nextafter", [](double a, double b) { return std::nextafter(a, b); }},
      {"nextafterf", [](double a, double b) { return double(std::nextafterf(float(a), float(b))); }}};
  auto it = table.find(name);
  return it == table.end() ? nullptr : it->second;
}

template <class F> auto named(F find, llvm::StringRef name) {
  auto function = find(name);
  return function || !name.ends_with("f") ? function : find(name.drop_back());
}

int64_t converted(double x, Rounding to, unsigned width, bool isSigned, bool fromDouble) {
  // As NVIDIA's GPUs convert: to the nearest that there is, NaN to zero or, with 64 bits on either side, to the highest bit alone.
  if (std::isnan(x)) return width == 64 || fromDouble ? wrap(static_cast<int64_t>(uint64_t(1) << (width - 1)), width) : 0;
  const double whole = to == Rounding::Nearest ? std::nearbyint(x) : to == Rounding::Down ? std::floor(x) : to == Rounding::Up ? std::ceil(x) : std::trunc(x);
  const double end = std::ldexp(1.0, static_cast<int>(isSigned ? width - 1 : width)), begin = isSigned ? -end : 0;
  if (whole < begin) return isSigned ? wrap(static_cast<int64_t>(uint64_t(1) << (width - 1)), width) : 0;
  if (whole >= end) return isSigned ? static_cast<int64_t>((uint64_t(1) << (width - 1)) - 1) : wrap(-1, width);
  return wrap(isSigned ? static_cast<int64_t>(whole) : static_cast<int64_t>(static_cast<uint64_t>(whole)), width);
}

double sineOfHalfTurns(double x, double shift) {
  const double r = x - 2 * std::nearbyint(x / 2);
  return shift == 0 ? std::sin(M_PI * r) : std::cos(M_PI * r);
}

} // namespace

bool LibraryFunction::find(llvm::StringRef symbol, llvm::ArrayRef<Type> types, Type result) {
  const auto width = [](Type t) { return t.isIntOrFloat() ? t.getIntOrFloatBitWidth() : 64; };
  bits_ = width(types[0]), resultBits_ = width(result), count_ = types.size();
  real_ = mlir::dyn_cast<mlir::FloatType>(result);
  fromReal_ = mlir::isa<mlir::FloatType>(types[0]);
  const llvm::StringRef name = libraryName(symbol);
  if (real_ && fromReal_ && count_ == 1 && (unary_ = named(unaryNamed, name))) return true;
  if (real_ && fromReal_ && count_ == 2 && mlir::isa<mlir::FloatType>(types[1]) && (binary_ = named(binaryNamed, name))) return true;
  std::optional<LibraryCall> call = libraryCall(symbol);
  if (!call) return false;
  fn_ = call->fn, rounding_ = call->rounding;
  return true;
}

Slot LibraryFunction::operator()(llvm::ArrayRef<Slot> in) const {
  const double x = in[0].f, y = count_ > 1 ? in[1].f : 0, z = count_ > 2 ? in[2].f : 0;
  if (unary_) return number(unary_(x));
  if (binary_) return number(binary_(x, y));
  return fromReal_ ? ofReals(x, y, z, in) : ofIntegers(in);
}

Slot LibraryFunction::number(double v) const { return slotOf(roundTo(real_, v)); }

Slot LibraryFunction::ofReals(double x, double y, double z, llvm::ArrayRef<Slot> in) const {
  const Rounding to = rounding_.value_or(Rounding::Nearest);
  const bool isFloat = bits_ == 32;
  const auto f = [](double v) { return static_cast<float>(v); };
  switch (fn_) {
  case LibraryFn::Abs: return number(std::fabs(x));
  case LibraryFn::Floor: return number(std::floor(x));
  case LibraryFn::Ceil: return number(std::ceil(x));
  case LibraryFn::Trunc: return number(std::trunc(x));
  case LibraryFn::Even: return number(std::nearbyint(x));
  case LibraryFn::Round: return number(std::round(x));
  case LibraryFn::Least: return number(std::isnan(x) ? y : std::isnan(y) ? x : x < y || (x == y && std::signbit(x)) ? x : y);
  case LibraryFn::Most: return number(std::isnan(x) ? y : std::isnan(y) ? x : x > y || (x == y && std::signbit(y)) ? x : y);
  case LibraryFn::CopySign: return number(std::copysign(x, y));
  case LibraryFn::Above: return number(std::fdim(x, y));
  case LibraryFn::Saturate: return number(std::isnan(x) || x < 0 ? 0.0 : x > 1 ? 1.0 : x);
  case LibraryFn::Sigmoid: return number(1 / (1 + std::exp(-x)));
  case LibraryFn::SinPi: return number(sineOfHalfTurns(x, 0));
  case LibraryFn::CosPi: return number(sineOfHalfTurns(x, 0.5));
  case LibraryFn::InverseCubeRoot: return number(1 / std::cbrt(x));
  case LibraryFn::InverseLength: return number(1 / std::hypot(x, y));
  case LibraryFn::Norm:
  case LibraryFn::InverseNorm: {
    // 80-bit numbers have room for all squares. A side without end makes the length so, whatever the others are.
    long double squares = 0;
    bool endless = false;
    for (size_t i = 0; i < count_; ++i) squares += static_cast<long double>(in[i].f) * in[i].f, endless |= std::isinf(in[i].f);
    const long double length = endless ? std::numeric_limits<long double>::infinity() : std::sqrt(squares);
    return number(static_cast<double>(fn_ == LibraryFn::Norm ? length : 1 / length));
  }
  case LibraryFn::Logb: return number(std::logb(x));
  case LibraryFn::InverseErfc: return number(special::erfcinv(x));
  case LibraryFn::HighInverse: return number(highInverse(x));
  case LibraryFn::Add: return number(isFloat ? add(f(x), f(y), to) : add(x, y, to));
  case LibraryFn::Subtract: return number(isFloat ? add(f(x), -f(y), to) : add(x, -y, to));
  case LibraryFn::Multiply: return number(isFloat ? multiply(f(x), f(y), to) : multiply(x, y, to));
  case LibraryFn::Divide: return number(isFloat ? divide(f(x), f(y), to) : divide(x, y, to));
  case LibraryFn::Inverse: return number(isFloat ? divide(1.0f, f(x), to) : divide(1.0, x, to));
  case LibraryFn::SquareRoot: return number(isFloat ? squareRoot(f(x), to) : squareRoot(x, to));
  case LibraryFn::InverseRoot: return number(isFloat && rounding_ ? inverseRoot(f(x)) : 1 / std::sqrt(x));
  case LibraryFn::MultiplyAdd: return number(isFloat ? multiplyAdd(f(x), f(y), f(z), to) : multiplyAdd(x, y, z, to));
  case LibraryFn::DoubleToFloat: return number(toFloat(x, to));
  case LibraryFn::Scale: return number(std::ldexp(x, static_cast<int>(in[1].i)));
  case LibraryFn::Power: return number(std::pow(x, static_cast<double>(in[1].i)));
  case LibraryFn::ToSigned: return slotOf(converted(x, rounding_.value_or(Rounding::Zero), resultBits_, true, !isFloat));
  case LibraryFn::ToUnsigned: return slotOf(converted(x, rounding_.value_or(Rounding::Zero), resultBits_, false, !isFloat));
  case LibraryFn::EvenInteger: return slotOf(converted(x, Rounding::Nearest, resultBits_, true, !isFloat));
  case LibraryFn::RoundedInteger: return slotOf(converted(std::round(x), Rounding::Nearest, resultBits_, true, !isFloat));
  case LibraryFn::IsNan: return slotOf(int64_t(std::isnan(x)));
  case LibraryFn::IsInfinite: return slotOf(int64_t(std::isinf(x)));
  case LibraryFn::IsFinite: return slotOf(int64_t(std::isfinite(x)));
  case LibraryFn::SignBit: return slotOf(int64_t(std::signbit(x)));
  case LibraryFn::Exponent: return slotOf(int64_t(x == 0 || std::isnan(x) ? INT32_MIN : std::isinf(x) ? INT32_MAX : std::ilogb(x)));
  case LibraryFn::Bits: return slotOf(isFloat ? int64_t(std::bit_cast<int32_t>(f(x))) : std::bit_cast<int64_t>(x));
  case LibraryFn::HighHalf: return slotOf(std::bit_cast<int64_t>(x) >> 32);
  case LibraryFn::LowHalf: return slotOf(wrap(std::bit_cast<int64_t>(x), 32));
  default: return slotOf(int64_t(0));
  }
}

Slot LibraryFunction::ofIntegers(llvm::ArrayRef<Slot> in) const {
  const Rounding to = rounding_.value_or(Rounding::Nearest);
  const unsigned w = bits_;
  const int64_t a = in[0].i, b = count_ > 1 ? in[1].i : 0, c = count_ > 2 ? in[2].i : 0;
  const uint64_t ua = asUnsigned(a, w), ub = asUnsigned(b, w);
  // Exact: both halves of the widest product fit.
  using Wide = __int128;
  using UnsignedWide = unsigned __int128;
  const auto integer = [&](Wide v) { return slotOf(wrap(static_cast<int64_t>(static_cast<UnsignedWide>(v)), resultBits_)); };
  switch (fn_) {
  case LibraryFn::FromSigned: return number(resultBits_ == 32 ? fromInteger<float>(a, to) : fromInteger<double>(a, to));
  case LibraryFn::FromUnsigned: return number(resultBits_ == 32 ? fromInteger<float>(ua, to) : fromInteger<double>(ua, to));
  case LibraryFn::FromHalves: return number(std::bit_cast<double>(ua << 32 | ub));
  case LibraryFn::Bits: return number(w == 32 ? std::bit_cast<float>(static_cast<int32_t>(a)) : std::bit_cast<double>(a));
  case LibraryFn::BesselJ: return number(a < 0 ? std::nan("") : ::jn(static_cast<int>(a), in[1].f));
  case LibraryFn::BesselY: return number(a < 0 || in[1].f < 0 ? std::nan("") : ::yn(static_cast<int>(a), in[1].f));
  case LibraryFn::AbsInteger: return integer(a < 0 ? -Wide(a) : Wide(a));
  case LibraryFn::Min: return integer(std::min(a, b));
  case LibraryFn::Max: return integer(std::max(a, b));
  case LibraryFn::UnsignedMin: return integer(std::min(ua, ub));
  case LibraryFn::UnsignedMax: return integer(std::max(ua, ub));
  case LibraryFn::CountOnes: return integer(std::popcount(ua));
  case LibraryFn::CountLeadingZeros: return integer(std::countl_zero(ua) - (64 - static_cast<int>(w)));
  case LibraryFn::FirstOne: return integer(ua ? std::countr_zero(ua) + 1 : 0);
  case LibraryFn::Reverse: {
    uint64_t r = 0;
    for (unsigned k = 0; k < w; ++k) r |= (ua >> k & 1) << (w - 1 - k);
    return integer(r);
  }
  case LibraryFn::BytePermute: {
    uint64_t r = 0;
    for (unsigned k = 0; k < 4; ++k) r |= ((ub << 32 | ua) >> (static_cast<uint64_t>(c) >> 4 * k & 7) * 8 & 0xff) << 8 * k;
    return integer(r);
  }
  case LibraryFn::Multiply24: return integer(Wide(wrap(a, 24)) * wrap(b, 24));
  case LibraryFn::UnsignedMultiply24: return integer(Wide(ua & 0xffffff) * (ub & 0xffffff));
  case LibraryFn::MultiplyHigh: return integer((Wide(a) * b) >> w);
  case LibraryFn::UnsignedMultiplyHigh: return integer(static_cast<Wide>((UnsignedWide(ua) * ub) >> w));
  case LibraryFn::Mean: return integer((Wide(a) + b) >> 1);
  case LibraryFn::UnsignedMean: return integer((Wide(ua) + ub) >> 1);
  case LibraryFn::MeanUp: return integer((Wide(a) + b + 1) >> 1);
  case LibraryFn::UnsignedMeanUp: return integer((Wide(ua) + ub + 1) >> 1);
  case LibraryFn::AddDistance: return integer((a > b ? Wide(a) - b : Wide(b) - a) + c);
  case LibraryFn::UnsignedAddDistance: return integer((ua > ub ? Wide(ua) - ub : Wide(ub) - ua) + c);
  default: return slotOf(int64_t(0));
  }
}

} // namespace neso::tile
