#include "backend/nvidia/wgmma.h"

#include <algorithm>
#include <cmath>

#include "backend/nvidia/linear.h"
#include "backend/nvidia/matrix.h"
#include "base/diagnostics.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/IntrinsicsNVPTX.h"

namespace neso::nvidia {

namespace {

using llvm::Value;

/// A row and the operands that it is for.
struct KnownRow {
  DotFormat a, b;
  WgmmaRow row;
};
constexpr KnownRow kKnownRows[] = {
    {DotFormat::BF16, DotFormat::BF16, {16, false, false, true, "f32.bf16.bf16"}},
    {DotFormat::F16, DotFormat::F16, {16, false, false, true, "f32.f16.f16"}},
    {DotFormat::TF32, DotFormat::TF32, {32, false, false, false, "f32.tf32.tf32"}},
    {DotFormat::S8, DotFormat::S8, {8, true, false, false, "s32.s8.s8"}},
    {DotFormat::E4M3, DotFormat::E4M3, {8, false, true, false, "f32.e4m3.e4m3"}},
    {DotFormat::E4M3, DotFormat::E5M2, {8, false, true, false, "f32.e4m3.e5m2"}},
    {DotFormat::E5M2, DotFormat::E4M3, {8, false, true, false, "f32.e5m2.e4m3"}},
    {DotFormat::E5M2, DotFormat::E5M2, {8, false, true, false, "f32.e5m2.e5m2"}},
};

const WgmmaRow *findGroupRow(const DotTypes &types, DotPrecision precision) {
  std::optional<DotFormat> a = formatOf(types.a, precision), b = formatOf(types.b, precision);
  for (const KnownRow &known : kKnownRows)
    if (a == known.a && b == known.b && isSummed(known.a, types.d)) return &known.row;
  return nullptr;
}

/// A thread's sums of one instruction's rows and of all of its own are results of inline assembly; more leave no
/// registers for the rest either.
constexpr int64_t kMostSums = 128;
/// Rows of one instruction, and the warps that carry it out.
constexpr int64_t kRows = 64, kWarpsOfGroup = 4;

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
  const WgmmaRow *row = findGroupRow(plan.types, plan.precision);
  if (!chip.has(Feature::Wgmma)) return none("the chip has no wgmma");
  if (plan.types.a.isF32() && plan.precision == DotPrecision::Ieee) return none("products of f32 that are more exact than three of tf32");
  if (!row) return none("wgmma is not used for these types");
  if (tensor(dot.getD()).getRank() != 2) return none("a batch of products");
  if (warps % kWarpsOfGroup != 0) return none("fewer than four warps");
  const int64_t m = tensor(dot.getD()).getDimSize(0), n = tensor(dot.getD()).getDimSize(1),
                k = tensor(dot.getA()).getDimSize(1), groups = warps / kWarpsOfGroup;
  if (m < kRows) return none("fewer than 64 rows");
  if (k < row->k()) return none("a step along K is shorter than the instruction's");
  // What is split goes through registers.
  if (!row->anyOrder && ((a == GroupOperand::AcrossK && !plan.isSplit()) || b == GroupOperand::AcrossK))
    return none("elements of these types that do not follow one another along K");
  plan.kind = DotKind::Wgmma;
  plan.groupRow = row;
  const int64_t along = std::min(groups, m / kRows);
  plan.warps = {along, groups / along};
  const int64_t columns = n / plan.warps[1];
  if (columns < 8) return none("fewer than 8 columns a group of four warps");
  const int64_t imprecise = int64_t(dot.getMaxNumImpreciseAcc());
  if (row->imprecise && plan.types.d.isF32() && imprecise <= k)
    plan.partK = std::clamp<int64_t>((imprecise + row->k() - 1) / row->k() * row->k(), row->k(), k);
  plan.columns = columns;
  constexpr int64_t kColumnsOfInstruction = 8;
  if (plan.warps[1] == 1 && !plan.isSplit())
    plan.columns = (columnsThatCount(dot) + kColumnsOfInstruction - 1) / kColumnsOfInstruction * kColumnsOfInstruction;
  // Parts of sums are registers of their own.
  const int64_t most = plan.isSplit() ? kMostSplitSums : plan.partK ? kMostSums / 2 : kMostSums;
  if (columns > 256 || m * n > most * warps * 32)
    return none(plan.isSplit() ? "more than 32 sums a thread, of which there are three sets"
                : plan.partK   ? "more than 64 sums a thread, which are summed in parts"
                               : "more than 128 sums a thread");
  // Where N is side by side a row of it is a panel's at least, and a group begins with a panel.
  const int64_t panel = 1024 / row->bits;
  if (b == GroupOperand::AcrossK && (n * row->bits < 256 || (plan.warps[1] > 1 && columns < panel)))
    return none("too few columns beside one another");
  if (b == GroupOperand::Registers) return none("the right operand is no whole tile that copies bring");
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

namespace {

/// A matrix in shared memory as the instruction reads it.
class Panels {
public:
  /// k: the dim along which is multiplied.
  Panels(BlockContext &block, const SharedTile &tile, int k, int bits) : bytes_(bits / 8) {
    const Sizes shape = tensorShape(tile.layout);
    kFast_ = tile.layout == panelledLayout(shape, k, bits);
    NESO_CHECK(kFast_ || tile.layout == panelledLayout(shape, 1 - k, bits), "an operand of wgmma lies in panels");
    const int fast = kFast_ ? k : 1 - k;
    span_ = std::min<int64_t>(128, shape[size_t(fast)] * bytes_);
    panel_ = shape[size_t(1 - fast)] * span_;
    llvm::IRBuilder<> &b = block.b;
    Value *pointer = block.shared.address(block, tile.buffer, tile.byteOffset);
    begin_ = b.CreateLShr(b.CreateAnd(b.CreatePtrToInt(pointer, b.getInt32Ty()), b.getInt32(0x3ffff)), 4);
  }
  bool kFast() const { return kFast_; }
  /// Bytes from the matrix' begin to row (or column) `at` and element `k` of it.
  int64_t offset(int64_t at, int64_t k) const {
    const int64_t fast = (kFast_ ? k : at) * bytes_, slow = kFast_ ? at : k;
    return fast / span_ * panel_ + slow * span_ + fast % span_;
  }
  /// Of the part that begins `units` (i32) pieces of 16 bytes behind the matrix' begin.
  Value *descriptor(llvm::IRBuilder<> &b, Value *units) const {
    // Fields in pieces of 16 bytes: begin, from panel to panel (unused where a panel's rows run along K), from 8 rows to
    // the next 8; then the permutation.
    const uint64_t panels = kFast_ ? 1 : uint64_t(panel_) >> 4, rows = uint64_t(8 * span_) >> 4;
    const uint64_t permutation = span_ == 128 ? 1 : span_ == 64 ? 2 : 3;
    Value *begin = b.CreateZExt(b.CreateAdd(begin_, units), b.getInt64Ty());
    return b.CreateOr(begin, b.getInt64(panels << 16 | rows << 32 | permutation << 62));
  }

private:
  int64_t bytes_, span_ = 0, panel_ = 0; // of an element, of a panel's row, of a panel
  bool kFast_ = false;
  Value *begin_ = nullptr; // pieces of 16 bytes
};

/// Inline assembly that takes and gives `sums` in their places, `more` (words and descriptors) behind them. In its text
/// $0 … are the sums.
void runOnSums(llvm::IRBuilder<> &b, llvm::MutableArrayRef<Value *> sums, llvm::ArrayRef<Value *> more,
               const std::string &text) {
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

/// turned: an operand in shared memory whose neighbours do not follow one another along K. fresh: what the sums were before
/// does not count.
std::string instruction(const WgmmaRow &row, size_t sums, int64_t columns, bool registersA, bool turnedA, bool turnedB,
                        bool fresh = false) {
  std::string text = std::string("{ .reg .pred p; setp.ne.b32 p, ") + (fresh ? "0" : "1") +
                     ", 0; wgmma.mma_async.sync.aligned.m64n" + std::to_string(columns) + "k" + std::to_string(row.k()) + "." +
                     row.types + " {";
  for (size_t i = 0; i < sums; ++i) text += (i ? ", $" : "$") + std::to_string(i);
  size_t next = 2 * sums;
  auto operand = [&] { return "$" + std::to_string(next++); };
  text += "}, ";
  if (registersA)
    text += "{" + operand() + ", " + operand() + ", " + operand() + ", " + operand() + "}";
  else
    text += operand();
  text += ", " + operand() + ", p";
  if (!row.integers) text += ", 1, 1";
  if (row.anyOrder && !registersA) text += turnedA ? ", 1" : ", 0";
  if (row.anyOrder) text += turnedB ? ", 1" : ", 0";
  return text + "; }";
}

} // namespace

int64_t panelsOf(const DotPlan &plan, int64_t k) {
  return plan.kind == DotKind::Wgmma && plan.isSplit() ? std::max<int64_t>(k * 4 / kPanelSpan, 1) : 0;
}

void emitFenceAsync(BlockContext &block) {
  llvm::IRBuilder<> &b = block.b;
  llvm::FunctionType *type = llvm::FunctionType::get(b.getVoidTy(), false);
  b.CreateCall(llvm::InlineAsm::get(type, "fence.proxy.async.shared::cta;", "~{memory}", /*hasSideEffects=*/true));
}

Value *warpGroup(BlockContext &block) {
  if (block.warps == kWarpsOfGroup) return block.b.getInt32(0);
  return block.b.CreateLShr(shuffle(block, block.warp, block.b.getInt32(0)), 2);
}

void hold(BlockContext &block, Value *value) {
  // A store that never happens, which the assembler does not know: no group has that number.
  llvm::IRBuilder<> &b = block.b;
  Value *word = toStorage(b, value);
  if (word->getType()->getPrimitiveSizeInBits() != 32) return;
  word = b.CreateBitCast(word, b.getInt32Ty());
  llvm::FunctionType *type = llvm::FunctionType::get(b.getVoidTy(), {b.getInt32Ty(), b.getInt32Ty()}, false);
  b.CreateCall(llvm::InlineAsm::get(type, "{ .reg .pred p; setp.eq.u32 p, $0, 0x3fffffff; @p st.volatile.shared.b32 [$0], $1; }", "r,r,~{memory}",
                                    /*hasSideEffects=*/true),
               {block.group, word});
}

void waitProducts(BlockContext &block, int64_t pending, llvm::MutableArrayRef<Value *> values) {
  // Through the wait: nothing that uses them may move above it.
  runOnSums(block.b, values, {}, "wgmma.wait_group.sync.aligned " + std::to_string(pending) + ";");
}

namespace {

/// One product.
class GroupEmitter {
public:
  GroupEmitter(BlockContext &block, const DotPlan &plan, const DotOperand &a, const SharedTile &b, const Tile &c)
      : block_(block), b_(block.b), plan_(plan), row_(*plan.groupRow), tileB_(b), sums_(c.values), panelsB_(block, b, 0, row_.bits) {
    const Sizes shapeB = tensorShape(b.layout);
    k_ = shapeB[0], columns_ = plan.columns, sumsOfRows_ = size_t(shapeB[1] / plan.warps[1] * kRows / (kWarpsOfGroup * 32));
    repeats_ = tensorShape(plan.accumulator)[0] / (kRows * plan.warps[0]);
    const SharedTile *shared = std::get_if<SharedTile>(&a);
    if (shared && plan.isSplit()) {
      loaderA_.emplace(block, *shared, plan.operandA, -1);
      wordsA_.resize(size_t(plan.operandA.inSize(kRegister)));
    } else if (shared) {
      panelsA_.emplace(block, *shared, 1, row_.bits);
      if (!shared->synchronised) block.shared.beforeRead(block, shared->buffer);
    } else {
      Registers values = convertTile(block, std::get<Tile>(a), plan.operandA).values;
      for (Value *&value : values) value = toStorage(b_, value);
      wordsA_ = toWords(b_, values);
    }
    if (!b.synchronised) block.shared.beforeRead(block, b.buffer);
    lowA_.resize(wordsA_.size());
    panels_ = panelsOf(plan, k_), kSteps_ = panels_ ? k_ / row_.k() / panels_ : 0;
  }

