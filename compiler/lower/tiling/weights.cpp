#include "lower/tiling/weights.h"

#include <algorithm>

#include "base/rules.h"
#include "ir/loops/order.h"

namespace neso {

using loops::Op;
using loops::OpKind;

namespace {

/// The right operand of a contraction where it is a constant with constant strides that nothing else reads: offsets of
/// its elements, in elements, along each group of dimensions (row-major in the group's dimensions).
class ConstantOperand {
public:
  static std::optional<ConstantOperand> of(plan::Plan &plan, plan::Kernel &kernel, const plan::Users &users,
                                           const DotTiling &c) {
    ConstantOperand out(plan, kernel);
    return out.find(c, users) ? std::optional(std::move(out)) : std::nullopt;
  }

  int64_t n = 0, k = 0; // extents
  std::vector<int64_t> batchAt, nAt, outerAt, kAt;
  Op &load() const {
    auto &node = kernel_.nodes[0].get<loops::ContractionSpec>();
    return node.body.ops[static_cast<size_t>(node.rhs)];
  }
  const loops::Buffer &buffer() const { return plan_.program.buffer(load().buffer); }

  /// Puts the elements into the order of these axes, of `elements` elements in all; false where it cannot be done.
  bool rewrite(int64_t elements, const std::vector<loops::Axis> &axes) const {
    const DType dtype = buffer().dtype;
    if (itemSize(dtype) != 4 && itemSize(dtype) != 2) return false;
    loops::Constant &constant = plan_.program.constants[static_cast<size_t>(buffer().index)];
    loops::reorder(constant, loops::elementOrder(axes, base_, elements), dtype);
    loops::BufferId id = buffer().id;
    plan_.program.buffer(id).elements = elements;
    plan_.placements[id.index()].bytes = constant.bytes;
    return true;
  }

private:
  ConstantOperand(plan::Plan &plan, plan::Kernel &kernel) : plan_(plan), kernel_(kernel) {}

  bool find(const DotTiling &c, const plan::Users &users) {
    if (load().kind != OpKind::Load || load().a >= 0 || buffer().kind != loops::Buffer::Kind::Constant ||
        buffer().mutated)
      return false;
    // Whoever else touches it, in whatever way, goes by the model's order of elements.
    if (users.of(buffer().id).size() != 1) return false;
    for (Symbol s : symbolsOf(load().index))
      if (s.kind() != Symbol::Kind::Outer && s.kind() != Symbol::Kind::Inner) return false;
    n = c.nSize.asConst().value_or(-1), k = c.kSize.asConst().value_or(-1);
    if (n <= 0 || k <= 0) return false;
    // The index of a stored weight is a sum of what each dimension adds. Anything else stays as it is.
    Expr rest = load().index;
    if (!offsets(c.batch, kernel_.xRanges, Symbol::outer, true, rest, batchAt) ||
        !offsets(c.n, kernel_.xRanges, Symbol::outer, false, rest, nAt) ||
        !offsets(c.kOuter, kernel_.rRanges, Symbol::inner, false, rest, outerAt) ||
        !offsets(c.kInner, kernel_.rRanges, Symbol::inner, false, rest, kAt))
      return false;
    base_ = rest.asConst().value_or(-1);
    return base_ >= 0;
  }

  /// The terms of `rest` that have the symbol, which leave it; nullopt when one has another symbol too.
  static std::optional<Expr> takeTerms(Symbol symbol, Expr &rest) {
    std::vector<Expr> terms = rest.kind() == ExprKind::Add ? rest.operands() : std::vector<Expr>{rest};
    Expr mine = 0, others = 0;
    for (Expr t : terms) {
      std::vector<Symbol> symbols = symbolsOf(t);
      bool has = std::find(symbols.begin(), symbols.end(), symbol) != symbols.end();
      if (has && symbols.size() > 1) return std::nullopt;
      (has ? mine : others) = (has ? mine : others) + t;
    }
    rest = others;
    return mine;
  }

