// Shapes, reductions and products.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lower/tile_to_triton/source.h"

namespace neso::triton_source {

using namespace mlir;

namespace {

llvm::ArrayRef<int64_t> shapeOf(Value v) { return cast<RankedTensorType>(v.getType()).getShape(); }

/// "x[:, None]"
std::string newAxis(const std::string &code, size_t rank, size_t axis) {
  std::string out;
  for (size_t d = 0; d <= rank; ++d) out += (d ? ", " : "") + std::string(d == axis ? "None" : ":");
  return code + "[" + out + "]";
}

std::string precision(tt::InputPrecision p) { return stringifyInputPrecision(p).str(); }

} // namespace

std::optional<Text> FunctionPrinter::shaped(Op *op) {
  if (auto id = dyn_cast<tt::GetProgramIdOp>(op))
    return Text{fmt::format("tl.program_id({})", static_cast<int>(id.getAxis()))};
  if (auto count = dyn_cast<tt::GetNumProgramsOp>(op))
    return Text{fmt::format("tl.num_programs({})", static_cast<int>(count.getAxis()))};
  if (auto range = dyn_cast<tt::MakeRangeOp>(op))
    return Text{fmt::format("tl.arange({}, {})", range.getStart(), range.getEnd()), Binding::Primary,
                llvm::SmallVector<int64_t>(shapeOf(range))};
  if (isa<tt::SplatOp, tt::BroadcastOp>(op)) return text(op->getOperand(0));
  if (auto expand = dyn_cast<tt::ExpandDimsOp>(op)) {
    Text t = text(expand.getSrc());
    if (t.shape.empty()) return t;
    Text out{newAxis(wrap(t, Binding::Primary), t.shape.size(), expand.getAxis()), Binding::Primary, t.shape, false};
    out.shape.insert(out.shape.begin() + expand.getAxis(), 1);
    return out;
  }
  if (auto reshape = dyn_cast<tt::ReshapeOp>(op)) {
    Text t = text(reshape.getSrc());
    if (t.shape.empty()) return t;
    return Text{fmt::format("tl.reshape({}, {}{})", exact(reshape.getSrc()), list(shapeOf(reshape)),
                            reshape.getAllowReorder() ? ", can_reorder=True" : ""),
                Binding::Primary, llvm::SmallVector<int64_t>(shapeOf(reshape))};
  }
  if (auto trans = dyn_cast<tt::TransOp>(op)) {
    Text t = text(trans.getSrc());
    if (t.shape.empty()) return t;
    llvm::SmallVector<int64_t> order(trans.getOrder().begin(), trans.getOrder().end()), shape;
    for (int64_t d : order) shape.push_back(t.shape[static_cast<size_t>(d)]);
    const bool matrix = order == llvm::ArrayRef<int64_t>{1, 0};
    return Text{matrix ? "tl.trans(" + t.code + ")" : fmt::format("tl.permute({}, {})", t.code, list(order)),
                Binding::Primary, shape};
  }
  if (isa<tt::UnsplatOp>(op)) {
    Text t = text(op->getOperand(0));
    return t.shape.empty() ? typed(op->getOperand(0)) : Text{"tl.item(" + t.code + ")"};
  }
  if (auto join = dyn_cast<tt::JoinOp>(op))
    return Text{fmt::format("tl.join({}, {})", exact(join.getLhs()), exact(join.getRhs())), Binding::Primary,
                llvm::SmallVector<int64_t>(shapeOf(join))};
  // Triton's own cat may put elements into any order.
  if (auto cat = dyn_cast<tt::CatOp>(op))
    return Text{fmt::format("tl.reshape(tl.trans(tl.join({}, {})), {})", exact(cat.getLhs()), exact(cat.getRhs()),
                            list(shapeOf(cat))),
                Binding::Primary, llvm::SmallVector<int64_t>(shapeOf(cat))};
  if (isa<ub::PoisonOp>(op)) {
    // Any number will do.
    const Type element = getElementTypeOrSelf(op->getResult(0).getType());
    if (isa<tt::PointerType>(element)) return std::nullopt;
    return Text{isa<FloatType>(element) ? "0.0" : element.isInteger(1) ? "False" : "0", Binding::Primary, {}, true};
  }
  return std::nullopt;
}

std::optional<Text> FunctionPrinter::product(tt::DotOp op) {
  const Type from = getElementTypeOrSelf(op.getA().getType()), to = getElementTypeOrSelf(op.getD().getType());
  const llvm::SmallVector<int64_t> shape(shapeOf(op));
  if (from.isInteger() && !from.isInteger(8)) {
    // Triton multiplies matrices of int8 alone; sums of wrapping integers are the same in any order.
    if (from != to) return refuse(op, "a product of integers that are wider than int8");
    const size_t rank = shape.size();
    Text a{newAxis(exact(op.getA()), rank, rank), Binding::Primary, {}},
        b{newAxis(exact(op.getB()), rank, rank - 2), Binding::Primary, {}};
    return Text{fmt::format("tl.sum({}, {}) + {}", infix("*", Binding::Product, a, b).code, rank - 1, exact(op.getC())),
                Binding::Sum, shape};
  }
  std::string options;
  if (from.isF32()) options += ", input_precision=" + quoted(precision(op.getInputPrecision()));
  if (op.getMaxNumImpreciseAcc()) options += fmt::format(", max_num_imprecise_acc={}", op.getMaxNumImpreciseAcc());
  if (!to.isF32()) options += ", out_dtype=" + typeName(to);
  return Text{fmt::format("tl.dot({}, {}, acc={}{})", exact(op.getA()), exact(op.getB()), exact(op.getC()), options),
              Binding::Primary, shape};
}

/// Assigns what `code` gives to names for the results of an op.
bool FunctionPrinter::several(Op *op, const std::string &code) {
  std::string names;
  for (Value v : op->getResults()) {
    auto tensor = dyn_cast<RankedTensorType>(v.getType());
    const std::string name = names_.fresh(hint(v));
    names += (names.empty() ? "" : ", ") + name;
    bind(v, {name, Binding::Primary,
             tensor ? llvm::SmallVector<int64_t>(tensor.getShape()) : llvm::SmallVector<int64_t>(), false});
  }
  line(names.empty() ? code : names + " = " + code);
  return !failed();
}

/// Ops with regions, and those that take long enough to have a line of their own.
bool FunctionPrinter::regions(Op *op, bool &known) {
  known = true;
  if (isa<tt::ReduceOp, tt::ScanOp>(op)) {
    const unsigned n = op->getNumOperands();
    std::vector<std::string> parameters;
    for (const char *side : {"a", "b"})
      for (unsigned i = 0; i < n; ++i) parameters.push_back(n == 1 ? side : fmt::format("{}{}", side, i));
    std::optional<std::string> combine = helper(op->getRegion(0), parameters);
    if (!combine) return false;
    const std::string sources = n == 1 ? exact(op->getOperand(0)) : "(" + arguments(op->getOperands()) + ")";
    if (auto reduce = dyn_cast<tt::ReduceOp>(op))
      return several(op, fmt::format("tl.reduce({}, {}, {})", sources, reduce.getAxis(), *combine));
    auto scan = cast<tt::ScanOp>(op);
    return several(op, fmt::format("tl.associative_scan({}, {}, {}{})", sources, scan.getAxis(), *combine,
                                   scan.getReverse() ? ", reverse=True" : ""));
  }
  if (auto map = dyn_cast<tt::MapElementwiseOp>(op)) {
    std::vector<std::string> parameters;
    for (unsigned i = 0; i < map.getScalarOp().getNumArguments(); ++i) parameters.push_back(fmt::format("x{}", i));
    std::optional<std::string> scalar = helper(map.getScalarOp(), parameters);
    return scalar && several(op, fmt::format("tl.map_elementwise({}, {}, pack={})", *scalar,
                                             arguments(op->getOperands()), map.getPack()));
  }
  if (auto dot = dyn_cast<tt::DotOp>(op)) {
    std::optional<Text> t = product(dot);
    if (t) assign(dot, *t);
    return t.has_value();
  }
  if (auto dot = dyn_cast<tt::DotScaledOp>(op)) {
    // Packs of small floats and scales are unsigned bytes.
    auto bits = [&](Value v) {
      return getElementTypeOrSelf(v.getType()).isInteger(8) ? "(" + exact(v) + ").to(tl.uint8)" : exact(v);
    };
    auto scale = [&](Value v) { return v ? bits(v) : std::string("None"); };
    auto format = [](tt::ScaleDotElemType t) { return quoted(stringifyScaleDotElemType(t)); };
    return several(
        op, fmt::format("tl.dot_scaled({}, {}, {}, {}, {}, {}, acc={}, fast_math={}, lhs_k_pack={}, rhs_k_pack={})",
                        bits(dot.getA()), scale(dot.getAScale()), format(dot.getAElemType()), bits(dot.getB()),
                        scale(dot.getBScale()), format(dot.getBElemType()), exact(dot.getC()),
                        dot.getFastMath() ? "True" : "False", dot.getLhsKPack() ? "True" : "False",
                        dot.getRhsKPack() ? "True" : "False"));
  }
  if (auto rows = dyn_cast<ttg::SortOp>(op)) return sort(rows);
  if (isa<tt::SplitOp>(op)) return several(op, "tl.split(" + exact(op->getOperand(0)) + ")");
  if (auto gather = dyn_cast<tt::GatherOp>(op))
    return several(
        op, fmt::format("tl.gather({}, {}, {})", exact(gather.getSrc()), exact(gather.getIndices()), gather.getAxis()));
  if (auto histogram = dyn_cast<tt::HistogramOp>(op))
    return several(op, fmt::format("tl.histogram({}, {}{})", exact(histogram.getSrc()), shapeOf(histogram)[0],
                                   histogram.getMask() ? ", mask=" + exact(histogram.getMask()) : ""));
  if (auto assembly = dyn_cast<tt::ElementwiseInlineAsmOp>(op)) {
    std::string types;
    for (Value v : op->getResults()) types += (types.empty() ? "" : ", ") + typeName(getElementTypeOrSelf(v.getType()));
    if (op->getNumResults() != 1) types = "(" + types + ",)";
    return several(op, fmt::format("tl.inline_asm_elementwise({}, {}, [{}], dtype={}, is_pure={}, pack={})",
                                   quoted(assembly.getAsmString()), quoted(assembly.getConstraints()),
                                   arguments(op->getOperands()), types, assembly.getPure() ? "True" : "False",
                                   assembly.getPackedElement()));
  }
  known = false;
  return true;
}

} // namespace neso::triton_source
