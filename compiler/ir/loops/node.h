// Nodes of loops: what one of them computes, as one of ten kinds, each with its own fields and no others.
//
// A node has outer ranges (index symbols i0, i1, …), maybe reduction ranges (r0, r1, …), and a spec, which says its kind.
// Most kinds have a Body: straight-line scalar ops in SSA form, each producing one value of one DType. Example, row sums
// of relu(x) for x [8, s0]:
//
//     node n0 reduction ranges [8] over [s0]
//       %0 = load x[i0*s0 + r0] : f32
//       %1 = relu %0 : f32
//       reduce sum %1 -> store y[i0]
//
// Whoever knows the kind takes its spec: `node.get<ScanSpec>().reverse`. Whoever asks takes what may be null:
// `if (const auto *scan = node.as<ScanSpec>())`. Walks over everything that a node touches are in access.h.
#pragma once
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/diagnostics.h"
#include "base/dtype.h"
#include "base/host_launch.h"
#include "base/id.h"
#include "ir/loops/ops.h"
#include "ir/shape/expr.h"

namespace neso::loops {

struct BufferTag;
using BufferId = Id<BufferTag>;
/// An index into Body::ops; -1 is none.
using ValueIdx = int32_t;

/// One scalar operation of a body; its operator is a row of ops.def.
///
///   Constant   the value is `imm` on floats, `immInt` on integers and Bool
///   Index      the value of `index` as I64 (or the op's integer dtype)
///   Load       buffer[index]; operand 0, if given, is a Bool mask (false: the load does not happen and the value is
///              operand 1, or 0)
///   Indirect   operand 0 is an integer value used as an index; defines the symbol `symbol` for later index Exprs. `bound`
///              is the size of the dimension. With `wrap`, negative values count from the end. With `check`, out of range
///              is a run-time error. Operand 1, if given, is a Bool mask: where false, the symbol is 0 and nothing is
///              checked.
///   Cast       operand 0 to dtype; float to int truncates; to Bool is != 0
struct Op {
  OpKind kind;
  DType dtype = DType::F32;
  ValueIdx a = -1, b = -1, c = -1;
  /// Constant of a float dtype; of an integer dtype or Bool.
  double imm = 0;
  int64_t immInt = 0;
  /// Load.
  BufferId buffer = {};
  /// Load, Index.
  Expr index = {};
  /// Indirect; t0, t1, …: unique in the node.
  Symbol symbol = {};
  Expr bound = {};
  bool wrap = false, check = false;
};

/// Operands come before their users.
struct Body {
  std::vector<Op> ops;
};

enum class StoreMode : uint8_t { Set, AtomicAdd, AtomicMul, AtomicMin, AtomicMax };
/// value is stored to buffer[index]; mask (Bool) may be -1.
struct Store {
  BufferId buffer;
  Expr index;
  ValueIdx value = -1;
  ValueIdx mask = -1;
  StoreMode mode = StoreMode::Set;
};

enum class ReduceKind : uint8_t {
  Sum,
  Prod,
  Min,
  Max,
  Any,
  All,
  XorSum,
  // Operand: value; result: I64 linear index in the reduction ranges (row-major); first of equals; NaN counts as extreme.
  ArgMin,
  ArgMax,
  // Results: mean, M2 (sum of squared deviations), count.
  Welford,
  // Results: max, sum of exp(x - max).
  OnlineSoftmax,
};
/// One reduction of a node: `input` is the body's value at (i, r). Its results are stored once for each i; Store::value is
/// the number of the result: 0, 1, …. dtype is that of the accumulator.
struct Reduction {
  ReduceKind kind = ReduceKind::Sum;
  DType dtype = DType::F32;
  ValueIdx input = -1;
  std::vector<Store> results;
};

/// For all i: the body, then its stores.
struct PointwiseSpec {
  Body body;
  std::vector<Store> stores;
};

/// For all i: the body folded over r. Several reductions share the body and both ranges.
struct ReductionSpec {
  Body body;
  std::vector<Reduction> reductions;
};

/// As a reduction, over one r0 in [first, last) alone: work is what the segments hold, not what r0 ranges over. The ends
/// are I64 values of the body that do not depend on r0; what lies outside of r0's range counts as its end.
struct SegmentsSpec {
  Body body;
  std::vector<Reduction> reductions;
  ValueIdx first = -1, last = -1;
};

/// For all i: the sum over r of lhs * rhs, accumulated in accType, then the epilogue over i alone, then its stores:
/// products of matrices, convolutions, einsums. Op 0 of the epilogue is a Constant that stands for the sum; an empty
/// epilogue stores the sum as it is.
struct ContractionSpec {
  Body body;
  ValueIdx lhs = -1, rhs = -1;
  DType accType = DType::F32;
  Body epilogue;
  std::vector<Store> stores;
};

enum class ScanKind : uint8_t { Sum, Prod, Max, Min, LogSumExp };

/// A scan whose rows are shared by programs that run at the same time, each of which scans one tile (look-back: Merrill
/// and Garland 2016). A program publishes the total of its tile and waits for the totals before it. So that floats add
/// up alike in every run, nobody adds what happens to be there: kGroup - 1 neighbouring tiles are a group, whose slot 0
/// holds the total before the group and whose slot s that of the group's tile s - 1; a tile waits for its group's slots
/// up to its own, and the last of a group fills slot 0 of the next. The waits form a chain of groups, not of tiles.
struct LookBack {
  static constexpr int64_t kGroup = 512;
  /// Elements of `words` before the first slot. Element 0 hands out tiles: a program that has tile t knows that tiles
  /// before t have begun.
  static constexpr int64_t kHeader = 16;
  /// I64, all zero when the scan begins. A slot is one word, of which the low half is the value and the upper half 1
  /// once it is there; two for values of 8 bytes. So a value and the news of it arrive together, and no fence is
  /// needed.
  BufferId words;
  /// Elements of a program.
  int64_t tile = 0;
  static int64_t wordsOf(DType t) { return itemSize(t) > 4 ? 2 : 1; }
  Expr tiles(Expr length) const { return ceilDiv(length, tile); }
  Expr groups(Expr length) const { return ceilDiv(tiles(length), kGroup - 1); }
};

/// Along r0, inclusive; `reverse`: from the end. Stores may use r0; Store::value k is the result of inputs[k], and of Max
/// and Min inputs.size() + k the I64 position of that extreme (the last of equals; a NaN stays, as ATen's cummax has it).
struct ScanSpec {
  Body body;
  std::vector<ValueIdx> inputs;
  ScanKind kind = ScanKind::Sum;
  bool reverse = false;
  /// How programs share a row; none: a program scans whole rows.
  std::optional<LookBack> lookBack;
  std::vector<Store> stores;
};

/// Memory in which programs sort, a row each: what they sort is copied there and back by digits. 2 * length elements of
/// `words` (U64, keys and positions) for each row and, for keys of 8 bytes, as many of `positions` (U32; else invalid);
/// kBuckets of `counts` (U32) for each row and digit. Of a sort that stores one place (SortSpec::place) 2 * length
/// elements of `words` (U64 for keys of 8 bytes, else U32: keys) for each row, and nothing else.
struct SortScratch {
  static constexpr int64_t kDigitBits = 8, kBuckets = 256;
  BufferId words, positions, counts;
  /// Digits of a key of so many bytes.
  static int64_t digitsOf(int64_t bytes) { return bytes * 8 / kDigitBits; }
};

/// Along r0: stores of the sorted keys (Store::value 0) and of their I64 positions (1). Equal keys keep their order; NaN
/// counts as largest.
struct SortSpec {
  Body body;
  ValueIdx key = -1;
  /// The element's position where that is not r0: result 1, and what decides among equal keys; -1: r0.
  ValueIdx position = -1;
  bool descending = false;
  /// With positions: the rows are two sorted runs, of `run` elements and of the rest; invalid: unknown.
  Expr run;
  /// Only so many of the first results are stored; invalid: all.
  Expr take;
  /// With take = 1: the one result that is stored, at r0 = 0, is not the first but the one at this place; an I64 of the body in
  /// [0, length) that is the same for the whole row. -1: the first.
  ValueIdx place = -1;
  /// Where rows are sorted by digits; none: as the target's programs can.
  std::optional<SortScratch> scratch;
  std::vector<Store> stores;
};

/// Attention out[b, h, m, d] = softmax(scale * q k^T + mask) v (zero in rows where no key takes part, unless
/// emptyIsNan), computed without the full score matrix (online softmax; Dao et al. 2022). Ranges of the node: [B, H, M,
/// Dv]; the key length N and head size D are here. Operand indices are Exprs over symbols b, h, m (query row), n (key
/// row), d (head element). Grouped queries are in the index Exprs (h // group).
struct AttentionSpec {
  enum Axis : uint8_t { Batch, Head, Query, Key, Element };
  static constexpr size_t kAxes = 5;
  /// b, h, m, n, d
  static Symbol symbol(Axis axis);
  struct Operand {
    BufferId buffer;
    Expr index;
    DType dtype = DType::F32;
  };
  Operand q, k, v;
  /// Buffer invalid when there is none; Bool (true: takes part) or float (added), index over b, h, m, n.
  Operand mask;
  Expr keyLength, headSize;
  /// So many of the keys are there, an Expr over b: of keys in parts, one part a batch, the last ones may be shorter. Nothing is read of the others. Invalid: all.
  Expr keys;
  double scale = 1;
  /// Key n takes part in row m if n <= m.
  bool causal = false;
  /// What a Bool mask puts in place of a score (scaled already) where it is false.
  double masked = -std::numeric_limits<double>::infinity();
  /// Rows where no key takes part give NaN, as plain softmax has it, instead of zeros; without any key all rows are zeros.
  bool emptyIsNan = false;
  /// Index over b, h, m, d.
  Operand out;
  /// F32, index over b, h, m: the logarithm of the sum of the scores' exponentials, -inf where no key takes part. Buffer invalid: not asked for.
  Operand logSum;
};

/// A launch of a user's Triton kernel: its tile function over a grid, on whole buffers. No ranges.
struct UserKernelSpec {
  /// One parameter of the tile function, in order.
  struct Argument {
    enum Kind : uint8_t { Memory, Integer, Real } kind = Integer;
    std::string name;
    /// Memory: the pointer is at element `offset` of the buffer.
    BufferId buffer;
    Expr offset = 0;
    bool read = false, written = false;
    Expr integer;
    double real = 0;
    /// Integer, Real: width of the parameter.
    int bits = 32;
    /// Memory: whether each of its loads and stores says which element it touches, and how often an element is loaded
    /// and stored, about.
    bool follows = false;
    double loads = 0, stores = 0;
    /// The buffer needs no memory for this: its elements are computed by earlier nodes of the plan's kernel where they
    /// are loaded, or used by later ones where they are stored.
    bool inside = false;
  };
  /// Which tile function: an index into what plan_to_tile is given.
  int kernel = -1;
  /// As in graph::UserLaunch.
  int choice = -1;
  std::string function;
  std::vector<Argument> arguments;
  std::array<Expr, 3> grid = {1, 1, 1};
  /// For the interpreter.
  HostLaunch reference;
  /// What was decided about its memory, for the report.
  std::vector<std::string> notes;
};

/// Element 0 of an integer or Bool buffer becomes the value of a size symbol: item(), the number of elements that a mask
/// takes, the condition of a branch. What depends on the symbol is known behind this node. Within a region the node may run
/// again: the symbol then has the value of the last time. No ranges.
///
///     %r = scalar t3            %r = scalar t3 turn from 0
///
/// `turn` is set in the test of a loop, where the element is that number plus the turns that the loop has made: whoever knows these need not
/// read it.
struct ReadSpec {
  BufferId buffer;
  Symbol symbol;
  std::optional<int64_t> turn = std::nullopt;
};

/// A call of an operator that whoever runs the package brings. It sees tensors as they lie in memory, and values. No ranges.
///
///     call mylib::scale 0 (tensor x t0[0] f32 [s0, 4] strides [4, 1] ) (float factor 0.5 ) returns tensor 1 out t1[0] f32 [s0, 4] strides [4, 1]
///     call mylib::scale_ 1 (tensor x t0[0] f32 [s0, 4] strides [4, 1] changed ) (float factor 0.5 )
struct ExternSpec {
  struct View {
    /// Invalid: None.
    BufferId buffer;
    DType dtype = DType::F32;
    std::vector<Expr> sizes, strides;
    Expr offset = 0;
    /// An operand that the operator writes to as well.
    bool changed = false;
  };
  /// What the operator was called with, in the order and under the names of the model's file.
  struct Argument {
    enum class Kind : uint8_t { None, Tensor, Int, Float, Bool, Text, DType, Tensors, Ints, Floats, Bools, Texts, Layout, MemoryFormat, Device, Object };
    std::string name;
    Kind kind = Kind::None;
    std::vector<View> tensors;      // Tensor: one
    std::vector<Expr> ints;         // Int, Bool, DType, Layout, MemoryFormat: one
    std::vector<double> floats;
    std::vector<std::string> texts;  // Device: one; Object: what it is called, its class
  };
  /// What the operator returns, in order. Tensors: a list; Optional: a tensor that it might not have returned; None: that it did not; Other: no tensor.
  struct Result {
    enum class Kind : uint8_t { Tensor, Tensors, Optional, None, Other };
    Kind kind = Kind::Tensor;
    int64_t count = 1; // of tensors
  };
  /// Dimension `dim` of tensor `result` of all that it returns.
  struct Size {
    int64_t result = 0, dim = 0;
  };
  /// "mylib::scale", with the overload's name if it has one: "mylib::scale.out".
  std::string op;
  std::vector<Argument> arguments;
  std::vector<View> outputs;
  /// Which of the model's calls it is; one that asks for sizes has the number of the call that they are for.
  int64_t number = 0;
  std::vector<Result> results;
  /// Of a call that asks for sizes: which, in the order of its row.
  std::vector<Size> asked;

