#include "ir/plan/verify.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "base/diagnostics/loops.h"
#include "ir/loops/access.h"
#include "ir/loops/verify.h"
#include "ir/plan/access.h"
#include "ir/plan/lives.h"
#include "ir/plan/steps.h"

namespace neso::plan {

using namespace loops;

namespace {

class Checker {
public:
  Checker(const Plan &plan, Form form) : p_(plan), form_(form) {}

  Status run() {
    if (!positions() || !places()) return finish();
    if (form_ == Form::Scheduled)
      for (const Kernel &k : p_.kernels) space(k);
    parts();
    launches();
    dataFlow();
    nowhere();
    outputs();
    writeBacks();
    sizes();
    if (form_ == Form::Scheduled) return finish();
    lives();
    arena();
    lateArenas();
    inputSizes();
    guards();
    callerOutputs();
    outputMemory();
    arguments();
    return finish();
  }

private:
  const Plan &p_;
  Form form_;
  std::vector<Diagnostic> diags_;
  /// By step: (result, operand) pairs of which the one may take the other's memory there.
  std::vector<std::set<std::pair<BufferId, BufferId>>> handedOn_;

  /// Calls f for each step of kind T.
  template <typename T, typename F> void each(F &&f) const {
    forEachStep(p_.main, [&](const Step &step) {
      if (const T *s = step.as<T>()) f(*s);
    });
  }

  void breach(const char *rule, const std::string &where, const std::string &what) {
    if (diags_.size() < 20) diags_.push_back(makeDiag(diag::PlanInvariant, {}, rule, where, what));
  }
  Status finish() { return diags_.empty() ? Status() : Status(Error(std::move(diags_))); }
  const std::string &nameOf(BufferId b) const { return p_.program.buffer(b).name; }

  bool positions() {
    if (p_.placements.size() != p_.program.buffers.size())
      breach("P1", p_.program.name,
             fmt::format("{} placements for {} buffers", p_.placements.size(), p_.program.buffers.size()));
    for (size_t b = 0; b < p_.program.buffers.size(); ++b)
      if (p_.program.buffers[b].id.value != static_cast<int32_t>(b))
        breach("P1", p_.program.buffers[b].name, "the buffer's id is not its position");
    for (size_t k = 0; k < p_.kernels.size(); ++k)
      if (p_.kernels[k].id.value != static_cast<int32_t>(k))
        breach("P1", p_.kernels[k].name, "the kernel's id is not its position");
    for (const Kernel &k : p_.kernels)
      for (KernelId part : k.parts)
        if (!part.valid() || part.index() >= p_.kernels.size()) breach("P1", k.name, "a part does not exist");
    each<Launch>([&](const Launch &l) {
      if (!l.kernel.valid() || l.kernel.index() >= p_.kernels.size())
        breach("P1", "a launch", "its kernel does not exist");
    });
    each<Copy>([&](const Copy &c) {
      const bool output = c.dstOutput >= 0 && c.dstOutput < static_cast<int>(p_.program.outputs.size());
      if (!c.dst.valid() && !output) breach("P1", "a copy", "its destination does not exist");
    });
    forEachStep(p_.main, [&](const Step &step) {
      for (const NamedBuffer &named : namedBuffers(step))
        if (!exists(named.buffer) && (named.buffer.valid() || !step.as<Copy>() || named.mode != AccessMode::Write))
          breach("P1", std::string(name(step)), "a buffer of it does not exist");
    });
    each<GrowArena>([&](const GrowArena &g) {
      if (g.arena >= p_.arenas.size()) breach("P1", "a step", "its arena does not exist");
    });
    each<AllocOutput>([&](const AllocOutput &o) {
      if (o.output >= p_.outputs.size()) breach("P1", "a step", "its output does not exist");
    });
    for (const CallerOutput &o : p_.outputs)
      if (o.output >= p_.program.outputs.size() || (o.buffer.valid() && !exists(o.buffer)))
        breach("P1", "an output", "it does not exist, or its buffer");
    for (const Placement &place : p_.placements)
      if (form_ == Form::Complete && place.where == Placement::Where::Arena && place.arena >= p_.arenas.size())
        breach("P1", "a placement", "its arena does not exist");
    return diags_.empty();
  }

  bool exists(BufferId b) const { return b.valid() && b.index() < p_.program.buffers.size(); }

