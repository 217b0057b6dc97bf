// Text of plans, for people, tests and --emit=plan.
#include "ir/plan/access.h"

namespace neso::plan {
namespace {

std::string list(const std::vector<Expr> &es) {
  std::string out = "[";
  for (size_t k = 0; k < es.size(); ++k) out += (k ? ", " : "") + es[k].str();
  return out + "]";
}

std::string printPlacement(const loops::Buffer &b, const Placement &p) {
  std::string out = fmt::format("  buffer {} : {}[{}] ", b.name, name(b.dtype), b.elements.str());
  switch (p.where) {
  case Placement::Where::None: return out + "nowhere\n";
  case Placement::Where::Input: return out + fmt::format("input {}\n", b.index);
  case Placement::Where::Constant: return out + fmt::format("constant {}\n", b.index);
  case Placement::Where::Output: return out + fmt::format("output {}\n", p.output);
  case Placement::Where::Arena:
    return out +
           fmt::format("arena at {} bytes {} steps [{}, {}]\n", p.offset.str(), p.bytes.str(), p.firstStep, p.lastStep);
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

std::string printSteps(const Plan &plan, const std::vector<Step> &steps) {
  std::string out;
  auto bufferName = [&](loops::BufferId b) { return plan.program.buffer(b).name; };
  for (size_t s = 0; s < steps.size(); ++s) {
    out += fmt::format("  {}: ", s);
    if (const Launch *l = std::get_if<Launch>(&steps[s])) {
      const Kernel &kernel = plan.kernels[l->kernel.index()];
      out += "launch " + kernel.name;
      for (KernelId part : kernel.parts)
        out += (part == kernel.parts.front() ? ": " : ", ") + plan.kernels[part.index()].name;
      if (kernel.product) out += ", or " + printProduct(plan, *kernel.product);
    } else if (const Copy *c = std::get_if<Copy>(&steps[s])) {
      std::string to = c->dst.valid() ? bufferName(c->dst) : fmt::format("output {}", c->dstOutput);
      out += fmt::format("copy {} of {} from {} strides {} offset {} to {} strides {} offset {}", list(c->sizes),
                         name(c->dtype), bufferName(c->src), list(c->srcStrides), c->srcOffset.str(), to,
                         list(c->dstStrides), c->dstOffset.str());
    } else if (const Guard *g = std::get_if<Guard>(&steps[s])) {
      out += "guard " + g->condition.str();
    } else if (const LoadScalar *v = std::get_if<LoadScalar>(&steps[s])) {
      out += fmt::format("{} = scalar {}", v->symbol.str(), bufferName(v->buffer));
    } else if (const If *b = std::get_if<If>(&steps[s])) {
      out += fmt::format("if {} then plan {} else plan {}", b->condition.str(), b->thenPlan, b->elsePlan);
    } else if (const While *w = std::get_if<While>(&steps[s])) {
      out += fmt::format("while plan {} gives {} do plan {}", w->conditionPlan, w->condition.str(), w->bodyPlan);
    }
    out += "\n";
  }
  return out;
}

} // namespace

std::string print(const Plan &plan) {
  std::string out = fmt::format("plan {}\n  arena {} bytes, lower bound {}\n", plan.program.name, plan.arenaBytes.str(),
                                plan.arenaLowerBound.str());
  for (const loops::Buffer &b : plan.program.buffers) out += printPlacement(b, plan.placements[b.id.index()]);
  for (const Kernel &k : plan.kernels) {
    KernelTraffic t = traffic(plan, k);
    out += fmt::format("kernel {} x {} r {}  # reads {} writes {} bytes\n", k.name, list(k.xRanges), list(k.rRanges),
                       t.bytesRead.str(), t.bytesWritten.str());
    for (const std::string &d : k.decisions) out += "    # " + d + "\n";
    for (const loops::Node &n : k.nodes) out += loops::print(plan.program, n);
  }
  out += "steps\n" + printSteps(plan, plan.steps);
  for (size_t s = 0; s < plan.subPlans.size(); ++s)
    out += fmt::format("plan {}\n", s) + printSteps(plan, plan.subPlans[s]);
  return out;
}

} // namespace neso::plan
