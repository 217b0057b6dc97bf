#include "package/size_program.h"

#include <algorithm>
#include <cstring>

namespace neso {
using fbs::SizeOp;

int32_t SizeProgram::define(Symbol symbol, bool late) {
  size_t segment = 0;
  if (late) {
    segment = segments_.size();
    segments_.emplace_back();
  }
  int32_t slot = variable();
  symbols_[symbol] = {slot, segment};
  return slot;
}

void SizeProgram::defineAs(Symbol symbol, Expr value) {
  int32_t s = slot(value);
  symbols_[symbol] = {s, segmentOf(value)};
}

int32_t SizeProgram::constant(int64_t value) {
  auto [it, added] = constantSlots_.try_emplace(value, ~static_cast<int32_t>(constants_.size()));
  if (added) constants_.push_back(value);
  return it->second;
}

int32_t SizeProgram::floatConstant(double value) {
  int64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return constant(bits);
}

size_t SizeProgram::segmentOf(Expr e) {
  size_t last = 0;
  for (Symbol symbol : symbolsOf(e)) {
    auto it = symbols_.find(symbol);
    if (it != symbols_.end()) last = std::max(last, it->second.segment);
  }
  return last;
}

int32_t SizeProgram::emit(size_t segment, SizeOp op, int32_t a, int32_t b, int32_t c) {
  int32_t dst = variable();
  segments_[segment].push_back({op, dst, a, b, c});
  return dst;
}

int32_t SizeProgram::slot(Expr e) {
  if (std::optional<int64_t> value = e.asConst()) return constant(*value);
  if (e.isSymbol()) {
    auto it = symbols_.find(e.symbol());
    if (it != symbols_.end()) return it->second.slot;
    if (undefined_.empty()) undefined_ = e.symbol().str();
    return constant(0);
  }
  auto it = slots_.find(e);
  if (it != slots_.end()) return it->second;
  int32_t s = compute(e);
  slots_[e] = s;
  return s;
}

// Operands of a segment may come from earlier ones only, which holds since a segment is the latest of its symbols'.
int32_t SizeProgram::fold(Expr e, SizeOp op) {
  const std::vector<Expr> &xs = e.operands();
  int32_t value = slot(xs[0]);
  size_t segment = segmentOf(xs[0]);
  for (size_t i = 1; i < xs.size(); ++i) {
    segment = std::max(segment, segmentOf(xs[i]));
    value = emit(segment, op, value, slot(xs[i]));
  }
  return value;
}

int32_t SizeProgram::compute(Expr e) {
  const std::vector<Expr> &xs = e.operands();
  size_t segment = segmentOf(e);
  switch (e.kind()) {
  case ExprKind::Add: return fold(e, SizeOp::Add);
  case ExprKind::Mul: return fold(e, SizeOp::Mul);
  case ExprKind::Min: return fold(e, SizeOp::Min);
  case ExprKind::Max: return fold(e, SizeOp::Max);
  case ExprKind::And: return fold(e, SizeOp::And);
  case ExprKind::Or: return fold(e, SizeOp::Or);
  case ExprKind::FloorDiv: return emit(segment, SizeOp::FloorDiv, slot(xs[0]), slot(xs[1]));
  case ExprKind::Mod: return emit(segment, SizeOp::Mod, slot(xs[0]), slot(xs[1]));
  case ExprKind::Pow: return emit(segment, SizeOp::Pow, slot(xs[0]), slot(xs[1]));
  case ExprKind::Eq: return emit(segment, SizeOp::Eq, slot(xs[0]), slot(xs[1]));
  case ExprKind::Ne: return emit(segment, SizeOp::Ne, slot(xs[0]), slot(xs[1]));
  case ExprKind::Lt: return emit(segment, SizeOp::Lt, slot(xs[0]), slot(xs[1]));
  case ExprKind::Le: return emit(segment, SizeOp::Le, slot(xs[0]), slot(xs[1]));
  case ExprKind::Not: return emit(segment, SizeOp::Not, slot(xs[0]));
  case ExprKind::Where: return emit(segment, SizeOp::Select, slot(xs[0]), slot(xs[1]), slot(xs[2]));
  case ExprKind::Const:
  case ExprKind::Symbol: break;
  }
  NESO_UNREACHABLE("a constant or a symbol is no operation");
}

SizeProgram::Finished SizeProgram::finish() const {
  Finished out;
  out.constants = constants_;
  out.slotCount = static_cast<int32_t>(constants_.size()) + variables_;
  for (const std::vector<Instruction> &segment : segments_) {
    int32_t begin = static_cast<int32_t>(out.program.size());
    for (const Instruction &i : segment) {
      // Operands that an operation does not have point at any valid slot.
      int32_t a = finalSlot(i.a), b = i.b == ~0 && constants_.empty() ? a : finalSlot(i.b),
              c = i.c == ~0 && constants_.empty() ? a : finalSlot(i.c);
      out.program.emplace_back(i.op, finalSlot(i.dst), a, b, c);
    }
    out.ranges.emplace_back(begin, static_cast<int32_t>(out.program.size()));
  }
  return out;
}

} // namespace neso
