#include "lower/schedule/split.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <set>

#include "base/rules.h"
#include "ir/loops/build.h"
#include "lower/schedule/access.h"
#include "lower/schedule/users.h"

namespace neso::schedule {

using namespace loops;

ValueIdx readInside(Body &body, Expr position, Expr extent, const std::vector<ValueIdx *> &roots) {
  Body out;
  const ValueIdx at = appendIndex(out, position), end = appendIndex(out, extent), inside = append(out, OpKind::Lt, DType::Bool, at, end);
  std::vector<ValueIdx> now;
  auto also = [&](ValueIdx mask) { return mask < 0 ? inside : append(out, OpKind::And, DType::Bool, inside, mask); };
  for (Op op : body.ops) {
    for (ValueIdx *operand : {&op.a, &op.b, &op.c})
      if (*operand >= 0) *operand = now[static_cast<size_t>(*operand)];
    if (op.kind == OpKind::Load) op.a = also(op.a);
    if (op.kind == OpKind::Indirect) op.b = also(op.b);
    now.push_back(append(out, op));
  }
  for (ValueIdx *root : roots) *root = now[static_cast<size_t>(*root)];
  body = std::move(out);
  return inside;
}

namespace {

bool splittable(ReduceKind k) {
  switch (k) {
  case ReduceKind::Sum:
  case ReduceKind::Prod:
  case ReduceKind::Min:
  case ReduceKind::Max:
  case ReduceKind::Any:
  case ReduceKind::All:
  case ReduceKind::XorSum:
  case ReduceKind::ArgMin:
  case ReduceKind::ArgMax:
  case ReduceKind::Welford: return true;
  default: return false;
  }
}

bool isPosition(const Reduction &r) { return r.kind == ReduceKind::ArgMin || r.kind == ReduceKind::ArgMax; }

/// The largest number of equal parts of `extent`, within limits; 1 if there is none.
int64_t equalParts(const SplitRule &rule, int64_t most, int64_t extent, int64_t rest) {
  for (int64_t parts = std::min(most, extent); parts >= rule.leastParts; --parts)
    if (extent % parts == 0 && extent / parts * rest >= rule.leastPart) return parts;
  return 1;
}

bool isUnit(Expr index, Symbol s) {
  std::optional<Affine> a = affineIn(index, s);
  return a && a->coefficient.isConst(1);
}

/// Whether some load of the node runs along the results and none along the reduction.
bool runsAcross(const Node &n) {
  bool along = false, across = false;
  forEachAccess(n, [&](const Access &a) {
    if (a.mode != AccessMode::Read) return;
    along |= isUnit(a.index, Symbol::inner(n.reduceRanges.size() - 1));
    across |= !n.ranges.empty() && isUnit(a.index, Symbol::index(n.ranges.size() - 1));
  });
  return across && !along;
}

/// Whether what the access reads along dimension d of the reduction is a few elements side by side, behind which those of the next
/// result follow.
bool isShortRun(const Node &n, const Access &a, size_t d, int64_t longest) {
  const Expr extent = n.reduceRanges[d];
  // Programs that take one run at a time are busy with longer ones.
  if (!extent.isConst() || extent.constValue() > longest) return false;
  for (size_t x = 0; x < n.ranges.size(); ++x) {
    std::optional<Affine> step = affineIn(a.index, Symbol::index(x));
    if (!n.ranges[x].isConst(1) && step && step->coefficient == extent) return true;
  }
  return false;
}

/// The dimension of the reduction that all that is read along lines of memory has as a short run: the channels of a group where
/// channels are innermost. With a result for each of its elements, added up afterwards, whole lines are read.
std::optional<size_t> shortRun(const Node &n, const Program &program, int64_t longest) {
  std::optional<size_t> found;
  constexpr int64_t kLeastAcross = 64; // windows of pools are not worth a second kernel
  bool others = false;
  forEachAccess(n, [&](const Access &a) {
    if (a.mode != AccessMode::Read) return;
    for (size_t d = 0; d < n.reduceRanges.size(); ++d) {
      if (n.reduceRanges[d].isConst(1) || !isUnit(a.index, Symbol::inner(d))) continue;
      others |= !isShortRun(n, a, d, longest) || (found && *found != d);
      found = d;
    }
  });
  int64_t across = 1;
  for (size_t d = 0; d < n.reduceRanges.size(); ++d)
    if (found != d) across *= usualSize(n.reduceRanges[d], program.facts);
  return others || across < kLeastAcross ? std::nullopt : found;
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
  r.longestRun = 512;
  r.siblings = Siblings::WherePays, r.contractions = true, r.attention = true, r.unknownLengths = true, r.updateCopies = 64;
  return r;
}

namespace {

/// Parts of an unknown length have so many times more elements at least: they take more to compute.
constexpr int64_t kUnknownParts = 2;
/// Parts begin at multiples of so many elements, so that these are read together.
constexpr int64_t kLine = 16;

/// What changes no result of such a reduction.
Op neutralOf(ReduceKind kind, DType t) {
  const bool isMax = kind == ReduceKind::Max || kind == ReduceKind::ArgMax, isMin = kind == ReduceKind::Min || kind == ReduceKind::ArgMin;
  Op out{OpKind::Constant, t};
  if (isMax || isMin) {
    out.imm = isMax ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
    if (!isFloat(t)) out.immInt = extremeOf(t, isMin);
  } else if (kind == ReduceKind::Prod || kind == ReduceKind::All) {
    out.imm = 1, out.immInt = 1;
  }
  return out;
}

/// Elements of the reduction whose `position` is not below `extent` take no part, and nothing of them is read.
void keepInside(ReductionSpec &spec, Expr position, Expr extent) {
  std::vector<ValueIdx *> inputs;
  for (Reduction &r : spec.reductions) inputs.push_back(&r.input);
  const ValueIdx inside = readInside(spec.body, position, extent, inputs);
  for (Reduction &r : spec.reductions) {
    const DType t = spec.body.ops[static_cast<size_t>(r.input)].dtype;
    const ValueIdx neutral = append(spec.body, neutralOf(r.kind, t));
    r.input = append(spec.body, OpKind::Where, t, inside, r.input, neutral);
  }
}

/// How a reduction becomes two.
struct Cut {
  Expr parts = 1;
  size_t dim = 0;            // of the reduction: the one that is cut
  bool across = false;       // neighbouring results share a program
  std::optional<size_t> run; // of the reduction: each element of this one is a result of its own at first
};

class ReductionSplitter {
public:
  ReductionSplitter(Program &program, const SplitRule &rule)
      : program_(program), rule_(rule), nextId_(freeNodeId(program).value) {}