  struct HostView {
    uint8_t *data = nullptr;
    DType dtype = DType::F32;
    std::vector<int64_t> sizes, strides; // elements
  };
  /// What the interpreters call: the arguments' tensors, without those that are None; of each argument its integers, of
  /// one of tensors their numbers among those, -1 for None; the results. The compiler sets none: tests do.
  std::function<Status(std::span<const HostView>, std::span<const std::vector<int64_t>>, std::span<const HostView>)> reference;
};

struct Node;
/// Nodes that run on a condition, in their order. They see the buffers and symbols around them; a symbol that they define
/// is known in its own block and, of a While, from the test on in the body. What is written here and read behind the
/// region must have been written before it, or by both blocks of an If. No ranges.
///
///     node n5 region while c0            n5's blocks: test defines c0, the body may change what test reads
struct RegionSpec {
  enum class Kind : uint8_t { If, While } kind = Kind::If;
  /// Not 0: the first block of an If, one more turn of a While.
  Expr condition;
  /// If: then, otherwise. While: test, body.
  std::array<std::vector<Node>, 2> blocks;
};

struct NodeTag;
using NodeId = Id<NodeTag>;

/// Where in the model something was written: the line, and the dotted path of the nn.Module that it ran in ("layers.0.attn").
struct Origin {
  SourceLoc loc;
  std::string module;
};

struct Node {
  /// In the order of Spec.
  enum class Kind : uint8_t {
    Pointwise,
    Reduction,
    Segments,
    Contraction,
    Scan,
    Sort,
    Attention,
    UserKernel,
    ReadScalar,
    Region,
    Extern,
  };
  using Spec = std::variant<PointwiseSpec, ReductionSpec, SegmentsSpec, ContractionSpec, ScanSpec, SortSpec, AttentionSpec,
                            UserKernelSpec, ReadSpec, RegionSpec, ExternSpec>;
  NodeId id;
  /// Of the graph node(s) it came from, for people.
  std::string name;
  std::vector<Origin> origins;
  /// i0 in [0, ranges[0]), …; r0 in [0, reduceRanges[0]), ….
  std::vector<Expr> ranges, reduceRanges;
  Spec spec;

