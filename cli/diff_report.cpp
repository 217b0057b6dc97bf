#include "diff_report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "base/atomic_file.h"
#include "bench_report.h"
#include "driver/html.h"
#include "driver/report_page.h"

namespace neso::cli {
namespace {

constexpr int kRuns = 15;

struct KernelFacts {
  std::string name;
  std::set<std::string> sources; // "model.py:12 in relu (layers.0)"
  std::string usage;             // registers and shared memory on a GPU
};

struct PackageFacts {
  std::string path, model, targets;
  neso_model_stats stats{};
  std::vector<KernelFacts> kernels;
  double runMs = 0; // 0: not timed
  std::map<std::string, double> kernelMs;
};

std::string usageText(const neso_model *m, int32_t kernel) {
  std::string out;
  for (int32_t t = 0; t < neso_model_target_count(m); ++t) {
    neso_kernel_usage u{};
    if (neso_model_kernel_usage(m, kernel, t, &u) != NESO_OK || u.threads == 0) continue;
    neso_target_info target{};
    neso_model_target(m, t, &target);
    out += fmt::format("{}{}: {} threads, {} registers, {} spilled bytes, {} of shared memory, {} blocks a multiprocessor", out.empty() ? "" : "; ", target.arch, u.threads, u.registers,
                       u.spill_bytes, bytesText(u.shared_bytes), u.blocks_per_sm);
  }
  return out;
}

PackageFacts factsOf(const std::string &path, const neso_model *m) {
  PackageFacts out;
  out.path = path;
  if (const char *name = neso_model_metadata(m, "model")) out.model = name;
  neso_model_get_stats(m, &out.stats);
  for (int32_t t = 0; t < neso_model_target_count(m); ++t) {
    neso_target_info target{};
    neso_model_target(m, t, &target);
    out.targets += fmt::format("{}{}", t ? ", " : "", target.arch);
  }
  for (int32_t k = 0; k < neso_model_kernel_count(m); ++k) {
    neso_kernel_info info;
    neso_model_kernel(m, k, &info);
    KernelFacts one{info.name, {}, usageText(m, k)};
    for (int32_t line = 0; line < info.source_count; ++line) one.sources.insert(neso_model_kernel_source(m, k, line));
    out.kernels.push_back(std::move(one));
  }
  return out;
}

/// Kernels of both that compute one piece of the model, in the order of their runs.
struct Row {
  std::vector<size_t> a, b;
};

/// Which kernels belong together: those that share a line of the sources, directly or by way of others; without any, those of one name.
class Matching {
public:
  Matching(const PackageFacts &a, const PackageFacts &b) : a_(a), b_(b), parent_(a.kernels.size() + b.kernels.size()) {
    std::iota(parent_.begin(), parent_.end(), size_t{0});
    std::map<std::string, size_t> first;
    for (size_t i = 0; i < parent_.size(); ++i) {
      const KernelFacts &k = kernel(i);
      const std::set<std::string> &keys = k.sources.empty() ? std::set<std::string>{"the kernel " + k.name} : k.sources;
      for (const std::string &key : keys)
        if (auto [it, fresh] = first.emplace(key, i); !fresh) parent_[root(i)] = root(it->second);
    }
  }

  std::vector<Row> rows() {
    std::vector<Row> out;
    std::map<size_t, size_t> rowOf;
    for (size_t i = 0; i < parent_.size(); ++i) {
      auto [it, fresh] = rowOf.emplace(root(i), out.size());
      if (fresh) out.emplace_back();
      if (i < a_.kernels.size())
        out[it->second].a.push_back(i);
      else
        out[it->second].b.push_back(i - a_.kernels.size());
    }
    return out;
  }

private:
  const KernelFacts &kernel(size_t i) const { return i < a_.kernels.size() ? a_.kernels[i] : b_.kernels[i - a_.kernels.size()]; }
  size_t root(size_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }

  const PackageFacts &a_, &b_;
  std::vector<size_t> parent_;
};

/// "layers.0" of "model.py:12 in relu (layers.0)"; empty: the line does not say.
std::string_view moduleOf(std::string_view source) {
  const size_t open = source.rfind(" (");
  if (open == std::string_view::npos || source.back() != ')') return "";
  return source.substr(open + 2, source.size() - open - 3);
}

std::string timeText(double ms) {
  if (ms <= 0) return "";
  const double us = ms * 1e3;
  return fmt::format("{:.{}f} µs", us, us >= 100 ? 0 : us >= 10 ? 1 : 2);
}

class Page {
public:
  Page(const PackageFacts &a, const PackageFacts &b) : a_(a), b_(b), timed_(a.runMs > 0), rows_(Matching(a, b).rows()) {}