  /// P1 of what kernels and placements name: buffers are what their kind says, and every expression is there.
  bool places() {
    for (size_t b = 0; b < p_.placements.size(); ++b) {
      const Placement &place = p_.placements[b];
      const Buffer &buffer = p_.program.buffers[b];
      const bool temp = buffer.kind == Buffer::Kind::Temp;
      using Where = Placement::Where;
      const bool ownPlace = place.where == (buffer.kind == Buffer::Kind::Constant ? Where::Constant : Where::Input);
      const bool right = place.where == Where::None || (temp ? place.where == Where::Arena || place.where == Where::Output : ownPlace);
      if (!right) breach("P1", buffer.name, fmt::format("cannot be placed in '{}'", name(place.where)));
      if (!buffer.elements.valid() || !place.offset.valid() || !place.bytes.valid()) breach("P1", buffer.name, "has no size");
    }
    for (const Kernel &k : p_.kernels) {
      for (const Node &n : k.nodes) {
        forEachAccess(n, [&](const Access &a) {
          if (!exists(a.buffer)) breach("P1", k.name, "a buffer of its nodes does not exist");
        });
        // The walk passes over operands that are not there, as a mask may be.
        if (const auto *attention = n.as<AttentionSpec>())
          for (const AttentionSpec::Operand *o : {&attention->q, &attention->k, &attention->v, &attention->out})
            if (!exists(o->buffer)) breach("P1", k.name, "an operand of its attention does not exist");
      }
      for (const KernelArg &a : k.args)
        if (a.kind == KernelArg::Kind::Buffer ? !exists(a.buffer) || !a.offset.valid() : a.kind == KernelArg::Kind::Size && !a.size.valid())
          breach("P1", k.name, "an argument does not exist");
      for (Expr e : k.grid)
        if (!e.valid()) breach("P1", k.name, "its grid has no size");
      if (!k.product) continue;
      const Product &q = *k.product;
      for (BufferId b : {q.a.buffer, q.b.buffer, q.d.buffer})
        if (!exists(b)) breach("P1", k.name, "an operand of its product does not exist");
      if (q.rest.valid() && q.rest.index() >= p_.kernels.size()) breach("P1", k.name, "what follows its product does not exist");
    }
    forEachStep(p_.main, [&](const Step &step) {
      for (Expr e : expressionsOf(p_, step))
        if (!e.valid()) breach("P1", std::string(name(step)), "an expression is not there");
    });
    return diags_.empty();
  }

  /// Each kernel runs once: by its step, by the kernel that it is part of, or behind a library's product.
  void launches() {
    std::vector<int> runs(p_.kernels.size());
    each<Launch>([&](const Launch &l) { ++runs[l.kernel.index()]; });
    for (const Kernel &k : p_.kernels) {
      for (KernelId part : k.parts) ++runs[part.index()];
      if (k.product && k.product->rest.valid()) ++runs[k.product->rest.index()];
    }
    for (const Kernel &k : p_.kernels)
      if (runs[k.id.index()] != 1) breach("P3", k.name, fmt::format("runs {} times", runs[k.id.index()]));
  }

  void space(const Kernel &k) {
    std::vector<Symbol> sizes = sizeSymbols(p_.program);
    for (Symbol late : lateSymbols(p_)) sizes.push_back(late);
    for (const Node &n : k.nodes) {
      if (k.kind != Node::Kind::UserKernel && n.ranges != k.xRanges)
        breach("P2", k.name, "a node's ranges are not the kernel's");
      if (!n.reduceRanges.empty() && n.reduceRanges != k.rRanges)
        breach("P2", k.name, "a node's inner ranges are not the kernel's");
      bool attention = k.kind == Node::Kind::Attention;
      if (Status s = verifyNode(p_.program, n, attention ? Symbol::Kind::Index : Symbol::Kind::Outer, sizes); !s)
        for (const Diagnostic &d : s.error().diagnostics()) breach("P2", k.name, d.message);
    }
  }

  void parts() {
    std::vector<int> launches(p_.kernels.size());
    each<Launch>([&](const Launch &l) { ++launches[l.kernel.index()]; });
    for (const Kernel &k : p_.kernels) {
      std::map<int32_t, std::vector<const Kernel *>> writers;
      for (KernelId id : k.parts)
        for (const BufferAccess &a : memoryAccesses(p_, p_.kernels[id.index()]))
          if (a.written) writers[a.buffer.value].push_back(&p_.kernels[id.index()]);
      for (KernelId id : k.parts) {
        const Kernel &part = p_.kernels[id.index()];
        if (!part.parts.empty() || launches[id.index()]++ > 0)
          breach("P7", part.name, "is launched by '" + k.name + "' and otherwise too");
        for (const BufferAccess &a : memoryAccesses(p_, part)) {
          const std::optional<Interval> mine = storedRange(p_.program.facts, part, a.buffer);
          for (const Kernel *w : writers[a.buffer.value]) {
            if (w == &part) continue;
            const std::optional<Interval> other = storedRange(p_.program.facts, *w, a.buffer);
            if (!mine || !other || (mine->lo <= other->hi && other->lo <= mine->hi))
              breach("P7", k.name,
                     fmt::format("'{}' touches '{}', which '{}' writes", part.name, nameOf(a.buffer), w->name));
          }
        }
      }
    }
  }

