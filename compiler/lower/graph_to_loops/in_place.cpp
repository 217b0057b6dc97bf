#include "lower/graph_to_loops/in_place.h"

#include <algorithm>

#include "base/rules.h"
#include "ir/graph/visit.h"
#include "lower/graph_to_loops/op_call.h"

namespace neso::lower {

using graph::Node;
using graph::ValueId;

Expr extentOf(const Sizes &sizes, const Sizes &strides, const Facts &facts) {
  Expr extent = 1;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d].isConst(0)) return 0;
    extent = extent + (sizes[d] - 1) * strides[d];
  }
  return facts.simplify(extent);
}

bool sameStrides(const Lowering &ctx, const Sizes &sizes, const Sizes &a, const Sizes &b) {
  for (size_t d = 0; d < sizes.size(); ++d)
    if (!sizes[d].isConst(1) && !ctx.equal(a[d], b[d])) return false;
  return true;
}

/// The same elements seen from the least one on: a dimension that runs backwards, as flip's does, is turned around. None where a stride's
/// sign is not known: then nothing is known of where the elements lie.
static std::optional<Strided> ascending(const Sizes &sizes, Strided s, const Facts &facts) {
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (facts.provablyLessEqual(0, s.strides[d]) || sizes[d].isConst(1)) continue;
    if (!facts.provablyLessEqual(s.strides[d], 0)) return std::nullopt;
    s.offset = s.offset + (sizes[d] - 1) * s.strides[d];
    s.strides[d] = s.strides[d] * Expr(-1);
  }
  s.offset = facts.simplify(s.offset);
  return s;
}

bool provablyApart(const Sizes &sizesA, const Strided &as, const Sizes &sizesB, const Strided &bs, const Facts &facts) {
  const std::optional<Strided> fromLeastOfA = ascending(sizesA, as, facts), fromLeastOfB = ascending(sizesB, bs, facts);
  if (!fromLeastOfA || !fromLeastOfB) return false;
  const Strided &a = *fromLeastOfA, &b = *fromLeastOfB;
  auto apart = [&](Expr offsetA, Expr extentA, Expr offsetB, Expr extentB) {
    return facts.provablyLessEqual(offsetA + extentA, offsetB) || facts.provablyLessEqual(offsetB + extentB, offsetA);
  };
  if (apart(a.offset, extentOf(sizesA, a.strides, facts), b.offset, extentOf(sizesB, b.strides, facts))) return true;
  // Both as rows of one pitch: what they take of a row, given that neither leaves it.
  for (Expr pitch : a.strides) {
    auto within = [&](const Sizes &sizes, const Strided &s, Expr &extent) {
      Sizes inner = sizes;
      for (size_t d = 0; d < sizes.size(); ++d)
        if (facts.provablyDivisible(s.strides[d], pitch)) inner[d] = 1;
      extent = extentOf(inner, s.strides, facts);
      return facts.provablyLessEqual(0, s.offset) && facts.provablyLessEqual(s.offset + extent, pitch);
    };
    if (!pitch.isConst() || pitch.constValue() < 2) continue;
    // Whole rows in front do not matter.
    auto column = [&](const Strided &s) {
      Strided c = s;
      if (c.offset.isConst()) c.offset = c.offset.constValue() % pitch.constValue();
      return c;
    };
    Strided ca = column(a), cb = column(b);
    Expr extentA, extentB;
    if (within(sizesA, ca, extentA) && within(sizesB, cb, extentB) && apart(ca.offset, extentA, cb.offset, extentB))
      return true;
  }
  return false;
}

InPlace::InPlace(const graph::Graph &graph, std::set<int32_t> returned, size_t firstBuffer, std::set<BufferId> own)
    : graph_(graph), returned_(std::move(returned)), firstBuffer_(firstBuffer), own_(std::move(own)) {
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    graph::forEachInput(graph_.nodes[i], [&](ValueId id) { readers_[id.value].push_back(i); });
    graph::forEachOutput(graph_.nodes[i], [&](ValueId id) { definition_[id.value] = i; });
  }
}

void InPlace::readAt(ValueId id, const Node &node) {
  std::vector<size_t> &all = readers_[id.value];
  const size_t at = static_cast<size_t>(&node - graph_.nodes.data());
  all.insert(std::upper_bound(all.begin(), all.end(), at), at);
}

