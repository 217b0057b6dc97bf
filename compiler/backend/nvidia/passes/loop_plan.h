// What a software pipeline of one loop does (pipeline.h): found by planLoop, planProducts, carried out by the rewriter.
#pragma once
#include <map>
#include <vector>

#include "backend/nvidia/dot.h"
#include "backend/nvidia/passes/pipeline.h"
#include "ir/tile/passes/axis_info.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SetVector.h"

namespace neso::nvidia {

struct PipelinedLoad {
  tt::LoadOp load;
  int fast; // the dim with neighbours in memory
  /// How many turns before the others its tile is read: 1 where products that run a turn ahead read it.
  int lead = 0;
  /// Of its tile, along the dim that is not `fast`, the first that anything reads; 0: all. Only the machine's copies leave the others out.
  int64_t rows = 0;
  mlir::Value ring = {};
};

/// The ops of a loop that lead to some values, and the numbers of the iteration arguments that they begin from.
struct LoopSlice {
  llvm::SetVector<mlir::Operation *> ops;
  llvm::SetVector<unsigned> arguments;
};

/// A product that is still under way when the next turn begins.
struct OpenProduct {
  tt::DotOp dot;
  unsigned number = 0; // of the iteration argument that is its sums
  /// What stands behind the wait for the product of the turn before, in order: what the argument becomes before it is
  /// added to, and what makes the left operand out of `tied` (may be null), whose registers that product still reads.
  llvm::SetVector<mlir::Operation *> late;
  mlir::Value tied;
};

/// A sum of products of scalars, each with its factor: what an index is. Sorted by the values' numbers.
class Polynomial {
public:
  using Product = llvm::SmallVector<int, 2>; // numbers of scalars, ascending
  Polynomial() = default;
  Polynomial(int64_t constant) { add({}, constant); }
  static Polynomial of(int scalar) {
    Polynomial p;
    p.add({scalar}, 1);
    return p;
  }
  void add(const Product &product, int64_t factor);
  Polynomial operator+(const Polynomial &o) const;
  Polynomial operator-(const Polynomial &o) const;
  Polynomial operator*(const Polynomial &o) const;
  bool operator==(const Polynomial &o) const { return terms == o.terms; }
  bool isZero() const { return terms.empty(); }
  bool has(int scalar) const;
  std::map<std::vector<int>, int64_t> terms; // never a factor of 0
};

/// A load as a box of a tensor in memory (boxes.h). By the tile's dims.
struct Box {
  mlir::Value base; // an argument of the function
  struct Dim {
    /// nullopt: no border.
    std::optional<Polynomial> size;
    /// The index has 31 bits if the pitch, which arguments give, is at least this many elements; 0: nothing is asked.
    int64_t leastPitch = 0;
    Polynomial pitch; // elements from index to index
    Polynomial first; // the index of the tile's first element in the first turn
    Polynomial step;  // what is added to it each turn
  };
  std::vector<Dim> dims;
  /// One along which a tile has one element (the head of attention).
  std::optional<Dim> outer;
  std::vector<mlir::Value> scalars; // what the numbers in polynomials stand for
};

struct LoopPlan {
  mlir::scf::ForOp loop;
  int slots = 0;
  /// How many turns the copies run ahead: all slots but the one that is read, and but those of products under way.
  int ahead = 0;
  std::vector<PipelinedLoad> loads;
  LoopSlice slice; // of addresses and masks
  /// The product whose steps along K read their operands one step ahead; null: products read whole tiles.
  tt::DotOp stepped;
  int64_t stepK = 0;
  /// Products that are begun a turn before their sums are used.
  llvm::SetVector<mlir::Operation *> early;
  /// Where there are early products, in the order of the loop; else one at most, the loop's only one.
  std::vector<OpenProduct> open;
  /// The loop's only product is one by wgmma, and reads the loads' tiles whole, each being read by nothing else.
  bool wholeTiles = false;
  /// One a load: the machine copies them (ttg.bulk_copy). Empty: threads do (ttg.async_copy).
  std::vector<Box> boxes;
  /// Warps of their own begin the machine's copies (feed.cpp), each product's by themselves.
  bool fed = false;
  /// Early and open products in one turn, with what leads from the former to the latter between two waits (feed.cpp).
  bool rotated = false;
  /// Left operands of early products that the loop does not change, and their boxes: copied once. The assembler was seen to overwrite registers
  /// that a product reads in every turn.
  std::vector<PipelinedLoad> once;
  std::vector<Box> boxesOnce;
};

/// What is still needed of a loop's body once its loads have become reads of rings.
struct LiveBody {
  explicit LiveBody(const LoopPlan &plan);
  llvm::DenseSet<mlir::Operation *> ops;
  llvm::SetVector<unsigned> arguments;

private:
  void mark(mlir::Value v);
  void mark(mlir::Operation *op);
  const LoopPlan &plan_;
};

/// A box in code: its tensor's descriptor, made at the function's begin, for it is the same in the whole launch; the indices of the first turn,
/// computed where `b` stands, and what is added to them each turn. Outermost first.
struct DescribedBox {
  mlir::Value descriptor;
  llvm::SmallVector<mlir::Value, 3> indices, steps;
};
/// entry: at the function's begin, behind the descriptors before.
DescribedBox describeBox(mlir::OpBuilder &entry, mlir::OpBuilder &b, const PipelinedLoad &load, const Box &box);
/// The parts of it.
mlir::Value describeTensor(mlir::OpBuilder &entry, const PipelinedLoad &load, const Box &box);
llvm::SmallVector<mlir::Value, 3> firstIndices(mlir::OpBuilder &b, const PipelinedLoad &load, const Box &box);
llvm::SmallVector<mlir::Value, 3> indexSteps(mlir::OpBuilder &b, const PipelinedLoad &load, const Box &box);
mlir::OpBuilder entryOf(mlir::scf::ForOp loop);

/// Left for what the rest of the kernel wants of shared memory while a ring is live.
inline constexpr int64_t kReserve = 16 * 1024;

/// Of what is copied of the load's tile, which is what a slot of its ring holds.
int64_t slotBytes(const PipelinedLoad &load);
/// Of each load the rows that the loop's products read (PipelinedLoad::rows), if the machine copies whole tiles of one product.
std::vector<int64_t> rowsRead(LoopPlan &plan, const Chip &chip, int warps);
/// Decides on stepped, early and open, and the slots and turns that they take. most: slots.
void planProducts(LoopPlan &plan, const Chip &chip, int warps, int most, Early early);
/// Whether copies of 4 bytes or more can bring the tile in; sets the dim along which.
bool isCopyable(tt::LoadOp load, const AxisInfoAnalysis &axis, int &fast);
/// Shared memory for so many of the load's tiles.
mlir::Value ringFor(const PipelinedLoad &load, int slots, mlir::OpBuilder &b, mlir::Location loc);
/// The operands of products by wgmma, in no loop of `plans`, that copies bring into rings of one slot, and the rewrite.
std::vector<PipelinedLoad> planOnceLoads(tt::FuncOp function, const std::vector<LoopPlan> &plans, const Chip &chip, int warps, const AxisInfoAnalysis &axis);
void copyOnce(const std::vector<PipelinedLoad> &loads);

/// The slot of a ring that comes behind `slot`, and the parity of its phase.
mlir::Value slotBehind(mlir::OpBuilder &b, mlir::Location loc, mlir::Value slot, int slots);
mlir::Value parityBehind(mlir::OpBuilder &b, mlir::Location loc, mlir::Value slot, mlir::Value parity, int slots);

/// How an operand with K as dim `k` lies there once the block has stored it, along K or as threads hold it.
GroupOperand stagedPlace(mlir::Value operand, int k, bool alongK);
/// Puts into shared memory what products could read there by wgmma and the block computed itself; gives of how many operands (stage.cpp). kept: from the
/// first product that reads a tile to the last one, else for each anew.
int stageOperands(tt::FuncOp function, const Chip &chip, int warps, bool kept);
/// Plans the loop for a producer: whether all loads are operands of products by wgmma, and how these follow one another.
/// axis: null where no operand is to be copied once. always: also where that was measured to be slower.
bool planFeeds(LoopPlan &plan, const Chip &chip, int warps, int most, const AxisInfoAnalysis *axis, bool always);
/// Rewrites such a loop.
void rewriteFed(LoopPlan &plan, int warps);
/// By other instructions than wgmma.
DotPlan planOf(tt::DotOp dot, const Chip &chip, int warps);

} // namespace neso::nvidia