  void dataFlow() {
    std::vector<bool> written(p_.program.buffers.size());
    // What has no elements need not be written.
    for (const Buffer &b : p_.program.buffers)
      written[b.id.index()] = b.kind != Buffer::Kind::Temp || b.elements.isConst(0);
    region(p_.main, written);
    for (const ProgramOutput &o : p_.program.outputs)
      if (o.kind == ProgramOutput::Kind::Tensor && o.buffer.valid() && !written[o.buffer.index()])
        breach("P3", "an output", fmt::format("reads '{}' before anything wrote it", nameOf(o.buffer)));
  }

  /// Follows what is written; of a branch counts what both ways write, of a loop what its test writes.
  void region(const Region &r, std::vector<bool> &written) {
    auto read = [&](BufferId b, const std::string &by) {
      if (!written[b.index()]) breach("P3", by, fmt::format("reads '{}' before anything wrote it", nameOf(b)));
    };
    for (const Step &s : r.steps) {
      if (const auto *l = s.as<Launch>()) {
        const Kernel &k = p_.kernels[l->kernel.index()];
        for (BufferId b : readsFirst(k)) read(b, k.name);
        for (const BufferAccess &a : memoryAccesses(p_, k))
          if (a.written) written[a.buffer.index()] = true;
      }
      for (const NamedBuffer &named : namedBuffers(s))
        if (named.mode != AccessMode::Write) read(named.buffer, std::string(name(s)));
      for (const NamedBuffer &named : namedBuffers(s))
        if (named.buffer.valid() && named.mode != AccessMode::Read) written[named.buffer.index()] = true;
      if (const auto *branch = s.as<If>()) {
        std::vector<bool> then = written, otherwise = written;
        region(branch->then, then), region(branch->otherwise, otherwise);
        for (size_t b = 0; b < written.size(); ++b) written[b] = then[b] && otherwise[b];
      } else if (const auto *loop = s.as<While>()) {
        region(loop->test, written);
        std::vector<bool> body = written;
        region(loop->body, body);
      }
    }
  }

  /// What the kernel reads from memory before one of its own nodes wrote it.
  std::vector<BufferId> readsFirst(const Kernel &k) const {
    std::vector<BufferId> out;
    for (KernelId part : k.parts)
      for (BufferId b : readsFirst(p_.kernels[part.index()])) out.push_back(b);
    std::set<BufferId> made;
    // A user's kernel is taken to read what it writes, unless the contrary is proven.
    if (k.kind == Node::Kind::UserKernel)
      for (const BufferAccess &a : memoryAccesses(p_, k))
        if (a.written) made.insert(a.buffer);
    for (size_t n = 0; n < k.nodes.size(); ++n) {
      forEachAccess(k.nodes[n], [&](const Access &a) {
        const bool nowhere = p_.placements[a.buffer.index()].where == Placement::Where::None;
        if (a.inside || nowhere || !a.reads() || made.contains(a.buffer)) return;
        if (a.whole() || a.mode == AccessMode::Update || !isForwarded(k, n, a.buffer, a.index)) out.push_back(a.buffer);
      });
      forEachWrite(k.nodes[n], [&](const Access &a) { made.insert(a.buffer); });
    }
    return out;
  }

  void nowhere() {
    std::vector<const Kernel *> user(p_.program.buffers.size());
    // What follows a library's product is the end of its kernel once more, which then does not run.
    std::set<int32_t> ends;
    for (const Kernel &k : p_.kernels)
      if (k.product && k.product->rest.valid()) ends.insert(k.product->rest.value);
    for (const Kernel &k : p_.kernels) {
      if (ends.count(k.id.value)) continue;
      std::set<int32_t> seen;
      auto touch = [&](BufferId b) {
        if (p_.placements[b.index()].where != Placement::Where::None || !seen.insert(b.value).second) return;
        if (user[b.index()])
          breach(
              "P4", k.name,
              fmt::format("uses '{}', which is placed nowhere and used by '{}' too", nameOf(b), user[b.index()]->name));
        else if (!livesInside(k, b))
          breach("P4", k.name,
                 fmt::format("reads '{}', which is placed nowhere, where it did not store it", nameOf(b)));
        user[b.index()] = &k;
      };
      for (const Node &n : k.nodes) forEachAccess(n, [&](const Access &a) { touch(a.buffer); });
    }
    each<CallExtern>([&](const CallExtern &e) {
      forEachView(e.call, [&](const ExternSpec::View &view, AccessMode) {
        if (p_.placements[view.buffer.index()].where == Placement::Where::None) breach("P4", e.name, fmt::format("is given '{}', which is placed nowhere", nameOf(view.buffer)));
      });
    });
  }

