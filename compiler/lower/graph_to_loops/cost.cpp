#include "lower/graph_to_loops/cost.h"

namespace neso::lower {

static bool isHeavy(OpKind k) {
  switch (k) {
  case OpKind::Neg:
  case OpKind::Abs:
  case OpKind::Sign:
  case OpKind::Floor:
  case OpKind::Ceil:
  case OpKind::Trunc:
  case OpKind::Round:
  case OpKind::Relu:
  case OpKind::Not:
  case OpKind::BitNot:
  case OpKind::IsNan:
  case OpKind::IsInf:
  case OpKind::SignBit:
  case OpKind::Add:
  case OpKind::Sub:
  case OpKind::Mul:
  case OpKind::Min:
  case OpKind::Max:
  case OpKind::CopySign:
  case OpKind::And:
  case OpKind::Or:
  case OpKind::Xor:
  case OpKind::Shl:
  case OpKind::Shr:
  case OpKind::Eq:
  case OpKind::Ne:
  case OpKind::Lt:
  case OpKind::Le:
  case OpKind::Gt:
  case OpKind::Ge:
  case OpKind::FmaxNum:
  case OpKind::FminNum:
  case OpKind::Where:
  case OpKind::Fma:
  case OpKind::Cast:
  case OpKind::Bitcast:
  case OpKind::Sqrt:
  case OpKind::Rsqrt:
  case OpKind::Constant:
  case OpKind::Index:
  case OpKind::Load: return false;
  default: return true;
  }
}

Cost costOf(const loops::Body &body) {
  Cost c;
  for (const loops::Op &op : body.ops) {
    if (op.kind == OpKind::Load) {
      ++c.loads;
    } else if (op.kind != OpKind::Constant && op.kind != OpKind::Index) {
      ++c.ops;
    }
    c.heavy |= isHeavy(op.kind);
  }
  return c;
}

bool worthRealizing(const Cost &cost, int uses) {
  if (cost.ops > kMaxInlineOps || cost.loads > kMaxInlineLoads) return true;
  return uses > 1 && (cost.heavy || cost.ops > kCheapOps || cost.loads > kCheapLoads);
}

} // namespace neso::lower
