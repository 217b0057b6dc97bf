// Loops: how each value is computed. A Program is a list of nodes that run in order over flat buffers.
//
// Every tensor lives in a Buffer: a flat array. Views are gone: a load or store names a buffer and an element index, an Expr over the
// node's loop indices and the model's size symbols. The meaning of a Program is to run its nodes one after another with plain memory
// semantics; interp.h does just that and is the oracle of every test. Fusion and memory planning happen on top (lower/schedule), and may
// change neither values nor order of dependent accesses.
//
// A node has outer ranges (index symbols i0, i1, …), maybe reduction ranges (r0, r1, …), and a Body: straight-line scalar ops in SSA form,
// each producing one value of one DType. Example, row sums of relu(x) for x [8, s0]:
//
//     node n0 reduction ranges [8] over [s0]
//       %0 = load x[i0*s0 + r0] : f32
//       %1 = relu %0 : f32
//       reduce sum %1 -> store y[i0]
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/diagnostics.h"
#include "base/dtype.h"
#include "base/host_launch.h"
#include "base/id.h"
#include "ir/loops/ops.h"
#include "ir/shape/assertion.h"
#include "ir/shape/expr.h"

namespace neso::loops {

struct BufferTag;
using BufferId = Id<BufferTag>;
using ValueIdx = int32_t; // index into Body::ops; -1 is none

struct Buffer {
  enum class Kind : uint8_t {
    Input,      // given by the caller; index = position among the model's flattened user inputs
    Constant,   // a weight or a compile-time constant; index into Program::constants
    Temp,       // written by nodes of this program
    ScalarInput // a Python int/float/bool given at run time, one element; index as for Input
  };
  BufferId id;
  std::string name;
  DType dtype = DType::F32;
  Kind kind = Kind::Temp;
  Expr elements = 0; // extent of the flat array in elements (of the storage that is reachable)
  int64_t index = -1;
  bool mutated =
      false; // an Input or Constant that some node writes (in-place semantics reach the caller or the next run)
};

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
  double imm = 0;       // Constant of a float dtype
  int64_t immInt = 0;   // Constant of an integer dtype or Bool
  BufferId buffer = {}; // Load
  Expr index = {};      // Load, Index
  Symbol symbol = {};   // Indirect: t0, t1, …; unique in the node
  Expr bound = {};      // Indirect
  bool wrap = false, check = false;
};

struct Body {
  std::vector<Op> ops; // operands come before their users
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
  ArgMin,
  ArgMax,  // operand: value; result: I64 linear index in the reduction ranges (row-major); first of equals; NaN counts
           // as extreme
  Welford, // results: mean, M2 (sum of squared deviations), count
  OnlineSoftmax, // results: max, sum of exp(x - max)
};
/// One reduction of the node: inputs are body values at (i, r); results are stored per i through `results` (one
/// Store::value slot each is replaced by the reduction's result: Store::value is the number of the result, 0, 1, …).
/// dtype is that of the accumulator.
struct Reduction {
  ReduceKind kind = ReduceKind::Sum;
  DType dtype = DType::F32;
  ValueIdx input = -1;
  std::vector<Store> results;
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
  int64_t tile = 0; // elements of a program
  static int64_t wordsOf(DType t) { return itemSize(t) > 4 ? 2 : 1; }
  Expr tiles(Expr length) const { return ceilDiv(length, tile); }
  Expr groups(Expr length) const { return ceilDiv(tiles(length), kGroup - 1); }
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
  Operand mask; // buffer invalid when there is none; Bool (true: takes part) or float (added), index over b, h, m, n
  Expr keyLength, headSize;
  double scale = 1;
  bool causal = false;                                      // key n takes part in row m if n <= m
  double masked = -std::numeric_limits<double>::infinity(); // what a Bool mask puts in place of a score (scaled
                                                            // already) where it is false
  bool emptyIsNan = false; // rows where no key takes part give NaN, as plain softmax has it, instead of zeros; without any key all rows are zeros
  Operand out;             // index over b, h, m, d
};