  void run() {
    const std::set<const Node *> together = rule_.unknownLengths ? walkedTogether() : std::set<const Node *>();
    for (Node &n : program_.nodes) {
      const bool alone = !together.contains(&n);
      if (deviatesOverUnknown(n))
        for (Node &pass : passesOf(n)) add(std::move(pass), alone);
      else
        add(std::move(n), alone);
    }
    program_.nodes = std::move(nodes_);
  }

private:
  void add(Node n, bool alone) {
    if (std::optional<Cut> cut = cutOf(n, alone))
      applied(Rule::SplitReduction), split(std::move(n), *cut);
    else
      nodes_.push_back(std::move(n));
  }

  /// Reductions over loops that are walked again with their results, as who divides a row by its sum does, and those that do: rows that are good in one
  /// kernel. Of lengths that only the run knows.
  std::set<const Node *> walkedTogether() {
    std::set<const Node *> out;
    const Users users(program_);
    for (const Node &n : program_.nodes) {
      const auto *folds = n.as<ReductionSpec>();
      if (!folds || isKnown(n)) continue;
      constexpr size_t kMost = 16; // buffers that are followed
      std::vector<BufferId> todo;
      std::set<BufferId> seen;
      auto follow = [&](const std::vector<Store> &written) {
        for (const Store &s : written)
          if (seen.size() < kMost && seen.insert(s.buffer).second) todo.push_back(s.buffer);
      };
      for (const Reduction &r : folds->reductions) follow(r.results);
      auto walks = [&](const std::vector<Expr> &ranges) {
        return std::any_of(ranges.begin(), ranges.end(), [&](Expr e) { return !e.isConst() && std::find(n.reduceRanges.begin(), n.reduceRanges.end(), e) != n.reduceRanges.end(); });
      };
      for (size_t k = 0; k < todo.size(); ++k)
        for (const Node *reader : users.of(todo[k])) {
          if (reader == &n) continue;
          if (walks(reader->ranges) || walks(reader->reduceRanges)) out.insert(&n);
          if (walks(reader->reduceRanges)) out.insert(reader);
          if (const auto *pointwise = reader->as<PointwiseSpec>()) follow(pointwise->stores);
        }
    }
    return out;
  }

