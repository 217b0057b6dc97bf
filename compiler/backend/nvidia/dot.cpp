#include "backend/nvidia/dot.h"

#include <algorithm>

#include "backend/nvidia/fma.h"
#include "backend/nvidia/linear.h"
#include "backend/nvidia/matrix.h"
#include "backend/nvidia/wgmma.h"
#include "base/diagnostics.h"
#include "ir/layout/convert.h"
#include "ir/tile/attributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/IR/IntrinsicsNVPTX.h"

namespace neso::nvidia {

struct MmaRow {
  DotFormat a, b;
  int bits; // of an operand's element
  Feature needs;
  llvm::Intrinsic::ID intrinsic;
  /// Of m8 n8 k4, four of which make one of m16 n8 k8.
  bool quarters = false;
  int k() const { return bits == 64 ? 8 : 256 / bits; }
  /// Elements of one register of an operand: f64 lies as tf32 does, in registers of 64 bits.
  int perWord() const { return std::max(32 / bits, 1); }
  /// 32-bit registers of a sum, and of a word of an operand.
  int registers() const { return std::max(bits / 32, 1); }
};

namespace {

// Of one format the best instructions first; products of integers are exact in i32, those of f64 are summed in it, all others in f32.
constexpr MmaRow kRows[] = {
    {DotFormat::BF16, DotFormat::BF16, 16, Feature::MmaBf16, llvm::Intrinsic::nvvm_mma_m16n8k16_row_col_bf16},
    {DotFormat::F16, DotFormat::F16, 16, Feature::MmaBf16, llvm::Intrinsic::nvvm_mma_m16n8k16_row_col_f32_f32},
    {DotFormat::TF32, DotFormat::TF32, 32, Feature::MmaBf16, llvm::Intrinsic::nvvm_mma_m16n8k8_row_col_tf32},
    {DotFormat::F64, DotFormat::F64, 64, Feature::MmaF64, llvm::Intrinsic::nvvm_mma_m16n8k8_row_col_f64},
    {DotFormat::F64, DotFormat::F64, 64, Feature::MmaBf16, llvm::Intrinsic::nvvm_mma_m8n8k4_row_col_f64, true},
    {DotFormat::S8, DotFormat::S8, 8, Feature::MmaBf16, llvm::Intrinsic::nvvm_mma_m16n8k32_row_col_s8},
    {DotFormat::E4M3, DotFormat::E4M3, 8, Feature::MmaF8, llvm::Intrinsic::nvvm_mma_m16n8k32_row_col_f32_e4m3_e4m3_f32},
    {DotFormat::E4M3, DotFormat::E5M2, 8, Feature::MmaF8, llvm::Intrinsic::nvvm_mma_m16n8k32_row_col_f32_e4m3_e5m2_f32},
    {DotFormat::E5M2, DotFormat::E4M3, 8, Feature::MmaF8, llvm::Intrinsic::nvvm_mma_m16n8k32_row_col_f32_e5m2_e4m3_f32},
    {DotFormat::E5M2, DotFormat::E5M2, 8, Feature::MmaF8, llvm::Intrinsic::nvvm_mma_m16n8k32_row_col_f32_e5m2_e5m2_f32},
};

const MmaRow *findRow(const Chip &chip, const DotTypes &types, DotPrecision precision) {
  std::optional<DotFormat> a = formatOf(types.a, precision), b = formatOf(types.b, precision);
  if (!a || !b) return nullptr;
  for (const MmaRow &row : kRows)
    if (row.a == *a && row.b == *b && chip.has(row.needs) && isSummed(row.a, types.d)) return &row;
  return nullptr;
}

/// shape: [.., M, N, K] of a product, at least the instruction's.
bool isLargeEnough(const MmaRow &row, const Sizes &shape) {
  const size_t rank = shape.size();
  return shape[rank - 3] >= 16 && shape[rank - 2] >= 8 && shape[rank - 1] >= row.k();
}

bool isF8(mlir::Type type) { return llvm::isa<mlir::FloatType>(type) && type.getIntOrFloatBitWidth() == 8; }

/// Warps of one matrix: along M and along N.
Sizes splitWarps(int64_t m, int64_t n, int64_t warps, DotSplit split) {
  Sizes result{1, 1};
  while (result[0] * result[1] < warps) {
    int64_t rows = m / 16 / result[0], columns = n / 8 / result[1];
    // Of a warp's part, 16 rows by 8 columns each; the longer side is cut.
    bool cutRows = rows > 1 && (split == DotSplit::Rows || 2 * rows >= columns);
    result[cutRows || columns <= 1 ? 0 : 1] *= 2;
  }
  return result;
}

/// A layout of matrices for each of `batch` matrices: first the spare warps take them, then registers.
LinearLayout batched(const LinearLayout &matrix, int64_t batch, int64_t batchWarps) {
  LinearLayout result = matrix.renameOut("dim1", "dim2").renameOut("dim0", "dim1");
  result *= LinearLayout::identity1D(batchWarps, kWarp, "dim0") *
            LinearLayout::identity1D(batch / batchWarps, kRegister, "dim0");
  return result.transposeIns({kRegister, kLane, kWarp, kBlock}).transposeOuts({"dim2", "dim1", "dim0"});
}

/// The layouts of a product by mma.sync whose instruction and warps are chosen.
void layOut(DotPlan &plan, const Sizes &shape, int warps) {
  const int64_t m = shape[shape.size() - 3], n = shape[shape.size() - 2], k = shape.back();
  plan.accumulator = mmaAccumulator({m, n}, plan.warps);
  plan.operandA = mmaOperandA({m, k}, plan.warps, 32 / plan.row->perWord());
  plan.operandB = mmaOperandB({k, n}, plan.warps, 32 / plan.row->perWord());
  if (shape.size() != 4) return;
  for (LinearLayout *layout : {&plan.accumulator, &plan.operandA, &plan.operandB})
    *layout = batched(*layout, shape[0], std::min<int64_t>(shape[0], warps));
}

llvm::Type *packedType(llvm::IRBuilder<> &b, DotFormat format) {
  if (format == DotFormat::F16) return llvm::FixedVectorType::get(b.getHalfTy(), 2);
  return format == DotFormat::F64 ? b.getDoubleTy() : static_cast<llvm::Type *>(b.getInt32Ty());
}

/// An operand that does not lie in registers as `wanted` goes through a buffer of its own, from which it is read in
/// matrices.
DotOperand placeOperand(BlockContext &block, const DotOperand &operand, const LinearLayout &wanted, int bits, bool isA,
                        std::optional<SharedBuffer> &own) {
  const Tile *tile = std::get_if<Tile>(&operand);
  if (!tile || conversion(tile->layout, wanted).move <= Move::Registers) return operand;
  Sizes shape = tensorShape(wanted);
  int along = int(shape.size()) - 1, across = along - 1;
  auto run = [&](int dim) { return tile->layout.consecutiveRun(kRegister, dimName(dim)); };
  // As the source has it, so that it is stored in wide accesses; else with K side by side.
  int fast = run(along) > run(across) || (run(along) == run(across) && isA) ? along : across;
  llvm::Type *element = tile->values[0]->getType();
  own = block.shared.allocate(sharedBytes(element) << tile->layout.totalOutBits(), "operand of a product");
  SharedTile buffer{*own, dotBuffer(block.chip, shape, fast, bits), element, nullptr};
  storeShared(block, *tile, buffer);
  return buffer;
}

/// Words of one operand: from registers that lie as the instruction wants them, or from shared memory when asked for.
class Operand {
public:
  Operand(BlockContext &block, const DotOperand &operand, const LinearLayout &wanted, int togetherBit) {
    if (const SharedTile *shared = std::get_if<SharedTile>(&operand)) {
      loader_.emplace(block, *shared, wanted, togetherBit);
      return;
    }
    Registers values = convertTile(block, std::get<Tile>(operand), wanted).values;
    for (llvm::Value *&value : values) value = toStorage(block.b, value);
    words_ = values[0]->getType()->getPrimitiveSizeInBits() == 64 ? values : toWords(block.b, values);
  }
  llvm::Value *word(int number) { return loader_ ? loader_->word(number) : words_[size_t(number)]; }

private:
  std::optional<MatrixLoader> loader_;
  Registers words_;
};

class MmaEmitter {
public:
  /// ahead: operands are loaded a step ahead.
  MmaEmitter(BlockContext &block, const DotPlan &plan, const DotOperand &a, const DotOperand &b, const Tile &c,
             bool ahead)
      : block_(block), b_(block.b), plan_(plan), ahead_(ahead), sums_(c.values), perWord_(plan.row->perWord()),
        wordsA_(int(plan.operandA.inSize(kRegister)) / perWord_),
        wordsB_(int(plan.operandB.inSize(kRegister)) / perWord_), stepsK_(kSteps()),
        operandA_(block, a, plan.operandA, -1), operandB_(block, b, plan.operandB, nextColumns()) {}

