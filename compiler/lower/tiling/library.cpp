#include "lower/tiling/library.h"

#include <algorithm>
#include <set>

#include "base/rules.h"
#include "ir/loops/access.h"
#include "ir/loops/build.h"
#include "lower/tiling/cost.h"

namespace neso {

using loops::Node;
using loops::Op;
using loops::OpKind;

namespace {

constexpr int64_t kWorkspaceBytes = 32 << 20, kLineBytes = 16;

/// Dimensions that count as one: their symbols and extents, outermost first.
struct Axis {
  std::vector<Symbol> symbols;
  std::vector<Expr> extents;
};

Axis axisOf(const std::vector<size_t> &dims, const std::vector<Expr> &ranges, Symbol (*symbolOf)(size_t)) {
  Axis out;
  for (size_t d : dims) out.symbols.push_back(symbolOf(d)), out.extents.push_back(ranges[d]);
  return out;
}

/// Takes `axis` out of an index: its one stride, or nothing when its dimensions do not lie along one.
std::optional<Expr> strideOf(Expr &index, const Axis &axis, const Facts &facts) {
  std::optional<Expr> stride;
  Expr inner;
  for (size_t i = axis.symbols.size(); i-- > 0;) {
    std::optional<Affine> a = affineIn(index, axis.symbols[i]);
    if (!a) return std::nullopt;
    index = a->rest;
    if (axis.extents[i].isConst(1)) continue;
    if (!stride)
      stride = a->coefficient;
    else if (!facts.provablyEqual(a->coefficient, inner))
      return std::nullopt;
    inner = a->coefficient * axis.extents[i];
  }
  return stride ? *stride : Expr(0);
}

/// index = offset + batch * stride + row * pitch + column, or column * pitch + row.
std::optional<plan::Matrix> matrixOf(loops::BufferId buffer, Expr index, const Axis &batch, const Axis &rows,
                                     const Axis &columns, const Facts &facts) {
  plan::Matrix m;
  m.buffer = buffer;
  std::optional<Expr> b = strideOf(index, batch, facts), r = strideOf(index, rows, facts),
                      c = strideOf(index, columns, facts);
  if (!b || !r || !c) return std::nullopt;
  for (Symbol s : symbolsOf(index))
    if (!s.isSize()) return std::nullopt;
  m.batchStride = *b, m.offset = index;
  for (Expr e : {*b, *r, *c, index})
    if (facts.rangeOf(e).lo < 0) return std::nullopt;
  const bool oneColumn = c->isConst(0), oneRow = r->isConst(0);
  if (c->isConst(1) || oneColumn)
    m.pitch = *r;
  else if (r->isConst(1) || oneRow)
    m.pitch = *c, m.transposed = true;
  else
    return std::nullopt;
  // A row that is broadcast has no pitch that the library knows.
  if (m.pitch.isConst(0) && !(oneRow && !oneColumn && product(rows.extents).isConst(1))) return std::nullopt;
  return m;
}

const Op *plainLoad(const loops::Body &body, loops::ValueIdx i) {
  const Op &op = body.ops[static_cast<size_t>(i)];
  return op.kind == OpKind::Load && op.a < 0 ? &op : nullptr;
}

/// Reads an epilogue from its stored value back to the sum: casts to the stored type, relu, a bias along n.
bool readEpilogue(const loops::Body &body, loops::ValueIdx value, DType stored, const Axis &n, const Facts &facts,
                  const plan::Plan &plan, plan::Product &out) {
  auto op = [&](loops::ValueIdx i) -> const Op & { return body.ops[static_cast<size_t>(i)]; };
  // What is stored is the sum in float32, rounded once.
  if (value > 0 && op(value).kind == OpKind::Cast && op(value).dtype == stored) value = op(value).a;
  if (value > 0 && op(value).kind == OpKind::Relu) out.relu = true, value = op(value).a;
  if (value > 0 && op(value).kind == OpKind::Add) {
    loops::ValueIdx added = op(value).a == 0 ? op(value).b : op(value).a;
    value = op(value).a == 0 ? op(value).a : op(value).b;
    if (op(added).kind == OpKind::Cast && op(added).dtype == DType::F32) added = op(added).a;
    const Op *load = plainLoad(body, added);
    if (!load || plan.program.buffer(load->buffer).dtype != stored) return false;
    Expr index = load->index;
    std::optional<Expr> stride = strideOf(index, n, facts);
    if (!stride || !stride->isConst(1) || facts.rangeOf(index).lo < 0) return false;
    for (Symbol s : symbolsOf(index))
      if (!s.isSize()) return false;
    out.bias = load->buffer, out.biasOffset = index;
  }
  return value <= 0;
}

/// The nodes behind the contraction as a kernel, with the sum in `sum` in place of `stored`.
plan::Kernel restOf(const plan::Kernel &kernel, loops::BufferId stored, loops::BufferId sum) {
  plan::Kernel rest;
  rest.name = kernel.name + "_rest";
  rest.kind = Node::Kind::Pointwise;
  rest.xRanges = kernel.xRanges;
  rest.nodes.assign(kernel.nodes.begin() + 1, kernel.nodes.end());
  rest.decisions = {"what " + kernel.name + " does beside the product when a library computes that"};
  for (Node &n : rest.nodes)
    loops::rewriteAccesses(n, [&](loops::BufferId &buffer, Expr &, const loops::Access &a) {
      if (a.reads() && buffer == stored) buffer = sum;
    });
  return rest;
}

} // namespace

std::optional<LibraryForm> libraryForm(const plan::Plan &plan, const plan::Kernel &kernel, const DotTiling &c,
                                       const TileTarget &target) {
  if (target.library == TileTarget::Library::Never) return std::nullopt;
  const Facts &facts = plan.program.facts;
  const auto &node = kernel.nodes[0].get<loops::ContractionSpec>();
  // Memory that comes up while the plan runs has no common arena.
  if (!plan::lateSymbols(plan).empty()) return std::nullopt;
  const Op *left = plainLoad(node.body, node.lhs), *right = plainLoad(node.body, node.rhs);
  // The runtime asks it for floats of 16 and 32 bits.
  if (!left || !right || itemSize(left->dtype) < 2 || node.stores.size() != 1 || node.stores[0].mask >= 0 ||
      node.stores[0].mode != loops::StoreMode::Set)
    return std::nullopt;
  std::vector<size_t> all(kernel.rRanges.size());
  for (size_t d = 0; d < all.size(); ++d) all[d] = d;
  const Axis batch = axisOf(c.batch, kernel.xRanges, Symbol::outer), m = axisOf(c.m, kernel.xRanges, Symbol::outer),
             n = axisOf(c.n, kernel.xRanges, Symbol::outer), k = axisOf(all, kernel.rRanges, Symbol::inner);

  LibraryForm form;
  plan::Product &p = form.product;
  p.batch = product(batch.extents), p.m = product(m.extents), p.n = product(n.extents), p.k = product(k.extents);
  p.type = left->dtype;
  const loops::BufferId stored = node.stores[0].buffer;
  p.outType = plan.program.buffer(stored).dtype;
  if (p.outType != p.type && p.outType != DType::F32) return std::nullopt;
  std::optional<plan::Matrix> a = matrixOf(left->buffer, left->index, batch, m, k, facts),
                              b = matrixOf(right->buffer, right->index, batch, k, n, facts);
  std::optional<plan::Matrix> d = matrixOf(stored, node.stores[0].index, batch, m, n, facts);
  if (!a || !b || !d || d->transposed) return std::nullopt;
  if (!readEpilogue(node.epilogue, node.stores[0].value, p.outType, n, facts, plan, p)) return std::nullopt;
  p.a = *a, p.b = *b, p.d = *d;
  if (plan.placements[stored.index()].where == plan::Placement::Where::None) {
    if (kernel.nodes.size() == 1) return std::nullopt;
    p.d.buffer = {};
    form.sumElements = plan.program.buffer(stored).elements;
  }
  if (kernel.nodes.size() > 1) {
    for (size_t i = 1; i < kernel.nodes.size(); ++i)
      if (kernel.nodes[i].kind() != Node::Kind::Pointwise) return std::nullopt;
    form.rest = restOf(kernel, stored, p.d.buffer);
  }
  // Of rows that do not begin at multiples of 16 bytes the library's products are slow: GPT-2 of 1,024 tokens takes 1.68 ms where its last one, of
  // 50,257 columns, is left to the library, and 1.01 where it is not.
  auto inLines = [&](const plan::Matrix &x, DType t) { return usualSize(x.pitch, facts) * itemSize(t) % kLineBytes == 0; };
  if (target.library == TileTarget::Library::Auto && !(inLines(p.a, p.type) && inLines(p.b, p.type) && inLines(p.d, p.outType))) return std::nullopt;
  const double restBytes =
      form.rest ? static_cast<double>(usualSize(p.batch * p.m * p.n, facts) * 2 * itemSize(p.outType)) : 0;
  if (target.library == TileTarget::Library::Auto &&
      !libraryPays(target, usualSize(p.batch, facts), roomySize(p.m, facts), roomySize(p.n, facts),
                   usualSize(p.k, facts), itemSize(p.type), restBytes))
    return std::nullopt;
  return form;
}

void placeLibraryForms(plan::Plan &plan, std::vector<std::pair<plan::KernelId, LibraryForm>> forms) {
  if (forms.empty()) return;
  // lower/memory finds their place.
  auto add = [&](std::string name, DType dtype, Expr elements) {
    plan::Placement where;
    where.where = plan::Placement::Where::Arena;
    plan.placements.push_back(where);
    return addTemp(plan.program, std::move(name), dtype, elements);
  };
  for (auto &[id, form] : forms) {
    if (form.product.d.buffer.valid()) continue;
    const loops::BufferId stored = plan.kernels[id.index()].nodes[0].stores()[0].buffer;
    form.product.d.buffer = add(plan.kernels[id.index()].name + "_sum", form.product.outType, form.sumElements);
    form.rest = restOf(plan.kernels[id.index()], stored, form.product.d.buffer);
  }
  const loops::BufferId workspace = add("workspace", DType::U8, Expr(kWorkspaceBytes));
  for (auto &[id, form] : forms) {
    applied(Rule::LibraryForm);
    form.product.workspace = workspace;
    if (form.rest) {
      form.rest->id = plan::KernelId(static_cast<int64_t>(plan.kernels.size()));
      form.product.rest = form.rest->id;
      plan.kernels.push_back(std::move(*form.rest));
    }
    plan.kernels[id.index()].product = std::move(form.product);
  }
}

} // namespace neso
