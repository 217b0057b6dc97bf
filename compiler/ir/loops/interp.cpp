// A whole program: sizes, memory, nodes, outputs.
#include "ir/loops/interp.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/diagnostics/loops.h"
#include "ir/loops/access.h"
#include "ir/loops/numeric.h"

namespace neso::loops {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 40;

std::string shapeText(std::span<const int64_t> sizes) { return fmt::format("[{}]", fmt::join(sizes, ", ")); }

Result<int64_t> evaluateOr(Expr e, const Bindings &sizes, const std::string &where) {
  std::optional<int64_t> v = evaluate(e, sizes);
  if (!v) return fail(diag::LoopsBadSize, {}, where, e.str());
  return *v;
}
Result<std::vector<int64_t>> evaluateAll(const std::vector<Expr> &es, const Bindings &sizes, const std::string &where) {
  std::vector<int64_t> out;
  for (Expr e : es) {
    Result<int64_t> v = evaluateOr(e, sizes, where);
    if (!v) return v.takeError();
    out.push_back(*v);
  }
  return out;
}

Status bindTensor(const ProgramInput &declared, const HostValue &given, Bindings &sizes) {
  if (given.dtype != declared.dtype || given.sizes.size() != declared.sizes.size())
    return fail(diag::LoopsBadInput, {}, declared.name,
                fmt::format("{}{}", name(declared.dtype), "[" + std::to_string(declared.sizes.size()) + " dims]"),
                fmt::format("{}{}", name(given.dtype), shapeText(given.sizes)));
  for (size_t d = 0; d < declared.sizes.size(); ++d)
    if (declared.sizes[d].isSymbol()) sizes.emplace(declared.sizes[d].symbol(), given.sizes[d]);
  std::vector<int64_t> strides = given.strides.empty() ? contiguousStrides(given.sizes) : given.strides;
  for (size_t d = 0; d < declared.strides.size(); ++d)
    if (declared.strides[d].isSymbol()) sizes.emplace(declared.strides[d].symbol(), strides[d]);
  return {};
}

/// Writes a Python scalar as the one element of its buffer.
void storeScalar(DType t, const HostValue &given, uint8_t *to) {
  if (isFloat(t)) {
    double v = given.kind == ProgramInput::Kind::Float ? given.floatValue : static_cast<double>(given.intValue);
    float narrow = static_cast<float>(v);
    uint32_t bits = isReducedFloat(t) ? encodeFloat(t, narrow) : 0;
    const void *from = t == DType::F64   ? static_cast<const void *>(&v)
                       : t == DType::F32 ? static_cast<const void *>(&narrow)
                                         : &bits;
    std::memcpy(to, from, static_cast<size_t>(itemSize(t)));
    return;
  }
  int64_t v = given.kind == ProgramInput::Kind::Float ? floatToInt(t, given.floatValue) : given.intValue;
  if (t == DType::Bool) v = v != 0;
  std::memcpy(to, &v, static_cast<size_t>(itemSize(t)));
}

/// Copies input k between the caller's layout and the program's.
Status moveInput(const Program &program, const Bindings &sizes, size_t k, const HostValue &given,
                 std::span<const BufferView> views, bool toCaller) {
  const ProgramInput &in = program.inputs[k];
  if (in.kind != ProgramInput::Kind::Tensor || !in.buffer.valid() || given.elements() == 0) return {};
  Result<std::vector<int64_t>> strides = evaluateAll(in.strides, sizes, in.name);
  if (!strides) return strides.takeError();
  std::vector<int64_t> mine = strides->empty() ? contiguousStrides(given.sizes) : *strides;
  std::vector<int64_t> theirs = given.strides.empty() ? contiguousStrides(given.sizes) : given.strides;
  const BufferView &view = views[in.buffer.index()];
  int64_t reach = 1;
  for (size_t d = 0; d < mine.size(); ++d) reach += (given.sizes[d] - 1) * mine[d];
  if (reach * (isComplex(in.dtype) ? 2 : 1) > view.elements)
    return fail(diag::LoopsBadSize, {}, in.name, program.buffer(in.buffer).elements.str());
  if (toCaller)
    copyStrided(given.data, theirs, view.data, mine, given.sizes, itemSize(in.dtype));
  else
    copyStrided(view.data, mine, given.data, theirs, given.sizes, itemSize(in.dtype));
  return {};
}

Result<HostValue> readOutput(const Program &program, const Bindings &sizes, const ProgramOutput &o,
                             std::span<const BufferView> views) {
  HostValue value;
  switch (o.kind) {
  case ProgramOutput::Kind::Text:
  case ProgramOutput::Kind::None: return value;
  case ProgramOutput::Kind::Int:
  case ProgramOutput::Kind::Bool: {
    value.kind = o.kind == ProgramOutput::Kind::Int ? HostValue::Kind::Int : HostValue::Kind::Bool;
    Result<int64_t> v = evaluateOr(o.scalar, sizes, "an output");
    if (!v) return v.takeError();
    value.intValue = *v;
    return value;
  }
  case ProgramOutput::Kind::Float:
    value.kind = HostValue::Kind::Float;
    value.floatValue = o.floatValue;
    if (o.buffer.valid()) {
      const uint8_t *p = views[o.buffer.index()].data;
      float narrow;
      if (program.buffer(o.buffer).dtype == DType::F64)
        std::memcpy(&value.floatValue, p, 8);
      else
        std::memcpy(&narrow, p, 4), value.floatValue = static_cast<double>(narrow);
    }
    return value;
  case ProgramOutput::Kind::Tensor: break;
  }
  Result<std::vector<int64_t>> extent = evaluateAll(o.sizes, sizes, "an output"),
                               strides = evaluateAll(o.strides, sizes, "an output");
  Result<int64_t> offset = evaluateOr(o.offset, sizes, "an output");
  if (!extent) return extent.takeError();
  if (!strides) return strides.takeError();
  if (!offset) return offset.takeError();
  value = HostValue::owned(o.dtype, *extent);
  if (value.elements() == 0) return value;
  if (strides->empty()) *strides = contiguousStrides(*extent);
  const BufferView &view = views[o.buffer.index()];
  int64_t lo = *offset, hi = *offset;
  for (size_t d = 0; d < extent->size(); ++d) ((*strides)[d] < 0 ? lo : hi) += ((*extent)[d] - 1) * (*strides)[d];
  int64_t parts = isComplex(o.dtype) ? 2 : 1;
  if (lo < 0 || (hi + 1) * parts > view.elements)
    return fail(diag::LoopsIndexOutOfRange, {}, "an output", "reads", hi, program.buffer(o.buffer).name, view.elements);
  copyStrided(value.data, contiguousStrides(*extent), view.data + *offset * itemSize(o.dtype), *strides, *extent,
              itemSize(o.dtype));
  return value;
}

} // namespace

