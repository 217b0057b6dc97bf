#include "lower/tiling/weights.h"

#include <algorithm>
#include <set>

#include "base/rules.h"
#include "ir/loops/dependences.h"
#include "ir/loops/order.h"
#include "lower/tiling/weight_blocks.h"

namespace neso {

using loops::Op;
using loops::OpKind;
using loops::ValueIdx;

namespace {

/// A constant with constant strides that one load of a contraction reads (or several, of which this is one), and nothing else: offsets of its elements along each group of
/// dimensions (row-major in the group's dimensions).
class ConstantOperand {
public:
  /// `place`: which element a turn reads, in whatever unit the caller counts. `loads`: of the contraction, that read the constant.
  static std::optional<ConstantOperand> of(plan::Plan &plan, plan::Kernel &kernel, const plan::Users &users,
                                           const DotTiling &c, loops::ValueIdx load, Expr place, size_t loads = 1) {
    ConstantOperand out(plan, kernel, load, place);
    return out.find(c, users, loads) ? std::optional(std::move(out)) : std::nullopt;
  }
  /// The right operand itself, where it is a load.
  static std::optional<ConstantOperand> right(plan::Plan &plan, plan::Kernel &kernel, const plan::Users &users,
                                              const DotTiling &c) {
    const auto &node = kernel.nodes[0].get<loops::ContractionSpec>();
    return of(plan, kernel, users, c, node.rhs, node.body.ops[static_cast<size_t>(node.rhs)].index);
  }

  int64_t n = 0, k = 0; // extents
  std::vector<int64_t> batchAt, nAt, outerAt, kAt;
  Op &load() const { return kernel_.nodes[0].get<loops::ContractionSpec>().body.ops[static_cast<size_t>(load_)]; }
  const loops::Buffer &buffer() const { return plan_.program.buffer(load().buffer); }
  Expr place() const { return place_; }

  /// Puts the elements into the order of these axes, of `elements` elements in all.
  void rewrite(int64_t elements, const std::vector<loops::Axis> &axes) const {
    loops::Constant &constant = plan_.program.constants[static_cast<size_t>(buffer().index)];
    loops::reorder(constant, loops::elementOrder(axes, base_, elements), buffer().dtype);
    resized(elements, constant);
  }
  /// The same of numbers of four bits, `count` in all.
  void rewriteFourBits(int64_t count, const std::vector<loops::Axis> &axes) const {
    loops::Constant &constant = plan_.program.constants[static_cast<size_t>(buffer().index)];
    loops::reorderFourBits(constant, loops::elementOrder(axes, base_, count));
    resized(count / (itemSize(buffer().dtype) * 2), constant);
  }
  /// The same elements in the same places.
  bool reads(const ConstantOperand &other) const {
    return n == other.n && k == other.k && base_ == other.base_ && batchAt == other.batchAt && nAt == other.nAt && outerAt == other.outerAt && kAt == other.kAt;
  }
  /// Of a size that products read in blocks.
  bool isWord() const { return itemSize(buffer().dtype) == 4 || itemSize(buffer().dtype) == 2; }

private:
  ConstantOperand(plan::Plan &plan, plan::Kernel &kernel, loops::ValueIdx load, Expr place)
      : plan_(plan), kernel_(kernel), load_(load), place_(place) {}

  void resized(int64_t elements, const loops::Constant &constant) const {
    const loops::BufferId id = buffer().id;
    plan_.program.buffer(id).elements = elements;
    plan_.placements[id.index()].bytes = constant.bytes;
  }

