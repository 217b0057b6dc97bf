// Runs Python: module-level code and compile-time functions as an interpreter, kernel functions as a builder of IR. One
// evaluator serves both, because in Triton's language the two mix within one expression.
//
// Module level is lenient: a statement that cannot be evaluated (an import of torch, a device query) binds its names to
// an Opaque value that says why, and only a kernel that really uses such a name fails. Kernel code is strict: what it
// cannot express is an error.
//
// Kernel control flow: `if`, `for`, `while` on run-time values become scf.if, scf.for, scf.while. Names that change
// inside become their results. An early `return` becomes structure: what follows the `if` moves into its other branch.
// Helpers are inlined.
#pragma once
#include "frontend/triton/loader.h"
#include "frontend/triton/nested.h"
#include "frontend/triton/semantic.h"

namespace neso::triton {

/// Arguments of a call, before they are bound to parameters.
struct CallArgs {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;
  bool unused = false; // the call is a statement of its own
};

struct Builtin;
using BuiltinFn = Value (*)(Evaluator &e, const Builtin &self, std::vector<Value> &args);

/// A function of the language. `params` is its signature: "pointer, mask=None, *, volatile=False" or "input, *dims".
/// Arguments arrive bound, defaults filled in; `*rest` arrives as a tuple.
struct Builtin {
  const char *name; // "tl.load", "builtins.len", "str.join"
  const char *params;
  BuiltinFn fn;
};
/// The row of `name`, or null.
const Builtin *findBuiltin(std::string_view name);

/// "__add__" of `+`; "" of an operator that has no method.
const char *methodOfOperator(OpKind op);

/// What a kernel is compiled with, as its code can see it.
struct CodegenOptions {
  bool debug = false; // device_assert is kept
  int numWarps = 4;
  int numStages = 3;
};

class Evaluator {
public:
  Evaluator(Context &context, Loader &loader, CodegenOptions options)
      : c(context), s(context), loader_(loader), options_(options) {}

  /// Runs a file's module level once; null after an error was reported.
  Module *module(const std::string &path);
  /// The standard library's module (kernels/std.py).
  Module *standard();
  /// The names that a kernel inside functions sees, its own among them; `m` is the file.
  Module *scopeOfNested(Module *m, const NestedKernel &k);
  /// A name of a module, or Invalid without an error.
  Value global(Module *m, std::string_view name);

  Value call(const Value &fn, CallArgs args);
  Value call(const Value &fn, std::vector<Value> positional) {
    return call(fn, CallArgs{std::move(positional), {}, false});
  }
  /// Builds the body of a kernel whose parameters are bound in `frame`.
  bool kernelBody(Frame &frame);
  Value attribute(const Value &base, std::string_view name);
  Value importModule(std::string_view dotted);
  Value moduleSpec(std::string_view dotted);
  /// A member of the library by its full name: "tl.load", "tl.math.exp", "tl.sum".
  Value language(std::string_view dotted);
  /// Binds call arguments to a Python function's parameters; defaults are evaluated in its module.
  bool bind(Object *fn, CallArgs &args, Scope &out);
  Value evalIn(Module *m, Expr *e);
  Value callIn(Module &m, const Value &fn, std::vector<Value> args);
  /// Runs the module level of a module that did not come from the loader, and gives one of its names.
  Value runModule(Module &m, std::string_view name);

  /// Elements of a tuple, list, range, string or dict keys; reports and returns nullopt otherwise.
  std::optional<std::vector<Value>> iterate(const Value &v);
  const CodegenOptions &options() const { return options_; }

  /// Flattens the run-time parts of a value, and puts new ones in their place.
  void flatten(const Value &v, std::vector<mlir::Value> &out);
  Value rebuild(const Value &like, llvm::ArrayRef<mlir::Value> handles, size_t &at);

  Value binary(OpKind op, const Value &a, const Value &b);
  Value compare(OpKind op, const Value &a, const Value &b);
  Value subscript(const Value &base, const Value &index);

  Context &c;
  Semantic s;

private:
  enum class Flow : uint8_t { Next, Return, Break, Continue, Fail };
  /// What runs after the current statement list, innermost first: the rest of a function whose branches may return.
  struct Rest {
    llvm::ArrayRef<Stmt *> stmts;
    const Rest *outer = nullptr;
  };