HostValue HostValue::tensor(DType dtype, std::vector<int64_t> sizes, void *data) {
  HostValue v;
  v.kind = Kind::Tensor;
  v.dtype = dtype;
  v.sizes = std::move(sizes);
  v.data = static_cast<uint8_t *>(data);
  return v;
}
HostValue HostValue::owned(DType dtype, std::vector<int64_t> sizes) {
  HostValue v = tensor(dtype, std::move(sizes), nullptr);
  v.owner = std::make_shared<std::vector<uint8_t>>(static_cast<size_t>(v.elements() * itemSize(dtype)));
  v.data = v.owner->data();
  return v;
}
int64_t HostValue::elements() const {
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  return n;
}

std::vector<int64_t> contiguousStrides(std::span<const int64_t> sizes) {
  std::vector<int64_t> out(sizes.size());
  int64_t stride = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    out[d] = stride;
    stride *= std::max<int64_t>(sizes[d], 1);
  }
  return out;
}

void copyStrided(uint8_t *dst, std::span<const int64_t> dstStrides, const uint8_t *src,
                 std::span<const int64_t> srcStrides, std::span<const int64_t> sizes, int64_t itemBytes) {
  if (sizes.empty()) {
    std::memcpy(dst, src, static_cast<size_t>(itemBytes));
    return;
  }
  for (int64_t k = 0; k < sizes[0]; ++k)
    copyStrided(dst + k * dstStrides[0] * itemBytes, dstStrides.subspan(1), src + k * srcStrides[0] * itemBytes,
                srcStrides.subspan(1), sizes.subspan(1), itemBytes);
}

