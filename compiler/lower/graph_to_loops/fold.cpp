// Compile-time evaluation of small tensors that depend on constants alone, by the loops interpreter.
#include <algorithm>
#include <cstring>
#include <set>

#include "base/rules.h"
#include "ir/loops/access.h"
#include "ir/loops/build.h"
#include "ir/loops/interp.h"
#include "lower/graph_to_loops/lowering.h"

namespace neso::lower {

/// Folded tensors are stored in the package; what is larger is cheaper to compute when the model runs. So is what takes more room than its
/// operands, but for little ones and for what is looked up (a bias of relative positions): weights that are stored narrow (quantised, of 8 bits)
/// stay so, and are widened where they are used. Of integers, what takes at most half the room of its operands is
/// computed up to another size: numbers of four bits that a model stores in 32.
static constexpr int64_t kMaxFoldedElements = 1 << 16;
static constexpr int64_t kMaxNarrowedElements = 1 << 26;
static constexpr int64_t kMaxGrownBytes = 1 << 12;

namespace {

/// Elements of x, where that is known and small enough to be computed.
std::optional<int64_t> elementsToFold(const Tensor &x) {
  int64_t count = 1;
  for (Expr s : x.sizes()) {
    std::optional<int64_t> n = s.asConst();
    if (!n || *n <= 0 || count > kMaxNarrowedElements / *n) return std::nullopt;
    count *= *n;
  }
  return count;
}

/// A program of one node, which computes x from constants of `program` alone.
class FoldedProgram {
public:
  FoldedProgram(const loops::Program &program, const Facts &facts, const Tensor &x) : x_(x) {
    node_.id = loops::NodeId(0);
    auto &spec = node_.spec.emplace<loops::PointwiseSpec>();
    BodyBuilder b(facts);
    Index index;
    for (Expr s : x.sizes()) {
      if (!s.isConst(1)) node_.ranges.push_back(s);
      index.push_back(b.addIndex(Symbol::index(node_.ranges.empty() ? 0 : node_.ranges.size() - 1), s));
    }
    value_ = b.cast(x.at(b, index), x.dtype()).idx;
    strides_ = denseStrides(x.sizes());
    for (size_t d = 0; d < index.size(); ++d) at_ = at_ + index[d] * strides_[d];
    spec.body = b.take();
    pruneBody(spec.body, {&value_});
    looksUp_ = std::any_of(spec.body.ops.begin(), spec.body.ops.end(), [](const loops::Op &op) { return op.kind == OpKind::Indirect; });
    foldable_ = computes(spec.body) && takeConstants(program);
  }

  /// The elements of x; nullopt where nothing is gained, or something else than constants is read.
  std::optional<std::vector<uint8_t>> run(int64_t elements) {
    const int64_t bytes = elements * itemSize(x_.dtype());
    if (!foldable_ || (bytes > kMaxGrownBytes && bytes > operandBytes() && !looksUp_)) return std::nullopt;
    if (elements > kMaxFoldedElements && (!isInteger(x_.dtype()) || bytes > operandBytes() / 2)) return std::nullopt;
    addResult(elements);
    Result<std::vector<loops::HostValue>> result = loops::Interpreter(mini_).run({});
    if (!result || result->size() != 1) return std::nullopt;
    const uint8_t *data = (*result)[0].data;
    return std::vector<uint8_t>(data, data + bytes);
  }

  /// Names of the model's tensors that x comes from.
  std::vector<std::string> sources() const {
    std::vector<std::string> out;
    for (const loops::Constant &c : mini_.constants) c.addSources(out);
    return out;
  }

private:
  /// A plain view of a weight is as cheap where it is; random numbers are drawn when the model runs.
  static bool computes(const loops::Body &body) {
    bool more = false;
    for (const loops::Op &op : body.ops) {
      more |= op.kind != OpKind::Load;
      if (loops::info(op.kind).has(loops::Random)) return false;
    }
    return more;
  }

  /// Moves what the node reads into the program; false if it reads anything but constants, or nothing.
  bool takeConstants(const loops::Program &program) {
    std::map<int32_t, BufferId> moved;
    for (const loops::Access &a : loops::accessesOf(node_)) {
      const loops::Buffer &from = program.buffer(a.buffer);
      const loops::Constant *c =
          from.kind == loops::Buffer::Kind::Constant ? &program.constants[static_cast<size_t>(from.index)] : nullptr;
      if (!c || from.mutated || !c->data) return false;
      auto [it, fresh] = moved.try_emplace(a.buffer.value);
      if (!fresh) continue;
      loops::Buffer copy = from;
      copy.id = it->second = BufferId(static_cast<int64_t>(mini_.buffers.size()));
      copy.index = static_cast<int64_t>(mini_.constants.size());
      mini_.constants.push_back(*c);
      mini_.buffers.push_back(std::move(copy));
    }
    loops::rewriteAccesses(node_, [&](BufferId &buffer, Expr &, const loops::Access &) { buffer = moved[buffer.value]; });
    return !moved.empty();
  }

  int64_t operandBytes() const {
    int64_t bytes = 0;
    for (const loops::Constant &c : mini_.constants) bytes += static_cast<int64_t>(c.bytes);
    return bytes;
  }

  void addResult(int64_t elements) {
    loops::Buffer out;
    out.id = BufferId(static_cast<int64_t>(mini_.buffers.size()));
    out.name = "folded";
    out.dtype = x_.dtype();
    out.elements = elements;
    mini_.buffers.push_back(out);
    loops::Store s;
    s.buffer = out.id;
    s.index = at_;
    s.value = value_;
    node_.get<loops::PointwiseSpec>().stores = {s};
    mini_.nodes.push_back(std::move(node_));
    loops::ProgramOutput p;
    p.buffer = out.id;
    p.dtype = x_.dtype();
    p.sizes = x_.sizes();
    p.strides = strides_;
    mini_.outputs.push_back(p);
  }

  const Tensor &x_;
  loops::Program mini_;
  loops::Node node_;
  ValueIdx value_;
  Expr at_ = 0;
  Sizes strides_;
  bool foldable_ = false, looksUp_ = false;
};

} // namespace

Tensor Lowering::fold(const Tensor &x) {
  if (!folds || x.realized() || x.isComplex() || x.isNumber()) return x;
  std::optional<int64_t> elements = elementsToFold(x);
  if (!elements) return x;
  FoldedProgram folded(program, facts, x);
  std::optional<std::vector<uint8_t>> data = folded.run(*elements);
  if (!data) return x;
  Tensor out = addConstant(x.dtype(), x.sizes(), std::move(*data));
  program.constants.back().foldedFrom = folded.sources();
  applied(Rule::FoldConstant);
  return out;
}

} // namespace neso::lower