  static bool isKnown(const Node &n) {
    return std::all_of(n.reduceRanges.begin(), n.reduceRanges.end(), [](Expr e) { return e.isConst(); });
  }

  /// Whether the node would be cut if it did not ask for squared deviations: parts of an unknown length are not equally long, which these ask for.
  bool deviatesOverUnknown(const Node &n) const {
    const auto *folds = n.as<ReductionSpec>();
    auto deviates = [](const Reduction &r) { return r.kind == ReduceKind::Welford; };
    if (!folds || isKnown(n) || !rule_.unknownLengths || !std::all_of(folds->reductions.begin(), folds->reductions.end(), deviates)) return false;
    Cut cut;
    cut.across = runsAcross(n);
    return canBeSplit(n, *folds) && (partsOf(n, cut) > 1 || (cut.across && mayBeFew(n) && !partsOfUnknown(n, cut).isConst(1)));
  }

  /// Means and squared deviations as two sums: of the elements, then of the squares of what they are apart from the mean.
  std::vector<Node> passesOf(const Node &n) {
    const auto &folds = n.get<ReductionSpec>();
    ReductionSpec first{folds.body, {}}, second{folds.body, {}};
    PointwiseSpec between;
    const Expr row = rowMajorIndex(n.ranges), results = product(n.ranges);
    for (const Reduction &r : folds.reductions) {
      const DType t = r.dtype;
      const std::string &name = program_.buffer(r.results[0].buffer).name;
      const BufferId sums = addTemp(program_, name + "_sum", t, results), means = addTemp(program_, name + "_mean", t, results);
      Reduction sum = r, squares = r;
      sum.kind = squares.kind = ReduceKind::Sum;
      sum.results = {{sums, row, 0}}, squares.results.clear();
      first.reductions.push_back(std::move(sum));
      const ValueIdx total = appendLoad(between.body, sums, t, row), index = appendIndex(between.body, product(n.reduceRanges));
      const ValueIdx count = append(between.body, OpKind::Cast, t, index), mean = append(between.body, OpKind::Div, t, total, count);
      between.stores.push_back({means, row, mean});
      for (Store s : r.results) {
        if (s.value == 1) s.value = 0, squares.results.push_back(s);
        else s.value = s.value == 0 ? mean : count, between.stores.push_back(s);
      }
      const ValueIdx center = appendLoad(second.body, means, t, row), apart = append(second.body, OpKind::Sub, t, r.input, center);
      squares.input = append(second.body, OpKind::Mul, t, apart, apart);
      if (!squares.results.empty()) second.reductions.push_back(std::move(squares));
    }
    std::vector<Node> out;
    out.push_back(like(n, "_sum", std::move(first)));
    out.back().reduceRanges = n.reduceRanges;
    out.push_back(like(n, "_mean", std::move(between)));
    if (!second.reductions.empty()) {
      out.push_back(like(n, "_squares", std::move(second)));
      out.back().reduceRanges = n.reduceRanges;
    }
    return out;
  }

  bool canBeSplit(const Node &n, const ReductionSpec &folds) const {
    return std::all_of(folds.reductions.begin(), folds.reductions.end(), [&](const Reduction &r) {
      return splittable(r.kind) && isFloat(r.dtype) == isFloat(n.body().ops[static_cast<size_t>(r.input)].dtype);
    });
  }

  /// `alone`: not walked together with others.
  std::optional<Cut> cutOf(const Node &n, bool alone) const {
    const auto *folds = n.as<ReductionSpec>();
    if (!folds || !canBeSplit(n, *folds)) return std::nullopt;
    Cut cut;
    const bool known = isKnown(n);
    auto is = [&](auto test) { return std::any_of(folds->reductions.begin(), folds->reductions.end(), test); };
    if (!known && (!rule_.unknownLengths || is([](const Reduction &r) { return r.kind == ReduceKind::Welford; }))) return std::nullopt;
    // Positions are counted along the loops as they are: a part of them must be one piece.
    if (known && !is(isPosition)) cut.run = shortRun(n, program_, rule_.longestRun);
    cut.across = cut.run || runsAcross(n);
    cut.dim = cut.run == 0 ? 1 : 0;
    const int64_t parts = partsOf(n, cut);
    cut.parts = parts;
    // A row in one kernel is one program's, as long as it is; a column that is walked again is read from memory by many in either case.
    if (!known && (parts > 1 || ((alone || cut.across) && mayBeFew(n)))) cut.parts = partsOfUnknown(n, cut);
    return !cut.parts.isConst(1) || cut.run ? std::optional(cut) : std::nullopt;
  }