Result<Bindings> bindSizes(const Program &program, std::span<const HostValue> inputs) {
  if (inputs.size() != program.inputs.size())
    return fail(diag::LoopsInputCount, {}, program.inputs.size(), inputs.size());
  Bindings sizes;
  for (size_t k = 0; k < inputs.size(); ++k) {
    const ProgramInput &declared = program.inputs[k];
    if (declared.kind == ProgramInput::Kind::Tensor) {
      if (inputs[k].kind != ProgramInput::Kind::Tensor)
        return fail(diag::LoopsBadInput, {}, declared.name, "a tensor", "no tensor");
      if (Status s = bindTensor(declared, inputs[k], sizes); !s) return s.takeError();
    } else if (declared.kind == ProgramInput::Kind::Int && declared.scalar.valid() && declared.scalar.isSymbol()) {
      sizes.emplace(declared.scalar.symbol(), inputs[k].intValue);
    }
  }
  for (size_t k = 0; k < inputs.size(); ++k) {
    const ProgramInput &declared = program.inputs[k];
    if (declared.kind != ProgramInput::Kind::Tensor) continue;
    Result<std::vector<int64_t>> want = evaluateAll(declared.sizes, sizes, declared.name);
    if (!want) return want.takeError();
    if (*want != inputs[k].sizes)
      return fail(diag::LoopsBadInput, {}, declared.name, shapeText(*want), shapeText(inputs[k].sizes));
  }
  for (const auto &[symbol, range] : program.facts.ranges()) {
    auto it = sizes.find(symbol);
    if (it != sizes.end() && (it->second < range.lo || it->second > range.hi))
      return fail(diag::LoopsGuard, {}, fmt::format("{} <= {} <= {}", range.lo, symbol.str(), range.hi), it->second);
  }
  for (Expr guard : program.guards) {
    Result<int64_t> v = evaluateOr(guard, sizes, "a guard");
    if (!v) return v.takeError();
    if (*v != 1) return fail(diag::LoopsGuard, {}, guard.str(), *v);
  }
  return sizes;
}

int64_t readScalar(DType t, const uint8_t *from) {
  if (!isInteger(t) && t != DType::Bool) NESO_UNREACHABLE("a size of another type than an integer");
  return readInteger(t, from);
}

std::string messageOf(const Assertion &assertion, const Bindings &sizes) {
  std::string text = assertion.message;
  for (Symbol s : symbolsOf(assertion.condition)) {
    const std::string braces = "{" + s.str() + "}";
    auto value = sizes.find(s);
    for (size_t at = 0; value != sizes.end() && (at = text.find(braces, at)) != std::string::npos;)
      text.replace(at, braces.size(), std::to_string(value->second));
  }
  return text;
}

namespace {

/// The nodes of one run: sizes grow as ReadScalar nodes run, and with them the memory that depends on them.
class NodesRun {
public:
  NodesRun(const Program &program, Bindings &sizes, std::vector<std::vector<uint8_t>> &memory,
           std::vector<BufferView> &views, uint8_t unwritten)
      : program_(program), sizes_(sizes), memory_(memory), views_(views), unwritten_(unwritten) {}

