#include "lower/graph_to_loops/op_call.h"
#include "lower/graph_to_loops/in_place.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "ir/graph/ops.h"
#include "ir/graph/visit.h"
#include "lower/graph_to_loops/operand_dtypes.h"

namespace neso::lower {

using graph::Argument;
using graph::ValueId;

/// Calls fn with each of the names, which blanks separate, as targets of the graph.
static void forEachTarget(std::string_view names, const std::function<void(const std::string &)> &fn) {
  size_t at = 0;
  while (at < names.size()) {
    size_t end = names.find(' ', at);
    if (end == std::string_view::npos) end = names.size();
    if (end > at) {
      const std::string name(names.substr(at, end - at));
      const bool qualified = name.find("::") != std::string::npos;
      fn(qualified ? name.substr(name.find("::") + 2) : "aten." + name);
    }
    at = end + 1;
  }
}

void OpTable::add(std::string_view names, LowerFn fn) {
  forEachTarget(names, [&](const std::string &target) { rows_[target] = {fn, family_}; });
}

void OpTable::forEachRow(std::string_view names, const std::function<void(OpRow &)> &fn) {
  forEachTarget(names, [&](const std::string &target) {
    bool found = false;
    for (auto &[name, row] : rows_)
      if (name == target || (name.starts_with(target) && name[target.size()] == '.')) fn(row), found = true;
    NESO_CHECK(found, "a statement about an operator without a row");
  });
}

void OpTable::onComplex(OnComplex what, std::string_view names) {
  forEachRow(names, [what](OpRow &row) { row.complex = what; });
}

const OpRow *OpTable::find(std::string_view target) const {
  auto it = rows_.find(std::string(target));
  return it == rows_.end() ? nullptr : &it->second;
}

std::vector<std::string> OpTable::targets() const {
  std::vector<std::string> names;
  for (const auto &[name, lower] : rows_) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

const OpTable &OpTable::instance() {
  static const OpTable table = [] {
    OpTable t;
#define NESO_ADD_FAMILY(F)                                                                                             \
  t.family(OnComplex::Refuse);                                                                                         \
  add##F(t);
    NESO_LOWER_FAMILIES(NESO_ADD_FAMILY)
#undef NESO_ADD_FAMILY
    return t;
  }();
  return table;
}

bool OpCall::has(std::string_view name) const {
  const Argument *a = node.arg(name);
  return a && !std::holds_alternative<graph::None>(*a);
}

Tensors OpCall::fail(std::string why) {
  if (!failed_) reason_ = std::move(why);
  failed_ = true;
  return {};
}

Expr OpCall::exprOf(ValueId id) {
  const graph::Value &v = graph_.value(id);
  if (v.expr.valid()) return v.expr;
  fail("the size '" + v.name + "' depends on the data");
  return 1;
}

Tensor OpCall::fromValue(ValueId id) {
  if (!id.valid()) return {};
  auto it = values_.find(id.value);
  const graph::Value &v = graph_.value(id);
  if (it != values_.end()) return v.kind == graph::Value::Kind::Tensor ? it->second : it->second.asNumber();
  if (v.kind == graph::Value::Kind::SymInt) return scalarExpr(ctx, exprOf(id));
  if (v.kind == graph::Value::Kind::SymBool) return cast(scalarExpr(ctx, exprOf(id)), DType::Bool).asNumber();
  fail("'" + v.name + "' has no value");
  return full(ctx, v.kind == graph::Value::Kind::Tensor ? v.type.sizes : Sizes{}, v.type.dtype, 0);
}

Tensor OpCall::opt(std::string_view name) {
  const Argument *a = node.arg(name);
  return a ? partOf(name, fromArgument(*a)) : Tensor();
}

Tensor OpCall::operand(size_t position) {
  Tensor x = position < node.args.size() ? fromArgument(node.args[position]) : Tensor();
  if (x.valid()) return x;
  fail("operand " + std::to_string(position) + " is no number");
  return scalarInt(ctx, 0);
}

Tensor OpCall::fromArgument(const Argument &argument) {
  const Argument *a = &argument;
  if (const ValueId *id = std::get_if<ValueId>(a)) return fromValue(*id);
  if (const int64_t *i = std::get_if<int64_t>(a)) return scalarInt(ctx, *i);
  if (const double *d = std::get_if<double>(a)) return scalarFloat(ctx, *d);
  if (const bool *b = std::get_if<bool>(a)) return fullInt(ctx, {}, DType::Bool, *b).asNumber();
  if (const graph::ComplexValue *c = std::get_if<graph::ComplexValue>(a))
    return Tensor::complex(full(ctx, {}, DType::F64, c->real), full(ctx, {}, DType::F64, c->imag), DType::C128)
        .asNumber();
  return {};
}

Tensor OpCall::t(std::string_view name) {
  Tensor x = opt(name);
  if (x.valid()) return x;
  // The first argument has many names: self, input, x, A.
  if (name == "self" && !node.args.empty() && !node.arg(name))
    if (const ValueId *id = std::get_if<ValueId>(&node.args[0])) return partOf(name, fromValue(*id));
  fail("argument '" + std::string(name) + "' is missing");
  return scalarInt(ctx, 0);
}

Tensors OpCall::list(std::string_view name) {
  Tensors out;
  const Argument *a = node.arg(name);
  if (!a) return out;
  if (const std::vector<ValueId> *ids = std::get_if<std::vector<ValueId>>(a))
    for (ValueId id : *ids) out.push_back(partOf(name, fromValue(id)));
  if (const ValueId *id = std::get_if<ValueId>(a)) out.push_back(partOf(name, fromValue(*id)));
  return out;
}

std::optional<Expr> OpCall::optExpr(std::string_view name) {
  const Argument *a = node.arg(name);
  if (!a) return std::nullopt;
  if (const int64_t *i = std::get_if<int64_t>(a)) return Expr(*i);
  if (const bool *b = std::get_if<bool>(a)) return Expr(*b ? 1 : 0);
  if (const double *d = std::get_if<double>(a)) return Expr(static_cast<int64_t>(*d));
  if (const ValueId *id = std::get_if<ValueId>(a)) return exprOf(*id);
  return std::nullopt;
}

Expr OpCall::expr(std::string_view name, Expr otherwise) { return optExpr(name).value_or(otherwise); }

int64_t OpCall::integer(std::string_view name, int64_t otherwise) {
  Expr e = ctx.facts.simplify(expr(name, otherwise));
  if (e.isConst()) return e.constValue();
  fail("argument '" + std::string(name) + "' must be a constant");
  return otherwise;
}

double OpCall::number(std::string_view name, double otherwise) {
  const Argument *a = node.arg(name);
  if (!a) return otherwise;
  if (const double *d = std::get_if<double>(a)) return *d;
  if (const int64_t *i = std::get_if<int64_t>(a)) return static_cast<double>(*i);
  if (const bool *b = std::get_if<bool>(a)) return *b ? 1 : 0;
  if (const graph::ComplexValue *c = std::get_if<graph::ComplexValue>(a)) {
    if (c->imag != 0) fail("argument '" + std::string(name) + "' is a complex number, and only a real one can be compiled here");
    return c->real;
  }
  if (const ValueId *id = std::get_if<ValueId>(a)) {
    Expr e = ctx.facts.simplify(exprOf(*id));
    if (e.isConst()) return static_cast<double>(e.constValue());
    fail("argument '" + std::string(name) + "' must be a constant");
  }
  return otherwise;
}

bool OpCall::flag(std::string_view name, bool otherwise) { return number(name, otherwise) != 0; }

Sizes OpCall::exprs(std::string_view name) {
  Sizes out;
  const Argument *a = node.arg(name);
  if (!a) return out;
  if (const auto *list = std::get_if<std::vector<graph::IntOrSym>>(a)) {
    for (const graph::IntOrSym &x : *list)
      out.push_back(std::holds_alternative<int64_t>(x) ? Expr(std::get<int64_t>(x)) : exprOf(std::get<ValueId>(x)));
  } else if (const auto *ids = std::get_if<std::vector<ValueId>>(a)) {
    for (ValueId id : *ids) out.push_back(exprOf(id));
  } else if (std::optional<Expr> one = optExpr(name)) {
    out.push_back(*one);
  }
  return out;
}

Dims OpCall::ints(std::string_view name) {
  Dims out;
  for (Expr e : exprs(name)) {
    e = ctx.facts.simplify(e);
    if (!e.isConst()) fail("argument '" + std::string(name) + "' must be constant");
    out.push_back(e.isConst() ? e.constValue() : 1);
  }
  return out;
}

std::vector<double> OpCall::numbers(std::string_view name) {
  const Argument *a = node.arg(name);
  if (!a) return {};
  if (const auto *ds = std::get_if<std::vector<double>>(a)) return *ds;
  std::vector<double> out;
  for (int64_t i : ints(name)) out.push_back(static_cast<double>(i));
  return out;
}

std::string OpCall::text(std::string_view name, std::string otherwise) {
  const Argument *a = node.arg(name);
  const std::string *s = a ? std::get_if<std::string>(a) : nullptr;
  return s ? *s : otherwise;
}

std::optional<DType> OpCall::dtype(std::string_view name) {
  const Argument *a = node.arg(name);
  const DType *t = a ? std::get_if<DType>(a) : nullptr;
  if (!t) return std::nullopt;
  return part_ == Part::Whole ? *t : toReal(*t);
}

static std::vector<ValueId> flatOutputs(const graph::Node &node) {
  std::vector<ValueId> ids;
  for (const std::vector<ValueId> &entry : node.outputs) ids.insert(ids.end(), entry.begin(), entry.end());
  return ids;
}

const graph::TensorType *OpCall::typeOf(std::string_view name) const {
  const Argument *a = node.arg(name);
  const ValueId *id = a ? std::get_if<ValueId>(a) : nullptr;
  return id && id->valid() && graph_.value(*id).kind == graph::Value::Kind::Tensor ? &typeOfPart(graph_.value(*id).type) : nullptr;
}

bool OpCall::over(const Tensor &x, const Sizes &sizes, const Strided &part, Tensors &reads) {
  return memory_ && memory_->over(ctx, node, x, {sizes, part}, reads, values_);
}

OpCall::OpCall(const OpCall &whole, Part part)
    : ctx(whole.ctx), node(whole.node), graph_(whole.graph_), values_(whole.values_), memory_(nullptr), part_(part) {}

const graph::TensorType &OpCall::typeOfPart(const graph::TensorType &type) const {
  if (part_ == Part::Whole || !isComplex(type.dtype)) return type;
  partTypes_.push_back(std::make_unique<graph::TensorType>(type));
  partTypes_.back()->dtype = toReal(type.dtype);
  return *partTypes_.back();
}

Tensor OpCall::partOf(std::string_view name, const Tensor &x) const {
  // What says where, and not what, is the same for both parts.
  static constexpr std::string_view kPlaces[] = {"index", "indices", "mask", "condition"};
  if (part_ == Part::Whole || !x.valid() || std::find(std::begin(kPlaces), std::end(kPlaces), name) != std::end(kPlaces)) return x;
  const Tensor y = part_ == Part::Real ? x.real() : x.imag();
  return x.isNumber() ? y.asNumber() : y;
}

bool OpCall::meetsComplex() const {
  auto is = [&](ValueId id) { return id.valid() && graph_.value(id).kind == graph::Value::Kind::Tensor && isComplex(graph_.value(id).type.dtype); };
  auto any = [&](const std::vector<ValueId> &ids) { return std::any_of(ids.begin(), ids.end(), is); };
  for (const Argument &a : node.args) {
    if (const ValueId *id = std::get_if<ValueId>(&a); id && is(*id)) return true;
    if (const auto *ids = std::get_if<std::vector<ValueId>>(&a); ids && any(*ids)) return true;
    if (std::holds_alternative<graph::ComplexValue>(a)) return true;
  }
  return any(flatOutputs(node));
}

Tensors OpCall::byParts(LowerFn fn) {
  Tensors parts[2];
  for (Part part : {Part::Real, Part::Imag}) {
    OpCall call(*this, part);
    parts[part == Part::Imag] = fn(call);
    if (call.failed()) return fail(call.reason());
    assumed_.insert(assumed_.end(), call.assumed().begin(), call.assumed().end());
  }
  Tensors results = parts[0];
  for (size_t k = 0; k < results.size() && k < outCount(); ++k) {
    const DType t = out(k).dtype;
    if (results[k].valid() && isComplex(t)) results[k] = Tensor::complex(cast(results[k], toReal(t)), cast(parts[1][k], toReal(t)), t);
  }
  return results;
}

Tensors OpCall::lower(const OpRow &row) {
  if (std::string why = operandDtypeFault(graph_, node); !why.empty()) return fail(std::move(why));
  if (row.complex == OnComplex::Own || !meetsComplex()) return row.fn(*this);
  return row.complex == OnComplex::Parts ? byParts(row.fn) : fail("complex numbers are not supported here");
}

Tensors OpCall::instead(std::string target, const std::vector<Named> &arguments, std::vector<ValueId> results) {
  graph::Node other;
  other.name = node.name, other.loc = node.loc, other.module = node.module;
  other.target = std::move(target);
  for (const Named &a : arguments) {
    other.args.push_back(a.value);
    other.argNames.push_back(a.name);
  }
  other.outputs = {std::move(results)};
  const OpRow *row = OpTable::instance().find(other.target);
  if (!row || !graph::bindArguments(other, graph_)) return fail("'" + other.target + "' does not take these arguments");
  OpCall call(ctx, graph_, other, values_);
  Tensors out = call.lower(*row);
  if (call.failed()) return fail(call.reason());
  assumed_.insert(assumed_.end(), call.assumed().begin(), call.assumed().end());
  return out;
}

void OpCall::assumeEqual(Expr a, Expr b) {
  if (!ctx.equal(a, b)) assume(eq(a, b));
}

bool OpCall::givesFloat() const {
  std::vector<ValueId> ids = flatOutputs(node);
  return ids.size() == 1 && ids[0].valid() && graph_.value(ids[0]).kind == graph::Value::Kind::SymFloat;
}

size_t OpCall::outCount() const { return flatOutputs(node).size(); }

bool OpCall::isRead(size_t k) const {
  const std::vector<ValueId> ids = flatOutputs(node);
  if (k >= ids.size() || !ids[k].valid()) return false;
  bool read = false;
  const auto look = [&](ValueId v) { read |= v == ids[k]; };
  for (const graph::Node &n : graph_.nodes) graph::forEachInput(n, look);
  for (const graph::Argument &a : graph_.outputs) graph::forEachValue(a, look);
  return read;
}

const graph::TensorType &OpCall::out(size_t i) const {
  static const graph::TensorType none{};
  std::vector<ValueId> ids = flatOutputs(node);
  return i < ids.size() && ids[i].valid() ? typeOfPart(graph_.value(ids[i]).type) : none;
}

Expr OpCall::outExpr() const {
  const std::vector<ValueId> ids = flatOutputs(node);
  return ids.size() == 1 && ids[0].valid() ? graph_.value(ids[0]).expr : Expr();
}

} // namespace neso::lower
