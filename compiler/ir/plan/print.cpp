// Text of plans, for people, tests and --emit=plan.
#include "ir/plan/access.h"

namespace neso::plan {
namespace {

std::string list(const std::vector<Expr> &es) {
  std::string out = "[";
  for (size_t k = 0; k < es.size(); ++k) out += (k ? ", " : "") + es[k].str();
  return out + "]";
}

std::string printPlacement(const Plan &plan, const loops::Buffer &b) {
  const Placement &p = plan.placements[b.id.index()];
  std::string out = fmt::format("  buffer {} : {}[{}] ", b.name, name(b.dtype), b.elements.str());
  switch (p.where) {
  case Placement::Where::None: return out + "nowhere\n";
  case Placement::Where::Input: return out + fmt::format("input {}\n", b.index);
  case Placement::Where::Constant: return out + fmt::format("constant {}\n", b.index);
  case Placement::Where::Output: return out + fmt::format("output {}\n", p.output);
  case Placement::Where::Arena:
    if (plan.arenas.empty()) return out + "in an arena\n";
    return out + fmt::format("arena{} at {} bytes {} steps [{}, {}]\n", p.arena ? fmt::format(" {}", p.arena) : "",
                             p.offset.str(), p.bytes.str(), p.firstStep, p.lastStep);
  }
  return out;
}

std::string printProduct(const Plan &plan, const Product &p) {
  auto matrix = [&](const Matrix &m) {
    return fmt::format("{}{} at {} pitch {} batch {}", plan.program.buffer(m.buffer).name, m.transposed ? "^T" : "",
                       m.offset.str(), m.pitch.str(), m.batchStride.str());
  };
  std::string out = fmt::format("a library's {} x [{}, {}, {}] of {}: {} = {} * {}", p.batch.str(), p.m.str(),
                                p.n.str(), p.k.str(), name(p.type), matrix(p.d), matrix(p.a), matrix(p.b));
  if (p.bias.valid()) out += " + " + plan.program.buffer(p.bias).name;
  if (p.relu) out += ", relu";
  if (p.rest.valid()) out += ", then " + plan.kernels[p.rest.index()].name;
  return out;
}

/// Steps are numbered as forEachStep meets them; regions inside are indented.
class StepPrinter {
public:
  explicit StepPrinter(const Plan &plan) : plan_(plan) {}

  std::string print(const Region &region, size_t depth) {
    std::string out;
    for (const Step &step : region.steps) {
      out += fmt::format("{}{}: ", std::string(2 + 2 * depth, ' '), number_++);
      out += std::visit([&](const auto &s) { return text(s, depth); }, step.what);
    }
    return out;
  }

private:
  std::string bufferName(loops::BufferId b) const { return plan_.program.buffer(b).name; }
  std::string inside(const char *what, const Region &region, size_t depth) {
    return std::string(2 + 2 * depth, ' ') + what + "\n" + print(region, depth + 1);
  }

  std::string text(const Launch &l, size_t) const {
    const Kernel &kernel = plan_.kernels[l.kernel.index()];
    std::string out = "launch " + kernel.name;
    for (KernelId part : kernel.parts)
      out += (part == kernel.parts.front() ? ": " : ", ") + plan_.kernels[part.index()].name;
    if (kernel.product) out += ", or " + printProduct(plan_, *kernel.product);
    return out + "\n";
  }
  std::string text(const Copy &c, size_t) const {
    std::string to = c.dst.valid() ? bufferName(c.dst) : fmt::format("output {}", c.dstOutput);
    return fmt::format("copy {} of {} from {} strides {} offset {} to {} strides {} offset {}\n", list(c.sizes),
                       name(c.dtype), bufferName(c.src), list(c.srcStrides), c.srcOffset.str(), to, list(c.dstStrides),
                       c.dstOffset.str());
  }
  std::string text(const Guard &g, size_t) const { return fmt::format("guard {}\n", g.condition.str()); }
  std::string text(const LoadScalar &v, size_t) const {
    return fmt::format("{} = scalar {}\n", v.symbol.str(), bufferName(v.buffer));
  }
  std::string text(const EvalSizes &e, size_t) const { return fmt::format("sizes of {}\n", e.symbol.str()); }
  std::string text(const GrowArena &g, size_t) const { return fmt::format("grow arena {}\n", g.arena); }
  std::string text(const AllocOutput &a, size_t) const { return fmt::format("allocate output {}\n", a.output); }
  std::string text(const If &b, size_t depth) {
    std::string out = fmt::format("if {}\n", b.condition.str()) + print(b.then, depth + 1);
    return b.otherwise.steps.empty() ? out : out + inside("else", b.otherwise, depth);
  }
  std::string text(const While &w, size_t depth) {
    std::string out = fmt::format("while {} after\n", w.condition.str()) + print(w.test, depth + 1);
    return out + inside("do", w.body, depth);
  }

  const Plan &plan_;
  size_t number_ = 0;
};

/// What a run does before its first step.
std::string printBeginning(const Plan &plan) {
  std::string out;
  for (size_t i = 0; i < plan.inputSizes.size(); ++i)
    for (size_t d = 0; d < plan.inputSizes[i].size(); ++d) {
      const InputSize &size = plan.inputSizes[i][d];
      out += fmt::format("  input {} size {} in [{}, {}]", i, d, size.range.lo, size.range.hi);
      if (size.defines.valid()) out += " is " + size.defines.str();
      if (size.equal.valid()) out += " equals " + size.equal.str();
      if (size.real) out += fmt::format(" equals {}", *size.real);
      out += "\n";
    }
  for (const SizeDefinition &d : plan.definitions) out += fmt::format("  {} is {}\n", d.symbol.str(), d.value.str());
  for (const Guard &g : plan.guards) out += fmt::format("  guard {}\n", g.condition.str());
  for (size_t a = 0; a < plan.arenas.size(); ++a) {
    out += fmt::format("  arena {}{} bytes", plan.arenas[a].late ? fmt::format("{} late ", a) : "",
                       plan.arenas[a].bytes.str());
    out += a == 0 ? fmt::format(", lower bound {}\n", plan.arenaLowerBound.str()) : "\n";
  }
  for (size_t k = 0; k < plan.outputs.size(); ++k) {
    const CallerOutput &o = plan.outputs[k];
    out += fmt::format("  output {} {}: {} bytes {}\n", k, o.late ? "late " : "",
                       o.bytes.str(), o.buffer.valid() ? plan.program.buffer(o.buffer).name : "copied");
  }
  return out;
}

} // namespace

std::string print(const Plan &plan) {
  std::string out = fmt::format("plan {}\n", plan.program.name) + printBeginning(plan);
  for (const loops::Buffer &b : plan.program.buffers) out += printPlacement(plan, b);
  for (const Kernel &k : plan.kernels) {
    KernelTraffic t = traffic(plan, k);
    out += fmt::format("kernel {} x {} r {}  # reads {} writes {} bytes\n", k.name, list(k.xRanges), list(k.rRanges),
                       t.bytesRead.str(), t.bytesWritten.str());
    for (const std::string &d : k.decisions) out += "    # " + d + "\n";
    for (const loops::Node &n : k.nodes) out += loops::print(plan.program, n);
  }
  out += "steps\n" + StepPrinter(plan).print(plan.main, 0);
  return out;
}

} // namespace neso::plan
