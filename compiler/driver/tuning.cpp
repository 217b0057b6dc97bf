#include "driver/tuning.h"

#include <charconv>
#include <cmath>
#include <vector>

#include "base/diagnostics/tune.h"

namespace neso {

namespace {

constexpr std::string_view kHeader = "neso-tune 1";

const char *kindName(loops::Node::Kind kind) {
  switch (kind) {
  case loops::Node::Kind::Pointwise: return "pointwise";
  case loops::Node::Kind::Reduction: return "reduction";
  case loops::Node::Kind::Contraction: return "contraction";
  case loops::Node::Kind::Scan: return "scan";
  case loops::Node::Kind::Sort: return "sort";
  case loops::Node::Kind::Attention: return "attention";
  case loops::Node::Kind::UserKernel: return "user";
  }
  NESO_UNREACHABLE("unknown kind of node");
}

/// A kernel's text with buffers numbered in order of their first use.
class Canonical {
public:
  Canonical(const plan::Plan &plan, const plan::Kernel &kernel) : plan_(plan) {
    list(kernel.xRanges), list(kernel.rRanges);
    for (const loops::Node &n : kernel.nodes) node(n);
  }
  std::string text;

private:
  void put(std::string_view s) { (text += s) += ' '; }
  template <typename T> void number(T v) { put(fmt::format("{}", v)); }
  void list(const std::vector<Expr> &es) {
    for (Expr e : es) put(e.str());
    put(";");
  }
  void buffer(loops::BufferId id) {
    if (!id.valid()) return put("-");
    auto [it, added] = numbers_.emplace(id.value, numbers_.size());
    number(it->second);
    if (added) put(name(plan_.program.buffer(id).dtype)), number(static_cast<int>(plan_.placements[id.index()].where));
  }
  void body(const loops::Body &b) {
    for (const loops::Op &op : b.ops) {
      number(static_cast<int>(op.kind)), put(name(op.dtype)), number(op.a), number(op.b), number(op.c), number(op.imm),
          number(op.immInt);
      buffer(op.buffer), put(op.index.valid() ? op.index.str() : "-"), put(op.symbol.valid() ? op.symbol.str() : ""),
          put(op.bound.valid() ? op.bound.str() : "-");
    }
    put(";");
  }
  void store(const loops::Store &s) {
    buffer(s.buffer), put(s.index.str()), number(s.value), number(s.mask), number(static_cast<int>(s.mode));
  }
  void node(const loops::Node &n) {
    put(kindName(n.kind)), list(n.ranges), list(n.reduceRanges), body(n.body), body(n.epilogue);
    for (const loops::Store &s : n.stores) store(s);
    for (const loops::Reduction &r : n.reductions) {
      number(static_cast<int>(r.kind)), put(name(r.dtype)), number(r.input);
      for (const loops::Store &s : r.results) store(s);
    }
    number(n.lhs), number(n.rhs), number(static_cast<int>(n.scan));
    if (!n.attention) return;
    const loops::AttentionSpec &a = *n.attention;
    for (const loops::AttentionSpec::Operand *o : {&a.q, &a.k, &a.v, &a.mask, &a.out})
      buffer(o->buffer), put(o->index.valid() ? o->index.str() : "-");
    put(a.keyLength.str()), put(a.headSize.str()), number(a.causal);
  }

  const plan::Plan &plan_;
  std::map<int32_t, size_t> numbers_;
};

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
  return fmt::format("{}-{:016x}", kindName(kernel.kind), hash(Canonical(plan, kernel).text));
}

std::string launchKey(std::string_view text) {
  return fmt::format("{}-{:016x}", kindName(loops::Node::Kind::UserKernel), hash(text));
}

Result<TuneResults> TuneResults::parse(std::string_view text, const std::string &name) {
  TuneResults out;
  std::vector<std::string_view> lines = split(text, '\n');
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