  /// Whether a run may have so few results that parts pay: not where there are usually very many.
  bool mayBeFew(const Node &n) const {
    constexpr int64_t kMany = int64_t(1) << 19;
    int64_t results = 1;
    for (Expr e : n.ranges) results = std::min<int64_t>(results * usualSize(e, program_.facts), int64_t(1) << 40);
    return results <= kMany;
  }

  /// As many as the run's sizes ask for, by the rule of partsOf.
  Expr partsOfUnknown(const Node &n, const Cut &cut) const {
    const Expr results = max(Expr(1), product(n.ranges)), length = product(n.reduceRanges);
    const int64_t few = cut.across ? rule_.fewColumns : rule_.fewRows, least = cut.across ? rule_.longColumn : rule_.longRow;
    if (program_.facts.rangeOf(results).lo > few || program_.facts.rangeOf(length).hi < least) return 1;
    const Expr alone = cut.across ? max(Expr(1), floorDiv(results, Expr(kColumnsOfProgram))) : results;
    const Expr most = min(Expr(rule_.mostParts), max(Expr(1), floorDiv(Expr(programsOf(cut)), alone)));
    const Expr parts = min(min(most, max(Expr(1), n.reduceRanges[cut.dim])), max(Expr(1), floorDiv(length, Expr(rule_.leastPart * kUnknownParts))));
    return where(logicalAnd(le(results, Expr(few)), le(Expr(least), length)), parts, Expr(1));
  }

  /// How long a loop is likely to be. A number that data decide has no example, but often a bound, and is often a good part of it.
  int64_t likely(Expr e) const {
    constexpr int64_t kShare = 8, kMost = int64_t(1) << 32;
    const int64_t usual = usualSize(e, program_.facts), bound = program_.facts.rangeOf(e).hi;
    return bound < kMost && !e.isConst() ? std::max(usual, bound / kShare) : usual;
  }

  /// Programs of a column reduction are small: several run on one processor.
  int64_t programsOf(const Cut &cut) const { return cut.across && rule_.programs < INT64_MAX ? rule_.programs * kColumnPrograms : rule_.programs; }

  int64_t partsOf(const Node &n, const Cut &cut) const {
    int64_t results = 1, length = 1;
    for (Expr e : n.ranges) results *= usualSize(e, program_.facts);
    for (size_t d = 0; d < n.reduceRanges.size(); ++d)
      (cut.run == d ? results : length) *= likely(n.reduceRanges[d]);
    if (results > (cut.across ? rule_.fewColumns : rule_.fewRows)) return 1;
    if (length < (cut.across ? rule_.longColumn : rule_.longRow)) return 1;
    const int64_t alone = std::max<int64_t>(cut.across ? results / kColumnsOfProgram : results, 1);
    const int64_t most = std::min(rule_.mostParts, std::max<int64_t>(programsOf(cut) / alone, 1));
    if (cut.dim >= n.reduceRanges.size()) return 1;
    const std::optional<int64_t> extent = n.reduceRanges[cut.dim].asConst();
    if (extent) return *extent > 0 ? equalParts(rule_, most, *extent, length / *extent) : 1;
    const int64_t parts = std::min({most, likely(n.reduceRanges[cut.dim]), length / (rule_.leastPart * kUnknownParts)});
    return parts >= rule_.leastParts ? parts : 1;
  }

  Node like(const Node &n, const char *what, Node::Spec spec) {
    Node out;
    out.id = NodeId(nextId_++), out.name = n.name + what, out.origins = n.origins, out.ranges = n.ranges;
    out.spec = std::move(spec);
    return out;
  }