  Status block(const std::vector<Node> &nodes) {
    for (const Node &node : nodes) {
      const auto *scalar = node.as<ReadSpec>();
      const auto *inside = node.as<RegionSpec>();
      Status done = scalar ? read(*scalar) : inside ? region(*inside) : run(node);
      if (!done) return done;
    }
    return {};
  }

private:
  Status run(const Node &node) {
    Result<NodeRunner> runner = NodeRunner::create(program_, node, sizes_);
    if (!runner) return runner.takeError();
    // A node sees the buffers that it says it touches, and no others.
    std::vector<BufferView> visible(views_.size());
    forEachAccess(node, [&](const Access &a) {
      if (a.buffer.valid() && a.buffer.index() < views_.size()) visible[a.buffer.index()] = views_[a.buffer.index()];
    });
    return runner->run(visible, 0, runner->outerCount());
  }

  Status read(const ReadSpec &scalar) {
    const Symbol symbol = scalar.symbol;
    sizes_[symbol] = readScalar(program_.buffer(scalar.buffer).dtype, views_[scalar.buffer.index()].data);
    for (const Assertion &a : program_.assertions)
      if (uses(a.condition, symbol))
        if (std::optional<int64_t> holds = evaluate(a.condition, sizes_); holds && *holds != 1)
          return fail(diag::LoopsAssertion, {}, messageOf(a, sizes_));
    for (const Buffer &b : program_.buffers) {
      if (!uses(b.elements, symbol) || b.kind != Buffer::Kind::Temp) continue;
      std::optional<int64_t> elements = evaluate(b.elements, sizes_);
      if (!elements) continue; // another symbol is still to come
      *elements = std::max<int64_t>(*elements, 0); // an extent by strides, of nothing
      if (*elements > kMostElements) return fail(diag::LoopsBadSize, {}, b.name, b.elements.str());
      std::vector<uint8_t> &memory = memory_[b.id.index()];
      memory.assign(static_cast<size_t>(*elements * itemSize(b.dtype)), unwritten_);
      views_[b.id.index()] = {memory.data(), isComplex(b.dtype) ? *elements * 2 : *elements};
    }
    return {};
  }

  Result<bool> holds(Expr condition) const {
    Result<int64_t> value = evaluateOr(condition, sizes_, "a condition");
    if (!value) return value.takeError();
    return *value != 0;
  }

  Status region(const RegionSpec &r) {
    if (r.kind == RegionSpec::Kind::If) {
      Result<bool> taken = holds(r.condition);
      if (!taken) return taken.takeError();
      return block(r.blocks[*taken ? 0 : 1]);
    }
    for (;;) {
      if (Status done = block(r.blocks[0]); !done) return done;
      Result<bool> more = holds(r.condition);
      if (!more) return more.takeError();
      if (!*more) return {};
      if (Status done = block(r.blocks[1]); !done) return done;
    }
  }

  const Program &program_;
  Bindings &sizes_;
  std::vector<std::vector<uint8_t>> &memory_; // by buffer
  std::vector<BufferView> &views_;
  uint8_t unwritten_;
};

} // namespace

std::vector<uint8_t> &Interpreter::constantBytes(BufferId id) {
  auto [it, isNew] = mutatedConstants_.try_emplace(id.value);
  if (isNew) {
    const Constant &c = program_.constants[static_cast<size_t>(program_.buffer(id).index)];
    if (c.bytes) it->second.assign(c.data, c.data + c.bytes);
  }
  return it->second;
}
std::span<const uint8_t> Interpreter::constant(BufferId id) { return constantBytes(id); }

