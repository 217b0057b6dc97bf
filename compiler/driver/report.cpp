#include "driver/report.h"
#include "driver/html.h"
#include "driver/report_page.h"

#include <algorithm>
#include <map>
#include <set>

#include "ir/plan/access.h"
#include "ir/plan/steps.h"
#include "ir/shape/usual.h"

namespace neso {
namespace {

/// Sizes by the names that the user gave them: quotes, which tell these from the compiler's own in the texts of the stages, are for parsers.
std::string plainNames(std::string text) {
  std::erase(text, '\'');
  return text;
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
    // What `neso bench --report` writes: kReportTimes and the JSON behind it.
    return out_ + kReportTimes + "null</script><script>" + kTableScript + kReportScript + "</script></body></html>\n";
  }

private:
  int64_t number(Expr e) const { return evaluate(e, sizes_).value_or(0); }
  /// A size as a formula, with its value at the sizes of the pictures where it is symbolic.
  std::string amount(Expr e) const {
    std::string value = bytesText(number(e));
    return e.isConst() ? value : fmt::format("{} <span class=f>= {}</span>", value, escapeHtml(plainNames(e.str())));
  }
  static std::string ranges(const std::vector<Expr> &xs) {
    std::string text;
    for (Expr e : xs) text += (text.empty() ? "" : " × ") + plainNames(e.str());
    return text.empty() ? "1" : escapeHtml(text);
  }

  void head() {
    out_ += fmt::format("<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport content='width=device-width'><title>{} compiled by "
                        "Neso</title><style>{}</style></head><body class=unmeasured {}{}\">",
                        escapeHtml(plan_.program.name), kReportStyle, kReportSizes, escapeHtml(sizesText()));
  }

  /// Those of inputs, which a caller chooses, as `neso bench --dim` takes them: "s0=64, s1=8".
  std::string sizesText() const {
    std::set<std::string> texts;
    for (const loops::ProgramInput &in : plan_.program.inputs)
      for (Expr e : in.sizes)
        if (e.isSymbol()) texts.insert(fmt::format("{}={}", e.symbol().name(), number(e)));
    std::string all;
    for (const std::string &t : texts) all += (all.empty() ? "" : ", ") + t;
    return all;
  }

  void fact(const std::string &value, const char *what) { out_ += fmt::format("<div><b>{}</b>{}</div>", value, what); }

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
    out_ += fmt::format("<h1>{}</h1><div class=facts>", escapeHtml(plan_.program.name));
    fact(std::to_string(plan_.kernels.size() - packs), "kernels");
    fact(std::to_string(nodes), "loop nodes in them");
    fact(std::to_string(stepCount()), "steps a run");
    fact(bytesText(number(read)), "read by a run");
    fact(bytesText(number(written)), "written by a run");
    fact(bytesText(weights), "weights");
    fact(bytesText(number(plan_.arenaBytes())), "intermediates");
    out_ += "</div>";
    if (!sizes_.empty()) {
      out_ += "<p class=soft>Sizes that may differ between runs are shown at";
      for (const auto &[symbol, range] : plan_.program.facts.ranges())
        out_ += fmt::format(" {} = {}", escapeHtml(symbol.name()), sizes_.at(symbol));
      out_ += ".</p>";
    }
  }

  /// The modules whose weights a kernel reads: "layer1.0.conv1".
  std::set<std::string> modules(const plan::Kernel &k) const {
    std::set<std::string> names;
    for (const plan::BufferAccess &a : plan::memoryAccesses(plan_, k)) {
      const loops::Buffer &b = plan_.program.buffers[a.buffer.value];
      if (b.kind != loops::Buffer::Kind::Constant) continue;
      const std::string &weight = plan_.program.constants[static_cast<size_t>(b.index)].fqn;
      if (const size_t dot = weight.rfind('.'); dot != std::string::npos) names.insert(weight.substr(0, dot));
    }
    return names;
  }

  /// The part of the model that a kernel is shown under: of its weights' first module, else of the first line that ran in one; empty: nobody
  /// knows.
  std::string groupOf(const plan::Kernel &k) const {
    const std::set<std::string> names = modules(k);
    if (!names.empty()) return moduleGroup(*names.begin());
    for (const loops::Node &n : k.nodes)
      for (const loops::Origin &origin : n.origins)
        if (!origin.module.empty()) return moduleGroup(origin.module);
    return "";
  }

  /// Multiplications and additions of its contractions.
  int64_t flops(const plan::Kernel &k) const {
    int64_t all = 0;
    for (const loops::Node &n : k.nodes) {
      if (n.kind() != loops::Node::Kind::Contraction) continue;
      int64_t one = 2;
      for (const std::vector<Expr> *ranges : {&n.ranges, &n.reduceRanges})
        for (Expr e : *ranges) one *= number(e);
      all += one;
    }
    return all;
  }