  Tile run() {
    // Registers, lowest first: operand A has one instruction's 4 words, then K, M, batch; operand B its 2 words, then
    // K, N, batch; sums have 4, then N, M, batch.
    int batch = int(plan_.accumulator.outs().size()) == 3 ? batchRegisters() : 1;
    int tilesM = wordsA_ / 4 / stepsK_ / batch, tilesN = wordsB_ / 2 / stepsK_ / batch;
    widen();
    if (plan_.isSplit()) small_.assign(sums_.size(), llvm::ConstantFP::get(b_.getFloatTy(), 0));
    if (plan_.isSplit() && sums_.size() <= size_t(kMostSplitSums)) large_ = small_;
    const size_t chunks = size_t(batch) * size_t(stepsK_) * parts().size() * size_t(tilesM);
    const size_t copies = (block_.later.size() + chunks - 1) / chunks;
    for (int z = 0; z < batch; ++z) {
      for (int k = 0; k < stepsK_; ++k) {
        // What the next step multiplies is on its way while this one multiplies.
        if (ahead_ && k == 0) load(z, 0, tilesM, tilesN);
        if (ahead_ && k + 1 < stepsK_) load(z, k + 1, tilesM, tilesN);
        for (const auto &[partA, partB] : parts())
          for (int m = 0; m < tilesM; ++m) {
            for (int n = 0; n < tilesN; ++n)
              add(partA == Part::Low || partB == Part::Low ? small_ : large_.empty() ? sums_ : large_,
                  wordsOf(operandA_, firstA(z, k, m, tilesM), 4, partA),
                  wordsOf(operandB_, firstB(z, k, n, tilesN), 2, partB), 4 * (n + tilesN * (m + tilesM * z)));
            block_.emitLater(copies);
          }
      }
    }
    block_.emitLater(block_.later.size());
    addSplitProducts(b_, sums_, large_, small_);
    narrow();
    return {plan_.accumulator, sums_};
  }

private:
  // The first words of one instruction's operands.
  int firstA(int z, int k, int m, int tilesM) const { return 4 * (k + stepsK_ * (m + tilesM * z)); }
  int firstB(int z, int k, int n, int tilesN) const { return 2 * (k + stepsK_ * (n + tilesN * z)); }
  /// Asks for all words of step k.
  void load(int z, int k, int tilesM, int tilesN) {
    for (int m = 0; m < tilesM; ++m) wordsOf(operandA_, firstA(z, k, m, tilesM), 4, Part::All);
    for (int n = 0; n < tilesN; ++n) wordsOf(operandB_, firstB(z, k, n, tilesN), 2, Part::All);
  }
  int kSteps() const { return int(tensorShape(plan_.operandA).back()) / plan_.row->k(); }
  int batchRegisters() const {
    int64_t n = 1;
    const LinearLayout::Out &out = plan_.accumulator.out("dim0");
    for (uint64_t basis : plan_.accumulator.in(kRegister).bases) n *= out.of(basis) ? 2 : 1;
    return int(n);
  }
  /// The register bit of operand B that walks to the next columns; -1: none.
  int nextColumns() const {
    int bit = log2Exact(int64_t(perWord_) * 2 * stepsK_);
    return bit < plan_.operandB.inBits(kRegister) ? bit : -1;
  }
  void widen() {
    type_ = sums_[0]->getType();
    if (type_->isHalfTy() || type_->isBFloatTy())
      for (llvm::Value *&sum : sums_) sum = b_.CreateFPExt(sum, b_.getFloatTy());
  }
  void narrow() {
    if (type_->isHalfTy() || type_->isBFloatTy())
      for (llvm::Value *&sum : sums_) sum = b_.CreateFPTrunc(sum, type_);
  }

