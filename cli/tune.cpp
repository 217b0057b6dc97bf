#include "tune.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>

#include "backend/target.h"
#include "base/atomic_file.h"
#include "base/diagnostics/tune.h"
#include "driver/tuning.h"
#include "model_file.h"
#include "neso/neso.h"
#include "timing.h"

namespace neso::cli {
namespace {

constexpr int kWarmRuns = 3, kLeastRuns = 5, kMostRuns = 30;
constexpr double kBudgetMs = 300; // of the timed runs of one way
// Another way must be faster than the cost model's by so much: smaller differences are noise.
constexpr double kGain = 0.97;

using Choose = std::function<size_t(const std::string &, const std::vector<std::string> &)>;

/// A package in memory, on a device, with random inputs, timed step by step.
class TimedModel {
public:
  TimedModel() = default;
  TimedModel(const TimedModel &) = delete;
  TimedModel &operator=(const TimedModel &) = delete;
  ~TimedModel() {
    neso_context_free(context_);
    neso_model_free(model_);
  }

  Status open(const std::string &package, const TuneRequest &request) {
    if (neso_status s = neso_model_load_memory(package.data(), package.size(), nullptr, &model_); s != NESO_OK)
      return runtimeError(s);
    Result<std::vector<HostTensor>> inputs = randomInputs(model_, 0, request.dims);
    if (!inputs) return inputs.takeError();
    inputs_ = std::move(*inputs);
    views_ = tensorViews(inputs_);
    outputs_.resize(static_cast<size_t>(neso_model_output_count(model_)));
    neso_context_options options{};
    options.struct_size = sizeof options;
    options.threads = request.runThreads;
    options.time_steps = 1;
    request.device.apply(options);
    neso_status s = neso_context_create(model_, &options, &context_);
    return s == NESO_OK ? Status::ok() : Status(runtimeError(s));
  }

  /// Kernel → milliseconds of one of its launches: the middle of several runs, over all its steps. `runMs`: of a whole
  /// run.
  Result<std::map<std::string, double>> measure(double &runMs) {
    std::map<std::string, std::vector<double>> times;
    double begin = 0;
    int runs = 0;
    for (int i = 0; i < kWarmRuns + kMostRuns; ++i) {
      if (i == kWarmRuns) begin = nowMs();
      std::fill(outputs_.begin(), outputs_.end(), neso_tensor{});
      if (neso_status s = neso_run(context_, views_.data(), views_.size(), outputs_.data(), outputs_.size());
          s != NESO_OK)
        return runtimeError(s);
      if (i < kWarmRuns) continue;
      ++runs;
      neso_step_time step;
      for (int64_t k = 0; neso_context_step_time(context_, k, &step) == NESO_OK; ++k)
        if (step.kernel) times[step.kernel].push_back(step.ms);
      if (runs >= kLeastRuns && nowMs() - begin > kBudgetMs) break;
    }
    runMs = (nowMs() - begin) / runs;
    std::map<std::string, double> out;
    for (auto &[kernel, all] : times) {
      std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2), all.end());
      out[kernel] = all[all.size() / 2];
    }
    return out;
  }

private:
  neso_model *model_ = nullptr;
  neso_context *context_ = nullptr;
  std::vector<HostTensor> inputs_;
  std::vector<neso_tensor> views_, outputs_;
};

/// What is known of one key: its ways, and the mean time of a launch in each, over the kernels that have the key.
struct Measured {
  std::vector<std::string> ways;
  std::vector<double> ms, launches; // one a way; no launches: not measured
};

Result<TuneResults> readResults(const std::string &path, bool mayBeAbsent) {
  std::ifstream file(path, std::ios::binary);
  if (!file && mayBeAbsent) return TuneResults();
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return fail(diag::FileUnreadable, {}, path, std::string("no such file, or not readable"));
  return TuneResults::parse(text.str(), path);
}

/// The ways of a results file, by name. One that this compiler does not have any more is the cost model's.
Choose chooseFrom(const TuneResults &results) {
  return [&results](const std::string &key, const std::vector<std::string> &ways) {
    const TuneResults::Entry *entry = results.find(key);
    auto it = entry ? std::find(ways.begin(), ways.end(), entry->way) : ways.end();
    return it == ways.end() ? size_t(0) : static_cast<size_t>(it - ways.begin());
  };
}

