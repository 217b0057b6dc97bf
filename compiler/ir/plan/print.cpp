// Text of plans, for people, tests and --emit; parse.cpp reads it back.
//
//     plan NAME
//       what the program says besides its nodes, as loops print it; behind each buffer where it lies
//     before                      sizes, guards, arenas and outputs of a complete plan
//     kernel NAME kind x [..] r [..]
//       decisions, parts; of a complete plan the tile function, its arguments and grid; its nodes
//     steps
#include "ir/loops/text.h"
#include "ir/plan/access.h"
#include "ir/shape/line.h"

namespace neso::plan {
namespace {

std::string printPlacement(const Plan &plan, const loops::Buffer &b) {
  using Where = Placement::Where;
  const Placement &p = plan.placements[b.id.index()];
  if (p.where == homeOf(b.kind) && p.where != Where::None) return "";
  if (p.where == Where::Arena && plan.arenas.empty()) return " in an arena";
  std::string out = fmt::format(" {}", name(p.where));
  if (p.where == Where::Output) out += fmt::format(" {}", p.output);
  if (p.where == Where::Arena)
    out += fmt::format("{} at {} bytes {} steps [{}, {}]", p.arena ? fmt::format(" {}", p.arena) : "", p.offset.str(),
                       p.bytes.str(), p.firstStep, p.lastStep);
  return out;
}

class Printer {
public:
  explicit Printer(const Plan &plan) : plan_(plan), buffers_(loops::bufferNames(plan.program)) {}

  std::string print() {
    const loops::Program &program = plan_.program;
    std::string out = fmt::format("plan {}\n", program.name) + loops::printSizes(program);
    for (const loops::Buffer &b : program.buffers)
      out += loops::printBuffer(b, buffers_) + printPlacement(plan_, b) + "\n";
    out += loops::printInputs(program, buffers_) + loops::printOutputs(program, buffers_) + before();
    for (const Kernel &k : plan_.kernels) out += kernel(k);
    return out + "steps\n" + region(plan_.main, 0);
  }

private:
  const Plan &plan_;
  loops::BufferNames buffers_;
  size_t step_ = 0;

  const std::string &nameOf(KernelId k) const { return plan_.kernels[k.index()].name; }

  /// What a run does before its first step.
  std::string before() const {
    if (plan_.arenas.empty()) return "";
    std::string out = "before\n";
    for (size_t i = 0; i < plan_.inputSizes.size(); ++i)
      for (size_t d = 0; d < plan_.inputSizes[i].size(); ++d) {
        const InputSize &size = plan_.inputSizes[i][d];
        out += fmt::format("  input {} size {} in {}", i, d, intervalText(size.range));
        if (size.defines.valid()) out += " is " + size.defines.str();
        if (size.real) out += fmt::format(" of {}", *size.real);
        if (size.equal.valid()) out += " equals " + size.equal.str();
        out += "\n";
      }
    for (const SizeDefinition &d : plan_.definitions)
      out += fmt::format("  define {} is {}\n", d.symbol.str(), d.value.str());
    for (const Guard &g : plan_.guards) out += fmt::format("  guard {}\n", g.condition.str());
    for (size_t a = 0; a < plan_.arenas.size(); ++a) {
      out += fmt::format("  arena {}{} bytes", plan_.arenas[a].late ? fmt::format("{} late ", a) : "",
                         plan_.arenas[a].bytes.str());
      out += a == 0 ? fmt::format(", lower bound {}\n", plan_.arenaLowerBound.str()) : "\n";
    }
    for (size_t k = 0; k < plan_.outputs.size(); ++k) {
      const CallerOutput &o = plan_.outputs[k];
      out += fmt::format("  output {} : {} bytes {} is output {} of the program{}\n", k, o.bytes.str(),
                         o.buffer.valid() ? "of " + buffers_(o.buffer) : "copied", o.output, o.late ? " late" : "");
    }
    return out;
  }

  std::string kernel(const Kernel &k) const {
    const KernelTraffic t = traffic(plan_, k);
    std::string out = fmt::format("kernel {} x {} r {} {}{}  # reads {} writes {} bytes\n", k.name, listText(k.xRanges),
                                  listText(k.rRanges), loops::name(k.kind), k.serial ? " serial" : "",
                                  t.bytesRead.str(), t.bytesWritten.str());
    for (const std::string &d : k.decisions) out += "    # " + d + "\n";
    for (KernelId part : k.parts) out += "    part " + nameOf(part) + "\n";
    for (const Kernel::Attached &a : k.attached) {
      out += fmt::format("    at argument {}:", a.argument);
      for (loops::NodeId n : a.nodes) out += fmt::format(" n{}", n.value);
      out += "\n";
    }
    if (k.product) out += "    or " + product(*k.product) + "\n";
    if (!k.function.empty()) {
      out += fmt::format("    function {} grid [{}, {}, {}] warps {} stages {}\n", k.function, k.grid[0].str(),
                         k.grid[1].str(), k.grid[2].str(), k.warps, k.stages);
      for (const KernelArg &a : k.args) out += "    " + argument(a) + "\n";
    }
    for (const loops::Node &n : k.nodes) out += loops::print(n, buffers_);
    return out;
  }

