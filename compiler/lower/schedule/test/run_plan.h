// Runs a Plan on host memory by its own rules, to prove that a schedule computes what its program computes.
//
// Kernels run in step order over memory laid out as the placements say: one arena, outputs in their own memory, and for
// buffers placed nowhere a scratch that is poisoned before each kernel. Within a kernel the outer space is walked
// element by element in a shuffled order, all nodes at one x before the next x: a kernel is wrong if that matters.
#pragma once
#include <algorithm>
#include <random>

#include "ir/loops/interp.h"
#include "ir/plan/plan.h"

namespace neso::schedule::test {

struct PlanRun {
  std::vector<loops::HostValue> outputs; // write-backs hold what reached their target
  int64_t arenaBytes = 0, lowerBound = 0;
};

class PlanRunner {
public:
  PlanRunner(const plan::Plan &p, std::span<const loops::HostValue> inputs, uint32_t seed)
      : p_(p), inputs_(inputs), random_(seed) {}

  Result<PlanRun> run() {
    Result<loops::Bindings> bound = loops::bindSizes(p_.program, inputs_);
    if (!bound) return bound.takeError();
    sizes_ = *bound;
    run_.arenaBytes = value(p_.arenaBytes);
    run_.lowerBound = value(p_.arenaLowerBound);
    if (Status s = layOut(); !s) return s.takeError();
    for (const plan::Step &step : p_.steps) {
      if (const plan::Launch *l = std::get_if<plan::Launch>(&step)) {
        if (Status s = launch(p_.kernels[l->kernel.index()]); !s) return s.takeError();
      } else if (const plan::Copy *c = std::get_if<plan::Copy>(&step)) {
        copy(*c);
      }
    }
    collect();
    return std::move(run_);
  }

  virtual ~PlanRunner() = default;

protected:
  const plan::Plan &p_;
  std::vector<loops::BufferView> views_;

  int64_t value(Expr e) const { return evaluate(e, sizes_).value_or(-1); }

private:
  std::span<const loops::HostValue> inputs_;
  std::mt19937 random_;
  loops::Bindings sizes_;
  PlanRun run_;
  std::vector<uint8_t> arena_;
  std::vector<std::vector<uint8_t>> own_, outputs_;

  std::vector<int64_t> values(const std::vector<Expr> &es) const {
    std::vector<int64_t> out;
    for (Expr e : es) out.push_back(value(e));
    return out;
  }

  Status layOut() {
    const loops::Program &program = p_.program;
    arena_.assign(static_cast<size_t>(run_.arenaBytes), 0xee);
    own_.resize(program.buffers.size());
    outputs_.resize(program.outputs.size());
    views_.resize(program.buffers.size());
    for (size_t k = 0; k < program.outputs.size(); ++k) {
      const loops::ProgramOutput &o = program.outputs[k];
      std::vector<int64_t> sizes = values(o.sizes), strides = values(o.strides);
      int64_t reach = 1;
      bool empty = o.kind != loops::ProgramOutput::Kind::Tensor;
      for (size_t d = 0; d < sizes.size(); ++d) reach += (sizes[d] - 1) * strides[d], empty |= sizes[d] == 0;
      outputs_[k].assign(empty ? 0 : static_cast<size_t>((reach + value(o.offset)) * itemSize(o.dtype)), 0xdd);
    }
    for (const loops::Buffer &b : program.buffers) {
      const plan::Placement &place = p_.placements[b.id.index()];
      loops::BufferView &v = views_[b.id.index()];
      v.elements = value(b.elements);
      size_t bytes = static_cast<size_t>(v.elements * itemSize(b.dtype));
      switch (place.where) {
      case plan::Placement::Where::None:
        own_[b.id.index()].resize(bytes);
        v.data = own_[b.id.index()].data();
        break;
      case plan::Placement::Where::Input: {
        own_[b.id.index()].resize(bytes);
        v.data = own_[b.id.index()].data();
        const loops::HostValue &in = inputs_[static_cast<size_t>(b.index)];
        loops::copyStrided(v.data, values(program.inputs[static_cast<size_t>(b.index)].strides), in.data,
                           loops::contiguousStrides(in.sizes), in.sizes, itemSize(in.dtype));
        break;
      }
      case plan::Placement::Where::Constant: {
        const loops::Constant &c = program.constants[static_cast<size_t>(b.index)];
        bool written = b.mutated;
        for (const loops::ProgramOutput &o : program.outputs) written |= o.writeBackTo.valid() && o.writeBackTo == b.id;
        if (written) own_[b.id.index()].assign(c.data, c.data + c.bytes);
        v.data = written ? own_[b.id.index()].data() : const_cast<uint8_t *>(c.data); // not written to
        break;
      }
      case plan::Placement::Where::Output: {
        std::vector<uint8_t> &m = outputs_[static_cast<size_t>(place.output)];
        if (m.size() < bytes) return fail(diag::InternalFault, {}, "runPlan", "an output is smaller than its buffer");
        v.data = m.data();
        break;
      }
      case plan::Placement::Where::Arena: {
        int64_t offset = value(place.offset);
        if (offset < 0 || offset % 64 || offset + static_cast<int64_t>(bytes) > run_.arenaBytes)
          return fail(diag::InternalFault, {}, "runPlan", "a placement is outside of the arena: " + place.offset.str());
        v.data = arena_.data() + offset;
        break;
      }
      }
    }
    return {};
  }

