// Graph: what the model computes. ATen-level operators on tensors with symbolic sizes and strides, as torch.export
// wrote them, with defaults filled in and names resolved.
//
// A Model is a Graph plus its weights and its calling convention. Values are in SSA form; in-place operators and views
// mean what they mean in PyTorch until the pass `functionalize` (passes/), after which no operator of the graph mutates
// or aliases: mutations of inputs and buffers are then extra outputs (Output::Kind).
#pragma once
#include <array>
#include <concepts>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/diagnostics.h"
#include "base/dtype.h"
#include "base/host_launch.h"
#include "base/id.h"
#include "ir/shape/assertion.h"
#include "ir/shape/expr.h"
#include "ir/shape/rounded.h"

namespace neso::graph {

struct ValueTag;
using ValueId = Id<ValueTag>;

/// Sizes and strides in elements. strides.size() == sizes.size(). offset: elements from the start of the storage.
struct TensorType {
  DType dtype = DType::F32;
  std::vector<Expr> sizes;
  std::vector<Expr> strides;
  Expr offset = 0;
  bool coordinates = false; // sparse (torch.sparse_coo): a file's, up to the pass writeOutCoordinates
  int64_t rank() const { return static_cast<int64_t>(sizes.size()); }
};

struct Value {
  enum class Kind : uint8_t { Tensor, SymInt, SymFloat, SymBool, None, Object /* custom object or effect token */ };
  ValueId id;
  std::string name; // unique in its graph
  Kind kind = Kind::Tensor;
  TensorType type; // Tensor
  Expr expr;       // SymInt and SymBool: the value as an expression over the model's symbols, if torch gave one
  std::optional<double> number; // SymFloat: its value where torch knew it
};

struct Graph;

/// One argument of an operator. A tensor list may hold invalid ids for None.
struct None {};
struct SymRef {
  ValueId value;
};                                               // a SymInt / SymFloat / SymBool value
using IntOrSym = std::variant<int64_t, ValueId>; // element of an int list
struct MemoryFormat {
  int value;
}; // 1 contiguous 2 channels_last 3 channels_last_3d 4 preserve
struct Layout {
  int value;
};
struct Device {
  std::string type;
  int index = -1;
};
struct ComplexValue {
  double real, imag;
};
struct CustomObject {
  std::string name, className;
}; // a torchbind object, by its name in the archive
struct ArgumentDict;
using AnyArgument =
    std::variant<None, ValueId /* tensor, or any symbolic scalar value */,
                 std::vector<ValueId> /* tensors, or symbolic floats or bools */, int64_t, double, bool, std::string,
                 std::vector<IntOrSym>, std::vector<double>, std::vector<bool>, std::vector<std::string>, DType,
                 MemoryFormat, Layout, Device, ComplexValue, std::shared_ptr<Graph>, std::vector<std::vector<int64_t>>,
                 std::vector<std::vector<double>>, std::vector<std::vector<ValueId>> /* nested tensors */, CustomObject,
                 std::shared_ptr<ArgumentDict>>;
struct Argument : AnyArgument {
  // Written out in graph.cpp: every file would compile the copies of all kinds otherwise.
  Argument();
  Argument(const Argument &);
  Argument(Argument &&) noexcept;
  Argument &operator=(const Argument &);
  Argument &operator=(Argument &&) noexcept;
  ~Argument();
  template <typename T>
    requires(!std::derived_from<std::remove_cvref_t<T>, Argument> && std::constructible_from<AnyArgument, T &&>)
  Argument(T &&value) : AnyArgument(std::forward<T>(value)) {}
};
struct ArgumentDict {
  std::vector<std::pair<std::string, Argument>> entries;
}; // keyword arguments of a user kernel, in the order of the file

/// A launch of a user's Triton kernel, after its source was read: a node "neso.launch" whose arguments are the tensors
/// behind the kernel's pointers and whose results are the new contents of those that it writes (`written`, in order).
/// "neso.launch_" is the same before functionalize: it has no results and changes its arguments in place.
struct UserLaunch {
  /// One parameter of the kernel's tile function, in order.
  struct Parameter {
    enum Kind : uint8_t { Tensor, Integer, Real } kind = Integer;
    std::string name; // in the source
    int tensor = -1;  // Tensor: index into Node::args
    Expr integer;     // Integer
    int bits = 32;    // Integer, Real: width of the parameter
    double real = 0;
    // Tensor: whether all of its loads (stores) say which element they touch, so that neighbours may be computed there,
    // and how often an element is loaded and stored, about.
    bool follows = false;
    double loads = 0, stores = 0;
  };
  int kernel = -1;      // which tile function: a number that means something to the driver
  int choice = -1;      // of an autotuned kernel: which of the driver's choices among configs led to it
  std::string function; // its name in the source
  std::vector<Parameter> parameters;
  std::vector<bool> read, written; // parallel to Node::args
  std::vector<int>
      sameAs; // parallel to Node::args: the written argument whose memory this one is, or -1; empty: all -1
  std::array<Expr, 3> grid = {1, 1, 1};
  HostLaunch reference;
};

/// One operator call. `target` is as in the file: "aten.conv2d.default" (the "torch.ops." prefix dropped),
/// "_operator.add", "higher_order.cond", "mylib.add.default". Arguments stand at their schema positions with defaults
/// filled in when the target is in ops.def (keyword-only ones after the positional ones); for targets outside the table
/// they are in the order of the file, with names in argNames.
struct Node {
  std::string name;
  std::string target;
  std::vector<Argument> args;
  std::vector<std::string> argNames; // parallel to args
  std::vector<std::vector<ValueId>>
      outputs;   // one entry a return; a Tensor[] return has several ids in its entry. Unused outputs are valid values.
  /// What an entry of outputs was declared as where that is not what the entry looks like (one id: a tensor; several: a list).
  enum class Return : uint8_t { Plain, List, Optional, Other /* no tensor */ };
  std::vector<Return> returns; // parallel to outputs, or shorter: Plain
  SourceLoc loc; // innermost line of the model's stack trace
  std::string module;                       // dotted path of the nn.Module that made it ("layers.0.attn")
  std::shared_ptr<const UserLaunch> launch; // of "neso.launch" and "neso.launch_"
  const Argument *arg(std::string_view argName) const;
};

struct Graph {
  /// Indexed by ValueId. A reference to one stays valid when others are added.
  std::deque<Value> values;
  std::vector<ValueId> inputs;
  std::vector<Node> nodes;       // in execution order
  std::vector<Argument> outputs; // ValueId, or a constant, or None
  const Value &value(ValueId id) const { return values[id.index()]; }
  Value &value(ValueId id) { return values[id.index()]; }
  ValueId addValue(std::string name, TensorType type);
};

/// Bytes of a whole storage: mapped from the .pt2 (the Model keeps the mapping alive) or owned.
struct Storage {
  const uint8_t *data = nullptr;
  int64_t bytes = 0;
  int64_t fileOffset = -1; // in the .pt2, -1 when owned
  std::shared_ptr<const void> owner;
};

/// A parameter, buffer or constant of the model: a strided view of a storage, which several may share.
struct Weight {
  enum class Kind : uint8_t { Parameter, Buffer, Constant };
  std::string fqn;
  Kind kind = Kind::Parameter;
  bool persistent = true;
  TensorType type;  // constant sizes, strides and offset
  int storage = -1; // index into Model::storages
};

struct Input {
  enum class Kind : uint8_t { User, Weight, Constant /* Python int, float, bool, string or None */, Token, CustomObj };
  Kind kind = Kind::User;
  std::string name;           // of the graph value, for User; the exported argument name
  ValueId value;              // invalid for a Constant that no node uses
  int weight = -1;            // index into Model::weights
  Argument constant = None{}; // for Constant: the value that the model was specialised on
  /// Calls that give the caller's tensor its shape after the run, as JSON: [["transpose_", 0, 1]]; empty: it keeps what it has. What they show is
  /// the same memory. Set by functionalize, of User inputs.
  std::string reshaped;
};

struct Output {
  enum class Kind : uint8_t { User, BufferMutation, InputMutation, ParameterMutation, Token };
  Kind kind = Kind::User;
  Argument value;     // what is returned or written back
  std::string target; // fqn of the mutated buffer or parameter, name of the mutated input
};

/// How weights of four bits are packed for CPUs: ATen does it after what the machine can do (torch.backends.cpu.get_cpu_capability(), of x86).
enum class Int4Packing : uint8_t { Unknown, Default, Avx2, Avx512 };
inline constexpr std::pair<std::string_view, Int4Packing> kInt4Packings[] = {
    {"default", Int4Packing::Default}, {"avx2", Int4Packing::Avx2}, {"avx512", Int4Packing::Avx512}};
/// "" for Unknown.
std::string_view name(Int4Packing packing);

struct Model {
  std::string name;
  Graph graph;
  std::vector<Input> inputs;   // parallel to graph.inputs
  std::vector<Output> outputs; // parallel to graph.outputs
  std::vector<Weight> weights;
  std::vector<Storage> storages;
  Facts facts;                            // ranges of the size symbols
  RoundedSizes rounded;                   // symbols that stand for numbers which a run rounds from doubles
  std::vector<Expr> guards;               // 0/1 expressions that must hold (guards_code), checked when the model runs
  std::vector<Assertion> assertions;      // on numbers that depend on data (torch._check), in the model's words
  std::string inSpec, outSpec;            // tree specs as torch's JSON text
  std::vector<std::string> argumentNames; // forward's parameter names
  std::string torchVersion;
  /// What an operator changes of its operands is among its results, also where its schema is not known: run_decompositions() wrote the file.
  bool functional = false;
  Int4Packing int4Packing = Int4Packing::Unknown; // of the weights, and of what the model packs
  int schemaMajor = 0, schemaMinor = 0;
  std::vector<Diagnostic> warnings;              // of reading, for the driver to show
  std::map<std::string, std::string> extraFiles; // member name below extra/ -> text (kernel bundles)
};

/// Puts expressions in the place of symbols, in all values and launches; nothing is known of those symbols any more. Guards and assertions stay.
void replaceSymbols(Model &model, const SymbolMap<Expr> &by);

std::string print(const Graph &graph);
std::string print(const Model &model);

} // namespace neso::graph