  /// Size symbols at their least, their greatest (within reason) and random values, and as the model was made with.
  std::vector<SymbolMap<int64_t>> samples(bool withLate = false) const {
    std::vector<SymbolMap<int64_t>> out;
    std::mt19937_64 rng(7);
    std::vector<Symbol> symbols = sizeSymbols(p_.program);
    if (withLate)
      for (Symbol late : lateSymbols(p_)) symbols.push_back(late);
    bool symbolic = false;
    for (int k = 0; k < 8; ++k) {
      SymbolMap<int64_t> v;
      for (Symbol s : symbols) {
        Interval range = p_.program.facts.range(s);
        int64_t lo = std::max<int64_t>(range.lo, 0), hi = std::min<int64_t>(range.hi, std::max<int64_t>(lo, 5000));
        v[s] = k == 0 ? lo : k == 1 ? hi : lo + static_cast<int64_t>(rng() % static_cast<uint64_t>(hi - lo + 1));
        symbolic = true;
      }
      out.push_back(std::move(v));
      if (!symbolic) break;
    }
    SymbolMap<int64_t> usual;
    for (Symbol s : symbols)
      if (const std::optional<int64_t> hint = p_.program.facts.hint(s)) usual[s] = *hint;
    if (symbolic && usual.size() == std::set<Symbol>(symbols.begin(), symbols.end()).size()) out.push_back(std::move(usual));
    // Many large sizes at once make buffers of more bytes than numbers go: smaller ones then.
    auto countable = [&](const SymbolMap<int64_t> &v) {
      return evaluate(p_.arenaBytes(), v) && std::all_of(p_.program.buffers.begin(), p_.program.buffers.end(), [&](const loops::Buffer &b) {
               const std::vector<Symbol> own = symbolsOf(b.elements);
               return !std::all_of(own.begin(), own.end(), [&](Symbol s) { return v.contains(s); }) || evaluate(b.elements * Expr(itemSize(b.dtype)), v);
             });
    };
    for (SymbolMap<int64_t> &v : out)
      for (int halved = 0; halved < 13 && !countable(v); ++halved)
        for (auto &[s, n] : v) n = std::max(std::max<int64_t>(p_.program.facts.range(s).lo, 0), n / 2);
    // Only sizes that the guards allow count.
    std::erase_if(out, [&](const auto &v) {
      return std::any_of(p_.program.guards.begin(), p_.program.guards.end(),
                         [&](Expr g) { return evaluate(g, v) != 1; });
    });
    return out;
  }

  /// Life times in steps are those of the steps.
  void lives() {
    const LifeTimes times(p_);
    for (size_t b = 0; b < p_.placements.size(); ++b) {
      const Placement &place = p_.placements[b];
      if (place.where == Placement::Where::Arena && times.first[b] >= 0 && (place.firstStep > times.first[b] || place.lastStep < times.last[b]))
        breach("P5", p_.program.buffers[b].name,
               fmt::format("lives in steps [{}, {}], not in [{}, {}]", times.first[b], times.last[b], place.firstStep, place.lastStep));
    }
    forEachStep(p_.main, [&](const Step &step) {
      const auto *l = step.as<Launch>();
      const std::vector<std::pair<BufferId, BufferId>> pairs =
          l ? inPlacePairs(p_, p_.kernels[l->kernel.index()]) : std::vector<std::pair<BufferId, BufferId>>();
      handedOn_.push_back({pairs.begin(), pairs.end()});
    });
  }
  /// Whether the step at which one ends and the other begins writes the one over the other, element by element.
  bool handedOn(size_t a, size_t b) const {
    if (p_.placements[a].lastStep != p_.placements[b].firstStep) std::swap(a, b);
    const auto step = static_cast<size_t>(p_.placements[a].lastStep);
    return p_.placements[a].lastStep == p_.placements[b].firstStep && p_.placements[a].offset == p_.placements[b].offset &&
           step < handedOn_.size() &&
           handedOn_[step].contains({p_.program.buffers[b].id, p_.program.buffers[a].id});
  }

