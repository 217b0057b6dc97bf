// Python's own functions and methods on compile-time values, `math`, and what `triton` itself offers to module-level
// code.
#include "base/diagnostics/triton.h"
#include "frontend/triton/lang.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>

namespace neso::triton {
namespace {

Value opaqueOr(Evaluator &e, const Value &v, const char *what) {
  if (v.kind == Kind::Opaque) return e.c.frame->kernel ? e.c.fail(diag::TrOpaque, v.o->text) : v;
  return e.c.fail(diag::TrBadArgument, what, typeName(v));
}

Value len(Evaluator &e, const Builtin &, Args &a) {
  switch (a[0].kind) {
  case Kind::Tuple:
  case Kind::List: return Value::integer(static_cast<__int128>(a[0].items().size()));
  case Kind::Dict: return Value::integer(static_cast<__int128>(a[0].items().size() / 2));
  case Kind::Str: return Value::integer(static_cast<__int128>(a[0].str().size()));
  default: return opaqueOr(e, a[0], "len");
  }
}

Value toInt(Evaluator &e, const Builtin &, Args &a) {
  if (a[0].isIntLike()) return Value::integer(a[0].i);
  if (a[0].kind == Kind::Float && std::isfinite(a[0].f) && std::fabs(a[0].f) < 1e30)
    return Value::integer(static_cast<__int128>(a[0].f));
  if (a[0].kind == Kind::Str) {
    char *end = nullptr;
    int base = a[1].isIntLike() ? static_cast<int>(a[1].i) : 10;
    std::string text = a[0].str();
    const size_t sign = text.starts_with("-") || text.starts_with("+") ? 1 : 0;
    // Base 0 goes by the prefix. C's function knows that of 16, and takes a leading 0 for 8's.
    const char second = text.size() > sign + 2 && text[sign] == '0' ? static_cast<char>(std::tolower(text[sign + 1])) : '\0';
    const int said = second == 'x' ? 16 : second == 'o' ? 8 : second == 'b' ? 2 : 0;
    if (base == 0) base = said ? said : text.find_first_not_of('0', sign) == std::string::npos || text[sign] != '0' ? 10 : 1;
    if (base == said && base != 16 && std::isdigit(static_cast<unsigned char>(text[sign + 2]))) text.erase(sign, 2);
    errno = 0;
    const int64_t n = base < 2 || base > 36 ? 0 : std::strtoll(text.c_str(), &end, base);
    if (end && *end == '\0' && !text.empty() && errno == 0) return Value::integer(n);
  }
  return opaqueOr(e, a[0], "int");
}
Value toFloat(Evaluator &e, const Builtin &, Args &a) {
  if (a[0].isNumber()) return Value::real(a[0].number());
  if (a[0].kind == Kind::Str) {
    char *end = nullptr;
    double d = std::strtod(a[0].str().c_str(), &end);
    if (end && *end == '\0' && !a[0].str().empty()) return Value::real(d);
  }
  return opaqueOr(e, a[0], "float");
}
Value toBool(Evaluator &e, const Builtin &, Args &a) {
  return a[0].isRuntime() || a[0].kind == Kind::Opaque ? opaqueOr(e, a[0], "bool") : Value::boolean(truthy(a[0]));
}
/// bin, oct and hex: "-0b101", "0o17", "0xff". `len(bin(n)) - 3` is how constexpr functions often take a logarithm.
Value digits(Evaluator &e, const Builtin &b, Args &a) {
  std::string_view n = shortName(b);
  if (!a[0].isIntLike()) return opaqueOr(e, a[0], std::string(n).c_str());
  const int bits = n == "bin" ? 1 : n == "oct" ? 3 : 4;
  unsigned __int128 left = a[0].i < 0 ? -static_cast<unsigned __int128>(a[0].i) : static_cast<unsigned __int128>(a[0].i);
  std::string text;
  do text.insert(text.begin(), "0123456789abcdef"[static_cast<int>(left & ((1u << bits) - 1))]);
  while (left >>= bits);
  return e.c.str((a[0].i < 0 ? "-0" : "0") + std::string(bits == 1 ? "b" : bits == 3 ? "o" : "x") + text);
}
Value toString(Evaluator &e, const Builtin &b, Args &a) {
  if (a[0].isRuntime() || a[0].kind == Kind::Opaque) return opaqueOr(e, a[0], "str");
  return e.c.str(shortName(b) == "repr" ? repr(a[0]) : toStr(a[0]));
}

Value sequence(Evaluator &e, const Builtin &b, Args &a) {
  std::vector<Value> items;
  if (!a[0].isNone()) {
    if (a[0].kind == Kind::Opaque) return opaqueOr(e, a[0], "list");
    std::optional<std::vector<Value>> all = e.iterate(a[0]);
    if (!all) return {};
    items = std::move(*all);
  }
  std::string_view n = shortName(b);
  if (n == "reversed") std::reverse(items.begin(), items.end());
  if (n == "sorted") {
    for (const Value &v : items)
      if (!v.isNumber() && v.kind != Kind::Str) return opaqueOr(e, v, "sorted");
    std::sort(items.begin(), items.end(), [](const Value &x, const Value &y) {
      return x.kind == Kind::Str ? x.str() < y.str() : x.number() < y.number();
    });
  }
  return e.c.list(n == "tuple" || e.c.frame->kernel ? Kind::Tuple : Kind::List, std::move(items));
}

Value dict(Evaluator &e, const Builtin &, Args &a) {
  std::vector<Value> items;
  if (!a[0].isNone()) {
    if (a[0].kind == Kind::Opaque) return a[0];
    if (a[0].kind == Kind::Dict)
      items = a[0].items();
    else {
      std::optional<std::vector<Value>> all = e.iterate(a[0]);
      if (!all) return {};
      for (const Value &pair : *all) {
        if (!pair.isSequence() || pair.items().size() != 2)
          return e.c.fail(diag::TrBadArgument, "dict", typeName(pair));
        items.insert(items.end(), pair.items().begin(), pair.items().end());
      }
    }
  }
  items.insert(items.end(), a[1].items().begin(), a[1].items().end());
  return e.c.list(Kind::Dict, std::move(items));
}

Value minMax(Evaluator &e, const Builtin &b, Args &a) {
  bool isMax = shortName(b) == "max";
  std::vector<Value> items = a[0].items();
  if (items.size() == 1 && items[0].isSequence()) items = items[0].items();
  if (items.empty()) return e.c.fail(diag::TrMissingArgument, shortName(b), "arg1");
  Value best;
  bool runtime = std::any_of(items.begin(), items.end(), [](const Value &v) { return v.isTensor(); });
  for (const Value &v : items) {
    if (!v.isNumber() && !v.isTensor()) return opaqueOr(e, v, isMax ? "max" : "min");
    if (!best)
      best = v;
    else if (runtime)
      best = e.s.minMax(isMax, best, v, false);
    else if (isMax ? v.number() > best.number() : v.number() < best.number())
      best = v;
    if (e.c.error) return {};
  }
  return best;
}

Value sum(Evaluator &e, const Builtin &, Args &a) {
  std::optional<std::vector<Value>> all = e.iterate(a[0]);
  Value total = a[1];
  if (!all) return {};
  for (const Value &v : *all) {
    total = e.binary(OpKind::Add, total, v);
    if (!total) return total;
  }
  return total;
}

Value absolute(Evaluator &e, const Builtin &, Args &a) {
  if (a[0].isIntLike()) return Value::integer(a[0].i < 0 ? -a[0].i : a[0].i);
  if (a[0].kind == Kind::Float) return Value::real(std::fabs(a[0].f));
  if (a[0].isTensor()) return e.call(e.language("tl.abs"), {a[0]});
  return opaqueOr(e, a[0], "abs");
}

bool isInstance(const Value &v, const Value &cls) {
  if (cls.kind == Kind::Tuple || cls.kind == Kind::List)
    return std::any_of(cls.items().begin(), cls.items().end(), [&](const Value &c) { return isInstance(v, c); });
  if (cls.kind == Kind::Class) return v.o && v.o->cls == cls.o;
  if (cls.kind != Kind::Builtin) return false;
  std::string_view n = static_cast<const Builtin *>(cls.data)->name;
  if (n == "tl.tensor") return v.isTensor();
  if (n == "tl.constexpr") return !v.isRuntime() && v.kind != Kind::Tuple;
  if (n == "tl.dtype") return v.kind == Kind::DType && !v.type->isBlock();
  if (n == "tl.block_type") return v.kind == Kind::DType && v.type->isBlock();
  if (n == "tl.pointer_type") return v.kind == Kind::DType && v.type->element.isPtr();
  if (n == "tl.tuple" || n == "builtins.tuple") return v.kind == Kind::Tuple;
  if (n == "tl.tensor_descriptor") return v.kind == Kind::Descriptor;
  if (n == "builtins.int") return v.isIntLike();
  if (n == "builtins.bool") return v.kind == Kind::Bool;
  if (n == "builtins.float") return v.kind == Kind::Float;
  if (n == "builtins.str") return v.kind == Kind::Str;
  if (n == "builtins.list") return v.kind == Kind::List;
  if (n == "builtins.dict") return v.kind == Kind::Dict;
  return false;
}
Value isinstance(Evaluator &e, const Builtin &, Args &a) {
  if (a[0].kind == Kind::Opaque || a[1].kind == Kind::Opaque)
    return e.c.frame->kernel ? opaqueOr(e, a[0].kind == Kind::Opaque ? a[0] : a[1], "isinstance")
                             : e.c.opaque("isinstance of an unknown object");
  return Value::boolean(isInstance(a[0], a[1]));
}

Value getattr(Evaluator &e, const Builtin &b, Args &a) {
  std::optional<std::string> name = strArg(e, a[1], shortName(b), "name");
  if (!name) return {};
  bool has = shortName(b) == "hasattr";
  Value v = e.attribute(a[0], e.c.internText(*name));
  if (v && v.kind == Kind::Opaque && a[0].kind == Kind::Namespace) return v; // unknown, whether it is there
  if (v) return has ? Value::boolean(true) : v;
  if (has || a[2].kind != Kind::Str || a[2].str() != "<absent>") {
    e.c.error.reset();
    return has ? Value::boolean(false) : a[2];
  }
  return v;
}

Value enumerate(Evaluator &e, const Builtin &, Args &a) {
  std::optional<std::vector<Value>> all = e.iterate(a[0]);
  if (!all) return {};
  std::vector<Value> out;
  for (size_t i = 0; i < all->size(); ++i)
    out.push_back(e.c.tuple({Value::integer(static_cast<__int128>(i) + a[1].i), (*all)[i]}));
  return e.c.tuple(std::move(out));
}
Value zip(Evaluator &e, const Builtin &, Args &a) {
  std::vector<std::vector<Value>> columns;
  size_t n = SIZE_MAX;
  for (const Value &v : a[0].items()) {
    std::optional<std::vector<Value>> all = e.iterate(v);
    if (!all) return {};
    n = std::min(n, all->size());
    columns.push_back(std::move(*all));
  }
  std::vector<Value> out;
  for (size_t i = 0; i < (columns.empty() ? 0 : n); ++i) {
    std::vector<Value> row;
    for (std::vector<Value> &c : columns) row.push_back(c[i]);
    out.push_back(e.c.tuple(std::move(row)));
  }
  return e.c.tuple(std::move(out));
}
Value allAny(Evaluator &e, const Builtin &b, Args &a) {
  std::optional<std::vector<Value>> all = e.iterate(a[0]);
  if (!all) return {};
  bool isAll = shortName(b) == "all";
  for (const Value &v : *all)
    if (truthy(v) != isAll) return Value::boolean(!isAll);
  return Value::boolean(isAll);
}
Value mapFilter(Evaluator &e, const Builtin &b, Args &a) {
  std::optional<std::vector<Value>> all = e.iterate(a[1]);
  if (!all) return {};
  bool isMap = shortName(b) == "map";
  std::vector<Value> out;
  for (const Value &v : *all) {
    Value r = a[0].isNone() ? v : e.call(a[0], {v});
    if (!r) return r;
    if (r.kind == Kind::Opaque) return r;
    if (isMap)
      out.push_back(r);
    else if (truthy(r))
      out.push_back(v);
  }
  return e.c.tuple(std::move(out));
}
Value round(Evaluator &e, const Builtin &, Args &a) {
  if (a[0].isIntLike()) return a[0];
  if (a[0].kind != Kind::Float) return opaqueOr(e, a[0], "round");
  if (a[1].isNone()) return Value::integer(static_cast<__int128>(std::nearbyint(a[0].f)));
  double scale = std::pow(10.0, a[1].number());
  return Value::real(std::nearbyint(a[0].f * scale) / scale);
}
Value power(Evaluator &e, const Builtin &, Args &a) { return e.binary(OpKind::Pow, a[0], a[1]); }
Value divmod(Evaluator &e, const Builtin &, Args &a) {
  Value q = e.binary(OpKind::FloorDiv, a[0], a[1]), r = e.binary(OpKind::Mod, a[0], a[1]);
  return q && r ? e.c.tuple({q, r}) : Value{};
}
Value print(Evaluator &, const Builtin &, Args &) { return Value::none(); }

/// The environment counts as empty, so that what is compiled depends on its sources alone.
Value environment(Evaluator &, const Builtin &, Args &a) { return a[1]; }

/// packaging.version.parse and Version: the numbers of a release as a tuple, which compares as versions do.
Value version(Evaluator &e, const Builtin &, Args &a) {
  std::optional<std::string> text = strArg(e, a[0], "version", "version");
  if (!text) return {};
  std::vector<Value> parts;
  for (size_t i = 0; i < text->size() && std::isdigit(static_cast<unsigned char>((*text)[i]));) {
    int n = 0;
    for (; i < text->size() && std::isdigit(static_cast<unsigned char>((*text)[i])) && n < 100000; ++i)
      n = n * 10 + ((*text)[i] - '0');
    parts.push_back(Value::integer(n));
    if (i < text->size() && (*text)[i] == '.')
      ++i;
    else
      break;
  }
  // 3.2 and 3.2.0 are one version.
  while (parts.size() < 3) parts.push_back(Value::integer(0));
  return e.c.tuple(std::move(parts));
}
Value findSpec(Evaluator &e, const Builtin &, Args &a) {
  std::optional<std::string> name = strArg(e, a[0], "find_spec", "name");
  return name ? e.moduleSpec(*name) : Value{};
}
Value moduleFromSpec(Evaluator &e, const Builtin &, Args &a) { return e.attribute(a[0], "module"); }
Value importNamed(Evaluator &e, const Builtin &, Args &a) {
  std::optional<std::string> name = strArg(e, a[0], "import_module", "name");
  return name ? e.importModule(*name) : Value{};
}
Value typeOf(Evaluator &e, const Builtin &, Args &a) { return e.c.opaque("the type of " + repr(a[0])); }

// ---- math --------------------------------------------------------------------------------------------------------------------------

Value math(Evaluator &e, const Builtin &b, Args &a) {
  std::string_view n = shortName(b);
  std::vector<Value> args = a[0].items();
  for (const Value &v : args)
    if (!v.isNumber()) return opaqueOr(e, v, b.name);
  if (args.empty()) return e.c.fail(diag::TrMissingArgument, n, "x");
  double x = args[0].number(), y = args.size() > 1 ? args[1].number() : 0;
  auto integer = [&](double d) -> Value {
    return std::isfinite(d) ? Value::integer(static_cast<__int128>(d))
                            : e.c.fail(diag::TrBadArgument, n, repr(args[0]));
  };
  if (n == "ceil") return args[0].isIntLike() ? args[0] : integer(std::ceil(x));
  if (n == "floor") return args[0].isIntLike() ? args[0] : integer(std::floor(x));
  if (n == "trunc") return args[0].isIntLike() ? args[0] : integer(std::trunc(x));
  if (n == "log" || n == "log2" || n == "log10" || n == "sqrt") {
    if (x < 0 || (x == 0 && n != "sqrt")) return e.c.fail(diag::TrBadArgument, n, repr(args[0]));
    if (n == "log2") return Value::real(std::log2(x));
    if (n == "log10") return Value::real(std::log10(x));
    if (n == "sqrt") return Value::real(std::sqrt(x));
    return Value::real(args.size() > 1 ? std::log(x) / std::log(y) : std::log(x));
  }
  if (n == "exp") return Value::real(std::exp(x));
  if (n == "pow") return Value::real(std::pow(x, y));
  if (n == "sin") return Value::real(std::sin(x));
  if (n == "cos") return Value::real(std::cos(x));
  if (n == "tan") return Value::real(std::tan(x));
  if (n == "tanh") return Value::real(std::tanh(x));
  if (n == "fabs") return Value::real(std::fabs(x));
  if (n == "isnan") return Value::boolean(std::isnan(x));
  if (n == "isinf") return Value::boolean(std::isinf(x));
  if (n == "copysign") return Value::real(std::copysign(x, y));
  __int128 r = args[0].i;
  if (n == "prod") return args[0];
  for (size_t i = 1; i < args.size(); ++i) {
    __int128 p = r < 0 ? -r : r, q = args[i].i < 0 ? -args[i].i : args[i].i, g = p, h = q;
    while (h) std::swap(g %= h, h);
    r = n == "gcd" ? g : (g == 0 ? 0 : p / g * q);
  }
  return Value::integer(r < 0 ? -r : r);
}

// ---- triton ------------------------------------------------------------------------------------------------------------------------

Value tritonCdiv(Evaluator &e, const Builtin &, Args &a) {
  if (!a[0].isIntLike() || !a[1].isIntLike()) {
    if (a[0].isTensor() || a[1].isTensor()) return e.call(e.language("tl.cdiv"), {a[0], a[1]});
    return opaqueOr(e, a[0].isIntLike() ? a[1] : a[0], "cdiv");
  }
  return e.binary(OpKind::FloorDiv, Value::integer(a[0].i + a[1].i - 1), a[1]);
}
Value nextPower(Evaluator &e, const Builtin &, Args &a) {
  if (!a[0].isIntLike()) return opaqueOr(e, a[0], "next_power_of_2");
  __int128 p = 1;
  while (p < a[0].i) p *= 2;
  return Value::integer(p);
}
/// torch.finfo and torch.iinfo of the types that kernels use.
Value typeLimits(Evaluator &e, const Builtin &b, Args &a) {
  struct Limits {
    std::string_view name;
    int bits;
    double max, eps, tiny;
  };
  static constexpr Limits kFloats[] = {
      {"float16", 16, 65504, 0x1p-10, 0x1p-14},
      {"half", 16, 65504, 0x1p-10, 0x1p-14},
      {"bfloat16", 16, 0x1.fep127, 0x1p-7, 0x1p-126},
      {"float32", 32, 0x1.fffffep127, 0x1p-23, 0x1p-126},
      {"float", 32, 0x1.fffffep127, 0x1p-23, 0x1p-126},
      {"float64", 64, 0x1.fffffffffffffp1023, 0x1p-52, 0x1p-1022},
      {"double", 64, 0x1.fffffffffffffp1023, 0x1p-52, 0x1p-1022},
      {"float8_e4m3fn", 8, 448, 0x1p-3, 0x1p-6},
      {"float8_e5m2", 8, 57344, 0x1p-2, 0x1p-14},
  };
  static constexpr std::pair<std::string_view, int> kInts[] = {
      {"int8", 8},   {"int16", 16}, {"short", 16}, {"int32", 32},  {"int", 32},
      {"int64", 64}, {"long", 64},  {"uint8", 8},  {"uint16", 16}, {"uint32", 32}};
  std::string name = a[0].kind == Kind::Namespace ? static_cast<const char *>(a[0].data) : "";
  bool wantsFloat = shortName(b) == "finfo";
  if (!name.starts_with("torch.")) return e.c.opaque("the limits of a type");
  name = name.substr(6);
  Object *o;
  Value v = e.c.object(Kind::Tuple, &o);
  o->text = std::string(shortName(b));
  o->namedTuple = true;
  for (const Limits &l : kFloats)
    if (wantsFloat && l.name == name) {
      o->fields = {"bits", "max", "min", "eps", "tiny", "smallest_normal"};
      o->items = {Value::integer(l.bits), Value::real(l.max),  Value::real(-l.max),
                  Value::real(l.eps),     Value::real(l.tiny), Value::real(l.tiny)};
      return v;
    }
  for (const std::pair<std::string_view, int> &l : kInts)
    if (!wantsFloat && l.first == name) {
      bool isSigned = !name.starts_with("u");
      int64_t max = static_cast<int64_t>((uint64_t{1} << (isSigned ? l.second - 1 : l.second)) - 1);
      o->fields = {"bits", "max", "min"};
      o->items = {Value::integer(l.second), Value::integer(max), Value::integer(isSigned ? -max - 1 : 0)};
      return v;
    }
  return e.c.opaque("the limits of torch." + name);
}
Value config(Evaluator &e, const Builtin &, Args &a) {
  Object *o;
  Value v = e.c.object(Kind::Tuple, &o);
  o->text = "Config";
  o->namedTuple = true;
  o->items = a;
  o->fields = {"kwargs", "num_warps", "num_stages", "num_ctas", "maxnreg", "pre_hook"};
  return v;
}
/// Decorators are read where functions are defined; a call of their value gives the function back.
Value decorator(Evaluator &, const Builtin &b, Args &a) {
  if (a[0].isSequence() && a[0].items().size() == 1 && a[0].items()[0].kind == Kind::Function) {
    Value fn = a[0].items()[0];
    if (shortName(b) == "jit") fn.o->jit = true;
    if (shortName(b) == "constexpr_function") fn.o->constexprFunction = true;
    return fn;
  }
  // What Triton gives is called at compile time as it is.
  if (a[0].isSequence() && a[0].items().size() == 1 && a[0].items()[0].kind == Kind::Builtin) return a[0].items()[0];
  Value v = Value::make(Kind::Builtin);
  v.data = &b;
  return v;
}

// ---- methods -----------------------------------------------------------------------------------------------------------------------

/// x.__lshift__(4)
Value operatorMethod(Evaluator &e, const Builtin &b, Args &a) {
  int op = 0;
  while (shortName(b) != methodOfOperator(static_cast<OpKind>(op))) ++op;
  return e.binary(static_cast<OpKind>(op), a[0], a[1]);
}

Value strMethod(Evaluator &e, const Builtin &b, Args &a) {
  std::string_view n = shortName(b);
  const std::string &s = a[0].str();
  std::vector<Value> args = a[1].items();
  auto text = [&](size_t i) { return i < args.size() && args[i].kind == Kind::Str ? args[i].str() : std::string(); };
  std::string out = s;
  if (n == "lower" || n == "upper") {
    for (char &ch : out)
      ch = static_cast<char>(n == "lower" ? std::tolower(static_cast<unsigned char>(ch))
                                          : std::toupper(static_cast<unsigned char>(ch)));
    return e.c.str(out);
  }
  if (n == "startswith") return Value::boolean(s.starts_with(text(0)));
  if (n == "endswith") return Value::boolean(s.ends_with(text(0)));
  if (n == "strip") {
    size_t from = s.find_first_not_of(" \t\r\n"), to = s.find_last_not_of(" \t\r\n");
    return e.c.str(from == std::string::npos ? "" : s.substr(from, to - from + 1));
  }
  if (n == "replace") {
    std::string from = text(0), to = text(1);
    if (from.empty()) return a[0];
    for (size_t at = out.find(from); at != std::string::npos; at = out.find(from, at + to.size()))
      out.replace(at, from.size(), to);
    return e.c.str(out);
  }
  if (n == "split") {
    std::vector<Value> items;
    std::string sep = args.empty() ? " " : text(0);
    if (sep.empty()) return e.c.fail(diag::TrBadArgument, "split", "empty separator");
    size_t from = 0;
    for (size_t at = s.find(sep); at != std::string::npos; at = s.find(sep, from)) {
      items.push_back(e.c.str(s.substr(from, at - from)));
      from = at + sep.size();
    }
    items.push_back(e.c.str(s.substr(from)));
    return e.c.list(Kind::List, std::move(items));
  }
  if (n == "join") {
    std::optional<std::vector<Value>> all = args.empty() ? std::nullopt : e.iterate(args[0]);
    if (!all) return {};
    out.clear();
    for (size_t i = 0; i < all->size(); ++i) out += (i ? s : "") + toStr((*all)[i]);
    return e.c.str(out);
  }
  // format: plain {}, {0} and {name} fields.
  out.clear();
  size_t next = 0;
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] != '{' || (i + 1 < s.size() && s[i + 1] == '{')) {
      out += s[i];
      if (i + 1 < s.size() && (s[i] == '{' || s[i] == '}') && s[i + 1] == s[i]) ++i;
      continue;
    }
    size_t close = s.find('}', i);
    if (close == std::string::npos) break;
    std::string key = s.substr(i + 1, close - i - 1);
    bool isName = !key.empty() && !std::isdigit(static_cast<unsigned char>(key[0]));
    size_t index = key.empty() ? next++ : static_cast<size_t>(std::atoi(key.c_str()));
    if (isName) {
      for (size_t k = 0; a.size() > 2 && k + 1 < a[2].items().size(); k += 2)
        if (toStr(a[2].items()[k]) == key) out += toStr(a[2].items()[k + 1]);
    } else if (index < args.size()) {
      out += toStr(args[index]);
    }
    i = close;
  }
  return e.c.str(out);
}

