// The table of operators (ops.def): what torch's schemas say of each overload, and lookups in it.
//
// A row is the schema's text; it is parsed at its first lookup and kept, so that start-up costs nothing. Example:
//     const OpSchema *op = findOp("aten.add.Tensor");
//     op->args[2].name == "alpha", op->args[2].kwargOnly, *op->args[2].defaultValue == Argument(int64_t(1))
//
// Thread-safety: lookups may be made from any thread; schemas live until the process ends.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph/graph.h"

namespace neso::graph {

enum class ArgType : uint8_t {
  Tensor,
  Int,
  Float,
  Scalar,
  Bool,
  Complex,
  String,
  DType,
  Layout,
  MemoryFormat,
  Device,
  Generator
};

struct ArgSchema {
  std::string name; // empty for an unnamed return
  ArgType type = ArgType::Tensor;
  bool list = false;            // T[]
  int fixedSize = 0;            // T[2]: a single value stands for two equal ones
  bool optional = false;        // T? or T[]?
  bool elementOptional = false; // T?[]
  bool kwargOnly = false;
  char alias = 0;       // the letter of its alias set: 'a' in Tensor(a), 'a' in Tensor(a!); 0 if none
  bool mutated = false; // Tensor(a!)
  std::optional<Argument> defaultValue;
};

struct OpSchema {
  std::string target;   // "aten.add.Tensor"
  std::string name;     // "aten.add"
  std::string overload; // "Tensor"
  std::vector<ArgSchema> args;
  std::vector<ArgSchema> returns;
  bool core = false, pointwise = false, random = false; // torch's tags
  bool dataDependent = false;                           // shape or value of a result depends on data
  bool mutates() const;                                 // writes to an argument
  bool isView() const; // a result may share memory with an argument that the operator does not write to
  int argIndex(std::string_view argName) const; // -1 if there is none
};

/// The operator of that target, or null.
const OpSchema *findOp(std::string_view target);
/// All overloads of a name without its overload ("aten.add"), sorted by target.
std::vector<const OpSchema *> overloadsOf(std::string_view name);
int opCount();
/// An operator from its schema as torch prints it: "mylib::push(Tensor(a0!) x, Tensor y) -> Tensor" gives "mylib.push.default". nullopt: the
/// text is none.
std::optional<OpSchema> parseSchema(std::string_view text);
/// Whether the target is none of PyTorch's, Python's or the exporter's: then whoever runs the model brings it.
bool isOfCaller(std::string_view target);
/// The target of a call of such an operator of which nothing says whether it changes its operands: "lib.op.default" is its first argument.
inline constexpr std::string_view kDoubtfulCall = "neso.doubtful_call";
/// Calls of one sub-graph, which computes as if it stood there: what the call says beside is for training or for other compilers.
bool isInlined(std::string_view target);
/// The target of row i, [0, opCount()).
std::string_view opTarget(int i);

/// Whether the argument, as bindArguments leaves it, is of a kind that the schema allows there.
bool fits(const ArgSchema &schema, const Argument &argument, const Graph &graph);

/// Puts the arguments of a node, which carry names or stand in order, to the positions of its schema, fills in
/// defaults, turns single values into fixed-size lists and integers into floats where the schema says so, and checks
/// every argument's kind. Nodes whose target is not in the table stay as they are. Error: OperatorArgument.
Status bindArguments(Node &node, const Graph &graph);

} // namespace neso::graph