/// A launch of a user's Triton kernel: its tile function over a grid, on whole buffers.
struct UserKernelSpec {
  /// One parameter of the tile function, in order.
  struct Argument {
    enum Kind : uint8_t { Memory, Integer, Real } kind = Integer;
    std::string name;
    BufferId buffer; // Memory
    Expr offset = 0; // Memory: the pointer is at this element of the buffer
    bool read = false, written = false;
    Expr integer; // Integer
    double real = 0;
    int bits = 32; // Integer, Real: width of the parameter
    // Memory: whether each of its loads and stores says which element it touches, and how often an element is loaded
    // and stored, about.
    bool follows = false;
    double loads = 0, stores = 0;
    /// The buffer needs no memory for this: its elements are computed by earlier nodes of the plan's kernel where they
    /// are loaded, or used by later ones where they are stored.
    bool inside = false;
  };
  int kernel = -1; // which tile function: an index into what plan_to_tile is given
  int choice = -1; // as in graph::UserLaunch
  std::string function;
  std::vector<Argument> arguments;
  std::array<Expr, 3> grid = {1, 1, 1};
  HostLaunch reference;           // for the interpreter
  std::vector<std::string> notes; // what was decided about its memory, for the report
};

/// Memory in which programs sort, a row each: what they sort is copied there and back by digits. 2 * length elements of
/// `words` (U64, keys and positions) for each row and, for keys of 8 bytes, as many of `positions` (U32; else invalid);
/// kBuckets of `counts` (U32) for each row and digit.
struct SortScratch {
  static constexpr int64_t kDigitBits = 8, kBuckets = 256;
  BufferId words, positions, counts;
  /// Digits of a key of so many bytes.
  static int64_t digitsOf(int64_t bytes) { return bytes * 8 / kDigitBits; }
};

/// Element 0 of an integer or Bool buffer becomes the value of a size symbol: item(), the number of elements that a mask
/// takes, the condition of a branch. What depends on the symbol is known behind this node. Within a region the node may run
/// again: the symbol then has the value of the last time.
struct ReadSpec {
  BufferId buffer;
  Symbol symbol;
};
struct RegionSpec;

struct NodeTag;
using NodeId = Id<NodeTag>;

struct Node {
  enum class Kind : uint8_t {
    Pointwise,   // for all i: body, stores
    Reduction,   // for all i: fold body over r; reductions' results stored
    Segments,    // as Reduction, over one r0 in [first, last) alone, which are values over i: work is what the segments
                 // hold, not what r0 ranges over
    Contraction, // out[i] = sum over r of A(i, r) * B(i, r), with `lhs` and `rhs` the body values: matmul, convolution,
                 // einsum. accumulated in accType; the sum is body-less epilogue-free: `epilogue` (below) maps it to
                 // what is stored.
    Scan, // along r0: inclusive; stores may use r0. Result k is that of inputs[k]; for Max and Min, result
          // inputs.size() + k is the I64 position of that extreme (the last of equals; a NaN stays, as ATen's cummax
          // has it)
    Sort, // along r0: stores of sorted value (result 0) and of I64 index (result 1). With a second input that is the
          // element's position: result 1, and what decides among equal values.
    Attention,  // scaled dot product attention, see AttentionSpec
    UserKernel, // a Triton kernel of the user, see UserKernelSpec; no ranges
    ReadScalar, // see ReadSpec; no ranges
    Region,     // a branch or a loop around other nodes, see RegionSpec; no ranges
  };
  NodeId id;
  Kind kind = Kind::Pointwise;
  std::string name;               // of the graph node(s) it came from, for people
  std::vector<SourceLoc> origins; // source lines of the model
  std::vector<Expr> ranges;       // i0 in [0, ranges[0]), …
  std::vector<Expr> reduceRanges; // r0 in [0, reduceRanges[0]), …
  Body body;
  std::vector<Store> stores;         // Pointwise, Contraction (through epilogue), Scan, Sort
  std::vector<Reduction> reductions; // Reduction, Segments; several share the body and both ranges
  ValueIdx first = -1, last = -1;    // Segments: I64 body values that do not depend on r0; what lies outside of r0's
                                     // range counts as its end
  // Contraction
  ValueIdx lhs = -1, rhs = -1;
  DType accType = DType::F32;
  Body epilogue; // over i only; op 0 is a Constant placeholder that stands for the accumulated sum
  // Scan, Sort
  ScanKind scan = ScanKind::Sum;
  bool reverse = false;                   // Scan: from the end
  std::optional<LookBack> lookBack;       // Scan: how programs share a row; none: a program scans whole rows
  bool descending = false;                // Sort: equal values keep their order; NaN counts as largest
  Expr
      run; // Sort of positions given: the rows are two sorted runs, of `run` elements and of the rest; invalid: unknown
  Expr take; // Sort: only so many of the first results are stored; invalid: all
  std::optional<SortScratch> scratch; // Sort: where rows are sorted by digits; none: as the target's programs can
  std::vector<ValueIdx> inputs; // Scan, Sort: body values; for stores, Store::value is the number of the result
  std::shared_ptr<const AttentionSpec> attention;
  std::shared_ptr<const UserKernelSpec> user;
  std::shared_ptr<const ReadSpec> read;
  std::shared_ptr<const RegionSpec> region;
};

