// Affine: how a tensor's elements change along its dimensions, proven from the operations that make it.
//
// The one fact that masks' bounds, rows read in place and widened indices stand on is "start + position * step over the
// whole extent, without wrapping". It has two halves.
//
// Proven here, from the form alone: modulo 2^bits of its own type, v[.., p, ..] = v[.., 0, ..] + p * step for every
// position p of dimension `dim`, with one step for all other coordinates. From make_range, splat, addi, subi, addptr,
// muli and shli by what is the same everywhere, select by a condition that is the same everywhere, broadcast,
// expand_dims, trans, reshape by dimensions of size 1, trunci, loop-carried values that move by a uniform amount
// and any operation on elements whose operands do not change along `dim` (step 0). Not from remainders,
// quotients, bit operations, loads, gathers: they turn over where the first vector does not show it.
//
// Left to the run of the program, as Conditions: what the form cannot show.
//   * extsi, extui, index_cast and the offset of an addptr (sign-extended to 64 bits) keep the step only if the operand
//     does not wrap around in its own type anywhere in its tensor.
//   * (start + range) % modulus keeps it only if the remainder does not turn over.
// Sums and products marked `overflow<nsw>` need no test: their maker says that they do not wrap as signed numbers where
// the element is used.
//
// If the conditions hold, the steps do. Emitter::holds (proofs.cpp) makes the test; a test that folds to a constant
// costs nothing.
//
//     %r = make_range 0..128; %i = addi (splat %n), %r : i32; %p = addptr (splat %x), %i
//     along(%p, 0)  ->  step 1 (element), if %i does not wrap as a signed i32 over its 128 elements
#pragma once
#include <functional>
#include <optional>

#include "mlir/IR/Operation.h"
#include "mlir/IR/Value.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"

namespace neso::cpu {

/// `value`, an affine tensor of integers, read as signed or unsigned numbers does not wrap around in its type: with
/// steps in [-2^(bits-1), 2^(bits-1)), start + sum of position * step is each element as a number, not only modulo
/// 2^bits.
struct NoWrap {
  mlir::Value value;
  bool isSigned;
  bool operator==(const NoWrap &) const = default;
};

/// What has to hold at run time.
struct Conditions {
  llvm::SmallVector<NoWrap, 4> noWrap;
  /// remsi operations of the form (start + range) % modulus: 0 <= start + range without wrapping, and the remainder
  /// grows by 1 from element to element.
  llvm::SmallVector<mlir::Operation *, 2> remainders;
  bool empty() const { return noWrap.empty() && remainders.empty(); }
  void add(NoWrap c);
  void add(mlir::Operation *remainder);
};

/// Amount by which elements grow from one position to the next, the same everywhere; pointers count in elements.
struct Step {
  /// In two's complement at the type's width; nothing: known at run time only.
  std::optional<int64_t> constant;
  bool isZero() const { return constant == 0; }
  bool isUnit() const { return constant == 1; }
};

/// (start + range) % modulus with start and modulus the same for all elements.
struct RemainderForm {
  mlir::Value start, modulus; // scalars
  int64_t first, last;        // the range is [first, last)
};
std::optional<RemainderForm> remainderForm(mlir::Operation *op);

/// The integer that all elements of v are.
std::optional<int64_t> splatConstant(mlir::Value v);

/// Answers about values of one function; keeps what it found.
class Affine {
public:
  /// The initial value of a loop-carried tensor that moves by a uniform amount each turn; null for all other values.
  using Motion = std::function<mlir::Value(mlir::Value)>;
  explicit Affine(Motion initOf) : initOf_(std::move(initOf)) {}

  /// The step of v along `dim`; nothing when it is not proven. Adds to `conditions` what it stands on.
  std::optional<Step> along(mlir::Value v, int64_t dim, Conditions &conditions);
  /// Whether v has a step along every dimension.
  bool everywhere(mlir::Value v, Conditions &conditions);
  /// Whether v is a conjunction of signed comparisons between affine tensors: on a block it is true everywhere when it
  /// is true at the block's corners. The compared numbers must not wrap, which `conditions` asks for.
  bool isConvexMask(mlir::Value v, Conditions &conditions);
  /// The step along `dim` as far as the form suggests it, without proof and without conditions: only to choose a
  /// direction by, never to rely on. Looks through remainders, and through quotients, which most
  /// neighbours share.
  std::optional<int64_t> likelyStep(mlir::Value v, int64_t dim);

private:
  struct Found {
    std::optional<Step> step;
    Conditions conditions;
  };
  Found find(mlir::Value v, int64_t dim, int depth);
  Found known(mlir::Value v, int64_t dim, int depth);
  /// The same for all elements of v.
  bool uniform(mlir::Value v, int depth, Conditions &conditions);
  bool everywhere(mlir::Value v, int depth, Conditions &conditions);
  Found widened(mlir::Value operand, int64_t dim, bool isSigned, int depth);
  /// Whether v's step along `dim` is exact because the sums and products that it comes from are marked (nsw).
  bool markedExact(mlir::Value v, int64_t dim, int depth);

  Motion initOf_;
  bool guessing_ = false;
  llvm::DenseMap<std::pair<mlir::Value, int64_t>, Found> memo_;
};

} // namespace neso::cpu
