// Plan: which kernels run, in which order, in which memory, under which guards. Everything that the runtime walks is
// here as data; package/ writes it as abi/plan.fbs.
//
// lower/schedule makes a Plan from a loops::Program: it groups nodes into kernels, rewrites each group into one
// iteration space, orders them, and finds which buffers need memory. lower/plan_to_tile gives each kernel its tile
// function, arguments and grid. lower/memory then plans sizes, guards, memory and the steps that late sizes need:
// from there on the plan is what the runtime walks. interp.h walks it as the runtime does, package/ writes it down.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/id.h"
#include "ir/loops/loops.h"

namespace neso::plan {

struct KernelTag;
using KernelId = Id<KernelTag>;

/// Where a buffer of the program lives while the plan runs. Offsets and sizes in bytes, multiples of 64.
struct Placement {
  enum class Where : uint8_t {
    None,     // never in memory: produced and consumed inside one kernel, or dead
    Input,    // the caller's tensor
    Constant, // mapped from the package
    Arena,    // at `offset` in an arena of the context
    Output,   // memory of output `output`: written in place, no copy at the end
  };
  Where where = Where::None;
  Expr offset = 0;
  Expr bytes = 0;
  size_t arena = 0; // of Plan::arenas
  int output = -1;
  int firstStep = -1, lastStep = -1; // life time [first, last] in steps, for the report
};

/// One argument of a kernel's tile function, in the order of its parameters.
struct KernelArg {
  enum class Kind : uint8_t { Buffer, Size /* Expr, i64 or i32 */, Int, Float };
  Kind kind = Kind::Buffer;
  loops::BufferId buffer;
  Expr offset = 0; // Buffer: the pointer is at this element
  Expr size;
  int64_t intValue = 0;
  double floatValue = 0;
  bool isF64 = false;
  bool written = false, read = false; // Buffer
};

/// A matrix in memory, in elements: row r begins at offset + r * pitch, transposed: column c does; the next of a batch
/// is batchStride on.
struct Matrix {
  loops::BufferId buffer;
  Expr offset = 0, pitch = 0, batchStride = 0;
  bool transposed = false;
};
/// D[b, m, n] = sum over k of A[b, m, k] * B[b, k, n], accumulated in float32, then + bias[n], then relu: what a
/// library computes in place of a kernel where the runtime has one.
struct Product {
  Expr batch = 1, m = 1, n = 1, k = 1;
  DType type = DType::F32, outType = DType::F32; // of A and B; of D and the bias
  Matrix a, b, d;                                // d is not transposed
  loops::BufferId bias;                          // invalid: none
  Expr biasOffset = 0;
  bool relu = false;
  loops::BufferId workspace;
  KernelId rest; // valid: runs afterwards; has no step of its own
};

/// A group of loop nodes that run as one kernel, in one iteration space.
///
/// The space has outer dimensions xRanges (symbols x0, x1, …) and, when the kernel reduces, scans or sorts, inner
/// dimensions rRanges (r0, r1, …). The bodies in `nodes` are rewritten to these symbols. A node without r symbols runs
/// once per x; a Pointwise node that uses r symbols runs for each (x, r). Nodes run in order; a load of a buffer that
/// an earlier node of the kernel stores at the same index takes the stored value (plan_to_tile forwards it), so that a
/// buffer whose placement is None never needs memory. A Contraction kernel has exactly one Contraction node: x is its
/// outer space, r its reduction; later Pointwise nodes over x are its epilogue. A kernel of the user's
/// (Kind::UserKernel) may hold more than its one node: pointwise nodes whose one dimension x0 is the element of the
/// tensor in one of its arguments. Those before the user's node make that tensor and run where the kernel loads it;
/// those behind it read the tensor and run where the kernel stores it.
struct Kernel {
  KernelId id;
  std::string name;                                      // descriptive and unique: "fused_relu_add_3"
  loops::Node::Kind kind = loops::Node::Kind::Pointwise; // of the leading node
  std::vector<Expr> xRanges, rRanges;
  std::vector<loops::Node> nodes;
  std::vector<std::string> decisions; // why it was fused so, for --report
  /// The nodes of a user's kernel besides its own: which of its arguments they are about.
  struct Attached {
    size_t argument = 0; // of UserKernelSpec::arguments
    std::vector<loops::NodeId> nodes;
  };
  std::vector<Attached> attached;
  /// Not empty: this kernel is those side by side, in one launch. It has no nodes of its own, no step launches them
  /// alone, and none touches what another writes (but for other elements of a result that both write).
  std::vector<KernelId> parts;
  bool serial = false; // programs update shared memory (scatter with a reduction): they run in order on one thread
  // Filled by lower/plan_to_tile:
  std::string function; // name of the tile function (kernels with equal functions share one)
  std::vector<KernelArg> args;
  std::array<Expr, 3> grid = {1, 1, 1};
  std::optional<Product> product; // what a library may do instead
  int warps = 4,
      stages = 3; // targets that run a program by a block of threads: its size in warps, buffers of software pipelines
};

struct Step;
/// Steps that run one after the other. Regions inside share buffers and symbols with the one around them.
struct Region {
  std::vector<Step> steps;
};

struct Launch {
  static constexpr std::string_view kWord = "launch";
  KernelId kernel;
};
/// Strided copy of elements between two buffers (outputs that are views of inputs, mutation write-backs).
struct Copy {
  static constexpr std::string_view kWord = "copy";
  loops::BufferId src, dst;
  DType dtype = DType::F32;
  std::vector<Expr> sizes, srcStrides, dstStrides;
  Expr srcOffset = 0, dstOffset = 0;
  int dstOutput = -1; // when the destination is an output that has no buffer of its own (dst invalid)
};
/// condition (0 or 1) must be 1, else the run is refused with message, in which "{s0}" stands for the value of s0.
struct Guard {
  static constexpr std::string_view kWord = "guard";
  Expr condition;
  std::string message;
};
/// Reads element 0 of an integer or bool buffer into a size symbol (item(), unbacked sizes). Such a symbol is late: what
/// depends on it is not known when the run begins.
struct LoadScalar {
  static constexpr std::string_view kWord = "load_scalar";
  loops::BufferId buffer;
  DType dtype = DType::I64;
  Symbol symbol;
  std::optional<int64_t> turn = std::nullopt; // as loops::ReadSpec says
};
/// Calls an operator of whoever runs the package.
struct CallExtern {
  static constexpr std::string_view kWord = "extern";
  std::string name; // of the graph's node
  loops::ExternSpec call;
  std::vector<loops::Origin> origins;
};
/// Computes the sizes that depend on the late symbol, and on later ones not at all.
struct EvalSizes {
  static constexpr std::string_view kWord = "eval_sizes";
  Symbol symbol;
};
/// Makes an arena as large as its size, now known, says.
struct GrowArena {
  static constexpr std::string_view kWord = "grow_arena";
  size_t arena = 0; // of Plan::arenas
};
/// Takes memory for an output whose sizes are now known.
struct AllocOutput {
  static constexpr std::string_view kWord = "alloc_output";
  size_t output = 0; // of Plan::outputs
};
struct If {
  static constexpr std::string_view kWord = "if";
  Expr condition;
  Region then, otherwise;
};
/// Runs `test`, ends when the condition is 0, runs `body`, and so on.
struct While {
  static constexpr std::string_view kWord = "while";
  Region test;
  Expr condition;
  Region body;
};

struct Step {
  using Kinds = std::variant<Launch, Copy, Guard, LoadScalar, EvalSizes, GrowArena, AllocOutput, If, While, CallExtern>;
  Kinds what;
  template <typename T>
    requires(!std::is_same_v<T, Step>)
  Step(T kind) : what(std::move(kind)) {}
  // Written out in plan.cpp: every file would compile the copies of all kinds otherwise.
  Step(const Step &);
  Step(Step &&) noexcept;
  Step &operator=(const Step &);
  Step &operator=(Step &&) noexcept;
  ~Step();

