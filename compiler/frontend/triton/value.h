// Values of the front end: what a Python expression is while a module or a kernel is being read. Either a compile-time
// Python object (number, string, tuple, function, module …) or a run-time value of the kernel (tensor, tensor
// descriptor, block pointer).
//
// Compile-time and run-time values share one type, because Triton's language mixes them freely: `x + 1` may be either.
// A Value is small and copied by value; its object, if any, lives in the Evaluator's arena. `wrapped` records that a
// module-level value was made a tl.constexpr, which decides whether a kernel may use it.
#pragma once
#include "frontend/triton/ast.h"
#include "frontend/triton/types.h"

#include "mlir/IR/Value.h"

#include <utility>

namespace neso::triton {

struct Object;
struct Module;
class Evaluator;

enum class Kind : uint8_t {
  Invalid, // an error was reported
  None,
  Bool,
  Int,
  Float,
  Str,
  Tuple,
  List,
  Dict,
  DType,
  Function,
  Builtin,
  Method,
  Module,
  Namespace,
  Class,
  Instance,
  Slice,
  Range,
  Opaque,
  Import, // of a module that has not been read yet; never leaves the globals it stands in
  Tensor,
  Descriptor,
  BlockPtr,
};

struct Value {
  Kind kind = Kind::Invalid;
  bool wrapped = false;
  __int128 i = 0;             // Int, Bool
  double f = 0;               // Float
  Object *o = nullptr;        // all kinds with parts
  mlir::Value handle;         // Tensor, Descriptor
  const Type *type = nullptr; // Tensor: its type. DType: the type it names. Interned, never null for those
  const void *data = nullptr; // Builtin: its table row. Module: Module*. Namespace: its NUL-terminated dotted name

  explicit operator bool() const { return kind != Kind::Invalid; }
  bool isNone() const { return kind == Kind::None; }
  bool isNumber() const { return kind == Kind::Int || kind == Kind::Float || kind == Kind::Bool; }
  bool isIntLike() const { return kind == Kind::Int || kind == Kind::Bool; }
  bool isTensor() const { return kind == Kind::Tensor; }
  /// Lives in the kernel: carried through loops, merged by `if`.
  bool isRuntime() const { return kind == Kind::Tensor || kind == Kind::Descriptor || kind == Kind::BlockPtr; }
  bool isSequence() const { return kind == Kind::Tuple || kind == Kind::List; }
  double number() const { return kind == Kind::Float ? f : static_cast<double>(i); }
  const std::string &str() const;
  std::vector<Value> &items() const;

  static Value none() { return make(Kind::None); }
  static Value boolean(bool b) {
    Value v = make(Kind::Bool);
    v.i = b;
    return v;
  }
  static Value integer(__int128 n) {
    Value v = make(Kind::Int);
    v.i = n;
    return v;
  }
  static Value real(double d) {
    Value v = make(Kind::Float);
    v.f = d;
    return v;
  }
  static Value make(Kind k) {
    Value v;
    v.kind = k;
    return v;
  }
};

/// Names of a scope, in order of definition.
struct Scope {
  std::vector<std::pair<std::string_view, Value>> entries;
  Value *find(std::string_view name) {
    for (std::pair<std::string_view, Value> &e : entries)
      if (e.first == name) return &e.second;
    return nullptr;
  }
  void set(std::string_view name, Value v) {
    if (Value *old = find(name))
      *old = std::move(v);
    else
      entries.emplace_back(name, std::move(v));
  }
};

/// The parts of values that have some. One struct for all kinds; which members are used:
///   Str: text                    Tuple, List: items; a named tuple also has fields and cls
///   Dict: items = {k, v, …}      Function: function, module, closure, jit, constexprFunction, builtinFunction, noinline, decorators
///   Method: items = {self, function}
///   Class: text, members, module, fields (aggregate or NamedTuple), items = defaults, bases in `keys`
///   Instance: cls, fields/items; sealed: its constructor is done, kernels leave its fields alone
///   Slice: items = {start, stop, step}
///   Range: items = {start, stop, step, options…}, text = "range" or "static_range"
///   Opaque: text = what it is, for the diagnostic; present: it is not None
///   Import: module = where it stands, import, importName
///   Descriptor: items = shape…, strides…; shape = block shape; element
///   BlockPtr: items = {base, shape…, strides…, offsets…}; shape = block shape; order
struct Object {
  std::string text;
  std::vector<Value> items;
  std::vector<std::string> fields;
  Object *cls = nullptr;
  FunctionNode *function = nullptr;
  Module *module = nullptr;
  Scope members;
  Scope *closure = nullptr;
  bool jit = false;
  bool constexprFunction = false;
  bool builtinFunction = false; // Python that Triton runs as it compiles, with the kernel's own values
  bool noinline = false;
  bool aggregate = false;
  bool namedTuple = false;
  bool present = false;
  bool sealed = false;
  // Function: what decorates it, outermost first, and where those expressions stand: above the function, or in calls,
  // as in autotune(…)(fn).
  std::vector<std::pair<Expr *, Module *>> decorators;
  Stmt *import = nullptr;
  const ImportName *importName = nullptr;
  std::vector<int64_t> shape;
  std::vector<int64_t> order;
  Scalar element;
  Pos pos;
};

/// A loaded file: its tree, its globals, and where it stands.
struct Module {
  std::string path;
  std::string name;
  std::shared_ptr<SyntaxTree> tree;
  Scope globals;
  bool standard = false; // our own kernels/std.py: not shown in diagnostics
  bool ready = false;
  bool running = false; // its statements are being run: names may still come
};

inline const std::string &Value::str() const { return o->text; }
inline std::vector<Value> &Value::items() const { return o->items; }

/// Python's name of the value's type, for messages: "int", "tensor", "function".
std::string typeName(const Value &v);
/// Python's repr, as f-strings and messages show it.
std::string repr(const Value &v);
/// Python's str().
std::string toStr(const Value &v);
/// Python's ==, for compile-time values; tensors compare by identity.
bool equals(const Value &a, const Value &b);
/// Python's truth of a compile-time value.
bool truthy(const Value &v);
std::string int128ToString(__int128 v);

} // namespace neso::triton
