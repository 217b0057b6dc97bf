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

using llvm::Value;

namespace {

/// turned: an operand in shared memory whose neighbours do not follow one another along K. fresh: what the sums were before
/// does not count.
std::string instruction(const GroupRow &row, size_t sums, int64_t columns, bool registersA, bool turnedA, bool turnedB,
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
    k_ = shapeB[0], columns_ = plan.columns, sumsOfRows_ = size_t(shapeB[1] / plan.warps[1] * kRowsOfWgmma / (kWarpsOfGroup * 32));
    repeats_ = tensorShape(plan.accumulator)[0] / (kRowsOfWgmma * plan.warps[0]);
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
    const size_t each = size_t(columns_ * kRowsOfWgmma / (kWarpsOfGroup * 32));
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
                               b_.getInt32(units(panelsA_->offset(kRowsOfWgmma, 0))));
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
    if (panelsA_) return {part(*panelsA_, rowUnits_, r * kRowsOfWgmma * plan_.warps[0], step)};
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
  const GroupRow &row_;
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
