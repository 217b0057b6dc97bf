// Functions that take a region of scalar code (reduce, scan, map_elementwise), matrix products, gathers, inline
// assembly, and the functions of debugging and looping.
#include "base/diagnostics/triton.h"
#include "frontend/triton/lang.h"

#include "ir/tile/tile.h"

#include <cstdio>
#include <map>

namespace neso::triton {
namespace {

/// Fills a region's one block with a call of `fn` on scalars, and ends it with `terminator`. Returns the results, or
/// nullopt.
std::optional<std::vector<Value>> combineBlock(Evaluator &e, mlir::Region &region, const Value &fn,
                                               const std::vector<Scalar> &params, const char *terminator) {
  mlir::OpBuilder::InsertionGuard guard(e.c.builder);
  mlir::Block *block = e.c.builder.createBlock(&region);
  mlir::Location loc = e.c.loc();
  std::vector<Value> args;
  for (Scalar s : params) args.push_back(e.c.tensor(block->addArgument(e.s.irType(s), loc), {s, {}}));
  e.c.builder.setInsertionPointToEnd(block);
  Value r = e.call(fn, args);
  if (!r) return std::nullopt;
  std::vector<Value> results = r.kind == Kind::Tuple ? r.items() : std::vector<Value>{r};
  std::vector<mlir::Value> handles;
  for (Value &v : results) {
    if (v.isNumber()) v = e.s.toTensor(v);
    if (!v.isTensor() || v.type->isBlock()) {
      e.c.fail(diag::TrCombine, typeName(v));
      return std::nullopt;
    }
    handles.push_back(v.handle);
  }
  e.s.op(terminator, {}, handles);
  return results;
}

std::optional<std::vector<Value>> inputs(Evaluator &e, const Value &v, std::string_view fn) {
  std::vector<Value> list = v.isSequence() ? v.items() : std::vector<Value>{v};
  if (list.empty()) {
    e.c.fail(diag::TrNotTensor, "()", "tuple");
    return std::nullopt;
  }
  for (Value &x : list) {
    x = e.s.toTensor(x);
    if (!x) return std::nullopt;
  }
  for (size_t i = 1; i < list.size(); ++i)
    if (list[i].type->shape != list[0].type->shape) {
      e.c.fail(diag::TrInputShapes, fn, list[0].type->str(), list[i].type->str());
      return std::nullopt;
    }
  return list;
}

bool checkCombine(Evaluator &e, const std::vector<Value> &in, const std::vector<Value> &out, std::string_view fn) {
  if (in.size() != out.size()) {
    e.c.fail(diag::TrCombineCount, fn, in.size(), out.size());
    return false;
  }
  for (size_t i = 0; i < in.size(); ++i)
    if (out[i].type->element != in[i].type->element) {
      e.c.fail(diag::TrCombineType, fn, in[i].type->element.str(), out[i].type->element.str());
      return false;
    }
  return true;
}

Value reduce(Evaluator &e, const Builtin &, Args &a) {
  std::optional<std::vector<Value>> in = inputs(e, a[0], "reduction");
  std::optional<bool> keep = boolArg(e, a[3], "reduce", "keep_dims");
  if (!in || !keep) return {};
  size_t rank = (*in)[0].type->shape.size();
  if (rank == 0) return e.c.fail(diag::TrReduceScalar);
  bool all = a[1].isNone();
  int64_t axis = 0;
  if (all) {
    if (rank > 1)
      for (Value &v : *in) {
        v = e.s.reshape(v, {v.type->numel()}, true);
        if (!v) return v;
      }
  } else {
    std::optional<int64_t> given = axisArg(e, a[1], static_cast<int64_t>(rank), "reduce");
    if (!given) return {};
    axis = *given;
  }
  std::vector<int64_t> shape = (*in)[0].type->shape;
  shape.erase(shape.begin() + axis);
  mlir::OperationState state(e.c.loc(), "tt.reduce");
  std::vector<Scalar> params;
  for (int copy = 0; copy < 2; ++copy)
    for (const Value &v : *in) params.push_back(v.type->element);
  for (const Value &v : *in) {
    state.operands.push_back(v.handle);
    state.types.push_back(e.s.irType(Type{v.type->element, shape}));
  }
  state.addAttribute("axis", e.c.builder.getI32IntegerAttr(static_cast<int32_t>(axis)));
  mlir::Region *region = state.addRegion();
  std::optional<std::vector<Value>> out = combineBlock(e, *region, a[2], params, "tt.reduce.return");
  if (!out || !checkCombine(e, *in, *out, "reduce")) return {};
  mlir::Operation *op = e.c.builder.create(state);
  std::vector<Value> results;
  for (size_t i = 0; i < in->size(); ++i) {
    Value v = e.c.tensor(op->getResult(static_cast<unsigned>(i)), Type{(*in)[i].type->element, shape});
    if (*keep)
      for (size_t d = 0; d < (all ? rank : 1); ++d) v = e.s.expandDims(v, all ? 0 : axis);
    results.push_back(v);
  }
  return a[0].isSequence() ? e.c.tuple(results) : results[0];
}

Value scan(Evaluator &e, const Builtin &, Args &a) {
  std::optional<std::vector<Value>> in = inputs(e, a[0], "scan");
  std::optional<bool> reverse = boolArg(e, a[3], "associative_scan", "reverse");
  if (!in || !reverse) return {};
  int64_t rank = static_cast<int64_t>((*in)[0].type->shape.size());
  if (rank == 0) return e.c.fail(diag::TrReduceScalar);
  std::optional<int64_t> axis = axisArg(e, a[1], rank, "associative_scan");
  if (!axis) return {};
  mlir::OperationState state(e.c.loc(), "tt.scan");
  std::vector<Scalar> params;
  for (int copy = 0; copy < 2; ++copy)
    for (const Value &v : *in) params.push_back(v.type->element);
  for (const Value &v : *in) {
    state.operands.push_back(v.handle);
    state.types.push_back(v.handle.getType());
  }
  state.addAttribute("axis", e.c.builder.getI32IntegerAttr(static_cast<int32_t>(*axis)));
  state.addAttribute("reverse", e.c.builder.getBoolAttr(*reverse));
  mlir::Region *region = state.addRegion();
  std::optional<std::vector<Value>> out = combineBlock(e, *region, a[2], params, "tt.scan.return");
  if (!out || !checkCombine(e, *in, *out, "associative_scan")) return {};
  mlir::Operation *op = e.c.builder.create(state);
  std::vector<Value> results;
  for (size_t i = 0; i < in->size(); ++i)
    results.push_back(e.c.tensor(op->getResult(static_cast<unsigned>(i)), *(*in)[i].type));
  return a[0].isSequence() ? e.c.tuple(results) : results[0];
}

Value mapElementwise(Evaluator &e, const Builtin &, Args &a) {
  std::optional<int64_t> pack = intArg(e, a[2], "map_elementwise", "pack");
  if (!pack) return {};
  if (*pack < 1) return e.c.fail(diag::TrMap, fmt::format("pack must be >= 1, got {}", *pack));
  std::vector<Value> in = a[1].items();
  if (in.empty()) return e.c.fail(diag::TrMap, "map_elementwise must have at least 1 input tensor");
  for (Value &v : in)
    if (!(v = tensorArg(e, v))) return v;
  for (size_t pass = 0; pass < 2; ++pass)
    for (size_t i = 1; i < in.size(); ++i)
      if (!e.s.broadcast(in[0], in[i])) return {};
  if (!in[0].type->isBlock()) return e.c.fail(diag::TrMap, "map_elementwise needs a block tensor");
  mlir::OperationState state(e.c.loc(), "tt.map_elementwise");
  std::vector<Scalar> params;
  for (const Value &v : in) {
    state.operands.push_back(v.handle);
    for (int64_t i = 0; i < *pack; ++i) params.push_back(v.type->element);
  }
  state.addAttribute("pack", e.c.builder.getI32IntegerAttr(static_cast<int32_t>(*pack)));
  mlir::Region *region = state.addRegion();
  std::optional<std::vector<Value>> out = combineBlock(e, *region, a[0], params, "tt.map_elementwise.return");
  if (!out) return {};
  size_t step = static_cast<size_t>(*pack);
  if (out->size() % step != 0) return e.c.fail(diag::TrMap, "the function must return `pack` values for each result");
  std::vector<Type> types;
  for (size_t i = 0; i < out->size(); i += step) {
    for (size_t k = 1; k < step; ++k)
      if ((*out)[i + k].type->element != (*out)[i].type->element)
        return e.c.fail(diag::TrMap, "type mismatch in unpacked results");
    types.push_back(in[0].type->with((*out)[i].type->element));
    state.types.push_back(e.s.irType(types.back()));
  }
  mlir::Operation *op = e.c.builder.create(state);
  std::vector<Value> results;
  for (size_t i = 0; i < types.size(); ++i)
    results.push_back(e.c.tensor(op->getResult(static_cast<unsigned>(i)), types[i]));
  return results.size() == 1 ? results[0] : e.c.tuple(results);
}

// ---- products ----------------------------------------------------------------------------------------------------------------------

/// The number under which tt.dot knows the precision that input_precision or allow_tf32 ask for.
std::optional<int64_t> dotPrecision(Evaluator &e, const Value &named, const Value &allowTf32) {
  std::optional<std::string> precision = strArg(e, named, "dot", "input_precision");
  if (!precision) return std::nullopt;
  if (!named.isNone() && !allowTf32.isNone()) return e.c.fail(diag::TrDotPrecisionTwice), std::nullopt;
  if (precision->empty()) *precision = allowTf32.isNone() || truthy(allowTf32) ? "tf32" : "ieee";
  static const std::map<std::string, int64_t> kPrecision = {
      {"tf32", 0}, {"tf32x3", 1}, {"ieee", 2}, {"bf16x3", 3}, {"bf16x6", 4}};
  for (char &ch : *precision) ch = static_cast<char>(std::tolower(static_cast<unsigned char>(ch)));
  std::map<std::string, int64_t>::const_iterator mode = kPrecision.find(*precision);
  if (mode == kPrecision.end()) return e.c.fail(diag::TrDotPrecision, *precision), std::nullopt;
  return mode->second;
}

/// Whether the operands' types and shapes have a product; reports what they lack.
bool checkDotOperands(Evaluator &e, const Value &x, const Value &y) {
  auto refuse = [&](const auto &...what) { return e.c.fail(what...), false; };
  Scalar tx = x.type->element, ty = y.type->element;
  auto supported = [](Scalar s) { return s.is(DT::I8) || s.is(DT::U8) || s.isStandardFloat(); };
  if (!(tx.isFp8() && ty.isFp8())) {
    if (!supported(tx)) return refuse(diag::TrDotType, "lhs", tx.str());
    if (!supported(ty)) return refuse(diag::TrDotType, "rhs", ty.str());
    if (tx != ty) return refuse(diag::TrDotTypes, tx.str(), ty.str());
  }
  if (tx.is(DT::U8)) return refuse(diag::TrDotUnsigned);
  const std::vector<int64_t> &sx = x.type->shape, &sy = y.type->shape;
  const size_t rank = sx.size();
  if (rank != sy.size() || rank < 2) return refuse(diag::TrDotRank, x.type->str(), y.type->str());
  if (!std::equal(sx.begin(), sx.end() - 2, sy.begin())) return refuse(diag::TrDotBatch, x.type->str(), y.type->str());
  if (sx[rank - 1] != sy[rank - 2])
    return refuse(diag::TrDotShape, x.type->str(), y.type->str(), sx[rank - 1], sy[rank - 2]);
  return true;
}

/// The element type of a product: what out_dtype or the accumulator says, where the operands leave a choice.
std::optional<Scalar> dotResultType(Evaluator &e, Scalar operand, const Value &acc, const Value &asked) {
  Scalar out = scalar(DT::F32);
  if (!asked.isNone()) {
    std::optional<Scalar> given = dtypeArg(e, asked, "dot");
    if (!given) return std::nullopt;
    out = *given;
  } else if (acc.isTensor()) {
    out = acc.type->element;
  }
  if (out.is(DT::BF16)) return e.c.fail(diag::TrDotOut), std::nullopt;
  return operand.isInt()                               ? scalar(DT::I32)
         : operand.is(DT::F32) || operand.is(DT::BF16) ? scalar(DT::F32)
         : operand.is(DT::F64)                         ? scalar(DT::F64)
                                                       : out;
}

Value dot(Evaluator &e, const Builtin &, Args &a) {
  Value x = a[0], y = a[1], acc = a[2];
  if (!x.isTensor() || !y.isTensor() || !x.type->isBlock() || !y.type->isBlock())
    return e.c.fail(diag::TrDot, "dot");
  std::optional<int64_t> precision = dotPrecision(e, a[3], a[4]);
  if (!precision || !checkDotOperands(e, x, y)) return {};
  if (x.type->element.is(DT::F8E4B15) || y.type->element.is(DT::F8E4B15))
    for (Value *operand : {&x, &y}) *operand = e.s.cast(*operand, scalar(DT::F16));
  std::optional<Scalar> ret = dotResultType(e, x.type->element, acc, a[6]);
  if (!ret) return {};
  const std::vector<int64_t> sx = x.type->shape, sy = y.type->shape;
  const size_t rank = sx.size();
  std::vector<int64_t> sz = sx;
  sz[rank - 1] = sy[rank - 1];
  if (acc.isTensor()) {
    if (acc.type->shape != sz)
      return e.c.fail(diag::TrDotAccShape, fmt::format("{}", fmt::join(sz, ", ")), acc.type->str());
    if (acc.type->element != *ret) return e.c.fail(diag::TrDotAccType, ret->str(), acc.type->element.str());
  } else if (!acc.isNone()) {
    return e.c.fail(diag::TrDotAcc, typeName(acc));
  }
  // tt.dot has one dimension of batches.
  bool flat = rank > 3;
  if (flat) {
    auto merge = [&](std::vector<int64_t> s) {
      int64_t batch = 1;
      for (size_t i = 0; i + 2 < s.size(); ++i) batch *= s[i];
      return std::vector<int64_t>{batch, s[s.size() - 2], s[s.size() - 1]};
    };
    x = e.s.reshape(x, merge(sx), false);
    y = e.s.reshape(y, merge(sy), false);
    if (acc.isTensor()) acc = e.s.reshape(acc, merge(sz), false);
  }
  std::vector<int64_t> shape = flat ? std::vector<int64_t>{x.type->shape[0], sz[rank - 2], sz[rank - 1]} : sz;
  if (acc.isNone()) acc = e.s.full(shape, Value::integer(0), *ret);
  if (!acc) return acc;
  // An fp16 product that accumulates in fp32 names its precision only for f32 operands; the default says nothing. Products
  // of fp8 are summed as the chip does, however long they are, which is Triton's default where chips differ.
  constexpr int64_t kNoLimit = 1 << 30;
  const bool f8 = x.type->element.isFp8() && y.type->element.isFp8();
  std::optional<int64_t> imprecise =
      a[5].isNone() ? std::optional<int64_t>(f8 ? kNoLimit : 0) : intArg(e, a[5], "dot", "max_num_imprecise_acc");
  if (!imprecise) return {};
  Value v = e.s.result(e.s.op("tt.dot", {acc.handle.getType()}, {x.handle, y.handle, acc.handle},
                              {e.s.i32Attr("inputPrecision", *precision), e.s.i32Attr("maxNumImpreciseAcc", *imprecise)}),
                       *acc.type);
  return flat ? e.s.reshape(v, sz, false) : v;
}

std::optional<int64_t> scaledFormat(Evaluator &e, const Value &v, Value &operand, std::string_view side) {
  static const std::map<std::string, int64_t> kFormats = {
      {"e4m3", 0}, {"e5m2", 1}, {"e2m1", 4}, {"bf16", 5}, {"fp16", 6}};
  std::optional<std::string> name = strArg(e, v, "dot_scaled", std::string(side) + "_format");
  if (!name) return std::nullopt;
  std::map<std::string, int64_t>::const_iterator it = kFormats.find(*name);
  if (it == kFormats.end()) {
    e.c.fail(diag::TrScaledFormat, side, *name);
    return std::nullopt;
  }
  if (!operand.isTensor() || !operand.type->isBlock()) {
    e.c.fail(diag::TrDot, "dot_scaled");
    return std::nullopt;
  }
  Scalar want = scalar(it->second == 0   ? DT::F8E4NV
                       : it->second == 1 ? DT::F8E5
                       : it->second == 4 ? DT::U8
                       : it->second == 5 ? DT::BF16
                                         : DT::F16);
  if (operand.type->element != want) {
    Scalar raw = scalar(want.bits() == 16 ? DT::U16 : DT::U8);
    if (operand.type->element != raw) {
      e.c.fail(diag::TrScaledType, *name, operand.type->element.str());
      return std::nullopt;
    }
    operand = e.s.bitcast(operand, want);
  }
  return it->second;
}

Value dotScaled(Evaluator &e, const Builtin &, Args &a) {
  Value x = a[0], y = a[3], acc = a[6];
  std::optional<int64_t> fx = scaledFormat(e, a[2], x, "lhs"), fy = fx ? scaledFormat(e, a[5], y, "rhs") : std::nullopt;
  std::optional<bool> fast = boolArg(e, a[7], "dot_scaled", "fast_math"),
                      kx = boolArg(e, a[8], "dot_scaled", "lhs_k_pack"),
                      ky = boolArg(e, a[9], "dot_scaled", "rhs_k_pack");
  if (!fx || !fy || !fast || !kx || !ky) return {};
  std::vector<int64_t> sx = x.type->shape, sy = y.type->shape;
  size_t rank = sx.size();
  if (rank != sy.size() || rank < 2 || rank > 3)
    return e.c.fail(diag::TrDotRank, x.type->str(), y.type->str());
  int64_t px = *fx == 4 ? 2 : 1, py = *fy == 4 ? 2 : 1;
  if ((!*kx && px == 1) || (!*ky && py == 1))
    return e.c.fail(diag::TrScaledPack);
  int64_t m = sx[rank - 2] * (*kx ? 1 : px), n = sy[rank - 1] * (*ky ? 1 : py), k = sx[rank - 1] * (*kx ? px : 1);
  if (k != sy[rank - 2] * (*ky ? py : 1))
    return e.c.fail(diag::TrScaledShape, x.type->str(), y.type->str());
  std::vector<int64_t> shape = {m, n};
  if (rank == 3) shape.insert(shape.begin(), sx[0]);
  if (acc.isNone()) acc = e.s.full(shape, Value::integer(0), scalar(DT::F32));
  if (!acc.isTensor() || acc.type->shape != shape || !acc.type->element.is(DT::F32))
    return e.c.fail(diag::TrScaledAcc, fmt::format("{}", fmt::join(shape, ", ")), acc.isTensor() ? acc.type->str() : typeName(acc));
  llvm::SmallVector<mlir::Value> operands = {x.handle, y.handle, acc.handle};
  int32_t have[2] = {0, 0};
  for (int side = 0; side < 2; ++side) {
    Value scale = a[side == 0 ? 1 : 4];
    if (!scale.isTensor()) continue;
    // Exponents of two, or the scales of nvfp4.
    if (const Scalar t = scale.type->element; !t.is(DT::U8) && !t.is(DT::I8) && !t.is(DT::F8E4NV))
      return e.c.fail(diag::TrScaledType, side == 0 ? "lhs_scale" : "rhs_scale", t.str());
    have[side] = 1;
    operands.push_back(scale.handle);
  }
  return e.s.result(
      e.s.op("tt.dot_scaled", {acc.handle.getType()}, operands,
             {e.s.i32Attr("a_elem_type", *fx), e.s.i32Attr("b_elem_type", *fy), e.s.boolAttr("fastMath", *fast),
              e.s.boolAttr("lhs_k_pack", *kx), e.s.boolAttr("rhs_k_pack", *ky),
              e.c.builder.getNamedAttr("operandSegmentSizes",
                                       e.c.builder.getDenseI32ArrayAttr({1, 1, 1, have[0], have[1]}))}),
      *acc.type);
}

Value gather(Evaluator &e, const Builtin &, Args &a) {
  Value x = tensorArg(e, a[0]), i = tensorArg(e, a[1]);
  if (!x || !i) return {};
  if (!i.type->element.isInt()) return e.c.fail(diag::TrGather, "index must be an integer tensor");
  size_t rank = x.type->shape.size();
  if (i.type->shape.size() != rank || rank == 0)
    return e.c.fail(diag::TrGather, "source and index tensors must have the same rank");
  std::optional<int64_t> axis = axisArg(e, a[2], static_cast<int64_t>(rank), "gather");
  if (!axis) return {};
  for (size_t d = 0; d < rank; ++d)
    if (static_cast<int64_t>(d) != *axis && i.type->shape[d] != x.type->shape[d])
      return e.c.fail(diag::TrGather, fmt::format("index dim {} must match the corresponding source dim", d));
  Type t{x.type->element, i.type->shape};
  return e.s.result(e.s.op("tt.gather", {e.s.irType(t)}, {x.handle, i.handle}, {e.s.i32Attr("axis", *axis)}), t);
}

Value histogram(Evaluator &e, const Builtin &, Args &a) {
  Value x = tensorArg(e, a[0]), mask = a[2].isNone() ? Value{} : tensorArg(e, a[2]);
  std::optional<int64_t> bins = intArg(e, a[1], "histogram", "num_bins");
  if (e.c.error || !bins || !e.s.checkShape({*bins})) return {};
  if (x.type->shape.size() != 1) return e.c.fail(diag::TrHistogram);
  if (!x.type->element.isInt() || x.type->element.bits() != 32)
    return e.c.fail(diag::TrHistogramType, x.type->element.str());
  llvm::SmallVector<mlir::Value> operands = {x.handle};
  if (mask) {
    mask = e.s.broadcastTo(mask, x.type->shape);
    if (!mask) return {};
    if (!mask.type->element.isBool()) return e.c.fail(diag::TrMaskType, mask.type->str());
    operands.push_back(mask.handle);
  }
  Type t{scalar(DT::I32), {*bins}};
  return e.s.result(e.s.op("tt.histogram", {e.s.irType(t)}, operands), t);
}

Value inlineAsm(Evaluator &e, const Builtin &, Args &a) {
  std::optional<std::string> text = strArg(e, a[0], "inline_asm_elementwise", "asm"),
                             constraints = strArg(e, a[1], "inline_asm_elementwise", "constraints");
  std::optional<bool> pure = boolArg(e, a[4], "inline_asm_elementwise", "is_pure");
  std::optional<int64_t> pack = intArg(e, a[5], "inline_asm_elementwise", "pack");
  if (!text || !constraints || !pure || !pack) return {};
  bool many = a[3].isSequence();
  std::vector<Value> dtypes = many ? a[3].items() : std::vector<Value>{a[3]};
  if (!a[2].isSequence()) return e.c.fail(diag::TrNotList, "args", "inline_asm_elementwise", typeName(a[2]));
  std::vector<Value> in = a[2].items();
  for (Value &v : in)
    if (!(v = tensorArg(e, v))) return v;
  for (size_t pass = 0; pass < 2; ++pass)
    for (size_t i = 1; i < in.size(); ++i)
      if (!e.s.broadcast(in[0], in[i])) return {};
  std::vector<mlir::Value> operands;
  for (const Value &v : in) operands.push_back(v.handle);
  std::vector<Type> types;
  std::vector<mlir::Type> irTypes;
  for (const Value &d : dtypes) {
    std::optional<Scalar> s = dtypeArg(e, d, "inline_asm_elementwise");
    if (!s) return {};
    types.push_back(in.empty() ? Type{*s, {}} : in[0].type->with(*s));
    irTypes.push_back(e.s.irType(types.back()));
  }
  mlir::Operation *op = e.s.op("tt.elementwise_inline_asm", irTypes, operands,
                               {e.s.strAttr("asm_string", *text), e.s.strAttr("constraints", *constraints),
                                e.s.boolAttr("pure", *pure), e.s.i32Attr("packed_element", *pack)});
  std::vector<Value> results;
  for (size_t i = 0; i < types.size(); ++i)
    results.push_back(e.c.tensor(op->getResult(static_cast<unsigned>(i)), types[i]));
  return many ? e.c.tuple(results) : results[0];
}

// ---- debugging ---------------------------------------------------------------------------------------------------------------------

Value devicePrint(Evaluator &e, const Builtin &, Args &a) {
  if (a[0].kind != Kind::Str) return e.c.fail(diag::TrPrint, repr(a[0]));
  std::optional<bool> hex = boolArg(e, a[2], "device_print", "hex");
  if (!hex) return {};
  std::string prefix = a[0].str();
  for (char ch : prefix)
    if (static_cast<unsigned char>(ch) >= 0x7f ||
        (static_cast<unsigned char>(ch) < 0x20 && !std::isspace(static_cast<unsigned char>(ch))))
      return e.c.fail(diag::TrPrintAscii, prefix);
  std::vector<mlir::Value> operands;
  llvm::SmallVector<int32_t> isSigned;
  for (const Value &v : a[1].items()) {
    Value t = tensorArg(e, v);
    if (!t) return t;
    operands.push_back(t.handle);
    isSigned.push_back(t.type->element.isSigned());
  }
  if (!operands.empty()) {
    if (!prefix.ends_with(" ")) prefix += " ";
    if (!prefix.ends_with(": ")) prefix = prefix.substr(0, prefix.size() - 1) + ": ";
  }
  if (prefix.size() > 2 && !prefix.starts_with(" ")) prefix = " " + prefix;
  e.s.op("tt.print", {}, operands,
         {e.s.strAttr("prefix", prefix), e.s.boolAttr("hex", *hex),
          e.c.builder.getNamedAttr("isSigned", e.c.builder.getDenseI32ArrayAttr(isSigned))});
  return Value::none();
}

Value deviceAssert(Evaluator &e, const Builtin &, Args &a) {
  Value cond = tensorArg(e, a[0]), mask = a[2].isNone() ? Value{} : tensorArg(e, a[2]);
  if (e.c.error || !e.options().debug) return e.c.error ? Value{} : Value::none();
  std::optional<std::string> text = strArg(e, a[1], "device_assert", "msg");
  if (!text) return {};
  cond = e.s.cast(cond, scalar(DT::I1));
  if (mask) cond = e.s.bitwise(OpKind::BitOr, cond, e.s.notOp(mask));
  if (!cond) return {};
  e.s.op("tt.assert", {}, {cond.handle}, {e.s.strAttr("message", *text)});
  return Value::none();
}

Value staticAssert(Evaluator &e, const Builtin &, Args &a) {
  if (a[0].isTensor()) return e.c.fail(diag::TrStaticAssertType, a[0].type->str());
  if (a[0].kind != Kind::Bool && a[0].kind != Kind::Int) return e.c.fail(diag::TrStaticAssertType, typeName(a[0]));
  if (!truthy(a[0])) return e.c.fail(diag::TrAssertion, toStr(a[1]));
  return Value::none();
}
/// Printed while compiling, as Triton does.
Value staticPrint(Evaluator &, const Builtin &, Args &a) {
  std::string line;
  for (const Value &v : a[0].items()) line += (line.empty() ? "" : " ") + toStr(v);
  std::fprintf(stderr, "%s\n", line.c_str());
  return Value::none();
}

// ---- iterators ---------------------------------------------------------------------------------------------------------------------

Value range(Evaluator &e, const Builtin &b, Args &a) {
  bool isStatic = shortName(b) == "static_range";
  Object *o;
  Value v = e.c.object(Kind::Range, &o);
  o->text = isStatic ? "static_range" : "range";
  Value start = a[1].isNone() ? Value::integer(0) : a[0], stop = a[1].isNone() ? a[0] : a[1],
        step = a[2].isNone() ? Value::integer(1) : a[2];
  o->items = {start, stop, step};
  const char *names[] = {"start", "end", "step"};
  for (size_t i = 0; i < 3; ++i) {
    if (isStatic && !o->items[i].isIntLike()) return e.c.fail(diag::TrStaticRange, repr(o->items[i]), names[i]);
    if (!o->items[i].isNumber() && !o->items[i].isTensor()) {
      if (o->items[i].kind == Kind::Opaque) return o->items[i];
      return e.c.fail(diag::TrRangeType, typeName(o->items[i]), names[i]);
    }
  }
  if (step.isIntLike() && step.i == 0) return e.c.fail(diag::TrRangeStep);
  for (size_t i = 3; i < a.size() && b.name == std::string_view("tl.range"); ++i) o->items.push_back(a[i]);
  return v;
}

Value conditionOf(Evaluator &, const Builtin &, Args &a) { return a[0]; }

} // namespace

const std::vector<Builtin> kRegionFunctions = {
    {"tl.reduce", "input, axis, combine_fn, keep_dims=False", reduce},
    {"tl.associative_scan", "input, axis, combine_fn, reverse=False", scan},
    {"tl.map_elementwise", "scalar_fn, *args, pack=1", mapElementwise},
    {"tl.dot",
     "input, other, acc=None, input_precision=None, allow_tf32=None, max_num_imprecise_acc=None, out_dtype=None", dot},
    {"tl.dot_scaled",
     "lhs, lhs_scale, lhs_format, rhs, rhs_scale, rhs_format, acc=None, fast_math=False, lhs_k_pack=True, "
     "rhs_k_pack=True, out_dtype=fp32",
     dotScaled},
    {"tl.gather", "src, index, axis", gather},
    {"tl.histogram", "input, num_bins, mask=None", histogram},
    {"tl.inline_asm_elementwise", "asm, constraints, args, dtype, is_pure, pack", inlineAsm},
    {"tl.device_print", "prefix, *args, hex=False", devicePrint},
    {"tl.device_assert", "cond, msg='', mask=None", deviceAssert},
    {"tl.static_assert", "cond, msg=''", staticAssert},
    {"tl.static_print", "*values, sep=' ', end='', file=None, flush=False", staticPrint},
    {"tl.range",
     "arg1, arg2=None, step=None, num_stages=None, loop_unroll_factor=None, disallow_acc_multi_buffer=False, "
     "flatten=False, warp_specialize=False, disable_licm=False",
     range},
    {"tl.static_range", "arg1, arg2=None, step=None", range},
    // Triton evaluates named arguments of a plain range and drops them.
    {"builtins.range", "arg1, arg2=None, step=None, **ignored", range},
    {"tl.condition", "arg1, disable_licm=False", conditionOf},
};

} // namespace neso::triton
