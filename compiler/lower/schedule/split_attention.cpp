#include <algorithm>
#include <optional>

#include "base/rules.h"
#include "ir/loops/access.h"
#include "ir/loops/build.h"
#include "ir/shape/usual.h"
#include "lower/schedule/split.h"

namespace neso::schedule {

using namespace loops;

namespace {

using Axis = AttentionSpec::Axis;
const Symbol kBatch = AttentionSpec::symbol(Axis::Batch), kHead = AttentionSpec::symbol(Axis::Head), kQuery = AttentionSpec::symbol(Axis::Query),
             kKey = AttentionSpec::symbol(Axis::Key), kElement = AttentionSpec::symbol(Axis::Element);

/// Rows of a program's block, at most, and queries that share their keys with other heads' (each head has to have few, or its own block reads them once anyway).
constexpr int64_t kBlockRows = 64, kFewQueries = 16;
/// Keys of a part: multiples of a block of them, and worth a part from so many on. Parts of a row, at most.
constexpr int64_t kKeyBlock = 64, kLeastKeys = 256, kMostParts = 128;
/// Programs of attention that a processor holds at a time.
constexpr int64_t kProgramsTogether = 2;

void substituteAll(AttentionSpec &spec, const SymbolMap<Expr> &map) {
  for (AttentionSpec::Operand *o : {&spec.q, &spec.k, &spec.v, &spec.mask, &spec.out, &spec.logSum})
    if (o->buffer.valid()) o->index = substitute(o->index, map);
}

/// How many heads one after the other read the same keys and values: the most that divide `heads` and are at most `most`.
int64_t headsTogether(const AttentionSpec &spec, int64_t heads, int64_t most) {
  for (int64_t g = std::min(heads, most); g > 1; --g) {
    if (heads % g != 0) continue;
    const auto of = [&](Expr index, int64_t which) { return substitute(index, {{kHead, Expr(kHead) * g + which}}); };
    bool same = true;
    for (const AttentionSpec::Operand *o : {&spec.k, &spec.v})
      for (int64_t which = 1; which < g && same; ++which) same = of(o->index, which) == of(o->index, 0);
    if (same) return g;
  }
  return 1;
}

class Splitter {
public:
  Splitter(Program &program, const SplitRule &rule) : program_(program), rule_(rule), nextId_(freeNodeId(program).value) {}

  void run() {
    std::vector<Node> nodes;
    for (Node &n : program_.nodes) {
      auto *spec = n.as<AttentionSpec>();
      const bool plain = spec && !spec->causal && !spec->emptyIsNan && !spec->keys.valid() && !spec->logSum.buffer.valid();
      if (plain) joinHeads(n, *spec);
      const Expr parts = plain ? partsOf(n, *spec) : Expr(1);
      if (parts.isConst(1))
        nodes.push_back(std::move(n));
      else
        applied(Rule::SplitAttention), split(std::move(n), parts, nodes);
    }
    program_.nodes = std::move(nodes);
  }

private:
  /// Few queries of several heads that share keys become rows of one head: [B, H, M] to [B, H / g, g * M].
  void joinHeads(Node &n, AttentionSpec &spec) {
    const std::optional<int64_t> heads = n.ranges[1].asConst(), queries = n.ranges[2].asConst();
    if (!heads || !queries || *queries < 1 || *queries > kFewQueries) return;
    const int64_t g = headsTogether(spec, *heads, kBlockRows / *queries);
    if (g == 1) return;
    applied(Rule::JoinAttentionHeads);
    for (AttentionSpec::Operand *o : {&spec.k, &spec.v}) o->index = substitute(o->index, {{kHead, Expr(kHead) * g}});
    const SymbolMap<Expr> rows = {{kHead, Expr(kHead) * g + floorDiv(Expr(kQuery), *queries)}, {kQuery, mod(Expr(kQuery), *queries)}};
    for (AttentionSpec::Operand *o : {&spec.q, &spec.mask, &spec.out})
      if (o->buffer.valid()) o->index = substitute(o->index, rows);
    n.ranges[1] = *heads / g, n.ranges[2] = g * *queries;
  }

  /// As many parts of the keys as the processors have room for, of the sizes that a run has. Blocks of many rows are left alone: they are many, or long.
  Expr partsOf(const Node &n, const AttentionSpec &spec) const {
    const Facts &facts = program_.facts;
    if (facts.rangeOf(n.ranges[2]).hi > kBlockRows || facts.rangeOf(spec.keyLength).hi < 2 * kLeastKeys) return 1;
    auto parts = [&](Expr programs, Expr keys) {
      return max(1, min(min(floorDiv(kProgramsTogether * rule_.machine.processors, max(programs, 1)), kMostParts), floorDiv(keys, kLeastKeys)));
    };
    const Expr programs = n.ranges[0] * n.ranges[1], keys = spec.keyLength;
    const std::optional<int64_t> all = programs.asConst();
    if (all && parts(*all, std::min<int64_t>(facts.rangeOf(keys).hi, int64_t(1) << 30)).isConst(1)) return 1;
    return parts(programs, keys);
  }

  Node like(const Node &n, const char *what) {
    Node out;
    out.id = NodeId(nextId_++), out.name = n.name + what, out.origins = n.origins, out.ranges = n.ranges;
    return out;
  }

