// Names, and attributes of modules, tensors, dtypes and other values.
#include "base/diagnostics/triton.h"
#include "frontend/triton/evaluator.h"

#include <algorithm>

namespace neso::triton {

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
    if (v.o->jit || v.o->constexprFunction || v.o->builtinFunction) return true;
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

/// Names of Python that kernels cannot use and module-level code may.
static constexpr std::string_view kPython[] = {
    "Exception", "ValueError", "TypeError", "RuntimeError", "ImportError", "ModuleNotFoundError", "AttributeError",
    "KeyError", "NotImplementedError", "AssertionError", "property", "staticmethod", "classmethod", "super", "object", "open",
    "NotImplemented", "globals", "locals", "id", "hash", "vars", "dir", "input", "exec", "eval", "slice", "complex", "bytes",
    "memoryview", "callable", "IndexError", "StopIteration", "frozenset", "iter", "next", "format", "hex", "bin", "oct",
    "__builtins__", "__doc__", "Warning", "UserWarning", "DeprecationWarning"};

Value Evaluator::lookup(std::string_view name, Pos pos) {
  Frame &f = *c.frame;
  if (Value *v = f.locals.find(name)) return *v ? *v : c.fail(diag::TrUndefined, pos, name);
  if (f.closure)
    if (Value *v = f.closure->find(name)) {
      if (f.kernel && !visibleInKernel(*v, name)) return {};
      return *v;
    }
  if (Value v = global(f.module, name)) {
    if (f.kernel && !f.module->standard && !visibleInKernel(v, name)) return {};
    return v;
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
  if (std::find(std::begin(kPython), std::end(kPython), name) != std::end(kPython)) {
    if (f.kernel)
      return c.fail(diag::TrUnsupported, pos, fmt::format("Python's '{}'", name),
                    "use the functions of triton.language");
    return c.opaque(fmt::format("Python's '{}'", name));
  }
  return c.fail(diag::TrUndefined, pos, name);
}

Value Evaluator::global(Module *m, std::string_view name) {
  if (Value *v = m->globals.find(name)) return resolved(m, name, *v);
  return {};
}

// ---- attributes ------------------------------------------------------------------------------------------------------------------

/// Folds the many import paths of the language into few names.
static std::string canonicalNamespace(std::string_view ns) {
  std::string n(ns.starts_with("neso.triton") ? ns.substr(std::string_view("neso.").size()) : ns);
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

static Value builtinValue(const Builtin *b) {
  Value v = Value::make(Kind::Builtin);
  v.data = b;
  return v;
}

/// Names of triton.language that are no functions; Invalid for all others.
Value Evaluator::languageAttr(std::string_view attr) {
  if (std::optional<DT> t = parseLanguageType(attr)) return c.dtype(scalar(*t));
  if (attr == "pi32_t") return c.dtype(scalar(DT::I32).pointer());
  if (attr == "math" || attr == "extra" || attr == "core" || attr == "standard" || attr == "random" ||
      attr == "libdevice" || attr == "semantic" || attr == "target_info")
    return c.nameSpace(canonicalNamespace("tl." + std::string(attr)));
  if (attr == "PropagateNan") return c.nameSpace("tl.PropagateNan");
  if (attr == "TRITON_MAX_TENSOR_NUMEL") return Value::integer(1048576);
  if (attr == "CONSTEXPR_0") return Value::integer(0);
  const Builtin *b = attr == "dtype" ? findBuiltin("tl.dtype") : nullptr;
  return b ? builtinValue(b) : Value{};
}

/// What modules beside Triton's have that a kernel's module asks for as it is loaded; Invalid for all else.
Value Evaluator::hostAttr(std::string_view ns, std::string_view attr) {
  const std::string full = std::string(ns) + "." + std::string(attr);
  if (full == "os.environ" || full == "packaging.version" || full == "torch.version" || full == "torch.cuda" || full == "importlib.util")
    return c.nameSpace(full);
  // Types of PyTorch, for torch.finfo and for comparisons. A kernel may name them there as well, and assigns them to nothing.
  static constexpr std::string_view kTorchTypes[] = {
      "bfloat16", "double", "float", "float16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "half", "int",
      "int16",    "int32",  "int64", "int8",    "long",    "short",   "uint16",        "uint32",      "uint8"};
  if (ns == "torch" && std::find(std::begin(kTorchTypes), std::end(kTorchTypes), attr) != std::end(kTorchTypes))
    return c.nameSpace(full);
  // As for the active target: a PyTorch for CUDA.
  if (ns == "torch.version" && attr == "cuda") return c.str("12.8");
  if (ns == "torch.version" && (attr == "hip" || attr == "xpu")) return Value::none();
  if (ns == "math" || ns == "torch" || ns == "numpy") {
    static constexpr std::pair<std::string_view, double> kConstants[] = {
        {"pi", 3.141592653589793}, {"e", 2.718281828459045}, {"tau", 6.283185307179586}};
    for (const std::pair<std::string_view, double> &k : kConstants)
      if (k.first == attr && (attr != "tau" || ns == "math")) return Value::real(k.second);
    if (attr == "inf") return Value::real(HUGE_VAL);
    if (attr == "nan") return Value::real(std::nan(""));
  }
  return {};
}

/// A function of tl or tl.math that has another home: the library's own kernels, or an older name.
Value Evaluator::movedFunction(std::string_view ns, std::string_view attr) {
  // Older Tritons had libdevice's functions in tl.math; tl.math and tl share the plain ones.
  if (ns == "tl")
    if (const Builtin *b = findBuiltin("tl.math." + std::string(attr))) return builtinValue(b);
  if (Module *std = standard()) {
    Value v = global(std, attr);
    if (v.kind == Kind::Function && !attr.starts_with("__")) return v;
  }
  if (c.error) return {};
  if (ns == "tl.math") {
    if (const Builtin *b = findBuiltin("tl." + std::string(attr))) return builtinValue(b);
    if (const Builtin *b = findBuiltin("tl.libdevice." + std::string(attr))) return builtinValue(b);
  }
  return c.fail(diag::TrNoMember, ns == "tl" ? "triton.language" : "triton.language.math", attr);
}

/// What modules ask of the machine as they are loaded, and kernels as they are compiled, and the function of kernels/std.py that answers.
static constexpr std::pair<std::string_view, std::string_view> kAskedOfTheMachine[] = {
    {"triton.runtime.driver.active.get_current_target", "_current_target"},
    {"tl.target_info.current_target", "_current_target"},
    {"tl.target_info.is_cuda", "_is_cuda"},
    {"tl.target_info.cuda_capability_geq", "_cuda_capability_geq"},
    {"tl.target_info.is_hip", "_is_hip"},
    {"tl.target_info.is_hip_cdna3", "_is_hip"},
    {"tl.target_info.is_hip_cdna4", "_is_hip"},
    {"tl.target_info.is_hip_gfx1250", "_is_hip"},
    {"torch.cuda.get_device_capability", "_device_capability"},
    {"torch.cuda.is_available", "_is_available"}};

Value Evaluator::namespaceAttr(std::string_view nsIn, std::string_view attr) {
  std::string ns = canonicalNamespace(nsIn);
  std::string full = ns + "." + std::string(attr);
  if (ns == "tl")
    if (Value v = languageAttr(attr)) return v;
  if (ns == "tl.extra") return c.nameSpace(canonicalNamespace(full));
  if (ns == "tl.extra.cuda" && attr == "libdevice") return c.nameSpace("tl.libdevice");
  if (ns == "tl.PropagateNan" && (attr == "ALL" || attr == "NONE")) return c.str(std::string(attr));
  if (Value v = hostAttr(ns, attr)) return v;
  if (ns == "neso" && attr == "triton") return c.nameSpace("triton");
  if (ns == "triton" && attr == "language") return c.nameSpace("tl");
  if (ns == "triton" && attr == "aggregate") return language("tl._aggregate");
  if (ns == "triton" && attr == "__version__") return c.str("3.9.0");
  for (const auto &[asked, answer] : kAskedOfTheMachine) {
    if (asked != full) continue;
    Module *std = standard();
    return std ? global(std, answer) : Value{};
  }
  if (const Builtin *b = findBuiltin(full)) return builtinValue(b);
  if (ns == "tl" || ns == "tl.math") return movedFunction(ns, attr);
  if (ns == "tl.libdevice" || ns == "tl.extra.cuda")
    return c.fail(diag::TrNoMember, ns == "tl.libdevice" ? "libdevice" : "triton.language.extra.cuda", attr);
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
      "abs",        "advance",      "argmax",      "argmin",       "associative_scan",
      "atomic_add", "atomic_and",   "atomic_cas",  "atomic_load",  "atomic_max",
      "atomic_min", "atomic_or",    "atomic_poll", "atomic_store", "atomic_xchg",
      "atomic_xor", "broadcast_to", "cast",        "cdiv",         "ceil",
      "cos",        "cumprod",      "cumsum",      "erf",          "exp",
      "exp2",       "expand_dims",  "flip",        "floor",        "gather",
      "histogram",  "item",         "log",         "log2",         "logical_and",
      "logical_or", "max",          "min",         "permute",      "ravel",
      "reduce",     "reduce_or",    "reshape",     "rsqrt",        "sigmoid",
      "sin",        "softmax",      "sort",        "split",        "sqrt",
      "sqrt_rn",    "store",        "sum",         "to",           "trans",
      "view",       "xor_sum"};
  return std::binary_search(std::begin(kMembers), std::end(kMembers), name);
}

Value Evaluator::tensorAttr(const Value &base, std::string_view attr) {
  if (attr == "T")
    return s.permute(base, base.type->shape.size() == 2 ? std::vector<int64_t>{1, 0} : std::vector<int64_t>{});
  if (attr == "shape") {
    std::vector<Value> dims;
    for (int64_t d : base.type->shape) dims.push_back(Value::integer(d));
    return c.tuple(std::move(dims));
  }
  if (attr == "dtype") return c.dtype(base.type->element);
  if (attr == "type") return c.dtype(*base.type);
  if (attr == "numel") return Value::integer(base.type->numel());
  if (attr == "value" || attr == "handle") return {};
  if (!isTensorMember(attr)) return methodOf(base, "tensor.", attr);
  Value fn = language("tl." + std::string(attr == "to" ? "cast" : attr));
  return fn ? c.list(Kind::Method, {base, fn}) : fn;
}

Value Evaluator::dtypeAttr(const Value &base, std::string_view attr) {
  const Type &t = *base.type;
  Scalar e = t.element;
  if (attr == "value") return base;
  if (attr == "name") return c.str(t.str());
  if (attr == "primitive_bitwidth" || attr == "int_bitwidth")
    return Value::integer(e.isBool() && attr == "primitive_bitwidth" ? 1 : e.bits());
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

/// A function of the language, bound to the value before the dot; Invalid where there is none.
Value Evaluator::methodOf(const Value &base, const char *prefix, std::string_view attr) {
  const Builtin *b = findBuiltin(prefix + std::string(attr));
  if (!b) return {};
  Value fn = Value::make(Kind::Builtin);
  fn.data = b;
  return c.list(Kind::Method, {base, fn});
}

Value Evaluator::moduleAttr(const Value &base, std::string_view attr) {
  Module *m = const_cast<Module *>(static_cast<const Module *>(base.data));
  if (Value v = global(m, attr)) {
    if (c.frame->kernel && !visibleInKernel(v, attr)) return {};
    return v;
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

Value Evaluator::descriptorAttr(const Value &base, std::string_view attr) {
  size_t rank = base.o->shape.size();
  auto part = [&](size_t from) {
    return c.tuple(std::vector<Value>(base.items().begin() + static_cast<std::ptrdiff_t>(from),
                                      base.items().begin() + static_cast<std::ptrdiff_t>(from + rank)));
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
  return methodOf(base, "descriptor.", attr);
}

Value Evaluator::classAttr(const Value &base, std::string_view attr) {
  if (Value *v = base.o->members.find(attr)) return *v;
  if (attr == "__name__") return c.str(base.o->text);
  return c.frame->kernel ? Value{} : c.opaque("'" + std::string(attr) + "' of class " + base.o->text);
}

/// Of an instance of a class, or of a named tuple.
static const Value *fieldOf(const Value &base, std::string_view attr) {
  for (size_t i = 0; i < base.o->fields.size(); ++i)
    if (base.o->fields[i] == attr) return &base.items()[i];
  return nullptr;
}

/// Classes of the library with members: tl.dtype.SIGNEDNESS and the like.
Value Evaluator::builtinAttr(const Value &base, std::string_view attr) {
  const Builtin *b = findBuiltin(std::string(static_cast<const Builtin *>(base.data)->name) + "." + std::string(attr));
  if (!b) return c.frame->kernel ? Value{} : c.opaque("'" + std::string(attr) + "'");
  Value v = Value::make(Kind::Builtin);
  v.data = b;
  return v;
}

Value Evaluator::valueAttr(const Value &base, std::string_view attr) {
  switch (base.kind) {
  case Kind::Namespace: return namespaceAttr(static_cast<const char *>(base.data), attr);
  case Kind::Opaque:
    if (c.frame->kernel) return c.fail(diag::TrOpaque, base.o->text);
    return c.opaque("'" + std::string(attr) + "' of " + base.o->text);
  case Kind::Module: return moduleAttr(base, attr);
  case Kind::Tensor: return tensorAttr(base, attr);
  case Kind::DType: return dtypeAttr(base, attr);
  case Kind::Descriptor: return descriptorAttr(base, attr);
  case Kind::BlockPtr:
    if (attr == "dtype" || attr == "type") return c.dtype(base.o->element.pointer());
    return attr == "advance" || attr == "load" || attr == "store"
               ? c.list(Kind::Method, {base, language("tl." + std::string(attr))})
               : Value{};
  case Kind::Instance:
    if (const Value *field = fieldOf(base, attr)) return *field;
    if (Value *v = base.o->cls->members.find(attr))
      return v->kind == Kind::Function ? c.list(Kind::Method, {base, *v}) : *v;
    return {};
  case Kind::Class: return classAttr(base, attr);
  case Kind::Function:
    if (attr == "fn" || attr == "value") return base;
    if (attr == "__name__") return c.str(base.o->text);
    return c.frame->kernel ? Value{} : c.opaque("'" + std::string(attr) + "' of a function");
  case Kind::Tuple:
    if (const Value *field = fieldOf(base, attr)) return *field;
    if (attr == "type" || attr == "value") return base;
    return methodOf(base, "tuple.", attr);
  case Kind::List: return methodOf(base, "list.", attr);
  case Kind::Dict: return methodOf(base, "dict.", attr);
  case Kind::Str: return attr == "value" ? base : methodOf(base, "str.", attr);
  case Kind::Int:
  case Kind::Bool:
  case Kind::Float:
    if (attr == "value") return base;
    if (attr == "type") {
      std::optional<Scalar> t = s.typeOfNumber(base);
      return t ? c.dtype(*t) : Value{};
    }
    return methodOf(base, "number.", attr);
  case Kind::None: return attr == "value" ? base : Value{};
  case Kind::Builtin: return builtinAttr(base, attr);
  default: return {};
  }
}

} // namespace neso::triton