  /// The dimension that is cut becomes part * (extent / parts) + r, with the part as a new outer dimension behind that of the
  /// run, if there is one. Partial results lie as both kernels touch them: neighbouring columns side by side; or the parts of a
  /// row, with those of a run's elements, which the second kernel then reads in one step.
  void split(Node n, const Cut &cut) {
    const Expr results = product(n.ranges), row = rowMajorIndex(n.ranges), whole = product(n.reduceRanges);
    const Expr run = cut.run ? n.reduceRanges[*cut.run] : Expr(1), extent = n.reduceRanges[cut.dim];
    // Of an unknown length, or in an unknown number, the last parts are shorter, or empty.
    const bool equal = extent.isConst() && cut.parts.isConst();
    const int64_t multiple = cut.dim + 1 == n.reduceRanges.size() && !cut.across ? kLine : 1;
    const Expr step = equal ? floorDiv(extent, cut.parts) : ceilDiv(extent, cut.parts * multiple) * multiple;
    Node second = like(n, "_total", ReductionSpec{}), third = like(n, "_whole", PointwiseSpec{});
    second.reduceRanges = cut.run ? std::vector<Expr>{run, cut.parts} : std::vector<Expr>{cut.parts};
    const Expr ofRun = cut.run ? Expr(Symbol::index(n.ranges.size())) : Expr(0);
    if (cut.run) n.ranges.push_back(run);
    const Expr part = Symbol::index(n.ranges.size());
    n.ranges.push_back(cut.parts);
    // Also of a row whose parts only the run knows: with one part neighbouring results are neighbours.
    const bool isPartFirst = (cut.across && !cut.run) || !equal;
    auto placeOf = [&](Expr p, Expr e) {
      return isPartFirst ? p * results + row : (row * run + e) * cut.parts + p;
    };
    SymbolMap<Expr> map;
    std::vector<Expr> reduced;
    for (size_t d = 0; d < n.reduceRanges.size(); ++d) {
      if (cut.run == d) {
        map[Symbol::inner(d)] = ofRun;
        continue;
      }
      const Expr inner = Symbol::inner(reduced.size());
      map[Symbol::inner(d)] = d == cut.dim ? part * step + inner : inner;
      reduced.push_back(d == cut.dim ? step : n.reduceRanges[d]);
    }
    mapExprs(n, [&](Expr e) { return substitute(e, map); });
    n.reduceRanges = reduced;
    if (!equal) keepInside(n.get<ReductionSpec>(), map[Symbol::inner(cut.dim)], extent);
    n.name += "_parts";
    Partial partial{results * run * cut.parts, placeOf(part, ofRun),
                    cut.run ? placeOf(Symbol::inner(1), Symbol::inner(0)) : placeOf(Symbol::inner(0), 0), row, product(reduced), whole, cut.parts, placeOf};
    auto &reductions = n.get<ReductionSpec>().reductions;
    for (size_t i = 0, count = reductions.size(); i < count; ++i) {
      Reduction &r = reductions[i];
      if (r.kind == ReduceKind::Welford) splitDeviation(r, partial, second, third);
      else if (isPosition(r)) reductions.push_back(splitPosition(r, partial, second, third));
      else splitFold(r, partial, second);
    }
    if (isPartFirst) partFirst(n);
    nodes_.push_back(std::move(n));
    nodes_.push_back(std::move(second));
    if (!third.stores().empty()) nodes_.push_back(std::move(third));
  }

  /// The part, the last dimension, becomes the first: neighbouring results stay neighbours in the loops, whose order positions keep.
  static void partFirst(Node &n) {
    SymbolMap<Expr> map;
    const size_t last = n.ranges.size() - 1;
    for (size_t d = 0; d <= last; ++d) map[Symbol::index(d)] = Expr(Symbol::index(d == last ? 0 : d + 1));
    mapExprs(n, [&](Expr e) { return substitute(e, map); });
    std::rotate(n.ranges.begin(), n.ranges.end() - 1, n.ranges.end());
  }

  /// Where partial results lie: how many there are, where one is stored and loaded, where its row's total is; and how many elements
  /// are folded into one, and into all of a row.
  struct Partial {
    Expr elements, stored, loaded, row, each, whole;
    Expr parts;
    std::function<Expr(Expr, Expr)> place; // of a part's result and the run's element
  };

  void splitFold(Reduction &r, const Partial &p, Node &second) {
    const bool logic = r.kind == ReduceKind::Any || r.kind == ReduceKind::All;
    const DType t = logic ? DType::Bool : r.dtype;
    const BufferId partial = addTemp(program_, program_.buffer(r.results[0].buffer).name + "_parts", t, p.elements);
    auto &totals = second.get<ReductionSpec>();
    Reduction total = r;
    total.input = appendLoad(totals.body, partial, t, p.loaded);
    totals.reductions.push_back(std::move(total));
    r.results = {{partial, p.stored, 0}};
  }

