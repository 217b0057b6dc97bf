// neso bench: how long loading, the first run and later runs of a package take, and how much memory a run holds.
#include "bench_report.h"
#include "base/json.h"
#include "flags.h"
#include "session.h"
#include "timing.h"
#include "verb.h"

namespace neso::cli {
namespace {
struct Options {
  SessionOptions session;
  int iterations = 0;
  bool json = false;
  std::string report, trace;
};

// Who computes the products that the package leaves to a library, and how wide its graphs are.
std::string librariesText(const neso_model_stats &model, const neso_device_stats &s) {
  std::string out = fmt::format("{} graphs", s.graphs);
  if (s.graph_streams > 1) out += fmt::format(" over {} streams", s.graph_streams);
  if (model.product_count == 0) return out + "\n";
  if (!s.library)
    return out + fmt::format("\nproducts {} that cuBLASLt may compute, by the package's own kernels: no cuBLASLt is "
                             "found or wanted\n",
                             model.product_count);
  return out + fmt::format("\nproducts {} of {} by cuBLASLt {}.{}.{}, {}\n", s.library_products, model.product_count,
                           s.library_version / 10000, s.library_version / 100 % 100, s.library_version % 100,
                           s.library);
}

// Some runs more, whose steps are noted: those that were measured were not slowed down by it.
Status writeTrace(Session &session, const std::string &path) {
  constexpr int kRuns = 10;
  Trace trace;
  if (Status s = trace.attach(session.context()); !s) return s;
  for (int i = 0; i < kRuns; ++i)
    if (neso_status s = session.run(); s != NESO_OK) return runtimeError(s);
  return trace.write(path);
}

// The runs after the first one: `warm` back to back, on a GPU also each with a cold second-level cache.
neso_status measureRuns(Session &session, const Options &o, double firstMs, size_t l2Bytes, Spread &warm,
                        Spread &coldCache) {
  if (!o.session.device.apart()) {
    auto once = [&](double *ms) {
      double begin = nowMs();
      neso_status s = session.run();
      *ms = nowMs() - begin;
      return s;
    };
    return measure(once, o.iterations, firstMs, warm);
  }
  DeviceTimer timer(session.context(), o.session.device, l2Bytes);
  auto run = [&] {
    return neso_run_async(session.context(), session.views.data(), session.views.size(), session.outputs.data(),
                          session.outputs.size());
  };
  if (neso_status s = measure(timer.warm(run), o.iterations, firstMs, warm); s != NESO_OK) return s;
  return measure(timer.cold(run), o.iterations, firstMs, coldCache);
}

int run(Options o) {
  Session session;
  o.session.check = NESO_CHECK_DEFAULT;
  // Before anything is measured; times are taken at the sizes of its figures.
  Result<std::string> page = std::string();
  if (!o.report.empty() && !(page = readReport(o.report))) return report(page.error());
  if (!o.report.empty() && o.session.dims.empty() && o.session.inputs.empty()) o.session.dims = sizesOfReport(*page);
  if (Status s = session.open(o.session); !s) return report(s.error());
  if (!o.report.empty())
    if (Status s = checkReport(o.report, *page, session.model()); !s) return report(s.error());
  neso_device_info device{};
  if (Status s = o.session.device.info(device); !s) return report(s.error());
  bool gpu = o.session.device.apart();
  if (gpu)
    if (Status s = session.moveToDevice(); !s) return report(s.error());
  double begin = nowMs();
  if (neso_status s = session.run(); s != NESO_OK) return report(s);
  double coldMs = nowMs() - begin;
  Spread warm, coldCache;
  if (neso_status s = measureRuns(session, o, coldMs, device.l2_bytes, warm, coldCache); s != NESO_OK) return report(s);
  if (neso_status s = neso_context_synchronize(session.context()); s != NESO_OK) return report(s);
  if (!o.report.empty())
    if (Status s = writeReportTimes(o.report, std::move(*page), session, o.session, warm); !s) return report(s.error());
  if (!o.trace.empty())
    if (Status s = writeTrace(session, o.trace); !s) return report(s.error());
  neso_context_stats stats;
  neso_device_stats onDevice;
  neso_model_stats model;
  neso_model_get_stats(session.model(), &model);
  neso_context_get_stats(session.context(), &stats);
  neso_context_get_device_stats(session.context(), &onDevice);
  size_t peak =
      stats.arena_bytes + stats.output_bytes + stats.buffer_bytes + stats.scratch_bytes + onDevice.constant_bytes;
  if (o.json) {
    std::string more =
        gpu ? fmt::format(", \"cold_l2\": {}, \"name\": {}, \"arch\": \"{}\", \"graphs\": {}, \"graph_streams\": {}, "
                          "\"products\": {}, \"library_products\": {}, \"library\": {}, \"box_launches\": {}",
                          coldCache.json(), jsonString(device.name), device.arch, onDevice.graphs,
                          onDevice.graph_streams, model.product_count, onDevice.library_products,
                          onDevice.library ? jsonString(onDevice.library) : "null", onDevice.box_launches)
            : "";
    fmt::print("{{\"warm\": {}, \"cold_ms\": {:.6f}, \"load_ms\": {:.6f}, \"steps\": {}, \"peak_bytes\": {}, "
               "\"threads\": {}, \"device\": {}{}}}\n",
               warm.json(), coldMs, session.loadMs(), stats.steps, peak, stats.threads,
               jsonString(o.session.device.text), more);
    return 0;
  }
  fmt::print("warm   {}\n", warm.text());
  if (gpu) fmt::print("cold L2 {}\n", coldCache.text());
  fmt::print("cold   {:.4f} ms\nload   {:.4f} ms\nsteps  {}\nmemory {} bytes ({} for intermediate results", coldMs,
             session.loadMs(), stats.steps, peak, stats.arena_bytes);
  if (gpu)
    fmt::print(", {} for constants)\ndevice {}: {} ({}), {}", onDevice.constant_bytes, o.session.device.text,
               device.name, device.arch, librariesText(model, onDevice));
  else
    fmt::print(")\nthreads {}, device {}\n", stats.threads, o.session.device.text);
  return 0;
}
} // namespace

void declareBench(const Verb &parent) {
  auto o = std::make_shared<Options>();
  const Verb verb = parent.verb("bench", "measure a package: load, first run, warm runs, memory");
  verb.option("model", o->session.model, "the package").required().placeholder("FILE");
  declareSession(verb, o->session);
  verb.option("--iters", o->iterations, "timed runs (default: about a second's worth)").range(1, 100000000);
  verb.flag("--json", o->json, "one JSON object");
  verb.option("--report", o->report, "the page that compile --report wrote: what each kernel takes is put into it").placeholder("FILE");
  verb.option("--trace", o->trace, "also write the steps of ten further runs and their times, as JSON that Perfetto opens").placeholder("FILE");
  declarePerfMap(verb, o->session);
  verb.work([o] { return run(*o); });
}

} // namespace neso::cli
