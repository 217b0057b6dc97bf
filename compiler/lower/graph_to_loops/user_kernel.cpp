// Launches of users' Triton kernels. A kernel reads and writes memory as it lies, so its tensors are given buffers with exactly the strides
// that the model states. What it writes is a new buffer that holds the old content first, unless nobody else needs that:
//
//     out = empty(...)              nothing to copy
//     out = relu(x)                 computed straight into the new buffer
//     out = the result of a kernel, used here only      its buffer is taken over (reinplacing)
#include "lower/graph_to_loops/user_kernel.h"

#include "ir/graph/visit.h"

namespace neso::lower {

using graph::UserLaunch;
using graph::ValueId;
using loops::UserKernelSpec;

namespace {

bool isUninitialised(const std::string &target) {
  for (const char *prefix : {"aten.empty.", "aten.empty_like.", "aten.empty_strided.", "aten.empty_permuted.", "aten.new_empty.", "aten.new_empty_strided.", "prims.empty"})
    if (target.starts_with(prefix)) return true;
  return false;
}

bool sameStrides(const Lowering &ctx, const Sizes &sizes, const Sizes &a, const Sizes &b) {
  for (size_t d = 0; d < sizes.size(); ++d)
    if (!sizes[d].isConst(1) && !ctx.equal(a[d], b[d])) return false;
  return true;
}

} // namespace

Expr extentOf(const Sizes &sizes, const Sizes &strides, const Facts &facts) {
  Expr extent = 1;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d].isConst(0)) return 0;
    extent = extent + (sizes[d] - 1) * strides[d];
  }
  return facts.simplify(extent);
}

UserKernels::UserKernels(const graph::Model &model) : graph_(model.graph) {
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    const graph::Node &n = graph_.nodes[i];
    graph::forEachInput(n, [&](ValueId id) { readers_[id.value].insert(i); });
    graph::forEachOutput(n, [&](ValueId id) { definition_[id.value] = i; });
  }
  for (const graph::Output &o : model.outputs)
    if (const ValueId *id = std::get_if<ValueId>(&o.value)) returned_.insert(id->value);
}

/// May the launch at node `at` write over the buffer, because all who still see it are done? Whoever reads a value in it must have made
/// another name of the same memory, or be a launch that is over: anything else may be computed later, where its own result is needed.
bool UserKernels::mayTake(BufferId buffer, size_t at, const Values &values) const {
  std::set<int32_t> holders;
  for (const auto &[id, x] : values) {
    if (!x.valid() || x.isComplex()) continue;
    if (std::optional<Strided> s = x.asStrided(); s && s->buffer == buffer) holders.insert(id);
  }
  for (int32_t id : holders) {
    if (returned_.count(id)) return false;
    auto readers = readers_.find(id);
    if (readers == readers_.end()) continue;
    for (size_t reader : readers->second) {
      const graph::Node &n = graph_.nodes[reader];
      bool done = reader == at || (n.launch && reader < at);
      graph::forEachOutput(n, [&](ValueId out) { done |= holders.count(out.value) != 0; });
      if (!done) return false;
    }
  }
  return true;
}

Strided UserKernels::inMemory(Lowering &ctx, const Tensor &x, const graph::TensorType &type) {
  if (std::optional<Strided> s = x.asStrided(); s && s->dtype == type.dtype && sameStrides(ctx, type.sizes, s->strides, type.strides)) return *s;
  return freshCopy(ctx, &x, type);
}

Strided UserKernels::freshCopy(Lowering &ctx, const Tensor *x, const graph::TensorType &type) {
  Strided w;
  w.dtype = type.dtype;
  w.strides = type.strides;
  w.buffer = ctx.addTemp(type.dtype, extentOf(type.sizes, type.strides, ctx.facts));
  if (x) ctx.store(*x, w);
  return w;
}