  /// Mean and squared deviations M of a row from those of parts that are equally long: the mean of the parts' means; the sum of
  /// the parts' M, and the squared deviations of their means, once for each element.
  void splitDeviation(Reduction &r, const Partial &p, Node &second, Node &third) {
    const std::string name = program_.buffer(r.results[0].buffer).name;
    const DType t = r.dtype;
    const BufferId means = addTemp(program_, name + "_means", t, p.elements),
                   deviations = addTemp(program_, name + "_deviations", t, p.elements),
                   between = addTemp(program_, name + "_between", t, product(second.ranges)),
                   within = addTemp(program_, name + "_within", t, product(second.ranges));
    auto &totals = second.get<ReductionSpec>();
    Reduction ofMeans = r, sum = r;
    ofMeans.input = appendLoad(totals.body, means, t, p.loaded);
    ofMeans.results = {{between, p.row, 1}};
    sum.kind = ReduceKind::Sum, sum.input = appendLoad(totals.body, deviations, t, p.loaded);
    sum.results = {{within, p.row, 0}};
    auto &after = third.get<PointwiseSpec>();
    auto number = [&](Expr e) {
      const ValueIdx index = appendIndex(after.body, e);
      return append(after.body, OpKind::Cast, t, index);
    };
    const ValueIdx ofAll = appendLoad(after.body, between, t, p.row), ofEach = appendLoad(after.body, within, t, p.row);
    const ValueIdx each = number(p.each), scaled = append(after.body, OpKind::Mul, t, ofAll, each),
                   all = append(after.body, OpKind::Add, t, ofEach, scaled);
    for (Store s : r.results) {
      if (s.value == 0) {
        ofMeans.results.push_back(s);
        continue;
      }
      s.value = s.value == 1 ? all : number(p.whole);
      after.stores.push_back(s);
    }
    totals.reductions.push_back(std::move(ofMeans));
    totals.reductions.push_back(std::move(sum));
    r.results = {{means, p.stored, 0}, {deviations, p.stored, 1}};
  }

  /// The position of an extreme: each part has its own and the extreme itself, which is the reduction that this gives; the first part with the
  /// extreme of all has the position.
  Reduction splitPosition(Reduction &r, const Partial &p, Node &second, Node &third) {
    const std::string name = program_.buffer(r.results[0].buffer).name;
    const BufferId extremes = addTemp(program_, name + "_parts", r.dtype, p.elements), positions = addTemp(program_, name + "_positions", DType::I64, p.elements),
                   winners = addTemp(program_, name + "_part", DType::I64, product(second.ranges));
    auto &totals = second.get<ReductionSpec>();
    Reduction winner = r, extreme = r;
    winner.input = appendLoad(totals.body, extremes, r.dtype, p.loaded);
    winner.results = {{winners, p.row, 0}};
    totals.reductions.push_back(std::move(winner));
    auto &after = third.get<PointwiseSpec>();
    Op part{OpKind::Indirect, DType::I64};
    part.a = appendLoad(after.body, winners, DType::I64, p.row);
    part.symbol = Symbol::indirect(indirectsOf(after.body)), part.bound = p.parts;
    append(after.body, part);
    const ValueIdx inside = appendLoad(after.body, positions, DType::I64, p.place(part.symbol, 0)), before = appendIndex(after.body, part.symbol * p.each);
    const ValueIdx whole = append(after.body, OpKind::Add, DType::I64, before, inside);
    for (Store s : r.results) s.value = whole, after.stores.push_back(s);
    extreme.kind = r.kind == ReduceKind::ArgMax ? ReduceKind::Max : ReduceKind::Min;
    extreme.results = {{extremes, p.stored, 0}};
    r.results = {{positions, p.stored, 0}};
    return extreme;
  }

  static size_t indirectsOf(const Body &body) {
    return static_cast<size_t>(std::count_if(body.ops.begin(), body.ops.end(), [](const Op &op) { return op.kind == OpKind::Indirect; }));
  }

  Program &program_;
  const SplitRule &rule_;
  int32_t nextId_;
  std::vector<Node> nodes_;
};

} // namespace

void splitReductions(Program &program, const SplitRule &rule) { ReductionSplitter(program, rule).run(); }

} // namespace neso::schedule
