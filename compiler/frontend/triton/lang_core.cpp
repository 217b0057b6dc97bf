// Creation, shapes, casts, arithmetic and math functions of triton.language.
#include "base/diagnostics/triton.h"
#include "frontend/triton/lang.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace neso::triton {

std::string_view shortName(const Builtin &b) {
  std::string_view n = b.name;
  return n.substr(n.rfind('.') + 1);
}

std::optional<int64_t> intArg(Evaluator &e, const Value &v, std::string_view fn, std::string_view what) {
  if (v.isIntLike()) return static_cast<int64_t>(v.i);
  if (v) e.c.fail(diag::TrNotConstexpr, what, fn, "int", typeName(v));
  return std::nullopt;
}
std::optional<bool> boolArg(Evaluator &e, const Value &v, std::string_view fn, std::string_view what) {
  if (v.isIntLike() || v.isNone()) return v.i != 0;
  if (v) e.c.fail(diag::TrNotConstexpr, what, fn, "bool", typeName(v));
  return std::nullopt;
}
std::optional<std::string> strArg(Evaluator &e, const Value &v, std::string_view fn, std::string_view what) {
  if (v.kind == Kind::Str) return v.str();
  if (v.isNone()) return std::string();
  if (v) e.c.fail(diag::TrNotConstexpr, what, fn, "str", typeName(v));
  return std::nullopt;
}
std::optional<Scalar> dtypeArg(Evaluator &e, const Value &v, std::string_view fn) {
  if (v.kind == Kind::DType) return v.type->element;
  if (v) e.c.fail(diag::TrNotDType, fn, typeName(v));
  return std::nullopt;
}
std::optional<std::vector<int64_t>> intsArg(Evaluator &e, const Value &v, std::string_view fn, std::string_view what) {
  if (v.isIntLike()) return std::vector<int64_t>{static_cast<int64_t>(v.i)};
  if (!v.isSequence()) {
    if (v) e.c.fail(diag::TrNotConstexpr, what, fn, "list of ints", typeName(v));
    return std::nullopt;
  }
  const std::vector<Value> *items = &v.items();
  if (items->size() == 1 && (*items)[0].isSequence()) items = &(*items)[0].items();
  std::vector<int64_t> out;
  for (const Value &i : *items) {
    if (!i.isIntLike()) {
      e.c.fail(diag::TrNotConstexpr, fmt::format("element {} of {}", out.size(), what), fn, "int", typeName(i));
      return std::nullopt;
    }
    out.push_back(static_cast<int64_t>(i.i));
  }
  return out;
}
Value tensorArg(Evaluator &e, const Value &v) { return e.s.toTensor(v); }
std::optional<int64_t> axisArg(Evaluator &e, const Value &v, int64_t rank, std::string_view fn) {
  std::optional<int64_t> axis = intArg(e, v, fn, "axis");
  if (!axis) return std::nullopt;
  if (*axis < -rank || *axis >= rank) {
    e.c.fail(diag::TrAxis, *axis, -rank, rank);
    return std::nullopt;
  }
  return *axis < 0 ? *axis + rank : *axis;
}
mlir::Value handleOr(const Value &v) { return v.isTensor() ? v.handle : mlir::Value(); }

const Builtin *findBuiltin(std::string_view name) {
  static const std::map<std::string_view, const Builtin *> table = [] {
    std::map<std::string_view, const Builtin *> t;
    for (const std::vector<Builtin> *rows :
         {&kCoreFunctions, &kMemoryFunctions, &kRegionFunctions, &kPythonFunctions, &libdeviceFunctions()})
      for (const Builtin &b : *rows) t[b.name] = &b;
    return t;
  }();
  std::map<std::string_view, const Builtin *>::const_iterator it = table.find(name);
  return it == table.end() ? nullptr : it->second;
}

