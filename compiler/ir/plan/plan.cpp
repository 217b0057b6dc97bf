#include "ir/plan/plan.h"

#include <algorithm>

#include "ir/plan/steps.h"

namespace neso::plan {

Step::Step(const Step &) = default;
Step::Step(Step &&) noexcept = default;
Step &Step::operator=(const Step &) = default;
Step &Step::operator=(Step &&) noexcept = default;
Step::~Step() = default;

std::vector<Symbol> lateSymbols(const Plan &plan) {
  std::vector<Symbol> out;
  forEachStep(plan.main, [&](const Step &step) {
    const auto *load = step.as<LoadScalar>();
    if (load && std::find(out.begin(), out.end(), load->symbol) == out.end()) out.push_back(load->symbol);
  });
  return out;
}

size_t lateness(const std::vector<Symbol> &late, Expr e) {
  size_t last = 0;
  if (late.empty() || !e.valid()) return 0;
  for (Symbol s : symbolsOf(e)) {
    const size_t number = static_cast<size_t>(std::find(late.begin(), late.end(), s) - late.begin()) + 1;
    if (number <= late.size()) last = std::max(last, number);
  }
  return last;
}

size_t lateness(const std::vector<Symbol> &late, const std::vector<Expr> &es) {
  size_t last = 0;
  for (Expr e : es) last = std::max(last, lateness(late, e));
  return last;
}

Placement::Where homeOf(loops::Buffer::Kind kind) {
  switch (kind) {
  case loops::Buffer::Kind::Input:
  case loops::Buffer::Kind::ScalarInput: return Placement::Where::Input;
  case loops::Buffer::Kind::Constant: return Placement::Where::Constant;
  case loops::Buffer::Kind::Temp: return Placement::Where::None;
  }
  NESO_UNREACHABLE("unknown kind of buffer");
}

Expr paddedBytes(const loops::Buffer &buffer) {
  constexpr int64_t align = 64;
  return ceilDiv(buffer.elements * Expr(itemSize(buffer.dtype)), align) * Expr(align);
}

Guard guardOf(Expr condition) {
  return {condition, "the sizes of the inputs break a condition of the model: " + condition.str() + valuesOf(condition)};
}

} // namespace neso::plan
