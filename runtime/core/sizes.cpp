#include "core/sizes.h"

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
int64_t power(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent & 1 ? -1 : 1) : 0;
  uint64_t result = 1, square = u(base);
  for (; exponent; exponent >>= 1, square *= square)
    if (exponent & 1) result *= square;
  return wrap(result);
}
} // namespace

int size_op_arity(fbs::SizeOp op) {
  switch (op) {
  case fbs::SizeOp::None: return 0;
  case fbs::SizeOp::Not: return 1;
  case fbs::SizeOp::Add:
  case fbs::SizeOp::Mul:
  case fbs::SizeOp::FloorDiv:
  case fbs::SizeOp::Mod:
  case fbs::SizeOp::Min:
  case fbs::SizeOp::Max:
  case fbs::SizeOp::Pow:
  case fbs::SizeOp::Eq:
  case fbs::SizeOp::Ne:
  case fbs::SizeOp::Lt:
  case fbs::SizeOp::Le:
  case fbs::SizeOp::And:
  case fbs::SizeOp::Or: return 2;
  case fbs::SizeOp::Select: return 3;
  }
  return 0;
}

neso_status eval_sizes(const fbs::SizeInst *inst, const fbs::SizeInst *end, int64_t *s) {
  for (; inst != end; ++inst) {
    fbs::SizeOp op = inst->op();
    int64_t a = s[inst->a()], b = size_op_arity(op) > 1 ? s[inst->b()] : 0, r = 0;
    switch (op) {
    case fbs::SizeOp::FloorDiv:
    case fbs::SizeOp::Mod:
      if (b == 0)
        return fail(NESO_SIZE_INVALID, "a size of the model is divided by zero; check the sizes of the inputs");
      r = op == fbs::SizeOp::FloorDiv ? floor_div(a, b) : floor_mod(a, b);
      break;
    case fbs::SizeOp::Add: r = wrap(u(a) + u(b)); break;
    case fbs::SizeOp::Mul: r = wrap(u(a) * u(b)); break;
    case fbs::SizeOp::Min: r = a < b ? a : b; break;
    case fbs::SizeOp::Max: r = a > b ? a : b; break;
    case fbs::SizeOp::Pow: r = power(a, b); break;
    case fbs::SizeOp::Eq: r = a == b; break;
    case fbs::SizeOp::Ne: r = a != b; break;
    case fbs::SizeOp::Lt: r = a < b; break;
    case fbs::SizeOp::Le: r = a <= b; break;
    case fbs::SizeOp::And: r = a && b; break;
    case fbs::SizeOp::Or: r = a || b; break;
    case fbs::SizeOp::Not: r = !a; break;
    case fbs::SizeOp::None: break;
    case fbs::SizeOp::Select: r = a ? b : s[inst->c()]; break;
    }
    s[inst->dst()] = r;
  }
  return NESO_OK;
}

bool program_fits(const flatbuffers::Vector<const fbs::SizeInst *> *program, int32_t constants, int32_t slots) {
  if (!program) return true;
  if (reinterpret_cast<uintptr_t>(program->Data()) % alignof(fbs::SizeInst)) return false;
  auto slot = [&](int32_t s) { return s >= 0 && s < slots; };
  for (uint32_t i = 0; i < program->size(); ++i) {
    const fbs::SizeInst *inst = program->Get(i);
    const int arity = size_op_arity(inst->op());
    if (arity == 0 || !slot(inst->dst()) || inst->dst() < constants || !slot(inst->a()) ||
        (arity > 1 && !slot(inst->b())) || (arity > 2 && !slot(inst->c())))
      return false;
  }
  return true;
}

} // namespace neso_rt
