// What there is to know about each scalar operator, from the table ops.def. Nobody else lists operators: a property that
// some pass asks about is a column or a flag there.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/dtype.h"

namespace neso::loops {

enum class OpKind : uint8_t {
#define NESO_LOOP_OP(kind, ...) kind,
#include "ir/loops/ops.def"
};
#define NESO_LOOP_OP(kind, ...) +1
inline constexpr int kOpKinds = 0
#include "ir/loops/ops.def"
    ;

/// How the dtypes of an operator's operands and its result hang together.
enum class OpTypes : uint8_t {
  Special, // as the operator itself says
  Same,    // one dtype for all
  Test,    // operands of one dtype, result Bool
  Shift,   // integers; the result is of the first operand's dtype, the amount may be of another
  Choice,  // Bool, then two of the result's dtype
  Draw,    // three I64; U32 or F32, by the operator
};

enum class OpDomain : uint8_t { All, Floats, Integers, Logic };

enum OpFlag : uint8_t {
  Commutative = 1,
  Discontinuous = 2, // a small change of an operand may change the result by a whole
  Random = 4,
};

/// What computes the operator on a tile: "arith.addf", an external function, "=" for the operand itself; null: several
/// operations.
struct OpForm {
  const char *real = nullptr, *sign = nullptr, *unsign = nullptr, *logic = nullptr;
  bool compares = false; // the comparison of the operator's text
  const char *on(DType t) const {
    return isFloat(t) ? real : t == DType::Bool ? logic : isUnsignedInt(t) ? unsign : sign;
  }
};

struct OpInfo {
  std::string_view text;
  int operands; // -1: rules of its own
  OpDomain domain;
  OpTypes types;
  int cost; // instructions of one element, roughly
  uint8_t flags;
  OpForm form;
  bool has(OpFlag f) const { return (flags & f) != 0; }
  bool isComparison() const { return types == OpTypes::Test && operands == 2; }
  bool existsOn(DType t) const {
    if (domain == OpDomain::Logic) return t == DType::Bool;
    return domain == OpDomain::All || (domain == OpDomain::Floats) == isFloat(t);
  }
  /// Dearer than to read a result that was stored.
  bool isHeavy() const { return cost >= 8; }
  /// Tens of instructions on every machine.
  bool isLong() const { return cost >= 24; }
};

/// What is repeated for each further use rather than stored: at most so many operators, none of them heavy, and loads.
inline constexpr int kCheapOps = 8, kCheapLoads = 2;

const OpInfo &info(OpKind kind);
inline std::string_view name(OpKind kind) { return info(kind).text; }
std::optional<OpKind> opNamed(std::string_view text);

} // namespace neso::loops
