// Arithmetic, comparisons, casts and functions on elements.
#include <fmt/format.h>

#include "lower/tile_to_triton/source.h"

namespace neso::triton_source {

using namespace mlir;

namespace {

struct Infix {
  llvm::StringRef op, sign;
  Binding binding;
  bool isUnsigned = false;
};
constexpr Infix kInfix[] = {{"arith.addf", "+", Binding::Sum},
                            {"arith.addi", "+", Binding::Sum},
                            {"arith.subf", "-", Binding::Sum},
                            {"arith.subi", "-", Binding::Sum},
                            {"arith.mulf", "*", Binding::Product},
                            {"arith.muli", "*", Binding::Product},
                            {"arith.divf", "/", Binding::Product},
                            {"arith.remf", "%", Binding::Product},
                            {"arith.divsi", "//", Binding::Product},
                            {"arith.remsi", "%", Binding::Product},
                            {"arith.divui", "//", Binding::Product, true},
                            {"arith.remui", "%", Binding::Product, true},
                            {"arith.andi", "&", Binding::And},
                            {"arith.ori", "|", Binding::Or},
                            {"arith.xori", "^", Binding::Xor},
                            {"arith.shli", "<<", Binding::Shift},
                            {"arith.shrsi", ">>", Binding::Shift},
                            {"arith.shrui", ">>", Binding::Shift, true},
                            {"tt.addptr", "+", Binding::Sum}};

struct Call {
  llvm::StringRef op, function;
  /// Triton takes f32 and f64 alone: smaller floats go through f32.
  bool wideFloats = true;
  bool isUnsigned = false;
};
constexpr llvm::StringRef kAll = ", propagate_nan=tl.PropagateNan.ALL";
constexpr Call kCalls[] = {{"math.absf", "tl.abs", false},
                           {"math.absi", "tl.abs", false},
                           {"math.exp", "tl.exp"},
                           {"math.exp2", "tl.exp2"},
                           {"math.log", "tl.log"},
                           {"math.log2", "tl.log2"},
                           {"math.sin", "tl.sin"},
                           {"math.cos", "tl.cos"},
                           {"math.sqrt", "tl.sqrt"},
                           {"math.rsqrt", "tl.rsqrt"},
                           {"math.erf", "tl.erf"},
                           {"math.floor", "tl.floor"},
                           {"math.ceil", "tl.ceil"},
                           {"math.fma", "tl.fma", false},
                           {"tt.precise_sqrt", "tl.sqrt_rn"},
                           {"tt.precise_divf", "tl.div_rn"},
                           {"math.tanh", "libdevice.tanh"},
                           {"math.trunc", "libdevice.trunc"},
                           {"math.roundeven", "libdevice.rint"},
                           {"math.round", "libdevice.round"},
                           {"math.copysign", "libdevice.copysign"},
                           {"math.expm1", "libdevice.expm1"},
                           {"math.log1p", "libdevice.log1p"},
                           {"math.log10", "libdevice.log10"},
                           {"math.tan", "libdevice.tan"},
                           {"math.asin", "libdevice.asin"},
                           {"math.acos", "libdevice.acos"},
                           {"math.atan", "libdevice.atan"},
                           {"math.sinh", "libdevice.sinh"},
                           {"math.cosh", "libdevice.cosh"},
                           {"math.asinh", "libdevice.asinh"},
                           {"math.acosh", "libdevice.acosh"},
                           {"math.atanh", "libdevice.atanh"},
                           {"math.erfc", "libdevice.erfc"},
                           {"math.powf", "libdevice.pow"},
                           {"math.cbrt", "libdevice.cbrt"},
                           {"tt.mulhiui", "tl.umulhi", false},
                           {"arith.minsi", "tl.minimum", false},
                           {"arith.maxsi", "tl.maximum", false},
                           {"arith.minui", "tl.minimum", false, true},
                           {"arith.maxui", "tl.maximum", false, true},
                           {"arith.minnumf", "tl.minimum", false},
                           {"arith.maxnumf", "tl.maximum", false},
                           {"arith.minimumf", "tl.minimum", false},
                           {"arith.maximumf", "tl.maximum", false}};

struct LibraryRow {
  llvm::StringRef name, variants;
};
constexpr LibraryRow kLibrary[] = {
#define NESO_LIBDEVICE(name, arguments, variants) {#name, variants},
#include "ir/tile/libdevice.def"
#undef NESO_LIBDEVICE
};

Type elementOf(Value v) { return getElementTypeOrSelf(v.getType()); }

/// What both shapes broadcast to; each is a scalar's, or of the same rank.
llvm::SmallVector<int64_t> joined(llvm::ArrayRef<int64_t> a, llvm::ArrayRef<int64_t> b) {
  if (a.empty() || b.empty()) return llvm::SmallVector<int64_t>(a.empty() ? b : a);
  llvm::SmallVector<int64_t> out(a);
  for (auto [o, d] : llvm::zip(out, b)) o = std::max(o, d);
  return out;
}

bool smallFloat(Type t) { return isa<FloatType>(t) && t.getIntOrFloatBitWidth() < 32; }

} // namespace

Text FunctionPrinter::infix(llvm::StringRef sign, Binding binding, const Text &a, const Text &b) {
  // Operators of one level bind to the left, comparisons to nothing.
  const Binding left = binding == Binding::Compare ? Binding::Or : binding;
  const Binding right = static_cast<Binding>(static_cast<int>(binding) + 1);
  return {fmt::format("{} {} {}", wrap(a, left), sign.str(), wrap(b, right)), binding, joined(a.shape, b.shape), false};
}

Text FunctionPrinter::apply(llvm::StringRef function, llvm::ArrayRef<Text> args) {
  Text out;
  for (const Text &a : args)
    out.code += (out.code.empty() ? "" : ", ") + a.code, out.shape = joined(out.shape, a.shape);
  out.code = function.str() + "(" + out.code + ")";
  file_.usesLibdevice |= function.starts_with("libdevice.");
  return out;
}

Text FunctionPrinter::method(const Text &of, const std::string &call) {
  return {wrap(of, Binding::Primary) + "." + call, Binding::Primary, of.shape, false};
}

/// Bits by logic: arithmetic on them is modulo two, and as signed numbers they are 0 and -1.
std::optional<Text> FunctionPrinter::onBools(Op *op) {
  if (op->getNumResults() != 1 || op->getNumOperands() != 2 || !elementOf(op->getOperand(0)).isInteger(1))
    return std::nullopt;
  const llvm::StringRef name = op->getName().getStringRef();
  auto binary = [&](llvm::StringRef sign, Binding binding) {
    const bool literals = text(op->getOperand(0)).literal && text(op->getOperand(1)).literal;
    return infix(sign, binding, literals ? typed(op->getOperand(0)) : text(op->getOperand(0)), text(op->getOperand(1)));
  };
  if (name == "arith.xori") {
    for (int side : {0, 1})
      if (text(op->getOperand(1 - side)).literal && text(op->getOperand(1 - side)).code == "True")
        return Text{"~" + wrap(typed(op->getOperand(side)), Binding::Unary), Binding::Unary,
                    text(op->getOperand(side)).shape, false};
  }
  if (name == "arith.addi" || name == "arith.subi" || name == "arith.xori") return binary("^", Binding::Xor);
  if (name == "arith.muli" || name == "arith.minui" || name == "arith.maxsi") return binary("&", Binding::And);
  if (name == "arith.maxui" || name == "arith.minsi") return binary("|", Binding::Or);
  return std::nullopt;
}

std::optional<Text> FunctionPrinter::elementwise(Op *op) {
  const llvm::StringRef name = op->getName().getStringRef();
  for (const Infix &row : kInfix) {
    if (row.op != name) continue;
    const Type type = elementOf(op->getResult(0));
    Value x = op->getOperand(0), y = op->getOperand(1);
    if (row.isUnsigned) {
      Text a = asUnsigned(x), b = asUnsigned(y);
      if (a.literal && b.literal)
        a = {fmt::format("tl.full([], {}, {})", a.code, unsignedName(type)), Binding::Primary, {}, false};
      return method(infix(row.sign, row.binding, a, b), fmt::format("to({})", typeName(type)));
    }
    Text a = text(x), b = text(y);
    if (a.literal && b.literal) a = typed(x);
    Text t = infix(row.sign, row.binding, a, b);
    // Triton divides small floats as f32.
    const bool widened = smallFloat(type) && (name == "arith.divf" || name == "arith.remf");
    return widened ? method(t, fmt::format("to({})", typeName(type))) : t;
  }
  if (isa<arith::NegFOp>(op))
    return Text{"-" + wrap(typed(op->getOperand(0)), Binding::Primary), Binding::Unary, text(op->getOperand(0)).shape,
                false};
  if (auto select = dyn_cast<arith::SelectOp>(op)) {
    Text a = text(select.getTrueValue()), b = text(select.getFalseValue());
    if (a.literal && b.literal) a = typed(select.getTrueValue());
    return apply("tl.where", {typed(select.getCondition()), a, b});
  }
  return std::nullopt;
}

std::optional<Text> FunctionPrinter::comparison(Op *op) {
  if (auto compare = dyn_cast<arith::CmpIOp>(op)) {
    using P = arith::CmpIPredicate;
    const P p = compare.getPredicate();
    const bool isUnsigned = p == P::ult || p == P::ule || p == P::ugt || p == P::uge;
    const llvm::StringRef sign = p == P::eq                   ? "=="
                                 : p == P::ne                 ? "!="
                                 : p == P::slt || p == P::ult ? "<"
                                 : p == P::sle || p == P::ule ? "<="
                                 : p == P::sgt || p == P::ugt ? ">"
                                                              : ">=";
    Value x = compare.getLhs(), y = compare.getRhs();
    if (elementOf(x).isInteger(1) && p != P::eq && p != P::ne) {
      // As numbers; signed ones are the other way round.
      Text a = method(typed(x), "to(tl.int32)"), b = method(typed(y), "to(tl.int32)");
      return infix(sign, Binding::Compare, isUnsigned ? a : b, isUnsigned ? b : a);
    }
    Text a = isUnsigned ? asUnsigned(x) : text(x), b = isUnsigned ? asUnsigned(y) : text(y);
    if (a.literal && b.literal)
      a = {fmt::format("tl.full([], {}, {})", a.code, isUnsigned ? unsignedName(elementOf(x)) : typeName(elementOf(x))),
           Binding::Primary,
           {},
           false};
    return infix(sign, Binding::Compare, a, b);
  }
  auto compare = dyn_cast<arith::CmpFOp>(op);
  if (!compare) return std::nullopt;
  using P = arith::CmpFPredicate;
  Value x = compare.getLhs(), y = compare.getRhs();
  auto plain = [&](llvm::StringRef sign) {
    Text a = text(x), b = text(y);
    return infix(sign, Binding::Compare, a.literal && b.literal ? typed(x) : a, b);
  };
  // Triton's comparisons are false on NaN, but for "!="; the others are their opposites.
  auto opposite = [&](llvm::StringRef sign) {
    Text t = plain(sign);
    return Text{"~(" + t.code + ")", Binding::Unary, t.shape, false};
  };
  auto both = [&](llvm::StringRef first, llvm::StringRef second, llvm::StringRef sign, Binding binding) {
    named(x), named(y);
    return infix(sign, binding, plain(first), plain(second));
  };
  auto nan = [&](llvm::StringRef test, llvm::StringRef sign, Binding binding) {
    auto one = [&](Value v) {
      Text t = named(v);
      if (t.literal) t = typed(v);
      return infix(test, Binding::Compare, t, t);
    };
    return x == y ? one(x) : infix(sign, binding, one(x), one(y));
  };
  switch (compare.getPredicate()) {
  case P::OEQ: return plain("==");
  case P::OGT: return plain(">");
  case P::OGE: return plain(">=");
  case P::OLT: return plain("<");
  case P::OLE: return plain("<=");
  case P::UNE: return plain("!=");
  case P::UGT: return opposite("<=");
  case P::UGE: return opposite("<");
  case P::ULT: return opposite(">=");
  case P::ULE: return opposite(">");
  case P::ONE: return both("<", ">", "|", Binding::Or);
  case P::UEQ: {
    Text t = both("<", ">", "|", Binding::Or);
    return Text{"~(" + t.code + ")", Binding::Unary, t.shape, false};
  }
  case P::ORD: return nan("==", "&", Binding::And);
  case P::UNO: return nan("!=", "|", Binding::Or);
  default: return refuse(op, "a comparison that is always true or false");
  }
}

std::optional<Text> FunctionPrinter::cast(Op *op) {
  if (op->getNumOperands() != 1 || op->getNumResults() != 1) return std::nullopt;
  Value x = op->getOperand(0);
  const Type from = elementOf(x), to = elementOf(op->getResult(0));
  const std::string target = typeName(to);
  auto as = [&](const std::string &type) { return method(typed(x), "to(" + type + ")"); };
  auto lowBit = [&](const Text &t) {
    Text bit = infix("&", Binding::And, t, {"1", Binding::Primary, {}, true});
    return infix("!=", Binding::Compare, bit, {"0", Binding::Primary, {}, true});
  };
  // Not by a sign before it, which would make a zero negative.
  auto negated = [&](const Text &t) { return infix("-", Binding::Sum, {"0", Binding::Primary, {}, true}, t); };
  auto fromUnsigned = [&](const std::string &call) {
    if (from.isInteger(1)) return as(call);
    return method(method(typed(x), fmt::format("to({})", unsignedName(from))), "to(" + call + ")");
  };
  if (isa<arith::ExtSIOp, arith::SIToFPOp>(op)) return from.isInteger(1) ? negated(as(target)) : as(target);
  if (isa<arith::ExtUIOp, arith::UIToFPOp>(op)) return fromUnsigned(target);
  if (isa<arith::TruncIOp>(op)) return to.isInteger(1) ? lowBit(typed(x)) : as(target);
  if (isa<arith::FPToSIOp, arith::FPToUIOp>(op)) {
    // Triton's cast to a bool asks whether a number is zero, and it has none from f8.
    Text real = from.getIntOrFloatBitWidth() == 8 ? as("tl.float32") : typed(x);
    if (to.isInteger(1)) return lowBit(method(real, "to(tl.int32)"));
    if (isa<arith::FPToSIOp>(op)) return method(real, "to(" + target + ")");
    return method(method(real, fmt::format("to({})", unsignedName(to))), fmt::format("to({})", target));
  }
  if (isa<arith::ExtFOp, arith::TruncFOp>(op)) return as(target);
  if (auto convert = dyn_cast<tt::FpToFpOp>(op)) {
    const bool narrows = to.getIntOrFloatBitWidth() < from.getIntOrFloatBitWidth();
    const bool toZero = convert.getRounding() == tt::RoundingMode::RTZ;
    if (toZero && !narrows) return refuse(op, "a cast towards zero between floats of one width");
    return as(target + (toZero ? ", fp_downcast_rounding=\"rtz\"" : ""));
  }
  if (isa<arith::BitcastOp, tt::BitcastOp>(op)) return as(target + (isa<tt::PointerType>(to) ? "" : ", bitcast=True"));
  if (isa<tt::PtrToIntOp, tt::IntToPtrOp>(op)) return as(target);
  return std::nullopt;
}

std::optional<Text> FunctionPrinter::call(Op *op) {
  const llvm::StringRef name = op->getName().getStringRef();
  if (auto ext = dyn_cast<tt::ExternElementwiseOp>(op)) return external(ext);
  if (auto clamp = dyn_cast<tt::ClampFOp>(op)) {
    Text t = apply("tl.clamp", {typed(clamp.getX()), text(clamp.getMin()), text(clamp.getMax())});
    if (clamp.getPropagateNan() == tt::PropagateNan::ALL) t.code.insert(t.code.size() - 1, kAll);
    return t;
  }
  if (isa<tt::ApproxDivFOp>(op)) {
    Text t = apply("tl.fdiv", {typed(op->getOperand(0)), typed(op->getOperand(1))});
    t.code.insert(t.code.size() - 1, ", approx=True");
    return t;
  }
  for (const Call &row : kCalls) {
    if (row.op != name) continue;
    const Type type = elementOf(op->getResult(0));
    const bool widened = row.wideFloats && smallFloat(type);
    llvm::SmallVector<Text> args;
    for (Value v : op->getOperands()) {
      Text t = row.isUnsigned ? asUnsigned(v) : typed(v);
      if (t.literal) t = {fmt::format("tl.full([], {}, {})", t.code, unsignedName(type)), Binding::Primary, {}, false};
      args.push_back(widened ? method(t, "to(tl.float32)") : t);
    }
    Text t = apply(row.function, args);
    if (name == "arith.minimumf" || name == "arith.maximumf") t.code.insert(t.code.size() - 1, kAll);
    if (widened) return method(t, fmt::format("to({})", typeName(type)));
    return row.isUnsigned ? method(t, fmt::format("to({})", typeName(type))) : t;
  }
  return std::nullopt;
}

std::optional<Text> FunctionPrinter::external(tt::ExternElementwiseOp op) {
  for (const LibraryRow &row : kLibrary) {
    llvm::StringRef variants = row.variants;
    const bool predicate = variants.consume_front("!");
    llvm::SmallVector<llvm::StringRef> all;
    variants.split(all, ", ");
    for (llvm::StringRef variant : all) {
      auto [types, symbol] = variant.split('>');
      if (symbol.drop_front(2) != op.getSymbol() || types.size() != op.getNumOperands()) continue;
      llvm::SmallVector<Text> args;
      for (auto [code, v] : llvm::zip(types, op.getOperands())) {
        const bool isUnsigned = code == 'u' || code == 'U';
        args.push_back(isUnsigned ? method(typed(v), fmt::format("to({})", unsignedName(elementOf(v)))) : typed(v));
      }
      Text t = apply(("libdevice." + row.name).str(), args);
      const std::string type = typeName(elementOf(op.getResult()));
      if (predicate) return method(t, "to(" + type + ")");
      return symbol[0] == 'u' || symbol[0] == 'U' ? method(t, "to(" + type + ")") : t;
    }
  }
  return refuse(op, fmt::format("the function '{}', which is not of CUDA's device library", op.getSymbol().str()));
}

} // namespace neso::triton_source
