#include "ir/loops/interp_reduce.h"

#include <cmath>
#include <limits>

namespace neso::loops {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

uint64_t u64(int64_t v) { return static_cast<uint64_t>(v); }
bool lessInt(DType t, int64_t a, int64_t b) { return t == DType::U64 ? u64(a) < u64(b) : a < b; }

/// Does a float beat the extreme so far? NaN beats all, and the first NaN stays.
bool beats(bool wantMax, double d, double best) {
  if (std::isnan(best)) return false;
  return std::isnan(d) || (wantMax ? d > best : d < best);
}

void onlineSoftmax(Accumulator &s, bool first, double d) {
  if (first) s.x = -kInf;
  if (std::isnan(d) || d == kInf) s.y = kNaN;
  if (std::isnan(d) || d > s.x) {
    s.y = s.y * std::exp(s.x - d) + 1;
    s.x = d;
  } else if (d != -kInf) {
    s.y += std::exp(d - s.x);
  }
}

} // namespace

void accumulate(ReduceKind kind, DType t, Accumulator &s, double d, int64_t v, int64_t position) {
  bool floating = isFloat(t), first = s.n++ == 0;
  bool wantMax = kind == ReduceKind::Max || kind == ReduceKind::ArgMax;
  switch (kind) {
  case ReduceKind::Sum:
    if (floating)
      s.x += d;
    else
      s.i = static_cast<int64_t>(u64(s.i) + u64(v));
    break;
  case ReduceKind::Prod:
    if (floating)
      s.x = first ? d : s.x * d;
    else
      s.i = first ? v : static_cast<int64_t>(u64(s.i) * u64(v));
    break;
  case ReduceKind::Min:
  case ReduceKind::Max:
  case ReduceKind::ArgMin:
  case ReduceKind::ArgMax: {
    bool better = first || (floating ? beats(wantMax, d, s.x) : wantMax ? lessInt(t, s.i, v) : lessInt(t, v, s.i));
    if (better) {
      s.x = d;
      s.i = v;
      s.at = position;
    }
    break;
  }
  case ReduceKind::Any: s.i |= floating ? d != 0 : v != 0; break;
  case ReduceKind::All: s.i = (first ? 1 : s.i) & (floating ? d != 0 : v != 0); break;
  case ReduceKind::XorSum: s.i ^= v; break;
  case ReduceKind::Welford: {
    double delta = d - s.x;
    s.x += delta / static_cast<double>(s.n);
    s.y += delta * (d - s.x);
    break;
  }
  case ReduceKind::OnlineSoftmax: onlineSoftmax(s, first, d); break;
  }
}

DType resultType(const Reduction &r) {
  switch (r.kind) {
  case ReduceKind::ArgMin:
  case ReduceKind::ArgMax: return DType::I64;
  case ReduceKind::Any:
  case ReduceKind::All: return DType::Bool;
  default: return r.dtype;
  }
}

void finishInto(const Reduction &r, DType inputType, const Accumulator &s, int result, Register &out, int l) {
  bool floating = isFloat(inputType), empty = s.n == 0;
  double d = s.x;
  int64_t v = s.i;
  switch (r.kind) {
  case ReduceKind::Prod:
    if (empty) d = 1, v = 1;
    break;
  case ReduceKind::Min:
    if (empty) d = kInf, v = INT64_MAX;
    break;
  case ReduceKind::Max:
    if (empty) d = -kInf, v = INT64_MIN;
    break;
  case ReduceKind::ArgMin:
  case ReduceKind::ArgMax: out.i[l] = s.at; return;
  case ReduceKind::Any:
  case ReduceKind::All: out.i[l] = empty && r.kind == ReduceKind::All ? 1 : v; return;
  case ReduceKind::Welford:
    d = result == 0 ? s.x : result == 1 ? s.y : static_cast<double>(s.n);
    floating = true;
    break;
  case ReduceKind::OnlineSoftmax:
    d = result == 0 ? (empty ? -kInf : s.x) : s.x == -kInf && !empty ? kNaN : s.y;
    floating = true;
    break;
  default: break;
  }
  LaneClass target = classOf(r.dtype);
  if (target == LaneClass::Int) {
    if (floating) v = floatToInt(r.dtype, d);
    out.i[l] = r.dtype == DType::Bool ? v != 0 : wrapInt(r.dtype, v);
    return;
  }
  if (!floating) d = inputType == DType::U64 ? static_cast<double>(u64(v)) : static_cast<double>(v);
  if (target == LaneClass::Double)
    out.d[l] = d;
  else
    out.f[l] = roundTo(r.dtype, static_cast<float>(d));
}

} // namespace neso::loops
