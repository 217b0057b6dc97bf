#include "lower/schedule/split.h"

#include <algorithm>

#include "base/rules.h"
#include "ir/loops/build.h"
#include "lower/schedule/access.h"

namespace neso::schedule {

using namespace loops;

namespace {

bool splittable(ReduceKind k) {
  switch (k) {
  case ReduceKind::Sum:
  case ReduceKind::Prod:
  case ReduceKind::Min:
  case ReduceKind::Max:
  case ReduceKind::Any:
  case ReduceKind::All:
  case ReduceKind::XorSum: return true;
  default: return false;
  }
}

/// The largest number of equal parts of `extent`, within limits; 1 if there is none.
int64_t partsOf(const SplitRule &rule, int64_t most, int64_t extent, int64_t rest) {
  for (int64_t parts = std::min(most, extent); parts >= rule.leastParts; --parts)
    if (extent % parts == 0 && extent / parts * rest >= rule.leastPart) return parts;
  return 1;
}

/// Whether some load of the node runs along the results and none along the reduction.
bool runsAcross(const Node &n) {
  bool along = false, across = false;
  auto unit = [](Expr index, Symbol s) {
    std::optional<Affine> a = affineIn(index, s);
    return a && a->coefficient.isConst(1);
  };
  forEachAccess(n, [&](const Access &a) {
    if (a.mode != AccessMode::Read) return;
    along |= unit(a.index, Symbol::inner(n.reduceRanges.size() - 1));
    across |= !n.ranges.empty() && unit(a.index, Symbol::index(n.ranges.size() - 1));
  });
  return across && !along;
}

} // namespace

/// Neighbouring results that one program of a column reduction computes.
constexpr int64_t kColumnsOfProgram = 64;
/// Programs of a column reduction in place of one of a row.
constexpr int64_t kColumnPrograms = 4;

SplitRule SplitRule::manyProcessors(const MachineSheet &machine) {
  const int64_t processors = machine.processors;
  SplitRule r;
  r.machine = machine;
  r.fewRows = processors / 4, r.fewColumns = processors * kColumnsOfProgram;
  r.longRow = 16384, r.longColumn = 512;
  r.leastPart = 128, r.leastParts = 4, r.mostParts = processors * 4;
  r.programs = processors * 4;
  r.longestSort = 8192;
  r.sortByDigits = false;
  r.scanTile = 16384, r.fewScans = processors * 2, r.longScan = 32768;
  r.contractions = true;
  return r;
}

void splitReductions(Program &program, const SplitRule &rule) {
  std::vector<Node> nodes;
  int32_t nextId = freeNodeId(program).value;
  for (Node &n : program.nodes) {
    int64_t results = 1, length = 1;
    for (Expr e : n.ranges) results *= usualSize(e, program.facts);
    for (Expr e : n.reduceRanges) length *= usualSize(e, program.facts);
    auto *folds = n.as<ReductionSpec>();
    bool across = folds && runsAcross(n);
    bool fits = folds && results <= (across ? rule.fewColumns : rule.fewRows) &&
                length >= (across ? rule.longColumn : rule.longRow);
    int64_t alone = std::max<int64_t>(across ? results / kColumnsOfProgram : results, 1);
    // Programs of a column reduction are small: several run on one processor.
    int64_t programs = across && rule.programs < INT64_MAX ? rule.programs * kColumnPrograms : rule.programs;
    int64_t most = std::min(rule.mostParts, std::max<int64_t>(programs / alone, 1));
    for (const Reduction &r : n.reductions())
      fits &= splittable(r.kind) && isFloat(r.dtype) == isFloat(n.body().ops[static_cast<size_t>(r.input)].dtype);
    int64_t parts = 1;
    if (fits && n.reduceRanges[0].isConst()) {
      int64_t first = n.reduceRanges[0].constValue();
      if (first > 0) parts = partsOf(rule, most, first, length / first);
    }
    if (parts == 1) {
      nodes.push_back(std::move(n));
      continue;
    }
    applied(Rule::SplitReduction);
    // r0 = part * (extent / parts) + r0, with the part as a new outer dimension.
    Expr step = n.reduceRanges[0].constValue() / parts;
    Expr part = Symbol::index(n.ranges.size());
    Node second;
    second.id = NodeId(nextId++);
    second.name = n.name + "_total";
    second.origins = n.origins;
    second.ranges = n.ranges;
    second.reduceRanges = {Expr(parts)};
    const Expr row = rowMajorIndex(n.ranges);
    // Partial results lie as both kernels touch them: neighbouring columns side by side, or the parts of a row.
    auto placeOf = [&](Expr p) { return across ? p * product(second.ranges) + row : row * Expr(parts) + p; };
    SymbolMap<Expr> map = {{Symbol::inner(0), part * step + Symbol::inner(0)}};
    mapExprs(n, [&](Expr e) { return substitute(e, map); });
    n.ranges.push_back(Expr(parts));
    n.reduceRanges[0] = step;
    n.name += "_parts";
    auto &totals = second.spec.emplace<ReductionSpec>();
    for (Reduction &r : folds->reductions) {
      bool logic = r.kind == ReduceKind::Any || r.kind == ReduceKind::All;
      const DType t = logic ? DType::Bool : r.dtype;
      const BufferId partial = addTemp(program, program.buffer(r.results[0].buffer).name + "_parts", t,
                                       product(second.ranges) * Expr(parts));
      Reduction total = r;
      total.input = appendLoad(totals.body, partial, t, placeOf(Symbol::inner(0)));
      totals.reductions.push_back(std::move(total));
      r.results = {{partial, placeOf(part), 0}};
    }
    nodes.push_back(std::move(n));
    nodes.push_back(std::move(second));
  }
  program.nodes = std::move(nodes);
}

} // namespace neso::schedule
