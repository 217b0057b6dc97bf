// Expressions, at module level and in kernels.
#include "base/diagnostics/triton.h"
#include "frontend/triton/evaluator.h"

#include <algorithm>
#include <cmath>

namespace neso::triton {

Value Evaluator::eval(Expr *e) {
  if (c.error) return {};
  Pos saved = c.frame->pos;
  c.frame->pos = e->pos;
  if (++depth_ > 1500) {
    --depth_;
    return c.fail(diag::PyTooDeep, e->pos, "calls and expressions", 1500);
  }
  Value v = evalInner(e);
  --depth_;
  c.frame->pos = saved;
  return v;
}

Value Evaluator::evalInner(Expr *e) {
  switch (e->kind) {
  case ExprKind::None: return Value::none();
  case ExprKind::True: return Value::boolean(true);
  case ExprKind::False: return Value::boolean(false);
  case ExprKind::Int: return e->big ? c.fail(diag::TrBigInt, e->text) : Value::integer(e->integer);
  case ExprKind::Float: return Value::real(e->number);
  case ExprKind::String: return c.str(e->string);
  case ExprKind::JoinedStr: return joined(e);
  case ExprKind::Name: return name(e);
  case ExprKind::Attribute: {
    Value base = eval(e->items[0]);
    return base ? attribute(base, e->text) : base;
  }
  case ExprKind::Subscript: {
    Value base = eval(e->items[0]);
    if (!base) return base;
    Value index = eval(e->items[1]);
    return index ? subscript(base, index) : index;
  }
  case ExprKind::Slice: {
    std::vector<Value> parts;
    for (Expr *p : e->items) {
      parts.push_back(p ? eval(p) : Value::none());
      if (!parts.back()) return {};
    }
    return c.list(Kind::Slice, std::move(parts));
  }
  case ExprKind::Call: return evalCall(e);
  case ExprKind::Unary: {
    Value v = eval(e->items[0]);
    if (!v) return v;
    if (v.isTensor()) return s.unaryOperator(e->op, v);
    if (v.kind == Kind::Opaque) return c.frame->kernel ? c.fail(diag::TrOpaque, v.o->text) : v;
    if (e->op == OpKind::Not) return Value::boolean(!truthy(v));
    if (v.kind == Kind::Float && e->op != OpKind::Invert) return Value::real(e->op == OpKind::Neg ? -v.f : v.f);
    if (v.isIntLike()) return Value::integer(e->op == OpKind::Neg ? -v.i : e->op == OpKind::Invert ? ~v.i : v.i);
    return c.fail(diag::TrUnary, spelling(e->op), typeName(v));
  }
  case ExprKind::Binary: {
    Value a = eval(e->items[0]);
    if (!a) return a;
    Value b = eval(e->items[1]);
    return b ? binary(e->op, a, b) : b;
  }
  case ExprKind::Bool: return evalBool(e);
  case ExprKind::Compare: return evalCompare(e);
  case ExprKind::IfExp: return evalIf(e);
  case ExprKind::Lambda: return define(e->function);
  case ExprKind::Tuple:
  case ExprKind::List:
  case ExprKind::Set: {
    std::vector<Value> items;
    for (Expr *i : e->items) {
      if (i->kind == ExprKind::Starred) {
        Value v = eval(i->items[0]);
        std::optional<std::vector<Value>> all = v ? iterate(v) : std::nullopt;
        if (!all) return {};
        items.insert(items.end(), all->begin(), all->end());
        continue;
      }
      items.push_back(eval(i));
      if (!items.back()) return {};
    }
    return c.list(e->kind == ExprKind::Tuple || c.frame->kernel ? Kind::Tuple : Kind::List, std::move(items));
  }
  case ExprKind::Dict: {
    std::vector<Value> items;
    for (size_t i = 0; i + 1 < e->items.size(); i += 2) {
      if (!e->items[i]) {
        Value v = eval(e->items[i + 1]);
        if (!v) return v;
        if (v.kind == Kind::Dict) items.insert(items.end(), v.items().begin(), v.items().end());
        continue;
      }
      items.push_back(eval(e->items[i]));
      if (!items.back()) return {};
      items.push_back(eval(e->items[i + 1]));
      if (!items.back()) return {};
    }
    return c.list(Kind::Dict, std::move(items));
  }
  case ExprKind::Comprehension: return comprehension(e);
  case ExprKind::Named: {
    Value v = eval(e->items[0]);
    if (!v) return v;
    if (c.frame->kernel) v = sanitize(v);
    if (v) c.frame->locals.set(e->text, v);
    return v;
  }
  case ExprKind::Ellipsis: return c.frame->kernel ? c.fail(diag::TrUnsupported, "'...'", "write the missing code") : c.opaque("'...'");
  case ExprKind::Bytes: return c.frame->kernel ? c.fail(diag::TrUnsupported, "a bytes literal", "use a string") : c.opaque("a bytes literal");
  case ExprKind::Imaginary:
    return c.frame->kernel ? c.fail(diag::TrUnsupported, "a complex number", "keep real and imaginary parts apart") : c.opaque("a complex number");
  case ExprKind::Starred: return c.fail(diag::TrUnsupported, "'*' here", "use it in a call or a tuple");
  case ExprKind::Await:
  case ExprKind::Yield: return c.fail(diag::TrUnsupported, e->kind == ExprKind::Await ? "'await'" : "'yield'", "return a value instead");
  }
  return c.fail(diag::TrUnsupported, "this expression", "rewrite it");
}

// ---- names -----------------------------------------------------------------------------------------------------------------------

Value Evaluator::name(Expr *e) { return lookup(e->text, e->pos); }

bool Evaluator::visibleInKernel(const Value &v, std::string_view name) {
  switch (v.kind) {
  case Kind::Namespace:
  case Kind::Module:
  case Kind::Builtin:
  case Kind::DType:
  case Kind::Class:
  case Kind::None: return true;
  case Kind::Function:
    if (v.o->jit || v.o->constexprFunction) return true;
    c.fail(diag::TrPlainFunction, name);
    return false;
  case Kind::Tuple:
    if (v.o->namedTuple || v.wrapped) return true;
    break;
  case Kind::Opaque: c.fail(diag::TrOpaque, fmt::format("{} ({})", name, v.o->text)); return false;
  default:
    if (v.wrapped) return true;
  }
  c.fail(diag::TrGlobal, name);
  return false;
}

Value Evaluator::lookup(std::string_view name, Pos pos) {
  Frame &f = *c.frame;
  if (Value *v = f.locals.find(name)) return *v ? *v : c.fail(diag::TrUndefined, pos, name);
  if (f.closure)
    if (Value *v = f.closure->find(name)) {
      if (f.kernel && !visibleInKernel(*v, name)) return {};
      return *v;
    }
  if (Value *v = f.module->globals.find(name)) {
    if (f.kernel && !f.module->standard && !visibleInKernel(*v, name)) return {};
    return *v;
  }
  if (name == "__name__") return c.str(f.module->name);
  if (name == "__file__") return c.str(f.module->path);
  if (f.kernel && name == "print") return language("tl.device_print");
  std::string key = "builtins." + std::string(name);
  if (const Builtin *b = findBuiltin(key)) {
    Value v = Value::make(Kind::Builtin);
    v.data = b;
    return v;
  }
  static constexpr std::string_view kPython[] = {"Exception", "ValueError",  "TypeError",    "RuntimeError", "ImportError", "ModuleNotFoundError", "AttributeError", "KeyError",
                                                 "NotImplementedError", "AssertionError", "property", "staticmethod", "classmethod", "super", "object", "open", "NotImplemented",
                                                 "globals", "locals", "id", "hash", "vars", "dir", "input", "exec", "eval", "slice", "complex", "bytes", "memoryview", "callable",
                                                 "IndexError", "StopIteration", "frozenset", "iter", "next", "format", "hex", "bin", "oct", "__builtins__", "__doc__", "Warning", "UserWarning", "DeprecationWarning"};
  if (std::find(std::begin(kPython), std::end(kPython), name) != std::end(kPython)) {
    if (f.kernel) return c.fail(diag::TrUnsupported, pos, fmt::format("Python's '{}'", name), "use the functions of triton.language");
    return c.opaque(fmt::format("Python's '{}'", name));
  }
  return c.fail(diag::TrUndefined, pos, name);
}

Value Evaluator::global(Module *m, std::string_view name) {
  if (Value *v = m->globals.find(name)) return *v;
  return {};
}

// ---- attributes ------------------------------------------------------------------------------------------------------------------

/// Folds the many import paths of the language into few names.
static std::string canonicalNamespace(std::string_view ns) {
  std::string n(ns);
  if (n.rfind("triton.language", 0) == 0) n = "tl" + n.substr(15);
  if (n == "tl.core" || n == "tl.standard" || n == "tl.random" || n == "tl.semantic") return "tl";
  if (n.size() > 9 && n.compare(n.size() - 9, 9, "libdevice") == 0) return "tl.libdevice";
  if (n == "tl.extra.cuda" || n == "tl.extra.hip" || n == "tl.extra.intel") return "tl.extra.cuda";
  return n;
}

Value Evaluator::language(std::string_view dotted) {
  size_t dot = dotted.rfind('.');
  return namespaceAttr(dotted.substr(0, dot), dotted.substr(dot + 1));
}

Value Evaluator::namespaceAttr(std::string_view nsIn, std::string_view attr) {
  std::string ns = canonicalNamespace(nsIn);
  std::string full = ns + "." + std::string(attr);
  auto builtin = [&](const Builtin *b) {
    Value v = Value::make(Kind::Builtin);
    v.data = b;
    return v;
  };
  if (ns == "tl") {
    if (std::optional<DT> t = parseLanguageType(attr)) return c.dtype(scalar(*t));
    if (attr == "pi32_t") return c.dtype(scalar(DT::I32).pointer());
    if (attr == "math" || attr == "extra" || attr == "core" || attr == "standard" || attr == "random" || attr == "libdevice" || attr == "semantic")
      return c.nameSpace(canonicalNamespace(full));
    if (attr == "PropagateNan") return c.nameSpace("tl.PropagateNan");
    if (attr == "TRITON_MAX_TENSOR_NUMEL") return Value::integer(1048576);
    if (attr == "CONSTEXPR_0") return Value::integer(0);
    if (attr == "dtype") {
      if (const Builtin *b = findBuiltin("tl.dtype")) return builtin(b);
    }
  }
  if (ns == "tl.extra") return c.nameSpace(canonicalNamespace(full));
  if (ns == "tl.extra.cuda" && attr == "libdevice") return c.nameSpace("tl.libdevice");
  if (ns == "tl.PropagateNan" && (attr == "ALL" || attr == "NONE")) return c.str(std::string(attr));
  if (full == "os.environ" || full == "packaging.version" || full == "torch.version") return c.nameSpace(full);
  // Types of PyTorch, for torch.finfo and for comparisons.
  static constexpr std::string_view kTorchTypes[] = {"bfloat16", "double", "float", "float16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "half", "int", "int16", "int32", "int64", "int8", "long", "short", "uint16", "uint32", "uint8"};
  if (ns == "torch" && !c.frame->kernel && std::find(std::begin(kTorchTypes), std::end(kTorchTypes), attr) != std::end(kTorchTypes)) return c.nameSpace(full);
  // As for the active target: a PyTorch for CUDA.
  if (ns == "torch.version") {
    if (attr == "cuda") return c.str("12.8");
    if (attr == "hip" || attr == "xpu") return Value::none();
  }
  if (ns == "triton") {
    if (attr == "language") return c.nameSpace("tl");
    if (attr == "__version__") return c.str("3.9.0");
  }
  if (ns == "math") {
    static constexpr std::pair<std::string_view, double> kConstants[] = {{"pi", 3.141592653589793}, {"e", 2.718281828459045}, {"tau", 6.283185307179586}};
    for (const std::pair<std::string_view, double> &k : kConstants)
      if (k.first == attr) return Value::real(k.second);
    if (attr == "inf") return Value::real(HUGE_VAL);
    if (attr == "nan") return Value::real(std::nan(""));
  }
  if (full == "triton.runtime.driver.active.get_current_target") {
    if (Module *std = standard()) return global(std, "_current_target");
    return {};
  }
  if (const Builtin *b = findBuiltin(full)) return builtin(b);
  if (ns == "tl" || ns == "tl.math") {
    // Older Tritons had libdevice's functions in tl.math; tl.math and tl share the plain ones.
    if (ns == "tl")
      if (const Builtin *b = findBuiltin("tl.math." + std::string(attr))) return builtin(b);
    if (Module *std = standard()) {
      Value v = global(std, attr);
      if (v.kind == Kind::Function && !attr.starts_with("__")) return v;
    }
    if (c.error) return {};
    if (ns == "tl.math") {
      if (const Builtin *b = findBuiltin("tl." + std::string(attr))) return builtin(b);
      if (const Builtin *b = findBuiltin("tl.libdevice." + std::string(attr))) return builtin(b);
    }
    return c.fail(diag::TrNoMember, ns == "tl" ? "triton.language" : "triton.language.math", attr);
  }
  if (ns == "tl.libdevice" || ns == "tl.extra.cuda") return c.fail(diag::TrNoMember, ns == "tl.libdevice" ? "libdevice" : "triton.language.extra.cuda", attr);
  if (c.frame->kernel) return c.fail(diag::TrOpaque, full);
  if (ns == "triton" || ns.starts_with("triton.")) return c.nameSpace(full);
  return c.opaque("'" + full + "', which is not part of Triton");
}

Value Evaluator::attribute(const Value &base, std::string_view attr) {
  if (!base) return base;
  Value v = valueAttr(base, attr);
  if (!v && !c.error) return c.fail(diag::TrNoAttribute, typeName(base), attr);
  return v;
}

static bool isTensorMember(std::string_view name) {
  static constexpr std::string_view kMembers[] = {
      "abs",        "advance",   "argmax",     "argmin",     "associative_scan", "atomic_add", "atomic_and", "atomic_cas", "atomic_load", "atomic_max", "atomic_min",
      "atomic_or",  "atomic_poll", "atomic_store", "atomic_xchg", "atomic_xor",  "broadcast_to", "cast",    "cdiv",       "ceil",        "cos",        "cumprod",
      "cumsum",     "erf",       "exp",        "exp2",       "expand_dims",      "flip",       "floor",      "gather",     "histogram",   "item",       "log",
      "log2",       "logical_and", "logical_or", "max",      "min",              "permute",    "ravel",      "reduce",     "reduce_or",   "reshape",    "rsqrt",
      "sigmoid",    "sin",       "softmax",    "sort",       "split",            "sqrt",       "sqrt_rn",    "store",      "sum",         "to",         "trans",
      "view",       "xor_sum"};
  return std::binary_search(std::begin(kMembers), std::end(kMembers), name);
}

Value Evaluator::tensorAttr(const Value &base, std::string_view attr) {
  if (attr == "T") return s.permute(base, base.type->shape.size() == 2 ? std::vector<int64_t>{1, 0} : std::vector<int64_t>{});
  if (attr == "shape") {
    std::vector<Value> dims;
    for (int64_t d : base.type->shape) dims.push_back(Value::integer(d));
    return c.tuple(std::move(dims));
  }
  if (attr == "dtype") return c.dtype(base.type->element);
  if (attr == "type") return c.dtype(*base.type);
  if (attr == "numel") return Value::integer(base.type->numel());
  if (attr == "value" || attr == "handle") return {};
  if (!isTensorMember(attr)) return {};
  Value fn = language("tl." + std::string(attr == "to" ? "cast" : attr));
  return fn ? c.list(Kind::Method, {base, fn}) : fn;
}

Value Evaluator::dtypeAttr(const Value &base, std::string_view attr) {
  const Type &t = *base.type;
  Scalar e = t.element;
  if (attr == "value") return base;
  if (attr == "name") return c.str(t.str());
  if (attr == "primitive_bitwidth" || attr == "int_bitwidth") return Value::integer(e.isBool() && attr == "primitive_bitwidth" ? 1 : e.bits());
  if (attr == "itemsize") return Value::integer((e.bits() + 7) / 8);
  if (attr == "fp_mantissa_width") return Value::integer(e.mantissa());
  if (attr == "scalar") return c.dtype(e);
  if (attr == "numel") return Value::integer(t.numel());
  if (attr == "nbytes") return Value::integer(t.numel() * (e.bits() / 8));
  if (attr == "address_space") return c.str("global");
  if (attr == "element_ty") {
    if (t.isBlock()) return c.dtype(e);
    return e.isPtr() ? c.dtype(e.pointee()) : Value{};
  }
  if (attr == "shape") {
    std::vector<Value> dims;
    for (int64_t d : t.shape) dims.push_back(Value::integer(d));
    return t.isBlock() ? c.tuple(std::move(dims)) : Value{};
  }
  if (const Builtin *b = findBuiltin("dtype." + std::string(attr))) {
    Value fn = Value::make(Kind::Builtin);
    fn.data = b;
    return c.list(Kind::Method, {base, fn});
  }
  return {};
}

Value Evaluator::valueAttr(const Value &base, std::string_view attr) {
  auto method = [&](const char *prefix) -> Value {
    const Builtin *b = findBuiltin(prefix + std::string(attr));
    if (!b) return {};
    Value fn = Value::make(Kind::Builtin);
    fn.data = b;
    return c.list(Kind::Method, {base, fn});
  };
  switch (base.kind) {
  case Kind::Namespace: return namespaceAttr(static_cast<const char *>(base.data), attr);
  case Kind::Opaque:
    if (c.frame->kernel) return c.fail(diag::TrOpaque, base.o->text);
    return c.opaque("'" + std::string(attr) + "' of " + base.o->text);
  case Kind::Module: {
    Module *m = const_cast<Module *>(static_cast<const Module *>(base.data));
    if (Value *v = m->globals.find(attr)) {
      if (c.frame->kernel && !visibleInKernel(*v, attr)) return {};
      return *v;
    }
    std::string file = loader_.resolve(*m, attr, 1);
    if (!file.empty() && file.ends_with(".py"))
      if (Module *sub = module(file)) {
        Value v = Value::make(Kind::Module);
        v.data = sub;
        return v;
      }
    return c.error ? Value{} : c.fail(diag::TrNoMember, m->name, attr);
  }
  case Kind::Tensor: return tensorAttr(base, attr);
  case Kind::DType: return dtypeAttr(base, attr);
  case Kind::Descriptor: {
    size_t rank = base.o->shape.size();
    auto part = [&](size_t from) {
      return c.tuple(std::vector<Value>(base.items().begin() + static_cast<std::ptrdiff_t>(from), base.items().begin() + static_cast<std::ptrdiff_t>(from + rank)));
    };
    if (attr == "shape") return part(0);
    if (attr == "strides") return part(rank);
    if (attr == "dtype") return c.dtype(base.o->element);
    if (attr == "block_type" || attr == "type") return c.dtype(Type{base.o->element, base.o->shape});
    if (attr == "block_shape") {
      std::vector<Value> dims;
      for (int64_t d : base.o->shape) dims.push_back(Value::integer(d));
      return c.tuple(std::move(dims));
    }
    return method("descriptor.");
  }
  case Kind::BlockPtr:
    if (attr == "dtype" || attr == "type") return c.dtype(base.o->element.pointer());
    return attr == "advance" || attr == "load" || attr == "store" ? c.list(Kind::Method, {base, language("tl." + std::string(attr))}) : Value{};
  case Kind::Instance:
    for (size_t i = 0; i < base.o->fields.size(); ++i)
      if (base.o->fields[i] == attr) return base.items()[i];
    if (Value *v = base.o->cls->members.find(attr)) return v->kind == Kind::Function ? c.list(Kind::Method, {base, *v}) : *v;
    return {};
  case Kind::Class:
    if (Value *v = base.o->members.find(attr)) return *v;
    if (attr == "__name__") return c.str(base.o->text);
    return c.frame->kernel ? Value{} : c.opaque("'" + std::string(attr) + "' of class " + base.o->text);
  case Kind::Function:
    if (attr == "fn" || attr == "value") return base;
    if (attr == "__name__") return c.str(base.o->text);
    return c.frame->kernel ? Value{} : c.opaque("'" + std::string(attr) + "' of a function");
  case Kind::Tuple:
    for (size_t i = 0; i < base.o->fields.size(); ++i)
      if (base.o->fields[i] == attr) return base.items()[i];
    if (attr == "type") return base;
    if (attr == "value") return base;
    return method("tuple.");
  case Kind::List: return method("list.");
  case Kind::Dict: return method("dict.");
  case Kind::Str:
    if (attr == "value") return base;
    return method("str.");
  case Kind::Int:
  case Kind::Bool:
  case Kind::Float:
    if (attr == "value") return base;
    if (attr == "type") {
      std::optional<Scalar> t = s.typeOfNumber(base);
      return t ? c.dtype(*t) : Value{};
    }
    return method("number.");
  case Kind::None: return attr == "value" ? base : Value{};
  case Kind::Builtin: {
    // Classes of the library with members: tl.dtype.SIGNEDNESS and the like.
    const Builtin *b = findBuiltin(std::string(static_cast<const Builtin *>(base.data)->name) + "." + std::string(attr));
    if (!b) return c.frame->kernel ? Value{} : c.opaque("'" + std::string(attr) + "'");
    Value v = Value::make(Kind::Builtin);
    v.data = b;
    return v;
  }
  default: return {};
  }
}

// ---- subscripts ------------------------------------------------------------------------------------------------------------------

Value Evaluator::subscript(const Value &base, const Value &index) {
  switch (base.kind) {
  case Kind::Tensor: {
    std::vector<Value> list = index.kind == Kind::Tuple ? index.items() : std::vector<Value>{index};
    Value v = base;
    size_t used = 0, rank = base.type->shape.size();
    for (size_t d = 0; d < list.size(); ++d) {
      const Value &i = list[d];
      bool whole = i.kind == Kind::Slice && i.items()[0].isNone() && i.items()[1].isNone() && i.items()[2].isNone();
      if (i.isNone()) v = s.expandDims(v, static_cast<int64_t>(d));
      else if (!whole) return c.fail(diag::TrIndex, repr(i));
      else if (++used > rank) return c.fail(diag::TrTooManyIndices, rank);
      if (!v) return v;
    }
    return v;
  }
  case Kind::Tuple:
  case Kind::List:
  case Kind::Str: {
    int64_t n = static_cast<int64_t>(base.kind == Kind::Str ? base.str().size() : base.items().size());
    if (index.kind == Kind::Slice) {
      int64_t step = index.items()[2].isNone() ? 1 : static_cast<int64_t>(index.items()[2].i);
      if (step == 0) return c.fail(diag::TrIndex, "slice step cannot be zero");
      auto edge = [&](const Value &v, int64_t missing) {
        if (v.isNone()) return missing;
        int64_t i = static_cast<int64_t>(v.i);
        if (i < 0) i += n;
        return step > 0 ? std::clamp<int64_t>(i, 0, n) : std::clamp<int64_t>(i, -1, n - 1);
      };
      for (const Value &part : index.items())
        if (!part.isNone() && !part.isIntLike()) return c.fail(diag::TrIndex, repr(part));
      int64_t from = edge(index.items()[0], step > 0 ? 0 : n - 1), to = edge(index.items()[1], step > 0 ? n : -1);
      std::string text;
      std::vector<Value> items;
      for (int64_t i = from; step > 0 ? i < to : i > to; i += step) {
        if (base.kind == Kind::Str) text += base.str()[static_cast<size_t>(i)];
        else items.push_back(base.items()[static_cast<size_t>(i)]);
      }
      return base.kind == Kind::Str ? c.str(text) : c.list(base.kind, std::move(items));
    }
    if (!index.isIntLike()) return c.fail(diag::TrIndex, index.isTensor() ? "a tensor; an index into a tuple must be constexpr" : repr(index));
    __int128 i = index.i < 0 ? index.i + n : index.i;
    if (i < 0 || i >= n) return c.fail(diag::TrIndexRange, int128ToString(index.i), n);
    if (base.kind == Kind::Str) return c.str(std::string(1, base.str()[static_cast<size_t>(i)]));
    return base.items()[static_cast<size_t>(i)];
  }
  case Kind::Dict:
    for (size_t i = 0; i + 1 < base.items().size(); i += 2)
      if (equals(base.items()[i], index)) return base.items()[i + 1];
    return c.fail(diag::TrKey, repr(index));
  case Kind::Opaque: return c.frame->kernel ? c.fail(diag::TrOpaque, base.o->text) : base;
  case Kind::Function: return c.opaque("a launch of " + base.o->text);
  case Kind::Builtin:
  case Kind::Class:
  case Kind::DType:
  case Kind::Namespace: return base;
  case Kind::Instance:
    if (Value *fn = base.o->cls->members.find("__getitem__")) return call(*fn, {base, index});
    [[fallthrough]];
  default: return c.fail(diag::TrNotSubscriptable, typeName(base));
  }
}

// ---- calls -----------------------------------------------------------------------------------------------------------------------

static bool isNamed(const Value &v, const char *name) {
  return v.kind == Kind::Builtin && std::string_view(static_cast<const Builtin *>(v.data)->name) == name;
}

static bool isDecorator(const Value &v) { return isNamed(v, "triton.jit") || isNamed(v, "triton.autotune") || isNamed(v, "triton.heuristics"); }

Value Evaluator::evalCall(Expr *e) {
  Value fn = eval(e->items[0]);
  if (!fn) return fn;
  if (fn.kind == Kind::Opaque && !c.frame->kernel) return c.opaque("the result of " + fn.o->text);
  CallArgs args;
  // The message of a static_assert is read only when it fails.
  bool lazy = isNamed(fn, "tl.static_assert");
  for (size_t i = 1; i < e->items.size(); ++i) {
    Expr *a = e->items[i];
    if (lazy && i == 2 && !args.positional.empty() && args.positional[0].kind == Kind::Bool && args.positional[0].i) break;
    if (a->kind == ExprKind::Starred) {
      Value v = eval(a->items[0]);
      std::optional<std::vector<Value>> all = v ? iterate(v) : std::nullopt;
      if (!all) return {};
      args.positional.insert(args.positional.end(), all->begin(), all->end());
      continue;
    }
    args.positional.push_back(eval(a));
    if (!args.positional.back()) return {};
  }
  for (const Keyword &k : e->keywords) {
    Value v = eval(k.value);
    if (!v) return v;
    if (!k.name.empty()) {
      args.named.emplace_back(k.name, v);
      continue;
    }
    // Decorators take options of caching from elsewhere this way; nothing in them changes what the kernel computes.
    if (v.kind == Kind::Opaque && isNamed(fn, "triton.autotune")) continue;
    if (v.kind != Kind::Dict) return c.frame->kernel ? c.fail(diag::TrUnsupported, k.pos, "'**' of a non-dict", "name the arguments") : c.opaque("a call");
    for (size_t i = 0; i + 1 < v.items().size(); i += 2)
      if (v.items()[i].kind == Kind::Str) args.named.emplace_back(c.internText(v.items()[i].str()), v.items()[i + 1]);
  }
  // autotune(…)(fn) gives a decorated copy of fn.
  if (e->items[0]->kind == ExprKind::Call && isDecorator(fn) && args.positional.size() == 1 && args.positional[0].kind == Kind::Function) {
    Object *from = args.positional[0].o, *o;
    Value out = c.object(Kind::Function, &o);
    *o = *from;
    if (from->closure == &from->members) o->closure = &o->members;
    o->decorators.insert(o->decorators.begin(), {e->items[0], c.frame->module});
    o->jit |= isNamed(fn, "triton.jit");
    return out;
  }
  return call(fn, std::move(args));
}

Value Evaluator::call(const Value &fn, CallArgs args) {
  if (c.error || !fn) return {};
  switch (fn.kind) {
  case Kind::Builtin: return callBuiltin(*static_cast<const Builtin *>(fn.data), args);
  case Kind::Method:
    args.positional.insert(args.positional.begin(), fn.items()[0]);
    return call(fn.items()[1], std::move(args));
  case Kind::Function: return callFunction(fn.o, args, c.frame->pos);
  case Kind::Class: return instantiate(fn.o, args);
  case Kind::DType:
    // tl.float32(x) and the like are casts in older kernels.
    if (args.positional.size() == 1) return call(language("tl.cast"), {args.positional[0], fn});
    break;
  case Kind::Opaque: return c.frame->kernel ? c.fail(diag::TrOpaque, fn.o->text) : c.opaque("the result of " + fn.o->text);
  case Kind::Namespace: return c.frame->kernel ? c.fail(diag::TrOpaque, static_cast<const char *>(fn.data)) : c.opaque(static_cast<const char *>(fn.data));
  case Kind::Instance:
    if (Value *m = fn.o->cls->members.find("__call__")) {
      args.positional.insert(args.positional.begin(), fn);
      return call(*m, std::move(args));
    }
    break;
  default: break;
  }
  return c.fail(diag::TrNotCallable, typeName(fn));
}

Value Evaluator::callBuiltin(const Builtin &b, CallArgs &args) {
  // Opaque arguments make an opaque result at module level.
  if (!c.frame->kernel)
    for (const Value &v : args.positional)
      if (v.kind == Kind::Opaque && std::string_view(b.name) != "builtins.isinstance" && !std::string_view(b.name).starts_with("triton.")) return v;
  std::vector<Value> bound;
  std::vector<std::string_view> names;
  std::vector<bool> given;
  bool keywordOnly = false;
  size_t next = 0;
  std::string_view rest = b.params;
  std::string_view fname = std::string_view(b.name).substr(std::string_view(b.name).rfind('.') + 1);
  auto defaultOf = [&](std::string_view text) -> Value {
    if (text == "None") return Value::none();
    if (text == "True" || text == "False") return Value::boolean(text == "True");
    if (text == "()") return c.tuple({});
    if (text.size() >= 2 && text[0] == '\'') return c.str(std::string(text.substr(1, text.size() - 2)));
    if (text == "fp32") return c.dtype(scalar(DT::F32));
    return Value::integer(std::atoi(std::string(text).c_str()));
  };
  size_t usedNamed = 0;
  while (!rest.empty()) {
    size_t comma = rest.find(',');
    std::string_view p = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
    while (!p.empty() && p.front() == ' ') p.remove_prefix(1);
    if (p == "*") {
      keywordOnly = true;
      continue;
    }
    if (p.starts_with("**")) {
      std::vector<Value> items;
      for (std::pair<std::string_view, Value> &n : args.named)
        if (std::find(names.begin(), names.end(), n.first) == names.end()) {
          items.push_back(c.str(std::string(n.first)));
          items.push_back(n.second);
          ++usedNamed;
        }
      bound.push_back(c.list(Kind::Dict, std::move(items)));
      continue;
    }
    if (p.starts_with("*")) {
      // Older Tritons named these parameters.
      for (std::pair<std::string_view, Value> &n : args.named)
        if (n.first == p.substr(1) && next >= args.positional.size()) {
          args.positional.push_back(n.second);
          names.push_back(n.first);
          ++usedNamed;
        }
      std::vector<Value> items(args.positional.begin() + static_cast<std::ptrdiff_t>(std::min(next, args.positional.size())), args.positional.end());
      next = args.positional.size();
      bound.push_back(c.tuple(std::move(items)));
      keywordOnly = true;
      continue;
    }
    size_t eq = p.find('=');
    std::string_view pname = p.substr(0, eq);
    names.push_back(pname);
    const Value *named = nullptr;
    for (std::pair<std::string_view, Value> &n : args.named)
      if (n.first == pname) named = &n.second;
    if (named) ++usedNamed;
    if (!keywordOnly && next < args.positional.size()) {
      if (named) return c.fail(diag::TrRepeatedArgument, fname, pname);
      bound.push_back(args.positional[next++]);
    } else if (named) {
      bound.push_back(*named);
    } else if (eq != std::string_view::npos) {
      bound.push_back(defaultOf(p.substr(eq + 1)));
    } else {
      return c.fail(diag::TrMissingArgument, fname, pname);
    }
  }
  if (next < args.positional.size()) return c.fail(diag::TrTooManyArguments, fname, args.positional.size());
  if (usedNamed < args.named.size())
    for (std::pair<std::string_view, Value> &n : args.named) {
      bool known = std::find(names.begin(), names.end(), n.first) != names.end();
      if (!known && n.first != "_builder" && n.first != "_semantic" && n.first != "_generator") return c.fail(diag::TrUnexpectedArgument, fname, n.first);
    }
  return b.fn(*this, b, bound);
}

bool Evaluator::bind(Object *fn, CallArgs &args, Scope &out) {
  FunctionNode *node = fn->function;
  size_t next = 0, usedNamed = 0;
  for (const Param &p : node->params) {
    if (p.kind == Param::Star) {
      std::vector<Value> items(args.positional.begin() + static_cast<std::ptrdiff_t>(std::min(next, args.positional.size())), args.positional.end());
      next = args.positional.size();
      out.set(p.name, c.tuple(std::move(items)));
      continue;
    }
    if (p.kind == Param::DoubleStar) {
      std::vector<Value> items;
      for (std::pair<std::string_view, Value> &n : args.named) {
        bool taken = false;
        for (const Param &q : node->params) taken |= q.name == n.first;
        if (taken) continue;
        items.push_back(c.str(std::string(n.first)));
        items.push_back(n.second);
        ++usedNamed;
      }
      out.set(p.name, c.list(Kind::Dict, std::move(items)));
      continue;
    }
    const Value *named = nullptr;
    for (std::pair<std::string_view, Value> &n : args.named)
      if (n.first == p.name) named = &n.second;
    if (named) ++usedNamed;
    Value v;
    if (p.kind == Param::Plain && next < args.positional.size()) {
      if (named) {
        c.fail(diag::TrRepeatedArgument, fn->text, p.name);
        return false;
      }
      v = args.positional[next++];
    } else if (named) {
      v = *named;
    } else if (p.fallback) {
      v = evalIn(fn->module, p.fallback);
      if (!v) return false;
    } else {
      c.fail(diag::TrMissingArgument, fn->text, p.name);
      return false;
    }
    out.set(p.name, v);
  }
  if (next < args.positional.size()) {
    c.fail(diag::TrTooManyArguments, fn->text, args.positional.size());
    return false;
  }
  if (usedNamed < args.named.size())
    for (std::pair<std::string_view, Value> &n : args.named)
      if (!out.find(n.first)) {
        c.fail(diag::TrUnexpectedArgument, fn->text, n.first);
        return false;
      }
  return true;
}

Value Evaluator::evalIn(Module *m, Expr *e) {
  Frame f;
  f.module = m;
  f.parent = c.frame;
  f.pos = e->pos;
  c.frame = &f;
  Value v = eval(e);
  c.frame = f.parent;
  return v;
}

Value Evaluator::callFunction(Object *fn, CallArgs &args, Pos pos) {
  bool kernel = c.frame->kernel;
  if (kernel && !fn->jit && !fn->constexprFunction && !(fn->function->expr && fn->closure)) return c.fail(diag::TrPlainFunction, fn->text);
  if (!kernel && fn->jit) return c.opaque("a call of kernel " + fn->text);
  Scope locals;
  if (!bind(fn, args, locals)) return {};
  if (kernel && fn->jit) return inlineCall(fn, std::move(locals), pos);
  for (const std::pair<std::string_view, Value> &l : locals.entries)
    if (l.second.isRuntime()) return c.fail(diag::TrConstexprArgument, fn->text, l.first);
  Frame f;
  f.module = fn->module;
  f.function = fn;
  f.parent = c.frame;
  f.locals = std::move(locals);
  f.closure = fn->closure;
  f.pos = fn->function->pos;
  f.result = Value::none();
  c.frame = &f;
  Value result;
  if (++depth_ > 1400) {
    result = c.fail(diag::PyTooDeep, pos, "calls", 1400);
  } else if (fn->function->expr) {
    result = eval(fn->function->expr);
  } else {
    Flow flow = runBlock(fn->function->body);
    result = flow == Flow::Fail ? Value{} : f.result;
  }
  --depth_;
  c.frame = f.parent;
  return result;
}

// ---- booleans, comparisons, strings, comprehensions --------------------------------------------------------------------------------

Value Evaluator::evalBool(Expr *e) {
  bool isAnd = e->op == OpKind::And;
  std::vector<Value> dynamic;
  Value last;
  for (Expr *item : e->items) {
    last = eval(item);
    if (!last) return last;
    if (last.kind == Kind::Opaque) return c.frame->kernel ? c.fail(diag::TrOpaque, last.o->text) : last;
    if (last.isTensor()) {
      dynamic.push_back(last);
      continue;
    }
    if (truthy(last) != isAnd) return last;
  }
  if (dynamic.empty()) return last;
  while (dynamic.size() >= 2) {
    Value rhs = dynamic.back();
    dynamic.pop_back();
    Value lhs = dynamic.back();
    dynamic.pop_back();
    Value v = s.logical(isAnd, lhs, rhs);
    if (!v) return v;
    dynamic.push_back(v);
  }
  return dynamic[0];
}

Value Evaluator::compare(OpKind op, const Value &a, const Value &b) {
  auto identical = [&] { return a.kind == b.kind && (a.isNone() || (a.kind == Kind::Tensor ? a.handle == b.handle : equals(a, b))); };
  switch (op) {
  case OpKind::Is: return Value::boolean(identical());
  case OpKind::IsNot: return Value::boolean(!identical());
  case OpKind::In:
  case OpKind::NotIn: {
    if (b.kind == Kind::Opaque || a.kind == Kind::Opaque) return c.frame->kernel ? c.fail(diag::TrOpaque, (a.kind == Kind::Opaque ? a : b).o->text) : (b.kind == Kind::Opaque ? b : a);
    bool found = false;
    if (b.kind == Kind::Str && a.kind == Kind::Str) {
      found = b.str().find(a.str()) != std::string::npos;
    } else {
      std::optional<std::vector<Value>> all = iterate(b);
      if (!all) return {};
      for (const Value &v : *all) found |= equals(a, v);
    }
    return Value::boolean(found == (op == OpKind::In));
  }
  default: return binary(op, a, b);
  }
}

Value Evaluator::evalCompare(Expr *e) {
  Value left = eval(e->items[0]);
  if (!left) return left;
  Value all;
  for (size_t i = 0; i < e->ops.size(); ++i) {
    Value right = eval(e->items[i + 1]);
    if (!right) return right;
    Value v = compare(e->ops[i], left, right);
    if (!v) return v;
    left = right;
    if (v.isTensor() || e->ops.size() == 1) {
      all = all && all.isTensor() && v.isTensor() ? s.logical(true, all, v) : v;
      if (!all) return all;
      continue;
    }
    if (v.kind == Kind::Opaque) return v;
    if (!truthy(v)) return v;
    if (!all) all = v;
  }
  return all;
}

std::string Evaluator::format(const Value &v, std::string_view how) {
  bool asRepr = how.starts_with("!r");
  if (how.starts_with("!")) how.remove_prefix(2);
  if (how.starts_with(":")) how.remove_prefix(1);
  std::string text = asRepr ? repr(v) : toStr(v);
  if (how.empty()) return text;
  char type = how.back();
  std::string spec(how);
  if (v.isIntLike() && std::string_view("dxXob").find(type) != std::string_view::npos) return fmt::format(fmt::runtime("{:" + spec + "}"), static_cast<int64_t>(v.i));
  if (v.isNumber() && std::string_view("feEgG").find(type) != std::string_view::npos) return fmt::format(fmt::runtime("{:" + spec + "}"), v.number());
  bool digits = how.find_first_not_of("0123456789") == std::string_view::npos && how.size() < 4;
  if (digits && v.isIntLike()) return fmt::format(fmt::runtime("{:" + spec + "}"), static_cast<int64_t>(v.i));
  return text;
}

/// Whether fmt will take the format spec: only a plain [fill][0][width][.precision][type], so that no input can upset it.
static bool plainSpec(std::string_view how) {
  if (how.starts_with("!")) how.remove_prefix(std::min<size_t>(2, how.size()));
  if (how.empty()) return true;
  if (!how.starts_with(":")) return false;
  how.remove_prefix(1);
  size_t i = 0;
  auto digits = [&] {
    size_t from = i;
    while (i < how.size() && how[i] >= '0' && how[i] <= '9') ++i;
    return i - from <= 3;
  };
  if (!digits()) return false;
  if (i < how.size() && how[i] == '.') {
    ++i;
    size_t from = i;
    if (!digits() || i == from) return false;
    return i + 1 == how.size() && std::string_view("feEgG").find(how[i]) != std::string_view::npos;
  }
  if (i < how.size() && std::string_view("dxXobfeEgGs").find(how[i]) != std::string_view::npos) ++i;
  return i == how.size();
}

Value Evaluator::joined(Expr *e) {
  std::string out;
  for (Expr *part : e->items) {
    if (part->kind == ExprKind::String) {
      out += part->string;
      continue;
    }
    Value v = eval(part->items[0]);
    if (!v) return v;
    if (v.isRuntime()) return c.fail(diag::TrFString, part->pos, typeName(v));
    if (v.kind == Kind::Opaque && !c.frame->kernel) return v;
    out += plainSpec(part->text) ? format(v, part->text) : toStr(v);
  }
  return c.str(std::move(out));
}

std::optional<std::vector<Value>> Evaluator::iterate(const Value &v) {
  switch (v.kind) {
  case Kind::Tuple:
  case Kind::List: return v.items();
  case Kind::Str: {
    std::vector<Value> out;
    for (char ch : v.str()) out.push_back(c.str(std::string(1, ch)));
    return out;
  }
  case Kind::Dict: {
    std::vector<Value> out;
    for (size_t i = 0; i + 1 < v.items().size(); i += 2) out.push_back(v.items()[i]);
    return out;
  }
  case Kind::Range: {
    std::vector<Value> out;
    for (size_t i = 0; i < 3; ++i)
      if (!v.items()[i].isIntLike()) {
        c.fail(diag::TrNotIterable, "range over run-time values here");
        return std::nullopt;
      }
    __int128 step = v.items()[2].i;
    if (step == 0) {
      c.fail(diag::TrRangeStep);
      return std::nullopt;
    }
    for (__int128 i = v.items()[0].i; step > 0 ? i < v.items()[1].i : i > v.items()[1].i; i += step) {
      out.push_back(Value::integer(i));
      if (out.size() > 100000) {
        c.fail(diag::TrUnrollTooLong, 100000);
        return std::nullopt;
      }
    }
    return out;
  }
  default: c.fail(diag::TrNotIterable, typeName(v)); return std::nullopt;
  }
}

bool Evaluator::comprehend(Expr *e, size_t clause, std::vector<Value> &out) {
  if (clause == e->clauses.size()) {
    for (Expr *item : e->items) {
      out.push_back(eval(item));
      if (!out.back()) return false;
    }
    return step();
  }
  ComprehensionFor &f = e->clauses[clause];
  Value source = eval(f.iter);
  std::optional<std::vector<Value>> all = source ? iterate(source) : std::nullopt;
  if (!all) return false;
  for (const Value &v : *all) {
    if (!assign(f.target, v)) return false;
    bool keep = true;
    for (Expr *cond : f.conditions) {
      Value k = eval(cond);
      if (!k) return false;
      if (k.isTensor()) {
        c.fail(diag::TrConstexprCondition, cond->pos, typeName(k));
        return false;
      }
      keep &= truthy(k);
    }
    if (keep && !comprehend(e, clause + 1, out)) return false;
  }
  return true;
}

Value Evaluator::comprehension(Expr *e) {
  // The loop names are the comprehension's own.
  Scope saved = c.frame->locals;
  std::vector<Value> out;
  bool ok = comprehend(e, 0, out);
  c.frame->locals = std::move(saved);
  if (!ok) return {};
  if (e->text == "dict") return c.list(Kind::Dict, std::move(out));
  return c.list(c.frame->kernel || e->text == "generator" ? Kind::Tuple : Kind::List, std::move(out));
}

} // namespace neso::triton
