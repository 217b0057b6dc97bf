#include "driver/tuning.h"

#include <charconv>
#include <cmath>
#include <vector>

#include "base/diagnostics/tune.h"

namespace neso {

namespace {

constexpr std::string_view kMagic = "neso-tune ", kHeader = "neso-tune 2";

/// What the kernel computes and on which sizes, as text: buffers are numbered in order of their first use, and only their
/// dtypes and where they live tell them apart.
std::string canonical(const plan::Plan &plan, const plan::Kernel &kernel) {
  std::map<int32_t, size_t> numbers;
  std::string buffers;
  const loops::BufferNames number = [&](loops::BufferId id) {
    auto [it, added] = numbers.emplace(id.value, numbers.size());
    if (added)
      buffers += fmt::format("b{} {} {}\n", it->second, name(plan.program.buffer(id).dtype),
                             plan::name(plan.placements[id.index()].where));
    return fmt::format("b{}", it->second);
  };
  std::string text;
  for (const std::vector<Expr> *ranges : {&kernel.xRanges, &kernel.rRanges}) {
    for (Expr e : *ranges) text += e.str() + " ";
    text += "\n";
  }
  for (const loops::Node &n : kernel.nodes) text += loops::describe(n, number);
  return text + buffers;
}

/// FNV-1a, 64 bits.
uint64_t hash(std::string_view text) {
  uint64_t h = 0xcbf29ce484222325u;
  for (unsigned char c : text) h = (h ^ c) * 0x100000001b3u;
  return h;
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> out;
  for (size_t begin = 0;;) {
    size_t end = text.find(at, begin);
    out.push_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return out;
    begin = end + 1;
  }
}

bool readNumber(std::string_view text, double &out) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(out) && out >= 0;
}

} // namespace

std::string kernelKey(const plan::Plan &plan, const plan::Kernel &kernel) {
  return fmt::format("{}-{:016x}", name(kernel.kind), hash(canonical(plan, kernel)));
}

std::string launchKey(std::string_view text) {
  return fmt::format("user-{:016x}", hash(text));
}

Result<TuneResults> TuneResults::parse(std::string_view text, const std::string &name) {
  TuneResults out;
  std::vector<std::string_view> lines = split(text, '\n');
  if (lines.front().starts_with(kMagic) && lines.front() != kHeader)
    return fail(diag::TuneFileVersion, {}, name, std::string(lines.front()), kHeader);
  if (lines.front() != kHeader)
    return fail(diag::TuneFileMalformed, {}, name, fmt::format("its first line is not '{}'", kHeader));
  if (!lines.back().empty())
    return fail(diag::TuneFileMalformed, {}, name, std::string("it ends in the middle of a line"));
  for (size_t i = 1; i + 1 < lines.size(); ++i) {
    std::vector<std::string_view> fields = split(lines[i], '\t');
    Entry entry;
    if (fields.size() != 4 || fields[0].empty() || fields[1].empty() || !readNumber(fields[2], entry.microseconds) ||
        !readNumber(fields[3], entry.modelMicroseconds))
      return fail(diag::TuneFileMalformed, {}, name, fmt::format("line {} is not a key, a way and two times", i + 1));
    entry.way = fields[1];
    out.entries_[std::string(fields[0])] = std::move(entry);
  }
  return out;
}

std::string TuneResults::str() const {
  std::string out = std::string(kHeader) + "\n";
  for (const auto &[key, e] : entries_)
    out += fmt::format("{}\t{}\t{:.2f}\t{:.2f}\n", key, e.way, e.microseconds, e.modelMicroseconds);
  return out;
}

const TuneResults::Entry *TuneResults::find(const std::string &key) const {
  auto it = entries_.find(key);
  return it == entries_.end() ? nullptr : &it->second;
}

} // namespace neso
