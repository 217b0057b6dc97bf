// The interpreter on numbers: arith, math, and the element-by-element ops of tt. Operands of one element meet operands
// of many (region arguments that stand for many elements at once do, see executeCombine), so every op repeats its
// shorter operands.
#include <bit>
#include <cmath>

#include "base/diagnostics/tile.h"
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
                                                {"math.powf", std::pow},
                                                {"math.copysign", std::copysign}};
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

/// Nearest integer inside the type's range; NaN is 0. Narrow results come by way of 32 bits, as machine code for CPUs and Triton's interpreter
/// make them: what fits those is cut to the type's bits, and of what does not nothing is left.
int64_t toInt(double v, unsigned width, bool isSigned) {
  if (width > 1 && width < 32) return std::fabs(v) < 0x1p31 ? wrap(static_cast<int64_t>(v), width) : 0;
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

/// One operation on elements: what it takes, and what it gives, lane by lane.
class Elementwise {
public:
  Elementwise(Machine &machine, Operation *op)
      : machine_(machine), op_(op), name_(op->getName().getStringRef()), type_(getElementTypeOrSelf(op->getResult(0).getType())),
        from_(getElementTypeOrSelf(op->getOperand(0).getType())), real_(dyn_cast<FloatType>(type_)), fromReal_(dyn_cast<FloatType>(from_)),
        width_(widthOf(type_)), fromWidth_(widthOf(from_)) {
    for (Value v : op->getOperands()) {
      in_.push_back(&machine.get(v));
      lanes_ = std::max<size_t>(lanes_, in_.back()->size());
    }
    out_.resize(lanes_);
  }

  /// False: a fault. known: whether it is an operation on elements.
  bool run(bool &known) {
    known = byName() || compares() || converts() || floats() || integers() || pairs() || pointers();
    if (fault_) return false;
    if (tt::ExternElementwiseOp ext = dyn_cast<tt::ExternElementwiseOp>(op_)) {
      known = library(ext);
      if (!known) return machine_.fault(diag::TileInterpUnsupported, op_, "library function " + ext.getSymbol().str());
    }
    if (known) machine_.set(op_->getResult(0), std::move(out_));
    return true;
  }

private:
  Slot at(size_t operand, size_t i) const { return in_[operand]->size() == 1 ? (*in_[operand])[0] : (*in_[operand])[i]; }
  double f(size_t operand, size_t i) const { return at(operand, i).f; }
  int64_t n(size_t operand, size_t i) const { return at(operand, i).i; }
  uint64_t u(size_t operand, size_t i) const { return asUnsigned(n(operand, i), width_); }
  /// Each lane of the result by itself; true, for whoever gives it on.
  template <typename F> bool each(F lane) {
    for (size_t i = 0; i < lanes_; ++i) out_[i] = lane(i);
    return true;
  }
  Slot number(double v) const { return slotOf(roundTo(real_, v)); }
  Slot integer(int64_t v) const { return slotOf(wrap(v, width_)); }

  bool byName() {
    if (Unary unary = real_ ? unaryOf(name_) : nullptr) return each([&](size_t i) { return number(unary(f(0, i))); });
    if (Binary binary = real_ ? binaryOf(name_) : nullptr) return each([&](size_t i) { return number(binary(f(0, i), f(1, i))); });
    if (!name_.starts_with("arith.") || !isa<IntegerType, IndexType>(type_) || in_.size() != 2 || op_->getNumResults() != 1 ||
        type_ != from_ || isa<arith::CmpIOp>(op_))
      return false;
    bool ok = true, recognised = true;
    each([&](size_t i) {
      std::optional<int64_t> v = integerBinary(name_, n(0, i), n(1, i), width_, ok);
      recognised &= v.has_value();
      return integer(v.value_or(0));
    });
    if (!ok) fault_ = !machine_.fault(diag::TileDivisionByZero, op_, machine_.programName());
    return recognised;
  }

  bool compares() {
    if (arith::CmpIOp cmp = dyn_cast<arith::CmpIOp>(op_))
      return each([&](size_t i) { return slotOf(int64_t(compare(cmp.getPredicate(), n(0, i), n(1, i), fromWidth_))); });
    if (arith::CmpFOp cmp = dyn_cast<arith::CmpFOp>(op_))
      return each([&](size_t i) { return slotOf(int64_t(compare(cmp.getPredicate(), f(0, i), f(1, i)))); });
    if (isa<arith::SelectOp>(op_)) return each([&](size_t i) { return n(0, i) ? at(1, i) : at(2, i); });
    return false;
  }

  /// An integer as a float: F32 in one rounding.
  template <typename I> Slot floatOf(I v) const {
    return real_.isF32() ? slotOf(double(static_cast<float>(v))) : number(static_cast<double>(v));
  }
  bool converts() {
    if (isa<arith::ExtSIOp, arith::IndexCastOp>(op_)) return each([&](size_t i) { return integer(asSigned(n(0, i), fromWidth_)); });
    if (isa<arith::ExtUIOp, arith::IndexCastUIOp>(op_))
      return each([&](size_t i) { return integer(static_cast<int64_t>(asUnsigned(n(0, i), fromWidth_))); });
    if (isa<arith::TruncIOp>(op_)) return each([&](size_t i) { return integer(n(0, i)); });
    if (isa<arith::SIToFPOp>(op_)) return each([&](size_t i) { return floatOf(asSigned(n(0, i), fromWidth_)); });
    if (isa<arith::UIToFPOp>(op_)) return each([&](size_t i) { return floatOf(asUnsigned(n(0, i), fromWidth_)); });
    if (isa<arith::FPToSIOp, arith::FPToUIOp>(op_))
      return each([&](size_t i) { return integer(toInt(f(0, i), width_, isa<arith::FPToSIOp>(op_))); });
    if (arith::TruncFOp cast = dyn_cast<arith::TruncFOp>(op_)) {
      const bool zero = cast.getRoundingmode() == arith::RoundingMode::toward_zero;
      return each([&](size_t i) { return slotOf(roundTo(real_, f(0, i), zero)); });
    }
    if (isa<arith::ExtFOp>(op_)) return each([&](size_t i) { return at(0, i); });
    if (tt::FpToFpOp cast = dyn_cast<tt::FpToFpOp>(op_)) {
      const bool zero = cast.getRounding() == tt::RoundingMode::RTZ;
      return each([&](size_t i) { return slotOf(saturateTo(real_, f(0, i), zero)); });
    }
    if (!isa<arith::BitcastOp, tt::BitcastOp>(op_)) return false;
    return each([&](size_t i) {
      uint64_t bits = fromReal_ ? encode(fromReal_, f(0, i)) : static_cast<uint64_t>(n(0, i));
      return real_ ? slotOf(decode(real_, asUnsigned(static_cast<int64_t>(bits), real_.getWidth()))) : integer(static_cast<int64_t>(bits));
    });
  }

  bool floats() {
    if (tt::ClampFOp clamp = dyn_cast<tt::ClampFOp>(op_)) {
      const bool keep = clamp.getPropagateNan() == tt::PropagateNan::ALL;
      return each([&](size_t i) {
        double x = f(0, i), lo = f(1, i), hi = f(2, i);
        return keep ? slotOf(minKeep(maxKeep(x, lo), hi)) : slotOf(minNum(maxNum(x, lo), hi));
      });
    }
    // One rounding: f32 by the single-precision instruction, since a double sum would round twice.
    if (isa<math::FmaOp>(op_))
      return each([&](size_t i) {
        double a = f(0, i), b = f(1, i), c = f(2, i);
        return real_.isF32() ? slotOf(double(std::fmaf(float(a), float(b), float(c)))) : number(std::fma(a, b, c));
      });
    if (isa<math::FPowIOp>(op_)) return each([&](size_t i) { return number(std::pow(f(0, i), static_cast<double>(n(1, i)))); });
    if (isa<math::IsNaNOp>(op_)) return each([&](size_t i) { return slotOf(int64_t(std::isnan(f(0, i)))); });
    if (isa<math::IsInfOp>(op_)) return each([&](size_t i) { return slotOf(int64_t(std::isinf(f(0, i)))); });
    if (isa<math::IsFiniteOp>(op_)) return each([&](size_t i) { return slotOf(int64_t(std::isfinite(f(0, i)))); });
    return false;
  }

  bool integers() {
    if (isa<math::AbsIOp>(op_))
      return each([&](size_t i) { return integer(n(0, i) < 0 ? static_cast<int64_t>(-static_cast<uint64_t>(n(0, i))) : n(0, i)); });
    if (isa<math::CountLeadingZerosOp>(op_))
      return each([&](size_t i) { return integer(std::countl_zero(u(0, i)) - (64 - int64_t(width_))); });
    if (isa<math::CountTrailingZerosOp>(op_))
      return each([&](size_t i) { return integer(std::min<int64_t>(width_, std::countr_zero(u(0, i)))); });
    if (isa<math::CtPopOp>(op_)) return each([&](size_t i) { return integer(std::popcount(u(0, i))); });
    if (!isa<tt::MulhiUIOp>(op_)) return false;
    return each([&](size_t i) {
      unsigned __int128 p = static_cast<unsigned __int128>(u(0, i)) * u(1, i);
      return integer(static_cast<int64_t>(static_cast<uint64_t>(p >> width_)));
    });
  }

  /// Two results: the low half and the high one, the sum and what it carries.
  bool pairs() {
    Lanes second(lanes_);
    const bool isSigned = isa<arith::MulSIExtendedOp>(op_);
    if (isSigned || isa<arith::MulUIExtendedOp>(op_)) {
      each([&](size_t i) {
        __int128 p = isSigned ? static_cast<__int128>(asSigned(n(0, i), width_)) * asSigned(n(1, i), width_)
                              : static_cast<__int128>(static_cast<unsigned __int128>(u(0, i)) * u(1, i));
        second[i] = integer(static_cast<int64_t>(p >> width_));
        return integer(static_cast<int64_t>(p));
      });
    } else if (isa<arith::AddUIExtendedOp>(op_)) {
      each([&](size_t i) {
        int64_t sum = wrap(static_cast<int64_t>(static_cast<uint64_t>(n(0, i)) + static_cast<uint64_t>(n(1, i))), width_);
        second[i] = slotOf(int64_t(asUnsigned(sum, width_) < u(0, i)));
        return slotOf(sum);
      });
    } else {
      return false;
    }
    machine_.set(op_->getResult(1), std::move(second));
    return true;
  }

  bool pointers() {
    if (tt::AddPtrOp add = dyn_cast<tt::AddPtrOp>(op_)) {
      Type pointee = mlir::cast<tt::PointerType>(type_).getPointeeType();
      int64_t bytes = pointee.isIntOrFloat() ? (pointee.getIntOrFloatBitWidth() + 7) / 8 : 8;
      unsigned offsetWidth = widthOf(getElementTypeOrSelf(add.getOffset().getType()));
      return each([&](size_t i) { return slotOf(n(0, i) + asSigned(n(1, i), offsetWidth) * bytes); });
    }
    if (isa<tt::IntToPtrOp>(op_)) return each([&](size_t i) { return slotOf(machine_.memory.fromHost(n(0, i))); });
    return isa<tt::PtrToIntOp>(op_) && each([&](size_t i) { return at(0, i); });
  }

  /// A function of a library, by its name.
  bool library(tt::ExternElementwiseOp ext) {
    SmallVector<Type, 4> types;
    for (Value v : op_->getOperands()) types.push_back(getElementTypeOrSelf(v.getType()));
    LibraryFunction function;
    SmallVector<Slot, 4> in(types.size());
    return function.find(ext.getSymbol(), types, type_) && each([&](size_t i) {
             for (size_t k = 0; k < in.size(); ++k) in[k] = at(static_cast<unsigned>(k), i);
             return function(in);
           });
  }

  Machine &machine_;
  Operation *op_;
  StringRef name_;
  Type type_, from_;
  FloatType real_, fromReal_;
  unsigned width_, fromWidth_;
  SmallVector<const Lanes *, 3> in_;
  size_t lanes_ = 0;
  Lanes out_;
  bool fault_ = false;
};

} // namespace

bool Machine::executeElementwise(Operation *op, bool &known) {
  if (tt::ElementwiseInlineAsmOp assembly = dyn_cast<tt::ElementwiseInlineAsmOp>(op); assembly && assembly.onlyOrders()) {
    for (Value result : op->getResults()) {
      RankedTensorType type = dyn_cast<RankedTensorType>(result.getType());
      set(result, Lanes(type ? static_cast<size_t>(type.getNumElements()) : 1));
    }
    known = true;
    return true;
  }
  if (op->getNumOperands() == 0 || op->getNumResults() == 0 || op->getNumRegions() != 0) return true;
  return Elementwise(*this, op).run(known);
}

} // namespace neso::tile
