#include "lower/tiling/packing.h"

#include <map>

#include "base/rules.h"
#include "ir/loops/build.h"
#include "ir/plan/steps.h"
#include "ir/shape/usual.h"
#include "lower/tiling/weight_blocks.h"

namespace neso {

using loops::Op;
using loops::OpKind;

namespace {

/// Rows of a program of the kernel that packs: so many along k, and all columns of the block; then the same at the next place of the outer k, whose elements lie beside
/// those (taps of a convolution).
constexpr int64_t kRows = 16;

class Packing {
public:
  Packing(plan::Plan &plan, plan::Kernel &reader, DotTiling &c) : plan_(plan), reader_(reader), c_(c) {}

  std::optional<plan::Kernel> run() {
    if (!fits() || !pays()) return std::nullopt;
    const loops::BufferId to = addBuffer();
    plan::Kernel out = kernelTo(to);
    const Expr row = blocks_.rowAt(reader_, c_, load().index, kK);
    load().buffer = to, load().index = row * c_.bn + kLaneOfN;
    c_.packed = true;
    applied(Rule::PackGiven);
    return out;
  }

private:
  loops::ContractionSpec &spec() const { return reader_.nodes[0].get<loops::ContractionSpec>(); }
  Op &load() const { return spec().body.ops[static_cast<size_t>(spec().rhs)]; }

  /// A load of memory that the compiler does not know, and every extent is known.
  bool fits() {
    const Op &op = load();
    if (op.kind != OpKind::Load || op.a >= 0) return false;
    const loops::Buffer &buffer = plan_.program.buffer(op.buffer);
    if (buffer.kind == loops::Buffer::Kind::Constant || (itemSize(buffer.dtype) != 4 && itemSize(buffer.dtype) != 2)) return false;
    for (Symbol s : symbolsOf(op.index))
      if (s.kind() != Symbol::Kind::Outer && s.kind() != Symbol::Kind::Inner) return false;
    n_ = c_.nSize.asConst().value_or(0), k_ = c_.kSize.asConst().value_or(0);
    const int64_t batches = productOf(reader_.xRanges, used(c_.batch)).asConst().value_or(0), outer = productOf(reader_.rRanges, c_.kOuter).asConst().value_or(0);
    const int64_t rows = c_.partial ? k_ : (k_ + c_.bk - 1) / c_.bk * c_.bk;
    blocks_ = {batches, (n_ + c_.bn - 1) / c_.bn, outer, rows, c_.bn};
    return n_ > 0 && k_ > 0 && batches > 0 && outer > 0;
  }

  /// Elements side by side along k or n are read by vectors as they are, and stay in the cache of the program that reads them: packed inside of the product they take no
  /// more than here (512 rows times 1,536 x 512 numbers are as fast either way, in bf16 twice as fast so). Weights of a convolution lie side by side along neither. They
  /// gain from the second block of rows on: 196 pixels of 256 channels take 2.8 ms in place of 9.7, 49 of 512 as long as before.
  bool pays() const {
    const bool inOrder = unitStride(spec().body, spec().rhs, Symbol::inner(c_.kInner.back())) || unitStride(spec().body, spec().rhs, Symbol::outer(c_.n.back()));
    return !inOrder && usualSize(c_.mSize, plan_.program.facts) > c_.bm;
  }

  std::vector<size_t> used(const std::vector<size_t> &batch) const {
    std::vector<size_t> out;
    for (size_t d : batch)
      if (uses(load().index, Symbol::outer(d))) out.push_back(d);
    return out;
  }

  loops::BufferId addBuffer() {
    plan::Placement where;
    where.where = plan::Placement::Where::Arena;
    plan_.placements.push_back(where);
    const loops::Buffer &given = plan_.program.buffer(load().buffer);
    const std::string name = given.name + "_packed";
    const loops::BufferId to = addTemp(plan_.program, name, given.dtype, blocks_.all());
    plan_.placements[to.index()].bytes = plan::paddedBytes(plan_.program.buffer(to));
    return to;
  }

  /// A dimension more; its symbol.
  Symbol dimension(plan::Kernel &kernel, Expr extent) const {
    kernel.xRanges.push_back(extent);
    return Symbol::outer(kernel.xRanges.size() - 1);
  }
  /// Dimensions of the reader at the places that a flat one says, last dimension fastest.
  static void split(Expr flat, const std::vector<size_t> &dims, const std::vector<Expr> &ranges, Symbol (*symbolOf)(size_t), SymbolMap<Expr> &at) {
    for (size_t i = dims.size(); i-- > 0;) {
      at[symbolOf(dims[i])] = i == 0 ? flat : mod(flat, ranges[dims[i]]);
      flat = floorDiv(flat, ranges[dims[i]]);
    }
  }

