// Claim: the verifier of loops notices when one thing of a valid program is dropped or altered. What it does not notice is
// run on random inputs, over memory of two fillings: it must be sound, and its kind among the excuses.
#include "verifiers/mutants.h"

#include "driver/compile.h"
#include "ir/loops/verify.h"
#include "lower/schedule/test/random_program.h"
#include "verifiers/loops_mutants.h"
#include "verifiers/loops_outcome.h"

namespace neso::test {
namespace {

using loops::Program;

/// Of each kind of node, of region and of memory.
constexpr const char *kGoldens[] = {
    "ops/attention/grouped_queries.pt2", "ops/attention/mask_added.pt2",   "ops/attention/dynamic_causal.pt2",
    "ops/bags/segments_mean.pt2",        "ops/bags/weighted.pt2",          "ops/bags/dynamic.pt2",
    "ops/ordering/sort.pt2",             "ops/ordering/topk.pt2",          "ops/ordering/cumsum_dynamic.pt2",
    "ops/ordering/cummax.pt2",           "ops/reductions/argmax.pt2",      "ops/reductions/var_mean.pt2",
    "ops/reductions/any_all.pt2",        "ops/reductions/sum_dynamic.pt2", "ops/regions/cond_nested.pt2",
    "ops/regions/while_counts.pt2",      "ops/regions/scan_rows.pt2",      "ops/regions/map_dynamic.pt2",
    "ops/data_sizes/masked.pt2",         "ops/data_sizes/unique_rows.pt2", "ops/data_sizes/item_arithmetic.pt2",
    "ops/data_sizes/masked_rows.pt2",    "ops/updates/linear_scattered.pt2", "ops/updates/put.pt2",
    "state/cache.export.pt2",            "state/transposed.export.pt2",    "state/dynamic.export.pt2",
    "state/interleaved.export.pt2",      "weights/mlp_bf16.pt2",           "user_kernels/add_dynamic/model.pt2",
    "user_kernels/mutates_input_slice/model.pt2",
};

class LoopsVerifier : public ::testing::Test {
protected:
  static std::map<std::string, Excuse> excuses() {
    constexpr const char *kUnused = "nobody uses what it computes, or it only changes what others wrote";
    constexpr const char *kInside = "it stays inside its buffer";
    return {
        {"a dimension more", {false, "the same work once more, which sums into memory see"}},
        {"a node is dropped", {false, kUnused, true}},
        {"a store is dropped", {false, kUnused, true}},
        {"a block of a region is dropped", {false, "a turn that does nothing ends no loop, which may end before its first", true}},
        {"a result's store is dropped", {true, kUnused}},
        {"an operation is dropped", {true, kUnused}},
        {"a range is shorter by one", {false, kUnused, true}},
        {"a node runs too late", {false, "its neighbour does not depend on it, or both change what is there"}},
        {"a node runs last", {false, "nothing behind it depends on it, or both change what is there"}},
        {"an accumulator of another dtype", {true, "positions and truths have a dtype of their own"}},
        {"an index moved by one", {false, kInside, true}},
        {"an index moved back by one", {false, kInside, true}},
        {"a range is longer by one", {false, kInside, true}},
        {"an index before its buffer", {false, kInside, true}},
        {"an index behind its buffer", {false, kInside, true}},
        {"a buffer is shorter by one", {false, kInside, true}},
        {"a buffer is half as long", {false, kInside, true}},
        {"an output before its buffer", {true, kInside, true}},
        {"an output behind its buffer", {true, kInside, true}},
    };
  }
  static void judge(const Program &valid, const std::string &name, uint32_t seed, Tally &tally) {
    ASSERT_TRUE(loops::verify(valid)) << name << ": " << loops::verify(valid).error().str();
    const bool byData = dataDecides(valid);
    const Outcome want = outcomeOf(valid, valid, 0);
    ASSERT_EQ(want.fault, "") << name;
    ASSERT_EQ(want, outcomeOf(valid, valid, 0x55)) << name << " reads what nobody wrote";
    for (const Mutant<Program> &m : someOfEach(mutantsOf(valid), 4, seed)) {
      Program changed = valid;
      m.apply(changed);
      if (!loops::verify(changed)) {
        tally.noticed(m.kind);
        continue;
      }
      const Outcome got = outcomeOf(changed, valid, 0);
      const bool broken = !got.fault.empty() || got != outcomeOf(changed, valid, 0x55);
      tally.unnoticed(m.kind, name + ", " + m.where, broken ? Unnoticed::Broken : got == want ? Unnoticed::Same : Unnoticed::Another, byData,
                      got.fault);
    }
  }
};

TEST_F(LoopsVerifier, NoticesWhatIsDroppedOrAltered) {
  Tally tally(excuses());
  uint32_t seed = 1;
  for (const char *golden : kGoldens) {
    DiagnosticSink sink;
    Result<Program> program = lowerModel(std::string(NESO_SOURCE_DIR "/tests/goldens/") + golden, {}, sink);
    ASSERT_TRUE(program) << golden << ": " << program.error().str();
    judge(*program, golden, seed++, tally);
  }
  for (uint32_t k = 0; k < 12; ++k) {
    Program program = schedule::test::RandomProgram(k).p;
    // As models say with which sizes they were made.
    for (Symbol s : loops::sizeSymbols(program)) program.facts.setHint(s, 6);
    judge(program, fmt::format("random {}", k), seed++, tally);
  }
  tally.finish(5000);
}

} // namespace
} // namespace neso::test
