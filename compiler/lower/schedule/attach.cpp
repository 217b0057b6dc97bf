#include "lower/schedule/attach.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/rules.h"
#include "ir/plan/access.h"
#include "lower/schedule/access.h"

namespace neso::schedule {

using namespace loops;
using plan::Kernel;
using plan::Plan;
using Argument = UserKernelSpec::Argument;

namespace {

/// Scalar operators that a neighbour may bring along.
constexpr int kMostOps = 96;
/// What is cheap is repeated for further loads of an element at most so often. Tiles are padded to powers of two: twice
/// is once, rounded up.
constexpr double kOnce = 2.05, kFewTimes = 4.5;

struct Work {
  int ops = 0, loads = 0;
  bool heavy = false;
};

bool reads(const Kernel &k, BufferId b) {
  return std::any_of(k.nodes.begin(), k.nodes.end(), [&](const Node &n) { return loops::reads(n, b); });
}
bool writes(const Kernel &k, BufferId b) {
  return std::any_of(k.nodes.begin(), k.nodes.end(), [&](const Node &n) { return loops::writes(n, b); });
}
std::set<int32_t> touched(const Kernel &k, bool stores) {
  std::set<int32_t> out;
  for (const Node &n : k.nodes)
    forEachAccess(n, [&](const Access &a) {
      if (stores ? a.writes() : a.reads()) out.insert(a.buffer.value);
    });
  return out;
}
bool meet(const std::set<int32_t> &a, const std::set<int32_t> &b) {
  return std::any_of(a.begin(), a.end(), [&](int32_t x) { return b.count(x) != 0; });
}

class Attacher {
public:
  explicit Attacher(Plan &p) : p_(p), gone_(p.kernels.size()) {
    for (const Kernel &k : p.kernels)
      forEachNode(k.nodes, [&](const Node &n) { nextNode_ = std::max<int64_t>(nextNode_, n.id.value + 1); });
  }

  std::vector<plan::KernelId> run() {
    for (size_t u = 0; u < p_.kernels.size(); ++u)
      if (p_.kernels[u].kind == Node::Kind::UserKernel) {
        UserKernelSpec spec = p_.kernels[u].nodes[0].get<UserKernelSpec>();
        for (size_t i = 0; i < spec.arguments.size(); ++i) {
          if (!candidate(spec, i)) continue;
          if (!spec.arguments[i].written)
            before(u, spec, i);
          else if (!spec.arguments[i].read && spec.arguments[i].loads == 0)
            behind(u, spec, i);
        }
        for (Node &n : p_.kernels[u].nodes)
          if (auto *user = n.as<UserKernelSpec>()) *user = spec;
      }
    std::vector<Kernel> kept;
    std::vector<plan::KernelId> now(p_.kernels.size());
    for (size_t k = 0; k < p_.kernels.size(); ++k) {
      if (gone_[k]) continue;
      now[k] = plan::KernelId(static_cast<int64_t>(kept.size()));
      kept.push_back(std::move(p_.kernels[k]));
      kept.back().id = now[k];
    }
    p_.kernels = std::move(kept);
    return now;
  }

private:
  Plan &p_;
  std::vector<bool> gone_; // became part of another
  int64_t nextNode_ = 0;

  bool candidate(const UserKernelSpec &spec, size_t i) const {
    const Argument &a = spec.arguments[i];
    if (a.kind != Argument::Memory || !a.follows || a.inside || !a.offset.isConst(0)) return false;
    const Buffer &t = p_.program.buffer(a.buffer);
    if (t.kind != Buffer::Kind::Temp || t.dtype == DType::Bool) return false;
    for (size_t j = 0; j < spec.arguments.size(); ++j)
      if (j != i && spec.arguments[j].kind == Argument::Memory && spec.arguments[j].buffer == a.buffer) return false;
    return true;
  }
  bool isOutput(BufferId b) const {
    return std::any_of(p_.program.outputs.begin(), p_.program.outputs.end(),
                       [&](const ProgramOutput &o) { return o.buffer == b; });
  }
  void say(size_t u, std::string what) { p_.kernels[u].decisions.push_back(std::move(what)); }