  void arena() {
    std::vector<size_t> live, alone(p_.arenas.size());
    for (size_t b = 0; b < p_.placements.size(); ++b) {
      const Placement &place = p_.placements[b];
      if (place.where != Placement::Where::Arena) continue;
      if (place.arena == 0)
        live.push_back(b);
      else if (!p_.arenas[place.arena].late || alone[place.arena]++ || !place.offset.isConst(0))
        breach("P5", p_.program.buffers[b].name, "is not alone in its arena");
    }
    std::vector<SymbolMap<int64_t>> sizes = samples();
    for (const auto &v : sizes) {
      int64_t total = evaluate(p_.arenaBytes(), v).value_or(-1);
      std::vector<std::pair<int64_t, int64_t>> at(p_.placements.size());
      for (size_t b : live) {
        const Placement &place = p_.placements[b];
        const Expr needs = p_.program.buffers[b].elements * Expr(itemSize(p_.program.buffers[b].dtype));
        int64_t offset = evaluate(place.offset, v).value_or(-1), bytes = evaluate(place.bytes, v).value_or(-1);
        at[b] = {offset, offset + bytes};
        if (offset < 0 || bytes < 0 || offset % 64 || bytes % 64 || offset + bytes > total ||
            bytes < evaluate(needs, v).value_or(INT64_MAX))
          breach("P5", p_.program.buffers[b].name,
                 fmt::format("lies at {} with {} bytes in an arena of {}", offset, bytes, total));
      }
      for (size_t i = 0; i < live.size(); ++i)
        for (size_t j = i + 1; j < live.size(); ++j) {
          const Placement &a = p_.placements[live[i]], &b = p_.placements[live[j]];
          if (a.lastStep < b.firstStep || b.lastStep < a.firstStep) continue;
          if (at[live[i]].first >= at[live[j]].second || at[live[j]].first >= at[live[i]].second) continue;
          if (!handedOn(live[i], live[j]))
            breach("P5", p_.program.buffers[live[i]].name,
                   fmt::format("overlaps '{}' while both live", p_.program.buffers[live[j]].name));
        }
      if (!diags_.empty()) return;
    }
  }

  /// A buffer that has an arena of its own fits, at whatever late sizes.
  void lateArenas() {
    for (const SymbolMap<int64_t> &v : samples(true))
      for (const Buffer &b : p_.program.buffers) {
        const Placement &place = p_.placements[b.id.index()];
        if (place.where != Placement::Where::Arena || place.arena == 0) continue;
        const std::optional<int64_t> needs = evaluate(b.elements * Expr(itemSize(b.dtype)), v), bytes = evaluate(place.bytes, v),
                                     have = evaluate(p_.arenas[place.arena].bytes, v);
        if (needs && bytes && have && (*needs > *bytes || *needs > *have))
          return breach("P5", b.name, fmt::format("needs {} bytes in an arena of {}", *needs, *have));
      }
  }

  /// Each dimension of an input is taken for its symbol, compared with its expression, or fixed.
  void inputSizes() {
    if (p_.inputSizes.size() != p_.program.inputs.size())
      return breach("P9", p_.program.name, "the sizes of some inputs are not planned");
    for (size_t i = 0; i < p_.inputSizes.size(); ++i) {
      const ProgramInput &in = p_.program.inputs[i];
      const bool tensor = in.kind == ProgramInput::Kind::Tensor;
      if (p_.inputSizes[i].size() != (tensor ? in.sizes.size() : 1)) {
        breach("P9", in.name, "has another number of dimensions");
        continue;
      }
      for (size_t d = 0; tensor && d < in.sizes.size(); ++d) {
        const InputSize &size = p_.inputSizes[i][d];
        const Interval range = p_.program.facts.rangeOf(in.sizes[d]);
        const bool taken = in.sizes[d].isConst() || size.equal == in.sizes[d] ||
                           (in.sizes[d].isSymbol() && size.defines == in.sizes[d].symbol());
        if (!taken || size.range.lo < range.lo || size.range.hi > range.hi)
          breach("P9", in.name, fmt::format("its size {} is not what is asked for in dimension {}", in.sizes[d].str(), d));
      }
    }
  }

