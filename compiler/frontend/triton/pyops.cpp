// Python's operators on compile-time values, and the choice between them and Triton's on run-time ones.
#include "base/diagnostics/triton.h"
#include "frontend/triton/evaluator.h"

#include <algorithm>
#include <cmath>

namespace neso::triton {
namespace {

__int128 floorDiv(__int128 a, __int128 b) {
  __int128 q = a / b;
  return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
}
__int128 floorMod(__int128 a, __int128 b) { return a - floorDiv(a, b) * b; }

/// base ** exponent with exponent >= 0; false when it leaves 100 bits.
bool power(__int128 base, __int128 exponent, __int128 &out) {
  out = 1;
  for (__int128 i = 0; i < exponent; ++i) {
    if (base == 0 || base == 1) {
      out = base;
      return true;
    }
    if (base == -1) {
      out = exponent % 2 ? -1 : 1;
      return true;
    }
    out *= base;
    if (out > (static_cast<__int128>(1) << 100) || out < -(static_cast<__int128>(1) << 100)) return false;
  }
  return true;
}

} // namespace

static Value numbers(Context &c, OpKind op, const Value &a, const Value &b) {
  bool real = a.kind == Kind::Float || b.kind == Kind::Float;
  switch (op) {
  case OpKind::Eq: return Value::boolean(real ? a.number() == b.number() : a.i == b.i);
  case OpKind::Ne: return Value::boolean(real ? a.number() != b.number() : a.i != b.i);
  case OpKind::Lt: return Value::boolean(real ? a.number() < b.number() : a.i < b.i);
  case OpKind::Le: return Value::boolean(real ? a.number() <= b.number() : a.i <= b.i);
  case OpKind::Gt: return Value::boolean(real ? a.number() > b.number() : a.i > b.i);
  case OpKind::Ge: return Value::boolean(real ? a.number() >= b.number() : a.i >= b.i);
  default: break;
  }
  if (op == OpKind::Div || op == OpKind::FloorDiv || op == OpKind::Mod) {
    if (real ? b.number() == 0 : b.i == 0) return c.fail(diag::TrDivisionByZero, spelling(op));
  }
  if (op == OpKind::Div) return Value::real(a.number() / b.number());
  if (real) {
    double x = a.number(), y = b.number();
    switch (op) {
    case OpKind::Add: return Value::real(x + y);
    case OpKind::Sub: return Value::real(x - y);
    case OpKind::Mul: return Value::real(x * y);
    case OpKind::FloorDiv: return Value::real(std::floor(x / y));
    case OpKind::Mod: return Value::real(x - std::floor(x / y) * y);
    case OpKind::Pow: return Value::real(std::pow(x, y));
    default: return {};
    }
  }
  __int128 x = a.i, y = b.i, out = 0;
  bool bothBool = a.kind == Kind::Bool && b.kind == Kind::Bool;
  switch (op) {
  case OpKind::Add: out = x + y; break;
  case OpKind::Sub: out = x - y; break;
  case OpKind::Mul:
    if (__builtin_mul_overflow(x, y, &out))
      return c.fail(diag::TrBigInt, int128ToString(x) + " * " + int128ToString(y));
    break;
  case OpKind::FloorDiv: out = floorDiv(x, y); break;
  case OpKind::Mod: out = floorMod(x, y); break;
  case OpKind::Pow:
    if (y < 0) return Value::real(std::pow(static_cast<double>(x), static_cast<double>(y)));
    if (!power(x, y, out)) return c.fail(diag::TrBigInt, int128ToString(x) + " ** " + int128ToString(y));
    break;
  case OpKind::LShift:
    if (y < 0 || (x != 0 && (y > 100 || x > (static_cast<__int128>(1) << (126 - y)) ||
                             x < -(static_cast<__int128>(1) << (126 - y)))))
      return c.fail(diag::TrBigInt, int128ToString(x) + " << " + int128ToString(y));
    out = x == 0 ? 0 : x * (static_cast<__int128>(1) << y);
    break;
  case OpKind::RShift:
    if (y < 0) return c.fail(diag::TrBigInt, int128ToString(x) + " >> " + int128ToString(y));
    out = y > 126 ? (x < 0 ? -1 : 0) : x >> y;
    break;
  case OpKind::BitAnd: return bothBool ? Value::boolean(x & y) : Value::integer(x & y);
  case OpKind::BitOr: return bothBool ? Value::boolean(x | y) : Value::integer(x | y);
  case OpKind::BitXor: return bothBool ? Value::boolean(x ^ y) : Value::integer(x ^ y);
  default: return {};
  }
  constexpr __int128 limit = static_cast<__int128>(1) << 120;
  if (out > limit || out < -limit) return c.fail(diag::TrBigInt, int128ToString(out));
  return Value::integer(out);
}

const char *methodOfOperator(OpKind op) {
  switch (op) {
  case OpKind::Add: return "__add__";
  case OpKind::Sub: return "__sub__";
  case OpKind::Mul: return "__mul__";
  case OpKind::Div: return "__truediv__";
  case OpKind::FloorDiv: return "__floordiv__";
  case OpKind::Mod: return "__mod__";
  case OpKind::BitAnd: return "__and__";
  case OpKind::BitOr: return "__or__";
  case OpKind::BitXor: return "__xor__";
  case OpKind::Eq: return "__eq__";
  case OpKind::Ne: return "__ne__";
  case OpKind::Lt: return "__lt__";
  case OpKind::Le: return "__le__";
  case OpKind::Gt: return "__gt__";
  case OpKind::Ge: return "__ge__";
  case OpKind::MatMul: return "__matmul__";
  case OpKind::LShift: return "__lshift__";
  case OpKind::RShift: return "__rshift__";
  default: return "";
  }
}

/// a * b where one of them is a sequence or text: repeated; Invalid if neither is.
static Value repeated(Context &c, const Value &a, const Value &b) {
  const Value &seq = a.isIntLike() ? b : a, &count = a.isIntLike() ? a : b;
  if (!count.isIntLike() || !(seq.isSequence() || seq.kind == Kind::Str)) return {};
  if (count.i > 65536) return c.fail(diag::TrUnrollTooLong, 65536);
  std::vector<Value> items;
  std::string text;
  for (__int128 i = 0; i < count.i; ++i) {
    if (seq.kind == Kind::Str)
      text += seq.str();
    else
      items.insert(items.end(), seq.items().begin(), seq.items().end());
  }
  return seq.kind == Kind::Str ? c.str(text) : c.list(seq.kind, std::move(items));
}

/// a | b of dicts: b's values win.
static Value mergedDicts(Context &c, const Value &a, const Value &b) {
  std::vector<Value> items = a.items();
  for (size_t i = 0; i + 1 < b.items().size(); i += 2) {
    bool found = false;
    for (size_t k = 0; k + 1 < items.size(); k += 2)
      if (equals(items[k], b.items()[i])) {
        items[k + 1] = b.items()[i + 1];
        found = true;
      }
    if (!found) {
      items.push_back(b.items()[i]);
      items.push_back(b.items()[i + 1]);
    }
  }
  return c.list(Kind::Dict, std::move(items));
}

/// Arithmetic of sequences, text and dicts; Invalid, without an error, where they have none.
Value Evaluator::binaryOfContainers(OpKind op, const Value &a, const Value &b) {
  const bool texts = a.kind == Kind::Str && b.kind == Kind::Str, sequences = a.isSequence() && b.isSequence();
  if (op == OpKind::Add && texts) return c.str(a.str() + b.str());
  if (op == OpKind::Add && sequences) {
    std::vector<Value> items = a.items();
    items.insert(items.end(), b.items().begin(), b.items().end());
    return c.list(a.kind, std::move(items));
  }
  if (op == OpKind::Mul) return repeated(c, a, b);
  if (op == OpKind::Mod && a.kind == Kind::Str)
    return c.frame->kernel ? c.fail(diag::TrUnsupported, "'%' formatting", "use an f-string")
                           : c.opaque("a formatted string");
  if (op == OpKind::BitOr && a.kind == Kind::Dict && b.kind == Kind::Dict) return mergedDicts(c, a, b);
  if (op != OpKind::Lt && op != OpKind::Le && op != OpKind::Gt && op != OpKind::Ge) return {};
  if (texts) return numbers(c, op, Value::integer(a.str().compare(b.str())), Value::integer(0));
  if (!sequences) return {};
  // Lexicographic: the first difference decides, then the length.
  size_t n = std::min(a.items().size(), b.items().size());
  for (size_t i = 0; i < n; ++i)
    if (!equals(a.items()[i], b.items()[i])) return binary(op, a.items()[i], b.items()[i]);
  return binary(op, Value::integer(static_cast<__int128>(a.items().size())),
                Value::integer(static_cast<__int128>(b.items().size())));
}

Value Evaluator::binary(OpKind op, const Value &a, const Value &b) {
  for (const Value *v : {&a, &b})
    if (v->kind == Kind::Opaque) return c.frame->kernel ? c.fail(diag::TrOpaque, v->o->text) : *v;
  if (a.kind == Kind::Instance)
    if (Value *m = a.o->cls->members.find(methodOfOperator(op))) return call(*m, {a, b});
  if ((a.isTensor() && (b.isTensor() || b.isNumber())) || (b.isTensor() && a.isNumber())) return s.binary(op, a, b);
  if (a.isTensor() || b.isTensor()) {
    const Value &other = a.isTensor() ? b : a;
    return c.fail(diag::TrOperator, spelling(op), typeName(a), typeName(b),
                  other.isNone() ? "compare with None by `is`" : "give numbers or tensors");
  }
  if (a.isNumber() && b.isNumber()) {
    Value v = numbers(c, op, a, b);
    if (v || c.error) return v;
  }
  if (op == OpKind::Eq || op == OpKind::Ne) return Value::boolean(equals(a, b) == (op == OpKind::Eq));
  Value v = binaryOfContainers(op, a, b);
  if (v || c.error) return v;
  // `int | None` and the like in annotations.
  if (op == OpKind::BitOr && !c.frame->kernel) return c.opaque("a type");
  return c.fail(diag::TrOperator, spelling(op), typeName(a), typeName(b), "check the operands' types");
}

} // namespace neso::triton