  using Words = llvm::SmallVector<llvm::Value *, 4>;
  /// What of an f32 an instruction multiplies: x = High + Low, each a tf32. All: of types that are multiplied as they
  /// are.
  enum class Part : uint8_t { All, High, Low };
  /// Products that are added. Each is done for all tiles before the next one: a chain of instructions on one sum would
  /// wait for itself.
  llvm::SmallVector<std::pair<Part, Part>, 3> parts() const {
    if (plan_.row->a != DotFormat::TF32) return {{Part::All, Part::All}};
    if (!plan_.isSplit()) return {{Part::High, Part::High}};
    return {{Part::Low, Part::High}, {Part::High, Part::Low}, {Part::High, Part::High}};
  }
  Words wordsOf(Operand &operand, int first, int count, Part part) {
    Words words;
    for (int i = 0; i < count; ++i) {
      llvm::Value *word = operand.word(first + i);
      words.push_back(part == Part::All ? word : part == Part::High ? high(word) : low(word));
    }
    return words;
  }
  llvm::Value *high(llvm::Value *word) {
    llvm::Value *&result = high_[word];
    if (!result) result = roundTf32(b_, word);
    return result;
  }
  /// What high(word) leaves, cut to a tf32.
  llvm::Value *low(llvm::Value *word) {
    llvm::Value *rounded = high(word);
    llvm::Value *&result = low_[word];
    if (result) return result;
    llvm::Value *rest =
        b_.CreateFSub(b_.CreateBitCast(word, b_.getFloatTy()), b_.CreateBitCast(rounded, b_.getFloatTy()));
    return result = cutToTf32(b_, b_.CreateBitCast(rest, b_.getInt32Ty()));
  }
  void add(Registers &sums, const Words &a, const Words &b, int firstSum) {
    Words arguments;
    llvm::Type *type = packedType(b_, plan_.row->a);
    for (llvm::Value *word : a) arguments.push_back(b_.CreateBitCast(word, type));
    for (llvm::Value *word : b) arguments.push_back(b_.CreateBitCast(word, type));
    if (plan_.row->quarters) return addQuarters(sums, arguments, firstSum);
    for (int i = 0; i < 4; ++i) arguments.push_back(sums[size_t(firstSum + i)]);
    llvm::Value *result = b_.CreateIntrinsic(plan_.row->intrinsic, arguments);
    for (unsigned i = 0; i < 4; ++i) sums[size_t(firstSum) + i] = b_.CreateExtractValue(result, i);
  }
  /// Of m16 n8 k8 by m8 n8 k4: words 0 and 1 of A are its upper and lower rows in the first half of k, 2 and 3 those in the second.
  void addQuarters(Registers &sums, const Words &words, int firstSum) {
    for (size_t half = 0; half < 2; ++half)
      for (size_t rows = 0; rows < 2; ++rows) {
        llvm::Value **sum = &sums[size_t(firstSum) + 2 * rows];
        llvm::Value *result = b_.CreateIntrinsic(plan_.row->intrinsic, {words[rows + 2 * half], words[4 + half], sum[0], sum[1]});
        for (unsigned i = 0; i < 2; ++i) sum[i] = b_.CreateExtractValue(result, i);
      }
  }