Result<std::vector<HostValue>> Interpreter::run(std::span<const HostValue> inputs) {
  Result<Bindings> bound = bindSizes(program_, inputs);
  if (!bound) return bound.takeError();
  Bindings &sizes = *bound;
  std::set<Symbol> late; // what only the run finds out
  for (const Node &n : program_.nodes)
    for (Symbol s : definedBy(n)) late.insert(s);

  // Inputs are laid out as the program declares them; what it mutates is copied back at the end.
  std::vector<std::vector<uint8_t>> memory(program_.buffers.size());
  std::vector<BufferView> views(program_.buffers.size());
  for (const Buffer &b : program_.buffers) {
    const std::vector<Symbol> symbols = symbolsOf(b.elements);
    if (std::any_of(symbols.begin(), symbols.end(), [&](Symbol s) { return late.count(s) && !sizes.count(s); })) continue;
    Result<int64_t> elements = evaluateOr(b.elements, sizes, b.name);
    if (!elements) return elements.takeError();
    if (*elements < 0 || *elements > kMostElements) return fail(diag::LoopsBadSize, {}, b.name, b.elements.str());
    size_t bytes = static_cast<size_t>(*elements * itemSize(b.dtype));
    BufferView &view = views[b.id.index()];
    view.elements = isComplex(b.dtype) ? *elements * 2 : *elements;
    if (b.kind == Buffer::Kind::Constant) {
      const Constant &c = program_.constants[static_cast<size_t>(b.index)];
      if (static_cast<size_t>(c.bytes) < bytes) return fail(diag::LoopsBadSize, {}, b.name, b.elements.str());
      bool own = b.mutated || mutatedConstants_.contains(b.id.value);
      view.data = own ? constantBytes(b.id).data() : const_cast<uint8_t *>(c.data); // not written unless mutated
      continue;
    }
    memory[b.id.index()].resize(bytes, unwritten_);
    view.data = memory[b.id.index()].data();
    if (b.kind == Buffer::Kind::ScalarInput) storeScalar(b.dtype, inputs[static_cast<size_t>(b.index)], view.data);
  }
  for (size_t k = 0; k < inputs.size(); ++k)
    if (Status s = moveInput(program_, sizes, k, inputs[k], views, false); !s) return s.takeError();

  if (Status s = NodesRun(program_, sizes, memory, views, static_cast<uint8_t>(unwritten_ ^ 0xee)).block(program_.nodes); !s) return s.takeError();

  std::vector<HostValue> outputs;
  for (const ProgramOutput &o : program_.outputs) {
    Result<HostValue> value = readOutput(program_, sizes, o, views);
    if (!value) return value.takeError();
    outputs.push_back(std::move(*value));
  }
  for (size_t k = 0; k < outputs.size(); ++k) {
    const ProgramOutput &o = program_.outputs[k];
    if (!o.writeBackTo.valid() || o.writeBackTo == o.buffer) continue;
    const Buffer &target = program_.buffer(o.writeBackTo);
    Result<std::vector<int64_t>> strides = evaluateAll(o.writeBackStrides, sizes, target.name);
    if (!strides) return strides.takeError();
    Result<int64_t> offset = evaluateOr(o.writeBackOffset, sizes, target.name);
    if (!offset) return offset.takeError();
    if (target.kind == Buffer::Kind::Constant) views[target.id.index()].data = constantBytes(target.id).data();
    if (outputs[k].elements())
      copyStrided(views[target.id.index()].data + *offset * itemSize(o.dtype), *strides, outputs[k].data,
                  contiguousStrides(outputs[k].sizes), outputs[k].sizes, itemSize(o.dtype));
  }
  for (size_t k = 0; k < inputs.size(); ++k) {
    const ProgramInput &in = program_.inputs[k];
    if (in.kind != ProgramInput::Kind::Tensor || !in.buffer.valid()) continue;
    bool written = program_.buffer(in.buffer).mutated;
    for (const ProgramOutput &o : program_.outputs) written |= o.writeBackTo.valid() && o.writeBackTo == in.buffer;
    if (!written) continue;
    if (Status s = moveInput(program_, sizes, k, inputs[k], views, true); !s) return s.takeError();
  }
  return outputs;
}

} // namespace neso::loops
