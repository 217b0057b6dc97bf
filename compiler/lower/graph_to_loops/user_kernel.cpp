// Launches of users' Triton kernels. A kernel reads and writes memory as it lies, so its tensors are given buffers with exactly the strides
// that the model states. What it writes is a new buffer that holds the old content first, unless nobody else needs that:
//
//     out = empty(...)              nothing to copy
//     out = relu(x)                 computed straight into the new buffer
//     out = a value in memory whose old content nobody needs       written in place (in_place.h)
#include "lower/graph_to_loops/user_kernel.h"

#include "lower/graph_to_loops/tensor_ops.h"

namespace neso::lower {

using graph::UserLaunch;
using graph::ValueId;
using loops::UserKernelSpec;

UserKernels::UserKernels(const graph::Model &model) {
  std::set<int32_t> returned;
  for (const graph::Output &o : model.outputs)
    if (const ValueId *id = std::get_if<ValueId>(&o.value)) returned.insert(id->value);
  graphs_.push_back(std::make_unique<InPlace>(model.graph, std::move(returned), 0));
}

void UserKernels::enter(const Lowering &ctx, const graph::Graph &g) {
  std::set<int32_t> returned;
  for (const graph::Argument &a : g.outputs)
    if (const ValueId *id = std::get_if<ValueId>(&a)) returned.insert(id->value);
  graphs_.push_back(std::make_unique<InPlace>(g, std::move(returned), ctx.program.buffers.size()));
}

Strided UserKernels::inMemory(Lowering &ctx, const Tensor &x, const graph::TensorType &type) {
  if (std::optional<Strided> s = x.asStrided();
      s && s->dtype == type.dtype && sameStrides(ctx, type.sizes, s->strides, type.strides))
    return *s;
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

/// A buffer without content, of which a part was to be written in place but cannot be.
void UserKernels::fillBlank(Lowering &ctx, BufferId buffer) {
  const loops::Buffer b = ctx.program.buffer(buffer);
  ctx.store(full(ctx, {b.elements}, b.dtype, 0), {buffer, b.dtype, {Expr(1)}, 0});
}

Tensor UserKernels::blankOf(Lowering &ctx, const graph::Graph &g, ValueId id) {
  InPlace &memory = *graphs_.back();
  if (!memory.startsBlank(id)) return Tensor();
  const graph::TensorType &type = g.value(id).type;
  Strided w = freshCopy(ctx, nullptr, type);
  memory.blank(w.buffer);
  return Tensor::strided(ctx, type.dtype, type.sizes, w);
}

Tensors UserKernels::lower(Lowering &ctx, const graph::Graph &g, const graph::Node &node, Values &values,
                           std::string &refusal) {
  const UserLaunch &launch = *node.launch;
  InPlace &memory = *graphs_.back();
  std::vector<Strided> where(node.args.size());
  std::vector<bool> undefined(node.args.size());
  auto tensorOf = [&](size_t i) { return values.at(std::get<ValueId>(node.args[i]).value); };
  auto typeOf = [&](size_t i) -> const graph::TensorType & { return g.value(std::get<ValueId>(node.args[i])).type; };
  for (size_t i = 0; i < node.args.size(); ++i)
    if (isComplex(typeOf(i).dtype)) return refusal = "Triton has no complex numbers", Tensors();

  UserKernelSpec spec;
  Tensors results;
  memory.begin(node);
  for (size_t i = 0; i < node.args.size(); ++i) {
    if (!launch.written[i]) continue;
    graph::TensorType type = typeOf(i);
    type.offset = 0;
    ValueId id = std::get<ValueId>(node.args[i]);
    int same = launch.sameAs.empty() ? -1 : launch.sameAs[i];
    if (same >= 0 && static_cast<size_t>(same) < i) {
      where[i] = where[static_cast<size_t>(same)];
      undefined[i] = undefined[static_cast<size_t>(same)];
    } else if (memory.isUninitialised(id)) {
      where[i] = freshCopy(ctx, nullptr, type);
      undefined[i] = true;
      memory.wrote(type.sizes, where[i]);
    } else {
      std::string why;
      if (std::optional<Strided> own = memory.place(ctx, i, values, why)) {
        where[i] = *own;
        undefined[i] = memory.firstTouch(own->buffer);
      } else {
        Tensor x = tensorOf(i);
        if (std::optional<Strided> s = x.asStrided(); s && memory.firstTouch(s->buffer)) fillBlank(ctx, s->buffer);
        where[i] = freshCopy(ctx, &x, type);
        memory.wrote(type.sizes, where[i]);
      }
      if (!why.empty()) spec.notes.push_back(std::move(why));
    }
    results.push_back(Tensor::strided(ctx, type.dtype, type.sizes, where[i]));
  }
  for (size_t i = 0; i < node.args.size(); ++i) {
    if (launch.written[i]) continue;
    int same = launch.sameAs.empty() ? -1 : launch.sameAs[i];
    where[i] = same >= 0 ? where[static_cast<size_t>(same)] : inMemory(ctx, tensorOf(i), typeOf(i));
  }

  spec.kernel = launch.kernel;
  spec.choice = launch.choice;
  spec.function = launch.function;
  spec.grid = launch.grid;
  spec.reference = launch.reference;
  for (const UserLaunch::Parameter &p : launch.parameters) {
    UserKernelSpec::Argument a;
    a.name = p.name, a.bits = p.bits;
    if (p.kind == UserLaunch::Parameter::Tensor) {
      size_t t = static_cast<size_t>(p.tensor);
      a.kind = UserKernelSpec::Argument::Memory;
      a.buffer = where[t].buffer;
      a.offset = where[t].offset;
      a.written = launch.written[t];
      a.follows = p.follows, a.loads = p.loads, a.stores = p.stores;
      // What a kernel does not overwrite stays, so the old content counts as read, unless there is none.
      a.read = !undefined[t];
    } else if (p.kind == UserLaunch::Parameter::Integer) {
      a.integer = p.integer;
      Expr limit = int64_t{INT32_MAX};
      if (p.bits == 32 && !ctx.facts.provablyLessEqual(p.integer, limit))
        ctx.require(le(p.integer, limit),
                    fmt::format("argument '{}' of kernel '{}' does not fit 32 bits{}", p.name, launch.function, ctx.where()));
    } else {
      a.kind = UserKernelSpec::Argument::Real;
      a.real = p.real;
    }
    spec.arguments.push_back(std::move(a));
  }
  ctx.addNode(std::move(spec));
  return results;
}

} // namespace neso::lower
