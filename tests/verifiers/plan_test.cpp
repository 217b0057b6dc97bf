// Claim: the verifier of plans notices when one thing of a valid plan is dropped or altered: as scheduled, complete, and
// with the arguments and grids of tile programs. What it does not notice where an excuse allows it is run by the plan's own
// rules on random inputs: it must compute the same.
#include "verifiers/mutants.h"

#include "driver/compile.h"
#include "ir/plan/interp.h"
#include "ir/plan/parse.h"
#include "ir/plan/verify.h"
#include "lower/memory/memory.h"
#include "lower/schedule/schedule.h"
#include "lower/schedule/test/random_program.h"
#include "schedule/random_inputs.h"
#include "verifiers/plan_mutants.h"

namespace neso::test {
namespace {

using plan::Form;
using plan::Plan;

/// Of several kernels, dynamic sizes, sizes that data decides, regions, write-backs, outputs that are copied.
constexpr const char *kGoldens[] = {
    "ops/attention/dynamic_causal.pt2", "ops/bags/dynamic.pt2",       "ops/ordering/topk.pt2",
    "ops/reductions/var_mean.pt2",      "ops/regions/cond_nested.pt2", "ops/regions/map_dynamic.pt2",
    "ops/data_sizes/masked.pt2",        "ops/data_sizes/unique_rows.pt2", "ops/data_sizes/split_by_list.pt2",
    "ops/updates/linear_scattered.pt2", "state/cache.export.pt2",     "state/transposed.export.pt2",
    "state/dynamic.export.pt2",         "weights/conv_norm.pt2",      "models/mixer_buffers/export.pt2",
};

std::vector<std::vector<uint8_t>> resultOf(const Plan &p) {
  std::vector<loops::HostValue> inputs = randomInputs(p.program, 1);
  Result<plan::PlanRun> run = plan::runPlan(p, inputs, 3);
  if (!run) return {};
  std::vector<std::vector<uint8_t>> out;
  for (const loops::HostValue &v : run->outputs)
    if (v.owner) out.push_back(*v.owner);
  return out;
}

class PlanVerifier : public ::testing::Test {
protected:
  static std::map<std::string, Excuse> excuses() {
    return {
        {"a node is dropped", {false, "it only changes what others wrote"}},
        {"a step comes too late", {true, "the next one does not depend on it"}},
        {"an argument that is read is not marked so", {true, "the kernel reads what it stored itself"}},
        {"a node runs too late", {true, "its neighbour does not depend on it"}},
    };
  }
  /// `runs`: the kernels' nodes can be run as they are.
  void judge(const Plan &valid, Form form, bool runs, const std::string &name, uint32_t seed, Tally &tally) {
    const Status sound = plan::verify(valid, form);
    ASSERT_TRUE(sound) << name << ": " << sound.error().str();
    const std::map<std::string, Excuse> excused = excuses();
    const auto want = runs && form == Form::Complete ? resultOf(valid) : std::vector<std::vector<uint8_t>>();
    for (const Mutant<Plan> &m : someOfEach(mutantsOf(valid, form == Form::Complete), 4, seed)) {
      Plan changed = valid;
      m.apply(changed);
      if (!plan::verify(changed, form)) {
        tally.noticed(m.kind);
        continue;
      }
      // Plans as scheduled have no memory to run in.
      Unnoticed what = Unnoticed::Broken;
      if (excused.contains(m.kind)) what = form == Form::Scheduled || !runs || resultOf(changed) == want ? Unnoticed::Same : Unnoticed::Another;
      tally.unnoticed(m.kind, name + ", " + m.where, what);
    }
  }
};

TEST_F(PlanVerifier, NoticesWhatIsDroppedOrAltered) {
  Tally tally(excuses());
  uint32_t seed = 1;
  auto both = [&](loops::Program program, const std::string &name) {
    Result<Plan> p = schedule::schedule(std::move(program));
    ASSERT_TRUE(p) << name << ": " << p.error().str();
    judge(*p, Form::Scheduled, true, name, seed++, tally);
    memory::planMemory(*p);
    judge(*p, Form::Complete, true, name, seed++, tally);
  };
  for (const char *golden : kGoldens) {
    const std::string path = std::string(NESO_SOURCE_DIR "/tests/goldens/") + golden;
    DiagnosticSink sink;
    Result<loops::Program> program = lowerModel(path, {}, sink);
    ASSERT_TRUE(program) << golden << ": " << program.error().str();
    both(std::move(*program), golden);
    CompileOptions options;
    options.emit = Stage::Plan;
    Result<Compilation> compiled = compileModel(path, options, sink);
    ASSERT_TRUE(compiled) << golden << ": " << compiled.error().str();
    Result<Plan> emitted = plan::parse(compiled->emitted, golden);
    ASSERT_TRUE(emitted) << golden << ": " << emitted.error().str();
    judge(*emitted, Form::Complete, false, golden, seed++, tally);
  }
  for (uint32_t k = 0; k < 12; ++k) both(schedule::test::RandomProgram(k).p, fmt::format("random {}", k));
  tally.finish(4000);
}

} // namespace
} // namespace neso::test