  BlockContext &block_;
  llvm::IRBuilder<> &b_;
  const DotPlan &plan_;
  bool ahead_;
  Registers sums_, small_, large_; // small_: of three products of tf32, the two with a low part; large_: the other one, if it is summed apart
  int perWord_, wordsA_, wordsB_, stepsK_;
  Operand operandA_, operandB_;
  llvm::Type *type_ = nullptr;                              // of the accumulator outside
  llvm::DenseMap<llvm::Value *, llvm::Value *> high_, low_; // by word
};

} // namespace

llvm::Value *roundTf32(llvm::IRBuilder<> &b, llvm::Value *word) {
  return b.CreateIntrinsic(llvm::Intrinsic::nvvm_f2tf32_rna, {b.CreateBitCast(word, b.getFloatTy())});
}

llvm::Value *cutToTf32(llvm::IRBuilder<> &b, llvm::Value *word) {
  constexpr uint32_t kBelowTf32 = 0x1fff;
  return b.CreateAnd(word, ~kBelowTf32);
}

void addSplitProducts(llvm::IRBuilder<> &b, Registers &sums, llvm::ArrayRef<llvm::Value *> large, llvm::ArrayRef<llvm::Value *> small) {
  for (size_t i = 0; i < large.size(); ++i) sums[i] = b.CreateFAdd(sums[i], large[i]);
  for (size_t i = 0; i < small.size(); ++i)
    sums[i] = b.CreateSelect(b.CreateFCmpUNO(small[i], small[i]), sums[i], b.CreateFAdd(sums[i], small[i]));
}

std::optional<DotFormat> formatOf(mlir::Type type, DotPrecision precision) {
  if (type.isBF16()) return DotFormat::BF16;
  if (type.isF16()) return DotFormat::F16;
  if (type.isF32() && precision != DotPrecision::Ieee) return DotFormat::TF32;
  if (type.isF64()) return DotFormat::F64;
  if (type.isInteger(8)) return DotFormat::S8;
  if (llvm::isa<mlir::Float8E4M3FNType>(type)) return DotFormat::E4M3;
  if (llvm::isa<mlir::Float8E5M2Type>(type)) return DotFormat::E5M2;
  return std::nullopt;
}

bool isSummed(DotFormat format, mlir::Type d) {
  if (format == DotFormat::F64) return d.isF64();
  // Sums in f32 serve results of 16 bits as well; f64 does not go through them.
  return format == DotFormat::S8 ? d.isInteger(32) : d.isF32() || d.isF16() || d.isBF16();
}

LinearLayout dotBuffer(const Chip &chip, const Sizes &shape, int fast, int elementBits) {
  int rank = int(shape.size());
  if (rank == 2 && chip.readsPanels()) return panelledLayout(shape, fast, elementBits);
  if (rank == 1) return sharedLayout(shape, {0}, {});
  std::vector<int> order{fast, fast == rank - 1 ? rank - 2 : rank - 1};
  if (rank == 3) order.push_back(0);
  return sharedLayout(shape, order, matrixSwizzle(shape, order, elementBits));
}

DotPlan planDot(const Chip &chip, const Sizes &shape, int warps, const DotTypes &types, DotPrecision precision,
                DotSplit split) {
  DotPlan plan;
  plan.types = types;
  plan.precision = precision;
  int64_t batch = shape.size() == 4 ? shape[0] : 1, m = shape[shape.size() - 3], n = shape[shape.size() - 2];
  plan.row = findRow(chip, types, precision);
  const bool fits = plan.row && isLargeEnough(*plan.row, shape);
  if (!fits && (isF8(types.a) || isF8(types.b))) {
    // f16 holds every value of both formats; its instructions take shorter rows, and what they are too large for multiplies f16, too.
    plan.types.a = plan.types.b = mlir::Float16Type::get(types.a.getContext());
    plan.row = findRow(chip, plan.types, precision);
  }
  if (!plan.row || !isLargeEnough(*plan.row, shape)) {
    plan.row = nullptr;
    plan.accumulator = fmaAccumulator(batch, m, n, warps, shape.size() == 4);
    return plan;
  }
  plan.kind = DotKind::MmaSync;
  plan.warps = splitWarps(m, n, warps / std::min<int64_t>(batch, warps), split);
  layOut(plan, shape, warps);
  return plan;
}

DotPrecision precisionOf(tt::DotOp dot) {
  switch (dot.getInputPrecision()) {
  case tt::InputPrecision::TF32: return DotPrecision::Tf32;
  case tt::InputPrecision::TF32x3: return DotPrecision::Tf32x3;
  default: return DotPrecision::Ieee;
  }
}

int64_t columnsThatCount(tt::DotOp dot) {
  auto valid = dot->getAttrOfType<mlir::IntegerAttr>(tile::kValidNAttr);
  return valid ? valid.getInt() : dot.getD().getType().getShape().back();
}

const DotTraits &traitsOf(DotKind kind) {
  static constexpr DotTraits kTraits[] = {
      {"fma", false, false, true, false, false, false}, {"mma.sync", true, false, true, false, false, false}, {"wgmma", true, true, false, true, true, false}, {"tcgen05", true, true, false, true, true, true}};
  return kTraits[size_t(kind)];
}

const DotTraits *traitsOf(mlir::Operation *op) {
  mlir::Attribute product = op->getAttr(placed::kProductAttr);
  if (llvm::isa_and_present<placed::FmaAttr>(product)) return &traitsOf(DotKind::Fma);
  if (llvm::isa_and_present<placed::MmaSyncAttr>(product)) return &traitsOf(DotKind::MmaSync);
  if (llvm::isa_and_present<placed::WgmmaAttr>(product)) return &traitsOf(DotKind::Wgmma);
  return llvm::isa_and_present<placed::Tcgen05Attr>(product) ? &traitsOf(DotKind::Tcgen05) : nullptr;
}

mlir::Attribute attributeOf(const DotPlan &plan, mlir::MLIRContext *context) {
  switch (plan.kind) {
  case DotKind::Fma: return placed::FmaAttr::get(context);
  case DotKind::MmaSync: return placed::MmaSyncAttr::get(context, plan.warps);
  case DotKind::Wgmma: return placed::WgmmaAttr::get(context, plan.warps);
  case DotKind::Tcgen05: return placed::Tcgen05Attr::get(context, plan.warps);
  }
  NESO_UNREACHABLE("every way to multiply has an attribute");
}

std::optional<DotPlan> placedPlan(tt::DotOp dot, const Chip &chip, int warps) {
  auto tensor = [](mlir::Value v) { return llvm::cast<mlir::RankedTensorType>(v.getType()); };
  DotPlan plan;
  plan.types = {tensor(dot.getA()).getElementType(), tensor(dot.getB()).getElementType(),
                tensor(dot.getD()).getElementType()};
  plan.precision = precisionOf(dot);
  if (const DotTraits *traits = traitsOf(dot.getOperation()); traits && traits->byGroups) {
    std::optional<DotPlan> known = planWarpGroups(dot, chip, warps);
    if (!known || attributeOf(*known, dot.getContext()) != dot->getAttr(placed::kProductAttr)) return std::nullopt;
    known->open = dot->hasAttr(placed::kOpenAttr);
    return known;
  }
  auto mma = dot->getAttrOfType<placed::MmaSyncAttr>(placed::kProductAttr);
  if (!mma) {
    plan.accumulator = *placed::layoutOf(dot.getD());
    return plan;
  }
  plan.kind = DotKind::MmaSync;
  plan.warps = Sizes(mma.getWarps().begin(), mma.getWarps().end());
  plan.row = findRow(chip, plan.types, plan.precision);
  Sizes shape(tensor(dot.getD()).getShape().begin(), tensor(dot.getD()).getShape().end());
  shape.push_back(tensor(dot.getA()).getShape().back());
  const int64_t batch = shape.size() == 4 ? std::min<int64_t>(shape[0], warps) : 1;
  auto fits = [](int64_t n) { return n > 0 && (n & (n - 1)) == 0; };
  if (!plan.row || !isLargeEnough(*plan.row, shape) || plan.warps.size() != 2 || !llvm::all_of(plan.warps, fits) ||
      plan.warps[0] * plan.warps[1] * batch != warps)
    return std::nullopt;
  layOut(plan, shape, warps);
  return plan;
}

bool readsShared(const DotPlan &plan, tt::DotOp dot) {
  auto element = [](mlir::Value v) { return llvm::cast<mlir::RankedTensorType>(v.getType()).getElementType(); };
  return plan.traits().onTensorCores && plan.types.a == element(dot.getA()) && plan.types.b == element(dot.getB());
}

mlir::Value operandSource(mlir::Value v) {
  auto turned = v.getDefiningOp<tt::TransOp>();
  return turned ? turned.getSrc() : v;
}

mlir::Value ringOf(mlir::Value v) {
  auto load = operandSource(v).getDefiningOp<ttg::LocalLoadOp>();
  return load ? load.getRing() : mlir::Value();
}

bool isCopiedInto(mlir::Value ring) {
  return llvm::any_of(ring.getUsers(), [](mlir::Operation *user) { return llvm::isa<ttg::AsyncCopyOp, ttg::BulkCopyOp>(user); });
}

int64_t slotBytes(ttg::LocalAllocOp alloc) {
  ttg::RingType type = alloc.getRing().getType();
  const mlir::Type element = type.getElementType();
  const int64_t bytes = element.isIntOrFloat() ? std::max<int64_t>(8, element.getIntOrFloatBitWidth()) / 8 : 8;
  const mlir::RankedTensorType tile = type.getTileType();
  const auto rows = alloc->getAttrOfType<mlir::IntegerAttr>(tile::kSlotRowsAttr);
  return bytes * (rows ? rows.getInt() * tile.getDimSize(alloc.getFast()) : tile.getNumElements());
}

bool isReadByProductsAlone(ttg::LocalLoadOp load, const Chip &chip, int warps) {
  if (load.getOffsets()) return false;
  auto isProduct = [&](mlir::Operation *user) {
    auto dot = llvm::dyn_cast<tt::DotOp>(user);
    return dot && readsShared(*placedPlan(dot, chip, warps), dot);
  };
  return llvm::all_of(load->getUsers(), [&](mlir::Operation *user) {
    return isProduct(user) || (llvm::isa<tt::TransOp>(user) && llvm::all_of(user->getUsers(), isProduct));
  });
}

bool leavesRegisters(const DotPlan &plan) {
  if (plan.kind != DotKind::MmaSync) return false;
  // Sums, and the words of two steps of both operands. More leave the assembler no room: it was slower on H200.
  const int64_t steps = tensorShape(plan.operandA).back() / plan.row->k(), perWord = plan.row->perWord();
  const int64_t operands = plan.operandA.inSize(kRegister) + plan.operandB.inSize(kRegister);
  return plan.row->registers() * (plan.accumulator.inSize(kRegister) + 2 * operands / (steps * perWord)) <= 128;
}

Tile emitDot(BlockContext &block, const DotPlan &plan, const DotOperand &a, const DotOperand &b, const Tile &c) {
  NESO_CHECK(c.layout == plan.accumulator, "the accumulator of a product lies as planned");
  if (plan.kind == DotKind::Fma) return emitFmaDot(block, plan, a, b, c);
  if (plan.kind == DotKind::Wgmma) return emitWarpGroupDot(block, plan, a, std::get<SharedTile>(b), c);
  std::optional<SharedBuffer> ownA, ownB;
  DotOperand placedA = placeOperand(block, a, plan.operandA, plan.row->bits, true, ownA);
  DotOperand placedB = placeOperand(block, b, plan.operandB, plan.row->bits, false, ownB);
  bool shared = std::holds_alternative<SharedTile>(a) && std::holds_alternative<SharedTile>(b);
  Tile d = MmaEmitter(block, plan, placedA, placedB, c, shared && leavesRegisters(plan)).run();
  if (ownA) block.shared.release(*ownA);
  if (ownB) block.shared.release(*ownB);
  return d;
}

} // namespace neso::nvidia