  // Written out in node.cpp: every file would compile the copies of all kinds otherwise.
  Node();
  Node(const Node &);
  Node(Node &&) noexcept;
  Node &operator=(const Node &);
  Node &operator=(Node &&) noexcept;
  ~Node();

  Kind kind() const { return static_cast<Kind>(spec.index()); }
  /// nullptr if it is of another kind.
  template <typename T> const T *as() const { return std::get_if<T>(&spec); }
  template <typename T> T *as() { return std::get_if<T>(&spec); }
  /// Of a node of another kind this is a fault of the compiler.
  template <typename T> const T &get() const {
    if (const T *own = as<T>()) return *own;
    wrongKind(static_cast<Kind>(Spec(std::in_place_type<T>).index()));
  }
  template <typename T> T &get() { return const_cast<T &>(std::as_const(*this).template get<T>()); }

  /// What several kinds have, to be read: empty where the kind has none.
  const Body &body() const;
  std::span<const Store> stores() const;
  std::span<const Reduction> reductions() const;

private:
  [[noreturn]] void wrongKind(Kind asked) const;
};

/// A spec of that kind, all its fields as they are when nothing is said.
Node::Spec blankSpec(Node::Kind kind);

/// f(Body &) for each body of the node: also for what follows the sum of a contraction. N may be const.
template <typename N, typename F> void forEachBody(N &node, F f) {
  std::visit(
      [&](auto &spec) {
        if constexpr (requires { spec.body; }) f(spec.body);
        if constexpr (requires { spec.epilogue; }) f(spec.epilogue);
      },
      node.spec);
}

std::string_view name(Node::Kind kind);

} // namespace neso::loops
