#include "ir/plan/verify.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "base/diagnostics/loops.h"
#include "ir/loops/access.h"
#include "ir/loops/verify.h"
#include "ir/plan/access.h"

namespace neso::plan {

using namespace loops;

namespace {

class Checker {
public:
  Checker(const Plan &plan, Form form) : p_(plan), form_(form) {}

  Status run() {
    if (!positions()) return finish();
    if (form_ == Form::Scheduled)
      for (const Kernel &k : p_.kernels) space(k);
    parts();
    dataFlow();
    nowhere();
    outputs();
    writeBacks();
    if (form_ == Form::Scheduled) return finish();
    arena();
    sizes();
    guards();
    callerOutputs();
    return finish();
  }

private:
  const Plan &p_;
  Form form_;
  std::vector<Diagnostic> diags_;

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
    auto bufferOk = [&](BufferId b) { return b.valid() && b.index() < p_.program.buffers.size(); };
    each<Launch>([&](const Launch &l) {
      if (!l.kernel.valid() || l.kernel.index() >= p_.kernels.size())
        breach("P1", "a launch", "its kernel does not exist");
    });
    each<Copy>([&](const Copy &c) {
      bool target = c.dst.valid() ? bufferOk(c.dst)
                                  : c.dstOutput >= 0 && c.dstOutput < static_cast<int>(p_.program.outputs.size());
      if (!bufferOk(c.src) || !target) breach("P1", "a copy", "its source or destination does not exist");
    });
    each<LoadScalar>([&](const LoadScalar &l) {
      if (!bufferOk(l.buffer)) breach("P1", l.symbol.str(), "its buffer does not exist");
    });
    each<CallExtern>([&](const CallExtern &e) {
      forEachView(e.call, [&](const ExternSpec::View &view, AccessMode) {
        if (!bufferOk(view.buffer)) breach("P1", e.name, "a tensor of it does not exist");
      });
    });
    each<GrowArena>([&](const GrowArena &g) {
      if (g.arena >= p_.arenas.size()) breach("P1", "a step", "its arena does not exist");
    });
    each<AllocOutput>([&](const AllocOutput &o) {
      if (o.output >= p_.outputs.size()) breach("P1", "a step", "its output does not exist");
    });
    for (const CallerOutput &o : p_.outputs)
      if (o.output >= p_.program.outputs.size() || (o.buffer.valid() && !bufferOk(o.buffer)))
        breach("P1", "an output", "it does not exist, or its buffer");
    for (const Placement &place : p_.placements)
      if (form_ == Form::Complete && place.where == Placement::Where::Arena && place.arena >= p_.arenas.size())
        breach("P1", "a placement", "its arena does not exist");
    return diags_.empty();
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
        for (const BufferAccess &a : memoryAccesses(p_, k))
          if (a.read && !a.written) read(a.buffer, k.name);
        for (const BufferAccess &a : memoryAccesses(p_, k))
          if (a.written) written[a.buffer.index()] = true;
      } else if (const auto *c = s.as<Copy>()) {
        read(c->src, "a copy");
        if (c->dst.valid()) written[c->dst.index()] = true;
      } else if (const auto *v = s.as<LoadScalar>()) {
        read(v->buffer, "a scalar's load");
      } else if (const auto *e = s.as<CallExtern>()) {
        forEachView(e->call, [&](const ExternSpec::View &view, AccessMode mode) {
          if (mode != AccessMode::Write) read(view.buffer, e->name);
        });
        for (const ExternSpec::View &view : e->call.outputs) written[view.buffer.index()] = true;
      } else if (const auto *branch = s.as<If>()) {
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

  /// Size symbols at their least, their greatest (within reason) and random values.
  std::vector<SymbolMap<int64_t>> samples() const {
    std::vector<SymbolMap<int64_t>> out;
    std::mt19937_64 rng(7);
    std::vector<Symbol> symbols = sizeSymbols(p_.program);
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
    // Only sizes that the guards allow count.
    std::erase_if(out, [&](const auto &v) {
      return std::any_of(p_.program.guards.begin(), p_.program.guards.end(),
                         [&](Expr g) { return evaluate(g, v) != 1; });
    });
    return out;
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
          bool handedOn = a.offset == b.offset && (a.lastStep == b.firstStep || b.lastStep == a.firstStep);
          if (!handedOn)
            breach("P5", p_.program.buffers[live[i]].name,
                   fmt::format("overlaps '{}' while both live", p_.program.buffers[live[j]].name));
        }
      if (!diags_.empty()) return;
    }
  }