  /// Symbols are known before anything asks for them. Those that a step of a branch or of a loop loads are known inside only.
  void sizes() {
    std::set<Symbol> known, loaded;
    if (form_ == Form::Scheduled) {
      // How the inputs give them is not planned yet.
      for (const ProgramInput &in : p_.program.inputs) {
        for (const std::vector<Expr> *es : {&in.sizes, &in.strides})
          for (Expr e : *es)
            for (Symbol s : symbolsOf(e)) known.insert(s);
        if (in.scalar.valid())
          for (Symbol s : symbolsOf(in.scalar)) known.insert(s);
      }
      sizes(p_.main, known, loaded);
      return atEnd(known);
    }
    auto define = [&](Symbol symbol) {
      if (!known.insert(symbol).second) breach("P9", symbol.str(), "is defined twice");
    };
    for (const std::vector<InputSize> &input : p_.inputSizes)
      for (const InputSize &size : input)
        if (size.defines.valid()) define(size.defines);
    for (const SizeDefinition &d : p_.definitions) ask(d.value, known, "a definition"), define(d.symbol);
    for (const std::vector<InputSize> &input : p_.inputSizes)
      for (const InputSize &size : input) ask(size.equal, known, "an input");
    for (const Guard &g : p_.guards) ask(g.condition, known, "a guard");
    for (const Arena &a : p_.arenas)
      if (!a.late) ask(a.bytes, known, "an arena");
    for (const CallerOutput &o : p_.outputs)
      if (!o.late) ask(o.bytes, known, "an output");
    sizes(p_.main, known, loaded);
    atEnd(known);
  }
  /// What memory and outputs need, of sizes that something gives somewhere.
  void atEnd(std::set<Symbol> known) {
    for (Symbol late : lateSymbols(p_)) known.insert(late);
    for (const Buffer &b : p_.program.buffers)
      if (p_.placements[b.id.index()].where != Placement::Where::None) ask(b.elements, known, b.name);
    for (const ProgramOutput &o : p_.program.outputs) {
      ask(o.sizes, known, "an output"), ask(o.strides, known, "an output");
      ask(o.offset, known, "an output"), ask(o.scalar, known, "an output");
    }
    for (Expr g : p_.program.guards) ask(g, known, "a guard");
    for (const Assertion &a : p_.program.assertions) ask(a.condition, known, "an assertion");
  }
  void ask(Expr e, const std::set<Symbol> &known, const std::string &by) {
    if (!e.valid()) return;
    for (Symbol s : symbolsOf(e))
      if (!known.contains(s)) breach("P9", by, fmt::format("depends on '{}', which is not known", s.str()));
  }
  void ask(const std::vector<Expr> &es, const std::set<Symbol> &known, const std::string &by) {
    for (Expr e : es) ask(e, known, by);
  }
  /// A loop loads its symbols at each turn: `loaded` are those that wait for their EvalSizes.
  void sizes(const Region &region, std::set<Symbol> &known, std::set<Symbol> &loaded) {
    for (const Step &step : region.steps) {
      if (const auto *l = step.as<LoadScalar>()) (form_ == Form::Scheduled ? known : loaded).insert(l->symbol);
      if (const auto *e = step.as<EvalSizes>()) {
        if (!loaded.erase(e->symbol)) breach("P9", e->symbol.str(), "is not loaded before its sizes are computed");
        known.insert(e->symbol);
      }
      if (const auto *b = step.as<If>()) {
        for (const Region *way : {&b->then, &b->otherwise}) {
          std::set<Symbol> inside = known;
          sizes(*way, inside, loaded);
        }
      }
      if (const auto *w = step.as<While>()) {
        std::set<Symbol> inside = known;
        sizes(w->test, inside, loaded);
        ask(w->condition, inside, "while");
        sizes(w->body, inside, loaded);
      }
      asked(step, known);
    }
    for (Symbol s : loaded) breach("P9", s.str(), "is loaded, and its sizes are not computed");
    loaded.clear();
  }
  /// What one step asks for.
  void asked(const Step &step, const std::set<Symbol> &known) {
    // A loop's condition is asked behind its test.
    if (!step.as<While>()) ask(expressionsOf(p_, step), known, std::string(name(step)));
    if (const auto *launch = step.as<Launch>()) asked(p_.kernels[launch->kernel.index()], known);
  }
  void asked(const Kernel &k, const std::set<Symbol> &known) {
    for (Expr e : k.grid) ask(e, known, k.name);
    for (const KernelArg &arg : k.args) {
      if (arg.kind == KernelArg::Kind::Size) ask(arg.size, known, k.name);
      if (arg.kind == KernelArg::Kind::Buffer) ask(arg.offset, known, k.name);
    }
    for (KernelId part : k.parts) asked(p_.kernels[part.index()], known);
    if (!k.product) return;
    const Product &q = *k.product;
    ask({q.batch, q.m, q.n, q.k, q.biasOffset}, known, k.name);
    for (const Matrix *m : {&q.a, &q.b, &q.d}) ask({m->offset, m->pitch, m->batchStride}, known, k.name);
    if (q.rest.valid()) asked(p_.kernels[q.rest.index()], known);
  }