  std::string str() {
    const std::string title = a_.model == b_.model ? a_.model : a_.model + " and " + b_.model;
    out_ += fmt::format("<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport content='width=device-width'><title>{0}: two packages</title><style>{1}</style></head>"
                        "<body{2}><h1>{0}: two packages</h1>",
                        escapeHtml(title), kReportStyle, timed_ ? "" : " class=unmeasured");
    packages();
    kernels();
    return out_ + "<script>" + kTableScript + kScript + "</script></body></html>\n";
  }

private:
  template <typename T> void fact(const char *what, const T &a, const T &b, std::string_view change) {
    out_ += fmt::format("<tr><td>{}<td class=n>{}<td class=n>{}<td class=n>{}</tr>", what, a, b, change);
  }
  void count(const char *what, int64_t a, int64_t b) { fact(what, a, b, a == b ? "" : fmt::format("{:+}", b - a)); }
  static std::string share(double a, double b) { return a > 0 && b > 0 ? fmt::format("× {:.2f}", b / a) : ""; }
  void bytes(const char *what, size_t a, size_t b) { fact(what, bytesText(static_cast<int64_t>(a)), bytesText(static_cast<int64_t>(b)), a == b ? "" : share(static_cast<double>(a), static_cast<double>(b))); }

  void packages() {
    out_ += fmt::format("<table id=packages><colgroup><col style='width:22%'><col style='width:32%'><col style='width:32%'><col></colgroup><tr><th><th class=n>A: {}<th class=n>B: {}<th class=n>B against A</tr>",
                        escapeHtml(a_.path), escapeHtml(b_.path));
    fact("code for", escapeHtml(a_.targets), escapeHtml(b_.targets), "");
    bytes("package", a_.stats.package_bytes, b_.stats.package_bytes);
    bytes("of it weights", a_.stats.constant_bytes, b_.stats.constant_bytes);
    count("kernels", static_cast<int64_t>(a_.kernels.size()), static_cast<int64_t>(b_.kernels.size()));
    count("steps a run", a_.stats.step_count, b_.stats.step_count);
    count("launches a run", a_.stats.launch_count, b_.stats.launch_count);
    if (timed_) fact("a run", timeText(a_.runMs), timeText(b_.runMs), share(a_.runMs, b_.runMs));
    out_ += "</table>";
  }

  static double sum(const PackageFacts &p, const std::vector<size_t> &kernels) {
    double all = 0;
    for (size_t i : kernels)
      if (auto it = p.kernelMs.find(p.kernels[i].name); it != p.kernelMs.end()) all += it->second;
    return all;
  }
  static std::string names(const PackageFacts &p, const std::vector<size_t> &kernels) {
    std::string text;
    for (size_t i : kernels) text += fmt::format("{}<code>{}</code>", text.empty() ? "" : "<br>", escapeHtml(p.kernels[i].name));
    return text.empty() ? "<span class=soft>none</span>" : text;
  }
  static std::set<std::string> sources(const PackageFacts &p, const std::vector<size_t> &kernels) {
    std::set<std::string> all;
    for (size_t i : kernels) all.insert(p.kernels[i].sources.begin(), p.kernels[i].sources.end());
    return all;
  }
  /// Lines of `all`, those that are not in `other` marked.
  static std::string lines(const std::set<std::string> &all, const std::set<std::string> &other) {
    std::string text;
    for (const std::string &l : all) text += (text.empty() ? "" : "<br>") + escapeHtml(l) + (other.count(l) ? "" : " <b>only here</b>");
    return text.empty() ? "none" : text;
  }
  static std::string usages(const PackageFacts &p, const std::vector<size_t> &kernels) {
    std::string text;
    for (size_t i : kernels)
      if (!p.kernels[i].usage.empty()) text += fmt::format("<br>{}: {}", escapeHtml(p.kernels[i].name), escapeHtml(p.kernels[i].usage));
    return text;
  }

  /// Both have one kernel for it, of one name, from the same lines.
  bool alike(const Row &r) const { return r.a.size() == 1 && r.b.size() == 1 && a_.kernels[r.a[0]].name == b_.kernels[r.b[0]].name && sources(a_, r.a) == sources(b_, r.b); }

  std::string groupOf(const Row &r) const {
    for (const auto &all : {sources(a_, r.a), sources(b_, r.b)})
      for (const std::string &l : all)
        if (std::string_view m = moduleOf(l); !m.empty()) return moduleGroup(m);
    return "";
  }

  void group(size_t id, const std::string &name, size_t begin, size_t end) {
    double a = 0, b = 0;
    for (size_t i = begin; i < end; ++i) a += sum(a_, rows_[i].a), b += sum(b_, rows_[i].b);
    out_ += fmt::format("<tbody class=g data-group={}><tr><td><td colspan=2><button class=fold aria-expanded=true>{}</button> <span class=soft>{} row{}</span><td class='n timed'>{}<td class='n timed'>{}"
                        "<td class='n timed'>{}</tr></tbody>",
                        id, escapeHtml(name.empty() ? "no module" : name), end - begin, end - begin == 1 ? "" : "s", timeText(a), timeText(b), share(a, b));
  }

