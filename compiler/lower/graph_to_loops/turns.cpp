#include "lower/graph_to_loops/turns.h"

namespace neso::lower {

using loops::RegionSpec;

Tensor place(Lowering &ctx, DType t, const Sizes &sizes) {
  const Strided w{ctx.addTemp(toReal(t), product(sizes) * (isComplex(t) ? 2 : 1)), t, denseStrides(sizes), 0};
  return Tensor::strided(ctx, t, sizes, w);
}

void put(const Tensor &x, const Tensor &into) {
  Lowering &ctx = into.ctx();
  if (into.isComplex()) {
    ctx.store(x.real(), *into.real().asStrided());
    ctx.store(x.imag(), *into.imag().asStrided());
  } else {
    ctx.store(x, *into.asStrided());
  }
}

Tensor carry(const Tensor &x) {
  const Tensor out = place(x.ctx(), x.dtype(), x.sizes());
  put(x, out);
  return out;
}

void forTurns(Lowering &ctx, Expr count, const std::function<void(Expr turn)> &body) {
  const Tensor counter = carry(fullInt(ctx, {}, DType::I64, 0));
  RegionSpec spec;
  spec.kind = RegionSpec::Kind::While;
  Expr turn;
  Lowering::Known tested;
  spec.blocks[0] = ctx.block([&] {
    turn = ctx.readTurn(counter, 0);
    tested = ctx.known();
  });
  spec.condition = lt(turn, count);
  spec.blocks[1] = ctx.block([&] {
    ctx.setKnown(tested);
    body(turn);
    put(addNumber(counter, 1).realize(), counter);
  });
  ctx.addNode(std::move(spec));
}

void whileTrue(Lowering &ctx, const std::function<Tensor()> &test, const std::function<void()> &body) {
  RegionSpec spec;
  spec.kind = RegionSpec::Kind::While;
  Lowering::Known tested;
  spec.blocks[0] = ctx.block([&] {
    spec.condition = ctx.read(test());
    tested = ctx.known();
  });
  spec.blocks[1] = ctx.block([&] {
    ctx.setKnown(tested);
    body();
  });
  ctx.addNode(std::move(spec));
}

} // namespace neso::lower
