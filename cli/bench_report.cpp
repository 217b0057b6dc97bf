#include "bench_report.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include <fmt/format.h>

#include "base/atomic_file.h"
#include "base/diagnostics/cli.h"
#include "base/diagnostics/common.h"
#include "base/json.h"
#include "driver/report.h"

namespace neso::cli {
namespace {

constexpr int kRuns = 15;

/// Bytes read and written a nanosecond by the device's own copies of what no cache holds.
Result<double> deviceCopyLimit(Session &session, const DeviceChoice &device) {
  constexpr int kCopies = 8;
  neso_device_info info{};
  if (Status s = device.info(info); !s) return s.takeError();
  int64_t size = static_cast<int64_t>(std::max<size_t>(4 * info.l2_bytes, size_t{128} << 20));
  neso_tensor from{nullptr, &size, nullptr, 1, NESO_U8, device.kind, device.index}, to = from;
  neso_context *context = session.context();
  for (neso_tensor *t : {&from, &to})
    if (neso_status s = neso_context_allocate(context, static_cast<size_t>(size), &t->data); s != NESO_OK) return runtimeError(s);
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    neso_status s = neso_context_mark(context, 0);
    for (int i = 0; i < kCopies && s == NESO_OK; ++i) s = neso_tensor_copy(context, &to, &from);
    if (s == NESO_OK) s = neso_context_mark(context, 1);
    double ms = 0;
    if (s == NESO_OK) s = neso_context_elapsed(context, 0, 1, &ms);
    if (s != NESO_OK) return runtimeError(s);
    if (ms > 0) best = std::max(best, 2.0 * kCopies * static_cast<double>(size) / ms / 1e6);
  }
  return best;
}

/// Milliseconds that `threads` threads take for body(thread) together; the least of several times.
template <typename Body> double together(int threads, const Body &body) {
  double best = 1e30;
  for (int round = 0; round < 5; ++round) {
    const double begin = nowMs();
    std::vector<std::thread> others;
    for (int i = 1; i < threads; ++i) others.emplace_back([&body, i] { body(i); });
    body(0);
    for (std::thread &t : others) t.join();
    best = std::min(best, nowMs() - begin);
  }
  return best;
}

/// Bytes read and written a nanosecond by plain copies of what no cache holds.
double copyLimit(int threads) {
  const size_t bytes = size_t(64) << 20;
  std::vector<std::vector<char>> from(static_cast<size_t>(threads), std::vector<char>(bytes, 1)), to = from;
  const double ms = together(threads, [&](int i) { std::memcpy(to[static_cast<size_t>(i)].data(), from[static_cast<size_t>(i)].data(), bytes); });
  return 2.0 * static_cast<double>(bytes) * threads / ms / 1e6;
}

using Lanes = float __attribute__((vector_size(64)));
constexpr int kTurns = 400'000, kChains = 12;

/// Chains of multiplications with additions that wait for nobody else's.
__attribute__((target_clones("avx512f", "fma", "default"))) float multiplyChains(float seed) {
  Lanes sums[kChains], a = Lanes{} + seed, b = Lanes{} + 0.5f;
  for (Lanes &s : sums) s = a;
  for (int i = 0; i < kTurns; ++i)
    for (Lanes &s : sums) s = s * b + a;
  Lanes all{};
  for (const Lanes &s : sums) all += s;
  return all[0];
}

/// Multiplications and additions in f32 a nanosecond.
double multiplyLimit(int threads) {
  std::vector<float> results(static_cast<size_t>(threads));
  const double ms = together(threads, [&](int i) { results[static_cast<size_t>(i)] = multiplyChains(static_cast<float>(i)); });
  volatile float kept = results[0];
  (void)kept;
  return 2.0 * 16 * kChains * static_cast<double>(kTurns) * threads / ms / 1e6;
}

} // namespace

Status KernelTimer::open(const Session &session, const SessionOptions &options) {
  session_ = &session;
  neso_context_options o{};
  o.struct_size = sizeof o;
  o.threads = options.threads;
  o.time_steps = 1;
  options.device.apply(o);
  neso_status s = neso_context_create(session.model(), &o, &context_);
  return s == NESO_OK ? Status::ok() : Status(runtimeError(s));
}

