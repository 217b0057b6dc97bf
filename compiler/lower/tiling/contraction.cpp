#include "lower/tiling/contraction.h"

#include <algorithm>
#include <bit>
#include <set>

#include "base/rules.h"
#include "ir/loops/build.h"
#include "ir/loops/dependences.h"
#include "ir/loops/four_bits.h"

namespace neso {

using loops::dependences;
using loops::Node;
using loops::Op;
using loops::OpKind;

const Symbol kM = Symbol::local("m"), kN = Symbol::local("n"), kK = Symbol::local("k"),
             kBlockOfN = Symbol::local("nblock"), kLaneOfN = Symbol::local("nlane");

namespace {

/// The load that an operand is, behind casts; null when it computes something.
const Op *directLoad(const loops::Body &body, loops::ValueIdx i) {
  const Op *op = &body.ops[static_cast<size_t>(i)];
  while (op->kind == OpKind::Cast) op = &body.ops[static_cast<size_t>(op->a)];
  return op->kind == OpKind::Load ? op : nullptr;
}

/// Whether an operand lies in memory as it is multiplied.
bool lies(const loops::Body &body, loops::ValueIdx i) { return body.ops[static_cast<size_t>(i)].kind == OpKind::Load; }

/// The block of `candidates` with the least work: padded extent, plus what each block costs beside its elements.
int64_t bestBlock(const Facts &facts, Expr extent, std::initializer_list<int64_t> candidates, double overhead) {
  std::optional<int64_t> n = facts.simplify(extent).asConst();
  if (!n) return *candidates.begin();
  int64_t best = 0;
  double bestCost = 0;
  for (int64_t b : candidates) {
    double cost = static_cast<double>((*n + b - 1) / b * b) * (1.0 + overhead / static_cast<double>(b));
    if (best == 0 || cost < bestCost) best = b, bestCost = cost;
  }
  return best;
}

/// Whether some operation behind the sum becomes tens of instructions on a GPU: in the product's own epilogue, or in
/// what is fused behind it.
bool hasLongEpilogue(const plan::Kernel &kernel) {
  auto isLong = [](const Op &op) { return loops::info(op.kind).isLong(); };
  return std::any_of(kernel.nodes.begin(), kernel.nodes.end(), [&](const Node &n) {
    const auto *sum = n.as<loops::ContractionSpec>();
    const loops::Body &behind = sum ? sum->epilogue : n.body();
    return std::any_of(behind.ops.begin(), behind.ops.end(), isLong);
  });
}

/// The shortest group of neighbours along r that share what `value` reads, as quantised weights share a scale; 0: nothing is shared so.
int64_t groupAlong(const loops::Body &body, loops::ValueIdx value, Symbol r) {
  // Numbers that share a word do not count.
  constexpr int64_t kLeast = 16;
  int64_t group = 0;
  auto find = [&](Expr e, auto &&self) -> void {
    if (!uses(e, r)) return;
    const std::vector<Expr> &operands = e.operands();
    if (e.kind() == ExprKind::FloorDiv && operands[0] == Expr(r) && operands[1].isConst() &&
        operands[1].constValue() >= kLeast)
      group = group ? std::min(group, operands[1].constValue()) : operands[1].constValue();
    for (Expr operand : operands) self(operand, self);
  };
  for (loops::ValueIdx i : loops::reachable(body, value))
    if (const Op &op = body.ops[static_cast<size_t>(i)]; op.kind == OpKind::Load) find(op.index, find);
  return group;
}

/// Steps along k for an operand that is computed: within one, all columns have the same scales.
int64_t stepWithin(int64_t bk, int64_t group) {
  while (bk > 1 && group % bk) bk /= 2;
  return bk;
}

/// Both operands as stored reduced floats when each is only widened for the product: the dot widens by itself.
void dropWidening(loops::ContractionSpec &node) {
  auto narrow = [&](loops::ValueIdx i) -> const Op * {
    const Op &op = node.body.ops[static_cast<size_t>(i)];
    if (op.kind != OpKind::Cast || op.dtype != DType::F32) return nullptr;
    return &node.body.ops[static_cast<size_t>(op.a)];
  };
  const Op *a = narrow(node.lhs), *b = narrow(node.rhs);
  if (!a || !b || a->dtype != b->dtype || (a->dtype != DType::BF16 && a->dtype != DType::F16)) return;
  node.lhs = node.body.ops[static_cast<size_t>(node.lhs)].a;
  node.rhs = node.body.ops[static_cast<size_t>(node.rhs)].a;
}

/// Numbers of 8 bits that the target does not multiply as they are become wider ones, in which they are exact.
void widenOperands(loops::ContractionSpec &node, const TileTarget &target) {
  const DType t = node.body.ops[static_cast<size_t>(node.lhs)].dtype;
  if (t != node.body.ops[static_cast<size_t>(node.rhs)].dtype || itemSize(t) != 1) return;
  if (target.threadBlocks && (isFloat8(t) || t == DType::I8)) return;
  for (loops::ValueIdx *operand : {&node.lhs, &node.rhs})
    if (isFloat(t))
      *operand = append(node.body, OpKind::Cast, DType::F16, append(node.body, OpKind::Cast, DType::F32, *operand));
    else if (node.accType == DType::I32)
      *operand = append(node.body, OpKind::Cast, DType::I32, *operand);
}

/// A right operand of so many bytes stays in a core's second cache, or comes from the third fast enough: programs walk all of it for one block of rows
/// before they turn to the next. A thread's share of a launch is then a run of rows, as it is in the kernels before and behind, and what it
/// reads and writes lies in its own core's cache. Where blocks of rows are few, threads share them out better by columns.
constexpr int64_t kCachedRight = 1 << 20, kManyBlocks = 8;
/// Rows that use each element of the right operand once: it is computed where it is multiplied (backend/cpu/dot.cpp).
constexpr int64_t kFewRows = 8;

/// Rows that are multiplied with numbers of four bits as whole numbers (backend/cpu/dot_fixed.cpp): each takes more than a row of floats does, without VNNI
/// half as much again.
constexpr int64_t kFourRows = 2;
/// And their columns and k in a block are multiples of this.
constexpr int64_t kFoursStep = 32;
/// Columns of a program of theirs whose steps along k are short, where that leaves programs enough for all processors.
constexpr int64_t kFoursColumns = 128, kShortStep = 64, kManyPrograms = 32;

/// Few rows of 16 bits times numbers of 8 bits that are exact in 16 (powers of two alone are not in f16) are multiplied as floats: nothing is rounded either way, and the numbers are not
/// narrowed for each row to widen them again.
void dropNarrowing(loops::ContractionSpec &node) {
  auto at = [&](loops::ValueIdx i) -> const Op & { return node.body.ops[static_cast<size_t>(i)]; };
  const DType t = at(node.rhs).dtype;
  if ((t != DType::BF16 && t != DType::F16) || at(node.lhs).dtype != t || at(node.rhs).kind != OpKind::Cast) return;
  const loops::ValueIdx wide = at(node.rhs).a;
  if (at(wide).kind != OpKind::Cast || at(wide).dtype != DType::F32 || itemSize(at(at(wide).a).dtype) != 1 ||
      at(at(wide).a).dtype == DType::F8E8M0FNU)
    return;
  node.rhs = wide;
  node.lhs = append(node.body, OpKind::Cast, DType::F32, node.lhs);
}

/// A scaled and shifted number is computed by one instruction and rounded once: of dequantised weights each costs as much as the product itself.
void fuseScaleAndShift(loops::ContractionSpec &node) {
  auto at = [&](loops::ValueIdx i) -> Op & { return node.body.ops[static_cast<size_t>(i)]; };
  Op &sum = at(node.rhs);
  if (sum.kind != OpKind::Add || sum.dtype != DType::F32) return;
  if (at(sum.a).kind != OpKind::Mul) std::swap(sum.a, sum.b);
  const Op &scaled = at(sum.a);
  if (scaled.kind != OpKind::Mul) return;
  sum.kind = OpKind::Fma, sum.c = sum.b, sum.a = scaled.a, sum.b = scaled.b;
}

/// Whether e, at places along k, may differ within a step of bk.
bool variesWithinStep(Expr e, Symbol k, int64_t bk) {
  if (!uses(e, k)) return false;
  const std::vector<Expr> &operands = e.operands();
  if (e.kind() == ExprKind::FloorDiv && operands[0] == Expr(k) && operands[1].isConst()) return operands[1].constValue() % bk != 0;
  return operands.empty() || std::any_of(operands.begin(), operands.end(), [&](Expr o) { return variesWithinStep(o, k, bk); });
}

/// Whether what is multiplied with x are numbers of four bits as they are: the right operand itself, or that of which sums are scaled.
bool multipliesFourBits(const loops::ContractionSpec &node, const DotTiling &c) {
  auto at = [&](loops::ValueIdx i) -> const Op & { return node.body.ops[static_cast<size_t>(i)]; };
  const loops::ValueIdx number = c.scalesSums ? *scaledNumberOf(node) : node.rhs;
  if (c.kInner.size() != 1 || at(number).kind != OpKind::Cast || at(number).dtype != DType::F32) return false;
  if (!loops::isFourBits(node.body, at(at(number).a))) return false;
  const std::set<loops::ValueIdx> ofNumber = loops::reachable(node.body, number);
  for (loops::ValueIdx i : loops::reachable(node.body, node.rhs))
    if (!ofNumber.count(i) && at(i).kind == OpKind::Load && variesWithinStep(at(i).index, Symbol::inner(c.kInner[0]), c.bk)) return false;
  return true;
}

/// Steps along k of fewer elements than this are not worth a loop: all of k is one. Rows of 4 bytes and more that lie side by side in memory are
/// multiplied there, where flattened ones would be gathered (channels of a group of a convolution).
int64_t leastStep(const loops::ContractionSpec &node, size_t inner, const TileTarget &target) {
  constexpr int64_t kLeast = 16, kLeastInPlace = 8;
  const bool inPlace = !target.threadBlocks && lies(node.body, node.lhs) && unitStride(node.body, node.lhs, Symbol::inner(inner)) &&
                       itemSize(node.body.ops[static_cast<size_t>(node.lhs)].dtype) >= 4;
  return inPlace ? kLeastInPlace : kLeast;
}

/// Steps of so many k or more are worth a multiplication of their sums.
constexpr int64_t kScaledStep = 16;

/// Blocks of a contraction that a CPU multiplies, in what order programs walk them, and how much of the last block of k.
void chooseCpuBlocks(DotTiling &c, const plan::Kernel &kernel, const Facts &facts, const TileTarget &target) {
  const auto &node = kernel.nodes[0].get<loops::ContractionSpec>();
  const int64_t size = itemSize(node.body.ops[static_cast<size_t>(node.rhs)].dtype);
  const std::optional<int64_t> m = c.mSize.asConst(), n = c.nSize.asConst(), k = c.kSize.asConst();
  c.bm = std::min(target.dotM, bestBlock(facts, c.mSize, {64, 32, 16, 8, 4, 2, 1}, 2));
  c.bn = std::min(target.dotN, bestBlock(facts, c.nSize, {64, 32, 16}, 4));
  c.bk = std::min(target.dotK, bestBlock(facts, c.kSize, {256, 128, 64, 32, 16}, 2));
  // Types that have no instructions for more than one k, operands that lie in memory: no more of a block of k is multiplied than counts.
  if (k && *k >= 8 && size >= 4 && lies(node.body, node.lhs) && lies(node.body, node.rhs)) {
    c.bk = std::min(target.dotK, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(*k))));
    c.partial = *k % c.bk != 0;
  }
  if (m && *m < c.bm) c.validRows = *m;
  if (c.kInner.size() == 1 && !directLoad(node.body, node.rhs))
    if (const int64_t group = groupAlong(node.body, node.rhs, Symbol::inner(c.kInner[0]))) c.bk = stepWithin(c.bk, group);
  const std::optional<int64_t> right = Expr(c.nSize * c.kSize * productOf(kernel.rRanges, c.kOuter)).asConst();
  c.rowsFirst = m && right && *m >= kManyBlocks * c.bm && *right * size <= kCachedRight;
  c.scalesSums = m.value_or(kFewRows + 1) <= kFewRows && c.bk >= kScaledStep && scaledNumberOf(node);
  if (c.scalesSums) applied(Rule::ScaleSums);
  c.fours = m.value_or(kFourRows + 1) <= kFourRows && c.bn % kFoursStep == 0 && c.bk % kFoursStep == 0 && multipliesFourBits(node, c);
  // Each program brings x into fixed point for itself; what a step takes beside its elements counts where it is short.
  if (c.fours && c.bk <= kShortStep && n && *n % kFoursColumns == 0 && *n / kFoursColumns >= kManyPrograms) c.bn = kFoursColumns;
}

