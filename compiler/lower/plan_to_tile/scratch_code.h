// What algorithms in scratch memory are written with: elements of it, and loops and branches of one thread.
#pragma once
#include <functional>

#include "lower/plan_to_tile/emit.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace neso {

class ScratchCode {
public:
  explicit ScratchCode(KernelContext &k) : k_(k) {}

  /// The pointer, or tile of pointers, to elements of a buffer.
  Val at(Emitter &e, loops::BufferId buffer, Val index) const;
  /// `other` stands for what the mask leaves out.
  Val load(Emitter &e, loops::BufferId buffer, Val index, Val mask = {}, Val other = {}) const;
  void store(Emitter &e, loops::BufferId buffer, Val index, Val value, Val mask = {}) const;

  /// body(i) for i in [from, to), step by step.
  template <typename F> void forLoop(Val from, Val to, Val step, F body) const {
    auto loop = mlir::scf::ForOp::create(k_.b, k_.loc, from.v, to.v, step.v);
    mlir::OpBuilder::InsertionGuard guard(k_.b);
    k_.b.setInsertionPointToStart(loop.getBody());
    body(Val{loop.getInductionVar()});
  }
  template <typename F> void ifTrue(Val condition, F body) const {
    auto branch = mlir::scf::IfOp::create(k_.b, k_.loc, condition.v, false);
    mlir::OpBuilder::InsertionGuard guard(k_.b);
    k_.b.setInsertionPointToStart(branch.thenBlock());
    body();
  }
  using Vals = std::vector<Val>;
  /// Carries values: state = body(i, state) for i in [from, to).
  Vals fold(Val from, Val to, Val step, const Vals &first, const std::function<Vals(Val, const Vals &)> &body) const;
  /// state = body(state) while condition(state).
  Vals whileTrue(const Vals &first, const std::function<Val(const Vals &)> &condition,
                 const std::function<Vals(const Vals &)> &body) const;
  /// What the branch that is taken gives.
  Vals choose(Val condition, const std::function<Vals()> &yes, const std::function<Vals()> &no) const;

private:
  KernelContext &k_;
};

} // namespace neso
