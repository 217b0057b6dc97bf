#include "ir/loops/read_program.h"

#include <utility>

#include "ir/loops/text.h"

namespace neso::loops {
namespace {

ValueIdx valueOf(Line &line) {
  line.expect("%");
  return static_cast<ValueIdx>(line.integer());
}

/// Null where the node's kind has none.
std::vector<Store> *storesOf(Node &n) {
  return std::visit(
      [](auto &s) -> std::vector<Store> * {
        if constexpr (requires { s.stores; }) return &s.stores;
        return nullptr;
      },
      n.spec);
}
std::vector<Reduction> *reductionsOf(Node &n) {
  if (auto *s = n.as<ReductionSpec>()) return &s->reductions;
  if (auto *s = n.as<SegmentsSpec>()) return &s->reductions;
  return nullptr;
}

/// The bytes themselves.
void bytesOf(Line &line, Constant &c) {
  auto bytes = std::make_shared<std::vector<uint8_t>>(line.hex());
  if (static_cast<int64_t>(bytes->size()) != c.bytes) return line.error("the bytes are not as many as said");
  c.data = bytes->data(), c.owner = std::move(bytes);
}

} // namespace

void ProgramReader::read(Line &line) {
  if (!program.nodes.empty() && line.indent() >= 4) return readOfNode(line);
  if (line.eat("size")) return size(line);
  if (line.eat("guard")) return program.guards.push_back(line.expr({}));
  if (line.eat("assert")) {
    Assertion a{line.expr({" says "}), ""};
    line.expect("says"), a.message = line.quotedText();
    return program.assertions.push_back(std::move(a));
  }
  if (block(line)) return;
  if (line.eat("buffer")) return buffer(line);
  if (line.eat("in")) return input(line);
  if (line.eat("weight")) return weight(line);
  if (line.eat("node")) return node(line);
  if (line.eat("output")) return output(line);
  if (line.eat("arguments")) return void(program.inSpec = std::string(line.remainder()));
  if (line.eat("results")) return void(program.outSpec = std::string(line.remainder()));
  line.error("a line of a program is expected");
}

void ProgramReader::readOfNode(Line &line) {
  if (line.next("%")) return op(line);
  Node &n = program.nodes.back();
  // Parameters of a user's kernel have names of their own.
  if (auto *user = n.as<UserKernelSpec>(); user && line.indent() > 4) return argument(line, *user);
  if (std::vector<Store> *stores = storesOf(n))
    for (std::string_view mode : text::kStoreModes)
      if (line.next(mode)) return stores->push_back(store(line));
  ofNode(line, n);
}

void ProgramReader::size(Line &line) {
  const Symbol symbol = line.symbol();
  line.expect("in");
  const Interval range = line.interval();
  if (!line.failed()) program.facts.setRange(symbol, range);
}

void ProgramReader::buffer(Line &line) {
  Buffer b;
  b.id = BufferId(static_cast<int64_t>(program.buffers.size()));
  const std::string printed = line.token();
  const std::string number = fmt::format("#{}", b.id.value);
  b.name = printed.ends_with(number) ? printed.substr(0, printed.size() - number.size()) : printed;
  if (!buffers_.emplace(printed, b.id).second) line.error("another buffer has this name");
  line.expect(":");
  b.dtype = line.dtype();
  line.expect("["), b.elements = line.expr({"]"}), line.expect("]");
  b.kind = line.oneOf<Buffer::Kind>(text::kBuffers);
  if (line.nextIsNumber()) b.index = line.integer();
  b.mutated = line.eat("mutated");
  program.buffers.push_back(std::move(b));
}
BufferId ProgramReader::named(Line &line, std::string_view name) {
  auto it = buffers_.find(std::string(name));
  if (it == buffers_.end()) return line.error(fmt::format("there is no buffer '{}',", name)), BufferId();
  return it->second;
}
/// BUFFER[index]
BufferId ProgramReader::place(Line &line, Expr &index) {
  const BufferId b = named(line, line.until("["));
  line.expect("["), index = line.expr({"]"}), line.expect("]");
  return b;
}

void ProgramReader::input(Line &line) {
  ProgramInput in;
  if (line.integer() != static_cast<int64_t>(program.inputs.size())) line.error("inputs are not in order");
  in.kind = line.oneOf<ProgramInput::Kind>(text::kInputs);
  if (std::string name = line.token(); name != "-") in.name = std::move(name);
  if (in.kind == ProgramInput::Kind::Tensor) {
    line.expect(":"), in.dtype = line.dtype(), in.sizes = line.list();
    line.expect("strides"), in.strides = line.list();
  }
  if (in.kind == ProgramInput::Kind::Float) line.expect("of"), in.floatValue = line.real();
  if (line.eat("=")) in.scalar = line.expr({" -> "});
  if (line.eat("->")) in.buffer = named(line, line.until(" "));
  program.inputs.push_back(std::move(in));
}

ElementOrder ProgramReader::order(Line &line) {
  ElementOrder out;
  out.elements = line.integer();
  while (line.eat("piece")) {
    ElementOrder::Piece p;
    line.expect("sizes"), p.sizes = line.numbers();
    line.expect("to"), p.to = line.integer(), line.expect("by"), p.toStrides = line.numbers();
    line.expect("from"), p.from = line.integer(), line.expect("by"), p.fromStrides = line.numbers();
    out.pieces.push_back(std::move(p));
  }
  return out;
}

void ProgramReader::weight(Line &line) {
  Constant c;
  if (line.integer() != static_cast<int64_t>(program.constants.size())) line.error("weights are not in order");
  if (std::string fqn = line.token(); fqn != "-") c.fqn = std::move(fqn);
  line.expect(":"), c.dtype = line.dtype(), c.bytes = line.integer(), line.expect("bytes");
  if (line.eat("at")) c.fileOffset = line.integer();
  while (line.eat("tensor")) {
    Constant::ModelTensor t;
    if (std::string fqn = line.token(); fqn != "-") t.fqn = std::move(fqn);
    line.expect("sizes"), t.sizes = line.numbers();
    line.expect("strides"), t.strides = line.numbers();
    line.expect("offset"), t.offset = line.integer();
    c.tensors.push_back(std::move(t));
  }
  c.isBuffer = line.eat("buffer");
  if (line.eat("made")) line.expect("of"), c.sourceElements = line.integer();
  while (line.eat("order")) c.orders.push_back(order(line));
  while (line.eat("folded")) {
    const std::string fqn = line.token();
    c.foldedFrom.push_back(fqn == "-" ? "" : fqn);
  }
  if (line.eat("=")) bytesOf(line, c);
  program.constants.push_back(std::move(c));
}

void ProgramReader::output(Line &line) {
  ProgramOutput o;
  if (inRegion()) line.error("a region has no end,");
  if (line.integer() != static_cast<int64_t>(program.outputs.size())) line.error("outputs are not in order");
  if (line.eat("none")) {
    o.kind = ProgramOutput::Kind::None;
  } else if (line.eat("text")) {
    o.kind = ProgramOutput::Kind::Text, o.text = line.quotedText();
  } else if (line.eat("scalar")) {
    o.kind = ProgramOutput::Kind::Int, o.scalar = line.expr({" -> ", " as "});
  } else if (line.eat("truth")) {
    o.kind = ProgramOutput::Kind::Bool, o.scalar = line.expr({" -> ", " as "});
  } else if (line.eat("float")) {
    o.kind = ProgramOutput::Kind::Float;
    const std::string word = line.token();
    if (auto it = buffers_.find(word); it != buffers_.end())
      o.buffer = it->second;
    else
      o.floatValue = Line(word).real();
  } else {
    o.buffer = named(line, line.until(" "));
    line.expect(":"), o.dtype = line.dtype(), o.sizes = line.list();
    line.expect("strides"), o.strides = line.list();
    line.expect("offset"), o.offset = line.expr({" -> ", " as "});
  }
  if (line.eat("->")) {
    o.writeBackTo = named(line, line.until(" "));
    if (o.writeBackTo == o.buffer) o.writeBackStrides = o.strides, o.writeBackOffset = o.offset;
  }
  if (line.eat("strides")) {
    o.writeBackStrides = line.list();
    line.expect("offset"), o.writeBackOffset = line.expr({" as "});
  }
  if (line.eat("as")) o.mutationTarget = std::string(line.remainder());
  program.outputs.push_back(std::move(o));
}

void ProgramReader::node(Line &line) {
  Node n;
  if (!line.eatLetter("n")) line.error("the node's number is expected");
  n.id = NodeId(line.integer());
  n.spec = blankSpec(line.oneOf<Node::Kind>(text::kNodes));
  line.expect("ranges"), n.ranges = line.list();
  if (line.eat("over")) n.reduceRanges = line.list();
  line.expect("#"), n.name = std::string(line.remainder());
  program.nodes.push_back(std::move(n));
  body_ = nullptr;
  // The first: what follows a sum is said to begin.
  forEachBody(program.nodes.back(), [&](Body &b) { body_ = body_ ? body_ : &b; });
}

void ProgramReader::op(Line &line) {
  if (!body_) return line.error("an operator belongs to a node,");
  if (valueOf(line) != static_cast<ValueIdx>(body_->ops.size())) line.error("operators are not in order");
  line.expect("=");
  const std::string_view word = line.until(" ");
  std::optional<OpKind> kind = opNamed(word);
  if (!kind) return line.error(fmt::format("there is no operator '{}',", word));
  Op op{*kind};
  std::string literal;
  switch (op.kind) {
  case OpKind::Constant: literal = line.token(); break;
  case OpKind::Index: op.index = line.expr({" : "}); break;
  case OpKind::Load: op.buffer = place(line, op.index); break;
  case OpKind::Indirect:
    op.symbol = line.symbol();
    line.expect("<"), op.bound = line.expr({",", " : ", " wrap", " check"});
    op.wrap = line.eat("wrap"), op.check = line.eat("check");
    break;
  default: break;
  }
  for (ValueIdx *v : {&op.a, &op.b, &op.c}) {
    line.eat(",");
    if (line.next("%")) *v = valueOf(line);
  }
  line.expect(":"), op.dtype = line.dtype();
  if (op.kind == OpKind::Constant) {
    Line number(literal);
    if (isFloat(op.dtype))
      op.imm = number.real();
    else
      op.immInt = number.integer();
    if (number.failed()) line.error(number.why);
  }
  body_->ops.push_back(std::move(op));
}

Store ProgramReader::store(Line &line) {
  Store s;
  s.mode = line.oneOf<StoreMode>(text::kStoreModes);
  s.buffer = place(line, s.index);
  if (line.eat("if")) s.mask = valueOf(line);
  line.expect("=");
  if (line.eat("result"))
    s.value = static_cast<ValueIdx>(line.integer());
  else
    s.value = valueOf(line);
  return s;
}

bool ProgramReader::ofContraction(Line &line, ContractionSpec &s) {
  if (line.eat("contract")) {
    s.lhs = valueOf(line), line.expect(","), s.rhs = valueOf(line);
    line.expect(":"), s.accType = line.dtype();
    return true;
  }
  if (!line.eat("epilogue")) return false;
  line.expect("of"), line.expect("%0"), line.expect(":");
  body_ = &s.epilogue;
  return true;
}

bool ProgramReader::ofScan(Line &line, ScanSpec &s) {
  if (line.eat("scan")) {
    s.kind = line.oneOf<ScanKind>(text::kScans);
    s.inputs.push_back(valueOf(line));
    s.reverse = line.eat("reverse");
    return true;
  }
  if (!line.eat("tiles")) return false;
  LookBack &look = s.lookBack.emplace();
  line.expect("of"), look.tile = line.integer();
  line.expect("look"), line.expect("back"), line.expect("in"), look.words = named(line, line.until(" "));
  return true;
}

bool ProgramReader::ofSort(Line &line, SortSpec &s) {
  if (!line.eat("sort")) return false;
  s.key = valueOf(line);
  s.descending = line.eat("descending");
  if (line.eat("positions")) s.position = valueOf(line);
  if (line.eat("digits")) {
    SortScratch &scratch = s.scratch.emplace();
    scratch.words = named(line, line.until(" "));
    if (!line.eat("-")) scratch.positions = named(line, line.until(" "));
    if (!line.eat("-")) scratch.counts = named(line, line.until(" "));
  }
  if (line.eat("place")) s.place = valueOf(line);
  if (line.eat("first")) s.take = line.expr({" merges "});
  if (line.eat("merges")) line.expect("runs"), line.expect("of"), s.run = line.expr({});
  return true;
}

Reduction ProgramReader::reduction(Line &line) {
  Reduction r;
  r.kind = line.oneOf<ReduceKind>(text::kReductions);
  r.input = valueOf(line);
  line.expect(":"), r.dtype = line.dtype();
  if (line.eat("->")) {
    r.results.push_back(store(line));
    while (line.eat(",")) r.results.push_back(store(line));
  }
  return r;
}

bool ProgramReader::ofAttention(Line &line, AttentionSpec &s) {
  if (operand(line, s)) return true;
  if (!line.eat("attention")) return false;
  line.expect("keys"), s.keyLength = line.expr({" head "});
  line.expect("head"), s.headSize = line.expr({" scale "});
  line.expect("scale"), s.scale = line.real();
  if (line.eat("below")) s.keys = line.expr({";"}), line.expect(";");
  s.causal = line.eat("causal");
  if (line.eat("masked")) s.masked = line.real();
  if (line.eat("empty")) line.expect("nan"), s.emptyIsNan = true;
  return true;
}

bool ProgramReader::ofUserKernel(Line &line, UserKernelSpec &s) {
  if (!line.eat("launch")) return false;
  s.function = line.token();
  line.expect("over");
  for (size_t d = 0; d < 3; ++d) {
    if (d) line.expect(",");
    s.grid[d] = line.expr({",", " function ", " choice "});
  }
  if (line.eat("function")) s.kernel = static_cast<int>(line.integer());
  if (line.eat("choice")) s.choice = static_cast<int>(line.integer());
  return true;
}

ExternSpec::View ProgramReader::view(Line &line) {
  ExternSpec::View v;
  if (line.eat("none")) return v;
  v.buffer = place(line, v.offset);
  v.dtype = line.dtype(), v.sizes = line.list();
  line.expect("strides"), v.strides = line.list();
  v.changed = line.eat("changed");
  return v;
}

ExternSpec ProgramReader::externCall(Line &line) {
  ExternSpec s;
  line.expect("call"), s.op = line.token(), s.number = line.integer();
  while (line.eatLetter("(")) {
    using Kind = ExternSpec::Argument::Kind;
    ExternSpec::Argument a;
    a.kind = line.oneOf<Kind>(text::kExternKinds);
    a.name = line.token();
    while (!line.failed() && !line.atEnd() && !line.next(")"))
      switch (a.kind) {
      case Kind::None: line.error("nothing is expected of none,"); break;
      case Kind::Tensor:
      case Kind::Tensors: a.tensors.push_back(view(line)); break;
      case Kind::Int:
      case Kind::Bool:
      case Kind::DType:
      case Kind::Layout:
      case Kind::MemoryFormat:
      case Kind::Ints:
      case Kind::Bools: a.ints = line.list(); break;
      case Kind::Float:
      case Kind::Floats: a.floats.push_back(line.real()); break;
      case Kind::Text:
      case Kind::Device:
      case Kind::Object:
      case Kind::Texts: a.texts.push_back(line.quotedText()); break;
      }
    line.expect(")");
    s.arguments.push_back(std::move(a));
  }
  while (line.eat("returns")) {
    const auto kind = line.oneOf<ExternSpec::Result::Kind>(text::kExternResults);
    s.results.push_back({kind, line.integer()});
  }
  while (line.eat("asked")) {
    const int64_t result = line.integer();
    s.asked.push_back({result, line.integer()});
  }
  while (line.eat("out")) s.outputs.push_back(view(line));
  return s;
}

void ProgramReader::ofNode(Line &line, Node &n) {
  if (auto *s = n.as<ContractionSpec>(); s && ofContraction(line, *s)) return;
  if (auto *s = n.as<ScanSpec>(); s && ofScan(line, *s)) return;
  if (auto *s = n.as<SortSpec>(); s && ofSort(line, *s)) return;
  if (auto *s = n.as<AttentionSpec>(); s && ofAttention(line, *s)) return;
  if (auto *s = n.as<UserKernelSpec>(); s && ofUserKernel(line, *s)) return;
  if (auto *s = n.as<ExternSpec>()) return void(*s = externCall(line));
  if (auto *s = n.as<SegmentsSpec>(); s && line.eat("segments")) {
    line.expect("["), s->first = valueOf(line), line.expect(","), s->last = valueOf(line), line.expect(")");
    return;
  }
  if (std::vector<Reduction> *to = reductionsOf(n); to && line.eat("reduce")) return to->push_back(reduction(line));
  if (auto *s = n.as<RegionSpec>(); s && (line.next("if") || line.next("while"))) {
    s->kind = line.oneOf<RegionSpec::Kind>(text::kRegions);
    s->condition = line.expr({});
    return;
  }
  if (auto *s = n.as<ReadSpec>()) {
    s->symbol = line.symbol();
    line.expect("="), line.expect("scalar"), s->buffer = named(line, line.until(" "));
    s->turn = turnOf(line);
    return;
  }
  line.error("a line of a node is expected");
}

std::optional<int64_t> ProgramReader::turnOf(Line &line) {
  if (!line.eat("turn")) return std::nullopt;
  line.expect("from");
  return line.integer();
}

bool ProgramReader::block(Line &line) {
  for (size_t b = 0; b < text::kBlocks.size(); ++b) {
    if (!line.eat(text::kBlocks[b])) continue;
    body_ = nullptr;
    if (b % 2 == 0) {
      const RegionSpec *begun = program.nodes.empty() ? nullptr : program.nodes.back().as<RegionSpec>();
      if (!begun || !begun->condition.valid()) return line.error("a block belongs to a region,"), true;
      Open open;
      open.node = std::move(program.nodes.back());
      program.nodes.pop_back();
      open.before = std::exchange(program.nodes, {});
      open_.push_back(std::move(open));
    } else {
      if (open_.empty() || open_.back().block != 0) return line.error("a block belongs to a region,"), true;
      open_.back().node.get<RegionSpec>().blocks[0] = std::exchange(program.nodes, {});
      open_.back().block = 1;
    }
    const RegionSpec &spec = open_.back().node.get<RegionSpec>();
    if ((spec.kind == RegionSpec::Kind::While) != (b >= 2)) line.error("a block of the other kind of region,");
    return true;
  }
  if (!line.eat("end")) return false;
  if (open_.empty() || open_.back().block != 1) return line.error("no region is open,"), true;
  Open open = std::move(open_.back());
  open_.pop_back();
  open.node.get<RegionSpec>().blocks[1] = std::exchange(program.nodes, std::move(open.before));
  program.nodes.push_back(std::move(open.node));
  body_ = nullptr;
  return true;
}

/// A line such as "q = BUFFER[index] : f32".
bool ProgramReader::operand(Line &line, AttentionSpec &s) {
  const std::pair<const char *, AttentionSpec::Operand *> roles[] = {
      {"q", &s.q}, {"k", &s.k}, {"v", &s.v}, {"mask", &s.mask}, {"out", &s.out}, {"log", &s.logSum}};
  for (auto [role, to] : roles) {
    if (!line.eat(role)) continue;
    if (to == &s.logSum) line.expect("sum");
    line.expect("="), to->buffer = place(line, to->index);
    line.expect(":"), to->dtype = line.dtype();
    return true;
  }
  return false;
}

void ProgramReader::argument(Line &line, UserKernelSpec &s) {
  UserKernelSpec::Argument a;
  a.name = line.token();
  line.expect("=");
  Line ahead = line;
  if (const std::string_view word = ahead.until("[ "); ahead.next("[") && buffers_.contains(std::string(word))) {
    a.kind = UserKernelSpec::Argument::Memory;
    a.buffer = place(line, a.offset);
    a.read = line.eat("read"), a.written = line.eat("written"), a.inside = line.eat("inside");
    if (line.eat("loads")) a.follows = true, a.loads = line.real(), line.expect("stores"), a.stores = line.real();
  } else {
    ahead = line;
    ahead.until(":");
    ahead.expect(":");
    if (ahead.next("f"))
      a.kind = UserKernelSpec::Argument::Real, a.real = line.real();
    else
      a.integer = line.expr({" : "});
    line.expect(":");
    if (!line.eatLetter("if")) line.error("the parameter's type is expected");
    a.bits = static_cast<int>(line.integer());
  }
  s.arguments.push_back(std::move(a));
}

std::vector<Node> ProgramReader::takeNodes() {
  body_ = nullptr;
  return std::exchange(program.nodes, {});
}

} // namespace neso::loops