/// Of products of few rows with numbers of four bits: warps of a program, and their steps along k; rows that a program with 16 columns has, more have 32.
constexpr int64_t kSlices = 8, kStepOfSlices = 128, kLeastStepOfSlices = 32, kRowsOfNarrow = 8;

/// Few rows of 16-bit floats times scaled numbers of four bits, which are narrowed to the rows' type: it is the memory's rate that counts, so that each number is read
/// once, by the thread whose tensor core takes it, and sums are scaled. Changes the right operand to what is narrowed.
bool chooseSlices(DotTiling &c, loops::ContractionSpec &node, const plan::Kernel &kernel) {
  auto at = [&](loops::ValueIdx i) -> const Op & { return node.body.ops[static_cast<size_t>(i)]; };
  const DType t = at(node.lhs).dtype;
  const std::optional<int64_t> m = c.mSize.asConst(), k = c.kSize.asConst();
  if ((t != DType::BF16 && t != DType::F16) || at(node.rhs).kind != OpKind::Cast || at(at(node.rhs).a).dtype != DType::F32) return false;
  if (!m || *m > loops::kRowsOfFourBits || !k || c.kInner.size() != 1 || !c.kOuter.empty() || !c.batch.empty() || kernel.serial) return false;
  loops::ContractionSpec narrow = node;
  DotTiling sliced = c;
  narrow.rhs = at(node.rhs).a;
  fuseScaleAndShift(narrow);
  if (!scaledNumberOf(narrow)) return false;
  sliced.scalesSums = true, sliced.slices = kSlices;
  const int64_t group = groupAlong(narrow.body, narrow.rhs, Symbol::inner(c.kInner[0]));
  sliced.bk = stepWithin(kStepOfSlices, group);
  if (sliced.bk < kLeastStepOfSlices || *k % sliced.bk || *k / sliced.bk < kSlices || !multipliesFourBits(narrow, sliced)) return false;
  sliced.bm = *m <= 16 ? 16 : 32, sliced.bn = *m <= kRowsOfNarrow ? 16 : 32, sliced.warps = static_cast<int>(kSlices), sliced.stages = 1;
  c = std::move(sliced), node = std::move(narrow);
  applied(Rule::ScaleSums);
  return true;
}

} // namespace