  bool find(const DotTiling &c, const plan::Users &users, size_t loads) {
    if (load().kind != OpKind::Load || load().a >= 0 || buffer().kind != loops::Buffer::Kind::Constant ||
        buffer().mutated)
      return false;
    // Whoever else touches it, in whatever way, goes by the model's order of elements.
    if (users.of(buffer().id).size() != loads) return false;
    for (Symbol s : symbolsOf(place_))
      if (s.kind() != Symbol::Kind::Outer && s.kind() != Symbol::Kind::Inner) return false;
    n = c.nSize.asConst().value_or(-1), k = c.kSize.asConst().value_or(-1);
    if (n <= 0 || k <= 0) return false;
    // The index of a stored weight is a sum of what each dimension adds. Anything else stays as it is.
    Expr rest = place_;
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
      if (onlyUsed && !uses(place_, symbolOf(d))) continue;
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
  loops::ValueIdx load_;
  Expr place_;
  int64_t base_ = 0;
};

WeightBlocks blocksOf(const ConstantOperand &operand, const DotTiling &c, int64_t rows) {
  return {static_cast<int64_t>(operand.batchAt.size()), (operand.n + c.bn - 1) / c.bn,
          static_cast<int64_t>(operand.outerAt.size()), rows, c.bn};
}

/// In how long steps along k the offsets change: the longest that divides `k`, each with one offset.
int64_t stepOf(const std::vector<int64_t> &offsets, int64_t k) {
  int64_t step = k;
  auto even = [&] {
    if (k % step) return false;
    for (size_t i = 0; i < offsets.size(); ++i)
      if (offsets[i] != offsets[i / static_cast<size_t>(step) * static_cast<size_t>(step)]) return false;
    return true;
  };
  while (step > 1 && !even()) --step;
  return step;
}

bool isRun(const std::vector<int64_t> &offsets) {
  for (size_t i = 0; i < offsets.size(); ++i)
    if (offsets[i] != offsets[0] + static_cast<int64_t>(i)) return false;
  return true;
}

/// Loads of one constant, each a fixed number of elements behind the first: a group's scale and its zero that lie side by side.
struct Neighbours {
  std::vector<ValueIdx> loads;
  std::vector<int64_t> behind; // elements
};

std::optional<Neighbours> neighboursOf(const loops::Body &body, const std::set<ValueIdx> &values, ValueIdx first, const Facts &facts) {
  const Op &load = body.ops[static_cast<size_t>(first)];
  Neighbours out;
  for (ValueIdx i : values) {
    const Op &op = body.ops[static_cast<size_t>(i)];
    if (op.kind != OpKind::Load || op.buffer != load.buffer) continue;
    const std::optional<int64_t> behind = facts.simplify(op.index - load.index).asConst();
    if (!behind || op.a >= 0) return std::nullopt;
    out.loads.push_back(i), out.behind.push_back(*behind);
  }
  return out;
}

/// What a computed operand loads: weights of 8 bits, scales of groups. Neighbours become rows behind each other.
void packLoad(const ConstantOperand &operand, plan::Kernel &kernel, const DotTiling &c, const Neighbours &together) {
  const int64_t kPadded = (operand.k + c.bk - 1) / c.bk * c.bk, step = stepOf(operand.kAt, kPadded);
  // One number for all columns is read as it is, and so is one row of them.
  const bool oneRow = step == kPadded && operand.outerAt.size() == 1;
  if (operand.nAt.front() == operand.nAt.back() || (oneRow && isRun(operand.nAt))) return;
  std::vector<int64_t> rows;
  for (size_t i = 0; i < operand.kAt.size(); i += static_cast<size_t>(step)) rows.push_back(operand.kAt[i]);
  const WeightBlocks blocks = blocksOf(operand, c, kPadded / step);
  const int64_t parts = static_cast<int64_t>(together.loads.size());
  const Expr row = blocks.rowAt(kernel, c, operand.place(), floorDiv(kK, Expr(step)));
  operand.rewrite(blocks.all() * parts, {loops::plainAxis(operand.batchAt, blocks.blocks * blocks.each() * parts),
                                         loops::blockedAxis(operand.nAt, c.bn, blocks.each() * parts),
                                         loops::plainAxis(operand.outerAt, blocks.rows * c.bn * parts),
                                         loops::plainAxis(rows, c.bn * parts), loops::plainAxis(together.behind, c.bn)});
  loops::Body &body = kernel.nodes[0].get<loops::ContractionSpec>().body;
  for (int64_t part = 0; part < parts; ++part)
    body.ops[static_cast<size_t>(together.loads[static_cast<size_t>(part)])].index = (row * parts + part) * c.bn + kLaneOfN;
  applied(Rule::PackWeight);
}

/// Numbers of four bits that a computed operand takes out of words: (load >> shift) & 15, where the shift is a multiple of four that dimensions
/// of the kernel say.
struct FourBits {
  ValueIdx load, shift;
};

std::optional<FourBits> fourBitsOf(const loops::Body &body, const Op &op) {
  auto at = [&](ValueIdx i) -> const Op & { return body.ops[static_cast<size_t>(i)]; };
  if (op.kind != OpKind::And || at(op.b).kind != OpKind::Constant || at(op.b).immInt != 15 ||
      at(op.a).kind != OpKind::Shr)
    return std::nullopt;
  // Load and shift get another index: nobody else may go by theirs.
  const auto readOnce = [&](ValueIdx i) {
    return std::count_if(body.ops.begin(), body.ops.end(),
                         [i](const Op &o) { return o.a == i || o.b == i || o.c == i; }) == 1;
  };
  FourBits out{at(op.a).a, at(op.a).b};
  bool alone = readOnce(op.a) && readOnce(out.shift);
  for (; at(out.load).kind == OpKind::Cast; out.load = at(out.load).a) alone = alone && readOnce(out.load);
  if (!alone || !readOnce(out.load) || at(out.load).kind != OpKind::Load || at(out.shift).kind != OpKind::Index)
    return std::nullopt;
  return out;
}

/// Bytes: a row of a block is bn / 2 of them, with column i in the low bits of byte i and column i + bn / 2 in the high ones, so that neighbours
/// among the columns come out of neighbouring bytes by one shift.
void packBytes(const ConstantOperand &operand, const plan::Kernel &kernel, const DotTiling &c, Op &shift) {
  const int64_t half = c.bn / 2;
  const WeightBlocks blocks = blocksOf(operand, c, (operand.k + c.bk - 1) / c.bk * c.bk);
  std::vector<int64_t> paired;
  for (int64_t i = 0; i < operand.n; ++i) {
    const int64_t inside = i % c.bn;
    paired.push_back(operand.nAt[static_cast<size_t>(i - inside + inside % 2 * half + inside / 2)]);
  }
  const Expr row = blocks.rowAt(kernel, c, operand.place(), kK);
  operand.rewriteFourBits(blocks.all(),
                          {loops::plainAxis(operand.batchAt, blocks.blocks * blocks.each()),
                           loops::blockedAxis(paired, c.bn, blocks.each()),
                           loops::plainAxis(operand.outerAt, blocks.rows * c.bn), loops::plainAxis(operand.kAt, c.bn)});
  operand.load().index = row * half + mod(kLaneOfN, Expr(half));
  shift.index = floorDiv(kLaneOfN, Expr(half)) * 4;
}

/// Bytes for products of few rows: four rows of a block at a time are 2 bn bytes, of which bytes 4 i to 4 i + 3 have four neighbours along k of column i in
/// the low bits and of column i + bn / 2 in the high ones.
void packFours(const ConstantOperand &operand, const plan::Kernel &kernel, const DotTiling &c, Op &shift) {
  constexpr int64_t kFour = 4;
  const int64_t half = c.bn / 2;
  const WeightBlocks blocks = blocksOf(operand, c, operand.k);
  // In numbers, of which a byte has two.
  loops::Axis columns;
  for (int64_t first = 0; first < operand.n; first += half) {
    const std::vector<int64_t> part(operand.nAt.begin() + first, operand.nAt.begin() + first + half);
    for (loops::AxisPart run : loops::plainAxis(part, kFour * 2)) {
      run.to += first / c.bn * blocks.each() + first / half % 2;
      columns.push_back(std::move(run));
    }
  }
  operand.rewriteFourBits(blocks.all(), {loops::plainAxis(operand.batchAt, blocks.blocks * blocks.each()), columns,
                                         loops::plainAxis(operand.outerAt, blocks.rows * c.bn), loops::blockedAxis(operand.kAt, kFour, kFour * c.bn, 2)});
  const Expr first = blocks.rowAt(kernel, c, operand.place(), 0);
  operand.load().index = first * half + (floorDiv(kK, Expr(kFour)) * half + mod(kLaneOfN, Expr(half))) * kFour + mod(kK, Expr(kFour));
  shift.index = floorDiv(kLaneOfN, Expr(half)) * 4;
}

/// Words of 32 bits: a row of a block is bn of them, each with eight neighbours along k of one column.
void packWords(const ConstantOperand &operand, const plan::Kernel &kernel, const DotTiling &c, Op &shift) {
  constexpr int64_t kInWord = 8;
  const WeightBlocks blocks = blocksOf(operand, c, (operand.k + c.bk - 1) / c.bk * c.bk / kInWord);
  const Expr row = blocks.rowAt(kernel, c, operand.place(), floorDiv(kK, Expr(kInWord)));
  operand.rewriteFourBits(blocks.all() * kInWord,
                          {loops::plainAxis(operand.batchAt, blocks.blocks * blocks.each() * kInWord),
                           loops::blockedAxis(operand.nAt, c.bn, blocks.each() * kInWord, kInWord),
                           loops::plainAxis(operand.outerAt, blocks.rows * c.bn * kInWord),
                           loops::blockedAxis(operand.kAt, kInWord, c.bn * kInWord)});
  operand.load().index = row * c.bn + kLaneOfN;
  shift.index = mod(kK, Expr(kInWord)) * 4;
}

/// Whether their order is that of packFours.
bool packFourBits(plan::Plan &plan, plan::Kernel &kernel, const plan::Users &users, const DotTiling &c,
                  const FourBits &f) {
  auto &body = kernel.nodes[0].get<loops::ContractionSpec>().body;
  const Op &load = body.ops[static_cast<size_t>(f.load)];
  Op &shift = body.ops[static_cast<size_t>(f.shift)];
  const DType dtype = plan.program.buffer(load.buffer).dtype;
  Facts facts = plan.program.facts;
  for (size_t d = 0; d < kernel.xRanges.size(); ++d) facts.setIndex(Symbol::outer(d), kernel.xRanges[d]);
  for (size_t d = 0; d < kernel.rRanges.size(); ++d) facts.setIndex(Symbol::inner(d), kernel.rRanges[d]);
  const Interval by = facts.rangeOf(shift.index);
  if ((dtype != DType::U8 && dtype != DType::I32) || !facts.provablyDivisible(shift.index, 4) || by.lo < 0 ||
      by.hi >= itemSize(dtype) * 8)
    return false;
  const Expr place = facts.simplify(load.index * (itemSize(dtype) * 2) + floorDiv(shift.index, 4));
  const std::optional<ConstantOperand> operand = ConstantOperand::of(plan, kernel, users, c, f.load, place);
  if (!operand || operand->n % c.bn || c.bn % 2 || c.bk % 8) return false;
  const bool fours = c.fours && dtype == DType::U8 && operand->k % c.bk == 0;
  if (fours)
    packFours(*operand, kernel, c, shift);
  else
    dtype == DType::U8 ? packBytes(*operand, kernel, c, shift) : packWords(*operand, kernel, c, shift);
  applied(Rule::PackWeight);
  return fours;
}

/// What an operand that is computed loads is put into the order in which columns are computed, each load for itself.
void packComputed(plan::Plan &plan, plan::Kernel &kernel, const plan::Users &users, DotTiling &c,
                  bool onlyRepeatable) {
  auto &node = kernel.nodes[0].get<loops::ContractionSpec>();
  const std::set<ValueIdx> ofLeft = loops::reachable(node.body, node.lhs);
  std::set<ValueIdx> done;
  bool inFours = false;
  const std::set<ValueIdx> ofRight = loops::reachable(node.body, node.rhs);
  for (ValueIdx i : ofRight) {
    const std::optional<FourBits> f = fourBitsOf(node.body, node.body.ops[static_cast<size_t>(i)]);
    if (!f || ofLeft.count(f->load) || ofLeft.count(f->shift)) continue;
    done.insert(f->load);
    inFours |= !onlyRepeatable && packFourBits(plan, kernel, users, c, *f);
  }
  c.fours = inFours;
  for (ValueIdx i : ofRight) {
    const Op &op = node.body.ops[static_cast<size_t>(i)];
    if (op.kind != OpKind::Load || ofLeft.count(i) || done.count(i)) continue;
    const std::optional<Neighbours> together = neighboursOf(node.body, ofRight, i, plan.program.facts);
    if (!together) continue;
    done.insert(together->loads.begin(), together->loads.end());
    if (const std::optional<ConstantOperand> operand = ConstantOperand::of(plan, kernel, users, c, i, op.index, together->loads.size()))
      packLoad(*operand, kernel, c, *together);
  }
}

} // namespace

std::pair<Expr, Expr> outerPosition(const plan::Kernel &kernel, const DotTiling &c, Expr index) {
  Expr batch = 0, ko = 0;
  for (size_t d : c.batch)
    if (uses(index, Symbol::outer(d))) batch = batch * kernel.xRanges[d] + Symbol::outer(d);
  for (size_t d : c.kOuter) ko = ko * kernel.rRanges[d] + Symbol::inner(d);
  return {batch, ko};
}

void packRightOperand(plan::Plan &plan, plan::Kernel &kernel, const plan::Users &users, DotTiling &c,
                      bool onlyRepeatable) {
  const auto &node = kernel.nodes[0].get<loops::ContractionSpec>();
  if (node.body.ops[static_cast<size_t>(node.rhs)].kind != OpKind::Load)
    return packComputed(plan, kernel, users, c, onlyRepeatable);
  packSharedOperand(plan, {{&kernel, &c}}, users);
}

bool packSharedOperand(plan::Plan &plan, const std::vector<Product> &products, const plan::Users &users) {
  std::vector<ConstantOperand> operands;
  std::vector<WeightBlocks> blocks;
  for (auto [kernel, c] : products) {
    const auto &node = kernel->nodes[0].get<loops::ContractionSpec>();
    std::optional<ConstantOperand> operand = ConstantOperand::of(plan, *kernel, users, *c, node.rhs, node.body.ops[static_cast<size_t>(node.rhs)].index, products.size());
    if (!operand || !operand->isWord()) return false;
    blocks.push_back(blocksOf(*operand, *c, c->partial ? operand->k : (operand->k + c->bk - 1) / c->bk * c->bk));
    operands.push_back(std::move(*operand));
    if (operands.back().buffer().id != operands[0].buffer().id || !operands.back().reads(operands[0]) || blocks.back() != blocks[0]) return false;
  }
  const ConstantOperand &first = operands[0];
  const WeightBlocks &b = blocks[0];
  first.rewrite(b.all(), {loops::plainAxis(first.batchAt, b.blocks * b.each()), loops::blockedAxis(first.nAt, b.bn, b.each()),
                          loops::plainAxis(first.outerAt, b.rows * b.bn), loops::plainAxis(first.kAt, b.bn)});
  for (size_t i = 0; i < products.size(); ++i) {
    // The load in terms of the flat symbols of emitContraction.
    auto [kernel, c] = products[i];
    operands[i].load().index = b.rowAt(*kernel, *c, operands[i].place(), kK) * b.bn + kLaneOfN;
    c->packed = true;
    applied(Rule::PackWeight);
  }
  return true;
}

std::optional<loops::BufferId> rightConstant(const plan::Plan &plan, const plan::Kernel &kernel) {
  const auto &node = kernel.nodes[0].get<loops::ContractionSpec>();
  const Op &op = node.body.ops[static_cast<size_t>(node.rhs)];
  if (op.kind != OpKind::Load || plan.program.buffer(op.buffer).kind != loops::Buffer::Kind::Constant) return std::nullopt;
  return op.buffer;
}

bool orderRightOperand(plan::Plan &plan, plan::Kernel &kernel, const plan::Users &users, const DotTiling &c, bool alongK) {
  const auto &node = kernel.nodes[0].get<loops::ContractionSpec>();
  if (unitStride(node.body, node.rhs, Symbol::inner(c.kInner.back()))) return true;
  if (!alongK && unitStride(node.body, node.rhs, Symbol::outer(c.n.back()))) return false;
  const std::optional<ConstantOperand> operand = ConstantOperand::right(plan, kernel, users, c);
  if (!operand || !operand->isWord()) return false;
  int64_t batches = static_cast<int64_t>(operand->batchAt.size()),
          outer = static_cast<int64_t>(operand->outerAt.size());
  const int64_t column = outer * operand->k;
  operand->rewrite(batches * operand->n * column,
                   {loops::plainAxis(operand->batchAt, operand->n * column), loops::plainAxis(operand->nAt, column),
                    loops::plainAxis(operand->outerAt, operand->k), loops::plainAxis(operand->kAt, 1)});
  auto [batch, ko] = outerPosition(kernel, c, operand->load().index);
  operand->load().index = ((batch * operand->n + kN) * outer + ko) * operand->k + kK;
  applied(Rule::OrderWeight);
  return true;
}

} // namespace neso