Value listMethod(Evaluator &e, const Builtin &b, Args &a) {
  std::string_view n = shortName(b);
  std::vector<Value> args = a[1].items();
  std::vector<Value> &items = a[0].items();
  if (n == "append" && args.size() == 1) {
    items.push_back(args[0]);
    return Value::none();
  }
  if (n == "extend" && args.size() == 1) {
    std::optional<std::vector<Value>> all = e.iterate(args[0]);
    if (!all) return {};
    items.insert(items.end(), all->begin(), all->end());
    return Value::none();
  }
  if (n == "copy") return e.c.list(a[0].kind, items);
  if ((n == "index" || n == "count") && args.size() == 1) {
    __int128 count = 0;
    for (size_t i = 0; i < items.size(); ++i)
      if (equals(items[i], args[0])) {
        if (n == "index") return Value::integer(static_cast<__int128>(i));
        ++count;
      }
    return n == "count" ? Value::integer(count) : e.c.fail(diag::TrKey, repr(args[0]));
  }
  return e.c.fail(diag::TrBadArgument, b.name, "these arguments");
}

Value dictMethod(Evaluator &e, const Builtin &b, Args &a) {
  std::string_view n = shortName(b);
  std::vector<Value> args = a[1].items();
  std::vector<Value> &items = a[0].items();
  if (n == "get" || n == "pop") {
    for (size_t i = 0; i + 1 < items.size() && !args.empty(); i += 2)
      if (equals(items[i], args[0])) {
        Value v = items[i + 1];
        if (n == "pop")
          items.erase(items.begin() + static_cast<std::ptrdiff_t>(i),
                      items.begin() + static_cast<std::ptrdiff_t>(i + 2));
        return v;
      }
    if (args.size() > 1) return args[1];
    return n == "get" ? Value::none() : e.c.fail(diag::TrKey, args.empty() ? "" : repr(args[0]));
  }
  if (n == "update") {
    if (args.size() == 1 && args[0].kind == Kind::Dict) {
      Value merged = e.binary(OpKind::BitOr, a[0], args[0]);
      if (merged) items = merged.items();
    }
    return Value::none();
  }
  if (n == "copy") return e.c.list(Kind::Dict, items);
  std::vector<Value> out;
  for (size_t i = 0; i + 1 < items.size(); i += 2)
    out.push_back(n == "keys" ? items[i] : n == "values" ? items[i + 1] : e.c.tuple({items[i], items[i + 1]}));
  return e.c.list(Kind::List, std::move(out));
}

