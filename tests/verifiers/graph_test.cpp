// Claim: the verifier of graphs notices when one thing of a valid model is dropped or altered, in both forms. What it does
// not notice is lowered and run on random inputs: it must be sound, and its kind among the excuses.
#include "verifiers/mutants.h"

#include "driver/user_kernels.h"
#include "frontend/pt2/read.h"
#include "ir/graph/passes/functionalize.h"
#include "ir/graph/passes/simplify.h"
#include "ir/graph/verify.h"
#include "lower/graph_to_loops/lower.h"
#include "verifiers/graph_mutants.h"
#include "verifiers/loops_outcome.h"

namespace neso::test {
namespace {

using graph::Form;
using graph::Model;

/// Of each kind of argument, weight, write-back, of graphs inside, dynamic sizes and launches.
constexpr const char *kGoldens[] = {
    "ops/attention/grouped_queries.pt2", "ops/attention/dynamic_causal.core.pt2", "ops/bags/weighted.pt2",
    "ops/ordering/topk.pt2",             "ops/ordering/cumsum_dynamic.pt2",       "ops/reductions/var_mean.core.pt2",
    "ops/regions/cond_nested.pt2",       "ops/regions/while_counts.core.pt2",     "ops/regions/map_dynamic.pt2",
    "ops/data_sizes/masked.pt2",         "ops/data_sizes/item_arithmetic.pt2",    "ops/updates/put.pt2",
    "state/cache.export.pt2",            "state/dynamic.export.pt2",              "state/input_and_buffer.export.pt2",
    "weights/conv_norm.pt2",             "weights/tied.pt2",                      "user_kernels/add_dynamic/model.pt2",
    "user_kernels/mutates_input_slice/model.pt2",
};

/// As the driver reads it. `prepared`: functional, and simplified.
Result<Model> readModel(const std::string &path, bool prepared) {
  Result<Model> model = pt2::readPt2(path);
  DiagnosticSink sink;
  if (!model || !prepared) return model;
  Result<std::shared_ptr<UserKernels>> kernels = UserKernels::bind(*model, path, {}, {}, sink);
  if (!kernels) return kernels.takeError();
  if (Status s = graph::functionalize(*model); !s) return s.takeError();
  graph::simplify(*model);
  return model;
}

Outcome outcomeOfModel(const Model &model, const loops::Program &valid, uint8_t unwritten) {
  DiagnosticSink sink;
  Result<loops::Program> program = lower::lowerGraph(model, sink);
  if (!program) return {program.error().str(), {}};
  return outcomeOf(*program, valid, unwritten);
}

void judge(const Model &valid, Form form, const std::string &name, uint32_t seed, Tally &tally) {
  const Status sound = graph::verify(valid, form);
  ASSERT_TRUE(sound) << name << ": " << sound.error().str();
  const bool runs = form == Form::Functional;
  DiagnosticSink sink;
  Result<loops::Program> program = runs ? lower::lowerGraph(valid, sink) : Result<loops::Program>(loops::Program());
  ASSERT_TRUE(program) << name << ": " << program.error().str();
  const Outcome want = runs ? outcomeOf(*program, *program, 0) : Outcome();
  ASSERT_EQ(want.fault, "") << name;
  for (const Mutant<Model> &m : someOfEach(mutantsOf(valid), 4, seed)) {
    if (!runs && m.kind == "an operator that writes") continue;
    Model changed = valid;
    m.apply(changed);
    if (!graph::verify(changed, form)) {
      tally.noticed(m.kind);
      continue;
    }
    // What is not functional is not run.
    const Outcome got = runs ? outcomeOfModel(changed, *program, 0) : want;
    const bool broken = !got.fault.empty() || (runs && got != outcomeOfModel(changed, *program, 0x55));
    tally.unnoticed(m.kind, name + ", " + m.where, broken ? Unnoticed::Broken : got == want ? Unnoticed::Same : Unnoticed::Another,
                    dataDecides(*program), got.fault);
  }
}

TEST(GraphVerifier, NoticesWhatIsDroppedOrAltered) {
  Tally tally({
      {"a node is dropped", {true, "nobody uses its results", true}},
      {"a node runs too late", {false, "its neighbour does not use its results; where operators write, order is meaning", true}},
      {"a node runs last", {false, "nothing behind it uses its results; where operators write, order is meaning", true}},
  });
  uint32_t seed = 1;
  for (const char *golden : kGoldens)
    for (Form form : {Form::AsExported, Form::Functional}) {
      Result<Model> model = readModel(std::string(NESO_SOURCE_DIR "/tests/goldens/") + golden, form == Form::Functional);
      ASSERT_TRUE(model) << golden << ": " << model.error().str();
      judge(*model, form, golden, seed++, tally);
    }
  tally.finish(3000);
}

} // namespace
} // namespace neso::test
