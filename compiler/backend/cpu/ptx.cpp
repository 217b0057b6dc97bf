// Inline assembly of kernels, one element at a time: a straight line of PTX on scalar registers becomes the same operations on vectors.
//
//     { .reg .pred p; setp.gt.f32 p, $1, 20.0; @p mov.f32 $0, $1; @!p ex2.approx.f32 $0, $1; }
//
// Registers are typeless bits; an instruction reads them as its suffix says. Approximate instructions give the exact function's value.
// What is no arithmetic (memory, barriers, special registers, jumps) has no translation: the caller reports it.
//
// Where the assembly takes several elements of an operand in one register, all of them are the same element here, and the first one of the
// results is taken: which elements travel together is not defined, so none may depend on its neighbours.
#include "backend/common/float_convert.h"
#include "backend/common/inline_asm.h"
#include "backend/cpu/emitter.h"
#include "ir/tile/tile.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/Intrinsics.h"

namespace neso::cpu {

using llvm::Value;

namespace {

/// Translates one block of instructions, up to the first that has no translation.
class PtxBlock {
public:
  /// args: the words of the operands; `outputs` registers come in front of theirs.
  PtxBlock(llvm::IRBuilder<> &b, MathEmitter &math, mlir::MLIRContext *context, llvm::ArrayRef<Value *> args, unsigned outputs)
      : b(b), math_(math), context_(context), args_(args), outputs_(outputs) {}

  bool run(llvm::StringRef text) {
    std::string plain = withoutComments(text);
    llvm::SmallVector<llvm::StringRef, 16> lines;
    llvm::StringRef(plain).split(lines, ';');
    for (llvm::StringRef line : lines) {
      // Braces in front of a statement are scopes.
      line = line.ltrim(" \t\r\n{}").rtrim();
      if (line.empty() || line.starts_with(".reg")) continue;
      if (!instruction(line)) return false;
    }
    return true;
  }

  /// A register that holds operand `argument` at the start as well as result `output` at the end.
  void tie(unsigned output, unsigned argument) { registers_[("$" + llvm::Twine(output)).str()] = args_[argument]; }

  /// The bits of output k after the block, or null.
  Value *output(unsigned k) const { return registers_.lookup(("$" + llvm::Twine(k)).str()); }

  /// `v` as an element of `to`: the same bits, or their low part.
  Value *as(Value *v, llvm::Type *to) {
    if (!v) return nullptr;
    to = v->getType()->getWithNewType(to);
    const unsigned have = v->getType()->getScalarSizeInBits(), want = to->getScalarSizeInBits();
    if (have == 1 || want == 1) return have == want ? v : nullptr;
    if (have != want)
      v = b.CreateZExtOrTrunc(b.CreateBitCast(v, to->getWithNewType(b.getIntNTy(have))),
                              to->getWithNewType(b.getIntNTy(want)));
    return b.CreateBitCast(v, to);
  }

private:
  static std::string withoutComments(llvm::StringRef text) {
    std::string out;
    while (!text.empty()) {
      if (text.starts_with("//"))
        text = text.drop_until([](char c) { return c == '\n'; });
      else if (text.starts_with("/*"))
        text = text.find("*/") == llvm::StringRef::npos ? "" : text.drop_front(text.find("*/") + 2);
      else {
        out += text.front();
        text = text.drop_front();
      }
    }
    return out;
  }

  struct Type {
    llvm::Type *type = nullptr;
    bool isFloat = false, isSigned = false;
    explicit operator bool() const { return type; }
  };
  Type typeOf(llvm::StringRef s) {
    if (s == "pred") return {b.getInt1Ty(), false, false};
    if (s == "f32") return {b.getFloatTy(), true, true};
    if (s == "f64") return {b.getDoubleTy(), true, true};
    if (s == "f16") return {b.getHalfTy(), true, true};
    if (s == "bf16") return {b.getBFloatTy(), true, true};
    unsigned bits = 0;
    if (s.empty() || s.drop_front().getAsInteger(10, bits) || (bits != 8 && bits != 16 && bits != 32 && bits != 64))
      return {};
    if (s[0] != 's' && s[0] != 'u' && s[0] != 'b') return {};
    return {b.getIntNTy(bits), false, s[0] == 's'};
  }

