// Inside of tile_to_triton: what stands for a value in the source, names, and the printer of one function.
//
// Values are written signed, as Triton's integers are unless something else is said: an op on unsigned numbers casts its
// operands and its result. A value that is only repeated to its shape (tt.splat, tt.broadcast) is written as what it
// repeats, and Triton's own broadcasting does the rest; who needs the shape asks for exact().
#pragma once
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/diagnostics.h"
#include "ir/tile/tile.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"

namespace neso::triton_source {

/// How tightly Python binds an expression's outermost operator.
enum class Binding : uint8_t { Compare, Or, Xor, And, Shift, Sum, Product, Unary, Primary };

/// What stands for a value.
struct Text {
  std::string code;
  Binding binding = Binding::Primary;
  llvm::SmallVector<int64_t> shape = {}; // of the expression; the value's, or one that broadcasts to it
  bool literal = false;                  // a number of Python's: it takes the type of what it meets
};

/// Python names, each given once.
class Names {
public:
  /// `hint`, or something like it that is no keyword, no name that the source uses otherwise, and new.
  std::string fresh(llvm::StringRef hint);

private:
  std::set<std::string> taken_;
};

/// "tl.float32"; pointers are "tl.pointer_type(tl.float32)". Empty for a type that Triton has not.
std::string typeName(mlir::Type type);
/// As signatures have it: "*fp32", "i64". Empty for a type that Triton has not.
std::string signatureType(mlir::Type type);
/// "tl.uint32" for i32.
std::string unsignedName(mlir::Type type);
/// A number of Python's that becomes this one when it is given the attribute's type.
std::string literal(mlir::Attribute value, bool asUnsigned = false);
/// In double quotes, as Python reads it.
std::string quoted(llvm::StringRef text);
std::string list(llvm::ArrayRef<int64_t> values);

/// What the functions of one file share.
struct File {
  Names names; // of functions
  /// Functions that reductions and the like combine with: the text behind "def name" -> name.
  std::map<std::string, std::string> helpers;
  std::string text;
  bool usesLibdevice = false;
};

/// Writes one function, or the region of a reduction as a function.
class FunctionPrinter {
public:
  explicit FunctionPrinter(File &file, const FunctionPrinter *outer = nullptr) : file_(file), outer_(outer) {}

  /// Appends the kernel to the file. `parameters` name its arguments.
  Status kernel(tt::FuncOp func, const std::string &name, const std::vector<std::string> &parameters);
  /// The name of a function of the file that computes what `region` does of its arguments.
  std::optional<std::string> helper(mlir::Region &region, llvm::ArrayRef<std::string> parameters);
  /// Names of the kernel's arguments as they were written, in order; a descriptor's sizes and strides have none.
  const std::vector<std::string> &arguments() const { return arguments_; }

private:
  using Op = mlir::Operation;
  using Value = mlir::Value;

  // function.cpp: statements
  bool block(mlir::Block &block);
  bool operation(Op *op);
  bool controlFlow(Op *op, bool &known);
  bool forLoop(mlir::scf::ForOp loop);
  bool whileLoop(mlir::scf::WhileOp loop);
  bool branch(mlir::scf::IfOp branch);
  std::optional<std::vector<std::string>> carry(mlir::ValueRange inits, mlir::ValueRange inside);
  void assignAll(llvm::ArrayRef<std::string> names, mlir::ValueRange values);
  std::string loopRange(mlir::scf::ForOp loop);
  bool declareArguments(tt::FuncOp func, const std::vector<std::string> &parameters);
  bool failed() const { return error_.has_value(); }

  // expressions; nothing: the op is of another kind, or failed
  std::optional<Text> expression(Op *op);
  std::optional<Text> elementwise(Op *op);
  std::optional<Text> comparison(Op *op);
  std::optional<Text> cast(Op *op);
  std::optional<Text> call(Op *op);
  std::optional<Text> onBools(Op *op);
  std::optional<Text> external(tt::ExternElementwiseOp op);
  std::optional<Text> shaped(Op *op);
  std::optional<Text> product(tt::DotOp op);
  std::optional<Text> memory(Op *op);
  bool statement(Op *op, bool &known);
  bool regions(Op *op, bool &known);
  bool sort(ttg::SortOp op);
  bool atomic(Op *op, bool &known);
  bool descriptor(Op *op, bool &known);
  bool several(Op *op, const std::string &code);

  // operands
  Text text(Value v);
  /// Of the value's own shape and type.
  std::string exact(Value v);
  /// Of the value's type, perhaps of a shape that broadcasts to its own.
  Text typed(Value v);
  /// A name or a number: what may be written twice.
  Text named(Value v);
  Text asUnsigned(Value v);
  std::string wrap(const Text &t, Binding outside) const;
  /// ", mask=…" and the like for an operand that may be absent.
  std::string option(llvm::StringRef name, Value v);
  std::string arguments(mlir::ValueRange values);
  Text infix(llvm::StringRef sign, Binding binding, const Text &a, const Text &b);
  Text apply(llvm::StringRef function, llvm::ArrayRef<Text> args);
  Text method(const Text &of, const std::string &call);

  // results
  void bind(Value v, Text t);
  void define(Value v, Text t);
  void assign(Value v, const Text &t);
  std::string hint(Value v) const;
  void line(const std::string &code);
  std::optional<Text> refuse(Op *op, const std::string &what);
  std::optional<Text> refuse(Op *op) { return refuse(op, ("the op " + op->getName().getStringRef()).str()); }

  File &file_;
  const FunctionPrinter *outer_;
  Names names_;
  llvm::DenseMap<Value, Text> texts_;
  std::vector<std::string> arguments_;
  std::string out_;
  int indent_ = 1, depth_ = 0;
  std::optional<Error> error_;
};

} // namespace neso::triton_source
