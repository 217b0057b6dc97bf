// What a tile function's values are used for: which operations stay virtual, where their last sink stands, which must
// get a buffer.
#pragma once
#include <map>
#include <tuple>

#include "backend/common/opcodes.h"
#include "mlir/IR/Operation.h"
#include "mlir/IR/Value.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SmallPtrSet.h"

namespace neso::cpu {

/// Whether a tt.map_elementwise must run one pack at a time: packs of several elements, branches, loops.
bool isScalarMap(mlir::Operation *op);

/// Facts about one function, computed on demand and kept. Not thread-safe.
class Uses {
public:
  /// Whether the operation's tensor results are evaluated where they are asked for.
  bool isVirtual(mlir::Operation *op) const;
  /// The last operation of v's own block that needs v's elements, directly or through virtual operations; null: none. A
  /// use in a nested region counts as the operation that holds the region; a use in another block as the block's
  /// terminator.
  mlir::Operation *lastSink(mlir::Value v);
  /// Whether v must be kept in a buffer from its definition on: a load that a later write may change, or a costly value
  /// that is used inside a loop that it does not belong to.
  bool mustKeep(mlir::Value v);
  /// Whether v is worth a buffer when more than one sink reads it.
  bool worthKeeping(mlir::Value v);
  /// Work of one element: counts the expression below v, down to buffers; at most 1000.
  int cost(mlir::Value v);
  bool readsMemory(mlir::Value v);
  /// The scan of the same row by the same operation that stands before the reduction, whose last value is its result; null: there is
  /// none. Such a reduction asks for no elements.
  static mlir::Operation *scanOfTotal(mlir::Operation *reduce);
  /// Whether sinks would compute v again and again: one of them asks for each element at several places of itself, or for few elements at each
  /// of many, or the first of several visits v as another shape, in which nothing is kept on the way. In a chain of such steps (sorting
  /// networks, butterflies, halves added to halves) work and code would grow with every step, or be doubled by each.
  bool isRepeated(mlir::Value v);
  /// Number of different sinks, at most 2.
  int sinkCount(mlir::Value v);
  bool before(mlir::Operation *a, mlir::Operation *b) const { return a->isBeforeInBlock(b); }
  /// Stores that run in one loop nest with `first`, in order, `first` included: they write to different arguments, or to
  /// places of one that are proven to differ. No value between them must be kept.
  llvm::SmallVector<mlir::Operation *, 4> storeGroup(mlir::Operation *first);

private:
  using Visited = llvm::SmallPtrSet<mlir::Operation *, 16>;
  void sinks(mlir::Value v, llvm::SmallVectorImpl<mlir::Operation *> &out, Visited &visited);
  bool mayWrite(mlir::Operation *op);
  bool isCostlyColumn(mlir::Value v);
  /// Where a sink asks for a value: the way from the sink's own index (0) through what changes indices, how many elements it asks for
  /// there, and whether these are the value's own indices.
  struct Place {
    mlir::Operation *sink;
    int way;
    int64_t elements;
    bool own;
  };
  using Places = llvm::SmallVector<Place, 4>;
  void addPlaces(mlir::Operation *user, mlir::OpOperand &use, Places &to);
  bool repeats(mlir::Value v, llvm::ArrayRef<Place> places);
  void findRepeated(mlir::Block &block);
  bool dependsOnData(mlir::Value v);
  /// Whether something takes v's elements for elements at other indices: a transpose, a gather.
  bool changesPlaces(mlir::Value v);

  llvm::DenseMap<mlir::Value, mlir::Operation *> lastSink_;
  llvm::DenseMap<mlir::Value, int> cost_, sinkCount_;
  llvm::DenseMap<mlir::Value, bool> readsMemory_, changesPlaces_, dependsOnData_;
  llvm::DenseMap<mlir::Value, Places> places_;
  std::map<std::tuple<const void *, const void *, unsigned, int>, int> ways_;
  llvm::DenseSet<mlir::Block *> searched_;
  llvm::DenseSet<mlir::Value> repeated_;
  llvm::DenseMap<mlir::Operation *, bool> mayWrite_;
  /// Pairs of stores to one argument: whether their places differ (places.h).
  llvm::DenseMap<std::pair<mlir::Operation *, mlir::Operation *>, bool> apart_;
};

/// The pointer that all of v's elements are offsets of (a function argument as a rule, also of what loops and branches give); null: unknown.
mlir::Value pointerRoot(mlir::Value v);
/// Offsets of two different pointers. A launch may give two arguments one tensor; kernels that then read and write it are written element by
/// element.
bool inOtherMemory(mlir::Value p, mlir::Value q);
/// Same expression: equal operations on equal operands, down to the same values.
bool sameExpression(mlir::Value a, mlir::Value b);

} // namespace neso::cpu