  Value *constant(llvm::Constant *c) {
    auto *vector = args_.empty() ? nullptr : llvm::dyn_cast<llvm::VectorType>(args_[0]->getType());
    return vector ? llvm::ConstantVector::getSplat(vector->getElementCount(), c) : static_cast<Value *>(c);
  }
  /// A register or a literal: 1, -3, 0x1f, 0f3F800000 (bits), 0d3FF0000000000000, 1.5.
  Value *operand(llvm::StringRef s, Type t) {
    s = s.trim();
    if (auto it = registers_.find(s); it != registers_.end()) return as(it->second, t.type);
    llvm::StringRef digits = s;
    unsigned index = 0;
    if (digits.consume_front("$")) {
      if (digits.getAsInteger(10, index) || index < outputs_ || index - outputs_ >= args_.size()) return nullptr;
      return as(args_[index - outputs_], t.type);
    }
    uint64_t bits = 0;
    if (digits.size() == 10 && (digits.consume_front("0f") || digits.consume_front("0F")) &&
        !digits.getAsInteger(16, bits))
      return as(constant(b.getInt32(static_cast<uint32_t>(bits))), t.type);
    if (digits.size() == 18 && (digits.consume_front("0d") || digits.consume_front("0D")) &&
        !digits.getAsInteger(16, bits))
      return as(constant(b.getInt64(bits)), t.type);
    double number = 0;
    if (t.isFloat) return s.getAsDouble(number) ? nullptr : constant(llvm::ConstantFP::get(t.type, number));
    int64_t whole = 0;
    s.consume_back("U");
    if (s.getAsInteger(0, whole)) {
      if (s.getAsInteger(0, bits)) return nullptr;
      whole = static_cast<int64_t>(bits);
    }
    return constant(llvm::ConstantInt::getSigned(llvm::cast<llvm::IntegerType>(t.type), whole, /*ImplicitTrunc=*/true));
  }

  bool instruction(llvm::StringRef line) {
    Value *guard = nullptr;
    if (line.consume_front("@")) {
      auto [name, rest] = line.split(' ');
      const bool inverted = name.consume_front("!");
      guard = operand(name, typeOf("pred"));
      if (!guard) return false;
      if (inverted) guard = b.CreateNot(guard);
      line = rest.trim();
    }
    size_t space = line.find_first_of(" \t\n");
    if (space == llvm::StringRef::npos) return false;
    llvm::SmallVector<llvm::StringRef, 6> name, parts;
    line.take_front(space).split(name, '.');
    if (!split(line.drop_front(space), parts) || line.contains('[') || parts[0].contains('|')) return false;
    llvm::StringRef out = parts[0];
    if (out.starts_with("{")) return unpack(name, out, llvm::ArrayRef<llvm::StringRef>(parts).drop_front(), guard);
    Value *result = compute(name, llvm::ArrayRef<llvm::StringRef>(parts).drop_front());
    return result && set(out, result, guard);
  }

  /// At the commas outside of braces.
  static bool split(llvm::StringRef text, llvm::SmallVectorImpl<llvm::StringRef> &parts) {
    size_t begin = 0;
    int open = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      open += text[i] == '{' ? 1 : text[i] == '}' ? -1 : 0;
      if (text[i] != ',' || open != 0) continue;
      parts.push_back(text.slice(begin, i).trim());
      begin = i + 1;
    }
    parts.push_back(text.drop_front(begin).trim());
    return open == 0;
  }

  bool set(llvm::StringRef out, Value *result, Value *guard) {
    if (out == "_") return true;
    if (guard)
      if (Value *old = registers_.lookup(out)) {
        old = old->getType() == result->getType() ? old : as(old, result->getType()->getScalarType());
        if (!old) return false;
        result = b.CreateSelect(guard, result, old);
      }
    registers_[out] = result;
    return true;
  }

  static llvm::SmallVector<llvm::StringRef, 4> elementsOf(llvm::StringRef braces) {
    llvm::SmallVector<llvm::StringRef, 4> parts;
    braces.trim("{} \t").split(parts, ',');
    for (llvm::StringRef &p : parts) p = p.trim();
    return parts;
  }

  /// mov.b32 {low, high}, x
  bool unpack(llvm::ArrayRef<llvm::StringRef> name, llvm::StringRef out, llvm::ArrayRef<llvm::StringRef> in, Value *guard) {
    const llvm::SmallVector<llvm::StringRef, 4> parts = elementsOf(out);
    Type t = typeOf(name.back());
    if (name.front() != "mov" || !t || t.isFloat || in.size() != 1) return false;
    const unsigned bits = t.type->getIntegerBitWidth(), each = bits / static_cast<unsigned>(parts.size());
    Value *x = operand(in[0], t);
    if (!x || each < 8 || each * parts.size() != bits) return false;
    for (unsigned i = 0; i < parts.size(); ++i)
      if (!set(parts[i], as(b.CreateLShr(x, uint64_t{each} * i), b.getIntNTy(each)), guard)) return false;
    return true;
  }

