#include "ir/plan/access.h"

#include <algorithm>
#include <set>

namespace neso::plan {

using namespace loops;

namespace {

template <typename F> void eachStore(const Node &n, F f) {
  for (const Store &s : n.stores) f(s);
  for (const Reduction &r : n.reductions)
    for (const Store &s : r.results) f(s);
}
template <typename F> void eachLoad(const Node &n, F f) {
  for (const Body *b : {&n.body, &n.epilogue})
    for (const Op &o : b->ops)
      if (o.kind == OpKind::Load) f(o);
}
/// Buffers that a node touches as a whole.
template <typename F> void eachOperand(const Node &n, F f) {
  if (n.user)
    for (const UserKernelSpec::Argument &a : n.user->arguments) {
      if (a.kind != UserKernelSpec::Argument::Memory || a.inside) continue;
      AttentionSpec::Operand o{a.buffer, a.offset, DType::F32};
      if (a.read) f(o, false);
      if (a.written) f(o, true);
    }
  if (n.lookBack)
    for (bool written : {false, true}) f(AttentionSpec::Operand{n.lookBack->words, 0, DType::I64}, written);
  if (!n.attention) return;
  for (const AttentionSpec::Operand *o : {&n.attention->q, &n.attention->k, &n.attention->v, &n.attention->mask})
    if (o->buffer.valid()) f(*o, false);
  f(n.attention->out, true);
}

/// Nodes inside a user's kernel have ranges of their own.
Expr points(const Kernel &k, const Node &n) {
  return product(k.kind == Node::Kind::UserKernel ? n.ranges : k.xRanges) * product(n.reduceRanges);
}

} // namespace

bool isForwarded(const Kernel &kernel, size_t node, BufferId buffer, Expr index) {
  bool found = false;
  for (size_t m = 0; m < node; ++m)
    eachStore(kernel.nodes[m], [&](const Store &s) {
      if (s.buffer == buffer) found = s.index == index && s.mask < 0 && s.mode == StoreMode::Set;
    });
  return found;
}

bool livesInside(const Kernel &kernel, BufferId buffer) {
  for (const Node &n : kernel.nodes)
    if (n.user)
      for (const UserKernelSpec::Argument &a : n.user->arguments)
        if (a.inside && a.buffer == buffer) return true;
  bool inside = true;
  for (size_t n = 0; n < kernel.nodes.size(); ++n) {
    eachLoad(kernel.nodes[n], [&](const Op &o) {
      if (o.buffer == buffer) inside &= isForwarded(kernel, n, buffer, o.index);
    });
    eachStore(kernel.nodes[n], [&](const Store &s) {
      if (s.buffer == buffer) inside &= s.mask < 0 && s.mode == StoreMode::Set;
    });
    eachOperand(kernel.nodes[n], [&](const AttentionSpec::Operand &o, bool) { inside &= o.buffer != buffer; });
  }
  return inside;
}

static bool usesInnerSpace(const Node &node) {
  if (node.kind != Node::Kind::Pointwise) return true;
  auto usesR = [](Expr e) {
    if (!e.valid()) return false;
    std::vector<Symbol> names = symbolsOf(e);
    return std::any_of(names.begin(), names.end(), [](Symbol s) { return s.kind() == Symbol::Kind::Inner; });
  };
  return std::any_of(node.body.ops.begin(), node.body.ops.end(),
                     [&](const Op &op) { return usesR(op.index) || usesR(op.bound); }) ||
         std::any_of(node.stores.begin(), node.stores.end(), [&](const Store &s) { return usesR(s.index); });
}

Passes passesOf(const Kernel &kernel) {
  size_t count = kernel.nodes.size();
  Passes out{std::vector<int>(count), std::vector<bool>(count)};
  for (size_t n = 0; n < count; ++n) {
    out.inner[n] = usesInnerSpace(kernel.nodes[n]);
    std::set<int32_t> loads;
    eachLoad(kernel.nodes[n], [&](const Op &op) { loads.insert(op.buffer.value); });
    for (size_t p = 0; p < n; ++p)
      eachStore(kernel.nodes[p], [&](const Store &s) {
        if (loads.contains(s.buffer.value))
          out.pass[n] = std::max(out.pass[n], out.pass[p] + (kernel.nodes[p].kind == Node::Kind::Reduction ? 1 : 0));
      });
    out.last = std::max(out.last, out.pass[n]);
  }
  return out;
}

std::vector<BufferAccess> memoryAccesses(const Plan &plan, const Kernel &kernel) {
  std::vector<BufferAccess> out;
  auto touch = [&](BufferId b, bool written) {
    if (plan.placements[b.index()].where == Placement::Where::None) return;
    auto it = std::find_if(out.begin(), out.end(), [&](const BufferAccess &a) { return a.buffer == b; });
    if (it == out.end()) it = out.insert(out.end(), {b, false, false});
    (written ? it->written : it->read) = true;
  };
  for (KernelId part : kernel.parts)
    for (const BufferAccess &a : memoryAccesses(plan, plan.kernels[part.index()])) {
      if (a.read) touch(a.buffer, false);
      if (a.written) touch(a.buffer, true);
    }
  for (size_t n = 0; n < kernel.nodes.size(); ++n) {
    const Node &node = kernel.nodes[n];
    eachLoad(node, [&](const Op &o) {
      if (!isForwarded(kernel, n, o.buffer, o.index)) touch(o.buffer, false);
    });
    eachOperand(node, [&](const AttentionSpec::Operand &o, bool written) { touch(o.buffer, written); });
    eachStore(node, [&](const Store &s) {
      touch(s.buffer, true);
      if (s.mode != StoreMode::Set) touch(s.buffer, false);
    });
  }
  return out;
}

std::optional<Interval> storedRange(const Facts &facts, const Kernel &kernel, BufferId buffer) {
  Facts f = facts;
  for (size_t d = 0; d < kernel.xRanges.size(); ++d) f.setIndex(Symbol::outer(d), kernel.xRanges[d]);
  for (size_t d = 0; d < kernel.rRanges.size(); ++d) f.setIndex(Symbol::inner(d), kernel.rRanges[d]);
  std::optional<Interval> out;
  bool plain = true;
  for (const Node &n : kernel.nodes) {
    for (const Op &op : n.body.ops)
      if (op.kind == OpKind::Indirect) f.setIndex(op.symbol, op.bound);
    eachLoad(n, [&](const Op &o) { plain &= o.buffer != buffer; });
    eachOperand(n, [&](const AttentionSpec::Operand &o, bool) { plain &= o.buffer != buffer; });
    eachStore(n, [&](const Store &s) {
      if (s.buffer != buffer) return;
      const Interval r = f.rangeOf(s.index);
      out = out ? Interval{std::min(out->lo, r.lo), std::max(out->hi, r.hi)} : r;
    });
  }
  return plain ? out : std::nullopt;
}

KernelTraffic traffic(const Plan &plan, const Kernel &kernel) {
  KernelTraffic out;
  struct Seen {
    BufferId buffer;
    Expr index;
    bool written;
  };
  std::vector<Seen> seen;
  auto add = [&](BufferId b, Expr index, Expr count, bool written) {
    if (plan.placements[b.index()].where == Placement::Where::None) return;
    for (const Seen &s : seen)
      if (s.buffer == b && s.index == index && s.written == written) return;
    seen.push_back({b, index, written});
    const Buffer &buffer = plan.program.buffer(b);
    Expr elements = min(count, buffer.elements);
    // An access that ignores some dimension moves each element once.
    std::vector<Expr> used;
    bool affine = true;
    for (size_t d = 0; d < kernel.xRanges.size(); ++d)
      if (uses(index, Symbol::outer(d))) used.push_back(kernel.xRanges[d]);
    for (size_t d = 0; d < kernel.rRanges.size(); ++d)
      if (uses(index, Symbol::inner(d))) used.push_back(kernel.rRanges[d]);
    for (Symbol s : symbolsOf(index)) affine &= affineIn(index, s).has_value();
    if (affine && kernel.kind != Node::Kind::Attention && kernel.kind != Node::Kind::UserKernel)
      elements = min(product(used), buffer.elements);
    Expr bytes = elements * Expr(itemSize(buffer.dtype));
    (written ? out.bytesWritten : out.bytesRead) = (written ? out.bytesWritten : out.bytesRead) + bytes;
  };
  for (size_t n = 0; n < kernel.nodes.size(); ++n) {
    const Node &node = kernel.nodes[n];
    eachLoad(node, [&](const Op &o) {
      if (!isForwarded(kernel, n, o.buffer, o.index)) add(o.buffer, o.index, points(kernel, node), false);
    });
    eachOperand(node, [&](const AttentionSpec::Operand &o, bool written) {
      add(o.buffer, o.index, plan.program.buffer(o.buffer).elements, written);
    });
    eachStore(node, [&](const Store &s) { add(s.buffer, s.index, points(kernel, node), true); });
  }
  return out;
}

} // namespace neso::plan
