// triton.language.extra.libdevice: each call becomes tt.extern_elementwise with the symbol that CUDA's library has for
// the arguments' types.
#include "base/diagnostics/triton.h"
#include "frontend/triton/lang.h"

#include <deque>
#include <map>

namespace neso::triton {
namespace {

struct Row {
  const char *name;
  int arguments;
  const char *variants;
};
constexpr Row kRows[] = {
#define NESO_LIBDEVICE(name, arguments, variants) {#name, arguments, variants},
#include "ir/tile/libdevice.def"
#undef NESO_LIBDEVICE
};

DT typeOf(char code) {
  switch (code) {
  case 'f': return DT::F32;
  case 'd': return DT::F64;
  case 'i': return DT::I32;
  case 'l': return DT::I64;
  case 'u': return DT::U32;
  case 'U': return DT::U64;
  case 'h': return DT::F16;
  case 's': return DT::I16;
  default: return DT::I1;
  }
}

Value external(Evaluator &e, std::vector<Value> args, const std::string &symbol, Scalar result, const std::string &lib,
               const std::string &path, bool pure) {
  for (size_t pass = 0; pass < 2; ++pass)
    for (size_t i = 1; i < args.size(); ++i)
      if (!e.s.broadcast(args[0], args[i])) return {};
  std::vector<mlir::Value> operands;
  for (const Value &v : args) operands.push_back(v.handle);
  Type t = args.empty() ? Type{result, {}} : args[0].type->with(result);
  return e.s.result(e.s.op("tt.extern_elementwise", {e.s.irType(t)}, operands,
                           {e.s.strAttr("libname", lib), e.s.strAttr("libpath", path), e.s.strAttr("symbol", symbol),
                            e.s.boolAttr("pure", pure)}),
                    t);
}

Value callLibrary(Evaluator &e, const Builtin &self, Args &a) {
  std::string_view name = shortName(self);
  const Row *row = nullptr;
  for (const Row &r : kRows)
    if (name == r.name) row = &r;
  std::vector<Value> args = a[0].items();
  if (args.size() != static_cast<size_t>(row->arguments))
    return e.c.fail(diag::TrLibdeviceArguments, name, row->arguments, args.size());
  std::string have;
  for (Value &v : args) {
    v = e.s.toTensor(v);
    if (!v) return v;
    have += (have.empty() ? "" : ", ") + v.type->element.str();
  }
  std::string_view variants = row->variants;
  bool predicate = variants.starts_with("!");
  if (predicate) variants.remove_prefix(1);
  // Functions like mulhi differ between signed and unsigned integers; others are there for one of them, and serve the other of that width.
  for (const bool exact : {true, false})
    for (std::string_view rest = variants; !rest.empty();) {
      size_t comma = rest.find(',');
      std::string_view v = rest.substr(0, comma);
      rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 2);
      size_t arrow = v.find('>');
      bool match = arrow == args.size();
      for (size_t i = 0; i < args.size() && match; ++i) {
        Scalar want = scalar(typeOf(v[i])), is = args[i].type->element;
        match = is == want || (!exact && is.isInt() && want.isInt() && is.bits() == want.bits());
      }
      if (!match) continue;
      Value r = external(e, args, std::string(v.substr(arrow + 3)), scalar(typeOf(v[arrow + 1])), "", "", true);
      return predicate && r ? e.s.cast(r, scalar(DT::I1)) : r;
    }
  return e.c.fail(diag::TrLibdeviceType, name, have);
}

/// extern_elementwise(lib_name, lib_path, args, {(types): (symbol, result type)}, is_pure)
Value externElementwise(Evaluator &e, const Builtin &, Args &a) {
  std::optional<std::string> lib = strArg(e, a[0], "extern_elementwise", "lib_name"),
                             path = strArg(e, a[1], "extern_elementwise", "lib_path");
  std::optional<bool> pure = boolArg(e, a[4], "extern_elementwise", "is_pure");
  if (!lib || !path || !pure) return {};
  if (!a[2].isSequence() || a[3].kind != Kind::Dict)
    return e.c.fail(diag::TrNotList, "args", "extern_elementwise", typeName(a[2]));
  std::vector<Value> args = a[2].items(), types;
  std::string have;
  for (Value &v : args) {
    v = e.s.toTensor(v);
    if (!v) return v;
    types.push_back(e.c.dtype(v.type->element));
    have += (have.empty() ? "" : ", ") + v.type->element.str();
  }
  Value key = e.c.tuple(types);
  for (size_t i = 0; i + 1 < a[3].items().size(); i += 2) {
    if (!equals(a[3].items()[i], key)) continue;
    const Value &hit = a[3].items()[i + 1];
    if (!hit.isSequence() || hit.items().size() != 2 || hit.items()[0].kind != Kind::Str ||
        hit.items()[1].kind != Kind::DType)
      break;
    return external(e, args, hit.items()[0].str(), hit.items()[1].type->element, *lib, *path, *pure);
  }
  return e.c.fail(diag::TrLibdeviceType, "extern_elementwise", have);
}

} // namespace

const std::vector<Builtin> &libdeviceFunctions() {
  static const std::vector<Builtin> table = [] {
    static std::deque<std::string> names;
    std::vector<Builtin> t;
    for (const Row &r : kRows) {
      names.push_back(std::string("tl.libdevice.") + r.name);
      t.push_back({names.back().c_str(), "*args, _builder=None", callLibrary});
    }
    t.push_back(
        {"tl.extern_elementwise", "lib_name, lib_path, args, arg_type_symbol_dict, is_pure", externElementwise});
    return t;
  }();
  return table;
}

} // namespace neso::triton