  /// mov.b32 x, {low, high}
  Value *join(llvm::StringRef in, Type t) {
    const llvm::SmallVector<llvm::StringRef, 4> parts = elementsOf(in);
    if (t.isFloat) return nullptr;
    const unsigned bits = t.type->getIntegerBitWidth(), each = bits / static_cast<unsigned>(parts.size());
    if (each < 8 || each * parts.size() != bits) return nullptr;
    Value *r = nullptr;
    for (unsigned i = 0; i < parts.size(); ++i) {
      Value *x = operand(parts[i], {b.getIntNTy(each), false, false});
      if (!x) return nullptr;
      x = b.CreateShl(as(x, t.type), uint64_t{each} * i);
      r = r ? b.CreateOr(r, x) : x;
    }
    return r;
  }

  /// An instruction on two halves of a register.
  Value *onHalves(llvm::ArrayRef<llvm::StringRef> name, llvm::ArrayRef<llvm::StringRef> in, Type half) {
    auto has = [&](llvm::StringRef flag) { return llvm::is_contained(name.drop_front(), flag); };
    Value *r = nullptr;
    for (unsigned i : {0u, 1u}) {
      llvm::SmallVector<Value *, 4> x;
      for (llvm::StringRef s : in) {
        Value *pair = operand(s, typeOf("b32"));
        if (!pair) return nullptr;
        x.push_back(as(b.CreateLShr(pair, 16 * i), half.type));
      }
      Value *one = floating(name.front(), has, x);
      if (one && has("sat")) one = clamp(one);
      if (!one) return nullptr;
      one = b.CreateShl(as(one, b.getInt32Ty()), 16 * i);
      r = r ? b.CreateOr(r, one) : one;
    }
    return r;
  }

  Value *compute(llvm::ArrayRef<llvm::StringRef> name, llvm::ArrayRef<llvm::StringRef> in) {
    llvm::StringRef op = name.front();
    Type t = typeOf(name.back());
    auto has = [&](llvm::StringRef flag) { return llvm::is_contained(name.drop_front(), flag); };
    if (op == "cvt") return convert(name, in);
    if (llvm::StringRef half = name.back(); half.consume_back("x2") && (half == "f16" || half == "bf16"))
      return in.empty() ? nullptr : onHalves(name, in, typeOf(half));
    if (!t || in.empty()) return nullptr;
    if (op == "mov" && in[0].starts_with("{")) return in.size() == 1 ? join(in[0], t) : nullptr;
    if (op == "setp") return compare(name, in, t);
    if (op == "selp") {
      if (in.size() != 3) return nullptr;
      Value *x = operand(in[0], t), *y = operand(in[1], t), *p = operand(in[2], typeOf("pred"));
      return x && y && p ? b.CreateSelect(p, x, y) : nullptr;
    }
    const bool isShift = op == "shl" || op == "shr";
    llvm::SmallVector<Value *, 4> x;
    for (size_t i = 0; i < in.size(); ++i) {
      x.push_back(operand(in[i], isShift && i == 1 ? typeOf("u32") : t));
      if (!x.back()) return nullptr;
    }
    Value *r = t.isFloat ? floating(op, has, x) : integer(op, has, x, t);
    if (r && has("sat") && t.isFloat) r = clamp(r);
    return r;
  }

  Value *clamp(Value *v) {
    return b.CreateMinNum(b.CreateMaxNum(v, llvm::ConstantFP::get(v->getType(), 0.0)),
                          llvm::ConstantFP::get(v->getType(), 1.0));
  }