/// Nodes that run on a condition, in their order. They see the buffers and symbols around them; a symbol that they define
/// is known in its own block and, of a While, from the test on in the body. What is written here and read behind the
/// region must have been written before it, or by both blocks of an If.
///
///     node n5 region while c0            n5's blocks: test defines c0, the body may change what test reads
struct RegionSpec {
  enum class Kind : uint8_t { If, While } kind = Kind::If;
  Expr condition;                          // not 0: the first block of an If, one more turn of a While
  std::array<std::vector<Node>, 2> blocks; // If: then, otherwise. While: test, body
};

/// Elements put into another order: `elements` of them, zero where no piece writes (order.h).
struct ElementOrder {
  /// For all i below sizes: result[to + i * toStrides] = source[from + i * fromStrides].
  struct Piece {
    std::vector<int64_t> sizes, toStrides, fromStrides;
    int64_t to = 0, from = 0;
  };
  int64_t elements = 0;
  std::vector<Piece> pieces;
};

/// A constant of the program: bytes (owned or in the model's file), already in the layout in which the loops read them.
struct Constant {
  std::string fqn; // empty for compile-time constants without a name
  DType dtype = DType::F32;
  const uint8_t *data = nullptr;
  int64_t bytes = 0;
  int64_t fileOffset = -1;
  bool isBuffer = false; // a buffer of the model
  std::shared_ptr<const void> owner;
  /// A tensor of the model that lies in these bytes, from element `offset` on: what a caller is handed out of a mutated
  /// constant, and what can be given another value. Several tensors may share one storage.
  struct ModelTensor {
    std::string fqn;
    std::vector<int64_t> sizes, strides;
    int64_t offset = 0;
  };
  std::vector<ModelTensor> tensors = {};
  /// How `data` was made of the bytes that `tensors` lie in, of `sourceElements` elements; empty: it is those bytes.
  std::vector<ElementOrder> orders = {};
  int64_t sourceElements = 0;
  /// Tensors of the model that it was computed from, in a way that nobody can repeat when they change.
  std::vector<std::string> foldedFrom = {};
};

/// What the program returns, in the order of the model's outputs.
struct ProgramOutput {
  enum class Kind : uint8_t { Tensor, Int, Float, Bool, None };
  Kind kind = Kind::Tensor;
  BufferId buffer; // Tensor; Float (a 0-d buffer)
  DType dtype = DType::F32;
  std::vector<Expr> sizes, strides;
  Expr offset = 0;
  Expr scalar; // Int and Bool
  double floatValue = 0;
  std::string mutationTarget; // "input.K" or "buffer.NAME" when this is a write-back, else empty
  BufferId writeBackTo;       // Input or Constant buffer that receives the elements (mutations)
  std::vector<Expr> writeBackStrides; // where in that buffer they go
  Expr writeBackOffset = 0;
};

/// One user input of the model, in flattened order.
struct ProgramInput {
  enum class Kind : uint8_t { Tensor, Int, Float, Bool, String, None };
  Kind kind = Kind::Tensor;
  std::string name;
  DType dtype = DType::F32;
  std::vector<Expr> sizes, strides; // a plain symbol defines that symbol; other expressions are checked
  Expr scalar;                      // Int: a symbol that it defines, or a constant that it must equal
  double floatValue = 0;            // Float: the value that the model was specialised on
  BufferId buffer;                  // Tensor
};

struct Program {
  std::string name;
  std::vector<ProgramInput> inputs;
  std::vector<Buffer> buffers;
  std::vector<Constant> constants;
  std::vector<Node> nodes;
  std::vector<ProgramOutput> outputs;
  Facts facts;              // ranges of size symbols
  std::vector<Expr> guards; // must evaluate to 1
  std::vector<Assertion> assertions; // tested as soon as their symbols are known, which ReadScalar nodes define
  std::string inSpec, outSpec;
  Buffer &buffer(BufferId id) { return buffers[id.index()]; }
  const Buffer &buffer(BufferId id) const { return buffers[id.index()]; }
};

std::string_view name(Node::Kind kind);
std::string print(const Program &program);
std::string print(const Program &program, const Node &node);
using BufferNames = std::function<std::string(BufferId)>;
/// All that the node does, without what it is called: nodes of one text compute the same from buffers of equal names.
std::string describe(const Node &node, const BufferNames &names);

} // namespace neso::loops