std::optional<loops::ValueIdx> scaledNumberOf(const loops::ContractionSpec &node) {
  auto at = [&](loops::ValueIdx i) -> const Op & { return node.body.ops[static_cast<size_t>(i)]; };
  auto number = [&](loops::ValueIdx i) {
    return at(i).kind == OpKind::Cast && at(i).dtype == DType::F32 && isInteger(at(at(i).a).dtype);
  };
  const Op &right = at(node.rhs);
  if (right.dtype != DType::F32 || (right.kind != OpKind::Mul && right.kind != OpKind::Fma)) return std::nullopt;
  if (number(right.a) == number(right.b)) return std::nullopt;
  return number(right.a) ? right.a : right.b;
}

bool unitStride(const loops::Body &body, loops::ValueIdx value, Symbol s) {
  const Op *load = directLoad(body, value);
  if (!load) return false;
  std::optional<Affine> a = affineIn(load->index, s);
  return a && a->coefficient.isConst(1);
}

Expr productOf(const std::vector<Expr> &ranges, const std::vector<size_t> &dims) {
  Expr out = 1;
  for (size_t d : dims) out = out * ranges[d];
  return out;
}

bool maySplit(const plan::Kernel &kernel, const TileTarget &target) {
  const auto &node = kernel.nodes[0].get<loops::ContractionSpec>();
  return node.body.ops[static_cast<size_t>(node.lhs)].dtype == DType::F32 && target.f32Products == tile::F32Products::Tf32x3 &&
         !target.machine.splitBlocks.empty();
}