Status KernelTimer::run(bool keep) {
  std::vector<neso_tensor> outputs(session_->outputs.size());
  const double begin = nowMs();
  if (neso_status s = neso_run(context_, session_->views.data(), session_->views.size(), outputs.data(), outputs.size()); s != NESO_OK) return runtimeError(s);
  if (!keep) return Status::ok();
  runs_.push_back(nowMs() - begin);
  std::map<std::string, double> one;
  neso_step_time step;
  for (int64_t k = 0; neso_context_step_time(context_, k, &step) == NESO_OK; ++k)
    if (step.kernel) one[step.kernel] += step.ms;
  for (const auto &[kernel, ms] : one) kernels_[kernel].push_back(ms);
  return Status::ok();
}

namespace {
double middle(std::vector<double> xs) {
  if (xs.empty()) return 0;
  std::nth_element(xs.begin(), xs.begin() + static_cast<std::ptrdiff_t>(xs.size() / 2), xs.end());
  return xs[xs.size() / 2];
}
} // namespace

double KernelTimer::runMs() const { return middle(runs_); }

std::map<std::string, double> KernelTimer::kernelMs() const {
  std::map<std::string, double> out;
  for (const auto &[kernel, ms] : kernels_) out[kernel] = middle(ms);
  return out;
}

Result<std::string> readReport(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return fail(diag::FileUnreadable, {}, path, std::string("no such file, or not readable"));
  std::string page = text.str();
  if (page.find(kReportTimes) == std::string::npos) return fail(diag::ReportForeign, {}, path, std::string("it is no report of neso compile"));
  return page;
}

std::vector<std::string> sizesOfReport(const std::string &page) {
  const size_t begin = page.find(kReportSizes);
  std::vector<std::string> out;
  if (begin == std::string::npos) return out;
  const size_t from = begin + std::strlen(kReportSizes);
  std::stringstream text(page.substr(from, page.find('"', from) - from));
  for (std::string one; std::getline(text >> std::ws, one, ',');) out.push_back(one);
  return out;
}

Status checkReport(const std::string &path, const std::string &page, const neso_model *model) {
  for (int32_t i = 0; i < neso_model_kernel_count(model); ++i) {
    neso_kernel_info kernel;
    neso_model_kernel(model, i, &kernel);
    if (page.find(fmt::format("data-name=\"{}\"", kernel.name)) == std::string::npos)
      return fail(diag::ReportForeign, {}, path, fmt::format("it does not know the kernel '{}'", kernel.name));
  }
  return Status::ok();
}

Status writeReportTimes(const std::string &path, std::string page, Session &session, const SessionOptions &options, const Spread &warm) {
  KernelTimer timer;
  if (Status s = timer.open(session, options); !s) return s;
  // The first run finds cold caches.
  for (int i = 0; i <= kRuns; ++i)
    if (Status s = timer.run(i > 0); !s) return s;
  neso_context_stats stats;
  neso_context_get_stats(session.context(), &stats);
  std::string kernels, limits, sizes;
  for (const auto &[kernel, ms] : timer.kernelMs()) kernels += fmt::format("{}{}: {:.6f}", kernels.empty() ? "" : ", ", jsonString(kernel), ms);
  if (options.device.apart()) {
    Result<double> copies = deviceCopyLimit(session, options.device);
    if (!copies) return copies.takeError();
    if (*copies > 0) limits = fmt::format("\"copy_gbs\": {:.2f}, ", *copies);
  } else {
    limits = fmt::format("\"copy_gbs\": {:.2f}, \"gflops\": {:.1f}, ", copyLimit(stats.threads), multiplyLimit(stats.threads));
  }
  // Where all sizes are fixed, files cannot bring others.
  if (!options.inputs.empty() && neso_model_symbol_count(session.model())) sizes = "those of the input files";
  for (const std::string &dim : options.dims) sizes += (sizes.empty() ? "" : ", ") + dim;
  const std::string json = fmt::format("{{\"device\": {}, \"threads\": {}, \"run_ms\": {:.6f}, {}\"sizes\": {}, \"kernels\": {{{}}}}}",
                                       jsonString(options.device.text), stats.threads, warm.median, limits, jsonString(sizes), kernels);
  const size_t begin = page.find(kReportTimes) + std::strlen(kReportTimes), end = page.find("</script>", begin);
  page.replace(begin, end - begin, json);
  return writeFileAtomically(path, page);
}

} // namespace neso::cli
