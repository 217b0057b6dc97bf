// Text of programs and nodes, for people, tests and --emit=loops.
#include <cmath>

#include "ir/loops/text.h"
#include "ir/shape/line.h"

namespace neso::loops {

BufferNames bufferNames(const Program &p) {
  std::unordered_map<std::string_view, int> times;
  for (const Buffer &b : p.buffers) ++times[b.name];
  return [&p, times = std::move(times)](BufferId id) {
    if (!id.valid() || id.index() >= p.buffers.size()) return fmt::format("<buffer {}>", id.value);
    const std::string &name = p.buffer(id).name;
    return times.at(name) > 1 ? fmt::format("{}#{}", name, id.value) : name;
  };
}

namespace {

std::string printOp(const BufferNames &names, const Op &op, size_t number) {
  std::string out = fmt::format("    %{} = {}", number, name(op.kind));
  switch (op.kind) {
  case OpKind::Constant: out += isFloat(op.dtype) ? fmt::format(" {}", op.imm) : fmt::format(" {}", op.immInt); break;
  case OpKind::Index: out += " " + op.index.str(); break;
  case OpKind::Load: out += fmt::format(" {}[{}]", names(op.buffer), op.index.str()); break;
  case OpKind::Indirect:
    out +=
        fmt::format(" {} < {}{}{}", op.symbol.str(), op.bound.str(), op.wrap ? " wrap" : "", op.check ? " check" : "");
    break;
  default: break;
  }
  bool first = op.kind != OpKind::Load && op.kind != OpKind::Indirect;
  for (ValueIdx v : {op.a, op.b, op.c})
    if (v >= 0) {
      out += fmt::format("{} %{}", first ? "" : ",", v);
      first = false;
    } else if (first) {
      break;
    }
  return out + fmt::format(" : {}\n", name(op.dtype));
}

std::string printBody(const BufferNames &names, const Body &body) {
  std::string out;
  for (size_t k = 0; k < body.ops.size(); ++k) out += printOp(names, body.ops[k], k);
  return out;
}

std::string_view modeName(StoreMode mode) { return text::kStoreModes[static_cast<size_t>(mode)]; }
std::string printStore(const BufferNames &names, const Store &s) {
  return fmt::format("{} {}[{}]", modeName(s.mode), names(s.buffer), s.index.str()) +
         (s.mask >= 0 ? fmt::format(" if %{}", s.mask) : "");
}

std::string_view reduceKindName(ReduceKind k) { return text::kReductions[static_cast<size_t>(k)]; }
std::string_view scanName(ScanKind k) { return text::kScans[static_cast<size_t>(k)]; }
std::string printUserKernel(const BufferNames &names, const UserKernelSpec &u) {
  std::string out =
      fmt::format("    launch {} over {}, {}, {}{}{}\n", u.function, u.grid[0].str(), u.grid[1].str(), u.grid[2].str(),
                  u.kernel >= 0 ? fmt::format(" function {}", u.kernel) : "",
                  u.choice >= 0 ? fmt::format(" choice {}", u.choice) : "");
  for (const UserKernelSpec::Argument &a : u.arguments) {
    if (a.kind == UserKernelSpec::Argument::Memory)
      out += fmt::format("      {} = {}[{}]{}{}", a.name, names(a.buffer), a.offset.str(),
                         a.read ? " read" : "", a.written ? " written" : "") +
             (a.inside ? " inside" : "") +
             (a.follows ? fmt::format(" loads {} stores {}", a.loads, a.stores) : "") + "\n";
    else if (a.kind == UserKernelSpec::Argument::Integer)
      out += fmt::format("      {} = {} : i{}\n", a.name, a.integer.str(), a.bits);
    else
      out += fmt::format("      {} = {} : f{}\n", a.name, a.real, a.bits);
  }
  return out;
}

std::string printAttention(const BufferNames &names, const AttentionSpec &a) {
  auto operand = [&](const char *role, const AttentionSpec::Operand &o) {
    return o.buffer.valid()
               ? fmt::format("    {} = {}[{}] : {}\n", role, names(o.buffer), o.index.str(), name(o.dtype))
               : std::string();
  };
  return fmt::format("    attention keys {} head {} scale {}{}{}{}{}\n", a.keyLength.str(), a.headSize.str(), a.scale,
                     a.keys.valid() ? " below " + a.keys.str() + ";" : "", a.causal ? " causal" : "", std::isinf(a.masked) ? "" : fmt::format(" masked {}", a.masked),
                     a.emptyIsNan ? " empty nan" : "") +
         operand("q", a.q) + operand("k", a.k) + operand("v", a.v) + operand("mask", a.mask) + operand("out", a.out) + operand("log sum", a.logSum);
}

std::string spaceOf(const Node &n) {
  return fmt::format("{} ranges {}{}", name(n.kind()), listText(n.ranges),
                     n.reduceRanges.empty() ? "" : " over " + listText(n.reduceRanges));
}

/// The blocks between lines that say where they begin; each node as if it stood alone.
std::string printRegion(const BufferNames &names, const RegionSpec &r) {
  const bool branch = r.kind == RegionSpec::Kind::If;
  std::string out = fmt::format("    {} {}\n", text::kRegions[static_cast<size_t>(r.kind)], r.condition.str());
  for (size_t b = 0; b < r.blocks.size(); ++b) {
    out += fmt::format("  {}\n", text::kBlocks[b + (branch ? 0 : 2)]);
    for (const Node &n : r.blocks[b]) out += print(n, names);
  }
  return out + "  end\n";
}

std::string printStores(const BufferNames &names, const std::vector<Store> &stores, const char *value) {
  std::string out;
  for (const Store &s : stores) out += fmt::format("    {} = {}{}\n", printStore(names, s), value, s.value);
  return out;
}
std::string printReductions(const BufferNames &names, const std::vector<Reduction> &reductions) {
  std::string out;
  for (const Reduction &r : reductions) {
    out += fmt::format("    reduce {} %{} : {}", reduceKindName(r.kind), r.input, name(r.dtype));
    for (size_t k = 0; k < r.results.size(); ++k)
      out += fmt::format("{} {} = result {}", k ? "," : " ->", printStore(names, r.results[k]), r.results[k].value);
    out += "\n";
  }
  return out;
}

/// What each kind of node says behind its first line.
struct Contents {
  const BufferNames &names;

