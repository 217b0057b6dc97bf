#include <algorithm>
#include <optional>
#include <set>

#include "base/rules.h"
#include "ir/loops/access.h"
#include "ir/loops/build.h"
#include "ir/loops/four_bits.h"
#include "ir/shape/usual.h"
#include "lower/schedule/product_time.h"
#include "lower/schedule/split.h"
#include "lower/schedule/users.h"

namespace neso::schedule {

using namespace loops;

namespace {

/// Index expressions of the reduction's dimensions, where the last range of the node has become the part: `n` gets its
/// new ranges.
void cut(Node &n, int64_t parts) {
  Expr part = Symbol::index(n.ranges.size());
  size_t last = n.reduceRanges.size() - 1;
  int64_t innermost = n.reduceRanges[last].constValue(), positions = 1;
  for (size_t d = 0; d < last; ++d) positions *= n.reduceRanges[d].constValue();
  int64_t length = positions * innermost / parts;
  Expr position, inner;
  std::vector<Expr> ranges;
  if (length < innermost) {
    int64_t perPosition = innermost / length;
    position = floorDiv(part, perPosition);
    inner = mod(part, perPosition) * Expr(length) + Symbol::inner(0);
    ranges = {Expr(length)};
  } else {
    int64_t each = length / innermost;
    position = each == 1 ? part : part * Expr(each) + Symbol::inner(0);
    inner = Symbol::inner(each == 1 ? 0 : 1);
    ranges = {Expr(innermost)};
    if (each > 1) ranges.insert(ranges.begin(), Expr(each));
  }
  SymbolMap<Expr> map = {{Symbol::inner(last), inner}};
  for (size_t d = last; d-- > 0;) {
    map[Symbol::inner(d)] = d == 0 ? position : mod(position, n.reduceRanges[d]);
    position = floorDiv(position, n.reduceRanges[d]);
  }
  mapExprs(n, [&](Expr e) { return substitute(e, map); });
  n.ranges.push_back(Expr(parts));
  n.reduceRanges = ranges;
}

/// A k that only the run knows: parts are multiples of so many elements, and worth it from so many on. A part costs its block of the result, too.
constexpr int64_t kStep = 64, kLeastUnknown = 1024, kMostParts = 128;
/// Rows and columns of a block, and elements of all parts of the result, at most.
constexpr int64_t kBlock = 128, kMostPartial = int64_t(1) << 24;

/// As many as the run's sizes ask for, where a long k would be worth any: what is exported with a short one may get a long one. One part costs a launch more, and
/// the result written twice.
Expr partsOfUnknown(const ProductShape &s, Expr length, const Facts &facts, int64_t processors) {
  constexpr int64_t kLong = int64_t(1) << 16;
  auto parts = [&](Expr programs, Expr k, Expr results) {
    return max(1, min(min(floorDiv(processors, max(programs, 1)), kMostParts), min(floorDiv(k, kLeastUnknown), floorDiv(kMostPartial, max(results, 1)))));
  };
  const Expr results = s.matrices * s.rows * s.columns, programs = s.matrices * ceilDiv(s.rows, kBlock) * ceilDiv(s.columns, kBlock);
  const int64_t likely = std::min(facts.rangeOf(length).hi, std::max(s.k, kLong));
  if (parts(usualSize(programs, facts), likely, usualSize(results, facts)).isConst(1)) return 1;
  return parts(programs, length, results);
}

/// The same for a k that only the run knows.
void cutUnknown(Node &n, Expr parts) {
  const Expr length = n.reduceRanges[0], step = ceilDiv(length, parts * kStep) * kStep, position = Expr(Symbol::index(n.ranges.size())) * step + Symbol::inner(0);
  mapExprs(n, [&](Expr e) { return substitute(e, {{Symbol::inner(0), position}}); });
  auto &product = n.get<ContractionSpec>();
  const ValueIdx inside = readInside(product.body, position, length, {&product.lhs, &product.rhs});
  for (ValueIdx *operand : {&product.lhs, &product.rhs}) {
    const Op op = product.body.ops[static_cast<size_t>(*operand)];
    if (op.kind == OpKind::Load && op.b < 0) continue; // 0 as it is
    const ValueIdx zero = append(product.body, Op{OpKind::Constant, op.dtype});
    *operand = append(product.body, OpKind::Where, op.dtype, inside, *operand, zero);
  }
  n.ranges.push_back(parts);
  n.reduceRanges = {step};
}

class Splitter {
public:
  Splitter(Program &program, const SplitRule &rule)
      : program_(program), rule_(rule), nextId_(freeNodeId(program).value) {}