DotSizes sizesOf(const DotTiling &c, const plan::Kernel &kernel, const Facts &facts) {
  const auto &node = kernel.nodes[0].get<loops::ContractionSpec>();
  return {usualSize(productOf(kernel.xRanges, c.batch), facts), roomySize(c.mSize, facts), roomySize(c.nSize, facts), usualSize(c.kSize, facts),
          itemSize(node.body.ops[static_cast<size_t>(node.lhs)].dtype), c.split, lies(node.body, node.lhs) && lies(node.body, node.rhs),
          hasLongEpilogue(kernel), isFloat8(node.body.ops[static_cast<size_t>(node.lhs)].dtype)};
}

void chooseDotBlocks(DotTiling &c, const plan::Kernel &kernel, const Facts &facts, const TileTarget &target) {
  const DotBlock block = dotBlock(target, sizesOf(c, kernel, facts));
  c.bm = block.m, c.bn = block.n, c.bk = block.k;
  c.warps = block.warps, c.stages = block.stages;
}

void chooseUnpackedRows(DotTiling &c, const plan::Kernel &kernel) {
  // AVX-512, one thread: 197 x 3072 x 768 (right operand along k) takes 16.2 ms in 16 rows, 12.0 in 64, 8.1 in 128 and 7.1 in 256, 512 x 3072 x 768 19.3, 18.2 and 17.3 in 64
  // to 256. Sums of 256 rows fit the second cache with the block of the right operand. Operands of 16 bits gain nothing.
  constexpr int64_t kMostRows = 256, kLeastRows = 16, kLeastPrograms = 16, kLeastBytes = 4;
  const auto &node = kernel.nodes[0].get<loops::ContractionSpec>();
  const std::optional<int64_t> m = c.mSize.asConst(), columns = Expr(productOf(kernel.xRanges, c.batch) * ceilDiv(c.nSize, c.bn)).asConst();
  if (!m || !columns || itemSize(node.body.ops[static_cast<size_t>(node.rhs)].dtype) < kLeastBytes) return;
  // One row with a right operand whose rows are read from memory in pieces: 768 x 3072, AVX-512, two threads, 18.4 GB/s in pieces of 256 bytes and 21 in 512.
  constexpr int64_t kLongPiece = 128;
  const std::optional<int64_t> n = c.nSize.asConst();
  if (*m == 1 && c.n.size() == 1 && unitStride(node.body, node.rhs, Symbol::outer(c.n[0])) && n && *n % kLongPiece == 0 && *n / kLongPiece >= kLeastPrograms)
    c.bn = kLongPiece;
  auto programs = [&](int64_t rows) { return *columns * ((*m + rows - 1) / rows); };
  int64_t rows = std::min(kMostRows, nextPowerOfTwo(*m));
  while (rows > kLeastRows && programs(rows) < kLeastPrograms) rows /= 2;
  if (rows <= c.bm) return;
  c.bm = rows, c.validRows = *m < rows ? *m : 0;
}