void InPlace::begin(const Node &node) {
  node_ = &node;
  at_ = static_cast<size_t>(&node - graph_.nodes.data());
  written_.clear();
  absorbed_.clear();
  coming_.clear();
}

bool InPlace::isUninitialised(ValueId id) const {
  auto def = definition_.find(id.value);
  if (def == definition_.end()) return false;
  const std::string &target = graph_.nodes[def->second].target;
  for (const char *prefix : {"aten.empty.", "aten.empty_like.", "aten.empty_strided.", "aten.empty_permuted.",
                             "aten.new_empty.", "aten.new_empty_strided.", "prims.empty"})
    if (target.starts_with(prefix)) return true;
  return false;
}

bool InPlace::neededLater(int32_t id) const {
  if (returned_.count(id)) return true;
  auto it = readers_.find(id);
  return it != readers_.end() && it->second.back() > at_;
}

namespace {

/// Scatters that leave the rest of the whole as it is, by the name of their view.
bool isScatter(const Node &n) {
  return n.target == "aten.slice_scatter.default" || n.target == "aten.select_scatter.default";
}

ValueId argument(const Node &n, std::string_view name) {
  const graph::Argument *a = n.arg(name);
  const ValueId *id = a ? std::get_if<ValueId>(a) : nullptr;
  return id ? *id : ValueId();
}

} // namespace

/// Whether every reader of the value is a launch's way of writing a part of it.
bool InPlace::startsBlank(ValueId id) const {
  auto all = readers_.find(id.value);
  if (!isUninitialised(id) || all == readers_.end() || returned_.count(id.value)) return false;
  bool parts = false;
  for (size_t i : all->second) {
    const Node &n = graph_.nodes[i];
    if (isScatter(n)) {
      auto def = definition_.find(argument(n, "src").value);
      parts |= def != definition_.end() && graph_.nodes[def->second].launch != nullptr;
      if (!parts || argument(n, "self") != id) return false;
      continue;
    }
    if (n.target != "aten.slice.Tensor" && n.target != "aten.select.int") return false;
    int32_t view = n.outputs[0][0].value;
    if (returned_.count(view)) return false;
    if (auto readers = readers_.find(view); readers != readers_.end())
      for (size_t r : readers->second)
        if (!graph_.nodes[r].launch) return false;
  }
  return parts;
}

/// The scatter that puts this part into its whole.
const Node *InPlace::scatterOf(ValueId source) const {
  auto it = readers_.find(source.value);
  if (it == readers_.end()) return nullptr;
  for (size_t i : it->second)
    if (isScatter(graph_.nodes[i]) && argument(graph_.nodes[i], "src") == source &&
        argument(graph_.nodes[i], "self") != source)
      return &graph_.nodes[i];
  return nullptr;
}

/// A result that is put into a larger value can be written there if that value lies in memory, as it will have to
/// anyway.
void InPlace::settleBase(ValueId result, Values &values) {
  ValueId whole;
  for (const Node *scatter = scatterOf(result); scatter; scatter = scatterOf(result)) {
    ValueId self = argument(*scatter, "self");
    if (values.count(self.value)) whole = self;
    result = scatter->outputs[0][0];
  }
  auto it = values.find(whole.value);
  if (!whole.valid() || it == values.end() || it->second.isComplex() || it->second.isView()) return;
  it->second.realize();
}

bool isApartFromItself(const Sizes &sizes, const Sizes &strides, const Facts &facts) {
  const std::vector<int> order = orderOfStrides(sizes, strides, facts);
  Expr extent = 1;
  for (size_t k = order.size(); k-- > 0;) {
    const size_t d = static_cast<size_t>(order[k]);
    if (sizes[d].isConst(1)) continue;
    if (!facts.provablyLessEqual(extent, strides[d])) return false;
    extent = facts.simplify(extent + (sizes[d] - 1) * strides[d]);
  }
  return true;
}

