#include "frontend/triton/value.h"

#include <cmath>

namespace neso::triton {

std::string int128ToString(__int128 v) {
  if (v == 0) return "0";
  bool negative = v < 0;
  unsigned __int128 u = negative ? -static_cast<unsigned __int128>(v) : static_cast<unsigned __int128>(v);
  std::string out;
  for (; u; u /= 10) out.insert(out.begin(), static_cast<char>('0' + static_cast<int>(u % 10)));
  return negative ? "-" + out : out;
}

std::string typeName(const Value &v) {
  switch (v.kind) {
  case Kind::Invalid: return "error";
  case Kind::None: return "NoneType";
  case Kind::Bool: return "bool";
  case Kind::Int: return "int";
  case Kind::Float: return "float";
  case Kind::Str: return "str";
  case Kind::Tuple: return "tuple";
  case Kind::List: return "list";
  case Kind::Dict: return "dict";
  case Kind::DType: return "dtype";
  case Kind::Function: return v.o->jit ? "JITFunction" : "function";
  case Kind::Builtin: return "builtin";
  case Kind::Method: return "method";
  case Kind::Module:
  case Kind::Namespace: return "module";
  case Kind::Class: return "type";
  case Kind::Instance: return v.o->cls->text;
  case Kind::Slice: return "slice";
  case Kind::Range: return "range";
  case Kind::Opaque:
  case Kind::Import: return "object";
  case Kind::Tensor: return "tensor";
  case Kind::Descriptor: return "tensor_descriptor";
  case Kind::BlockPtr: return "block pointer";
  }
  return "object";
}

static std::string floatRepr(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  std::string s = fmt::format("{}", d);
  if (s.find_first_of(".en") == std::string::npos) s += ".0";
  return s;
}

std::string repr(const Value &v) {
  auto list = [&](std::string open, std::string close) {
    std::string out = open;
    for (size_t i = 0; i < v.items().size(); ++i) out += (i ? ", " : "") + repr(v.items()[i]);
    if (v.kind == Kind::Tuple && v.items().size() == 1) out += ",";
    return out + close;
  };
  switch (v.kind) {
  case Kind::None: return "None";
  case Kind::Bool: return v.i ? "True" : "False";
  case Kind::Int: return int128ToString(v.i);
  case Kind::Float: return floatRepr(v.f);
  case Kind::Str: {
    std::string out = "'";
    for (char c : v.str()) {
      if (c == '\n')
        out += "\\n";
      else if (c == '\\' || c == '\'')
        out += std::string("\\") + c;
      else
        out += c;
    }
    return out + "'";
  }
  case Kind::Tuple: return list("(", ")");
  case Kind::List: return list("[", "]");
  case Kind::Dict: {
    std::string out = "{";
    for (size_t i = 0; i + 1 < v.items().size(); i += 2)
      out += (i ? ", " : "") + repr(v.items()[i]) + ": " + repr(v.items()[i + 1]);
    return out + "}";
  }
  case Kind::DType: return v.type->str();
  case Kind::Function: return "<function " + v.o->text + ">";
  case Kind::Class: return "<class " + v.o->text + ">";
  case Kind::Tensor: return v.type->str();
  case Kind::Descriptor: return "tensor_descriptor<" + Type{v.o->element, v.o->shape}.str() + ">";
  case Kind::Opaque: return v.o->text;
  case Kind::Namespace: return static_cast<const char *>(v.data);
  default: return "<" + typeName(v) + ">";
  }
}

std::string toStr(const Value &v) { return v.kind == Kind::Str ? v.str() : repr(v); }

bool equals(const Value &a, const Value &b) {
  if (a.isNumber() && b.isNumber()) {
    if (a.kind == Kind::Float || b.kind == Kind::Float) return a.number() == b.number();
    return a.i == b.i;
  }
  if (a.isSequence() && b.isSequence()) {
    if (a.items().size() != b.items().size()) return false;
    for (size_t i = 0; i < a.items().size(); ++i)
      if (!equals(a.items()[i], b.items()[i])) return false;
    return true;
  }
  if (a.kind != b.kind) return false;
  switch (a.kind) {
  case Kind::None: return true;
  case Kind::Str: return a.str() == b.str();
  case Kind::DType: return *a.type == *b.type;
  case Kind::Builtin: return a.data == b.data;
  case Kind::Namespace: return std::string_view(static_cast<const char *>(a.data)) == static_cast<const char *>(b.data);
  case Kind::Module: return a.data == b.data;
  case Kind::Tensor: return a.handle == b.handle;
  case Kind::Dict: {
    if (a.items().size() != b.items().size()) return false;
    for (size_t i = 0; i < a.items().size(); ++i)
      if (!equals(a.items()[i], b.items()[i])) return false;
    return true;
  }
  default: return a.o == b.o;
  }
}

bool truthy(const Value &v) {
  switch (v.kind) {
  case Kind::None: return false;
  case Kind::Bool:
  case Kind::Int: return v.i != 0;
  case Kind::Float: return v.f != 0;
  case Kind::Str: return !v.str().empty();
  case Kind::Tuple:
  case Kind::List:
  case Kind::Dict: return !v.items().empty();
  default: return true;
  }
}

} // namespace neso::triton
