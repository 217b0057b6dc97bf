#include "ir/loops/coverage.h"

#include <algorithm>

namespace neso::loops {
namespace {

/// A dimension of an index: its values and how far apart they are.
struct Dimension {
  Expr size, step;
};

/// Values of a sum of dimensions, if all of them differ for sure: each step is at least as far as the smaller ones reach.
Expr valuesOf(std::vector<Dimension> dims) {
  std::erase_if(dims, [](const Dimension &d) { return d.size.isConst(1); });
  Expr count = 1;
  for (const Dimension &d : dims) count = count * d.size;
  const bool constant = std::all_of(dims.begin(), dims.end(), [](const Dimension &d) {
    return d.size.isConst() && d.step.isConst() && d.step.constValue() > 0;
  });
  if (constant) {
    std::sort(dims.begin(), dims.end(), [](const Dimension &a, const Dimension &b) { return a.step.constValue() < b.step.constValue(); });
    int64_t reach = 0;
    for (const Dimension &d : dims) {
      if (d.step.constValue() <= reach) return 0;
      reach += (d.size.constValue() - 1) * d.step.constValue();
    }
    return count;
  }
  // Of unknown sizes: one behind the other without gaps.
  for (Expr next = 1; !dims.empty();) {
    const auto at = std::find_if(dims.begin(), dims.end(), [&](const Dimension &d) { return d.step == next; });
    if (at == dims.end()) return 0;
    next = next * at->size;
    dims.erase(at);
  }
  return count;
}

Points attentionPoints(const Node &node, const AttentionSpec &spec, BufferId buffer, bool written) {
  using A = AttentionSpec;
  const std::vector<Expr> &r = node.ranges;
  if (r.size() != 4) return {};
  // Of several operands that are one buffer the largest tensor is not looked for.
  const Expr width = !written && (buffer == spec.q.buffer || buffer == spec.k.buffer) ? spec.headSize : r[3];
  // Row m needs the keys up to m.
  const Expr keys = spec.causal ? min(spec.keyLength, r[2]) : spec.keyLength;
  return {{A::symbol(A::Batch), r[0]}, {A::symbol(A::Head), r[1]}, {A::symbol(A::Query), r[2]}, {A::symbol(A::Key), keys}, {A::symbol(A::Element), width}};
}

/// Whether it depends on more than the place which elements of the operand are read.
bool readInPart(const AttentionSpec &spec, BufferId buffer) {
  if (spec.keys.valid() && buffer != spec.q.buffer) return true;
  if (!spec.mask.buffer.valid()) return false;
  return buffer == spec.mask.buffer ? spec.causal : spec.mask.dtype == DType::Bool && buffer != spec.q.buffer;
}

} // namespace

Points pointsOf(const Node &node, const Access &access) {
  if (const auto *spec = node.as<AttentionSpec>()) return attentionPoints(node, *spec, access.buffer, access.writes());
  Points out;
  for (size_t d = 0; d < node.ranges.size(); ++d) out.push_back({Symbol::index(d), node.ranges[d]});
  const auto *sort = node.as<SortSpec>();
  for (size_t d = 0; d < node.reduceRanges.size(); ++d) {
    const bool taken = sort && sort->take.valid() && d == 0 && access.writes();
    out.push_back({Symbol::inner(d), taken ? min(node.reduceRanges[d], sort->take) : node.reduceRanges[d]});
  }
  return out;
}

Expr mostWritten(const Node &node, const Access &access) {
  if (access.whole() && access.use != Use::Attention) return {};
  const std::vector<Symbol> symbols = symbolsOf(access.index);
  const bool byData = std::any_of(symbols.begin(), symbols.end(), [](Symbol s) { return s.kind() == Symbol::Kind::Indirect; });
  Expr out = 1;
  for (const auto &[symbol, size] : pointsOf(node, access)) {
    if (!size.valid()) return {};
    if (byData || uses(access.index, symbol)) out = out * size;
  }
  return out;
}

Expr leastRead(const Facts &facts, const Node &node, const Access &access) {
  if (access.masked || (access.whole() && access.use != Use::Attention) || node.as<SegmentsSpec>()) return 0;
  if (const auto *attention = node.as<AttentionSpec>(); attention && readInPart(*attention, access.buffer)) return 0;
  std::vector<Dimension> dims;
  Expr rest = access.index;
  for (const auto &[symbol, size] : pointsOf(node, access)) {
    const std::optional<Affine> a = affineIn(rest, symbol);
    if (!a || !size.valid()) return 0;
    rest = a->rest;
    // A loop that may run zero times reads nothing.
    if (a->coefficient.isConst(0) && facts.rangeOf(size).lo < 1) return 0;
    if (!a->coefficient.isConst(0)) dims.push_back({size, a->coefficient});
  }
  for (Symbol s : symbolsOf(rest))
    if (!s.isSize()) return 0;
  return valuesOf(std::move(dims));
}

Expr elementsOf(const std::vector<Expr> &sizes, const std::vector<Expr> &strides) {
  std::vector<Dimension> dims;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (!sizes[d].valid() || !strides[d].valid() || sizes[d].isConst(0)) return 0;
    if (!strides[d].isConst(0)) dims.push_back({sizes[d], strides[d]});
  }
  return valuesOf(std::move(dims));
}

} // namespace neso::loops
