// Sums of very many numbers in few places: a histogram's bins.
#include "base/rules.h"
#include "ir/loops/build.h"
#include "ir/shape/usual.h"
#include "lower/schedule/access.h"
#include "lower/schedule/split.h"

namespace neso::schedule {

using namespace loops;

namespace {

/// Places of which there are copies, at most; updates of one place in one copy, at least, that are worth it; neighbours that update one copy.
constexpr int64_t kMostPlaces = 4096, kLeastUpdates = 16, kNeighbours = 1024;

class UpdateSplitter {
public:
  UpdateSplitter(Program &program, const SplitRule &rule) : program_(program), rule_(rule), nextId_(freeNodeId(program).value) {}

  void run() {
    std::vector<Node> nodes = std::move(program_.nodes);
    for (Node &n : nodes) {
      const int64_t copies = copiesOf(n);
      if (copies > 1) applied(Rule::SplitUpdates), split(std::move(n), copies);
      else out_.push_back(std::move(n));
    }
    program_.nodes = std::move(out_);
  }

private:
  int64_t copiesOf(const Node &n) const {
    const auto *spec = n.as<PointwiseSpec>();
    if (!spec || spec->stores.size() != 1 || spec->stores[0].mode != StoreMode::AtomicAdd) return 1;
    const std::optional<int64_t> places = program_.buffer(spec->stores[0].buffer).elements.asConst();
    if (!places || *places < 1 || *places > kMostPlaces) return 1;
    int64_t updates = 1;
    for (Expr e : n.ranges) updates = std::min<int64_t>(updates * usualSize(e, program_.facts), int64_t{1} << 40);
    int64_t copies = 1;
    while (copies < rule_.updateCopies && updates >= *places * copies * 2 * kLeastUpdates) copies *= 2;
    return copies;
  }

  Node like(const Node &n, const char *what, Expr range, Node::Spec spec) {
    Node out;
    out.id = NodeId(nextId_++), out.name = n.name + what, out.origins = n.origins, out.ranges = {range};
    out.spec = std::move(spec);
    return out;
  }

  /// t[f(i)] += v(i) as copies[f(i), i // 1024 % copies] += v(i), then t += their sum.
  void split(Node n, int64_t copies) {
    Store &store = n.get<PointwiseSpec>().stores[0];
    const BufferId target = store.buffer;
    const DType t = program_.buffer(target).dtype;
    const Expr places = program_.buffer(target).elements, x = Symbol::index(0);
    const BufferId all = addTemp(program_, n.name + "_copies", t, places * Expr(copies)), sums = addTemp(program_, n.name + "_sums", t, places);

    PointwiseSpec zero, add;
    zero.stores = {{all, x, append(zero.body, Op{OpKind::Constant, t})}};
    ReductionSpec sum;
    Reduction total;
    total.kind = ReduceKind::Sum, total.dtype = t;
    total.input = appendLoad(sum.body, all, t, Expr(Symbol::inner(0)) * places + x);
    total.results = {{sums, x, 0}};
    sum.reductions = {total};
    add.stores = {{target, x, appendLoad(add.body, sums, t, x), -1, StoreMode::AtomicAdd}};

    store.buffer = all;
    store.index = store.index + places * mod(floorDiv(rowMajorIndex(n.ranges), Expr(kNeighbours)), Expr(copies));
    Node clear = like(n, "_clear", places * Expr(copies), std::move(zero)), fold = like(n, "_fold", places, std::move(sum)), last = like(n, "_add", places, std::move(add));
    fold.reduceRanges = {Expr(copies)};
    for (Node *node : {&clear, &n, &fold, &last}) out_.push_back(std::move(*node));
  }

  Program &program_;
  const SplitRule &rule_;
  std::vector<Node> out_;
  int32_t nextId_;
};

} // namespace

void splitUpdates(Program &program, const SplitRule &rule) {
  if (rule.updateCopies > 1) UpdateSplitter(program, rule).run();
}

} // namespace neso::schedule
