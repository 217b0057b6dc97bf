// neso bench: how long loading, the first run and later runs of a package take, and how much memory a run holds.
#include <algorithm>
#include <chrono>

#include <CLI/CLI.hpp>

#include "model_file.h"
#include "verb.h"

namespace neso::cli {
namespace {
struct Options {
  std::string model, device = "cpu";
  std::vector<std::string> inputs, dims;
  int iterations = 0, threads = 0;
  uint64_t seed = 0;
  bool json = false;
};

double nowMs() { return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// p in [0, 1]; interpolates between neighbours. `sorted` is not empty.
double quantile(const std::vector<double> &sorted, double p) {
  double at = p * static_cast<double>(sorted.size() - 1);
  size_t low = static_cast<size_t>(at), high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (at - static_cast<double>(low));
}

int run(const Options &o) {
  if (Status s = checkDevice(o.device); !s) return report(s.error());
  OpenModel model;
  double start = nowMs();
  if (Status s = model.open(o.model, NESO_CHECK_DEFAULT); !s) return report(s.error());
  double loadMs = nowMs() - start;
  Result<std::vector<HostTensor>> inputs = o.inputs.empty() ? randomInputs(model.get(), o.seed, o.dims) : inputsFromFiles(model.get(), o.inputs);
  if (!inputs) return report(inputs.error());
  neso_context_options options{};
  options.struct_size = sizeof options;
  options.threads = o.threads;
  neso_context *raw = nullptr;
  if (neso_status s = neso_context_create(model.get(), &options, &raw); s != NESO_OK) return report(s);
  std::unique_ptr<neso_context, void (*)(neso_context *)> context(raw, neso_context_free);
  std::vector<neso_tensor> views = tensorViews(*inputs), outputs(static_cast<size_t>(neso_model_output_count(model.get())));
  auto once = [&](double *ms) {
    double begin = nowMs();
    neso_status s = neso_run(raw, views.data(), views.size(), outputs.data(), outputs.size());
    *ms = nowMs() - begin;
    return s;
  };
  double coldMs = 0, ms = 0;
  if (neso_status s = once(&coldMs); s != NESO_OK) return report(s);
  // Without --iters: for about a second, at least 10 runs and at most 1000.
  for (double until = nowMs() + std::min(200.0, 5 * coldMs); nowMs() < until;)
    if (neso_status s = once(&ms); s != NESO_OK) return report(s);
  std::vector<double> times;
  double end = nowMs() + 1000;
  while (o.iterations > 0 ? times.size() < static_cast<size_t>(o.iterations) : times.size() < 10 || (nowMs() < end && times.size() < 1000)) {
    if (neso_status s = once(&ms); s != NESO_OK) return report(s);
    times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  neso_context_stats stats;
  neso_context_get_stats(raw, &stats);
  size_t peak = stats.arena_bytes + stats.output_bytes + stats.buffer_bytes + stats.scratch_bytes;
  double median = quantile(times, 0.5), p10 = quantile(times, 0.1), p90 = quantile(times, 0.9);
  if (o.json) {
    fmt::print("{{\"warm\": {{\"median_ms\": {:.6f}, \"p10_ms\": {:.6f}, \"p90_ms\": {:.6f}}}, \"cold_ms\": {:.6f}, \"load_ms\": {:.6f}, \"steps\": {}, \"peak_bytes\": {}, \"threads\": {}, \"device\": {}}}\n", median,
               p10, p90, coldMs, loadMs, stats.steps, peak, stats.threads, jsonString(o.device));
  } else {
    fmt::print("warm   median {:.4f} ms   p10 {:.4f} ms   p90 {:.4f} ms   ({} runs)\ncold   {:.4f} ms\nload   {:.4f} ms\nsteps  {}\nmemory {} bytes ({} for intermediate results)\nthreads {}, device {}\n", median, p10, p90,
               times.size(), coldMs, loadMs, stats.steps, peak, stats.arena_bytes, stats.threads, o.device);
  }
  return 0;
}
} // namespace

void declareBench(CLI::App &parent, Action &todo) {
  auto o = std::make_shared<Options>();
  CLI::App *app = parent.add_subcommand("bench", "measure a package: load, first run, warm runs, memory");
  app->add_option("model", o->model, "the package")->required();
  app->add_option("--input", o->inputs, "inputs as for run; without it they are random, inside the exported ranges")->allow_extra_args(false);
  app->add_option("--iters", o->iterations, "timed runs (default: about a second's worth)")->check(CLI::Range(1, 100000000));
  app->add_option("--threads", o->threads, "0: one per core")->check(CLI::Range(0, 4096));
  app->add_option("--seed", o->seed, "of random inputs");
  app->add_option("--dim", o->dims, "a size of random inputs: s0=17")->allow_extra_args(false);
  app->add_option("--device", o->device, "cpu, cuda or cuda:N");
  app->add_flag("--json", o->json, "one JSON object");
  app->callback([o, &todo] { todo = [o] { return run(*o); }; });
}

} // namespace neso::cli
