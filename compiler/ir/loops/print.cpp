// Text of programs and nodes, for people, tests and --emit=loops.
#include <array>
#include <cmath>

#include "ir/loops/loops.h"

namespace neso::loops {
namespace {

constexpr std::array<std::string_view, static_cast<size_t>(OpKind::RandNormal) + 1> kNames = {
    "constant", "index", "load",       "indirect",  "cast",         "bitcast",    "neg",       "abs",
    "sign",     "floor", "ceil",       "trunc",     "round",        "sqrt",       "rsqrt",     "exp",
    "exp2",     "expm1", "log",        "log2",      "log10",        "log1p",      "sin",       "cos",
    "tan",      "asin",  "acos",       "atan",      "sinh",         "cosh",       "tanh",      "asinh",
    "acosh",    "atanh", "erf",        "erfc",      "erfinv",       "lgamma",     "digamma",   "i0",
    "i1",       "i0e",   "i1e",        "ndtri",     "sigmoid",      "relu",       "not",       "bitnot",
    "isnan",    "isinf", "reciprocal", "signbit",   "bessel_j0",    "bessel_j1",  "bessel_y0", "bessel_y1",
    "k0",       "k1",    "k0e",        "k1e",       "airy_ai",      "log_ndtr",   "erfcx",     "add",
    "sub",      "mul",   "div",        "floordiv",  "mod",          "fmod",       "pow",       "min",
    "max",      "atan2", "hypot",      "copysign",  "nextafter",    "and",        "or",        "xor",
    "shl",      "shr",   "eq",         "ne",        "lt",           "le",         "gt",        "ge",
    "gcd",      "lcm",   "zeta",       "polygamma", "igamma",       "igammac",    "ldexp",     "fmax",
    "fmin",     "where", "fma",        "rand_u32",  "rand_uniform", "rand_normal"};

std::string list(const std::vector<Expr> &es) {
  std::string out = "[";
  for (size_t k = 0; k < es.size(); ++k) out += (k ? ", " : "") + es[k].str();
  return out + "]";
}
std::string bufferName(const Program &p, BufferId id) {
  return id.valid() && id.index() < p.buffers.size() ? p.buffer(id).name : fmt::format("<buffer {}>", id.value);
}

std::string printOp(const Program &p, const Op &op, size_t number) {
  std::string out = fmt::format("    %{} = {}", number, name(op.kind));
  switch (op.kind) {
  case OpKind::Constant: out += isFloat(op.dtype) ? fmt::format(" {}", op.imm) : fmt::format(" {}", op.immInt); break;
  case OpKind::Index: out += " " + op.index.str(); break;
  case OpKind::Load: out += fmt::format(" {}[{}]", bufferName(p, op.buffer), op.index.str()); break;
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

std::string printBody(const Program &p, const Body &body) {
  std::string out;
  for (size_t k = 0; k < body.ops.size(); ++k) out += printOp(p, body.ops[k], k);
  return out;
}

std::string_view modeName(StoreMode mode) {
  constexpr std::string_view names[] = {"store", "atomic_add", "atomic_mul", "atomic_min", "atomic_max"};
  return names[static_cast<size_t>(mode)];
}
std::string printStore(const Program &p, const Store &s) {
  return fmt::format("{} {}[{}]", modeName(s.mode), bufferName(p, s.buffer), s.index.str()) +
         (s.mask >= 0 ? fmt::format(" if %{}", s.mask) : "");
}

std::string_view reduceKindName(ReduceKind k) {
  constexpr std::string_view names[] = {"sum",     "prod",   "min",    "max",     "any",           "all",
                                        "xor_sum", "argmin", "argmax", "welford", "online_softmax"};
  return names[static_cast<size_t>(k)];
}
std::string_view scanName(ScanKind k) {
  constexpr std::string_view names[] = {"sum", "prod", "max", "min", "logsumexp"};
  return names[static_cast<size_t>(k)];
}
std::string_view kindName(Node::Kind k) {
  constexpr std::string_view names[] = {"pointwise", "reduction", "contraction", "scan",
                                        "sort",      "attention", "user_kernel"};
  return names[static_cast<size_t>(k)];
}

std::string printUserKernel(const Program &p, const UserKernelSpec &u) {
  std::string out =
      fmt::format("    launch {} over {}, {}, {}\n", u.function, u.grid[0].str(), u.grid[1].str(), u.grid[2].str());
  for (const UserKernelSpec::Argument &a : u.arguments) {
    if (a.kind == UserKernelSpec::Argument::Memory)
      out += fmt::format("      {} = {}[{}]{}{}", a.name, bufferName(p, a.buffer), a.offset.str(),
                         a.read ? " read" : "", a.written ? " written" : "") +
             (a.inside ? " inside" : "") + "\n";
    else if (a.kind == UserKernelSpec::Argument::Integer)
      out += fmt::format("      {} = {} : i{}\n", a.name, a.integer.str(), a.bits);
    else
      out += fmt::format("      {} = {} : f{}\n", a.name, a.real, a.bits);
  }
  return out;
}

std::string printAttention(const Program &p, const AttentionSpec &a) {
  auto operand = [&](const char *role, const AttentionSpec::Operand &o) {
    return o.buffer.valid()
               ? fmt::format("    {} = {}[{}] : {}\n", role, bufferName(p, o.buffer), o.index.str(), name(o.dtype))
               : std::string();
  };
  return fmt::format("    attention keys {} head {} scale {}{}{}{}\n", a.keyLength.str(), a.headSize.str(), a.scale,
                     a.causal ? " causal" : "", std::isinf(a.masked) ? "" : fmt::format(" masked {}", a.masked),
                     a.emptyIsNan ? " empty nan" : "") +
         operand("q", a.q) + operand("k", a.k) + operand("v", a.v) + operand("mask", a.mask) + operand("out", a.out);
}

} // namespace

std::string_view name(OpKind kind) { return kNames[static_cast<size_t>(kind)]; }

std::string print(const Program &p, const Node &n) {
  std::string out = fmt::format("  node n{} {} ranges {}", n.id.value, kindName(n.kind), list(n.ranges));
  if (!n.reduceRanges.empty()) out += " over " + list(n.reduceRanges);
  out += fmt::format("  # {}\n", n.name);
  out += printBody(p, n.body);
  switch (n.kind) {
  case Node::Kind::Contraction:
    out += fmt::format("    contract %{}, %{} : {}\n", n.lhs, n.rhs, name(n.accType));
    if (!n.epilogue.ops.empty()) out += "    epilogue of %0:\n" + printBody(p, n.epilogue);
    break;
  case Node::Kind::Scan:
    for (ValueIdx v : n.inputs)
      out += fmt::format("    scan {} %{}{}\n", scanName(n.scan), v, n.reverse ? " reverse" : "");
    if (n.lookBack)
      out += fmt::format("    tiles of {} look back in {}\n", n.lookBack->tile, p.buffer(n.lookBack->words).name);
    break;
  case Node::Kind::Sort:
    out += fmt::format("    sort %{}{}", n.inputs[0], n.descending ? " descending" : "");
    if (n.inputs.size() > 1) out += fmt::format(" positions %{}", n.inputs[1]);
    out += n.run.valid() ? fmt::format(" merges runs of {}\n", n.run.str()) : "\n";
    break;
  case Node::Kind::Attention:
    if (n.attention) out += printAttention(p, *n.attention);
    break;
  case Node::Kind::UserKernel:
    if (n.user) out += printUserKernel(p, *n.user);
    break;
  default: break;
  }
  bool numbered = n.kind == Node::Kind::Scan || n.kind == Node::Kind::Sort;
  for (const Store &s : n.stores)
    out += fmt::format("    {} = {}{}\n", printStore(p, s), numbered ? "result " : "%", s.value);
  for (const Reduction &r : n.reductions) {
    out += fmt::format("    reduce {} %{} : {}", reduceKindName(r.kind), r.input, name(r.dtype));
    for (size_t k = 0; k < r.results.size(); ++k)
      out += fmt::format("{} {} = result {}", k ? "," : " ->", printStore(p, r.results[k]), r.results[k].value);
    out += "\n";
  }
  return out;
}

std::string print(const Program &p) {
  std::string out = fmt::format("loops {}\n", p.name);
  constexpr std::string_view kinds[] = {"input", "constant", "temp", "scalar"};
  for (const auto &[symbol, range] : p.facts.ranges())
    out += fmt::format("  size {} in [{}, {}]\n", symbol.str(), range.lo,
                       range.hi == INT64_MAX ? "inf" : std::to_string(range.hi));
  for (Expr g : p.guards) out += fmt::format("  guard {}\n", g.str());
  for (const Buffer &b : p.buffers)
    out += fmt::format("  buffer {} : {}[{}] {}{}{}\n", b.name, name(b.dtype), b.elements.str(),
                       kinds[static_cast<size_t>(b.kind)], b.index >= 0 ? fmt::format(" {}", b.index) : "",
                       b.mutated ? " mutated" : "");
  for (const Node &n : p.nodes) out += print(p, n);
  for (size_t k = 0; k < p.outputs.size(); ++k) {
    const ProgramOutput &o = p.outputs[k];
    out += fmt::format("  output {}", k);
    switch (o.kind) {
    case ProgramOutput::Kind::Tensor:
      out += fmt::format(" {} : {}{} strides {} offset {}", bufferName(p, o.buffer), name(o.dtype), list(o.sizes),
                         list(o.strides), o.offset.str());
      break;
    case ProgramOutput::Kind::Int:
    case ProgramOutput::Kind::Bool: out += " scalar " + o.scalar.str(); break;
    case ProgramOutput::Kind::Float:
      out += o.buffer.valid() ? " float " + bufferName(p, o.buffer) : fmt::format(" float {}", o.floatValue);
      break;
    case ProgramOutput::Kind::None: out += " none"; break;
    }
    if (o.writeBackTo.valid()) {
      out += " -> " + bufferName(p, o.writeBackTo);
      if (o.writeBackTo != o.buffer)
        out += fmt::format(" strides {} offset {}", list(o.writeBackStrides), o.writeBackOffset.str());
    }
    out += "\n";
  }
  return out;
}

} // namespace neso::loops
