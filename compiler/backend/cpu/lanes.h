// Lanes: what one evaluation step knows about W neighbouring elements of a tensor (or about one scalar).
//
// Index arithmetic stays symbolic, which is what makes memory accesses contiguous without an analysis of its own:
//   Uniform  every lane is `base`
//   Offsets  lane l is base + offsets[l]   (constants; pointers: bytes), e.g. a run 0,1,2,… or the pattern of an xor-shuffle
//   Strided  lane l is base + l * step * scale  (step known only at run time and sign-extended to the base; pointers: bytes)
//   Vector   lane l is element l of the vector `base`
//
// `level` says which loop the value depends on: 0 nothing, n the n-th loop from outside; code for a value is placed at its level.
// `align` is a known power of two (its logarithm) that divides an integer base.
#pragma once
#include <map>
#include <memory>
#include <optional>

#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/IRBuilder.h"

namespace neso::cpu {

using LaneOffsets = llvm::SmallVector<int64_t, 16>;

struct Lanes {
  enum class Kind : uint8_t { Uniform, Offsets, Strided, Vector };
  Kind kind = Kind::Uniform;
  uint8_t level = 0;
  uint8_t align = 0;
  llvm::Value *base = nullptr;
  const LaneOffsets *offsets = nullptr; // interned: equal content has equal address
  llvm::Value *step = nullptr;
  int64_t scale = 1;
  uint8_t stepLevel = 0;
  /// Symbolic integers: each lane, as a signed number, is base + offset; nothing wraps around between the lanes. Without
  /// it that holds modulo 2^bits only.
  bool exact = false;

  bool uniform() const { return kind == Kind::Uniform; }
  bool vector() const { return kind == Kind::Vector; }
  bool symbolic() const { return kind == Kind::Offsets || kind == Kind::Strided; }
  llvm::Type *elementType() const { return base->getType()->getScalarType(); }
  bool operator==(const Lanes &o) const {
    return kind == o.kind && base == o.base && offsets == o.offsets && step == o.step && scale == o.scale;
  }
};

/// Index of one element per lane: one Lanes (i32) a dimension.
using Index = llvm::SmallVector<Lanes, 4>;

/// Keeps each distinct offset pattern once.
class OffsetPool {
public:
  const LaneOffsets *intern(LaneOffsets offsets);
  /// 0, step, 2*step, …
  const LaneOffsets *run(int64_t lanes, int64_t step);

private:
  std::map<std::vector<int64_t>, std::unique_ptr<LaneOffsets>> pool_;
};

/// offsets[l] == l * step for all lanes.
bool isRun(const LaneOffsets &offsets, int64_t step);

/// Whether base + offset, widened, is the widened base + offset: known to be exact, or the offsets fill low bits that the
/// base has zero.
bool staysExact(const Lanes &x, bool isSigned);

/// Integer operations that can stay symbolic.
enum class IntOp : uint8_t { Add, Sub, Mul, Shl, LShr, And, Or, Xor, UDiv, URem };

/// The symbolic result, or nothing when the operation needs vectors. `b` must stand where code for the result's level
/// goes. Arithmetic wraps at the operands' width as LLVM's does.
std::optional<Lanes> symbolicInt(llvm::IRBuilder<> &b, OffsetPool &pool, IntOp op, const Lanes &x, const Lanes &y);

/// All lanes as one vector of `n` elements.
llvm::Value *toVector(llvm::IRBuilder<> &b, const Lanes &x, int64_t n);

} // namespace neso::cpu
