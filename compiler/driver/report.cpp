#include "driver/report.h"

#include <algorithm>
#include <map>
#include <set>

#include "ir/plan/access.h"
#include "ir/shape/usual.h"

namespace neso {
namespace {

std::string escape(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

std::string bytesText(int64_t n) {
  if (n < 10'000) return fmt::format("{} B", n);
  if (n < 10'000'000) return fmt::format("{:.1f} kB", static_cast<double>(n) / 1e3);
  return fmt::format("{:.1f} MB", static_cast<double>(n) / 1e6);
}

class Page {
public:
  Page(const plan::Plan &plan, const std::vector<FunctionUsage> &usage, const std::vector<StepTime> &times)
      : plan_(plan), usage_(usage), times_(times) {
    // Pictures need numbers.
    for (const auto &[symbol, range] : plan.program.facts.ranges())
      sizes_[symbol] = usualSize(symbol, plan.program.facts);
  }

  std::string str() {
    head();
    summary();
    kernels();
    if (!usage_.empty()) resources();
    flow();
    memory();
    times();
    return out_ + "</body></html>\n";
  }

private:
  int64_t number(Expr e) const { return evaluate(e, sizes_).value_or(0); }
  /// A size as a formula, with its value at the sizes of the pictures where it is symbolic.
  std::string amount(Expr e) const {
    std::string value = bytesText(number(e));
    return e.isConst() ? value : fmt::format("{} <span class=f>= {}</span>", value, escape(e.str()));
  }
  static std::string ranges(const std::vector<Expr> &xs) {
    std::string text;
    for (Expr e : xs) text += (text.empty() ? "" : " × ") + e.str();
    return text.empty() ? "1" : escape(text);
  }

  void head() {
    out_ = "<!doctype html><html lang=en><head><meta charset=utf-8><title>" + escape(plan_.program.name) +
           " compiled by Neso</title><style>body{font:14px/1.45 system-ui,sans-serif;margin:2em "
           "auto;max-width:1100px;padding:0 1em;color:#222}"
           "table{border-collapse:collapse;width:100%}td,th{border-bottom:1px solid #ddd;padding:4px "
           "8px;text-align:left;vertical-align:top}"
           "th{background:#f4f4f4}.n{text-align:right;white-space:nowrap}.f{color:#777}code,pre{font:12px/1.4 "
           "ui-monospace,monospace}"
           "pre{background:#f7f7f7;padding:8px;overflow:auto}summary{cursor:pointer}svg{background:#fafafa;border:1px "
           "solid #ddd}</style></head><body>";
  }

  void summary() {
    Expr read = 0, written = 0;
    size_t nodes = 0, packs = 0;
    for (const plan::Kernel &k : plan_.kernels) {
      plan::KernelTraffic t = plan::traffic(plan_, k);
      read = read + t.bytesRead, written = written + t.bytesWritten;
      nodes += k.nodes.size(), packs += !k.parts.empty();
    }
    int64_t weights = 0;
    for (const loops::Constant &c : plan_.program.constants) weights += c.bytes;
    out_ +=
        fmt::format("<h1>{}</h1><p>{} loop nodes in <b>{} kernels</b>, {} steps. A run reads {} and writes {}. "
                    "Weights: {}. Arena: {} (lower bound {}).</p>",
                    escape(plan_.program.name), nodes, plan_.kernels.size() - packs, stepCount(), amount(read),
                    amount(written), bytesText(weights), amount(plan_.arenaBytes()), amount(plan_.arenaLowerBound));
    if (!sizes_.empty()) {
      out_ += "<p>Symbolic sizes are shown at";
      for (const auto &[symbol, range] : plan_.program.facts.ranges())
        out_ += fmt::format(" {} = {}", escape(symbol.str()), sizes_.at(symbol));
      out_ += ".</p>";
    }
  }

  void kernels() {
    out_ += "<h2>Kernels</h2><table><tr><th>#<th>kernel<th>space<th class=n>reads<th class=n>writes<th>source "
            "lines<th>fusion</tr>";
    for (size_t i = 0; i < plan_.kernels.size(); ++i) {
      const plan::Kernel &k = plan_.kernels[i];
      plan::KernelTraffic t = plan::traffic(plan_, k);
      std::set<std::string> lines;
      std::string body;
      for (const loops::Node &n : k.nodes) {
        for (const loops::Origin &origin : n.origins) lines.insert(origin.loc.str());
        body += loops::print(plan_.program, n);
      }
      std::string sources, decisions;
      for (const std::string &l : lines) sources += escape(l) + "<br>";
      for (const std::string &d : k.decisions) decisions += escape(d) + "<br>";
      std::string space = ranges(k.xRanges) + (k.rRanges.empty() ? "" : " over " + ranges(k.rRanges));
      out_ += fmt::format(
          "<tr id=k{}><td>{}<td><details><summary><code>{}</code></summary><pre>{}</pre></details><td>{}<td "
          "class=n>{}<td class=n>{}<td>{}<td>{}</tr>",
          i, i, escape(k.name), escape(body), space, amount(t.bytesRead), amount(t.bytesWritten), sources, decisions);
    }
    out_ += "</table>";
  }

  /// What each function takes of a multiprocessor, and how many blocks of it fit there at once.
  void resources() {
    out_ += "<h2>Registers and shared memory</h2><table><tr><th>function<th class=n>threads<th class=n>registers<th "
            "class=n>spilled bytes<th class=n>shared memory<th class=n>blocks a multiprocessor<th>products</tr>";
    for (const FunctionUsage &u : usage_)
      out_ += fmt::format(
          "<tr><td><code>{}</code><td class=n>{}<td class=n>{}<td class=n>{}<td class=n>{}<td class=n>{}<td>{}</tr>",
          escape(u.name), u.threads, u.registers, u.spillBytes, bytesText(u.sharedBytes), u.blocksPerSm,
          escape(u.products));
    out_ += "</table>";
  }

  /// Kernels from top to bottom in launch order; an arc for each buffer that one writes and a later one reads.
  void flow() {
    const int row = 22;
    int height = static_cast<int>(plan_.kernels.size()) * row + 20;
    out_ += fmt::format("<h2>Which kernel feeds which</h2><svg width=900 height={}>", height);
    std::map<int32_t, size_t> writer;
    std::string arcs, labels;
    for (size_t i = 0; i < plan_.kernels.size(); ++i) {
      int y = static_cast<int>(i) * row + 16;
      labels += fmt::format("<a href=#k{}><text x=330 y={} font-size=12>{} {}</text></a>", i, y + 4, i,
                            escape(plan_.kernels[i].name));
      std::vector<plan::BufferAccess> accesses = plan::memoryAccesses(plan_, plan_.kernels[i]);
      std::set<size_t> from;
      for (const plan::BufferAccess &a : accesses)
        if (auto it = writer.find(a.buffer.value); a.read && it != writer.end() && it->second != i)
          from.insert(it->second);
      for (size_t f : from) {
        int y0 = static_cast<int>(f) * row + 16, bend = 320 - std::min<int>(300, 12 + 9 * static_cast<int>(i - f));
        arcs += fmt::format("<path d='M320 {} C{} {} {} {} 320 {}' fill=none stroke='#68a' stroke-width=1.2 />", y0,
                            bend, y0, bend, y, y);
      }
      for (const plan::BufferAccess &a : accesses)
        if (a.written) writer[a.buffer.value] = i;
    }
    out_ += arcs + labels + "</svg>";
  }

  size_t stepCount() const {
    size_t count = 0;
    plan::forEachStep(plan_.main, [&](const plan::Step &) { ++count; });
    return count;
  }
  /// Arena buffers as boxes: steps to the right, bytes upwards; the dashed line is the lower bound.
  void memory() {
    int64_t top = std::max<int64_t>(number(plan_.arenaBytes()), 1);
    double steps = static_cast<double>(std::max<size_t>(stepCount(), 1));
    out_ += "<h2>Memory</h2><svg width=900 height=320 viewBox='0 0 900 320'>";
    for (size_t i = 0; i < plan_.placements.size(); ++i) {
      const plan::Placement &p = plan_.placements[i];
      if (p.where != plan::Placement::Where::Arena || p.firstStep < 0) continue;
      double x = 880 * p.firstStep / steps + 10, width = 880 * (p.lastStep - p.firstStep + 1) / steps;
      double height = 300.0 * static_cast<double>(number(p.bytes)) / static_cast<double>(top);
      double y = 310 - 300.0 * static_cast<double>(number(p.offset)) / static_cast<double>(top) - height;
      out_ += fmt::format("<rect x={:.1f} y={:.1f} width={:.1f} height={:.1f} fill='hsl({},55%,75%)' stroke='#666' "
                          "stroke-width=.5><title>{}: {}, steps {} to {}</title></rect>",
                          x, y, width, height, (i * 47) % 360, escape(plan_.program.buffers[i].name),
                          bytesText(number(p.bytes)), p.firstStep, p.lastStep);
    }
    double bound = 310 - 300.0 * static_cast<double>(number(plan_.arenaLowerBound)) / static_cast<double>(top);
    out_ += fmt::format("<line x1=10 x2=890 y1={0:.1f} y2={0:.1f} stroke='#c33' stroke-dasharray='6 4' "
                        "/></svg><p>Boxes are buffers of the arena over the steps "
                        "of the plan; the dashed line is the lower bound, the most bytes alive at any step.</p>",
                        bound);
  }

  void times() {
    out_ += "<h2>Compile time</h2><table>";
    for (const StepTime &t : times_)
      out_ += fmt::format("<tr><td>{}<td class=n>{:.2f} ms</tr>", t.step, t.milliseconds);
    out_ += "</table>";
  }

  const plan::Plan &plan_;
  const std::vector<FunctionUsage> &usage_;
  const std::vector<StepTime> &times_;
  SymbolMap<int64_t> sizes_;
  std::string out_;
};

} // namespace

std::string htmlReport(const plan::Plan &plan, const std::vector<FunctionUsage> &usage,
                       const std::vector<StepTime> &times) {
  return Page(plan, usage, times).str();
}

} // namespace neso