  /// The kernel's space as expressions of the element x0 of the tensor that it touches at `index`; none if elements and
  /// points do not correspond one to one. A division by a size known only at run time costs more than memory does.
  std::optional<SymbolMap<Expr>> inverse(const Kernel &k, Expr index, Expr elements) const {
    if (!k.rRanges.empty()) return std::nullopt;
    struct Axis {
      Expr stride;
      size_t dim;
    };
    std::vector<Axis> axes;
    Expr rest = index;
    for (size_t d = 0; d < k.xRanges.size(); ++d) {
      std::optional<Affine> a = affineIn(rest, Symbol::outer(d));
      if (!a || a->coefficient.isConst(0)) return std::nullopt;
      axes.push_back({a->coefficient, d});
      rest = a->rest;
    }
    if (!rest.isConst(0)) return std::nullopt;
    const Facts &facts = p_.program.facts;
    // Innermost first: each stride is the product of the sizes inside.
    SymbolMap<Expr> out;
    Expr inner = 1;
    Expr element = Symbol::outer(0);
    std::vector<bool> used(axes.size());
    for (size_t step = 0; step < axes.size(); ++step) {
      size_t next = axes.size();
      for (size_t i = 0; i < axes.size(); ++i)
        if (!used[i] && (axes[i].stride == inner || facts.provablyEqual(axes[i].stride, inner))) next = i;
      if (next == axes.size()) return std::nullopt;
      used[next] = true;
      Expr size = k.xRanges[axes[next].dim];
      bool outermost = step + 1 == axes.size();
      if ((!inner.isConst()) || (!outermost && !size.isConst())) return std::nullopt;
      Expr at = floorDiv(element, inner);
      out[Symbol::outer(axes[next].dim)] = outermost ? at : mod(at, size);
      inner = inner * size;
    }
    if (inner != elements && !facts.provablyEqual(inner, elements)) return std::nullopt;
    return out;
  }

  /// Plain pointwise code whose every access is known.
  bool isPlain(const Kernel &k) const {
    if (k.kind != Node::Kind::Pointwise || k.serial || !k.rRanges.empty()) return false;
    for (const Node &n : k.nodes) {
      const auto *plain = n.as<PointwiseSpec>();
      if (!plain) return false;
      for (const Op &op : plain->body.ops)
        if (op.kind == OpKind::Indirect || info(op.kind).has(Random)) return false;
      for (const Store &s : plain->stores)
        if (s.mask >= 0 || s.mode != StoreMode::Set) return false;
    }
    return true;
  }
  Work workOf(const Kernel &k, BufferId without) const {
    Work w;
    for (const Node &n : k.nodes)
      for (const Op &op : n.body().ops) {
        if (op.kind == OpKind::Load)
          w.loads += op.buffer != without;
        else if (op.kind != OpKind::Constant && op.kind != OpKind::Index)
          ++w.ops, w.heavy |= info(op.kind).isHeavy();
      }
    return w;
  }
  static bool worthIt(const Work &w, double times) {
    if (w.ops > kMostOps) return false;
    return times <= (w.heavy || w.ops > kCheapOps || w.loads > kCheapLoads ? kOnce : kFewTimes);
  }

  /// Its nodes over the elements of the tensor between.
  std::vector<Node> over(const Kernel &k, const SymbolMap<Expr> &map, Expr elements) const {
    Facts facts = p_.program.facts;
    facts.setIndex(Symbol::outer(0), elements);
    std::vector<Node> out;
    for (Node n : k.nodes) {
      mapExprs(n, [&](Expr e) { return facts.simplify(substitute(e, map)); });
      n.ranges = {elements};
      out.push_back(std::move(n));
    }
    return out;
  }

  /// Copies of one node get names of their own.
  void attach(size_t u, size_t argument, std::vector<Node> nodes, size_t position) {
    Kernel &k = p_.kernels[u];
    Kernel::Attached &list = k.attached.emplace_back();
    list.argument = argument;
    for (Node &n : nodes) list.nodes.push_back(n.id = NodeId(nextNode_++));
    k.nodes.insert(k.nodes.begin() + static_cast<std::ptrdiff_t>(position), nodes.begin(), nodes.end());
  }

