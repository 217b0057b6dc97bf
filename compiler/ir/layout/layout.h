// Linear layouts: which hardware place holds which element of a tensor, as a linear map over GF(2).
//
// Definition. A layout L maps an index in named in-dims (register, lane, warp, block; or offset, for shared memory) to
// an index in named out-dims (dim0, dim1, …). All sizes are powers of two, and L(a xor b) = L(a) xor L(b), so L is
// given by its bases: the images of the powers of two of each in-dim. In-dims and out-dims are ordered, minor to major:
// the first one is the fastest.
//
// Example. A [4, 8] tensor over 2 registers, 8 lanes and 2 warps; entries are lane:register of the warp that the row
// belongs to.
//
//              dim1 = 0    1    2    3    4    5    6    7          register=1 -> (dim1=1, dim0=0)
//     dim0 = 0     0:0  0:1  1:0  1:1  2:0  2:1  3:0  3:1  warp 0    lane=1     -> (dim1=2, dim0=0)
//     dim0 = 1     4:0  4:1  5:0  5:1  6:0  6:1  7:0  7:1  warp 0    lane=2     -> (dim1=4, dim0=0)
//     dim0 = 2     0:0  0:1  1:0  1:1  2:0  2:1  3:0  3:1  warp 1    lane=4     -> (dim1=0, dim0=1)
//     dim0 = 3     4:0  4:1  5:0  5:1  6:0  6:1  7:0  7:1  warp 1    warp=1     -> (dim1=0, dim0=2)
//
// Five bases say it all: register 1 of lane 5 of warp 1 holds (1 xor 2, 1 xor 2) = dim1 3, dim0 3. A zero basis means
// that the bit does not matter: both places hold the same element (broadcast).
//
// Laws (tested on random layouts):
//     compose     A.compose(B)(x) = B(A(x));  associative
//     product     (A*B) puts A in the low bits and B above it, dim by dim;  (A*B)(a, b) = A(a) + B(b) shifted above A
//     invert      L.compose(L.invert()) = identity = L.invert().compose(L)
//     pseudo      P = L.pseudoinvert() for surjective L:  L(P(y)) = y, and P uses no free bit of L
//     solve       X = A.invertAndCompose(B):  B(X(x)) = A(x).  With A the wanted and B the present layout of a tensor,
//     X says from
//                 where each place fetches its element, as near as possible: see there
//     divide      Q = *L.divideLeft(T):  T*Q = L, up to the order of the dims
//     reshape     keeps the flat index (first dim fastest) of both sides
//
// Questions: surjective, injective, free bits (broadcast), consecutive run (vector width), identity, zero. gpu.h has
// the layouts of tensors on a GPU, convert.h what a conversion between two of them costs.
//
// Limits: sizes are powers of two; at most 62 bits on each side. Padding and other sizes are the caller's affair
// (masks). All methods are const and thread-safe. A call that breaks a stated condition is a bug in the caller and
// stops with a message.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace neso {

/// The names of the usual dims. `block` counts the thread blocks of a cluster, `offset` elements of shared memory.
inline constexpr const char *kRegister = "register";
inline constexpr const char *kLane = "lane";
inline constexpr const char *kWarp = "warp";
inline constexpr const char *kBlock = "block";
inline constexpr const char *kOffset = "offset";
/// "dim0", "dim1", …
std::string dimName(int i);

/// The exponent of a positive power of two; anything else stops.
int log2Exact(int64_t size);

/// A dim and a number: its size, or an index in it.
using DimValue = std::pair<std::string, int64_t>;
using DimValues = std::vector<DimValue>;

class LinearLayout {
public:
  /// An in-dim: basis i is the image of index 2^i as a flat out index (the bits of the first out-dim lowest).
  struct In {
    std::string name;
    std::vector<uint64_t> bases;
    int bits() const { return int(bases.size()); }
    int64_t size() const { return int64_t(1) << bases.size(); }
    bool operator==(const In &) const = default;
  };
  /// An out-dim of size 2^bits, that starts at bit `shift` of the flat out index.
  struct Out {
    std::string name;
    int bits;
    int shift;
    int64_t size() const { return int64_t(1) << bits; }
    /// This dim's index in a flat out index.
    int64_t of(uint64_t flat) const { return int64_t(flat >> shift & ((uint64_t(1) << bits) - 1)); }
    bool operator==(const Out &) const = default;
  };

  /// No dims: the map from nothing to nothing, the unit of product.
  LinearLayout() = default;
  /// From flat bases; every basis is below the product of the out sizes.
  LinearLayout(std::vector<In> ins, const DimValues &outSizes);

  /// in -> out of `size`, L(i) = i.
  static LinearLayout identity1D(int64_t size, std::string_view in, std::string_view out);
  /// in of `size` -> out of `size * stride`, L(i) = i * stride. stride is a power of two. Not surjective unless stride
  /// is 1.
  static LinearLayout strided1D(int64_t size, int64_t stride, std::string_view in, std::string_view out);
  /// in of `size` -> out of `outSize`, L(i) = 0.
  static LinearLayout zeros1D(int64_t size, std::string_view in, std::string_view out, int64_t outSize = 1);