  std::string argument(const KernelArg &a) const {
    switch (a.kind) {
    case KernelArg::Kind::Buffer:
      return fmt::format("buffer {}[{}]{}{}", buffers_(a.buffer), a.offset.str(), a.read ? " read" : "",
                         a.written ? " written" : "");
    case KernelArg::Kind::Size: return "size " + a.size.str();
    case KernelArg::Kind::Int: return fmt::format("int {}", a.intValue);
    case KernelArg::Kind::Float: return fmt::format("float {} : {}", a.floatValue, a.isF64 ? "f64" : "f32");
    }
    NESO_UNREACHABLE("unknown kind of argument");
  }

  std::string product(const Product &p) const {
    auto matrix = [&](const Matrix &m) {
      return fmt::format("{}{} at {} pitch {} batch {}", buffers_(m.buffer), m.transposed ? " ^T" : "", m.offset.str(),
                         m.pitch.str(), m.batchStride.str());
    };
    std::string out = fmt::format("a library's {} x [{}, {}, {}] of {} to {}: {} = {} * {}", p.batch.str(), p.m.str(),
                                  p.n.str(), p.k.str(), name(p.type), name(p.outType), matrix(p.d), matrix(p.a),
                                  matrix(p.b));
    if (p.bias.valid()) out += fmt::format(", bias {} at {}", buffers_(p.bias), p.biasOffset.str());
    if (p.relu) out += ", relu";
    if (p.workspace.valid()) out += ", in " + buffers_(p.workspace);
    if (p.rest.valid()) out += ", then " + nameOf(p.rest);
    return out;
  }

  /// Steps are numbered as forEachStep meets them; regions inside are indented.
  std::string region(const Region &region, size_t depth) {
    std::string out;
    for (const Step &step : region.steps) {
      out += fmt::format("{}{}: ", std::string(2 + 2 * depth, ' '), step_++);
      out += std::visit([&](const auto &s) { return text(s, depth); }, step.what);
    }
    return out;
  }
  std::string inside(const char *what, const Region &region, size_t depth) {
    return std::string(2 + 2 * depth, ' ') + what + "\n" + this->region(region, depth + 1);
  }

  std::string text(const Launch &l, size_t) const {
    const Kernel &kernel = plan_.kernels[l.kernel.index()];
    return fmt::format("launch {}{}\n", kernel.name, kernel.product ? ", or a library" : "");
  }
  std::string text(const Copy &c, size_t) const {
    std::string to = c.dst.valid() ? buffers_(c.dst) : fmt::format("output {}", c.dstOutput);
    return fmt::format("copy {} of {} from {} strides {} offset {} to {} strides {} offset {}\n", listText(c.sizes),
                       name(c.dtype), buffers_(c.src), listText(c.srcStrides), c.srcOffset.str(), to,
                       listText(c.dstStrides), c.dstOffset.str());
  }
  std::string text(const Guard &g, size_t) const { return fmt::format("guard {}\n", g.condition.str()); }
  std::string text(const LoadScalar &v, size_t) const {
    return fmt::format("{} = scalar {} : {}{}\n", v.symbol.str(), buffers_(v.buffer), name(v.dtype), loops::turnText(v.turn));
  }
  std::string text(const CallExtern &c, size_t) const { return fmt::format("extern {} {}\n", c.name, loops::externText(c.call, buffers_)); }
  std::string text(const EvalSizes &e, size_t) const { return fmt::format("sizes of {}\n", e.symbol.str()); }
  std::string text(const GrowArena &g, size_t) const { return fmt::format("grow arena {}\n", g.arena); }
  std::string text(const AllocOutput &a, size_t) const { return fmt::format("allocate output {}\n", a.output); }
  std::string text(const If &b, size_t depth) {
    std::string out = fmt::format("if {}\n", b.condition.str()) + region(b.then, depth + 1);
    return b.otherwise.steps.empty() ? out : out + inside("else", b.otherwise, depth);
  }
  std::string text(const While &w, size_t depth) {
    std::string out = fmt::format("while {} after\n", w.condition.str()) + region(w.test, depth + 1);
    return out + inside("do", w.body, depth);
  }
};

} // namespace

std::string_view name(Placement::Where where) { return kPlaces[static_cast<size_t>(where)]; }

std::string print(const Plan &plan) { return Printer(plan).print(); }

} // namespace neso::plan