  /// n → the attention to each part of the keys, whose numbers are further batches; then what the parts give, each weighed by its share of the exponentials
  /// (Dao, FlashAttention-2, 2023, 3.2; "Flash-Decoding").
  void split(Node n, Expr parts, std::vector<Node> &nodes) {
    AttentionSpec &spec = n.get<AttentionSpec>();
    const std::vector<Expr> ranges = n.ranges;
    const Expr rows = ranges[1] * ranges[2], row = Expr(kHead) * ranges[2] + kQuery;
    const Expr length = spec.keyLength, step = ceilDiv(length, parts * kKeyBlock) * kKeyBlock;
    const BufferId values = addTemp(program_, n.name + "_parts", DType::F32, ranges[0] * parts * rows * ranges[3]),
                   sums = addTemp(program_, n.name + "_sums", DType::F32, ranges[0] * parts * rows);
    const AttentionSpec::Operand out = spec.out;

    // Part p of batch b is batch b * parts + p.
    const bool one = ranges[0].isConst(1);
    const Expr part = one ? Expr(kBatch) : mod(Expr(kBatch), parts), batch = one ? Expr(0) : floorDiv(Expr(kBatch), parts);
    substituteAll(spec, {{kBatch, batch}, {kKey, part * step + kKey}});
    spec.keyLength = step;
    if (!(parts * step == length)) spec.keys = max(0, min(step, length - part * step));
    spec.out = {values, (kBatch * rows + row) * ranges[3] + kElement, DType::F32};
    spec.logSum = {sums, kBatch * rows + row, DType::F32};
    n.ranges[0] = ranges[0] * parts;

    const Expr i[] = {Symbol::index(0), Symbol::index(1), Symbol::index(2), Symbol::index(3)}, p = Symbol::inner(0), dense = rowMajorIndex(ranges);
    const Expr where = (i[0] * parts + p) * rows + i[1] * ranges[2] + i[2];
    const Expr total = product(ranges);
    const BufferId top = addTemp(program_, n.name + "_top", DType::F32, total), weighed = addTemp(program_, n.name + "_weighed", DType::F32, total),
                   weights = addTemp(program_, n.name + "_weights", DType::F32, total);
    // The largest of the sums, once more for each element: in one kernel with what follows it costs no memory.
    Node most = like(n, "_top");
    most.ranges = ranges, most.reduceRanges = {parts};
    auto &ofMost = most.spec.emplace<ReductionSpec>();
    ofMost.reductions = {{ReduceKind::Max, DType::F32, appendLoad(ofMost.body, sums, DType::F32, where), {{top, dense, 0}}}};

    Node sum = like(n, "_weighed");
    sum.ranges = ranges, sum.reduceRanges = {parts};
    auto &ofSum = sum.spec.emplace<ReductionSpec>();
    Body &body = ofSum.body;
    const ValueIdx own = appendLoad(body, sums, DType::F32, where), best = appendLoad(body, top, DType::F32, dense), zero = append(body, Op{OpKind::Constant, DType::F32});
    Op infinite{OpKind::Constant, DType::F32};
    infinite.imm = -std::numeric_limits<double>::infinity();
    const ValueIdx none = append(body, infinite), empty = append(body, OpKind::Eq, DType::Bool, own, none);
    const ValueIdx weight = append(body, OpKind::Where, DType::F32, empty, zero, append(body, OpKind::Exp, DType::F32, append(body, OpKind::Sub, DType::F32, own, best)));
    const ValueIdx value = append(body, OpKind::Mul, DType::F32, weight, appendLoad(body, values, DType::F32, where * ranges[3] + i[3]));
    ofSum.reductions = {{ReduceKind::Sum, DType::F32, value, {{weighed, dense, 0}}}, {ReduceKind::Sum, DType::F32, weight, {{weights, dense, 0}}}};

    Node last = like(n, "_sum");
    last.ranges = ranges;
    auto &ofLast = last.spec.emplace<PointwiseSpec>();
    Body &end = ofLast.body;
    const ValueIdx share = appendLoad(end, weights, DType::F32, dense), nothing = append(end, Op{OpKind::Constant, DType::F32});
    const ValueIdx quotient = append(end, OpKind::Div, DType::F32, appendLoad(end, weighed, DType::F32, dense), share);
    ValueIdx result = append(end, OpKind::Where, DType::F32, append(end, OpKind::Eq, DType::Bool, share, nothing), nothing, quotient);
    if (out.dtype != DType::F32) result = append(end, OpKind::Cast, out.dtype, result);
    ofLast.stores = {{out.buffer, substitute(out.index, {{kBatch, i[0]}, {kHead, i[1]}, {kQuery, i[2]}, {kElement, i[3]}}), result}};

    n.name += "_parts";
    for (Node *made : {&n, &most, &sum, &last}) nodes.push_back(std::move(*made));
  }

  Program &program_;
  const SplitRule &rule_;
  int32_t nextId_;
};

} // namespace

void splitAttention(Program &program, const SplitRule &rule) {
  if (rule.attention) Splitter(program, rule).run();
}

} // namespace neso::schedule
