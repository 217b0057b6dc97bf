// Reductions and scans of tiles: identities, how two partial results combine, and the tile operations that do it.
#pragma once
#include "lower/plan_to_tile/emit.h"

namespace neso {

/// One reduction or scan of a phase while the phase is being emitted.
class Accumulator {
public:
  Accumulator(const loops::Reduction &red, size_t node)
      : reduction(&red), node(node), kind_(red.kind), type_(red.dtype) {}
  Accumulator(const loops::ScanSpec &scan, size_t node);

  const loops::Reduction *reduction = nullptr; // null for a scan
  size_t node;
  std::vector<Val> carried, result;

  /// Values carried from block to block: (value, position) for arg reductions, (maximum, sum), (mean, squared
  /// deviations, count), else one.
  size_t arity() const {
    return isArg() || kind_ == loops::ReduceKind::OnlineSoftmax ? 2 : kind_ == loops::ReduceKind::Welford ? 3 : 1;
  }
  DType dtype() const { return type_; }
  /// Result number i of the reduction, in resultType(): an arg reduction gives the position only.
  Val resultAt(size_t i) const { return isArg() ? result[1] : result[i]; }
  DType resultType(const Emitter &e) const {
    return !isArg() ? type_ : e.k.indexType.isInteger(32) ? DType::I32 : DType::I64;
  }
  std::vector<Val> initial(Emitter &e, unsigned vary) const;
  /// What one element contributes: its value, and its position for arg reductions.
  std::vector<Val> element(Val value, Val position) const;
  std::vector<Val> combine(Emitter &e, const std::vector<Val> &a, const std::vector<Val> &b) const;
  /// `a` with one more element for each lane, given by element(); lanes where mask is false keep what they have.
  std::vector<Val> fold(Emitter &e, const std::vector<Val> &a, std::vector<Val> element, Val mask) const;
  /// What the carried values stand for, when all is folded.
  std::vector<Val> finish(Emitter &e, std::vector<Val> carried) const;
  /// A full tile in which lanes where mask is false do not count: they hold the identity.
  std::vector<Val> maskTile(Emitter &e, std::vector<Val> element, Val mask) const;
  /// Reduces a full tile along one dimension of the frame; lanes where mask is false do not count. Positions may be
  /// narrower than those that are carried.
  std::vector<Val> reduceTile(Emitter &e, std::vector<Val> element, size_t dim, Val mask) const;
  /// The inclusive scan of a tile along dim, from nothing; lanes where mask is false do not count.
  Val scanAlone(Emitter &e, Val element, size_t dim, Val mask) const;
  /// The inclusive scan of a tile along dim, continued from `carried`, which moves on.
  Val scanTile(Emitter &e, Val element, size_t dim, Val mask);

  bool beginsWithZero() const { return reduction && kind_ == loops::ReduceKind::Sum && isFloat(type_); }
  bool isArg() const { return reduction && (kind_ == loops::ReduceKind::ArgMin || kind_ == loops::ReduceKind::ArgMax); }

private:
  loops::ReduceKind kind_ = loops::ReduceKind::Sum;
  DType type_;
  bool logSumExp_ = false, reverse_ = false;
};

} // namespace neso
