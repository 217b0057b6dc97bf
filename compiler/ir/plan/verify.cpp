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
  explicit Checker(const Plan &plan) : p_(plan) {}

  Status run() {
    if (!positions()) return finish();
    for (const Kernel &k : p_.kernels) space(k);
    parts();
    dataFlow();
    nowhere();
    arena();
    outputs();
    writeBacks();
    return finish();
  }

private:
  const Plan &p_;
  std::vector<Diagnostic> diags_;

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
    for (const Step &s : p_.steps) {
      if (const Launch *l = std::get_if<Launch>(&s)) {
        if (!l->kernel.valid() || l->kernel.index() >= p_.kernels.size())
          breach("P1", "a launch", "its kernel does not exist");
      } else if (const Copy *c = std::get_if<Copy>(&s)) {
        bool target = c->dst.valid() ? bufferOk(c->dst)
                                     : c->dstOutput >= 0 && c->dstOutput < static_cast<int>(p_.program.outputs.size());
        if (!bufferOk(c->src) || !target) breach("P1", "a copy", "its source or destination does not exist");
      }
    }
    return diags_.empty();
  }

  void space(const Kernel &k) {
    std::vector<Symbol> sizes = sizeSymbols(p_.program);
    for (const Step &s : p_.steps)
      if (const LoadScalar *l = std::get_if<LoadScalar>(&s)) sizes.push_back(l->symbol);
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
    for (const Step &s : p_.steps)
      if (const Launch *l = std::get_if<Launch>(&s)) ++launches[l->kernel.index()];
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
    for (const Buffer &b : p_.program.buffers) written[b.id.index()] = b.kind != Buffer::Kind::Temp;
    auto read = [&](BufferId b, const std::string &by) {
      if (!written[b.index()]) breach("P3", by, fmt::format("reads '{}' before anything wrote it", nameOf(b)));
    };
    for (const Step &s : p_.steps) {
      if (const Launch *l = std::get_if<Launch>(&s)) {
        const Kernel &k = p_.kernels[l->kernel.index()];
        for (const BufferAccess &a : memoryAccesses(p_, k))
          if (a.read && !a.written) read(a.buffer, k.name);
        for (const BufferAccess &a : memoryAccesses(p_, k))
          if (a.written) written[a.buffer.index()] = true;
      } else if (const Copy *c = std::get_if<Copy>(&s)) {
        read(c->src, "a copy");
        if (c->dst.valid()) written[c->dst.index()] = true;
      } else if (const LoadScalar *v = std::get_if<LoadScalar>(&s)) {
        read(v->buffer, "a scalar's load");
      }
    }
    for (const ProgramOutput &o : p_.program.outputs)
      if (o.kind == ProgramOutput::Kind::Tensor && o.buffer.valid()) read(o.buffer, "an output");
  }

  void nowhere() {
    std::vector<const Kernel *> user(p_.program.buffers.size());
    for (const Kernel &k : p_.kernels) {
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
    std::vector<size_t> live;
    for (size_t b = 0; b < p_.placements.size(); ++b)
      if (p_.placements[b].where == Placement::Where::Arena) live.push_back(b);
    std::vector<SymbolMap<int64_t>> sizes = samples();
    for (const auto &v : sizes) {
      int64_t total = evaluate(p_.arenaBytes, v).value_or(-1);
      std::vector<std::pair<int64_t, int64_t>> at(p_.placements.size());
      for (size_t b : live) {
        const Placement &place = p_.placements[b];
        int64_t offset = evaluate(place.offset, v).value_or(-1), bytes = evaluate(place.bytes, v).value_or(-1);
        at[b] = {offset, offset + bytes};
        if (offset < 0 || bytes < 0 || offset % 64 || bytes % 64 || offset + bytes > total)
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
      auto isIt = [&](const Step &s) {
        const Copy *c = std::get_if<Copy>(&s);
        return c && c->dst == o.writeBackTo && c->src == o.buffer && c->sizes == o.sizes &&
               c->dstStrides == o.writeBackStrides && c->dstOffset == o.writeBackOffset;
      };
      if (std::none_of(p_.steps.begin(), p_.steps.end(), isIt))
        breach("P8", nameOf(o.writeBackTo), "no copy brings its new content where its tensor lies");
    }
    for (const Step &s : p_.steps)
      if (const Copy *c = std::get_if<Copy>(&s))
        if (c->srcStrides.size() != c->sizes.size() || c->dstStrides.size() != c->sizes.size())
          breach("P8", nameOf(c->src), "a copy has another number of strides than of dimensions");
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
    for (const Step &s : p_.steps)
      if (const Copy *c = std::get_if<Copy>(&s)) {
        if (c->dstOutput >= 0) served[static_cast<size_t>(c->dstOutput)] = true;
        for (size_t o = 0; o < served.size(); ++o)
          if (p_.program.outputs[o].writeBackTo.valid() && c->dst == p_.program.outputs[o].writeBackTo)
            served[o] = true;
      }
    for (size_t o = 0; o < served.size(); ++o) {
      const ProgramOutput &out = p_.program.outputs[o];
      bool inPlace = out.writeBackTo.valid() && out.writeBackTo == out.buffer;
      if (out.kind == ProgramOutput::Kind::Tensor && !served[o] && !inPlace)
        breach("P6", fmt::format("output {}", o), "nothing writes it");
    }
  }
};

} // namespace

Status verify(const Plan &plan) { return Checker(plan).run(); }

} // namespace neso::plan