  /// Each condition of the program is tested once: before memory is taken, or where its sizes become known.
  void guards() {
    std::vector<Expr> tested;
    for (const Guard &g : p_.guards) tested.push_back(g.condition);
    each<Guard>([&](const Guard &g) { tested.push_back(g.condition); });
    std::vector<Expr> asked;
    for (Expr g : p_.program.guards)
      if (!g.isConst(1)) asked.push_back(g);
    for (const Assertion &a : p_.program.assertions) asked.push_back(a.condition);
    for (Expr g : asked)
      if (std::count(tested.begin(), tested.end(), g) != std::count(asked.begin(), asked.end(), g))
        breach("P10", g.str(), "is not tested once");
    if (tested.size() != asked.size()) breach("P10", p_.program.name, "tests another condition than the program's");
  }

  /// The caller is given each output that is no write-back, in order; a late one has one step that takes its memory, as a
  /// late arena has.
  void callerOutputs() {
    size_t next = 0;
    for (size_t k = 0; k < p_.program.outputs.size(); ++k)
      if (p_.program.outputs[k].mutationTarget.empty() &&
          (next >= p_.outputs.size() || p_.outputs[next++].output != k))
        return breach("P11", fmt::format("output {}", k), "is not given to the caller in its turn");
    if (next != p_.outputs.size()) return breach("P11", "an output", "is given to the caller and is none");
    std::vector<int> taken(p_.outputs.size()), grown(p_.arenas.size());
    each<AllocOutput>([&](const AllocOutput &o) { ++taken[o.output]; });
    each<GrowArena>([&](const GrowArena &g) { ++grown[g.arena]; });
    for (size_t k = 0; k < taken.size(); ++k)
      if (taken[k] != (p_.outputs[k].late ? 1 : 0)) breach("P11", fmt::format("output {}", k), "its memory is not taken once");
    for (size_t a = 0; a < grown.size(); ++a)
      if (grown[a] != (p_.arenas[a].late ? 1 : 0)) breach("P11", fmt::format("arena {}", a), "is not sized once");
    for (const CallerOutput &o : p_.outputs)
      if (o.buffer.valid() && p_.placements[o.buffer.index()].where == Placement::Where::None)
        breach("P11", nameOf(o.buffer), "is given to the caller and has no memory");
  }

  /// The arguments of a tile function name all memory that its kernel touches, as it is touched.
  void arguments() {
    for (const Kernel &k : p_.kernels) {
      if (k.function.empty()) continue;
      for (const BufferAccess &a : memoryAccesses(p_, k)) {
        bool read = !a.read, written = !a.written;
        for (const KernelArg &arg : k.args) {
          if (arg.kind != KernelArg::Kind::Buffer || arg.buffer != a.buffer) continue;
          read |= arg.read, written |= arg.written;
        }
        if (!read || !written) breach("P12", k.name, fmt::format("no argument says how '{}' is used", nameOf(a.buffer)));
      }
    }
  }

  /// What the caller is given has memory of its tensor's size, at all sampled sizes; late are those that late symbols decide.
  void outputMemory() {
    const std::vector<Symbol> late = lateSymbols(p_);
    for (size_t a = 0; a < p_.arenas.size(); ++a)
      if (p_.arenas[a].late != (lateness(late, p_.arenas[a].bytes) != 0)) breach("P11", fmt::format("arena {}", a), "is late or not");
    for (const CallerOutput &o : p_.outputs) {
      const ProgramOutput &out = p_.program.outputs[o.output];
      if (out.kind != ProgramOutput::Kind::Tensor) continue;
      const std::string where = fmt::format("output {}", o.output);
      if (o.late != (std::max({lateness(late, o.bytes), lateness(late, out.sizes), lateness(late, out.strides)}) != 0))
        breach("P11", where, "is late or not");
      if (o.buffer.valid() && o.buffer != out.buffer) breach("P11", where, "is given another buffer than its own");
      const bool copied = !o.buffer.valid();
      Expr last = copied ? 0 : out.offset;
      for (size_t d = 0; d < out.sizes.size() && d < out.strides.size(); ++d) last = last + (out.sizes[d] - 1) * out.strides[d];
      for (const auto &v : samples()) {
        const bool some = std::all_of(out.sizes.begin(), out.sizes.end(), [&](Expr e) { return evaluate(e, v).value_or(0) > 0; });
        const std::optional<int64_t> end = evaluate(last, v), bytes = evaluate(o.bytes, v);
        if (some && end && bytes && (*end + 1) * itemSize(out.dtype) > *bytes)
          return breach("P11", where, fmt::format("has {} bytes of memory and reaches element {}", *bytes, *end));
      }
    }
    for (size_t b = 0; b < p_.placements.size(); ++b) {
      if (p_.placements[b].where != Placement::Where::Output) continue;
      const bool given = std::any_of(p_.outputs.begin(), p_.outputs.end(), [&](const CallerOutput &o) {
        return o.buffer.index() == b && static_cast<int>(o.output) == p_.placements[b].output;
      });
      if (!given) breach("P6", p_.program.buffers[b].name, "lies in an output that is given another buffer");
    }
  }