  /// nullptr if it is of another kind.
  template <typename T> const T *as() const { return std::get_if<T>(&what); }
  template <typename T> T *as() { return std::get_if<T>(&what); }
};

/// What a run takes from one dimension of an input, or from the value of a scalar input.
struct InputSize {
  Symbol defines;                 // gets the size; invalid: none
  Expr equal;                     // what it must be once all sizes are known; invalid: nothing is asked
  std::optional<double> real;     // what a float that the export fixed must be
  Interval range{0, INT64_MAX};   // it is in here, both ends included
};
/// A symbol that no input gives as it is: its value over symbols that are known before it.
struct SizeDefinition {
  Symbol symbol;
  Expr value;
};
/// A block of memory of the context. A late one is sized by a GrowArena step, the others before the steps.
struct Arena {
  Expr bytes = 0;
  bool late = false;
};
/// What the caller is given for one output of the program, in order; write-backs are none.
struct CallerOutput {
  size_t output = 0;      // of Program::outputs
  loops::BufferId buffer; // Tensor and run-time Float: where its elements lie; invalid: in memory of its own, which a copy fills
  Expr bytes = 0;         // of that memory
  bool late = false;      // its sizes are known at an AllocOutput step
};

struct Plan {
  loops::Program program; // buffers, inputs, outputs, constants; its nodes have moved into the kernels
  std::vector<Kernel> kernels;
  std::vector<Placement> placements; // parallel to program.buffers
  Region main;
  // Filled by lower/memory, in the order in which a run needs them: sizes, guards on them, then memory.
  std::vector<std::vector<InputSize>> inputSizes; // parallel to program.inputs; a scalar has one
  std::vector<SizeDefinition> definitions;
  std::vector<Guard> guards; // on sizes that the inputs give; those on late ones are steps
  std::vector<Arena> arenas; // 0 is the one that placements share
  std::vector<CallerOutput> outputs;
  Expr arenaLowerBound = 0; // largest sum of live bytes at any step: no placement can be smaller
  Expr arenaBytes() const { return arenas.empty() ? Expr(0) : arenas[0].bytes; }
};

/// Late symbols, in the order of the steps that load them.
std::vector<Symbol> lateSymbols(const Plan &plan);
/// The number of the last late symbol that e depends on, from 1; 0: the inputs give all.
size_t lateness(const std::vector<Symbol> &late, Expr e);
size_t lateness(const std::vector<Symbol> &late, const std::vector<Expr> &es);

/// Of Placement::Where, as they are printed.
inline constexpr std::array<std::string_view, 5> kPlaces = {"nowhere", "input", "constant", "arena", "output"};
std::string_view name(Placement::Where where);
/// Where buffers of this kind are unless something else is decided.
Placement::Where homeOf(loops::Buffer::Kind kind);
/// Bytes of the buffer, rounded up as placements are.
Expr paddedBytes(const loops::Buffer &buffer);
/// The only place that words a guard. "{s0}" is replaced by the value at run time.
Guard guardOf(Expr condition);
std::string print(const Plan &plan);

} // namespace neso::plan