namespace {

// ---- programming model and creation ------------------------------------------------------------------------------------------------

Value programId(Evaluator &e, const Builtin &b, Args &a) {
  std::optional<int64_t> axis = intArg(e, a[0], shortName(b), "axis");
  if (!axis) return {};
  if (*axis < 0 || *axis > 2) return e.c.fail(diag::TrProgramAxis, shortName(b), *axis);
  bool id = shortName(b) == "program_id";
  return e.s.result(e.s.op(id ? "tt.get_program_id" : "tt.get_num_programs", {e.c.builder.getI32Type()}, {},
                           {e.s.i32Attr("axis", *axis)}),
                    {scalar(DT::I32), {}});
}

Value arange(Evaluator &e, const Builtin &, Args &a) {
  if (!a[0].isIntLike() || !a[1].isIntLike())
    return e.c.fail(diag::TrArangeConstexpr, typeName(a[0].isIntLike() ? a[1] : a[0]));
  __int128 lo = a[0].i, hi = a[1].i, n = hi - lo;
  if (lo < -(static_cast<__int128>(1) << 31) || hi >= (static_cast<__int128>(1) << 31))
    return e.c.fail(diag::TrArangeRange, "arange must fit in int32");
  if (n <= 0) return e.c.fail(diag::TrArangeRange, "arange's end argument must be greater than the start argument");
  if ((n & (n - 1)) != 0)
    return e.c.fail(diag::TrArangeRange, fmt::format("arange's range must be a power of 2, got {}", int128ToString(n)));
  std::vector<int64_t> shape = {static_cast<int64_t>(n)};
  if (!e.s.checkShape(shape)) return {};
  Type t{scalar(DT::I32), shape};
  return e.s.result(
      e.s.op("tt.make_range", {e.s.irType(t)}, {},
             {e.s.i32Attr("start", static_cast<int64_t>(lo)), e.s.i32Attr("end", static_cast<int64_t>(hi))}),
      t);
}

Value full(Evaluator &e, const Builtin &, Args &a) {
  std::optional<std::vector<int64_t>> shape = intsArg(e, a[0], "full", "shape");
  if (!shape || !e.s.checkShape(*shape)) return {};
  if (a[2].isNone()) return e.c.fail(diag::TrNotDType, "full", "NoneType");
  std::optional<Scalar> t = dtypeArg(e, a[2], "full");
  return t ? e.s.full(*shape, a[1], *t) : Value{};
}

Value toTensor(Evaluator &e, const Builtin &, Args &a) { return e.s.toTensor(a[0]); }

Value cat(Evaluator &e, const Builtin &, Args &a) {
  std::optional<bool> reorder = boolArg(e, a[2], "cat", "can_reorder");
  if (!reorder || !a[0].isTensor() || !a[1].isTensor())
    return e.c.error ? Value{}
                     : e.c.fail(diag::TrNotTensor, repr(a[0].isTensor() ? a[1] : a[0]),
                                typeName(a[0].isTensor() ? a[1] : a[0]));
  if (*a[0].type != *a[1].type) return e.c.fail(diag::TrCat, a[0].type->str(), a[1].type->str());
  int64_t rank = static_cast<int64_t>(a[0].type->shape.size());
  if (rank == 0) return e.c.fail(diag::TrCat, a[0].type->str(), a[1].type->str());
  if (*reorder && rank == 1) {
    Type t = *a[0].type;
    t.shape[0] *= 2;
    return e.s.result(e.s.op("tt.cat", {e.s.irType(t)}, {a[0].handle, a[1].handle}), t);
  }
  std::optional<int64_t> dim = axisArg(e, a[3], rank, "cat");
  if (!dim) return {};
  Value joined = e.s.join(a[0], a[1]);
  std::vector<int64_t> order;
  for (int64_t i = 0; i < rank; ++i) order.push_back(i);
  order.insert(order.begin() + *dim, rank);
  std::vector<int64_t> shape = a[0].type->shape;
  shape[static_cast<size_t>(*dim)] *= 2;
  return joined ? e.s.reshape(e.s.permute(joined, order), shape, false) : joined;
}

// ---- shapes ------------------------------------------------------------------------------------------------------------------------

Value broadcast(Evaluator &e, const Builtin &, Args &a) {
  Value x = tensorArg(e, a[0]), y = tensorArg(e, a[1]);
  if (!x || !y || !e.s.broadcast(x, y)) return {};
  return e.c.tuple({x, y});
}
Value broadcastTo(Evaluator &e, const Builtin &, Args &a) {
  std::optional<std::vector<int64_t>> shape = intsArg(e, a[1], "broadcast_to", "shape");
  if (!shape || !e.s.checkShape(*shape)) return {};
  return e.s.broadcastTo(tensorArg(e, a[0]), *shape);
}
Value trans(Evaluator &e, const Builtin &b, Args &a) {
  Value x = tensorArg(e, a[0]);
  if (!x) return {};
  std::optional<std::vector<int64_t>> dims = intsArg(e, a[1], shortName(b), "dims");
  if (!dims) return {};
  int64_t rank = static_cast<int64_t>(x.type->shape.size());
  if (dims->empty() && shortName(b) == "trans") {
    if (rank < 2) return e.c.fail(diag::TrTransRank);
    for (int64_t i = 0; i < rank - 2; ++i) dims->push_back(i);
    dims->push_back(rank - 1);
    dims->push_back(rank - 2);
  }
  for (int64_t &d : *dims)
    if (d < 0) d += rank;
  return e.s.permute(x, *dims);
}
Value reshape(Evaluator &e, const Builtin &b, Args &a) {
  Value x = tensorArg(e, a[0]);
  std::optional<std::vector<int64_t>> shape = intsArg(e, a[1], shortName(b), "shape");
  if (!x || !shape) return {};
  bool view = shortName(b) == "view";
  std::optional<bool> reorder = view ? std::optional<bool>(true) : boolArg(e, a[2], shortName(b), "can_reorder");
  if (!reorder || !e.s.checkShape(*shape)) return {};
  return e.s.reshape(x, *shape, *reorder);
}
Value expandDims(Evaluator &e, const Builtin &, Args &a) {
  Value x = tensorArg(e, a[0]);
  std::optional<std::vector<int64_t>> axes = intsArg(e, a[1], "expand_dims", "axis");
  if (!x || !axes) return {};
  int64_t rank = static_cast<int64_t>(x.type->shape.size() + axes->size());
  for (int64_t &axis : *axes) {
    if (axis < -rank || axis >= rank) return e.c.fail(diag::TrAxis, axis, -rank, rank);
    if (axis < 0) axis += rank;
  }
  std::sort(axes->begin(), axes->end());
  if (std::adjacent_find(axes->begin(), axes->end()) != axes->end())
    return e.c.fail(diag::TrDuplicateAxes, fmt::format("[{}]", fmt::join(*axes, ", ")));
  for (int64_t axis : *axes) {
    x = e.s.expandDims(x, axis);
    if (!x) return x;
  }
  return x;
}
Value join(Evaluator &e, const Builtin &, Args &a) { return e.s.join(tensorArg(e, a[0]), tensorArg(e, a[1])); }
Value split(Evaluator &e, const Builtin &, Args &a) {
  Value x = tensorArg(e, a[0]);
  if (!x) return {};
  if (!x.type->isBlock()) return e.c.fail(diag::TrSplit, "split requires a non-scalar tensor");
  if (x.type->shape.back() != 2)
    return e.c.fail(diag::TrSplit,
                    fmt::format("expected last dimension to be 2 for split, got {}", x.type->shape.back()));
  bool rank1 = x.type->shape.size() == 1;
  if (rank1) x = e.s.expandDims(x, 0);
  Type t = *x.type;
  t.shape.pop_back();
  mlir::Type ir = e.s.irType(t);
  mlir::Operation *op = e.s.op("tt.split", {ir, ir}, {x.handle});
  Value l = e.c.tensor(op->getResult(0), t), r = e.c.tensor(op->getResult(1), t);
  if (rank1) {
    l = e.s.unsplat(l);
    r = e.s.unsplat(r);
  }
  return e.c.tuple({l, r});
}
Value item(Evaluator &e, const Builtin &, Args &a) { return e.s.unsplat(tensorArg(e, a[0])); }

Value cast(Evaluator &e, const Builtin &, Args &a) {
  Value x = tensorArg(e, a[0]);
  std::optional<Scalar> to = dtypeArg(e, a[1], "cast");
  std::optional<std::string> rounding = strArg(e, a[2], "cast", "fp_downcast_rounding");
  std::optional<bool> bits = boolArg(e, a[3], "cast", "bitcast");
  if (!x || !to || !rounding || !bits) return {};
  if (*bits) return e.s.bitcast(x, *to);
  if (!rounding->empty() && *rounding != "rtne" && *rounding != "rtz") return e.c.fail(diag::TrRoundingName, *rounding);
  return e.s.cast(x, *to,
                  rounding->empty()    ? Semantic::Rounding::Default
                  : *rounding == "rtz" ? Semantic::Rounding::Rtz
                                       : Semantic::Rounding::Rtne);
}

// ---- arithmetic --------------------------------------------------------------------------------------------------------------------

Value arithmetic(Evaluator &e, const Builtin &b, Args &a) {
  std::string_view n = shortName(b);
  if (a[0].isNumber() && a[1].isNumber()) a[0] = e.s.toTensor(a[0]);
  return e.s.binary(n == "add" ? OpKind::Add : n == "sub" ? OpKind::Sub : OpKind::Mul, a[0], a[1]);
}

std::optional<bool> propagate(Evaluator &e, const Value &v) {
  if (v.kind == Kind::Str && (v.str() == "ALL" || v.str() == "NONE")) return v.str() == "ALL";
  e.c.fail(diag::TrPropagateNan, repr(v));
  return std::nullopt;
}

Value minMax(Evaluator &e, const Builtin &b, Args &a) {
  std::optional<bool> nan = propagate(e, a[2]);
  return nan ? e.s.minMax(shortName(b) == "maximum", a[0], a[1], *nan) : Value{};
}

Value clamp(Evaluator &e, const Builtin &, Args &a) {
  std::optional<bool> nan = propagate(e, a[3]);
  if (!nan || !e.s.ternaryOperands(a[0], a[1], a[2])) return {};
  if (!a[0].type->element.isFloat()) return e.s.minMax(false, e.s.minMax(true, a[0], a[1], *nan), a[2], *nan);
  return e.s.result(e.s.op("tt.clampf", {a[0].handle.getType()}, {a[0].handle, a[1].handle, a[2].handle},
                           {e.s.i32Attr("propagateNan", *nan ? 0xFFFF : 0)}),
                    *a[0].type);
}

Value where(Evaluator &e, const Builtin &, Args &a) { return e.s.where(a[0], a[1], a[2]); }

/// Functions of one float argument: Triton takes only some element types, and says so in these words.
Value unaryMath(Evaluator &e, const Builtin &b, Args &a) {
  static const std::map<std::string_view, const char *> kOps = {
      {"exp", "math.exp"}, {"exp2", "math.exp2"},   {"log", "math.log"},   {"log2", "math.log2"},
      {"cos", "math.cos"}, {"sin", "math.sin"},     {"sqrt", "math.sqrt"}, {"rsqrt", "math.rsqrt"},
      {"erf", "math.erf"}, {"floor", "math.floor"}, {"ceil", "math.ceil"}, {"sqrt_rn", "tt.precise_sqrt"}};
  Value x = tensorArg(e, a[0]);
  if (!x) return x;
  Scalar t = x.type->element;
  bool only32 = shortName(b) == "sqrt_rn";
  if (!t.is(DT::F32) && (only32 || !t.is(DT::F64)))
    return e.c.fail(diag::TrExpectedDType, only32 ? "['fp32']" : "['fp32', 'fp64']", t.str(), shortName(b));
  return e.s.unary(kOps.at(shortName(b)), x);
}

Value absolute(Evaluator &e, const Builtin &, Args &a) {
  Value x = tensorArg(e, a[0]);
  if (x && x.type->element.is(DT::F8E4B15)) x = e.s.cast(x, scalar(DT::F16));
  if (!x) return x;
  Scalar t = x.type->element;
  if (t.isFloat()) return e.s.unary("math.absf", x);
  if (t.isSigned()) return e.s.unary("math.absi", x);
  return t.isPtr() ? e.c.fail(diag::TrUnexpectedType, t.str()) : x;
}

Value umulhi(Evaluator &e, const Builtin &, Args &a) {
  for (Value &v : a)
    if (v.isTensor() && !(v.type->element.isInt() && v.type->element.bits() >= 32))
      return e.c.fail(diag::TrExpectedDType, "['int32', 'int64', 'uint32', 'uint64']", v.type->element.str(), "umulhi");
  if (!e.s.binaryOperands(a[0], a[1], false, false, true, false)) return {};
  return e.s.same("tt.mulhiui", a[0], a[1]);
}

Value fdiv(Evaluator &e, const Builtin &b, Args &a) {
  bool precise = shortName(b) == "div_rn", approx = false;
  if (!precise) {
    std::optional<bool> ieee = boolArg(e, a[2], "fdiv", "ieee_rounding"), fast = boolArg(e, a[3], "fdiv", "approx");
    if (!ieee || !fast) return {};
    precise = *ieee;
    approx = *fast;
    if (precise && approx) return e.c.fail(diag::TrDivisionMode);
  }
  if (!e.s.binaryOperands(a[0], a[1], false, false, true, !(shortName(b) == "div_rn"))) return {};
  if (!a[0].type->element.isFloat())
    return e.c.fail(diag::TrDivision);
  if ((approx || shortName(b) == "div_rn") && !a[0].type->element.is(DT::F32))
    return e.c.fail(diag::TrExpectedDType, "['fp32']", a[0].type->element.str(), shortName(b));
  return e.s.same(approx                                      ? "tt.approx_divf"
                  : precise && a[0].type->element.is(DT::F32) ? "tt.precise_divf"
                                                              : "arith.divf",
                  a[0], a[1]);
}

Value fma(Evaluator &e, const Builtin &, Args &a) {
  if (!e.s.ternaryOperands(a[0], a[1], a[2])) return {};
  if (!a[0].type->element.isFloat()) return e.s.add(e.s.mul(a[0], a[1]), a[2]);
  return e.s.result(e.s.op("math.fma", {a[0].handle.getType()}, {a[0].handle, a[1].handle, a[2].handle}), *a[0].type);
}

Value logical(Evaluator &e, const Builtin &b, Args &a) {
  return e.s.logical(shortName(b) == "logical_and", a[0], a[1]);
}

// ---- hints and types ---------------------------------------------------------------------------------------------------------------

Value hint(Evaluator &e, const Builtin &b, Args &a) {
  std::string_view n = shortName(b);
  std::optional<std::vector<int64_t>> values = intsArg(e, a[1], n, "values");
  if (!values) return {};
  if (!a[0].isTensor()) return a[0].isNumber() ? a[0] : e.c.fail(diag::TrNotTensor, repr(a[0]), typeName(a[0]));
  size_t rank = a[0].type->shape.size();
  if (values->size() != std::max<size_t>(1, rank)) return e.c.fail(diag::TrHintLength, n);
  const char *name = n == "multiple_of" ? "tt.divisibility" : n == "max_contiguous" ? "tt.contiguity" : "tt.constancy";
  llvm::SmallVector<int32_t> ints(values->begin(), values->end());
  mlir::RankedTensorType t = mlir::RankedTensorType::get({static_cast<int64_t>(ints.size())}, e.c.builder.getI32Type());
  mlir::Operation *def = a[0].handle.getDefiningOp();
  // A hint on a block argument has no op to sit on.
  if (def) def->setDiscardableAttr(name, mlir::DenseIntElementsAttr::get(t, llvm::ArrayRef<int32_t>(ints)));
  return a[0];
}

Value assume(Evaluator &e, const Builtin &, Args &a) {
  Value cond = tensorArg(e, a[0]);
  if (!cond) return {};
  if (cond.type->isBlock() || !cond.type->element.isBool()) return e.c.fail(diag::TrAssume, cond.type->str());
  e.c.builder.getContext()->getOrLoadDialect("llvm");
  e.s.op("llvm.intr.assume", {}, {cond.handle},
         {e.c.builder.getNamedAttr("op_bundle_sizes", e.c.builder.getDenseI32ArrayAttr({}))});
  return Value::none();
}

/// Of the target that std.py names, on a CPU as well.
Value warps(Evaluator &e, const Builtin &b, Args &) { return Value::integer(e.c.numWarps * (shortName(b) == "num_threads" ? 32 : 1)); }
Value barrier(Evaluator &e, const Builtin &b, Args &) {
  std::string_view n = shortName(b);
  if (n == "debug_barrier") {
    e.c.builder.getContext()->getOrLoadDialect("ttg");
    e.s.op("ttg.barrier", {}, {}, {e.s.strAttr("addrSpace", "all")});
  } else {
    e.s.op(n == "gdc_wait" ? "tt.grid_dependency_wait" : "tt.grid_dependency_launch_dependents", {}, {});
  }
  return Value::none();
}

Value constexprCall(Evaluator &, const Builtin &, Args &a) {
  if (a[0].isTensor()) return a[0];
  Value v = a[0];
  v.wrapped = true;
  return v;
}

Value pointerType(Evaluator &e, const Builtin &, Args &a) {
  std::optional<Scalar> t = dtypeArg(e, a[0], "pointer_type");
  if (!t) return {};
  if (t->ptrDepth > 6) return e.c.fail(diag::TrUnexpectedType, t->str());
  return e.c.dtype(t->pointer(truthy(a[2])));
}
Value blockType(Evaluator &e, const Builtin &, Args &a) {
  std::optional<Scalar> t = dtypeArg(e, a[0], "block_type");
  std::optional<std::vector<int64_t>> shape = intsArg(e, a[1], "block_type", "shape");
  return t && shape && e.s.checkShape(*shape) ? e.c.dtype(Type{*t, *shape}) : Value{};
}
Value dtypeNamed(Evaluator &e, const Builtin &, Args &a) {
  if (a[0].kind == Kind::DType) return a[0];
  std::optional<std::string> name = strArg(e, a[0], "dtype", "name");
  if (!name) return {};
  if (std::optional<DT> t = parseSignatureType(*name)) return e.c.dtype(scalar(*t));
  return e.c.fail(diag::TrUnknownDType, *name);
}
Value intDtype(Evaluator &e, const Builtin &, Args &a) {
  std::optional<int64_t> bits = intArg(e, a[0], "get_int_dtype", "bitwidth");
  std::optional<bool> isSigned = boolArg(e, a[1], "get_int_dtype", "signed");
  if (!bits || !isSigned) return {};
  for (DT t : {DT::I8, DT::I16, DT::I32, DT::I64, DT::U8, DT::U16, DT::U32, DT::U64})
    if (scalar(t).bits() == *bits && scalar(t).isSigned() == *isSigned) return e.c.dtype(scalar(t));
  if (*bits == 1) return e.c.dtype(scalar(DT::I1));
  return e.c.fail(diag::TrUnknownDType, fmt::format("int{}", *bits));
}

Value dtypePredicate(Evaluator &e, const Builtin &b, Args &a) {
  std::string_view n = shortName(b);
  const Type &t = *a[0].type;
  Scalar s = t.element;
  auto yes = [](bool v) { return Value::boolean(v); };
  if (n == "is_block") return yes(t.isBlock());
  if (n == "is_ptr") return yes(!t.isBlock() && s.isPtr());
  if (n == "is_const") return yes(s.isConst);
  if (n == "is_floating") return yes(s.isFloat());
  if (n == "is_standard_floating") return yes(s.isStandardFloat());
  if (n == "is_int") return yes(s.isInt());
  if (n == "is_int_signed") return yes(s.isSigned());
  if (n == "is_int_unsigned") return yes(s.isUnsigned());
  if (n == "is_bool" || n == "is_int1") return yes(s.isBool());
  if (n == "is_fp8") return yes(s.isFp8());
  if (n == "get_int_max_value") return Value::integer(maxOf(s.base));
  if (n == "get_int_min_value") return Value::integer(minOf(s.base));
  if (n == "with_element_ty") {
    std::optional<Scalar> to = dtypeArg(e, a[1], "with_element_ty");
    return to ? e.c.dtype(t.with(*to)) : Value{};
  }
  // is_fp16, is_int32, is_uint8, is_fp8e5 …
  std::optional<DT> named = parseSignatureType(n.substr(3));
  return yes(named && s.is(*named));
}

Value splatOf(Evaluator &, const Builtin &, Args &a) { return a[0]; }

/// A copy of an aggregate in which some fields are others.
Value aggregateReplace(Evaluator &e, const Builtin &, Args &a) {
  if (a[0].kind != Kind::Instance) return a[0] ? e.c.fail(diag::TrNotAggregate, typeName(a[0])) : Value{};
  Object *o;
  Value out = e.c.object(Kind::Instance, &o);
  *o = *a[0].o;
  const std::vector<Value> &changes = a[1].items();
  for (size_t i = 0; i + 1 < changes.size(); i += 2) {
    std::vector<std::string>::iterator at = std::find(o->fields.begin(), o->fields.end(), changes[i].str());
    if (at == o->fields.end()) return e.c.fail(diag::TrUnexpectedArgument, "aggregate_replace", changes[i].str());
    o->items[static_cast<size_t>(at - o->fields.begin())] = changes[i + 1];
  }
  return out;
}
Value currentTarget(Evaluator &, const Builtin &, Args &) { return Value::none(); }
Value isCuda(Evaluator &, const Builtin &, Args &) { return Value::boolean(false); }

} // namespace

