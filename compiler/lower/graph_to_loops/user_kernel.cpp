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

void UserKernels::enter(const Lowering &ctx, const graph::Graph &g, const std::set<BufferId> &own) {
  std::set<int32_t> returned;
  for (const graph::Argument &a : g.outputs)
    if (const ValueId *id = std::get_if<ValueId>(&a)) returned.insert(id->value);
  // Inputs and constants are the model's own, if it changes them.
  const size_t first = graphs_.empty() ? 0 : ctx.program.buffers.size();
  graphs_.push_back(std::make_unique<InPlace>(g, std::move(returned), first, own));
  for (const InPlace::Region &region : kept_) graphs_.back()->keep(region);
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

/// Where argument i, which the launch writes, lies: in its own memory where nobody is disturbed, else in a copy. Undefined:
/// nothing has been written there before.
UserKernels::Written UserKernels::placeWritten(Lowering &ctx, const graph::Graph &g, const graph::Node &node, size_t i,
                                               Values &values, std::string &why) {
  InPlace &memory = *graphs_.back();
  const ValueId id = std::get<ValueId>(node.args[i]);
  graph::TensorType type = g.value(id).type;
  type.offset = 0;
  if (memory.isUninitialised(id)) {
    const Strided where = freshCopy(ctx, nullptr, type);
    memory.wrote(type.sizes, where);
    return {where, true};
  }
  if (std::optional<Strided> own = memory.place(ctx, i, values, why)) return {*own, memory.firstTouch(own->buffer)};
  Tensor x = values.at(id.value);
  if (std::optional<Strided> s = x.asStrided(); s && memory.firstTouch(s->buffer)) fillBlank(ctx, s->buffer);
  const Strided where = freshCopy(ctx, &x, type);
  memory.wrote(type.sizes, where);
  return {where, false};
}

/// A launch's parameter; `tensors` says where its tensors lie.
UserKernelSpec::Argument UserKernels::argumentOf(Lowering &ctx, const UserLaunch &launch, const UserLaunch::Parameter &p,
                                                 const std::vector<Written> &tensors) {
  UserKernelSpec::Argument a;
  a.name = p.name, a.bits = p.bits;
  if (p.kind == UserLaunch::Parameter::Tensor) {
    size_t t = static_cast<size_t>(p.tensor);
    a.kind = UserKernelSpec::Argument::Memory;
    a.buffer = tensors[t].where.buffer;
    a.offset = tensors[t].where.offset;
    a.written = launch.written[t];
    a.follows = p.follows, a.loads = p.loads, a.stores = p.stores;
    // What a kernel does not overwrite stays, so the old content counts as read, unless there is none.
    a.read = !tensors[t].undefined;
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
  return a;
}

Tensors UserKernels::lower(Lowering &ctx, const graph::Graph &g, const graph::Node &node, Values &values,
                           std::string &refusal) {
  const UserLaunch &launch = *node.launch;
  auto typeOf = [&](size_t i) -> const graph::TensorType & { return g.value(std::get<ValueId>(node.args[i])).type; };
  // The earlier argument that is the same memory; -1: none.
  auto sameAs = [&](size_t i) { return launch.sameAs.empty() ? -1 : launch.sameAs[i]; };
  for (size_t i = 0; i < node.args.size(); ++i)
    if (isComplex(typeOf(i).dtype)) return refusal = "Triton has no complex numbers", Tensors();

  UserKernelSpec spec;
  Tensors results;
  std::vector<Written> tensors(node.args.size());
  graphs_.back()->begin(node);
  for (size_t i = 0; i < node.args.size(); ++i) {
    if (!launch.written[i]) continue;
    const int same = sameAs(i);
    std::string why;
    if (same >= 0 && static_cast<size_t>(same) < i)
      tensors[i] = tensors[static_cast<size_t>(same)];
    else
      tensors[i] = placeWritten(ctx, g, node, i, values, why);
    if (!why.empty()) spec.notes.push_back(std::move(why));
    results.push_back(Tensor::strided(ctx, typeOf(i).dtype, typeOf(i).sizes, tensors[i].where));
  }
  for (size_t i = 0; i < node.args.size(); ++i) {
    if (launch.written[i]) continue;
    const int same = sameAs(i);
    tensors[i].where = same >= 0 ? tensors[static_cast<size_t>(same)].where
                                 : inMemory(ctx, values.at(std::get<ValueId>(node.args[i]).value), typeOf(i));
  }
  spec.kernel = launch.kernel;
  spec.choice = launch.choice;
  spec.function = launch.function;
  spec.grid = launch.grid;
  spec.reference = launch.reference;
  for (const UserLaunch::Parameter &p : launch.parameters) spec.arguments.push_back(argumentOf(ctx, launch, p, tensors));
  ctx.addNode(std::move(spec));
  return results;
}

} // namespace neso::lower
