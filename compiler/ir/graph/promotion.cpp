#include "ir/graph/promotion.h"

namespace neso::graph {
namespace {

struct Accumulator {
  std::optional<DType> type;
  void add(DType t) { type = type ? promote(*type, t) : t; }
};

std::optional<DType> combine(std::optional<DType> higher, std::optional<DType> lower) {
  if (!higher) return lower;
  if (!lower || isComplex(*higher)) return higher;
  if (isFloat(*higher)) return isComplex(*lower) ? toComplex(*higher) : *higher;
  if (*higher == DType::Bool || isFloat(*lower) || isComplex(*lower)) return promote(*higher, *lower);
  return higher;
}

} // namespace

std::optional<DType> resultType(const Graph &graph, const std::vector<Argument> &operands) {
  Accumulator dims, zeroDim, numbers;
  for (const Argument &a : operands) {
    if (const ValueId *id = std::get_if<ValueId>(&a)) {
      if (!id->valid()) continue;
      const Value &v = graph.value(*id);
      if (v.kind == Value::Kind::Tensor)
        (v.type.sizes.empty() ? zeroDim : dims).add(v.type.dtype);
      else if (v.kind == Value::Kind::SymInt)
        numbers.add(DType::I64);
      else if (v.kind == Value::Kind::SymFloat)
        numbers.add(DType::F32);
      else if (v.kind == Value::Kind::SymBool)
        numbers.add(DType::Bool);
    } else if (const auto *list = std::get_if<std::vector<ValueId>>(&a)) {
      for (ValueId id : *list)
        if (id.valid() && graph.value(id).kind == Value::Kind::Tensor)
          (graph.value(id).type.sizes.empty() ? zeroDim : dims).add(graph.value(id).type.dtype);
    } else if (std::holds_alternative<int64_t>(a)) {
      numbers.add(DType::I64);
    } else if (std::holds_alternative<double>(a)) {
      numbers.add(DType::F32);
    } else if (std::holds_alternative<bool>(a)) {
      numbers.add(DType::Bool);
    } else if (std::holds_alternative<ComplexValue>(a)) {
      numbers.add(DType::C64);
    }
  }
  return combine(combine(dims.type, zeroDim.type), numbers.type);
}

} // namespace neso::graph
