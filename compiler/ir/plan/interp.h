// Runs a complete Plan on host memory, step by step as the runtime walks it: sizes from the inputs, guards, arenas and
// outputs, then the tree of steps. Slow and exact; the oracle of lower/schedule and lower/memory.
//
// Memory is laid out as the placements say: arenas, outputs in their own memory, and for buffers placed nowhere a scratch
// that is poisoned before each kernel. Within a kernel the outer space is walked element by element in a shuffled order,
// all nodes at one x before the next x: a kernel is wrong if that matters.
//
// Example:  Result<PlanRun> run = runPlan(plan, inputs, /*seed=*/1);
#pragma once
#include <functional>
#include <random>
#include <span>

#include "ir/loops/interp.h"
#include "ir/plan/plan.h"

namespace neso::plan {

struct PlanRun {
  std::vector<loops::HostValue> outputs; // of the program: write-backs hold what reached their target
  int64_t arenaBytes = 0, lowerBound = 0;
};

/// One run. Kernels are the loop nodes that they hold, unless a derived class launches something else for them.
class PlanRunner {
public:
  /// Borrows all but the seed, which shuffles the order within kernels.
  PlanRunner(const Plan &p, std::span<const loops::HostValue> inputs, uint32_t seed)
      : p_(p), inputs_(inputs), random_(seed) {}
  virtual ~PlanRunner() = default;

  Result<PlanRun> run();
  /// Called before each step, with the name that the runtime gives it ("launch") and the kernel of a launch.
  std::function<void(std::string_view, const Kernel *)> onStep;

protected:
  const Plan &p_;
  std::vector<loops::BufferView> views_; // by buffer of the program

  int64_t value(Expr e) const { return evaluate(e, sizes_).value_or(-1); }
  /// Runs one kernel on views_.
  virtual Status launch(const Kernel &k);

private:
  std::vector<int64_t> values(const std::vector<Expr> &es) const;
  Status begin();
  Status takeSize(const InputSize &size, int64_t given, const std::string &input);
  void allocate(size_t output);
  Status locate();
  Status walk(const Region &region);
  Status step(const Step &step);
  Status run(const Launch &l);
  Status run(const Copy &c);
  Status run(const Guard &guard);
  Status run(const LoadScalar &scalar);
  Status run(const EvalSizes &s);
  Status run(const GrowArena &s);
  Status run(const AllocOutput &s);
  Status run(const If &branch);
  Status run(const While &loop);
  Status run(const CallExtern &call);
  void collect();

  std::span<const loops::HostValue> inputs_;
  std::mt19937 random_;
  loops::Bindings sizes_;
  PlanRun run_;
  std::vector<std::vector<uint8_t>> arenas_, own_, outputs_; // by arena, by buffer, by output of the program
};

Result<PlanRun> runPlan(const Plan &p, std::span<const loops::HostValue> inputs, uint32_t seed);

} // namespace neso::plan