  static std::string list(const std::set<std::string> &lines) {
    std::string text;
    for (const std::string &l : lines) text += (text.empty() ? "" : "<br>") + escapeHtml(l);
    return text;
  }

  /// The first few reasons; the others open.
  static std::string fusion(const std::vector<std::string> &decisions) {
    constexpr size_t kShown = 3;
    std::string shown, folded;
    for (size_t i = 0; i < decisions.size(); ++i) {
      std::string &text = i < kShown || decisions.size() == kShown + 1 ? shown : folded;
      text += (text.empty() ? "" : "<br>") + escapeHtml(decisions[i]);
    }
    return folded.empty() ? shown : fmt::format("{}<details><summary>{} more</summary>{}</details>", shown, decisions.size() - kShown, folded);
  }

  /// A row that folds those of the next `count` kernels, which belong to one part of the model.
  void group(size_t id, const std::string &name, size_t count, int64_t bytes) {
    out_ += fmt::format("<tbody class=g data-group={}><tr><td><td colspan=2><button class=fold aria-expanded=true>{}</button> <span class=soft>{} kernel{}</span><td class='n timed time'>"
                        "<td class=timed><td class=n>{}<td></tr></tbody>",
                        id, escapeHtml(name.empty() ? "no module" : name), count, count == 1 ? "" : "s", bytesText(bytes));
  }

  void kernel(size_t i, size_t group) {
    const plan::Kernel &k = plan_.kernels[i];
    plan::KernelTraffic t = plan::traffic(plan_, k);
    std::set<std::string> lines;
    std::string body;
    for (const loops::Node &n : k.nodes) {
      for (const loops::Origin &origin : n.origins) lines.insert(origin.loc.str());
      body += loops::print(plan_.program, n);
    }
    std::string space = ranges(k.xRanges) + (k.rRanges.empty() ? "" : " over " + ranges(k.rRanges));
    const int64_t bytes = number(t.bytesRead) + number(t.bytesWritten);
    out_ += fmt::format("<tbody class=k id=k{0} data-group={7} data-index={0} data-name=\"{1}\" data-bytes={2} data-flops={3}><tr><td class=n>{0}<td><code>{1}</code><td>{4}<td class='n timed bar time'>"
                        "<td class='n timed limit'><td class=n>{5}<td>{6}</tr>",
                        i, escapeHtml(k.name), bytes, flops(k), list(modules(k)), bytesText(bytes), fusion(k.decisions), group);
    out_ += fmt::format("<tr class=more><td><td class=wide colspan=4><details><summary>loops, sources, sizes</summary><p>{}</p><p>{}</p><p>reads {}<br>writes {}</p><pre>{}</pre></details></tr></tbody>",
                        list(lines), space, amount(t.bytesRead), amount(t.bytesWritten), escapeHtml(body));
  }

  void kernels() {
    out_ += "<h2>Kernels</h2><p id=measured class=soft>No times yet: <code>neso bench MODEL.neso --report</code> with this file puts them in.</p><div class=tools><input id=search type=search "
            "placeholder='search kernels, modules, source lines'><button id=fold>fold modules</button></div><table id=kernels><colgroup><col style='width:4%'><col style='width:24%'><col style='width:17%'><col class=timed "
            "style='width:10%'><col class=timed style='width:8%'><col style='width:10%'><col></colgroup><thead><tr><th class=n data-sort=index>#<th data-sort=name>kernel<th>module<th "
            "class='n timed' data-sort=time>time<th class='n timed' data-sort=limit>of limit<th class=n data-sort=bytes>bytes<th>fusion</tr></thead>";
    // Kernels stand in the order in which they run; neighbours of one part of the model are a group.
    std::vector<std::string> groups;
    for (const plan::Kernel &k : plan_.kernels) {
      groups.push_back(groupOf(k));
      // What belongs to no module stands with the kernel before it.
      if (groups.back().empty() && groups.size() > 1) groups.back() = groups[groups.size() - 2];
    }
    const bool grouped = std::set<std::string>(groups.begin(), groups.end()).size() > 1;
    for (size_t i = 0, id = 0; i < groups.size(); ++id) {
      size_t end = i;
      int64_t bytes = 0;
      for (; end < groups.size() && groups[end] == groups[i]; ++end) {
        plan::KernelTraffic t = plan::traffic(plan_, plan_.kernels[end]);
        bytes += number(t.bytesRead) + number(t.bytesWritten);
      }
      if (grouped) group(id, groups[i], end - i, bytes);
      for (; i < end; ++i) kernel(i, id);
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
          escapeHtml(u.name), u.threads, u.registers, u.spillBytes, bytesText(u.sharedBytes), u.blocksPerSm,
          escapeHtml(u.products));
    out_ += "</table>";
  }