const std::vector<Builtin> kCoreFunctions = {
    {"tl.program_id", "axis", programId},
    {"tl.num_programs", "axis", programId},
    {"tl.arange", "start, end", arange},
    {"tl.full", "shape, value, dtype", full},
    {"tl.to_tensor", "x", toTensor},
    {"tl.cat", "input, other, can_reorder=False, dim=0", cat},
    {"tl.broadcast", "input, other", broadcast},
    {"tl.broadcast_to", "input, *shape", broadcastTo},
    {"tl.trans", "input, *dims", trans},
    {"tl.permute", "input, *dims", trans},
    {"tl.reshape", "input, *shape, can_reorder=False", reshape},
    {"tl.view", "input, *shape", reshape},
    {"tl.expand_dims", "input, axis", expandDims},
    {"tl.join", "a, b", join},
    {"tl.split", "a", split},
    {"tl.item", "input", item},
    {"tl.cast", "input, dtype, fp_downcast_rounding=None, bitcast=False", cast},
    {"tl.add", "x, y, sanitize_overflow=True", arithmetic},
    {"tl.sub", "x, y, sanitize_overflow=True", arithmetic},
    {"tl.mul", "x, y, sanitize_overflow=True", arithmetic},
    {"tl.minimum", "x, y, propagate_nan='NONE'", minMax},
    {"tl.maximum", "x, y, propagate_nan='NONE'", minMax},
    {"tl.clamp", "x, min, max, propagate_nan='NONE'", clamp},
    {"tl.where", "condition, x, y", where},
    {"tl.logical_and", "input, other", logical},
    {"tl.logical_or", "input, other", logical},
    {"tl.math.exp", "x", unaryMath},
    {"tl.math.exp2", "x", unaryMath},
    {"tl.math.log", "x", unaryMath},
    {"tl.math.log2", "x", unaryMath},
    {"tl.math.cos", "x", unaryMath},
    {"tl.math.sin", "x", unaryMath},
    {"tl.math.sqrt", "x", unaryMath},
    {"tl.math.sqrt_rn", "x", unaryMath},
    {"tl.math.rsqrt", "x", unaryMath},
    {"tl.math.erf", "x", unaryMath},
    {"tl.math.floor", "x", unaryMath},
    {"tl.math.ceil", "x", unaryMath},
    {"tl.math.abs", "x", absolute},
    {"tl.math.umulhi", "x, y", umulhi},
    {"tl.math.fdiv", "x, y, ieee_rounding=False, approx=False", fdiv},
    {"tl.math.div_rn", "x, y", fdiv},
    {"tl.math.fma", "x, y, z", fma},
    {"tl.multiple_of", "input, values", hint},
    {"tl.max_contiguous", "input, values", hint},
    {"tl.max_constancy", "input, values", hint},
    {"tl.assume", "cond", assume},
    {"tl.debug_barrier", "", barrier},
    {"tl.extra.cuda.num_warps", "", warps},
    {"tl.extra.cuda.num_threads", "", warps},
    {"tl.extra.cuda.gdc_wait", "", barrier},
    {"tl.extra.cuda.gdc_launch_dependents", "", barrier},
    {"tl.constexpr", "value", constexprCall},
    {"tl.pointer_type", "element_ty, address_space=1, const=False", pointerType},
    {"tl.PointerType", "element_ty, address_space=1, const=False", pointerType},
    {"tl.block_type", "element_ty, shape", blockType},
    {"tl.dtype", "name", dtypeNamed},
    {"tl.str_to_ty", "name, c=None", dtypeNamed},
    {"tl.get_int_dtype", "bitwidth, signed", intDtype},
    {"tl.tensor", "handle, type", splatOf},
    {"tl.tuple", "args", splatOf},
    {"tl.const", "", splatOf},
    {"tl._unwrap_if_constexpr", "x", splatOf},
    {"tl._aggregate", "cls", splatOf},
    {"tl.aggregate_replace", "instance, **changes", aggregateReplace},
    {"tl.tensor_descriptor", "handle", splatOf},
    {"tl.constexpr_function", "fn", splatOf},
    {"tl.builtin", "fn", splatOf},
    {"tl.target_info.current_target", "", currentTarget},
    {"tl.target_info.is_cuda", "", isCuda},
    {"tl.target_info.is_hip", "", isCuda},
    {"dtype.is_block", "self", dtypePredicate},
    {"dtype.is_ptr", "self", dtypePredicate},
    {"dtype.is_const", "self", dtypePredicate},
    {"dtype.is_floating", "self", dtypePredicate},
    {"dtype.is_standard_floating", "self", dtypePredicate},
    {"dtype.is_int", "self", dtypePredicate},
    {"dtype.is_int_signed", "self", dtypePredicate},
    {"dtype.is_int_unsigned", "self", dtypePredicate},
    {"dtype.is_bool", "self", dtypePredicate},
    {"dtype.is_int1", "self", dtypePredicate},
    {"dtype.is_fp8", "self", dtypePredicate},
    {"dtype.is_fp8e4nv", "self", dtypePredicate},
    {"dtype.is_fp8e4b8", "self", dtypePredicate},
    {"dtype.is_fp8e4b15", "self", dtypePredicate},
    {"dtype.is_fp8e5", "self", dtypePredicate},
    {"dtype.is_fp8e5b16", "self", dtypePredicate},
    {"dtype.is_fp16", "self", dtypePredicate},
    {"dtype.is_bf16", "self", dtypePredicate},
    {"dtype.is_fp32", "self", dtypePredicate},
    {"dtype.is_fp64", "self", dtypePredicate},
    {"dtype.is_int8", "self", dtypePredicate},
    {"dtype.is_int16", "self", dtypePredicate},
    {"dtype.is_int32", "self", dtypePredicate},
    {"dtype.is_int64", "self", dtypePredicate},
    {"dtype.is_uint8", "self", dtypePredicate},
    {"dtype.is_uint16", "self", dtypePredicate},
    {"dtype.is_uint32", "self", dtypePredicate},
    {"dtype.is_uint64", "self", dtypePredicate},
    {"dtype.get_int_max_value", "self", dtypePredicate},
    {"dtype.get_int_min_value", "self", dtypePredicate},
    {"dtype.with_element_ty", "self, element_ty", dtypePredicate},
};

} // namespace neso::triton