  Value *floating(llvm::StringRef op, llvm::function_ref<bool(llvm::StringRef)> has, llvm::ArrayRef<Value *> x) {
    llvm::Type *t = x[0]->getType();
    const bool isF32 = t->getScalarType()->isFloatTy(), isReduced = t->getScalarSizeInBits() == 16;
    if (op == "mov") return x[0];
    if (isReduced) {
      // Halves compute in f32 and round once.
      llvm::SmallVector<Value *, 4> wide;
      for (Value *v : x) wide.push_back(b.CreateFPExt(v, t->getWithNewType(b.getFloatTy())));
      Value *r = floating(op, has, wide);
      return r ? b.CreateFPTrunc(r, t) : nullptr;
    }
    auto unary = [&](llvm::Intrinsic::ID id) { return b.CreateUnaryIntrinsic(id, x[0]); };
    if (x.size() == 1) {
      Value *one = llvm::ConstantFP::get(t, 1.0);
      if (op == "neg") return b.CreateFNeg(x[0]);
      if (op == "abs") return unary(llvm::Intrinsic::fabs);
      if (op == "sqrt") return unary(llvm::Intrinsic::sqrt);
      if (op == "rsqrt") return b.CreateFDiv(one, unary(llvm::Intrinsic::sqrt));
      if (op == "rcp") return b.CreateFDiv(one, x[0]);
      static const llvm::StringMap<MathFn> functions = {{"ex2", MathFn::Exp2},
                                                        {"lg2", MathFn::Log2},
                                                        {"sin", MathFn::Sin},
                                                        {"cos", MathFn::Cos},
                                                        {"tanh", MathFn::Tanh}};
      auto it = functions.find(op);
      return it != functions.end() && isF32 ? math_.emit(it->second, {x[0]}) : nullptr;
    }
    if (x.size() == 2) {
      if (op == "add") return b.CreateFAdd(x[0], x[1]);
      if (op == "sub") return b.CreateFSub(x[0], x[1]);
      if (op == "mul") return b.CreateFMul(x[0], x[1]);
      if (op == "div") return b.CreateFDiv(x[0], x[1]);
      if (op == "copysign") return b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, x[1], x[0]);
      if (op == "max") return has("NaN") ? b.CreateMaximum(x[0], x[1]) : b.CreateMaxNum(x[0], x[1]);
      if (op == "min") return has("NaN") ? b.CreateMinimum(x[0], x[1]) : b.CreateMinNum(x[0], x[1]);
    }
    if (x.size() == 3 && (op == "fma" || op == "mad"))
      return b.CreateIntrinsic(llvm::Intrinsic::fma, {t}, {x[0], x[1], x[2]});
    return nullptr;
  }

  Value *integer(llvm::StringRef op, llvm::function_ref<bool(llvm::StringRef)> has, llvm::ArrayRef<Value *> x,
                 Type type) {
    llvm::Type *t = x[0]->getType();
    const unsigned bits = t->getScalarSizeInBits();
    auto c = [&](uint64_t v) { return llvm::ConstantInt::get(t, v, false, /*ImplicitTrunc=*/true); };
    auto narrow = [&](Value *v) { return b.CreateZExtOrTrunc(v, t->getWithNewBitWidth(32)); };
    if (x.size() == 1) {
      if (op == "mov") return x[0];
      if (op == "not") return b.CreateNot(x[0]);
      if (op == "neg") return b.CreateNeg(x[0]);
      if (op == "abs") return b.CreateBinaryIntrinsic(llvm::Intrinsic::abs, x[0], b.getFalse());
      if (op == "popc") return narrow(b.CreateUnaryIntrinsic(llvm::Intrinsic::ctpop, x[0]));
      if (op == "clz") return narrow(b.CreateBinaryIntrinsic(llvm::Intrinsic::ctlz, x[0], b.getFalse()));
      if (op == "brev") return b.CreateUnaryIntrinsic(llvm::Intrinsic::bitreverse, x[0]);
      return nullptr;
    }
    auto product = [&](bool wide) -> Value * {
      llvm::Type *to = t->getWithNewBitWidth(bits * 2);
      Value *p = type.isSigned ? b.CreateMul(b.CreateSExt(x[0], to), b.CreateSExt(x[1], to))
                               : b.CreateMul(b.CreateZExt(x[0], to), b.CreateZExt(x[1], to));
      return wide ? p : b.CreateTrunc(b.CreateLShr(p, bits), t);
    };
    if (x.size() == 2) {
      if (op == "add") return b.CreateAdd(x[0], x[1]);
      if (op == "sub") return b.CreateSub(x[0], x[1]);
      if (op == "and") return b.CreateAnd(x[0], x[1]);
      if (op == "or") return b.CreateOr(x[0], x[1]);
      if (op == "xor") return b.CreateXor(x[0], x[1]);
      if (op == "min")
        return b.CreateBinaryIntrinsic(type.isSigned ? llvm::Intrinsic::smin : llvm::Intrinsic::umin, x[0], x[1]);
      if (op == "max")
        return b.CreateBinaryIntrinsic(type.isSigned ? llvm::Intrinsic::smax : llvm::Intrinsic::umax, x[0], x[1]);
      if (op == "mul") return has("hi") ? product(false) : has("wide") ? product(true) : b.CreateMul(x[0], x[1]);
      // PTX clamps shift amounts at the width.
      if (op == "shl" || op == "shr") {
        Value *amount = b.CreateZExtOrTrunc(x[1], t);
        if (op == "shr" && type.isSigned)
          return b.CreateAShr(x[0], b.CreateBinaryIntrinsic(llvm::Intrinsic::umin, amount, c(bits - 1)));
        Value *inside = b.CreateICmpULT(amount, c(bits)), *s = b.CreateAnd(amount, c(bits - 1));
        return b.CreateSelect(inside, op == "shl" ? b.CreateShl(x[0], s) : b.CreateLShr(x[0], s), c(0));
      }
    }
    if (x.size() == 3) {
      if (op == "mad" && has("lo")) return b.CreateAdd(b.CreateMul(x[0], x[1]), x[2]);
      if (op == "shf" && has("wrap"))
        return b.CreateIntrinsic(has("l") ? llvm::Intrinsic::fshl : llvm::Intrinsic::fshr, {t}, {x[1], x[0], x[2]});
      if (op == "prmt" && name32(t)) return permute(x);
      if (op == "fns" && bits == 32) return findSet(x);
      if (op == "bfe" && bits == 32 && !type.isSigned) {
        // Field of x[2] bits from bit x[1] on; both count modulo 256.
        Value *at = b.CreateAnd(x[1], c(255)), *length = b.CreateAnd(x[2], c(255));
        Value *mask = b.CreateSelect(b.CreateICmpULT(length, c(32)),
                                     b.CreateSub(b.CreateShl(c(1), b.CreateAnd(length, c(31))), c(1)), c(~0ull));
        Value *moved = b.CreateSelect(b.CreateICmpULT(at, c(32)), b.CreateLShr(x[0], b.CreateAnd(at, c(31))), c(0));
        return b.CreateAnd(moved, mask);
      }
    }
    if (x.size() == 4 && op == "lop3") {
      llvm::Constant *literal = llvm::dyn_cast<llvm::Constant>(x[3]);
      if (literal && t->isVectorTy()) literal = literal->getSplatValue();
      auto *table = llvm::dyn_cast_or_null<llvm::ConstantInt>(literal);
      if (!table) return nullptr;
      Value *r = c(0);
      for (unsigned row = 0; row < 8; ++row) {
        if (!(table->getZExtValue() >> row & 1)) continue;
        Value *term = row & 4 ? x[0] : b.CreateNot(x[0]);
        term = b.CreateAnd(term, row & 2 ? x[1] : b.CreateNot(x[1]));
        r = b.CreateOr(r, b.CreateAnd(term, row & 1 ? x[2] : b.CreateNot(x[2])));
      }
      return r;
    }
    return nullptr;
  }

