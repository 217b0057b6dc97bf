// The programs of tests/goldens, scheduled, against the loops interpreter: reads each .pt2, lowers it, runs the loops as they are and the plan
// by its own rules (ir/plan/interp.h) on random inputs, and compares; the plan that runs is read from its own text. Prints one line a program with --verbose.
//
//     schedule_goldens [--goldens DIR] [--only TEXT] [--verbose] [--print]
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "e2e/plan_steps.h"
#include "frontend/pt2/read.h"
#include "ir/graph/passes/coordinates.h"
#include "ir/graph/passes/functionalize.h"
#include "ir/graph/passes/primitives.h"
#include "ir/graph/passes/simplify.h"
#include "ir/graph/verify.h"
#include "ir/loops/numeric.h"
#include "ir/loops/verify.h"
#include "ir/plan/steps.h"
#include "ir/plan/access.h"
#include "ir/plan/interp.h"
#include "ir/plan/parse.h"
#include "ir/plan/steps.h"
#include "ir/plan/verify.h"
#include "lower/memory/memory.h"
#include "lower/graph_to_loops/lower.h"
#include "lower/schedule/access.h"
#include "lower/schedule/schedule.h"
#include "schedule/random_inputs.h"

namespace neso {
namespace {

namespace fs = std::filesystem;
using loops::HostValue;

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double element(const HostValue &v, int64_t e) {
  DType t = toReal(v.dtype);
  const uint8_t *at = v.data + e * itemSize(t);
  if (t == DType::F32) {
    float f;
    std::memcpy(&f, at, 4);
    return static_cast<double>(f);
  }
  if (t == DType::F64) {
    double d;
    std::memcpy(&d, at, 8);
    return d;
  }
  uint64_t bits = 0;
  std::memcpy(&bits, at, static_cast<size_t>(itemSize(t)));
  if (isReducedFloat(t)) return static_cast<double>(loops::decodeFloat(t, static_cast<uint32_t>(bits)));
  return static_cast<double>(loops::wrapInt(t, static_cast<int64_t>(bits)));
}

std::string difference(const HostValue &want, const HostValue &got) {
  if (want.kind != HostValue::Kind::Tensor) return "";
  // Sums in another order may differ in the last bits of the accumulator's type.
  double tolerance = isFloat(toReal(want.dtype)) ? (isReducedFloat(toReal(want.dtype)) ? 2e-2 : 1e-4) : 0;
  int64_t n = want.elements() * (isComplex(want.dtype) ? 2 : 1);
  for (int64_t e = 0; e < n; ++e) {
    double a = element(want, e), b = element(got, e);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    if (!(std::fabs(a - b) <= tolerance * std::max(1.0, std::fabs(a))))
      return fmt::format("element {}: {} by the loops, {} by the plan", e, a, b);
  }
  return "";
}

/// Where the arena is more than 1.1 times the bytes that live at the worst step (1.45 in plans with loops, where many blocks of one turn lie beside those
/// that all turns read: what the factorisations of tests/goldens/ops need at most), at small, usual and large sizes and at
/// mixtures of them. 128 bytes are granted: two blocks of alignment.
std::string arenaExcess(const plan::Plan &plan) {
  std::vector<Symbol> symbols = loops::sizeSymbols(plan.program);
  constexpr int64_t kSizes[] = {1, 2, 3, 4, 6, 10, 17, 31, 40, 64, 128, 500};
  double worst = 0;
  std::string where;
  // Arenas whose size the data decides share nothing with others: what a cache of the second level holds is not asked about.
  const bool late = std::any_of(plan.arenas.begin(), plan.arenas.end(), [](const plan::Arena &a) { return a.late; });
  const double slack = late ? 1 << 20 : 128;
  for (int64_t first : kSizes)
    for (int64_t others : kSizes) {
      SymbolMap<int64_t> sizes;
      for (size_t k = 0; k < symbols.size(); ++k) {
        Interval range = plan.program.facts.range(symbols[k]);
        sizes[symbols[k]] =
            std::clamp<int64_t>(k == 0 ? first : others, range.lo == INT64_MIN ? 1 : range.lo, range.hi);
      }
      double arena = static_cast<double>(evaluate(plan.arenaBytes(), sizes).value_or(0)),
             bound = static_cast<double>(evaluate(plan.arenaLowerBound, sizes).value_or(0));
      double ratio = (arena - slack) / std::max(bound, 1.0);
      if (ratio <= worst) continue;
      worst = ratio;
      where = fmt::format("{} of {} bytes at {}, {}", arena, bound, first, others);
    }
  bool loops = false;
  plan::forEachStep(plan.main, [&](const plan::Step &step) { loops = loops || step.as<plan::While>(); });
  return worst > (loops ? 1.45 : 1.1) ? where : "";
}

/// Puts the plan that the text says in place of the plan; weights keep their bytes. What went wrong, or "".
std::string replaceByText(plan::Plan &plan) {
  const std::string text = plan::print(plan);
  Result<plan::Plan> read = plan::parse(text, "plan");
  if (!read) return "the plan's text is not read: " + read.error().str();
  for (size_t k = 0; k < plan.program.constants.size(); ++k)
    read->program.constants[k].data = plan.program.constants[k].data,
    read->program.constants[k].owner = plan.program.constants[k].owner;
  if (std::string again = plan::print(*read); again != text) return "the plan's text is read as another: " + again;
  plan = std::move(*read);
  return "";
}

struct Options {
  std::string goldens = NESO_SOURCE_DIR "/tests/goldens", only;
  bool verbose = false, print = false;
};

enum class Outcome { Passed, Failed, Skipped };

Outcome check(const std::string &file, const std::string &id, const Options &options) {
  auto say = [&](const char *word, const std::string &text) {
    std::printf("%s %s: %s\n", word, id.c_str(), text.c_str());
  };
  Result<graph::Model> model = pt2::readPt2(file);
  if (!model) return Outcome::Skipped; // the reader has its own tests
  if (Status s = graph::verify(*model, graph::Form::AsExported); !s) {
    say("FAILED", s.error().str());
    return Outcome::Failed;
  }
  if (Status s = graph::writeOutCoordinates(*model); !s) return Outcome::Skipped;
  graph::openPrimitives(*model);
  if (Status s = graph::functionalize(*model); !s) return Outcome::Skipped;
  graph::simplify(*model);
  if (Status s = graph::verify(*model, graph::Form::Functional); !s) {
    say("FAILED", s.error().str());
    return Outcome::Failed;
  }
  DiagnosticSink sink;
  Result<loops::Program> program = lower::lowerGraph(*model, sink);
  if (!program) {
    if (options.verbose) say("skipped", program.error().diagnostics()[0].message);
    return Outcome::Skipped;
  }
  if (Status s = loops::verify(*program); !s) {
    say("FAILED", s.error().str());
    return Outcome::Failed;
  }
  double start = seconds();
  Result<plan::Plan> plan = schedule::schedule(*program);
  double spent = seconds() - start;
  if (!plan) {
    say("FAILED", plan.error().str());
    return Outcome::Failed;
  }
  Status sound = plan::verify(*plan, plan::Form::Scheduled);
  std::string lost;
  if (sound) {
    lost = replaceByText(*plan);
    memory::planMemory(*plan);
    sound = plan::verify(*plan);
    if (sound && lost.empty()) lost = replaceByText(*plan);
  }
  if (options.print) std::printf("%s%s", loops::print(*program).c_str(), plan::print(*plan).c_str());
  if (Status s = std::move(sound); !s) {
    say("FAILED", s.error().str());
    return Outcome::Failed;
  }
  if (!lost.empty()) {
    say("FAILED", lost);
    return Outcome::Failed;
  }
  if (std::string excess = arenaExcess(*plan); !excess.empty()) {
    say("FAILED", "the arena has " + excess);
    return Outcome::Failed;
  }
  std::vector<HostValue> inputs = randomInputs(*program, 1), again = randomInputs(*program, 1);
  Result<std::vector<HostValue>> want = loops::Interpreter(*program).run(inputs);
  if (!want) {
    if (options.verbose) say("skipped", want.error().str());
    return Outcome::Skipped; // random inputs that the model refuses
  }
  std::vector<std::string> walked;
  plan::PlanRunner runner(*plan, again, 3);
  runner.onStep = [&](std::string_view kind, const plan::Kernel *kernel) {
    walked.push_back(std::string(kind) + (kernel ? " " + kernel->name : ""));
  };
  Result<plan::PlanRun> got = runner.run();
  if (!got) {
    say("FAILED", got.error().str());
    return Outcome::Failed;
  }
  if (std::string d = e2e::differenceOfSteps(e2e::stepsOfPlan(plan::print(*plan)), walked); !d.empty()) {
    say("FAILED", d);
    return Outcome::Failed;
  }
  for (size_t k = 0; k < want->size(); ++k)
    if (std::string d = difference((*want)[k], got->outputs[k]); !d.empty()) {
      say("FAILED", fmt::format("output {}: {}", k, d));
      return Outcome::Failed;
    }
  if (options.verbose) {
    int64_t moved = 0;
    SymbolMap<int64_t> sizes = *loops::bindSizes(*program, inputs);
    for (const plan::Kernel &k : plan->kernels) {
      plan::KernelTraffic t = plan::traffic(*plan, k);
      moved += evaluate(t.bytesRead + t.bytesWritten, sizes).value_or(0);
    }
    say("passed", fmt::format("{} nodes, {} kernels, {:.3f} MB moved, arena {} of {} bytes, {:.1f} ms",
                              program->nodes.size(), plan->kernels.size(), static_cast<double>(moved) / 1e6,
                              got->arenaBytes, got->lowerBound, spent * 1e3));
  }
  return Outcome::Passed;
}

int run(const Options &options) {
  std::vector<fs::path> files;
  for (const fs::directory_entry &e : fs::recursive_directory_iterator(options.goldens))
    if (e.path().extension() == ".pt2") files.push_back(e.path());
  std::sort(files.begin(), files.end());
  int counts[3] = {};
  for (const fs::path &f : files) {
    std::string id = fs::relative(f, options.goldens).string();
    if (id.find(options.only) == std::string::npos) continue;
    ++counts[static_cast<int>(check(f.string(), id, options))];
    std::fflush(stdout);
  }
  std::printf("%d passed, %d failed, %d skipped\n", counts[0], counts[1], counts[2]);
  return counts[1] != 0;
}

} // namespace
} // namespace neso

int main(int argc, char **argv) {
  neso::Options options;
  for (int a = 1; a < argc; ++a) {
    std::string arg = argv[a];
    if (arg == "--goldens" && a + 1 < argc)
      options.goldens = argv[++a];
    else if (arg == "--only" && a + 1 < argc)
      options.only = argv[++a];
    else if (arg == "--verbose")
      options.verbose = true;
    else if (arg == "--print")
      options.print = true;
    else
      return std::fprintf(stderr, "usage: schedule_goldens [--goldens DIR] [--only TEXT] [--verbose] [--print]\n"), 2;
  }
  return neso::run(options);
}
