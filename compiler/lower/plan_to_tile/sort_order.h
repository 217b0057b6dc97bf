// The order of a sort: comparisons of keys, and keys as integers whose order is that of the result.
#pragma once
#include <optional>

#include "lower/plan_to_tile/emit.h"

namespace neso {

/// What the node sorts by, as its body gives it.
DType sortKeyType(const loops::SortSpec &node);

/// Whether key x at position a stands before key y at position b in the result. NaN is the largest value; equal keys
/// keep their order where positions are given.
Val standsBefore(Emitter &e, const loops::SortSpec &node, Val x, Val a, Val y, Val b);

/// Key and position of an element as unsigned integers: their order, one integer after another, is that of the result. The value can be
/// had back, but for the payload of a NaN.
///
///     keys of 16 bits or less, positions below 2^15     one I32: key 16, position 15, whether the key is -0
///     keys of 32 bits or less                           one I64: key 32, position 31, whether the key is -0
///     keys of 64 bits                                   an I64: key; an I32: position 31, whether the key is -0
class SortWords {
public:
  /// Positions are below `length`; fewer than 2^31.
  SortWords(Emitter &e, const loops::SortSpec &node, int64_t length);
  std::vector<Val> pack(Val key, Val position) const;
  /// The order of the key alone, as `type`, U32 or U64: equal keys have equal numbers.
  Val order(Val key, DType type) const { return e_.cast(ordered(key).bits, ordered_, type); }
  /// What stands behind every element.
  std::vector<Val> last() const;
  /// In the key's own type.
  Val key(const std::vector<Val> &words) const;
  Val position(const std::vector<Val> &words) const;                                   // I32
  int words() const { return form_ == Form::Half ? 1 : form_ == Form::Whole ? 2 : 3; } // of 32 bits

private:
  enum class Form : uint8_t { Half, Whole, Wide };
  struct Ordered {
    Val bits;         // in ordered_
    Val negativeZero; // Bool; empty for integers
  };
  Ordered ordered(Val key) const;
  Val constant(DType t, int64_t v) const { return e_.constant(t, 0, v); }

  Emitter &e_;
  DType given_, key_; // as the body gives it, and as it is sorted: f8 as f32, Bool as U8
  DType ordered_;     // unsigned, of the key's width
  bool descending_;
  Form form_;
};

/// Whether words x stand before words y.
Val comesBefore(Emitter &e, const std::vector<Val> &x, const std::vector<Val> &y);

/// Of the kernel's index arithmetic.
inline DType indexTypeOf(const KernelContext &k) { return k.indexType.isInteger(32) ? DType::I32 : DType::I64; }
/// The position of the element at r0, where the node gives one, else r0 (which is `place`); U32.
Val positionOf(Emitter &e, const loops::SortSpec &node, Val place, std::vector<Val> &memo);
/// Stores what the node asks for, and no more than it takes, at the places that out.env has for r0.
void storeSorted(Emitter &out, const loops::SortSpec &node, Val key, Val position, DType positionType);
/// Of a node with a place: what stands there; out.env has r0 = 0.
void storeSelected(Emitter &out, const loops::SortSpec &node, Val key, Val position, DType positionType);

} // namespace neso
