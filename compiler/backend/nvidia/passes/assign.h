// Layout assignment: which thread holds which element of each tensor of a tile function. Answers only: place.h writes
// them into the IR.
//
// A tensor value is one of three kinds:
//   Virtual   a cheap expression of scalars and ranges (addresses, masks, constants). It has no layout: each use
//   computes the
//             elements that it wants, where it wants them.
//   Derived   a shape operation (broadcast, expand_dims, trans, reshape) on a value that is not virtual. It has no
//   layout of
//             its own either: a use in layout L asks its operand for the layout that L is of the operand, so that
//             conversions happen to the smaller tensor.
//   Placed    everything else: loads, products, arithmetic on them, values carried by control flow. layout() is where
//   its
//             registers are; a use in another layout converts.
//
// Anchors are memory accesses, coalesced by what is known of their addresses (AxisInfo), and products, whose
// accumulators the chip lays out. Everything else follows: forward from operands, backward from uses, carried values
// agree with both ends. Then casts to wider elements move to where their result is used, so that the narrow ones travel, and accesses
// into the layout that their value wants, or lies in, where that costs less than a conversion: rows of weights are read where they are
// used, sums of rows are stored where they came out.
//
//     Assignment layouts(function, *findChip("sm_90"), 4);
//     layouts.kind(v) == Kind::Placed;  *layouts.layout(v);  *layouts.access(store)
//
// Layouts are interned: equal layouts have one address. One thread at a time.
#pragma once
#include <deque>
#include <memory>
#include <optional>

#include "backend/nvidia/chip.h"
#include "backend/nvidia/dot.h"
#include "backend/nvidia/passes/place.h"
#include "ir/layout/convert.h"
#include "ir/layout/gpu.h"
#include "ir/tile/passes/axis_info.h"
#include "ir/tile/placed.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

namespace neso::nvidia {

using LayoutRef = const LinearLayout *;

/// What an access says of its address: the address, its mask.
struct AccessOperands {
  mlir::Value ptr, mask;
};
/// Nothing for operations that are no load, store, atomic or asynchronous copy.
std::optional<AccessOperands> accessOperands(mlir::Operation *op);

class Assignment {
public:
  enum class Kind : uint8_t { Scalar, Virtual, Derived, Placed };

  /// `function` is a tile function after runTilePipeline, on a chip with `warps` warps a block.
  Assignment(tt::FuncOp function, const Chip &chip, int warps, Exchange exchange = Exchange::Cheapest);
  ~Assignment();

  Kind kind(mlir::Value v) const;
  /// Of a Placed value.
  LayoutRef layout(mlir::Value v) const;
  /// The layout in which a load, store or atomic touches memory; null for scalar ones.
  LayoutRef access(mlir::Operation *op) const { return access_.lookup(op); }
  /// Of a tt.dot.
  const DotPlan &dot(mlir::Operation *op) const { return *dots_.find(op)->second; }
  /// Carried by a loop as the next operand of a product on tensor cores (the parts of tiles that pipeline.h reads
  /// ahead): elements travel in words of 32 bits, as the instruction takes them.
  bool isStep(mlir::Value v) const { return steps_.contains(v); }
  /// The layout in which v lies without moving anything: layout() of a Placed value, what follows from the operand for
  /// a Derived one; null for a Virtual one.
  LayoutRef natural(mlir::Value v);
  /// A Derived value wanted in `layout` wants its operand in this one.
  LayoutRef pull(mlir::Operation *op, LayoutRef layout);
  /// Where nothing says otherwise: neighbouring elements of the last dim in neighbouring threads.
  LayoutRef defaultLayout(llvm::ArrayRef<int64_t> shape);
  LayoutRef intern(LinearLayout layout);

  /// The layout in which `use` wants its operand; null when it takes what is there.
  LayoutRef wanted(mlir::OpOperand &use);
  const AxisInfoAnalysis &axisInfo() const { return axis_; }

private:
  void classify();
  void placeAccesses();
  LayoutRef copiedForArithmetic(mlir::Operation *op) const;
  void placeAnchors();
  void placeSteps(tt::DotOp dot);
  void propagate();
  void settleCasts();
  void settleAccesses();
  LayoutRef withNeighbours(LayoutRef layout, int dim, int64_t elements);
  /// What an access costs a warp in this layout, and a conversion; in the same unit, about a cycle of the memory pipe.
  int64_t accessCost(mlir::Operation *op, LayoutRef layout);
  int64_t conversionCost(LayoutRef from, LayoutRef to, mlir::Type element);
  /// entering: a value that a loop carries may lie as what the loop begins with.
  LayoutRef fromOperands(mlir::Value v, bool entering, bool evenDerived);
  LayoutRef wantedByProduct(mlir::OpOperand &use);
  std::pair<LayoutRef, tt::DotOp> ofNumbersInWords(tt::LoadOp load);
  LayoutRef fromUses(mlir::Value v);
  LayoutRef wantedByAll(mlir::Value v);
  void set(mlir::Value v, LayoutRef layout);

  tt::FuncOp function_;
  const Chip &chip_;
  int warps_;
  Exchange exchange_;
  AxisInfoAnalysis axis_;
  std::deque<LinearLayout> pool_;
  llvm::DenseMap<mlir::Value, Kind> kinds_;
  llvm::DenseMap<mlir::Value, LayoutRef> layouts_;
  llvm::DenseMap<mlir::Operation *, LayoutRef> access_;
  llvm::DenseMap<mlir::Operation *, std::unique_ptr<DotPlan>> dots_;
  llvm::DenseSet<mlir::Value> steps_;
  llvm::DenseMap<std::pair<mlir::Operation *, LayoutRef>, LayoutRef> pulled_;
};

} // namespace neso::nvidia