Value bitLength(Evaluator &, const Builtin &, Args &a) {
  __int128 v = a[0].i < 0 ? -a[0].i : a[0].i, n = 0;
  for (; v; v >>= 1) ++n;
  return Value::integer(n);
}

} // namespace

const std::vector<Builtin> kPythonFunctions = {
    {"builtins.len", "obj", len},
    {"builtins.int", "x=0, base=10", toInt},
    {"builtins.float", "x=0", toFloat},
    {"builtins.bool", "x=False", toBool},
    {"builtins.str", "x=''", toString},
    {"builtins.repr", "x", toString},
    {"builtins.bin", "x", digits},
    {"builtins.oct", "x", digits},
    {"builtins.hex", "x", digits},
    {"builtins.list", "x=None", sequence},
    {"builtins.tuple", "x=None", sequence},
    {"builtins.set", "x=None", sequence},
    {"builtins.sorted", "x, key=None, reverse=False", sequence},
    {"builtins.reversed", "x", sequence},
    {"builtins.dict", "x=None, **kwargs", dict},
    {"builtins.min", "*args, propagate_nan=None, key=None, default=None", minMax},
    {"builtins.max", "*args, propagate_nan=None, key=None, default=None", minMax},
    {"builtins.sum", "x, start=0", sum},
    {"builtins.abs", "x", absolute},
    {"builtins.isinstance", "obj, cls", isinstance},
    {"builtins.getattr", "obj, name, default='<absent>'", getattr},
    {"builtins.hasattr", "obj, name", getattr},
    {"builtins.enumerate", "x, start=0", enumerate},
    {"builtins.zip", "*args", zip},
    {"builtins.all", "x", allAny},
    {"builtins.any", "x", allAny},
    {"builtins.map", "fn, x", mapFilter},
    {"builtins.filter", "fn, x", mapFilter},
    {"builtins.round", "x, digits=None", round},
    {"builtins.pow", "x, y", power},
    {"builtins.divmod", "x, y", divmod},
    {"builtins.print", "*args, **kwargs", print},
    {"builtins.type", "x", typeOf},
    {"math.ceil", "*args", math},
    {"math.floor", "*args", math},
    {"math.trunc", "*args", math},
    {"math.log", "*args", math},
    {"math.log2", "*args", math},
    {"math.log10", "*args", math},
    {"math.sqrt", "*args", math},
    {"math.exp", "*args", math},
    {"math.pow", "*args", math},
    {"math.sin", "*args", math},
    {"math.cos", "*args", math},
    {"math.tan", "*args", math},
    {"math.tanh", "*args", math},
    {"math.fabs", "*args", math},
    {"math.isnan", "*args", math},
    {"math.isinf", "*args", math},
    {"math.copysign", "*args", math},
    {"math.gcd", "*args", math},
    {"math.lcm", "*args", math},
    {"os.getenv", "key, default=None", environment},
    {"os.environ.get", "key, default=None", environment},
    {"importlib.util.find_spec", "name, package=None", findSpec},
    {"importlib.util.module_from_spec", "spec", moduleFromSpec},
    {"importlib.loader.exec_module", "module", print},
    {"importlib.import_module", "name, package=None", importNamed},
    {"packaging.version.parse", "version", version},
    {"packaging.version.Version", "version", version},
    {"torch.finfo", "type", typeLimits},
    {"torch.iinfo", "type", typeLimits},
    {"triton.cdiv", "x, y", tritonCdiv},
    {"triton.next_power_of_2", "n", nextPower},
    {"triton.Config", "kwargs, num_warps=4, num_stages=3, num_ctas=1, maxnreg=None, pre_hook=None, **rest", config},
    {"triton.jit", "*args, **kwargs", decorator},
    {"triton.autotune", "*args, **kwargs", decorator},
    {"triton.heuristics", "*args, **kwargs", decorator},
    {"triton.constexpr_function", "*args, **kwargs", decorator},
    {"triton.runtime.jit.constexpr_function", "*args, **kwargs", decorator},
    {"str.lower", "self, *args", strMethod},
    {"str.upper", "self, *args", strMethod},
    {"str.startswith", "self, *args", strMethod},
    {"str.endswith", "self, *args", strMethod},
    {"str.strip", "self, *args", strMethod},
    {"str.replace", "self, *args", strMethod},
    {"str.split", "self, *args", strMethod},
    {"str.join", "self, *args", strMethod},
    {"str.format", "self, *args, **kwargs", strMethod},
    {"list.append", "self, *args", listMethod},
    {"list.extend", "self, *args", listMethod},
    {"list.copy", "self, *args", listMethod},
    {"list.index", "self, *args", listMethod},
    {"list.count", "self, *args", listMethod},
    {"tuple.index", "self, *args", listMethod},
    {"tuple.count", "self, *args", listMethod},
    {"dict.get", "self, *args", dictMethod},
    {"dict.pop", "self, *args", dictMethod},
    {"dict.update", "self, *args", dictMethod},
    {"dict.copy", "self, *args", dictMethod},
    {"dict.keys", "self, *args", dictMethod},
    {"dict.values", "self, *args", dictMethod},
    {"dict.items", "self, *args", dictMethod},
    {"number.bit_length", "self", bitLength},
    {"tensor.__add__", "self, other", operatorMethod},
    {"tensor.__sub__", "self, other", operatorMethod},
    {"tensor.__mul__", "self, other", operatorMethod},
    {"tensor.__truediv__", "self, other", operatorMethod},
    {"tensor.__floordiv__", "self, other", operatorMethod},
    {"tensor.__mod__", "self, other", operatorMethod},
    {"tensor.__and__", "self, other", operatorMethod},
    {"tensor.__or__", "self, other", operatorMethod},
    {"tensor.__xor__", "self, other", operatorMethod},
    {"tensor.__lshift__", "self, other", operatorMethod},
    {"tensor.__rshift__", "self, other", operatorMethod},
    {"tensor.__eq__", "self, other", operatorMethod},
    {"tensor.__ne__", "self, other", operatorMethod},
    {"tensor.__lt__", "self, other", operatorMethod},
    {"tensor.__le__", "self, other", operatorMethod},
    {"tensor.__gt__", "self, other", operatorMethod},
    {"tensor.__ge__", "self, other", operatorMethod},
};

} // namespace neso::triton
