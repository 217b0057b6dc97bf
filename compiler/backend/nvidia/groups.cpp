#include "backend/nvidia/groups.h"

#include <algorithm>

#include "backend/nvidia/linear.h"
#include "base/diagnostics.h"
#include "llvm/IR/InlineAsm.h"

namespace neso::nvidia {

using llvm::Value;

namespace {

/// A row and the operands that it is for.
struct KnownRow {
  DotFormat a, b;
  GroupRow row;
};
constexpr KnownRow kKnownRows[] = {
    {DotFormat::BF16, DotFormat::BF16, {16, false, false, true, "f32.bf16.bf16", "f16", 1, 1, 1}},
    {DotFormat::F16, DotFormat::F16, {16, false, false, true, "f32.f16.f16", "f16", 0, 0, 1}},
    {DotFormat::TF32, DotFormat::TF32, {32, false, false, false, "f32.tf32.tf32", "tf32", 2, 2, 1}},
    {DotFormat::S8, DotFormat::S8, {8, true, false, false, "s32.s8.s8", "i8", 1, 1, 2}},
    {DotFormat::E4M3, DotFormat::E4M3, {8, false, true, false, "f32.e4m3.e4m3", "f8f6f4", 0, 0, 1}},
    {DotFormat::E4M3, DotFormat::E5M2, {8, false, true, false, "f32.e4m3.e5m2", "f8f6f4", 0, 1, 1}},
    {DotFormat::E5M2, DotFormat::E4M3, {8, false, true, false, "f32.e5m2.e4m3", "f8f6f4", 1, 0, 1}},
    {DotFormat::E5M2, DotFormat::E5M2, {8, false, true, false, "f32.e5m2.e5m2", "f8f6f4", 1, 1, 1}},
};

const GroupRow *findGroupRow(const DotTypes &types, DotPrecision precision) {
  std::optional<DotFormat> a = formatOf(types.a, precision), b = formatOf(types.b, precision);
  for (const KnownRow &known : kKnownRows)
    if (a == known.a && b == known.b && isSummed(known.a, types.d)) return &known.row;
  return nullptr;
}

/// A thread's sums of one instruction's rows and of all of its own are results of inline assembly; more leave no
/// registers for the rest either.
constexpr int64_t kMostSums = 128;

/// How an operand with K as dim `k` lies in the ring that it was loaded from.
GroupOperand placeInRing(mlir::Value v, int k, ttg::LocalLoadOp load) {
  auto ring = load ? load.getRing().getDefiningOp<ttg::LocalAllocOp>() : ttg::LocalAllocOp();
  if (!ring) return GroupOperand::Registers;
  const int fast = static_cast<int>(ring.getFast());
  return (v.getDefiningOp<tt::TransOp>() ? 1 - fast : fast) == k ? GroupOperand::AlongK : GroupOperand::AcrossK;
}

/// The same of parts of tiles too, also where a loop carries them: products by other instructions read them a step ahead.
GroupOperand sourceOfOperand(mlir::Value v, int k) {
  mlir::Value source = operandSource(v);
  if (auto argument = llvm::dyn_cast<mlir::BlockArgument>(source))
    if (auto loop = llvm::dyn_cast<mlir::scf::ForOp>(argument.getOwner()->getParentOp()))
      if (mlir::OpOperand *init = loop.getTiedLoopInit(argument)) source = init->get();
  return placeInRing(v, k, source.getDefiningOp<ttg::LocalLoadOp>());
}

} // namespace

DotKind groupKind(const Chip &chip) { return chip.has(Feature::Tcgen05) ? DotKind::Tcgen05 : DotKind::Wgmma; }

std::optional<DotPlan> planWarpGroups(tt::DotOp dot, const Chip &chip, int warps, GroupOperand a, GroupOperand b,
                                      std::string *why) {
  auto none = [&](const char *reason) {
    if (why) *why = reason;
    return std::optional<DotPlan>();
  };
  auto tensor = [](mlir::Value v) { return llvm::cast<mlir::RankedTensorType>(v.getType()); };
  DotPlan plan;
  plan.types = {tensor(dot.getA()).getElementType(), tensor(dot.getB()).getElementType(),
                tensor(dot.getD()).getElementType()};
  plan.precision = precisionOf(dot);
  const GroupRow *row = findGroupRow(plan.types, plan.precision);
  if (!chip.readsPanels()) return none("the chip has no wgmma");
  const DotKind kind = groupKind(chip);
  const bool keepsSums = traitsOf(kind).keepsSums; // all rows of tensor memory, columns in steps of 16, both operands in shared memory
  const int64_t rows = keepsSums ? kRowsOfTensorMemory : kRowsOfWgmma, step = keepsSums ? 16 : 8;
  if (plan.types.a.isF32() && plan.precision == DotPrecision::Ieee) return none("products of f32 that are more exact than three of tf32");
  if (!row) return none("tensor cores are not used for these types");
  if (keepsSums && plan.isSplit()) return none("three products of tf32");
  if (tensor(dot.getD()).getRank() != 2) return none("a batch of products");
  if (warps % kWarpsOfGroup != 0) return none("fewer than four warps");
  const int64_t m = tensor(dot.getD()).getDimSize(0), n = tensor(dot.getD()).getDimSize(1),
                k = tensor(dot.getA()).getDimSize(1), groups = warps / kWarpsOfGroup;
  if (m < rows) return none(keepsSums ? "fewer than 128 rows" : "fewer than 64 rows");
  if (k < row->k()) return none("a step along K is shorter than the instruction's");
  // What is split goes through registers.
  if (!row->anyOrder && ((a == GroupOperand::AcrossK && !plan.isSplit()) || b == GroupOperand::AcrossK))
    return none("elements of these types that do not follow one another along K");
  plan.kind = kind;
  plan.groupRow = row;
  const int64_t along = std::min(groups, m / rows);
  plan.warps = {along, groups / along};
  const int64_t columns = n / plan.warps[1];
  if (keepsSums && (n < step || n > kMostColumns)) return none("columns that are no width of an instruction");
  if (columns < 8) return none("fewer than 8 columns a group of four warps");
  const int64_t imprecise = int64_t(dot.getMaxNumImpreciseAcc());
  if (row->imprecise && plan.types.d.isF32() && imprecise <= k)
    plan.partK = std::clamp<int64_t>((imprecise + row->k() - 1) / row->k() * row->k(), row->k(), k);
  if (keepsSums && plan.partK) return none("sums in parts");
  plan.columns = columns;
  if (plan.warps[1] == 1 && !plan.isSplit())
    plan.columns = (columnsThatCount(dot) + step - 1) / step * step;
  // Parts of sums are registers of their own.
  const int64_t most = plan.isSplit() ? kMostSplitSums : plan.partK ? kMostSums / 2 : kMostSums;
  if (columns > kMostColumns || m * n > most * warps * 32)
    return none(plan.isSplit() ? "more than 32 sums a thread, of which there are three sets"
                : plan.partK   ? "more than 64 sums a thread, which are summed in parts"
                               : "more than 128 sums a thread");
  // Where N is side by side a row of it is a panel's at least, and a group begins with a panel.
  const int64_t panel = 1024 / row->bits;
  if (b == GroupOperand::AcrossK && (n * row->bits < 256 || (!keepsSums && plan.warps[1] > 1 && columns < panel)))
    return none("too few columns beside one another");
  if (b == GroupOperand::Registers) return none("the right operand is no whole tile that copies bring");
  if (keepsSums) {
    if (a == GroupOperand::Registers) return none("the left operand is no whole tile that copies bring");
    plan.accumulator = tensorMemoryAccumulator({m, n}, plan.warps);
    return plan;
  }
  plan.accumulator = warpGroupAccumulator({m, n}, plan.warps);
  // Groups beside one another would each hold all of A.
  if (plan.warps[1] == 1) plan.operandA = mmaOperandA({m, k}, {kWarpsOfGroup * plan.warps[0], 1}, row->bits);
  if ((a == GroupOperand::Registers || plan.isSplit()) && plan.warps[1] > 1)
    return none("the left operand is in registers, and groups of warps would share its rows");
  // Each thread takes apart one element at least.
  if (plan.isSplit() && std::min<int64_t>(k, kPanelSpan / 4) * n < warps * 32) return none("fewer elements of the right operand than threads");
  return plan;
}

GroupOperand placeOfOperand(mlir::Value v, int k) {
  auto load = operandSource(v).getDefiningOp<ttg::LocalLoadOp>();
  return load && !load.getOffsets() ? placeInRing(v, k, load) : GroupOperand::Registers;
}

std::optional<DotPlan> planWarpGroups(tt::DotOp dot, const Chip &chip, int warps) {
  return planWarpGroups(dot, chip, warps, placeOfOperand(dot.getA(), 1), placeOfOperand(dot.getB(), 0));
}

std::string whyNoWarpGroups(tt::DotOp dot, const Chip &chip, int warps) {
  std::string why;
  if (planWarpGroups(dot, chip, warps, sourceOfOperand(dot.getA(), 1), sourceOfOperand(dot.getB(), 0), &why))
    planWarpGroups(dot, chip, warps, placeOfOperand(dot.getA(), 1), placeOfOperand(dot.getB(), 0), &why);
  return why;
}

Panels::Panels(BlockContext &block, const SharedTile &tile, int k, int bits) : bytes_(bits / 8) {
  const Sizes shape = tensorShape(tile.layout);
  kFast_ = tile.layout == panelledLayout(shape, k, bits);
  NESO_CHECK(kFast_ || tile.layout == panelledLayout(shape, 1 - k, bits), "an operand of a product by groups lies in panels");
  const int fast = kFast_ ? k : 1 - k;
  span_ = std::min<int64_t>(kPanelSpan, shape[size_t(fast)] * bytes_);
  panel_ = shape[size_t(1 - fast)] * span_;
  llvm::IRBuilder<> &b = block.b;
  Value *pointer = block.shared.address(block, tile.buffer, tile.byteOffset);
  begin_ = b.CreateLShr(b.CreateAnd(b.CreatePtrToInt(pointer, b.getInt32Ty()), b.getInt32(0x3ffff)), 4);
}

int64_t Panels::offset(int64_t at, int64_t k) const {
  const int64_t fast = (kFast_ ? k : at) * bytes_, slow = kFast_ ? at : k;
  return fast / span_ * panel_ + slow * span_ + fast % span_;
}

Value *Panels::descriptor(llvm::IRBuilder<> &b, Value *units) const {
  // Fields in pieces of 16 bytes: begin, from panel to panel (unused where a panel's rows run along K), from 8 rows to
  // the next 8; then the permutation.
  const uint64_t panels = kFast_ ? 1 : uint64_t(panel_) >> 4, rows = uint64_t(8 * span_) >> 4;
  const uint64_t permutation = span_ == kPanelSpan ? 1 : span_ == 64 ? 2 : 3;
  Value *begin = b.CreateZExt(b.CreateAdd(begin_, units), b.getInt64Ty());
  return b.CreateOr(begin, b.getInt64(panels << 16 | rows << 32 | permutation << 62));
}

Value *warpGroup(BlockContext &block) {
  if (block.warps == kWarpsOfGroup) return block.b.getInt32(0);
  return block.b.CreateLShr(shuffle(block, block.warp, block.b.getInt32(0)), 2);
}

void runOnSums(llvm::IRBuilder<> &b, llvm::MutableArrayRef<Value *> sums, llvm::ArrayRef<Value *> more, const std::string &text) {
  llvm::SmallVector<llvm::Type *, 0> results, types;
  llvm::SmallVector<Value *, 0> arguments(sums.begin(), sums.end());
  std::string constraints;
  for (Value *sum : sums) {
    results.push_back(sum->getType());
    constraints += sum->getType()->isFloatTy() ? "=f," : "=r,";
  }
  types = results;
  for (size_t i = 0; i < sums.size(); ++i) constraints += std::to_string(i) + ",";
  for (Value *value : more) {
    arguments.push_back(value);
    types.push_back(value->getType());
    constraints += value->getType()->isIntegerTy(64) ? "l," : "r,";
  }
  constraints += "~{memory}";
  llvm::Type *given = results.empty() ? b.getVoidTy() : static_cast<llvm::Type *>(llvm::StructType::get(b.getContext(), results));
  llvm::FunctionType *type = llvm::FunctionType::get(given, types, false);
  llvm::CallInst *call = b.CreateCall(llvm::InlineAsm::get(type, text, constraints, /*hasSideEffects=*/true), arguments);
  call->addFnAttr(llvm::Attribute::Convergent);
  for (size_t i = 0; i < sums.size(); ++i) sums[i] = b.CreateExtractValue(call, unsigned(i));
}

} // namespace neso::nvidia
