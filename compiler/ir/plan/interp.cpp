#include "ir/plan/interp.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/diagnostics/loops.h"
#include "ir/plan/steps.h"

namespace neso::plan {

using loops::BufferView;
using loops::HostValue;

std::vector<int64_t> PlanRunner::values(const std::vector<Expr> &es) const {
  std::vector<int64_t> out;
  for (Expr e : es) out.push_back(value(e));
  return out;
}

Result<PlanRun> PlanRunner::run() {
  // Shapes and dtypes against what the program declares; the sizes are then found as the plan says.
  if (Result<loops::Bindings> bound = loops::bindSizes(p_.program, inputs_); !bound) return bound.takeError();
  if (Status s = begin(); !s) return s.takeError();
  run_.arenaBytes = value(p_.arenaBytes());
  run_.lowerBound = value(p_.arenaLowerBound);
  if (Status s = walk(p_.main); !s) return s.takeError();
  collect();
  return std::move(run_);
}

Status PlanRunner::takeSize(const InputSize &size, int64_t given, const std::string &input) {
  if (given < size.range.lo || given > size.range.hi)
    return fail(diag::LoopsBadInput, {}, input, fmt::format("from {} to {}", size.range.lo, size.range.hi), given);
  if (size.defines.valid()) sizes_[size.defines] = given;
  return {};
}

Status PlanRunner::begin() {
  for (size_t i = 0; i < p_.inputSizes.size(); ++i) {
    const loops::ProgramInput &in = p_.program.inputs[i];
    const bool tensor = in.kind == loops::ProgramInput::Kind::Tensor;
    for (size_t d = 0; d < p_.inputSizes[i].size(); ++d)
      if (Status s = takeSize(p_.inputSizes[i][d], tensor ? inputs_[i].sizes[d] : inputs_[i].intValue, in.name); !s)
        return s;
  }
  for (const SizeDefinition &d : p_.definitions) sizes_[d.symbol] = value(d.value);
  for (size_t i = 0; i < p_.inputSizes.size(); ++i)
    for (size_t d = 0; d < p_.inputSizes[i].size(); ++d)
      if (Expr equal = p_.inputSizes[i][d].equal;
          equal.valid() && p_.program.inputs[i].kind == loops::ProgramInput::Kind::Tensor &&
          value(equal) != inputs_[i].sizes[d])
        return fail(diag::LoopsBadInput, {}, p_.program.inputs[i].name, equal.str(), inputs_[i].sizes[d]);
  for (const Guard &g : p_.guards)
    if (Status s = run(g); !s) return s;
  arenas_.resize(p_.arenas.size());
  own_.resize(p_.program.buffers.size());
  outputs_.resize(p_.program.outputs.size());
  views_.resize(p_.program.buffers.size());
  for (size_t a = 0; a < p_.arenas.size(); ++a)
    if (!p_.arenas[a].late) arenas_[a].assign(static_cast<size_t>(value(p_.arenas[a].bytes)), 0xee);
  for (size_t k = 0; k < p_.outputs.size(); ++k)
    if (!p_.outputs[k].late) allocate(k);
  for (const loops::Buffer &b : p_.program.buffers) {
    std::vector<uint8_t> &own = own_[b.id.index()];
    const Placement &place = p_.placements[b.id.index()];
    if (place.where == Placement::Where::Input) {
      own.resize(static_cast<size_t>(value(b.elements) * itemSize(b.dtype)));
      const HostValue &in = inputs_[static_cast<size_t>(b.index)];
      if (in.kind == loops::ProgramInput::Kind::Tensor)
        loops::copyStrided(own.data(), values(p_.program.inputs[static_cast<size_t>(b.index)].strides), in.data,
                           loops::contiguousStrides(in.sizes), in.sizes, itemSize(in.dtype));
      else if (b.dtype == DType::F64)
        std::memcpy(own.data(), &in.floatValue, 8);
    } else if (place.where == Placement::Where::Constant && b.mutated) {
      const loops::Constant &c = p_.program.constants[static_cast<size_t>(b.index)];
      own.assign(c.data, c.data + c.bytes);
    } else if (place.where == Placement::Where::None && lateness(lateSymbols(p_), b.elements) == 0) {
      own.resize(static_cast<size_t>(value(b.elements) * itemSize(b.dtype)));
    }
  }
  return locate();
}

Status PlanRunner::run(const Guard &guard) {
  const int64_t holds = value(guard.condition);
  if (holds == 1) return {};
  const bool asserted = std::any_of(p_.program.assertions.begin(), p_.program.assertions.end(),
                                    [&](const Assertion &a) { return a.condition == guard.condition; });
  if (asserted) return fail(diag::LoopsAssertion, {}, loops::messageOf({guard.condition, guard.message}, sizes_));
  return fail(diag::LoopsGuard, {}, guard.condition.str(), holds);
}

void PlanRunner::allocate(size_t output) {
  const CallerOutput &o = p_.outputs[output];
  const bool own = !o.buffer.valid() || p_.placements[o.buffer.index()].where == Placement::Where::Output;
  if (own && o.bytes.valid()) outputs_[o.output].assign(static_cast<size_t>(std::max<int64_t>(value(o.bytes), 0)), 0xdd);
}

/// Where each buffer is now; what has no memory yet is left out.
Status PlanRunner::locate() {
  for (const loops::Buffer &b : p_.program.buffers) {
    const Placement &place = p_.placements[b.id.index()];
    BufferView &v = views_[b.id.index()];
    v.elements = value(b.elements);
    const int64_t bytes = v.elements * itemSize(b.dtype);
    std::vector<uint8_t> *memory = &own_[b.id.index()];
    int64_t offset = 0;
    const bool late = lateness(lateSymbols(p_), b.elements) != 0;
    switch (place.where) {
    case Placement::Where::None:
      if (late) memory->resize(static_cast<size_t>(std::max<int64_t>(bytes, 0)));
      break;
    case Placement::Where::Input: break;
    case Placement::Where::Constant:
      v.data = b.mutated ? memory->data() // not written to else
                         : const_cast<uint8_t *>(p_.program.constants[static_cast<size_t>(b.index)].data);
      continue;
    case Placement::Where::Output: memory = &outputs_[static_cast<size_t>(place.output)]; break;
    case Placement::Where::Arena:
      memory = &arenas_[place.arena];
      offset = value(place.offset);
      break;
    }
    v.data = memory->data() + offset;
    if (!late && (offset < 0 || offset + bytes > static_cast<int64_t>(memory->size())))
      return fail(diag::PlanInvariant, {}, "P5", b.name, "it does not fit its memory");
  }
  return {};
}

Status PlanRunner::launch(const Kernel &k) {
  // Parts have no order: the last first.
  for (size_t i = k.parts.size(); i-- > 0;)
    if (Status s = launch(p_.kernels[k.parts[i].index()]); !s) return s;
  if (!k.parts.empty()) return {};
  for (const loops::Buffer &b : p_.program.buffers)
    if (p_.placements[b.id.index()].where == Placement::Where::None)
      std::fill(own_[b.id.index()].begin(), own_[b.id.index()].end(), 0xcc);
  bool attention = k.kind == loops::Node::Kind::Attention;
  std::vector<loops::NodeRunner> runners;
  for (const loops::Node &n : k.nodes) {
    Result<loops::NodeRunner> r = loops::NodeRunner::create(p_.program, n, sizes_, attention ? Symbol::Kind::Index : Symbol::Kind::Outer);
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
    for (const loops::Store &s : n.stores())
      for (Symbol symbol : symbolsOf(s.index)) scatter |= symbol.kind() == Symbol::Kind::Indirect;
  if (!scatter) std::shuffle(order.begin(), order.end(), random_);
  for (int64_t x : order)
    for (loops::NodeRunner &r : runners)
      if (Status s = r.run(views_, x, std::min(x + piece, count)); !s) return s;
  return {};
}

Status PlanRunner::walk(const Region &region) {
  for (const Step &s : region.steps)
    if (Status done = step(s); !done) return done;
  return {};
}

Status PlanRunner::step(const Step &s) {
  const auto *l = s.as<Launch>();
  if (onStep) onStep(name(s), l ? &p_.kernels[l->kernel.index()] : nullptr);
  return std::visit([this](const auto &kind) { return run(kind); }, s.what);
}

Status PlanRunner::run(const Launch &l) { return launch(p_.kernels[l.kernel.index()]); }

Status PlanRunner::run(const CallExtern &call) {
  return loops::runExtern(call.name, call.call, [&](Expr x) { return evaluate(x, sizes_); }, views_);
}

Status PlanRunner::run(const EvalSizes &) { return locate(); }

Status PlanRunner::run(const GrowArena &s) {
  arenas_[s.arena].assign(static_cast<size_t>(std::max<int64_t>(value(p_.arenas[s.arena].bytes), 0)), 0xee);
  return locate();
}

Status PlanRunner::run(const AllocOutput &s) {
  allocate(s.output);
  return locate();
}

Status PlanRunner::run(const If &branch) { return walk(value(branch.condition) ? branch.then : branch.otherwise); }

Status PlanRunner::run(const While &loop) {
  for (;;) {
    if (Status done = walk(loop.test); !done) return done;
    if (!value(loop.condition)) return {};
    if (Status done = walk(loop.body); !done) return done;
  }
}

Status PlanRunner::run(const LoadScalar &scalar) {
  sizes_[scalar.symbol] = loops::readScalar(scalar.dtype, views_[scalar.buffer.index()].data);
  return {};
}

Status PlanRunner::run(const Copy &c) {
  int64_t item = itemSize(c.dtype);
  uint8_t *dst = c.dst.valid() ? views_[c.dst.index()].data : outputs_[static_cast<size_t>(c.dstOutput)].data();
  loops::copyStrided(dst + value(c.dstOffset) * item, values(c.dstStrides),
                     views_[c.src.index()].data + value(c.srcOffset) * item, values(c.srcStrides), values(c.sizes),
                     item);
  return {};
}

void PlanRunner::collect() {
  for (size_t k = 0; k < p_.program.outputs.size(); ++k) {
    const loops::ProgramOutput &o = p_.program.outputs[k];
    if (o.kind != loops::ProgramOutput::Kind::Tensor) {
      run_.outputs.emplace_back();
      continue;
    }
    HostValue v = HostValue::owned(o.dtype, values(o.sizes));
    std::vector<int64_t> strides = values(o.strides);
    int64_t offset = value(o.offset);
    const uint8_t *from = outputs_[k].data();
    if (o.writeBackTo.valid()) {
      from = views_[o.writeBackTo.index()].data;
      strides = values(o.writeBackStrides), offset = value(o.writeBackOffset);
    } else {
      auto given = std::find_if(p_.outputs.begin(), p_.outputs.end(), [&](const CallerOutput &g) { return g.output == k; });
      // A copy begins where its memory does.
      if (given != p_.outputs.end() && given->buffer.valid())
        from = views_[given->buffer.index()].data;
      else
        offset = 0;
    }
    loops::copyStrided(v.data, loops::contiguousStrides(v.sizes), from + offset * itemSize(o.dtype), strides, v.sizes,
                       itemSize(o.dtype));
    run_.outputs.push_back(std::move(v));
  }
}

Result<PlanRun> runPlan(const Plan &p, std::span<const HostValue> inputs, uint32_t seed) {
  return PlanRunner(p, inputs, seed).run();
}

} // namespace neso::plan