  static bool name32(llvm::Type *t) { return t->getScalarSizeInBits() == 32; }

  /// fns: where the |x[2]|-th set bit of x[0] lies, counted from bit x[1] on, upwards or (x[2] < 0) downwards, or that bit itself
  /// (x[2] == 0); ~0 where there is none.
  Value *findSet(llvm::ArrayRef<Value *> x) {
    llvm::Type *t = x[0]->getType();
    auto c = [&](uint64_t v) { return llvm::ConstantInt::get(t, v, false, /*ImplicitTrunc=*/true); };
    Value *down = b.CreateICmpSLT(x[2], c(0)), *here = b.CreateICmpEQ(x[2], c(0)), *there = b.CreateICmpULT(x[1], c(32));
    Value *mask = b.CreateSelect(down, b.CreateUnaryIntrinsic(llvm::Intrinsic::bitreverse, x[0]), x[0]);
    Value *base = b.CreateAnd(b.CreateSelect(down, b.CreateSub(c(31), x[1]), x[1]), c(31));
    mask = b.CreateAnd(mask, b.CreateShl(b.CreateSelect(here, c(1), c(~0ull)), base));
    Value *left = b.CreateSelect(here, c(1), b.CreateBinaryIntrinsic(llvm::Intrinsic::abs, x[2], b.getFalse())), *at = c(0);
    for (unsigned width : {16, 8, 4, 2, 1}) {
      Value *low = b.CreateUnaryIntrinsic(llvm::Intrinsic::ctpop, b.CreateAnd(mask, c((1u << width) - 1)));
      Value *above = b.CreateICmpUGT(left, low);
      left = b.CreateSelect(above, b.CreateSub(left, low), left);
      mask = b.CreateSelect(above, b.CreateLShr(mask, width), mask);
      at = b.CreateSelect(above, b.CreateAdd(at, c(width)), at);
    }
    Value *found = b.CreateAnd(b.CreateICmpEQ(left, c(1)), b.CreateICmpEQ(b.CreateAnd(mask, c(1)), c(1)));
    at = b.CreateSelect(down, b.CreateSub(c(31), at), at);
    return b.CreateSelect(b.CreateAnd(found, there), at, c(~0ull));
  }