  /// Runs one kernel on views_.
  virtual Status launch(const plan::Kernel &k) {
    // Parts have no order: the last first.
    for (size_t i = k.parts.size(); i-- > 0;)
      if (Status s = launch(p_.kernels[k.parts[i].index()]); !s) return s;
    if (!k.parts.empty()) return {};
    for (const loops::Buffer &b : p_.program.buffers)
      if (p_.placements[b.id.index()].where == plan::Placement::Where::None)
        std::fill(own_[b.id.index()].begin(), own_[b.id.index()].end(), 0xcc);
    bool attention = k.kind == loops::Node::Kind::Attention;
    std::vector<loops::NodeRunner> runners;
    for (const loops::Node &n : k.nodes) {
      Result<loops::NodeRunner> r =
          loops::NodeRunner::create(p_.program, n, sizes_, attention ? Symbol::Kind::Index : Symbol::Kind::Outer);
      if (!r) return r.takeError();
      runners.push_back(std::move(*r));
    }
    int64_t count = value(product(k.xRanges));
    if (attention) return runners[0].run(views_, 0, count);
    // Element by element where that is quick, else in larger pieces; a large contraction runs as a whole, then its
    // epilogue.
    bool large = count > 2048;
    int64_t piece = !large ? 1 : k.kind == loops::Node::Kind::Contraction ? count : 64;
    std::vector<int64_t> order(static_cast<size_t>((count + piece - 1) / piece));
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i) * piece;
    bool scatter = false; // several stores to one element: their order counts
    for (const loops::Node &n : k.nodes)
      for (const loops::Store &s : n.stores)
        for (Symbol symbol : symbolsOf(s.index)) scatter |= symbol.kind() == Symbol::Kind::Indirect;
    if (!scatter) std::shuffle(order.begin(), order.end(), random_);
    for (int64_t x : order)
      for (loops::NodeRunner &r : runners)
        if (Status s = r.run(views_, x, std::min(x + piece, count)); !s) return s;
    return {};
  }

  void copy(const plan::Copy &c) {
    int64_t item = itemSize(c.dtype);
    uint8_t *dst = c.dst.valid() ? views_[c.dst.index()].data : outputs_[static_cast<size_t>(c.dstOutput)].data();
    loops::copyStrided(dst + value(c.dstOffset) * item, values(c.dstStrides),
                       views_[c.src.index()].data + value(c.srcOffset) * item, values(c.srcStrides), values(c.sizes),
                       item);
  }

  void collect() {
    for (size_t k = 0; k < p_.program.outputs.size(); ++k) {
      const loops::ProgramOutput &o = p_.program.outputs[k];
      if (o.kind != loops::ProgramOutput::Kind::Tensor) {
        run_.outputs.emplace_back();
        continue;
      }
      loops::HostValue v = loops::HostValue::owned(o.dtype, values(o.sizes));
      std::vector<int64_t> strides = values(o.strides);
      int64_t offset = value(o.offset);
      const uint8_t *from = outputs_[k].data();
      if (o.writeBackTo.valid()) {
        from = views_[o.writeBackTo.index()].data;
        strides = values(o.writeBackStrides);
        offset = value(o.writeBackOffset);
      } else if (p_.placements[o.buffer.index()].where != plan::Placement::Where::Output ||
                 p_.placements[o.buffer.index()].output != static_cast<int>(k)) {
        offset = 0; // copied to the start
      }
      loops::copyStrided(v.data, loops::contiguousStrides(v.sizes), from + offset * itemSize(o.dtype), strides, v.sizes,
                         itemSize(o.dtype));
      run_.outputs.push_back(std::move(v));
    }
  }
};

inline Result<PlanRun> runPlan(const plan::Plan &p, std::span<const loops::HostValue> inputs, uint32_t seed) {
  return PlanRunner(p, inputs, seed).run();
}

} // namespace neso::schedule::test
