// Loops: how each value is computed. A Program is a list of nodes that run in order over flat buffers.
//
// Every tensor lives in a Buffer: a flat array. Views are gone: a load or store names a buffer and an element index, an Expr over the
// node's loop indices and the model's size symbols. The meaning of a Program is to run its nodes one after another with plain memory
// semantics; interp.h does just that and is the oracle of every test. Fusion and memory planning happen on top (lower/schedule), and may
// change neither values nor order of dependent accesses.
//
// What one node computes is in node.h.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "ir/loops/node.h"
#include "ir/shape/assertion.h"
#include "ir/shape/expr.h"

namespace neso::loops {

struct Buffer {
  enum class Kind : uint8_t {
    // Given by the caller; index: position among the model's flattened user inputs.
    Input,
    // A weight or a compile-time constant; index into Program::constants.
    Constant,
    // Written by nodes of this program.
    Temp,
    // A Python int, float or bool given at run time, one element; index as for Input.
    ScalarInput,
  };
  BufferId id;
  std::string name;
  DType dtype = DType::F32;
  Kind kind = Kind::Temp;
  /// Extent of the flat array in elements (of the storage that is reachable).
  Expr elements = 0;
  int64_t index = -1;
  /// An Input or Constant that some node writes (in-place semantics reach the caller or the next run).
  bool mutated = false;
  /// For people: the value of the model that a Temp was made for, and its sizes and strides as they lie here; empty: unknown.
  std::string value = {};
  std::vector<Expr> sizes = {}, strides = {};
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
  /// Empty for compile-time constants without a name.
  std::string fqn;
  DType dtype = DType::F32;
  const uint8_t *data = nullptr;
  int64_t bytes = 0;
  int64_t fileOffset = -1;
  /// A buffer of the model.
  bool isBuffer = false;
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
  /// Tensors of the model that it was computed from, in a way that nobody can repeat when they change; each once.
  std::vector<std::string> foldedFrom = {};
  /// Adds the tensors that this constant is, or was computed from, to those names. A chain of constants that are read twice each has as many names
  /// as it has tensors, not 2^n.
  void addSources(std::vector<std::string> &names) const;
};

/// What the program returns, in the order of the model's outputs.
struct ProgramOutput {
  enum class Kind : uint8_t { Tensor, Int, Float, Bool, Text, None };
  Kind kind = Kind::Tensor;
  /// Tensor; Float (a 0-d buffer).
  BufferId buffer;
  DType dtype = DType::F32;
  std::vector<Expr> sizes, strides;
  Expr offset = 0;
  /// Int and Bool.
  Expr scalar;
  double floatValue = 0;
  std::string text;
  /// "input.K" or "buffer.NAME" when this is a write-back, else empty.
  std::string mutationTarget;
  /// Input or Constant buffer that receives the elements (mutations), and where in it they go.
  BufferId writeBackTo;
  std::vector<Expr> writeBackStrides;
  Expr writeBackOffset = 0;
};

/// One user input of the model, in flattened order.
struct ProgramInput {
  enum class Kind : uint8_t { Tensor, Int, Float, Bool, String, None };
  Kind kind = Kind::Tensor;
  std::string name;
  DType dtype = DType::F32;
  /// A plain symbol defines that symbol; other expressions are checked.
  std::vector<Expr> sizes, strides;
  /// Int: a symbol that it defines, or a constant that it must equal.
  Expr scalar;
  /// Float: the value that the model was specialised on.
  double floatValue = 0;
  /// Tensor.
  BufferId buffer;
};

struct Program {
  std::string name;
  std::vector<ProgramInput> inputs;
  std::vector<Buffer> buffers;
  std::vector<Constant> constants;
  std::vector<Node> nodes;
  std::vector<ProgramOutput> outputs;
  /// Ranges of size symbols.
  Facts facts;
  /// Each must evaluate to 1.
  std::vector<Expr> guards;
  /// Tested as soon as their symbols are known, which ReadScalar nodes define.
  std::vector<Assertion> assertions;
  std::string inSpec, outSpec;
  Buffer &buffer(BufferId id) { return buffers[id.index()]; }
  const Buffer &buffer(BufferId id) const { return buffers[id.index()]; }
};

std::string print(const Program &program);
std::string print(const Program &program, const Node &node);
using BufferNames = std::function<std::string(BufferId)>;
/// All that the node does, without what it is called: nodes of one text compute the same from buffers of equal names.
std::string describe(const Node &node, const BufferNames &names);

} // namespace neso::loops