  /// prmt without a mode: byte i of the result is byte (selector nibble i) of the pair x[0], x[1]; its top bit spreads
  /// the byte's sign.
  Value *permute(llvm::ArrayRef<Value *> x) {
    llvm::Type *t = x[0]->getType(), *wide = t->getWithNewBitWidth(64);
    auto c = [&](llvm::Type *type, uint64_t v) { return llvm::ConstantInt::get(type, v); };
    Value *pair = b.CreateOr(b.CreateZExt(x[0], wide), b.CreateShl(b.CreateZExt(x[1], wide), c(wide, 32)));
    Value *r = c(t, 0);
    for (unsigned i = 0; i < 4; ++i) {
      Value *nibble = b.CreateAnd(b.CreateLShr(x[2], c(t, 4 * i)), c(t, 15));
      Value *shift = b.CreateShl(b.CreateZExt(b.CreateAnd(nibble, c(t, 7)), wide), c(wide, 3));
      Value *byte = b.CreateAnd(b.CreateTrunc(b.CreateLShr(pair, shift), t), c(t, 255));
      Value *sign = b.CreateSelect(b.CreateICmpNE(b.CreateAnd(byte, c(t, 128)), c(t, 0)), c(t, 255), c(t, 0));
      byte = b.CreateSelect(b.CreateICmpNE(b.CreateAnd(nibble, c(t, 8)), c(t, 0)), sign, byte);
      r = b.CreateOr(r, b.CreateShl(byte, c(t, 8 * i)));
    }
    return r;
  }

  Value *compare(llvm::ArrayRef<llvm::StringRef> name, llvm::ArrayRef<llvm::StringRef> in, Type t) {
    if (in.size() != 2 || name.size() < 3) return nullptr;
    Value *x = operand(in[0], t), *y = operand(in[1], t);
    if (!x || !y) return nullptr;
    using P = llvm::CmpInst::Predicate;
    struct Row {
      llvm::StringRef name;
      P f, s, u;
    };
    static constexpr P none = P::BAD_ICMP_PREDICATE;
    const Row rows[] = {{"eq", P::FCMP_OEQ, P::ICMP_EQ, P::ICMP_EQ},
                        {"ne", P::FCMP_ONE, P::ICMP_NE, P::ICMP_NE},
                        {"lt", P::FCMP_OLT, P::ICMP_SLT, P::ICMP_ULT},
                        {"le", P::FCMP_OLE, P::ICMP_SLE, P::ICMP_ULE},
                        {"gt", P::FCMP_OGT, P::ICMP_SGT, P::ICMP_UGT},
                        {"ge", P::FCMP_OGE, P::ICMP_SGE, P::ICMP_UGE},
                        {"equ", P::FCMP_UEQ, none, none},
                        {"neu", P::FCMP_UNE, none, none},
                        {"ltu", P::FCMP_ULT, none, none},
                        {"leu", P::FCMP_ULE, none, none},
                        {"gtu", P::FCMP_UGT, none, none},
                        {"geu", P::FCMP_UGE, none, none},
                        {"nan", P::FCMP_UNO, none, none},
                        {"num", P::FCMP_ORD, none, none},
                        {"lo", none, none, P::ICMP_ULT},
                        {"hs", none, none, P::ICMP_UGE}};
    for (const Row &row : rows)
      if (row.name == name[1]) {
        P p = t.isFloat ? row.f : t.isSigned ? row.s : row.u;
        if (p == none) return nullptr;
        return t.isFloat ? b.CreateFCmp(p, x, y) : b.CreateICmp(p, x, y);
      }
    return nullptr;
  }

  /// An element of a pair: how many bits it has, and its conversions.
  struct Packed {
    unsigned bits = 0;
    Type half;
    std::optional<F8Format> f8;
    bool isFp4 = false;
    explicit operator bool() const { return bits != 0; }
  };
  Packed packedOf(llvm::StringRef s) {
    if (!s.consume_back("x2")) return {};
    if (s == "f16" || s == "bf16") return {16, typeOf(s), {}, false};
    if (s == "e4m3" || s == "e5m2")
      return {8, {}, f8Format(s == "e4m3" ? mlir::Type(mlir::Float8E4M3FNType::get(context_)) : mlir::Float8E5M2Type::get(context_)), false};
    return s == "e2m1" ? Packed{4, {}, {}, true} : Packed{};
  }

  /// x (f32) as `p`, in the low bits of a 32-bit integer.
  Value *encode(Value *x, const Packed &p, bool relu) {
    if (relu) x = b.CreateMaxNum(x, llvm::ConstantFP::get(x->getType(), 0.0));
    if (p.isFp4) return FloatConverter(b).encodeFp4(x);
    if (p.f8) return as(FloatConverter(b).encodeF8(x, *p.f8), b.getInt32Ty());
    return as(b.CreateFPTrunc(x, x->getType()->getWithNewType(p.half.type)), b.getInt32Ty());
  }
  /// The low bits of a 32-bit integer as f32.
  Value *decode(Value *x, const Packed &p) {
    llvm::Type *f32 = x->getType()->getWithNewType(b.getFloatTy());
    if (p.f8) return FloatConverter(b).decodeF8(as(x, b.getInt8Ty()), *p.f8);
    return p.isFp4 ? FloatConverter(b).decodeFp4(x) : b.CreateFPExt(as(x, p.half.type), f32);
  }