/// Follows a part that lies in its whole's memory: the scatter of it is the whole, without any work. Not of a whole that shows one element at
/// several places (what is repeated): there the part is in all of them, and the scatter changes one.
void InPlace::absorb(Lowering &ctx, ValueId source, const Tensor &x, Values &values) {
  for (size_t i : readers_[source.value]) {
    const Node &n = graph_.nodes[i];
    if (i <= at_ || !isScatter(n) || argument(n, "src") != source) continue;
    ValueId self = argument(n, "self");
    auto have = values.find(self.value);
    auto will = coming_.find(self.value);
    if (have == values.end() && will == coming_.end()) continue;
    Tensor whole = have != values.end() ? have->second : will->second;
    if (const std::optional<Strided> at = whole.isComplex() ? std::nullopt : whole.asStrided(); at && !isApartFromItself(whole.sizes(), at->strides, ctx.facts)) continue;
    Values two = values;
    two[self.value] = whole, two[source.value] = x;
    OpCall call(ctx, graph_, n, two);
    Tensors made = call.lower(*OpTable::instance().find(n.target));
    if (made.size() != 1 || made[0].key() != whole.key()) continue;
    absorbed_.insert({i, self.value});
    ValueId out = n.outputs[0][0];
    coming_[out.value] = whole;
    absorb(ctx, out, whole, values);
  }
}

/// Whether reading x reads the region.
bool InPlace::meets(Lowering &ctx, const Tensor &x, const Region &region) const {
  if (x.isComplex()) return meets(ctx, x.real(), region) || meets(ctx, x.imag(), region);
  if (std::optional<Strided> s = x.asStrided())
    return s->buffer == region.where.buffer &&
           (s->dtype != region.where.dtype || !provablyApart(x.sizes(), *s, region.sizes, region.where, ctx.facts));
  std::vector<BufferId> loads = x.loads();
  return std::find(loads.begin(), loads.end(), region.where.buffer) != loads.end();
}

/// Gives the value memory of its own, with its present content.
void InPlace::save(Lowering &ctx, int32_t id, Values &values) {
  Tensor x = values.at(id);
  Strided w;
  if (!x.realized()) {
    // Whoever holds the value computes with it no more.
    x.realizeWith(denseStrides(x.sizes(), x.order()));
    return;
  }
  w = ctx.allocate(x.dtype(), x.sizes(), x.order());
  ctx.store(x, w);
  Tensor saved = Tensor::strided(ctx, x.dtype(), x.sizes(), w);
  for (auto &[other, y] : values)
    if (y.valid() && y.key() == x.key()) y = saved;
}

std::optional<Strided> InPlace::place(Lowering &ctx, size_t i, Values &values, std::string &why) {
  const graph::UserLaunch &launch = *node_->launch;
  ValueId id = std::get<ValueId>(node_->args[i]);
  const graph::TensorType &type = graph_.value(id).type;
  size_t result = 0;
  for (size_t j = 0; j < i; ++j) result += launch.written[j];
  std::vector<ValueId> results;
  graph::forEachOutput(*node_, [&](ValueId r) { results.push_back(r); });
  if (result < results.size()) settleBase(results[result], values);

  Tensor x = values.at(id.value);
  std::optional<Strided> s = x.asStrided();
  if (!s || s->dtype != type.dtype || !sameStrides(ctx, type.sizes, s->strides, type.strides)) return std::nullopt;
  const loops::Buffer &buffer = ctx.program.buffer(s->buffer);
  auto blocked = [&](std::string reason) {
    why = "works on a copy of " + graph_.value(id).name + ": " + reason;
    return std::nullopt;
  };
  if (buffer.kind != loops::Buffer::Kind::Temp && !buffer.mutated) return blocked("it is not the model's to change");
  if (isOutside(s->buffer)) return blocked("it belongs to the graph around");
  Region region{type.sizes, *s};
  for (const Region &w : written_)
    if (w.where.buffer == s->buffer && !provablyApart(w.sizes, w.where, region.sizes, region.where, ctx.facts))
      return blocked("another argument is written there");
  // Another argument that looks at the same place must go on seeing the old content, unless it is the same memory.
  for (size_t j = 0; j < node_->args.size(); ++j) {
    bool same = j == i || (!launch.sameAs.empty() && (launch.sameAs[j] == static_cast<int>(i) ||
                                                      (launch.sameAs[j] >= 0 && launch.sameAs[j] == launch.sameAs[i])));
    if (same || (launch.written[j] && j < i)) continue;
    Tensor y = values.at(std::get<ValueId>(node_->args[j]).value);
    if (y.asStrided() && meets(ctx, y, region)) return blocked("argument '" + node_->argNames[j] + "' overlaps it");
  }

  if (!isOurs(ctx, region)) return blocked("a tensor that the model does not change lies there too");
  // A copy reads and writes each element once; where the memory is the caller's or the model's the way back is saved as well.
  const Expr copyBytes = extentOf(type.sizes, type.strides, ctx.facts) * Expr(itemSize(type.dtype));
  std::string saved;
  if (!release(ctx, region, result < results.size() ? results[result] : ValueId(), Tensor::strided(ctx, type.dtype, type.sizes, *s),
               ctx.facts.simplify(copyBytes), values, saved))
    return blocked(saved);
  why = "writes " + graph_.value(id).name + " in place" + saved;
  written_.push_back(std::move(region));
  applied(Rule::LaunchInPlace);
  return s;
}