Tensors UserKernels::lower(Lowering &ctx, const graph::Graph &g, const graph::Node &node, Values &values, std::string &refusal) {
  const UserLaunch &launch = *node.launch;
  size_t at = static_cast<size_t>(&node - g.nodes.data());
  bool main = &g == &graph_;
  std::vector<Strided> where(node.args.size());
  std::vector<bool> undefined(node.args.size());
  auto tensorOf = [&](size_t i) { return values.at(std::get<ValueId>(node.args[i]).value); };
  auto typeOf = [&](size_t i) -> const graph::TensorType & { return g.value(std::get<ValueId>(node.args[i])).type; };
  for (size_t i = 0; i < node.args.size(); ++i)
    if (isComplex(typeOf(i).dtype)) return refusal = "Triton has no complex numbers", Tensors();

  std::set<int32_t> taken; // buffers that this launch writes
  Tensors results;
  for (size_t i = 0; i < node.args.size(); ++i) {
    if (!launch.written[i]) continue;
    graph::TensorType type = typeOf(i);
    type.offset = 0;
    ValueId id = std::get<ValueId>(node.args[i]);
    int same = launch.sameAs.empty() ? -1 : launch.sameAs[i];
    auto def = definition_.find(id.value);
    if (same >= 0 && static_cast<size_t>(same) < i) {
      where[i] = where[static_cast<size_t>(same)];
      undefined[i] = undefined[static_cast<size_t>(same)];
    } else if (main && def != definition_.end() && isUninitialised(graph_.nodes[def->second].target)) {
      where[i] = freshCopy(ctx, nullptr, type);
      undefined[i] = true;
    } else {
      Tensor x = tensorOf(i);
      std::optional<Strided> s = x.realized() ? x.asStrided() : std::nullopt;
      bool mine = s && s->dtype == type.dtype && s->offset.isConst(0) && sameStrides(ctx, type.sizes, s->strides, type.strides) &&
                  ctx.program.buffer(s->buffer).kind == loops::Buffer::Kind::Temp && !taken.count(s->buffer.value);
      // Another argument that looks at the same buffer must go on seeing the old content, unless it is the same memory.
      for (size_t j = 0; mine && j < node.args.size(); ++j) {
        if (j == i || (!launch.sameAs.empty() && launch.sameAs[j] == static_cast<int>(i))) continue;
        if (std::optional<Strided> other = tensorOf(j).asStrided()) mine = other->buffer != s->buffer;
      }
      where[i] = mine && main && mayTake(s->buffer, at, values) ? *s : freshCopy(ctx, &x, type);
    }
    taken.insert(where[i].buffer.value);
    results.push_back(Tensor::strided(ctx, type.dtype, type.sizes, where[i]));
  }
  for (size_t i = 0; i < node.args.size(); ++i) {
    if (launch.written[i]) continue;
    int same = launch.sameAs.empty() ? -1 : launch.sameAs[i];
    where[i] = same >= 0 ? where[static_cast<size_t>(same)] : inMemory(ctx, tensorOf(i), typeOf(i));
  }

  auto spec = std::make_shared<UserKernelSpec>();
  spec->kernel = launch.kernel;
  spec->function = launch.function;
  spec->grid = launch.grid;
  spec->reference = launch.reference;
  for (const UserLaunch::Parameter &p : launch.parameters) {
    UserKernelSpec::Argument a;
    a.name = p.name, a.bits = p.bits;
    if (p.kind == UserLaunch::Parameter::Tensor) {
      size_t t = static_cast<size_t>(p.tensor);
      a.kind = UserKernelSpec::Argument::Memory;
      a.buffer = where[t].buffer;
      a.offset = where[t].offset;
      a.written = launch.written[t];
      // What a kernel does not overwrite stays, so the old content counts as read, unless there is none.
      a.read = !undefined[t];
    } else if (p.kind == UserLaunch::Parameter::Integer) {
      a.integer = p.integer;
      Expr limit = int64_t{INT32_MAX};
      if (p.bits == 32 && !ctx.facts.provablyLessEqual(p.integer, limit)) ctx.program.guards.push_back(le(p.integer, limit));
    } else {
      a.kind = UserKernelSpec::Argument::Real;
      a.real = p.real;
    }
    spec->arguments.push_back(std::move(a));
  }
  ctx.addNode(loops::Node::Kind::UserKernel).user = std::move(spec);
  return results;
}

} // namespace neso::lower
