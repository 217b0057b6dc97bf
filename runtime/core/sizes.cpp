#include "core/sizes.h"

#include <math.h>

namespace neso_rt {
namespace {
int64_t wrap(uint64_t v) { return static_cast<int64_t>(v); }
uint64_t u(int64_t v) { return static_cast<uint64_t>(v); }

// A zero divisor is excluded by the caller; INT64_MIN / -1 wraps.
int64_t trunc_div(int64_t a, int64_t b) { return b == -1 ? wrap(0 - u(a)) : a / b; }
int64_t trunc_mod(int64_t a, int64_t b) { return b == -1 ? 0 : a % b; }
int64_t floor_div(int64_t a, int64_t b) {
  int64_t q = trunc_div(a, b), r = trunc_mod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? q - 1 : q;
}
int64_t floor_mod(int64_t a, int64_t b) {
  int64_t r = trunc_mod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
int64_t ceil_div(int64_t a, int64_t b) {
  int64_t q = trunc_div(a, b), r = trunc_mod(a, b);
  return r != 0 && (r < 0) == (b < 0) ? q + 1 : q;
}
int64_t power(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent & 1 ? -1 : 1) : 0;
  uint64_t result = 1, square = u(base);
  for (; exponent; exponent >>= 1, square *= square)
    if (exponent & 1) result *= square;
  return wrap(result);
}
int64_t shift_left(int64_t a, int64_t b) { return b < 0 || b > 63 ? 0 : wrap(u(a) << b); }
int64_t shift_right(int64_t a, int64_t b) { return a >> (b < 0 || b > 63 ? 63 : b); }
int64_t next_power_of_two(int64_t a) {
  int64_t p = 1;
  while (p < a && p < int64_t(1) << 62) p <<= 1;
  return p;
}
// Saturates, so that no conversion is undefined; NaN gives 0.
int64_t to_int(double v) {
  if (!(v > -9223372036854775808.0)) return v == v ? INT64_MIN : 0;
  return v >= 9223372036854775808.0 ? INT64_MAX : int64_t(v);
}
} // namespace

int size_op_arity(fbs::SizeOp op) {
  switch (op) {
  case fbs::SizeOp::Copy:
  case fbs::SizeOp::Neg:
  case fbs::SizeOp::Abs:
  case fbs::SizeOp::BitNot:
  case fbs::SizeOp::Not:
  case fbs::SizeOp::NextPowerOfTwo:
  case fbs::SizeOp::IntToFloat:
  case fbs::SizeOp::TruncToInt:
  case fbs::SizeOp::FloorToInt:
  case fbs::SizeOp::CeilToInt:
  case fbs::SizeOp::RoundToInt:
  case fbs::SizeOp::FNeg:
  case fbs::SizeOp::FSqrt: return 1;
  case fbs::SizeOp::Select: return 3;
  default: return 2;
  }
}

neso_status eval_sizes(const fbs::SizeInst *inst, const fbs::SizeInst *end, int64_t *s) {
  for (; inst != end; ++inst) {
    fbs::SizeOp op = inst->op();
    int64_t a = s[inst->a()], b = size_op_arity(op) > 1 ? s[inst->b()] : 0, r = 0;
    double x = slot_as_double(a), y = slot_as_double(b);
    switch (op) {
    case fbs::SizeOp::FloorDiv:
    case fbs::SizeOp::CeilDiv:
    case fbs::SizeOp::TruncDiv:
    case fbs::SizeOp::Mod:
    case fbs::SizeOp::TruncMod:
      if (b == 0)
        return fail(NESO_SIZE_INVALID, "a size of the model is divided by zero; check the sizes of the inputs");
      r = op == fbs::SizeOp::FloorDiv   ? floor_div(a, b)
          : op == fbs::SizeOp::CeilDiv  ? ceil_div(a, b)
          : op == fbs::SizeOp::TruncDiv ? trunc_div(a, b)
          : op == fbs::SizeOp::Mod      ? floor_mod(a, b)
                                        : trunc_mod(a, b);
      break;
    case fbs::SizeOp::Copy: r = a; break;
    case fbs::SizeOp::Add: r = wrap(u(a) + u(b)); break;
    case fbs::SizeOp::Sub: r = wrap(u(a) - u(b)); break;
    case fbs::SizeOp::Mul: r = wrap(u(a) * u(b)); break;
    case fbs::SizeOp::Min: r = a < b ? a : b; break;
    case fbs::SizeOp::Max: r = a > b ? a : b; break;
    case fbs::SizeOp::Neg: r = wrap(0 - u(a)); break;
    case fbs::SizeOp::Abs: r = a < 0 ? wrap(0 - u(a)) : a; break;
    case fbs::SizeOp::Pow: r = power(a, b); break;
    case fbs::SizeOp::ShiftLeft: r = shift_left(a, b); break;
    case fbs::SizeOp::ShiftRight: r = shift_right(a, b); break;
    case fbs::SizeOp::BitAnd: r = a & b; break;
    case fbs::SizeOp::BitOr: r = a | b; break;
    case fbs::SizeOp::BitXor: r = a ^ b; break;
    case fbs::SizeOp::BitNot: r = ~a; break;
    case fbs::SizeOp::Eq: r = a == b; break;
    case fbs::SizeOp::Ne: r = a != b; break;
    case fbs::SizeOp::Lt: r = a < b; break;
    case fbs::SizeOp::Le: r = a <= b; break;
    case fbs::SizeOp::And: r = a && b; break;
    case fbs::SizeOp::Or: r = a || b; break;
    case fbs::SizeOp::Not: r = !a; break;
    case fbs::SizeOp::Select: r = a ? b : s[inst->c()]; break;
    case fbs::SizeOp::NextPowerOfTwo: r = next_power_of_two(a); break;
    case fbs::SizeOp::IntToFloat: r = double_as_slot(double(a)); break;
    case fbs::SizeOp::TruncToInt: r = to_int(x); break;
    case fbs::SizeOp::FloorToInt: r = to_int(floor(x)); break;
    case fbs::SizeOp::CeilToInt: r = to_int(ceil(x)); break;
    case fbs::SizeOp::RoundToInt: r = to_int(nearbyint(x)); break;
    case fbs::SizeOp::FAdd: r = double_as_slot(x + y); break;
    case fbs::SizeOp::FSub: r = double_as_slot(x - y); break;
    case fbs::SizeOp::FMul: r = double_as_slot(x * y); break;
    case fbs::SizeOp::FDiv: r = double_as_slot(x / y); break;
    case fbs::SizeOp::FMin: r = double_as_slot(y < x ? y : x); break;
    case fbs::SizeOp::FMax: r = double_as_slot(y > x ? y : x); break;
    case fbs::SizeOp::FNeg: r = double_as_slot(-x); break;
    case fbs::SizeOp::FPow: r = double_as_slot(pow(x, y)); break;
    case fbs::SizeOp::FSqrt: r = double_as_slot(sqrt(x)); break;
    case fbs::SizeOp::FEq: r = x == y; break;
    case fbs::SizeOp::FNe: r = x != y; break;
    case fbs::SizeOp::FLt: r = x < y; break;
    case fbs::SizeOp::FLe: r = x <= y; break;
    }
    s[inst->dst()] = r;
  }
  return NESO_OK;
}

} // namespace neso_rt