  /// Element offsets of all positions along `dims`; takes their terms out of `rest`.
  bool offsets(const std::vector<size_t> &dims, const std::vector<Expr> &ranges, Symbol (*symbolOf)(size_t),
               bool onlyUsed, Expr &rest, std::vector<int64_t> &out) const {
    out = {0};
    for (size_t d : dims) {
      if (onlyUsed && !uses(load().index, symbolOf(d))) continue;
      std::optional<int64_t> extent = ranges[d].asConst();
      if (!extent || *extent < 0) return false;
      std::optional<Expr> along = takeTerms(symbolOf(d), rest);
      if (!along) return false;
      std::vector<int64_t> next;
      next.reserve(out.size() * static_cast<size_t>(*extent));
      std::vector<int64_t> steps;
      for (int64_t i = 0; i < *extent; ++i) {
        std::optional<int64_t> at = evaluate(*along, {{symbolOf(d), i}});
        if (!at) return false;
        steps.push_back(*at);
      }
      for (int64_t o : out)
        for (int64_t step : steps) next.push_back(o + step);
      out = std::move(next);
    }
    return true;
  }

  plan::Plan &plan_;
  plan::Kernel &kernel_;
  int64_t base_ = 0;
};

/// Position among the batches, and among the outer k, in row-major order of the dimensions that the operand has.
std::pair<Expr, Expr> outerPosition(const plan::Kernel &kernel, const DotTiling &c, Expr index) {
  Expr batch = 0, ko = 0;
  for (size_t d : c.batch)
    if (uses(index, Symbol::outer(d))) batch = batch * kernel.xRanges[d] + Symbol::outer(d);
  for (size_t d : c.kOuter) ko = ko * kernel.rRanges[d] + Symbol::inner(d);
  return {batch, ko};
}

} // namespace

void packRightOperand(plan::Plan &plan, plan::Kernel &kernel, const plan::Users &users, DotTiling &c) {
  std::optional<ConstantOperand> operand = ConstantOperand::of(plan, kernel, users, c);
  if (!operand) return;
  int64_t blocks = (operand->n + c.bn - 1) / c.bn, kPadded = (operand->k + c.bk - 1) / c.bk * c.bk;
  int64_t batches = static_cast<int64_t>(operand->batchAt.size()),
          outer = static_cast<int64_t>(operand->outerAt.size());
  const int64_t blockElements = outer * kPadded * c.bn;
  bool done = operand->rewrite(batches * blocks * blockElements,
                               {loops::plainAxis(operand->batchAt, blocks * blockElements),
                                loops::blockedAxis(operand->nAt, c.bn, blockElements),
                                loops::plainAxis(operand->outerAt, kPadded * c.bn), loops::plainAxis(operand->kAt, c.bn)});
  if (!done) return;
  // The load in terms of the flat symbols of emitContraction.
  auto [batch, ko] = outerPosition(kernel, c, operand->load().index);
  operand->load().index = (((batch * blocks + kBlockOfN) * outer + ko) * kPadded + kK) * c.bn + kLaneOfN;
  c.packed = true;
  applied(Rule::PackWeight);
}

void orderRightOperand(plan::Plan &plan, plan::Kernel &kernel, const plan::Users &users, const DotTiling &c) {
  const auto &node = kernel.nodes[0].get<loops::ContractionSpec>();
  if (unitStride(node.body, node.rhs, Symbol::inner(c.kInner.back())) ||
      unitStride(node.body, node.rhs, Symbol::outer(c.n.back())))
    return;
  std::optional<ConstantOperand> operand = ConstantOperand::of(plan, kernel, users, c);
  if (!operand) return;
  int64_t batches = static_cast<int64_t>(operand->batchAt.size()),
          outer = static_cast<int64_t>(operand->outerAt.size());
  const int64_t column = outer * operand->k;
  bool done = operand->rewrite(batches * operand->n * column,
                               {loops::plainAxis(operand->batchAt, operand->n * column),
                                loops::plainAxis(operand->nAt, column), loops::plainAxis(operand->outerAt, operand->k),
                                loops::plainAxis(operand->kAt, 1)});
  if (!done) return;
  auto [batch, ko] = outerPosition(kernel, c, operand->load().index);
  operand->load().index = ((batch * operand->n + kN) * outer + ko) * operand->k + kK;
  applied(Rule::OrderWeight);
}

} // namespace neso
