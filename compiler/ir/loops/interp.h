// Runs a Program on host memory: slow, obvious, exact. The oracle of every test, `neso verify` and constant folding.
//
// Semantics. Nodes run one after another. Within a node, all loads of an element come before its stores; elements run in row-major
// order, so that the last of several stores to one place wins and atomics add in order. Reduced floats round to nearest even at each
// Cast and store; integers wrap. Sums and products of floats (reductions, contractions, scans, attention) are accumulated in double and
// rounded once to the accumulator's dtype: the interpreter is the more exact side of a comparison.
// RandU32 is a word of Philox with counter (offset, 0, 0); RandUniform its top 24 bits / 2^24; RandNormal is Box-Muller on words 0, 1 or 2, 3.
//
// Example:  Interpreter interp(program);
//           std::vector<HostValue> in = {HostValue::tensor(DType::F32, {2, 3}, data)};
//           Result<std::vector<HostValue>> out = interp.run(in);
//
// Thread-safety: one Interpreter a thread; the Program is only read.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/loops/loops.h"

namespace neso::loops {

/// A tensor or scalar on the host.
struct HostValue {
  using Kind = ProgramInput::Kind;
  Kind kind = Kind::None;
  DType dtype = DType::F32;
  std::vector<int64_t> sizes, strides; // elements; empty strides are row-major contiguous
  uint8_t *data = nullptr;             // the tensor's first element; inputs that the model mutates are written here
  std::shared_ptr<std::vector<uint8_t>> owner; // holds data when the value owns it
  int64_t intValue = 0;                        // Int, Bool
  double floatValue = 0;                       // Float

  /// A contiguous tensor over memory that the caller keeps.
  static HostValue tensor(DType dtype, std::vector<int64_t> sizes, void *data);
  /// A contiguous tensor with its own zeroed memory.
  static HostValue owned(DType dtype, std::vector<int64_t> sizes);
  int64_t elements() const; // product of sizes
};

/// Memory of one buffer while nodes run.
struct BufferView {
  uint8_t *data = nullptr;
  int64_t elements = 0;
};
using Bindings = SymbolMap<int64_t>; // size symbol → value

/// Values of all size symbols, from the inputs' shapes and scalars; then checks shapes, dtypes and guards against the
/// program.
Result<Bindings> bindSizes(const Program &program, std::span<const HostValue> inputs);

/// An integer or Bool in memory as the value of a size symbol.
int64_t readScalar(DType t, const uint8_t *from);
/// What a violated assertion says, with the values of its symbols.
std::string messageOf(const Assertion &assertion, const Bindings &sizes);

/// A call of an operator of the caller's, by the function that a test gave it; LoopsNotInterpreted without one. `valueOf`
/// evaluates sizes, `buffers` is parallel to the program's. `name` is for messages.
Status runExtern(const std::string &name, const ExternSpec &call, const std::function<std::optional<int64_t>(Expr)> &valueOf,
                 std::span<const BufferView> buffers);

/// One node, compiled to block-wise code for given sizes. `outer` is the kind of its outer symbols: Index in programs,
/// Outer in kernels of plans. A Pointwise node with reduceRanges runs for each (outer, r).
class NodeRunner {
public:
  static Result<NodeRunner> create(const Program &program, const Node &node, const Bindings &sizes,
                                   Symbol::Kind outer = Symbol::Kind::Index);
  NodeRunner(NodeRunner &&) noexcept;
  NodeRunner &operator=(NodeRunner &&) noexcept;
  ~NodeRunner();
  int64_t outerCount() const; // product of the outer ranges
  /// Runs outer elements [begin, end) of the row-major outer space. buffers is parallel to program.buffers.
  Status run(std::span<const BufferView> buffers, int64_t begin, int64_t end);

private:
  struct Impl;
  explicit NodeRunner(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class Interpreter {
public:
  /// Memory that nothing has written yet holds bytes `unwritten`: no result of a sound program depends on them.
  explicit Interpreter(const Program &program, uint8_t unwritten = 0) : program_(program), unwritten_(unwritten) {}
  /// Outputs in the program's order, contiguous and owned; an output that is a mutation write-back is returned too and
  /// its bytes are also written to the input (or kept for the next run when it is a constant).
  Result<std::vector<HostValue>> run(std::span<const HostValue> inputs);
  /// The current bytes of a constant buffer: as given, or as the last run left it.
  std::span<const uint8_t> constant(BufferId id);

private:
  std::vector<uint8_t> &constantBytes(BufferId id);
  const Program &program_;
  uint8_t unwritten_;
  std::unordered_map<int32_t, std::vector<uint8_t>> mutatedConstants_;
};

/// Copies the elements of a strided tensor; sizes and strides in elements of `itemBytes` bytes.
void copyStrided(uint8_t *dst, std::span<const int64_t> dstStrides, const uint8_t *src,
                 std::span<const int64_t> srcStrides, std::span<const int64_t> sizes, int64_t itemBytes);
std::vector<int64_t> contiguousStrides(std::span<const int64_t> sizes);

} // namespace neso::loops