  plan::Kernel kernelTo(loops::BufferId to) const {
    plan::Kernel kernel;
    kernel.name = reader_.name + "_pack", kernel.kind = loops::Node::Kind::Pointwise;
    kernel.decisions = {fmt::format("puts '{}' into the order in which {} reads it", plan_.program.buffer(load().buffer).name, reader_.name)};
    SymbolMap<Expr> at;
    Expr batch = 0, outer = 0;
    for (size_t d : used(c_.batch)) {
      const Expr x = dimension(kernel, reader_.xRanges[d]);
      batch = batch * reader_.xRanges[d] + x, at[Symbol::outer(d)] = x;
    }
    const int64_t rows = blocks_.rows % kRows == 0 ? kRows : blocks_.rows;
    const Expr block = dimension(kernel, blocks_.blocks), some = dimension(kernel, blocks_.rows / rows);
    for (size_t d : c_.kOuter) {
      const Expr x = dimension(kernel, reader_.rRanges[d]);
      outer = outer * reader_.rRanges[d] + x, at[Symbol::inner(d)] = x;
    }
    const Expr row = some * rows + dimension(kernel, rows), lane = dimension(kernel, c_.bn), column = block * c_.bn + lane;
    split(column, c_.n, reader_.xRanges, Symbol::outer, at);
    split(row, c_.kInner, reader_.rRanges, Symbol::inner, at);

    Facts facts = plan_.program.facts;
    for (size_t d = 0; d < kernel.xRanges.size(); ++d) facts.setIndex(Symbol::outer(d), kernel.xRanges[d]);
    loops::PointwiseSpec spec;
    loops::ValueIdx inside = -1;
    auto below = [&](Expr place, int64_t extent, int64_t padded) {
      if (extent == padded) return;
      Op end{.kind = OpKind::Constant, .dtype = DType::I64};
      end.immInt = extent;
      const loops::ValueIdx index = append(spec.body, Op{.kind = OpKind::Index, .dtype = DType::I64, .index = facts.simplify(place)}), last = append(spec.body, end);
      const loops::ValueIdx is = append(spec.body, OpKind::Lt, DType::Bool, index, last);
      inside = inside < 0 ? is : append(spec.body, OpKind::And, DType::Bool, inside, is);
    };
    below(column, n_, blocks_.blocks * blocks_.bn), below(row, k_, blocks_.rows);
    Op read = load();
    read.a = inside, read.index = facts.simplify(substitute(read.index, at));
    const loops::ValueIdx element = append(spec.body, read);
    const Expr place = (((batch * blocks_.blocks + block) * blocks_.outer + outer) * blocks_.rows + row) * blocks_.bn + lane;
    spec.stores = {{to, facts.simplify(place), element}};

    loops::Node node;
    node.id = loops::NodeId(freeNode()), node.name = kernel.name, node.ranges = kernel.xRanges, node.origins = reader_.nodes[0].origins;
    node.spec = std::move(spec);
    kernel.nodes.push_back(std::move(node));
    return kernel;
  }

  int64_t freeNode() const {
    int64_t most = 0;
    for (const plan::Kernel &k : plan_.kernels)
      for (const loops::Node &n : k.nodes) most = std::max<int64_t>(most, n.id.value + 1);
    return most;
  }

  plan::Plan &plan_;
  plan::Kernel &reader_;
  DotTiling &c_;
  int64_t n_ = 0, k_ = 0;
  WeightBlocks blocks_{};
};

} // namespace

std::optional<plan::Kernel> packGivenOperand(plan::Plan &plan, plan::Kernel &kernel, DotTiling &c) { return Packing(plan, kernel, c).run(); }

void placePacking(plan::Plan &plan, std::vector<std::pair<plan::KernelId, plan::Kernel>> packing) {
  if (packing.empty()) return;
  std::map<int32_t, plan::KernelId> before; // by reader
  for (auto &[reader, kernel] : packing) {
    kernel.id = plan::KernelId(static_cast<int64_t>(plan.kernels.size()));
    before[reader.value] = kernel.id;
    plan.kernels.push_back(std::move(kernel));
  }
  auto place = [&](plan::Region &region, auto &&self) -> void {
    std::vector<plan::Step> steps;
    for (plan::Step &step : region.steps) {
      for (plan::Region *inside : plan::regionsInside(step)) self(*inside, self);
      if (const auto *launch = step.as<plan::Launch>())
        if (auto it = before.find(launch->kernel.value); it != before.end()) steps.push_back(plan::Launch{it->second});
      steps.push_back(std::move(step));
    }
    region.steps = std::move(steps);
  };
  place(plan.main, place);
}

} // namespace neso