  /// Whether a tensor of the caller's or of the model's lies in `target` with these sizes and strides at this offset.
  bool liesThere(const Buffer &target, const ProgramOutput &o) const {
    const Facts &facts = p_.program.facts;
    auto same = [&](const auto &sizes, const auto &strides, Expr offset) {
      bool equal = sizes.size() == o.sizes.size() && facts.provablyEqual(offset, o.writeBackOffset);
      for (size_t d = 0; equal && d < sizes.size(); ++d)
        equal = facts.provablyEqual(Expr(sizes[d]), o.sizes[d]) &&
                (o.sizes[d].isConst(1) || facts.provablyEqual(Expr(strides[d]), o.writeBackStrides[d]));
      return equal;
    };
    if (target.kind == Buffer::Kind::Input) {
      const ProgramInput &in = p_.program.inputs[static_cast<size_t>(target.index)];
      return in.strides.size() != in.sizes.size() || same(in.sizes, in.strides, 0);
    }
    if (target.kind != Buffer::Kind::Constant) return false;
    const Constant &c = p_.program.constants[static_cast<size_t>(target.index)];
    return c.tensors.empty() || std::any_of(c.tensors.begin(), c.tensors.end(), [&](const Constant::ModelTensor &t) {
             return same(t.sizes, t.strides, t.offset);
           });
  }

  void writeBacks() {
    for (const ProgramOutput &o : p_.program.outputs) {
      if (!o.writeBackTo.valid() || o.writeBackTo == o.buffer) continue;
      if (o.writeBackStrides.size() != o.sizes.size() || !liesThere(p_.program.buffer(o.writeBackTo), o))
        breach("P8", nameOf(o.writeBackTo), "what is written back does not go where its tensor lies");
      bool found = false;
      each<Copy>([&](const Copy &c) {
        found |= c.dst == o.writeBackTo && c.src == o.buffer && c.sizes == o.sizes &&
                 c.dstStrides == o.writeBackStrides && c.dstOffset == o.writeBackOffset;
      });
      if (!found)
        breach("P8", nameOf(o.writeBackTo), "no copy brings its new content where its tensor lies");
    }
    each<Copy>([&](const Copy &c) {
      if (c.srcStrides.size() != c.sizes.size() || c.dstStrides.size() != c.sizes.size())
        breach("P8", nameOf(c.src), "a copy has another number of strides than of dimensions");
    });
  }

  void outputs() {
    std::vector<bool> served(p_.program.outputs.size());
    for (size_t b = 0; b < p_.placements.size(); ++b) {
      if (p_.placements[b].where != Placement::Where::Output) continue;
      int o = p_.placements[b].output;
      if (o < 0 || o >= static_cast<int>(served.size()) || served[static_cast<size_t>(o)])
        breach("P6", p_.program.buffers[b].name, fmt::format("output {} does not exist or has a buffer already", o));
      else
        served[static_cast<size_t>(o)] = true;
    }
    each<Copy>([&](const Copy &c) {
      if (c.dstOutput >= 0) served[static_cast<size_t>(c.dstOutput)] = true;
      for (size_t o = 0; o < served.size(); ++o)
        if (p_.program.outputs[o].writeBackTo.valid() && c.dst == p_.program.outputs[o].writeBackTo) served[o] = true;
    });
    for (size_t o = 0; o < served.size(); ++o) {
      const ProgramOutput &out = p_.program.outputs[o];
      bool inPlace = out.writeBackTo.valid() && out.writeBackTo == out.buffer;
      if (out.kind == ProgramOutput::Kind::Tensor && !served[o] && !inPlace)
        breach("P6", fmt::format("output {}", o), "nothing writes it");
    }
  }
};

} // namespace

Status verify(const Plan &plan, Form form) { return Checker(plan, form).run(); }

} // namespace neso::plan