Status checkDevice(TuneRequest &request, CompileOptions &options) {
  if (Status s = request.device.parse(); !s) return s;
  Result<DeviceChoice::Code> code = request.device.code();
  if (!code) return code.takeError();
  if (code->target != options.target)
    return fail(diag::TuneDevice, {}, request.device.text, "a " + code->target + " device", options.target, code->arch);
  if (!request.device.apart()) return Status::ok();
  if (options.archs.empty()) options.archs = {code->arch};
  // Of a chip with instructions of its own, code without them too.
  const Backend &backend = *findBackend(options.target);
  for (const std::string &arch : options.archs) {
    const Target *most = backend.ofDevice(arch);
    if (arch == code->arch || (most && most->name == code->arch)) return Status::ok();
  }
  std::string archs;
  for (const std::string &a : options.archs) archs += (archs.empty() ? "" : ", ") + a;
  return fail(diag::TuneDevice, {}, request.device.text, code->arch, archs, code->arch);
}

/// Way number `round` of every kernel that has so many, the cost model's of the others.
Status measureRound(const std::string &model, CompileOptions options, const TuneRequest &request, DiagnosticSink &sink,
                    size_t round, std::map<std::string, Measured> &measured) {
  options.chooseWay = [round](const std::string &, const std::vector<std::string> &ways) {
    return round < ways.size() ? round : 0;
  };
  Result<Compilation> c = compileModel(model, options, sink);
  if (!c) return c.takeError();
  TimedModel timed;
  if (Status s = timed.open(c->package, request); !s) return s;
  double runMs = 0;
  Result<std::map<std::string, double>> times = timed.measure(runMs);
  if (!times) return times.takeError();
  for (const KernelWay &way : c->ways) {
    auto time = times->find(way.kernel);
    if (time == times->end()) continue;
    Measured &m = measured[way.key];
    m.ways = way.ways;
    m.ms.resize(way.ways.size()), m.launches.resize(way.ways.size());
    // The cost model's way runs in every round; the first one counts.
    if (way.way == 0 && round > 0) continue;
    m.ms[way.way] += time->second, m.launches[way.way] += 1;
  }
  std::fprintf(stderr, "tuning: round %zu, %.3f ms a run\n", round + 1, runMs);
  return Status::ok();
}

size_t roundsOf(const std::map<std::string, Measured> &measured) {
  size_t most = 1;
  for (const auto &[key, m] : measured) most = std::max(most, m.ways.size());
  return most;
}

void addResults(const std::map<std::string, Measured> &measured, TuneResults &results) {
  for (const auto &[key, m] : measured) {
    if (m.ways.size() < 2 || m.launches[0] == 0) continue;
    const double model = m.ms[0] / m.launches[0];
    size_t best = 0;
    double least = model * kGain;
    for (size_t w = 1; w < m.ways.size(); ++w)
      if (m.launches[w] > 0 && m.ms[w] / m.launches[w] < least) best = w, least = m.ms[w] / m.launches[w];
    results.set(key, {m.ways[best], (best ? least : model) * 1e3, model * 1e3});
  }
}

} // namespace

Result<Compilation> compileTuned(const std::string &model, CompileOptions options, TuneRequest &request,
                                 DiagnosticSink &sink) {
  const bool measure = !request.measureInto.empty();
  Result<TuneResults> results = readResults(measure ? request.measureInto : request.readFrom, measure);
  if (!results) return results.takeError();
  if (measure) {
    if (Status s = checkDevice(request, options); !s) return s.takeError();
    CompileOptions quick = options;
    quick.report = false;
    quick.output.clear(), quick.weights = {};
    std::map<std::string, Measured> measured;
    if (Status s = measureRound(model, quick, request, sink, 0, measured); !s) return s.takeError();
    const size_t rounds = roundsOf(measured);
    for (size_t round = 1; round < rounds; ++round)
      if (Status s = measureRound(model, quick, request, sink, round, measured); !s)
        std::fprintf(stderr, "tuning: round %zu of %zu is passed over: %s\n", round + 1, rounds,
                     s.error().str().c_str());
    addResults(measured, *results);
  }
  options.chooseWay = chooseFrom(*results);
  Result<Compilation> c = compileModel(model, options, sink);
  if (c && measure)
    if (Status s = writeFileAtomically(request.measureInto, results->str()); !s) return s.takeError();
  return c;
}

} // namespace neso::cli
