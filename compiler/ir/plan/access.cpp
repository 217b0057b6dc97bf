#include "ir/plan/access.h"

#include <algorithm>
#include <set>

#include "ir/loops/access.h"
#include "ir/plan/steps.h"

namespace neso::plan {

using namespace loops;

namespace {

/// Nodes inside a user's kernel have ranges of their own.
Expr points(const Kernel &k, const Node &n) {
  return product(k.kind == Node::Kind::UserKernel ? n.ranges : k.xRanges) * product(n.reduceRanges);
}

} // namespace

bool isForwarded(const Kernel &kernel, size_t node, BufferId buffer, Expr index) {
  bool found = false;
  for (size_t m = 0; m < node; ++m)
    forEachWrite(kernel.nodes[m], [&](const Access &a) {
      if (a.buffer == buffer && !a.whole())
        found = a.index == index && !a.masked && a.mode == AccessMode::Write;
    });
  return found;
}

/// A load that memory does not answer.
static bool isForwardedLoad(const Kernel &kernel, size_t node, const Access &a) {
  return a.mode == AccessMode::Read && !a.whole() && isForwarded(kernel, node, a.buffer, a.index);
}

bool livesInside(const Kernel &kernel, BufferId buffer) {
  bool attached = false, forwarded = true;
  for (size_t n = 0; n < kernel.nodes.size(); ++n)
    forEachAccess(kernel.nodes[n], [&](const Access &a) {
      if (a.buffer != buffer) return;
      attached |= a.inside;
      if (a.whole() || a.mode == AccessMode::Update)
        forwarded = false;
      else
        forwarded &= a.writes() ? !a.masked : isForwarded(kernel, n, buffer, a.index);
    });
  return attached || forwarded;
}

/// Whether a node runs once for each element of the kernel's inner space. One that names no place there may still have as many elements as it: one or
/// none, and of none nothing may be read or written.
static bool usesInnerSpace(const Node &node) {
  if (node.kind() != Node::Kind::Pointwise) return true;
  if (std::any_of(node.reduceRanges.begin(), node.reduceRanges.end(), [](Expr e) { return !e.isConst(); })) return true;
  auto usesR = [](Expr e) {
    if (!e.valid()) return false;
    std::vector<Symbol> names = symbolsOf(e);
    return std::any_of(names.begin(), names.end(), [](Symbol s) { return s.kind() == Symbol::Kind::Inner; });
  };
  std::vector<Expr> all = loopExprsOf(node);
  return std::any_of(all.begin(), all.end(), usesR);
}

Passes passesOf(const Kernel &kernel) {
  size_t count = kernel.nodes.size();
  Passes out{std::vector<int>(count), std::vector<bool>(count)};
  for (size_t n = 0; n < count; ++n) {
    out.inner[n] = usesInnerSpace(kernel.nodes[n]);
    std::set<int32_t> loads, stores;
    forEachAccess(kernel.nodes[n], [&](const Access &a) {
      if (a.mode == AccessMode::Read) loads.insert(a.buffer.value);
      if (a.writes()) stores.insert(a.buffer.value);
    });
    for (size_t p = 0; p < n; ++p) {
      const int finished = out.pass[p] + (kernel.nodes[p].kind() == Node::Kind::Reduction ? 1 : 0);
      // In a pass, what runs once per x comes first.
      const int behind = out.pass[p] + (out.inner[p] && !out.inner[n] ? 1 : 0);
      forEachAccess(kernel.nodes[p], [&](const Access &a) {
        if (a.writes() && loads.contains(a.buffer.value)) out.pass[n] = std::max(out.pass[n], finished);
        if (stores.contains(a.buffer.value)) out.pass[n] = std::max(out.pass[n], behind);
      });
    }
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
    forEachAccess(kernel.nodes[n], [&](const Access &a) {
      if (a.inside || isForwardedLoad(kernel, n, a)) return;
      if (a.reads()) touch(a.buffer, false);
      if (a.writes()) touch(a.buffer, true);
    });
  }
  return out;
}

Users::Users(const Plan &plan) : users_(plan.program.buffers.size()) {
  auto add = [&](KernelId kernel, const Access &a) {
    if (a.buffer.valid()) users_[a.buffer.index()].push_back({kernel, a});
  };
  auto whole = [&](KernelId kernel, BufferId buffer, AccessMode mode) { add(kernel, {.buffer = buffer, .mode = mode}); };
  for (const Kernel &k : plan.kernels) {
    for (const Node &n : k.nodes) forEachAccess(n, [&](const Access &a) { add(k.id, a); });
    if (!k.product) continue;
    for (BufferId b : {k.product->a.buffer, k.product->b.buffer, k.product->bias}) whole(k.id, b, AccessMode::Read);
    for (BufferId b : {k.product->d.buffer, k.product->workspace}) whole(k.id, b, AccessMode::Write);
  }
  forEachStep(plan.main, [&](const Step &step) {
    for (const NamedBuffer &named : namedBuffers(step)) whole({}, named.buffer, named.mode);
  });
  for (const ProgramOutput &o : plan.program.outputs) {
    whole({}, o.buffer, AccessMode::Read);
    whole({}, o.writeBackTo, AccessMode::Write);
  }
}

std::optional<Interval> storedRange(const Facts &facts, const Kernel &kernel, BufferId buffer) {
  Facts f = facts;
  for (size_t d = 0; d < kernel.xRanges.size(); ++d) f.setIndex(Symbol::outer(d), kernel.xRanges[d]);
  for (size_t d = 0; d < kernel.rRanges.size(); ++d) f.setIndex(Symbol::inner(d), kernel.rRanges[d]);
  std::optional<Interval> out;
  bool plain = true;
  for (const Node &n : kernel.nodes) {
    for (const Op &op : n.body().ops)
      if (op.kind == OpKind::Indirect) f.setIndex(op.symbol, op.bound);
    forEachAccess(n, [&](const Access &a) {
      if (a.buffer != buffer || a.inside) return;
      plain &= a.writes() && !a.whole();
      if (!plain) return;
      const Interval r = f.rangeOf(a.index);
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
    forEachAccess(node, [&](const Access &a) {
      if (a.inside || isForwardedLoad(kernel, n, a)) return;
      const Expr count = a.whole() ? plan.program.buffer(a.buffer).elements : points(kernel, node);
      // What an update reads is on the way of what it writes.
      if (a.reads() && (a.whole() || !a.writes())) add(a.buffer, a.index, count, false);
      if (a.writes()) add(a.buffer, a.index, count, true);
    });
  }
  return out;
}

} // namespace neso::plan
