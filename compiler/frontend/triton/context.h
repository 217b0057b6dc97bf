// What every part of the front end shares while one kernel is compiled: the arena of values, the stack of frames (where
// we are in the source), the error if one was reported, and the IR builder.
//
// Errors: the first one is kept; fail() returns an Invalid value, which every caller passes on at once. There is no
// exception and no second error. Not thread-safe; one Context a compilation.
#pragma once
#include "frontend/triton/value.h"

#include "mlir/IR/Builders.h"

#include <deque>
#include <set>

namespace neso::triton {

/// One function being read: a module at its top level, a Python function run at compile time, or a kernel function
/// being built.
struct Frame {
  Module *module = nullptr;
  Object *function = nullptr; // null at module level
  Frame *parent = nullptr;
  Scope locals;
  Scope *closure = nullptr;
  bool kernel = false;  // statements build IR
  bool emits = false;   // statements are Python's; calls of the language build IR
  bool isEntry = false; // the kernel itself, not a helper
  int loops = 0;        // run-time loops around the current statement
  Pos pos;
  std::optional<mlir::Location> callLoc; // where a helper was called from
  Value result;                          // of `return`
};

class Context {
public:
  explicit Context(mlir::MLIRContext *ctx) : builder(ctx) {}

  template <typename... Args> Value fail(Diag kind, Pos pos, const Args &...args) {
    if (!error) report(pos, [&](SourceLoc loc) { return makeDiag(kind, std::move(loc), args...); });
    return {};
  }
  /// At the current place.
  template <typename... Args> Value fail(Diag kind, const Args &...args) {
    return fail(kind, frame ? frame->pos : Pos{}, args...);
  }

  /// A function that runs at compile time wants more of a run-time value than its type.
  Value failRuntime();

  /// Once for a place: what is unrolled or inlined is read again and again.
  template <typename... Args> void warn(Diag kind, const Args &...args) {
    warn([&](SourceLoc at) { return makeDiag(kind, std::move(at), args...); });
  }

  Value str(std::string s);
  Value list(Kind kind, std::vector<Value> items);
  Value tuple(std::vector<Value> items) { return list(Kind::Tuple, std::move(items)); }
  Value dtype(Type t);
  Value dtype(Scalar s) { return dtype(Type{s, {}}); }
  Value tensor(mlir::Value handle, Type t);
  Value object(Kind kind, Object **out);
  Value opaque(std::string what);
  Value nameSpace(std::string_view dotted);
  const Type *intern(Type t);
  /// The characters outlive every value.
  std::string_view internText(std::string_view s);

  /// The location of the current place, with the calls that led to it.
  mlir::Location loc();

  std::optional<Diagnostic> error;
  std::vector<Diagnostic> warnings;
  Frame *frame = nullptr;
  mlir::OpBuilder builder;
  int numWarps = 4; // that the kernel is compiled for

private:
  void report(Pos pos, llvm::function_ref<Diagnostic(SourceLoc)> make);
  void warn(llvm::function_ref<Diagnostic(SourceLoc)> make);
  Diagnostic place(Pos pos, llvm::function_ref<Diagnostic(SourceLoc)> make) const;
  std::deque<Object> objects_;
  std::deque<Type> types_;
  std::set<std::string, std::less<>> texts_;
};

} // namespace neso::triton