  /// Symbols are known before anything asks for them.
  void sizes() {
    if (p_.inputSizes.size() != p_.program.inputs.size())
      return breach("P9", p_.program.name, "the sizes of some inputs are not planned");
    // A size that nothing defines is the writer's to refuse (PlanUnpackable): the model asks for it.
    std::set<Symbol> known, defined;
    for (const std::vector<InputSize> &input : p_.inputSizes)
      for (const InputSize &size : input)
        if (size.defines.valid()) defined.insert(size.defines);
    for (const SizeDefinition &d : p_.definitions) defined.insert(d.symbol);
    for (Symbol late : lateSymbols(p_)) defined.insert(late);
    auto define = [&](Symbol symbol) {
      if (!known.insert(symbol).second) breach("P9", symbol.str(), "is defined twice");
    };
    auto ask = [&](Expr e, const char *by) {
      if (!e.valid()) return;
      for (Symbol s : symbolsOf(e))
        if (!known.count(s) && defined.count(s)) breach("P9", by, fmt::format("depends on '{}', which is not known", s.str()));
    };
    for (const std::vector<InputSize> &input : p_.inputSizes)
      for (const InputSize &size : input)
        if (size.defines.valid()) define(size.defines);
    for (const SizeDefinition &d : p_.definitions) ask(d.value, "a definition"), define(d.symbol);
    for (const std::vector<InputSize> &input : p_.inputSizes)
      for (const InputSize &size : input) ask(size.equal, "an input");
    for (const Guard &g : p_.guards) ask(g.condition, "a guard");
    for (const Arena &a : p_.arenas)
      if (!a.late) ask(a.bytes, "an arena");
    for (const CallerOutput &o : p_.outputs)
      if (!o.late) ask(o.bytes, "an output");
    // A loop loads its symbol at each turn.
    std::set<Symbol> loaded;
    forEachStep(p_.main, [&](const Step &step) {
      auto all = [&](const std::vector<Expr> &es, const char *by) {
        for (Expr e : es) ask(e, by);
      };
      if (const auto *l = step.as<LoadScalar>()) {
        loaded.insert(l->symbol);
      } else if (const auto *e = step.as<EvalSizes>()) {
        if (!loaded.count(e->symbol)) breach("P9", e->symbol.str(), "is not loaded before its sizes are computed");
        known.insert(e->symbol);
      } else if (const auto *g = step.as<Guard>()) {
        ask(g->condition, "a guard");
      } else if (const auto *a = step.as<GrowArena>()) {
        ask(p_.arenas[a->arena].bytes, "an arena");
      } else if (const auto *o = step.as<AllocOutput>()) {
        ask(p_.outputs[o->output].bytes, "an output");
        all(p_.program.outputs[p_.outputs[o->output].output].sizes, "an output");
      } else if (const auto *c = step.as<Copy>()) {
        all(c->sizes, "a copy"), all(c->srcStrides, "a copy"), all(c->dstStrides, "a copy");
        ask(c->srcOffset, "a copy"), ask(c->dstOffset, "a copy");
      } else if (const auto *e = step.as<CallExtern>()) {
        forEachView(e->call, [&](const ExternSpec::View &view, AccessMode) {
          all(view.sizes, "an operator"), all(view.strides, "an operator"), ask(view.offset, "an operator");
        });
        for (const ExternSpec::Argument &a : e->call.arguments) all(a.ints, "an operator");
      } else if (const auto *launch = step.as<Launch>()) {
        const Kernel &k = p_.kernels[launch->kernel.index()];
        for (Expr e : k.grid) ask(e, k.name.c_str());
        for (const KernelArg &arg : k.args)
          ask(arg.kind == KernelArg::Kind::Size ? arg.size : arg.kind == KernelArg::Kind::Buffer ? arg.offset : Expr(0),
              k.name.c_str());
      }
    });
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