  /// For each kernel the earlier ones that wrote what it reads.
  std::vector<std::set<size_t>> feeders() const {
    std::map<int32_t, size_t> writer;
    std::vector<std::set<size_t>> from(plan_.kernels.size());
    for (size_t i = 0; i < plan_.kernels.size(); ++i) {
      std::vector<plan::BufferAccess> accesses = plan::memoryAccesses(plan_, plan_.kernels[i]);
      for (const plan::BufferAccess &a : accesses)
        if (auto it = writer.find(a.buffer.value); a.read && it != writer.end() && it->second != i) from[i].insert(it->second);
      for (const plan::BufferAccess &a : accesses)
        if (a.written) writer[a.buffer.value] = i;
    }
    return from;
  }

  /// Levels from top to bottom: a kernel stands below all that it reads from; an edge for each that feeds another.
  void flow() {
    const std::vector<std::set<size_t>> from = feeders();
    std::vector<size_t> level(from.size(), 0), place(from.size(), 0), width;
    for (size_t i = 0; i < from.size(); ++i) {
      for (size_t f : from[i]) level[i] = std::max(level[i], level[f] + 1);
      width.resize(std::max(width.size(), level[i] + 1));
      place[i] = width[level[i]]++;
    }
    if (from.empty()) return;
    const size_t widest = *std::max_element(width.begin(), width.end());
    const int column = 190, row = 46, boxWidth = 170, boxHeight = 22;
    const int total = std::max(static_cast<int>(widest) * column, 1060);
    auto x = [&](size_t i) { return total * (2 * static_cast<int>(place[i]) + 1) / (2 * static_cast<int>(width[level[i]])); };
    auto y = [&](size_t i) { return static_cast<int>(level[i]) * row + 8; };
    std::string edges, nodes;
    for (size_t i = 0; i < from.size(); ++i) {
      for (size_t f : from[i]) {
        // What passes other levels swings out, so that it is seen beside them.
        const int y0 = y(f) + boxHeight, y1 = y(i), swing = level[i] - level[f] > 1 ? 110 + 6 * static_cast<int>((i * 7 + f) % 12) : 0;
        edges += fmt::format("<path class=edge d='M{} {} C{} {} {} {} {} {}'/>", x(f), y0, x(f) + swing, y0 + row / 2, x(i) + swing, y1 - row / 2, x(i), y1);
      }
      std::string name = plan_.kernels[i].name;
      if (name.size() > 24) name = name.substr(0, 22) + "…";
      nodes += fmt::format("<a href=#k{}><rect class=node x={} y={} width={} height={} rx=4 /><text x={} y={} text-anchor=middle>{}</text><title>{} {}</title></a>", i, x(i) - boxWidth / 2, y(i),
                           boxWidth, boxHeight, x(i), y(i) + 15, escapeHtml(name), i, escapeHtml(plan_.kernels[i].name));
    }
    out_ += fmt::format("<h2>Which kernel feeds which</h2><svg viewBox='0 0 {} {}' style='max-height:none'>{}{}</svg>", total, static_cast<int>(width.size()) * row + 8, edges, nodes);
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
    out_ += "<h2>Memory</h2><svg viewBox='0 0 900 320'>";
    for (size_t i = 0; i < plan_.placements.size(); ++i) {
      const plan::Placement &p = plan_.placements[i];
      if (p.where != plan::Placement::Where::Arena || p.firstStep < 0) continue;
      double x = 880 * p.firstStep / steps + 10, width = 880 * (p.lastStep - p.firstStep + 1) / steps;
      double height = 300.0 * static_cast<double>(number(p.bytes)) / static_cast<double>(top);
      double y = 310 - 300.0 * static_cast<double>(number(p.offset)) / static_cast<double>(top) - height;
      out_ += fmt::format("<rect x={:.1f} y={:.1f} width={:.1f} height={:.1f} fill='hsl({},55%,75%)' stroke='#666' "
                          "stroke-width=.5><title>{}: {}, steps {} to {}</title></rect>",
                          x, y, width, height, (i * 47) % 360, escapeHtml(plan_.program.buffers[i].name),
                          bytesText(number(p.bytes)), p.firstStep, p.lastStep);
    }
    double bound = 310 - 300.0 * static_cast<double>(number(plan_.arenaLowerBound)) / static_cast<double>(top);
    out_ += fmt::format("<line class=bound x1=10 x2=890 y1={0:.1f} y2={0:.1f} /></svg><p>Boxes are buffers of the arena over the steps "
                        "of the plan; the dashed line is the lower bound, the most bytes alive at any step.</p>",
                        bound);
  }

  void times() {
    out_ += "<h2>Compile time</h2><table style='max-width:420px'>";
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