  Tile run() {
    llvm::Type *type = sums_[0]->getType();
    const bool narrow = type->isHalfTy() || type->isBFloatTy();
    if (narrow)
      for (Value *&sum : sums_) sum = b_.CreateFPExt(sum, b_.getFloatTy());
    findGroup();
    plan_.isSplit() ? multiplySplit() : plan_.partK ? multiplyInParts() : multiply(sums_, 0, k_);
    if (narrow)
      for (Value *&sum : sums_) sum = b_.CreateFPTrunc(sum, type);
    return {plan_.accumulator, sums_};
  }

private:
  /// What the high part leaves of an f32. The instruction cuts its 11 bits of it off, so that on the average half of the
  /// last one is added, by an instruction where rounding to the nearest takes three: 2/3 of it at the end of a binade, 1/3 at its begin.
  Value *lowPart(Value *word) {
    Value *high = b_.CreateBitCast(cutToTf32(b_, word), b_.getFloatTy());
    Value *low = b_.CreateFSub(b_.CreateBitCast(word, b_.getFloatTy()), high);
    Value *share = llvm::ConstantFP::get(b_.getFloatTy(), std::ldexp(2.0 / 3, -11));
    low = b_.CreateIntrinsic(llvm::Intrinsic::fma, {b_.getFloatTy()}, {low, share, low});
    return b_.CreateBitCast(low, b_.getInt32Ty());
  }
  /// The low parts of what one panel of B holds; B's in a buffer, where each element lies as it does in B.
  void split(int64_t panel) {
    for (int64_t r = 0; r < repeats_; ++r)
      for (int64_t step = panel * kSteps_; step < (panel + 1) * kSteps_; ++step)
        for (size_t i = firstWord(r, step); i < firstWord(r, step) + 4; ++i) lowA_[i] = lowPart(wordA(i));
    const int64_t rows = tensorShape(tileB_.layout)[0] / panels_, bytes = rows * columns_ * 4,
                  each = std::min<int64_t>(16, bytes / block_.threads());
    SharedTile low{block_.shared.allocate(bytes, "low parts of an operand"), panelledLayout({rows, columns_}, 0, row_.bits), tileB_.element};
    block_.shared.beforeWrite(block_, low.buffer);
    llvm::Type *words = llvm::FixedVectorType::get(b_.getInt32Ty(), unsigned(each / 4));
    Value *own = b_.CreateMul(block_.thread, b_.getInt32(uint32_t(each)));
    auto place = [&](Value *begin, int64_t at) {
      return b_.CreateConstInBoundsGEP1_32(b_.getInt8Ty(), b_.CreateGEP(b_.getInt8Ty(), begin, own), uint32_t(at));
    };
    const int64_t count = bytes / (each * block_.threads());
    Value *from = block_.shared.address(block_, tileB_.buffer, tileB_.byteOffset), *to = block_.shared.address(block_, low.buffer);
    // All loads before the stores, behind which they would wait.
    Registers whole;
    for (int64_t i = 0; i < count; ++i)
      whole.push_back(b_.CreateAlignedLoad(words, place(from, panel * bytes + i * each * block_.threads()), llvm::Align(uint64_t(each))));
    for (auto [i, x] : llvm::enumerate(whole)) {
      Value *y = llvm::PoisonValue::get(words);
      for (uint64_t j = 0; j < uint64_t(each / 4); ++j) y = b_.CreateInsertElement(y, lowPart(b_.CreateExtractElement(x, j)), j);
      b_.CreateAlignedStore(y, place(to, int64_t(i) * each * block_.threads()), llvm::Align(uint64_t(each)));
    }
    emitFenceAsync(block_);
    block_.shared.beforeRead(block_, low.buffer);
    panelsLowB_.emplace(block_, low, 0, row_.bits);
    block_.shared.release(low.buffer);
  }
  /// Three products of tf32: those of high parts have sums of their own, and those with a low part, which threads add to the others, rounded. The tensor cores
  /// cut off what an f32 does not hold, so that a long K would cost digits. While they multiply one panel's, threads take the next one apart.
  void multiplySplit() {
    const size_t each = sums_.size() / size_t(repeats_), count = sums_.size();
    const std::string text = instruction(row_, each, columns_, true, false, false),
                      first = instruction(row_, each, columns_, true, false, false, /*fresh=*/true);
    Registers parts(2 * count, llvm::UndefValue::get(b_.getFloatTy()));
    auto add = [&](size_t sums, llvm::ArrayRef<Value *> a, Value *b, const std::string &how) {
      llvm::SmallVector<Value *, 5> operands(a);
      operands.push_back(b);
      runOnSums(b_, llvm::MutableArrayRef<Value *>(parts).slice(sums, each), operands, how);
    };
    for (int64_t panel = 0; panel < panels_; ++panel) {
      split(panel);
      b_.CreateIntrinsic(llvm::Intrinsic::nvvm_wgmma_fence_sync_aligned, {});
      for (int64_t step = panel * kSteps_; step < (panel + 1) * kSteps_; ++step)
        for (int64_t r = 0; r < repeats_; ++r) {
          const size_t large = size_t(r) * each, small = count + large;
          auto of = [&](const Registers &words) { return llvm::ArrayRef<Value *>(words).slice(firstWord(r, step), 4); };
          Value *high = part(panelsB_, columnUnits_, 0, step), *low = part(*panelsLowB_, columnUnits_, 0, step - panel * kSteps_);
          add(small, of(lowA_), high, step == 0 ? first : text);
          add(small, of(wordsA_), low, text);
          add(large, of(wordsA_), high, step == 0 ? first : text);
        }
      b_.CreateIntrinsic(llvm::Intrinsic::nvvm_wgmma_commit_group_sync_aligned, {});
      block_.emitLater(block_.later.size());
    }
    waitProducts(block_, 0, parts);
    addSplitProducts(b_, sums_, llvm::ArrayRef<Value *>(parts).take_front(count), llvm::ArrayRef<Value *>(parts).drop_front(count));
  }
  /// Sums of plan.partK elements of K each, which threads add up.
  void multiplyInParts() {
    for (int64_t begin = 0; begin < k_; begin += plan_.partK) {
      Registers part(sums_.size(), llvm::ConstantFP::get(b_.getFloatTy(), 0));
      multiply(part, begin, std::min(begin + plan_.partK, k_));
      for (size_t i = 0; i < part.size(); ++i) sums_[i] = b_.CreateFAdd(sums_[i], part[i]);
    }
  }
  /// What elements [begin, end) of K add.
  void multiply(Registers &sums, int64_t begin, int64_t end) {
    const size_t each = size_t(columns_ * kRows / (kWarpsOfGroup * 32));
    const std::string text =
        instruction(row_, each, columns_, !panelsA_, panelsA_ && !panelsA_->kFast(), !panelsB_.kFast());
    // Sums that begin alike, as zeros or as a bias that rows share, become registers of their own here: behind the first instruction the
    // assembler would wait for it to copy those of the next (C7517).
    if (!plan_.open && llvm::DenseSet<Value *>(sums.begin(), sums.end()).size() < sums.size()) runOnSums(b_, sums, {}, "");
    b_.CreateIntrinsic(llvm::Intrinsic::nvvm_wgmma_fence_sync_aligned, {});
    for (int64_t step = begin / row_.k(); step < end / row_.k(); ++step)
      for (int64_t r = 0; r < repeats_; ++r) {
        llvm::SmallVector<Value *, 5> operands = operandA(r, step);
        operands.push_back(part(panelsB_, columnUnits_, 0, step));
        runOnSums(b_, llvm::MutableArrayRef<Value *>(sums).slice(size_t(r) * sumsOfRows_, each), operands, text);
      }
    b_.CreateIntrinsic(llvm::Intrinsic::nvvm_wgmma_commit_group_sync_aligned, {});
    // Copies begin while the product is under way.
    block_.emitLater(block_.later.size());
    if (!plan_.open) waitProducts(block_, 0, sums);
  }
  /// Which rows and columns are the group's, in pieces of 16 bytes.
  void findGroup() {
    rowUnits_ = columnUnits_ = b_.getInt32(0);
    if (block_.warps == kWarpsOfGroup) return;
    auto units = [](int64_t bytes) { return uint32_t(bytes >> 4); };
    Value *group = block_.group;
    if (panelsA_ && plan_.warps[0] > 1)
      rowUnits_ = b_.CreateMul(b_.CreateAnd(group, b_.getInt32(uint32_t(plan_.warps[0] - 1))),
                               b_.getInt32(units(panelsA_->offset(kRows, 0))));
    if (plan_.warps[1] > 1)
      columnUnits_ = b_.CreateMul(b_.CreateLShr(group, uint64_t(log2Exact(plan_.warps[0]))),
                                  b_.getInt32(units(panelsB_.offset(columns_, 0))));
  }
  Value *part(const Panels &panels, Value *group, int64_t begin, int64_t step) {
    return panels.descriptor(
        b_, b_.CreateAdd(group, b_.getInt32(uint32_t(panels.offset(begin, step * row_.k()) >> 4))));
  }
  /// Of the group's 64 rows number r: a descriptor, or the words of a thread's fragment.
  llvm::SmallVector<Value *, 5> operandA(int64_t r, int64_t step) {
    if (panelsA_) return {part(*panelsA_, rowUnits_, r * kRows * plan_.warps[0], step)};
    return llvm::SmallVector<Value *, 5>(llvm::ArrayRef<Value *>(wordsA_).slice(firstWord(r, step), 4));
  }
  /// Of the 4 that a thread has of a step of K in rows number r.
  size_t firstWord(int64_t r, int64_t step) const { return size_t(4 * (step + k_ / row_.k() * r)); }
  Value *wordA(size_t i) {
    if (loaderA_ && !wordsA_[i]) wordsA_[i] = loaderA_->word(int(i));
    return wordsA_[i];
  }

  BlockContext &block_;
  llvm::IRBuilder<> &b_;
  const DotPlan &plan_;
  const WgmmaRow &row_;
  SharedTile tileB_;
  Registers sums_, wordsA_, lowA_; // lowA_: of a split product
  std::optional<MatrixLoader> loaderA_; // loads wordsA_ of a split product, where they are first wanted
  Panels panelsB_;
  std::optional<Panels> panelsA_, panelsLowB_; // none: A is in registers; B is not split. panelsLowB_: of the panel at hand
  size_t sumsOfRows_ = 0; // of a thread, of one instruction's rows
  int64_t k_ = 0, columns_ = 0, repeats_ = 0, panels_ = 1, kSteps_ = 0; // kSteps_: of K in a panel
  Value *rowUnits_ = nullptr, *columnUnits_ = nullptr;
};

} // namespace

Tile emitWarpGroupDot(BlockContext &block, const DotPlan &plan, const DotOperand &a, const SharedTile &b,
                      const Tile &c) {
  return GroupEmitter(block, plan, a, b, c).run();
}

} // namespace neso::nvidia