  /// Nothing that runs from `first` up to `last` (exclusive) stands in the way of moving kernel k over it.
  bool canMove(const Kernel &k, size_t first, size_t last) const {
    std::set<int32_t> in = touched(k, false), out = touched(k, true);
    std::set<Symbol> needed;
    for (const Node &n : k.nodes)
      for (Symbol s : neededBy(p_.program, n)) needed.insert(s);
    for (size_t m = first; m < last; ++m) {
      if (gone_[m]) continue;
      for (Symbol s : definedBy(p_.kernels[m].nodes[0]))
        if (needed.count(s)) return false;
      std::set<int32_t> stores = touched(p_.kernels[m], true), loads = touched(p_.kernels[m], false);
      if (meet(stores, in) || meet(stores, out) || meet(loads, out)) return false;
    }
    return true;
  }

  /// The one kernel before u that stores t, which nobody but u reads.
  std::optional<size_t> producerFor(size_t u, BufferId t) const {
    std::optional<size_t> producer;
    if (isOutput(t)) return std::nullopt;
    for (size_t k = 0; k < p_.kernels.size(); ++k) {
      if (gone_[k] || k == u) continue;
      if (!writes(p_.kernels[k], t)) {
        if (reads(p_.kernels[k], t)) return std::nullopt;
        continue;
      }
      if (producer || k > u) return std::nullopt;
      producer = k;
    }
    return producer;
  }

  /// The nodes of a plain kernel that these buffers need.
  static std::vector<Node> leadingTo(const Kernel &k, std::set<int32_t> needed) {
    std::vector<Node> nodes;
    for (size_t n = k.nodes.size(); n-- > 0;) {
      Node node = k.nodes[n];
      std::vector<Store> &stores = node.get<PointwiseSpec>().stores;
      std::erase_if(stores, [&](const Store &s) { return !needed.count(s.buffer.value); });
      if (stores.empty()) continue;
      forEachAccess(node, [&](const Access &a) {
        if (a.reads()) needed.insert(a.buffer.value);
      });
      nodes.insert(nodes.begin(), std::move(node));
    }
    return nodes;
  }

  /// The producer of argument i; what it makes besides stays where it is.
  void before(size_t u, UserKernelSpec &spec, size_t i) {
    BufferId t = spec.arguments[i].buffer;
    Expr elements = p_.program.buffer(t).elements;
    std::optional<size_t> producer = producerFor(u, t);
    if (!producer || !isPlain(p_.kernels[*producer])) return;
    Kernel &k = p_.kernels[*producer];
    Expr index;
    std::set<int32_t> others;
    for (const Store *s : storesOf(k)) {
      if (s->buffer == t && index.valid()) return;
      if (s->buffer == t)
        index = s->index;
      else if (!onlyInside(s->buffer, *producer))
        others.insert(s->buffer.value);
    }
    // What stays may need t itself.
    Kernel part = k, rest = k;
    part.nodes = leadingTo(k, {t.value}), rest.nodes = leadingTo(k, others);
    if (reads(rest, t)) return;
    std::optional<SymbolMap<Expr>> map = inverse(k, index, elements);
    if (!map) return;
    std::string what = k.name + " at the loads of " + spec.arguments[i].name;
    Work work = workOf(part, t);
    // Where the producer stays for others, what it loads is loaded again, and what they share is computed again.
    double times = spec.arguments[i].loads + (others.empty() ? 0 : 1);
    if (!worthIt(work, times) || (!others.empty() && work.loads > kCheapLoads))
      return say(u, fmt::format("not {}: an element is loaded {:.3g} times, {} operators and {} loads each", what,
                                spec.arguments[i].loads, work.ops, work.loads));
    std::set<int32_t> changed;
    for (const Argument &a : spec.arguments)
      if (a.kind == Argument::Memory && a.written) changed.insert(a.buffer.value);
    for (const Store *s : storesOf(k))
      if (reads(part, s->buffer) && others.count(s->buffer.value)) return;
    if (meet(touched(part, false), changed)) return say(u, "not " + what + ": it reads what the launch changes");
    if (!canMove(part, *producer + 1, u)) return say(u, "not " + what + ": another kernel changes what it reads");
    applied(Rule::AttachBefore);
    attach(u, i, over(part, *map, elements), 0);
    say(u, what);
    spec.arguments[i].inside = true;
    if (others.empty())
      gone_[*producer] = true;
    else
      k.nodes = std::move(rest.nodes);
  }

