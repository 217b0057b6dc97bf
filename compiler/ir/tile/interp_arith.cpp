// The interpreter on numbers: arith, math, and the element-by-element ops of tt. Operands of one element meet operands
// of many (region arguments that stand for many elements at once do, see executeCombine), so every op repeats its
// shorter operands.
#include <bit>
#include <cmath>

#include "base/diagnostics/tile.h"
#include "base/special.h"
#include "ir/tile/interp_impl.h"
#include "ir/tile/softfloat.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;

namespace neso::tile {
namespace {

unsigned widthOf(Type type) {
  if (IntegerType integer = dyn_cast<IntegerType>(type)) return integer.getWidth();
  return 64; // index, pointers
}

using Unary = double (*)(double);
using Binary = double (*)(double, double);

double minNum(double a, double b) {
  return std::isnan(a) ? b : std::isnan(b) ? a : a < b || (a == b && std::signbit(a)) ? a : b;
}
double maxNum(double a, double b) {
  return std::isnan(a) ? b : std::isnan(b) ? a : a > b || (a == b && std::signbit(b)) ? a : b;
}
double minKeep(double a, double b) { return std::isnan(a) ? a : std::isnan(b) ? b : minNum(a, b); }
double maxKeep(double a, double b) { return std::isnan(a) ? a : std::isnan(b) ? b : maxNum(a, b); }
double rsqrtOf(double x) { return 1.0 / std::sqrt(x); }
double roundEven(double x) { return std::nearbyint(x); }

Unary unaryOf(StringRef name) {
  static const llvm::StringMap<Unary> table = {
      {"math.absf", std::fabs},       {"math.ceil", std::ceil},
      {"math.floor", std::floor},     {"math.round", std::round},
      {"math.roundeven", roundEven},  {"math.trunc", std::trunc},
      {"math.sqrt", std::sqrt},       {"math.rsqrt", rsqrtOf},
      {"math.cbrt", std::cbrt},       {"math.exp", std::exp},
      {"math.exp2", std::exp2},       {"math.expm1", std::expm1},
      {"math.log", std::log},         {"math.log2", std::log2},
      {"math.log10", std::log10},     {"math.log1p", std::log1p},
      {"math.sin", std::sin},         {"math.cos", std::cos},
      {"math.tan", std::tan},         {"math.asin", std::asin},
      {"math.acos", std::acos},       {"math.atan", std::atan},
      {"math.sinh", std::sinh},       {"math.cosh", std::cosh},
      {"math.tanh", std::tanh},       {"math.asinh", std::asinh},
      {"math.acosh", std::acosh},     {"math.atanh", std::atanh},
      {"math.erf", std::erf},         {"math.erfc", std::erfc},
      {"tt.precise_sqrt", std::sqrt}, {"arith.negf", [](double x) { return -x; }}};
  auto it = table.find(name);
  return it == table.end() ? nullptr : it->second;
}

Binary binaryOf(StringRef name) {
  static const llvm::StringMap<Binary> table = {{"arith.addf", [](double a, double b) { return a + b; }},
                                                {"arith.subf", [](double a, double b) { return a - b; }},
                                                {"arith.mulf", [](double a, double b) { return a * b; }},
                                                {"arith.divf", [](double a, double b) { return a / b; }},
                                                {"tt.precise_divf", [](double a, double b) { return a / b; }},
                                                {"tt.approx_divf", [](double a, double b) { return a / b; }},
                                                {"arith.remf", std::fmod},
                                                {"arith.minnumf", minNum},
                                                {"arith.maxnumf", maxNum},
                                                {"arith.minimumf", minKeep},
                                                {"arith.maximumf", maxKeep},
                                                {"math.atan2", std::atan2},
                                                {"math.powf", std::pow},
                                                {"math.copysign", std::copysign}};
  auto it = table.find(name);
  return it == table.end() ? nullptr : it->second;
}

/// Functions of CUDA's device library by name, without "__nv_" and the f of single precision. Null if unknown.
Unary libraryUnary(StringRef name) {
  static const llvm::StringMap<Unary> table = {{"exp", std::exp},
                                               {"exp2", std::exp2},
                                               {"exp10", [](double x) { return std::pow(10.0, x); }},
                                               {"expm1", std::expm1},
                                               {"log", std::log},
                                               {"log2", std::log2},
                                               {"log10", std::log10},
                                               {"log1p", std::log1p},
                                               {"logb", std::logb},
                                               {"sqrt", std::sqrt},
                                               {"rsqrt", rsqrtOf},
                                               {"cbrt", std::cbrt},
                                               {"rcbrt", [](double x) { return 1.0 / std::cbrt(x); }},
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
                                               {"tgamma", std::tgamma},
                                               {"lgamma", [](double x) { return std::lgamma(x); }},
                                               {"fabs", std::fabs},
                                               {"floor", std::floor},
                                               {"ceil", std::ceil},
                                               {"trunc", std::trunc},
                                               {"rint", std::nearbyint},
                                               {"nearbyint", std::nearbyint},
                                               {"round", std::round},
                                               {"sinpi", [](double x) { return std::sin(M_PI * x); }},
                                               {"cospi", [](double x) { return std::cos(M_PI * x); }},
                                               {"j0", j0},
                                               {"j1", j1},
                                               {"y0", y0},
                                               {"y1", y1},
                                               {"erfcx", special::erfcx},
                                               {"fsqrt_rn", std::sqrt},
                                               {"frsqrt_rn", rsqrtOf},
                                               {"normcdf", [](double x) { return 0.5 * std::erfc(-x * M_SQRT1_2); }},
                                               {"frcp_rn", [](double x) { return 1.0 / x; }},
                                               {"saturate", [](double x) {
                                                  return std::isnan(x) || x < 0 ? 0.0 : x > 1 ? 1.0 : x;
                                                }}};
  auto it = table.find(name);
  return it == table.end() ? nullptr : it->second;
}
Binary libraryBinary(StringRef name) {
  static const llvm::StringMap<Binary> table = {
      {"pow", std::pow},
      {"atan2", std::atan2},
      {"fmod", std::fmod},
      {"remainder", std::remainder},
      {"hypot", std::hypot},
      {"copysign", std::copysign},
      {"nextafter", [](double a, double b) { return std::nextafter(a, b); }},
      {"nextafterf", [](double a, double b) { return double(std::nextafterf(float(a), float(b))); }},
      {"fdim", std::fdim},
      {"fmin", minNum},
      {"fmax", maxNum},
      {"fadd_rn", [](double a, double b) { return a + b; }},
      {"fsub_rn", [](double a, double b) { return a - b; }},
      {"fmul_rn", [](double a, double b) { return a * b; }},
      {"fdiv_rn", [](double a, double b) { return a / b; }},
      {"fdivide", [](double a, double b) { return a / b; }}};
  auto it = table.find(name);
  return it == table.end() ? nullptr : it->second;
}

bool compare(arith::CmpFPredicate p, double a, double b) {
  bool unordered = std::isnan(a) || std::isnan(b);
  switch (p) {
  case arith::CmpFPredicate::AlwaysFalse: return false;
  case arith::CmpFPredicate::OEQ: return a == b;
  case arith::CmpFPredicate::OGT: return a > b;
  case arith::CmpFPredicate::OGE: return a >= b;
  case arith::CmpFPredicate::OLT: return a < b;
  case arith::CmpFPredicate::OLE: return a <= b;
  case arith::CmpFPredicate::ONE: return !unordered && a != b;
  case arith::CmpFPredicate::ORD: return !unordered;
  case arith::CmpFPredicate::UEQ: return unordered || a == b;
  case arith::CmpFPredicate::UGT: return unordered || a > b;
  case arith::CmpFPredicate::UGE: return unordered || a >= b;
  case arith::CmpFPredicate::ULT: return unordered || a < b;
  case arith::CmpFPredicate::ULE: return unordered || a <= b;
  case arith::CmpFPredicate::UNE: return a != b;
  case arith::CmpFPredicate::UNO: return unordered;
  case arith::CmpFPredicate::AlwaysTrue: return true;
  }
  return false;
}

bool compare(arith::CmpIPredicate p, int64_t a, int64_t b, unsigned width) {
  int64_t sa = asSigned(a, width), sb = asSigned(b, width);
  uint64_t ua = asUnsigned(a, width), ub = asUnsigned(b, width);
  switch (p) {
  case arith::CmpIPredicate::eq: return a == b;
  case arith::CmpIPredicate::ne: return a != b;
  case arith::CmpIPredicate::slt: return sa < sb;
  case arith::CmpIPredicate::sle: return sa <= sb;
  case arith::CmpIPredicate::sgt: return sa > sb;
  case arith::CmpIPredicate::sge: return sa >= sb;
  case arith::CmpIPredicate::ult: return ua < ub;
  case arith::CmpIPredicate::ule: return ua <= ub;
  case arith::CmpIPredicate::ugt: return ua > ub;
  case arith::CmpIPredicate::uge: return ua >= ub;
  }
  return false;
}

/// Nearest integer inside the type's range; NaN is 0.
int64_t toInt(double v, unsigned width, bool isSigned) {
  if (std::isnan(v)) return 0;
  v = std::trunc(v);
  if (isSigned) {
    double top = std::ldexp(1.0, width - 1);
    if (v >= top) return width == 64 ? INT64_MAX : (int64_t(1) << (width - 1)) - 1;
    if (v < -top) return width == 64 ? INT64_MIN : -(int64_t(1) << (width - 1));
    return static_cast<int64_t>(v);
  }
  if (v < 0) return 0;
  if (v >= std::ldexp(1.0, width)) return -1;
  return static_cast<int64_t>(static_cast<uint64_t>(v));
}

/// Integer op by name on wrapped operands. `ok` false: division by zero. Returns nothing for an unknown name.
std::optional<int64_t> integerBinary(StringRef name, int64_t a, int64_t b, unsigned width, bool &ok) {
  int64_t sa = asSigned(a, width), sb = asSigned(b, width);
  uint64_t ua = asUnsigned(a, width), ub = asUnsigned(b, width);
  StringRef op = name.substr(6); // after "arith."
  if (op == "addi") return a + static_cast<uint64_t>(b);
  if (op == "subi") return a - static_cast<uint64_t>(b);
  if (op == "muli") return static_cast<uint64_t>(a) * static_cast<uint64_t>(b);
  if (op == "andi") return a & b;
  if (op == "ori") return a | b;
  if (op == "xori") return a ^ b;
  if (op == "shli") return ub >= width ? 0 : static_cast<int64_t>(ua << ub);
  if (op == "shrui") return ub >= width ? 0 : static_cast<int64_t>(ua >> ub);
  if (op == "shrsi") return sa >> (ub >= width ? 63 : ub);
  if (op == "minsi") return sa < sb ? a : b;
  if (op == "maxsi") return sa > sb ? a : b;
  if (op == "minui") return ua < ub ? a : b;
  if (op == "maxui") return ua > ub ? a : b;
  bool division = op == "divsi" || op == "divui" || op == "remsi" || op == "remui" || op == "ceildivsi" ||
                  op == "ceildivui" || op == "floordivsi";
  if (!division) return std::nullopt;
  if (b == 0) {
    ok = false;
    return 0;
  }
  if (op == "divui") return ua / ub;
  if (op == "remui") return ua % ub;
  if (op == "ceildivui") return ua / ub + (ua % ub != 0);
  if (sb == -1)
    return op == "remsi" ? 0 : static_cast<int64_t>(-static_cast<uint64_t>(sa)); // the smallest number wraps
  int64_t q = sa / sb, r = sa % sb;
  if (op == "divsi") return q;
  if (op == "remsi") return r;
  if (op == "ceildivsi") return q + (r != 0 && (r < 0) == (sb < 0));
  return q - (r != 0 && (r < 0) != (sb < 0));
}

} // namespace

bool Machine::executeElementwise(Operation *op, bool &known) {
  if (op->getNumOperands() == 0 || op->getNumResults() == 0 || op->getNumRegions() != 0) return true;
  StringRef name = op->getName().getStringRef();
  Type type = getElementTypeOrSelf(op->getResult(0).getType());
  Type from = getElementTypeOrSelf(op->getOperand(0).getType());
  FloatType real = dyn_cast<FloatType>(type), fromReal = dyn_cast<FloatType>(from);
  unsigned width = widthOf(type), fromWidth = widthOf(from);
  SmallVector<const Lanes *, 3> in;
  size_t n = 0;
  for (Value v : op->getOperands()) {
    in.push_back(&get(v));
    n = std::max<size_t>(n, in.back()->size());
  }
  auto at = [&](size_t operand, size_t i) { return in[operand]->size() == 1 ? (*in[operand])[0] : (*in[operand])[i]; };
  Lanes out(n);
  auto each = [&](auto f) {
    for (size_t i = 0; i < n; ++i) out[i] = f(i);
    known = true;
  };
  auto number = [&](double v) { return slotOf(roundTo(real, v)); };
  auto integer = [&](int64_t v) { return slotOf(wrap(v, width)); };

  if (Unary f = real ? unaryOf(name) : nullptr) {
    each([&](size_t i) { return number(f(at(0, i).f)); });
  } else if (Binary f = real ? binaryOf(name) : nullptr) {
    each([&](size_t i) { return number(f(at(0, i).f, at(1, i).f)); });
  } else if (name.starts_with("arith.") && isa<IntegerType, IndexType>(type) && in.size() == 2 &&
             op->getNumResults() == 1 && type == from && !isa<arith::CmpIOp>(op)) {
    bool ok = true, recognised = true;
    each([&](size_t i) {
      std::optional<int64_t> v = integerBinary(name, at(0, i).i, at(1, i).i, width, ok);
      recognised &= v.has_value();
      return integer(v.value_or(0));
    });
    known = recognised;
    if (!ok) return fault(diag::TileDivisionByZero, op, programName());
  } else if (arith::CmpIOp cmp = dyn_cast<arith::CmpIOp>(op)) {
    each([&](size_t i) { return slotOf(int64_t(compare(cmp.getPredicate(), at(0, i).i, at(1, i).i, fromWidth))); });
  } else if (arith::CmpFOp cmp = dyn_cast<arith::CmpFOp>(op)) {
    each([&](size_t i) { return slotOf(int64_t(compare(cmp.getPredicate(), at(0, i).f, at(1, i).f))); });
  } else if (isa<arith::SelectOp>(op)) {
    each([&](size_t i) { return at(0, i).i ? at(1, i) : at(2, i); });
  } else if (isa<arith::ExtSIOp, arith::IndexCastOp>(op)) {
    each([&](size_t i) { return integer(asSigned(at(0, i).i, fromWidth)); });
  } else if (isa<arith::ExtUIOp, arith::IndexCastUIOp>(op)) {
    each([&](size_t i) { return integer(static_cast<int64_t>(asUnsigned(at(0, i).i, fromWidth))); });
  } else if (isa<arith::TruncIOp>(op)) {
    each([&](size_t i) { return integer(at(0, i).i); });
  } else if (isa<arith::SIToFPOp>(op)) {
    each([&](size_t i) {
      int64_t v = asSigned(at(0, i).i, fromWidth);
      return real.isF32() ? slotOf(double(static_cast<float>(v))) : number(static_cast<double>(v));
    });
  } else if (isa<arith::UIToFPOp>(op)) {
    each([&](size_t i) {
      uint64_t v = asUnsigned(at(0, i).i, fromWidth);
      return real.isF32() ? slotOf(double(static_cast<float>(v))) : number(static_cast<double>(v));
    });
  } else if (isa<arith::FPToSIOp, arith::FPToUIOp>(op)) {
    each([&](size_t i) { return integer(toInt(at(0, i).f, width, isa<arith::FPToSIOp>(op))); });
  } else if (arith::TruncFOp cast = dyn_cast<arith::TruncFOp>(op)) {
    bool zero = cast.getRoundingmode() == arith::RoundingMode::toward_zero;
    each([&](size_t i) { return slotOf(roundTo(real, at(0, i).f, zero)); });
  } else if (isa<arith::ExtFOp>(op)) {
    each([&](size_t i) { return at(0, i); });
  } else if (tt::FpToFpOp cast = dyn_cast<tt::FpToFpOp>(op)) {
    bool zero = cast.getRounding() == tt::RoundingMode::RTZ;
    each([&](size_t i) { return slotOf(saturateTo(real, at(0, i).f, zero)); });
  } else if (isa<arith::BitcastOp, tt::BitcastOp>(op)) {
    each([&](size_t i) {
      uint64_t bits = fromReal ? encode(fromReal, at(0, i).f) : static_cast<uint64_t>(at(0, i).i);
      return real ? slotOf(decode(real, asUnsigned(static_cast<int64_t>(bits), real.getWidth())))
                  : integer(static_cast<int64_t>(bits));
    });
  } else if (tt::ClampFOp clamp = dyn_cast<tt::ClampFOp>(op)) {
    bool keep = clamp.getPropagateNan() == tt::PropagateNan::ALL;
    each([&](size_t i) {
      double x = at(0, i).f, lo = at(1, i).f, hi = at(2, i).f;
      return keep ? slotOf(minKeep(maxKeep(x, lo), hi)) : slotOf(minNum(maxNum(x, lo), hi));
    });
  } else if (isa<math::FmaOp>(op)) {
    each([&](size_t i) {
      double a = at(0, i).f, b = at(1, i).f, c = at(2, i).f;
      // One rounding: f32 by the single-precision instruction, since a double sum would round twice.
      return real.isF32() ? slotOf(double(std::fmaf(float(a), float(b), float(c)))) : number(std::fma(a, b, c));
    });
  } else if (isa<math::FPowIOp>(op)) {
    each([&](size_t i) { return number(std::pow(at(0, i).f, static_cast<double>(at(1, i).i))); });
  } else if (isa<math::AbsIOp>(op)) {
    each([&](size_t i) {
      return integer(at(0, i).i < 0 ? static_cast<int64_t>(-static_cast<uint64_t>(at(0, i).i)) : at(0, i).i);
    });
  } else if (isa<math::CountLeadingZerosOp>(op)) {
    each([&](size_t i) { return integer(std::countl_zero(asUnsigned(at(0, i).i, width)) - (64 - int64_t(width))); });
  } else if (isa<math::CountTrailingZerosOp>(op)) {
    each([&](size_t i) { return integer(std::min<int64_t>(width, std::countr_zero(asUnsigned(at(0, i).i, width)))); });
  } else if (isa<math::CtPopOp>(op)) {
    each([&](size_t i) { return integer(std::popcount(asUnsigned(at(0, i).i, width))); });
  } else if (isa<math::IsNaNOp>(op)) {
    each([&](size_t i) { return slotOf(int64_t(std::isnan(at(0, i).f))); });
  } else if (isa<math::IsInfOp>(op)) {
    each([&](size_t i) { return slotOf(int64_t(std::isinf(at(0, i).f))); });
  } else if (isa<math::IsFiniteOp>(op)) {
    each([&](size_t i) { return slotOf(int64_t(std::isfinite(at(0, i).f))); });
  } else if (isa<tt::MulhiUIOp>(op)) {
    each([&](size_t i) {
      unsigned __int128 p =
          static_cast<unsigned __int128>(asUnsigned(at(0, i).i, width)) * asUnsigned(at(1, i).i, width);
      return integer(static_cast<int64_t>(static_cast<uint64_t>(p >> width)));
    });
  } else if (isa<arith::MulUIExtendedOp, arith::MulSIExtendedOp>(op)) {
    Lanes high(n);
    bool isSigned = isa<arith::MulSIExtendedOp>(op);
    each([&](size_t i) {
      __int128 p = isSigned ? static_cast<__int128>(asSigned(at(0, i).i, width)) * asSigned(at(1, i).i, width)
                            : static_cast<__int128>(static_cast<unsigned __int128>(asUnsigned(at(0, i).i, width)) *
                                                    asUnsigned(at(1, i).i, width));
      high[i] = integer(static_cast<int64_t>(p >> width));
      return integer(static_cast<int64_t>(p));
    });
    set(op->getResult(1), std::move(high));
  } else if (isa<arith::AddUIExtendedOp>(op)) {
    Lanes carry(n);
    each([&](size_t i) {
      int64_t sum =
          wrap(static_cast<int64_t>(static_cast<uint64_t>(at(0, i).i) + static_cast<uint64_t>(at(1, i).i)), width);
      carry[i] = slotOf(int64_t(asUnsigned(sum, width) < asUnsigned(at(0, i).i, width)));
      return slotOf(sum);
    });
    set(op->getResult(1), std::move(carry));
  } else if (tt::AddPtrOp add = dyn_cast<tt::AddPtrOp>(op)) {
    Type pointee = mlir::cast<tt::PointerType>(type).getPointeeType();
    int64_t bytes = pointee.isIntOrFloat() ? (pointee.getIntOrFloatBitWidth() + 7) / 8 : 8;
    unsigned offsetWidth = widthOf(getElementTypeOrSelf(add.getOffset().getType()));
    each([&](size_t i) { return slotOf(at(0, i).i + asSigned(at(1, i).i, offsetWidth) * bytes); });
  } else if (isa<tt::IntToPtrOp>(op)) {
    each([&](size_t i) { return slotOf(memory.fromHost(at(0, i).i)); });
  } else if (isa<tt::PtrToIntOp>(op)) {
    each([&](size_t i) { return at(0, i); });
  } else if (tt::ExternElementwiseOp ext = dyn_cast<tt::ExternElementwiseOp>(op)) {
    StringRef symbol = ext.getSymbol();
    symbol.consume_front("__nv_");
    symbol.consume_front("fast_");
    auto lookup = [&](auto table) {
      auto f = table(symbol);
      return f || !symbol.ends_with("f") ? f : table(symbol.drop_back());
    };
    Unary unary = in.size() == 1 && real ? lookup(libraryUnary) : nullptr;
    Binary binary = in.size() == 2 && real ? lookup(libraryBinary) : nullptr;
    if (unary) each([&](size_t i) { return number(unary(at(0, i).f)); });
    if (binary) each([&](size_t i) { return number(binary(at(0, i).f, at(1, i).f)); });
    if (in.size() == 3 && real && (symbol == "fma" || symbol == "fmaf"))
      each([&](size_t i) { return number(std::fma(at(0, i).f, at(1, i).f, at(2, i).f)); });
    if (symbol == "powi" || symbol == "powif")
      each([&](size_t i) { return number(std::pow(at(0, i).f, double(asSigned(at(1, i).i, 32)))); });
    if (symbol == "isnand" || symbol == "isnanf")
      each([&](size_t i) { return slotOf(int64_t(std::isnan(at(0, i).f))); });
    if (symbol == "isinfd" || symbol == "isinff")
      each([&](size_t i) { return slotOf(int64_t(std::isinf(at(0, i).f))); });
    if (symbol == "finitef" || symbol == "isfinited")
      each([&](size_t i) { return slotOf(int64_t(std::isfinite(at(0, i).f))); });
    if (symbol == "signbitf" || symbol == "signbitd")
      each([&](size_t i) { return slotOf(int64_t(std::signbit(at(0, i).f))); });
    if (!known) return fault(diag::TileInterpUnsupported, op, "library function " + ext.getSymbol().str());
  }
  if (known) set(op->getResult(0), std::move(out));
  return true;
}

} // namespace neso::tile