  const std::vector<In> &ins() const { return ins_; }
  const std::vector<Out> &outs() const { return outs_; }
  bool hasIn(std::string_view name) const { return findIn(name) != nullptr; }
  bool hasOut(std::string_view name) const { return findOut(name) != nullptr; }
  /// The dim of that name; it must exist.
  const In &in(std::string_view name) const;
  const Out &out(std::string_view name) const;
  /// Log2 of the size of a dim; 0 when there is none of that name.
  int inBits(std::string_view name) const;
  int outBits(std::string_view name) const;
  int64_t inSize(std::string_view name) const { return int64_t(1) << inBits(name); }
  int64_t outSize(std::string_view name) const { return int64_t(1) << outBits(name); }
  int totalInBits() const;
  int totalOutBits() const;
  /// All dims with their sizes, in order.
  DimValues inSizes() const;
  DimValues outSizes() const;
  /// Index in `out` of the image of 2^bit of `in`.
  int64_t basis(std::string_view in, int bit, std::string_view out) const;

  /// The image of an index; an in-dim that is not given counts as 0. Results in order of the out-dims.
  DimValues apply(const DimValues &index) const;
  /// The same on flat indices (first dim in the lowest bits).
  uint64_t applyFlat(uint64_t index) const;

  // ---- algebra (algebra.cpp)

  /// Direct sum: in a dim that both have, this has the low bits and `right` those above. Dims of this first, then the
  /// new ones.
  LinearLayout operator*(const LinearLayout &right) const;
  LinearLayout &operator*=(const LinearLayout &right) { return *this = *this * right; }
  /// First this, then `outer`, whose in-dims are this's out-dims (in any order), each at least as large.
  LinearLayout compose(const LinearLayout &outer) const;
  /// The inverse map of a bijective layout.
  LinearLayout invert() const;
  /// The right inverse of a surjective layout that leaves free bits 0.
  LinearLayout pseudoinvert() const;
  /// X with outer(X(x)) = this(x); nothing when this reaches what `outer` does not. Both have the same out-dims.
  /// Of all solutions each basis of X is one that keeps the index of as many major in-dims of `outer` as possible: with
  /// in-dims (register, lane, warp, block) an element comes from the own thread if the own thread has it, else from the
  /// own warp, else from the own block. So X leaves all in-dims from a given one on alone exactly when some solution
  /// does.
  std::optional<LinearLayout> invertAndCompose(const LinearLayout &outer) const;
  /// Q with tile*Q = this (up to the order of dims, which are this's), or nothing when `tile` is not the low part of
  /// this.
  std::optional<LinearLayout> divideLeft(const LinearLayout &tile) const;
  /// This without `dims`, each of which must be an in-dim and an out-dim that the layout maps by identity, apart from
  /// all others; nothing when that is not so.
  std::optional<LinearLayout> quotient(const std::vector<std::string> &dims) const;

  // ---- the same map under other dims (reshape.cpp)

  /// Cuts the flat in (out) index into new dims, whose sizes multiply to the same total.
  LinearLayout reshapeIns(const DimValues &sizes) const;
  LinearLayout reshapeOuts(const DimValues &sizes) const;
  /// One dim, named like the first one unless a name is given.
  LinearLayout flattenIns(std::string_view name = {}) const;
  LinearLayout flattenOuts(std::string_view name = {}) const;
  /// The same map with its dims in another order (all of them named).
  LinearLayout transposeIns(const std::vector<std::string> &order) const;
  LinearLayout transposeOuts(const std::vector<std::string> &order) const;
  LinearLayout renameIn(std::string_view from, std::string_view to) const;
  LinearLayout renameOut(std::string_view from, std::string_view to) const;
  /// Adds a dim of size 1 as the major one, unless there is one of that name.
  LinearLayout expandIn(std::string_view name) const;
  LinearLayout expandOut(std::string_view name) const;
  /// Drops a dim of size 1.
  LinearLayout squeezeIn(std::string_view name) const;
  LinearLayout squeezeOut(std::string_view name) const;
  /// Keeps the low bits of an in-dim, or adds zero bases above (broadcast).
  LinearLayout resizeIn(std::string_view name, int64_t size) const;
  /// Out index modulo `size`, or the same index in a larger dim.
  LinearLayout resizeOut(std::string_view name, int64_t size) const;
  /// The map between some dims only, in the order of this: other in-dims are 0, other out-dims are dropped.
  LinearLayout sublayout(const std::vector<std::string> &ins, const std::vector<std::string> &outs) const;
  /// Drops the zero bases of an in-dim: its size becomes smaller.
  LinearLayout removeZeroBases(std::string_view in) const;

  // ---- questions (layout.cpp)

  int rank() const;
  bool surjective() const { return rank() == totalOutBits(); }
  bool injective() const { return rank() == totalInBits(); }
  bool invertible() const { return surjective() && injective(); }
  /// The bits of `in` that add nothing to what lower bits and earlier dims reach: broadcast bits. 0 when there is no
  /// such dim.
  uint64_t freeMask(std::string_view in) const;
  /// The largest n = 2^k such that L(x + j) = L(x) + j in `out`, other out-dims equal, for 0 <= j < n and x a multiple
  /// of n in `in`. So n neighbours of `in` are n neighbours of `out`, aligned to n.
  int64_t consecutiveRun(std::string_view in, std::string_view out) const;
  /// All bases of `in` are zero.
  bool zeroOn(std::string_view in) const;
  /// `in` maps to the out-dim of the same name by identity, that out-dim gets nothing else, and `in` reaches nothing
  /// else.
  bool trivialOn(std::string_view dim) const;

  /// Same dims in the same order, same bases.
  bool operator==(const LinearLayout &) const = default;
  /// One line a basis, and a line of out sizes (print.cpp).
  std::string str() const;

private:
  const In *findIn(std::string_view name) const;
  const Out *findOut(std::string_view name) const;
  std::vector<uint64_t> flatBases() const;

  std::vector<In> ins_;
  std::vector<Out> outs_;
};

} // namespace neso
