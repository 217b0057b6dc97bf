#include "lower/plan_to_tile/scratch_code.h"

#include "ir/tile/build.h"

namespace neso {

using namespace mlir;
namespace tb = tile;

namespace {

SmallVector<Value> valuesOf(const ScratchCode::Vals &vals) {
  SmallVector<Value> out;
  for (const Val &v : vals) out.push_back(v.v);
  return out;
}

/// The same values elsewhere: each varies as the one that it stands for.
ScratchCode::Vals likeThose(const ScratchCode::Vals &vals, ValueRange values) {
  ScratchCode::Vals out;
  for (size_t i = 0; i < vals.size(); ++i) out.push_back({values[static_cast<unsigned>(i)], vals[i].vary});
  return out;
}

} // namespace

Val ScratchCode::at(Emitter &e, loops::BufferId buffer, Val index) const {
  Val pointer = e.widen({k_.buffers.at(buffer)}, index.vary);
  return {tb::addptr(k_.b, k_.loc, pointer.v, index.v), index.vary};
}

Val ScratchCode::load(Emitter &e, loops::BufferId buffer, Val index, Val mask, Val other) const {
  Val pointer = at(e, buffer, index);
  if (!mask) return {tb::load(k_.b, k_.loc, pointer.v, Value(), Value(), false), pointer.vary};
  return {tb::load(k_.b, k_.loc, pointer.v, e.widen(mask, pointer.vary).v, e.widen(other, pointer.vary).v, false), pointer.vary};
}

void ScratchCode::store(Emitter &e, loops::BufferId buffer, Val index, Val value, Val mask) const {
  Val pointer = at(e, buffer, index);
  if (mask) mask = e.widen(mask, pointer.vary);
  tb::store(k_.b, k_.loc, pointer.v, e.widen(value, pointer.vary).v, mask.v);
}

ScratchCode::Vals ScratchCode::fold(Val from, Val to, Val step, const Vals &first,
                                    const std::function<Vals(Val, const Vals &)> &body) const {
  auto loop = scf::ForOp::create(k_.b, k_.loc, from.v, to.v, step.v, valuesOf(first));
  OpBuilder::InsertionGuard guard(k_.b);
  k_.b.setInsertionPointToStart(loop.getBody());
  scf::YieldOp::create(k_.b, k_.loc, valuesOf(body({loop.getInductionVar()}, likeThose(first, loop.getRegionIterArgs()))));
  return likeThose(first, loop.getResults());
}

ScratchCode::Vals ScratchCode::whileTrue(const Vals &first, const std::function<Val(const Vals &)> &condition,
                                         const std::function<Vals(const Vals &)> &body) const {
  const SmallVector<Value> values = valuesOf(first);
  SmallVector<Type> types;
  for (Value v : values) types.push_back(v.getType());
  auto loop = scf::WhileOp::create(k_.b, k_.loc, types, values);
  OpBuilder::InsertionGuard guard(k_.b);
  const SmallVector<Location> locs(types.size(), k_.loc);
  Block *before = k_.b.createBlock(&loop.getBefore(), {}, types, locs);
  Val goesOn = condition(likeThose(first, before->getArguments()));
  scf::ConditionOp::create(k_.b, k_.loc, goesOn.v, before->getArguments());
  Block *after = k_.b.createBlock(&loop.getAfter(), {}, types, locs);
  scf::YieldOp::create(k_.b, k_.loc, valuesOf(body(likeThose(first, after->getArguments()))));
  return likeThose(first, loop.getResults());
}

ScratchCode::Vals ScratchCode::choose(Val condition, const std::function<Vals()> &yes, const std::function<Vals()> &no) const {
  OpBuilder::InsertionGuard guard(k_.b);
  // The types of the results are known when a branch has been written.
  OpBuilder::InsertPoint here = k_.b.saveInsertionPoint();
  auto parts = std::make_unique<Region>();
  Block *taken = k_.b.createBlock(parts.get());
  const Vals results = yes();
  scf::YieldOp::create(k_.b, k_.loc, valuesOf(results));
  SmallVector<Type> types;
  for (const Val &v : results) types.push_back(v.v.getType());
  k_.b.restoreInsertionPoint(here);
  auto branch = scf::IfOp::create(k_.b, k_.loc, types, condition.v, true);
  Block *then = branch.thenBlock();
  then->getOperations().splice(then->end(), taken->getOperations());
  k_.b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(k_.b, k_.loc, valuesOf(no()));
  return likeThose(results, branch.getResults());
}

} // namespace neso