  void row(size_t i, size_t group) {
    const Row &r = rows_[i];
    const double a = sum(a_, r.a), b = sum(b_, r.b);
    const std::set<std::string> linesA = sources(a_, r.a), linesB = sources(b_, r.b);
    const std::string name = r.a.empty() ? b_.kernels[r.b[0]].name : a_.kernels[r.a[0]].name;
    // By how much a run is longer: what matters first, whichever way it goes.
    out_ += fmt::format("<tbody class=k data-group={} data-index={} data-name=\"{}\" data-alike={} data-a={:.6f} data-b={:.6f} data-change={:.6f}><tr><td class=n>{}<td>{}<td>{}<td class='n timed'>{}<td class='n timed'>{}"
                        "<td class='n timed'>{}</tr>",
                        group, i, escapeHtml(name), alike(r) ? 1 : 0, a, b, std::abs(b - a), i, names(a_, r.a), names(b_, r.b), timeText(a), timeText(b), share(a, b));
    out_ += fmt::format("<tr class=more><td><td colspan={}><details><summary>source lines</summary><p>A: {}{}</p><p>B: {}{}</p></details></tr></tbody>", timed_ ? 5 : 2, lines(linesA, linesB),
                        usages(a_, r.a), lines(linesB, linesA), usages(b_, r.b));
  }

  void kernels() {
    out_ += fmt::format("<h2>Kernels</h2><p class=soft>A row holds what computes the same operators of the model; {} of {} rows are one kernel of the same name and lines in both.</p>",
                        std::count_if(rows_.begin(), rows_.end(), [&](const Row &r) { return alike(r); }), rows_.size());
    if (!timed_) out_ += "<p class=soft>No times: <code>neso diff A B --report FILE --times</code> runs both.</p>";
    out_ += "<div class=tools><input id=search type=search placeholder='search kernels, modules, source lines'><label><input id=differs type=checkbox> only what differs</label><button id=fold>fold "
            "modules</button></div><table id=kernels><colgroup><col style='width:5%'><col><col><col class=timed style='width:11%'><col class=timed style='width:11%'><col class=timed style='width:9%'></colgroup>"
            "<thead><tr><th class=n data-sort=index>#<th data-sort=name>kernels of A<th>kernels of B<th class='n timed' data-sort=a>time A<th class='n timed' data-sort=b>time B<th class='n timed' "
            "data-sort=change>B / A</tr></thead>";
    std::vector<std::string> groups;
    for (const Row &r : rows_) {
      groups.push_back(groupOf(r));
      if (groups.back().empty() && groups.size() > 1) groups.back() = groups[groups.size() - 2];
    }
    const bool grouped = std::set<std::string>(groups.begin(), groups.end()).size() > 1;
    for (size_t i = 0, id = 0; i < groups.size(); ++id) {
      size_t end = i;
      while (end < groups.size() && groups[end] == groups[i]) ++end;
      if (grouped) group(id, groups[i], i, end);
      for (; i < end; ++i) row(i, id);
    }
    out_ += "</table>";
  }

  static constexpr char kScript[] = R"js(
const differs=document.getElementById("differs");
view.keep=r=>!differs.checked||r.dataset.alike==="0";
differs.onchange=show;
)js";

  const PackageFacts &a_, &b_;
  bool timed_;
  std::vector<Row> rows_;
  std::string out_;
};

/// Runs of the two in turns, so that both meet the machine in the same state.
Status measureBoth(PackageFacts &a, PackageFacts &b, const SessionOptions &options) {
  PackageFacts *facts[] = {&a, &b};
  Session sessions[2];
  KernelTimer timers[2];
  SessionOptions settings[] = {options, options};
  for (int i : {0, 1}) {
    settings[i].model = facts[i]->path;
    settings[i].check = NESO_CHECK_DEFAULT;
    if (Status s = sessions[i].open(settings[i]); !s) return s;
    if (settings[i].device.apart())
      if (Status s = sessions[i].moveToDevice(); !s) return s;
    if (Status s = timers[i].open(sessions[i], settings[i]); !s) return s;
  }
  // The first run finds cold caches.
  for (int round = 0; round <= kRuns; ++round)
    for (KernelTimer &timer : timers)
      if (Status s = timer.run(round > 0); !s) return s;
  for (int i : {0, 1}) facts[i]->runMs = timers[i].runMs(), facts[i]->kernelMs = timers[i].kernelMs();
  return Status::ok();
}

} // namespace

Status writeDiffReport(const std::string &path, const std::string &pathA, const std::string &pathB, const SessionOptions &options, bool times) {
  PackageFacts facts[2];
  const std::string *paths[] = {&pathA, &pathB};
  for (int i : {0, 1}) {
    OpenModel model;
    if (Status s = model.look(*paths[i], options.name); !s) return s;
    facts[i] = factsOf(*paths[i], model.get());
  }
  if (times)
    if (Status s = measureBoth(facts[0], facts[1], options); !s) return s;
  return writeFileAtomically(path, Page(facts[0], facts[1]).str());
}

} // namespace neso::cli
