// Memory: load, store, atomics, block pointers, tensor descriptors.
//
// A block pointer is a value of the front end alone: base, shape, strides and offsets. Loads and stores through it
// become plain ones with a mask for the dimensions that are checked, so that no target needs to know of it.
#include "base/diagnostics/triton.h"
#include "frontend/triton/lang.h"

#include "ir/tile/tile.h"

#include <map>

namespace neso::triton {
namespace {

using neso::tt::CacheModifier;
using neso::tt::EvictionPolicy;

struct Policy {
  CacheModifier cache = CacheModifier::NONE;
  EvictionPolicy evict = EvictionPolicy::NORMAL;
};

std::optional<Policy> policy(Evaluator &e, const Value &cache, const Value &evict, bool isLoad, std::string_view fn) {
  std::optional<std::string> c = strArg(e, cache, fn, "cache_modifier"), v = strArg(e, evict, fn, "eviction_policy");
  if (!c || !v) return std::nullopt;
  Policy p;
  static const std::map<std::string, CacheModifier> kModifiers = {{"ca", CacheModifier::CA}, {"cg", CacheModifier::CG},
                                                                  {"wb", CacheModifier::WB}, {"cs", CacheModifier::CS},
                                                                  {"wt", CacheModifier::WT}, {"cv", CacheModifier::CV}};
  std::string name = c->starts_with(".") ? c->substr(1) : *c;
  if (!name.empty() && name != "none") {
    std::map<std::string, CacheModifier>::const_iterator it = kModifiers.find(name);
    bool fits = it != kModifiers.end() && (isLoad ? name != "wb" && name != "wt" : name != "ca" && name != "cv");
    if (!fits) {
      e.c.fail(diag::TrCacheModifier, *c, isLoad ? ".ca, .cg, .cs, .cv" : ".wb, .cg, .cs, .wt");
      return std::nullopt;
    }
    p.cache = it->second;
  }
  if (*v == "evict_first")
    p.evict = EvictionPolicy::EVICT_FIRST;
  else if (*v == "evict_last")
    p.evict = EvictionPolicy::EVICT_LAST;
  else if (!v->empty() && *v != "evict_normal") {
    e.c.fail(diag::TrEviction, *v);
    return std::nullopt;
  }
  return p;
}

// ---- block pointers ----------------------------------------------------------------------------------------------------------------

struct Block {
  size_t rank;
  Value base;
  llvm::ArrayRef<Value> shape, strides, offsets;
};
Block parts(const Value &v) {
  size_t n = v.o->shape.size();
  llvm::ArrayRef<Value> all = v.items();
  return {n, all[0], all.slice(1, n), all.slice(1 + n, n), all.slice(1 + 2 * n, n)};
}

std::optional<std::vector<Value>> scalars(Evaluator &e, const Value &v, DT type, std::string_view fn,
                                          std::string_view what) {
  if (!v.isSequence()) {
    e.c.fail(diag::TrNotList, what, fn, typeName(v));
    return std::nullopt;
  }
  std::vector<Value> out;
  for (const Value &i : v.items()) {
    if (i.isTensor() && (i.type->numel() != 1 || !i.type->element.isInt())) {
      e.c.fail(diag::TrScalarInt, what, i.type->str());
      return std::nullopt;
    }
    if (i.isTensor() && type == DT::I32 && i.type->element.bits() > 32) {
      e.c.fail(diag::TrOffset64);
      return std::nullopt;
    }
    Value s = i.isTensor() ? e.s.cast(e.s.unsplat(i), scalar(type)) : e.s.constant(i, scalar(type));
    if (!s) return std::nullopt;
    out.push_back(s);
  }
  return out;
}

Value makeBlockPtr(Evaluator &e, const Builtin &, Args &a) {
  if (!a[0].isTensor() || !a[0].type->element.isPtr() || a[0].type->isBlock())
    return e.c.fail(diag::TrPointer, a[0].isTensor() ? a[0].type->str() : typeName(a[0]), "make_block_ptr");
  std::optional<std::vector<Value>> shape = scalars(e, a[1], DT::I64, "make_block_ptr", "shape");
  if (!shape) return {};
  std::optional<std::vector<Value>> strides = scalars(e, a[2], DT::I64, "make_block_ptr", "strides");
  if (!strides) return {};
  std::optional<std::vector<Value>> offsets = scalars(e, a[3], DT::I64, "make_block_ptr", "offsets");
  if (!offsets) return {};
  std::optional<std::vector<int64_t>> block = intsArg(e, a[4], "make_block_ptr", "block_shape"),
                                      order = intsArg(e, a[5], "make_block_ptr", "order");
  if (!block || !order || !e.s.checkShape(*block)) return {};
  size_t n = block->size();
  if (shape->size() != n || strides->size() != n || offsets->size() != n || order->size() != n)
    return e.c.fail(diag::TrBlockPtr, "Expected shape/strides/offsets/block_shape to have the same length");
  std::vector<bool> seen(n);
  for (int64_t d : *order) {
    if (d < 0 || d >= static_cast<int64_t>(n) || seen[static_cast<size_t>(d)])
      return e.c.fail(diag::TrBlockPtr, "Expected a permutation of (0, 1, ..., len(order)-1) in order");
    seen[static_cast<size_t>(d)] = true;
  }
  Object *o;
  Value v = e.c.object(Kind::BlockPtr, &o);
  o->items = {a[0]};
  for (std::vector<Value> *part : {&*shape, &*strides, &*offsets})
    o->items.insert(o->items.end(), part->begin(), part->end());
  o->shape = *block;
  o->order = *order;
  o->element = a[0].type->element.pointee();
  return v;
}

Value advance(Evaluator &e, const Builtin &, Args &a) {
  if (a[0].kind != Kind::BlockPtr)
    return e.c.fail(diag::TrPointer, a[0].isTensor() ? a[0].type->str() : typeName(a[0]), "advance");
  std::optional<std::vector<Value>> steps = scalars(e, a[1], DT::I64, "advance", "offsets");
  if (!steps) return {};
  Block p = parts(a[0]);
  if (steps->size() != p.rank)
    return e.c.fail(diag::TrBlockPtr, fmt::format("tl.advance needs {} offsets, got {}", p.rank, steps->size()));
  Object *o;
  Value v = e.c.object(Kind::BlockPtr, &o);
  *o = *a[0].o;
  for (size_t i = 0; i < p.rank; ++i) {
    o->items[1 + 2 * p.rank + i] = e.s.add(p.offsets[i], (*steps)[i]);
    if (e.c.error) return {};
  }
  return v;
}

/// Pointers and mask of a block pointer's elements; the mask is null when no dimension is checked.
bool lowerBlock(Evaluator &e, Value bp, const Value &check, Value &ptrs, Value &mask) {
  std::optional<std::vector<int64_t>> dims =
      check.isNone() ? std::vector<int64_t>{} : intsArg(e, check, "load", "boundary_check");
  if (!dims) return false;
  Block p = parts(bp);
  Value at;
  for (size_t d = 0; d < p.rank; ++d) {
    Type line{scalar(DT::I32), {bp.o->shape[d]}};
    Value i = e.s.result(
        e.s.op("tt.make_range", {e.s.irType(line)}, {}, {e.s.i32Attr("start", 0), e.s.i32Attr("end", bp.o->shape[d])}),
        line);
    i = e.s.add(e.s.cast(i, scalar(DT::I64)), p.offsets[d]);
    bool checked = false;
    for (int64_t c : *dims) {
      if (c < 0 || c >= static_cast<int64_t>(p.rank)) {
        e.c.fail(diag::TrBoundaryCheck, c, p.rank);
        return false;
      }
      checked |= c == static_cast<int64_t>(d);
    }
    Value inside;
    if (checked)
      inside = e.s.bitwise(OpKind::BitAnd, e.s.compare(OpKind::Ge, i, Value::integer(0)),
                           e.s.compare(OpKind::Lt, i, p.shape[d]));
    Value off = e.s.mul(i, p.strides[d]);
    for (size_t k = 0; k < p.rank && !e.c.error; ++k)
      if (k != d) {
        off = e.s.expandDims(off, static_cast<int64_t>(k));
        if (inside) inside = e.s.expandDims(inside, static_cast<int64_t>(k));
      }
    if (e.c.error) return false;
    at = at ? e.s.add(at, off) : off;
    if (inside) mask = mask ? e.s.bitwise(OpKind::BitAnd, mask, inside) : inside;
  }
  ptrs = e.s.add(p.base, e.s.broadcastTo(at, bp.o->shape));
  if (mask) mask = e.s.broadcastTo(mask, bp.o->shape);
  return !e.c.error;
}

// ---- load and store ----------------------------------------------------------------------------------------------------------------

/// A pointer to bool is read and written as bytes.
Value bytePointer(Evaluator &e, const Value &ptr) {
  return e.s.cast(ptr, scalar(DT::I8).pointer(ptr.type->element.isConst));
}

bool scalarOnly(Evaluator &e, const Value &v, const char *what) {
  if (!v.isTensor() || !v.type->isBlock()) return true;
  e.c.fail(diag::TrBlockOnScalar, what);
  return false;
}

Value load(Evaluator &e, const Builtin &, Args &a) {
  Value ptr = a[0], mask = a[1].isNone() ? Value{} : tensorArg(e, a[1]),
        other = a[2].isNone() ? Value{} : tensorArg(e, a[2]);
  std::optional<Policy> p = policy(e, a[5], a[6], true, "load");
  std::optional<bool> isVolatile = boolArg(e, a[7], "load", "volatile");
  if (e.c.error || !p || !isVolatile) return {};
  if (ptr.kind == Kind::Descriptor) return e.c.fail(diag::TrPointer, "tensor_descriptor", "load");
  if (ptr.kind == Kind::BlockPtr) {
    if (mask || other)
      return e.c.fail(diag::TrBlockPtr, "`mask` and `other` arguments cannot be specified for loading block pointers");
    std::optional<std::string> padding = strArg(e, a[4], "load", "padding_option");
    if (!padding) return {};
    Value where;
    Scalar element = ptr.o->element;
    if (!lowerBlock(e, ptr, a[3], ptr, where)) return {};
    mask = where;
    if (*padding == "nan" && element.isInt())
      return e.c.fail(diag::TrBlockPtr, "Padding option `nan` is not supported for integer block pointers");
    if (!padding->empty() && *padding != "zero" && *padding != "nan") return e.c.fail(diag::TrPadding, *padding);
    if (mask && !padding->empty()) other = e.s.constant(Value::real(*padding == "nan" ? std::nan("") : 0.0), element);
  } else if (!ptr.isTensor() || !ptr.type->element.isPtr()) {
    return e.c.fail(diag::TrPointer, ptr.isTensor() ? ptr.type->str() : typeName(ptr), "load");
  } else if ((!a[3].isNone() && truthy(a[3])) || (a[4].kind == Kind::Str && !a[4].str().empty())) {
    return e.c.fail(diag::TrBlockPtr, "`padding_option` or `boundary_check` argument is not supported for loading a "
                                      "tensor of pointers or loading a scalar");
  }
  if (!mask && other) return e.c.fail(diag::TrOtherWithoutMask);
  if (!ptr.type->isBlock()) {
    if (mask && !scalarOnly(e, mask, "Mask")) return {};
    if (other && !scalarOnly(e, other, "Other")) return {};
  } else {
    if (mask && !e.s.broadcast(ptr, mask)) return {};
    if (other && !e.s.broadcast(ptr, other)) return {};
    if (mask && !e.s.broadcast(ptr, mask)) return {};
  }
  if (mask && !mask.type->element.isBool()) return e.c.fail(diag::TrMaskType, mask.type->str());
  Scalar element = ptr.type->element.pointee();
  bool isBool = element.isBool();
  if (isBool) {
    element = scalar(DT::I8);
    ptr = bytePointer(e, ptr);
  }
  if (other) other = e.s.cast(other, element);
  if (e.c.error || !e.s.irType(element)) return {};
  Value v = e.c.tensor(tt::LoadOp::create(e.c.builder, e.c.loc(), ptr.handle, mask ? mask.handle : mlir::Value(),
                                          other ? other.handle : mlir::Value(), p->cache, p->evict, *isVolatile),
                       ptr.type->with(element));
  return isBool ? e.s.cast(v, scalar(DT::I1)) : v;
}

Value store(Evaluator &e, const Builtin &, Args &a) {
  Value ptr = a[0], val = tensorArg(e, a[1]), mask = a[2].isNone() ? Value{} : tensorArg(e, a[2]);
  std::optional<Policy> p = policy(e, a[4], a[5], false, "store");
  if (e.c.error || !val || !p) return {};
  if (ptr.kind == Kind::BlockPtr) {
    if (mask) return e.c.fail(diag::TrBlockPtr, "`mask` argument cannot be specified for storing block pointers");
    std::vector<int64_t> block = ptr.o->shape;
    if (val.type->isBlock() && val.type->shape != block)
      return e.c.fail(diag::TrBlockPtr, fmt::format("Block shape [{}] and value shape [{}] mismatch",
                                                    fmt::join(block, ", "), fmt::join(val.type->shape, ", ")));
    Value where;
    if (!lowerBlock(e, ptr, a[3], ptr, where)) return {};
    mask = where;
  } else if (!ptr.isTensor() || !ptr.type->element.isPtr()) {
    return e.c.fail(diag::TrPointer, ptr.isTensor() ? ptr.type->str() : typeName(ptr), "store");
  } else if (!a[3].isNone() && truthy(a[3])) {
    return e.c.fail(diag::TrBlockPtr,
                    "`boundary_check` argument is not supported for storing a tensor of pointers or storing a scalar");
  }
  if (ptr.type->element.isConst) return e.c.fail(diag::TrConstStore);
  std::vector<int64_t> shape = ptr.type->shape;
  if (!ptr.type->isBlock()) {
    if (!scalarOnly(e, val, "Value") || (mask && !scalarOnly(e, mask, "Mask"))) return {};
  } else {
    if (!e.s.broadcast(ptr, val) || (mask && !e.s.broadcast(ptr, mask)) || (mask && !e.s.broadcast(ptr, val)))
      return {};
    if (ptr.type->shape != shape)
      return e.c.fail(diag::TrStoreShape, fmt::join(ptr.type->shape, ", "), fmt::join(shape, ", "));
  }
  Scalar element = ptr.type->element.pointee();
  val = e.s.cast(val, element);
  if (val && element.isBool()) {
    ptr = bytePointer(e, ptr);
    val = e.s.cast(val, scalar(DT::I8));
  }
  if (!val || !ptr) return {};
  if (mask && !mask.type->element.isBool()) return e.c.fail(diag::TrMaskType, mask.type->str());
  tt::StoreOp::create(e.c.builder, e.c.loc(), ptr.handle, val.handle, mask ? mask.handle : mlir::Value(), p->cache,
                      p->evict);
  return Value::none();
}

// ---- atomics -----------------------------------------------------------------------------------------------------------------------

std::optional<int64_t> semantics(Evaluator &e, const Value &v, std::string_view fn, int64_t fallback) {
  static const std::map<std::string, int64_t> kSem = {{"relaxed", 1}, {"acquire", 2}, {"release", 3}, {"acq_rel", 4}};
  std::optional<std::string> s = strArg(e, v, fn, "sem");
  if (!s) return std::nullopt;
  if (s->empty()) return fallback;
  std::map<std::string, int64_t>::const_iterator it = kSem.find(*s);
  if (it == kSem.end()) {
    e.c.fail(diag::TrMemorySemantic, *s);
    return std::nullopt;
  }
  return it->second;
}
std::optional<int64_t> scope(Evaluator &e, const Value &v, std::string_view fn) {
  static const std::map<std::string, int64_t> kScope = {{"", 1}, {"gpu", 1}, {"cta", 2}, {"sys", 3}};
  std::optional<std::string> s = strArg(e, v, fn, "scope");
  if (!s) return std::nullopt;
  std::map<std::string, int64_t>::const_iterator it = kScope.find(*s);
  if (it == kScope.end()) {
    e.c.fail(diag::TrMemorySemantic, *s);
    return std::nullopt;
  }
  return it->second;
}

/// Pointer, value and mask of an atomic in one shape; a missing mask becomes true.
bool atomicOperands(Evaluator &e, Value &ptr, Value *val, Value &mask, std::string_view op) {
  if (!ptr.isTensor() || !ptr.type->element.isPtr()) {
    e.c.fail(diag::TrPointer, ptr.isTensor() ? ptr.type->str() : typeName(ptr), "atomic_" + std::string(op));
    return false;
  }
  if (val && ptr.type->element.isConst) {
    e.c.fail(diag::TrConstStore);
    return false;
  }
  if (val && !(*val = tensorArg(e, *val))) return false;
  bool masked = !mask.isNone();
  if (masked && !(mask = tensorArg(e, mask))) return false;
  std::vector<int64_t> shape = ptr.type->shape;
  if (!ptr.type->isBlock()) {
    if ((val && !scalarOnly(e, *val, "Value")) || (masked && !scalarOnly(e, mask, "Mask"))) return false;
  } else {
    if ((val && !e.s.broadcast(ptr, *val)) || (masked && !e.s.broadcast(ptr, mask)) ||
        (val && !e.s.broadcast(ptr, *val)))
      return false;
    if (ptr.type->shape != shape) {
      e.c.fail(diag::TrStoreShape, fmt::join(ptr.type->shape, ", "), fmt::join(shape, ", "));
      return false;
    }
  }
  if (val && !(*val = e.s.cast(*val, ptr.type->element.pointee()))) return false;
  if (!masked)
    mask = e.s.full(ptr.type->shape, Value::boolean(true), scalar(DT::I1));
  else if (!mask.type->element.isBool()) {
    e.c.fail(diag::TrMaskType, mask.type->str());
    return false;
  }
  return bool(mask);
}

Value rmw(Evaluator &e, int64_t op, const Value &ptr, const Value &val, const Value &mask, int64_t sem, int64_t scope) {
  return e.s.result(e.s.op("tt.atomic_rmw", {val.handle.getType()}, {ptr.handle, val.handle, mask.handle},
                           {e.s.i32Attr("atomic_rmw_op", op), e.s.i32Attr("sem", sem), e.s.i32Attr("scope", scope)}),
                    *val.type);
}

Value atomicRmw(Evaluator &e, const Builtin &b, Args &a) {
  std::string_view name = shortName(b).substr(7); // behind "atomic_"
  static const std::map<std::string_view, int64_t> kOps = {{"and", 1}, {"or", 2},  {"xor", 3},  {"add", 4},
                                                           {"max", 6}, {"min", 7}, {"xchg", 10}};
  Value ptr = a[0], val = a[1], mask = a[2];
  std::optional<int64_t> sem = semantics(e, a[3], shortName(b), 4), sc = scope(e, a[4], shortName(b));
  if (!sem || !sc || !atomicOperands(e, ptr, &val, mask, name)) return {};
  Scalar t = val.type->element;
  bool half = t.is(DT::F16) || t.is(DT::BF16);
  if ((half && name != "add") || t.is(DT::I16) || t.is(DT::U16) || t.bits() < 16)
    return e.c.fail(diag::TrAtomicType, name, half ? (t.is(DT::F16) ? "fp16" : "bf16") : t.str());
  if (t.isFloat() && (name == "and" || name == "or" || name == "xor"))
    return e.c.fail(diag::TrAtomicType, name, t.str());
  int64_t op = kOps.at(name);
  if (name == "add" && t.isFloat()) op = 5;
  if ((name == "max" || name == "min") && t.isUnsigned()) op = name == "max" ? 8 : 9;
  if ((name != "max" && name != "min") || !t.isFloat()) return rmw(e, op, ptr, val, mask, *sem, *sc);
  // Floats order as signed integers where they are positive, and in reverse as unsigned ones where they are negative.
  bool wide = t.is(DT::F64);
  Scalar si = scalar(wide ? DT::I64 : DT::I32), ui = scalar(wide ? DT::U64 : DT::U32);
  Value bits = e.s.bitcast(val, ui);
  Value neg = e.s.cast(e.s.shift(OpKind::RShift, bits, Value::integer(t.bits() - 1)), scalar(DT::I1));
  Value pos = e.s.notOp(neg);
  Value up = rmw(e, name == "max" ? 6 : 7, e.s.bitcast(ptr, si.pointer()), e.s.bitcast(val, si),
                 e.s.bitwise(OpKind::BitAnd, mask, pos), *sem, *sc);
  Value down = rmw(e, name == "max" ? 9 : 8, e.s.bitcast(ptr, ui.pointer()), bits,
                   e.s.bitwise(OpKind::BitAnd, mask, neg), *sem, *sc);
  return e.s.bitcast(e.s.where(pos, up, e.s.bitcast(down, si)), t);
}

Value atomicCas(Evaluator &e, const Builtin &, Args &a) {
  std::optional<int64_t> sem = semantics(e, a[3], "atomic_cas", 4), sc = scope(e, a[4], "atomic_cas");
  Value ptr = a[0], cmp = tensorArg(e, a[1]), val = tensorArg(e, a[2]);
  if (!sem || !sc || !cmp || !val) return {};
  if (!ptr.isTensor() || !ptr.type->element.isPtr())
    return e.c.fail(diag::TrPointer, ptr.isTensor() ? ptr.type->str() : typeName(ptr), "atomic_cas");
  Scalar t = ptr.type->element.pointee();
  if (t.bits() != 16 && t.bits() != 32 && t.bits() != 64) return e.c.fail(diag::TrAtomicWidth, "atomic_cas", t.str());
  cmp = e.s.cast(cmp, t);
  val = e.s.cast(val, t);
  if (!cmp || !val) return {};
  if (ptr.type->isBlock()) {
    cmp = e.s.broadcastTo(cmp, ptr.type->shape);
    val = e.s.broadcastTo(val, ptr.type->shape);
    if (!cmp || !val) return {};
  } else if (!scalarOnly(e, cmp, "Value") || !scalarOnly(e, val, "Value")) {
    return {};
  }
  return e.s.result(e.s.op("tt.atomic_cas", {val.handle.getType()}, {ptr.handle, cmp.handle, val.handle},
                           {e.s.i32Attr("sem", *sem), e.s.i32Attr("scope", *sc)}),
                    *val.type);
}

Value atomicLoadStore(Evaluator &e, const Builtin &b, Args &a) {
  bool isLoad = shortName(b) == "atomic_load";
  size_t at = isLoad ? 1 : 2;
  Value ptr = a[0], val = isLoad ? Value{} : a[1], mask = a[at];
  std::optional<int64_t> sem = semantics(e, a[at + 1], shortName(b), isLoad ? 2 : 3),
                         sc = scope(e, a[at + 2], shortName(b));
  if (!sem || !sc) return {};
  if (*sem != 1 && *sem != (isLoad ? 2 : 3))
    return e.c.fail(diag::TrAtomicSemantics, shortName(b), isLoad ? "acquire" : "release");
  if (!atomicOperands(e, ptr, isLoad ? nullptr : &val, mask, isLoad ? "load" : "store")) return {};
  Scalar element = ptr.type->element.pointee();
  bool isBool = element.isBool();
  if (isBool) {
    ptr = bytePointer(e, ptr);
    element = scalar(DT::I8);
    if (!isLoad) val = e.s.cast(val, element);
  }
  llvm::SmallVector<mlir::NamedAttribute> attrs = {e.s.i32Attr("sem", *sem), e.s.i32Attr("scope", *sc)};
  if (!isLoad) {
    e.s.op("tt.atomic_store", {}, {ptr.handle, val.handle, mask.handle}, attrs);
    return Value::none();
  }
  Type t = ptr.type->with(element);
  Value v = e.s.result(e.s.op("tt.atomic_load", {e.s.irType(t)}, {ptr.handle, mask.handle}, attrs), t);
  return isBool ? e.s.cast(v, scalar(DT::I1)) : v;
}

Value atomicPoll(Evaluator &e, const Builtin &, Args &a) {
  std::optional<int64_t> sem = semantics(e, a[2], "atomic_poll", 2), sc = scope(e, a[3], "atomic_poll");
  if (!sem || !sc) return {};
  Value ptr = a[0];
  if (!ptr.isTensor() || !ptr.type->element.isPtr() || ptr.type->isBlock())
    return e.c.fail(diag::TrPointer, ptr.isTensor() ? ptr.type->str() : typeName(ptr), "atomic_poll");
  Scalar t = ptr.type->element.pointee();
  if (!t.isInt() || t.bits() < 16) return e.c.fail(diag::TrAtomicWidth, "atomic_poll", t.str());
  Value expected = tensorArg(e, a[1]);
  expected = e.s.cast(expected, t);
  if (!expected) return {};
  llvm::SmallVector<mlir::Value> operands = {ptr.handle, expected.handle};
  if (!a[4].isNone()) {
    Value timeout = e.s.makeScalar(a[4], scalar(DT::U64));
    if (!timeout) return {};
    operands.push_back(timeout.handle);
  }
  return e.s.result(e.s.op("tt.atomic_poll", {e.c.builder.getI1Type()}, operands,
                           {e.s.i32Attr("sem", *sem), e.s.i32Attr("scope", *sc)}),
                    {scalar(DT::I1), {}});
}

// ---- tensor descriptors ------------------------------------------------------------------------------------------------------------

Value makeDescriptor(Evaluator &e, const Builtin &, Args &a) {
  if (!a[0].isTensor() || !a[0].type->element.isPtr() || a[0].type->isBlock())
    return e.c.fail(diag::TrPointer, a[0].isTensor() ? a[0].type->str() : typeName(a[0]), "make_tensor_descriptor");
  if (!a[1].isSequence() || !a[2].isSequence())
    return e.c.fail(diag::TrNotList, a[1].isSequence() ? "strides" : "shape", "make_tensor_descriptor",
                    typeName(a[1].isSequence() ? a[2] : a[1]));
  std::optional<std::vector<int64_t>> block = intsArg(e, a[3], "make_tensor_descriptor", "block_shape");
  std::optional<std::string> padding = strArg(e, a[4], "make_tensor_descriptor", "padding_option");
  if (!block || !padding || !e.s.checkShape(*block)) return {};
  size_t n = a[1].items().size();
  if (n < 1 || n > 5)
    return e.c.fail(diag::TrDescriptor, fmt::format("Expected 1 <= ndim <= 5 but got {} dimensions", n));
  if (a[2].items().size() != n)
    return e.c.fail(diag::TrDescriptor, fmt::format("Expected {} strides but got {}", n, a[2].items().size()));
  if (block->size() != n)
    return e.c.fail(diag::TrDescriptor,
                    fmt::format("Expected block_shape to have {} dimensions but got {}", n, block->size()));
  Scalar element = a[0].type->element.pointee();
  int64_t bytes = element.bits() / 8;
  if (block->back() * bytes < 16)
    return e.c.fail(
        diag::TrDescriptor,
        fmt::format(
            "Descriptor block shape must have at least 16 bytes in the last dimension, but got {} * {} = {} bytes",
            block->back(), bytes, block->back() * bytes));
  const Value &last = a[2].items().back();
  if (!last.isIntLike() || last.i != 1)
    return e.c.fail(diag::TrDescriptor, "Tensor descriptor last dim must be 1 but got " + repr(last));
  for (size_t i = 0; i + 1 < n; ++i)
    if (const Value &s = a[2].items()[i]; s.isIntLike() && (s.i * bytes) % 16 != 0)
      return e.c.fail(
          diag::TrDescriptor,
          fmt::format("Tensor descriptor strides must be 16-byte aligned, but got a stride of {} * {} = {} bytes",
                      int128ToString(s.i), bytes, int128ToString(s.i * bytes)));
  std::vector<Value> shape, strides;
  std::vector<mlir::Value> operands = {a[0].handle};
  for (int part = 0; part < 2; ++part)
    for (const Value &v : a[static_cast<size_t>(1 + part)].items()) {
      Value s = e.s.makeScalar(v, scalar(part == 0 ? DT::I32 : DT::I64));
      if (!s) return {};
      (part == 0 ? shape : strides).push_back(s);
      operands.push_back(s.handle);
    }
  if (*padding == "nan" && element.isInt())
    return e.c.fail(diag::TrDescriptor, "Padding option `nan` is not supported for integer blocks");
  if (*padding != "zero" && *padding != "nan" && !padding->empty()) return e.c.fail(diag::TrPadding, *padding);
  mlir::Type ir = tt::TensorDescType::get(e.c.builder.getContext(), *block, e.s.irType(element));
  mlir::Operation *op =
      e.s.op("tt.make_tensor_descriptor", {ir}, operands, {e.s.i32Attr("padding", *padding == "nan" ? 2 : 1)});
  Object *o;
  Value v = e.c.object(Kind::Descriptor, &o);
  v.handle = op->getResult(0);
  o->items = shape;
  o->items.insert(o->items.end(), strides.begin(), strides.end());
  o->shape = *block;
  o->element = element;
  return v;
}

bool isDescriptor(Evaluator &e, const Value &v) {
  if (v.kind == Kind::Descriptor) return true;
  if (v) e.c.fail(diag::TrDescriptor, "expected a tensor descriptor, got " + typeName(v));
  return false;
}

std::optional<std::vector<mlir::Value>> descriptorOffsets(Evaluator &e, const Value &d, const Value &offsets) {
  size_t n = d.o->shape.size();
  Value list = offsets.isSequence() ? offsets : e.c.tuple({offsets});
  if (list.items().size() != n) {
    e.c.fail(diag::TrDescriptor, fmt::format("expected {} offsets, but got {}", n, list.items().size()));
    return std::nullopt;
  }
  std::optional<std::vector<Value>> parts = scalars(e, list, DT::I32, "descriptor", "offsets");
  if (!parts) return std::nullopt;
  std::vector<mlir::Value> out;
  for (const Value &v : *parts) out.push_back(v.handle);
  return out;
}

Value descriptorLoad(Evaluator &e, const Builtin &, Args &a) {
  if (!isDescriptor(e, a[0])) return {};
  std::optional<std::vector<mlir::Value>> at = descriptorOffsets(e, a[0], a[1]);
  if (!at) return {};
  at->insert(at->begin(), a[0].handle);
  Type t{a[0].o->element, a[0].o->shape};
  return e.s.result(e.s.op("tt.descriptor_load", {e.s.irType(t)}, *at), t);
}

bool storeLike(Evaluator &e, const Value &d, Value &v) {
  v = tensorArg(e, v);
  if (!v) return false;
  if (v.type->shape == d.o->shape) return true;
  e.c.fail(diag::TrDescriptor, fmt::format("expected value shape [{}], got [{}]", fmt::join(d.o->shape, ", "),
                                           fmt::join(v.type->shape, ", ")));
  return false;
}

Value descriptorStore(Evaluator &e, const Builtin &, Args &a) {
  if (!isDescriptor(e, a[0])) return {};
  std::optional<std::vector<mlir::Value>> at = descriptorOffsets(e, a[0], a[1]);
  if (!at || !storeLike(e, a[0], a[2])) return {};
  Value v = e.s.cast(a[2], a[0].o->element);
  if (!v) return {};
  at->insert(at->begin(), {a[0].handle, v.handle});
  e.s.op("tt.descriptor_store", {}, *at);
  return Value::none();
}

Value descriptorAtomic(Evaluator &e, const Builtin &b, Args &a) {
  if (!isDescriptor(e, a[0])) return {};
  static const std::map<std::string_view, int64_t> kKinds = {{"atomic_add", 1}, {"atomic_min", 2}, {"atomic_max", 3},
                                                             {"atomic_and", 6}, {"atomic_or", 7},  {"atomic_xor", 8}};
  std::optional<std::vector<mlir::Value>> at = descriptorOffsets(e, a[0], a[1]);
  if (!at || !storeLike(e, a[0], a[2])) return {};
  Scalar t = a[0].o->element;
  std::string_view n = shortName(b);
  bool integers = t.is(DT::I32) || t.is(DT::U32) || t.is(DT::U64);
  bool ok = n == "atomic_add" ? integers || t.is(DT::F32) || t.is(DT::F16) || t.is(DT::BF16)
                              : integers || t.is(DT::I64) ||
                                    ((n == "atomic_min" || n == "atomic_max") && (t.is(DT::F16) || t.is(DT::BF16)));
  if (!ok) return e.c.fail(diag::TrDescriptor, fmt::format("Unsupported dtype {} for {}", t.str(), n));
  Value v = e.s.cast(a[2], t);
  if (!v) return {};
  at->insert(at->begin(), {a[0].handle, v.handle});
  e.s.op("tt.descriptor_reduce", {}, *at, {e.s.i32Attr("kind", kKinds.at(n))});
  return Value::none();
}

Value descriptorGather(Evaluator &e, const Builtin &b, Args &a) {
  if (!isDescriptor(e, a[0])) return {};
  bool scatter = shortName(b) == "scatter";
  size_t first = scatter ? 2 : 1;
  const Value &d = a[0];
  Value xs = tensorArg(e, a[first]);
  if (!xs) return {};
  if (d.o->shape.size() != 2 || d.o->shape[0] != 1)
    return e.c.fail(diag::TrDescriptor, fmt::format("descriptor block must be 2D and have 1 row, but got [{}]",
                                                    fmt::join(d.o->shape, ", ")));
  if (xs.type->shape.size() != 1)
    return e.c.fail(diag::TrDescriptor, "x offsets must be 1D, but got " + xs.type->str());
  if (!xs.type->element.is(DT::I32) && !xs.type->element.is(DT::I16))
    return e.c.fail(diag::TrDescriptor, "x offsets must have dtype int16 or int32, but got " + xs.type->element.str());
  if (xs.type->shape[0] < 8)
    return e.c.fail(diag::TrDescriptor, fmt::format("descriptor {} must have at least 8 rows, but got {}", shortName(b),
                                                    xs.type->shape[0]));
  int64_t minCols = 32 / d.o->element.bits() * 8;
  if (d.o->shape[1] < minCols)
    return e.c.fail(diag::TrDescriptor, fmt::format("descriptor {} of {} must have at least {} columns, but got {}",
                                                    shortName(b), d.o->element.str(), minCols, d.o->shape[1]));
  xs = e.s.cast(xs, scalar(DT::I32));
  Value y = e.s.makeScalar(a[first + 1], scalar(DT::I32));
  if (!xs || !y) return {};
  Type t{d.o->element, {xs.type->shape[0], d.o->shape[1]}};
  if (!scatter) return e.s.result(e.s.op("tt.descriptor_gather", {e.s.irType(t)}, {d.handle, xs.handle, y.handle}), t);
  Value v = e.s.cast(tensorArg(e, a[1]), d.o->element);
  if (!v) return {};
  if (v.type->shape != t.shape)
    return e.c.fail(diag::TrDescriptor,
                    fmt::format("expected value shape [{}], got {}", fmt::join(t.shape, ", "), v.type->str()));
  e.s.op("tt.descriptor_scatter", {}, {d.handle, xs.handle, y.handle, v.handle});
  return Value::none();
}

} // namespace

const std::vector<Builtin> kMemoryFunctions = {
    {"tl.load",
     "pointer, mask=None, other=None, boundary_check=(), padding_option='', cache_modifier='', eviction_policy='', "
     "volatile=False",
     load},
    {"tl.store", "pointer, value, mask=None, boundary_check=(), cache_modifier='', eviction_policy=''", store},
    {"tl.atomic_add", "pointer, val, mask=None, sem=None, scope=None", atomicRmw},
    {"tl.atomic_max", "pointer, val, mask=None, sem=None, scope=None", atomicRmw},
    {"tl.atomic_min", "pointer, val, mask=None, sem=None, scope=None", atomicRmw},
    {"tl.atomic_and", "pointer, val, mask=None, sem=None, scope=None", atomicRmw},
    {"tl.atomic_or", "pointer, val, mask=None, sem=None, scope=None", atomicRmw},
    {"tl.atomic_xor", "pointer, val, mask=None, sem=None, scope=None", atomicRmw},
    {"tl.atomic_xchg", "pointer, val, mask=None, sem=None, scope=None", atomicRmw},
    {"tl.atomic_cas", "pointer, cmp, val, sem=None, scope=None", atomicCas},
    {"tl.atomic_load", "pointer, mask=None, sem=None, scope=None", atomicLoadStore},
    {"tl.atomic_store", "pointer, val, mask=None, sem=None, scope=None", atomicLoadStore},
    {"tl.atomic_poll", "pointer, expected_value, sem='acquire', scope='gpu', timeout_ns=None", atomicPoll},
    {"tl.make_block_ptr", "base, shape, strides, offsets, block_shape, order", makeBlockPtr},
    {"tl.advance", "base, offsets", advance},
    {"tl.make_tensor_descriptor", "base, shape, strides, block_shape, padding_option='zero'", makeDescriptor},
    {"tl._experimental_make_tensor_descriptor", "base, shape, strides, block_shape, padding_option='zero'",
     makeDescriptor},
    {"tl.load_tensor_descriptor", "desc, offsets", descriptorLoad},
    {"tl.store_tensor_descriptor", "desc, offsets, value", descriptorStore},
    {"tl._experimental_descriptor_load", "desc, offsets, shape=None, dtype=None", descriptorLoad},
    {"descriptor.load", "self, offsets", descriptorLoad},
    {"descriptor.store", "self, offsets, value", descriptorStore},
    {"descriptor.atomic_add", "self, offsets, value", descriptorAtomic},
    {"descriptor.atomic_min", "self, offsets, value", descriptorAtomic},
    {"descriptor.atomic_max", "self, offsets, value", descriptorAtomic},
    {"descriptor.atomic_and", "self, offsets, value", descriptorAtomic},
    {"descriptor.atomic_or", "self, offsets, value", descriptorAtomic},
    {"descriptor.atomic_xor", "self, offsets, value", descriptorAtomic},
    {"descriptor.gather", "self, x_offsets, y_offset", descriptorGather},
    {"descriptor.scatter", "self, value, x_offsets, y_offset", descriptorGather},
};

} // namespace neso::triton