  /// cvt.rn[.satfinite][.relu].TOx2.f32 d, high, low and cvt.rn.TOx2.FROMx2 d, pair
  Value *convertPair(llvm::ArrayRef<llvm::StringRef> name, llvm::ArrayRef<llvm::StringRef> in) {
    auto has = [&](llvm::StringRef flag) { return llvm::is_contained(name.drop_front(), flag); };
    const Packed to = packedOf(name[name.size() - 2]), from = packedOf(name.back());
    if (!to || !has("rn") || (to.bits < 16 && !has("satfinite"))) return nullptr;
    Value *element[2] = {};
    if (name.back() == "f32") {
      if (in.size() != 2) return nullptr;
      for (unsigned i : {0u, 1u}) element[i] = operand(in[1 - i], typeOf("f32"));
    } else {
      Value *pair = from && in.size() == 1 ? operand(in[0], typeOf("b32")) : nullptr;
      if (!pair) return nullptr;
      for (unsigned i : {0u, 1u})
        element[i] = decode(b.CreateAnd(b.CreateLShr(pair, uint64_t{from.bits} * i), (uint64_t{1} << from.bits) - 1), from);
    }
    if (!element[0] || !element[1]) return nullptr;
    Value *low = encode(element[0], to, has("relu")), *high = encode(element[1], to, has("relu"));
    return as(b.CreateOr(low, b.CreateShl(high, to.bits)), b.getIntNTy(2 * to.bits));
  }

  /// Of a float's bits the upper 19, rounded to the nearest (ties to even, or away from 0) or towards 0; the rest is cleared.
  Value *toTf32(Value *bits, bool even, bool away, bool relu, bool finite) {
    auto c = [&](uint64_t v) { return llvm::ConstantInt::get(bits->getType(), v); };
    Value *magnitude = b.CreateAnd(bits, c(0x7fffffff)), *isNan = b.CreateICmpUGT(magnitude, c(0x7f800000));
    Value *r = bits;
    if (even) r = b.CreateAdd(r, b.CreateAdd(c(0xfff), b.CreateAnd(b.CreateLShr(bits, 13), c(1))));
    if (away) r = b.CreateAdd(r, c(0x1000));
    r = b.CreateAnd(r, c(0xffffe000));
    if (finite) r = b.CreateOr(b.CreateBinaryIntrinsic(llvm::Intrinsic::umin, b.CreateAnd(r, c(0x7fffffff)), c(0x7f7fe000)), b.CreateAnd(bits, c(0x80000000)));
    if (relu) r = b.CreateSelect(b.CreateICmpUGT(bits, c(0x7fffffff)), c(0), r);
    return b.CreateSelect(isNan, c(0x7fffffff), r);
  }

  /// cvt[.rounding][.ftz][.sat].TO.FROM
  Value *convert(llvm::ArrayRef<llvm::StringRef> name, llvm::ArrayRef<llvm::StringRef> in) {
    if (name.size() < 3) return nullptr;
    auto has = [&](llvm::StringRef flag) { return llvm::is_contained(name.drop_front(), flag); };
    Type from = typeOf(name.back());
    llvm::StringRef target = name[name.size() - 2];
    if (target.ends_with("x2")) return convertPair(name, in);
    if (in.size() != 1) return nullptr;
    if (target == "tf32" && name.back() == "f32") {
      const bool known = llvm::all_of(name.drop_front().drop_back(2), [](llvm::StringRef f) {
        return f == "rn" || f == "rna" || f == "rz" || f == "relu" || f == "satfinite";
      });
      Value *bits = known && (has("rn") || has("rna") || has("rz")) ? operand(in[0], typeOf("b32")) : nullptr;
      return bits ? toTf32(bits, has("rn"), has("rna"), has("relu"), has("satfinite")) : nullptr;
    }
    Type to = typeOf(target);
    if (!from || !to || from.type->isIntegerTy(1) || to.type->isIntegerTy(1)) return nullptr;
    Value *x = operand(in[0], from);
    if (!x) return nullptr;
    llvm::Type *type = x->getType()->getWithNewType(to.type);
    if (from.isFloat && to.isFloat) {
      llvm::Intrinsic::ID whole = has("rni")   ? llvm::Intrinsic::roundeven
                                  : has("rzi") ? llvm::Intrinsic::trunc
                                  : has("rmi") ? llvm::Intrinsic::floor
                                  : has("rpi") ? llvm::Intrinsic::ceil
                                               : llvm::Intrinsic::not_intrinsic;
      if (whole != llvm::Intrinsic::not_intrinsic)
        x = b.CreateUnaryIntrinsic(whole, x);
      else if (from.type->getPrimitiveSizeInBits() > to.type->getPrimitiveSizeInBits().getFixedValue() && !has("rn"))
        return nullptr;
      if (has("relu")) x = b.CreateMaxNum(x, llvm::ConstantFP::get(x->getType(), 0.0));
      x = b.CreateFPCast(x, type);
      return has("sat") ? clamp(x) : x;
    }
    if (from.isFloat) {
      // A float to an integer always saturates; NaN becomes 0.
      llvm::Intrinsic::ID whole = has("rni")   ? llvm::Intrinsic::roundeven
                                  : has("rmi") ? llvm::Intrinsic::floor
                                  : has("rpi") ? llvm::Intrinsic::ceil
                                               : llvm::Intrinsic::trunc;
      x = b.CreateUnaryIntrinsic(whole, x);
      return b.CreateIntrinsic(to.isSigned ? llvm::Intrinsic::fptosi_sat : llvm::Intrinsic::fptoui_sat,
                               {type, x->getType()}, {x});
    }
    if (to.isFloat) return has("rn") ? (from.isSigned ? b.CreateSIToFP(x, type) : b.CreateUIToFP(x, type)) : nullptr;
    if (has("sat")) return nullptr;
    return from.isSigned ? b.CreateSExtOrTrunc(x, type) : b.CreateZExtOrTrunc(x, type);
  }