  std::string operator()(const PointwiseSpec &s) const {
    return printBody(names, s.body) + printStores(names, s.stores, "%");
  }
  std::string operator()(const ReductionSpec &s) const {
    return printBody(names, s.body) + printReductions(names, s.reductions);
  }
  std::string operator()(const SegmentsSpec &s) const {
    return printBody(names, s.body) + fmt::format("    segments [%{}, %{})\n", s.first, s.last) +
           printReductions(names, s.reductions);
  }
  std::string operator()(const ContractionSpec &s) const {
    std::string out =
        printBody(names, s.body) + fmt::format("    contract %{}, %{} : {}\n", s.lhs, s.rhs, name(s.accType));
    if (!s.epilogue.ops.empty()) out += "    epilogue of %0:\n" + printBody(names, s.epilogue);
    return out + printStores(names, s.stores, "%");
  }
  std::string operator()(const ScanSpec &s) const {
    std::string out = printBody(names, s.body);
    for (ValueIdx v : s.inputs)
      out += fmt::format("    scan {} %{}{}\n", scanName(s.kind), v, s.reverse ? " reverse" : "");
    if (s.lookBack)
      out += fmt::format("    tiles of {} look back in {}\n", s.lookBack->tile, names(s.lookBack->words));
    return out + printStores(names, s.stores, "result ");
  }
  std::string operator()(const SortSpec &s) const {
    std::string out = printBody(names, s.body) + fmt::format("    sort %{}{}", s.key, s.descending ? " descending" : "");
    if (s.position >= 0) out += fmt::format(" positions %{}", s.position);
    if (s.scratch)
      out += fmt::format(" digits {} {} {}", names(s.scratch->words),
                         s.scratch->positions.valid() ? names(s.scratch->positions) : "-",
                         s.scratch->counts.valid() ? names(s.scratch->counts) : "-");
    if (s.place >= 0) out += fmt::format(" place %{}", s.place);
    if (s.take.valid()) out += fmt::format(" first {}", s.take.str());
    out += s.run.valid() ? fmt::format(" merges runs of {}\n", s.run.str()) : "\n";
    return out + printStores(names, s.stores, "result ");
  }
  std::string operator()(const AttentionSpec &s) const { return printAttention(names, s); }
  std::string operator()(const UserKernelSpec &s) const { return printUserKernel(names, s); }
  std::string operator()(const ReadSpec &s) const {
    return fmt::format("    {} = scalar {}{}\n", s.symbol.str(), names(s.buffer), turnText(s.turn));
  }
  std::string operator()(const RegionSpec &s) const { return printRegion(names, s); }
  std::string operator()(const ExternSpec &s) const { return "    " + externText(s, names) + "\n"; }
};

std::string contentsOf(const Node &n, const BufferNames &names) { return std::visit(Contents{names}, n.spec); }

} // namespace

std::string turnText(const std::optional<int64_t> &turn) { return turn ? fmt::format(" turn from {}", *turn) : ""; }

std::string externText(const ExternSpec &s, const BufferNames &names) {
  auto view = [&](const ExternSpec::View &v) {
    if (!v.buffer.valid()) return std::string(" none");
    return fmt::format(" {}[{}] {} {} strides {}{}", names(v.buffer), v.offset.str(), name(v.dtype), listText(v.sizes), listText(v.strides), v.changed ? " changed" : "");
  };
  std::string out = fmt::format("call {} {}", s.op, s.number);
  for (const ExternSpec::Argument &a : s.arguments) {
    out += fmt::format(" ({} {}", text::kExternKinds[static_cast<size_t>(a.kind)], a.name);
    for (const ExternSpec::View &v : a.tensors) out += view(v);
    if (!a.ints.empty()) out += " " + listText(a.ints);
    for (double d : a.floats) out += fmt::format(" {}", d);
    for (const std::string &t : a.texts) out += " " + quoted(t);
    out += " )";
  }
  for (const ExternSpec::Result &r : s.results) out += fmt::format(" returns {} {}", text::kExternResults[static_cast<size_t>(r.kind)], r.count);
  for (const ExternSpec::Size &a : s.asked) out += fmt::format(" asked {} {}", a.result, a.dim);
  for (const ExternSpec::View &v : s.outputs) out += " out" + view(v);
  return out;
}

std::string describe(const Node &n, const BufferNames &names) { return spaceOf(n) + "\n" + contentsOf(n, names); }

std::string print(const Node &n, const BufferNames &names) {
  return fmt::format("  node n{} {}  # {}\n", n.id.value, spaceOf(n), n.name) + contentsOf(n, names);
}
std::string print(const Program &p, const Node &n) { return print(n, bufferNames(p)); }

static std::string printInput(const ProgramInput &in, size_t number, const BufferNames &names) {
  std::string out = fmt::format("  in {} {} {}", number, text::kInputs[static_cast<size_t>(in.kind)],
                                in.name.empty() ? "-" : in.name);
  if (in.kind == ProgramInput::Kind::Tensor)
    out += fmt::format(" : {}{} strides {}", name(in.dtype), listText(in.sizes), listText(in.strides));
  if (in.kind == ProgramInput::Kind::Float) out += fmt::format(" of {}", in.floatValue);
  if (in.scalar.valid()) out += " = " + in.scalar.str();
  return out + (in.buffer.valid() ? " -> " + names(in.buffer) : "") + "\n";
}

constexpr int64_t kSaidBytes = 1024;

static std::string printConstant(const Constant &c, size_t number) {
  std::string out = fmt::format("  weight {} {} : {} {} bytes", number, c.fqn.empty() ? "-" : c.fqn, name(c.dtype), c.bytes);
  if (c.fileOffset >= 0) out += fmt::format(" at {}", c.fileOffset);
  for (const Constant::ModelTensor &t : c.tensors)
    out += fmt::format(" tensor {} sizes [{}] strides [{}] offset {}", t.fqn.empty() ? "-" : t.fqn,
                       fmt::join(t.sizes, ", "), fmt::join(t.strides, ", "), t.offset);
  if (c.isBuffer) out += " buffer";
  if (!c.orders.empty()) out += fmt::format(" made of {}", c.sourceElements);
  for (const ElementOrder &order : c.orders) {
    out += fmt::format(" order {}", order.elements);
    for (const ElementOrder::Piece &p : order.pieces)
      out += fmt::format(" piece sizes [{}] to {} by [{}] from {} by [{}]", fmt::join(p.sizes, ", "), p.to,
                         fmt::join(p.toStrides, ", "), p.from, fmt::join(p.fromStrides, ", "));
  }
  for (const std::string &fqn : c.foldedFrom) out += " folded " + (fqn.empty() ? std::string("-") : fqn);
  // Few bytes of the compiler's own are said; more of them, and those of the model, are not.
  if (c.data && c.fileOffset < 0 && c.bytes > 0 && c.bytes <= kSaidBytes)
    out += " = " + hexText(c.data, c.bytes);
  return out + "\n";
}

static std::string printOutput(const ProgramOutput &o, size_t number, const BufferNames &names) {
  std::string out = fmt::format("  output {}", number);
  switch (o.kind) {
  case ProgramOutput::Kind::Tensor:
    out += fmt::format(" {} : {}{} strides {} offset {}", names(o.buffer), name(o.dtype), listText(o.sizes),
                       listText(o.strides), o.offset.str());
    break;
  case ProgramOutput::Kind::Int: out += " scalar " + o.scalar.str(); break;
  case ProgramOutput::Kind::Bool: out += " truth " + o.scalar.str(); break;
  case ProgramOutput::Kind::Float:
    out += o.buffer.valid() ? " float " + names(o.buffer) : fmt::format(" float {}", o.floatValue);
    break;
  case ProgramOutput::Kind::Text: out += " text " + quoted(o.text); break;
  case ProgramOutput::Kind::None: out += " none"; break;
  }
  if (o.writeBackTo.valid()) {
    out += " -> " + names(o.writeBackTo);
    // Where it lies there already, unless they differ, its own.
    if (o.writeBackTo != o.buffer || o.writeBackStrides != o.strides || o.writeBackOffset != o.offset)
      out += fmt::format(" strides {} offset {}", listText(o.writeBackStrides), o.writeBackOffset.str());
  }
  if (!o.mutationTarget.empty()) out += " as " + o.mutationTarget;
  return out + "\n";
}

std::string printSizes(const Program &p) {
  std::string out;
  for (const auto &[symbol, range] : p.facts.ranges())
    out += fmt::format("  size {} in {}\n", symbol.str(), intervalText(range));
  for (Expr g : p.guards) out += fmt::format("  guard {}\n", g.str());
  for (const Assertion &a : p.assertions) out += fmt::format("  assert {} says {}\n", a.condition.str(), quoted(a.message));
  return out;
}

std::string printBuffer(const Buffer &b, const BufferNames &names) {
  return fmt::format("  buffer {} : {}[{}] {}{}{}", names(b.id), name(b.dtype), b.elements.str(),
                     text::kBuffers[static_cast<size_t>(b.kind)], b.index >= 0 ? fmt::format(" {}", b.index) : "",
                     b.mutated ? " mutated" : "");
}

std::string printInputs(const Program &p, const BufferNames &names) {
  std::string out;
  for (size_t k = 0; k < p.inputs.size(); ++k) out += printInput(p.inputs[k], k, names);
  for (size_t k = 0; k < p.constants.size(); ++k) out += printConstant(p.constants[k], k);
  return out;
}

std::string printOutputs(const Program &p, const BufferNames &names) {
  std::string out;
  for (size_t k = 0; k < p.outputs.size(); ++k) out += printOutput(p.outputs[k], k, names);
  if (!p.inSpec.empty()) out += "  arguments " + p.inSpec + "\n";
  if (!p.outSpec.empty()) out += "  results " + p.outSpec + "\n";
  return out;
}

std::string print(const Program &p) {
  const BufferNames names = bufferNames(p);
  std::string out = fmt::format("loops {}\n", p.name) + printSizes(p);
  for (const Buffer &b : p.buffers) out += printBuffer(b, names) + "\n";
  out += printInputs(p, names);
  for (const Node &n : p.nodes) out += print(n, names);
  return out + printOutputs(p, names);
}

} // namespace neso::loops