std::optional<DotTiling> chooseDotTiling(plan::Kernel &kernel, const Facts &facts, const TileTarget &target) {
  auto &node = kernel.nodes[0].get<loops::ContractionSpec>();
  dropWidening(node);
  widenOperands(node, target);
  DType a = node.body.ops[static_cast<size_t>(node.lhs)].dtype, b = node.body.ops[static_cast<size_t>(node.rhs)].dtype;
  bool dottable = a == b && (a == DType::F32 || a == DType::F16 || a == DType::BF16) && node.accType == DType::F32;
  dottable |= a == b && a == node.accType && a == DType::F64;
  // A CPU multiplies wide integers as it does f32.
  dottable |= !target.threadBlocks && a == b && a == node.accType && (a == DType::I32 || a == DType::I64);
  // Tensor cores multiply numbers of 8 bits, too.
  dottable |= target.threadBlocks && a == b && ((a == DType::I8 && node.accType == DType::I32) || (isFloat8(a) && node.accType == DType::F32));
  if (!dottable || kernel.rRanges.empty()) return std::nullopt;

  auto classify = [&](DotTiling &c) {
    std::set<Symbol> left = dependences(node.body, node.lhs), right = dependences(node.body, node.rhs);
    for (size_t d = 0; d < kernel.xRanges.size(); ++d) {
      bool inLeft = left.count(Symbol::outer(d)), inRight = right.count(Symbol::outer(d));
      (inLeft == inRight ? c.batch : inLeft ? c.m : c.n).push_back(d);
    }
  };
  DotTiling c;
  classify(c);
  // The dimension along which the result is contiguous belongs to n, whose lanes are stored.
  auto stored = [&](const std::vector<size_t> &dims) {
    if (dims.empty() || node.stores.empty()) return false;
    std::optional<Affine> s = affineIn(node.stores[0].index, Symbol::outer(dims.back()));
    return s && s->coefficient.isConst(1);
  };
  if (stored(c.m) && !stored(c.n)) {
    std::swap(node.lhs, node.rhs);
    std::swap(c.m, c.n);
    applied(Rule::SwapOperands);
  }
  if (c.n.empty()) return std::nullopt;
  if (target.threadBlocks) {
    c.mSize = productOf(kernel.xRanges, c.m), c.nSize = productOf(kernel.xRanges, c.n), c.kSize = productOf(kernel.rRanges, {0});
    if (kernel.rRanges.size() == 1) {
      c.kInner = {0};
      if (chooseSlices(c, node, kernel)) return c;
      c.kInner.clear();
    }
  }
  fuseScaleAndShift(node);
  if (!target.threadBlocks && productOf(kernel.xRanges, c.m).asConst().value_or(kFewRows + 1) <= kFewRows)
    dropNarrowing(node);
  size_t lastR = kernel.rRanges.size() - 1;
  // A vector times a matrix that is computed from narrow weights: a product would compute each element for 16 rows of which one counts.
  if (target.threadBlocks && c.m.empty() && !directLoad(node.body, node.rhs)) return std::nullopt;
  // A vector times a matrix whose rows run along k: as row sums it reads memory in order, without packing.
  if (c.m.empty() && unitStride(node.body, node.rhs, Symbol::inner(lastR)) &&
      facts.rangeOf(kernel.rRanges[lastR]).lo >= 16)
    return std::nullopt;

  // Blocks of k run along the dimension in which an operand is contiguous.
  size_t inner = lastR;
  for (size_t d = 0; d < kernel.rRanges.size(); ++d)
    if (unitStride(node.body, node.lhs, Symbol::inner(d))) inner = d;
  bool constantK = true;
  for (Expr e : kernel.rRanges) constantK &= e.isConst();
  std::optional<int64_t> innerExtent = kernel.rRanges[inner].asConst();
  bool flattenAll = constantK && innerExtent && *innerExtent < leastStep(node, inner, target);
  // One loop for a software pipeline, where a block of k stays within one position of the outer dimensions.
  if (target.threadBlocks && constantK && innerExtent) flattenAll |= inner == lastR && *innerExtent % target.dotK == 0;
  for (size_t d = 0; d < kernel.rRanges.size(); ++d) (flattenAll || d == inner ? c.kInner : c.kOuter).push_back(d);

  c.mSize = productOf(kernel.xRanges, c.m), c.nSize = productOf(kernel.xRanges, c.n),
  c.kSize = productOf(kernel.rRanges, c.kInner);
  if (target.threadBlocks) {
    c.split = maySplit(kernel, target) && unitStride(node.body, node.rhs, Symbol::inner(inner));
    chooseDotBlocks(c, kernel, facts, target);
    return c;
  }
  chooseCpuBlocks(c, kernel, facts, target);
  return c;
}