  bool onlyInside(BufferId b, size_t k) const {
    if (p_.program.buffer(b).kind != Buffer::Kind::Temp || isOutput(b) || !plan::livesInside(p_.kernels[k], b))
      return false;
    for (size_t m = 0; m < p_.kernels.size(); ++m)
      if (m != k && !gone_[m] && (reads(p_.kernels[m], b) || writes(p_.kernels[m], b))) return false;
    return true;
  }

  void behind(size_t u, UserKernelSpec &spec, size_t i) {
    BufferId t = spec.arguments[i].buffer;
    Expr elements = p_.program.buffer(t).elements;
    std::vector<size_t> readers;
    for (size_t k = 0; k < p_.kernels.size(); ++k) {
      if (gone_[k] || k == u) continue;
      if (writes(p_.kernels[k], t)) return;
      if (reads(p_.kernels[k], t)) readers.push_back(k);
    }
    if (readers.empty() || readers[0] < u || !isPlain(p_.kernels[readers[0]])) return;
    Kernel &k = p_.kernels[readers[0]];
    Expr index;
    bool one = true; // Behind a mask it could be another's element.
    for (const Node &n : k.nodes)
      forEachAccess(n, [&](const Access &a) {
        if (a.buffer != t) return;
        one &= !a.masked && !a.whole() && (!index.valid() || index == a.index);
        index = a.index;
      });
    if (!one) return;
    std::optional<SymbolMap<Expr>> map = inverse(k, index, elements);
    if (!map) return;
    std::string what = k.name + " before the stores to " + spec.arguments[i].name;
    Work work = workOf(k, t);
    if (!worthIt(work, spec.arguments[i].stores))
      return say(u, fmt::format("not {}: an element is stored {:.3g} times, {} operators each", what,
                                spec.arguments[i].stores, work.ops));
    // What it reads must be there, and what it writes must be nobody's whom the launch touches.
    std::set<int32_t> in = touched(k, false), out = touched(k, true), stored, loaded;
    for (const Node &n : p_.kernels[u].nodes)
      forEachAccess(n, [&](const Access &a) {
        if (a.writes()) stored.insert(a.buffer.value);
        if (a.reads()) loaded.insert(a.buffer.value);
      });
    in.erase(t.value);
    for (const Store *s : storesOf(k)) {
      if (onlyInside(s->buffer, readers[0]))
        in.erase(s->buffer.value);
      else if (in.count(s->buffer.value))
        return;
    }
    if (meet(in, stored) || meet(out, stored) || meet(out, loaded))
      return say(u, "not " + what + ": it needs more of what the launch makes than one element");
    if (!canMove(k, u + 1, readers[0])) return say(u, "not " + what + ": another kernel runs between them");
    applied(Rule::AttachBehind);
    attach(u, i, over(k, *map, elements), p_.kernels[u].nodes.size());
    bool needed = readers.size() > 1 || isOutput(t);
    say(u, what + (needed ? ", which are needed as well" : ""));
    gone_[readers[0]] = true;
    spec.arguments[i].inside = !needed;
  }
  static std::vector<const Store *> storesOf(const Kernel &k) {
    std::vector<const Store *> out;
    for (const Node &n : k.nodes)
      for (const Store &s : n.stores()) out.push_back(&s);
    return out;
  }
};

} // namespace

std::vector<plan::KernelId> attachNeighbours(Plan &plan) { return Attacher(plan).run(); }

} // namespace neso::schedule