  void run() {
    std::vector<Expr> parts;
    const Users users(program_);
    for (const Node &n : program_.nodes) {
      const auto *product = n.as<ContractionSpec>();
      parts.push_back(product ? partsOf(n, *product, users) : Expr(1));
    }
    std::vector<Node> nodes;
    for (size_t i = 0; i < parts.size(); ++i) {
      Node &n = program_.nodes[i];
      if (parts[i].isConst(1))
        nodes.push_back(std::move(n));
      else
        applied(Rule::SplitContraction), split(std::move(n), parts[i], nodes);
    }
    program_.nodes = std::move(nodes);
  }

private:
  /// Whether who reads the result is a reduction (a norm, a softmax), behind pointwise nodes at most: its kernel computes them, too.
  static bool isSummedBehind(const std::vector<Store> &stores, const Users &users) {
    constexpr size_t kMost = 8; // buffers that are followed
    std::vector<BufferId> todo;
    std::set<int64_t> seen;
    auto follow = [&](const std::vector<Store> &written) {
      for (const Store &s : written)
        if (seen.size() < kMost && seen.insert(s.buffer.value).second) todo.push_back(s.buffer);
    };
    follow(stores);
    while (!todo.empty()) {
      const BufferId buffer = todo.back();
      todo.pop_back();
      for (const Node *reader : users.of(buffer)) {
        if (reader->kind() == Node::Kind::Reduction) return true;
        if (const auto *pointwise = reader->as<PointwiseSpec>()) follow(pointwise->stores);
      }
    }
    return false;
  }

  Expr partsOf(const Node &n, const ContractionSpec &c, const Users &users) const {
    if (c.accType != DType::F32 || n.reduceRanges.empty()) return 1;
    ProductShape s = shapeOf(n, c, program_.facts);
    // A vector times a matrix is a reduction.
    if (s.m < 16 || s.n < 16) return 1;
    if (rule_.unknownLengths && n.reduceRanges.size() == 1 && !n.reduceRanges[0].isConst())
      return partsOfUnknown(s, n.reduceRanges[0], program_.facts, rule_.machine.processors);
    for (Expr e : n.reduceRanges)
      if (!e.isConst() || e.constValue() <= 0) return 1;
    // Its warps cut k themselves.
    if (s.m <= kRowsOfFourBits && usesFourBits(c.body, c.rhs)) return 1;
    s.m = roomySize(s.rows, program_.facts), s.n = roomySize(s.columns, program_.facts);
    s.summedBehind = isSummedBehind(c.stores, users);
    return bestParts(s, n.reduceRanges.back().constValue(), rule_.machine);
  }

  Node like(const Node &n, const char *what) {
    Node out;
    out.id = NodeId(nextId_++), out.name = n.name + what, out.origins = n.origins,
    out.ranges = n.ranges;
    return out;
  }

  /// n → products of the parts, and the epilogue of their sum, for fusion to join with what is behind.
  void split(Node n, Expr parts, std::vector<Node> &nodes) {
    const Expr total = product(n.ranges), row = rowMajorIndex(n.ranges);
    const BufferId partial = addTemp(program_, n.name + "_parts", DType::F32, total * parts);
    auto &product = n.get<ContractionSpec>();
    Node after = like(n, "_epilogue");
    Body sum;
    auto part = [&](Body &body, Expr p) { return appendLoad(body, partial, DType::F32, p * total + row); };
    std::optional<Node> fold;
    if (const int64_t few = parts.asConst().value_or(INT64_MAX); few <= kUnrolledParts) {
      ValueIdx value = part(sum, 0);
      for (int64_t p = 1; p < few; ++p) {
        const ValueIdx next = part(sum, p);
        value = append(sum, OpKind::Add, DType::F32, value, next);
      }
    } else {
      const BufferId summed = addTemp(program_, n.name + "_sum", DType::F32, total);
      fold = like(n, "_sum");
      fold->reduceRanges = {parts};
      auto &spec = fold->spec.emplace<ReductionSpec>();
      Reduction reduction;
      reduction.kind = ReduceKind::Sum, reduction.dtype = DType::F32;
      reduction.input = part(spec.body, Symbol::inner(0));
      reduction.results = {{summed, row, 0}};
      spec.reductions = {reduction};
      appendLoad(sum, summed, DType::F32, row);
    }
    after.spec = epilogueOf(product, std::move(sum));

    n.reduceRanges[0].isConst() ? cut(n, parts.constValue()) : cutUnknown(n, parts);
    n.name += "_parts";
    product.epilogue.ops.clear();
    append(product.epilogue, OpKind::Constant, DType::F32);
    product.stores = {{partial, Symbol::index(n.ranges.size() - 1) * total + row, 0}};
    nodes.push_back(std::move(n));
    if (fold) nodes.push_back(std::move(*fold));
    nodes.push_back(std::move(after));
  }

  Program &program_;
  const SplitRule &rule_;
  int32_t nextId_;
};

} // namespace

void splitContractions(Program &program, const SplitRule &rule) {
  if (rule.contractions) Splitter(program, rule).run();
}

} // namespace neso::schedule