void contractionToReduction(plan::Plan &plan, plan::Kernel &kernel) {
  const Node &given = kernel.nodes[0];
  const auto &node = given.get<loops::ContractionSpec>();
  const loops::BufferId sum = addTemp(plan.program, kernel.name + "_sum", node.accType, 1);
  plan.placements.emplace_back();

  loops::ReductionSpec reduction{node.body, {}};
  auto inAccType = [&](loops::ValueIdx i) {
    if (reduction.body.ops[static_cast<size_t>(i)].dtype == node.accType) return i;
    return append(reduction.body, OpKind::Cast, node.accType, i);
  };
  const loops::ValueIdx lhs = inAccType(node.lhs), rhs = inAccType(node.rhs);
  loops::Reduction red;
  red.dtype = node.accType, red.input = append(reduction.body, OpKind::Mul, node.accType, lhs, rhs);
  red.results = {{sum, 0, 0}};
  reduction.reductions = {red};

  Node after = given;
  loops::Body found;
  appendLoad(found, sum, node.accType, 0);
  after.spec = epilogueOf(node, std::move(found)), after.reduceRanges.clear();

  kernel.kind = Node::Kind::Reduction;
  kernel.nodes[0].spec = std::move(reduction);
  kernel.nodes.insert(kernel.nodes.begin() + 1, std::move(after));
}

} // namespace neso