/// No tensor of the model that stays as it is meets the region.
bool InPlace::isOurs(const Lowering &ctx, const Region &region) const {
  return std::all_of(kept_.begin(), kept_.end(), [&](const Region &k) {
    return k.where.buffer != region.where.buffer ||
           (k.where.dtype == region.where.dtype && provablyApart(k.sizes, k.where, region.sizes, region.where, ctx.facts));
  });
}

/// Brings what is still needed of the region's old content into safety, if that costs less than the copy of `copyBytes` that is saved; `why`
/// then says what was. `whole`: what `result` will be.
bool InPlace::release(Lowering &ctx, const Region &region, ValueId result, const Tensor &whole, Expr copyBytes, Values &values,
                      std::string &why) {
  std::set<std::pair<size_t, int32_t>> absorbed = absorbed_;
  std::unordered_map<int32_t, Tensor> coming = coming_;
  if (result.valid()) absorb(ctx, result, whole, values);
  std::vector<int32_t> late;
  Expr lateBytes = 0;
  std::set<const void *> counted;
  for (const auto &[other, y] : values) {
    if (!y.valid() || !neededLater(other) || !meets(ctx, y, region)) continue;
    bool needed = returned_.count(other) != 0;
    if (auto it = readers_.find(other); it != readers_.end())
      for (size_t reader : it->second) needed |= reader > at_ && !absorbed_.count({reader, other});
    if (!needed) continue;
    late.push_back(other);
    if (counted.insert(y.key()).second) lateBytes = lateBytes + y.numel() * Expr(itemSize(y.dtype()));
  }
  std::sort(late.begin(), late.end());
  // A value that is computed early is written, and can no more be fused into who reads it.
  const bool temp = ctx.program.buffer(region.where.buffer).kind == loops::Buffer::Kind::Temp;
  Expr worth = temp ? lateBytes * Expr(2) : lateBytes;
  bool complex = std::any_of(late.begin(), late.end(), [&](int32_t v) { return values.at(v).isComplex(); });
  if (!late.empty() && (complex || !ctx.facts.provablyLessEqual(worth, copyBytes))) {
    absorbed_ = std::move(absorbed), coming_ = std::move(coming);
    why = "the old content of " + graph_.values[static_cast<size_t>(late[0])].name + " is needed later";
    return false;
  }
  for (int32_t v : late)
    if (meets(ctx, values.at(v), region)) save(ctx, v, values);
  why = late.empty() ? "" : fmt::format(", {} saved before", graph_.values[static_cast<size_t>(late[0])].name);
  return true;
}

bool InPlace::over(Lowering &ctx, const Node &node, const Tensor &x, const Region &part, Tensors &reads, Values &values) {
  const std::optional<Strided> s = x.isComplex() ? std::nullopt : x.asStrided();
  if (!s || s->dtype != x.dtype() || node.outputs.empty() || node.outputs[0].empty()) return false;
  const loops::Buffer &buffer = ctx.program.buffer(s->buffer);
  if ((buffer.kind != loops::Buffer::Kind::Temp && !buffer.mutated) || isOutside(s->buffer) || blank_.count(s->buffer.value))
    return false;
  if (!isApartFromItself(x.sizes(), s->strides, ctx.facts) || !isOurs(ctx, part)) return false;
  for (const Tensor &r : reads)
    if (r.valid() && r.isComplex() && meets(ctx, r, part)) return false;
  begin(node);
  const Expr copyBytes = ctx.facts.simplify(x.numel() * Expr(itemSize(x.dtype())));
  std::string why;
  if (!release(ctx, part, node.outputs[0][0], x, copyBytes, values, why)) return false;
  for (Tensor &r : reads) {
    if (!r.valid() || !meets(ctx, r, part)) continue;
    const Strided w = ctx.allocate(r.dtype(), r.sizes(), r.order());
    ctx.store(r, w);
    r = Tensor::strided(ctx, r.dtype(), r.sizes(), w);
  }
  return true;
}

} // namespace neso::lower
