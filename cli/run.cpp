// neso run: one run of a package (or of a .pt2, compiled in memory first) on inputs from files, its outputs to a file.
#include <algorithm>
#include <map>

#include "base/diagnostics/cli.h"
#include "flags.h"
#include "session.h"
#include "summary.h"
#include "verb.h"

namespace neso::cli {
namespace {
struct Options {
  SessionOptions session;
  std::string output, trace;
  StepsOptions steps;
  bool strides = false, random = false;
};

std::string strideText(const neso_tensor &t) {
  std::string text;
  for (int32_t d = 0; d < t.rank; ++d) text += fmt::format("{}{}", d ? "," : "", t.strides ? t.strides[d] : 0);
  return text;
}

// To a file by its ending; without one, a line for each on standard output.
Status deliver(const std::string &path, const std::vector<HostTensor> &results,
               const std::map<std::string, std::string> &metadata) {
  if (path.empty()) {
    printSummaries(results);
    return Status::ok();
  }
  if (!path.ends_with(".npy")) return writeSafetensors(path, results, metadata);
  if (results.size() != 1)
    return fail(diag::NpyImpossible, {path, 0, 0, {}}, fmt::format("there are {} tensors to write", results.size()));
  return writeNpy(path, results[0]);
}

int run(Options o) {
  o.session.needInputs = !o.random;
  Trace trace;
  if (!o.trace.empty()) o.session.trace = &trace;
  Steps steps(o.steps);
  if (o.steps.wanted()) o.session.steps = &steps;
  Session session;
  if (Status s = session.open(o.session); !s) return report(s.error());
  const neso_status status = session.run();
  if (!steps.status()) return report(steps.status().error());
  if (status != NESO_OK) return report(status);

  std::vector<HostTensor> results;
  std::map<std::string, std::string> metadata;
  Status kept;
  auto keep = [&](const std::string &name, const neso_tensor &t) {
    Result<HostTensor> copy = session.hostCopy(name, t);
    if (copy)
      results.push_back(std::move(*copy));
    else
      kept = copy.takeError();
  };
  for (size_t i = 0; i < session.outputs.size(); ++i) {
    if (!session.outputs[i].data) continue;
    // Files number the outputs, as they do the inputs; people see their names.
    keep(o.output.empty() ? outputName(session.model(), i) : std::to_string(i), session.outputs[i]);
    if (o.strides) metadata["strides." + std::to_string(i)] = strideText(session.outputs[i]);
  }
  for (size_t i = 0; i < session.views.size(); ++i)
    if (session.inputIsMutated(i)) keep(fmt::format("input.{}", i), session.views[i]);
  for (const auto &[name, buffer] : session.mutatedBuffers()) keep("buffer." + name, buffer);
  if (!kept) return report(kept.error());
  if (!o.trace.empty())
    if (Status s = trace.write(o.trace); !s) return report(s.error());
  Status s = deliver(o.output, results, metadata);
  return s ? 0 : report(s.error());
}
} // namespace

void declareRun(const Verb &parent) {
  auto o = std::make_shared<Options>();
  o->session.needInputs = true;
  const Verb verb = parent.verb("run", "run a package (or a .pt2, compiled in memory first) once");
  verb.option("model", o->session.model, "the package").required().placeholder("FILE");
  verb.option("-o,--output", o->output, "where the outputs go: .safetensors, or .npy for a single one (default: a line for "
              "each on the terminal)").placeholder("FILE");
  declareSession(verb, o->session);
  const Option random = verb.flag("--random", o->random, "make the inputs at random, inside the exported ranges");
  verb.option("--seed", o->session.seed, "of random inputs").needs(random);
  verb.option("--dim", o->session.dims, "a size of random inputs: s0=17").needs(random).single().placeholder("NAME=N");
  const Option trace = verb.option("--trace", o->trace, "also write the run's steps and their times, as JSON that Perfetto opens").placeholder("FILE");
  declarePerfMap(verb, o->session);
  const Option show = verb.flag("--steps", o->steps.show, "a line for each tensor that each step reads or writes").excludes(trace);
  const Option dump = verb.option("--dump", o->steps.folder, "a folder that gets the tensors of each step as NUMBER_KERNEL.safetensors").excludes(trace).placeholder("DIR");
  verb.option("--filter", o->steps.filter, "of --steps and --dump: only steps whose kernel, or a tensor of which, this regular expression finds")
      .check([show, dump](const std::string &text) { return show.count() + dump.count() == 0 ? "it needs --steps or --dump" : badExpression(text); }).placeholder("REGEX");
  verb.flag("--check-nan", o->session.checkNan, "end the run at the first step that makes a NaN, and name its kernel, lines and modules");
  verb.flag("--strides", o->strides, "add the outputs' strides to the file's metadata");
  verb.work([o] { return run(*o); }, [o] { return std::string(o->session.sample && o->random ? "--sample: --random says what the inputs are" : ""); });
}

} // namespace neso::cli
