// tt.dot: which instruction, which layouts, and the code.
//
//     DotPlan plan = planDot(chip, {M, N, K}, warps, types, DotPrecision::Tf32);
//     plan.accumulator           // the layout in which c is wanted and d comes back: loops carry it, nothing converts
//     inside Tile d = emitDot(block, plan, operandA, operandB, c);
//
// The instruction is a row of a table (dot.cpp) that a chip has or has not; the warp-group instructions of newer chips
// will be further rows and kinds. Types without a row, and shapes below the row's, are multiplied by fused
// multiply-add.
#pragma once
#include <optional>
#include <variant>

#include "backend/nvidia/block.h"
#include "backend/nvidia/move.h"
#include "ir/tile/placed.h"

namespace neso::nvidia {

/// How f32 operands enter a product; names of the attribute of tt.dot.
enum class DotPrecision : uint8_t { Tf32, Tf32x3, Ieee };

enum class DotKind : uint8_t {
  Fma,     // from shared memory, in any type
  MmaSync, // one warp an instruction, operands in registers
  Wgmma,   // four warps an instruction, B in shared memory, A there or in registers
  Tcgen05, // one thread an instruction, both operands in shared memory, sums in tensor memory
};

/// What others ask of a way to multiply; one row a kind (dot.cpp).
struct DotTraits {
  const char *name; // in reports
  bool onTensorCores;
  /// Reads shared memory behind placed.fence_async by itself, and may be under way while its threads go on.
  bool besideThreads;
  /// Brings operands that lie elsewhere to where it takes them, through buffers of its own.
  bool movesOperands;
  bool byGroups;  // of four warps (BlockContext::group)
  bool ofOneChip; // later chips lack its instructions
  /// Sums that are under way are in no register: the next product alone adds to them.
  bool keepsSums;
};
const DotTraits &traitsOf(DotKind kind);

struct DotTypes {
  mlir::Type a, b; // elements
  mlir::Type d;    // of accumulator and result
};

/// Of a thread, of a split product (DotPlan::isSplit): it has three sets of so many. The tensor cores cut off what an f32 does not hold, so that sums that
/// they keep over a long K lose digits; those of one product of tiles are added to the others, rounded.
inline constexpr int64_t kMostSplitSums = 32;

/// Of operands, as instructions of tensor cores name them.
enum class DotFormat : uint8_t { BF16, F16, TF32, F64, S8, E4M3, E5M2 };
/// Nothing: no instruction takes them.
std::optional<DotFormat> formatOf(mlir::Type type, DotPrecision precision);
/// Whether tensor cores sum products of a format in `d`, or what they sum in serves it.
bool isSummed(DotFormat format, mlir::Type d);

/// An instruction mma.sync of m16 n8 k with k = 256 / bits, of f64 8.
struct MmaRow;
/// A kind of products by groups of four warps (groups.h): of 32 bytes along K.
struct GroupRow;

struct DotPlan {
  DotKind kind = DotKind::Fma;
  const DotTraits &traits() const { return traitsOf(kind); }
  /// Where registers hold an operand for it; null: they do not.
  const LinearLayout *operandIn(bool isA) const {
    const LinearLayout &layout = isA ? operandA : operandB;
    return layout.ins().empty() ? nullptr : &layout;
  }
  /// Whether the sums that its instructions leave are its own: they may be under way when the next turn adds to them.
  bool leavesSums() const { return traits().besideThreads && types.d.getIntOrFloatBitWidth() == 32 && partK == 0 && !isSplit(); }
  /// An f32 is multiplied as the sum of two tf32, by three products, which have sums of their own.
  bool isSplit() const { return types.a.isF32() && precision == DotPrecision::Tf32x3; }
  /// a and b may differ from what was asked for (f8 on a chip without it: f16): then the caller converts the operands'
  /// elements first.
  DotTypes types;
  DotPrecision precision = DotPrecision::Ieee;
  const MmaRow *row = nullptr;     // MmaSync
  const GroupRow *groupRow = nullptr; // Wgmma, Tcgen05
  Sizes warps;                     // MmaSync: of one matrix, along M and along N; Wgmma, Tcgen05: groups of four
  LinearLayout accumulator;        // [.., M, N]
  /// MmaSync: [.., M, K], [.., K, N]. Wgmma: A alone, where registers may hold it (and do, if it is split). Else operands
  /// are read from shared memory.
  LinearLayout operandA, operandB;
  bool open = false; // Wgmma, Tcgen05: begun and not waited for (placed.open)
  /// Wgmma: the tensor cores sum so many elements of K, threads what comes of them; 0: the tensor cores sum all.
  int64_t partK = 0;
  /// Wgmma, Tcgen05: the instructions compute so many columns, and leave the sums of those behind them as they are.
  int64_t columns = 0;
  /// Wgmma, Tcgen05: of the right operand, of all groups.
  int64_t columnsRead() const { return columns * warps[1]; }
};

/// How the warps of a block share a product.
enum class DotSplit : uint8_t {
  Square, // the least traffic from shared memory
  Rows,   // no row of the result in two warps, where there are rows enough: for reductions along N, and products of
          // products
};
/// shape: {M, N, K} or {batch, M, N, K}, powers of two.
DotPlan planDot(const Chip &chip, const Sizes &shape, int warps, const DotTypes &types, DotPrecision precision,
                DotSplit split = DotSplit::Square);
DotPrecision precisionOf(tt::DotOp dot);
/// Of the product's columns the first that count (tile::kValidNAttr).
int64_t columnsThatCount(tt::DotOp dot);
/// Where a product by groups of four warps (DotTraits::byGroups) takes an operand from, and which of its elements are neighbours there. B is in shared memory.
enum class GroupOperand : uint8_t { Registers, AlongK, AcrossK };
/// The plan by the chip's instruction for groups of a product whose operands lie so; nothing where the chip, the types or the shape have none: `why`
/// says so then.
std::optional<DotPlan> planWarpGroups(tt::DotOp dot, const Chip &chip, int warps, GroupOperand a, GroupOperand b,
                                      std::string *why = nullptr);
/// Of a product behind the software pipeline, placed or not.
std::optional<DotPlan> planWarpGroups(tt::DotOp dot, const Chip &chip, int warps);
/// Where an operand with K as dim `k` lies there: in shared memory when it is a whole tile of a ring.
GroupOperand placeOfOperand(mlir::Value v, int k);
/// Why a product is none by groups; empty where it is one.
std::string whyNoWarpGroups(tt::DotOp dot, const Chip &chip, int warps);
/// Of a chip that reads panels.
DotKind groupKind(const Chip &chip);

/// The plan as the attribute placed.product, and that of a placed tt.dot by its attribute
mlir::Attribute attributeOf(const DotPlan &plan, mlir::MLIRContext *context);
/// (nothing when the chip has no such instruction).
std::optional<DotPlan> placedPlan(tt::DotOp dot, const Chip &chip, int warps);
/// Of a placed product; nothing for any other operation.
const DotTraits *traitsOf(mlir::Operation *op);
/// Whether a product takes operands out of shared memory as they are.
bool readsShared(const DotPlan &plan, tt::DotOp dot);
/// What an operand of a product is before it is transposed, and the ring that it is a tile of (null: none).
mlir::Value operandSource(mlir::Value v);
mlir::Value ringOf(mlir::Value v);
/// Whether a ring is filled by asynchronous copies, whose wait is an operation of its own.
bool isCopiedInto(mlir::Value ring);
/// Of a ring's slot: all of a tile, or the rows of it that lie there (tile::kSlotRowsAttr).
int64_t slotBytes(ttg::LocalAllocOp ring);
/// Whether all uses of a tile are products that read the ring themselves: no register holds it then.
bool isReadByProductsAlone(ttg::LocalLoadOp load, const Chip &chip, int warps);

/// In registers, in any layout, or in shared memory (where the software pipeline has left it): for MmaSync best in
/// dotBuffer's layout, for Fma without swizzle.
using DotOperand = std::variant<Tile, SharedTile>;
/// Of a split product by wgmma: into how many parts along K its threads take the operands apart, each with a buffer for the low parts of B.
int64_t panelsOf(const DotPlan &plan, int64_t k);
/// d = a b + c, with c and d in plan.accumulator.
Tile emitDot(BlockContext &block, const DotPlan &plan, const DotOperand &a, const DotOperand &b, const Tile &c);

/// The nearest tf32 to an f32, and its first 19 bits; in the bits of an f32.
llvm::Value *roundTf32(llvm::IRBuilder<> &b, llvm::Value *word);
llvm::Value *cutToTf32(llvm::IRBuilder<> &b, llvm::Value *word);
/// Adds what was summed apart of a split product, if it was: products of high parts, and those with a low part, which are no number where an operand is
/// infinite: those of high parts say it all then.
void addSplitProducts(llvm::IRBuilder<> &b, Registers &sums, llvm::ArrayRef<llvm::Value *> large, llvm::ArrayRef<llvm::Value *> small);

/// Whether a product leaves registers enough for loading its operands a step ahead, and for copies among its
/// instructions.
bool leavesRegisters(const DotPlan &plan);

/// The buffer for an operand [.., rows, columns] of a product on tensor cores, whose dim `fast` has its elements side by
/// side: swizzled so that ldmatrix has no bank conflicts.
/// On chips with wgmma in panels, which that reads too.
LinearLayout dotBuffer(const Chip &chip, const Sizes &shape, int fast, int elementBits);

} // namespace neso::nvidia