  llvm::IRBuilder<> &b;
  MathEmitter &math_;
  mlir::MLIRContext *context_;
  llvm::ArrayRef<Value *> args_;
  unsigned outputs_;
  llvm::StringMap<Value *> registers_;
};

} // namespace

llvm::SmallVector<Value *, 2> Emitter::emitPtx(mlir::Operation *op, llvm::ArrayRef<Value *> args) {
  auto assembly = llvm::cast<tt::ElementwiseInlineAsmOp>(op);
  const int64_t pack = assembly.getPackedElement();
  if (assembly.onlyOrders()) {
    llvm::SmallVector<Value *, 2> results;
    for (mlir::Type t : op->getResultTypes()) results.push_back(llvm::Constant::getNullValue(typeOf(elementOf(t))));
    return results;
  }
  if (args.empty()) return {};
  if (std::optional<std::string> misfit = constraintMisfit(op)) {
    fail(op, "an inline assembly with " + *misfit);
    return {};
  }
  // Operands as words: an element that shares a register with others fills all of their places.
  llvm::SmallVector<Value *, 8> words;
  for (auto [arg, operand] : llvm::zip_equal(args, op->getOperands())) {
    mlir::Type element = elementOf(operand.getType());
    const int n = elementsPerRegister(pack, bytesOf(element));
    Value *word = arg;
    if (n > 1) {
      const unsigned bits = static_cast<unsigned>(bytesOf(element)) * 8, all = bits * static_cast<unsigned>(n);
      llvm::Type *wide = arg->getType()->getWithNewType(b.getIntNTy(all));
      Value *one = element.isInteger(1) ? arg : b.CreateBitCast(arg, arg->getType()->getWithNewType(b.getIntNTy(bits)));
      word = b.CreateMul(b.CreateZExt(one, wide),
                         llvm::ConstantInt::get(wide, llvm::APInt::getSplat(all, llvm::APInt(bits, 1))));
    }
    words.append(static_cast<size_t>(pack / n), word);
  }
  llvm::SmallVector<unsigned, 2> first;
  unsigned outputs = 0;
  for (mlir::Type t : op->getResultTypes()) {
    first.push_back(outputs);
    outputs += static_cast<unsigned>(pack / elementsPerRegister(pack, bytesOf(elementOf(t))));
  }
  PtxBlock block(b, math_, op->getContext(), words, outputs);
  unsigned output = 0;
  for (const llvm::InlineAsm::ConstraintInfo &info : llvm::InlineAsm::ParseConstraints(assembly.getConstraints())) {
    if (info.Type != llvm::InlineAsm::isOutput) continue;
    if (info.hasMatchingInput()) block.tie(output, static_cast<unsigned>(info.MatchingInput) - outputs);
    ++output;
  }
  if (!block.run(assembly.getAsmString())) return {};
  llvm::SmallVector<Value *, 2> results;
  for (auto [k, type] : llvm::enumerate(op->getResultTypes())) {
    Value *r = block.as(block.output(first[k]), typeOf(elementOf(type)));
    if (!r) return {};
    results.push_back(r);
  }
  return results;
}

} // namespace neso::cpu