  // expressions (eval_expr.cpp)
  Value eval(Expr *e);
  Value evalInner(Expr *e);
  Value evalSlice(Expr *e);
  Value evalUnary(Expr *e);
  Value evalSequence(Expr *e);
  Value evalDict(Expr *e);
  Value name(Expr *e);
  Value evalCall(Expr *e);
  Value evalCompare(Expr *e);
  Value evalBool(Expr *e);
  Value evalIf(Expr *e);
  Value evalBoth(Expr *e, const Value &condition);
  Value joined(Expr *e);
  Value comprehension(Expr *e);
  bool comprehend(Expr *e, size_t clause, std::vector<Value> &out);
  Value lookup(std::string_view name, Pos pos);
  bool visibleInKernel(const Value &v, std::string_view name);
  Value namespaceAttr(std::string_view ns, std::string_view attr);
  Value languageAttr(std::string_view attr);
  Value hostAttr(std::string_view ns, std::string_view attr);
  Value movedFunction(std::string_view ns, std::string_view attr);
  Value valueAttr(const Value &base, std::string_view attr);
  Value methodOf(const Value &base, const char *prefix, std::string_view attr);
  Value moduleAttr(const Value &base, std::string_view attr);
  Value descriptorAttr(const Value &base, std::string_view attr);
  Value classAttr(const Value &base, std::string_view attr);
  Value builtinAttr(const Value &base, std::string_view attr);
  Value tensorAttr(const Value &base, std::string_view attr);
  Value dtypeAttr(const Value &base, std::string_view attr);
  Value instantiate(Object *cls, CallArgs &args);
  Value callBuiltin(const Builtin &b, CallArgs &args);
  Value callFunction(Object *fn, CallArgs &args, Pos pos);
  std::string format(const Value &v, std::string_view conversionAndSpec);

  Value binaryOfContainers(OpKind op, const Value &a, const Value &b);

  // compile-time statements (eval_host.cpp)
  Flow runBlock(llvm::ArrayRef<Stmt *> stmts);
  Flow run(Stmt *st);
  Flow runAugAssign(Stmt *st);
  Flow runAnnAssign(Stmt *st);
  Flow runIf(Stmt *st);
  Flow runBoth(Stmt *st, const Value &condition);
  Flow runWhile(Stmt *st);
  Flow runFor(Stmt *st);
  Flow runTry(Stmt *st);
  Flow runAssert(Stmt *st);
  Flow runRaise(Stmt *st);
  bool decided(const Value &v);
  void moduleStatement(Stmt *st);
  void bindOpaque(Stmt *st, const std::string &why);
  void runUpTo(const std::vector<Stmt *> &stmts, const Stmt *target);
  Flow import(Stmt *st);
  bool importFails(std::string_view dotted);
  Value imported(Stmt *st, const ImportName &n);
  Value resolved(Module *m, std::string_view name, const Value &v);
  Value define(FunctionNode *f);
  Flow defineClass(Stmt *st);
  bool assign(Expr *target, const Value &v);
  bool unpack(Expr *target, const Value &v);
  bool step();

  // kernel statements (codegen.cpp)
  bool kernelTail(llvm::ArrayRef<Stmt *> stmts, const Rest *rest);
  bool tailIf(Stmt *st, const Value &cond, const Rest *rest);
  bool kernelBlock(llvm::ArrayRef<Stmt *> stmts);
  bool kernelStatement(Stmt *st);
  bool kernelIf(Stmt *st);
  bool kernelFor(Stmt *st);
  bool staticFor(Stmt *st, llvm::ArrayRef<Value> items);
  bool dynamicFor(Stmt *st, const Value &range);
  struct LoopRange;
  std::optional<LoopRange> loopRange(Stmt *st, const Value &range);
  bool keepsShapes(Stmt *st, Scope &liveins, const std::vector<std::string_view> &assigned,
                   const std::vector<std::string_view> &carried);
  bool kernelWhile(Stmt *st);
  bool kernelAssign(Stmt *st);
  bool kernelWith(Stmt *st);
  Value sanitize(const Value &v);
  bool sanitizeInto(Expr *target, const Value &v);
  Value condition(const Value &v, Pos pos, const char *where);
  bool sameShapeOfValue(const Value &a, const Value &b);
  std::vector<std::string_view> assignedNames(llvm::ArrayRef<Stmt *> stmts);
  Value unify(const Value &like, const Value &v);
  Value inlineCall(Object *fn, Scope locals, Pos pos);

  Loader &loader_;
  CodegenOptions options_;
  Module *standard_ = nullptr;
  std::vector<std::unique_ptr<Module>> scopes_; // of functions around kernels
  int64_t steps_ = 0;
  int depth_ = 0;
  int duplicated_ = 0;
  int guarded_ = 0;              // `try` statements with handlers around the current one, in this module
  /// A function that is being inlined, with what its parameters were bound to.
  struct ActiveCall {
    Object *function;
    Scope arguments;
  };
  std::vector<ActiveCall> active_; // outermost first, to refuse calls without end
};

/// Where names that a statement binds go: a function's locals or its module's globals.
Scope &scopeOf(Frame &f);
/// Why a name is opaque whose statement failed.
std::string notKnown(const Diagnostic &error);

} // namespace neso::triton
